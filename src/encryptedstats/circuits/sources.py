"""The interface of encrypted tables that circuits need."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from encryptedstats.circuits.bounds import ColumnRange
from encryptedstats.circuits.layout import Layout
from encryptedstats.crypto.keys import PublicKeys
from encryptedstats.crypto.parameters import Parameters
from encryptedstats.crypto.residues import Residues


class Source(ABC):
    """Encrypted columns, chunk by chunk. Subclasses implement the abstract members."""

    @property
    @abstractmethod
    def parameters(self) -> Parameters:
        """Return the parameters of the ciphertexts."""

    @property
    @abstractmethod
    def layout(self) -> Layout:
        """Return the layout of the rows."""

    @property
    @abstractmethod
    def keys(self) -> PublicKeys:
        """Return the public keys."""

    @property
    @abstractmethod
    def with_secret_key(self) -> bool:
        """Return whether the secret key encrypted the rows, which makes less noise."""

    @abstractmethod
    def ranges(self) -> dict[str, ColumnRange]:
        """Return the public range of every column."""

    @abstractmethod
    def residues(self, name: str, chunk: int) -> Residues:
        """Return a column over one chunk of rows, of shape (2, primes, N)."""

    def pieces(
        self, names: Sequence[str], chunk: int, prime: int | None, start: int, stop: int
    ) -> Sequence[Residues]:
        """Return some coefficients of columns, of one prime or (None) of all.

        A source that can do so does not read the rest.
        """
        primes = slice(None) if prime is None else slice(prime, prime + 1)
        return [self.residues(name, chunk)[:, primes, start:stop] for name in names]

    @property
    def piece_width(self) -> int:
        """Return how many coefficients are read together."""
        return self.parameters.ring_degree

    @property
    def in_memory(self) -> bool:
        """Return whether the columns are in memory already."""
        return False

    @property
    def content_id(self) -> str | None:
        """Return a digest of the rows, or None if there is none."""
        return None

    def chunk_name(self, chunk: int) -> str:
        """Return the name of a chunk in error messages."""
        return f"chunk {chunk}"
