"""Many totals in one ciphertext: the sum over all slots is N times the constant coefficient of the plaintext, and constant
coefficients can be merged.

Two ciphertexts a, b become one, ``c = (a + X^h b) + s(a - X^h b)`` with the automorphism s: X -> X^g, g = 2^l + 1, that keeps
what a has at the multiples of X^(2h) and turns the sign of what X^h b has between them: so c holds twice the constant
coefficients of both, at 0 and at h = N/2^l. Repeated, 2^l totals cost 2^l - 1 automorphisms and no rotation (the other
coefficients hold what nobody needs).

All this is done under the first few primes only, in a SEAL context of its own with the same secret: key-switching keys are then
a fraction of the size, and every step of the work too.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import seal

from encryptedstats.crypto.engine import Engine, engine_for
from encryptedstats.crypto.noise import Noise, NoiseModel
from encryptedstats.crypto.parameters import Parameters
from encryptedstats.crypto.residues import ciphertext_of, residues_of
from encryptedstats.errors import InsecureParametersWarning

# A circuit may leave this much more than the rounding of a switched ciphertext before it is packed.
_SPARE_BITS = 6


@lru_cache(maxsize=64)
def packing_primes(parameters: Parameters) -> int:
    """How many of the first data primes packing works under: the fewest with which a full pack is proven to decrypt.

    More where totals are to be computed on with: then the parameters say so.
    """
    if parameters.kept_primes is not None:
        return parameters.kept_primes
    count = len(parameters.data_moduli)
    for primes in range(1, count):
        model = packing_model(parameters, primes)
        start = model.rounded(2).times(2.0**_SPARE_BITS)
        if model.decrypts(packed_noise(model, start, parameters.ring_degree)):
            return primes
    return count


@lru_cache(maxsize=64)
def packing_model(parameters: Parameters, primes: int) -> NoiseModel:
    """The noise rules under the first primes alone."""
    data, special = parameters.data_moduli[:primes], parameters.coefficient_moduli[-1]
    return NoiseModel(parameters.scheme, parameters.ring_degree, parameters.plain_modulus, data, special)


@lru_cache(maxsize=64)
def packing_parameters(parameters: Parameters) -> Parameters:
    """The same ring and plaintexts under the primes that packing works under."""
    return first_primes(parameters, packing_primes(parameters))


@lru_cache(maxsize=64)
def first_primes(parameters: Parameters, primes: int) -> Parameters:
    """The same ring and plaintexts under the first primes alone."""
    moduli = (*parameters.data_moduli[:primes], parameters.coefficient_moduli[-1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InsecureParametersWarning)  # the larger parameters have warned already
        return Parameters(
            parameters.scheme,
            parameters.ring_degree,
            parameters.plain_modulus,
            moduli,
            parameters.terms,
            allow_insecure=parameters.allow_insecure,
        )


def packing_secret(parameters: Parameters, secret: Any) -> Any:
    """The same secret polynomial for the smaller context: SEAL keeps it prime by prime, so some of its residues."""
    small, ring = packing_parameters(parameters), parameters.ring_degree
    kept = [*range(len(small.data_moduli)), len(parameters.coefficient_moduli) - 1]
    data = secret.to_string()
    body = np.frombuffer(data[-8 * ring * len(parameters.coefficient_moduli) :], dtype="<u8").reshape(-1, ring)
    template = seal.KeyGenerator(engine_for(small).context).secret_key().to_string()
    return engine_for(small).context.from_secret_str(template[: -8 * ring * len(kept)] + body[kept].tobytes())


def make_packing_keys(parameters: Parameters, secret: Any) -> Any:
    """The key-switching keys of all automorphisms that packing uses."""
    engine = engine_for(packing_parameters(parameters))
    generator = seal.KeyGenerator(engine.context, packing_secret(parameters, secret))
    keys = seal.GaloisKeys()
    generator.create_galois_keys(packing_steps(parameters.ring_degree), keys)
    return keys


@lru_cache(maxsize=16)
def packing_elements(ring_degree: int) -> dict[int, tuple[int, ...]]:
    """For each level l the automorphisms, one after the other, that make up an X -> X^g with g = 1 + 2^l modulo 2^(l+1).

    SEAL makes keys for powers of 3 and for -1. All 2^l + 1 are powers of 3 but for l = 2, where -3 does as well as 5.
    """
    order = 2 * ring_degree
    levels = range(1, ring_degree.bit_length())
    return {level: (3, order - 1) if level == 2 else ((1 << level) + 1,) for level in levels}


@lru_cache(maxsize=16)
def packing_steps(ring_degree: int) -> list[int]:
    """The rotations that SEAL has to make keys for; 0 stands for the automorphism -1."""
    order, logarithms, power = 2 * ring_degree, {}, 1
    for step in range(ring_degree // 2):
        logarithms[power] = step
        power = power * 3 % order
    elements = {g for group in packing_elements(ring_degree).values() for g in group}
    return sorted(0 if g == order - 1 else logarithms[g] for g in elements)


def has_packing_keys(keys: Any, ring_degree: int) -> bool:
    """Whether these are keys for all the automorphisms."""
    return all(keys.has_key(g) for group in packing_elements(ring_degree).values() for g in group)


# -- packing ----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def packing_order(count: int) -> tuple[int, ...]:
    """In which order ``count`` totals are packed: such that every part of an expansion brings neighbours.

    A pack is expanded by parting those with an even place from those with an odd one, again and again. The first half of the
    totals is at the even places therefore, and so on within.

    >>> packing_order(6)
    (0, 3, 2, 5, 1, 4)
    """

    def placed(totals: range) -> list[int]:
        if len(totals) < 2:
            return list(totals)
        half = -(-len(totals) // 2)
        order = [0] * len(totals)
        order[0::2], order[1::2] = placed(totals[:half]), placed(totals[half:])
        return order

    return tuple(placed(range(count)))


def packing_levels(count: int) -> int:
    """How many times pairs are merged for so many totals."""
    return max(0, count - 1).bit_length()


def merges_of(count: int) -> Iterator[tuple[int, int, int]]:
    """How ``count`` totals are merged: for each level, the pairs, and the ones that are left without a partner."""
    levels = packing_levels(count)
    for depth in range(levels):
        pairs = min(1 << depth, count - (1 << depth))
        yield levels - depth, pairs, (1 << depth) - pairs


def packed_noise(model: NoiseModel, start: Noise, count: int) -> Noise:
    """The noise of a pack of ``count`` ciphertexts that are all bounded by ``start``."""
    noise = start
    for level in range(1, packing_levels(count) + 1):
        moved = noise.times(2)
        for _ in packing_elements(model.ring_degree)[level]:
            moved = model.key_switch(moved)
        noise = noise.times(2) + moved
    return noise


def to_packing_context(engine: Engine, ciphertext: Any) -> Any:
    """A ciphertext that was switched down to the first primes, as one of the packing context."""
    return ciphertext_of(engine_for(packing_parameters(engine.parameters)), residues_of(engine, ciphertext))


def pack(parameters: Parameters, keys: Any, ciphertexts: Sequence[Any], levels: int | None = None) -> Any:
    """One ciphertext of the packing context with all the constant coefficients, in order.

    ``levels`` merges so many times, for totals that are a share of more.
    """
    engine = engine_for(packing_parameters(parameters))
    levels = packing_levels(len(ciphertexts)) if levels is None else levels
    if not 1 <= len(ciphertexts) <= 1 << levels or 1 << levels > parameters.ring_degree:
        raise ValueError(f"{len(ciphertexts)} totals: one ciphertext holds 1 to {parameters.ring_degree}")
    return _merged(engine, keys, list(ciphertexts), levels, 0)


def merge_shares(parameters: Parameters, keys: Any, shares: Sequence[Any], levels: int) -> Any:
    """The pack of all totals from packs of every so-manieth of them, in order; ``levels`` as for all of them."""
    engine = engine_for(packing_parameters(parameters))
    return _merged(engine, keys, list(shares), levels, levels - packing_levels(len(shares)))


def _merged(engine: Engine, keys: Any, items: list[Any], level: int, lowest: int) -> Any:
    if level == lowest:
        return items[0]
    even = _merged(engine, keys, items[0::2], level - 1, lowest)
    odd = _merged(engine, keys, items[1::2], level - 1, lowest) if len(items) > 1 else None
    return merge(engine, keys, even, odd, level)


def merge(engine: Engine, keys: Any, even: Any, odd: Any | None, level: int) -> Any:
    """One step of packing. Without a partner, what is there is doubled, to keep step with the others: what the automorphism
    would remove lies where the partner's totals would, and nobody reads it there."""
    evaluator = engine.evaluator
    if odd is None:
        return evaluator.add(even, even)
    shifted = evaluator.multiply_plain(odd, seal.Plaintext(f"1x^{engine.parameters.ring_degree >> level}"))
    plus, minus = evaluator.add(even, shifted), evaluator.sub(even, shifted)
    return evaluator.add(plus, _moved(engine, keys, minus, level))


