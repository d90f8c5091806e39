"""Mean AUC of the library's models beside scikit-learn's, for the documents.

``python -m reproduction.evaluation.model_summary OUTPUT`` reads the part ``models`` of an
evaluation and writes ``benchmarks/results/models.json``, which ``python -m benchmarks.figures``
shows. Only splits that every data set and model has are counted.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

import pandas as pd

from encryptedstats import __version__
from encryptedstats.storage.files import write_atomic
from reproduction.evaluation.models import MODELS, N_OURS
from reproduction.evaluation.results import read_part

RESULT: Final = Path(__file__).parents[2] / "benchmarks" / "results" / "models.json"


def summarise(output: Path) -> dict[str, Any]:
    """Return for every model its mean AUC, and how often it is within 0.01 of the best of ours."""
    tables = read_part(output, "models")
    rows = pd.concat([table.assign(dataset=name) for name, table in sorted(tables.items())])
    rows = rows[rows["model"].isin(list(MODELS))]
    complete = rows.groupby("split")["auc"].count() == len(tables) * len(MODELS)
    splits = complete.index[complete]
    kept = rows[rows["split"].isin(splits)]
    means = kept.pivot_table(index="dataset", columns="model", values="auc")[list(MODELS)]
    spread = kept.groupby(["split", "model"])["auc"].mean().unstack()[list(MODELS)]
    ours = means.iloc[:, :N_OURS]
    near = ours.ge(ours.max(axis=1) - 0.01, axis=0).sum()
    models = [
        {
            "model": name,
            "ours": place < N_OURS,
            "auc": float(means[name].mean()),
            "standard_error": float(spread[name].std(ddof=1) / len(splits) ** 0.5),
            "near_the_best_of_ours": int(near[name]) if place < N_OURS else None,
        }
        for place, name in enumerate(MODELS)
    ]
    return {
        "part": "models",
        "version": __version__,
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "results": {
            "splits": len(splits),
            "datasets": means.round(4).to_dict(orient="index"),
            "models": models,
        },
    }


def main(arguments: Sequence[str] | None = None) -> int:
    words = sys.argv[1:] if arguments is None else list(arguments)
    found = summarise(Path(words[0] if words else "out/reproduction"))
    write_atomic(RESULT, [json.dumps(found, indent=1).encode(), b"\n"])
    print(f"{RESULT.name}: {found['results']['splits']} splits")
    return 0


if __name__ == "__main__":
    sys.exit(main())
