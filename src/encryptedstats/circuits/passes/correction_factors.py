"""Apply correction factors: what a total comes out of its pack with, and modulus switching leaves.

A total that is given from elsewhere comes out of its pack with a factor that is known (1/N, modulo
t). Rather than multiplying it away, which would cost noise, the factor is followed through the
circuit and taken off by the owner. In the same way, BGV's modulus switching leaves a factor in a
ciphertext; terms of a sum are brought to one factor by their coefficients.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

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
    fold,
    linear,
)
from encryptedstats.circuits.rules import RuleTable
from encryptedstats.crypto.packing import centre, expansion_scale, packing_primes
from encryptedstats.crypto.parameters import Parameters
from encryptedstats.errors import ArgumentTypeError

_Scaled = tuple[Expression, int]  # with the factor that it has


@dataclass(frozen=True)
class GivenFactors:
    """The factors of all given totals of each pack, modulo t, and what these totals lack.

    ``offsets`` are what totals lack before they are multiplied: what padding has added to them.
    """

    factors: Mapping[str, Sequence[int]]
    offsets: Mapping[str, Sequence[int]]
    t: int


#: Writes a node over totals with factors, from its args and their factors.
FACTORS: Final = RuleTable[Callable[[Expression, list[_Scaled], GivenFactors], _Scaled]](
    "correction factors"
)

FACTORS.rule(COLUMN, HERE)(lambda node, args, given: (node, 1))
FACTORS.rule(TOTAL)(lambda node, args, given: (args[0][0].total(), args[0][1]))


@FACTORS.rule(GIVEN)
def _scale_given(node: Expression, args: list[_Scaled], given: GivenFactors) -> _Scaled:
    name, index = node.data
    factor, lacks = given.factors[name][index], given.offsets[name][index]
    offset = centre(lacks * factor, given.t)
    return (linear([(1, node)], offset) if lacks else node), factor


@FACTORS.rule(PRODUCT)
def _scale_product(node: Expression, args: list[_Scaled], given: GivenFactors) -> _Scaled:
    (a, of_a), (b, of_b) = args
    return a * b, of_a * of_b % given.t


@FACTORS.rule(LINEAR)
def _scale_sum(node: Expression, args: list[_Scaled], given: GivenFactors) -> _Scaled:
    coefficients, constant = node.data
    factors = [factor for _, factor in args]
    coefficients, common = choose_common_factor(coefficients, factors, given.t)
    terms = [(c, term) for c, (term, _) in zip(coefficients, args, strict=True)]
    return linear(terms, rescale(constant, 1, common, given.t)), common


@FACTORS.rule(MASK, REPLICATE, RESAMPLE)
def _refuse(node: Expression, args: list[_Scaled], given: GivenFactors) -> _Scaled:
    raise ArgumentTypeError(
        f"{node!r} cannot be computed from given totals", code="not-from-totals"
    )


def apply_correction_factors(
    outputs: Sequence[Expression], given: GivenFactors
) -> tuple[list[Expression], list[int]]:
    """Write outputs over the factors of given totals; return them and the factors that remain.

    Where terms of a sum have different factors, or there is a plain number among them, the smallest
    coefficients make up for it.
    """
    if not given.factors:
        return list(outputs), [1] * len(outputs)
    values = fold(outputs, lambda node, args: FACTORS[node.op](node, args, given))
    return [values[output][0] for output in outputs], [values[output][1] for output in outputs]


def rescale(number: int, old: int, new: int, t: int) -> int:
    """Bring a number from one factor modulo t to another, centre around 0."""
    return number if old == new else centre(number * new * pow(old, -1, t), t)


def find_given_factor(parameters: Parameters) -> int:
    """Return the factor that an expanded total has by default, modulo t.

    It is that of totals that were switched down from columns that were not, packed and expanded.
    """
    dropped = len(parameters.data_moduli) - packing_primes(parameters)
    scale = expansion_scale(parameters)
    return scale * parameters.switch_factor(0, dropped) % parameters.plain_modulus


def choose_common_factor(
    coefficients: Sequence[int], factors: Sequence[int], t: int
) -> tuple[list[int], int]:
    """Choose the factor of a sum among those of its terms; return the coefficients that bring all
    terms to it, and the factor. Large coefficients cost noise, so the smallest are taken.
    """

    def brought_to(common: int) -> list[int]:
        pairs = zip(coefficients, factors, strict=True)
        return [c if f == common else rescale(c, f, common, t) for c, f in pairs]

    ways = [(brought_to(common), common) for common in dict.fromkeys(factors)]
    return min(ways, key=lambda way: max(map(abs, way[0])))
