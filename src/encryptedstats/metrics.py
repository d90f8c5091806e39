"""How good a classifier is, with an interval beside every figure: accuracy, AUC, log loss, Brier
score, sensitivity and the like.

Plain statistics of clear predictions; imports tables and nothing above. One class is the positive
one, and every table names it. Intervals are Wilson's for shares, DeLong's for the AUC, normal for
means and coefficients. Weights are those of rows, not numbers of copies: intervals use Kish's
effective number of rows. scikit-learn and SciPy are imported by the functions that compute with
them: questions import this module before there is anything to score.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from encryptedstats.errors import ArgumentError
from encryptedstats.tables import Table

__all__ = [
    "Estimate",
    "Evaluation",
    "auc",
    "auc_interval",
    "calibration_table",
    "evaluate",
    "wilson_interval",
]

Floats = NDArray[np.float64]
#: The scores of an :class:`Evaluation`, in the order they are shown.
SCORES: Final = {
    "accuracy": "accuracy",
    "auc": "AUC",
    "log_loss": "log loss",
    "brier": "Brier score",
    "sensitivity": "sensitivity",
    "specificity": "specificity",
    "ppv": "PPV",
    "npv": "NPV",
    "calibration_error": "calibration error",
    "calibration_slope": "calibration slope",
    "calibration_intercept": "calibration in the large",
}
#: The scores of predicted numbers, in the order they are shown.
SCORES_OF_NUMBERS: Final = {
    "r_squared": "share of the variance that is explained (R²)",
    "rmse": "root mean squared error",
    "mae": "mean absolute error",
}
_WILSON, _DELONG, _NEWCOMBE, _NORMAL = "Wilson", "DeLong", "Newcombe", "normal"
_MACRO = "mean over classes"
_N_BINS: Final = 10
_LEAST: Final = 1e-6  # how near to 0 or 1 a probability may come before its log-odds are taken
_STEPS: Final = 100


@dataclass(frozen=True)
class Estimate:
    """A figure, and the interval that goes with it: nan where there is none.

    Attributes
    ----------
    estimate, low, high : float
    n : int
        Rows it is about: for sensitivity those of the positive class.
    method : str
        Whose interval it is.
    """

    estimate: float
    low: float = np.nan
    high: float = np.nan
    n: int = 0
    method: str = ""

    def __str__(self) -> str:
        if np.isnan(self.estimate):
            return "n/a"
        return (
            f"{self.estimate:.3f}"
            if np.isnan(self.low)
            else f"{self.estimate:.3f} ({self.low:.3f} to {self.high:.3f})"
        )


# -- intervals
# ------------------------------------------------------------------------------------------------


def wilson_interval(successes: float, n: float, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval of a share.

    Parameters
    ----------
    successes, n : float
        Without trials there is no share, and the interval is nan.
    confidence : float

    References
    ----------
    Wilson (1927), Probable inference, the law of succession, and statistical inference.

    Examples
    --------
    >>> low, high = wilson_interval(81, 263)
    >>> round(low, 4), round(high, 4)
    (0.2553, 0.3662)
    """
    if not 0 <= successes <= n:
        raise ArgumentError(
            f"{successes} of {n}: successes are at least 0 and at most n",
            code="successes-out-of-range",
        )
    if not n:
        return np.nan, np.nan
    z, p = _normal_quantile(confidence), successes / n
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    low = (
        0.0 if successes == 0 else max(0.0, centre - half)
    )  # rounding must not leave them beside 0 and 1
    return float(low), 1.0 if successes == n else float(min(1.0, centre + half))


def auc(truth: ArrayLike, scores: ArrayLike, weights: ArrayLike | None = None) -> float:
    """Return the area under the ROC curve: the share of pairs of both classes that are in order,
    ties counting half.

    Examples
    --------
    >>> auc([0, 1, 0, 1], [0.1, 0.8, 0.8, 0.9])
    0.875
    """
    positive, values, weight = _arrays(truth, scores, weights)
    if positive.all() or not positive.any():
        return np.nan
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(positive, values, sample_weight=weight))


