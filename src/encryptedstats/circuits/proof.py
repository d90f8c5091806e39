"""Prove that a circuit decrypts with some parameters, and find the schedule for which it does."""

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
    Schedule,
    Setting,
    Strategy,
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

# Bits that packs leave, so that 2^4 results of parts of a table can be added up encrypted.
ROOM_FOR_ADDING = 4.0
# Bits that rounding leaves at the resting level. A result with _ROOM bits to spare before is then
# still proven to decrypt there: 2^-3 + 2^-1.5 < 1/2.
_FLOOR = 3.0
_ROOM = 1.5


def room_for(parts: int, *, flooded: bool = False) -> float:
    """Return the bits that packs must leave if results of this many parts will be added up.

    Flooding is by whole bits.
    """
    bits = math.log2(max(1, parts))
    return max(ROOM_FOR_ADDING, float(math.ceil(bits)) if flooded else bits)


@dataclass(frozen=True)
class NoiseReport:
    """A proof that a circuit decrypts: its schedule, and the noise budget of its worst output.

    ``pack`` bounds the noise of packs, which are ``flooded`` or not.
    """

    schedule: Schedule
    budget: float
    pack: Noise | None = None
    flooded: bool = False

    @property
    def strategy(self) -> Strategy:
        return self.schedule.strategy

    @property
    def width(self) -> int:
        """Return the number of totals in a pack."""
        return self.schedule.width

    def with_width(self, width: int) -> NoiseReport:
        """Return the proof for narrower packs."""
        return replace(self, schedule=replace(self.schedule, width=width))


def read_noise(
    outputs: Sequence[Expression],
    setting: Setting,
    *,
    n_outputs: int | None = None,
    quick: bool = False,
) -> NoiseReport:
    """Return the proof for the cheapest strategy that has one.

    ``n_outputs`` is the number of packed outputs, if some stand for several. With ``quick``, rows
    are proven for the cheapest strategy only, and the error gives no reason.

    Raises
    ------
    NoiseError
        If there is no proof; it names the binding node and a remedy.
    """
    shapes, n_outputs = find_shapes(tuple(outputs)), n_outputs or len(outputs)
    settled = replace(setting, flooded=setting.floods, n_interleaved=setting.count_interleaved())
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


# Cached, because a plan proves its parameters once when it searches and once when it compiles.
@lru_cache(maxsize=16)
def _read_ways(
    shapes: Shapes, n_outputs: int, setting: Setting, tried: tuple[Strategy, ...]
) -> tuple[NoiseReport, ...]:
    """Report on each strategy; stop at the first proof unless later stages compute with
    the packs.
    """
    trial, reports = _Trial(shapes.collapsed, n_outputs, setting), list[NoiseReport]()
    needs_all = setting.form == PACKED and setting.parameters.kept_primes is not None
    for strategy in tried:
        reports.append(trial.report(setting.schedule(strategy)))
        if reports[-1].budget >= 1.0 and not needs_all:
            break
    return tuple(reports)


