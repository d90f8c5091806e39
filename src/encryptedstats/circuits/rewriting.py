"""Circuits rewritten before they are lowered: so that padding holds nothing, and so that factors of
given totals are made up for.

A total that is given from elsewhere, a closed model's count, comes out of its pack with a factor
that is known (1/N, modulo t): rather than multiplying it away, which would cost noise, the factor
is followed through the circuit and taken off by the owner.

What comes back of rows holds answers and nothing else. Slots without a row are 0 (:func:`cleared`).
Where the model is plain, its numbers are coefficients, and what is stored in the clear is the same
for every model: an encryption of each answer's plain number is added, so that nobody but the owner
can tell the coefficients from the ciphertexts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from encryptedstats.circuits.expressions import (
    COLUMN,
    GIVEN,
    HERE,
    LINEAR,
    MASK,
    PRODUCT,
    TOTAL,
    Expression,
    Factors,
    Marks,
    combination,
    fold,
    here,
    in_order,
    linear,
    ones,
)
from encryptedstats.crypto.packing import centred
from encryptedstats.errors import ArgumentTypeError

# -- padding
# ------------------------------------------------------------------------------------------------


def cleared(outputs: Sequence[Expression | int]) -> list[Expression]:
    """Every output as it is in the rows, and 0 in padding slots.

    Columns are 0 in padding, so most terms of a sum are; given totals and plain numbers are not,
    and are multiplied by what is 1 in every row, ``ones()``: the same rows give the same
    ciphertexts. An output without given totals has a fresh encryption of its plain number, 0
    included, which hides the coefficients of the others.

    >>> from encryptedstats.circuits.expressions import column, given
    >>> cleared([given("model", 0) + given("model", 1) * column("v0.bin1"), column("v0.bin1") - 7, 5])
    [model[1] * v0.bin1 + model[0] * here:one, v0.bin1 + here:answer1, here:answer2]
    """
    clearing = _Clearing([output for output in outputs if isinstance(output, Expression)])
    found = []
    for number, output in enumerate(outputs):
        terms, constant = ([], output) if isinstance(output, int) else clearing.parted(output)
        done: Expression | int = 0
        if isinstance(output, Expression) and clearing.is_given[output]:
            done = combination([*terms, (constant, clearing.ones)])
        if isinstance(done, int):
            done = linear([*terms, (1, here(constant, f"answer{number}"))])
        found.append(done)
    return found


class _Clearing:
    """What some circuits are in padding slots, and how they are written so that it is 0."""

    def __init__(self, outputs: Sequence[Expression]) -> None:
        self.ones = ones()

        def vanishes(node: Expression, args: list[bool]) -> bool:
            if node.op in (COLUMN, HERE, MASK):
                return True
            return (
                any(args)
                if node.op == PRODUCT
                else node.op == LINEAR and not node.data[1] and all(args)
            )

        def is_mixed(node: Expression, args: list[bool]) -> bool:
            if self.vanishes[node] or node.op not in (PRODUCT, LINEAR):
                return False
            return any(args) or (node.op == LINEAR and any(self.vanishes[arg] for arg in node.args))

        self.vanishes = fold(outputs, vanishes)
        self.is_mixed = fold(outputs, is_mixed)  # not 0 in padding, but a part of it is
        self.is_given = fold(outputs, lambda node, args: any(args) or node.op == GIVEN)

    def parted(self, node: Expression, times: int = 1) -> tuple[list[tuple[int, Expression]], int]:
        """A node times a number: terms that are 0 in padding, and the plain number that is left."""
        if self.vanishes[node]:
            return [(times, node)], 0
        if not self.is_mixed[node]:
            return [(times, node * self.ones)], 0
        if node.op == PRODUCT:
            mixed, other = node.args if self.is_mixed[node.args[0]] else node.args[::-1]
            terms, constant = self.parted(mixed)
            factor = combination([*terms, (constant, self.ones)])
            return ([], 0) if isinstance(factor, int) else ([(times, factor * other)], 0)
        coefficients, constant = node.data
        terms, same = [], []  # in all slots alike, so that one product does for all of these
        for coefficient, arg in zip(coefficients, node.args, strict=True):
            if self.vanishes[arg] or self.is_mixed[arg]:
                more, plain = self.parted(arg, coefficient)
                terms += more
                constant += plain
            else:
                same.append((coefficient, arg))
        shared = combination(same, constant)
        if isinstance(shared, int):
            return [(times * c, term) for c, term in terms], times * shared
        return [(times * c, term) for c, term in [*terms, (1, shared * self.ones)]], 0


# -- marks
# ------------------------------------------------------------------------------------------------


def with_marks_joined(outputs: Sequence[Expression]) -> list[Expression]:
    """The same circuits, with one product for each column in a sum of marked sums of columns,
    rather than one for each of these.

    >>> from encryptedstats.circuits.expressions import Marks, column
    >>> x, y = column("x"), column("y")
    >>> with_marks_joined([(x - y).masked(Marks(0, [1])) + (1 - x).masked(Marks(0, [2]))])
    [x.mask(2 slots of chunk 0) + y.mask(1 slots of chunk 0) + here:one.mask(1 slots of chunk 0)]
    """

    def rule(node: Expression, args: list[Expression]) -> Expression:
        if node.op == LINEAR and node.data == ((1,) * len(args), 0) and _share_a_chunk(args):
            return _joined(args)
        return Expression(node.op, tuple(args), node.data, node.is_total) if args else node

    values = fold(outputs, rule)
    return [values[output] for output in outputs]


def _share_a_chunk(masks: Sequence[Expression]) -> bool:
    return (
        all(
            mask.op == MASK and type(mask.data) is Marks and _of_columns(mask.args[0])
            for mask in masks
        )
        and len({mask.data.chunk for mask in masks}) == 1
    )


def _of_columns(row: Expression) -> bool:
    return row.op == COLUMN or (row.op == LINEAR and all(arg.op == COLUMN for arg in row.args))


def _joined(masks: Sequence[Expression]) -> Expression:
    found: dict[Expression, Counter[int]] = {}
    for mask in masks:
        (row,), slots = mask.args, mask.data.slots.tolist()
        coefficients, constant = row.data if row.op == LINEAR else ((1,), 0)
        terms = list(zip(coefficients, row.args or (row,), strict=True))
        for coefficient, arg in [*terms, *([(constant, ones())] if constant else [])]:
            factors = found.setdefault(arg, Counter())
            for slot in slots:
                factors[slot] += coefficient
    chunk, parts = masks[0].data.chunk, list[tuple[int, Expression]]()
    for arg, factors in found.items():
        kept = {slot: factor for slot, factor in factors.items() if factor}
        if kept:
            plain = set(kept.values()) == {1}
            parts.append((1, arg.masked(Marks(chunk, kept) if plain else Factors(chunk, kept))))
    return linear(parts)


# -- what is linear in given totals
# -------------------------------------------------------------------------------------------


def by_given(
    output: Expression, names: Collection[str]
) -> tuple[dict[Expression, Expression], Expression | int] | None:
    """An output as a sum over given totals of these names, each times what it is multiplied by, and
    the rest; None where it is none.

    >>> from encryptedstats.circuits.expressions import column, given
    >>> x, a, b = column("x"), given("model", 0), given("model", 1)
    >>> by_given(b * x + (a - b) * x * column("y") + 3 * x, {"model"})
    ({model[0]: y * x, model[1]: -y * x + x}, 3*x)
    """
    order = list(in_order([output]))
    has = fold(
        [output], lambda node, args: any(args) or (node.op == GIVEN and node.data[0] in names)
    )
    factors: dict[Expression, list[tuple[int, Expression | None]]] = {output: [(1, None)]}
    found: dict[Expression, Expression] = {}
    rest: list[tuple[int, Expression | None]] = []
    for node in reversed(order):
        if node not in factors or not has[node]:
            continue
        factor = _factor_of(factors.pop(node))
        if node.op == GIVEN:
            if isinstance(factor, int):
                return None
            found[node] = factor
        elif node.op == LINEAR:
            coefficients, constant = node.data
            for coefficient, arg in zip(coefficients, node.args, strict=True):
                place = factors.setdefault(arg, []) if has[arg] else rest
                place.append(_times(factor, coefficient, None if has[arg] else arg))
            if constant:
                rest.append(_times(factor, constant, None))
        elif node.op == PRODUCT and has[node.args[0]] != has[node.args[1]]:
            inner, other = node.args if has[node.args[0]] else node.args[::-1]
            factors.setdefault(inner, []).append(_times(factor, 1, other))
        else:
            return None
    return found, _factor_of(rest)


def _factor_of(terms: Sequence[tuple[int, Expression | None]]) -> Expression | int:
    constant = sum(c for c, term in terms if term is None)
    return combination([(c, term) for c, term in terms if term is not None], constant)


def _times(
    factor: Expression | int, number: int, other: Expression | None
) -> tuple[int, Expression | None]:
    """A factor times a number, and times something else."""
    if isinstance(factor, int):
        return factor * number, other
    return number, factor if other is None else factor * other


# -- the factors of expanded totals
# ------------------------------------------------------------------------------------------


def followed(
    outputs: Sequence[Expression],
    factors: Mapping[str, Sequence[int]],
    t: int,
    offsets: Mapping[str, Sequence[int]],
) -> list[tuple[Expression, int]]:
    """Every output as it comes out when given totals are multiplied by factors modulo t, and the
    factor it then has itself.

    ``factors`` are those of all totals of each pack. Where terms of a sum have different ones, or
    there is a plain number among them, the smallest coefficients make up for it. ``offsets`` are
    what totals lack (before they are multiplied): what padding has added to a total is taken off
    here.
    """

    def rule(node: Expression, args: list[tuple[Expression, int]]) -> tuple[Expression, int]:
        if node.op == GIVEN:
            name, index = node.data
            factor, lacks = factors[name][index], offsets[name][index]
            return (linear([(1, node)], centred(lacks * factor, t)) if lacks else node), factor
        if node.op in (COLUMN, HERE):
            return node, 1
        if node.op == TOTAL:
            return args[0][0].total(), args[0][1]
        if node.op == PRODUCT:
            return args[0][0] * args[1][0], args[0][1] * args[1][1] % t
        if node.op != LINEAR:
            raise ArgumentTypeError(
                f"{node!r} cannot be computed from given totals", code="not-from-totals"
            )
        coefficients, constant = node.data
        made_up, common = with_one_factor(coefficients, [factor for _, factor in args], t)
        terms = [(c, term) for c, (term, _) in zip(made_up, args, strict=True)]
        return linear(terms, constant if common == 1 else centred(constant * common, t)), common

    values = fold(outputs, rule)
    return [values[output] for output in outputs]


def with_one_factor(
    coefficients: Sequence[int], factors: Sequence[int], t: int
) -> tuple[list[int], int]:
    """The smallest coefficients that bring all terms of a sum to one of their factors, and that
    factor: large ones cost noise.
    """

    def brought_to(common: int) -> list[int]:
        pairs = zip(coefficients, factors, strict=True)
        return [c if f == common else centred(c * common * pow(f, -1, t), t) for c, f in pairs]

    ways = [(brought_to(common), common) for common in dict.fromkeys(factors)]
    return min(ways, key=lambda way: max(map(abs, way[0])))
