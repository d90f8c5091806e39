"""The runner of the tests: every file is run once, and what fails or takes too much is told."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import run_suite
from run_suite import Outcome, Part, split

FILES = {
    "test_root.py": "def test_root(): pass\n",
    "a/test_good.py": "def test_good(): pass\n",
    "b/test_bad.py": "def test_bad(): assert 1 == 2\n",
}


def test_every_file_is_in_one_part() -> None:
    found = Counter(file for part in split(run_suite.TESTS) for file in part.files)
    assert found == Counter(run_suite.TESTS.rglob("test_*.py"))
    assert len({part.name for part in split(run_suite.TESTS)}) == len(split(run_suite.TESTS))


@pytest.mark.parametrize(
    ("code", "peak_mb", "words"),
    [
        (0, 900, []),
        (5, 900, []),
        (1, 900, ["failed"]),
        (-9, 900, ["-9"]),
        (0, 1001, ["1001 MB"]),
        (2, 1001, ["failed", "1001 MB"]),
    ],
)
def test_what_is_wrong_with_a_part(code: int, peak_mb: int, words: list[str]) -> None:
    problems = list(Outcome(Part("a", ()), code, "", 1.0, peak_mb).problems(1000))
    assert len(problems) == len(words)
    assert all(word in problem for word, problem in zip(words, problems, strict=True))


def test_a_part_that_fails_or_takes_too_much_fails_the_run(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    arguments = ["--tests", str(tmp_path)]
    assert run_suite.main(arguments) == 1
    said = capfd.readouterr().out
    assert "1 failed, 2 passed" in said
    assert "assert 1 == 2" in said
    assert run_suite.main([*arguments, "--rerun"]) == 1
    assert "UNSTABLE" not in capfd.readouterr().out
    (tmp_path / "b/test_bad.py").unlink()
    assert run_suite.main(arguments) == 0
    assert run_suite.main([*arguments, "--limit", "5"]) == 1
    assert "more than 5 MB" in capfd.readouterr().out


UNSTABLE = """import pathlib, pytest
@pytest.mark.parametrize("name", ["a - b [c]", "d"])
def test_luck(name):
    counter = pathlib.Path(__file__).with_name("runs")
    counter.write_text(counter.read_text() + "x" if counter.exists() else "x")
    assert name == "d" or len(counter.read_text()) > 1
"""


def test_a_test_that_passes_when_it_is_run_again_is_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "test_luck.py").write_text(UNSTABLE)
    arguments = ["--tests", str(tmp_path)]
    assert run_suite.main(arguments) == 1
    (tmp_path / "runs").unlink()
    capfd.readouterr()
    assert run_suite.main([*arguments, "--rerun"]) == 0
    said = capfd.readouterr().out
    assert "UNSTABLE" in said
    assert "a - b [c]" in said
    assert (tmp_path / "runs").read_text() == "xxx"  # the other one was not run again


def test_many_failures_and_broken_files_are_not_run_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--tests", str(tmp_path), "--rerun"]
    luck = UNSTABLE.replace('"d"]', '"d", "e", "f", "g"]').replace("len(", "10 > len(")
    (tmp_path / "test_luck.py").write_text(luck.replace("> 1", "> 5"))
    assert run_suite.main(arguments) == 1
    (tmp_path / "test_luck.py").write_text(UNSTABLE)
    (tmp_path / "runs").unlink()
    assert run_suite.main([*arguments, "-p", "no:cacheprovider"]) == 1  # nobody knows which failed
    (tmp_path / "test_luck.py").write_text("import nothing_of_this_name\n")
    assert run_suite.main(arguments) == 1
    assert "again" not in capfd.readouterr().out