def prove_rows(
    outputs: Sequence[Expression], setting: Setting, *, quick: bool = False
) -> NoiseReport:
    """Return the proof for results over rows, which may use totals of given packs.

    Without given packs the model is decrypted and its numbers are coefficients. Its results are
    stored at one level for all such models, so there must be room for that; columns begin at the
    lowest level with a proof. Flooded results leave room for the flooding of the members of a
    joint key.

    Raises
    ------
    NoiseError
        If there is no proof.
    """
    parameters, packs = setting.parameters, setting.packs
    model = parameters.noise
    levels = (
        [max(noise.level for _, noise in packs)] if packs else range(resting_level(model), -1, -1)
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
            if packs:
                return report
            if report.budget >= _ROOM:
                return replace(report, schedule=replace(report.schedule, end=resting_level(model)))
            failure = NoiseError(
                f"not proven to decrypt with {_ROOM} bits to spare", code="not-proven"
            )
    raise failure or NoiseError("a circuit without columns", code="no-columns")


def resting_level(model: NoiseModel) -> int:
    """Return the level at which answers of decrypted models are stored.

    It has as few primes as leave room above the rounding noise.
    """
    levels = range(model.levels - 1, 0, -1)
    return next((level for level in levels if model.budget(model.rounding(2, level)) >= _FLOOR), 0)


def flooding_level(parameters: Parameters) -> int:
    """Return the level at which answers for rows are stored under a joint key.

    It has as few primes as leave room for flooding above the rounding noise.
    """
    model = parameters.noise
    levels = range(model.levels - 1, 0, -1)
    least = (
        model.budget(flooded_unpacked_noise(parameters, model.rounding(2, level)))
        for level in levels
    )
    return next((level for level, budget in zip(levels, least, strict=True) if budget >= _FLOOR), 0)


def resting_noise(model: NoiseModel) -> Noise:
    """Return the most noise that is proven to decrypt at the resting level.

    All answers of decrypted models state it, so that it tells nothing of their coefficients.
    """
    level = resting_level(model)
    return Noise(2.0 ** (model.budget(Noise(1.0, level=level)) - 1.001), level=level)


def lowest_start(
    outputs: Sequence[Expression], setting: Setting, report: NoiseReport
) -> NoiseReport:
    """Return a proof with columns at the lowest level that leaves packs about as little noise.

    Deeper computations under the same keys leave primes to spare. The report is returned as it is
    if switching leaves correction factors: totals of different degree would have different ones,
    and later stages would pay for them.
    """
    parameters = setting.parameters
    if (
        parameters.kept_primes is None
        or report.pack is None
        or report.schedule.strategy != FLAT
        or parameters.has_factors
    ):
        return report
    settled = Setting(
        parameters,
        setting.layout,
        setting.with_secret_key,
        flooded=report.flooded,
        n_interleaved=report.schedule.n_interleaved,
    )
    for level in range(len(parameters.data_moduli) - packing_primes(parameters) - 1, 0, -1):
        try:
            found = read_noise(outputs, replace(settled, level=level), quick=True)
        except NoiseError:
            continue
        if (
            found.pack is not None
            and replace(found.schedule, level=0) == replace(report.schedule, level=0)
            and found.pack.flat + found.pack.peak <= 2 * (report.pack.flat + report.pack.peak)
        ):
            return found
    return report


def _least_noisy(reports: Sequence[NoiseReport]) -> NoiseReport:
    """Return the first, hence cheapest, report whose packs have about as little noise as any."""
    noises = [
        math.inf if report.pack is None else report.pack.flat + report.pack.peak
        for report in reports
    ]
    return next(
        report for report, noise in zip(reports, noises, strict=True) if noise <= 4 * min(noises)
    )


def noisiest_outputs(outputs: Sequence[Expression], setting: Setting) -> list[Expression]:
    """Return the noisiest output for each size and level of a result, by the cheapest strategy."""
    alone = Setting(setting.parameters, setting.layout, setting.with_secret_key, n_interleaved=1)
    cheapest = strategies(setting.parameters)[0]
    found = Lowering(alone.rules, alone, alone.schedule(cheapest)).outputs(outputs)
    worst: dict[tuple[int, int], tuple[float, Expression]] = {}
    for output, result in zip(outputs, found, strict=True):
        noise = result.step.noise
        key, amount = (noise.size, noise.level), noise.flat + noise.peak
        if key not in worst or worst[key][0] < amount:
            worst[key] = amount, output
    return [output for _, output in worst.values()]


def strategies(parameters: Parameters) -> tuple[Strategy, ...]:
    """Return the strategies, cheapest first.

    BFV has only one, because each further polynomial makes its products more expensive.
    """
    return (FLAT, LEVELLED) if parameters.scheme == "bgv" else (LEVELLED,)


@dataclass(frozen=True)
class _Trial:
    """One attempt to prove some outputs."""

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

    def _lowering(self, schedule: Schedule) -> Lowering:
        return Lowering(self.rules, self.setting, schedule)

    def report(self, schedule: Schedule) -> NoiseReport:
        """Report on a schedule, proven or not."""
        parameters = self.setting.parameters
        lowering = self._lowering(
            replace(schedule, n_interleaved=1) if self.form == PACKED else schedule
        )
        found = lowering.outputs(self.outputs)
        noises = {lowering.relinearise(output.step).noise for output in found}
        budget = min(map(parameters.noise.budget, noises))
        if self.form == ROWS and self.flooded:
            return NoiseReport(
                schedule, min(budget, self._flooded_rows(lowering, found)), flooded=True
            )
        if self.form != PACKED:
            done = found if self.form == ROWS else lowering.finish(self.form, found).outputs
            noises |= {lowering.relinearise(output.step).noise for output in done}
            return NoiseReport(schedule, min(map(parameters.noise.budget, noises)))
        width = max(
            parameters.copies, 1 << packing_levels(min(self.n_outputs, parameters.ring_degree))
        )
        schedule = replace(schedule, width=width)
        worst = _worst_of_each_form(found)
        if schedule.n_interleaved > 1:
            worst = [_bound_interleaved(self.rules, worst, schedule.n_interleaved)]
        try:
            packs = {pack.noise for pack in lowering.finish(PACKED, worst).packs}
        except NoiseError:
            return NoiseReport(schedule, min(budget, 0.0))
        model = packing_model(parameters, packing_primes(parameters))
        if self.flooded:
            zero = encrypted_zero_noise(parameters)
            packs = {flooded_noise(model, noise, zero) for noise in packs}
        largest = Noise(max(noise.flat for noise in packs), max(noise.peak for noise in packs))
        return NoiseReport(schedule, min(budget, *map(model.budget, packs)), largest, self.flooded)

    def _flooded_rows(self, lowering: Lowering, found: Sequence[Output]) -> float:
        """Return the noise budget of answers for rows after the members' flooding."""
        parameters = self.setting.parameters
        model = parameters.noise
        try:
            ends = {lowering.reduce_row(model, output.step).noise for output in found}
        except NoiseError:
            return 0.0
        return min(model.budget(flooded_unpacked_noise(parameters, end)) for end in ends)

    def refusal(self, best: NoiseReport) -> tuple[object, ...]:
        """Explain why there is no proof: the binding node and a remedy."""
        binding = self._binding_node(best.schedule)
        what = f"its results have too much noise in the {self.form} form"
        cure: tuple[object, ...] = (
            ". ",
            Cure("plan", "es.plan(...)"),
            " finds parameters that carry it",
        )
        if binding is not None:
            what = f"the binding step is {binding!r}"
        elif self.flooded:
            what = "there is no room for the flooding that hides rows of contributors"
            cure = (
                ". Plan for such rows, ",
                Cure("plan for contributors", "es.plan(..., by_others=True)"),
            )
        elif self.form == PACKED:
            cure = (Cure("other form", ", form='slots' may do"), *cure)
        return (
            f"this circuit, {depth_of(self.outputs)} products deep over "
            f"{self.setting.layout.n_rows:,} "
            "rows, could not be proven to "
            f"decrypt with {self.setting.parameters!r}: {what}",
            *cure,
        )

    def _binding_node(self, schedule: Schedule) -> Expression | None:
        """Return the first node, in order of computation, that is not proven to decrypt."""
        lowering, model = self._lowering(schedule), self.setting.parameters.noise
        lowering.outputs(self.outputs)
        for node in in_order(self.outputs):
            step = lowering.totals[node].step if node.is_total else lowering.rows[node]
            if not model.decrypts(lowering.relinearise(step).noise):
                return node
        return None


def _worst_of_each_form(outputs: Sequence[Output]) -> list[Output]:
    """Return for each size and level one total with at least the noise of all outputs."""
    worst: dict[tuple[int, int], Noise] = {}
    for noise in {output.step.noise for output in outputs}:
        known = worst.get((noise.size, noise.level), noise)
        larger = replace(noise, flat=max(noise.flat, known.flat), peak=max(noise.peak, known.peak))
        worst[noise.size, noise.level] = larger
    return [Output(Step(SUM, (), None, noise, is_total=True)) for noise in worst.values()]


def _bound_interleaved(rules: NoiseRules, worst: Sequence[Output], n_interleaved: int) -> Output:
    """Return a total with at least the noise of any interleaving of these."""
    level = max(output.step.level for output in worst)
    noises = [rules.switch(output.step.noise, level) for output in worst]
    noise = replace(
        max(noises, key=lambda noise: noise.size),
        flat=n_interleaved * max(noise.flat for noise in noises),
        peak=n_interleaved * max(noise.peak for noise in noises),
    )
    return Output(Step(SUM, (), None, noise, is_total=True))
