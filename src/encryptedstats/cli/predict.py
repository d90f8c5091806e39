"""``predict``: predict rows, as CSV or, with an encrypted model or rows, encrypted."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

import encryptedstats as es
from encryptedstats.cli._console import (
    command_line,
    file_facts,
    file_text,
    plural,
    progress,
    size_text,
    tell,
    time_text,
)
from encryptedstats.cli._csv import csv_options, say_format
from encryptedstats.cli._files import COMPUTED, SCREEN, Reads, Writes, save, write_parts
from encryptedstats.cli._inputs import (
    RUN,
    check_rows,
    expect,
    load_public_keys,
    load_schema,
    load_table,
    nature,
)
from encryptedstats.cli._on import LOCAL, Place, Request
from encryptedstats.cli._options import (
    AsJson,
    Csv,
    Force,
    On,
    argument,
    file_option,
    option,
    output,
)
from encryptedstats.cli._rounds import read_result
from encryptedstats.cli.ask import job_facts, queued_text, size_of
from encryptedstats.kinds import read_file
from encryptedstats.storage.objects import is_url, load_file, local_or_url
from encryptedstats.tables.encryption import DRAFT_KIND
from encryptedstats.tables.manifest import TABLE_KIND
from encryptedstats.tables.questions.question import MODEL_KIND, OPEN_MODEL_KIND
from encryptedstats.tables.questions.words import describe_question
from encryptedstats.tables.rows.csv_format import CsvOptions
from encryptedstats.tables.rows.row_files import read_frame
from encryptedstats.tables.rows.table_from_frame import complete_rows_to_predict
from encryptedstats.views import View


def predict_(
    ctx: typer.Context,
    model: Annotated[
        str,
        Reads,
        argument(
            "MODEL",
            "A model: decrypted, as open -o wrote it, or encrypted; or the folder of the rounds "
            "in which trees were learned.",
        ),
    ],
    rows: Annotated[
        str,
        Reads,
        argument("ROWS", "CSV or Parquet file, or folder or URL of an encrypted table."),
    ],
    out: Annotated[
        str,
        Writes(COMPUTED),
        output("File for the prediction, CSV or encrypted; - for CSV on the screen."),
    ],
    keys: Annotated[
        Path | None,
        file_option(
            "--keys",
            help="Public keys, for an encrypted model and a file of rows; a table has its own.",
        ),
    ] = None,
    schema: Annotated[
        Path | None,
        file_option(
            "--schema",
            help="The owner's schema, for the folder of a run, or for an encrypted model and a "
            "file of rows.",
        ),
    ] = None,
    output_kind: Annotated[
        str | None,
        option(
            metavar="NAME",
            help="The form of an encrypted prediction, if a model has several: mnb gives counts "
            "for each variable (factors, the default), or their products.",
        ),
    ] = None,
    on: On = LOCAL,
    csv: Csv = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Predict the class or the number of every row, as CSV or encrypted.

    A decrypted model and a file of rows give a line for every row, counted from 1: the class with
    probabilities, or the number. The probabilities of a forest are shares of its votes (see model
    calibrate). The line of a row is empty if it has a value that the schema does not allow: a
    missing value, a number out of bounds, or an unknown level. If the file has the column of the
    target, it is used to count right predictions.

    If the model or the rows are encrypted, so is the prediction: this takes public keys only, and
    keys planned with plan --encrypted-prediction. The owner opens it with open.

    JSON: file, bytes, encrypted, rows, seconds, model?, params?, predicted?,
      rows_without_prediction?, reasons?, without_a_bin?, judged?, right?, caveat?, output?,
      ciphertexts?, key_id?, job?, queue?, shards?, finished?

    Examples:
      encryptedstats predict forest.model new.csv -o predicted.csv

      # trees that learned their splits, from the folder of their rounds
      encryptedstats predict forest.run new.csv --schema schema.json -o predicted.csv

      # encrypted model and rows, for a worker; the owner opens votes.enc
      encryptedstats predict forest.enc new.enc -o votes.enc

      # a file of rows, and an encrypted model
      encryptedstats predict forest.enc new.csv --keys public.keys --schema schema.json -o votes.enc

      # many machines, for rows of an encrypted table
      encryptedstats predict s3://bucket/forest s3://bucket/new -o s3://bucket/votes \\
        --on dask://10.0.0.1:8786
      encryptedstats predict s3://bucket/forest s3://bucket/new -o s3://bucket/votes \\
        --on queue://s3://bucket/work
    """
    place = Place.parse(on)
    kind = expect(model, (MODEL_KIND, OPEN_MODEL_KIND, RUN), "a fitted model")
    is_table = _is_table(rows)
    if kind == RUN:
        _refuse(ctx, place, is_table, ("keys", "output_kind"))
        opened = read_result(model, None if schema is None else load_schema(schema)).value
        _predict_opened(opened, Path(rows), out, csv_options(csv), force=force, as_json=as_json)
        return
    place.check_output(out)
    if not place.is_local and (not is_table or (not place.is_cluster and kind != MODEL_KIND)):
        raise typer.BadParameter(
            "--on: only encrypted rows are predicted elsewhere, by a service only with an "
            "encrypted model: leave --on out"
        )
    started = time.perf_counter()
    if kind == OPEN_MODEL_KIND and not is_table:
        _refuse(ctx, place, is_table, ("keys", "schema", "output_kind"))
        opened = read_file(load_file(model))
        _predict_opened(opened, Path(rows), out, csv_options(csv), force=force, as_json=as_json)
        return
    if out == SCREEN:
        raise typer.BadParameter("-o -: an encrypted prediction is not text: give a file")
    if is_table and schema is not None:
        raise typer.BadParameter(
            "--schema is for a file of rows: an encrypted table has its own, leave it out"
        )
    if place.is_local:
        clear = None if is_table else _clear_rows(model, rows, keys, schema, csv_options(csv))
        votes = _predict_here(model, rows, keys, clear, output=output_kind, **place.local_options())
        save(votes, Path(out), force=force)
    else:
        request = Request(rows, [out], keys, force, by_others=True)
        votes = place.predict(model, output_kind, request)
    document = {"file": out, "encrypted": True, **_facts(votes, out, model)}
    document["seconds"] = time.perf_counter() - started
    tell(_view(document), document, as_json)


