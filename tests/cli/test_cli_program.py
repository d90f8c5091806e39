"""The program as a whole: entry points, versions, and errors as one line; in real processes where that matters."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from cli_helpers import Run, the_error

import encryptedstats as es
from encryptedstats.cli import _app
from encryptedstats.cli._errors import one_line


def program(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "encryptedstats.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, **options)


def test_version_and_help(run: Run) -> None:
    assert run("--version").stdout == f"encryptedstats {es.__version__}\n"
    shown = run("--help").stdout
    assert all(command in shown for command in ("doctor", "keygen", "info", "demo"))


def test_a_real_process_keeps_errors_to_one_line(tmp_path: Path) -> None:
    done = program("info", "missing.enc", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == "error: missing.enc: no such file or directory; check the path\n"


def test_a_real_process_shows_the_traceback_with_debug(tmp_path: Path) -> None:
    done = program("--debug", "info", "missing.enc", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("Traceback")
    assert "FileNotFoundError" in done.stderr


def test_usage_errors_are_2(run: Run) -> None:
    assert run("nonsense").exit_code == 2
    assert run("info").exit_code == 2


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_the_extra_it_says_what_to_install(missing: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; from encryptedstats.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "pip install 'encryptedstats[cli]'" in done.stderr


def test_a_reader_that_goes_away_is_no_error(files: Path) -> None:
    command = f"{sys.executable} -m encryptedstats.cli info {files / 'public.keys'} --json | true"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("several\n  lines"), "several lines"),
        (es.NoiseError("too deep"), "too deep"),
        (OverflowError("too large"), "too large"),
        (OSError("no details"), "no details"),
        (OSError(5, "Input/output error"), "input/output error"),
        (PermissionError(13, "Permission denied", "k"), "k: permission denied; check who may read and write it"),
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
    assert the_error(run("info", files / "public.keys")) == f"error: {line}"


def test_an_interrupt_is_one_line(run: Run, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("encryptedstats.cli.info.describe", interrupt)
    result = run("info", files / "public.keys")
    assert result.exit_code == 130
    assert result.stderr == "interrupted: nothing was left half-written\n"


def test_a_file_that_may_not_be_read(run: Run, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", "secret.key")

    monkeypatch.setattr("os.access", lambda *_: False)  # what Typer would look at, and answer in a box of its own
    monkeypatch.setattr("encryptedstats.storage.container.read", refuse)
    error = the_error(run("decrypt", files / "array.enc", "--key", files / "secret.key"))
    assert error == "error: secret.key: permission denied; check who may read and write it"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("fill them in, or infer the schema with missing='bin' or missing='drop'", "--missing bin or --missing drop"),
        ("no rows are left (overwrite=True replaces it)", "(--overwrite replaces it)"),
        (
            "v0 has 2000 values: leave the column out, give it another kind, or give levels=",
            "leave the column out (--leave-out)",
        ),
        ("could reach ±9: choose max_value=9 or more, es.plan(...) does", "it takes keys for --max-value 9 (see plan)"),
    ],
)
def test_cures_are_options(given: str, said: str) -> None:
    line = one_line(ValueError(given))
    assert said in line
    assert "=" not in line


def test_mistakes_of_the_library_are_not_hidden(run: Run, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("encryptedstats.cli.info.describe", None)
    result = run("info", files / "public.keys")
    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr.startswith("error: a mistake of the program, not yours (TypeError: ")
    assert result.stderr.endswith("please report it with what --debug shows\n")
    assert isinstance(run("--debug", "info", files / "public.keys").exception, TypeError)


def test_warnings_are_one_line_too(run: Run, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def warn(*_: object, **__: object) -> dict[str, Any]:
        warnings.warn("heavy\nindeed", es.HeavyArrayWarning, stacklevel=1)
        return {}

    shown, monkeypatched = warnings.showwarning, _app._show_warning
    monkeypatch.setattr("encryptedstats.cli.info.describe", warn)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        result = run("info", files / "public.keys", "--json")
    assert result.stderr == "warning: heavy indeed\n"
    assert warnings.showwarning is shown is not monkeypatched


def test_cures_of_warnings_are_options(run: Run, tmp_path: Path) -> None:
    rows = "".join(f"P{i},{i % 2}\n" for i in range(60))
    (tmp_path / "d.csv").write_text(f"patient,ill\n{rows}")
    result = run("schema", tmp_path / "d.csv", "--target", "ill")
    assert result.exit_code == 0
    assert "leave it out (--leave-out)" in result.stderr
    assert result.stderr.startswith("warning: ")
