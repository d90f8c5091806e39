"""Tables of releases: the numbers that have noise, and nothing else.

Standard errors, intervals, test statistics and p-values are computed as if there were no noise, so
they are too optimistic. They are shown to the owner with a remark and never written to a table for
others. `WRITTEN` lists what is written for each question; a question that is not listed has no such
table.
"""

from __future__ import annotations

from typing import Any, Final

import pandas as pd

from encryptedstats.errors import Cure, ParameterError

#: All columns: they are levels, classes or variables, and hold counts or sums.
_ALL: Final = None
_ESTIMATE: Final = ("estimate",)
#: For each question: the columns (or, of a table with one column "value", the rows) that are
#: written.
WRITTEN: Final[dict[str, tuple[str, ...] | None]] = {
    **dict.fromkeys(
        ("counts", "crosstab", "Histogram", "ChiSquare", "FisherExact", "moments"), _ALL
    ),
    **dict.fromkeys(("Covariance", "Correlation", "PCA", "Ridge"), _ALL),
    **dict.fromkeys(("MultinomialNB", "SemiparametricNB", "CompletelyRandomForest"), _ALL),
    **dict.fromkeys(
        ("GLM", "CoxRegression", "PiecewiseExponential", "LinearRegression"), _ESTIMATE
    ),
    "RankCorrelation": _ALL,
    "Anova": ("df", "sum_sq", "mean_sq"),
    "CochranArmitage": ("score", "rows", "events", "share"),
    **dict.fromkeys(("AODE", "TAN", "RankCorrelation"), _ALL),
    **dict.fromkeys(("CoxRegression", "Pairs"), _ESTIMATE),
    "CumulativeIncidence": ("at_risk", "events", "incidence"),
    "CochranQ": ("rows", "yes", "share"),
    "Concordance": ("rows", "events"),
    "MultinomialRegression": _ESTIMATE,
    "PairwiseLogRank": ("rows", "events"),
    "PairwiseProportions": ("rows", "events", "share"),
    "StandardisedRate": ("events", "exposed", "crude", "standardised", "expected", "smr"),
    "Kappa": _ALL,
    "McNemar": _ALL,
    "PartialCorrelation": _ALL,
    "PairwiseTTest": ("n", "mean", "sd"),
    "VarianceTest": ("n", "mean", "sd"),
    "CronbachAlpha": ("mean", "sd", "alpha without it"),
    "KaplanMeier": ("at_risk", "events", "censored", "survival"),
    "LifeTable": (
        "end",
        "entered",
        "withdrawn",
        "events",
        "exposed",
        "event_share",
        "survival",
        "hazard",
    ),
    "LogRank": ("rows", "observed", "expected"),
    "MantelHaenszel": (
        "exposed, event",
        "exposed, none",
        "unexposed, event",
        "unexposed, none",
        "odds_ratio",
    ),
    "OddsRatio": ("rows", "events", "risk", "odds_ratio", "risk_ratio", "risk_difference"),
    "ROC": ("fpr", "tpr"),
    "TTest": ("n", "mean", "sd"),
}


def check_written(question: str) -> None:
    """Refuse a question of which no table is written: before its release is paid for."""
    if question not in WRITTEN:
        raise ParameterError(
            f"of a released {question} no table is written, because it is not known which of its "
            "columns may be published: ",
            Cure("save the release", "save it with release.save(path)"),
        )


def release_table(question: str, result: Any) -> pd.DataFrame:
    """Return the table of a released result without the columns that must not be published."""
    check_written(question)
    made = result.summary() if hasattr(result, "fit") else result
    table: pd.DataFrame = made if isinstance(made, pd.DataFrame) else made.to_frame()
    names = WRITTEN[question]
    if names is _ALL:
        return table
    if list(table.columns) == ["value"]:
        return table.loc[[row for row in table.index if row in names]]
    return table[[column for column in table.columns if column in names]]
