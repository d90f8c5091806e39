"""Counts of pairs of bins, and the classifiers that follow from them: encrypted equals clear,
counts by hand, probabilities by the formulas.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from model_samples import SLOTS, frame, random_table, row_weights, schema, schemas, table
from prediction_samples import new_rows, planned_owner, same_votes
from sklearn.metrics import mutual_info_score

import encryptedstats as es
from effort import examples
from encryptedstats.errors import SchemaError, StillEncryptedError
from encryptedstats.models.pairs import mutual_information, strongest_tree
from encryptedstats.tables.questions.folds import folds_of
from encryptedstats.tables.questions.question import ImpossibleTotalsError
from error_codes import error

BINNED = ("ordinal", "continuous", "categorical")
QUIET = {"workers": 1, "progress": False}
some = settings(max_examples=examples(6), deadline=None, suppress_health_check=list(HealthCheck))
few = settings(some, max_examples=examples(3))


def pairs_by_hand(rows: es.Table, i: int, j: int) -> Any:
    variables = rows.schema.variables
    counts = np.zeros((variables[i].n_bins, variables[j].n_bins, rows.schema.n_classes), int)
    np.add.at(counts, (rows.data[i], rows.data[j], rows.class_codes), row_weights(rows))
    return counts


@some
@given(schemas(BINNED), st.sampled_from([1, 2, 40, 5000]), st.integers(0, 99), st.booleans())
def test_clear_counts_are_the_totals_of_the_circuit(
    known: es.Schema, n: int, seed: int, weights: bool
) -> None:
    rows = random_table(known, n, seed, weights)
    rng = np.random.default_rng(seed)
    rows = replace(rows, fold_codes=rng.integers(0, 3, n), n_folds=3)
    for question in (es.AODE(), es.Pairs(), folds_of(es.TAN(), 3)):
        assert question.count_rows(rows) is not None
        written = question.circuit(
            rows.public_schema, rows.columns(), weight_bound=rows.weight_bound
        )
        assert rows.totals(question) == rows.evaluate(written)


def test_clear_counts_of_numbers_with_bins_and_of_targets_that_are_numbers() -> None:
    rng = np.random.default_rng(1)
    wide = pd.DataFrame(
        {
            "a": rng.normal(size=90).round(1),
            "b": rng.choice(list("uvw"), 90),
            "y": rng.integers(0, 9, 90),
        }
    )
    wide.loc[::7, "a"] = np.nan
    for target, kept in (("y", "both"), ("b", "both"), ("b", "bins")):
        known = es.Schema.infer(wide, target=target, numbers=kept, missing="bin")
        rows = known.table(wide)
        question = es.Pairs().in_ids(known)
        assert question.count_rows(rows) is not None
        written = question.circuit(rows.public_schema, rows.columns())
        assert rows.totals(question) == rows.evaluate(written)


def test_clear_counts_of_what_is_missing() -> None:
    rows = random_table(schema(), 20, 1)
    assert es.AODE().count_rows(replace(rows, class_codes=None)) is None
    assert es.AODE().count_rows(rows, fold=0) is None
    heavy = replace(rows, weights=np.full(20, 2**52), weight_bound=2**52)
    assert es.AODE().count_rows(heavy) is None
    assert sum(es.AODE().fit(heavy).class_counts_) == 20 * 2**52


@some
@given(
    schemas(BINNED),
    st.sampled_from([1, 2, SLOTS - 1, SLOTS + 1]),
    st.integers(0, 99),
    st.booleans(),
    st.sampled_from(["bfv", "bgv"]),
)
def test_pairs_are_counted(
    both: dict[str, es.Owner], known: es.Schema, n: int, seed: int, weights: bool, scheme: str
) -> None:
    rows, owner = random_table(known, n, seed, weights), both[scheme]
    sealed = owner.encrypt(rows, encodings=("onehot",), workers=1)
    opened, clear = owner.open(es.AODE().fit(sealed, **QUIET)), es.AODE().fit(rows)
    assert opened.totals_ == clear.totals_
    pairs = list(combinations(range(len(known.variables)), 2))
    assert len(opened.pair_counts_) == len(pairs)
    for (i, j), counts in zip(pairs, opened.pair_counts_, strict=True):
        np.testing.assert_array_equal(counts, pairs_by_hand(rows, i, j))
    np.testing.assert_array_equal(opened.predict_proba(rows), clear.predict_proba(rows))
    found = owner.open(es.TAN().fit(sealed, **QUIET))
    assert found.edges_ == es.TAN().fit(rows).edges_


def aode_by_hand(model: es.AODE, rows: es.Table, bins: tuple[int, ...]) -> Any:
    """The formula of Webb, Boughton and Wang with Laplace's smoothing, from the rows themselves."""
    alpha, n_classes = model.alpha, rows.schema.n_classes
    sizes = [variable.n_bins for variable in rows.schema.variables]
    weight = row_weights(rows)
    joint = np.zeros(n_classes)
    for c in range(n_classes):
        of_class = rows.class_codes == c
        for i, x in enumerate(bins):
            like = rows.data[i] == x
            if weight[like].sum() < model.min_rows:
                continue
            n = weight[like & of_class].sum()
            term = (n + alpha) / (weight.sum() + alpha * n_classes * sizes[i])
            for j, z in enumerate(bins):
                if j != i:
                    both = weight[like & of_class & (rows.data[j] == z)].sum()
                    term *= (both + alpha) / (n + alpha * sizes[j])
            joint[c] += term
    if not joint.any():
        for c in range(n_classes):
            n = weight[rows.class_codes == c].sum()
            shares = [
                (weight[(rows.class_codes == c) & (rows.data[i] == x)].sum() + alpha)
                / (n + alpha * sizes[i])
                for i, x in enumerate(bins)
            ]
            joint[c] = n * np.prod(shares)
    return joint / joint.sum()


