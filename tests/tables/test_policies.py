"""Rare and unknown levels and new gaps: where they go, what is said of it, and how the schema keeps
it.
"""

from __future__ import annotations

import json
import warnings

import numpy as np
import pandas as pd
import pytest

import encryptedstats as es
from encryptedstats.tables import Variable
from error_codes import error

ROWS = pd.DataFrame(
    {
        "country": ["de"] * 6 + ["fr"] * 4 + ["pe", "la"],
        "age": [31.0, 45, 27, 62, 50, 41, 33, 58, 29, 70, 44, 36],
        "ill": [0, 1] * 6,
    }
)
NEW = pd.DataFrame({"country": ["de", "xx", None, "pe"], "age": [30.0, 40, 50, 60]})


def counted(schema: es.Schema, rows: pd.DataFrame) -> dict[str, int]:
    return dict(schema.table(rows).counts("country")["count"])


@pytest.mark.parametrize("rare", [2, 0.1])
def test_rare_levels_share_a_level_and_are_known(rare: float) -> None:
    schema = es.Schema.infer(ROWS, target="ill", rare=rare)
    assert schema["country"].levels == ("de", "fr", "other")
    assert schema["country"].rare == ("la", "pe")
    with warnings.catch_warnings():
        warnings.simplefilter("error", es.SchemaWarning)  # they are known, so nothing is to be said
        assert counted(schema, ROWS) == {"de": 6, "fr": 4, "other": 2}
    with pytest.raises(es.SchemaError, check=error("unusable-value", "'country'", "'xx'", "row 1")):
        schema.table(NEW.drop(index=2))
    assert schema["country"].describe() == "3 bins: de fr other; 2 rare as other"


def test_a_level_that_is_called_other_takes_them() -> None:
    rows = ROWS.assign(country=ROWS["country"].replace("fr", "other"))
    assert es.Schema.infer(rows, rare=2)["country"].levels == ("de", "other")
    named = es.Schema.infer(ROWS).with_rare("country", ["pe", "la"], level="fr")
    assert counted(named, ROWS) == {"de": 6, "fr": 6}


def test_many_levels_are_no_obstacle_where_they_are_rare() -> None:
    rows = pd.DataFrame({"zip": [f"z{i}" for i in range(3000)] + ["big"] * 50})
    with pytest.raises(es.SchemaError, check=error("fewer-levels")):
        es.Schema.infer(rows)
    schema = es.Schema.infer(rows, rare=10)
    assert schema["zip"].levels == ("big", "other")
    with pytest.raises(es.SchemaError, check=error("every-level-rare")):
        es.Schema.infer(ROWS, rare=100)


@pytest.mark.parametrize("rare", [0, -1, 2.5, True, "many"])
def test_rare_is_a_number_of_rows_or_a_share(rare: object) -> None:
    with pytest.raises(es.SchemaError, check=error("rare-levels", "5")):
        es.Schema.infer(ROWS, rare=rare)  # type: ignore[arg-type]  # on purpose


@pytest.mark.parametrize(("unknown", "into"), [("other", "other"), ("missing", "missing")])
def test_unknown_levels_go_where_the_schema_says_and_are_counted(unknown: str, into: str) -> None:
    schema = es.Schema.infer(ROWS, target="ill", unknown=unknown, missing="bin")
    rows = NEW.drop(index=2)
    message = (
        r"column 'country': 1 row with a level that the schema does not know \(such as 'xx', row "
        rf"1\) went to '{into}'"
    )
    with pytest.warns(es.SchemaWarning, match=message) as caught:
        table = schema.table(rows)
    assert caught[0].filename == __file__
    assert dict(table.counts("country")["count"])[into] == 1
    assert [(moved.column, moved.n_rows) for moved in table.moved] == [("country", 1)]
    assert "1 values without a bin of their own" in repr(table)


