"""Inference, editing, strict JSON, and what the public schema gives away."""

from __future__ import annotations

import json
import os
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from encryptedstats.errors import SchemaError
from encryptedstats.tables import PublicSchema, Schema, Variable
from error_codes import error


@pytest.fixture
def patients():
    rng = np.random.default_rng(3)
    return pd.DataFrame(
        {
            "age": rng.normal(50, 12, 40).round(1),
            "grade": rng.integers(1, 9, 40),
            "stage": pd.Categorical(
                rng.choice(["I", "II", "III"], 40), categories=["I", "II", "III"], ordered=True
            ),
            "sex": rng.choice(["f", "m"], 40),
            "smoker": rng.random(40) < 0.5,
            "treated": rng.integers(0, 2, 40),
            "dose": rng.integers(-50, 200, 40) / 10,
            "constant": 7.5,
            "diagnosis": rng.choice(["benign", "malignant", "unclear"], 40),
        }
    )


@pytest.fixture
def schema(patients):
    return Schema.infer(patients, target="diagnosis")


def test_kinds_by_the_rule(schema):
    assert {variable.name: variable.kind for variable in schema.variables} == {
        "age": "continuous",
        "grade": "ordinal",
        "stage": "ordinal",
        "sex": "categorical",
        "smoker": "categorical",
        "treated": "categorical",
        "dose": "continuous",
        "constant": "continuous",
    }
    assert schema.classes == ("benign", "malignant", "unclear")
    assert schema["stage"].levels == ("I", "II", "III")
    assert schema["smoker"].levels == (False, True)
    assert schema["grade"].edges  # 8 grades, 5 bins: cut at quantiles
    assert Schema.infer(pd.DataFrame({"g": [1, 2, 3, 4] * 3}))["g"].levels == (1, 2, 3, 4)


def test_whole_numbers_with_many_values_are_continuous():
    assert Schema.infer(pd.DataFrame({"n": range(11)}))["n"].kind == "continuous"
    assert Schema.infer(pd.DataFrame({"n": range(10)}))["n"].kind == "ordinal"
    assert Schema.infer(pd.DataFrame({"n": [0.5, 1.5]}))["n"].kind == "continuous"


def test_merged_bins_are_reported(patients):
    schema = Schema.infer(pd.DataFrame({"x": [0.0] * 50 + list(np.arange(1, 51) / 3)}))
    assert schema["x"].n_bins == 4
    assert schema["x"].note == "5 bins asked, 4 left: ties"
    assert "[5 bins asked, 4 left: ties]" in repr(schema)
    constant = Schema.infer(patients)["constant"]
    assert (constant.n_bins, constant.note) == (1, "5 bins asked, 1 left: constant")
    assert Schema.infer(pd.DataFrame({"x": ["a", "a"]}))["x"].note == "constant: one bin"


def test_kinds_override_the_rule(patients):
    kinds = {
        "age": "number",
        "treated": "number",
        "sex": "ordinal",
        "grade": "categorical",
        "dose": "ordinal",
    }
    schema = Schema.infer(patients, target="diagnosis", kinds=kinds)
    assert schema["age"].digits == 1
    assert (schema["treated"].digits, schema["treated"].low, schema["treated"].high) == (0, 0, 1)
    assert schema["sex"].levels == ("f", "m")
    assert schema["grade"].levels == tuple(sorted(set(patients["grade"].tolist())))
    assert len(schema["dose"].edges) == 4


