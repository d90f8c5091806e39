"""Blocks: the ciphertexts of all columns over one chunk of rows, stored so that any part can be read without the rest.

Residues are packed to the bits of their prime and laid out as ``[prime][run of coefficients][column][component]``: an evaluator
that works through one prime and one range of coefficients of all columns reads one contiguous piece, and a single column is a few
pieces. Every (prime, run, column) piece has its own digest, so that a partial read is checked as well as a whole one.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from encryptedstats.crypto import Parameters
from encryptedstats.errors import FileFormatError
from encryptedstats.storage import container
from encryptedstats.storage.bitpack import pack, unpack
from encryptedstats.storage.container import Container
from encryptedstats.storage.objects import Store, looked_at_again

Residues = NDArray[np.uint64]

BLOCK_KIND: Final = "table block"
_NO_SEAL: Final = "0" * 64  # of who will not have to know a block again
RUN: Final = 1024
_DIGEST_BYTES: Final = 16
_COMPONENTS: Final = 2
_HASH_BYTES: Final = 32
_ROWS_DIGITS: Final = 16  # of the 32 of an id
_NAME: Final = re.compile(r"blocks/[0-9]{6,12}-([0-9a-f]{32})")


def block_name(index: int, block_id: str) -> str:
    """The name of a block's object: in order, and never the same for other contents."""
    return f"blocks/{index:06d}-{block_id}"


def block_id_of(name: str) -> str | None:
    """The id in the name of a block's object; None for names that no block has, such as those that leave the folder."""
    match = _NAME.fullmatch(name)
    return match[1] if match else None


def same_rows(a: Iterable[str], b: Iterable[str]) -> str | None:
    """The id of a block of ``b`` whose rows are in a block of ``a`` too, as far as ids tell.

    The first half of an id is the same for the same rows at the same place of any table, where the owner encrypted them.
    """
    known = {rows_id(block) for block in a}
    return next((block for block in b if rows_id(block) in known), None)


def rows_id(block_id: str) -> str:
    """The half of a block's id that tells its rows."""
    return block_id[:_ROWS_DIGITS]


@dataclass(frozen=True)
class BlockShape:
    """The arithmetic of where things lie in the blocks of a table."""

    parameters: Parameters
    n_columns: int

    @property
    def run(self) -> int:
        """Coefficients in a run."""
        return min(RUN, self.parameters.ring_degree)

    @property
    def n_runs(self) -> int:
        """Runs in a polynomial."""
        return self.parameters.ring_degree // self.run

    @property
    def n_primes(self) -> int:
        """Primes a residue is kept for."""
        return len(self.parameters.data_moduli)

    def bits(self, prime: int) -> int:
        """Bits of a packed residue."""
        return self.parameters.data_moduli[prime].bit_length()

    def piece_bytes(self, prime: int) -> int:
        """Bytes of one column in one run of one prime."""
        return _COMPONENTS * self.run * self.bits(prime) // 8

    def prime_start(self, prime: int) -> int:
        """Where the residues of a prime begin."""
        return sum(self.n_runs * self.n_columns * self.piece_bytes(p) for p in range(prime))

    def piece_start(self, prime: int, run: int, column: int) -> int:
        """Where one column in one run of one prime begins."""
        return self.prime_start(prime) + (run * self.n_columns + column) * self.piece_bytes(prime)

    @property
    def residue_bytes(self) -> int:
        """Bytes of all residues."""
        return self.prime_start(self.n_primes)

    def digest_start(self, prime: int, run: int, column: int) -> int:
        """Where the digest of a piece begins in the digests."""
        return _DIGEST_BYTES * ((prime * self.n_runs + run) * self.n_columns + column)

    @property
    def digest_bytes(self) -> int:
        """Bytes of all digests."""
        return self.digest_start(self.n_primes, 0, 0)


@dataclass(frozen=True)
class BlockEntry:
    """What the manifest says of a block: enough to find it, to read any part of it, and to know that it is the right one."""

    id: str
    rows: int
    name: str
    bytes: int
    start: int
    sha256: str
    digests_sha256: str
    signature: str = ""  # of the owner who encrypted it with the secret key; none under the public key

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Any, shape: BlockShape) -> BlockEntry:
        """The inverse, with every check."""
        kinds = {f.name: int if f.type == "int" else str for f in fields(cls)}
        if not isinstance(values, Mapping) or {k: type(v) for k, v in values.items()} != kinds:
            raise FileFormatError("the manifest has a malformed entry of a block")
        entry = cls(**values)
        before, after = entry.start, shape.digest_bytes + shape.residue_bytes + _HASH_BYTES
        fits = 0 < before < 2 * container.MAX_HEADER_BYTES and entry.bytes == before + after
        if not (fits and 0 < entry.rows <= shape.parameters.slots and block_id_of(entry.name) == entry.id):
            raise FileFormatError(f"the manifest has an impossible entry of block {entry.id!r}")
        return entry


