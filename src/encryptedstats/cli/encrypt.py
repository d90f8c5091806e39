"""``encrypt``: encrypt a CSV or Parquet file, as its owner or as a contributor."""

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
    EncodingName,
    FoldSeed,
    Force,
    Genotypes,
    KeyFile,
    PassphraseFile,
    SchemaFile,
    SpotChecked,
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
from encryptedstats.tables.rows.row_files import read_frame
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
        file_option(
            help="Instead of --key: encrypt as a contributor, for the owner of these keys."
        ),
    ] = None,
    fingerprint: Annotated[
        str | None,
        option(
            metavar="DIGITS",
            help="The fingerprint of the public keys, as their owner told you by telephone: other "
            "keys are refused.",
        ),
    ] = None,
    encoding: Annotated[
        list[EncodingName],
        typer.Option(
            metavar="ENCODING",
            help="How binned variables are stored: onehot, ordinal or centred; may be given "
            "several times. grid stores numbers for rank tests and quantiles, beside onehot.",
        ),
    ] = [EncodingName.onehot],  # noqa: B006  Typer copies it
    whole: Annotated[
        bool,
        typer.Option(
            "--whole",
            help="Store both polynomials of every ciphertext: twice the bytes, and a little less "
            "work for the worker. By default a seed replaces one of them; with --public-keys "
            "all are stored whole.",
        ),
    ] = False,
    folds: Annotated[
        int | None,
        option(min=2, metavar="K", help="Deal the rows into K folds for cross-validation."),
    ] = None,
    fold_seed: FoldSeed = 0,
    weights: Weights = None,
    weight_bound: WeightBound = None,
    workers: Annotated[
        int | None, option(min=1, metavar="N", help="Processes; all cores by default.")
    ] = None,
    spot_check: SpotChecked = False,
    genotypes: Genotypes = None,
    csv: Csv = None,
    passphrase_file: PassphraseFile = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Encrypt the rows of a file into a table that a worker may have.

    The file may be larger than memory. After an interruption, the same command resumes.

    JSON: table, rows, rows_left_out, seconds, rows_per_second, blocks, blocks_kept, bytes,
      bytes_per_value, stored, slots, columns, variables, classes, folds, key_id, encrypted_with,
      by_others, security, parameters, secret_key_inside

    Examples:
      encryptedstats encrypt patients.csv patients.enc --schema schema.json --key secret.key

      # with what open --verify takes, which lies beside the key
      encryptedstats encrypt patients.csv patients.enc --schema schema.json --key secret.key \\
        --spot-check

      # people with their genotypes
      encryptedstats encrypt people.csv people.enc --genotypes study.bed --schema schema.json \\
        --key secret.key

      # a contributor, who can decrypt neither its own rows nor those of others
      encryptedstats encrypt more.csv more.enc --schema schema.json --public-keys public.keys \\
        --fingerprint "3f2a 91bc ..."
    """
    if (key is None) == (public_keys is None):
        raise es.ArgumentError(
            "one key is needed: --key with your secret key, or --public-keys with those of the "
            "owner you encrypt for",
            code="not-one-key",
        )
    if fingerprint is not None and public_keys is None:
        raise es.ArgumentError(
            "--fingerprint is for --public-keys of another owner: leave it out with --key",
            code="fingerprint-without-public-keys",
        )
    if weights is not None and weight_bound is None:
        raise es.ArgumentError(
            "--weights needs --weight-bound, the largest weight there may be, which a worker has "
            "to know",
            code="no-weight-bound",
        )
    if spot_check and key is None:
        raise es.ArgumentError(
            "--spot-check is for --key: what others encrypt cannot be checked so",
            code="rows-by-others-unchecked",
        )
    check_rows(data)
    store = open_store(out)
    _check_place(out, store, [path for path in (data, schema, key) if path is not None])
    private = load_schema(schema)
    run = _encryption(key, public_keys, passphrase_file, fingerprint)
    if (genotypes is None) != (private.genome is None):
        raise es.ArgumentError(
            "--genotypes goes with a schema that was made with it, data schema --genotypes",
            code="genotypes-and-schema",
        )
    if genotypes is not None:
        run = _with_genotypes(key, passphrase_file, genotypes)
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
            on_format=say_format(data),
            **({"spot_check": True} if spot_check else {}),
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
    if spot_check:
        shown["keep"] += f"; {key}.spot goes with the key: it checks answers, open --verify {out}"
    tell(View(f"Encrypted in {time_text(seconds)}{speed}", shown), facts, as_json)


def _check_place(out: str, store: Store, private: list[Path]) -> None:
    """Refuse a folder with private files, since the table is given away."""
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
    """Return the method that encrypts a file with the key that was given."""
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
            f"{public_keys} have no room for the noise that hides rows of contributors, so that "
            "nothing could be computed: ask their owner for keys made with plan --by-others and "
            "key make --plan",
            code="no-room-for-noise",
        )
    return public.encrypt_file


def _with_genotypes(
    key: Path | None, passphrase_file: Path | None, genotypes: Path
) -> Callable[..., es.EncryptedTable]:
    """Return the function that encrypts people with their genotypes, under the owner's key."""
    if key is None:
        raise es.ArgumentError(
            "--genotypes needs --key: only the owner of all rows encrypts a genome table",
            code="lanes-of-contributor",
        )

    def run(data: Path, schema: es.Schema, out: str, **options: Any) -> es.EncryptedTable:
        unsupported = [options.pop(name) for name in ("weights", "weight_bound", "folds")]
        if any(value is not None for value in unsupported):
            raise es.ArgumentError(
                "genome tables have neither weights nor folds", code="genotypes-weighted"
            )
        _ = options.pop("fold_seed")
        frame = read_frame(data, schema, options.pop("csv"), options.pop("on_format"))
        read = es.read_genotypes(genotypes)
        rows = read.table(frame, id=str(schema.id), schema=schema)
        owner = load_owner(key, passphrase_file)
        return cast(es.EncryptedTable, owner.encrypt(rows, out=out, **options))

    return run


@contextmanager
def _interruptible(store: Store, resumable: bool) -> Iterator[None]:
    """Say how to resume after an interruption or a full disk."""
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
            f"{plural(done, 'block')} of a draft kept at {store.url}; run the same command to "
            "resume"
        )
    return f"a draft is left at {store.url}; run again with --force (only encrypt --key can resume)"


def _rows(facts: dict[str, Any], schema: es.Schema, table: es.EncryptedTable) -> dict[str, str]:
    kinds = ", ".join(f"{count} {kind}" for kind, count in facts["variables"].items())
    classes = f", {facts['classes']} classes" if facts["classes"] else ""
    kept, left_out = facts["blocks_kept"], facts["rows_left_out"]
    absent = schema.target is not None and not table.has_target
    return {
        "rows": f"{facts['rows']:,} in {plural(facts['blocks'], 'block')} of up to "
        f"{table.layout.size_text}",
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
    give = f"{out}  whole, to the worker: no key in it decrypts anything"
    if key is None:
        return {
            "give away": give,
            "opens": f"only the owner of {public_keys} can open it; you cannot",
            "fingerprint": f"{fingerprint_of(table.key_id)}  compare it with the owner's by "
            "telephone",
            "worker": "computes on rows of contributors only with ask --by-others",
        }
    return {
        "keep": f"{key} and {schema}  they open results, and say which column is which",
        "give away": give,
        "worker": f"computes the answers that were planned: {command_line('ask', out)} ...",
    }
