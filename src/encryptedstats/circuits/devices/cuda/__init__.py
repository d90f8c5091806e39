"""The CUDA device: one NVIDIA card, with SEAL's residues, bit for bit.

Sums over rows, bringing down, packing, taking packs apart and rows beside given totals are kernels (``kernels.cu``); what they do
not do is left to the native device, which this one is otherwise. Arrays stay on the card between the steps of one evaluation.
"""

from __future__ import annotations

import math
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from threading import RLock
from typing import Any, ClassVar, Final, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from encryptedstats.circuits.devices.base import Run, Speed
from encryptedstats.circuits.devices.cuda import card as cards
from encryptedstats.circuits.devices.cuda.card import Array, Card, CardFullError, Recording
from encryptedstats.circuits.devices.cuda.steps import CudaExecution, Keyed, check_hides
from encryptedstats.circuits.devices.cuda.sums import Columns, CudaEvaluator, Sums, Tables, TapeOnCard
from encryptedstats.circuits.devices.native import (
    NativeDevice,
    base_below,
    loads_of,
    program_obstacle,
    relinearised_at,
    rows_level,
)
from encryptedstats.circuits.devices.native.sums import Loads, row_obstacle, sums_under
from encryptedstats.circuits.devices.native.tape import TapeWriter
from encryptedstats.circuits.devices.seal import Execution, Place, batches_of
from encryptedstats.circuits.program import EXPAND, RELINEARISE, ROWS, SHIFT, SUM, Program, Step
from encryptedstats.circuits.sources import Source
from encryptedstats.crypto.keys import PublicKeys
from encryptedstats.crypto.residues import Residues
from encryptedstats.memory import default_limit
from encryptedstats.parallel import cores
from encryptedstats.progress import progress_bar

_MAX_PRIME_BITS: Final = 60
Found = TypeVar("Found")
_KEPT_TAPES: Final = 8
_GROUPS: Final = 4  # of chunks that have room on the card: one is computed on, and others are brought
_STEP_SECONDS: Final = 1e-4  # ten kernels


@dataclass(frozen=True)
class _Loaded:
    """A tape and its columns on the card."""

    evaluator: CudaEvaluator
    made: TapeOnCard
    columns: Iterable[Columns]  # a list, where all are there
    stays: bool  # whether the columns are those of the table, whatever is given beside it


@dataclass(frozen=True)
class _Ready:
    """Packs of a program and a table that can be computed again by one call."""

    program: Program
    content: str
    keys: PublicKeys
    loaded: _Loaded
    sums: Sums
    packs: list[Array]
    recording: Recording

    def is_of(self, program: Program, source: Source, given: Mapping[Step, Residues], run: Run) -> bool:
        """Whether this is what is to be computed."""
        same = self.program is program and self.keys is source.keys and self.content == source.content_id
        return same and not given and run.checkpoint is None


