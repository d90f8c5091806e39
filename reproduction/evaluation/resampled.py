"""The parts that repeat something over all splits of all data sets: performance, fraction, trees,
convergence.

Each is a function from a split to rows of results. What is there already is left out before the
work is dealt to processes, and rows are stored as they come.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from encryptedstats import __version__
from encryptedstats.machine import ordered_map
from encryptedstats.metrics import auc
from encryptedstats.models import CompletelyRandomForest
from encryptedstats.progress import progress_bar
from reproduction.evaluation.convergence import VARIANTS, compare_convergence
from reproduction.evaluation.counting import FastForest, drawn_fraction, shallower, share_of_votes
from reproduction.evaluation.methods import (
    METHODS,
    Scores,
    forest_scores,
    forest_seed,
    forest_weights,
    fraction_generator,
)
from reproduction.evaluation.models import FOREST_DEPTHS, LEARNED, MODELS
from reproduction.evaluation.results import ResultFile, ResultFolder
from reproduction.evaluation.samples import Sample, sample, store_splits
from reproduction.evaluation.settings import (
    BINS,
    DEPTH,
    DEPTHS,
    FRACTION,
    FRACTIONS,
    N_TREES,
    TEST_SHARE,
    TREE_COUNTS,
    Settings,
)

Row = dict[str, Any]
Split = tuple[str, int]  # data set and number


@dataclass(frozen=True)
class Part:
    """Work that is done for every split.

    Attributes
    ----------
    name : str
    keys : tuple of str
        Columns that tell the rows of a data set apart; the first is ``split``.
    wanted : tuple
        Values of the second key that a complete split has.
    constants : dict
        What the numbers depend on, beside the seed.
    compute : callable
        From a split, the wanted values that are missing, and the seed, to rows.
    last : tuple
        Values of further keys: rows that belong together are stored together, so that the last of
        them stands for all.
    """

    name: str
    keys: tuple[str, ...]
    wanted: tuple[Any, ...]
    constants: dict[str, Any]
    compute: Callable[[Sample, Sequence[Any], int], list[Row]]
    last: tuple[Any, ...] = ()


def performance(sample: Sample, methods: Sequence[str], seed: int) -> list[Row]:
    """AUC of the methods on a split (the figure on performance), and seconds of fit and
    prediction.
    """
    return _compare(sample, {method: METHODS[method] for method in methods}, seed, "method")


def models(sample: Sample, names: Sequence[str], seed: int) -> list[Row]:
    """AUC of the library's models and of scikit-learn's on a split."""
    return _compare(sample, {name: MODELS[name] for name in names}, seed, "model")


def learned(sample: Sample, names: Sequence[str], seed: int) -> list[Row]:
    """AUC of trees that learn their splits, on a split."""
    return _compare(sample, {name: LEARNED[name] for name in names}, seed, "model")


def _compare(
    sample: Sample, scorers: Mapping[str, Callable[[Sample, int], Scores]], seed: int, key: str
) -> list[Row]:
    _ = (
        sample.train,
        sample.test,
        sample.plain,
    )  # made when first asked for, and no method is to pay for the others
    rows = []
    for name, score in scorers.items():
        started = time.perf_counter()
        scores = score(sample, seed)
        seconds = time.perf_counter() - started
        rows.append(
            {
                "split": sample.split,
                key: name,
                "auc": auc(sample.y_test, scores),
                "seconds": round(seconds, 4),
            }
        )
    return rows


def fraction(sample: Sample, fractions: Sequence[int], seed: int) -> list[Row]:
    """AUC of one forest with drawn fractions of different M (the figures on the fraction)."""
    forest = CompletelyRandomForest(
        N_TREES, DEPTH, fraction=0, random_state=forest_seed(sample, seed), repeats=True
    ).fit(sample.train)
    leaves = forest.apply(sample.test)
    rows = []
    for m in fractions:
        scores = forest_scores(forest_weights(forest, m, fraction_generator(sample, seed)), leaves)
        rows.append({"split": sample.split, "fraction": m, "auc": auc(sample.y_test, scores)})
    return rows


def trees(sample: Sample, depths: Sequence[int], seed: int) -> list[Row]:
    """AUC of forests of every size and depth (the appendix on trees and depth); all are cut out of
    the largest.
    """
    deepest = max(DEPTHS)
    forest = FastForest.grow(
        sample.schema.public(), max(TREE_COUNTS), deepest, forest_seed(sample, seed)
    )
    counts, rng, n_rows = (
        forest.counts(sample.train),
        fraction_generator(sample, seed),
        len(sample.train),
    )
    weighted = {}
    for depth in DEPTHS:
        at_depth = shallower(counts, deepest - depth)
        drawn = drawn_fraction(at_depth.sum(axis=2), n_rows, FRACTION, rng)
        weighted[depth] = (at_depth * drawn[:, :, None]).astype(float)
    votes = {depth: np.zeros((len(sample.test), 2)) for depth in depths}
    rows = []
    for t, leaves in enumerate(forest.leaves(sample.test)):
        for depth in depths:
            votes[depth] += weighted[depth][t][leaves >> (deepest - depth)]
        if t + 1 in TREE_COUNTS:
            rows += [_tree_row(sample, depth, t + 1, votes[depth]) for depth in depths]
    return rows


def _tree_row(sample: Sample, depth: int, n_trees: int, votes: NDArray[np.float64]) -> Row:
    score = auc(sample.y_test, share_of_votes(votes))
    return {"split": sample.split, "depth": depth, "trees": n_trees, "auc": score}


def convergence(sample: Sample, variants: Sequence[str], seed: int) -> list[Row]:
    """AUC of semi-parametric naive Bayes after one step and after convergence."""
    return [{"split": sample.split, **compare_convergence(sample, variant)} for variant in variants]


_SPLITTING: Final = {"test_share": TEST_SHARE, "bins": BINS}
_FOREST: Final = {"trees": N_TREES, "depth": DEPTH}
RESAMPLED: Final = {
    part.name: part
    for part in (
        Part(
            "performance",
            ("split", "method"),
            tuple(METHODS),
            {
                **_SPLITTING,
                **_FOREST,
                "fraction": FRACTION,
                "random_forest_trees": 100,
                "logistic_ridge": 1e-4,
            },
            performance,
        ),
        Part("fraction", ("split", "fraction"), FRACTIONS, {**_SPLITTING, **_FOREST}, fraction),
        Part(
            "trees",
            ("split", "depth", "trees"),
            DEPTHS,
            {**_SPLITTING, "fraction": FRACTION, "tree_counts": TREE_COUNTS},
            trees,
            last=(max(TREE_COUNTS),),
        ),
        Part("convergence", ("split", "variant"), tuple(VARIANTS), _SPLITTING, convergence),
        Part(
            "models",
            ("split", "model"),
            tuple(MODELS),
            {**_SPLITTING, "trees": N_TREES, "depths": FOREST_DEPTHS, "library": __version__},
            models,
        ),
        Part(
            "learned",
            ("split", "model"),
            tuple(LEARNED),
            {**_SPLITTING, "trees": N_TREES, "library": __version__},
            learned,
        ),
    )
}


def run_resampled(part: Part, settings: Settings, show: bool | None = None) -> int:
    """Compute what is missing of a part; returns how many splits were computed."""
    folder = ResultFolder(settings.output, part.name, {**part.constants, "seed": settings.seed})
    files = {name: folder.file(name, part.keys) for name in settings.names}
    for name in settings.names:
        store_splits(settings, name)
    missing = _missing(part, settings, files)
    # It comes with scikit-learn, and has no types.
    threadpool_limits: Any = import_module("threadpoolctl").threadpool_limits

    def compute(job: Split) -> tuple[Split, list[Row]]:
        with threadpool_limits(1):  # the processes are the parallelism
            return job, part.compute(sample(settings, *job), missing[job], settings.seed)

    bar = progress_bar(part.name, len(missing), "splits", show)
    with bar as advance, closing(ordered_map(compute, iter(missing), settings.workers)) as done:
        for (name, _), rows in done:
            files[name].add(rows)
            advance(1)
    return len(missing)


def _missing(
    part: Part, settings: Settings, files: dict[str, ResultFile]
) -> dict[Split, list[Any]]:
    """What is absent of each split that is not complete."""
    jobs = [(name, split) for name in settings.names for split in range(settings.splits)]
    absent = {
        (name, split): [
            value for value in part.wanted if not files[name].has(split, value, *part.last)
        ]
        for name, split in jobs
    }
    return {job: values for job, values in absent.items() if values}
