"""The cost reader: how many operations of each kind a circuit takes, and from measured times how many seconds.

The times of the primitive operations are measured on this machine, in about a second for each set of parameters, and kept.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path

import numpy as np

from encryptedstats.circuits.bounds import ColumnRange
from encryptedstats.circuits.evaluate import evaluate
from encryptedstats.circuits.expressions import Expression, Marks, column
from encryptedstats.circuits.layout import Layout
from encryptedstats.circuits.noise import PACKED, NoiseMachine, read_noise, walked
from encryptedstats.circuits.walk import Strategy, Total, batches_of, plan_finish
from encryptedstats.crypto.keys import Owner, PublicKeys
from encryptedstats.crypto.noise import Noise
from encryptedstats.crypto.packing import merges_of, packing_elements, packing_primes
from encryptedstats.crypto.parameters import Parameters
from encryptedstats.crypto.residues import Residues, ciphertext_of, residues_of
from encryptedstats.crypto.vectors import encrypt_slots
from encryptedstats.errors import NoiseError
from encryptedstats.parallel import cores
from encryptedstats.storage.bitpack import pack, unpack
from encryptedstats.storage.files import write_atomic

_SAMPLE_COLUMNS = 5  # of the table that engines are measured with
# Operation, polynomials, primes: enough to tell what one costs.
Kind = tuple[str, int, int]


class CostMachine(NoiseMachine):
    """Keeps account of operations beside the noise."""

    def __init__(
        self, parameters: Parameters, *, with_secret_key: bool, known: Mapping[str, Noise] | None = None
    ) -> None:
        super().__init__(parameters, with_secret_key=with_secret_key, known=known)
        self.counts: Counter[Kind] = Counter()

    def _count(self, name: str, noise: Noise, times: int = 1, size: int | None = None) -> None:
        primes = len(self.parameters.data_moduli) - noise.level
        if times:
            self.counts[name, size or noise.size, primes] += times * self.stands_for

    def column(self, name: str, chunk: int) -> Noise:
        """A column is loaded once a chunk."""
        noise = super().column(name, chunk)
        self._count("load", noise)
        return noise

    def add_up(self, terms: Sequence[tuple[int, Noise]], constant: int) -> Noise:
        """An addition a term but the first (which is negated if all are negative), a scaling for every coefficient beyond 1."""
        total = super().add_up(terms, constant)
        for coefficient, noise in terms:
            if abs(coefficient) > 1:
                self._count("scale", noise)
        self._count("add", total, len(terms) - any(c > 0 for c, _ in terms) + bool(constant))
        return total

    def multiply(self, a: Noise, b: Noise) -> Noise:
        """A product takes every pair of polynomials."""
        self._count("multiply", a, size=a.size * b.size)
        return super().multiply(a, b)

    def relinearise(self, value: Noise) -> Noise:
        """A key switch for every polynomial too many."""
        if value.size > 2:
            self._count("key switch", value, value.size - 2, size=2)
        return super().relinearise(value)

    def switch(self, value: Noise, level: int) -> Noise:
        """One division a prime."""
        for above in range(value.level, level):
            self._count("switch", replace(value, level=above))
        return super().switch(value, level)

    def rotate(self, value: Noise, step: int) -> Noise:
        """One key switch."""
        self._count("key switch", value)
        return super().rotate(value, step)

    def mask(self, value: Noise, marks: Marks) -> Noise:
        """A product with a plaintext that has to be encoded first."""
        self._count("mask", value)
        return super().mask(value, marks)

    def gather(self, value: Noise, chunks: int) -> Noise:
        """An addition a chunk but the first."""
        self._count("add", value, chunks - 1)
        return super().gather(value, chunks)


@dataclass(frozen=True)
class Cost:
    """What a circuit takes: counts of operations over all chunks, and what can be said of time from them."""

    parameters: Parameters
    rows: Counter[Kind]  # over rows, until the totals are summed
    finish: Counter[Kind]  # bringing the totals into their form
    batches: int

    @property
    def counts(self) -> Counter[Kind]:
        """All operations."""
        return self.rows + self.finish

    def number(self, name: str) -> int:
        """How many operations of this name."""
        return sum(count for (kind, _, _), count in self.counts.items() if kind == name)

    def seconds(self, times: Times, workers: int | None = None) -> float:
        """Estimated time on so many processes (all cores), by the engine that will be taken."""
        workers = workers or cores()
        over_rows = times.rows_ratio * work_seconds(self.rows, times, self.parameters)
        unpacking = times.unpack * sum(n for (name, _, _), n in self.rows.items() if name == "load")
        return (over_rows + unpacking) / min(workers, self.batches) + self.finish_seconds(times) / workers

    def finish_seconds(self, times: Times) -> float:
        """Estimated time on one core to bring the sums over rows into their form."""
        return times.finish_ratio * work_seconds(self.finish, times, self.parameters)


def work_seconds(counts: Counter[Kind], times: Times, parameters: Parameters) -> float:
    """The time that SEAL would take on one core."""
    return sum(count * times.of(kind, parameters) for kind, count in counts.items())


def read_cost(
    outputs: Sequence[Expression],
    parameters: Parameters,
    layout: Layout,
    strategy: Strategy,
    *,
    with_secret_key: bool = True,
    form: str = PACKED,
    width: int = 1,
) -> Cost:
    """Count the operations of a walk over all chunks, and of bringing the totals into their form."""
    machine = CostMachine(parameters, with_secret_key=with_secret_key)
    results = [r for batch in batches_of(outputs) for r in walked(machine, batch, strategy, layout, form)]
    totals = [result.value for result in results if isinstance(result, Total)]
    rows, machine.counts = machine.counts, Counter()
    if form == PACKED:
        _count_packing(machine, totals, width)
    else:
        for total in totals:
            machine.relinearise(total)
    return Cost(parameters, rows, machine.counts, len(batches_of(outputs)))


def _count_packing(machine: CostMachine, totals: Sequence[Noise], width: int) -> None:
    parameters = machine.parameters
    for noise in totals:
        finish = plan_finish(parameters, noise)
        if finish is not None:
            low = machine.relinearise(machine.switch(noise, finish.relinearise_at))
            machine.switch(low, finish.level)
    elements, primes = packing_elements(parameters.ring_degree), packing_primes(parameters)
    for start in range(0, len(totals), width):
        for level, pairs, alone in merges_of(min(width, len(totals) - start), parameters.ring_degree):
            machine.counts["key switch", 2, primes] += (pairs + alone) * len(elements[level])
            machine.counts["scale", 2, primes] += pairs
            machine.counts["add", 2, primes] += 3 * pairs + alone


# -- measured times ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Times:
    """Seconds of SEAL's primitive operations on two polynomials under all primes, on one core, and what else it takes to tell.

    ``rows_ratio`` and ``finish_ratio`` are what the engine that is taken by default needs of the time that SEAL would, for
    computing over rows and for bringing totals down; ``encrypt`` and ``unpack`` are for a ciphertext of a stored table.
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

    @classmethod
    def unknown(cls) -> Times:
        """For who wants parameters and not times."""
        return cls(*(math.nan for _ in fields(cls)))

    def of(self, kind: Kind, parameters: Parameters) -> float:
        """Seconds of one operation of this kind."""
        name, size, primes = kind
        share = primes / len(parameters.data_moduli)
        if name == "multiply":
            return self.multiply * size / 4 * share
        if name == "key switch":  # a number theoretic transform for every pair of primes
            every = len(parameters.data_moduli)
            return self.key_switch * primes * (primes + 1) / (every * (every + 1))
        return float(getattr(self, name)) * size / 2 * share


