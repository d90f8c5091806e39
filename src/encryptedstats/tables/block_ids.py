"""Which rows are in a result: blocks of an encrypted table by their ids, or some folds of a block.

Models without a fold hold ``"<id>:0,2/3"``: folds 0 and 2 of 3 of that block. So no row counts
twice, in whatever way it came in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from encryptedstats.errors import SchemaError
from encryptedstats.tables.blocks import rows_id

# At most 65,536 folds, as in a file of folds: a file may claim any number.
_SOME: Final = re.compile(r"(.+):([0-9]{1,5}(?:,[0-9]{1,5})*)/([0-9]{1,5})")
_Folds = tuple[int, frozenset[int]]  # of how many, and which
_WHOLE: Final[_Folds] = (1, frozenset({0}))
NOT_INSIDE: Final = "only rows that are inside can be forgotten, and these are not"


def without_fold(blocks: Iterable[str], fold: int, n_folds: int) -> tuple[str, ...]:
    """Return all rows of some blocks but those of a fold.

    >>> without_fold(["ab", "cd"], 1, 3)
    ('ab:0,2/3', 'cd:0,2/3')
    """
    return tuple(_format(block, (n_folds, frozenset(range(n_folds)) - {fold})) for block in blocks)


def find_shared_block(a: Iterable[str], b: Iterable[str]) -> str | None:
    """Return a block of the first of which some rows are in both, as far as ids tell, see
    `rows_id`; None if there is none.
    """
    one, other = _read(a), _read(b)
    theirs = {rows_id(block): folds for block, folds in other.items()}
    found = ((block, theirs.get(rows_id(block))) for block in sorted(one))
    return next(
        (block for block, folds in found if folds is not None and _overlaps(one[block], folds)),
        None,
    )


def rows_without(have: Iterable[str], gone: Iterable[str]) -> tuple[str, ...] | None:
    """Take some rows out; return None if they were not all inside.

    >>> rows_without(["ab", "cd"], ["ab:0,2/3"])
    ('ab:1/3', 'cd')
    """
    left = _read(have)
    for block, folds in _read(gone).items():
        if block not in left:
            return None
        found = _split(left[block], folds[0])
        if found[0] != folds[0] and folds == _WHOLE and len(found[1]) == found[0]:
            folds = found  # all folds of a block are the block
        if found[0] != folds[0] or not folds[1] <= found[1]:
            return None
        left[block] = (found[0], found[1] - folds[1])
    return tuple(_format(block, folds) for block, folds in left.items() if folds[1])


def _read(names: Iterable[str]) -> dict[str, _Folds]:
    found: dict[str, _Folds] = {}
    for block, folds in map(_parse, names):
        known = found.get(block, folds)
        found[block] = (folds[0], known[1] | folds[1]) if known[0] == folds[0] else _WHOLE
    return found


def _parse(name: str) -> tuple[str, _Folds]:
    match = _SOME.fullmatch(name)
    if match is None:
        return name, _WHOLE
    return match[1], (int(match[3]), frozenset(map(int, match[2].split(","))))


def _overlaps(a: _Folds, b: _Folds) -> bool:
    """Return whether rows are in both.

    Folds of different numbers cannot be compared, so they count as overlapping.
    """
    return a[0] != b[0] or bool(a[1] & b[1])


def _split(folds: _Folds, n_folds: int) -> _Folds:
    return (n_folds, frozenset(range(n_folds))) if folds == _WHOLE else folds


def _format(block: str, folds: _Folds) -> str:
    n_folds, which = folds
    return block if len(which) == n_folds else f"{block}:{','.join(_sort(which))}/{n_folds}"


def _sort(which: frozenset[int]) -> Iterator[str]:
    return map(str, sorted(which))


def join_rows(a: tuple[str, ...], b: tuple[str, ...], what: str = "the model") -> tuple[str, ...]:
    """Join the rows of both; refuse rows that are in both."""
    twice = find_shared_block(a, b)
    if twice is not None:
        raise SchemaError(
            f"block {twice} is in {what} already: its rows would count twice",
            code="block-already-included",
        )
    return a + b


def subtract_rows(
    have: tuple[str, ...], gone: tuple[str, ...], n_have: int, n_gone: int
) -> tuple[str, ...]:
    """Take some rows out; refuse rows that are not all inside."""
    left = rows_without(have, gone)
    if left is None or n_gone > n_have:
        raise SchemaError(NOT_INSIDE, code="rows-not-inside")
    return left
