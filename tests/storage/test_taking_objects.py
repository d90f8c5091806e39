"""Sizes, files that become objects, second names of one object, and what a file says of itself by
its first bytes.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from encryptedstats.errors import FileFormatError
from encryptedstats.storage import container
from encryptedstats.storage.container import Container
from encryptedstats.storage.objects import FolderStore, Store, open_store
from error_codes import error


@pytest.fixture(params=["folder", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "folder":
        return open_store(tmp_path / "store")
    pytest.importorskip("fsspec")
    return open_store(f"memory://taking-{tmp_path.name}")


def test_sizes_of_all_and_below_a_folder(store: Store) -> None:
    store.write("a/one", [b"x" * 3])
    store.write("ab/two", [b"x" * 4])
    assert store.sizes() == {"a/one": 3, "ab/two": 4}
    assert store.sizes("a") == {"a/one": 3}
    assert store.sizes("nothing") == {}
    assert store.size("ab/two") == 4
    with pytest.raises(FileNotFoundError, match="a/other is not there"):
        store.size("a/other")
    with pytest.raises(FileNotFoundError):
        store.size("a")


def test_a_file_becomes_an_object(store: Store, tmp_path: Path) -> None:
    for content in (b"first", b"second"):
        file = tmp_path / "body"
        file.write_bytes(content)
        store.take("objects/x", file)
        assert store.read("objects/x") == content
        assert not file.exists()


def test_a_file_of_another_disk_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, file = open_store(tmp_path / "store"), tmp_path / "body"
    file.write_bytes(b"content")
    replace = os.replace

    def far(old: object, new: object) -> None:
        if Path(str(old)) == file:
            raise OSError(errno.EXDEV, "other disk")
        replace(old, new)  # type: ignore[arg-type]  # paths alone

    monkeypatch.setattr(os, "replace", far)
    store.take("objects/x", file)
    assert store.read("objects/x") == b"content"
    assert not file.exists()


def test_an_object_gets_a_second_name(store: Store) -> None:
    store.write("objects/x", [b"content"])
    for _ in range(2):  # again does no harm
        store.copy("objects/x", "tables/t/x")
    assert store.read("tables/t/x") == b"content"
    store.delete("objects/x")
    assert store.read("tables/t/x") == b"content"
    assert store.names() == ["tables/t/x"]
    with pytest.raises(FileNotFoundError):
        store.copy("objects/x", "tables/t/y")


def test_a_second_name_takes_no_room_where_links_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FolderStore(str(tmp_path))
    store.write("x", [b"content"])
    store.copy("x", "y")
    assert os.path.samefile(tmp_path / "x", tmp_path / "y")

    def no_links(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", no_links)
    store.copy("x", "z")
    assert store.read("z") == b"content"
    assert not os.path.samefile(tmp_path / "x", tmp_path / "z")


def test_first_bytes_tell_the_kind_and_the_sections() -> None:
    data = container.to_bytes(
        Container("public keys", "f", "k", {"a": 1}, {"one": b"x" * 5, "two": b""})
    )
    head = data.index(b'"two"')
    for length in (0, 5, 13, 14, head):
        assert container.peek(data[:length], len(data), "it") is None
    for length in (len(data) - 37, len(data)):
        found = container.peek(data[:length], len(data), "it")
        assert found is not None
        assert (found[0].kind, found[0].key_id, found[1]) == (
            "public keys",
            "k",
            {"one": 5, "two": 0},
        )


@pytest.mark.parametrize(
    ("head", "size", "complaint"),
    [
        (b"age,ill\n" * 4, 1000, "foreign-file"),
        (b"", 0, "foreign-file"),
        (
            b"\x89EncStat\x02\x00\xff\xff\xff\xff" + b"x" * (1 << 20),
            1 << 30,
            "truncated-header",
        ),
        (b"\x89EncStat\x02\x00\xff\x00\x00\x00", 14, "truncated-header"),
    ],
    ids=["text", "nothing", "a header too long", "no header"],
)
def test_first_bytes_of_something_else(head: bytes, size: int, complaint: str) -> None:
    with pytest.raises(FileFormatError, check=error(complaint)):
        container.peek(head, size, "it")
