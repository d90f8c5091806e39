"""Completion in a shell: installed by the program itself, and tried in a real bash."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cli_helpers import _RUNNER, Hospital

from encryptedstats.cli._app import app

PROGRAM = Path(sys.executable).with_name("encryptedstats")
pytestmark = [
    pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here"),
    pytest.mark.skipif(
        not PROGRAM.is_file(), reason="the program is not installed beside this Python"
    ),
]

# What bash does when the tab key is pressed: the words so far, and a function that fills COMPREPLY.
SCRIPT = """
complete() { :; }
source "$HOME/.bash_completions/encryptedstats.sh"
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
_encryptedstats_completion encryptedstats
printf '%s\\n' "${COMPREPLY[@]}"
"""


def environment(home: Path) -> dict[str, str]:
    path = f"{PROGRAM.parent}:{os.environ.get('PATH', '')}"
    return {**os.environ, "HOME": str(home), "PATH": path}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("shell")
    # From a bash, as a user would: the program looks which shell it was started from, and tests are
    # often started by another.
    command = ["bash", "-c", '"$0" --install-completion; exit $?', str(PROGRAM)]
    done = subprocess.run(
        command, env=environment(place), capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "bash completion installed" in done.stdout
    assert ".bash_completions/encryptedstats.sh" in (place / ".bashrc").read_text()
    return place


def offered(home: Path, *words: object) -> list[str]:
    command = ["bash", "-c", SCRIPT, "bash", "encryptedstats", *map(str, words)]
    done = subprocess.run(
        command, env=environment(home), capture_output=True, text=True, timeout=600, check=False
    )
    assert done.stderr == ""
    return done.stdout.split()


def answered(*words: object) -> list[str]:
    """What the program in this process answers the function above, as bash asks it."""
    said = " ".join(["encryptedstats", *map(str, words)])
    asked = {
        "_ENCRYPTEDSTATS_COMPLETE": "complete_bash",
        "COMP_WORDS": said,
        "COMP_CWORD": str(len(words)),
    }
    result = _RUNNER.invoke(app, [], env=asked, prog_name="encryptedstats")
    assert result.stderr == ""
    return result.stdout.split()


def test_names_that_the_program_knows(home: Path) -> None:
    assert offered(home, "en") == ["encrypt"]
    assert answered("en") == ["encrypt"]
    assert answered("key", "ma") == ["make"]
    assert answered("ask", "t.enc", "fo") == ["forest"]


def test_questions_their_parameters_and_choices() -> None:
    asked = ("ask", "t.enc")
    offered = answered(*asked, "")
    assert {"lm", "t.test", "forest", "KaplanMeier"} <= set(offered)
    assert answered(*asked, "forest", "de") == ["depth="]
    assert answered(*asked, "forest", "depth=3", "de") == []
    assert answered(*asked, "TTest", "alternative=") == [
        "alternative=two-sided",
        "alternative=less",
        "alternative=greater",
    ]
    assert answered(*asked, "TTest", "equal_var=t") == ["equal_var=true"]


def test_procedures_and_their_parameters() -> None:
    asked = ("ask", "t.enc")
    assert {"tree", "RandomForest", "ExtraTrees"} <= set(answered(*asked, ""))
    assert answered(*asked, "forest", "lear") == ["learned"]
    assert answered(*asked, "forest", "learned", "de") == ["depth=", "decoys=", "decoy_seed="]
    assert answered(*asked, "forest", "learned", "depth=3", "tr") == ["trees="]
    assert answered(*asked, "tree", "criterion=") == ["criterion=gini", "criterion=entropy"]
    assert answered(*asked, "forest", "lda", "lear") == []


def test_names_in_files_that_were_given_before(home: Path, hospital: Hospital) -> None:
    ids = [f"variable=v{j}" for j in range(6)]
    assert offered(home, "ask", hospital.table, "TTest", "variable=v") == ids
    assert answered("ask", hospital.table, "TTest", "variable=v") == ids
    assert answered("ask", hospital.table, "TTest", "by=c") == ["by=class"]
    named = [f"variables=v{j}" for j in range(6)]
    assert answered("ask", hospital.table, "tree", "variables=v") == named
    assert answered("plan", hospital.schema, "TTest", "by=ki") == ["by=kilos"]
    assert answered("data", "schema", hospital.csv, "--target", "i") == ["ill"]
    assert answered("evaluate", "folds.enc", hospital.csv, "--weights", "vis") == ["visits"]


def test_a_file_that_is_wrong_offers_nothing(tmp_path: Path) -> None:
    assert answered("ask", tmp_path, "TTest", "variable=v") == []
    assert answered("data", "schema", tmp_path / "none.csv", "--target", "i") == []
