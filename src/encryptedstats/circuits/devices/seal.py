"""The SEAL device: instruction by instruction, everywhere. The reference that all others must equal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final
from weakref import WeakKeyDictionary

import numpy as np

from encryptedstats.circuits.devices.base import Device, Run, Speed
from encryptedstats.circuits.expressions import ONES, Marks, in_order
from encryptedstats.circuits.program import (
    ADD_UP,
    COLUMN,
    EXPAND,
    GIVEN,
    HERE,
    MASK,
    MOVE,
    MULTIPLY,
    RELINEARISE,
    ROTATE,
    SHIFT,
    SUM,
    SWITCH,
    MarksBeside,
    Program,
    Step,
)
from encryptedstats.circuits.sources import Source
from encryptedstats.crypto.encryption import encode_slots, encrypt_slots
from encryptedstats.crypto.engine import engine_for
from encryptedstats.crypto.keys import PublicKeys
from encryptedstats.crypto.packing import packing_levels, packing_parameters, to_packing_context
from encryptedstats.crypto.residues import Residues, ciphertext_of, residues_of
from encryptedstats.parallel import cores, ordered_map
from encryptedstats.progress import progress_bar

#: Totals that are accumulated side by side: bounds the memory, and is a batch of work for a process.
BATCH: Final = 56
_MASKED_AT_ONCE: Final = 8  # totals of marked slots: three polynomials each, under many primes
Place = tuple[Step, int | None]  # a step over a chunk of rows, or (None) on totals


class Execution:
    """Steps taken one by one; ciphertexts are large, so what nobody needs any more is let go of.

    Parameters
    ----------
    keys : PublicKeys
    known : mapping
        What was computed before, as residues.
    source : Source, optional
        Where columns come from.
    """

    def __init__(self, keys: PublicKeys, known: Mapping[Place, Residues], source: Source | None = None) -> None:
        self.keys, self.engine, self.known, self.source = keys, keys.engine, known, source
        self._evaluator = keys.engine.evaluator
        self._n_chunks = 1 if source is None else source.layout.n_chunks

    def values(self, wanted: Sequence[Place]) -> list[Any]:
        """The ciphertexts of some steps."""
        needs = {place: self._needed(place) for place in self._in_order(wanted)}
        uses = Counter(place for needed in needs.values() for place in needed) + Counter(wanted)
        found: dict[Place, Any] = {}
        for place, needed in needs.items():
            found[place] = self.take(place, {one[0]: found[one] for one in needed})
            for one in needed:
                uses[one] -= 1
                if not uses[one]:
                    del found[one]
        return [found[place] for place in wanted]

    def _needed(self, place: Place) -> list[Place]:
        return [] if place in self.known else place[0].needed(place[1], self._n_chunks)

    def _in_order(self, wanted: Sequence[Place]) -> Iterator[Place]:
        seen: set[Place] = set()
        stack = [(place, False) for place in reversed(wanted)]
        while stack:
            place, ready = stack.pop()
            if place in seen:
                continue
            needed = [] if ready else self._needed(place)
            if needed:
                stack.append((place, True))
                stack.extend((one, False) for one in reversed(needed))
            else:
                seen.add(place)
                yield place

    def value_of(self, residues: Residues) -> Any:
        """What instructions compute on, of what is known."""
        return ciphertext_of(self.engine, residues)

    def residues_of(self, value: Any) -> Residues:
        """The way back."""
        return residues_of(self.engine, value)

    def take(self, place: Place, args: Mapping[Step, Any]) -> Any:
        """One instruction."""
        step, chunk = place
        if place in self.known:
            return self.value_of(self.known[place])
        try:
            return self._instruction(step, chunk, args)
        except RuntimeError as error:
            if "transparent" not in str(error):
                raise
            raise ValueError(
                "a sum in this circuit is 0 whatever the table, its terms cancel: leave it out. (Its ciphertext would hide "
                "nothing, and is not made)"
            ) from error

    def _instruction(self, step: Step, chunk: int | None, args: Mapping[Step, Any]) -> Any:
        if step.op in (COLUMN, HERE):
            return self._loaded(step, chunk)
        if step.op in (GIVEN, EXPAND, SUM):
            raise ValueError(f"{step!r} is to be known before anything is computed from it")
        if step.op == ADD_UP:
            coefficients, constant = step.data
            pairs = zip(coefficients, step.args, strict=True)
            return self._combined([(c, args[arg]) for c, arg in pairs if arg in args], constant)
        value = args[step.args[0]]
        if step.op == MULTIPLY:
            if step.args[0] is step.args[1]:
                return self._evaluator.square(value)
            return self._evaluator.multiply(value, args[step.args[1]])
        if step.op == RELINEARISE:
            return relinearise_any(self.keys, value)
        if step.op == SWITCH:
            return self.engine.switch(value, step.data)
        if step.op == ROTATE:
            return self.keys.evaluator.rotate(value, step.data)
        if step.op == MASK:
            return self._evaluator.multiply_plain(value, self._marks(step.data))
        if step.op == MOVE:
            return value
        if step.op == SHIFT:
            return self._evaluator.multiply_plain(value, self.engine.encode_power(step.data))
        raise ValueError(f"{step!r} is no instruction of this device")

    def _marks(self, marks: Marks | MarksBeside) -> Any:
        slots, t, encoder = self.keys.parameters.slots, self.keys.parameters.plain_modulus, self.engine.encoder
        if isinstance(marks, Marks):
            return encoder.encode(marks.in_slots(slots, t))
        return encoder.encode_beside([(one.in_slots(slots, t), power) for one, power in marks.parts])

    def _loaded(self, step: Step, chunk: int | None) -> Any:
        if self.source is None or chunk is None:
            raise ValueError(f"{step!r} is over rows, and there are none here")
        if step.op == COLUMN:
            return ciphertext_of(self.engine, self.source.residues(step.data, chunk))
        return ciphertext_of(self.engine, encrypted_here(step, self.source, chunk))

    def _combined(self, terms: Sequence[tuple[int, Any]], constant: int) -> Any:
        # Begin with a positive term, so that nothing has to be negated.
        total: Any = None
        for coefficient, ciphertext in sorted(terms, key=lambda term: term[0] < 0):
            scaled = self._scaled(ciphertext, abs(coefficient))
            if total is None:
                total = scaled if coefficient > 0 else self._evaluator.negate(scaled)
            else:
                total = (self._evaluator.add if coefficient > 0 else self._evaluator.sub)(total, scaled)
        if constant:
            total = self._evaluator.add_plain(total, self.engine.encode_integer(constant))
        return total

    def _scaled(self, ciphertext: Any, factor: int) -> Any:
        if factor == 1:
            return ciphertext
        return self._evaluator.multiply_plain(ciphertext, self.engine.encode_integer(factor))


class SealDevice(Device):
    """Everything, by SEAL alone. ``sums`` and the others are for devices that do a part of it faster."""

    name: ClassVar[str] = "seal"
    execution: ClassVar[type[Execution]] = Execution
    speed: ClassVar[Speed] = Speed(rows=2.6e-9, totals=40e-9)  # forests of 500 and 20,000 rows, one core

    def obstacle(self, program: Program) -> str | None:
        """There is none."""
        return None

    def seconds(self, program: Program) -> float:
        """By its speed."""
        rows, totals = program.words
        return self.speed.start + self.speed.rows * rows + self.speed.totals * totals

    def checkpoint_obstacle(self, program: Program) -> str | None:
        """Sums are not kept."""
        return f"the device {self.name!r} adds up in memory"

    def started(self, keys: PublicKeys, known: Mapping[Place, Residues], source: Source | None = None) -> Execution:
        """What takes steps one by one."""
        return self.execution(keys, known, source)

    # -- totals ----------------------------------------------------------------------------------------------------

    def sums(self, sums: Sequence[Step], source: Source, known: Mapping[Place, Residues]) -> dict[Step, Residues]:
        """Sums over all chunks of rows, of which all that comes from totals is known."""
        execution, found = self.started(source.keys, known, source), dict[Step, Any]()
        for chunk in range(source.layout.n_chunks):
            here = [total for total in sums if total.args[0].is_at(chunk)]
            places = [(total.args[0], None if total.args[0].is_total else chunk) for total in here]
            for total, value in zip(here, execution.values(places), strict=True):
                found[total] = value if total not in found else execution._combined([(1, found[total]), (1, value)], 0)
        return {total: execution.residues_of(value) for total, value in found.items()}

    def totals(
        self, program: Program, source: Source, given: Mapping[Step, Residues], run: Run
    ) -> Iterator[dict[Step, Residues]]:
        """Batches of outputs, each by a process over all chunks."""
        known: dict[Place, Residues] = {(step, None): value for step, value in given.items()}
        known |= {(step, chunk): value for step, value in given.items() for chunk in range(source.layout.n_chunks)}
        workers = run.workers or cores()
        outputs = list(dict.fromkeys(output.step for output in program.outputs))
        _learn_headers(source.keys, [*outputs, *program.sums])
        if any(step.op == MASK for step in program.steps):
            yield from self._masked(program, outputs, source, known, workers, run.progress)
            return
        batches = batches_of(program)
        with progress_bar("computing", len(outputs), "totals", run.progress) as advance:
            # Batches go to the processes by number: programs are inherited, not sent.
            results = ordered_map(
                lambda number: self._batch(program, batches[number], source, known),
                range(len(batches)),
                min(len(batches), workers),
            )
            for batch, found in zip(batches, results, strict=True):
                yield dict(zip(batch, found, strict=True))
                advance(len(batch))

    def _batch(
        self, program: Program, outputs: Sequence[Step], source: Source, known: Mapping[Place, Residues]
    ) -> list[Residues]:
        """Some outputs: sums and what is computed from them, as often as totals have to be back in the rows."""
        known, stages, mine = dict(known), program.stages, list(in_order(outputs))
        kept = {*outputs, *(arg for step in mine for arg in step.args if stages[arg] < stages[step])}
        for stage in range(max(stages[step] for step in outputs) + 1):
            now = [step for step in mine if step.is_total and stages[step] == stage]
            sums = self.sums([step for step in now if step.op == SUM], source, known)
            known |= {(step, None): value for step, value in sums.items()}
            totals = [step for step in now if step.op != SUM and step in kept]
            values = self._from_known(totals, known, source.keys)
            known |= {(step, None): value for step, value in zip(totals, values, strict=True)}
        return [known[step, None] for step in outputs]

    def _from_known(self, steps: Sequence[Step], known: Mapping[Place, Residues], keys: PublicKeys) -> list[Residues]:
        return self.bring_down(steps, {place[0]: value for place, value in known.items() if place[1] is None}, keys, 1)

    def _masked(
        self,
        program: Program,
        outputs: list[Step],
        source: Source,
        known: dict[Place, Residues],
        workers: int,
        progress: bool | None,
    ) -> Iterator[dict[Step, Residues]]:
        """Totals of marked slots share what is marked, which is dear: first what is moved, then what is marked, then the totals."""
        under = [total.args[0] for total in program.sums]
        marked = list(dict.fromkeys((step.args[0], step.data.chunk) for step in under if step.op == MASK))
        moved = self._moved(marked, source)
        size = max(1, min(_MASKED_AT_ONCE, -(-len(outputs) // workers)))
        pieces = [outputs[start : start + size] for start in range(0, len(outputs), size)]
        with progress_bar("drawing", len(moved) + len(marked) + len(outputs), "steps", progress) as advance:
            for stage in (moved, marked):
                known = known | self._apart(stage, known, source, workers, advance)
            kept = set(marked)
            known = {place: value for place, value in known.items() if place in kept or place[0].op == EXPAND}
            results = ordered_map(
                lambda number: self._batch(program, pieces[number], source, known), range(len(pieces)), workers
            )
            for piece, found in zip(pieces, results, strict=True):
                yield dict(zip(piece, found, strict=True))
                advance(len(piece))

    def _moved(self, marked: Sequence[Place], source: Source) -> list[Place]:
        """The last of every row of rotations, and what comes from another chunk unrotated."""
        execution = self.started(source.keys, {}, source)
        places = list(execution._in_order(marked))
        turned = {one for place in places if place[0].op == ROTATE for one in execution._needed(place)}
        return [place for place in places if place[0].op in (ROTATE, MOVE) and place not in turned]

    def _apart(
        self,
        places: Sequence[Place],
        known: Mapping[Place, Residues],
        source: Source,
        workers: int,
        advance: Callable[[float], None],
    ) -> dict[Place, Residues]:
        """Steps over chunks of rows, each by some process."""
        _learn_headers(source.keys, [step for step, _ in places])

        def one(number: int) -> Residues:
            execution = self.started(source.keys, known, source)
            (value,) = execution.values([places[number]])
            return execution.residues_of(value)

        found = {}
        for place, residues in zip(places, ordered_map(one, range(len(places)), workers), strict=True):
            found[place] = residues
            advance(1)
        return found

    # -- rows ------------------------------------------------------------------------------------------------------

    def rows(
        self, batches: Iterable[tuple[Sequence[Step], Mapping[Step, Residues]]], source: Source, run: Run
    ) -> Iterator[list[Residues]]:
        """Chunk by chunk."""
        for steps, given in batches:
            for chunk in range(source.layout.n_chunks):
                known: dict[Place, Residues] = {(step, chunk): value for step, value in given.items()}
                execution = self.started(source.keys, known, source)
                yield [execution.residues_of(value) for value in execution.values([(step, chunk) for step in steps])]

    # -- single ciphertexts ----------------------------------------------------------------------------------------

    def bring_down(
        self, steps: Sequence[Step], known: Mapping[Step, Residues], keys: PublicKeys, workers: int | None = None
    ) -> list[Residues]:
        """A few for each process, which inherits what is known."""
        places: dict[Place, Residues] = {(step, None): value for step, value in known.items()}

        def some(part: Sequence[Step]) -> list[Residues]:
            execution = self.started(keys, places)
            return [execution.residues_of(value) for value in execution.values([(step, None) for step in part])]

        workers = workers or cores()
        size = max(1, -(-len(steps) // (4 * workers)))
        parts = [steps[start : start + size] for start in range(0, len(steps), size)]
        if workers == 1 or len(parts) == 1:
            return some(steps) if steps else []
        found = ordered_map(lambda number: some(parts[number]), range(len(parts)), min(len(parts), workers))
        return [one for part in found for one in part]

    # -- packs -----------------------------------------------------------------------------------------------------

    def pack(
        self, totals: Sequence[Residues], keys: PublicKeys, workers: int | None = None, start: int = 0
    ) -> Residues:
        """Processes pack some neighbours each, and what they bring is merged."""
        engine, small = keys.engine, engine_for(packing_parameters(keys.parameters))

        def packed(some: Sequence[Residues], level: int | None) -> Any:
            found = [to_packing_context(engine, ciphertext_of(engine, one)) for one in some]
            return keys.evaluator.pack(found, level, start, start)

        if len(totals) <= BATCH:
            return residues_of(small, packed(totals, None))
        level = start + max(1, packing_levels(-(-len(totals) // (workers or cores()))))
        size = 1 << (level - start)
        firsts = range(0, len(totals), size)
        parts = ordered_map(
            lambda first: residues_of(small, packed(totals[first : first + size], level)), firsts, len(firsts)
        )
        merged = keys.evaluator.pack([ciphertext_of(small, part) for part in parts], lowest=level, start=start)
        return residues_of(small, merged)

    def merge(
        self,
        parts: Sequence[Residues],
        level: int,
        to: int,
        keys: PublicKeys,
        workers: int | None = None,
        start: int = 0,
    ) -> Residues:
        """One after the other."""
        engine, small = keys.engine, engine_for(packing_parameters(keys.parameters))
        if level > start:
            found = [ciphertext_of(small, part) for part in parts]
        else:
            found = [to_packing_context(engine, ciphertext_of(engine, part)) for part in parts]
        return residues_of(small, keys.evaluator.pack(found, to, level, start))

    def split(self, node: Residues, level: int, keys: PublicKeys, *, odd: bool, start: int = 0) -> Sequence[Residues]:
        """Two additions and an automorphism."""
        small = engine_for(packing_parameters(keys.parameters))
        return [
            residues_of(small, part)
            for part in keys.evaluator.split(ciphertext_of(small, node), level, odd=odd, start=start)
        ]

    def expand(
        self,
        node: Residues,
        count: int,
        level: int,
        keys: PublicKeys,
        workers: int | None = None,
        start: int = 0,
    ) -> Iterable[Residues]:
        """Two processes take a half each, where there is enough to do."""
        small, workers = engine_for(packing_parameters(keys.parameters)), workers or cores()

        def expanded(part: Residues, some: int, at: int) -> list[Residues]:
            return [
                residues_of(small, total)
                for total in keys.evaluator.expand(ciphertext_of(small, part), some, at, start)
            ]

        half = 1 << (level - 1) if level > start else count
        if count <= half or count < 4 * workers:
            return expanded(node, count, level)
        parts, counts = self.split(node, level, keys, odd=True, start=start), (half, count - half)
        both = ordered_map(lambda i: expanded(parts[i], counts[i], level - 1), range(2), workers)
        return [total for part in both for total in part]


def _learn_headers(keys: PublicKeys, steps: Iterable[Step]) -> None:
    """SEAL's headers of such ciphertexts, found out once here and not again by every process."""
    for size, level in {(2, 0), *((step.size, step.level) for step in steps)}:
        keys.engine.ciphertext_header(size, level)


