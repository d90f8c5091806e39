"""Join pairs: totals of a small table are digits, and two of them travel as one, ``T1 + B T2``.

It takes a proof that T1 stays below B / 2; the owner takes the two apart.
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

_DEEPEST: Final = 64  # steps down two circuits that are alike
_Join = Callable[[Expression, Expression], Expression]


def prove_pairs(
    single: Sequence[Expression],
    paired: Sequence[Expression],
    setting: Setting,
    ranges: Mapping[str, ColumnRange],
) -> list[Stored] | None:
    """What :func:`join_pairs` of some totals are of them, over a table; None where that is not
    proven.

    It is not where one could reach half the base, two could wrap around modulo t, or drown in
    noise.
    """
    parameters, layout = setting.parameters, setting.layout
    base = parameters.pair_base or 0
    found = read_bounds(single, ranges, layout.n_rows, layout.n_chunks * layout.slots)
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
    """``T1 + base T2`` for every two neighbours: what they have in common is computed once. An odd
    one is left as it is.

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


#: Joins two nodes of one op by joining what they are made of; None where they are not alike.
#: All this is linear in each factor and term.
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
