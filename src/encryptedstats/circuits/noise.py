"""The noise reader: whether a circuit is proven to decrypt with given parameters, how, and where it would not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from encryptedstats.circuits.expressions import COLUMN, LINEAR, PRODUCT, Expression, depth_of, fold, in_order
from encryptedstats.circuits.layout import Layout
from encryptedstats.circuits.walk import FLAT, LEVELLED, Machine, Strategy, Total, Walk, plan_finish
from encryptedstats.crypto.noise import Noise
from encryptedstats.crypto.packing import packing_levels
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
    """A proof that a circuit decrypts: the strategy it holds for, and the bits to spare of its worst output.

    ``width`` is how many totals one ciphertext can be packed with: merging costs noise, so less can be all there is.
    """

    strategy: Strategy
    budget: float
    width: int


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
    n_outputs, outputs = len(outputs), representatives(outputs)
    reports = []
    for strategy in strategies(parameters):
        reports.append(_try(outputs, n_outputs, parameters, layout, strategy, with_secret_key, form))
        if reports[-1].budget >= 1.0:
            return reports[-1]
    best = max(reports, key=lambda report: report.budget)
    raise NoiseError(_refusal(outputs, parameters, layout, best, with_secret_key, form))


def strategies(parameters: Parameters) -> tuple[Strategy, ...]:
    """The ways to walk, cheapest first. A BFV product costs more with every polynomial, so there is only one for it."""
    return (FLAT, LEVELLED) if parameters.scheme == "bgv" else (LEVELLED,)


def representatives(outputs: Sequence[Expression]) -> list[Expression]:
    """One output of every shape: noise does not depend on which columns are computed with, only on how."""
    shapes: dict[object, int] = {}

    def rule(node: Expression, args: list[int]) -> int:
        data: object = None
        if node.op == LINEAR:
            coefficients, constant = node.data
            data = (tuple(sorted(zip(map(abs, coefficients), args, strict=True))), bool(constant))
        elif node.op == PRODUCT:
            data = (*sorted(args), node.args[0] is node.args[1])
        elif node.op != COLUMN:
            data = (*args, node.data)
        return shapes.setdefault((node.op, data, node.is_total), len(shapes))

    found = fold(outputs, rule)
    kept: dict[int, Expression] = {}
    for output in outputs:
        kept.setdefault(found[output], output)
    return list(kept.values())


def _try(
    outputs: Sequence[Expression],
    n_outputs: int,
    parameters: Parameters,
    layout: Layout,
    strategy: Strategy,
    with_secret_key: bool,
    form: str,
) -> NoiseReport:
    machine = NoiseMachine(parameters, with_secret_key=with_secret_key, chunks=layout.n_chunks)
    results = walked(machine, outputs, strategy, layout, form)
    noises = [result.value if isinstance(result, Total) else result[0] for result in results]
    budget = min(parameters.noise.budget(machine.relinearise(noise)) for noise in noises)
    if form != PACKED:
        return NoiseReport(strategy, budget, 1)
    width = _pack_width(parameters, set(noises), n_outputs)
    return NoiseReport(strategy, budget if width else min(budget, 0.0), width)


def _pack_width(parameters: Parameters, noises: set[Noise], n_outputs: int) -> int:
    """The most totals (a power of two) that one ciphertext can be packed with; 0 where not even one can be lowered."""
    width = 1 << packing_levels(min(n_outputs, parameters.ring_degree))
    while width and not all(plan_finish(parameters, noise, width) for noise in noises):
        width //= 2
    return width


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
