"""The two parties of the demo that hold no secret key, each a process of its own that sees one folder and nothing else.

``python -m encryptedstats.cli.demo_parties clinic FOLDER`` encrypts the clinic's readings with the public keys;
``... worker FOLDER`` computes on encrypted files. This is all the code that they need: it reads as an example. Imports only
the library's public surface, and neither Typer nor Rich.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np

import encryptedstats as es

PUBLIC_KEYS: Final = "public.keys"
READINGS: Final = "pressure.csv"


def clinic(folder: Path) -> dict[str, float]:
    """Encrypt the clinic's readings: the public keys are enough for it. Returns the seconds it took."""
    keys = es.PublicKeys.load(folder / PUBLIC_KEYS)
    readings = np.loadtxt(folder / READINGS, dtype=np.int64)
    started = time.perf_counter()
    encrypted = keys.encrypt(readings)
    seconds = time.perf_counter() - started
    encrypted.save(folder / "pressure.enc")
    return {"pressure": seconds}


def worker(folder: Path) -> dict[str, float]:
    """Compute on what nobody here can read, and leave encrypted results. Returns the seconds of each."""
    keys = es.PublicKeys.load(folder / PUBLIC_KEYS)
    x, y, z, treated, pressure = (
        es.EncryptedArray.load(folder / f"{name}.enc", keys) for name in ("x", "y", "z", "treated", "pressure")
    )
    tasks: dict[str, Callable[[], Any]] = {
        "appendix": lambda: x + y @ z.T @ z,
        "total": lambda: pressure.sum(),
        "squares": lambda: pressure @ pressure,
        "treated_total": lambda: treated @ pressure,
        "treated_count": lambda: treated.sum(),
    }
    seconds = {}
    for name, compute in tasks.items():
        started = time.perf_counter()
        result = compute()
        seconds[name] = time.perf_counter() - started
        result.save(folder / f"{name}.result")
    return seconds


if __name__ == "__main__":
    party, place = sys.argv[1:]
    print(json.dumps({"clinic": clinic, "worker": worker}[party](Path(place))))
