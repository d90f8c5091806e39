"""``fit`` and ``combine``: models that a worker makes and cannot read. ``predict``: what the owner does with opened ones."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from functools import reduce
from operator import add, sub
from pathlib import Path
from typing import Annotated, Any, Final

import pandas as pd
import typer
from rich.console import Console, RenderableType
from rich.text import Text

import encryptedstats as es
from encryptedstats.cli._console import (
    command_line,
    fact_table,
    plural,
    print_json,
    printable,
    progress,
    size_text,
    time_text,
)
from encryptedstats.cli._files import check_target, naming
from encryptedstats.cli._frames import label_text
from encryptedstats.cli._models import (
    ENCRYPTED_MODEL_KIND,
    OPEN_MODEL_KIND,
    Alpha,
    Centred,
    Depth,
    Fraction,
    Intercept,
    MaxFeatures,
    Model,
    Paired,
    Seed,
    Trees,
    load_model,
    make_model,
    model_text,
    read_model_file,
)
from encryptedstats.cli._options import AsJson, ResultFile, TableKeys, TableUrl, Workers
from encryptedstats.storage.files import write_atomic
from encryptedstats.tables.encrypted import KEYS
from encryptedstats.tables.reading import read_frames

_ROWS_AT_ONCE: Final = 1 << 16
_NONE: Final[list[Path]] = []


def fit(
    ctx: typer.Context,
    table: TableUrl,
    out: ResultFile,
    model: Model,
    trees: Trees = None,
    depth: Depth = None,
    max_features: MaxFeatures = None,
    fraction: Fraction = None,
    seed: Seed = None,
    paired: Paired = None,
    centred: Centred = None,
    alpha: Alpha = None,
    intercept: Intercept = None,
    folds: Annotated[
        bool, typer.Option("--folds", help="Fit every fold of a table that was encrypted with --folds.")
    ] = False,
    keys: TableKeys = None,
    workers: Workers = None,
    as_json: AsJson = False,
) -> None:
    """Fit a model to a table; it stays encrypted, and only the owner can open it.

    Examples:
      encryptedstats fit patients.enc -o forest.enc --model forest --trees 100 --depth 3 --seed 7
      encryptedstats fit patients.enc -o bayes.enc --model snb
    """
    check_target(out)
    unfitted = make_model(model, ctx.params)
    public = None if keys is None else es.PublicKeys.load(keys)
    sealed = es.EncryptedTable.load(table, public)
    started = time.perf_counter()
    fitted = (unfitted.fit_folds if folds else unfitted.fit)(sealed, workers=workers)
    seconds = time.perf_counter() - started
    with naming(out):
        fitted.save(out)
    facts = _folds_facts(fitted) if folds else _facts(fitted)
    facts = {"file": str(out), "bytes": out.stat().st_size, **facts, "seconds": seconds}
    if as_json:
        print_json(facts)
    else:
        _show("Fitted", facts, out)


def combine(
    out: Annotated[
        Path,
        typer.Argument(metavar="OUT", readable=False, help="File for the model of all rows.", show_default=False),
    ],
    models: Annotated[
        list[Path],
        typer.Argument(
            metavar="MODEL...",
            readable=False,
            help="Models of different rows that were fitted with the same options, all encrypted or all opened.",
            show_default=False,
        ),
    ],
    forget: Annotated[
        list[Path],
        typer.Option(
            metavar="MODEL",
            readable=False,
            help="Take the rows of this model out again; may be given several times.",
            show_default=False,
        ),
    ] = _NONE,
    keys: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            readable=False,
            help="Public keys of encrypted models, or the folder of the table that they lie in.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Add models of different rows up, or forget some rows, encrypted or opened.

    Examples:
      encryptedstats combine all.enc north.enc south.enc --keys north-rows.enc/public.keys

      # somebody withdrew: their rows had a table, and so a model, of their own
      encryptedstats combine less.enc all.enc --forget south.enc --keys north-rows.enc/public.keys
    """
    check_target(out)
    if len(models) + len(forget) < 2:
        raise typer.BadParameter("two models at least are needed, or one and --forget another")
    everything = _load_alike([*models, *forget], keys)
    started = time.perf_counter()
    joined = reduce(sub, everything[len(models) :], reduce(add, everything[: len(models)]))
    seconds = time.perf_counter() - started
    with naming(out):
        joined.save(out)
    facts = {"file": str(out), "bytes": out.stat().st_size, **_facts(joined), "seconds": seconds}
    if as_json:
        print_json(facts)
    else:
        _show("Combined", facts, out)


