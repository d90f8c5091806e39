"""``python -m reproduction``: data sets are described without any data, and written where there is
a folder; the case study.
"""

from __future__ import annotations

import errno
import json
import os
import shlex
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import typer
from typer.testing import CliRunner

import encryptedstats as es
from encryptedstats.storage import files as storage_files
from reproduction import datasets
from reproduction.__main__ import app

_FOLDER = os.environ.get("ENCRYPTEDSTATS_DATA", "")


@pytest.fixture
def data_folder(monkeypatch: pytest.MonkeyPatch) -> Path:
    if not _FOLDER or not Path(_FOLDER).is_dir():
        pytest.skip(
            "the data sets are not here: set ENCRYPTEDSTATS_DATA to the folder that holds them"
        )
    monkeypatch.delenv("ENCRYPTEDSTATS_DATA")
    return Path(_FOLDER)


@pytest.fixture(autouse=True)
def nothing_of_this_machine(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENCRYPTEDSTATS_CACHE", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.setenv("ENCRYPTEDSTATS_UCI", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "200"})


def done(*arguments: object) -> Any:
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result


def the_error(*arguments: object) -> str:
    """The one line that is said."""
    result = run(*arguments)
    assert result.exit_code == 1, result.output
    assert len(result.output.splitlines()) == 1
    assert result.output.startswith("error: ")
    return str(result.output)


def test_the_list() -> None:
    shown = done("datasets").stdout
    assert all(name in shown for name in datasets.names())
    facts = json.loads(done("datasets", "--json").stdout)["datasets"]
    assert [entry["name"] for entry in facts] == datasets.names()
    assert facts[6]["n_rows_complete"] == 683


def test_one_of_them() -> None:
    shown = done("datasets", "bcw_o").stdout
    for words in (
        "699, 683 without missing values",
        "9 predictors: 9 ordinal",
        "malignant",
        "doi.org",
        "CC BY",
    ):
        assert words in shown
    assert json.loads(done("datasets", "musk1", "--json").stdout)["n_predictors"] == 166
    assert "(166 in all)" in done("datasets", "musk1").stdout


def test_it_is_written(data_folder: Path, tmp_path: Path) -> None:
    files = ("-o", tmp_path / "b.csv", "--schema", tmp_path / "s.json", "--data-home", data_folder)
    shown = done("datasets", "bcw_o", *files).stdout
    assert "683 rows of CSV" in shown
    data = datasets.load("bcw_o", data_home=data_folder)
    frame = pd.read_csv(tmp_path / "b.csv")
    assert frame.to_numpy().tolist() == data.table_frame().to_numpy().tolist()
    schema = es.Schema.load(tmp_path / "s.json")
    assert {v.name: v.kind for v in schema.variables} == data.kinds
    assert len(schema.table(frame)) == 683


def test_all_rows(data_folder: Path, tmp_path: Path) -> None:
    files = ("-o", tmp_path / "b.csv", "--data-home", data_folder, "--all-rows", "--json")
    assert json.loads(done("datasets", "bcw_o", *files).stdout)["written"]["rows"] == 699
    assert len(pd.read_csv(tmp_path / "b.csv")) == 699


def test_what_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ENCRYPTEDSTATS_DATA", raising=False)
    assert "Did you mean 'bcw_o'" in the_error("datasets", "bcw_oo")
    assert run("datasets", "-o", tmp_path / "x.csv").exit_code == 2
    error = the_error("datasets", "bcw_o", "-o", tmp_path / "x.csv")
    assert "cannot download" in error
    assert "set ENCRYPTEDSTATS_DATA" in error
    (tmp_path / "s.json").write_text("old")
    assert "--force" in the_error("datasets", "bcw_o", "--schema", tmp_path / "s.json")
    assert [path.name for path in tmp_path.iterdir()] == ["s.json"]


def test_a_full_disk(data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(storage_files.os, "fsync", full)
    error = the_error("datasets", "infl", "-o", tmp_path / "x.csv", "--data-home", data_folder)
    assert "x.csv: no space left on device" in error
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_somebody_else_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("nobody loses this")
    assert "exists already and was not touched" in the_error(
        "evaluation", "nothing", "-o", tmp_path
    )
    assert "is no folder" in the_error("evaluation", "nothing", "-o", tmp_path / "kept", "--force")
    assert "no part 'nothing'" in the_error("evaluation", "nothing", "-o", tmp_path, "--force")
    (tmp_path / "results").mkdir()
    assert "no part 'nothing'" in the_error("evaluation", "nothing", "-o", tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "results"]


@pytest.mark.parametrize("name", ["evaluation", "casestudy", "datasets"])
def test_examples_in_the_help_are_right(name: str) -> None:
    assert "Examples" in done(name, "--help").stdout
    program: Any = typer.main.get_command(app)
    for line in program.commands[name].known.doc.examples.splitlines():
        if line and not line.lstrip().startswith("#"):
            words = [word for word in shlex.split(line) if word != "--json"]
            assert words[:4] == ["python", "-m", "reproduction", name]
            program.commands[name].make_context(name, words[4:])


@pytest.mark.slow
def test_the_case_study_agrees_exactly(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENCRYPTEDSTATS_DATA", str(data_folder))
    small, full = json.loads(done("casestudy", "--trees", 3, "--json").stdout)["rounds"]
    assert small["exact"]
    assert full["exact"]
    assert (small["blocks"], small["shard_results"]) == (18, 36)
    assert (full["blocks"], full["shard_results"]) == (1, 2)
    assert small["auc"] == full["auc"] > 0.9
    assert small["table_bytes"] == pytest.approx(18 * full["table_bytes"], rel=0.01)
