"""Evaluating a circuit on an encrypted table: checked first, lowered to a program, run by a device,
brought into a form.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from encryptedstats.circuits.bounds import Interval
from encryptedstats.circuits.compiled import Compiled, Conditions, GivenPacks, compile_outputs
from encryptedstats.circuits.devices import (
    AUTO,
    Device,
    Run,
    Task,
    check_device_name,
    device_for,
    execute,
    registered,
)
from encryptedstats.circuits.devices.batches import check_packed
from encryptedstats.circuits.expressions import REPLICATE, Expression, in_order
from encryptedstats.circuits.passes.batching import HELD
from encryptedstats.circuits.program import (
    PACKED,
    REPLICATED,
    ROWS,
    SLOTS,
)
from encryptedstats.circuits.proof import NoiseReport, resting_noise
from encryptedstats.circuits.results import EncryptedNumbers, Part
from encryptedstats.circuits.sources import Source
from encryptedstats.errors import ArgumentError, ArgumentTypeError, DeviceError, KeyMismatchError
from encryptedstats.machine import check_workers
from encryptedstats.storage.objects import is_url

Packs = Mapping[str, EncryptedNumbers]


def evaluate(
    outputs: Sequence[Expression | int],
    source: Source,
    *,
    form: str = PACKED,
    given: Packs | None = None,
    workers: int | None = None,
    progress: bool | None = None,
    device: str = AUTO,
    memory_limit: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    bounds: Sequence[Interval] | None = None,
    reported_bounds: Sequence[Interval] | None = None,
    report: NoiseReport | None = None,
    flood: bool | None = None,
) -> EncryptedNumbers:
    """The encrypted numbers of a circuit. Checked before anything is computed: bounds against t,
    noise against q.

    Parameters
    ----------
    outputs : expressions
        Totals; with ``form="rows"`` expressions over rows, or plain numbers.
    source : an encrypted table
    form : "packed", "replicated", "slots" or "rows"
        Many totals in few ciphertexts; each in all slots of one; or unsummed, for the owner to add
        up: that shows rows, so it is for rows that the owner encrypted. Or numbers of every row, 0
        in slots without a row.
    given : mapping, optional
        Packed totals from elsewhere, by the name that the circuit gives them: see
        ``expressions.given``. Rows without any are answers of a plain model, whose coefficients are
        not told apart by what comes back.
    workers : int, optional
        Processes or threads; all cores by default.
    progress : bool, optional
        A progress bar; by default on a terminal.
    device : str
        What computes: "native", kernels in C for BGV, or "seal", SEAL alone, which gives the same
        residues; "auto" takes the fastest that can. See :mod:`encryptedstats.circuits.devices`.
    memory_limit : int, optional
        Bytes that a device may hold of sums and of chunks that it reads ahead. By default a quarter
        of the memory that the machine, or the container, has left, from 256 MiB to 8 GiB. A stored
        table is read once whatever it is: sums that have no room are kept in a temporary file.
        Totals that have no room until they are packed are merged as they come.
    checkpoint : path or URL, optional
        A folder for what is computed. A process that is interrupted and started again with the same
        circuit, rows and folder goes on from it; when the result is saved it is removed. For
        devices that can.
    bounds : intervals, optional
        Between which every output is known to lie, where who wrote the circuit knows more than
        intervals tell.
    reported_bounds : intervals, optional
        What the result says of its numbers, where that is to be less than is known here.
    report : NoiseReport, optional
        A proof for at least these rows and outputs, made elsewhere: results of shards of a table
        add up when all of them are computed and packed in the way that one proof holds for.
    flood : bool, optional
        Hide the rows from who opens the totals, by noise: see
        :mod:`encryptedstats.crypto.flooding`. By default where rows were encrypted by others.
    """
    workers, given = check_workers(workers), given or {}
    check_device_name(device)
    compile_with = partial(
        compile_for,
        outputs,
        source,
        form=form,
        given=given,
        memory_limit=memory_limit,
        bounds=bounds,
        reported_bounds=reported_bounds,
        report=report,
        flood=flood,
    )
    ready, chosen = choose_device(compile_with, device)
    why_not = None if checkpoint is None else chosen.checkpoint_obstacle(ready.program)
    if why_not is not None:
        raise DeviceError(
            f"checkpoint= cannot be kept here: {why_not}", code="checkpoint-unsupported"
        )
    task = Task(ready.program, source, given, Run(workers, memory_limit, checkpoint, progress))
    if form == ROWS:
        # All answers of plain models say the same of their noise, so that it tells nothing of the
        # coefficients.
        noise = None if given else resting_noise(source.parameters.noise)
        parts = execute(chosen, task, noise)
        rows = EncryptedNumbers(source.keys, ROWS, ready.facts, parts, counts=source.layout.counts)
        rows.program_digest = ready.digest
        return rows
    return _totals(ready, execute(chosen, task), source, checkpoint)


def choose_device(compile_with: Callable[..., Compiled], name: str) -> tuple[Compiled, Device]:
    """Return the program and its device: the one place where interleaving is decided.

    A device that gains nothing from interleaving is asked first, where there is one: it is a GPU,
    and takes whatever it can. Totals lie in the same places either way.
    """
    asked = registered().values() if name == AUTO else [registered()[name]]
    if any(one.is_here and not one.side_by_side for one in asked):
        alone = compile_with(beside=1)
        chosen = device_for(name, alone.program)
        if not chosen.side_by_side:
            return alone, chosen
    ready = compile_with()
    return ready, device_for(name, ready.program)


def _totals(
    ready: Compiled,
    parts: Sequence[Part],
    source: Source,
    checkpoint: str | os.PathLike[str] | None,
) -> EncryptedNumbers:
    program = ready.program
    # What belongs to a joint key is flooded by its members, when they open it.
    flooded = None if source.with_secret_key or source.keys.joint else False
    if program.form != PACKED:  # one ciphertext for each total that was asked for
        parts = [parts[place] for place in ready.places]
    totals = EncryptedNumbers(
        source.keys,
        program.form,
        ready.facts,
        parts,
        program.width,
        flooded=flooded,
        circuit=ready.circuit,
        places=ready.places if program.form == PACKED else (),
    )
    totals.program_digest = ready.digest
    totals.check_decrypts()
    totals = totals.with_flooding() if ready.floods else totals
    if checkpoint is not None:  # kept until they are stored
        totals.checkpoints = (
            checkpoint if is_url(os.fspath(checkpoint)) else os.path.abspath(checkpoint),
        )
    return totals


# -- before anything is computed
# ---------------------------------------------------------------------


def compile_for(
    outputs: Sequence[Expression | int],
    source: Source,
    *,
    form: str = PACKED,
    given: Packs | None = None,
    memory_limit: int | None = None,
    **conditions: Any,
) -> Compiled:
    """Compile outputs for the rows of a source, with all checks of :func:`evaluate`; no row is
    read.

    Other options are fields of :class:`~encryptedstats.circuits.compiled.Conditions`.
    """
    given, keys, outputs = given or {}, source.keys, tuple(outputs)
    for packs in given.values():
        keys.check_same(packs.keys)
        check_packed(packs)
    for name in ("bounds", "reported_bounds"):
        if conditions.get(name) is not None:
            conditions[name] = tuple(conditions[name])
    under = Conditions(
        source.parameters,
        source.layout,
        tuple(source.ranges().items()),
        source.with_secret_key,
        form,
        tuple(GivenPacks.of_numbers(name, packs) for name, packs in given.items()),
        held=HELD if memory_limit is None else min(HELD, memory_limit // 4),
        **conditions,
    )
    _check_form(outputs, source, form, under.floods)
    return compile_outputs(outputs, under)


def _check_form(
    outputs: Sequence[Expression | int], source: Source, form: str, flood: bool
) -> None:
    if form not in (PACKED, REPLICATED, SLOTS, ROWS):
        raise ArgumentError(
            f"form={form!r}: totals come 'packed', 'replicated' or in 'slots', and numbers of "
            "rows as 'rows'",
            code="unknown-form",
        )
    if form == ROWS:
        if any(isinstance(output, Expression) and output.is_total for output in outputs):
            raise ArgumentTypeError(
                "a total is no number of a row: form='packed'", code="totals-as-rows"
            )
        if any(
            node.op == REPLICATE
            for node in in_order(o for o in outputs if isinstance(o, Expression))
        ):
            raise ArgumentTypeError(
                "rows are not computed beside totals of their own table at once: pack those "
                "first, given=",
                code="rows-beside-totals",
            )
        return
    if not outputs or not all(
        isinstance(output, Expression) and output.is_total for output in outputs
    ):
        raise ArgumentTypeError(
            "a circuit is evaluated to totals: write .total() for the sum over rows",
            code="not-a-total",
        )
    if form != PACKED and flood and source.with_secret_key:
        raise ArgumentError(
            f"form={form!r} shows rows, and flood=True hides them: form='packed'",
            code="flooded-not-packed",
        )
    if form != PACKED and not source.with_secret_key:
        raise ArgumentError(
            f"form={form!r} is for rows that the owner encrypted. These were encrypted by others, "
            "and who opens their totals is to "
            "learn nothing else of them: form='packed'",
            code="others-rows-unpacked",
        )
    if form == PACKED and not source.keys.packs:
        raise KeyMismatchError(
            "these public keys cannot pack totals: take owner.public_keys(packing=True), or "
            "form='slots' for one ciphertext a total",
            code="no-packing-keys",
        )