def unpack(parameters: Parameters, plain: Any, count: int) -> list[int]:
    """The sums over all slots that a decrypted pack of ``count`` totals holds, between -(t-1)/2 and (t-1)/2."""
    ring, t, level = parameters.ring_degree, parameters.plain_modulus, packing_levels(count)
    coefficients = plaintext_coefficients(plain, ring)
    factor = (ring >> level) % t  # the pack holds 2^level times the constant coefficient, a sum is N times it
    values = [int(coefficients[i * (ring >> level)]) * factor % t for i in range(count)]
    return [centred(value, t) for value in values]


def centred(value: int, modulus: int) -> int:
    """The integer nearest to 0 that equals ``value`` modulo ``modulus``."""
    value %= modulus
    return value - modulus if value > modulus // 2 else value


def plaintext_coefficients(plain: Any, ring_degree: int) -> Any:
    """The coefficients of a SEAL plaintext, padded with zeros to the degree of the ring."""
    count = plain.coeff_count()
    coefficients = np.zeros(ring_degree, dtype=np.uint64)
    if count:
        data = plain.to_bytes()
        coefficients[:count] = np.frombuffer(data, dtype="<u8", offset=len(data) - 8 * count)
    return coefficients


# -- expanding: from a pack back to a ciphertext for each total, in every slot ---------------------------------------------