@pytest.mark.parametrize(("alpha", "min_rows"), [(1.0, 30), (0.5, 1), (2.0, 10_000)])
def test_aode_follows_its_formula(alpha: float, min_rows: int) -> None:
    rows = table(200, classes=("no", "maybe", "yes"))
    model = es.AODE(alpha, min_rows).fit(rows)
    found = model.predict_proba(rows)
    for row in range(0, 200, 20):
        bins = tuple(int(codes[row]) for codes in rows.data)
        np.testing.assert_allclose(found[row], aode_by_hand(model, rows, bins), rtol=1e-12)


def tan_by_hand(rows: es.Table, edges: list[tuple[int, int]], alpha: float) -> Any:
    sizes = [variable.n_bins for variable in rows.schema.variables]
    joint = np.empty((len(rows), rows.schema.n_classes))
    for row, c in product(range(len(rows)), range(rows.schema.n_classes)):
        of_class = rows.class_codes == c
        root = of_class & (rows.data[0] == rows.data[0][row])
        value = of_class.sum() * (root.sum() + alpha) / (of_class.sum() + alpha * sizes[0])
        for parent, child in edges:
            above = of_class & (rows.data[parent] == rows.data[parent][row])
            here = above & (rows.data[child] == rows.data[child][row])
            value *= (here.sum() + alpha) / (above.sum() + alpha * sizes[child])
        joint[row, c] = value
    return joint / joint.sum(axis=1, keepdims=True)


def test_tan_follows_its_formula_on_the_strongest_tree() -> None:
    rows = table(120)
    model = es.TAN().fit(rows)
    np.testing.assert_allclose(
        model.predict_proba(rows), tan_by_hand(rows, model.edges_, 1.0), rtol=1e-12
    )
    strengths = np.zeros((3, 3))
    for i, j in combinations(range(3), 2):
        for c in range(2):
            own = rows.class_codes == c
            strengths[i, j] += own.mean() * mutual_info_score(rows.data[i][own], rows.data[j][own])
    trees = [set(tree) for tree in combinations(combinations(range(3), 2), 2)]
    best = max(trees, key=lambda tree: sum(strengths[edge] for edge in tree))
    assert {tuple(sorted(edge)) for edge in model.edges_} == best
    shown = model.tabulate()["mutual_information"]
    assert sorted(shown) == pytest.approx(sorted(strengths[edge] for edge in best))
    assert [list(rows.schema.names).index(child) for child in shown.index] == [
        child for _, child in model.edges_
    ]


