"""Small cells: the groups of a site's people that a question about linked columns would count.

A site knows who sits in which slot. A cell that is made from its own columns and holds three people
would tell, in a total with another site's column, what that column says of these three; and so
would a number that is the same for everybody but these three, less that number for everybody. So
each site counts the people of every cell that its own columns make, before it encrypts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from encryptedstats.circuits.expressions import COLUMN, LINEAR, PRODUCT, TOTAL, Expression, fold
from encryptedstats.circuits.rules import RuleTable
from encryptedstats.errors import Cure, DisclosureError
from encryptedstats.studies.linkage import TARGET_POSITION, question_columns
from encryptedstats.tables import PublicSchema, Table
from encryptedstats.tables.encodings import Column
from encryptedstats.tables.questions.question import bin_columns

if TYPE_CHECKING:
    from encryptedstats.studies.documents import StudyDocument


@dataclass(frozen=True)
class _KnownPart:
    """What a site knows of a number of every row: its value, or where it can differ from 0.

    Attributes
    ----------
    values : array, or int where it is the same in every row
        None where columns of other sites are in it.
    support : array, or bool
        Rows in which it can differ from 0.
    weight : array, or int
        What columns of other sites are multiplied by in every row; None where it is a sum of
        several.
    """

    values: Any
    support: Any
    weight: Any = None


def check_cells(document: StudyDocument, site: str, table: Table) -> None:
    """Refuse to encrypt rows where a question counts few people of one cell of this site."""
    linkage = document.linkage
    assert linkage is not None
    known = linkage.places(site)
    schema = document.schema
    for name, one in document.questions.items():
        totals = one.question.circuit(document.schema, question_columns(document.schema))
        smallest = smallest_cell([*totals, *_bins_of(schema, known)], table, known)
        if smallest is not None and smallest < linkage.min_count:
            raise DisclosureError(
                f"{name!r} counts {smallest} of your people in one cell of your own columns, and "
                f"the study has agreed on {linkage.min_count} or more: as sites know who is in "
                "their cells, it would tell what other sites know of them. ",
                Cure("coarser bins", "Agree on a study with coarser bins or fewer variables"),
                code="small-cell",
            )


def _bins_of(schema: PublicSchema, known: Mapping[int, int]) -> list[Expression]:
    """Return the counts of all bins of a site's variables: questions add and subtract them."""
    binned = [j for j in known if j != TARGET_POSITION and schema.variables[j].n_bins]
    return [one.total() for j in binned for one in bin_columns(schema, j)]


def smallest_cell(
    totals: Sequence[Expression], table: Table, known: Mapping[int, int]
) -> int | None:
    """Return the number of people in the smallest cell, or None where no total has a cell.

    ``known`` has the position in the table of each variable of the study that it holds.
    """
    found: list[int] = []

    def rule(node: Expression, args: list[_KnownPart]) -> _KnownPart:
        if node.op == TOTAL:
            count = int(np.broadcast_to(args[0].support, len(table)).sum())
            counts = [count, _count_unlike(args[0].weight, len(table))]
            found.extend(one for one in counts if 0 < one < len(table))
        return CELLS[node.op](node, args, lambda name: _own_column(name, table, known))

    fold(totals, rule)
    return min(found, default=None)


def _count_unlike(weight: Any, n_rows: int) -> int:
    """Return how many rows have another weight than most rows."""
    if weight is None or np.ndim(weight) == 0:
        return 0
    return n_rows - int(np.unique(weight, return_counts=True)[1].max(initial=0))


def _own_column(name: str, table: Table, known: Mapping[int, int]) -> NDArray[np.int64] | None:
    asked = Column.parse(name)
    if asked.variable not in known:
        return None
    local = Column(asked.encoding, known[asked.variable], asked.index, asked.fold, asked.bits)
    return table.values(local)


Read = Callable[[str], Any]
#: What a site knows of a node, from what it knows of its args.
CELLS: Final = RuleTable[Callable[[Expression, list[_KnownPart], Read], _KnownPart]]("cells")

CELLS.rule(TOTAL)(lambda node, args, read: args[0])


@CELLS.rule(COLUMN)
def _column_part(node: Expression, args: list[_KnownPart], read: Read) -> _KnownPart:
    values = read(node.data)
    return _KnownPart(None, True, 1) if values is None else _part_of(values)


def _part_of(values: Any) -> _KnownPart:
    return _KnownPart(values, values != 0, values)


@CELLS.rule(PRODUCT)
def _product_part(node: Expression, args: list[_KnownPart], read: Read) -> _KnownPart:
    left, right = args
    both = left.values is not None and right.values is not None
    values = left.values * right.values if both else None
    alone = left.weight is not None and right.weight is not None
    weight = left.weight * right.weight if alone else None
    return _KnownPart(values, left.support & right.support, weight)


@CELLS.rule(LINEAR)
def _sum_part(node: Expression, args: list[_KnownPart], read: Read) -> _KnownPart:
    if node.is_total:
        return _KnownPart(None, True)
    coefficients, constant = node.data
    if all(one.values is not None for one in args):
        values = constant + sum(c * one.values for c, one in zip(coefficients, args, strict=True))
        return _part_of(values)
    support: Any = constant != 0
    for one in args:
        support = support | one.support
    return _KnownPart(None, support)