def block_statement(entry: BlockEntry, columns: Sequence[str], weight_bound: int, schema: str) -> bytes:
    """What the owner signs of a block: which rows, what its columns are, and every piece of it, by the hash of the digests."""
    said = ["encryptedstats block", entry.id, entry.rows, list(columns), weight_bound, schema, entry.digests_sha256]
    return json.dumps(said).encode()


def block_bytes(
    residues: Residues,
    shape: BlockShape,
    *,
    block_id: str,
    rows: int,
    key_id: str,
    seal: Callable[[bytes], str] = lambda digests: _NO_SEAL,
) -> bytes:
    """The object for residues of shape (columns, 2, primes, N).

    ``seal`` is a keyed hash of the digests, by which who made the object knows it again; nobody else is told anything by it.
    """
    packed = pack_residues(residues, shape)
    digests = _digests(packed, shape)
    fields = {"id": block_id, "rows": rows, "columns": shape.n_columns, "seal": seal(digests)}
    sections = {"digests": digests, "residues": packed}
    return container.to_bytes(Container(BLOCK_KIND, shape.parameters.fingerprint, key_id, fields, sections))


def block_size(shape: BlockShape, rows: int) -> int:
    """Bytes of the object for a block of so many rows, known before it is made."""
    fields = {"id": "0" * 32, "rows": rows, "columns": shape.n_columns, "seal": _NO_SEAL}
    lengths = {"digests": shape.digest_bytes, "residues": shape.residue_bytes}
    header = container.header_bytes(BLOCK_KIND, shape.parameters.fingerprint, "0" * 32, fields, lengths)
    return len(header) + sum(lengths.values()) + _HASH_BYTES


def block_entry(data: bytes, name: str, shape: BlockShape, key_id: str, where: str) -> BlockEntry:
    """What the manifest will say of an object, after checking the object."""
    block = _checked_block(data, where, shape, key_id)
    start = len(data) - _HASH_BYTES - shape.residue_bytes - shape.digest_bytes
    digests = hashlib.sha256(block.section("digests")).hexdigest()
    return BlockEntry(
        block.fields["id"], block.fields["rows"], name, len(data), start, data[-_HASH_BYTES:].hex(), digests
    )


def store_block(store: Store, data: bytes, name: str, shape: BlockShape, key_id: str) -> BlockEntry:
    """Store a block, and its entry. Names are keyed hashes: what else lies under one was left by a killed process, or is forged."""
    if not store.create(name, data) and _stored(store, name, shape) != data:
        store.write(name, [data])
    return block_entry(data, name, shape, key_id, store.where(name))


def stored_entry(
    store: Store, name: str, shape: BlockShape, key_id: str, seal: Callable[[bytes], str]
) -> BlockEntry | None:
    """The entry of an object that who makes this ``seal`` has stored; None if it is damaged, another block, or another's."""

    def looked_at() -> BlockEntry | None:
        data = _stored(store, name, shape)
        entry = block_entry(data, name, shape, key_id, store.where(name))
        block = container.from_bytes(data, kind=BLOCK_KIND, name=store.where(name))
        digests = block.section("digests")
        own = hmac.compare_digest(str(block.fields.get("seal")).encode(), seal(digests).encode())
        return (
            entry
            if own and entry.id == block_id_of(name) and _digests(block.section("residues"), shape) == digests
            else None
        )

    try:
        return looked_at_again(store, looked_at)
    except (FileFormatError, FileNotFoundError):
        return None


def _stored(store: Store, name: str, shape: BlockShape) -> bytes:
    return store.read(name, limit=block_size(shape, shape.parameters.slots))


def read_block(store: Store, entry: BlockEntry, shape: BlockShape, key_id: str) -> Residues:
    """All residues of a block."""
    return looked_at_again(store, lambda: _read_block(store, entry, shape, key_id))


def _read_block(store: Store, entry: BlockEntry, shape: BlockShape, key_id: str) -> Residues:
    data = store.read(entry.name, limit=entry.bytes)
    where = store.where(entry.name)
    if data[-_HASH_BYTES:].hex() != entry.sha256:
        raise FileFormatError(f"{where} is not the block that the manifest lists: cut short, altered or exchanged")
    block = _checked_block(data, where, shape, key_id)
    if (block.fields["id"], block.fields["rows"]) != (entry.id, entry.rows):
        raise FileFormatError(f"{where} is block {block.fields['id']!r}, and the manifest lists {entry.id!r} there")
    # The owner signs the digests of the pieces: what is read must be what they are of.
    digests, residues = block.section("digests"), block.section("residues")
    if hashlib.sha256(digests).hexdigest() != entry.digests_sha256 or _digests(residues, shape) != digests:
        raise FileFormatError(f"{where} is not the block that the manifest lists: its pieces are others")
    return unpack_residues(residues, shape, where)


