"""Packing: many totals in one ciphertext.

The sum over all slots is N times the constant coefficient of the plaintext, and constant
coefficients can be merged. Two ciphertexts a, b become one, ``c = (a + X^h b) + s(a - X^h b)`` with
the automorphism s: X -> X^g, g = 2^l + 1, that keeps the coefficients of a at the multiples of
X^(2h) and negates those of X^h b between them. So c holds twice the constant coefficients of both,
at 0 and at h = N/2^l. Repeated, 2^l totals cost 2^l - 1 automorphisms and no rotation.

All other coefficients are linear in the rows and must not be revealed. So a pack is always merged
up to level log2 N, by ``a + s(a)`` where there is no partner, which clears the coefficients of the
missing totals. A finished pack holds its totals, and 0 everywhere else.

Merging multiplies everything by N, noise included, so ciphertexts are divided by N first. This
division is modulo q, not of integers: the values are meaningless until the last level, where
message and noise are restored, and only the noise of the key switches is added. Expanding a pack
reverses the steps, from level log2 N down to 0.

A small table leaves most slots empty. With ``copies`` in the parameters, k of them, ciphertexts
hold every row k times, once in each of the k cosets of the automorphisms that levels log2 k + 1 to
log2 N use (g = 1 modulo 2k). A sum over any of these cosets is the sum over all rows, and those
automorphisms keep the multiples of X^(N/k). So k totals can be interleaved: each is multiplied by
another power of X (:func:`side_by_side`), where the first log2 k levels would have merged them.
That costs the noise of a sum, no multiplication and no key switch; and one ciphertext is switched
and relinearised in place of k.

All this happens under the first few primes, in a SEAL context of its own with the same secret:
key-switching keys are then a fraction of the size, and so is the work.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import seal

from encryptedstats.crypto.engine import Engine, engine_for
from encryptedstats.crypto.flooding import flooded_noise
from encryptedstats.crypto.noise import Noise, NoiseModel
from encryptedstats.crypto.parameters import Parameters
from encryptedstats.crypto.residues import (
    Residues,
    ciphertext_of,
    residues_of,
    secret_residues,
    times_constant,
)
from encryptedstats.errors import ArgumentError, InsecureParametersWarning

NO_PACKING_KEYS = (
    "these public keys were made without packing keys: owner.public_keys(packing=True)"
)
# A circuit may leave this much more than the rounding of a switched ciphertext before it is packed.
_SPARE_BITS = 6


@lru_cache(maxsize=64)
def packing_primes(parameters: Parameters) -> int:
    """Return how many of the first data primes packing uses.

    It is the fewest with which a full pack is proven to decrypt, or more if the parameters ask for
    it because packed totals are computed on.
    """
    if parameters.kept_primes is not None:
        return parameters.kept_primes
    count = len(parameters.data_moduli)
    for primes in range(1, count):
        model = packing_model(parameters, primes)
        start = model.rounding(2).times(2.0**_SPARE_BITS)
        if model.decrypts(packed_noise(model, start)):
            return primes
    return count


@lru_cache(maxsize=64)
def packing_model(parameters: Parameters, primes: int) -> NoiseModel:
    """Return the noise rules under the first primes alone."""
    data, special = parameters.data_moduli[:primes], parameters.coefficient_moduli[-1]
    scheme, ring, t = parameters.scheme, parameters.ring_degree, parameters.plain_modulus
    return NoiseModel(scheme, ring, t, data, special, parameters.members)


@lru_cache(maxsize=64)
def packing_parameters(parameters: Parameters) -> Parameters:
    """Return the same ring and plaintexts under the primes that packing uses."""
    return first_primes(parameters, packing_primes(parameters))


@lru_cache(maxsize=64)
def first_primes(parameters: Parameters, primes: int) -> Parameters:
    """Return the same ring and plaintexts under the first primes alone."""
    moduli = (*parameters.data_moduli[:primes], parameters.coefficient_moduli[-1])
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", InsecureParametersWarning
        )  # the larger parameters have warned already
        return Parameters(
            parameters.scheme,
            parameters.ring_degree,
            parameters.plain_modulus,
            moduli,
            parameters.terms,
            allow_insecure=parameters.allow_insecure,
            members=parameters.members,
            copies=parameters.copies,
        )


def encrypted_zero_noise(parameters: Parameters, primes: int | None = None) -> Noise:
    """Bound an encryption of 0 by the public key, switched down to the primes that packing uses.

    ``primes`` names another number of them.
    """
    level = len(parameters.data_moduli) - (packing_primes(parameters) if primes is None else primes)
    return parameters.noise.switch(
        parameters.noise.fresh(with_secret_key=False, constant=True), level
    ).at(0)


def flooded_unpacked_noise(parameters: Parameters, noise: Noise) -> Noise:
    """Bound a flooded ciphertext that is not packed, at its own level."""
    model = parameters.noise
    return flooded_noise(model, noise, encrypted_zero_noise(parameters, model.levels - noise.level))


def has_room_for_flooding(parameters: Parameters) -> bool:
    """Return True if packs can be flooded, however little noise they have.

    That takes keys that were planned for rows of contributors.
    """
    model = packing_model(parameters, packing_primes(parameters))
    least = packed_noise(model, model.rounding(2))
    return model.decrypts(flooded_noise(model, least, encrypted_zero_noise(parameters)))


def packing_secret(parameters: Parameters, secret: Any) -> Any:
    """Return the secret polynomial for the packing context: SEAL keeps it prime by prime."""
    small, ring = packing_parameters(parameters), parameters.ring_degree
    kept = [*range(len(small.data_moduli)), len(parameters.coefficient_moduli) - 1]
    body = secret_residues(parameters, secret.to_string()).astype("<u8")
    template = seal.KeyGenerator(engine_for(small).context).secret_key().to_string()
    return engine_for(small).context.from_secret_str(
        template[: -8 * ring * len(kept)] + body[kept].tobytes()
    )


def make_packing_keys(parameters: Parameters, secret: Any) -> Any:
    """Make the key-switching keys of all automorphisms that packing uses."""
    engine = engine_for(packing_parameters(parameters))
    generator = seal.KeyGenerator(engine.context, packing_secret(parameters, secret))
    keys = seal.GaloisKeys()
    generator.create_galois_keys(packing_steps(parameters.ring_degree), keys)
    return keys


@lru_cache(maxsize=16)
def packing_elements(ring_degree: int) -> dict[int, tuple[int, ...]]:
    """Return for each level l the automorphisms that make up an X -> X^g with g = 1 + 2^l modulo
    2^(l+1).

    SEAL makes keys for powers of 3 and for -1. All 2^l + 1 are powers of 3 except for l = 2, where
    -3 serves as well as 5.
    """
    order = 2 * ring_degree
    levels = range(1, ring_degree.bit_length())
    return {level: (3, order - 1) if level == 2 else ((1 << level) + 1,) for level in levels}


@lru_cache(maxsize=16)
def packing_steps(ring_degree: int) -> list[int]:
    """Return the rotations that SEAL must make keys for; 0 stands for the automorphism -1."""
    order, logarithms, power = 2 * ring_degree, {}, 1
    for step in range(ring_degree // 2):
        logarithms[power] = step
        power = power * 3 % order
    elements = {g for group in packing_elements(ring_degree).values() for g in group}
    return sorted(0 if g == order - 1 else logarithms[g] for g in elements)


def has_packing_keys(keys: Any, ring_degree: int) -> bool:
    """Return True if these are keys for all the automorphisms."""
    return all(keys.has_key(g) for group in packing_elements(ring_degree).values() for g in group)


# -- packing
# ------------------------------------------------------------------------------------------------


def packing_places(count: int, ring_degree: int) -> list[int]:
    """Return the coefficients that ``count`` totals are packed into.

    The first half of the totals goes to the even places, and so on within each half. So all parts
    but the last are full, and each half of an expanded pack holds neighbours.

    >>> packing_places(6, 1024)
    [0, 512, 256, 768, 128, 640]
    """
    return [reverse_bits(i, ring_degree) for i in range(count)]


def reverse_bits(number: int, count: int) -> int:
    """Return the number below ``count``, a power of two, with its bits in reverse order."""
    return int(f"{number:0{count.bit_length() - 1}b}"[::-1], 2)


def interleaving_power(place: int, copies: int, ring_degree: int) -> int:
    """Return the power of X for the total at a place, to interleave it with its ``copies``
    neighbours.
    """
    return reverse_bits(place % copies, copies) * (ring_degree // copies)


def packing_levels(count: int) -> int:
    """Return how many times pairs are merged for ``count`` totals."""
    return max(0, count - 1).bit_length()


def merges_of(count: int, ring_degree: int) -> Iterator[tuple[int, int, int]]:
    """Yield for each level of a pack the level, the number of pairs, and of unpaired nodes (0 or
    1).
    """
    for level in range(1, ring_degree.bit_length()):
        nodes, below = -(-count >> level), -(-count >> (level - 1))
        yield level, below - nodes, 2 * nodes - below


def packed_noise(model: NoiseModel, start: Noise) -> Noise:
    """Bound the coefficients of a pack of ciphertexts that are all bounded by ``start``.

    A coefficient of the pack comes from one total (divided and multiplied by N) and from what was
    added on each later merge: it sees nothing of the other totals. An error added at level l is
    doubled at each later level.
    """
    noise = Noise(model.coefficient_bound(start))
    for level in range(1, model.ring_degree.bit_length()):
        added = _automorphism_noise(model, level).times(model.ring_degree >> level)
        noise = noise + Noise(model.coefficient_bound(added))
    return noise


def _automorphism_noise(model: NoiseModel, level: int) -> Noise:
    noise = Noise(0.0)
    for _ in packing_elements(model.ring_degree)[level]:
        noise = model.key_switch(noise)
    return noise


def to_packing_context(engine: Engine, ciphertext: Any) -> Any:
    """Convert a ciphertext under the first primes to one of the packing context."""
    return ciphertext_of(
        engine_for(packing_parameters(engine.parameters)), residues_of(engine, ciphertext)
    )


def pack(
    parameters: Parameters,
    keys: Any,
    ciphertexts: Sequence[Any],
    levels: int | None = None,
    lowest: int = 0,
    start: int = 0,
) -> Any:
    """Merge the constant coefficients of ciphertexts into one ciphertext of the packing context.

    ``levels`` stops early, for totals that are a part of a larger pack. With ``lowest`` the
    ciphertexts are such parts, each but the last of 2^lowest totals. Where ``lowest`` equals
    ``start`` they are 2^start interleaved totals each.
    """
    engine = engine_for(packing_parameters(parameters))
    top = parameters.ring_degree.bit_length() - 1
    levels = top if levels is None else levels
    if not 0 <= lowest <= levels <= top or not 1 <= len(ciphertexts) <= 1 << (levels - lowest):
        raise ArgumentError(
            f"{len(ciphertexts)} totals: one ciphertext holds 1 to {parameters.ring_degree}",
            code="totals-out-of-range",
        )
    items = list(ciphertexts)
    if lowest == start:
        items = [_divide(engine, each, parameters.ring_degree >> start) for each in items]
    return _merge_all(engine, keys, items, levels, lowest)


def _divide(engine: Engine, ciphertext: Any, by: int) -> Any:
    residues = residues_of(engine, ciphertext)
    moduli = engine.parameters.data_moduli[: residues.shape[1]]
    return ciphertext_of(engine, times_constant(residues, [pow(by, -1, p) for p in moduli], moduli))


def _merge_all(engine: Engine, keys: Any, items: list[Any], level: int, lowest: int) -> Any:
    if level == lowest:
        return items[0]
    half = 1 << (level - 1 - lowest)
    even = _merge_all(engine, keys, items[:half], level - 1, lowest)
    odd = _merge_all(engine, keys, items[half:], level - 1, lowest) if len(items) > half else None
    return merge(engine, keys, even, odd, level)


def merge(engine: Engine, keys: Any, even: Any, odd: Any | None, level: int) -> Any:
    """Merge two nodes into one. Without a partner, clear the coefficients that it would have
    filled.
    """
    evaluator = engine.evaluator
    if odd is None:
        return evaluator.add(even, _apply_automorphisms(engine, keys, even, level))
    shifted = evaluator.multiply_plain(
        odd, engine.encode_power(engine.parameters.ring_degree >> level)
    )
    plus, minus = evaluator.add(even, shifted), evaluator.sub(even, shifted)
    return evaluator.add(plus, _apply_automorphisms(engine, keys, minus, level))


def unpack(parameters: Parameters, plain: Any, count: int) -> list[int]:
    """Return the sums over all slots that a decrypted pack of ``count`` totals holds.

    They lie between -(t-1)/2 and (t-1)/2.

    Raises
    ------
    ValueError
        If the pack holds anything else.
    """
    ring, t = parameters.ring_degree, parameters.plain_modulus
    coefficients = plaintext_coefficients(plain, ring)
    found = coefficients[packing_places(count, ring)]
    if np.count_nonzero(coefficients) > np.count_nonzero(found):
        raise ArgumentError(
            "the result holds more than its totals: it was altered, or not computed as asked",
            code="foreign-coefficients",
        )
    return [centre(int(value) * parameters.slots, t) for value in found]


def encrypted_totals_noise(parameters: Parameters) -> Noise:
    """Bound the noise of a new pack of plain totals, encrypted by anybody."""
    model = packing_model(parameters, packing_primes(parameters))
    return model.add_plain(encrypted_zero_noise(parameters), constant=False)


def encrypted_totals(
    parameters: Parameters, zero: Residues, totals: Sequence[int]
) -> tuple[Residues, Noise]:
    """Encrypt plain totals as a pack, as :func:`unpack` reads them, and bound its noise.

    ``zero`` is an encryption of 0 at the level of packs.
    """
    engine, ring, t = (
        engine_for(packing_parameters(parameters)),
        parameters.ring_degree,
        parameters.plain_modulus,
    )
    inverse, places = expansion_scale(parameters), packing_places(len(totals), ring)
    found = {place: total * inverse % t for place, total in zip(places, totals, strict=True)}
    terms = [f"{value:X}x^{place}" for place, value in sorted(found.items(), reverse=True) if value]
    noise = encrypted_totals_noise(parameters)
    if not terms:
        return zero, noise
    plain = seal.Plaintext(" + ".join(terms).replace("x^0", ""))
    return residues_of(
        engine, engine.evaluator.add_plain(ciphertext_of(engine, zero), plain)
    ), noise


def centre(value: int, modulus: int) -> int:
    """Return the integer nearest to 0 that equals ``value`` modulo ``modulus``."""
    value %= modulus
    return value - modulus if value > modulus // 2 else value


def plaintext_coefficients(plain: Any, ring_degree: int) -> Any:
    """Return the coefficients of a SEAL plaintext, padded with zeros to the degree of the ring."""
    count = plain.coeff_count()
    coefficients = np.zeros(ring_degree, dtype=np.uint64)
    if count:
        data = plain.to_bytes()
        coefficients[:count] = np.frombuffer(data, dtype="<u8", offset=len(data) - 8 * count)
    return coefficients


# -- expanding: from a pack back to a ciphertext for each total, in every slot
# -------------------------------------------


def expanded_noise(model: NoiseModel, packed: Noise, start: int = 0) -> Noise:
    """Bound every total, or every 2^start interleaved totals, that is expanded out of a pack.

    An error added at level l is doubled at each later level, down to ``start``.
    """
    noise = Noise(model.coefficient_bound(packed) * (1 << start))
    for level in range(model.ring_degree.bit_length() - 1, start, -1):
        noise = noise + _automorphism_noise(model, level).times(1 << (level - 1 - start))
    return noise


def expansion_scale(parameters: Parameters) -> int:
    """Return the factor, modulo t, of totals that were packed and expanded.

    A sum over slots is N times a coefficient.
    """
    return pow(parameters.slots, -1, parameters.plain_modulus)


def split(
    engine: Engine, keys: Any, ciphertext: Any, level: int, *, odd: bool = True, start: int = 0
) -> tuple[Any, ...]:
    """Split a node into its first totals and (``odd``) the others: the inverse of :func:`merge`.

    A pack is split down to level ``start``.
    """
    evaluator, ring = engine.evaluator, engine.parameters.ring_degree
    if 1 << level == ring:
        ciphertext = _divide(engine, ciphertext, ring >> start)
    moved = _apply_automorphisms(engine, keys, ciphertext, level)
    even = evaluator.add(ciphertext, moved)
    if not odd:
        return (even,)
    # X^-h = -X^(N-h)
    shifted = evaluator.multiply_plain(
        evaluator.sub(moved, ciphertext), engine.encode_power(ring - (ring >> level))
    )
    return even, shifted


def expand(
    engine: Engine, keys: Any, ciphertext: Any, count: int, level: int, start: int = 0
) -> list[Any]:
    """Return the totals of a pack, or of a part of one with ``level`` levels left, in order.

    With ``start`` each result holds 2^start interleaved totals.
    """
    if level == start:
        return [ciphertext]
    half = 1 << (level - 1)
    parts = split(engine, keys, ciphertext, level, odd=count > half, start=start)
    totals = expand(engine, keys, parts[0], min(count, half), level - 1, start)
    return (
        totals + expand(engine, keys, parts[1], count - half, level - 1, start)
        if count > half
        else totals
    )


def _apply_automorphisms(engine: Engine, keys: Any, ciphertext: Any, level: int) -> Any:
    for element in packing_elements(engine.parameters.ring_degree)[level]:
        ciphertext = engine.evaluator.apply_galois(ciphertext, element, keys)
    return ciphertext
