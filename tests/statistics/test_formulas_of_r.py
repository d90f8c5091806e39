"""Formulas give the columns of R: typed from R 4.2.2, and compared with formulaic."""

from __future__ import annotations

import warnings
from fractions import Fraction
from typing import Any

import formulaic
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import encryptedstats as es
from effort import examples
from encryptedstats.statistics.designs import design, orthogonal
from encryptedstats.statistics.formulas import parse
from error_codes import error

FRAME = pd.DataFrame(
    {
        "x": [1, 2, 3, 4, 2.5, 7],
        "z": [2, 1, 4, 3, 9, 5],
        "g": list("ababab"),
        "h": list("aabbcc"),
        "y": [1.0, 2, 3, 5, 1, 4],
    }
)
SCHEMA = es.Schema.infer(FRAME, target="y", numbers="keep")
TABLE = SCHEMA.table(FRAME)

#: R: colnames(model.matrix(f, d)), d = FRAME with g and h as factors.
COLUMNS_OF_R = {
    "y ~ 0 + x + x:g": "x | x:ga | x:gb",
    "y ~ x:g - 1": "x:ga | x:gb",
    "y ~ g:h - 1": "ga:ha | gb:ha | ga:hb | gb:hb | ga:hc | gb:hc",
    "y ~ g + g:h": "(Intercept) | gb | ga:hb | gb:hb | ga:hc | gb:hc",
    "y ~ h + g:h": "(Intercept) | hb | hc | ha:gb | hb:gb | hc:gb",
    "y ~ poly(x, 2):g": (
        "(Intercept) | poly(x, 2)1:ga | poly(x, 2)2:ga | poly(x, 2)1:gb | poly(x, 2)2:gb"
    ),
    "y ~ poly(x, 2)*g - 1": "poly(x, 2)1 | poly(x, 2)2 | ga | gb | poly(x, 2)1:gb | poly(x, 2)2:gb",
    "y ~ g/h": "(Intercept) | gb | ga:hb | gb:hb | ga:hc | gb:hc",
    "y ~ (g + h)^2": "(Intercept) | gb | hb | hc | gb:hb | gb:hc",
    "y ~ h + x:h - 1": "ha | hb | hc | ha:x | hb:x | hc:x",
    "y ~ x + g*h - 1": "x | ga | gb | hb | hc | gb:hb | gb:hc",
    "y ~ x:h + g": "(Intercept) | gb | x:ha | x:hb | x:hc",
    "y ~ g + poly(x, 2) + I(x*z) - 1": "ga | gb | poly(x, 2)1 | poly(x, 2)2 | I(x * z)",
    "y ~ .^2 - x:z": (
        "(Intercept) | x | z | gb | hb | hc | x:gb | x:hb | x:hc | z:gb | z:hb | "
        "z:hc | gb:hb | gb:hc"
    ),
    "y ~ . + I(x^2)": "(Intercept) | x | z | gb | hb | hc | I(x^2)",
    "y ~ g %in% h": "(Intercept) | ga:ha | gb:ha | ga:hb | gb:hb | ga:hc | gb:hc",
    "y ~ h + x:g:h": (
        "(Intercept) | hb | hc | ha:x:ga | hb:x:ga | hc:x:ga | ha:x:gb | hb:x:gb | hc:x:gb"
    ),
    "y ~ z + x:z": "(Intercept) | z | z:x",
    "y ~ x^2": "(Intercept) | x",
}


def matrix(formula: str) -> tuple[list[str], np.ndarray]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = design(parse(formula).in_ids(SCHEMA), SCHEMA.public())
    known = {}
    for j, degree in made.polynomials:
        values = [Fraction(str(value)) for value in FRAME.iloc[:, j]]
        sums = [sum((v**k for v in values), Fraction(0)) for k in range(2 * degree + 1)]
        known[j] = orthogonal(sums, degree, "x")
    return made.names(SCHEMA), made.matrix(TABLE, known)


@pytest.mark.parametrize("formula", COLUMNS_OF_R)
def test_columns_are_called_and_coded_as_in_r(formula: str) -> None:
    names, found = matrix(formula)
    assert [name.replace("[", "").replace("]", "") for name in names] == COLUMNS_OF_R[
        formula
    ].split(" | ")
    assert found.shape == (6, len(names))


def test_orthogonal_polynomials_are_those_of_r() -> None:
    """model.matrix(y ~ poly(x, 2), d)."""
    _, found = matrix("y ~ poly(x, 2)")
    wanted = [
        [-0.48107024, 0.62775838], [-0.26726124, 0.01913898], [-0.05345225, -0.35981273],
        [0.16035675, -0.50909674], [-0.16035675, -0.19904534], [0.80178373, 0.42105745],
    ]  # fmt: skip
    np.testing.assert_allclose(found[:, 1:], wanted, atol=5e-9)


