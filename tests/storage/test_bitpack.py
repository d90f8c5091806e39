"""Packing to bits: the inverse for every size, at the extremes, along the last axis of
any shape.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from encryptedstats.storage.bitpack import pack, unpack
from error_codes import error


@pytest.mark.parametrize("bits", range(1, 64))
def test_extremes_of_every_size(bits):
    top = (1 << bits) - 1
    for values in (
        np.zeros(64, dtype=np.uint64),
        np.full(128, top, dtype=np.uint64),
        np.array([0, top] * 32, dtype=np.uint64),
        np.array([1 << (i % bits) for i in range(192)], dtype=np.uint64),
        np.arange(64, dtype=np.uint64) % np.uint64(top + 1),
    ):
        packed = pack(values, bits)
        assert (packed.dtype, packed.shape) == (np.uint64, (len(values) * bits // 64,))
        np.testing.assert_array_equal(unpack(packed, bits), values)


@given(
    bits=st.integers(1, 63),
    words=st.integers(1, 4),
    lead=st.lists(st.integers(1, 3), max_size=3),
    seed=st.integers(0, 2**32),
)
def test_any_numbers_of_any_shape(bits, words, lead, seed):
    values = np.random.default_rng(seed).integers(
        0, 1 << bits, (*lead, 64 * words), dtype=np.uint64
    )
    packed = pack(values, bits)
    assert packed.shape == (*lead, bits * words)
    np.testing.assert_array_equal(unpack(packed, bits), values)
    # Every row by itself: what is packed beside it does not matter.
    for index in np.ndindex(*lead):
        np.testing.assert_array_equal(packed[index], pack(values[index], bits))


@given(bits=st.integers(1, 63), place=st.integers(0, 191), seed=st.integers(0, 2**32))
def test_each_bit_belongs_to_one_number(bits, place, seed):
    values = np.random.default_rng(seed).integers(0, 1 << bits, 192, dtype=np.uint64)
    changed = values.copy()
    changed[place] ^= np.uint64(1 << (seed % bits))
    difference = pack(values, bits) ^ pack(changed, bits)
    assert sum(int(word).bit_count() for word in difference) == 1


@given(st.integers(1, 63), st.integers(0, 2**32))
def test_every_pattern_of_words_is_some_numbers(bits, seed):
    packed = np.random.default_rng(seed).integers(0, 1 << 64, 2 * bits, dtype=np.uint64)
    np.testing.assert_array_equal(pack(unpack(packed, bits), bits), packed)


def test_the_input_stays_and_need_not_be_contiguous():
    values = np.arange(4 * 128, dtype=np.uint64).reshape(4, 128)
    kept = values.copy()
    np.testing.assert_array_equal(pack(values[::2], 10), pack(values[::2].copy(), 10))
    np.testing.assert_array_equal(unpack(pack(values.T.copy().T, 10), 10), values)
    np.testing.assert_array_equal(values, kept)


@pytest.mark.parametrize("bits", [0, 64, -1])
def test_sizes_that_are_not_packed(bits):
    with pytest.raises(ValueError, check=error("bits-out-of-range", bits)):
        pack(np.zeros(64, dtype=np.uint64), bits)
    with pytest.raises(ValueError, check=error("bits-out-of-range", bits)):
        unpack(np.zeros(64, dtype=np.uint64), bits)


def test_lengths_that_do_not_fit():
    with pytest.raises(ValueError, check=error("not-a-multiple", "63", "64")):
        pack(np.zeros(63, dtype=np.uint64), 5)
    with pytest.raises(ValueError, check=error("not-a-multiple", "6", "5")):
        unpack(np.zeros(6, dtype=np.uint64), 5)
