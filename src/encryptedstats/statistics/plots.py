"""Pictures of statistics. Needs matplotlib (extra ``plots``), which is imported when something is
drawn.

Every function draws into ``ax``, or into a new figure, and returns the axes; results call them by
``result.plot()``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from encryptedstats.errors import ArgumentError
from encryptedstats.plots import ON_LIGHT, ON_STRONG, colour, new_axes, without_frame

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from encryptedstats.statistics.competing import CumulativeIncidenceResult
    from encryptedstats.statistics.descriptive import HistogramResult
    from encryptedstats.statistics.genome import GenomeScanResult
    from encryptedstats.statistics.results import TestResult
    from encryptedstats.statistics.survival import KaplanMeierResult

GREY = "#8a8a8a"
GENOME_WIDE = 5e-8  # the usual threshold of a scan of the whole genome


# -- counts ----------------------------------------------------------------------------------------


def plot_residuals(result: TestResult, ax: Axes | None = None) -> Axes:
    """Draw Pearson's residuals as a coloured table: blue where there are more rows than expected,
    red where there are fewer.
    """
    residuals = result.tables["residuals"]
    n, m = residuals.shape
    ax = new_axes(ax, (1.6 + 0.9 * m, 1.2 + 0.45 * n))
    values = residuals.to_numpy(dtype=float)
    most = max(2.0, float(np.nanmax(np.abs(values))))
    image = ax.imshow(values, cmap="RdBu", vmin=-most, vmax=most, aspect="auto")
    for (i, j), value in np.ndenumerate(values):
        ax.text(
            j,
            i,
            f"{value:.1f}",
            ha="center",
            va="center",
            color=ON_STRONG if abs(value) > 0.6 * most else ON_LIGHT,
        )
    ax.set_xticks(range(m), [str(label) for label in residuals.columns])
    ax.set_yticks(range(n), [str(label) for label in residuals.index])
    ax.set(
        xlabel=str(residuals.columns.name or ""),
        ylabel=str(residuals.index.name or ""),
        title="Pearson residuals",
    )
    figure: Any = ax.get_figure()
    figure.colorbar(image, ax=ax)
    return ax


def plot_ratios(result: TestResult, ax: Axes | None = None) -> Axes:
    """Draw the odds ratio of each group with its interval, on a logarithmic axis; groups without a
    finite one are left out.
    """
    name = "odds ratio"
    terms = result.tidy()[["estimate", "low", "high"]]
    shown = terms[terms.index.str.startswith(f"{name} [")].replace([np.inf, 0], np.nan).dropna()
    shown.index = shown.index.str.slice(len(name) + 2, -1)
    ax = new_axes(ax, (5.0, 1.2 + 0.4 * max(1, len(shown))))
    value, low, high = (shown[column].to_numpy(dtype=float) for column in shown)
    places = np.arange(len(shown))
    ax.errorbar(
        value, places, xerr=[value - low, high - value], fmt="o", color=colour(0), capsize=3
    )
    ax.axvline(1, color=GREY, linewidth=0.8, linestyle=":")
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter("{x:g}")
    wide = (
        len(shown) > 0 and high.max() > 10 * low.min()
    )  # a label at every minor tick would be one on the other
    ax.xaxis.set_minor_formatter("" if wide else "{x:g}")
    ax.set_yticks(places, [str(label) for label in shown.index])
    ax.set(xlabel=name, ylabel=str(result.table.index.name or ""), ylim=(len(shown) - 0.5, -0.5))
    without_frame(ax)
    return ax


def plot_roc_points(result: TestResult, ax: Axes | None = None) -> Axes:
    """Draw the points of the curve, one for each bin, and the area in the legend."""
    ax = new_axes(ax, (4.4, 4.4))
    label = f"AUC {result.estimate:.3f} ({result.low:.3f} to {result.high:.3f})"
    ax.plot(result.table["fpr"], result.table["tpr"], marker="o", color=colour(0), label=label)
    ax.plot([0, 1], [0, 1], color=GREY, linewidth=0.8, linestyle=":")
    ax.set(
        xlabel="false positive rate",
        ylabel="true positive rate",
        xlim=(-0.01, 1.01),
        ylim=(-0.01, 1.01),
    )
    ax.set_aspect("equal")
    ax.legend(loc="lower right", frameon=False)
    without_frame(ax)
    return ax


# -- numbers ---------------------------------------------------------------------------------------


def plot_means(result: TestResult, ax: Axes | None = None) -> Axes:
    """Draw the mean of each group with its 95 % interval; of two factors a line for each group of
    the second.
    """
    from scipy.stats import t as student

    groups = result.tables["groups"]
    ax = new_axes(ax, (5.4, 3.6))
    n, sd = groups["n"].to_numpy(dtype=float), groups["sd"].to_numpy(dtype=float)
    half = pd.Series(
        student.ppf(0.975, np.maximum(n - 1, 1)) * sd / np.sqrt(np.maximum(n, 1)),
        index=groups.index,
    )
    two = isinstance(groups.index, pd.MultiIndex)
    lines = list(groups.index.levels[1]) if isinstance(groups.index, pd.MultiIndex) else [None]
    for number, line in enumerate(lines):
        mean = groups["mean"].xs(line, level=1) if two else groups["mean"]
        own = half.xs(line, level=1) if two else half
        places = np.arange(len(mean)) + 0.08 * (number - (len(lines) - 1) / 2)
        ax.errorbar(
            places,
            mean,
            yerr=own,
            fmt="o-" if two else "o",
            color=colour(number),
            capsize=3,
            label=str(line),
        )
        ax.set_xticks(range(len(mean)), [str(label) for label in mean.index])
    ax.set(xlabel=str(groups.index.names[0] or ""), ylabel="mean and 95 % interval")
    if two:
        ax.legend(title=str(groups.index.names[1]), frameon=False)
    without_frame(ax)
    return ax


def plot_histogram(
    result: HistogramResult,
    ax: Axes | None = None,
    *,
    low: float | None = None,
    high: float | None = None,
) -> Axes:
    """Draw bars: by density where the bins have ends, which ``low`` and ``high`` say of the
    outermost, else by the number of rows.
    """
    ax = new_axes(ax, (5.6, 3.6))
    counts, name = result.counts, str(result.counts.index.name or "")
    by_density = bool(result.edges) and low is not None and high is not None
    names = [str(label) for label in counts.columns]
    if by_density:
        density, ends = (
            result.density(low=low, high=high),
            np.array([low, *result.edges, high], dtype=float),
        )
        for number in range(len(names)):
            ax.stairs(
                density.iloc[:, number],
                ends,
                color=colour(number),
                fill=len(names) == 1,
                label=names[number],
            )
        ax.set(xlabel=name, ylabel="share per unit")
    else:
        width = 0.8 / len(names)
        for number in range(len(names)):
            places = np.arange(len(counts)) + width * (number - (len(names) - 1) / 2)
            ax.bar(places, counts.iloc[:, number], width, color=colour(number), label=names[number])
        tilt = 30 if max(len(str(label)) for label in counts.index) > 8 else 0
        labels = [str(label) for label in counts.index]
        ax.set_xticks(range(len(counts)), labels, rotation=tilt, ha="right" if tilt else "center")
        ax.set(xlabel=name, ylabel="rows")
    if len(names) > 1:
        ax.legend(title=str(counts.columns.name or ""), frameon=False)
    without_frame(ax)
    return ax


def plot_boxes(
    result: HistogramResult,
    ax: Axes | None = None,
    *,
    low: float | None = None,
    high: float | None = None,
) -> Axes:
    """Draw boxes between the quartiles, with the median; whiskers to the 5 % and 95 % quantiles,
    where these are known.
    """
    shares = result.quantile([0.05, 0.25, 0.5, 0.75, 0.95], low=low, high=high)
    ax = new_axes(ax, (1.4 + 0.9 * shares.shape[1], 3.6))
    boxes = []
    for position in range(shares.shape[1]):
        w5, q1, median, q3, w95 = shares.iloc[:, position]
        # A quantile in an open bin is not known: no whisker is drawn there.
        ends = {"whislo": q1 if np.isnan(w5) else w5, "whishi": q3 if np.isnan(w95) else w95}
        boxes.append(
            {"q1": q1, "med": median, "q3": q3, **ends, "label": str(shares.columns[position])}
        )
    ax.bxp(boxes, showfliers=False, widths=0.5, medianprops={"color": colour(1)})
    ax.set(ylabel=str(result.counts.index.name or ""), xlabel=str(result.counts.columns.name or ""))
    without_frame(ax)
    return ax


# -- scans -----------------------------------------------------------------------------------------


def plot_manhattan(
    result: GenomeScanResult,
    ax: Axes | None = None,
    *,
    positions: Any = None,
    chromosomes: Any = None,
) -> Axes:
    """-log10 p of every SNP by its place, chromosomes in turns of two colours; lines at 5e-8 and at
    1e-5.
    """
    ax = new_axes(ax, (8.4, 3.2))
    pvalues = result.pvalues.to_numpy(dtype=float)
    where = np.arange(len(pvalues)) if positions is None else np.asarray(positions, dtype=float)
    regions = np.zeros(len(pvalues), dtype=int) if chromosomes is None else np.asarray(chromosomes)
    if not len(pvalues) == len(where) == len(regions):
        raise ArgumentError(
            f"positions and chromosomes are needed for each of the {len(pvalues)} SNPs, in their "
            "order",
            code="positions-missing",
        )
    height, start, ticks = -np.log10(np.maximum(pvalues, 1e-300)), 0.0, []
    for number, region in enumerate(dict.fromkeys(regions.tolist())):
        inside = regions == region
        x = where[inside] - where[inside].min() + start
        ax.plot(
            x,
            height[inside],
            ".",
            markersize=3,
            color=colour(0) if number % 2 == 0 else colour(4),
            rasterized=True,
        )
        ticks.append(((x.min() + x.max()) / 2, str(region)))
        start = float(x.max()) + 0.01 * (float(np.ptp(x)) + 1)
    for threshold, style in ((GENOME_WIDE, "-"), (1e-5, ":")):
        ax.axhline(-np.log10(threshold), color=GREY, linewidth=0.8, linestyle=style)
    if chromosomes is not None:
        ax.set_xticks([place for place, _ in ticks], [name for _, name in ticks])
    ax.set(
        xlabel="chromosome" if chromosomes is not None else "SNP",
        ylabel=r"$-\log_{10} p$",
        ylim=(0, None),
    )
    ax.margins(x=0.01)
    without_frame(ax)
    return ax


def plot_qq(result: GenomeScanResult, ax: Axes | None = None) -> Axes:
    """Observed against expected -log10 p, with the 95 % band of uniform p-values, and the genomic
    inflation.
    """
    from scipy.stats import beta

    ax = new_axes(ax, (4.4, 4.4))
    found = np.sort(result.pvalues.dropna().to_numpy(dtype=float))
    rank = np.arange(1, len(found) + 1)
    expected = -np.log10(rank / (len(found) + 1))
    low, high = (-np.log10(beta.ppf(q, rank, len(found) + 1 - rank)) for q in (0.975, 0.025))
    ax.fill_between(expected, low, high, color=GREY, alpha=0.25, linewidth=0)
    ax.plot(expected, expected, color=GREY, linewidth=0.8)
    ax.plot(
        expected,
        -np.log10(np.maximum(found, 1e-300)),
        ".",
        markersize=4,
        color=colour(0),
        rasterized=True,
    )
    ax.set(xlabel=r"expected $-\log_{10} p$", ylabel=r"observed $-\log_{10} p$")
    ax.text(0.05, 0.95, rf"$\lambda$ = {result.inflation:.3f}", transform=ax.transAxes, va="top")
    without_frame(ax)
    return ax


# -- survival --------------------------------------------------------------------------------------


def plot_survival(result: KaplanMeierResult, ax: Axes | None = None) -> Axes:
    """Draw the curve of each group with its interval, a tick where rows are censored, and the
    number at risk below the axis.
    """
    parts = result.parts()
    ax = new_axes(ax, (6.4, 4.2 + 0.22 * len(parts)))
    known = result.curves.index.get_level_values(-1).to_numpy(dtype=float)
    last = float(known[np.isfinite(known)].max(initial=1.0))
    last *= (
        1.05 if np.isinf(known).any() else 1.0
    )  # an interval without an end is drawn a little beyond the others
    for i, (group, curve) in enumerate(parts):
        times = np.minimum(
            np.concatenate([[0.0], curve.index.get_level_values(-1).to_numpy(dtype=float)]), last
        )
        low, survival, high = (
            np.concatenate([[1.0], curve[name]]) for name in ("low", "survival", "high")
        )
        ax.fill_between(times, low, high, step="post", color=colour(i), alpha=0.15, linewidth=0)
        ax.step(times, survival, where="post", color=colour(i), label=str(group))
        censored = np.flatnonzero(curve["censored"]) + 1
        ax.plot(times[censored], survival[censored], "|", color=colour(i), markersize=6)
    names = result.curves.index.names
    if len(parts) > 1:
        ax.legend(title=str(names[0]), frameon=False, loc="lower left")
    ax.set(xlim=(0, last), ylim=(0, 1.02), ylabel="share without the event")
    shown = [tick for tick in ax.get_xticks() if 0 <= tick <= last]
    ax.set_xticks(shown)
    counts = result.at_risk(shown)
    ax.set_xlabel(str(names[-1]))
    place: Any = ax.get_xaxis_transform()
    lines: dict[str, Any] = {"textcoords": "offset points", "annotation_clip": False, "fontsize": 8}
    ax.annotate("at risk", (0, 0), (-20, -44), xycoords=place, ha="right", va="center", **lines)
    for i, group in enumerate(counts.columns):
        height = -58 - 12 * i if len(parts) > 1 else -44
        if len(parts) > 1:
            ax.annotate(
                str(group),
                (0, 0),
                (-20, height),
                xycoords=place,
                ha="right",
                va="center",
                color=colour(i),
                **lines,
            )
        for tick, count in zip(shown, counts[group], strict=True):
            ax.annotate(
                f"{count:,}",
                (tick, 0),
                (0, height),
                xycoords=place,
                ha="center",
                va="center",
                **lines,
            )
    without_frame(ax)
    return ax


def plot_incidence(result: CumulativeIncidenceResult, ax: Axes | None = None) -> Axes:
    """Draw the incidence of each cause (a colour) in each group (a line style) as steps."""
    styles = ("-", "--", ":", "-.")
    ax = new_axes(ax, (6.4, 4.2))
    curves = result.curves
    keys = list(curves.index.names[:-1])
    causes = list(dict.fromkeys(curves.index.get_level_values(len(keys) - 1)))
    groups = list(dict.fromkeys(curves.index.get_level_values(0))) if len(keys) > 1 else []
    last = float(curves.index.get_level_values(-1).to_numpy(dtype=float).max())
    for name, curve in curves.groupby(level=keys, sort=False):
        cause = causes.index(name[-1])
        style = styles[groups.index(name[0]) % len(styles)] if groups else "-"
        known = curve.index.get_level_values(-1).to_numpy(dtype=float)
        times = np.concatenate([[0.0], known, [last]])
        low, share, high = (
            np.concatenate([[0.0], curve[one], curve[one].iloc[-1:]])
            for one in ("low", "incidence", "high")
        )
        ax.fill_between(times, low, high, step="post", color=colour(cause), alpha=0.12, linewidth=0)
        label = ", ".join(map(str, reversed(name)))
        ax.step(times, share, where="post", color=colour(cause), linestyle=style, label=label)
    ax.legend(frameon=False, loc="upper left")
    ax.set(xlim=(0, last), ylim=(0, None), xlabel=str(curves.index.names[-1]))
    ax.set_ylabel("cumulative incidence")
    without_frame(ax)
    return ax


def plot_tree(tree: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Draw a tree of variables from left to right, each edge as wide as its ``estimate``.

    ``tree`` has a line for each variable but the root, with its ``parent``; parents come first.
    """
    children: dict[Any, list[Any]] = {}
    for name, parent in tree["parent"].items():
        children.setdefault(parent, []).append(name)
    root = next(iter(children))
    depth, height = {root: 0}, dict[Any, float]()
    for name, parent in tree["parent"].items():
        depth[name] = depth[parent] + 1
    n_leaves = 0
    for name in reversed([root, *tree.index]):  # children before their parents
        below = [height[child] for child in children.get(name, ())]
        if below:
            height[name] = sum(below) / len(below)
        else:
            height[name], n_leaves = float(n_leaves), n_leaves + 1
    ax = new_axes(ax, (2.0 + 1.8 * max(depth.values()), 1.0 + 0.45 * n_leaves))
    widest = float(tree["estimate"].max()) or 1.0
    for name, line in tree.iterrows():
        ends = [line["parent"], name]
        ax.plot(
            [depth[one] for one in ends],
            [height[one] for one in ends],
            color=colour(0),
            linewidth=0.8 + 4 * float(line["estimate"]) / widest,
            alpha=0.6,
            solid_capstyle="round",
            zorder=1,
        )
    for name, level in depth.items():
        ax.annotate(
            str(name),
            (level, height[name]),
            ha="center",
            va="center",
            bbox={"boxstyle": "round", "facecolor": ax.get_facecolor(), "edgecolor": colour(0)},
        )
    ax.set(xlim=(-0.5, max(depth.values()) + 0.5), ylim=(-0.7, n_leaves - 0.3))
    ax.set_axis_off()
    return ax


