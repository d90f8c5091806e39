"""The report: one HTML file that reads like the results section of a paper, pictures inside, made from what results there are."""

from __future__ import annotations

import base64
import html
import platform
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

import numpy as np

from encryptedstats.parallel import cores
from encryptedstats.storage.files import write_atomic
from reproduction.evaluation.catalogue import COUNTS
from reproduction.evaluation.claims import CLEAR, EQUAL, NOT_COMPUTED, VERDICTS, Finding, findings
from reproduction.evaluation.evidence import Evidence, Frame
from reproduction.evaluation.figures import draw_all
from reproduction.evaluation.methods import ENCRYPTABLE, METHODS
from reproduction.evaluation.times import PAPER

REPORT: Final = "report.html"
_MINUS: Final = re.compile(r"(?<![\w<>-])-(?=\d)")  # hyphens that are signs of numbers

_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1c1c1a; --soft: #5c5c57; --paper: #fdfdfb; --line: #d9d8d2; --tint: #f3f2ec;
  --serif: Charter, "Bitstream Charter", "Source Serif 4", Georgia, serif; --good: #0a6b4b;
  --part: #8a5a00; --bad: #a63200; --none: #6a6a66; --link: #00599c; }
@media (prefers-color-scheme: dark) { :root { --ink: #e9e8e3; --soft: #a9a8a1; --paper: #171716; --line: #3a3a37;
  --tint: #222220; --good: #5fd3a6; --part: #f0b95a; --bad: #ff9a6b; --none: #a3a29c; --link: #7dbdf2; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 1.05rem/1.6 var(--serif); }
main, header.top, footer { max-width: 46rem; margin: 0 auto; padding: 0 1.25rem; }
header.top { padding-top: 3rem; }
h1 { font-size: 2rem; line-height: 1.2; margin: 0 0 .4rem; text-wrap: balance; }
h2 { font-size: 1.4rem; margin: 3rem 0 .6rem; } h3 { font-size: 1.1rem; margin: 2rem 0 .4rem; }
.lead { color: var(--soft); margin: 0 0 1.5rem; } p { margin: .7rem 0; text-wrap: pretty; } a { color: var(--link); }
.label { font: .8rem ui-monospace, "DejaVu Sans Mono", monospace; color: var(--soft); font-weight: normal; margin-left: .5rem; }
code { font: .88em ui-monospace, "DejaVu Sans Mono", monospace; }
nav ol { columns: 2; padding-left: 1.4rem; font-size: .95rem; }
figure { margin: 1.6rem 0; } .wide { width: min(74rem, calc(100vw - 2.5rem)); margin-left: 50%; transform: translateX(-50%); }
figure img { width: 100%; height: auto; background: #fff; border: 1px solid var(--line); border-radius: 6px; padding: .6rem;
  display: block; }
figcaption, caption { color: var(--soft); font-size: .92rem; line-height: 1.45; text-align: left; margin-top: .5rem; }
caption { caption-side: top; padding: 0 0 .5rem; margin: 0; font-family: var(--serif); }
figcaption b, caption b { color: var(--ink); }
.scroll { overflow-x: auto; margin-top: 1.4rem; margin-bottom: 1.4rem; }
table { border-collapse: collapse; width: 100%; font: .84rem/1.4 system-ui, "DejaVu Sans", sans-serif;
  font-variant-numeric: tabular-nums; }
th, td { padding: .28rem .5rem; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
thead th { border-bottom: 2px solid var(--ink); white-space: nowrap; } td.n, th.n { text-align: right; white-space: nowrap; }
tbody th { font-weight: 600; } td.best { font-weight: 700; } tbody tr:hover { background: var(--tint); }
.verdict { font-weight: 700; white-space: nowrap; } .agrees { color: var(--good); } .in-part { color: var(--part); }
.differs { color: var(--bad); } .not-computed { color: var(--none); font-weight: 400; }
.counts { display: flex; flex-wrap: wrap; gap: .6rem 2rem; padding: 0; margin: 1.2rem 0; list-style: none; }
.counts b { font-size: 1.6rem; margin-right: .35rem; } .missing { color: var(--none); font-style: italic; }
.skip { position: absolute; left: -999px; } .skip:focus { left: 1rem; top: 1rem; background: var(--paper); padding: .4rem .8rem; }
footer { color: var(--soft); font-size: .88rem; margin-top: 4rem; padding-bottom: 3rem; border-top: 1px solid var(--line); }
@media (max-width: 40rem) { nav ol { columns: 1; } h1 { font-size: 1.6rem; } }
@media print { :root { color-scheme: light; --ink: #000; --soft: #444; --paper: #fff; --line: #bbb; --tint: #fff; --good: #064;
  --part: #640; --bad: #820; --none: #555; --link: #000; } body { font-size: 10pt; } nav, .skip { display: none; }
  main, header.top, footer { max-width: none; padding: 0; } .wide { width: 100%; margin-left: 0; transform: none; }
  figure, tr { break-inside: avoid; } h2, h3 { break-after: avoid; } .scroll { overflow: visible; } }
"""


def write_report(output: Path) -> Path:
    """Draw all figures and write ``report.html`` from the results in a folder."""
    evidence = Evidence(output)
    pictures = draw_all(evidence)
    found = findings(evidence)
    write_atomic(output / REPORT, [_page(evidence, pictures, found).encode()])
    return output / REPORT


def _page(evidence: Evidence, pictures: dict[str, Path], found: list[Finding]) -> str:
    sections = [
        ("data", "Data sets", "Table of data sets", _data(evidence)),
        (
            "theory",
            "One step of reweighted least squares",
            "Figures on shrinkage and generalisation error",
            _theory(evidence, pictures),
        ),
        ("encrypted", "Encrypted and clear", "Results", _encrypted(evidence)),
        ("performance", "Classification performance", "Figure on performance", _performance(evidence, pictures)),
        ("convergence", "One step, or convergence", "Results", _convergence(evidence)),
        ("times", "Timings and memory", "Table of times", _times(evidence)),
        ("trees", "Trees and depth", "Appendix on trees and depth", _trees(evidence, pictures)),
        ("fraction", "The stochastic fraction", "Figures on the fraction", _fraction(evidence, pictures)),
        ("study", "The case study", "Case study", _study(evidence)),
        ("statements", "Statement by statement", "", _statements(found)),
        ("method", "How it was computed", "", _method(evidence)),
    ]
    contents = "".join(f'<li><a href="#{key}">{title}</a></li>' for key, title, _, _ in sections)
    body = "".join(
        f'<section id="{key}"><h2>{title}{_label(label)}</h2>{content}</section>'
        for key, title, label, content in sections
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, '
        'initial-scale=1">'
        f"<title>Encrypted statistical machine learning, reproduced</title><style>{_STYLE}</style></head><body>"
        '<a class="skip" href="#data">Skip to the results</a><header class="top">'
        "<h1>Encrypted statistical machine learning: the evaluation, reproduced</h1>"
        '<p class="lead">Aslett, Esperança and Holmes (2015), sections 4 and 5, computed again with '
        f"encryptedstats</p></header><main>{_summary(evidence, found)}<nav "
        f"aria-label='Contents'><ol>{contents}</ol></nav>{body}</main>{_footer()}</body></html>\n"
    )


# -- pieces ------------------------------------------------------------------------------------------------------------------


def _label(label: str) -> str:
    return f' <span class="label">{html.escape(label)}</span>' if label else ""


def _missing(part: str) -> str:
    return f'<p class="missing">Not computed: run <code>python -m reproduction evaluation {part}</code>.</p>'


def _picture(pictures: dict[str, Path], name: str, alt: str, caption: str, *, wide: bool = False) -> str:
    if name not in pictures:
        return ""
    data = base64.b64encode(pictures[name].read_bytes()).decode()
    image = f'<img src="data:image/svg+xml;base64,{data}" alt="{html.escape(alt)}">'
    return f"<figure{' class=wide' if wide else ''}>{image}<figcaption>{caption}</figcaption></figure>"


def _table(
    caption: str, headers: Sequence[str], rows: Iterable[Sequence[Any]], *, wide: bool = False, text: int = 1
) -> str:
    """A table whose first ``text`` columns are words and the others numbers. Cells may be ``(text, class)``."""

    def cell(value: Any, place: int) -> str:
        value, extra = value if isinstance(value, tuple) else (value, "")
        value = _MINUS.sub("−", str(value))
        classes = " ".join(filter(None, ("n" if place >= text else "", extra)))
        kind = ' class="' + classes + '"' if classes else ""
        return f'<th scope="row">{value}</th>' if place == 0 else f"<td{kind}>{value}</td>"

    head = "".join(f'<th scope="col"{" class=n" if i >= text else ""}>{h}</th>' for i, h in enumerate(headers))
    lines = "".join(
        "<tr>" + "".join(cell(v, i) for i, (_, v) in enumerate(zip(headers, row, strict=True))) + "</tr>"
        for row in rows
    )
    return (
        f'<div class="scroll{" wide" if wide else ""}"><table><caption>{caption}</caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{lines}</tbody></table></div>"
    )


def _footer() -> str:
    when = datetime.now(timezone.utc).strftime("%d %B %Y")
    return (
        f"<footer><p>Made on {when} with Python {platform.python_version()} on {cores()} cores. All numbers are in "
        "<code>results/</code>, the splits in <code>splits/</code>, the pictures in <code>figures/</code>. Run the command "
        "again with the same folder to go on where it stopped.</p></footer>"
    )


# -- sections ----------------------------------------------------------------------------------------------------------------


def _summary(evidence: Evidence, found: list[Finding]) -> str:
    counts = Counter(finding.verdict for finding in found)
    items = "".join(
        f'<li class="{_css(verdict)}"><b>{counts[verdict]}</b>{verdict}</li>' for verdict in VERDICTS if counts[verdict]
    )
    means = evidence.mean_auc
    told = ""
    if len(means):
        told = (
            f" {len(means)} data sets, {evidence.n_splits('performance')} random splits of each, seven methods: mean AUC "
            f"over all sets is {means['CRF'].mean():.3f} for the completely random forest, {means['SNB-paired'].mean():.3f} "
            f"for the paired semi-parametric naive Bayes, {means['MNB'].mean():.3f} for multinomial naive Bayes, and "
            f"{means['RF'].mean():.3f} for a random forest that needs the data in the clear."
        )
    return (
        "<p>The paper proposes classifiers that can be fitted to encrypted tables, and reports how well and how fast they "
        f"work. Here every figure and table is computed again, and each of {len(found)} statements is held against what was "
        f"found.{told}</p>"
        f'<ul class="counts" aria-label="Statements by verdict">{items}</ul>'
    )


def _css(verdict: str) -> str:
    return "verdict " + verdict.replace(" ", "-")


def _statements(found: list[Finding]) -> str:
    rows = [
        (
            f"<code>{html.escape(finding.where)}</code>",
            html.escape(finding.says),
            html.escape(finding.ours),
            f'<span class="{_css(finding.verdict)}">{finding.verdict}</span>',
            html.escape(finding.why),
        )
        for finding in found
    ]
    rule = (
        f"<p>Mean AUCs closer than {EQUAL} are called equal, and farther apart than {CLEAR} clearly different. “In part” "
        "means that the direction is right and the extent is not, or that it holds for most cases. What was left out of "
        f"this run is “{NOT_COMPUTED}”.</p>"
    )
    return rule + _table(
        "<b>Statements.</b> What the paper states, in short, and what was found.",
        ("where", "the paper", "here", "verdict", "why we think so"),
        rows,
        wide=True,
        text=5,
    )


def _data(evidence: Evidence) -> str:
    table = evidence.catalogue
    if table.empty:
        return _missing("datasets")
    rows = []
    for _, row in table.iterrows():
        cells = [
            f"{int(row[c]):,}" if row[c] == row[f"paper_{c}"] else f"{int(row[c]):,} ({int(row[f'paper_{c}']):,})"
            for c in COUNTS
        ]
        rows.append(
            (
                row["name"],
                html.escape(row["full_name"]),
                *cells,
                int(row["bins"]),
                f"{100 * row['share_of_class_1']:.0f} %",
            )
        )
    note = (
        "<p>The last but one column is ours. Cut at quintiles, a variable with many equal values has fewer than five bins, "
        "because a cut that separates no rows is left out. The paper's count has five for each, so that some of its bins "
        "were empty, or ties were broken. A blind split at an empty bin is a split lost, and so our trees split a little "
        "more often.</p>"
    )
    return note + _table(
        "<b>Data sets.</b> Rows, complete rows, predictors, predictors with categories as 0/1 columns, and with quintiles "
        "as 0/1 columns too. The paper's number follows in brackets where it is another.",
        ("name", "", "obs₁", "obs₂", "vars₁", "vars₂", "vars₃", "bins", "class 1"),
        rows,
        wide=True,
        text=2,
    )


def _theory(evidence: Evidence, pictures: dict[str, Path]) -> str:
    if evidence.shrinkage.empty:
        return _missing("shrinkage")
    gap = float((evidence.generalisation["exact"] - evidence.generalisation["simulated"]).abs().max())
    return (
        "<p>For a 0/1 predictor the one-step slope is 2(n₁ − n₀)/n, which lies between −2 and 2 and has expectation 4p − 2. "
        "So large effects are shrunk, and what is predicted from n rows is off by a generalisation error. The paper "
        "approximates the latter by a cubic. Here it is also computed exactly, as a sum over the n + 1 possible counts; "
        f"simulations agree within {gap:.4f}.</p>"
        + _picture(
            pictures,
            "shrinkage",
            "Shrinkage of the one-step slope by beta, formula and simulation, and the expected slope itself",
            "<b>Shrinkage.</b> Left: expected difference of the one-step slope and β; line by the formula, points "
            "simulated. Right: the expected slope. It comes near ±2 for |β| of 5 and more.",
        )
        + _picture(
            pictures,
            "generalisation",
            "Generalisation error by p for several n with its limits, and the distance from the limit by n",
            "<b>Generalisation error.</b> Left: the paper's approximation for several n, its limit in green, and the exact "
            "limit, dashed; points are simulated, for n = 3 and n = 20. Right: how far the approximation is from its limit.",
        )
    )


def _encrypted(evidence: Evidence) -> str:
    table = evidence.encrypted
    if table.empty:
        return _missing("encrypted")
    rows = [
        (
            row["dataset"],
            row["method"],
            f"{int(row['rows']):,}",
            f"{int(row['equal_totals']):,} of {int(row['totals']):,}",
            f"{row['auc_encrypted']:.4f}",
            f"{row['auc_clear']:.4f}",
            f"{row['seconds']:.2f}",
            ("exact" if row["exact"] else "DIFFERS", _css("agrees" if row["exact"] else "differs")),
        )
        for _, row in table.iterrows()
    ]
    return (
        "<p>The figures below come from clear tables, as in the paper. That is the same circuit, read by another reader. To "
        "be sure, on a sample the training rows were encrypted, models were fitted to them and opened, and every total was "
        "held against its clear twin.</p>"
        + _table(
            f"<b>Encrypted fits of one split</b>, {int(table['security'].min())} bits of security. Totals are what a fit "
            "computes, all counts and sums.",
            ("data set", "method", "rows", "equal totals", "AUC, encrypted", "AUC, clear", "fit, s", ""),
            rows,
            text=2,
        )
    )


def _performance(evidence: Evidence, pictures: dict[str, Path]) -> str:
    if evidence.performance.empty:
        return _missing("performance")
    spread = evidence.performance.pivot_table(index="dataset", columns="method", values="auc", aggfunc="std")
    rows = []
    for name, means in evidence.mean_auc.iterrows():
        best = means.max()
        rows.append(
            (
                name,
                *(
                    (
                        f"{means[m]:.3f} ± {np.nan_to_num(spread.loc[name].get(m, 0)):.3f}",
                        "best" if means[m] > best - 5e-4 else "",
                    )
                    for m in METHODS
                ),
            )
        )
    rows.append(("mean", *(f"{evidence.mean_auc[m].mean():.3f}" for m in METHODS)))
    headers = ("", *(f"{m} *" if m in ENCRYPTABLE else m for m in METHODS))
    return (
        "<p>Completely random forests have 100 trees of 3 levels and the drawn stochastic fraction with M = 8. Bins are "
        "quintiles of the training rows. Logistic regression, Gaussian naive Bayes and random forests are scikit-learn's, "
        "on the data themselves.</p>"
        + _picture(
            pictures,
            "performance",
            "AUC of seven methods on every data set, one point for each split",
            f"<b>Performance.</b> AUC of {evidence.n_splits('performance')} stratified splits (80 % to train, 20 % to test), "
            "the same for all methods. A method with an asterisk can be computed encrypted.",
            wide=True,
        )
        + _table(
            "<b>Mean AUC</b> ± standard deviation over splits; the best of a row in bold.", headers, rows, wide=True
        )
    )


def _convergence(evidence: Evidence) -> str:
    table = evidence.convergence
    if table.empty:
        return _missing("convergence")
    means = table.pivot_table(index="dataset", columns="variant", values=["one_step", "converged", "ratio"], sort=False)
    variants = [v for v in ("paired", "unpaired", "centred") if ("ratio", v) in means.columns]
    rows = [
        (name, *(f"{row[value, v]:.3f}" for v in variants for value in ("one_step", "converged", "ratio")))
        for name, row in means.iterrows()
    ]
    headers = ("", *(text for v in variants for text in (f"{v}, one step", "converged", "ratio")))
    return (
        "<p>Run to convergence, every predictor has its maximum likelihood slope (at most 25 steps, as R's glm does). This "
        "cannot be computed encrypted. Rows are ranked by log-odds, not by probabilities, which round to 0 and 1 when "
        "predictors are many.</p>"
        + _table(
            "<b>Semi-parametric naive Bayes</b> after one step and after convergence, mean AUC.",
            headers,
            rows,
            wide=True,
        )
    )


def _times(evidence: Evidence) -> str:
    fits = evidence.fits
    if fits.empty:
        return _missing("times")
    rows = []
    for model, (fit, predict, memory) in PAPER.items():
        small, full = (_row_of(fits, model, n) for n in (100, 8192))
        some, many = (_row_of(evidence.predictions, model, n) for n in (100, 8192))
        rows.append(
            (
                model,
                f"{fit:g} s",
                _short(small, "fit_per_100"),
                _short(full, "fit_per_100"),
                f"{predict:g} s",
                _short(some, "predict_per_100"),
                _short(many, "predict_per_100"),
                f"{memory:,} KB",
                f"{small['memory_per_value'] / 1024:.1f} KB",
                f"{full['memory_per_value']:.0f} B",
            )
        )
    seconds = [
        (
            row["model"],
            f"{int(row['rows']):,}",
            f"{int(row['ring'])}, {int(row['modulus_bits'])} bits",
            *(f"{row[f'{what}_seconds']:.3f}" for what in ("plan", "key", "encrypt", "fit", "open", "predict")),
        )
        for _, row in fits.iterrows()
    ]
    return (
        "<p>The paper's seconds are per 100 rows and per predictor (SNB) or tree (forests), on 36 cores. Ours are given "
        "twice: for a table of only 100 rows, which wastes most of a ciphertext, and for 100 of 8192 rows that share it. "
        "Predicting means that model and rows both stay encrypted.</p>"
        + _table(
            "<b>Fitting, predicting, and the size of an encrypted value</b>: the paper's, and ours.",
            (
                "",
                "fit: paper",
                "100 rows",
                "of 8192",
                "predict: paper",
                "100 rows",
                "of 8192",
                "value: paper",
                "100 rows",
                "8192 rows",
            ),
            rows,
            wide=True,
        )
        + _table(
            "<b>Seconds</b> of a whole computation: ten variables of five bins, 50 trees. The last column is the "
            "owner's prediction with the opened model, in the clear.",
            ("", "rows", "ring, modulus", "plan", "keys", "encrypt", "fit", "open", "predict"),
            seconds,
        )
    )


def _row_of(table: Frame, model: str, rows: int) -> Frame:
    """The one row of a model and number of rows, or None."""
    found = table[(table["model"] == model) & (table["rows"] == rows)] if len(table) else table
    return found.iloc[0] if len(found) else None


def _short(row: Frame, name: str) -> str:
    """Seconds in milliseconds, three digits of them."""
    return "" if row is None else f"{1e3 * row[name]:.3g} ms"


def _trees(evidence: Evidence, pictures: dict[str, Path]) -> str:
    means = evidence.mean_auc_by_size
    if means.empty:
        return _missing("trees")
    sizes, depths = sorted({n for _, n in means.columns}), sorted({d for d, _ in means.columns})
    corners = [(d, n) for n in (sizes[0], sizes[-1]) for d in (depths[0], depths[len(depths) // 2], depths[-1])]
    rows = [(name, *(f"{row[corner]:.3f}" for corner in corners)) for name, row in means.iterrows()]
    return (
        "<p>Forests of every size and depth are cut out of one forest of 1000 trees of 6 levels: the first trees, and their "
        "first levels. M = 8 throughout.</p>"
        + _picture(
            pictures,
            "trees",
            "Mean AUC by number of trees for depths 1 to 6 on every data set",
            f"<b>Trees and depth.</b> Mean AUC over {evidence.n_splits('trees')} splits. Scales differ between data sets.",
            wide=True,
        )
        + _table(
            "<b>Mean AUC</b> of small and large, shallow and deep forests.",
            ("", *(f"{n} × {d} level{'' if d == 1 else 's'}" for d, n in corners)),
            rows,
            wide=True,
        )
    )


def _fraction(evidence: Evidence, pictures: dict[str, Path]) -> str:
    means = evidence.mean_auc_by_fraction
    if means.empty:
        return _missing("fraction")
    rows = [
        (name, f"{row[0]:.3f}", *(f"{row[m] - row[0]:+.4f}" for m in means.columns if m))
        for name, row in means.iterrows()
    ]
    cloud = "AUC with the stochastic fraction against AUC without, a panel for each M, one point for each split, "
    return (
        "<p>The votes of a leaf are multiplied by an estimate of how rare its rows are: M rows are drawn, and those before "
        "the first one inside the leaf are counted. The same forest and the same draws serve every M.</p>"
        + _picture(
            pictures,
            "fraction_iono",
            cloud + "iono",
            "<b>iono.</b> One point for each split; the mean change beside M.",
            wide=True,
        )
        + _picture(
            pictures,
            "fraction_bcw_p",
            cloud + "bcw_p",
            "<b>bcw_p.</b> One point for each split; the mean change beside M.",
            wide=True,
        )
        + _picture(
            pictures,
            "fraction_all",
            "Mean change of AUC by M, one line for each data set",
            f"<b>All data sets.</b> Mean change of AUC against M = 0, {evidence.n_splits('fraction')} splits.",
        )
        + _table(
            "<b>Mean AUC</b> without a fraction, and its change with one.",
            ("", "M = 0", *(f"M = {m}" for m in means.columns if m)),
            rows,
        )
    )


def _study(evidence: Evidence) -> str:
    if evidence.case_study.empty:
        return _missing("times")
    study: Frame = evidence.case_study.iloc[0]
    rows = [
        ("cores", "1,152", f"{int(study['cores'])}"),
        ("fit", "1 h 36 min", f"{study['fit_seconds']:.2f} s"),
        ("encrypted table", "13.8 GB", f"{study['table_bytes'] / 1e6:.1f} MB"),
        ("encrypted forest", "868 MB", f"{study['model_bytes'] / 1e3:.0f} kB"),
        ("ring, modulus", "8192, 224 bits", f"{int(study['ring'])}, {int(study['modulus_bits'])} bits"),
        ("security", "158 bits, by bounds of 2011", f"{int(study['security'])} bits, by the standard of 2018"),
        ("encrypt", "", f"{study['encrypt_seconds']:.2f} s"),
        ("open", "", f"{study['open_seconds']:.3f} s"),
        ("equal to the clear fit", "yes", "yes" if study["exact"] else "no"),
        ("shards add up", "yes", "yes" if study["shards_add_up"] else "no"),
    ]
    return _table(
        f"<b>100 trees of 3 levels over {int(study['rows'])} rows</b> of the original Wisconsin breast cancer data.",
        ("", "paper, 2015", "here"),
        rows,
    )


def _method(evidence: Evidence) -> str:
    rows = [
        (part, ", ".join(f"{name} = {html.escape(str(value))}" for name, value in settings.items()))
        for part, settings in evidence.parts().items()
    ]
    return (
        "<p>Splits are stratified by class and drawn from a seed; every method sees the same ones. Cut points, means and "
        "scales come from the training rows. Rows with missing values are left out. Categories have one 0/1 column a level. "
        "Logistic regression has a ridge of 10⁻⁴ on standardised columns, next to maximum likelihood; random forests have "
        "100 trees grown to the end.</p>"
        + _table("<b>Settings</b> that the results belong to.", ("part", ""), rows, text=2)
    )
