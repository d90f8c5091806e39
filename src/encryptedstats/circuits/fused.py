"""The fused reader: sums over rows of BGV circuits, the whole circuit for one block of coefficients at a time, in C.

What the SEAL reader computes operation by operation, with every intermediate ciphertext going through memory, is here a tape
(see :mod:`encryptedstats.circuits.tape`) that runs over the residues of all columns, prime by prime and block by block, on all
cores. The residues are those that SEAL gives, bit for bit; what follows a sum over rows (modulus switching, relinearising,
packing) is the same code for both readers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from encryptedstats.circuits.expressions import PRODUCT, REPLICATE, RESAMPLE, TOTAL, Expression, fold, in_order
from encryptedstats.circuits.noise import NoiseMachine
from encryptedstats.circuits.tape import Tape, TapeWriter
from encryptedstats.circuits.walk import Strategy
from encryptedstats.crypto.noise import Noise
from encryptedstats.crypto.parameters import Parameters
from encryptedstats.crypto.residues import Residues
from encryptedstats.errors import FileFormatError
from encryptedstats.parallel import cores

try:
    from encryptedstats import _fused
except ImportError:  # built without a C compiler
    _fused = None  # type: ignore[assignment]  # asked for before it is used: see obstacle()

if TYPE_CHECKING:
    from encryptedstats.circuits.seal import Source

MAX_PRIME: Final = 1 << 50
MEMORY_LIMIT: Final = 1 << 30
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
    if any(node.op in (REPLICATE, RESAMPLE) or (node.op == PRODUCT and node.is_total) for node in in_order(outputs)):
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
    advance: Callable[[int], None] = lambda rows: None,
) -> Iterator[tuple[list[Expression], dict[Expression, Sum]]]:
    """Outputs, some at a time, with the sums over rows that they need. The sums are overwritten when the next are asked for.

    ``memory_limit`` bounds the bytes of the sums and of the chunks that are read ahead. Where it is too small for all sums at once,
    the table is read several times. ``advance`` is called with the outputs times rows that are done.
    """
    limit = MEMORY_LIMIT if memory_limit is None else memory_limit
    evaluator = Evaluator(source, workers or cores(), limit)
    totals = list(dict.fromkeys(in_totals(outputs)))
    evaluator.prepare(totals)
    batches = evaluator.batches(outputs)
    with ThreadPoolExecutor(1) as writer:  # writes the next tape while one runs
        ahead = writer.submit(evaluator.tape, list(in_totals(batches[0])))
        noises = writer.submit(sum_noises, totals, source)
        for number, batch in enumerate(batches):
            tape = ahead.result()
            if number + 1 < len(batches):
                ahead = writer.submit(evaluator.tape, list(in_totals(batches[number + 1])))
            residues = evaluator.run(tape, partial(_advance_times, advance, len(batch)))
            yield batch, {total: Sum(value, noises.result()[total]) for total, value in residues.items()}


def _advance_times(advance: Callable[[int], None], times: int, amount: int) -> None:
    advance(times * amount)


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
        self._columns: tuple[Residues, ...] = ()  # from which it did
        self._scratch: list[NDArray[np.uint64]] = []

    # -- what is computed at a time ----------------------------------------------------------------------------------

    def prepare(self, totals: Sequence[Expression]) -> None:
        """Look at all that will be computed."""
        self.writer = TapeWriter(totals, self.parameters.plain_modulus, montgomery=self.level == "ifma")
        self.groups = self._groups()
        # A table of few chunks is prepared once for all batches, which can be small then.
        blocks = -(-self.ring // self.block)
        self._kept_words = len(self.groups[0]) * self.writer.n_shared * self._stride * blocks * self.n_primes
        self.keeps = len(self.groups) == 1 and 8 * self._kept_words <= self.memory_limit // 4
        self._kept, self._columns = np.empty(0, dtype=np.uint64), ()

    def batches(self, outputs: Sequence[Expression]) -> list[list[Expression]]:
        """Outputs in groups whose sums take no more than half of the memory, the rest being for chunks; at least one in each."""
        limit = self.memory_limit * (3 if self.in_memory else 2) // 4
        if self.keeps:
            limit = min(limit, _SMALL_BATCH)
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

    def sums(self, totals: Sequence[Expression]) -> dict[Expression, Residues]:
        """The sums over rows that the totals are, all at once."""
        self.prepare(totals)
        return self.run(self.tape(totals))

    def run(self, tape: Tape, advance: Callable[[int], None] = lambda rows: None) -> dict[Expression, Residues]:
        """The sums over rows that a tape computes."""
        accumulators = self._accumulators(sum(tape.sizes) * self.n_primes * self.ring)
        self._run(tape, accumulators, advance)
        sums, at = {}, 0
        for total, size in zip(tape.totals, tape.sizes, strict=True):
            words = size * self.n_primes * self.ring
            sums[total] = accumulators[at : at + words].reshape(size, self.n_primes, self.ring)
            at += words
            if not _hides(sums[total]):
                raise ValueError(
                    "a sum in this circuit is 0 whatever the table, its terms cancel: leave it out. (Its ciphertext would hide "
                    "nothing, and is not made)"
                )
        return sums

    def _accumulators(self, words: int) -> NDArray[np.uint64]:
        if len(self._memory) < words:
            self._memory = _aligned(max(words, self._words))
        return self._memory[:words]

    @property
    def _stride(self) -> int:
        """Words from one vector to the next."""
        return -(-self.block // 8) * 8

    # -- chunks ------------------------------------------------------------------------------------------------------

    def _groups(self) -> list[range]:
        """The chunks that are computed on at a time: more of them means less traffic of sums."""
        most = min(_MAX_CHUNKS, _SCRATCH // (8 * self.writer.n_shared * self._stride))
        if not self.in_memory:  # there are two groups at a time: one is computed on, one is read
            chunk = len(self.writer.columns) * self.parameters.ciphertext_bytes()
            most = min(most, self.memory_limit // 2 // (2 * chunk))
        n_chunks, size = self.source.layout.n_chunks, max(1, most)
        groups = -(-n_chunks // size)
        ends = [n_chunks * i // max(1, groups) for i in range(groups + 1)]
        return [range(a, b) for a, b in pairwise(ends)]

    def _read(self, tape: Tape, chunks: range) -> tuple[Residues, ...]:
        """The columns of some chunks."""
        if self._columns:
            return self._columns
        shape = (2, self.n_primes, self.ring)
        columns = []
        for chunk in chunks:
            for name in tape.columns:
                residues = self.source.residues(name, chunk)
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

    # -- running -----------------------------------------------------------------------------------------------------

    def _run(self, tape: Tape, accumulators: NDArray[np.uint64], advance: Callable[[int], None]) -> None:
        groups = self.groups
        scratch: SimpleQueue[NDArray[np.uint64]] = SimpleQueue()
        for buffer in self._scratch_for(tape, max(map(len, groups))):
            scratch.put(buffer)
        constants = [tape.constants_modulo(prime) for prime in self.parameters.data_moduli]
        kept, known = self._kept, len(self._kept) > 0
        if self.keeps and not known:
            kept = _aligned(self._kept_words)

        def work(piece: tuple[int, int, int], chunks: range, columns: tuple[Residues, ...]) -> int:
            prime, start, stop = piece
            shape = (prime, self.n_primes, self.ring, len(chunks), self.block, start, stop)
            code = (tape.words, tape.segments, tape.places, constants[prime])
            modulus, add, buffer = self.parameters.data_moduli[prime], chunks[0] > 0, scratch.get()
            try:
                memory = (accumulators, buffer, kept)
                return _fused.run(self.level, modulus, shape, tape.vectors, add, known, columns, *code, *memory)
            finally:
                scratch.put(buffer)

        with ThreadPoolExecutor(self.threads) as pool, ThreadPoolExecutor(1) as reader:
            ahead = reader.submit(self._read, tape, groups[0])
            for index, chunks in enumerate(groups):
                columns = ahead.result()
                if index + 1 < len(groups):
                    ahead = reader.submit(self._read, tape, groups[index + 1])
                pieces = self._pieces()
                under_way = [pool.submit(work, piece, chunks, columns) for piece in pieces]
                for (prime, _, _), done in zip(pieces, under_way, strict=True):
                    bad = done.result()
                    if bad >= 0:
                        raise self._refused(tape, chunks, bad, prime)
                advance(sum(self.source.layout.counts[chunk] for chunk in chunks))
        if self.keeps:
            self._kept, self._columns = kept, columns

    def _pieces(self) -> list[tuple[int, int, int]]:
        """Primes and ranges of coefficients, whole blocks but for the last."""
        blocks = -(-self.ring // self.block)
        spans = min(blocks, -(-_PIECES * self.threads // self.n_primes))
        span = -(-blocks // spans) * self.block
        return [
            (prime, start, min(start + span, self.ring))
            for prime in range(self.n_primes)
            for start in range(0, self.ring, span)
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
    machine = NoiseMachine(source.parameters, with_secret_key=source.with_secret_key)
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
