"""Columns that are kept as numbers and in bins, so that one table answers questions about both."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import encryptedstats as es
from encryptedstats.publishing.sensitivity import possible_states
from encryptedstats.tables.schema.variables import PublicVariable
from error_codes import error

pytestmark = pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")


def patients(n: int = 60) -> pd.DataFrame:
    rng = np.random.default_rng(5)
    age = rng.integers(30, 80, n)
    return pd.DataFrame(
        {
            "age": age,
            "sex": rng.choice(["f", "m"], n),
            "dose": (age / 10 + rng.integers(0, 4, n)).round(),
            "ill": (age + rng.normal(0, 10, n) > 55).astype(int),
        }
    )


def schema_of(frame: pd.DataFrame, **options: object) -> es.Schema:
    kinds = {"age": "both", "dose": "number"}
    return es.Schema.infer(frame, target="ill", kinds=kinds, bins=4, **options)  # type: ignore[arg-type]  # the test's own


def gappy() -> pd.DataFrame:
    frame = patients()
    return frame.assign(age=frame["age"].mask(frame.index % 7 == 0))


@pytest.fixture(scope="module")
def roomy() -> es.Owner:
    """A key for sums of squares of numbers."""
    return es.Owner(es.Parameters.from_bits("bgv", 1024, 1 << 24, (50,) * 6, allow_insecure=True))


# -- the schema ----------------------------------------------------------------------------------


def test_inference_keeps_the_number_and_cuts_it() -> None:
    frame = patients()
    schema, cut = schema_of(frame), es.Schema.infer(frame, target="ill", bins=4)
    assert (schema["age"].kind, schema["age"].digits) == ("number", 0)
    assert schema["age"].edges == cut["age"].edges
    assert schema.public().variables[0] == PublicVariable("v0", "number", 4, low=0, high=128)
    assert es.Schema.infer(frame, target="ill", numbers="both", bins=4)["age"] == schema["age"]


def test_the_target_has_no_bins() -> None:
    schema = es.Schema.infer(patients(), target="dose", numbers="both")
    assert schema.target_number is not None
    assert (schema.target_number.n_bins, schema["age"].n_bins) == (0, 5)


@pytest.mark.parametrize("missing", ["error", "bin"])
def test_bins_are_those_of_the_cut_column(missing: str) -> None:
    frame = gappy() if missing == "bin" else patients()
    both = schema_of(frame, missing=missing).table(frame)
    cut = es.Schema.infer(
        frame, target="ill", bins=4, missing=missing, kinds={"age": "continuous"}
    ).table(frame)
    for one, other in zip(both.bins("age"), cut.bins("age"), strict=True):
        assert (one == other).all()
    pd.testing.assert_frame_equal(
        both.counts("age", by="ill"), cut.counts("age", by="ill"), check_names=True
    )


def test_bins_are_cut_after_rounding() -> None:
    frame = pd.DataFrame({"x": [1.4, 1.6, 2.2, 2.7]})
    schema = es.Schema.infer(frame, kinds={"x": "number"}).with_kind("x", "both", digits=0)
    table = schema.with_bins("x", edges=[1.5, 2.5]).table(frame)
    assert table.numbers("x").tolist() == [1, 2, 2, 3]
    assert table.codes("x").tolist() == [1, 2, 2, 3]


def test_schemas_are_stored_with_both(tmp_path: Path) -> None:
    schema = schema_of(gappy(), missing="bin")
    schema.save(tmp_path / "schema.json")
    loaded = es.Schema.load(tmp_path / "schema.json")
    assert loaded == schema
    assert es.PublicSchema.from_json(schema.public().to_json()) == schema.public()
    assert "5 bins" in repr(schema)


def test_kinds_change_without_data() -> None:
    schema = es.Schema.from_json(schema_of(patients()).to_json())
    age = schema["age"]
    assert schema.with_kind("age", "continuous")["age"].edges == age.edges
    assert schema.with_kind("age", "number")["age"].n_bins == 0
    edges = schema.with_bins("age", edges=[40, 60])["age"]
    assert (edges.kind, edges.edges, edges.high) == ("number", (40.0, 60.0), age.high)
    cut = schema.with_kind("age", "continuous").with_kind("age", "both", digits=0, low=0, high=128)
    assert cut["age"] == age
    with pytest.raises(es.SchemaError, check=error("cut-points")):
        schema.with_kind("dose", "both")


def test_files_with_impossible_bins_are_refused() -> None:
    with pytest.raises(es.SchemaError, check=error("impossible-number-variable")):
        PublicVariable("v0", "number", 1, low=0, high=4)


def test_names_that_were_probably_meant_are_suggested() -> None:
    with pytest.raises(es.SchemaError, check=error("unknown-column", "did you mean 'age'")):
        es.Schema.infer(patients(), kinds={"Agee": "both"})
    with pytest.raises(es.SchemaError, check=error("unknown-column", "did you mean 'ill'")):
        es.Schema.infer(patients(), target="Ill")
    with pytest.raises(es.SchemaError, check=error("unknown-variable", "did you mean 'age'")):
        schema_of(patients())["agee"]


# -- questions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["error", "bin"])
def test_one_encrypted_table_answers_both(roomy: es.Owner, missing: str) -> None:
    frame = gappy() if missing == "bin" else patients()
    schema = schema_of(frame, missing=missing)
    clear = schema.table(frame, slots=512)
    table = roomy.encrypt(clear)
    lm = es.LinearRegression("dose ~ age + sex")
    found = roomy.open(table.ask(lm), schema)
    assert found.coefficients().equals(clear.ask(lm).coefficients())
    assert "age" in found.coefficients().index  # one slope: the number
    forest = es.CompletelyRandomForest(n_trees=3, depth=2, variables=["age"])
    encrypted, plain = es.CompletelyRandomForest(**forest.get_params()), forest.fit(clear)
    opened = roomy.open(encrypted.fit(table), schema)
    assert {split.variable for tree in opened.trees_ for split in tree} == {0}
    np.testing.assert_array_equal(
        opened.predict_proba(frame.drop(columns="ill")),
        plain.predict_proba(frame.drop(columns="ill")),
    )
    assert roomy.open(table.counts("age"), schema).equals(clear.counts("age"))
    assert roomy.open(table.moments(["age"]), schema).equals(clear.moments(["age"]))


def test_planned_keys_do_for_both() -> None:
    frame = patients()
    schema = schema_of(frame)
    clear = schema.table(frame)
    questions = [es.LinearRegression("dose ~ age"), es.ChiSquare("age", "ill")]
    assert len(es.plan(questions, clear).digests) == 2


def test_stored_tables_have_both(roomy: es.Owner, tmp_path: Path) -> None:
    frame = gappy()
    schema = schema_of(frame, missing="bin")
    clear = schema.table(frame, slots=512)
    roomy.encrypt(clear).save(tmp_path / "table.enc")
    table = es.load(tmp_path / "table.enc")
    assert table.schema == schema.public()
    assert roomy.open(table.counts("v0"), schema).equals(clear.counts("age"))
    assert roomy.open(table.moments(["v0"]), schema).equals(clear.moments(["age"]))


# -- sensitivity ---------------------------------------------------------------------------------


def test_a_row_may_have_any_number_in_any_bin() -> None:
    public = es.PublicSchema((PublicVariable("v0", "number", 3, True, 0, 1),))
    states = possible_states(public, ["v0.bin0", "v0.bin2", "v0.number"], tried=True)["v0"]
    assert {(s["v0.bin0"], s["v0.bin2"], s["v0.number"]) for s in states} == {
        (1, 0, 0),
        (1, 0, 1),
        (0, 0, 0),
        (0, 0, 1),
        (0, 1, 0),
    }
