"""Draw the pictures of the documentation: ``python docs/make_pictures.py`` writes
``docs/img/*.svg`` and ``docs/measured/*.png``.

An SVG brings its own paper, which is dark where the reader prefers dark pages. It is drawn from
plain strings: the same input gives the same bytes, and a test compares the files with what is
drawn. The plots are those that the page of statistics makes.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

FOLDER = Path(__file__).parent / "img"
INK, SOFT, PAPER, LINE = "#1f2933", "#5b6875", "#fbfcfd", "#c5ced6"
OWNER, OWNER_FILL = "#00695c", "#e0f2ef"
WORKER, WORKER_FILL = "#8a4b08", "#fdf0dd"
ONE, ZERO, SEALED = "#b7e0d8", "#ffffff", "#d5dae0"
# What each colour becomes where the reader prefers dark pages.
DARK = {
    INK: "#e6edf3", SOFT: "#9aa7b4", PAPER: "#10161d", LINE: "#3a4651",
    OWNER: "#57d3c0", OWNER_FILL: "#0e2e2a", WORKER: "#f2b56b", WORKER_FILL: "#33250f",
    ONE: "#1d5b51", ZERO: "#1b242e", SEALED: "#2d3843", "#93a1ad": "#55626e", "#aab4bd": "#4a5661",
}  # fmt: skip
SANS = "system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
MONO = "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace"


class Drawing:
    """Shapes on a sheet of paper."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.width, self.height, self.title = width, height, title
        self.shapes: list[str] = []

    def box(
        self,
        x: float,
        y: float,
        w: float,
        h: float,
        fill: str = ZERO,
        stroke: str = LINE,
        r: float = 6,
    ) -> None:
        """A rectangle."""
        self.shapes.append(
            f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="{r:g}" fill="{fill}" '
            f'stroke="{stroke}"/>'
        )

    def text(
        self, x: float, y: float, words: str, size: float = 14, colour: str = INK, anchor: str = "start",
        mono: bool = False, bold: bool = False,
    ) -> None:  # fmt: skip
        """A line of text; y is its base line."""
        family, weight = (MONO if mono else SANS), ' font-weight="600"' if bold else ""
        self.shapes.append(
            f'<text x="{x:g}" y="{y:g}" font-family="{family}" font-size="{size:g}" '
            f'fill="{colour}" '
            f'text-anchor="{anchor}"{weight} xml:space="preserve">{escape(words)}</text>'
        )

    def lines(
        self,
        x: float,
        y: float,
        words: list[str],
        size: float = 13,
        step: float = 20,
        **more: object,
    ) -> None:
        """Several lines of text."""
        for i, line in enumerate(words):
            self.text(x, y + i * step, line, size, **more)  # type: ignore[arg-type]  # the options of text

    def arrow(self, x1: float, y1: float, x2: float, y2: float, colour: str = SOFT) -> None:
        """A line with a head."""
        self.shapes.append(
            f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{colour}" '
            'stroke-width="1.6" marker-end="url(#head)"/>'
        )

    def line(self, x1: float, y1: float, x2: float, y2: float, colour: str = SOFT) -> None:
        """A line."""
        self.shapes.append(
            f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{colour}" '
            'stroke-width="1.4"/>'
        )

    def cells(
        self,
        x: float,
        y: float,
        values: list[str],
        w: float = 30,
        h: float = 26,
        sealed: bool = False,
    ) -> None:
        """A row of cells: 0 and 1, or what cannot be read."""
        for i, value in enumerate(values):
            fill = SEALED if sealed else ONE if value == "1" else ZERO
            self.box(x + i * w, y, w, h, fill, "#93a1ad", 0)
            self.text(x + i * w + w / 2, y + h * 0.7, value, 13, INK, "middle", mono=True)

    def key(self, x: float, y: float, colour: str = OWNER) -> None:
        """Draw a small key whose bow is centred at a point."""
        self.shapes.append(
            f'<g fill="none" stroke="{colour}" stroke-width="2.2" stroke-linecap="round">'
            f'<circle cx="{x:g}" cy="{y:g}" r="5.5"/><path d="M{x + 5.5:g} {y:g}h15m-4 0v5m-5 '
            '-5v4"/></g>'
        )

    def svg(self) -> str:
        """The picture as a file."""
        dark = "".join(
            f'[fill="{light}"]{{fill:{other}}}[stroke="{light}"]{{stroke:{other}}}'
            for light, other in DARK.items()
        )
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
            f'width="{self.width}" height="{self.height}" '
            f'role="img">\n<title>{escape(self.title)}</title>\n'
            f"<style>@media (prefers-color-scheme: dark){{{dark}}}</style>\n"
            '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" '
            'markerHeight="8" '
            'orient="auto-start-reverse"><path d="M0 0L10 5L0 10z" '
            f'fill="{SOFT}"/></marker></defs>\n'
        )
        paper = Drawing(0, 0, "")
        paper.box(0.5, 0.5, self.width - 1, self.height - 1, PAPER, LINE, 10)
        return head + "\n".join(paper.shapes + self.shapes) + "\n</svg>\n"


