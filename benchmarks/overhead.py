"""What Python takes around the kernels: start-up, help, plans, preparing, opening, and ``fit()``.

Everything is measured in processor time. Commands and imports run in processes of their own; the
rest runs in this one, after a first time that fills caches which every process fills once.
"""

from __future__ import annotations

import cProfile
import pstats
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from rich import box
from rich.table import Table

import encryptedstats as es
from benchmarks._common import Report, Settings, part
from encryptedstats.circuits import evaluate as evaluation
from encryptedstats.circuits.devices.native.sums import SumsEvaluator

N_TREES, DEPTH = 100, 3
#: Seconds of processor time.
GOALS = {
    "--help": 0.25,
    "import encryptedstats": 0.1,
    "plan": 0.3,
    "prepare": 0.03,
    "open": 0.05,
    "second fit() around it": 0.05,
}
_PROCESSES = {
    "import encryptedstats": ["-c", "import encryptedstats"],
    "--help": ["-m", "encryptedstats.cli", "--help"],
    "ask --help": ["-m", "encryptedstats.cli", "ask", "--help"],
    "python alone": ["-c", "pass"],
}
_HOTTEST = 12


@part("overhead")
def overhead(settings: Settings) -> Report:
    runs, trees = (1, 5) if settings.quick else (7, N_TREES)
    found = {name: _time_process(words, runs) for name, words in _PROCESSES.items()}
    stages, hottest = _time_stages(runs, trees)
    found |= stages
    rows = [
        {"what": name, "cpu_seconds": times, "goal": GOALS.get(name)}
        for name, times in found.items()
    ]
    return Report(
        results={"trees": trees, "depth": DEPTH, "stages": rows, "hottest": hottest},
        tables=[_stage_table(rows), _profile_table(hottest)],
        remarks=[
            f"A forest of {trees} trees of depth {DEPTH} on a table like bcw_o; medians of {runs} "
            "runs in processor time.",
            "prepare: what is written for the kernels before they run, for a program that was not "
            "run before. The device is preparing, kernels, modulus switching and packing.",
            "The profile is of plan, prepare and fit() together.",
        ],
    )


def _time_process(words: list[str], runs: int) -> list[float]:
    """Return the quartiles of the processor time of a new process, once its files are cached."""
    times = []
    for _ in range(runs + 1):
        before = _used(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *words], capture_output=True, check=True)
        times.append(_used(resource.RUSAGE_CHILDREN) - before)
    return _quartiles(times[1:])


def _used(whose: int) -> float:
    used = resource.getrusage(whose)
    return used.ru_utime + used.ru_stime


def _quartiles(times: list[float]) -> list[float]:
    return statistics.quantiles(times, n=4, method="inclusive") if len(times) > 1 else times * 3


# -- in this process


def _rows() -> pd.DataFrame:
    rng = np.random.default_rng(1)
    rows = {f"x{j}": rng.integers(0, 10, 547) for j in range(9)}
    return pd.DataFrame(rows).assign(y=rng.integers(0, 2, 547))


