"""What is noised is read back: exactly without noise, and with noise as totals that some rows could
have.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from published_samples import patients

import encryptedstats as es
from effort import examples
from encryptedstats.publishing.counts import counts_of
from encryptedstats.publishing.forms import form_of
from encryptedstats.publishing.sensitivity import ADD, REPLACE, sensitivity
from encryptedstats.tables.questions.question import prepare_question
from encryptedstats.tables.questions.summaries import Counts, CrossTable, Moments
from error_codes import error

FRAME = patients(200).assign(weight=np.random.default_rng(1).integers(40, 90, 200))
BINS = es.Schema.infer(FRAME, target="sick")
NUMBERS = es.Schema.infer(
    FRAME,
    target="weight",
    kinds={"age": "number"},
    numbers="keep",
    bounds={"age": (20, 80), "weight": (40, 90)},
)
BINNED = [
    Counts((0,)),
    CrossTable((0, 1)),
    Counts((2, -1)),
    es.ChiSquare("sex", "sick"),
    es.Histogram("age"),
    es.MultinomialNB(),
    es.SemiparametricNB(),
    es.CompletelyRandomForest(n_trees=4, depth=3),
    es.GLM("sick ~ sex + region"),
]
NUMBERED = [
    Moments((0,)),
    es.Correlation(["age", "weight"]),
    es.Covariance(["age", "weight"]),
    es.PCA(variables=["age"]),
    es.LinearRegression("weight ~ age + sex"),
    es.Ridge(formula="weight ~ age + region"),
    es.TTest("weight", mu=60),
    es.TTest("age", by="sex"),
    es.Anova("weight", ["sex", "region"]),
]
GAPS = NUMBERS.with_missing_bin("age").with_missing_bin("region")
GAPPED = [es.TTest("age"), es.Anova("age", ["region"])]
CASES = [
    *((one, BINS) for one in BINNED),
    *((one, NUMBERS) for one in NUMBERED),
    *((one, GAPS) for one in GAPPED),
]


@pytest.mark.parametrize(("question", "schema"), CASES, ids=lambda one: getattr(one, "name", ""))
@pytest.mark.parametrize("public", [True, False])
def test_totals_come_back_as_they_were_and_noisy_ones_can_be_read(
    question: es.Question, schema: es.Schema, public: bool
) -> None:
    asked, known = prepare_question(question, schema)._fix_seed(), schema.public()
    exact = [int(x) for x in schema.table(FRAME).totals(asked)]
    form = form_of(asked, known)
    numbers = np.array(form.numbers(asked._name_totals(exact, known), 200), dtype=object)
    n_rows = 200 if public else None
    named, rows = form.totals(numbers, n_rows)
    assert [int(x) for name in form.shapes for x in named[name].flat] == exact
    assert rows == 200
    rng = np.random.default_rng(0)
    moved = sensitivity(
        form.rows, known, relation=REPLACE if public else ADD, groups=form.groups
    ).ranges
    for scale in (3, 300):
        noisy = numbers + (rng.normal(0, scale, len(numbers)) * moved.astype(float)).round().astype(
            int
        ).astype(object)
        named, rows = form.totals(noisy, n_rows)
        totals = [int(x) for name in form.shapes for x in named[name].flat]
        try:
            found = asked.interpret(totals, schema, rows)
        except es.DataError:  # an empty group, which real rows can have, too
            continue
        assert found is not None
        if public:
            assert rows == 200


@settings(max_examples=examples(50))
@given(st.lists(st.floats(-1e4, 1e4), min_size=1, max_size=8), st.integers(0, 10_000))
def test_counts_are_whole_not_negative_and_add_up(noisy: list[float], total: int) -> None:
    found = counts_of(np.array(noisy), total)
    assert sum(found) == total
    assert min(found) >= 0


@settings(max_examples=examples(30))
@given(st.lists(st.integers(0, 1000), min_size=1, max_size=8))
def test_counts_without_noise_stay(counts: list[int]) -> None:
    assert list(counts_of(np.array(counts, dtype=float), sum(counts))) == counts
    assert list(counts_of(np.array(counts, dtype=float), None)) == counts


def test_a_released_forest_adds_up_in_every_tree() -> None:
    forest = es.CompletelyRandomForest(n_trees=5, depth=3)
    exact = [int(x) for x in BINS.table(FRAME).totals(forest)]
    form = form_of(forest, BINS.public())
    numbers = np.array(form.numbers(forest._name_totals(exact, BINS.public()), 200), dtype=object)
    named, _ = form.totals(
        numbers + np.random.default_rng(0).normal(0, 50, len(numbers)).round(), 200
    )
    read = forest.interpret([int(x) for name in form.shapes for x in named[name].flat], BINS, 200)
    assert (read.node_counts_ >= 0).all()
    assert (read.leaf_counts_.sum(axis=(1, 2)) == 200).all()
    for node in range(7):  # a node is its two children
        parts = read.node_counts_[:, 2 * node + 1] + read.node_counts_[:, 2 * node + 2]
        assert (read.node_counts_[:, node] == parts).all()


def test_what_is_not_known_is_refused_before_anything_is_spent() -> None:
    with pytest.raises(es.ParameterError, check=error("no-noisy-release")):
        form_of(prepare_question(es.CoxScore("age", "sick", ["sex"]), BINS), BINS.public())
    weighted = es.LinearRegression("weight ~ sex", weights="age")
    with pytest.raises(es.ParameterError, check=error("no-noisy-release")):
        form_of(prepare_question(weighted, NUMBERS), NUMBERS.public())


def test_pairs_are_refused_with_the_way_to_them() -> None:
    with pytest.raises(es.ParameterError, check=error("no-noisy-release")):
        form_of(prepare_question(es.TTest("age", paired="weight"), NUMBERS), NUMBERS.public())


def test_numbers_are_noised_around_the_middle_of_their_bounds() -> None:
    """Ages of 20 to 80 are 30 apart from 50: their squares move by 900, and not by 6,400."""
    schema = es.Schema.infer(
        pd.DataFrame({"age": [20, 50, 80]}), kinds={"age": "number"}, bounds={"age": (20, 80)}
    ).public()
    form = form_of(Moments((0,)), schema)
    assert sensitivity(form.rows, schema).ranges.tolist() == [0, 60, 900]
