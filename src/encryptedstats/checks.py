"""Checks of integer arguments: Python's and NumPy's are accepted, truth values are not.

Knows nothing of this library.
"""

from __future__ import annotations

import operator
from typing import Any

from encryptedstats.errors import ArgumentError


def as_integer(value: Any) -> int | None:
    """Return a value as a Python integer, or None for fractions, text, True and False.

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
    """Return the argument ``name`` as an integer of at least ``least``, or raise an error."""
    number = as_integer(value)
    if number is None or number < least:
        raise ArgumentError(
            f"{name}={value!r}: a number of {what} is needed, at least {least}", code="not-a-count"
        )
    return number
