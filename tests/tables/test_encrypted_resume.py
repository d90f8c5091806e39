"""Interrupted encryption: no half table, nothing done twice, nothing mixed up when it goes on."""

from __future__ import annotations

import errno
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
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
from encryptedstats.storage import container
from encryptedstats.storage.objects import FolderStore, open_store
from encryptedstats.tables.blocks import block_id_of
from encryptedstats.tables.encryption import DRAFT
from encryptedstats.tables.manifest import MANIFEST, keys_name
from error_codes import error

pytestmark = pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")

ENCRYPT = """
import sys, time, warnings
warnings.simplefilter("ignore")
import encryptedstats as es
from encryptedstats.storage.objects import FolderStore
folder, workers, blocks = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
create, seen = FolderStore.create, []
def slow_create(self, name, data):  # a disk that stands still, so that there is a half-way
    seen.append(name)
    if sum(one.startswith("blocks/") for one in seen) > blocks:
        time.sleep(600)
    return create(self, name, data)
FolderStore.create = slow_create
owner = es.Owner.load(folder + "/owner.key")
schema = es.Schema.load(folder + "/schema.json")
owner.encrypt_file(folder + "/rows.csv", schema, folder + "/t", workers=workers)
"""


def blocks_of(folder: Path) -> dict[str, tuple[int, int]]:
    """The finished blocks: name, and which file it is and when it was written."""
    found = [p for p in (folder / "blocks").glob("*") if not p.name.endswith(".tmp")]
    return {p.name: (p.stat().st_ino, p.stat().st_mtime_ns) for p in found}


class Full(Exception):
    """A disk that is full, as an OSError would say it."""


@pytest.fixture
def stops_at(monkeypatch):
    """Make the store fail at the k-th block."""

    def patch(k: int, error: BaseException) -> None:
        seen = []

        def happens(name):
            if name.startswith("blocks/"):
                seen.append(name)
                if len(seen) == k:
                    raise error

        before_each_write(monkeypatch, FolderStore, happens)

    return patch


@pytest.mark.parametrize("workers", [1, 2])
def test_killed_half_way(keeper, schema, tmp_path, workers):
    frame = mixed_frame(20 * SLOTS + 11)[["before", "after", "dose", "sick"]]
    narrow = es.Schema(
        tuple(schema[name] for name in ("before", "after", "dose")), "sick", schema.classes
    )
    frame.to_csv(tmp_path / "rows.csv", index=False)
    narrow.save(tmp_path / "schema.json")
    keeper.save(tmp_path / "owner.key")
    command = [sys.executable, "-c", ENCRYPT, str(tmp_path), str(workers), "3"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    try:
        deadline = time.monotonic() + 600
        while len(blocks_of(tmp_path / "t")) < 3:
            assert process.poll() is None, process.stderr.read().decode()
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stderr.close()
    before = blocks_of(tmp_path / "t")
    assert 3 <= len(before) <= 3 * workers
    with pytest.raises(
        FileNotFoundError, match=r"no encrypted table lies at .*, or it was not finished"
    ):
        es.load(tmp_path / "t")
    (tmp_path / "t" / "blocks" / ".000099-x.0123.tmp").write_bytes(
        b"left over"
    )  # as of a write under way

    sealed = keeper.encrypt_file(tmp_path / "rows.csv", narrow, tmp_path / "t", workers=workers)
    after = blocks_of(tmp_path / "t")
    assert len(after) == 21
    assert {name: after[name] for name in before} == before  # the very same files
    assert not (tmp_path / "t" / DRAFT).exists()
    assert plain(keeper, es.load(tmp_path / "t")) == clear(narrow.table(frame))
    assert sealed.layout.counts == (SLOTS,) * 20 + (11,)


@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_full_disk(keeper, schema, tmp_path, monkeypatch, stops_at, k, workers):
    table = schema.table(mixed_frame(3 * SLOTS + 5))
    stops_at(k, OSError(errno.ENOSPC, "No space left on device"))
    with pytest.raises(OSError, match="No space left on device"):
        keeper.encrypt(table, out=tmp_path, workers=workers)
    monkeypatch.undo()
    assert not (tmp_path / MANIFEST).exists()
    assert (tmp_path / DRAFT).exists()
    before = blocks_of(tmp_path)
    assert len(before) == k - 1
    assert not list(tmp_path.rglob("*.tmp"))
    sealed = keeper.encrypt(table, out=tmp_path, workers=workers)
    after = blocks_of(tmp_path)
    assert {name: after[name] for name in before} == before
    assert plain(keeper, sealed) == plain(keeper, es.load(tmp_path)) == clear(table)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "blocks",
        keys_name(keeper.key_id),
        MANIFEST,
    ]


