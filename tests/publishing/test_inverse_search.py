"""Invert the suppression: group all tables of a shape by what is published of them.

The attacker knows the algorithm, so a published table tells exactly that the true table is one of
its group. No small count may lie within an interval narrower than ``min_count - 1`` in its group.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd
import pytest

import encryptedstats as es
from encryptedstats.publishing import suppression
from encryptedstats.publishing.opening import AnswerSource
from encryptedstats.publishing.publish import _describe_hidden, show_by_rules
from encryptedstats.publishing.rules import PROFILES, Rules
from encryptedstats.publishing.suppression import Suppressed, suppress, with_margins
from encryptedstats.tables.answers.answer import Answer
from encryptedstats.tables.questions.summaries import CrossTable

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
        among = [
            all(p in (end - 1, q) for (p, end), q in zip(ends, cell, strict=True)) for cell in cells
        ]
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


def find_narrow_by_symmetry(shape: tuple[int, ...], rules: Rules) -> list[Key]:
    """Return the same as :func:`find_narrow` from tables with sorted margins (vectors: sorted
    counts).

    Hiding commutes with permutations that change the order of different margins, so every table is
    a permutation of one that is tried. A group without some of its tables looks narrower than it
    is, never wider: groups that look narrow are completed by `find_agreeing`.
    """
    if len(shape) == 1:
        return find_narrow_vectors(shape[0], rules)
    k, narrow = rules.min_count, []
    for tables in find_sorted_tables(shape, k + 2):
        groups: dict[Key, list[np.ndarray]] = defaultdict(list)
        for cells in tables:
            found = publish(cells, rules, suppress)
            if found is not None:
                groups[found[0]].append(found[1])
        for key, members in groups.items():
            small = ((np.array(members) > 0) & (np.array(members) < k)).any(axis=0)
            if not is_wide(np.array(members), small, k):
                more = find_more(shape, key, members, rules)
                if not is_wide(np.array(more), small, k) and not is_wide_with_more(
                    shape, key, more, small, rules
                ):
                    narrow.append(key)
    return narrow


def find_narrow_vectors(size: int, rules: Rules) -> list[Key]:
    """Return narrow groups of vectors: each hidden count of a group may be at each hidden place."""
    k = rules.min_count
    groups: dict[Key, set[int]] = defaultdict(set)

    def sort_out(values: tuple[int, ...]) -> tuple[Key, set[int]] | None:
        found = publish(np.array(values), rules, suppress)
        if found is None:
            return None
        pairs = list(zip(values, found[0], strict=False))
        shown, hidden = (
            [n for n, public in pairs if (public == -1) is out] for out in (False, True)
        )
        return (*shown, *[-1] * len(hidden), *found[0][size:]), set(hidden)

    for values in itertools.combinations_with_replacement(range(k + 3), size):
        if (found := sort_out(values)) is not None:
            groups[found[0]] |= found[1]
    narrow = []
    for key, hidden in groups.items():
        assert not any(isinstance(n, int) and 0 < n < k for n in key[:size])
        shown = [n for n in key[:size] if isinstance(n, int) and n >= 0]
        if any(0 < n < k for n in hidden) and max(hidden) - min(hidden) < k - 1:
            for rest in find_partitions(int(key[size]) - sum(shown), size - len(shown)):
                again = sort_out(tuple(sorted((*shown, *rest))))
                if again is not None and again[0] == key:
                    hidden |= again[1]
            if max(hidden) - min(hidden) < k - 1:
                narrow.append(key)
    return narrow


def find_partitions(total: int, size: int, least: int = 0) -> Iterator[tuple[int, ...]]:
    """Yield all rising sequences of ``size`` numbers that add up to ``total``."""
    if size == 1:
        yield (total,)
        return
    for first in range(least, total // size + 1):
        for rest in find_partitions(total - first, size - 1, first):
            yield (first, *rest)


def find_sorted_tables(shape: tuple[int, ...], most: int) -> Iterator[np.ndarray]:
    """Yield, for each number of rows, the tables of two axes whose margins do not fall."""
    size = int(np.prod(shape))
    digits = np.arange((most + 1) ** size)[:, None] // (most + 1) ** np.arange(size) % (most + 1)
    tables = digits.astype(np.int8).reshape(-1, *shape)
    for axis in (1, 2):
        tables = tables[(np.diff(tables.sum(axis=3 - axis), axis=1) >= 0).all(axis=1)]
    sums = tables.sum(axis=(1, 2))
    for total in np.unique(sums):
        yield tables[sums == total].astype(np.int64)


def find_more(
    shape: tuple[int, ...], key: Key, tables: list[np.ndarray], rules: Rules
) -> list[np.ndarray]:
    """Return the permutations of the tables of a group that are in the group."""
    inside = tuple(slice(0, size) for size in shape)
    whole = tuple(size + 1 for size in shape)
    found = list(tables)
    orders = list(itertools.product(*(itertools.permutations(range(size)) for size in shape)))
    for counts in tables:
        for order in orders:
            other = publish(counts.reshape(whole)[inside][np.ix_(*order)], rules, suppress)
            if other is not None and other[0] == key:
                found.append(other[1])
    return found


def is_wide_with_more(
    shape: tuple[int, ...], key: Key, tables: list[np.ndarray], small: np.ndarray, rules: Rules
) -> bool:
    """Return whether a group is wide if all its tables are in it, of larger counts as well."""
    low, high = np.min(tables, axis=0), np.max(tables, axis=0)
    for cells in find_agreeing(shape, key):
        counts = with_margins(cells).ravel()
        if ((counts >= low) & (counts <= high))[small].all():
            continue  # it makes nothing wider
        found = publish(cells, rules, suppress)
        if found is not None and found[0] == key:
            low, high = np.minimum(low, counts), np.maximum(high, counts)
            if ((high - low)[small] >= rules.min_count - 1).all():
                return True
    return False


FULL = pytest.mark.slow
CASES = [
    *((shape, Rules(k)) for k in (2, 3) for shape in ((2,), (3,), (4,), (5,), (2, 2))),
    *((shape, PROFILES[name]) for name in PROFILES for shape in ((3,),)),
    *((shape, PROFILES["five"]) for shape in ((4,), (2, 2))),
    ((2, 2), Rules(3, concentration=0.9)),
    ((2, 3), Rules(2)),
    pytest.param((2, 2), PROFILES["ten"], marks=FULL),
    pytest.param((2, 2), PROFILES["pcornet"], marks=FULL),
]
SYMMETRIC = [
    *((shape, PROFILES[name]) for name in PROFILES for shape in ((3,), (4,), (5,))),
    ((2, 2), Rules(3, concentration=0.9)),
    *(pytest.param((2, 3), PROFILES[name], marks=FULL) for name in PROFILES),
]


@pytest.mark.parametrize(("shape", "rules"), CASES)
def test_no_published_table_narrows_a_small_count(shape: tuple[int, ...], rules: Rules) -> None:
    assert find_narrow(shape, rules) == []


@pytest.mark.parametrize(("shape", "rules"), SYMMETRIC)
def test_no_table_with_sorted_margins_narrows_a_small_count(
    shape: tuple[int, ...], rules: Rules
) -> None:
    """All tables of the shape by symmetry: these are up to 7.5 million (2 x 3 cells
    from 0 to 13).
    """
    assert find_narrow_by_symmetry(shape, rules) == []


@pytest.mark.parametrize("name", PROFILES)
def test_hiding_commutes_with_permutations_of_different_margins(name: str) -> None:
    """A seeded sample: the search above relies on it."""
    rules, rng = PROFILES[name], np.random.default_rng(0)
    for shape in ((5,), (2, 3)):
        for _ in range(300):
            cells = rng.integers(0, rules.min_count + 3, shape)
            sums = [
                cells.sum(axis=tuple(k for k in range(len(shape)) if k != axis))
                for axis in range(len(shape))
            ]
            if len(shape) > 1 and any(len(set(one)) < len(one) for one in sums):
                continue
            order = np.ix_(*(rng.permutation(size) for size in shape))
            one, other = publish(cells, rules, suppress), publish(cells[order], rules, suppress)
            if one is None or other is None:
                assert one is other
                continue
            whole, inside = (
                tuple(size + 1 for size in shape),
                tuple(slice(0, size) for size in shape),
            )
            masks = [
                np.array([n == -1 for n in found[0][:-1]]).reshape(whole)[inside]
                for found in (one, other)
            ]
            assert (masks[0][order] == masks[1]).all()


def find_telling_texts(shape: tuple[int, ...], rules: Rules) -> list[str]:
    """Return the texts of published results that narrow a small count down."""
    levels = [pd.Categorical(list("abc")[:size]) for size in shape]
    names = ["x", "z"][: len(shape)]
    frame = pd.DataFrame(list(itertools.product(*levels)), columns=names).astype("category")
    schema = es.Schema.infer(frame)
    question = CrossTable(tuple(range(len(shape))))
    k, groups = rules.min_count, defaultdict[str, list[np.ndarray]](list)
    for values in itertools.product(range(k + 3), repeat=int(np.prod(shape))):
        if sum(values):
            made, _ = show_by_rules(
                AnswerSource(Answer(question, tuple(values), schema, sum(values))),
                list(values),
                rules,
            )
            groups[f"{made}{made._repr_html_()}{made.n_rows}"].append(np.array(values))
    narrow = []
    for text, tables in groups.items():
        small = ((np.array(tables) > 0) & (np.array(tables) < k)).any(axis=0)
        if not is_wide(np.array(tables), small, k):
            whole = with_margins(tables[0].reshape(shape))
            found = publish(tables[0].reshape(shape), rules, suppress)
            if found is None:  # nothing is shown but the number of rows
                assert whole.flat[-1] < k
            elif not is_wide_with_more(
                shape,
                found[0],
                [with_margins(one.reshape(shape)).ravel() for one in tables],
                mark(small, shape),
                rules,
            ):
                narrow.append(text)
    return narrow


def mark(small: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    found = np.zeros([size + 1 for size in shape], dtype=bool)
    found[tuple(slice(0, size) for size in shape)] = small.reshape(shape)
    return found.ravel()


@pytest.mark.parametrize(
    ("shape", "rules"),
    [
        ((3,), Rules(2)),
        pytest.param((3,), PROFILES["five"], marks=FULL),
        pytest.param((2, 2), PROFILES["datashield"], marks=FULL),
        pytest.param((2, 2), Rules(3, concentration=0.9), marks=FULL),
    ],
)
def test_no_text_of_a_published_result_narrows_a_small_count(
    shape: tuple[int, ...], rules: Rules
) -> None:
    """What readers see is text and not a mask: title, table, statistics and remarks."""
    assert find_telling_texts(shape, rules) == []


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
