"""The 19 sets against the index and the paper's table, from a local folder."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import numpy as np
import pytest

from encryptedstats.errors import EncryptedStatsError, FileFormatError
from reproduction import datasets
from reproduction.datasets import DatasetUnavailableError, UnknownDatasetError
from reproduction.datasets._build_index import INDEX, index_text
from reproduction.datasets._files import cache_folder

NAMES = datasets.names()


def test_names_are_those_of_the_papers_table_in_its_order() -> None:
    assert " ".join(NAMES) == (
        "infl neph adult bank blood bcw_d bcw_o bcw_p chess haber heart iono magic mammo monks3 "
        "musk1 musk2 ozone spam"
    )


def test_the_packaged_index_agrees_with_the_one_beside_the_data(data_folder: Path) -> None:
    tomllib = pytest.importorskip("tomllib", reason="Python 3.11+")
    tables = tomllib.loads((data_folder / "datasets.toml").read_text(encoding="utf-8"))
    assert INDEX.read_text(encoding="utf-8") == index_text(tables)
    for name, table in tables.items():
        facts = datasets.info(name)
        assert facts.file == f"{name}.csv.gz"
        assert (facts.sha256, facts.csv_sha256) == (table["sha256"], table["csv_sha256"])
        assert list(facts.kinds.items()) == list(zip(table["columns"], table["kinds"], strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_all_rows_are_obs1_and_vars1_of_the_paper(name: str, data_folder: Path) -> None:
    facts = datasets.info(name)
    loaded = datasets.load(name, data_home=data_folder, complete=False, download=False)
    assert (
        loaded.frame.shape
        == (facts.n_rows, facts.n_predictors)
        == (facts.paper_obs1, facts.paper_vars1)
    )
    assert tuple(loaded.frame.columns) == facts.columns == tuple(loaded.kinds)
    assert int(loaded.target.sum()) == facts.n_positive
    assert int((loaded.target == 0).sum()) == facts.n_negative == facts.n_rows - facts.n_positive
    assert int(loaded.frame.notna().all(axis=1).sum()) == facts.n_rows_complete
    assert (facts.n_vars2, facts.n_vars3) == (facts.paper_vars2, facts.paper_vars3)
    levels = [
        len(column.cat.categories) for _, column in loaded.frame.select_dtypes("category").items()
    ]
    cut = facts.n_predictors - len(levels)
    assert (cut + sum(levels), 5 * cut + sum(levels)) == (facts.paper_vars2, facts.paper_vars3)


@pytest.mark.parametrize("name", NAMES)
def test_complete_rows_are_obs2_of_the_paper(name: str, data_folder: Path) -> None:
    facts = datasets.info(name)
    every = datasets.load(name, data_home=data_folder, complete=False)
    loaded = datasets.load(name, data_home=data_folder)
    assert len(loaded.frame) == len(loaded.target) == facts.paper_obs2
    also_dropped = list(facts.rows_missing_only_in_dropped_columns)
    assert facts.n_rows_complete - len(also_dropped) == facts.paper_obs2
    assert loaded.target.sum() + every.target.iloc[also_dropped].sum() == facts.n_positive_complete
    assert not loaded.frame.isna().to_numpy().any()
    expected = every.table_frame().drop(index=also_dropped).dropna().reset_index(drop=True)
    # Not pandas' assert_frame_equal, which takes seconds on large categorical columns.
    assert loaded.table_frame().equals(expected.astype(loaded.table_frame().dtypes.to_dict()))
    for column, kind in loaded.kinds.items():
        dtype = loaded.frame[column].dtype
        assert (
            str(dtype)
            == {"continuous": "float64", "ordinal": "int64", "categorical": "category"}[kind]
        )


def test_a_dataset_says_what_it_is(data_folder: Path) -> None:
    loaded = datasets.load("bcw_o", data_home=data_folder)
    assert (
        repr(loaded)
        == "<Dataset bcw_o: Breast Cancer Wisconsin (Original); 683 rows, 9 predictors>"
    )
    assert loaded.positive_class == "malignant (class 4)"
    assert loaded.citation.endswith(
        "UCI Machine Learning Repository. https://doi.org/10.24432/C5HP4Z"
    )
    assert loaded.doi == "10.24432/C5HP4Z"
    assert loaded.licence.startswith("CC BY 4.0")
    assert "ID column dropped" in loaded.note
    assert datasets.info("infl").url == "https://archive.ics.uci.edu/dataset/184"
    assert loaded.target.name == "target"
    assert loaded.target.dtype == np.int64
    assert loaded.table_frame().columns.tolist() == [*loaded.frame.columns, "target"]
    assert "target" not in loaded.frame
    with pytest.raises(AttributeError):
        loaded.name = "other"  # type: ignore[misc]  # the point of the test


def test_values_levels_and_missing_values(data_folder: Path) -> None:
    heart = datasets.load("heart", data_home=data_folder, complete=False).frame
    assert heart["age"].iloc[0] == 63.0
    assert heart["thal"].cat.categories.tolist() == ["3.0", "6.0", "7.0"]
    assert heart["ca"].isna().sum() == 4
    haber = datasets.load("haber", data_home=data_folder).frame
    assert haber["operation_year"].cat.categories.tolist() == [str(year) for year in range(58, 70)]
    scores = datasets.load("bcw_o", data_home=data_folder, complete=False).frame
    assert scores["bare_nuclei"].dtype == np.float64  # has missing values
    assert scores["mitoses"].dtype == np.int64


def test_levels_without_a_complete_row_are_kept(data_folder: Path) -> None:
    workclass = datasets.load("adult", data_home=data_folder).frame["workclass"]
    assert not (workclass == "Never-worked").any()
    assert "Never-worked" in workclass.cat.categories


def test_a_loaded_set_can_be_changed_without_changing_the_next(data_folder: Path) -> None:
    first = datasets.load("haber", data_home=data_folder)
    first.frame["age"] = 0.0
    first.kinds.clear()
    datasets.info("haber").kinds.clear()  # type: ignore[attr-defined]  # a Mapping, deliberately abused
    again = datasets.load("haber", data_home=data_folder)
    assert again.frame["age"].iloc[0] == 30.0
    assert len(again.kinds) == 3
    table = again.table_frame()
    table["age"] = 1.0
    assert again.frame["age"].iloc[0] == 30.0


@pytest.mark.parametrize(
    ("given", "meant"),
    [("bcwo", "'bcw_o'"), ("BCW_D", "'bcw_d'"), ("haberman", "'haber'"), ("musk", "'musk1'")],
)
def test_an_unknown_name_suggests_close_ones(given: str, meant: str) -> None:
    with pytest.raises(
        UnknownDatasetError, match=rf"unknown data set '{given}'\. Did you mean .*{meant}.*\?"
    ):
        datasets.load(given)


def test_an_unknown_name_far_from_all_lists_them() -> None:
    with pytest.raises(
        ValueError, match=r"unknown data set 'qqqqqq'\. Available: infl, neph, .*, spam\."
    ):
        datasets.info("qqqqqq")
    with pytest.raises(EncryptedStatsError, match=r"unknown data set \['bcw_o'\]\."):
        datasets.info(["bcw_o"])  # type: ignore[arg-type]  # the point of the test


def test_missing_data_without_download_says_what_to_set(tmp_path: Path, cache: Path) -> None:
    with pytest.raises(DatasetUnavailableError) as caught:
        datasets.load("bcw_o", data_home=tmp_path / "nowhere", download=False)
    message = str(caught.value)
    assert (
        f"no bcw_o.csv.gz in {tmp_path / 'nowhere'} (no such folder), {cache} (no such folder)"
        in message
    )
    assert "Set ENCRYPTEDSTATS_DATA to a folder that holds it" in message
    assert isinstance(caught.value, OSError)


def test_the_folder_comes_from_the_argument_then_the_environment_then_the_cache(
    data_folder: Path, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENCRYPTEDSTATS_DATA", str(data_folder))
    assert len(datasets.load("haber", download=False).frame) == 306
    # An argument replaces the environment's folder; what it lacks is in the cache only.
    with pytest.raises(DatasetUnavailableError, match=re.escape(str(tmp_path))):
        datasets.load("haber", data_home=tmp_path, download=False)
    cache.mkdir(parents=True)
    (cache / "haber.csv.gz").write_bytes((data_folder / "haber.csv.gz").read_bytes())
    assert len(datasets.load("haber", data_home=str(tmp_path), download=False).frame) == 306


def test_a_recompressed_file_is_accepted(data_folder: Path, tmp_path: Path) -> None:
    csv = gzip.decompress((data_folder / "haber.csv.gz").read_bytes())
    (tmp_path / "haber.csv.gz").write_bytes(gzip.compress(csv, compresslevel=1))
    assert len(datasets.load("haber", data_home=tmp_path, download=False).frame) == 306


def _changed_value(packed: bytes) -> bytes:
    csv = gzip.decompress(packed)
    return gzip.compress(csv.replace(b"\n30,64,1,0\n", b"\n31,64,1,0\n", 1))


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        (_changed_value, r"[0-9a-f]{64} and [0-9a-f]{64}"),
        (lambda packed: packed[:-20], "[0-9a-f]{64} and no CSV that unpacks"),
        (lambda packed: b"", "[0-9a-f]{64} and [0-9a-f]{64}"),
        (lambda packed: b"age,operation_year\n", "[0-9a-f]{64} and no CSV that unpacks"),
        (lambda packed: gzip.compress(bytes(65 * 2**20)), "[0-9a-f]{64} and no CSV that unpacks"),
    ],
    ids=["altered", "truncated", "empty", "not gzip", "bomb"],
)
@pytest.mark.parametrize("place", ["data_home", "cache"])
def test_a_file_with_another_checksum_is_refused_by_name(
    damage, found: str, place: str, data_folder: Path, tmp_path: Path, cache: Path
) -> None:
    folder = tmp_path if place == "data_home" else cache
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "haber.csv.gz"
    path.write_bytes(damage((data_folder / "haber.csv.gz").read_bytes()))
    facts = datasets.info("haber")
    with pytest.raises(
        FileFormatError, match=rf"data set 'haber': {re.escape(str(path))} is not"
    ) as caught:
        datasets.load("haber", data_home=tmp_path)
    expected = f"Expected SHA-256 {facts.sha256}, or {facts.csv_sha256} of the CSV in it; found "
    assert re.search(re.escape(expected) + found, str(caught.value))


def test_another_sets_file_is_refused(data_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "infl.csv.gz").write_bytes((data_folder / "neph.csv.gz").read_bytes())
    with pytest.raises(FileFormatError, match=r"infl\.csv\.gz is not the file of the index"):
        datasets.load("infl", data_home=tmp_path)


def test_the_cache_folder_follows_xdg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_folder() == tmp_path / "cache" / "datasets"
    monkeypatch.setenv("ENCRYPTEDSTATS_CACHE", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "encryptedstats" / "datasets"
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_folder() == tmp_path / ".cache" / "encryptedstats" / "datasets"
