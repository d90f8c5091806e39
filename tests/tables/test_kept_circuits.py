"""Circuits that are kept for who asks again: always those of the very question."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest

import encryptedstats as es
from encryptedstats.tables import facts as facts_module
from encryptedstats.tables.facts import TableFacts

FRAME = pd.DataFrame({"x": [1, 2, 3, 4], "y": [0, 1, 0, 1]})
SCHEMA = es.Schema.infer(FRAME, target="y", bins=2)


class _Bin(es.Question):
    """How many rows have a bin; its parameters do not say which."""

    name: ClassVar[str] = "_bin"

    def __init__(self, number: int) -> None:
        self.number = number

    def totals(self, schema: Any, columns: Any = None, fold: int | None = None) -> Any:
        return {"count": np.array([es.column(f"v0.bin{self.number}").total()], dtype=object)}

    def shapes(self, schema: Any) -> Any:
        return {"count": (1,)}

    def read(self, totals: Any, schema: Any, n_rows: int) -> Any:
        return int(totals["count"][0])


@dataclass
class _ToldBin(_Bin):
    name: ClassVar[str] = "_told bin"
    number: int = 0


@pytest.fixture
def facts(small: es.Owner) -> TableFacts:
    found: TableFacts = small.encrypt(SCHEMA.table(FRAME)).facts
    return found


@pytest.mark.parametrize("kind", [_Bin, _ToldBin])
def test_questions_that_differ_have_circuits_that_differ(kind: Any, facts: TableFacts) -> None:
    for _ in range(2):
        assert facts.write_circuit(kind(0)) == kind(0).circuit(facts.schema)
        assert facts.write_circuit(kind(1)) == kind(1).circuit(facts.schema)


def test_a_kept_circuit_is_nobody_elses_list(facts: TableFacts) -> None:
    facts.write_circuit(_ToldBin(1)).clear()
    assert len(facts.write_circuit(_ToldBin(1))) == 1


def test_parameters_that_were_set_after_a_fit_do_not_leave_the_old_trees_to_others(
    facts: TableFacts,
) -> None:
    changed = (
        es.CompletelyRandomForest(2, 2, random_state=31)
        .fit(SCHEMA.table(FRAME))
        .set_params(random_state=32)
    )
    facts.write_circuit(changed)
    fresh = es.CompletelyRandomForest(2, 2, random_state=32)
    assert facts.write_circuit(fresh) == fresh.circuit(facts.schema)


def test_it_is_written_once(facts: TableFacts, monkeypatch: pytest.MonkeyPatch) -> None:
    facts_module._write_circuit.cache_clear()
    written: list[int] = []
    circuit = _ToldBin.circuit

    def counted(self: Any, *arguments: Any, **options: Any) -> Any:
        written.append(self.number)
        return circuit(self, *arguments, **options)

    monkeypatch.setattr(_ToldBin, "circuit", counted)
    for number in (0, 0, 1, 1, 0):
        facts.write_circuit(_ToldBin(number))
    assert written == [0, 1]
