"""A device of your own: one that multiplies and adds in NumPy, with Python's integers, and leaves
all other operations to SEAL's rules. It is slow, and it is complete: ``register`` makes it known to
``device="numpy"`` everywhere. ``docs/guides/devices.md`` explains it.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from encryptedstats.circuits.program import ADD_UP, MULTIPLY
from encryptedstats.devices import SEAL_RULES, Device, on_residues, register, run_steps


def reduce(keys: Any, residues: Any) -> Any:
    """Reduce residues modulo their primes."""
    primes = np.array(keys.parameters.data_moduli[: residues.shape[1]], dtype=object)
    return (residues % primes[:, None]).astype(np.uint64)


def lift(number: int, t: int) -> int:
    """Lift a plaintext as SEAL does: to the integer next to 0, with the sign taken off before."""
    rest = abs(number) % t
    return (rest - t if rest > t // 2 else rest) * (1 if number > 0 else -1)


def multiply(keys: Any, data: Any, a: Any, b: Any) -> Any:
    product = np.zeros((len(a) + len(b) - 1, *a.shape[1:]), dtype=object)
    for i, polynomial in enumerate(a.astype(object)):
        product[i : i + len(b)] += polynomial * b
    return reduce(keys, product)


def add_up(keys: Any, data: Any, *values: Any) -> Any:
    (coefficients, constant), t = data, keys.parameters.plain_modulus
    total = np.zeros((max(map(len, values)), *values[0].shape[1:]), dtype=object)
    for coefficient, value in zip(coefficients, values, strict=True):
        total[: len(value)] += lift(coefficient, t) * value.astype(object)
    total[0] += lift(constant, t)
    return reduce(keys, total)


class NumpyDevice(Device):
    name = "numpy"
    rules: ClassVar[dict[str, Any]] = {
        **SEAL_RULES,
        MULTIPLY: on_residues(multiply),
        ADD_UP: on_residues(add_up),
    }

    def obstacle(self, program: Any) -> str | None:
        is_bgv = program.parameters.scheme == "bgv"
        return None if is_bgv else "a BFV product is not computed coefficient by coefficient"

    def run(self, task: Any) -> Any:
        return run_steps(task, self.rules)


register(NumpyDevice())