def test_with_kind_right_after_inference(schema, patients):
    assert schema.with_kind("treated", "ordinal")["treated"].levels == (0, 1)
    dose = schema.with_kind("dose", "number", digits=1)["dose"]
    values = np.rint(patients["dose"] * 10)
    # Bounds are public: powers of two around the data, not the data's own extremes.
    assert (dose.digits, dose.low, dose.high) == (1, -64, 256)
    assert -64 < values.min() < -32
    assert 128 < values.max() < 256
    assert schema.with_kind("dose", "number", digits=1, low=-10, high=30.5)["dose"].high == 305
    assert schema.with_kind("grade", "continuous")["grade"].edges == schema["grade"].edges
    assert schema.with_kind("grade", "categorical").with_kind("grade", "ordinal") == schema
    assert schema.with_kind("sex", "ordinal", levels=["m", "f"])["sex"].levels == ("m", "f")
    assert schema["sex"].levels == ("f", "m"), "the schema itself does not change"


def test_with_kind_after_loading_says_what_it_needs(schema):
    loaded = Schema.from_json(schema.to_json())
    assert loaded.with_kind("age", "ordinal")["age"].edges == schema["age"].edges
    assert loaded.with_kind("stage", "categorical")["stage"].kind == "categorical"
    assert loaded.with_kind("dose", "number", digits=1, low=-5, high=20)["dose"].low == -50
    with pytest.raises(SchemaError, check=error("number-without-range", "'dose'")):
        loaded.with_kind("dose", "number", digits=1)
    with pytest.raises(SchemaError, check=error("kind-needs-data", "'age'")):
        loaded.with_kind("age", "categorical")


def test_with_bins(schema):
    assert schema.with_bins("age", edges=[18, 65])["age"].edges == (18.0, 65.0)
    assert schema.with_bins("grade", edges=[3])["grade"].kind == "ordinal"
    assert schema.with_bins("treated", edges=[0.5])["treated"].kind == "continuous"
    assert schema.with_bins("sex", levels=["m", "f", "x"])["sex"] == Variable(
        "sex", "categorical", levels=("m", "f", "x")
    )
    assert schema.with_bins(0, levels=[1, 2])["age"].kind == "ordinal"
    for wrong in ({}, {"edges": [1], "levels": [1]}):
        with pytest.raises(SchemaError, check=error("edges-and-levels")):
            schema.with_bins("age", **wrong)


def test_bins_chosen_by_hand_survive_a_new_kind(schema):
    chosen = schema.with_bins("age", edges=[18, 65])
    assert chosen.with_kind("age", "ordinal")["age"].edges == (18.0, 65.0)
    ranked = schema.with_kind("sex", "ordinal", levels=["m", "f"])
    assert ranked.with_kind("sex", "categorical")["sex"].levels == ("m", "f")


