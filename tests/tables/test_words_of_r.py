"""Calls as R writes them, read as questions; and questions written as words again."""

from __future__ import annotations

import pytest

import encryptedstats as es
from encryptedstats.tables.questions.question import question_key
from encryptedstats.tables.questions.words import make_questions, words_of


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
        ("wilcox.test(change, mu=1)", es.SignedRank("change", mu=1)),
        ("wilcoxon(score, by=arm)", es.MannWhitney("score", "arm")),
        ("wilcoxon(change)", es.SignedRank("change")),
        ("cor.test(a, b, method='kendall')", es.RankCorrelation("a", "b", "kendall")),
        ("spearman(a, b)", es.RankCorrelation("a", "b")),
        ("cor.test(a, b)", es.Correlation(["a", "b"])),
        ("pairwise.wilcox.test(w ~ diet, adjust=bh)", es.PairwiseMannWhitney("w", "diet", "bh")),
        ("pairwise.prop.test(ill ~ arm)", es.PairwiseProportions("ill", "arm")),
        ("pairwise_survdiff(Surv(month, died) ~ arm)", es.PairwiseLogRank("month", "died", "arm")),
        ("concordance(Surv(month, died) ~ grade)", es.Concordance("month", "grade", "died")),
        ("roc(ill ~ score)", es.ROC("score", "ill")),
        ("multinom(grade ~ arm + sex)", es.MultinomialRegression(["arm", "sex"], "grade")),
        ("manova(cbind(a, b) ~ arm)", es.Manova(["a", "b"], "arm")),
        ("kruskal.test(score ~ arm)", es.KruskalWallis("score", "arm")),
        ("quantile(age)", es.Quantiles("age")),
        ("t.test(x ~ g)", es.TTest("x", "g")),
    ],
)
def test_calls_of_r(call: str, question: es.Question) -> None:
    assert make_questions([call]) == [question]
    assert make_questions(words_of(question)) == [question]
    assert make_questions(words_of(question, call.partition("(")[0])) == [question]


@pytest.mark.parametrize("quote", ["'", '"'])
def test_formulas_in_quotes(quote: str) -> None:
    (asked,) = make_questions([f"lm({quote}v2 ~ v0 + v1{quote})"])
    assert asked.parameters() == es.LinearRegression("v2 ~ v0 + v1").parameters()


@pytest.mark.parametrize(
    "question",
    [
        es.CompletelyRandomForest(n_trees=4, depth=3, random_state=3, repeats=True),
        es.LinearRegression("v2 ~ v0 * v1 + I(v0^2)"),
        es.Ridge(2.0, "v2 ~ v0"),
        es.Anova("v0", ["v1", "a,b"]),
        es.Describe(["1", "v1"], by="v2"),
        es.LinearRegression("v2 ~ v1", reference={"v1": "low, or none"}),
        es.PiecewiseExponential("v0", variables=["v1"], cuts=[3]),
    ],
    ids=lambda question: question.name,
)
def test_words_are_read_as_the_same_question(question: es.Question) -> None:
    (found,) = make_questions(words_of(question))
    assert question_key(found) == question_key(question)


def test_one_group_is_compared() -> None:
    with pytest.raises(es.ParameterError):
        make_questions(["survdiff(Surv(month, died) ~ arm + sex)"])