def _grid(
    d: Drawing, x: float, y: float, rows: list[list[str]], w: float, sealed: bool = False
) -> None:
    """Draw a table; the first row are the names of its columns."""
    head, frame = (WORKER_FILL, WORKER) if sealed else (OWNER_FILL, OWNER)
    for i, row in enumerate(rows):
        for j, value in enumerate(row):
            fill = head if i == 0 else SEALED if sealed else ZERO
            d.box(x + w * j, y + 26 * i, w, 26, fill, frame if i == 0 else LINE, 0)
            d.text(
                x + w * (j + 0.5), y + 26 * i + 18, value, 13, SOFT if sealed and i else INK, "middle",
                mono=sealed, bold=i == 0 and not sealed,
            )  # fmt: skip


def roles() -> Drawing:
    """Who holds what, and what travels."""
    d = Drawing(860, 360, "The owner encrypts, the worker computes, the owner opens")
    d.box(20, 20, 270, 320, OWNER_FILL, OWNER, 14)
    d.box(570, 20, 270, 320, WORKER_FILL, WORKER, 14)
    d.text(40, 52, "Owner", 19, OWNER, bold=True)
    d.text(40, 73, "holds the secret key", 13, SOFT)
    d.key(236, 48)
    d.text(590, 52, "Worker", 19, WORKER, bold=True)
    d.text(590, 73, "computes and cannot decrypt", 13, SOFT)
    values = [["age", "bmi", "sick"], ["59", "32.1", "yes"], ["48", "21.6", "no"], ["72", "30.5", "yes"]]  # fmt: skip
    noise = [["v0", "v1", "class"], ["8f3a…", "c01e…", "77b2…"], ["d4e9…", "05ab…", "f31c…"],
             ["2b60…", "9ad7…", "e845…"]]  # fmt: skip
    _grid(d, 40, 90, values, 76)
    _grid(d, 590, 90, noise, 76, sealed=True)
    d.arrow(704, 196, 704, 216)
    d.box(590, 218, 228, 34, ZERO, WORKER)
    d.text(704, 240, "sums and products", 13.5, INK, "middle")
    d.arrow(704, 253, 704, 273)
    d.box(590, 275, 228, 44, SEALED, "#aab4bd")
    d.text(704, 302, "3e7f… c96a… 104d…", 13, SOFT, "middle", mono=True)
    d.box(40, 238, 228, 81, ZERO, OWNER)
    d.text(54, 261, "exactly the plain result", 13, OWNER, bold=True)
    d.text(54, 285, "age   0.09", 13, INK, mono=True)
    d.text(54, 305, "bmi   8.50  ***", 13, INK, mono=True)
    d.arrow(292, 142, 568, 142)
    d.text(430, 114, "encrypted table", 14, INK, "middle", bold=True)
    d.text(430, 132, "and public keys", 13, SOFT, "middle")
    d.arrow(568, 297, 292, 297)
    d.text(430, 287, "encrypted result", 14, INK, "middle", bold=True)
    d.text(430, 204, "secret key, names and values", 13, SOFT, "middle")
    d.text(430, 222, "never leave the owner", 13, SOFT, "middle")
    return d