def test_with_missing_bin(schema):
    age = schema.with_missing_bin("age")["age"]
    assert (age.n_bins, age.labels[-1]) == (6, "missing")
    assert schema.with_missing_bin("age").with_missing_bin("age", False) == schema


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (
            lambda s: s.with_kind("weight", "ordinal"),
            "no variable 'weight'; the variables are 'age', 'grade'",
        ),
        (
            lambda s: s.with_kind("age", "real"),
            "'age': kind 'real' does not exist; the kinds are continuous, ordinal",
        ),
        (
            lambda s: s.with_kind("sex", "continuous"),
            r"needs numbers: column 'sex', row 0: '[fm]' is not a number",
        ),
        (lambda s: s.with_kind("sex", "number"), "kind 'number' needs numbers: column 'sex'"),
        (
            lambda s: s.with_kind("age", "ordinal", digits=2),
            "digits, low and high are for kind 'number'",
        ),
        (lambda s: s.with_kind("age", "number", levels=[1]), "a number has no levels"),
        (
            lambda s: s.with_kind("age", "continuous", levels=[1]),
            "a continuous variable has edges, not levels",
        ),
        (
            lambda s: s.with_kind("sex", "categorical", levels=["f", "f"]),
            "level 'f' is given twice",
        ),
        (lambda s: s.with_kind("sex", "categorical", levels=[1, True]), "level 1 is given twice"),
        (
            lambda s: s.with_kind("sex", "categorical", levels=[]),
            "a categorical variable needs levels",
        ),
        (lambda s: s.with_kind("sex", "ordinal", levels=[pd.Timestamp(0)]), "not Timestamp"),
        (lambda s: s.with_kind("dose", "number", digits=30), "digits=30: an integer from 0 to 15"),
        (lambda s: s.with_kind("dose", "number", low=5, high=1), r"low=50, high=10 is no range"),
        (lambda s: s.with_bins("age", edges=[2, 1]), r"edges \(2.0, 1.0\) do not increase"),
        (lambda s: s.with_bins("age", edges=[1, float("inf")]), "not all finite"),
        (
            lambda s: Variable("n", "number", digits=0, low=0.5, high=1),
            "low=0.5, high=1 are not integers",
        ),
        (lambda s: s.with_bins("age", edges=["a"]), "are not all numbers"),
        (
            lambda s: Variable("n", "number", digits=0, low=0, high=1, levels=(1,)),
            "a number has no levels",
        ),
    ],
)
def test_wrong_edits_are_refused(schema, edit, message):
    with pytest.raises(SchemaError, match=message):
        edit(schema)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"data": pd.DataFrame()}, "no rows"),
        ({"data": pd.DataFrame({"a": []})}, "no rows"),
        ({"data": pd.DataFrame(index=[1, 2])}, "at least one variable"),
        (
            {"data": pd.DataFrame({"y": [0, 1]}), "target": "y"},
            "there is no column beside the target",
        ),
        ({"data": pd.DataFrame([[1, 2]], columns=["a", "a"])}, "column name 'a' is given twice"),
        ({"data": pd.DataFrame([[1, 2]], columns=[1, "1"])}, "column name '1' is given twice"),
        ({"data": pd.DataFrame({"a": [1, 2]}), "target": "y"}, "no target column 'y'; it has 'a'"),
        (
            {"data": pd.DataFrame({"a": [1, 2], "y": [1, 1]}), "target": "y"},
            r"'y' has 1 classes \(1\): at least 2",
        ),
        (
            {"data": pd.DataFrame({"a": [1, 2]}), "kinds": {"b": "ordinal"}},
            "kinds names column 'b'",
        ),
        (
            {"data": pd.DataFrame({"a": [1, 2]}), "kinds": {"a": "ord"}},
            "'a': kind 'ord' does not exist",
        ),
        (
            {"data": pd.DataFrame({"a": [1, 2]}), "missing": "ignore"},
            "missing='ignore': one of 'error', 'bin', 'drop'",
        ),
        ({"data": pd.DataFrame({"a": [1.5, 2]}), "bins": 0}, "bins=0"),
        ({"data": pd.DataFrame({"a": ["x"]}), "bins": 2.5}, "bins=2.5"),
        (
            {"data": pd.DataFrame({"a": [None, None]}), "missing": "drop"},
            "column 'a' has no values at all",
        ),
        (
            {"data": pd.DataFrame({"a": [1, np.inf]}, index=["r", "s"])},
            "column 'a', row 's': inf is not finite",
        ),
        ({"data": pd.DataFrame({"a": [1j]})}, "complex"),
        ({"data": pd.DataFrame({"a": [[1], [2]]})}, "column 'a'"),
        ({"data": pd.DataFrame({"t": [pd.Timedelta(days=1)]})}, "convert it first"),
        (
            {"data": pd.DataFrame({"id": [f"p{i}" for i in range(2000)]})},
            "'id' has 2000 different values",
        ),
        (
            {"data": [[1, 2]]},
            "a pandas or polars DataFrame or a 2-D NumPy array is needed, not list",
        ),
        ({"data": np.arange(3)}, r"a 2-D array is needed, not one of shape \(3,\)"),
        ({"data": pl.LazyFrame({"a": [1]})}, r"call .collect\(\) first"),
        ({"data": np.zeros((2, 2)), "target": 5}, "target=5: the array has 2 columns"),
        (
            {"data": pd.DataFrame({"a": [1, 2], "target": 3}), "y": [0, 1]},
            "both the target and a variable",
        ),
        (
            {"data": pd.DataFrame({"a": ["12", "12a"]}), "kinds": {"a": "continuous"}},
            "column 'a', row 1: '12a'",
        ),
        (
            {"data": pd.DataFrame({"a": [1.0, None] * 8, "b": [None] + [2.5] * 15})},
            r"missing values in column 'a' \(rows 1, 3, 5, 7, 9, ... \(8 in all\)\); column 'b' "
            r"\(row 0\)",
        ),
    ],
)
def test_data_that_makes_no_schema_is_refused(arguments, message):
    with pytest.raises(SchemaError, match=message):
        Schema.infer(**arguments)


