"""``demo integers``: exact under both schemes, in little time, and its clinic and worker never hold the secret key."""

from __future__ import annotations

import subprocess
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_helpers import Run, the_error

import encryptedstats as es
from encryptedstats.cli import _stage, demo_parties
from encryptedstats.cli import demo_integers as demo
from encryptedstats.crypto.keys import OWNER_KIND
from encryptedstats.storage import container


def assert_exact(result: Any) -> None:
    assert result.exit_code == 0, result.output
    assert result.stdout.count("230 554 878") == 2
    assert result.stdout.count(" exact") == 1 + len(demo.FORMULAS) + result.stdout.count("exact up to")
    assert "DIFFERS" not in result.stdout


def test_it_runs_and_is_exact(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    started = time.perf_counter()
    assert_exact(run("demo", "integers", "--scheme", "bfv"))
    assert time.perf_counter() - started < 20
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> demo.Story:
    """Played once, with BGV: starting the parties is what takes the time."""
    return demo.play(tmp_path_factory.mktemp("story"))


def test_the_story_is_told_and_is_exact(run: Run, story: demo.Story, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "play", lambda *_: story)
    assert_exact(run("demo", "integers"))


@pytest.mark.parametrize("party", ["clinic", "worker"])
def test_who_computes_holds_no_secret_key(story: demo.Story, party: str) -> None:
    folder = story.folders[party]
    secret = container.read(story.folders["owner"] / demo.SECRET_KEY).section("secret_key")
    # Not by name, not by kind, not by content: the middle of the key is in none of its files.
    fragment = secret[len(secret) // 2 :][:64]
    assert any(fragment)
    for path in folder.iterdir():
        data = path.read_bytes()
        assert fragment not in data
        if path.suffix == ".csv":
            continue
        file = container.from_bytes(data)
        assert file.kind != OWNER_KIND
        assert "secret_key" not in file.sections
        with pytest.raises(es.FileFormatError):
            es.Owner.load(path)


def test_the_worker_has_what_it_needs_and_no_more(story: demo.Story) -> None:
    inputs = {"public.keys", "x.enc", "y.enc", "z.enc", "treated.enc", "pressure.enc"}
    results = {f"{name}.result" for name in demo.FORMULAS}
    assert {path.name for path in story.folders["worker"].iterdir()} == inputs | results
    assert set(story.worker_seconds) == set(demo.FORMULAS) == set(demo.expected())


def test_the_worker_is_another_process_that_is_told_its_folder_only(
    story: demo.Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, Any] = {}

    def record(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        seen.update(options, command=command)
        return subprocess.CompletedProcess(command, 0, stdout="{}", stderr="")

    monkeypatch.setattr(subprocess, "run", record)
    demo.run_party("worker", story.folders["worker"])
    assert seen["command"][1:] == ["-m", demo_parties.__name__, "worker", str(story.folders["worker"])]
    assert not {"input", "env", "stdin"} & set(seen)


def test_a_result_that_differs_is_exit_code_1(run: Run, story: demo.Story, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = {**story.results, "treated_count": 0, "appendix": np.array([230, 554, 879])}
    monkeypatch.setattr(demo, "play", lambda *_: replace(story, results=wrong))
    result = run("demo", "integers")
    assert result.exit_code == 1
    assert result.stdout.count("DIFFERS") == 2
    assert "Every result is exact" not in result.stdout


def test_a_party_that_fails_is_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        pass

    monkeypatch.setattr(demo, "_send", refuse)  # so that the clinic finds no keys
    error = the_error(run("demo", "integers"))
    assert "the clinic process failed" in error
    assert "public.keys" in error


def test_a_party_that_never_ends_is_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_stage, "TIMEOUT", 0.05)
    assert "did not finish" in the_error(run("demo", "integers"))
