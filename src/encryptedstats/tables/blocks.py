"""Blocks: the ciphertexts of all columns over one chunk of rows, any part of which can be read
alone.

Residues are packed to the bits of their prime and laid out as ``[prime][run of
coefficients][column][component]``: an evaluator that works through one prime and one range of
coefficients of all columns reads one contiguous piece, and a single column is a few pieces. Every
(prime, run, column) piece has its own digest, so that a partial read is checked as well as a whole
one.

Of rows that the owner encrypted, only first polynomials are stored, and a seed for each of the
second ones, which readers expand (:mod:`encryptedstats.crypto.seeded`). Rows by others are stored
whole.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from encryptedstats.crypto import Parameters
from encryptedstats.errors import ArgumentError, FileFormatError
from encryptedstats.machine import cores
from encryptedstats.storage import container, pieces
from encryptedstats.storage.container import Container
from encryptedstats.storage.objects import Readable, Store, retry_read
from encryptedstats.storage.pieces import DIGEST_BYTES, RUN, SEED_BYTES

Residues = NDArray[np.uint64]

BLOCK_KIND: Final = "table block"
_NO_SEAL: Final = "0" * 64  # for writers who need not recognise the block later
_COMPONENTS: Final = 2
_HASH_BYTES: Final = 32
_ROWS_DIGITS: Final = 16  # of the 32 of an id
_PIECES_AT_ONCE: Final = 16  # hashed together with vector instructions
_WORTH_THREADS: Final = 1 << 20  # bytes; for less, starting threads takes longer than reading
_NAME: Final = re.compile(r"blocks/[0-9]{6,12}-([0-9a-f]{32})")


def block_name(index: int, block_id: str) -> str:
    """Return the name of a block's object: in order, and never the same for other contents."""
    return f"blocks/{index:06d}-{block_id}"


def block_id_of(name: str) -> str | None:
    """Return the id in the name of a block's object; None for names that no block has, such as
    those that leave the folder.
    """
    match = _NAME.fullmatch(name)
    return match[1] if match else None


def same_rows(a: Iterable[str], b: Iterable[str]) -> str | None:
    """Return the id of a block of ``b`` whose rows are in a block of ``a`` too, as far as ids tell.

    The first half of an id is the same for the same rows at the same place of any table, where the
    owner encrypted them.
    """
    known = {rows_id(block) for block in a}
    return next((block for block in b if rows_id(block) in known), None)


def rows_id(block_id: str) -> str:
    """Return the half of a block's id that tells its rows."""
    return block_id[:_ROWS_DIGITS]


@dataclass(frozen=True)
class BlockShape:
    """Arithmetic of the positions in a block."""

    parameters: Parameters
    n_columns: int
    seeded: bool = False  # whether seeds stand for the second polynomials

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

    @property
    def components(self) -> int:
        """Polynomials of a ciphertext that are stored as such."""
        return 1 if self.seeded else _COMPONENTS

    def bits(self, prime: int) -> int:
        """Bits of a packed residue."""
        return self.parameters.data_moduli[prime].bit_length()

    def piece_bytes(self, prime: int) -> int:
        """Return bytes of one column in one run of one prime."""
        return self.components * self.run * self.bits(prime) // 8

    def prime_start(self, prime: int) -> int:
        """Return where the residues of a prime begin."""
        return sum(self.n_runs * self.n_columns * self.piece_bytes(p) for p in range(prime))

    def piece_start(self, prime: int, run: int, column: int) -> int:
        """Return where one column in one run of one prime begins."""
        return self.prime_start(prime) + (run * self.n_columns + column) * self.piece_bytes(prime)

    @property
    def residue_bytes(self) -> int:
        """Bytes of all residues."""
        return self.prime_start(self.n_primes)

    @property
    def seed_bytes(self) -> int:
        """Bytes of all seeds."""
        return SEED_BYTES * self.n_columns if self.seeded else 0

    @property
    def digest_bytes(self) -> int:
        """Bytes of all digests."""
        return DIGEST_BYTES * self.n_primes * self.n_runs * self.n_columns

    @property
    def head_bytes(self) -> int:
        """Bytes that are needed to read any of the residues: seeds and digests."""
        return self.seed_bytes + self.digest_bytes

    @property
    def sections(self) -> dict[str, int]:
        """The sections of a block, and their lengths."""
        seeds = {"seeds": self.seed_bytes} if self.seeded else {}
        return {**seeds, "digests": self.digest_bytes, "residues": self.residue_bytes}


