"""Evaluating a circuit on an encrypted table: checked first, lowered to a program, run by a device, brought into a form."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from encryptedstats.circuits.bounds import Interval, read_bounds
from encryptedstats.circuits.devices import AUTO, Device, Run, checked_name, device_for
from encryptedstats.circuits.expansion import check_packed, expand_totals, expansion_scales, noise_once_expanded
from encryptedstats.circuits.expressions import REPLICATE, Expression, circuit_digest, in_order
from encryptedstats.circuits.program import (
    ADD_UP,
    GIVEN,
    PACK,
    PACKED,
    REPLICATED,
    ROWS,
    SLOTS,
    Program,
    Step,
    before_descent,
)
from encryptedstats.circuits.proof import (
    NoiseReport,
    lowest_start,
    program_of,
    prove_rows,
    read_noise,
    resting_noise,
)
from encryptedstats.circuits.results import EncryptedNumbers, NumberFacts, Part
from encryptedstats.circuits.rewriting import cleared, followed
from encryptedstats.circuits.sources import Source
from encryptedstats.crypto.noise import Noise
from encryptedstats.crypto.packing import packing_primes
from encryptedstats.crypto.parameters import Parameters
from encryptedstats.crypto.residues import Residues
from encryptedstats.errors import Cure, DeviceError, KeyMismatchError, NoiseError, TooLargeError
from encryptedstats.parallel import checked_workers
from encryptedstats.progress import progress_bar
from encryptedstats.storage.objects import is_url

_HELD: Final = 256 << 20  # bytes of expanded totals that a batch of rows may hold beside what all batches need
Packs = Mapping[str, EncryptedNumbers]


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
    told: Sequence[Interval] | None = None,
    ones: Expression | None = None,
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
        room are kept in a temporary file. Totals that are brought down for packing come on top, some 0.3 MB each.
    checkpoint : path or URL, optional
        A folder for what is computed. A process that is interrupted and started again with the same circuit, rows and folder goes
        on from it; when the result is saved it is removed. For devices that can.
    bounds : intervals, optional
        Between which every output is known to lie, where who wrote the circuit knows more than intervals tell.
    told : intervals, optional
        What the result says of its numbers, where that is to be less than is known here.
    ones : expression, optional
        Of rows: what is 1 in all of them and 0 in padding, as of :func:`encryptedstats.circuits.rewriting.cleared`.
    report : NoiseReport, optional
        A proof for at least these rows and outputs, made elsewhere: results of shards of a table add up when all of them are
        computed and packed in the way that one proof holds for.
    flood : bool, optional
        Hide the rows from who opens the totals, by noise: see :mod:`encryptedstats.crypto.flooding`. By default where rows were
        encrypted by others.
    """
    workers, given = checked_workers(workers), given or {}
    checked_name(device)
    ready = prepare(
        outputs, source, form=form, given=given, bounds=bounds, told=told, ones=ones, report=report, flood=flood
    )
    chosen = device_for(device, ready.program)
    why_not = None if checkpoint is None else chosen.checkpoint_obstacle(ready.program)
    if why_not is not None:
        raise DeviceError(f"checkpoint= cannot be kept here: {why_not}")
    job = _Job(ready.program, source, given, chosen, Run(workers, memory_limit, checkpoint, progress))
    if form == ROWS:
        return EncryptedNumbers(source.keys, ROWS, ready.facts, job.rows(), counts=source.layout.counts)
    return _totals(ready, job, checkpoint)


def _totals(ready: Prepared, job: _Job, checkpoint: str | os.PathLike[str] | None) -> EncryptedNumbers:
    program, source = ready.program, job.source
    flooded = None if source.with_secret_key else False
    totals = EncryptedNumbers(
        source.keys, program.form, ready.facts, job.totals(), program.width, None, flooded, ready.circuit
    )
    totals.check_decrypts()
    totals = totals.with_flooding() if ready.flood else totals
    if checkpoint is not None:  # kept until they are stored
        totals.checkpoints = (checkpoint if is_url(os.fspath(checkpoint)) else os.path.abspath(checkpoint),)
    return totals


# -- before anything is computed ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Prepared:
    """A circuit that may be evaluated: its program, and what is known of its numbers."""

    program: Program
    facts: list[NumberFacts]
    circuit: str | None
    flood: bool


