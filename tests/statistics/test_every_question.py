"""Every question of the package, asked of rows that are encrypted, split, folded, and at several
sites: always what the plain table gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from asked_samples import small_owner

import encryptedstats as es
from encryptedstats.method_status import STATUS
from encryptedstats.studies.totals import encrypt_answer, site_values
from encryptedstats.tables.answers.answer import Answer
from encryptedstats.tables.answers.schema_check import decrypt_answer
from encryptedstats.tables.questions.folds import folds_of
from encryptedstats.tables.questions.question import prepare_question
from encryptedstats.tables.questions.summaries import Counts, CrossTable, Moments
from error_codes import error

ENCODINGS = ("onehot", "ordinal", "centred", "grid")
N_FOLDS = 3


@cache
def cohort() -> pd.DataFrame:
    """Return rows with columns for every question."""
    rng, n = np.random.default_rng(7), 90
    sex = rng.choice(["female", "male"], n)
    weight = (60 + 12 * (sex == "male") + rng.normal(0, 8, n)).round()
    return pd.DataFrame(
        {
            "age": rng.integers(30, 60, n),
            "weight": weight,
            "after": (weight + rng.normal(-1, 3, n)).round(),
            "sex": sex,
            "arm": rng.choice(["placebo", "low", "high"], n),
            "month": rng.integers(1, 6, n),
            "died": rng.choice(["no", "yes"], n),
            "left": rng.choice(["no", "yes"], n),
            "rated": rng.choice(["low", "mid", "high"], n),
            "again": rng.choice(["low", "mid", "high"], n),
            "snp": rng.binomial(2, 0.4, n),
            "ill": rng.choice(["no", "yes"], n),
        }
    )


@cache
def schema() -> es.Schema:
    numbers = dict.fromkeys(("age", "weight", "after"), "both")
    known = es.Schema.infer(cohort(), target="ill", bins=3, kinds=numbers)
    known = known.with_kind("month", "ordinal", levels=range(1, 6))
    return known.with_kind("snp", "ordinal", levels=range(3))


def table(rows: slice = slice(None), **options: Any) -> es.Table:
    return schema().table(cohort().iloc[rows], slots=1024, **options)


FACTORS = ["sex", "arm"]
NUMBERS = ("age", "weight", "after")
QUESTIONS: dict[str, es.Question] = {
    "AODE": es.AODE(variables=["sex", "arm", "rated"]),
    "Anova": es.Anova("weight", FACTORS),
    "ChiSquare": es.ChiSquare("arm", "ill"),
    "CochranArmitage": es.CochranArmitage("month"),
    "CochranQ": es.CochranQ(("died", "left", "ill")),
    "CompletelyRandomForest": es.CompletelyRandomForest(n_trees=4, depth=2, random_state=1),
    "Concordance": es.Concordance("month", "snp"),
    "Correlation": es.Correlation(NUMBERS),
    "Covariance": es.Covariance(NUMBERS),
    "CoxRegression": es.CoxRegression("month", variables=FACTORS),
    "CoxScore": es.CoxScore("month", variables=FACTORS),
    "CronbachAlpha": es.CronbachAlpha(NUMBERS),
    "CumulativeIncidence": es.CumulativeIncidence("month", event="rated", by="sex"),
    "Describe": es.Describe(["weight"], by="sex"),
    "ElasticNet": es.ElasticNet(0.5, 0.5, "weight ~ age + sex"),
    "FisherDiscriminant": es.FisherDiscriminant(variables=["sex", "arm"]),
    "FisherExact": es.FisherExact("sex", "died"),
    "GLM": es.GLM("ill ~ sex + arm"),
    "GenomeScan": es.GenomeScan(["snp"]),
    "Histogram": es.Histogram("age", by="sex"),
    "IncidenceRate": es.IncidenceRate("month", by="arm"),
    "KaplanMeier": es.KaplanMeier("month", by="arm"),
    "Kappa": es.Kappa("rated", "again"),
    "KruskalWallis": es.KruskalWallis("weight", "arm"),
    "LifeTable": es.LifeTable("month"),
    "LinearDiscriminant": es.LinearDiscriminant(variables=["age", "weight"]),
    "LinearMeans": es.LinearMeans(variables=["sex", "arm"]),
    "LinearRegression": es.LinearRegression("weight ~ age * sex"),
    "LogRank": es.LogRank("month", by="arm", strata="sex"),
    "MannWhitney": es.MannWhitney("weight", "sex"),
    "Manova": es.Manova(("weight", "after"), "arm"),
    "MantelHaenszel": es.MantelHaenszel("sex", "ill", strata="arm"),
    "McNemar": es.McNemar("rated", "again"),
    "MultinomialNB": es.MultinomialNB(),
    "MultinomialRegression": es.MultinomialRegression(("sex", "arm"), target="rated"),
    "OddsRatio": es.OddsRatio("arm"),
    "OneStepLogisticRegression": es.OneStepLogisticRegression(variables=["sex", "arm"]),
    "PCA": es.PCA(variables=NUMBERS),
    "Pairs": es.Pairs(["sex", "arm", "rated"]),
    "PairwiseLogRank": es.PairwiseLogRank("month", by="arm"),
    "PairwiseMannWhitney": es.PairwiseMannWhitney("weight", "arm"),
    "PairwiseProportions": es.PairwiseProportions("died", "arm"),
    "PairwiseTTest": es.PairwiseTTest("weight", "arm"),
    "PartialCorrelation": es.PartialCorrelation(("weight", "after"), covariates=("age",)),
    "PiecewiseExponential": es.PiecewiseExponential("month", variables=FACTORS, cuts=[3]),
    "QuadraticDiscriminant": es.QuadraticDiscriminant(variables=["age", "weight"]),
    "Quantiles": es.Quantiles("weight", "sex"),
    "ROC": es.ROC("month"),
    "RankCorrelation": es.RankCorrelation("month", "snp"),
    "Ridge": es.Ridge(2.0, "weight ~ age + sex"),
    "SemiparametricNB": es.SemiparametricNB(variables=["sex", "arm"]),
    "SignedRank": es.SignedRank("weight", mu=66),
    "StandardisedRate": es.StandardisedRate("sex", "arm", target="died", exposure="age"),
    "TAN": es.TAN(variables=["sex", "arm", "rated"]),
    "TTest": es.TTest("weight", by="sex"),
    "VarianceTest": es.VarianceTest("weight", "sex"),
    "counts": Counts((3, 4)),
    "crosstab": CrossTable((3, 4)),
    "moments": Moments((0, 1)),
}
IN_IDS = {
    name: prepare_question(question, schema())._fix_seed() for name, question in QUESTIONS.items()
}
every_question = pytest.mark.parametrize("name", QUESTIONS)


@cache
def sealed(rows: tuple[int, int], **options: Any) -> es.EncryptedTable:
    return small_owner().encrypt(table(slice(*rows), **options), encodings=ENCODINGS)


def totals(rows: es.Table, question: es.Question) -> list[int]:
    return [int(total) for total in rows.totals(question)]


def opened(answer: Answer) -> list[int]:
    return [int(total) for total in decrypt_answer(answer, small_owner().decryptor).totals]


def added(answers: Sequence[Answer]) -> Answer:
    total = answers[0]
    for one in answers[1:]:
        total = total + one
    return total


def test_all_questions_are_here() -> None:
    assert set(QUESTIONS) == set(STATUS)


@every_question
def test_an_encrypted_answer_is_that_of_the_plain_rows(name: str) -> None:
    asked = IN_IDS[name]
    answer = sealed((0, 90))._answer_to(asked)
    assert opened(answer) == totals(table(), asked)
    assert small_owner().open(answer, schema()) is not None


@every_question
def test_answers_of_parts_add_up(name: str) -> None:
    asked, parts = IN_IDS[name], ((0, 50), (50, 90))
    both = added([sealed(part)._answer_to(asked) for part in parts])
    assert opened(both) == totals(table(), asked)
    assert opened(both - sealed(parts[0])._answer_to(asked)) == totals(table(slice(50, 90)), asked)


@every_question
def test_sites_that_compute_at_home_give_the_same(name: str) -> None:
    asked, parts = IN_IDS[name], (slice(0, 30), slice(30, 60), slice(60, 90))
    wanted = totals(table(), asked)
    masked = np.sum([site_values(asked, table(part)) for part in parts], axis=0, dtype=object)
    assert masked.tolist() == [*wanted, 90, 0]
    keys = small_owner().public_keys()
    sent = added([encrypt_answer(asked, table(part), keys) for part in parts])
    assert opened(sent) == wanted


@every_question
def test_folds_leave_out_their_rows(name: str) -> None:
    """Questions that do not count classes cannot be asked by fold, and say so."""
    asked, rows = IN_IDS[name], table(folds=N_FOLDS)
    if "class_counts" not in asked.shapes(schema().public()):
        with pytest.raises(es.ArgumentError, check=error("question-without-classes")):
            folds_of(asked, N_FOLDS).check(schema().public())
        return
    answer = sealed((0, 90), folds=N_FOLDS)._answer_to(folds_of(asked, N_FOLDS))
    for fold, one in enumerate(small_owner().open(answer, schema())):
        kept = cohort().iloc[np.flatnonzero(rows.fold_codes != fold)]
        found = one.answer_ if isinstance(one, es.TotalsModel) else one.source
        assert list(found.totals) == totals(schema().table(kept, slots=1024), asked)
