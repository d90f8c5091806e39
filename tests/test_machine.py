"""Work over processes: in order, lazily, with exceptions, nothing pickled but items and results,
and no shared randomness.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

import encryptedstats as es
from encryptedstats.crypto.encryption import encrypt_slots
from encryptedstats.crypto.keys import read_encryptor
from encryptedstats.crypto.residues import residues_of
from encryptedstats.machine import Portable, cores, ordered_map, start_method, thread_pool
from error_codes import error

needs_fork = pytest.mark.skipif(
    "fork" not in multiprocessing.get_all_start_methods(), reason="processes are forked"
)
WORKERS = [1, 2, 4]


@pytest.fixture
def no_new_children() -> Iterator[None]:
    """Processes that earlier tests keep are no concern of a test."""
    before = set(multiprocessing.active_children())
    yield
    assert not set(multiprocessing.active_children()) - before


@pytest.mark.parametrize("workers", WORKERS)
def test_in_order_whatever_takes_long(workers):
    def slow_at_first(n: int) -> int:
        time.sleep(0.02 * (n % 3 == 0))
        return n * n

    assert list(ordered_map(slow_at_first, range(20), workers)) == [n * n for n in range(20)]
    assert list(ordered_map(slow_at_first, [], workers)) == []


def test_all_cores_by_default():
    assert cores() >= 1
    assert list(ordered_map(abs, [-1, -2])) == [1, 2]


@needs_fork
def test_several_processes_work():
    both = multiprocessing.get_context("fork").Barrier(2)

    def who(n: int) -> int:
        if n < 2:  # nobody does both
            both.wait(120)
        return os.getpid()

    pids = set(ordered_map(who, range(8), 2))
    assert len(pids) == 2
    assert os.getpid() not in pids
    assert set(ordered_map(who, range(2, 4), 1)) == {os.getpid()}


@needs_fork
def test_threads_are_kept_but_not_across_a_fork():
    pool = thread_pool(2)
    assert thread_pool(2) is pool
    assert pool.submit(threading.get_ident).result() != threading.get_ident()

    def compute(number: int) -> int:
        return thread_pool(2).submit(abs, number).result(timeout=60)

    assert list(ordered_map(compute, [-1, -2], 2)) == [1, 2]


def test_without_forking_everything_runs_here(monkeypatch):
    monkeypatch.setattr(multiprocessing, "get_all_start_methods", lambda: ["spawn"])
    assert set(ordered_map(lambda _: os.getpid(), range(3), 4)) == {os.getpid()}


@pytest.mark.usefixtures("no_new_children")
@pytest.mark.parametrize("workers", WORKERS)
def test_exceptions_arrive(workers):
    def inverse(n: int) -> float:
        return 1 / n

    results = ordered_map(inverse, [1, 2, 0, 4], workers)
    assert next(results) == 1
    assert next(results) == 0.5
    with pytest.raises(ZeroDivisionError):
        next(results)
    with pytest.raises(StopIteration):
        next(results)


@pytest.mark.usefixtures("no_new_children")
@pytest.mark.parametrize("workers", WORKERS)
def test_exceptions_of_the_items_arrive(workers):
    def items():
        yield from range(3)
        raise es.SchemaError("row 3")

    with pytest.raises(es.SchemaError, match="row 3"):
        list(ordered_map(abs, items(), workers))


@pytest.mark.usefixtures("no_new_children")
@pytest.mark.parametrize("workers", WORKERS)
def test_endless_items_are_taken_a_few_at_a_time(workers):
    taken = []

    def items():
        for n in itertools.count():
            taken.append(n)
            yield n

    with closing(ordered_map(abs, items(), workers)) as results:
        assert taken == []
        assert [next(results) for _ in range(5)] == [0, 1, 2, 3, 4]
        assert len(taken) <= 5 + 2 * workers + 1


@needs_fork
def test_the_function_is_inherited_not_pickled():
    lock = threading.Lock()  # neither this nor the function can be pickled

    def touches(n: int) -> int:
        with lock:
            return n + 1

    assert list(ordered_map(touches, range(4), 2)) == [1, 2, 3, 4]


@needs_fork
def test_maps_within_and_beside_each_other_keep_their_functions():
    """Two tables that are encrypted at once must never take each other's key."""

    def items():
        yield from ordered_map(lambda n: 10 * n, range(3), 2)

    assert list(ordered_map(lambda n: n + 1, items(), 2)) == [1, 11, 21]
    one, other = (
        ordered_map(lambda n: ("one", n), range(20), 2),
        ordered_map(lambda n: ("other", n), range(20), 2),
    )
    assert list(zip(one, other, strict=True)) == [(("one", n), ("other", n)) for n in range(20)]

    found: dict[str, list[tuple[str, int]]] = {}

    def run(name: str) -> None:
        found[name] = list(ordered_map(lambda n: (name, n), range(20), 2))

    threads = [threading.Thread(target=run, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {name: [(name, n) for n in range(20)] for name in "abc"}


@needs_fork
def test_warnings_are_left_as_they_were():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        before = list(warnings.filters)
        with closing(ordered_map(abs, itertools.count(), 2)) as results:
            next(results)
            assert warnings.filters == before
            with pytest.raises(DeprecationWarning):
                warnings.warn("heard", DeprecationWarning, stacklevel=1)


#: Programs that a shell starts in the background inherit that SIGINT is ignored.
HEED_INTERRUPTS = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
"""

SLOW_MAP = """
import time, sys
from encryptedstats.machine import ordered_map
def slow(n):
    time.sleep(0.02)
    return n
for n in ordered_map(slow, iter(int, 1), 2):
    print("x", flush=True)
"""


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@needs_fork
@pytest.mark.skipif(
    not Path("/proc/self/task").exists(), reason="/proc tells which processes are alive"
)
@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGINT])
def test_workers_end_with_their_parent(blow):
    """A worker holds the secret key in memory: it must not outlive a parent that was killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", HEED_INTERRUPTS + SLOW_MAP],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"x\n"
        workers = _children(process.pid)
        assert len(workers) == 2
        for pid in (process.pid, *workers) if blow == signal.SIGINT else (process.pid,):
            os.kill(pid, blow)  # Ctrl-C goes to all of them
        _, errors = process.communicate(timeout=600)
    finally:
        process.kill()
        process.wait()
    deadline = time.monotonic() + 600
    while any(map(_alive, workers)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(map(_alive, workers))
    if blow == signal.SIGINT:
        assert (
            errors.count(b"KeyboardInterrupt") == 1
        )  # the parent's, and no tracebacks of the workers


@needs_fork
@pytest.mark.parametrize("with_secret_key", [True, False])
def test_forked_processes_share_no_randomness(with_secret_key):
    """Encryptions of the same rows, made first thing in processes forked from one parent, have
    nothing in common.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", es.InsecureParametersWarning)
        owner = es.Owner(es.Parameters.from_bits("bgv", 1024, 4000, (40,) * 4, allow_insecure=True))
    encryptor = owner._encryptor if with_secret_key else owner.public_keys().encryptor
    values = np.arange(100, dtype=np.int64)
    encrypt_slots(values, encryptor)  # the parent's generators have been used before

    everybody = multiprocessing.get_context("fork").Barrier(4)

    def encrypted(n: int) -> tuple[int, np.ndarray]:
        if n < 4:  # nobody does two of these
            everybody.wait(120)
        ciphertext, _noise = encrypt_slots(values, encryptor)
        return os.getpid(), residues_of(encryptor.keys.engine, ciphertext)

    made = [*ordered_map(encrypted, range(8), 4), encrypted(8)]
    assert len({pid for pid, _ in made}) == 5
    for (_, a), (_, b) in itertools.combinations(made, 2):
        assert a.shape == (2, 3, 1024)
        # 40-bit residues: equal ones by chance are one in a billion pairs of polynomials.
        assert (a == b).sum(axis=-1).max() <= 1


@needs_fork
def test_a_helper_that_is_killed_is_named_with_cause_and_cure():
    def dies(n: int) -> int:
        if n == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return n

    with pytest.raises(es.HelperError, check=error("helper-killed", "workers=1", "2")):
        list(ordered_map(dies, range(9), 2))


def _adding(data: bytes):
    return lambda n: (n + len(data), os.getpid())


def test_processes_that_begin_afresh_make_the_function_from_bytes(monkeypatch):
    monkeypatch.setenv("ENCRYPTEDSTATS_PROCESSES", "spawn")
    portable = Portable(_adding(b"abc"), _adding, lambda: b"abc")
    found = list(ordered_map(portable, range(5), 2))
    assert [value for value, _ in found] == [3, 4, 5, 6, 7]
    assert os.getpid() not in {pid for _, pid in found}
    assert set(ordered_map(lambda _: os.getpid(), range(3), 2)) == {
        os.getpid()
    }  # what cannot be made again stays here


def test_the_environment_says_how_processes_begin(monkeypatch):
    monkeypatch.setenv("ENCRYPTEDSTATS_PROCESSES", "none")
    assert set(ordered_map(Portable(_adding(b""), _adding, bytes), [1, 2], 2)) == {
        (1, os.getpid()),
        (2, os.getpid()),
    }
    monkeypatch.setenv("ENCRYPTEDSTATS_PROCESSES", "vfork")
    with pytest.raises(
        ValueError,
        check=error("unknown-start-method", "'vfork'", "ENCRYPTEDSTATS_PROCESSES='vfork'"),
    ):
        list(ordered_map(abs, [1], 2))
    monkeypatch.delenv("ENCRYPTEDSTATS_PROCESSES")
    monkeypatch.setattr(
        sys, "platform", "darwin"
    )  # where a forked process may not use the system's libraries
    assert start_method() == "spawn"


PROGRAM = """
import warnings
import pandas as pd
import encryptedstats as es
print("the program runs", flush=True)
warnings.simplefilter("ignore")
owner = es.Owner(es.Parameters.from_bits("bgv", 1024, 4000, (40,) * 4, allow_insecure=True))
rows = pd.DataFrame({"x": [n % 7 for n in range(2500)], "y": [n % 2 for n in range(2500)]})
rows.to_csv("rows.csv", index=False)
schema = es.Schema.infer(rows, target="y", bins=3)
table = owner.encrypt(schema.table(rows), workers=2)
owner.encrypt_file("rows.csv", schema, out="stored", workers=2)
for one in (table, es.load("stored")):
    found = owner.open(one.counts(0, by="class"), schema)
    print(sorted(found.to_numpy().ravel().tolist()))
print(sorted(schema.table(rows).counts(0, by="class").to_numpy().ravel().tolist()))
"""


def test_encryption_in_processes_that_begin_afresh(tmp_path):
    """The same rows come out, the secret key lies in no file, and a program without a main guard is
    not run again.
    """
    (tmp_path / "program.py").write_text(PROGRAM)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    environment = {**os.environ, "ENCRYPTEDSTATS_PROCESSES": "spawn", "TMPDIR": str(temporary)}
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    began, first, second, clear = done.stdout.splitlines()
    assert began == "the program runs"
    assert first == second == clear
    assert not any(temporary.rglob("*"))


@pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")
@pytest.mark.parametrize("with_secret_key", [True, False])
def test_what_encrypts_can_be_handed_to_another_process(with_secret_key, tiny):
    encryptor = tiny._encryptor if with_secret_key else tiny.public_keys().encryptor
    again = read_encryptor(encryptor.to_bytes())
    assert (again.with_secret_key, again.token_key) == (with_secret_key, encryptor.token_key)
    assert again.keys.key_id == tiny.key_id
    assert again.signer is None  # signing stays with the parent
    ciphertext, _ = again.encrypt(again.keys.engine.encode_integer(7))
    assert tiny._keys.engine.decode_integer(tiny._decryptor.decrypt(ciphertext)) == 7