def slots() -> Drawing:
    """A column becomes bins, bins become slots, slots become a ciphertext."""
    d = Drawing(860, 430, "A column of a table in the slots of ciphertexts")
    ages = [34, 51, 62, 47, 70, 29]
    d.text(24, 36, "1  A column", 15, INK, bold=True)
    d.text(24, 56, "age of each patient", 12.5, SOFT)
    for i, age in enumerate(ages):
        d.box(40, 70 + 26 * i, 60, 26, ZERO, "#93a1ad", 0)
        d.text(70, 88 + 26 * i, str(age), 13, INK, "middle", mono=True)
    d.text(70, 246, "⋮", 16, SOFT, "middle")

    d.text(170, 36, "2  One 0/1 column a bin", 15, INK, bold=True)
    for k, name in enumerate(("≤ 45", "45–59", "> 59")):
        d.text(200 + 56 * k, 60, name, 12.5, SOFT, "middle")
    for i, age in enumerate(ages):
        bins = [age <= 45, 45 < age <= 59, age > 59]
        d.cells(172, 70 + 26 * i, [str(int(b)) for b in bins], 56)
    for k in range(3):
        d.text(200 + 56 * k, 246, "⋮", 16, SOFT, "middle")
    d.arrow(108, 148, 164, 148)

    d.text(400, 36, "3  A bin fills the slots of a ciphertext", 15, INK, bold=True)
    d.text(400, 56, "one slot a row, 8192 slots; no row is a ciphertext of its own", 12.5, SOFT)
    d.arrow(346, 148, 392, 112)
    d.text(400, 104, "> 59", 13, INK)
    d.cells(450, 86, ["0", "0", "1", "0", "1", "0", "…", "0", "0"], 38)
    d.text(678, 128, "row 6", 11, SOFT, "end")
    d.text(452, 128, "row 1", 11, SOFT)
    d.text(792, 128, "padding: 0", 11, SOFT, "end")
    d.arrow(622, 134, 622, 158)
    d.text(636, 152, "one ciphertext", 12.5, SOFT)
    d.cells(450, 162, ["8f", "c0", "77", "d4", "05", "f3", "…", "2b", "9a"], 38, sealed=True)
    d.lines(
        400, 218, ["A longer table is several chunks: a million rows are 123 of them.",
                   "A class is such a column too: 1 in the rows of the class."], 12.5, 18, colour=SOFT,
    )  # fmt: skip

    d.line(24, 268, 836, 268, LINE)
    d.text(24, 296, "4  Computing with all rows at once", 15, INK, bold=True)
    d.text(24, 328, "> 59", 13)
    d.cells(76, 310, ["0", "0", "1", "0", "1", "0"], 32)
    d.text(288, 329, "×", 18, INK, "middle")
    d.text(312, 328, "sick", 13)
    d.cells(352, 310, ["0", "1", "1", "0", "1", "0"], 32)
    d.text(566, 329, "=", 18, INK, "middle")
    d.cells(590, 310, ["0", "0", "1", "0", "1", "0"], 32)
    d.arrow(686, 338, 686, 362)
    d.text(700, 356, "add the slots up", 12.5, SOFT)
    d.box(590, 366, 192, 34, ONE, OWNER)
    d.text(686, 388, "2 over 59 and sick", 13, INK, "middle")
    d.lines(
        24, 366, ["One product of two ciphertexts multiplies slot by slot, 8192 rows",
                  "at once. The sum over slots is a count, and 0 in the padding",
                  "never counts. All of it happens under encryption."], 12.5, 18, colour=SOFT,
    )  # fmt: skip
    return d


