"""Arithmetic of the encodings: cut points, bins, ordinal codes and fixed point (section 2.2).

Said once here, so that the schema and the scikit-learn transformers cannot drift apart. Plain NumPy
in and out. Bins are half open, ``(e_{k-1}, e_k]``, and the outermost two are unbounded: the bin of
``x`` is the number of cut points below ``x``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from encryptedstats.errors import SchemaError

#: Fixed-point integers stay below this, so that their sums of two still fit a signed 64-bit
#: integer.
LARGEST_INTEGER = 2**62
#: A double has 15 to 17 significant decimal digits; more could not be kept anyway.
MOST_DIGITS = 15


def quantile_edges(
    values: ArrayLike, bins: int, weights: ArrayLike | None = None
) -> NDArray[np.float64]:
    """Inner cut points that split `values` into `bins` bins of equal size, as far as ties allow.

    The cut points are the quantiles 1/bins, 2/bins, ... by linear interpolation (R's type 7,
    NumPy's default). A cut point that separates no two values from each other, because of ties, is
    left out, so that every bin holds at least one of the values; there may then be fewer than
    ``bins - 1`` cut points, and none for constant values. A value of weight w (an integer, at least
    1) counts as w equal ones.

    Examples
    --------
    >>> quantile_edges([1, 2, 3, 4, 5, 6], 3)
    array([2.66666667, 4.33333333])
    >>> quantile_edges([1, 1, 1, 1, 9], 5)
    array([1.])
    """
    check_bins(bins)
    numbers = np.asarray(values, dtype=np.float64).ravel()
    if not numbers.size or not np.isfinite(numbers).all():
        raise SchemaError(
            "quantiles need at least one value, all of them finite", code="no-finite-values"
        )
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    last = np.cumsum(
        np.ones(numbers.size, np.int64)
        if weights is None
        else np.asarray(weights, dtype=np.int64)[order]
    )
    # Positions are integers, so that a quantile that is a data value is exactly that value.
    below, rest = np.divmod(np.arange(1, bins) * (int(last[-1]) - 1), bins)
    left, right = (
        ordered[np.searchsorted(last, at, side="right")]
        for at in (below, np.minimum(below + 1, last[-1] - 1))
    )
    share = rest / bins
    cuts = np.clip((1 - share) * left + share * right, left, right)
    n_below = np.searchsorted(ordered, cuts, side="right")
    splits, first = np.unique(n_below, return_index=True)
    return np.asarray(
        cuts[first[splits < ordered.size]] + 0.0
    )  # + 0.0 turns -0.0 into 0.0: one spelling in files


def assign_bins(values: ArrayLike, edges: ArrayLike) -> NDArray[np.intp]:
    """Return bin number, from 0, of each value: the number of cut points below it.

    Examples
    --------
    >>> assign_bins([0.5, 1.0, 1.5, 99.0], [1.0, 2.0])
    array([0, 0, 1, 2])
    """
    return np.searchsorted(np.asarray(edges, dtype=np.float64), np.asarray(values), side="left")


def code_values(n_bins: int, *, centred: bool = False) -> tuple[int, ...]:
    """Return the code of each bin in turn: 1..m (method 2 of the paper), or the symmetric codes of
    `centred_codes`.

    Examples
    --------
    >>> code_values(5), code_values(5, centred=True), code_values(4, centred=True)
    ((1, 2, 3, 4, 5), (-2, -1, 0, 1, 2), (-3, -1, 1, 3))
    """
    if not centred:
        return tuple(range(1, n_bins + 1))
    if n_bins % 2:
        return tuple(range(-(n_bins // 2), n_bins // 2 + 1))
    return tuple(range(1 - n_bins, n_bins, 2))


def ordinal_codes(bin_numbers: ArrayLike) -> NDArray[np.int64]:
    """Return codes 1..m of bin numbers 0..m-1 (method 2 of the paper)."""
    return np.asarray(bin_numbers).astype(np.int64) + 1


def centred_codes(bin_numbers: ArrayLike, n_bins: int) -> NDArray[np.int64]:
    """Return codes symmetric about 0: k - (m+1)/2 for odd m (quintiles: -2..2), the odd integers 2k
    - m - 1 for even m.
    """
    codes = np.array(code_values(n_bins, centred=True), dtype=np.int64)
    return np.asarray(codes[np.asarray(bin_numbers)])


def fits_fixed_point(values: NDArray[Any], digits: int) -> NDArray[np.bool_]:
    """Return whether each value, times 10**digits, is an integer that `fixed_point` can hold."""
    largest = LARGEST_INTEGER // 10**digits
    if values.dtype.kind == "u":
        return np.asarray(values <= largest)
    if values.dtype.kind in "ib":
        return np.asarray((values >= -largest) & (values <= largest))
    return np.asarray(np.abs(values) <= largest)


def fixed_point(values: ArrayLike, digits: int) -> NDArray[np.int64]:
    """Return the integers nearest to 10**digits times `values` (paper, section 2.2.1).

    Integers are scaled exactly. Floats are multiplied in double precision and then rounded, halves
    to the even neighbour (IEEE 754, ``numpy.rint``), so errors of rounding do not pile up in sums.

    Examples
    --------
    >>> fixed_point([0.5, 1.5, -2.5, 36.64], 0), fixed_point([0.5, 36.64], 1)
    (array([ 0,  2, -2, 37]), array([  5, 366]))
    """
    array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        raise SchemaError(
            f"{values!r}: fixed point needs numbers of at most 64 bits", code="number-too-wide"
        )
    fits = fits_fixed_point(array, check_digits(digits))
    if not fits.all():
        raise SchemaError(
            f"{array[~fits].flat[0]} with {digits} digits does not fit a fixed-point integer "
            "below 2**62: use fewer digits",
            code="number-too-large",
        )
    if array.dtype.kind in "iub":
        return array.astype(np.int64) * np.int64(10**digits)
    return np.rint(array.astype(np.float64) * 10.0**digits).astype(np.int64)


def check_bins(bins: object) -> None:
    """Refuse a number of bins that is none."""
    if isinstance(bins, bool) or not isinstance(bins, (int, np.integer)) or bins < 1:
        raise SchemaError(
            f"bins={bins!r}: an integer, at least 1, is needed", code="bins-out-of-range"
        )


def check_digits(digits: object) -> int:
    """Return the number of decimal digits; refuse what is none."""
    if (
        isinstance(digits, bool)
        or not isinstance(digits, (int, np.integer))
        or not 0 <= digits <= MOST_DIGITS
    ):
        raise SchemaError(
            f"digits={digits!r}: an integer from 0 to {MOST_DIGITS} is needed",
            code="digits-out-of-range",
        )
    return int(digits)
