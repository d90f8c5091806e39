"""The check on a sample: models are fitted to encrypted rows, opened, and held against their clear
twins to the last count.

The figures come from clear fits, as in the paper. This is what entitles them to speak for encrypted
ones.
"""

from __future__ import annotations

import time
import warnings
from typing import Any, Final

import numpy as np
from sklearn.base import clone

from encryptedstats.crypto import Owner
from encryptedstats.metrics import auc
from encryptedstats.models import CompletelyRandomForest, MultinomialNB, SemiparametricNB
from encryptedstats.progress import progress_bar
from encryptedstats.tables import EncryptedTable, plan
from reproduction import datasets
from reproduction.evaluation.counting import FastForest
from reproduction.evaluation.methods import (
    forest_scores,
    forest_seed,
    forest_weights,
    fraction_generator,
)
from reproduction.evaluation.results import ResultFolder
from reproduction.evaluation.samples import Sample, sample, store_splits
from reproduction.evaluation.settings import BINS, DEPTH, FRACTION, N_TREES, TEST_SHARE, Settings

#: Small sets with continuous, ordinal and categorical variables.
CHECKED: Final = ("infl", "blood", "bcw_o", "haber", "heart", "mammo")
_SPLIT: Final = 0


def models(sample: Sample, seed: int) -> dict[str, Any]:
    """The models of the paper, as the figures use them."""
    return {
        "CRF": CompletelyRandomForest(
            N_TREES, DEPTH, fraction=0, random_state=forest_seed(sample, seed), repeats=True
        ),
        "SNB-paired": SemiparametricNB(paired=True),
        "SNB-unpaired": SemiparametricNB(paired=False),
        "MNB": MultinomialNB(),
    }


def check_sample(sample: Sample, seed: int, workers: int | None = None) -> list[dict[str, Any]]:
    """Fit every model to the encrypted and to the clear training rows of a split, and compare."""
    wanted = models(sample, seed)
    owner = Owner(plan(list(wanted.values()), sample.schema, len(sample.train)))
    table = owner.encrypt(sample.train.with_layout(owner.parameters.slots))
    return [
        _compare(sample, owner, table, name, model, seed, workers) for name, model in wanted.items()
    ]


def _compare(
    sample: Sample,
    owner: Owner,
    table: EncryptedTable,
    name: str,
    model: Any,
    seed: int,
    workers: int | None,
) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="constant predictors")
        started = time.perf_counter()
        sealed = clone(model).fit(table, workers=workers, progress=False)
        seconds = time.perf_counter() - started
        opened = owner.open(sealed, schema=sample.schema)
        clear = clone(model).fit(sample.train)
    pairs = list(zip(opened.totals_, clear.totals_, strict=True))
    equal = sum(a == b for a, b in pairs)
    return {
        "dataset": sample.data.name,
        "method": name,
        "rows": len(sample.train),
        "security": owner.parameters.security,
        "totals": len(pairs),
        "equal_totals": equal,
        "exact": equal == len(pairs) and _counts_agree(sample, clear),
        "auc_encrypted": auc(sample.y_test, _scores(opened, sample, seed)),
        "auc_clear": auc(sample.y_test, _scores(clear, sample, seed)),
        "seconds": round(seconds, 3),
    }


def _counts_agree(sample: Sample, model: Any) -> bool:
    """Whether the fast counts of the figures are those of the circuit; only forests have such."""
    if not isinstance(model, CompletelyRandomForest):
        return True
    fast = FastForest.grow(sample.schema.public(), model.n_trees, model.depth, model.random_state_)
    return bool(np.array_equal(fast.counts(sample.train), model.leaf_counts_))


def _scores(model: Any, sample: Sample, seed: int) -> Any:
    if isinstance(model, CompletelyRandomForest):
        weighted = forest_weights(model, FRACTION, fraction_generator(sample, seed))
        return forest_scores(weighted, model.apply(sample.test))
    if isinstance(model, SemiparametricNB):
        return model.predict_log_odds(sample.test)
    joint = model._log_joint(sample.test)
    return joint[:, 1] - joint[:, 0]


def checked_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """Which data sets are checked: the small ones among those asked for, or the
    smallest of them.
    """
    chosen = tuple(name for name in CHECKED if name in names)
    return chosen or (min(names, key=lambda name: datasets.info(name).n_rows_complete),)


def run_encrypted(settings: Settings, show: bool | None = None) -> int:
    """Check what was not checked yet; returns how many data sets were."""
    constants = {
        "trees": N_TREES,
        "depth": DEPTH,
        "bins": BINS,
        "test_share": TEST_SHARE,
        "seed": settings.seed,
    }
    file = ResultFolder(settings.output, "encrypted", constants).file(
        "encrypted", ("dataset", "method")
    )
    missing = [name for name in checked_names(settings.names) if not file.has(name, "MNB")]
    with progress_bar("encrypted", len(missing), "data sets", show) as advance:
        for name in missing:
            store_splits(settings, name)
            file.add(check_sample(sample(settings, name, _SPLIT), settings.seed, settings.workers))
            advance(1)
    return len(missing)
