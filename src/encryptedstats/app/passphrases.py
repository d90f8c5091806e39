"""How hard a passphrase is to guess, roughly: weak ones are refused with a hint. Imports the errors
of the desk and nothing else of this library.

Words count as words and not as letters, and runs such as ``1234`` or ``aaaa`` as two characters. A
passphrase is stretched by a slow function before it locks a key: at a second for each guess, 30
bits are decades. The estimate is for people who choose "password2026", not for cryptographers.
"""

from __future__ import annotations

import math
import re
from typing import Final

from encryptedstats.app.desk import Refused

LEAST: Final = 10
_BITS: Final = 30.0
_WORD_BITS: Final = 11.0
_COMMON: Final = (
    "password passwort passphrase secret letmein welcome qwerty qwertz admin hospital clinic "
    "doctor patient patients research study data statistics login master dragon monkey football "
    "iloveyou sunshine princess summer winter spring autumn monday changeme test"
)
_PIECES: Final = re.compile(r"[^\W\d_]+|\d+|[\W_]+")
_ROWS: Final = ("abcdefghijklmnopqrstuvwxyz", "01234567890", "qwertyuiop", "asdfghjkl", "zxcvbnm")


def check_passphrase(text: str) -> None:
    """Refuse a passphrase that is short or easily guessed."""
    hint = "take three or four words that do not belong together, such as a colour, an animal and "
    hint += "a tool"
    if len(text) < LEAST:
        raise Refused(
            f"the passphrase has {len(text)} characters, and at least {LEAST} are wanted: {hint}",
            code="passphrase-too-short",
        )
    if strength(text) < _BITS:
        raise Refused(
            f"this passphrase could be guessed: {hint}; digits at the end do not help much",
            code="passphrase-too-weak",
        )


def strength(text: str) -> float:
    """Estimate the bits of a passphrase.

    >>> [round(strength(text)) for text in ("aaaaaaaaaaaa", "password2026", "seven quiet otters")]
    [9, 10, 34]
    """
    seen: set[str] = set()
    bits = 0.0
    for piece in _PIECES.findall(text):
        if piece.lower() not in seen:
            bits += _piece_bits(piece)
        seen.add(piece.lower())
    return bits


def _piece_bits(piece: str) -> float:
    lower = piece.lower()
    if lower in _COMMON.split():
        return 3.0
    length = _without_runs(lower)
    if piece.isdigit():
        is_year = len(piece) == 4 and piece[:2] in ("19", "20")
        return 6.5 if is_year else math.log2(10) * length
    if not piece.isalpha():
        return 1.5 if piece.strip() == "" else 3.0 * length
    mixed = 4.7 + (1.0 if lower != piece and not piece.istitle() else 0.0)
    return mixed * length if length <= 3 else _WORD_BITS + 0.8 * max(0, length - 8)


def _without_runs(text: str) -> int:
    """Count characters; those that repeat or follow on from the two before count nothing."""
    count = 0
    for place, letter in enumerate(text):
        run = text[place - 2 : place + 1]
        is_run = len(run) == 3 and (
            len(set(run)) == 1 or any(run in row or run in row[::-1] for row in _ROWS)
        )
        count += not (place >= 2 and letter and is_run)
    return count
