"""``bench``: what this machine does in a second, a short measurement. The figures that the
documents quote are those of ``python -m benchmarks``, in a checkout.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Annotated, Any, Final

import numpy as np
import pandas as pd
import typer
from rich.console import Console, RenderableType
from rich.text import Text

import encryptedstats as es
from encryptedstats.cli._console import fact_table, print_json, progress, size_text, time_text
from encryptedstats.cli._frames import plain_table
from encryptedstats.cli._options import AsJson
from encryptedstats.cli.machine import describe_machine, package_versions
from encryptedstats.crypto.noise import Scheme
from encryptedstats.crypto.parameters import SCHEMES
from encryptedstats.machine import cores

MAX_VALUE, DEPTH = 65_536, 2
ROWS, VARIABLES, BINS, TREES = 8192, 9, 5, 20
_LEAST, _SECONDS = 5, 0.2
_QUICK_ROWS, _QUICK_TREES = 500, 2
# A product is relinearised when it is multiplied again, and not before: the second is what it costs
# all in all.
_STEPS: Final = ("encrypt", "add", "multiply lazily", "multiply and relinearise", "decrypt")


def bench(
    quick: Annotated[
        bool, typer.Option("--quick", help="To see that it runs, not to quote figures.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Measure this machine: integers in both schemes, and a forest on an encrypted table. Ten seconds or so.

    Examples:
      encryptedstats bench

      # to keep beside the figures of other machines
      encryptedstats bench --json
    """
    with progress("measuring"):
        facts = {
            "machine": describe_machine(),
            "packages": package_versions(),
            "quick": quick,
            "integers": [_integers(scheme, quick) for scheme in SCHEMES],
            "forest": _forest(quick),
        }
    if as_json:
        print_json(facts)
    else:
        _show(facts)


def _integers(scheme: Scheme, quick: bool) -> dict[str, Any]:
    """Median seconds of operations on single integers."""
    parameters = es.Parameters.choose(max_value=MAX_VALUE, depth=DEPTH, scheme=scheme)
    started = time.perf_counter()
    owner = es.Owner(parameters)
    keys = time.perf_counter() - started
    a, b = owner.encrypt(123), owner.encrypt(-45)
    operations: tuple[Callable[[], object], ...] = (
        lambda: owner.encrypt(123),
        lambda: a + b,
        lambda: a * b,
        lambda: (a * b).relinearise(),
        lambda: owner.open(a),
    )
    times = dict(zip(_STEPS, (_median(operation, quick) for operation in operations), strict=True))
    size = {
        "ring_degree": parameters.ring_degree,
        "ciphertext_bytes": parameters.ciphertext_bytes(),
    }
    return {
        "scheme": scheme,
        "max_value": MAX_VALUE,
        "depth": DEPTH,
        **size,
        "seconds": {"keys": keys, **times},
    }


def _median(operation: Callable[[], object], quick: bool) -> float:
    operation()
    times: list[float] = []
    end = time.perf_counter() + (0 if quick else _SECONDS)
    while len(times) < (1 if quick else _LEAST) or time.perf_counter() < end:
        started = time.perf_counter()
        operation()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def _forest(quick: bool) -> dict[str, Any]:
    """Seconds of a forest on a full chunk of made-up rows: encrypted, fitted, opened; compared with
    the fit in the clear.
    """
    rows, trees = (_QUICK_ROWS, _QUICK_TREES) if quick else (ROWS, TREES)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({f"x{j}": rng.normal(size=rows) for j in range(VARIABLES)})
    frame["y"] = (frame["x0"] + rng.normal(size=rows) > 0).astype(int)
    schema = es.Schema.infer(frame, target="y", bins=BINS)
    forest = es.CompletelyRandomForest(n_trees=trees, depth=3, random_state=0)
    owner = es.Owner(es.plan(forest, schema, n_rows=rows))
    table = schema.table(frame)
    laps = [time.perf_counter()]
    sealed = owner.encrypt(table)
    laps.append(time.perf_counter())
    fitted = forest.fit(sealed)
    laps.append(time.perf_counter())
    opened = owner.open(fitted, schema=schema)
    laps.append(time.perf_counter())
    seconds = dict(zip(("encrypt", "fit", "open"), np.diff(laps).tolist(), strict=True))
    exact = list(opened.totals_) == list(forest.fit(table).totals_)
    bytes_up = sealed.info().to_dict()["bytes"]
    sizes = {
        "rows": rows,
        "variables": VARIABLES,
        "bins": BINS,
        "trees": trees,
        "bytes": bytes_up,
        "cores": cores(),
    }
    return {**sizes, "exact": exact, "seconds": seconds}


def _show(facts: dict[str, Any]) -> None:
    console, machine, forest = Console(), facts["machine"], facts["forest"]
    memory = f", {size_text(machine['memory_bytes'])}" if machine["memory_bytes"] else ""
    console.print(
        Text(
            f"{machine['cpu']}, {machine['usable_cores']} of {machine['cores']} cores{memory}",
            style="bold",
        )
    )
    console.print(
        Text(f"{machine['python']}, seal-python {facts['packages']['seal-python']}", style="dim")
    )
    console.print()
    table = plain_table()
    table.add_column(f"one integer up to {MAX_VALUE:,}, depth {DEPTH}")
    for step in ("keys", *_STEPS):
        table.add_column(step, justify="right")
    for entry in facts["integers"]:
        times = [time_text(entry["seconds"][step]) for step in ("keys", *_STEPS)]
        table.add_row(f"{entry['scheme'].upper()}, N = {entry['ring_degree']}", *times)
    console.print(table)
    console.print()
    seconds = forest["seconds"]
    what = f"{forest['rows']:,} rows, {forest['variables']} variables of {forest['bins']} bins"
    verdict = (
        Text("exact", "green")
        if forest["exact"]
        else Text("DIFFERS from the fit in the clear", "bold red")
    )
    rows: list[tuple[str, RenderableType]] = [
        (
            "table",
            f"{what}: encrypted in {time_text(seconds['encrypt'])}, {size_text(forest['bytes'])}",
        ),
        ("forest", f"{forest['trees']} trees of depth 3: fitted in {time_text(seconds['fit'])}"),
        ("opened", Text.assemble(f"in {time_text(seconds['open'])}: ", verdict)),
    ]
    console.print(fact_table(rows))
    if facts["quick"]:
        console.print(Text("A quick run: these are no figures to quote.", style="yellow"))