def _node(
    d: Drawing, x: float, y: float, w: float, name: str, formula: str, fill: str = ZERO
) -> None:
    d.box(x - w / 2, y, w, 48, fill, "#93a1ad")
    d.text(x, y + 20, name, 13, INK, "middle", bold=True)
    d.text(x, y + 38, formula, 12.5, OWNER, "middle", mono=True)


def tree() -> Drawing:
    """A tree of depth two as three products."""
    d = Drawing(860, 410, "A decision tree as products of columns")
    d.text(430, 34, "How many of the sick are in each leaf?", 16, INK, "middle", bold=True)
    d.text(
        430, 54, "y = 1 for the sick;  a = 1 for age ≤ 59;  s = 1 for smokers", 13, SOFT, "middle"
    )
    _node(d, 430, 72, 190, "everybody", "y")
    _node(d, 220, 170, 230, "age ≤ 59", "l = y·a")
    _node(d, 640, 170, 230, "age > 59", "r = y − l")
    places = [118, 322, 538, 742]
    leaves = [
        ("younger smokers", "l·s"), ("younger others", "l − l·s"), ("older smokers", "r·s"), ("older others", "r − r·s"),
    ]  # fmt: skip
    for x, (name, formula) in zip(places, leaves, strict=True):
        _node(d, x, 268, 186, name, formula, ONE)
    for x1, y1, x2, y2 in ((400, 120, 250, 168), (460, 120, 610, 168), (190, 218, 135, 266), (250, 218, 305, 266),
                           (610, 218, 555, 266), (670, 218, 725, 266)):  # fmt: skip
        d.arrow(x1, y1, x2, y2)
    d.text(296, 140, "times a", 12, SOFT, "end")
    d.text(564, 140, "the rest", 12, SOFT)
    for x, word, anchor in (
        (148, "times s", "end"), (292, "the rest", "start"), (568, "times s", "end"), (712, "the rest", "start"),
    ):  # fmt: skip
        d.text(x, 240, word, 12, SOFT, anchor)
    for x in places:
        d.arrow(x, 316, x, 340)
        d.text(x, 356, "Σ rows", 13, INK, "middle")
    d.text(
        430, 388, "“And” is a product. The right child is the rest, and costs none: four leaves "
            "take three products, two in a row.",
        13, SOFT, "middle",
    )  # fmt: skip
    return d


