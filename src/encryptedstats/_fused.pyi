from typing import Any

from numpy.typing import NDArray

_Array = NDArray[Any]

POINTS: int

def levels() -> tuple[str, ...]: ...
def run(
    level: str,
    modulus: int,
    shape: tuple[int, int, int, int, int, int, int],
    vectors: tuple[int, int, int],
    add: bool,
    known: bool,
    columns: tuple[_Array, ...],
    tape: _Array,
    segments: _Array,
    totals: _Array,
    constants: _Array,
    accumulators: _Array,
    scratch: _Array,
    kept: _Array,
    branchings: _Array = ...,
    /,
) -> int: ...
