"""The notebooks are run, cell after cell, in one namespace; and they are stored without outputs."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def cells_of(notebook: dict[str, Any]) -> list[tuple[int, str]]:
    """Number and source of every cell with code."""
    return [
        (number, "".join(cell["source"]))
        for number, cell in enumerate(notebook["cells"])
        if cell["cell_type"] == "code"
    ]


def run_notebook(notebook: dict[str, Any], name: str) -> None:
    """Run all cells in order; a traceback names the cell."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    for number, source in cells_of(notebook):
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(source, f"{name}, cell {number}", "exec"), namespace)


def test_the_notebooks_are_there() -> None:
    assert {path.stem for path in NOTEBOOKS} >= {
        "first_steps",
        "hospital_forest",
        "two_sites",
        "three_hospitals",
        "hospital_registry",
    }


#: What a tutorial or guide (docs/guides/linkage.md) and tests of studies do, with keys of several
#: seconds.
SLOW = {"hospital_registry", "three_hospitals", "two_sites"}


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=[pytest.mark.slow] if path.stem in SLOW else [], id=path.stem)
        for path in NOTEBOOKS
    ],
)
def test_notebooks_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_notebook(json.loads(path.read_text(encoding="utf-8")), path.name)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_whole_and_without_outputs(path: Path) -> None:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["metadata"]["kernelspec"]["language"]) == (4, "python")
    assert notebook["cells"][0]["cell_type"] == "markdown"
    assert "".join(notebook["cells"][0]["source"]).startswith("# ")
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(set(ids)) == len(ids)
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None)


def test_the_runner_runs() -> None:
    def notebook(*sources: str) -> dict[str, Any]:
        return {"cells": [{"cell_type": "code", "source": [source]} for source in sources]}

    run_notebook(notebook("x = 1", "assert x == 1"), "good")
    with pytest.raises(AssertionError):
        run_notebook(notebook("x = 1", "assert x == 2"), "bad")
