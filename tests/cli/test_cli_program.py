"""The program as a whole: entry points, versions, and errors as one line; in real processes where
that matters.
"""

from __future__ import annotations

import ast
import copy
import string
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from cli_helpers import Run, the_error

import encryptedstats as es
from encryptedstats.cli import _program
from encryptedstats.cli._errors import WORDS, one_line
from encryptedstats.errors import REPLACE, Cure, ExistsError


def program(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "encryptedstats.cli", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=600, check=False, **options
    )


def test_version_and_help(run: Run) -> None:
    assert run("--version").stdout == f"encryptedstats {es.__version__}\n"
    shown = run("--help").stdout
    assert all(
        command in shown
        for command in ("check", "install", "key", "make", "data", "info", "answer")
    )


def test_a_real_process_keeps_errors_to_one_line(tmp_path: Path) -> None:
    done = program("data", "info", "missing.enc", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == "error: missing.enc: no such file or directory; check the path\n"


def test_a_real_process_shows_the_traceback_with_debug(tmp_path: Path) -> None:
    done = program("--debug", "data", "info", "missing.enc", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("Traceback")
    assert "FileNotFoundError" in done.stderr


def test_usage_errors_are_2(run: Run) -> None:
    assert run("nonsense").exit_code == 2
    assert run("data", "info").exit_code == 2


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_the_extra_it_says_what_to_install(missing: str) -> None:
    code = (
        f"import sys; sys.modules[{missing!r}] = None; from encryptedstats.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "pip install 'encryptedstats[cli]'" in done.stderr


def test_a_reader_that_goes_away_is_no_error(files: Path) -> None:
    command = (
        f"{sys.executable} -m encryptedstats.cli data info {files / 'public.keys'} --json | true"
    )
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("several\n  lines"), "several lines"),
        (es.NoiseError("too deep"), "too deep"),
        (OverflowError("too large"), "too large"),
        (OSError("no details"), "no details"),
        (OSError(5, "Input/output error"), "input/output error"),
        (
            PermissionError(13, "Permission denied", "k"),
            "k: permission denied; check who may read and write it",
        ),
        (ValueError("\x1b[2J"), "\\x1b[2J"),
        (MemoryError(), "not enough memory: free some, or choose smaller parameters"),
        (ValueError(), "ValueError"),
    ],
)
def test_every_error_is_one_line(
    run: Run, files: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, line: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("encryptedstats.cli.info.describe", fail)
    assert the_error(run("data", "info", files / "public.keys")) == f"error: {line}"


def test_an_interrupt_is_one_line(run: Run, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("encryptedstats.cli.info.describe", interrupt)
    result = run("data", "info", files / "public.keys")
    assert result.exit_code == 130
    assert result.stderr == "interrupted: nothing was left half-written\n"


def test_a_file_that_may_not_be_read(
    run: Run, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", "secret.key")

    monkeypatch.setattr(
        "os.access", lambda *_: False
    )  # what Typer would look at, and answer in a box of its own
    monkeypatch.setattr("encryptedstats.storage.container.read", refuse)
    error = the_error(run("open", files / "array.enc", "--key", files / "secret.key"))
    assert error == "error: secret.key: permission denied; check who may read and write it"


def test_every_cure_has_words_of_the_command_line() -> None:
    """All that are written in the library, and no others; with the values that they come with."""
    found: dict[str, set[str]] = {}
    for path in Path(es.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id == "Cure"
            ):
                values = (
                    node.args[2].keys
                    if len(node.args) > 2 and isinstance(node.args[2], ast.Dict)
                    else []
                )
                named = {ast.literal_eval(key) for key in values if key is not None}
                action = ast.literal_eval(node.args[0])
                found[action] = found.get(action, named) & named
    assert set(found) == set(WORDS)
    for action, words in WORDS.items():
        assert {name for _, name, _, _ in string.Formatter().parse(words) if name} <= found[
            action
        ], action
        assert not any(
            word in words for word in ("es.", "=True", "=False", "owner.", "with_kind", "infer")
        )


def test_cures_are_options() -> None:
    """Also when an error is wrapped in another, and in warnings."""
    larger = Cure("larger values", "choose max_value=9 or more, es.plan(...) does", {"value": 9})
    error = es.SchemaError("could reach ±9: ", larger)
    assert str(error) == "could reach ±9: choose max_value=9 or more, es.plan(...) does"
    assert one_line(error) == "could reach ±9: it takes keys for max_value=9 (plan chooses it)"
    assert copy.copy(error).cures == (larger,)  # and so when it comes from another process
    wrapped = es.SchemaError(f"rows.csv: {error}")
    wrapped.__cause__ = error
    assert one_line(wrapped) == f"rows.csv: {one_line(error)}"
    assert (
        one_line(ExistsError("it is there (", REPLACE, " replaces it)"))
        == "it is there (--force replaces it)"
    )
    assert isinstance(ExistsError("x"), FileExistsError)
    own = es.ParameterError(
        "no: ", Cure("of my question", "my_way={1}"), " or ", Cure("rare levels", "rare=3")
    )
    assert (
        one_line(own) == "no: my_way={1} or rare=3"
    )  # what nobody here has words for, it says itself
    again = es.NoiseError(error, ". ", es.ParameterError("Or: ", REPLACE))
    assert (str(again), again.cures) == (f"{error}. Or: {REPLACE}", (larger, REPLACE))
    assert (
        one_line(es.SchemaWarning("gaps: ", Cure("drop gaps", "missing='drop'")))
        == "gaps: --missing drop"
    )


def test_mistakes_of_the_library_are_not_hidden(
    run: Run, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("encryptedstats.cli.info.describe", None)
    result = run("data", "info", files / "public.keys")
    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr.startswith("error: the program failed (TypeError: ")
    assert result.stderr.endswith("please report it, with the output of --debug\n")
    assert isinstance(run("--debug", "data", "info", files / "public.keys").exception, TypeError)


def test_warnings_are_one_line_too(run: Run, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def warn(*_: object, **__: object) -> dict[str, Any]:
        warnings.warn("heavy\nindeed", es.HeavyArrayWarning, stacklevel=1)
        return {}

    shown, monkeypatched = warnings.showwarning, _program._show_warning
    monkeypatch.setattr("encryptedstats.cli.info.describe", warn)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        result = run("data", "info", files / "public.keys", "--json")
    assert result.stderr == "warning: heavy indeed\n"
    assert warnings.showwarning is shown is not monkeypatched


def test_cures_of_warnings_are_options(run: Run, tmp_path: Path) -> None:
    rows = "".join(f"P{i},{i % 2}\n" for i in range(60))
    (tmp_path / "d.csv").write_text(f"patient,ill\n{rows}")
    result = run("data", "schema", tmp_path / "d.csv", "--target", "ill")
    assert result.exit_code == 0
    assert "leave it out (--leave-out)" in result.stderr
    assert result.stderr.startswith("warning: ")


def test_an_interrupt_while_the_program_is_imported(tmp_path: Path) -> None:
    """Ctrl-C comes just then."""
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt\n")
    source = Path(es.__file__).parents[1]
    code = (
        f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(source)!r}]; import "
        "encryptedstats.cli as p; p.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (
        130,
        "",
        "interrupted: nothing was begun\n",
    )


def test_the_installed_program_is_the_one_that_can_be_interrupted() -> None:
    project = Path(es.__file__).parents[2] / "pyproject.toml"
    if not project.is_file():
        pytest.skip("there is no checkout here")
    assert 'encryptedstats = "encryptedstats.cli:main"' in project.read_text()
