"""Sums over rows on a GPU: the tapes of the native device, one block of threads for a segment and
some coefficients.

Columns and tapes stay on the GPU from one evaluation to the next, so a program that runs again on a
table starts at once.
"""

from __future__ import annotations

import ctypes
import math
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from encryptedstats.circuits.devices.branchings import branching_words, branchings_of
from encryptedstats.circuits.devices.cuda.gpu import Array, Gpu
from encryptedstats.circuits.devices.cuda.ring import GpuRing
from encryptedstats.circuits.devices.native.sums import Loads, SumsEvaluator, base_of, hides
from encryptedstats.circuits.devices.native.tape import (
    ADD_OP,
    NONE,
    PRODUCT_OP,
    Tape,
    TapeWriter,
    is_sum_of_loads,
)
from encryptedstats.circuits.devices.steps import NOTHING_HIDDEN
from encryptedstats.circuits.program import ADD_UP, COLUMN, EXPAND, SUM, Step
from encryptedstats.circuits.slices import Slice
from encryptedstats.crypto.residues import Residues
from encryptedstats.errors import ArgumentError, FileFormatError

_THREADS: Final = 128
_MAX_CODE: Final = 4096  # numbers of a segment that a block keeps at hand
_LANES: Final = 4  # coefficients, or chunks, that a thread works on at a time
_RESERVED: Final = 1 << 10  # bytes of a block's memory that the driver takes
_TOGETHER: Final = 4  # trees of a block: some, as those of two classes, have the same factors
_LOCAL: Final = 30  # sums over chunks that a block keeps: a tree that has more is cut
_WORK_BYTES: Final = 4 << 30  # of intermediate results of modulus switching
_PROLOGUE_BYTES: Final = (
    8 << 30
)  # of what the segments of a tape share, for all chunks that are computed on at a time
_MAX_CHUNKS: Final = 1 << 12
_STREAMS, _LEAST_STREAMED = 8, 4  # groups that a table is brought in, and chunks that are worth one


class _RowsArguments(ctypes.Structure):
    """The struct of kernels.cu."""

    _fields_ = (
        *(
            (name, ctypes.c_uint64)
            for name in ("primes", "tape", "segments", "totals", "constants", "columns")
        ),
        *((name, ctypes.c_uint64) for name in ("shared", "out", "wrong", "scratch")),
        *((name, ctypes.c_int64) for name in ("width", "n_scratch", "start", "run_width")),
        *(
            (name, ctypes.c_int)
            for name in ("n_primes", "n_columns", "n_constants", "n_shared", "n_temporary")
        ),
        *((name, ctypes.c_int) for name in ("n_chunks", "first_prime", "add", "n_code", "n_runs")),
    )


class Columns:
    """The columns of some chunks that a tape loads, on the GPU."""

    def __init__(self, gpu: Gpu, chunks: range, columns: Sequence[Sequence[Array]]) -> None:
        self.chunks, self._held = chunks, columns
        found = [column.pointer for some in columns for column in some]
        self.pointers = gpu.upload(np.array(found or [0], dtype=np.uint64))


class Tables:
    """Columns that stay on a GPU, by table, name, level and chunk; the least recently used are
    evicted.
    """

    def __init__(self) -> None:
        self._tables: dict[str, dict[Any, Array]] = {}

    def of(self, content: str, most: int) -> dict[Any, Array]:
        """Return the columns of one table, which can grow, with at most so many bytes of other
        tables.
        """
        found = self._tables.pop(content, {})
        while self._tables and sum(self._bytes(table) for table in self._tables.values()) > most:
            del self._tables[next(iter(self._tables))]
        self._tables[content] = found
        return found

    def __contains__(self, content: str) -> bool:
        return content in self._tables

    @staticmethod
    def _bytes(table: dict[Any, Array]) -> int:
        return sum(8 * column.words for column in table.values())


@dataclass(frozen=True)
class Sums:
    """Sums on the GPU, (polynomials, primes, N), and what must be checked before they are used."""

    values: Array
    wrong: Array  # for every group of chunks the first column that is no ciphertext
    groups: list[range]
    hidden: Array  # for every total some bits of it


