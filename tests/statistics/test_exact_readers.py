"""Regressions and analyses of variance against eliminations in fractions, which are slow and beyond
doubt.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import encryptedstats as es
from encryptedstats.statistics._least_squares import (
    DIGITS,
    CrossProducts,
    add_up,
    factor_matrix,
    independent,
    solve,
)
from encryptedstats.tables.questions.question import ImpossibleTotalsError


def eliminate_in_fractions(
    matrix: Sequence[Sequence[int]], p: int
) -> tuple[list[int], list[Fraction]]:
    """Return the columns that depend on no earlier ones, and what is left of the last entry after
    each column.
    """
    work, used = [[Fraction(int(value)) for value in row] for row in matrix], []
    left = [work[-1][-1]]
    for k in range(p):
        if work[k][k]:
            used.append(k)
            for row in work[k + 1 :]:
                ratio = row[k] / work[k][k]
                row[:] = [b - ratio * a for a, b in zip(work[k], row, strict=True)]
        left.append(work[-1][-1])
    return used, left


def invert_in_fractions(matrix: Sequence[Sequence[int]]) -> list[list[Fraction]]:
    n = len(matrix)
    work = [
        [Fraction(int(v)) for v in row] + [Fraction(int(i == j)) for j in range(n)]
        for i, row in enumerate(matrix)
    ]
    for k in range(n):
        work[k] = [value / work[k][k] for value in work[k]]
        for i, row in enumerate(work):
            if i != k:
                work[i] = [b - row[k] * a for a, b in zip(work[k], row, strict=True)]
    return [row[n:] for row in work]


def moments_of(x: np.ndarray[Any, Any], *, centred: bool = True) -> CrossProducts:
    """The moments of integers, the last column of which is y."""
    whole = np.array([[int(value) for value in row] for row in x], dtype=object)
    k = whole.shape[1]
    return CrossProducts(
        len(whole),
        len(whole),
        whole.sum(axis=0),
        whole.T @ whole,
        np.array([1] * k, dtype=object),
        centred=centred,
    )


def check_solution(x: np.ndarray[Any, Any], *, centred: bool = True) -> None:
    moments = moments_of(x, centred=centred)
    p = x.shape[1] - 1
    used, left = eliminate_in_fractions(moments.scatter.tolist(), p)
    found = solve(moments)
    assert found.used == used
    for ours, theirs in zip(
        found.residuals, (value / moments.divisor for value in left), strict=True
    ):
        assert float(ours) == float(theirs)  # the same double, and 0 where it is 0
    kept = moments.scatter[np.ix_(used, used)].tolist()
    inverse = invert_in_fractions(kept)
    slopes = [
        sum(a * Fraction(int(moments.scatter[j, p])) for a, j in zip(row, used, strict=True))
        for row in inverse
    ]
    assert [float(found.slopes[j]) for j in used] == [float(value) for value in slopes]
    for place, j in enumerate(used):
        expected = [float(value * moments.divisor) for value in inverse[place]]
        assert [float(found.inverse[j, k]) for k in used] == expected
    if centred:
        means = moments.means
        exact = means[p] - sum(
            (slope * means[j] for slope, j in zip(slopes, used, strict=True)), Fraction(0)
        )
        assert float(found.intercept) == float(exact)


# -- least squares
# ------------------------------------------------------------------------------------------------


@settings(max_examples=80, deadline=None)
@given(
    st.integers(1, 6).flatmap(
        lambda k: st.lists(
            st.lists(st.integers(-4, 4), min_size=k, max_size=k), min_size=1, max_size=9
        )
    ),
    st.booleans(),
)
def test_small_integers_with_dependent_and_constant_columns(
    rows: list[list[int]], centred: bool
) -> None:
    check_solution(np.array(rows), centred=centred)


@pytest.mark.parametrize("power", [4, 8, 11])
def test_powers_of_one_variable_are_as_ill_conditioned_as_they_come(power: int) -> None:
    x = np.arange(1, 40, dtype=object) + 10**6
    y = np.array([k * k % 7 for k in range(1, 40)], dtype=object)
    check_solution(np.column_stack([*(x**k for k in range(1, power + 1)), y]))


def test_columns_that_nearly_depend_on_each_other_are_told_from_those_that_do() -> None:
    rng = np.random.default_rng(5)
    a = np.array([int(v) * 2**80 for v in rng.integers(-1000, 1000, 30)], dtype=object)
    y = np.array([int(v) for v in rng.integers(-50, 50, 30)], dtype=object)
    near = a.copy()
    near[3] += 1  # one part in 2^90
    check_solution(np.column_stack([a, near, y]))
    check_solution(np.column_stack([a, a, y]))
    assert solve(moments_of(np.column_stack([a, near, y]))).used == [0, 1]
    assert solve(moments_of(np.column_stack([a, 3 * a, y]))).used == [0]


def test_nothing_is_left_of_what_is_explained_fully_by_columns_of_any_scale() -> None:
    a, b = np.random.default_rng(6).integers(-99, 99, (2, 30)).astype(object)
    columns = np.column_stack([a, b, 3 * a - 7 * b + 5])
    check_solution(columns)
    assert solve(moments_of(columns)).residuals[-1] == 0


def test_a_residual_that_is_nearly_nothing_is_exact() -> None:
    x = np.arange(20, dtype=object)
    y = x * 2**100
    check_solution(np.column_stack([x, y]))
    assert solve(moments_of(np.column_stack([x, y]))).residuals[-1] == 0
    y[7] += 1
    check_solution(np.column_stack([x, y]))
    assert solve(moments_of(np.column_stack([x, y]))).residuals[-1] > 0


def test_columns_without_any_correlation_have_none() -> None:
    x = np.array([[1, 1, 3], [1, -1, 1], [-1, 1, -1], [-1, -1, -3]] * 3, dtype=object)
    found = solve(moments_of(x))
    assert found.inverse[0, 1] == 0
    assert found.intercept == 0
    assert (found.unscaled_covariance[0, 1:] == 0).all()


def test_negative_sums_of_squares_are_refused() -> None:
    with pytest.raises(ImpossibleTotalsError):
        factor_matrix([[1, 2], [2, 1]], 2)
    with pytest.raises(ImpossibleTotalsError):
        factor_matrix([[1, 2], [2, 1]], 1)
    with pytest.raises(ImpossibleTotalsError):
        factor_matrix([[0, 1], [1, 0]], 1)
    with pytest.raises(ImpossibleTotalsError):
        independent(np.array([[4, 8], [8, 15]], dtype=object))


def test_numbers_have_as_many_digits_as_is_said() -> None:
    found = factor_matrix([[3, 1], [1, 3]], 1)
    assert found.inverse[0][0] == round(Fraction(1 << DIGITS + 2 * found.halves[0], 3))
    assert found.corner * 3 // (1 << found.bits - 2 * found.halves[1]) in (7, 8)  # 3 - 1/3 is 8/3


def test_what_rounding_has_left_of_a_sum_is_0() -> None:
    tiny = Fraction(1, 1 << 150)
    assert add_up([Fraction(1), Fraction(-1) + tiny]) == 0
    assert add_up([tiny]) == tiny
    assert add_up([]) == 0


# -- analysis of variance of a regression
# --------------------------------------------------------------------------------------


def residual(table: es.Table, formula: str) -> tuple[Fraction, int]:
    """Return the residual sum of squares of a formula, and its degrees of freedom."""
    model = es.LinearRegression(formula).fit(table)
    return model._solution.residuals[-1], model.df_resid_


@pytest.fixture(scope="module")
def mixed() -> es.Table:
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(
        {
            "x": rng.integers(0, 30, 60),
            "z": rng.integers(0, 30, 60),
            "g": rng.choice(list("abc"), 60),
        }
    )
    frame["copy"] = frame["x"] * 2  # aliased
    frame["y"] = 3 * frame["x"] + rng.integers(0, 9, 60)
    schema = es.Schema.infer(frame)
    for name in ("x", "z", "copy", "y"):
        schema = schema.with_kind(name, "number", digits=0)
    return schema.table(frame)


@pytest.mark.filterwarnings("ignore:aliased")
@pytest.mark.parametrize(
    ("formula", "terms"),
    [
        ("y ~ x + z + g", {"x": "y ~ z + g", "z": "y ~ x + g", "g": "y ~ x + z"}),
        ("y ~ x + copy + g", {"x": "y ~ copy + g", "copy": "y ~ x + g", "g": "y ~ x + copy"}),
    ],
)
def test_type_two_compares_residuals_with_and_without_a_term(
    mixed: es.Table, formula: str, terms: Any
) -> None:
    whole, df = residual(mixed, formula)
    found = es.LinearRegression(formula).fit(mixed).anova(2).table
    for term, without in terms.items():
        squares, rest = residual(mixed, without)
        assert found.loc[term, "df"] == rest - df
        assert found.loc[term, "sum_sq"] == pytest.approx(float(squares - whole), rel=1e-15)


def test_terms_within_others_are_tested_without_these(mixed: es.Table) -> None:
    found = es.LinearRegression("y ~ x*g + z").fit(mixed).anova(2).table
    (without, _), (with_it, _) = residual(mixed, "y ~ g + z"), residual(mixed, "y ~ x + g + z")
    assert found.loc["x", "sum_sq"] == pytest.approx(float(without - with_it), rel=1e-15)
    (without, _), (with_it, _) = residual(mixed, "y ~ x + g + z"), residual(mixed, "y ~ x*g + z")
    assert found.loc["x:g", "sum_sq"] == pytest.approx(float(without - with_it), rel=1e-15)


@pytest.mark.filterwarnings("ignore:aliased")
def test_type_one_adds_up_to_what_is_explained(mixed: es.Table) -> None:
    model = es.LinearRegression("y ~ x + copy + g + z").fit(mixed)
    table = model.anova(1).table
    assert table["df"].tolist() == [1, 0, 2, 1, 55]
    assert table.loc["copy", "sum_sq"] == 0.0
    before = [
        residual(mixed, "y ~ 1")[0],
        residual(mixed, "y ~ x")[0],
        residual(mixed, "y ~ x + g")[0],
    ]
    assert table.loc["x", "sum_sq"] == pytest.approx(float(before[0] - before[1]), rel=1e-15)
    assert table.loc["g", "sum_sq"] == pytest.approx(float(before[1] - before[2]), rel=1e-15)


# -- two factors
# ------------------------------------------------------------------------------------------------


def explained_in_fractions(rows: pd.DataFrame, columns: list[list[int]]) -> tuple[Fraction, int]:
    """Return what columns of single rows explain of y, and how many of them are independent."""
    x = [*columns, [int(v) for v in rows["y"]]]
    matrix = [[sum(a * b for a, b in zip(one, other, strict=True)) for other in x] for one in x]
    used, left = eliminate_in_fractions(matrix, len(columns))
    return left[0] - left[-1], len(used)


def effects(values: Sequence[str]) -> list[list[int]]:
    *levels, last = sorted(set(values))
    return [[1 if v == level else -1 if v == last else 0 for v in values] for level in levels]


def two_ways(rows: pd.DataFrame, typ: int, interaction: bool) -> list[tuple[Fraction, int]]:
    one, other = effects(list(rows["a"])), effects(list(rows["b"]))
    both = (
        [[x * y for x, y in zip(p, q, strict=True)] for p in one for q in other]
        if interaction
        else []
    )
    whole = [[1] * len(rows)]
    if typ == 1:
        steps = [(whole, whole + one), (whole + one, whole + one + other)]
    elif typ == 2:
        steps = [(whole + other, whole + one + other), (whole + one, whole + one + other)]
    else:
        steps = [
            (whole + other + both, whole + one + other + both),
            (whole + one + both, whole + one + other + both),
        ]
    if interaction:
        steps.append((whole + one + other, whole + one + other + both))
    pairs = [
        (explained_in_fractions(rows, more), explained_in_fractions(rows, less))
        for less, more in steps
    ]
    return [(more[0] - less[0], more[1] - less[1]) for more, less in pairs]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.sampled_from("pqrs"), st.sampled_from("uvw")),
        min_size=4,
        max_size=40,
    ),
    st.sampled_from([1, 2, 3]),
    st.booleans(),
)
def test_sums_of_squares_of_two_factors(
    given_rows: list[tuple[int, str, str]], typ: int, interaction: bool
) -> None:
    rows = pd.DataFrame(given_rows, columns=["y", "a", "b"])
    schema = es.Schema.infer(
        pd.DataFrame({"y": range(12), "a": list("pqrs") * 3, "b": list("uvw") * 4})
    ).with_kind("y", "number", digits=0)
    question = es.Anova("y", ["a", "b"], interaction=interaction, typ=typ)
    try:
        found = schema.table(rows).ask(question).table
    except es.DataError:
        return  # one group only, or type 3 with aliased effects
    for name, (squares, df) in zip(found.index, two_ways(rows, typ, interaction), strict=False):
        assert found.loc[name, "df"] == df, name
        assert found.loc[name, "sum_sq"] == float(squares), name


def test_factors_that_are_not_connected_have_fewer_degrees_of_freedom() -> None:
    rows = pd.DataFrame({"y": [1, 4, 2, 8, 5, 7], "a": list("ppqqqq"), "b": list("uuvvww")})
    schema = es.Schema.infer(rows).with_kind("y", "number", digits=0)
    found = schema.table(rows).ask(es.Anova("y", ["a", "b"], interaction=False)).table
    assert found["df"].tolist() == [0, 1, 3]
    with pytest.raises(es.DataError):
        schema.table(rows).ask(es.Anova("y", ["a", "b"], interaction=False, typ=3))
