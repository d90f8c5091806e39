"""Count the operations of a program, and estimate its seconds from measured times."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Final

from encryptedstats.circuits.devices.steps import BATCH, batches_of
from encryptedstats.circuits.program import (
    ADD_UP,
    COLUMN,
    EXPAND,
    GIVEN,
    HERE,
    MASK,
    MOVE,
    MULTIPLY,
    PACK,
    RELINEARISE,
    ROTATE,
    ROWS,
    SHIFT,
    SUM,
    SWITCH,
    Program,
    Step,
)
from encryptedstats.circuits.rules import RuleTable
from encryptedstats.crypto.packing import merges_of, packing_elements, packing_primes
from encryptedstats.crypto.parameters import Parameters
from encryptedstats.machine import cores

#: Seconds for every total that Python takes on one core while the others wait. On 16 cores this is
#: most of the time of a small table.
ALONE: Final = 1.5e-4
# Operation, polynomials and primes, which determine the cost of one operation.
Kind = tuple[str, int, int]


@dataclass(frozen=True)
class Cost:
    """The operations of a program over all chunks."""

    parameters: Parameters
    rows: Counter[Kind]  # over rows, until the totals are summed
    finish: Counter[Kind]  # switching, relinearising and packing the totals
    spread: Counter[Kind]  # expanding given totals
    batches: int  # that can be computed in parallel
    reads: int  # of columns over chunks
    totals: int = 0

    @property
    def counts(self) -> Counter[Kind]:
        """Count all operations."""
        return self.rows + self.finish + self.spread

    def number(self, name: str) -> int:
        """Count the operations of a name."""
        return number_of(self.counts, name)

    def seconds(self, times: OperationTimes, workers: int | None = None) -> float:
        """Estimate the time of the default device on some processes, by default all cores."""
        workers = workers or cores()
        over_rows = times.rows_ratio * work_seconds(self.rows, times, self.parameters)
        unpacking = times.unpack * self.reads
        finish = self.finish_seconds(times) + times.finish_ratio * work_seconds(
            self.spread, times, self.parameters
        )
        return (
            (over_rows + unpacking) / min(workers, self.batches)
            + finish / workers
            + ALONE * self.totals
        )

    def finish_seconds(self, times: OperationTimes) -> float:
        """Estimate the time on one core to switch, relinearise and pack the totals."""
        return times.finish_ratio * work_seconds(self.finish, times, self.parameters)


def number_of(counts: Counter[Kind], name: str) -> int:
    """Count the operations of a name."""
    return sum(count for (kind, _, _), count in counts.items() if kind == name)


def work_seconds(counts: Counter[Kind], times: OperationTimes, parameters: Parameters) -> float:
    """Return the time of SEAL on one core."""
    return sum(count * times.of(kind, parameters) for kind, count in counts.items())


def read_cost(program: Program) -> Cost:
    """Count the operations of a program over all chunks."""
    parameters, rows, finish = program.parameters, Counter[Kind](), Counter[Kind]()
    # Rows that are marked are computed once, for all batches.
    apart = any(step.op == MASK for step in program.steps)
    batches = [program]
    if not apart and program.form != ROWS:
        parts = [program.part(batch.steps) for batch in program.batches]
        batches = [part.part(some) for part in parts for some in batches_of(part)]
    n_chunks = max(1, program.layout.n_chunks)
    for batch in batches:
        runs = {} if program.is_flat else batch.runs()
        for step in batch.steps:
            into = rows if not step.is_total or step.op == SUM else finish
            times = runs.get(step, 1 if step.is_total else n_chunks)
            for kind, count in COST[step.op](step, program):
                if count:
                    into[kind] += count * times
    for pack in program.packs:
        finish += _packing_counts(parameters, len(pack.args), program.n_interleaved)
    different = sum(step.op == EXPAND for step in program.steps)
    spread = expansion_counts(parameters, different)
    every = program.runs()
    reads = sum(every[step] for step in program.steps if step.op == COLUMN)
    n_batches = -(-len(program.outputs) // BATCH) if apart else len(batches)
    n_totals = sum(step.op == SUM for step in program.steps)
    return Cost(parameters, rows, finish, spread, n_batches, reads, n_totals)


#: Counts the operations of one step each time that it is computed.
COST: Final = RuleTable[Callable[[Step, Program], list[tuple[Kind, int]]]]("cost")


def _count_primes(step: Step, program: Program) -> int:
    return len(program.parameters.data_moduli) - step.level


def _cost_one(kind: str) -> Callable[[Step, Program], list[tuple[Kind, int]]]:
    def count(step: Step, program: Program) -> list[tuple[Kind, int]]:
        return [((kind, step.size, _count_primes(step, program)), 1)]

    return count


COST.rule(COLUMN, HERE)(_cost_one("load"))
COST.rule(ROTATE)(_cost_one("key switch"))
COST.rule(SHIFT)(_cost_one("scale"))
COST.rule(MASK)(_cost_one("mask"))  # a product with a plaintext that has to be encoded first
# Packs and expanded totals are counted together; a move only reads another chunk.
COST.rule(GIVEN, EXPAND, PACK, MOVE)(lambda step, program: [])


@COST.rule(ADD_UP)
def _cost_sum(step: Step, program: Program) -> list[tuple[Kind, int]]:
    # An addition a term but the first (which is negated if all are negative), a scaling for
    # every coefficient beyond 1.
    primes, (coefficients, constant) = _count_primes(step, program), step.data
    additions = len(step.args) - any(c > 0 for c in coefficients) + bool(constant)
    scaled = [arg.size for c, arg in zip(coefficients, step.args, strict=True) if not -1 <= c <= 1]
    return [
        (("add", step.size, primes), additions),
        *((("scale", size, primes), 1) for size in scaled),
    ]


@COST.rule(MULTIPLY)
def _cost_product(step: Step, program: Program) -> list[tuple[Kind, int]]:
    a, b = step.args  # every pair of polynomials
    return [(("multiply", a.size * b.size, _count_primes(step, program)), 1)]


@COST.rule(RELINEARISE)
def _cost_relinearisation(step: Step, program: Program) -> list[tuple[Kind, int]]:
    switches = step.args[0].size - 2  # one for every polynomial too many
    return [(("key switch", 2, _count_primes(step, program)), switches)]


@COST.rule(SWITCH)
def _cost_switch(step: Step, program: Program) -> list[tuple[Kind, int]]:
    every, (arg,) = len(program.parameters.data_moduli), step.args
    levels = range(arg.level, step.level)  # one division a prime
    return [(("switch", step.size, every - above), 1) for above in levels]


@COST.rule(SUM)
def _cost_total(step: Step, program: Program) -> list[tuple[Kind, int]]:
    chunks = step.args[0].chunks
    n_chunks = max(1, program.layout.n_chunks) if chunks is None else len(chunks)
    return [(("add", step.size, _count_primes(step, program)), n_chunks - 1)]


def _packing_counts(parameters: Parameters, n_totals: int, n_interleaved: int = 1) -> Counter[Kind]:
    elements, primes = packing_elements(parameters.ring_degree), packing_primes(parameters)
    counts, done = Counter[Kind](), n_interleaved.bit_length() - 1
    for merged, pairs, alone in merges_of(n_totals, parameters.ring_degree >> done):
        level = merged + done
        counts["key switch", 2, primes] += (pairs + alone) * len(elements[level])
        counts["scale", 2, primes] += pairs
        counts["add", 2, primes] += 3 * pairs + alone
    return counts


def expansion_counts(parameters: Parameters, different: int) -> Counter[Kind]:
    """Count the operations of expanding: the key switches of packing, and two additions each."""
    if not different:
        return Counter()
    primes = packing_primes(parameters)
    switches = number_of(_packing_counts(parameters, different), "key switch")
    return Counter(
        {
            ("key switch", 2, primes): switches,
            ("add", 2, primes): 2 * switches,
            ("scale", 2, primes): different,
        }
    )


@dataclass(frozen=True)
class OperationTimes:
    """Seconds of SEAL's operations on two polynomials under all primes, on one core.

    ``rows_ratio`` and ``finish_ratio`` are the time of the default device over that of SEAL, for
    rows and for switching and relinearising totals. ``encrypt`` and ``unpack`` are for a ciphertext
    of a stored table. A process first takes ``start`` to prepare the ring, ``read_key`` for each
    byte of the public keys, and ``compile`` for each step of a program.
    """

    load: float
    add: float
    scale: float
    multiply: float
    switch: float
    key_switch: float
    encrypt: float
    unpack: float
    rows_ratio: float = 1.0
    finish_ratio: float = 1.0
    mask: float = 0.0
    start: float = 0.0
    read_key: float = 0.0
    compile: float = 0.0

    def start_seconds(self, key_bytes: int, n_steps: int) -> float:
        """Estimate the time before the first operation of a process, after all imports."""
        return self.start + self.read_key * key_bytes + self.compile * n_steps

    @classmethod
    def unknown(cls) -> OperationTimes:
        """Return times that are not known, to plan parameters alone."""
        return cls(*(math.nan for _ in fields(cls)))

    def of(self, kind: Kind, parameters: Parameters) -> float:
        """Return the seconds of one operation."""
        name, size, primes = kind
        share = primes / len(parameters.data_moduli)
        if name == "multiply":
            return self.multiply * size / 4 * share
        if name == "key switch":  # a number theoretic transform for every pair of primes
            every = len(parameters.data_moduli)
            return self.key_switch * primes * (primes + 1) / (every * (every + 1))
        return float(getattr(self, name)) * size / 2 * share
