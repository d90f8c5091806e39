"""Pictures of decrypted models: a tree with its counts, votes, ROC and calibration curves. Needs
matplotlib (extra ``plots``).

Every function draws into ``ax``, or into a new figure, and returns the axes. Curves name the
positive class and show intervals.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from encryptedstats.errors import ArgumentError
from encryptedstats.metrics import (
    Binary,
    Predictions,
    class_codes,
    positive_position,
    roc_band,
    roc_points,
)
from encryptedstats.models.forest import CompletelyRandomForest
from encryptedstats.models.growth import Split
from encryptedstats.tables import PublicSchema, Schema

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_calibration", "plot_roc", "plot_tree", "plot_votes"]

# Okabe and Ito's colours: told apart by everybody, also in print.
_COLOURS: Final = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#CC79A7",
    "#56B4E9",
    "#D55E00",
    "#F0E442",
    "#000000",
)
_GREY: Final = "#8a8a8a"
_INK: Final = "#1b2733"
_DARK_INK: Final = "#e4eaf0"
_DARK_PAPER: Final = "#1a2229"
#: Colours that change where a picture is shown on dark paper.
_IN_THE_DARK: Final = {_INK: _DARK_INK, "#000000": _DARK_INK, "#ffffff": _DARK_PAPER}
#: Black and white on coloured cells, which do not change.
ON_LIGHT: Final = "#010101"
ON_STRONG: Final = "#fefefe"
_LINES: Final = ("-", (0, (4, 1.5)), (0, (1, 1.2)), (0, (6, 1.5, 1, 1.5)))
_MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X", "*")
_SQUARE: Final = (4.4, 4.4)  # inches: a column of a journal is a little less
_UNIT: Final = (-0.01, 1.01)
_ABOVE: Final = {"loc": "lower left", "bbox_to_anchor": (0, 1.0)}
_SAME: Final = "the same curve as"
_NEAR: Final = 0.02  # curves that are nowhere further apart are said to be near each other
_LONGEST: Final = 26  # characters of a line in a label


def plot_tree(forest: CompletelyRandomForest, t: int = 0, ax: Axes | None = None) -> Axes:
    """Draw tree ``t`` of an opened forest: rows that satisfy a split go left, thicker branches
    carry more rows.

    Under every leaf a bar for each class shows its count.

    Parameters
    ----------
    forest : CompletelyRandomForest
        Opened; its splits speak by names if it knows the owner's schema.
    t : int
        Which tree, from 0.
    ax : matplotlib axes, optional
    """
    forest._check_open()
    if not 0 <= t < len(forest.trees_):
        raise ArgumentError(
            f"t={t}: the forest has the trees 0 to {len(forest.trees_) - 1}",
            code="tree-out-of-range",
        )
    tree, counts = forest.trees_[t], forest.node_counts_[t]
    depth = (len(tree) + 1).bit_length() - 1
    ax = new_axes(ax, (min(40.0, max(6.4, 1.35 * 2**depth)), 1.15 * depth + 2.0))
    places = [_place(node, depth) for node in range(len(counts))]
    sizes = counts.sum(axis=1) / max(1, counts[0].sum())
    for child in range(1, len(counts)):
        parent = (child - 1) // 2
        (x0, y0), (x1, y1) = places[parent], places[child]
        ax.plot(
            [x0, x1],
            [y0, y1],
            color=_GREY,
            linewidth=0.5 + 6 * sizes[child],
            solid_capstyle="round",
            zorder=1,
        )
    font = 9.0 if depth < 5 else 6.0
    box = {"boxstyle": "round,pad=0.35", "facecolor": _paper(), "edgecolor": _GREY}
    for node, split in enumerate(tree):
        ax.text(
            *places[node],
            _rule(split, forest.schema_),
            ha="center",
            va="center",
            fontsize=font,
            bbox=box,
            zorder=3,
        )
    _leaf_bars(ax, forest.leaf_counts_[t], font)
    _yes_no(ax, places, font)
    handles = [_patch(c) for c in range(len(forest.classes_))]
    ax.legend(
        handles,
        [str(label) for label in forest.classes_],
        title="class",
        loc="upper right",
        frameon=False,
    )
    ax.set_xlim(0, 2**depth)
    ax.set_ylim(-1.15, depth + 0.45)
    ax.set_axis_off()
    ax.set_title(
        f"Tree {t} of {len(forest.trees_)}: {int(counts[0].sum()):,} rows", loc="left", fontsize=11
    )
    return ax


def plot_votes(
    forest: CompletelyRandomForest, X: Any, y: Any = None, ax: Axes | None = None
) -> Axes:
    """Draw shares of the votes of all classes, a narrow column for each row, grouped by true class.

    The votes for the true class stand at the bottom, and rows are sorted by them: of two classes,
    rows below one half are predicted wrongly.

    Parameters
    ----------
    forest : CompletelyRandomForest
        Opened.
    X : DataFrame, array or Table
    y : array, optional
        True classes; those of ``X`` where it is a table.
    ax : matplotlib axes, optional
    """
    shares = forest.predict_proba(X)
    codes = class_codes(forest.classes_, X, y)
    ax = new_axes(ax, (8.0, 4.0))
    order = np.lexsort((-shares[np.arange(len(codes)), codes], codes))
    n_classes = len(forest.classes_)
    starts = np.searchsorted(codes[order], np.arange(n_classes + 1))
    for true in range(n_classes):
        rows = order[starts[true] : starts[true + 1]]
        bottom = np.zeros(len(rows))
        for c in sorted(range(n_classes), key=lambda c: c != true):
            top = bottom + shares[rows, c]
            edges = np.arange(starts[true], starts[true + 1] + 1)
            ax.stairs(top, edges, baseline=bottom, fill=True, color=colour(c), linewidth=0)
            bottom = top
    for start in starts[1:-1]:
        ax.axvline(float(start), color=_paper(), linewidth=2)
    if n_classes == 2:
        ax.axhline(0.5, color=_ink(), linewidth=0.8, linestyle=":")
    present = [c for c in range(n_classes) if starts[c + 1] > starts[c]]
    ax.set_xticks([(starts[c] + starts[c + 1]) / 2 for c in present])
    ax.set_xticklabels(
        [f"{forest.classes_[c]}\n{starts[c + 1] - starts[c]:,} rows" for c in present]
    )
    ax.tick_params(axis="x", length=0)
    ax.set_xlim(0, len(order))
    ax.set_ylim(0, 1)
    ax.set_xlabel("true class")
    ax.set_ylabel("share of votes")
    handles, names = (
        [_patch(c) for c in range(n_classes)],
        [str(label) for label in forest.classes_],
    )
    ax.legend(
        handles, names, title="votes for", bbox_to_anchor=(1.01, 1), loc="upper left", frameon=False
    )
    without_frame(ax)
    return ax


def plot_roc(
    models: Any,
    X: Any,
    y: Any = None,
    ax: Axes | None = None,
    *,
    pos_label: Any = None,
    band: bool = True,
) -> Axes:
    """Draw ROC curves of one or several decrypted models, or of any other classifiers, on the same
    rows.

    The legend has each AUC with DeLong's 95 % interval. Shaded is where 95 % of the curves lie when
    rows of each class are drawn again. A marker shows what the model itself predicts.

    Parameters
    ----------
    models : classifier, sequence of classifiers, or mapping of names to classifiers
    X : DataFrame, array or Table
    y : array, optional
        True classes; those of ``X`` where it is a table.
    ax : matplotlib axes, optional
    pos_label : label, optional
        The positive class; by default the second of two. Of more classes it is held against all
        others.
    band : bool
        Whether to shade intervals.
    """
    return _roc(_curves(_predictions(models, X, y), pos_label, "a ROC curve"), ax, band)


def plot_calibration(
    models: Any,
    X: Any,
    y: Any = None,
    ax: Axes | None = None,
    *,
    n_bins: int = 10,
    pos_label: Any = None,
) -> Axes:
    """Draw how often the positive class occurs among rows that are given a probability: on the
    diagonal, it is to be trusted.

    Each point is a group of about equally many rows, with Wilson's 95 % interval. Strips below
    count the rows at every probability, those of the positive class upwards. Forests and naive
    Bayes are not calibrated (paper, section 3.3.1): look before a threshold is chosen.

    Parameters
    ----------
    models : classifier, sequence of classifiers, or mapping of names to classifiers
        With ``predict_proba``.
    X : DataFrame, array or Table
    y : array, optional
        True classes; those of ``X`` where it is a table.
    ax : matplotlib axes, optional
    n_bins : int
        Groups of equally many rows.
    pos_label : label, optional
        The positive class; by default the second of two. Of more classes it is held against all
        others.
    """
    return _calibration(
        _curves(_predictions(models, X, y), pos_label, "a calibration curve"), ax, n_bins
    )


def draw_predictions(
    made: Mapping[str, Predictions], pos_label: Any, threshold: float | None = None
) -> Any:
    """Return a figure of predictions that are there: ROC, and calibration beside it where there are
    probabilities.
    """
    both = all(one.are_probabilities for one in made.values())
    with _needing_matplotlib():
        from matplotlib.figure import Figure  # not pyplot: nobody is to see a window
    figure = Figure(
        figsize=(9.2 if both else _SQUARE[0], 5.4 if both else _SQUARE[1]), layout="constrained"
    )
    axes = figure.subplots(1, 2 if both else 1, squeeze=False)[0]
    curves = _curves(made, pos_label, "a ROC curve", threshold)
    _roc(
        curves,
        axes[0],
        True,
        "marker: as the model predicts" if threshold is None else f"marker: from {threshold:g} on",
    )
    if both:
        _calibration(curves, axes[1], 10)
    return figure


# -- curves
# ------------------------------------------------------------------------------------------------


def _roc(
    curves: Mapping[str, Binary],
    ax: Axes | None,
    band: bool,
    marked: str = "marker: as the model predicts",
) -> Axes:
    ax = new_axes(ax, _SQUARE)
    grid = np.linspace(0, 1, 201)
    drawn: dict[str, NDArray[np.float64]] = {}
    labels = []
    for i, (name, curve) in enumerate(curves.items()):
        rows = curve.positive, curve.scores, curve.weight
        fpr, tpr = roc_points(*rows)
        drawn[name] = np.interp(grid, fpr, tpr)
        note = _overlap(name, drawn)
        if band and _SAME not in note:
            low, high = roc_band(*rows, grid)
            ax.fill_between(grid, low, high, color=colour(i), alpha=0.15, linewidth=0, zorder=2)
        ax.plot(fpr, tpr, **_line(i, len(curves)))
        negative, weight = ~curve.positive, curve.weight
        own = [
            np.average(curve.called[among], weights=weight[among])
            for among in (negative, curve.positive)
        ]
        ax.plot(*own, **_marker(i, 7), zorder=5)
        labels.append(f"{name}: AUC {curve.estimates()['auc']}{note}")
    one = _class_text(curves)
    ax.set(xlabel=f"1 − specificity (not {one})", ylabel=f"sensitivity ({one})")
    _finish(ax, curves, labels, ["shaded: 95 % interval"] * band + [marked], loc="lower right")
    return ax


def _calibration(curves: Mapping[str, Binary], ax: Axes | None, n_bins: int) -> Axes:
    for name, curve in curves.items():
        if not curve.are_probabilities:
            raise ArgumentError(
                f"{name} has scores and no probabilities: there is nothing to calibrate",
                code="no-probabilities",
            )
    ax = new_axes(ax, (_SQUARE[0], _SQUARE[1] + 1 + 0.5 * len(curves)))
    drawn, labels = {}, []
    for i, (name, curve) in enumerate(curves.items()):
        table = curve.calibration(n_bins=n_bins)
        x, share = table["predicted"].to_numpy(), table["observed"].to_numpy()
        drawn[name] = np.concatenate([x, share])
        error = np.abs(np.vstack([table["low"], table["high"]]) - share)
        ax.errorbar(x, share, error, fmt="none", ecolor=colour(i), elinewidth=0.9, zorder=2)
        ax.plot(x, share, **_line(i, len(curves)), **_marker(i, 6))
        slope = curve.estimates(n_bins=n_bins)["calibration_slope"]
        labels.append(f"{name}: slope {slope}{_overlap(name, drawn)}")
        _strip(ax, curve, i)
    one = _class_text(curves)
    ax.set_ylabel(f"observed share of {one}")
    ax.tick_params(labelbottom=False)
    lowest = ax.child_axes[-1]
    lowest.tick_params(labelbottom=True)
    lowest.set_xlabel(f"predicted probability of {one}")
    _finish(
        ax,
        curves,
        labels,
        ["points: groups of rows, with 95 % intervals", f"below: rows, {one} upwards"],
        **_ABOVE,
    )
    _settle(ax)
    return ax


# -- pieces
# ------------------------------------------------------------------------------------------------


def new_axes(ax: Axes | None, size: tuple[float, float]) -> Axes:
    """Return the given axes, or new ones of a size in inches."""
    if ax is not None:
        return ax
    with _needing_matplotlib():
        import matplotlib.pyplot as plt
    return plt.subplots(figsize=size, layout="constrained")[1]


@contextmanager
def style(*, dark: bool = False) -> Iterator[None]:
    """Draw with light ink on dark paper, or the other way round, inside of a ``with``.

    >>> with style(dark=True):
    ...     pass
    """
    with _needing_matplotlib():
        import matplotlib as mpl
    ink, paper = (_DARK_INK, _DARK_PAPER) if dark else (_INK, "#ffffff")
    inks = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    papers = ("figure.facecolor", "axes.facecolor", "savefig.facecolor")
    chosen: dict[Any, Any] = {**dict.fromkeys(inks, ink), **dict.fromkeys(papers, paper)}
    with mpl.rc_context(chosen):
        yield


def draw_svg(draw: Callable[[Any], Any], size: tuple[float, float] = (7.0, 5.0)) -> bytes:
    """Return a picture as SVG without background; ink and paper change with the reader's colours.

    Parameters
    ----------
    draw : callable
        Draws on matplotlib axes.
    size : (float, float)
        In inches.
    """
    with style():
        from matplotlib.figure import Figure  # not pyplot: nobody is to see a window

        figure, content = Figure(figsize=size, layout="constrained"), io.BytesIO()
        draw(figure.add_subplot())
        figure.savefig(content, format="svg", transparent=True)
    return with_dark_colours(content.getvalue())


def with_dark_colours(svg: bytes) -> bytes:
    """Return an SVG of matplotlib that is light on dark where its reader prefers that."""
    rules = "".join(
        f'[style*="{what}: {light}"]{{{what}:{dark} !important}}'
        for light, dark in _IN_THE_DARK.items()
        for what in ("fill", "stroke")
    )
    start = svg.index(b"<defs>")
    rule = f"<style>@media (prefers-color-scheme: dark){{{rules}}}</style>".encode()
    return svg[:start] + rule + svg[start:]


@contextmanager
def _needing_matplotlib() -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise ImportError("plots need matplotlib: pip install 'encryptedstats[plots]'") from error


def _by_name(models: Any) -> dict[str, Any]:
    """Return models by name: the given one, or that of their class."""
    if isinstance(models, Mapping):
        return {str(name): model for name, model in models.items()}
    several: Sequence[Any] = models if isinstance(models, (list, tuple)) else [models]
    names = [type(model).__name__ for model in several]
    return {
        name if names.count(name) == 1 else f"{name} {i + 1}": m
        for i, (name, m) in enumerate(zip(names, several, strict=True))
    }


def _predictions(models: Any, X: Any, y: Any) -> dict[str, Predictions]:
    return {name: Predictions.of(model, X, y) for name, model in _by_name(models).items()}


def _curves(
    predictions: Mapping[str, Predictions],
    pos_label: Any,
    what: str,
    threshold: float | None = None,
) -> dict[str, Binary]:
    """Return the positive class against the others for each model, on the same rows."""
    found = {}
    for name, made in predictions.items():
        position = positive_position(made.classes, pos_label)
        if position is None:
            raise ArgumentError(
                f"{name} has {len(made.classes)} classes: name the positive one with pos_label=",
                code="no-positive-class",
            )
        curve = made.against(position, threshold)
        if len(np.unique(curve.positive)) < 2:
            raise ArgumentError(
                f"{what} needs rows of class {curve.label} and others: these {len(made)} rows are "
                "all of one kind",
                code="one-class-only",
            )
        found[name] = curve
    if len({curve.label for curve in found.values()}) > 1:
        raise ArgumentError(
            "the models differ in which class is the second: name the positive one with pos_label=",
            code="positive-classes-differ",
        )
    return found


def _class_text(curves: Mapping[str, Binary]) -> str:
    """Return the positive class; a dollar in its name is no formula."""
    label = str(next(iter(curves.values())).label)
    return "class " + (label if len(label) <= _LONGEST else label[: _LONGEST - 1] + "…").replace(
        "$", r"\$"
    )


def _overlap(name: str, drawn: Mapping[str, NDArray[np.float64]]) -> str:
    """Return a word on a curve that another one hides, or nearly so."""
    for other, points in drawn.items():
        if other != name and len(points) == len(drawn[name]):
            apart = float(np.abs(points - drawn[name]).max())
            if apart < _NEAR:
                return f"\n({_SAME if apart < 1e-9 else f'within {_NEAR} of'} {other})"
    return ""


def _line(index: int, count: int) -> dict[str, Any]:
    """Return colour and line of a curve: a later one is thinner and broken, so that it does not
    hide those below.
    """
    width = 1.5 + 0.6 * min(3, count - 1 - index)
    style = {"linestyle": _LINES[index % len(_LINES)], "linewidth": width, "dash_capstyle": "butt"}
    return {"color": colour(index), "zorder": 3 + index / count, **style}


def _marker(index: int, size: float) -> dict[str, Any]:
    face = {"markerfacecolor": colour(index), "markeredgecolor": _paper(), "markeredgewidth": 0.8}
    return {"marker": _MARKERS[index % len(_MARKERS)], "markersize": size, **face}


def _strip(ax: Axes, curve: Binary, index: int) -> None:
    """Draw how many rows have which probability: the positive class upwards, the others
    downwards.
    """
    strip = ax.inset_axes((0, -0.03 - 0.11 * (index + 1), 1, 0.09))
    edges = np.linspace(0, 1, 41)
    tallest = 1
    for rows, sign, alpha in ((curve.positive, 1, 1.0), (~curve.positive, -1, 0.5)):
        counts = np.histogram(np.clip(curve.scores[rows], 0, 1), edges)[0]
        tallest = max(tallest, int(counts.max()))
        strip.bar(
            edges[:-1],
            sign * counts,
            edges[1],
            align="edge",
            color=colour(index),
            alpha=alpha,
            linewidth=0,
        )
    strip.axhline(0, color=_GREY, linewidth=0.6)
    strip.set(xlim=_UNIT, ylim=(-1.1 * tallest, 1.1 * tallest))
    strip.set_yticks([0, tallest], ["0", f"{tallest:,}"])
    strip.tick_params(labelsize="x-small", labelbottom=False)
    without_frame(strip)


def _settle(ax: Axes) -> None:
    """Let matplotlib lay out the figure until what hangs below the axes has its room: its size
    follows that of the axes.
    """
    figure: Any = ax.get_figure()
    engine = figure.get_layout_engine()
    for _ in range(0 if engine is None else 3):
        engine.execute(figure)


def _finish(
    ax: Axes,
    curves: Mapping[str, Binary],
    labels: Sequence[str],
    remarks: Sequence[str],
    **place: Any,
) -> None:
    """Draw the diagonal, limits, and a legend that says of how many rows the picture is."""
    from matplotlib.lines import Line2D

    ax.plot([0, 1], [0, 1], color=_GREY, linewidth=0.8, linestyle=":", zorder=1)
    ax.set(xlim=_UNIT, ylim=_UNIT)
    handles = [Line2D([], [], **_line(i, len(labels)), **_marker(i, 6)) for i in range(len(labels))]
    rows = next(iter(curves.values()))
    title = "\n".join(
        [f"{len(rows.positive):,} rows, {rows.positive.sum():,} of {_class_text(curves)}", *remarks]
    )
    legend = ax.legend(
        handles, labels, title=title, **place, frameon=True, framealpha=0.85, edgecolor="none",
        fontsize="small", title_fontsize="small", alignment="left", handlelength=2.6, borderpad=0.2,
    )  # fmt: skip
    legend.set_zorder(6)
    ax.tick_params(labelsize="small")
    without_frame(ax)


def colour(index: int) -> str:
    """Return a colour that everybody tells apart from the others, also in print."""
    found = _COLOURS[index % len(_COLOURS)]
    return _ink() if found == "#000000" else found


def _ink() -> str:
    import matplotlib as mpl

    return str(mpl.rcParams["text.color"])


def _paper() -> str:
    import matplotlib as mpl

    return str(mpl.rcParams["axes.facecolor"])


def _patch(index: int) -> Any:
    from matplotlib.patches import Patch

    return Patch(color=colour(index))


def without_frame(ax: Axes) -> None:
    """Leave the lines above and beside the picture out."""
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)


# -- trees
# ------------------------------------------------------------------------------------------------


def _place(node: int, depth: int) -> tuple[float, float]:
    level = (node + 1).bit_length() - 1
    width = 2 ** (depth - level)
    return (node + 1 - 2**level + 0.5) * width, float(depth - level)


def _leaf_bars(ax: Axes, counts: NDArray[np.int64], font: float) -> None:
    n_leaves, n_classes = counts.shape
    width = 0.7 / n_classes
    tallest = max(1, int(counts.max()))
    for leaf in range(n_leaves):
        for c in range(n_classes):
            x = leaf + 0.5 + (c - (n_classes - 1) / 2) * width
            height = 0.75 * counts[leaf, c] / tallest
            ax.bar(x, height, 0.92 * width, bottom=-1.0, color=colour(c), zorder=2)
            ax.text(
                x,
                -0.98 + height,
                f"{counts[leaf, c]:,}",
                ha="center",
                va="bottom",
                fontsize=0.8 * font,
            )
        ax.plot([leaf + 0.12, leaf + 0.88], [-1.0, -1.0], color=_GREY, linewidth=0.8)


def _yes_no(ax: Axes, places: list[tuple[float, float]], font: float) -> None:
    for child, word, side in ((1, "yes", "right"), (2, "no", "left")):
        x, y = ((a + b) / 2 for a, b in zip(places[0], places[child], strict=True))
        shift = -0.12 if child == 1 else 0.12
        ax.text(
            x + shift,
            y + 0.12,
            word,
            ha=side,
            va="bottom",
            fontsize=font,
            color=_GREY,
            style="italic",
        )


def _rule(split: Split, schema: Schema | PublicSchema) -> str:
    """Return the condition for going left, in the owner's words where they are known."""
    if isinstance(schema, PublicSchema):
        return _lines(f"v{split.variable}", "in bins " + ", ".join(map(str, split.left)))
    variable = schema.variables[split.variable]
    labels = [variable.labels[k] for k in split.left]
    if variable.kind == "categorical":
        return _lines(variable.name, "is " + " or ".join(labels))
    missing = " or missing" if variable.missing_bin and variable.n_bins - 1 in split.left else ""
    ordered = [k for k in split.left if not (variable.missing_bin and k == variable.n_bins - 1)]
    last = ordered[-1]
    bound = f"{variable.edges[last]:.4g}" if variable.edges else str(variable.levels[last])
    return _lines(variable.name, f"≤ {bound}{missing}")


def _lines(name: str, condition: str) -> str:
    return "\n".join(
        part if len(part) <= _LONGEST else part[: _LONGEST - 1] + "…" for part in (name, condition)
    )
