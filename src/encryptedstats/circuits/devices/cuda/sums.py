"""Sums over rows on a card: the tapes of the native device, one block of threads for a segment and some coefficients.

Columns stay on the card from one evaluation to the next, and so do tapes: a program that is run again on a table starts at once.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from encryptedstats.circuits.devices.cuda.card import Array, Card
from encryptedstats.circuits.devices.cuda.ring import RingOnCard
from encryptedstats.circuits.devices.native.sums import NOTHING_HIDDEN, Evaluator, Loads, base_of, hides
from encryptedstats.circuits.devices.native.tape import ADD_OP, NONE, PRODUCT_OP, Tape, TapeWriter
from encryptedstats.circuits.program import COLUMN, EXPAND, Step
from encryptedstats.circuits.slices import Slice
from encryptedstats.crypto.residues import Residues
from encryptedstats.errors import FileFormatError

_THREADS: Final = 128
_MAX_CODE: Final = 4096  # numbers of a segment that a block keeps at hand
_LANES: Final = 4  # coefficients, or chunks, that a thread works on at a time
_RESERVED: Final = 1 << 10  # bytes of a block's memory that the driver takes
_LOCAL: Final = 30  # sums over chunks that a block keeps: a tree that has more is cut
_PROLOGUE_BYTES: Final = 8 << 30  # of what the segments of a tape share, for all chunks that are computed on at a time
_MAX_CHUNKS: Final = 1 << 12


class _Rows(ctypes.Structure):
    """As in kernels.cu."""

    _fields_ = (
        *((name, ctypes.c_uint64) for name in ("primes", "tape", "segments", "totals", "constants", "columns")),
        *((name, ctypes.c_uint64) for name in ("shared", "out", "wrong", "scratch")),
        *((name, ctypes.c_int64) for name in ("width", "n_scratch")),
        *((name, ctypes.c_int) for name in ("n_primes", "n_columns", "n_constants", "n_shared", "n_temporary")),
        *((name, ctypes.c_int) for name in ("n_chunks", "first_prime", "add", "n_code")),
    )


class Columns:
    """What a tape loads of some chunks, on the card."""

    def __init__(self, card: Card, columns: Sequence[Sequence[Array]]) -> None:
        self.chunks, self._held = len(columns), columns
        found = [column.pointer for some in columns for column in some]
        self.pointers = card.upload(np.array(found or [0], dtype=np.uint64))


@dataclass(frozen=True)
class Sums:
    """Sums on the card, (polynomials, primes, N), and what is to be looked at before they are used."""

    values: Array
    wrong: Array  # for every group of chunks the first column that is no ciphertext
    groups: list[range]
    hidden: Array  # for every total some bits of it


class TapeOnCard:
    """A tape with its constants where the kernels read them."""

    def __init__(self, tape: Tape, ring: RingOnCard) -> None:
        self.tape, card = tape, ring.card
        # Instructions say where sums go: among the local ones of a segment, or, of a single chunk, in memory.
        self.local, self.words = (card.upload(_with_totals(tape, of)) for of in (1, 2))
        self.segments = card.upload(tape.segments)
        self.totals = card.upload(tape.places)
        moduli = ring.moduli[:-1]
        constants = [tape.constants_modulo(p) for p in moduli]
        self.constants = card.upload(np.concatenate([*constants, np.zeros(1, dtype=np.uint64)]))
        self.firsts = dict(zip(tape.totals, tape.places[:, 2].tolist(), strict=True))
        longest = int((tape.segments[1:, 1] - tape.segments[1:, 0]).max(initial=0))
        self.code = -(-longest // 2) if longest <= _MAX_CODE else 0  # words of a block's memory


class CudaEvaluator(Evaluator):
    """Sums of tapes on a card; of slices of a table too, whose columns and sums lie in memory, as checkpoints want them."""

    def __init__(self, loads: Loads, threads: int, memory_limit: int, ring: RingOnCard) -> None:
        super().__init__(loads, threads, memory_limit, level=ring.arithmetic)
        self.on_card, self.card = ring, ring.card
        self.most_vectors = _LOCAL if self.layout.n_chunks > 1 else self.most_vectors

    def prologue_bytes(self, writer: TapeWriter) -> int:
        """Of one chunk."""
        return 8 * writer.n_shared * self.n_primes * self.ring

    def sums_on_card(self, made: TapeOnCard, columns: Columns) -> Sums:
        """The sums of a tape, of columns that are on the card: started, and to be checked."""
        tape, shape = made.tape, (sum(made.tape.sizes), self.n_primes, self.ring)
        each = self.prologue_bytes(self.writer)
        most = max(1, min(_MAX_CHUNKS, _PROLOGUE_BYTES // max(1, each)))
        groups = [range(at, min(at + most, columns.chunks)) for at in range(0, columns.chunks, most)]
        sums = Sums(self.card.empty(*shape), self.card.empty(len(groups)), groups, self.card.empty(len(tape.totals)))
        self.card.clear(sums.wrong, 0xFF)
        for number, chunks in enumerate(groups):
            self._run(
                made, columns, chunks, sums.values, sums.wrong[number], 0, self.ring, self.n_primes, add=number > 0
            )
        count, apart = len(tape.totals), ctypes.c_int64(self.n_primes * self.ring)
        pointers = [ctypes.c_uint64(array.pointer) for array in (sums.values, made.totals, sums.hidden)]
        self.card.launch("hidden", (-(-count // 128), 1, 1), 128, (*pointers, apart, ctypes.c_int(count)))
        return sums

    def check(self, made: TapeOnCard, sums: Sums) -> None:
        """Refuse columns that are none, and sums that are 0 whatever the table."""
        for chunks, found in zip(sums.groups, self.card.download(sums.wrong).tolist(), strict=True):
            self._refuse(made.tape, chunks, found, range(self.n_primes))
        for number in np.flatnonzero(self.card.download(sums.hidden) == 0).tolist():
            size, _, component = made.tape.places[number].tolist()
            whole = [self.card.download(sums.values[component + k]) for k in range(size)]
            if not hides(np.stack(whole)):
                raise ValueError(NOTHING_HIDDEN)

    def _refuse(self, tape: Tape, chunks: range, found: int, primes: range) -> None:
        found &= 0xFFFFFFFF
        if found != 0xFFFFFFFF:
            index, prime = divmod(found, len(primes))
            raise self.refused(tape, chunks, index, primes[prime])

    def _run(
        self,
        made: TapeOnCard,
        columns: Columns,
        chunks: range,
        out: Array,
        wrong: Array,
        first_prime: int,
        width: int,
        primes: int,
        *,
        add: bool,
    ) -> None:
        card, tape = self.card, made.tape
        shared_vectors, temporary, local = tape.vectors
        shared = card.empty(len(chunks), shared_vectors, primes, width)
        n_constants, n_columns = len(tape.constants), len(tape.columns)
        many = len(chunks) > 1 or add
        words = made.local if many else made.words
        each = temporary * _LANES + (local if many else 0)
        threads = _block(each, made.code, card.shared_bytes)
        grid = (len(tape.segments) - 1, -(-width // (threads if many else threads * _LANES)), primes)
        fits = 8 * (made.code + each * threads) <= card.shared_bytes
        scratch = None if fits else card.empty(math.prod(grid), each, threads)
        rows = _Rows(
            self.on_card.primes.pointer, words.pointer, made.segments.pointer, made.totals.pointer,
            made.constants.pointer + 8 * n_constants * first_prime, columns.pointers.pointer + 8 * n_columns * chunks.start,
            shared.pointer, out.pointer, wrong.pointer, 0 if scratch is None else scratch.pointer, width, each, primes,
            n_columns, n_constants, shared_vectors, temporary, len(chunks), first_prime, int(add), made.code,
        )  # fmt: skip
        kind = self.on_card.arithmetic
        card.launch(f"prologue_{kind}", (-(-width // _THREADS), primes, len(chunks)), _THREADS, (rows,))
        at_hand = 8 * (made.code + (each * threads if fits else 0))
        name = f"{'four' if many else 'one'}{'' if fits else '_spilled'}_{kind}"
        card.launch(name, grid, threads, (rows,), shared=at_hand)

    # -- slices, in memory ---------------------------------------------------------------------------------------------

    def _compute(
        self,
        pool: ThreadPoolExecutor,
        tape: Tape,
        one: Slice,
        chunks: range,
        columns: tuple[Residues, ...],
        sums: Residues,
    ) -> None:
        self.card.enter()
        made = TapeOnCard(tape, self.on_card)
        primes, n_columns = one.primes(self.parameters), len(tape.columns)
        there = [self.card.upload(column) for column in columns]
        by_chunk = [there[i * n_columns : (i + 1) * n_columns] for i in range(len(chunks))]
        out, wrong = self.card.empty(*sums.shape), self.card.empty(1)
        self.card.clear(wrong, 0xFF)
        group = Columns(self.card, by_chunk), range(len(chunks))
        self._run(made, *group, out, wrong, primes.start, one.width, len(primes), add=False)
        self._refuse(tape, chunks, int(self.card.download(wrong)[0]), primes)
        found = self.card.download(out)
        if chunks.start == self.chunks.start:
            sums[:] = found
            return
        for number, prime in enumerate(primes):
            modulus = np.uint64(self.parameters.data_moduli[prime])
            total = sums[:, number] + found[:, number]
            sums[:, number] = np.where(total >= modulus, total - modulus, total)

    # -- columns ---------------------------------------------------------------------------------------------------------

    def columns_on_card(self, tape: Tape, chunk: int, held: dict[Any, Array]) -> list[Array]:
        """What a tape loads of a chunk; columns stay in ``held``, and given totals may be on the card already."""
        missing = [
            step
            for step in tape.columns
            if (base_of(step).op == COLUMN and _name(step, self.loads, chunk) not in held)
            or (base_of(step).op != COLUMN and not _is_there(step, self.loads))
        ]
        there = self.card.upload_together(self.checked(missing, chunk, self.everything)) if missing else []
        read = dict(zip(missing, there, strict=True))
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
                given: Any = self.loads.given[step]
                if given.shape != (2, self.n_primes, self.ring):
                    raise FileFormatError(f"a given total of shape {given.shape}")
                found.append(given)
        return found


def _with_totals(tape: Tape, of: int) -> np.ndarray:
    """The words with one of the facts about a total in place of its number."""
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
    """How many threads a block has, so that the card runs as many as can be at a time; each takes so many words."""

    def at_once(threads: int) -> int:
        return (shared_bytes + _RESERVED) // (_RESERVED + 8 * (code + words * threads)) * threads

    return max((_THREADS, 64, 32), key=lambda threads: min(at_once(threads), 3 * _THREADS))  # all, where none has room


def _name(step: Step, loads: Loads, chunk: int) -> tuple[Any, ...]:
    return base_of(step).data, loads.level, chunk


def _is_there(step: Step, loads: Loads) -> bool:
    return step.op == EXPAND and isinstance(loads.given[step], Array)
