"""The SEAL reader: the encrypted value of a circuit, operation by operation. The reference that faster readers must equal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from encryptedstats.circuits.bounds import ColumnRange, read_bounds
from encryptedstats.circuits.expressions import RESAMPLE, Expression, in_order
from encryptedstats.circuits.layout import Layout
from encryptedstats.circuits.noise import PACKED, REPLICATED, SLOTS, NoiseMachine, read_noise
from encryptedstats.circuits.results import EncryptedTotals, Part, TotalFacts
from encryptedstats.circuits.walk import Machine, Strategy, Total, Walk, plan_finish, stages_of
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
from encryptedstats.parallel import cores, ordered_map
from encryptedstats.progress import progress_bar

# Totals that are accumulated side by side: bounds the memory, and is a batch of work for a process.
_BATCH = 56


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
        self._account = NoiseMachine(source.parameters, with_secret_key=source.with_secret_key, chunks=1)

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
        # Begin with a positive term, so that nothing has to be negated.
        ordered = sorted(terms, key=lambda term: term[0] < 0)
        total: Any = None
        for coefficient, value in ordered:
            scaled = self._scaled(value.ciphertext, abs(coefficient))
            if total is None:
                total = scaled if coefficient > 0 else self._evaluator.negate(scaled)
            else:
                total = (self._evaluator.add if coefficient > 0 else self._evaluator.sub)(total, scaled)
        if constant:
            total = self._evaluator.add_plain(total, self._engine.encode_integer(constant))
        return Sealed(total, noise)

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
) -> EncryptedTotals:
    """The encrypted totals of a circuit. Checked before anything is computed: bounds against t, noise against q.

    Parameters
    ----------
    outputs : expressions, all of them totals
    source : an encrypted table
    form : "packed", "replicated" or "slots"
        Many totals in few ciphertexts; each in all slots of one; or unsummed, for the owner to add up.
    workers : int, optional
        Processes; all cores by default.
    progress : bool, optional
        A progress bar; by default on a terminal.
    """
    outputs = list(outputs)
    if not outputs or not all(output.is_total for output in outputs):
        raise TypeError("a circuit is evaluated to totals: write .total() for the sum over rows")
    facts = total_facts(outputs, source)
    if form == PACKED and not source.keys.packs:
        form = SLOTS
    report = read_noise(outputs, source.parameters, source.layout, with_secret_key=source.with_secret_key, form=form)
    found = _Job(outputs, source, report.strategy, form, report.width).run(workers, progress)
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
    vectors = []
    for output, values in zip(
        outputs, Walk(SealMachine(source), strategy, source.layout).outputs(outputs), strict=True
    ):
        if isinstance(values, Total):
            raise TypeError(f"{output!r} is a total: evaluate() is for those")
        noise = values[0].bound
        ciphertexts = [value.ciphertext for value in values]
        counts = source.layout.counts
        vectors.append(EncryptedVector(source.keys, ciphertexts, noise, max(1, bounds[output].largest), 0, counts))
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


@dataclass(frozen=True)
class _Job:
    """One evaluation: batches of outputs, each walked by one process over all chunks, then packed."""

    outputs: list[Expression]
    source: Source
    strategy: Strategy
    form: str
    width: int

    def run(self, workers: int | None, progress: bool | None) -> list[_Found]:
        batches = [list(range(i, min(i + _BATCH, len(self.outputs)))) for i in range(0, len(self.outputs), _BATCH)]
        alone = len(batches) == 1 or self._has_stages
        if alone:
            batches = [list(range(len(self.outputs)))]
        processes = 1 if alone else min(len(batches), workers or cores())
        found: list[_Found] = []
        with progress_bar("computing", len(self.outputs), "totals", progress) as advance:
            for part in ordered_map(self._batch, batches, processes):
                found.extend(part)
                advance(len(part))
        return found

    @property
    def _has_stages(self) -> bool:
        return max(stages_of(self.outputs).values()) > 0 or any(n.op == RESAMPLE for n in in_order(self.outputs))

    def _batch(self, indices: list[int]) -> list[_Found]:
        machine = SealMachine(self.source)
        walk = Walk(machine, self.strategy, self.source.layout)
        engine = self.source.keys.engine
        found = []
        for total in walk.outputs([self.outputs[i] for i in indices]):
            if not isinstance(total, Total):
                raise TypeError("only totals are evaluated here")
            if self.form == REPLICATED:
                total = walk._replicated(total)
            value = machine.relinearise(total.value) if self.form != PACKED else self._lowered(machine, total.value)
            part = Part(residues_of(engine, value.ciphertext), value.bound)
            found.append(_Found(part, total.offset, total.each))
        return found

    def _lowered(self, machine: SealMachine, value: Sealed) -> Sealed:
        finish = plan_finish(self.source.parameters, value.bound, self.width)
        if finish is None:
            raise AssertionError("the noise reader has accepted what cannot be packed")
        low = machine.relinearise(machine.switch(value, finish.relinearise_at))
        return machine.switch(low, finish.level)


def pack_totals(keys: PublicKeys, totals: Sequence[Part], width: int, workers: int | None = None) -> list[Part]:
    """Lowered totals merged, up to ``width`` into one ciphertext of the packing context."""
    return [_packed(keys, totals[start : start + width], workers) for start in range(0, len(totals), width)]


def _packed(keys: PublicKeys, totals: Sequence[Part], workers: int | None) -> Part:
    """One pack. Every process packs every so-manieth total; what they bring is merged like any other halves."""
    parameters, engine = keys.parameters, keys.engine
    small = engine_for(packing_parameters(parameters))
    model = packing_model(parameters, packing_primes(parameters))
    worst = max((part.noise for part in totals), key=model.coefficient_bound)
    noise = packed_noise(model, Noise(worst.flat, worst.peak), len(totals))
    share = _largest_power_of_two(workers or cores()) if len(totals) > _BATCH else 1

    def pack_share(first: int) -> Residues:
        chosen = [to_packing_context(engine, ciphertext_of(engine, part.residues)) for part in totals[first::share]]
        levels = packing_levels(len(totals)) - (share.bit_length() - 1)
        return residues_of(small, keys.pack(chosen, levels))

    shares = [ciphertext_of(small, r) for r in ordered_map(pack_share, range(share), share)]
    return Part(residues_of(small, keys.merge(shares, packing_levels(len(totals)))), noise)


def _largest_power_of_two(at_most: int) -> int:
    return 1 << (at_most.bit_length() - 1)
