"""Apply correction factors, which expanding and modulus switching leave in ciphertexts.

An expanded total has a known factor (1/N, modulo t). Multiplying by its inverse would cost noise,
so the factor is followed through the circuit and the owner divides by it. The modulus switching of
BGV leaves a factor as well. The coefficients of a sum bring its terms to one factor.
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

_Scaled = tuple[Expression, int]  # an expression and its correction factor


@dataclass(frozen=True)
class GivenFactors:
    """The factors of the given totals of each pack, modulo t, and the offsets to add to them.

    Offsets, which remove the contribution of padding, are added before multiplying.
    """

    factors: Mapping[str, Sequence[int]]
    offsets: Mapping[str, Sequence[int]]
    t: int


#: Writes a node over totals with factors, from its args and their factors.
FACTORS: Final = RuleTable[Callable[[Expression, list[_Scaled], GivenFactors], _Scaled]](
    "correction factors"
)

FACTORS.rule(COLUMN, HERE)(lambda node, args, scaling: (node, 1))
FACTORS.rule(TOTAL)(lambda node, args, scaling: (args[0][0].total(), args[0][1]))


@FACTORS.rule(GIVEN)
def _scale_given(node: Expression, args: list[_Scaled], scaling: GivenFactors) -> _Scaled:
    name, index = node.data
    factor, lacks = scaling.factors[name][index], scaling.offsets[name][index]
    offset = centre(lacks * factor, scaling.t)
    return (linear([(1, node)], offset) if lacks else node), factor


@FACTORS.rule(PRODUCT)
def _scale_product(node: Expression, args: list[_Scaled], scaling: GivenFactors) -> _Scaled:
    (a, of_a), (b, of_b) = args
    return a * b, of_a * of_b % scaling.t


@FACTORS.rule(LINEAR)
def _scale_sum(node: Expression, args: list[_Scaled], scaling: GivenFactors) -> _Scaled:
    coefficients, constant = node.data
    factors = [factor for _, factor in args]
    coefficients, common = choose_common_factor(coefficients, factors, scaling.t)
    terms = [(c, term) for c, (term, _) in zip(coefficients, args, strict=True)]
    return linear(terms, rescale(constant, 1, common, scaling.t)), common


@FACTORS.rule(MASK, REPLICATE, RESAMPLE)
def _refuse(node: Expression, args: list[_Scaled], scaling: GivenFactors) -> _Scaled:
    raise ArgumentTypeError(
        f"{node!r} cannot be computed from totals of an earlier evaluation", code="not-from-totals"
    )


def apply_correction_factors(
    outputs: Sequence[Expression], scaling: GivenFactors
) -> tuple[list[Expression], list[int]]:
    """Rewrite outputs for the factors of given totals; return them and their own factors.

    If terms of a sum have different factors, the smallest possible coefficients correct for them.
    """
    if not scaling.factors:
        return list(outputs), [1] * len(outputs)
    values = fold(outputs, lambda node, args: FACTORS[node.op](node, args, scaling))
    return [values[output][0] for output in outputs], [values[output][1] for output in outputs]


def rescale(number: int, old: int, new: int, t: int) -> int:
    """Convert a number from one factor modulo t to another, centred around 0."""
    return number if old == new else centre(number * new * pow(old, -1, t), t)


def find_given_factor(parameters: Parameters) -> int:
    """Return the factor that an expanded total has by default, modulo t.

    It assumes columns at level 0, whose totals were switched, packed and expanded.
    """
    dropped = len(parameters.data_moduli) - packing_primes(parameters)
    scale = expansion_scale(parameters)
    return scale * parameters.switch_factor(0, dropped) % parameters.plain_modulus


def choose_common_factor(
    coefficients: Sequence[int], factors: Sequence[int], t: int
) -> tuple[list[int], int]:
    """Choose the factor of a sum among those of its terms.

    Return the coefficients that bring all terms to it, and the factor. Large coefficients cost
    noise, so the factor with the smallest ones is chosen.
    """

    def brought_to(common: int) -> list[int]:
        pairs = zip(coefficients, factors, strict=True)
        return [c if f == common else rescale(c, f, common, t) for c, f in pairs]

    choices = [(brought_to(common), common) for common in dict.fromkeys(factors)]
    return min(choices, key=lambda choice: max(map(abs, choice[0])))
