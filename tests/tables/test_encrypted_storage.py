"""Stored tables: round trips on every kind of storage, nothing in them that is the owner's, and
damage refused by name.

The contract of every damaged table: an error of a known kind that names the object, or the right
values; never anything else.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import struct
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from encrypted_samples import (
    ALL,
    REFUSALS,
    SLOTS,
    assert_twins,
    clear,
    manifest_of,
    mixed_frame,
    objects,
    plain,
    put,
    rewritten_manifest,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import encryptedstats as es
from effort import examples
from encryptedstats.crypto.engine import engine_for
from encryptedstats.storage import container
from encryptedstats.storage.objects import open_store
from encryptedstats.tables import EncryptedTable, Schema
from encryptedstats.tables.blocks import BlockRows, block_bytes, block_entry
from encryptedstats.tables.manifest import MANIFEST, keys_name
from error_codes import error

pytestmark = pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")
quick = settings(
    max_examples=examples(50),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
_numbers = itertools.count()


def memory_url() -> str:
    pytest.importorskip("fsspec")
    return f"memory://tables{next(_numbers)}/t"


# ----------------------------------------------------------------------------------------------
# round trips


@pytest.mark.parametrize("place", ["folder", "relative", "file", "memory"])
def test_save_and_load(small, schema, tmp_path, monkeypatch, place):
    monkeypatch.chdir(tmp_path)
    url = {
        "folder": tmp_path / "a",
        "relative": "b/c",
        "file": f"file://{tmp_path}/d",
        "memory": memory_url(),
    }[place]
    table = schema.table(mixed_frame(SLOTS + 9), weights=np.arange(SLOTS + 9) % 3, folds=2)
    sealed = small.encrypt(table, encodings=ALL)
    assert sealed.save(url) is None
    loaded = es.load(url)
    assert isinstance(loaded, EncryptedTable)
    assert loaded.facts == sealed.facts
    assert loaded.blocks.ids == sealed.blocks.ids
    monkeypatch.chdir("/")  # blocks are read when they are needed, wherever one is by then
    assert_twins(small, loaded, table, ALL)
    for index in range(2):
        np.testing.assert_array_equal(loaded.blocks.block(index), sealed.blocks.block(index))
    assert loaded.info().to_dict()["stored"] is True
    assert loaded.info().to_dict()["bytes"] == sum(
        len(d) for n, d in objects_at(loaded).items() if "blocks/" in n
    )


def objects_at(table: EncryptedTable) -> dict[str, bytes]:
    store = table.blocks.store
    return {name: store.read(name) for name in store.names()}


@pytest.mark.parametrize("place", ["folder", "memory"])
def test_encrypt_straight_into_a_store(small, schema, tmp_path, place):
    url = tmp_path / "t" if place == "folder" else memory_url()
    table = schema.table(mixed_frame(2 * SLOTS + 1))
    sealed = small.encrypt(table, out=url)
    assert_twins(small, sealed, table)
    assert_twins(small, es.load(url), table)
    assert sorted(objects(url)) == sorted(
        [*(entry.name for entry in sealed.blocks.entries), keys_name(small.key_id), MANIFEST]
    )


def test_save_moves_between_stores_and_onto_itself(keeper, schema, tmp_path):
    table = schema.table(mixed_frame(SLOTS + 1))
    first, second = tmp_path / "one", memory_url()
    keeper.encrypt(table).save(first)
    es.load(first).save(second)
    assert objects(second) == objects(first)
    es.load(second).save(second, overwrite=True)
    assert objects(second) == objects(first)
    assert_twins(keeper, es.load(second), table)


def test_a_table_is_not_overwritten_unasked(keeper, schema, tmp_path):
    one, other = (keeper.encrypt(schema.table(mixed_frame(9, seed))) for seed in (1, 2))
    one.save(tmp_path)
    before = objects(tmp_path)
    with pytest.raises(FileExistsError, check=error("already-exists")):
        other.save(tmp_path)
    with pytest.raises(FileExistsError, check=error("already-exists", "overwrite=True")):
        keeper.encrypt(schema.table(mixed_frame(9)), out=tmp_path)
    assert objects(tmp_path) == before
    other.save(tmp_path, overwrite=True)
    assert plain(keeper, es.load(tmp_path)) == plain(keeper, other)
    assert len(objects(tmp_path)) == 3  # the blocks of the first are gone


def test_overwriting_leaves_other_files_alone(keeper, schema, tmp_path):
    mine = [
        tmp_path / "blocks" / "notes.txt",
        tmp_path / "blocks" / "000000-diary",
        tmp_path / "data.csv",
    ]
    (tmp_path / "blocks").mkdir()
    for path in mine:
        path.write_text("mine")
    keeper.encrypt(schema.table(mixed_frame(9))).save(tmp_path)
    keeper.encrypt(schema.table(mixed_frame(9)), out=tmp_path, overwrite=True)
    assert all(path.read_text() == "mine" for path in mine)
    assert len(es.load(tmp_path)) == 9


def test_overwriting_by_another_key(keeper, stranger_keeper, schema, tmp_path):
    table = schema.table(mixed_frame(9))
    keeper.encrypt(table).save(tmp_path / "a")
    keeper.encrypt(table).save(tmp_path / "b")
    stranger_keeper.encrypt(table).save(tmp_path / "a", overwrite=True)
    assert es.load(tmp_path / "a").keys.key_id == stranger_keeper.key_id
    # A table that came without keys must not stand beside those of the table it replaces.
    assert sorted(path.name for path in (tmp_path / "a").glob("*.keys")) == [
        keys_name(stranger_keeper.key_id)
    ]
    (tmp_path / "a" / keys_name(stranger_keeper.key_id)).unlink()
    es.load(tmp_path / "a").save(tmp_path / "b", overwrite=True)
    with pytest.raises(es.KeyMismatchError, check=error("give-keys")):
        assert es.load(tmp_path / "b").keys
    assert not list((tmp_path / "b").glob("*.keys"))


# ----------------------------------------------------------------------------------------------
# keys and kinds


def test_keys_can_be_given(keeper, stranger_keeper, schema, tmp_path):
    table = schema.table(mixed_frame(9))
    keeper.encrypt(table).save(tmp_path)
    more = keeper.public_keys(rotations=[1])
    assert es.load(tmp_path, keys=more).keys is more
    assert_twins(keeper, es.load(tmp_path, keys=more), table)
    with pytest.raises(
        es.KeyMismatchError, check=error("other-key", keeper.key_id, stranger_keeper.key_id)
    ):
        es.load(tmp_path, keys=stranger_keeper.public_keys())
    with pytest.raises(TypeError, check=error("not-public-keys")):
        es.load(tmp_path, keys=keeper)
    (tmp_path / keys_name(keeper.key_id)).unlink()
    bare = es.load(tmp_path)
    assert len(bare) == 9
    with pytest.raises(es.KeyMismatchError, check=error("give-keys")):
        bare.values(bare.columns()[0])
    assert_twins(keeper, es.load(tmp_path, keys=keeper.public_keys()), table)


def test_keys_of_another_table_are_refused(keeper, stranger_keeper, schema, tmp_path):
    keeper.encrypt(schema.table(mixed_frame(9))).save(tmp_path)
    (tmp_path / keys_name(keeper.key_id)).unlink()
    stranger_keeper.public_keys().save(tmp_path / keys_name(keeper.key_id))
    loaded = es.load(tmp_path)
    with pytest.raises(
        es.KeyMismatchError, check=error("other-key", keeper.key_id, stranger_keeper.key_id)
    ):
        loaded.values(loaded.columns()[0])


def test_load_opens_files_by_what_they_are(keeper, schema, tmp_path):
    keeper.encrypt(schema.table(mixed_frame(9))).save(tmp_path / "t")
    keeper.public_keys().save(tmp_path / "keys")
    keeper.encrypt([1, 2]).save(tmp_path / "array")
    keeper.save(tmp_path / "owner.key")
    for prefix in ("", "file://"):
        assert es.load(f"{prefix}{tmp_path}/keys").key_id == keeper.key_id
        array = es.load(f"{prefix}{tmp_path}/array", keys=keeper.public_keys())
        assert keeper.open(array).tolist() == [1, 2]
        with pytest.raises(TypeError, check=error("no-public-keys")):
            es.load(f"{prefix}{tmp_path}/array")
        with pytest.raises(es.FileFormatError, check=error("secret-key-file")):
            es.load(f"{prefix}{tmp_path}/owner.key")
    for path in (tmp_path / "t" / MANIFEST, *(tmp_path / "t" / "blocks").iterdir()):
        with pytest.raises(es.FileFormatError, check=error("part-of-table")):
            es.load(path)
    (tmp_path / "evil").write_bytes(b"\x80\x04\x95\x1b\x00\x00\x00cos\nsystem\n(S'true'\ntR.")
    with pytest.raises(es.FileFormatError, check=error("foreign-file")):
        es.load(tmp_path / "evil")


@pytest.mark.parametrize("url", ["nowhere", "memory://nowhere/at/all"])
def test_no_table(url, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        FileNotFoundError,
        match=r"nowhere.*table.manifest is not there: no encrypted table lies at .*nowhere",
    ):
        es.load(url)
    (tmp_path / "file").write_bytes(b"1")
    with pytest.raises(FileNotFoundError, match=r"file/table\.manifest is not there"):
        EncryptedTable.load(tmp_path / "file")


# ---------------------------------------------------------------------------------------------
# nothing of the owner's

SECRET_FRAME = pd.DataFrame(
    {
        "Blutdruck-Säule": [101.375, 117.625, 133.875, 149.125, 163.3125] * 4,
        "Versicherung": [
            "allgemeine Kasse",
            "private 保険会社",
            "Versorgungsamt",
            "allgemeine Kasse",
            "Versorgungsamt",
        ]
        * 4,
        "Diagnose-Geheim": ["Bluthochdruck", "unauffällig"] * 10,
    }
)


def spellings(text: str) -> list[bytes]:
    return [
        text.encode(),
        text.encode("utf-16-le"),
        text.encode("latin-1", "ignore"),
        json.dumps(text)[1:-1].encode(),
    ]


@pytest.mark.parametrize("way", ["memory", "stored", "file"])
def test_no_names_levels_classes_or_edges(keeper, tmp_path, way):
    schema = Schema.infer(SECRET_FRAME, target="Diagnose-Geheim", bins=4)
    if way == "memory":
        keeper.encrypt(schema.table(SECRET_FRAME)).save(tmp_path / "t")
    elif way == "stored":
        keeper.encrypt(schema.table(SECRET_FRAME), out=tmp_path / "t")
    else:
        SECRET_FRAME.to_csv(tmp_path / "Geheime-Patienten.csv", index=False)
        keeper.encrypt_file(tmp_path / "Geheime-Patienten.csv", schema, tmp_path / "t")
    stored = objects(tmp_path / "t")
    everything = [*stored.values(), *(name.encode() for name in stored)]
    texts = [
        *schema.names,
        schema.target,
        *schema.classes,
        *schema["Versicherung"].levels,
        "Geheime-Patienten",
    ]
    texts += [word for text in texts for word in text.replace("-", " ").split() if len(word) > 7]
    edges = schema["Blutdruck-Säule"].edges
    assert len(edges) == 3
    wanted = [spelling for text in texts for spelling in spellings(text) if len(spelling) > 7]
    wanted += [repr(edge).encode() for edge in edges]
    wanted += [struct.pack(form, edge) for edge in edges for form in ("<d", ">d")]
    for data in everything:
        assert not [secret for secret in wanted if secret in data]
    # Four bytes occur in megabytes of random residues by chance, so these are looked for in all
    # that is not random.
    readable = [
        data[: data.index(b"}", 200)] if "blocks/" in name else data[:-32]  # without its hash
        for name, data in stored.items()
        if not name.endswith(".keys")
    ]
    for data in [*readable, *(name.encode() for name in stored)]:
        assert not [
            edge for edge in edges for form in ("<f", ">f") if struct.pack(form, edge) in data
        ]


def test_no_unkeyed_hash_of_plain_data(keeper, tmp_path):
    schema = Schema.infer(SECRET_FRAME, target="Diagnose-Geheim", bins=4)
    table = schema.table(SECRET_FRAME)
    keeper.encrypt(table, out=tmp_path)
    columns = [table.values(column) for column in table.columns()]
    plains = [
        b"".join(column.tobytes() for column in columns),
        np.column_stack(columns).tobytes(),
        b"".join(data.tobytes() for data in table.data),
        *(column.tobytes() for column in columns),
        *(np.pad(column, (0, SLOTS - len(column))).tobytes() for column in columns),
        SECRET_FRAME.to_csv(index=False).encode(),
        schema.to_json().encode(),
        schema.fingerprint().encode(),
    ]
    stored = objects(tmp_path)
    everything = [*stored.values(), *(name.encode() for name in stored)]
    for text in plains:
        for algorithm in ("sha256", "sha1", "md5", "blake2b"):
            digest = hashlib.new(algorithm, text).digest()
            for form in (digest[:12], digest[:12].hex().encode()):
                assert not any(form in data for data in everything)
    assert not any(schema.fingerprint()[:24].encode() in data for data in everything)


def test_hashes_are_keyed(keeper, stranger_keeper, schema, tmp_path):
    """The same rows have another id in every table and under every key: nobody can compare tables
    by their ids.
    """
    table = schema.table(pd.concat([mixed_frame(SLOTS)] * 2))
    ids = []
    for number, owner in enumerate((keeper, keeper, stranger_keeper)):
        ids += owner.encrypt(table, out=tmp_path / str(number)).blocks.ids
    assert len(set(ids)) == 6


def test_the_secret_key_is_not_inside(keeper, schema, tmp_path):
    keeper.save(tmp_path / "owner.key")
    secret = container.read(tmp_path / "owner.key").section("secret_key")
    keeper.encrypt(schema.table(mixed_frame(9)), out=tmp_path / "t")
    everything = b"".join(objects(tmp_path / "t").values())
    assert secret not in everything
    pieces = [secret[at : at + 16] for at in range(128, len(secret) - 16, 96)]
    assert len(pieces) > 100
    assert not [piece for piece in pieces if len(set(piece)) > 4 and piece in everything]


# ----------------------------------------------------------------------------------------------
# damage


@pytest.fixture(scope="module")
def sample(keeper):
    """A small stored table as a dictionary of objects, and what is in it."""
    frame = pd.DataFrame(
        {"a": np.arange(2 * SLOTS + 3) % 2, "y": np.arange(2 * SLOTS + 3) // 3 % 2}
    )
    schema = Schema.infer(frame, target="y")
    table = schema.table(frame)
    url = memory_url()
    keeper.encrypt(table, out=url)
    return objects(url), clear(table)


URL = "memory://damaged/t"


def everything_of(owner, url=URL) -> dict[str, list[int]]:
    """All that can be read of a table, in every way."""
    table = es.load(url)
    assert table.info().to_dict()["rows"] == len(table)
    values = plain(owner, table)
    for index in range(len(table.blocks.ids)):
        block = table.blocks.block(index)
        for column in range(len(table.facts.columns)):
            np.testing.assert_array_equal(block[column], table.blocks.column(index, column))
    return values


def refusal_of(read) -> str | None:
    """What a table was refused with; None if it was not. Anything but the known refusals is a
    failure.
    """
    try:
        read()
    except REFUSALS as error:
        return str(error)
    return None


def test_the_sample_is_whole(keeper, sample):
    put(URL, sample[0])
    assert everything_of(keeper) == sample[1]


@quick
@given(data=st.data())
def test_flipped_bytes(keeper, sample, data):
    content, _ = sample
    name = data.draw(st.sampled_from(sorted(content)))
    changed = bytearray(content[name])
    places = st.integers(0, len(changed) - 1) | st.integers(
        0, min(300, len(changed) - 1)
    )  # headers are short
    for place in data.draw(st.lists(places, min_size=1, max_size=3, unique=True)):
        changed[place] ^= data.draw(st.integers(1, 255))
    put(URL, {**content, name: bytes(changed)})
    with pytest.raises(REFUSALS) as caught:  # some way of reading finds it
        everything_of(keeper)
    assert name in str(caught.value) or name.rpartition("-")[2] in str(caught.value)


@quick
@given(data=st.data())
def test_objects_cut_short_or_with_more_behind(keeper, sample, data):
    content, _ = sample
    name = data.draw(st.sampled_from(sorted(content)))
    length = data.draw(st.integers(0, len(content[name]) - 1))
    shorter = content[name][:length]
    changed = data.draw(
        st.sampled_from(
            [shorter, content[name] + b"x", shorter + bytes(len(content[name]) - length - 1)]
        )
    )
    put(URL, {**content, name: changed})
    with pytest.raises(es.FileFormatError) as caught:
        everything_of(keeper)
    assert name in str(caught.value)


def test_missing_objects(keeper, sample):
    content, expected = sample
    for name in content:
        put(URL, {n: d for n, d in content.items() if n != name})
        if name == keys_name(keeper.key_id):
            with pytest.raises(es.KeyMismatchError, check=error("give-keys")):
                everything_of(keeper)
            continue
        with pytest.raises(FileNotFoundError) as caught:
            everything_of(keeper)
        assert f"{URL}/{name}" in str(caught.value)
    put(URL, {**content, "stray": b"1", "blocks/stray": b"2"})
    assert everything_of(keeper) == expected


def test_swapped_objects(keeper, sample):
    content, _ = sample
    for one, other in itertools.permutations(content, 2):
        put(URL, {**content, one: content[other]})
        with pytest.raises(es.FileFormatError) as caught:
            everything_of(keeper)
        assert one in str(caught.value)
        put(URL, {**content, one: content[other], other: content[one]})
        with pytest.raises(REFUSALS) as caught:
            everything_of(keeper)
        assert one in str(caught.value) or other in str(caught.value)


def test_blocks_of_another_table_or_key(keeper, stranger_keeper, sample):
    content, _ = sample
    blocks = sorted(name for name in content if "blocks/" in name)
    frame = pd.DataFrame({"a": np.arange(SLOTS) % 2, "y": np.arange(SLOTS) // 3 % 2})
    foreign = Schema.infer(frame, target="y").table(frame)
    for owner in (keeper, stranger_keeper):
        url = memory_url()
        owner.encrypt(foreign, out=url)
        (other,) = (data for name, data in objects(url).items() if "blocks/" in name)
        put(URL, {**content, blocks[0]: other})
        table = es.load(URL)
        for read in (lambda t=table: t.blocks.block(0), lambda t=table: t.values(t.columns()[0])):
            with pytest.raises(es.FileFormatError, check=error("block-not-listed", URL, blocks[0])):
                read()
        assert table.blocks.block(1).shape == (
            len(table.facts.columns),
            2,
            3,
            SLOTS,
        )  # the others are as good as before


def test_a_forged_block_of_another_key(keeper, stranger_keeper, sample):
    """Even where the manifest was made to list it, a whole block is known by its key."""
    content, _ = sample
    put(URL, content)
    table = es.load(URL)
    entry, shape, residues = table.blocks.entries[0], table.facts.shape, table.blocks.block(0)
    for key, rows in ((stranger_keeper.key_id, entry.rows), (keeper.key_id, entry.rows - 1)):
        data = block_bytes(residues, shape, rows=BlockRows(entry.id, rows, key))
        forged = replace(block_entry(data, entry.name, shape, key, ""), rows=entry.rows)
        entries = [forged.to_dict(), *(e.to_dict() for e in table.blocks.entries[1:])]
        manifest = rewritten_manifest(content[MANIFEST], with_section("blocks", entries))
        put(URL, {**content, entry.name: data, MANIFEST: manifest})
        with pytest.raises(es.FileFormatError, match=entry.name):
            es.load(URL).blocks.block(0)


def test_a_transparent_ciphertext_is_refused(keeper, sample):
    """Zeros for a ciphertext are no encryption: SEAL refuses them, and so do we, by name."""
    content, _ = sample
    put(URL, content)
    table = es.load(URL)
    entry, shape = table.blocks.entries[1], table.facts.shape
    residues = table.blocks.block(1).copy()
    residues[0] = 0
    data = block_bytes(residues, shape, rows=BlockRows(entry.id, entry.rows, keeper.key_id))
    entries = [e.to_dict() for e in table.blocks.entries]
    entries[1] = block_entry(data, entry.name, shape, keeper.key_id, "").to_dict()
    put(
        URL,
        {
            **content,
            entry.name: data,
            MANIFEST: rewritten_manifest(content[MANIFEST], with_section("blocks", entries)),
        },
    )
    table = es.load(URL)
    with pytest.raises(es.FileFormatError, match=f"block {entry.id}: .* transparent"):
        table.values(table.columns()[0])


def test_a_stale_manifest(keeper, sample):
    """An older manifest over newer blocks, and a table that was replaced under somebody who has it
    open.
    """
    content, _ = sample
    put(URL, content)
    opened = es.load(URL)
    frame = pd.DataFrame({"a": np.arange(9) % 2, "y": np.arange(9) % 2})
    keeper.encrypt(Schema.infer(frame, target="y").table(frame), out=URL, overwrite=True)
    name = opened.blocks.entries[0].name
    with pytest.raises(FileNotFoundError, match=f"{URL}/{name} is not there"):
        opened.values(opened.columns()[0])
    open_store(URL).write(MANIFEST, [content[MANIFEST]])
    with pytest.raises(FileNotFoundError, match=f"{URL}/{name} is not there"):
        everything_of(keeper)


# --------------------------------------------------------------------------------- manifests wi
# hashes that fit


def with_section(name, value):
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return lambda c: replace(c, sections={**c.sections, name: data})


def with_field(name, value):
    return lambda c: replace(c, fields={**c.fields, name: value})


def refused(keeper, content, change, message) -> None:
    put(URL, {**content, MANIFEST: rewritten_manifest(content[MANIFEST], change)})
    with pytest.raises(es.FileFormatError, match=message) as caught:
        es.load(URL)
    assert f"{URL}/{MANIFEST}" in str(caught.value)


def listed(content) -> list[dict]:
    return json.loads(container.from_bytes(content[MANIFEST]).section("blocks"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: replace(c, kind="unfinished table"), "holds 'unfinished table'"),
        (lambda c: replace(c, fingerprint="0" * 32), "do not fit its fingerprint"),
        (
            lambda c: replace(c, sections={k: v for k, v in c.sections.items() if k != "blocks"}),
            "no section 'blocks'",
        ),
        (
            lambda c: replace(c, sections={k: v for k, v in c.sections.items() if k != "schema"}),
            "no section 'schema'",
        ),
        (
            lambda c: replace(c, fields={k: v for k, v in c.fields.items() if k != "n_folds"}),
            "'n_folds' .* is missing",
        ),
        (with_field("weight_bound", 0), "impossible bound of weights"),
        (with_field("weight_bound", True), "'weight_bound' .* is missing or no int"),
        (
            with_field("weight_bound", 2),
            "a list of columns that does not fit",
        ),  # with weights, all classes are stored
        (with_field("n_folds", -1), "impossible bound of weights, number of folds or"),
        (with_field("n_dropped", -1), "number of rows that were left out"),
        (with_field("n_folds", 10**18), "more bins, classes or folds than columns"),
        (with_field("with_secret_key", 1), "'with_secret_key' .* is missing or no bool"),
        (with_field("parameters", {}), "impossible parameters"),
        (with_section("blocks", b"\xff"), "blocks of the file are not valid JSON"),
        (with_section("blocks", b"[" * 100_000), "blocks of the file are not valid JSON"),
        (with_section("blocks", b"9" * 10_000), "blocks of the file are not valid JSON"),
        (with_section("blocks", []), "no blocks are listed"),
        (with_section("blocks", {}), "blocks of the file are no list"),
        (with_section("blocks", [1]), "malformed entry of a block"),
        (with_section("columns", []), "a list of columns that does not fit|more bins"),
        (with_section("columns", ["class0", "v0.bin0"]), "a list of columns that does not fit"),
        (with_section("columns", ["v0.bin1", "class0"]), "a list of columns that does not fit"),
        (with_section("columns", ["v0.bin0", "v0.bin1", "class0", "class1"]), "a list of columns"),
        (with_section("columns", ["v0.bin0", "class0", "class0.fold0"]), "a list of columns"),
        (with_section("columns", ["v0.bin0"]), "impossible entry"),  # blocks have one column more
        (
            with_section("columns", ["v" + "9" * 5000 + ".bin0"]),
            "malformed schema or list of columns",
        ),
        (with_section("columns", [1]), "malformed list of columns"),
        (with_section("columns", "x"), "columns of the file are no list"),
        (with_section("schema", b"\xff"), "malformed schema"),
        (with_section("schema", {}), "malformed schema"),
    ],
)
def test_impossible_manifests(keeper, sample, change, message):
    refused(keeper, sample[0], change, message)


@pytest.mark.parametrize("n_bins", [3, 1 << 21, 10**12, 10**30])
@pytest.mark.parametrize("columns", [["v0.upto0", "class0"], ["v0.code", "v0.centred", "class0"]])
def test_more_bins_than_anybody_has_memory_for(keeper, sample, n_bins, columns):
    schema = json.loads(container.from_bytes(sample[0][MANIFEST]).section("schema"))
    schema["variables"][0].update(n_bins=n_bins, kind="ordinal")

    def change(c):
        return with_section("columns", columns)(with_section("schema", schema)(c))

    message = (
        "more bins, classes or folds than columns"
        if n_bins > 3 or "v0.upto0" in columns
        else "impossible entry"
    )
    refused(keeper, sample[0], change, message)


@pytest.mark.parametrize(
    "name", ["../x", "/etc/passwd", "blocks/../../x", "public.keys", "blocks/\x00", "C:\\x", ""]
)
def test_names_that_leave_the_folder(keeper, sample, name):
    content, _ = sample
    entries = listed(content)
    entries[1]["name"] = name
    refused(keeper, content, with_section("blocks", entries), "impossible entry of block")


def test_lists_of_blocks(keeper, sample):
    content, _ = sample
    entries = listed(content)
    refused(
        keeper, content, with_section("blocks", [*entries, entries[0]]), "a block is listed twice"
    )
    again = {**entries[0], "name": entries[0]["name"].replace("000000", "000009")}
    refused(keeper, content, with_section("blocks", [*entries, again]), "a block is listed twice")
    for field, value in (
        ("rows", 10**30),
        ("bytes", 2**64),
        ("start", 2**64),
        ("start", -1),
        ("rows", 0),
    ):
        refused(
            keeper,
            content,
            with_section("blocks", [{**entries[0], field: value}]),
            "impossible entry of block",
        )
    # A shorter list is a smaller table: no hash can tell. The rows that are listed are right.
    put(
        URL,
        {
            **content,
            MANIFEST: rewritten_manifest(content[MANIFEST], with_section("blocks", entries[1:])),
        },
    )
    values = everything_of(keeper)
    assert {key: column[SLOTS:] for key, column in sample[1].items()} == values


json_values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=6),
    st.sampled_from(
        ["../x", "v0", "v1", "ordinal", "number", "class9", "v0.bin9", "v0.number", "bfv", "onehot"]
    ),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


def paths_of(value, path=()):
    """Where something can be changed in a JSON value."""
    yield path
    pairs = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, inner in pairs:
        yield from paths_of(inner, (*path, key))


def changed_at(value, path, new, kind):
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    if len(path) == 1 and kind == "remove":
        del copy[path[0]]
    elif len(path) == 1 and kind == "repeat" and isinstance(copy, list):
        copy.insert(path[0], copy[path[0]])
    else:
        copy[path[0]] = changed_at(value[path[0]], path[1:], new, kind)
    return copy


@settings(
    max_examples=examples(150),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_manifests_with_anything_in_them(keeper, sample, data):
    """Whatever a manifest says, reading ends in a known refusal or in residues; it does not crash,
    hang or leave the folder.
    """
    content, _ = sample
    file = container.from_bytes(content[MANIFEST])
    part = data.draw(st.sampled_from(["blocks", "columns", "schema", "fields"]))
    value = dict(file.fields) if part == "fields" else json.loads(file.section(part))
    for _ in range(data.draw(st.integers(1, 2))):
        path = data.draw(st.sampled_from(list(paths_of(value))))
        value = changed_at(
            value,
            path,
            data.draw(json_values),
            data.draw(st.sampled_from(["set", "remove", "repeat"])),
        )
    as_fields = {"fields": value if isinstance(value, dict) else {}}
    file = replace(file, **as_fields) if part == "fields" else with_section(part, value)(file)
    if data.draw(st.booleans()):  # a forger can make the fingerprint fit, too
        try:
            fitting = es.Parameters.from_dict(file.fields["parameters"]).fingerprint
            file = replace(file, fingerprint=fitting)
        except (es.ParameterError, KeyError, TypeError):
            pass
    put(URL, {**content, MANIFEST: container.to_bytes(file)})

    def read() -> None:
        table = es.load(URL)
        assert table.info().to_dict()["rows"] == len(table)
        assert str(table.info())
        for column in table.columns():
            assert len(table.values(column)) == len(table)
        for index in range(len(table.blocks.ids)):
            table.blocks.block(index)

    try:
        refusal = refusal_of(read)
    except es.RowsByOthersError:  # the manifest says that others encrypted the rows
        return
    assert refusal is None or URL in refusal or "this table belongs to key" in refusal


@quick
@given(data=st.data())
def test_sections_with_any_bytes_in_them(keeper, sample, data):
    content, _ = sample
    file = container.from_bytes(content[MANIFEST])
    name = data.draw(st.sampled_from(sorted(file.sections)))
    section = bytearray(file.section(name))
    if data.draw(st.booleans()):
        section[data.draw(st.integers(0, len(section) - 1))] = data.draw(st.integers(0, 255))
    else:
        section = section[: data.draw(st.integers(0, len(section)))]
    put(URL, {**content, MANIFEST: container.to_bytes(with_section(name, bytes(section))(file))})

    def read() -> None:
        table = es.load(URL)
        for column in table.columns():
            table.values(column)

    assert URL in (refusal_of(read) or URL)


def test_parameters_of_the_manifest_and_of_the_keys_must_agree(keeper, sample):
    """With another plaintext modulus and a fitting fingerprint everything has the right size, and
    would decrypt to nonsense.
    """
    content, _ = sample

    def change(c):
        values = {**c.fields["parameters"], "terms": 17}
        changed = es.Parameters.from_dict(values)
        return replace(with_field("parameters", values)(c), fingerprint=changed.fingerprint)

    put(URL, {**content, MANIFEST: rewritten_manifest(content[MANIFEST], change)})
    table = es.load(URL)
    with pytest.raises(es.KeyMismatchError):
        table.values(table.columns()[0])
    assert engine_for(table.parameters).parameters.terms == 17


def test_manifest_is_small_and_public(keeper, schema, tmp_path):
    keeper.encrypt(schema.table(mixed_frame(9)), out=tmp_path)
    file = container.from_bytes(manifest_of(tmp_path))
    assert file.key_id == keeper.key_id
    assert json.loads(file.section("schema")) == json.loads(schema.public().to_json())
    known = {
        "version",
        "parameters",
        "weight_bound",
        "n_folds",
        "n_dropped",
        "with_secret_key",
        "schema_digest",
    }
    assert set(file.fields) == known
    assert set(listed({MANIFEST: manifest_of(tmp_path)})[0]) == {
        "id", "rows", "name", "bytes", "start", "sha256", "head_sha256", "digests_sha256", "seeded", "signature",
    }  # fmt: skip
