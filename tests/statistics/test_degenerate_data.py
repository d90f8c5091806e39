"""Factors of one level, tables without a complete row, and fits that leave no residuals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from asked_samples import small_owner, table_of

import encryptedstats as es


def small(**columns: list[Any]) -> es.Table:
    """A table whose columns of numbers are kept as such."""
    frame = pd.DataFrame(columns)
    gaps = {"missing": "bin"} if frame.isna().any(axis=None) else {}
    schema = es.Schema.infer(frame, **gaps)
    for name in frame:
        if frame[name].dtype.kind in "if":
            schema = schema.with_kind(name, "number", digits=0, low=0, high=100)
    return schema.table(frame)


ONE_LEVEL = {"y": [1, 2, 3, 5, 6, 9], "c": ["u"] * 6, "g": list("aabbab"), "o": list("uvvuvv")}


# -- factors of one level
# ------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::encryptedstats.SchemaWarning")
@pytest.mark.parametrize(
    "model",
    [
        es.LinearRegression("y ~ c"),
        es.LinearRegression("y ~ g + c:g"),
        es.LinearRegression("y ~ c - 1"),
        es.Ridge(1.0, "y ~ g + c"),
        es.GLM("o ~ c"),
        es.GLM("o ~ g + c"),
    ],
)
def test_a_term_with_one_level_is_refused_in_the_plan_as_in_r(model: Any) -> None:
    table = small(**ONE_LEVEL)
    with pytest.raises(es.SchemaError) as caught:
        es.plan(model, table)
    assert "leave the term out" in [cure.action for cure in caught.value.cures]
    with pytest.raises(es.SchemaError):
        model.fit(table)


@pytest.mark.filterwarnings("ignore::encryptedstats.SchemaWarning")
def test_all_other_variables_do_not_include_those_of_one_level() -> None:
    with_constant = small(**ONE_LEVEL)
    without = small(**{name: values for name, values in ONE_LEVEL.items() if name != "c"})
    found, expected = (es.LinearRegression("y ~ .").fit(one) for one in (with_constant, without))
    pd.testing.assert_frame_equal(found.coefficients(), expected.coefficients())
    pd.testing.assert_frame_equal(found.anova().table, expected.anova().table)
    assert any(note.endswith(": c") for note in found.summary().notes)
    factors = small(**{name: ONE_LEVEL[name] for name in ("c", "g", "o")})
    glm = es.GLM("o ~ .").fit(factors)
    pd.testing.assert_frame_equal(
        glm.summary().coefficients, es.GLM("o ~ g").fit(factors).summary().coefficients
    )
    assert any(note.endswith(": c") for note in glm.summary().notes)


@pytest.mark.filterwarnings("ignore::encryptedstats.SchemaWarning")
def test_a_variable_of_weights_and_one_of_one_level_explain_nothing() -> None:
    table = small(**ONE_LEVEL, w=[1, 2, 1, 2, 1, 3])
    assert es.LinearRegression("y ~ .", weights="w").fit(table).columns_ == ["g[b]", "o[v]"]


@pytest.mark.filterwarnings("ignore::encryptedstats.SchemaWarning")
def test_one_level_beside_missing_values_counts_by_what_becomes_of_these() -> None:
    table = small(y=[1, 2, 3, 5, 6, 9], c=["u", None, "u", "u", None, "u"])
    found = es.LinearRegression("y ~ c", missing="level").fit(table)
    assert len(found.columns_) == 1
    with pytest.raises(es.SchemaError):
        es.LinearRegression("y ~ c", missing="complete").fit(table)


# -- no complete row
# ------------------------------------------------------------------------------------------------


def incomplete() -> es.Table:
    """Every row has a missing value."""
    return small(y=[1.0, np.nan, 3.0, np.nan], x=[np.nan, 2.0, np.nan, 5.0], g=list("abab"))


def none_present() -> es.Table:
    """A number that is missing in every row."""
    schema = small(y=[1.0, np.nan, 3.0, 4.0], g=list("abab")).schema
    return schema.table(pd.DataFrame({"y": [np.nan] * 4, "g": list("abab")}))


@pytest.mark.parametrize(
    ("question", "table"),
    [
        (es.LinearRegression("y ~ x"), incomplete),
        (es.Ridge(1.0, "y ~ x"), incomplete),
        (es.PCA(), incomplete),
        (es.Covariance(), incomplete),
        (es.Correlation(), incomplete),
        (es.TTest("y", paired="x"), incomplete),
        (es.TTest("y"), none_present),
        (es.TTest("y", by="g"), none_present),
        (es.Anova("y", ["g"]), none_present),
    ],
)
def test_a_table_without_a_complete_row_is_not_called_altered(question: Any, table: Any) -> None:
    known = table()
    with pytest.raises(es.DataError):
        question.fit(known) if hasattr(question, "fit") else known.ask(question)


def test_moments_without_a_complete_row_say_so_when_opened() -> None:
    table = incomplete()
    with pytest.raises(es.DataError) as caught:
        table.moments(["x", "y"])
    assert [cure.action for cure in caught.value.cures] == ["ask of fewer variables"]
    owner = small_owner()
    answer = owner.encrypt(table).moments(["x", "y"])
    with pytest.raises(es.DataError) as caught:
        owner.open(answer)
    assert [cure.action for cure in caught.value.cures] == ["ask of fewer variables"]


def test_weights_that_are_all_0_are_not_called_altered() -> None:
    table = small(y=[1, 2, 4], x=[1, 3, 2], w=[0, 1, 1]).schema.table(
        pd.DataFrame({"y": [1, 2, 4], "x": [1, 3, 2], "w": [0, 0, 0]})
    )
    schema = table.schema.with_kind("w", "number", digits=0, low=0, high=5)
    with pytest.raises(es.DataError):
        es.LinearRegression("y ~ x", weights="w").fit(schema.table(table.to_pandas()))


# -- fits without residuals
# ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("typ", [1, 2])
def test_a_perfect_fit_has_the_same_f_in_every_table(typ: int) -> None:
    # In R, anova(lm(y ~ a + g)) of such rows warns of an essentially perfect fit, and F is beyond
    # 1e30.
    table = small(y=[2, 4, 6, 8, 10], a=[1, 2, 3, 4, 5], g=list("uvvuv"))
    model = es.LinearRegression("y ~ a + g").fit(table)
    found = model.anova(typ).table
    assert found.loc["a", "statistic"] == model.summary().statistic == np.inf
    assert found.loc["a", "pvalue"] == model.summary().pvalue == 0.0
    assert np.isnan(found.loc["g", ["statistic", "pvalue"]].astype(float)).all()  # 0 over 0
    assert model.summary().notes[-1] == model.anova(typ).notes[-1]


def test_perfect_groups_have_the_same_f_in_both_analyses_of_variance() -> None:
    table = table_of(pd.DataFrame({"y": [1, 1, 2, 2, 5, 5], "g": list("aabbcc")}), numbers={"y": 0})
    of_cells = table.ask(es.Anova("y", ["g"]))
    of_columns = es.LinearRegression("y ~ g").fit(table).anova().table
    assert of_cells.statistic == of_columns.loc["g", "statistic"] == np.inf
    assert of_cells.pvalue == of_columns.loc["g", "pvalue"] == 0.0


@pytest.mark.filterwarnings("ignore::encryptedstats.SchemaWarning")
def test_a_constant_target_is_explained_by_nothing_in_every_table() -> None:
    table = small(y=[2, 2, 2, 2], a=[1, 2, 3, 5])
    model = es.LinearRegression("y ~ a").fit(table)
    assert np.isnan(model.summary().statistic)
    assert np.isnan(model.anova().table.loc["a", "statistic"])
