"""Bound the coefficients of sums of products, more sharply than by their values at the roots.

The noise model bounds a noise V at the roots of X^N + 1, because that is what products need. Such a
bound also holds for the coefficients of V, but it is loose: the noise of a fresh column is spread
over N coefficients. This module follows the Euclidean norm of the coefficients as well. It serves
spot checks, whose sums are made of fresh columns: docs/explanation/verification.md has the proof.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from encryptedstats.circuits.expressions import ONES, in_order
from encryptedstats.circuits.program import ADD_UP, COLUMN, HERE, MULTIPLY, SHIFT, SUM, Step
from encryptedstats.circuits.rules import RuleTable
from encryptedstats.crypto.noise import ERROR_DEVIATION
from encryptedstats.crypto.parameters import Parameters

_LARGEST_ERROR: Final = 21  # of SEAL's errors: 21 bits minus 21 bits
_LEAST_RING: Final = 1024  # from which on the norm of an error is concentrated


@dataclass(frozen=True)
class Norms:
    """Bounds for the noise of a ciphertext.

    Attributes
    ----------
    roots : float
        For its value at each complex root of X^N + 1.
    euclidean : float
        For the square root of the sum of the squares of its coefficients.
    largest : float
        For each coefficient.
    """

    roots: float
    euclidean: float
    largest: float

    def times(self, factor: float) -> Norms:
        return Norms(self.roots * factor, self.euclidean * factor, self.largest * factor)

    def __add__(self, other: Norms) -> Norms:
        return Norms(
            self.roots + other.roots,
            self.euclidean + other.euclidean,
            self.largest + other.largest,
        )

    def __mul__(self, other: Norms) -> Norms:
        """Bound a product of polynomials: by Parseval, and by Cauchy and Schwarz."""
        euclidean = min(self.roots * other.euclidean, self.euclidean * other.roots)
        largest = min(euclidean, self.euclidean * other.euclidean)
        return Norms(self.roots * other.roots, euclidean, largest)


def bound_coefficients(
    steps: Iterable[Step], parameters: Parameters, n_chunks: int
) -> dict[Step, float]:
    """Return a bound for the coefficients of the noise of each step.

    The steps are sums of products of columns that the owner encrypted, over this many chunks. The
    bounds fail together with those of the noise model, with probability at most 2^-128.
    """
    wanted, known = tuple(steps), _Known(parameters, n_chunks, {})
    for step in in_order(wanted):
        known.norms[step] = _NORMS[step.op](known, step)
    return {step: known.norms[step].largest for step in wanted}


@dataclass(frozen=True)
class _Known:
    parameters: Parameters
    n_chunks: int
    norms: dict[Step, Norms]

    def args(self, step: Step) -> Sequence[Norms]:
        return [self.norms[arg] for arg in step.args]


_NORMS: Final = RuleTable[Callable[[_Known, Step], Norms]]("norms")


@_NORMS.rule(COLUMN, HERE)
def _fresh(known: _Known, step: Step) -> Norms:
    """Bound m + t e, with a message below t and an error of SEAL."""
    parameters, roots = known.parameters, step.noise.flat + step.noise.peak
    if step.op == HERE and step.data != ONES:
        return Norms(roots, roots, roots)
    t, ring = parameters.plain_modulus, parameters.ring_degree
    spread = math.sqrt(2) * ERROR_DEVIATION if ring >= _LEAST_RING else _LARGEST_ERROR
    euclidean = t * math.sqrt(ring) * (1 + spread)
    return Norms(roots, min(roots, euclidean), min(roots, float(t * (1 + _LARGEST_ERROR))))


@_NORMS.rule(ADD_UP)
def _add_up(known: _Known, step: Step) -> Norms:
    coefficients, constant = step.data
    t = float(known.parameters.plain_modulus)
    total = Norms(t, t, t) if constant else Norms(0.0, 0.0, 0.0)
    for coefficient, norms in zip(coefficients, known.args(step), strict=True):
        total += norms.times(abs(coefficient))
    return total


@_NORMS.rule(MULTIPLY)
def _multiply(known: _Known, step: Step) -> Norms:
    a, b = known.args(step)
    return a * b


@_NORMS.rule(SHIFT)
def _shift(known: _Known, step: Step) -> Norms:
    (norms,) = known.args(step)
    return norms  # a power of X moves coefficients


@_NORMS.rule(SUM)
def _sum(known: _Known, step: Step) -> Norms:
    (row,), (norms,) = step.args, known.args(step)
    return norms.times(max(1, known.n_chunks if row.chunks is None else len(row.chunks)))