def test_missing_bin_goes_to_the_columns_that_need_one():
    df = pd.DataFrame({"a": [1.5, None, 3.5], "b": ["x", "y", "x"], "c": ["u", None, "v"]})
    schema = Schema.infer(df, missing="bin")
    assert [variable.missing_bin for variable in schema.variables] == [True, False, True]
    assert not any(variable.missing_bin for variable in Schema.infer(df, missing="drop").variables)
    kept = Schema.infer(df, missing="bin", kinds={"a": "number"})["a"]
    assert (kept.n_bins, kept.missing_bin) == (0, True)


def test_classes_and_targets_in_all_ways():
    x = np.arange(8.0).reshape(4, 2)
    assert Schema.infer(x).n_classes == 0
    assert Schema.infer(x, classes=["no", "yes"]).classes == ("no", "yes")
    assert Schema.infer(x, y=[1.0, 0.0, 1.0, 0.0]).classes == (0, 1)
    assert Schema.infer(x, y=pd.Series([True, False, True, True], name="ill")).target == "ill"
    with_target = Schema.infer(np.column_stack([x, [3, 1, 2, 1]]), target=-1)
    assert (with_target.target, with_target.classes, with_target.names) == (
        "x2",
        (1, 2, 3),
        ("x0", "x1"),
    )
    assert (
        Schema.infer(pd.DataFrame({"a": [1, 2], "y": [0, 0]}), target="y", classes=[0, 1]).n_classes
        == 2
    )
    frame = pd.DataFrame(np.arange(6).reshape(2, 3))
    assert Schema.infer(frame, target=2).names == ("0", "1")


def test_numeric_text_is_ordered_by_number():
    df = pd.DataFrame({"grade": ["10", "9", "2"]})
    assert Schema.infer(df)["grade"].kind == "categorical"
    assert Schema.infer(df, kinds={"grade": "ordinal"})["grade"].levels == ("2", "9", "10")


def test_objects_of_one_type_are_read_as_that_type():
    df = pd.DataFrame(
        {"i": [1, 2, None, 3], "b": [True, None, False, True], "m": ["a", 1, 2.5, True]},
        dtype=object,
    )
    schema = Schema.infer(df, missing="bin")
    assert schema["i"].levels == (1, 2, 3)
    assert schema["b"].levels == (False, True)
    assert set(schema["m"].levels) == {"a", 1, 2.5}


def test_labels_are_all_different():
    variable = Variable("x", "categorical", levels=(1, "1", "missing"), missing_bin=True)
    assert variable.labels == ("1", "'1'", "'missing'", "missing")
    close = Variable("x", "continuous", edges=(1.00000001, 1.00000002))
    assert len(set(close.labels)) == 3
    assert Variable("x", "continuous", edges=(1.5, 3)).labels == (
        "(-inf, 1.5]",
        "(1.5, 3.0]",
        "(3.0, inf)",
    )