@dataclass(frozen=True)
class BlockFacts:
    """What the owner signs of a block: its rows, how it is stored, and a hash of its content."""

    id: str
    rows: int
    seeded: bool
    digests_sha256: str  # of the seeds and the digests: of every piece, by a hash of hashes


@dataclass(frozen=True)
class BlockEntry(BlockFacts):
    """Entry of a block in the manifest: enough to find it, read any part of it, and check it."""

    name: str
    bytes: int
    start: int
    sha256: str
    head_sha256: str  # of all before the residues
    signature: str = (
        ""  # of the owner who encrypted it with the secret key; none under the public key
    )

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Any, shape: BlockShape) -> BlockEntry:
        kinds = {f.name: {"int": int, "bool": bool}.get(str(f.type), str) for f in fields(cls)}
        if not isinstance(values, Mapping) or {k: type(v) for k, v in values.items()} != kinds:
            raise FileFormatError(
                "the manifest has a malformed entry of a block", code="malformed-block-entry"
            )
        entry = cls(**values)
        own = entry.shape(shape)
        before, after = entry.start, own.head_bytes + own.residue_bytes + _HASH_BYTES
        fits = 0 < before < 2 * container.MAX_HEADER_BYTES and entry.bytes == before + after
        if not (
            fits
            and 0 < entry.rows <= shape.parameters.slots
            and block_id_of(entry.name) == entry.id
        ):
            raise FileFormatError(
                f"the manifest has an impossible entry of block {entry.id!r}",
                code="impossible-block-entry",
            )
        return entry

    def shape(self, of_table: BlockShape) -> BlockShape:
        """Return where things lie in this block of a table."""
        return replace(of_table, seeded=self.seeded)


def block_statement(
    block: BlockFacts, version: int, columns: Sequence[str], weight_bound: int, schema: str
) -> bytes:
    """Return what the owner signs of a block: its facts, and what its columns are."""
    table = [version, list(columns), weight_bound, schema]
    said = [
        "encryptedstats block",
        *table,
        block.id,
        block.rows,
        block.seeded,
        block.digests_sha256,
    ]
    return json.dumps(said).encode()


# -- writing ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BlockRows:
    """The rows of a block: its id, their number, and the id of their key."""

    id: str
    count: int
    key_id: str


def block_bytes(
    residues: Residues,
    shape: BlockShape,
    rows: BlockRows,
    *,
    seeds: bytes = b"",
    seal: Callable[[BlockFacts], str] = lambda block: _NO_SEAL,
) -> bytes:
    """Return the object for residues of shape (columns, 1 or 2, primes, N).

    Where there are ``seeds``, the residues are those of the first polynomials.

    ``seal`` is a keyed hash of what the owner signs, by which its maker recognises the object;
    it tells nobody else anything.
    """
    if len(seeds) != shape.seed_bytes or residues.shape[1] != shape.components:
        raise ArgumentError(
            f"{len(seeds)} bytes of seeds and {residues.shape[1]} polynomials a ciphertext: "
            f"{shape.seed_bytes} and "
            f"{shape.components} are stored of {shape.n_columns} columns here",
            code="wrong-block-shape",
        )
    packed = pack_residues(residues, shape)
    digests = _digests(packed, shape)
    facts = BlockFacts(rows.id, rows.count, shape.seeded, _sha256(seeds + digests))
    fields = {"id": rows.id, "rows": rows.count, "columns": shape.n_columns, "seal": seal(facts)}
    sections = {
        **({"seeds": seeds} if shape.seeded else {}),
        "digests": digests,
        "residues": packed,
    }
    return container.to_bytes(
        Container(BLOCK_KIND, shape.parameters.fingerprint, rows.key_id, fields, sections)
    )


def block_size(shape: BlockShape, rows: int) -> int:
    """Return the bytes of the object for a block of some rows, known before it is made."""
    fields = {"id": "0" * 32, "rows": rows, "columns": shape.n_columns, "seal": _NO_SEAL}
    lengths = shape.sections
    header = container.header_bytes(
        BLOCK_KIND, shape.parameters.fingerprint, "0" * 32, fields, lengths
    )
    return len(header) + sum(lengths.values()) + _HASH_BYTES


def store_block(store: Store, data: bytes, name: str, shape: BlockShape, rows: int) -> BlockEntry:
    """Store a block that was just made, and its entry.

    Names are keyed hashes: what else lies under one was left by a killed process, or is forged.
    """
    if not store.create(name, data) and not _is_there(store, name, data):
        store.write(name, [data])
    return _entry(data, name, shape, block_id_of(name) or "", rows)


