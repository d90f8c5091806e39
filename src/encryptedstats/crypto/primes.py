"""Prime numbers for moduli: a deterministic Miller-Rabin test for 64-bit numbers, and searches in
residue classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import islice

# These bases decide primality for every n below 3.3e24 (Sorenson and Webster, 2015), hence for
# 64-bit numbers.
_WITNESSES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)


@lru_cache(1 << 14)  # plans ask for the same few primes a thousand times
def is_prime(n: int) -> bool:
    """Return True if ``n`` (below 2**64) is prime. The test is exact.

    >>> [n for n in range(20) if is_prime(n)]
    [2, 3, 5, 7, 11, 13, 17, 19]
    """
    if n < 2:
        return False
    for p in _WITNESSES:
        if n % p == 0:
            return n == p
    odd, twos = n - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    return all(_passes(n, base, odd, twos) for base in _WITNESSES)


def _passes(n: int, base: int, odd: int, twos: int) -> bool:
    x = pow(base, odd, n)
    if x in (1, n - 1):
        return True
    for _ in range(twos - 1):
        x = x * x % n
        if x == n - 1:
            return True
    return False


def next_prime(above: int, step: int) -> int:
    """Return the smallest prime greater than ``above`` that is 1 modulo ``step``.

    >>> next_prime(2 * 65536, 16384)
    147457
    """
    candidate = above // step * step + 1
    while candidate <= above or not is_prime(candidate):
        candidate += step
    return candidate


def primes_of_bits(
    bits: int, step: int, count: int, avoid: frozenset[int] = frozenset()
) -> list[int]:
    """Return the ``count`` largest primes of exactly ``bits`` bits that are 1 modulo ``step``.

    There may be fewer.

    >>> primes_of_bits(20, 16384, 2)
    [1032193, 786433]
    """
    return list(islice(_primes_below(bits, step, avoid), count))


def _primes_below(bits: int, step: int, avoid: frozenset[int]) -> Iterator[int]:
    candidate = ((1 << bits) - 2) // step * step + 1
    while candidate > 1 << (bits - 1):
        if candidate not in avoid and is_prime(candidate):
            yield candidate
        candidate -= step
