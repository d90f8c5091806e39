"""A histogram tree in the clear, written from rows: nothing of the library chooses its splits."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

import encryptedstats as es


def frame(n: int, seed: int, classes: int = 2) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 4)).round(3)
    level = rng.choice(["a", "b", "c", "d"], n)
    score = x[:, 0] + x[:, 1] * x[:, 2] + (level == "b") + rng.normal(size=n)
    cuts = np.quantile(score, np.arange(1, classes) / classes)
    return pd.DataFrame({**{f"x{j}": x[:, j] for j in range(4)}, "level": level,
                         "y": np.searchsorted(cuts, score), "z": np.round(10 * score)})  # fmt: skip


def table(
    n: int = 300, seed: int = 0, classes: int = 2, target: str = "y", **options: Any
) -> es.Table:
    data, schema = _rows(n, seed, classes, target)
    return schema.table(data, **options)


@cache
def _rows(n: int, seed: int, classes: int, target: str) -> tuple[pd.DataFrame, es.Schema]:
    data = frame(n, seed, classes).drop(columns="z" if target == "y" else "y")
    return data, infer(data, target, bins=4)


def infer(data: pd.DataFrame, target: str, bins: int) -> es.Schema:
    """Return a schema of bins; the second predictor has bins and numbers, and z is a number."""
    kinds = {f"x{j}": "both" if j == 1 else "continuous" for j in range(4)}
    numbers = "keep" if target == "z" else "bins"
    return es.Schema.infer(data, target=target, bins=bins, kinds=kinds, numbers=numbers)


def sides(codes: Any, y: Any, n_bins: int, ordered: bool) -> list[tuple[int, ...]]:
    """Every left side that a tree may take, in the order in which equal ones are taken."""
    if ordered:
        return [tuple(range(k)) for k in range(1, n_bins)]
    present = sorted(set(codes.tolist()))
    if len(set(y.tolist())) > 2 and y.dtype != object:
        return [(k,) for k in present]
    mean = {k: Fraction(int(y[codes == k].sum()), int((codes == k).sum())) for k in present}
    ranked = sorted(present, key=lambda k: (mean[k], k))
    return [tuple(sorted(ranked[:size])) for size in range(1, len(ranked))]


def spread(y: Any, numeric: bool) -> Fraction:
    """Gini times rows, or the sum of squares about the mean."""
    n = len(y)
    if n == 0:
        return Fraction(0)
    if numeric:
        return Fraction(int((y * y).sum())) - Fraction(int(y.sum()) ** 2, n)
    return n - sum(Fraction(int((y == c).sum()) ** 2, n) for c in set(y.tolist()))


def grow(rows: es.Table, depth: int, min_rows: int = 1) -> dict[int, Any]:
    """Return the splits of a histogram tree by node: (variable, left bins), or None of a leaf."""
    numeric = rows.class_codes is None
    y = np.asarray(rows.data_of(-1) if numeric else rows.class_codes)
    y = y.astype(object) if numeric else y.astype(np.int64)
    found: dict[int, Any] = {}

    def split(node: int, inside: Any, level: int) -> None:
        own = y[inside]
        found[node] = None
        if level == depth or spread(own, numeric) == 0 or len(own) < 2:
            return
        best: Any = None
        for j, variable in enumerate(rows.schema.variables):
            codes = rows.codes_of(j)[inside]
            multi = not numeric and rows.public_schema.n_classes > 2
            lefts = (
                sides(codes, own, variable.n_bins, variable.kind != "categorical")
                if not multi or variable.kind != "categorical"
                else [(k,) for k in sorted(set(codes.tolist()))]
            )
            for left in lefts:
                goes = np.isin(codes, left)
                if min(goes.sum(), (~goes).sum()) < min_rows:
                    continue
                score = (
                    spread(own, numeric) - spread(own[goes], numeric) - spread(own[~goes], numeric)
                )
                if best is None or score > best[0]:
                    best = score, j, left
        if best is None:
            return
        found[node] = best[1], best[2]
        goes = np.isin(rows.codes_of(best[1]), best[2])
        split(2 * node + 1, inside & goes, level + 1)
        split(2 * node + 2, inside & ~goes, level + 1)

    split(0, np.ones(len(y), dtype=bool), 0)
    return found
