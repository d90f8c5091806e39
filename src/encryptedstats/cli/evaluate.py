"""``evaluate``: score the folds of a model, or a decrypted model on new rows."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import encryptedstats as es
from encryptedstats.cli._console import command_line, file_text, plural, progress, tell
from encryptedstats.cli._csv import csv_options, say_format
from encryptedstats.cli._files import COMPUTED, Writes, write_parts, write_text
from encryptedstats.cli._inputs import check_rows, expect, load_schema, nature
from encryptedstats.cli._keys import load_owner
from encryptedstats.cli._options import (
    AsJson,
    Csv,
    DataFile,
    FoldSeed,
    Force,
    KeyFile,
    PassphraseFile,
    Weights,
    argument,
    file_option,
    option,
    output,
)
from encryptedstats.kinds import read_file
from encryptedstats.models.clear_rows import (
    check_classifies,
    model_in,
    no_classes_error,
    no_rows_error,
    read_labelled_rows,
)
from encryptedstats.progress import progress_bar
from encryptedstats.storage import container
from encryptedstats.tables.encryption import FileRows
from encryptedstats.tables.questions.folds import Folds
from encryptedstats.tables.questions.question import FOLDS_KIND, MODEL_KIND, OPEN_MODEL_KIND
from encryptedstats.tables.questions.words import describe_question
from encryptedstats.tables.rows.csv_format import CsvOptions
from encryptedstats.tables.rows.table_from_frame import RowOptions
from encryptedstats.views import TableView, View, label_text
from encryptedstats.words import did_you_mean

if TYPE_CHECKING:
    from encryptedstats.metrics import Evaluation

_MEAN: Final = "mean"
_ALL: Final = "all"
# Scores of single folds that fit on a screen; files have all of them.
_OF_FOLDS: Final = ("auc", "accuracy", "log_loss", "brier", "sensitivity", "specificity")
_OF_CLASSES: Final = ("auc", "sensitivity", "specificity", "ppv", "npv", "brier")


@dataclass(frozen=True)
class _Work:
    """Models, the clear rows that each is scored on, and the numbers of rows left out."""

    models: Sequence[Any]
    table: es.Table
    parts: Sequence[NDArray[np.intp]]
    labels: Sequence[str]
    n_dropped: int
    n_unlabelled: int


def evaluate_(
    file: Annotated[
        Path, argument("FILE", "Folds, as ask --folds wrote them, or a decrypted model.")
    ],
    data: DataFile,
    pos_label: Annotated[
        str | None,
        option(
            metavar="CLASS",
            help="The positive class; by default the second of two, or each of more than two "
            "against all others.",
        ),
    ] = None,
    threshold: Annotated[
        float | None,
        option(
            metavar="X",
            help="The least probability of the positive class for which a row is called positive; "
            "by default as the model predicts.",
        ),
    ] = None,
    key: KeyFile = None,
    schema: Annotated[
        Path | None,
        file_option("--schema", help="For folds: the schema that the rows were encrypted with."),
    ] = None,
    fold_seed: FoldSeed = 0,
    weights: Weights = None,
    out: Annotated[Path | None, Writes(COMPUTED), output("CSV file for the scores.")] = None,
    plot: Annotated[
        Path | None,
        Writes(COMPUTED),
        file_option("--plot", help="File for the ROC and calibration curves: .png, .svg or .pdf."),
    ] = None,
    csv: Csv = None,
    passphrase_file: PassphraseFile = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Score a model on rows with known classes, with 95 % intervals.

    Scores are AUC, accuracy, log loss, Brier score, sensitivity, specificity and calibration.
    Intervals are Wilson's for proportions, DeLong's for the AUC, and normal for means. Folds are
    opened with the secret key, and each is scored on the rows that its model has not seen: give
    the file that was encrypted, with the same --fold-seed and --weights. A decrypted model needs
    no key: give rows that it was not fitted to.

    JSON: file, data, model, caveat, params, calibrated, classes, seen, folds, mean, rows,
      class_counts, positive, threshold, confidence, scores, by_class, calibration, rows_left_out,
      rows_without_class, notes

    Examples:
      # a decrypted model on rows that it was not fitted to
      encryptedstats evaluate forest.model test.csv
      encryptedstats evaluate forest.model test.csv --pos-label ill --threshold 0.3 \\
        --plot curves.png

      # the owner, then the worker, then the owner
      encryptedstats encrypt patients.csv patients.enc --schema schema.json --key secret.key \\
        --folds 5
      encryptedstats ask patients.enc forest --folds -o folds.enc
      encryptedstats evaluate folds.enc patients.csv --key secret.key --schema schema.json \\
        -o scores.csv
    """
    kind = expect(
        file,
        (FOLDS_KIND, OPEN_MODEL_KIND),
        "the folds of a model, or a decrypted model",
        _cure(file),
    )
    check_rows(data)
    if kind == FOLDS_KIND:
        if schema is None:
            raise es.ArgumentError(
                "the schema is needed to read the rows: --schema schema.json, as encrypt was given",
                code="no-schema",
            )
        private = load_schema(schema)
        owner = load_owner(key, passphrase_file, opens=file)
        work = _folds(
            file, data, private, owner, fold_seed=fold_seed, weights=weights, csv=csv_options(csv)
        )
    else:
        work = _load_work(file, data, weights, csv_options(csv))
    wanted = _find_class(work.models[0].classes_, pos_label, threshold)
    predictions = _predictions(work)
    frame, found = _scores(work, predictions, wanted)
    model = work.models[0]
    facts = {
        "file": str(file),
        "data": str(data),
        "model": type(model_in(model)).__name__,
        "caveat": model.caveat,
        "params": model.parameters(),
        "calibrated": model is not model_in(model),
        "classes": [str(label) for label in model.classes_],
        **found.to_dict(),
        "seen": kind == OPEN_MODEL_KIND and _was_seen(work),
        "folds": []
        if len(frame) == 1
        else frame.drop([_MEAN, _ALL]).reset_index().to_dict("records"),
        "mean": None if len(frame) == 1 else frame.loc[_MEAN, ["rows", *found.scores]].to_dict(),
    }
    if plot is not None:
        _draw(predictions, found, facts, plot, force=force)
    if out is not None:
        write_text(out, frame.to_csv(lineterminator="\n"), force=force)
    written = [path for path in (out, plot) if path is not None]
    tell(_view(work, frame, found, facts, written), facts, as_json)


