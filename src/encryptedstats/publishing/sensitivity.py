"""Sensitivity: how far one row can move the totals of a question, derived from the totals
themselves.

A row adds f(x) to the vector of totals, where x is the content of the row: one bin of each
variable, one class, numbers within their public bounds. The sensitivity is the largest norm of
f(x), or of f(x) - f(x') where a row may be exchanged for another. There are three methods: totals
of which every row is in one are recognised by their sum; otherwise all different rows are tried,
variable by variable; where these are too many, intervals bound it. The first two are exact, all are
proven.

Each encoding says which value its column has in a row (`Encoding.row_value`). A total over a column
whose encoding refuses to say so cannot be released, since its sensitivity is unknown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from encryptedstats.circuits.bounds import Interval, read_bounds
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
    column_names,
    combination,
    fold,
    in_order,
)
from encryptedstats.circuits.rules import RuleTable
from encryptedstats.errors import ArgumentError, Cure, ParameterError
from encryptedstats.publishing.units import ADD, RELATIONS, REPLACE
from encryptedstats.tables.columns import column_ranges
from encryptedstats.tables.encodings import Column, RowState, encoding_of
from encryptedstats.tables.schema.variables import PublicSchema

#: More kinds of rows than these are not tried one by one.
MOST_STATES: Final = 20_000
_MOST_VALUES: Final = 64  # of a number, to be tried one by one
_MOST_COMPARED: Final = 200_000_000  # numbers, for all pairs of rows
#: Noise is drawn in 64 bits: a total that one row moves this far cannot be released.
LARGEST_RANGE: Final = 1 << 62
NARROWER: Final = Cure(
    "narrower bounds", "give narrower bounds=, fewer digits=, or a smaller weight_bound="
)
_EXACT_FLOAT: Final = 1 << 52  # differences of smaller integers are exact in floating point

Number = Expression | int
State = Mapping[str, int | Interval]  # of the columns of one variable
Floats = NDArray[np.float64]
Numbers = NDArray[Any]  # floats, or Python integers where floats would round them


@dataclass(frozen=True)
class Sensitivity:
    """How far one row can move some totals.

    Attributes
    ----------
    ranges : array of Python integers
        Of each total: the largest change. 0 where no row changes it.
    l1, l2 : float
        Of all of them, each divided by its range: so one noise, times the range of each, fits all.
    exact : bool
        True if all kinds of rows were tried, so that some tables do differ this much; otherwise it
        is a proven bound.
    """

    ranges: NDArray[np.object_]
    l1: float
    l2: float
    exact: bool


def sensitivity(
    totals: Sequence[Number],
    schema: PublicSchema,
    *,
    relation: str = REPLACE,
    groups: Iterable[Sequence[int]] | None = None,
    max_weight: int = 1,
) -> Sensitivity:
    """Return the sensitivity of totals, each an expression, or a plain number that a row adds.

    ``groups`` are positions to be bounded separately: the bound of all is the sum of theirs. By
    default there is one group. A row of weight w adds w times as much, and its weight may be any
    from 0 to ``max_weight`` where that is not 1.

    Raises
    ------
    ParameterError
        Where one row can move a total by 2^62 or more, or a column has an encoding whose
        sensitivity is not known.
    """
    if relation not in RELATIONS:
        raise ArgumentError(
            f"relation={relation!r}: {' or '.join(map(repr, RELATIONS))}", code="unknown-relation"
        )
    rows = [row_contribution(total) for total in totals]
    parts = [list(range(len(rows)))] if groups is None else [list(group) for group in groups]
    ranges, l1, l2_squared, exact = _integers([0] * len(rows)), 0.0, 0.0, True
    for part in parts:
        found = _of_group([rows[i] for i in part], schema, relation, weighted=max_weight > 1)
        ranges[part] = found.ranges * int(max_weight)
        _check_ranges(ranges[part])
        l1, l2_squared, exact = l1 + found.l1, l2_squared + found.l2**2, exact and found.exact
    # Groups are as far as they can be at once only if some rows are: with one group that is known.
    return Sensitivity(ranges, l1, math.sqrt(l2_squared), exact and len(parts) == 1)


def _integers(values: Iterable[Any]) -> NDArray[np.object_]:
    """Return an array of Python integers, which do not wrap around as those of 64 bits do."""
    return np.array([int(value) for value in values], dtype=object)


def _check_ranges(ranges: Iterable[int]) -> None:
    largest = max(ranges, default=0)
    if largest >= LARGEST_RANGE:
        raise ParameterError(
            f"one row can move a total by {largest:,}, and releases allow less than 2^62 "
            f"({LARGEST_RANGE:,}): ",
            NARROWER,
            code="range-too-large",
        )


def check_totals(
    rows: Sequence[Number], schema: PublicSchema, n_rows: int, max_weight: int = 1
) -> None:
    """Refuse totals that can reach 2^62, by what a row adds and by what is public of the table.

    Noise is drawn in 64 bits, and the totals themselves are known only after the cost is spent.
    """
    written = [row for row in rows if isinstance(row, Expression)]
    known = read_bounds(written, column_ranges(schema, map(Column.parse, column_names(written))), 1)
    factor = n_rows * max_weight
    largest = max((abs(row) * factor for row in rows if isinstance(row, int)), default=0)
    for row in written:
        most = _size(known[row]) * factor
        if most >= LARGEST_RANGE:  # these bounds count an empty row as well: look at real rows only
            most = _size(row_interval(row, schema)) * factor
        largest = max(largest, most)
    if largest >= LARGEST_RANGE:
        raise ParameterError(
            f"a total over {n_rows:,} rows can be as large as {largest:,}, and releases allow "
            "less than 2^62 "
            f"({LARGEST_RANGE:,}): ",
            NARROWER,
            code="total-too-large",
        )


def _size(interval: Interval) -> int:
    return max(abs(interval.low), abs(interval.high))


def row_contribution(total: Number) -> Number:
    """Return what a row adds to a total."""

    def rule(node: Expression, args: list[Number]) -> Number:
        return ADDED_BY_ROW[node.op](node, args) if node.is_total else node

    return total if isinstance(total, int) else fold([total], rule)[total]


#: What a row adds to a total, from what it adds to the args of the total.
ADDED_BY_ROW: Final = RuleTable[Callable[[Expression, list[Number]], Number]]("added by a row")

ADDED_BY_ROW.rule(TOTAL)(lambda node, args: node.args[0])


@ADDED_BY_ROW.rule(LINEAR)
def _add_what_rows_add(node: Expression, args: list[Number]) -> Number:
    terms = zip(node.data[0], args, strict=True)
    return combination([(c, x) for c, x in terms if isinstance(x, Expression)])


@ADDED_BY_ROW.rule(PRODUCT)
def _refuse_products(node: Expression, args: list[Number]) -> Number:
    raise ArgumentError(
        f"{node!r} is no sum over rows: what one row adds to it depends on all the others",
        code="not-a-row-sum",
    )


# -- what a row can be
# ------------------------------------------------------------------------------------------------


def possible_states(
    schema: PublicSchema, names: Iterable[str], *, tried: bool
) -> dict[str, list[State]]:
    """Return the possible values in a row of the columns of each variable that occurs.

    With ``tried`` short numbers are listed value by value. The columns are those that questions are
    written with, however they are stored.
    """
    grouped: dict[str, list[Column]] = {}
    for column in map(Column.parse, dict.fromkeys(names)):
        known = encoding_of(column)
        known.check(column, schema)
        key = "class" if known.counts_rows else f"v{column.variable}"
        grouped.setdefault(key, []).append(column)
    return {
        key: [
            {str(one): encoding_of(one).row_value(one, schema, state) for one in columns}
            for state in _row_states(schema, columns, tried=tried)
        ]
        for key, columns in grouped.items()
    }


def _row_states(schema: PublicSchema, columns: Sequence[Column], *, tried: bool) -> list[RowState]:
    """Return what a row can be, as far as these columns of one variable, or of the target, tell."""
    if encoding_of(columns[0]).counts_rows:
        folds = sorted({column.fold for column in columns} | {None}, key=str)
        return [
            RowState(target=k, fold=fold) for k in range(schema.n_classes or 1) for fold in folds
        ]
    known = schema.at(columns[0].variable)
    of_number = [encoding_of(column).encodes_number for column in columns]
    if not any(of_number):
        return [RowState(bin=k, n_bins=known.n_bins) for k in range(known.n_bins)]
    low, high = known.low or 0, known.high or 0
    short = tried and high - low < _MOST_VALUES
    values: Sequence[int | Interval] = range(low, high + 1) if short else [Interval(low, high)]
    # The cut points are not public: a number may lie in any bin, but for the one of missing values.
    n_bins = 0 if all(of_number) else known.n_bins
    bins = range(max(n_bins - known.missing_bin, 1))
    gap = [RowState(bin=max(n_bins - 1, 0), n_bins=n_bins)] if known.missing_bin else []
    return [*(RowState(bin=k, n_bins=n_bins, number=x) for k in bins for x in values), *gap]


# -- three ways
# ------------------------------------------------------------------------------------------------


def _of_group(
    rows: Sequence[Number], schema: PublicSchema, relation: str, *, weighted: bool
) -> Sensitivity:
    names = column_names(row for row in rows if isinstance(row, Expression))
    possible_states(schema, names, tried=False)  # refuses encodings whose sensitivity is not known
    found = _exclusive(rows, schema, relation)
    if found is not None:
        return found
    for tried in (True, False):
        low_high = _states(rows, schema, tried=tried)
        if low_high is not None:
            return _measure(*low_high, relation, weighted=weighted)
    return _measure(
        *_ends([[row_interval(row, schema) for row in rows]]), relation, weighted=weighted
    )


def _ends(bounds: Sequence[Sequence[Interval]]) -> tuple[Numbers, Numbers]:
    """Return the lower and upper ends, as floats where they and their differences are exact."""
    low, high = (
        [[getattr(one, name) for one in line] for line in bounds] for name in ("low", "high")
    )
    largest = max((abs(end) for part in (low, high) for line in part for end in line), default=0)
    kind = float if largest < _EXACT_FLOAT else object
    return np.array(low, dtype=kind), np.array(high, dtype=kind)


def _exclusive(rows: Sequence[Number], schema: PublicSchema, relation: str) -> Sensitivity | None:
    """Return the sensitivity of exclusive indicators, such as the leaves of a tree, or None.

    Indicators are exclusive if their sum is at most 1.
    """
    written = [row for row in rows if isinstance(row, Expression)]
    if len(written) < len(rows) or not written:
        return None
    whole = combination((factor, term) for term, factor in flat_terms(written).items())
    if not isinstance(whole, Expression):
        return None
    known = column_ranges(schema, map(Column.parse, column_names(written)))
    bounds = read_bounds([*written, whole], known, 1)
    if bounds[whole].high > 1 or any(bounds[row].low < 0 for row in written):
        return None
    apart = 2.0 if relation == REPLACE and len(rows) > 1 else 1.0
    return Sensitivity(_integers([1] * len(rows)), apart, math.sqrt(apart), exact=False)


def flat_terms(rows: Iterable[Expression]) -> dict[Expression, int]:
    """Return the terms of a sum of expressions, with nested sums expanded and zero
    terms dropped.
    """
    found: dict[Expression, int] = {}
    weights: dict[Expression, int] = {}
    listed = list(rows)
    for row in listed:
        weights[row] = weights.get(row, 0) + 1
    for node in reversed(list(in_order(listed))):
        factor = weights.pop(node, 0)
        if factor and node.op == LINEAR and not node.data[1]:
            for arg, coefficient in zip(node.args, node.data[0], strict=True):
                weights[arg] = weights.get(arg, 0) + factor * coefficient
        elif factor:
            found[node] = found.get(node, 0) + factor
    return found


def _states(
    rows: Sequence[Number], schema: PublicSchema, *, tried: bool
) -> tuple[Numbers, Numbers] | None:
    """Return the lowest and highest totals of every kind of row, or None if there are too many
    kinds.
    """
    states = possible_states(
        schema, column_names(row for row in rows if isinstance(row, Expression)), tried=tried
    )
    seen: set[tuple[tuple[Number, ...], frozenset[str]]] = set()
    ends: list[tuple[Number, ...]] = []
    pending = [(tuple(rows), frozenset(states))]
    while pending:
        left, open_ = pending.pop()
        key = _next_variable(left, states, open_)
        if key is None:
            ends.append(left)
            if len(ends) > MOST_STATES:
                return None
            continue
        for state in states[key]:
            fixed = {name: value for name, value in state.items() if isinstance(value, int)}
            after = (substitute(left, fixed), open_ - {key})
            if after not in seen:
                seen.add(after)
                pending.append(after)
        if len(seen) > 4 * MOST_STATES:
            return None
    numbers = {
        name: value
        for listed in states.values()
        for one in listed
        for name, value in one.items()
        if isinstance(value, Interval)
    }
    return _ends([[_bound(value, numbers) for value in end] for end in ends])


def _next_variable(
    rows: Iterable[Number], states: Mapping[str, list[State]], open_: frozenset[str]
) -> str | None:
    """Return the variable that most of the remaining expressions depend on.

    The first split of a tree comes before those below it.
    """
    counts = dict.fromkeys(open_, 0)
    keys = {name: key for key in open_ for name in states[key][0]}
    for row in rows:
        if isinstance(row, Expression):
            for key in {keys[name] for name in column_names([row]) if name in keys}:
                counts[key] += 1
    best = max(counts, key=lambda key: (counts[key], key), default=None)
    return best if best is not None and counts[best] else None


#: The value of a node in one row, where some columns are numbers.
SENSITIVITY: Final = RuleTable[Callable[[Expression, list[Number], Mapping[str, int]], Number]](
    "sensitivity"
)

SENSITIVITY.rule(COLUMN)(lambda node, args, values: values.get(node.data, node))
SENSITIVITY.rule(PRODUCT)(
    lambda node, args, values: (
        0 if any(isinstance(x, int) and x == 0 for x in args) else args[0] * args[1]
    )
)


@SENSITIVITY.rule(LINEAR)
def _substitute_in_sum(node: Expression, args: list[Number], values: Mapping[str, int]) -> Number:
    coefficients, constant = node.data
    pairs = list(zip(coefficients, args, strict=True))
    plain = sum(c * x for c, x in pairs if isinstance(x, int))
    terms = [(c, x) for c, x in pairs if isinstance(x, Expression)]
    return combination(terms, constant + plain)


@SENSITIVITY.rule(GIVEN, HERE, MASK, REPLICATE, RESAMPLE)
def _refuse_other_rows(node: Expression, args: list[Number], values: Mapping[str, int]) -> Number:
    raise ArgumentError(
        f"what one row adds through {node.op!r} depends on other rows",
        code="depends-on-other-rows",
    )


def substitute(rows: Sequence[Number], values: Mapping[str, int]) -> tuple[Number, ...]:
    """Replace columns by numbers in expressions, and simplify them."""
    expressions = [row for row in rows if isinstance(row, Expression)]
    found = fold(expressions, lambda node, args: SENSITIVITY[node.op](node, args, values))
    return tuple(found[row] if isinstance(row, Expression) else row for row in rows)


#: The interval of a node in one row, where columns are within intervals.
ROW_BOUNDS: Final = RuleTable[
    Callable[[Expression, list[Interval], Mapping[str, Interval]], Interval]
]("row bounds")

ROW_BOUNDS.rule(COLUMN)(lambda node, args, numbers: numbers[node.data])


@ROW_BOUNDS.rule(PRODUCT)
def _bound_product(
    node: Expression, args: list[Interval], numbers: Mapping[str, Interval]
) -> Interval:
    if node.args[0] is not node.args[1]:
        return args[0] * args[1]
    reaches = args[0].low <= 0 <= args[0].high
    ends = (args[0].low ** 2, args[0].high ** 2)
    return Interval(0 if reaches else min(ends), max(ends))


@ROW_BOUNDS.rule(LINEAR)
def _bound_sum(node: Expression, args: list[Interval], numbers: Mapping[str, Interval]) -> Interval:
    coefficients, constant = node.data
    terms = (x.times(c) for c, x in zip(coefficients, args, strict=True))
    return sum(terms, Interval.of(constant))


def _bound(value: Number, numbers: Mapping[str, Interval]) -> Interval:
    if isinstance(value, int):
        return Interval.of(value)
    found = fold([value], lambda node, args: ROW_BOUNDS[node.op](node, args, numbers))
    bound: Interval = found[value]
    return bound


def row_interval(row: Number, schema: PublicSchema) -> Interval:
    """Return the interval that a row can add to a total, by trying all rows or by interval
    arithmetic.
    """
    found = _states([row], schema, tried=False)
    if found is not None:
        return Interval(int(found[0].min()), int(found[1].max()))
    assert isinstance(row, Expression)  # a plain number has one state
    return read_bounds([row], column_ranges(schema, map(Column.parse, column_names([row]))), 1)[row]


def _measure(low: Numbers, high: Numbers, relation: str, *, weighted: bool) -> Sensitivity:
    """Return the sensitivity from what every kind of row can add: by all pairs, or by a bound if
    these are too many.
    """
    size = np.maximum(np.abs(low), np.abs(high))
    point, (n, m) = bool((low == high).all()), low.shape
    if relation == ADD:
        ranges, exact = size.max(axis=0), point
    else:
        ranges, exact = high.max(axis=0) - low.min(axis=0), point
        if weighted:  # a row of weight 0 adds nothing
            ranges = np.maximum(ranges, size.max(axis=0))
    used = ranges > 0
    if not used.any():
        return Sensitivity(_integers(ranges), 0.0, 0.0, exact=True)
    scaled = _divide(size[:, used], ranges[used])
    alone = scaled.sum(axis=1).max(), (scaled**2).sum(axis=1).max()
    if relation == ADD:
        l1, l2_squared = alone
    else:
        low, high = (_divide(ends[:, used], ranges[used]) for ends in (low, high))
        if n * n * m <= _MOST_COMPARED:
            l1, l2_squared = _apart(low, high)
        else:
            # No further apart than the sum of both; squares add up where no total is below 0 in
            # either.
            both = 2 if (low >= 0).all() else 4
            l1, l2_squared, exact = (
                min(2 * alone[0], used.sum()),
                min(both * alone[1], float(used.sum())),
                False,
            )
        if weighted:
            l1, l2_squared = max(l1, alone[0]), max(l2_squared, alone[1])
    return Sensitivity(_integers(ranges), float(l1), math.sqrt(l2_squared), exact)


def _divide(values: Numbers, ranges: Numbers) -> Floats:
    shares: Floats = (values / ranges).astype(float)
    return shares


def _apart(low: Floats, high: Floats) -> tuple[float, float]:
    """Return the largest L1 and squared L2 distance of any two rows."""
    l1 = l2_squared = 0.0
    for one_low, one_high in zip(low, high, strict=True):
        distance = np.maximum(high - one_low, one_high - low)
        l1 = max(l1, float(distance.sum(axis=1).max()))
        l2_squared = max(l2_squared, float((distance**2).sum(axis=1).max()))
    return l1, l2_squared