# -- regression and many variables -----------------------------------------------------------------


def plot_coefficients(table: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Draw estimates with their intervals, one below the other, and a line at 0."""
    shown = table.dropna(subset=["estimate"])
    ax = new_axes(ax, (5.0, 1.2 + 0.4 * max(1, len(shown))))
    places = np.arange(len(shown))
    ax.axvline(0, color=GREY, linewidth=0.8, linestyle=":")
    ax.hlines(places, shown["low"].to_numpy(), shown["high"].to_numpy(), color=colour(0))
    ax.plot(shown["estimate"].to_numpy(), places, "o", color=colour(0))
    ax.set_yticks(places, [str(name) for name in shown.index])
    ax.set(xlabel="estimate and interval", ylim=(len(shown) - 0.5, -0.5))
    without_frame(ax)
    return ax


def plot_path(coefficients: pd.DataFrame, best: float, ax: Axes | None = None) -> Axes:
    """Draw coefficients over the penalty, and a line at the best one unless that is NaN."""
    ax = new_axes(ax, (6.0, 4.0))
    alphas = coefficients.index.to_numpy(dtype=float)
    for number, name in enumerate(coefficients.columns):
        ax.plot(alphas, coefficients[name].to_numpy(), color=colour(number), label=str(name))
    if not np.isnan(best):
        ax.axvline(best, color=GREY, linestyle="--", linewidth=1, label="least error")
    ax.set_xscale("log" if (alphas > 0).all() else "symlog")
    ax.set(xlabel="alpha", ylabel="coefficient")
    ax.legend(frameon=False)
    without_frame(ax)
    return ax


def plot_matrix(matrix: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Draw a heat map of correlations, each written into its cell where there are few."""
    n = len(matrix)
    ax = new_axes(ax, (2.2 + 0.55 * n, 1.6 + 0.5 * n))
    values = matrix.to_numpy(dtype=float)
    image = ax.imshow(values, cmap="RdBu_r", vmin=-1, vmax=1)
    ax.set_xticks(range(n), [str(name) for name in matrix.columns], rotation=45, ha="right")
    ax.set_yticks(range(n), [str(name) for name in matrix.index])
    if n <= 12:
        for (i, j), value in np.ndenumerate(values):
            text = "NA" if np.isnan(value) else f"{value:.2f}"
            ax.text(
                j,
                i,
                text,
                ha="center",
                va="center",
                color=ON_STRONG if abs(value) > 0.6 else ON_LIGHT,
                fontsize=9,
            )
    figure: Any = ax.get_figure()
    figure.colorbar(image, ax=ax, label="correlation")
    return ax


def plot_variances(variances: pd.Series[Any], ax: Axes | None = None) -> Axes:
    """Draw a scree plot: the variance of each component."""
    ax = new_axes(ax, (5.0, 3.5))
    places = np.arange(1, len(variances) + 1)
    ax.plot(places, variances.to_numpy(), "o-", color=colour(0))
    ax.set_xticks(places)
    ax.set(xlabel="component", ylabel="variance")
    ax.set_ylim(bottom=0)
    without_frame(ax)
    return ax


def plot_loadings(loadings: pd.DataFrame, shares: Sequence[float], ax: Axes | None = None) -> Axes:
    """Draw the variables as arrows: their loadings on the first two components, which have these
    shares of the variance.
    """
    ax = new_axes(ax, (4.5, 4.5))
    ax.axhline(0, color=GREY, linewidth=0.8, linestyle=":")
    ax.axvline(0, color=GREY, linewidth=0.8, linestyle=":")
    for name, (x, y) in zip(
        loadings.index, loadings.iloc[:, :2].to_numpy(dtype=float), strict=True
    ):
        ax.annotate("", (x, y), (0, 0), arrowprops={"arrowstyle": "->", "color": colour(0)})
        across, up = ("left" if x >= 0 else "right"), ("bottom" if y >= 0 else "top")
        ax.text(x + np.copysign(0.02, x), y + np.copysign(0.02, y), str(name), ha=across, va=up)
    ax.set(xlim=(-1.1, 1.1), ylim=(-1.1, 1.1), aspect="equal")
    first, second = loadings.columns[:2]
    ax.set(
        xlabel=f"{first} ({shares[0]:.0%} of the variance)", ylabel=f"{second} ({shares[1]:.0%})"
    )
    return ax
