"""What the tests of encrypted tables share: small keys, frames of all kinds, and the comparison
with the clear twin.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

import encryptedstats as es
from encryptedstats.storage import container
from encryptedstats.storage.container import Container
from encryptedstats.storage.objects import Store, open_store
from encryptedstats.tables import Column, Schema, Table
from encryptedstats.tables.manifest import MANIFEST

SLOTS = 1024
ALL = ("onehot", "ordinal", "centred")
KINDS = {
    "age": "continuous",
    "grade": "ordinal",
    "größe": "categorical",
    "before": "ordinal",
    "after": "ordinal",
}
GRADES = (1, 2, 3, 4)
#: Whatever a damaged or foreign table may answer with. Anything else is a bug.
REFUSALS = (es.FileFormatError, es.KeyMismatchError, FileNotFoundError)


def small_owner(scheme: str = "bgv", *, for_others: bool = False) -> es.Owner:
    """Keys so small that a column takes a fraction of a millisecond: 1024 slots, exact up to 6144,
    two products deep.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", es.InsecureParametersWarning)
        if for_others:  # results are flooded, which takes 65 bits more, and packs that keep them
            parameters = es.Parameters.from_bits(
                scheme, SLOTS, 4000, (50,) * 6, allow_insecure=True
            )
            return es.Owner(replace(parameters, kept_primes=5))
        return es.Owner(
            es.Parameters.from_bits(scheme, SLOTS, 4000, (40,) * 4, allow_insecure=True)
        )


def mixed_frame(n: int, seed: int = 0) -> pd.DataFrame:
    """All kinds of columns."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": rng.normal(50, 12, n),
            "grade": rng.choice(GRADES, n),
            "größe": rng.choice(["klein", "mittel", "groß 大"], n),
            "before": rng.integers(1, 4, n),
            "after": rng.integers(1, 4, n),
            "dose": rng.integers(-50, 60, n) / 100,
            "sick": rng.choice(["no", "yes", "vielleicht"], n),
        }
    )


@cache
def mixed_schema() -> Schema:
    """One schema for all of them."""
    schema = Schema.infer(mixed_frame(500, seed=99), target="sick", bins=3, kinds=KINDS).with_bins(
        "grade", levels=GRADES
    )
    return schema.with_kind("dose", "number", digits=2, low=-0.5, high=0.6)


def plain(owner: es.Owner, sealed: es.EncryptedTable) -> dict[str, list[int]]:
    """Every stored column, decrypted."""
    return {str(column): owner.open(sealed.values(column)).tolist() for column in sealed.columns()}


def clear(table: Table, encodings: tuple[str, ...] = ("onehot",)) -> dict[str, list[int]]:
    """The same of the clear twin."""
    return {str(column): table.values(column).tolist() for column in table.columns(encodings)}


def assert_twins(
    owner: es.Owner, sealed: es.EncryptedTable, table: Table, encodings: Any = ("onehot",)
) -> None:
    """Whatever can be asked of a table gives the same in the clear and under encryption."""
    twin = table.with_layout(sealed.layout)
    assert sealed.layout == twin.layout
    assert (len(sealed), sealed.n_rows) == (len(table), len(table))
    assert (sealed.schema, sealed.n_folds) == (table.public_schema, table.n_folds)
    assert sealed.has_classes == table.has_classes
    assert sealed.columns() == table.columns(encodings)
    assert plain(owner, sealed) == clear(table, encodings)
    assert all(sealed.bound(column) == table.bound(column) for column in sealed.columns())
    for position, variable in enumerate(table.public_schema.variables):
        if variable.kind == "number":
            _same(owner, [sealed.numbers(position)], [table.numbers(position)])
        elif "onehot" in encodings:
            assert len(sealed.bins(position)) == variable.n_bins
            _same(owner, sealed.bins(position)[-1:], table.bins(position)[-1:])
            ranges = [range(variable.n_bins // 2, variable.n_bins), {0, variable.n_bins - 1}]
            _same(
                owner,
                *([t.range_sum(position, chosen) for chosen in ranges] for t in (sealed, table)),
            )
        if variable.has_codes and variable.n_bins > 1:
            _same(
                owner,
                *([t.codes(position), t.codes(position, centred=True)] for t in (sealed, table)),
            )
    for fold in [None, *range(table.n_folds)] if table.has_classes else []:
        _same(owner, sealed.classes(fold), table.classes(fold))


def _same(owner: es.Owner, vectors: list[Any], expected: list[Any]) -> None:
    for vector, values in zip(vectors, expected, strict=True):
        decrypted = owner.open(vector)
        assert decrypted.dtype == np.int64
        np.testing.assert_array_equal(decrypted, values)
        assert abs(decrypted).max() <= vector.bound <= owner.parameters.max_value


def class_column(index: int, fold: int | None = None) -> Column:
    return Column("class", -1, index, fold)


def objects(url: Any) -> dict[str, bytes]:
    """All objects of a stored table."""
    store = open_store(url)
    return {name: store.read(name) for name in store.names()}


def put(url: Any, content: dict[str, bytes]) -> Store:
    """A store with exactly these objects."""
    store = open_store(url)
    for name in store.names():
        if name not in content:
            store.delete(name)
    for name, data in content.items():
        store.write(name, [data])
    return store


def rewritten_manifest(data: bytes, change: Callable[[Container], Container]) -> bytes:
    """A manifest as a forger would leave it: altered, with a hash that fits again."""
    return container.to_bytes(change(container.from_bytes(data)))


def manifest_of(url: Any) -> bytes:
    return open_store(url).read(MANIFEST)


def before_each_write(monkeypatch, store_type, happens) -> None:
    """Let something happen, with the name of the object, before one is written or made."""

    def patched(real):
        def call(self, name, data):
            happens(name)
            return real(self, name, data)

        return call

    for way in ("write", "create"):
        monkeypatch.setattr(store_type, way, patched(getattr(store_type, way)))
