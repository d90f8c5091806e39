"""Adding votes or averaging leaf shares: what an opened forest had better do, on all data sets.

``python -m reproduction.evaluation.leaf_shares`` prints a table. The counts of the leaves are the
same for both, so one fit of every split serves all of them.
"""

from __future__ import annotations

from typing import Any, Final

import pandas as pd
from sklearn.metrics import accuracy_score, log_loss, roc_auc_score

from encryptedstats.models import CompletelyRandomForest
from reproduction.evaluation.methods import forest_seed
from reproduction.evaluation.samples import Sample, sample, store_splits
from reproduction.evaluation.settings import FRACTION, N_TREES, Settings

DEPTHS: Final = (3, 6)
WEIGHED: Final[tuple[int | str, ...]] = (0, FRACTION, "inverse")
SCORES: Final = ("auc", "accuracy", "log_loss")


def compare(settings: Settings) -> pd.DataFrame:
    """Means over the splits: a row for each data set, columns by score, depth and how leaves are
    weighed.
    """
    rows: list[dict[str, Any]] = []
    for name in settings.names:
        store_splits(settings, name)
        for split in range(settings.splits):
            one = sample(settings, name, split)
            rows += [
                {"name": name, **found}
                for depth in DEPTHS
                for found in _scores(one, depth, settings.seed)
            ]
    frame = pd.DataFrame(rows)
    means = frame.pivot_table(index="name", columns=["depth", "fraction"], values=list(SCORES))
    columns = [
        (score, depth, str(fraction))
        for score in SCORES
        for depth in DEPTHS
        for fraction in WEIGHED
    ]
    return means[columns].loc[list(settings.names)]


def _scores(one: Sample, depth: int, seed: int) -> list[dict[str, Any]]:
    forest = CompletelyRandomForest(
        N_TREES, depth, fraction=0, random_state=forest_seed(one, seed), repeats=True
    ).fit(one.train)
    found = []
    for fraction in WEIGHED:
        shares = forest.set_params(fraction=fraction).predict_proba(one.test)
        found.append(
            {
                "depth": depth,
                "fraction": str(fraction),
                "auc": roc_auc_score(one.y_test, shares[:, 1]),
                "accuracy": accuracy_score(one.y_test, shares.argmax(axis=1)),
                "log_loss": log_loss(one.y_test, shares, labels=[0, 1]),
            }
        )
    return found


def main() -> None:
    """Five splits of every data set."""
    means = compare(Settings(splits=5))
    for score in SCORES:
        table = pd.DataFrame(means.xs(score, axis=1))
        print(
            f"\n{score}\n{table.round(3).to_string()}\nmean "
            f"{[round(float(x), 4) for x in table.mean()]}"
        )


if __name__ == "__main__":
    main()
