"""Stories of the command line, as anybody can read and write them: ``scripts/*.txt``.

``$ words`` is a command of the program that succeeds, ``! words`` one that is refused. The lines
below it say what it prints: ``> text`` on the standard output, ``2> text`` on the error output;
``> not: text`` must not be there. ``-- FILE`` begins a file, up to an empty line. ``? FILE`` must
exist, ``? FILE 600`` with this mode, and ``? FILE: text`` with this text. Other lines are remarks.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from cli_helpers import invoke, patients

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.txt"))


def flat(text: str) -> str:
    """A text without the boxes and line breaks of a terminal."""
    return " ".join(text.replace("│", " ").split())


def holds(wish: str) -> bool:
    """Whether a file is there, as a line with ``?`` wishes."""
    name, colon, text = wish.partition(": ")
    path, _, mode = name.partition(" ")
    if not Path(path).exists():
        return False
    found = not mode or f"{Path(path).stat().st_mode & 0o777:o}" == mode
    return found and (not colon or text in Path(path).read_text().splitlines())


def play(script: str) -> int:
    """Play a script in the current folder, and return how many commands it has."""
    shown, played, file = {">": "", "2>": ""}, 0, None
    for number, line in enumerate(script.splitlines(), 1):
        sign, _, rest = line.partition(" ")
        if file is not None and line:
            file.write_text((file.read_text() if file.exists() else "") + line + "\n")
        elif sign == "--":
            file = Path(rest)
        elif sign in ("$", "!"):
            result = invoke(*shlex.split(rest))
            shown = {">": flat(result.stdout), "2>": flat(result.stderr)}
            refused = result.exit_code in (1, 2)
            assert refused == (sign == "!"), f"line {number}: {line}\n{result.output}"
            assert refused or result.exit_code == 0, f"line {number}: {line}\n{result.output}"
            played += 1
        elif sign in shown:
            wanted = rest.removeprefix("not: ")
            found = flat(wanted) in shown[sign]
            assert found == (wanted == rest), f"line {number}: {line}\n{shown[sign]}"
        elif sign == "?":
            assert holds(rest), f"line {number}: {rest} is not there"
        file = file if line else None
    return played


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_the_story(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    patients(60).to_csv("patients.csv", index=False)
    assert play(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "script",
    [
        "$ data infos",
        "! data schema patients.csv",
        "$ --version\n> 99",
        "? nothing",
        "? patients.csv 100",
        "? patients.csv: nothing",
    ],
)
def test_a_story_that_is_wrong_is_noticed(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    patients(5).to_csv("patients.csv", index=False)
    with pytest.raises(AssertionError):
        play(script)
