"""Slices, which are one prime and a range of coefficients of all sums, and their storage.

A stored table is read slice by slice, so that every byte of it is read once for all totals while
few sums are in memory. Modulus switching needs all residues of a sum, so finished slices wait in
memory, in a temporary file, or in a checkpoint from which an interrupted fit continues.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, field
from typing import Any, BinaryIO, Final, Protocol

import numpy as np

from encryptedstats.crypto.parameters import Parameters
from encryptedstats.crypto.residues import Residues
from encryptedstats.errors import FileFormatError
from encryptedstats.storage import container
from encryptedstats.storage.container import Container
from encryptedstats.storage.objects import FolderStore, Store, open_store, retry_read

CHECKPOINT: Final = "fit.checkpoint"
CHECKPOINT_KIND: Final = "checkpoint of a fit"
SUMS_KIND: Final = "sums of a slice"
_MAX_SLICES: Final = 1 << 20
_MAX_HEADER_BYTES: Final = 128 << 20  # of a list of _MAX_SLICES slices
_DIGEST_BYTES: Final = 16
_HASH_BYTES: Final = 32
_SUMS_NAME: Final = re.compile("sums-[0-9]{6,7}")


@dataclass(frozen=True)
class Slice:
    """Coefficients from ``start`` to ``stop``, of one prime or (None) of all primes."""

    prime: int | None
    start: int
    stop: int

    @property
    def width(self) -> int:
        """Return the coefficients of each polynomial."""
        return self.stop - self.start

    def primes(self, parameters: Parameters) -> range:
        """Return the numbers of its primes."""
        return (
            range(len(parameters.data_moduli))
            if self.prime is None
            else range(self.prime, self.prime + 1)
        )


def slices_of(parameters: Parameters, width: int) -> list[Slice]:
    """Cut all coefficients, prime after prime, into ranges of a width."""
    ring = parameters.ring_degree
    return [
        Slice(prime, start, min(start + width, ring))
        for prime in range(len(parameters.data_moduli))
        for start in range(0, ring, width)
    ]


class SlicedSums(Protocol):
    """The sums of all slices, as arrays of shape (polynomials, primes, width)."""

    @property
    def slices(self) -> Sequence[Slice]:
        """Return the slices in order."""

    def has(self, number: int) -> bool:
        """Return whether the sums of a slice are stored already."""

    def put(self, number: int, sums: Residues) -> None:
        """Store the sums of a slice; the caller reuses the array afterwards."""

    def get(self, number: int, first: int, count: int) -> Residues:
        """Return some polynomials of a slice."""

    def close(self) -> None:
        """Release memory and files."""


@dataclass
class MemorySums:
    """Sums in memory."""

    slices: Sequence[Slice]
    held: dict[int, Residues] = field(default_factory=dict)

    def has(self, number: int) -> bool:
        return number in self.held

    def put(self, number: int, sums: Residues) -> None:
        # With a single slice, the caller has no reason to reuse the array.
        self.held[number] = sums if len(self.slices) == 1 else sums.copy()

    def get(self, number: int, first: int, count: int) -> Residues:
        some: Residues = self.held[number][first : first + count]
        return some

    def close(self) -> None:
        self.held.clear()


class TemporarySums:
    """Sums in an unnamed temporary file (in ``TMPDIR``), which disappears with the process."""

    def __init__(self, slices: Sequence[Slice]) -> None:
        self.slices = slices
        # closed by close()
        self._file: BinaryIO = tempfile.TemporaryFile(prefix="encryptedstats-")  # noqa: SIM115
        self._places: dict[int, tuple[int, tuple[int, ...]]] = {}

    def has(self, number: int) -> bool:
        return number in self._places

    def put(self, number: int, sums: Residues) -> None:
        place = self._file.seek(0, os.SEEK_END)
        try:
            self._file.write(sums.data)
            self._file.flush()
        except OSError as error:
            raise OSError(
                error.errno,
                f"{error.strerror}: sums beyond memory_limit go to a temporary file. Raise "
                "memory_limit, or set TMPDIR to a folder with more space",
                tempfile.gettempdir(),
            ) from error
        self._places[number] = (place, sums.shape)

    def get(self, number: int, first: int, count: int) -> Residues:
        place, (_, *shape) = self._places[number]
        some = np.empty((count, *shape), dtype=np.uint64)
        self._file.seek(place + first * some[0].nbytes)
        n_read = self._file.readinto(some.data)  # type: ignore[attr-defined]  # of all binary files
        if n_read != some.nbytes:
            raise OSError("a temporary file was cut short")
        return some

    def close(self) -> None:
        self._file.close()


@dataclass(frozen=True)
class FitIdentity:
    """The fit that a checkpoint belongs to; no other may continue from it."""

    fingerprint: str  # of the parameters
    key_id: str
    rows: str  # a hash of the blocks
    circuit: str  # a hash of the totals in the order in which their sums lie

    @property
    def digest(self) -> str:
        return hashlib.sha256(json.dumps(astuple(self)).encode()).hexdigest()

    def differences(self, other: FitIdentity) -> list[str]:
        """Return the names of the fields that differ."""
        names = {
            "fingerprint": "parameters",
            "key_id": "another key",
            "rows": "other rows",
            "circuit": "another circuit",
        }
        return [
            words for name, words in names.items() if getattr(self, name) != getattr(other, name)
        ]


class CheckpointSums:
    """Sums in a folder or under a URL, one file for each slice.

    A file is written completely or not at all, and checked when it is read. A missing or damaged
    slice is computed again. The files stay until the result is saved.
    """

    def __init__(
        self,
        url: str | os.PathLike[str],
        identity: FitIdentity,
        slices: Sequence[Slice],
        parameters: Parameters,
        polynomials: int,
    ) -> None:
        self._store: Store = open_store(url)
        self._store.sweep()
        self._identity, self._parameters, self._polynomials = identity, parameters, polynomials
        if self._store.exists(CHECKPOINT):
            slices = self._read_header()
        else:
            fields = {
                "rows": identity.rows,
                "circuit": identity.circuit,
                "polynomials": polynomials,
            }
            listed = json.dumps([list(astuple(one)) for one in slices]).encode()
            file = Container(
                CHECKPOINT_KIND, identity.fingerprint, identity.key_id, fields, {"slices": listed}
            )
            self._store.write(CHECKPOINT, container.parts_of(file))
        self.slices = slices
        self._digests: dict[
            int, bytes
        ] = {}  # of each slice: the hash of the digests of its polynomials
        self._done = self._find_done()

    # -- the header
    # --------------------------------------------------------------------------------------------

    def _read_header(self) -> list[Slice]:
        where = self._store.where(CHECKPOINT)
        file = container.from_bytes(
            self._store.read(CHECKPOINT, limit=_MAX_HEADER_BYTES), kind=CHECKPOINT_KIND, name=where
        )
        found = FitIdentity(
            file.fingerprint, file.key_id, file.expect("rows", str), file.expect("circuit", str)
        )
        if found != self._identity:
            raise FileFormatError(
                f"{where} is the checkpoint of another fit "
                f"({', '.join(self._identity.differences(found))}): choose another folder, or "
                "delete this one to start again. A forest with random_state=None grows other trees "
                "at every fit",
                code="other-fit",
            )
        slices = _read_slices(file.section("slices"), self._parameters, where)
        if file.expect("polynomials", int) != self._polynomials:
            raise FileFormatError(
                f"{where} was altered: it does not fit its own circuit. Delete it to start again",
                code="circuit-mismatch",
            )
        return slices

    # -- slices
    # --------------------------------------------------------------------------------------------

    def _name(self, number: int) -> str:
        return f"sums-{number:06d}"

    def _shape(self, number: int) -> tuple[int, int, int]:
        one = self.slices[number]
        return self._polynomials, len(one.primes(self._parameters)), one.width

    def _fields(self, number: int) -> dict[str, Any]:
        return {"fit": self._identity.digest, "slice": number}

    def _start(self, number: int) -> int:
        """Return where the digests begin in the file of a slice; the sums follow them."""
        identity = self._identity
        head = (
            SUMS_KIND,
            identity.fingerprint,
            identity.key_id,
            self._fields(number),
            self._lengths(number),
        )
        return len(container.header_bytes(*head))

    def _lengths(self, number: int) -> dict[str, int]:
        return {
            "digests": _DIGEST_BYTES * self._polynomials,
            "sums": 8 * int(np.prod(self._shape(number))),
        }

    def _find_done(self) -> set[int]:
        numbers = range(len(self.slices))
        return {
            number
            for number in numbers
            if self._store.exists(self._name(number)) and self._is_good(number)
        }

    def _is_good(self, number: int) -> bool:
        """Return whether the file of a slice is complete, belongs to this fit and holds
        residues.
        """
        name, lengths, shape = self._name(number), self._lengths(number), self._shape(number)
        limit = self._start(number) + sum(lengths.values()) + _HASH_BYTES
        try:
            data = self._store.read(name, limit=limit)
            file = container.from_bytes(data, kind=SUMS_KIND, name=self._store.where(name))
        except (FileFormatError, FileNotFoundError):
            return False
        found = {section: len(content) for section, content in file.sections.items()}
        if dict(file.fields) != self._fields(number) or found != lengths:
            return False
        sums = np.frombuffer(file.section("sums"), dtype="<u8").reshape(shape)
        if _digests(sums) != file.section("digests"):
            return False
        self._digests[number] = hashlib.sha256(file.section("digests")).digest()
        moduli = [
            self._parameters.data_moduli[prime]
            for prime in self.slices[number].primes(self._parameters)
        ]
        return all(int(sums[:, place].max()) < modulus for place, modulus in enumerate(moduli))

    def has(self, number: int) -> bool:
        return number in self._done

    def put(self, number: int, sums: Residues) -> None:
        identity = self._identity
        sums = sums.astype("<u8", copy=False)
        sections = {"digests": _digests(sums), "sums": sums.tobytes()}
        file = Container(
            SUMS_KIND, identity.fingerprint, identity.key_id, self._fields(number), sections
        )
        self._store.write(self._name(number), container.parts_of(file))
        self._digests[number] = hashlib.sha256(sections["digests"]).digest()
        self._done.add(number)

    def get(self, number: int, first: int, count: int) -> Residues:
        """Read some polynomials and check their digests."""
        return retry_read(self._store, lambda: self._read_checked(number, first, count))

    def _read_checked(self, number: int, first: int, count: int) -> Residues:
        _, primes, width = self._shape(number)
        name, each, start = self._name(number), 8 * primes * width, self._start(number)
        length = _DIGEST_BYTES * self._polynomials
        ranges = [(start, length), (start + length + first * each, count * each)]
        digests, data = self._store.read_ranges(name, ranges)
        if hashlib.sha256(digests).digest() == self._digests[number] and len(data) == count * each:
            sums = np.frombuffer(data, dtype="<u8").reshape(count, primes, width)
            if _digests(sums) == digests[_DIGEST_BYTES * first : _DIGEST_BYTES * (first + count)]:
                return sums
        raise FileFormatError(
            f"{self._store.where(name)} was damaged or altered: run the same fit again, which "
            "computes this part of the checkpoint again",
            code="damaged-checkpoint",
        )

    def close(self) -> None:
        """Keep the files; :func:`drop_checkpoint` removes them once the result is saved."""


def _digests(sums: Residues) -> bytes:
    """Return the digests of all polynomials."""
    return b"".join(
        hashlib.sha256(one.data).digest()[:_DIGEST_BYTES] for one in np.ascontiguousarray(sums)
    )


def drop_checkpoint(url: str | os.PathLike[str]) -> None:
    """Remove a checkpoint whose result is stored.

    The header goes last, so that an interrupted removal leaves a valid checkpoint.
    """
    store = open_store(url)
    for name in store.names():
        if _SUMS_NAME.fullmatch(name):
            store.delete(name)
    store.delete(CHECKPOINT)
    store.sweep()
    if isinstance(store, FolderStore):
        with suppress(OSError):  # there is something else in it
            os.rmdir(store.where(""))


def _read_slices(data: bytes, parameters: Parameters, where: str) -> list[Slice]:
    """Read the slices of a checkpoint; refuse them if they do not cover all coefficients."""
    try:
        listed = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise FileFormatError(
            f"{where} has a list of slices that is not JSON", code="invalid-json"
        ) from error
    width = (
        listed[0][2]
        if isinstance(listed, list)
        and listed
        and len(listed) <= _MAX_SLICES
        and _is_slice(listed[0])
        else 0
    )
    if not 0 < width <= parameters.ring_degree or listed != [
        list(astuple(one)) for one in slices_of(parameters, width)
    ]:
        raise FileFormatError(
            f"{where} lists slices that do not fit its parameters: delete it to start again",
            code="impossible-slices",
        )
    return slices_of(parameters, width)


def _is_slice(entry: Any) -> bool:
    return isinstance(entry, list) and [type(part) for part in entry] == [int, int, int]