def expanded_noise(model: NoiseModel, packed: Noise) -> Noise:
    """The noise of every total that is expanded out of a pack: at each level twice what there was, and an automorphism."""
    noise = packed
    for level in range(model.ring_degree.bit_length() - 1, 0, -1):
        moved = noise
        for _ in packing_elements(model.ring_degree)[level]:
            moved = model.key_switch(moved)
        noise = noise + moved
    return noise


def expansion_scale(plain_modulus: int, count: int) -> int:
    """What totals are multiplied by, modulo t, after a pack of ``count`` and its expansion."""
    return pow(2, packing_levels(count), plain_modulus)


def cleared(engine: Engine, keys: Any, ciphertext: Any, count: int) -> Any:
    """A pack without what lies between its totals."""
    for level in range(engine.parameters.ring_degree.bit_length() - 1, packing_levels(count), -1):
        ciphertext = engine.evaluator.add(ciphertext, _moved(engine, keys, ciphertext, level))
    return ciphertext


def parted(engine: Engine, keys: Any, ciphertext: Any, level: int, *, odd: bool = True) -> tuple[Any, ...]:
    """What holds the totals at even places, and (``odd``) what holds those at odd ones: the inverse of :func:`merge`."""
    evaluator, ring = engine.evaluator, engine.parameters.ring_degree
    moved = _moved(engine, keys, ciphertext, level)
    even = evaluator.add(ciphertext, moved)
    if not odd:
        return (even,)
    # X^-h = -X^(N-h)
    shifted = evaluator.multiply_plain(evaluator.sub(moved, ciphertext), seal.Plaintext(f"1x^{ring - (ring >> level)}"))
    return even, shifted


def expand(engine: Engine, keys: Any, ciphertext: Any, count: int, level: int) -> list[Any]:
    """The totals of a cleared pack (or of a part of one, with ``level`` levels left), in the order of their places."""
    if not level:
        return [ciphertext]
    halves = parted(engine, keys, ciphertext, level, odd=count > 1)
    totals: list[Any] = [None] * count
    for first, half in enumerate(halves):
        totals[first::2] = expand(engine, keys, half, len(totals[first::2]), level - 1)
    return totals


def _moved(engine: Engine, keys: Any, ciphertext: Any, level: int) -> Any:
    for element in packing_elements(engine.parameters.ring_degree)[level]:
        ciphertext = engine.evaluator.apply_galois(ciphertext, element, keys)
    return ciphertext
