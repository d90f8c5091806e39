"""The sums behind all totals of a question, and random combinations of them.

Both sides compile the same program from public facts. Its sums are neither relinearised nor
switched to fewer primes, so that each residue of them follows from those of the columns, however
the packs of the answer were computed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from encryptedstats.circuits.coefficients import bound_coefficients
from encryptedstats.circuits.compiled import Compiled
from encryptedstats.circuits.devices import Run, Task, device_for
from encryptedstats.circuits.evaluate import compile_for
from encryptedstats.circuits.expressions import Expression
from encryptedstats.circuits.lowering import FLAT, Schedule, Setting
from encryptedstats.circuits.program import SLOTS, Program, Step
from encryptedstats.circuits.proof import NoiseReport
from encryptedstats.circuits.residue_local import find_residue_obstacle, find_sum
from encryptedstats.circuits.results import NumberFacts
from encryptedstats.circuits.sources import Source
from encryptedstats.crypto.packing import interleaving_power
from encryptedstats.crypto.residues import Residues
from encryptedstats.errors import VerificationError
from encryptedstats.spotcheck.arithmetic import (
    PositionSource,
    Values,
    add,
    evaluate_sums,
    multiply,
)
from encryptedstats.spotcheck.messages import Challenge

try:
    from encryptedstats import _weigh
except ImportError:  # built without a C compiler
    _weigh = None  # type: ignore[assignment]

Weights = NDArray[np.int64]
_AT_ONCE: Final = 1 << 15  # sums: with weights of 2^16 and halves of 2^32 they stay below 2^64
_MOST_REDUCED: Final = 1 << 15  # words
_HALF, _LOW_HALF = np.uint64(32), np.uint64((1 << 32) - 1)


@dataclass(frozen=True)
class QuestionSums:
    """The sums of a compiled question.

    Attributes
    ----------
    program : Program
        It computes each different sum once.
    groups : tuple of Step
        The sums that are weighed: each interleaves as many totals as the program says.
    places : tuple of int
        Of each total that is asked for: its group times the totals of a group, plus its number
        there. Equal totals share a place.
    facts : tuple of NumberFacts
        How the number in each sum is read.
    """

    program: Program
    groups: tuple[Step, ...]
    places: tuple[int, ...]
    facts: tuple[NumberFacts, ...]

    @property
    def n_interleaved(self) -> int:
        return self.program.n_interleaved

    @property
    def distinct(self) -> tuple[Step, ...]:
        return tuple(dict.fromkeys(self.groups))

    @cached_property
    def digest(self) -> str:
        """A hash of the sums and of how totals are compared with them.

        With packs it determines by how much each sum is wrong. Weights follow from it: the same
        packs may be sent for another question with the same sums.
        """
        compared = [(one.offset, one.factor) for one in self.facts], self.places
        said = f"{self.program.digest} {compared!r}"
        return hashlib.sha256(said.encode()).hexdigest()

    @cached_property
    def bound(self) -> float:
        """A bound for the coefficients of the noise of the sum of all groups, each with the
        weight 1.

        Terms are not allowed to cancel: other weights would not let them.
        """
        program = self.program
        bounds = bound_coefficients(self.groups, program.parameters, program.layout.n_chunks)
        return sum(bounds[step] for step in self.groups)

    @cached_property
    def size(self) -> int:
        """The number of polynomials of a combination, whose weights are never 0."""
        return max(step.size for step in self.groups)

    @cached_property
    def powers(self) -> tuple[int, ...]:
        """The power of X that each total of a group is multiplied by."""
        count, ring = self.n_interleaved, self.program.parameters.ring_degree
        return tuple(interleaving_power(number, count, ring) for number in range(count))


def compile_sums(
    totals: Sequence[Expression], source: Source, *, interleaved: bool = True
) -> QuestionSums:
    """Compile the sums of some totals, interleaved where packs are.

    Raises
    ------
    VerificationError
        If single residues of them cannot be recomputed.
    """
    check_rows(source)
    packed = Setting(source.parameters, source.layout, source.with_secret_key)
    count = packed.count_interleaved() if interleaved else 1
    # Products as they are, from all primes on: how packs are computed does not enter. That sums
    # decrypt is proven with their weights.
    flat = NoiseReport(Schedule(FLAT, n_interleaved=count), 0.0)
    compiled = compile_for(totals, source, form=SLOTS, n_interleaved=count, report=flat)
    known = compiled.program.findings
    if "sums" not in known:
        known["sums"] = _find_sums(compiled)
    found: QuestionSums = known["sums"]
    return found


def _find_sums(compiled: Compiled) -> QuestionSums:
    program, places = compiled.program, compiled.places
    obstacle = find_residue_obstacle(program)
    if obstacle is not None:
        raise VerificationError(
            f"this question cannot be spot-checked: {obstacle}. es.verify computes it again",
            code="not-residue-local",
        )
    count = program.n_interleaved
    at = {
        place // count: find_sum(output.step)
        for place, output in zip(
            program.places or range(len(program.outputs)), program.outputs, strict=True
        )
    }
    groups = tuple(at[group] for group in range(len(at)))
    return QuestionSums(program.part(list(dict.fromkeys(groups))), groups, places, compiled.facts)


def check_rows(source: Source) -> None:
    """Refuse rows that are not all of the owner of the key.

    Combinations are not added up over slots, so they show rows.
    """
    if source.keys.joint or not source.with_secret_key:
        raise VerificationError(
            "combinations of totals show rows to the owner of the key, and others have encrypted "
            "rows of this table: es.verify computes an answer again and shows nothing",
            code="rows-by-others-unchecked",
        )


# -- combining -------------------------------------------------------------------------------------


def draw_weights(seeds: Sequence[bytes], count: int, bits: int) -> Weights:
    """Expand seeds to weights from 1 to 2^bits, one row for each combination."""
    return np.array([_expand(seed, count, bits) for seed in seeds], dtype=np.int64)


def _expand(seed: bytes, count: int, bits: int) -> Weights:
    data = hashlib.shake_256(b"encryptedstats: weights of a spot check" + seed).digest(4 * count)
    low_bits = np.frombuffer(data, dtype="<u4") & np.uint32((1 << bits) - 1)
    return low_bits.astype(np.int64) + 1


class Weighing:
    """Weighted sums of values, whose low and high 32 bits are added up apart.

    Neither half reaches 2^64: weights are at most 2^16, and both are reduced every 2^15 values.
    """

    def __init__(self, moduli: Values, combinations: int, threads: int = 1) -> None:
        """Take the modulus of each word of the longest value, and the number of combinations."""
        self._moduli, self._threads = moduli, threads
        self._found, self._low, self._high = (
            np.zeros((combinations, len(moduli)), dtype=np.uint64) for _ in range(3)
        )
        self._count = 0

    def add(self, weights: Weights, values: Sequence[Values]) -> None:
        """Add values, each flat, with their weights, (combinations, values)."""
        for some in self._count_values(len(values)):
            chosen = np.ascontiguousarray(weights[:, some], dtype=np.uint64)
            self._add(chosen, tuple(map(_align, values[some])))

    def add_rows(self, weights: Weights, words: Values, places: NDArray[np.int64], at: int) -> None:
        """Add values that lie in one array, each with its first word and its number of words, to
        as many combinations as there are weights, from combination ``at`` on.
        """
        into = slice(at, at + len(weights))
        for some in self._count_values(len(places)):
            chosen = np.ascontiguousarray(weights[:, some], dtype=np.uint64)
            low, high = self._low[into], self._high[into]
            if _weigh is None:
                values = [words[first : first + length] for first, length in places[some].tolist()]
                _add_words(chosen, values, low, high)
            else:
                _weigh.weigh_rows(chosen, words, places[some], 0, len(self._moduli), low, high)

    def _count_values(self, count: int) -> Iterator[slice]:
        """Yield values in groups that do not wrap around, after making room for each."""
        for start in range(0, count, _AT_ONCE):
            some = slice(start, min(count, start + _AT_ONCE))
            if self._count + some.stop - start > _AT_ONCE:
                self._reduce()
            self._count += some.stop - start
            yield some

    def _add(self, weights: Values, values: tuple[Values, ...]) -> None:
        if _weigh is None:
            _add_words(weights, values, self._low, self._high)
            return
        length, threads = len(self._moduli), self._threads
        if threads == 1:
            _weigh.weigh(weights, values, 0, length, self._low, self._high)
            return
        cuts = [length * part // threads for part in range(threads + 1)]
        with ThreadPoolExecutor(threads) as pool:
            spans = [
                pool.submit(_weigh.weigh, weights, values, start, stop, self._low, self._high)
                for start, stop in pairwise(cuts)
            ]
            for span in spans:
                span.result()

    def _reduce(self) -> None:
        moduli = self._moduli
        powers = np.uint64(1 << 32) % moduli
        at_once = max(1, _MOST_REDUCED // len(moduli))
        for a in range(0, len(self._found), at_once):  # temporary arrays stay small
            some = slice(a, a + at_once)
            added = multiply(self._high[some] % moduli, powers, moduli) + self._low[some] % moduli
            self._found[some] = (self._found[some] + added) % moduli
        self._low[:], self._high[:], self._count = 0, 0, 0

    def result(self) -> Values:
        """Return the sums modulo their primes, (combinations, words)."""
        self._reduce()
        return self._found


def _add_words(weights: Values, values: Sequence[Values], low: Values, high: Values) -> None:
    for row, one in zip(weights.T, values, strict=True):
        low[:, : len(one)] += row[:, None] * (one & _LOW_HALF)
        high[:, : len(one)] += row[:, None] * (one >> _HALF)


def _align(words: Values) -> Values:
    flags = words.flags  # asking them takes less time than np.require
    if flags.c_contiguous and flags.aligned:
        return words
    return np.require(words, np.uint64, ("C", "A"))


def combine_at_positions(
    totals: Sequence[Expression], sums: QuestionSums, weights: Weights, source: PositionSource
) -> Values:
    """Return the combinations at the positions of a source, (combinations, polynomials, positions).

    Totals are computed one by one: interleaving multiplies their residues by powers of a root.
    """
    alone, count = compile_sums(totals, source, interleaved=False), sums.n_interleaved
    steps = {place: alone.groups[own] for place, own in zip(sums.places, alone.places, strict=True)}
    # The totals that the same power of X moves, and what it is at the positions.
    alike = [[place for place in steps if place % count == number] for number in range(count)]
    moved = np.array([source.powers_of_x(power, 2 * count) for power in sums.powers])
    chosen = [weights[:, [place // count for place in some]] for some in alike]
    primes, each, known = source.primes, len(weights), None
    found: Values = np.zeros((each, sums.size, len(primes)), dtype=np.uint64)
    for piece in evaluate_sums(alone.program, source):
        own, words = primes[piece.where], piece.words.reshape(-1)
        if piece.rows is not known:
            known = piece.rows
            rows = [_as_places([known[steps[place]] for place in some]) for some in alike]
        moduli = np.broadcast_to(own, (sums.size, len(own))).reshape(-1)
        weighing = Weighing(moduli, count * each)
        for number in range(count):
            weighing.add_rows(chosen[number], words, rows[number] * len(own), number * each)
        parts = weighing.result().reshape(count, each, sums.size, len(own))
        parts = multiply(parts, moved[:, None, None, piece.where], own)
        found[:, :, piece.where] = reduce(partial(add, primes=own), parts)
    return found


def _as_places(rows: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    return np.array(rows, dtype=np.int64).reshape(-1, 2)


def compute_combinations(
    totals: Sequence[Expression],
    challenge: Challenge,
    source: Source,
    *,
    device: str,
    options: Run,
) -> list[Residues]:
    """Return the sum of each combination: what an honest worker answers."""
    sums, parameters = compile_sums(totals, source), source.parameters
    weights = draw_weights(challenge.seeds, len(sums.groups), challenge.weight_bits)
    shape = sums.size, len(parameters.data_moduli), parameters.ring_degree
    primes = np.array(parameters.data_moduli, dtype=np.uint64)[:, None]
    task = Task(sums.program, source, {}, options)
    weighing = Weighing(np.broadcast_to(primes, shape).reshape(-1), len(weights), task.workers)
    numbers: dict[Step, list[int]] = {}
    for number, step in enumerate(sums.groups):
        numbers.setdefault(step, []).append(number)
    for some in device_for(device, sums.program).sums(task):
        chosen = [(number, one) for step, one in some.items() for number in numbers[step]]
        weighing.add(
            weights[:, [number for number, _ in chosen]],
            [one.reshape(-1) for _, one in chosen],
        )
    return list(weighing.result().reshape(len(weights), *shape))
