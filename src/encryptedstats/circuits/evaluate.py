"""Evaluate a circuit on an encrypted table: check it, compile it, and run it on a device."""

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
    get_devices,
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
    packs: Packs | None = None,
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
    """Evaluate a circuit and return its encrypted numbers.

    Bounds are checked against t, and noise against q, before anything is computed.

    Parameters
    ----------
    outputs : expressions
        Totals; with ``form="rows"`` expressions over rows, or plain numbers.
    source : an encrypted table
    form : "packed", "replicated", "slots" or "rows"
        Many totals in few ciphertexts; one total in all slots of a ciphertext; unsummed slots,
        which the owner adds up and which show rows; or numbers of every row, 0 in slots without a
        row.
    packs : mapping, optional
        Packed totals of earlier evaluations, by the names of ``expressions.pack_total``. Answers
        for rows without packs are those of a decrypted model and do not reveal its coefficients.
    workers : int, optional
        Processes or threads; all cores by default.
    progress : bool, optional
        A progress bar; by default on a terminal.
    device : str
        "native" for the kernels in C, which compute BGV; "seal" for SEAL alone, which gives the
        same residues; "auto" for the fastest device that can run the program. See
        :mod:`encryptedstats.circuits.devices`.
    memory_limit : int, optional
        Bytes that a device may hold of sums and of chunks that it reads ahead. By default a quarter
        of the free memory of the machine or container, from 256 MiB to 8 GiB. A stored table is
        read once with any limit: sums without room go to a temporary file, and totals without room
        are packed as they come.
    checkpoint : path or URL, optional
        A folder for intermediate sums, if the device supports it. A process that is started again
        with the same circuit, rows and folder continues from it. Saving the result removes it.
    bounds : intervals, optional
        Bounds of the outputs that are sharper than interval arithmetic.
    reported_bounds : intervals, optional
        Wider bounds that the result states instead.
    report : NoiseReport, optional
        A proof for at least these rows and outputs. Shards of a table share one proof, so that
        their results add up.
    flood : bool, optional
        Whether noise hides the rows from the receiver: see
        :mod:`encryptedstats.crypto.flooding`. By default if others encrypted the rows.
    """
    workers, packs = check_workers(workers), packs or {}
    check_device_name(device)
    compile_with = partial(
        compile_for,
        outputs,
        source,
        form=form,
        packs=packs,
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
    task = Task(ready.program, source, packs, Run(workers, memory_limit, checkpoint, progress))
    if form == ROWS:
        # All answers of decrypted models state the same noise, which hides the coefficients.
        noise = None if packs else resting_noise(source.parameters.noise)
        parts = execute(chosen, task, noise)
        rows = EncryptedNumbers(source.keys, ROWS, ready.facts, parts, counts=source.layout.counts)
        rows.program_digest = ready.digest
        return rows
    return _totals(ready, execute(chosen, task), source, checkpoint)


def choose_device(compile_with: Callable[..., Compiled], name: str) -> tuple[Compiled, Device]:
    """Return the program and its device: the one place where interleaving is decided.

    A device that does not gain from interleaving, such as a GPU, is asked first. Totals have the
    same places either way.
    """
    asked = get_devices().values() if name == AUTO else [get_devices()[name]]
    if any(one.is_here and not one.interleaves for one in asked):
        alone = compile_with(n_interleaved=1)
        chosen = device_for(name, alone.program)
        if not chosen.interleaves:
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
    # Results under a joint key are flooded by its members when they open them.
    flooded = None if source.with_secret_key or source.keys.joint else False
    if program.form != PACKED:  # one ciphertext for each total that was asked for
        parts = [parts[place] for place in ready.places]
    totals = EncryptedNumbers(
        source.keys,
        program.form,
        ready.facts,
        parts,
        program.layout.lanes if program.form == SLOTS else program.width,
        flooded=flooded,
        circuit=ready.circuit,
        places=ready.places if program.form == PACKED else (),
    )
    totals.program_digest = ready.digest
    totals.check_decrypts()
    totals = totals.with_flooding() if ready.floods else totals
    if checkpoint is not None:  # kept until the totals are stored
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
    packs: Packs | None = None,
    memory_limit: int | None = None,
    **conditions: Any,
) -> Compiled:
    """Compile outputs for a source, with all checks of :func:`evaluate`, without reading rows.

    Other options are fields of :class:`~encryptedstats.circuits.compiled.Conditions`.
    """
    packs, keys, outputs = packs or {}, source.keys, tuple(outputs)
    for totals in packs.values():
        keys.check_same(totals.keys)
        check_packed(totals)
    for name in ("bounds", "reported_bounds"):
        if conditions.get(name) is not None:
            conditions[name] = tuple(conditions[name])
    under = Conditions(
        source.parameters,
        source.layout,
        tuple(source.ranges().items()),
        source.with_secret_key,
        form,
        tuple(GivenPacks.of_numbers(name, totals) for name, totals in packs.items()),
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
                "form='rows' gives numbers of rows, not totals: choose form='packed'",
                code="totals-as-rows",
            )
        if any(
            node.op == REPLICATE
            for node in in_order(o for o in outputs if isinstance(o, Expression))
        ):
            raise ArgumentTypeError(
                "form='rows' cannot use totals of the same table: evaluate these first, and pass "
                "the result as packs=",
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
            f"form={form!r} shows rows, and flood=True hides them: choose form='packed'",
            code="flooded-not-packed",
        )
    if form != PACKED and not source.with_secret_key:
        raise ArgumentError(
            f"form={form!r} shows rows, and these were encrypted by contributors: choose "
            "form='packed'",
            code="others-rows-unpacked",
        )
    if form == PACKED and not source.keys.packs:
        raise KeyMismatchError(
            "these public keys cannot pack totals: use owner.public_keys(packing=True), or "
            "form='slots' for one ciphertext for each total",
            code="no-packing-keys",
        )
