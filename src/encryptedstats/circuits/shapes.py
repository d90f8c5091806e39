"""Collapse a circuit to its distinct noise shapes.

Noise depends on the structure of a node, not on which columns it reads. The parameter search bounds
noise under dozens of candidate parameters, so it does this on one representative per shape (a few
dozen) instead of on every node (thousands).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final

from encryptedstats.circuits.expressions import (
    COLUMN,
    GIVEN,
    HERE,
    LINEAR,
    MASK,
    ONES,
    PRODUCT,
    REPLICATE,
    RESAMPLE,
    TOTAL,
    Expression,
    Marks,
    column,
    encrypted_constant,
    fold,
    linear,
    pack_total,
)
from encryptedstats.circuits.passes.correction_factors import choose_common_factor, rescale
from encryptedstats.circuits.rules import RuleTable

#: Returns what the noise of a node depends on besides its op: shapes of its args, and some data.
SHAPES: Final = RuleTable[Callable[[Expression, list[int]], tuple[Any, Any]]]("shapes")

SHAPES.rule(COLUMN)(lambda node, args: ((), None))
SHAPES.rule(HERE)(lambda node, args: ((), ONES if node.data == ONES else (1, "any")))
SHAPES.rule(GIVEN)(lambda node, args: ((), node.data[0]))
SHAPES.rule(PRODUCT)(lambda node, args: (tuple(sorted(args)), None))
SHAPES.rule(MASK)(lambda node, args: (tuple(args), node.data.chunk))
SHAPES.rule(TOTAL, REPLICATE, RESAMPLE)(lambda node, args: (tuple(args), node.data))


@SHAPES.rule(LINEAR)
def _shape_sum(node: Expression, args: list[int]) -> tuple[Any, Any]:
    # Terms of a sum are not allowed to cancel, so signs are left out.
    terms = Counter(zip(map(abs, node.data[0]), args, strict=True))
    return tuple(sorted(terms.items())), node.data[1]


@lru_cache(maxsize=16)
def find_shapes(outputs: tuple[Expression, ...]) -> Shapes:
    """Return the shapes of some outputs, cached, since a plan needs them for every ring."""
    return Shapes(outputs)


class Shapes:
    """The shapes of some circuits."""

    def __init__(self, outputs: Sequence[Expression]) -> None:
        self.outputs = list(outputs)
        numbers: dict[Any, int] = {}

        def rule(node: Expression, args: list[int]) -> int:
            key = (node.op, *SHAPES[node.op](node, args), node.is_total)
            return numbers.setdefault(key, len(numbers))

        found = fold(outputs, rule)
        self._nodes = list(numbers)
        self._last: dict[str, int] = {}  # the largest number of a total, by packs
        for name, number in (node.data for node in found if node.op == GIVEN):
            self._last[name] = max(number, self._last.get(name, 0))
        first: dict[int, Expression] = {}
        for output in outputs:
            first.setdefault(found[output], output)
        self._outputs = list(first)
        #: The first output of each shape.
        self.representatives = list(first.values())
        #: A cache of the noisiest outputs by scheme and kind of encryption.
        self.noisiest: dict[tuple[str, bool], list[Expression]] = {}
        self.pack_names = list(self._last)

    @cached_property
    def collapsed(self) -> list[Expression]:
        """Return one circuit for each shape of an output, with one node for each shape.

        With given totals it is the first output of each shape, because their factors may differ.
        """
        return self.representatives if self.pack_names else self.circuits()

    def circuits(self, factors: Mapping[str, int] | None = None, t: int = 0) -> list[Expression]:
        """Write one circuit for each shape of an output.

        ``factors`` are those of the given totals by name, modulo t; coefficients correct for them.
        """
        rebuilding = _Rebuilding(self._last, factors or {}, t)
        for op, args, data, is_total in self._nodes:
            rebuilding.made.append(REBUILT[op](rebuilding, op, args, data, is_total))
        return list(dict.fromkeys(rebuilding.made[output][0] for output in self._outputs))


_Made = tuple[Expression, int]  # an expression and its correction factor


@dataclass
class _Rebuilding:
    last: Mapping[str, int]
    factors: Mapping[str, int]
    t: int

    def __post_init__(self) -> None:
        self.made: list[_Made] = []


#: Writes the circuit of a shape, from its key.
REBUILT: Final = RuleTable[Callable[[_Rebuilding, str, Any, Any, bool], _Made]]("rebuilt shapes")

REBUILT.rule(COLUMN)(lambda into, op, args, data, is_total: (column("fresh"), 1))
REBUILT.rule(HERE)(lambda into, op, args, data, is_total: (encrypted_constant(*data), 1))
REBUILT.rule(GIVEN)(
    lambda into, op, args, data, is_total: (
        pack_total(data, into.last[data]),
        into.factors.get(data, 1),
    )
)


@REBUILT.rule(PRODUCT)
def _rebuild_product(into: _Rebuilding, op: str, args: Any, data: Any, is_total: bool) -> _Made:
    (a, of_a), (b, of_b) = (into.made[arg] for arg in args)
    return a * b, of_a * of_b % into.t if into.t else 1


@REBUILT.rule(LINEAR)
def _rebuild_sum(into: _Rebuilding, op: str, args: Any, constant: Any, is_total: bool) -> _Made:
    terms = [(c, often, *into.made[arg]) for (c, arg), often in args]
    coefficients, factors, common = [c for c, *_ in terms], [factor for *_, factor in terms], 1
    if set(factors) != {1}:
        coefficients, common = choose_common_factor(coefficients, factors, into.t)
        constant = rescale(constant, 1, common, into.t)
    pairs = zip(coefficients, terms, strict=True)
    return linear([(abs(c) * often, term) for c, (_, often, term, _) in pairs], constant), common


@REBUILT.rule(TOTAL, REPLICATE, RESAMPLE, MASK)
def _rebuild_row(into: _Rebuilding, op: str, args: Any, data: Any, is_total: bool) -> _Made:
    data = Marks(data, [0]) if op == MASK else data
    inner = tuple(into.made[arg][0] for arg in args)
    return Expression(op, inner, data, is_total), into.made[args[0]][1]
