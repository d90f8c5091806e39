"""Circuits: one description of a computation, read by every machine.

A model writes an expression over the columns of a table; the readers in this package give its clear
value, its bounds, its noise, its cost and its encrypted value. Imports crypto and storage, and
nothing of tables or models.
"""

from __future__ import annotations

from encryptedstats.circuits.expressions import Expression, column, linear, sum_of
from encryptedstats.circuits.layout import Layout

__all__ = ["Expression", "Layout", "column", "linear", "sum_of"]
