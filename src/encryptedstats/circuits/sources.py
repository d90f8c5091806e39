"""What a circuit is evaluated on: an encrypted table, as far as circuits need to know it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from encryptedstats.circuits.bounds import ColumnRange
from encryptedstats.circuits.layout import Layout
from encryptedstats.crypto.keys import PublicKeys
from encryptedstats.crypto.parameters import Parameters
from encryptedstats.crypto.residues import Residues


class Source(ABC):
    """Encrypted columns, chunk by chunk. The first six members have to be said; the others tell
    what else a source can do.
    """

    @property
    @abstractmethod
    def parameters(self) -> Parameters:
        """The parameters of the ciphertexts."""

    @property
    @abstractmethod
    def layout(self) -> Layout:
        """Where the rows lie."""

    @property
    @abstractmethod
    def keys(self) -> PublicKeys:
        """The keys to compute with."""

    @property
    @abstractmethod
    def with_secret_key(self) -> bool:
        """Whether the ciphertexts were made with the secret key, hence with less noise."""

    @abstractmethod
    def ranges(self) -> dict[str, ColumnRange]:
        """What is publicly known of every column."""

    @abstractmethod
    def residues(self, name: str, chunk: int) -> Residues:
        """A column over one chunk of rows, (2, primes, N)."""

    def pieces(
        self, names: Sequence[str], chunk: int, prime: int | None, start: int, stop: int
    ) -> Sequence[Residues]:
        """Some coefficients of one prime (None: of all) of some columns: without reading the rest,
        where a source can.
        """
        primes = slice(None) if prime is None else slice(prime, prime + 1)
        return [self.residues(name, chunk)[:, primes, start:stop] for name in names]

    @property
    def piece_width(self) -> int:
        """Coefficients that can be read without their neighbours."""
        return self.parameters.ring_degree

    @property
    def in_memory(self) -> bool:
        """Whether the columns lie in memory, so that reading them takes none."""
        return False

    @property
    def content_id(self) -> str | None:
        """What tells these rows from all others; None where nothing does."""
        return None

    def chunk_name(self, chunk: int) -> str:
        """What errors call a chunk."""
        return f"chunk {chunk}"
