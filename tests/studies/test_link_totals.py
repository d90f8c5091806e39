"""Multiplying totals by the columns that link, in the clear: every kind of question counts the
people of all sites, and nobody else.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import encryptedstats as es
from encryptedstats.studies.linkage import (
    LINKED,
    Linkage,
    link_columns,
    link_totals,
    own_site_schema,
    place_rows,
    question_columns,
)
from encryptedstats.tables.questions.question import prepare_question
from encryptedstats.tables.questions.summaries import Counts, CrossTable, Moments
from encryptedstats.tables.schema.variables import Variable
from error_codes import error

N = 120
SHARED = np.arange(N) % 3 != 0


def people() -> pd.DataFrame:
    rng = np.random.default_rng(3)
    return pd.DataFrame(
        {
            "sex": rng.choice(["f", "m"], N),
            "month": rng.integers(1, 5, N),
            "stage": rng.choice(["i", "ii", "iii"], N),
            "other": rng.choice(["i", "ii", "iii"], N),
            "left": rng.choice(["no", "yes"], N),
            "right": rng.choice(["no", "yes"], N),
            "weight": rng.integers(40, 90, N),
            "dose": rng.integers(-9, 20, N),
            "ill": rng.choice(["no", "yes"], N),
        }
    )


SCHEMA = es.Schema.infer(
    people(), target="ill", kinds={"month": "ordinal", "weight": "number", "dose": "number"}
)
BINNED = ["sex", "month", "stage"]
QUESTIONS: list[es.Question] = [
    es.AODE(variables=BINNED),
    es.TAN(variables=BINNED),
    es.MultinomialNB(variables=BINNED),
    es.Pairs(variables=BINNED),
    es.CompletelyRandomForest(n_trees=4, depth=3, random_state=3, variables=BINNED),
    es.SemiparametricNB(variables=["weight", "dose"]),
    es.FisherDiscriminant(variables=["weight", "dose"]),
    es.OneStepLogisticRegression(variables=["weight", "dose"]),
    es.LinearDiscriminant(variables=["weight", "dose"]),
    es.CoxRegression("month", event="ill", variables=["sex", "stage"]),
    es.CumulativeIncidence("month", event="ill"),
    es.KaplanMeier("month", by="sex"),
    es.LogRank("month", by="sex"),
    es.LinearRegression("weight ~ dose + sex"),
    es.ElasticNet(formula="weight ~ dose"),
    es.GLM("ill ~ sex + stage"),
    es.MultinomialRegression(("sex",), target="stage"),
    es.Anova("weight", ["sex", "stage"]),
    es.TTest("weight", by="sex"),
    es.VarianceTest("weight", "sex"),
    es.PairwiseTTest("weight", "stage"),
    es.Covariance(("weight", "dose")),
    es.PCA(variables=("weight", "dose")),
    es.Describe(["weight"], by="sex"),
    es.ChiSquare("sex", "stage"),
    es.FisherExact("sex", "left"),
    es.McNemar("left", "right"),
    es.Kappa("stage", "other"),
    es.CochranQ(("left", "right")),
    es.OddsRatio("sex"),
    es.MantelHaenszel("sex", "ill", strata="stage"),
    es.CochranArmitage("month"),
    es.RankCorrelation("month", "sex"),
    es.ROC("month"),
    es.Histogram("month", by="sex"),
    Counts((0, -1)),
    CrossTable((0, 2)),
    Moments((6, 7)),
]


def union() -> es.Table:
    """Return a table with slots for all people, in which some are at both sites."""
    names = [f"{LINKED} {site}" for site in "ab"]
    extended = replace(
        SCHEMA,
        variables=(
            *SCHEMA.variables,
            *(Variable(name, "categorical", levels=("yes", "no")) for name in names),
        ),
        _summaries={},
    )
    one = np.where(SHARED | (np.arange(N) % 2 == 0), "yes", "no")
    other = np.where(SHARED | (np.arange(N) % 2 == 1), "yes", "no")
    return extended.table(people().assign(**dict(zip(names, (one, other), strict=True))))


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda one: one.name)
def test_linked_totals_are_those_of_the_people_of_all_sites(question: es.Question) -> None:
    asked = prepare_question(question, SCHEMA)._fix_seed()
    public = SCHEMA.public()
    names = link_columns(public, Linkage({"a": (), "b": ()}))
    written = asked.circuit(public, question_columns(public))
    found = union().evaluate(link_totals(written, names))
    assert found == SCHEMA.table(people()[SHARED]).totals(asked)
    assert found != SCHEMA.table(people()).totals(asked)


def test_questions_that_depend_on_slots_are_refused() -> None:
    drawn = es.column("class0").resample(3).total()
    with pytest.raises(es.ArgumentError, check=error("slots-of-linked-rows", "resample")):
        link_totals([drawn], ["v9.bin0"])


def test_slots_without_a_person_hold_valid_values() -> None:
    schema = own_site_schema(SCHEMA, (0, 6, -1))
    rows = people()[["sex", "weight", "ill"]].iloc[:5].assign(**{LINKED: "yes"})
    placed = place_rows(schema.table(rows), np.array([8, 1, 3, 9, 0]), 10)
    assert len(placed) == 10
    assert placed.codes_of(2).tolist() == [0, 0, 1, 0, 1, 1, 1, 1, 0, 0]
    low = schema.variables[1].low
    assert low is not None
    assert placed.data[1][[2, 4, 5]].tolist() == [max(low, 0)] * 3
    expected = schema.table(rows).data[1][0]
    assert placed.data[1][8] == expected
