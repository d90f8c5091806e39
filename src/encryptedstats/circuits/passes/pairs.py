"""Join pairs: two small totals are sent as one, ``T1 + B T2``.

It needs a proof that T1 stays below B / 2, so that the owner can separate them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from encryptedstats.circuits.bounds import ColumnRange, read_bounds
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
    linear,
)
from encryptedstats.circuits.lowering import Setting
from encryptedstats.circuits.passes.digits import WHOLE, Stored
from encryptedstats.circuits.proof import read_noise
from encryptedstats.circuits.rules import RuleTable
from encryptedstats.errors import NoiseError

_DEEPEST: Final = 64  # levels at which two circuits are compared
_Join = Callable[[Expression, Expression], Expression]


def prove_pairs(
    single: Sequence[Expression],
    paired: Sequence[Expression],
    setting: Setting,
    ranges: Mapping[str, ColumnRange],
) -> list[Stored] | None:
    """Return how the pairs of :func:`join_pairs` are stored; None if they are not proven.

    They are not if a first total could reach half the base, or a pair could wrap around modulo t or
    has too much noise.
    """
    parameters, layout = setting.parameters, setting.layout
    base = parameters.pair_base or 0
    found = read_bounds(single, ranges, layout.n_rows, layout.n_places)
    largest = [found[output].largest for output in single]
    pairs = list(zip(largest[::2], largest[1::2], strict=False))
    if not all(
        2 * first < base and first + base * second <= parameters.max_value
        for first, second in pairs
    ):
        return None
    try:
        read_noise(paired, setting, quick=True)
    except NoiseError:
        return None
    return [*(Stored(0, base, first) for first, _ in pairs), *(WHOLE for _ in paired[len(pairs) :])]


def join_pairs(outputs: Sequence[Expression], base: int) -> list[Expression]:
    """Return ``T1 + base T2`` for every two neighbours, which share their common steps.

    An odd total at the end is left as it is.

    >>> from encryptedstats.circuits import column
    >>> s, y, z = column("s"), column("y"), column("z")
    >>> join_pairs([(s * y).total(), (s * z).total()], 1024)
    [(s * (y + 1024*z)).total()]
    """
    known: dict[tuple[Expression, Expression], Expression] = {}

    def join(a: Expression, b: Expression, depth: int) -> Expression:
        if (a, b) not in known:
            found = None
            if depth < _DEEPEST and a.op == b.op:
                found = PAIRS[a.op](a, b, lambda x, y: join(x, y, depth + 1), base)
            known[a, b] = linear([(1, a), (base, b)]) if found is None else found
        return known[a, b]

    pairs = [join(a, b, 0) for a, b in zip(outputs[::2], outputs[1::2], strict=False)]
    return [*pairs, *outputs[2 * len(pairs) :]]


#: Joins two nodes of one op by joining their args, which is linear in each factor and term; None if
#: they are not alike.
PAIRS: Final = RuleTable[Callable[[Expression, Expression, _Join, int], Expression | None]]("pairs")

PAIRS.rule(TOTAL)(lambda a, b, join, base: join(a.args[0], b.args[0]).total())
PAIRS.rule(COLUMN, GIVEN, HERE, MASK, REPLICATE, RESAMPLE)(lambda a, b, join, base: None)


@PAIRS.rule(PRODUCT)
def _join_products(a: Expression, b: Expression, join: _Join, base: int) -> Expression | None:
    shared = next((x for x in a.args if x in b.args), None)
    if shared is None:
        return None
    return shared * join(_other(a, shared), _other(b, shared))


@PAIRS.rule(LINEAR)
def _join_sums(a: Expression, b: Expression, join: _Join, base: int) -> Expression | None:
    (coefficients, constant), (others, more) = a.data, b.data
    if coefficients != others:
        return None
    terms = zip(coefficients, a.args, b.args, strict=True)
    return linear([(c, join(x, y)) for c, x, y in terms], constant + base * more)


def _other(product: Expression, factor: Expression) -> Expression:
    first, second = product.args
    return second if first is factor else first