def _is_there(store: Store, name: str, data: bytes) -> bool:
    try:
        return store.read(name, limit=len(data)) == data
    except FileFormatError:  # larger
        return False


def _entry(data: bytes, name: str, shape: BlockShape, block_id: str, rows: int) -> BlockEntry:
    start = len(data) - _HASH_BYTES - shape.residue_bytes - shape.head_bytes
    head = memoryview(data)[: start + shape.head_bytes]
    facts = block_id, rows, shape.seeded, _sha256(head[start:])
    return BlockEntry(*facts, name, len(data), start, data[-_HASH_BYTES:].hex(), _sha256(head))


def _sha256(data: bytes | memoryview) -> str:
    return hashlib.sha256(data).hexdigest()


def block_entry(data: bytes, name: str, shape: BlockShape, key_id: str, where: str) -> BlockEntry:
    """Check an object, and return what the manifest will say of it."""
    block, own = _check_block(data, where, shape, key_id)
    return _entry(data, name, own, block.fields["id"], block.fields["rows"])


def find_stored_entry(
    store: Store,
    name: str,
    rows: int,
    shape: BlockShape,
    key_id: str,
    seal: Callable[[BlockFacts], str],
) -> BlockEntry | None:
    """Return the entry of a block that the maker of this ``seal`` has stored under this name.

    Return None if the object is damaged, another block, or another's. Storage is not trusted: the
    seal covers all that the owner will sign.
    """

    def looked_at() -> BlockEntry | None:
        data = store.read(
            name, limit=block_size(replace(shape, seeded=False), shape.parameters.slots)
        )
        block, own = _check_block(data, store.where(name), shape, key_id)
        entry = _entry(data, name, own, block_id_of(name) or "", rows)
        ours = hmac.compare_digest(block.fields["seal"].encode(), seal(entry).encode())
        if not ours or (block.fields["id"], block.fields["rows"]) != (entry.id, entry.rows):
            return None
        return (
            entry if _digests(block.section("residues"), own) == block.section("digests") else None
        )

    try:
        return retry_read(store, looked_at)
    except (FileFormatError, FileNotFoundError):
        return None


