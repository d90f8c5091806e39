"""Every known attack, by somebody who reads what is published and can add: it finds the secret
without the rule, and not with it.

An attack publishes as an owner would, and gives the secret number that a reader computes; None
where it is not to be had.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from published_samples import Recoded, patients
from scipy.optimize import linprog

import encryptedstats as es
from encryptedstats.publishing import publish
from encryptedstats.publishing.rules import Rules
from encryptedstats.publishing.suppression import Suppressed, with_margins

FIVE = Rules(5)
NO_RULES = Rules(0)
ONLY_WARNS = Rules(5, differencing="warn")
Publish = Callable[..., es.Published]
Attack = Callable[[es.Owner, Publish], "float | None"]


def sealed(
    owner: es.Owner, frame: pd.DataFrame, **options: Any
) -> tuple[es.Schema, es.EncryptedTable]:
    schema = es.Schema.infer(frame, target="sick", **options)
    return schema, owner.encrypt(schema.table(frame))


def concluded(table: pd.DataFrame, weights: dict[tuple[str, str], float]) -> tuple[float, float]:
    """The least and the largest of a weighted sum of cells, in all tables that agree with what is
    shown of one with its sums.
    """
    lines, columns = (list(axis) for axis in (table.index, table.columns))
    cells = [(a, b) for a in lines[:-1] for b in columns[:-1]]
    rows, values = [], []
    for a, b in itertools.product(lines, columns):
        if pd.notna(table.loc[a, b]):
            rows.append(
                [float(a in (line, "all") and b in (column, "all")) for line, column in cells]
            )
            values.append(float(table.loc[a, b]))
    goal = np.array([weights.get(cell, 0.0) for cell in cells])
    ends = [linprog(sign * goal, A_eq=rows, b_eq=values) for sign in (1, -1)]
    return tuple(
        sign * end.fun if end.success else -sign * math.inf
        for sign, end in zip((1, -1), ends, strict=True)
    )


# -- one table
# ------------------------------------------------------------------------------------------------


def rare() -> pd.DataFrame:
    """A region with two rows, one of them sick."""
    region = ["c"] * 2 + ["a", "b"] * 29
    return pd.DataFrame({"region": region, "sick": [k % 2 for k in range(len(region))]})


def small_cell(owner: es.Owner, publish: Publish) -> float | None:
    """A count of one patient is one patient."""
    schema, table = sealed(owner, rare())
    shown = publish(table.counts("region", by="sick"), schema).table
    return None if pd.isna(shown.loc["c", "1"]) else float(shown.loc["c", "1"])


def left_over(owner: es.Owner, publish: Publish) -> float | None:
    """A hidden count is what the others of its column leave of the sum."""
    schema, table = sealed(owner, rare())
    shown = publish(table.counts("region", by="sick"), schema).table
    assert pd.isna(shown.loc["c", "1"])
    least, most = concluded(shown, {("c", "1"): 1.0})
    return least if most - least < 1 else None


def all_of_one_kind(owner: es.Owner, publish: Publish) -> float | None:
    """Who is from region a is sick, and nobody was counted alone: the least share that a reader
    knows.
    """
    frame = pd.DataFrame(
        {
            "region": ["a"] * 40 + ["b"] * 40 + ["c"] * 40,
            "sick": [1] * 40 + [0, 1] * 20 + [0, 0, 1, 1] * 10,
        }
    )
    schema, table = sealed(owner, frame)
    shown = publish(table.counts("region", by="sick"), schema).table
    # Where nothing of 1 % of the healthy can be in the region, at least 99 % of it are sick.
    healthy = concluded(shown, {("a", "0"): 1 - 0.01, ("a", "1"): -0.01})[1]
    return 1.0 if healthy <= 0 else None


def all_but_one(owner: es.Owner, publish: Publish) -> float | None:
    """All rows but one are counted: the one is what the number of rows leaves."""
    schema, table = sealed(owner, ages(1, 20, 20, 20), kinds={"age": "ordinal"})
    found = publish(table.ask(Recoded(0, [[1, 2, 3]])), schema)
    return None if found.result is None else float(found.n_rows - found.result[0])


def one_row_alone(owner: es.Owner, publish: Publish) -> float | None:
    """A column that is 1 in a single row: its coefficient and the intercept are what that person
    earns.
    """
    pay = np.random.default_rng(1).integers(0, 100, 99)
    frame = pd.DataFrame({"alone": [1] + [0] * 99, "pay": [77, *pay]})
    schema = es.Schema.infer(frame, target="pay", numbers="keep", bounds={"pay": (0, 100)})
    found = publish(es.LinearRegression("pay ~ alone").fit(schema.table(frame))).result
    return None if found is None else float(found.intercept_ + found.coef_[0])


def one_level_alone(owner: es.Owner, publish: Publish) -> float | None:
    """The same with a level that a single row has."""
    pay = np.random.default_rng(1).integers(0, 100, 99)
    frame = pd.DataFrame({"region": ["z"] + ["a"] * 99, "pay": [77, *pay]})
    schema = es.Schema.infer(
        frame,
        target="pay",
        numbers="keep",
        kinds={"region": "categorical"},
        bounds={"pay": (0, 100)},
    )
    found = publish(es.LinearRegression("pay ~ region").fit(schema.table(frame))).result
    return None if found is None else float(found.intercept_ + found.coef_[0])


def dominated(owner: es.Owner, publish: Publish) -> float | None:
    """One row earns nearly all: it is the root of the sum of squares, which is in the variance."""
    frame = pd.DataFrame({"pay": [1000] + [1] * 40, "sick": [0, 1] * 20 + [0]})
    schema = es.Schema.infer(
        frame, target="sick", kinds={"pay": "number"}, bounds={"pay": (0, 1024)}
    )
    found = publish(schema.table(frame).ask(es.Covariance(["pay"]))).result
    if found is None:
        return None
    n, mean = 41, float(found.means.iloc[0])
    return float(round(math.sqrt(float(found.covariance.iloc[0, 0]) * (n - 1) + n * mean**2)))


def dominated_group(owner: es.Owner, publish: Publish) -> float | None:
    """The same in a group of a t-test, whose mean and deviation are shown."""
    frame = pd.DataFrame({"pay": [1000] + [1] * 20 + [300] * 20, "sex": ["f"] * 21 + ["m"] * 20})
    schema = es.Schema.infer(frame, kinds={"pay": "number"}, bounds={"pay": (0, 1024)})
    found = publish(schema.table(frame).ask(es.TTest("pay", by="sex"))).result
    if found is None:
        return None
    n, mean, deviation = found.table.loc["f", ["n", "mean", "sd"]]
    return float(round(math.sqrt(deviation**2 * (n - 1) + n * mean**2)))


def heavy_row(owner: es.Owner, publish: Publish) -> float | None:
    """One row of weight 20 is a count of 20."""
    frame = pd.DataFrame({"region": ["c"] + ["a", "b"] * 300, "sick": [1] + [0, 0, 1, 1] * 150})
    schema = es.Schema.infer(frame, target="sick")
    table = owner.encrypt(schema.table(frame, weights=np.array([20] + [1] * 600)))
    shown = publish(table.crosstab("region", "sick"), schema).table
    return None if pd.isna(shown.loc["c", "all"]) else float(shown.loc["c", "all"])


# -- models
# ------------------------------------------------------------------------------------------------


def class_of_one(owner: es.Owner, publish: Publish) -> float | None:
    """A model counts the bins of a class that has one row: they are that row."""
    frame = pd.DataFrame({"region": list("ab") * 30 + ["c"], "sick": [0] * 60 + [1]})
    schema = es.Schema.infer(frame, target="sick")
    found = publish(es.MultinomialNB().fit(schema.table(frame))).result
    if found is None:
        return None
    bins = found.schema_.public().variables[0].n_bins
    return float(
        np.argmax([int(x) for x in found.totals_[-2 * bins :]][1::2])
    )  # of the sick: which bin has the one


def more_counts_than_rows(owner: es.Owner, publish: Publish) -> float | None:
    """Counts of a forest are equations for how many rows there are of each kind: enough of them
    have one solution.
    """
    kinds = pd.DataFrame(list(itertools.product("abc", "ab", "abc")), columns=["x", "y", "z"])
    rows = pd.concat([kinds.sample(25, replace=True, random_state=0), kinds.iloc[[17]]]).assign(
        sick=[0, 1] * 13
    )
    schema = es.Schema.infer(pd.concat([kinds.assign(sick=0), kinds.assign(sick=1)]), target="sick")
    forest = es.CompletelyRandomForest(n_trees=60, depth=3).fit(
        schema.table(rows.reset_index(drop=True))
    )
    found = publish(forest).result
    if found is None:
        return None
    leaves = found.apply(schema.table(kinds.assign(sick=0)))
    equations = np.stack([leaves[:, t] == b for t in range(60) for b in range(8)]).astype(float)
    solved, *_ = np.linalg.lstsq(equations, found.leaf_counts_.reshape(-1, 2)[:, 1], rcond=None)
    there = [len(rows.merge(kinds.iloc[[k]]).query("sick == 1")) for k in range(len(kinds))]
    assert solved == pytest.approx(there)  # all rows of the table, one by one
    return round(float(solved[17]), 6)


def predicting() -> tuple[es.MultinomialNB, es.Schema]:
    frame = pd.DataFrame({"x": list("ab") * 10, "sick": [0, 1] * 10})
    schema = es.Schema.infer(frame, target="sick")
    return es.MultinomialNB().fit(schema.table(frame)), schema


def few_predicted(owner: es.Owner, publish: Publish) -> float | None:
    """How many are predicted to be sick: one, and those who are tested know who."""
    model, known = predicting()
    table = owner.encrypt(known.table(pd.DataFrame({"x": ["b"] + ["a"] * 30, "sick": 0})))
    shown = publish(model.predict_votes(table), known).table
    return (
        None
        if shown is None or pd.isna(shown.loc["1", "count"])
        else float(shown.loc["1", "count"])
    )


def one_more_predicted(owner: es.Owner, publish: Publish) -> float | None:
    """The same predictions with one row more: its prediction is the difference."""
    model, known = predicting()
    most, one = (
        owner.encrypt(known.table(pd.DataFrame({"x": x, "sick": 0})))
        for x in (["a"] * 20 + ["b"] * 20, ["b"])
    )
    before, after = (
        publish(model.predict_votes(table), known).table for table in (most, most.append(one))
    )
    return float(after.loc["1", "count"] - before.loc["1", "count"])


# -- two results
# ------------------------------------------------------------------------------------------------


def ages(*counts: int) -> pd.DataFrame:
    age = np.repeat(np.arange(len(counts)), counts)
    return pd.DataFrame({"age": age, "sick": np.arange(len(age)) % 2})


def recoded(owner: es.Owner, publish: Publish) -> float | None:
    """Bins 1 and 2 together, less bin 2, give bin 1; all rows less the others give bin 0, which was
    hidden.
    """
    schema, table = sealed(owner, ages(2, 9, 20, 20, 20), kinds={"age": "ordinal"})
    first = publish(table.counts("age"), schema).table["count"]
    second = publish(table.ask(Recoded(0, [[1, 2], [3]])), schema).result
    assert first.isna().tolist()[:3] == [True, True, False]
    ones = second[0] - first.iloc[2]
    return float(first["all"] - ones - first.iloc[2:5].sum())


def overlapping(owner: es.Owner, publish: Publish) -> float | None:
    """Ages up to 64 and up to 65: what lies between is three patients."""
    schema, table = sealed(owner, ages(20, 3, 20, 20), kinds={"age": "ordinal"})
    first = publish(table.ask(Recoded(0, [[0]])), schema).result
    second = publish(table.ask(Recoded(0, [[0, 1]])), schema).result
    return float(second[0] - first[0])


def without_a_shard(owner: es.Owner, publish: Publish) -> float | None:
    """A model less the same without one shard is a model of the three patients of the shard: how
    many are sick.
    """
    frame = (
        patients(303).drop(columns="region").assign(sick=lambda rows: [*rows.sick[:300], 1, 0, 1])
    )
    schema = es.Schema.infer(frame, target="sick")
    most, few = (owner.encrypt(schema.table(rows)) for rows in (frame[:300], frame[300:]))
    whole = publish(es.MultinomialNB().fit(most) + es.MultinomialNB().fit(few), schema).result
    less = publish(es.MultinomialNB().fit(most), schema).result
    return float((whole.class_counts_ - less.class_counts_)[1])


def more_rows(owner: es.Owner, publish: Publish) -> float | None:
    """Thirty rows more, of which two are of one region: their count is the difference of two that
    are large.
    """
    first = pd.DataFrame({"region": ["a", "b", "c"] * 40, "sick": [0, 1] * 60})
    more = pd.DataFrame({"region": ["a"] * 14 + ["b"] * 14 + ["c"] * 2, "sick": [0, 1] * 15})
    schema = es.Schema.infer(pd.concat([first, more]), target="sick")
    one, two = (owner.encrypt(schema.table(rows)).counts("region") for rows in (first, more))
    before, after = publish(one, schema).result, publish(one + two, schema).result
    return float(after.loc["c", "count"] - before.loc["c", "count"])


def pairs_of_sites(owner: es.Owner, publish: Publish) -> float | None:
    """Three sites, two of them at a time: half of two results less the third is the one of the
    small site alone.
    """
    frame = patients(203).assign(sex=lambda rows: [*rows.sex[:200], "f", "m", "m"])
    schema = es.Schema.infer(frame, target="sick")
    a, b, c = (
        owner.encrypt(schema.table(frame[k:m])).counts("sex")
        for k, m in ((200, 203), (0, 100), (100, 200))
    )
    ab, bc, ac = (publish(both, schema).result["count"] for both in (a + b, b + c, a + c))
    return float((ab["m"] + ac["m"] - bc["m"]) / 2)


ATTACKS = [
    pytest.param(small_cell, FIVE, NO_RULES, 1, id="small cell"),
    pytest.param(left_over, FIVE, "no secondary suppression", 1, id="left over"),
    pytest.param(all_of_one_kind, Rules(5, concentration=0.99), FIVE, 1, id="concentration"),
    pytest.param(all_but_one, FIVE, NO_RULES, 1, id="all but one"),
    pytest.param(one_row_alone, FIVE, NO_RULES, 77, id="0/1 vector"),
    pytest.param(one_level_alone, FIVE, NO_RULES, 77, id="level of one row"),
    pytest.param(dominated, Rules(0, dominance=0.85), NO_RULES, 1000, id="dominance"),
    pytest.param(
        dominated_group, Rules(0, dominance=0.85), NO_RULES, 1000, id="dominance in a group"
    ),
    pytest.param(heavy_row, FIVE, "no weights", 20, id="one row of a large weight"),
    pytest.param(class_of_one, FIVE, NO_RULES, 2, id="class of one row"),
    pytest.param(
        more_counts_than_rows,
        Rules(0, rows_per_parameter=3.0),
        NO_RULES,
        1,
        id="rows to parameters",
    ),
    pytest.param(few_predicted, FIVE, NO_RULES, 1, id="predictions"),
    pytest.param(one_more_predicted, FIVE, ONLY_WARNS, 1, id="one more prediction"),
    pytest.param(recoded, FIVE, ONLY_WARNS, 2, id="recoding"),
    pytest.param(overlapping, FIVE, ONLY_WARNS, 3, id="overlapping tables"),
    pytest.param(without_a_shard, FIVE, ONLY_WARNS, 2, id="model without a shard"),
    pytest.param(more_rows, FIVE, ONLY_WARNS, 2, id="table with more rows"),
    pytest.param(pairs_of_sites, FIVE, ONLY_WARNS, 2, id="pairs of sites"),
]


def hide_small_counts_only(cells: np.ndarray, min_count: int, *_: object) -> Suppressed:
    counts = with_margins(cells)
    small = (counts > 0) & (counts < min_count)
    return Suppressed(counts, small, small)


def tried(attack: Attack, owner: es.Owner, ledger: es.Ledger, rules: Rules) -> float | None:
    def publish(given: Any, schema: Any = None) -> es.Published:
        return owner.publish(given, schema, rules=rules, ledger=ledger)

    try:
        return attack(owner, publish)
    except es.DisclosureError:
        return None


@pytest.mark.filterwarnings("ignore::encryptedstats.DisclosureWarning")
@pytest.mark.parametrize(("attack", "rules", "without", "secret"), ATTACKS)
def test_the_secret_is_found_without_the_rule_and_not_with_it(
    attack: Attack,
    rules: Rules,
    without: Rules | str,
    secret: float,
    owner: es.Owner,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    guarded, open_ = (
        es.Ledger.begin(tmp_path / name, owner, another=True) for name in ("guarded", "open")
    )
    assert tried(attack, owner, guarded, rules) is None
    if isinstance(without, str):  # a step of the rule that no profile leaves out
        if without == "no weights":
            monkeypatch.setattr(publish, "_count_weights", lambda rules, source: rules)
        else:
            monkeypatch.setattr(publish, "suppress", hide_small_counts_only)
        without = rules
    assert tried(attack, owner, open_, without) == pytest.approx(secret)
