"""Evaluating a circuit on an encrypted table: checked first, lowered to a program, run by a device, brought into a form."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np

from encryptedstats.circuits.batching import HELD
from encryptedstats.circuits.bounds import Interval
from encryptedstats.circuits.compiled import Compiled, Conditions, GivenPacks, compile_outputs
from encryptedstats.circuits.devices import AUTO, Device, Run, checked_name, device_for, registered
from encryptedstats.circuits.expansion import check_packed, expand_totals
from encryptedstats.circuits.expressions import REPLICATE, Expression, in_order
from encryptedstats.circuits.program import (
    EXPAND,
    PACK,
    PACKED,
    REPLICATED,
    ROWS,
    SLOTS,
    Batch,
    Program,
    Step,
)
from encryptedstats.circuits.proof import NoiseReport, resting_noise
from encryptedstats.circuits.results import EncryptedNumbers, Part
from encryptedstats.circuits.sources import Source
from encryptedstats.crypto.keys import PublicKeys
from encryptedstats.crypto.packing import packing_parameters, packing_primes
from encryptedstats.crypto.residues import Residues
from encryptedstats.errors import DeviceError, KeyMismatchError
from encryptedstats.memory import default_limit
from encryptedstats.parallel import checked_workers
from encryptedstats.progress import progress_bar
from encryptedstats.storage.objects import is_url

Packs = Mapping[str, EncryptedNumbers]
_NEIGHBOURS: Final = 5  # 2^5 totals are merged at a time where there is no room for all of them


def evaluate(
    outputs: Sequence[Expression | int],
    source: Source,
    *,
    form: str = PACKED,
    given: Packs | None = None,
    workers: int | None = None,
    progress: bool | None = None,
    device: str = AUTO,
    memory_limit: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    bounds: Sequence[Interval] | None = None,
    reported_bounds: Sequence[Interval] | None = None,
    report: NoiseReport | None = None,
    flood: bool | None = None,
) -> EncryptedNumbers:
    """The encrypted numbers of a circuit. Checked before anything is computed: bounds against t, noise against q.

    Parameters
    ----------
    outputs : expressions
        Totals; with ``form="rows"`` expressions over rows, or plain numbers.
    source : an encrypted table
    form : "packed", "replicated", "slots" or "rows"
        Many totals in few ciphertexts; each in all slots of one; or unsummed, for the owner to add up: that shows rows, so it is
        for rows that the owner encrypted. Or numbers of every row, 0 in slots without a row.
    given : mapping, optional
        Packed totals from elsewhere, by the name that the circuit gives them: see ``expressions.given``. Rows without any
        are answers of a plain model, whose coefficients are not told apart by what comes back.
    workers : int, optional
        Processes or threads; all cores by default.
    progress : bool, optional
        A progress bar; by default on a terminal.
    device : str
        What computes: "native", kernels in C for BGV, or "seal", SEAL alone, which gives the same residues; "auto" takes the
        fastest that can. See :mod:`encryptedstats.circuits.devices`.
    memory_limit : int, optional
        Bytes that a device may hold of sums and of chunks that it reads ahead. By default a quarter of the memory that the
        machine, or the container, has left, from 256 MiB to 8 GiB. A stored table is read once whatever it is: sums that have no
        room are kept in a temporary file. Totals that have no room until they are packed are merged as they come.
    checkpoint : path or URL, optional
        A folder for what is computed. A process that is interrupted and started again with the same circuit, rows and folder goes
        on from it; when the result is saved it is removed. For devices that can.
    bounds : intervals, optional
        Between which every output is known to lie, where who wrote the circuit knows more than intervals tell.
    reported_bounds : intervals, optional
        What the result says of its numbers, where that is to be less than is known here.
    report : NoiseReport, optional
        A proof for at least these rows and outputs, made elsewhere: results of shards of a table add up when all of them are
        computed and packed in the way that one proof holds for.
    flood : bool, optional
        Hide the rows from who opens the totals, by noise: see :mod:`encryptedstats.crypto.flooding`. By default where rows were
        encrypted by others.
    """
    workers, given = checked_workers(workers), given or {}
    checked_name(device)
    compile_with = partial(
        compile_for,
        outputs,
        source,
        form=form,
        given=given,
        memory_limit=memory_limit,
        bounds=bounds,
        reported_bounds=reported_bounds,
        report=report,
        flood=flood,
    )
    ready, chosen = _choose_device(compile_with, device)
    why_not = None if checkpoint is None else chosen.checkpoint_obstacle(ready.program)
    if why_not is not None:
        raise DeviceError(f"checkpoint= cannot be kept here: {why_not}")
    job = _Job(ready.program, source, given, chosen, Run(workers, memory_limit, checkpoint, progress))
    if form == ROWS:
        rows = EncryptedNumbers(source.keys, ROWS, ready.facts, job.rows(), counts=source.layout.counts)
        rows.program_digest = ready.digest
        return rows
    return _totals(ready, job, checkpoint)


def _choose_device(compile_with: Callable[..., Compiled], name: str) -> tuple[Compiled, Device]:
    """Return the program and its device. Interleaved totals lie in the same places either way."""
    ready = compile_with()
    if ready.program.beside > 1 and any(one.is_here and not one.side_by_side for one in registered().values()):
        alone = compile_with(beside=1)
        chosen = device_for(name, alone.program)
        if not chosen.side_by_side:
            return alone, chosen
    return ready, device_for(name, ready.program)


def _totals(ready: Compiled, job: _Job, checkpoint: str | os.PathLike[str] | None) -> EncryptedNumbers:
    program, source = ready.program, job.source
    # What belongs to a joint key is flooded by its members, when they open it.
    flooded = None if source.with_secret_key or source.keys.joint else False
    parts = job.totals()
    if program.form != PACKED:  # one ciphertext for each total that was asked for
        parts = [parts[place] for place in ready.places]
    totals = EncryptedNumbers(
        source.keys,
        program.form,
        ready.facts,
        parts,
        program.width,
        None,
        flooded,
        ready.circuit,
        places=ready.places if program.form == PACKED else (),
    )
    totals.program_digest = ready.digest
    totals.check_decrypts()
    totals = totals.with_flooding() if ready.floods else totals
    if checkpoint is not None:  # kept until they are stored
        totals.checkpoints = (checkpoint if is_url(os.fspath(checkpoint)) else os.path.abspath(checkpoint),)
    return totals


# -- before anything is computed ---------------------------------------------------------------------


def compile_for(
    outputs: Sequence[Expression | int],
    source: Source,
    *,
    form: str = PACKED,
    given: Packs | None = None,
    memory_limit: int | None = None,
    bounds: Sequence[Interval] | None = None,
    reported_bounds: Sequence[Interval] | None = None,
    **conditions: Any,
) -> Compiled:
    """Compile outputs for the rows of a source, with all checks of :func:`evaluate`; no row is read.

    Other options are fields of :class:`~encryptedstats.circuits.compiled.Conditions`.
    """
    given, keys, outputs = given or {}, source.keys, tuple(outputs)
    for packs in given.values():
        keys.check_same(packs.keys)
        check_packed(packs)
    under = Conditions(
        source.parameters,
        source.layout,
        tuple(source.ranges().items()),
        source.with_secret_key,
        form,
        tuple(GivenPacks.of_numbers(name, packs) for name, packs in given.items()),
        bounds=None if bounds is None else tuple(bounds),
        reported_bounds=None if reported_bounds is None else tuple(reported_bounds),
        held=HELD if memory_limit is None else min(HELD, memory_limit // 4),
        **conditions,
    )
    _check_form(outputs, source, form, under.floods)
    return compile_outputs(outputs, under)


def _check_form(outputs: Sequence[Expression | int], source: Source, form: str, flood: bool) -> None:
    if form not in (PACKED, REPLICATED, SLOTS, ROWS):
        raise ValueError(
            f"form={form!r}: totals come 'packed', 'replicated' or in 'slots', and numbers of rows as 'rows'"
        )
    if form == ROWS:
        if any(isinstance(output, Expression) and output.is_total for output in outputs):
            raise TypeError("a total is no number of a row: form='packed'")
        if any(node.op == REPLICATE for node in in_order(o for o in outputs if isinstance(o, Expression))):
            raise TypeError("rows are not computed beside totals of their own table at once: pack those first, given=")
        return
    if not outputs or not all(isinstance(output, Expression) and output.is_total for output in outputs):
        raise TypeError("a circuit is evaluated to totals: write .total() for the sum over rows")
    if form != PACKED and flood and source.with_secret_key:
        raise ValueError(f"form={form!r} shows rows, and flood=True hides them: form='packed'")
    if form != PACKED and not source.with_secret_key:
        raise ValueError(
            f"form={form!r} is for rows that the owner encrypted. These were encrypted by others, and who opens their totals is to "
            "learn nothing else of them: form='packed'"
        )
    if form == PACKED and not source.keys.packs:
        raise KeyMismatchError(
            "these public keys cannot pack totals: take owner.public_keys(packing=True), or form='slots' for one ciphertext a total"
        )


# -- computing ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Job:
    """A program that is run: its outputs as parts of a result."""

    program: Program
    source: Source
    given: Packs
    device: Device
    run: Run

    def totals(self) -> list[Part]:
        """Packs, or one ciphertext a total."""
        program, keys = self.program, self.source.keys
        found: dict[Step, Residues] = {}
        merging, seen = _Merging(program, self.device, keys, self.run, found), set[Step]()
        for batch, held in self._supplied():
            part = program if len(program.batches) == 1 else program.part(batch.steps)
            if program.form == PACKED and part is program:
                packs = self.device.packs(program, self.source, held, self.run)
                if packs is not None:
                    return [
                        Part(self._checked(merged, pack), pack.noise)
                        for pack, merged in zip(program.packs, packs, strict=True)
                    ]
            for some in self.device.totals(part, self.source, held, self.run):
                seen |= set(some)
                found |= {step: self._checked(residues, step) for step, residues in some.items()}
                merging.go_on()
        missing = [output for output in program.outputs if output.step not in seen]
        if missing:
            raise self._faulty(f"it gives {len(program.outputs) - len(missing)} of {len(program.outputs)} totals")
        if program.form != PACKED:
            return [Part(found[output.step], output.step.noise) for output in program.outputs]
        return [Part(self._checked(merging.pack(pack), pack), pack.noise) for pack in program.packs]

    def _checked(self, residues: Residues, step: Step) -> Residues:
        """What a device gives for a step, if it can be: of its size and level, and below the primes."""
        parameters = self.program.parameters
        primes = packing_primes(parameters) if step.op == PACK else len(parameters.data_moduli) - step.level
        shape = (2 if step.op == PACK else step.size, primes, parameters.ring_degree)
        if residues.dtype != np.uint64 or residues.shape != shape:
            raise self._faulty(
                f"it gives {residues.dtype} of shape {residues.shape}, not 64-bit words of shape {shape}"
            )
        moduli = np.array(parameters.data_moduli[:primes], dtype=np.uint64)
        if (residues.max(axis=(0, 2)) >= moduli).any():
            raise self._faulty("it gives residues that are not below their primes")
        return residues

    def _faulty(self, why: str) -> DeviceError:
        return DeviceError(f"the device {self.device.name!r} does not do what its program says: {why}")

    def rows(self) -> list[Part]:
        """For each number a ciphertext a chunk: the sums of all batches over all chunks, brought down."""
        program, n_chunks = self.program, self.source.layout.n_chunks
        known: list[dict[Step, Residues]] = [{} for _ in range(n_chunks)]
        expanded = max(1, sum(len(batch.expanded) for batch in program.batches))
        with progress_bar("predicting", expanded, "totals", self.run.progress) as advance:
            supplied = ((batch.steps, held) for batch, held in self._supplied())
            found = self.device.rows(supplied, self.source, self.run)
            for number, batch in enumerate(program.batches):
                needed = program.needed_after(number)
                for sums in known:
                    self._add(batch, next(found, []), sums)
                    for step in set(sums) - needed:
                        del sums[step]
                advance(len(batch.expanded))
        done = [self._brought_down(known.pop(0)) for _ in range(n_chunks)]
        return [part for number in zip(*done, strict=True) for part in number]

    def _add(self, batch: Batch, found: Sequence[Residues], sums: dict[Step, Residues]) -> None:
        """What a batch has brought for a chunk, to what was there."""
        if len(found) != len(batch.steps):
            raise self._faulty(f"it gives {len(found)} of {len(batch.steps)} numbers")
        sums |= zip(batch.steps, found, strict=True)
        later = [step for step in batch.sums if step not in sums]
        if later:
            sums |= zip(later, self.device.bring_down(later, sums, self.source.keys, 1), strict=True)

    def _brought_down(self, known: Mapping[Step, Residues]) -> list[Part]:
        """Two polynomials under as few primes as are proven to decrypt; of a plain model, as noisy as any is said to be."""
        steps = [output.step for output in self.program.outputs]
        rest = resting_noise(self.source.parameters.noise)
        found = self.device.bring_down(steps, known, self.source.keys, self.run.workers)
        return [
            Part(self._checked(residues, step), step.noise if self.given else rest)
            for step, residues in zip(steps, found, strict=True)
        ]

    def _supplied(self) -> Iterator[tuple[Batch, Mapping[Step, Residues]]]:
        """Every batch with the totals that it needs, expanded when it is its turn."""
        batches = self.program.batches
        supply = _Supply(self.given, [step for step in self.program.steps if step.op == EXPAND], self.device, self.run)
        for number, batch in enumerate(batches):
            supply.fetch(batch.expanded)
            yield batch, supply.held
            supply.forget(keep={step for later in batches[number + 1 :] for step in later.expanded})


@dataclass
class _Merging:
    """Packs under way. Where all totals together are too large to be held, neighbours are merged as soon as they are there."""

    program: Program
    device: Device
    keys: PublicKeys
    run: Run
    found: dict[Step, Residues]  # of which what is not needed any more is let go of
    _merged: dict[tuple[Step, ...], Residues] = field(default_factory=dict)

    def __post_init__(self) -> None:
        limit = default_limit() if self.run.memory_limit is None else self.run.memory_limit
        nbytes = packing_parameters(self.program.parameters).ciphertext_bytes() * len(self.program.outputs)
        packs = self.program.packs if nbytes > limit // 4 else ()
        self._waiting = list(dict.fromkeys(group for pack in packs for group in _neighbours(pack)))
        self._apart = bool(packs)
        self._start = self.program.beside.bit_length() - 1
        self._merged_to = min(self._start + _NEIGHBOURS, self.keys.parameters.ring_degree.bit_length() - 1)
        self._uses = Counter(step for group in self._waiting for step in group)

    def go_on(self) -> None:
        """Merge what can be."""
        for group in [group for group in self._waiting if all(step in self.found for step in group)]:
            parts = [self.found[step] for step in group]
            self._merged[group] = self.device.merge(
                parts, self._start, self._merged_to, self.keys, self.run.workers, self._start
            )
            self._waiting.remove(group)
            self._uses.subtract(group)
            for step in {step for step in group if not self._uses[step]}:
                del self.found[step]

    def pack(self, pack: Step) -> Residues:
        """All of it."""
        if not self._apart:
            return self.device.pack([self.found[arg] for arg in pack.args], self.keys, self.run.workers, self._start)
        parts = [self._merged[group] for group in _neighbours(pack)]
        top = self.keys.parameters.ring_degree.bit_length() - 1
        return self.device.merge(parts, self._merged_to, top, self.keys, self.run.workers, self._start)


def _neighbours(pack: Step) -> list[tuple[Step, ...]]:
    return [pack.args[start : start + (1 << _NEIGHBOURS)] for start in range(0, len(pack.args), 1 << _NEIGHBOURS)]


@dataclass
class _Supply:
    """Expanded totals: fetched in order, held as long as they are needed."""

    packs: Packs
    steps: Sequence[Step]
    device: Device
    run: Run
    held: dict[Step, Residues] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.used = {(step.args[0].data, step.data): step for step in self.steps}
        wanted: dict[tuple[str, int], set[int]] = {}
        for packs, index in self.used:
            wanted.setdefault(packs, set()).add(index)
        self._streams = {
            packs: expand_totals(self.packs[packs[0]], numbers, self.device, self.run.workers, packs[1])
            for packs, numbers in wanted.items()
        }

    def fetch(self, steps: Iterable[Step]) -> None:
        """Expand until these are there."""
        for step in sorted(set(steps) - set(self.held), key=lambda step: int(step.data)):
            packs = step.args[0].data
            while step not in self.held:
                index, residues = next(self._streams[packs])
                if (packs, index) in self.used:
                    self.held[self.used[packs, index]] = residues

    def forget(self, keep: set[Step]) -> None:
        """Let go of what is not needed any more."""
        for step in set(self.held) - keep:
            del self.held[step]