def _refuse(ctx: typer.Context, place: Place, is_table: bool, names: Sequence[str]) -> None:
    """Refuse options of encrypted models and rows, and for learned trees encrypted rows."""
    unused = [name for name in names if ctx.params[name] is not None]
    if unused or place.options or not place.is_local:
        flag = f"--{unused[0].replace('_', '-')}" if unused else "--on"
        raise typer.BadParameter(
            f"{flag} is for an encrypted model or encrypted rows: leave it out"
        )
    if is_table:
        raise typer.BadParameter(
            "the trees of a run predict a file of rows, not an encrypted table"
        )


def _is_table(rows: str) -> bool:
    """Return whether rows are encrypted: a folder with a table, finished or not, or a URL."""
    address = local_or_url(rows)
    return is_url(address) or nature(rows) in (TABLE_KIND, DRAFT_KIND)


# -- encrypted
# ------------------------------------------------------------------------------------------------


def _predict_here(
    model: str, rows: str, keys: Path | None, clear: es.Table | None, **options: Any
) -> Any:
    table: Any = load_table(rows, keys, by_others=True) if clear is None else clear
    public = table.keys if clear is None else load_public_keys(keys or Path())
    file = load_file(model)
    found = read_file(file, None if file.kind == OPEN_MODEL_KIND else public)
    return found.predict_votes(table, **options)