def test_index_by_name_id_and_position(schema):
    assert (
        schema.index("grade")
        == schema.index("v1")
        == schema.index(1)
        == schema.index(np.int64(1))
        == 1
    )
    assert schema.public().index("v1") == schema.public().index(1) == 1
    named = Schema((Variable("v1", "continuous"), Variable("b", "continuous")))
    assert named.index("v1") == 0, "a name goes before an id"
    for wrong, message in (
        ("v99", "no variable 'v99'"),
        (8, "positions run from 0 to 7"),
        (-1, "position -1"),
    ):
        with pytest.raises(SchemaError, match=message):
            schema.index(wrong)
    with pytest.raises(SchemaError, check=error("unknown-variable", "'age'", "'v0'", "'v1'")):
        schema.public().index("age")
    for wrong in (True, 1.0, None):
        with pytest.raises(SchemaError, check=error("wrong-variable-type")):
            schema.index(wrong)


def test_from_onehot_takes_names_and_kinds_as_r_does():
    schema = Schema.from_onehot(["b", "a", "b", "a", "b"], {"a": "cat", "b": "ord"})
    assert [(v.name, v.kind, v.n_bins) for v in schema.variables] == [
        ("b", "ordinal", 3),
        ("a", "categorical", 2),
    ]
    assert schema.with_kind("b", "categorical")["b"].kind == "categorical"
    assert Schema.from_json(schema.to_json()) == schema
    with pytest.raises(SchemaError, check=error("kinds-not-of-columns", "'a'", "'b'")):
        Schema.from_onehot(["a", "b"], {"a": "cat"})
    with pytest.raises(SchemaError, check=error("wrong-onehot-kind", "'a'", "'num'", "'ord'")):
        Schema.from_onehot(["a"], {"a": "num"})
    for edit in (
        lambda: schema.with_bins("b", edges=[1]),
        lambda: schema.with_kind("b", "number", digits=0, low=0, high=1),
        lambda: schema.with_missing_bin("b"),
    ):
        with pytest.raises(SchemaError, check=error("onehot-columns-not-bins", "'b'", "3")):
            edit()


# ------------------------------------------------------------------------------------------------
# JSON and files

LEVELS = st.one_of(
    st.text(max_size=5),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
)
EDGES = st.lists(
    st.floats(allow_nan=False, allow_infinity=False).map(lambda x: x + 0.0), max_size=5, unique=True
)


@st.composite
def variables(draw, name):
    kind = draw(st.sampled_from(["continuous", "ordinal", "categorical", "number"]))
    if kind == "number":
        low, high = sorted(draw(st.tuples(*[st.integers(-(2**62), 2**62)] * 2)))
        return Variable(name, kind, digits=draw(st.integers(0, 15)), low=low, high=high)
    missing = draw(st.booleans())
    if kind == "continuous" or (kind == "ordinal" and draw(st.booleans())):
        return Variable(name, kind, edges=tuple(sorted(draw(EDGES))), missing_bin=missing)
    levels = draw(st.lists(LEVELS, min_size=1, max_size=4, unique_by=lambda x: x))
    return Variable(name, kind, levels=tuple(levels), missing_bin=missing)


@st.composite
def schemas(draw):
    names = draw(st.lists(st.text(max_size=6), min_size=2, max_size=5, unique=True))
    target = draw(st.sampled_from([None, names.pop()]))
    classes = (
        draw(st.lists(LEVELS, min_size=2, max_size=4, unique=True)) if target is not None else ()
    )
    missing = draw(st.sampled_from(["error", "bin", "drop"]))
    return Schema(tuple(draw(variables(name)) for name in names), target, tuple(classes), missing)


@settings(deadline=None)
@given(schemas())
def test_json_round_trip(schema):
    again = Schema.from_json(schema.to_json())
    assert again == schema
    assert again.fingerprint() == schema.fingerprint()
    assert [type(level) for level in again.classes] == [type(level) for level in schema.classes]
    public = schema.public()
    assert PublicSchema.from_json(public.to_json()) == public
    assert public.public() is public
    assert repr(schema)
    assert schema._repr_html_()