@pytest.mark.parametrize("which", ["draft", "keys", "manifest"])
def test_a_full_disk_at_the_other_objects(keeper, schema, tmp_path, monkeypatch, which):
    name = {"draft": DRAFT, "keys": keys_name(keeper.key_id), "manifest": MANIFEST}[which]
    table = schema.table(mixed_frame(SLOTS + 5))

    def happens(written):
        if written == name:
            raise OSError(errno.ENOSPC, "No space left on device")

    before_each_write(monkeypatch, FolderStore, happens)
    with pytest.raises(OSError, match="No space left on device"):
        keeper.encrypt(table, out=tmp_path)
    monkeypatch.undo()
    with pytest.raises(FileNotFoundError, match="was not finished"):
        es.load(tmp_path)
    before = blocks_of(tmp_path)
    assert len(before) == (0 if name == DRAFT else 2)
    assert plain(keeper, keeper.encrypt(table, out=tmp_path)) == clear(table)
    if before:
        assert blocks_of(tmp_path) == before


def test_ctrl_c(keeper, schema, tmp_path, monkeypatch, stops_at):
    table = schema.table(mixed_frame(2 * SLOTS))
    stops_at(2, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        keeper.encrypt(table, out=tmp_path, workers=2)
    monkeypatch.undo()
    before = blocks_of(tmp_path)
    assert len(before) == 1
    assert plain(keeper, keeper.encrypt(table, out=tmp_path)) == clear(table)
    assert before.items() <= blocks_of(tmp_path).items()


@pytest.fixture
def unfinished(keeper, schema, tmp_path, monkeypatch, stops_at):
    """A folder where two of three blocks of this table were finished."""
    table = schema.table(mixed_frame(2 * SLOTS + 9))
    return interrupted(keeper, table, tmp_path / "t", monkeypatch, stops_at), table


def interrupted(
    owner: es.Owner, table: es.Table, folder: Path, monkeypatch, stops_at, **options: Any
) -> Path:
    """The folder, after an encryption that broke off at the third block."""
    stops_at(3, Full())
    with pytest.raises(Full):
        owner.encrypt(table, out=folder, **options)
    monkeypatch.undo()
    assert len(blocks_of(folder)) == 2
    return folder


def test_going_on_with_something_else_is_refused(keeper, stranger_keeper, schema, unfinished):
    folder, table = unfinished
    before = objects(folder)
    cure = "unfinished-table"
    others = [
        (stranger_keeper, table, {}),
        (keeper.public_keys(), table, {}),
        (keeper, table, {"encodings": ALL}),
        (keeper, schema.with_bins("age", edges=(1, 2, 3, 4)).table(mixed_frame(9)), {}),
        (keeper, schema.table(mixed_frame(9), folds=2), {}),
        (keeper, schema.table(mixed_frame(9), weights=[2] * 9), {}),
        (keeper, schema.table(mixed_frame(9).drop(columns="sick")), {}),
    ]
    for owner, other, options in others:
        with pytest.raises(es.FileFormatError, check=error(cure)):
            owner.encrypt(other, out=folder, **options)
    assert objects(folder) == before
    for owner, other, options in others:
        sealed = owner.encrypt(other, out=folder, overwrite=True, **options)
        who = keeper if owner is not stranger_keeper else stranger_keeper
        assert plain(who, es.load(folder, by_others=True)) == clear(
            other, options.get("encodings", ("onehot",))
        )
        assert len(blocks_of(folder)) == len(sealed.blocks.ids)


def test_other_cut_points_cannot_be_mixed_in(keeper, schema, unfinished):
    """As many bins, so all that is public is the same; the owner's digest of the schema tells them
    apart.
    """
    folder, table = unfinished
    before = blocks_of(folder)
    moved = schema.with_bins("age", edges=[edge + 1 for edge in schema["age"].edges])
    assert moved.public() == schema.public()
    other = moved.table(mixed_frame(2 * SLOTS + 9))
    assert clear(other) != clear(table)
    with pytest.raises(es.FileFormatError, check=error("unfinished-table")):
        keeper.encrypt(other, out=folder)
    assert blocks_of(folder) == before
    sealed = keeper.encrypt(other, out=folder, overwrite=True)
    assert_twins(keeper, sealed, other)
    assert not before.keys() & blocks_of(folder).keys()


def test_other_rows_cannot_be_mixed_in(keeper, schema, unfinished):
    """A file that was mended in its second chunk: the first block stays, the second is
    made anew.
    """
    folder, _ = unfinished
    before = blocks_of(folder)
    frame = mixed_frame(2 * SLOTS + 9)
    frame.loc[SLOTS + 5, "before"] = (
        4 - frame.loc[SLOTS + 5, "before"] if frame.loc[SLOTS + 5, "before"] != 2 else 1
    )
    table = schema.table(frame)
    assert plain(keeper, keeper.encrypt(table, out=folder)) == clear(table)
    assert len(before.items() & blocks_of(folder).items()) == 1
    assert len(blocks_of(folder)) == 3


def test_the_same_rows_at_another_place_are_other_blocks(keeper, schema, unfinished):
    """Rows that moved by a chunk keep neither their names nor their ids."""
    folder, _ = unfinished
    before = blocks_of(folder)
    table = schema.table(mixed_frame(2 * SLOTS + 9))[SLOTS:]
    assert plain(keeper, keeper.encrypt(table, out=folder)) == clear(table)
    assert not before.items() & blocks_of(folder).items()


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "swap", "missing"])
def test_damaged_blocks_are_made_again(keeper, unfinished, damage):
    folder, table = unfinished
    first, second = sorted(blocks_of(folder))
    path, other = folder / "blocks" / first, folder / "blocks" / second
    data = path.read_bytes()
    if damage == "missing":
        path.unlink()
    elif damage == "swap":
        path.write_bytes(other.read_bytes())
        other.write_bytes(data)
    else:
        path.write_bytes(
            {
                "flip": data[:5000] + bytes([data[5000] ^ 1]) + data[5001:],
                "cut": data[:-9],
                "empty": b"",
            }[damage]
        )
    keeper.encrypt(table, out=folder)
    assert plain(keeper, es.load(folder)) == clear(table)


