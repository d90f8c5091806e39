"""Shares of an opening (eprint 2020/304, KeySwitch and PubKeySwitch): one round.

For a ciphertext (c_0, c_1) of m with noise v, and flooding f_j that is uniform on a range 2^64
times as wide as what is proven of v:

    d_j = c_1 s_j + t f_j                             member j sends d_j; where there is a receiver,
    d_j + (an encryption of 0 for the receiver)       this instead
    c_0 + sum of the d_j = m + t (v + f_1 + ... + f_n)

A second share of one c_1 is never made: see ``state``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from encryptedstats.crypto import packing
from encryptedstats.crypto.engine import engine_for
from encryptedstats.crypto.flooding import flooded_noise, flooding_polynomial, flooding_width
from encryptedstats.crypto.keys import PublicKeys
from encryptedstats.crypto.noise import Noise
from encryptedstats.crypto.parameters import Parameters
from encryptedstats.crypto.residues import Residues, add_modulo
from encryptedstats.crypto.seeded import SecretFactor
from encryptedstats.errors import Cure, MemberError, NoiseError
from encryptedstats.joint.secret import MemberSecret

if TYPE_CHECKING:
    from typing_extensions import Self

Pack = tuple[Residues, Noise]


class Openable(Protocol):
    """Results that members may open together: packed totals and votes."""

    @property
    def keys(self) -> PublicKeys:
        """The joint public keys."""

    def packs(self) -> Sequence[Pack]:
        """Return its ciphertexts, under the first primes, with their proven noise.

        Raises an error where they hold anything but numbers that may be opened.
        """

    def with_packs(self, keys: PublicKeys, packs: Sequence[Pack]) -> Self:
        """Return the same under other keys."""


class OpenableAnswer(Openable, Protocol):
    """The answer to a question, as members open it."""

    def verify(self, question: Any, table: Any, rows: Any = None) -> Self:
        """Return the answer computed anew from the table; votes are computed for the rows.

        Raises an error where it is not the answer to the question. Without a table nothing is
        computed.
        """

    def statement(self) -> bytes:
        """Return what it answers, of which rows."""


def common_moduli(parameters: Parameters, packs: Sequence[Pack]) -> tuple[int, ...]:
    """Return the primes that all packs are under."""
    counts = {residues.shape[1] for residues, _ in packs}
    if len(counts) != 1 or any(len(residues) != 2 for residues, _ in packs):
        raise MemberError(
            "ciphertexts that are opened together are of two polynomials, under the same primes",
            code="different-primes",
        )
    return parameters.data_moduli[: counts.pop()]


def make_opening_share(
    secret: MemberSecret, pack: Pack, moduli: tuple[int, ...], receiver: PublicKeys | None
) -> Residues:
    """Return d_j, shape (1, primes, N), for a receiver (2, primes, N)."""
    (residues, noise), parameters = pack, secret.engine.parameters
    model, zero_noise = (
        packing.packing_model(parameters, len(moduli)),
        _zero_noise(parameters, moduli),
    )
    if not model.decrypts(flooded_noise(model, noise, zero_noise)):
        raise NoiseError(
            "a share would have no room for the noise that hides its member's secret: make the "
            "joint key with a plan for it, ",
            plan_for(parameters.members),
            code="no-room-for-noise",
        )
    small = engine_for(packing.first_primes(parameters, len(moduli)))
    flooding = flooding_polynomial(small, len(moduli), flooding_width(model, noise))
    factor = SecretFactor(moduli, secret.residues)
    own = factor.rebase(np.stack([flooding, residues[1]]), np.zeros_like(flooding))[None]
    if receiver is None:
        return own
    zero = receiver.encryptor.encrypt_zero(len(parameters.data_moduli) - len(moduli))
    return np.concatenate([add_modulo(own, zero[:1], moduli), zero[1:]])


def switch_packs(parameters: Parameters, packs: Sequence[Pack], totals: Residues) -> list[Pack]:
    """Add the sums of all shares, shape (packs, 1 or 2, primes, N), to c_0.

    With a receiver (two polynomials) the packs are under her key then; without, their second
    polynomial is 0.
    """
    moduli, each = common_moduli(parameters, packs), totals.shape[1]
    model, zero_noise = (
        packing.packing_model(parameters, len(moduli)),
        _zero_noise(parameters, moduli),
    )
    switched = []
    for (residues, noise), share in zip(packs, totals, strict=True):
        both = np.zeros_like(residues)
        both[0] = residues[0]
        both[:each] = add_modulo(both[:each], share, moduli)
        switched.append((both, flooded_noise(model, noise, zero_noise)))
    return switched


def _zero_noise(parameters: Parameters, moduli: Sequence[int]) -> Noise:
    return packing.encrypted_zero_noise(parameters, len(moduli))


def plan_for(members: int) -> Cure:
    """Return the advice to plan parameters for a number of members."""
    return Cure("plan for members", f"es.plan(..., members={members})", {"members": members})


def packs_digest(packs: Sequence[Pack]) -> str:
    """Return a hash of the residues of some packs."""
    whole = hashlib.sha256()
    for residues, _ in packs:
        whole.update(hashlib.sha256(np.ascontiguousarray(residues, dtype="<u8").tobytes()).digest())
    return whole.hexdigest()


def second_digest(residues: Residues) -> str:
    """Return a hash of c_1, which is all that a share depends on."""
    return hashlib.sha256(np.ascontiguousarray(residues[1], dtype="<u8").tobytes()).hexdigest()
