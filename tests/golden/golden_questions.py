"""The questions whose encrypted results are pinned bit by bit, and the table they are asked of."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import encryptedstats as es

STORED = Path(__file__).parent / "stored"
DEVICES = ("seal", "native")
STORED_ANSWERS = {"forest.enc": "forest with repeats", "t-test.enc": "t-test"}
N_ROWS = 60


def make_frame() -> pd.DataFrame:
    """Return a small cohort: two numbers, four factors, binned follow-up, ratings and a class."""
    i = np.arange(N_ROWS)
    return pd.DataFrame(
        {
            "age": 30 + (i * 7) % 41,
            "dose": (i * 11) % 17,
            "arm": np.where(i * 5 % 7 < 3, "control", "treated"),
            "smoker": np.where(i * 3 % 5 < 2, "yes", "no"),
            "first": np.array(["low", "mid", "high"])[i * 4 % 3],
            "second": np.array(["low", "mid", "high"])[(i * 4 + (i % 4 == 0)) % 3],
            "month": (i * 13) % 6,
            "snp": (i * 17 // 5) % 3,
            "event": (i * 29 // 7) % 2,
        }
    )


def make_schema(frame: pd.DataFrame) -> es.Schema:
    schema = es.Schema.infer(frame, target="event", bins=3)
    for name in ("age", "dose"):
        schema = schema.with_kind(name, "number", digits=0)
    for name, levels in (("month", range(6)), ("snp", range(3))):
        schema = schema.with_kind(name, "ordinal", levels=levels)
    return schema


def make_questions() -> dict[str, es.Question]:
    """Return the questions by name, with public ids instead of column names."""
    age, dose, arm, smoker, first, second, month, snp = (f"v{k}" for k in range(8))
    return {
        "anova one way": es.Anova(age, [arm]),
        "anova two ways": es.Anova(age, [arm, smoker]),
        "chi-square": es.ChiSquare(first, second),
        "chi-square of one variable": es.ChiSquare(first),
        "cochran-armitage": es.CochranArmitage(month),
        "correlation": es.Correlation((age, dose)),
        "covariance": es.Covariance((age, dose)),
        "cox score": es.CoxScore(month, variables=[arm, smoker]),
        "describe": es.Describe([age, dose]),
        "describe by arm": es.Describe([age], by=arm),
        "fisher exact": es.FisherExact(arm, smoker),
        "genome scan": es.GenomeScan([snp]),
        "glm binomial": es.GLM(f"class ~ {arm} + {smoker}"),
        "histogram": es.Histogram(month, by=arm),
        "incidence rate": es.IncidenceRate(month, by=arm),
        "kaplan-meier": es.KaplanMeier(month),
        "kaplan-meier by arm": es.KaplanMeier(month, by=arm),
        "kappa": es.Kappa(first, second),
        "life table": es.LifeTable(month),
        "linear regression": es.LinearRegression(f"{age} ~ {dose} + {arm}"),
        "linear regression with interaction": es.LinearRegression(f"{age} ~ {dose} * {smoker}"),
        "log-rank": es.LogRank(month, by=arm),
        "mantel-haenszel": es.MantelHaenszel(arm, smoker, strata=first),
        "odds ratio": es.OddsRatio(first),
        "pca": es.PCA(variables=(age, dose)),
        "piecewise exponential": es.PiecewiseExponential(month, variables=[arm], cuts=[3]),
        "ridge": es.Ridge(2.0, f"{age} ~ {dose}"),
        "roc": es.ROC(month),
        "t-test": es.TTest(age, by=arm),
        "t-test of pairs": es.TTest(age, paired=dose),
        "forest of depth 1": es.CompletelyRandomForest(n_trees=20, depth=1, random_state=3),
        "forest of depth 2": es.CompletelyRandomForest(n_trees=6, depth=2, random_state=3),
        "forest of depth 3": es.CompletelyRandomForest(n_trees=4, depth=3, random_state=3),
        "forest with repeats": es.CompletelyRandomForest(
            n_trees=6, depth=2, random_state=3, repeats=True
        ),
        "linear means": es.LinearMeans(),
        "fisher discriminant": es.FisherDiscriminant(),
        "semi-parametric naive bayes": es.SemiparametricNB(),
        "unpaired naive bayes": es.SemiparametricNB(paired=False),
        "one-step logistic": es.OneStepLogisticRegression(),
    }


def make_genome() -> es.Table:
    """Return a genome table: 12 variants in 8 lanes, with gaps, of 40 people."""
    i, j = np.arange(40)[:, None], np.arange(12)
    codes = (i * (j + 3) + j) % 3 - ((i + j) % 13 == 0) * 3
    people = pd.DataFrame({"age": np.arange(40) % 17, "sick": np.arange(40) * 7 % 5 % 2})
    return es.genome_table(codes, people, "sick", lanes=8)


def make_scans() -> dict[str, es.Question]:
    """Return the questions of the genome table by name."""
    return {
        "trend": es.GenomeScan(),
        "linear": es.GenomeScan(covariates=["v2"]),
        "linear with filled gaps": es.GenomeScan(covariates=["v2"], gaps="mean"),
    }


def digest_result(answer: Any) -> str:
    """Return a digest of the residues of an encrypted answer, whatever file holds them."""
    hasher = hashlib.sha256()
    for part in getattr(answer, "answer_", answer).ciphertexts.parts:
        hasher.update(np.ascontiguousarray(part.residues).astype("<u8").tobytes())
    return hasher.hexdigest()


def read_totals(result: object) -> object:
    """Return the opened totals of a model or a statistic, or the printed form of a table."""
    if isinstance(result, es.TotalsModel):
        return list(map(int, result.totals_))
    if isinstance(result, es.Result) and result.source is not None:
        return list(map(int, result.source.totals))
    return str(result)
