"""Results survive everything: whole files, nothing computed twice, other settings are noticed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from reproduction.evaluation import Settings, reproduce
from reproduction.evaluation.results import ResultFolder, read_part
from reproduction.evaluation.samples import stratified_test_rows


def test_rows_are_added_once(tmp_path: Path) -> None:
    file = ResultFolder(tmp_path, "part", {"seed": 1}).file("iono", ("split", "method"))
    file.add([{"split": 0, "method": "CRF", "auc": 0.5}])
    file.add(
        [{"split": 0, "method": "CRF", "auc": 0.9}, {"split": 1, "method": "CRF", "auc": 0.25}]
    )
    again = ResultFolder(tmp_path, "part", {"seed": 1}).file("iono", ("split", "method"))
    assert again.has(0, "CRF")
    assert not again.has(2, "CRF")
    assert read_part(tmp_path, "part")["iono"]["auc"].tolist() == [0.5, 0.25]
    assert [
        path.name for path in (tmp_path / "results" / "part").iterdir() if path.name.startswith(".")
    ] == []


def test_two_runs_at_once_lose_nothing(tmp_path: Path) -> None:
    one, other = (ResultFolder(tmp_path, "part", {}).file("iono", ("split",)) for _ in range(2))
    one.add([{"split": 0, "auc": 0.5}])
    other.add([{"split": 1, "auc": 0.6}])
    one.add([{"split": 2, "auc": 0.7}])
    assert read_part(tmp_path, "part")["iono"]["split"].tolist() == [0, 1, 2]


def test_other_settings_are_noticed(tmp_path: Path) -> None:
    ResultFolder(tmp_path, "part", {"seed": 1, "depths": (1, 2)})
    ResultFolder(tmp_path, "part", {"seed": 1, "depths": (1, 2)})
    with pytest.raises(ValueError, match=r"seed was 1 and is 2.*another --output, or delete"):
        ResultFolder(tmp_path, "part", {"seed": 2, "depths": (1, 2)})


def test_splits_are_stratified_and_repeatable() -> None:
    classes = np.array([0] * 80 + [1] * 20)
    test = stratified_test_rows(classes, 5)
    assert len(test) == len(set(test.tolist())) == 20
    assert classes[test].sum() == 4
    assert np.array_equal(test, stratified_test_rows(classes, 5))
    assert not np.array_equal(test, stratified_test_rows(classes, 6))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"splits": 0}, "at least 1"),
        ({"names": ()}, "no data set is left"),
        ({"names": ("nobody",)}, "nobody"),
    ],
)
def test_settings_that_cannot_be(change: dict[str, object], message: str) -> None:
    with pytest.raises((ValueError, KeyError), match=message):
        Settings(**change)  # type: ignore[arg-type]  # wrong on purpose


def test_unknown_parts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no part 'figures': choose from datasets"):
        reproduce(Settings(tmp_path), ["figures"])


def test_without_matplotlib_nothing_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install 'encryptedstats\[plots\]'"):
        reproduce(Settings(tmp_path / "new"))
    assert not (tmp_path / "new").exists()


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = ResultFolder(tmp_path, "part", {}).file("x", ("split",))
    file.add([{"split": 0, "note": 'a "quoted", word', "auc": 1 / 3}])
    frame = read_part(tmp_path, "part")["x"]
    assert isinstance(frame, pd.DataFrame)
    assert frame["note"].tolist() == ['a "quoted", word']
    assert frame["auc"].tolist() == [0.333333]
