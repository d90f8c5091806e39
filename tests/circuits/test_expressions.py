"""The expression graph: equal expressions are one object, nothing changes, nothing leaks, and
mistakes are explained.
"""

from __future__ import annotations

import gc
import math
import weakref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from encryptedstats.circuits import Expression, column, linear, sum_of
from encryptedstats.circuits.expressions import (
    COLUMN,
    PRODUCT,
    circuit_digest,
    column_names,
    combination,
    depth_of,
    encrypted_constant,
    fold,
    in_order,
    pack_total,
    padding_value,
    rename_packs,
    totals_of,
)
from error_codes import error

A, B, C = column("a"), column("b"), column("c")

# -----------------------------------------------------------------------------------------------
# one object


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda: column("a"), lambda: column("a")),
        (lambda: A * B, lambda: B * A),
        (lambda: A + B, lambda: B + A),
        (lambda: A - B, lambda: -B + A),
        (lambda: A - B, lambda: linear([(-1, B), (1, A)])),
        (lambda: A + B + 3, lambda: 3 + (B + A)),
        (lambda: linear([(1, A), (2, B), (1, A)]), lambda: linear([(2, B), (2, A)])),
        (lambda: linear([(1, A), (5, B), (-5, B)]), lambda: A),
        (lambda: A + 0, lambda: A),
        (lambda: A + 1 - 1, lambda: A),
        (lambda: A * 1, lambda: A),
        (lambda: 1 - A, lambda: -(A * 1) + 1),
        (lambda: sum([A, B]), lambda: sum_of([A, B])),
        (lambda: sum_of([A]), lambda: A),
        (lambda: 2 * A, lambda: A + A),
        (lambda: -(A * -1), lambda: A),
        (lambda: (2 * A) * 3, lambda: 6 * A),
        (lambda: 2 * A - 3 * B, lambda: linear([(2, A), (-3, B)])),
        (lambda: A * np.int64(3), lambda: np.int64(3) * A),
        (lambda: (A * B).total(), lambda: (B * A).total()),
        (lambda: A.total().replicate(), lambda: column("a").total().replicate()),
        (lambda: A.resample(4), lambda: A.resample(np.uint8(4))),
        (lambda: A**2, lambda: A * A),
        (lambda: A**6, lambda: A**3 * A**3),
    ],
)
def test_equal_expressions_are_the_same_object(one, other):
    assert one() is other()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda: A + B, lambda: A - B),
        (lambda: A + B, lambda: A * B),
        (lambda: A + 1, lambda: A + 2),
        (lambda: linear([(1, A), (2, B)]), lambda: linear([(2, A), (1, B)])),
        (lambda: A * A, lambda: A),
        (lambda: A * A, lambda: A + A),
        (lambda: A.total(), lambda: A.total().replicate()),
        (lambda: A.resample(1), lambda: A.resample(2)),
        (lambda: A.total() * B.total(), lambda: (A * B).total()),
    ],
)
def test_different_expressions_are_different(one, other):
    left, right = one(), other()
    assert left is not right


def test_what_was_written_first_is_how_it_reads():
    first = column("p") * column("q")
    assert repr(column("q") * column("p")) == repr(first) == "p * q"
    total = column("q") + column("p")
    assert repr(column("p") + column("q")) == repr(total) == "q + p"


@given(
    st.lists(st.tuples(st.integers(-5, 5), st.sampled_from([A, B, C])), min_size=1, max_size=6),
    st.randoms(),
)
def test_sums_do_not_depend_on_their_order(terms, rng):
    try:
        first = linear(terms, 7)
    except ValueError:
        return
    rng.shuffle(terms)
    assert linear(terms, 7) is first


# ----------------------------------------------------------------------------------------------
# immutable


def test_expressions_are_never_changed():
    for name in ("op", "args", "data", "is_total", "anything"):
        with pytest.raises(AttributeError, match="expressions are never changed"):
            setattr(A, name, 1)
    assert A.op == COLUMN
    assert isinstance((A + B).args, tuple)


# ----------------------------------------------------------------------------------------------
# repr


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: A, "a"),
        (lambda: A * B, "a * b"),
        (lambda: A - B, "a - b"),
        (lambda: -A, "-a"),
        (lambda: 1 - A, "-a + 1"),
        (lambda: 2 * A - 3 * B - 4, "2*a - 3*b - 4"),
        (lambda: C - (A + B), "c - (a + b)"),
        (lambda: 2 * (A + B), "2*(a + b)"),
        (lambda: -(A + B), "-(a + b)"),
        (lambda: (A + B) * C, "(a + b) * c"),
        (lambda: (A * B).total() - 1, "(a * b).total() - 1"),
        (lambda: 3 * A.total(), "3*a.total()"),
        (lambda: A.total().replicate() * B, "a.total().replicate() * b"),
        (lambda: (A + B).resample(0), "(a + b).resample(0)"),
        (lambda: A.resample(-5), "a.resample(-5)"),
    ],
)
def test_repr(make, text):
    written = make()  # nodes made elsewhere in another order would be shown in that order
    assert repr(written) == text


