"""How the cost of a fit grows with trees, depth, variables and classes, and what the plan says to
it: one chunk of 8192 rows.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from rich import box
from rich.table import Table

import encryptedstats as es
from benchmarks._common import Report, Settings, part
from benchmarks.fit import add_up, sums_program
from encryptedstats.machine import cores


@dataclass(frozen=True)
class Case:
    """A forest and a table; everything else is as it was."""

    rows: int = 8192
    variables: int = 10
    trees: int = 20
    depth: int = 3
    classes: int = 2


SWEEPS: dict[str, tuple[int, ...]] = {
    "trees": (10, 20, 40, 80),
    "depth": (1, 2, 3),
    "variables": (5, 10, 20, 40),
    "classes": (2, 4, 8),
}


@part("growth")
def growth(settings: Settings) -> Report:
    base = Case(rows=500, variables=3, trees=2, depth=2) if settings.quick else Case()
    values = {"trees": (1, 2)} if settings.quick else SWEEPS
    sweeps = {
        name: [{"value": value, **_measured(replace(base, **{name: value}))} for value in some]
        for name, some in values.items()
    }
    return Report(
        results={"base": vars(base), "sweeps": sweeps},
        tables=[_table(sweeps)],
        remarks=[
            f"Each from {base.rows} rows, {base.variables} variables of 5 bins, {base.trees} "
            f"trees of depth {base.depth}, "
            f"{base.classes} classes, with the parameters that the plan chooses for it; {cores()} "
            "cores. Best of three."
        ],
    )


def _measured(case: Case) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({f"x{j}": rng.normal(size=case.rows) for j in range(case.variables)})
    frame["y"] = rng.integers(0, case.classes, case.rows)
    schema = es.Schema.infer(frame, target="y", bins=5)
    forest = es.CompletelyRandomForest(case.trees, case.depth, random_state=1)
    plan = es.plan(forest, schema, case.rows)
    sealed = es.Owner(plan).encrypt(schema.table(frame))
    program = sums_program(sealed.facts.circuit(forest, sealed.layout)[0], sealed.source())
    return {
        "sums_s": _best(lambda: add_up(program, sealed.source(), cores())),
        "total_s": _best(lambda: forest.fit(sealed, progress=False)),
        "planned_s": plan.seconds,
        "products": plan.products,
        "totals": plan.n_totals,
        "ring_degree": plan.parameters.ring_degree,
        "primes": len(plan.parameters.data_moduli),
        "columns": len(sealed.facts.columns),
    }


def _best(action: Any) -> float:
    times = []
    for _ in range(3):
        started = time.perf_counter()
        action()
        times.append(time.perf_counter() - started)
    return min(times)


def _table(sweeps: dict[str, list[dict[str, Any]]]) -> Table:
    table = Table(
        title="How a fit grows", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False
    )
    for heading in (
        "what",
        "",
        "ring",
        "primes",
        "products",
        "totals",
        "sums s",
        "packed s",
        "planned s",
    ):
        table.add_column(heading, justify="left" if heading == "what" else "right")
    for name, points in sweeps.items():
        for point in points:
            table.add_row(
                name,
                str(point["value"]),
                f"{point['ring_degree']:,}",
                str(point["primes"]),
                f"{point['products']:,}",
                f"{point['totals']:,}",
                f"{point['sums_s']:.3f}",
                f"{point['total_s']:.2f}",
                f"{point['planned_s']:.2f}",
                end_section=point is points[-1],
            )
    return table
