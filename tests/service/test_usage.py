"""What counts towards a quota: all that takes room, once, and what is on its way."""

from __future__ import annotations

import os
import stat
import tempfile
import threading
import time
from pathlib import Path

import pytest
import service_samples as service
from cluster_samples import Hospital

from encryptedstats.service import door as doors
from encryptedstats.service.door import Door, OwnerPlace
from encryptedstats.service.presigned import Presigner
from encryptedstats.service.refusals import Refusal
from encryptedstats.storage.objects import FsspecStore, open_store
from encryptedstats.tables.manifest import MANIFEST

QUOTA = 64 << 20


@pytest.fixture(params=["folder", "bucket"])
def door(request: pytest.FixtureRequest, tmp_path: Path) -> Door:
    address = (
        tmp_path / "storage" if request.param == "folder" else f"memory://usage-{time.time_ns()}"
    )
    (tmp_path / "spool").mkdir()
    return Door(open_store(address), service.LIMITS, tmp_path / "spool")


def put(door: Door, place: OwnerPlace, hospital: Hospital) -> tuple[str, str, int]:
    """All files of a table as objects: the names of its manifest and its keys, and their bytes."""
    files = [
        path for path in hospital.table.rglob("*") if path.is_file() and path.suffix != ".lock"
    ]
    for path in files:
        data = path.read_bytes()
        door.store.write(place.of("objects", data[-32:].hex()), [data])
    keys = next(hospital.table.glob("public-*.keys"))
    names = [path.read_bytes()[-32:].hex() for path in (hospital.table / MANIFEST, keys)]
    return names[0], names[1], sum(path.stat().st_size for path in files)


def test_a_table_counts_when_its_objects_are_deleted(door: Door, hospital: Hospital) -> None:
    place = OwnerPlace(door.store, "a" * 32)
    manifest, keys, size = put(door, place, hospital)
    assert door.usage.of(place.owner) == size
    door.make_table(place, manifest, keys, QUOTA)
    copies = 2 if isinstance(door.store, FsspecStore) else 1
    assert (
        size * copies
        <= door.usage.of(place.owner)
        <= size * copies + len((hospital.table / MANIFEST).read_bytes())
    )
    for name in door.store.sizes(place.of("objects")):
        door.delete(place, "objects", name.rpartition("/")[2])
    assert door.usage.of(place.owner) == size  # the table is still there
    door.delete_table(place, manifest)
    assert door.usage.of(place.owner) == 0


def test_a_table_is_not_made_where_there_is_no_room(door: Door, hospital: Hospital) -> None:
    place = OwnerPlace(door.store, "a" * 32)
    manifest, keys, size = put(door, place, hospital)
    with pytest.raises(Refusal, match="bytes are taken"):
        door.make_table(place, manifest, keys, size)
    assert not door.has_table(place, manifest)
    door.make_table(place, manifest, keys, 2 * size)


def test_what_is_on_its_way_is_not_forgotten_by_counting_again(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = OwnerPlace(door.store, "a" * 32)
    monkeypatch.setattr(doors, "_RECOUNT_SECONDS", 0.0)
    door.usage.reserve(place.owner, "first", 60, 100)
    with pytest.raises(Refusal, match="60 of 100 bytes are taken"):
        door.usage.reserve(place.owner, "second", 60, 100)
    door.usage.settle(place.owner, "first", 0)
    door.usage.reserve(place.owner, "second", 60, 100)
    door.store.write(place.of("objects", "3" * 64), [bytes(50)])  # by another server
    with pytest.raises(Refusal, match="110 of 100 bytes are taken"):
        door.usage.check(place.owner, 100)


def test_of_many_at_once_no_more_are_let_in_than_fit(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, taken, together = OwnerPlace(door.store, "a" * 32), [], threading.Barrier(16)
    count = door.usage.of
    monkeypatch.setattr(door.usage, "of", lambda owner: (count(owner), together.wait(20))[0])

    def ask(number: int) -> None:
        try:
            door.usage.reserve(place.owner, str(number), 10, 50)
        except Refusal:
            return
        taken.append(number)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == 5


@pytest.fixture
def signer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Door, Presigner]:
    """Of a bucket that signs."""
    monkeypatch.setattr(Presigner, "is_possible", True)
    monkeypatch.setattr(FsspecStore, "presign", lambda self, name, seconds, size: name)
    door = Door(open_store(f"memory://signed-{time.time_ns()}"), service.LIMITS, tmp_path)
    return door, Presigner(door)


def test_signed_uploads_hold_room_until_they_have_arrived(
    signer: tuple[Door, Presigner], hospital: Hospital, monkeypatch: pytest.MonkeyPatch
) -> None:
    (door, presigner), place = signer, OwnerPlace(signer[0].store, "a" * 32)
    monkeypatch.setattr(doors, "_RECOUNT_SECONDS", 0.0)
    first, second = (
        path.read_bytes() for path in sorted((hospital.table / "blocks").iterdir())[:2]
    )
    names, quota = [data[-32:].hex() for data in (first, second)], len(first) + len(second) - 1
    signed = presigner.sign(place, names[0], len(first), quota)
    with pytest.raises(Refusal, match="bytes are taken"):
        presigner.sign(place, names[1], len(second), quota)
    door.store.write(signed["url"], [first])
    with pytest.raises(
        Refusal, match=f"^{len(second):,} bytes more: {len(first):,} of"
    ):  # once, not twice
        presigner.sign(place, names[1], len(second), quota)
    assert presigner.take(place, names[0], signed["upload"], quota) == len(first)
    assert door.usage.of(place.owner) == len(first)
    door.store.write(place.of("incoming", "f" * 32), [second])  # signed before a restart
    assert door.usage.of(place.owner) == len(first) + len(second)
    assert presigner.take(place, names[1], "f" * 32, quota + 1) == len(second)
    assert door.usage.of(place.owner) == len(first) + len(second)


def test_signed_uploads_that_nobody_takes_are_swept(
    signer: tuple[Door, Presigner], monkeypatch: pytest.MonkeyPatch
) -> None:
    (door, presigner), place = signer, OwnerPlace(signer[0].store, "a" * 32)
    for what in ("incoming", "objects"):
        door.store.write(place.of(what, "f" * 32), [b"x"])
    presigner.sweep()
    assert place.has("incoming", "f" * 32)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 3 * 3600)
    presigner.sweep()
    assert (place.has("incoming", "f" * 32), place.has("objects", "f" * 32)) == (False, True)


@pytest.mark.skipif(os.name != "posix", reason="modes are of POSIX")
def test_uploads_to_a_bucket_wait_in_a_folder_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    store = open_store("memory://spool")
    spool = Door(store, service.LIMITS).spool
    assert (spool.parent, stat.S_IMODE(spool.stat().st_mode)) == (tmp_path, 0o700)
    assert Door(store, service.LIMITS).spool == spool  # what a killed server left is found there
    spool.chmod(0o755)
    with pytest.raises(PermissionError, match="TMPDIR"):
        Door(store, service.LIMITS)
    spool.chmod(0o700)
    spool.rename(tmp_path / "elsewhere")
    spool.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PermissionError, match="TMPDIR"):
        Door(store, service.LIMITS)
    spool.unlink()
    another = os.getuid() + 1
    monkeypatch.setattr(os, "getuid", lambda: another)
    (tmp_path / f"encryptedstats-spool-{another}").mkdir(mode=0o700)
    with pytest.raises(PermissionError, match="TMPDIR"):
        Door(store, service.LIMITS)