def _cure(file: Path) -> str:
    if nature(file) == MODEL_KIND:
        return "its owner opens it with open -o, or let the worker ask it --folds"
    return ""


def _find_class(
    classes: NDArray[Any], pos_label: str | None, threshold: float | None
) -> dict[str, Any]:
    """Return the options of :func:`es.evaluate` for the positive class."""
    labels = {str(label): label for label in classes.tolist()}
    if pos_label is not None and pos_label not in labels:
        raise es.ArgumentError(
            f"--pos-label {pos_label}: the classes are {', '.join(labels)}"
            f"{did_you_mean(pos_label, labels)}",
            code="unknown-class",
        )
    if threshold is not None and pos_label is None and len(labels) > 2:
        raise es.ArgumentError(
            f"--threshold is for one class, and there are {len(labels)}: add --pos-label CLASS",
            code="threshold-without-class",
        )
    return {"pos_label": None if pos_label is None else labels[pos_label], "threshold": threshold}


# -- what is scored
# ------------------------------------------------------------------------------------------------


def _folds(file: Path, data: Path, schema: es.Schema, owner: es.Owner, **options: Any) -> _Work:
    """Open the model of each fold, and read the rows of that fold."""
    folds = es.EncryptedAnswer.load(file, owner.public_keys())
    asked, models = folds.question, owner.open(folds, schema=schema)
    check_classifies(models[0], file)
    assert isinstance(asked, Folds)  # as the kind of the file says
    csv = options.pop("csv", None)
    rows_as = RowOptions(**{**options, "folds": asked.n_folds})
    rows = FileRows(schema, data, rows_as, csv, say_format(data))
    with progress(f"reading {data}"):
        tables = list(rows.tables(owner.parameters.slots))
    rows.count.warn(stacklevel=2)
    if not tables:
        raise no_rows_error(data, schema)
    table = _with_classes(es.Table.concat(tables), data)
    _check_folds(models, table.ask(asked), data)
    codes = np.asarray(table.fold_codes)
    parts = [np.flatnonzero(codes == fold) for fold in range(asked.n_folds)]
    labels = [str(fold) for fold in range(asked.n_folds)]
    return _Work(models, table, parts, labels, rows.count.left_out, 0)


