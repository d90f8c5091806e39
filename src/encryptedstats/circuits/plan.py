"""The plan: parameters for a circuit and what it will cost, known and printed before anybody pays.

Reads the circuit with the bounds, noise and cost readers, for one ring after the other, until one carries it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from encryptedstats.circuits.bounds import ColumnRange, read_bounds
from encryptedstats.circuits.cost import Cost, Times, measured_times, read_cost
from encryptedstats.circuits.expressions import Expression, depth_of
from encryptedstats.circuits.layout import Layout
from encryptedstats.circuits.noise import PACKED, NoiseReport, read_noise, room_for
from encryptedstats.circuits.walk import rotations_needed
from encryptedstats.crypto.flooding import FLOODING_BITS
from encryptedstats.crypto.noise import FAILURE_BITS, Scheme
from encryptedstats.crypto.packing import packing_parameters, packing_primes
from encryptedstats.crypto.parameters import (
    MAX_PRIME_BITS,
    Parameters,
    parameters_from_sizes,
    plain_modulus_for,
    smallest_chain,
)
from encryptedstats.crypto.security import LEVELS, RINGS, TABLE_NAME
from encryptedstats.errors import NoiseError, ParameterError
from encryptedstats.parallel import cores

if TYPE_CHECKING:
    from encryptedstats.circuits.plan_joined import PredictionCost

# Below 2^50 a modular product can be computed in doubles, several at a time; tried first.
FAST_PRIME_BITS: Final = 49
# A shard of a cluster's work: by default a table is cut into so many, none of more than so many chunks. A shard's totals are
# brought down and packed once, which costs as much as several chunks; and a lost shard should not be an hour's work.
SHARDS: Final = 32
MAX_SHARD_CHUNKS: Final = 64
#: How many results are added up at once on the way to the sum of all shards.
FAN_IN: Final = 16


def chunks_per_shard(n_chunks: int, workers: int | None = None) -> int:
    """How many chunks of rows make a shard; for so many workers, about two shards for each."""
    wanted = -(-n_chunks // (SHARDS if workers is None else 2 * workers))
    return max(1, min(MAX_SHARD_CHUNKS, wanted))


@dataclass(frozen=True)
class ClusterCost:
    """What a computation takes on a cluster of single-core workers.

    Attributes
    ----------
    workers, shards : int
    rows_per_shard : int
        For ``es.cluster.fit``.
    seconds, core_hours : float
        Time until the encrypted result is there, and what of it is computed; reading and writing not counted.
    bytes_read, bytes_written : int
        Between storage and all workers.
    price : float or None
        Every worker for the whole time, at the price given.
    """

    workers: int
    shards: int
    rows_per_shard: int
    seconds: float
    core_hours: float
    bytes_read: int
    bytes_written: int
    price: float | None

    def rows(self) -> list[tuple[str, str]]:
        """What is printed: name and value."""
        busy = f"{self.core_hours:,.{1 if self.core_hours >= 1 else 4}f} core hours of work"
        money = "" if self.price is None else f", {self.price:,.2f} for the workers' time"
        return [
            ("cluster", f"{self.workers:,} workers, {self.shards:,} shards of up to {self.rows_per_shard:,} rows"),
            ("time there", f"{show_time(self.seconds)} to compute, {busy}{money}"),
            ("traffic there", f"{show_size(self.bytes_read)} read, {show_size(self.bytes_written)} written"),
        ]


@dataclass(frozen=True)
class Plan:
    """Parameters for a computation and its cost. Print it; ``Owner(plan)`` makes keys for it.

    Attributes
    ----------
    parameters : Parameters
    layout : Layout
        Rows, slots and chunks.
    depth : int
        Products in a row.
    largest : int
        Bound on every result.
    n_columns : int
        Columns that are encrypted.
    n_totals : int
        Results.
    bytes_up, bytes_down : int
        Bytes of ciphertexts to store and to download.
    products, key_switches : int
        The operations that count.
    memory : int
        Bytes of memory the evaluation holds at once, beside the table.
    encrypt_seconds, seconds : float
        Estimated time to encrypt and to compute, on the cores of this machine.
    rotations : tuple of int
        Rotation keys that the worker needs: ``owner.public_keys(rotations=plan.rotations)``.
    cluster : ClusterCost, optional
        Where it was planned for many workers: shards, time, bytes and money.
    prediction : PredictionCost, optional
        Where it was planned to predict without opening anything: how, and what that takes.
    flooded : bool
        Whether results hide the rows from who opens them, by noise: so it is for rows that others encrypt.
    """

    parameters: Parameters
    layout: Layout
    depth: int
    largest: int
    n_columns: int
    n_totals: int
    bytes_up: int
    bytes_down: int
    products: int
    key_switches: int
    memory: int
    encrypt_seconds: float
    seconds: float
    rotations: tuple[int, ...]
    report: NoiseReport
    cluster: ClusterCost | None = None
    prediction: PredictionCost | None = None
    flooded: bool = False

    @property
    def security(self) -> int:
        """Bits of security."""
        return self.parameters.security

    @property
    def failure_bound(self) -> str:
        """The proven bound on the probability that decryption fails, with its model."""
        return f"2^-{FAILURE_BITS} (canonical norm, docs/noise.md), {self.report.budget:.0f} bits to spare"

    def to_dict(self) -> dict[str, Any]:
        """The figures, ready for JSON."""
        return {
            "parameters": self.parameters.to_dict(),
            "security": self.security,
            "rows": self.layout.n_rows,
            "chunks": self.layout.n_chunks,
            "slots": self.layout.slots,
            "depth": self.depth,
            "largest_value": self.largest,
            "failure_bound": self.failure_bound,
            "columns": self.n_columns,
            "ciphertexts_up": self.n_columns * self.layout.n_chunks,
            "bytes_up": self.bytes_up,
            "totals": self.n_totals,
            "bytes_down": self.bytes_down,
            "products": self.products,
            "key_switches": self.key_switches,
            "memory": self.memory,
            "encrypt_seconds": self.encrypt_seconds,
            "seconds": self.seconds,
            "rotations": list(self.rotations),
            "flooded": self.flooded,
            **({} if self.cluster is None else {"cluster": asdict(self.cluster)}),
            **({} if self.prediction is None else {"prediction": self.prediction.to_dict()}),
        }

    def rows(self) -> list[tuple[str, str]]:
        """What is printed: name and value."""
        p, layout = self.parameters, self.layout
        primes = "+".join(str(q.bit_length()) for q in p.coefficient_moduli)
        return [
            ("scheme", f"{p.scheme.upper()}, ring {p.ring_degree}, moduli {primes} bits, t = {p.plain_modulus}"),
            ("security", f"{p.security} bits, {TABLE_NAME}"),
            ("rows", f"{layout.n_rows:,} in {layout.n_chunks:,} chunks of {layout.slots:,}"),
            ("depth", f"{self.depth} products in a row"),
            ("largest value", f"±{self.largest:,} (exact up to ±{p.max_value:,})"),
            ("failure bound", self.failure_bound),
            *(
                [("flooding", f"{FLOODING_BITS} bits over the noise: results hide the rows of others")]
                if self.flooded
                else ()
            ),
            ("upload", f"{self.n_columns * layout.n_chunks:,} ciphertexts, {show_size(self.bytes_up)}"),
            ("download", f"{self.n_totals:,} totals, {show_size(self.bytes_down)}"),
            ("work", f"{self.products:,} products, {self.key_switches:,} key switches"),
            ("memory", f"{show_size(self.memory)} beside the table"),
            (
                "time here",
                f"{show_time(self.encrypt_seconds)} to encrypt, {show_time(self.seconds)} to compute, {cores()} cores",
            ),
            *(self.cluster.rows() if self.cluster is not None else ()),
            *(self.prediction.rows() if self.prediction is not None else ()),
        ]

    def __str__(self) -> str:
        return "Plan\n" + "\n".join(f"  {name:<14}{value}" for name, value in self.rows())

    def _repr_html_(self) -> str:
        cells = "".join(
            f"<tr><th style='text-align:left'>{name}</th><td>{value}</td></tr>" for name, value in self.rows()
        )
        return f"<table>{cells}</table>"


def plan_circuit(
    outputs: Sequence[Expression],
    ranges: Mapping[str, ColumnRange],
    n_rows: int,
    *,
    n_columns: int | None = None,
    security: int = 128,
    scheme: Scheme | None = None,
    with_secret_key: bool = True,
    form: str = PACKED,
    times: Times | None = None,
    workers: int | None = None,
    price_per_core_hour: float | None = None,
) -> Plan:
    """Plan the evaluation of some totals over so many rows; for ``workers``, with room to add up the results of all shards.

    Raises
    ------
    ParameterError
        If no parameters carry it; names the binding limit and the nearest wish that can be granted.
    """
    outputs = list(outputs)
    if security not in LEVELS:
        raise ParameterError(f"security={security!r}: it can be {', '.join(map(str, LEVELS))} bits")
    wish = _Wish(outputs, dict(ranges), security, scheme or "bgv", with_secret_key, form, workers)
    try:
        parameters, report = wish.parameters(n_rows)
    except ParameterError:
        if scheme is not None:
            raise
        # BGV wants primes that are 1 modulo t; for a very large t there are none, and BFV has to do.
        parameters, report = replace(wish, scheme="bfv").parameters(n_rows)
    layout = Layout(n_rows, parameters.slots)
    columns = len(ranges) if n_columns is None else n_columns
    cost = read_cost(
        outputs, parameters, layout, report.strategy, with_secret_key=with_secret_key, form=form, width=report.width
    )
    times = measured_times(parameters) if times is None else times
    bytes_up = columns * layout.n_chunks * parameters.packed_bytes()
    made = Plan(
        parameters=parameters,
        layout=layout,
        depth=depth_of(outputs),
        largest=wish.largest(n_rows, parameters.slots),
        n_columns=columns,
        n_totals=len(outputs),
        bytes_up=bytes_up,
        bytes_down=_download(parameters, len(outputs), form, report.width),
        products=cost.number("multiply"),
        key_switches=cost.number("key switch"),
        memory=memory_of(parameters, cost),
        encrypt_seconds=columns * layout.n_chunks * times.encrypt / cores(),
        seconds=cost.seconds(times),
        rotations=rotations_needed(outputs, layout, replicated=form == "replicated"),
        report=report,
        flooded=not with_secret_key and form == PACKED,
    )
    return (
        made if workers is None else replace(made, cluster=_on_cluster(made, cost, times, workers, price_per_core_hour))
    )


def _on_cluster(made: Plan, cost: Cost, times: Times, workers: int, price: float | None) -> ClusterCost:
    """The same work cut into shards: each brings its totals down on its own, and then they are added up in rounds."""
    layout = made.layout
    size = chunks_per_shard(layout.n_chunks, workers)
    shards = -(-layout.n_chunks // size)
    finish = cost.finish_seconds(times)
    over_rows = cost.seconds(times, workers=1) - finish
    packs = -(-made.n_totals // made.report.width)
    rounds = math.ceil(math.log(shards, FAN_IN)) if shards > 1 else 0
    adding = FAN_IN * packs * (times.load + times.unpack + times.add)
    of_a_shard = over_rows * size / layout.n_chunks + finish
    seconds = -(-shards // workers) * of_a_shard + rounds * adding
    partial_sums = shards / (FAN_IN - 1)
    return ClusterCost(
        workers,
        shards,
        min(layout.n_rows, size * layout.slots),
        seconds,
        (over_rows + shards * finish + partial_sums * adding) / 3600,
        round(made.bytes_up + (shards + partial_sums) * made.bytes_down),
        round((shards + partial_sums) * made.bytes_down),
        None if price is None else workers * seconds / 3600 * price,
    )


@dataclass(frozen=True)
class _Wish:
    """What is to be computed, under which conditions."""

    outputs: list[Expression]
    ranges: dict[str, ColumnRange]
    security: int
    scheme: Scheme
    with_secret_key: bool
    form: str
    workers: int | None = None

    def largest(self, n_rows: int, slots: int) -> int:
        """The largest absolute value of a result."""
        layout = Layout(n_rows, slots)
        bounds = read_bounds(self.outputs, self.ranges, n_rows, layout.n_chunks * slots)
        return max(bounds[output].largest for output in self.outputs)

    def parameters(self, n_rows: int) -> tuple[Parameters, NoiseReport]:
        """The smallest ring and modulus that carry the circuit over so many rows."""
        for ring in RINGS:
            found = self._in_ring(ring, n_rows)
            if found is not None:
                return found
        raise ParameterError(self._what_is_possible(n_rows))

    def _in_ring(self, ring: int, n_rows: int) -> tuple[Parameters, NoiseReport] | None:
        largest = self.largest(n_rows, ring)
        if largest >= 1 << (MAX_PRIME_BITS - 2):
            return None
        t, layout = plain_modulus_for(ring, max(1, largest)), Layout(n_rows, ring)
        shards = -(-layout.n_chunks // chunks_per_shard(layout.n_chunks, self.workers)) if self.workers else 1
        room = room_for(shards, flooded=not self.with_secret_key)

        def proven(primes: tuple[int, ...]) -> tuple[Parameters, NoiseReport] | None:
            try:
                for parameters in self._with_kept_primes(Parameters(self.scheme, ring, t, primes)):
                    report = self._report(parameters, layout)
                    if report is not None and (self.form != PACKED or report.budget >= 1.0 + room):
                        return parameters, report
            except ParameterError:
                pass
            return None

        for largest_prime in (FAST_PRIME_BITS, MAX_PRIME_BITS):
            sizes = smallest_chain(
                self.scheme, ring, t, self.security, lambda primes: proven(primes) is not None, largest_prime
            )
            if sizes is not None:
                return proven(parameters_from_sizes(self.scheme, ring, t, sizes).coefficient_moduli)
        return None

    def _with_kept_primes(self, parameters: Parameters) -> Iterator[Parameters]:
        """Packs that are flooded have to keep more primes: as few as there can be."""
        if self.with_secret_key or self.form != PACKED:
            yield parameters
            return
        for kept in range(packing_primes(parameters), len(parameters.data_moduli) + 1):
            yield replace(parameters, kept_primes=kept)

    def _report(self, parameters: Parameters, layout: Layout) -> NoiseReport | None:
        try:
            return read_noise(
                self.outputs, parameters, layout, with_secret_key=self.with_secret_key, form=self.form, quick=True
            )
        except NoiseError:
            return None

    def _what_is_possible(self, n_rows: int) -> str:
        """Why there are no parameters: values, or depth; and the most rows that would do."""
        depth, largest = depth_of(self.outputs), self.largest(n_rows, RINGS[-1])
        text = (
            f"no {self.scheme} parameters of {self.security}-bit security carry this circuit over {n_rows:,} rows: it is "
            f"{depth} products deep with values up to {largest:,}, and the largest ring is {RINGS[-1]}"
        )
        low, high = 0, n_rows
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self._in_ring(RINGS[-1], middle) else (low, middle - 1)
        if low:
            return text + f". Nearest: up to {low:,} rows at once (results of parts can be added by the owner)"
        return text + ". Nearest: fewer products in a row (a smaller depth)"


def _download(parameters: Parameters, n_totals: int, form: str, width: int) -> int:
    if form != PACKED:
        return n_totals * parameters.packed_bytes()
    return -(-n_totals // width) * packing_parameters(parameters).packed_bytes()


def memory_of(parameters: Parameters, cost: Cost) -> int:
    """Bytes that an evaluation holds beside the table."""
    largest_size = max((size for name, size, _ in cost.counts if name == "add"), default=2)
    batch = 56  # totals side by side in a process, and about as many intermediate values
    return 2 * batch * cores() * parameters.ciphertext_bytes(largest_size)


def show_size(n: int) -> str:
    """Bytes, for people."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n >= scale:
            return f"{n / scale:.1f} {unit}"
    return f"{n} bytes"


def show_time(seconds: float) -> str:
    """Seconds, for people."""
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
