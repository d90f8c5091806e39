from typing import Any

from numpy.typing import NDArray

_Array = NDArray[Any]

def weigh(
    weights: _Array,
    sums: tuple[_Array, ...],
    start: int,
    stop: int,
    low: _Array,
    high: _Array,
    /,
) -> None: ...
def weigh_rows(
    weights: _Array,
    words: _Array,
    places: _Array,
    start: int,
    stop: int,
    low: _Array,
    high: _Array,
    /,
) -> None: ...