def relabelled(path: Path, data: bytes, **fields: Any) -> None:
    """Put an object there under the id of its new name, as anybody who can write to the storage
    can; all hashes fit.
    """
    block = container.from_bytes(data)
    own = {"id": block_id_of(f"blocks/{path.name}"), **fields}
    path.write_bytes(container.to_bytes(replace(block, fields={**block.fields, **own})))


@pytest.mark.parametrize(
    "attack", ["swapped", "doubled", "doubled, fewer rows", "fewer rows", "of another table"]
)
def test_the_owner_signs_no_block_that_was_exchanged_or_relabelled(
    keeper, schema, unfinished, tmp_path, monkeypatch, stops_at, attack
):
    """Who holds the storage between two runs has whole blocks of the owner to play with, and no
    key.
    """
    folder, table = unfinished
    first, second = (folder / "blocks" / name for name in sorted(blocks_of(folder)))
    one, two = first.read_bytes(), second.read_bytes()
    if attack == "swapped":
        relabelled(first, two)
        relabelled(second, one)
    elif attack == "doubled":
        relabelled(second, one)
    elif attack == "doubled, fewer rows":
        relabelled(second, one, rows=7)
    elif attack == "fewer rows":
        relabelled(second, two, rows=7)
    else:
        rows = schema.table(mixed_frame(2 * SLOTS + 9, seed=5))
        other = interrupted(keeper, rows, tmp_path / "other", monkeypatch, stops_at)
        relabelled(first, (other / "blocks" / min(blocks_of(other))).read_bytes())
    forged = [path.read_bytes() for path in (first, second)]
    keeper.encrypt(table, out=folder)
    sealed = es.load(folder)
    assert sealed.layout.counts == (SLOTS, SLOTS, 9)
    assert plain(keeper, sealed) == clear(table)
    kept = [path.read_bytes() == data for path, data in zip((first, second), forged, strict=True)]
    assert kept == {"swapped": [False, False], "of another table": [False, True]}.get(
        attack, [True, False]
    )


