"""Totals and packs on a GPU, by tapes or step by step; elsewhere if the GPU has no room."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any, Final

import numpy as np

from encryptedstats.circuits.devices.base import Task
from encryptedstats.circuits.devices.cuda.lower import (
    copy_to_memory,
    fetch,
    lower_known,
    lower_sums,
    lower_together,
    lower_totals,
    part_of,
)
from encryptedstats.circuits.devices.cuda.packing import merge_on_gpu
from encryptedstats.circuits.devices.cuda.session import LoadedTape, RecordedPacks, Session
from encryptedstats.circuits.devices.cuda.sums import Columns, CudaEvaluator
from encryptedstats.circuits.devices.native.device import compute_totals as compute_totals_natively
from encryptedstats.circuits.devices.native.device import loads_of, program_obstacle, totals_by_tape
from encryptedstats.circuits.devices.native.steps import base_below
from encryptedstats.circuits.devices.native.sums import sums_under
from encryptedstats.circuits.devices.steps import StepByStep, batches_of, collect_known
from encryptedstats.circuits.program import EXPAND, SUM, Step
from encryptedstats.crypto.residues import Residues
from encryptedstats.progress import progress_bar

_GROUPS: Final = 4  # of chunks that have room on the GPU: one is computed on, others are brought


# -- totals ----------------------------------------------------------------------------------------


def compute_totals(
    session: Session, task: Task, expanded: Mapping[Step, Residues]
) -> Iterator[dict[Step, Residues]]:
    """Compute outputs at once if the GPU has room; otherwise slice by slice, or natively."""
    found = session.attempt(lambda: _totals_at_once(session, task, expanded))
    keyed = session.load_keys(task.keys)
    if found is not None:
        yield found
    elif keyed is None or program_obstacle(task.program) is not None:
        yield from compute_totals_natively(task, copy_to_memory(expanded))
    else:
        make_evaluator = partial(CudaEvaluator, ring=keyed.ring)
        yield from totals_by_tape(
            task, copy_to_memory(expanded), make_evaluator, partial(lower_totals, session)
        )


def _totals_at_once(
    session: Session, task: Task, expanded: Mapping[Step, Residues]
) -> dict[Step, Residues] | None:
    if _takes_steps(session, task):
        found = _totals_by_steps(session, task, expanded)
        return dict(zip(found, fetch(list(found.values())), strict=True))
    loaded = load_tape(session, task, expanded)
    keyed = session.load_keys(task.keys)
    if loaded is None or keyed is None:
        return None
    sums = loaded.evaluator.sums_on_gpu(loaded.made, loaded.columns)
    loaded.evaluator.check(loaded.made, sums)
    firsts = loaded.made.firsts
    outputs = list(dict.fromkeys(output.step for output in task.program.outputs))
    direct = [step for step in outputs if base_below(step, firsts) in firsts]
    found = lower_sums(keyed, direct, sums.values, firsts)
    others = [step for step in outputs if step not in found]
    if others:
        known = {
            total: part_of(sums.values, firsts[total], total.size) for total in sums_under(others)
        }
        found |= zip(others, lower_known(session, others, known, task.keys), strict=True)
    return dict(zip(found, fetch(list(found.values())), strict=True))


def _takes_steps(session: Session, task: Task) -> bool:
    """Return True if the GPU evaluates steps one by one, because there is no tape."""
    has_gpu = session.load_keys(task.keys) is not None
    return (
        has_gpu and task.options.checkpoint is None and program_obstacle(task.program) is not None
    )


def _totals_by_steps(
    session: Session, task: Task, expanded: Mapping[Step, Residues]
) -> dict[Step, Any]:
    """Evaluate outputs step by step; they stay on the GPU."""
    by_steps = StepByStep(session.start, partial(lower_known, session))
    known = collect_known(expanded, task.source.layout.n_chunks)
    found: dict[Step, Any] = {}
    for batch in batches_of(task.program):
        found |= zip(batch, by_steps.batch(task.program, batch, task.source, known), strict=True)
    return found


# -- packs -----------------------------------------------------------------------------------------


def compute_packs(
    session: Session, task: Task, expanded: Mapping[Step, Residues]
) -> list[Residues] | None:
    """Compute totals and pack them on the GPU; return None if they have to leave it in between.

    A program that runs again on the same table is a recorded graph, started by one call.
    """
    with session.lock:
        return session.attempt(lambda: _compute_packs(session, task, expanded))


def _compute_packs(
    session: Session, task: Task, expanded: Mapping[Step, Residues]
) -> list[Residues] | None:
    known = session.recorded
    if known is not None and known.are_of(task, expanded):
        evaluator = known.loaded.evaluator
        evaluator.gpu.again(known.recording)
        evaluator.check(known.loaded.made, known.sums)
        return [np.asarray(pack) for pack in known.packs]
    if _takes_steps(session, task):
        found, keyed = _totals_by_steps(session, task, expanded), session.load_keys(task.keys)
        assert keyed is not None
        level = task.program.n_interleaved.bit_length() - 1
        return [
            merge_on_gpu(keyed, [found[arg] for arg in pack.args], level, start=level)
            for pack in task.program.packs
        ]
    if any(base_below(arg, {}).op != SUM for pack in task.program.packs for arg in pack.args):
        return None
    loaded = load_tape(session, task, expanded)
    return None if loaded is None else _pack_sums(session, task, loaded)


def _pack_sums(session: Session, task: Task, loaded: LoadedTape) -> list[Residues]:
    evaluator, made, source = loaded.evaluator, loaded.made, task.source
    keyed = session.load_keys(task.keys)
    assert keyed is not None
    level = task.program.n_interleaved.bit_length() - 1
    packing_keys, _ = keyed.packing, keyed.relinearisation  # there before anything is recorded
    # A recording does not bring columns to the GPU: it is made when all of them are there.
    with evaluator.gpu.record() if loaded.stays else nullcontext() as recording:
        sums = evaluator.sums_on_gpu(made, loaded.columns)
        packs = [
            keyed.ring.pack(
                lower_together(keyed, pack.args, sums.values, made.firsts),
                packing_keys,
                level,
                start=level,
            )[0]
            for pack in task.program.packs
        ]
    evaluator.check(made, sums)
    found = [np.asarray(pack) for pack in packs]
    if recording is not None and recording.whole and source.content_id is not None:
        session.recorded = RecordedPacks(
            task.program, source.content_id, task.keys, loaded, sums, packs, recording
        )
    return found


# -- tapes -----------------------------------------------------------------------------------------


def load_tape(session: Session, task: Task, expanded: Mapping[Step, Residues]) -> LoadedTape | None:
    """Upload a tape and its columns; return None if there is no room, or no tape."""
    program, source = task.program, task.source
    if task.options.checkpoint is not None or program_obstacle(program) is not None:
        return None
    keyed = session.load_keys(task.keys)
    if keyed is None:
        return None
    evaluator = CudaEvaluator(loads_of(task, expanded), task.workers, task.memory_limit, keyed.ring)
    writer, made = session.tapes.get(program, (None, None))
    if writer is None or made is None:
        made = evaluator.compile_tape(program.sums)
        writer = evaluator.writer
        session.tapes[program] = (writer, made)
    evaluator.writer = writer
    sums, whole, few = evaluator.bytes_on_gpu(made)
    _, total = evaluator.gpu.memory()
    room = int(total * 0.9) - sums
    if room < _GROUPS * few:
        return None
    if room < whole:  # some chunks after the others, none of which stays
        columns = evaluator.groups_on_gpu(made.tape, None, room // _GROUPS)
        return LoadedTape(evaluator, made, _show_progress(columns, task), stays=False)
    held = session.columns_of(source)
    is_plain = not any(load.op == EXPAND for load in made.tape.columns)
    stays = is_plain and evaluator.has_all(made.tape, held)
    columns = evaluator.groups_on_gpu(made.tape, held, room)
    return LoadedTape(
        evaluator, made, list(columns) if stays else _show_progress(columns, task), stays
    )


def _show_progress(columns: Iterable[Columns], task: Task) -> Iterator[Columns]:
    source = task.source
    with progress_bar("computing", source.layout.n_rows, "rows", task.options.progress) as advance:
        for some in columns:
            yield some
            advance(sum(source.layout.counts[chunk] for chunk in some.chunks))
