"""How encrypted circuits are walked: every decision (what is relinearised, switched, replicated, and when) is taken here, once.

A *machine* has the primitive operations; the walk calls them. The noise reader, the cost reader and the SEAL reader are three
machines under the same walk, so that what was proven and what was priced is what is done.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Generic, TypeVar

from encryptedstats.circuits.clear import drawn_shift, known_padding
from encryptedstats.circuits.expressions import (
    COLUMN,
    LINEAR,
    MASK,
    PRODUCT,
    REPLICATE,
    RESAMPLE,
    TOTAL,
    Expression,
    Marks,
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

    @abstractmethod
    def mask(self, value: V, marks: Marks) -> V:
        """The value at some slots, 0 elsewhere."""


@dataclass(frozen=True)
class Total(Generic[V]):
    """A total on its way: the sum over the slots of ``value``, plus ``offset``; or, with ``each``, what every slot holds."""

    value: V
    offset: int = 0
    each: bool = False


@dataclass
class Walk(Generic[V]):
    """One evaluation of some outputs on one machine. What is done for a node follows from the node alone, never from the others."""

    machine: Machine[V]
    strategy: Strategy
    layout: Layout
    _totals: dict[Expression, Total[V]] = field(default_factory=dict)
    _spread: dict[Expression, V] = field(default_factory=dict)  # totals in every slot: dear, so remembered
    computed: dict[tuple[Expression, int], V] = field(default_factory=dict)  # over chunks of rows, elsewhere

    def outputs(self, outputs: Sequence[Expression]) -> list[Total[V] | list[V]]:
        """Every output: a total, or a value for each chunk of rows."""
        padding = padding_value(outputs)
        for stage in _totals_by_stage(outputs):
            wanted = [node for node in stage if node.op == TOTAL]
            self._accumulate(wanted, {node: known_padding(node, padding) for node in wanted})
            for node in stage:
                if node.op == REPLICATE:
                    self.replicated(node.args[0])
                elif node.op != TOTAL:
                    self._totals[node] = self._total_product(node) if node.op == PRODUCT else self._total_sum(node)
        rows = [o for o in outputs if not o.is_total]
        by_chunk = [self.rows(rows, chunk) for chunk in self._chunks()] if rows else []
        return [self._totals[o] if o.is_total else [values[o] for values in by_chunk] for o in outputs]

    # -- over rows -----------------------------------------------------------------------------------------------

    def _chunks(self) -> Iterable[int]:
        """The chunks to visit."""
        return range(self.layout.n_chunks)

    def _accumulate(self, totals: Sequence[Expression], padding: dict[Expression, int]) -> None:
        """Add up, chunk after chunk, what the totals sum."""
        sums: dict[Expression, V] = {}
        for chunk in self._chunks() if totals else ():
            here = [total for total in totals if self._present(total.args[0], chunk)]
            values = self.rows([total.args[0] for total in here], chunk)
            for total in here:
                value = values[total.args[0]]
                sums[total] = self.machine.add_up([(1, sums[total]), (1, value)], 0) if total in sums else value
        for total, value in sums.items():
            self._totals[total] = Total(value, -padding[total] * self.layout.padding)

    def _present(self, node: Expression, chunk: int) -> bool:
        """Whether a node can be anything but 0 in a chunk: nothing is computed where no slot is marked."""
        if node.op == MASK:
            return bool(node.data.chunk == chunk)
        if node.op == LINEAR and not node.data[1]:
            return any(self._present(arg, chunk) for arg in node.args)
        return True

    def rows(self, nodes: Sequence[Expression], chunk: int) -> dict[Expression, V]:
        """The values of some nodes over one chunk of rows."""
        values: dict[tuple[Expression, int], V] = dict(self.computed)
        order = list(in_order_of_rows(nodes, chunk, self.layout, self.computed))
        needs = [_needed_rows(node, where, self.layout) for node, where in order]
        uses = Counter(needed for some in needs for needed in some) + Counter((node, chunk) for node in nodes)
        for (node, where), needed in zip(order, needs, strict=True):
            values[node, where] = self._row(node, where, [values[each] for each in needed])
            for each in needed:  # ciphertexts are large: let go of what nobody needs any more
                uses[each] -= 1
                if not uses[each]:
                    del values[each]
        return {node: values[node, chunk] for node in nodes}

    def _row(self, node: Expression, chunk: int, args: list[V]) -> V:
        if node.op == COLUMN:
            return self.machine.column(node.data, chunk)
        if node.op == REPLICATE:
            return self._spread[node.args[0]]
        if node.op == RESAMPLE:
            return self._resampled(node, args[0])
        if node.op == MASK:
            return self.machine.mask(args[0], node.data)
        return self._combined(node, args)

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

    def _resampled(self, node: Expression, value: V) -> V:
        """The source, which is that of another chunk already, with its slots moved."""
        value = self.machine.relinearise(value)
        for step in move_steps(node, self.layout):
            value = self.machine.rotate(value, step)
        return value

    # -- totals --------------------------------------------------------------------------------------------------

    def _total_product(self, node: Expression) -> Total[V]:
        a, b = (self.replicated(arg) for arg in node.args)
        return Total(self._product(a, b), each=True)

    def _total_sum(self, node: Expression) -> Total[V]:
        coefficients, constant = node.data
        totals = [self._totals[arg] for arg in node.args]
        each = any(total.each for total in totals)
        values = [self.replicated(arg) for arg in node.args] if each else [total.value for total in totals]
        level = max(self.machine.noise(value).level for value in values)
        terms = [(c, self.machine.switch(value, level)) for c, value in zip(coefficients, values, strict=True)]
        if each:
            return Total(self.machine.add_up(terms, constant), each=True)
        offset = constant + sum(c * total.offset for c, total in zip(coefficients, totals, strict=True))
        return Total(self.machine.add_up(terms, 0), offset)

    def replicated(self, node: Expression) -> V:
        """A total that was computed, in every slot: by rotating and adding, log2 N steps."""
        if node not in self._spread:
            total = self._totals[node]
            self._spread[node] = total.value if total.each else self._rotated_and_added(total)
        return self._spread[node]

    def _rotated_and_added(self, total: Total[V]) -> V:
        value = self.machine.relinearise(total.value)
        for step in replication_steps(self.layout.slots):
            value = self.machine.add_up([(1, value), (1, self.machine.rotate(value, step))], 0)
        return self.machine.add_up([(1, value)], total.offset) if total.offset else value


def move_steps(node: Expression, layout: Layout) -> list[int]:
    """The rotations, one after the other, that a resampling takes; 0 swaps the half rows.

    That of a seed has a key of its own. Moves can be many, and are made up of powers of 4: a few more key switches, and a few keys.
    """
    _, rotation, swap = drawn_shift(node.data, layout)
    steps = [rotation] if rotation else []
    if isinstance(node.data, tuple):
        steps = [4**i for i in range(layout.slots.bit_length()) for _ in range(rotation >> 2 * i & 3)]
    return steps + [0] * swap


def replication_steps(slots: int) -> list[int]:
    """Rotations that spread a sum over all slots."""
    return [1 << i for i in range(slots.bit_length() - 2)] + [0]


def rotations_needed(outputs: Iterable[Expression], layout: Layout, *, replicated: bool = False) -> tuple[int, ...]:
    """The rotation keys that a worker needs for these outputs."""
    steps: set[int] = set()
    for node in in_order(outputs):
        if node.op == RESAMPLE:
            steps |= set(move_steps(node, layout))
        if replicated or node.op == REPLICATE or (node.op == PRODUCT and node.is_total):
            steps |= set(replication_steps(layout.slots))
    return tuple(sorted(steps))


def stages_of(outputs: Iterable[Expression]) -> dict[Expression, int]:
    """How many times totals have to be back in the rows before a node can be computed."""
    return fold(outputs, lambda node, args: max(args, default=0) + (node.op == REPLICATE))


def _totals_by_stage(outputs: Iterable[Expression]) -> list[list[Expression]]:
    """Totals, what is computed from totals, and where they go back into the rows: stage after stage, in order of computation."""
    stages = stages_of(outputs)
    by_stage: list[list[Expression]] = [[] for _ in range(max(stages.values(), default=0) + 1)]
    for node in stages:
        if node.is_total:
            by_stage[stages[node]].append(node)
        elif node.op == REPLICATE:
            by_stage[stages[node] - 1].append(node)
    return by_stage


def _needed_rows(node: Expression, chunk: int, layout: Layout) -> list[tuple[Expression, int]]:
    """What a node over a chunk of rows is computed from; what lies below a replicated total is known already."""
    if node.op in (COLUMN, REPLICATE):
        return []
    if node.op == RESAMPLE:
        chunk = (chunk + drawn_shift(node.data, layout)[0]) % max(1, layout.n_chunks)
    return [(arg, chunk) for arg in node.args]


def in_order_of_rows(
    nodes: Sequence[Expression], chunk: int, layout: Layout, computed: Iterable[tuple[Expression, int]] = ()
) -> Iterator[tuple[Expression, int]]:
    """All that some nodes over a chunk of rows need, with the chunk it is needed of, each after what it is computed from."""
    seen: set[tuple[Expression, int]] = set(computed)
    stack = [(node, chunk, False) for node in reversed(nodes)]
    while stack:
        node, where, ready = stack.pop()
        if (node, where) in seen:
            continue
        needed = [] if ready else _needed_rows(node, where, layout)
        if needed:
            stack.append((node, where, True))
            stack.extend((arg, there, False) for arg, there in reversed(needed))
        else:
            seen.add((node, where))
            yield node, where


# Totals that are accumulated side by side: bounds the memory, and is a batch of work for a process.
BATCH = 56


def batches_of(outputs: Sequence[Expression]) -> list[list[Expression]]:
    """The outputs in groups that are walked one by one, each by a process of its own.

    Every group computes what it needs, so outputs that share something dear (totals back in the rows) stay together.
    """
    shared = any(
        node.op in (REPLICATE, RESAMPLE) or (node.op == PRODUCT and node.is_total) for node in in_order(outputs)
    )
    size = len(outputs) if shared else BATCH
    return [list(outputs[start : start + size]) for start in range(0, len(outputs), size)]


# -- from a sum to something small to download ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Finish:
    """How sums are brought down for packing: relinearised at one level, then switched to the primes of the packing context."""

    relinearise_at: int
    level: int
    noise: Noise


@lru_cache(maxsize=4096)
def plan_finish(parameters: Parameters, noise: Noise) -> Finish | None:
    """The cheapest way to pack sums of this noise: the lowest level to relinearise at that is proven to decrypt.

    Where packs are computed on with, the lowest that leaves about as little noise as any: switching a ciphertext of many
    polynomials rounds each of them, and the rounding of the last meets a high power of the secret.
    """
    level = len(parameters.data_moduli) - packing_primes(parameters)
    small = packing_model(parameters, packing_primes(parameters))
    model = parameters.noise
    ways = []
    for relinearise_at in range(level, noise.level - 1, -1):
        low = model.switch(model.relinearise(model.switch(noise, relinearise_at)), level)
        packed = packed_noise(small, Noise(low.flat, low.peak))
        if small.decrypts(packed):
            ways.append(Finish(relinearise_at, level, packed))
            if parameters.kept_primes is None:
                return ways[0]
    least = min((small.coefficient_bound(way.noise) for way in ways), default=0.0)
    return next((way for way in ways if small.coefficient_bound(way.noise) <= 2 * least), None)
