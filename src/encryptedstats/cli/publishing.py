"""``release``, ``ledger`` and ``report``: what leaves the house, what it costs, and a page on all
of it for an ethics board.
"""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer
from rich.console import Console, RenderableType
from rich.text import Text

import encryptedstats as es
from encryptedstats.cli._console import (
    command_line,
    fact_table,
    print_json,
    printable,
    progress,
    size_text,
)
from encryptedstats.cli._errors import WORDS
from encryptedstats.cli._files import COMPUTED, Reads, Writes, save, write_text
from encryptedstats.cli._frames import frame_view
from encryptedstats.cli._inputs import load_schema
from encryptedstats.cli._keys import load_owner
from encryptedstats.cli._options import (
    AsJson,
    Force,
    KeyFile,
    LedgerFolder,
    OwnSchema,
    PassphraseFile,
    Profile,
    file_option,
    output,
)
from encryptedstats.cli.decrypt import check_opens
from encryptedstats.publishing.opening import source_of
from encryptedstats.publishing.release import PUBLIC_SCHEMA
from encryptedstats.publishing.report import write_report
from encryptedstats.publishing.tables import check_written
from encryptedstats.tables.questions.question import load_questions


class Relation(str, Enum):
    """Which tables cannot be told apart."""

    exchanged = "replace"  # by the name, str.replace would be hidden
    added = "add"


class Noise(str, Enum):
    """Which noise is added."""

    auto = "auto"
    laplace = "laplace"
    gaussian = "gaussian"


