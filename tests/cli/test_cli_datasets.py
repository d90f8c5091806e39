"""``datasets``: listed and described without any data; written where there is a folder of them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pandas as pd
import pytest
from cli_helpers import Run, disk_full, done, names, the_error

import encryptedstats as es
from encryptedstats.storage import files as storage_files

_FOLDER = os.environ.get("ENCRYPTEDSTATS_DATA", "")


@pytest.fixture
def data_folder(monkeypatch: pytest.MonkeyPatch) -> Path:
    if not _FOLDER or not Path(_FOLDER).is_dir():
        pytest.skip("the data sets are not here: set ENCRYPTEDSTATS_DATA to the folder that holds them")
    monkeypatch.delenv("ENCRYPTEDSTATS_DATA")
    return Path(_FOLDER)


def test_the_list() -> None:
    shown = done("datasets").stdout
    assert all(name in shown for name in es.datasets.names())
    facts = json.loads(done("datasets", "--json").stdout)["datasets"]
    assert [entry["name"] for entry in facts] == es.datasets.names()
    assert facts[6]["n_rows_complete"] == 683


def test_one_of_them() -> None:
    shown = done("datasets", "bcw_o").stdout
    for words in ("699, 683 without missing values", "9 predictors: 9 ordinal", "malignant", "doi.org", "CC BY"):
        assert words in shown
    assert json.loads(done("datasets", "musk1", "--json").stdout)["n_predictors"] == 166
    assert "(166 in all)" in done("datasets", "musk1").stdout


def test_it_is_written(data_folder: Path, tmp_path: Path) -> None:
    files = ("-o", tmp_path / "b.csv", "--schema", tmp_path / "s.json", "--data-home", data_folder)
    shown = done("datasets", "bcw_o", *files).stdout
    assert "683 rows of CSV" in shown
    data = es.datasets.load("bcw_o", data_home=data_folder)
    frame = pd.read_csv(tmp_path / "b.csv")
    assert frame.to_numpy().tolist() == data.table_frame().to_numpy().tolist()
    schema = es.Schema.load(tmp_path / "s.json")
    assert {v.name: v.kind for v in schema.variables} == data.kinds
    assert len(schema.table(frame)) == 683


def test_all_rows(data_folder: Path, tmp_path: Path) -> None:
    files = ("-o", tmp_path / "b.csv", "--data-home", data_folder, "--all-rows", "--json")
    assert json.loads(done("datasets", "bcw_o", *files).stdout)["written"]["rows"] == 699
    assert len(pd.read_csv(tmp_path / "b.csv")) == 699


def test_what_cannot_be(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ENCRYPTEDSTATS_DATA", raising=False)
    assert "Did you mean 'bcw_o'" in the_error(run("datasets", "bcw_oo"))
    assert run("datasets", "-o", tmp_path / "x.csv").exit_code == 2
    error = the_error(run("datasets", "bcw_o", "-o", tmp_path / "x.csv"))
    assert "cannot download" in error
    assert "--data-home" in error
    (tmp_path / "s.json").write_text("old")
    assert "--force" in the_error(run("datasets", "bcw_o", "--schema", tmp_path / "s.json"))
    assert names(tmp_path) == ["s.json"]


def test_a_full_disk(run: Run, data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_files.os, "fsync", disk_full)
    error = the_error(run("datasets", "infl", "-o", tmp_path / "x.csv", "--data-home", data_folder))
    assert "x.csv: no space left on device" in error
    assert names(tmp_path) == []
