"""The CUDA device: one NVIDIA card, with SEAL's residues, bit for bit.

Sums over rows, bringing down, packing, taking packs apart and rows beside given totals are kernels (``kernels.cu``); what they do
not do is left to the native device, which this one is otherwise. Arrays stay on the card between the steps of one evaluation.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from threading import RLock
from typing import Any, ClassVar, Final
from weakref import WeakKeyDictionary

import numpy as np

from encryptedstats.circuits.devices.base import Run, Speed
from encryptedstats.circuits.devices.cuda import card as cards
from encryptedstats.circuits.devices.cuda.card import Array, Card, Recording
from encryptedstats.circuits.devices.cuda.ring import Key, RingOnCard, packing_keys, relinearisation_key
from encryptedstats.circuits.devices.cuda.sums import Columns, CudaEvaluator, Sums, TapeOnCard
from encryptedstats.circuits.devices.native import (
    NativeDevice,
    base_below,
    loads_of,
    program_obstacle,
    relinearised_at,
    rows_level,
)
from encryptedstats.circuits.devices.native.sums import Loads, row_obstacle, sums_under
from encryptedstats.circuits.program import EXPAND, HERE, RELINEARISE, SUM, Program, Step
from encryptedstats.circuits.sources import Source
from encryptedstats.crypto.keys import PublicKeys
from encryptedstats.crypto.residues import Residues
from encryptedstats.memory import default_limit
from encryptedstats.parallel import cores
from encryptedstats.progress import progress_bar

_MAX_PRIME_BITS: Final = 60


class _Keyed:
    """What is on the card for one set of public keys."""

    def __init__(self, keys: PublicKeys, card: Card, arithmetic: str | None) -> None:
        self.ring = RingOnCard(keys.parameters, card, arithmetic)
        self._keys = keys
        self._relinearisation: Key | None = None
        self._packing: list[list[Key]] | None = None

    @property
    def relinearisation(self) -> Key:
        """For s^2."""
        if self._relinearisation is None:
            self._relinearisation = relinearisation_key(self.ring, self._keys.seal_relinearisation)
        return self._relinearisation

    @property
    def packing(self) -> list[list[Key]]:
        """Of all automorphisms of packing, level by level."""
        if self._packing is None:
            self._packing = packing_keys(self.ring, self._keys.seal_packing)
        return self._packing


@dataclass(frozen=True)
class _Loaded:
    """A tape and its columns on the card."""

    evaluator: CudaEvaluator
    made: TapeOnCard
    columns: Columns
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
    speed: ClassVar[Speed] = Speed(
        rows=2e-12, totals=35e-12, start=0.05
    )  # measured on an H200; it begins with a tape and its copies

    def __init__(self, card: Card | None = None, arithmetic: str | None = None) -> None:
        self._card, self._arithmetic = card, arithmetic
        self._keyed: WeakKeyDictionary[PublicKeys, _Keyed] = WeakKeyDictionary()
        self._tapes: WeakKeyDictionary[Program, tuple[Any, TapeOnCard]] = WeakKeyDictionary()
        self._ready: _Ready | None = None
        self._lock = RLock()
        self._columns: tuple[str | None, dict[Any, Array]] = (None, {})  # of the table that was computed on last

    def obstacle(self, program: Program) -> str | None:
        """Whether there is a card, and BGV with primes that it computes with."""
        why_not = super().obstacle(program)
        if why_not is not None:
            return why_not
        bits = max(program.parameters.coefficient_moduli).bit_length()
        if bits > _MAX_PRIME_BITS:
            return f"it computes modulo primes below 2^{_MAX_PRIME_BITS}, and one of these has {bits} bits"
        return None if self._card is not None else cards.obstacle()

    def card(self) -> Card | None:
        """The card, for the calling thread; None in a process that was forked from the one that opened it."""
        found = self._card or cards.card()
        if found is None:
            return None
        found.enter()
        return found

    def _of(self, keys: PublicKeys) -> _Keyed | None:
        card = self.card()
        if card is None:
            return None
        if keys not in self._keyed:
            self._keyed[keys] = _Keyed(keys, card, self._arithmetic)
        return self._keyed[keys]

    def forget(self) -> None:
        """Give the card's memory back: columns, keys and tapes that were kept for the next time."""
        self._columns, self._ready = (None, {}), None
        self._tapes.clear()
        self._keyed.clear()

    # -- totals ----------------------------------------------------------------------------------------------------

    def totals(
        self, program: Program, source: Source, given: Mapping[Step, Residues], run: Run
    ) -> Iterator[dict[Step, Residues]]:
        """All at once where the card holds them; otherwise slice by slice, by way of memory."""
        on_card = self._sums(program, source, given, run)
        if on_card is None:
            yield from self._by_slices(program, source, given, run)
            return
        sums, firsts = on_card
        outputs = list(dict.fromkeys(output.step for output in program.outputs))
        direct = [step for step in outputs if base_below(step, firsts) in firsts]
        for step, found in self._lowered(direct, sums, firsts, source.keys).items():
            yield {step: np.asarray(found)}
        others = [step for step in outputs if base_below(step, firsts) not in firsts]
        if others:
            known = {total: _fetched(sums, firsts[total], total.size) for total in sums_under(others)}
            yield dict(zip(others, self.bring_down(others, known, source.keys, run.workers), strict=True))

    def packs(
        self, program: Program, source: Source, given: Mapping[Step, Residues], run: Run
    ) -> Iterable[Residues] | None:
        """Nothing leaves the card before it is packed; a program that is run again on the same table is one graph by then."""
        with self._lock:
            known = self._ready
            if known is None or not known.is_of(program, source, given, run):
                self._ready = None
                if any(base_below(arg, {}).op != SUM for pack in program.packs for arg in pack.args):
                    return None
                loaded = self._loaded(program, source, given, run)
                return None if loaded is None else self._packed(program, source, loaded)
            loaded = known.loaded
            loaded.evaluator.card.again(known.recording)
            loaded.evaluator.check(loaded.made, known.sums)
            return [np.asarray(pack) for pack in known.packs]

    def _packed(self, program: Program, source: Source, loaded: _Loaded) -> list[Residues]:
        keyed, (evaluator, made) = self._of(source.keys), (loaded.evaluator, loaded.made)
        assert keyed is not None
        packing = keyed.packing, keyed.relinearisation  # there before anything is recorded
        with evaluator.card.recorded() as recording:
            sums = evaluator.sums_on_card(made, loaded.columns)
            packs = [
                keyed.ring.pack(self._lowered_together(pack.args, sums.values, made.firsts, source.keys), packing[0])[0]
                for pack in program.packs
            ]
        evaluator.check(made, sums)
        found = [np.asarray(pack) for pack in packs]
        if recording.whole and loaded.stays and source.content_id is not None:
            self._ready = _Ready(program, source.content_id, source.keys, loaded, sums, packs, recording)
        return found

    def _by_slices(
        self, program: Program, source: Source, given: Mapping[Step, Residues], run: Run
    ) -> Iterator[dict[Step, Residues]]:
        yield from super().totals(program, source, {step: np.asarray(value) for step, value in given.items()}, run)

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
            evaluator.prepare(program.sums)
            writer, made = evaluator.writer, TapeOnCard(evaluator.tape(program.sums), keyed.ring)
            self._tapes[program] = (writer, made)
        evaluator.writer = writer
        if not self._fits(evaluator, made, source):
            return None
        held, read = self._held(source), []
        with progress_bar("computing", source.layout.n_rows, "rows", run.progress) as advance:
            for chunk in range(source.layout.n_chunks):
                read.append(evaluator.columns_on_card(made.tape, chunk, held))
                advance(source.layout.counts[chunk])
        stays = not any(load.op == EXPAND for load in made.tape.columns)
        return _Loaded(evaluator, made, Columns(evaluator.card, read), stays)

    def _sums(
        self, program: Program, source: Source, given: Mapping[Step, Residues], run: Run
    ) -> tuple[Array, dict[Step, int]] | None:
        """All sums over rows on the card, with the first polynomial of each; None where that is not done there at once."""
        loaded = self._loaded(program, source, given, run)
        if loaded is None:
            return None
        sums = loaded.evaluator.sums_on_card(loaded.made, loaded.columns)
        loaded.evaluator.check(loaded.made, sums)
        return sums.values, loaded.made.firsts

    def _fits(self, evaluator: CudaEvaluator, made: TapeOnCard, source: Source) -> bool:
        """Whether columns, sums and what is computed on the way have room on the card."""
        polynomial = 8 * evaluator.n_primes * evaluator.ring
        columns = 2 * len(made.tape.columns) * source.layout.n_chunks * polynomial
        prologue = min(8 << 30, evaluator.prologue_bytes(evaluator.writer) * source.layout.n_chunks)
        _, total = evaluator.card.memory()
        return columns + prologue + 2 * sum(made.tape.sizes) * polynomial + (4 << 30) * (total > 8 << 30) <= total * 0.9

    def _held(self, source: Source) -> dict[Any, Array]:
        """Columns of this table that are on the card; those of another one make room."""
        name = source.content_id
        if name is None:
            return {}
        if self._columns[0] != name:
            self._columns, self._ready = (name, {}), None
        return self._columns[1]

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
    ) -> dict[Step, Any]:
        alike: dict[tuple[int, int], list[Step]] = defaultdict(list)
        found: dict[Step, Any] = {}
        for step in steps:
            if step in firsts:
                found[step] = _fetched(sums, firsts[step], step.size)
            else:
                alike[step.size, step.level].append(step)
        for some in alike.values():
            residues = np.asarray(self._lowered_together(some, sums, firsts, keys))
            found |= dict(zip(some, residues, strict=True))
        return found

    def bring_down(
        self, steps: Sequence[Step], known: Mapping[Step, Residues], keys: PublicKeys, workers: int | None = None
    ) -> list[Residues]:
        """What is switched and relinearised last, on the card; what is computed before that, by the native device."""
        keyed = self._of(keys)
        if keyed is None:
            return super().bring_down(steps, known, keys, workers)
        base = {step: base_below(step, known) for step in steps}
        bases = list(dict.fromkeys(base.values()))
        missing = [base for base in bases if base not in known]
        known = {**known, **dict(zip(missing, super().bring_down(missing, known, keys, workers), strict=True))}
        found: dict[Step, Any] = {step: np.array(known[step]) for step in steps if step in bases}
        by_level: dict[int, list[Step]] = defaultdict(list)
        for step in dict.fromkeys(steps):
            if step not in found:
                by_level[base[step].level].append(step)
        for some in by_level.values():
            under = list(dict.fromkeys(base[step] for step in some))
            firsts = dict(zip(under, np.cumsum([0, *(base.size for base in under[:-1])]).tolist(), strict=True))
            sums = keyed.ring.card.upload(np.concatenate([np.asarray(known[base]) for base in under]))
            found |= self._lowered(some, sums, firsts, keys)
        return [found[step] for step in steps]

    # -- packs -------------------------------------------------------------------------------------------------------

    def pack(self, totals: Sequence[Residues], keys: PublicKeys, workers: int | None = None) -> Residues:
        """All merges of a level at a time."""
        return self.merge(totals, 0, keys.parameters.ring_degree.bit_length() - 1, keys, workers)

    def merge(
        self, parts: Sequence[Residues], level: int, to: int, keys: PublicKeys, workers: int | None = None
    ) -> Residues:
        """As packs."""
        keyed = self._of(keys)
        if keyed is None:
            return super().merge(parts, level, to, keys, workers)
        there = keyed.ring.card.upload(np.stack([np.asarray(one) for one in parts]))
        return np.asarray(keyed.ring.pack(there, keyed.packing, level, to)[0])

    def split(self, node: Residues, level: int, keys: PublicKeys, *, odd: bool) -> Sequence[Residues]:
        """The halves stay on the card."""
        return self._expanded(node, 1 << (level if odd else level - 1), level, level - 1, keys)

    def expand(
        self, node: Residues, count: int, level: int, keys: PublicKeys, workers: int | None = None
    ) -> Iterable[Residues]:
        """The totals stay on the card."""
        return self._expanded(node, count, level, 0, keys)

    def _expanded(self, node: Any, count: int, level: int, lowest: int, keys: PublicKeys) -> list[Any]:
        keyed = self._of(keys)
        if keyed is None:
            kernels = keys.kernels
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
        held: dict[Any, Array] = {}
        for steps, given in batches:
            keyed = self._of(source.keys)
            here = any(step.op == HERE for step in _all_under(steps))
            if keyed is None or here or row_obstacle(steps, source.parameters) is not None:
                fetched = {step: np.asarray(value) for step, value in given.items()}
                yield from super().rows([(steps, fetched)], source, run)
                continue
            of_step = {step: Step(SUM, (step,), None, step.noise, is_total=True) for step in steps}
            sums = list(of_step.values())
            loads = loads or Loads(source, rows_level(sums), given, limit // 2)
            loads.given = given
            evaluator = CudaEvaluator(loads, run.workers or cores(), limit, keyed.ring)
            evaluator.prepare(sums)
            made = TapeOnCard(evaluator.tape(sums), keyed.ring)
            for chunk in range(source.layout.n_chunks):
                columns = Columns(evaluator.card, [evaluator.columns_on_card(made.tape, chunk, held)])
                found = evaluator.sums_on_card(made, columns)
                evaluator.check(made, found)
                yield [_fetched(found.values, made.firsts[of_step[step]], step.size) for step in steps]


def _fetched(sums: Array, first: int, size: int) -> Residues:
    each = int(np.prod(sums.shape[1:]))
    return np.asarray(Array(sums.card, sums.pointer + 8 * each * first, (size, *sums.shape[1:]), sums))


def _relinearises(step: Step, base: Step) -> bool:
    while step is not base:
        if step.op == RELINEARISE:
            return True
        step = step.args[0]
    return False


def _all_under(steps: Sequence[Step]) -> set[Step]:
    found: set[Step] = set()
    stack = list(steps)
    while stack:
        step = stack.pop()
        if step not in found:
            found.add(step)
            stack.extend(step.args)
    return found


__all__ = ["CudaDevice"]
