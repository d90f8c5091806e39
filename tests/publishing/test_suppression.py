"""Hidden counts against all tables that readers of the shown ones can think of."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import encryptedstats as es
from effort import examples
from encryptedstats.publishing.suppression import Suppressed, known_range, suppress, with_margins

tables = st.sampled_from([(3,), (4,), (2, 2), (2, 3), (3, 3)]).flatmap(
    lambda shape: arrays(np.int64, shape, elements=st.integers(0, 12))
)


def thought_of(found: Suppressed, largest: int) -> list[np.ndarray]:
    """All tables of counts that agree with what is shown, up to a largest count."""
    inner = found.counts.shape
    cells = list(itertools.product(*(range(size - 1) for size in inner)))
    free = [place for place in cells if found.hidden[place]]
    agreeing = []
    for values in itertools.product(range(largest + 1), repeat=len(free)):
        guess = found.counts[tuple(slice(0, -1) for _ in inner)].copy()
        for place, value in zip(free, values, strict=True):
            guess[place] = value
        whole = with_margins(guess)
        if (whole[~found.hidden] == found.counts[~found.hidden]).all():
            agreeing.append(whole)
    return agreeing


@settings(max_examples=examples(20))
@given(tables, st.sampled_from([3, 5]))
def test_no_reader_can_tell_a_small_count_within_the_range(cells: np.ndarray, min_count: int) -> None:
    try:
        found = suppress(cells, min_count)
    except es.DisclosureError:
        return
    small = (found.counts > 0) & (found.counts < min_count)
    assert (found.small == small).all()
    assert found.hidden[small].all()
    assert not found.hidden[(-1,) * cells.ndim]  # all rows are known
    if found.hidden[tuple(slice(0, -1) for _ in cells.shape)].sum() <= 3:
        tables = thought_of(found, int(cells.max()) + min_count)
        assert tables
        for place in zip(*np.nonzero(small), strict=True):
            seen = [int(table[place]) for table in tables]
            assert max(seen) - min(seen) >= min_count - 1


@settings(max_examples=examples(10))
@given(tables)
def test_nothing_is_hidden_where_nothing_is_small(cells: np.ndarray) -> None:
    large = np.where(cells < 5, 0, cells)
    if large.sum():
        assert not suppress(large, 5).hidden.any()


def test_a_hidden_count_alone_in_its_row_is_no_secret() -> None:
    cells = np.array([[20, 2, 30], [20, 20, 20]])
    alone = np.zeros((3, 4), dtype=bool)
    alone[0, 1] = True
    assert known_range(with_margins(cells), alone, {(0, 1): 1.0}) == (2, 2)
    found = suppress(cells, 5)
    least, most = known_range(found.counts, found.hidden, {(0, 1): 1.0})
    assert most - least >= 4
    assert found.hidden.sum() == 4


def test_a_group_of_one_kind_is_hidden_with_what_tells_it() -> None:
    cells = np.array([[40, 0], [20, 20], [30, 25]])
    assert not suppress(cells, 0).hidden.any()
    found = suppress(cells, 0, 0.9)
    assert found.hidden[0, :2].all()  # the nothing beside the forty tells as much as the forty
    assert known_range(found.counts, found.hidden, {(0, 0): 0.1, (0, 1): -0.9})[0] < 0
    assert not suppress(np.array([[40, 10], [20, 20]]), 0, 0.9).hidden.any()


def test_three_axes_are_looked_at_together() -> None:
    cells = np.full((2, 2, 2), 20)
    cells[0, 0, 0] = 1
    found = suppress(cells, 5)
    least, most = known_range(found.counts, found.hidden, {(0, 0, 0): 1.0})
    assert most - least >= 4
    assert found.hidden.sum() >= 8


def test_what_is_too_large_to_be_checked_is_refused() -> None:
    with pytest.raises(es.DisclosureError, match="a table of 1,681 cells with its margins is too large to be checked"):
        suppress(np.ones((40, 40), dtype=np.int64), 5)


def test_too_few_rows_are_refused() -> None:
    with pytest.raises(es.DisclosureError, match="there are 4 rows in all, fewer than 5"):
        suppress(np.array([2, 2]), 5)
