"""The proof: whether a circuit decrypts with given parameters, how it has to be lowered for that,
and where it would not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from encryptedstats.circuits.expressions import Expression, depth_of, in_order
from encryptedstats.circuits.lowering import (
    FLAT,
    LEVELLED,
    Lowering,
    Setting,
    Strategy,
    Way,
)
from encryptedstats.circuits.noise import NoiseRules
from encryptedstats.circuits.program import PACKED, ROWS, SUM, Output, Step
from encryptedstats.circuits.shapes import Shapes, find_shapes
from encryptedstats.crypto.flooding import flooded_noise
from encryptedstats.crypto.noise import Noise, NoiseModel
from encryptedstats.crypto.packing import (
    encrypted_zero_noise,
    flooded_unpacked_noise,
    packing_levels,
    packing_model,
    packing_primes,
)
from encryptedstats.crypto.parameters import Parameters
from encryptedstats.errors import Cure, NoiseError

# Bits that packs should leave, so that the results of so many parts of a table (2 to this power)
# can be added up encrypted.
ROOM_FOR_ADDING = 4.0
_FLOOR = (
    3.0  # bits that rounding has to leave at the level that plain models' answers are stored at ...
)
# ... so that what has these bits left is still proven to decrypt there: 2^-3 + 2^-1.5 < 1/2
_ROOM = 1.5


def room_for(parts: int, *, flooded: bool = False) -> float:
    """Bits that packs have to leave where the results of so many parts of a table will be added up;
    flooding is by whole bits.
    """
    bits = math.log2(max(1, parts))
    return max(ROOM_FOR_ADDING, float(math.ceil(bits)) if flooded else bits)


@dataclass(frozen=True)
class NoiseReport:
    """A proof that a circuit decrypts: the way it is lowered, and the bits to spare of its worst
    output.

    ``pack`` bounds the noise of packs, which are ``flooded`` or not.
    """

    way: Way
    budget: float
    pack: Noise | None = None
    flooded: bool = False

    @property
    def strategy(self) -> Strategy:
        """What is done about growing ciphertexts."""
        return self.way.strategy

    @property
    def width(self) -> int:
        """Totals in a pack."""
        return self.way.width

    def with_width(self, width: int) -> NoiseReport:
        """The same for packs of so many totals: no more than it was made for."""
        return replace(self, way=replace(self.way, width=width))


def read_noise(
    outputs: Sequence[Expression],
    setting: Setting,
    *,
    n_outputs: int | None = None,
    quick: bool = False,
) -> NoiseReport:
    """Return the proof for the cheapest strategy that has one.

    ``n_outputs`` says how many are packed, if some stand for more. With ``quick``, rows are proven
    for the cheapest strategy or not at all, and nobody finds out why not.

    Raises
    ------
    NoiseError
        Where there is none; it names the node that binds and what it would take.
    """
    shapes, n_outputs = find_shapes(tuple(outputs)), n_outputs or len(outputs)
    settled = replace(setting, flooded=setting.floods, beside=setting.interleaved)
    tried = strategies(setting.parameters)[: 1 if quick and setting.form == ROWS else None]
    reports = _read_ways(shapes, n_outputs, settled, tried)
    proven = [report for report in reports if report.budget >= 1.0]
    if proven:
        return proven[0] if len(proven) == 1 else _least_noisy(proven)
    if quick:
        raise NoiseError("not proven", code="not-proven")
    best = max(reports, key=lambda report: report.budget)
    trial = _Trial(shapes.representatives, n_outputs, settled)
    raise NoiseError(*trial.refusal(best), code="not-proven")


# A plan proves what it found once more when it compiles it.
@lru_cache(maxsize=16)
def _read_ways(
    shapes: Shapes, n_outputs: int, setting: Setting, tried: tuple[Strategy, ...]
) -> tuple[NoiseReport, ...]:
    """Report what each strategy would leave; where packs are not computed on with, up to the first
    that is proven.
    """
    trial, reports = _Trial(shapes.collapsed, n_outputs, setting), list[NoiseReport]()
    needs_all = setting.form == PACKED and setting.parameters.kept_primes is not None
    for strategy in tried:
        reports.append(trial.report(setting.way(strategy)))
        if reports[-1].budget >= 1.0 and not needs_all:
            break
    return tuple(reports)


def prove_rows(
    outputs: Sequence[Expression], setting: Setting, *, quick: bool = False
) -> NoiseReport:
    """Return the proof for rows beside totals out of given packs; without totals, at the lowest
    level that has one.

    Without totals the numbers of a model are coefficients. Then there must be room to store the
    results at the level where those of any such model are. Flooded rows leave room for what the
    members of a joint key add when they open the answers: these end where there is some.

    Raises
    ------
    NoiseError
        Where there is none.
    """
    parameters, given = setting.parameters, setting.given
    model = parameters.noise
    levels = (
        [max(noise.level for _, noise in given)] if given else range(resting_level(model), -1, -1)
    )
    failure: NoiseError | None = None
    end = flooding_level(parameters) if setting.flooded else None
    for level in levels:
        try:
            tried = replace(setting, form=ROWS, flooded=bool(setting.flooded), level=level, end=end)
            report = read_noise(outputs, tried, quick=quick)
        except NoiseError as error:
            failure = error
        else:
            if given:
                return report
            if report.budget >= _ROOM:
                return replace(report, way=replace(report.way, end=resting_level(model)))
            failure = NoiseError(
                f"not proven to decrypt with {_ROOM} bits to spare", code="not-proven"
            )
    raise failure or NoiseError("a circuit without columns", code="no-columns")


def resting_level(model: NoiseModel) -> int:
    """Where answers of plain models are stored: as few primes as leave room above what rounding
    does to any ciphertext.
    """
    levels = range(model.levels - 1, 0, -1)
    return next((level for level in levels if model.budget(model.rounding(2, level)) >= _FLOOR), 0)


def flooding_level(parameters: Parameters) -> int:
    """Where answers for rows end that the members of a joint key open: as few primes as leave room
    for flooding above rounding.
    """
    model = parameters.noise
    levels = range(model.levels - 1, 0, -1)
    least = (
        model.budget(flooded_unpacked_noise(parameters, model.rounding(2, level)))
        for level in levels
    )
    return next((level for level, budget in zip(levels, least, strict=True) if budget >= _FLOOR), 0)


def resting_noise(model: NoiseModel) -> Noise:
    """As much noise as is proven to decrypt at the resting level: what is said of every plain
    model's answers.
    """
    level = resting_level(model)
    return Noise(2.0 ** (model.budget(Noise(1.0, level=level)) - 1.001), level=level)


def lowest_start(
    outputs: Sequence[Expression], setting: Setting, report: NoiseReport
) -> NoiseReport:
    """Return the proof with columns begun at the lowest level that leaves packs about as little
    noise: deeper computations have left primes to spare.

    Not where switching leaves factors: totals of different degree would have different ones, and
    those who compute on with them would pay for it.
    """
    parameters = setting.parameters
    if (
        parameters.kept_primes is None
        or report.pack is None
        or report.way.strategy != FLAT
        or parameters.has_factors
    ):
        return report
    settled = Setting(
        parameters,
        setting.layout,
        setting.with_secret_key,
        flooded=report.flooded,
        beside=report.way.beside,
    )
    for level in range(len(parameters.data_moduli) - packing_primes(parameters) - 1, 0, -1):
        try:
            found = read_noise(outputs, replace(settled, level=level), quick=True)
        except NoiseError:
            continue
        if (
            found.pack is not None
            and replace(found.way, level=0) == replace(report.way, level=0)
            and found.pack.flat + found.pack.peak <= 2 * (report.pack.flat + report.pack.peak)
        ):
            return found
    return report


def _least_noisy(reports: Sequence[NoiseReport]) -> NoiseReport:
    """Where packs are computed on with: the cheapest way (the first) that leaves about as little
    noise in them as any.
    """
    noises = [
        math.inf if report.pack is None else report.pack.flat + report.pack.peak
        for report in reports
    ]
    return next(
        report for report, noise in zip(reports, noises, strict=True) if noise <= 4 * min(noises)
    )


def noisiest_outputs(outputs: Sequence[Expression], setting: Setting) -> list[Expression]:
    """Return the output with the most noise for each size and level of a result, by the cheapest
    strategy.
    """
    alone = Setting(setting.parameters, setting.layout, setting.with_secret_key, beside=1)
    cheapest = strategies(setting.parameters)[0]
    found = Lowering(alone.rules, alone, alone.way(cheapest)).outputs(outputs)
    worst: dict[tuple[int, int], tuple[float, Expression]] = {}
    for output, result in zip(outputs, found, strict=True):
        noise = result.step.noise
        key, amount = (noise.size, noise.level), noise.flat + noise.peak
        if key not in worst or worst[key][0] < amount:
            worst[key] = amount, output
    return [output for _, output in worst.values()]


def strategies(parameters: Parameters) -> tuple[Strategy, ...]:
    """What can be done about growing ciphertexts, cheapest first. A BFV product costs more with
    every polynomial, so there is only one way for it.
    """
    return (FLAT, LEVELLED) if parameters.scheme == "bgv" else (LEVELLED,)


@dataclass(frozen=True)
class _Trial:
    """Some outputs that are tried to be proven."""

    outputs: list[Expression]
    n_outputs: int
    setting: Setting

    @cached_property
    def rules(self) -> NoiseRules:
        return self.setting.rules

    @property
    def form(self) -> str:
        return self.setting.form

    @property
    def flooded(self) -> bool:
        return self.setting.floods

    def _lowering(self, way: Way) -> Lowering:
        return Lowering(self.rules, self.setting, way)

    def report(self, way: Way) -> NoiseReport:
        """What a way would leave, proven or not."""
        parameters = self.setting.parameters
        lowering = self._lowering(replace(way, beside=1) if self.form == PACKED else way)
        found = lowering.outputs(self.outputs)
        noises = {lowering.relinearise(output.step).noise for output in found}
        budget = min(map(parameters.noise.budget, noises))
        if self.form == ROWS and self.flooded:
            return NoiseReport(way, min(budget, self._flooded_rows(lowering, found)), flooded=True)
        if self.form != PACKED:
            done = found if self.form == ROWS else lowering.finished(self.form, found).outputs
            noises |= {lowering.relinearise(output.step).noise for output in done}
            return NoiseReport(way, min(map(parameters.noise.budget, noises)))
        width = max(
            parameters.copies, 1 << packing_levels(min(self.n_outputs, parameters.ring_degree))
        )
        way = replace(way, width=width)
        worst = _worst_of_each_form(found)
        if way.beside > 1:
            worst = [_all_side_by_side(self.rules, worst, way.beside)]
        try:
            packs = {pack.noise for pack in lowering.finished(PACKED, worst).packs}
        except NoiseError:
            return NoiseReport(way, min(budget, 0.0))
        model = packing_model(parameters, packing_primes(parameters))
        if self.flooded:
            zero = encrypted_zero_noise(parameters)
            packs = {flooded_noise(model, noise, zero) for noise in packs}
        largest = Noise(max(noise.flat for noise in packs), max(noise.peak for noise in packs))
        return NoiseReport(way, min(budget, *map(model.budget, packs)), largest, self.flooded)

    def _flooded_rows(self, lowering: Lowering, found: Sequence[Output]) -> float:
        """The bits to spare of answers for rows once the members of a joint key have flooded them,
        at the level they end at.
        """
        parameters = self.setting.parameters
        model = parameters.noise
        try:
            ends = {lowering.ended(model, output.step).noise for output in found}
        except NoiseError:
            return 0.0
        return min(model.budget(flooded_unpacked_noise(parameters, end)) for end in ends)

    def refusal(self, best: NoiseReport) -> tuple[object, ...]:
        """Why there is no proof: the node that binds, and what it would take."""
        binding = self._binding_node(best.way)
        what = f"its results cannot be brought into {self.form} form"
        cure: tuple[object, ...] = (
            ". ",
            Cure("plan", "es.plan(...)"),
            " finds parameters that carry it",
        )
        if binding is not None:
            what = f"the binding step is {binding!r}"
        elif self.flooded:
            what = (
                "rows that others encrypted are hidden from who opens a result by noise, and "
                "there is no room for it"
            )
            cure = (
                ". Plan for such rows, ",
                Cure("plan for rows of others", "es.plan(..., by_others=True)"),
            )
        elif self.form == PACKED:
            cure = (Cure("other form", ", form='slots' may do"), *cure)
        return (
            f"this circuit, {depth_of(self.outputs)} products deep over {self.setting.layout.n_rows:,} "
            "rows, could not be proven to "
            f"decrypt with {self.setting.parameters!r}: {what}",
            *cure,
        )

    def _binding_node(self, way: Way) -> Expression | None:
        """The first node (in order of computation) that is not proven to decrypt."""
        lowering, model = self._lowering(way), self.setting.parameters.noise
        lowering.outputs(self.outputs)
        for node in in_order(self.outputs):
            step = lowering.totals[node].step if node.is_total else lowering.rows[node]
            if not model.decrypts(lowering.relinearise(step).noise):
                return node
        return None


def _worst_of_each_form(outputs: Sequence[Output]) -> list[Output]:
    """One total above all that have the same size and level: what can be packed from it can be from
    any of them.
    """
    worst: dict[tuple[int, int], Noise] = {}
    for noise in {output.step.noise for output in outputs}:
        known = worst.get((noise.size, noise.level), noise)
        larger = replace(noise, flat=max(noise.flat, known.flat), peak=max(noise.peak, known.peak))
        worst[noise.size, noise.level] = larger
    return [Output(Step(SUM, (), None, noise, is_total=True)) for noise in worst.values()]


def _all_side_by_side(rules: NoiseRules, worst: Sequence[Output], beside: int) -> Output:
    """One total above what any so many of these are, side by side."""
    level = max(output.step.level for output in worst)
    noises = [rules.switch(output.step.noise, level) for output in worst]
    noise = replace(
        max(noises, key=lambda noise: noise.size),
        flat=beside * max(noise.flat for noise in noises),
        peak=beside * max(noise.peak for noise in noises),
    )
    return Output(Step(SUM, (), None, noise, is_total=True))
