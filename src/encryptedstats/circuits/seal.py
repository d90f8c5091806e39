"""The SEAL reader: the encrypted value of a circuit, operation by operation. The reference that faster readers must equal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from encryptedstats.circuits.bounds import ColumnRange, read_bounds
from encryptedstats.circuits.clear import known_padding
from encryptedstats.circuits.expressions import Expression, depth_of, padding_value
from encryptedstats.circuits.fused import Sum, obstacle, sums_in_batches
from encryptedstats.circuits.layout import Layout
from encryptedstats.circuits.noise import PACKED, REPLICATED, SLOTS, NoiseMachine, read_noise
from encryptedstats.circuits.results import EncryptedTotals, Part, TotalFacts
from encryptedstats.circuits.walk import BATCH, Finish, Machine, Strategy, Total, Walk, batches_of, plan_finish
from encryptedstats.crypto.engine import engine_for
from encryptedstats.crypto.keys import PublicKeys
from encryptedstats.crypto.noise import Noise
from encryptedstats.crypto.packing import (
    packed_noise,
    packing_levels,
    packing_model,
    packing_parameters,
    packing_primes,
    to_packing_context,
)
from encryptedstats.crypto.parameters import Parameters
from encryptedstats.crypto.residues import Residues, ciphertext_of, residues_of
from encryptedstats.crypto.vectors import EncryptedVector
from encryptedstats.errors import KeyMismatchError
from encryptedstats.parallel import cores, ordered_map
from encryptedstats.progress import progress_bar


class Source(Protocol):
    """What a circuit is evaluated on: an encrypted table, as far as circuits need to know it."""

    @property
    def parameters(self) -> Parameters:
        """The parameters of the ciphertexts."""

    @property
    def layout(self) -> Layout:
        """Where the rows lie."""

    @property
    def keys(self) -> PublicKeys:
        """The keys to compute with."""

    @property
    def with_secret_key(self) -> bool:
        """Whether the ciphertexts were made with the secret key, hence with less noise."""

    def ranges(self) -> dict[str, ColumnRange]:
        """What is publicly known of every column."""

    def residues(self, name: str, chunk: int) -> Residues:
        """A column over one chunk of rows."""


@dataclass(frozen=True)
class Sealed:
    """A ciphertext with its noise."""

    ciphertext: Any
    bound: Noise


class SealMachine(Machine[Sealed]):
    """A machine whose values are SEAL ciphertexts; the noise is kept by a :class:`NoiseMachine` beside it."""

    def __init__(self, source: Source) -> None:
        super().__init__(source.parameters)
        self._source = source
        self._keys = source.keys
        self._engine = source.keys.engine
        self._evaluator = source.keys.engine.evaluator
        self._account = NoiseMachine(source.parameters, with_secret_key=source.with_secret_key)

    def noise(self, value: Sealed) -> Noise:
        """The bound that goes with the ciphertext."""
        return value.bound

    def column(self, name: str, chunk: int) -> Sealed:
        """Load a column."""
        return Sealed(
            ciphertext_of(self._engine, self._source.residues(name, chunk)), self._account.column(name, chunk)
        )

    def add_up(self, terms: Sequence[tuple[int, Sealed]], constant: int) -> Sealed:
        """Additions and subtractions; coefficients beyond 1 by a plain constant."""
        noise = self._account.add_up([(c, value.bound) for c, value in terms], constant)
        try:
            return Sealed(self._combined([(c, value.ciphertext) for c, value in terms], constant), noise)
        except RuntimeError as error:
            if "transparent" not in str(error):
                raise
            raise ValueError(
                "a sum in this circuit is 0 whatever the table, its terms cancel: leave it out. (Its ciphertext would hide "
                "nothing, and is not made)"
            ) from error

    def _combined(self, terms: Sequence[tuple[int, Any]], constant: int) -> Any:
        # Begin with a positive term, so that nothing has to be negated.
        ordered = sorted(terms, key=lambda term: term[0] < 0)
        total: Any = None
        for coefficient, ciphertext in ordered:
            scaled = self._scaled(ciphertext, abs(coefficient))
            if total is None:
                total = scaled if coefficient > 0 else self._evaluator.negate(scaled)
            else:
                total = (self._evaluator.add if coefficient > 0 else self._evaluator.sub)(total, scaled)
        if constant:
            total = self._evaluator.add_plain(total, self._engine.encode_integer(constant))
        return total

    def _scaled(self, ciphertext: Any, factor: int) -> Any:
        if factor == 1:
            return ciphertext
        return self._evaluator.multiply_plain(ciphertext, self._engine.encode_integer(factor))

    def multiply(self, a: Sealed, b: Sealed) -> Sealed:
        """A product, or a square."""
        noise = self._account.multiply(a.bound, b.bound)
        if a is b:
            return Sealed(self._evaluator.square(a.ciphertext), noise)
        return Sealed(self._evaluator.multiply(a.ciphertext, b.ciphertext), noise)

    def relinearise(self, value: Sealed) -> Sealed:
        """Any size down to two polynomials, with the ordinary key."""
        if value.bound.size == 2:
            return value
        return Sealed(relinearise_any(self._keys, value.ciphertext), self._account.relinearise(value.bound))

    def switch(self, value: Sealed, level: int) -> Sealed:
        """Modulus switching."""
        if value.bound.level == level:
            return value
        lower = self._evaluator.mod_switch_to(value.ciphertext, self._engine.level_ids[level])
        return Sealed(lower, self._account.switch(value.bound, level))

    def rotate(self, value: Sealed, step: int) -> Sealed:
        """A rotation with its key."""
        return Sealed(self._keys.rotate(value.ciphertext, step), self._account.rotate(value.bound, step))


def relinearise_any(keys: PublicKeys, ciphertext: Any) -> Any:
    """Relinearise a ciphertext of any size with the key for s^2 alone.

    The top component c_k counts for c_k s^k = s^(k-2) (c_k s^2): so relinearise (0, 0, c_k) into (e0, e1) and add these to the
    components k-2 and k-1; repeat.
    """
    if ciphertext.size() == 3:
        return keys.relinearise(ciphertext)
    engine = keys.engine
    residues = residues_of(engine, ciphertext).copy()
    primes = engine.parameters.data_moduli[: residues.shape[1]]
    while len(residues) > 3:
        top = residues[-1:]
        switched = residues_of(engine, keys.relinearise(ciphertext_of(engine, _only_top(top))))
        residues = residues[:-1].copy()
        for prime, q in enumerate(primes):
            residues[-2:, prime] = (residues[-2:, prime] + switched[:, prime]) % q
    return keys.relinearise(ciphertext_of(engine, residues))


def _only_top(top: Residues) -> Residues:
    return np.concatenate([np.zeros_like(top), np.zeros_like(top), top])


# -- evaluating -----------------------------------------------------------------------------------------------------------


def evaluate(
    outputs: Sequence[Expression],
    source: Source,
    *,
    form: str = PACKED,
    workers: int | None = None,
    progress: bool | None = None,
    engine: str = "auto",
    memory_limit: int | None = None,
) -> EncryptedTotals:
    """The encrypted totals of a circuit. Checked before anything is computed: bounds against t, noise against q.

    Parameters
    ----------
    outputs : expressions, all of them totals
    source : an encrypted table
    form : "packed", "replicated" or "slots"
        Many totals in few ciphertexts; each in all slots of one; or unsummed, for the owner to add up.
    workers : int, optional
        Processes or threads; all cores by default.
    progress : bool, optional
        A progress bar; by default on a terminal.
    engine : "auto", "fused" or "seal"
        What adds up the rows: SEAL, operation by operation, or the fused reader, which gives the same residues many times faster.
        It is chosen where it can be: for BGV with data primes below 2^50, without relinearisation on the way or totals that go
        back into the rows, and where its C extension was built when the library was installed.
    memory_limit : int, optional
        Bytes that the fused reader may hold of sums and of chunks that it reads ahead, 1 GiB by default; with less of it than all
        sums take, the table is read several times.
    """
    outputs = list(outputs)
    if not outputs or not all(output.is_total for output in outputs):
        raise TypeError("a circuit is evaluated to totals: write .total() for the sum over rows")
    if form not in (PACKED, REPLICATED, SLOTS):
        raise ValueError(f"form={form!r}: totals come 'packed', 'replicated' or in 'slots'")
    facts = total_facts(outputs, source)
    if form == PACKED and not source.keys.packs:
        raise KeyMismatchError(
            "these public keys cannot pack totals: take owner.public_keys(packing=True), or form='slots' for one ciphertext a total"
        )
    report = read_noise(outputs, source.parameters, source.layout, with_secret_key=source.with_secret_key, form=form)
    job = _Job(outputs, source, report.strategy, form, report.width)
    found = job.run_fused(workers, progress, memory_limit) if _is_fused(engine, job) else job.run(workers, progress)
    facts = [replace(f, offset=one.offset, each=one.each) for f, one in zip(facts, found, strict=True)]
    parts = [one.part for one in found]
    if form == PACKED:
        parts = pack_totals(source.keys, parts, report.width, workers)
    return EncryptedTotals(source.keys, form, facts, parts, report.width)


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


def total_facts(outputs: Sequence[Expression], source: Source) -> list[TotalFacts]:
    """The proven bound of every total, refused where it does not fit below t/2."""
    layout = source.layout
    bounds = read_bounds(outputs, source.ranges(), layout.n_rows, layout.n_chunks * layout.slots)
    facts = [TotalFacts(bounds[output].low, bounds[output].high) for output in outputs]
    check_bounds(outputs, [max(abs(f.low), abs(f.high)) for f in facts], source.parameters)
    return facts


def check_bounds(outputs: Sequence[Expression], largest: Sequence[int], parameters: Parameters) -> None:
    """Only results have to fit: what is computed on the way is exact modulo t whatever its size."""
    for output, value in zip(outputs, largest, strict=True):
        if value > parameters.max_value:
            raise OverflowError(
                f"{output!r} could reach ±{value:,}, and these parameters are exact up to ±{parameters.max_value:,}: "
                f"choose max_value={value} or more, es.plan(...) does"
            )


@dataclass(frozen=True)
class _Found:
    """A total as a process hands it back."""

    part: Part
    offset: int
    each: bool


def _is_fused(engine: str, job: _Job) -> bool:
    """Whether the fused reader adds up the rows."""
    if engine not in ("auto", "fused", "seal"):
        raise ValueError(f"engine={engine!r}: there are 'auto', 'fused' and 'seal'")
    why_not = None if engine == "seal" else obstacle(job.outputs, job.source.parameters, job.strategy)
    if engine == "fused" and why_not is not None:
        raise ValueError(f"engine='fused' cannot do this: {why_not}")
    return engine != "seal" and why_not is None


@dataclass
class _Summed(Walk[Sealed]):
    """A walk that finds the sums over rows done."""

    sums: Mapping[Expression, Sum] = field(default_factory=dict)

    def _accumulate(self, totals: Sequence[Expression], padding: dict[Expression, int]) -> None:
        engine = engine_for(self.machine.parameters)
        for total in totals:
            value = Sealed(ciphertext_of(engine, self.sums[total].residues), self.sums[total].noise)
            self._totals[total] = Total(value, -padding[total] * self.layout.padding)


@dataclass(frozen=True)
class _Job:
    """One evaluation: batches of outputs, each walked by one process over all chunks, then packed."""

    outputs: list[Expression]
    source: Source
    strategy: Strategy
    form: str
    width: int

    def run(self, workers: int | None, progress: bool | None) -> list[_Found]:
        batches = batches_of(self.outputs)
        processes = min(len(batches), workers or cores())
        found: list[_Found] = []
        with progress_bar("computing", len(self.outputs), "totals", progress) as advance:
            # Batches go to the processes by number: expressions are inherited, not sent.
            for part in ordered_map(lambda number: self._batch(batches[number]), range(len(batches)), processes):
                found.extend(part)
                advance(len(part))
        return found

    def run_fused(self, workers: int | None, progress: bool | None, memory_limit: int | None) -> list[_Found]:
        found: list[_Found] = []
        work = len(self.outputs) * self.source.layout.n_rows
        with progress_bar("computing", work, "rows x totals", progress) as advance:
            batches = sums_in_batches(
                self.outputs, self.source, workers=workers, memory_limit=memory_limit, advance=advance
            )
            for outputs, sums in batches:
                found += self._finished(outputs, sums, workers)
        return found

    def _finished(self, outputs: list[Expression], sums: Mapping[Expression, Sum], workers: int | None) -> list[_Found]:
        """Totals from sums over rows: by the kernels where these can do all of it, else by SEAL in several processes."""
        keys, layout = self.source.keys, self.source.layout
        if self.form == PACKED and keys.kernels is not None and all(output in sums for output in outputs):
            parts = [Part(one.residues, one.noise) for one in sums.values()]
            lowered = dict(zip(sums, lower_totals(keys, parts, self.width, workers), strict=True))
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

    def _batch(self, outputs: list[Expression], sums: Mapping[Expression, Sum] | None = None) -> list[_Found]:
        machine = SealMachine(self.source)
        if sums is None:
            walk = Walk(machine, self.strategy, self.source.layout)
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
                (part,) = lower_totals(self.source.keys, [part], self.width, workers=1)
            found.append(_Found(part, total.offset, total.each))
        return found


def lower_totals(keys: PublicKeys, totals: Sequence[Part], width: int, workers: int | None = None) -> list[Part]:
    """Sums over rows, of any size, brought down to the primes of the packing context: by the kernels, or else by SEAL."""
    parameters, model = keys.parameters, keys.parameters.noise
    plans = [plan_finish(parameters, part.noise, width) for part in totals]
    finishes = [finish for finish in plans if finish is not None]
    if len(finishes) < len(plans):
        raise AssertionError("the noise reader has accepted what cannot be packed")
    residues: Iterable[Residues]
    if keys.kernels is not None:
        levels = [finish.relinearise_at for finish in finishes]
        residues = keys.kernels.lower([part.residues for part in totals], levels, workers)
    else:
        residues = [_lowered(keys, part, finish) for part, finish in zip(totals, finishes, strict=True)]
    noises = [
        model.switch(model.relinearise(model.switch(part.noise, finish.relinearise_at)), finish.level)
        for part, finish in zip(totals, finishes, strict=True)
    ]
    return [Part(low, noise) for low, noise in zip(residues, noises, strict=True)]


def _lowered(keys: PublicKeys, part: Part, finish: Finish) -> Residues:
    engine = keys.engine
    ciphertext, level = ciphertext_of(engine, part.residues), part.noise.level
    if level < finish.relinearise_at:
        ciphertext = engine.evaluator.mod_switch_to(ciphertext, engine.level_ids[finish.relinearise_at])
    if ciphertext.size() > 2:
        ciphertext = relinearise_any(keys, ciphertext)
    if finish.relinearise_at < finish.level:
        ciphertext = engine.evaluator.mod_switch_to(ciphertext, engine.level_ids[finish.level])
    return residues_of(engine, ciphertext)


def pack_totals(keys: PublicKeys, totals: Sequence[Part], width: int, workers: int | None = None) -> list[Part]:
    """Lowered totals merged, up to ``width`` into one ciphertext of the packing context."""
    return [_packed(keys, totals[start : start + width], workers) for start in range(0, len(totals), width)]


def _packed(keys: PublicKeys, totals: Sequence[Part], workers: int | None) -> Part:
    """One pack, by the kernels or else by SEAL: every process packs every so-manieth total, and what they bring is merged."""
    parameters, engine = keys.parameters, keys.engine
    small = engine_for(packing_parameters(parameters))
    model = packing_model(parameters, packing_primes(parameters))
    worst = max((part.noise for part in totals), key=model.coefficient_bound)
    noise = packed_noise(model, Noise(worst.flat, worst.peak), len(totals))
    if keys.kernels is not None and keys.packs:
        return Part(keys.kernels.pack([part.residues for part in totals], threads=workers), noise)
    share = _largest_power_of_two(min(workers or cores(), len(totals))) if len(totals) > BATCH else 1

    def pack_share(first: int) -> Residues:
        chosen = [to_packing_context(engine, ciphertext_of(engine, part.residues)) for part in totals[first::share]]
        levels = packing_levels(len(totals)) - (share.bit_length() - 1)
        return residues_of(small, keys.pack(chosen, levels))

    shares = [ciphertext_of(small, r) for r in ordered_map(pack_share, range(share), share)]
    return Part(residues_of(small, keys.merge(shares, packing_levels(len(totals)))), noise)


def _largest_power_of_two(at_most: int) -> int:
    return 1 << (at_most.bit_length() - 1)
