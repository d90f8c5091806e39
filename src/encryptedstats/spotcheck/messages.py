"""The two messages of a spot check: seeds of weights to the worker, and its combined sums back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from encryptedstats.crypto.keyfiles import read_parameters
from encryptedstats.crypto.parameters import Parameters
from encryptedstats.crypto.residues import Residues, residues_from_bytes, residues_to_bytes
from encryptedstats.errors import FileFormatError
from encryptedstats.storage import container
from encryptedstats.storage.container import Container

CHALLENGE_KIND: Final = "challenge of a spot check"
RESPONSE_KIND: Final = "response to a spot check"
SEED_BYTES: Final = 32
_MOST_COMBINATIONS: Final = 64
_MOST_POLYNOMIALS: Final = 64
_MOST_WEIGHT_BITS: Final = 16


@dataclass(frozen=True)
class Challenge:
    """Seeds of weights, one for each combination that the worker is to return.

    Attributes
    ----------
    key_id, fingerprint : str
        Of the key and its parameters.
    blocks : tuple of str
        Ids of the blocks whose rows are summed.
    weight_bits : int
    seeds : tuple of bytes
    """

    key_id: str
    fingerprint: str
    blocks: tuple[str, ...]
    weight_bits: int
    seeds: tuple[bytes, ...]

    def to_bytes(self) -> bytes:
        """Return the challenge as a file, which holds no secret."""
        sections = {
            "seeds": b"".join(self.seeds),
            "blocks": json.dumps(list(self.blocks)).encode(),
        }
        fields = {"weight_bits": self.weight_bits}
        return container.to_bytes(
            Container(CHALLENGE_KIND, self.fingerprint, self.key_id, fields, sections)
        )

    @classmethod
    def from_bytes(cls, content: bytes) -> Challenge:
        """Read a challenge with every check."""
        file = container.from_bytes(content, kind=CHALLENGE_KIND, name="the challenge")
        blocks, bits = file.read_list("blocks"), file.expect("weight_bits", int)
        data = file.section("seeds")
        seeds = tuple(data[at : at + SEED_BYTES] for at in range(0, len(data), SEED_BYTES))
        if not 0 < len(seeds) <= _MOST_COMBINATIONS or len(data) % SEED_BYTES:
            raise FileFormatError("a challenge without seeds", code="malformed-challenge")
        if not 0 < bits <= _MOST_WEIGHT_BITS or not all(isinstance(one, str) for one in blocks):
            raise FileFormatError("a malformed challenge", code="malformed-challenge")
        return cls(file.key_id, file.fingerprint, tuple(blocks), bits, seeds)


@dataclass(frozen=True)
class Response:
    """The combined sums: ciphertexts before any modulus switching, as residues."""

    sums: tuple[Residues, ...]

    @property
    def nbytes(self) -> int:
        return sum(one.nbytes for one in self.sums)

    def to_container(self, parameters: Parameters, key_id: str) -> Container:
        """Return the sums as a file, residues packed to the bits of their primes."""
        data = b"".join(residues_to_bytes(one, parameters.data_moduli) for one in self.sums)
        fields = {
            "parameters": parameters.to_dict(),
            "polynomials": [len(one) for one in self.sums],
        }
        return Container(RESPONSE_KIND, parameters.fingerprint, key_id, fields, {"residues": data})

    @classmethod
    def from_container(cls, file: Container, parameters: Parameters, key_id: str) -> Response:
        """Read the sums of a worker with every check."""
        if file.kind != RESPONSE_KIND:
            raise FileFormatError(
                f"this is {file.kind!r}, and no {RESPONSE_KIND}", code="wrong-kind"
            )
        if read_parameters(file) != parameters or file.key_id != key_id:
            raise FileFormatError(
                f"this response belongs to key {file.key_id}, and the challenge to {key_id}",
                code="other-key",
            )
        sizes = file.expect("polynomials", list)
        if not 0 < len(sizes) <= _MOST_COMBINATIONS or not all(
            type(size) is int and 1 < size <= _MOST_POLYNOMIALS for size in sizes
        ):
            raise FileFormatError("a malformed response", code="malformed-response")
        return cls(tuple(_read_sums(file.section("residues"), sizes, parameters)))


def _read_sums(data: bytes, sizes: Sequence[int], parameters: Parameters) -> list[Residues]:
    moduli, ring, start, found = parameters.data_moduli, parameters.ring_degree, 0, []
    for size in sizes:
        length = sum(size * ring * modulus.bit_length() // 8 for modulus in moduli)
        found.append(residues_from_bytes(data[start : start + length], moduli, ring, size))
        start += length
    if start != len(data):
        raise FileFormatError("a response with too many residues", code="wrong-residue-length")
    return found


def has_shape(residues: Residues, polynomials: int, parameters: Parameters) -> bool:
    """Return True for residues of that many polynomials under all data primes, and below them."""
    moduli = np.array(parameters.data_moduli, dtype=np.uint64)
    shape = (polynomials, len(moduli), parameters.ring_degree)
    if residues.dtype != np.uint64 or residues.shape != shape:
        return False
    return not (residues >= moduli[:, None]).any()