def read_pieces(
    store: Store, entry: BlockEntry, shape: BlockShape, *, prime: int, run: int, columns: Sequence[int] | None = None
) -> Residues:
    """The residues of one prime and one run of coefficients, of some or all columns; shape (columns, 2, run)."""
    chosen = range(shape.n_columns) if columns is None else columns
    pieces = _checked_pieces(store, entry, shape, _read_digests(store, entry, shape), prime, [run], chosen)
    return _unpacked(_as_words(pieces), shape, prime, store.where(entry.name))


def read_runs(
    store: Store, entry: BlockEntry, shape: BlockShape, *, prime: int, runs: Sequence[int], columns: Sequence[int]
) -> Residues:
    """The residues of one prime and some runs of coefficients side by side, of some columns; shape (columns, 2, coefficients)."""
    wanted = sorted(set(columns))
    pieces = _checked_pieces(store, entry, shape, _read_digests(store, entry, shape), prime, runs, wanted)
    words = _as_words(pieces).reshape(len(runs), len(wanted), _COMPONENTS, -1)
    residues = _by_column(_unpacked(words, shape, prime, store.where(entry.name)), len(runs) * shape.run)
    return residues if wanted == list(columns) else residues[[wanted.index(column) for column in columns]]


def read_column(store: Store, entry: BlockEntry, shape: BlockShape, column: int) -> Residues:
    """The ciphertext of one column, shape (2, primes, N), without reading the others."""
    one: Residues = _some_columns(store, entry, shape, [column])[0]
    return one


def read_columns(store: Store, entry: BlockEntry, shape: BlockShape, key_id: str, columns: Sequence[int]) -> Residues:
    """The ciphertexts of some columns, shape (columns, 2, primes, N); the others are not read where they are the greater part."""
    if 2 * len(set(columns)) > shape.n_columns:  # one large read is faster than many small ones of as many bytes
        return read_block(store, entry, shape, key_id)[list(columns)]
    wanted = sorted(set(columns))
    residues = _some_columns(store, entry, shape, wanted)
    return residues if wanted == list(columns) else residues[[wanted.index(column) for column in columns]]


def _some_columns(store: Store, entry: BlockEntry, shape: BlockShape, columns: Sequence[int]) -> Residues:
    ring, where = shape.parameters.ring_degree, store.where(entry.name)
    residues = np.empty((len(columns), _COMPONENTS, shape.n_primes, ring), dtype=np.uint64)
    digests = _read_digests(store, entry, shape)
    for prime in range(shape.n_primes):
        pieces = _checked_pieces(store, entry, shape, digests, prime, range(shape.n_runs), columns)
        words = _as_words(pieces).reshape(shape.n_runs, len(columns), _COMPONENTS, -1)
        residues[:, :, prime] = _by_column(_unpacked(words, shape, prime, where), ring)
    return residues


def _checked_pieces(
    store: Store,
    entry: BlockEntry,
    shape: BlockShape,
    digests: bytes,
    prime: int,
    runs: Sequence[int],
    columns: Sequence[int],
) -> list[bytes]:
    """The pieces of some runs and columns of a prime, run by run; columns that lie side by side are read at once."""
    size, origin = shape.piece_bytes(prime), entry.start + shape.digest_bytes
    neighbours = _neighbours(columns)
    ranges = [
        (origin + shape.piece_start(prime, run, first), count * size) for run in runs for first, count in neighbours
    ]
    return looked_at_again(store, lambda: _read_pieces(store, entry, shape, digests, prime, runs, columns, ranges))


def _read_pieces(
    store: Store,
    entry: BlockEntry,
    shape: BlockShape,
    digests: bytes,
    prime: int,
    runs: Sequence[int],
    columns: Sequence[int],
    ranges: Sequence[tuple[int, int]],
) -> list[bytes]:
    size, read = shape.piece_bytes(prime), store.read_ranges(entry.name, ranges)
    pieces = [
        part[at : at + size] for part, (_, length) in zip(read, ranges, strict=True) for at in range(0, length, size)
    ]
    places = ((run, column) for run in runs for column in columns)
    for (run, column), piece in zip(places, pieces, strict=True):
        at = shape.digest_start(prime, run, column)
        if hashlib.sha256(piece).digest()[:_DIGEST_BYTES] != digests[at : at + _DIGEST_BYTES]:
            raise FileFormatError(
                f"{store.where(entry.name)} is damaged in column {column}, prime {prime}, run {run}: its digest does not fit"
            )
    return pieces