@given(st.integers(2, 5), st.integers(0, 999))
def test_the_tree_has_the_largest_sum(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    strengths = np.triu(rng.integers(0, 4, (n, n)) / 8, 1)
    strengths += strengths.T
    edges = strongest_tree(strengths)
    reached = {0}
    for parent, child in edges:
        assert parent in reached
        assert child not in reached
        reached.add(child)
    assert reached == set(range(n))

    def spans(tree: tuple[tuple[int, int], ...]) -> bool:
        linked = {0}
        for _ in tree:
            linked |= {node for edge in tree if linked & set(edge) for node in edge}
        return len(linked) == n

    trees = (tree for tree in combinations(combinations(range(n), 2), n - 1) if spans(tree))
    best = max(sum(strengths[edge] for edge in tree) for tree in trees)
    assert sum(strengths[edge] for edge in edges) == pytest.approx(best)


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 60), st.integers(0, 999))
def test_mutual_information_is_that_of_scikit_learn(a: int, b: int, n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, z = rng.integers(0, a, n), rng.integers(0, b, n)
    counts = np.zeros((a, b), dtype=int)
    np.add.at(counts, (x, z), 1)
    assert mutual_information(counts) == pytest.approx(mutual_info_score(x, z), abs=1e-12)


@few
@given(schemas(BINNED), st.integers(1, 40), st.integers(0, 99), st.sampled_from(["bfv", "bgv"]))
def test_aode_predicts_unopened(known: es.Schema, n: int, seed: int, scheme: str) -> None:
    rows, new = random_table(known, n, seed), new_rows(known, 20, seed + 1)
    owner = planned_owner(scheme, 0)
    sealed, sealed_new = (owner.encrypt(one, workers=1) for one in (rows, new))
    closed, plain = es.AODE(min_rows=3).fit(sealed, **QUIET), es.AODE(min_rows=3).fit(rows)
    wanted = plain.predict_votes(new)
    np.testing.assert_allclose(wanted.scores.to_numpy(), plain.scores(new), rtol=1e-12)
    for model, other in ((closed, sealed_new), (closed, new), (plain, sealed_new)):
        same_votes(owner.open(model.predict_votes(other, **QUIET)), wanted)


def test_tan_has_to_be_opened_first(both: dict[str, es.Owner]) -> None:
    sealed = both["bgv"].encrypt(table(30), workers=1)
    with pytest.raises(StillEncryptedError, check=error("still-encrypted")):
        es.TAN().fit(sealed, **QUIET).predict_votes(sealed)


@pytest.mark.parametrize("place", ["bins", "pairs"])
def test_counts_that_no_rows_have_are_refused(place: str) -> None:
    rows = table(40)
    model = es.AODE().fit(rows)
    n_bins = sum(variable.n_bins for variable in rows.schema.variables)
    changed = list(model.totals_)
    changed[2 if place == "bins" else 2 + 2 * n_bins] += 41
    with pytest.raises(ImpossibleTotalsError):
        es.AODE().interpret(changed, rows.schema, len(rows))


def test_numbers_have_no_bins() -> None:
    numbers = schema().with_kind("age", "number", digits=0)
    rows = numbers.table(frame(20).round({"age": 0}))
    for model in (es.AODE(), es.TAN()):
        with pytest.raises(SchemaError, check=error("cut-into-bins")):
            model.fit(rows)
    es.AODE(variables=["grade", "sex"]).fit(rows)


def test_one_variable_is_naive_bayes() -> None:
    rows = table(50)
    chosen = {"variables": ["grade"]}
    bayes = es.MultinomialNB(**chosen).fit(rows).predict_proba(rows)
    np.testing.assert_allclose(es.TAN(**chosen).fit(rows).predict_proba(rows), bayes)
    alone = es.AODE(min_rows=10_000, **chosen).fit(rows)
    np.testing.assert_allclose(alone.predict_proba(rows), bayes)
