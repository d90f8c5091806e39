"""Sensitivity against brute force: tables of one row each, for every row that there can be, and all
pairs of them.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import encryptedstats as es
from effort import examples
from encryptedstats.circuits.expressions import column
from encryptedstats.publishing import sensitivity as module
from encryptedstats.publishing.forms import form_of
from encryptedstats.publishing.mechanisms import GAUSSIAN, calibrate
from encryptedstats.publishing.sensitivity import ADD, REPLACE, sensitivity
from encryptedstats.tables.questions.question import load_all_questions, prepare_question
from encryptedstats.tables.questions.summaries import Counts, CrossTable, Moments
from error_codes import error


def every_row(schema: es.Schema) -> pd.DataFrame:
    """All rows that a table of this schema can have."""
    values: dict[str, list[Any]] = {}
    for variable in schema.variables:
        if variable.kind == "number":
            values[variable.name] = [*range(variable.low or 0, (variable.high or 0) + 1)]
        else:
            values[variable.name] = list(variable.levels)
        if variable.missing_bin:
            values[variable.name].append(np.nan if variable.kind == "number" else None)
    if schema.n_classes:
        values[str(schema.target)] = list(schema.classes)
    elif schema.target_number is not None:
        values[str(schema.target)] = [
            *range(schema.target_number.low or 0, (schema.target_number.high or 0) + 1)
        ]
    return pd.DataFrame(itertools.product(*values.values()), columns=list(values))


def vectors(question: es.Question, schema: es.Schema) -> np.ndarray:
    """What each row adds to the numbers that get noise: read from a clear table of that
    row alone.
    """
    rows, form = every_row(schema), form_of(question, schema.public())
    found = []
    for place in range(len(rows)):
        table = schema.table(rows.iloc[[place]].reset_index(drop=True))
        named = question._name_totals([int(x) for x in table.totals(question)], schema.public())
        found.append(form.numbers(named, 1))
    return np.array(found, dtype=float)


def brute(added: np.ndarray, relation: str, ranges: np.ndarray) -> tuple[np.ndarray, float, float]:
    apart = added[:, None, :] - added[None, :, :] if relation == REPLACE else added[:, None, :]
    apart = np.abs(apart).reshape(-1, added.shape[1])
    scaled = apart[:, ranges > 0] / ranges[ranges > 0]
    return (
        apart.max(axis=0),
        float(scaled.sum(axis=1).max()),
        float((scaled**2).sum(axis=1).max() ** 0.5),
    )


def compared(
    question: es.Question, schema: es.Schema, relation: str, *, tight: bool = True
) -> None:
    asked = prepare_question(question, schema)._fix_seed()
    form = form_of(asked, schema.public())
    found = sensitivity(form.rows, schema.public(), relation=relation, groups=form.groups)
    ranges, l1, l2 = brute(vectors(asked, schema), relation, found.ranges)
    assert (ranges <= found.ranges).all()
    assert l1 <= found.l1 * (1 + 1e-12)
    assert l2 <= found.l2 * (1 + 1e-12)
    if tight:
        assert l1 == pytest.approx(found.l1)
        assert l2 == pytest.approx(found.l2)
    if found.exact:
        assert (ranges == found.ranges).all()


@st.composite
def schemas(draw: st.DrawFn) -> es.Schema:
    """Two or three small variables with levels, some with a bin for missing values, and two or
    three classes.
    """
    frame, gaps = {}, []
    for j in range(draw(st.integers(2, 3))):
        levels = draw(st.integers(2, 3))
        ordered = draw(st.booleans())
        frame[f"x{j}"] = pd.Categorical([f"l{k % levels}" for k in range(6)], ordered=ordered)
        if draw(st.booleans()):
            gaps.append(f"x{j}")
    classes = draw(st.integers(2, 3))
    made = es.Schema.infer(
        pd.DataFrame({**frame, "y": [f"c{k % classes}" for k in range(6)]}), target="y"
    )
    for name in gaps:
        made = made.with_missing_bin(name)
    return made


def numbers(
    target: tuple[int, int] | None = None, groups: bool = False, **bounds: tuple[int, int]
) -> es.Schema:
    """Numbers within bounds, and a variable with two groups if wanted."""
    schema = es.Schema.infer(
        pd.DataFrame(
            {name: range(4) for name in bounds}
            | ({"g": list("aabb")} if groups else {})
            | {"y": [0, 1, 0, 1]}
        ),
        target=None if target is None else "y",
    )
    for name, (low, high) in {**bounds, **({} if target is None else {"y": target})}.items():
        schema = schema.with_kind(name, "number", digits=0, low=low, high=high)
    return schema


relations = st.sampled_from([REPLACE, ADD])


@settings(max_examples=examples(6))
@given(schemas(), relations, st.data())
def test_tables_and_naive_bayes_move_as_far_as_brute_force_says(
    schema: es.Schema, relation: str, data: st.DataObject
) -> None:
    question = data.draw(
        st.sampled_from(
            [
                Counts((0,)),
                Counts((0, -1)),
                CrossTable((0, 1)),
                es.MultinomialNB(),
                es.ChiSquare("x0", "x1"),
            ]
        )
    )
    compared(question, schema, relation)


@settings(max_examples=examples(6))
@given(schemas(), relations, st.integers(1, 4), st.integers(1, 3), st.integers(0, 1000))
def test_forests_move_as_far_as_brute_force_says(
    schema: es.Schema, relation: str, n_trees: int, depth: int, seed: int
) -> None:
    forest = es.CompletelyRandomForest(n_trees=n_trees, depth=depth, random_state=seed)
    compared(forest, schema, relation)
    form = form_of(forest, schema.public())
    found = sensitivity(form.rows, schema.public(), relation=relation, groups=form.groups)
    apart = 2 if relation == REPLACE else 1
    assert found.l1 == apart * n_trees
    assert found.l2 == pytest.approx((apart * n_trees) ** 0.5)


LEVELS = es.Schema.infer(
    pd.DataFrame(
        {
            "t": pd.Categorical([0, 1, 2, 0, 1, 2], ordered=True),
            "e": list("ababab"),
            "g": list("aabbab"),
            "y": [0, 1, 0, 1, 0, 1],
        }
    ),
    target="y",
)
#: A question of every type that can be released.
OF_LEVELS = [
    Counts((0,)),
    CrossTable((0, 1)),
    es.Histogram("t", by="g"),
    es.ChiSquare("t", "g"),
    es.FisherExact("e", "g"),
    es.CochranArmitage("t", "e", event="b"),
    es.OddsRatio("g", "e", event="b"),
    es.Kappa("e", "g"),
    es.McNemar("e", "g"),
    es.RankCorrelation("t", "e", "kendall"),
    es.MantelHaenszel("e", "y", "g"),
    es.ROC("t", "y"),
    es.CochranQ(["e", "g"]),
    es.Concordance("t", "g", "e", event_level="b"),
    es.MultinomialRegression(["g", "e"], target="t"),
    es.PairwiseLogRank("t", "e", "g", event_level="b"),
    es.PairwiseProportions("e", "g"),
    es.StandardisedRate("g", "e"),
    es.KaplanMeier("t", "e", event_level="b", by="g"),
    es.LifeTable("t", "e", event_level="b"),
    es.LogRank("t", "e", event_level="b", by="g"),
    es.LogRank("t", "e", event_level="b", by="g", strata="y"),
    es.PiecewiseExponential("t", "e", ["g"], event_level="b"),
    es.CoxRegression("t", "e", ["g"], event_level="b"),
    es.CumulativeIncidence("t", "e", "g"),
    es.GLM("y ~ e + g"),
    es.MultinomialNB(),
    es.AODE(),
    es.TAN(),
    es.Pairs(),
    es.SemiparametricNB(),
    es.CompletelyRandomForest(n_trees=3, depth=2),
]
OF_NUMBERS = [
    Moments((0,)),
    es.Covariance(["x"]),
    es.Correlation(["x", "y"]),
    es.PCA(variables=["x", "z"]),
    es.TTest("x", by="g"),
    es.Anova("y", ["g"]),
    es.PairwiseTTest("x", "g"),
    es.VarianceTest("x", "g"),
    es.PartialCorrelation(["x", "y"], covariates=["z"]),
    es.CronbachAlpha(["x", "z"]),
    es.LinearRegression("y ~ x + g"),
    es.LinearRegression("y ~ I(x * z) + I((x - 1)^2) + offset(z)"),
    es.Ridge(formula="y ~ x + z"),
]
#: Those that are refused, with what can be released instead.
REFUSED = {
    "CoxScore", "Describe", "ElasticNet", "FisherDiscriminant", "Folds", "GenomeScan", "IncidenceRate",
    "KruskalWallis", "LinearDiscriminant", "LinearMeans", "MannWhitney", "Manova", "NodeCounts",
    "PairwiseMannWhitney", "OneStepLogisticRegression", "QuadraticDiscriminant", "Quantiles", "SignedRank",
}  # fmt: skip


def mixed() -> es.Schema:
    return numbers(x=(-1, 2), z=(0, 1), target=(0, 2), groups=True)


@pytest.mark.parametrize("relation", [REPLACE, ADD])
@pytest.mark.parametrize("question", [*OF_LEVELS, *OF_NUMBERS], ids=lambda one: one.name)
def test_every_question_that_is_released_moves_as_far_as_brute_force_says(
    question: es.Question, relation: str
) -> None:
    compared(question, LEVELS if question in OF_LEVELS else mixed(), relation)


def test_no_question_is_released_that_brute_force_has_not_seen() -> None:
    def below(kind: type) -> Iterator[type]:
        for one in kind.__subclasses__():
            yield one
            yield from below(one)

    load_all_questions()
    own = [one for one in below(es.Question) if one.__module__.startswith("encryptedstats.")]
    asked = {
        one.__name__
        for one in own
        if not inspect.isabstract(one) and not one.__name__.startswith("_")
    }
    tried = {type(one).__name__ for one in [*OF_LEVELS, *OF_NUMBERS]}
    assert not tried & REFUSED
    assert asked - {"TotalsModel", "TotalsClassifier"} == tried | REFUSED


def test_a_person_with_several_rows_moves_totals_by_no_more_than_so_many_times_as_much() -> None:
    """All tables of two rows, and all that a person with both can exchange them for."""
    for question, schema in ((es.MultinomialNB(), LEVELS), (es.TTest("x", by="g"), mixed())):
        asked = prepare_question(question, schema)._fix_seed()
        form = form_of(asked, schema.public())
        found = sensitivity(form.rows, schema.public(), groups=form.groups)
        single = np.unique(vectors(asked, schema), axis=0)
        both = np.unique((single[:, None] + single[None]).reshape(-1, single.shape[1]), axis=0)
        _, l1, l2 = brute(both, REPLACE, found.ranges)
        gaussian = calibrate(found, 1.0, 1e-6, max_rows=2, mechanism=GAUSSIAN)
        laplace = calibrate(found, 1.0, 0.0, max_rows=2)
        assert laplace.scale == pytest.approx(l1 / 1.0)  # no less than it has to be, and no more
        assert gaussian.scale == pytest.approx(l2 / np.sqrt(2 * gaussian.spent.rho))


def test_leaves_are_seen_to_exclude_each_other_without_trying_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A hundred trees of depth 6 on twenty variables: more rows than anybody tries."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {f"x{j}": rng.permutation(np.arange(40) % 5) for j in range(20)} | {"y": np.arange(40) % 2}
    )
    schema = es.Schema.infer(frame, target="y").public()
    monkeypatch.setattr(module, "_states", lambda *args, **options: pytest.fail("rows were tried"))
    form = form_of(es.CompletelyRandomForest(n_trees=10, depth=5), schema)
    assert sensitivity(form.rows, schema, groups=form.groups).l1 == 20


@settings(max_examples=examples(5))
@given(
    st.integers(-3, 3),
    st.integers(1, 5),
    st.integers(-2, 2),
    st.integers(1, 3),
    st.booleans(),
    relations,
)
def test_sums_and_products_of_numbers_move_as_far_as_brute_force_says(
    low: int, width: int, other: int, other_width: int, gaps: bool, relation: str
) -> None:
    schema = numbers(a=(low, low + width), b=(other, other + other_width))
    if gaps:
        schema = schema.with_missing_bin("a")
    compared(Moments((0, 1)), schema, relation)


def test_regression_and_lines_are_bounded_for_every_row() -> None:
    schema = numbers(x=(0, 3), target=(0, 4), groups=True)
    for relation in (REPLACE, ADD):
        compared(es.LinearRegression("y ~ x + g"), schema, relation)
    levels = pd.DataFrame(
        {"x": pd.Categorical([0, 1, 2], ordered=True), "g": list("aab"), "y": [0, 1, 1]}
    )
    for relation in (REPLACE, ADD):
        compared(es.SemiparametricNB(), es.Schema.infer(levels, target="y"), relation)


@pytest.mark.parametrize("relation", [REPLACE, ADD])
@pytest.mark.parametrize("gaps", [False, True])
def test_t_tests_and_anova_are_bounded_for_every_row(relation: str, gaps: bool) -> None:
    schema = numbers(x=(-1, 4), target=(0, 3), groups=True)
    if gaps:
        schema = schema.with_missing_bin("x").with_missing_bin("g")
    for question in (
        es.TTest("x"),
        es.TTest("x", by="g"),
        es.Anova("x", ["g"]),
        es.Anova("y", ["g"]),
    ):
        compared(question, schema, relation)


@pytest.mark.parametrize("relation", [REPLACE, ADD])
def test_intervals_bound_what_is_too_much_to_try(
    relation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = numbers(x=(-2, 3), target=(0, 4), groups=True)
    monkeypatch.setattr(module, "_MOST_VALUES", 1)
    compared(es.LinearRegression("y ~ x + g"), schema, relation, tight=False)
    monkeypatch.setattr(module, "_states", lambda *args, **options: None)
    compared(es.LinearRegression("y ~ x + g"), schema, relation, tight=False)
    compared(
        CrossTable((0, -1)),
        es.Schema.infer(pd.DataFrame({"x": list("ab"), "y": [0, 1]}), target="y"),
        relation,
        tight=False,
    )


def test_many_pairs_are_bounded_by_what_single_rows_add(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = pd.DataFrame({"x": list("abc"), "z": list("aab"), "y": [0, 1, 1]})
    schema = es.Schema.infer(frame, target="y")
    monkeypatch.setattr(module, "_MOST_COMPARED", 1)
    compared(CrossTable((0, 1)), schema, REPLACE)


def test_weights_move_totals_by_as_much_more() -> None:
    schema = es.Schema.infer(pd.DataFrame({"x": list("ab"), "y": [0, 1]}), target="y").public()
    form = form_of(es.MultinomialNB(), schema)
    one, three = (sensitivity(form.rows, schema, max_weight=w) for w in (1, 3))
    assert (three.ranges == 3 * one.ranges).all()
    assert three.l1 == one.l1


def test_what_no_row_moves_has_no_range() -> None:
    """The number of rows, where it is public."""
    schema = numbers(x=(0, 3), target=(0, 4)).public()
    form = form_of(es.LinearRegression("target ~ v0"), schema)
    assert sensitivity(form.rows, schema).ranges[0] == 0
    assert sensitivity(form.rows, schema, relation=ADD).ranges[0] == 1


def test_an_unknown_relation_is_refused() -> None:
    schema = es.Schema.infer(pd.DataFrame({"x": list("ab"), "y": [0, 1]}), target="y").public()
    with pytest.raises(
        ValueError,
        check=error("unknown-relation", "'remove'", "'replace'", "'add'", "relation='remove'"),
    ):
        sensitivity([1], schema, relation="remove")


def test_ranges_are_python_integers_that_floats_do_not_round() -> None:
    """2^61 - 1 is rounded in floating point, and 2^64 is 0 in 64 bits."""
    schema = numbers(x=(0, 1)).public()
    x = column("v0.number")
    found = sensitivity([x * ((1 << 61) - 1), x * 3], schema, relation=ADD)
    assert found.ranges.tolist() == [(1 << 61) - 1, 3]
    assert all(type(one) is int for one in found.ranges)
    assert found.l1 == pytest.approx(2.0)
    both = sensitivity([x * (1 << 60), x * -(1 << 60)], schema, max_weight=3)
    assert both.ranges.tolist() == [3 << 60, 3 << 60]


@pytest.mark.parametrize(
    ("factor", "weight"), [(1 << 62, 1), (1 << 61, 2), (1 << 32, 1 << 32), (1 << 64, 1)]
)
@pytest.mark.parametrize("relation", [REPLACE, ADD])
def test_a_range_of_2_to_the_62_is_refused(factor: int, weight: int, relation: str) -> None:
    schema = numbers(x=(0, 1)).public()
    with pytest.raises(es.ParameterError) as refused:
        sensitivity([column("v0.number") * factor], schema, relation=relation, max_weight=weight)
    assert [cure.action for cure in refused.value.cures] == ["narrower bounds"]


def test_a_row_of_weight_0_adds_nothing() -> None:
    """What is the same in all rows is not public where rows have weights: their sum is not."""
    schema = es.Schema.infer(pd.DataFrame({"x": list("ab"), "y": [0, 1]}), target="y").public()
    cells = [column("class0") + column("class1"), column("class0")]
    found = sensitivity(cells, schema, max_weight=4)
    added = np.array(
        [[w * (c == 0 or 1), w * (c == 0)] for w in range(5) for c in (0, 1)], dtype=float
    )
    ranges, l1, l2 = brute(added, REPLACE, found.ranges)
    assert (ranges == found.ranges).all()
    assert l1 <= found.l1 * (1 + 1e-12)
    assert l2 <= found.l2 * (1 + 1e-12)


@pytest.mark.parametrize("low", [-2, 0])
def test_pairs_that_are_too_many_are_bounded_where_numbers_are_below_0(
    low: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Squares of distances add up where no total is below 0; of -2 and 2 they are twice as much."""
    monkeypatch.setattr(module, "_MOST_COMPARED", 1)
    schema = numbers(x=(low, 2), z=(low, 2), w=(low, 2)).public()
    rows = [column(f"v{j}.number") * column("v2.number") for j in range(2)]
    found = sensitivity(rows, schema)
    values = range(low, 3)
    added = np.array([[x * w, z * w] for x in values for z in values for w in values], dtype=float)
    _, l1, l2 = brute(added, REPLACE, found.ranges)
    assert l1 <= found.l1 * (1 + 1e-12)
    assert l2 <= found.l2 * (1 + 1e-12)