def auc_interval(
    truth: ArrayLike, scores: ArrayLike, weights: ArrayLike | None = None, confidence: float = 0.95
) -> tuple[float, float]:
    """DeLong's interval of the AUC, on the scale of log-odds so that it stays between 0 and 1.

    Where DeLong has no variance, because every pair is in order or a class has a single row, it is
    Newcombe's (method 5).

    References
    ----------
    DeLong, DeLong and Clarke-Pearson (1988), Comparing the areas under two or more correlated
    receiver operating characteristic curves. Newcombe (2006), Confidence intervals for an effect
    size measure based on the Mann-Whitney statistic, part 2.
    """
    found = _auc_estimate(*_arrays(truth, scores, weights), confidence)
    return found.low, found.high


def delong_variance(positive: NDArray[np.bool_], scores: Floats, weights: Floats) -> float:
    """Return the variance of the AUC by DeLong; nan where a class has less than two rows."""
    one, other = weights[positive], weights[~positive]
    of_one = _share_below(scores[positive], scores[~positive], other) / other.sum()
    of_other = 1 - _share_below(scores[~positive], scores[positive], one) / one.sum()
    return _variance_of_mean(of_one, one) + _variance_of_mean(of_other, other)


def _auc_estimate(
    positive: NDArray[np.bool_], scores: Floats, weights: Floats, confidence: float
) -> Estimate:
    from scipy.special import expit, logit

    value, n = auc(positive, scores, weights), len(positive)
    if np.isnan(value):
        return Estimate(value, n=n)
    z, variance = _normal_quantile(confidence), delong_variance(positive, scores, weights)
    if 0 < value < 1 and np.isfinite(variance):
        half = z * np.sqrt(variance) / (value * (1 - value))
        low, high = expit(logit(value) - half), expit(logit(value) + half)
        return Estimate(value, float(low), float(high), n, _DELONG)
    low, high = _newcombe(value, _effective(weights[positive]), _effective(weights[~positive]), z)
    return Estimate(value, low, high, n, _NEWCOMBE)


def _newcombe(value: float, n1: float, n0: float, z: float) -> tuple[float, float]:
    from scipy.optimize import brentq

    more = (n1 + n0) / 2 - 1

    def beyond(theta: float) -> float:
        variance = (
            theta
            * (1 - theta)
            * (1 + more * ((1 - theta) / (2 - theta) + theta / (1 + theta)))
            / (n1 * n0)
        )
        return float((theta - value) ** 2 - z * z * variance)

    # Within a hair of 0 and 1 the variance vanishes, and nothing but the value itself would be
    # inside.
    low = 0.0 if value == 0 else float(brentq(beyond, 1e-12, value - 1e-9))
    return low, 1.0 if value == 1 else float(brentq(beyond, value + 1e-9, 1 - 1e-12))


def _share_below(values: Floats, others: Floats, weights: Floats) -> Floats:
    """Return, for each value, the weight of the others below it, ties counting half."""
    order = np.argsort(others, kind="stable")
    ordered, summed = others[order], np.concatenate([[0.0], np.cumsum(weights[order])])
    below, upto = (
        summed[np.searchsorted(ordered, values, side=side)] for side in ("left", "right")
    )
    share: Floats = (below + upto) / 2
    return share


def _variance_of_mean(values: Floats, weights: Floats) -> float:
    """Return the variance of a weighted mean; of equal weights that of the textbook."""
    n = np.count_nonzero(weights)
    if n < 2:
        return np.nan
    apart = values - np.average(values, weights=weights)
    return float(((weights * apart) ** 2).sum() / weights.sum() ** 2 * n / (n - 1))


def _effective(weights: Floats) -> float:
    """Kish's effective number of rows."""
    total = weights.sum()
    return float(total**2 / (weights**2).sum()) if total else 0.0


def _normal_quantile(confidence: float) -> float:
    if not 0 < confidence < 1:
        raise ArgumentError(
            f"confidence={confidence}: give a share between 0 and 1, such as 0.95",
            code="confidence-out-of-range",
        )
    from scipy.special import ndtri

    return float(ndtri((1 + confidence) / 2))


