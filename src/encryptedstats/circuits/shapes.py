"""What noise depends on of a circuit: one node for all of a shape, for who asks again and again
while parameters are sought.

Which columns are computed with does not matter, only how. Circuits are read once; what follows from
the factors of given totals, which are others under other parameters, is then found on a few dozen
shapes instead of on every node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from encryptedstats.circuits.expressions import (
    COLUMN,
    GIVEN,
    HERE,
    LINEAR,
    MASK,
    ONES,
    PRODUCT,
    Expression,
    Marks,
    column,
    fold,
    given,
    here,
    linear,
)
from encryptedstats.circuits.rewriting import with_one_factor
from encryptedstats.crypto.packing import centred


@lru_cache(maxsize=16)
def find_shapes(outputs: tuple[Expression, ...]) -> Shapes:
    """Return the shapes of some outputs; a plan asks for the same ones for every ring."""
    return Shapes(outputs)


class Shapes:
    """The shapes of some circuits. Terms of a sum are not allowed to cancel, so signs
    are left out.
    """

    def __init__(self, outputs: Sequence[Expression]) -> None:
        self.n_outputs = len(outputs)
        numbers: dict[Any, int] = {}
        last: dict[str, int] = {}

        def rule(node: Expression, args: list[int]) -> int:
            key: tuple[Any, ...] = (node.op, tuple(args), node.data)
            if node.op == COLUMN:
                key = (node.op, (), None)
            elif node.op == HERE:
                key = (node.op, (), ONES if node.data == ONES else (1, "any"))
            elif node.op == GIVEN:
                name, number = node.data
                last[name] = max(number, last.get(name, 0))
                key = (node.op, (), name)
            elif node.op == PRODUCT:
                key = (node.op, tuple(sorted(args)), None)
            elif node.op == MASK:
                key = (node.op, tuple(args), node.data.chunk)
            elif node.op == LINEAR:
                coefficients, constant = node.data
                terms = Counter(zip(map(abs, coefficients), args, strict=True))
                key = (node.op, tuple(sorted(terms.items())), constant)
            return numbers.setdefault((*key, node.is_total), len(numbers))

        found = fold(outputs, rule)
        self._nodes = list(numbers)
        self._last = last  # by which packs with many totals are told from those with few
        self._outputs = list(dict.fromkeys(found[output] for output in outputs))
        #: The noisiest outputs by scheme and kind of encryption, once they were looked for.
        self.noisiest: dict[tuple[str, bool], list[Expression]] = {}
        self.given = [data for op, _, data, _ in self._nodes if op == GIVEN]

    def circuits(self, factors: Mapping[str, int] | None = None, t: int = 0) -> list[Expression]:
        """One circuit for every shape of an output; where given totals of these names have factors
        modulo t, with coefficients that make up for them, as in
        :func:`encryptedstats.circuits.rewriting.followed`.
        """
        made: list[tuple[Expression, int]] = []
        for op, args, data, is_total in self._nodes:
            if op == COLUMN:
                made.append((column("fresh"), 1))
            elif op == HERE:
                made.append((here(*data), 1))
            elif op == GIVEN:
                made.append((given(data, self._last[data]), (factors or {}).get(data, 1)))
            elif op == LINEAR:
                made.append(_sum([(c, times, *made[arg]) for (c, arg), times in args], data, t))
            elif op == PRODUCT:
                (a, of_a), (b, of_b) = (made[arg] for arg in args)
                made.append((a * b, of_a * of_b % t if t else 1))
            else:
                data = Marks(data, [0]) if op == MASK else data
                inner = tuple(made[arg][0] for arg in args)
                made.append(
                    (Expression(op, inner, data, is_total), made[args[0]][1] if args else 1)
                )
        return list(dict.fromkeys(made[output][0] for output in self._outputs))


def _sum(
    terms: Sequence[tuple[int, int, Expression, int]], constant: int, t: int
) -> tuple[Expression, int]:
    """Of terms with their coefficients, how often they occur, and their factors."""
    coefficients, factors, common = [c for c, *_ in terms], [factor for *_, factor in terms], 1
    if set(factors) != {1}:
        coefficients, common = with_one_factor(coefficients, factors, t)
        constant = constant if common == 1 else centred(constant * common, t)
    pairs = zip(coefficients, terms, strict=True)
    return linear([(abs(c) * often, term) for c, (_, often, term, _) in pairs], constant), common