def _load_work(file: Path, data: Path, weights: str | None, csv: CsvOptions) -> _Work:
    model = read_file(container.read(file))
    check_classifies(model, file)
    with progress(f"reading {data}"):
        schema = model._get_private_schema()
        table, unlabelled = read_labelled_rows(schema, data, weights, csv, say_format(data))
    return _Work([model], table, [np.arange(len(table))], [_ALL], table.n_dropped, unlabelled)


def _with_classes(table: es.Table, data: Path) -> es.Table:
    if not table.has_classes:
        raise no_classes_error(data, table.schema)
    return table


def _check_folds(models: Sequence[Any], clear: Sequence[Any], data: Path) -> None:
    """Refuse other rows or folds than those of the fit, by the totals of a fit in the clear.

    Otherwise a model could be scored on rows that it has seen. Counts of classes would not tell,
    since folds have equal shares of them.
    """
    for fold, (opened, twin) in enumerate(zip(models, clear, strict=True)):
        if list(opened.totals_) != list(twin.totals_):
            raise es.ArgumentError(
                f"{data} does not give the folds of this fit (fold {fold} differs): give the file "
                "that was encrypted, and "
                "--fold-seed and --weights as encrypt was given them",
                code="other-folds",
            )


def _was_seen(work: _Work) -> bool:
    from encryptedstats.models.calibration import was_fitted_to

    return was_fitted_to(model_in(work.models[0]), work.table)


# -- scores
# ------------------------------------------------------------------------------------------------


def _predictions(work: _Work) -> list[Any]:
    """Predict the rows of each model."""
    from encryptedstats.metrics import Predictions

    made = []
    with progress_bar("scoring", len(work.models), "models") as advance:
        for model, inside in zip(work.models, work.parts, strict=True):
            made.append(Predictions.of(model, work.table.take(inside)))
            advance(1)
    return made


def _scores(
    work: _Work, predictions: Sequence[Any], asked: Mapping[str, Any]
) -> tuple[pd.DataFrame, Evaluation]:
    """Score each fold, their mean, and all rows; each row by the model that has not seen it."""
    from encryptedstats.metrics import Predictions, evaluate_predictions

    pooled = replace(
        Predictions.concat(predictions), n_dropped=work.n_dropped, n_unlabelled=work.n_unlabelled
    )
    found = evaluate_predictions(pooled, **asked)
    if len(predictions) == 1:
        return pd.DataFrame([_line(found)], pd.Index([_ALL], name="fold")), found
    lines = [_line(evaluate_predictions(one, **asked)) for one in predictions]
    frame = pd.DataFrame(lines, pd.Index(work.labels, name="fold"))
    counts = {
        name: int(frame[name].sum()) for name in ("rows", "positives") if name in frame.columns
    }
    mean = counts | {
        name: float(frame[name].mean()) for name in found.scores
    }  # without an interval: folds are no sample
    last = pd.DataFrame([mean, _line(found)], pd.Index([_MEAN, _ALL], name="fold"))
    return pd.concat([frame, last[frame.columns]]), found


def _line(found: Evaluation) -> dict[str, Any]:
    counts = {} if found.positive is None else {"positives": found.class_counts[found.positive]}
    line: dict[str, Any] = {"rows": found.n_rows, **counts}
    for name, one in found.scores.items():
        line |= {name: one.estimate, f"{name}_low": one.low, f"{name}_high": one.high}
    return line


def _draw(
    predictions: Sequence[Any],
    found: Evaluation,
    facts: Mapping[str, Any],
    path: Path,
    *,
    force: bool,
) -> None:
    """Draw ROC and calibration curves; of folds, each row by the model that has not seen it."""
    if found.positive is None:
        raise es.ArgumentError(
            "--plot is for one class against all others: add --pos-label CLASS",
            code="no-positive-class",
        )
    from encryptedstats.metrics import Predictions
    from encryptedstats.plots import draw_predictions

    name = describe_question(facts["model"], facts["params"]).split()[0] + (
        ", calibrated" if facts["calibrated"] else ""
    )
    figure = draw_predictions(
        {name: Predictions.concat(predictions)}, found.positive, found.threshold
    )
    content = io.BytesIO()
    try:
        figure.savefig(content, format=path.suffix[1:] or "png", dpi=200)
    except ValueError as error:
        raise ValueError(f"--plot {path}: {error}") from error
    write_parts(path, [content.getvalue()], force=force)


