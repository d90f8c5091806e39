"""``predict``: what a model says of every row: as CSV where model and rows lie open, else
encrypted, for the owner to open.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import pandas as pd
import typer
from numpy.typing import NDArray
from rich.console import Console, RenderableType
from rich.text import Text

import encryptedstats as es
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
    score_names,
)
from encryptedstats.cli._workers import WorkerUrl, is_for_worker
from encryptedstats.kinds import read_file
from encryptedstats.storage.objects import is_url, load_file, local_or_url
from encryptedstats.tables.dialects import CsvOptions
from encryptedstats.tables.encrypted import TABLE_KIND
from encryptedstats.tables.encrypting import DRAFT_KIND, RowCount
from encryptedstats.tables.questions import MODEL_KIND, OPEN_MODEL_KIND
from encryptedstats.tables.row_files import read_frames
from encryptedstats.tables.table import Moved, all_moved, warn_of_moved
from encryptedstats.tables.table_from_frame import encode_table

_ROWS_AT_ONCE: Final = 1 << 16
#: What is said of predictions that are numbers.
_OF_NUMBERS: Final[dict[str, Callable[[Any], Any]]] = {
    "least": np.min,
    "mean": np.mean,
    "largest": np.max,
}


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
    that it expects. Rows with gaps that the schema
    leaves out keep an empty line. Where the file has the column of the target, it is not looked at but to say how many
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
    if not hasattr(opened, "predict"):
        raise es.ArgumentError(
            f"{opened.name} predicts nothing: a classifier or a regression is needed",
            code="not-predicting",
        )
    check_rows(data)
    work = _Predictions(opened, opened._known_private(), csv)
    if screen:
        for part in work.csv(data):
            typer.echo(part, nl=False)
        return
    with progress(f"predicting {printable(str(data))}"):
        write_parts(out, (part.encode() for part in work.csv(data)), force=force)
    facts = {"file": str(out), "bytes": out.stat().st_size, "encrypted": False, **work.facts()}
    facts["caveat"] = opened.caveat
    if as_json:
        print_json(facts)
    else:
        _show_predictions(facts, out)


class _Predictions:
    """The predictions of a file, a piece at a time, and what there is to say of them afterwards.

    A line for every row of the file: where the schema leaves out rows with gaps, theirs is empty
    but for its number.
    """

    def __init__(self, model: Any, schema: es.Schema, options: CsvOptions) -> None:
        self.model, self.schema, self.options = model, schema, options
        self.moved: tuple[Moved, ...] = ()
        self.count = RowCount()
        self.has_classes = hasattr(model, "classes_")  # else it predicts numbers
        self.predicted: Counter[Any] = Counter()
        self.numbers: list[NDArray[np.float64]] = []
        self.judged: int | None = 0  # rows with a class and a prediction
        self.right = 0

    def csv(self, data: Path) -> Iterator[str]:
        """Pieces of the CSV."""
        before: list[pd.Index[Any]] = []  # rows before the first that can be predicted
        columns: list[str] = []
        for frame in read_frames(data, self.schema, _ROWS_AT_ONCE, self.options, say_format(data)):
            kept = self.count.complete(frame, self.schema)
            index = self._index(frame)
            if not len(kept) and not columns:
                before.append(index)
                continue
            lines = self._predict(kept, data) if len(kept) else pd.DataFrame(columns=columns)
            lines = lines.reindex(frame.index).set_axis(index)
            is_first, columns = not columns, list(lines.columns)
            for rows in before:
                yield pd.DataFrame(index=rows, columns=columns).to_csv(
                    header=is_first, lineterminator="\n"
                )
                is_first = False
            before = []
            yield lines.to_csv(header=is_first, lineterminator="\n")
        if not columns:
            raise es.SchemaError(
                f"{data} has no rows{' without missing values' if self.count.left_out else ''}",
                code="no-rows",
            )
        warn_of_moved(self.moved, stacklevel=1)

    def _index(self, frame: pd.DataFrame) -> pd.Index[Any]:
        """What rows are called: by their id if the schema knows one, else by their number."""
        has_id = self.schema.id is not None and self.schema.id in frame.columns
        index: pd.Index[Any] = (
            pd.Index(frame[self.schema.id]) if has_id else pd.Index(frame.index, name="row")
        )
        return index

    def _predict(self, frame: pd.DataFrame, data: Path) -> pd.DataFrame:
        rows = frame.drop(columns=[name for name in (self.schema.target,) if name in frame.columns])
        try:
            table = encode_table(
                self.schema, rows if self.has_classes else self.model._with_unused(rows)
            )
        except es.SchemaError as error:
            raise es.SchemaError(f"{data}: {error}") from error
        self.moved = all_moved((*self.moved, *table.moved))
        if not self.has_classes:
            self.numbers.append(self.model.predict(table))
            return pd.DataFrame({"predicted": self.numbers[-1]}, frame.index)
        classes = self.model.predict(table)
        self.predicted.update(classes.tolist())
        if self.schema.target in frame.columns and self.judged is not None:
            known = frame[self.schema.target].notna().to_numpy()
            self.judged += int(known.sum())
            self.right += int((frame[self.schema.target].to_numpy() == classes)[known].sum())
        else:
            self.judged = None
        predicted = pd.Series(classes, frame.index, dtype=object, name="predicted")
        return pd.concat([predicted, self._scores(table, frame.index)], axis=1)

    def _scores(self, table: es.Table, index: pd.Index[Any]) -> pd.DataFrame:
        labels = list(self.model.classes_)
        if hasattr(self.model, "predict_proba"):
            return pd.DataFrame(self.model.predict_proba(table), index, score_names(labels))
        scores = self.model.decision_function(table)
        names = score_names(labels if scores.ndim == 2 else labels[1:], are_probabilities=False)
        return pd.DataFrame(scores.reshape(len(index), -1), index, names)

    def facts(self) -> dict[str, Any]:
        """Ready for JSON."""
        predicted: dict[str, Any]
        if self.has_classes:
            predicted = {
                str(label): self.predicted[label] for label in self.model.classes_.tolist()
            }
        else:
            known, self.judged = np.concatenate(self.numbers), None
            known = known[~np.isnan(known)]
            predicted = (
                {name: float(find(known)) for name, find in _OF_NUMBERS.items()}
                if len(known)
                else {}
            )
        return {
            "rows": self.count.given,
            "rows_left_out": self.count.left_out,
            "without_a_bin": {part.column: part.n_rows for part in self.moved},
            "predicted": predicted,
            "right": None if self.judged is None else self.right,
            "judged": self.judged,
        }


def _show_predictions(facts: dict[str, Any], out: Path) -> None:
    written = Text.assemble((printable(str(out)), "bold"), f"  {size_text(facts['bytes'])}")
    said = facts["predicted"]
    numbers = said.keys() == _OF_NUMBERS.keys() and ", ".join(
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
    if facts["rows_left_out"]:
        left_out = (
            f"{facts['rows_left_out']:,} of {plural(facts['rows'], 'row')} have gaps: their lines "
            "are empty"
        )
        rows.append(("no prediction", Text(left_out, style="yellow")))
    if facts["caveat"]:
        rows.append(("P(...)", Text(f"{facts['caveat']} (see calibrate)", style="dim")))
    console = Console()
    done = facts["rows"] - facts["rows_left_out"]
    console.print(Text.assemble(("Predicted", "bold"), f" {plural(done, 'row')}"))
    console.print(fact_table(rows))
