"""``predict``: what a model says of every row: as CSV where model and rows lie open, else
encrypted, for the owner to open.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, RenderableType
from rich.text import Text

from encryptedstats.cli._clusters import MANY, FitQueue, RowsPerShard, Scheduler, is_for_cluster
from encryptedstats.cli._console import (
    fact_table,
    plural,
    print_json,
    printable,
    progress,
    size_text,
)
from encryptedstats.cli._csv import AS_FOUND, say_format, with_csv_options
from encryptedstats.cli._files import COMPUTED, SCREEN, Reads, Writes, write_parts
from encryptedstats.cli._inputs import check_rows, expect, nature
from encryptedstats.cli._options import (
    AsJson,
    Device,
    Force,
    Workers,
    file_argument,
    file_option,
    output,
)
from encryptedstats.cli._votes import (
    Unopened,
    counts_text,
    predict_by_many,
    predict_elsewhere,
    predict_unopened,
)
from encryptedstats.cli._workers import WorkerUrl, is_for_worker
from encryptedstats.kinds import read_file
from encryptedstats.models.clear_rows import (
    SUMMARIES_OF_NUMBERS,
    FilePredictions,
    check_predicts,
)
from encryptedstats.storage.objects import is_url, load_file, local_or_url
from encryptedstats.tables.encryption import DRAFT_KIND
from encryptedstats.tables.manifest import TABLE_KIND
from encryptedstats.tables.questions.question import MODEL_KIND, OPEN_MODEL_KIND
from encryptedstats.tables.rows.csv_format import CsvOptions


@with_csv_options
def predict(
    ctx: typer.Context,
    model: Annotated[
        str,
        Reads,
        file_argument(
            "MODEL", "A fitted model: opened, as decrypt -o wrote it, or still encrypted."
        ),
    ],
    rows: Annotated[
        str,
        Reads,
        typer.Argument(
            metavar="ROWS",
            help="CSV or Parquet file with the rows, or folder or URL of an encrypted table.",
            show_default=False,
        ),
    ],
    out: Annotated[
        str,
        Writes(COMPUTED, left_to=MANY),
        output("Where the prediction goes: CSV, or encrypted; - for CSV on the screen."),
    ],
    keys: Annotated[
        Path | None,
        file_option(
            "--keys",
            help="Public keys, for an encrypted model and rows that are not; a table brings its "
            "own.",
        ),
    ] = None,
    schema: Annotated[
        Path | None,
        file_option(
            "--schema", help="The owner's schema, for an encrypted model and rows that are not."
        ),
    ] = None,
    output_kind: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="How a model answers that can in several ways: mnb gives counts for each variable "
            "(factors, the default), or "
            "their products.",
            show_default=False,
        ),
    ] = None,
    workers: Workers = None,
    device: Device = "auto",
    scheduler: Scheduler = None,
    queue: FitQueue = None,
    rows_per_shard: RowsPerShard = None,
    worker: WorkerUrl = None,
    force: Force = False,
    csv: CsvOptions = AS_FOUND,
    as_json: AsJson = False,
) -> None:
    """Predict the class of rows, or a number: as CSV if model and rows are open, else encrypted.

    An opened model and rows in the clear give one line for every row of the file, counted from 1, with probabilities;
    those of a forest are shares of its votes, in order but not calibrated (see calibrate). A regression gives the number
    that it expects. Rows with a value that the schema does not allow (a gap, a number out of bounds, an unknown level)
    keep an empty line. Where the file has the column of the target, it is not looked at but to say how many
    predictions are right. If the model or the rows are encrypted, so is the prediction: it takes public keys only, opens
    nothing, and only the owner can read it, with decrypt. Its keys are planned for that with plan --encrypted-prediction.

    Examples:
      encryptedstats predict forest.opened new.csv -o predicted.csv

      # a worker, with an encrypted model and encrypted rows: the owner decrypts votes.enc
      encryptedstats predict forest.enc new.enc -o votes.enc

      # rows that whoever predicts may see, and a model that nobody but its owner may
      encryptedstats predict forest.enc new.csv --keys public.keys --schema schema.json -o votes.enc

      # many machines, for rows of an encrypted table: by a Dask scheduler, or by workers that need none
      encryptedstats predict s3://bucket/forest s3://bucket/new -o s3://bucket/votes --scheduler tcp://10.0.0.1:8786
      encryptedstats predict s3://bucket/forest s3://bucket/new -o s3://bucket/votes --queue s3://bucket/work
    """
    away = is_for_worker(ctx.params)
    many = is_for_cluster(ctx.params)
    kind = expect(model, (MODEL_KIND, OPEN_MODEL_KIND), "a fitted model")
    is_table = _is_table(rows)
    what = Unopened(model, rows, keys, schema, output_kind, csv)
    if worker is not None and away:
        if not is_table or kind != MODEL_KIND:
            raise typer.BadParameter(
                "--worker predicts encrypted rows by an encrypted model: what lies open stays here"
            )
        predict_elsewhere(what, Path(out), worker, force=force, as_json=as_json)
        return
    if many:
        if not is_table:
            raise typer.BadParameter(
                "--scheduler and --queue are for the rows of an encrypted table: encrypt makes one"
            )
        predict_by_many(what, out, ctx.params)
        return
    if kind == MODEL_KIND or is_table:
        predict_unopened(
            what,
            Path(out),
            is_table=is_table,
            workers=workers,
            device=device,
            force=force,
            as_json=as_json,
        )
        return
    for name in ("keys", "schema", "output_kind", "workers"):
        if ctx.params[name] is not None:
            flag = f"--{name.replace('_', '-')}"
            raise typer.BadParameter(
                f"{flag} is for an encrypted model or encrypted rows, and these lie open"
            )
    _predict_opened(read_file(load_file(model)), Path(rows), Path(out), force, as_json, csv)


def _is_table(rows: str) -> bool:
    """Whether rows are encrypted: a folder with a table in it, finished or not, or a URL."""
    address = local_or_url(rows)
    return is_url(address) or nature(rows) in (TABLE_KIND, DRAFT_KIND)


def _predict_opened(
    opened: Any, data: Path, out: Path, force: bool, as_json: bool, csv: CsvOptions
) -> None:
    screen = str(out) == SCREEN
    if screen and as_json:
        raise typer.BadParameter("-o - and --json would both write to the screen: give a file")
    check_predicts(opened)
    check_rows(data)
    work = FilePredictions(opened, csv, say_format(data))
    if screen:
        for part in work.csv(data):
            typer.echo(part, nl=False)
        return
    with progress(f"predicting {printable(str(data))}"):
        write_parts(out, (part.encode() for part in work.csv(data)), force=force)
    facts = {"file": str(out), "bytes": out.stat().st_size, "encrypted": False, **work.facts()}
    if as_json:
        print_json(facts)
    else:
        _show_predictions(facts, out)


def _show_predictions(facts: dict[str, Any], out: Path) -> None:
    written = Text.assemble((printable(str(out)), "bold"), f"  {size_text(facts['bytes'])}")
    said = facts["predicted"]
    numbers = said.keys() == SUMMARIES_OF_NUMBERS.keys() and ", ".join(
        f"{name} {value:.6g}" for name, value in said.items()
    )
    rows: list[tuple[str, RenderableType]] = [
        ("wrote", written),
        ("predicted", numbers or counts_text(said)),
    ]
    if facts["judged"]:
        share = f"{100 * facts['right'] / facts['judged']:.1f} %"
        rows.append(
            (
                "right",
                f"{facts['right']:,} of {facts['judged']:,}, {share}, by the target in the file",
            )
        )
    if facts["rows_without_prediction"]:
        empty = (
            f"{facts['rows_without_prediction']:,} of {plural(facts['rows'], 'row')}: their lines "
            "are empty"
        )
        rows.append(("no prediction", Text(empty, style="yellow")))
    if facts["caveat"]:
        rows.append(("P(...)", Text(f"{facts['caveat']} (see calibrate)", style="dim")))
    console = Console()
    done = facts["rows"] - facts["rows_without_prediction"]
    console.print(Text.assemble(("Predicted", "bold"), f" {plural(done, 'row')}"))
    console.print(fact_table(rows))
