"""Opened results as the page shows them: statistics and models of every kind, from clear rows,
which read the same.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from desk_helpers import patients

import encryptedstats as es
from encryptedstats.app.showing import scores_of, show_result, table_of


@cache
def table(*, keep: bool) -> es.Table:
    frame = patients(200).drop(columns="patient")
    frame["months"] = np.arange(200) % 7
    schema = es.Schema.infer(
        frame, target="ill", numbers="keep" if keep else "bins", kinds={"months": "ordinal"}
    )
    return schema.table(frame)


@pytest.mark.parametrize(
    ("question", "keep", "wanted"),
    [
        (es.TTest("bmi", "smoker"), True, "p-value"),
        (es.Describe(), True, "mean"),
        (es.Correlation(("bmi", "age")), True, "bmi"),
        (es.ChiSquare("smoker", "class"), False, "p-value"),
        (es.OddsRatio("smoker"), False, "odds"),
        (es.KaplanMeier("months"), False, "survival"),
        (es.ROC("age"), False, "auc"),
        (es.MultinomialNB(), False, "classes"),
        (es.CompletelyRandomForest(n_trees=5), False, "importance"),
        (es.LinearRegression("bmi ~ age + smoker"), True, "smoker"),
        (es.GLM("class ~ smoker"), False, "odds ratio"),
        (es.PCA(variables=["bmi", "age"]), True, "standard deviation"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_every_kind_of_result_has_a_table_a_text_and_a_csv(
    question: Any, keep: bool, wanted: str
) -> None:
    rows = table(keep=keep)
    value = question.fit(rows) if hasattr(question, "fit") else rows.ask(question)
    shown = show_result(value)
    said = str([(one.rows, one.head) for one in shown.tables]) + str(shown.facts)
    assert wanted in said.lower()
    assert shown.text
    assert "\n" in shown.csv
    for one in shown.tables:
        assert all(len(cells) == len(one.head) for _, cells in one.rows)
        assert "(-inf" not in str(one.rows)  # bins are written as people write them
    for dark in (False, True):
        if shown.is_drawn:
            assert b"<svg" in (shown.svg(dark=dark) or b"")


def test_probabilities_are_written_as_in_r() -> None:
    found = table_of(pd.DataFrame({"pvalue": [1e-20, 0.5]}, index=["age", "sex"]))
    assert found.rows[0] == ("age", ["< 2.2e-16"])


def test_scores_have_their_intervals() -> None:
    found = scores_of(
        {"auc": {"estimate": 0.75, "low": 0.7, "high": 0.8}, "ppv": {"estimate": None}}
    )
    assert found.rows == [("AUC", ["0.7500", "0.7000 to 0.8000"]), ("PPV", ["NA", ""])]


def test_words_begin_at_the_left_and_numbers_end_at_the_right() -> None:
    frame = pd.DataFrame(
        {"what": ["opened", "released"], "p": ["<0.001", "hidden"], "rows": [400, 3]}
    )
    assert table_of(frame).kinds == ["", "number", "number"]
