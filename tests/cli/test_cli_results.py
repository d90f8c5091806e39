"""Statistics on the command line: listed, planned and asked by name, opened as a summary, CSV,
JSON, a plot or a file to keep.
"""

from __future__ import annotations

import json
import stat
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from cli_helpers import Run, done, the_error

import encryptedstats as es
from encryptedstats.cli._console import view_text


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The owner's folder, with an encrypted table of numbers and groups."""
    home = tmp_path_factory.mktemp("results")
    rng = np.random.default_rng(5)
    rows = pd.DataFrame({"bmi": rng.integers(18, 40, 60), "sex": rng.choice(["f", "m"], 60)})
    rows["year"] = rng.integers(1, 5, 60)
    rows["ill"] = np.where(rng.random(60) < 0.4, "yes", "no")
    rows.to_csv(home / "rows.csv", index=False)
    done(
        "data",
        "schema",
        home / "rows.csv",
        "--target",
        "ill",
        "--column",
        "bmi digits=0",
        "-o",
        home / "schema.json",
    )
    asked = (
        "TTest variable=bmi by=sex",
        "KaplanMeier time=year event=ill event_level=yes",
    )
    shown = done(
        "plan", home / "schema.json", "--rows", 60, *asked, "-o", home / "plan.json"
    ).stdout
    assert "TTest variable=bmi by=sex" in shown
    done("key", "make", home / "secret.key", home / "public.keys", "--plan", home / "plan.json")
    done(
        "encrypt",
        home / "rows.csv",
        home / "sealed",
        "--schema",
        home / "schema.json",
        "--key",
        home / "secret.key",
    )
    by_name = ("TTest", "variable=bmi", "by=sex", "--schema", home / "schema.json")
    done("ask", home / "sealed", *by_name, "-o", home / "t.enc")
    by_id = ("KaplanMeier", "time=v2", "event=class", "event_level=class1")
    done("ask", home / "sealed", *by_id, "-o", home / "km.enc")
    return home


def opening(home: Path) -> tuple[str | Path, ...]:
    return ("--key", home / "secret.key", "--schema", home / "schema.json")


def test_a_summary_csv_and_json(home: Path) -> None:
    schema = es.Schema.load(home / "schema.json")
    wanted = schema.table(pd.read_csv(home / "rows.csv")).ask(es.TTest("bmi", by="sex"))
    shown = done("open", home / "t.enc", *opening(home)).stdout
    assert shown == view_text(wanted.view()) + "\n"
    done("open", home / "t.enc", *opening(home), "-o", home / "t.csv")
    assert (home / "t.csv").read_text() == wanted.to_csv()
    done("open", home / "t.enc", *opening(home), "-o", home / "t.json")
    assert json.loads((home / "t.json").read_text())["result"] == json.loads(
        json.dumps(wanted.to_dict())
    )
    facts = json.loads(done("open", home / "t.enc", *opening(home), "--json").stdout)
    assert facts["params"]["variable"] == "v0"
    assert facts["result"]["pvalue"] == wanted.pvalue


def test_an_opened_result_is_kept_and_looked_at(home: Path) -> None:
    kept = done("open", home / "t.enc", *opening(home), "-o", home / "t.opened").stdout
    assert f"wrote  {home / 't.opened'}" in kept
    again = done("open", home / "t.opened").stdout  # without any key
    assert again == done("open", home / "t.enc", *opening(home)).stdout
    assert "encryptedstats predict" not in kept
    found = es.load(home / "t.opened")
    assert stat.S_IMODE((home / "t.opened").stat().st_mode) == 0o600
    shown = done("data", "info", home / "t.opened").stdout
    assert "This result is NOT ENCRYPTED" in shown
    assert found.title in shown
    facts = json.loads(done("data", "info", home / "t.opened", "--json").stdout)
    assert (facts["kind"], facts["question"], facts["names_inside"]) == (
        "opened result",
        "TTest",
        True,
    )


def test_a_plot(home: Path, run: Run) -> None:
    pytest.importorskip("matplotlib")
    done("open", home / "km.enc", *opening(home), "--plot", home / "km.svg")
    assert (home / "km.svg").read_text().startswith("<?xml")
    refused = run("open", home / "km.enc", *opening(home), "--plot", home / "km.txt")
    assert refused.exit_code == 2
    assert ".png, .svg or .pdf" in refused.stderr


def test_the_list(run: Run) -> None:
    shown = " ".join(done("ask", "--list").stdout.split())
    assert "TTest" in shown
    assert "KaplanMeier" in shown
    assert "folds" not in shown.split()


def test_names_take_the_schema(home: Path, run: Run) -> None:
    error = the_error(
        run("ask", home / "sealed", "TTest", "variable=bmi", "by=sex", "-o", home / "no.enc")
    )
    assert "'bmi' is no id of a variable" in error
    assert "give --schema where you are the owner" in error


def test_numbers_are_kept(tmp_path: Path, run: Run) -> None:
    frame = pd.DataFrame(
        {"age": [30.25, 41.5, 52.0, 60.0], "sex": list("fmfm"), "y": [1.5, 2.0, 3.5, 4.0]}
    )
    frame.to_csv(tmp_path / "rows.csv", index=False)
    arguments = ("data", "schema", tmp_path / "rows.csv", "--target", "y", "--numbers", "keep")
    shown = done(*arguments, "-o", tmp_path / "schema.json").stdout
    assert "target" in shown
    schema = es.Schema.load(tmp_path / "schema.json")
    assert (schema["age"].digits, schema.target_number.digits) == (2, 1)
    done(
        *arguments[:-1],
        "keep:1",
        "--column",
        "y digits=3",
        "-o",
        tmp_path / "schema.json",
        "--force",
    )
    schema = es.Schema.load(tmp_path / "schema.json")
    assert (schema["age"].digits, schema.target_number.digits) == (1, 3)
    refused = run("data", "schema", tmp_path / "rows.csv", "--numbers", "bins:1")
    assert refused.exit_code == 2
    assert "bins, keep, keep:N" in refused.stderr
