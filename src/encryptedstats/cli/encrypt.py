"""``encrypt``: a CSV or Parquet file becomes an encrypted table, by its owner or by others with the
public keys.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, cast

import typer

import encryptedstats as es
from encryptedstats.cli._console import command_line, plural, size_text, tell, time_text
from encryptedstats.cli._csv import csv_options, say_format
from encryptedstats.cli._errors import FULL, one_line
from encryptedstats.cli._exits import INTERRUPTED
from encryptedstats.cli._files import Writes
from encryptedstats.cli._inputs import check_rows, expect, load_public_keys, load_schema, nature
from encryptedstats.cli._keys import load_owner
from encryptedstats.cli._options import (
    AsJson,
    Csv,
    DataFile,
    Encoding,
    FoldSeed,
    Force,
    KeyFile,
    PassphraseFile,
    SchemaFile,
    WeightBound,
    Weights,
    argument,
    file_option,
    option,
)
from encryptedstats.crypto.keyfiles import PUBLIC_KIND
from encryptedstats.crypto.keys import fingerprint_of
from encryptedstats.crypto.packing import has_room_for_flooding
from encryptedstats.storage.files import name_errors
from encryptedstats.storage.objects import Store, open_store
from encryptedstats.tables.blocks import block_id_of
from encryptedstats.tables.encryption import DRAFT
from encryptedstats.views import View


def encrypt_(
    data: DataFile,
    out: Annotated[
        str,
        Writes("its rows would have to be encrypted again", table=True),
        argument("OUT", "Folder for the encrypted table, or a URL such as s3://..."),
    ],
    schema: SchemaFile,
    key: KeyFile = None,
    public_keys: Annotated[
        Path | None,
        file_option(help="Instead of --key: encrypt for somebody whose public keys these are."),
    ] = None,
    fingerprint: Annotated[
        str | None,
        option(
            metavar="DIGITS",
            help="Of the public keys, as their owner read it to you by telephone: others are "
            "refused.",
        ),
    ] = None,
    encoding: Annotated[
        list[Encoding],
        typer.Option(
            metavar="ENCODING",
            help="What is stored of binned variables: onehot, ordinal or centred; may be given "
            "several times.",
        ),
    ] = [Encoding.onehot],  # noqa: B006  Typer copies it
    whole: Annotated[
        bool,
        typer.Option(
            "--whole",
            help="Store both polynomials of every ciphertext: twice the bytes, and a little less "
            "work for who computes on them. By default a seed stands for one of them, but for "
            "--public-keys, where all are stored whole.",
        ),
    ] = False,
    folds: Annotated[
        int | None,
        option(min=2, metavar="K", help="Deal the rows into so many folds for cross-validation."),
    ] = None,
    fold_seed: FoldSeed = 0,
    weights: Weights = None,
    weight_bound: WeightBound = None,
    workers: Annotated[
        int | None, option(min=1, metavar="N", help="Processes; all cores by default.")
    ] = None,
    csv: Csv = None,
    passphrase_file: PassphraseFile = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Encrypt the rows of a file into a table that can be handed to anybody.

    Rows are read and encrypted a piece at a time, so the file may be larger than memory. When it
    is interrupted, running it again goes on where it stopped.

    JSON: table, rows, rows_left_out, seconds, rows_per_second, blocks, blocks_kept, bytes,
      bytes_per_value, stored, slots, columns, variables, classes, folds, key_id, encrypted_with,
      by_others, security, parameters, secret_key_inside

    Examples:
      encryptedstats encrypt patients.csv patients.enc --schema schema.json --key secret.key

      # a clinic that may not see anybody else's rows, nor open its own again
      encryptedstats encrypt more.csv more.enc --schema schema.json --public-keys public.keys --fingerprint "3f2a 91bc ..."
    """
    if (key is None) == (public_keys is None):
        raise es.ArgumentError(
            "one key is needed: --key, your secret key, or --public-keys, those of whom you "
            "encrypt for",
            code="not-one-key",
        )
    if fingerprint is not None and public_keys is None:
        raise es.ArgumentError(
            "--fingerprint is for --public-keys, those of somebody else",
            code="fingerprint-without-public-keys",
        )
    if weights is not None and weight_bound is None:
        raise es.ArgumentError(
            "--weights needs --weight-bound, the largest weight there may be: a worker has to "
            "know one",
            code="no-weight-bound",
        )
    check_rows(data)
    store = open_store(out)
    _check_place(out, store, [path for path in (data, schema, key) if path is not None])
    private = load_schema(schema)
    run = _encryption(key, public_keys, passphrase_file, fingerprint)
    before = set(store.names()) if store.exists(DRAFT) else set()
    started = time.perf_counter()
    with _interruptible(store, resumable=key is not None), name_errors(out):
        table = run(
            data,
            private,
            out,
            encodings=[one.value for one in encoding],
            whole=whole,
            weights=weights,
            weight_bound=weight_bound,
            folds=folds,
            fold_seed=fold_seed,
            overwrite=force,
            workers=workers,
            csv=csv_options(csv),
            told=say_format(data),
        )
    seconds = time.perf_counter() - started
    kept = sum(name in before for name in store.names() if block_id_of(name) is not None)
    facts = {
        "table": out,
        **table.info().to_dict(),
        "seconds": seconds,
        "rows_per_second": table.n_rows / seconds,
        "blocks_kept": kept,
        "rows_left_out": table.n_dropped,
    }
    speed = "" if kept else f", {facts['rows_per_second']:,.0f} rows/s"
    shown = {
        **_rows(facts, private, table),
        **_who_gets_what(table, out, key, public_keys, schema),
    }
    tell(View(f"Encrypted in {time_text(seconds)}{speed}", shown), facts, as_json)


