from typing import Any

from numpy.typing import NDArray

_Array = NDArray[Any]

class _Ring: ...
class _Key: ...

def ring(n: int, moduli: _Array, roots: _Array, t: int, cpu: str, /) -> _Ring: ...
def key(ring: _Ring, residues: _Array, digits: int, element: int, /) -> _Key: ...
def scratch(ring: _Ring, primes: int, levels: int, /) -> int: ...
def lower(
    ring: _Ring,
    key: _Key | None,
    src: _Array,
    size: int,
    start: int,
    at: int,
    to: int,
    out: _Array,
    scratch: _Array,
    /,
) -> None: ...
def pack(
    ring: _Ring,
    keys: tuple[tuple[_Key, ...], ...],
    totals: tuple[_Array, ...],
    primes: int,
    level: int,
    lowest: int,
    whole: bool,
    out: _Array,
    scratch: _Array,
    /,
) -> None: ...
def expand(
    ring: _Ring,
    keys: tuple[tuple[_Key, ...], ...],
    src: _Array,
    primes: int,
    levels: tuple[int, int, int],
    count: int,
    out: _Array,
    first: int,
    step: int,
    scratch: _Array,
    /,
) -> None: ...
def masked(
    ring: _Ring,
    primes: int,
    ciphertexts: tuple[_Array, ...],
    plaintexts: tuple[_Array, ...],
    out: _Array,
    scratch: _Array,
    /,
) -> None: ...
def automorphism(
    ring: _Ring, key: _Key, src: _Array, primes: int, out: _Array, scratch: _Array, /
) -> None: ...
def transform(
    ring: _Ring, prime: int, inverse: int, src: _Array, out: _Array, scratch: _Array, /
) -> None: ...
def way(ring: _Ring, /) -> str: ...
