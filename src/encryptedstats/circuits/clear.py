"""Evaluate a circuit on plain integers, exactly as the encrypted evaluation does.

A node is computed modulo 2^k, with the smallest k that holds the interval proven for it: sums and
products modulo 2^k are right modulo 2^k, and the interval selects the number. The nodes of trees
are 0 or 1, so k = 1: 64 rows are one word, a product is AND, a sum is XOR of the terms with odd
factors, and a total is the number of ones. Other nodes are the smallest NumPy integers that hold
them, and Python integers beyond 64 bits. Rows are read block by block, and the values of a block
are dropped after their last use, so that memory does not grow with rows times nodes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, reduce
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from encryptedstats.circuits.bounds import ColumnRange, Interval, read_bounds
from encryptedstats.circuits.expressions import (
    COLUMN,
    GIVEN,
    HERE,
    LINEAR,
    MASK,
    PRODUCT,
    REPLICATE,
    RESAMPLE,
    TOTAL,
    Expression,
    Marks,
    Weights,
    column_names,
    fold,
    in_order,
    padding_value,
    totals_of,
)
from encryptedstats.circuits.layout import Layout
from encryptedstats.circuits.rules import RuleTable
from encryptedstats.errors import ArgumentError, ArgumentTypeError

Values = NDArray[Any]
DType = np.dtype[Any]

_BIT: DType = np.dtype(bool)  # stored as 64 values in a word
_INTEGERS: tuple[DType, ...] = tuple(map(np.dtype, ("u1", "i1", "u2", "i2", "u4", "i4", "i8")))
_PYTHON: DType = np.dtype(object)
_BLOCK_BYTES = 8 << 20  # of all live nodes of a block, so that they stay in the processor's cache
_LEAST_ROWS = 4096  # of a block; with fewer, the overhead of NumPy dominates


def read_clear(
    outputs: Iterable[Expression],
    columns: Mapping[Any, Values],
    layout: Layout,
    *,
    ranges: Mapping[Any, ColumnRange] | None = None,
) -> list[Any]:
    """Return the value of every output: an integer for a total, else an array over the rows.

    Parameters
    ----------
    outputs : expressions
    columns : mapping
        The rows of every column that occurs. Each is read once and kept in the smallest type.
    layout : Layout
    ranges : mapping, optional
        The public ranges of the columns; by default those of their values.
    """
    outputs = list(outputs)
    if ranges is None:
        names = [*column_names(outputs), *totals_of(outputs)]
        ranges = {name: _range_of(np.asarray(columns[name])) for name in names}
    return _ClearReader(outputs, columns, layout, ranges).read()


class _ClearReader:
    """One circuit on the rows of one table."""

    def __init__(
        self,
        outputs: list[Expression],
        columns: Mapping[Any, Values],
        layout: Layout,
        ranges: Mapping[Any, ColumnRange],
    ) -> None:
        self.outputs, self.layout = outputs, layout
        self.order = list(in_order(outputs))
        self.places = _Places(layout, slots=any(node.op == RESAMPLE for node in self.order))
        bounds = read_bounds(outputs, ranges, layout.n_rows, layout.n_places)
        self.types = {node: _smallest_type(bounds[node]) for node in self.order}
        self.largest = {node: bounds[node].largest for node in self.order}
        padding = padding_value(outputs)
        self.padding = {
            node: check_padding(node, padding) for node in self.order if node.op == TOTAL
        }
        self.columns = {
            node: self._convert(node, self._load(node, columns), bounds[node])
            for node in self.order
            if node.op in (COLUMN, GIVEN, HERE)
        }
        self.totals: dict[Expression, int] = {}
        self.rows = {
            node: np.empty(self.places.count, np.int64 if self.largest[node] < 1 << 63 else object)
            for node in outputs
            if not node.is_total
        }

    def read(self) -> list[Any]:
        """Read all rows, once more for each time that a total returns to the rows."""
        stages = fold(
            self.outputs, lambda node, args: max(args, default=0) + (node.op == REPLICATE)
        )
        for stage in range(max(stages.values(), default=-1) + 1):
            now = [node for node in self.order if stages[node] == stage]
            self._read_rows([node for node in now if node.op == TOTAL or node in self.rows])
            for node in now:
                if node.is_total and node.op != TOTAL:
                    args = [self.totals[arg] for arg in node.args]
                    self.totals[node] = CLEAR_TOTALS[node.op](node, args)
        return [
            self.totals[output] if output.is_total else self.places.to_rows(self.rows[output])
            for output in self.outputs
        ]

    def _read_rows(self, wanted: list[Expression]) -> None:
        """Compute totals and outputs over rows from known totals."""
        totals = [node for node in wanted if node.op == TOTAL]
        rows = [node for node in wanted if node.op != TOTAL]
        steps = self._steps(wanted)
        self.totals.update({node: -self.padding[node] * self.places.padding for node in totals})
        for block in self.places.blocks(self._bits_alive(steps)):
            values: dict[Expression, Any] = {}
            for node, args, rule, done in steps:
                values[node] = rule(block, [values[arg] for arg in args])
                for last in done:
                    del values[last]
            for node in totals:
                self.totals[node] += values[node]
            for node in rows:
                self.rows[node][block.start : block.stop] = _numbers(
                    values[node], self.types[node], block
                )

    def _steps(self, wanted: list[Expression]) -> list[_Step]:
        """Return the rule of every node, with the nodes that are not needed after it."""
        steps: list[_Step] = []
        needed = set(wanted)
        for node in reversed(self.order):
            if node in needed:
                args = () if node.op == REPLICATE else node.args  # a replicated total is a number
                done = [arg for arg in dict.fromkeys(args) if arg not in needed]
                steps.append((node, args, CLEAR[node.op](self, node), done))
                needed.update(args)
        return steps[::-1]

    def _bits_alive(self, steps: Sequence[_Step]) -> int:
        """Return the most bits that the nodes of one row take at any time."""
        most = alive = 0
        for node, _, _, done in steps:
            alive += 0 if node.is_total else _bits_of(self.types[node])
            most = max(most, alive)
            alive -= sum(_bits_of(self.types[last]) for last in done)
        return most

    def _load(self, node: Expression, columns: Mapping[Any, Values]) -> Values:
        return (
            np.full(self.layout.n_rows, node.data[0])
            if node.op == HERE
            else np.asarray(columns[node.data])
        )

    def _convert(self, node: Expression, rows: Values, interval: Interval) -> Values:
        """Return a column at its places, in the type of its node."""
        if len(rows) != self.layout.n_rows:
            raise ArgumentError(
                f"a column of {len(rows)} rows in a table of {self.layout.n_rows}",
                code="wrong-number-of-rows",
            )
        held = _range_of(rows)
        if not (interval.low <= held.low and held.high <= interval.high):
            raise ArgumentError(
                f"column {node.data} holds numbers from {held.low} to {held.high}, and its range "
                f"is {interval.low} to {interval.high}",
                code="values-outside-bounds",
            )
        kind, rows = self.types[node], self.places.from_rows(rows)
        return (
            _pack_bits(rows.astype(bool, copy=False))
            if kind == _BIT
            else rows.astype(kind, copy=False)
        )


# -- places of values
# ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Block:
    """Values from ``start``, which begins a word, to ``stop``."""

    start: int
    stop: int

    @property
    def rows(self) -> slice:
        return slice(self.start, self.stop)

    @property
    def words(self) -> slice:
        return slice(self.start // 64, -(-self.stop // 64))

    @property
    def count(self) -> int:
        return self.stop - self.start

    @cached_property
    def ones(self) -> Values:
        """Return a 1 for every row, in words; unused bits of the last word stay 0 everywhere."""
        return _pack_bits(np.ones(self.count, dtype=bool))

    @cached_property
    def zeros(self) -> Values:
        return np.zeros_like(self.ones)


_Rule = Callable[[_Block, list[Any]], Any]
#: A node, its args and rule, and the nodes to drop after it.
_Step = tuple[Expression, tuple[Expression, ...], _Rule, list[Expression]]


@dataclass(frozen=True)
class _Places:
    """Where values are computed: at the rows, or, if some are moved, at all slots with padding."""

    layout: Layout
    slots: bool

    @property
    def count(self) -> int:
        return self.layout.n_chunks * self.layout.slots if self.slots else self.layout.n_rows

    @property
    def padding(self) -> int:
        return self.layout.padding if self.slots else 0

    def blocks(self, bits_alive: int) -> Iterator[_Block]:
        """Return all places in order, in a single block if values are moved."""
        most = max(_LEAST_ROWS, 8 * _BLOCK_BYTES // max(1, bits_alive)) // 64 * 64
        step = max(1, self.count) if self.slots else most
        return (
            _Block(start, min(start + step, self.count)) for start in range(0, self.count, step)
        )

    def from_rows(self, rows: Values) -> Values:
        return to_slots(rows, self.layout, rows.dtype).reshape(-1) if self.slots else rows

    def to_rows(self, values: Values) -> Values:
        slots = (self.layout.n_chunks, self.layout.slots)
        return from_slots(values.reshape(slots), self.layout) if self.slots else values

    def of_marks(self, marks: Marks) -> NDArray[np.int64]:
        check_marks(marks, self.layout)
        if isinstance(marks, Weights):
            raise ArgumentTypeError(
                "weights are numbers modulo t, and clear values have no modulus",
                code="weights-in-clear",
            )
        first = (
            marks.chunk * self.layout.slots if self.slots else self.layout.rows_of(marks.chunk)[0]
        )
        return first + marks.slots


# -- types
# ------------------------------------------------------------------------------------------------


def _smallest_type(interval: Interval) -> DType:
    if interval.low >= 0 and interval.high <= 1:
        return _BIT
    for kind in _INTEGERS:
        known = np.iinfo(kind)
        if known.min <= interval.low and interval.high <= known.max:
            return kind
    return _PYTHON


def _bits_of(kind: DType) -> int:
    # A Python integer takes 32 bytes besides its pointer.
    return 1 if kind == _BIT else 8 * kind.itemsize * (5 if kind == _PYTHON else 1)


def _range_of(rows: Values) -> ColumnRange:
    if rows.dtype == _BIT or not len(rows):
        return ColumnRange(0, int(rows.any()))
    return ColumnRange(int(rows.min()), int(rows.max()))


def _wrap(number: int, kind: DType) -> Any:
    """Return a number modulo 2^k, as a scalar of a type of k bits."""
    if kind == _PYTHON:
        return number
    return np.array([number % (1 << 8 * kind.itemsize)], dtype=f"u{kind.itemsize}").view(kind)[0]


def _pack_bits(rows: Values) -> Values:
    """Pack 64 zeros and ones into each word."""
    words = np.zeros(-(-len(rows) // 64), dtype=np.uint64)
    packed = np.packbits(rows)
    words.view(np.uint8)[: len(packed)] = packed
    return words


def _numbers(values: Values, kind: DType, block: _Block) -> Values:
    """Return the values of a node as an array over the rows of the block."""
    return np.unpackbits(values.view(np.uint8), count=block.count) if kind == _BIT else values


def _bits(values: Values, kind: DType) -> Values:
    """Return the values of a node modulo 2, packed."""
    return values if kind == _BIT else _pack_bits((values & 1).astype(bool))


@cache
def _ones_of_all() -> Values:
    """Count the ones in all numbers of 16 bits."""
    every = np.arange(1 << 16, dtype=np.uint16)
    ones: Values = np.unpackbits(every.view(np.uint8)).reshape(-1, 16).sum(axis=1, dtype=np.uint8)
    return ones


def _ones_by_table(words: Values) -> Values:
    """Count the ones in each quarter of a word; NumPy before version 2 has no function for it."""
    counts: Values = _ones_of_all()[words.view(np.uint16)]
    return counts


_ones: Callable[[Values], Values] = getattr(np, "bitwise_count", _ones_by_table)


# -- rules: the value of a node in a block, from those of its args
# ---------------------------------------------------------------

#: Returns the rule of a node in any block of rows.
CLEAR: Final = RuleTable[Callable[[_ClearReader, Expression], _Rule]]("clear values")
#: Computes a total from other totals.
CLEAR_TOTALS: Final = RuleTable[Callable[[Expression, list[int]], int]]("clear totals")

CLEAR_TOTALS.rule(PRODUCT)(lambda node, args: args[0] * args[1])


@CLEAR_TOTALS.rule(LINEAR)
def _add_totals(node: Expression, args: list[int]) -> int:
    coefficients, constant = node.data
    return int(constant + sum(c * value for c, value in zip(coefficients, args, strict=True)))


@CLEAR.rule(COLUMN, GIVEN, HERE)
def _read_column(reader: _ClearReader, node: Expression) -> _Rule:
    rows = reader.columns[node]
    if reader.types[node] == _BIT:
        return lambda block, _: rows[block.words]
    return lambda block, _: rows[block.rows]


@CLEAR.rule(PRODUCT)
def _multiply(reader: _ClearReader, node: Expression) -> _Rule:
    kind, (a, b) = reader.types[node], (reader.types[arg] for arg in node.args)
    if kind == a == b == _BIT:
        return lambda _, values: np.bitwise_and(*values)
    if kind == _BIT:
        return lambda _, values: _bits(values[0], a) & _bits(values[1], b)
    return lambda block, values: np.multiply(
        _numbers(values[0], a, block), _numbers(values[1], b, block), dtype=kind, casting="unsafe"
    )


@CLEAR.rule(LINEAR)
def _combine(reader: _ClearReader, node: Expression) -> _Rule:
    args = [reader.types[arg] for arg in node.args]
    return _linear_rule(reader.types[node], args, *node.data)


@CLEAR.rule(REPLICATE)
def _replicate(reader: _ClearReader, node: Expression) -> _Rule:
    return _linear_rule(reader.types[node], [], (), reader.totals[node.args[0]])


def _linear_rule(
    kind: DType, args: list[DType], coefficients: Sequence[int], constant: int
) -> _Rule:
    if kind == _BIT:
        odd = [i for i, coefficient in enumerate(coefficients) if coefficient % 2]

        def parity(block: _Block, values: list[Values]) -> Values:
            terms = [_bits(values[i], args[i]) for i in odd]
            if constant % 2:
                terms.append(block.ones)
            return reduce(np.bitwise_xor, terms) if terms else block.zeros

        return parity
    factors = [_wrap(coefficient, kind) for coefficient in coefficients]
    start = _wrap(constant, kind)

    def combination(block: _Block, values: list[Values]) -> Values:
        result = np.full(block.count, start, dtype=kind)
        for factor, value, known in zip(factors, values, args, strict=True):
            term = _numbers(value, known, block)
            if factor != 1:
                term = np.multiply(term, factor, dtype=kind, casting="unsafe")
            np.add(result, term, out=result, dtype=kind, casting="unsafe")
        return result

    return combination


@CLEAR.rule(TOTAL)
def _sum_rows(reader: _ClearReader, node: Expression) -> _Rule:
    (arg,) = node.args
    if reader.types[arg] == _BIT:
        return lambda _, values: int(_ones(values[0]).sum(dtype=np.int64))
    largest = reader.largest[arg]

    def total(block: _Block, values: list[Values]) -> int:
        return int(values[0].sum(dtype=np.int64 if largest * block.count < 1 << 63 else object))

    return total


@CLEAR.rule(MASK)
def _mask(reader: _ClearReader, node: Expression) -> _Rule:
    kind, arg = reader.types[node], reader.types[node.args[0]]
    places = reader.places.of_marks(node.data)

    def mask(block: _Block, values: list[Values]) -> Values:
        marked = np.zeros(block.count, dtype=bool)
        marked[places[(block.start <= places) & (places < block.stop)] - block.start] = True
        if kind == _BIT:
            return _bits(values[0], arg) & _pack_bits(marked)
        return np.where(marked, _numbers(values[0], arg, block), _wrap(0, kind)).astype(
            kind, copy=False
        )

    return mask


@CLEAR.rule(RESAMPLE)
def _resample(reader: _ClearReader, node: Expression) -> _Rule:
    kind, layout = reader.types[node], reader.layout
    shift = draw_shift(node.data, layout)

    def resample(block: _Block, values: list[Values]) -> Values:
        slots = _numbers(values[0], kind, block).reshape(layout.n_chunks, layout.slots)
        moved = permute_slots(slots, shift, layout.turn).reshape(-1)
        return _pack_bits(moved) if kind == _BIT else moved

    return resample


# -- padding, slots, moves
# ---------------------------------------------------------------------------------------------


# -- lanes -----------------------------------------------------------------------------------------

#: Values of a node in lanes, from those of its args: a row of numbers for each row of the table.
LANES: Final = RuleTable[Callable[[Expression, Sequence[Values]], Values]]("values in lanes")


@LANES.rule(PRODUCT)
def _multiply_lanes(node: Expression, args: Sequence[Values]) -> Values:
    found: Values = args[0] * args[1]
    return found


@LANES.rule(TOTAL)
def _sum_rows_of_lanes(node: Expression, args: Sequence[Values]) -> Values:
    found: Values = args[0].sum(axis=0)
    return found


@LANES.rule(LINEAR)
def _add_lanes(node: Expression, args: Sequence[Values]) -> Values:
    coefficients, constant = node.data
    found: Values = constant + sum(c * x for c, x in zip(coefficients, args, strict=True))
    return found


def sum_lanes(
    outputs: Iterable[Expression],
    columns: Mapping[Any, Values],
    layout: Layout,
    ranges: Mapping[Any, ColumnRange],
) -> list[int]:
    """Sum expressions over rows that hold a number for each lane; of each output all lanes.

    A column has one number for each row, or one for each row and lane.
    """
    outputs = list(outputs)
    bounds = read_bounds(outputs, ranges, layout.n_rows, layout.n_places)
    fits = max(bound.largest for bound in bounds.values()) < 1 << 62
    kind = np.dtype(np.int64) if fits else _PYTHON

    def rule(node: Expression, args: list[Values]) -> Values:
        if node.op == COLUMN:
            values = np.asarray(columns[node.data])
            return values.astype(kind).reshape(len(values), -1)
        return LANES[node.op](node, args)

    found: list[int] = []
    for output in outputs:  # one after the other: all nodes at once would be many times the table
        total = fold([output], rule)[output]
        found += np.broadcast_to(total, layout.lanes).tolist()
    return found


def check_padding(total: Expression, padding: Mapping[Expression, int | None]) -> int:
    """Return what one padding slot adds to a total; refuse it if that is encrypted."""
    value = padding[total.args[0]]
    if value is None:
        raise ArgumentError(
            f"the total of {total.args[0]!r} would count padding slots, whose content is "
            "encrypted: multiply by a column, such as a class indicator, before taking the total",
            code="padding-counted",
        )
    return value


def to_slots(rows: Values, layout: Layout, dtype: Any = np.int64) -> Values:
    """Put rows into slots, of shape (chunks, slots), with zeros as padding."""
    slots = np.zeros((layout.n_chunks, layout.slots), dtype=dtype)
    start = 0
    for chunk, count in enumerate(layout.counts):
        slots[chunk, :count] = rows[start : start + count]
        start += count
    return slots


def from_slots(slots: Values, layout: Layout) -> Values:
    """Return the rows from their slots."""
    rows = [chunk[:count] for chunk, count in zip(slots, layout.counts, strict=True)]
    return np.concatenate(rows) if rows else slots.reshape(-1)


def check_marks(marks: Marks, layout: Layout) -> None:
    """Refuse marks on padding, whose content would count. Weights may check that it is empty."""
    if (
        isinstance(marks, Weights)
        and marks.chunk < layout.n_chunks
        and marks.slots[-1] < layout.slots
    ):
        return
    if marks.chunk >= layout.n_chunks or marks.slots[-1] >= layout.counts[marks.chunk]:
        raise ArgumentError(
            f"marks on {marks!r} are not all on rows: the table has {layout.counts} rows in its "
            "chunks",
            code="marks-off-rows",
        )


def draw_shift(seed: int | tuple[int, int, bool], layout: Layout) -> tuple[int, int, bool]:
    """Return the move of a seed: (chunks, slots within a half row, whether half rows are swapped).

    It comes from a hash, so it is the same on every machine and with every library version. A move
    is returned as it is.
    """
    if isinstance(seed, tuple):
        return seed[0] % max(1, layout.n_chunks), seed[1] % layout.turn, seed[2]
    digest = hashlib.sha256(f"encryptedstats resample {seed}".encode()).digest()
    chunk, rotation = int.from_bytes(digest[:8], "big"), int.from_bytes(digest[8:16], "big")
    return (
        chunk % max(1, layout.n_chunks),
        rotation % layout.turn,
        bool(digest[16] & 1) and layout.copies == 1,
    )


def permute_slots(slots: Values, shift: tuple[int, int, bool], turn: int | None = None) -> Values:
    """Move slots as SEAL does: chunks around, half rows (or ``turn`` slots) to the
    left, swapped.
    """
    chunks, rotation, swap = shift
    halves = np.roll(slots, -chunks, axis=0).reshape(len(slots), -1, turn or slots.shape[1] // 2)
    halves = np.roll(halves, -rotation, axis=2)
    if swap:
        halves = halves[:, ::-1]
    return halves.reshape(slots.shape)
