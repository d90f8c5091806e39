"""A file of another kind: every command says what it is, what is wanted instead, and where the file
belongs, before any work.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_helpers import FOREST, Hospital, Run, Ward, done, names, the_error

from encryptedstats.cli import _inputs

# What may be mistaken for something else.
MISTAKEN: dict[str, Callable[[Hospital, Ward], Path]] = {
    "holds a secret key": lambda h, w: h.key,
    "holds public keys": lambda h, w: h.public,
    "is an encrypted table": lambda h, w: h.table,
    "holds an encrypted result": lambda h, w: h.ask("age", "counts(v0)"),
    "holds a model that is still encrypted": lambda h, w: w.combined("mnb"),
    "holds a decrypted model": lambda h, w: w.opened(w.combined("mnb")),
    "holds a schema": lambda h, w: h.schema,
    "holds a plan": lambda h, w: h.home / "plan.json",
    "is no file of this program": lambda h, w: h.csv,
}
RESULT, TABLE = "holds an encrypted result", "is an encrypted table"
MODELS = {"holds a model that is still encrypted", "holds a decrypted model"}
# Where a file is asked for: the command, in which it is the word None, and what may be given there.
PLACES: dict[str, tuple[Callable[[Hospital, Ward, Path], tuple[Any, ...]], set[str]]] = {
    "schema DATA": (lambda h, w, t: ("data", "schema", None), {"is no file of this program"}),
    "plan --schema": (
        lambda h, w, t: ("plan", None, "--rows", 9, "counts(v0)"),
        {"holds a schema"},
    ),
    "keygen --plan": (
        lambda h, w, t: ("key", "make", t / "s", t / "p", "--plan", None),
        {"holds a plan"},
    ),
    "encrypt DATA": (
        lambda h, w, t: ("encrypt", None, t / "t", "--schema", h.schema, "--key", h.key),
        {"is no file of this program"},
    ),
    "encrypt --schema": (
        lambda h, w, t: ("encrypt", h.csv, t / "t", "--schema", None, "--key", h.key),
        {"holds a schema"},
    ),
    "encrypt --key": (
        lambda h, w, t: ("encrypt", h.csv, t / "t", "--schema", h.schema, "--key", None),
        {"holds a secret key"},
    ),
    "encrypt --public-keys": (
        lambda h, w, t: ("encrypt", h.csv, t / "t", "--schema", h.schema, "--public-keys", None),
        {"holds public keys", TABLE},
    ),
    "ask TABLE": (lambda h, w, t: ("ask", None, "-o", t / "m", *FOREST), {TABLE}),
    "ask --keys": (
        lambda h, w, t: ("ask", h.table, "-o", t / "m", *FOREST, "--keys", None),
        {"holds public keys", TABLE},
    ),
    "open FILE": (
        lambda h, w, t: ("open", None, "--key", h.key, "-o", t / "x.csv"),
        {RESULT, "holds a model that is still encrypted", "holds a decrypted model"},
    ),
    "open --schema": (
        lambda h, w, t: ("open", h.ask("age", "counts(v0)"), "--key", h.key, "--schema", None),
        {"holds a schema"},
    ),
    "predict MODEL": (lambda h, w, t: ("predict", None, w.csv, "-o", t / "p"), MODELS),
    "predict DATA": (
        lambda h, w, t: ("predict", w.opened(w.combined("mnb")), None, "-o", t / "p"),
        {"is no file of this program", TABLE},
    ),
    "evaluate FILE": (lambda h, w, t: ("evaluate", None, w.csv), {"holds a decrypted model"}),
    "model combine": (
        lambda h, w, t: (
            "model",
            "combine",
            t / "m",
            None,
            w.fitted("mnb", 0),
            "--keys",
            w.table(0),
        ),
        MODELS,
    ),
    "model draw MODEL": (
        lambda h, w, t: ("model", "draw", None, h.table, "-o", t / "m"),
        {"holds a model that is still encrypted"},
    ),
    "model draw TABLE": (
        lambda h, w, t: ("model", "draw", w.combined("forest"), None, "-o", t / "m"),
        {TABLE},
    ),
}


@pytest.mark.parametrize("place", PLACES)
def test_what_it_is_and_where_it_belongs(
    run: Run, hospital: Hospital, ward: Ward, tmp_path: Path, place: str
) -> None:
    command, right = PLACES[place]
    for what, path in MISTAKEN.items():
        if what in right:
            continue
        mistaken = path(hospital, ward)
        words = [mistaken if word is None else word for word in command(hospital, ward, tmp_path)]
        error = the_error(run(*words))
        assert error.startswith(f"error: {mistaken} {what}, and "), error
        assert " is wanted here: " in error
    assert names(tmp_path) == []


def test_every_kind_has_words() -> None:
    for kind, (what, use) in _inputs._NATURES.items():
        assert what, kind
        assert use, kind


def test_a_secret_key_where_a_worker_wants_public_keys(
    run: Run, hospital: Hospital, tmp_path: Path
) -> None:
    error = the_error(
        run("ask", hospital.table, "counts(v0)", "-o", tmp_path / "r", "--keys", hospital.key)
    )
    assert "keep the secret key off every machine but the owner's" in error


def test_public_keys_may_be_named_by_the_table_they_lie_in(
    hospital: Hospital, tmp_path: Path
) -> None:
    done("ask", hospital.table, "counts(v0)", "-o", tmp_path / "r", "--keys", hospital.table)
    assert names(tmp_path) == ["r"]


def test_a_schema_that_was_edited_says_where_it_is_wrong(
    run: Run, hospital: Hospital, tmp_path: Path
) -> None:
    (tmp_path / "s.json").write_text(hospital.schema.read_text()[:-20])
    error = the_error(run("plan", tmp_path / "s.json", "--rows", 9, "counts(v0)"))
    assert "line" in error