def test_every_encoding_says_its_value_in_a_row() -> None:
    schema = es.Schema.infer(
        pd.DataFrame({"x": pd.Categorical(list("abc"), ordered=True), "y": [0, 1, 1]}), target="y"
    )
    names = {
        "onehot": "v0.bin1",
        "cumulative": "v0.upto1",
        "ordinal": "v0.code",
        "centred": "v0.centred",
        "class": "class1",
    }
    seen = {
        encoding: sorted({state[name] for states in module.possible_states(schema.public(), [name], tried=True).values()
                          for state in states})
        for encoding, name in names.items()
    }  # fmt: skip
    assert seen == {
        "onehot": [0, 1],
        "cumulative": [0, 1],
        "ordinal": [1, 2, 3],
        "centred": [-1, 0, 1],
        "class": [0, 1],
    }
    states = module.possible_states(schema.public(), ["v0.upto1"], tried=True)["v0"]
    assert [state["v0.upto1"] for state in states] == [1, 1, 0]


def test_orthogonal_polynomials_are_not_released() -> None:
    """Their coefficients depend on sums of powers, which no form of a release has."""
    schema = mixed()
    for question in (es.LinearRegression("y ~ poly(x, 2)"), es.Ridge(formula="y ~ poly(x, 2)")):
        asked = prepare_question(question, schema)._fix_seed()
        with pytest.raises(es.ParameterError, check=error("no-noisy-release")):
            form_of(asked, schema.public())
    raw = prepare_question(es.LinearRegression("y ~ poly(x, 2, raw = TRUE)"), schema)._fix_seed()
    assert form_of(raw, schema.public()).rows
