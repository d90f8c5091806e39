"""Rows with gaps that a schema leaves out are counted aloud, and rows of a file are
counted from 1.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from cli_helpers import Run, done, the_error

import encryptedstats as es

ROWS, GAPS = 40, (2, 7, 11)  # rows of the file with a gap, counted from 1


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows of which some have gaps, one without a class, and a model that leaves gaps
    out, opened.
    """
    folder = tmp_path_factory.mktemp("gaps")
    rng = np.random.default_rng(4)
    frame = pd.DataFrame(
        {"age": rng.integers(20, 80, ROWS).astype(float), "ill": rng.integers(0, 2, ROWS)}
    )
    frame.loc[[row - 1 for row in GAPS], "age"] = np.nan
    frame.to_csv(folder / "rows.csv", index=False)
    frame["ill"].astype("Int64").where(np.arange(ROWS) != 0).to_frame().join(frame["age"]).to_csv(
        folder / "one-unknown.csv", index=False
    )
    done(
        "data",
        "schema",
        folder / "rows.csv",
        "--target",
        "ill",
        "--missing",
        "drop",
        "--bins",
        3,
        "-o",
        folder / "schema.json",
    )
    schema = es.Schema.load(folder / "schema.json")
    es.CompletelyRandomForest(3, 1).fit(schema.table(frame)).save(folder / "model.opened")
    return folder


def test_encryption_counts_what_it_leaves_out(place: Path, tmp_path: Path) -> None:
    done("key", "make", tmp_path / "s.key", tmp_path / "p.keys", "max_value=1000", "depth=1")
    encrypt = (
        "encrypt",
        place / "rows.csv",
        tmp_path / "t",
        "--schema",
        place / "schema.json",
        "--key",
    )
    said = done(*encrypt, tmp_path / "s.key")
    assert said.stderr == "warning: 3 of 40 rows have gaps and are left out (--missing drop)\n"
    assert "3 rows with gaps" in said.stdout
    facts = json.loads(done(*encrypt, tmp_path / "s.key", "--force", "--json").stdout)
    assert (facts["rows"], facts["rows_left_out"]) == (37, 3)


def test_the_library_counts_them_too(place: Path, tmp_path: Path) -> None:
    schema, owner = (
        es.Schema.load(place / "schema.json"),
        es.Owner(es.Parameters.choose(max_value=1000, depth=1)),
    )
    table = schema.table(pd.read_csv(place / "rows.csv"))
    with pytest.warns(
        es.SchemaWarning, match=r"3 of 40 rows have gaps and are left out \(missing='drop'\)"
    ):
        assert owner.encrypt(table).n_dropped == 3
    with pytest.warns(es.SchemaWarning, match="3 of 40 rows have gaps"):
        assert (
            owner.encrypt_file(place / "rows.csv", schema, tmp_path / "t", workers=1).n_dropped == 3
        )
    loaded = es.load(tmp_path / "t")
    assert loaded.n_dropped == loaded.info().to_dict()["rows_left_out"] == 3
    assert "3 rows with missing values" in str(loaded.info())


def test_a_prediction_has_a_line_for_every_row(place: Path, tmp_path: Path) -> None:
    predict = (
        "predict",
        place / "model.opened",
        place / "one-unknown.csv",
        "-o",
        tmp_path / "p.csv",
    )
    shown = done(*predict).stdout
    assert "Predicted 37 rows" in shown
    assert "3 of 40 rows: their lines are empty" in shown
    lines = pd.read_csv(tmp_path / "p.csv", dtype={"predicted": str}).set_index("row")
    assert lines.index.tolist() == list(range(1, ROWS + 1))
    assert lines.index[lines.isna().all(axis=1)].tolist() == list(GAPS)
    assert set(lines["predicted"].dropna()) <= {"0", "1"}
    facts = json.loads(done(*predict, "--force", "--json").stdout)
    assert (facts["rows"], facts["rows_without_prediction"]) == (40, 3)
    assert facts["reasons"] == [f"column 'age', rows {', '.join(map(str, GAPS))}: it is missing"]
    kept = pd.read_csv(place / "one-unknown.csv").drop(index=[row - 1 for row in GAPS])
    model = es.load(place / "model.opened")
    right = int((model.predict(kept[["age"]]) == kept["ill"]).sum())
    assert (facts["right"], facts["judged"]) == (
        right,
        36,
    )  # the row without a class is neither right nor wrong
    assert f"{right} of 36, {100 * right / 36:.1f} %" in shown


def test_gaps_at_the_beginning_and_whole_pieces_of_them(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However the file is cut into pieces, the lines are the same."""
    expected = done("predict", place / "model.opened", place / "rows.csv", "-o", "-").stdout
    rows = pd.read_csv(place / "rows.csv")
    pd.concat([rows[1:2], rows]).to_csv(tmp_path / "gap-first.csv", index=False)
    for at_once in (1, 2, 3):
        monkeypatch.setattr("encryptedstats.models.clear_rows._ROWS_AT_ONCE", at_once)
        assert (
            done("predict", place / "model.opened", place / "rows.csv", "-o", "-").stdout
            == expected
        )
        shifted = done(
            "predict", place / "model.opened", tmp_path / "gap-first.csv", "-o", "-"
        ).stdout.splitlines()
        assert shifted[0] == expected.splitlines()[0]
        assert shifted[1] == "1" + "," * (len(shifted[0].split(",")) - 1)
        bare = [line.partition(",")[2] for line in shifted[2:]]
        assert bare == [line.partition(",")[2] for line in expected.splitlines()[1:]]


def test_evaluation_counts_what_it_leaves_out(place: Path) -> None:
    said = done("evaluate", place / "model.opened", place / "rows.csv", "--json")
    facts = json.loads(said.stdout)
    assert (facts["rows"], facts["rows_left_out"], facts["rows_without_class"]) == (37, 3, 0)
    assert said.stderr == "warning: 3 of 40 rows have gaps and are left out (--missing drop)\n"


def test_a_forest_says_what_its_shares_are(place: Path, tmp_path: Path) -> None:
    shown = done(
        "predict", place / "model.opened", place / "rows.csv", "-o", tmp_path / "p.csv"
    ).stdout
    assert "shares of votes or leaves, which rank the rows and are not calibrated" in shown


def test_rows_of_a_file_are_counted_from_1(run: Run, place: Path, tmp_path: Path) -> None:
    rows = pd.read_csv(place / "rows.csv").astype(object)
    rows.loc[4, "age"] = "old"
    rows.to_csv(tmp_path / "typo.csv", index=False)
    for command in ("predict", "evaluate"):
        out = () if command == "evaluate" else ("-o", tmp_path / "x")
        assert "column 'age', row 5: 'old' is not a number" in the_error(
            run(command, place / "model.opened", tmp_path / "typo.csv", *out)
        )


def test_votes_are_private(place: Path, tmp_path: Path) -> None:
    """Votes in Python: a file of them holds a line of every row."""
    model, table = es.load(place / "model.opened"), es.Schema.load(place / "schema.json")
    rows = table.table(pd.read_csv(place / "rows.csv"))
    votes = model.predict_votes(rows)
    (tmp_path / "there.csv").write_text("old")
    old = os.umask(0o022)
    try:
        for name in ("new.csv", "there.csv", "new.csv.gz"):
            votes.to_csv(tmp_path / name)
            assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
            assert len(pd.read_csv(tmp_path / name)) == len(rows)
        assert votes.to_csv().count("\n") == len(rows) + 1
    finally:
        os.umask(old)
