"""The noise reader: whether a circuit is proven to decrypt with given parameters, how, and where it would not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from encryptedstats.circuits.expressions import PRODUCT, Expression, depth_of, in_order
from encryptedstats.circuits.layout import Layout
from encryptedstats.circuits.walk import FLAT, LEVELLED, Machine, Strategy, Total, Walk, plan_finish
from encryptedstats.crypto.noise import Noise
from encryptedstats.crypto.parameters import Parameters
from encryptedstats.errors import NoiseError

PACKED, REPLICATED, SLOTS = "packed", "replicated", "slots"


class NoiseMachine(Machine[Noise]):
    """A machine whose values are noise bounds. Results are remembered: thousands of nodes share a few dozen bounds."""

    def __init__(self, parameters: Parameters, *, with_secret_key: bool, chunks: int) -> None:
        super().__init__(parameters)
        self._fresh = self.model.fresh(with_secret_key=with_secret_key)
        self._products: dict[tuple[Noise, Noise], Noise] = {}
        self._switched: dict[tuple[Noise, int], Noise] = {}
        self.chunks = chunks

    def noise(self, value: Noise) -> Noise:
        """Itself."""
        return value

    def column(self, name: str, chunk: int) -> Noise:
        """A fresh ciphertext."""
        return self._fresh

    def add_up(self, terms: Sequence[tuple[int, Noise]], constant: int) -> Noise:
        """Bounds add, times their coefficients."""
        flat = sum(abs(c) * noise.flat for c, noise in terms)
        peak = sum(abs(c) * noise.peak for c, noise in terms)
        total = replace(terms[0][1], flat=flat, peak=peak, size=max(noise.size for _, noise in terms))
        return self.model.add_plain(total, constant=True) if constant else total

    def multiply(self, a: Noise, b: Noise) -> Noise:
        """The product rule of the scheme."""
        if (a, b) not in self._products:
            self._products[a, b] = self.model.multiply(a, b)
        return self._products[a, b]

    def relinearise(self, value: Noise) -> Noise:
        """What key switching adds."""
        return value if value.size == 2 else self.model.relinearise(value)

    def switch(self, value: Noise, level: int) -> Noise:
        """What modulus switching leaves."""
        if value.level == level:
            return value
        if (value, level) not in self._switched:
            self._switched[value, level] = self.model.switch(value, level)
        return self._switched[value, level]

    def rotate(self, value: Noise, step: int) -> Noise:
        """What key switching adds."""
        return self.model.key_switch(value)


@dataclass(frozen=True)
class NoiseReport:
    """A proof that a circuit decrypts: the strategy it holds for, and the bits to spare of its worst output."""

    strategy: Strategy
    budget: float
    packed: Noise | None


def read_noise(
    outputs: Sequence[Expression],
    parameters: Parameters,
    layout: Layout,
    *,
    with_secret_key: bool = True,
    form: str = PACKED,
) -> NoiseReport:
    """The proof for the cheapest strategy that has one.

    Raises
    ------
    NoiseError
        Where there is none; it names the node that binds and what it would take.
    """
    reports = [
        _try(outputs, parameters, layout, strategy, with_secret_key, form) for strategy in strategies(parameters)
    ]
    for report in reports:
        if report.budget >= 1.0:
            return report
    best = max(reports, key=lambda report: report.budget)
    raise NoiseError(_refusal(outputs, parameters, layout, best, with_secret_key, form))


def strategies(parameters: Parameters) -> tuple[Strategy, ...]:
    """The ways to walk, cheapest first. A BFV product costs more with every polynomial, so there is only one for it."""
    return (FLAT, LEVELLED) if parameters.scheme == "bgv" else (LEVELLED,)


def _try(
    outputs: Sequence[Expression],
    parameters: Parameters,
    layout: Layout,
    strategy: Strategy,
    with_secret_key: bool,
    form: str,
) -> NoiseReport:
    machine = NoiseMachine(parameters, with_secret_key=with_secret_key, chunks=layout.n_chunks)
    worst, packed = float("inf"), None
    for value in walked(machine, outputs, strategy, layout, form):
        noise = value.value if isinstance(value, Total) else value[0]
        if isinstance(value, Total) and form == PACKED:
            finish = plan_finish(parameters, noise, len(outputs))
            budget = -1.0 if finish is None else 1.0 + parameters.noise.budget(noise)
            if finish is not None and (packed is None or finish.noise.flat > packed.flat):
                packed = finish.noise
        else:
            budget = parameters.noise.budget(machine.relinearise(noise))
        worst = min(worst, budget)
    return NoiseReport(strategy, worst, packed)


def walked(
    machine: NoiseMachine, outputs: Sequence[Expression], strategy: Strategy, layout: Layout, form: str
) -> list[Total[Noise] | list[Noise]]:
    """The walk of a machine that only keeps account: one chunk stands for all, and totals add up as many as there are."""
    walk = _OneForAll(machine, strategy, layout, chunks=1)
    results = walk.outputs(outputs)
    if form == REPLICATED:
        return [walk._replicated(r) if isinstance(r, Total) else r for r in results]
    return results


class _OneForAll(Walk[Noise]):
    """Visits one chunk, and multiplies what a total gathers by the number of chunks."""

    def _accumulate(self, totals: Sequence[Expression], padding: dict[Expression, int]) -> None:
        super()._accumulate(totals, padding)
        for total in totals:
            gathered = self._totals[total]
            gathered.value = self.machine.model.sum(gathered.value, self.layout.n_chunks)


def _refusal(
    outputs: Sequence[Expression],
    parameters: Parameters,
    layout: Layout,
    best: NoiseReport,
    with_secret_key: bool,
    form: str,
) -> str:
    binding = _binding_node(outputs, parameters, layout, best.strategy, with_secret_key)
    what = (
        f"the binding step is {binding!r}" if binding is not None else f"its results cannot be brought into {form} form"
    )
    return (
        f"this circuit, {depth_of(outputs)} products deep over {layout.n_rows:,} rows, could not be proven to decrypt with "
        f"{parameters!r}: {what}. es.plan(...) finds parameters that carry it"
    )


def _binding_node(
    outputs: Sequence[Expression], parameters: Parameters, layout: Layout, strategy: Strategy, with_secret_key: bool
) -> Expression | None:
    """The first product (in order of computation) whose result is not proven to decrypt."""
    for node in in_order(outputs):
        if node.op != PRODUCT:
            continue
        machine = NoiseMachine(parameters, with_secret_key=with_secret_key, chunks=layout.n_chunks)
        value = walked(machine, [node], strategy, layout, SLOTS)[0]
        noise = value.value if isinstance(value, Total) else value[0]
        if not parameters.noise.decrypts(machine.relinearise(noise)):
            return node
    return None
