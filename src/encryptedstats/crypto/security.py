"""How large a modulus a ring may carry: the one place for the security table.

The figures are those of the HomomorphicEncryption.org security standard (Albrecht et al., 2018), table for uniform
ternary secrets and classical attacks: the largest log2 of the *whole* coefficient modulus, key-switching prime included.
SEAL enforces the same table; it stands here too because choosing and explaining need it before SEAL is asked.
"""

from __future__ import annotations

from typing import Final

TABLE_NAME: Final = "HomomorphicEncryption.org standard (2018), ternary secret, classical attacks"

MAX_MODULUS_BITS: Final[dict[int, dict[int, int]]] = {
    128: {1024: 27, 2048: 54, 4096: 109, 8192: 218, 16384: 438, 32768: 881},
    192: {1024: 19, 2048: 37, 4096: 75, 8192: 152, 16384: 305, 32768: 611},
    256: {1024: 14, 2048: 29, 4096: 58, 8192: 118, 16384: 237, 32768: 476},
}

LEVELS: Final = tuple(MAX_MODULUS_BITS)
RINGS: Final = tuple(MAX_MODULUS_BITS[128])


def security_of(ring_degree: int, modulus_bits: int) -> int:
    """The security level in bits that the table grants (128, 192 or 256), or 0 where it grants none.

    >>> security_of(8192, 218), security_of(8192, 224)
    (128, 0)
    """
    granted = [level for level in LEVELS if modulus_bits <= MAX_MODULUS_BITS[level].get(ring_degree, -1)]
    return max(granted, default=0)