def _load_alike(paths: list[Path], keys: Path | None) -> list[Any]:
    """The models of some files, which are all encrypted or all open, and of one class."""
    files = [read_model_file(path, ENCRYPTED_MODEL_KIND, OPEN_MODEL_KIND) for path in paths]
    for path, file in zip(paths, files, strict=True):
        if file.kind != files[0].kind:
            raise ValueError(
                f"{paths[0]} is an {files[0].kind} and {path} an {file.kind}: models are combined encrypted or opened"
            )
    public = None
    if files[0].kind == ENCRYPTED_MODEL_KIND:
        if keys is None:
            raise ValueError(
                f"these models are encrypted: give --keys, the public keys, which lie in the folder of a table as {KEYS}"
            )
        public = es.PublicKeys.load(keys / KEYS if keys.is_dir() else keys)
    models = []
    for path, file in zip(paths, files, strict=True):
        models.append(load_model(file, public))
        if type(models[-1]) is not type(models[0]):
            first, other = (type(model).__name__ for model in (models[0], models[-1]))
            raise ValueError(f"{paths[0]} holds a {first} and {path} a {other}: only models of one kind are combined")
    return models


def _facts(model: Any) -> dict[str, Any]:
    """What may be told of a fitted model, ready for JSON."""
    return {
        "model": type(model).__name__,
        "params": model._growth(),
        "rows": model.n_rows_,
        "blocks": len(model.block_ids_),
        "encrypted": model.is_encrypted,
        "totals": len(model.totals_),
        **(_sealed_facts(model.totals_) if model.is_encrypted else {}),
    }


def _folds_facts(folds: Any) -> dict[str, Any]:
    return {
        "model": type(folds.model).__name__,
        "params": folds.model._growth(),
        "folds": folds.n_folds,
        "rows": folds.n_rows,
        "blocks": len(folds.block_ids),
        "encrypted": True,
        "totals": len(folds.totals),
        **_sealed_facts(folds.totals),
    }


def _sealed_facts(totals: Any) -> dict[str, Any]:
    return {"ciphertexts": len(totals.parts), "key_id": totals.keys.key_id}


def _show(verb: str, facts: dict[str, Any], out: Path) -> None:
    console = Console()
    what = model_text(facts["model"], facts["params"])
    of_folds = f"{facts['folds']} folds of " if "folds" in facts else ""
    work = f" {of_folds}{what} over {plural(facts['rows'], 'row')}, in {time_text(facts['seconds'])}"
    console.print(Text.assemble((verb, "bold"), work))
    size, file = size_text(facts["bytes"]), printable(str(out))
    rows: list[tuple[str, RenderableType]]
    if not facts["encrypted"]:
        rows = [("model", Text.assemble((file, "bold red"), f"  {size}, mode 0600: it is not encrypted"))]
        console.print(fact_table(rows))
        return
    content = f"{plural(facts['totals'], 'total')} in {plural(facts['ciphertexts'], 'ciphertext')}"
    rows = [
        ("model", Text.assemble((file, "bold green"), f"  {size}, {content}, for the owner")),
        ("key", Text.assemble((facts["key_id"], "cyan"), ", whose owner alone can open it")),
    ]
    if "folds" not in facts:
        words = ("decrypt", out, "--key", "secret.key", "--schema", "schema.json", "-o", "model.opened")
        rows.append(("owner", command_line(*words)))
    console.print(fact_table(rows))


# -- predicting ------------------------------------------------------------------------------------------------------


