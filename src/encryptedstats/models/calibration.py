"""Calibrate the probabilities of decrypted models: a curve from scores to observed frequencies.

The owner calibrates in the clear, on labelled rows that the model was not fitted to. The curve is
Platt's (two numbers) or isotonic regression's (a few corners), and is stored in the file of the
model.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, Final, NoReturn

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.isotonic import IsotonicRegression
from sklearn.utils.validation import check_is_fitted

from encryptedstats.errors import ArgumentError, ArgumentTypeError, FileFormatError
from encryptedstats.metrics import class_codes, logistic_line
from encryptedstats.models.base import TotalsClassifier
from encryptedstats.storage.container import Container
from encryptedstats.storage.objects import save_file
from encryptedstats.tables import Schema, Table
from encryptedstats.tables.answers.files import EXTENSIONS

CALIBRATION: Final = "calibration"  # the section of a file
METHODS: Final = ("sigmoid", "isotonic")
Floats = NDArray[np.float64]
Curve = dict[str, Any]


# scikit-learn ships no types
class CalibratedModel(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Calibrate the probabilities of a decrypted model on rows of known class.

    scikit-learn's ``CalibratedClassifierCV(FrozenEstimator(model))`` gives the same probabilities.
    This class also takes tables, refuses the rows that the model was fitted to, and is saved
    without pickle.

    Parameters
    ----------
    model : classifier of this library
        Decrypted, or fitted to clear rows.
    method : {"sigmoid", "isotonic"}
        Platt's curve with two parameters, for up to a few hundred rows; or any increasing curve,
        for a thousand rows or more.

    Attributes
    ----------
    classes_ : array
    curves_ : list of dict
        ``slope`` and ``intercept``, or the corners ``x`` and ``y``. Two classes have one curve,
        that of the second class; else each class has one.
    n_rows_ : int
        Number of rows that the model was calibrated on.
    class_counts_ : array
        Number of these rows in each class.

    References
    ----------
    Platt (1999), Probabilistic outputs for support vector machines. Zadrozny and Elkan (2002),
    Transforming classifier scores into accurate multiclass probability estimates.
    """

    is_encrypted: ClassVar[bool] = False
    caveat: ClassVar[str] = ""

    def __init__(self, model: Any = None, method: str = "sigmoid") -> None:
        self.model = model
        self.method = method

    def fit(self, X: Any, y: Any = None) -> CalibratedModel:
        """Calibrate on labelled rows that the model was not fitted to.

        Parameters
        ----------
        X : Table, DataFrame or array
        y : array, optional
            The classes; a table has its own.

        Raises
        ------
        ArgumentError
            If a class has no rows, or the model was fitted to these rows.
        """
        if self.method not in METHODS:
            raise ArgumentError(
                f"method={self.method!r} is unknown: use 'sigmoid' or 'isotonic'",
                code="unknown-method",
            )
        if not isinstance(self.model, TotalsClassifier):
            raise ArgumentTypeError(
                f"a {type(self.model).__name__} cannot be calibrated here: give a fitted model of "
                "this library, or use scikit-learn's CalibratedClassifierCV",
                code="not-a-fitted-model",
            )
        self.model._check_open()
        classes = np.asarray(self.model.classes_)
        codes = class_codes(classes, X, y)
        counts = np.bincount(codes, minlength=len(classes))
        if not counts.all():
            absent = ", ".join(
                str(label)
                for label, count in zip(classes.tolist(), counts, strict=True)
                if not count
            )
            raise ArgumentError(
                f"no rows of class {absent} among the {len(codes)}: calibration needs rows of "
                "every class",
                code="class-without-rows",
            )
        if was_fitted_to(self.model, X, y):
            raise ArgumentError(
                "these are the rows that the model was fitted to, on which its probabilities look "
                "too good: calibrate on other rows",
                code="training-rows-reused",
            )
        weights = (
            np.ones(len(codes))
            if not isinstance(X, Table) or X.weights is None
            else X.weights.astype(np.float64)
        )
        fit = {"sigmoid": _sigmoid, "isotonic": _isotonic}[self.method]
        columns = _answers(self.model, X).T
        if not np.isfinite(columns).all():
            raise ArgumentError(
                "some scores of the model are infinite, because a class had no rows in its fit: "
                "fit the model to rows of every class",
                code="infinite-scores",
            )
        targets = range(1, 2) if len(classes) == 2 else range(len(classes))
        self.curves_ = [
            fit(column, codes == k, weights) for k, column in zip(targets, columns, strict=True)
        ]
        self.n_rows_, self.class_counts_ = len(codes), counts
        return self

    # -- attributes of the model -------------------------------------------------------------------

    @property
    def classes_(self) -> NDArray[Any]:
        """The classes of the model."""
        classes: NDArray[Any] = self.model.classes_
        return classes

    @property
    def n_features_in_(self) -> int:
        """Number of predictors of the model."""
        return int(self.model.n_features_in_)

    @property
    def schema_(self) -> Any:
        """The schema of the model."""
        return self.model.schema_

    def _get_private_schema(self) -> Schema:
        schema: Schema = self.model._get_private_schema()
        return schema

    def parameters(self) -> dict[str, Any]:
        found: dict[str, Any] = self.model.parameters()
        return found

    def __add__(self, other: Any) -> NoReturn:
        raise ArgumentError(
            "a calibrated model cannot be combined: combine the uncalibrated models and calibrate "
            "the sum",
            code="calibrated-not-combinable",
        )

    __sub__ = __radd__ = __rsub__ = __add__

    def predict_votes(self, X: Any, **options: Any) -> NoReturn:
        """Raise an error: a calibration curve cannot be evaluated on encrypted rows."""
        raise ArgumentError(
            "a calibrated model predicts clear rows only: for encrypted rows use the model without "
            "its calibration",
            code="still-encrypted",
        )

    # -- predicting --------------------------------------------------------------------------------

    def predict_proba(self, X: Any) -> Floats:
        """Return the probability of each class."""
        check_is_fitted(self, "curves_")
        answers = _answers(self.model, X)
        read = {"sigmoid": _read_sigmoid, "isotonic": _read_isotonic}[self.method]
        p = np.column_stack(
            [read(curve, column) for curve, column in zip(self.curves_, answers.T, strict=True)]
        )
        if len(self.classes_) == 2:
            return np.column_stack([1 - p[:, 0], p[:, 0]])
        total = p.sum(axis=1, keepdims=True)
        return np.where(total == 0, 1 / p.shape[1], p / np.where(total == 0, 1, total))

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class with the highest calibrated probability."""
        p = self.predict_proba(X)
        predicted: NDArray[Any] = self.classes_[p.argmax(axis=1)]
        without = np.isnan(p).any(axis=1)  # rows that the model does not predict
        if without.any():
            predicted = predicted.astype(object)
            predicted[without] = None
        return predicted

    # -- files -------------------------------------------------------------------------------------

    def save(self, url: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the model with its calibration to a path or fsspec URL; ``es.load`` reads it."""
        check_is_fitted(self, "curves_")
        save_file(self.to_container(), url, overwrite=overwrite, private=True)

    def to_container(self) -> Container:
        file: Container = self.model.to_container()
        facts = {
            "method": self.method,
            "class_counts": self.class_counts_.tolist(),
            "curves": self.curves_,
        }
        return replace(file, sections={**file.sections, CALIBRATION: json.dumps(facts).encode()})


