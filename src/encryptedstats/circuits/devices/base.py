"""The protocol of a device, and the registry of all devices.

A device works on residues, holds no secret, and makes no decisions: lowering has made them all.
Every device returns SEAL's residues, bit for bit. A new device is a subclass of :class:`Device`
with ``obstacle`` and ``run``, built from the helpers of this package, and a call of
:func:`register`. ``tests/circuits/test_devices.py`` runs every registered device.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final

import numpy as np

from encryptedstats.circuits.program import PACK, PACKED, ROWS, Program, Step
from encryptedstats.circuits.results import EncryptedNumbers, Part
from encryptedstats.circuits.sources import Source
from encryptedstats.crypto.keys import PublicKeys
from encryptedstats.crypto.noise import Noise
from encryptedstats.crypto.packing import packing_primes
from encryptedstats.crypto.parameters import Parameters
from encryptedstats.crypto.residues import Residues
from encryptedstats.errors import Cure, DeviceError
from encryptedstats.machine import cores, default_limit

AUTO = "auto"
_MOST_HELD: Final = 128 << 20  # bytes of sums: more is fresh memory, which takes longer


@dataclass(frozen=True)
class Run:
    """Options of running a program.

    Attributes
    ----------
    workers : int, optional
        Processes or threads; all cores by default.
    memory_limit : int, optional
        Bytes for sums and for columns that are read ahead.
    checkpoint : path or URL, optional
        Where sums are kept, so that another process can continue from them.
    progress : bool, optional
        A progress bar; by default on a terminal.
    """

    workers: int | None = None
    memory_limit: int | None = None
    checkpoint: str | os.PathLike[str] | None = None
    progress: bool | None = None


@dataclass(frozen=True)
class Task:
    """A program with everything that is needed to run it.

    Attributes
    ----------
    program : Program
    source : Source
        The encrypted columns.
    packs : mapping
        Packed totals of earlier programs, by their name in the program.
    options : Run
    """

    program: Program
    source: Source
    packs: Mapping[str, EncryptedNumbers]
    options: Run

    @property
    def keys(self) -> PublicKeys:
        return self.source.keys

    @property
    def workers(self) -> int:
        """Number of processes or threads."""
        return self.options.workers or cores()

    @property
    def memory_limit(self) -> int:
        """Bytes that may be held."""
        limit = self.options.memory_limit
        return default_limit() if limit is None else limit


@dataclass(frozen=True)
class Speed:
    """Seconds per word of residues written over rows and on totals, on one core or one GPU.

    ``start`` is the time before the first of them.
    """

    rows: float
    totals: float
    start: float = 0.0

    def seconds(self, program: Program) -> float:
        """Estimate how long a program takes."""
        rows, totals = program.words
        return self.start + self.rows * rows + self.totals * totals


class Device(ABC):
    """The base class of devices, with a ``name``, ``run`` and usually ``obstacle``."""

    name: ClassVar[str]
    #: By which ``device="auto"`` compares devices.
    speed: ClassVar[Speed] = Speed(rows=1e-6, totals=1e-6)
    #: Whether the device gains from interleaving several totals in one ciphertext.
    interleaves: ClassVar[bool] = True

    @property
    def is_here(self) -> bool:
        """True if this machine has what the device needs. Nothing is opened to find out."""
        return True

    def obstacle(self, program: Program) -> str | None:
        """Say why the device cannot run this program; return None if it can."""
        return None

    @abstractmethod
    def run(self, task: Task) -> Iterable[Residues]:
        """Run a program and return its results, each of shape (polynomials, primes, N).

        These are the packs of a packed program; for a program over rows, one ciphertext per chunk
        for each output in turn; for other programs one ciphertext per output.
        """

    def sums(self, task: Task) -> Iterator[Mapping[Step, Residues]]:
        """Yield the outputs of a program of sums, some at a time, each once.

        The next ones may overwrite the memory of the last.
        """
        steps = list(dict.fromkeys(output.step for output in task.program.outputs))
        for some in _group_by_size(steps, task):
            part = replace(task, program=task.program.part(some))
            found = (one.residues for one in execute(self, part))
            yield dict(zip(some, found, strict=True))

    def seconds(self, program: Program) -> float:
        """Estimate how long a program takes; this is asked before every run, so it is quick."""
        return self.speed.seconds(program)

    def checkpoint_obstacle(self, program: Program) -> str | None:
        """Say why the device cannot keep a checkpoint of this program; return None if it can."""
        return f"the device {self.name!r} adds up in memory"


def _group_by_size(steps: Sequence[Step], task: Task) -> Iterator[list[Step]]:
    """Yield neighbouring steps whose values fit in the memory, at least one at a time."""
    group, held, bytes_of = list[Step](), 0, task.program.parameters.ciphertext_bytes
    limit = min(_MOST_HELD, task.memory_limit // 2)
    for step in steps:
        more = bytes_of(step.size)
        if group and held + more > limit:
            yield group
            group, held = [], 0
        group.append(step)
        held += more
    yield group


_devices: dict[str, Device] = {}  # of two equally fast ones, the first is taken


def register(device: Device, *, preferred: bool = False) -> None:
    """Make a device known by its name; ``preferred`` puts it before equally fast ones."""
    others = {name: known for name, known in _devices.items() if name != device.name}
    _devices.clear()
    _devices.update(
        {device.name: device, **others} if preferred else {**others, device.name: device}
    )


def unregister(name: str) -> None:
    """Forget a device."""
    _devices.pop(name, None)


def get_devices() -> dict[str, Device]:
    """Return all devices by name."""
    return dict(_devices)


def present() -> list[str]:
    """Return the names of the devices whose requirements this machine meets."""
    return [name for name, device in _devices.items() if device.is_here]


def check_device_name(name: str) -> str:
    """Return a name, or raise an error if no device has it."""
    if name != AUTO and name not in _devices:
        known = ", ".join(repr(known) for known in (AUTO, *_devices))
        raise DeviceError(
            Cure("device", f"device={name!r}", {"device": name}),
            f": there are {known}",
            code="unknown-device",
        )
    return name


_ANY_DEVICE: Final = Cure("any device", 'device="auto" chooses one that can')


def device_for(name: str, program: Program) -> Device:
    """Return the device of this name if it can run the program; for "auto" the cheapest one."""
    if check_device_name(name) == AUTO:
        return _devices[next(iter(prices([program])))]
    device = _devices[name]
    why_not = device.obstacle(program)
    if why_not is not None:
        asked = Cure("device", f"device={name!r}", {"device": name})
        raise DeviceError(
            asked, f" cannot run this program: {why_not}; ", _ANY_DEVICE, code="device-unable"
        )
    return device


def prices(programs: Sequence[Program]) -> dict[str, float]:
    """Estimate the seconds that some programs take on each device that can run all of them.

    The cheapest device comes first.

    Raises
    ------
    DeviceError
        If no device can.
    """
    able = [
        name
        for name, device in _devices.items()
        if device.is_here and not any(map(device.obstacle, programs))
    ]
    if not able:
        reasons = (
            f"{name}: {next(filter(None, map(device.obstacle, programs)), 'not on this machine')}. "
            for name, device in _devices.items()
        )
        raise DeviceError("no device can run this program: ", *reasons, code="no-device-able")
    found = {name: sum(map(_devices[name].seconds, programs)) for name in able}
    return dict(sorted(found.items(), key=lambda entry: entry[1]))


def execute(device: Device, task: Task, noise: Noise | None = None) -> list[Part]:
    """Run a program, and refuse results that are not what it says.

    ``noise`` is what the results say of their noise; by default that of their steps.
    """
    steps, parts = _result_steps(task), list[Part]()
    for residues in device.run(task):
        if len(parts) == len(steps):
            raise _fault(device, f"it gives more than {len(steps)} ciphertexts")
        step = steps[len(parts)]
        fault = _find_fault(residues, step, task.program.parameters)
        if fault is not None:
            raise _fault(device, fault)
        parts.append(Part(residues, noise or step.noise))
    if len(parts) < len(steps):
        raise _fault(device, f"it gives {len(parts)} of {len(steps)} ciphertexts")
    return parts


def _result_steps(task: Task) -> list[Step]:
    """Return the step that each result is the value of."""
    program = task.program
    if program.form == PACKED:
        return list(program.packs)
    n_chunks = task.source.layout.n_chunks if program.form == ROWS else 1
    return [output.step for output in program.outputs for _ in range(n_chunks)]


def _find_fault(residues: Residues, step: Step, parameters: Parameters) -> str | None:
    """Say what is wrong with the value of a step: its type, size or level, or its residues."""
    is_pack = step.op == PACK
    primes = packing_primes(parameters) if is_pack else len(parameters.data_moduli) - step.level
    shape = (2 if is_pack else step.size, primes, parameters.ring_degree)
    if residues.dtype != np.uint64 or residues.shape != shape:
        return (
            f"it gives {residues.dtype} of shape {residues.shape}, not 64-bit words of shape "
            f"{shape}"
        )
    moduli = np.array(parameters.data_moduli[:primes], dtype=np.uint64)
    if (residues.max(axis=(0, 2)) >= moduli).any():
        return "it gives residues that are not below their primes"
    return None


def _fault(device: Device, why: str) -> DeviceError:
    return DeviceError(
        f"the device {device.name!r} does not do what its program says: {why}", code="faulty-device"
    )
