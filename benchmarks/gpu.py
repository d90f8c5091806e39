"""The CUDA device on the card of this machine: fits, predictions and transforms, warm, beside the
native device and scikit-learn.

Every part is compared with the native device, residue for residue, before it is timed.
A part that fails says so, and the others go on.
"""

from __future__ import annotations

import platform
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich import box
from rich.table import Table
from sklearn.ensemble import RandomForestClassifier

import encryptedstats as es
from benchmarks._common import Report, Settings, part
from benchmarks.fit import Copied, Repeated
from encryptedstats.circuits import column
from encryptedstats.circuits.devices import CudaDevice, Device, Run, Task, get_devices
from encryptedstats.circuits.devices.cuda import gpu as gpus
from encryptedstats.circuits.devices.cuda.lower import lower_together
from encryptedstats.circuits.devices.cuda.ring import GpuRing, _polys, _with_each
from encryptedstats.circuits.devices.cuda.totals import load_tape
from encryptedstats.circuits.evaluate import compile_for
from encryptedstats.circuits.sources import Source
from encryptedstats.machine import cores
from reproduction import datasets

TREES, DEPTH, MILLION = 100, 3, 122
QUIET = Run(progress=False)


class Numbered(Repeated):
    """Many chunks that are known again, so that they stay on the card."""

    @property
    def content_id(self) -> str:
        return f"{self.table.content_id} {self.chunks} times"


class Pinned(Numbered):
    """Every chunk in pinned memory of its own, which the card reads by itself."""

    def __init__(self, table: es.EncryptedTable, chunks: int) -> None:
        super().__init__(table, chunks)
        gpu, names = gpus.gpu(), [str(one) for one in table.facts.columns]
        assert gpu is not None
        first = np.stack([self.table.residues(name, 0) for name in names])
        self._memory = (
            gpu.allocate_pinned(chunks * first.nbytes).view(np.uint64).reshape(chunks, *first.shape)
        )
        self._memory[:] = first
        self._places = {name: number for number, name in enumerate(names)}

    @property
    def content_id(self) -> str:
        return f"{super().content_id}, pinned"

    def residues(self, name: str, chunk: int) -> Any:
        return self._memory[chunk, self._places[name]]


@part("gpu")
def gpu(settings: Settings) -> Report:
    why_not = gpus.obstacle()
    if why_not is not None:
        return Report({"missing": why_not}, remarks=[f"No card is measured: {why_not}."])
    results: dict[str, Any] = {"card": _facts(), "date": datetime.now(timezone.utc).isoformat()}
    parts: dict[str, Callable[[], Any]] = {
        "transforms": _transforms,
        "bcw_o": lambda: _fitted("bcw_o", 1),
        "adult": lambda: _fitted("adult", 1),
        "million": lambda: _fitted("bcw_o", MILLION),
        "pinned": _from_pinned_memory,
        "products": _products,
        "predict": lambda: _predicted(0, 8192),
        "drawn": lambda: _predicted(8, 152),
        "disk": _from_disk,
    }
    if settings.quick:
        parts = {name: parts[name] for name in ("transforms", "bcw_o")}
    for name, measured in parts.items():
        try:
            results[name] = measured()
        except Exception as error:  # one part that fails does not take the others with it
            results[name] = {
                "failed": f"{type(error).__name__}: {error}",
                "where": traceback.format_exc()[-1500:],
            }
        print(name, results[name], flush=True)
        device().session.forget()
    return Report(results, tables=[_table(results)])


def device() -> CudaDevice:
    """The one that is registered."""
    found = get_devices()["cuda"]
    assert isinstance(found, CudaDevice)
    return found


def _facts() -> dict[str, Any]:
    gpu = gpus.gpu()
    assert gpu is not None
    (_, version) = gpu.driver.cuDriverGetVersion()
    free, total = gpu.memory()
    return {
        "name": gpu.name,
        "capability": list(gpu.capability),
        "driver": version,
        "bytes": total,
        "free": free,
        "arithmetic": "doubles" if gpu.doubles else "integers",
        "processor": platform.processor(),
        "cores": cores(),
    }