def was_fitted_to(model: Any, X: Any, y: Any = None) -> bool:
    """Return whether a decrypted model was fitted to exactly these rows.

    Models with equal totals count as fitted to the same rows.
    """
    if not isinstance(X, Table):
        X = model._get_private_schema().table(model._check_frame(X, reset=False), y)
    counts = np.bincount(X.class_codes, X.weights, minlength=len(model.classes_))
    if not np.array_equal(counts, model.class_counts_):  # cheaper than computing all totals
        return False
    return bool(X.totals(model.answer_.question) == list(model.answer_.totals))


def _answers(model: Any, X: Any) -> Floats:
    """Return the log-odds or scores of rows if the model has them, else probabilities.

    For two classes the only column is that of the second class.
    """
    if hasattr(model, "decision_function"):
        scores = np.asarray(model.decision_function(X), dtype=np.float64)
        return scores[:, None] if scores.ndim == 1 else scores
    shares = np.asarray(model.predict_proba(X), dtype=np.float64)
    return shares[:, 1:] if shares.shape[1] == 2 else shares


# -- curves ----------------------------------------------------------------------------------------


def _sigmoid(answers: Floats, positive: NDArray[np.bool_], weights: Floats) -> Curve:
    # Platt's targets lie slightly within 0 and 1, as if each class had one more row: this bounds
    # the slope.
    n1, n0 = weights[positive].sum(), weights[~positive].sum()
    targets = np.where(positive, (n1 + 1) / (n1 + 2), 1 / (n0 + 2))
    varies = answers.min() < answers.max()
    line = logistic_line(answers, targets, weights, slope=None if varies else 0.0)
    return {"slope": line.slope, "intercept": line.intercept}


