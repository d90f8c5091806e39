"""What people get wrong most often: the message names the place, what is allowed, and what to do;
doubts are warnings.
"""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from encrypted_samples import SLOTS, mixed_frame

import encryptedstats as es
from encryptedstats.errors import SchemaError, SchemaWarning
from error_codes import error

pytestmark = pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")


# ----------------------------------------------------------------------------------------------
# values


def rows(**changed: object) -> pd.DataFrame:
    """Ten patients, one of whom is changed."""
    frame = mixed_frame(10).set_axis([f"p{i}" for i in range(10)]).astype(object)
    for name, value in changed.items():
        frame.loc["p4", name] = value
    return frame


def test_an_unseen_category(schema):
    message = "unusable-value"
    with pytest.raises(SchemaError, check=error(message)):
        schema.table(rows(größe="riesig"))
    levels = [*schema["größe"].levels, "riesig"]
    assert (
        len(schema.with_bins("größe", levels=levels).table(rows(größe="riesig"))) == 10
    )  # the cure is one
    with pytest.warns(SchemaWarning, match="'riesig', row 'p4'"):
        assert len(schema.with_unknown("other", "größe").table(rows(größe="riesig"))) == 10
    assert len(schema.with_missing_bin("größe").table(rows(größe=None))) == 10


def test_an_unseen_class(schema):
    message = "unusable-value"
    with pytest.raises(SchemaError, check=error(message)):
        schema.table(rows(sick="dead"))


@pytest.mark.parametrize("column", ["age", "dose"])
def test_text_in_a_column_of_numbers(schema, column):
    message = (
        rf"column '{column}', row 'p4': 'n\.a\.' is not a number: correct it, or leave it empty "
        rf"if it is missing; if '{column}' is "
        rf"a category, .* schema\.with_kind\('{column}', 'categorical', levels=\[\.\.\.\]\)"
    )
    with pytest.raises(SchemaError, match=message):
        schema.table(rows(**{column: "n.a."}))


def test_cures_come_after_the_count_of_other_rows(schema):
    with pytest.raises(SchemaError, check=error("unusable-value", "'p0'", "'x'", "9")):
        schema.table(rows().assign(age="x"))


def test_rows_of_a_file_are_counted_as_said(keeper, schema, tmp_path):
    frame = mixed_frame(30)
    frame["größe"] = frame["größe"].astype(object)
    frame.loc[7, "größe"] = "riesig"
    frame.to_csv(tmp_path / "rows.csv", index=False)
    assert "riesig" in (tmp_path / "rows.csv").read_text().splitlines()[1:][7]
    with pytest.raises(
        SchemaError,
        match=r"rows\.csv: column 'größe', row 8: .* \(the first row below the names is row 1\)",
    ):
        keeper.encrypt_file(tmp_path / "rows.csv", schema, tmp_path / "t")


def test_whole_numbers_in_floats(keeper):
    with pytest.raises(TypeError, check=error("whole-number-float", "2.0")):
        keeper.encrypt(2.0)
    with pytest.raises(TypeError, check=error("whole-number-float", "1", "3.0")):
        keeper.encrypt([1, 3.0])
    assert keeper.open(keeper.encrypt(np.array([1.0, 3.0]).astype(int))).tolist() == [1, 3]
    with pytest.raises(TypeError, check=error("not-an-integer")):
        keeper.encrypt(2.5)
    with pytest.raises(TypeError, check=error("not-an-integer")):
        keeper.encrypt(float("inf"))


# ----------------------------------------------------------------------------------------------
# keys


def test_the_key_of_another_owner(keeper, stranger_keeper, schema, tmp_path):
    ours = (
        r"opened to {0}, and the secret key that was given is {1}\. Only the secret key {0} opens "
        r"it: es\.Owner\.load"
    )
    message = ours.format(keeper.key_id, stranger_keeper.key_id)
    table = keeper.encrypt(schema.table(mixed_frame(9)))
    for value in (
        keeper.encrypt(3),
        keeper.encrypt([1, 2]),
        table.counts("before"),
        table.values(table.columns()[0]),
    ):
        with pytest.raises(es.KeyMismatchError, match=message):
            stranger_keeper.open(value)
    table.counts("before").save(tmp_path / "answer")
    table.save(tmp_path / "t")
    for name in ("answer", "t"):
        with pytest.raises(
            es.KeyMismatchError,
            match=rf"belongs to key {keeper.key_id}.*: give (the public keys|those) of",
        ):
            es.load(tmp_path / name, keys=stranger_keeper.public_keys())