def _share(
    hits: NDArray[np.bool_], among: NDArray[np.bool_], weights: Floats, confidence: float
) -> Estimate:
    """Return the share of hits among some rows."""
    inside, n = weights[among], int(among.sum())
    if not inside.sum():
        return Estimate(np.nan, n=n)
    value, size = float(np.average(hits[among], weights=inside)), _effective(inside)
    return Estimate(value, *wilson_interval(min(value * size, size), size, confidence), n, _WILSON)


def _mean(values: Floats, weights: Floats, confidence: float) -> Estimate:
    value = float(np.average(values, weights=weights))
    half = float(_normal_quantile(confidence) * np.sqrt(_variance_of_mean(values, weights)))
    if np.isnan(half):  # a single row
        return Estimate(value, n=len(values))
    return Estimate(value, max(0.0, value - half), value + half, len(values), _NORMAL)


# -- curves
# ------------------------------------------------------------------------------------------------


def roc_points(
    positive: NDArray[np.bool_],
    scores: Floats,
    weights: Floats,
    resampled: NDArray[Any] | None = None,
) -> tuple[Floats, Floats]:
    """Return shares of others and of positives that lie at or above each score, from the highest
    score on; both from 0 to 1.
    """
    from sklearn.metrics import roc_curve

    weight = weights if resampled is None else weights * resampled
    false, true, _ = roc_curve(positive, scores, sample_weight=weight, drop_intermediate=False)
    return false, true


def roc_band(
    positive: NDArray[np.bool_],
    scores: Floats,
    weights: Floats,
    grid: Floats,
    confidence: float = 0.95,
    n_resamples: int = 200,
) -> tuple[Floats, Floats]:
    """Return bounds of the sensitivity at each share of false positives, by
    drawing the rows of each class again.
    """
    rng = np.random.default_rng(0)
    curves = np.empty((n_resamples, len(grid)))
    for curve in curves:
        drawn = np.zeros(len(positive))
        for rows in (np.flatnonzero(positive), np.flatnonzero(~positive)):
            drawn[rows] = np.bincount(rng.integers(0, len(rows), len(rows)), minlength=len(rows))
        curve[:] = np.interp(grid, *roc_points(positive, scores, weights, drawn))
    low, high = np.quantile(curves, [(1 - confidence) / 2, (1 + confidence) / 2], axis=0)
    return low, high