def test_numpy_scalars_become_plain():
    variable = Variable(
        "x", "categorical", levels=(np.int64(1), np.float64(2.0), np.str_("a"), np.bool_(False))
    )
    assert [type(level) for level in variable.levels] == [int, int, str, bool]
    assert type(Variable("x", "continuous", edges=(np.float32(0.5),)).edges[0]) is float


def _paths(value, path=()):
    """Every place in a JSON value."""
    yield path
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, item in items:
        yield from _paths(item, (*path, key))


def _changed(document, path, change):
    copy = json.loads(json.dumps(document))
    holder = copy
    for key in path[:-1]:
        holder = holder[key]
    change(holder, path[-1])
    return json.dumps(copy)


@pytest.mark.parametrize("which", ["schema", "public"])
def test_every_mutation_of_the_structure_is_refused(schema, which):
    schema = schema.with_kind("dose", "number", digits=1)
    document = json.loads((schema if which == "schema" else schema.public()).to_json())
    read = (Schema if which == "schema" else PublicSchema).from_json
    for path in _paths(document):
        if not path:
            continue
        # A value of a type that is right nowhere, and for objects a field too many and a field too
        # few.
        with pytest.raises(SchemaError):
            read(
                _changed(
                    document, path, lambda holder, key: holder.__setitem__(key, {"strange": 1})
                )
            )
        if isinstance(path[-1], str):
            with pytest.raises(SchemaError, match=r"missing field|format None|version None"):
                read(_changed(document, path, lambda holder, key: holder.pop(key)))
            with pytest.raises(SchemaError, check=error("wrong-fields", "'extra'")):
                read(_changed(document, path, lambda holder, key: holder.__setitem__("extra", 1)))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            '"edges": [1.5, 2.5]',
            '"edges": [2.5, 1.5]',
            r"variables\[0\]: variable 'x': edges \(2.5, 1.5\) do not",
        ),
        ('"edges": [1.5, 2.5]', '"edges": [1.5, NaN]', "NaN is not a finite number"),
        ('"edges": [1.5, 2.5]', '"edges": [1.5, 1e999]', "not all finite"),
        (
            '"edges": [1.5, 2.5]',
            '"edges": [1.5, "2"]',
            r"'edges'\[1\]: an integer or a number is needed, not text",
        ),
        (
            '"edges": [1.5, 2.5]',
            '"edges": [1.5, true]',
            r"'edges'\[1\]: an integer or a number is needed, not true",
        ),
        (
            '"missing_bin": false',
            '"missing_bin": 0',
            "field 'missing_bin': true or false is needed, not an integer",
        ),
        ('"version": 3', '"version": 4', "version 4: this library reads versions 1 to 3"),
        ('"version": 3', '"version": true', "version True"),
        ('"target_number": null', '"target_number": {}', "field 'target_number': .*name"),
        ('"target": "y"', '"target": "y", "target": "z"', "a field is given twice"),
        ('"target": "y"', '"target": null', "classes 0, 1 without a target"),
        ('"classes": [0, 1]', '"classes": [0]', "at least 2 are needed"),
        ('"classes": [0, 1]', '"classes": [0, null]', r"classes\[1\]"),
        ('"kind": "continuous"', '"kind": "categorical"', "a categorical variable needs levels"),
        ('"kind": "continuous"', '"kind": "weird"', "kind 'weird' does not exist"),
        ('"low": null', '"low": 3', "digits, low and high are for kind 'number'"),
        ('"name": "x"', '"name": "y"', "'y' is both the target and a variable"),
        ('"format"', "format", "not JSON"),
        (
            "encryptedstats.schema",
            "encryptedstats.public-schema",
            "'encryptedstats.schema' is needed",
        ),
    ],
)
def test_altered_json_is_refused_by_place(old, new, message):
    text = Schema((Variable("x", "continuous", edges=(1.5, 2.5)),), "y", (0, 1)).to_json(
        indent=None
    )
    assert old in text
    with pytest.raises(SchemaError, match=message):
        Schema.from_json(text.replace(old, new))