def measured_times(parameters: Parameters) -> Times:
    """The times on this machine: from the cache, or measured now."""
    cache = _cache_file()
    key = f"{parameters.fingerprint} {platform.node()} {platform.machine()} 2"  # the second version of what is measured
    try:
        known = json.loads(cache.read_text())
    except (OSError, ValueError):
        known = {}
    if not isinstance(known, dict):
        known = {}
    try:
        return Times(**known[key])
    except (KeyError, TypeError):  # not measured yet, or by a version that measured something else
        times = calibrate(parameters)
    _keep(cache, {**known, key: vars(times)})
    return times


def _cache_file() -> Path:
    base = os.environ.get("ENCRYPTEDSTATS_CACHE") or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "encryptedstats" / "times.json"


def _keep(cache: Path, known: dict[str, dict[str, float]]) -> None:
    try:
        cache.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(cache, [json.dumps(known).encode()])
    except OSError:
        return  # a cache that cannot be written costs a second next time, nothing else


def calibrate(parameters: Parameters) -> Times:
    """Measure the primitive operations: the best of a few runs each, since machines are shared."""
    owner = Owner(parameters)
    encryptor, keys = owner._encryptor, owner.public_keys()
    engine, evaluator = keys.engine, keys.engine.evaluator
    values = np.arange(parameters.slots, dtype=np.int64) % 2
    x, _ = encrypt_slots(values, encryptor)
    y, _ = encrypt_slots(values, encryptor)
    residues, two = residues_of(engine, x), engine.encode_integer(2)
    product = evaluator.multiply(x, y)
    lowest = engine.level_ids[min(1, len(engine.level_ids) - 1)]
    bits = [q.bit_length() for q in parameters.data_moduli]
    stored = [pack(np.ascontiguousarray(residues[:, i]), bits[i]) for i in range(len(bits))]

    def encrypt_and_store() -> None:
        fresh = residues_of(engine, encrypt_slots(values, encryptor)[0])
        for i, size in enumerate(bits):
            hashlib.sha256(pack(np.ascontiguousarray(fresh[:, i]), size).tobytes())

    def read_stored() -> None:
        for words, size in zip(stored, bits, strict=True):
            hashlib.sha256(words.tobytes())
            unpack(words, size)

    times = Times(
        load=_best(lambda: ciphertext_of(engine, residues)),
        add=_best(lambda: evaluator.add(x, y)),
        scale=_best(lambda: evaluator.multiply_plain(x, two)),
        mask=_best(lambda: evaluator.multiply_plain(x, engine.encoder.encode(values))),
        multiply=_best(lambda: evaluator.multiply(x, y)),
        switch=_best(lambda: evaluator.mod_switch_to(x, lowest)),
        key_switch=_best(lambda: keys.relinearise(product)),
        encrypt=_best(encrypt_and_store),
        unpack=_best(read_stored),
    )
    rows_ratio, finish_ratio = _engine_ratios(keys, residues, times)
    return replace(times, rows_ratio=rows_ratio, finish_ratio=finish_ratio)


