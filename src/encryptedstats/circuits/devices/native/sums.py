"""Sums over rows of BGV circuits in C: the whole circuit for one block of coefficients at a time.

The SEAL device computes instruction by instruction and writes every intermediate ciphertext to
memory. This module runs a tape (see :mod:`encryptedstats.circuits.devices.native.tape`) over the
residues of all columns, prime by prime and block by block, on all cores. The residues are SEAL's,
bit for bit.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from queue import SimpleQueue
from typing import Final

import numpy as np
from numpy.typing import NDArray

from encryptedstats.circuits.devices.native.points import is_at_points, write_branchings
from encryptedstats.circuits.devices.native.steps import kernels_of
from encryptedstats.circuits.devices.native.tape import (
    MOST_SEGMENT_VECTORS,
    Tape,
    TapeWriter,
    cached_writer,
    is_load,
    is_sum_of_loads,
    rows_in_order,
)
from encryptedstats.circuits.devices.seal import encrypted_here
from encryptedstats.circuits.devices.steps import NOTHING_HIDDEN
from encryptedstats.circuits.expressions import in_order
from encryptedstats.circuits.program import (
    ADD_UP,
    COLUMN,
    EXPAND,
    GIVEN,
    HERE,
    MULTIPLY,
    RELINEARISE,
    SHIFT,
    SUM,
    SWITCH,
    Step,
    is_readable,
    program_digest,
)
from encryptedstats.circuits.slices import (
    CheckpointSums,
    FitIdentity,
    MemorySums,
    Slice,
    SlicedSums,
    TemporarySums,
    slices_of,
)
from encryptedstats.circuits.sources import Source
from encryptedstats.crypto.packing import first_primes
from encryptedstats.crypto.parameters import Parameters
from encryptedstats.crypto.residues import Residues
from encryptedstats.errors import ArgumentError, FileFormatError
from encryptedstats.machine import best_level

try:
    from encryptedstats import _fused
except ImportError:  # built without a C compiler
    _fused = None  # type: ignore[assignment]  # row_obstacle() asks before it is used

MAX_PRIME: Final = 1 << 50
# Coefficients at a time. Sums of several chunks stay in the nearest cache; those of a single one go
# to memory, in longer pieces.
BLOCK: Final = 128
BLOCK_OF_ONE: Final = 256
BLOCK_AT_POINTS: Final = 32  # with all sums of a tape
_MAX_CHUNKS: Final = 16  # of one run of the tape; see MAX_CHUNKS in _native/fused.c
_MAX_CHUNKS_AT_POINTS: Final = 256
_SCRATCH: Final = (
    2 << 20
)  # bytes of columns of one block, all chunks: what a core can have of the last level of cache
# Bytes of sums at a time where the columns need not be read again: less of it is not worth the
# while, more is fresh memory.
_SMALL_BATCH: Final = 64 << 20
_PIECES: Final = 4  # of work for a thread: between them it waits for the interpreter's lock


def arithmetic() -> str | None:
    """Return the fastest arithmetic of this machine: "ifma", "avx512", "avx2", "neon" or
    "baseline".

    Returns None where the extension was not built. The environment variable ``ENCRYPTEDSTATS_CPU``
    caps it.
    """
    return None if _fused is None else best_level(_fused.levels())


def row_obstacle(rows: Sequence[Step], parameters: Parameters) -> str | None:
    """Return why no tape computes these steps over rows, or None."""
    if _fused is None:
        return "the kernels are not there: the library was installed without a C compiler"
    if parameters.scheme != "bgv":
        return f"the kernels compute BGV ciphertexts, and these are {parameters.scheme.upper()}"
    largest = max(parameters.data_moduli)
    if largest >= MAX_PRIME:
        return (
            "the kernels compute modulo primes below 2^50, and one of these parameters has "
            f"{largest.bit_length()} bits"
        )
    ops = {step.op for step in in_order(rows)}
    if RELINEARISE in ops and not ops - {
        COLUMN,
        GIVEN,
        EXPAND,
        HERE,
        ADD_UP,
        MULTIPLY,
        SHIFT,
        SWITCH,
        RELINEARISE,
    }:
        return "these parameters carry the circuit only if products are relinearised on the way"
    steps = list(rows_in_order(rows))
    if any(step.op == SHIFT and not is_sum_of_loads(step) for step in steps):
        return "the circuit interleaves totals that are not products of columns"
    loads = [step for step in steps if is_load(step)]
    if not all(map(is_readable, loads)) or len({step.level for step in loads}) > 1:
        return "the circuit replicates totals into rows, or moves rows"
    return None


def sums_under(steps: Iterable[Step]) -> list[Step]:
    """Return the sums over rows that steps on totals are computed from, each once."""
    found: dict[Step, None] = {}
    stack = list(steps)[::-1]
    while stack:
        step = stack.pop()
        if step.op == SUM:
            found[step] = None
        else:
            stack.extend(reversed(step.args))
    return list(found)


@dataclass
class Loads:
    """What tapes read: columns of a source, packed totals, and newly encrypted numbers, all at one
    level.
    """

    source: Source
    level: int
    expanded: Mapping[Step, Residues]
    kept_bytes: int  # of columns that are switched once and kept
    _switched: dict[tuple[Step, int], Residues] = field(default_factory=dict)
    _made: dict[tuple[Step, int], Residues] = field(default_factory=dict)

    def __post_init__(self) -> None:
        every = self.source.parameters
        self.parameters = (
            first_primes(every, len(every.data_moduli) - self.level) if self.level else every
        )
        columns = len(self.source.ranges()) * self.source.layout.n_chunks
        self._keeps = columns * self.parameters.ciphertext_bytes() <= self.kept_bytes

    @property
    def in_memory(self) -> bool:
        """True if reading takes no memory."""
        return self._keeps if self.level else self.source.in_memory

    @property
    def piece_width(self) -> int:
        """The coefficients that can be read alone: all, or none of a column that has to be
        switched.
        """
        return (
            self.parameters.ring_degree
            if self.level
            else min(self.parameters.ring_degree, self.source.piece_width)
        )

    def make(self, steps: Iterable[Step], chunk: int) -> None:
        """Encrypt what is to be encrypted for a chunk, once: it is read in pieces, and encrypting
        twice gives other pieces.
        """
        self._made = {
            (step, chunk): self._lower_residues(encrypted_here(base_of(step), self.source, chunk))
            for step in steps
            if base_of(step).op == HERE
        }

    def read(self, steps: Sequence[Step], chunk: int, one: Slice) -> Sequence[Residues]:
        """Read a slice of each step over a chunk, (2, primes, width)."""
        if not self.level and all(step.op == COLUMN for step in steps):
            return self.source.pieces(
                [step.data for step in steps], chunk, one.prime, one.start, one.stop
            )
        primes = one.primes(self.parameters)
        return [
            self._whole(step, chunk)[:, primes.start : primes.stop, one.start : one.stop]
            for step in steps
        ]

    def _whole(self, step: Step, chunk: int) -> Residues:
        if step.op == EXPAND:
            return self.expanded[step]
        if base_of(step).op == HERE:
            return self._made[step, chunk]
        if not self.level:
            return self.source.residues(step.data, chunk)
        if (step, chunk) in self._switched:
            return self._switched[step, chunk]
        residues = self._lower_residues(self.source.residues(base_of(step).data, chunk))
        if self._keeps:
            self._switched[step, chunk] = residues
        return residues

    def _lower_residues(self, residues: Residues) -> Residues:
        return kernels_of(self.source.keys).switch(residues, self.level) if self.level else residues


def base_of(load: Step) -> Step:
    """Return the column that is switched down."""
    return load.args[0] if load.op == SWITCH else load


def sums_in_batches(
    outputs: Sequence[Step],
    evaluator: SumsEvaluator,
    *,
    checkpoint: str | os.PathLike[str] | None = None,
    advance: Callable[[float], None] = lambda rows: None,
) -> Iterator[tuple[list[Step], dict[Step, Residues]]]:
    """Yield outputs, some at a time, with the sums over rows that they need.

    The next sums overwrite the last ones. ``advance`` is called with the number of rows that are
    done; the rows of the table stand for all totals of all rows. ``checkpoint`` is where sums are
    kept, so that another process can go on from them: see :mod:`encryptedstats.circuits.slices`.
    """
    totals = sums_under(outputs)
    evaluator.prepare(totals, hold=checkpoint is None, again=True)
    if evaluator.holds:
        yield from _from_memory(evaluator, outputs, totals, advance)
    else:
        yield from _slice_by_slice(evaluator, outputs, totals, checkpoint, advance)


def _from_memory(
    evaluator: SumsEvaluator,
    outputs: Sequence[Step],
    totals: Sequence[Step],
    advance: Callable[[float], None],
) -> Iterator[tuple[list[Step], dict[Step, Residues]]]:
    """Yield outputs in batches: the columns can be read again for each."""
    batches = evaluator.batches(outputs)
    with evaluator.pools(), ThreadPoolExecutor(1) as writer:  # writes the next tape while one runs
        ahead = writer.submit(evaluator.tape, sums_under(batches[0]))
        for number, batch in enumerate(batches):
            tape = ahead.result()
            if number + 1 < len(batches):
                ahead = writer.submit(evaluator.tape, sums_under(batches[number + 1]))
            yield (
                batch,
                evaluator.run(tape, partial(_advance_share, advance, len(batch) / len(outputs))),
            )


def _slice_by_slice(
    evaluator: SumsEvaluator,
    outputs: Sequence[Step],
    totals: Sequence[Step],
    checkpoint: str | os.PathLike[str] | None,
    advance: Callable[[float], None],
) -> Iterator[tuple[list[Step], dict[Step, Residues]]]:
    """Yield all outputs after computing their sums slice by slice, so that the table is
    read once.
    """
    tape = evaluator.tape(totals)
    kept = evaluator.place_for(tape, checkpoint)
    try:
        missing = [number for number in range(len(kept.slices)) if not kept.has(number)]
        advance(evaluator.layout.n_rows * (1 - len(missing) / len(kept.slices)))
        share = partial(_advance_share, advance, 1 / len(kept.slices))
        for number, sums in zip(
            missing, evaluator.passes(tape, [kept.slices[n] for n in missing], share), strict=True
        ):
            kept.put(number, sums)
        evaluator.release()
        yield from _join_slices(evaluator, tape, outputs, kept)
    finally:
        kept.close()


def _join_slices(
    evaluator: SumsEvaluator, tape: Tape, outputs: Sequence[Step], kept: SlicedSums
) -> Iterator[tuple[list[Step], dict[Step, Residues]]]:
    """Yield outputs with their sums joined from all slices, in the order of the sums."""
    firsts = dict(zip(tape.totals, np.cumsum([0, *tape.sizes[:-1]]).tolist(), strict=True))
    sizes = dict(zip(tape.totals, tape.sizes, strict=True))
    ordered = sorted(
        dict.fromkeys(outputs),
        key=lambda output: min(firsts[total] for total in sums_under([output])),
    )
    for batch in evaluator.batches(ordered, joining=True):
        needed = sorted(sums_under(batch), key=firsts.__getitem__)
        found: dict[Step, Residues] = {}
        for stretch in _stretches([(firsts[total], sizes[total]) for total in needed]):
            first, count = (
                firsts[needed[stretch.start]],
                sum(sizes[total] for total in needed[stretch.start : stretch.stop]),
            )
            residues, at = _from_slices(evaluator.parameters, kept, first, count), 0
            for total in needed[stretch.start : stretch.stop]:
                found[total] = residues[at : at + sizes[total]]
                at += sizes[total]
        yield batch, found


def _stretches(places: Sequence[tuple[int, int]]) -> list[range]:
    """Group neighbouring places, given the start and length of each, into ranges."""
    cuts = [i for i in range(1, len(places)) if sum(places[i - 1]) != places[i][0]]
    return [range(a, b) for a, b in pairwise([0, *cuts, len(places)])]


def _from_slices(parameters: Parameters, kept: SlicedSums, first: int, count: int) -> Residues:
    """Return some whole polynomials."""
    if len(kept.slices) == 1 and kept.slices[0].prime is None:
        return kept.get(0, first, count)
    residues = np.empty(
        (count, len(parameters.data_moduli), parameters.ring_degree), dtype=np.uint64
    )
    for number, one in enumerate(kept.slices):
        primes = one.primes(parameters)
        residues[:, primes.start : primes.stop, one.start : one.stop] = kept.get(
            number, first, count
        )
    return residues


def _advance_share(advance: Callable[[float], None], share: float, rows: int) -> None:
    advance(share * rows)


class SumsEvaluator:
    """One evaluation: reused memory, and the chunks of the table one group after the other."""

    def __init__(
        self,
        loads: Loads,
        threads: int,
        memory_limit: int,
        *,
        level: str | None = None,
        block: int | None = None,
    ) -> None:
        self.loads, self.source, self.layout, self.threads = (
            loads,
            loads.source,
            loads.source.layout,
            threads,
        )
        self.chunks = range(self.layout.n_chunks)  # that are added up
        self.block = block or (BLOCK if self.layout.n_chunks > 1 else BLOCK_OF_ONE)
        self._given_block, self.at_points = block, False
        if loads.parameters.copies > 1:
            self.block = min(self.block, loads.parameters.slots)
        self.level = level or arithmetic() or ""
        self.parameters = loads.parameters
        self.ring, self.n_primes = self.parameters.ring_degree, len(self.parameters.data_moduli)
        self.memory_limit, self.most_vectors = memory_limit, MOST_SEGMENT_VECTORS
        self.in_memory = loads.in_memory  # then chunks take no more memory than there is
        self._words = 0  # that the largest batch takes
        self._memory = np.empty(0, dtype=np.uint64)
        self._kept = np.empty(0, dtype=np.uint64)  # what the prologue has computed of all blocks
        self.holds = False  # whether the columns of all chunks are kept
        self._held: dict[int, tuple[Residues, ...]] = {}
        self._scratch: list[NDArray[np.uint64]] = []
        self._pools: tuple[ThreadPoolExecutor, ThreadPoolExecutor] | None = None

    # -- what is computed at a time
    # ----------------------------------------------------------------------------------

    def prepare(
        self,
        totals: Sequence[Step],
        *,
        hold: bool = False,
        again: bool = False,
        share_all: bool = False,
    ) -> None:
        """Look at all that will be computed.

        ``hold``: keep the columns of all chunks, once they are read, if there is memory. ``again``:
        keep the tapes, of a program that may be computed again. ``share_all``: as of
        :class:`TapeWriter`.
        """
        self.writer = (cached_writer if again else TapeWriter)(
            tuple(totals),
            self.parameters.plain_modulus,
            montgomery=self.level == "ifma",
            most_vectors=self.most_vectors,
            share_all=share_all,
            copies=self.parameters.copies,
        )
        self.at_points = is_at_points(
            self.writer, self.level, self.parameters, self.layout.n_chunks
        )
        if self.at_points:
            self.block = self._given_block or BLOCK_AT_POINTS
        table = self.layout.n_chunks * self._chunk_bytes(self.everything)
        self.holds = hold and (self.in_memory or table <= self.memory_limit // 2)
        self.groups = self._groups(self.everything)
        # A table of few chunks is prepared once for all batches, which can be small then.
        blocks = -(-self.ring // self.block)
        self._kept_words = (
            len(self.groups[0]) * self.writer.n_shared * self._stride * blocks * self.n_primes
        )
        small = 8 * self._kept_words <= self.memory_limit // 4
        self.keeps = len(self.groups) == 1 and small and not self.at_points
        self._kept, self._held = np.empty(0, dtype=np.uint64), {}

    def batches(self, outputs: Sequence[Step], *, joining: bool = False) -> list[list[Step]]:
        """Group outputs so that the sums of each group fit in their part of the memory.

        Each group has at least one output. ``joining`` is for sums that are only joined.
        """
        limit = self.memory_limit * (3 if self.in_memory else 1) // 4
        if (
            self.keeps or self.at_points or joining
        ):  # what is kept of several chunks is more to read for every batch
            limit = min(limit, _SMALL_BATCH * min(4, self.layout.n_chunks))
        batches: list[list[Step]] = []
        held: set[Step] = set()
        nbytes = limit + 1
        for output in outputs:
            needed = set(sums_under([output]))
            more = self._bytes(needed - held)
            if nbytes + more > limit:
                batches.append([])
                held, nbytes, more = set(), 0, self._bytes(needed)
            batches[-1].append(output)
            held |= needed
            nbytes += more
            self._words = max(self._words, nbytes // 8)
        self.keeps = self.keeps and len(batches) > 1
        return batches

    def _bytes(self, totals: Iterable[Step]) -> int:
        return sum(self.parameters.ciphertext_bytes(total.size) for total in totals)

    def tape(self, totals: Sequence[Step]) -> Tape:
        """Return the tape of some of the totals."""
        return self.writer.tape(totals, write_branchings if self.at_points else None)

    def place_for(self, tape: Tape, checkpoint: str | os.PathLike[str] | None) -> SlicedSums:
        """Return where the sums of a tape are kept until all slices are there, and the slices."""
        polynomials = sum(tape.sizes)
        nbytes = 8 * polynomials * self.n_primes * self.ring
        width = self._slice_width(
            polynomials, longest=self.loads.piece_width if checkpoint is not None else self.ring
        )
        if checkpoint is not None:
            identity = FitIdentity(
                self.parameters.fingerprint,
                self.source.keys.key_id,
                _rows_of(self.source),
                program_digest(tape.totals),
            )
            slices = slices_of(self.parameters, width)
            return CheckpointSums(checkpoint, identity, slices, self.parameters, polynomials)
        chunk = self._chunk_bytes(self.everything)
        if nbytes <= self.memory_limit // 2 and 4 * chunk <= self.memory_limit:
            return MemorySums([self.everything])
        slices = slices_of(self.parameters, width)
        return MemorySums(slices) if 2 * nbytes <= self.memory_limit // 2 else TemporarySums(slices)

    def _slice_width(self, polynomials: int, longest: int) -> int:
        """Return the widest slice whose sums fit in half of the memory, and its columns in the
        other half.

        A slice that is narrower than what can be read alone is cut from a wider read, which is
        repeated for the next.
        """
        width, least = longest, min(self.ring, self.block)
        while width > least:
            chunk = self._chunk_bytes(Slice(0, 0, width))
            if 8 * polynomials * width <= self.memory_limit // 2 and 4 * chunk <= self.memory_limit:
                break
            width //= 2
        return width

    # -- running a tape
    # --------------------------------------------------------------------------------------------

    def sums(self, totals: Sequence[Step]) -> dict[Step, Residues]:
        """Return the sums over rows, all at once."""
        self.prepare(totals)
        return self.run(self.tape(totals))

    def run(
        self, tape: Tape, advance: Callable[[int], None] = lambda rows: None
    ) -> dict[Step, Residues]:
        """Return the sums over rows that a tape computes."""
        (found,) = self.passes(tape, [self.everything], advance)
        sums, at = {}, 0
        for total, size in zip(tape.totals, tape.sizes, strict=True):
            sums[total] = found[at : at + size]
            at += size
        return sums

    def passes(
        self,
        tape: Tape,
        slices: Sequence[Slice],
        advance: Callable[[int], None] = lambda rows: None,
    ) -> Iterator[Residues]:
        """Yield the sums of a tape slice by slice, (polynomials, primes, width), in
        reused memory.
        """
        steps = [(one, chunks) for one in slices for chunks in self._groups(one)]
        with self.pools() as (pool, readers):
            ahead = self._reads(readers, tape, steps[:1])
            for index, (one, chunks) in enumerate(steps):
                columns = tuple(column for read in ahead for column in read.result())
                ahead = self._reads(readers, tape, steps[index + 1 : index + 2])
                sums = self._accumulators(tape, one)
                self._compute(pool, tape, one, chunks, columns, sums)
                advance(sum(self.layout.counts[chunk] for chunk in chunks))
                if chunks.stop == self.chunks.stop:
                    _check_sums(tape, sums)
                    yield sums

    @contextmanager
    def pools(self) -> Iterator[tuple[ThreadPoolExecutor, ThreadPoolExecutor]]:
        """Lend threads that compute and threads that read; the outermost call keeps them."""
        if self._pools is not None:
            yield self._pools
            return
        with ThreadPoolExecutor(self.threads) as pool, ThreadPoolExecutor(self.threads) as readers:
            self._pools = pool, readers
            try:
                yield self._pools
            finally:
                self._pools = None

    def release(self) -> None:
        """Give back what the sums took."""
        self._memory = np.empty(0, dtype=np.uint64)

    def _accumulators(self, tape: Tape, one: Slice) -> Residues:
        shape = sum(tape.sizes), len(one.primes(self.parameters)), one.width
        words = math.prod(shape)
        if len(self._memory) < words:
            self._memory = _allocate_aligned(max(words, self._words))
        return self._memory[:words].reshape(shape)

    @property
    def everything(self) -> Slice:
        """All primes and coefficients."""
        return Slice(None, 0, self.ring)

    @property
    def _stride(self) -> int:
        """Words from one vector to the next."""
        return -(-self.block // 8) * 8

    # -- chunks
    # --------------------------------------------------------------------------------------------

    def _chunk_bytes(self, one: Slice) -> int:
        """Return the bytes of all columns of a chunk."""
        return len(self.writer.columns) * 16 * len(one.primes(self.parameters)) * one.width

    def _groups(self, one: Slice) -> list[range]:
        """Group the chunks that are computed at a time: larger groups cause less
        traffic of sums.
        """
        most = min(
            _MAX_CHUNKS_AT_POINTS if self.at_points else _MAX_CHUNKS,
            _SCRATCH // (8 * self.writer.n_shared * self._stride),
        )
        if not (
            self.in_memory or self.holds
        ):  # one group is computed on, one is read, and something is being unpacked
            most = min(most, self.memory_limit // 2 // (3 * self._chunk_bytes(one)))
        first, n_chunks, size = self.chunks.start, len(self.chunks), max(1, most)
        groups = -(-n_chunks // size)
        ends = [first + n_chunks * i // max(1, groups) for i in range(groups + 1)]
        return [range(a, b) for a, b in pairwise(ends)]

    def _reads(
        self, readers: ThreadPoolExecutor, tape: Tape, steps: Sequence[tuple[Slice, range]]
    ) -> list[Future[tuple[Residues, ...]]]:
        """Start reading the chunks of the next step."""
        return [
            readers.submit(self._read, tape, one, chunk)
            for one, chunks in steps
            for chunk in chunks
        ]

    def _read(self, tape: Tape, one: Slice, chunk: int) -> tuple[Residues, ...]:
        """Read the columns of a chunk; whole columns are kept if all chunks fit in memory."""
        if not self.holds or one != self.everything:
            return self.read_checked(tape.columns, chunk, one)
        if chunk not in self._held:
            self._held[chunk] = self.read_checked(tape.columns, chunk, one)
        return self._held[chunk]

    def read_checked(self, loads: Sequence[Step], chunk: int, one: Slice) -> tuple[Residues, ...]:
        """Read a slice of columns, and check that they are ciphertexts."""
        shape, columns = (2, len(one.primes(self.parameters)), one.width), []
        for load, residues in zip(loads, self.loads.read(loads, chunk, one), strict=True):
            if residues.shape != shape:
                raise FileFormatError(
                    f"{self.source.chunk_name(chunk)}: residues of shape {residues.shape}, not "
                    f"{shape}, in column "
                    f"{base_of(load).data}",
                    code="wrong-residue-shape",
                )
            if not hides(residues):
                raise FileFormatError(
                    f"{self.source.chunk_name(chunk)}: column {base_of(load).data} is "
                    "transparent: it hides nothing, and no "
                    "encryption made it",
                    code="transparent-ciphertext",
                )
            columns.append(np.require(residues, np.uint64, ("C", "A")))
        return tuple(columns)

    # -- computing
    # --------------------------------------------------------------------------------------------

    def _compute(
        self,
        pool: ThreadPoolExecutor,
        tape: Tape,
        one: Slice,
        chunks: range,
        columns: tuple[Residues, ...],
        sums: Residues,
    ) -> None:
        """Run a tape over some chunks; the first overwrite the sums, the others are
        added to them.
        """
        scratch: SimpleQueue[NDArray[np.uint64]] = SimpleQueue()
        for buffer in self._scratch_for(tape, len(chunks)):
            scratch.put(buffer)
        primes, accumulators = one.primes(self.parameters), sums.reshape(-1)
        moduli = [self.parameters.data_moduli[prime] for prime in primes]
        run_width = self.ring // tape.n_runs
        first, last = one.start // run_width, (one.start + one.width - 1) // run_width
        constants = [
            [
                tape.constants_modulo(modulus, tape.root(self.ring, modulus, run))
                for run in range(first, last + 1)
            ]
            for modulus in moduli
        ]
        keeps = self.keeps and one == self.everything
        known = keeps and len(self._kept) > 0
        kept = np.empty(0, dtype=np.uint64)
        if keeps:
            kept = self._kept if known else _allocate_aligned(self._kept_words)

        def work(piece: tuple[int, int, int]) -> int:
            prime, start, stop = piece
            shape = (prime, len(moduli), one.width, len(chunks), self.block, start, stop)
            run = (one.start + start) // run_width - first
            code = (tape.words, tape.segments, tape.places, constants[prime][run])
            add, buffer = chunks.start > self.chunks.start, scratch.get()
            try:
                memory = (accumulators, buffer, kept)
                branchings = (tape.branchings,) if len(tape.branchings) else ()
                return _fused.run(
                    self.level,
                    moduli[prime],
                    shape,
                    tape.vectors,
                    add,
                    known,
                    columns,
                    *code,
                    *memory,
                    *branchings,
                )
            finally:
                scratch.put(buffer)

        pieces = self._pieces(len(moduli), one, run_width)
        under_way = [pool.submit(work, piece) for piece in pieces]
        for (prime, _, _), done in zip(pieces, under_way, strict=True):
            bad = done.result()
            if bad >= 0:
                raise self.describe_error(tape, chunks, bad, primes[prime])
        if keeps:
            self._kept = kept

    def _pieces(self, n_primes: int, one: Slice, run_width: int) -> list[tuple[int, int, int]]:
        """Cut the work into primes and ranges of whole blocks, none of them in two runs."""
        width, block = one.width, self.block
        blocks = -(-width // block)
        spans = min(blocks, -(-_PIECES * self.threads // n_primes))
        span = -(-blocks // spans) * block
        inner = (
            range(-one.start % run_width, width, run_width) if run_width < self.ring else range(0)
        )
        starts = sorted({*range(0, width, span), *inner})
        return [(prime, a, b) for prime in range(n_primes) for a, b in pairwise([*starts, width])]

    def _scratch_for(self, tape: Tape, chunks: int) -> list[NDArray[np.uint64]]:
        shared, temporary, local = tape.vectors
        if len(tape.branchings):  # of all sums at once
            shared, local = shared // 2 * 3, sum(tape.sizes)
        words = (chunks * shared + temporary + local) * self._stride + 16
        if not self._scratch or len(self._scratch[0]) < words:
            self._scratch = [np.empty(words, dtype=np.uint64) for _ in range(self.threads)]
        return self._scratch

    def describe_error(self, tape: Tape, chunks: range, index: int, prime: int) -> FileFormatError:
        """Return the error of a column that holds a number which is no residue."""
        chunk, column = divmod(index, len(tape.columns))
        return FileFormatError(
            f"{self.source.chunk_name(chunks[chunk])}: column "
            f"{base_of(tape.columns[column]).data} holds residues that are not "
            f"below prime {prime}: no ciphertext has such",
            code="unreduced-residues",
        )


def _rows_of(source: Source) -> str:
    """Return a text that identifies the rows of a source."""
    known = source.content_id
    if known is None:
        raise ArgumentError(
            "a checkpoint needs rows with a name of their own: those of an encrypted table",
            code="unnamed-rows",
        )
    return known


def _check_sums(tape: Tape, sums: Residues) -> None:
    seconds = np.cumsum([1, *tape.sizes[:-1]])
    if sums[seconds, 0, :8].any(axis=1).all():  # usually a few coefficients tell
        return
    at = 0
    for size in tape.sizes:
        if not hides(sums[at : at + size]):
            raise ArgumentError(NOTHING_HIDDEN, code="sum-cancels")
        at += size


def _allocate_aligned(words: int) -> NDArray[np.uint64]:
    """Allocate memory that begins at a cache line."""
    memory = np.empty(words + 8, dtype=np.uint64)
    skipped = -memory.ctypes.data % 64 // 8
    return memory[skipped : skipped + words]


def hides(residues: Residues) -> bool:
    """Return True if a ciphertext hides its message: not if all but its first polynomial are 0.

    Usually a few coefficients tell.
    """
    return bool(residues[1, 0, :8].any() or residues[1:].any())
