"""Learned trees: split by split those of a histogram tree of the plain rows, encrypted or clear,
and scikit-learn's where its rules are the same.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tree_samples as samples

import encryptedstats as es
from encryptedstats.models import NodeCounts
from encryptedstats.procedures import OpenedRound, read_run
from encryptedstats.procedures.learned_trees import LearnedTrees
from encryptedstats.tables.questions.question import check_question
from error_codes import error

FORESTS = [
    es.DecisionTree(depth=3),
    es.DecisionTree(depth=3, criterion="entropy", min_rows=7),
    es.RandomForest(n_trees=3, depth=3, max_features=2, random_state=4),
    es.ExtraTrees(n_trees=4, depth=3, max_features=3, random_state=5),
    es.DecisionTree(depth=2, decoys=2),
]


def splits_of(found: LearnedTrees, tree: int = 0) -> dict[int, Any]:
    return {
        number: None if node.split is None else (node.split.variable, node.split.left)
        for number, node in found._trees[tree].items()
    }


@pytest.mark.parametrize("target", ["y", "z"])
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("min_rows", [1, 12])
def test_a_tree_is_a_histogram_tree(target: str, classes: int, min_rows: int) -> None:
    for seed in range(4):
        table = samples.table(seed=seed, classes=classes, target=target)
        found = es.DecisionTree(depth=4, min_rows=min_rows).run(table)
        assert splits_of(found) == samples.grow(table, 4, min_rows)


@pytest.mark.parametrize("criterion", ["gini", "entropy"])
def test_a_tree_is_that_of_scikit_learn_on_binned_data(criterion: str) -> None:
    from sklearn.tree import DecisionTreeClassifier

    data = samples.frame(4000, 3).drop(columns=["z", "level"])
    table = es.Schema.infer(data, target="y", bins=16).table(data)
    codes = np.column_stack([table.codes_of(j) for j in range(4)])
    for depth in (1, 2, 3, 4, 5, 6):
        wanted = DecisionTreeClassifier(
            max_depth=depth, criterion=criterion, min_samples_leaf=50, random_state=0
        )
        wanted.fit(codes, table.class_codes)
        found = es.DecisionTree(depth=depth, criterion=criterion, min_rows=50).run(table)
        assert len(found.nodes) == wanted.tree_.node_count
        np.testing.assert_allclose(found.predict_proba(table), wanted.predict_proba(codes))
        sums = found.nodes[["0", "1"]].to_numpy()
        own = wanted.tree_.value[:, 0] * wanted.tree_.n_node_samples[:, None]
        assert sorted(map(tuple, sums)) == sorted(tuple(map(round, row)) for row in own)
        np.testing.assert_allclose(
            found.importances["importance"], wanted.feature_importances_, atol=1e-12
        )


def test_a_regression_tree_is_that_of_scikit_learn() -> None:
    from sklearn.tree import DecisionTreeRegressor

    data = samples.frame(3000, 5).drop(columns=["y", "level"])
    schema = samples.infer(data, "z", bins=12)
    table = schema.table(data)
    codes = np.column_stack([table.codes_of(j) for j in range(4)])
    for depth in (2, 5):
        wanted = DecisionTreeRegressor(max_depth=depth, min_samples_leaf=20, random_state=0)
        wanted.fit(codes, data["z"])
        found = es.DecisionTree(depth=depth, min_rows=20).run(table)
        np.testing.assert_allclose(found.predict(table), wanted.predict(codes), rtol=1e-12)
        assert found.score(data, data["z"]) == pytest.approx(wanted.score(codes, data["z"]))


@pytest.mark.parametrize("procedure", FORESTS, ids=lambda one: f"{one.name}-{one.decoys}")
def test_encrypted_equals_clear_round_by_round(procedure: Any) -> None:
    check_equal(procedure, "y", 2)


@pytest.mark.parametrize("scheme", ["bgv", "bfv"])
@pytest.mark.parametrize(("target", "classes"), [("y", 3), ("z", 2)])
def test_classes_numbers_and_schemes(scheme: str, target: str, classes: int) -> None:
    check_equal(es.DecisionTree(depth=2), target, classes, scheme=scheme)


def check_equal(procedure: Any, target: str, classes: int, **options: Any) -> None:
    """Check every round of a procedure on encrypted rows against the clear ones."""
    table = samples.table(n=120, classes=classes, target=target)
    fixed = procedure.fix_seeds()
    owner = es.Owner(es.plan(fixed, table, **options))
    rounds: list[list[OpenedRound]] = [[], []]
    clear = fixed.run(table, progress=rounds[0].append)
    found = fixed.run(owner.encrypt(table), owner, progress=rounds[1].append)
    assert found == clear
    assert rounds[0] == rounds[1]
    assert 1 <= len(rounds[0]) <= procedure.depth
    for one in rounds[0]:  # what NumPy counts is what the circuit says
        circuit = one.question.circuit(table.public_schema)
        assert table.evaluate(circuit) == list(one.totals)


def test_keys_of_a_plan_carry_every_tree() -> None:
    data = samples.frame(200, 1).drop(columns="z")
    schema = es.Schema.infer(data, target="y", bins=4)
    plan = es.plan(es.DecisionTree(depth=6), schema, n_rows=200)
    owner = es.Owner(plan)
    assert plan.depth == 4  # 1 + ceil(log2(6)) products in a row
    table = schema.table(samples.frame(200, 0).drop(columns="z"))
    procedure = es.ExtraTrees(n_trees=2, depth=6, max_features=2, random_state=0)
    assert procedure.run(owner.encrypt(table), owner) == procedure.run(table)


def test_trees_of_folds_count_rows_as_often_as_they_were_drawn() -> None:
    table = samples.table(n=200, folds=4)
    procedure = es.RandomForest(n_trees=5, depth=2, folds=4, random_state=1)
    owner = es.Owner(es.plan(procedure, table))
    found = procedure.run(owner.encrypt(table), owner)
    assert found == procedure.run(table)
    times = [procedure._times_of_folds(t) for t in range(5)]
    sizes = np.bincount(table.fold_codes, minlength=4)
    roots = found.nodes.xs(0, level="node")["rows"].tolist()
    assert roots == [int(sizes @ np.array(one)) for one in times]
    assert len({tuple(one) for one in times}) > 1


def test_weighted_rows_count_as_often() -> None:
    data = samples.frame(80, 2).drop(columns="z")
    schema = es.Schema.infer(data, target="y", bins=4)
    weights = np.random.default_rng(0).integers(0, 4, 80)
    weighted = schema.table(data, weights=weights)
    often = schema.table(data.loc[data.index.repeat(weights)])
    procedure = es.DecisionTree(depth=3)
    assert splits_of(procedure.run(weighted)) == splits_of(procedure.run(often))
    owner = es.Owner(es.plan(procedure, weighted))
    assert procedure.run(owner.encrypt(weighted), owner) == procedure.run(weighted)


def test_decoys_hide_which_tree_is_used_and_change_nothing() -> None:
    table = samples.table(n=300)
    plain, opened_rounds = es.DecisionTree(depth=3), list[OpenedRound]()
    assert es.DecisionTree(depth=3, decoys=5).fix_seeds().decoy_seed is not None
    hidden = es.DecisionTree(depth=3, decoys=5, decoy_seed=1)
    assert splits_of(hidden.run(table, progress=opened_rounds.append)) == splits_of(
        plain.run(table)
    )
    paths = {str(node[0][:1]) for node in opened_rounds[1].question.nodes}
    assert len(paths) > 2  # roots were split otherwise by decoys
    others = {es.DecisionTree(depth=3, decoys=5).fix_seeds()._real[0] for _ in range(40)}
    assert len(others) > 3
    plan = es.plan(hidden, table)
    assert plan.n_totals > 3 * es.plan(plain, table).n_totals
    assert "5 others" in dict(plan.notes)["worker learns"]
    assert "seed" not in str([one.question.parameters() for one in opened_rounds])


def test_candidates_of_a_forest_with_decoys_do_not_follow_from_its_public_seed() -> None:
    table = samples.table(n=100)
    forest = es.RandomForest(n_trees=2, depth=1, max_features=1, decoys=1)
    first = []
    for _ in range(12):
        opened_rounds: list[OpenedRound] = []
        forest.run(table, progress=opened_rounds.append)
        first.append(str(opened_rounds[0].question.parameters()))
    assert len(set(first)) > 1


@pytest.mark.parametrize("classes", [2, 3])
def test_hidden_splits_are_the_same_and_the_worker_sees_none(classes: int) -> None:
    for procedure in (
        es.DecisionTree(depth=2),
        es.RandomForest(n_trees=8, depth=2, max_features=2),
        es.ExtraTrees(n_trees=5, depth=1),
    ):
        opened_rounds = [list[OpenedRound](), list[OpenedRound]()]
        hidden = replace(procedure, hide_splits=True)
        for seed, heard in enumerate(opened_rounds):
            table = samples.table(n=150, seed=seed, classes=classes)
            found = hidden.run(table, progress=heard.append)
            assert found.nodes.equals(procedure.run(table).nodes)
            assert len(heard) == 1
        assert (
            opened_rounds[0][0].question.parameters() == opened_rounds[1][0].question.parameters()
        )
    owner = es.Owner(es.plan(hidden, table))
    assert hidden.run(owner.encrypt(table), owner) == found
    assert "nothing of the splits" in dict(es.plan(hidden, table).notes)["worker learns"]


def test_only_the_left_of_two_siblings_is_counted() -> None:
    opened_rounds: list[OpenedRound] = []
    es.DecisionTree(depth=3).run(samples.table(), progress=opened_rounds.append)
    per_node = 2 * (4 * 3 + 3)
    assert [len(one.totals) for one in opened_rounds] == [per_node + 2, per_node, 2 * per_node]


def test_missing_values_go_to_the_better_side() -> None:
    data = samples.frame(400, 7).drop(columns=["z", "level"])
    data.loc[data["x0"] > 0.5, "x0"] = np.nan
    schema = es.Schema.infer(data, target="y", bins=3, missing="bin")
    table = schema.table(data)
    found = es.DecisionTree(depth=1).run(table)
    variable, left = splits_of(found)[0]
    assert variable == 0
    assert table.schema.variables[0].n_bins - 1 not in left
    owner = es.Owner(es.plan(es.DecisionTree(depth=2), table))
    procedure = es.DecisionTree(depth=2)
    assert procedure.run(owner.encrypt(table), owner) == procedure.run(table)


def test_what_is_learned_predicts_and_is_read_again(tmp_path: Path) -> None:
    data = samples.frame(400, 3).drop(columns="z")
    schema = es.Schema.infer(data, target="y", bins=4)
    table = schema.table(data)
    forest = es.RandomForest(n_trees=10, depth=4)
    found = forest.run(table, folder=tmp_path / "run")
    assert found.score(data, data["y"]) > 0.75
    assert found.predict_proba(data).sum(axis=1) == pytest.approx(1)
    assert found.apply(table).shape == (400, 10)
    assert read_run(tmp_path / "run", schema).read() == found
    assert "nodes" in str(found)
    assert found.to_dict()["n_trees"] == 10
    assert found.importances["importance"].sum() == pytest.approx(1)
    assert found.classes_.tolist() == list(schema.classes)


@pytest.mark.parametrize("target", ["y", "z"])
def test_rows_of_the_fit_are_noticed_and_unread_columns_may_be_missing(target: str) -> None:
    data = samples.frame(400, 3).drop(columns="z" if target == "y" else "y")
    kinds = {name: "both" for name in data.columns.drop(target) if data[name].dtype.kind in "if"}
    schema = es.Schema.infer(data, target=target, bins=4, kinds=kinds, numbers="keep")
    table = schema.table(data)
    tree = es.DecisionTree(depth=2).run(table)
    assert tree.was_fitted_to(table)
    assert not tree.was_fitted_to(table.take(np.arange(399)))
    used = [schema.names[j] for j in tree._used_positions()]
    found = tree.predict(data[used])
    assert found.tolist() == tree.predict(table).tolist()
    assert hasattr(tree, "classes_") == (target == "y")


def test_malformed_nodes_are_refused() -> None:
    public = samples.table().public_schema
    for nodes, code in (
        ([[]], "malformed-node"),
        ([[[], [[0, [0]]], [-1]]], "malformed-node"),
        ([[[], [[9, [0]]], []]], "unknown-variable"),
        ([[[], [[0, [0, 1, 2, 3]]], []]], "impossible-side"),
        ([[[], [[0, [0, 0]]], []]], "impossible-side"),
        ([[[], [9], []]], "unknown-variable"),
        ([[[], [], []]], "wrong-number-of-cells"),
        ([[[[0, [0]]] * 9, [[0, [0]]], []]], "malformed-node"),
        ("v0", "malformed-node"),
    ):
        with pytest.raises(ValueError, check=error(code)):
            check_question(NodeCounts(nodes)).check_schema(public)  # type: ignore[arg-type]  # on purpose


def test_impossible_parameters_are_refused() -> None:
    with pytest.raises(es.ParameterError):
        es.DecisionTree(depth=7)
    with pytest.raises(es.ParameterError):
        es.DecisionTree(criterion="gain")
    for wrong in ({"depth": 3}, {"depth": 2, "decoys": 1}):
        with pytest.raises(es.ParameterError, check=error("cannot-hide-splits")):
            es.DecisionTree(hide_splits=True, **wrong)
    with pytest.raises(es.SchemaError, check=error("no-classes")):
        es.DecisionTree(depth=1, hide_splits=True).run(samples.table(target="z"))
    with pytest.raises(es.ParameterError, check=error("too-many-trees")):
        es.RandomForest(n_trees=4000, decoys=3)
    data = samples.frame(50, 0).drop(columns=["y", "z"])
    without_target = es.Schema.infer(data)
    with pytest.raises(es.SchemaError, check=error("no-target")):
        es.DecisionTree().run(without_target.table(data))