@dataclass(frozen=True)
class _Sample:
    """A small made-up table, to see how fast the engine is that circuits are evaluated with by default."""

    keys: PublicKeys
    values: Residues
    chunks: int
    with_secret_key: bool = True

    @property
    def parameters(self) -> Parameters:
        return self.keys.parameters

    @property
    def layout(self) -> Layout:
        return Layout(self.chunks, self.parameters.slots, (1,) * self.chunks)

    def ranges(self) -> dict[str, ColumnRange]:
        return {f"x{j}": ColumnRange(0, 1) for j in range(_SAMPLE_COLUMNS)}

    def residues(self, name: str, chunk: int) -> Residues:
        return self.values


def _engine_ratios(keys: PublicKeys, residues: Residues, times: Times) -> tuple[float, float]:
    """Measured over predicted time, over rows and for the totals, from evaluations of one and of several chunks."""
    n = _SAMPLE_COLUMNS
    x = [column(f"x{j}") for j in range(n)]
    outputs = [(x[i] * (x[j] + x[(j + 1) % n])).total() for i in range(n) for j in range(i + 1, n)]
    few, many = _Sample(keys, residues, 1), _Sample(keys, residues, 9)
    try:
        report = read_noise(outputs, keys.parameters, few.layout)
        short, long = (_best(partial(evaluate, outputs, source, workers=1), 2) for source in (few, many))
    except (NoiseError, OverflowError):
        return 1.0, 1.0  # parameters that carry no product: then there is little to estimate
    cost = read_cost(outputs, keys.parameters, few.layout, report.strategy, width=report.width)
    over_rows = max((long - short) / (many.chunks - few.chunks), 1e-6)
    rows_work, finish_work = (work_seconds(counts, times, keys.parameters) for counts in (cost.rows, cost.finish))
    return over_rows / rows_work, max(short - over_rows, 1e-6) / finish_work


def _best(action: Callable[[], object], runs: int = 5) -> float:
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return min(times)
