"""Evaluating a circuit on an encrypted table: checked first, then read by SEAL or by the fused reader, then packed."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from encryptedstats.circuits.bounds import Interval, read_bounds
from encryptedstats.circuits.clear import known_padding
from encryptedstats.circuits.expressions import (
    MASK,
    RESAMPLE,
    Expression,
    circuit_digest,
    depth_of,
    in_order,
    padding_value,
)
from encryptedstats.circuits.fused import Sum, in_totals, obstacle, sums_in_batches
from encryptedstats.circuits.lowered import Lowered, start_level
from encryptedstats.circuits.noise import PACKED, REPLICATED, SLOTS, NoiseReport, read_noise
from encryptedstats.circuits.packs import lower_totals, pack_totals
from encryptedstats.circuits.results import EncryptedTotals, Part, TotalFacts
from encryptedstats.circuits.seal import SealMachine, SealValue, Source
from encryptedstats.circuits.walk import Strategy, Total, Walk, batches_of, in_order_of_rows
from encryptedstats.crypto.engine import engine_for
from encryptedstats.crypto.parameters import Parameters
from encryptedstats.crypto.residues import ciphertext_of, residues_of
from encryptedstats.crypto.vectors import EncryptedVector
from encryptedstats.errors import Cure, KeyMismatchError, TooLargeError
from encryptedstats.parallel import checked_workers, cores, ordered_map
from encryptedstats.progress import progress_bar
from encryptedstats.storage.objects import is_url

_MASKED_AT_ONCE: Final = 8  # totals of marked slots: three polynomials each, under many primes


def evaluate(
    outputs: Sequence[Expression],
    source: Source,
    *,
    form: str = PACKED,
    workers: int | None = None,
    progress: bool | None = None,
    engine: str = "auto",
    memory_limit: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    bounds: Sequence[Interval] | None = None,
    report: NoiseReport | None = None,
    flood: bool | None = None,
) -> EncryptedTotals:
    """The encrypted totals of a circuit. Checked before anything is computed: bounds against t, noise against q.

    Parameters
    ----------
    outputs : expressions, all of them totals
    source : an encrypted table
    form : "packed", "replicated" or "slots"
        Many totals in few ciphertexts; each in all slots of one; or unsummed, for the owner to add up: that shows rows, so it is
        for rows that the owner encrypted.
    workers : int, optional
        Processes or threads; all cores by default.
    progress : bool, optional
        A progress bar; by default on a terminal.
    engine : "auto", "fused" or "seal"
        What adds up the rows: SEAL, operation by operation, or the fused reader, which gives the same residues many times faster.
        It is chosen where it can be: for BGV with data primes below 2^50, without relinearisation on the way or totals that go
        back into the rows, and where its C extension was built when the library was installed.
    memory_limit : int, optional
        Bytes that the fused reader may hold of sums and of chunks that it reads ahead. By default a quarter of the memory that the
        machine, or the container, has left, from 256 MiB to 8 GiB. A stored table is read once whatever it is: sums that have no
        room are kept in a temporary file. Totals that are brought down for packing come on top, some 0.3 MB each.
    checkpoint : path or URL, optional
        A folder for what is computed. A process that is interrupted and started again with the same circuit, rows and folder goes
        on from it; when the result is saved it is removed. For the fused reader.
    bounds : intervals, optional
        Between which every output is known to lie, where who wrote the circuit knows more than intervals tell.
    report : NoiseReport, optional
        A proof for at least these rows and outputs, made elsewhere: results of shards of a table add up when all of them are
        computed and packed in the way that one proof holds for.
    flood : bool, optional
        Hide the rows from who opens the totals, by noise: see :mod:`encryptedstats.crypto.flooding`. By default where rows were
        encrypted by others.
    """
    outputs, workers = list(outputs), checked_workers(workers)
    if not outputs or not all(output.is_total for output in outputs):
        raise TypeError("a circuit is evaluated to totals: write .total() for the sum over rows")
    if form not in (PACKED, REPLICATED, SLOTS):
        raise ValueError(f"form={form!r}: totals come 'packed', 'replicated' or in 'slots'")
    flood = not source.with_secret_key if flood is None else flood
    if form != PACKED and flood and source.with_secret_key:
        raise ValueError(f"form={form!r} shows rows, and flood=True hides them: form='packed'")
    if form != PACKED and not source.with_secret_key:
        raise ValueError(
            f"form={form!r} is for rows that the owner encrypted. These were encrypted by others, and who opens their totals is to "
            "learn nothing else of them: form='packed'"
        )
    facts = total_facts(outputs, source, bounds)
    if form == PACKED and not source.keys.packs:
        raise KeyMismatchError(
            "these public keys cannot pack totals: take owner.public_keys(packing=True), or form='slots' for one ciphertext a total"
        )
    if report is None:
        report = read_noise(
            outputs, source.parameters, source.layout, with_secret_key=source.with_secret_key, form=form, flooded=flood
        )
    job = _Job(outputs, source, report.strategy, form, start_level(outputs, source, report))
    fused = choose_engine(engine, outputs, source.parameters, report.strategy)
    if checkpoint is not None and not fused:
        why = obstacle(outputs, source.parameters, report.strategy) or "engine='seal' was asked for"
        raise ValueError(f"checkpoint= is for the fused reader, which is not taken here: {why}")
    found = job.run_fused(workers, progress, memory_limit, checkpoint) if fused else job.run(workers, progress)
    facts = [replace(f, offset=one.offset, each=one.each) for f, one in zip(facts, found, strict=True)]
    parts = [one.part for one in found]
    if form == PACKED:
        parts = pack_totals(source.keys, parts, report.width, workers)
    flooded = None if source.with_secret_key else False
    digest = circuit_digest(outputs)
    totals = EncryptedTotals(source.keys, form, facts, parts, report.width, flooded=flooded, circuit=digest)
    totals.check_decrypts()
    totals = totals.with_flooding() if flood else totals
    if checkpoint is not None:  # kept until they are stored
        totals.checkpoints = (checkpoint if is_url(os.fspath(checkpoint)) else os.path.abspath(checkpoint),)
    return totals


def evaluate_rows(outputs: Sequence[Expression], source: Source) -> list[EncryptedVector]:
    """Outputs over rows, as encrypted vectors."""
    outputs = list(outputs)
    bounds = read_bounds(outputs, source.ranges(), source.layout.n_rows, source.layout.n_chunks * source.layout.slots)
    facts = [bounds[output].largest for output in outputs]
    check_bounds(outputs, facts, source.parameters)
    strategy = read_noise(
        outputs, source.parameters, source.layout, with_secret_key=source.with_secret_key, form=SLOTS
    ).strategy
    machine, vectors = SealMachine(source), []
    for output, values in zip(outputs, Walk(machine, strategy, source.layout).outputs(outputs), strict=True):
        if isinstance(values, Total):
            raise TypeError(f"{output!r} is a total: evaluate() is for those")
        chunks = [machine.relinearise(value) for value in values]
        ciphertexts = [chunk.ciphertext for chunk in chunks]
        bound, depth = max(1, bounds[output].largest), depth_of([output])
        vectors.append(EncryptedVector(source.keys, ciphertexts, chunks[0].bound, bound, depth, source.layout.counts))
    return vectors


def total_facts(
    outputs: Sequence[Expression], source: Source, bounds: Sequence[Interval] | None = None
) -> list[TotalFacts]:
    """The proven bound of every total, refused where it does not fit below t/2."""
    layout = source.layout
    if bounds is None:
        found = read_bounds(outputs, source.ranges(), layout.n_rows, layout.n_chunks * layout.slots)
        bounds = [found[output] for output in outputs]
    facts = [TotalFacts(bound.low, bound.high) for bound in bounds]
    check_bounds(outputs, [max(abs(f.low), abs(f.high)) for f in facts], source.parameters)
    return facts


def check_bounds(outputs: Sequence[Expression | int], largest: Sequence[int], parameters: Parameters) -> None:
    """Only results have to fit: what is computed on the way is exact modulo t whatever its size."""
    for output, value in zip(outputs, largest, strict=True):
        if value > parameters.max_value:
            raise TooLargeError(
                f"{output!r} could reach ±{value:,}, and these parameters are exact up to ±{parameters.max_value:,}: ",
                Cure("larger values", f"choose max_value={value} or more, es.plan(...) does", {"value": value}),
            )


@dataclass(frozen=True)
class _Found:
    """A total as a process hands it back."""

    part: Part
    offset: int
    each: bool


def choose_engine(engine: str, outputs: Sequence[Expression], parameters: Parameters, strategy: Strategy) -> bool:
    """Whether the fused reader adds up the rows."""
    if engine not in ("auto", "fused", "seal"):
        raise ValueError(f"engine={engine!r}: there are 'auto', 'fused' and 'seal'")
    why_not = None if engine == "seal" else obstacle(outputs, parameters, strategy)
    if engine == "fused" and why_not is not None:
        raise ValueError(f"engine='fused' cannot do this: {why_not}")
    return engine != "seal" and why_not is None


@dataclass
class _Summed(Walk[SealValue]):
    """A walk that finds the sums over rows done."""

    sums: Mapping[Expression, Sum] = field(default_factory=dict)

    def _accumulate(self, totals: Sequence[Expression], padding: dict[Expression, int]) -> None:
        engine = engine_for(self.machine.parameters)
        for total in totals:
            value = SealValue(ciphertext_of(engine, self.sums[total].residues), self.sums[total].noise)
            self._totals[total] = Total(value, -padding[total] * self.layout.padding)


@dataclass(frozen=True)
class _Job:
    """One evaluation: batches of outputs, each walked by one process over all chunks, then packed."""

    outputs: list[Expression]
    source: Source
    strategy: Strategy
    form: str
    level: int = 0  # that the fused reader begins at

    def run(self, workers: int | None, progress: bool | None) -> list[_Found]:
        if any(node.op == MASK for node in in_order(self.outputs)):
            return self._run_masked(workers or cores(), progress)
        batches = batches_of(self.outputs)
        processes = min(len(batches), workers or cores())
        found: list[_Found] = []
        with progress_bar("computing", len(self.outputs), "totals", progress) as advance:
            # Batches go to the processes by number: expressions are inherited, not sent.
            for part in ordered_map(lambda number: self._batch(batches[number]), range(len(batches)), processes):
                found.extend(part)
                advance(len(part))
        return found

    def run_fused(
        self,
        workers: int | None,
        progress: bool | None,
        memory_limit: int | None,
        checkpoint: str | os.PathLike[str] | None,
    ) -> list[_Found]:
        """Totals come some at a time, and not in the order of the outputs."""
        found: dict[Expression, _Found] = {}
        with progress_bar("computing", self.source.layout.n_rows, "rows", progress) as advance:
            source = Lowered(self.source, self.level) if self.level else self.source
            batches = sums_in_batches(
                self.outputs,
                source,
                workers=workers,
                memory_limit=memory_limit,
                checkpoint=checkpoint,
                advance=advance,
            )
            for outputs, sums in batches:
                raised = {total: replace(one, noise=one.noise.at(self.level)) for total, one in sums.items()}
                found |= zip(outputs, self._finished(outputs, raised, workers), strict=True)
        return [found[output] for output in self.outputs]

    def _finished(self, outputs: list[Expression], sums: Mapping[Expression, Sum], workers: int | None) -> list[_Found]:
        """Totals from sums over rows: by the kernels where these can do all of it, else by SEAL in several processes."""
        keys, layout = self.source.keys, self.source.layout
        if self.form == PACKED and keys.kernels is not None and all(output in sums for output in outputs):
            parts = [Part(one.residues, one.noise) for one in sums.values()]
            lowered = dict(zip(sums, lower_totals(keys, parts, workers), strict=True))
            padding = padding_value(outputs)
            offsets = [-known_padding(output, padding) * layout.padding for output in outputs]
            return [_Found(lowered[o], offset, False) for o, offset in zip(outputs, offsets, strict=True)]
        # A few for each process: they inherit the sums, and hand back what is made of them.
        size = -(-len(outputs) // (4 * (workers or cores())))
        pieces = [outputs[start : start + size] for start in range(0, len(outputs), size)]
        finish = ordered_map(
            lambda number: self._batch(pieces[number], sums), range(len(pieces)), min(len(pieces), workers or cores())
        )
        return [one for piece in finish for one in piece]

    def _run_masked(self, workers: int, progress: bool | None) -> list[_Found]:
        """Totals of marked slots share what is marked, which is dear: first what is moved, then what is marked, then the totals."""
        layout = self.source.layout
        marked = list(dict.fromkeys((t.args[0].args[0], t.args[0].data.chunk) for t in in_totals(self.outputs)))
        moved = dict.fromkeys(
            (node, where)
            for page, chunk in marked
            for node, where in in_order_of_rows([page], chunk, layout)
            if node.op == RESAMPLE
        )
        size = max(1, min(_MASKED_AT_ONCE, -(-len(self.outputs) // workers)))
        pieces = [self.outputs[start : start + size] for start in range(0, len(self.outputs), size)]
        found: list[_Found] = []
        with progress_bar("drawing", len(moved) + len(marked) + len(self.outputs), "steps", progress) as advance:
            done: dict[tuple[Expression, int], SealValue] = {}
            for stage in (list(moved), marked):
                done |= self._rows_apart(stage, done, workers, advance)
            done = {key: done[key] for key in marked}
            results = ordered_map(
                lambda number: self._batch(pieces[number], computed=done), range(len(pieces)), workers
            )
            for part in results:
                found.extend(part)
                advance(len(part))
        return found

    def _rows_apart(
        self,
        nodes: list[tuple[Expression, int]],
        computed: dict[tuple[Expression, int], SealValue],
        workers: int,
        advance: Callable[[int], None],
    ) -> dict[tuple[Expression, int], SealValue]:
        """Nodes over chunks of rows, each by some process."""
        engine, machine = self.source.keys.engine, SealMachine(self.source)

        def one(number: int) -> Part:
            node, chunk = nodes[number]
            walk = Walk(machine, self.strategy, self.source.layout, computed=computed)
            value = walk.rows([node], chunk)[node]
            return Part(residues_of(engine, value.ciphertext), value.bound)

        found = {}
        for key, part in zip(nodes, ordered_map(one, range(len(nodes)), workers), strict=True):
            found[key] = SealValue(ciphertext_of(engine, part.residues), part.noise)
            advance(1)
        return found

    def _batch(
        self,
        outputs: list[Expression],
        sums: Mapping[Expression, Sum] | None = None,
        computed: dict[tuple[Expression, int], SealValue] | None = None,
    ) -> list[_Found]:
        machine = SealMachine(self.source)
        if sums is None:
            walk = Walk(machine, self.strategy, self.source.layout, computed=computed or {})
        else:
            walk = _Summed(machine, self.strategy, self.source.layout, sums=sums)
        engine = self.source.keys.engine
        found = []
        for output, total in zip(outputs, walk.outputs(outputs), strict=True):
            if not isinstance(total, Total):
                raise TypeError("only totals are evaluated here")
            if self.form == REPLICATED:
                total = Total(walk.replicated(output), each=True)
            value = machine.relinearise(total.value) if self.form != PACKED else total.value
            part = Part(residues_of(engine, value.ciphertext), value.bound)
            if self.form == PACKED:
                (part,) = lower_totals(self.source.keys, [part], workers=1)
            found.append(_Found(part, total.offset, total.each))
        return found