def test_polynomials_and_offsets_are_fitted_as_in_r() -> None:
    """coef(summary(lm(y ~ poly(x, 2) + offset(z), d))), its r.squared, and predict(interval)."""
    model = es.LinearRegression("y ~ poly(x, 2) + offset(z)").fit(TABLE)
    found = model.summary()
    np.testing.assert_allclose(
        found.coefficients[["estimate", "std_error", "statistic", "pvalue"]],
        [
            [-1.33333333, 1.828498, -0.72919577, 0.5186546],
            [1.06904497, 4.478888, 0.23868534, 0.8267252],
            [-0.09569488, 4.478888, -0.02136577, 0.9842955],
        ],
        rtol=1e-6,
    )
    new = pd.DataFrame({"x": [1.5, 3], "z": [2, 2], "g": "a", "h": "a"})
    predicted = model.predict(new, interval="confidence")
    np.testing.assert_allclose(
        predicted,
        [[0.2384615, -8.703337, 9.180260], [0.6439560, -7.150017, 8.437929]],
        rtol=1e-6,
    )
    np.testing.assert_allclose(model.predict(new), predicted["estimate"], rtol=1e-12)
    table = es.LinearRegression("y ~ poly(x, 2) + z").fit(TABLE).anova().table
    assert list(table.index) == ["poly(x, 2)", "z", "Residual"]
    np.testing.assert_allclose(table["sum_sq"], [9.3147, 2.9955, 1.0232], atol=5e-5)


@pytest.mark.parametrize(
    "formula",
    ["y ~ poly(x, 2)*g", "y ~ I((x - 2)^2) + I(x*z) - 1", "y ~ x + offset(2*z - 3)", "y ~ z + x:h"],
)
def test_encrypted_rows_give_what_least_squares_of_the_matrix_gives(formula: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", es.InsecureParametersWarning)
        bits = es.Parameters.from_bits("bgv", 1024, 1 << 32, (60,) * 6, allow_insecure=True)
        owner = es.Owner(bits)
    model: Any = owner.open(es.LinearRegression(formula).fit(owner.encrypt(TABLE)), schema=SCHEMA)
    names, x = matrix(formula)
    y = FRAME["y"] - (2 * FRAME["z"] - 3 if "offset" in formula else 0)
    wanted, _, rank, _ = np.linalg.lstsq(x, y, rcond=None)
    if rank == x.shape[1]:
        found = model.summary().coefficients["estimate"]
        assert list(found.index) == names
        np.testing.assert_allclose(found, wanted, rtol=1e-8, atol=1e-9)
    fitted = x @ wanted + (2 * FRAME["z"] - 3 if "offset" in formula else 0)
    np.testing.assert_allclose(model.predict(FRAME), fitted, rtol=1e-8, atol=1e-8)


ATOMS = ["x", "z", "g", "h", "I(x^2)", "I(x*z)"]


def joined(inside: Any) -> Any:
    pairs = st.tuples(inside, st.sampled_from(["+", ":", "*", "/"]), inside)
    return pairs.map(lambda parts: f"({parts[0]}){parts[1]}({parts[2]})") | inside.map(
        lambda one: f"({one})^2"
    )


@settings(max_examples=examples(60), deadline=None)
@given(st.recursive(st.sampled_from(ATOMS), joined, max_leaves=5), st.booleans())
def test_any_formula_spans_what_it_spans_in_formulaic(right: str, intercept: bool) -> None:
    """formulaic leaves columns out by another rule than R, so spaces are compared."""
    formula = f"y ~ {right}" + ("" if intercept else " - 1")
    _, found = matrix(formula)
    theirs = formula.replace("x^2", "x**2")
    wanted = np.asarray(formulaic.model_matrix(theirs, FRAME).rhs, dtype=float)
    rank = np.linalg.matrix_rank(wanted)
    assert np.linalg.matrix_rank(found) == rank
    assert np.linalg.matrix_rank(np.column_stack([found, wanted])) == rank


def test_what_cannot_be_computed_says_where_to_compute_it() -> None:
    with pytest.raises(es.ParameterError, check=error("function-of-encrypted", "log()")):
        es.LinearRegression("y ~ log(x)").fit(TABLE)
    with pytest.raises(es.DataError, check=error("degree-too-high", "x", "6")):
        es.LinearRegression("y ~ poly(x, 6)").fit(TABLE)
    with pytest.raises(es.ParameterError, check=error("poly-with-weights")):
        es.LinearRegression("y ~ poly(x, 2)", weights="z").fit(TABLE)
    with pytest.raises(es.ParameterError, check=error("offset-in-glm")):
        es.GLM("g ~ h + offset(x)").fit(TABLE)


def test_a_regression_takes_variables_in_place_of_a_formula() -> None:
    for named, by_formula in (
        (es.LinearRegression(variables=["x", "g"]), es.LinearRegression("y ~ x + g")),
        (es.LinearRegression(target="z", variables=["x"]), es.LinearRegression("z ~ x")),
        (es.Ridge(2.0, variables=["x", "g"]), es.Ridge(2.0, "y ~ x + g")),
        (es.GLM(target="g", variables=["h"]), es.GLM("g ~ h")),
    ):
        found, wanted = named.fit(TABLE).summary(), by_formula.fit(TABLE).summary()
        pd.testing.assert_frame_equal(found.to_frame(), wanted.to_frame())
    with pytest.raises(es.ParameterError, check=error("formula-and-variables")):
        es.LinearRegression("y ~ x", variables=["x"]).fit(TABLE)
