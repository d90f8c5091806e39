"""scikit-learn's own checks of every classifier in the clear. What fails is listed here, with its
reason, and nowhere else.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from model_samples import MODELS, name
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

import encryptedstats as es
from encryptedstats.models import base

# Models import scikit-learn when it is needed, and only then: see encryptedstats.models._sklearn.
pytestmark = pytest.mark.filterwarnings("ignore:Estimator .* does not inherit:UserWarning")

#: Checks that fail, by model, with the reason. What is deliberate is said in
#: encryptedstats.models.base, too.
EXPECTED = {
    "SemiparametricNB(centred=True, paired=False)": {
        "check_classifier_data_not_an_array": "an array of integers is taken as it is, the "
        "columns of a DataFrame are binned and centred: unpaired, the origin matters"
    },
}
# Enough trees for the accuracy that the checks ask for; unpaired estimates are meant for centred
# codes.
QUICK = [
    es.CompletelyRandomForest(n_trees=10, depth=3),
    es.LinearMeans(),
    es.SemiparametricNB(paired=False, centred=True),
]
# One of each kind stands for the others, which share all that scikit-learn sees.
ESTIMATORS = [*QUICK, *(model for model in MODELS[1:] if repr(model) not in map(repr, QUICK))]


def expected_failures(estimator: Any) -> dict[str, str]:
    return EXPECTED.get(repr(estimator), {})


@pytest.mark.filterwarnings("ignore:constant predictors:UserWarning")
@parametrize_with_checks(QUICK, expected_failed_checks=expected_failures)
def test_scikit_learn_is_content(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:constant predictors:UserWarning")
@parametrize_with_checks(ESTIMATORS[len(QUICK) :], expected_failed_checks=expected_failures)
def test_scikit_learn_is_content_with_the_others(estimator: Any, check: Any) -> None:
    check(estimator)


def test_the_deviations_are_documented() -> None:
    assert {repr(estimator) for estimator in ESTIMATORS} >= set(EXPECTED)
    for model, checks in EXPECTED.items():
        assert all(word in str(base.__doc__) for word in (model.split("(")[0], *checks))


# -- how numbers become bins
# ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", MODELS[:1] + MODELS[2:], ids=name)
def test_a_frame_of_numbers_and_an_array_are_the_same(model: Any) -> None:
    rng = np.random.default_rng(0)
    X = np.column_stack(
        [
            rng.normal(size=80),
            rng.integers(0, 4, 80),
            rng.integers(0, 2, 80),
            rng.integers(0, 50, 80),
        ]
    )
    y = rng.integers(0, 2, 80)
    as_array = clone(model).fit(X, y)
    as_frame = clone(model).fit(
        pd.DataFrame(X, columns=list("abcd")), pd.Series(y, index=range(80, 160))
    )
    assert as_array.totals_ == as_frame.totals_
    assert [v.n_bins for v in as_array.schema_.variables] == [5, 4, 2, 5]


def test_few_numbers_are_cut_between_any_two_and_new_ones_are_known() -> None:
    X = pd.DataFrame({"grade": [1, 1, 1, 1, 1, 1, 1, 2, 3, 7]})
    model = es.CompletelyRandomForest(n_trees=2).fit(X, [0, 1] * 5)
    assert model.schema_["grade"].edges == (1, 2, 3)  # quantiles would have left two bins
    assert len(model.predict(pd.DataFrame({"grade": [0, 4, 99]}))) == 3


def test_a_predictor_may_have_the_name_of_the_target() -> None:
    X = pd.DataFrame({"target": [1.0, 2.0, 3.0, 4.0], "q": list("abab")})
    assert es.LinearMeans().fit(X, [0, 1, 0, 1]).schema_.target == "target_"
    assert es.LinearMeans().fit(X, pd.Series([0, 1, 0, 1], name="sick")).schema_.target == "sick"


def test_labels_of_any_type_come_back() -> None:
    X = np.arange(8.0).reshape(-1, 1)
    for labels in (["a", "b"], [False, True], [-1, 1], [1.0, 2.0]):
        model = es.LinearMeans().fit(X, np.array(labels).repeat(4))
        assert model.predict(X[[0, -1]]).tolist() == labels
        assert model.classes_.tolist() == labels
