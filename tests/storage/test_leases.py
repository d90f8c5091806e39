"""One writer at a time, in a folder and elsewhere: the second is refused, the dead are succeeded,
the overtaken give up.
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from encryptedstats.errors import BusyError, StorageError
from encryptedstats.storage import leases
from encryptedstats.storage.leases import write_alone
from encryptedstats.storage.objects import LEASE, open_store
from error_codes import error

pytest.importorskip("fsspec")
_numbers = itertools.count()

HOLD = """
import os, sys
from encryptedstats.storage import leases
from encryptedstats.storage.leases import write_alone
leases._BEATS = 100
from encryptedstats.storage.objects import open_store
with write_alone(open_store(sys.argv[1])):
    if sys.argv[2] == "forks" and os.fork() == 0:
        sys.stdin.read()
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(params=["folder", "memory", "local"])
def store(request, tmp_path, monkeypatch):
    monkeypatch.setattr(leases, "LEASE_SECONDS", 10.0)
    monkeypatch.setattr(leases, "_BEATS", 50)
    url = {
        "folder": tmp_path / "a",
        "memory": f"memory://lease{next(_numbers)}",
        "local": f"local://{tmp_path}/a",
    }
    return open_store(url[request.param])


def test_the_second_is_refused_and_nothing_stays(store):
    with (
        write_alone(store) as writer,
        pytest.raises(BusyError, check=error("already-being-written", os.getpid())),
        write_alone(store),
    ):
        writer.check()
    with write_alone(store):
        assert store.names() == []
    assert not store.exists(LEASE)


def test_who_waits_is_next(store):
    import threading

    order = []

    def second():
        with write_alone(store, wait=600):
            order.append("second")

    with write_alone(store):
        thread = threading.Thread(target=second)
        thread.start()
        time.sleep(0.3)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


@pytest.mark.parametrize(("kind", "how"), [("folder", "forks"), ("local", "alone")])
def test_the_lease_of_a_killed_process_is_free_at_once(
    tmp_path: Path, kind: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = str(tmp_path / "a") if kind == "folder" else f"local://{tmp_path}/a"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, url, how], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as one:
        assert one.stdout is not None
        assert one.stdout.readline()
        with (
            pytest.raises(BusyError, check=error("already-being-written", one.pid)),
            write_alone(open_store(url)),
        ):
            pass
        os.kill(one.pid, signal.SIGKILL)
        one.wait()
        monkeypatch.setattr(leases, "LEASE_SECONDS", 10_000.0)  # longer than any test
        with write_alone(open_store(url)):
            pass


def test_an_overtaken_writer_gives_up(monkeypatch):
    """It stood still: its lease was not renewed, and is another's by now."""
    monkeypatch.setattr(leases, "LEASE_SECONDS", 0.5)
    monkeypatch.setattr(leases._Lease, "_keep", lambda self: None)
    monkeypatch.setattr(leases, "is_dead", lambda tag: None)
    store = open_store(f"memory://lease{next(_numbers)}")
    with write_alone(store) as first, write_alone(store) as second:
        second.check()
        time.sleep(0.6)
        with pytest.raises(BusyError, check=error("lease-lost")):
            first.check()
        second.check()
    assert not store.exists(LEASE)


def test_a_lease_is_renewed(monkeypatch):
    monkeypatch.setattr(leases, "LEASE_SECONDS", 10.0)
    monkeypatch.setattr(leases, "_BEATS", 50)
    monkeypatch.setattr(leases, "is_dead", lambda tag: None)
    store = open_store(f"memory://lease{next(_numbers)}")
    # The second writer finds that the lease changes while it watches.
    with write_alone(store), pytest.raises(BusyError), write_alone(store):
        pass


def test_a_lease_that_could_not_be_given_back_is_known_again(monkeypatch):
    """The storage was away at that moment; the process lives on, and is not kept out by itself."""
    store = open_store(f"memory://lease{next(_numbers)}")

    def away(self, name):
        raise StorageError("away")

    with monkeypatch.context() as patch:
        patch.setattr(type(store), "delete", away)
        with write_alone(store):
            pass
    assert store.exists(LEASE)
    monkeypatch.setattr(leases.time, "sleep", lambda _: pytest.fail("it waited"))
    with write_alone(store):
        pass
    assert not store.exists(LEASE)


@pytest.mark.parametrize("content", [b"", b"[]", b'{"host": 1}', b"\xff"])
def test_what_is_no_lease_holds_nobody_up(content):
    store = open_store(f"memory://lease{next(_numbers)}")
    store.write(LEASE, [content])
    with write_alone(store) as writer:
        writer.check()
