"""Models: classifiers that are fitted on clear or encrypted tables by the same circuit.

A model writes a circuit of totals; what the owner does with the opened totals (dividing, taking
logarithms, solving) is plain statistics, in the clear.
"""

from __future__ import annotations

from encryptedstats.models.base import TotalsClassifier, TotalsModel
from encryptedstats.models.calibration import CalibratedModel
from encryptedstats.models.discriminants import FisherDiscriminant, LinearMeans
from encryptedstats.models.folds import score_folds
from encryptedstats.models.forest import CompletelyRandomForest
from encryptedstats.models.logistic import OneStepLogisticRegression
from encryptedstats.models.naive_bayes import MultinomialNB, SemiparametricNB
from encryptedstats.models.pairs import AODE, TAN
from encryptedstats.models.prediction import Votes

__all__ = [
    "AODE",
    "TAN",
    "CalibratedModel",
    "CompletelyRandomForest",
    "FisherDiscriminant",
    "LinearMeans",
    "MultinomialNB",
    "OneStepLogisticRegression",
    "SemiparametricNB",
    "TotalsClassifier",
    "TotalsModel",
    "Votes",
    "score_folds",
]
