"""scikit-learn transformers for the encodings of a table, by the same arithmetic (`binning`) as
`Schema`.

For pipelines in the clear: the columns that come out are the integers that `Schema.table` makes of
continuous variables and numbers. Values outside the range seen in `fit` fall into the outermost
bins.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import _check_feature_names_in, check_array, check_is_fitted

from encryptedstats.tables.schema.bins import (
    assign_bins,
    centred_codes,
    check_digits,
    fixed_point,
    ordinal_codes,
    quantile_edges,
)

try:
    from sklearn.utils.validation import validate_data
except ImportError:  # scikit-learn before 1.6 has it as a method

    def validate_data(estimator: Any, X: Any, **options: Any) -> Any:
        return estimator._validate_data(X, **options)


# scikit-learn ships no types
class _IntegersOut(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Tell scikit-learn that the output is int64 for any input, because integers are encrypted."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []
        return tags

    def _more_tags(self) -> dict[str, Any]:  # the same for scikit-learn before 1.6
        return {"preserves_dtype": []}


class _QuantileBins(_IntegersOut):
    """Base of both quantile transformers: fits the cut points of every column."""

    bins: int

    def fit(self, X: ArrayLike, y: object = None) -> Any:
        """Find the cut points of every column: its quantiles, ties merged."""
        X = validate_data(self, X, dtype="numeric")
        self.bin_edges_ = [quantile_edges(values, self.bins) for values in np.asarray(X).T]
        self.n_bins_ = np.array([len(edges) + 1 for edges in self.bin_edges_])
        return self

    def _bin_numbers(self, X: ArrayLike) -> list[NDArray[np.intp]]:
        check_is_fitted(self)
        X = validate_data(self, X, dtype="numeric", reset=False)
        return [
            assign_bins(values, edges)
            for values, edges in zip(np.asarray(X).T, self.bin_edges_, strict=True)
        ]


class QuantileOneHot(_QuantileBins):
    """Indicators of quantile bins: method 1 of the paper's section 2.2.

    Parameters
    ----------
    bins
        Bins of a column; ties can leave fewer.

    Attributes
    ----------
    bin_edges_
        Inner cut points of every column.
    n_bins_
        Number of bins of every column.

    Examples
    --------
    >>> QuantileOneHot(bins=2).fit_transform([[1.0], [2.0], [3.0]])
    array([[1, 0],
           [1, 0],
           [0, 1]])
    """

    def __init__(self, bins: int = 5) -> None:
        self.bins = bins

    def transform(self, X: ArrayLike) -> NDArray[np.int64]:
        numbers = self._bin_numbers(X)
        return np.hstack(
            [np.eye(m, dtype=np.int64)[k] for k, m in zip(numbers, self.n_bins_, strict=True)]
        )

    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> NDArray[np.object_]:
        """Return names such as ``x0_bin3``, bins counted from 0."""
        check_is_fitted(self)
        names = _check_feature_names_in(self, input_features)
        bins = zip(names, self.n_bins_, strict=True)
        return np.array([f"{name}_bin{k}" for name, m in bins for k in range(m)], dtype=object)


# scikit-learn ships no types
class QuantileOrdinal(OneToOneFeatureMixin, _QuantileBins):  # type: ignore[misc]
    """Ordinal codes of quantile bins: method 2 of the paper's section 2.2.

    Parameters
    ----------
    bins
        Bins of a column; ties can leave fewer.
    centred
        Codes symmetric about 0 (quintiles: -2..2) instead of 1..m; for even m the odd integers
        -(m-1)..m-1.

    Examples
    --------
    >>> QuantileOrdinal(bins=3, centred=True).fit_transform([[1.0], [2.0], [3.0]]).ravel()
    array([-1,  0,  1])
    """

    def __init__(self, bins: int = 5, centred: bool = False) -> None:
        self.bins = bins
        self.centred = centred

    def transform(self, X: ArrayLike) -> NDArray[np.int64]:
        numbers = zip(self._bin_numbers(X), self.n_bins_, strict=True)
        return np.column_stack(
            [centred_codes(k, m) if self.centred else ordinal_codes(k) for k, m in numbers]
        )


# scikit-learn ships no types
class FixedPoint(OneToOneFeatureMixin, _IntegersOut):  # type: ignore[misc]
    """Integers nearest to 10**digits times the values (paper, section 2.2.1), halves to the even
    neighbour.

    Parameters
    ----------
    digits
        Decimal digits to keep.

    Examples
    --------
    >>> FixedPoint(digits=1).fit_transform([[36.64], [-0.25]]).ravel()
    array([366,  -2])
    """

    def __init__(self, digits: int = 2) -> None:
        self.digits = digits

    def fit(self, X: ArrayLike, y: object = None) -> FixedPoint:
        """Check the input; there is nothing to learn."""
        check_digits(self.digits)
        validate_data(self, X, dtype="numeric")
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "n_features_in_")

    def transform(self, X: ArrayLike) -> NDArray[np.int64]:
        check_is_fitted(self)
        return fixed_point(validate_data(self, X, dtype="numeric", reset=False), self.digits)

    def inverse_transform(self, X: ArrayLike) -> NDArray[np.float64]:
        """Back to real units, exact to the digits kept."""
        check_is_fitted(self)
        return np.asarray(check_array(X, dtype="numeric") / 10.0**self.digits)
