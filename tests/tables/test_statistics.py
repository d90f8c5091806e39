"""Counts, cross tables and moments: encrypted == clear == pandas, and results that cannot be are
refused.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import encryptedstats as es
from encryptedstats.storage import container
from encryptedstats.tables.questions.summaries import Counts, Moments, class_or_variable
from error_codes import error


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(5)
    n = 3000
    return pd.DataFrame(
        {
            "age": rng.integers(20, 90, n),
            "sex": rng.choice(["f", "m"], n),
            "dose": rng.normal(3, 1, n).round(1),
            "change": rng.normal(-0.4, 2, n).round(1),
            "diagnosis": rng.choice(["ill", "well", "unsure"], n),
        }
    )


@pytest.fixture(scope="module")
def schema(frame: pd.DataFrame) -> es.Schema:
    inferred = es.Schema.infer(frame, target="diagnosis")
    return inferred.with_kind("dose", "number", digits=1).with_kind("change", "number", digits=1)


@pytest.fixture(scope="module", params=["bgv", "bfv"])
def world(request: pytest.FixtureRequest, frame: pd.DataFrame, schema: es.Schema) -> tuple:
    plan = es.plan(
        [Moments((2, 3)), Counts((0, -1))], schema, n_rows=len(frame), scheme=request.param
    )
    owner = es.Owner(plan)
    table = schema.table(frame)
    return owner, table, owner.encrypt(table)


def test_counts_by_class_equal_pandas(world: tuple, frame: pd.DataFrame, schema: es.Schema) -> None:
    owner, table, sealed = world
    found = owner.open(sealed.counts("age", by="class"))
    pd.testing.assert_frame_equal(found, table.counts("age", by="class"))
    labels = table.to_pandas()["age"]
    expected = pd.crosstab(labels, frame["diagnosis"])[list(schema.classes)]
    assert (found.to_numpy() == expected.to_numpy()).all()
    assert list(found.columns) == list(schema.classes)


def test_the_target_is_asked_for_by_its_own_name(world: tuple) -> None:
    owner, table, sealed = world
    wanted = table.counts("age", by="class")
    pd.testing.assert_frame_equal(table.counts("age", by="diagnosis"), wanted)
    pd.testing.assert_frame_equal(owner.open(sealed.counts("age", by="diagnosis")), wanted)
    pd.testing.assert_frame_equal(
        owner.open(sealed.crosstab("diagnosis", "age")), table.crosstab("class", "age")
    )


def test_counts_alone_and_crosstab_equal_pandas(world: tuple, frame: pd.DataFrame) -> None:
    owner, table, sealed = world
    assert (
        owner.open(sealed.counts("sex"))["count"].to_dict() == frame["sex"].value_counts().to_dict()
    )
    found = owner.open(sealed.crosstab("age", "sex"))
    expected = pd.crosstab(table.to_pandas()["age"], frame["sex"])
    assert (found.to_numpy() == expected.to_numpy()).all()


def test_moments_equal_pandas(world: tuple, frame: pd.DataFrame) -> None:
    owner, _, sealed = world
    numbers = frame[["dose", "change"]]
    found = owner.open(sealed.moments(["dose", "change"]))
    np.testing.assert_allclose(found.loc["mean"], numbers.mean(), rtol=1e-12)
    np.testing.assert_allclose(found.loc["sum"], numbers.sum(), rtol=1e-12)
    np.testing.assert_allclose(found.loc["var"], numbers.var(), rtol=1e-12)
    np.testing.assert_allclose(found.loc["std"], numbers.std(), rtol=1e-12)
    np.testing.assert_allclose(found.loc[["cov(dose)", "cov(change)"]], numbers.cov(), rtol=1e-9)
    assert (found.loc["count"] == len(frame)).all()


def test_a_worker_has_no_names_and_the_owner_gives_them_back(
    world: tuple, schema: es.Schema, tmp_path: Path
) -> None:
    owner, table, sealed = world
    sealed.save(tmp_path / "table")
    there = es.load(tmp_path / "table")
    there.counts("v0", by="class").save(tmp_path / "answer")
    file = container.read(
        tmp_path / "answer"
    )  # residues are random: any three letters can occur in them
    readable = [section for name, section in file.sections.items() if name != "residues"]
    data = b"\n".join([json.dumps(file.fields).encode(), *readable])
    assert b"counts" in data
    assert b"age" not in data
    assert b"ill" not in data
    answer = es.load(tmp_path / "answer", keys=there.keys)
    opaque = owner.open(answer)
    assert list(opaque.columns) == [0, 1, 2]
    pd.testing.assert_frame_equal(
        owner.open(answer, schema=schema), table.counts("age", by="class")
    )
    with pytest.raises(es.SchemaError, check=error("unknown-variable", "'age'")):
        there.counts("age")


def test_wrong_questions_are_explained(world: tuple) -> None:
    _, table, sealed = world
    for asked in (table, sealed):
        with pytest.raises(es.SchemaError, check=error("number-without-bins")):
            asked.counts("dose")
        with pytest.raises(es.SchemaError, check=error("keep-numbers")):
            asked.moments(["age"])
        with pytest.raises(es.SchemaError, check=error("duplicate-or-no-variables")):
            asked.moments(["dose", "dose"])
        with pytest.raises(es.SchemaError, check=error("class-without-moments")):
            asked.moments(["class"])


def test_the_class_goes_by_one_rule(world: tuple, frame: pd.DataFrame) -> None:
    """By the target's name, or as class or target where no variable is called so; a worker has the
    two words.
    """
    _, table, sealed = world
    for name in ("diagnosis", "class", "target"):
        assert class_or_variable(name, table.schema) == -1
    for name in ("class", "target"):
        assert class_or_variable(name, sealed.schema) == -1
    called_so = es.Schema.infer(
        frame[["age", "sex", "diagnosis"]].rename(columns={"sex": "class"}), target="diagnosis"
    )
    assert [class_or_variable(name, called_so) for name in ("diagnosis", "target", "v1", 1)] == [
        -1,
        -1,
        1,
        1,
    ]
    with pytest.raises(
        es.SchemaError, check=error("ambiguous-variable", "'class'", "'diagnosis'", "v1")
    ):
        class_or_variable("class", called_so)
    without = es.Schema.infer(frame[["age", "sex"]].rename(columns={"sex": "class"}))
    assert class_or_variable("class", without) == 1


def test_another_schema_is_refused(world: tuple, frame: pd.DataFrame) -> None:
    owner, _, sealed = world
    other = es.Schema.infer(frame[["age", "diagnosis"]], target="diagnosis")
    with pytest.raises(es.SchemaError, check=error("other-schema-shape")):
        owner.open(sealed.counts("age"), schema=other)


def test_counts_that_do_not_add_up_are_refused(schema: es.Schema) -> None:
    def read(*cells: int) -> pd.DataFrame:
        return Counts((1,)).interpret(cells, schema, 10)

    assert read(4, 6)["count"].tolist() == [4, 6]
    with pytest.raises(ValueError, match=r"add up to 11 over 10 rows.*refused"):
        read(4, 7)
    with pytest.raises(ValueError, match="refused"):
        read(-1, 11)


def test_weighted_class_counts(frame: pd.DataFrame, schema: es.Schema) -> None:
    weights = np.arange(len(frame)) % 3
    found = schema.table(frame, weights=weights).counts("sex", by="class")
    expected = frame.assign(w=weights).pivot_table(
        index="sex", columns="diagnosis", values="w", aggfunc="sum"
    )
    assert (found.to_numpy() == expected[list(schema.classes)].to_numpy()).all()


def test_one_row(schema: es.Schema, frame: pd.DataFrame) -> None:
    table = schema.table(frame.head(1))
    assert table.counts("age", by="class").to_numpy().sum() == 1
    assert table.moments(["dose"]).loc["mean", "dose"] == frame["dose"][0]
    assert np.isnan(table.moments(["dose"]).loc["var", "dose"])
