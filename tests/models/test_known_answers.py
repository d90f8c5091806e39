"""The paper's own numbers: the semi-parametric naive Bayes of its appendix, its errata, and the
shrinkage of one step.
"""

from __future__ import annotations

from fractions import Fraction
from math import comb
from typing import Any

import numpy as np
import pandas as pd
import pytest
from model_samples import name, random_table
from scipy.special import expit

import encryptedstats as es
from encryptedstats.tables import Variable
from error_codes import error

X = np.array([[1, 5, 3, 1, 2, 5, 2, 4, 1, 3], [5, 5, 3, 2, 3, 4, 4, 4, 3, 2]]).T
Y = np.array([0, 0, 1, 1, 1, 1, 1, 0, 0, 1])
A, B, D = [110, 462], [-8, -120], [221, 105]
E = [
    [102, -138], [70, -138], [86, 102], [102, 222], [94, 102], [70, -18], [94, -18], [78, -18], [102, 102], [86, 222],
]  # fmt: skip
PROBABILITIES = [
    0.2212818, 0.1973391, 0.7221404, 0.8975560, 0.7293452, 0.4353264, 0.4621838, 0.4442447, 0.7364313, 0.8907048,
]  # fmt: skip
FRAME = pd.DataFrame(X, columns=["x1", "x2"]).assign(y=Y)


def number_schema(low: int = 1, high: int = 5) -> es.Schema:
    known = es.Schema.infer(FRAME, target="y")
    for column in ("x1", "x2"):
        known = known.with_kind(column, "number", digits=0, low=low, high=high)
    return known


def ordinal_schema() -> es.Schema:
    known = es.Schema.infer(FRAME, target="y")
    for column in ("x1", "x2"):
        known = known.with_kind(column, "ordinal", levels=(1, 2, 3, 4, 5))
    return known


def assert_the_papers(model: es.SemiparametricNB, rows: Any) -> None:
    assert model.class_counts_.tolist() == [4, 6]
    assert (model.a_, model.b_, model.d_) == (A, B, D)
    e, d = model.predict_raw(rows)
    assert e.tolist() == E
    assert d == D
    np.testing.assert_allclose(model.predict_proba(rows)[:, 1], PROBABILITIES, atol=1e-7, rtol=0)
    np.testing.assert_allclose(model.predict_proba(rows).sum(axis=1), 1)


def test_the_papers_example_on_an_integer_array() -> None:
    assert_the_papers(es.SemiparametricNB().fit(X, Y), X)


@pytest.mark.parametrize(
    "known", [number_schema(), ordinal_schema()], ids=["numbers", "ordinal codes"]
)
def test_the_papers_example_on_a_clear_table(known: es.Schema) -> None:
    assert_the_papers(es.SemiparametricNB().fit(known.table(FRAME)), FRAME)


@pytest.mark.parametrize(
    "known", [number_schema(), ordinal_schema()], ids=["numbers", "ordinal codes"]
)
@pytest.mark.parametrize("scheme", ["bfv", "bgv"])
def test_the_papers_example_encrypted(scheme: Any, known: es.Schema) -> None:
    model = es.SemiparametricNB()
    plan = es.plan(model, known, len(FRAME), scheme=scheme)
    assert (plan.parameters.scheme, plan.security >= 128) == (scheme, True)
    owner = es.Owner(plan)
    model.fit(owner.encrypt(known.table(FRAME)))
    assert model.is_encrypted
    assert_the_papers(owner.open(model), FRAME)


def test_integers_beyond_those_of_the_training_rows_can_be_predicted() -> None:
    model = es.SemiparametricNB().fit(X, Y)
    e, _ = model.predict_raw(np.array([[100, -100]]))
    assert e.tolist() == [[110 - 800, 462 + 12000]]


# -- theta: the paper prints its inverse
# ---------------------------------------------------------------------------------


def test_theta_is_n0_over_n1() -> None:
    model = es.SemiparametricNB().fit(X, Y)
    expected = np.log(4 / 6) + (np.array(E) / D).sum(axis=1)
    np.testing.assert_allclose(model.predict_log_odds(X), expected, rtol=1e-13)


def test_one_predictor_has_no_theta() -> None:
    model = es.SemiparametricNB().fit(X[:, :1], Y)
    np.testing.assert_allclose(
        model.predict_log_odds(X[:, :1]), (110 - 8 * X[:, 0]) / 221, rtol=1e-13
    )


