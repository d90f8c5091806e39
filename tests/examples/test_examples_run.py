"""The examples: exact, and with a worker that has encrypted files and nothing else."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import subprocess
import sys
from itertools import combinations
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from encryptedstats.crypto.keyfiles import OWNER_KIND
from encryptedstats.storage import container
from texts import text_of

FOLDER = Path(__file__).parents[2] / "examples"
TREES = 3


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(name: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """As a user does."""
    command = [sys.executable, FOLDER / f"{name}.py", *arguments]
    return subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=600, check=False
    )


@pytest.fixture(scope="module")
def forest(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder in which it was played, once, and what was told; the owner is this process, the
    worker one of its own.
    """
    place = tmp_path_factory.mktemp("forest")
    options = ("--trees", TREES, "--folder", place, "--picture", place / "forest.png")
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert load("forest").main([str(option) for option in options]) == 0
    return place, printed.getvalue()


def test_all_of_them_are_tried_here() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} == {
        "forest",
        "frequent_sets",
        "class_histograms",
        "integers",
        "numpy_device",  # tests/circuits/test_devices.py runs it
    }


def test_the_forest_is_told_and_exact(forest: tuple[Path, str]) -> None:
    place, printed = forest
    for words in (
        "455 patients: 170 malignant, 285 benign",
        "sees v0 to v29, 5 bins each; 2 classes",
        "all 48 counts are exactly those of the fit in the clear",
        f"Picture: {place / 'forest.png'}",
        "docs/tutorials/first_model.md",
    ):
        assert words in printed
    assert "DIFFERS" not in printed
    assert (place / "forest.png").read_bytes().startswith(b"\x89PNG")


def test_the_story_fits_on_a_screen(forest: tuple[Path, str]) -> None:
    lines = forest[1].replace(str(forest[0]), "").splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 100


def test_the_worker_of_the_forest_never_held_anything_open(forest: tuple[Path, str]) -> None:
    home, work = forest[0] / "owner", forest[0] / "worker"
    assert {path.name for path in home.iterdir()} == {"secret.key"}
    holds_nothing_open(work, home / "secret.key", b"radius", b"malignant", b"diagnosis")


def holds_nothing_open(folder: Path, key: Path, *words: bytes) -> None:
    """Not by kind, and not by content: the middle of the secret key is in none of its files."""
    secret = container.read(key).section("secret_key")
    fragment = secret[len(secret) // 2 :][:64]
    assert any(fragment)
    files = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".csv"]
    assert files
    for path in files:
        data = path.read_bytes()
        assert container.from_bytes(data).kind != OWNER_KIND
        assert fragment not in data
        assert not [word for word in words if word in text_of(data)]


@pytest.mark.parametrize(("name", "words"), [("forest", ["--folder"]), ("integers", ["owner"])])
def test_a_folder_is_played_in_once(
    name: str, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "owner").mkdir()
    with pytest.raises(SystemExit):
        load(name).main([*words, str(tmp_path)])
    assert "was played in before: name another folder" in capsys.readouterr().err


def test_a_worker_that_fails_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"the worker failed: .*patients\.enc"):
        load("forest").worker(tmp_path, TREES)


def test_a_result_that_differs_is_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    example = load("forest")
    assert "NOT" in example.verdict(False, 1_000)
    monkeypatch.setattr(example, "play", lambda *_: False)
    assert example.main([]) == 1
    assert "Every count is exact" not in capsys.readouterr().out


def test_integers(tmp_path: Path) -> None:
    done = run("integers", "owner", tmp_path, "--scheme", "bfv")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("[230 554 878]") == 2
    assert done.stdout.count(" exact") == len(
        load("integers").formulas(*map(np.array, ([2], [[1]], [[1]], [1], [1])))
    )
    assert "treated minus control -23.3" in done.stdout
    for party in ("clinic", "worker"):
        holds_nothing_open(tmp_path / party, tmp_path / "owner" / "secret.key")
    assert {path.suffix for path in (tmp_path / "worker").iterdir()} == {".keys", ".enc", ".result"}


def test_a_party_that_fails_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"the clinic failed: .*public\.keys"):
        load("integers").run("clinic", tmp_path)


def test_frequent_sets_are_those_of_the_clear_rows(capsys: pytest.CaptureFixture[str]) -> None:
    example = load("frequent_sets")
    found = example.main()
    assert "round 2 of at most 3" in capsys.readouterr().out
    people = example.make_people()
    expected = {}
    for size in (1, 2, 3):
        for names in combinations(["smoker", "age", "town"], size):
            shares = people.groupby(list(names)).size() / len(people)
            for levels, share in shares[shares >= 0.2].items():
                parts = [levels] if isinstance(levels, str) else levels
                expected[" and ".join(parts)] = float(share)
    assert found == expected
    assert {len(name.split(" and ")) for name in found} >= {1, 2}


def test_histograms_predict_while_encrypted() -> None:
    assert load("class_histograms").main()
