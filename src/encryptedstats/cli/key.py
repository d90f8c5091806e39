"""``key``: make keys, change to new ones, and retire old ones."""

from __future__ import annotations

import stat
import time
from pathlib import Path
from typing import Annotated, Any, Final

import typer

import encryptedstats as es
from encryptedstats.cli._console import (
    command_line,
    file_facts,
    file_text,
    parameter_facts,
    parameter_rows,
    plural,
    progress,
    shorten,
    tell,
    time_text,
)
from encryptedstats.cli._files import Reads, Writes, save
from encryptedstats.cli._inputs import expect, load_public_keys, load_schema, nature
from encryptedstats.cli._keys import first_line, load_owner
from encryptedstats.cli._options import (
    AsJson,
    Force,
    KeyFile,
    PassphraseFile,
    argument,
    file_option,
    option,
)
from encryptedstats.cli.plan import SavedPlan, read_plan
from encryptedstats.crypto.keyfiles import PUBLIC_KIND
from encryptedstats.storage.files import write_together
from encryptedstats.storage.objects import open_store
from encryptedstats.tables.answers.files import ANSWER_KINDS
from encryptedstats.tables.manifest import MANIFEST, TABLE_KIND
from encryptedstats.tables.questions.words import parse_numbers
from encryptedstats.views import View

_LOSS: Final = "without its secret key, what was encrypted under it is lost"
_PUBLIC_USE: Final = "With it others can encrypt and compute for you, and can decrypt nothing."
_TELEPHONE: Final = "Read it by telephone to those who get the public keys, before they encrypt."
_WISHES: Final = {"security": int, "max_value": int, "depth": int, "scheme": str, "terms": int}
_USUAL: Final = {"security": 128, "max_value": 65_536, "depth": 4, "scheme": "bgv", "terms": 64}