def worker_view() -> Drawing:
    """The same table, with the eyes of either side."""
    d = Drawing(860, 370, "What the owner sees and what the worker sees of the same table")
    d.text(24, 36, "What the owner has", 16, OWNER, bold=True)
    d.text(450, 36, "What the worker has", 16, WORKER, bold=True)
    header = ["age", "smoker", "sick"]
    rows = [
        ["34", "no", "no"],
        ["51", "yes", "yes"],
        ["62", "yes", "yes"],
        ["47", "no", "no"],
        ["70", "no", "yes"],
    ]
    for j, name in enumerate(header):
        d.box(24 + 110 * j, 52, 110, 28, OWNER_FILL, OWNER, 0)
        d.text(79 + 110 * j, 71, name, 13, INK, "middle", bold=True)
        for i, row in enumerate(rows):
            d.box(24 + 110 * j, 80 + 28 * i, 110, 28, ZERO, LINE, 0)
            d.text(79 + 110 * j, 99 + 28 * i, row[j], 13, INK, "middle")
    names = ["v0", "v1", "class"]
    noise = [["8f3a…", "c01e…", "77b2…"], ["d4e9…", "05ab…", "f31c…"], ["2b60…", "9ad7…", "e845…"],
             ["6cf1…", "b392…", "104d…"], ["a5d8…", "3e7f…", "c96a…"]]  # fmt: skip
    for j, name in enumerate(names):
        d.box(450 + 128 * j, 52, 128, 28, WORKER_FILL, WORKER, 0)
        d.text(514 + 128 * j, 71, name, 13, INK, "middle", mono=True)
        for i, row in enumerate(noise):
            d.box(450 + 128 * j, 80 + 28 * i, 128, 28, SEALED, "#aab4bd", 0)
            d.text(514 + 128 * j, 99 + 28 * i, row[j], 13, SOFT, "middle", mono=True)
    d.text(24, 252, "Only the owner knows", 14, OWNER, bold=True)
    d.lines(
        24, 275, ["every value, class, weight and result", ("names of columns, cut points, " "levels, class labels"),
                  "the secret key", "what is in each leaf of a fitted tree"],
    )  # fmt: skip
    d.text(450, 252, "The worker also knows", 14, WORKER, bold=True)
    d.lines(
        450, 275, ["numbers of rows, variables, bins, classes", ("the kinds of variables; bounds " "of numbers and weights"),
                   "what is computed, and how trees split: v0, bins 0–1", ("sizes of files, and " "when they are read")],
    )  # fmt: skip
    d.line(430, 52, 430, 345, LINE)
    return d


def pooling() -> Drawing:
    """Fits of different rows add up."""
    d = Drawing(860, 250, "Fits of two sites add up to the fit of both")
    for y, site in ((24, "Site A"), (134, "Site B")):
        d.box(20, y, 210, 84, OWNER_FILL, OWNER, 10)
        d.text(36, y + 28, site, 15, OWNER, bold=True)
        d.lines(
            36,
            y + 50,
            ["own rows, a shared schema,", "the public key: it encrypts"],
            12.5,
            18,
            colour=SOFT,
        )
        d.arrow(230, y + 42, 338, y + 42)
        d.text(284, y + 32, "ciphertexts", 12.5, SOFT, "middle")
        d.box(340, y + 20, 150, 44, WORKER_FILL, WORKER)
        d.text(415, y + 47, f"fit of {site[-1]}", 13.5, INK, "middle")
    d.arrow(490, 66, 548, 106)
    d.arrow(490, 176, 548, 136)
    d.box(550, 96, 110, 50, WORKER_FILL, WORKER)
    d.text(605, 118, "fit of A + B", 13.5, INK, "middle")
    d.text(605, 136, "one addition", 12, SOFT, "middle")
    d.arrow(660, 121, 698, 121)
    d.box(700, 84, 140, 74, OWNER_FILL, OWNER, 10)
    d.text(716, 110, "The key holder", 14, OWNER, bold=True)
    d.lines(716, 130, ["opens the sum,", "nothing else"], 12.5, 17, colour=SOFT)
    return d


PICTURES = {"roles": roles, "slots": slots, "tree": tree, "worker": worker_view, "pooling": pooling}


#: Plots, by page, with the names that they have in its examples.
PLOTS = {
    "reference/statistics.md": {"survival": "survival_plot"},
    "guides/genomes.md": {"manhattan": "manhattan_plot"},
}


def write_plots() -> None:
    from run_examples import find_examples

    for page, plots in PLOTS.items():
        made: dict[str, Any] = {"__name__": "__main__"}
        with tempfile.TemporaryDirectory() as empty:
            os.chdir(empty)
            for example in find_examples((FOLDER.parent / page).read_text(encoding="utf-8")):
                exec(example.code, made)
            os.chdir(FOLDER.parent / "measured")
        for name, plot in plots.items():
            made[plot].figure.savefig(f"{name}.png", dpi=100, bbox_inches="tight")


def main() -> None:
    """Write every picture."""
    FOLDER.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(draw().svg(), encoding="utf-8")
    write_plots()


if __name__ == "__main__":
    main()
