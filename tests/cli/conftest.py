"""Files of every kind, a hospital with its worker, made once, and a way to run the program inside
the test's process.
"""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_helpers import Hospital, Run, Ward, done, invoke, patients

import encryptedstats as es


@pytest.fixture
def run() -> Run:
    return invoke


@pytest.fixture(scope="session", autouse=True)
def no_downloads() -> Iterator[None]:
    """UCI is a closed port."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ENCRYPTEDSTATS_UCI", "http://127.0.0.1:9")
        patch.setenv("no_proxy", "127.0.0.1")
        yield


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


@pytest.fixture(scope="session")
def hospital(tmp_path_factory: pytest.TempPathFactory) -> Hospital:
    """The owner's part, by the program itself: schema, plan, keys, table. Read only, but for new
    results.
    """
    story = Hospital(patients(), tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("work"))
    story.frame.to_csv(story.csv, index=False)
    numbers = (
        "--column",
        "dose digits=1",
        "--column",
        "dose range=0:50",
        "--column",
        "kilos digits=1",
    )
    columns = ("--leave-out", "patient", "--column", "visits kind=continuous", *numbers)
    done("data", "schema", story.csv, "--target", "ill", *columns, "-o", story.schema)
    questions = (
        "counts(age,class)",
        'crosstab(grade,"sex, at birth")',
        "moments(dose,kilos)",
    )
    done("plan", story.schema, "--rows", 60, *questions, "-o", story.home / "plan.json")
    done("key", "make", story.key, story.public, "--plan", story.home / "plan.json")
    done(
        "encrypt",
        story.csv,
        story.table,
        "--schema",
        story.schema,
        "--key",
        story.key,
    )
    return story


@pytest.fixture(scope="session")
def registry(hospital: Hospital, tmp_path_factory: pytest.TempPathFactory) -> Hospital:
    """The same rows and schema with keys for rows of others; nothing is encrypted yet.
    Read only.
    """
    story = Hospital(
        hospital.frame, tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("work")
    )
    for name in ("csv", "schema"):
        shutil.copy(getattr(hospital, name), getattr(story, name))
    asked = ("counts(age,class)", "--by-others")
    done("plan", story.schema, "--rows", 60, *asked, "-o", story.home / "plan.json")
    done("key", "make", story.key, story.public, "--plan", story.home / "plan.json")
    return story


@pytest.fixture(scope="session")
def ward(tmp_path_factory: pytest.TempPathFactory) -> Ward:
    """The owner's part, by the program itself: two tables with two folds each. Read only, but for
    new results.
    """
    found = Ward(patients(70), tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("work"))
    columns = ("--leave-out", "patient", "--column", "visits kind=continuous")
    found.frame.to_csv(found.csv, index=False)
    done("data", "schema", found.csv, "--target", "ill", *columns, "-o", found.schema)
    # Products of three, and room to add results up.
    done("key", "make", found.key, found.home / "public.keys", "max_value=20000", "depth=3")
    for half, rows in enumerate((found.frame[:30], found.frame[30:])):
        rows.to_csv(found.home / f"half{half}.csv", index=False)
        options = ("--schema", found.schema, "--key", found.key, "--folds", 2)
        done("encrypt", found.home / f"half{half}.csv", found.table(half), *options)
    return found
