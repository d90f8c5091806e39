"""Which model to start with: ours and scikit-learn's on the same splits, by AUC.

Ours are fitted to clear tables, which gives the totals that an owner opens. Forests are the
library's with its defaults; all depths are cut out of one, see ``counting``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from encryptedstats.models import AODE, TAN
from encryptedstats.models.pairs import PairClassifier
from encryptedstats.procedures import DecisionTree, ExtraTrees, Procedure, RandomForest
from reproduction.evaluation.counting import FastForest, shallower, share_of_votes
from reproduction.evaluation.methods import (
    Scores,
    forest_seed,
    multinomial_nb,
    random_forest,
    snb_paired,
)
from reproduction.evaluation.samples import Sample
from reproduction.evaluation.settings import N_TREES, derived_seed

FOREST_DEPTHS: Final = (3, 6)


def pair_classifier(sample: Sample, model: PairClassifier) -> Scores:
    """Log-odds of a classifier of pairs."""
    shares = model.fit(sample.train).predict_proba(sample.test)
    with np.errstate(divide="ignore"):
        scores: Scores = np.log(shares[:, 1]) - np.log(shares[:, 0])
    return scores


@lru_cache(maxsize=1)
def forests(sample: Sample, seed: int) -> dict[tuple[int, bool], Scores]:
    """Scores of forests by depth, and by whether leaf shares are averaged or counts added."""
    deepest = max(FOREST_DEPTHS)
    public = sample.schema.public()
    forest = FastForest.grow(public, N_TREES, deepest, forest_seed(sample, seed), repeats=False)
    counts = forest.counts(sample.train)
    weighted: dict[tuple[int, bool], NDArray[np.float64]] = {}
    for depth in FOREST_DEPTHS:
        added = shallower(counts, deepest - depth).astype(float)
        sizes = added.sum(axis=2, keepdims=True)
        averaged = np.divide(added, sizes, out=np.zeros_like(added), where=sizes > 0)
        weighted |= {(depth, False): added, (depth, True): averaged}
    votes = {key: np.zeros((len(sample.test), 2)) for key in weighted}
    for t, leaves in enumerate(forest.leaves(sample.test)):
        for depth, averages in weighted:
            reached = leaves >> (deepest - depth)
            votes[depth, averages] += weighted[depth, averages][t][reached]
    return {key: share_of_votes(found) for key, found in votes.items()}


def learned_trees(sample: Sample, procedure: Procedure) -> Scores:
    """Shares of the second class by trees that learn their splits from the counts of bins."""
    scores: Scores = procedure.run(sample.train).predict_proba(sample.test)[:, 1]
    return scores


def shallow_forest(sample: Sample, seed: int) -> Scores:
    """A random forest of 100 trees of 3 levels."""
    from sklearn.ensemble import RandomForestClassifier

    train, test = sample.plain
    state = _state(sample, seed, "random forest")
    forest = RandomForestClassifier(N_TREES, max_depth=3, n_jobs=1, random_state=state)
    scores: Scores = forest.fit(train, sample.y_train).predict_proba(test)[:, 1]
    return scores


def gradient_boosting(sample: Sample, seed: int) -> Scores:
    """scikit-learn's gradient boosting of histograms, with its defaults."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    train, test = sample.plain
    state = _state(sample, seed, "gradient boosting")
    model = HistGradientBoostingClassifier(random_state=state).fit(train, sample.y_train)
    scores: Scores = model.decision_function(test)
    return scores


def _state(sample: Sample, seed: int, purpose: str) -> int:
    return derived_seed(seed, purpose, sample.data.name, sample.split) % (1 << 32)


#: Ours first.
MODELS: Final[dict[str, Callable[[Sample, int], Scores]]] = {
    "AODE": lambda sample, seed: pair_classifier(sample, AODE()),
    "TAN": lambda sample, seed: pair_classifier(sample, TAN()),
    "forest of depth 6, leaf shares": lambda sample, seed: forests(sample, seed)[6, True],
    "forest of depth 6, votes": lambda sample, seed: forests(sample, seed)[6, False],
    "forest of depth 3, leaf shares": lambda sample, seed: forests(sample, seed)[3, True],
    "forest of depth 3, votes": lambda sample, seed: forests(sample, seed)[3, False],
    "MultinomialNB": multinomial_nb,
    "SemiparametricNB": snb_paired,
    "plain gradient boosting": gradient_boosting,
    "plain random forest": random_forest,
    "plain random forest of depth 3": shallow_forest,
}
#: Trees that ask in rounds: a part of its own, for each of their splits takes minutes.
LEARNED: Final[dict[str, Callable[[Sample, int], Scores]]] = {
    "learned tree of depth 3": lambda sample, seed: learned_trees(sample, DecisionTree(depth=3)),
    "learned forest of depth 3": lambda sample, seed: learned_trees(
        sample, RandomForest(N_TREES, depth=3, random_state=_state(sample, seed, "learned"))
    ),
    "learned forest of depth 6": lambda sample, seed: learned_trees(
        sample, RandomForest(N_TREES, depth=6, random_state=_state(sample, seed, "learned"))
    ),
    "learned extra trees of depth 6": lambda sample, seed: learned_trees(
        sample, ExtraTrees(N_TREES, depth=6, random_state=_state(sample, seed, "learned"))
    ),
}
OURS: Final = frozenset(name for name in MODELS if not name.startswith("plain")) | LEARNED.keys()
