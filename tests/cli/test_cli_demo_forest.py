"""``demo forest``, with few trees: exact, with a worker that has the table and nothing else, and a picture."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cli_helpers import Run, names, the_error

from encryptedstats.cli import _stage
from encryptedstats.cli import demo_forest as demo
from encryptedstats.crypto.keys import OWNER_KIND
from encryptedstats.storage import container

TREES = 3


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> demo.Story:
    """Played once."""
    return demo.play(tmp_path_factory.mktemp("story"), trees=TREES)


def test_it_runs_and_is_exact(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.chdir(tmp_path)
    result = run("demo", "--trees", TREES)
    assert result.exit_code == 0, result.output
    for words in (
        "455 patients: 170 malignant, 285 benign (114 more",
        f"encryptedstats fit patients.enc -o forest.enc --model forest --trees {TREES} --depth 3",
        "exact: all 44 counts",
        f"encryptedstats fit train.enc -o closed.enc --model forest --trees {TREES} --depth 2",
        "encryptedstats predict closed.enc new.enc -o votes.enc",
        "pack and expand",
        "exact: all 228 vote counts are those of the same forest in the clear",
        "1,152 cores in 36 machines",
        "96 min",
        "13.8 GB",
        "868 MB",
        "US$ 23.86",
        "relatives and not the same",
        "v0 to v29: continuous, 5 bins",
        "Every result is exact",
    ):
        assert words in " ".join(result.stdout.replace("│", " ").split())  # however it is folded
    assert names(tmp_path / "temporary") == []
    assert (tmp_path / "out" / "demo" / "forest.png").read_bytes().startswith(b"\x89PNG")


def test_the_worker_has_the_table_and_its_forest(story: demo.Story) -> None:
    work, home = story.folders["worker"], story.folders["owner"]
    assert names(work) == ["forest.enc", "patients.enc"]
    secret = container.read(home / demo.SECRET_KEY).section("secret_key")
    fragment = secret[len(secret) // 2 :][:64]
    assert any(fragment)
    for path in (path for path in work.rglob("*") if path.is_file()):
        data = path.read_bytes()
        assert not [word for word in (fragment, b"radius", b"malignant", b"diagnosis") if word in data]
        assert container.from_bytes(data).kind != OWNER_KIND


def test_the_worker_is_another_process_in_its_folder(story: demo.Story, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    def record(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        seen.update(options, command=command)
        return subprocess.CompletedProcess(command, 0, stdout="{}", stderr="")

    monkeypatch.setattr(subprocess, "run", record)
    demo.run_worker(story.command, story.folders["worker"])
    assert seen["command"] == [sys.executable, "-m", "encryptedstats.cli", *story.command, "--json"]
    assert seen["cwd"] == story.folders["worker"]
    assert not {"input", "env", "stdin"} & set(seen)
    assert not [word for word in story.command if "owner" in word or "key" in word]


def test_the_forests_agree(story: demo.Story) -> None:
    assert story.exact
    assert story.auc("opened") == story.auc("clear") > 0.8
    assert story.auc("plain") > 0.9


def test_a_forest_that_differs_is_exit_code_1(
    run: Run, story: demo.Story, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = demo.es.CompletelyRandomForest(n_trees=TREES, depth=3, random_state=8)
    wrong = {**story.forests, "clear": other.fit(story.schema.table(story.train))}
    monkeypatch.setattr(demo, "play", lambda *_: replace(story, forests=wrong))
    monkeypatch.chdir(tmp_path)
    result = run("demo", "forest")
    assert result.exit_code == 1
    assert "DIFFERS" in result.stdout
    assert "this must not happen" in result.stdout
    assert "Every result is exact" not in result.stdout


def test_the_forest_that_stays_closed(story: demo.Story) -> None:
    closed, folder = story.closed, story.folders["worker"].parent / "closed"
    assert closed.exact
    assert closed.votes.shape == (114, 2)
    assert names(folder / "worker") == ["closed.enc", "new.enc", "train.enc", "votes.enc"]
    assert names(folder / "owner") == ["votes.enc"]  # the owner never gets the forest
    for path in (path for path in (folder / "worker").rglob("*") if path.is_file()):
        data = path.read_bytes()
        assert container.from_bytes(data).kind != OWNER_KIND
        assert not [word for word in (b"radius", b"malignant", b"diagnosis") if word in data]


def test_votes_that_differ_are_exit_code_1(
    run: Run, story: demo.Story, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = replace(story.closed, clear=story.closed.clear + 1)
    monkeypatch.setattr(demo, "play", lambda *_: replace(story, closed=wrong))
    monkeypatch.chdir(tmp_path)
    result = run("demo", "forest")
    assert result.exit_code == 1
    assert "DIFFERS from the votes in the clear" in result.stdout


def test_without_matplotlib_it_says_so(
    run: Run, story: demo.Story, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "play", lambda *_: story)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.chdir(tmp_path)
    result = run("demo")
    assert result.exit_code == 0
    assert "pip install 'encryptedstats[plots]'" in result.stdout
    assert names(tmp_path) == []


def test_a_worker_that_fails_is_one_line(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "TABLE", "no.enc")
    monkeypatch.setattr(demo.shutil, "copytree", lambda *_: None)  # so that the worker finds no table
    error = the_error(run("demo", "--trees", 1))
    assert "the worker failed" in error
    assert "no encrypted table" in error


def test_a_worker_that_never_ends_is_one_line(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(_stage, "TIMEOUT", 0.05)
    assert "did not finish" in the_error(run("demo", "--trees", 1))
