"""The numbers of a spot check: spare bits, shares, positions and weights.

``docs/explanation/verification.md`` proves them. A plan reserves the spare bits, and the owner
takes the positions and weights that follow from the parameters alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from encryptedstats.crypto.parameters import Parameters
from encryptedstats.errors import NoiseError

_MOST_WEIGHT_BITS: Final = 16
LEAST_BUDGET: Final = 2  # bits that SEAL must measure, so that it decrypts without error
#: Of all positions, the share that is kept at most.
MOST_KEPT: Final = 0.04
#: Bits of the weights that a plan leaves room for: 4 combinations for 2^-51.
PLANNED_WEIGHT_BITS: Final = 13
_POSITIONS: Final = 512


@dataclass(frozen=True)
class Certainty:
    """How unlikely it is that a wrong answer passes.

    Attributes
    ----------
    position_bits : float
        A lie misses all positions with probability at most 2^-position_bits.
    combination_bits : int
        A wrong total survives all combinations with probability at most 2^-combination_bits, for
        each commitment that weights were sent for.
    """

    position_bits: float = 41
    combination_bits: int = 51


@dataclass(frozen=True)
class Terms:
    """How one question is checked.

    Attributes
    ----------
    weight_bits : int
        Weights are from 1 to 2^weight_bits.
    combinations : int
    budget : int
        The noise budget in bits that SEAL must measure of each combination.
    share : float
        Of all positions, at which a lie shows at least.
    """

    weight_bits: int
    combinations: int
    budget: int
    share: float


def required_budget(parameters: Parameters, bound: float) -> int:
    """Return the largest budget that SEAL measures of every ciphertext whose noise has coefficients
    up to this bound.

    SEAL's budget is the number of bits of q, less those of the largest coefficient, less 1.
    """
    if not math.isfinite(bound):
        return 0
    return _modulus(parameters).bit_length() - 1 - int(bound).bit_length()


def share_of_lies(parameters: Parameters, budget: int) -> float:
    """Return at which share of all positions two ciphertexts differ at least (Lemma 2).

    Both have at least this budget, and they do not decrypt to the same polynomial.
    """
    q, primes = _modulus(parameters), parameters.data_moduli
    spare = budget - math.log2(parameters.ring_degree) / 2 - (q.bit_length() - math.log2(q))
    return spare / (len(primes) * math.log2(max(primes)))


def count_positions(share: float, bits: float) -> int:
    """Return how many positions miss a lie with probability at most 2^-bits (Lemma 3)."""
    return math.ceil(-bits * math.log(2) / math.log1p(-share))


def count_residues(parameters: Parameters) -> int:
    """Return how many positions there are: residues of a polynomial."""
    return parameters.ring_degree * len(parameters.data_moduli)


def default_positions(parameters: Parameters) -> int:
    """Return how many positions are kept: 512, and at most 4 % of all."""
    return max(1, min(_POSITIONS, int(MOST_KEPT * count_residues(parameters))))


def choose_terms(
    parameters: Parameters,
    bound: float,
    n_positions: int,
    certainty: Certainty,
    least_weight_bits: int = 1,
) -> Terms:
    """Return the fewest combinations that leave enough spare bits for the positions.

    Parameters
    ----------
    bound : float
        For the coefficients of the sum of all totals, each once.
    least_weight_bits : int
        Leave room for weights of this many bits, or the most that t allows.

    Raises
    ------
    NoiseError
        If this number of positions is not enough, whatever the weights.
    """
    # Weights up to 2^w that are different modulo t, and that SEAL lifts to themselves.
    most = min(_MOST_WEIGHT_BITS, parameters.plain_modulus.bit_length() - 2)
    for bits in range(most, min(least_weight_bits, most) - 1, -1):
        budget = required_budget(parameters, bound * (1 << bits))
        share = share_of_lies(parameters, budget)
        enough = 0 < share < 1 and count_positions(share, certainty.position_bits) <= n_positions
        if budget >= LEAST_BUDGET and enough:
            combinations = -(-certainty.combination_bits // bits)
            return Terms(bits, combinations, budget, share)
    raise NoiseError(
        "the noise of these totals leaves too few bits to spare: a wrong answer would show at so "
        f"few positions that {n_positions:,} of them could miss it. Keep more positions, or plan "
        "larger parameters",
        code="too-few-spare-bits",
    )


def _modulus(parameters: Parameters) -> int:
    return math.prod(parameters.data_moduli)
