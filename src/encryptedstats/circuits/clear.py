"""The clear reader: what a circuit gives on plain integers, exactly as the encrypted readers
compute it.

A node is computed modulo 2^k, with the smallest k that holds the interval proven for it: sums and
products modulo 2^k are right modulo 2^k, and the interval says which number that is. The nodes of
trees are 0 or 1, so k = 1: 64 rows are one word, a product is AND, a sum XOR of the terms with odd
factors (inside less left is AND NOT), a total the number of ones. Other nodes are the smallest
integers of NumPy that hold them, and beyond 64 bits Python's. Rows are read block by block, and a
block's nodes are dropped after their last use, so that memory does not grow with rows times nodes.
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

_BIT: DType = np.dtype(bool)  # of a node: 64 of its values in a word
_INTEGERS: tuple[DType, ...] = tuple(map(np.dtype, ("u1", "i1", "u2", "i2", "u4", "i4", "i8")))
_PYTHON: DType = np.dtype(object)
_BLOCK_BYTES = 8 << 20  # of the nodes that are alive at once: they should stay in the cache
_LEAST_ROWS = 4096  # of a block: with fewer, calling NumPy takes longer than what it computes


def read_clear(
    outputs: Iterable[Expression],
    columns: Mapping[Any, Values],
    layout: Layout,
    *,
    ranges: Mapping[Any, ColumnRange] | None = None,
) -> list[Any]:
    """The value of every output: an integer for a total, an array over the rows otherwise.

    Parameters
    ----------
    outputs : expressions
    columns : mapping
        The rows of every column that occurs. Each is asked for once and kept no larger than it must
        be.
    layout : Layout
    ranges : mapping, optional
        What is known of the columns; only what they hold, if it is not given.
    """
    outputs = list(outputs)
    if ranges is None:
        names = [*column_names(outputs), *totals_of(outputs)]
        ranges = {name: _range_of(np.asarray(columns[name])) for name in names}
    return _Reader(outputs, columns, layout, ranges).read()


class _Reader:
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
        bounds = read_bounds(outputs, ranges, layout.n_rows, layout.n_chunks * layout.slots)
        self.types = {node: _smallest_type(bounds[node]) for node in self.order}
        self.largest = {node: bounds[node].largest for node in self.order}
        padding = padding_value(outputs)
        self.padding = {
            node: known_padding(node, padding) for node in self.order if node.op == TOTAL
        }
        self.columns = {
            node: self._kept(node, self._stored(node, columns), bounds[node])
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
        """All rows, once for every time that a total is needed in the rows."""
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
        """Totals, and outputs over rows, of which all that comes from totals is known."""
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
        """How every node is computed in a block, each with the nodes that nothing needs
        after it.
        """
        steps: list[_Step] = []
        needed = set(wanted)
        for node in reversed(self.order):
            if node in needed:
                args = (
                    () if node.op == REPLICATE else node.args
                )  # a total that comes back is a number
                done = [arg for arg in dict.fromkeys(args) if arg not in needed]
                steps.append((node, args, CLEAR[node.op](self, node), done))
                needed.update(args)
        return steps[::-1]

    def _bits_alive(self, steps: Sequence[_Step]) -> int:
        """The most bits that the nodes of one row take at any time."""
        most = alive = 0
        for node, _, _, done in steps:
            alive += 0 if node.is_total else _bits_of(self.types[node])
            most = max(most, alive)
            alive -= sum(_bits_of(self.types[last]) for last in done)
        return most

    def _stored(self, node: Expression, columns: Mapping[Any, Values]) -> Values:
        return (
            np.full(self.layout.n_rows, node.data[0])
            if node.op == HERE
            else np.asarray(columns[node.data])
        )

    def _kept(self, node: Expression, rows: Values, interval: Interval) -> Values:
        """A column at its places, in the type of its node."""
        if len(rows) != self.layout.n_rows:
            raise ArgumentError(
                f"a column of {len(rows)} rows in a table of {self.layout.n_rows}",
                code="wrong-number-of-rows",
            )
        held = _range_of(rows)
        if not (interval.low <= held.low and held.high <= interval.high):
            raise ArgumentError(
                f"column {node.data} holds numbers from {held.low} to {held.high}, and is said to "
                "be within "
                f"{interval.low} to {interval.high}",
                code="values-outside-bounds",
            )
        kind, rows = self.types[node], self.places.from_rows(rows)
        return (
            _packed(rows.astype(bool, copy=False))
            if kind == _BIT
            else rows.astype(kind, copy=False)
        )


# -- where values lie
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
        """1 for every row, in words: what is left of the last one stays 0, here and in all that is
        made of it.
        """
        return _packed(np.ones(self.count, dtype=bool))

    @cached_property
    def zeros(self) -> Values:
        return np.zeros_like(self.ones)


_Rule = Callable[[_Block, list[Any]], Any]
_Step = tuple[
    Expression, tuple[Expression, ...], _Rule, list[Expression]
]  # a node, what it is computed from and how, what to drop


@dataclass(frozen=True)
class _Places:
    """Where values are computed: at the rows, or, where some are moved, at all slots, padding among
    them.
    """

    layout: Layout
    slots: bool

    @property
    def count(self) -> int:
        return self.layout.n_chunks * self.layout.slots if self.slots else self.layout.n_rows

    @property
    def padding(self) -> int:
        return self.layout.padding if self.slots else 0

    def blocks(self, bits_alive: int) -> Iterator[_Block]:
        """All places in order; in one block where values are moved, from whatever place to whatever
        other.
        """
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
                "weights are numbers modulo t, and nothing has a modulus in the clear",
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
    return (
        1 if kind == _BIT else 8 * kind.itemsize * (5 if kind == _PYTHON else 1)
    )  # a number of Python's takes 32 bytes


def _range_of(rows: Values) -> ColumnRange:
    """What a column holds."""
    if rows.dtype == _BIT or not len(rows):
        return ColumnRange(0, int(rows.any()))
    return ColumnRange(int(rows.min()), int(rows.max()))


def _wrapped(number: int, kind: DType) -> Any:
    """A number modulo 2^k, as a scalar of a type of k bits."""
    if kind == _PYTHON:
        return number
    return np.array([number % (1 << 8 * kind.itemsize)], dtype=f"u{kind.itemsize}").view(kind)[0]


def _packed(rows: Values) -> Values:
    """Zeros and ones, 64 of them a word."""
    words = np.zeros(-(-len(rows) // 64), dtype=np.uint64)
    packed = np.packbits(rows)
    words.view(np.uint8)[: len(packed)] = packed
    return words


def _numbers(values: Values, kind: DType, block: _Block) -> Values:
    """The values of a node as an array over the rows of the block."""
    return np.unpackbits(values.view(np.uint8), count=block.count) if kind == _BIT else values


def _bits(values: Values, kind: DType) -> Values:
    """The values of a node modulo 2, packed."""
    return values if kind == _BIT else _packed((values & 1).astype(bool))


@cache
def _ones_of_all() -> Values:
    """How many bits are 1, for all numbers of 16 bits."""
    every = np.arange(1 << 16, dtype=np.uint16)
    ones: Values = np.unpackbits(every.view(np.uint8)).reshape(-1, 16).sum(axis=1, dtype=np.uint8)
    return ones


def _ones_by_table(words: Values) -> Values:
    """How many bits are 1 in every quarter of a word: for a NumPy before 2."""
    counts: Values = _ones_of_all()[words.view(np.uint16)]
    return counts


_ones: Callable[[Values], Values] = getattr(np, "bitwise_count", _ones_by_table)


# -- rules: what a node is in a block, from what its args are
# ---------------------------------------------------------------

#: How a node is computed in any block of rows.
CLEAR: Final = RuleTable[Callable[[_Reader, Expression], _Rule]]("clear values")
#: A total of totals from theirs.
CLEAR_TOTALS: Final = RuleTable[Callable[[Expression, list[int]], int]]("clear totals")

CLEAR_TOTALS.rule(PRODUCT)(lambda node, args: args[0] * args[1])


@CLEAR_TOTALS.rule(LINEAR)
def _add_totals(node: Expression, args: list[int]) -> int:
    coefficients, constant = node.data
    return int(constant + sum(c * value for c, value in zip(coefficients, args, strict=True)))


@CLEAR.rule(COLUMN, GIVEN, HERE)
def _read_column(reader: _Reader, node: Expression) -> _Rule:
    rows = reader.columns[node]
    if reader.types[node] == _BIT:
        return lambda block, _: rows[block.words]
    return lambda block, _: rows[block.rows]


@CLEAR.rule(PRODUCT)
def _multiply(reader: _Reader, node: Expression) -> _Rule:
    kind, (a, b) = reader.types[node], (reader.types[arg] for arg in node.args)
    if kind == a == b == _BIT:
        return lambda _, values: np.bitwise_and(*values)
    if kind == _BIT:
        return lambda _, values: _bits(values[0], a) & _bits(values[1], b)
    return lambda block, values: np.multiply(
        _numbers(values[0], a, block), _numbers(values[1], b, block), dtype=kind, casting="unsafe"
    )


@CLEAR.rule(LINEAR)
def _combine(reader: _Reader, node: Expression) -> _Rule:
    args = [reader.types[arg] for arg in node.args]
    return _linear_rule(reader.types[node], args, *node.data)


@CLEAR.rule(REPLICATE)
def _replicate(reader: _Reader, node: Expression) -> _Rule:
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
    factors = [_wrapped(coefficient, kind) for coefficient in coefficients]
    start = _wrapped(constant, kind)

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
def _sum_rows(reader: _Reader, node: Expression) -> _Rule:
    (arg,) = node.args
    if reader.types[arg] == _BIT:
        return lambda _, values: int(_ones(values[0]).sum(dtype=np.int64))
    largest = reader.largest[arg]

    def total(block: _Block, values: list[Values]) -> int:
        return int(values[0].sum(dtype=np.int64 if largest * block.count < 1 << 63 else object))

    return total


@CLEAR.rule(MASK)
def _mask(reader: _Reader, node: Expression) -> _Rule:
    kind, arg = reader.types[node], reader.types[node.args[0]]
    places = reader.places.of_marks(node.data)

    def masked(block: _Block, values: list[Values]) -> Values:
        marked = np.zeros(block.count, dtype=bool)
        marked[places[(block.start <= places) & (places < block.stop)] - block.start] = True
        if kind == _BIT:
            return _bits(values[0], arg) & _packed(marked)
        return np.where(marked, _numbers(values[0], arg, block), _wrapped(0, kind)).astype(
            kind, copy=False
        )

    return masked


@CLEAR.rule(RESAMPLE)
def _resample(reader: _Reader, node: Expression) -> _Rule:
    kind, layout = reader.types[node], reader.layout
    shift = drawn_shift(node.data, layout)

    def resampled(block: _Block, values: list[Values]) -> Values:
        slots = _numbers(values[0], kind, block).reshape(layout.n_chunks, layout.slots)
        moved = permute_slots(slots, shift, layout.turn).reshape(-1)
        return _packed(moved) if kind == _BIT else moved

    return resampled


# -- padding, slots, moves
# ---------------------------------------------------------------------------------------------


def known_padding(total: Expression, padding: Mapping[Expression, int | None]) -> int:
    """What one padding slot adds to the sum that a total takes over all slots."""
    value = padding[total.args[0]]
    if value is None:
        raise ArgumentError(
            f"the total of {total.args[0]!r} would count padding slots, whose content is "
            "encrypted: multiply by a column "
            "(the class indicators, say) before taking the total",
            code="padding-counted",
        )
    return value


def to_slots(rows: Values, layout: Layout, dtype: Any = np.int64) -> Values:
    """Rows in their slots, shape (chunks, slots), zeros as padding."""
    slots = np.zeros((layout.n_chunks, layout.slots), dtype=dtype)
    start = 0
    for chunk, count in enumerate(layout.counts):
        slots[chunk, :count] = rows[start : start + count]
        start += count
    return slots


def from_slots(slots: Values, layout: Layout) -> Values:
    """The rows of a table out of their slots."""
    rows = [chunk[:count] for chunk, count in zip(slots, layout.counts, strict=True)]
    return np.concatenate(rows) if rows else slots.reshape(-1)


def check_marks(marks: Marks, layout: Layout) -> None:
    """Refuse marks on padding: nobody would take off what it holds. Weights are there to find out
    whether it holds nothing.
    """
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


def drawn_shift(seed: int | tuple[int, int, bool], layout: Layout) -> tuple[int, int, bool]:
    """The move that a seed stands for: (chunks, slots within the half rows, whether half rows are
    swapped).

    From a hash, so that it is the same on every machine and for every version of every library. A
    move stands for itself.
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
    """Slots moved as SEAL moves them: whole chunks around, half rows (or ``turn`` slots) rotated to
    the left, and swapped.
    """
    chunks, rotation, swap = shift
    halves = np.roll(slots, -chunks, axis=0).reshape(len(slots), -1, turn or slots.shape[1] // 2)
    halves = np.roll(halves, -rotation, axis=2)
    if swap:
        halves = halves[:, ::-1]
    return halves.reshape(slots.shape)
