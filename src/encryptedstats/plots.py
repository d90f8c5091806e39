"""Pictures of opened models: a tree with its counts, votes, ROC and calibration curves. Needs matplotlib (extra ``plots``).

Every function draws into ``ax``, or into a new figure, and returns the axes. Curves are scikit-learn's own displays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from encryptedstats.models.forest import CompletelyRandomForest
from encryptedstats.models.growth import Split
from encryptedstats.tables import PublicSchema, Schema, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_calibration", "plot_roc", "plot_tree", "plot_votes"]

# Okabe and Ito's colours: told apart by everybody, also in print.
_COLOURS: Final = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")
_GREY: Final = "#8a8a8a"
_LONGEST: Final = 26  # characters of a line in a label


def plot_tree(forest: CompletelyRandomForest, t: int = 0, ax: Axes | None = None) -> Axes:
    """Tree ``t`` of an opened forest: rows that satisfy a split go left, thicker branches carry more rows.

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
        raise ValueError(f"t={t}: the forest has the trees 0 to {len(forest.trees_) - 1}")
    tree, counts = forest.trees_[t], forest.node_counts_[t]
    depth = (len(tree) + 1).bit_length() - 1
    ax = _axes(ax, (min(40.0, max(6.4, 1.35 * 2**depth)), 1.15 * depth + 2.0))
    places = [_place(node, depth) for node in range(len(counts))]
    sizes = counts.sum(axis=1) / max(1, counts[0].sum())
    for child in range(1, len(counts)):
        parent = (child - 1) // 2
        (x0, y0), (x1, y1) = places[parent], places[child]
        ax.plot([x0, x1], [y0, y1], color=_GREY, linewidth=0.5 + 6 * sizes[child], solid_capstyle="round", zorder=1)
    font = 9.0 if depth < 5 else 6.0
    box = {"boxstyle": "round,pad=0.35", "facecolor": "white", "edgecolor": _GREY}
    for node, split in enumerate(tree):
        ax.text(
            *places[node], _rule(split, forest.schema_), ha="center", va="center", fontsize=font, bbox=box, zorder=3
        )
    _leaf_bars(ax, forest.leaf_counts_[t], font)
    _yes_no(ax, places, font)
    handles = [_patch(c) for c in range(len(forest.classes_))]
    ax.legend(handles, [str(label) for label in forest.classes_], title="class", loc="upper right", frameon=False)
    ax.set_xlim(0, 2**depth)
    ax.set_ylim(-1.15, depth + 0.45)
    ax.set_axis_off()
    ax.set_title(f"Tree {t} of {len(forest.trees_)}: {int(counts[0].sum()):,} rows", loc="left", fontsize=11)
    return ax


