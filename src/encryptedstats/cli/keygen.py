"""``keygen``: a secret key that stays, and public keys to give away; both files are made, or
neither.
"""

from __future__ import annotations

import stat
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console, RenderableType
from rich.text import Text

import encryptedstats as es
from encryptedstats.cli._console import (
    fact_table,
    parameter_facts,
    parameter_rows,
    plural,
    print_json,
    printable,
    progress,
    size_text,
    time_text,
)
from encryptedstats.cli._files import Writes
from encryptedstats.cli._keys import first_line
from encryptedstats.cli._options import (
    AsJson,
    Force,
    Scheme,
    SchemeName,
    Security,
    file_argument,
    file_option,
)
from encryptedstats.cli._questions import shortened
from encryptedstats.cli.plan import SavedPlan, read_plan
from encryptedstats.storage.files import write_together

_LOSS = "without its secret key, what was encrypted under it is lost"
_WISHES = ("security", "max_value", "depth", "terms", "scheme")


def keygen(
    ctx: typer.Context,
    secret: Annotated[
        Path,
        Writes(_LOSS, over_keys=True),
        file_argument("SECRET", "File for the secret key: it stays with you."),
    ],
    public: Annotated[
        Path,
        Writes(_LOSS, over_keys=True),
        file_argument(
            "PUBLIC", "File for the public keys: give it to whoever encrypts or computes."
        ),
    ],
    plan: Annotated[
        Path | None,
        file_option(
            help="Parameters from a plan, as encryptedstats plan -o wrote it, instead of the next "
            "five options."
        ),
    ] = None,
    security: Security = 128,
    max_value: Annotated[
        int, typer.Option(metavar="N", help="Largest absolute value of any (intermediate) result.")
    ] = 65_536,
    depth: Annotated[
        int, typer.Option(metavar="N", help="Largest number of multiplications in a row.")
    ] = 4,
    terms: Annotated[
        int, typer.Option(metavar="N", help="How many products may be added up at every level.")
    ] = 64,
    scheme: Scheme = SchemeName.bgv,
    passphrase: Annotated[
        bool,
        typer.Option(
            "--passphrase/--no-passphrase", help="Lock the secret key: asks for a passphrase twice."
        ),
    ] = False,
    passphrase_file: Annotated[
        Path | None,
        file_option(
            help="Lock the secret key with the first line of this file, to which only you may have "
            "access (mode 0600)."
        ),
    ] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Make a secret key, and public keys for whoever encrypts or computes.

    Examples:
      # keys for what was planned
      encryptedstats keygen secret.key public.keys --plan plan.json

      # keys for integers and arrays: results up to a million, two multiplications in a row
      encryptedstats keygen secret.key public.keys --max-value 1000000 --depth 2 --passphrase
    """
    planned = None
    if plan is None:
        parameters = es.Parameters.choose(security, max_value, depth, scheme.value, terms=terms)
    else:
        _refuse_beside_plan(ctx)
        planned = read_plan(plan)
        parameters = planned.parameters
    words = _passphrase(passphrase, passphrase_file)
    started = time.perf_counter()
    with progress("making keys"):
        owner = es.Owner(planned or parameters)
        seconds = time.perf_counter() - started
        save_pair(owner, secret, public, words, force=force)
    if as_json:
        print_json(
            {
                "key_id": owner.key_id,
                "fingerprint": owner.fingerprint,
                "secret": {
                    "file": str(secret),
                    "bytes": secret.stat().st_size,
                    "locked": words is not None,
                },
                "public": {"file": str(public), "bytes": public.stat().st_size},
                "seconds": seconds,
                "rotations": list(owner.public_keys().rotations),
                "parameters": parameter_facts(parameters),
            }
        )
    else:
        _show(owner, secret, public, locked=words is not None, seconds=seconds, planned=planned)


def _refuse_beside_plan(ctx: typer.Context) -> None:
    given = [
        name
        for name in _WISHES
        if getattr(ctx.get_parameter_source(name), "name", "") == "COMMANDLINE"
    ]
    if given:
        raise typer.BadParameter(
            f"--plan has chosen the parameters: leave out --{given[0].replace('_', '-')}"
        )


def _passphrase(ask: bool, file: Path | None) -> str | None:
    if file is not None and ask:
        raise typer.BadParameter("give either --passphrase, to be asked, or --passphrase-file")
    if file is not None:
        return first_line(file)
    if not ask:
        return None
    words: str = typer.prompt(
        "Passphrase for the secret key",
        hide_input=True,
        confirmation_prompt="The same again",
        err=True,
    )
    return words


def save_pair(
    owner: es.Owner, secret: Path, public: Path, passphrase: str | None, *, force: bool
) -> None:
    """Write both files or neither: a new secret key beside the public keys of an old one would
    mislead.
    """
    keys = owner.public_keys()
    write_together(
        {secret: lambda path: owner.save(path, passphrase), public: keys.save}, overwrite=force
    )


def _show(
    owner: es.Owner,
    secret: Path,
    public: Path,
    *,
    locked: bool,
    seconds: float,
    planned: SavedPlan | None,
) -> None:
    console = Console()
    console.print(
        Text.assemble(("Keys made", "bold"), f" in {time_text(seconds)}: ", (owner.key_id, "cyan"))
    )
    rows = parameter_rows(owner.parameters)
    if planned is not None:  # how deep any computation may be says little where one is known to fit
        lines = [*shortened(planned.questions), f"on up to {plural(planned.rows, 'row')}"]
        made_for: RenderableType = Text("\n".join(map(printable, lines)), style="bold")
        rows = [("made for", made_for), *(row for row in rows if row[0] != "depth")]
    console.print(fact_table(rows))
    console.print()
    mode = stat.S_IMODE(secret.stat().st_mode)
    lock = (
        "locked by your passphrase: without it nobody can open it, you neither"
        if locked
        else "no passphrase on it"
    )
    console.print(
        fact_table(
            [
                (
                    "keep",
                    Text.assemble(
                        (str(secret), "bold red"),
                        f"  {size_text(secret.stat().st_size)}, mode {mode:04o}, {lock}.\n"
                        "It alone opens results. Keep a copy, and never give it to anybody.",
                    ),
                ),
                (
                    "give away",
                    Text.assemble(
                        (str(public), "bold green"),
                        f"  {size_text(public.stat().st_size)}.\n"
                        "Whoever has it can encrypt and compute for you, and can open nothing.",
                    ),
                ),
                (
                    "fingerprint",
                    Text.assemble(
                        (owner.fingerprint, "bold cyan"),
                        "\nRead it by telephone to whoever gets the public keys, before they "
                        "encrypt with them.",
                    ),
                ),
            ]
        )
    )
