"""The pictures, as PNG and SVG. Needs matplotlib (extra ``plots``).

Each function draws one figure of the paper from the results of a run. Points are drawn as a bitmap
inside the SVG: ten thousand of them as shapes would make a browser stumble.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from encryptedstats.storage.files import write_atomic
from reproduction.evaluation.evidence import Evidence, Frame
from reproduction.evaluation.methods import ENCRYPTABLE, METHODS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours for the methods that can be computed encrypted, greys for those that
# cannot.
_COLOURS: Final = dict(
    zip(
        METHODS,
        ("#0072B2", "#009E73", "#D55E00", "#CC79A7", "#4d4d4d", "#808080", "#000000"),
        strict=True,
    )
)
_INK: Final = "#222222"
_LIGHT: Final = "#9a9a9a"
_COLUMNS: Final = 5
_DPI: Final = 150
_STYLE: Final[dict[Any, Any]] = {
    "font.size": 9,
    "font.family": "DejaVu Sans",
    "axes.edgecolor": _LIGHT,
    "axes.labelcolor": _INK,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.6,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "legend.frameon": False,
    "svg.hashsalt": "encryptedstats",
}


def require_matplotlib() -> None:
    """Refuse before hours of work what would fail after them."""
    try:
        import matplotlib  # noqa: F401  # only whether it is there
    except ImportError as error:
        raise ImportError(
            "pictures need matplotlib: pip install 'encryptedstats[plots]'"
        ) from error


def draw_all(evidence: Evidence) -> dict[str, Path]:
    """Draw every figure that there are results for, into ``figures/``; the SVG files by name."""
    require_matplotlib()
    from matplotlib import rc_context

    folder = evidence.output / "figures"
    folder.mkdir(parents=True, exist_ok=True)
    drawn = {}
    with rc_context(_STYLE):
        for name, draw in FIGURES.items():
            figure = draw(evidence)
            if figure is not None:
                drawn[name] = _save(figure, folder, name)
    return drawn


def _save(figure: Figure, folder: Path, name: str) -> Path:
    for kind, options in (
        ("png", {"dpi": _DPI}),
        ("svg", {"dpi": _DPI, "metadata": {"Date": None}}),
    ):
        content = io.BytesIO()
        figure.savefig(content, format=kind, facecolor="white", **options)
        write_atomic(folder / f"{name}.{kind}", [content.getvalue()])
    return folder / f"{name}.svg"


# -- many panels, one a data set
# -----------------------------------------------------------------------------------------


def _panels(
    names: list[str], height: float, **options: Any
) -> tuple[Figure, list[Axes], list[Axes]]:
    """A figure with a panel for each name, and those that are left over."""
    from matplotlib.figure import Figure

    columns = min(_COLUMNS, len(names) + 1)
    n_rows = -(-(len(names) + 1) // columns)
    figure = Figure(figsize=(2.2 * columns + 0.4, height * n_rows + 0.5), layout="constrained")
    grid = figure.subplots(n_rows, columns, squeeze=False, **options).ravel().tolist()
    for ax, name in zip(grid, names, strict=False):
        ax.set_title(name, loc="left", fontweight="bold")
    for ax in grid[len(names) :]:
        ax.set_axis_off()
    return figure, grid[: len(names)], grid[len(names) :]


def _names(rows: Frame) -> list[str]:
    return list(dict.fromkeys(rows["dataset"]))


def performance(evidence: Evidence) -> Figure | None:
    """A point for each split, method and data set; a bar at the mean (the figure on
    performance).
    """
    rows = evidence.performance
    if rows.empty:
        return None
    figure, axes, rest = _panels(_names(rows), 2.0, sharey=True)
    rng = np.random.default_rng(0)  # only where points lie beside each other
    shares = (
        evidence.catalogue.set_index("name")["share_of_class_1"] if len(evidence.catalogue) else {}
    )
    for ax, (name, part) in zip(axes, rows.groupby("dataset", sort=False), strict=True):
        for place, method in enumerate(METHODS):
            values = part.loc[part["method"] == method, "auc"].to_numpy()
            spread = place + rng.uniform(-0.28, 0.28, len(values))
            ax.scatter(
                spread,
                values,
                s=3,
                color=_COLOURS[method],
                alpha=0.45,
                linewidths=0,
                rasterized=True,
            )
            if len(values):
                ax.plot(
                    [place - 0.38, place + 0.38],
                    [values.mean()] * 2,
                    color=_INK,
                    linewidth=1.6,
                    zorder=3,
                )
        if name in shares:
            ax.axhline(float(shares[name]), color=_LIGHT, linewidth=0.8, linestyle=(0, (4, 3)))
        ax.set_xticks([])
        ax.set_xlim(-0.7, len(METHODS) - 0.3)
        ax.set_ylim(0.0 if rows["auc"].min() < 0.2 else 0.2, 1.02)
        ax.yaxis.grid(True)
    _method_legend(rest[0])
    for ax in axes[:: min(_COLUMNS, len(axes) + 1)]:
        ax.set_ylabel("AUC")
    return figure


def _method_legend(ax: Axes) -> None:
    from matplotlib.lines import Line2D

    dots = [
        Line2D([], [], marker="o", linestyle="", markersize=5, color=colour)
        for colour in _COLOURS.values()
    ]
    names = [f"{name} *" if name in ENCRYPTABLE else name for name in METHODS]
    dots += [
        Line2D([], [], color=_INK, linewidth=1.6),
        Line2D([], [], color=_LIGHT, linestyle=(0, (4, 3))),
    ]
    ax.legend(
        dots,
        [*names, "mean", "share of class 1"],
        loc="center left",
        fontsize=8.5,
        title="left to right",
    )


def trees(evidence: Evidence) -> Figure | None:
    """Mean AUC by number of trees, a line for each depth (the appendix on trees and depth)."""
    rows = evidence.trees
    if rows.empty:
        return None
    from matplotlib import colormaps

    figure, axes, rest = _panels(_names(rows), 1.9)
    depths = sorted(rows["depth"].unique())
    colours = {
        depth: colormaps["viridis_r"](0.12 + 0.83 * i / max(1, len(depths) - 1))
        for i, depth in enumerate(depths)
    }
    for ax, (_, part) in zip(axes, rows.groupby("dataset", sort=False), strict=True):
        mean = part.groupby(["depth", "trees"])["auc"].mean()
        for depth in depths:
            line = mean.loc[depth]
            ax.plot(
                line.index,
                line.to_numpy(),
                color=colours[depth],
                marker="o",
                markersize=2.5,
                linewidth=1.3,
            )
        ax.set_xscale("log")
        ax.set_xticks([10, 100, 1000], ["10", "100", "1000"])
        low, high = mean.min(), mean.max()
        pad = max(
            0.05 * (high - low), (0.02 - (high - low)) / 2
        )  # where nothing varies, noise should not look large
        ax.set_ylim(low - pad, high + pad)
        ax.locator_params(axis="y", nbins=5)
        ax.minorticks_off()
    handles = [ax_line(colours[depth]) for depth in depths]
    rest[0].legend(
        handles,
        [f"{d} level{'' if d == 1 else 's'}" for d in depths],
        loc="center left",
        title="depth",
    )
    figure.supxlabel("number of trees", fontsize=9)
    figure.supylabel("mean AUC", fontsize=9)
    return figure


def ax_line(colour: Any) -> Any:
    """A line for a legend."""
    from matplotlib.lines import Line2D

    return Line2D([], [], color=colour, marker="o", markersize=3, linewidth=1.5)


# -- the stochastic fraction
# -----------------------------------------------------------------------------------------------


def _fraction_of(name: str) -> Callable[[Evidence], Figure | None]:
    def draw(evidence: Evidence) -> Figure | None:
        rows = evidence.fraction
        if rows.empty or name not in set(rows["dataset"]):
            return None
        return _fraction_panels(rows[rows["dataset"] == name])

    return draw


def _fraction_panels(rows: Frame) -> Figure:
    """AUC with the fraction against AUC without, a panel for each M and a point for each split."""
    from matplotlib.figure import Figure

    by_split = rows.pivot_table(index="split", columns="fraction", values="auc")
    others = [m for m in by_split.columns if m]
    figure = Figure(figsize=(2.0 * len(others) + 0.4, 2.5), layout="constrained")
    low, high = by_split.to_numpy().min(), by_split.to_numpy().max()
    pad = 0.04 * (high - low) + 1e-3
    for ax, m in zip(
        figure.subplots(1, len(others), sharey=True, squeeze=False)[0], others, strict=True
    ):
        ax.plot([low, high], [low, high], color=_LIGHT, linewidth=1)
        ax.scatter(by_split[0], by_split[m], s=9, color="#0072B2", alpha=0.55, linewidths=0)
        change = (by_split[m] - by_split[0]).mean()
        ax.set_title(f"M = {m}   {change:+.3f}", loc="left")
        ax.set(xlim=(low - pad, high + pad), ylim=(low - pad, high + pad), aspect="equal")
        ax.locator_params(nbins=4)
    figure.supxlabel("AUC without a fraction (M = 0)", fontsize=9)
    figure.axes[0].set_ylabel("AUC with it")
    return figure


def fraction_everywhere(evidence: Evidence) -> Figure | None:
    """Mean change of AUC by M, a line for each data set."""
    means = evidence.mean_auc_by_fraction
    if means.empty:
        return None
    from matplotlib.figure import Figure

    change = means.sub(means[0], axis=0)
    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    ax = figure.subplots()
    places = range(len(change.columns))
    last = change[change.columns[-1]].sort_values()
    named = {*last.index[:1], *last.index[-4:], *last.index[last.index == "bcw_p"]}
    ends = _apart(
        [float(last[name]) for name in last.index if name in named],
        0.045 * (float(np.ptp(change)) or 1),
    )
    labels = dict(zip([name for name in last.index if name in named], ends, strict=True))
    for name, line in change.iterrows():
        strong = name in named
        ax.plot(
            places,
            line.to_numpy(),
            color="#0072B2" if strong else _LIGHT,
            linewidth=1.6 if strong else 0.9,
        )
        if strong:
            ax.annotate(
                str(name),
                (len(places) - 1, labels[str(name)]),
                (4, 0),
                textcoords="offset points",
                va="center",
                fontsize=8.5,
            )
    ax.axhline(0, color=_INK, linewidth=0.8)
    ax.set_xticks(list(places), [str(m) for m in change.columns])
    ax.set(xlabel="M", ylabel="mean change of AUC", xlim=(0, len(places) - 0.4))
    return figure


def _apart(values: Iterable[float], gap: float) -> list[float]:
    """Rising values, moved up where they are closer than the gap: places for labels."""
    placed: list[float] = []
    for value in values:
        placed.append(max(value, placed[-1] + gap) if placed else value)
    return placed


# -- one step of reweighted least squares
# ------------------------------------------------------------------------------------


def shrinkage(evidence: Evidence) -> Figure | None:
    """Expected and simulated shrinkage of the slope (the figure on shrinkage)."""
    rows = evidence.shrinkage
    if rows.empty:
        return None
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot(rows["beta"], rows["theory"], color="#0072B2", label="formula")
    left.scatter(rows["beta"], rows["simulated"], s=10, color=_INK, zorder=3, label="simulation")
    left.set(xlabel="β", ylabel="E[slope] − β")
    left.legend()
    right.plot(rows["beta"], rows["theory"] + rows["beta"], color="#0072B2")
    right.scatter(rows["beta"], rows["simulated"] + rows["beta"], s=10, color=_INK, zorder=3)
    right.plot(
        rows["beta"],
        rows["beta"].clip(-2, 2),
        color="#D55E00",
        linestyle="--",
        linewidth=1,
        label="β, cut at ±2",
    )
    right.set(xlabel="β", ylabel="E[slope]")
    right.legend()
    return figure


def generalisation(evidence: Evidence) -> Figure | None:
    """Generalisation error by p and n, and how fast it settles (the figure on generalisation
    error).
    """
    rows = evidence.generalisation
    if rows.empty:
        return None
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    sizes = [n for n in sorted(rows["n"].unique()) if n in (1, 3, 5, 10, 20, 100)]
    for i, n in enumerate(sizes):
        part = rows[rows["n"] == n]
        colour = colormaps["Blues"](0.35 + 0.6 * i / max(1, len(sizes) - 1))
        left.plot(part["p"], part["approximation"], color=colour, linewidth=1.2, label=f"n = {n}")
        if n in (3, 20):
            left.scatter(part["p"], part["simulated"], s=8, color=colour, zorder=3)
    part = rows[rows["n"] == rows["n"].max()]
    left.plot(
        part["p"],
        part["approximate_limit"],
        color="#009E73",
        linewidth=2,
        label="limit of the cubic",
    )
    left.plot(
        part["p"],
        part["exact_limit"],
        color="#D55E00",
        linewidth=1.4,
        linestyle="--",
        label="exact limit",
    )
    left.set(xlabel="p", ylabel="generalisation error")
    left.legend(fontsize=7.5, ncols=2)
    shares = (0.55, 0.65, 0.75, 0.85, 0.95)
    for i, p in enumerate(shares):
        part = rows[np.isclose(rows["p"], p)]
        colour = colormaps["viridis"](0.1 + 0.8 * i / (len(shares) - 1))
        right.plot(part["n"], (part["approximation"] - part["approximate_limit"]).abs(), color=colour, marker="o",
                   markersize=3, linewidth=1.2, label=f"p = {p}")  # fmt: skip
    right.axvline(20, color=_LIGHT, linewidth=0.8, linestyle=":")
    right.set_xscale("log")
    right.set_xticks([1, 2, 5, 10, 20, 50, 100], ["1", "2", "5", "10", "20", "50", "100"])
    right.minorticks_off()
    right.set(xlabel="n", ylabel="distance from the limit")
    right.legend(fontsize=8)
    return figure


FIGURES: Final[dict[str, Callable[[Evidence], Any]]] = {
    "performance": performance,
    "trees": trees,
    "fraction_iono": _fraction_of("iono"),
    "fraction_bcw_p": _fraction_of("bcw_p"),
    "fraction_all": fraction_everywhere,
    "shrinkage": shrinkage,
    "generalisation": generalisation,
}
