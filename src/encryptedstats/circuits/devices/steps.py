"""Run programs step by step: the order of steps, their lifetimes, and parallel processes.

What a step computes is a *rule*, a function ``rule(keys, data, *values)`` of the data of the step
and the values of its arguments. A table of rules makes an evaluator; a device with other rules for
some operations shares everything else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from encryptedstats.circuits.devices.base import Task
from encryptedstats.circuits.devices.batches import LowerTotals, Supplied
from encryptedstats.circuits.expressions import in_order
from encryptedstats.circuits.program import (
    ADD_UP,
    COLUMN,
    EXPAND,
    HERE,
    MASK,
    MOVE,
    MULTIPLY,
    ROTATE,
    SUM,
    Program,
    Step,
)
from encryptedstats.circuits.sources import Source
from encryptedstats.crypto.keys import PublicKeys
from encryptedstats.crypto.residues import Residues
from encryptedstats.errors import ArgumentError
from encryptedstats.machine import ordered_map
from encryptedstats.progress import progress_bar

#: Totals that one process accumulates at the same time: this bounds its memory.
BATCH: Final = 56
NOTHING_HIDDEN: Final = (
    "a sum in this circuit is 0 for every table, because its terms cancel: leave it out. "
    "(Its ciphertext would hide nothing)"
)
_MASKED_AT_ONCE: Final = 8  # totals of marked slots: three polynomials each, under many primes
Place = tuple[Step, int | None]  # a step over a chunk of rows, or (None) on totals
Known = Mapping[Place, Residues]
Rule = Callable[..., Any]


class Execution(ABC):
    """Evaluate steps in order. Ciphertexts are large, so each is freed after its last use.

    Parameters
    ----------
    keys : PublicKeys
    known : mapping
        Residues that were computed before.
    source : Source, optional
        Where columns come from.
    """

    rules: Mapping[str, Rule]

    def __init__(self, keys: PublicKeys, known: Known, source: Source | None = None) -> None:
        self.keys, self.known, self.source = keys, known, source
        self._n_chunks = 1 if source is None else source.layout.n_chunks

    @abstractmethod
    def value_of(self, residues: Residues) -> Any:
        """Convert known residues to the values that the rules take."""

    @abstractmethod
    def residues_of(self, value: Any) -> Residues:
        """Convert a value back."""

    @abstractmethod
    def load(self, step: Step, source: Source, chunk: int) -> Any:
        """Read a column, or encrypt a number here."""

    def check_sum(self, value: Any) -> None:  # noqa: B027  # most rules refuse it themselves
        """Refuse a sum that hides nothing."""

    def values(self, wanted: Sequence[Place]) -> list[Any]:
        """Compute the values of some steps."""
        needs = {place: self.needs(place) for place in self.in_order(wanted)}
        uses = Counter(place for needed in needs.values() for place in needed) + Counter(wanted)
        found: dict[Place, Any] = {}
        for place, needed in needs.items():
            found[place] = self.take(place, {one[0]: found[one] for one in needed})
            for one in needed:
                uses[one] -= 1
                if not uses[one]:
                    del found[one]
        return [found[place] for place in wanted]

    def needs(self, place: Place) -> list[Place]:
        """Return what a step is computed from."""
        return [] if place in self.known else place[0].find_needed(place[1], self._n_chunks)

    def in_order(self, wanted: Sequence[Place]) -> Iterator[Place]:
        """Yield the steps that are computed for some steps, each after its arguments."""
        seen: set[Place] = set()
        stack = [(place, False) for place in reversed(wanted)]
        while stack:
            place, ready = stack.pop()
            if place in seen:
                continue
            needed = [] if ready else self.needs(place)
            if needed:
                stack.append((place, True))
                stack.extend((one, False) for one in reversed(needed))
            else:
                seen.add(place)
                yield place

    def take(self, place: Place, args: Mapping[Step, Any]) -> Any:
        """Compute one step from its arguments."""
        step, chunk = place
        if place in self.known:
            return self.value_of(self.known[place])
        try:
            return self.compute(step, chunk, args)
        except RuntimeError as error:
            if "transparent" not in str(error):
                raise
            raise ArgumentError(NOTHING_HIDDEN, code="sum-cancels") from error

    def compute(self, step: Step, chunk: int | None, args: Mapping[Step, Any]) -> Any:
        """Apply the rule of a step."""
        if step.op in (COLUMN, HERE):
            if self.source is None or chunk is None:
                raise ArgumentError(
                    f"{step!r} is over rows, and there are none here", code="no-rows-here"
                )
            return self.load(step, self.source, chunk)
        if step.op == MOVE:
            return args[step.args[0]]
        if step.op not in self.rules:
            known = ", ".join(self.rules)
            raise ArgumentError(
                f"no rule computes {step!r}: the table of rules has {known}", code="unknown-step"
            )
        data, there = step.data, [arg in args for arg in step.args]
        if step.op == ADD_UP and not all(there):  # terms that are 0 in this chunk
            coefficients, constant = data
            data = (
                tuple(c for c, is_there in zip(coefficients, there, strict=True) if is_there),
                constant,
            )
        return self.rules[step.op](
            self.keys, data, *(args[arg] for arg in step.args if arg in args)
        )

    def add(self, a: Any, b: Any) -> Any:
        """Add two values."""
        return self.rules[ADD_UP](self.keys, ((1, 1), 0), a, b)


@dataclass(frozen=True)
class StepByStep:
    """Compute programs by executions, many in parallel processes.

    Attributes
    ----------
    start : callable
        Returns an execution for keys, known residues, and a source or None.
    lower : callable, optional
        Computes steps from totals that are known; by default an execution does.
    """

    start: Callable[[PublicKeys, Known, Source | None], Execution]
    lower: LowerTotals | None = None

    # -- totals ------------------------------------------------------------------------------------

    def totals(
        self, task: Task, expanded: Mapping[Step, Residues]
    ) -> Iterator[dict[Step, Residues]]:
        """Compute batches of outputs, each in a process over all chunks."""
        program, source = task.program, task.source
        known = collect_known(expanded, source.layout.n_chunks)
        outputs = list(dict.fromkeys(output.step for output in program.outputs))
        _learn_headers(source.keys, [*outputs, *program.sums])
        if any(step.op == MASK for step in program.steps):
            yield from self._masked_totals(task, outputs, known)
            return
        batches = batches_of(program)
        with progress_bar("computing", len(outputs), "totals", task.options.progress) as advance:
            # Batches go to the processes by number: programs are inherited, not sent.
            results = ordered_map(
                lambda number: self.batch(program, batches[number], source, known),
                range(len(batches)),
                min(len(batches), task.workers),
            )
            for batch, found in zip(batches, results, strict=True):
                yield dict(zip(batch, found, strict=True))
                advance(len(batch))

    def batch(
        self, program: Program, outputs: Sequence[Step], source: Source, known: Known
    ) -> list[Residues]:
        """Compute some outputs, in as many stages as totals return to the rows."""
        known, stages, mine = dict(known), program.stages, list(in_order(outputs))
        kept = {
            *outputs,
            *(arg for step in mine for arg in step.args if stages[arg] < stages[step]),
        }
        lower = self.lower or self.lower_totals
        for stage in range(max(stages[step] for step in outputs) + 1):
            now = [step for step in mine if step.is_total and stages[step] == stage]
            sums = self.sums([step for step in now if step.op == SUM], source, known)
            known |= {(step, None): value for step, value in sums.items()}
            totals = [step for step in now if step.op != SUM and step in kept]
            below = {place[0]: value for place, value in known.items() if place[1] is None}
            values = lower(totals, below, source.keys, 1)
            known |= {(step, None): value for step, value in zip(totals, values, strict=True)}
        return [known[step, None] for step in outputs]

    def sums(self, sums: Sequence[Step], source: Source, known: Known) -> dict[Step, Residues]:
        """Add up rows over all chunks; whatever comes from totals is known."""
        execution, found = self.start(source.keys, known, source), dict[Step, Any]()
        for chunk in range(source.layout.n_chunks):
            ready = [total for total in sums if total.args[0].is_at(chunk)]
            places = [(total.args[0], None if total.args[0].is_total else chunk) for total in ready]
            for total, value in zip(ready, execution.values(places), strict=True):
                found[total] = execution.add(found[total], value) if total in found else value
        for value in found.values():
            execution.check_sum(value)
        return {total: execution.residues_of(value) for total, value in found.items()}

    def _masked_totals(
        self, task: Task, outputs: list[Step], known: dict[Place, Residues]
    ) -> Iterator[dict[Step, Residues]]:
        """Compute totals of marked slots, which share the rows that are marked.

        These rows are costly. So rows are moved first, then marked, and added up last.
        """
        program, source, workers = task.program, task.source, task.workers
        under = [total.args[0] for total in program.sums]
        marked = list(
            dict.fromkeys((step.args[0], step.data.chunk) for step in under if step.op == MASK)
        )
        moved = self._moves_before(marked, source)
        size = max(1, min(_MASKED_AT_ONCE, -(-len(outputs) // workers)))
        pieces = [outputs[start : start + size] for start in range(0, len(outputs), size)]
        n_steps = len(moved) + len(marked) + len(outputs)
        with progress_bar("drawing", n_steps, "steps", task.options.progress) as advance:
            for stage in (moved, marked):
                known = known | self._in_processes(stage, known, task, advance)
            kept = set(marked)
            known = {
                place: value
                for place, value in known.items()
                if place in kept or place[0].op == EXPAND
            }
            results = ordered_map(
                lambda number: self.batch(program, pieces[number], source, known),
                range(len(pieces)),
                workers,
            )
            for piece, found in zip(pieces, results, strict=True):
                yield dict(zip(piece, found, strict=True))
                advance(len(piece))

    def _moves_before(self, marked: Sequence[Place], source: Source) -> list[Place]:
        """Return the last of every chain of rotations, and moved chunks that are not rotated."""
        execution = self.start(source.keys, {}, source)
        places = list(execution.in_order(marked))
        turned = {
            one for place in places if place[0].op == ROTATE for one in execution.needs(place)
        }
        return [place for place in places if place[0].op in (ROTATE, MOVE) and place not in turned]

    def _in_processes(
        self, places: Sequence[Place], known: Known, task: Task, advance: Callable[[float], None]
    ) -> dict[Place, Residues]:
        """Compute steps over chunks of rows, each in some process."""
        _learn_headers(task.keys, [step for step, _ in places])

        def compute(number: int) -> Residues:
            execution = self.start(task.keys, known, task.source)
            (value,) = execution.values([places[number]])
            return execution.residues_of(value)

        found = {}
        results = ordered_map(compute, range(len(places)), task.workers)
        for place, residues in zip(places, results, strict=True):
            found[place] = residues
            advance(1)
        return found

    # -- rows --------------------------------------------------------------------------------------

    def rows(self, task: Task, batches: Iterable[Supplied]) -> Iterator[list[Residues]]:
        """Compute the steps of each batch, chunk by chunk."""
        for batch, expanded in batches:
            for chunk in range(task.source.layout.n_chunks):
                known: dict[Place, Residues] = {
                    (step, chunk): value for step, value in expanded.items()
                }
                execution = self.start(task.keys, known, task.source)
                values = execution.values([(step, chunk) for step in batch.steps])
                yield [execution.residues_of(value) for value in values]

    # -- single ciphertexts ------------------------------------------------------------------------

    def lower_totals(
        self, steps: Sequence[Step], known: Mapping[Step, Residues], keys: PublicKeys, workers: int
    ) -> list[Residues]:
        """Compute steps from totals, a few in each process, which inherits what is known."""
        places: dict[Place, Residues] = {(step, None): value for step, value in known.items()}

        def compute(part: Sequence[Step]) -> list[Residues]:
            execution = self.start(keys, places, None)
            return [
                execution.residues_of(value)
                for value in execution.values([(step, None) for step in part])
            ]

        size = max(1, -(-len(steps) // (4 * workers)))
        parts = [steps[start : start + size] for start in range(0, len(steps), size)]
        if workers == 1 or len(parts) == 1:
            return compute(steps) if steps else []
        found = ordered_map(
            lambda number: compute(parts[number]), range(len(parts)), min(len(parts), workers)
        )
        return [one for part in found for one in part]


def collect_known(expanded: Mapping[Step, Residues], n_chunks: int) -> dict[Place, Residues]:
    """Make given totals known on totals and over every chunk."""
    chunks = (None, *range(n_chunks))
    return {(step, chunk): value for chunk in chunks for step, value in expanded.items()}


def _learn_headers(keys: PublicKeys, steps: Iterable[Step]) -> None:
    """Find out SEAL's headers of such ciphertexts here, once, and not again in every process."""
    for size, level in {(2, 0), *((step.size, step.level) for step in steps)}:
        keys.engine.ciphertext_header(size, level)


def batches_of(program: Program) -> list[list[Step]]:
    """Group the outputs that one process computes.

    Every group computes what it needs, so outputs that share something costly (totals back in the
    rows) stay together.
    """
    outputs = list(dict.fromkeys(output.step for output in program.outputs))
    size = len(outputs) if any(_is_costly(step, program) for step in program.steps) else BATCH
    return [outputs[start : start + size] for start in range(0, len(outputs), size)]


def _is_costly(step: Step, program: Program) -> bool:
    if step.is_total:
        return step.op == MULTIPLY or program.stages[step] > 0
    return step.op in (ROTATE, MOVE)