def test_repr_of_the_large_and_the_deep_is_short():
    wide = sum_of([column(f"x{i}") for i in range(1000)])
    assert repr(wide) == "x0 + x1 + x2 + x3 + x4 + ... (995 more terms)"
    for _ in range(50):
        wide = sum_of([wide * column(f"x{i}") for i in range(100)])
    assert len(repr(wide)) < 3000
    assert "..." in repr(wide)


# ----------------------------------------------------------------------------------------------
# mistakes


@pytest.mark.parametrize(
    ("act", "expected", "message"),
    [
        (
            lambda: A.total() * B,
            TypeError,
            "total-with-column",
        ),
        (
            lambda: A * B.total(),
            TypeError,
            "total-with-column",
        ),
        (
            lambda: A.total() + B,
            TypeError,
            "total-with-column",
        ),
        (lambda: linear([(1, A), (1, B.total())]), TypeError, "total-with-column"),
        (lambda: A * 1.5, TypeError, "not-an-integer"),
        (lambda: 2.0 + A, TypeError, "not-an-integer"),
        (lambda: A - np.float64(1), TypeError, "not-an-integer"),
        (lambda: A * True, TypeError, "not-an-integer"),
        (lambda: A + "b", TypeError, "not-an-integer"),
        (
            lambda: A + np.array([1, 2]),
            TypeError,
            "not-an-integer",
        ),
        (lambda: A + None, TypeError, "not-an-integer"),
        (lambda: A.resample(0.5), TypeError, "not-an-integer"),
        (lambda: linear([(1, A)], constant=0.5), TypeError, "not-an-integer"),
        (
            lambda: linear([(1, 3)]),
            TypeError,
            "not-an-expression",
        ),
        (
            lambda: A - A,
            ValueError,
            "terms-cancel",
        ),
        (lambda: A * 0, ValueError, "terms-cancel"),
        (lambda: linear([(2, A), (1, B), (-2, A), (-1, B)], 3), ValueError, "terms-cancel"),
        (lambda: sum_of([]), ValueError, "terms-cancel"),
        (lambda: A.total().total(), TypeError, "already-total"),
        (lambda: A.replicate(), TypeError, "not-a-total"),
        (lambda: A.total().resample(1), TypeError, "total-without-rows"),
        (lambda: A**0, ValueError, "power-out-of-range"),
        (lambda: A**65, ValueError, "power-out-of-range"),
        (lambda: A**-1, ValueError, "power-out-of-range"),
        (lambda: A**0.5, TypeError, "not-an-integer"),
        (lambda: column(""), TypeError, "name-not-text"),
        (lambda: column(3), TypeError, "name-not-text"),
    ],
)
def test_mistakes_are_explained(act, expected, message):
    with pytest.raises(expected, check=error(message)):
        act()


# ----------------------------------------------------------------------------------------------
# walking


def test_in_order_gives_every_node_once_after_its_args():
    outputs = [((A + B) * C).total(), ((A + B) * (A + B)).total(), A.total().replicate() * B]
    order = list(in_order(outputs))
    assert len(order) == len(set(order))
    at = {node: i for i, node in enumerate(order)}
    for node in order:
        assert all(at[arg] < at[node] for arg in node.args)
    assert set(outputs) <= set(order)
    assert list(in_order([])) == []
    assert sorted(column_names(outputs)) == ["a", "b", "c"]


def test_depth():
    assert depth_of([]) == depth_of([A]) == depth_of([A + B - 3]) == 0
    assert depth_of([A * B, A]) == 1
    assert depth_of([A * B * C]) == 2
    assert depth_of([(A * B) * (B * C)]) == 2
    assert depth_of([((A * B).total() * C.total()).replicate() * A]) == 3
    assert depth_of([sum_of([A * B, C]).resample(2).total()]) == 1


@pytest.mark.parametrize("exponent", range(1, 65))
def test_powers_are_balanced(exponent):
    power = A**exponent
    assert depth_of([power]) == math.ceil(math.log2(exponent))
    value = fold([power], lambda node, args: 3 if node is A else args[0] * args[1])[power]
    assert value == 3**exponent
    products = sum(node.op == PRODUCT for node in in_order([power]))
    assert products <= 2 * math.log2(exponent)


def test_padding_values():
    outputs = [
        A,
        A + 3,
        (A + 3) * (B - 2),
        (A + 3) * B,
        A.resample(1),
        (A + 1).resample(1),
        A.total().replicate(),
    ]
    outputs += [
        A.total().replicate() * B,
        A.total().replicate() * (B + 1),
        (A + 1).resample(1) * B,
        A.resample(1) + 2,
    ]
    found = padding_value(outputs)
    assert [found[o] for o in outputs] == [0, 3, -6, 0, 0, None, None, 0, None, 0, 2]


