"""One rule for whatever a command writes: not over what exists without ``--force``, and never over
what the command reads.

The commands and their parameters are taken from the program, so that a new one is held to the rule
too.
"""

from __future__ import annotations

import ast
import errno
import os
import stat
from enum import Enum
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from cli_helpers import PATHS, Hospital, Run, Ward, done, the_error

import encryptedstats as es
import encryptedstats.cli
from encryptedstats.cli import _help
from encryptedstats.cli._files import Writes, inputs_of, outputs_of, save, write_text
from encryptedstats.tables.manifest import MANIFEST
from error_codes import error

COMMANDS: dict[str, Any] = {
    path: _help.load(path)
    for path in PATHS
    if not path.startswith("study ")  # which tests its own
}
FUNCTIONS = {path: command.known.function for path, command in COMMANDS.items()}
WRITERS = {path: found for path, one in FUNCTIONS.items() if (found := outputs_of(one))}
OUTPUTS = [(name, output) for name, outputs in WRITERS.items() for output in outputs]
PAIRS = [(name, output, read) for name, output in OUTPUTS for read in inputs_of(FUNCTIONS[name])]
CONTENT = "nobody loses this"


def words_for(name: str, folder: Path, given: dict[str, object]) -> list[str]:
    """A command with all that it demands, made up, and with these parameters."""
    options, arguments = [], []
    hints = get_type_hints(FUNCTIONS[name])
    for parameter in COMMANDS[name].params:
        if parameter.name not in given and not parameter.required:
            continue
        value = given.get(parameter.name) or made_up(
            hints[parameter.name], folder / f"made-up-{parameter.name}"
        )
        if parameter.param_type_name == "argument":
            arguments.append(str(value))
        else:
            options += [parameter.opts[0], str(value)]
    if "passphrase_file" in given:  # an option of all commands
        options += ["--passphrase-file", str(given["passphrase_file"])]
    return [*name.split(), *arguments, *options]


def made_up(hint: Any, place: Path) -> object:
    if hint == list[str]:
        return "epsilon=1"
    if hint in (int, float):
        return 1
    return next(iter(hint)).value if isinstance(hint, type) and issubclass(hint, Enum) else place


def something_at(place: Path, mark: Writes) -> Path:
    """What must not be lost; returns the file that holds it."""
    file = place / MANIFEST if mark.table else place
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(CONTENT)
    return file


def test_all_commands_are_looked_at() -> None:
    assert len(WRITERS) >= 13
    for name, command in COMMANDS.items():
        spelled = {p.name for p in command.params if "--output" in p.opts or p.metavar == "OUT"}
        assert spelled <= set(WRITERS.get(name, ())), (
            f"{name} writes, and does not say so with Writes"
        )


@pytest.mark.parametrize("name", list(WRITERS))
def test_force_is_on_all(name: str) -> None:
    assert "force" in COMMANDS[name].known.shared


@pytest.mark.parametrize(("name", "output"), OUTPUTS)
def test_nothing_is_replaced_unasked(run: Run, name: str, output: str, tmp_path: Path) -> None:
    """And before anything else is looked at: all other files are made up."""
    out = tmp_path / "there.png"
    kept = something_at(out, WRITERS[name][output])
    error = the_error(run(*words_for(name, tmp_path, {output: out})))
    assert error.startswith(
        f"error: {out} exists already and was not touched: give another name, or --force to "
        "replace it"
    )
    assert kept.read_text() == CONTENT


@pytest.mark.parametrize("how", ["itself", "spelled otherwise", "hard link", "symbolic link"])
@pytest.mark.parametrize(("name", "output", "read"), PAIRS)
def test_what_is_read_is_never_written(
    run: Run, name: str, output: str, read: str, how: str, tmp_path: Path
) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    kept = something_at(source, WRITERS[name][output])
    if how == "hard link" and not source.is_dir():
        os.link(source, out)
    elif how in ("symbolic link", "hard link"):
        out.symlink_to(source)
    else:
        out = source if how == "itself" else tmp_path / "." / ".." / tmp_path.name / "source"
    error = the_error(run(*words_for(name, tmp_path, {output: out, read: source}), "--force"))
    assert "is read by this command, so that nothing is written there: give another name" in error
    assert kept.read_text() == CONTENT