def _check_place(out: str, store: Store, private: list[Path]) -> None:
    """Refuse a folder that must not be given away."""
    folder = Path(store.where("x")).parent.resolve()
    inside = [
        path for path in private if "://" not in store.url and folder in path.resolve().parents
    ]
    if inside:
        raise es.ArgumentError(
            f"{out} is to be given away, and {inside[0]} lies in it: give the table a folder of "
            "its own, such as table.enc",
            code="private-files-inside",
        )


def _encryption(
    key: Path | None,
    public_keys: Path | None,
    passphrase_file: Path | None,
    fingerprint: str | None,
) -> Callable[..., es.EncryptedTable]:
    """The function that encrypts a file, under the key that was given."""
    if key is not None:
        if nature(key) == PUBLIC_KIND:
            expect(
                key,
                (),
                "your secret key",
                f"to encrypt for their owner give them as --public-keys {key}",
            )
        run: Callable[..., es.EncryptedTable] = load_owner(key, passphrase_file).encrypt_file
        return run
    public = load_public_keys(cast(Path, public_keys))
    if fingerprint is not None:
        public.check_fingerprint(fingerprint, str(public_keys))
    public.check_in_use()
    if not has_room_for_flooding(public.parameters):
        raise es.ParameterError(
            f"{public_keys}: what is computed on rows of others is hidden from who opens it by "
            "noise, and these keys leave no room "
            "for it, so that nothing could be computed: let their owner make others, plan "
            "--by-others and key make --plan",
            code="no-room-for-noise",
        )
    return public.encrypt_file


@contextmanager
def _interruptible(store: Store, resumable: bool) -> Iterator[None]:
    """Say what is left of an encryption that was interrupted, or for which there was no room."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo(f"interrupted: {_left(store, resumable)}", err=True)
        raise typer.Exit(INTERRUPTED) from None
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise OSError(f"{one_line(error)}. {_left(store, resumable).capitalize()}") from error


def _left(store: Store, resumable: bool) -> str:
    if not store.exists(DRAFT):
        return "nothing was written"
    done = sum(block_id_of(name) is not None for name in store.names())
    if resumable:
        return (
            f"{plural(done, 'block')} of a draft kept at {store.url}; run the same command again "
            "to go on"
        )
    return (
        f"a draft is left at {store.url}; run again with --force (only who has the secret key can "
        "go on with one)"
    )


def _rows(facts: dict[str, Any], schema: es.Schema, table: es.EncryptedTable) -> dict[str, str]:
    kinds = ", ".join(f"{count} {kind}" for kind, count in facts["variables"].items())
    classes = f", {facts['classes']} classes" if facts["classes"] else ""
    kept, left_out = facts["blocks_kept"], facts["rows_left_out"]
    absent = schema.target is not None and not table.has_target
    return {
        "rows": f"{facts['rows']:,} in {plural(facts['blocks'], 'block')} of up to "
        f"{facts['slots']:,}",
        "columns": f"{facts['columns']:,}, of {kinds}{classes}",
        "size": f"{size_text(facts['bytes'])}, {facts['bytes_per_value']:,} bytes a value",
        "key": f"{facts['key_id']}, encrypted with the {facts['encrypted_with']}",
        "target": f"no column {schema.target!r} in the file: these are rows to predict"
        if absent
        else "",
        "folds": f"{facts['folds']}, for ask --folds and evaluate" if facts["folds"] else "",
        "left out": f"{plural(left_out, 'row')} with gaps" if left_out else "",
        "resumed": f"{plural(kept, 'block')} of an earlier run kept" if kept else "",
    }


def _who_gets_what(
    table: es.EncryptedTable, out: str, key: Path | None, public_keys: Path | None, schema: Path
) -> dict[str, str]:
    give = f"{out}  whole, to whoever computes: no key in it opens anything"
    if key is None:
        return {
            "give away": give,
            "opens": f"only who made {public_keys} can open it; you cannot",
            "fingerprint": f"{fingerprint_of(table.key_id)}  compare it with the owner's by "
            "telephone",
            "worker": "computes on it only with --by-others: rows that were encrypted with public "
            "keys",
        }
    return {
        "keep": f"{key} and {schema}  they open results, and say which column is which",
        "give away": give,
        "worker": f"asks it what the keys were planned for: {command_line('ask', out)} ...",
    }