def prepare(
    outputs: Sequence[Expression | int],
    source: Source,
    *,
    form: str = PACKED,
    given: Packs | None = None,
    bounds: Sequence[Interval] | None = None,
    told: Sequence[Interval] | None = None,
    ones: Expression | None = None,
    report: NoiseReport | None = None,
    flood: bool | None = None,
) -> Prepared:
    """All checks of :func:`evaluate`; no row is read for them."""
    given, keys, outputs = given or {}, source.keys, list(outputs)
    for packs in given.values():
        keys.check_same(packs.keys)
        check_packed(packs)
    flood = not source.with_secret_key and form != ROWS if flood is None else flood
    _check_form(outputs, source, form, flood)
    facts = number_facts(outputs, source, bounds)
    exact = cleared(outputs, ones) if form == ROWS else [o for o in outputs if isinstance(o, Expression)]
    scaled, factors = _followed(exact, source.parameters, given)
    noises = {name: noise_once_expanded(packs) for name, packs in given.items()}
    if report is None:
        report = _proof(scaled, source, form, noises, flood)
    program = program_of(
        scaled,
        source.parameters,
        source.layout,
        form,
        report,
        with_secret_key=source.with_secret_key,
        given=noises,
    )
    if told is not None:
        facts = [replace(f, low=bound.low, high=bound.high) for f, bound in zip(facts, told, strict=True)]
    t, ring = source.parameters.plain_modulus, source.parameters.ring_degree
    found = [
        replace(f, offset=output.offset, factor=factor * (ring if output.each else 1) % t)
        for f, output, factor in zip(facts, program.outputs, factors, strict=True)
    ]
    return Prepared(program, found, None if form == ROWS else circuit_digest(exact), flood)


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


def _followed(
    outputs: Sequence[Expression], parameters: Parameters, given: Packs
) -> tuple[list[Expression], list[int]]:
    """The circuits with the factors of given totals made up for, and the factors that they have themselves."""
    if not given:
        return list(outputs), [1] * len(outputs)
    t = parameters.plain_modulus
    factors = {name: expansion_scales(packs) for name, packs in given.items()}
    # A stored sum plus its offset is the number times its factor: so much does the number itself lack.
    offsets = {name: [f.offset * pow(f.factor, -1, t) % t for f in packs.facts] for name, packs in given.items()}
    pairs = followed(outputs, factors, t, offsets)
    return [circuit for circuit, _ in pairs], [factor for _, factor in pairs]


def _proof(
    outputs: Sequence[Expression], source: Source, form: str, given: Mapping[str, Noise], flood: bool
) -> NoiseReport:
    parameters, layout, own = source.parameters, source.layout, source.with_secret_key
    if form == ROWS:
        return _row_proof(outputs, source, given)
    level = max((noise.level for noise in given.values()), default=0)
    report = read_noise(
        outputs, parameters, layout, with_secret_key=own, form=form, given=given, level=level, flooded=flood
    )
    return report if given else lowest_start(outputs, parameters, layout, report, with_secret_key=own)


def _row_proof(outputs: Sequence[Expression], source: Source, given: Mapping[str, Noise]) -> NoiseReport:
    parameters = source.parameters
    try:
        return prove_rows(outputs, parameters, source.layout, given, with_secret_key=source.with_secret_key)
    except NoiseError as error:
        if given and parameters.kept_primes is None:
            raise NoiseError(
                f"totals that were packed with {parameters!r} are to be opened, not to be computed on with: make keys for a "
                "model that predicts unopened, ",
                Cure("keys that predict", "es.Owner(es.plan(..., encrypted_prediction=True))"),
                ", and encrypt with those",
            ) from error
        raise NoiseError(f"{error}. ", *_why_unproven(outputs, source, given)) from error


