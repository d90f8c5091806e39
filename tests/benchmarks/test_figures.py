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
    page = "before\n<!-- figures plain -->\n| old | 1 |\n<!-- end of figures -->\nafter"
    written = figures.write_blocks(page)
    assert "| old | 1 |" not in written
    assert figures.make_block("plain") in written
    assert figures.write_blocks(written) == written


def test_what_was_not_measured_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "RESULTS", tmp_path)
    assert all("Not measured" in figures.make_block(name) for name in figures.BLOCKS)


def test_files_of_older_versions_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "RESULTS", tmp_path)
    (tmp_path / "other.json").write_text(json.dumps({"version": figures.__version__}))
    assert figures.find_old_files() == []
    (tmp_path / "other.json").write_text(json.dumps({"version": "0.1.9"}))
    (tmp_path / "more.json").write_text(json.dumps({}))
    assert figures.find_old_files() == ["more.json", "other.json"]
    assert figures.main(["--check"]) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A fit takes 1.2 s.", ["1.2 s"]),
        ("It is 3 times as fast, at 5 ms a row.", ["3 times as fast", "5 ms"]),
        ("```text\n1.2 s\n```\n", []),
        ("<!-- figures plain -->\n1.2 s\n<!-- end of figures -->\n", []),
        ("8 rows and 64 MB, for 30 seconds", []),
    ],
)
def test_times_by_hand_are_found(text: str, expected: list[str]) -> None:
    assert figures.find_times(text) == expected
