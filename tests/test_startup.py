"""What importing the package brings in: nothing that takes long. (How long it takes is a matter of
machines, and not tested.)
"""

from __future__ import annotations

import subprocess
import sys

import pytest

import encryptedstats as es

HEAVY = (
    "numpy",
    "pandas",
    "sklearn",
    "scipy",
    "seal",
    "pyarrow",
    "matplotlib",
    "dask",
    "cryptography",
    "fastapi",
    "multiprocessing",
)


def imported_by(code: str) -> set[str]:
    report = (
        f"import os, sys; {code}\nprint(' '.join(name for name in {HEAVY!r} if name in "
        "sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", report], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_the_package_itself_imports_nothing_that_takes_long():
    assert imported_by("import encryptedstats") == set()
    assert (
        imported_by("import encryptedstats; encryptedstats.DataError, encryptedstats.__version__")
        == set()
    )


def test_the_help_imports_nothing_that_takes_long():
    told = "from encryptedstats.cli import main; sys.argv[1:] = ['--help']"
    assert (
        imported_by(
            f"{told}; sys.stdout = open(os.devnull, 'w')\ntry: main()\nexcept SystemExit: "
            "sys.stdout = sys.__stdout__\n"
        )
        == set()
    )


def test_a_question_imports_what_it_needs_and_nothing_else():
    """What ``ask`` imports before it computes counts: neither models, nor what publishes."""
    begun = (
        "from encryptedstats.cli.ask import ask_; from encryptedstats.tables.questions.words import "
        "make_questions; make_questions(['counts(v0, class)'])"
    )
    assert not {"sklearn", "scipy", "matplotlib", "fastapi"} & imported_by(begun)
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; {begun}; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "encryptedstats.publishing" not in done.stdout.split()


def test_models_are_imported_when_asked_for():
    assert "sklearn" not in imported_by("import encryptedstats as es; es.Owner, es.Schema, es.plan")
    assert "sklearn" in imported_by("import encryptedstats as es; es.CompletelyRandomForest")


@pytest.mark.parametrize("name", sorted(es.__all__))
def test_every_name_is_there(name):
    assert getattr(es, name) is getattr(es, name)
