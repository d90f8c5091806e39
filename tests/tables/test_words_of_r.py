"""Calls as R writes them, read as questions."""

from __future__ import annotations

import pytest

import encryptedstats as es
from encryptedstats.tables.questions.words import make_questions


@pytest.mark.parametrize(
    ("call", "question"),
    [
        (
            "coxph(Surv(month, died) ~ arm + sex)",
            es.CoxRegression("month", "died", ["arm", "sex"]),
        ),
        (
            "coxph(Surv(month, died) ~ arm + strata(site), ties=breslow)",
            es.CoxRegression("month", "died", ["arm"], ["site"], ties="breslow"),
        ),
        (
            "survdiff(Surv(month, died) ~ arm + strata(site))",
            es.LogRank("month", "died", "arm", strata="site"),
        ),
        ("survfit(Surv(month, died) ~ arm)", es.KaplanMeier("month", "died", "arm")),
        ("cuminc(Surv(month, end) ~ arm)", es.CumulativeIncidence("month", "end", "arm")),
        ("wilcox.test(score ~ arm)", es.MannWhitney("score", "arm")),
        ("kruskal.test(score ~ arm)", es.KruskalWallis("score", "arm")),
        ("quantile(age)", es.Quantiles("age")),
        ("t.test(x ~ g)", es.TTest("x", "g")),
    ],
)
def test_calls_of_r(call: str, question: es.Question) -> None:
    assert make_questions([call]) == [question]


def test_one_group_is_compared() -> None:
    with pytest.raises(es.ParameterError):
        make_questions(["survdiff(Surv(month, died) ~ arm + sex)"])
