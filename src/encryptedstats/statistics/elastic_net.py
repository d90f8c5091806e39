"""Elastic net and lasso from exact totals, by scikit-learn's coordinate descent.

The objective depends on the rows only through sums of products, so a small table with the same sums
of products has the same minimum. scikit-learn minimises over that one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, ClassVar, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from encryptedstats.errors import ArgumentError
from encryptedstats.statistics._least_squares import CrossProducts
from encryptedstats.statistics.formulas import INTERCEPT
from encryptedstats.statistics.linear import RidgePath, _LeastSquares, sum_of_folds
from encryptedstats.tables.questions.constraints import ALPHA, Constraints, RealNumber
from encryptedstats.tables.questions.question import Totals
from encryptedstats.tables.schema.variables import PublicSchema

Floats = NDArray[np.float64]
_TOLERANCE: Final = 1e-12
_MOST_STEPS: Final = 1_000_000
_LEAST_PENALTY: Final = 1e-3  # of a path, as a share of the largest, as in scikit-learn
_DEPENDENT: Final = 1e-12


class ElasticNet(_LeastSquares):
    r"""Least squares with penalties on the absolute and on the squared coefficients.

    .. math:: \frac{1}{2n} \lVert y - X\beta \rVert^2 + \alpha \rho \lVert \beta \rVert_1
              + \frac{\alpha (1 - \rho)}{2} \lVert \beta \rVert^2

    with the share :math:`\rho` of the first penalty (``l1_ratio``); 1 is the lasso. Totals are
    those of :class:`LinearRegression`, whatever the penalties are: :meth:`path` and
    :meth:`cross_validate` need no other pass over the rows.

    Parameters
    ----------
    alpha : float
        At least 0.
    l1_ratio : float
        Between 0 and 1.
    formula, reference, weights, missing, fit_intercept, target, variables
        See :class:`LinearRegression`.

    Attributes
    ----------
    coef_ : array of shape (n_columns,)
        In the units of the columns, which are not standardised.
    intercept_ : float
    columns_ : list of str

    References
    ----------
    Tibshirani (1996). Zou and Hastie (2005).

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from encryptedstats import ElasticNet
    >>> X, y = load_diabetes(return_X_y=True)
    >>> ElasticNet(alpha=1.0, l1_ratio=1.0).fit(X, y).coef_.round()
    array([  0.,  -0., 368.,   6.,   0.,   0.,  -0.,   0., 308.,   0.])
    """

    title: ClassVar[str] = "Elastic net"
    constraints: ClassVar[Constraints] = {
        "alpha": ALPHA,
        "l1_ratio": RealNumber(low=0, high=1),
    }

    def __init__(
        self,
        alpha: float = 1.0,
        l1_ratio: float = 0.5,
        formula: str = "",
        reference: Mapping[str, Any] | None = None,
        weights: str | None = None,
        missing: str = "complete",
        fit_intercept: bool = True,
        target: str | None = None,
        variables: Sequence[str] | None = None,
    ) -> None:
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.formula = formula
        self.reference = reference
        self.weights = weights
        self.missing = missing
        self.fit_intercept = fit_intercept
        self.target = target
        self.variables = variables

    def learn(self, totals: Totals, schema: PublicSchema) -> None:
        """Set the coefficients."""
        self._moments = self._learn_moments(totals, schema)
        (found,) = _minimise(self._moments, [float(self.alpha)], float(self.l1_ratio))
        self.coef_, self.intercept_ = found, _intercept(self._moments, found)

    def summary(self) -> RidgePath:
        """Return the coefficients, with the alpha of the fit."""
        self._check_open()
        return self.path([float(self.growth_["alpha"])])

    def path(self, alphas: Sequence[float] | None = None, n_alphas: int = 100) -> RidgePath:
        """Return the coefficients for every alpha.

        By default for ``n_alphas`` of them, from the least at which all coefficients are 0 down to
        a thousandth of it.
        """
        self._check_open()
        if alphas is None:
            alphas = default_alphas(self._moments, float(self.l1_ratio), n_alphas)
        return self._table(self._moments, list(alphas), pd.DataFrame(), math.nan)

    def _table(
        self, moments: CrossProducts, alphas: Sequence[float], errors: pd.DataFrame, best: float
    ) -> RidgePath:
        rows = [
            [*([_intercept(moments, found)] if moments.centred else []), *found]
            for found in _minimise(moments, alphas, float(self.l1_ratio))
        ]
        names = [*([INTERCEPT] if moments.centred else []), *self.columns_]
        frame = pd.DataFrame(rows, pd.Index(list(alphas), name="alpha"), names)
        chosen = () if math.isnan(best) else (f"least error over the folds: alpha = {best:g}",)
        return RidgePath(
            title=f"Elastic net of {self.target_} by alpha, l1_ratio = {float(self.l1_ratio):g}",
            n_rows=moments.n_rows,
            notes=(*self._left_out(), *chosen),
            table=frame if errors.empty else errors.join(frame),
            best_alpha=best,
        )

    @staticmethod
    def cross_validate(
        models: Sequence[ElasticNet], alphas: Sequence[float] | None = None
    ) -> RidgePath:
        """Choose alpha by cross-validation, from the totals of folds alone: ``models`` are what
        ``fit_folds`` gives, opened.
        """
        models = list(models)
        whole, folds = sum_of_folds(models)
        first = models[0]
        ratio = float(first.l1_ratio)
        if alphas is None:
            alphas = default_alphas(whole, ratio)
        errors = []
        for rest, fold in folds:
            if fold.weight:
                slopes = _minimise(rest, alphas, ratio)
                errors.append([_mean_squared_error(rest, fold, found) for found in slopes])
        of_folds = np.array(errors)
        error = of_folds.std(axis=0, ddof=1) / math.sqrt(len(errors)) if len(errors) > 1 else np.nan
        table = pd.DataFrame(
            {"estimate": of_folds.mean(axis=0), "std_error": error},
            pd.Index(list(alphas), name="alpha"),
        )
        best = float(table.index[int(table["estimate"].to_numpy().argmin())])
        return first._table(whole, list(alphas), table, best)


def default_alphas(moments: CrossProducts, l1_ratio: float, n_alphas: int = 100) -> list[float]:
    """Return penalties from the least at which all coefficients are 0, downwards."""
    if l1_ratio == 0:
        raise ArgumentError(
            "alphas: with l1_ratio=0 no penalty makes all coefficients 0: give the alphas to try",
            code="alphas-missing",
        )
    _, products, _ = _scatter(moments)
    largest = float(np.abs(products).max(initial=0.0)) / l1_ratio or 1.0
    spread = np.geomspace(largest, largest * _LEAST_PENALTY, n_alphas)
    return [float(f"{alpha:.6g}") for alpha in spread]


def _scatter(moments: CrossProducts) -> tuple[Floats, Floats, float]:
    """Return X'X, X'y and y'y around the means, divided by the rows."""
    unit = moments.divisor * moments.weight
    scales = moments.scales
    matrix = np.array(
        [
            [
                float(Fraction(int(value), unit * int(a) * int(b)))
                for value, b in zip(row, scales, strict=True)
            ]
            for row, a in zip(moments.scatter, scales, strict=True)
        ]
    )
    return matrix[:-1, :-1], matrix[:-1, -1], float(matrix[-1, -1])


