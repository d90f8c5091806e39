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
    packing_order,
    packing_parameters,
    packing_primes,
    to_packing_context,
)
from encryptedstats.crypto.parameters import Parameters
from encryptedstats.crypto.residues import Residues, ciphertext_of, residues_of
from encryptedstats.parallel import cores, ordered_map

_EXPANDED_AT_ONCE: Final = 64  # totals: a few megabytes each


def lower_totals(keys: PublicKeys, totals: Sequence[Part], width: int, workers: int | None = None) -> list[Part]:
    """Sums over rows, of any size, brought down to the primes of the packing context: by the kernels, or else by SEAL."""
    parameters, model = keys.parameters, keys.parameters.noise
    plans = [plan_finish(parameters, part.noise, width) for part in totals]
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
    """Lowered totals merged, up to ``width`` into one ciphertext of the packing context."""
    packs = [totals[start : start + width] for start in range(0, len(totals), width)]
    return [_packed(keys, [pack[i] for i in packing_order(len(pack))], workers) for pack in packs]


def _packed(keys: PublicKeys, totals: Sequence[Part], workers: int | None) -> Part:
    """One pack, by the kernels or else by SEAL: every process packs every so-manieth total, and what they bring is merged."""
    parameters, engine = keys.parameters, keys.engine
    small = engine_for(packing_parameters(parameters))
    model = packing_model(parameters, packing_primes(parameters))
    worst = max((part.noise for part in totals), key=model.coefficient_bound)
    noise = packed_noise(model, Noise(worst.flat, worst.peak), len(totals))
    if keys.kernels is not None and keys.packs:
        return Part(keys.kernels.pack([part.residues for part in totals], threads=workers), noise)
    share = _largest_power_of_two(min(workers or cores(), len(totals))) if len(totals) > BATCH else 1

    def pack_share(first: int) -> Residues:
        chosen = [to_packing_context(engine, ciphertext_of(engine, part.residues)) for part in totals[first::share]]
        levels = packing_levels(len(totals)) - (share.bit_length() - 1)
        return residues_of(small, keys.pack(chosen, levels))

    shares = [ciphertext_of(small, r) for r in ordered_map(pack_share, range(share), share)]
    return Part(residues_of(small, keys.merge(shares, packing_levels(len(totals)))), noise)


def _largest_power_of_two(at_most: int) -> int:
    return 1 << (at_most.bit_length() - 1)


# -- taking packs apart ---------------------------------------------------------------------------------------------------


def expanded_noises(totals: EncryptedTotals) -> list[Noise]:
    """The noise of every packed total once it is expanded, as a ciphertext under the primes of the packing context."""
    parameters = totals.keys.parameters
    model, dropped = packing_model(parameters, packing_primes(parameters)), _dropped(parameters)
    noises = [expanded_noise(model, part.noise) for part in totals.parts]
    return [replace(noises[k // totals.width], level=dropped) for k in range(len(totals))]


def expansion_scales(totals: EncryptedTotals) -> list[int]:
    """What every total is multiplied by, modulo t, once it is expanded: once for each slot, where it was in all of them."""
    parameters, left, scales = totals.keys.parameters, len(totals), []
    for _ in totals.parts:
        count = min(left, totals.width)
        scales += [expansion_scale(parameters.plain_modulus, count)] * count
        left -= count
    t, slots = parameters.plain_modulus, parameters.ring_degree
    return [scale * slots % t if f.each else scale for scale, f in zip(scales, totals.facts, strict=True)]


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
    top = apart.cleared(pack, len(numbers))
    for group, level, node in _groups(apart, top, numbers, packing_levels(len(numbers)), chosen):
        placed = dict(zip(packing_order(len(group)), apart.expanded(node, len(group), level), strict=True))
        for place, number in enumerate(group):
            yield number, placed[place]


def _groups(
    apart: _Parts, node: Any, numbers: range, level: int, chosen: NDArray[np.bool_]
) -> Iterator[tuple[range, int, Any]]:
    """Nodes of at most so many totals, first totals first; nodes above them are parted when it is their turn."""
    if not chosen[numbers.start : numbers.stop].any():
        return
    if len(numbers) <= _EXPANDED_AT_ONCE:
        yield numbers, level, node
        return
    even, odd = apart.parted(node, level)
    half = -(-len(numbers) // 2)
    yield from _groups(apart, even, numbers[:half], level - 1, chosen)
    yield from _groups(apart, odd, numbers[half:], level - 1, chosen)


class _Parts(Protocol):
    """What taking a pack apart needs, on nodes of some kind."""

    def cleared(self, pack: Residues, count: int) -> Any:
        """A pack without what lies between its totals."""

    def parted(self, node: Any, level: int) -> tuple[Any, Any]:
        """The totals at even places and those at odd ones."""

    def expanded(self, node: Any, count: int, level: int) -> Iterable[Residues]:
        """All totals of a node, in the order of their places."""


class _KernelParts:
    """By the kernels, on residues."""

    def __init__(self, keys: PublicKeys, workers: int | None) -> None:
        if keys.kernels is None:
            raise ValueError("there are no kernels for these keys")
        self._kernels, self._workers = keys.kernels, workers

    def cleared(self, pack: Residues, count: int) -> Residues:
        return self._kernels.clear(pack, packing_levels(count))

    def parted(self, node: Residues, level: int) -> tuple[Residues, Residues]:
        return self._kernels.split(node, level)

    def expanded(self, node: Residues, count: int, level: int) -> Iterable[Residues]:
        return self._kernels.expand(node, count, level, threads=self._workers)


class _SealParts:
    """By SEAL, on ciphertexts of the packing context; several processes take a part each."""

    def __init__(self, keys: PublicKeys, workers: int | None) -> None:
        self._keys, self._workers = keys, workers
        self._engine = engine_for(packing_parameters(keys.parameters))

    def cleared(self, pack: Residues, count: int) -> Any:
        return self._keys.clear(ciphertext_of(self._engine, pack), count)

    def parted(self, node: Any, level: int) -> tuple[Any, Any]:
        even, odd = self._keys.part(node, level)
        return even, odd

    def expanded(self, node: Any, count: int, level: int) -> Iterable[Residues]:
        if count < 4 * (self._workers or cores()):
            return [residues_of(self._engine, total) for total in self._keys.expand(node, count, level)]
        halves = self._keys.part(node, level)
        totals: list[Any] = [None] * count
        counts = [len(totals[first::2]) for first in range(2)]

        def one_half(first: int) -> list[Residues]:
            return [
                residues_of(self._engine, total) for total in self._keys.expand(halves[first], counts[first], level - 1)
            ]

        for first, half in enumerate(ordered_map(one_half, range(2), self._workers or cores())):
            totals[first::2] = half
        return totals


def _dropped(parameters: Parameters) -> int:
    return len(parameters.data_moduli) - packing_primes(parameters)