def encrypted_here(step: Step, source: Source, chunk: int) -> Residues:
    """A number in all rows of a chunk, freshly encrypted with the public key; what is 1 for all to see is not hidden."""
    keys = source.keys
    rows = np.full(source.layout.counts[chunk], step.data[0], dtype=np.int64)
    if step.data == ONES and keys.parameters.scheme == "bgv":
        return _public_ones(keys, len(rows))
    return residues_of(keys.engine, encrypt_slots(rows, keys.encryptor)[0])


_kept_ones: WeakKeyDictionary[PublicKeys, tuple[int, Residues]] = WeakKeyDictionary()


def _public_ones(keys: PublicKeys, count: int) -> Residues:
    """1 in the first slots, BGV, for all to see: the same every time, so that what was asked for last is kept."""
    kept = _kept_ones.get(keys)
    if kept is None or kept[0] != count:
        plain = encode_slots(np.ones(count, dtype=np.int64), keys.encryptor)
        kept = (count, residues_of(keys.engine, keys.engine.evaluator.add_plain(keys.public_zero, plain)))
        _kept_ones[keys] = kept
    return kept[1]


def relinearise_any(keys: PublicKeys, ciphertext: Any) -> Any:
    """Relinearise a ciphertext of any size with the key for s^2 alone.

    The top component c_k counts for c_k s^k = s^(k-2) (c_k s^2): so relinearise (0, 0, c_k) into (e0, e1) and add these to the
    components k-2 and k-1; repeat.
    """
    if ciphertext.size() == 3:
        return keys.evaluator.relinearise(ciphertext)
    engine = keys.engine
    residues = residues_of(engine, ciphertext).copy()
    primes = engine.parameters.data_moduli[: residues.shape[1]]
    while len(residues) > 3:
        top = residues[-1:]
        switched = residues_of(engine, keys.evaluator.relinearise(ciphertext_of(engine, _only_top(top))))
        residues = residues[:-1].copy()
        for prime, q in enumerate(primes):
            residues[-2:, prime] = (residues[-2:, prime] + switched[:, prime]) % q
    return keys.evaluator.relinearise(ciphertext_of(engine, residues))


def _only_top(top: Residues) -> Residues:
    return np.concatenate([np.zeros_like(top), np.zeros_like(top), top])


def batches_of(program: Program) -> list[list[Step]]:
    """The outputs in groups that are computed one by one, each by a process of its own.

    Every group computes what it needs, so outputs that share something dear (totals back in the rows) stay together.
    """
    outputs = list(dict.fromkeys(output.step for output in program.outputs))
    size = len(outputs) if any(_is_dear(step, program) for step in program.steps) else BATCH
    return [outputs[start : start + size] for start in range(0, len(outputs), size)]


def _is_dear(step: Step, program: Program) -> bool:
    if step.is_total:
        return step.op == MULTIPLY or program.stages[step] > 0
    return step.op in (ROTATE, MOVE)
