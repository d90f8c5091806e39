"""Pictures of tests, tables and scans: drawn into the axes that are given, or new ones, and showing
what they should.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterator

import numpy as np
import pandas as pd
import pytest
from asked_samples import table_of

import encryptedstats as es
from error_codes import error

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    from matplotlib import pyplot as plt

    yield
    plt.close("all")


@pytest.fixture(scope="module")
def table() -> es.Table:
    rng = np.random.default_rng(0)
    n = 200
    frame = pd.DataFrame(
        {
            "w": rng.integers(1, 90, n),
            "g": rng.choice(list("abc"), n),
            "h": rng.choice(list("xy"), n),
            "age": rng.normal(50, 10, n),
            "y": rng.integers(0, 2, n),
        }
    )
    return table_of(frame, "y", {"w": 0})


def test_a_histogram_has_a_line_for_each_group(table: es.Table) -> None:
    found = table.ask(es.Histogram("age", by="h"))
    ax = found.plot(low=20, high=80)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["x", "y"]
    assert ax.get_ylabel() == "share per unit"
    bars = found.plot()
    assert bars.get_ylabel() == "rows"
    assert sorted(bar.get_height() for bar in bars.patches) == sorted(
        found.counts.to_numpy().ravel()
    )


def test_boxes_span_the_quartiles_and_have_no_whiskers_in_open_bins(table: es.Table) -> None:
    found = table.ask(es.Histogram("age"))
    ax = found.boxplot()
    q1, q3 = found.quantile(0.25)["rows"], found.quantile(0.75)["rows"]
    heights = {round(float(y), 6) for line in ax.lines for y in line.get_ydata()}
    assert {round(q1, 6), round(q3, 6)} <= heights
    assert min(heights) == round(q1, 6)
    assert (
        min(float(y) for line in found.boxplot(low=0, high=99).lines for y in line.get_ydata()) < q1
    )


def test_means_residuals_ratios_and_curves_are_drawn_where_they_are_told_to(
    table: es.Table,
) -> None:
    from matplotlib import pyplot as plt

    for question in (
        es.Anova("w", ["g"]),
        es.Anova("w", ["g", "h"]),
        es.ChiSquare("g", "h"),
        es.OddsRatio("g", "y"),
        es.ROC("age", "y"),
    ):
        _, ax = plt.subplots()
        assert table.ask(question).plot(ax) is ax
        assert ax.has_data()


def test_a_result_without_a_picture_says_so(table: es.Table) -> None:
    with pytest.raises(NotImplementedError, match="TestResult has no plot"):
        table.ask(es.TTest("w")).plot()


def test_a_manhattan_plot_shows_every_snp_by_chromosome_and_a_qq_plot_the_inflation() -> None:
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(
        rng.binomial(2, 0.3, (80, 6)), columns=[f"rs{j}" for j in range(6)]
    ).assign(y=rng.integers(0, 2, 80))
    found = table_of(frame, "y", {f"rs{j}": 0 for j in range(6)}).ask(es.GenomeScan())
    ax = found.plot(chromosomes=[1, 1, 1, 2, 2, "X"], positions=[5, 9, 20, 3, 8, 1])
    points = np.concatenate(
        [
            line.get_ydata()
            for line in ax.lines
            if len(line.get_ydata()) < 6 and line.get_marker() == "."
        ]
    )
    np.testing.assert_allclose(points, -np.log10(found.pvalues))
    assert [label.get_text() for label in ax.get_xticklabels()] == ["1", "2", "X"]
    assert f"{found.inflation:.3f}" in found.qq().texts[0].get_text()
    with pytest.raises(ValueError, check=error("positions-missing", "6")):
        found.plot(positions=[1, 2])


def test_pictures_have_a_dark_variant(table: es.Table) -> None:
    from matplotlib import pyplot as plt
    from matplotlib.colors import to_hex

    from encryptedstats import plots

    svg = plots.draw_svg(table.ask(es.Anova("w", ["g"])).plot)
    page = ET.fromstring(svg)
    text = svg.decode()
    assert "prefers-color-scheme: dark" in text
    assert f"fill: {plots._INK}" in text.split("</style>", 2)[-1]  # what is drawn has the ink
    assert page.tag.endswith("svg")
    with plots.style(dark=True):
        _, ax = plt.subplots()
        assert to_hex(ax.get_facecolor()) == plots._DARK_PAPER
        assert to_hex(ax.xaxis.label.get_color()) == plots._DARK_INK
    cells = plots.draw_svg(table.ask(es.ChiSquare("g", "h")).plot).decode()
    assert plots.ON_LIGHT in cells  # numbers on coloured cells stay
    assert plots.ON_LIGHT not in cells.split("</style>")[0]
