"""The linear algebra of steps, which has to come to the same bits on every machine."""

from __future__ import annotations

import math
import random
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import encryptedstats as es
from effort import examples
from encryptedstats.procedures.pooled.algebra import (
    Cholesky,
    exact_log,
    n_pairs,
    pack,
    unpack,
)
from encryptedstats.procedures.pooled.scaling import to_floats, to_integers
from error_codes import error


@settings(max_examples=examples(40))
@given(st.integers(1, 7), st.integers(0, 2**32))
def test_systems_are_solved_as_numpy_solves_them(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n + 3, n))
    matrix, right = (rows.T @ rows).tolist(), rng.normal(size=n).tolist()
    found = Cholesky.of(matrix, 1e-14)
    assert found.kept == list(range(n))
    np.testing.assert_allclose(np.array(matrix) @ found.solve(right), right, rtol=1e-6, atol=1e-8)
    assert unpack(pack(matrix), n) == matrix
    assert len(pack(matrix)) == n_pairs(n)


@settings(max_examples=examples(40))
@given(st.integers(2, 6), st.integers(0, 2**32))
def test_columns_that_depend_on_earlier_ones_are_left_out(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.integers(-5, 6, size=(30, n)).astype(float)
    place = int(rng.integers(1, n))
    rows[:, place] = rows[:, :place] @ rng.integers(1, 4, size=place)
    matrix = (rows.T @ rows).tolist()
    right = (rows.T @ rng.normal(size=30)).tolist()
    found = Cholesky.of(matrix, 1e-10)
    assert found.kept == [j for j in range(n) if j != place]
    solution = found.solve(right)
    assert solution[place] == 0
    np.testing.assert_allclose(np.array(matrix) @ solution, right, rtol=1e-6, atol=1e-6)


def test_a_step_has_the_same_bits_whatever_numpy_is_there() -> None:
    code = (
        "import random\n"
        "from encryptedstats.procedures.pooled.algebra import Cholesky, exact_log\n"
        "draw = random.Random(5)\n"
        "rows = [[draw.random() for _ in range(6)] for _ in range(40)]\n"
        "m = [[sum((int(r[a]*2**20)*int(r[b]*2**20) for r in rows), 0) / 2**40 for b in range(6)]"
        " for a in range(6)]\n"
        "print([x.hex() for x in Cholesky.of(m, 1e-12).solve([draw.random() for _ in range(6)])])\n"
        "print(exact_log(0.3).hex())\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    draw = random.Random(5)
    rows = [[Fraction(int(draw.random() * 2**20), 2**20) for _ in range(6)] for _ in range(40)]
    exact = [[float(sum(r[a] * r[b] for r in rows)) for b in range(6)] for a in range(6)]
    own = Cholesky.of(exact, 1e-12).solve([draw.random() for _ in range(6)])
    assert found.stdout.splitlines() == [str([x.hex() for x in own]), exact_log(0.3).hex()]


@given(st.floats(1e-300, 1e300))
def test_logarithms_are_within_a_rounding(value: float) -> None:
    assert exact_log(value) == pytest.approx(math.log(value), rel=1e-15, abs=1e-15)


def test_totals_that_no_round_can_carry_are_refused() -> None:
    for value in (math.inf, math.nan, 2.0**170, -(2.0**171)):
        with pytest.raises(es.DataError, check=error("total-too-large")):
            to_integers([value], 40)
    assert to_integers([2.0**169, -0.5], 40) == [2**209, -(2**39)]
    assert to_floats([2**209, -(2**39)], 40) == [2.0**169, -0.5]
