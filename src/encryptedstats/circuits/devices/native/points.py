"""Write tapes of trees of products, which are computed at points.

A product of ciphertexts is a product of polynomials in the secret key, and it is known from its
values at as many points as it has components. At a point, a column is a number modulo the prime,
c0 + c1 x, and a product of any number of factors is a product of numbers: five products instead of
eight for the last factor of three. What is added up over all rows is interpolated once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from encryptedstats.circuits.devices.branchings import branching_words, branchings_of
from encryptedstats.circuits.devices.native.tape import (
    NONE,
    Tape,
    TapeWriter,
    Value,
    is_load,
    loads_of_sum,
)
from encryptedstats.circuits.program import Step
from encryptedstats.crypto.parameters import Parameters

try:
    from encryptedstats import _fused
except ImportError:  # built without a C compiler
    HAS_POINTS = False
else:
    HAS_POINTS = hasattr(_fused, "POINTS")  # not if it was built before there were any

#: Arithmetic that has kernels for it.
LEVELS: Final = ("neon", "avx2", "avx512", "ifma")
_FACTORS: Final = slice(2, 9)  # of the words of a branching


def is_at_points(writer: TapeWriter, level: str, parameters: Parameters, n_chunks: int) -> bool:
    """Return True if the sums of a writer are computed at points: trees over several chunks.

    Over a single chunk interpolation costs more than it saves.
    """
    pays = level in LEVELS and parameters.copies == 1 and n_chunks > 1
    if not (pays and HAS_POINTS):
        return False
    if writer.has_branchings is None:
        writer.has_branchings = branchings_of(writer.totals) is not None
    return writer.has_branchings


def write_branchings(writer: TapeWriter, totals: Sequence[Step]) -> Tape:
    """Return a tape of a prologue and branchings that compute all totals."""
    totals = tuple(dict.fromkeys(totals))
    branchings = branchings_of(totals, shallow=True)
    assert branchings is not None
    power = int(writer.montgomery)
    roots = [(one.root, 0) for one in branchings]
    factors = [(f, power) for one in branchings for f in one.factors if f is not None]
    values = list(dict.fromkeys([*roots, *factors]))
    sums = [value for value in values if not is_load(value[0])]
    columns: dict[Value, None] = dict.fromkeys(value for value in values if is_load(value[0]))
    columns |= dict.fromkeys((load, power) for sum_, power in sums for load in loads_of_sum(sum_))
    code, places = writer.write_prologue(columns, sums)
    sizes = tuple(total.size for total in totals)
    firsts = np.cumsum([0, *sizes[:-1]]).tolist()
    words = branching_words(
        branchings,
        {node: place for (node, times), place in places.items() if times == 0},
        dict(zip(totals, firsts, strict=True)),
        {node: place for (node, times), place in places.items() if times == power},
    )
    missing = words[:, _FACTORS] == NONE  # nothing is asked of these: any number does
    words[:, _FACTORS] = np.where(missing, words[:, :1], words[:, _FACTORS])
    return Tape(
        totals=totals,
        sizes=sizes,
        columns=tuple(writer.columns),
        constants=tuple(writer.constants),
        n_runs=1,
        vectors=(2 * len(places), 0, 0),
        words=np.array(code, dtype=np.int32),
        segments=np.array([[0, len(code), 0, 0]], dtype=np.int32),
        places=np.zeros((0, 3), dtype=np.int32),
        branchings=words.reshape(-1),
    )
