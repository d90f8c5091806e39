"""Cut a computation into shards: how large they are, the proof that they share, and their prices.

A shard is some chunks of rows. All shards are computed by one proof, so that their totals can be
added up. The program digest of a sum is the sum of the digests of its parts, whatever the order in
which they were added (:func:`add_digests`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

from encryptedstats.circuits.compiled import Compiled, Conditions, compile_outputs
from encryptedstats.circuits.cost import Cost, Times
from encryptedstats.circuits.expressions import Expression
from encryptedstats.circuits.layout import Layout
from encryptedstats.circuits.lowering import Setting
from encryptedstats.circuits.program import PACKED, add_digests
from encryptedstats.circuits.proof import NoiseReport, read_noise
from encryptedstats.words import size_text, time_text

# By default a table is cut into so many shards, none of more than so many chunks. A shard's totals
# are brought down and packed once, which costs as much as several chunks; and a lost shard should
# not be an hour's work.
SHARDS: Final = 32
MAX_SHARD_CHUNKS: Final = 64
#: How many results are added up at once on the way to the sum of all shards.
FAN_IN: Final = 16


def chunks_per_shard(n_chunks: int, workers: int | None = None) -> int:
    """Return how many chunks make a shard; for so many workers, about two shards for each."""
    wanted = -(-n_chunks // (SHARDS if workers is None else 2 * workers))
    return max(1, min(MAX_SHARD_CHUNKS, wanted))


def cut_chunks(n_chunks: int, workers: int | None = None) -> list[int]:
    """Return after which chunks the shards of a table end."""
    size = chunks_per_shard(n_chunks, workers)
    return [*range(size, n_chunks, size), n_chunks]


def cut_layout(layout: Layout, stops: Sequence[int]) -> list[Layout]:
    """Return the layout of each shard, which end after these chunks."""
    counts = layout.counts
    inside = [counts[start:stop] for start, stop in pairwise([0, *stops])]
    return [Layout(sum(some), layout.slots, some, layout.copies) for some in inside]


def prove_shards(outputs: Sequence[Expression], conditions: Conditions) -> NoiseReport:
    """Return the proof that all shards are computed by: that for the largest, whose rows these are.

    Shards are not interleaved, so that any device computes them alike.
    """
    own = conditions.with_secret_key
    return read_noise(outputs, Setting(conditions.parameters, conditions.layout, own, beside=1))


def compile_shards(
    outputs: tuple[Expression | int, ...], conditions: Conditions, stops: Sequence[int]
) -> list[Compiled]:
    """Compile outputs for each shard of a table, as a cluster computes them."""
    layouts = cut_layout(conditions.layout, stops)
    if conditions.form == PACKED:
        largest = max(layouts, key=lambda layout: layout.n_chunks)
        wanted = [output for output in outputs if isinstance(output, Expression)]
        report = prove_shards(wanted, replace(conditions, layout=largest))
        conditions = replace(conditions, report=report, flood=False)
    return [compile_outputs(outputs, replace(conditions, layout=layout)) for layout in layouts]


@dataclass(frozen=True)
class Workforce:
    """Single-core workers to plan for, and what an hour of one costs, if that is known."""

    workers: int
    price_per_core_hour: float | None = None


@dataclass(frozen=True)
class ShardedWork:
    """What a table takes that is cut into shards: its operations, and the packs of one shard."""

    layout: Layout
    bytes_up: int
    costs: Sequence[Cost]
    n_packs: int
    pack_bytes: int


@dataclass(frozen=True)
class ClusterCost:
    """What a computation takes on a cluster of single-core workers.

    Attributes
    ----------
    workers, shards : int
    rows_per_shard : int
        For ``es.cluster.fit``.
    seconds, core_hours : float
        Time until the encrypted result is there, and what of it is computed; reading and writing
        not counted.
    bytes_read, bytes_written : int
        Between storage and all workers.
    price : float or None
        Every worker for the whole time, at the price given.
    shard_digests : tuple of tuple of str
        For each stage of the plan, the program digest of each shard. What is not cut, such as the
        draw of a fraction, is one shard.
    digests : tuple of str
        For each stage of the plan, the program digest of its answer: the sum over its shards.
    """

    workers: int
    shards: int
    rows_per_shard: int
    seconds: float
    core_hours: float
    bytes_read: int
    bytes_written: int
    price: float | None
    shard_digests: tuple[tuple[str, ...], ...] = ()

    @property
    def digests(self) -> tuple[str, ...]:
        return tuple(map(add_digests, self.shard_digests))

    def to_dict(self) -> dict[str, Any]:
        """Return the figures, ready for JSON."""
        figures = dict(vars(self))
        del figures["shard_digests"]
        return figures

    def rows(self) -> list[tuple[str, str]]:
        """Return what is printed: name and value."""
        busy = f"{self.core_hours:,.{1 if self.core_hours >= 1 else 4}f} core hours of work"
        money = "" if self.price is None else f", {self.price:,.2f} for the workers' time"
        return [
            (
                "cluster",
                f"{self.workers:,} workers, {self.shards:,} shards of up to "
                f"{self.rows_per_shard:,} rows",
            ),
            ("time there", f"{time_text(self.seconds)} to compute, {busy}{money}"),
            (
                "traffic there",
                f"{size_text(self.bytes_read)} read, {size_text(self.bytes_written)} written",
            ),
        ]


def price_shards(work: ShardedWork, force: Workforce, times: Times) -> ClusterCost:
    """Price the same work in shards: each brings its totals down, then they are added in rounds."""
    layout, workers = work.layout, force.workers
    size = chunks_per_shard(layout.n_chunks, workers)
    shards = -(-layout.n_chunks // size)
    finish = sum(cost.finish_seconds(times) for cost in work.costs)
    over_rows = sum(cost.seconds(times, workers=1) for cost in work.costs) - finish
    rounds = math.ceil(math.log(shards, FAN_IN)) if shards > 1 else 0
    adding = FAN_IN * work.n_packs * (times.load + times.unpack + times.add)
    of_a_shard = over_rows * size / layout.n_chunks + finish
    seconds = -(-shards // workers) * of_a_shard + rounds * adding
    partial_sums = shards / (FAN_IN - 1)
    written = (shards + partial_sums) * work.n_packs * work.pack_bytes
    price = force.price_per_core_hour
    return ClusterCost(
        workers,
        shards,
        min(layout.n_rows, size * layout.slots),
        seconds,
        (over_rows + shards * finish + partial_sums * adding) / 3600,
        round(work.bytes_up + written),
        round(written),
        None if price is None else workers * seconds / 3600 * price,
    )
