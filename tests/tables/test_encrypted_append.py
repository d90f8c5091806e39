"""Appending: rows of the same kind behind those that are there, in memory and where a table is
stored; nothing counts twice.
"""

from __future__ import annotations

import pytest
from encrypted_samples import (
    ALL,
    SLOTS,
    assert_twins,
    before_each_write,
    clear,
    mixed_frame,
    objects,
    plain,
)

import encryptedstats as es
from encryptedstats.errors import SchemaError
from encryptedstats.tables import Table
from error_codes import error

pytestmark = pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")


def tables(schema, *rows: int, **options) -> list[Table]:
    return [schema.table(mixed_frame(n, seed), **options) for seed, n in enumerate(rows)]


@pytest.mark.parametrize("place", ["memory", "folder", "fsspec"])
def test_rows_behind_rows(small, schema, tmp_path, place):
    url = {"memory": None, "folder": tmp_path / "t", "fsspec": f"memory://append-{small.key_id}/t"}[
        place
    ]
    parts = tables(schema, SLOTS + 3, 7, 2 * SLOTS)
    grown = small.encrypt(parts[0], out=url)
    for part in parts[1:]:
        grown = grown.append(small.encrypt(part))
    assert grown.layout.counts == (SLOTS, 3, 7, SLOTS, SLOTS)
    whole = Table.concat(parts)
    assert_twins(small, grown, whole)
    twin = whole.with_layout(grown.layout)
    assert [twin.layout.rows_of(chunk) for chunk in range(5)][1:3] == [
        (SLOTS, SLOTS + 3),
        (SLOTS + 3, SLOTS + 10),
    ]
    if url is not None:
        assert es.load(url).blocks.entries == grown.blocks.entries
        es.load(url).save(tmp_path / "copy")
        assert plain(small, es.load(tmp_path / "copy")) == clear(whole)


def test_a_stored_table_can_be_appended(keeper, schema, tmp_path):
    one, two = tables(schema, 20, SLOTS + 1)
    stored = keeper.encrypt(two, out=tmp_path / "two")
    in_memory = keeper.encrypt(one).append(es.load(tmp_path / "two"))
    assert_twins(keeper, in_memory, Table.concat([one, two]))
    assert not in_memory.info().to_dict()["stored"]
    both = keeper.encrypt(one, out=tmp_path / "one").append(stored)
    assert_twins(keeper, both, Table.concat([one, two]))
    assert plain(keeper, es.load(tmp_path / "one")) == clear(Table.concat([one, two]))
    assert plain(keeper, es.load(tmp_path / "two")) == clear(two)  # untouched


def test_all_encodings_weights_and_folds(keeper, schema):
    one, two = tables(schema, 20, 30, weights=None, folds=2)
    assert_twins(keeper, keeper.encrypt(one).append(keeper.encrypt(two)), Table.concat([one, two]))
    one, two = (
        schema.table(mixed_frame(20, s), weights=[s + 1] * 20, weight_bound=4) for s in range(2)
    )
    both = keeper.encrypt(one, encodings=ALL).append(keeper.encrypt(two, encodings=ALL))
    assert_twins(keeper, both, Table.concat([one, two]), ALL)


def test_computing_on_what_was_appended(small, schema):
    one, two = tables(schema, 30, 40)
    grown = small.encrypt(one).append(small.encrypt(two))
    same = sum(a * b for a, b in zip(grown.bins(3), grown.bins(4), strict=True))
    whole = Table.concat([one, two])
    expected = sum(a * b for a, b in zip(whole.bins(3), whole.bins(4), strict=True))
    assert small.open(same).tolist() == expected.tolist()
    with pytest.raises(ValueError, check=error("different-layouts")):
        _ = grown.bins(3)[0] + small.encrypt(whole).bins(3)[0]  # as many rows, but in other slots


def test_the_noise_is_that_of_the_noisier(keeper, schema):
    one, two = tables(schema, 5, 6)
    secret, public = keeper.encrypt(one), keeper.public_keys().encrypt(two).accept_others()
    for grown in (secret.append(public), public.append(secret)):
        assert not grown.facts.with_secret_key
        assert len(plain(keeper, grown)["class0"]) == 11
    assert secret.append(keeper.encrypt(two)).facts.with_secret_key