def _minimise(moments: CrossProducts, alphas: Sequence[float], l1_ratio: float) -> list[Floats]:
    from sklearn.linear_model import ElasticNet as Descent

    gram, products, _ = _scatter(moments)
    values, vectors = np.linalg.eigh(gram)
    used = values > _DEPENDENT * max(values.max(initial=0.0), np.finfo(float).tiny)
    root = np.sqrt(values[used])
    if not root.size:
        return [np.zeros(len(products)) for _ in alphas]
    # A table of as many rows as X'X has eigenvalues, with the same X'X and X'y per row.
    n = math.sqrt(root.size)
    rows, target = (
        n * root[:, None] * vectors[:, used].T,
        n * (vectors[:, used].T @ products) / root,
    )
    found = []
    for alpha in alphas:
        if alpha == 0:
            found.append(np.linalg.lstsq(rows, target, rcond=None)[0])
            continue
        descent = Descent(
            alpha=alpha,
            l1_ratio=l1_ratio,
            fit_intercept=False,
            tol=_TOLERANCE,
            max_iter=_MOST_STEPS,
        )
        found.append(descent.fit(rows, target).coef_)
    return found


def _intercept(moments: CrossProducts, slopes: Floats) -> float:
    means = moments.means.astype(float)
    return float(means[-1] - slopes @ means[:-1]) if moments.centred else 0.0


def _mean_squared_error(fitted: CrossProducts, rows: CrossProducts, slopes: Floats) -> float:
    """Return the mean squared error of a fit to some rows in others."""
    # Around the means of the other rows: the scatter, and the square of the distance of the means.
    gram, products, squares = _scatter(rows)
    inside = squares - 2 * slopes @ products + slopes @ gram @ slopes
    if not rows.centred:
        return float(inside)
    means = rows.means.astype(float)
    apart = means[-1] - slopes @ means[:-1] - _intercept(fitted, slopes)
    return float(inside + apart**2)
