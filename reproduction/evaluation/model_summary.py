"""Mean AUC of the library's models beside scikit-learn's, for the documents.

``python -m reproduction.evaluation.model_summary OUTPUT`` reads the parts ``models`` and
``learned`` of an evaluation and writes ``benchmarks/results/models.json``, which ``python -m
benchmarks.figures`` shows. Only splits that every data set and model of a part has are counted.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

import pandas as pd

from encryptedstats import __version__
from encryptedstats.storage.files import write_atomic
from reproduction.evaluation.models import LEARNED, MODELS, OURS
from reproduction.evaluation.results import read_part

_PARTS: Final = {"models": MODELS, "learned": LEARNED}
RESULT: Final = Path(__file__).parents[2] / "benchmarks" / "results" / "models.json"


def summarise(output: Path) -> dict[str, Any]:
    """Return for every model its mean AUC, and how often it is within 0.01 of the best of ours."""
    kept = pd.concat(
        [_complete_splits(output, part, names) for part, names in _PARTS.items()],
        ignore_index=True,
    )
    means = kept.pivot_table(index="dataset", columns="model", values="auc")
    by_split = kept.groupby(["model", "split"])["auc"].mean()
    ours = means[[name for name in means if name in OURS]]
    near = ours.ge(ours.max(axis=1) - 0.01, axis=0).sum()
    order = [name for names in _PARTS.values() for name in names if name in means]
    models = [
        {
            "model": name,
            "ours": name in OURS,
            "splits": len(by_split[name]),
            "auc": float(means[name].mean()),
            "standard_error": float(by_split[name].std(ddof=1) / len(by_split[name]) ** 0.5),
            "near_the_best_of_ours": int(near[name]) if name in OURS else None,
        }
        for name in order
    ]
    return {
        "part": "models",
        "version": __version__,
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "results": {
            "splits": int(by_split.groupby("model").size().max()),
            "datasets": means[order].round(4).to_dict(orient="index"),
            "models": models,
        },
    }


def _complete_splits(output: Path, part: str, names: Collection[str]) -> pd.DataFrame:
    tables = read_part(output, part)
    if not tables:
        return pd.DataFrame(columns=["dataset", "split", "model", "auc"])
    rows = pd.concat([table.assign(dataset=name) for name, table in sorted(tables.items())])
    rows = rows[rows["model"].isin(list(names))]
    complete = rows.groupby("split")["auc"].count() == len(tables) * len(names)
    return rows[rows["split"].isin(complete.index[complete])]


def main(arguments: Sequence[str] | None = None) -> int:
    words = sys.argv[1:] if arguments is None else list(arguments)
    found = summarise(Path(words[0] if words else "out/reproduction"))
    write_atomic(RESULT, [json.dumps(found, indent=1).encode(), b"\n"])
    print(f"{RESULT.name}: {found['results']['splits']} splits")
    return 0


if __name__ == "__main__":
    sys.exit(main())
