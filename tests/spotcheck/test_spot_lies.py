"""How often lies of each kind are caught, beside what the page of the proof allows.

A lie is told once and then checked by many owners, who differ in their secret positions or weights
alone. With one position, or weights of one bit, many lies pass: so the rates can be counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import pytest
from spot_samples import (
    N_ROWS,
    QUESTION,
    WEAK,
    Story,
    altered,
    answer_of,
    keeper_of,
    lie_that_fits,
    patients,
    same_keys,
    schema_of,
    sealed_table,
    small_owner,
    story_of,
    values_of_x,
    with_positions,
    with_sums_plus,
    with_totals_plus,
)

import encryptedstats as es
from encryptedstats.circuits.spare_bits import Terms, count_positions, count_residues
from encryptedstats.crypto.residues import Residues
from encryptedstats.spotcheck import Response, SpotCheck, respond
from encryptedstats.spotcheck import check as checking
from encryptedstats.spotcheck.kept import Keeper, Positions
from encryptedstats.tables.answers.answer import Answer
from error_codes import error

pytestmark = pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")
CAUGHT = error("spot-check-failed")
#: Tables of two chunks, and of one chunk whose totals are interleaved.
LAYOUTS = {"chunks": (N_ROWS, 1), "interleaved": (100, 8)}
#: Owners who open a lie; those who watch one of its few good places are counted.
MANY = ("quick", pytest.param("many", marks=pytest.mark.slow))


@dataclass(frozen=True)
class Lie:
    """What a worker sends, and what it can count on: the story tells of the honest one."""

    story: Story
    answer: Answer
    response: Response


def _new_story(layout: str) -> Story:
    rows, copies = LAYOUTS[layout]
    table, owner = sealed_table(rows, copies), small_owner(copies)
    return with_positions(story_of(table, owner=owner), [0])


def _consistent(story: Story, rows: es.EncryptedTable) -> Lie:
    """Packs and sums are honest ones of other rows."""
    answer = answer_of(rows)
    challenge = story.check.challenge(answer, QUESTION)
    return Lie(story, answer, respond(rows, QUESTION, challenge))


def _moduli(story: Story) -> Residues:
    return np.array(story.owner.parameters.data_moduli, dtype=np.uint64)[:, None]


def _change_rows(change: Callable[[Story, list[Residues]], list[Residues]]) -> Callable[..., Lie]:
    def tell(story: Story) -> Lie:
        return _consistent(story, altered(story.table, lambda blocks: change(story, blocks)))

    return tell


def _leave_out(story: Story, blocks: list[Residues]) -> list[Residues]:
    zeros = story.owner.public_keys().encryptor.encrypt_zero(0)
    return [*blocks[:-1], np.stack([zeros] * len(blocks[-1]))]


def _double(story: Story, blocks: list[Residues]) -> list[Residues]:
    return [blocks[0]] * len(blocks)


def _weigh_rows(story: Story, blocks: list[Residues]) -> list[Residues]:
    return [(blocks[0] + blocks[0]) % _moduli(story), *blocks[1:]]


def _add_noise(story: Story, blocks: list[Residues]) -> list[Residues]:
    changed = blocks[0].copy()
    t = np.uint64(story.owner.parameters.plain_modulus)
    changed[0, 0] = (changed[0, 0] + t) % _moduli(story)
    return [changed, *blocks[1:]]


def _encrypt_again(owner: es.Owner, rows: int) -> list[Residues]:
    again = owner.encrypt(schema_of().table(patients(rows))).blocks
    return [again.block(i) for i in range(len(again.ids))]


def _use_stale_rows(story: Story, blocks: list[Residues]) -> list[Residues]:
    return _encrypt_again(story.owner, story.table.n_rows)


def _use_another_key(story: Story, blocks: list[Residues]) -> list[Residues]:
    return _encrypt_again(es.Owner(story.owner.parameters), story.table.n_rows)


def _change_one_column(story: Story, blocks: list[Residues]) -> list[Residues]:
    changed = blocks[0].copy()
    changed[0] = changed[1]
    return [changed, *blocks[1:]]


def _answer_another_question(story: Story) -> Lie:
    """Totals of the same number, of another variable: the labels are exchanged."""
    frame = patients(story.table.n_rows).rename(columns={"age": "dose", "dose": "age"})
    exchanged = story.owner.encrypt(schema_of().table(frame)).blocks
    blocks = [exchanged.block(i) for i in range(len(exchanged.ids))]
    return _consistent(story, altered(story.table, lambda _: blocks))


def _replay(story: Story) -> Lie:
    """Packs of now, and sums that were sent for others."""
    old = with_totals_plus(story.answer, [1, -1] + [0] * (len(story.answer.ciphertexts) - 2))
    challenge = story.check.challenge(old, QUESTION)
    return Lie(story, story.answer, respond(story.table, QUESTION, challenge))


def _exchange_totals(story: Story) -> Lie:
    """Multiply sums by a power of X, which moves interleaved totals to other places."""
    ring, changed = story.owner.parameters.ring_degree, []
    for one in story.response.sums:
        moved = one.copy()
        for prime, p in enumerate(story.owner.parameters.data_moduli):
            at = np.array(values_of_x(p, ring, ring // 8), dtype=object)
            moved[:, prime] = (moved[:, prime].astype(object) * at % p).astype(np.uint64)
        changed.append(moved)
    return Lie(story, story.answer, Response(tuple(changed)))


def _sum_other_rows(story: Story) -> Lie:
    """Honest packs, and sums of other rows than the packs that were committed to."""
    rows = altered(story.table, lambda blocks: _weigh_rows(story, blocks))
    return Lie(story, story.answer, respond(rows, QUESTION, story.challenge))


def _pack_other_rows(story: Story) -> Lie:
    """Packs of other rows, and honest sums."""
    answer = answer_of(altered(story.table, lambda blocks: _weigh_rows(story, blocks)))
    challenge = story.check.challenge(answer, QUESTION)
    return Lie(story, answer, respond(story.table, QUESTION, challenge))


def _add_message(story: Story) -> Lie:
    """Another plaintext without noise, at all positions."""
    return Lie(story, story.answer, with_sums_plus(story, [1] * len(story.response.sums)))


def _change_one_residue(story: Story) -> Lie:
    sums = [one.copy() for one in story.response.sums]
    sums[0][1, 2, 7] ^= np.uint64(1)
    return Lie(story, story.answer, Response(tuple(sums)))


def _hide_at_one_prime(story: Story) -> Lie:
    first = story.owner.parameters.data_moduli[0]
    return Lie(story, *lie_that_fits(replace(story), first))


def _hide_at_two_primes(story: Story) -> Lie:
    first, second = story.owner.parameters.data_moduli[:2]
    return Lie(story, *lie_that_fits(replace(story), first * second))


LIES: dict[str, Callable[[Story], Lie]] = {
    "a chunk left out": _change_rows(_leave_out),
    "a chunk doubled": _change_rows(_double),
    "another question": _answer_another_question,
    "a row's weight changed": _change_rows(_weigh_rows),
    "noise added": _change_rows(_add_noise),
    "a column exchanged": _change_rows(_change_one_column),
    "stale rows": _change_rows(_use_stale_rows),
    "another key": _change_rows(_use_another_key),
    "wrong packs only": _pack_other_rows,
    "sums of other rows": _sum_other_rows,
    "a replayed response": _replay,
    "totals moved": _exchange_totals,
    "another message": _add_message,
    "one residue changed": _change_one_residue,
    "hidden at a prime": _hide_at_one_prime,
    "hidden at two primes": _hide_at_two_primes,
}


def _openings(lie: Lie, seeds: int) -> Iterator[bool]:
    """Yield whether a lie passes, for owners who watch one position each."""
    story = lie.story
    every = count_residues(story.owner.parameters)
    for place in np.random.default_rng(11).integers(0, every, seeds).tolist():
        yield _passes(lie, [place], story.check.keeper.secret)


def _passes(lie: Lie, places: list[int], secret: bytes) -> bool:
    owner = same_keys(lie.story.owner)
    positions = Positions(np.array(places, dtype=np.int64), owner.parameters)
    owner._kept = Keeper(owner, positions, secret)
    owner._kept.keep(lie.story.table)
    check = SpotCheck(owner._kept, WEAK)
    passed = _opens(check, lie.answer, lie.response)
    assert passed == (owner.retired is None)
    return passed


def _opens(check: SpotCheck, answer: Answer, response: Response) -> bool:
    try:
        check.open(answer, QUESTION, response)
    except es.VerificationError as failed:
        if not CAUGHT(failed):
            raise
        return False
    return True


@pytest.mark.parametrize("effort", MANY)
@pytest.mark.parametrize(
    ("kind", "layout"),
    [one for one in product(LIES, LAYOUTS) if one != ("a chunk doubled", "interleaved")],
)
def test_lies_pass_no_more_often_than_the_bound_allows(kind: str, layout: str, effort: str) -> None:
    """A position misses a lie with probability 1 - share at most.

    What passes is counted exactly: of these lies all but those that hide differ everywhere, and
    those that hide differ everywhere but at their primes.
    """
    few = 60 if kind.startswith("hidden") else 15
    seeds = few if effort == "quick" else 1000
    story = _new_story(layout)
    lie = LIES[kind](story)
    terms = story.check._ask(lie.answer, QUESTION, None)[1].terms
    passed = sum(_openings(lie, seeds))
    every = count_residues(story.owner.parameters)
    drawn = np.random.default_rng(11).integers(0, every, seeds)
    hidden = int((drawn < story.owner.parameters.ring_degree).sum())
    assert passed == (hidden if kind == "hidden at a prime" else 0)
    assert passed <= (1 - terms.share) * seeds


@pytest.mark.parametrize("layout", LAYOUTS)
def test_more_positions_miss_less(layout: str) -> None:
    """The best lie is missed by n positions with probability (1/5)^n: here by 100 draws of 2."""
    lie = _hide_at_one_prime(_new_story(layout))
    parameters, rng = lie.story.owner.parameters, np.random.default_rng(4)
    every, ring = count_residues(parameters), parameters.ring_degree
    passed = predicted = 0
    for _ in range(100):
        places = sorted(rng.choice(every, 2, replace=False).tolist())
        passed += _passes(lie, places, lie.story.check.keeper.secret)
        predicted += places[-1] < ring
    assert 0 < passed == predicted < 15
    share = lie.story.check._ask(lie.answer, QUESTION, None)[1].terms.share
    assert passed <= (1 - share) ** 2 * 100
    assert count_positions(share, 2) <= 2


@pytest.mark.parametrize("seeds", [pytest.param(80), pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_wrong_packs_pass_as_often_as_weights_agree(
    layout: str, seeds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two errors that cancel where their weights are equal: with two combinations of weights 1
    and 2, once in four.
    """
    story = _new_story(layout)
    known = story.check._ask(story.answer, QUESTION, None)[1]
    few = Terms(1, 2, known.terms.budget - 20, known.terms.share)
    monkeypatch.setattr(checking, "choose_terms", lambda *_: few)
    sums, errors = known.sums, [0] * len(story.answer.ciphertexts)
    opened, count = _numbers(story, story.answer), sums.n_interleaved
    more, less = next(
        (a, b)
        for a, b in product(range(len(errors)), repeat=2)
        if a != b
        and sums.places[a] % count == sums.places[b] % count
        and opened[a] < sums.facts[a].high
        and opened[b] > sums.facts[b].low
    )
    errors[more], errors[less] = 1, -1
    lie = with_totals_plus(story.answer, errors)
    groups = [sums.places[number] // count for number in (more, less)]
    passed = predicted = 0
    for seed in range(seeds):
        owner = same_keys(story.owner)
        positions = Positions(np.array([5], dtype=np.int64), owner.parameters)
        owner._kept = Keeper(owner, positions, seed.to_bytes(32, "big"))
        owner._kept.keep(story.table)
        check = SpotCheck(owner._kept, WEAK)
        sent, asked = check._ask(lie, QUESTION, None)
        weights = check._weights(sent.ciphertexts, asked)
        predicted += bool((weights[:, groups[0]] == weights[:, groups[1]]).all())
        response = respond(story.table, QUESTION, check.challenge(lie, QUESTION))
        own = check._own_numbers(sent.ciphertexts, asked)
        passed += check._open_if_honest(own, weights, asked, response) is not None
    assert passed == predicted
    # 80 coins of 1/4: 20 pass on average, and none or more than 47 once in 10^9 times.
    assert 0 < passed < seeds / 4 + 6.6 * (seeds * 3 / 16) ** 0.5 + 2


def test_sums_in_another_order_are_found() -> None:
    story = story_of()
    assert len(story.response.sums) > 1
    with pytest.raises(es.VerificationError, check=CAUGHT):
        story.open(response=Response(story.response.sums[::-1]))


# -- interleaved totals ----------------------------------------------------------------------------


def _agrees(story: Story, answer: Answer) -> bool:
    """Return whether honest sums agree with an answer; that totals are possible is
    checked later.
    """
    sent, asked = story.check._ask(answer, story.question, None)
    own = story.check._own_numbers(sent.ciphertexts, asked)
    weights = story.check._weights(sent.ciphertexts, asked)
    challenge = story.check.challenge(answer, story.question)
    response = respond(story.table, story.question, challenge)
    return story.check._open_if_honest(own, weights, asked, response) is not None


def _errors_at(story: Story, *numbers: int) -> list[int]:
    """Return errors that add up to 0, or a single one, and leave totals within their bounds."""
    facts = story.check._ask(story.answer, story.question, None)[1].sums.facts
    errors, opened = [0] * len(facts), _numbers(story, story.answer)
    for number, sign in zip(numbers, (1, -1), strict=False):
        more = opened[number] < facts[number].high
        errors[number] = sign if len(numbers) > 1 or more else -sign
        assert facts[number].low <= opened[number] + errors[number] <= facts[number].high
    return errors


def test_errors_that_cancel_within_a_group_are_found() -> None:
    """Interleaved totals share their weights, and are compared one by one."""
    story = _new_story("interleaved")
    sums = story.check._ask(story.answer, QUESTION, None)[1].sums
    assert (sums.n_interleaved, len(sums.groups)) == (8, 3)
    numbers = [sums.places.index(place) for place in (2, 4)]  # of one group
    assert _agrees(story, story.answer)
    assert not _agrees(story, with_totals_plus(story.answer, _errors_at(story, *numbers)))


@pytest.mark.parametrize("place", range(18))
def test_every_interleaved_total_is_compared(place: int) -> None:
    story = _new_story("interleaved")
    assert not _agrees(story, with_totals_plus(story.answer, _errors_at(story, place)))


def _numbers(story: Story, answer: Answer) -> list[int]:
    found: list[int] = checking.decrypt_totals(answer.ciphertexts, story.owner.decryptor)
    return found


@pytest.mark.parametrize("layout", LAYOUTS)
def test_equal_totals_must_be_read_alike(layout: str) -> None:
    """Trees share sums, of which one alone is weighed: the others may not be read elsewhere."""
    rows, copies = LAYOUTS[layout]
    question = es.CompletelyRandomForest(4, depth=2)
    story = story_of(sealed_table(rows, copies), question, owner=small_owner(copies))
    numbers = story.answer.ciphertexts
    places, opened = list(numbers.places), _numbers(story, story.answer)
    twice = next(k for k, place in enumerate(places) if place in places[:k])
    other = next(
        k
        for k, number in enumerate(opened)
        if number != opened[twice] and number <= numbers.facts[twice].high
    )
    places[twice] = places[other]
    lie = replace(story.answer, totals=numbers._with(places=tuple(places)))
    assert _agrees(story, story.answer)
    assert not _agrees(story, lie)


def test_sums_that_are_not_interleaved_do_not_pass() -> None:
    """What a worker answers that adds totals up where they should be interleaved."""
    story = _new_story("interleaved")
    other = story_of(sealed_table(100, 1), owner=small_owner(1))
    assert other.response.sums[0].shape == story.response.sums[0].shape
    with pytest.raises(es.VerificationError, check=CAUGHT):
        story.open(response=Response(other.response.sums[: len(story.response.sums)]))


def test_powers_of_x_are_those_of_all_roots() -> None:
    owner = small_owner(8)
    keeper = keeper_of(owner, sealed_table(100, 8), count=300)
    source = keeper.groups[0].source(owner.public_keys(), keeper.positions)
    ring = owner.parameters.ring_degree
    for power in range(0, ring, ring // 8):
        every = [values_of_x(p, ring, power) for p in owner.parameters.data_moduli]
        expected = [every[at // ring][at % ring] for at in keeper.positions.flat.tolist()]
        assert source.powers_of_x(power, 16).tolist() == expected


def test_honest_answers_pass_whatever_is_watched() -> None:
    """The stories above are honest until something is changed."""
    for layout in LAYOUTS:
        story = _new_story(layout)
        assert all(_openings(Lie(story, story.answer, story.response), 20))
