"""The numbers of a spot check: shares, positions, weights, and arithmetic at single positions."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from spot_samples import story_of

from encryptedstats.circuits.spare_bits import (
    Certainty,
    choose_terms,
    count_positions,
    default_positions,
    required_budget,
    share_of_lies,
)
from encryptedstats.crypto.primes import primes_of_bits
from encryptedstats.crypto.residues import ciphertext_of
from encryptedstats.spotcheck import combining
from encryptedstats.spotcheck.arithmetic import multiply
from encryptedstats.spotcheck.combining import Weighing, draw_weights
from insecure import insecure_parameters


@pytest.mark.parametrize("bits", [20, 36, 49, 50, 54, 60])
def test_products_are_exact(bits: int) -> None:
    p = primes_of_bits(bits, 2048, 1)[0] if bits < 60 else (1 << 60) - 93
    edges = [0, 1, 2, p // 2, p // 2 + 1, p - 2, p - 1]
    rng = np.random.default_rng(bits)
    numbers = edges + [int(x) for x in rng.integers(0, p, 40)]
    pairs = list(product(numbers, numbers))
    a, b = (np.array([pair[i] for pair in pairs], dtype=np.uint64) for i in (0, 1))
    found = multiply(a, b, np.full(len(pairs), p, dtype=np.uint64))
    assert found.tolist() == [x * y % p for x, y in pairs]


def test_the_budget_that_is_required_is_measured_of_honest_sums() -> None:
    story = story_of()
    terms = story.check._ask(story.answer, story.question, None)[1].terms
    engine, decryptor = story.table.keys.engine, story.owner.decryptor
    for one in story.response.sums:
        measured = decryptor.measure_budget(ciphertext_of(engine, one))
        assert terms.budget <= measured < terms.budget + 40


def test_a_budget_bounds_the_largest_coefficient() -> None:
    """SEAL's budget is the bits of q, less those of the largest coefficient, less 1."""
    story = story_of()
    engine, decryptor = story.table.keys.engine, story.owner.decryptor
    q = math.prod(story.table.parameters.data_moduli)
    for bits in (100, 150, 200):
        residues = story.response.sums[0].copy()
        for prime, p in enumerate(story.table.parameters.data_moduli):
            residues[0, prime] = (residues[0, prime] + np.uint64((1 << bits) % p)) % np.uint64(p)
        measured = decryptor.measure_budget(ciphertext_of(engine, residues))
        # The noise that was there may take the coefficient just below the power of two.
        assert measured - (q.bit_length() - 1 - bits) in (-1, 0)


def test_shares_are_those_of_the_page() -> None:
    parameters = insecure_parameters("bgv", 1 << 20, (50,) * 6)
    primes = parameters.data_moduli
    q = math.prod(primes)
    for budget in (20, 100, 200):
        norm = 2.0 ** (q.bit_length() - budget) * math.sqrt(1024)  # of the difference of two
        agreeing = math.log2(norm) / math.log2(q)
        share = share_of_lies(parameters, budget)
        assert share == pytest.approx((1 - agreeing) * math.log2(q) / (5 * math.log2(max(primes))))


@pytest.mark.parametrize("share", [0.01, 0.2, 0.9])
def test_positions_are_the_fewest_that_suffice(share: float) -> None:
    count = count_positions(share, 41)
    assert (1 - share) ** count <= 2**-41 < (1 - share) ** (count - 1)


def test_budgets_fall_with_weights() -> None:
    parameters = insecure_parameters("bgv", 1 << 20, (50,) * 6)
    noise = parameters.noise.fresh(with_secret_key=True)
    bound = parameters.noise.coefficient_bound(noise)
    before = required_budget(parameters, bound)
    assert required_budget(parameters, 256 * bound) == before - 8
    assert before <= parameters.noise.budget(noise)
    few = choose_terms(parameters, bound, 24, Certainty())
    many = choose_terms(parameters, bound, 200, Certainty())
    assert few.weight_bits <= many.weight_bits
    assert few.combinations * few.weight_bits >= 51
    assert count_positions(few.share, 41) <= 24
    for terms in (few, many):
        assert terms.budget == required_budget(parameters, bound * 2**terms.weight_bits)


def test_weights_are_uniform_and_never_zero() -> None:
    (drawn,) = draw_weights([b"s" * 32], 1 << 16, 3)
    assert sorted(set(drawn.tolist())) == list(range(1, 9))
    counts = np.bincount(drawn, minlength=9)[1:]
    assert abs(counts - (1 << 13)).max() < 6 * math.sqrt(1 << 13)
    one, other = draw_weights([b"t" * 32, b"s" * 32], 8, 8).tolist()
    assert one != other


