"""A form of the owner's page for every question, and rows that all of them can be asked of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd


def cohort(n: int = 240) -> pd.DataFrame:
    """Return rows with columns for every question: numbers, levels, times, ratings, genotypes."""
    rng = np.random.default_rng(7)
    age = rng.integers(30, 80, n)
    sex = rng.choice(["female", "male"], n)
    ill = np.where(age + rng.normal(0, 15, n) > 55, "yes", "no")
    weight = (60 + 12 * (sex == "male") + rng.normal(0, 8, n)).round()
    rated = rng.choice(["low", "mid", "high"], n)
    again = np.where(rng.random(n) < 0.7, rated, rng.choice(["low", "mid", "high"], n))
    return pd.DataFrame(
        {
            "patient": [f"P{i:04d}" for i in range(n)],
            "age": age,
            "sex": sex,
            "arm": rng.choice(["placebo", "low dose", "high dose"], n),
            "weight": weight,
            "weight_after": (weight + rng.normal(-1, 3, n)).round(),
            "months": rng.integers(1, 13, n),
            "died": rng.choice(["no", "yes"], n, p=[0.6, 0.4]),
            "cause": rng.choice(["none", "heart", "other"], n, p=[0.5, 0.3, 0.2]),
            "rated": rated,
            "rated_again": again,
            "snp_1": rng.binomial(2, 0.3, n),
            "snp_2": rng.binomial(2, 0.5, n),
            "ill": ill,
        }
    )


_TWO = {"variable": "weight", "by": "sex"}
_PAIR = {"first": "rated", "second": "rated_again"}
_SURVIVAL = {"time": "months", "event": "died", "event_level": '"yes"'}
_FACTORS = {**_SURVIVAL, "variables": ["arm", "sex"]}
_NUMBERS = {"variables": ["age", "weight", "weight_after"]}
_REGRESSION = {"target": "weight", "variables": ["age", "sex"]}
_EXPOSURE = {"exposure": "arm", "target": "ill"}
_MODEL = {"outcome-column": "ill", "variables": ["age", "sex", "arm"]}

#: What is typed into the form of each question.
FORMS: dict[str, dict[str, Any]] = {
    "AODE": _MODEL,
    "Anova": {"variable": "weight", "by": ["arm", "sex"]},
    "ChiSquare": {"first": "arm", "second": "ill"},
    "CochranArmitage": {"exposure": "months", "target": "ill"},
    "CompletelyRandomForest": {**_MODEL, "n_trees": "5", "depth": "2"},
    "Correlation": _NUMBERS,
    "Covariance": _NUMBERS,
    "CochranQ": {"variables": ["sex", "died", "ill"]},
    "Concordance": {**_SURVIVAL, "score": "age"},
    "CoxRegression": _FACTORS,
    "CoxScore": _FACTORS,
    "CronbachAlpha": _NUMBERS,
    "CumulativeIncidence": {"time": "months", "event": "cause", "censored": '"none"', "by": "sex"},
    "Describe": {"variables": ["age", "weight"], "by": "sex"},
    "ElasticNet": {**_REGRESSION, "alpha": "0.5"},
    "FisherDiscriminant": _MODEL,
    "FisherExact": {"first": "sex", "second": "ill"},
    "GLM": {"target": "ill", "variables": ["sex", "arm"], "reference-of-arm": '"placebo"'},
    "GenomeScan": {"variables": ["snp_1", "snp_2"], "target": "ill"},
    "Histogram": {"variable": "age", "by": "sex"},
    "IncidenceRate": {**_SURVIVAL, "by": "sex"},
    "KaplanMeier": {**_SURVIVAL, "by": "arm"},
    "Kappa": _PAIR,
    "KruskalWallis": {"variable": "weight", "by": "arm"},
    "LifeTable": {**_SURVIVAL, "by": "sex"},
    "LinearDiscriminant": {**_NUMBERS, "outcome-column": "ill"},
    "LinearMeans": _MODEL,
    "LinearRegression": _REGRESSION,
    "LogRank": {**_SURVIVAL, "by": "arm", "strata": "sex"},
    "MannWhitney": _TWO,
    "MantelHaenszel": {"exposure": "sex", "target": "ill", "strata": "arm"},
    "Manova": {"variables": ["weight", "weight_after"], "by": "arm"},
    "McNemar": _PAIR,
    "MultinomialRegression": {"target": "rated", "variables": ["sex", "arm"], "base": '"mid"'},
    "MultinomialNB": _MODEL,
    "OddsRatio": {**_EXPOSURE, "reference": '"placebo"', "event": '"yes"'},
    "OneStepLogisticRegression": _MODEL,
    "PCA": {**_NUMBERS, "n_components": "2"},
    "Pairs": {"outcome-column": "ill", "variables": ["sex", "arm", "rated"]},
    "PairwiseLogRank": {**_SURVIVAL, "by": "arm"},
    "PairwiseMannWhitney": {"variable": "weight", "by": "arm"},
    "PairwiseProportions": {"target": "ill", "by": "arm", "event": '"yes"'},
    "PairwiseTTest": {"variable": "weight", "by": "arm"},
    "PartialCorrelation": {"variables": ["weight", "weight_after"], "covariates": ["age"]},
    "PiecewiseExponential": {**_FACTORS, "cuts": "4, 8"},
    "QuadraticDiscriminant": {**_NUMBERS, "outcome-column": "ill"},
    "Quantiles": _TWO,
    "ROC": {"score": "months", "target": "ill"},
    "RankCorrelation": {"variable": "age", "other": "months", "coefficient": "kendall"},
    "Ridge": _REGRESSION,
    "SemiparametricNB": {"outcome-column": "ill", "variables": ["age", "weight"]},
    "SignedRank": {"variable": "weight", "mu": "66"},
    "StandardisedRate": {"by": "sex", "strata": "arm", "target": "died", "exposure": "months"},
    "TAN": _MODEL,
    "TTest": {**_TWO, "groups": ['"female"', '"male"']},
    "VarianceTest": {"variable": "weight", "by": "sex", "method": "f"},
}


def filled(fields: Iterable[Any], changed: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a browser sends of a form whose fields have their defaults but for some."""
    sent: dict[str, Any] = {}
    for one in fields:
        if one.kind == "flag":
            sent |= {one.name: "on"} if one.value else {}
        elif one.value not in ("", None, []):
            sent[one.name] = one.value
    return sent | dict(changed)