def plot_votes(forest: CompletelyRandomForest, X: Any, y: Any = None, ax: Axes | None = None) -> Axes:
    """Shares of the votes of all classes, a narrow column for each row, grouped by true class.

    The votes for the true class stand at the bottom, and rows are sorted by them: of two classes, rows below one half are
    predicted wrongly.

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
    codes = _codes(forest, _labels(forest, X, y))
    ax = _axes(ax, (8.0, 4.0))
    order = np.lexsort((-shares[np.arange(len(codes)), codes], codes))
    n_classes = len(forest.classes_)
    starts = np.searchsorted(codes[order], np.arange(n_classes + 1))
    for true in range(n_classes):
        rows = order[starts[true] : starts[true + 1]]
        bottom = np.zeros(len(rows))
        for c in sorted(range(n_classes), key=lambda c: c != true):
            top = bottom + shares[rows, c]
            edges = np.arange(starts[true], starts[true + 1] + 1)
            ax.stairs(top, edges, baseline=bottom, fill=True, color=_colour(c), linewidth=0)
            bottom = top
    for start in starts[1:-1]:
        ax.axvline(float(start), color="white", linewidth=2)
    if n_classes == 2:
        ax.axhline(0.5, color="black", linewidth=0.8, linestyle=":")
    present = [c for c in range(n_classes) if starts[c + 1] > starts[c]]
    ax.set_xticks([(starts[c] + starts[c + 1]) / 2 for c in present])
    ax.set_xticklabels([f"{forest.classes_[c]}\n{starts[c + 1] - starts[c]:,} rows" for c in present])
    ax.tick_params(axis="x", length=0)
    ax.set_xlim(0, len(order))
    ax.set_ylim(0, 1)
    ax.set_xlabel("true class")
    ax.set_ylabel("share of votes")
    handles, names = [_patch(c) for c in range(n_classes)], [str(label) for label in forest.classes_]
    ax.legend(handles, names, title="votes for", bbox_to_anchor=(1.01, 1), loc="upper left", frameon=False)
    _without_frame(ax)
    return ax


def plot_roc(models: Any, X: Any, y: Any = None, ax: Axes | None = None) -> Axes:
    """ROC curves of one or several opened two-class models, or of any other classifiers, on the same rows.

    Parameters
    ----------
    models : classifier, sequence of classifiers, or mapping of names to classifiers
    X : DataFrame, array or Table
    y : array, optional
        True classes; those of ``X`` where it is a table.
    ax : matplotlib axes, optional
    """
    from sklearn.metrics import RocCurveDisplay

    ax = _axes(ax, (5.2, 5.0))
    ax.set_prop_cycle(color=list(_COLOURS))
    for name, model in _named(models).items():
        _check_two_classes(name, model)
        RocCurveDisplay.from_estimator(model, X, _labels(model, X, y), name=name, ax=ax)
    ax.plot([0, 1], [0, 1], color=_GREY, linewidth=0.8, linestyle=":")
    ax.set(xlabel="false positive rate", ylabel="true positive rate", xlim=(-0.01, 1.01), ylim=(-0.01, 1.01))
    ax.legend(loc="lower right", frameon=False)
    _without_frame(ax)
    return ax


def plot_calibration(models: Any, X: Any, y: Any = None, ax: Axes | None = None, *, n_bins: int = 10) -> Axes:
    """How often the second class occurs among rows that are given a probability: on the diagonal, probabilities are to be trusted.

    Forests and naive Bayes are not calibrated (paper, section 3.3.1): look before a threshold is chosen.

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
    """
    from sklearn.calibration import CalibrationDisplay

    ax = _axes(ax, (5.2, 5.0))
    ax.set_prop_cycle(color=list(_COLOURS))
    ax.plot([0, 1], [0, 1], color=_GREY, linewidth=0.8, linestyle=":")
    for i, (name, model) in enumerate(_named(models).items()):
        _check_two_classes(name, model)
        if not hasattr(model, "predict_proba"):
            raise ValueError(f"{name} has scores and no probabilities: there is nothing to calibrate")
        CalibrationDisplay.from_estimator(
            model,
            X,
            _labels(model, X, y),
            n_bins=n_bins,
            strategy="quantile",
            name=name,
            ax=ax,
            ref_line=False,
            color=_colour(i),
            markersize=4,
        )
    ax.set(xlabel="predicted probability", ylabel="observed frequency", xlim=(-0.01, 1.01), ylim=(-0.01, 1.01))
    ax.legend(loc="upper left", frameon=False)
    _without_frame(ax)
    return ax


# -- pieces --------------------------------------------------------------------------------------------------------------


def _axes(ax: Axes | None, size: tuple[float, float]) -> Axes:
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("plots need matplotlib: pip install 'encryptedstats[plots]'") from error
    return plt.subplots(figsize=size, layout="constrained")[1]


def _named(models: Any) -> dict[str, Any]:
    """Models by name: given, or that of their class."""
    if isinstance(models, Mapping):
        return {str(name): model for name, model in models.items()}
    several: Sequence[Any] = models if isinstance(models, (list, tuple)) else [models]
    names = [type(model).__name__ for model in several]
    return {
        name if names.count(name) == 1 else f"{name} {i + 1}": m
        for i, (name, m) in enumerate(zip(names, several, strict=True))
    }


def _check_two_classes(name: str, model: Any) -> None:
    if len(model.classes_) != 2:
        raise ValueError(f"{name} has {len(model.classes_)} classes: this picture is for two")


def _labels(model: Any, X: Any, y: Any) -> NDArray[Any]:
    if y is not None:
        return np.asarray(y)
    if not isinstance(X, Table) or X.class_codes is None:
        raise ValueError("true classes are needed: give y=, or a table that has them")
    labels: NDArray[Any] = np.asarray(model.classes_)[X.class_codes]
    return labels


def _codes(model: Any, labels: NDArray[Any]) -> NDArray[np.intp]:
    matches = labels[:, None] == np.asarray(model.classes_)[None, :]
    if not matches.any(axis=1).all():
        raise ValueError(f"y has classes beyond those of the model, {', '.join(map(str, model.classes_))}")
    return np.asarray(matches.argmax(axis=1))


def _colour(index: int) -> str:
    return _COLOURS[index % len(_COLOURS)]


def _patch(index: int) -> Any:
    from matplotlib.patches import Patch

    return Patch(color=_colour(index))


def _without_frame(ax: Axes) -> None:
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)


# -- trees ---------------------------------------------------------------------------------------------------------------


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
            ax.bar(x, height, 0.92 * width, bottom=-1.0, color=_colour(c), zorder=2)
            ax.text(x, -0.98 + height, f"{counts[leaf, c]:,}", ha="center", va="bottom", fontsize=0.8 * font)
        ax.plot([leaf + 0.12, leaf + 0.88], [-1.0, -1.0], color=_GREY, linewidth=0.8)


def _yes_no(ax: Axes, places: list[tuple[float, float]], font: float) -> None:
    for child, word, side in ((1, "yes", "right"), (2, "no", "left")):
        x, y = ((a + b) / 2 for a, b in zip(places[0], places[child], strict=True))
        shift = -0.12 if child == 1 else 0.12
        ax.text(x + shift, y + 0.12, word, ha=side, va="bottom", fontsize=font, color=_GREY, style="italic")


def _rule(split: Split, schema: Schema | PublicSchema) -> str:
    """The condition for going left, in the owner's words where they are known."""
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
    return "\n".join(part if len(part) <= _LONGEST else part[: _LONGEST - 1] + "…" for part in (name, condition))
