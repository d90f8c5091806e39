"""Predictions that open nothing give what plain ones give, to the last digit: every model, every
combination, both schemes.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from model_samples import SLOTS, frame, random_table, schema, schemas, table, variable_of
from prediction_samples import (
    SmallPlan,
    new_rows,
    planned_owner,
    same_votes,
    sealed_pieces,
    small_parameters,
    without_classes,
)
from sklearn.base import clone

import encryptedstats as es
from effort import examples
from encryptedstats.circuits.bounds import Interval
from encryptedstats.circuits.expressions import column_names
from encryptedstats.circuits.passes.batching import batches_of_rows
from encryptedstats.tables.answers.predictions import total_bounds
from encryptedstats.tables.questions.row_answers import MODEL, flat_answers, use_encrypted_totals
from error_codes import error

BINNED = ("ordinal", "continuous", "categorical")
QUIET = {"workers": 1, "progress": False}
few = settings(max_examples=examples(6), deadline=None, suppress_health_check=list(HealthCheck))
fewer = settings(few, max_examples=examples(3))


def fitted(model: Any, rows: Any) -> Any:
    options = QUIET if isinstance(rows, es.EncryptedTable) else {}
    return clone(model).fit(rows, **options)


def check_all_combinations(
    model: Any, owner: es.Owner, rows: es.Table, new: es.Table, cuts: tuple[int, int]
) -> None:
    """Encrypted or plain model, encrypted or plain rows; both tables in two chunks of any size."""
    first, second = cuts
    sealed = sealed_pieces(
        owner, rows, [first, len(rows) - first] if 0 < first < len(rows) else None
    )
    sealed_new = sealed_pieces(
        owner, new, [second, len(new) - second] if 0 < second < len(new) else None
    )
    closed, plain = fitted(model, sealed), fitted(model, rows)
    wanted = plain.predict_votes(new)
    votes = closed.predict_votes(sealed_new, **QUIET)
    assert closed.is_encrypted
    assert len(votes) == votes.n_rows == len(new)
    same_votes(owner.open(votes), wanted)
    same_votes(owner.open(plain.predict_votes(sealed_new, **QUIET)), wanted)
    same_votes(owner.open(closed.predict_votes(new, **QUIET)), wanted)
    opened = owner.open(closed)
    same_votes(opened.predict_votes(new), wanted)
    if not getattr(
        model, "fraction", 0
    ):  # an opened forest weighs by what a drawn fraction is on average
        assert wanted.scores.to_numpy().tolist() == opened.scores(new).tolist()
        assert wanted.predict().tolist() == opened.predict(new).tolist()


forests = st.builds(
    es.CompletelyRandomForest,
    n_trees=st.integers(1, 4),
    depth=st.integers(1, 3),
    fraction=st.sampled_from([0, 2, 8]),
    averaged=st.sampled_from([1, 2]),
    random_state=st.integers(0, 99),
)
shallow_forests = st.builds(
    es.CompletelyRandomForest,
    n_trees=st.integers(1, 2),
    depth=st.integers(1, 2),
    fraction=st.sampled_from([0, 2]),
    averaged=st.sampled_from([1, 2]),
)
lines = st.one_of(
    st.builds(es.SemiparametricNB, paired=st.booleans(), centred=st.booleans()),
    st.builds(es.LinearMeans, centred=st.booleans()),
)
counting = st.builds(es.MultinomialNB, alpha=st.sampled_from([0, 1, 0.5]))
sizes = st.tuples(st.integers(1, 40), st.integers(1, 30), st.integers(0, 40), st.integers(0, 30))


def check_random(
    model: Any, scheme: str, known: es.Schema, size: Any, seed: int, weights: bool, key: int
) -> None:
    n_rows, n_new, *cuts = size
    rows = random_table(known, n_rows, seed, weights)
    if isinstance(model, es.SemiparametricNB):
        assume(len(set(rows.class_codes)) == 2)
    check_all_combinations(
        model, planned_owner(scheme, key), rows, new_rows(known, n_new, seed + 1), tuple(cuts)
    )


@few
@given(forests, schemas(BINNED, 3), sizes, st.integers(0, 99), st.booleans(), st.integers(0, 1))
def test_forests_that_stay_closed(
    model: Any, known: es.Schema, size: Any, seed: int, weights: bool, key: int
) -> None:
    check_random(model, "bgv", known, size, seed, weights, key)


@fewer
@given(shallow_forests, schemas(BINNED, 3), sizes, st.integers(0, 99), st.booleans())
def test_forests_that_stay_closed_bfv(
    model: Any, known: es.Schema, size: Any, seed: int, weights: bool
) -> None:
    check_random(model, "bfv", known, size, seed, weights, 0)


@pytest.mark.filterwarnings("ignore:constant predictors")
@few
@given(
    lines,
    schemas((*BINNED, "number"), 2),
    sizes,
    st.integers(0, 99),
    st.booleans(),
    st.integers(0, 1),
)
def test_lines_that_stay_closed(
    model: Any, known: es.Schema, size: Any, seed: int, weights: bool, key: int
) -> None:
    n_rows, *rest = size  # e = a + b x grows with the square of the rows and the cube of the codes
    check_random(model, "bgv", known, (min(n_rows, 12), *rest), seed, weights=False, key=key)


@pytest.mark.filterwarnings("ignore:constant predictors")
@fewer
@given(st.one_of(lines, counting), schemas(BINNED, 2), sizes, st.integers(0, 99))
def test_lines_and_counts_that_stay_closed_bfv(
    model: Any, known: es.Schema, size: Any, seed: int
) -> None:
    n_rows, *rest = size
    check_random(model, "bfv", known, (min(n_rows, 12), *rest), seed, weights=False, key=0)


@few
@given(counting, schemas(BINNED, 3), sizes, st.integers(0, 99), st.booleans(), st.integers(0, 1))
def test_counts_that_stay_closed(
    model: Any, known: es.Schema, size: Any, seed: int, weights: bool, key: int
) -> None:
    check_random(model, "bgv", known, size, seed, weights, key)


@pytest.mark.filterwarnings("ignore:constant predictors")
@settings(few, max_examples=examples(3))
@given(
    st.sampled_from(["ordinal", "number"]), st.booleans(), st.booleans(), sizes, st.integers(0, 99)
)
def test_logistic_regression_with_one_predictor(
    kind: str, intercept: bool, centred: bool, size: Any, seed: int
) -> None:
    known = es.Schema((variable_of(kind, 4, False, 0),), "y", (0, 1))
    model = es.OneStepLogisticRegression(fit_intercept=intercept, centred=centred)
    check_random(model, "bgv", known, (min(size[0], 12), *size[1:]), seed, weights=False, key=0)


def test_rows_of_several_full_chunks() -> None:
    """Both tables are longer than a ciphertext has slots."""
    owner, rows, new = (
        planned_owner(),
        table(2 * SLOTS + 10),
        without_classes(table(SLOTS + 1, seed=5)),
    )
    forest = es.CompletelyRandomForest(n_trees=2, depth=1, fraction=2, random_state=1)
    closed, plain = fitted(forest, owner.encrypt(rows, workers=1)), fitted(forest, rows)
    same_votes(
        owner.open(closed.predict_votes(owner.encrypt(new, workers=1), **QUIET)),
        plain.predict_votes(new),
    )


@pytest.mark.parametrize(
    "model",
    [es.CompletelyRandomForest(n_trees=3, depth=2, fraction=2), es.MultinomialNB()],
    ids=["forest", "mnb"],
)
def test_devices_give_the_same(model: Any) -> None:
    pytest.importorskip("encryptedstats._fused")
    owner, rows, new = planned_owner(), table(30), without_classes(table(20, seed=3))
    closed, sealed = fitted(model, owner.encrypt(rows, workers=1)), owner.encrypt(new, workers=1)
    by_seal = closed.predict_votes(sealed, device="seal", **QUIET)
    native = closed.predict_votes(sealed, device="native", **QUIET)
    same_votes(owner.open(by_seal), owner.open(native))
    same_votes(owner.open(native), fitted(model, rows).predict_votes(new))


def test_totals_are_expanded_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """With memory for few totals at a time, pieces of the answers are added up; the drawn fractions
    come along.
    """
    batches: list[int] = []

    def counted(*args: Any) -> Any:
        found = batches_of_rows(*args)
        batches.append(len(found[0]))
        return found

    monkeypatch.setattr("encryptedstats.circuits.lowering.batches_of_rows", counted)
    monkeypatch.setattr("encryptedstats.circuits.evaluate.HELD", 0)
    owner, rows, new = planned_owner(), table(40), without_classes(table(20, seed=3))
    forest = es.CompletelyRandomForest(n_trees=12, depth=2, fraction=2, random_state=2)
    closed, sealed = fitted(forest, owner.encrypt(rows, workers=1)), owner.encrypt(new, workers=1)
    for device in ("auto", "seal"):
        votes = closed.predict_votes(sealed, device=device, **QUIET)
        same_votes(owner.open(votes), fitted(forest, rows).predict_votes(new))
    assert batches
    assert (
        min(batches) > 1
    )  # several at a time, by both devices: what is prepared for one is there for the other


def test_models_that_were_added_up_predict() -> None:
    owner, rows, new = planned_owner(), table(60), without_classes(table(20, seed=3))
    forest = es.CompletelyRandomForest(n_trees=3, depth=2, random_state=2)
    parts = [
        fitted(forest, sealed_pieces(owner, rows.take(np.arange(20 * k, 20 * k + 20))))
        for k in range(3)
    ]
    sealed = owner.encrypt(new, workers=1)
    same_votes(
        owner.open((parts[0] + parts[1] + parts[2]).predict_votes(sealed, **QUIET)),
        fitted(forest, rows).predict_votes(new),
    )
    forgetful = parts[0] + parts[1] - parts[1]
    same_votes(
        owner.open(forgetful.predict_votes(sealed, **QUIET)),
        fitted(forest, rows.take(np.arange(20))).predict_votes(new),
    )


def test_products_of_multinomial_counts() -> None:
    known = es.Schema(
        (variable_of("ordinal", 3, False, 0), variable_of("categorical", 2, True, 1)),
        "y",
        ("a", "b", "c"),
    )
    rows, new, owner = random_table(known, 50, 1), new_rows(known, 25, 2), planned_owner()
    model = es.MultinomialNB(alpha=2)
    closed, plain = fitted(model, owner.encrypt(rows, workers=1)), fitted(model, rows)
    sealed = owner.encrypt(new, workers=1)
    products = owner.open(closed.predict_votes(sealed, output="products", **QUIET))
    factors = owner.open(closed.predict_votes(sealed, output="factors", **QUIET))
    same_votes(products, plain.predict_votes(new, output="products"))
    np.testing.assert_allclose(products.predict_proba(), factors.predict_proba(), rtol=1e-12)
    np.testing.assert_allclose(products.predict_proba(), plain.predict_proba(new), rtol=1e-12)
    by_hand = (factors["x0 | a"] + 2) * (factors["x1 | a"] + 2)
    assert (products["product | a"] == by_hand).all()


# -- known answers
# ------------------------------------------------------------------------------------------------


def test_the_papers_example_of_naive_bayes() -> None:
    """Section 4, N = 10: a = 110, 462; b = -8, -120; d = 221, 105; all of it under encryption."""
    x1, x2 = np.array([1, 5, 3, 1, 2, 5, 2, 4, 1, 3]), np.array([5, 5, 3, 2, 3, 4, 4, 4, 3, 2])
    y = np.array([0, 0, 1, 1, 1, 1, 1, 0, 0, 1])
    printed = [
        *(0.2212818, 0.1973391, 0.7221404, 0.8975560, 0.7293452),
        *(0.4353264, 0.4621838, 0.4442447, 0.7364313, 0.8907048),
    ]
    known = es.Schema(
        (variable_of("ordinal", 5, False, 0), variable_of("ordinal", 5, False, 1)), "y", (0, 1)
    )
    rows = es.Table(known, (x1 - 1, x2 - 1), y, slots=SLOTS)
    owner = planned_owner()
    sealed = owner.encrypt(rows, workers=1)
    votes = owner.open(fitted(es.SemiparametricNB(), sealed).predict_votes(sealed, **QUIET))
    np.testing.assert_allclose(votes.predict_proba()[1], printed, atol=5e-8)
    assert votes["e[x0]"].tolist() == (110 - 8 * x1).tolist()
    assert votes["e[x1]"].tolist() == (462 - 120 * x2).tolist()
    assert set(votes["d[x0]"]) == {221}
    assert set(votes["d[x1]"]) == {105}
    assert set(votes["n[0]"]) == {4}
    assert set(votes["n[1]"]) == {6}
    assert votes.predict().tolist() == [int(p > 0.5) for p in printed]


def test_a_forest_counted_by_hand() -> None:
    """One variable of two bins: every split parts bin 0 from bin 1, so every tree votes with the
    counts of the row's bin.
    """
    known = es.Schema((variable_of("ordinal", 2, False, 0),), "y", ("no", "yes"))
    rows = es.Table(known, (np.array([0, 0, 0, 1, 1]),), np.array([0, 0, 1, 1, 1]), slots=SLOTS)
    new = es.Table(known, (np.array([1, 0]),), slots=SLOTS)
    owner = planned_owner()
    forest = fitted(es.CompletelyRandomForest(n_trees=7, depth=1), owner.encrypt(rows, workers=1))
    votes = owner.open(forest.predict_votes(owner.encrypt(new, workers=1), **QUIET))
    assert votes["no"].tolist() == [0, 14]
    assert votes["yes"].tolist() == [14, 7]
    assert votes.predict_proba()["yes"].tolist() == [1.0, 7 / 21]
    assert votes.predict().tolist() == ["yes", "no"]
    assert isinstance(votes, es.Votes)
    assert type(votes[["yes"]]) is pd.DataFrame


def test_what_trees_share_is_computed_once() -> None:
    known = schema()
    model = es.CompletelyRandomForest(n_trees=300, depth=1)
    totals = model._n_totals(known.public())
    given = use_encrypted_totals(model, known.public(), {MODEL: _ones(totals)})
    answers = flat_answers(model, known.public(), [], given, "")
    used = {
        name
        for name in column_names([answer.value for answer in answers])
        if name.startswith("model[")
    }
    different = {tree[0] for tree in model.grow(known)}
    assert len(used) <= 2 * (1 + len(different)) < 50 < totals


def _ones(count: int) -> list[Interval]:
    return [Interval(0, 1)] * count


@pytest.mark.parametrize(
    ("model", "outputs"),
    [
        (es.CompletelyRandomForest(n_trees=3, depth=2, fraction=2), ("",)),
        (es.SemiparametricNB(), ("",)),
        (es.LinearMeans(), ("",)),
        (es.MultinomialNB(), ("factors", "products")),
    ],
    ids=["forest", "snb", "means", "mnb"],
)
def test_the_number_of_answers_is_known_without_the_circuit(
    model: Any, outputs: tuple[str, ...]
) -> None:
    public = schema().public()
    drawn = {name: _ones(math.prod(shape)) for name, shape in model._extra_shapes(public).items()}
    known = use_encrypted_totals(model, public, {MODEL: _ones(model._n_totals(public)), **drawn})
    for output in outputs:
        found = model.answers(public, None, known, output)
        shapes = {name: np.array(answers, dtype=object).shape for name, answers in found.items()}
        assert model.answer_shapes(public, output) == shapes
    assert model.outputs == outputs


# -- errors
# ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def closed() -> Any:
    return fitted(
        es.CompletelyRandomForest(n_trees=2, depth=1), planned_owner().encrypt(table(30), workers=1)
    )


def test_rows_of_another_owner(closed: Any) -> None:
    sealed = planned_owner("bgv", 1).encrypt(without_classes(table(5)), workers=1)
    with pytest.raises(es.KeyMismatchError, check=error("other-key")):
        closed.predict_votes(sealed)


def test_votes_of_another_owner(closed: Any) -> None:
    votes = closed.predict_votes(without_classes(table(5)), **QUIET)
    with pytest.raises(es.KeyMismatchError, check=error("load-the-key")):
        planned_owner("bgv", 1).open(votes)


def test_rows_of_another_schema(closed: Any) -> None:
    owner = planned_owner()
    fewer_bins = schema().with_bins("age", edges=(40.0,))
    other = owner.encrypt(fewer_bins.table(frame(5).drop(columns="ill"), slots=SLOTS), workers=1)
    with pytest.raises(es.SchemaError, check=error("different-schemas")):
        closed.predict_votes(other)
    moved = (
        schema()
        .with_bins("age", edges=(40.0, 41.0))
        .table(frame(5).drop(columns="ill"), slots=SLOTS)
    )
    with pytest.raises(es.SchemaError, check=error("other-schema")):
        closed.predict_votes(owner.encrypt(moved, workers=1))


def test_keys_that_were_not_planned_for_it() -> None:
    owner = es.Owner(small_parameters("bgv", 1 << 22, (52,) * 6, None))
    rows = table(30)
    forest = fitted(es.CompletelyRandomForest(n_trees=2, depth=2), owner.encrypt(rows, workers=1))
    with pytest.raises(
        es.NoiseError, match=re.escape("es.Owner(es.plan(..., encrypted_prediction=True))")
    ):
        forest.predict_votes(owner.encrypt(without_classes(rows), workers=1))


def test_keys_that_were_planned_for_less() -> None:
    owner = es.Owner(SmallPlan(small_parameters("bgv", 1 << 22, (49,) * 8, 3)))
    rows = table(30)
    forest = fitted(es.CompletelyRandomForest(n_trees=2, depth=3), owner.encrypt(rows, workers=1))
    with pytest.raises(es.NoiseError, check=error("not-proven", "encrypted_prediction=True")):
        forest.predict_votes(owner.encrypt(without_classes(rows), workers=1))


def test_totals_that_were_not_packed() -> None:
    owner, rows = planned_owner(), table(30)
    forest = es.CompletelyRandomForest(n_trees=2, depth=1).fit(
        owner.encrypt(rows, workers=1), form="slots", **QUIET
    )
    with pytest.raises(ValueError, check=error("not-packed", "'packed'", "form='packed'")):
        forest.predict_votes(owner.encrypt(without_classes(rows), workers=1))


def test_fractions_that_were_not_drawn() -> None:
    owner, rows = es.Owner(small_parameters("bgv", 1 << 24, (49,) * 12, 6)), table(30)
    forest = fitted(
        es.CompletelyRandomForest(n_trees=2, depth=1, fraction=2), owner.encrypt(rows, workers=1)
    )
    assert not hasattr(forest, "drawn_")  # these keys have no rotations
    with pytest.raises(ValueError, check=error("fraction-not-drawn")):
        forest.predict_votes(owner.encrypt(without_classes(rows), workers=1))
    with pytest.raises(es.KeyMismatchError, check=error("planned-keys")):
        forest.draw_fraction(owner.encrypt(rows, workers=1), **QUIET)


def test_models_that_were_combined_have_no_fraction_until_it_is_drawn() -> None:
    owner, rows, new = planned_owner(), table(40), without_classes(table(10, seed=3))
    forest = es.CompletelyRandomForest(n_trees=2, depth=1, fraction=2)
    halves = [owner.encrypt(rows.take(np.arange(20 * k, 20 * k + 20)), workers=1) for k in range(2)]
    joined = fitted(forest, halves[0]) + fitted(forest, halves[1])
    with pytest.raises(ValueError, check=error("fraction-not-drawn")):
        joined.predict_votes(new)
    joined.draw_fraction(halves[0].append(halves[1]), **QUIET)
    same_votes(
        owner.open(joined.predict_votes(new, **QUIET)), fitted(forest, rows).predict_votes(new)
    )
    more = fitted(forest, halves[0]).partial_fit(halves[1], **QUIET)
    with pytest.raises(ValueError, check=error("fraction-not-drawn")):
        more.predict_votes(new)


def test_models_of_folds_have_no_fraction() -> None:
    owner, rows = planned_owner(), table(40, folds=2)
    folds = es.CompletelyRandomForest(n_trees=2, depth=1, fraction=2).fit_folds(
        owner.encrypt(rows, workers=1), **QUIET
    )
    for opened in owner.open(folds):
        with pytest.raises(ValueError, check=error("fraction-not-drawn")):
            opened.predict_votes(without_classes(rows))
    for opened in owner.open(
        es.CompletelyRandomForest(n_trees=2, depth=1, fraction=0).fit_folds(
            owner.encrypt(rows, workers=1), **QUIET
        )
    ):
        votes = opened.predict_votes(frame(9))
        np.testing.assert_allclose(votes.predict_proba(), opened.predict_proba(frame(9)))


def test_nothing_to_draw_or_to_divide_by() -> None:
    rows = table(30)
    inverse = fitted(es.CompletelyRandomForest(n_trees=2, depth=1, fraction="inverse"), rows)
    with pytest.raises(ValueError, check=error("no-inverse")):
        inverse.predict_votes(without_classes(rows))
    for forest in (inverse, fitted(es.CompletelyRandomForest(n_trees=2, depth=1), rows)):
        with pytest.raises(ValueError, check=error("nothing-to-draw", "2", "64")):
            forest.draw_fraction(rows)
    drawn = fitted(es.CompletelyRandomForest(n_trees=2, depth=1, fraction=2), rows)
    other = schema().with_bins("age", edges=(40.0,)).table(frame(30), slots=SLOTS)
    with pytest.raises(es.SchemaError, check=error("other-schema")):
        drawn.draw_fraction(other)


def test_fractions_come_from_rows_of_the_same_kind() -> None:
    owner, rows, other = planned_owner(), table(30), planned_owner("bgv", 1)
    forest = es.CompletelyRandomForest(n_trees=2, depth=1, fraction=2)
    closed, opened = fitted(forest, owner.encrypt(rows, workers=1)), fitted(forest, rows)
    for model, source in ((closed, rows), (opened, owner.encrypt(rows, workers=1))):
        with pytest.raises(TypeError, check=error("encrypted-and-open")):
            model.draw_fraction(source)
    with pytest.raises(es.KeyMismatchError, check=error("other-key")):
        closed.draw_fraction(other.encrypt(rows, workers=1))
    moved = schema().with_bins("age", edges=(40.0, 41.0)).table(frame(30), slots=SLOTS)
    with pytest.raises(es.SchemaError, check=error("other-schema")):
        closed.draw_fraction(owner.encrypt(moved, workers=1))
    closed.answer_ = replace(closed.answer_, schema=closed.schema_.public())  # as a worker has it
    with pytest.raises(es.SchemaError, check=error("different-schemas")):
        closed.draw_fraction(owner.encrypt(moved, workers=1))


@pytest.mark.parametrize("averaged", [0, 3, 2048, True, 1.5])
def test_what_cannot_be_averaged(averaged: Any) -> None:
    with pytest.raises(ValueError, check=error("averaged-out-of-range", "1", "1024")):
        es.CompletelyRandomForest(averaged=averaged).fit(table(30))


def test_products_that_cannot_be() -> None:
    rows = table(30)
    with pytest.raises(
        ValueError, check=error("alpha-not-whole", "'factors'", "output='factors'", "0.5")
    ):
        fitted(es.MultinomialNB(alpha=0.5), rows).predict_votes(
            without_classes(rows), output="products"
        )
    wide = es.Schema(tuple(variable_of("ordinal", 3, False, j) for j in range(12)), "y", (0, 1))
    many = fitted(es.MultinomialNB(), random_table(wide, 200, 1))
    with pytest.raises(
        OverflowError, check=error("products-too-large", "'factors'", "output='factors'", "12")
    ):
        many.predict_votes(new_rows(wide, 3, 2), output="products")


def test_values_beyond_the_parameters() -> None:
    owner = es.Owner(SmallPlan(small_parameters("bgv", 1 << 10, (49,) * 12, 8)))
    rows = table(30)
    model = fitted(es.SemiparametricNB(), owner.encrypt(rows, workers=1))
    with pytest.raises(OverflowError, check=error("larger-values")):
        model.predict_votes(owner.encrypt(without_classes(rows), workers=1))


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (es.MultinomialNB(), "unknown-output"),
        (es.LinearMeans(), "unknown-output"),
    ],
    ids=["mnb", "means"],
)
def test_answers_that_there_are_not(model: Any, words: str) -> None:
    with pytest.raises(ValueError, check=error(words)):
        fitted(model, table(30)).predict_votes(table(5), output="votes")


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (es.FisherDiscriminant(), "the owner has to invert the scatter matrix"),
        (
            es.OneStepLogisticRegression(),
            "with several predictors the owner has to invert a matrix",
        ),
    ],
    ids=["fisher", "logistic"],
)
def test_models_that_must_be_opened(model: Any, why: str) -> None:
    owner, rows = planned_owner(), table(30)
    closed = fitted(model, owner.encrypt(rows, workers=1))
    for one in (closed, owner.open(closed)):
        with pytest.raises(NotImplementedError, check=error("still-encrypted", why)):
            one.predict_votes(owner.encrypt(without_classes(rows), workers=1))


def test_votes_answer_as_a_model_does() -> None:
    opened = fitted(es.MultinomialNB(), table(30))
    votes = opened.predict_votes(table(5))
    assert votes.classes_.tolist() == opened.classes_.tolist()
    assert votes.predict().tolist() == opened.predict(table(5)).tolist()
    assert votes.predict_proba().to_numpy().tolist() == opened.predict_proba(table(5)).tolist()
    assert votes.predict_proba().columns.tolist() == votes.classes_.tolist()


def test_means_have_scores_and_no_probabilities() -> None:
    votes = fitted(es.LinearMeans(), table(30)).predict_votes(table(5))
    with pytest.raises(AttributeError, match=r"use .scores or .predict"):
        _ = votes.predict_proba()
    assert votes.scores.shape == (5, 2)


def test_every_row_is_predicted_or_refused() -> None:
    """Rows with missing values are dropped when a table is made, never from what is to be
    predicted.
    """
    owner, known = planned_owner(), replace(schema(), missing="drop")
    training = known.table(frame(30), slots=SLOTS)
    closed = fitted(
        es.CompletelyRandomForest(n_trees=2, depth=1), owner.encrypt(training, workers=1)
    )
    rows = frame(5).drop(columns="ill")
    same_votes(
        owner.open(closed.predict_votes(rows, **QUIET)),
        fitted(closed, training).predict_votes(rows),
    )
    rows.loc[2, "age"] = np.nan
    with pytest.raises(es.SchemaError, check=error("missing-without-bin")):
        closed.predict_votes(rows, **QUIET)


def test_rows_without_the_columns_that_are_needed(closed: Any) -> None:
    sealed = planned_owner().encrypt(without_classes(table(5)), workers=1, encodings=("ordinal",))
    with pytest.raises(es.SchemaError, check=error("column-not-stored", "v0.bin0")):
        closed.predict_votes(sealed)


def test_a_model_that_says_the_same_of_every_row() -> None:
    owner, known = planned_owner(), es.Schema((variable_of("ordinal", 2, False, 0),), "y", (0, 1))
    rows = es.Table(known, (np.array([0, 1]),), np.array([0, 0]), slots=SLOTS)
    forest = fitted(es.CompletelyRandomForest(n_trees=1, depth=1), rows)
    assert forest.predict_votes(rows).to_numpy().tolist() == [[1, 0], [1, 0]]
    sealed = owner.encrypt(without_classes(rows), workers=1)
    votes = forest.predict_votes(sealed, **QUIET)
    same_votes(owner.open(votes), forest.predict_votes(rows))


def test_bounds_come_with_the_model(closed: Any) -> None:
    bounds = total_bounds(closed.totals_)
    assert len(bounds) == len(closed.totals_)
    assert all((b.low, b.high) == (0, 30) for b in bounds)


def test_the_answers_of_a_closed_model_are_written_once_and_never_those_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written: list[int] = []
    answers = es.CompletelyRandomForest.answers

    def counted(self: Any, *arguments: Any, **options: Any) -> Any:
        written.append(self.random_state)
        return answers(self, *arguments, **options)

    rows, new = table(40, 1), without_classes(table(9, 2))
    forests = [es.CompletelyRandomForest(2, 2, random_state=seed) for seed in (811, 812)]
    owner = planned_owner()
    sealed, sealed_new = owner.encrypt(rows), owner.encrypt(new)
    wanted = [fitted(forest, rows).predict_votes(new) for forest in forests]
    monkeypatch.setattr(es.CompletelyRandomForest, "answers", counted)
    for _ in range(3):
        for forest, votes in zip(forests, wanted, strict=True):
            same_votes(owner.open(fitted(forest, sealed).predict_votes(sealed_new, **QUIET)), votes)
    assert written == [811, 812]
