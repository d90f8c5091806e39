"""What the tests of models share: all classifiers, random tables of all kinds, and what a fit
counts, counted by hand.
"""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from hypothesis import strategies as st
from numpy.typing import NDArray

import encryptedstats as es
from encryptedstats.tables import Variable
from encryptedstats.tables.schema.bins import code_values

SLOTS = 1024
FOREST = es.CompletelyRandomForest(n_trees=4, depth=2, random_state=3)
#: Every classifier, small.
MODELS = (
    FOREST,
    es.SemiparametricNB(),
    es.OneStepLogisticRegression(),
    es.MultinomialNB(),
    es.LinearMeans(),
    es.FisherDiscriminant(),
)
BINARY = (es.SemiparametricNB, es.OneStepLogisticRegression)


def small_owner(scheme: str = "bgv") -> es.Owner:
    """Keys so small that a fit takes milliseconds: 1024 slots, exact up to four millions, four
    products deep.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", es.InsecureParametersWarning)
        return es.Owner(
            es.Parameters.from_bits(scheme, SLOTS, 1 << 22, (52,) * 6, allow_insecure=True)
        )


def name(value: object) -> str:
    return type(value).__name__


def frame(n: int, seed: int = 0, classes: tuple[Any, ...] = ("no", "yes")) -> pd.DataFrame:
    """Rows whose class depends on the columns."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, len(classes), n)
    return pd.DataFrame(
        {
            "age": rng.normal(50, 10, n) + 12 * codes,
            "grade": rng.integers(1, 4, n) + codes,
            "sex": rng.choice(["f", "m", "x"], n),
            "ill": np.array(classes, dtype=object)[codes],
        }
    )


@cache
def schema(classes: tuple[Any, ...] = ("no", "yes")) -> es.Schema:
    """Three bins a variable."""
    kinds = {"age": "continuous", "grade": "continuous", "sex": "categorical"}
    return es.Schema.infer(
        frame(400, 99, classes), target="ill", bins=3, kinds=kinds, classes=classes
    )


def table(
    n: int = 60, seed: int = 0, classes: tuple[Any, ...] = ("no", "yes"), **options: Any
) -> es.Table:
    return schema(classes).table(frame(n, seed, classes), slots=SLOTS, **options)


# -- random tables
# ------------------------------------------------------------------------------------------------


def variable_of(kind: str, bins: int, missing: bool, position: int) -> Variable:
    """A variable of a kind; a number has no bins, but bounds that grow with them."""
    label = f"x{position}"
    if kind == "number":
        return Variable(label, kind, digits=0, low=-bins, high=2 * bins)
    if kind == "continuous":
        return Variable(label, kind, edges=tuple(range(bins - 1)), missing_bin=missing)
    return Variable(label, kind, levels=tuple(range(bins)), missing_bin=missing)


@st.composite
def schemas(draw: Any, kinds: tuple[str, ...], most_classes: int = 4) -> es.Schema:
    """Schemas of mixed kinds, 1 to 4 variables, 1 to 5 bins, with bins for missing values. At least
    one variable varies.
    """
    shapes = draw(
        st.lists(
            st.tuples(st.sampled_from(kinds), st.integers(1, 5), st.booleans()),
            min_size=1,
            max_size=4,
        )
    )
    variables = [variable_of(*shape, j) for j, shape in enumerate(shapes)]
    variables.append(variable_of("ordinal", 3, False, len(shapes)))
    return es.Schema(tuple(variables), "y", tuple(range(draw(st.integers(2, most_classes)))))


def random_table(known: es.Schema, n_rows: int, seed: int, weights: bool = False) -> es.Table:
    """Rows of a schema, whatever they are."""
    rng = np.random.default_rng(seed)
    data = []
    for v in known.variables:
        low, high = (v.low, v.high + 1) if v.kind == "number" else (0, v.n_bins)
        data.append(rng.integers(low, high, n_rows))
    extra = {"weights": rng.integers(0, 4, n_rows), "weight_bound": 4} if weights else {}
    return es.Table(
        known, tuple(data), rng.integers(0, known.n_classes, n_rows), slots=SLOTS, **extra
    )


# -- counting by hand
# ------------------------------------------------------------------------------------------------


def row_weights(rows: es.Table) -> NDArray[np.int64]:
    return np.ones(len(rows), dtype=np.int64) if rows.weights is None else rows.weights


def class_counts(rows: es.Table) -> NDArray[np.int64]:
    counts = np.zeros(rows.schema.n_classes, dtype=np.int64)
    np.add.at(counts, rows.class_codes, row_weights(rows))
    return counts


def leaf_counts(trees: Any, depth: int, rows: es.Table) -> NDArray[np.int64]:
    """Every row walks down every tree."""
    counts = np.zeros((len(trees), 2**depth, rows.schema.n_classes), dtype=np.int64)
    weights = row_weights(rows)
    for t, tree in enumerate(trees):
        node = np.zeros(len(rows), dtype=np.int64)
        for _ in range(depth):
            goes_left = np.empty(len(rows), dtype=bool)
            for k in np.unique(node):
                here = node == k
                goes_left[here] = [bin in tree[k].left for bin in rows.data[tree[k].variable][here]]
            node = np.where(goes_left, 2 * node + 1, 2 * node + 2)
        np.add.at(counts[t], (node - (2**depth - 1), rows.class_codes), weights)
    return counts


def predictors(rows: es.Table, *, centred: bool) -> NDArray[np.int64]:
    """The design matrix of the linear models, without an intercept: codes, numbers, and a 0/1
    column for every level.
    """
    columns = []
    for variable, data in zip(rows.schema.variables, rows.data, strict=True):
        if variable.kind == "number":
            columns.append(data)
        elif variable.kind == "categorical" or variable.missing_bin:
            columns += [data == k for k in range(variable.n_bins)]
        elif variable.n_bins > 1:
            columns.append(np.array(code_values(variable.n_bins, centred=centred))[data])
    return np.column_stack(columns).astype(np.int64)