@pytest.mark.parametrize("level", ["any", "kernel"])
@pytest.mark.parametrize("bits", [30, 50, 59])
def test_sums_in_one_array_are_weighed_exactly(
    bits: int, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if level == "any":
        monkeypatch.setattr(combining, "_weigh", None)
    rng = np.random.default_rng(bits)
    primes = np.array([primes_of_bits(bits, 64, 2)[i % 2] for i in range(6)], dtype=np.uint64)
    sizes = [int(rng.integers(2, 5)) for _ in range(150)]
    sums = [primes - 1 - rng.integers(0, 3, (size, 6)).astype(np.uint64) for size in sizes]
    weights = np.full((2, 150), 1 << 16) - rng.integers(0, 2, (2, 150))
    firsts = np.cumsum([0, *sizes[:-1]])
    places = 6 * np.stack([firsts, sizes], axis=1)
    weighing = Weighing(np.tile(primes, 4), 3)
    weighing.add_rows(weights, np.concatenate(sums).reshape(-1), places, 1)
    found = weighing.result().reshape(3, 4, 6)
    assert not found[0].any()
    found = found[1:]
    for a, part, place in product(range(2), range(4), range(6)):
        terms = [
            int(w) * int(one[part, place])
            for w, one in zip(weights[a], sums, strict=True)
            if len(one) > part
        ]
        assert int(found[a, part, place]) == sum(terms) % int(primes[place])


def test_at_most_four_percent_are_kept() -> None:
    for ring, count in ((1024, 5), (2048, 4), (4096, 5)):
        parameters = insecure_parameters("bgv", 1 << 20, (50,) * (count + 1), ring_degree=ring)
        kept = default_positions(parameters)
        assert kept <= 0.04 * ring * count
        assert kept == 512 or kept > 0.039 * ring * count


@pytest.mark.parametrize("level", ["any", "kernel"])
@pytest.mark.parametrize("combinations", [1, 3, 4, 7, 8, 13])
def test_combinations_of_every_number_are_exact(
    level: str, combinations: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks, tiles and vectors that are not full, and sums that end in the middle of a block."""
    if level == "any":
        monkeypatch.setattr(combining, "_weigh", None)
    rng = np.random.default_rng(combinations)
    p, lengths = (1 << 49) - 69, [300, 450, 451, 600, 603, 128, 5]
    sums = [rng.integers(0, p, lengths[k % 7]).astype(np.uint64) for k in range(75)]
    weights = rng.integers(1, 1 << 16, (combinations, len(sums)), endpoint=True)
    weighing = Weighing(np.full(603, p, dtype=np.uint64), combinations, threads=3)
    for some in (slice(0, 40), slice(40, 75)):
        weighing.add(weights[:, some], sums[some])
    found = weighing.result()
    for a, place in product(range(combinations), (0, 4, 5, 127, 128, 299, 300, 449, 450, 599, 602)):
        terms = [
            int(w) * int(one[place])
            for w, one in zip(weights[a], sums, strict=True)
            if place < len(one)
        ]
        assert int(found[a, place]) == sum(terms) % p


def test_the_kernel_refuses_arrays_that_do_not_fit() -> None:
    weigh_words = pytest.importorskip("encryptedstats._weigh").weigh
    weights = np.ones((2, 3), dtype=np.uint64)
    sums = tuple(np.ones(8, dtype=np.uint64) for _ in range(3))
    low, high = (np.zeros((2, 8), dtype=np.uint64) for _ in range(2))
    weigh_words(weights, sums, 0, 8, low, high)
    assert low.tolist() == [[3] * 8] * 2
    longer = (*sums[:2], np.ones(9, dtype=np.uint64))
    for given in (
        (weights[:, :2].copy(), sums, 0, 8, low, high),
        (weights, longer, 0, 8, low, high),
        (weights, sums, 0, 9, low, high),
        (weights, sums, -1, 8, low, high),
        (weights, sums, 8, 0, low, high),
        (weights + np.uint64(1 << 16), sums, 0, 8, low, high),
        (weights, (), 0, 8, low, high),
        (weights, sums, 0, 8, low, high[:, :7].copy()),
        (weights.astype(np.uint32), sums, 0, 8, low, high),
    ):
        with pytest.raises(ValueError, match=r"fit together|aligned"):
            weigh_words(*given)


def test_the_kernel_refuses_places_outside_of_an_array() -> None:
    weigh_rows = pytest.importorskip("encryptedstats._weigh").weigh_rows
    weights = np.ones((2, 3), dtype=np.uint64)
    words = np.arange(20, dtype=np.uint64)
    places = np.array([[0, 4], [16, 4], [20, 0]], dtype=np.int64)
    low, high = (np.zeros((2, 4), dtype=np.uint64) for _ in range(2))
    weigh_rows(weights, words, places, 0, 4, low, high)
    assert low.tolist() == [[16, 18, 20, 22]] * 2
    most = (1 << 63) - 1
    wrong = [[17, 4], [-1, 4], [0, -1], [21, 0], [0, 5], [most, most], [0, most]]
    for given in (
        *((weights, words, np.array([[0, 4], [0, 4], one]), 0, 4, low, high) for one in wrong),
        (weights, words, places[:2].copy(), 0, 4, low, high),
        (weights, words, places[:0].copy(), 0, 4, low, high),
        (weights, words.astype(np.uint32), places, 0, 4, low, high),
        (weights, words, places.astype(np.int32), 0, 4, low, high),
        (weights, words, places, 0, 5, low, high),
    ):
        with pytest.raises(ValueError, match=r"fit together|aligned"):
            weigh_rows(*given)
