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
from encryptedstats.circuits.cost import Cost, OperationTimes
from encryptedstats.circuits.expressions import Expression
from encryptedstats.circuits.layout import Layout
from encryptedstats.circuits.lowering import Setting
from encryptedstats.circuits.program import PACKED, add_digests
from encryptedstats.circuits.proof import NoiseReport, read_noise
from encryptedstats.words import size_text, time_text

# By default a table is cut into this many shards, none larger than this many chunks. Switching and
# packing the totals of a shard costs as much as several chunks, and a lost shard should not cost an
# hour.
SHARDS: Final = 32
MAX_SHARD_CHUNKS: Final = 64
#: How many results are added up at once in each round of summing all shards.
FAN_IN: Final = 16


def chunks_per_shard(n_chunks: int, workers: int | None = None) -> int:
    """Return how many chunks make a shard; with ``workers``, about two shards for each of them."""
    wanted = -(-n_chunks // (SHARDS if workers is None else 2 * workers))
    return max(1, min(MAX_SHARD_CHUNKS, wanted))


def cut_chunks(n_chunks: int, workers: int | None = None) -> list[int]:
    """Return after which chunks the shards of a table end."""
    size = chunks_per_shard(n_chunks, workers)
    return [*range(size, n_chunks, size), n_chunks]


def cut_layout(layout: Layout, stops: Sequence[int]) -> list[Layout]:
    """Return the layout of each shard; ``stops`` are the chunks after which shards end."""
    counts = layout.counts
    inside = [counts[start:stop] for start, stop in pairwise([0, *stops])]
    return [replace(layout, n_rows=sum(some), uneven=some) for some in inside]


def prove_shards(outputs: Sequence[Expression], conditions: Conditions) -> NoiseReport:
    """Return the proof for the largest shard, which all shards share.

    Shards are not interleaved, so that any device computes them alike.
    """
    own = conditions.with_secret_key
    setting = Setting(
        conditions.parameters, conditions.layout, own, conditions.form, n_interleaved=1
    )
    return read_noise(outputs, setting)


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
    """Single-core workers, and optionally the price of an hour of one."""

    workers: int
    price_per_core_hour: float | None = None


@dataclass(frozen=True)
class ShardedWork:
    """The work on a table that is cut into shards: its operations, and the packs of one shard."""

    layout: Layout
    bytes_up: int
    costs: Sequence[Cost]
    n_packs: int
    pack_bytes: int


@dataclass(frozen=True)
class ClusterCost:
    """The cost of a computation on a cluster of single-core workers.

    Attributes
    ----------
    workers, shards : int
    rows_per_shard : int
        For ``worker.fit(..., rows_per_shard=...)``.
    seconds, core_hours : float
        Time until the result is stored, and the time of all cores, without reading and writing.
    bytes_read, bytes_written : int
        Traffic between storage and all workers.
    price : float or None
        The price of all workers for the whole time.
    shard_digests : tuple of tuple of str
        For each stage of the plan, the program digest of each shard. A stage that is not cut, such
        as the draw of a fraction, is one shard.
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


def price_shards(work: ShardedWork, force: Workforce, times: OperationTimes) -> ClusterCost:
    """Price work in shards: each switches and packs its totals, then they are added in rounds."""
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
