"""Small keys whose packs can be computed on with, and totals packed under them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from circuit_samples import Lab, MemorySource, insecure, rotation_steps

import encryptedstats as es
from encryptedstats.circuits import Expression
from encryptedstats.circuits.devices.batches import Packing
from encryptedstats.circuits.devices.native.steps import KernelPacking
from encryptedstats.circuits.devices.seal import SealPacking
from encryptedstats.circuits.evaluate import evaluate
from encryptedstats.circuits.lowering import Setting
from encryptedstats.circuits.proof import read_noise
from encryptedstats.circuits.results import EncryptedNumbers


@lru_cache(maxsize=2)
def kept_lab(
    scheme: str, key: int = 0, n_bits: int = 49, primes: int = 10, kept: int = 6, copies: int = 1
) -> Lab:
    """Exact up to four millions; packs keep enough primes for two or three more products."""
    steps = rotation_steps(copies)
    made = insecure(scheme, 1 << 22, (n_bits,) * primes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", es.InsecureParametersWarning)
        return Lab(es.Owner(replace(made, kept_primes=kept, copies=copies)), steps)


PACKINGS: dict[str, type[Packing]] = {"native": KernelPacking, "seal": SealPacking}


def usable(keys: es.PublicKeys) -> list[str]:
    """The devices that can compute with these keys, the fastest first."""
    return ["seal"] if keys.evaluator.kernels is None else ["native", "seal"]


def packing_of(device: str, keys: es.PublicKeys, workers: int = 1) -> Packing:
    """The packing operations of a device."""
    return PACKINGS[device](keys, workers)


def fastest(keys: es.PublicKeys, workers: int = 1) -> Packing:
    """The packing operations of the device that is taken by default."""
    return packing_of(usable(keys)[0], keys, workers)


def packed(
    outputs: Sequence[Expression], source: MemorySource, width: int | None = None
) -> EncryptedNumbers:
    """Totals in packs, ``width`` in each if it is said."""
    report = read_noise(outputs, Setting(source.parameters, source.layout))
    if width is not None:
        report = report.with_width(width)
    return evaluate(outputs, source, report=report, workers=1, progress=False)
