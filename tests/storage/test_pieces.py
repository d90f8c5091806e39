"""Pieces: the extension against hashlib and NumPy, byte for byte, for every size of prime and every
kind of processor.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
import pytest

from encryptedstats.storage import bitpack, pieces
from error_codes import error
from native_samples import REFUSALS, one_of, random_runs, strange

needs_extension = pytest.mark.skipif(pieces._storage is None, reason="the extension was not built")
LEVELS = () if pieces._storage is None else pieces._storage.levels()
WAYS = [*(pytest.param(level, id=level) for level in LEVELS), pytest.param(None, id="numpy")]
SEEDS = bytes(range(224))  # of seven columns
COLUMNS = len(SEEDS) // 32


def packed(runs: np.ndarray, bits: int) -> bytes:
    out = np.empty(runs.size // 64 * bits, dtype="<u8")
    pieces.pack(runs, bits, out)
    return out.tobytes()


@pytest.fixture
def instructions(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str | None:
    """One level of the processor, or no extension at all."""
    if request.param is None:
        monkeypatch.setattr(pieces, "_storage", None)
    else:
        monkeypatch.setenv("ENCRYPTEDSTATS_CPU", request.param)
    assert pieces.level() == request.param
    return request.param


def moduli() -> Iterator[int]:
    """Odd numbers of every size from 2 bits on: near the upper end, as our primes are, and where
    half of all draws are rejected.
    """
    for bits in range(2, 62):
        yield (1 << bits) - 1
        yield (1 << (bits - 1)) + 1


def expanded_by_definition(seed: bytes, modulus: int, run: int, length: int) -> list[int]:
    """As docs/reference/formats.md says it, number by number."""
    bits, width = modulus.bit_length(), length // 64
    message = b"encryptedstats a" + seed + modulus.to_bytes(8, "little") + run.to_bytes(8, "little")
    words = np.frombuffer(
        hashlib.shake_256(message).digest(8 * (bits * width + 64 * length)), dtype="<u8"
    ).tolist()
    streams = [
        sum(words[row * width + j] << (64 * row) for row in range(bits)) for j in range(width)
    ]
    mask = (1 << bits) - 1
    numbers = [streams[n % width] >> (bits * (n // width)) & mask for n in range(length)]
    more = (word & mask for word in words[bits * width :] if word & mask < modulus)
    return [number if number < modulus else next(more) for number in numbers]


@pytest.mark.parametrize("instructions", WAYS, indirect=True)
def test_expanding_is_what_it_is_said_to_be(instructions):
    for modulus in moduli():
        out = np.zeros((COLUMNS, 1, 1, 64), dtype=np.uint64)
        pieces.expand(SEEDS, modulus, out, 0)
        for column in (0, COLUMNS - 1):
            seed = SEEDS[32 * column : 32 * (column + 1)]
            assert out[column, 0, 0].tolist() == expanded_by_definition(seed, modulus, 0, 64), (
                modulus
            )
    for run in range(3):
        out = np.zeros((1, 2, 2, 3072), dtype=np.uint64)
        pieces.expand(SEEDS[:32], (1 << 43) - 1, out, 1)
        expected = expanded_by_definition(SEEDS[:32], (1 << 43) - 1, run, 1024)
        assert out[0, 1, 1, 1024 * run : 1024 * (run + 1)].tolist() == expected
        assert not out[0, 0].any()
        assert not out[0, 1, 0].any()


@needs_extension
@pytest.mark.parametrize("modulus", [5, 17, (1 << 34) + 1, (1 << 43) - 5, (1 << 60) + 33])
def test_expanded_numbers_are_uniform(modulus):
    """Means and the spread of the lowest and highest quarters, at five standard deviations; none is
    twice the same by design.
    """
    out = np.empty((COLUMNS, 1, 1, 8192), dtype=np.uint64)
    pieces.expand(SEEDS, modulus, out, 0)
    found = out.reshape(-1)
    assert found.max() < modulus
    n, mean, deviation = found.size, (modulus - 1) / 2, np.sqrt((modulus**2 - 1) / 12)
    assert abs(found.mean() - mean) < 5 * deviation / np.sqrt(n)
    for low, high in ((0, modulus // 4), (modulus - modulus // 4, modulus)):
        share = (high - low) / modulus
        inside = ((found >= low) & (found < high)).mean()
        assert abs(inside - share) < 5 * np.sqrt(share * (1 - share) / n)


def test_primes_runs_and_seeds_are_told_apart():
    """No two of them expand to anything alike, also where the primes have the same bits."""
    p, q = (1 << 43) - 1, (1 << 43) - 3
    out = np.empty((3, 1, 2, 2048), dtype=np.uint64)
    pieces.expand(SEEDS[:96], p, out, 0)
    pieces.expand(SEEDS[:96], q, out, 1)
    parts = [*out.reshape(-1, 1024)]
    for i, a in enumerate(parts):
        for b in parts[:i]:
            assert (a == b).sum() == 0
            assert len(np.intersect1d(a, b)) <= 1


@pytest.mark.parametrize("instructions", WAYS, indirect=True)
@pytest.mark.parametrize("seeded", [True, False])
def test_what_was_written_is_read(instructions, seeded):
    random = np.random.default_rng(5)
    for bits in range(2, 62):
        modulus, run = (1 << bits) - 1, int(random.choice([64, 128, 1024]))
        n_runs, components = int(random.integers(1, 3)) if run == 1024 else 1, 1 if seeded else 2
        residues = random.integers(0, modulus, (COLUMNS, 2, n_runs * run), dtype=np.uint64)
        by_run = (
            residues[:, :components].reshape(COLUMNS, components, n_runs, run).transpose(2, 0, 1, 3)
        )
        data = packed(np.ascontiguousarray(by_run), bits)
        assert data == bitpack.pack(by_run, bits).astype("<u8").tobytes()
        size = components * run * bits // 8
        digests = pieces.digests_of(data, size)
        assert digests == b"".join(
            hashlib.shake_256(data[at : at + size]).digest(16) for at in range(0, len(data), size)
        )
        out = np.zeros((COLUMNS, 2, 3, n_runs * run), dtype=np.uint64)
        seeds = SEEDS if seeded else b""
        odd = memoryview(b"x" + data)[1:]  # at an odd address
        assert (
            pieces.read(odd, digests, seeds, modulus, range(n_runs), pieces.Target(out, 1, 0))
            is None
        )
        if seeded:
            expected = np.empty((COLUMNS, 1, 1, n_runs * run), dtype=np.uint64)
            pieces.expand(SEEDS, modulus, expected, 0)
            residues[:, 1] = expected[:, 0, 0]
        np.testing.assert_array_equal(out[:, :, 1], residues)
        assert not out[:, :, [0, 2]].any()


@pytest.mark.parametrize("instructions", WAYS, indirect=True)
def test_the_first_bad_piece_is_named(instructions):
    modulus, size = (1 << 43) - 5, 1024 * 43 // 8
    numbers = np.random.default_rng(1).integers(0, modulus, (2 * COLUMNS, 1024), dtype=np.uint64)
    out = np.empty((COLUMNS, 2, 1, 2048), dtype=np.uint64)
    data = packed(numbers, 43)
    digests = pieces.digests_of(data, size)
    for bad in (0, 6, 7, 13):
        for place in (size * bad, size * (bad + 1) - 1):
            damaged = data[:place] + bytes([data[place] ^ 128]) + data[place + 1 :]
            assert pieces.read(
                damaged, digests, SEEDS, modulus, range(2), pieces.Target(out, 0, 0)
            ) == (
                bad,
                False,
            )
        excess = numbers.copy()
        excess[bad, 1023], excess[13, 0] = modulus, modulus
        wrong = packed(excess, 43)
        found = pieces.read(
            wrong,
            pieces.digests_of(wrong, size),
            SEEDS,
            modulus,
            range(2),
            pieces.Target(out, 0, 0),
        )
        assert found == (bad, True)


@pytest.mark.parametrize("instructions", WAYS, indirect=True)
def test_later_runs_are_expanded_as_such(instructions):
    modulus = (1 << 43) - 5
    numbers = np.zeros((COLUMNS, 1024), dtype=np.uint64)
    data = packed(numbers, 43)
    out, whole = (
        np.empty((COLUMNS, 2, 1, 1024), dtype=np.uint64),
        np.empty((COLUMNS, 1, 1, 4096), dtype=np.uint64),
    )
    assert (
        pieces.read(
            data,
            pieces.digests_of(data, 5504),
            SEEDS,
            modulus,
            range(3, 4),
            pieces.Target(out, 0, 0),
        )
        is None
    )
    pieces.expand(SEEDS, modulus, whole, 0)
    np.testing.assert_array_equal(out[:, 1, 0], whole[:, 0, 0, 3072:])


@pytest.mark.parametrize("instructions", WAYS, indirect=True)
def test_more_bits_than_packed_are_refused(instructions):
    with pytest.raises(ValueError, check=error("value-too-large", "10")):
        packed(np.full((1, 64), 1 << 10, dtype=np.uint64), 10)


def test_the_environment_caps_the_processor(monkeypatch):
    monkeypatch.setenv("ENCRYPTEDSTATS_CPU", "pentium")
    if pieces._storage is None:
        assert pieces.level() is None
        return
    with pytest.raises(
        ValueError, check=error("unknown-cpu-level", "'pentium'", "ENCRYPTEDSTATS_CPU='pentium'")
    ):
        pieces.level()
    monkeypatch.setenv("ENCRYPTEDSTATS_CPU", "ifma")
    assert pieces.level() == LEVELS[-1]


@needs_extension
@pytest.mark.parametrize("which", range(4))
def test_what_is_no_residue_is_not_rebased(which):
    """A wrong word would go into a product with the secret."""
    for p in ((1 << 61) + 1, (1 << 43) - 5):
        moduli, arrays = (
            np.array([p] * 2, dtype=np.uint64),
            [np.ones((2, 64), dtype=np.uint64) for _ in range(4)],
        )
        ciphertext, fresh, secret = np.stack(arrays[:2]), *arrays[2:]
        out = np.empty((2, 64), dtype=np.uint64)
        pieces.rebase(moduli, ciphertext, fresh, secret, out)
        assert (out == 1).all()
        [ciphertext[0], ciphertext[1], fresh, secret][which][1, 63] = p
        with pytest.raises(ValueError, match="are re-based modulo odd primes below 2\\^62"):
            pieces.rebase(moduli, ciphertext, fresh, secret, out)


@needs_extension
@pytest.mark.parametrize(
    "modulus", [0, 1, 2, 1 << 20, 6, 1 << 61, (1 << 62) + 1, (1 << 63) + 29, (1 << 64) - 59]
)
def test_moduli_that_nothing_is_rebased_by(modulus):
    """Even ones: of a power of two the quotient does not fit a word, and what came out would be
    wrong.
    """
    one = np.zeros((1, 64), dtype=np.uint64)
    with pytest.raises(ValueError, match="are re-based modulo odd primes below 2\\^62"):
        pieces.rebase(
            np.array([modulus], dtype=np.uint64), np.stack([one, one]), one, one, one.copy()
        )


@pytest.mark.parametrize("modulus", [(1 << 62) + 1, (1 << 63) + 29, (1 << 64) + (1 << 43) - 5, -5])
@needs_extension
def test_moduli_are_refused_and_not_cut_to_a_word(modulus):
    out = np.zeros((COLUMNS, 1, 1, 64), dtype=np.uint64)
    with pytest.raises((ValueError, OverflowError), match=r"do not fit|too big|negative"):
        pieces._storage.read(
            "baseline", modulus, (64, 0, 1, COLUMNS), b"", b"", SEEDS, out, (0, 64, 0)
        )
    assert not out.any()


@needs_extension
def test_strange_arguments_are_refused():
    """The process survives whatever is given to the extension."""
    storage, modulus = pieces._storage, (1 << 43) - 5
    numbers = np.random.default_rng(2).integers(0, modulus, (COLUMNS, 128), dtype=np.uint64)
    data = np.frombuffer(packed(numbers, 43), dtype=np.uint8).copy()
    size = 128 * 43 // 8
    digests = np.frombuffer(pieces.digests_of(data.tobytes(), size), dtype=np.uint8).copy()
    seeds = np.frombuffer(SEEDS, dtype=np.uint8).copy()
    empty, out = np.empty(0, dtype=np.uint8), np.zeros((COLUMNS, 2, 128), dtype=np.uint64)
    pair = np.stack([numbers[0], numbers[1]])
    calls = [
        (storage.hash, ("baseline", data, size, np.empty(16 * COLUMNS, dtype=np.uint8))),
        (storage.pack, ("baseline", numbers, 43, 128, data.copy())),
        (
            storage.read,
            ("baseline", modulus, (128, 0, 1, COLUMNS), data, digests, seeds, out, (0, 256, 128)),
        ),
        (
            storage.read,
            ("baseline", modulus, (64, 0, 2, COLUMNS), empty, empty, seeds, out, (128, 256, 0)),
        ),
        (
            storage.rebase,
            (
                np.array([modulus] * 2, dtype=np.uint64),
                pair,
                *numbers[2:4],
                np.empty(128, dtype=np.uint64),
            ),
        ),
    ]
    calls += [(call, (LEVELS[-1], *arguments[1:])) for call, arguments in calls[:-1]]
    for call, arguments in calls:
        call(*arguments)
    others = [
        None,
        b"",
        1.5,
        (),
        1 << 70,
        "z80",
        *(argument for _, arguments in calls for argument in arguments),
    ]
    for name, random in random_runs():
        call, arguments = one_of(random, calls)
        changed = list(arguments)
        for _ in range(random.integers(1, 3)):
            at = int(random.integers(len(changed)))
            changed[at] = strange(random, changed[at], others)
        try:
            call(*changed)
        except REFUSALS:
            continue
        except BaseException as error:
            raise AssertionError(name) from error
