"""What published results reveal together: differences of two results about the same or overlapping
rows.

Every published count is a sum over kinds of rows (one bin of each variable, one class). From all
counts of the same rows a reader can infer hidden counts by linear programs; and where one count
covers the rows of another and a few more, the difference is a count that nobody decided to publish.
The ledger records what was published; this module combines it with the next result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from encryptedstats.circuits.expressions import (
    COLUMN,
    LINEAR,
    PRODUCT,
    Expression,
    column_names,
    fold,
)
from encryptedstats.publishing.forms import CellForm
from encryptedstats.publishing.rules import DIFFERENCING, Finding, are_counts, rows_shown
from encryptedstats.publishing.sensitivity import possible_states
from encryptedstats.publishing.suppression import find_extremes, find_least_hidden
from encryptedstats.storage.chains import ChainEntry
from encryptedstats.tables.blocks import rows_id
from encryptedstats.tables.questions.question import Question, question_class
from encryptedstats.tables.schema.variables import PublicSchema

#: Counts of a result up to which the ledger keeps them, to compare later ones with.
MOST_KEPT: Final = 2_000
_MOST_KINDS: Final = 20_000  # of rows, up to which counts are compared
# groups of rows that no count tells apart, up to which each is bounded: two linear programs each
_MOST_ATOMS: Final = 300
_MOST_HIDDEN: Final = 300

Floats = NDArray[np.float64]
Groups = NDArray[np.bool_]  # of counts by kinds of rows
Said = Mapping[str, Any]


@dataclass(frozen=True)
class ShownNumbers:
    """The numbers that a result shows: what each row adds to them, and their values; None if
    hidden.
    """

    question: Question
    rows: Sequence[Any]
    numbers: Sequence[int | None]
    n_rows: int
    block_ids: tuple[str, ...]
    of_cells: bool = False  # then all of them count rows, sums of cells among them
    predicted: bool = False  # then they count what rows were predicted to be, which no column says
    shape: tuple[int, ...] = ()  # of the table with margins, where the numbers are one
    weighted: bool = False  # then counts are sums of weights, which do not add up to the rows

    def find_counts(self, schema: PublicSchema) -> list[tuple[Expression, int | None, int]]:
        """Return the counts of rows: what a row adds, the count, and the least a hidden one is."""
        least = [0] * len(self.numbers)
        if self.shape:
            hidden = np.array([n is None for n in self.numbers]).reshape(self.shape)
            least = [int(x) for x in find_least_hidden(hidden).flat]
        listed = zip(self.rows, self.numbers, least, self.count_rows(schema), strict=True)
        return [(row, n, low) for row, n, low, counts in listed if counts]

    def count_rows(self, schema: PublicSchema) -> list[bool]:
        """Return which of the numbers count rows."""
        if self.of_cells or self.predicted:
            return [True] * len(self.numbers)
        return are_counts(list(self.rows), schema)

    def facts(self) -> dict[str, Any]:
        """Return the facts for the ledger."""
        kept = {"shown": list(self.numbers)} if len(self.numbers) <= MOST_KEPT else {}
        return {**kept, "predicted": True} if self.predicted else kept


@dataclass(frozen=True)
class Audit:
    """Findings, and the entries of the ledger that the result could not be compared with."""

    findings: tuple[Finding, ...]
    unknown: tuple[int, ...]


def audit_result(
    new: ShownNumbers,
    before: Sequence[ChainEntry],
    schema: PublicSchema,
    schema_hash: str,
    min_count: int,
) -> Audit:
    """Return what a new result would reveal together with the results in the ledger."""
    findings: list[Finding] = []
    same: list[ShownNumbers] = []
    unknown: list[int] = []
    for entry in before:
        said = entry.content
        if said.get("what") != "published":
            continue
        findings += _of_rows(new, said, entry.number, schema, schema_hash, min_count)
        if _may_be_encrypted_anew(new, said, schema_hash, min_count):
            unknown.append(entry.number)
        if _rows_of(said["blocks"]) == _rows_of(new.block_ids) and said["rows"] == new.n_rows:
            comparable = said["schema"] == schema_hash and not (
                new.predicted or said.get("predicted")
            )
            old = _numbers_before(said, schema) if comparable else None
            if old is None:
                unknown.append(entry.number)
            else:
                same.append(old)
    if same:
        found = _of_counts([new, *same], schema, min_count)
        if found is None:
            unknown += [entry.number for entry in before if entry.content.get("shown") is not None]
        else:
            findings += found[0]
            if not found[1]:
                unknown += _compare(before, new)
    return Audit(tuple(findings), tuple(dict.fromkeys(unknown)))


def _compare(before: Sequence[ChainEntry], new: ShownNumbers) -> list[int]:
    """Return the entries of the same rows."""
    listed = [entry for entry in before if entry.content.get("what") == "published"]
    rows = _rows_of(new.block_ids)
    return [entry.number for entry in listed if _rows_of(entry.content["blocks"]) == rows]


def _rows_of(block_ids: Iterable[str]) -> set[str]:
    """Return what tells the rows of blocks, also where they were encrypted anew."""
    return {rows_id(block) for block in block_ids}


def _may_be_encrypted_anew(new: ShownNumbers, said: Said, schema_hash: str, min_count: int) -> bool:
    """Return whether an entry without any block of these may be of the same rows, or of all but a
    few.

    Small blocks are not known again where they are encrypted anew.
    """
    if _rows_of(new.block_ids) & _rows_of(said["blocks"]) or said["schema"] != schema_hash:
        return False
    return abs(new.n_rows - int(said["rows"])) < max(min_count, 1)


def _of_rows(
    new: ShownNumbers,
    said: Said,
    number: int,
    schema: PublicSchema,
    schema_hash: str,
    min_count: int,
) -> Iterator[Finding]:
    """Yield findings about rows that only one of two results has, such as a model without one
    shard.
    """
    own, others = _rows_of(new.block_ids), _rows_of(said["blocks"])
    if not own & others or own == others:
        return
    between = abs(new.n_rows - int(said["rows"]))
    if not (own < others or others < own):
        text = (
            f"it has some of the rows of entry {number} of the ledger, and not all: what lies "
            "between is not known here"
        )
        yield Finding(DIFFERENCING, text)
    elif between < min_count:
        yield Finding(
            DIFFERENCING,
            f"it has the rows of entry {number} of the ledger but for fewer than {min_count}: the "
            "difference is a result of these few",
        )
    elif (said["question"], said["params"], said["schema"], bool(said.get("predicted"))) == (
        new.question.name,
        new.question.parameters(),
        schema_hash,
        new.predicted,
    ):
        pairs = zip(new.numbers, said.get("shown", ()), new.count_rows(schema), strict=False)
        both = [(a, b) for a, b, counts in pairs if counts and a is not None and b is not None]
        if any(0 < abs(a - b) < min_count for a, b in both):
            text = (
                f"less entry {number} of the ledger, which is of some of its rows, it has counts "
                f"of 1 to {min_count - 1} rows"
            )
            yield Finding(DIFFERENCING, text)


def _numbers_before(said: Said, schema: PublicSchema) -> ShownNumbers | None:
    """Return the numbers that an entry of the ledger has shown, or None if they are unknown."""
    try:
        question = question_class(said["question"])._from_parameters(said["params"])
        form, rows = rows_shown(question, schema)
    except (ValueError, TypeError, LookupError):
        return None
    of_cells = isinstance(form, CellForm)
    shape: tuple[int, ...] = ()
    if isinstance(form, CellForm):
        rows, shape = cells_and_sums(form), shape_with_margins(form)
    numbers = said.get("shown", ())
    if len(rows) != len(numbers):
        return None
    return ShownNumbers(
        question, rows, numbers, int(said["rows"]), tuple(said["blocks"]), of_cells, shape=shape
    )


def cells_and_sums(form: CellForm) -> list[Any]:
    """Return what a row adds to every cell of a table and to every sum, in the order
    with margins.
    """
    found = np.array(form.rows, dtype=object).reshape(form.shapes["cells"])
    for axis in range(found.ndim):
        found = np.concatenate([found, found.sum(axis=axis, keepdims=True)], axis=axis)
    return list(found.flat)


def shape_with_margins(form: CellForm) -> tuple[int, ...]:
    """Return the shape of the table of a question with its margins."""
    return tuple(size + 1 for size in form.shapes["cells"])


# -- counts of the same rows
# ------------------------------------------------------------------------------------------------


def _of_counts(
    results: Sequence[ShownNumbers], schema: PublicSchema, min_count: int
) -> tuple[list[Finding], bool] | None:
    """Find what counts of several results of the same rows tell together, and whether all was
    tried.

    Return None where there are too many kinds of rows.
    """
    lists = [one.find_counts(schema) for one in results]
    counts = [entry for listed in lists for entry in listed]
    if not counts:
        return [], True
    groups = _atoms([row for row, _, _ in counts], schema)
    if groups is None:
        return None
    everything = np.ones((0 if results[0].weighted else 1, groups.shape[1]), dtype=bool)
    shown = [k for k, (_, number, _) in enumerate(counts) if number is not None]
    hidden = [k for k, (_, number, _) in enumerate(counts) if number is None]
    known = np.concatenate([groups[shown], everything])
    total = [results[0].n_rows] * len(everything)
    values = np.array([*(counts[k][1] for k in shown), *total], dtype=float)
    of_new = np.array([*(k < len(lists[0]) for k in shown), *(False for _ in total)])
    least = np.array([counts[k][2] for k in hidden], dtype=float)
    more, complete = _conclude(known, values, groups[hidden], least, min_count)
    return [*_compare_nested(known, values, of_new, min_count), *more], complete


def _atoms(rows: Sequence[Expression], schema: PublicSchema) -> Groups | None:
    """Return which rows each count covers, as the fewest groups that every count covers fully or
    not at all.
    """
    states = possible_states(schema, column_names(rows), tried=False)
    size = 1
    for listed in states.values():
        size *= len(listed)
    if size > _MOST_KINDS or size * len(rows) > _MOST_KINDS * MOST_KEPT:
        return None
    kinds = list(product(*states.values()))
    columns = {
        name: np.array([kind[place][name] for kind in kinds], dtype=np.int64)
        for place, listed in enumerate(states.values())
        for name in listed[0]
    }

    def rule(node: Expression, args: list[Any]) -> Any:
        if node.op == COLUMN:
            return columns[node.data]
        if node.op == PRODUCT:
            return args[0] * args[1]
        assert node.op == LINEAR  # what counts rows has nothing else
        return sum(
            (c * x for c, x in zip(node.data[0], args, strict=True)),
            np.full(len(kinds), node.data[1]),
        )

    values = fold(rows, rule)
    return np.unique(np.array([values[row] > 0 for row in rows], dtype=bool), axis=1)


def _compare_nested(
    groups: Groups, values: Floats, of_new: NDArray[np.bool_], min_count: int
) -> list[Finding]:
    """Counts of the new result and of others, of which one is of all rows of the other, and of few
    more.
    """
    small = False
    for one, own, new in zip(groups, values, of_new, strict=True):
        inside = (groups <= one).all(axis=1) & (groups < one).any(axis=1) & (of_new != new)
        small |= bool((inside & (own - values > 0) & (own - values < min_count)).any())
    if not small:
        return []
    return [
        Finding(
            DIFFERENCING,
            f"it differs by 1 to {min_count - 1} rows from counts that the ledger has, or from all "
            "rows: one count is of the same rows as another, and of these few",
        )
    ]


def _conclude(
    groups: Groups, values: Floats, hidden: Groups, least: Floats, min_count: int
) -> tuple[list[Finding], bool]:
    """Find hidden counts, and uncounted groups of rows, that are known from the others to be small.

    Counts are whole, and hidden ones are at least ``least``. Also return whether all were tried.
    """
    secret = np.unique(hidden, axis=0)
    atoms = np.eye(groups.shape[1], dtype=bool)
    complete = len(secret) <= _MOST_HIDDEN and len(atoms) <= _MOST_ATOMS
    secret, atoms = secret[:_MOST_HIDDEN], atoms if len(atoms) <= _MOST_ATOMS else atoms[:0]
    lines = groups.astype(float)
    above = hidden[least > 0].astype(float), least[least > 0]

    def is_known(goal: Groups, *, was_hidden: bool) -> bool:
        found = find_extremes(goal.astype(float), lines, values, *above)
        if found is None:  # not solved: nothing is concluded to be safe
            return True
        low, high = round(found[0]), round(found[1])
        if was_hidden:  # it is nearly known, and may be small
            return high - low < min_count - 1 and high > 0 and low < min_count
        return low > 0 and high < min_count

    counted = {tuple(goal) for goal in secret}
    if not any(is_known(goal, was_hidden=True) for goal in secret) and not any(
        is_known(goal, was_hidden=False) for goal in atoms if tuple(goal) not in counted
    ):
        return [], complete
    text = (
        f"with what the ledger has, groups of 1 to {min_count - 1} rows could be computed that "
        "nothing shows"
    )
    return [Finding(DIFFERENCING, text)], complete