def _read_sigmoid(curve: Curve, answers: Floats) -> Floats:
    p: Floats = expit(curve["slope"] * answers + curve["intercept"])
    return p


def _isotonic(answers: Floats, positive: NDArray[np.bool_], weights: Floats) -> Curve:
    fitted = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(
        answers, positive.astype(float), weights
    )
    return {"x": fitted.X_thresholds_.tolist(), "y": fitted.y_thresholds_.tolist()}


def _read_isotonic(curve: Curve, answers: Floats) -> Floats:
    return np.interp(answers, curve["x"], curve["y"])


# -- reading files ---------------------------------------------------------------------------------


def read_calibrated(model: Any, data: bytes) -> CalibratedModel:
    """Check the calibration in a file, and return the calibrated model."""
    try:
        facts = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise FileFormatError(
            "the calibration of the file is not valid JSON", code="invalid-json"
        ) from error
    if (
        not isinstance(facts, dict)
        or set(facts) != {"method", "class_counts", "curves"}
        or facts["method"] not in METHODS
    ):
        raise FileFormatError(
            "the file has an unknown kind of calibration: it may be of a newer version",
            code="unknown-calibration",
        )
    n_classes, counts, curves = len(model.classes_), facts["class_counts"], facts["curves"]
    good: Callable[[Any], bool] = {"sigmoid": _is_sigmoid, "isotonic": _is_isotonic}[
        facts["method"]
    ]
    if (
        not isinstance(counts, list)
        or len(counts) != n_classes
        or not all(type(count) is int and 0 < count < 1 << 62 for count in counts)
        or not isinstance(curves, list)
        or len(curves) != (1 if n_classes == 2 else n_classes)
        or not all(isinstance(curve, dict) and good(curve) for curve in curves)
    ):
        raise FileFormatError(
            "the file has an impossible calibration: it is damaged or was altered",
            code="impossible-calibration",
        )
    calibrated = CalibratedModel(model, facts["method"])
    calibrated.curves_, calibrated.class_counts_, calibrated.n_rows_ = (
        curves,
        np.array(counts),
        sum(counts),
    )
    return calibrated


EXTENSIONS[CALIBRATION] = read_calibrated


def _is_sigmoid(curve: Curve) -> bool:
    return set(curve) == {"slope", "intercept"} and _are_numbers(list(curve.values()))


def _is_isotonic(curve: Curve) -> bool:
    if set(curve) != {"x", "y"} or not all(
        _are_numbers(corners) and corners for corners in curve.values()
    ):
        return False
    x, y = np.array(curve["x"], dtype=float), np.array(curve["y"], dtype=float)
    return len(x) == len(y) and bool(
        (np.diff(x) > 0).all() and (np.diff(y) >= 0).all() and y[0] >= 0 and y[-1] <= 1
    )


def _are_numbers(values: Any) -> bool:
    return isinstance(values, list) and all(
        type(value) in (int, float) and abs(value) < 1e300 for value in values
    )
