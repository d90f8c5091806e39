"""The native device: kernels in C, without the interpreter's lock, that give SEAL's residues many times faster.

Where rows have to be relinearised on the way, or go to other places, SEAL multiplies and adds them up, and the kernels switch keys
and moduli, which is most of the work, and do what comes after.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import numpy as np

from encryptedstats.circuits.devices.base import Run, Speed
from encryptedstats.circuits.devices.native.sums import (
    Evaluator,
    Loads,
    row_obstacle,
    sums_in_batches,
)
from encryptedstats.circuits.devices.seal import Execution, Place, SealDevice
from encryptedstats.circuits.program import (
    ADD_UP,
    COLUMN,
    EXPAND,
    HERE,
    MASK,
    RELINEARISE,
    ROTATE,
    ROWS,
    SUM,
    SWITCH,
    Program,
    Step,
)
from encryptedstats.circuits.sources import Source
from encryptedstats.crypto.kernels import Kernels, kernels_are_built
from encryptedstats.crypto.keys import PublicKeys
from encryptedstats.crypto.packing import packing_primes, plaintext_coefficients
from encryptedstats.crypto.residues import Residues, ciphertext_of, residues_of
from encryptedstats.memory import LEAST, default_limit
from encryptedstats.parallel import cores
from encryptedstats.progress import progress_bar

_KEPT_BYTES = 1 << 30  # of columns that are switched once and kept


class NativeExecution(Execution):
    """Step by step, with the kernels where keys or moduli are switched, and where rows are marked."""

    def __init__(self, keys: PublicKeys, known: Mapping[Place, Residues], source: Source | None = None) -> None:
        super().__init__(keys, known, source)
        self._read: dict[Place, Residues] = {}

    def _needed(self, place: Place) -> list[Place]:
        """What is marked and added up is, at once, and columns are read when it is."""
        step, chunk = place
        masks = self._masks(step, chunk)
        if place in self.known or not masks:
            return super()._needed(place)
        return [(mask.args[0], chunk) for mask in masks if mask.args[0].op != COLUMN]

    def _masks(self, step: Step, chunk: int | None) -> list[Step]:
        """What a step is the sum of, where it is one of marked rows."""
        if self.keys.evaluator.kernels is None or chunk is None or step.size > 2:
            return []
        if step.op == MASK:
            return [step]
        plain = step.op == ADD_UP and step.data == ((1,) * len(step.args), 0)
        masks = [arg for arg in step.args if arg.is_at(chunk)] if plain else []
        return masks if all(arg.op == MASK and (arg, chunk) not in self.known for arg in masks) else []

    def _masked(self, masks: Sequence[Step], chunk: int, args: Mapping[Step, Any]) -> Any:
        """The sum of products with public plaintexts."""
        rows, ring = list[Residues](), self.keys.parameters.ring_degree
        for row in (mask.args[0] for mask in masks):
            rows.append(self._column(row, chunk) if row.op == COLUMN else residues_of(self.engine, args[row]))
        plains = [plaintext_coefficients(self._marks(mask.data), ring) for mask in masks]
        return ciphertext_of(self.engine, _kernels(self.keys).masked(rows, plains))

    def _column(self, column: Step, chunk: int) -> Residues:
        """Read once: it is marked many times."""
        if (column, chunk) in self.known:
            return self.known[column, chunk]
        if (column, chunk) not in self._read:
            if self.source is None:
                raise ValueError(f"{column!r} is over rows, and there are none here")
            self._read[column, chunk] = self.source.residues(column.data, chunk)
        return self._read[column, chunk]

    def _instruction(self, step: Step, chunk: int | None, args: Mapping[Step, Any]) -> Any:
        masks = self._masks(step, chunk)
        if masks and chunk is not None:
            return self._masked(masks, chunk, args)
        kernels = self.keys.evaluator.kernels
        # A rotation without a key is refused by SEAL's way.
        dear = step.op in (RELINEARISE, SWITCH) or (step.op == ROTATE and step.data in self.keys.rotations)
        if kernels is None or not dear:
            return super()._instruction(step, chunk, args)
        residues = residues_of(self.engine, args[step.args[0]])
        if step.op == RELINEARISE:
            found = kernels.relinearise(residues)
        else:
            found = (kernels.switch if step.op == SWITCH else kernels.rotate)(residues, step.data)
        return ciphertext_of(self.engine, found)


class NativeDevice(SealDevice):
    """BGV by the kernels: rows are added up in threads, totals brought down, packed and expanded."""

    name: ClassVar[str] = "native"
    execution: ClassVar[type[Execution]] = NativeExecution
    speed: ClassVar[Speed] = Speed(rows=0.3e-9, totals=3e-9)  # measured as SEAL's

    @property
    def is_here(self) -> bool:
        """Whether the kernels are built."""
        return kernels_are_built()

    def obstacle(self, program: Program) -> str | None:
        """None for BGV, where the kernels are built."""
        if not kernels_are_built():
            return "its kernels are not there: the library was installed without a C compiler"
        if program.parameters.scheme != "bgv":
            return f"it computes BGV ciphertexts, and these are {program.parameters.scheme.upper()}"
        return None

    def seconds(self, program: Program) -> float:
        """By its speed; where SEAL adds up the rows, by that of SEAL for them."""
        rows, totals = program.words
        if program.form == ROWS:
            why_not = row_obstacle([step for batch in program.batches for step in batch.steps], program.parameters)
        else:
            why_not = program_obstacle(program)
        speed = self.speed if why_not is None else SealDevice.speed
        return self.speed.start + speed.rows * rows + self.speed.totals * totals

    def checkpoint_obstacle(self, program: Program) -> str | None:
        """None where the kernels add up the rows, of columns alone: a checkpoint does not know one given total from another."""
        if any(step.op == EXPAND for step in program.steps):
            return "the circuit has totals that are given from elsewhere"
        return program_obstacle(program)

    def totals(
        self, program: Program, source: Source, given: Mapping[Step, Residues], run: Run
    ) -> Iterator[dict[Step, Residues]]:
        """Sums come some at a time, and not in the order of the outputs."""
        if program_obstacle(program) is not None:
            # Before processes begin, which inherit them.
            _kernels(source.keys).prepare(rotations=any(step.op == ROTATE for step in program.steps))
            yield from super().totals(program, source, given, run)
            return
        outputs = list(dict.fromkeys(output.step for output in program.outputs))
        loads, limit = loads_of(program, source, given, run)
        with progress_bar("computing", source.layout.n_rows, "rows", run.progress) as advance:
            batches = sums_in_batches(
                outputs,
                loads,
                threads=run.workers or cores(),
                memory_limit=limit,
                checkpoint=run.checkpoint,
                advance=advance,
                evaluator=self._evaluator(loads, run, limit),
            )
            for batch, sums in batches:
                found = self.bring_down(batch, sums, source.keys, run.workers)
                yield dict(zip(batch, found, strict=True))

    def _evaluator(self, loads: Loads, run: Run, limit: int) -> Evaluator | None:
        """Who adds up rows in place of the kernels; nobody, but on devices that are made of this one."""
        return None

    def rows(
        self, batches: Iterable[tuple[Sequence[Step], Mapping[Step, Residues]]], source: Source, run: Run
    ) -> Iterator[list[Residues]]:
        """A sum over one chunk is what its rows are."""
        limit = default_limit() if run.memory_limit is None else run.memory_limit
        loads: Loads | None = None
        for steps, given in batches:
            if row_obstacle(steps, source.parameters) is not None:
                yield from super().rows([(steps, given)], source, run)
                continue
            of_step = {step: Step(SUM, (step,), None, step.noise, is_total=True) for step in steps}
            sums = list(of_step.values())  # what is asked for twice is computed once
            if loads is None:
                loads = Loads(source, rows_level(sums), given, limit // 2)
            loads.given = given
            evaluator = Evaluator(loads, run.workers or cores(), limit // 2)
            evaluator.prepare(sums)
            evaluator.keeps = False  # the next chunk has other columns
            tape = evaluator.tape(sums)
            for chunk in range(source.layout.n_chunks):
                loads.make(tape.columns, chunk)
                evaluator.chunks = range(chunk, chunk + 1)
                found = evaluator.run(tape)
                yield [found[of_step[step]].copy() for step in steps]

    def bring_down(
        self, steps: Sequence[Step], known: Mapping[Step, Residues], keys: PublicKeys, workers: int | None = None
    ) -> list[Residues]:
        """What is switched and relinearised last, by the kernels; what is computed before that, if anything, by SEAL."""
        kernels = _kernels(keys)
        bases = [base_below(step, known) for step in steps]
        missing = [base for base in dict.fromkeys(bases) if base not in known]
        known = {**known, **dict(zip(missing, super().bring_down(missing, known, keys, workers), strict=True))}
        found: dict[Step, Residues] = {}
        lowest = len(keys.parameters.data_moduli) - packing_primes(keys.parameters)
        low = [
            (step, base) for step, base in zip(steps, bases, strict=True) if step is not base and step.level == lowest
        ]
        levels = [relinearised_at(step, base) for step, base in low]
        for (step, _), residues in zip(
            low, kernels.lower([known[base] for _, base in low], levels, workers), strict=True
        ):
            found[step] = residues
        others = {step: base for step, base in zip(steps, bases, strict=True) if step not in found}
        with ThreadPoolExecutor(workers or cores()) as pool:
            values = pool.map(lambda step: self._one_by_one(step, others[step], known[others[step]], kernels), others)
            found |= zip(others, values, strict=True)
        return [found[step] for step in steps]

    def _one_by_one(self, step: Step, base: Step, residues: Residues, kernels: Kernels) -> Residues:
        if step is base:
            return np.array(residues)  # a copy: sums lie in memory that the next batch is computed in
        below = self._one_by_one(step.args[0], base, residues, kernels)
        return kernels.switch(below, step.level) if step.op == SWITCH else kernels.relinearise(below)

    def pack(
        self, totals: Sequence[Residues], keys: PublicKeys, workers: int | None = None, start: int = 0
    ) -> Residues:
        """Threads pack some neighbours each."""
        return _kernels(keys).pack(totals, lowest=start, threads=workers, start=start)

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
        return _kernels(keys).pack(parts, to, level, workers, start=start)

    def split(self, node: Residues, level: int, keys: PublicKeys, *, odd: bool, start: int = 0) -> Sequence[Residues]:
        """On residues."""
        return _kernels(keys).split(node, level, odd=odd, start=start)

    def expand(
        self,
        node: Residues,
        count: int,
        level: int,
        keys: PublicKeys,
        workers: int | None = None,
        start: int = 0,
    ) -> Iterable[Residues]:
        """On residues, by threads."""
        return _kernels(keys).expand(node, count, level, start, threads=workers, start=start)


def loads_of(program: Program, source: Source, given: Mapping[Step, Residues], run: Run) -> tuple[Loads, int]:
    """What the tapes of a program read, and how many bytes its sums may take."""
    limit = default_limit() if run.memory_limit is None else run.memory_limit
    return Loads(source, rows_level(program.sums), given, min(_KEPT_BYTES, max(LEAST, limit // 2))), limit


def program_obstacle(program: Program) -> str | None:
    """Why no tape adds up the rows of a program; None if one does."""
    if any(program.stages[total] for total in program.sums):
        return "the circuit brings totals back into the rows, or rows into other places"
    if any(step.op == HERE for step in program.steps):
        return "the circuit has numbers that are encrypted on the spot, which are others every time"
    return row_obstacle([total.args[0] for total in program.sums], program.parameters)


def rows_level(sums: Sequence[Step]) -> int:
    """That all rows are at."""
    return sums[0].args[0].level


def base_below(step: Step, known: Container[Step]) -> Step:
    """What a step is brought down from: what was switched and relinearised last, or is known."""
    while step.op in (SWITCH, RELINEARISE) and step not in known:
        step = step.args[0]
    return step


def relinearised_at(step: Step, base: Step) -> int:
    """The level at which a step is relinearised on its way down from another; its own, where it is not."""
    level = step.level
    while step is not base:
        if step.op == RELINEARISE:
            return step.level
        step = step.args[0]
    return level


def _kernels(keys: PublicKeys) -> Kernels:
    kernels = keys.evaluator.kernels
    if kernels is None:
        raise ValueError("there are no kernels for these keys")
    return kernels
