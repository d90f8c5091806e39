"""ROC curves of grids and concordance: equal to scikit-learn, lifelines and R, from
encrypted rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from asked_samples import opened
from hypothesis import given
from hypothesis import strategies as st
from lifelines.utils import concordance_index
from sklearn.metrics import roc_auc_score, roc_curve
from test_values_of_r import make_rows

import encryptedstats as es
from effort import one_scheme
from encryptedstats.metrics import auc_interval
from encryptedstats.statistics.scores import count_comparable
from error_codes import error

pytestmark = pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")
GRID = ("onehot", "grid")


def made_up(n: int = 60, seed: int = 3, gaps: bool = False) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    ill = rng.integers(0, 2, n)
    score = np.round(rng.normal(size=n) + ill, 1)
    if gaps:
        score[::9] = np.nan
    return pd.DataFrame({"score": score, "ill": ill, "arm": rng.choice(["a", "b", "c"], n)})


def schema_of(frame: pd.DataFrame) -> es.Schema:
    return es.Schema.infer(frame, target="ill", numbers="keep", missing="bin")


@pytest.mark.parametrize("gaps", [False, True])
def test_the_curve_of_a_number_is_that_of_scikit_learn(gaps: bool) -> None:
    frame = made_up(gaps=gaps)
    found = schema_of(frame).table(frame).ask(es.ROC("score"))
    whole = frame.dropna()
    assert found.estimate == pytest.approx(roc_auc_score(whole["ill"], whole["score"]), rel=1e-12)
    wanted = auc_interval(whole["ill"] == 1, whole["score"].to_numpy())
    assert (found.low, found.high) == pytest.approx(wanted, rel=1e-12)
    false, true, _ = roc_curve(whole["ill"], whole["score"], drop_intermediate=False)
    np.testing.assert_allclose(found.table[["fpr", "tpr"]].to_numpy(), np.stack([false, true]).T)
    assert found.table.index[1:].tolist() == sorted(whole["score"].unique(), reverse=True)
    assert found.n_rows == len(whole)


def test_the_event_of_a_curve_may_be_a_level() -> None:
    frame = made_up()
    table = schema_of(frame).table(frame)
    found = table.ask(es.ROC("score", "arm", event="b"))
    assert found.estimate == pytest.approx(roc_auc_score(frame["arm"] == "b", frame["score"]))


@one_scheme
@pytest.mark.parametrize("gaps", [False, True])
def test_encrypted_curves_are_those_of_the_clear_rows(toy: es.Owner, gaps: bool) -> None:
    frame = made_up(40, gaps=gaps)
    known = schema_of(frame)
    table = known.table(frame)
    sealed = toy.encrypt(table, encodings=GRID, workers=1)
    question = es.ROC("v0")
    assert toy.open(sealed.ask(question, workers=1), schema=known) == table.ask(es.ROC("score"))
    with pytest.raises(es.SchemaError, check=error("column-not-stored")):
        toy.encrypt(table, workers=1).ask(question, workers=1)


def test_curves_of_numbers_without_a_grid_are_refused() -> None:
    frame = made_up().assign(score=np.arange(60) * 100.0)
    with pytest.raises(es.SchemaError, check=error("grid-too-fine")):
        schema_of(frame).table(frame).ask(es.ROC("score"))
    one_class = schema_of(made_up()).table(made_up().assign(ill=1))
    with pytest.raises(es.DataError, check=error("constant-outcome")):
        one_class.ask(es.ROC("score"))


def table_of_r() -> es.Table:
    known = es.Schema.infer(make_rows(), target="died", kinds={"g": "categorical"})
    known = known.with_kind("week", "ordinal", levels=range(1, 10))
    return known.with_kind("n", "ordinal", levels=range(1, 6)).table(make_rows())


def test_concordance_is_that_of_r_and_lifelines() -> None:
    """concordance(Surv(week, died) ~ n, d, reverse = TRUE), survival 3.5-3."""
    found = opened(table_of_r(), es.Concordance("week", "n"))
    assert found.estimate == pytest.approx(0.4572072072072, rel=1e-12)
    assert found.std_error == pytest.approx(0.08159734188758, rel=1e-12)
    pairs = [found.details[name] for name in ("concordant", "discordant", "tied")]
    assert pairs == [83, 102, 37]
    rows = make_rows()
    wanted = concordance_index(rows["week"], -rows["n"], rows["died"])
    assert found.estimate == pytest.approx(wanted)
    assert found.low < found.estimate < found.high


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 1), st.integers(0, 2)), min_size=1, max_size=14
    )
)
def test_comparable_pairs_are_counted_one_by_one(rows: list[tuple[int, int, int]]) -> None:
    counts = np.zeros((4, 2, 3), dtype=np.int64)
    for row in rows:
        counts[row] += 1
    found = count_comparable(counts[:, 1], counts[:, 0])
    sums, own = np.zeros(3, dtype=int), np.zeros((3, 2, 4, 3), dtype=int)
    for time, status, score in rows:
        for later, other, another in rows:
            if status and (later > time or (later == time and not other)):
                kind = int(np.sign(another - score)) + 1
                sums[kind] += 1
                own[kind, 0, time, score] += 1
                own[kind, 1 - other, later, another] += 1
    assert found.sums == tuple(sums.tolist())
    for kind, counted in enumerate((found.concordant, found.tied, found.discordant)):
        np.testing.assert_array_equal(counted * found.rows, own[kind])


def test_thirty_two_levels_of_time_and_score() -> None:
    rng = np.random.default_rng(2)
    frame = pd.DataFrame(
        {"week": rng.integers(0, 32, 300), "score": rng.integers(0, 32, 300), "died": rng.integers(0, 2, 300)}
    )  # fmt: skip
    known = es.Schema.infer(frame, target="died")
    for name in ("week", "score"):
        known = known.with_kind(name, "ordinal", levels=range(32))
    table = known.table(frame)
    found = table.ask(es.Concordance("week", "score"))
    wanted = concordance_index(frame["week"], -frame["score"], frame["died"])
    assert found.estimate == pytest.approx(wanted, rel=1e-12)
    ranks = table.ask(es.RankCorrelation("week", "score"))
    assert ranks.estimate == pytest.approx(frame["week"].corr(frame["score"], method="spearman"))


@pytest.mark.parametrize(
    ("question", "code"),
    [
        (es.Concordance("week", "g"), "no-order"),
        (es.Concordance("x", "n"), "kept-as-number"),
        (es.Concordance("week", "week"), "same-variable-twice"),
    ],
)
def test_scores_that_are_refused(question: es.Question, code: str) -> None:
    rows = make_rows()
    known = es.Schema.infer(rows, target="died", kinds={"week": "ordinal", "n": "ordinal"})
    table: Any = known.with_kind("x", "number", digits=0).table(rows)
    with pytest.raises(es.SchemaError, check=error(code)):
        table.ask(question)


def test_rows_that_cannot_be_compared_have_no_concordance() -> None:
    rows = make_rows().assign(week=1, died=1)
    known = es.Schema.infer(make_rows(), target="died", kinds={"week": "ordinal", "n": "ordinal"})
    with pytest.raises(es.DataError, check=error("no-overlap-at-risk")):
        known.table(rows).ask(es.Concordance("week", "n"))