def test_the_owner_signs_no_block_as_one_of_other_columns(
    keeper, schema, tmp_path, monkeypatch, stops_at
):
    """The same rows in another encoding, as many columns; the draft is made to go on with the ids
    of the other table.
    """
    table = schema.table(mixed_frame(2 * SLOTS + 9))
    codes = interrupted(
        keeper, table, tmp_path / "codes", monkeypatch, stops_at, encodings=("ordinal",)
    )
    centred = interrupted(
        keeper, table, tmp_path / "centred", monkeypatch, stops_at, encodings=("centred",)
    )
    theirs, draft = (
        container.from_bytes((folder / DRAFT).read_bytes()) for folder in (codes, centred)
    )
    fields = {**draft.fields, **{name: theirs.fields[name] for name in ("table_id", "token")}}
    (centred / DRAFT).write_bytes(container.to_bytes(replace(draft, fields=fields)))
    for name in blocks_of(codes):
        (centred / "blocks" / name).write_bytes((codes / "blocks" / name).read_bytes())
    keeper.encrypt(table, out=centred, encodings=("centred",))
    assert plain(keeper, es.load(centred)) == clear(table, ("centred",))


@pytest.mark.parametrize("whole", [True, False])
def test_going_on_with_the_other_way_of_storing(
    keeper, schema, tmp_path, monkeypatch, stops_at, whole
):
    """What was finished stays as it is; what is made now is stored as it was asked for now."""
    table = schema.table(mixed_frame(2 * SLOTS + 9))
    folder = interrupted(keeper, table, tmp_path / "t", monkeypatch, stops_at, whole=not whole)
    before = blocks_of(folder)
    keeper.encrypt(table, out=folder, whole=whole)
    sealed = es.load(folder)
    assert before.items() <= blocks_of(folder).items()
    assert [entry.seeded for entry in sealed.blocks.entries] == [whole, whole, not whole]
    assert plain(keeper, sealed) == clear(table)


@pytest.mark.parametrize("content", [b"", b"nonsense", None])
def test_a_damaged_draft(keeper, unfinished, content):
    folder, table = unfinished
    draft = (folder / DRAFT).read_bytes()
    (folder / DRAFT).write_bytes(
        draft[:-1] + bytes([draft[-1] ^ 1]) if content is None else content
    )
    with pytest.raises(es.FileFormatError, check=error("unfinished-table", "overwrite=True")):
        keeper.encrypt(table, out=folder)
    assert plain(keeper, keeper.encrypt(table, out=folder, overwrite=True)) == clear(table)
    assert len(blocks_of(folder)) == 3


def test_overwriting_keeps_the_old_table_until_the_new_one_is_whole(
    keeper, schema, tmp_path, monkeypatch, stops_at
):
    old, new = schema.table(mixed_frame(SLOTS + 1, 1)), schema.table(mixed_frame(2 * SLOTS + 1, 2))
    keeper.encrypt(old, out=tmp_path)
    stops_at(3, Full())
    with pytest.raises(Full):
        keeper.encrypt(new, out=tmp_path, overwrite=True)
    monkeypatch.undo()
    assert plain(keeper, es.load(tmp_path)) == clear(old)
    with pytest.raises(FileExistsError, check=error("already-exists")):
        keeper.encrypt(new, out=tmp_path)
    before = blocks_of(tmp_path)
    assert len(before) == 4  # two of the old table, two of the new one
    assert plain(keeper, keeper.encrypt(new, out=tmp_path, overwrite=True)) == clear(new)
    after = blocks_of(tmp_path)
    assert len(after) == 3
    assert len(before.items() & after.items()) == 2  # it went on where it had stopped
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "blocks",
        keys_name(keeper.key_id),
        MANIFEST,
    ]


@pytest.mark.parametrize("way", ["encrypt", "save"])
def test_overwriting_by_another_key_leaves_the_old_table_with_its_keys(
    keeper, stranger_keeper, schema, tmp_path, monkeypatch, way
):
    """Stopped between the new keys and the new manifest: what is there is the old table, and it can
    be computed on.
    """
    table = schema.table(mixed_frame(9))
    keeper.encrypt(table, out=tmp_path)
    real = FolderStore.write

    def write(self, name, parts):
        if name == MANIFEST:
            raise Full
        real(self, name, parts)

    monkeypatch.setattr(FolderStore, "write", write)
    ways = {
        "encrypt": lambda: stranger_keeper.encrypt(table, out=tmp_path, overwrite=True),
        "save": lambda: stranger_keeper.encrypt(table).save(tmp_path, overwrite=True),
    }
    with pytest.raises(Full):
        ways[way]()
    monkeypatch.undo()
    old = es.load(tmp_path)
    assert old.keys.key_id == keeper.key_id
    assert keeper.open(old.counts("v0"), schema=schema)["count"].sum() == 9
    stranger_keeper.encrypt(table).save(tmp_path, overwrite=True)
    assert es.load(tmp_path).keys.key_id == stranger_keeper.key_id
    assert [path.name for path in tmp_path.glob("*.keys")] == [keys_name(stranger_keeper.key_id)]


