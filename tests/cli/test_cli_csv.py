"""Real CSV files at the command line: how they are read is said, policies are options, and
predictions carry the id.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from cli_helpers import Run, done, patients, the_error

import encryptedstats as es


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A German file with its schema, an opened model, and new rows with a level and a gap that are
    new.
    """
    home = tmp_path_factory.mktemp("german")
    frame = patients().rename(columns={"sex, at birth": "geschlecht"})
    frame["geschlecht"] = frame["geschlecht"].replace("male", "männlich")
    frame.to_csv(home / "patients.csv", index=False, sep=";", decimal=",", encoding="cp1252")
    frame.rename(columns={"dose": "dose"}).to_csv(home / "plain.csv", index=False)
    options = (
        "--id",
        "patient",
        "--column",
        "age cut=40,60",
        "--column",
        "grade levels=1,2,3,4,5",
        "--classes",
        "yes,no",
    )
    policies = ("--missing", "bin", "--column", "kilos missing=bin", "--unknown", "other")
    done(
        "data",
        "schema",
        home / "patients.csv",
        "--target",
        "ill",
        *options,
        *policies,
        "-o",
        home / "schema.json",
    )
    schema = es.Schema.load(home / "schema.json")
    es.MultinomialNB().fit(schema.table(frame)).save(home / "model.opened")
    new = (
        frame[:5]
        .drop(columns="ill")
        .assign(geschlecht=["female", "divers", "männlich", None, "female"])
    )
    new.loc[0, "kilos"] = None
    new.to_csv(home / "new.csv", index=False, sep="\t", decimal=",", encoding="utf-16")
    return home


def test_the_schema_has_what_the_options_say(story: Path) -> None:
    schema = es.Schema.load(story / "schema.json")
    assert schema.id == "patient"
    assert schema["age"].edges == (40, 60)
    assert schema["grade"].levels == (1, 2, 3, 4, 5)
    assert schema.classes == ("yes", "no")
    assert schema["kilos"].missing_bin
    assert schema["geschlecht"].levels == ("female", "männlich", "other")
    assert schema["geschlecht"].unknown == "other"
    assert schema.csv is not None
    assert (schema.csv.separator, schema.csv.decimal, schema.csv.charset) == (";", ",", "cp1252")


def test_how_a_file_is_read_is_said_in_one_line(story: Path) -> None:
    result = done(
        "data", "schema", story / "patients.csv", "--target", "ill", "--leave-out", "patient"
    )
    assert "patients.csv read as semicolon separated, decimal comma, cp1252" in result.stderr
    assert (
        "read as"
        not in done("data", "schema", story / "plain.csv", "--leave-out", "patient").stderr
    )


def test_both_ways_to_write_a_file_give_one_schema(story: Path) -> None:
    found = [
        es.Schema.from_json(
            done(
                "data", "schema", story / name, "--target", "ill", "--id", "patient", "--json"
            ).stdout
        )
        for name in ("patients.csv", "plain.csv")
    ]
    assert found[0].same_bins(found[1])


def test_new_levels_and_gaps_are_predicted_and_counted(story: Path, tmp_path: Path) -> None:
    result = done("predict", story / "model.opened", story / "new.csv", "-o", tmp_path / "p.csv")
    assert "new.csv read as tab separated, decimal comma, utf-16" in result.stderr
    assert (
        "warning: column 'geschlecht': 1 row with a level that the schema does not know (such as "
        "'divers', row 2)" in result.stderr
    )
    assert (
        "column 'geschlecht': 1 row without a value (such as row 4) went to 'other'"
        in result.stderr
    )
    found = pd.read_csv(tmp_path / "p.csv")
    assert list(found.columns)[:2] == ["patient", "predicted"]
    assert found["patient"].tolist() == [f"P{i:04d}" for i in range(5)]


def test_files_without_a_single_prediction_are_refused(
    story: Path, run: Run, tmp_path: Path
) -> None:
    new = pd.read_csv(story / "plain.csv").assign(age=None)
    new.to_csv(tmp_path / "gaps.csv", index=False)
    error = the_error(
        run("predict", story / "model.opened", tmp_path / "gaps.csv", "-o", tmp_path / "p.csv")
    )
    assert "no row of" in error
    assert "column 'age', rows 1, 2, 3, 4, 5, ...: it is missing" in error
    assert not (tmp_path / "p.csv").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            (),
            "column 'a' has numbers such as '1,234', which is 1234 (a comma between thousands) or "
            "1.234 (a decimal comma)",
        ),
        ((), "say which, --csv decimal='.' or --csv decimal=','"),
        (("--csv", "decimal=x"), "decimal mark 'x': one of '.', ',' is needed"),
        (
            ("--csv", "decimal=comma", "--column", "a cut=x"),
            "'x' is no number, and no date such as 2000-12-31",
        ),
        (
            ("--csv", "decimal=comma", "--column", "b levels=one"),
            "column 'b' has numbers",
        ),
        (("--csv", "decimal=comma", "--classes", "0,1"), "--classes needs --target"),
        (("--csv", "decimal=comma", "--id", "who"), "no column 'who' for the id of the rows"),
        (("--csv", "decimal=comma", "--rare", "0"), "a number of rows, such as 5"),
    ],
)
def test_wrong_options(tmp_path: Path, run: Run, options: tuple[str, ...], words: str) -> None:
    (tmp_path / "d.csv").write_text("a;b\n1,234;1\n5,678;2\n1,234;3\n")
    result = run("data", "schema", tmp_path / "d.csv", *options)
    assert result.exit_code in (1, 2)
    assert words in " ".join(result.stderr.replace("│", " ").split())


def test_rare_levels_and_dates(tmp_path: Path) -> None:
    lines = [f"{'big' if i else 'small'},{i % 28 + 1:02d}.12.2000" for i in range(30)]
    (tmp_path / "d.csv").write_text("town,day\n" + "\n".join(lines) + "\n")
    result = done(
        "data",
        "schema",
        tmp_path / "d.csv",
        "--rare",
        2,
        "--column",
        "day cut=2000-12-15",
        "--json",
    )
    found = es.Schema.from_json(result.stdout)
    assert found["town"].rare == ("small",)
    assert found.table(
        pd.DataFrame({"town": "big", "day": pd.to_datetime(["2000-12-15", "2000-12-16"])})
    ).data[1].tolist() == [0, 1]