class CudaDevice(NativeDevice):
    """BGV on a card.

    Parameters
    ----------
    card : Card, optional
        The first one of this machine by default.
    arithmetic : "doubles" or "integers", optional
        What suits the card, by default.
    """

    name: ClassVar[str] = "cuda"
    side_by_side: ClassVar[bool] = False
    speed: ClassVar[Speed] = Speed(
        rows=2e-12, totals=35e-12, start=0.05
    )  # measured on an H200; it begins with a tape and its copies

    def __init__(self, card: Card | None = None, arithmetic: str | None = None) -> None:
        self._card, self._arithmetic = card, arithmetic
        self._keyed: WeakKeyDictionary[PublicKeys, Keyed] = WeakKeyDictionary()
        self._tapes: WeakKeyDictionary[Program, tuple[Any, TapeOnCard]] = WeakKeyDictionary()
        self._ready: _Ready | None = None
        self._lock = RLock()
        self._tables = Tables()

    @property
    def is_here(self) -> bool:
        """Whether the driver knows a card."""
        return super().is_here and (self._card is not None or cards.is_there())

    def obstacle(self, program: Program) -> str | None:
        """Whether there is a card, and BGV with primes that it computes with."""
        if self._card is None and not cards.is_there():
            return f"no GPU was found here: {cards.obstacle()}"
        if any(step.op == SHIFT for step in program.steps):
            return "it brings down totals one by one, and in this program they lie side by side"
        why_not = super().obstacle(program)
        if why_not is not None:
            return why_not
        bits = max(program.parameters.coefficient_moduli).bit_length()
        if bits > _MAX_PRIME_BITS:
            return f"it computes modulo primes below 2^{_MAX_PRIME_BITS}, and one of these has {bits} bits"
        return cards.obstacle() if self._card is None else cards.obstacle_of(self._card)

    def seconds(self, program: Program) -> float:
        """By its speed; where no tape adds up the rows, every step is a few kernels to start."""
        rows, totals = program.words
        started = 0 if program.form == ROWS or program_obstacle(program) is None else len(program.steps)
        found = self.speed.start + self.speed.rows * rows + self.speed.totals * totals
        return found + _STEP_SECONDS * started * max(1, program.layout.n_chunks)

    def card(self) -> Card | None:
        """The card, for the calling thread; None in a process that was forked from the one that opened it."""
        found = self._card or cards.card()
        if found is None or found.process != os.getpid():
            return None
        found.enter()
        return found

    def _of(self, keys: PublicKeys) -> Keyed | None:
        card = self.card()
        if card is None:
            return None
        if keys not in self._keyed:
            self._keyed[keys] = Keyed(keys, card, self._arithmetic)
        return self._keyed[keys]

    def forget(self) -> None:
        """Give the card's memory back: columns, keys and tapes that were kept for the next time."""
        self._tables, self._ready = Tables(), None
        self._tapes.clear()
        self._keyed.clear()

    def _attempted(self, compute: Callable[[], Found | None]) -> Found | None:
        """What is computed on the card, or, without all that is kept there, once again; None where there is no room even so."""
        for _ in range(2):
            try:
                return compute()
            except CardFullError:
                self.forget()
        return None

    # -- totals ----------------------------------------------------------------------------------------------------

    def totals(
        self, program: Program, source: Source, given: Mapping[Step, Residues], run: Run
    ) -> Iterator[dict[Step, Residues]]:
        """All at once where the card holds them; otherwise slice by slice, by way of memory."""
        found = self._attempted(lambda: self._totals_at_once(program, source, given, run))
        if found is None:
            yield from self._by_slices(program, source, given, run)
        else:
            yield found

    def _totals_at_once(
        self, program: Program, source: Source, given: Mapping[Step, Residues], run: Run
    ) -> dict[Step, Residues] | None:
        if self._takes_steps(program, source, run):
            return _fetched(self._step_by_step(program, source, given))
        loaded = self._loaded(program, source, given, run)
        if loaded is None:
            return None
        sums = loaded.evaluator.sums_on_card(loaded.made, loaded.columns)
        loaded.evaluator.check(loaded.made, sums)
        firsts, outputs = loaded.made.firsts, list(dict.fromkeys(output.step for output in program.outputs))
        found = self._lowered(
            [step for step in outputs if base_below(step, firsts) in firsts], sums.values, firsts, source.keys
        )
        others, keyed = [step for step in outputs if step not in found], self._of(source.keys)
        if others and keyed is not None:
            known = {total: _part_of(sums.values, firsts[total], total.size) for total in sums_under(others)}
            found |= self._brought(others, known, source.keys, keyed)
        return _fetched(found)

    def _takes_steps(self, program: Program, source: Source, run: Run) -> bool:
        """Whether the card takes steps one by one, because no tape does."""
        return self._of(source.keys) is not None and run.checkpoint is None and program_obstacle(program) is not None

    def _step_by_step(self, program: Program, source: Source, given: Mapping[Step, Residues]) -> dict[Step, Any]:
        """What no tape adds up: outputs on the card."""
        known: dict[Place, Residues] = {(step, None): value for step, value in given.items()}
        known |= {(step, chunk): value for step, value in given.items() for chunk in range(source.layout.n_chunks)}
        found: dict[Step, Any] = {}
        for batch in batches_of(program):
            found |= zip(batch, self._batch(program, batch, source, known), strict=True)
        return found

    def started(self, keys: PublicKeys, known: Mapping[Place, Residues], source: Source | None = None) -> Execution:
        """On the card, if this process has one."""
        keyed = self._of(keys)
        if keyed is None:
            return super().started(keys, known, source)
        return CudaExecution(keys, known, source, keyed, {} if source is None else self._held(source))

    def sums(self, sums: Sequence[Step], source: Source, known: Mapping[Place, Residues]) -> dict[Step, Residues]:
        """Sums that hide nothing are refused, as SEAL refuses them."""
        found: dict[Step, Any] = super().sums(sums, source, known)
        for value in found.values():
            if isinstance(value, Array):
                check_hides(value)
        return found

    def packs(
        self, program: Program, source: Source, given: Mapping[Step, Residues], run: Run
    ) -> Iterable[Residues] | None:
        """Nothing leaves the card before it is packed; a program that is run again on the same table is one graph by then."""
        with self._lock:
            return self._attempted(lambda: self._packs(program, source, given, run))

    def _packs(
        self, program: Program, source: Source, given: Mapping[Step, Residues], run: Run
    ) -> list[Residues] | None:
        known = self._ready
        if known is not None and known.is_of(program, source, given, run):
            loaded = known.loaded
            loaded.evaluator.card.again(known.recording)
            loaded.evaluator.check(loaded.made, known.sums)
            return [np.asarray(pack) for pack in known.packs]
        if self._takes_steps(program, source, run):
            return self._packed_step_by_step(program, source, given)
        if any(base_below(arg, {}).op != SUM for pack in program.packs for arg in pack.args):
            return None
        loaded_now = self._loaded(program, source, given, run)
        return None if loaded_now is None else self._packed(program, source, loaded_now)

    def _packed(self, program: Program, source: Source, loaded: _Loaded) -> list[Residues]:
        keyed, (evaluator, made) = self._of(source.keys), (loaded.evaluator, loaded.made)
        assert keyed is not None
        packing = keyed.packing, keyed.relinearisation  # there before anything is recorded
        # What is brought to the card meanwhile is not what is done again: the next time all of it is there, and is recorded.
        with evaluator.card.recorded() if loaded.stays else nullcontext() as recording:
            sums = evaluator.sums_on_card(made, loaded.columns)
            packs = [
                keyed.ring.pack(self._lowered_together(pack.args, sums.values, made.firsts, source.keys), packing[0])[0]
                for pack in program.packs
            ]
        evaluator.check(made, sums)
        found = [np.asarray(pack) for pack in packs]
        if recording is not None and recording.whole and source.content_id is not None:
            self._ready = _Ready(program, source.content_id, source.keys, loaded, sums, packs, recording)
        return found

    def _packed_step_by_step(self, program: Program, source: Source, given: Mapping[Step, Residues]) -> list[Residues]:
        keyed, found = self._of(source.keys), self._step_by_step(program, source, given)
        assert keyed is not None
        return [self._merged([found[arg] for arg in pack.args], 0, None, keyed) for pack in program.packs]

    def _by_slices(
        self, program: Program, source: Source, given: Mapping[Step, Residues], run: Run
    ) -> Iterator[dict[Step, Residues]]:
        fetched = {step: np.asarray(value) for step, value in given.items()}
        if self._takes_steps(program, source, run):  # and has no room for them
            yield from NativeDevice().totals(program, source, fetched, run)
        else:
            yield from super().totals(program, source, fetched, run)

    def _evaluator(self, loads: Loads, run: Run, limit: int) -> CudaEvaluator | None:
        """The card, where its arithmetic carries these keys."""
        keyed = self._of(loads.source.keys)
        return None if keyed is None else CudaEvaluator(loads, run.workers or cores(), limit, keyed.ring)

    def _loaded(self, program: Program, source: Source, given: Mapping[Step, Residues], run: Run) -> _Loaded | None:
        """A tape and its columns on the card; None where that has no room there, or is not done there at once."""
        if run.checkpoint is not None or program_obstacle(program) is not None:
            return None
        keyed = self._of(source.keys)
        loads, limit = loads_of(program, source, given, run)
        evaluator = self._evaluator(loads, run, limit)
        if keyed is None or evaluator is None:
            return None
        writer, made = self._tapes.get(program, (None, None))
        if writer is None or made is None:
            made = evaluator.compiled(program.sums)
            writer = evaluator.writer
            self._tapes[program] = (writer, made)
        evaluator.writer = writer
        sums, whole, few = evaluator.bytes_on_card(made)
        _, total = evaluator.card.memory()
        room = int(total * 0.9) - sums
        if room < _GROUPS * few:
            return None
        if room < whole:  # some chunks after the others, none of which stays
            columns = evaluator.groups_on_card(made.tape, None, room // _GROUPS)
            return _Loaded(evaluator, made, self._shown(columns, source, run), stays=False)
        held = self._held(source)
        stays = not any(load.op == EXPAND for load in made.tape.columns) and evaluator.all_there(made.tape, held)
        columns = evaluator.groups_on_card(made.tape, held, room)
        return _Loaded(evaluator, made, list(columns) if stays else self._shown(columns, source, run), stays)

    def _shown(self, columns: Iterable[Columns], source: Source, run: Run) -> Iterator[Columns]:
        """Columns with a bar that says how far they are."""
        with progress_bar("computing", source.layout.n_rows, "rows", run.progress) as advance:
            for some in columns:
                yield some
                advance(sum(source.layout.counts[chunk] for chunk in some.chunks))

    def _held(self, source: Source) -> dict[Any, Array]:
        """Columns of this table that are on the card; those of others make room."""
        name, card = source.content_id, self.card()
        if name is None or card is None:
            return {}
        found = self._tables.of(name, card.memory()[1] // 4)
        if self._ready is not None and self._ready.content not in self._tables:
            self._ready = None
        return found

    # -- single ciphertexts ------------------------------------------------------------------------------------------

    def _lowered_together(
        self, steps: Sequence[Step], sums: Array, firsts: Mapping[Step, int], keys: PublicKeys
    ) -> Array:
        """Steps of one size and level that are computed from sums, (steps, polynomials, primes, N)."""
        keyed = self._of(keys)
        assert keyed is not None
        every = len(keys.parameters.data_moduli)
        out = keyed.ring.card.empty(len(steps), steps[0].size, every - steps[0].level, keyed.ring.n)
        groups: dict[tuple[int, int, int, bool], list[int]] = defaultdict(list)
        for number, step in enumerate(steps):
            base = base_below(step, firsts)
            groups[base.size, base.level, relinearised_at(step, base), _relinearises(step, base)].append(number)
        for (size, level, at, switches), numbers in groups.items():
            places = [firsts[base_below(steps[number], firsts)] for number in numbers]
            levels = (every - level, every - at, every - steps[0].level)
            key = keyed.relinearisation if switches else None
            keyed.ring.lower(sums, places, size, levels, key, out, numbers)
        return out

    def _lowered(
        self, steps: Sequence[Step], sums: Array, firsts: Mapping[Step, int], keys: PublicKeys
    ) -> dict[Step, Array]:
        alike: dict[tuple[int, int], list[Step]] = defaultdict(list)
        found: dict[Step, Array] = {}
        for step in steps:
            if step in firsts:
                found[step] = _part_of(sums, firsts[step], step.size)
            else:
                alike[step.size, step.level].append(step)
        for some in alike.values():
            together = self._lowered_together(some, sums, firsts, keys)
            found |= {step: together[number] for number, step in enumerate(some)}
        return found

    def bring_down(
        self, steps: Sequence[Step], known: Mapping[Step, Residues], keys: PublicKeys, workers: int | None = None
    ) -> list[Residues]:
        """All of it on the card, where there is room."""

        def on_card() -> dict[Step, Residues] | None:
            keyed = self._of(keys)
            return None if keyed is None else _fetched(self._brought(steps, known, keys, keyed))

        found = self._attempted(on_card)
        if found is None:
            fetched = {step: np.asarray(value) for step, value in known.items()}
            return NativeDevice().bring_down(steps, fetched, keys, workers)
        return [found[step] for step in steps]

    def _from_known(self, steps: Sequence[Step], known: Mapping[Place, Residues], keys: PublicKeys) -> list[Any]:
        keyed = self._of(keys)
        if keyed is None:
            return super()._from_known(steps, known, keys)
        totals = {place[0]: value for place, value in known.items() if place[1] is None}
        found = self._brought(steps, totals, keys, keyed)
        return [found[step] for step in steps]

    def _brought(
        self, steps: Sequence[Step], known: Mapping[Step, Any], keys: PublicKeys, keyed: Keyed
    ) -> dict[Step, Array]:
        """What is switched and relinearised last, many at a time; what is computed before that, step by step."""
        card = keyed.ring.card
        base = {step: base_below(step, known) for step in steps}
        bases = list(dict.fromkeys(base.values()))
        missing = [step for step in bases if step not in known]
        if missing:
            places: dict[Place, Any] = {(step, None): value for step, value in known.items()}
            values = self.started(keys, places).values([(step, None) for step in missing])
            known = {**known, **dict(zip(missing, values, strict=True))}
        found = {step: card.joined([known[step]]) for step in base if step in bases}
        by_level: dict[int, list[Step]] = defaultdict(list)
        for step in base:
            if step not in found:
                by_level[base[step].level].append(step)
        for some in by_level.values():
            under = list(dict.fromkeys(base[step] for step in some))
            firsts = dict(zip(under, np.cumsum([0, *(base.size for base in under[:-1])]).tolist(), strict=True))
            found |= self._lowered(some, card.joined([known[base] for base in under]), firsts, keys)
        return found

    # -- packs -------------------------------------------------------------------------------------------------------

    def pack(
        self, totals: Sequence[Residues], keys: PublicKeys, workers: int | None = None, start: int = 0
    ) -> Residues:
        """All merges of a level at a time."""
        return self.merge(totals, start, keys.parameters.ring_degree.bit_length() - 1, keys, workers, start)

    def merge(
        self,
        parts: Sequence[Residues],
        level: int,
        to: int,
        keys: PublicKeys,
        workers: int | None = None,
        start: int = 0,
    ) -> Residues:
        """As packs."""
        keyed = self._of(keys)
        if keyed is None or start:
            return super().merge(parts, level, to, keys, workers, start)
        return self._merged(parts, level, to, keyed)

    def _merged(self, parts: Sequence[Any], level: int, to: int | None, keyed: Keyed) -> Residues:
        there = keyed.ring.card.joined(parts).shaped(len(parts), *parts[0].shape)
        return np.asarray(keyed.ring.pack(there, keyed.packing, level, to)[0])

    def split(self, node: Residues, level: int, keys: PublicKeys, *, odd: bool, start: int = 0) -> Sequence[Residues]:
        """The halves stay on the card."""
        if start:
            return super().split(np.asarray(node), level, keys, odd=odd, start=start)
        return self._expanded(node, 1 << (level if odd else level - 1), level, level - 1, keys)

    def expand(
        self,
        node: Residues,
        count: int,
        level: int,
        keys: PublicKeys,
        workers: int | None = None,
        start: int = 0,
    ) -> Iterable[Residues]:
        """The totals stay on the card."""
        if start:
            return super().expand(np.asarray(node), count, level, keys, workers, start)
        return self._expanded(node, count, level, 0, keys)

    def _expanded(self, node: Any, count: int, level: int, lowest: int, keys: PublicKeys) -> list[Any]:
        keyed = self._of(keys)
        if keyed is None:
            kernels = keys.evaluator.kernels
            assert kernels is not None
            return list(kernels.expand(np.asarray(node), count, level, lowest))
        there = node if isinstance(node, Array) else keyed.ring.card.upload(np.asarray(node))
        found = keyed.ring.expand(there, count, level, lowest, keyed.packing)
        return [found[number] for number in range(len(found))]

    # -- rows ----------------------------------------------------------------------------------------------------------

    def rows(
        self, batches: Iterable[tuple[Sequence[Step], Mapping[Step, Residues]]], source: Source, run: Run
    ) -> Iterator[list[Residues]]:
        """A sum over one chunk is what its rows are."""
        limit = default_limit() if run.memory_limit is None else run.memory_limit
        loads: Loads | None = None
        for steps, given in batches:
            keyed = self._of(source.keys)
            if keyed is None or row_obstacle(steps, source.parameters) is not None:
                fetched = {step: np.asarray(value) for step, value in given.items()}
                yield from super().rows([(steps, fetched)], source, run)
                continue
            of_step, writer, made = self._tape_of_rows(steps, source, given, run, keyed)
            loads = loads or Loads(source, rows_level(list(of_step.values())), given, limit // 2)
            loads.given = given
            evaluator = CudaEvaluator(loads, run.workers or cores(), limit, keyed.ring)
            evaluator.writer = writer
            for chunk in range(source.layout.n_chunks):
                loads.make(made.tape.columns, chunk)
                evaluator.chunks = range(chunk, chunk + 1)
                found = evaluator.sums_on_card(made, evaluator.groups_on_card(made.tape, self._held(source), 0))
                evaluator.check(made, found)
                values: list[Any] = [_part_of(found.values, made.firsts[of_step[step]], step.size) for step in steps]
                yield values  # which stay there until they are brought down

    def _tape_of_rows(
        self, steps: Sequence[Step], source: Source, given: Mapping[Step, Residues], run: Run, keyed: Keyed
    ) -> tuple[dict[Step, Step], TapeWriter, TapeOnCard]:
        """Steps as sums over one chunk, and their tape; those of a program that is run again are there already."""
        name = tuple(steps), source.layout.n_chunks > 1
        if name not in keyed.tapes:
            of_step = {step: Step(SUM, (step,), None, step.noise, is_total=True) for step in steps}
            sums = list(of_step.values())
            evaluator = CudaEvaluator(Loads(source, rows_level(sums), given, 0), 1, 0, keyed.ring)
            evaluator.prepare(sums)
            while len(keyed.tapes) >= _KEPT_TAPES:
                del keyed.tapes[next(iter(keyed.tapes))]
            keyed.tapes[name] = of_step, evaluator.writer, TapeOnCard(evaluator.tape(sums), keyed.ring)
        found: tuple[dict[Step, Step], TapeWriter, TapeOnCard] = keyed.tapes[name]
        return found


def _part_of(sums: Array, first: int, size: int) -> Array:
    each = math.prod(sums.shape[1:])
    return Array(sums.card, sums.pointer + 8 * each * first, (size, *sums.shape[1:]), sums)


def _fetched(found: Mapping[Step, Array]) -> dict[Step, Residues]:
    """Arrays in memory: those that are parts of one, all of it at once."""
    whole: dict[int, Residues] = {}
    fetched: dict[Step, Residues] = {}
    for step, value in found.items():
        owner = value.owner
        if owner is None or owner.shape[1:] != value.shape:
            fetched[step] = np.asarray(value)
            continue
        if owner.pointer not in whole:
            whole[owner.pointer] = np.asarray(owner)
        fetched[step] = whole[owner.pointer][(value.pointer - owner.pointer) // (8 * value.words)]
    return fetched


def _relinearises(step: Step, base: Step) -> bool:
    while step is not base:
        if step.op == RELINEARISE:
            return True
        step = step.args[0]
    return False


__all__ = ["CudaDevice"]