# ------------------------------------------------------------------------------------------- ke
# for fewer rows


def test_keys_for_fewer_rows_are_warned_of(keeper, schema, tmp_path):
    exact = keeper.parameters.max_value
    frame = mixed_frame(exact + 1)[["before", "sick"]]
    narrow = es.Schema((schema["before"],), "sick", schema.classes)
    message = (
        rf"these are {exact + 1:,} rows: counts .* exact up to ±{exact:,}, .*es\.plan\(\.\.\., "
        r"n_rows=\.\.\.\)"
    )
    with pytest.warns(SchemaWarning, match=message) as caught:
        sealed = keeper.encrypt(narrow.table(frame))
    assert caught[0].filename == __file__
    with pytest.raises(OverflowError):
        sealed.counts("before")
    frame.to_csv(tmp_path / "rows.csv", index=False)
    with pytest.warns(SchemaWarning, match=r"these are [67],\d+ rows or more") as caught:
        keeper.encrypt_file(tmp_path / "rows.csv", narrow, tmp_path / "t")
    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_keys_for_enough_rows_are_not(keeper, schema):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        keeper.encrypt(schema.table(mixed_frame(SLOTS)))
    with pytest.warns(
        SchemaWarning,
        match=r"these are 9 rows with weights up to 4,096: counts .* can reach 36,864",
    ):
        keeper.encrypt(schema.table(mixed_frame(9), weights=np.ones(9, int), weight_bound=4096))


# ----------------------------------------------------------------------------------------------
# inference


EVEN = range(0, 120, 2)


def column(values: object, name: str = "x") -> pd.DataFrame:
    return pd.DataFrame({name: values})


@pytest.mark.parametrize("typo", ["12,5", "n.a.", "<5"])
def test_one_typo_among_numbers_is_warned_of(typo):
    values = [*(f"{i / 2}" for i in range(99)), typo]
    with pytest.warns(SchemaWarning) as caught:
        schema = es.Schema.infer(column(values))
    assert schema["x"].kind == "categorical"
    (warning,) = caught
    assert warning.filename == __file__
    message = str(warning.message)
    assert message.startswith(
        "column 'x' has numbers in 99 % of its rows and became a categorical with 100 levels"
    )
    assert f"column 'x', row 99: {typo!r} is not a number" in message
    assert message.endswith("correct these, or leave them empty")


def test_too_many_levels_because_of_a_typo_say_so():
    with pytest.raises(SchemaError, check=error("fewer-levels", "'oops'", "row 4999", "5000")):
        es.Schema.infer(column([*map(str, range(4999)), "oops"]))


@pytest.mark.parametrize("as_number", [False, True])
def test_names_and_numbers_of_people_are_warned_of(as_number):
    values = [f"{i:05d}" if as_number else f"patient {i}" for i in range(40)]
    with pytest.warns(
        SchemaWarning,
        match=r"column 'id' has another value in every row, .* with 40 levels, .*: leave it out",
    ):
        es.Schema.infer(column(values, "id"))


def test_a_measurement_as_target_is_warned_of():
    frame = pd.DataFrame({"a": EVEN, "y": np.arange(60) / 7})
    with pytest.warns(
        SchemaWarning,
        match=r"target 'y' has 60 different numbers, .*numbers='keep', .*cut it into .*median",
    ):
        es.Schema.infer(frame, target="y")
    with pytest.warns(SchemaWarning, match="target 'y' has 60 different numbers"):
        es.Schema.infer(frame[["a"]], y=frame["y"])


@pytest.mark.parametrize(
    ("frame", "options"),
    [
        (column([*"abcde"] * 20), {}),
        (column([f"{i}" for i in range(20)]), {}),  # few rows: anything goes
        (column([*map(str, range(9)), "a"] * 9), {}),  # few levels
        (column(pd.Categorical([f"p{i}" for i in range(50)])), {}),  # declared
        (column([f"p{i}" for i in range(50)]), {"kinds": {"x": "categorical"}}),  # asked for
        (column(np.arange(100.0)), {}),
        (pd.DataFrame({"a": EVEN, "y": np.arange(60) % 20}), {"target": "y"}),
        (pd.DataFrame({"a": EVEN, "y": range(60)}), {"target": "y", "classes": range(60)}),  # given
        (
            pd.DataFrame({"a": EVEN, "y": [f"c{i % 30}" for i in range(60)]}),
            {"target": "y"},
        ),  # text
    ],
)
def test_what_is_meant_is_not_warned_of(frame, options):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        es.Schema.infer(frame, **options)
