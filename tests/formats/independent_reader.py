"""Read and decrypt files of encryptedstats with the standard library alone, as
docs/reference/formats.md says.

This module imports nothing of the library, nor NumPy or SEAL. It is a second implementation of the
formats: a change of the library that a reader elsewhere would notice fails its tests.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RUN = 1024  # coefficients in a piece of a table


@dataclass(frozen=True)
class Container:
    header: dict[str, Any]
    sections: dict[str, bytes]

    @property
    def fields(self) -> dict[str, Any]:
        return self.header["fields"]

    def json(self, section: str) -> Any:
        return json.loads(self.sections[section])


def read_container(path: Path) -> Container:
    data = path.read_bytes()
    magic, version, length = struct.unpack_from("<8sHI", data)
    assert (magic, version) == (b"\x89EncStat", 2)
    assert hashlib.sha256(data[:-32]).digest() == data[-32:]
    header, start = json.loads(data[14 : 14 + length]), 14 + length
    sections = {}
    for name, size in header["sections"]:
        sections[name], start = data[start : start + size], start + size
    assert start == len(data) - 32
    return Container(header, sections)


# -- residues


def unpack(packed: bytes, bits: int, width: int = 16) -> list[int]:
    """Return numbers of `bits` bits from the words of 64 bits that hold `width` streams of them."""
    words = struct.unpack(f"<{len(packed) // 8}Q", packed)
    streams = [
        sum(words[row * width + j] << (64 * row) for row in range(len(words) // width))
        for j in range(width)
    ]
    mask = (1 << bits) - 1
    return [
        streams[n % width] >> (bits * (n // width)) & mask for n in range(64 * len(words) // bits)
    ]


def expand_seed(seed: bytes, prime: int, run: int) -> list[int]:
    """Return the run of the polynomial that a seed of 32 bytes stands for."""
    bits = prime.bit_length()
    message = b"encryptedstats a" + seed + prime.to_bytes(8, "little") + run.to_bytes(8, "little")
    output = hashlib.shake_256(message).digest(16 * RUN * 8)
    words = (word & ((1 << bits) - 1) for (word,) in struct.iter_unpack("<Q", output[128 * bits :]))
    spare = (word for word in words if word < prime)
    return [n if n < prime else next(spare) for n in unpack(output[: 128 * bits], bits)]


def read_ciphertexts(
    residues: bytes, primes: Sequence[int], degree: int
) -> Iterator[list[list[list[int]]]]:
    """Yield ciphertexts of two polynomials as ``[prime][polynomial][position]``."""
    start = 0
    while start < len(residues):
        ciphertext = []
        for prime in primes:
            bits = prime.bit_length()
            size = degree * bits // 8
            pair = [residues[start + k * size : start + (k + 1) * size] for k in range(2)]
            ciphertext.append([unpack(packed, bits, degree // 64) for packed in pair])
            start += 2 * size
        yield ciphertext


def read_column(table: Path, column: str) -> tuple[list[int], list[list[list[int]]]]:
    """Return the data primes and the first block's ciphertext of a column of a stored table."""
    manifest = read_container(table / "table.manifest")
    columns, block = manifest.json("columns"), manifest.json("blocks")[0]
    parameters = manifest.fields["parameters"]
    primes, degree = parameters["coefficient_moduli"][:-1], parameters["ring_degree"]
    data = (table / block["name"]).read_bytes()
    n_runs, number = degree // RUN, columns.index(column)
    seed = data[block["start"] + 32 * number :][:32]
    digests_at = block["start"] + 32 * len(columns)
    piece_at = digests_at + 16 * len(primes) * n_runs * len(columns)
    ciphertext = []
    for i, prime in enumerate(primes):
        size = RUN * prime.bit_length() // 8
        c0, c1 = [], []
        for run in range(n_runs):
            index = run * len(columns) + number
            piece = data[piece_at + index * size :][:size]
            digest_at = digests_at + 16 * (i * n_runs * len(columns) + index)
            assert hashlib.shake_256(piece).digest(16) == data[digest_at : digest_at + 16]
            c0 += unpack(piece, prime.bit_length())
            c1 += expand_seed(seed, prime, run)
        ciphertext.append([c0, c1])
        piece_at += n_runs * len(columns) * size
    return primes, ciphertext


# -- decryption


def reverse_bits(number: int, degree: int) -> int:
    return int(f"{number:0{degree.bit_length() - 1}b}"[::-1], 2)