# -- paired and unpaired
# ------------------------------------------------------------------------------------------------


def test_unpaired_equals_paired_where_means_are_0() -> None:
    centred = np.column_stack(
        [[-2, -2, -1, -1, 0, 0, 1, 1, 2, 2], [2, -2, 1, -1, 0, 1, -1, 0, 2, -2]]
    )
    paired, unpaired = (es.SemiparametricNB(paired=p).fit(centred, Y) for p in (True, False))
    np.testing.assert_allclose(
        paired.predict_log_odds(centred), unpaired.predict_log_odds(centred), rtol=1e-12
    )


def test_unpaired_differs_from_paired_where_they_are_not() -> None:
    paired, unpaired = (es.SemiparametricNB(paired=p).fit(X, Y) for p in (True, False))
    assert np.abs(paired.predict_log_odds(X) - unpaired.predict_log_odds(X)).max() > 0.1


def test_unpaired_estimates_and_their_raw_prediction() -> None:
    model = es.SemiparametricNB(paired=False).fit(X, Y)
    z = 4 * Y - 2
    assert model.a_ == [int(z.sum())] * 2
    assert model.b_ == [10, 2]  # the paper's sums of x z
    assert model.d_ == (X**2).sum(axis=0).tolist()
    e, d = model.predict_raw(X)
    by_hand = z.mean() + X * ((X * z[:, None]).sum(axis=0) / (X**2).sum(axis=0))
    np.testing.assert_allclose((e / np.array(d)).astype(float), by_hand, rtol=1e-13)
    np.testing.assert_allclose(
        model.predict_log_odds(X), by_hand.sum(axis=1) + np.log(4 / 6), rtol=1e-12
    )


def test_centring_moves_the_intercept_only() -> None:
    known = ordinal_schema()
    plain, centred = (es.SemiparametricNB(centred=c).fit(known.table(FRAME)) for c in (False, True))
    assert plain.b_ == centred.b_
    np.testing.assert_allclose(plain.predict_proba(FRAME), centred.predict_proba(FRAME), rtol=1e-12)


# -- constant columns
# ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("paired", [True, False])
def test_a_constant_column_of_integers_warns_and_contributes_nothing(paired: bool) -> None:
    constant = np.full(
        (10, 1), 0 if not paired else 7
    )  # unpaired, d = sum x^2: only zeros are constant to it
    without = es.SemiparametricNB(paired=paired).fit(X, Y)
    with pytest.warns(UserWarning, match=r"constant predictors contribute nothing \(d = 0\): x2"):
        model = es.SemiparametricNB(paired=paired).fit(np.hstack([X, constant]), Y)
    assert model.d_[2] == 0
    np.testing.assert_array_equal(
        model.predict_proba(np.hstack([X, constant])), without.predict_proba(X)
    )


def test_a_constant_column_of_a_frame_warns_by_name() -> None:
    frame = FRAME.assign(flat=1.5)
    with pytest.warns(UserWarning, match=r"d = 0\): flat$"):
        model = es.SemiparametricNB().fit(frame.drop(columns="y"), Y)
    without = es.SemiparametricNB().fit(FRAME.drop(columns="y"), Y)
    np.testing.assert_array_equal(
        model.predict_proba(frame[["x1", "x2", "flat"]]), without.predict_proba(FRAME[["x1", "x2"]])
    )


def test_a_level_that_nobody_has_warns_by_name() -> None:
    known = es.Schema(
        (Variable("sex", "categorical", levels=("f", "m", "x")), *ordinal_schema().variables),
        "y",
        (0, 1),
    )
    frame = FRAME.assign(sex=["f", "m"] * 5)
    with pytest.warns(UserWarning, match="sex = x$"):
        es.SemiparametricNB().fit(known.table(frame))


@pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")
def test_an_opened_model_without_names_warns_by_number(keeper: es.Owner, tmp_path: Any) -> None:
    known = es.Schema(
        (Variable("flat", "number", digits=0, low=3, high=3), *number_schema().variables),
        "y",
        (0, 1),
    )
    es.SemiparametricNB().fit(keeper.encrypt(known.table(FRAME.assign(flat=3)))).save(
        tmp_path / "m"
    )
    with pytest.warns(UserWarning, match="v0$"):
        keeper.open(es.load(tmp_path / "m", keeper.public_keys()))