def test_new_gaps_go_to_other_where_missing_values_have_bins() -> None:
    schema = es.Schema.infer(ROWS, target="ill", unknown="other", missing="bin")
    with pytest.warns(
        es.SchemaWarning,
        match=r"1 row with a level.*; column 'country': 1 row without a value \(such as row 2\)",
    ):
        assert counted(schema, NEW) == {"de": 1, "fr": 0, "la": 0, "pe": 1, "other": 2}
    strict = es.Schema.infer(ROWS, target="ill", unknown="other")
    cure = "schema.with_missing_bin('country')"
    with pytest.raises(es.SchemaError, check=error("missing-without-bin", cure)):
        strict.table(NEW)
    with pytest.warns(es.SchemaWarning):
        assert counted(strict.with_missing_bin("country"), NEW)["missing"] == 1  # the cure is one


def test_advice_for_rows_to_predict_is_not_to_do_what_was_done() -> None:
    model = es.MultinomialNB().fit(es.Schema.infer(ROWS, target="ill", missing="bin").table(ROWS))
    with pytest.raises(es.SchemaError, check=error("missing-without-bin", "'country'")):
        model.predict_votes(NEW.drop(index=1))


def test_policies_are_kept_and_do_not_change_what_the_bins_mean(tmp_path) -> None:
    schema = es.Schema.infer(ROWS, target="ill", rare=2, unknown="other")
    schema.save(tmp_path / "schema.json")
    assert es.Schema.load(tmp_path / "schema.json") == schema
    strict = schema.with_unknown("error")
    assert strict != schema
    assert strict.same_bins(schema)
    assert strict.digest_json() == schema.digest_json()
    assert es.Schema.infer(ROWS, target="ill").digest_json() != schema.digest_json()
    model = es.MultinomialNB().fit(strict.table(ROWS))
    with pytest.warns(es.SchemaWarning):
        assert len(model.predict(schema.table(NEW.drop(index=2)))) == 3


def test_a_worker_learns_the_number_of_bins_and_no_policy() -> None:
    schema = es.Schema.infer(ROWS, target="ill", rare=2, unknown="other")
    text = schema.public().to_json()
    assert all(word not in text for word in ("other", "unknown", "rare", "pe"))
    assert schema.public().variables[0].n_bins == 3
    assert schema.public() == es.Schema.infer(ROWS, target="ill", rare=2).public()


def test_schemas_of_version_1_are_read_with_defaults_and_keep_their_digest() -> None:
    schema = es.Schema.infer(ROWS, target="ill")
    old = json.loads(schema.to_json())
    old["version"] = 1
    for name in ("id", "csv", "target_number"):
        del old[name]
    for variable in old["variables"]:
        for name in ("other", "rare", "unknown"):
            del variable[name]
    again = es.Schema.from_json(json.dumps(old))
    assert again == schema
    # What version 1 made its digest of: the whole document.
    assert again.digest_json() == json.dumps(old, sort_keys=True, separators=(",", ":")).encode()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            '"unknown": "error"',
            '"unknown": "ignore"',
            r"variables\[0\]: variable 'country': unknown='ignore': one of 'error'",
        ),
        (
            '"unknown": "error"',
            '"unknown": "other"',
            r"variables\[0\].*into the level other, and there is none",
        ),
        ('"unknown": "error"', '"unknown": "missing"', r"variables\[0\].*needs missing_bin"),
        ('"other": null', '"other": "xx"', r"variables\[0\].*other='xx' is none of its levels"),
        (
            '"other": null',
            '"other": []',
            r"variables\[0\], field 'other': text or .* is needed, not a list",
        ),
        (
            '"rare": []',
            '"rare": ["de"]',
            r"variables\[0\].*rare levels go into the level other, and there is none",
        ),
        ('"rare": []', '"rare": [null]', r"variables\[0\], field 'rare'\[0\]"),
        ('"id": null', '"id": "age"', "'age' is the id of the rows, and cannot be a variable too"),
        (
            '"csv": null',
            '"csv": {"separator": ";"}',
            "field 'csv': missing field 'charset', 'dates', 'decimal', 'thousands'",
        ),
        ('"edges": []', '"edges": [40', "not JSON: .* line"),
    ],
)
def test_mistakes_of_a_person_who_edits_are_named_by_field(
    old: str, new: str, message: str
) -> None:
    text = es.Schema.infer(ROWS, target="ill").to_json()
    assert old in text
    with pytest.raises(es.SchemaError, match=message):
        es.Schema.from_json(text.replace(old, new, 1))


