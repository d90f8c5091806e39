"""The private intersection of two sites' people, by commuting keys on the curve P-256.

Each person x is hashed to a point H(x). Site A sends H(x)^a for its people, site B raises these to
b and sends H(x)^ab back in the same order, and the same the other way round. H(x)^ab is equal at
both sites for the people whom they share, and random to everybody else under the decisional
Diffie-Hellman assumption (Meadows 1986; Huberman, Franklin and Hogg 1999). Both sites learn which
of their own people are shared, and how many people the other has. Sites are believed to follow the
protocol: one that makes up identifiers learns whether they are at the other.

Points are their x coordinates, 32 bytes: a point and its negative have the same, and stay so.
`cryptography` does all arithmetic.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final

from cryptography.hazmat.primitives.asymmetric import ec

from encryptedstats.errors import FileFormatError

POINT_BYTES: Final = 32
_CURVE: Final = ec.SECP256R1()
_EVEN: Final = b"\x02"
#: Order of the group, which is prime: NIST SP 800-186.
_ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


class CommutingKey:
    """A site's secret exponent: raising to it and to another site's commute."""

    def __init__(self, secret: bytes) -> None:
        wide = hashlib.shake_256(b"encryptedstats intersection\0" + secret).digest(48)
        exponent = 1 + int.from_bytes(wide, "big") % (_ORDER - 1)
        self._key = ec.derive_private_key(exponent, _CURVE)

    def blind(self, people: Iterable[bytes], study: bytes) -> list[bytes]:
        """Return H(x)^a of each person, for one study."""
        return [self._raise(_hash_to_point(text, study)) for text in people]

    def blind_again(self, points: Iterable[bytes]) -> list[bytes]:
        """Raise the points of the other site, which may be anything, to this exponent."""
        return [self._raise(_read_point(one)) for one in points]

    def _raise(self, point: ec.EllipticCurvePublicKey) -> bytes:
        return self._key.exchange(ec.ECDH(), point)


def _hash_to_point(text: bytes, study: bytes) -> ec.EllipticCurvePublicKey:
    """Hash to the curve: try x coordinates until one has a point, two on average.

    The number of tries depends on the person, and nobody but the site itself can measure it.
    """
    for counter in range(256):
        x = hashlib.sha256(b"\0".join([b"person", study, bytes([counter]), text])).digest()
        try:
            return ec.EllipticCurvePublicKey.from_encoded_point(_CURVE, _EVEN + x)
        except ValueError:
            continue
    raise AssertionError("unreachable: 256 tries fail with probability 2^-256")


def _read_point(x: bytes) -> ec.EllipticCurvePublicKey:
    try:
        return ec.EllipticCurvePublicKey.from_encoded_point(_CURVE, _EVEN + x)
    except ValueError:
        raise FileFormatError(
            "the other site has sent something that is no point of the curve",
            code="not-a-point",
        ) from None


def split_points(data: bytes) -> list[bytes]:
    """Cut bytes into points."""
    if not data or len(data) % POINT_BYTES:
        raise FileFormatError("a list of points that was cut short", code="malformed-points")
    return [data[start : start + POINT_BYTES] for start in range(0, len(data), POINT_BYTES)]
