"""Semi-parametric naive Bayes, paired, on full chunks of rows: milliseconds per 100 rows and
predictor, as the paper counts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from rich import box
from rich.table import Table

import encryptedstats as es
from benchmarks._common import Report, Settings, measure, part
from encryptedstats.machine import cores

PAPER = {"source": "Aslett, Esperança, Holmes (2015), 36 cores", "fit_s": 18.0, "predict_s": 7.8}
N_VARIABLES, QUICK_VARIABLES = 20, 2


@part("bayes")
def bayes(settings: Settings) -> Report:
    n_variables = QUICK_VARIABLES if settings.quick else N_VARIABLES
    few = Settings(settings.quick, 0.0, 2 if settings.quick else 3, 3)
    fitted = _timed(n_variables, few, predicts=False)
    predicted = _timed(n_variables, few, predicts=True)
    return Report(
        results={
            "predictors": n_variables,
            "fit": fitted,
            "predict": predicted,
            "fit_ms_per_100_rows_and_predictor": fitted["ms_per_100_rows_and_predictor"],
            "predict_ms_per_100_rows_and_predictor": predicted["ms_per_100_rows_and_predictor"],
            "paper": PAPER,
        },
        tables=[_table({"fit": fitted, "predict": predicted})],
        remarks=[
            f"One full chunk of rows, {n_variables} predictors of 5 bins, {cores()} cores; "
            "packed. Keys as the plan chooses them: "
            "to be opened after the fit; and to predict without opening anything. Answers are "
            "compared with those in the clear."
        ],
    )


def _timed(n_variables: int, settings: Settings, *, predicts: bool) -> dict[str, Any]:
    """A fit with keys for a fit; or the prediction by a model that stays encrypted, with keys for
    that.
    """
    rng, model = np.random.default_rng(1), es.SemiparametricNB(paired=True)
    schema = es.Schema.infer(_frame(rng, 2000, n_variables), target="y", bins=5)

    def planned(rows: int) -> es.Plan:
        more: dict[str, Any] = {"n_predict": rows, "encrypted_prediction": True} if predicts else {}
        return es.plan(model, schema, rows, encodings=("ordinal",), **more)

    slots = planned(8192).layout.slots
    plan, frame = planned(slots), _frame(rng, slots, n_variables)
    owner, table = es.Owner(plan), schema.table(frame)
    sealed = owner.encrypt(table, encodings=("ordinal",))
    model.fit(sealed, progress=False)
    if predicts:
        rows = schema.table(frame.drop(columns="y"))
        new = owner.encrypt(rows, encodings=("ordinal",))
        timing = measure(lambda: model.predict_votes(new, progress=False), settings)
        found: Any = owner.open(model.predict_votes(new, progress=False), schema=schema).to_numpy()
        expected: Any = es.SemiparametricNB(paired=True).fit(table).predict_votes(rows).to_numpy()
    else:
        timing = measure(lambda: model.fit(sealed, progress=False), settings)
        found, expected = (
            owner.open(model).totals_,
            es.SemiparametricNB(paired=True).fit(table).totals_,
        )
    if not np.array_equal(found, expected):
        raise RuntimeError(
            "the encrypted answers are not the plain ones: there is nothing to measure"
        )
    return {
        "rows": slots,
        "scheme": plan.parameters.scheme,
        "ring_degree": plan.parameters.ring_degree,
        "timing": timing.to_dict(),
        "ms_per_100_rows_and_predictor": 1e3 * timing.median / (slots / 100 * n_variables),
    }


def _frame(rng: np.random.Generator, n_rows: int, n_variables: int) -> pd.DataFrame:
    frame = pd.DataFrame({f"x{j}": rng.normal(size=n_rows) for j in range(n_variables)})
    return frame.assign(y=rng.integers(0, 2, n_rows))


def _table(steps: dict[str, dict[str, Any]]) -> Table:
    table = Table(
        title="Semi-parametric naive Bayes, paired",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    for heading in (
        "step",
        "rows",
        "scheme",
        "seconds",
        "ms per 100 rows\nand predictor",
        "paper, ms",
    ):
        table.add_column(heading, justify="left" if heading == "step" else "right")
    for step, found in steps.items():
        paper = 1e3 * float(str(PAPER[f"{step}_s"]))
        table.add_row(
            step,
            f"{found['rows']:,}",
            found["scheme"].upper(),
            f"{found['timing']['median_s']:.2f}",
            f"{found['ms_per_100_rows_and_predictor']:.3f}",
            f"{paper:,.0f}",
        )
    return table