@pytest.mark.parametrize("text", ["", "[]", "null", "3", "9" * 5000, "[" * 100_000, "{}"])
def test_foreign_text_is_refused(text):
    for kind in (Schema, PublicSchema):
        with pytest.raises(SchemaError):
            kind.from_json(text)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"id": "v0"', '"id": "age"'),
        ('"n_bins": 3', '"n_bins": 0'),
        ('"n_bins": 3', '"n_bins": -1'),
        ('"n_classes": 2', '"n_classes": 1'),
        ('"low": null', '"low": 1'),
    ],
)
def test_altered_public_schemas_are_refused(old, new):
    schema = Schema((Variable("x", "continuous", edges=(1.5, 2.5)),), "y", (0, 1))
    text = schema.public().to_json(indent=None)
    assert old in text
    with pytest.raises(SchemaError, match=r"v0|age|n_classes"):
        PublicSchema.from_json(text.replace(old, new))


def test_files(schema, tmp_path):
    path = tmp_path / "schéma.json"
    schema.save(path)
    schema.save(path)
    assert Schema.load(path) == schema
    assert os.listdir(tmp_path) == [path.name]
    schema.public().save(tmp_path / "public.json")
    assert PublicSchema.load(tmp_path / "public.json") == schema.public()
    with pytest.raises(SchemaError, match=r"public.json: format 'encryptedstats.public-schema'"):
        Schema.load(tmp_path / "public.json")
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(SchemaError, match=r"schéma\.json"):
        Schema.load(path)


def test_a_failed_save_leaves_the_old_file(schema, tmp_path, monkeypatch):
    path = tmp_path / "schema.json"
    schema.save(path)

    def fail(_descriptor):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        schema.with_missing_bin("age").save(path)
    assert Schema.load(path) == schema
    assert os.listdir(tmp_path) == ["schema.json"]


def test_pickle_carries_no_summary_of_the_data(schema):
    again = pickle.loads(pickle.dumps(schema))  # noqa: S301  # our own bytes
    assert again == schema
    assert not again._summaries
    assert schema._summaries


def test_fingerprints_tell_schemas_apart(schema, patients):
    assert schema.fingerprint() == Schema.infer(patients, target="diagnosis").fingerprint()
    assert schema.fingerprint() != schema.with_missing_bin("age").fingerprint()
    assert len(schema.public().fingerprint()) == 64


def test_public_schema_leaks_nothing(schema):
    schema = schema.with_kind("dose", "number", digits=1)
    public = schema.public()
    text = public.to_json() + repr(public)
    secrets = [*schema.names, str(schema.target), *map(str, schema.classes)]
    for variable in schema.variables:
        secrets += [repr(edge) for edge in variable.edges]
        secrets += [level for level in variable.levels if isinstance(level, str) and len(level) > 1]
    assert len(secrets) > 20
    assert [secret for secret in secrets if secret in text] == []
    values = {
        type(v).__name__
        for item in json.loads(public.to_json())["variables"]
        for v in item.values()
    }
    assert values <= {"str", "int", "bool", "NoneType"}
    assert [variable.id for variable in public.variables] == [f"v{j}" for j in range(8)]
    assert public.n_classes == 3
    assert {(v.low, v.high) for v in public.variables} == {
        (None, None),
        (schema["dose"].low, schema["dose"].high),
    }


def test_html_escapes_names():
    schema = Schema(
        (Variable("<script>", "categorical", levels=("<b>", "&")),), "<y>", ("<0>", "<1>")
    )
    html = schema._repr_html_()
    assert "<script>" not in html
    assert "<b>" not in html
    assert "&lt;script&gt;" in html
    assert "<y>" not in html