# ----------------------------------------------------------------------------------------------
# deep and freed


@pytest.mark.parametrize(
    "step",
    [
        lambda x, i: x + column(f"x{i % 7}"),
        lambda x, i: x * column(f"x{i % 7}"),
        lambda x, i: (x + i).resample(i),
    ],
)
def test_ten_thousand_steps_in_a_row_and_nothing_stays(step):
    gc.collect()
    before = len(Expression._known)
    node = column("start")
    for i in range(1, 10_001):
        node = step(node, i)
    assert sum(1 for _ in in_order([node])) >= 10_001
    assert depth_of([node]) in (0, 10_000)
    padding_value([node])
    assert len(repr(node)) < 200
    last = weakref.ref(node)
    del node
    gc.collect()
    assert last() is None
    assert len(Expression._known) <= before


def test_what_nobody_holds_is_freed_at_once():
    gc.disable()
    try:
        before = len(Expression._known)
        product = column("only here") * column("and here")
        total = (product + 1).total()
        assert len(Expression._known) == before + 5
        kept = weakref.ref(product)
        del product
        assert kept() is not None
        del total
        assert kept() is None
        assert len(Expression._known) == before
    finally:
        gc.enable()


@settings(max_examples=30)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=30))
def test_a_freed_node_is_never_mistaken_for_a_new_one(plan):
    """Nodes are found by the addresses of their args: an address that is used again must not find
    the old node.
    """
    kept = []
    for i, choice in enumerate(plan):
        node = (column(f"t{i}") + choice) * column(f"u{i}")
        assert column_names([node]) == [f"t{i}", f"u{i}"]
        if choice == 3:
            kept.append(node)
    assert len(set(map(id, kept))) == len(kept)


def test_sums_that_differ_by_a_number_are_that_number_apart() -> None:
    """Regression: their difference was a node of its own, and SEAL refused its ciphertext, which
    would hide nothing.
    """
    a, b = column("a"), column("b")
    one, two = linear([(-1, a), (3, b)], 2), linear([(-1, a), (3, b)], 9)
    assert combination([(1, one), (-1, two)]) == -7
    assert combination([(2, one), (-2, two)], 1) == -13
    deeper = linear([(1, linear([(1, a)], 4)), (2, b)], 1)
    assert combination([(1, deeper), (-1, linear([(1, a), (2, b)], 3))]) == 2
    assert isinstance(combination([(1, one), (-1, deeper)]), Expression)
    assert isinstance(combination([(1, one), (1, two)]), Expression)
    with pytest.raises(ValueError, check=error("terms-cancel")):
        one - two


# ------------------------------------------------------------------------------------- totals a
# numbers from elsewhere


def test_given_totals_and_numbers_from_here_are_nodes_of_their_own():
    assert pack_total("model", 3) is pack_total("model", np.int64(3))
    assert pack_total("model", 3) is not pack_total("model", 4)
    assert pack_total("model", 3) is not pack_total("other", 3)
    assert pack_total("model", 3) is not column("model[3]")
    assert encrypted_constant(7, "one") is encrypted_constant(7, "one")
    assert encrypted_constant(7, "one") is not encrypted_constant(7, "two")
    assert not pack_total("model", 3).is_total
    assert "7" not in repr(encrypted_constant(7, "one"))  # a plain model's number is its own
    for wrong in (1.5, True, "2"):
        with pytest.raises(TypeError, check=error("not-an-integer")):
            pack_total("model", wrong)


def test_what_a_circuit_is_given():
    model = [pack_total("model", k) for k in range(3)]
    outputs = [model[2] * A + model[0], encrypted_constant(5, "answer") + pack_total("other", 1)]
    assert set(totals_of(outputs)) == {("model", 2), ("model", 0), ("other", 1)}
    assert column_names(outputs) == ["a"]
    renamed = rename_packs(outputs, "7")
    assert set(totals_of(renamed)) == {("model7", 2), ("model7", 0), ("other7", 1)}
    assert renamed[0] is pack_total("model7", 2) * A + pack_total("model7", 0)
    assert circuit_digest(renamed) != circuit_digest(outputs) == circuit_digest(list(outputs))


def test_padding_of_what_comes_from_elsewhere():
    """A number that is encrypted here is for rows; a given total fills all slots with what nobody
    knows.
    """
    seven, nine = pack_total("model", 0), encrypted_constant(9, "answer")
    found = padding_value([seven * A, seven + nine, nine * nine + 2])
    assert (found[seven], found[nine], found[seven * A], found[seven + nine]) == (None, 0, 0, None)
    assert found[nine * nine + 2] == 2
