"""Stores: a folder, file:// and what fsspec opens behave alike; objects are there whole or not at
all.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest

from encryptedstats.errors import FileFormatError, StorageError
from encryptedstats.storage import objects
from encryptedstats.storage.container import Container
from encryptedstats.storage.objects import FolderStore, FsspecStore, open_store
from error_codes import error

fsspec = pytest.importorskip("fsspec")
_numbers = itertools.count()


@pytest.fixture(params=["folder", "relative", "file", "memory", "local", "odd names", "odd memory"])
def store(request, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fresh = f"store{next(_numbers)}"
    url = {
        "folder": tmp_path / "a" / "b",
        "relative": "a/b",
        "file": f"file://{tmp_path}/a",
        "memory": f"memory://{fresh}/a",
        "local": f"local://{tmp_path}/a",  # a folder again, by the way of fsspec
        "odd names": tmp_path / "ä [1] * ?",
        "odd memory": f"memory://{fresh}/ä [1] *",
    }[request.param]
    return open_store(url)


def test_which_store(tmp_path):
    assert isinstance(open_store(tmp_path), FolderStore)
    assert isinstance(open_store("some/folder"), FolderStore)
    assert isinstance(open_store(f"file://{tmp_path}"), FolderStore)
    assert isinstance(open_store("memory://x"), FsspecStore)


def test_write_read_list_delete(store):
    assert store.names() == []
    assert not store.exists("x")
    store.write("x", [b"abc", b"", b"defgh"])
    store.write("deep/er/y", [b"1"])
    store.write("empty", [])
    assert store.names() == ["deep/er/y", "empty", "x"]
    assert store.exists("x")
    assert not store.exists("deep")
    assert store.read("x") == b"abcdefgh"
    assert store.read("empty") == b""
    store.write("x", [b"new"])
    assert store.read("x") == b"new"
    store.delete("x")
    store.delete("x")
    assert store.names() == ["deep/er/y", "empty"]


@pytest.mark.parametrize(
    ("start", "length", "part"),
    [(0, 3, b"abc"), (2, 3, b"cde"), (5, None, b"fgh"), (6, 9, b"gh"), (0, 0, b""), (3, 0, b"")],
)
def test_parts_of_an_object(store, start, length, part):
    store.write("x", [b"abcdefgh"])
    assert store.read("x", start, length) == part


def test_several_parts_of_an_object(store):
    store.write("a/x", [b"abcdefgh"])
    assert store.read_ranges("a/x", [(0, 3), (6, 9), (2, 1), (3, 0), (2, 1)]) == [
        b"abc",
        b"gh",
        b"c",
        b"",
        b"c",
    ]
    assert store.read_ranges("a/x", []) == []
    with pytest.raises(FileNotFoundError, match=r"y is not there"):
        store.read_ranges("a/y", [(0, 1), (1, 1)])


def test_what_is_not_there_is_named(store):
    store.write("x", [b"1"])
    for name in ("y", "x/y", "no/such"):
        with pytest.raises(FileNotFoundError) as caught:
            store.read(name)
        assert f"{store.where(name)} is not there" in str(caught.value)


def test_a_folder_is_no_object(tmp_path):
    store = open_store(tmp_path)
    store.write("a/b", [b"1"])
    with pytest.raises(FileNotFoundError, match="a is not there"):
        store.read("a")


def test_a_write_that_fails_leaves_what_was_there(store):
    def parts():
        yield b"half"
        raise OSError(28, "No space left on device")

    for before in (None, b"old"):
        if before is not None:
            store.write("x", [before])
        with pytest.raises(OSError, match="No space left"):
            store.write("x", parts())
        assert store.names() == ([] if before is None else ["x"])
        if before is not None:
            assert store.read("x") == before


def test_no_temporary_files_stay(tmp_path):
    store = open_store(tmp_path)
    store.write("a/x", [b"1"])
    with pytest.raises(ZeroDivisionError):
        store.write("a/x", (b"1" * (1 // n) for n in (1, 0)))
    assert [p.name for p in tmp_path.rglob("*") if p.is_file()] == ["x"]


def test_leftovers_of_a_crash_are_not_objects(tmp_path):
    store = open_store(tmp_path)
    store.write("a/x", [b"1"])
    (tmp_path / "a" / ".x.0123456789abcdef.tmp").write_bytes(b"half")
    assert store.names() == ["a/x"]


def test_a_relative_folder_stays_where_it_was(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    store = open_store("folder")
    store.write("x", [b"1"])
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert store.read("x") == b"1"
    assert Path(store.where("x")) == tmp_path / "folder" / "x"
    assert os.listdir() == []


def test_without_fsspec_the_cure_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "fsspec", None)
    with pytest.raises(
        FileFormatError, check=error("missing-package", "'encryptedstats[storage]'")
    ):
        objects.open_store("s3://x")


# -- single objects
# ------------------------------------------------------------------------------------------------


@pytest.fixture(params=["path", "text", "relative", "file", "memory"])
def place(request, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return {
        "path": tmp_path / "x.enc",
        "text": str(tmp_path / "x.enc"),
        "relative": "x.enc",
        "file": f"file://{tmp_path}/x.enc",
        "memory": f"memory://single{next(_numbers)}/x.enc",
    }[request.param]


FILE = Container("votes", "ab", "cd", {"n": 1}, {"data": b"123"})


def test_a_single_object(place):
    assert not objects.object_exists(place)
    objects.write_object(place, b"one")
    objects.write_object(place, [b"t", b"wo"])
    assert objects.object_exists(place)
    assert objects.read_object(place) == b"two"
    with pytest.raises(FileExistsError, match=r"x\.enc exists already; it was not touched"):
        objects.write_object(place, b"three", overwrite=False)
    assert objects.read_object(place) == b"two"


def test_saving_and_loading_a_file(place):
    objects.save_file(FILE, place)
    assert objects.load_file(place) == objects.load_file(place, kind="votes") == FILE
    with pytest.raises(FileExistsError, check=error("already-exists", "overwrite=True", "x.enc")):
        objects.save_file(FILE, place)
    other = Container("votes", "ab", "cd", {"n": 2}, {})
    objects.save_file(other, place, overwrite=True)
    assert objects.load_file(place) == other
    with pytest.raises(FileFormatError, check=error("wrong-kind", "'votes'", "'keys'", "x.enc")):
        objects.load_file(place, kind="keys")
    objects.write_object(place, objects.read_object(place)[:-1])
    with pytest.raises(FileFormatError, match=r"x\.enc is truncated"):
        objects.load_file(place)


def test_a_private_file_stays_private(tmp_path):
    for url in (tmp_path / "a", f"file://{tmp_path}/b"):
        objects.save_file(FILE, url, private=True)
    assert {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {
        "a": 0o600,
        "b": 0o600,
    }


# -- what is not known
# ------------------------------------------------------------------------------------------------


def test_compare_and_replace(store):
    assert not store.replace("a/x", b"", b"new")
    assert store.create("a/x", b"one")
    assert not store.create("a/x", b"two")
    assert not store.replace("a/x", b"other", b"new")
    assert store.replace("a/x", b"one", b"two")
    assert store.read("a/x") == b"two"
    assert store.names() == ["a/x"]


class Outage:
    """A storage whose next requests fail."""

    def __init__(self, monkeypatch, failures: int, error: Exception) -> None:
        self.left, self.asked = failures, 0
        monkeypatch.setattr(objects, "_PAUSES", (0.0, 0.0))
        files = type(open_store("memory://outage")._files)
        for name in ("info", "cat_file", "pipe_file", "find"):
            monkeypatch.setattr(files, name, self.failing(getattr(files, name), error))

    def failing(self, real, error):
        def call(*arguments, **options):
            self.asked += 1
            if self.left:
                self.left -= 1
                raise error
            return real(*arguments, **options)

        return call


def test_an_outage_is_no_answer(monkeypatch):
    """It used to be a no: what was there was replaced, although that was not asked for."""
    place = f"memory://outage{next(_numbers)}/x.enc"
    objects.save_file(FILE, place)
    outage = Outage(monkeypatch, 20, ConnectionError("reset by peer"))
    other = Container("votes", "ab", "cd", {"n": 2}, {})
    for act in (
        lambda: objects.object_exists(place),
        lambda: objects.save_file(other, place),
        lambda: objects.load_file(place),
        lambda: open_store(place).names(),
    ):
        with pytest.raises(StorageError, check=error("unreachable-storage")):
            act()
    outage.left = 2
    assert objects.load_file(place) == FILE  # what fails once is asked again
    outage.left = 20
    with pytest.raises(StorageError):
        open_store("memory://outage").exists("x")
    assert outage.left == 17


def test_not_allowed_to_look_is_no_answer(monkeypatch):
    Outage(monkeypatch, 20, PermissionError("Forbidden"))
    with pytest.raises(StorageError, check=error("unreachable-storage")):
        open_store("memory://outage").exists("x")


def test_an_altered_answer_is_asked_for_again(monkeypatch):
    place = f"memory://altered{next(_numbers)}/x.enc"
    objects.save_file(FILE, place)
    files = type(open_store(place)._files)
    real, left = files.cat_file, [2]

    def altered(*arguments, **options):
        data = real(*arguments, **options)
        left[0] -= 1
        return data if left[0] < 0 else data[:-1] + bytes([data[-1] ^ 1])

    monkeypatch.setattr(files, "cat_file", altered)
    monkeypatch.setattr(objects, "_PAUSES", (0.0, 0.0))
    with pytest.raises(FileFormatError, check=error("altered-file", "x.enc")):
        objects.load_file(place)  # in memory nothing is altered on the way
    left[0] = 2
    monkeypatch.setattr(objects, "_HERE", ("local://",))  # as if it were far away
    assert objects.load_file(place) == FILE
    left[0] = 9
    with pytest.raises(FileFormatError, check=error("altered-file", "x.enc")):
        objects.load_file(place)


@pytest.mark.parametrize(
    "url",
    [
        "http://host/x",
        "reference://x",
        "simplecache::s3://bucket/x",
        "s3://bucket/zip://a::file:///b",
        "ftp://host/x",
    ],
)
def test_protocols_are_listed(url, monkeypatch):
    with pytest.raises(ValueError, check=error("protocol-not-allowed")):
        open_store(url)
    monkeypatch.setenv("ENCRYPTEDSTATS_PROTOCOLS", "dummy, http")
    if url.startswith("http"):
        objects.check_protocol(url)
    else:
        with pytest.raises(ValueError, check=error("protocol-not-allowed")):
            objects.check_protocol(url)
