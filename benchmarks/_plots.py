"""Pictures of the results, drawn from their JSON files where matplotlib is installed: goals, cost a
row, and how cost grows.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks._goals import reached


def draw_all(folder: Path) -> list[Path]:
    """Every picture for which there are results; none without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        return []
    matplotlib.use("Agg")
    drawn = []
    for name, draw in (
        ("goals", _goals),
        ("rows", _rows),
        ("growth", _growth),
        ("gpu", _gpu),
        ("privacy", _privacy),
        ("peers", _peers),
    ):
        figure = draw(folder)
        if figure is not None:
            path = folder / f"{name}.png"
            figure.savefig(path, dpi=120, bbox_inches="tight")
            drawn.append(path)
    return drawn


def _results(folder: Path, part: str) -> Any:
    path = folder / f"{part}.json"
    return json.loads(path.read_text())["results"] if path.exists() else None


def _figure(height: float, columns: int = 1) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, height))
    axes = figure.subplots(1, columns, squeeze=False)[0]
    return figure, axes if columns > 1 else axes[0]


def _goals(folder: Path) -> Any:
    """How far each figure is from its goal, on a scale of factors: to the right of the line it is
    better.
    """
    rows = reached(folder)
    if not rows:
        return None
    figure, axes = _figure(0.6 + 0.32 * len(rows))
    names = [row["what"] for row in rows][::-1]
    factors = [
        row["value"] / row["limit"] if row["least"] else row["limit"] / row["value"] for row in rows
    ][::-1]
    colours = ["tab:green" if row["reached"] else "tab:red" for row in rows][::-1]
    axes.barh(names, [factor - 1 for factor in factors], left=1, color=colours)
    axes.axvline(1, color="black", linewidth=1)
    axes.set_xscale("log")
    axes.set_xlabel("times better than the goal")
    return figure


def _rows(folder: Path) -> Any:
    """Microseconds a row, from one chunk to a million rows: the sums alone, in memory; and whole
    fits from disk.
    """
    fit, streaming = _results(folder, "fit"), _results(folder, "streaming")
    if fit is None:
        return None
    figure, axes = _figure(3.5)
    scaling = fit["scaling"]
    axes.plot(
        [r["rows"] for r in scaling],
        [r["ns_per_row"] / 1e3 for r in scaling],
        "o-",
        label="sums over rows, in memory",
    )
    if streaming is not None:
        made = streaming["made_up"]
        axes.plot(
            [r["rows"] for r in made],
            [r["us_per_row"] for r in made],
            "s-",
            label="from disk, packed",
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("rows")
    axes.set_ylabel("µs a row, 100 trees of depth 3")
    axes.legend()
    return figure


def _growth(folder: Path) -> Any:
    """Seconds of the sums over rows against columns, trees, depth and classes."""
    growth = _results(folder, "growth")
    if growth is None:
        return None
    sweeps = growth["sweeps"]
    figure, _ = _figure(2.6, len(sweeps))
    axes = figure.axes
    for axis, (name, points) in zip(axes, sweeps.items(), strict=True):
        axis.plot([p["value"] for p in points], [p["sums_s"] for p in points], "o-", label="sums")
        axis.plot(
            [p["value"] for p in points], [p["total_s"] for p in points], "s-", label="packed"
        )
        axis.set_title(name, fontsize=9)
        axis.set_ylim(bottom=0)
    axes[0].set_ylabel("seconds")
    axes[0].legend(fontsize=8)
    figure.tight_layout()
    return figure


def _privacy(folder: Path) -> Any:
    """AUC against epsilon, a panel for each data set: released forests, the exact one, and
    diffprivlib's.
    """
    results = _results(folder, "privacy")
    if results is None:
        return None
    from matplotlib.figure import Figure

    sets = results["sets"]
    columns = min(4, len(sets))
    figure = Figure(figsize=(2.6 * columns, 2.1 * -(-len(sets) // columns)), layout="constrained")
    panels = figure.subplots(
        -(-len(sets) // columns), columns, squeeze=False, sharex=True, sharey=True
    ).flat
    for axes, found in zip(panels, sets, strict=False):
        for name, colour, label in (
            ("released", "tab:blue", "released here"),
            ("diffprivlib", "tab:orange", "diffprivlib"),
        ):
            if found[name]:
                x = [float(epsilon) for epsilon in found[name]]
                lines = list(found[name].values())
                axes.plot(
                    x,
                    [sum(line) / len(line) for line in lines],
                    "o-",
                    color=colour,
                    ms=3,
                    label=label,
                )
                axes.fill_between(
                    x,
                    [min(line) for line in lines],
                    [max(line) for line in lines],
                    color=colour,
                    alpha=0.2,
                )
        axes.axhline(found["exact"], color="black", lw=0.8, ls="--", label="exact")
        axes.set_title(f"{found['name']}, {found['rows']:,} rows", fontsize="small")
        axes.set_xscale("log")
        axes.set_ylim(0.4, 1.01)
    for axes in figure.axes[len(sets) :]:
        axes.set_visible(False)
    figure.supxlabel("epsilon", fontsize="small")
    figure.supylabel("AUC", fontsize="small")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3, fontsize="small")
    return figure


def _gpu(folder: Path) -> Any:
    """Milliseconds from a table to packed totals: on a card, which has the table, and on the cores
    of the same machine.
    """
    results = _results(folder, "gpu")
    if results is None or "card" not in results:
        return None
    names = [
        name
        for name in ("products", "million", "adult", "bcw_o")
        if "packed" in results.get(name, {})
    ]
    card, cores = results["card"]["name"], results["card"]["cores"]
    figure, axes = _figure(1.0 + 0.7 * len(names))
    bars = {card: ([results[name]["packed"]["median_ms"] for name in names], 0.2, "tab:blue")}
    bars[f"{cores} cores, native, first run"] = (
        [results[name]["native_ms"] for name in names],
        -0.2,
        "tab:grey",
    )
    for label, (values, shift, colour) in bars.items():
        drawn = axes.barh(
            [place + shift for place in range(len(names))], values, 0.38, color=colour, label=label
        )
        axes.bar_label(drawn, [f"{value:,.0f} ms" for value in values], padding=3, fontsize="small")
    axes.set_yticks(
        range(len(names)), [f"{name}, {results[name]['rows']:,} rows" for name in names]
    )
    axes.set_xscale("log")
    axes.set_xlim(1, 10_000)
    axes.set_xlabel("milliseconds")
    figure.legend(loc="upper center", ncols=2, fontsize="small")
    return figure


def _peers(folder: Path) -> Any:
    """Draw the processor time of ours and of others, a panel for each task."""
    results = _results(folder, "peers")
    if not results or not results["cases"]:
        return None
    entries = [
        (f"{entry['name']}: {case['task']}", entry)
        for case in results["cases"]
        for entry in case["entries"]
    ][::-1]
    figure, axes = _figure(0.8 + 0.32 * len(entries))
    colours = ["#0072B2" if entry["encrypted"] else "#9a9a9a" for _, entry in entries]
    axes.barh(range(len(entries)), [entry["cpu_seconds"] for _, entry in entries], color=colours)
    axes.set_yticks(range(len(entries)), [name for name, _ in entries], fontsize=7)
    axes.set_xscale("log")
    axes.set_xlabel("seconds of processor time; blue: on encrypted rows")
    return figure
