"""Files of every kind, made once, and a way to run the program inside the test's process."""

from __future__ import annotations

import warnings
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
from cli_helpers import Run
from typer.testing import CliRunner

import encryptedstats as es
from encryptedstats.cli._app import app


@pytest.fixture
def run() -> Run:
    # Runners of older versions mix stdout and stderr unless told not to; later ones have no such option.
    separate = {"mix_stderr": False} if "mix_stderr" in signature(CliRunner).parameters else {}
    runner = CliRunner(**separate)

    def invoke(*arguments: object, **options: Any) -> Any:
        # Wide enough that Rich folds nothing the tests look for.
        return runner.invoke(app, [str(a) for a in arguments], env={"COLUMNS": "200"}, **options)

    return invoke


@pytest.fixture(scope="session")
def parameters() -> es.Parameters:
    return es.Parameters.choose(max_value=1000, depth=1)


@pytest.fixture(scope="session")
def owner(parameters: es.Parameters) -> es.Owner:
    return es.Owner(parameters)


@pytest.fixture(scope="session")
def files(owner: es.Owner, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file of each kind. Read only: copy what a test wants to change."""
    folder = tmp_path_factory.mktemp("files")
    owner.save(folder / "secret.key")
    owner.save(folder / "locked.key", passphrase="correct horse")
    owner.public_keys().save(folder / "public.keys")
    owner.public_keys([0, 3]).save(folder / "rotations.keys")
    owner.encrypt([[1, 2, 3], [4, 5, 6]]).save(folder / "array.enc")
    owner.encrypt(7).save(folder / "integer.enc")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", es.InsecureParametersWarning)
        weak = es.Parameters.from_bits("bgv", 4096, 1000, (50, 50, 51), allow_insecure=True)
        es.Owner(weak).public_keys().save(folder / "weak.keys")
    return folder