@dataclass(frozen=True)
class Parts:
    """The products that interleaved totals add up, each with a sum of its own.

    Attributes
    ----------
    sums : tuple of Step
        One for each product.
    of_totals : sequence of sequences of int
        Numbers of the sums that each total adds up.
    sizes : tuple of int
        Polynomials of each total.
    """

    sums: tuple[Step, ...]
    of_totals: tuple[tuple[int, ...], ...]
    sizes: tuple[int, ...]

    @property
    def components(self) -> dict[Step, int]:
        """Where the polynomials of each sum begin."""
        firsts = np.cumsum([0, *(one.size for one in self.sums)]).tolist()
        return dict(zip(self.sums, firsts, strict=False))

    @property
    def n_components(self) -> int:
        """All polynomials."""
        return sum(one.size for one in self.sums)

    def words(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return where the polynomials begin that each polynomial of the totals adds
        up, and these.
        """
        components, places, ends = self.components, list[int](), [0]
        for numbers, size in zip(self.of_totals, self.sizes, strict=True):
            for k in range(size):
                added = [self.sums[number] for number in numbers if self.sums[number].size > k]
                places += [components[one] + k for one in added]
                ends.append(len(places))
        return np.array(ends, dtype=np.int32), np.array([*places, 0], dtype=np.int32)


def parts_of(totals: Sequence[Step]) -> Parts | None:
    """Return the products that interleaved totals add up; None if totals are no such sums."""
    sums: dict[Step, Step] = {}
    of_totals = []
    for total in totals:
        row = total.args[0]
        plain = row.op == ADD_UP and not row.data[1] and set(row.data[0]) == {1}
        if not plain or is_sum_of_loads(row):
            return None
        for arg in row.args:
            sums.setdefault(arg, Step(SUM, (arg,), None, arg.noise, is_total=True))
        of_totals.append(row.args)
    numbers = {arg: number for number, arg in enumerate(sums)}
    return Parts(
        tuple(sums.values()),
        tuple(tuple(numbers[arg] for arg in args) for args in of_totals),
        tuple(total.size for total in totals),
    )


class GpuTape:
    """A tape with its constants on the GPU; for trees it has the prologue and the totals."""

    def __init__(
        self,
        tape: Tape,
        ring: GpuRing,
        branchings: np.ndarray | None = None,
        parts: Parts | None = None,
    ) -> None:
        self.tape, gpu = tape, ring.gpu
        self.branchings = None if branchings is None else gpu.upload(branchings)
        self.n_branchings = 0 if branchings is None else len(branchings)
        self.parts = parts
        self.gathered = [] if parts is None else [gpu.upload(words) for words in parts.words()]
        # Instructions say where sums go: among the local ones of a segment, or, of a single chunk,
        # in memory.
        self.local, self.words = (gpu.upload(_with_totals(tape, of)) for of in (1, 2))
        self.segments = gpu.upload(tape.segments)
        self.totals = gpu.upload(tape.places)
        moduli = ring.moduli[:-1]
        constants = [
            tape.constants_modulo(p, tape.root(ring.n, p, run))
            for p in moduli
            for run in range(tape.n_runs)
        ]
        self.constants = gpu.upload(np.concatenate([*constants, np.zeros(1, dtype=np.uint64)]))
        self.firsts = dict(zip(tape.totals, tape.places[:, 2].tolist(), strict=True))
        longest = int((tape.segments[1:, 1] - tape.segments[1:, 0]).max(initial=0))
        self.code = -(-longest // 2) if longest <= _MAX_CODE else 0  # words of a block's memory


class CudaEvaluator(SumsEvaluator):
    """Sums of tapes on a GPU.

    For slices of a table columns and sums lie in memory, as checkpoints need.
    """

    def __init__(self, loads: Loads, threads: int, memory_limit: int, ring: GpuRing) -> None:
        super().__init__(loads, threads, memory_limit, level=ring.arithmetic)
        self.on_gpu, self.gpu = ring, ring.gpu
        self.most_vectors = _LOCAL if self.layout.n_chunks > 1 else self.most_vectors

    def compile_tape(self, totals: Sequence[Step]) -> GpuTape:
        """Return all these sums as trees, which keep nothing in memory but the sums, or else as a
        tape.
        """
        totals = tuple(dict.fromkeys(totals))
        branchings, parts = branchings_of(totals), None
        if branchings is None:
            parts = parts_of(totals)
            branchings = None if parts is None else branchings_of(parts.sums)
        if branchings is None:
            self.prepare(totals)
            return GpuTape(self.tape(totals), self.on_gpu)
        self.prepare(totals, share_all=True)
        tape = _of_branchings(self.tape(()), totals)
        places = {step: place for (step, _), place in self.writer.shared.items()}
        firsts = dict(zip(tape.totals, tape.places[:, 2].tolist(), strict=True))
        components = firsts if parts is None else parts.components
        words = branching_words(branchings, places, components)
        return GpuTape(tape, self.on_gpu, words, parts)

    def prologue_bytes(self, writer: TapeWriter) -> int:
        """Return the bytes for one chunk."""
        return 8 * writer.n_shared * self.n_primes * self.ring

    def sums_on_gpu(self, made: GpuTape, columns: Iterable[Columns]) -> Sums:
        """Start the sums of a tape over groups of columns; they must still be checked."""
        tape, shape, groups = (
            made.tape,
            (sum(made.tape.sizes), self.n_primes, self.ring),
            list[range](),
        )
        wrong = self.gpu.empty(max(1, self.layout.n_chunks))
        sums = Sums(self.gpu.empty(*shape), wrong, groups, self.gpu.empty(len(tape.totals)))
        self.gpu.clear(sums.wrong, 0xFF)
        parts = sums.values
        if made.parts is not None:
            parts = self.gpu.empty(made.parts.n_components, self.n_primes, self.ring)
        for some in columns:
            number = len(groups)
            groups.append(some.chunks)
            whole = self.everything
            self._run(made, some, parts, wrong[number], 0, whole, self.n_primes, add=number > 0)
        if made.parts is not None:
            self._gather(made, parts, sums.values)
        count, apart = len(tape.totals), ctypes.c_int64(self.n_primes * self.ring)
        pointers = [
            ctypes.c_uint64(array.pointer) for array in (sums.values, made.totals, sums.hidden)
        ]
        self.gpu.launch(
            "hidden", (-(-count // 128), 1, 1), 128, (*pointers, apart, ctypes.c_int(count))
        )
        return sums

    def _gather(self, made: GpuTape, parts: Array, sums: Array) -> None:
        """Add up the parts of interleaved totals."""
        arrays = (self.on_gpu.primes, parts, sums, *made.gathered)
        grid = (-(-self.ring // _THREADS), self.n_primes, len(sums))
        self.gpu.launch(
            "gathered",
            grid,
            _THREADS,
            (
                *(ctypes.c_uint64(array.pointer) for array in arrays),
                ctypes.c_int64(self.ring),
                ctypes.c_int(self.n_primes),
            ),
        )

    def check(self, made: GpuTape, sums: Sums) -> None:
        """Refuse columns that are none, and sums that are 0 whatever the table."""
        for chunks, found in zip(sums.groups, self.gpu.download(sums.wrong).tolist(), strict=False):
            self._refuse(made.tape, chunks, found, range(self.n_primes))
        for number in np.flatnonzero(self.gpu.download(sums.hidden) == 0).tolist():
            size, _, component = made.tape.places[number].tolist()
            whole = [self.gpu.download(sums.values[component + k]) for k in range(size)]
            if not hides(np.stack(whole)):
                raise ArgumentError(NOTHING_HIDDEN, code="sum-cancels")

    def _refuse(self, tape: Tape, chunks: range, found: int, primes: range) -> None:
        found &= 0xFFFFFFFF
        if found != 0xFFFFFFFF:
            index, prime = divmod(found, len(primes))
            raise self.describe_error(tape, chunks, index, primes[prime])

    def _run(
        self,
        made: GpuTape,
        columns: Columns,
        out: Array,
        wrong: Array,
        first_prime: int,
        one: Slice,
        primes: int,
        *,
        add: bool,
    ) -> None:
        gpu, tape, chunks, kind = self.gpu, made.tape, columns.chunks, self.on_gpu.arithmetic
        width, n_runs = one.width, made.tape.n_runs
        shared_vectors, temporary, local = tape.vectors
        shared = gpu.empty(len(chunks), shared_vectors, primes, width)
        n_constants, n_columns = len(tape.constants), len(tape.columns)
        many = len(chunks) > 1 or add
        words = made.local if many else made.words
        each = temporary * _LANES + (local if many else 0)
        threads = _block(each, made.code, gpu.shared_bytes)
        grid = (
            len(tape.segments) - 1,
            -(-width // (threads if many else threads * _LANES)),
            primes,
        )
        fits = 8 * (made.code + each * threads) <= gpu.shared_bytes
        scratch = None if fits else gpu.empty(math.prod(grid), each, threads)
        rows = _RowsArguments(
            self.on_gpu.primes.pointer, words.pointer, made.segments.pointer, made.totals.pointer,
            made.constants.pointer + 8 * n_constants * n_runs * first_prime,
            columns.pointers.pointer, shared.pointer, out.pointer, wrong.pointer,
            0 if scratch is None else scratch.pointer, width, each, one.start,
            self.ring // n_runs, primes, n_columns, n_constants, shared_vectors, temporary,
            len(chunks), first_prime, int(add), made.code, n_runs,
        )  # fmt: skip
        gpu.launch(
            f"prologue_{kind}", (-(-width // _THREADS), primes, len(chunks)), _THREADS, (rows,)
        )
        if made.branchings is not None:
            grid = (
                -(-made.n_branchings // _TOGETHER),
                -(-width // (_THREADS // _TOGETHER)),
                primes,
            )
            counts = ctypes.c_int(made.n_branchings), ctypes.c_int(_TOGETHER)
            name = f"branchings_{'' if many else 'one_'}{kind}"
            gpu.launch(
                name, grid, _THREADS, (rows, ctypes.c_uint64(made.branchings.pointer), *counts)
            )
            return
        at_hand = 8 * (made.code + (each * threads if fits else 0))
        name = f"{'four' if many else 'one'}{'' if fits else '_spilled'}_{kind}"
        gpu.launch(name, grid, threads, (rows,), shared=at_hand)

    # -- slices, in memory
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
        self.gpu.enter()
        made = GpuTape(tape, self.on_gpu)
        primes, n_columns = one.primes(self.parameters), len(tape.columns)
        there = [self.gpu.upload(column) for column in columns]
        by_chunk = [there[i * n_columns : (i + 1) * n_columns] for i in range(len(chunks))]
        out, wrong = self.gpu.empty(*sums.shape), self.gpu.empty(1)
        self.gpu.clear(wrong, 0xFF)
        self._run(
            made,
            Columns(self.gpu, chunks, by_chunk),
            out,
            wrong,
            primes.start,
            one,
            len(primes),
            add=False,
        )
        self._refuse(tape, chunks, int(self.gpu.download(wrong)[0]), primes)
        found = self.gpu.download(out)
        if chunks.start == self.chunks.start:
            sums[:] = found
            return
        for number, prime in enumerate(primes):
            modulus = np.uint64(self.parameters.data_moduli[prime])
            total = sums[:, number] + found[:, number]
            sums[:, number] = np.where(total >= modulus, total - modulus, total)

    # -- columns
    # --------------------------------------------------------------------------------------------

    def has_all(self, tape: Tape, held: dict[Any, Array]) -> bool:
        """Return True if no column has to be uploaded."""
        return not any(self._missing(tape, chunk, held) for chunk in self.chunks)

    def bytes_on_gpu(self, made: GpuTape) -> tuple[int, int, int]:
        """Return the bytes of sums and results; of all columns and shared values; and of the fewest
        chunks.
        """
        polynomial, n_chunks = 8 * self.n_primes * self.ring, len(self.chunks)
        columns, shared = 2 * len(made.tape.columns) * polynomial, self.prologue_bytes(self.writer)
        whole = columns * n_chunks + min(_PROLOGUE_BYTES, shared * n_chunks)
        few = min(n_chunks, _LEAST_STREAMED) * (columns + shared)
        n_sums = sum(made.tape.sizes) + (0 if made.parts is None else made.parts.n_components)
        return (
            2 * n_sums * polynomial + min(self.gpu.memory()[1] // 16, _WORK_BYTES),
            whole,
            few,
        )

    def groups_on_gpu(
        self, tape: Tape, held: dict[Any, Array] | None, room: int
    ) -> Iterator[Columns]:
        """Yield the columns of a tape in groups of chunks, uploading the next while the GPU
        computes.

        If all is on the GPU there is one group, as far as there is room for shared values. Without
        ``held`` columns do not stay.
        """
        chunks = self.chunks
        missing = {chunk: self._missing(tape, chunk, held or {}) for chunk in chunks}
        each = self.prologue_bytes(self.writer)
        if held is None:
            most = room // (each + 16 * len(tape.columns) * self.n_primes * self.ring)
        else:
            most = min(_MAX_CHUNKS, _PROLOGUE_BYTES // max(1, each))
        if any(missing.values()):
            most = min(most, max(_LEAST_STREAMED, -(-len(chunks) // _STREAMS)))
        with closing(self._read_ahead(missing)) as read:
            for group in _pieces(chunks, max(1, most)):
                into = {} if held is None else held
                found = [
                    self._columns_on_gpu(tape, chunk, into, missing[chunk], next(read))
                    for chunk in group
                ]
                yield Columns(self.gpu, group, found)

    def _read_ahead(
        self, missing: dict[int, list[Step]]
    ) -> Generator[tuple[Residues, ...], None, None]:
        """Yield the columns of one chunk after the other; threads read stored chunks ahead."""
        bytes_of_chunk = max(1, len(self.writer.columns) * 16 * self.n_primes * self.ring)
        ahead = (
            0 if self.in_memory else min(2 * self.threads, self.memory_limit // 2 // bytes_of_chunk)
        )
        with ThreadPoolExecutor(max(1, min(self.threads, ahead))) as pool:
            under_way: deque[Future[tuple[Residues, ...]]] = deque()
            for chunk, steps in missing.items():
                if ahead < 2 or not steps:
                    yield from [one.result() for one in under_way]
                    under_way.clear()
                    yield self.read_checked(steps, chunk, self.everything) if steps else ()
                    continue
                under_way.append(pool.submit(self.read_checked, steps, chunk, self.everything))
                if len(under_way) > ahead:
                    yield under_way.popleft().result()
            while under_way:
                yield under_way.popleft().result()

    def _missing(self, tape: Tape, chunk: int, held: dict[Any, Array]) -> list[Step]:
        return [
            step
            for step in tape.columns
            if (base_of(step).op == COLUMN and _name(step, self.loads, chunk) not in held)
            or (base_of(step).op != COLUMN and not _is_there(step, self.loads))
        ]

    def _columns_on_gpu(
        self,
        tape: Tape,
        chunk: int,
        held: dict[Any, Array],
        missing: Sequence[Step],
        residues: Sequence[Residues],
    ) -> list[Array]:
        """Return the columns of a chunk that a tape loads.

        Columns stay in ``held``, and packed totals may be on the GPU already.
        """
        read = dict(zip(missing, self.gpu.upload_together(residues), strict=True))
        found = []
        for step in tape.columns:
            if base_of(step).op == COLUMN:
                name = _name(step, self.loads, chunk)
                if name not in held:
                    held[name] = read[step]
                found.append(held[name])
            elif step in read:
                found.append(read[step])
            else:
                column: Any = self.loads.expanded[step]
                if column.shape != (2, self.n_primes, self.ring):
                    raise FileFormatError(
                        f"a given total of shape {column.shape}", code="wrong-residue-shape"
                    )
                found.append(column)
        return found


def _of_branchings(tape: Tape, totals: Sequence[Step]) -> Tape:
    """Return a tape of nothing but a prologue, whose totals are computed by trees."""
    totals = tuple(dict.fromkeys(totals))
    sizes = tuple(total.size for total in totals)
    places = np.array([sizes, [0] * len(sizes), np.cumsum([0, *sizes[:-1]])], dtype=np.int32).T
    return replace(tape, totals=totals, sizes=sizes, places=np.ascontiguousarray(places))


def _pieces(chunks: range, size: int) -> list[range]:
    return [range(at, min(at + size, chunks.stop)) for at in range(chunks.start, chunks.stop, size)]


def _with_totals(tape: Tape, of: int) -> np.ndarray:
    """Return the words with a fact about each total in place of its number."""
    words, facts = tape.words.tolist(), tape.places[:, of].tolist()
    at, end = int(tape.segments[0, 1]), len(words)
    while at < end:
        if words[at] == PRODUCT_OP:
            words[at + 3] = facts[words[at + 3]] if words[at + 3] >= 0 else NONE
            at += 8
        elif words[at] == ADD_OP:
            words[at + 1] = facts[words[at + 1]]
            at += 4
        else:
            at += 5 + 3 * words[at + 4]
    return np.array(words, dtype=np.int32)


def _block(words: int, code: int, shared_bytes: int) -> int:
    """Return the number of threads in a block that lets the GPU run the most at a time."""

    def at_once(threads: int) -> int:
        return (shared_bytes + _RESERVED) // (_RESERVED + 8 * (code + words * threads)) * threads

    return max(
        (_THREADS, 64, 32), key=lambda threads: min(at_once(threads), 3 * _THREADS)
    )  # all, where none has room


def _name(step: Step, loads: Loads, chunk: int) -> tuple[Any, ...]:
    return base_of(step).data, loads.level, chunk


def _is_there(step: Step, loads: Loads) -> bool:
    return step.op == EXPAND and isinstance(loads.expanded[step], Array)