def test_the_file_is_one_that_a_person_reads() -> None:
    lines = es.Schema.infer(ROWS, target="ill").to_json().splitlines()
    assert '      "levels": ["de", "fr", "la", "pe"],' in lines
    assert '  "classes": [0, 1],' in lines


def test_classes_and_ids_are_set() -> None:
    rows = ROWS.assign(patient=[f"p{i}" for i in range(12)])
    schema = es.Schema.infer(rows, target="ill", id="patient").with_classes([1, 0])
    assert schema.names == ("country", "age")
    assert schema.classes == (1, 0)
    assert "id 'patient'" in repr(schema)
    assert es.Schema.infer(rows, target="ill").with_id("patient") == es.Schema.infer(
        rows, target="ill", id="patient"
    )
    with pytest.raises(es.SchemaError, check=error("unknown-column", "'name'")):
        es.Schema.infer(rows, id="name")


def test_new_bins_keep_the_policy() -> None:
    schema = es.Schema.infer(ROWS, unknown="other").with_bins("country", levels=["fr", "de"])
    assert schema["country"] == Variable(
        "country", "categorical", levels=("fr", "de", "other"), other="other", unknown="other"
    )
    with pytest.raises(es.SchemaError, check=error("no-levels", "'age'")):
        schema.with_unknown("other", "age")


# -- what is probably not meant
# --------------------------------------------------------------------------------------


def warned(frame: pd.DataFrame, **options: object) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        es.Schema.infer(frame, **options)  # type: ignore[arg-type]  # any of them
    return [str(one.message) for one in caught]


def test_columns_that_are_no_predictors_are_warned_of() -> None:
    rng = np.random.default_rng(0)
    ill = rng.integers(0, 2, 60)
    frame = pd.DataFrame(
        {
            "Unnamed: 0": range(60),
            "PatientID": rng.permutation(6000)[:60],
            "site": "here",
            "sex": rng.choice(["f", "m"], 60),
            "ill": ill,
        }
    )
    frame["gender"] = frame["sex"].map({"f": "female", "m": "male"})
    frame["outcome"] = np.where(ill, "sick", "well")
    found = "\n".join(warned(frame, target="ill"))
    for words in (
        "column 'Unnamed: 0' has no name in its file",
        "column 'Unnamed: 0' counts the rows, and became a predictor",
        "column 'PatientID' has another whole number in every row",
        "column 'site' is constant and tells nothing: leave it out",
        "column 'gender' says the same as column 'sex' in every row",
        "column 'outcome' says the same as the target in every row",
    ):
        assert words in found
    plain = pd.DataFrame(
        {
            "a": rng.normal(size=60),
            "b": rng.normal(size=60),
            "c": rng.integers(0, 9000, 60),
            "y": ill,
        }
    )
    assert warned(plain, target="y") == []


def test_dates_are_days() -> None:
    frame = pd.DataFrame({"born": pd.to_datetime(["1970-01-02", "1970-01-11", "2000-01-01", None])})
    schema = es.Schema.infer(frame, bins=3, missing="bin").with_bins("born", edges=[5, 100])
    assert schema.table(frame).data[0].tolist() == [0, 1, 2, 3]


def test_the_target_goes_by_its_own_name() -> None:
    table = es.Schema.infer(ROWS, target="ill").table(ROWS)
    pd.testing.assert_frame_equal(
        table.counts("country", by="ill"), table.counts("country", by="class")
    )