def _clear_rows(
    model: str, rows: str, keys: Path | None, schema: Path | None, csv: CsvOptions
) -> es.Table:
    """Read a file of rows for an encrypted model, by the owner's schema."""
    check_rows(Path(rows))
    if keys is None:
        raise es.ArgumentError(
            f"{model} is encrypted: give --keys with the public keys and --schema with the owner's "
            "schema, or let the owner decrypt it with open -o",
            code="still-encrypted",
        )
    if schema is None:
        raise es.ArgumentError(
            f"{model} is encrypted and has no names of columns: give --schema with the owner's "
            f"schema, or let the owner encrypt {rows}, and give that table",
            code="no-schema",
        )
    known = load_schema(schema)
    try:
        return complete_rows_to_predict(known, read_frame(rows, known, csv, say_format(rows)))
    except es.SchemaError as error:
        raise es.SchemaError(f"{rows}: {error}") from error


def _facts(votes: Any, out: str, model: str) -> dict[str, Any]:
    if hasattr(votes, "wait"):  # a job of a queue
        file = load_file(model)
        asked = {"model": file.expect("question", str), "params": file.expect("params", dict)}
        return {"bytes": None, **asked, **job_facts(votes)}
    return {
        "bytes": size_of(out),
        "model": votes.question.name,
        "params": votes.question.parameters(),
        "output": votes.output,
        "rows": votes.n_rows,
        "ciphertexts": len(votes.ciphertexts.parts),
        "key_id": votes.keys.key_id,
    }


def _view(facts: dict[str, Any]) -> View:
    file, rows = facts["file"], plural(facts["rows"], "row")
    if "job" in facts:
        done = facts["finished"]
        next_ = {} if done else {"next": command_line("worker", "run", facts["queue"])}
        return View("Done already" if done else "Queued", {"votes": queued_text(facts), **next_})
    model = describe_question(facts["model"], facts["params"])
    size = f"{size_text(facts['bytes'])}, {plural(facts['ciphertexts'], 'ciphertext')}"
    owner = command_line("open", file, "--key", "secret.key", "--schema", "schema.json")
    return View(
        f"Predicted {rows} by the encrypted {model} in {time_text(facts['seconds'])}",
        {
            "votes": f"{file}  {size}, for the owner",
            "key": f"{facts['key_id']}, whose owner alone can open it",
            "owner": f"{owner} -o votes.csv",
        },
    )


# -- open
# ------------------------------------------------------------------------------------------------


def _predict_opened(
    opened: Any, data: Path, out: str, csv: CsvOptions, *, force: bool, as_json: bool
) -> None:
    from encryptedstats.models.clear_rows import FilePredictions, check_predicts

    if out == SCREEN and as_json:
        raise typer.BadParameter("-o - and --json both write to the screen: give a file")
    started = time.perf_counter()
    check_predicts(opened)
    check_rows(data)
    work = FilePredictions(opened, csv, say_format(data))
    if out == SCREEN:
        for part in work.csv(data):
            typer.echo(part, nl=False)
        return
    with progress(f"predicting {data}"):
        write_parts(Path(out), (part.encode() for part in work.csv(data)), force=force)
    facts = {**file_facts(Path(out)), "encrypted": False, **work.facts()}
    facts["seconds"] = time.perf_counter() - started
    tell(_opened_view(facts), facts, as_json)


def _opened_view(facts: Mapping[str, Any]) -> View:
    empty, rows = facts["rows_without_prediction"], facts["rows"]
    shown: dict[str, Any] = {"wrote": file_text(facts["file"]), "predicted": facts["predicted"]}
    if facts["judged"]:
        share = f"{100 * facts['right'] / facts['judged']:.1f} %"
        shown["right"] = (
            f"{facts['right']:,} of {facts['judged']:,}, {share}, by the target in the file"
        )
    if empty:
        shown["no prediction"] = f"{empty:,} of {plural(rows, 'row')}: their lines are empty"
    if facts["caveat"]:
        shown["P(...)"] = f"{facts['caveat']} (see model calibrate)"
    return View(f"Predicted {plural(rows - empty, 'row')}", shown)