def predict(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL", readable=False, help="An opened model, as decrypt -o wrote it.", show_default=False
        ),
    ],
    data: Annotated[
        Path,
        typer.Argument(metavar="DATA", readable=False, help="CSV or Parquet file with the rows.", show_default=False),
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            readable=False,
            help="Where the predictions go, as CSV; - for the screen.",
            show_default=False,
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Predict the class of rows with an opened model: one line a row, with probabilities.

    Rows and models are in the clear here. Where the file has the column of the target, it is not looked at but to say how
    many predictions are right.

    Examples:
      encryptedstats predict forest.opened new.csv -o predicted.csv
    """
    screen = str(out) == "-"
    if screen and as_json:
        raise typer.BadParameter("-o - and --json would both write to the screen: give a file")
    if not screen:
        check_target(out)
    opened = load_model(read_model_file(model, OPEN_MODEL_KIND))
    schema = opened._known_private()
    work = _Predictions(opened, schema)
    if screen:
        for part in work.csv(data):
            typer.echo(part, nl=False)
        return
    with naming(out), progress(f"predicting {printable(str(data))}"):
        write_atomic(out, (part.encode() for part in work.csv(data)))
    facts = {"file": str(out), "bytes": out.stat().st_size, **work.facts()}
    if as_json:
        print_json(facts)
    else:
        _show_predictions(facts, out)


class _Predictions:
    """The predictions of a file, a piece at a time, and what there is to say of them afterwards."""

    def __init__(self, model: Any, schema: es.Schema) -> None:
        self.model, self.schema = model, schema
        self.rows = self.left_out = 0
        self.predicted: Counter[Any] = Counter()
        self.right: int | None = 0

    def csv(self, data: Path) -> Iterator[str]:
        """Pieces of the CSV."""
        for number, frame in enumerate(read_frames(data, self.schema, _ROWS_AT_ONCE)):
            kept = self._complete(frame)
            self.left_out += len(frame) - len(kept)
            if len(kept):
                yield self._predict(kept, data).to_csv(header=not self.rows, lineterminator="\n")
                self.rows += len(kept)
            elif not number and not len(frame):
                break
        if not self.rows:
            raise es.SchemaError(f"{data} has no rows{' without missing values' if self.left_out else ''}")

    def _complete(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Rows that can be predicted: the others are left out where the schema says so, else they are an error below."""
        if self.schema.missing != "drop" or self.schema.onehot is not None:
            return frame
        needed = [v.name for v in self.schema.variables if not v.missing_bin and v.name in frame.columns]
        return frame.dropna(subset=needed)

    def _predict(self, frame: pd.DataFrame, data: Path) -> pd.DataFrame:
        rows = frame.drop(columns=[name for name in (self.schema.target,) if name in frame.columns])
        try:
            table = self.schema.table(rows)
        except es.SchemaError as error:
            raise es.SchemaError(f"{data}: {error}") from error
        classes = self.model.predict(table)
        self.predicted.update(classes.tolist())
        if self.schema.target in frame.columns and self.right is not None:
            self.right += int((frame[self.schema.target].to_numpy() == classes).sum())
        else:
            self.right = None
        index = pd.Index(frame.index, name="row")
        return pd.concat([pd.Series(classes, index, name="predicted"), self._scores(table, index)], axis=1)

    def _scores(self, table: es.Table, index: pd.Index[Any]) -> pd.DataFrame:
        labels = list(self.model.classes_)
        if hasattr(self.model, "predict_proba"):
            return pd.DataFrame(self.model.predict_proba(table), index, [f"P({label})" for label in labels])
        scores = self.model.decision_function(table)
        names = [f"score({label})" for label in labels] if scores.ndim == 2 else [f"score({labels[1]})"]
        return pd.DataFrame(scores.reshape(len(index), -1), index, names)

    def facts(self) -> dict[str, Any]:
        """Ready for JSON."""
        counts = {str(label): self.predicted[label] for label in self.model.classes_.tolist()}
        return {"rows": self.rows, "left_out": self.left_out, "predicted": counts, "right": self.right}


def _show_predictions(facts: dict[str, Any], out: Path) -> None:
    counts = ", ".join(f"{label_text(label)} {count:,}" for label, count in facts["predicted"].items())
    written = Text.assemble((printable(str(out)), "bold"), f"  {size_text(facts['bytes'])}")
    rows: list[tuple[str, RenderableType]] = [("wrote", written), ("predicted", counts)]
    if facts["right"] is not None:
        share = f"{100 * facts['right'] / facts['rows']:.1f} %"
        rows.append(("right", f"{facts['right']:,} of {facts['rows']:,}, {share}, by the target in the file"))
    if facts["left_out"]:
        rows.append(("left out", Text(f"{plural(facts['left_out'], 'row')} with missing values", style="yellow")))
    console = Console()
    console.print(Text.assemble(("Predicted", "bold"), f" {plural(facts['rows'], 'row')}"))
    console.print(fact_table(rows))