def laps(action: Callable[[], Any], most: int = 7, seconds: float = 3.0) -> dict[str, float]:
    """Milliseconds, of several runs after one to warm up."""
    gpu = gpus.gpu()
    assert gpu is not None
    action()
    gpu.wait()
    found: list[float] = []
    while len(found) < most and sum(found) < seconds:
        started = time.perf_counter()
        action()
        gpu.wait()
        found.append(time.perf_counter() - started)
    return {
        "median_ms": 1e3 * float(np.median(found)),
        "best_ms": 1e3 * min(found),
        "runs": len(found),
    }


def _transforms() -> dict[str, Any]:
    """A batch of transforms of 8192 coefficients under one prime of 43 bits, both ways, by both
    arithmetics.
    """
    parameters = es.Parameters.from_bits("bgv", 8192, 4000, (43,) * 4)
    keys = es.Owner(parameters).public_keys()
    gpu, batch = gpus.gpu(), 16384
    assert gpu is not None
    assert keys.evaluator.kernels is not None
    rng, found = np.random.default_rng(1), {}
    values = rng.integers(0, parameters.data_moduli[0], (8, 8192), dtype=np.uint64)
    for arithmetic in ("doubles", "integers"):
        ring = GpuRing(parameters, gpu, arithmetic)
        for inverse in (False, True):
            same = (
                ring.transform(values, 0, inverse=inverse)
                == keys.evaluator.kernels.transform(values, 0, inverse=inverse)
            ).all()
            x, out = gpu.empty(batch, 1, 8192), gpu.empty(batch, 1, 8192)
            gpu.clear(x)
            run = ring.inverse if inverse else ring.forward
            a, b = _with_each(_polys(x), 8192), _with_each(_polys(out), 8192)
            timing = laps(lambda run=run, a=a, b=b: run(a, b, batch, 1))  # type: ignore[misc]  # bound here
            name = f"{arithmetic} {'inverse' if inverse else 'forward'}"
            rate = batch / timing["median_ms"] * 1e3
            found[name] = {
                "exact": bool(same),
                "per_second": rate,
                "bytes_per_second": rate * 2 * 8 * 8192,
            }
    return found


def _sealed(name: str, forest: Any, **plan: Any) -> tuple[es.Owner, Any, Any]:
    data = datasets.load(name, download=False)
    frame = data.table_frame()
    schema = es.Schema.infer(frame, target="target", kinds=data.kinds)
    table = schema.table(frame)
    rows = plan.pop("rows", len(frame))
    owner = es.Owner(es.plan(forest, schema, rows, **plan))
    return owner, schema, (frame, table)


def _fitted(name: str, times: int) -> dict[str, Any]:
    forest = es.CompletelyRandomForest(TREES, DEPTH, random_state=1)
    slots = 8192
    owner, _, (frame, table) = _sealed(
        name, forest, **({"rows": times * slots} if times > 1 else {})
    )
    sealed = owner.encrypt(table)
    source: Source = sealed.source() if times == 1 else Numbered(sealed, times)
    outputs = sealed.facts.circuit(forest, source.layout)[0]
    started = time.perf_counter()
    program = compile_for(outputs, source).program
    prepared = time.perf_counter() - started
    ours, native = device(), get_devices()["native"]
    started = time.perf_counter()
    mine = packs_of(ours, program, source)
    first = time.perf_counter() - started
    started = time.perf_counter()
    theirs = packs_of(native, program, source)
    by_native = time.perf_counter() - started
    found: dict[str, Any] = {
        "rows": source.layout.n_rows,
        "chunks": source.layout.n_chunks,
        "ring": source.parameters.ring_degree,
        "bits": [p.bit_length() for p in source.parameters.coefficient_moduli],
        "totals": len(program.outputs),
        "sums": len(program.sums),
        "prepare_ms": 1e3 * prepared,
        "first_ms": 1e3 * first,
        "native_ms": 1e3 * by_native,
    }
    mine += _afresh(ours, program, source)
    for _ in range(2):  # recorded, and then done again
        mine += packs_of(ours, program, source)
    found["exact"] = all(np.array_equal(a, b) for a, b in zip(mine, 4 * theirs, strict=True))
    found["packed"] = laps(lambda: packs_of(ours, program, source))
    found |= _stages(ours, program, source)
    found["from_memory"] = laps(lambda: _afresh(ours, program, source), 3)
    if times == 1:
        found["fit"] = laps(lambda: forest.fit(sealed, device="cuda", progress=False), 3)
        x, y = frame.drop(columns="target"), frame["target"]
        plain = RandomForestClassifier(TREES, max_depth=DEPTH, n_jobs=-1)
        codes = x.apply(lambda one: pd.factorize(one)[0])
        found["sklearn"] = laps(lambda: plain.fit(codes, y), 3)
    return found


