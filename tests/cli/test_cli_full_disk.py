"""A disk that is really full: one line that says whose write it refused, and nothing half-written.
Also an end by the system.

Other modules pretend, for every command; here a small file system is mounted, in a namespace that
goes with the process.
"""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_helpers import Hospital, Ward

PROGRAM = (sys.executable, "-m", "encryptedstats.cli")
# Mount, leave so much room, run the program there, and list what it left.
SCRIPT = """
mount -t tmpfs -o size=8m tmpfs "$1" || exit 99
cd "$1"; head -c "$2" /dev/zero > filler; shift 2
"$@"; code=$?
rm filler; find . -type f; exit $code
"""
LIMIT = 8 << 20


def on_disk(place: Path, room: int, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the program in a folder with so much room."""
    place.mkdir(exist_ok=True)
    command = [
        "unshare",
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-c",
        SCRIPT,
        "sh",
        str(place),
    ]
    command += [str(LIMIT - room), *PROGRAM, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)


@pytest.fixture(scope="module", autouse=True)
def mountable(tmp_path_factory: pytest.TempPathFactory) -> None:
    try:
        done = on_disk(tmp_path_factory.mktemp("mount"), 1 << 20, "--version")
    except FileNotFoundError:
        pytest.skip("there is no unshare here: only Linux has one")
    if done.returncode:
        pytest.skip(f"a file system may not be mounted here: {done.stderr.strip()}")


def refused(done: subprocess.CompletedProcess[str]) -> str:
    """The one line of an error of the program that left no file."""
    assert done.returncode == 1, done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
    return done.stderr


@pytest.mark.slow
def test_keys(tmp_path: Path) -> None:
    """There is room for the secret key, not for both: neither is there afterwards."""
    options = ("max_value=1000", "depth=1")
    error = refused(
        on_disk(tmp_path / "d", 2 << 20, "key", "make", "secret.key", "public.keys", *options)
    )
    assert error.startswith("error: public.keys: no space left on device; free some space")


@pytest.mark.parametrize("room", [pytest.param(0, marks=pytest.mark.slow), 4096])
def test_results(hospital: Hospital, ward: Ward, tmp_path: Path, room: int) -> None:
    fit = ("ask", ward.table(0), "-o", "m", "mnb")
    error = refused(on_disk(tmp_path / "d", room, *fit))
    assert error == "error: m: no space left on device; free some space, or write elsewhere\n"


@pytest.mark.slow
def test_csv(ward: Ward, tmp_path: Path) -> None:
    predict = ("predict", ward.opened(ward.combined("mnb")), ward.csv, "-o", "p.csv")
    assert "p.csv: no space left on device" in refused(on_disk(tmp_path / "d", 0, *predict))


def test_a_table_is_gone_on_with(hospital: Hospital, tmp_path: Path) -> None:
    """A draft stays, with whole blocks only, and the error says how to go on."""
    encrypt = (
        "encrypt",
        hospital.csv,
        "t",
        "--schema",
        hospital.schema,
        "--key",
        hospital.key,
    )
    done = on_disk(tmp_path / "d", 1 << 18, *encrypt)
    assert done.returncode == 1
    assert "no space left on device" in done.stderr
    assert "run the same command to resume" in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout.split() == ["./t/table.draft"]


@pytest.mark.slow
def test_rows_from_a_pipe_and_an_end_by_the_system(ward: Ward, tmp_path: Path) -> None:
    """Rows that come through a pipe are all read; ended in the middle, the program takes its
    temporary file away.
    """
    pipe = tmp_path / "rows.csv"
    os.mkfifo(pipe)
    command = [
        *PROGRAM,
        "predict",
        str(ward.opened(ward.combined("mnb"))),
        pipe.name,
        "-o",
        "p.csv",
    ]

    def started() -> subprocess.Popen[str]:
        return subprocess.Popen(
            command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def open_pipe() -> int:
        return os.open(pipe, os.O_RDWR)  # which does not wait for a reader, that may never come

    with started() as program:
        rows = open_pipe()
        os.write(rows, ward.csv.read_bytes())
        waited_for(lambda: temporary(tmp_path))
        os.close(rows)
        said = program.communicate(timeout=600)
    assert program.returncode == 0, said
    assert len((tmp_path / "p.csv").read_text().splitlines()) == 71
    (tmp_path / "p.csv").unlink()

    with started() as program:
        rows = open_pipe()
        os.write(rows, ward.csv.read_bytes()[:200])
        waited_for(lambda: temporary(tmp_path))

        def ended() -> bool:
            # a signal that comes just before the program begins to wait for rows is seen with the
            # next
            program.send_signal(signal.SIGTERM)
            return program.poll() is not None

        waited_for(ended, every=2)
        said = program.communicate(timeout=600)
        os.close(rows)
    # To a shell both are 143: the signal may come once more while Python takes itself down.
    assert program.returncode in (128 + signal.SIGTERM, -signal.SIGTERM), said
    assert said == ("", "")
    (left,) = tmp_path.iterdir()
    assert stat.S_ISFIFO(left.stat().st_mode)


def temporary(folder: Path) -> bool:
    return any(path.name.startswith(".p.csv") for path in folder.iterdir())


def waited_for(condition: Callable[[], bool], every: float = 0.1) -> None:
    end = time.monotonic() + 600
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(every)
