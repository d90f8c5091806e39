"""How many files of the library a fit and an encryption pass through.

Anybody who follows a row or a question has to open these files. Passes and tables of rules are not
counted: they are lists of small independent pieces.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pandas as pd
import pytest

import encryptedstats as es
from insecure import insecure_parameters

ROOT = Path(es.__file__).parent
RULES = {"tables/encodings.py", "tables/questions/constraints.py", "circuits/rules.py"}
MOST_OF_A_FIT = 35
MOST_OF_AN_ENCRYPTION = 22


def files_entered(call: Callable[[], object]) -> set[str]:
    """Return the files of which a function is called, in any thread."""
    found: set[str] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            found.add(frame.f_code.co_filename)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]  # typeshed wants a function
    inside = (Path(name) for name in found if Path(name).is_relative_to(ROOT))
    names = {path.relative_to(ROOT).as_posix() for path in inside}
    return {name for name in names if "/passes/" not in name} - RULES


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": rng.normal(50, 10, 100).round(1),
            "sex": rng.choice(["f", "m"], 100),
            "ill": rng.integers(0, 2, 100),
        }
    )


@pytest.fixture(scope="module")
def owner() -> es.Owner:
    return es.Owner(insecure_parameters("bgv", 4000, (45,) * 5))


def test_an_encryption_enters_few_files(owner: es.Owner, rows: pd.DataFrame) -> None:
    schema = es.Schema.infer(rows, target="ill")
    entered = files_entered(lambda: owner.encrypt(schema.table(rows, slots=512)))
    assert {"tables/encryption.py", "tables/rows/table_from_frame.py"} <= entered
    assert len(entered) <= MOST_OF_AN_ENCRYPTION, sorted(entered)


@pytest.mark.parametrize(
    "model",
    [es.CompletelyRandomForest(n_trees=2, depth=2), es.MultinomialNB()],
    ids=lambda model: type(model).__name__,
)
def test_a_fit_enters_few_files(owner: es.Owner, rows: pd.DataFrame, model: Any) -> None:
    table = owner.encrypt(es.Schema.infer(rows, target="ill").table(rows, slots=512))
    model.fit(table)  # compiles; a plan has done that before
    entered = files_entered(lambda: model.fit(table))
    assert {"tables/encrypted_table.py", "circuits/evaluate.py"} <= entered
    assert len(entered) <= MOST_OF_A_FIT, sorted(entered)