def release(
    file: Annotated[
        str,
        Reads,
        typer.Argument(
            metavar="FILE",
            help="An encrypted result or model; a file, or a URL.",
            show_default=False,
        ),
    ],
    epsilon: Annotated[
        float,
        typer.Option("--epsilon", metavar="X", help="What it may cost: 1 is usual, 0.1 is little."),
    ],
    key: KeyFile = None,
    schema: OwnSchema = None,
    delta: Annotated[
        float,
        typer.Option(
            metavar="X", help="Far below 1 divided by the rows; 0 for Laplace noise alone."
        ),
    ] = 1e-6,
    ledger: LedgerFolder = None,
    relation: Annotated[
        Relation | None,
        typer.Option(
            help="Neighbours: one row for another, the number of rows public; or one row more or "
            "less. By default those of the "
            "ledger; without one, replace.",
            show_default=False,
        ),
    ] = None,
    max_rows: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Rows that a person has at most: all of them are protected together. By default "
            "as the ledger says; without "
            "one, 1.",
            show_default=False,
        ),
    ] = None,
    max_weight: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="The largest weight of a row; by default the bound that the table was encrypted "
            "with.",
            show_default=False,
        ),
    ] = None,
    mechanism: Annotated[
        Noise, typer.Option(help="Which noise; auto takes the lesser.")
    ] = Noise.auto,
    questions: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.py",
            help="Where the question is defined, if it is your own.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        Writes(COMPUTED),
        output(
            "Keep it there: a model that predict reads, a result that info shows; CSV where it "
            "ends in .csv."
        ),
    ] = None,
    passphrase_file: PassphraseFile = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Open a result or a model with noise on it, so that it tells little of any single person (differential privacy).

    Nobody sees the exact numbers, not even you. How much noise it takes is computed from the question; what it costs is spent from
    the budget of the ledger before anything is shown. The same command again is another release, and costs again.

    Examples:
      encryptedstats ledger study.ledger --begin --key secret.key --epsilon 3 --rules pcornet
      encryptedstats release forest.enc --key secret.key --schema schema.json --epsilon 1 --ledger study.ledger -o forest.released
      encryptedstats release age.enc --key secret.key --schema schema.json --epsilon 0.5 --delta 0 -o age.csv
    """
    check_opens(file)
    private = None if schema is None else load_schema(schema)
    owner = load_owner(key, passphrase_file, opens=file)
    if questions is not None:
        load_questions(questions)
    if out is not None and out.suffix == ".csv":
        check_written(
            source_of(file, owner, private).answer.question.name
        )  # before it costs anything
    near = None if relation is None else relation.value
    options = {
        "relation": near,
        "max_rows": max_rows,
        "max_weight": max_weight,
        "mechanism": mechanism.value,
    }
    found = owner.release(file, private, epsilon=epsilon, delta=delta, ledger=ledger, **options)
    if out is not None and out.suffix == ".csv":
        write_text(out, found.to_frame().to_csv(lineterminator="\n"), force=force)
    elif out is not None:
        save(found, out, force=force)
    if as_json:
        print_json(
            {
                "file": file,
                **found.privacy.to_dict(),
                "rows": found.source.n_rows,
                "totals": list(found.source.totals),
            }
        )
        return
    console = Console()
    text = str(found).replace(PUBLIC_SCHEMA.words, WORDS[PUBLIC_SCHEMA.action])
    console.print(Text("\n".join(map(printable, text.splitlines()))))
    if out is not None:
        console.print()
        console.print(
            Text.assemble(
                "Wrote ", (printable(str(out)), "bold"), f"  {size_text(out.stat().st_size)}"
            )
        )


def ledger(
    folder: Annotated[
        str,
        Reads,
        typer.Argument(
            metavar="LEDGER",
            help="Folder or URL of the ledger, beside the key.",
            show_default=False,
        ),
    ],
    key: KeyFile = None,
    keys: Annotated[
        Path | None,
        file_option(
            "--keys", help="To look at it without a secret key: public keys of who began it."
        ),
    ] = None,
    begin: Annotated[
        bool, typer.Option("--begin", help="Begin a new ledger, with the budget and rules given.")
    ] = False,
    epsilon: Annotated[
        float | None,
        typer.Option(
            metavar="X",
            help="The budget: of a new ledger, or another one from now on.",
            show_default=False,
        ),
    ] = None,
    delta: Annotated[float, typer.Option(metavar="X", help="Of the budget.")] = 1e-6,
    rules: Profile = None,
    member: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Public keys of somebody else who may write; may be given several times.",
            show_default=False,
        ),
    ] = None,
    relation: Annotated[
        Relation,
        typer.Option(
            help="Of a new ledger: which tables are neighbours in all its releases. It takes the "
            "number of rows for public "
            "(replace), or not (add)."
        ),
    ] = Relation.exchanged,
    max_rows: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="N",
            help="Of a new ledger: rows that a person has at most; 1 protects single rows.",
        ),
    ] = 1,
    another: Annotated[
        bool,
        typer.Option(
            "--another",
            help="Begin it although the key has another ledger, whose costs it does not count.",
        ),
    ] = False,
    passphrase_file: PassphraseFile = None,
    as_json: AsJson = False,
) -> None:
    """Show what was opened, published and released, and what is left of the budget; or begin a ledger.

    Whose privacy its epsilon is about is fixed when it begins: releases of another unit or relation are refused. Every entry is
    signed and names the one before it, so that what is altered is noticed. Whoever can write to the folder can still roll it back
    to an earlier state: keep the hash of the last entry elsewhere.

    Examples:
      encryptedstats ledger study.ledger --begin --key secret.key --epsilon 3 --rules pcornet
      encryptedstats ledger study.ledger --keys public.keys
    """
    if begin or epsilon is not None:
        owner = load_owner(key, passphrase_file)
        if begin:
            others = [es.PublicKeys.load(one) for one in member or ()]
            book = es.Ledger.begin(
                folder,
                owner,
                epsilon=epsilon,
                delta=delta,
                rules=rules,
                members=others,
                max_rows=max_rows,
                relation=relation.value,
                another=another,
            )
        else:
            book = es.Ledger.of(folder, owner)
            book.set_budget(owner, float(epsilon or 0), delta)
    else:
        book = es.Ledger(folder, _public(key, keys, passphrase_file))
    _show_ledger(book, as_json)


def _public(
    key: Path | None, keys: Path | None, passphrase_file: Path | None
) -> es.PublicKeys | es.Owner:
    if keys is None and key is None:
        raise es.ArgumentError(
            "whose ledger is it: give --keys public.keys, or --key secret.key",
            code="no-public-keys",
        )
    return es.PublicKeys.load(keys) if keys is not None else load_owner(key, passphrase_file)


def _show_ledger(book: es.Ledger, as_json: bool) -> None:
    budget, chosen, frame, head, units = (
        book.budget,
        book.rules,
        book.to_frame(),
        book.head(),
        book.units,
    )
    mixed = len(units) > 1  # by an older version: their costs do not add up
    epsilon, rho = (None, None) if mixed else (book.epsilon_spent, book.rho_spent)
    if as_json:
        entries = [
            {"by": entry.by, "hash": entry.hash, **entry.content} for entry in book.entries()
        ]
        print_json(
            {
                "ledger": book.url,
                "key_id": book.keys.key_id,
                "units": [unit.to_dict() for unit in units],
                "other_ledgers": book.n_others,
                "budget": None if budget is None else vars(budget),
                "epsilon_spent": epsilon,
                "rho_spent": rho,
                "head": head,
                "entries": entries,
            }
        )
        return
    left = "no budget" if budget is None else f"of {budget.epsilon:g} at delta {budget.delta:g}"
    spent = Text("costs of different units do not add up: begin a ledger for each", style="yellow")
    if epsilon is not None:
        spent = Text.assemble((f"epsilon {epsilon:.4g}", "bold"), f" {left} (rho {rho:.4g})")
    rows: list[tuple[str, RenderableType]] = [
        (
            "ledger",
            Text(
                f"{printable(book.url)}, {len(frame)} {'entry' if len(frame) == 1 else 'entries'}"
            ),
        ),
        ("key", Text(book.keys.fingerprint, style="cyan")),
        ("spent", spent),
        (
            "about",
            Text("; and ".join(map(str, units)) or "not fixed yet: the first release fixes it"),
        ),
        ("rules", "none" if chosen is None else printable(chosen.describe())),
        ("last entry", Text(f"{head}  keep it elsewhere: then a roll-back is noticed")),
    ]
    if book.n_others:
        rows.insert(
            3,
            (
                "beside it",
                Text(f"{book.n_others} other of this key, not counted here", style="yellow"),
            ),
        )
    console = Console()
    console.print(fact_table(rows))
    console.print()
    shown = frame.assign(
        time=[text[:16].replace("T", " ") for text in frame["time"]],
        rows=["" if pd.isna(n) else f"{int(n):,}" for n in frame["rows"]],
        epsilon=["" if pd.isna(x) else f"{x:g}" for x in frame["epsilon"]],
    )
    if shown["by"].nunique() == 1:
        shown = shown.drop(columns="by")
    console.print(frame_view(shown, console.width))


def report(
    files: Annotated[
        list[str] | None,
        Reads,
        typer.Argument(
            metavar="FILES",
            help="Tables, results, models, encrypted or opened: all that belongs to the study.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path,
        Writes(COMPUTED),
        output("Where the page goes: .html, or .pdf where a browser is installed."),
    ] = Path("report.html"),
    key: KeyFile = None,
    keys: Annotated[
        Path | None,
        file_option("--keys", help="Public keys of the study, instead of the secret one."),
    ] = None,
    ledger: LedgerFolder = None,
    title: Annotated[
        str, typer.Option(metavar="TEXT", help="What the page is called.")
    ] = "Report on an encrypted study",
    questions: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.py",
            help="Where questions are defined, if they are your own.",
            show_default=False,
        ),
    ] = None,
    passphrase_file: PassphraseFile = None,
    force: Force = False,
) -> None:
    """Write a page for an ethics board, from the files themselves: what was computed, who could see what, and what left the house.

    One HTML page that needs nothing from elsewhere and prints well. It has no names of variables, levels or classes.

    Examples:
      encryptedstats report patients.enc forest.enc --keys public.keys --ledger study.ledger -o report.html
      encryptedstats report patients.enc forest.enc --keys public.keys --ledger study.ledger -o report.pdf
    """
    if questions is not None:
        load_questions(questions)
    who = _public(key, keys, passphrase_file)
    with progress("writing the report"):
        write_report(out, files or (), keys=who, ledger=ledger, title=title, overwrite=force)
    rows: list[tuple[str, RenderableType]] = [
        (
            "report",
            Text(f"{printable(str(out))}  {size_text(out.stat().st_size)}, readable to you only"),
        )
    ]
    if ledger is None:
        rows.append(
            (
                "no ledger",
                Text("what was opened and released is not in it: give --ledger", style="yellow"),
            )
        )
    elif out.suffix != ".pdf":
        by = ("--keys", keys) if keys is not None else ("--key", key)
        again = ("report", *(files or ()), *by, "--ledger", ledger, "-o", out.with_suffix(".pdf"))
        rows.append(("as PDF", command_line(*again)))
    Console().print(fact_table(rows))
