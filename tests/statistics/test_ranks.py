"""Ranks from the counts of every value: equal to scipy and NumPy on the rows, from
encrypted rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import roc_auc_score

import encryptedstats as es
from effort import one_scheme
from encryptedstats.metrics import auc_interval
from encryptedstats.statistics.ranks import count_concordant
from encryptedstats.tables.encodings import Column, ColumnGroup, grid_columns
from error_codes import error

pytestmark = pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")
GRID = ("onehot", "grid")


def made_up(n: int = 80, seed: int = 5, gaps: bool = False) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    arm, ill = rng.choice(["a", "b", "c"], n), rng.integers(0, 2, n)
    score = rng.integers(-20, 21, n) / 2 + 3 * ill + 2 * (arm == "b")
    if gaps:
        score[::7] = np.nan
    return pd.DataFrame({"score": score, "arm": arm, "ill": ill})


def schema_of(frame: pd.DataFrame, **options: Any) -> es.Schema:
    return es.Schema.infer(frame, target="ill", numbers="keep", **options)


def samples_of(frame: pd.DataFrame, by: str) -> list[Any]:
    return [own["score"].dropna().to_numpy() for _, own in frame.groupby(by)]


@pytest.mark.parametrize("gaps", [False, True])
def test_quantiles_are_those_of_numpy(gaps: bool) -> None:
    frame = made_up(gaps=gaps)
    table = schema_of(frame, missing="bin").table(frame)
    probabilities = [0, 0.1, 0.5, 0.77, 1]
    found = table.ask(es.Quantiles("score", probabilities=probabilities)).table
    rows = frame["score"].dropna()
    np.testing.assert_allclose(found.iloc[0, 1:], np.quantile(rows, probabilities))
    assert found.loc["all rows", "n"] == len(rows)
    by_arm = table.ask(es.Quantiles("score", by="arm", probabilities=probabilities)).table
    for (name, line), own in zip(by_arm.iterrows(), samples_of(frame, "arm"), strict=True):
        np.testing.assert_allclose(line.iloc[1:], np.quantile(own, probabilities), err_msg=name)


@pytest.mark.parametrize("alternative", ["two-sided", "less", "greater"])
@pytest.mark.parametrize("gaps", [False, True])
def test_mann_whitney_is_that_of_scipy(alternative: str, gaps: bool) -> None:
    frame = made_up(gaps=gaps)
    table = schema_of(frame, missing="bin").table(frame)
    found = table.ask(es.MannWhitney("score", by="ill", alternative=alternative))
    first, second = samples_of(frame, "ill")
    wanted = stats.mannwhitneyu(first, second, alternative=alternative, method="asymptotic")
    assert (found.statistic, found.pvalue) == (wanted.statistic, wanted.pvalue)
    whole = frame.dropna()
    assert found.estimate == pytest.approx(1 - roc_auc_score(whole["ill"], whole["score"]))
    some = table.ask(es.MannWhitney("score", by="arm", groups=["c", "a"]))
    by_arm = samples_of(frame, "arm")
    assert some.pvalue == stats.mannwhitneyu(by_arm[2], by_arm[0], method="asymptotic").pvalue


def test_the_interval_of_the_area_is_delongs() -> None:
    frame = made_up()
    found = schema_of(frame).table(frame).ask(es.MannWhitney("score", by="ill", confidence=0.9))
    first, second = samples_of(frame, "ill")
    is_first = np.repeat([True, False], [len(first), len(second)])
    wanted = auc_interval(is_first, np.concatenate([first, second]), confidence=0.9)
    assert (found.low, found.high) == wanted
    assert found.low < found.estimate < found.high


def test_kruskal_wallis_is_that_of_scipy() -> None:
    frame = made_up()
    found = schema_of(frame).table(frame).ask(es.KruskalWallis("score", by="arm"))
    wanted = stats.kruskal(*samples_of(frame, "arm"))
    assert (found.statistic, found.pvalue, found.df) == (wanted.statistic, wanted.pvalue, 2)
    np.testing.assert_array_equal(
        found.table["median"], frame.groupby("arm")["score"].median().to_numpy()
    )


@pytest.mark.parametrize("mu", [0.0, 1.5])
def test_signed_ranks_are_those_of_scipy(mu: float) -> None:
    frame = made_up()
    found = schema_of(frame).table(frame).ask(es.SignedRank("score", mu=mu))
    wanted = stats.wilcoxon(frame["score"] - mu, correction=True, method="approx")
    assert (found.statistic, found.pvalue) == (wanted.statistic, wanted.pvalue)


@pytest.mark.parametrize("coefficient", ["spearman", "kendall"])
def test_rank_correlations_are_those_of_scipy(coefficient: str) -> None:
    frame = made_up(200).assign(grade=lambda rows: (rows["score"] // 4 + rows["ill"]).astype(int))
    kinds = {"score": "continuous", "grade": "ordinal"}
    known = es.Schema.infer(frame, target="ill", kinds=kinds)
    table = known.table(frame)
    found = table.ask(es.RankCorrelation("score", "grade", coefficient))
    x, y = (table.codes_of(j) for j in (0, 2))
    wanted = (
        stats.spearmanr(x, y)
        if coefficient == "spearman"
        else stats.kendalltau(x, y, method="asymptotic")
    )
    assert found.estimate == pytest.approx(wanted.statistic, rel=1e-12)
    assert found.pvalue == pytest.approx(wanted.pvalue, rel=1e-9)
    with pytest.raises(es.SchemaError, check=error("not-ordered")):
        table.ask(es.RankCorrelation("score", "arm"))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=12))
def test_pairs_are_concordant_as_counted_one_by_one(rows: list[tuple[int, int]]) -> None:
    counts = np.zeros((4, 3), dtype=int)
    for row in rows:
        counts[row] += 1
    signs = [
        np.sign(a[0] - b[0]) * np.sign(a[1] - b[1]) for i, a in enumerate(rows) for b in rows[:i]
    ]
    assert count_concordant(counts) == (signs.count(1), signs.count(-1))


@one_scheme
@pytest.mark.parametrize("gaps", [False, True])
def test_encrypted_is_clear(toy: es.Owner, gaps: bool) -> None:
    frame = made_up(40, gaps=gaps)
    known = schema_of(frame, missing="bin")
    table = known.table(frame)
    sealed = toy.encrypt(table, encodings=GRID, workers=1)
    for question in (
        es.Quantiles("v0"),
        es.MannWhitney("v0", by="class"),
        es.KruskalWallis("v0", by="v1"),
    ):
        opened = toy.open(sealed.ask(question, workers=1), schema=known)
        assert opened == table.ask(question._in_names(known))


@one_scheme
def test_tables_without_a_grid_say_so(toy: es.Owner) -> None:
    frame = made_up(20)
    sealed = toy.encrypt(schema_of(frame).table(frame), workers=1)
    both = "encodings=('onehot', 'grid')"
    with pytest.raises(es.SchemaError, check=error("column-not-stored", both)):
        sealed.ask(es.Quantiles("v0"), workers=1)
    with pytest.raises(es.ArgumentError, check=error("column-not-stored")):
        es.connect("local").plan(es.Quantiles("v0"), sealed)


def test_plans_say_which_encoding_is_missing() -> None:
    frame = made_up()
    question = es.MannWhitney("score", by="ill")
    with pytest.raises(es.SchemaError, match="grid"):
        es.plan(question, schema_of(frame), n_rows=80)
    plan = es.plan(question, schema_of(frame), n_rows=80, encodings=GRID)
    assert plan.parameters.security >= 128


def test_numbers_of_too_many_values_have_no_grid() -> None:
    frame = made_up().assign(score=np.arange(80) * 20)
    table = schema_of(frame).table(frame)
    with pytest.raises(es.SchemaError, check=error("grid-too-fine")):
        table.ask(es.Quantiles("score"))
    assert not [one for one in table.stored_columns(GRID) if one.encoding == "grid"]


@settings(max_examples=40)
@given(st.integers(-2000, 2000), st.integers(0, 1023), st.data())
def test_digits_tell_the_value(low: int, span: int, data: Any) -> None:
    value = data.draw(st.integers(low, low + span))
    frame = pd.DataFrame({"x": [low, low + span, value]})
    known = es.Schema.infer(frame, numbers="keep") if span else None
    if known is None or known.variables[0].kind != "number":
        return
    table = known.with_kind("x", "number", digits=0, low=low, high=low + span).table(frame)
    high, low_digits = grid_columns(table.public_schema, 0)
    found = np.array([table.values(one) for one in (*high, *low_digits)], dtype=int)[:, 2]
    assert found.sum() == 2
    a, b = np.flatnonzero(found)
    assert low + 32 * a + (b - len(high)) == value


def test_rows_with_two_digits_are_not_valid() -> None:
    frame = made_up()
    table = schema_of(frame).table(frame)
    high, _ = grid_columns(table.public_schema, 0)
    group = ColumnGroup(0, "at most one", tuple(high))
    states = group.states
    assert states is not None
    assert all(sum(state) <= 1 for state in states)
    assert len(states) == len(high) + 1
    with pytest.raises(es.SchemaError, check=error("impossible-column")):
        table.values(Column("grid", 0, 99))


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: es.MannWhitney("score"), "by-missing"),
        (lambda: es.SignedRank("score", by="arm"), "by-not-allowed"),
        (lambda: es.Quantiles("score", probabilities=[2.0]), "invalid-probabilities"),
    ],
)
def test_parameters_that_are_refused(make: Any, code: str) -> None:
    with pytest.raises(es.ParameterError, check=error(code)):
        make()


def test_tables_without_an_answer_are_refused() -> None:
    frame = made_up()
    table = schema_of(frame).table(frame)
    with pytest.raises(es.ParameterError, check=error("not-two-groups")):
        table.ask(es.MannWhitney("score", by="arm"))
    flat = schema_of(frame).table(frame.assign(score=1.0))
    for question in (es.KruskalWallis("score", by="arm"), es.SignedRank("score", mu=1.0)):
        with pytest.raises(es.DataError, check=error("constant-outcome")):
            flat.ask(question)
    one_group = schema_of(frame).table(frame[frame["ill"] == 1])
    with pytest.raises(es.DataError, check=error("too-few-groups")):
        one_group.ask(es.MannWhitney("score", by="ill"))
