"""The seven methods of the figure on performance: each takes a split and gives a score to every
test row, higher for class 1.

Ours are the library's own classifiers, fitted to clear tables by the circuits that encrypted ones
are fitted by. The others are scikit-learn's. Scores are log-odds where a method has them:
probabilities of many predictors round to exactly 0 and 1, and ties would cost AUC that the
classifier is not to blame for.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from encryptedstats.models import CompletelyRandomForest, MultinomialNB, SemiparametricNB
from reproduction.evaluation.counting import drawn_fraction, share_of_votes
from reproduction.evaluation.samples import Sample
from reproduction.evaluation.settings import DEPTH, FRACTION, N_TREES, derived_seed

Scores = NDArray[np.float64]


def forest_seed(sample: Sample, seed: int) -> int:
    """The seed that all forests of a split grow from."""
    return derived_seed(seed, "forest", sample.data.name, sample.split)


def fraction_generator(sample: Sample, seed: int) -> np.random.Generator:
    """The generator that all stochastic fractions of a split are drawn with."""
    return np.random.default_rng(derived_seed(seed, "fraction", sample.data.name, sample.split))


def completely_random_forest(sample: Sample, seed: int) -> Scores:
    """100 trees of 3 levels, votes weighed by the drawn fraction with M = 8."""
    forest = CompletelyRandomForest(
        N_TREES, DEPTH, fraction=0, random_state=forest_seed(sample, seed), repeats=True
    ).fit(sample.train)
    weighted = forest_weights(forest, FRACTION, fraction_generator(sample, seed))
    return forest_scores(weighted, forest.apply(sample.test))


def forest_weights(
    forest: CompletelyRandomForest, fraction: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Leaf counts of a fitted forest, weighed by the drawn fraction."""
    counts = forest.leaf_counts_
    drawn = drawn_fraction(counts.sum(axis=2), int(forest.class_counts_.sum()), fraction, rng)
    weighted: NDArray[np.float64] = (counts * drawn[:, :, None]).astype(float)
    return weighted


def forest_scores(weighted: NDArray[np.float64], leaves: NDArray[np.int64]) -> Scores:
    """The share of the votes for class 1, from weighted leaf counts and the leaf of each row in
    each tree.
    """
    votes = np.zeros((len(leaves), 2))
    for t, counts in enumerate(weighted):
        votes += counts[leaves[:, t]]
    return share_of_votes(votes)


def snb_paired(sample: Sample, seed: int) -> Scores:
    """Semi-parametric naive Bayes, intercept and slope together."""
    return _snb(sample, paired=True)


def snb_unpaired(sample: Sample, seed: int) -> Scores:
    """Semi-parametric naive Bayes, intercept and slope by themselves, codes 1..m as in the paper's
    figure.
    """
    return _snb(sample, paired=False)


def _snb(sample: Sample, *, paired: bool) -> Scores:
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="constant predictors"
        )  # a rare level that no training row has
        model = SemiparametricNB(paired=paired).fit(sample.train)
    scores: Scores = model.predict_log_odds(sample.test)
    return scores


def multinomial_nb(sample: Sample, seed: int) -> Scores:
    """Multinomial naive Bayes with Laplace smoothing."""
    joint = MultinomialNB().fit(sample.train)._log_joint(sample.test)
    return np.asarray(joint[:, 1] - joint[:, 0])


def logistic_regression(sample: Sample, seed: int) -> Scores:
    """Maximum likelihood but for a ridge of 1e-4, which keeps separable classes finite."""
    from sklearn.linear_model import LogisticRegression

    train, test = sample.plain
    scores: Scores = (
        LogisticRegression(C=1e4, solver="newton-cholesky")
        .fit(train, sample.y_train)
        .decision_function(test)
    )
    return scores


def gaussian_nb(sample: Sample, seed: int) -> Scores:
    """Gaussian naive Bayes."""
    from sklearn.naive_bayes import GaussianNB

    train, test = sample.plain
    joint: Any = GaussianNB().fit(train, sample.y_train).predict_joint_log_proba(test)
    return np.asarray(joint[:, 1] - joint[:, 0])


def random_forest(sample: Sample, seed: int) -> Scores:
    """A random forest of 100 full trees."""
    from sklearn.ensemble import RandomForestClassifier

    train, test = sample.plain
    state = derived_seed(seed, "random forest", sample.data.name, sample.split) % (1 << 32)
    forest = RandomForestClassifier(100, n_jobs=1, random_state=state).fit(
        train.astype(np.float32), sample.y_train
    )
    scores: Scores = forest.predict_proba(test.astype(np.float32))[:, 1]
    return scores


#: Names as in the paper's figure; those that can be computed encrypted come first.
METHODS: Final[dict[str, Callable[[Sample, int], Scores]]] = {
    "CRF": completely_random_forest,
    "SNB-paired": snb_paired,
    "SNB-unpaired": snb_unpaired,
    "MNB": multinomial_nb,
    "LR-full": logistic_regression,
    "GNB": gaussian_nb,
    "RF": random_forest,
}
ENCRYPTABLE: Final = ("CRF", "SNB-paired", "SNB-unpaired", "MNB")
