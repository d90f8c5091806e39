"""The noise reader: whether a circuit is proven to decrypt with given parameters, how, and where it would not."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from encryptedstats.circuits.expressions import (
    COLUMN,
    LINEAR,
    MASK,
    PRODUCT,
    Expression,
    Marks,
    column,
    depth_of,
    fold,
    in_order,
    linear,
)
from encryptedstats.circuits.layout import Layout
from encryptedstats.circuits.walk import FLAT, LEVELLED, Machine, Strategy, Total, Walk, plan_finish
from encryptedstats.crypto.flooding import flooded_noise
from encryptedstats.crypto.noise import Noise
from encryptedstats.crypto.packing import encrypted_zero_noise, packing_levels, packing_model, packing_primes
from encryptedstats.crypto.parameters import Parameters
from encryptedstats.errors import Cure, NoiseError

PACKED, REPLICATED, SLOTS = "packed", "replicated", "slots"
# Bits that packs should leave, so that the results of so many parts of a table (2 to this power) can be added up encrypted.
ROOM_FOR_ADDING = 4.0
_ANY_MARKS = Marks(0, [0])
MAX_SIZE = 16  # SEAL has no ciphertexts of more polynomials


def room_for(parts: int, *, flooded: bool = False) -> float:
    """Bits that packs have to leave where the results of so many parts of a table will be added up; flooding is by whole bits."""
    bits = math.log2(max(1, parts))
    return max(ROOM_FOR_ADDING, float(math.ceil(bits)) if flooded else bits)


class NoiseMachine(Machine[Noise]):
    """A machine whose values are noise bounds. Results are remembered: thousands of nodes share a few dozen bounds."""

    def __init__(
        self, parameters: Parameters, *, with_secret_key: bool, known: Mapping[str, Noise] | None = None
    ) -> None:
        super().__init__(parameters)
        self._known = known or {}
        self._fresh = self.model.fresh(with_secret_key=with_secret_key)
        self._products: dict[tuple[Noise, Noise], Noise] = {}
        self._switched: dict[tuple[Noise, int], Noise] = {}
        self.stands_for = 1  # how many operations one that is called stands for

    def noise(self, value: Noise) -> Noise:
        """Itself."""
        return value

    def column(self, name: str, chunk: int) -> Noise:
        """A fresh ciphertext, where nothing else is known."""
        return self._known.get(name, self._fresh)

    def add_up(self, terms: Sequence[tuple[int, Noise]], constant: int) -> Noise:
        """Bounds add, times their coefficients."""
        flat = sum(abs(c) * noise.flat for c, noise in terms)
        peak = sum(abs(c) * noise.peak for c, noise in terms)
        total = replace(terms[0][1], flat=flat, peak=peak, size=max(noise.size for _, noise in terms))
        return self.model.add_plain(total, constant=True) if constant else total

    def multiply(self, a: Noise, b: Noise) -> Noise:
        """The product rule of the scheme."""
        if a.size + b.size - 1 > MAX_SIZE:
            return Noise(math.inf, level=a.level)
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

    def mask(self, value: Noise, marks: Marks) -> Noise:
        """A product with an encoded plaintext."""
        return self.model.multiply_plain(value, self.model.message())

    def gather(self, value: Noise, chunks: int) -> Noise:
        """As many values like this one, added up."""
        return self.model.sum(value, chunks)


@dataclass(frozen=True)
class NoiseReport:
    """A proof that a circuit decrypts: the strategy it holds for, and the bits to spare of its worst output.

    ``width`` is how many totals one ciphertext is packed with, ``pack`` bounds the noise of packs, which are ``flooded`` or not.
    """

    strategy: Strategy
    budget: float
    width: int
    pack: Noise | None = None
    flooded: bool = False


def read_noise(
    outputs: Sequence[Expression],
    parameters: Parameters,
    layout: Layout,
    *,
    with_secret_key: bool = True,
    form: str = PACKED,
    known: Mapping[str, Noise] | None = None,
    n_outputs: int | None = None,
    quick: bool = False,
    flooded: bool | None = None,
) -> NoiseReport:
    """The proof for the cheapest strategy that has one.

    ``known`` is the noise of columns that are no fresh ciphertexts; ``n_outputs`` how many are packed, if some stand for more.

    ``flooded`` proves packs that are flooded in the end; by default those of rows that others encrypted.

    With ``quick``, rows are proven for the cheapest strategy or not at all, and nobody finds out why not.

    Raises
    ------
    NoiseError
        Where there is none; it names the node that binds and what it would take.
    """
    n_outputs = len(outputs) if n_outputs is None else n_outputs
    outputs, known = representatives(outputs, known), known or {}
    flooded = not with_secret_key and form == PACKED if flooded is None else flooded
    reports = []
    for strategy in strategies(parameters)[: 1 if quick and form == SLOTS else None]:
        machine = NoiseMachine(parameters, with_secret_key=with_secret_key, known=known)
        reports.append(_try(machine, outputs, n_outputs, layout, strategy, form, flooded))
        if reports[-1].budget >= 1.0 and (form != PACKED or parameters.kept_primes is None):
            return reports[-1]
    proven = [report for report in reports if report.budget >= 1.0]
    if proven:
        return _least_noisy(proven)
    if quick:
        raise NoiseError("not proven")
    best = max(reports, key=lambda report: report.budget)
    machine = NoiseMachine(parameters, with_secret_key=with_secret_key, known=known)
    raise NoiseError(*_refusal(machine, outputs, layout, best, form, flooded))


def _least_noisy(reports: Sequence[NoiseReport]) -> NoiseReport:
    """Where packs are computed on with: the cheapest way (the first) that leaves about as little noise in them as any."""
    noises = [math.inf if report.pack is None else report.pack.flat + report.pack.peak for report in reports]
    return next(report for report, noise in zip(reports, noises, strict=True) if noise <= 4 * min(noises))


def strategies(parameters: Parameters) -> tuple[Strategy, ...]:
    """The ways to walk, cheapest first. A BFV product costs more with every polynomial, so there is only one for it."""
    return (FLAT, LEVELLED) if parameters.scheme == "bgv" else (LEVELLED,)


def representatives(outputs: Sequence[Expression], known: Mapping[str, Noise] | None = None) -> list[Expression]:
    """One output of every shape: noise does not depend on which (fresh) columns are computed with, only on how."""
    shapes: dict[object, int] = {}
    known = known or {}

    def rule(node: Expression, args: list[int]) -> int:
        data: object = None
        if node.op == LINEAR:
            coefficients, constant = node.data
            data = (tuple(sorted(zip(coefficients, args, strict=True))), constant)
        elif node.op == PRODUCT:
            data = (*sorted(args), node.args[0] is node.args[1])
        elif node.op == COLUMN:
            data = known.get(node.data)
        elif node.op == MASK:
            data = tuple(args)
        else:
            data = (*args, node.data)
        return shapes.setdefault((node.op, data, node.is_total), len(shapes))

    found = fold(outputs, rule)
    kept: dict[int, Expression] = {}
    for output in outputs:
        kept.setdefault(found[output], output)
    return list(kept.values())


def compressed(outputs: Sequence[Expression], kinds: Mapping[str, str]) -> list[Expression]:
    """Circuits of the same noise with one node for all of one shape, for who asks again and again while parameters are sought.

    Columns are called by their kind, "fresh" where it is not said. Terms of a sum are not allowed to cancel, so signs are left out.
    """

    def rule(node: Expression, args: list[Expression]) -> Expression:
        if node.op == COLUMN:
            return column(kinds.get(node.data, "fresh"))
        if node.op == PRODUCT:
            return args[0] * args[1]
        if node.op == LINEAR:
            coefficients, constant = node.data
            return linear([(abs(c), arg) for c, arg in zip(coefficients, args, strict=True)], constant)
        data = _ANY_MARKS if node.op == MASK else node.data
        return Expression(node.op, tuple(args), data, node.is_total)

    values = fold(outputs, rule)
    return list(dict.fromkeys(values[output] for output in outputs))


def _try(
    machine: NoiseMachine,
    outputs: Sequence[Expression],
    n_outputs: int,
    layout: Layout,
    strategy: Strategy,
    form: str,
    flooded: bool,
) -> NoiseReport:
    parameters = machine.parameters
    results = walked(machine, outputs, strategy, layout, form)
    noises = [result.value if isinstance(result, Total) else result[0] for result in results]
    budget = min(parameters.noise.budget(machine.relinearise(noise)) for noise in noises)
    if form != PACKED:
        return NoiseReport(strategy, budget, 1)
    finishes = [plan_finish(parameters, noise) for noise in _worst_of_each_form(set(noises))]
    packs = {finish.noise for finish in finishes if finish is not None}
    if None in finishes:
        return NoiseReport(strategy, min(budget, 0.0), 0)
    model = packing_model(parameters, packing_primes(parameters))
    if flooded:
        zero = encrypted_zero_noise(parameters)
        packs = {flooded_noise(model, noise, zero) for noise in packs}
    width = 1 << packing_levels(min(n_outputs, parameters.ring_degree))
    worst = _worst_of_each_form(packs)[0]
    return NoiseReport(strategy, min(budget, *map(model.budget, packs)), width, worst, flooded)


def _worst_of_each_form(noises: set[Noise]) -> list[Noise]:
    """One bound above all that have the same size and level: what can be packed from it can be from any of them."""
    worst: dict[tuple[int, int], Noise] = {}
    for noise in noises:
        known = worst.get((noise.size, noise.level), noise)
        larger = replace(noise, flat=max(noise.flat, known.flat), peak=max(noise.peak, known.peak))
        worst[noise.size, noise.level] = larger
    return list(worst.values())


def walked(
    machine: NoiseMachine, outputs: Sequence[Expression], strategy: Strategy, layout: Layout, form: str
) -> list[Total[Noise] | list[Noise]]:
    """The walk of a machine that only keeps account: one chunk stands for all, and totals add up as many as there are."""
    walk = _OneForAll(machine, strategy, layout)
    results = walk.outputs(outputs)
    if form == REPLICATED:
        pairs = zip(outputs, results, strict=True)
        return [Total(walk.replicated(o), each=True) if o.is_total else result for o, result in pairs]
    return results


@dataclass
class _OneForAll(Walk[Noise]):
    """Visits one chunk, which stands for all; keeps what every node was found to be."""

    machine: NoiseMachine
    masked: bool = False
    found: dict[Expression, Noise] = field(default_factory=dict)

    @property
    def _stands_for(self) -> int:
        """How many chunks: what is masked is computed where the marks are, and nowhere else."""
        return 1 if self.masked else max(1, self.layout.n_chunks)

    def _present(self, node: Expression, chunk: int) -> bool:
        return True

    def _chunks(self) -> Iterator[int]:
        self.machine.stands_for = self._stands_for
        yield 0
        self.machine.stands_for = 1

    def _row(self, node: Expression, chunk: int, args: list[Noise]) -> Noise:
        self.found[node] = super()._row(node, chunk, args)
        return self.found[node]

    def _accumulate(self, totals: Sequence[Expression], padding: dict[Expression, int]) -> None:
        super()._accumulate(totals, padding)
        for node in totals:
            gathered = self.machine.gather(self._totals[node].value, self._stands_for)
            self._totals[node] = replace(self._totals[node], value=gathered)

    def outputs(self, outputs: Sequence[Expression]) -> list[Total[Noise] | list[Noise]]:
        self.masked = any(node.op == MASK for node in in_order(outputs))
        results = super().outputs(outputs)
        self.found.update({node: total.value for node, total in self._totals.items()})
        return results


def _refusal(
    machine: NoiseMachine,
    outputs: Sequence[Expression],
    layout: Layout,
    best: NoiseReport,
    form: str,
    flooded: bool,
) -> tuple[object, ...]:
    binding = _binding_node(machine, outputs, layout, best.strategy)
    what = f"its results cannot be brought into {form} form"
    cure: tuple[object, ...] = (". ", Cure("plan", "es.plan(...)"), " finds parameters that carry it")
    if binding is not None:
        what = f"the binding step is {binding!r}"
    elif flooded:
        what = "rows that others encrypted are hidden from who opens a result by noise, and there is no room for it"
        cure = (". Plan for such rows, ", Cure("plan for rows of others", "es.plan(..., by_others=True)"))
    elif form == PACKED:
        cure = (Cure("other form", ", form='slots' may do"), *cure)
    return (
        f"this circuit, {depth_of(outputs)} products deep over {layout.n_rows:,} rows, could not be proven to decrypt with "
        f"{machine.parameters!r}: {what}",
        *cure,
    )


def _binding_node(
    machine: NoiseMachine, outputs: Sequence[Expression], layout: Layout, strategy: Strategy
) -> Expression | None:
    """The first node (in order of computation) that is not proven to decrypt."""
    walk = _OneForAll(machine, strategy, layout)
    walk.outputs(outputs)
    for node in in_order(outputs):
        if node in walk.found and not machine.model.decrypts(machine.relinearise(walk.found[node])):
            return node
    return None