# -- showing
# ------------------------------------------------------------------------------------------------


def _view(
    work: _Work,
    frame: pd.DataFrame,
    found: Evaluation,
    facts: Mapping[str, Any],
    written: Sequence[Path],
) -> View:
    from encryptedstats.metrics import SCORES

    what = describe_question(facts["model"], facts["params"]) + (
        ", calibrated," if facts["calibrated"] else ""
    )
    folds = f"{len(work.models)} folds of " if len(work.models) > 1 else ""
    tables = [TableView("scores", _score_frame(found))]
    if found.by_class:
        names = {name: SCORES[name] for name in _OF_CLASSES}
        single = {
            label: {names[n]: str(scores[n]) for n in names}
            for label, scores in found.by_class.items()
        }
        tables.append(TableView("by class", pd.DataFrame(single).T.rename_axis("class")))
    if found.calibration is not None:
        tables.append(TableView("calibration", _calibration_frame(found)))
    if len(frame) > 1:
        shown = frame[["rows", *_OF_FOLDS]].drop(_ALL).astype(dict.fromkeys(_OF_FOLDS, object))
        for name in _OF_FOLDS:
            shown[name] = [_figure(score) for score in shown[name]]
        tables.append(TableView("folds", shown.rename(columns=SCORES)))
    title = f"Scored {folds}{what} on {plural(found.n_rows, 'row')}"
    return View(
        title, _about(work, found, facts), tuple(tables), notes=_notes(frame, facts, written)
    )


def _about(work: _Work, found: Evaluation, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the rows, the positive class, and when a row is called positive."""
    seen = "these are the rows that the model was fitted to: it will do worse on others"
    called = "as the model predicts"
    if found.threshold is not None:
        called = f"{label_text(found.positive)} from {found.threshold:g} on"
    return {
        "classes": dict(found.class_counts),
        "positive": "each class in turn, against all others; --pos-label names one"
        if found.positive is None
        else label_text(found.positive),
        "called": called,
        "left out": tuple(found.left_out()),
        "note": (*found.notes, *([seen] if facts["seen"] else [])),
        "predicted by": "the model that has not seen the row's fold"
        if len(work.models) > 1
        else "",
    }


def _score_frame(found: Evaluation) -> pd.DataFrame:
    """Return scores as text, with their intervals and numbers of rows."""
    from encryptedstats.metrics import SCORES

    head = (
        "each against all others"
        if found.positive is None
        else f"positive class {label_text(found.positive)}"
    )
    lines = [
        {
            "estimate": _figure(score.estimate),
            f"{100 * found.confidence:g} % interval": ""
            if np.isnan(score.low)
            else f"{score.low:.4f} to {score.high:.4f}",
            "by": score.method,
            "rows": score.n,
        }
        for name, score in found.scores.items()
    ]
    return pd.DataFrame(lines, pd.Index([SCORES[name] for name in found.scores], name=head))


def _calibration_frame(found: Evaluation) -> pd.DataFrame:
    table = found.calibration
    assert table is not None
    one = label_text(found.positive)
    return pd.DataFrame(
        {
            "rows": table["rows"],
            f"of {one}": table["positives"],
            f"predicted P({one})": [f"{value:.3f}" for value in table["predicted"]],
            "observed": [f"{value:.3f}" for value in table["observed"]],
            f"{100 * found.confidence:g} % interval": [
                f"{low:.3f} to {high:.3f}"
                for low, high in zip(table["low"], table["high"], strict=True)
            ],
        },
        table.index,
    )


def _figure(score: float) -> str:
    return "n/a" if np.isnan(score) else f"{score:.4f}"


def _notes(
    frame: pd.DataFrame, facts: Mapping[str, Any], written: Sequence[Path]
) -> tuple[str, ...]:
    notes = []
    if len(frame) > 1:
        spread = frame.drop([_MEAN, _ALL])["auc"].std()
        notes.append(f"{_figure(spread)} between the folds, in AUC")
    elif facts["caveat"]:
        words = ("calibrate", facts["file"], "kept-back.csv", "-o", "calibrated.model")
        notes.append(
            f"probabilities: {facts['caveat']}; with other rows: {command_line('model', *words)}"
        )
    return (*notes, *(f"Wrote {file_text(path)}" for path in written))