def calibration_table(
    truth: ArrayLike,
    probabilities: ArrayLike,
    weights: ArrayLike | None = None,
    *,
    n_bins: int = _N_BINS,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Return what was predicted and what occurred, in groups of about equally many rows with ever
    higher predictions.

    Returns
    -------
    DataFrame
        A line for each group: ``rows`` and ``positives`` in it, the mean ``predicted`` probability,
        the ``observed`` share of positives with its Wilson interval, ``low`` to ``high``. Rows with
        equal predictions stay together, so there may be fewer.
    """
    if n_bins < 1:
        raise ArgumentError(f"n_bins={n_bins}: at least one group is needed", code="too-few-groups")
    positive, p, weight = _arrays(truth, probabilities, weights)
    if ((p < 0) | (p > 1)).any():
        raise ArgumentError(
            "probabilities lie between 0 and 1: these do not", code="probabilities-out-of-range"
        )
    edges = np.unique(np.quantile(p, np.linspace(0, 1, n_bins + 1)))
    group = np.searchsorted(edges[1:-1], p)
    lines = []
    for number in np.unique(group):
        inside = group == number
        found = _share(positive, inside, weight, confidence)
        if np.isnan(found.estimate):  # rows without weight
            continue
        lines.append(
            {
                "rows": int(inside.sum()),
                "positives": int(positive[inside].sum()),
                "weight": float(weight[inside].sum()),
                "predicted": float(np.average(p[inside], weights=weight[inside])),
                "observed": found.estimate,
                "low": found.low,
                "high": found.high,
            }
        )
    frame = pd.DataFrame(lines, pd.RangeIndex(1, len(lines) + 1, name="group"))
    return frame.drop(columns="weight") if weights is None else frame


@dataclass(frozen=True)
class Line:
    """Log-odds as a line, with the covariance of (intercept, slope); nan where the rows do not
    determine it.
    """

    intercept: float
    slope: float
    covariance: Floats


def logistic_line(
    x: Floats, targets: Floats, weights: Floats, *, slope: float | None = None
) -> Line:
    """Return the line of log-odds that makes the targets (0 to 1) most likely, by Newton's method;
    of a given slope, its intercept.
    """
    from scipy.special import expit

    centre, spread = float(np.average(x, weights=weights)), float(x.std()) or 1.0
    z = (x - centre) / spread
    design = np.ones((len(x), 1)) if slope is not None else np.column_stack([np.ones(len(x)), z])
    offset = np.zeros(len(x)) if slope is None else slope * (x - centre)
    beta = np.zeros(design.shape[1])
    nothing = Line(np.nan, np.nan, np.full((2, 2), np.nan))
    for _ in range(_STEPS):
        fitted = expit(design @ beta + offset)
        information = (design.T * (weights * fitted * (1 - fitted))) @ design
        try:
            step = np.linalg.solve(information, design.T @ (weights * (targets - fitted)))
        except (
            np.linalg.LinAlgError
        ):  # all of one class, separated, or x constant: the best line is infinitely steep, or any
            return nothing
        beta = beta + np.clip(step, -3, 3)
        if np.abs(step).max() < 1e-10:
            break
    else:
        return nothing
    found = slope if slope is not None else beta[1] / spread
    back = (
        np.array([[1.0], [0.0]])
        if slope is not None
        else np.array([[1.0, -centre / spread], [0.0, 1 / spread]])
    )
    return Line(
        float(beta[0] - found * centre), float(found), back @ np.linalg.inv(information) @ back.T
    )


def log_odds(p: Floats) -> Floats:
    """Return the log odds of probabilities, which are clipped at 0.000001 from 0 and 1."""
    from scipy.special import logit

    odds: Floats = logit(np.clip(p, _LEAST, 1 - _LEAST))
    return odds


# -- predictions
# ------------------------------------------------------------------------------------------------


def class_codes(classes: NDArray[Any], X: Any, y: Any) -> NDArray[np.intp]:
    """Return the number of the true class of every row: of ``y``, or of a table."""
    if y is None:
        if not isinstance(X, Table) or X.class_codes is None:
            raise ArgumentError(
                "true classes are needed: give y=, or a table that has them", code="no-classes"
            )
        return np.asarray(X.class_codes, dtype=np.intp)
    labels = np.asarray(y)
    matches = labels[:, None] == np.asarray(classes)[None, :]
    foreign = ~matches.any(axis=1)
    if foreign.any():
        raise ArgumentError(
            f"y has classes beyond those of the model, {', '.join(map(str, classes))}: "
            f"{labels[foreign].tolist()[0]!r} in {foreign.sum()} of {len(labels)} rows",
            code="unknown-class",
        )
    return np.asarray(matches.argmax(axis=1))


@dataclass(frozen=True, eq=False)
class Predictions:
    """What a classifier says of some rows, beside what they are.

    Attributes
    ----------
    classes : array
    codes, predicted : integer arrays
        Numbers of the true and of the predicted class of every row.
    scores : array
        A column for each class: probabilities, or scores.
    are_probabilities : bool
    weights : array, optional
    n_dropped, n_unlabelled : int
        Rows that are not here: because values are missing, because their class is not known.
    """

    classes: NDArray[Any]
    codes: NDArray[np.intp]
    predicted: NDArray[np.intp]
    scores: Floats
    are_probabilities: bool
    weights: Floats | None = None
    n_dropped: int = 0
    n_unlabelled: int = 0

    @classmethod
    def of(cls, model: Any, X: Any, y: Any = None) -> Predictions:
        """Return the predictions of a model for rows of known class.

        Rows whose ``y`` is missing are left out and counted, rows of weight 0 left out.
        """
        missing = (
            np.zeros(0, dtype=bool) if y is None else pd.isna(pd.Series(np.asarray(y))).to_numpy()
        )
        if missing.all() and len(missing):
            raise ArgumentError(
                f"the class is missing in all {len(missing)} rows: there is nothing to compare "
                "predictions with",
                code="no-known-classes",
            )
        if missing.any():
            X = X.take(np.flatnonzero(~missing)) if isinstance(X, Table) else X[~missing]
            y = np.asarray(y)[~missing]
        if isinstance(X, Table) and X.weights is not None:
            counted = np.flatnonzero(X.weights)
            X, y = (
                replace(X.take(counted), n_dropped=X.n_dropped),
                y if y is None else np.asarray(y)[counted],
            )
        classes = np.asarray(model.classes_)
        codes = class_codes(classes, X, y)
        has = hasattr(model, "predict_proba")
        scores = np.asarray(
            model.predict_proba(X) if has else model.decision_function(X), dtype=np.float64
        )
        if scores.ndim == 1:  # of two classes, the score of the second
            scores = np.column_stack([-scores, scores])
        weights = (
            None if not isinstance(X, Table) or X.weights is None else X.weights.astype(np.float64)
        )
        dropped = X.n_dropped if isinstance(X, Table) else 0
        predicted = class_codes(classes, None, model.predict(X))
        return cls(classes, codes, predicted, scores, has, weights, dropped, int(missing.sum()))

    @classmethod
    def concat(cls, parts: Sequence[Predictions]) -> Predictions:
        """Return the predictions of several models, each for rows of its own, as if one had made
        them.
        """
        first = parts[0]
        weights = None if first.weights is None else np.concatenate([one.weights for one in parts])
        codes, predicted, scores = (
            np.concatenate([getattr(one, name) for one in parts])
            for name in ("codes", "predicted", "scores")
        )
        dropped, unlabelled = (
            sum(getattr(one, name) for one in parts) for name in ("n_dropped", "n_unlabelled")
        )
        return replace(
            first,
            codes=codes,
            predicted=predicted,
            scores=scores,
            weights=weights,
            n_dropped=dropped,
            n_unlabelled=unlabelled,
        )

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def weight(self) -> Floats:
        """Return the weight of every row."""
        return np.ones(len(self)) if self.weights is None else self.weights

    def against(self, position: int, threshold: float | None = None) -> Binary:
        """Return a class against all others: called where the model predicts it, or where its score
        reaches a threshold.
        """
        scores = self.scores[:, position]
        called = self.predicted == position if threshold is None else scores >= threshold
        label, weighted = self.classes.tolist()[position], self.weights is not None
        return Binary(
            label,
            self.codes == position,
            scores,
            called,
            self.weight,
            self.are_probabilities,
            weighted,
        )


@dataclass(frozen=True, eq=False)
class Binary:
    """Rows that are of a class, by its label, or not, with a score and a verdict for each."""

    label: Any
    positive: NDArray[np.bool_]
    scores: Floats
    called: NDArray[np.bool_]
    weight: Floats
    are_probabilities: bool
    is_weighted: bool = False

    def estimates(self, confidence: float = 0.95, n_bins: int = _N_BINS) -> dict[str, Estimate]:
        """Return all scores, by name."""
        positive, called, weight = self.positive, self.called, self.weight
        everybody = np.ones(len(positive), dtype=bool)
        nothing = Estimate(np.nan, n=len(positive))
        return {
            **dict.fromkeys(SCORES, nothing),
            "accuracy": _share(positive == called, everybody, weight, confidence),
            "auc": _auc_estimate(positive, self.scores, weight, confidence),
            "sensitivity": _share(called, positive, weight, confidence),
            "specificity": _share(~called, ~positive, weight, confidence),
            "ppv": _share(positive, called, weight, confidence),
            "npv": _share(~positive, ~called, weight, confidence),
            **(self._of_probabilities(confidence, n_bins) if self.are_probabilities else {}),
        }

    def _of_probabilities(self, confidence: float, n_bins: int) -> dict[str, Estimate]:
        positive, p, weight = self.positive, self.scores, self.weight
        table = self.calibration(n_bins=n_bins)
        share = table["weight"] if self.is_weighted else table["rows"]
        error = float(np.average((table["predicted"] - table["observed"]).abs(), weights=share))
        found = {
            "log_loss": _mean(_loss(np.where(positive, p, 1 - p)), weight, confidence),
            "brier": _mean((p - positive) ** 2, weight, confidence),
            "calibration_error": Estimate(error, n=len(p)),
        }
        if positive.all() or not positive.any():
            return found
        odds, truth = log_odds(p), positive.astype(np.float64)
        steep, level_line = (
            logistic_line(odds, truth, weight),
            logistic_line(odds, truth, weight, slope=1.0),
        )
        scale = _effective(weight) / weight.sum()  # weights are no copies of rows
        z, n = _normal_quantile(confidence), len(p)
        for name, value, variance in (
            ("calibration_slope", steep.slope, steep.covariance[1, 1]),
            ("calibration_intercept", level_line.intercept, level_line.covariance[0, 0]),
        ):
            half = z * np.sqrt(variance / scale)
            found[name] = Estimate(value, float(value - half), float(value + half), n, _NORMAL)
        return found

    def calibration(self, *, n_bins: int = _N_BINS, confidence: float = 0.95) -> pd.DataFrame:
        """Return :func:`calibration_table` of these predictions."""
        weights = self.weight if self.is_weighted else None
        return calibration_table(
            self.positive, self.scores, weights, n_bins=n_bins, confidence=confidence
        )


def _loss(p: Floats) -> Floats:
    """Return minus the logarithm of what was given to the true class; as scikit-learn, no less than
    the smallest step above 0.
    """
    least = np.finfo(np.float64).eps
    loss: Floats = -np.log(np.clip(p, least, 1 - least))
    return loss


def _arrays(
    truth: ArrayLike, scores: ArrayLike, weights: ArrayLike | None
) -> tuple[NDArray[np.bool_], Floats, Floats]:
    positive, values = np.asarray(truth).astype(bool), np.asarray(scores, dtype=np.float64)
    weight = np.ones(len(positive)) if weights is None else np.asarray(weights, dtype=np.float64)
    if not len(positive) or not len(positive) == len(values) == len(weight):
        raise ArgumentError(
            f"{len(positive)} classes, {len(values)} scores and {len(weight)} weights: one of "
            "each for every row is needed",
            code="lengths-differ",
        )
    if np.isnan(values).any():
        raise ArgumentError("some scores are nan: there is no order among them", code="nan-scores")
    if (weight < 0).any() or not weight.any():
        raise ArgumentError(
            "weights are at least 0, and one of them is more", code="negative-weights"
        )
    return positive, values, weight


# -- all of it
# ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Evaluation:
    """All scores of a classifier on some rows. Made by :func:`evaluate`; printed, it is a table.

    Attributes
    ----------
    scores : dict of str to Estimate
        ``accuracy``, ``auc``, ``log_loss``, ``brier``, ``sensitivity``, ``specificity``, ``ppv``,
        ``npv``, ``calibration_error``, ``calibration_slope``, ``calibration_intercept``.
    positive : label or None
        The positive class. None of more than two classes: then sensitivity and the like are means
        over classes, each of them against all others.
    by_class : dict
        Of more than two classes: the scores of each against all others.
    calibration : DataFrame or None
        As :func:`calibration_table` gives it, for the positive class.
    class_counts : dict
        Rows of each class.
    n_rows, n_dropped, n_unlabelled : int
        Rows that were scored, that were left out because values are missing, and because their
        class is.
    threshold : float or None
        From which score on a row is called positive; None for what the model itself predicts.
    confidence : float
        Of the intervals.
    notes : tuple of str
        What is not there, and why.
    """

    scores: dict[str, Estimate]
    positive: Any
    class_counts: dict[Any, int]
    n_dropped: int
    n_unlabelled: int
    threshold: float | None
    confidence: float
    calibration: pd.DataFrame | None = None
    by_class: dict[Any, dict[str, Estimate]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def n_rows(self) -> int:
        """Return how many rows were scored."""
        return sum(self.class_counts.values())

    @property
    def table(self) -> pd.DataFrame:
        """Return a line for each score: value, interval, how many rows it is about, and whose
        interval it is.
        """
        return _score_table(self.scores)

    def to_dict(self) -> dict[str, Any]:
        """Return all of it, ready for JSON; a number that there is not is nan."""
        return {
            "positive": _plain(self.positive),
            "threshold": self.threshold,
            "rows": self.n_rows,
            "class_counts": {str(label): count for label, count in self.class_counts.items()},
            "rows_left_out": self.n_dropped + self.n_unlabelled,
            "rows_without_class": self.n_unlabelled,
            "confidence": self.confidence,
            "scores": estimates_to_dict(self.scores),
            "by_class": {
                str(label): estimates_to_dict(scores) for label, scores in self.by_class.items()
            },
            "calibration": None
            if self.calibration is None
            else self.calibration.reset_index().to_dict("records"),
            "notes": list(self.notes),
        }

    def heading(self) -> str:
        """Return the rows, and the positive class by name."""
        if self.positive is None:
            classes = ", ".join(f"{label} {count:,}" for label, count in self.class_counts.items())
            return f"{self.n_rows:,} rows ({classes}); each class against all others"
        count = self.class_counts[self.positive]
        return f"{self.n_rows:,} rows, {count:,} of the positive class {self.positive}"

    def __str__(self) -> str:
        wide = max(map(len, SCORES.values()))
        lines = [f"{SCORES[name]:{wide}}  {found}" for name, found in self.scores.items()]
        left = [f"left out: {text}" for text in self.left_out()]
        return "\n".join([self.heading(), *lines, *left, *self.notes])

    def left_out(self) -> list[str]:
        """Return rows that were not scored, in words."""
        counts = {"with missing values": self.n_dropped, "without a class": self.n_unlabelled}
        return [
            f"{count:,} row{'' if count == 1 else 's'} {why}"
            for why, count in counts.items()
            if count
        ]


def evaluate(
    model: Any,
    X: Any,
    y: Any = None,
    *,
    pos_label: Any = None,
    threshold: float | None = None,
    confidence: float = 0.95,
    n_bins: int = _N_BINS,
) -> Evaluation:
    """Score a classifier on rows of known class, which it should not have been fitted to.

    Parameters
    ----------
    model : classifier
        A decrypted model, or any other of scikit-learn's kind.
    X : DataFrame, array or Table
    y : array, optional
        True classes; those of ``X`` where it is a table. Rows where it is missing are left out and
        counted.
    pos_label : label, optional
        The positive class. By default the second of two classes; of more, each in turn is held
        against all others.
    threshold : float, optional
        Call a row positive from this probability (or score) on. By default what the model predicts
        is taken: of two classes the one with a probability above 0.5.
    confidence : float
        Of the intervals.
    n_bins : int
        Groups of rows in the calibration table.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.dummy import DummyClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> found = evaluate(DummyClassifier().fit(X, y), X, y, pos_label=0)
    >>> print(found.scores["accuracy"], found.positive)
    0.627 (0.587 to 0.666) 0
    """
    return evaluate_predictions(
        Predictions.of(model, X, y),
        pos_label=pos_label,
        threshold=threshold,
        confidence=confidence,
        n_bins=n_bins,
    )


def evaluate_predictions(
    made: Predictions,
    *,
    pos_label: Any = None,
    threshold: float | None = None,
    confidence: float = 0.95,
    n_bins: int = _N_BINS,
) -> Evaluation:
    """Score predictions that were made already; see :func:`evaluate`."""
    position = positive_position(made.classes, pos_label)
    if position is None and threshold is not None:
        raise ArgumentError(
            f"threshold={threshold}: there are {len(made.classes)} classes, and a threshold is "
            "for one of them: name it with "
            "pos_label=",
            code="threshold-without-class",
        )
    labels = made.classes.tolist()
    counts = dict(zip(labels, np.bincount(made.codes, minlength=len(labels)).tolist(), strict=True))
    single, calibration = {}, None
    if position is None:
        single = {
            label: made.against(k).estimates(confidence, n_bins) for k, label in enumerate(labels)
        }
        scores = _macro(made, single, confidence)
    else:
        binary = made.against(position, threshold)
        scores = binary.estimates(confidence, n_bins)
        calibration = (
            binary.calibration(n_bins=n_bins, confidence=confidence)
            if made.are_probabilities
            else None
        )
    return Evaluation(
        scores=scores,
        positive=None if position is None else labels[position],
        class_counts=counts,
        n_dropped=made.n_dropped,
        n_unlabelled=made.n_unlabelled,
        threshold=threshold,
        confidence=confidence,
        calibration=calibration,
        by_class=single,
        notes=tuple(_notes(made, counts, position)),
    )


def score_numbers(
    truth: ArrayLike, predicted: ArrayLike, confidence: float = 0.95
) -> dict[str, Estimate]:
    """Score predicted numbers; the mean absolute error has a normal interval.

    Examples
    --------
    >>> scores = score_numbers([1, 2, 3, 6], [1, 2, 4, 5])
    >>> {name: round(one.estimate, 3) for name, one in scores.items()}
    {'r_squared': 0.857, 'rmse': 0.707, 'mae': 0.5}
    """
    wanted = np.asarray(truth, dtype=np.float64)
    residuals = wanted - np.asarray(predicted, dtype=np.float64)
    squares, spread = float((residuals**2).sum()), float(((wanted - wanted.mean()) ** 2).sum())
    n = len(wanted)
    explained = 1.0 - squares / spread if spread else np.nan
    return {
        "r_squared": Estimate(explained, n=n),
        "rmse": Estimate(float(np.sqrt(squares / n)), n=n),
        "mae": _mean(np.abs(residuals), np.ones(n), confidence),
    }


def positive_position(classes: NDArray[Any], pos_label: Any = None) -> int | None:
    """Return which class is the positive one: the one named, else the second of two, else none."""
    known: list[Any] = np.asarray(classes).tolist()
    if pos_label is None:
        return 1 if len(known) == 2 else None
    if pos_label not in known:
        raise ArgumentError(
            f"pos_label={pos_label!r}: the classes are {', '.join(map(repr, known))}",
            code="unknown-class",
        )
    return known.index(pos_label)


def _macro(
    made: Predictions, single: Mapping[Any, dict[str, Estimate]], confidence: float
) -> dict[str, Estimate]:
    """Score more than two classes: accuracy and losses together, everything else by means."""
    found, rows = {}, len(made)
    for name in SCORES:
        values = [scores[name].estimate for scores in single.values()]
        found[name] = Estimate(
            float(np.mean(values)), n=rows, method=_MACRO
        )  # nan if one of them is
    everybody = np.ones(rows, dtype=bool)
    found["accuracy"] = _share(made.predicted == made.codes, everybody, made.weight, confidence)
    if made.are_probabilities:
        chosen = made.scores[np.arange(rows), made.codes]
        truth = np.eye(len(made.classes))[made.codes]
        found["log_loss"] = _mean(_loss(chosen), made.weight, confidence)
        found["brier"] = _mean(((made.scores - truth) ** 2).sum(axis=1), made.weight, confidence)
    return found


def _notes(made: Predictions, counts: Mapping[Any, int], position: int | None) -> list[str]:
    notes = []
    absent = [label for label, count in counts.items() if not count]
    if position is not None and len(made.classes) > 2:
        notes.append(f"{made.classes.tolist()[position]} against all other classes")
    positive = made.codes == position
    if position is not None and (positive.all() or not positive.any()):
        which = (
            f"all {len(made):,} rows are"
            if positive.all()
            else f"none of the {len(made):,} rows is"
        )
        notes.append(
            f"{which} of the positive class {made.classes.tolist()[position]}: AUC and "
            "calibration slope need rows of both kinds"
        )
    elif position is None and absent:
        notes.append(
            f"no rows of class {', '.join(map(str, absent))}: means over classes need rows of each"
        )
    if not made.are_probabilities:
        notes.append(
            "the model has scores and no probabilities: no log loss, Brier score or calibration"
        )
    return notes


def _score_table(scores: Mapping[str, Estimate]) -> pd.DataFrame:
    lines = [(one.estimate, one.low, one.high, one.n, one.method) for one in scores.values()]
    return pd.DataFrame(
        lines, pd.Index(list(scores), name="score"), ["estimate", "low", "high", "n", "interval"]
    )


def estimates_to_dict(scores: Mapping[str, Estimate]) -> dict[str, Any]:
    """Return scores ready for JSON; a number that there is not is nan."""
    return {
        name: {
            "estimate": one.estimate,
            "low": one.low,
            "high": one.high,
            "n": one.n,
            "interval": one.method,
        }
        for name, one in scores.items()
    }


def _plain(label: Any) -> Any:
    return label if label is None or isinstance(label, (bool, int, float)) else str(label)
