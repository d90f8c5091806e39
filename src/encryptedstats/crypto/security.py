"""The security table: how large a modulus a ring may have.

The figures are those of the security guidelines of 2024 (Bossuat et al., eprint 2024/463), for
uniform ternary secrets, errors of standard deviation 3.19 and classical attacks: the largest log2
of the *whole* coefficient modulus, key-switching prime included. Where the published tables and the
outputs of their scripts differ by a bit, the lower figure is used. Rings without a figure at a
level are not offered at that level. SEAL enforces the standard of 2018, which allows a little more.
"""

from __future__ import annotations

from typing import Final

TABLE_NAME: Final = "guidelines of 2024 (eprint 2024/463), ternary secret, classical attacks"

MAX_MODULUS_BITS: Final[dict[int, dict[int, int]]] = {
    128: {1024: 26, 2048: 53, 4096: 106, 8192: 214, 16384: 430, 32768: 868},
    192: {2048: 36, 4096: 73, 8192: 147, 16384: 297, 32768: 597},
    256: {2048: 27, 4096: 56, 8192: 114, 16384: 230, 32768: 462},
}

LEVELS: Final = tuple(MAX_MODULUS_BITS)
RINGS: Final = tuple(MAX_MODULUS_BITS[128])


def security_of(ring_degree: int, modulus_bits: int) -> int:
    """Return the security level in bits that the table grants (128, 192 or 256), or 0.

    >>> security_of(8192, 214), security_of(8192, 224)
    (128, 0)
    """
    granted = [
        level for level in LEVELS if modulus_bits <= MAX_MODULUS_BITS[level].get(ring_degree, -1)
    ]
    return max(granted, default=0)
