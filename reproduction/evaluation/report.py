"""The report: one HTML file that reads like the results section of a paper, pictures inside, made
from what results there are.

Here are the tables; ``report.html.j2`` says the rest.
"""

from __future__ import annotations

import base64
import platform
import re
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

import numpy as np

from encryptedstats.machine import cores
from encryptedstats.storage.files import write_atomic
from encryptedstats.words import size_text, time_text
from reproduction.evaluation.catalogue import COUNTS
from reproduction.evaluation.claims import CLEAR, EQUAL, NOT_COMPUTED, VERDICTS, findings
from reproduction.evaluation.evidence import Evidence, Frame
from reproduction.evaluation.figures import draw_all
from reproduction.evaluation.methods import ENCRYPTABLE, METHODS
from reproduction.evaluation.times import PAPER

REPORT: Final = "report.html"
_TEMPLATE: Final = "report.html.j2"
_MINUS: Final = re.compile(r"(?<![\w<>-])-(?=\d)")  # hyphens that are signs of numbers
Cell = str | tuple[str, str]  # a text, or a text and a class of it
Rows = list[Sequence[Cell]]


def write_report(output: Path) -> Path:
    """Draw all figures and write ``report.html`` from the results in a folder."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined
    )
    environment.filters |= {"css": _css, "signs": lambda text: _MINUS.sub("−", str(text))}
    page = environment.get_template(_TEMPLATE).render(_content(Evidence(output)))
    write_atomic(output / REPORT, [page.encode(), b"\n"])
    return output / REPORT


def _content(evidence: Evidence) -> dict[str, Any]:
    found = findings(evidence)
    counts = Counter(finding.verdict for finding in found)
    pictures = {
        name: base64.b64encode(path.read_bytes()).decode()
        for name, path in draw_all(evidence).items()
    }
    return {
        "found": found,
        "verdicts": [(verdict, counts[verdict]) for verdict in VERDICTS if counts[verdict]],
        "pictures": pictures,
        "splits": {part: evidence.n_splits(part) for part in ("performance", "trees", "fraction")},
        "means": _means(evidence),
        "data": _data(evidence),
        "gap": _gap(evidence),
        "encrypted": _encrypted(evidence),
        "security": "" if evidence.encrypted.empty else int(evidence.encrypted["security"].min()),
        "methods": ("", *(f"{m} *" if m in ENCRYPTABLE else m for m in METHODS)),
        "performance": _performance(evidence),
        **_convergence(evidence),
        "times": _times(evidence),
        "seconds": _seconds(evidence),
        **_trees(evidence),
        **_fraction(evidence),
        **_study(evidence),
        "equal": EQUAL,
        "clear": CLEAR,
        "not_computed": NOT_COMPUTED,
        "statements": [
            (f.where, f.says, f.ours, (f.verdict, _css(f.verdict)), f.why) for f in found
        ],
        "settings": [
            (part, ", ".join(f"{name} = {value}" for name, value in settings.items()))
            for part, settings in evidence.parts().items()
        ],
        "today": datetime.now(timezone.utc).strftime("%d %B %Y"),
        "python": platform.python_version(),
        "cores": cores(),
    }


def _css(verdict: str) -> str:
    return "verdict " + verdict.replace(" ", "-")


# -- tables
# ------------------------------------------------------------------------------------------------


def _means(evidence: Evidence) -> dict[str, Any] | None:
    means = evidence.mean_auc
    if not len(means):
        return None
    of = {"CRF": "CRF", "SNB": "SNB-paired", "MNB": "MNB", "RF": "RF"}
    return {
        "sets": len(means),
        **{name: f"{means[method].mean():.3f}" for name, method in of.items()},
    }


def _data(evidence: Evidence) -> Rows:
    rows: Rows = []
    for _, row in evidence.catalogue.iterrows():
        cells = [
            f"{int(row[c]):,}"
            if row[c] == row[f"paper_{c}"]
            else f"{int(row[c]):,} ({int(row[f'paper_{c}']):,})"
            for c in COUNTS
        ]
        rows.append(
            (
                row["name"],
                row["full_name"],
                *cells,
                str(int(row["bins"])),
                f"{100 * row['share_of_class_1']:.0f} %",
            )
        )
    return rows


def _gap(evidence: Evidence) -> str | None:
    if evidence.shrinkage.empty:
        return None
    return f"{(evidence.generalisation['exact'] - evidence.generalisation['simulated']).abs().max():.4f}"


def _encrypted(evidence: Evidence) -> Rows:
    return [
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
        for _, row in evidence.encrypted.iterrows()
    ]


def _performance(evidence: Evidence) -> Rows:
    if evidence.performance.empty:
        return []
    spread = evidence.performance.pivot_table(
        index="dataset", columns="method", values="auc", aggfunc="std"
    )
    rows: Rows = []
    for name, means in evidence.mean_auc.iterrows():
        texts = [
            f"{means[m]:.3f} ± {np.nan_to_num(spread.loc[name].get(m, 0)):.3f}" for m in METHODS
        ]
        best = [means[m] > means.max() - 5e-4 for m in METHODS]
        rows.append(
            (
                name,
                *((text, "best" if first else "") for text, first in zip(texts, best, strict=True)),
            )
        )
    return [*rows, ("mean", *(f"{evidence.mean_auc[m].mean():.3f}" for m in METHODS))]


def _convergence(evidence: Evidence) -> dict[str, Any]:
    table = evidence.convergence
    if table.empty:
        return {"variants": (), "convergence": []}
    means = table.pivot_table(
        index="dataset", columns="variant", values=["one_step", "converged", "ratio"], sort=False
    )
    variants = [v for v in ("paired", "unpaired", "centred") if ("ratio", v) in means.columns]
    rows = [
        (
            name,
            *(
                f"{row[value, v]:.3f}"
                for v in variants
                for value in ("one_step", "converged", "ratio")
            ),
        )
        for name, row in means.iterrows()
    ]
    headers = ("", *(text for v in variants for text in (f"{v}, one step", "converged", "ratio")))
    return {"variants": headers, "convergence": rows}


def _times(evidence: Evidence) -> Rows:
    if evidence.fits.empty:
        return []
    rows: Rows = []
    for model, (fit, predict, memory) in PAPER.items():
        small, full = (_row_of(evidence.fits, model, n) for n in (100, 8192))
        some, many = (_row_of(evidence.predictions, model, n) for n in (100, 8192))
        rows.append(
            (
                model,
                f"{fit:g} s",
                *(_short(row, "fit_per_100") for row in (small, full)),
                f"{predict:g} s",
                *(_short(row, "predict_per_100") for row in (some, many)),
                f"{memory:,} KB",
                f"{small['memory_per_value'] / 1024:.1f} KB",
                f"{full['memory_per_value']:.0f} B",
            )
        )
    return rows


def _seconds(evidence: Evidence) -> Rows:
    return [
        (
            row["model"],
            f"{int(row['rows']):,}",
            f"{int(row['ring'])}, {int(row['modulus_bits'])} bits",
            *(
                f"{row[f'{what}_seconds']:.3f}"
                for what in ("plan", "key", "encrypt", "fit", "open", "predict")
            ),
        )
        for _, row in evidence.fits.iterrows()
    ]


def _row_of(table: Frame, model: str, rows: int) -> Frame:
    """The one row of a model and number of rows, or None."""
    found = table[(table["model"] == model) & (table["rows"] == rows)] if len(table) else table
    return found.iloc[0] if len(found) else None


def _short(row: Frame, name: str) -> str:
    """Seconds in milliseconds, three digits of them."""
    return "" if row is None else f"{1e3 * row[name]:.3g} ms"


def _trees(evidence: Evidence) -> dict[str, Any]:
    means = evidence.mean_auc_by_size
    if means.empty:
        return {"corners": (), "trees": []}
    sizes, depths = sorted({n for _, n in means.columns}), sorted({d for d, _ in means.columns})
    corners = [
        (d, n)
        for n in (sizes[0], sizes[-1])
        for d in (depths[0], depths[len(depths) // 2], depths[-1])
    ]
    rows = [(name, *(f"{row[corner]:.3f}" for corner in corners)) for name, row in means.iterrows()]
    return {
        "corners": ("", *(f"{n} × {d} level{'' if d == 1 else 's'}" for d, n in corners)),
        "trees": rows,
    }


def _fraction(evidence: Evidence) -> dict[str, Any]:
    means = evidence.mean_auc_by_fraction
    if means.empty:
        return {"fractions": (), "fraction": []}
    rows = [
        (name, f"{row[0]:.3f}", *(f"{row[m] - row[0]:+.4f}" for m in means.columns if m))
        for name, row in means.iterrows()
    ]
    return {"fractions": ("", "M = 0", *(f"M = {m}" for m in means.columns if m)), "fraction": rows}


def _study(evidence: Evidence) -> dict[str, Any]:
    if evidence.case_study.empty:
        return {"study_rows": 0, "study": []}
    study: Frame = evidence.case_study.iloc[0]
    rows = [
        ("cores", "1,152", f"{int(study['cores'])}"),
        ("fit", "1 h 36 min", time_text(study["fit_seconds"])),
        ("encrypted table", "13.8 GB", size_text(int(study["table_bytes"]))),
        ("encrypted forest", "868 MB", size_text(int(study["model_bytes"]))),
        (
            "ring, modulus",
            "8192, 224 bits",
            f"{int(study['ring'])}, {int(study['modulus_bits'])} bits",
        ),
        (
            "security",
            "158 bits, by bounds of 2011",
            f"{int(study['security'])} bits, by the guidelines of 2024",
        ),
        ("encrypt", "", time_text(study["encrypt_seconds"])),
        ("open", "", time_text(study["open_seconds"])),
        ("equal to the clear fit", "yes", "yes" if study["exact"] else "no"),
        ("shards add up", "yes", "yes" if study["shards_add_up"] else "no"),
    ]
    return {"study_rows": int(study["rows"]), "study": rows}
