"""Synthetic rows from released pairs: a table that can be shared, and how much it is worth.

The rows are drawn from the Chow-Liu tree of the noisy counts, or from a Markov random field of more
pairs. That is post-processing of a release: it costs no privacy beyond what the release has spent.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from encryptedstats.errors import ParameterError, SchemaError
from encryptedstats.models.pairs import AODE
from encryptedstats.publishing.graphical import draw_from_field
from encryptedstats.statistics.pairs import PairsResult
from encryptedstats.tables.answers.results import TableResult
from encryptedstats.tables.schema.schema import Schema
from encryptedstats.tables.schema.variables import Variable

if TYPE_CHECKING:
    from encryptedstats.publishing.release import Release

MODELS: Final = ("tree", "mbi")
_WIDTH: Final = 1.0  # of an outer bin, where there is one cut


def synthesize(
    release: Release,
    n_rows: int | None = None,
    random_state: int | None = None,
    model: str = "tree",
) -> pd.DataFrame:
    """Draw synthetic rows from a release of ``es.Pairs``.

    Parameters
    ----------
    release : Release
        Of ``es.Pairs``, opened with the owner's schema.
    n_rows : int, optional
        As many as the release says that there are, by default.
    random_state : int, optional
        Seed of the draw; it is no secret.
    model : "tree" or "mbi"
        "tree": each variable is drawn given its parent in the Chow-Liu tree, so the rows keep the
        noisy counts of every variable and of the pairs along the tree. "mbi": they also keep the
        pairs of the target and the strongest others, as far as a Markov random field can hold
        them; it is fitted by the package ``mbi`` (``pip install 'encryptedstats[mbi]'``). Both are
        made from the same noisy counts and cost nothing.

    Returns
    -------
    DataFrame
        With the columns of the owner's table, the target last. A number is drawn uniformly from its
        bin.
    """
    result, schema = _pairs_of(release)
    tables, names = _joint_tables(result, schema)
    rng = np.random.default_rng(random_state)
    n = result.n_rows if n_rows is None else n_rows
    if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 1:
        raise ParameterError(f"n_rows={n_rows!r}: 1 row or more", code="invalid-rows")
    if model not in MODELS:
        raise ParameterError(
            f"model={model!r}: one of {' and '.join(map(repr, MODELS))}", code="unknown-model"
        )
    edges = list(result.tree["parent"].items())
    draw = _draw_codes if model == "tree" else _draw_from_field
    codes = draw(tables, names, edges, int(n), rng)
    known = {variable.name: variable for variable in schema.variables}
    columns = {
        name: _draw_values(known[name], codes[name], rng)
        if name in known
        else pd.Series(schema.classes, dtype=object).to_numpy()[codes[name]]
        for name in names
    }
    return pd.DataFrame(columns).infer_objects()


def compare_synthetic(release: Release, rows: pd.DataFrame) -> TableResult:
    """Compare synthetic rows with the release that they were drawn from.

    Total variation distances of the shares in bins, of every variable and on average over pairs:
    0 where they are equal, 1 where no row is in the same bin. ``association`` is how far Cramér's V
    is from that of the release, on average over the pairs of a variable. Both tables are public, so
    the comparison is.
    """
    result, schema = _pairs_of(release)
    tables, names = _joint_tables(result, schema)
    asked = _schema_of_pairs(result, schema)
    own = asked.table(rows)
    target = schema.target if schema.classes else None
    at = {variable.name: j for j, variable in enumerate(asked.variables)}
    codes = {
        name: np.asarray(own.class_codes if name == target else own.codes_of(at[name]))
        for name in names
    }
    lines: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    margins = {}
    for (one, other), table in tables.items():
        drawn = np.zeros(table.shape)
        np.add.at(drawn, (codes[one], codes[other]), 1)
        found = _distance(table, drawn), abs(_cramer(table) - _cramer(drawn))
        for name, axis in ((one, 1), (other, 0)):
            margins[name] = _distance(table.sum(axis=axis), drawn.sum(axis=axis))
            lines[name].append(found)
    pairs = {name: np.array(found) for name, found in lines.items()}
    frame = pd.DataFrame(
        {
            "alone": margins,
            "in pairs": {name: found[:, 0].mean() for name, found in pairs.items()},
            "worst pair": {name: found[:, 0].max() for name, found in pairs.items()},
            "association": {name: found[:, 1].mean() for name, found in pairs.items()},
        }
    )
    return TableResult(
        title="Synthetic rows beside the released counts",
        n_rows=len(rows),
        notes=(
            "total variation distances between shares of rows; association: mean difference of "
            "Cramér's V",
        ),
        table=frame,
    )


def score_synthetic(
    release: Release, rows: pd.DataFrame, real: pd.DataFrame, n_folds: int = 5
) -> TableResult:
    """Score a classifier of synthetic rows on the real ones: for the owner alone.

    The areas under the ROC curve have no noise and are covered by no ledger: do not publish them.
    Totals of pairs do not give them, so there is no released version of this table.

    Parameters
    ----------
    release : Release
    rows : DataFrame
        Synthetic rows.
    real : DataFrame
        The owner's own rows.
    n_folds : int
        Of the cross-validation that the synthetic rows are compared with.

    Returns
    -------
    TableResult
        AUC on the real rows of AODE that is fitted to synthetic rows, to the released counts, and
        to real rows (cross-validated); with several classes the mean of each against the rest.
    """
    result, schema = _pairs_of(release)
    if not schema.classes:
        raise SchemaError(
            "a classifier is scored, and these rows have no classes", code="no-target"
        )
    unfitted = AODE(variables=result.question.variables)
    table = schema.table(real, folds=n_folds)
    shares = np.zeros((len(table), len(schema.classes)))
    for fold, fitted in enumerate(unfitted.fit_folds(table)):
        inside = table.fold_codes == fold
        shares[inside] = fitted.predict_proba(table)[inside]
    asked = _schema_of_pairs(result, schema)
    drawn = AODE().fit(asked.table(rows))
    found = {
        "synthetic rows": drawn.predict_proba(asked.table(real)),
        "released counts": result.fit_classifier(AODE()).predict_proba(table),
        f"real rows, {n_folds} folds": shares,
    }
    areas = {what: _mean_area(table.class_codes, scores) for what, scores in found.items()}
    return TableResult(
        title="AODE on the real rows",
        n_rows=len(table),
        notes=("computed from real rows without noise: do not publish it",),
        table=pd.DataFrame({"AUC": areas}).rename_axis("fitted to"),
    )


def _mean_area(classes: Any, shares: NDArray[np.float64]) -> float:
    return float(np.mean([roc_auc_score(classes == c, shares[:, c]) for c in np.unique(classes)]))


def _pairs_of(release: Release) -> tuple[PairsResult, Schema]:
    result, schema = release.result, release.source.schema
    if not isinstance(result, PairsResult):
        raise ParameterError(
            f"synthetic rows are drawn from a release of Pairs, and this is of "
            f"{release.source.question.name}: owner.release(...) the answer to es.Pairs()",
            code="not-pairs",
        )
    if not isinstance(schema, Schema):
        raise SchemaError(
            "synthetic rows need the names and levels of the columns: release with schema=",
            code="no-names",
        )
    return result, schema


def _schema_of_pairs(result: PairsResult, schema: Schema) -> Schema:
    """Return the schema of the variables that were asked for: synthetic rows have no others."""
    positions = result.question.pair_positions(schema.public())
    return replace(schema, variables=tuple(schema.variables[j] for j in positions))


def _joint_tables(
    result: PairsResult, schema: Schema
) -> tuple[dict[tuple[str, str], NDArray[np.int64]], list[str]]:
    """Return the counts of every pair of variables, the target included."""
    question = result.question
    names = [schema.variables[j].name for j in question.pair_positions(schema.public())]
    tables = {
        pair: result.counts(*pair).to_numpy(dtype=np.int64) for pair in combinations(names, 2)
    }
    if schema.classes and schema.target is not None:
        for name in names:
            other = next(one for one in names if one != name)
            by_class = result.counts(name, other, by_class=True)
            each = by_class.to_numpy().reshape(len(schema.classes), -1, by_class.shape[1])
            counts = list(each.sum(axis=2))
            tables[name, schema.target] = np.stack(counts, axis=1).astype(np.int64)
        names = [*names, schema.target]
    return tables, names


def _draw_codes(
    tables: dict[tuple[str, str], NDArray[np.int64]],
    names: list[str],
    edges: Any,
    n: int,
    rng: np.random.Generator,
) -> dict[str, NDArray[np.int64]]:
    edges = list(edges)
    codes: dict[str, NDArray[np.int64]] = {}
    for child, parent in edges:
        table = tables[parent, child] if (parent, child) in tables else tables[child, parent].T
        if parent not in codes:  # the root
            codes[parent] = _draw(table.sum(axis=1), n, rng)
        found = np.empty(n, dtype=np.int64)
        for value in np.unique(codes[parent]):
            rows = np.flatnonzero(codes[parent] == value)
            counts = table[value] if table[value].sum() else table.sum(axis=0)
            found[rows] = _draw(counts, len(rows), rng)
        codes[child] = found
    return {name: codes[name] for name in names}


def _draw_from_field(
    tables: dict[tuple[str, str], NDArray[np.int64]],
    names: list[str],
    edges: Any,
    n: int,
    rng: np.random.Generator,
) -> dict[str, NDArray[np.int64]]:
    at = {name: j for j, name in enumerate(names)}
    placed = {(at[one], at[other]): table for (one, other), table in tables.items()}
    sizes = {
        j: size for pair, table in placed.items() for j, size in zip(pair, table.shape, strict=True)
    }
    first = [(at[child], at[parent]) for child, parent in edges]
    codes = draw_from_field(placed, [sizes[j] for j in range(len(names))], first, n, rng)
    return dict(zip(names, codes, strict=True))


def _draw(counts: NDArray[np.int64], n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw bins in proportion to counts, each as often as expected up to one row."""
    shares = counts / counts.sum()
    positions = (rng.random() + np.arange(n)) / n
    found = np.minimum(np.searchsorted(np.cumsum(shares), positions), len(counts) - 1)
    return np.asarray(rng.permutation(found), dtype=np.int64)


