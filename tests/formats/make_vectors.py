"""Write the published test vectors; run only when a format changes on purpose.

python tests/formats/make_vectors.py
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import independent_reader as reader

VECTORS = Path(__file__).parents[2] / "docs" / "test_vectors.json"
STORED = Path(__file__).parents[1] / "golden" / "stored"
PRIME = 70299236106241


def make_vectors() -> dict[str, Any]:
    """Return inputs and what docs/reference/formats.md says of them, small enough to be read."""
    bits, numbers = 5, [(n * n) % 32 for n in range(1024)]
    streams = [sum(numbers[16 * i + j] << (bits * i) for i in range(64)) for j in range(16)]
    packed = b"".join(
        (streams[j] >> (64 * row) & (1 << 64) - 1).to_bytes(8, "little")
        for row in range(bits)
        for j in range(16)
    )
    seed = bytes(range(32))
    expanded = reader.expand_seed(seed, PRIME, 0)
    forest = reader.read_container(STORED / "forest.enc")
    secret = reader.read_secret_key(STORED / "insecure.key")
    return {
        "bit packing": {"bits": bits, "numbers": "n^2 modulo 32", "packed": packed.hex()},
        "seed expansion": {
            "seed": seed.hex(),
            "prime": PRIME,
            "run": 0,
            "first": expanded[:4],
            "last": expanded[-4:],
        },
        "root of unity": {
            "prime": PRIME,
            "ring_degree": 1024,
            "root": reader.find_root(PRIME, 1024),
        },
        "container": {
            "file": "tests/golden/stored/forest.enc",
            "kind": forest.header["kind"],
            "key_id": forest.header["key_id"],
            "sections": forest.header["sections"],
        },
        "totals": {
            "file": "tests/golden/stored/forest.enc",
            "key": "tests/golden/stored/insecure.key",
            "totals": reader.read_totals(STORED / "forest.enc", secret),
        },
    }


if __name__ == "__main__":
    VECTORS.write_text(json.dumps(make_vectors(), indent=1) + "\n")
