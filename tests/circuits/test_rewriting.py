"""Circuits rewritten before they are lowered mean what they did: 0 in padding, and times a factor
that is known.
"""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from typing import Any

import numpy as np
import pytest
from circuit_samples import NAMES, random_columns
from hypothesis import given as examples
from hypothesis import strategies as st

from encryptedstats.circuits import Layout, column, passes
from encryptedstats.circuits.clear import read_clear
from encryptedstats.circuits.expressions import (
    GIVEN,
    HERE,
    ONES,
    Expression,
    Key,
    combination,
    in_order,
    ones,
    pack_total,
    padding_value,
)
from encryptedstats.circuits.passes.correction_factors import GivenFactors, apply_correction_factors
from encryptedstats.circuits.passes.padding import clear_padding
from error_codes import error

y = column("y0")


def test_examples() -> None:
    for module in pkgutil.iter_modules(passes.__path__, f"{passes.__name__}."):
        assert doctest.testmod(importlib.import_module(module.name)).failed == 0


# -- padding
# ------------------------------------------------------------------------------------------------

LAYOUT = Layout(14, 8, (8, 6))


def clear_rows(outputs: list[Expression]) -> list[Any]:
    columns: dict[Key, Any] = dict(random_columns(LAYOUT.n_rows))
    columns |= {("m", k): np.full(LAYOUT.n_rows, 7 * k - 3) for k in range(3)}
    columns |= {"s0": columns["a0"], "s1": 1 - columns["a0"]}
    return [found.tolist() for found in read_clear(outputs, columns, LAYOUT)]


@st.composite
def answers(draw: Any) -> list[Expression | int]:
    """Sums of products of columns, totals and plain numbers, sums among the factors."""

    def factor() -> Expression:
        some = [column(name) for name in NAMES] + [pack_total("m", k) for k in range(3)]
        terms = [
            (draw(st.sampled_from([-2, 1, 3])), x)
            for x in draw(st.lists(st.sampled_from(some), min_size=1))
        ]
        found = combination(terms, draw(st.integers(-2, 2)))
        return y if isinstance(found, int) else found

    found: list[Expression | int] = []
    for _ in range(draw(st.integers(1, 3))):
        products = [
            factor() * factor() if draw(st.booleans()) else factor()
            for _ in range(draw(st.integers(0, 3)))
        ]
        found.append(
            combination(
                [(draw(st.sampled_from([-1, 1, 4])), x) for x in products], draw(st.integers(-5, 5))
            )
        )
    return found


@examples(answers())
def test_cleared_outputs_are_the_same_in_rows_and_zero_in_padding(
    outputs: list[Expression | int],
) -> None:
    found = clear_padding(outputs)
    padding = padding_value(found)
    assert [padding[one] for one in found] == [0] * len(outputs)
    for one, output in zip(found, outputs, strict=True):
        wanted = (
            clear_rows([output]) if isinstance(output, Expression) else [[output] * LAYOUT.n_rows]
        )
        assert clear_rows([one]) == wanted


def test_a_factor_that_is_0_in_all_rows_leaves_nothing() -> None:
    assert repr(clear_padding([(ones() - 1) * (1 - 2 * column("a0")) + 4])) == "[here:answer0]"


@examples(answers())
def test_what_has_no_given_total_has_a_fresh_encryption_of_its_own(
    outputs: list[Expression | int],
) -> None:
    """Which hides the coefficients of the others: one for each answer, 0 included."""
    for number, (one, output) in enumerate(zip(clear_padding(outputs), outputs, strict=True)):
        is_given = isinstance(output, Expression) and any(
            node.op == GIVEN for node in in_order([output])
        )
        here = [node.data[1] for node in in_order([one]) if node.op == HERE and node.data != ONES]
        still_given = any(node.op == GIVEN for node in in_order([one]))
        assert here == ([] if is_given and still_given else [f"answer{number}"])


# -- factors
# ------------------------------------------------------------------------------------------------


@examples(
    st.lists(st.integers(1, 96), min_size=3, max_size=3),
    st.lists(st.integers(-9, 9), min_size=3, max_size=3),
)
def test_factors_are_followed(factors: list[int], offsets: list[int]) -> None:
    """Modulo a small prime, by hand: a column that comes multiplied and without its offset gives
    the output, multiplied.
    """
    t, keys, layout = 97, [("m", k) for k in range(3)], Layout(2, 2)
    x, z, v = (pack_total("m", k) for k in range(3))
    outputs = [x, x + z, 3 * x * z - v + 4, (x - 2) * (z + v) * y, 5 - v]
    scaled = apply_correction_factors(outputs, GivenFactors({"m": factors}, {"m": offsets}, t))
    values: dict[Key, Any] = {key: np.array([key[1] + 1, 7 * key[1] + 2]) for key in keys}
    come: dict[Key, Any] = {key: (values[key] - offsets[key[1]]) * factors[key[1]] for key in keys}
    values["y0"] = come["y0"] = np.array([1, 3])
    for output, circuit, factor in zip(outputs, *scaled, strict=True):
        (wanted,) = read_clear([output], values, layout)
        (got,) = read_clear([circuit], come, layout)
        assert ((got - wanted * factor) % t == 0).all()


def test_what_cannot_be_computed_from_totals() -> None:
    outputs = [pack_total("m", 0) * y.total().replicate()]
    with pytest.raises(TypeError, check=error("not-from-totals")):
        apply_correction_factors(outputs, GivenFactors({"m": [1]}, {"m": [0]}, 97))