def test_an_interrupted_encryption_with_the_public_key_says_why_it_cannot_go_on(
    keeper, schema, tmp_path, monkeypatch, stops_at
):
    table = schema.table(mixed_frame(SLOTS + 9))
    keeper.public_keys().save(tmp_path / "keys")
    stops_at(2, Full())
    first = es.PublicKeys.load(tmp_path / "keys")
    with pytest.raises(Full):
        first.encrypt(table, out=tmp_path / "t")
    monkeypatch.undo()
    again = es.PublicKeys.load(tmp_path / "keys")  # as another run of the program would
    cure = "unfinished-table"
    with pytest.raises(es.FileFormatError, check=error(cure)):
        again.encrypt(table, out=tmp_path / "t")
    assert len(blocks_of(tmp_path / "t")) == 1
    again.encrypt(table, out=tmp_path / "t", overwrite=True)
    assert plain(keeper, es.load(tmp_path / "t", by_others=True)) == clear(table)
    assert len(blocks_of(tmp_path / "t")) == 2


def test_stopped_after_the_manifest(keeper, schema, tmp_path, monkeypatch):
    """The last steps only clean up: without them the table is there all the same."""
    table = schema.table(mixed_frame(9))
    real = FolderStore.delete

    def delete(self, name):
        if name == DRAFT:
            raise Full
        real(self, name)

    monkeypatch.setattr(FolderStore, "delete", delete)
    with pytest.raises(Full):
        keeper.encrypt(table, out=tmp_path)
    monkeypatch.undo()
    assert plain(keeper, es.load(tmp_path)) == clear(table)
    other = schema.table(mixed_frame(SLOTS + 9, 5))
    assert plain(keeper, keeper.encrypt(other, out=tmp_path, overwrite=True)) == clear(other)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "blocks",
        keys_name(keeper.key_id),
        MANIFEST,
    ]


def test_leftovers_do_no_harm(keeper, schema, tmp_path):
    table = schema.table(mixed_frame(SLOTS + 9))
    (tmp_path / "blocks").mkdir()
    for name in (
        ".table.manifest.00ff.tmp",
        "table.manifest.tmp",
        "blocks/.000000-x.00ff.tmp",
        "blocks/stray",
    ):
        (tmp_path / name).write_bytes(b"left over")
    keeper.encrypt(table, out=tmp_path)
    assert plain(keeper, es.load(tmp_path)) == clear(table)
    keeper.encrypt(table).save(tmp_path, overwrite=True)
    assert plain(keeper, es.load(tmp_path)) == clear(table)


def test_resuming_on_fsspec(keeper, schema, monkeypatch):
    pytest.importorskip("fsspec")
    url = f"memory://resume-{keeper.key_id}/t"
    table = schema.table(mixed_frame(2 * SLOTS + 1))
    store_type = type(open_store(url))
    written = []

    def happens(name):
        if len(written) == 2:
            raise Full
        if name.startswith("blocks/"):
            written.append(name)

    before_each_write(monkeypatch, store_type, happens)
    with pytest.raises(Full):
        keeper.encrypt(table, out=url)
    monkeypatch.undo()
    before = objects(url)
    assert MANIFEST not in before
    assert plain(keeper, keeper.encrypt(table, out=url)) == clear(table)
    after = objects(url)
    assert all(after[name] == before[name] for name in written)
    assert np.all([name in after for name in written])


def test_a_new_run_of_the_owner_from_a_key_file_goes_on(keeper, schema, unfinished, tmp_path):
    folder, table = unfinished
    keeper.save(tmp_path / "owner.key")
    before = blocks_of(folder)
    again = es.Owner.load(tmp_path / "owner.key")
    assert plain(keeper, again.encrypt(table, out=folder)) == clear(table)
    assert before.items() <= blocks_of(folder).items()