def _why_unproven(outputs: Sequence[Expression], source: Source, given: Mapping[str, Noise]) -> tuple[str | Cure, ...]:
    """Why keys do not carry a prediction; often they were planned for rows that the secret key encrypts, and others did."""
    others = Cure("plan for others", "es.plan(..., encrypted_prediction=True, by_others=True)")
    if not source.with_secret_key:
        with suppress(NoiseError):
            prove_rows(outputs, source.parameters, source.layout, given, with_secret_key=True)
            return (
                "The cause: these rows were encrypted with public keys, which makes more noise, and the keys were planned for rows "
                "that the secret key encrypts. Keys for both: ",
                others,
            )
    return (
        "A prediction takes keys that were planned for it, ",
        Cure("plan prediction", "es.plan(..., encrypted_prediction=True)"),
        "; and if rows of the model or these were encrypted with public keys, keys that were planned for that: ",
        others,
    )


def number_facts(
    outputs: Sequence[Expression | int], source: Source, bounds: Sequence[Interval] | None = None
) -> list[NumberFacts]:
    """The proven bound of every output, refused where it does not fit below t/2."""
    layout = source.layout
    if bounds is None:
        expressions = [output for output in outputs if isinstance(output, Expression)]
        found = read_bounds(expressions, source.ranges(), layout.n_rows, layout.n_chunks * layout.slots)
        bounds = [found[o] if isinstance(o, Expression) else Interval.of(o) for o in outputs]
    check_bounds(outputs, [bound.largest for bound in bounds], source.parameters)
    return [NumberFacts(bound.low, bound.high) for bound in bounds]


