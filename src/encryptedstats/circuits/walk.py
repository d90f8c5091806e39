"""How encrypted circuits are walked: every decision (what is relinearised, switched, replicated, and when) is taken here, once.

A *machine* has the primitive operations; the walk calls them. The noise reader, the cost reader and the SEAL reader are three
machines under the same walk, so that what was proven and what was priced is what is done.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Generic, TypeVar

from encryptedstats.circuits.clear import drawn_shift, known_padding
from encryptedstats.circuits.expressions import (
    COLUMN,
    PRODUCT,
    REPLICATE,
    RESAMPLE,
    TOTAL,
    Expression,
    fold,
    in_order,
    padding_value,
)
from encryptedstats.circuits.layout import Layout
from encryptedstats.crypto.noise import Noise, NoiseModel
from encryptedstats.crypto.packing import packed_noise, packing_model, packing_primes
from encryptedstats.crypto.parameters import Parameters

V = TypeVar("V")


@dataclass(frozen=True)
class Strategy:
    """What is done about growing ciphertexts.

    ``relinearise=False`` multiplies as things are: a product of k factors has k + 1 polynomials and stays under the full modulus.
    That is much the cheapest while it fits, for BGV. Otherwise operands are relinearised and switched down before each product.
    """

    relinearise: bool


FLAT = Strategy(relinearise=False)
LEVELLED = Strategy(relinearise=True)


class Machine(ABC, Generic[V]):
    """The primitive operations on encrypted values of some kind."""

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters
        self.model: NoiseModel = parameters.noise

    @abstractmethod
    def noise(self, value: V) -> Noise:
        """The noise of a value."""

    @abstractmethod
    def column(self, name: str, chunk: int) -> V:
        """A column, as it was encrypted, over one chunk of rows."""

    @abstractmethod
    def add_up(self, terms: Sequence[tuple[int, V]], constant: int) -> V:
        """A linear combination of values at one level, plus a constant in every slot."""

    @abstractmethod
    def multiply(self, a: V, b: V) -> V:
        """A product of values at one level, not relinearised."""

    @abstractmethod
    def relinearise(self, value: V) -> V:
        """Back to two polynomials."""

    @abstractmethod
    def switch(self, value: V, level: int) -> V:
        """Down to a level."""

    @abstractmethod
    def rotate(self, value: V, step: int) -> V:
        """Half rows rotated to the left; step 0 swaps them. Needs two polynomials."""


@dataclass
class Total(Generic[V]):
    """A total on its way: the sum over the slots of ``value``, plus ``offset``; or, with ``each``, what every slot holds."""

    value: V
    offset: int = 0
    each: bool = False


@dataclass
class Walk(Generic[V]):
    """One evaluation of some outputs on one machine."""

    machine: Machine[V]
    strategy: Strategy
    layout: Layout
    chunks: int | None = None  # how many to visit; the noise and cost readers look at one and know that all are alike
    _totals: dict[Expression, Total[V]] = field(default_factory=dict)

    def outputs(self, outputs: Sequence[Expression]) -> list[Total[V] | list[V]]:
        """Every output: a total, or a value for each chunk of rows."""
        stages = stages_of(outputs)
        padding = padding_value(outputs)
        for stage in range(max(stages.values(), default=0) + 1):
            wanted = [n for n in in_order(outputs) if n.op == TOTAL and stages[n.args[0]] == stage]
            self._accumulate(wanted, {n: known_padding(n, padding) for n in wanted})
        rows = [o for o in outputs if not o.is_total]
        by_chunk = [self._rows(rows, chunk) for chunk in range(self._visited)] if rows else []
        return [self._total(o) if o.is_total else [values[o] for values in by_chunk] for o in outputs]

    @property
    def _visited(self) -> int:
        return self.layout.n_chunks if self.chunks is None else self.chunks

    # -- over rows -----------------------------------------------------------------------------------------------

    def _accumulate(self, totals: Sequence[Expression], padding: dict[Expression, int]) -> None:
        """Add up, chunk after chunk, what the totals sum."""
        sums: dict[Expression, V] = {}
        for chunk in range(self._visited if totals else 0):
            values = self._rows([total.args[0] for total in totals], chunk)
            for total in totals:
                value = values[total.args[0]]
                sums[total] = self.machine.add_up([(1, sums[total]), (1, value)], 0) if total in sums else value
        for total, value in sums.items():
            self._totals[total] = Total(value, -padding[total] * self.layout.padding)

    def _rows(self, nodes: Iterable[Expression], chunk: int) -> dict[Expression, V]:
        values: dict[Expression, V] = {}
        for node in in_order_of_rows(nodes):
            values[node] = self._row(node, values, chunk)
        return values

    def _row(self, node: Expression, values: dict[Expression, V], chunk: int) -> V:
        if node.op == COLUMN:
            return self.machine.column(node.data, chunk)
        if node.op == REPLICATE:
            return self._replicated(self._total(node.args[0])).value
        if node.op == RESAMPLE:
            return self._resampled(node, values, chunk)
        return self._combined(node, [values[arg] for arg in node.args])

    def _combined(self, node: Expression, args: list[V]) -> V:
        if node.op == PRODUCT:
            return self._product(args[0], args[1])
        coefficients, constant = node.data
        level = max(self.machine.noise(arg).level for arg in args)
        levelled = [self.machine.switch(arg, level) for arg in args]
        return self.machine.add_up(list(zip(coefficients, levelled, strict=True)), constant)

    def _product(self, a: V, b: V) -> V:
        machine = self.machine
        level = max(machine.noise(a).level, machine.noise(b).level)
        if self.strategy.relinearise:
            same = a is b
            a = machine.relinearise(a)
            b = a if same else machine.relinearise(b)
            level = machine.model.best_product_level(machine.noise(a), machine.noise(b))
        if a is b:
            a = machine.switch(a, level)
            return machine.multiply(a, a)
        return machine.multiply(machine.switch(a, level), machine.switch(b, level))

    def _resampled(self, node: Expression, values: dict[Expression, V], chunk: int) -> V:
        chunks, rotation, swap = drawn_shift(node.data, self.layout)
        source = node.args[0]
        value = values[source]
        if chunks and self.chunks is None:
            value = self._rows([source], (chunk + chunks) % self.layout.n_chunks)[source]
        value = self.machine.relinearise(value)
        if rotation:
            value = self.machine.rotate(value, rotation)
        return self.machine.rotate(value, 0) if swap else value

    # -- totals --------------------------------------------------------------------------------------------------

    def _total(self, node: Expression) -> Total[V]:
        if node not in self._totals:
            args = [self._total(arg) for arg in node.args]
            self._totals[node] = self._total_product(args) if node.op == PRODUCT else self._total_sum(node, args)
        return self._totals[node]

    def _total_product(self, args: list[Total[V]]) -> Total[V]:
        a, b = (self._replicated(arg) for arg in args)
        return Total(self._product(a.value, b.value), each=True)

    def _total_sum(self, node: Expression, args: list[Total[V]]) -> Total[V]:
        coefficients, constant = node.data
        each = any(arg.each for arg in args)
        if each:
            args = [self._replicated(arg) for arg in args]
        level = max(self.machine.noise(arg.value).level for arg in args)
        values = [self.machine.switch(arg.value, level) for arg in args]
        value = self.machine.add_up(list(zip(coefficients, values, strict=True)), constant if each else 0)
        if each:
            return Total(value, each=True)
        offset = constant + sum(c * arg.offset for c, arg in zip(coefficients, args, strict=True))
        return Total(value, offset)

    def _replicated(self, total: Total[V]) -> Total[V]:
        """The total in every slot, by rotating and adding: log2 N steps. Remembered, since it is dear."""
        if total.each:
            return total
        value = self.machine.relinearise(total.value)
        for step in replication_steps(self.layout.slots):
            value = self.machine.add_up([(1, value), (1, self.machine.rotate(value, step))], 0)
        if total.offset:
            value = self.machine.add_up([(1, value)], total.offset)
        total.value, total.offset, total.each = value, 0, True
        return total


def replication_steps(slots: int) -> list[int]:
    """Rotations that spread a sum over all slots."""
    return [1 << i for i in range(slots.bit_length() - 2)] + [0]


def rotations_needed(outputs: Iterable[Expression], layout: Layout, *, replicated: bool = False) -> tuple[int, ...]:
    """The rotation keys that a worker needs for these outputs."""
    steps: set[int] = set()
    for node in in_order(outputs):
        if node.op == RESAMPLE:
            _, rotation, swap = drawn_shift(node.data, layout)
            steps |= ({rotation} if rotation else set()) | ({0} if swap else set())
        if replicated or node.op == REPLICATE or (node.op == PRODUCT and node.is_total):
            steps |= set(replication_steps(layout.slots))
    return tuple(sorted(steps))


def stages_of(outputs: Iterable[Expression]) -> dict[Expression, int]:
    """How many times totals have to be back in the rows before a node can be computed."""
    return fold(outputs, lambda node, args: max(args, default=0) + (node.op == REPLICATE))


def in_order_of_rows(nodes: Iterable[Expression]) -> list[Expression]:
    """The nodes over rows that are needed, each after its args; what lies below a replicated total is known already."""
    seen: set[Expression] = set()
    order: list[Expression] = []
    stack = [(node, False) for node in reversed(list(nodes))]
    while stack:
        node, ready = stack.pop()
        if node in seen:
            continue
        if ready or node.op in (COLUMN, REPLICATE):
            seen.add(node)
            order.append(node)
        else:
            stack.append((node, True))
            stack.extend((arg, False) for arg in reversed(node.args))
    return order


# -- from a sum to something small to download ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Finish:
    """How sums are brought down for packing: relinearised at one level, then switched to the primes of the packing context."""

    relinearise_at: int
    level: int
    noise: Noise


@lru_cache(maxsize=4096)
def plan_finish(parameters: Parameters, noise: Noise, width: int) -> Finish | None:
    """The cheapest way to pack ``width`` sums of this noise: the lowest level to relinearise at that is proven to decrypt."""
    level = len(parameters.data_moduli) - packing_primes(parameters)
    small = packing_model(parameters, packing_primes(parameters))
    model = parameters.noise
    for relinearise_at in range(level, noise.level - 1, -1):
        low = model.switch(model.relinearise(model.switch(noise, relinearise_at)), level)
        start = Noise(low.flat, low.peak)
        packed = packed_noise(small, start, width)
        if small.decrypts(packed):
            return Finish(relinearise_at, level, packed)
    return None
