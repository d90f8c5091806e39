"""What a computation may hold by default follows the memory of the machine, or of the container it
runs in.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import encryptedstats as es
from encryptedstats import machine as this_machine
from encryptedstats.circuits.devices.native import device, sums
from encryptedstats.machine import available_memory, default_limit, total_memory

MIB, GIB = 1 << 20, 1 << 30


def machine(root: Path, files: dict[str, str]) -> Path:
    """A system that says these things of itself."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


MEMINFO = (
    f"MemTotal:       {32 * MIB} kB\nMemAvailable:   {20 * MIB} kB\nHugePages_Total:       0\n"
)


@pytest.mark.parametrize(
    ("available", "processes", "limit"),
    [
        (None, 1, GIB),
        (100 * MIB, 1, 256 * MIB),
        (8 * GIB, 1, 2 * GIB),
        (8 * GIB, 4, 512 * MIB),
        (8 * GIB, 64, 256 * MIB),
        (1024 * GIB, 1, 8 * GIB),
        (1024 * GIB, 64, 4 * GIB),
    ],
)
def test_a_quarter_within_limits(
    monkeypatch: pytest.MonkeyPatch, available: int | None, processes: int, limit: int
) -> None:
    monkeypatch.setattr(this_machine, "available_memory", lambda: available)
    assert default_limit(processes) == limit


def test_a_machine_without_groups(tmp_path: Path) -> None:
    assert available_memory(machine(tmp_path, {"proc/meminfo": MEMINFO})) == 20 * GIB


@pytest.mark.parametrize("own", ["max", str(6 * GIB)])
def test_groups_of_the_second_version_and_all_that_they_lie_in(tmp_path: Path, own: str) -> None:
    root = machine(
        tmp_path,
        {
            "proc/meminfo": MEMINFO,
            "proc/self/cgroup": "0::/jobs/mine\n",
            "sys/fs/cgroup/jobs/mine/memory.max": f"{own}\n",
            "sys/fs/cgroup/jobs/mine/memory.current": f"{2 * GIB}\n",
            "sys/fs/cgroup/jobs/memory.max": f"{12 * GIB}\n",
            "sys/fs/cgroup/jobs/memory.current": f"{5 * GIB}\n",
            "sys/fs/cgroup/jobs/memory.stat": f"anon 1\ninactive_file {GIB}\n",
        },
    )
    assert available_memory(root) == (8 * GIB if own == "max" else 4 * GIB)


def test_groups_of_the_first_version_in_a_container(tmp_path: Path) -> None:
    """Whose group is not to be seen under its own name, only as the root of all."""
    root = machine(
        tmp_path,
        {
            "proc/meminfo": MEMINFO,
            "proc/self/cgroup": "5:cpu,cpuacct:/docker/1\n4:memory:/docker/1\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{3 * GIB}\n",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{2 * GIB}\n",
            "sys/fs/cgroup/memory/memory.stat": f"total_inactive_file {GIB}\n",
        },
    )
    assert available_memory(root) == 2 * GIB


def test_other_systems_tell_what_they_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 1 << 20}.__getitem__)
    assert available_memory(tmp_path) == total_memory(tmp_path) == 4 * GIB
    monkeypatch.delattr("os.sysconf")
    assert available_memory(tmp_path) is None


def test_a_fit_and_a_prediction_take_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless they are told what to take: the limit that the evaluator works with is the one of the
    machine.
    """
    pytest.importorskip("encryptedstats._fused")
    limits: list[int] = []

    class Watched(sums.SumsEvaluator):
        def __init__(self, loads: sums.Loads, threads: int, memory_limit: int) -> None:
            limits.append(memory_limit)
            super().__init__(loads, threads, memory_limit)

    monkeypatch.setattr(sums, "SumsEvaluator", Watched)
    monkeypatch.setattr(device, "SumsEvaluator", Watched)
    monkeypatch.setattr(this_machine, "available_memory", lambda: 12 * GIB)
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"x": rng.normal(size=60), "y": rng.integers(0, 2, 60)})
    table = es.Schema.infer(frame, target="y", bins=2).table(frame)
    forest = es.CompletelyRandomForest(n_trees=1, depth=1, random_state=1)
    owner = es.Owner(es.plan(forest, table, encrypted_prediction=True))
    sealed = owner.encrypt(table)
    forest.fit(sealed)
    assert set(limits) == {3 * GIB}
    limits.clear()
    forest.predict_votes(sealed)
    assert set(limits) == {
        3 * GIB // 2
    }  # the other half is for columns that are switched once and kept
    limits.clear()
    forest.fit(sealed, memory_limit=GIB)
    forest.predict_votes(sealed, memory_limit=2 * GIB)
    assert set(limits) == {GIB}