def find_root(prime: int, degree: int) -> int:
    """Return the smallest primitive root of unity of order 2 N modulo a prime."""
    order = 2 * degree
    root = next(
        r
        for r in (pow(g, (prime - 1) // order, prime) for g in range(2, prime))
        if pow(r, degree, prime) == prime - 1
    )
    powers, square = [root], root * root % prime
    for _ in range(degree - 1):
        powers.append(powers[-1] * square % prime)
    return min(powers)


def interpolate(values: Sequence[int], prime: int, degree: int) -> list[int]:
    """Return the polynomial whose value at root^(2 reversed(i) + 1) is ``values[i]``."""
    root = find_root(prime, degree)
    ordered = [values[reverse_bits(i, degree)] for i in range(degree)]
    coefficients = _transform(ordered, pow(root, -2, prime), prime)
    shift, scale = pow(root, -1, prime), pow(degree, -1, prime)
    result, power = [], scale
    for coefficient in coefficients:
        result.append(coefficient * power % prime)
        power = power * shift % prime
    return result


def _transform(values: list[int], root: int, prime: int) -> list[int]:
    if len(values) == 1:
        return values
    even = _transform(values[::2], root * root % prime, prime)
    odd = _transform(values[1::2], root * root % prime, prime)
    power, low, high = 1, [], []
    for a, b in zip(even, odd, strict=True):
        low.append((a + power * b) % prime)
        high.append((a - power * b) % prime)
        power = power * root % prime
    return low + high


def read_secret_key(path: Path) -> list[list[int]]:
    """Return the secret polynomial under each prime, in NTT form, from an unlocked key file."""
    file = read_container(path)
    assert file.fields["lock"] == {}
    degree = file.fields["parameters"]["ring_degree"]
    residues = file.sections["secret_key"][88:]  # after two headers of SEAL and the sizes
    values = [word for (word,) in struct.iter_unpack("<Q", residues)]
    return [values[start : start + degree] for start in range(0, len(values), degree)]


def decrypt(
    ciphertext: list[list[list[int]]],
    secret: list[list[int]],
    primes: Sequence[int],
    t: int,
) -> list[int]:
    """Return the plaintext polynomial of a BGV ciphertext of two polynomials, modulo t."""
    degree, q = len(secret[0]), 1
    lifted = [0] * degree
    for (c0, c1), s, prime in zip(ciphertext, secret, primes, strict=False):
        values = [(a + b * k) % prime for a, b, k in zip(c0, c1, s, strict=True)]
        found = interpolate(values, prime, degree)
        inverse = pow(q, -1, prime)
        lifted = [x + q * ((y - x) * inverse % prime) for x, y in zip(lifted, found, strict=True)]
        q *= prime
    return [(x if 2 * x < q else x - q) % t for x in lifted]


def decode_slots(plaintext: Sequence[int], t: int) -> list[int]:
    """Return the values of the slots: slot i of the first half is the value at root^(3^i)."""
    degree, root = len(plaintext), find_root(t, len(plaintext))
    exponents = [pow(3, i, 2 * degree) for i in range(degree // 2)]
    values = []
    for exponent in [*exponents, *(2 * degree - e for e in exponents)]:
        point, value = pow(root, exponent, t), 0
        for coefficient in reversed(plaintext):
            value = (value * point + coefficient) % t
        values.append(value)
    return values


def read_totals(answer: Path, secret: list[list[int]]) -> list[int]:
    """Return the decrypted totals of a packed answer, centred around 0."""
    file = read_container(answer)
    parameters = file.fields["parameters"]
    degree, t = parameters["ring_degree"], parameters["plain_modulus"]
    assert file.fields["form"] == "packed"
    n_packs, size = len(file.json("noise")), len(file.sections["residues"])
    primes = list(parameters["coefficient_moduli"])
    while sum(2 * degree * prime.bit_length() // 8 for prime in primes) * n_packs > size:
        primes.pop()  # packs keep the first primes
    packs = [
        decrypt(ciphertext, secret, primes, t)
        for ciphertext in read_ciphertexts(file.sections["residues"], primes, degree)
    ]
    places, width = file.json("places"), file.fields["width"]
    totals = []
    for place, (_, _, offset, factor, *rest) in zip(places, file.json("numbers"), strict=True):
        assert rest[:2] == [0, 0], "neither a part of a larger total nor two totals in one"
        coefficient = packs[place // width][reverse_bits(place % width, degree)]
        copies = parameters.get("copies", 1)
        total = (coefficient * (degree // copies) + offset) * pow(factor, -1, t) % t
        totals.append(total if 2 * total < t else total - t)
    return totals