def _draw_values(variable: Variable, codes: NDArray[np.int64], rng: np.random.Generator) -> Any:
    """Return a value for each bin: its level, or a number between its cuts."""
    n_bins = variable.n_bins - variable.missing_bin
    if variable.levels:
        levels = np.array([*variable.levels, None], dtype=object)
        return levels[np.minimum(codes, n_bins)]
    edges = np.array(variable.edges, dtype=float)
    width = float(np.median(np.diff(edges))) if len(edges) > 1 else _WIDTH
    ends = np.concatenate([[edges[0] - width], edges, [edges[-1] + width]])
    inside = np.minimum(codes, n_bins - 1)
    low, high = ends[inside], ends[inside + 1]
    decimals = max(_decimals(edge) for edge in edges)
    # A bin holds its upper cut and not its lower one; the same after rounding.
    step = 10.0**-decimals
    drawn = (
        high
        - np.floor(rng.random(len(codes)) * np.maximum(1, np.round((high - low) / step))) * step
    )
    values = np.round(drawn, decimals)
    if (codes >= n_bins).any():
        return np.where(codes >= n_bins, np.nan, values)
    return values if decimals else values.astype(np.int64)


def _decimals(edge: float) -> int:
    return len(f"{edge:.6f}".rstrip("0").partition(".")[2])


def _cramer(counts: NDArray[Any]) -> float:
    """Return Cramér's V of a cross table; 0 where a variable has rows in one bin only."""
    used = counts[counts.sum(axis=1) > 0][:, counts.sum(axis=0) > 0]
    least = min(used.shape) - 1
    if least < 1:
        return 0.0
    shares = used / used.sum()
    expected = shares.sum(axis=1, keepdims=True) * shares.sum(axis=0, keepdims=True)
    return float(np.sqrt(((shares - expected) ** 2 / expected).sum() / least))


def _distance(one: NDArray[Any], other: NDArray[Any]) -> float:
    return float(np.abs(one / one.sum() - other / other.sum()).sum() / 2)