def packs_of(of: Device, program: Any, source: Source) -> list[Any]:
    """Return the packs of a program, as a device computes them."""
    return list(of.run(Task(program, source, {}, QUIET)))


def _afresh(ours: CudaDevice, program: Any, source: Source) -> list[Any]:
    """With a table that is not on the card yet."""
    ours.session.forget_columns()
    return packs_of(ours, program, source)


def _stages(ours: CudaDevice, program: Any, source: Source) -> dict[str, Any]:
    """The same, stage by stage."""
    loaded = load_tape(ours.session, Task(program, source, {}, QUIET), {})
    keyed, args = ours.session.load_keys(source.keys), program.packs[0].args
    start = program.n_interleaved.bit_length() - 1
    if loaded is None or keyed is None:
        return {"stages": "the card does not hold it at once"}
    evaluator, made, firsts = loaded.evaluator, loaded.made, loaded.made.firsts
    loaded = replace(loaded, columns=list(loaded.columns))
    sums = evaluator.sums_on_gpu(made, loaded.columns).values
    totals = lower_together(keyed, args, sums, firsts)
    return {
        "sums": laps(lambda: evaluator.sums_on_gpu(made, loaded.columns)),
        "lowered": laps(lambda: lower_together(keyed, args, sums, firsts)),
        "merged": laps(lambda: keyed.ring.pack(totals, keyed.packing, start, start=start)),
        "polynomials": sum(size for size in (total.size for total in program.sums)),
    }


def _from_pinned_memory() -> dict[str, Any]:
    """A million rows that are in memory of this process, pinned and not, and not on the card."""
    forest = es.CompletelyRandomForest(TREES, DEPTH, random_state=1)
    owner, _, (_, table) = _sealed("bcw_o", forest, rows=MILLION * 8192)
    sealed, ours = owner.encrypt(table), device()
    found = {}
    for name, source in (("pinned", Pinned(sealed, MILLION)), ("copied", Copied(sealed, MILLION))):
        program = compile_for(sealed.facts.circuit(forest, source.layout)[0], source).program
        found[name] = laps(lambda: _afresh(ours, program, source), 5)  # noqa: B023  # run at once
    return found


def _from_disk() -> dict[str, Any]:
    """A million rows that are stored, each chunk with a seed for every column: read, checked,
    expanded, and brought to the card.
    """
    forest = es.CompletelyRandomForest(TREES, DEPTH, random_state=1)
    owner, schema, (frame, _) = _sealed("bcw_o", forest, rows=MILLION * 8192)
    rows = frame.iloc[np.resize(np.arange(len(frame)), MILLION * 8192)]
    ours, found = device(), dict[str, Any]()
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        owner.encrypt(schema.table(rows)).save(folder + "/table")
        found["encrypt_and_save_s"] = time.perf_counter() - started
        found["bytes"] = sum(
            path.stat().st_size for path in Path(folder).rglob("*") if path.is_file()
        )
        stored = es.load(folder + "/table")
        source = stored.source()
        outputs = stored.facts.circuit(forest, source.layout)[0]
        program = compile_for(outputs, source).program
        found["packed"] = laps(lambda: _afresh(ours, program, source), 3, 10.0)
        started = time.perf_counter()
        theirs = packs_of(get_devices()["native"], program, source)
        found["native_ms"] = 1e3 * (time.perf_counter() - started)
        mine = _afresh(ours, program, source)
        found["exact"] = all(np.array_equal(a, b) for a, b in zip(mine, theirs, strict=True))
    return found


