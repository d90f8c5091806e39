"""Plans: parameters that carry the circuit, figures that are true, and refusals that help."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import encryptedstats as es
from encryptedstats.circuits import column
from encryptedstats.circuits.cost import OperationTimes
from encryptedstats.circuits.devices import get_devices
from error_codes import error


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(2)
    columns = {f"x{j}": rng.normal(size=500) for j in range(4)}
    return pd.DataFrame({**columns, "y": rng.integers(0, 2, 500)})


@pytest.fixture(scope="module")
def schema(frame: pd.DataFrame) -> es.Schema:
    return es.Schema.infer(frame, target="y")


FORESTS = [(scheme, depth) for scheme in ("bgv", "bfv") for depth in (1, 2, 3, 4)]


@pytest.mark.parametrize(
    ("scheme", "depth"),
    [
        pytest.param(*case, marks=[pytest.mark.slow] if case in (("bfv", 3), ("bfv", 4)) else [])
        for case in FORESTS
    ],
)
def test_planned_forests_are_exact(
    frame: pd.DataFrame, schema: es.Schema, scheme: str, depth: int
) -> None:
    forest = es.CompletelyRandomForest(n_trees=2, depth=depth, random_state=depth)
    plan = es.plan(forest, schema, n_rows=len(frame), scheme=scheme)
    assert (plan.depth, plan.security >= 128, plan.largest) == (depth, True, len(frame))
    owner = es.Owner(plan)
    table = schema.table(frame)
    fitted = forest.fit(owner.encrypt(table), workers=1)
    assert np.array_equal(owner.open(fitted).leaf_counts_, forest.fit(table).leaf_counts_)


def test_bytes_are_exact(frame: pd.DataFrame, schema: es.Schema, tmp_path: Path) -> None:
    model = es.MultinomialNB()
    plan = es.plan(model, schema, n_rows=len(frame))
    sealed = es.Owner(plan).encrypt(schema.table(frame))
    sealed.save(tmp_path / "table")
    blocks = list((tmp_path / "table" / "blocks").iterdir())
    assert sum(block.stat().st_size for block in blocks) == plan.bytes_up
    assert len(sealed.facts.columns) == plan.n_columns
    model.fit(sealed)
    assert len(model.totals_) == plan.n_totals
    model.answer_.save(tmp_path / "answer")
    assert (tmp_path / "answer").stat().st_size == pytest.approx(plan.bytes_down, rel=0.02)


def test_a_plan_for_keys_that_are_there(
    frame: pd.DataFrame, schema: es.Schema, tmp_path: Path
) -> None:
    """The figures are those of the keys, what they carry is exact, and what they do not is refused
    before.
    """
    forest, model = (
        es.CompletelyRandomForest(n_trees=2, depth=3, random_state=1),
        es.MultinomialNB(),
    )
    deep, flat = (es.plan(one, schema, n_rows=len(frame)) for one in (forest, model))
    same = es.plan(forest, schema, n_rows=len(frame), keys=deep.parameters)
    assert (same.parameters, same.bytes_up, same.bytes_down) == (
        deep.parameters,
        deep.bytes_up,
        deep.bytes_down,
    )
    owner = es.Owner(deep)
    with_it = es.plan(model, schema, n_rows=len(frame), keys=owner)
    assert with_it.parameters == owner.parameters
    assert with_it.bytes_up > flat.bytes_up
    sealed = owner.encrypt(schema.table(frame))
    sealed.save(tmp_path / "table")
    assert (
        sum(block.stat().st_size for block in (tmp_path / "table/blocks").iterdir())
        == with_it.bytes_up
    )
    assert (
        owner.open(es.MultinomialNB().fit(sealed)).totals_ == model.fit(schema.table(frame)).totals_
    )
    with pytest.raises(es.ParameterError, check=error("keys-too-small", "3", "500")):
        es.plan(forest, schema, n_rows=len(frame), keys=flat.parameters)
    with pytest.raises(es.ParameterError, check=error("keys-too-small", "1,000,000,000")):
        es.plan(model, schema, n_rows=10**9, keys=flat.parameters)


def test_a_plan_for_keys_whose_numbers_are_too_small() -> None:
    frame = pd.DataFrame({"dose": [1, 70_000, 3], "y": [0, 1, 1]})
    schema = es.Schema.infer(
        frame, target="y", kinds={"dose": "number"}, bounds={"dose": (0, 70_000)}
    )
    keys = es.Parameters.choose(max_value=100, depth=1)
    with pytest.raises(es.ParameterError, check=error("column-beyond-parameters", "70,000")):
        es.plan(column("class1").total(), schema, 3, keys=keys)


def test_plan_prints_and_goes_through_json(schema: es.Schema) -> None:
    plan = es.plan(es.SemiparametricNB(), schema, n_rows=10_000)
    text = str(plan)
    for part in (
        "security",
        "eprint 2024/463",
        "failure bound",
        "2^-128",
        "upload",
        "download",
        "key switches",
        "memory",
        "native, about ",
        " times as fast as seal",
    ):
        assert part in text
    assert "<table>" in plan._repr_html_()
    again = json.loads(json.dumps(plan.to_dict()))
    assert es.Parameters.from_dict(again["parameters"]) == plan.parameters


def test_more_rows_take_larger_plaintexts(schema: es.Schema) -> None:
    small, large = (es.plan(es.MultinomialNB(), schema, n_rows=n) for n in (1000, 10_000_000))
    assert large.parameters.max_value >= 10_000_000
    assert large.parameters.plain_modulus > small.parameters.plain_modulus
    assert large.bytes_up > 2000 * small.bytes_up


@pytest.mark.parametrize("security", [128, 192, 256])
def test_security_levels(schema: es.Schema, security: int) -> None:
    assert es.plan(es.LinearMeans(), schema, n_rows=1000, security=security).security >= security


def test_infeasible_circuits_name_the_limit_and_the_nearest_wish(schema: es.Schema) -> None:
    x = column("v0.bin0")
    with pytest.raises(es.ParameterError, check=error("no-parameters-found")):
        es.plan([((((x**64) ** 64) ** 64) ** 64).total()], schema, n_rows=10)
    with pytest.raises(
        es.ParameterError, check=error("no-parameters-found", "1,000,000,000,000,000,000,000")
    ):
        es.plan([(x * 10**15).total()], schema, n_rows=10**6)
    with pytest.raises(es.ParameterError, check=error("unknown-security-level", "security=100")):
        es.plan([x.total()], schema, n_rows=10, security=100)


def test_wrong_arguments(schema: es.Schema) -> None:
    with pytest.raises(ValueError, check=error("not-a-count", "n_rows=0")):
        es.plan([column("v0.bin0").total()], schema, n_rows=0)
    with pytest.raises(TypeError, check=error("not-a-total")):
        es.plan([column("v0.bin0")], schema, n_rows=10)
    with pytest.raises(ValueError, check=error("no-encrypted-prediction")):
        es.plan([column("v0.bin0").total()], schema, n_rows=10, encrypted_prediction=True)


def test_a_fit_that_parameters_cannot_carry_fails_before_any_work(
    frame: pd.DataFrame, schema: es.Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = es.Owner(es.plan(es.MultinomialNB(), schema, n_rows=len(frame)))
    sealed = owner.encrypt(schema.table(frame))
    forest = es.CompletelyRandomForest(n_trees=3, depth=4)
    for device in get_devices().values():
        monkeypatch.setattr(type(device), "run", lambda *_: pytest.fail("it computed"))
    with pytest.raises(es.NoiseError, check=error("not-proven")) as caught:
        forest.fit(sealed)
    assert [cure.action for cure in caught.value.cures] == ["plan"]
    small = es.Owner(es.Parameters.from_bits("bgv", 8192, 100, (40, 40, 41, 41)))
    big = schema.table(pd.concat([frame] * 100))
    with pytest.raises(OverflowError, check=error("larger-values", "50,000")):
        es.MultinomialNB().fit(small.encrypt(big))


def test_estimated_time_is_of_the_measured_order(schema: es.Schema) -> None:
    """No timed test: the estimate is the counted operations times the given times, nothing else."""
    plan = es.plan(es.MultinomialNB(), schema, n_rows=1000)
    assert plan.seconds > 0
    assert np.isnan(OperationTimes.unknown().multiply)


# -- rows by a table
# ------------------------------------------------------------------------------------------------


def same_plan(a: es.Plan, b: es.Plan) -> bool:
    """Apart from what the machine was measured to take."""
    return (a.parameters, a.layout, a.largest, a.n_columns, a.bytes_up) == (
        b.parameters,
        b.layout,
        b.largest,
        b.n_columns,
        b.bytes_up,
    )


def test_a_table_brings_all_that_is_known_of_its_rows(
    frame: pd.DataFrame, schema: es.Schema
) -> None:
    model = es.MultinomialNB()
    plain = es.plan(model, schema.table(frame))
    assert same_plan(plain, es.plan(model, schema, n_rows=len(frame)))
    weights = np.full(len(frame), 3)
    table = schema.table(frame, weights=weights, folds=2)
    found = es.plan(model, table)
    assert same_plan(found, es.plan(model, schema, len(frame), weight_bound=4, folds=2))
    assert found.largest == 4 * len(frame)
    assert (
        found.n_columns == plain.n_columns + 1 + 2 * 2
    )  # with weights, no class follows from the other
    owner = es.Owner(found)
    assert owner.open(model.fit(owner.encrypt(table))).class_counts_.sum() == weights.sum()


def test_more_rows_may_come_than_a_table_has_and_not_fewer(
    frame: pd.DataFrame, schema: es.Schema
) -> None:
    table = schema.table(frame)
    assert es.plan(es.MultinomialNB(), table, n_rows=10_000).largest == 10_000
    with pytest.raises(ValueError, check=error("wrong-number-of-rows", "n_rows=499", "500")):
        es.plan(es.MultinomialNB(), table, n_rows=499)


def test_rows_that_nobody_counted_are_asked_for(frame: pd.DataFrame, schema: es.Schema) -> None:
    with pytest.raises(TypeError, check=error("row-count-missing")):
        es.plan(es.MultinomialNB(), schema)
    with pytest.raises(TypeError, check=error("not-a-schema")):
        es.plan(es.MultinomialNB(), frame)  # type: ignore[arg-type]  # that is what is tried


def test_numpy_integers_are_integers(frame: pd.DataFrame, schema: es.Schema) -> None:
    model, few = es.MultinomialNB(), np.int64(2)
    wanted = es.plan(model, schema, n_rows=500, weight_bound=2, folds=2, workers=2)
    assert same_plan(
        es.plan(
            model,
            schema,
            n_rows=np.int64(500),
            weight_bound=np.uint8(2),
            folds=few,
            workers=np.int32(2),
        ),
        wanted,
    )
    prediction = {"encrypted_prediction": True, "n_rows": np.int64(500)}
    assert same_plan(
        es.plan(model, schema, n_predict=np.int16(9), **prediction),
        es.plan(model, schema, n_predict=9, **prediction),
    )
    assert es.Parameters.choose(max_value=np.int64(1000), depth=np.int8(1)) == es.Parameters.choose(
        max_value=1000, depth=1
    )
    table = schema.table(frame, weights=np.full(len(frame), 2), weight_bound=few, folds=few)
    owner = es.Owner(es.plan(model, table))
    opened = owner.open(model.fit(owner.encrypt(table, workers=few), workers=few))
    assert opened.totals_ == es.MultinomialNB(alpha=np.int64(1)).fit(table).totals_


@pytest.mark.parametrize("name", ["n_rows", "weight_bound", "folds", "workers"])
@pytest.mark.parametrize("value", [True, np.True_, 2.0, np.float64(2), "2", -1])
def test_what_is_no_number_of_things_is_refused(
    schema: es.Schema, name: str, value: object
) -> None:
    with pytest.raises(ValueError, check=error("not-a-count", name)):
        es.plan(es.MultinomialNB(), schema, **{"n_rows": 500, name: value})


@pytest.mark.parametrize("bound", [2.5, True, 1])
def test_a_bound_of_weights_is_an_integer(
    frame: pd.DataFrame, schema: es.Schema, bound: object
) -> None:
    with pytest.raises(es.SchemaError, check=error("weight-bound-too-small", bound)):
        schema.table(frame, weights=np.full(len(frame), 2), weight_bound=bound)


@pytest.mark.parametrize("workers", [0, True, 1.5])
def test_no_work_is_done_by_no_workers(
    frame: pd.DataFrame, schema: es.Schema, toy: es.Owner, workers: object
) -> None:
    refused = pytest.raises(ValueError, check=error("not-a-count", "1"))
    table = schema.table(frame)
    with refused:
        toy.encrypt(table, workers=workers)
    sealed = toy.encrypt(table)
    with refused:
        sealed.counts("x0", workers=workers)
    with refused:
        es.MultinomialNB().fit(table).predict_votes(sealed, workers=workers)
