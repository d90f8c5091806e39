"""The fused reader: sums over rows of BGV circuits, the whole circuit for one block of coefficients at a time, in C.

What the SEAL reader computes operation by operation, with every intermediate ciphertext going through memory, is here a tape
(see :mod:`encryptedstats.circuits.tape`) that runs over the residues of all columns, prime by prime and block by block, on all
cores. The residues are those that SEAL gives, bit for bit; what follows a sum over rows (modulus switching, relinearising,
packing) is the same code for both readers.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from encryptedstats.circuits.expressions import (
    MASK,
    PRODUCT,
    REPLICATE,
    RESAMPLE,
    TOTAL,
    Expression,
    circuit_digest,
    fold,
    in_order,
)
from encryptedstats.circuits.noise import NoiseMachine
from encryptedstats.circuits.slices import (
    CheckpointSums,
    FitIdentity,
    MemorySums,
    Slice,
    SlicedSums,
    TemporarySums,
    slices_of,
)
from encryptedstats.circuits.tape import Tape, TapeWriter
from encryptedstats.circuits.walk import Strategy
from encryptedstats.crypto.noise import Noise
from encryptedstats.crypto.parameters import Parameters
from encryptedstats.crypto.residues import Residues
from encryptedstats.errors import FileFormatError
from encryptedstats.memory import default_limit
from encryptedstats.parallel import cores

try:
    from encryptedstats import _fused
except ImportError:  # built without a C compiler
    _fused = None  # type: ignore[assignment]  # asked for before it is used: see obstacle()

if TYPE_CHECKING:
    from encryptedstats.circuits.seal import Source

MAX_PRIME: Final = 1 << 50
CPU_VARIABLE: Final = "ENCRYPTEDSTATS_CPU"
# Coefficients at a time. Sums of several chunks stay in the nearest cache; those of a single one go to memory, in longer pieces.
BLOCK: Final = 128
BLOCK_OF_ONE: Final = 256
_MAX_CHUNKS: Final = 16  # of one run of the tape; see MAX_CHUNKS in _native/fused.c
_SCRATCH: Final = 2 << 20  # bytes of columns of one block, all chunks: what a core can have of the last level of cache
# Bytes of sums at a time where the columns need not be read again: less of it is not worth the while, more is fresh memory.
_SMALL_BATCH: Final = 128 << 20
_PIECES: Final = 4  # of work for a thread: between them it waits for the interpreter's lock


def arithmetic() -> str | None:
    """The fastest kind of arithmetic here: "ifma", "avx512", "avx2" or "baseline"; None where the extension was not built.

    The environment variable ``ENCRYPTEDSTATS_CPU`` caps it.
    """
    if _fused is None:
        return None
    known, here = ("baseline", "avx2", "avx512", "ifma"), _fused.levels()
    cap = os.environ.get(CPU_VARIABLE) or known[-1]
    if cap not in known:
        raise ValueError(f"{CPU_VARIABLE}={cap!r}: it can be {', '.join(known)}")
    return str(here[min(known.index(cap), len(here) - 1)])


def obstacle(outputs: Sequence[Expression], parameters: Parameters, strategy: Strategy) -> str | None:
    """Why the fused reader cannot compute these outputs; None if it can."""
    if _fused is None:
        return "its extension is not there: the library was installed without a C compiler"
    if parameters.scheme != "bgv":
        return f"it computes BGV ciphertexts, and these are {parameters.scheme.upper()}"
    largest = max(parameters.data_moduli)
    if largest >= MAX_PRIME:
        return f"it computes modulo primes below 2^50, and one of these parameters has {largest.bit_length()} bits"
    if strategy.relinearise:
        return "these parameters carry the circuit only if products are relinearised on the way"
    if any(
        node.op in (REPLICATE, RESAMPLE, MASK) or (node.op == PRODUCT and node.is_total) for node in in_order(outputs)
    ):
        return "the circuit brings totals back into the rows, or rows into other places"
    return None


@dataclass(frozen=True)
class Sum:
    """A sum over all rows: its residues, shape (size, primes, N), as they are before anything is relinearised, and its noise."""

    residues: Residues
    noise: Noise


def sums_in_batches(
    outputs: Sequence[Expression],
    source: Source,
    *,
    workers: int | None = None,
    memory_limit: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    advance: Callable[[float], None] = lambda rows: None,
) -> Iterator[tuple[list[Expression], dict[Expression, Sum]]]:
    """Outputs, some at a time, with the sums over rows that they need. The sums are overwritten when the next are asked for.

    ``memory_limit`` bounds the bytes of the sums and of the chunks that are read ahead. ``advance`` is called with the rows that
    are done; all totals of all rows are done when these are as many as the table has. ``checkpoint`` is where sums are kept, so
    that another process can go on from them: see :mod:`encryptedstats.circuits.slices`.
    """
    limit = default_limit() if memory_limit is None else memory_limit
    evaluator = Evaluator(source, workers or cores(), limit)
    totals = list(dict.fromkeys(in_totals(outputs)))
    evaluator.prepare(totals, hold=checkpoint is None)
    if evaluator.holds:
        yield from _from_memory(evaluator, outputs, totals, advance)
    else:
        yield from _slice_by_slice(evaluator, outputs, totals, checkpoint, advance)


def _from_memory(
    evaluator: Evaluator, outputs: Sequence[Expression], totals: Sequence[Expression], advance: Callable[[float], None]
) -> Iterator[tuple[list[Expression], dict[Expression, Sum]]]:
    """Some outputs after the others: the columns can be read again for each."""
    batches = evaluator.batches(outputs)
    with ThreadPoolExecutor(1) as writer:  # writes the next tape while one runs
        ahead = writer.submit(evaluator.tape, list(in_totals(batches[0])))
        noises = writer.submit(sum_noises, totals, evaluator.source)
        for number, batch in enumerate(batches):
            tape = ahead.result()
            if number + 1 < len(batches):
                ahead = writer.submit(evaluator.tape, list(in_totals(batches[number + 1])))
            residues = evaluator.run(tape, partial(_advance_share, advance, len(batch) / len(outputs)))
            yield batch, {total: Sum(value, noises.result()[total]) for total, value in residues.items()}


def _slice_by_slice(
    evaluator: Evaluator,
    outputs: Sequence[Expression],
    totals: Sequence[Expression],
    checkpoint: str | os.PathLike[str] | None,
    advance: Callable[[float], None],
) -> Iterator[tuple[list[Expression], dict[Expression, Sum]]]:
    """All outputs for one slice of the residues after the other: the table is read once. Then the sums, some at a time."""
    source, tape = evaluator.source, evaluator.tape(totals)
    kept = evaluator.place_for(tape, checkpoint)
    try:
        missing = [number for number in range(len(kept.slices)) if not kept.has(number)]
        advance(source.layout.n_rows * (1 - len(missing) / len(kept.slices)))
        share = partial(_advance_share, advance, 1 / len(kept.slices))
        for number, sums in zip(missing, evaluator.passes(tape, [kept.slices[n] for n in missing], share), strict=True):
            kept.put(number, sums)
        evaluator.release()
        noises = sum_noises(totals, source)
        for batch, found in _joined(evaluator, tape, outputs, kept):
            yield batch, {total: Sum(residues, noises[total]) for total, residues in found.items()}
    finally:
        kept.close()


def _joined(
    evaluator: Evaluator, tape: Tape, outputs: Sequence[Expression], kept: SlicedSums
) -> Iterator[tuple[list[Expression], dict[Expression, Residues]]]:
    """Outputs with their sums put together from all slices, in the order in which these lie there."""
    firsts = dict(zip(tape.totals, np.cumsum([0, *tape.sizes[:-1]]).tolist(), strict=True))
    sizes = dict(zip(tape.totals, tape.sizes, strict=True))
    ordered = sorted(dict.fromkeys(outputs), key=lambda output: min(firsts[total] for total in in_totals([output])))
    for batch in evaluator.batches(ordered, joining=True):
        needed = sorted(set(in_totals(batch)), key=firsts.__getitem__)
        found: dict[Expression, Residues] = {}
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
    """Neighbours that lie side by side, given where each begins and how long it is."""
    cuts = [i for i in range(1, len(places)) if sum(places[i - 1]) != places[i][0]]
    return [range(a, b) for a, b in pairwise([0, *cuts, len(places)])]


def _from_slices(parameters: Parameters, kept: SlicedSums, first: int, count: int) -> Residues:
    """Some polynomials, whole."""
    if len(kept.slices) == 1 and kept.slices[0].prime is None:
        return kept.get(0, first, count)
    residues = np.empty((count, len(parameters.data_moduli), parameters.ring_degree), dtype=np.uint64)
    for number, one in enumerate(kept.slices):
        primes = one.primes(parameters)
        residues[:, primes.start : primes.stop, one.start : one.stop] = kept.get(number, first, count)
    return residues


def _advance_share(advance: Callable[[float], None], share: float, rows: int) -> None:
    advance(share * rows)


class Evaluator:
    """One evaluation: memory that is used again and again, and the chunks of the table one group after the other."""

    def __init__(
        self, source: Source, threads: int, memory_limit: int, *, level: str | None = None, block: int | None = None
    ) -> None:
        self.source, self.threads = source, threads
        self.block = block or (BLOCK if source.layout.n_chunks > 1 else BLOCK_OF_ONE)
        self.level = level or arithmetic() or ""
        self.parameters = source.parameters
        self.ring, self.n_primes = self.parameters.ring_degree, len(self.parameters.data_moduli)
        self.memory_limit = memory_limit
        self.in_memory = bool(getattr(source, "in_memory", False))  # then chunks take no more memory than there is
        self._words = 0  # that the largest batch takes
        self._memory = np.empty(0, dtype=np.uint64)
        self._kept = np.empty(0, dtype=np.uint64)  # what the prologue has computed of all blocks
        self.holds = False  # whether the columns of all chunks are kept
        self._held: dict[int, tuple[Residues, ...]] = {}
        self._scratch: list[NDArray[np.uint64]] = []

    # -- what is computed at a time ----------------------------------------------------------------------------------

    def prepare(self, totals: Sequence[Expression], *, hold: bool = False) -> None:
        """Look at all that will be computed; ``hold``: keep the columns of all chunks, once they are read, if there is memory."""
        self.writer = TapeWriter(totals, self.parameters.plain_modulus, montgomery=self.level == "ifma")
        table = self.source.layout.n_chunks * self._chunk_bytes(self._everything)
        self.holds = hold and (self.in_memory or table <= self.memory_limit // 2)
        self.groups = self._groups(self._everything)
        # A table of few chunks is prepared once for all batches, which can be small then.
        blocks = -(-self.ring // self.block)
        self._kept_words = len(self.groups[0]) * self.writer.n_shared * self._stride * blocks * self.n_primes
        self.keeps = len(self.groups) == 1 and 8 * self._kept_words <= self.memory_limit // 4
        self._kept, self._held = np.empty(0, dtype=np.uint64), {}

    def batches(self, outputs: Sequence[Expression], *, joining: bool = False) -> list[list[Expression]]:
        """Outputs in groups whose sums take no more than their part of the memory; at least one in each.

        ``joining``: sums that are there already, and only put together.
        """
        limit = self.memory_limit * (3 if self.in_memory else 1) // 4
        if self.keeps or joining:  # what is kept of several chunks is more to read for every batch
            limit = min(limit, _SMALL_BATCH * min(2, self.source.layout.n_chunks))
        batches: list[list[Expression]] = []
        held: set[Expression] = set()
        nbytes = limit + 1
        for output in outputs:
            needed = set(in_totals([output]))
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

    def _bytes(self, totals: Iterable[Expression]) -> int:
        return sum(self.parameters.ciphertext_bytes(self.writer.sizes[total.args[0]]) for total in totals)

    def tape(self, totals: Sequence[Expression]) -> Tape:
        """The tape of some of the totals."""
        return self.writer.tape(totals)

    def place_for(self, tape: Tape, checkpoint: str | os.PathLike[str] | None) -> SlicedSums:
        """Where the sums of a tape are kept until all slices are there, and which slices these are."""
        polynomials = sum(tape.sizes)
        nbytes = 8 * polynomials * self.n_primes * self.ring
        width = self._slice_width(polynomials, longest=self._piece_width if checkpoint is not None else self.ring)
        if checkpoint is not None:
            identity = FitIdentity(
                self.parameters.fingerprint, self.source.keys.key_id, _rows_of(self.source), circuit_digest(tape.totals)
            )
            slices = slices_of(self.parameters, width)
            return CheckpointSums(checkpoint, identity, slices, self.parameters, polynomials)
        chunk = self._chunk_bytes(self._everything)
        if nbytes <= self.memory_limit // 2 and 4 * chunk <= self.memory_limit:
            return MemorySums([self._everything])
        slices = slices_of(self.parameters, width)
        return MemorySums(slices) if 2 * nbytes <= self.memory_limit // 2 else TemporarySums(slices)

    def _slice_width(self, polynomials: int, longest: int) -> int:
        """The widest slice whose sums take no more than half of the memory, and whose columns, read ahead, the other half.

        A slice that is narrower than what can be read alone is cut from it, which is then read again for the next.
        """
        width, least = longest, min(self.ring, self.block)
        while width > least:
            chunk = self._chunk_bytes(Slice(0, 0, width))
            if 8 * polynomials * width <= self.memory_limit // 2 and 4 * chunk <= self.memory_limit:
                break
            width //= 2
        return width

    @property
    def _piece_width(self) -> int:
        """Coefficients that can be read without their neighbours."""
        return min(self.ring, int(getattr(self.source, "piece_width", self.ring)))

    # -- running a tape ----------------------------------------------------------------------------------------------

    def sums(self, totals: Sequence[Expression]) -> dict[Expression, Residues]:
        """The sums over rows that the totals are, all at once."""
        self.prepare(totals)
        return self.run(self.tape(totals))

    def run(self, tape: Tape, advance: Callable[[int], None] = lambda rows: None) -> dict[Expression, Residues]:
        """The sums over rows that a tape computes."""
        (found,) = self.passes(tape, [self._everything], advance)
        sums, at = {}, 0
        for total, size in zip(tape.totals, tape.sizes, strict=True):
            sums[total] = found[at : at + size]
            at += size
        return sums

    def passes(
        self, tape: Tape, slices: Sequence[Slice], advance: Callable[[int], None] = lambda rows: None
    ) -> Iterator[Residues]:
        """The sums of a tape for one slice after the other, (polynomials, primes, width), each in the memory of the one before."""
        steps = [(one, chunks) for one in slices for chunks in self._groups(one)]
        with ThreadPoolExecutor(self.threads) as pool, ThreadPoolExecutor(self.threads) as readers:
            ahead = self._reads(readers, tape, steps[:1])
            for index, (one, chunks) in enumerate(steps):
                columns = tuple(column for read in ahead for column in read.result())
                ahead = self._reads(readers, tape, steps[index + 1 : index + 2])
                sums = self._accumulators(tape, one)
                self._compute(pool, tape, one, chunks, columns, sums)
                advance(sum(self.source.layout.counts[chunk] for chunk in chunks))
                if chunks[-1] + 1 == self.source.layout.n_chunks:
                    _check_sums(tape, sums)
                    yield sums

    def release(self) -> None:
        """Give back what the sums took."""
        self._memory = np.empty(0, dtype=np.uint64)

    def _accumulators(self, tape: Tape, one: Slice) -> Residues:
        shape = sum(tape.sizes), len(one.primes(self.parameters)), one.width
        words = math.prod(shape)
        if len(self._memory) < words:
            self._memory = _aligned(max(words, self._words))
        return self._memory[:words].reshape(shape)

    @property
    def _everything(self) -> Slice:
        return Slice(None, 0, self.ring)

    @property
    def _stride(self) -> int:
        """Words from one vector to the next."""
        return -(-self.block // 8) * 8

    # -- chunks ------------------------------------------------------------------------------------------------------

    def _chunk_bytes(self, one: Slice) -> int:
        """Of all columns of a chunk."""
        return len(self.writer.columns) * 16 * len(one.primes(self.parameters)) * one.width

    def _groups(self, one: Slice) -> list[range]:
        """The chunks that are computed on at a time: more of them means less traffic of sums."""
        most = min(_MAX_CHUNKS, _SCRATCH // (8 * self.writer.n_shared * self._stride))
        if not (self.in_memory or self.holds):  # one group is computed on, one is read, and something is being unpacked
            most = min(most, self.memory_limit // 2 // (3 * self._chunk_bytes(one)))
        n_chunks, size = self.source.layout.n_chunks, max(1, most)
        groups = -(-n_chunks // size)
        ends = [n_chunks * i // max(1, groups) for i in range(groups + 1)]
        return [range(a, b) for a, b in pairwise(ends)]

    def _reads(
        self, readers: ThreadPoolExecutor, tape: Tape, steps: Sequence[tuple[Slice, range]]
    ) -> list[Future[tuple[Residues, ...]]]:
        """The chunks of the next step, under way."""
        return [readers.submit(self._read, tape, one, chunk) for one, chunks in steps for chunk in chunks]

    def _read(self, tape: Tape, one: Slice, chunk: int) -> tuple[Residues, ...]:
        """The columns of a chunk: of the whole, kept where there is memory for all chunks."""
        if not self.holds or one != self._everything:
            return self._checked(tape.columns, chunk, one)
        if chunk not in self._held:
            self._held[chunk] = self._checked(tape.columns, chunk, one)
        return self._held[chunk]

    def _checked(self, names: Sequence[str], chunk: int, one: Slice) -> tuple[Residues, ...]:
        shape, columns = (2, len(one.primes(self.parameters)), one.width), []
        for name, residues in zip(names, read_slice(self.source, names, chunk, one), strict=True):
            if residues.shape != shape:
                raise FileFormatError(
                    f"{_place(self.source, chunk)}: residues of shape {residues.shape}, not {shape}, in column {name}"
                )
            if not _hides(residues):
                raise FileFormatError(
                    f"{_place(self.source, chunk)}: column {name} is transparent: it hides nothing, and no encryption made it"
                )
            columns.append(np.require(residues, np.uint64, ("C", "A")))
        return tuple(columns)

    # -- computing ---------------------------------------------------------------------------------------------------

    def _compute(
        self,
        pool: ThreadPoolExecutor,
        tape: Tape,
        one: Slice,
        chunks: range,
        columns: tuple[Residues, ...],
        sums: Residues,
    ) -> None:
        """A tape over some chunks: written over the sums for the first of them, added to them for the others."""
        scratch: SimpleQueue[NDArray[np.uint64]] = SimpleQueue()
        for buffer in self._scratch_for(tape, len(chunks)):
            scratch.put(buffer)
        primes, accumulators = one.primes(self.parameters), sums.reshape(-1)
        moduli = [self.parameters.data_moduli[prime] for prime in primes]
        constants = [tape.constants_modulo(modulus) for modulus in moduli]
        keeps = self.keeps and one == self._everything
        known = keeps and len(self._kept) > 0
        kept = np.empty(0, dtype=np.uint64)
        if keeps:
            kept = self._kept if known else _aligned(self._kept_words)

        def work(piece: tuple[int, int, int]) -> int:
            prime, start, stop = piece
            shape = (prime, len(moduli), one.width, len(chunks), self.block, start, stop)
            code = (tape.words, tape.segments, tape.places, constants[prime])
            add, buffer = chunks[0] > 0, scratch.get()
            try:
                memory = (accumulators, buffer, kept)
                return _fused.run(self.level, moduli[prime], shape, tape.vectors, add, known, columns, *code, *memory)
            finally:
                scratch.put(buffer)

        pieces = self._pieces(len(moduli), one.width)
        under_way = [pool.submit(work, piece) for piece in pieces]
        for (prime, _, _), done in zip(pieces, under_way, strict=True):
            bad = done.result()
            if bad >= 0:
                raise self._refused(tape, chunks, bad, primes[prime])
        if keeps:
            self._kept = kept

    def _pieces(self, n_primes: int, width: int) -> list[tuple[int, int, int]]:
        """Primes and ranges of coefficients, whole blocks but for the last."""
        blocks = -(-width // self.block)
        spans = min(blocks, -(-_PIECES * self.threads // n_primes))
        span = -(-blocks // spans) * self.block
        return [
            (prime, start, min(start + span, width)) for prime in range(n_primes) for start in range(0, width, span)
        ]

    def _scratch_for(self, tape: Tape, chunks: int) -> list[NDArray[np.uint64]]:
        shared, temporary, local = tape.vectors
        words = (chunks * shared + temporary + local) * self._stride + 16
        if not self._scratch or len(self._scratch[0]) < words:
            self._scratch = [np.empty(words, dtype=np.uint64) for _ in range(self.threads)]
        return self._scratch

    def _refused(self, tape: Tape, chunks: range, index: int, prime: int) -> FileFormatError:
        chunk, column = divmod(index, len(tape.columns))
        return FileFormatError(
            f"{_place(self.source, chunks[chunk])}: column {tape.columns[column]} holds residues that are not below prime {prime}: "
            "no ciphertext has such"
        )


def in_totals(outputs: Iterable[Expression]) -> Iterator[Expression]:
    """The sums over rows that outputs are computed from."""
    stack = list(outputs)[::-1]
    while stack:
        node = stack.pop()
        if node.op == TOTAL:
            yield node
        else:
            stack.extend(reversed(node.args))


def sum_noises(totals: Sequence[Expression], source: Source) -> dict[Expression, Noise]:
    """The bound of every total, chunk after chunk added up as the SEAL reader does."""
    known = getattr(source, "noises", None)
    machine = NoiseMachine(source.parameters, with_secret_key=source.with_secret_key, known=known)
    combined: dict[Any, Noise] = {}
    summed: dict[Noise, Noise] = {}

    def rule(node: Expression, args: list[Noise]) -> Noise:
        if not args:
            return machine.column(node.data, 0)
        if node.op == PRODUCT:
            return machine.multiply(*args)
        coefficients, constant = node.data
        key = (coefficients, tuple(args), bool(constant))
        if key not in combined:
            combined[key] = machine.add_up(list(zip(coefficients, args, strict=True)), constant)
        return combined[key]

    rows = fold([total.args[0] for total in totals], rule)
    for noise in dict.fromkeys(rows[total.args[0]] for total in totals):
        summed[noise] = noise
        for _ in range(1, source.layout.n_chunks):
            summed[noise] = machine.add_up([(1, summed[noise]), (1, noise)], 0)
    return {total: summed[rows[total.args[0]]] for total in totals}


def read_slice(source: Source, names: Sequence[str], chunk: int, one: Slice) -> Sequence[Residues]:
    """A slice of some columns of a chunk, each (2, primes, width): without the rest where the source can read so."""
    pieces: Callable[..., Sequence[Residues]] | None = getattr(source, "pieces", None)
    if pieces is not None:
        return pieces(names, chunk, one.prime, one.start, one.stop)
    primes = one.primes(source.parameters)
    if one == Slice(None, 0, source.parameters.ring_degree):
        return [source.residues(name, chunk) for name in names]
    return [source.residues(name, chunk)[:, primes.start : primes.stop, one.start : one.stop] for name in names]


def _rows_of(source: Source) -> str:
    """What tells the rows of a source from all others."""
    known: str | None = getattr(source, "content_id", None)
    if known is None:
        raise ValueError("a checkpoint needs rows with a name of their own: those of an encrypted table")
    return known


def _check_sums(tape: Tape, sums: Residues) -> None:
    at = 0
    for size in tape.sizes:
        if not _hides(sums[at : at + size]):
            raise ValueError(
                "a sum in this circuit is 0 whatever the table, its terms cancel: leave it out. (Its ciphertext would hide "
                "nothing, and is not made)"
            )
        at += size


def _aligned(words: int) -> NDArray[np.uint64]:
    """Memory that begins with a cache line."""
    memory = np.empty(words + 8, dtype=np.uint64)
    skipped = -memory.ctypes.data % 64 // 8
    return memory[skipped : skipped + words]


def _hides(residues: Residues) -> bool:
    """Whether a ciphertext hides anything: not if all but its first polynomial are 0. A few coefficients tell, as a rule."""
    return bool(residues[1, 0, :8].any() or residues[1:].any())


def _place(source: Source, chunk: int) -> str:
    """What errors call a chunk: tables have names for their blocks."""
    named: Callable[[int], str] | None = getattr(source, "chunk_name", None)
    return f"chunk {chunk}" if named is None else named(chunk)
