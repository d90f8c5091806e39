"""Every reader has a rule for every operation, and one without a rule is named with its table."""

from __future__ import annotations

from typing import Any

import pytest
from circuit_samples import lab_of

from encryptedstats.circuits import (
    Layout,
    bounds,
    clear,
    cost,
    expressions,
    lowering,
    noise,
    shapes,
)
from encryptedstats.circuits import program as programs
from encryptedstats.circuits.expressions import Expression, column
from encryptedstats.circuits.passes import (
    correction_factors,
    digits,
    interleaving,
    padding,
    pairs,
    stored_columns,
)
from encryptedstats.circuits.rules import RuleTable
from encryptedstats.publishing import sensitivity
from error_codes import error

EXPRESSIONS = {
    "column",
    "given",
    "here",
    "linear",
    "product",
    "total",
    "replicate",
    "resample",
    "mask",
}
TOTALS = {"linear", "product", "total"}
TABLES: list[tuple[RuleTable[Any], set[str]]] = [
    (expressions.PADDING, EXPRESSIONS),
    (expressions.DIGESTED, EXPRESSIONS),
    (bounds.BOUNDS, EXPRESSIONS),
    (bounds.FILLED_PADDING, EXPRESSIONS),
    (clear.CLEAR, EXPRESSIONS),
    (clear.CLEAR_TOTALS, TOTALS - {"total"}),
    (shapes.SHAPES, EXPRESSIONS),
    (shapes.REBUILT, EXPRESSIONS),
    (lowering.ROW_RULES, EXPRESSIONS - {"total"}),
    (lowering.TOTAL_RULES, TOTALS),
    (padding.VANISHES, EXPRESSIONS),
    (correction_factors.FACTORS, EXPRESSIONS),
    (digits.DIGITS, EXPRESSIONS),
    (pairs.PAIRS, EXPRESSIONS),
    (stored_columns.STORED, EXPRESSIONS),
    # Nodes without given totals are never asked.
    (interleaving.LINEAR_IN_GIVEN, EXPRESSIONS - {"column", "here"}),
    (sensitivity.ADDED_BY_ROW, TOTALS),
    (sensitivity.SENSITIVITY, EXPRESSIONS - {"total"}),
    (sensitivity.ROW_BOUNDS, {"column", "linear", "product"}),
]
STEPS = {
    value for name, value in vars(programs).items() if name.isupper() and isinstance(value, str)
} - {programs.PACKED, programs.REPLICATED, programs.SLOTS, programs.ROWS}
X, Y = column("x"), column("y")
CUBE = Expression("cube", (X,), None, False)


@pytest.mark.parametrize(("table", "operations"), TABLES, ids=lambda one: getattr(one, "name", ""))
def test_every_table_has_a_rule_for_every_expression(
    table: RuleTable[Any], operations: set[str]
) -> None:
    assert set(table) == operations


def test_the_tables_of_programs_have_a_rule_for_every_step() -> None:
    assert set(cost.COST) == STEPS
    assert set(noise.NOISE) == STEPS - {"given"}  # the noise of given packs is given


def reads(name: str) -> Any:
    """Return a reader with its table; each is handed a circuit with an operation of its own."""
    total, layout = CUBE.total(), Layout(4, 8)
    context = interleaving.split_by_given
    pack_total = expressions.pack_total("model", 0)
    with_given = Expression("cube", (pack_total,), None, False)
    factors = correction_factors.GivenFactors({"model": [1]}, {"model": [0]}, 97)
    rules = noise.NoiseRules(lab_of("bgv").parameters, with_secret_key=True)
    known = {"x": bounds.ColumnRange(0, 1)}
    return {
        "bounds": lambda: bounds.BOUNDS["cube"],
        "padding values": lambda: bounds.read_bounds([total], known, 4),
        "filled padding": lambda: bounds.find_filled_padding([total], {}),
        "clear values": lambda: clear.CLEAR["cube"],
        "shapes": lambda: shapes.Shapes([total]),
        "vanishing padding": lambda: padding.clear_padding([CUBE]),
        "correction factors": lambda: correction_factors.apply_correction_factors([CUBE], factors),
        "digits": lambda: digits.split_into_digits([total], {"x": [(0, "x0")]}),
        "pairs": lambda: pairs.join_pairs([CUBE, Expression("cube", (Y,), None, False)], 8),
        "stored columns": lambda: stored_columns.use_stored_columns([CUBE], {"x": ({"y": 1}, 0)}),
        "linearity in given totals": lambda: context(with_given * X, {"model"}),
        "sensitivity": lambda: sensitivity.substitute([CUBE], {}),
        "added by a row": lambda: sensitivity.row_contribution(
            Expression("cube", (X.total(),), None, True)
        ),
        "lowered rows": lambda: lowering.ROW_RULES["cube"],
        "noise": lambda: lowering.Lowering(
            rules, lowering.Setting(rules.parameters, layout), lowering.Schedule(lowering.FLAT)
        )._step("cube", ()),
        "cost": lambda: cost.COST["cube"],
    }[name]


@pytest.mark.parametrize(
    "name",
    [
        "bounds", "padding values", "filled padding", "clear values", "shapes", "vanishing padding",
        "correction factors", "digits", "pairs", "stored columns", "linearity in given totals",
        "sensitivity", "added by a row", "lowered rows", "noise", "cost",
    ],
)  # fmt: skip
def test_an_operation_without_a_rule_names_the_table(name: str) -> None:
    with pytest.raises(
        ValueError, check=error("no-rule-for-operation", f"the table of {name} ", "'cube'")
    ):
        reads(name)()


def test_a_new_operation_is_read_as_soon_as_its_rule_is_registered() -> None:
    expressions.PADDING.rule("cube")(lambda node, args: 0)
    bounds.FILLED_PADDING.rule("cube")(lambda node, args, padding: False)
    bounds.BOUNDS.rule("cube")(
        lambda reader, node, args: bounds.Interval(args[0].low ** 3, args[0].high ** 3)
    )
    tables = (expressions.PADDING, bounds.FILLED_PADDING, bounds.BOUNDS)
    try:
        found = bounds.read_bounds([CUBE.total()], {"x": bounds.ColumnRange(-2, 3)}, 10)
        assert found[CUBE.total()] == bounds.Interval(-80, 270)
    finally:
        for table in tables:
            del table["cube"]
