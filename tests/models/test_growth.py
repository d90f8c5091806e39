"""Blind growth: reproducible everywhere, uniform, and never a split that is none."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_samples import frame, schema, schemas, table
from scipy.stats import chisquare

import encryptedstats as es
from encryptedstats.models.growth import Draws, ForestShape, grow
from encryptedstats.tables import PublicSchema
from encryptedstats.tables.schema.variables import PublicVariable
from error_codes import error

MIXED = PublicSchema(
    (
        PublicVariable("v0", "continuous", 5),
        PublicVariable("v1", "categorical", 4),
        PublicVariable("v2", "ordinal", 4, missing_bin=True),
        PublicVariable("v3", "ordinal", 1),
        PublicVariable("v4", "number", 0, low=0, high=9),
        PublicVariable("v5", "categorical", 70),
    ),
    2,
)

GOLDEN = "5fb9d9980e4cac5fb97cfae0e10454bd9b5c3227721ca01a6365f71b083cd9c6"
GOLDEN_WITH_MAX_FEATURES = "f8d8ba7e537c9f902f164551ca8fadd6361ac60e82399ef865176d684a09fac0"
GOLDEN_WITH_REPEATS = "208cd44415dd6fe90ad1629c27e11da1ece905192b460684f9bf37c011e517c8"
GOLDEN_NUMBERS = [194, 880, 728, 795, 424, 867]


def one(kind: str, n_bins: int, missing: bool = False) -> PublicSchema:
    return PublicSchema((PublicVariable("v0", kind, n_bins, missing),), 2)


def lefts(schema: PublicSchema, n: int, seed: int = 0) -> list[tuple[int, ...]]:
    """The split of n trees of one node."""
    return [tree[0].left for tree in grow(schema, ForestShape(n, 1), seed)]


def digest(trees: Any) -> str:
    plain = [[[split.variable, list(split.left)] for split in tree] for tree in trees]
    return hashlib.sha256(json.dumps(plain).encode()).hexdigest()


# -- the same everywhere
# ------------------------------------------------------------------------------------------------


def test_the_golden_forest() -> None:
    """Encrypted shards may be fitted by any version on any machine: this forest must
    never change.
    """
    assert digest(grow(MIXED, ForestShape(20, 3), 7)) == GOLDEN
    assert digest(grow(MIXED, ForestShape(20, 3, 2), 7)) == GOLDEN_WITH_MAX_FEATURES
    assert digest(grow(MIXED, ForestShape(20, 3, repeats=True), 7)) == GOLDEN_WITH_REPEATS


def test_the_golden_numbers() -> None:
    draws = Draws(7, 0)
    assert [draws.below(1000) for _ in range(6)] == GOLDEN_NUMBERS
    key = "encryptedstats growth 7 0"
    assert [
        int.from_bytes(hashlib.sha256(f"{key} {i}".encode()).digest()[:8], "big") % 1000
        for i in range(6)
    ] == GOLDEN_NUMBERS


def test_the_same_seed_gives_the_same_trees_for_owner_and_worker() -> None:
    forest = es.CompletelyRandomForest(n_trees=5, depth=3, random_state=11)
    assert forest.grow(schema()) == forest.grow(schema().public()) == forest.fit(table()).trees_
    assert (
        forest.grow(schema())
        == es.CompletelyRandomForest(n_trees=9, depth=3, random_state=11).grow(schema())[:5]
    )


def test_other_seeds_and_other_trees_differ() -> None:
    forests = [grow(MIXED, ForestShape(6, 3), seed) for seed in range(20)]
    assert len(set(forests)) == 20
    assert len({tree for trees in forests for tree in trees}) == 120


@pytest.mark.parametrize("seed", [0, -1, 2**80, np.int64(5)])
def test_any_integer_is_a_seed(seed: Any) -> None:
    assert len(es.CompletelyRandomForest(n_trees=2, random_state=seed).grow(schema())) == 2


# -- uniform
# ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_bins", [2, 3, 5])
@pytest.mark.parametrize("kind", ["ordinal", "continuous"])
def test_cuts_of_ordered_bins_are_uniform(kind: str, n_bins: int) -> None:
    found = Counter(lefts(one(kind, n_bins), 3000))
    assert set(found) == {tuple(range(cut)) for cut in range(1, n_bins)}
    if n_bins > 2:
        assert chisquare(list(found.values())).pvalue > 1e-3


@pytest.mark.parametrize("n_bins", [2, 3, 4])
def test_sides_of_categories_are_uniform_over_proper_subsets(n_bins: int) -> None:
    found = Counter(lefts(one("categorical", n_bins), 3000))
    assert len(found) == 2**n_bins - 2
    assert all(0 < len(left) < n_bins for left in found)
    assert chisquare(list(found.values())).pvalue > 1e-3


def test_a_bin_for_missing_values_goes_to_either_side() -> None:
    found = Counter(lefts(one("ordinal", 4, missing=True), 3000))
    assert set(found) == {(0,), (0, 1), (0, 3), (0, 1, 3)}
    assert chisquare(list(found.values())).pvalue > 1e-3
    assert set(lefts(one("ordinal", 2, missing=True), 20)) == {(0,)}


def test_variables_are_uniform() -> None:
    roots = Counter(tree[0].variable for tree in grow(MIXED, ForestShape(2000, 1), 1))
    assert chisquare(list(roots.values())).pvalue > 1e-3
    repeated = grow(MIXED, ForestShape(400, 3, repeats=True), 1)
    nodes = Counter(split.variable for tree in repeated for split in tree)
    assert chisquare(list(nodes.values())).pvalue > 1e-3


def test_numbers_of_any_size_are_uniform() -> None:
    for n in (3, 2**64, 2**64 + 1, 2**70 - 2, 3 * 2**254, 2**1000 - 2):
        draws = Draws("size", n)
        values = [draws.below(n) for _ in range(600)]
        assert all(0 <= value < n for value in values)
        assert (
            chisquare(np.bincount([3 * value // n for value in values], minlength=3)).pvalue > 1e-3
        )


@pytest.mark.parametrize("n_bins", [64, 65, 300, 1000])
def test_categories_of_many_levels_are_dealt_to_two_sides(n_bins: int) -> None:
    sizes = [len(left) for left in lefts(one("categorical", n_bins), 50)]
    assert all(0 < size < n_bins for size in sizes)
    assert abs(np.mean(sizes) - n_bins / 2) < 5 * np.sqrt(n_bins / 4 / 50)


# -- sound
# ------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    schemas(("continuous", "ordinal", "categorical", "number")),
    st.integers(1, 4),
    st.integers(0, 999),
)
def test_both_sides_of_every_split_hold_bins(known: es.Schema, depth: int, seed: int) -> None:
    for tree in grow(known.public(), ForestShape(3, depth), seed):
        assert len(tree) == 2**depth - 1
        for split in tree:
            variable = known.public().variables[split.variable]
            assert variable.n_bins > 1
            assert 0 < len(split.left) < variable.n_bins
            assert list(split.left) == sorted(set(split.left))
            assert split.left[-1] < variable.n_bins
            if variable.kind != "categorical":
                ordered = [
                    k for k in split.left if not (variable.missing_bin and k == variable.n_bins - 1)
                ]
                assert ordered[0] == 0
                assert all(b - a == 1 for a, b in pairwise(ordered))


def reached(schema: PublicSchema, tree: Any) -> list[dict[int, set[int]]]:
    """Return the bins of each variable that reach the nodes and leaves of a tree."""
    nodes = [{j: set(range(variable.n_bins)) for j, variable in enumerate(schema.variables)}]
    for k, split in enumerate(tree):
        left = set(split.left)
        nodes += [
            {**nodes[k], split.variable: nodes[k][split.variable] & left},
            {**nodes[k], split.variable: nodes[k][split.variable] - left},
        ]
    return nodes


@settings(max_examples=60, deadline=None)
@given(
    schemas(("continuous", "ordinal", "categorical", "number")),
    st.integers(1, 5),
    st.integers(0, 999),
    st.sampled_from([None, 1, 2]),
)
def test_rows_can_reach_every_leaf_while_bins_are_left_to_divide(
    known: es.Schema, depth: int, seed: int, max_features: int | None
) -> None:
    public = known.public()
    for tree in grow(public, ForestShape(5, depth, max_features), seed):
        nodes = reached(public, tree)
        # Which variables the tree has drawn is known from its splits only.
        drawn = {split.variable for split in tree} if max_features else range(len(public.variables))
        for k, split in enumerate(tree):
            sides = [nodes[2 * k + 1][split.variable], nodes[2 * k + 2][split.variable]]
            assert all(sides) or all(len(nodes[k][j]) < 2 for j in drawn)


def test_leaves_without_rows_are_those_that_cannot_be_avoided() -> None:
    """With repeats a quarter of the leaves can hold no rows; two groups by five bins have ten
    cells.
    """
    two = PublicVariable("v0", "categorical", 2), PublicVariable("v1", "ordinal", 5)
    small = PublicSchema(two, 2)
    empty = [
        sum(
            not all(nodes[j] for j in (0, 1))
            for tree in grow(small, ForestShape(200, 3, repeats=repeats), 1)
            for nodes in reached(small, tree)[7:]
        )
        for repeats in (False, True)
    ]
    assert empty[1] > 200
    assert empty[0] < empty[1] / 2
    three = PublicSchema((*two, PublicVariable("v2", "continuous", 9)), 2)
    for tree in grow(three, ForestShape(200, 3), 1):
        assert all(bins for nodes in reached(three, tree) for bins in nodes.values())


def test_files_without_the_parameter_have_trees_that_repeat_splits() -> None:
    forest = es.CompletelyRandomForest(n_trees=5, depth=3, random_state=7)
    stored = forest.parameters()
    del stored["repeats"], stored["variables"]
    found = es.CompletelyRandomForest._from_parameters(stored)
    assert (
        found.grow(MIXED) == grow(MIXED, ForestShape(5, 3, repeats=True), 7) != forest.grow(MIXED)
    )
    assert es.CompletelyRandomForest._from_parameters(forest.parameters()).grow(
        MIXED
    ) == forest.grow(MIXED)


@pytest.mark.parametrize(
    ("wish", "most"),
    [(1, 1), (2, 2), (0.34, 2), ("sqrt", 2), (99, 4), (None, 4), (1.0, 4), (0.01, 1)],
)
def test_max_features_holds_for_every_tree(wish: Any, most: int) -> None:
    forest = es.CompletelyRandomForest(n_trees=60, depth=4, max_features=wish, random_state=0)
    used = [{split.variable for split in tree} for tree in forest.grow(MIXED)]
    assert max(map(len, used)) == most
    assert set().union(*used) == {0, 1, 2, 5}


def test_nothing_to_split() -> None:
    flat = PublicSchema(
        (PublicVariable("v0", "ordinal", 1), PublicVariable("v1", "number", 0, low=0, high=1)), 2
    )
    with pytest.raises(ValueError, check=error("nothing-to-split")):
        es.CompletelyRandomForest().grow(flat)


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"n_trees": 0}, "integer-out-of-range"),
        ({"n_trees": 2.0}, "integer-out-of-range"),
        ({"n_trees": True}, "integer-out-of-range"),
        ({"depth": 7}, "integer-out-of-range"),
        ({"max_features": 0}, "invalid-max-features"),
        ({"max_features": 1.5}, "invalid-max-features"),
        ({"max_features": "all"}, "invalid-max-features"),
        ({"fraction": 3}, "fraction-out-of-range"),
        ({"fraction": "all"}, "fraction-out-of-range"),
        ({"repeats": "no"}, "not-yes-or-no"),
        ({"random_state": 1.5}, "not-an-integer"),
        ({"random_state": "7"}, "not-an-integer"),
    ],
)
def test_wrong_parameters_are_refused_by_fit_and_grow(wrong: dict[str, Any], code: str) -> None:
    forest = es.CompletelyRandomForest(**wrong)
    with pytest.raises(ValueError, check=error(code, *wrong)):
        forest.grow(schema())
    with pytest.raises(ValueError, check=error(code, *wrong)):
        forest.fit(table())


# -- seeds that are drawn
# ------------------------------------------------------------------------------------------------


def test_no_seed_draws_one_at_every_fit_and_keeps_the_parameter() -> None:
    forest = es.CompletelyRandomForest(n_trees=3, random_state=None)
    with pytest.raises(ValueError, check=error("seed-missing", "random_state=None")):
        forest.grow(schema())
    first = forest.fit(table()).random_state_
    assert forest.random_state is None
    assert forest.grow(schema()) == forest.trees_
    assert forest.trees_ == es.CompletelyRandomForest(n_trees=3, random_state=first).grow(schema())
    assert forest.fit(table()).random_state_ != first


def test_a_given_seed_is_kept() -> None:
    forest = es.CompletelyRandomForest(n_trees=3, random_state=5).fit(
        frame(50).drop(columns="ill"), frame(50)["ill"]
    )
    assert (forest.random_state, forest.random_state_) == (5, 5)
