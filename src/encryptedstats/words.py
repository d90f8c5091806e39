"""Sizes, times, counts and suggestions in words, the same in plans, commands, errors and reports.

Imports nothing of this library.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def size_text(count: int) -> str:
    """Return a number of bytes in words, in the units of disks and networks.

    >>> size_text(130), size_text(2048), size_text(9_438_381), size_text(13_800_000_000)
    ('130 bytes', '2.0 kB', '9.4 MB', '13.8 GB')
    """
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return plural(count, "byte")


def time_text(seconds: float) -> str:
    """Return a number of seconds in words.

    >>> time_text(0.000124), time_text(0.0213), time_text(1.53), time_text(5800), time_text(1e6)
    ('0.12 ms', '21 ms', '1.5 s', '97 min', '278 h')
    """
    if seconds < 1:
        return f"{seconds * 1e3:.0f} ms" if seconds >= 0.01 else f"{seconds * 1e3:.2g} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 36000 else f"{seconds / 3600:.0f} h"


def plural(count: int, thing: str) -> str:
    """Return a count and its noun, with a thousands separator.

    >>> plural(1, "block"), plural(1024, "row")
    ('1 block', '1,024 rows')
    """
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def did_you_mean(name: object, names: Iterable[object]) -> str:
    """Return the name that was probably meant, as a part of an error; empty if none is near.

    >>> did_you_mean("Age", ["age", "sex"]), did_you_mean("height", ["age", "sex"])
    (" (did you mean 'age'?)", '')
    """
    by_text = {str(name).casefold(): name for name in reversed(list(names))}
    near = get_close_matches(str(name).casefold(), by_text, n=1, cutoff=0.65)
    return f" (did you mean {by_text[near[0]]!r}?)" if near else ""