def _time_stages(runs: int, trees: int) -> tuple[dict[str, list[float]], list[dict[str, Any]]]:
    """Return the processor time of every stage, and the functions that take most of it."""
    frame = _rows()
    schema = es.Schema.infer(frame, target="y", bins=5)
    table = schema.table(frame)
    owner = es.Owner(es.plan(es.CompletelyRandomForest(trees, DEPTH, random_state=0), table))
    sealed = owner.encrypt(table)
    es.CompletelyRandomForest(trees, DEPTH, random_state=0).fit(sealed, progress=False)
    times: dict[str, list[float]] = {
        "plan": [], "prepare": [], "fit() around the device": [], "second fit() around it": [], "open": [],
    }  # fmt: skip
    profile = cProfile.Profile(time.process_time)
    for seed in range(1, runs + 1):
        forest = es.CompletelyRandomForest(trees, DEPTH, random_state=seed)
        times["plan"].append(_timed(lambda forest=forest: es.plan(forest, table)))
        with _watched() as spent:
            whole = _timed(lambda forest=forest: forest.fit(sealed, progress=False))
        times["prepare"].append(spent["prepare"])
        times["fit() around the device"].append(whole - spent["device"])
        again = es.CompletelyRandomForest(trees, DEPTH, random_state=seed)
        with _watched() as spent:
            whole = _timed(lambda again=again: again.fit(sealed, progress=False))
        times["second fit() around it"].append(whole - spent["device"])
        times["open"].append(_timed(lambda again=again: owner.open(again, schema=schema)))
    fresh = es.CompletelyRandomForest(trees, DEPTH, random_state=runs + 1)
    profile.enable()
    es.plan(fresh, table)
    fresh.fit(sealed, progress=False)
    profile.disable()
    return {name: _quartiles(one) for name, one in times.items()}, _hottest(profile)


def _timed(action: Callable[[], object]) -> float:
    started = _used(resource.RUSAGE_SELF)
    action()
    return _used(resource.RUSAGE_SELF) - started


@contextmanager
def _watched() -> Iterator[dict[str, float]]:
    """Add up the processor time of preparing, and of the device in all threads."""
    spent = {"prepare": 0.0, "device": 0.0}
    originals = [(SumsEvaluator, name) for name in ("prepare", "tape")] + [(evaluation, "execute")]
    kept = [getattr(place, name) for place, name in originals]

    def watch(function: Callable[..., Any], stage: str, clock: Callable[[], float]) -> Any:
        def watched(*args: Any, **options: Any) -> Any:
            started = clock()
            found = function(*args, **options)
            spent[stage] += clock() - started
            return found

        return watched

    for place, name in originals:
        stage = "device" if name == "execute" else "prepare"
        clock = partial(_used, resource.RUSAGE_SELF) if name == "execute" else time.thread_time
        setattr(place, name, watch(getattr(place, name), stage, clock))
    try:
        yield spent
    finally:
        for (place, name), function in zip(originals, kept, strict=True):
            setattr(place, name, function)


def _hottest(profile: cProfile.Profile) -> list[dict[str, Any]]:
    """Return the functions that take most time by themselves."""
    found = pstats.Stats(profile).stats  # type: ignore[attr-defined]  # the stubs of pstats leave it out
    ordered = sorted(found.items(), key=lambda one: -one[1][2])[:_HOTTEST]
    return [
        {
            "function": f"{place.rpartition('encryptedstats/')[2]}:{line} {name}",
            "calls": calls,
            "seconds": own,
            "with_what_it_calls": whole,
        }
        for (place, line, name), (_, calls, own, whole, _) in ordered
    ]


# -- showing


def _stage_table(rows: list[dict[str, Any]]) -> Table:
    table = Table(title="Processor time, ms", title_justify="left", box=box.SIMPLE_HEAD)
    for title in ("stage", "median", "quartiles", "goal"):
        table.add_column(title, justify="left" if title == "stage" else "right")
    for row in rows:
        lower, median, upper = (f"{1e3 * one:.0f}" for one in row["cpu_seconds"])
        goal = "" if row["goal"] is None else f"{1e3 * row['goal']:.0f}"
        table.add_row(row["what"], median, f"{lower} to {upper}", goal)
    return table


def _profile_table(hottest: list[dict[str, Any]]) -> Table:
    table = Table(title="Most time by themselves, ms", title_justify="left", box=box.SIMPLE_HEAD)
    for title in ("function", "calls", "own", "with what it calls"):
        table.add_column(title, justify="left" if title == "function" else "right")
    for one in hottest:
        own, whole = (f"{1e3 * one[key]:.0f}" for key in ("seconds", "with_what_it_calls"))
        table.add_row(one["function"], f"{one['calls']:,}", own, whole)
    return table
