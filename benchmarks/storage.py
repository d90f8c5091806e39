"""Storing half of a ciphertext: functions that could expand seeds, what encrypting costs beside
SEAL, and reading, in one run.

All times are CPU time of one core, so that they can be compared on a machine that is busy.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from rich import box
from rich.table import Table

import encryptedstats as es
from benchmarks._common import Report, Settings, part
from encryptedstats.crypto.encryption import encode_slots
from encryptedstats.storage import pieces
from encryptedstats.storage.objects import open_store
from encryptedstats.tables.blocks import (
    BlockRows,
    BlockShape,
    block_bytes,
    block_name,
    read_block,
    store_block,
)

COLUMNS = 52  # 10 variables of 5 bins, two classes
BITS = (42, 43, 43, 43, 43)
ID = "0" * 32


@part("storage")
def storage(settings: Settings) -> Report:
    """The part's entry point."""
    results = run(settings)
    return Report(
        results, [_functions_table(results), _steps_table(results)], ["CPU time of one core."]
    )


def run(settings: Settings) -> dict[str, Any]:
    """Gigabytes a second of each function; milliseconds a ciphertext of each step of encrypting and
    reading.
    """
    owner = es.Owner(es.Parameters.from_bits("bgv", 8192, 4000, BITS))
    with _capped("ifma"):
        return {"functions": _functions(settings), "steps": _steps(owner, settings)}


def _functions(settings: Settings) -> dict[str, float]:
    """Bytes of a whole ciphertext, run by run: one seed expanded to 32 runs of 1024 numbers of 43
    bits.
    """
    modulus, size, key = (1 << 43) - 1, 1024 * 43 // 8, os.urandom(32)
    out, zeros = np.empty((COLUMNS, 1, 1, 8192), dtype=np.uint64), bytes(size)
    seeds, runs = key * COLUMNS, 8 * COLUMNS
    ways: dict[str, Callable[[], object]] = {
        "SHAKE-128, hashlib": lambda: [hashlib.shake_128(key).digest(size) for _ in range(runs)],
        "SHAKE-256, hashlib": lambda: [hashlib.shake_256(key).digest(size) for _ in range(runs)],
        "AES-256-CTR, cryptography": lambda: [
            _encrypted(algorithms.AES(key), zeros) for _ in range(runs)
        ],
        "ChaCha20, cryptography": lambda: [
            _encrypted(algorithms.ChaCha20(key, bytes(16)), zeros) for _ in range(runs)
        ],
    }
    try:
        from blake3 import blake3
    except ImportError:  # not among our dependencies
        pass
    else:
        ways["BLAKE3, blake3"] = lambda: [blake3(key).digest(size) for _ in range(runs)]
    found = {name: runs * size / 1e9 / _cpu(way, settings) for name, way in ways.items()}
    for level in pieces._HERE:
        with _capped(level):
            seconds = _cpu(lambda: pieces.expand(seeds, modulus, out, 0), settings)
            found[f"SHAKE-256 to residues, here, {level}"] = runs * size / 1e9 / seconds
    return found


def _encrypted(algorithm: Any, zeros: bytes) -> bytes:
    mode = modes.CTR(bytes(16)) if isinstance(algorithm, algorithms.AES) else None
    return Cipher(algorithm, mode).encryptor().update(zeros)


def _steps(owner: es.Owner, settings: Settings) -> dict[str, float]:
    """Milliseconds a ciphertext."""
    encryptor, parameters = owner._encryptor, owner.parameters
    values = np.arange(8192) % 2
    plain, store = encode_slots(values, encryptor), open_store("memory://benchmarks-storage")
    seeded = [encryptor.seeded.encrypt(plain) for _ in range(COLUMNS)]
    half, whole = BlockShape(parameters, COLUMNS, seeded=True), BlockShape(parameters, COLUMNS)
    seeds, first = (
        b"".join(seed for seed, _ in seeded),
        np.stack([polynomial for _, polynomial in seeded])[:, None],
    )
    rows = BlockRows(ID, 8192, ID)
    data = block_bytes(first, half, rows, seeds=seeds)
    entry = store_block(store, data, block_name(0, ID), half, 8192)
    both = read_block(store, entry, whole, ID)
    other = store_block(store, block_bytes(both, whole, rows), block_name(1, ID), whole, 8192)
    return {
        "SEAL: encode": 1e3 * _cpu(lambda: encode_slots(values, encryptor), settings),
        "SEAL: encrypt": 1e3 * _cpu(lambda: encryptor.encrypt(plain), settings),
        "encrypt and re-base": 1e3 * _cpu(lambda: encryptor.seeded.encrypt(plain), settings),
        "pack, hash, make an object": 1e3
        * _cpu(lambda: block_bytes(first, half, rows, seeds=seeds), settings)
        / COLUMNS,
        "read, with seeds": 1e3
        * _cpu(lambda: read_block(store, entry, whole, ID), settings)
        / COLUMNS,
        "read, whole": 1e3 * _cpu(lambda: read_block(store, other, whole, ID), settings) / COLUMNS,
        "bytes a value, with seeds": entry.bytes / (8192 * COLUMNS),
        "bytes a value, whole": other.bytes / (8192 * COLUMNS),
    }


def _cpu(operation: Callable[[], object], settings: Settings) -> float:
    """The least CPU time of a few: others on the machine can only add to it."""
    operation()
    times = []
    for _ in range(max(settings.least, 3)):
        started = time.process_time()
        repeated = 0
        while repeated < 3 or time.process_time() - started < 0.05:
            operation()
            repeated += 1
        times.append((time.process_time() - started) / repeated)
    return min(times)


@contextmanager
def _capped(level: str) -> Iterator[None]:
    before = os.environ.get("ENCRYPTEDSTATS_CPU")
    os.environ["ENCRYPTEDSTATS_CPU"] = level
    try:
        yield
    finally:
        del os.environ["ENCRYPTEDSTATS_CPU"]
        if before is not None:
            os.environ["ENCRYPTEDSTATS_CPU"] = before


def _functions_table(results: dict[str, Any]) -> Table:
    table = Table("function", "GB/s", title="Expanding seeds, 5.5 kB at a time", box=box.SIMPLE)
    for name, speed in results["functions"].items():
        table.add_row(name, f"{speed:.2f}")
    return table


def _steps_table(results: dict[str, Any]) -> Table:
    table = Table("step", "ms a ciphertext", title="8192 values, 4 primes", box=box.SIMPLE)
    for name, value in results["steps"].items():
        table.add_row(name, f"{value:.2f}")
    return table
