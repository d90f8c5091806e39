"""``move`` and ``retire``: an owner who changes keys takes what is stored along, and says so of the
old key in writing.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

import encryptedstats as es
from encryptedstats.cli._console import (
    command_line,
    fact_table,
    print_json,
    printable,
    progress,
    size_text,
    time_text,
)
from encryptedstats.cli._files import Reads, Writes, save
from encryptedstats.cli._inputs import expect, load_public_keys, load_schema, nature
from encryptedstats.cli._keys import load_owner
from encryptedstats.cli._options import (
    AsJson,
    Force,
    KeyFile,
    PassphraseFile,
    file_argument,
    file_option,
)
from encryptedstats.crypto.keyfiles import PUBLIC_KIND
from encryptedstats.storage.objects import open_store
from encryptedstats.tables.answers.files import ANSWER_KINDS
from encryptedstats.tables.manifest import MANIFEST, TABLE_KIND


def move(
    source: Annotated[
        str,
        Reads,
        typer.Argument(
            metavar="SOURCE",
            help="An encrypted table, model or result; a folder, a file, or a URL.",
            show_default=False,
        ),
    ],
    out: Annotated[
        str,
        Writes("it would have to be moved again", table=True, or_file=True),
        typer.Argument(
            metavar="OUT", help="Where it goes, encrypted for the new key.", show_default=False
        ),
    ],
    new_key: Annotated[
        Path, file_option("--new-key", help="Your new secret key, of keygen with the same plan.")
    ],
    key: KeyFile = None,
    schema: Annotated[
        Path | None,
        file_option(
            "--schema",
            help="The schema that the rows were encrypted with: a table needs it, for the new key "
            "marks it.",
        ),
    ] = None,
    passphrase_file: PassphraseFile = None,
    new_passphrase_file: Annotated[
        Path | None,
        file_option(
            help="The first line opens a locked --new-key; without it you are asked. Only you may "
            "have access (mode 0600)."
        ),
    ] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Take a table, a model or a result to a new key: opened with the old one, and encrypted anew, on your machine.

    What it holds stays the same; rows that others had encrypted are yours from then on. The old ciphertexts stay where they are,
    and the old key opens them as before: delete them where you can, and say with retire that nobody is to use the old key.

    Examples:
      encryptedstats keygen new.key new.keys --plan plan.json
      encryptedstats move patients.enc moved.enc --key secret.key --new-key new.key --schema schema.json
      encryptedstats move forest.enc moved-forest.enc --key secret.key --new-key new.key
      encryptedstats retire public.keys --key secret.key --why "the laptop was lost" --successor new.keys --force
    """
    kind = (
        TABLE_KIND
        if open_store(source).exists(MANIFEST)
        else expect(source, ANSWER_KINDS, "a table, model or result")
    )
    private = None if schema is None else load_schema(schema)
    old = load_owner(key, passphrase_file, opens=None if kind == TABLE_KIND else source)
    new = load_owner(new_key, new_passphrase_file)
    started = time.perf_counter()
    with progress("moving"):
        old.move(source, new, out, private, overwrite=force)
    seconds = time.perf_counter() - started
    if as_json:
        ids = {"old_key_id": old.key_id, "key_id": new.key_id}
        print_json({"file": source, "kind": kind, "out": out, **ids, "seconds": seconds})
        return
    moved = Text.assemble(
        ("Moved", "bold"), f" {kind} in {time_text(seconds)}: ", (printable(out), "bold")
    )
    Console().print(moved)
    Console().print(
        fact_table(
            [
                ("key", Text.assemble((new.key_id, "cyan"), f", before {old.key_id}")),
                (
                    "old one",
                    f"{printable(source)} is as it was, and the old key opens it: delete it where "
                    "you can",
                ),
                (
                    "next",
                    command_line(
                        "retire",
                        "public.keys",
                        "--key",
                        key,
                        "--why",
                        "TEXT",
                        "--successor",
                        "new.keys",
                    ),
                ),
            ]
        )
    )


def retire(
    public: Annotated[
        Path,
        Writes("it is to be the file that you have given away, or a new one"),
        file_argument(
            "PUBLIC",
            "File for the retired public keys: over those that you gave away (--force), or beside.",
        ),
    ],
    why: Annotated[
        str,
        typer.Option(metavar="TEXT", help="The reason, which everybody reads.", show_default=False),
    ],
    key: KeyFile = None,
    successor: Annotated[
        Path | None, file_option(help="Public keys that others are to encrypt for from now on.")
    ] = None,
    passphrase_file: PassphraseFile = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Say in writing, signed by the secret key, that nothing is to be encrypted for its public keys any more.

    Give the file to whoever has the old public keys. With it, encrypt refuses and says which key to take; computing and opening go
    on as before. Nothing can be taken back: whoever keeps an old file can still encrypt with that.

    Examples:
      encryptedstats retire public.keys --key secret.key --why "the laptop was lost" --successor new.keys --force
    """
    if public.exists() and nature(public) != PUBLIC_KIND:
        expect(
            public,
            (PUBLIC_KIND,),
            "the file of the public keys to retire",
            "give their file, or a new name",
        )
    following = None if successor is None else load_public_keys(successor)
    owner = load_owner(key, passphrase_file)
    if public.exists() and (there := load_public_keys(public).key_id) != owner.key_id:
        raise es.KeyMismatchError(
            f"{public} has the public keys {there}, and {key} is the secret key {owner.key_id}: "
            "give the file of the keys that are "
            "retired, or a new name",
            code="other-key",
        )
    save(owner.retire(why, following), public, force=force)
    nbytes = public.stat().st_size
    if as_json:
        instead_id = None if following is None else following.key_id
        file = {"file": str(public), "bytes": nbytes}
        print_json({"key_id": owner.key_id, "why": why, "successor": instead_id, "public": file})
        return
    instead = "none named" if following is None else Text(following.key_id, style="cyan")
    give = f"{printable(str(public))}  {size_text(nbytes)}, to whoever has the old public keys"
    Console().print(Text.assemble(("Retired", "bold"), " key ", (owner.key_id, "cyan")))
    Console().print(
        fact_table([("why", printable(why)), ("instead", instead), ("give away", give)])
    )
