"""Every result of every question has the same names and types."""

from __future__ import annotations

import json
import math
from dataclasses import fields
from io import StringIO
from typing import Any

import numpy as np
import pandas as pd
import pytest

import encryptedstats as es
from encryptedstats.statistics.results import Coefficients, TestResult
from encryptedstats.tables.answers.results import Result
from encryptedstats.tables.questions.constraints import constraints_of
from encryptedstats.tables.questions.question import load_all_questions
from encryptedstats.views import ESTIMATE_COLUMNS, render_html, render_json, render_text
from tests.golden.golden_questions import make_frame, make_questions, make_schema

QUESTIONS = {
    **make_questions(),
    "mcnemar": es.McNemar("first", "second"),
    "pairwise": es.PairwiseTTest("age", "first"),
    "tukey": es.PairwiseTTest("age", "first", adjust="tukey"),
    "bartlett": es.VarianceTest("age", "first"),
    "f": es.VarianceTest("age", "arm", method="f"),
    "cronbach": es.CronbachAlpha(["age", "dose"]),
    "regression of polynomials": es.LinearRegression("age ~ poly(dose, 2) + arm"),
}
#: Of ``folds``, which asks another question, and of the counts of trees that learn their splits.
UNDECLARED = {"question", "nodes"}
#: Names of other libraries, and of older versions of this one.
FOREIGN = {
    "dof", "stderr", "confidence_interval", "ci_low", "ci_high", "lower", "upper", "kappa_low",
    "p_value", "fvalue", "f_pvalue", "zscore", "z_value", "auc_se", "Estimate", "Std. Error",
    "t value", "z value", "F value", "Df", "Sum Sq", "Mean Sq", "2.5 %", "97.5 %", "Pr(>|t|)",
    "Pr(>|z|)", "Pr(>F)", "F", "std. error", "Intercept", "coefficient",
}  # fmt: skip


@pytest.fixture(scope="module")
def table() -> es.Table:
    frame = make_frame()
    return make_schema(frame).table(frame)


def read(question: es.Question, table: es.Table) -> Result:
    found = question.fit(table).summary() if hasattr(question, "fit") else table.ask(question)
    assert isinstance(found, Result)
    return found


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_result_has_the_names_and_types_of_all(name: str, table: es.Table) -> None:
    result = read(QUESTIONS[name], table)
    terms = result.tidy()
    assert tuple(terms.columns) == ESTIMATE_COLUMNS
    assert terms.index.name == "term"
    assert all(isinstance(label, str) for label in terms.index)
    assert (terms.dtypes == np.float64).all()
    glance = result.glance()
    assert len(glance) == 1
    assert glance["n_rows"].iloc[0] == result.n_rows
    for attribute in ("statistic", "df", "df_resid", "pvalue", "estimate", "std_error", "low"):
        if hasattr(result, attribute):
            assert isinstance(getattr(result, attribute), (int, float)), attribute
    tables = [value for value in vars(result).values() if isinstance(value, pd.DataFrame)]
    labels = {str(label) for one in tables for label in (*one.columns, *one.index)}
    assert not FOREIGN & {*labels, *(one.name for one in fields(result))}
    for one in tables:
        assert ("low" in one) == ("high" in one)


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_result_is_written_by_the_renderers_of_its_view(name: str, table: es.Table) -> None:
    result = read(QUESTIONS[name], table)
    assert result.summary() == str(result) == render_text(result.view())
    assert result.to_html() == render_html(result.view())
    document = json.loads(str(result.to_json()))
    assert document["title"] == result.title
    assert str(result.to_json()) == render_json(result.view())
    written = pd.read_csv(StringIO(str(result.to_csv())))
    assert len(written)
    captions = [one.caption for one in result.view().tables]
    assert len(captions) == len(set(captions))


@pytest.mark.parametrize("name", QUESTIONS)
def test_tests_and_models_say_their_test_in_every_export(name: str, table: es.Table) -> None:
    result = read(QUESTIONS[name], table)
    if not isinstance(result, (TestResult, Coefficients)):
        pytest.skip("neither a test nor a regression")
    terms = result.tidy()
    assert terms["estimate"].notna().any() or terms["statistic"].notna().any()
    columns = set(pd.read_csv(StringIO(str(result.to_csv()))).columns)
    assert {"statistic", "df", "pvalue"} <= columns
    if isinstance(result, TestResult):
        first = terms.iloc[0]
        for column in ESTIMATE_COLUMNS:
            own = getattr(result, column)
            assert own == first[column] or (math.isnan(own) and math.isnan(first[column]))
        if not math.isnan(result.low):
            assert result.low <= result.estimate <= result.high
            assert 0 < result.confidence < 1


def test_parameters_of_questions_are_declared_and_called_alike() -> None:
    unlike = {
        "level",
        "conf_level",
        "alpha_level",
        "type",
        "x",
        "y",
        "columns",
        "features",
        "group",
    }
    for name, question in load_all_questions().items():
        if not question.__module__.startswith("encryptedstats."):
            continue
        found: dict[str, Any] = constraints_of(question)
        assert not unlike & set(found), name
        for parameter, constraint in found.items():
            assert type(constraint).__name__ != "Anything" or parameter in UNDECLARED, (
                name,
                parameter,
            )