def pack_residues(residues: Residues, shape: BlockShape) -> bytes:
    """Residues of shape (columns, components, primes, N) as they are stored."""
    packed = np.empty(shape.residue_bytes // 8, dtype="<u8")
    for prime in range(shape.n_primes):
        one = residues[:, :, prime].reshape(
            shape.n_columns, shape.components, shape.n_runs, shape.run
        )
        by_run = np.ascontiguousarray(one.transpose(2, 0, 1, 3), dtype=np.uint64)
        into = packed[shape.prime_start(prime) // 8 : shape.prime_start(prime + 1) // 8]
        pieces.pack(by_run, shape.bits(prime), into)
    return packed.tobytes()


def _digests(packed: bytes, shape: BlockShape) -> bytes:
    view, at = memoryview(packed), [shape.prime_start(prime) for prime in range(shape.n_primes + 1)]
    return b"".join(
        pieces.digests_of(view[at[prime] : at[prime + 1]], shape.piece_bytes(prime))
        for prime in range(shape.n_primes)
    )


def _check_block(
    data: bytes, where: str, shape: BlockShape, key_id: str
) -> tuple[Container, BlockShape]:
    block = container.from_bytes(data, kind=BLOCK_KIND, name=where)
    lengths = {name: len(data) for name, data in block.sections.items()}
    return block, _check_shape(block, lengths, where, shape, key_id)


def _check_shape(
    block: Container, lengths: Mapping[str, int], where: str, shape: BlockShape, key_id: str
) -> BlockShape:
    """Return where things lie in a block of a table, by what its object says of itself."""
    if block.fingerprint != shape.parameters.fingerprint or block.key_id != key_id:
        raise FileFormatError(
            f"{where} belongs to another key or other parameters than its table",
            code="block-of-other-key",
        )
    own = replace(shape, seeded="seeds" in lengths)
    kinds = {name: type(value) for name, value in block.fields.items()}
    if (
        list(lengths.items()) != list(own.sections.items())  # in this order: see `start`
        or kinds != {"id": str, "rows": int, "columns": int, "seal": str}
        or block.fields["columns"] != shape.n_columns
    ):
        raise FileFormatError(f"{where} has another shape than its table", code="wrong-block-shape")
    return own


# -- reading ---------------------------------------------------------------------------------------


def read_block(store: Readable, entry: BlockEntry, shape: BlockShape, key_id: str) -> Residues:
    """Return all residues of a block, shape (columns, 2, primes, N)."""
    everything = (range(shape.n_primes), range(shape.n_runs), range(shape.n_columns))

    def read() -> Residues:
        data, own = _whole_block(store, entry, shape, key_id)
        start = entry.start + own.head_bytes
        head = _check_head(data[entry.start : start], store, entry, own)
        return _Reading(store, entry, own, *everything).residues(head, memoryview(data)[start:])

    return retry_read(store, read)


def _whole_block(
    store: Readable, entry: BlockEntry, shape: BlockShape, key_id: str
) -> tuple[bytes, BlockShape]:
    """Return a whole object, checked but for its pieces."""
    data, where = store.read(entry.name, limit=entry.bytes), store.where(entry.name)
    head = memoryview(data)[: entry.start + entry.shape(shape).head_bytes]
    if (
        len(data) != entry.bytes
        or data[-_HASH_BYTES:].hex() != entry.sha256
        or _sha256(head) != entry.head_sha256
    ):
        raise FileFormatError(
            f"{where} is not the block that the manifest lists: cut short, altered or exchanged",
            code="block-not-listed",
        )
    block, lengths = container.header_of(data, kind=BLOCK_KIND, name=where)
    own = _check_shape(block, lengths, where, shape, key_id)
    if (block.fields["id"], block.fields["rows"], own.seeded) != (
        entry.id,
        entry.rows,
        entry.seeded,
    ):
        raise FileFormatError(
            f"{where} is block {block.fields['id']!r}, and the manifest lists {entry.id!r} there",
            code="wrong-block-id",
        )
    return data, own


def read_seeds(store: Readable, entry: BlockEntry, shape: BlockShape) -> bytes:
    """Return the seeds of a block, one after the other; none of a block that is stored whole."""
    own = entry.shape(shape)
    return retry_read(store, lambda: _read_head(store, entry, own))[: own.seed_bytes]


def read_runs(
    store: Readable,
    entry: BlockEntry,
    shape: BlockShape,
    *,
    prime: int,
    runs: range,
    columns: Sequence[int],
) -> Residues:
    """Return the residues of one prime and adjacent runs of coefficients of some columns.

    Their shape is (columns, 2, coefficients).
    """
    return _read(store, entry, shape, [prime], runs, columns)[:, :, 0]


def read_column(store: Readable, entry: BlockEntry, shape: BlockShape, column: int) -> Residues:
    """Return the ciphertext of one column, shape (2, primes, N), without reading the others."""
    one: Residues = _read(
        store, entry, shape, range(shape.n_primes), range(shape.n_runs), [column]
    )[0]
    return one


def read_columns(
    store: Readable, entry: BlockEntry, shape: BlockShape, key_id: str, columns: Sequence[int]
) -> list[Residues]:
    """Return the ciphertexts of some columns, each of shape (2, primes, N); the others are not
    read where they are the greater part.
    """
    n_wanted = len(set(columns))
    if 2 * n_wanted <= shape.n_columns:
        return list(_read(store, entry, shape, range(shape.n_primes), range(shape.n_runs), columns))
    # One large read is faster than many small ones of as many bytes. Columns are views of it, in
    # any order, unless they would hold much that nobody wants.
    everything = read_block(store, entry, shape, key_id)
    is_most = 8 * n_wanted >= 7 * shape.n_columns
    return [everything[column] if is_most else everything[column].copy() for column in columns]


def _read(
    store: Readable,
    entry: BlockEntry,
    shape: BlockShape,
    primes: Sequence[int],
    runs: range,
    columns: Sequence[int],
) -> Residues:
    """Return some primes, runs and columns of a block, shape (columns, 2, primes, coefficients),
    each piece checked by its digest.
    """
    wanted, own = sorted(set(columns)), entry.shape(shape)

    def read() -> Residues:
        reading = _Reading(store, entry, own, primes, runs, wanted)
        return reading.residues(_read_head(store, entry, own), reading.pieces())

    residues = retry_read(store, read)
    return (
        residues
        if wanted == list(columns)
        else residues[[wanted.index(column) for column in columns]]
    )


@dataclass(frozen=True)
class _Reading:
    """One read of a block: neighbours are read at once, and unpacked on all cores."""

    store: Readable
    entry: BlockEntry
    shape: BlockShape
    primes: Sequence[int]
    runs: range
    columns: Sequence[int]

    def pieces(self) -> memoryview:
        """Return the pieces of all primes, runs and columns, one after the other; a file that is
        cut short is damaged at its end.
        """
        shape, origin = self.shape, self.entry.start + self.shape.head_bytes
        ranges = [
            (origin + shape.piece_start(prime, run, first), count * shape.piece_bytes(prime))
            for prime in self.primes
            for run in self.runs
            for first, count in _neighbours(self.columns)
        ]
        found = zip(self.store.read_ranges(self.entry.name, ranges), ranges, strict=True)
        return memoryview(b"".join([part.ljust(length, b"\0") for part, (_, length) in found]))

    def residues(self, head: bytes, data: memoryview) -> Residues:
        """Return what the pieces hold, shape (columns, 2, primes, coefficients), each of them
        checked by its digest.
        """
        shape, width = self.shape, len(self.runs) * self.shape.run
        out = np.empty((len(self.columns), _COMPONENTS, len(self.primes), width), dtype=np.uint64)
        seeds = np.frombuffer(head, dtype=np.uint8, count=shape.seed_bytes).reshape(-1, SEED_BYTES)
        digests = np.frombuffer(head, dtype=np.uint8, offset=shape.seed_bytes)
        digests = digests.reshape(shape.n_primes, shape.n_runs, shape.n_columns, DIGEST_BYTES)
        chosen = seeds[self.columns].tobytes() if shape.seeded else b""
        sizes = [len(self.columns) * shape.piece_bytes(prime) for prime in self.primes]
        starts = [len(self.runs) * sum(sizes[:index]) for index in range(len(sizes))]
        # About one part for each core, because every part takes the interpreter's lock once; but
        # at least as many pieces as are hashed together.
        at_once = max(
            -(-_PIECES_AT_ONCE // len(self.columns)), len(self.primes) * len(self.runs) // cores()
        )

        def unpack(place: tuple[int, int]) -> None:
            index, number = place
            prime, runs = self.primes[index], self.runs[number : number + at_once]
            at = starts[index] + number * sizes[index]
            expected = digests[prime, runs.start : runs.stop][:, self.columns].tobytes()
            own, modulus = (
                data[at : at + len(runs) * sizes[index]],
                shape.parameters.data_moduli[prime],
            )
            target = pieces.Target(out, index, number * shape.run)
            bad = pieces.read(own, expected, chosen, modulus, runs, target)
            if bad is not None:
                run, column = divmod(bad[0], len(self.columns))
                raise self._refusal(prime, runs[run], self.columns[column], is_whole=bad[1])

        numbers = range(0, len(self.runs), at_once)
        _share(
            unpack,
            [(index, number) for index in range(len(self.primes)) for number in numbers],
            out.nbytes,
        )
        return out

    def _refusal(self, prime: int, run: int, column: int, *, is_whole: bool) -> FileFormatError:
        where = self.store.where(self.entry.name)
        if is_whole:
            return FileFormatError(
                f"{where} holds residues that are not below prime {prime}: no ciphertext has such",
                code="residues-too-large",
            )
        return FileFormatError(
            f"{where} is damaged in column {column}, prime {prime}, run {run}: its digest does "
            "not fit",
            code="wrong-digest",
        )


def _share(work: Callable[[Any], None], items: Sequence[Any], nbytes: int) -> None:
    """Work over all cores, where there is enough of it."""
    if nbytes < _WORTH_THREADS or cores() < 2:
        for item in items:
            work(item)
        return
    for _ in _readers(os.getpid()).map(work, items):
        pass


@lru_cache(maxsize=1)
def _readers(process: int) -> ThreadPoolExecutor:
    """Threads for all that is read in this process: a forked one does not have those of
    its parent.
    """
    return ThreadPoolExecutor(cores(), thread_name_prefix=f"reading-{process}")


def _read_head(store: Readable, entry: BlockEntry, shape: BlockShape) -> bytes:
    """Seeds and digests of a block."""
    return _check_head(store.read(entry.name, entry.start, shape.head_bytes), store, entry, shape)


def _check_head(head: bytes, store: Readable, entry: BlockEntry, shape: BlockShape) -> bytes:
    """Seeds and digests, if they are all, and those that the owner has signed."""
    if len(head) != shape.head_bytes or _sha256(head) != entry.digests_sha256:
        raise FileFormatError(
            f"{store.where(entry.name)} is not the block that the manifest lists, or is damaged",
            code="block-not-listed",
        )
    return head


def _neighbours(columns: Sequence[int]) -> list[tuple[int, int]]:
    """Group columns into runs of neighbours; return first column and length of each run.

    >>> _neighbours([2, 3, 4, 9])
    [(2, 3), (9, 1)]
    """
    starts = [i for i, column in enumerate(columns) if not i or columns[i - 1] + 1 != column]
    return [(columns[a], b - a) for a, b in pairwise([*starts, len(columns)])]
