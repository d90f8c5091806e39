from typing import Any

from numpy.typing import NDArray

_Array = NDArray[Any]
_Bytes = bytes | bytearray | memoryview | _Array

def levels() -> tuple[str, ...]: ...
def hash(level: str, data: _Bytes, size: int, out: bytearray, /) -> None: ...
def pack(level: str, numbers: _Array, bits: int, run: int, out: _Array, /) -> bool: ...
def read(
    level: str,
    modulus: int,
    shape: tuple[int, int, int, int],
    packed: _Bytes,
    digests: _Bytes,
    seeds: _Bytes,
    out: _Array,
    places: tuple[int, int, int],
    /,
) -> int: ...
def rebase(
    moduli: _Array, ciphertext: _Array, fresh: _Array, secret: _Array, out: _Array, /
) -> None: ...
