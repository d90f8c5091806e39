"""``evaluate``: how good a model is, scored by its owner: each fold on rows it has not seen, or an opened model on new ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from rich.console import Console, RenderableType
from rich.text import Text

import encryptedstats as es
from encryptedstats.cli._console import fact_table, plural, print_json, printable, progress, size_text
from encryptedstats.cli._files import COMPUTED, Writes, write_text
from encryptedstats.cli._frames import frame_view, label_text
from encryptedstats.cli._inputs import check_rows, expect, load_schema, nature
from encryptedstats.cli._keys import load_owner
from encryptedstats.cli._models import ENCRYPTED_MODEL_KIND, FOLDS_KIND, OPEN_MODEL_KIND, load_model, model_text
from encryptedstats.cli._options import (
    AsJson,
    DataFile,
    FoldSeed,
    Force,
    KeyFile,
    PassphraseFile,
    Weights,
    file_argument,
    file_option,
    output,
)
from encryptedstats.progress import progress_bar
from encryptedstats.storage import container
from encryptedstats.tables.encrypting import RowCount, file_tables

SCORES: Final = ("auc", "accuracy", "log_loss")
_MEAN: Final = "mean"
_ALL: Final = "all"
# Rows of a file that are encoded at once, where no folds depend on it.
_ROWS_AT_ONCE: Final = 1 << 16


@dataclass(frozen=True)
class _Work:
    """Models, and the clear rows that each of them is to be scored on."""

    models: Sequence[Any]
    table: es.Table
    parts: Sequence[NDArray[np.intp]]
    labels: Sequence[str]


def evaluate(
    file: Annotated[Path, file_argument("FILE", "Folds, as fit --folds wrote them, or an opened model.")],
    data: DataFile,
    key: KeyFile = None,
    schema: Annotated[
        Path | None, file_option("--schema", help="Of folds: your schema, as encrypt was given it.")
    ] = None,
    fold_seed: FoldSeed = 0,
    weights: Weights = None,
    out: Annotated[Path | None, Writes(COMPUTED), output("Write the scores as CSV there.")] = None,
    passphrase_file: PassphraseFile = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Score a model on rows with known classes: area under the ROC curve, accuracy, log loss.

    Folds are opened with the secret key, and each is scored on the rows that its model has not seen: give the file that
    was encrypted, with the same --fold-seed and --weights. An opened model needs no key: give rows that it was not fitted
    to.

    Examples:
      # the owner, then the worker, then the owner
      encryptedstats encrypt patients.csv patients.enc --schema schema.json --key secret.key --folds 5
      encryptedstats fit patients.enc -o folds.enc --model forest --folds
      encryptedstats evaluate folds.enc patients.csv --key secret.key --schema schema.json -o scores.csv

      # an opened model on rows that were kept back
      encryptedstats evaluate forest.opened test.csv
    """
    kind = expect(file, (FOLDS_KIND, OPEN_MODEL_KIND), "the folds of a model, or an opened one", _cure(file))
    check_rows(data)
    if kind == FOLDS_KIND:
        if schema is None:
            raise ValueError("the schema is needed to read the rows: --schema schema.json, as encrypt was given")
        private = load_schema(schema)
        owner = load_owner(key, passphrase_file)
        work = _folds(file, data, private, owner, fold_seed=fold_seed, weights=weights)
    else:
        work = _opened(file, data, weights=weights)
    frame = _scores(work)
    model = work.models[0]
    facts = {
        "file": str(file),
        "data": str(data),
        "model": type(model).__name__,
        "params": model._growth(),
        "classes": [str(label) for label in model.classes_],
        "rows": len(work.table),
        "rows_left_out": work.table.n_dropped,
        "scores": frame.reset_index().to_dict("records"),
        "mean": None if len(frame) == 1 else _mean(frame),
    }
    if out is not None:
        write_text(out, _with_mean(frame).to_csv(lineterminator="\n"), force=force)
    if as_json:
        print_json(facts)
    else:
        _show(work, frame, facts, out)


def _cure(file: Path) -> str:
    if nature(file) == ENCRYPTED_MODEL_KIND:
        return "its owner opens it with decrypt -o, or let the worker fit --folds"
    return ""


# -- what is scored --------------------------------------------------------------------------------------------------


def _folds(file: Path, data: Path, schema: es.Schema, owner: es.Owner, **options: Any) -> _Work:
    """The model without each fold, and the rows of that fold."""
    from encryptedstats.models.folds import read_folds  # which needs scikit-learn

    folds = read_folds(container.read(file), owner.public_keys())
    models = owner.decrypt(folds, schema=schema)
    table = _table(schema, data, owner.parameters.slots, folds=folds.n_folds, **options)
    _check_folds(models, folds.model.fit_folds(table), data)
    codes = np.asarray(table.fold_codes)
    parts = [np.flatnonzero(codes == fold) for fold in range(folds.n_folds)]
    return _Work(models, table, parts, [str(fold) for fold in range(folds.n_folds)])


def _opened(file: Path, data: Path, **options: Any) -> _Work:
    model = load_model(container.read(file))
    table = _table(model._known_private(), data, _ROWS_AT_ONCE, **options)
    return _Work([model], table, [np.arange(len(table))], [_ALL])


