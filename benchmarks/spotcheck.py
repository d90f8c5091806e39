"""Spot checks beside computing everything again: what the owner and the worker spend, and what
travels.

Shares of processor time within one run, so that a loaded machine changes them little.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pandas as pd
from rich import box
from rich.table import Table

import encryptedstats as es
from benchmarks._common import Report, Settings, part
from benchmarks.planning import DEPTH, N_TREES, _made_up, _rows_of
from encryptedstats.circuits.spare_bits import default_positions
from encryptedstats.spotcheck import Keeper, SpotCheck, respond
from encryptedstats.tables.facts import MemoryBlocks

T = TypeVar("T")
MILLION = 1_000_000
GOALS = {"owner": 0.05, "worker": 1.10}


@part("spotcheck")
def spotcheck(settings: Settings) -> Report:
    trees = 2 if settings.quick else N_TREES
    found = [_measure(*one, trees, _count_runs(one[3], settings)) for one in _tables(settings)]
    return Report(
        results={
            "trees": trees,
            "depth": DEPTH,
            "goals": GOALS,
            "load_before": os.getloadavg()[0],
            "tables": found,
        },
        tables=[_table(found)],
        remarks=[
            f"Forests of {trees} trees of depth {DEPTH}; processor time of one thread, medians. "
            "The owner: challenge and check, without what opening takes in any case, as a share "
            "of es.verify. The worker: the response as a share of the fit, sums recomputed.",
            "The machine was loaded by other work: take the shares, and not the seconds.",
        ],
    )


def _count_runs(n_rows: int, settings: Settings) -> int:
    """Return how often everything is done: what takes milliseconds, more often."""
    return 1 if settings.quick else 15 if n_rows < 10_000 else 3


def _tables(settings: Settings) -> Iterator[tuple[str, es.Schema, pd.DataFrame, int]]:
    for name in ("bcw_o", "adult"):
        rows = _rows_of(name)
        if rows is not None:
            yield name, *rows, len(rows[1])
    if not settings.quick and os.environ.get("ENCRYPTEDSTATS_MILLION"):
        schema = _made_up(20)
        frame = pd.DataFrame({v.name: [0.0] * 8192 for v in schema.variables}).assign(y=0)
        yield "a million rows", schema, frame, MILLION


def _measure(
    name: str, schema: es.Schema, frame: pd.DataFrame, n_rows: int, trees: int, runs: int
) -> dict[str, Any]:
    forest = es.CompletelyRandomForest(trees, DEPTH, random_state=1)
    plain = es.plan(forest, schema, n_rows=n_rows)
    plan = es.plan(forest, schema, n_rows=n_rows, spot_check=True)
    owner = es.Owner(plan)
    table = _repeated(owner.encrypt(schema.table(frame), progress=False), n_rows)
    keeper = Keeper.draw(owner)
    _, keeping = _timed(lambda: keeper.keep(table), 1)
    question = forest.in_ids(schema)
    answer, fit = _timed(lambda: table._answer_to(question, workers=1, progress=False), runs)
    check = SpotCheck(keeper)
    challenge, asking = _timed(lambda: check.challenge(answer, question, schema), runs)
    response, responding = _timed(lambda: respond(table, question, challenge, workers=1), runs)
    _, checking = _timed(lambda: check.open(answer, question, response, schema), runs)
    _, opening = _timed(lambda: owner.open(answer, schema), runs)
    _, verifying = _timed(lambda: es.verify(answer, table, workers=1, progress=False), runs)
    sent = response.to_container(owner.parameters, owner.key_id).section("residues")
    return {
        "table": name,
        "rows": table.n_rows,
        "chunks": table.layout.n_chunks,
        "ring_degree": owner.parameters.ring_degree,
        "modulus_bits": {
            "planned": sum(q.bit_length() for q in plan.parameters.data_moduli),
            "without": sum(q.bit_length() for q in plain.parameters.data_moduli),
        },
        "totals": plan.n_totals,
        "positions": default_positions(owner.parameters),
        "combinations": len(challenge.seeds),
        "cpu_seconds": {
            "fit": fit,
            "verify": verifying,
            "respond": responding,
            "challenge": asking,
            "check": checking - opening,
            "open": opening,
            "keep": keeping,
        },
        "owner_share_of_verify": (asking + checking - opening) / verifying,
        "worker_share_of_fit": responding / fit,
        "bytes_down_more": len(sent),
        "bytes_kept": sum(one.nbytes for group in keeper.groups for one in group.residues),
        "bytes_table": table.blocks.stored_bytes(),
    }


def _repeated(table: es.EncryptedTable, n_rows: int) -> es.EncryptedTable:
    """Return a table of `n_rows` rows: one block repeated under other names."""
    if table.n_rows >= n_rows:
        return table
    count = n_rows // table.n_rows
    blocks = table.blocks
    again = MemoryBlocks(
        tuple(f"{number:032x}" for number in range(count)),
        blocks.rows * count,
        (blocks.block(0),) * count,
    )
    return es.EncryptedTable(table.facts, again, table.public_keys(), table.private_schema)


def _timed(work: Callable[[], T], runs: int) -> tuple[T, float]:
    """Return what some work gives, and the median of its processor time."""
    times = []
    for _ in range(runs):
        started = time.process_time()
        found = work()
        times.append(time.process_time() - started)
    return found, sorted(times)[len(times) // 2]


def _table(found: list[dict[str, Any]]) -> Table:
    table = Table(box=box.SIMPLE, title="Spot checks, as shares")
    for name in ("table", "owner of verify", "worker of fit", "MB down", "kept of the table"):
        table.add_column(name, justify="left" if name == "table" else "right")
    for one in found:
        kept = one["bytes_kept"] / one["bytes_table"]
        table.add_row(
            one["table"],
            f"{one['owner_share_of_verify']:.1%}",
            f"{one['worker_share_of_fit']:.0%}",
            f"{one['bytes_down_more'] / 1e6:.1f}",
            f"{kept:.1%}",
        )
    return table
