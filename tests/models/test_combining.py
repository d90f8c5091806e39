"""Models add, forget and go on learning, encrypted as in the clear; what does not belong together
is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from model_samples import FOREST, MODELS, SLOTS, frame, name, schema, table
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import roc_auc_score

import encryptedstats as es
from error_codes import error

Fit = Callable[..., Any]
each_model = pytest.mark.parametrize("model", MODELS, ids=name)
X, Y = frame(80).drop(columns="ill"), frame(80)["ill"]


def totals(model: Any) -> list[int]:
    return [int(total) for total in model.totals_]


def assert_same_model(a: Any, b: Any) -> None:
    assert totals(a) == totals(b)
    assert a.n_rows_ == b.n_rows_
    rows = table(20, seed=9)
    np.testing.assert_array_equal(a.predict(rows), b.predict(rows))


# -- adding and forgetting
# ------------------------------------------------------------------------------------------------


@each_model
def test_clear_shards_add_to_the_whole_and_are_forgotten(model: Any) -> None:
    rows = table(90)
    first, second = clone(model).fit(rows[:50]), clone(model).fit(rows[50:])
    whole = clone(model).fit(rows)
    assert_same_model(first + second, whole)
    assert_same_model(whole - second, first)
    assert_same_model(whole - first, second)


@each_model
def test_encrypted_shards_add_to_the_whole_and_are_forgotten(
    model: Any, keeper: es.Owner, sealed_fit: Fit
) -> None:
    rows = table(90)
    first, second = sealed_fit(clone(model), rows[:50]), sealed_fit(clone(model), rows[50:])
    whole = first + second
    assert whole.is_encrypted
    assert (whole.n_rows_, set(whole.block_ids_)) == (90, {*first.block_ids_, *second.block_ids_})
    assert_same_model(keeper.open(whole), clone(model).fit(rows))
    forgotten = whole - second
    assert forgotten.block_ids_ == first.block_ids_
    assert_same_model(keeper.open(forgotten), clone(model).fit(rows[:50]))


def test_a_block_is_forgotten_as_if_it_had_never_been_there(
    keeper: es.Owner, sealed_fit: Fit
) -> None:
    rows = table(2 * SLOTS + 100)
    sealed = keeper.encrypt(rows, workers=1)
    whole = clone(FOREST).fit(sealed, workers=1)
    assert len(whole.block_ids_) == 3
    shards = [_block(sealed, i) for i in range(3)]
    without = whole - clone(FOREST).fit(shards[1], workers=1)
    kept = es.Table.concat([rows[:SLOTS], rows[2 * SLOTS :]])
    assert totals(keeper.open(without)) == totals(clone(FOREST).fit(kept))


def _block(sealed: es.EncryptedTable, index: int) -> es.EncryptedTable:
    """One block of a table as a table of its own, as a worker would cut it."""
    blocks = sealed.blocks
    part = type(blocks)((blocks.ids[index],), (blocks.rows[index],), (blocks.block(index),))
    return es.EncryptedTable(sealed.facts, part, sealed.keys, sealed.private_schema)


def test_opened_models_add_and_refuse_a_block_that_both_have(
    keeper: es.Owner, sealed_fit: Fit
) -> None:
    rows = table(90)
    first, second = (
        keeper.open(sealed_fit(clone(FOREST), part)) for part in (rows[:50], rows[50:])
    )
    assert_same_model(first + second, clone(FOREST).fit(rows))
    with pytest.raises(es.SchemaError, check=error("block-already-included")):
        first + first
    with pytest.raises(es.SchemaError, check=error("block-already-included")):
        (first + second) + second


def test_an_encrypted_block_counts_once(keeper: es.Owner) -> None:
    sealed = keeper.encrypt(table(40), workers=1)
    one, again = (clone(FOREST).fit(sealed, workers=1) for _ in range(2))
    with pytest.raises(es.SchemaError, check=error("block-already-included")):
        one + again
    with pytest.raises(es.SchemaError, check=error("block-already-included")):
        one.partial_fit(sealed)


def test_only_what_is_inside_is_forgotten(keeper: es.Owner, sealed_fit: Fit) -> None:
    first, second = (
        sealed_fit(clone(FOREST), table(50)),
        sealed_fit(clone(FOREST), table(30, seed=1)),
    )
    with pytest.raises(es.SchemaError, check=error("rows-not-inside")):
        first - second
    with pytest.raises(es.SchemaError, check=error("rows-not-inside")):
        clone(FOREST).fit(table(50)) - clone(FOREST).fit(table(51))
    flipped = frame(50).assign(ill=lambda f: f["ill"].map({"no": "yes", "yes": "no"}))
    with pytest.raises(es.SchemaError, check=error("rows-missing")):
        clone(FOREST).fit(table(50)) - clone(FOREST).fit(schema().table(flipped[:40]))


# -- what does not belong together
# ---------------------------------------------------------------------------------------------


def test_different_growth_is_refused(sealed_fit: Fit) -> None:
    other = es.CompletelyRandomForest(n_trees=4, depth=1, random_state=4)
    message = "grown-differently"
    with pytest.raises(ValueError, check=error(message)):
        clone(FOREST).fit(table()) + other.fit(table(seed=1))
    with pytest.raises(ValueError, check=error(message)):
        sealed_fit(clone(FOREST), table()) + sealed_fit(clone(other), table(seed=1))


def test_different_schemas_are_refused(sealed_fit: Fit) -> None:
    other = schema().with_bins("age", edges=(40.0,))
    with pytest.raises(es.SchemaError, check=error("different-schemas")):
        clone(FOREST).fit(table()) + clone(FOREST).fit(other.table(frame(50)))
    with pytest.raises(es.SchemaError, check=error("different-schemas")):
        sealed_fit(clone(FOREST), table()) - sealed_fit(clone(FOREST), other.table(frame(50)))


def test_the_same_bins_at_other_edges_are_another_schema(keeper: es.Owner, sealed_fit: Fit) -> None:
    """Public schemas are equal; where both sides know the edges, these must be, too."""
    other = schema().with_bins("age", edges=(40.0, 60.0))
    assert other.public() == schema().public()
    fitted = clone(FOREST).fit(table())
    with pytest.raises(es.SchemaError, check=error("different-schemas")):
        fitted + clone(FOREST).fit(other.table(frame(50)))
    with pytest.raises(es.SchemaError, check=error("other-schema")):
        fitted.predict(other.table(frame(5)))
    sealed = sealed_fit(clone(FOREST), table())
    with pytest.raises(es.SchemaError, check=error("other-schema")):
        keeper.open(sealed, schema=other)
    # Frames that were binned on their own have edges of their own.
    with pytest.raises(es.SchemaError, check=error("different-schemas")):
        clone(FOREST).fit(X[:40], Y[:40]) + clone(FOREST).fit(X[40:], Y[40:])


def test_different_keys_are_refused(
    keeper: es.Owner, other_keeper: es.Owner, sealed_fit: Fit
) -> None:
    own, others = (
        sealed_fit(clone(FOREST), table()),
        sealed_fit(clone(FOREST), table(seed=1), other_keeper),
    )
    with pytest.raises(es.KeyMismatchError, check=error("other-key")):
        own + others
    with pytest.raises(es.KeyMismatchError, check=error("load-the-key")):
        keeper.open(others)


def test_encrypted_and_open_are_not_mixed(keeper: es.Owner, sealed_fit: Fit) -> None:
    sealed, clear = sealed_fit(clone(FOREST), table()), clone(FOREST).fit(table(seed=1))
    message = "encrypted-and-open"
    for attempt in (
        lambda: sealed + clear,
        lambda: clear - sealed,
        lambda: clear.partial_fit(keeper.encrypt(table())),
        lambda: sealed.partial_fit(table()),
    ):
        with pytest.raises(TypeError, check=error(message)):
            attempt()
    with pytest.raises(TypeError, check=error("already-open")):
        keeper.open(clear)


def test_other_models_and_unfitted_ones_are_refused() -> None:
    with pytest.raises(TypeError, check=error("other-model-type")):
        clone(FOREST).fit(table()) + es.LinearMeans().fit(table())
    with pytest.raises(NotFittedError, match="not fitted"):
        clone(FOREST).fit(table()) + clone(FOREST)


# -- seeds that were drawn
# ------------------------------------------------------------------------------------------------


def drawn() -> es.CompletelyRandomForest:
    return es.CompletelyRandomForest(n_trees=3, depth=2, random_state=None)


def test_forests_of_a_drawn_seed_combine_with_their_like_only(keeper: es.Owner) -> None:
    rows = table(90)
    first = drawn().fit(keeper.encrypt(rows[:50], workers=1), workers=1)
    seed = first.random_state_
    plain = keeper.open(first)
    assert (plain.random_state, plain.random_state_) == (None, seed)
    assert totals(plain) == totals(
        es.CompletelyRandomForest(3, 2, random_state=seed).fit(rows[:50])
    )
    alike = es.CompletelyRandomForest(3, 2, random_state=seed).fit(rows[50:])
    whole = plain + alike
    assert whole.random_state_ == seed
    assert whole.trees_ == plain.trees_
    assert totals(whole) == totals(es.CompletelyRandomForest(3, 2, random_state=seed).fit(rows))
    with pytest.raises(ValueError, check=error("grown-differently", seed)):
        plain + drawn().fit(rows[50:])


def test_partial_fit_goes_on_with_the_drawn_seed(keeper: es.Owner) -> None:
    rows = table(90)
    model = drawn()
    model.partial_fit(keeper.encrypt(rows[:50], workers=1), workers=1)
    seed = model.random_state_
    model.partial_fit(keeper.encrypt(rows[50:], workers=1), workers=1)
    assert (model.random_state, model.random_state_, model.n_rows_) == (None, seed, 90)
    assert totals(keeper.open(model)) == totals(
        es.CompletelyRandomForest(3, 2, random_state=seed).fit(rows)
    )


# -- partial fits
# ------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:constant predictors:UserWarning")
@each_model
def test_partial_fits_of_tables_equal_one_fit(model: Any, keeper: es.Owner) -> None:
    rows = table(90)
    clear, sealed = clone(model), clone(model)
    for part in (rows[:30], rows[30:31], rows[31:]):
        clear.partial_fit(part)
        sealed.partial_fit(keeper.encrypt(part, workers=1), workers=1)
    assert_same_model(clear, clone(model).fit(rows))
    assert_same_model(keeper.open(sealed), clear)
    assert len(sealed.block_ids_) == 3


def test_partial_fits_of_frames_keep_the_bins_of_the_first() -> None:
    model = (
        clone(FOREST).partial_fit(X[:40], Y[:40], classes=["no", "yes"]).partial_fit(X[40:], Y[40:])
    )
    assert totals(model) == totals(clone(FOREST).fit(model.schema_.table(X, Y)))
    with pytest.raises(es.SchemaError, check=error("unusable-value")):
        model.partial_fit(X, ["maybe"] * 80)
    with pytest.raises(ValueError, match="feature names should match"):
        model.partial_fit(X.assign(more=1), Y)


def test_classes_may_be_named_before_they_are_seen() -> None:
    rows, labels = X[Y == "no"], Y[Y == "no"]
    with pytest.raises(ValueError, check=error("one-class")):
        clone(FOREST).partial_fit(rows, labels)
    model = clone(FOREST).partial_fit(rows, labels, classes=["no", "yes"])
    model.partial_fit(X[Y == "yes"], Y[Y == "yes"])
    assert model.class_counts_.tolist() == [(Y == "no").sum(), (Y == "yes").sum()]


# -- weights
# ------------------------------------------------------------------------------------------------


@each_model
def test_a_weighted_fit_equals_repeated_rows(model: Any, keeper: es.Owner, sealed_fit: Fit) -> None:
    rng = np.random.default_rng(2)
    weights = rng.integers(0, 5, 60)
    weighted = table(60, weights=weights)
    repeated = clone(model).fit(schema().table(frame(60).loc[np.repeat(np.arange(60), weights)]))
    assert totals(clone(model).fit(weighted)) == totals(repeated)
    assert totals(keeper.open(sealed_fit(clone(model), weighted))) == totals(repeated)


# -- folds
# ------------------------------------------------------------------------------------------------


@each_model
def test_encrypted_cross_validation_equals_a_loop_over_folds(model: Any, keeper: es.Owner) -> None:
    rows = table(120, folds=4, fold_seed=1)
    folds = clone(model).fit_folds(keeper.encrypt(rows, workers=1), workers=1)
    assert "4 folds" in repr(folds)
    scores = es.score_folds(keeper.open(folds), rows)
    by_hand, fold_rows = [], []
    for fold in range(4):
        inside, outside = (
            np.flatnonzero((rows.fold_codes == fold) == where) for where in (True, False)
        )
        fitted = clone(model).fit(rows.take(outside))
        method = "predict_proba" if hasattr(fitted, "predict_proba") else "decision_function"
        score = getattr(fitted, method)(rows.take(inside))
        by_hand.append(
            roc_auc_score(rows.class_codes[inside], score[:, 1] if score.ndim == 2 else score)
        )
        fold_rows.append(len(inside))
    assert scores["rows"].tolist() == fold_rows
    np.testing.assert_allclose(scores["score"], by_hand)
    clear = clone(model).fit_folds(rows)
    opened = keeper.open(folds)
    for a, b, n in zip(clear, opened, fold_rows, strict=True):
        assert totals(a) == totals(b)
        assert a.n_rows_ == b.n_rows_ == 120 - n
    pd.testing.assert_frame_equal(es.score_folds(clear, rows), scores)


def test_cross_validation_with_other_scores_and_more_classes(keeper: es.Owner) -> None:
    rows = table(90, classes=("a", "b", "c"), folds=3)
    folds = drawn().fit_folds(keeper.encrypt(rows, workers=1), workers=1)
    assert folds.question.question.random_state is not None
    scores = es.score_folds(keeper.open(folds), rows)
    pd.testing.assert_frame_equal(
        scores, es.score_folds(keeper.open(folds), rows, scoring="accuracy")
    )
    by_function = es.score_folds(
        keeper.open(folds), rows, scoring=lambda model, X, y: model.score(X, y)
    )
    pd.testing.assert_frame_equal(scores, by_function)
    assert scores["rows"].sum() == 90


def test_folds_that_were_not_declared_are_refused(keeper: es.Owner, other_keeper: es.Owner) -> None:
    with pytest.raises(es.SchemaError, check=error("declare-folds", "folds=k")):
        clone(FOREST).fit_folds(keeper.encrypt(table()))
    rows = table(40, folds=2)
    folds = clone(FOREST).fit_folds(keeper.encrypt(rows, workers=1), workers=1)
    with pytest.raises(es.SchemaError, check=error("classes-or-folds-missing")):
        es.score_folds(keeper.open(folds), table(40))
    with pytest.raises(es.KeyMismatchError, check=error("load-the-key")):
        other_keeper.open(folds)
    with pytest.raises(es.SchemaError, check=error("other-schema")):
        keeper.open(folds, schema=schema().with_bins("age", edges=(1.0, 2.0)))


# -- encrypted models say what they are
# ------------------------------------------------------------------------------------------


@each_model
def test_an_encrypted_model_predicts_nothing_and_says_how_to_open_it(
    model: Any, sealed_fit: Fit
) -> None:
    sealed = sealed_fit(clone(model), table())
    message = (
        rf"this {name(model)} was fitted on encrypted rows and is still encrypted: open it with "
        r"owner.open\(model\)"
    )
    for method in (
        "predict",
        "predict_proba",
        "decision_function",
        "predict_raw",
        "decision_votes",
        "apply",
    ):
        if hasattr(sealed, method):
            with pytest.raises(NotFittedError, match=message):
                getattr(sealed, method)(frame(5))
    with pytest.raises(NotFittedError, match="not fitted yet"):
        clone(model).predict(frame(5))


def test_parameters_changed_after_the_fit_do_not_mix_in() -> None:
    """Totals are of the trees they were counted in: rows counted in others must not be added."""
    forest = clone(FOREST).fit(table())
    forest.set_params(random_state=99)
    for refused in (
        lambda: forest.partial_fit(table()),
        lambda: forest + clone(forest).fit(table()),
    ):
        with pytest.raises(ValueError, check=error("parameters-changed", "99")):
            refused()


def test_an_encrypted_model_keeps_nothing_of_an_earlier_clear_fit(sealed_fit: Fit) -> None:
    model = es.CompletelyRandomForest(n_trees=2, depth=1).fit(X.assign(more=1.0), Y)
    assert model.n_features_in_ == 4
    sealed_fit(model, table())
    assert model.n_features_in_ == 3
    assert model.feature_names_in_.tolist() == ["age", "grade", "sex"]
    public = {key for key in vars(model) if key.endswith("_")}
    assert public == {"answer_", "classes_", "n_features_in_", "feature_names_in_"}


def test_rows_without_a_class_and_classes_beyond_two_are_refused() -> None:
    rows = schema().table(frame(20).drop(columns="ill"))
    with pytest.raises(es.SchemaError, check=error("no-target")):
        clone(FOREST).fit(rows)
    for model in (es.SemiparametricNB(), es.OneStepLogisticRegression()):
        with pytest.raises(ValueError, check=error("not-two-classes", "3")):
            model.fit(table(classes=("a", "b", "c")))
    with pytest.raises(ValueError, check=error("y-with-table")):
        clone(FOREST).fit(table(), Y)


# -- rows to predict
# ------------------------------------------------------------------------------------------------


def test_a_model_of_a_table_finds_columns_by_name_and_overlooks_others(
    keeper: es.Owner, sealed_fit: Fit
) -> None:
    plain = keeper.open(sealed_fit(clone(FOREST), table()))
    rows = frame(30, seed=4)
    shuffled = rows.assign(extra="?")[["ill", "extra", "sex", "grade", "age"]]
    np.testing.assert_array_equal(
        plain.predict_proba(shuffled), plain.predict_proba(schema().table(rows))
    )
    with pytest.raises(es.SchemaError, check=error("unknown-column", "'age'")):
        plain.predict(rows.drop(columns="age"))
    with pytest.raises(es.SchemaError, check=error("wrong-number-of-columns", "2", "3")):
        plain.predict(np.zeros((3, 2)))
    with pytest.warns(es.SchemaWarning, match="column 'sex', row 3: 'q' is not a level"):
        found = plain.predict(rows.assign(sex=["f"] * 3 + ["q"] + ["m"] * 26))
    assert np.flatnonzero(pd.isna(found)).tolist() == [3]
    with pytest.raises(TypeError, check=error("still-encrypted")):
        plain.predict(keeper.encrypt(table(), workers=1))


def test_a_model_of_x_and_y_is_as_strict_as_scikit_learn() -> None:
    model = clone(FOREST).fit(X, Y)
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(X.assign(more=1))
    with pytest.warns(
        es.SchemaWarning,
        match=r"rows with a level that the schema does not know \(such as 'q', row 0\)",
    ):
        model.predict(X.assign(sex="q"))


def test_polars_frames_are_frames() -> None:
    polars = pytest.importorskip("polars")
    model = clone(FOREST).fit(polars.from_pandas(X), Y)
    assert totals(model) == totals(clone(FOREST).fit(X, Y))
    np.testing.assert_array_equal(model.predict(polars.from_pandas(X)), model.predict(X))


def test_a_model_without_names_predicts_rows_that_are_binned(
    keeper: es.Owner, sealed_fit: Fit, tmp_path: Any
) -> None:
    rows = table()
    sealed = sealed_fit(clone(FOREST), rows)
    sealed.answer_ = replace(
        sealed.answer_, schema=sealed.schema_.public()
    )  # as on a worker, or read from a file
    nameless = keeper.open(sealed)
    assert nameless.classes_.tolist() == [0, 1]
    assert not hasattr(nameless, "feature_names_in_")
    np.testing.assert_array_equal(
        nameless.predict(rows), (clone(FOREST).fit(rows).predict(rows) == "yes") * 1
    )
    with pytest.raises(es.SchemaError, check=error("open-with-names", "schema=schema")):
        nameless.predict(frame(5))
    named = keeper.open(sealed, schema=schema())
    assert named.feature_names_in_.tolist() == ["age", "grade", "sex"]
    assert named.predict(frame(5)).tolist() == clone(FOREST).fit(rows).predict(frame(5)).tolist()


@each_model
def test_a_model_that_forgot_everything_knows_nothing(model: Any) -> None:
    fitted = clone(model).fit(table())
    with (
        pytest.warns(UserWarning, match="constant")
        if isinstance(model, es.SemiparametricNB)
        else nullcontext()
    ):
        empty = fitted - fitted
    assert empty.n_rows_ == 0
    if hasattr(empty, "predict_proba"):
        np.testing.assert_allclose(empty.predict_proba(frame(3)), 0.5)
    assert len(empty.predict(frame(3))) == 3