def _neighbours(columns: Sequence[int]) -> list[tuple[int, int]]:
    """Columns as stretches of such that lie side by side: the first of each, and how many.

    >>> _neighbours([2, 3, 4, 9])
    [(2, 3), (9, 1)]
    """
    starts = [i for i, column in enumerate(columns) if not i or columns[i - 1] + 1 != column]
    return [(columns[a], b - a) for a, b in pairwise([*starts, len(columns)])]


def _by_column(by_run: Residues, length: int) -> Residues:
    """Residues of shape (runs, columns, 2, run) as (parts of) polynomials, (columns, 2, length)."""
    return by_run.transpose(1, 2, 0, 3).reshape(by_run.shape[1], _COMPONENTS, length)


def _as_words(pieces: Sequence[bytes]) -> Residues:
    return np.frombuffer(b"".join(pieces), dtype="<u8").reshape(len(pieces), _COMPONENTS, -1)


def pack_residues(residues: Residues, shape: BlockShape) -> bytes:
    """Residues of shape (columns, 2, primes, N) as they are stored."""
    parts = []
    for prime in range(shape.n_primes):
        one = residues[:, :, prime].reshape(shape.n_columns, _COMPONENTS, shape.n_runs, shape.run)
        by_run = np.ascontiguousarray(one.transpose(2, 0, 1, 3), dtype=np.uint64)
        parts.append(pack(by_run, shape.bits(prime)).astype("<u8", copy=False).tobytes())
    return b"".join(parts)


def unpack_residues(packed: bytes, shape: BlockShape, where: str = "these bytes") -> Residues:
    """The inverse of :func:`pack_residues`; ``where`` names the bytes in errors."""
    ring = shape.parameters.ring_degree
    residues = np.empty((shape.n_columns, _COMPONENTS, shape.n_primes, ring), dtype=np.uint64)
    for prime in range(shape.n_primes):
        start, stop = shape.prime_start(prime), shape.prime_start(prime + 1)
        words = np.frombuffer(packed, dtype="<u8", offset=start, count=(stop - start) // 8)
        by_run = _unpacked(words.reshape(shape.n_runs, shape.n_columns, _COMPONENTS, -1), shape, prime, where)
        residues[:, :, prime] = _by_column(by_run, ring)
    return residues


def _unpacked(words: Residues, shape: BlockShape, prime: int, where: str) -> Residues:
    """Residues that evaluators may compute on without looking: each is below its prime."""
    residues = unpack(words, shape.bits(prime))
    if residues.max() >= shape.parameters.data_moduli[prime]:
        raise FileFormatError(f"{where} holds residues that are not below prime {prime}: no ciphertext has such")
    return residues


def _digests(packed: bytes, shape: BlockShape) -> bytes:
    view, digests, at = memoryview(packed), [], 0
    for prime in range(shape.n_primes):
        size = shape.piece_bytes(prime)
        for _ in range(shape.n_runs * shape.n_columns):
            digests.append(hashlib.sha256(view[at : at + size]).digest()[:_DIGEST_BYTES])
            at += size
    return b"".join(digests)


def _read_digests(store: Store, entry: BlockEntry, shape: BlockShape) -> bytes:
    return looked_at_again(store, lambda: _read_checked_digests(store, entry, shape))


def _read_checked_digests(store: Store, entry: BlockEntry, shape: BlockShape) -> bytes:
    digests = store.read(entry.name, entry.start, shape.digest_bytes)
    if hashlib.sha256(digests).hexdigest() != entry.digests_sha256:
        raise FileFormatError(f"{store.where(entry.name)} is not the block that the manifest lists, or is damaged")
    return digests


def _checked_block(data: bytes, where: str, shape: BlockShape, key_id: str) -> Container:
    block = container.from_bytes(data, kind=BLOCK_KIND, name=where)
    if block.fingerprint != shape.parameters.fingerprint or block.key_id != key_id:
        raise FileFormatError(f"{where} belongs to another key or other parameters than its table")
    lengths = [(name, len(data)) for name, data in block.sections.items()]
    kinds = {name: type(value) for name, value in block.fields.items()}
    if (
        lengths != [("digests", shape.digest_bytes), ("residues", shape.residue_bytes)]  # in this order: see `start`
        or kinds != {"id": str, "rows": int, "columns": int, "seal": str}
        or block.fields["columns"] != shape.n_columns
    ):
        raise FileFormatError(f"{where} has another shape than its table")
    return block
