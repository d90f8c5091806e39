"""Integers that callers give: Python's and NumPy's alike, and never a truth value. Knows nothing of
this library.
"""

from __future__ import annotations

import operator
from typing import Any

from encryptedstats.errors import ArgumentError


def as_integer(value: Any) -> int | None:
    """The Python integer that a value is; None for what is none: fractions, text, and True and
    False.

    >>> import numpy as np
    >>> as_integer(np.int64(569)), as_integer(True), as_integer(2.0)
    (569, None, None)
    """
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def as_count(value: Any, name: str, what: str, least: int = 1) -> int:
    """The same for the argument ``name``, refused where it is none or less than ``least``."""
    number = as_integer(value)
    if number is None or number < least:
        raise ArgumentError(
            f"{name}={value!r}: a number of {what} is needed, at least {least}", code="not-a-count"
        )
    return number
