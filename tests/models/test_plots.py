"""Pictures: they are drawn, say what they should, and refuse what cannot be shown."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from model_samples import frame, schema, table
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression

import encryptedstats as es
from encryptedstats.metrics import evaluate
from error_codes import error

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")
from encryptedstats import plots  # noqa: E402  # after the backend is chosen


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    plt.close("all")


def forest(depth: int = 2, rows: Any = None) -> es.CompletelyRandomForest:
    model = es.CompletelyRandomForest(n_trees=3, depth=depth, random_state=1)
    return model.fit(table(120) if rows is None else rows)


def texts(ax: Any) -> list[str]:
    return [text.get_text() for text in ax.texts]


@pytest.mark.parametrize("depth", [1, 3, 6])
def test_a_tree_shows_splits_and_counts(depth: int) -> None:
    model = forest(depth)
    ax = plots.plot_tree(model, 1)
    ax.figure.canvas.draw()
    shown = texts(ax)
    assert len(shown) == (2**depth - 1) + 2 * 2**depth + 2
    assert {"yes", "no"} <= set(shown)
    counts = [f"{count:,}" for leaf in model.leaf_counts_[1] for count in leaf]
    assert [text for text in shown if text.replace(",", "").isdigit()] == counts
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["no", "yes"]
    assert "Tree 1 of 3: 120 rows" in ax.get_title(loc="left")
    assert len(ax.patches) == 2 * 2**depth


def test_splits_speak_the_owners_language(keeper: es.Owner) -> None:
    data = frame(300)
    data.loc[::9, "age"] = np.nan
    data["dose"] = pd.Categorical(
        np.resize(["low", "mid", "high"], 300), ["low", "mid", "high"], ordered=True
    )
    known = es.Schema.infer(data, target="ill", bins=3, missing="bin")
    model = es.CompletelyRandomForest(n_trees=40, depth=2, random_state=0).fit(known.table(data))
    rules = {plots._rule(split, known) for tree in model.trees_ for split in tree}
    edges = [f"{edge:.4g}" for edge in known["age"].edges]
    assert {
        f"age\n≤ {edges[0]}",
        f"age\n≤ {edges[1]} or missing",
        "dose\n≤ low",
        "dose\n≤ mid",
        "sex\nis f or x",
    } <= rules
    assert all(len(line) <= 26 for rule in rules for line in rule.split("\n"))
    public = {plots._rule(split, known.public()) for tree in model.trees_ for split in tree}
    assert "v0\nin bins 0, 1" in public
    assert plots._lines("x" * 40, "y").startswith("x" * 25 + "…")


def test_a_tree_goes_where_it_is_told() -> None:
    figure, (left, right) = plt.subplots(1, 2)
    assert plots.plot_tree(forest(), 0, right) is right
    assert not left.texts
    assert plots.plot_votes(forest(), table(20), ax=left) is left
    assert figure.axes == [left, right]


@pytest.mark.parametrize("classes", [("no", "yes"), ("a", "b", "c")])
def test_votes_are_grouped_by_true_class(classes: tuple[str, ...]) -> None:
    rows = table(90, classes=classes)
    model = forest(rows=rows)
    ax = plots.plot_votes(model, rows)
    ax.figure.canvas.draw()
    labels = [tick.get_text().split("\n") for tick in ax.get_xticklabels()]
    assert [label[0] for label in labels] == list(classes)
    assert [int(label[1].split()[0]) for label in labels] == np.bincount(rows.class_codes).tolist()
    assert [text.get_text() for text in ax.get_legend().get_texts()] == list(classes)
    data = frame(90, classes=classes)
    again = plots.plot_votes(model, data.drop(columns="ill"), data["ill"])
    assert len(again.patches) == len(ax.patches) == len(classes) ** 2


def legend(ax: Any) -> list[str]:
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_roc_names_the_positive_class_and_shows_intervals() -> None:
    data = frame(300, seed=3)
    X, y = data.drop(columns="ill"), data["ill"]
    models = {
        "forest": forest(),
        "bayes": es.SemiparametricNB().fit(table(120)),
        "means": es.LinearMeans().fit(table(120)),
    }
    ax = plots.plot_roc(models, X, y)
    for text, (name, model) in zip(legend(ax), models.items(), strict=True):
        assert text.startswith(f"{name}: AUC {evaluate(model, X, y).scores['auc']}")
    assert ax.get_legend().get_title().get_text().split("\n") == [
        f"300 rows, {(y == 'yes').sum()} of class yes",
        "shaded: 95 % interval",
        "marker: as the model predicts",
    ]
    assert ax.get_xlabel() == "1 − specificity (not class yes)"
    assert ax.get_ylabel() == "sensitivity (class yes)"
    assert len(ax.collections) == 3  # a band for each
    drawn, found = ax.lines[1].get_xydata()[0], evaluate(models["forest"], X, y).scores
    assert drawn == pytest.approx(
        [1 - found["specificity"].estimate, found["sensitivity"].estimate]
    )
    assert not plots.plot_roc(models, X, y, band=False).collections
    other = plots.plot_roc(forest(), schema().table(data), pos_label="no")
    assert other.get_ylabel() == "sensitivity (class no)"
    assert f"{(y == 'no').sum()} of class no" in other.get_legend().get_title().get_text()


def test_identical_curves_are_told_apart() -> None:
    rows = table(200, seed=3)
    ax = plots.plot_roc(
        {"one": forest(), "two": forest(), "three": es.LinearMeans().fit(table(120))}, rows
    )
    assert [text.partition("\n")[2] for text in legend(ax)] == ["", "(the same curve as one)", ""]
    lines = [ax.lines[0], ax.lines[2], ax.lines[4]]
    assert len({str(line.get_linestyle()) + str(line._dash_pattern) for line in lines}) == 3
    assert len({line.get_color() for line in lines}) == 3
    widths = [line.get_linewidth() for line in lines]
    assert widths == sorted(widths, reverse=True)
    assert widths[0] > widths[1]
    assert len({line.get_marker() for line in ax.lines[1:6:2]}) == 3
    assert len(ax.collections) == 2  # one band for both
    calibration = plots.plot_calibration({"one": forest(), "two": forest()}, rows)
    assert "(the same curve as one)" in legend(calibration)[1]


def test_calibration_shows_intervals_and_counts() -> None:
    data = frame(300, seed=3)
    X, y = data.drop(columns="ill"), data["ill"]
    models = {"forest": forest(), "bayes": es.SemiparametricNB().fit(table(120))}
    ax = plots.plot_calibration(models, X, y, n_bins=5)
    found = {name: evaluate(model, X, y, n_bins=5) for name, model in models.items()}
    assert legend(ax) == [
        f"{name}: slope {one.scores['calibration_slope']}" for name, one in found.items()
    ]
    assert ax.get_ylabel() == "observed share of class yes"
    strips = ax.child_axes
    assert strips[-1].get_xlabel() == "predicted probability of class yes"
    for strip in strips:  # every row is counted, the positive ones upwards
        heights = np.array([bar.get_height() for bar in strip.patches])
        assert heights[heights > 0].sum() == (y == "yes").sum()
        assert heights[heights < 0].sum() == -(y == "no").sum()
    line = found["forest"].calibration
    assert line is not None
    bars = ax.collections[0].get_segments()
    np.testing.assert_allclose([bar[:, 1] for bar in bars], line[["low", "high"]])
    assert f"300 rows, {(y == 'yes').sum()} of class yes" in ax.get_legend().get_title().get_text()
    ax.figure.canvas.draw()
    page = ax.figure.bbox
    for shown in (*strips, ax.get_legend(), ax):
        box = shown.get_tightbbox(ax.figure.canvas.get_renderer())
        assert box.x0 >= page.x0 - 1
        assert box.y0 >= page.y0 - 1
        assert box.x1 <= page.x1 + 1
        assert box.y1 <= page.y1 + 1


def test_a_dollar_in_a_class_is_no_formula() -> None:
    rows = table(60, classes=("less", "$50 or $60"))
    ax = plots.plot_roc(forest(rows=rows), rows)
    ax.figure.canvas.draw()
    assert ax.get_ylabel() == r"sensitivity (class \$50 or \$60)"


def test_other_classifiers_stand_beside_ours() -> None:
    data = frame(100)
    X, y = data[["age", "grade"]], data["ill"]
    models = [
        es.MultinomialNB().fit(X, y),
        LogisticRegression().fit(X, y),
        LogisticRegression(C=9).fit(X, y),
    ]
    ax = plots.plot_roc(models, X, y)
    assert [text.split(":")[0] for text in legend(ax)] == [
        "MultinomialNB",
        "LogisticRegression 2",
        "LogisticRegression 3",
    ]


def test_what_cannot_be_shown_is_refused(keeper: es.Owner) -> None:
    with pytest.raises(ValueError, check=error("tree-out-of-range", "t=3", "0", "2")):
        plots.plot_tree(forest(), 3)
    with pytest.raises(NotFittedError, match=r"still encrypted: open it with owner.open\(model\)"):
        plots.plot_tree(
            es.CompletelyRandomForest(2, 1).fit(keeper.encrypt(table(), workers=1), workers=1)
        )
    three = table(60, classes=("a", "b", "c"))
    with pytest.raises(ValueError, check=error("no-positive-class", "3")):
        plots.plot_roc(forest(rows=three), three)
    assert (
        plots.plot_roc(forest(rows=three), three, pos_label="b").get_ylabel()
        == "sensitivity (class b)"
    )
    ill = frame(60)[lambda rows: rows["ill"] == "yes"]
    with pytest.raises(ValueError, check=error("one-class-only", len(ill))):
        plots.plot_roc(forest(), ill, ill["ill"])
    turned = es.MultinomialNB().fit(
        es.Schema.infer(frame(90), target="ill", classes=["yes", "no"]).table(frame(90))
    )
    with pytest.raises(ValueError, check=error("positive-classes-differ")):
        plots.plot_roc([forest(), turned], frame(60), frame(60)["ill"])
    with pytest.raises(ValueError, check=error("no-probabilities")):
        plots.plot_calibration(es.LinearMeans().fit(table()), table())
    with pytest.raises(ValueError, check=error("no-classes")):
        plots.plot_votes(forest(), frame(9))
    with pytest.raises(ValueError, check=error("unknown-class")):
        plots.plot_votes(forest(), frame(9), ["maybe"] * 9)


def test_without_matplotlib_the_cure_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **options: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    for draw in (lambda: plots.plot_tree(forest()), lambda: plots.plot_roc(forest(), table())):
        with pytest.raises(
            ImportError, match=r"plots need matplotlib: pip install 'encryptedstats\[plots\]'"
        ):
            draw()
