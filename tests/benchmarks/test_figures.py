"""The figures in the documents are those of the result files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import figures


def test_pages_show_what_the_files_say() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.figures", "--check"],
        cwd=figures.ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_page_that_differs_is_written_anew() -> None:
    page = "before\n<!-- figures scan -->\n| old | 1 |\n<!-- end of figures -->\nafter"
    written = figures.write_blocks(page)
    assert "| old | 1 |" not in written
    assert figures.make_scan() in written
    assert figures.write_blocks(written) == written


def test_files_of_older_versions_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in {name for _, files in figures.BLOCKS.values() for name in files}:
        (tmp_path / f"{name}.json").write_text(json.dumps({"version": figures.__version__}))
    monkeypatch.setattr(figures, "RESULTS", tmp_path)
    assert figures.old_files() == []
    (tmp_path / "scan.json").write_text(json.dumps({"version": "0.1.9"}))
    assert figures.old_files() == ["scan"]
    (tmp_path / "gpu.json").write_text(json.dumps({}))  # before files named their version
    assert set(figures.old_files()) == {"scan", "gpu"}
