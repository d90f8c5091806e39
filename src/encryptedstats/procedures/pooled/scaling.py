"""Totals of sites as integers: rounded to a power of two, and refused where they are too large.

A site refuses a total of ``2^MOST_BITS`` and more, so sums over a thousand sites stay below 2^224
and masked sums never wrap, whatever the rows hold. What the models add up is far below: see the
bounds in their own files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from encryptedstats.errors import DataError
from encryptedstats.tables.questions.constraints import Integer

MOST_BITS: Final = 210
#: Totals are rounded to 2 to the power of -40, which is 9e-13.
BITS: Final = 40
BITS_ALLOWED: Final = Integer(low=20, high=60, code="bits-out-of-range")


def to_integers(values: Iterable[Any], bits: int) -> list[int]:
    """Return totals of one site times ``2^bits``, rounded."""
    found = []
    for value in values:
        number = float(value)
        if not np.isfinite(number) or abs(number) >= 2.0 ** (MOST_BITS - bits):
            raise DataError(
                f"a total of this site is {number:g}, which no round can carry: the current "
                "coefficients predict values that are too large. Scale or cut the covariates, "
                "or leave out rows with extreme values",
                code="total-too-large",
            )
        found.append(round(Fraction(number) * (1 << bits)))
    return found


def to_floats(totals: Sequence[int], bits: int) -> list[float]:
    """Return opened sums in their own units; each is rounded once."""
    unit = 1 << bits
    return [int(total) / unit for total in totals]


def weighted_products(x: NDArray[Any], weights: NDArray[Any]) -> list[float]:
    """Return the upper triangle of X'WX, row by row."""
    products = (x * weights[:, None]).T @ x
    upper: list[float] = products[np.triu_indices(x.shape[1])].tolist()
    return upper
