"""Rows in and out of models: none counts twice, whole blocks and folds alike; a prediction for
every row, or an error.
"""

from __future__ import annotations

import doctest
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from model_samples import FOREST, frame, table
from sklearn.base import clone

import encryptedstats as es
from encryptedstats.tables import block_ids
from encryptedstats.tables.block_ids import find_shared_block, rows_without
from error_codes import error

Fit = Callable[..., Any]


def test_examples() -> None:
    assert doctest.testmod(block_ids).failed == 0
    assert doctest.testmod(block_ids).attempted > 1


# -- blocks and folds of blocks: as sets of (block, fold), written short
# -----------------------------------------------------

N_FOLDS = 3
subsets = st.dictionaries(
    st.sampled_from("abc"), st.frozensets(st.integers(0, N_FOLDS - 1), min_size=1), max_size=3
)


def written(rows: dict[str, frozenset[int]], split: bool) -> list[str]:
    """As ids: a whole block by its name (or by all its folds), else some folds in one entry or
    several.
    """
    names = []
    for block, folds in rows.items():
        if len(folds) == N_FOLDS and not split:
            names.append(block)
        else:
            groups = [[fold] for fold in sorted(folds)] if split else [sorted(folds)]
            names += [f"{block}:{','.join(map(str, group))}/{N_FOLDS}" for group in groups]
    return names


def units(rows: dict[str, frozenset[int]]) -> set[tuple[str, int]]:
    return {(block, fold) for block, folds in rows.items() for fold in folds}


def read(names: tuple[str, ...]) -> set[tuple[str, int]]:
    found = set()
    for name in names:
        block, _, folds = name.partition(":")
        which = folds.partition("/")[0].split(",") if folds else range(N_FOLDS)
        found |= {(block, int(fold)) for fold in which}
    return found


@given(a=subsets, b=subsets, split=st.tuples(st.booleans(), st.booleans()))
def test_rows_are_sets(a: dict, b: dict, split: tuple[bool, bool]) -> None:
    have, others = written(a, split[0]), written(b, split[1])
    assert (find_shared_block(have, others) is not None) == bool(units(a) & units(b))
    left = rows_without(have, others)
    assert (left is not None) == (units(b) <= units(a))
    if left is not None:
        assert read(left) == units(a) - units(b)


def test_folds_that_were_dealt_differently_are_not_told_apart() -> None:
    assert find_shared_block(["a:0/2"], ["a:1/3"]) == "a"
    assert rows_without(["a:0,1/3"], ["a:0/2"]) is None
    assert rows_without(["a:0/2"], ["a"]) is None
    for odd in (
        "a:0/123456",
        "a:/2",
        "a:x/2",
        ":0/2",
        "a:0/2 ",
    ):  # what is none of ours is a block of that name
        assert rows_without([odd], [odd]) == ()
        assert find_shared_block([odd], ["a"]) is None


# -- models of folds
# ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def parts(keeper: es.Owner) -> tuple[es.EncryptedTable, list[Any], Any]:
    sealed = keeper.encrypt(table(60, folds=3), workers=1)
    folds = clone(FOREST).fit_folds(sealed, workers=1)
    return sealed, keeper.open(folds), keeper.open(clone(FOREST).fit(sealed, workers=1))


def test_models_of_folds_know_their_rows(parts: tuple[es.EncryptedTable, list[Any], Any]) -> None:
    sealed, models, whole = parts
    (block,) = sealed.blocks.ids
    assert [model.block_ids_ for model in models] == [
        (f"{block}:{kept}/3",) for kept in ("1,2", "0,2", "0,1")
    ]
    twice = f"block {block} is in the model already: its rows would count twice"
    for a, b in ((0, 1), (2, 2)):
        with pytest.raises(es.SchemaError, match=twice):
            models[a] + models[b]
    for one, other in ((whole, models[0]), (models[0], whole)):
        with pytest.raises(es.SchemaError, match=twice):
            one + other


def test_a_fold_can_be_taken_out_and_put_back_once(
    parts: tuple[es.EncryptedTable, list[Any], Any],
) -> None:
    sealed, models, whole = parts
    held_out = whole - models[1]
    assert held_out.block_ids_ == (f"{sealed.blocks.ids[0]}:1/3",)
    assert held_out.n_rows_ == 20
    again = held_out + models[1]
    assert list(again.totals_) == list(whole.totals_)
    with pytest.raises(es.SchemaError, check=error("block-already-included")):
        again + held_out
    assert (again - whole).block_ids_ == ()
    with pytest.raises(es.SchemaError, check=error("rows-not-inside")):
        held_out - models[1]


def test_a_stored_model_of_a_fold(
    parts: tuple[es.EncryptedTable, list[Any], Any], tmp_path: Any
) -> None:
    _, models, _ = parts
    models[0].save(tmp_path / "m")
    with pytest.raises(es.SchemaError, check=error("block-already-included")):
        models[1] + es.load(tmp_path / "m")


# -- rows to predict
# ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["drop", "error"])
def test_a_row_with_missing_values_is_an_error_at_prediction(missing: str) -> None:
    rows = frame(60)
    rows.index = pd.Index([f"p{i}" for i in range(60)])
    schema = es.Schema.infer(rows, target="ill", missing=missing)
    gaps = rows.copy()
    gaps.loc["p7", "sex"] = None
    gaps.loc[["p5", "p9"], "age"] = np.nan
    model = es.MultinomialNB().fit(schema.table(gaps if missing == "drop" else rows))
    assert model.n_rows_ == (57 if missing == "drop" else 60)
    with pytest.warns(es.SchemaWarning, match="rows 'p5', 'p9': it is missing"):
        classes, shares = model.predict(gaps), model.predict_proba(gaps)
    without = gaps[["age", "sex"]].isna().any(axis=1).to_numpy()
    assert (pd.isna(classes) == without).all()
    assert (np.isnan(shares) == without[:, None]).all()
    with pytest.raises(es.SchemaError, check=error("missing-without-bin")):
        model.score(gaps, gaps["ill"])
    complete = gaps.dropna(subset=["age", "sex"])
    assert len(model.predict(complete)) == 57
    assert len(model.predict(schema.table(complete))) == 57  # a table has its rows already


def test_missing_values_that_have_a_bin_are_predicted() -> None:
    rows = frame(60)
    rows.loc[4:9, "age"] = np.nan
    schema = es.Schema.infer(rows, target="ill", missing="bin")
    model = es.MultinomialNB().fit(schema.table(rows))
    assert len(model.predict(rows)) == 60
    rows.loc[3, "sex"] = None
    with pytest.warns(es.SchemaWarning, match="column 'sex', row 3: it is missing"):
        assert np.flatnonzero(pd.isna(model.predict(rows))).tolist() == [3]


def test_the_target_is_not_looked_at() -> None:
    rows = frame(30)
    model = es.MultinomialNB().fit(table(60))
    expected = model.predict(rows)
    for ill in ("who knows", None, 7):
        np.testing.assert_array_equal(model.predict(rows.assign(ill=ill)), expected)


def test_one_hot_rows_to_predict() -> None:
    schema = es.Schema.from_onehot(["a", "a", "b", "b"], {"a": "ord", "b": "cat"})
    X = np.array([[1, 0, 0, 1], [0, 1, 1, 0], [1, 0, 1, 0]])
    model = es.MultinomialNB().fit(schema.table(X, y=[0, 1, 0]))
    expected = model.predict(schema.table(X))
    np.testing.assert_array_equal(model.predict(X), expected)
    np.testing.assert_array_equal(
        model.predict(pd.DataFrame(X, columns=list("pqrs")).assign(target=9)), expected
    )
