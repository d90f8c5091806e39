"""Models: classifiers that are fitted to clear and encrypted tables by the same circuit.

A model declares totals over the rows. The worker computes them; the owner decrypts them, and then
divides, takes logarithms or solves equations in the clear. Importing a model
imports no other model and not scikit-learn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from encryptedstats.lazy import import_on_use

if TYPE_CHECKING:
    from encryptedstats.models.base import TotalsClassifier, TotalsModel
    from encryptedstats.models.calibration import CalibratedModel
    from encryptedstats.models.discriminants import FisherDiscriminant, LinearMeans
    from encryptedstats.models.folds import score_folds
    from encryptedstats.models.forest import CompletelyRandomForest
    from encryptedstats.models.logistic import OneStepLogisticRegression
    from encryptedstats.models.naive_bayes import MultinomialNB, SemiparametricNB
    from encryptedstats.models.node_counts import NodeCounts
    from encryptedstats.models.pairs import AODE, TAN
    from encryptedstats.models.prediction import Votes

_MODULES: Final = {
    ".base": ("TotalsClassifier", "TotalsModel"),
    ".calibration": ("CalibratedModel",),
    ".discriminants": ("FisherDiscriminant", "LinearMeans"),
    ".folds": ("score_folds",),
    ".forest": ("CompletelyRandomForest",),
    ".logistic": ("OneStepLogisticRegression",),
    ".naive_bayes": ("MultinomialNB", "SemiparametricNB"),
    ".node_counts": ("NodeCounts",),
    ".pairs": ("AODE", "TAN"),
    ".prediction": ("Votes",),
}
__getattr__ = import_on_use(__name__, _MODULES)

__all__ = [
    "AODE",
    "TAN",
    "CalibratedModel",
    "CompletelyRandomForest",
    "FisherDiscriminant",
    "LinearMeans",
    "MultinomialNB",
    "NodeCounts",
    "OneStepLogisticRegression",
    "SemiparametricNB",
    "TotalsClassifier",
    "TotalsModel",
    "Votes",
    "score_folds",
]