def test_nothing_but_constants_leaves_the_frequencies() -> None:
    with pytest.warns(UserWarning, match="constant"):
        model = es.SemiparametricNB().fit(np.full((10, 2), 3), Y)
    np.testing.assert_allclose(model.predict_proba(np.full((1, 2), 3)), [[0.4, 0.6]])


# -- shrinkage of one step (paper, eq. 1step_bias)
# -----------------------------------------------------------------------------

BIT = es.Schema((Variable("x", "number", digits=0, low=0, high=1),), "y", (0, 1))


def one_step(x: Any, y: Any) -> es.OneStepLogisticRegression:
    return es.OneStepLogisticRegression(fit_intercept=False).fit(
        es.Table(BIT, (np.asarray(x),), np.asarray(y))
    )


def shrunk(beta: float) -> float:
    """The expectation of the estimate: beta plus eq. 1step_bias."""
    return beta + (-2 + 4 * np.exp(beta) / (1 + np.exp(beta)) - beta)


@pytest.mark.parametrize("p", [Fraction(1, 2), Fraction(9, 10), Fraction(1, 7)])
def test_the_expectation_is_exactly_that_of_the_paper(p: Fraction) -> None:
    n, mean = 12, Fraction(0)
    for n1 in range(n + 1):
        y = np.array([1] * n1 + [0] * (n - n1) + [0, 1, 1])
        snb = es.SemiparametricNB(paired=False).fit(
            es.Table(BIT, (np.array([1] * n + [0, 0, 0]),), y)
        )
        estimate = Fraction(snb.b_[0], snb.d_[0])
        assert -2 <= estimate <= 2
        assert one_step([1] * n + [0, 0, 0], y).coef_[0, 0] == pytest.approx(
            float(estimate), abs=1e-12
        )
        mean += comb(n, n1) * p**n1 * (1 - p) ** (n - n1) * estimate
    assert mean == -2 + 4 * p
    assert float(mean) == pytest.approx(shrunk(float(np.log(float(p / (1 - p))))))


@pytest.mark.parametrize("beta", [-3.0, -0.5, 0.0, 1.0, 2.5])
def test_the_expectation_by_simulation(beta: float) -> None:
    rng = np.random.default_rng(17)
    repeats, n = 300, 60
    estimates = []
    for _ in range(repeats):
        x = rng.integers(0, 2, n)
        estimates.append(one_step(x, rng.random(n) < expit(beta * x)).coef_[0, 0])
    error = np.std(estimates) / np.sqrt(repeats)
    assert np.mean(estimates) == pytest.approx(shrunk(beta), abs=4 * error + 1e-9)
    assert np.abs(estimates).max() <= 2 + 1e-12


# -- what a circuit and its length say
# ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model",
    [
        es.CompletelyRandomForest(n_trees=3, depth=2),
        es.SemiparametricNB(),
        es.OneStepLogisticRegression(),
        es.LinearMeans(),
        es.FisherDiscriminant(),
    ],
    ids=name,
)
def test_a_model_knows_how_many_totals_it_has(model: Any) -> None:
    variables = (
        *number_schema().variables,
        Variable("c", "categorical", levels=(1, 2, 3), missing_bin=True),
    )
    flat = Variable("flat", "ordinal", levels=(1,))
    known = es.Schema(
        (*variables, flat, Variable("o", "ordinal", levels=(1, 2))), "y", (0, 1)
    ).public()
    assert model._n_totals(known) == len(model.circuit(known))
    with pytest.raises(ValueError, check=error("cut-into-bins")):
        es.MultinomialNB().check_schema(known)
    binned = es.Schema((variables[2], flat), "y", (0, 1, 2)).public()
    assert es.MultinomialNB()._n_totals(binned) == len(es.MultinomialNB().circuit(binned)) == 3 * 6


def test_rows_of_one_class_only_are_certain() -> None:
    rows = random_table(BIT, 9, 0)
    alone = es.Table(BIT, rows.data, np.ones(9, dtype=np.int64))
    np.testing.assert_array_equal(
        es.SemiparametricNB().fit(alone).predict_proba(alone), [[0.0, 1.0]] * 9
    )
