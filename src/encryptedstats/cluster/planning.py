"""The cost of a question on a stored table, from public facts of both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from encryptedstats.circuits.calibration import measure_times
from encryptedstats.circuits.compiled import Conditions, compile_outputs
from encryptedstats.circuits.cost import read_cost
from encryptedstats.circuits.plan import count_ciphertext_bytes
from encryptedstats.tables.columns import column_ranges
from encryptedstats.tables.facts import TableFacts
from encryptedstats.tables.questions.question import Question


def plan_question(question: Question, facts: TableFacts, rows: Sequence[int]) -> dict[str, Any]:
    """Return the work of a question on blocks of ``rows`` each, by this machine's measured times.

    Seconds are of one core.
    """
    parameters = facts.parameters
    layout = facts.layout_of(rows)
    outputs, _ = facts.circuit(question, layout)
    ranges = tuple(column_ranges(facts.schema, facts.columns, facts.weight_bound).items())
    conditions = Conditions(parameters, layout, ranges, facts.with_secret_key, facts.form)
    program = compile_outputs(tuple(outputs), conditions).program
    cost = read_cost(program)
    return {
        "core_seconds": cost.seconds(measure_times(parameters), workers=1),
        "rows": sum(rows),
        "totals": len(outputs),
        "products": cost.number("multiply"),
        "bytes_down": count_ciphertext_bytes(program),
    }
