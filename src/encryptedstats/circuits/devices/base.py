"""What runs programs: the protocol of a device, and the registry that knows them all.

A device works on residues, holds no secret, and decides nothing that lowering has decided: it gives SEAL's residues, bit for bit.
A new one is one file: a subclass of :class:`Device`, or of :class:`~encryptedstats.circuits.devices.seal.SealDevice` for what it
does not do itself, and a call of :func:`register`. ``tests/circuits/test_devices.py`` runs all that are registered.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from encryptedstats.circuits.program import Program, Step
from encryptedstats.circuits.sources import Source
from encryptedstats.crypto.keys import PublicKeys
from encryptedstats.crypto.residues import Residues
from encryptedstats.errors import Cure, DeviceError

AUTO = "auto"


@dataclass(frozen=True)
class Run:
    """How a program is run.

    Attributes
    ----------
    workers : int, optional
        Processes or threads; all cores by default.
    memory_limit : int, optional
        Bytes that may be held of sums and of what is read ahead.
    checkpoint : path or URL, optional
        Where sums are kept, so that another process can go on from them.
    progress : bool, optional
        A progress bar; by default on a terminal.
    """

    workers: int | None = None
    memory_limit: int | None = None
    checkpoint: str | os.PathLike[str] | None = None
    progress: bool | None = None


@dataclass(frozen=True)
class Speed:
    """Seconds on one core, or one card: to begin, and for a word of residues that is written over rows and on totals."""

    rows: float
    totals: float
    start: float = 0.0


class Device(ABC):
    """Something that runs programs. All operations are on residues, (polynomials, primes, N) for each ciphertext."""

    name: ClassVar[str]
    #: Whether it is worth its while to bring down many totals in one ciphertext.
    side_by_side: ClassVar[bool] = True

    @property
    def is_here(self) -> bool:
        """Whether this machine has what it needs; nothing is opened to find out."""
        return True

    @abstractmethod
    def obstacle(self, program: Program) -> str | None:
        """Why it cannot run this program; None if it can."""

    @abstractmethod
    def seconds(self, program: Program) -> float:
        """About how long a program would take. It is asked before every computation, so it has to be quick: ``program.words``."""

    @abstractmethod
    def checkpoint_obstacle(self, program: Program) -> str | None:
        """Why it cannot keep a checkpoint of this program; None if it can."""

    @abstractmethod
    def totals(
        self, program: Program, source: Source, given: Mapping[Step, Residues], run: Run
    ) -> Iterator[dict[Step, Residues]]:
        """The outputs of a program of totals, in their form but for packing, some at a time, by their steps."""

    def packs(
        self, program: Program, source: Source, given: Mapping[Step, Residues], run: Run
    ) -> Iterable[Residues] | None:
        """The packs of a program of packed totals, where totals need not leave the device for it; else None."""
        return None

    @abstractmethod
    def rows(
        self, batches: Iterable[tuple[Sequence[Step], Mapping[Step, Residues]]], source: Source, run: Run
    ) -> Iterator[list[Residues]]:
        """Steps over rows: for each batch, with the given totals that it needs, chunk after chunk the value of each."""

    @abstractmethod
    def bring_down(
        self, steps: Sequence[Step], known: Mapping[Step, Residues], keys: PublicKeys, workers: int | None = None
    ) -> list[Residues]:
        """Steps that are computed from single ciphertexts which are known: switched, relinearised, added up, rotated."""

    @abstractmethod
    def pack(
        self, totals: Sequence[Residues], keys: PublicKeys, workers: int | None = None, start: int = 0
    ) -> Residues:
        """Totals under the primes of the packing context, merged into one ciphertext that holds them and nothing else.

        Each ciphertext has 2^start of them side by side.
        """

    @abstractmethod
    def merge(
        self,
        parts: Sequence[Residues],
        level: int,
        to: int,
        keys: PublicKeys,
        workers: int | None = None,
        start: int = 0,
    ) -> Residues:
        """Neighbouring parts of a pack, of 2^level places each, as one of 2^to.

        Where ``level`` is ``start`` they are totals, as for :meth:`pack`.
        """

    @abstractmethod
    def split(self, node: Residues, level: int, keys: PublicKeys, *, odd: bool, start: int = 0) -> Sequence[Residues]:
        """A part of a pack, of 2^level places, in two: the first half of its places, and (``odd``) the others.

        ``start`` is the level that it will be split down to.
        """

    @abstractmethod
    def expand(
        self,
        node: Residues,
        count: int,
        level: int,
        keys: PublicKeys,
        workers: int | None = None,
        start: int = 0,
    ) -> Iterable[Residues]:
        """The first ``count`` totals of a part of a pack, of 2^level places: each in every slot of a ciphertext, or 2^start side by
        side."""


_devices: dict[str, Device] = {}  # of two that are as fast, the first is taken


def register(device: Device, *, preferred: bool = False) -> None:
    """Make a device known by its name; ``preferred``: before all others that are as fast, not after them."""
    others = {name: known for name, known in _devices.items() if name != device.name}
    _devices.clear()
    _devices.update({device.name: device, **others} if preferred else {**others, device.name: device})


def unregister(name: str) -> None:
    """Forget a device."""
    _devices.pop(name, None)


def registered() -> dict[str, Device]:
    """All devices by name."""
    return dict(_devices)


def present() -> list[str]:
    """The names of those that this machine has what they need for."""
    return [name for name, device in _devices.items() if device.is_here]


def checked_name(name: str) -> str:
    """Refuse a name that no device has."""
    if name != AUTO and name not in _devices:
        known = ", ".join(repr(known) for known in (AUTO, *_devices))
        raise DeviceError(Cure("device", f"device={name!r}", {"device": name}), f": there are {known}")
    return name


_ANY_DEVICE: Final = Cure("any device", 'device="auto" chooses one that can')


def device_for(name: str, program: Program) -> Device:
    """The device of this name, if it can run the program; for "auto" the cheapest that can."""
    if checked_name(name) == AUTO:
        return _devices[next(iter(prices([program])))]
    device = _devices[name]
    why_not = device.obstacle(program)
    if why_not is not None:
        asked = Cure("device", f"device={name!r}", {"device": name})
        raise DeviceError(asked, f" cannot do this: {why_not}; ", _ANY_DEVICE)
    return device


def prices(programs: Sequence[Program]) -> dict[str, float]:
    """What some programs would take on each device that can run all of them, in about so many seconds; the cheapest first.

    Raises
    ------
    DeviceError
        Where none can.
    """
    why_not = {name: [device.obstacle(program) for program in programs] for name, device in _devices.items()}
    able = [name for name, obstacles in why_not.items() if not any(obstacles)]
    if not able:
        reasons = (f"{name}: {next(filter(None, obstacles))}. " for name, obstacles in why_not.items())
        raise DeviceError("no device is registered that can do this: ", *reasons)
    found = {name: sum(map(_devices[name].seconds, programs)) for name in able}
    return dict(sorted(found.items(), key=lambda entry: entry[1]))
