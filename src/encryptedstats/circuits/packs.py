"""From sums over rows to something small: totals switched down, relinearised and merged into packs, and packs taken apart again.

By the kernels where there are any, else by SEAL, to the same residues.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from encryptedstats.circuits.noise import PACKED
from encryptedstats.circuits.results import EncryptedTotals, Part
from encryptedstats.circuits.seal import relinearise_any
from encryptedstats.circuits.walk import BATCH, Finish, plan_finish
from encryptedstats.crypto.engine import engine_for
from encryptedstats.crypto.keys import PublicKeys
from encryptedstats.crypto.noise import Noise
from encryptedstats.crypto.packing import (
    expanded_noise,
    expansion_scale,
    packed_noise,
    packing_levels,
    packing_model,
    packing_parameters,
    packing_primes,
    to_packing_context,
)
from encryptedstats.crypto.parameters import Parameters
from encryptedstats.crypto.residues import Residues, ciphertext_of, residues_of
from encryptedstats.parallel import cores, ordered_map

_EXPANDED_AT_ONCE: Final = 64  # totals: a few megabytes each


def lower_totals(keys: PublicKeys, totals: Sequence[Part], workers: int | None = None) -> list[Part]:
    """Sums over rows, of any size, brought down to the primes of the packing context: by the kernels, or else by SEAL."""
    parameters, model = keys.parameters, keys.parameters.noise
    plans = [plan_finish(parameters, part.noise) for part in totals]
    finishes = [finish for finish in plans if finish is not None]
    if len(finishes) < len(plans):
        raise AssertionError("the noise reader has accepted what cannot be packed")
    residues: Iterable[Residues]
    if keys.kernels is not None:
        levels = [finish.relinearise_at for finish in finishes]
        residues = keys.kernels.lower([part.residues for part in totals], levels, workers)
    else:
        residues = [_lowered(keys, part, finish) for part, finish in zip(totals, finishes, strict=True)]
    noises = [
        model.switch(model.relinearise(model.switch(part.noise, finish.relinearise_at)), finish.level)
        for part, finish in zip(totals, finishes, strict=True)
    ]
    return [Part(low, noise) for low, noise in zip(residues, noises, strict=True)]


def _lowered(keys: PublicKeys, part: Part, finish: Finish) -> Residues:
    engine = keys.engine
    ciphertext, level = ciphertext_of(engine, part.residues), part.noise.level
    if level < finish.relinearise_at:
        ciphertext = engine.evaluator.mod_switch_to(ciphertext, engine.level_ids[finish.relinearise_at])
    if ciphertext.size() > 2:
        ciphertext = relinearise_any(keys, ciphertext)
    if finish.relinearise_at < finish.level:
        ciphertext = engine.evaluator.mod_switch_to(ciphertext, engine.level_ids[finish.level])
    return residues_of(engine, ciphertext)


def pack_totals(keys: PublicKeys, totals: Sequence[Part], width: int, workers: int | None = None) -> list[Part]:
    """Lowered totals merged, up to ``width`` into one ciphertext of the packing context, which holds them and nothing else."""
    packs = [totals[start : start + width] for start in range(0, len(totals), width)]
    return [_packed(keys, pack, workers) for pack in packs]


def _packed(keys: PublicKeys, totals: Sequence[Part], workers: int | None) -> Part:
    """One pack, by the kernels or else by SEAL: processes pack some neighbours each, and what they bring is merged."""
    parameters, engine = keys.parameters, keys.engine
    small = engine_for(packing_parameters(parameters))
    model = packing_model(parameters, packing_primes(parameters))
    worst = Noise(max(part.noise.flat for part in totals), max(part.noise.peak for part in totals))
    noise = packed_noise(model, worst)
    if keys.kernels is not None and keys.packs:
        return Part(keys.kernels.pack([part.residues for part in totals], threads=workers), noise)

    def packed(some: Sequence[Part], level: int | None) -> Any:
        return keys.pack([to_packing_context(engine, ciphertext_of(engine, part.residues)) for part in some], level)

    if len(totals) <= BATCH:
        return Part(residues_of(small, packed(totals, None)), noise)
    level = max(1, packing_levels(-(-len(totals) // (workers or cores()))))
    firsts = range(0, len(totals), 1 << level)
    parts = ordered_map(
        lambda first: residues_of(small, packed(totals[first : first + (1 << level)], level)), firsts, len(firsts)
    )
    return Part(residues_of(small, keys.pack([ciphertext_of(small, r) for r in parts], lowest=level)), noise)


# -- taking packs apart ---------------------------------------------------------------------------------------------------


def expanded_noises(totals: EncryptedTotals) -> list[Noise]:
    """The noise of every packed total once it is expanded, as a ciphertext under the primes of the packing context."""
    parameters = totals.keys.parameters
    model, dropped = packing_model(parameters, packing_primes(parameters)), _dropped(parameters)
    noises = [expanded_noise(model, part.noise) for part in totals.parts]
    return [replace(noises[k // totals.width], level=dropped) for k in range(len(totals))]


def expansion_scales(totals: EncryptedTotals) -> list[int]:
    """What every total is multiplied by, modulo t, once it is expanded: nothing, where it was in all slots."""
    parameters = totals.keys.parameters
    scale = expansion_scale(parameters.ring_degree, parameters.plain_modulus)
    return [1 if facts.each else scale for facts in totals.facts]


def check_packed(totals: EncryptedTotals) -> None:
    """Refuse what cannot be expanded."""
    if totals.form != PACKED:
        raise ValueError(f"totals in form {totals.form!r} are no packs, and only packs can be expanded: form='packed'")


def expand_totals(
    totals: EncryptedTotals, wanted: Collection[int], workers: int | None = None
) -> Iterator[tuple[int, Residues]]:
    """Packed totals with their numbers, in order: each in all slots of a ciphertext under the primes of the packing context.

    A pack is parted into halves again and again, the first totals first, so that few ciphertexts are held at a time; parts that
    hold no ``wanted`` total are left alone.
    """
    check_packed(totals)
    chosen = np.zeros(len(totals), dtype=bool)
    chosen[list(wanted)] = True
    for number, part in enumerate(totals.parts):
        numbers = range(number * totals.width, min((number + 1) * totals.width, len(totals)))
        if chosen[numbers.start : numbers.stop].any():
            yield from _expanded(totals.keys, part.residues, numbers, chosen, workers)


def _expanded(
    keys: PublicKeys, pack: Residues, numbers: range, chosen: NDArray[np.bool_], workers: int | None
) -> Iterator[tuple[int, Residues]]:
    apart: _Parts = _KernelParts(keys, workers) if keys.kernels is not None else _SealParts(keys, workers)
    top = keys.parameters.ring_degree.bit_length() - 1
    for group, level, node in _groups(apart, apart.whole(pack), numbers, top, chosen):
        yield from zip(group, apart.expanded(node, len(group), level), strict=True)


def _groups(
    apart: _Parts, node: Any, numbers: range, level: int, chosen: NDArray[np.bool_]
) -> Iterator[tuple[range, int, Any]]:
    """Nodes of at most so many totals, first totals first; nodes above them are parted when it is their turn."""
    if not chosen[numbers.start : numbers.stop].any():
        return
    if 1 << level <= _EXPANDED_AT_ONCE:
        yield numbers, level, node
        return
    half = 1 << (level - 1)
    parts = apart.parted(node, level, odd=len(numbers) > half)
    for part, some in zip(parts, (numbers[:half], numbers[half:]), strict=False):
        yield from _groups(apart, part, some, level - 1, chosen)


class _Parts(Protocol):
    """What taking a pack apart needs, on nodes of some kind."""

    def whole(self, pack: Residues) -> Any:
        """A pack as a node."""

    def parted(self, node: Any, level: int, *, odd: bool) -> Sequence[Any]:
        """The first half of the places, and (``odd``) the others."""

    def expanded(self, node: Any, count: int, level: int) -> Iterable[Residues]:
        """All totals of a node, in order."""


class _KernelParts:
    """By the kernels, on residues."""

    def __init__(self, keys: PublicKeys, workers: int | None) -> None:
        if keys.kernels is None:
            raise ValueError("there are no kernels for these keys")
        self._kernels, self._workers = keys.kernels, workers

    def whole(self, pack: Residues) -> Residues:
        return pack

    def parted(self, node: Residues, level: int, *, odd: bool) -> Sequence[Residues]:
        return self._kernels.split(node, level, odd=odd)

    def expanded(self, node: Residues, count: int, level: int) -> Iterable[Residues]:
        return self._kernels.expand(node, count, level, threads=self._workers)


class _SealParts:
    """By SEAL, on ciphertexts of the packing context; several processes take a part each."""

    def __init__(self, keys: PublicKeys, workers: int | None) -> None:
        self._keys, self._workers = keys, workers
        self._engine = engine_for(packing_parameters(keys.parameters))

    def whole(self, pack: Residues) -> Any:
        return ciphertext_of(self._engine, pack)

    def parted(self, node: Any, level: int, *, odd: bool) -> Sequence[Any]:
        return self._keys.part(node, level, odd=odd)

    def expanded(self, node: Any, count: int, level: int) -> Iterable[Residues]:
        half = 1 << (level - 1) if level else 1
        if count <= half or count < 4 * (self._workers or cores()):
            return [residues_of(self._engine, total) for total in self._keys.expand(node, count, level)]
        parts, counts = self._keys.part(node, level), (half, count - half)

        def one_part(i: int) -> list[Residues]:
            return [residues_of(self._engine, total) for total in self._keys.expand(parts[i], counts[i], level - 1)]

        return [total for part in ordered_map(one_part, range(2), self._workers or cores()) for total in part]


def _dropped(parameters: Parameters) -> int:
    return len(parameters.data_moduli) - packing_primes(parameters)