@pytest.mark.parametrize("stored", [False, True])
def test_blocks_count_once(keeper, schema, tmp_path, stored):
    one, two = (keeper.encrypt(t) for t in tables(schema, SLOTS + 1, 9))
    if stored:
        one.save(tmp_path / "t")
        one = es.load(tmp_path / "t")
    before = objects(tmp_path)
    for more in (one, two.append(one)):
        with pytest.raises(SchemaError, check=error("block-already-included")):
            one.append(more)
    assert objects(tmp_path) == before
    grown = one.append(two)
    with pytest.raises(SchemaError, check=error("block-already-included")):
        grown.append(two)


def test_what_does_not_fit_is_refused(keeper, stranger_keeper, schema, tmp_path):
    (table,) = tables(schema, 12)
    sealed = keeper.encrypt(table, out=tmp_path)
    before = objects(tmp_path)
    other_bins = schema.with_bins("age", edges=(10, 20, 30, 40))
    refusals = [
        (
            stranger_keeper.encrypt(table),
            es.KeyMismatchError,
            f"rows of key {stranger_keeper.key_id} cannot be appended",
        ),
        (
            keeper.encrypt(other_bins.table(mixed_frame(5))),
            SchemaError,
            "only rows of the same schema",
        ),
        (
            keeper.encrypt(schema.table(mixed_frame(5).drop(columns="sick"))),
            SchemaError,
            "with the same columns stored",
        ),
        (keeper.encrypt(table, encodings=ALL), SchemaError, "with the same columns stored"),
        (
            keeper.encrypt(schema.table(mixed_frame(5), folds=2)),
            SchemaError,
            "with the same columns stored",
        ),
        (
            keeper.encrypt(schema.table(mixed_frame(5), weights=[3] * 5)),
            SchemaError,
            "with the same columns stored",
        ),
        (
            table,
            TypeError,
            "only an EncryptedTable can be appended, not Table: encrypt the rows first",
        ),
        (mixed_frame(5), TypeError, "only an EncryptedTable can be appended, not DataFrame"),
    ]
    for more, kind, message in refusals:
        with pytest.raises(kind, match=message):
            sealed.append(more)
    assert objects(tmp_path) == before


def test_a_stored_table_that_went_on_is_not_cut_back(keeper, schema, tmp_path):
    """What was appended since it was opened stays; a table that was replaced is not
    written over.
    """
    parts = tables(schema, 10, 20, 30)
    one, two, three = (keeper.encrypt(part) for part in parts)
    one.save(tmp_path)
    opened = es.load(tmp_path)
    opened.append(two)
    grown = opened.append(three)
    assert plain(keeper, grown) == plain(keeper, es.load(tmp_path)) == clear(Table.concat(parts))
    with pytest.raises(SchemaError, check=error("block-already-included")):
        opened.append(two)
    assert len(es.load(tmp_path)) == 60
    replaced = es.load(tmp_path)
    keeper.encrypt(schema.table(mixed_frame(4))).save(tmp_path, overwrite=True)
    with pytest.raises(es.FileFormatError, check=error("table-replaced")):
        replaced.append(keeper.encrypt(schema.table(mixed_frame(5))))
    (tmp_path / "table.manifest").unlink()
    with pytest.raises(FileNotFoundError, match=r"table\.manifest is not there"):
        replaced.append(keeper.encrypt(schema.table(mixed_frame(5))))


def test_appending_is_all_or_nothing(keeper, schema, tmp_path, monkeypatch):
    one, two = tables(schema, SLOTS + 2, 2 * SLOTS + 2)
    stored, more = keeper.encrypt(one, out=tmp_path), keeper.encrypt(two)
    store, written = stored.blocks.store, []

    def full_disk(name):
        written.append(name)
        if len(written) == 3:
            raise OSError(28, "No space left on device")

    before_each_write(monkeypatch, type(store), full_disk)
    with pytest.raises(OSError, match="No space left"):
        stored.append(more)
    monkeypatch.undo()
    assert plain(keeper, es.load(tmp_path)) == clear(one)
    assert_twins(keeper, stored.append(more), Table.concat([one, two]))
    assert plain(keeper, es.load(tmp_path)) == clear(Table.concat([one, two]))
