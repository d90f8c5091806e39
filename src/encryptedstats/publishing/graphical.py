"""Synthetic rows from a Markov random field of many pairs, fitted by the package ``mbi``.

``mbi`` needs JAX and Python 3.11, so it is an extra of its own and imported here alone. All of this
is post-processing of released counts.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from encryptedstats.models.pairs import mutual_information

NEEDS_MBI: Final = (
    "model='mbi' needs the package mbi and Python 3.11 or later: "
    "pip install 'encryptedstats[mbi]'; model='tree' needs neither"
)
Pair = tuple[int, int]
Tables = Mapping[Pair, NDArray[np.int64]]

_MOST_CELLS: Final = 100_000  # of the cliques of the junction tree: seconds, and a few megabytes
_TRIED: Final = 4  # pairs for each variable
_ITERATIONS: Final = 1000


def draw_from_field(
    tables: Tables, sizes: Sequence[int], first: Sequence[Pair], n: int, rng: np.random.Generator
) -> list[NDArray[np.int64]]:
    """Draw the bins of rows from a Markov random field.

    Parameters
    ----------
    tables : mapping
        The counts of each pair of variables, by their positions.
    sizes : sequence of int
        The bins of each variable.
    first : sequence of pairs
        Which pairs the field keeps in any case: a tree. Others follow by their mutual information
        while the junction tree stays small.
    n : int
        Rows to draw.
    rng : numpy.random.Generator

    Returns
    -------
    list of arrays
        The bins of each variable.
    """
    mbi, jax = _import_mbi()
    total = float(next(iter(tables.values())).sum())
    # Positions rather than names: the order of sets of strings differs between processes.
    domain = mbi.Domain(list(range(len(sizes))), list(sizes))
    with jax.enable_x64(True), _seed_numpy(int(rng.integers(1 << 32))):
        measured = [
            mbi.LinearMeasurement(tables[pair].astype(float).ravel(), pair)
            for pair in choose_pairs(mbi, domain, tables, first)
        ]
        field = mbi.estimation.MirrorDescent().estimate(
            domain, measured, known_total=total, iters=_ITERATIONS
        )
        rows = field.synthetic_data(rows=n).to_dict()
    return [np.asarray(rows[j], dtype=np.int64) for j in range(len(sizes))]


def choose_pairs(mbi: Any, domain: Any, tables: Tables, first: Sequence[Pair]) -> list[Pair]:
    """Return the pairs of a field: the first ones, and the strongest others that it can hold."""
    chosen = list(dict.fromkeys((min(pair), max(pair)) for pair in first))
    others = [pair for pair in tables if pair not in chosen]
    others.sort(key=lambda pair: -mutual_information(tables[pair]))
    for pair in others[: _TRIED * len(domain.attributes)]:
        tree, _ = mbi.junction_tree.make_junction_tree(domain, [*chosen, pair])
        if sum(domain.size(clique) for clique in tree.nodes) <= _MOST_CELLS:
            chosen.append(pair)
    return chosen


def _import_mbi() -> tuple[Any, Any]:
    """Import mbi and JAX, or raise an error that names the extra."""
    try:
        with warnings.catch_warnings():  # it advises on settings of JAX that are the caller's
            warnings.simplefilter("ignore")
            return import_module("mbi"), import_module("jax")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(NEEDS_MBI) from error


@contextmanager
def _seed_numpy(seed: int) -> Iterator[None]:
    """Seed NumPy's global generator, which mbi draws from, and restore it."""
    state = np.random.get_state()  # noqa: NPY002
    np.random.seed(seed)  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(state)  # noqa: NPY002