def key_make(
    secret: Annotated[
        Path,
        Writes(_LOSS, over_keys=True),
        argument("SECRET", "File for the secret key: it stays with you."),
    ],
    public: Annotated[
        Path,
        Writes(_LOSS, over_keys=True),
        argument("PUBLIC", "File for the public keys, for workers and contributors."),
    ],
    wishes: Annotated[
        list[str] | None,
        argument(
            "[NAME=VALUE]...",
            "Without a plan: security=128, 192 or 256; max_value, of any result (65536); depth, "
            "products in a row (4); terms, products added up at each level (64); scheme=bgv or "
            "bfv.",
        ),
    ] = None,
    plan: Annotated[
        Path | None, file_option(help="Make keys for this plan, as plan -o wrote it.")
    ] = None,
    passphrase: Annotated[
        bool,
        typer.Option("--passphrase", help="Lock the secret key: asks for a passphrase twice."),
    ] = False,
    passphrase_file: PassphraseFile = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Make a secret key, and public keys for workers and contributors.

    JSON: key_id, fingerprint, secret, public, seconds, rotations, parameters

    Examples:
      # keys for what was planned
      encryptedstats key make secret.key public.keys --plan plan.json

      # keys for integers and arrays: results up to a million, two multiplications in a row
      encryptedstats key make secret.key public.keys max_value=1000000 depth=2 --passphrase
    """
    if public.name.partition("=")[0] in _WISHES:
        raise typer.BadParameter(
            f"{public} is no file: give two files before it, SECRET and PUBLIC"
        )
    planned = None if plan is None else read_plan(plan)
    if plan is not None and wishes:
        raise typer.BadParameter(f"--plan has chosen the parameters: leave out {wishes[0]}")
    parameters = planned.parameters if planned is not None else _parameters(wishes)
    words = _new_passphrase(passphrase, passphrase_file)
    started = time.perf_counter()
    with progress("making keys"):
        owner = es.Owner(planned or parameters)
        seconds = time.perf_counter() - started
        save_pair(owner, secret, public, words, force=force)
    document = {
        "key_id": owner.key_id,
        "fingerprint": owner.fingerprint,
        "secret": {**file_facts(secret), "locked": words is not None},
        "public": file_facts(public),
        "seconds": seconds,
        "rotations": list(owner.public_keys().rotations),
        "parameters": parameter_facts(parameters),
    }
    tell(_view(owner, secret, public, document, planned), document, as_json)


def _parameters(wishes: list[str] | None) -> es.Parameters:
    wish = {**_USUAL, **parse_numbers(wishes, _WISHES, "key make")}
    terms = wish.pop("terms")
    return es.Parameters.choose(*wish.values(), terms=terms)


def _new_passphrase(ask: bool, file: Path | None) -> str | None:
    if file is not None and ask:
        raise typer.BadParameter(
            "give either --passphrase, which asks for one, or --passphrase-file, not both"
        )
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
    """Write both files or neither."""
    keys = owner.public_keys()
    write_together(
        {secret: lambda path: owner.save(path, passphrase), public: keys.save}, overwrite=force
    )


def _view(
    owner: es.Owner, secret: Path, public: Path, document: dict[str, Any], planned: SavedPlan | None
) -> View:
    rows: dict[str, Any] = {**parameter_rows(owner.parameters)}
    if planned is not None:  # the plan says what is computed, not how deep anything may be
        del rows["depth"]
        questions = (*shorten(planned.questions), f"on up to {plural(planned.rows, 'row')}")
        rows = {"made for": questions, **rows}
    lock = (
        "locked by your passphrase, without which nobody can open it"
        if document["secret"]["locked"]
        else "no passphrase on it"
    )
    mode = f"mode {stat.S_IMODE(secret.stat().st_mode):04o}"
    facts = {
        **rows,
        "keep": (
            f"{file_text(secret, mode, lock)}.",
            "It alone opens results. Keep a copy, and never give it to anybody.",
        ),
        "give away": (f"{file_text(public)}.", _PUBLIC_USE),
        "fingerprint": (owner.fingerprint, _TELEPHONE),
    }
    return View(f"Keys made in {time_text(document['seconds'])}: {owner.key_id}", facts)


def key_public(
    key: Annotated[Path, argument("SECRET", "Your secret key.")],
    public: Annotated[
        Path,
        Writes("it may be the file that others have"),
        argument("PUBLIC", "File for its public keys."),
    ],
    passphrase_file: PassphraseFile = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write the public keys of a secret key again.

    They are equivalent to the first ones and have the same fingerprint.

    JSON: key_id, fingerprint, public

    Examples:
      encryptedstats key public secret.key public.keys
    """
    owner = load_owner(key, passphrase_file)
    save(owner.public_keys(), public, force=force)
    ids = {"key_id": owner.key_id, "fingerprint": owner.fingerprint}
    shown = {"give away": (f"{file_text(public)}.", _PUBLIC_USE), "fingerprint": owner.fingerprint}
    tell(
        View(f"Public keys of {owner.key_id}", shown),
        {**ids, "public": file_facts(public)},
        as_json,
    )


def key_move(
    source: Annotated[
        str,
        Reads,
        argument("SOURCE", "An encrypted table, model or answer; a folder, a file, or a URL."),
    ],
    out: Annotated[
        str,
        Writes("it would have to be moved again", table=True, or_file=True),
        argument("OUT", "Where it goes, encrypted for the new key."),
    ],
    new_key: Annotated[
        Path, file_option("--new-key", help="Your new secret key, made for the same plan.")
    ],
    key: KeyFile = None,
    schema: Annotated[
        Path | None,
        file_option(
            "--schema",
            help="The schema that the rows were encrypted with, for a table.",
        ),
    ] = None,
    new_passphrase_file: Annotated[
        Path | None,
        file_option(
            help="Its first line is the passphrase of --new-key; without it you are asked. Only "
            "you may have access (mode 0600)."
        ),
    ] = None,
    passphrase_file: PassphraseFile = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Encrypt a table, a model or an answer again, for a new key.

    It is decrypted on this machine and encrypted for the new key; rows of contributors count as
    yours afterwards. The old file stays, and the old key still opens it: delete it where you can,
    and retire the old key.

    JSON: file, kind, out, old_key_id, key_id, seconds

    Examples:
      encryptedstats key make new.key new.keys --plan plan.json
      encryptedstats key move patients.enc moved.enc --key secret.key --new-key new.key \\
        --schema schema.json
      encryptedstats key move forest.enc moved-forest.enc --key secret.key --new-key new.key
      encryptedstats key retire public.keys --key secret.key --why "the laptop was lost" \\
        --successor new.keys --force
    """
    kind = (
        TABLE_KIND
        if open_store(source).exists(MANIFEST)
        else expect(source, ANSWER_KINDS, "a table, model or answer")
    )
    private = None if schema is None else load_schema(schema)
    old = load_owner(key, passphrase_file, opens=None if kind == TABLE_KIND else source)
    new = load_owner(new_key, new_passphrase_file)
    started = time.perf_counter()
    with progress("moving"):
        old.move(source, new, out, private, overwrite=force)
    seconds = time.perf_counter() - started
    ids = {"old_key_id": old.key_id, "key_id": new.key_id}
    document = {"file": source, "kind": kind, "out": out, **ids, "seconds": seconds}
    retire = ("retire", "public.keys", "--key", key, "--why", "TEXT", "--successor", "new.keys")
    facts = {
        "key": f"{new.key_id}, before {old.key_id}",
        "old one": f"{source} is unchanged, and the old key opens it: delete it where you can",
        "next": command_line("key", *retire),
    }
    tell(View(f"Moved {kind} in {time_text(seconds)}: {out}", facts), document, as_json)


def key_retire(
    public: Annotated[
        Path,
        Writes("it may only be the file that you have given away"),
        argument(
            "PUBLIC",
            "File for the retired public keys: a new one, or with --force that of the old ones.",
        ),
    ],
    why: Annotated[
        str, option(metavar="TEXT", help="The reason, which the file shows to everybody.")
    ],
    key: KeyFile = None,
    successor: Annotated[
        Path | None, file_option(help="Public keys to encrypt for instead.")
    ] = None,
    passphrase_file: PassphraseFile = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Declare that nothing is to be encrypted for a key any more.

    The file is signed by the secret key. Give it to all who have the old public keys: with it,
    encrypt refuses and names the successor, while ask and open work as before. Somebody who keeps
    the old file can still encrypt with it.

    JSON: key_id, why, successor, public

    Examples:
      encryptedstats key retire public.keys --key secret.key --why "the laptop was lost" \\
        --successor new.keys --force
    """
    if public.exists() and nature(public) != PUBLIC_KIND:
        what = "the file of the public keys to retire"
        expect(public, (PUBLIC_KIND,), what, "give their file, or a new name")
    following = None if successor is None else load_public_keys(successor)
    owner = load_owner(key, passphrase_file)
    if public.exists() and (there := load_public_keys(public).key_id) != owner.key_id:
        raise es.KeyMismatchError(
            f"{public} has the public keys {there}, and {key} is the secret key {owner.key_id}: "
            "give the file of the keys that are retired, or a new name",
            code="other-key",
        )
    save(owner.retire(why, following), public, force=force)
    instead = None if following is None else following.key_id
    document = {
        "key_id": owner.key_id,
        "why": why,
        "successor": instead,
        "public": file_facts(public),
    }
    give = file_text(public, "to all who have the old public keys")
    facts = {"why": why, "instead": instead or "none named", "give away": give}
    tell(View(f"Retired key {owner.key_id}", facts), document, as_json)
