"""What importing the package brings in: nothing that takes long. (How long it takes is a matter of machines, and not tested.)"""

from __future__ import annotations

import subprocess
import sys

import pytest

import encryptedstats as es

HEAVY = ("numpy", "pandas", "sklearn", "scipy", "seal", "pyarrow", "matplotlib", "dask", "cryptography", "fastapi")


def imported_by(code: str) -> set[str]:
    report = f"import sys; {code}; print(' '.join(name for name in {HEAVY!r} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_package_itself_imports_nothing_that_takes_long():
    assert imported_by("import encryptedstats") == set()
    assert imported_by("import encryptedstats; encryptedstats.DataError, encryptedstats.__version__") == set()


def test_models_are_imported_when_asked_for():
    assert "sklearn" not in imported_by("import encryptedstats as es; es.Owner, es.Schema, es.plan")
    assert "sklearn" in imported_by("import encryptedstats as es; es.CompletelyRandomForest")


@pytest.mark.parametrize("name", sorted(es.__all__))
def test_every_name_is_there(name):
    assert getattr(es, name) is getattr(es, name)
