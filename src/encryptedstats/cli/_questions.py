"""Questions about a table, and the variables in them, in words."""

from __future__ import annotations

from collections.abc import Iterable

import encryptedstats as es
from encryptedstats.tables.statistics import CLASS


def question_text(name: str, variables: Iterable[str]) -> str:
    """A question in words.

    >>> question_text("counts", ["v0", "class"]), question_text("crosstab", ["v0", "v1"]), question_text("moments", ["v3"])
    ('counts of v0 by class', 'cross table of v0 and v1', 'moments of v3')
    """
    between = {"counts": " by ", "crosstab": " and "}.get(name, ", ")
    return f"{'cross table' if name == 'crosstab' else name} of {between.join(variables)}"


def variable_name(position: int, schema: es.Schema | None = None) -> str:
    """A variable as the owner calls it, or as a worker has to; the class has the position -1."""
    if schema is None:
        return CLASS if position == -1 else f"v{position}"
    return str(schema.target) if position == -1 else schema.variables[position].name


def shortened(lines: list[str], most: int = 6) -> list[str]:
    """The first few of many lines."""
    return lines if len(lines) <= most + 1 else [*lines[:most], f"and {len(lines) - most} more"]
