"""What killed processes leave behind is removed by the next run, secret files first; what a living
one writes is not touched.
"""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from encryptedstats.errors import FileFormatError
from encryptedstats.storage import files
from encryptedstats.storage.files import (
    PRIVATE,
    is_dead,
    process_tag,
    sweep,
    write_atomic,
    write_together,
)
from encryptedstats.storage.objects import open_store
from error_codes import error

KILLED = """
import os, signal, sys
from pathlib import Path
from encryptedstats.storage.files import write_atomic, write_together
def parts():
    yield b"half"
    print("half", flush=True)
    if sys.argv[2] == "waits":
        sys.stdin.read()
    os.kill(os.getpid(), signal.SIGKILL)
write_atomic(Path(sys.argv[1]) / "secret.key", parts(), mode=int(sys.argv[3], 8))
"""


def leave(folder: Path, mode: str = "600") -> Path:
    """A file of a process that was killed while it wrote it."""
    done = subprocess.run(
        [sys.executable, "-c", KILLED, folder, "dies", mode], check=False, capture_output=True
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    (left,) = folder.glob(".secret.key.*.tmp")
    return left


def test_a_killed_process_leaves_a_file_that_the_next_private_write_removes(tmp_path: Path) -> None:
    left = leave(tmp_path)
    assert left.stat().st_mode & 0o777 == 0o600
    write_atomic(tmp_path / "schema.json", [b"public"])
    assert left.exists()  # nobody looks at every write
    write_atomic(tmp_path / "other.key", [b"secret"], mode=PRIVATE)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other.key", "schema.json"]


def test_a_store_is_swept(tmp_path: Path) -> None:
    (tmp_path / "blocks").mkdir()
    leave(tmp_path / "blocks", "644")
    open_store(tmp_path).sweep()
    assert not list((tmp_path / "blocks").iterdir())


def test_what_a_living_process_writes_is_not_touched(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, tmp_path, "waits", "600"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline()
        sweep(tmp_path)
        assert len(list(tmp_path.iterdir())) == 1
        writer.kill()
    sweep(tmp_path)
    assert not list(tmp_path.iterdir())


def test_of_other_machines_and_older_versions_only_old_ones_are_removed(tmp_path: Path) -> None:
    names = (".t.00000000-1-1-00000000.tmp", ".t.0123456789abcdef.tmp")
    for name in names:
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "mine.tmp").write_bytes(b"")
    sweep(tmp_path)
    assert len(list(tmp_path.iterdir())) == 3
    for name in (*names, "mine.tmp"):
        os.utime(tmp_path / name, (time.time() - 2 * 86400,) * 2)
    sweep(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.tmp"]


def test_processes_are_known_again() -> None:
    tag = process_tag()
    assert is_dead(tag) is False
    machine, pid, start, token = tag.split("-")
    assert (
        is_dead(f"{machine}-{pid}-{int(start) + 1}-{token}") is True
    )  # the number was given to another one
    assert is_dead(f"00000000-{pid}-{start}-{token}") is None
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        pass
    assert is_dead(f"{machine}-{child.pid}-1-{token}") is True


# -- files that belong together
# ------------------------------------------------------------------------------------------


def killed_at(moment: int, act: Callable[[], None]) -> None:
    """Do it in a process of its own that is killed before its so-manieth rename or removal."""
    child = os.fork()
    if not child:
        calls = itertools.count()

        def counted(real: Any) -> Any:
            def call(*arguments: Any, **options: Any) -> Any:
                if next(calls) == moment:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*arguments, **options)

            return call

        failed = 1
        try:
            os.replace, Path.unlink = counted(os.replace), counted(Path.unlink)  # type: ignore[method-assign]
            os.link, os.unlink = counted(os.link), counted(os.unlink)
            act()
            failed = 0
        finally:  # an error must not carry this process back into the tests
            os._exit(failed)
    assert os.waitpid(child, 0)[1] in (0, signal.SIGKILL)


@pytest.mark.parametrize("moment", range(9))
@pytest.mark.parametrize("existing", [(), ("s", "p"), ("p",)])
def test_killed_between_two_files_all_are_new_or_all_are_old(
    tmp_path: Path, moment: int, existing: tuple[str, ...]
) -> None:
    for name in existing:
        (tmp_path / name).write_bytes(f"old {name}".encode())
    writers = {
        tmp_path / name: partial(Path.write_bytes, data=f"new {name}".encode()) for name in "sp"
    }
    killed_at(moment, lambda: write_together(writers, overwrite=True))
    files.repair_folder(tmp_path)
    found = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    old = {name: f"old {name}".encode() for name in existing}
    assert found in (old, {"s": b"new s", "p": b"new p"})


@pytest.mark.parametrize("moment", range(6))
def test_killed_between_two_new_files_there_are_both_or_none(moment: int, tmp_path: Path) -> None:
    """Also between giving a file its name and taking the old one off."""
    writers = {tmp_path / name: lambda path: path.write_bytes(b"new") and None for name in "sp"}
    killed_at(moment, lambda: write_together(writers, overwrite=False))
    files.repair_folder(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) in ([], ["p", "s"])


def test_a_file_that_was_set_aside_is_as_old_as_that(tmp_path: Path) -> None:
    """Regression: a secret key of last year, set aside a minute ago on a machine that was started
    again, counted as old.
    """
    key = tmp_path / "secret.key"
    key.write_bytes(b"old")
    os.utime(key, (time.time() - 300 * 86400,) * 2)
    aside = tmp_path / ".secret.key.00000000-1-1-00000000.old"
    os.replace(key, aside)
    files.repair_folder(tmp_path)
    assert aside.read_bytes() == b"old"


def test_an_old_file_without_a_new_one_comes_back(tmp_path: Path) -> None:
    aside = tmp_path / f".secret.key.{process_tag_of_a_dead_process()}.old"
    aside.write_bytes(b"old")
    files.repair_folder(tmp_path)
    assert (tmp_path / "secret.key").read_bytes() == b"old"
    assert not aside.exists()


def process_tag_of_a_dead_process() -> str:
    child = os.fork()
    if not child:
        os._exit(0)
    tag = files.process_tag().split("-")
    os.waitpid(child, 0)
    return "-".join((tag[0], str(child), "1", tag[3]))


def test_mending_leaves_the_files_of_a_living_process(tmp_path: Path) -> None:
    def look(path: Path) -> None:
        path.write_bytes(b"new")
        files.repair_folder(tmp_path)
        assert path.exists()

    write_together({tmp_path / "s": look, tmp_path / "p": look}, overwrite=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p", "s"]


# -- what is read
# ------------------------------------------------------------------------------------------------


def test_pipes_devices_and_links_are_not_read(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/zero")
    (tmp_path / "file").write_bytes(b"1")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    for name, said in {
        "pipe": "no ordinary file",
        "device": "is a link",
        "link": "is a link",
    }.items():
        with pytest.raises(FileFormatError, match=re.escape(f"{tmp_path}/{name}") + f".*{said}"):
            store.read(name)
        with pytest.raises(FileFormatError, match=said):
            store.read_ranges(name, [(0, 1)])
        assert store.exists(name)
    with pytest.raises(FileFormatError, check=error("not-a-regular-file")):
        files.read_regular(tmp_path / "device")
    assert (
        files.read_regular(tmp_path / "link") == b"1"
    )  # anybody who names a file may name it by a link


def test_what_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    path.touch()
    os.truncate(path, 40 << 30)
    with pytest.raises(FileFormatError, check=error("file-too-large", "42,949,672,960", "1,000")):
        open_store(tmp_path).read("sparse", limit=1000)
    with pytest.raises(FileFormatError, check=error("file-too-large")):
        files.read_regular(path)


def test_a_full_disk_names_the_file(tmp_path: Path) -> None:
    def parts() -> Any:
        yield b"half"
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match=r"No space left on device: '.*/secret\.key'"):
        write_atomic(tmp_path / "secret.key", parts(), mode=PRIVATE)
    assert not list(tmp_path.iterdir())