def test_no_module_writes_past_the_rule() -> None:
    """The functions of ``_files`` are the only ones that write; key pairs, tables and folders of
    results have writers below.
    """
    allowed = {("_files.py", "save"), ("_files.py", "write_atomic"), ("key.py", "save")}
    allowed |= {
        ("app.py", "write_atomic")
    }  # by which the browser is opened: a name that nobody gives
    found = set()
    for path in sorted(Path(encryptedstats.cli.__file__).parent.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func).rpartition(".")[2]
            first = ast.unparse(node.args[0]) if node.args else ""
            writes = called in {"write_atomic", "write_bytes", "write_object", "savefig"}
            writes |= called == "save" and isinstance(node.func, ast.Attribute)
            writes |= called == "open" and any(
                isinstance(m, ast.Constant) and "w" in str(m.value) for m in node.args[1:]
            )
            writes |= called == "to_csv" and bool(first) and first != "text"
            writes &= not (called == "savefig" and first == "content")
            if writes:
                found.add((path.name, called))
    assert found <= allowed


def test_a_file_that_appears_meanwhile_is_not_replaced(owner: es.Owner, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.write_text(CONTENT)
    with pytest.raises(FileExistsError, match="it was not touched"):
        write_text(out, "new", force=False)
    with pytest.raises(FileExistsError, check=error("already-exists")):
        save(owner.encrypt(7), out, force=False)
    assert out.read_text() == CONTENT
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    write_text(out, "new", force=True)
    assert out.read_text() == "new"


def test_an_output_is_not_put_into_a_table(run: Run, hospital: Hospital) -> None:
    inside = hospital.table / MANIFEST
    before = inside.read_bytes()
    error = the_error(run("ask", hospital.table, "counts(v0)", "-o", inside, "--force"))
    assert "is read by this command" in error
    assert inside.read_bytes() == before


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_what_lies_open_is_private(hospital: Hospital, ward: Ward, tmp_path: Path) -> None:
    """Under the usual umask: opened models, tables, predictions, scores, schemas and plans are
    their user's only.
    """
    old = os.umask(0o022)
    try:
        opened, model = tmp_path / "m.opened", ward.combined("mnb")
        key = ("--key", ward.key, "--schema", ward.schema)
        done("open", model, *key, "-o", opened)
        done("predict", opened, ward.csv, "-o", tmp_path / "predicted.csv")
        done("evaluate", opened, ward.csv, "-o", tmp_path / "scores.csv")
        done(
            "data",
            "schema",
            ward.csv,
            "--target",
            "ill",
            "--leave-out",
            "patient",
            "-o",
            tmp_path / "schema.json",
        )
        done(
            "plan",
            ward.schema,
            "--rows",
            9,
            "counts(age)",
            "-o",
            tmp_path / "plan.json",
        )
        counts = hospital.ask("age", "counts(v0)")
        done(
            "open",
            counts,
            "--key",
            hospital.key,
            "--schema",
            hospital.schema,
            "-o",
            tmp_path / "counts.csv",
        )
        private = [path for path in tmp_path.iterdir() if mode(path) != 0o600]
        assert private == []
        done("ask", hospital.table, "counts(v0)", "-o", tmp_path / "for-the-owner.enc")
        assert mode(tmp_path / "for-the-owner.enc") == 0o644
        # a file that was readable to all is not when it is replaced
        (tmp_path / "counts.csv").chmod(0o644)
        done("open", counts, "--key", hospital.key, "-o", tmp_path / "counts.csv", "--force")
        assert mode(tmp_path / "counts.csv") == 0o600
    finally:
        os.umask(old)


def test_where_there_are_no_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on FAT: a new file is written all the same, and one that is there is not replaced."""

    def refused(*_: Any) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    write_text(tmp_path / "out", CONTENT, force=False)
    with pytest.raises(FileExistsError, match="it was not touched"):
        write_text(tmp_path / "out", "new", force=False)
    assert (tmp_path / "out").read_text() == CONTENT
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
