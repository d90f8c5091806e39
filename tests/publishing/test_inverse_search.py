"""Invert the suppression: group all tables of a shape by what is published of them.

The attacker knows the algorithm, so a published table tells exactly that the true table is one of
its group. No small count may lie within an interval narrower than ``min_count - 1`` in its group.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import encryptedstats as es
from encryptedstats.publishing import suppression
from encryptedstats.publishing.publish import _describe_hidden
from encryptedstats.publishing.rules import PROFILES, Rules
from encryptedstats.publishing.suppression import Suppressed, suppress, with_margins

Key = tuple[int | str, ...]
Suppress = Callable[[np.ndarray, int, float | None], Suppressed]


def publish(cells: np.ndarray, rules: Rules, hide: Suppress) -> tuple[Key, np.ndarray] | None:
    """Return everything that is published of a table, its text included, and its true counts."""
    try:
        found = hide(cells, rules.min_count, rules.concentration)
    except es.DisclosureError:
        return None
    said = str(_describe_hidden(rules)) if found.hidden.any() else ""
    return (*np.where(found.hidden, -1, found.counts).flat, said), found.counts.ravel()


def find_agreeing(shape: tuple[int, ...], key: Key) -> Iterator[np.ndarray]:
    """Yield all tables of any counts that agree with the shown counts."""
    whole = tuple(size + 1 for size in shape)
    cells = list(itertools.product(*map(range, shape)))
    sums = []
    for place, value in zip(itertools.product(*map(range, whole)), key, strict=False):
        if isinstance(value, str) or value < 0:
            continue
        ends = list(zip(place, whole, strict=True))
        among = [all(p in (end - 1, q) for (p, end), q in zip(ends, cell, strict=True)) for cell in cells]
        sums.append(([k for k, inside in enumerate(among) if inside], int(value)))

    def extend(values: list[int], left: list[int]) -> Iterator[list[int]]:
        number = len(values)
        if number == len(cells):
            yield values
            return
        in_sums = [k for k, (among, _) in enumerate(sums) if number in among]
        most = min(left[k] for k in in_sums)
        ends = {left[k] for k in in_sums if sums[k][0][-1] == number}
        for value in ends or range(most + 1):
            if len(ends) < 2 and value <= most:
                rest = [one - value * (k in in_sums) for k, one in enumerate(left)]
                yield from extend([*values, value], rest)

    for values in extend([], [value for _, value in sums]):
        yield np.array(values).reshape(shape)


def find_narrow(shape: tuple[int, ...], rules: Rules, hide: Suppress = suppress) -> list[Key]:
    """Return what is published where a small count is known too well."""
    k = rules.min_count
    groups: dict[Key, list[np.ndarray]] = defaultdict(list)
    for values in itertools.product(range(k + 3), repeat=int(np.prod(shape))):
        found = publish(np.array(values).reshape(shape), rules, hide)
        if found is not None:
            groups[found[0]].append(found[1])
    narrow = []
    for key, tables in groups.items():
        small = ((np.array(tables) > 0) & (np.array(tables) < k)).any(axis=0)
        if not is_wide(np.array(tables), small, k):  # perhaps only for want of larger counts
            every = (publish(cells, rules, hide) for cells in find_agreeing(shape, key))
            full = np.array([found[1] for found in every if found is not None and found[0] == key])
            if not is_wide(full, small, k):
                narrow.append(key)
    return narrow


def is_wide(tables: np.ndarray, small: np.ndarray, min_count: int) -> bool:
    return bool((np.ptp(tables, axis=0)[small] >= min_count - 1).all())


FULL = pytest.mark.slow
CASES = [
    *((shape, Rules(k)) for k in (2, 3) for shape in ((2,), (3,), (4,), (5,), (2, 2))),
    *((shape, PROFILES[name]) for name in PROFILES for shape in ((3,),)),
    *((shape, PROFILES["five"]) for shape in ((4,), (2, 2))),
    ((2, 2), Rules(3, concentration=0.9)),
    ((2, 3), Rules(2)),
    pytest.param((2, 3), PROFILES["datashield"], marks=FULL),
    pytest.param((2, 2), PROFILES["ten"], marks=FULL),
    pytest.param((2, 2), PROFILES["pcornet"], marks=FULL),
    pytest.param((4,), PROFILES["ten"], marks=FULL),
    pytest.param((4,), PROFILES["pcornet"], marks=FULL),
    pytest.param((5,), PROFILES["five"], marks=FULL),
]


@pytest.mark.parametrize(("shape", "rules"), CASES)
def test_no_published_table_narrows_a_small_count(shape: tuple[int, ...], rules: Rules) -> None:
    assert find_narrow(shape, rules) == []


def test_a_vector_without_its_sum_tells_less(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_sum(cells: np.ndarray, min_count: int, share: float | None) -> Suppressed:
        found = suppress(cells, min_count, share)
        return Suppressed(np.append(found.counts[:-1], 0), found.hidden, found.small)

    for size in (3, 4):
        groups: dict[Key, list[np.ndarray]] = defaultdict(list)
        for values in itertools.product(range(6), repeat=size):
            found = publish(np.array(values), Rules(3), without_sum)
            if found is not None:
                groups[found[0]].append(found[1])
        for tables in groups.values():
            small = ((np.array(tables) > 0) & (np.array(tables) < 3)).any(axis=0)
            assert is_wide(np.array(tables), small, 3)


def hide_small_only(cells: np.ndarray, min_count: int, share: float | None) -> Suppressed:
    counts = with_margins(cells)
    small = (counts > 0) & (counts < min_count)
    if small[(-1,) * cells.ndim]:
        raise es.DisclosureError("too few rows")
    return Suppressed(counts, small, small)


@pytest.mark.parametrize("shape", [(3,), (2, 2)])
def test_the_search_finds_what_primary_suppression_gives_away(shape: tuple[int, ...]) -> None:
    assert find_narrow(shape, Rules(3), hide_small_only)


def test_the_search_finds_a_larger_count_chosen_by_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Hiding the next count to the right tells which of the two is small."""

    def hide_next(cells: np.ndarray, min_count: int) -> np.ndarray:
        small = (cells > 0) & (cells < min_count)
        return small | np.roll(small, 1)

    monkeypatch.setattr(suppression, "hide_in_vector", hide_next)
    assert find_narrow((3,), Rules(3))


@pytest.mark.parametrize("cells", [[1, 1, 200], [1] * 9 + [1], [4, 7, 7], [1, 2, 3]])
@pytest.mark.parametrize("name", PROFILES)
def test_remarks_depend_on_the_profile_only(cells: list[int], name: str) -> None:
    rules = PROFILES[name]
    found = publish(np.array(cells), rules, suppress)
    if found is not None and found[0][-1]:
        said = str(found[0][-1])
        allowed = {"1", str(rules.min_count - 1)}
        assert set(filter(str.isdigit, said.replace(":", " ").split())) <= allowed
