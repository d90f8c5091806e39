"""Compile expressions into a program that any device can run, with the proof that it decrypts.

:func:`compile_outputs` is the only function from expressions to a program. A plan prices its result
and an evaluation runs it: the same outputs under the same :class:`Conditions` give the same program
with the same digest.

This module imports expressions, passes, lowering and proofs, and nothing of tables, devices or
models.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial, reduce
from operator import add

from encryptedstats.circuits.bounds import ColumnRange, Interval, bound_outputs
from encryptedstats.circuits.expressions import MASK, Expression, circuit_digest, in_order
from encryptedstats.circuits.layout import Layout
from encryptedstats.circuits.lowering import Setting, lower
from encryptedstats.circuits.passes.batching import HELD
from encryptedstats.circuits.passes.correction_factors import GivenFactors, apply_correction_factors
from encryptedstats.circuits.passes.duplicates import deduplicate
from encryptedstats.circuits.passes.masks import join_masks
from encryptedstats.circuits.passes.padding import clear_padding
from encryptedstats.circuits.program import PACKED, ROWS, Program
from encryptedstats.circuits.proof import (
    NoiseReport,
    lowest_start,
    prove_rows,
    read_noise,
)
from encryptedstats.circuits.residue_local import find_residue_obstacle
from encryptedstats.circuits.results import EncryptedNumbers, NumberFacts
from encryptedstats.crypto.flooding import flooded_noise
from encryptedstats.crypto.noise import Noise
from encryptedstats.crypto.packing import (
    centre,
    encrypted_zero_noise,
    expansion_scale,
    packing_model,
    packing_primes,
)
from encryptedstats.crypto.parameters import Parameters
from encryptedstats.errors import Cure, NoiseError, TooLargeError
from encryptedstats.machine import paused_collection


@dataclass(frozen=True)
class GivenPacks:
    """The public facts of packs that a program computes with.

    Attributes
    ----------
    name : str
        The name in expressions.
    noise : Noise
        A bound for every pack, at the level of the primes that packs keep.
    factors, offsets : tuple of int
        The factor of each expanded total modulo t, and the number to add to it.
    places : tuple of int
        The place of each total; equal totals share one.
    """

    name: str
    noise: Noise
    factors: tuple[int, ...]
    offsets: tuple[int, ...]
    places: tuple[int, ...]

    @classmethod
    def of_numbers(cls, name: str, totals: EncryptedNumbers) -> GivenPacks:
        parameters, noises = totals.keys.parameters, [part.noise for part in totals.parts]
        return cls._of(name, parameters, noises, totals.facts, totals.places)

    @classmethod
    def of_compiled(cls, name: str, shards: Sequence[Compiled], *, floods: bool) -> GivenPacks:
        """Describe the packs that a compiled program will give, or the sum of several shards."""
        parameters = shards[0].program.parameters
        of_shards = zip(*([p.noise for p in one.program.packs] for one in shards), strict=True)
        noises = [reduce(add, of_one) for of_one in of_shards]
        if floods:
            model = packing_model(parameters, packing_primes(parameters))
            zero = encrypted_zero_noise(parameters)
            noises = [flooded_noise(model, noise, zero) for noise in noises]
        of_totals = zip(*(one.facts for one in shards), strict=True)
        facts = [replace(one[0], offset=sum(f.offset for f in one)) for one in of_totals]
        return cls._of(name, parameters, noises, facts, shards[0].places)

    @classmethod
    def _of(
        cls,
        name: str,
        parameters: Parameters,
        noises: Sequence[Noise],
        facts: Sequence[NumberFacts],
        places: Sequence[int],
    ) -> GivenPacks:
        t, scale = parameters.plain_modulus, expansion_scale(parameters)
        worst = Noise(max(noise.flat for noise in noises), max(noise.peak for noise in noises))
        noise = worst.at(len(parameters.data_moduli) - packing_primes(parameters))
        factors = tuple(one.factor * scale % t for one in facts)
        # sum + offset = number * factor, so an expanded sum lacks offset / factor.
        offsets = tuple(one.offset * pow(one.factor, -1, t) % t for one in facts)
        return cls(name, noise, factors, offsets, tuple(places))


@dataclass(frozen=True)
class Conditions:
    """The inputs of a program besides its outputs: public facts of keys, rows and packs.

    Attributes
    ----------
    parameters : Parameters
    layout : Layout
    ranges : tuple of (str, ColumnRange)
        The public range of each column.
    with_secret_key : bool
        Whether the owner encrypted the rows.
    form : "packed", "replicated", "slots" or "rows"
    packs : tuple of GivenPacks
        Packs of earlier programs that the outputs use.
    bounds : tuple of Interval, optional
        Bounds of the outputs that are sharper than interval arithmetic.
    reported_bounds : tuple of Interval, optional
        Wider bounds that the result states instead.
    report : NoiseReport, optional
        A proof for at least these rows and outputs, so that shards are computed alike.
    flood : bool, optional
        Whether noise hides the rows from the receiver; by default if others encrypted them.
    held : int
        Bytes of expanded totals that may be held at once.
    n_interleaved : int, optional
        How many totals are interleaved; by default as many as the parameters have copies.
    """

    parameters: Parameters
    layout: Layout
    ranges: tuple[tuple[str, ColumnRange], ...]
    with_secret_key: bool
    form: str = PACKED
    packs: tuple[GivenPacks, ...] = ()
    bounds: tuple[Interval, ...] | None = None
    reported_bounds: tuple[Interval, ...] | None = None
    report: NoiseReport | None = None
    flood: bool | None = None
    held: int = HELD
    n_interleaved: int | None = None

    @property
    def is_joint(self) -> bool:
        return self.parameters.members > 1

    @property
    def floods(self) -> bool:
        """Return whether results hide the rows behind them.

        Answers for rows go to the owner of the rows, who may see them. Answers under a joint key
        are flooded by the members who open them.
        """
        if self.flood is not None:
            return self.flood
        return not self.with_secret_key and (self.form != ROWS or self.is_joint)

    @property
    def given_factors(self) -> GivenFactors:
        return GivenFactors(
            {one.name: one.factors for one in self.packs},
            {one.name: one.offsets for one in self.packs},
            self.parameters.plain_modulus,
        )

    @property
    def setting(self) -> Setting:
        packs = tuple((one.name, one.noise) for one in self.packs)
        level = max((noise.level for _, noise in packs), default=0)
        return Setting(
            self.parameters,
            self.layout,
            self.with_secret_key,
            self.form,
            packs,
            self.n_interleaved,
            self.floods,
            0 if self.form == ROWS else level,
        )


@dataclass(frozen=True)
class Compiled:
    """A program and the public facts of its results.

    Attributes
    ----------
    program : Program
        Equal outputs are computed and packed once.
    facts : tuple of NumberFacts
        One for each requested output.
    places : tuple of int
        The place of each output in the packs.
    wanted : tuple of Expression
        The requested outputs, before rewriting.
    floods : bool
        Whether the worker floods the packs.
    """

    program: Program
    facts: tuple[NumberFacts, ...]
    places: tuple[int, ...]
    wanted: tuple[Expression, ...]
    floods: bool = False

    @property
    def digest(self) -> str:
        """Return the hash of the program, which plan and evaluation share."""
        return self.program.digest

    @cached_property
    def circuit(self) -> str | None:
        """Return a digest of the circuit, independent of keys; None for answers for rows."""
        return None if self.program.form == ROWS else circuit_digest(self.wanted)

    @property
    def residue_obstacle(self) -> str | None:
        """Say why no spot check can recompute single residues of the sums; None if it can."""
        return find_residue_obstacle(self.program)


# Equal expressions are one object, so outputs that are written again find their program.
@lru_cache(maxsize=16)
@paused_collection()
def compile_outputs(outputs: tuple[Expression | int, ...], conditions: Conditions) -> Compiled:
    """Return the cheapest program that computes `outputs` and is proven to decrypt.

    Raises
    ------
    TooLargeError
        If an output could wrap around modulo t.
    NoiseError
        If no schedule is proven to decrypt with these parameters. The error names the binding step.
    """
    parameters, form = conditions.parameters, conditions.form
    facts = find_facts(outputs, conditions)
    if form == ROWS:
        wanted = distinct = clear_padding(outputs)
        positions = list(range(len(wanted)))
    else:
        wanted = [output for output in outputs if isinstance(output, Expression)]
        distinct, positions = deduplicate(wanted)
    scaled, factors = apply_correction_factors(distinct, conditions.given_factors)
    proof = conditions.report
    if proof is None and any(node.op == MASK for node in in_order(scaled)):
        joined = join_masks(scaled)
        with suppress(NoiseError):  # rarely the joined circuit has more noise than was planned for
            proof, scaled = _prove(joined, conditions), joined
    report = _prove(scaled, conditions) if proof is None else proof
    places = {one.name: one.places for one in conditions.packs}
    program = lower(
        scaled, conditions.setting, report.schedule, held=conditions.held, places=places
    )
    if conditions.reported_bounds is not None:
        pairs = zip(facts, conditions.reported_bounds, strict=True)
        facts = [replace(one, low=bound.low, high=bound.high) for one, bound in pairs]
    t, slots = parameters.plain_modulus, parameters.slots
    found = []
    for one, position in zip(facts, positions, strict=True):
        output, factor = program.outputs[position], factors[position]
        found.append(
            replace(
                one,
                offset=centre(output.offset * output.step.factor, t),
                factor=factor * (slots if output.each else 1) * output.step.factor % t,
            )
        )
    return Compiled(
        program,
        tuple(found),
        tuple(program.places[position] if program.places else position for position in positions),
        tuple(wanted),
        conditions.floods and not conditions.is_joint,
    )


def find_facts(outputs: Sequence[Expression | int], conditions: Conditions) -> list[NumberFacts]:
    """Return the proven bounds of all outputs, and refuse any that does not fit below t/2."""
    bounds: Sequence[Interval] | None = conditions.bounds
    if bounds is None:
        layout = conditions.layout
        bounds = bound_outputs(tuple(outputs), conditions.ranges, layout.n_rows, layout.n_places)
    check_bounds(outputs, [bound.largest for bound in bounds], conditions.parameters)
    return [NumberFacts(bound.low, bound.high) for bound in bounds]


def check_bounds(
    outputs: Sequence[Expression | int], largest: Sequence[int], parameters: Parameters
) -> None:
    """Refuse results that may not fit. Intermediate values are exact modulo t, however large."""
    for output, value in zip(outputs, largest, strict=True):
        if value > parameters.max_value:
            raise TooLargeError(
                f"{output!r} could reach ±{value:,}, and these parameters are exact up to "
                f"±{parameters.max_value:,}: ",
                Cure(
                    "larger values",
                    f"choose max_value={value} or more, es.plan(...) does",
                    {"value": value},
                ),
            )


# -- the proof
# ---------------------------------------------------------------------------------------


def _prove(outputs: Sequence[Expression], conditions: Conditions) -> NoiseReport:
    if conditions.form == ROWS:
        return _prove_rows(outputs, conditions)
    setting = conditions.setting
    prove = partial(read_noise, outputs)
    try:
        report = _prove_interleaved(prove, setting)
    except NoiseError:
        if not conditions.is_joint:
            raise
        # A later stage may compute with these totals; members refuse to open them.
        report = prove(replace(setting, flooded=False))
    return report if conditions.packs else lowest_start(outputs, setting, report)


def _prove_interleaved(prove: Callable[[Setting], NoiseReport], setting: Setting) -> NoiseReport:
    """Prove interleaved totals; a circuit that was not planned may need totals one by one."""
    try:
        return prove(setting)
    except NoiseError:
        if setting.parameters.copies == 1 or setting.n_interleaved == 1:
            raise
        return prove(replace(setting, n_interleaved=1))


def _prove_rows(outputs: Sequence[Expression], conditions: Conditions) -> NoiseReport:
    parameters, packs = conditions.parameters, conditions.packs
    try:
        return _prove_interleaved(partial(prove_rows, outputs), conditions.setting)
    except NoiseError as error:
        if packs and parameters.kept_primes is None:
            raise refuse_further_computation(parameters) from error
        raise NoiseError(
            f"{error}. ", *_explain_unproven(outputs, conditions), code="not-proven"
        ) from error


def refuse_further_computation(parameters: Parameters) -> NoiseError:
    """Return the error for packs that have no room for a prediction."""
    return NoiseError(
        f"totals that were packed with {parameters!r} leave no room to predict with an encrypted "
        "model: open the model, or make keys with ",
        Cure("keys that predict", "es.Owner(es.plan(..., encrypted_prediction=True))"),
        " and encrypt with them",
    )


def _explain_unproven(
    outputs: Sequence[Expression], conditions: Conditions
) -> tuple[str | Cure, ...]:
    """Say why keys do not carry a prediction; often they were planned for the owner's rows."""
    others = Cure("plan for others", "es.plan(..., encrypted_prediction=True, by_others=True)")
    if not conditions.with_secret_key:
        with suppress(NoiseError):
            prove_rows(outputs, replace(conditions.setting, with_secret_key=True, flooded=False))
            return (
                "These rows were encrypted with public keys, which makes more noise, and the keys "
                "were planned for rows that the secret key encrypts. Plan with ",
                others,
            )
    return (
        "Predicting with an encrypted model needs keys from ",
        Cure("plan prediction", "es.plan(..., encrypted_prediction=True)"),
        ", and if any rows were encrypted with public keys, from ",
        others,
    )
