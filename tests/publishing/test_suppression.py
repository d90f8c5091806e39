"""Suppressed tables: what is hidden, what stays, and what a reader can compute from the rest."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import encryptedstats as es
from effort import examples
from encryptedstats.publishing.suppression import (
    Suppressed,
    find_extremes,
    find_least_hidden,
    suppress,
    with_margins,
)
from error_codes import error

tables = st.sampled_from([(3,), (6,), (2, 2), (2, 3), (4, 3), (5, 5), (2, 2, 2)]).flatmap(
    lambda shape: arrays(np.int64, shape, elements=st.integers(0, 40))
)


def find_range(found: Suppressed, place: tuple[int, ...]) -> tuple[float, float]:
    """Return the interval of a count for a reader who adds and knows that counts are whole."""
    shape = tuple(size - 1 for size in found.counts.shape)
    basis = np.eye(int(np.prod(shape)), dtype=np.int64).reshape(-1, *shape)
    lines = np.stack([with_margins(one) for one in basis], axis=-1).astype(float)
    shown = ~found.hidden
    least = find_least_hidden(found.hidden)
    known = find_extremes(
        lines[place],
        lines[shown],
        found.counts[shown].astype(float),
        lines[least > 0],
        least[least > 0].astype(float),
    )
    assert known is not None
    return known


@settings(max_examples=examples(15))
@given(tables, st.sampled_from([3, 5]))
def test_no_reader_can_compute_a_small_count(cells: np.ndarray, min_count: int) -> None:
    try:
        found = suppress(cells, min_count)
    except es.DisclosureError:
        return
    small = (found.counts > 0) & (found.counts < min_count)
    assert (found.small == small).all()
    assert found.hidden[small].all()
    assert not found.hidden[(-1,) * cells.ndim]  # all rows are known
    assert (found.counts[found.hidden] >= find_least_hidden(found.hidden)[found.hidden]).all()
    for place in list(zip(*np.nonzero(small), strict=True))[:3]:
        least, most = find_range(found, place)
        assert most - least >= min_count - 1


@settings(max_examples=examples(10))
@given(tables)
def test_nothing_is_hidden_where_nothing_is_small(cells: np.ndarray) -> None:
    large = np.where(cells < 6, 0, cells)
    if large.sum() and large.ndim == 1:
        assert not suppress(large, 5).hidden.any()
    assert not suppress(cells + 6, 5).hidden.any()


def test_a_small_count_hides_four_cells_of_a_large_table() -> None:
    cells = np.full((4, 5), 100) + np.arange(20).reshape(4, 5)
    cells[1, 2] = 2
    found = suppress(cells, 5)
    assert found.hidden[1, 2]
    assert found.hidden.sum() == 4
    assert not found.hidden[-1].any()
    assert not found.hidden[:, -1].any()


def test_the_sum_of_hidden_counts_of_a_vector_is_far_enough_above_them() -> None:
    found = suppress(np.array([1, 1, 200]), 5)
    assert found.hidden.tolist() == [True, True, True, False]
    found = suppress(np.array([1, 0, 6, 3, 90]), 5)
    assert found.hidden.tolist() == [True, False, True, True, False, False]
    assert suppress(np.array([2, 30, 30]), 5).hidden.tolist() == [True] * 3 + [False]
    found = suppress(np.array([2, 30, 30, 50]), 5)  # one count instead of two
    assert found.hidden.tolist() == [True, False, False, True, False]


def test_hidden_counts_of_a_vector_are_not_zero() -> None:
    found = suppress(np.array([1, 0, 6, 3, 90]), 5)
    assert find_least_hidden(found.hidden).tolist() == [1, 0, 1, 1, 0, 0]
    assert not find_least_hidden(suppress(np.array([2, 0, 3]), 5).hidden).any()


def test_a_group_of_one_kind_is_hidden_with_what_tells_it() -> None:
    cells = np.array([[40, 0], [20, 20], [30, 25]])
    assert not suppress(cells, 0).hidden.any()
    found = suppress(cells, 0, 0.9)
    assert found.hidden[0, :2].all()  # the zero beside the forty tells as much as the forty
    assert not found.hidden[:, -1].any()
    least, _ = find_range(found, (0, 0))
    assert least <= 36
    assert not suppress(np.array([[40, 10], [20, 20]]), 0, 0.9).hidden.any()


def test_margins_that_tell_a_group_of_one_kind_are_hidden() -> None:
    """Nearly all rows are of one column, so the large row is: its margins say so."""
    found = suppress(np.array([[5000, 12], [20, 15]]), 10, 0.99)
    assert found.hidden.sum() == found.hidden.size - 1


def test_three_axes_are_looked_at_together() -> None:
    cells = np.full((2, 2, 2), 20)
    cells[0, 0, 0] = 1
    found = suppress(cells, 5)
    least, most = find_range(found, (0, 0, 0))
    assert most - least >= 4
    assert not suppress(np.full((2, 2, 2), 20), 5).hidden.any()


def test_what_is_too_large_to_be_checked_is_refused() -> None:
    with pytest.raises(es.DisclosureError, check=error("table-too-large")):
        suppress(np.ones((150, 150), dtype=np.int64), 5)


def test_too_few_rows_are_refused_without_their_number() -> None:
    with pytest.raises(es.DisclosureError, check=error("rows-below-minimum", "5")) as raised:
        suppress(np.array([2, 2]), 5)
    assert "4" not in str(raised.value)


def test_what_cannot_be_solved_is_no_interval() -> None:
    one = np.ones((1, 1))
    assert find_extremes(one[0], one, np.array([2.0]), one, np.array([3.0])) is None
    assert find_extremes(one[0], one, np.array([2.0]), one, np.array([1.0])) == (2, 2)