def _products() -> dict[str, Any]:
    """X'X of a million rows of twenty columns: 210 sums of products."""
    forest = es.CompletelyRandomForest(TREES, 2, random_state=1)
    owner, _, (_, table) = _sealed("bcw_o", forest, rows=MILLION * 8192)
    sealed = owner.encrypt(table)
    source = Numbered(sealed, MILLION)
    names = [str(one) for one in sealed.facts.columns][:20]
    outputs = [(column(a) * column(b)).total() for i, a in enumerate(names) for b in names[i:]]
    program = compile_for(outputs, source).program
    ours = device()
    mine = packs_of(ours, program, source)
    started = time.perf_counter()
    theirs = packs_of(get_devices()["native"], program, source)
    by_native = time.perf_counter() - started
    same = all(np.array_equal(a, b) for a, b in zip(mine, theirs, strict=True))
    return {
        "rows": source.layout.n_rows,
        "columns": len(names),
        "exact": same,
        "native_ms": 1e3 * by_native,
        "packed": laps(lambda: packs_of(ours, program, source)),
        **_stages(ours, program, source),
    }


def _predicted(fraction: int, rows: int) -> dict[str, Any]:
    """An encrypted forest, drawn from a fraction of the rows or from all, and votes of encrypted
    rows; against the clear.
    """
    forest = es.CompletelyRandomForest(
        TREES if not fraction else 20, 2, fraction=fraction, random_state=1
    )
    data = datasets.load("bcw_o", download=False)
    frame = data.table_frame()
    schema = es.Schema.infer(frame, target="target", kinds=data.kinds)
    new = frame.drop(columns="target").iloc[np.resize(np.arange(len(frame)), rows)]
    train, table = schema.table(frame), schema.table(new)
    owner = es.Owner(es.plan(forest, schema, len(train), rows, encrypted_prediction=True))
    sealed, sealed_new = owner.encrypt(train), owner.encrypt(table)
    found: dict[str, Any] = {"rows": rows, "ring": owner.parameters.ring_degree}
    found["primes"] = len(owner.parameters.data_moduli)
    opened = []
    for name in ("cuda", "native"):
        seconds: dict[str, Any] = {}
        for lap in range(3 if name == "cuda" else 1):
            started = time.perf_counter()
            forest.fit(sealed, device=name, progress=False)
            between = time.perf_counter()
            votes = forest.predict_votes(sealed_new, device=name, progress=False)
            seconds[f"lap {lap}"] = [
                1e3 * (between - started),
                1e3 * (time.perf_counter() - between),
            ]
        found[name] = {"fit_predict_ms": seconds}
        opened.append(owner.open(votes, schema=schema).to_numpy())
    found["exact"] = bool((opened[0] == opened[1]).all())
    expected = es.CompletelyRandomForest(forest.n_trees, 2, fraction=fraction, random_state=1).fit(
        train
    )
    found["votes"] = bool((opened[0] == expected.predict_votes(table).to_numpy()).all())
    return found


def _table(results: dict[str, Any]) -> Table:
    table = Table(
        title=f"On one {results['card']['name']}, warm", title_justify="left", box=box.SIMPLE_HEAD
    )
    for heading in ("what", "rows", "exact", "ms on the card", "ms native, all cores"):
        table.add_column(heading, justify="right")
    for name in ("bcw_o", "adult", "million", "products"):
        row = results.get(name, {})
        if "packed" in row:
            times = f"{row['packed']['median_ms']:.1f}", f"{row['native_ms']:.0f}"
            table.add_row(name, f"{row['rows']:,}", str(row["exact"]), *times)
    return table
