"""Numbers of every row on a GPU: sums over a single chunk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from encryptedstats.circuits.devices.base import Task
from encryptedstats.circuits.devices.batches import Supplied
from encryptedstats.circuits.devices.cuda.lower import copy_to_memory, part_of
from encryptedstats.circuits.devices.cuda.session import Session
from encryptedstats.circuits.devices.cuda.steps import Keyed
from encryptedstats.circuits.devices.cuda.sums import CudaEvaluator, GpuTape
from encryptedstats.circuits.devices.native.device import compute_rows as compute_rows_natively
from encryptedstats.circuits.devices.native.device import rows_level, sums_over_a_chunk
from encryptedstats.circuits.devices.native.sums import Loads, row_obstacle
from encryptedstats.circuits.devices.native.tape import TapeWriter
from encryptedstats.circuits.devices.steps import StepByStep
from encryptedstats.circuits.program import Batch, Step
from encryptedstats.circuits.sources import Source
from encryptedstats.crypto.residues import Residues

_KEPT_TAPES: Final = 8


def compute_rows(session: Session, task: Task, batches: Iterable[Supplied]) -> Iterator[list[Any]]:
    """Compute steps over rows; the values stay on the GPU until they are switched down."""
    source, limit = task.source, task.memory_limit
    loads: Loads | None = None
    for batch, expanded in batches:
        keyed = session.load_keys(task.keys)
        if keyed is None:
            yield from compute_rows_natively(task, [(batch, copy_to_memory(expanded))])
            continue
        if row_obstacle(batch.steps, source.parameters) is not None:
            yield from StepByStep(session.start).rows(task, [(batch, copy_to_memory(expanded))])
            continue
        sum_of, writer, made = _tape_of(batch, source, expanded, keyed)
        loads = loads or Loads(source, rows_level(list(sum_of.values())), expanded, limit // 2)
        loads.expanded = expanded
        evaluator = CudaEvaluator(loads, task.workers, limit, keyed.ring)
        evaluator.writer = writer
        for chunk in range(source.layout.n_chunks):
            loads.make(made.tape.columns, chunk)
            evaluator.chunks = range(chunk, chunk + 1)
            columns = evaluator.groups_on_gpu(made.tape, session.columns_of(source), 0)
            found = evaluator.sums_on_gpu(made, columns)
            evaluator.check(made, found)
            yield [
                part_of(found.values, made.firsts[sum_of[step]], step.size) for step in batch.steps
            ]


def _tape_of(
    batch: Batch, source: Source, expanded: Mapping[Step, Residues], keyed: Keyed
) -> tuple[dict[Step, Step], TapeWriter, GpuTape]:
    """Return the steps of a batch as sums over one chunk, and their tape; keep the last ones."""
    name = batch.steps, source.layout.n_chunks > 1
    if name not in keyed.tapes:
        sum_of = sums_over_a_chunk(batch.steps)
        sums = list(sum_of.values())
        evaluator = CudaEvaluator(Loads(source, rows_level(sums), expanded, 0), 1, 0, keyed.ring)
        evaluator.prepare(sums)
        while len(keyed.tapes) >= _KEPT_TAPES:
            del keyed.tapes[next(iter(keyed.tapes))]
        keyed.tapes[name] = sum_of, evaluator.writer, GpuTape(evaluator.tape(sums), keyed.ring)
    found: tuple[dict[Step, Step], TapeWriter, GpuTape] = keyed.tapes[name]
    return found
