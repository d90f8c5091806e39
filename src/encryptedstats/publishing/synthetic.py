"""Synthetic rows from released pairs: a table that can be shared, and how much it is worth.

The rows are drawn from the Chow-Liu tree of the noisy counts. That is post-processing of a release:
it costs no privacy beyond what the release has spent.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from encryptedstats.errors import ParameterError, SchemaError
from encryptedstats.statistics.pairs import PairsResult
from encryptedstats.tables.answers.results import TableResult
from encryptedstats.tables.schema.schema import Schema
from encryptedstats.tables.schema.variables import Variable

if TYPE_CHECKING:
    from encryptedstats.publishing.release import Release

_WIDTH: Final = 1.0  # of an outer bin, where there is one cut


def synthesize(
    release: Release, n_rows: int | None = None, random_state: int | None = None
) -> pd.DataFrame:
    """Draw synthetic rows from a release of ``es.Pairs``.

    Each variable is drawn given its parent in the Chow-Liu tree, so the rows keep the noisy counts
    of every variable and of the pairs along the tree. A number is drawn uniformly from its bin.

    Parameters
    ----------
    release : Release
        Of ``es.Pairs``, opened with the owner's schema.
    n_rows : int, optional
        As many as the release says that there are, by default.
    random_state : int, optional
        Seed of the draw; it is no secret.

    Returns
    -------
    DataFrame
        With the columns of the owner's table, the target last.
    """
    result, schema = _pairs_of(release)
    tables, names = _joint_tables(result, schema)
    rng = np.random.default_rng(random_state)
    n = result.n_rows if n_rows is None else n_rows
    if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 1:
        raise ParameterError(f"n_rows={n_rows!r}: 1 row or more", code="invalid-rows")
    codes = _draw_codes(tables, names, result.tree["parent"].items(), int(n), rng)
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
    0 where they are equal, 1 where no row is in the same bin. Both tables are public, so the
    comparison is.
    """
    result, schema = _pairs_of(release)
    tables, names = _joint_tables(result, schema)
    own = schema.table(rows)
    target = schema.target if schema.classes else None
    at = {variable.name: j for j, variable in enumerate(schema.variables)}
    codes = {
        name: np.asarray(own.class_codes if name == target else own.codes_of(at[name]))
        for name in names
    }
    lines: dict[str, list[float]] = {name: [] for name in names}
    margins = {}
    for (one, other), table in tables.items():
        drawn = np.zeros(table.shape)
        np.add.at(drawn, (codes[one], codes[other]), 1)
        for name, axis in ((one, 1), (other, 0)):
            margins[name] = _distance(table.sum(axis=axis), drawn.sum(axis=axis))
            lines[name].append(_distance(table, drawn))
    frame = pd.DataFrame(
        {
            "alone": margins,
            "in pairs": {name: float(np.mean(found)) for name, found in lines.items()},
            "worst pair": {name: max(found) for name, found in lines.items()},
        }
    )
    return TableResult(
        title="Synthetic rows beside the released counts",
        n_rows=len(rows),
        notes=("total variation distances between shares of rows",),
        table=frame,
    )


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


def _distance(one: NDArray[Any], other: NDArray[Any]) -> float:
    return float(np.abs(one / one.sum() - other / other.sum()).sum() / 2)
