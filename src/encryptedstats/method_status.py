"""The status of every question: what it counts, how exact it is, and what may be done with it.

Imports questions and what may be published of them; the command line and the documents show it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    import pandas as pd


class MethodStatus(NamedTuple):
    """What a question counts, and what its tests compare it with."""

    totals: str
    products: str  #: how many columns are multiplied in a total, at most
    compared: str
    approximation: str = ""  #: in which respect the result is not that of the plain rows


_CELLS: Final = "rows of cells"
_TIMES: Final = "rows by time, event and cell"
_BY_GROUP: Final = "rows, sums and squares by group"
_MOMENTS: Final = "sums of products"
_VALUES: Final = "rows of each value of a number"
_ONE_STEP: Final = "one Newton step in place of convergence"

#: One for every question of this package.
STATUS: Final[dict[str, MethodStatus]] = {
    "AODE": MethodStatus("rows of pairs of bins", "3", "its formula"),
    "Anova": MethodStatus(_BY_GROUP, "2 + factors", "statsmodels, R"),
    "ChiSquare": MethodStatus(_CELLS, "2", "SciPy, R"),
    "CochranArmitage": MethodStatus(_CELLS, "2", "statsmodels, R"),
    "CochranQ": MethodStatus(_CELLS, "variables", "statsmodels, R"),
    "CompletelyRandomForest": MethodStatus(
        "rows of leaves", "depth + 1", "counts by hand, the paper"
    ),
    "Concordance": MethodStatus(_TIMES, "3", "lifelines, R (survival)"),
    "Correlation": MethodStatus(_MOMENTS, "2", "SciPy, R"),
    "Covariance": MethodStatus(_MOMENTS, "2", "NumPy, R"),
    "CoxRegression": MethodStatus(_TIMES, "2 + variables", "R (survival)"),
    "CoxScore": MethodStatus("sums of products by time", "4", "statsmodels, R", _ONE_STEP),
    "CronbachAlpha": MethodStatus(_MOMENTS, "2", "its formula, R"),
    "CumulativeIncidence": MethodStatus(_TIMES, "3", "R (survival, cmprsk)"),
    "Describe": MethodStatus(_BY_GROUP, "5", "pandas, SciPy"),
    "ElasticNet": MethodStatus(_MOMENTS, "3", "scikit-learn"),
    "FisherDiscriminant": MethodStatus(_MOMENTS, "3", "scikit-learn"),
    "FisherExact": MethodStatus(_CELLS, "2", "SciPy, R"),
    "GLM": MethodStatus(_CELLS, "1 + variables", "statsmodels, R"),
    "GenomeScan": MethodStatus("sums and squares by variant", "2", "SciPy, statsmodels, PLINK"),
    "Histogram": MethodStatus(_CELLS, "2", "NumPy"),
    "IncidenceRate": MethodStatus("events and time by group", "3", "SciPy, R"),
    "KaplanMeier": MethodStatus(_TIMES, "3", "lifelines, R"),
    "Kappa": MethodStatus(_CELLS, "2", "scikit-learn, statsmodels, R"),
    "KruskalWallis": MethodStatus(_VALUES, "3", "SciPy"),
    "LifeTable": MethodStatus(_TIMES, "3", "its formula"),
    "LinearDiscriminant": MethodStatus(_MOMENTS, "3", "scikit-learn, R"),
    "LinearMeans": MethodStatus("class sums", "2", "scikit-learn"),
    "LinearRegression": MethodStatus(_MOMENTS, "3", "statsmodels, NIST, R"),
    "LogRank": MethodStatus(_TIMES, "4", "lifelines, R"),
    "MannWhitney": MethodStatus(_VALUES, "3", "SciPy"),
    "Manova": MethodStatus(_BY_GROUP, "3", "R"),
    "MantelHaenszel": MethodStatus(_CELLS, "3", "statsmodels, R"),
    "McNemar": MethodStatus(_CELLS, "2", "statsmodels"),
    "MultinomialNB": MethodStatus("rows of bins", "2", "counts by hand, the paper"),
    "MultinomialRegression": MethodStatus(_CELLS, "1 + variables", "statsmodels, R (nnet)"),
    "OddsRatio": MethodStatus(_CELLS, "2", "statsmodels"),
    "OneStepLogisticRegression": MethodStatus(_MOMENTS, "3", "the paper", _ONE_STEP),
    "PCA": MethodStatus(_MOMENTS, "2", "scikit-learn, R"),
    "Pairs": MethodStatus("rows of pairs of bins", "3", "pandas, SciPy, scikit-learn"),
    "PairwiseLogRank": MethodStatus(_TIMES, "3", "lifelines, R (survival)"),
    "PairwiseMannWhitney": MethodStatus(_VALUES, "3", "SciPy, R"),
    "PairwiseProportions": MethodStatus(_CELLS, "2", "SciPy, R"),
    "PairwiseTTest": MethodStatus(_BY_GROUP, "3", "SciPy, statsmodels"),
    "PartialCorrelation": MethodStatus(_MOMENTS, "2", "regression residuals"),
    "PiecewiseExponential": MethodStatus(_TIMES, "2 + variables", "statsmodels"),
    "QuadraticDiscriminant": MethodStatus(_MOMENTS, "3", "scikit-learn, R"),
    "Quantiles": MethodStatus(_VALUES, "3", "NumPy"),
    "ROC": MethodStatus(_CELLS, "2", "scikit-learn, R"),
    "RankCorrelation": MethodStatus(_CELLS, "2", "SciPy"),
    "Ridge": MethodStatus(_MOMENTS, "3", "scikit-learn"),
    "SemiparametricNB": MethodStatus("sums by class", "2", "the paper", _ONE_STEP),
    "SignedRank": MethodStatus(_VALUES, "3", "SciPy"),
    "StandardisedRate": MethodStatus(_CELLS, "3", "its formulas, SciPy"),
    "TAN": MethodStatus("rows of pairs of bins", "3", "its formula"),
    "TTest": MethodStatus(_BY_GROUP, "3", "SciPy, statsmodels, R"),
    "VarianceTest": MethodStatus(_BY_GROUP, "3", "SciPy, R"),
    "counts": MethodStatus(_CELLS, "2", "pandas"),
    "crosstab": MethodStatus(_CELLS, "2", "pandas"),
    "moments": MethodStatus(_MOMENTS, "2", "NumPy"),
}


#: Classifiers with their defaults by mean AUC on the data sets of the evaluation, the best first.
BY_AUC: Final = ("AODE", "TAN", "CompletelyRandomForest", "MultinomialNB", "SemiparametricNB")
ADVICE: Final = (
    "Classifiers by mean AUC on the 19 data sets of the evaluation: aode, forest depth=6, tan, "
    "forest depth=3, mnb, snb"
)


def methods() -> pd.DataFrame:
    """Return the status of every question that can be asked here.

    Returns
    -------
    DataFrame
        By name: ``title``, ``kind`` ("model" or "statistic"), ``totals`` that are opened,
        ``products`` (how many columns are multiplied in a total, at most), ``exact`` (whether the
        result is that of the plain rows in their bins), ``note``, ``predicts`` ("encrypted",
        "opened" or nothing), ``released`` (whether it can be released with noise),
        ``compared_with``, and ``auc_rank`` (of classifiers with their defaults, by mean AUC on the
        data sets of the evaluation; empty for others). Questions of installed packages have no
        totals and no comparison here.

    Examples
    --------
    >>> import encryptedstats as es
    >>> es.methods().loc["TTest", "compared_with"]
    'SciPy, statsmodels, R'
    """
    import pandas as pd

    from encryptedstats.models.base import TotalsModel
    from encryptedstats.publishing.tables import WRITTEN
    from encryptedstats.tables.questions.question import Question
    from encryptedstats.tables.questions.words import find_question_types

    lines = {}
    for name, question in sorted(find_question_types().items(), key=lambda item: item[0].lower()):
        status = STATUS.get(name, MethodStatus("", "0", ""))
        answers_encrypted = question.answers is not Question.answers and not question.why_opened
        predicts = hasattr(question, "predict")
        lines[name] = {
            "title": question.title or name,
            "kind": "model" if issubclass(question, TotalsModel) else "statistic",
            "totals": status.totals,
            "products": status.products,
            "exact": name in STATUS and not status.approximation,
            "note": status.approximation,
            "predicts": "encrypted" if answers_encrypted else "opened" if predicts else "",
            "released": name in WRITTEN,
            "compared_with": status.compared,
            "auc_rank": f"{BY_AUC.index(name) + 1} of {len(BY_AUC)}" if name in BY_AUC else "",
        }
    return pd.DataFrame.from_dict(lines, orient="index").rename_axis("question")
