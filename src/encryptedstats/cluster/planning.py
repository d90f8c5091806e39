"""The cost of a question on a stored table, from public facts of both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from encryptedstats.circuits.calibration import measured_times
from encryptedstats.circuits.compiled import Conditions, compile_outputs
from encryptedstats.circuits.cost import read_cost
from encryptedstats.circuits.layout import Layout
from encryptedstats.crypto.packing import packing_parameters
from encryptedstats.tables.columns import column_ranges
from encryptedstats.tables.facts import TableFacts
from encryptedstats.tables.questions.question import Question


def plan_question(question: Question, facts: TableFacts, rows: Sequence[int]) -> dict[str, Any]:
    """Return the work of a question on blocks of so many rows, by this machine's measured times.

    Seconds are of one core.
    """
    parameters = facts.parameters
    layout = Layout(sum(rows), parameters.slots, tuple(rows), parameters.copies)
    outputs, _ = facts.circuit(question, layout)
    ranges = tuple(column_ranges(facts.schema, facts.columns, facts.weight_bound).items())
    conditions = Conditions(parameters, layout, ranges, facts.with_secret_key)
    program = compile_outputs(tuple(outputs), conditions).program
    cost = read_cost(program)
    return {
        "core_seconds": cost.seconds(measured_times(parameters), workers=1),
        "rows": sum(rows),
        "totals": len(outputs),
        "products": cost.number("multiply"),
        "bytes_down": len(program.packs) * packing_parameters(parameters).packed_bytes(),
    }