def check_bounds(outputs: Sequence[Expression | int], largest: Sequence[int], parameters: Parameters) -> None:
    """Only results have to fit: what is computed on the way is exact modulo t whatever its size."""
    for output, value in zip(outputs, largest, strict=True):
        if value > parameters.max_value:
            raise TooLargeError(
                f"{output!r} could reach ±{value:,}, and these parameters are exact up to ±{parameters.max_value:,}: ",
                Cure("larger values", f"choose max_value={value} or more, es.plan(...) does", {"value": value}),
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
        program = self.program
        supply = _Supply(
            self.given, [step for step in program.steps if step.op == GIVEN], self.device, self.run.workers
        )
        supply.fetch(set(supply.steps))
        if program.form == PACKED:
            packs = self.device.packs(program, self.source, supply.held, self.run)
            return [
                Part(self._checked(merged, pack), pack.noise)
                for pack, merged in zip(program.packs, packs, strict=True)
            ]
        found: dict[Step, Residues] = {}
        for some in self.device.totals(program, self.source, supply.held, self.run):
            found |= {step: self._checked(residues, step) for step, residues in some.items()}
        missing = [output for output in program.outputs if output.step not in found]
        if missing:
            raise self._faulty(f"it gives {len(program.outputs) - len(missing)} of {len(program.outputs)} totals")
        return [Part(found[output.step], output.step.noise) for output in program.outputs]

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
        """For each number a ciphertext a chunk: batches of terms with the given totals they need, added up over all chunks."""
        program, chunks = self.program, range(self.source.layout.n_chunks)
        bases = [before_descent(output.step) for output in program.outputs]
        batches = self._batches(bases)
        sums: dict[tuple[int, int], Residues] = {}
        with progress_bar(
            "predicting", max(1, sum(len(needed) for _, needed in batches)), "totals", self.run.progress
        ) as advance:
            found = self.device.rows(self._supplied(batches), self.source, self.run)
            for pieces, needed in batches:
                for chunk in chunks:
                    here = next(found, [])
                    if len(here) != len(pieces):
                        raise self._faulty(f"it gives {len(here)} of {len(pieces)} numbers")
                    for number, residues in zip(pieces, here, strict=True):
                        known = sums.get((number, chunk))
                        sums[number, chunk] = residues if known is None else self._added(known, residues)
                advance(len(needed))
        return [
            self._row_part(output.step, base, sums[number, chunk])
            for number, (output, base) in enumerate(zip(program.outputs, bases, strict=True))
            for chunk in chunks
        ]

    def _row_part(self, step: Step, base: Step, residues: Residues) -> Part:
        """Two polynomials under as few primes as are proven to decrypt; of a plain model, as noisy as any is said to be."""
        (done,) = self.device.bring_down([step], {base: residues}, self.source.keys, self.run.workers)
        said = step.noise if self.given else resting_noise(self.source.parameters.noise)
        return Part(self._checked(done, step), said)

    def _supplied(
        self, batches: Sequence[tuple[dict[int, Step], set[Step]]]
    ) -> Iterator[tuple[list[Step], Mapping[Step, Residues]]]:
        """Every batch with the totals that it needs, expanded when it is its turn."""
        every = [step for step in self.program.steps if step.op == GIVEN]
        supply = _Supply(self.given, every, self.device, self.run.workers)
        for number, (pieces, needed) in enumerate(batches):
            supply.fetch(needed)
            yield list(pieces.values()), supply.held
            supply.forget(keep={step for _, later in batches[number + 1 :] for step in later})

    def _batches(self, outputs: Sequence[Step]) -> list[tuple[dict[int, Step], set[Step]]]:
        """Pieces of the outputs, by number, with the totals that they need: outputs are sums, and a piece has some of the terms."""
        primes = len(self.program.parameters.data_moduli) - max(step.level for step in outputs)
        most = max(16, _HELD // (16 * primes * self.program.parameters.ring_degree))
        terms = [
            (min(map(self._place, needed), default=(0, 0)), number, coefficient, term, needed)
            for number, output in enumerate(outputs)
            for coefficient, term, needed in _terms(output)
        ]
        terms.sort(key=lambda entry: entry[:2])
        batches: list[tuple[dict[int, list[tuple[int, Step]]], set[Step]]] = []
        for _, number, coefficient, term, needed in terms:
            if not batches or len(batches[-1][1] | needed) > most:
                batches.append(({}, set()))
            batches[-1][0].setdefault(number, []).append((coefficient, term))
            batches[-1][1].update(needed)
        return [({n: _sum_of(found) for n, found in grouped.items()}, needed) for grouped, needed in batches]

    def _place(self, step: Step) -> tuple[int, int]:
        name, index = step.data
        return index * 1_000_000 // max(1, len(self.given[name])), index

    def _added(self, a: Residues, b: Residues) -> Residues:
        """The sum of ciphertexts of whatever sizes, at one level."""
        if len(a) < len(b):
            a, b = b, a
        residues, shared = np.array(a), len(b)
        for i, prime in enumerate(self.program.parameters.data_moduli[: residues.shape[1]]):
            total = residues[:shared, i] + b[:, i]
            residues[:shared, i] = np.where(total >= np.uint64(prime), total - np.uint64(prime), total)
        return residues


def _terms(output: Step) -> Iterator[tuple[int, Step, set[Step]]]:
    """The terms of a sum, each with the given totals that it needs; a sum with a plain number is one term."""
    pairs = [(1, output)]
    if output.op == ADD_UP and not output.data[1]:
        pairs = list(zip(output.data[0], output.args, strict=True))
    for coefficient, term in pairs:
        yield coefficient, term, {step for step in in_order([term]) if step.op == GIVEN}


def _sum_of(terms: Sequence[tuple[int, Step]]) -> Step:
    (coefficient, term), *others = terms
    if coefficient == 1 and not others:
        return term
    args = tuple(term for _, term in terms)
    noise = replace(term.noise, size=max(arg.size for arg in args))  # that of the whole sum was proven
    return Step(ADD_UP, args, (tuple(c for c, _ in terms), 0), noise)


@dataclass
class _Supply:
    """Expanded totals: fetched in order, held as long as they are needed."""

    packs: Packs
    steps: Sequence[Step]
    device: Device
    workers: int | None
    held: dict[Step, Residues] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.used = {step.data: step for step in self.steps}
        wanted: dict[str, set[int]] = {name: set() for name in self.packs}
        for name, index in self.used:
            wanted[name].add(index)
        self._streams = {
            name: expand_totals(totals, wanted[name], self.device, self.workers) for name, totals in self.packs.items()
        }

    def fetch(self, steps: set[Step]) -> None:
        """Expand until these are there."""
        for step in sorted(steps - set(self.held), key=lambda step: step.data[1]):
            name = step.data[0]
            while step not in self.held:
                index, residues = next(self._streams[name])
                if (name, index) in self.used:
                    self.held[self.used[name, index]] = residues

    def forget(self, keep: set[Step]) -> None:
        """Let go of what is not needed any more."""
        for step in set(self.held) - keep:
            del self.held[step]