def _table(schema: es.Schema, data: Path, rows_at_once: int, **options: Any) -> es.Table:
    count = RowCount()
    with progress(f"reading {printable(str(data))}"):
        tables = list(file_tables(schema, data, rows_at_once, count=count, **options))
    count.warn(stacklevel=2)
    if not tables:
        raise es.SchemaError(f"{data} has no rows{' without missing values' if schema.missing == 'drop' else ''}")
    table = replace(es.Table.concat(tables), n_dropped=count.left_out)
    if not table.has_classes:
        raise es.SchemaError(f"{data} has no column {schema.target!r}: scores need the classes of the rows")
    return table


def _check_folds(models: Sequence[Any], clear: Sequence[Any], data: Path) -> None:
    """Refuse rows, or folds, other than those of the fit: a model would be scored on rows that it has seen.

    The fit in the clear has the same totals to the last, or the rows are others; classes alone would not tell, since folds
    have equal shares of them. It costs no more than the scores do.
    """
    for fold, (opened, twin) in enumerate(zip(models, clear, strict=True)):
        if list(opened.totals_) != list(twin.totals_):
            raise ValueError(
                f"{data} does not give the folds of this fit (fold {fold} differs): give the file that was encrypted, and "
                "--fold-seed and --weights as encrypt was given them"
            )


# -- scores ----------------------------------------------------------------------------------------------------------


def _scores(work: _Work) -> pd.DataFrame:
    """A line for each model: its rows and its scores; nan where there is none, as with one class alone."""
    lines = []
    with progress_bar("scoring", len(work.models), "models") as advance:
        for model, inside in zip(work.models, work.parts, strict=True):
            lines.append({"rows": len(inside), **_score(model, work.table.take(inside))})
            advance(1)
    return pd.DataFrame(lines, pd.Index(work.labels, name="fold"))


def _score(model: Any, table: es.Table) -> dict[str, float]:
    from sklearn.metrics import accuracy_score, log_loss

    if not len(table):
        return dict.fromkeys(SCORES, np.nan)
    classes, codes, weights = model.classes_, np.asarray(table.class_codes), table.weights
    labels = classes[codes]
    shares = model.predict_proba(table) if hasattr(model, "predict_proba") else None
    loss = np.nan if shares is None else log_loss(labels, shares, sample_weight=weights, labels=classes)
    return {
        "auc": _auc(codes, len(classes), model.decision_function(table) if shares is None else shares, weights),
        "accuracy": float(accuracy_score(labels, model.predict(table), sample_weight=weights)),
        "log_loss": float(loss),
    }


def _auc(codes: NDArray[Any], n_classes: int, scores: NDArray[Any], weights: Any) -> float:
    """Of the second class against the first; of more, the mean of each against all others, by their sizes."""
    from sklearn.metrics import roc_auc_score

    present = np.unique(codes)
    if len(present) < 2:
        return float("nan")
    if n_classes == 2:
        return float(roc_auc_score(codes, scores if scores.ndim == 1 else scores[:, 1], sample_weight=weights))
    sizes = np.bincount(codes, weights, minlength=n_classes)[present]
    single = [roc_auc_score(codes == one, scores[:, one], sample_weight=weights) for one in present]
    return float(np.average(single, weights=sizes))


def _mean(frame: pd.DataFrame) -> dict[str, Any]:
    return {"rows": int(frame["rows"].sum()), **{name: float(frame[name].mean()) for name in SCORES}}


def _with_mean(frame: pd.DataFrame) -> pd.DataFrame:
    """The scores, and their mean below those of several folds."""
    if len(frame) == 1:
        return frame
    last = pd.DataFrame([_mean(frame)], pd.Index([_MEAN], name=frame.index.name))
    return pd.concat([frame, last])


# -- showing ---------------------------------------------------------------------------------------------------------


def _show(work: _Work, frame: pd.DataFrame, facts: dict[str, Any], out: Path | None) -> None:
    console = Console()
    what = model_text(facts["model"], facts["params"])
    folds = f"{len(work.models)} folds of " if len(work.models) > 1 else ""
    console.print(Text.assemble(("Scored", "bold"), f" {folds}{what} on {plural(facts['rows'], 'row')}"))
    shown = _with_mean(frame).astype(dict.fromkeys(SCORES, object))
    for name in SCORES:
        shown[name] = ["n/a" if np.isnan(score) else f"{score:.4f}" for score in shown[name]]
    shown = shown.rename(columns={"auc": "AUC", "log_loss": "log loss"})
    console.print(frame_view(shown, console.width, _MEAN))
    notes: list[tuple[str, RenderableType]] = []
    if len(facts["classes"]) == 2:
        notes.append(("AUC", f"of {label_text(facts['classes'][1])} against {label_text(facts['classes'][0])}"))
    if len(frame) > 1:
        notes.append(("spread", f"{frame['auc'].std():.4f} between the folds, in AUC"))
    if out is not None:
        notes.append(("wrote", Text.assemble((printable(str(out)), "bold"), f"  {size_text(out.stat().st_size)}")))
    if notes:
        console.print()
        console.print(fact_table(notes))
