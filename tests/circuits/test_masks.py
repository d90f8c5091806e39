"""Some slots of a chunk, and slots that come from elsewhere: what drawing rows under encryption is
made of.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from circuit_samples import SLOTS, Lab, check_slots, computed, insecure, lowered
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import encryptedstats as es
from effort import examples
from encryptedstats.circuits import Layout, column
from encryptedstats.circuits.bounds import ColumnRange, read_bounds
from encryptedstats.circuits.clear import read_clear
from encryptedstats.circuits.cost import read_cost
from encryptedstats.circuits.expressions import Marks, linear, padding_value
from encryptedstats.circuits.lowering import (
    FLAT,
    LEVELLED,
    Setting,
    Strategy,
    move_steps,
    rotations_needed,
)
from encryptedstats.circuits.program import MASK
from encryptedstats.circuits.proof import read_noise
from encryptedstats.circuits.shapes import Shapes
from error_codes import error

few = settings(max_examples=examples(8), deadline=None, suppress_health_check=list(HealthCheck))
STEPS = (0, 1, 4, 16, 64, 256)
n, w, y = column("n"), column("w"), column("y0")


@pytest.fixture(scope="module", params=["bgv", "bfv"])
def mover(request: pytest.FixtureRequest) -> Lab:
    """Keys for every move."""
    return Lab(es.Owner(insecure(request.param, 1 << 22, (56,) * 7)), STEPS)


# -- marks
# ------------------------------------------------------------------------------------------------


def test_equal_marks_are_one_node() -> None:
    assert Marks(1, [3, 2, 2]) == Marks(1, np.array([2, 3])) != Marks(0, [2, 3])
    assert hash(Marks(1, [3, 2])) == hash(Marks(1, [2, 3]))
    assert n.mask(Marks(1, [3, 2])) is n.mask(Marks(1, [2, 3]))
    assert n.mask(Marks(1, [3])) is not n.mask(Marks(1, [2]))
    assert repr(n.mask(Marks(1, [3, 2]))) == "n.mask(2 slots of chunk 1)"
    assert Marks(0, [1]) != "marks"


@pytest.mark.parametrize(("chunk", "slots"), [(0, []), (-1, [0]), (0, [-1, 3])])
def test_marks_that_cannot_be(chunk: int, slots: list[int]) -> None:
    with pytest.raises(ValueError, check=error("malformed-marks")):
        Marks(chunk, slots)


def test_totals_have_no_rows_to_mark_or_move() -> None:
    with pytest.raises(TypeError, check=error("total-without-rows")):
        n.total().mask(Marks(0, [0]))
    with pytest.raises(TypeError, check=error("total-without-rows")):
        n.total().move(0, 1, False)
    assert n.move(0, 0, False) is n


# -- what they mean
# ------------------------------------------------------------------------------------------------


def test_by_hand() -> None:
    layout, values = Layout(6, 4), {"n": np.array([1, 2, 3, 4, 5, 6])}
    marked = n.mask(Marks(1, [0])) + 10 * n.mask(Marks(0, [1, 3]))
    assert read_clear([marked], values, layout)[0].tolist() == [0, 20, 0, 40, 5, 0]
    assert read_clear([marked.total()], values, layout) == [65]
    # One slot to the left within the half rows, then those in the other half; the chunk after this
    # one comes here.
    assert read_clear([n.move(0, 1, False)], values, layout)[0].tolist() == [2, 1, 4, 3, 6, 5]
    assert read_clear([n.move(0, 0, True)], values, layout)[0].tolist() == [3, 4, 1, 2, 0, 0]
    assert read_clear([n.move(1, 0, False)], values, layout)[0].tolist() == [5, 6, 0, 0, 1, 2]


def test_padding_and_bounds() -> None:
    marked = (n + 3).mask(Marks(0, [0]))
    assert padding_value([marked])[marked] == 0
    assert padding_value([1 - marked])[1 - marked] == 1
    bounds = read_bounds(
        [marked, marked.total(), n.mask(Marks(0, [1]))], {"n": ColumnRange(2, 5)}, 10
    )
    assert (bounds[marked].low, bounds[marked].high) == (0, 8)
    assert bounds[n.mask(Marks(0, [1]))].low == 0


@given(st.integers(0, SLOTS // 2 - 1), st.booleans())
def test_moves_are_made_of_powers_of_four(rotation: int, swap: bool) -> None:
    layout = Layout(SLOTS, SLOTS)
    node = n.move(1, rotation, swap)
    if node is n:
        return
    steps = move_steps(node, layout) if (rotation or swap) else []
    assert sum(steps) == rotation
    assert steps.count(0) == swap
    assert set(steps) <= set(STEPS)
    assert set(rotations_needed([node.total()], layout)) == set(steps)


@few
@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=3),
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 39), st.integers(0, 511), st.booleans()),
        min_size=1,
        max_size=3,
    ),
)
def test_encrypted_as_in_the_clear(mover: Lab, counts: list[int], moves: list[Any]) -> None:
    """Rows are picked by masks and brought to the first slots of the largest chunk: nothing else is
    in the total.
    """
    source = mover.source(counts)
    home = int(np.argmax(counts))
    terms = []
    for chunk, slot, rotation, swap in moves:
        chunk, slot = chunk % len(counts), slot % counts[chunk % len(counts)]
        picked = (w * y + n).mask(Marks(chunk, [slot, 0]))
        terms.append((1, picked.move(chunk - home, rotation, swap)))
    landed = linear(terms)
    outputs = [
        landed.mask(Marks(home, range(counts[home]))).total(),
        landed.mask(Marks(home, [0])).total(),
    ]
    assert source.encrypted(outputs, form="slots", workers=1) == source.clear(outputs)
    assert source.encrypted(outputs, workers=1) == source.clear(outputs)


def test_noise_is_never_more_than_proven(mover: Lab) -> None:
    source = mover.source((30, 20))
    outputs = [
        (n.mask(Marks(0, [1, 5, 7])) * w.mask(Marks(0, [5])))
        .move(0, 37, True)
        .mask(Marks(0, [9]))
        .total()
    ]
    strategy = read_noise(outputs, Setting(mover.parameters, source.layout, form="slots")).strategy
    program = lowered(outputs, source, strategy)
    (ciphertext,), device = computed(program, source)
    check_slots(mover, ciphertext, program.outputs[0], source.clear(outputs)[0])
    assert sum(step.op == MASK for step, _ in device.taken) >= 3
    assert len(device.slacks) >= 5


def test_nothing_is_computed_where_nothing_is_marked(mover: Lab) -> None:
    source = mover.source((30, 20, 10))
    source.encrypted(
        [n.mask(Marks(1, [3])).total() + w.mask(Marks(1, [2])).total()], form="slots", workers=1
    )
    assert source.loads == 2  # of two columns, one chunk


@pytest.mark.parametrize("marks", [Marks(0, [29, 30]), Marks(2, [0])], ids=repr)
def test_padding_is_never_marked(mover: Lab, marks: Marks) -> None:
    source = mover.source((30, 20))
    for evaluated in (source.clear, source.encrypted):
        with pytest.raises(ValueError, check=error("marks-off-rows", "30", "20")):
            evaluated(
                [
                    n.mask(marks).total()
                    + n.mask(Marks(1, [0])).total()
                    + w.mask(Marks(0, [0])).total()
                ]
            )


def test_masks_are_counted(mover: Lab) -> None:
    source = mover.source((30, 20))
    plain, masked = (
        read_cost(lowered([rows.total()], source, FLAT)) for rows in (n, n.mask(Marks(1, [0, 3])))
    )
    assert (plain.number("mask"), masked.number("mask")) == (0, 1)
    assert (plain.number("load"), masked.number("load")) == (
        2,
        1,
    )  # only the chunk with marks is read


# -- in several chunks of one sum
# ------------------------------------------------------------------------------------------


FIRST, SECOND, LAST = Marks(0, [0, 7, 29]), Marks(1, [1, 2]), Marks(2, [3])
SPREAD = {
    "sum": linear([(1, n.mask(FIRST)), (-2, w.mask(SECOND))]),
    "sum in all": linear([(3, n.mask(FIRST)), (1, w.mask(SECOND)), (-1, (n * w).mask(LAST))]),
    "negative first": linear([(-1, n.mask(FIRST)), (-1, w.mask(SECOND))]),
    "constant": (n + 4).mask(SECOND) + (w - 4).mask(FIRST),
    "beside a column": n.mask(FIRST) + w,
    "product": n.mask(FIRST) * w,
    "product of masked": n.mask(FIRST) * w.mask(Marks(0, [7, 8])),
    "product of sums": (n.mask(FIRST) + w.mask(SECOND)) * (y.mask(FIRST) + n.mask(LAST)),
    "sum of unlike sizes": linear([(1, n.mask(FIRST) * w), (1, w.mask(SECOND))]) * y,
    "of a sum": (n.mask(FIRST) + w.mask(SECOND)).mask(Marks(1, [2, 3])),
    "square": (n.mask(FIRST) + w.mask(SECOND)) ** 2,
    "moved": (n.mask(FIRST) + w.mask(SECOND)).move(1, 4, False) * y,
    "moved and unmoved": (n.mask(FIRST) + w.mask(SECOND)).move(2, 0, True) + n.mask(LAST),
}


@pytest.mark.parametrize("strategy", [FLAT, LEVELLED], ids=["flat", "levelled"])
@pytest.mark.parametrize("name", SPREAD)
def test_masks_in_several_chunks(mover: Lab, name: str, strategy: Strategy) -> None:
    """A sum has some terms in one chunk and others in another: nothing is computed where all of
    them are 0.
    """
    source = mover.source((30, 20, 10))
    outputs = [SPREAD[name].total(), (SPREAD[name] + n).total()]
    expected = source.clear(outputs)
    for form in ("slots", "packed"):
        assert source.encrypted(outputs, form=form, workers=1) == expected
    program = lowered(outputs, source, strategy)
    ciphertexts, _ = computed(program, source)  # every one on the way is looked at
    for ciphertext, output, value in zip(ciphertexts, program.outputs, expected, strict=True):
        check_slots(mover, ciphertext, output, value)


def test_where_masks_are_is_known_of_every_step(mover: Lab) -> None:
    source = mover.source((30, 20, 10))

    def chunks(rows: Any) -> Any:
        return lowered([rows.total()], source, FLAT).sums[0].args[0].chunks

    assert chunks(SPREAD["sum"]) == {0, 1}
    assert chunks(SPREAD["product of sums"]) == {0}
    assert chunks(SPREAD["of a sum"]) == {1}
    assert chunks(SPREAD["moved"]) == {2, 0}
    assert chunks(SPREAD["constant"]) == {0, 1}
    assert chunks(SPREAD["beside a column"]) is None


def test_marks_that_never_meet_are_refused(mover: Lab) -> None:
    """Their product is 0 whatever the table: its ciphertext would hide nothing."""
    source = mover.source((30, 20))
    for rows in (n.mask(FIRST) * w.mask(SECOND), n.mask(FIRST).mask(SECOND)):
        for form in ("slots", "packed"):
            with pytest.raises(ValueError, check=error("disjoint-marks", "0")):
                source.encrypted([rows.total(), n.total()], form=form, workers=1)


def test_nothing_is_added_to_where_nothing_is_encrypted(mover: Lab) -> None:
    source = mover.source((30, 20))
    with pytest.raises(ValueError, check=error("added-outside-marks", "4")):
        source.encrypted([(n.mask(FIRST) + 4).total()])
    outputs = [n.mask(FIRST).total() + 4]
    assert source.encrypted(outputs, workers=1) == source.clear(outputs)
    assert source.loads == 1


def test_what_stands_for_others_has_marks_in_as_many_chunks(mover: Lab) -> None:
    """Regression: sums over one chunk stood for sums over two, which have twice the noise."""
    layout = Layout(2048, 1024)
    near = (n.mask(FIRST) + w.mask(Marks(0, [9]))).total()
    far = (n.mask(FIRST) + w.mask(SECOND)).total()
    alone = [
        read_noise([output], Setting(mover.parameters, layout, form="slots")).budget
        for output in (near, far)
    ]
    assert alone[1] < alone[0]
    for outputs in ([near, far], [far, near]):
        assert (
            read_noise(outputs, Setting(mover.parameters, layout, form="slots")).budget == alone[1]
        )
        assert (
            read_noise(
                Shapes(outputs).circuits(), Setting(mover.parameters, layout, form="slots")
            ).budget
            == alone[1]
        )
