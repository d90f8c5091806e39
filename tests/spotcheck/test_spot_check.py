"""Honest answers pass a spot check, and lies of every kind are found."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from spot_samples import (
    N_ROWS,
    QUESTION,
    SLOTS,
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
    with_parts,
    with_positions,
    with_sums_plus,
    with_totals_plus,
)

import encryptedstats as es
from encryptedstats.circuits.results import EncryptedNumbers, Part
from encryptedstats.circuits.spare_bits import count_residues
from encryptedstats.crypto.residues import Residues
from encryptedstats.spotcheck import Challenge, Keeper, Response, SpotCheck, respond
from encryptedstats.spotcheck.arithmetic import add_up_rows, add_up_stepwise
from encryptedstats.storage import container
from encryptedstats.storage.leases import write_alone
from encryptedstats.storage.objects import open_store
from encryptedstats.tables.facts import MemoryBlocks
from error_codes import error
from insecure import insecure_parameters

pytestmark = pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")
CAUGHT = error("spot-check-failed")
QUESTIONS = (
    es.MultinomialNB(),
    es.CompletelyRandomForest(4, depth=2),
    es.CompletelyRandomForest(2, depth=3),
    es.AODE(),
    es.Describe(["dose"]),
)


# -- honest workers ----------------------------------------------------------------------------


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: type(question).__name__)
@pytest.mark.parametrize("device", ["native", "seal"])
def test_honest_answers_pass(question: es.Question, device: str) -> None:
    kind = "number" if isinstance(question, es.Describe) else "continuous"
    schema, owner = schema_of(kind), small_owner()
    table = owner.encrypt(schema.table(patients(N_ROWS)))
    check = SpotCheck(keeper_of(owner, table))
    answer = table.ask(question, device=device)
    challenge = check.challenge(answer, question, schema)
    response = respond(table, question, challenge, device=device)
    opened = check.open(answer, question, response, schema)
    expected = owner.open(answer, schema)
    assert repr(opened) == repr(expected)
    if not isinstance(question, es.Describe):
        frame = patients(20, seed=5).drop(columns="sick")
        assert list(opened.predict(frame)) == list(expected.predict(frame))


@pytest.mark.parametrize("copies", [2, 8])
def test_interleaved_totals_pass(copies: int) -> None:
    owner = small_owner(copies)
    story = story_of(sealed_table(100, copies), owner=owner)
    assert story.open().n_rows_ == 100
    with pytest.raises(es.VerificationError, check=CAUGHT):
        story.open(with_totals_plus(story.answer, [1] * len(story.answer.ciphertexts)))


@pytest.mark.parametrize("question", QUESTIONS[:4], ids=lambda question: type(question).__name__)
def test_kernels_and_numpy_give_the_same_at_positions(question: es.Question) -> None:
    story = story_of(question=question)
    _, asked = story.check._ask(story.answer, question, None)
    assert asked.source.layout.n_chunks == 2
    program = asked.sums.program
    by_numpy, seen = add_up_stepwise(program, asked.source), 0
    for piece in add_up_rows(program, asked.source):
        seen += piece.words.shape[1]
        for step in program.sums:
            assert np.array_equal(piece.value(step), by_numpy[step][:, piece.where])
    assert seen == len(asked.source.flat)


def test_several_questions_are_checked_with_one_set_of_positions() -> None:
    table = sealed_table()
    check = SpotCheck(keeper_of(small_owner(), table))
    for question in QUESTIONS[:4]:
        answer = table.ask(question)
        response = respond(table, question, check.challenge(answer, question))
        assert check.open(answer, question, response).n_rows_ == N_ROWS


def test_appended_rows_are_checked() -> None:
    owner, schema = small_owner(), schema_of()
    first, more = sealed_table(), owner.encrypt(schema.table(patients(700, seed=9)))
    check = SpotCheck(keeper_of(owner, first))
    whole = first.append(more)
    answer = answer_of(whole)
    with pytest.raises(es.VerificationError, check=error("different-rows")):
        check.challenge(answer, QUESTION)  # as after an old copy of the folder was restored
    check.keeper.keep(more)
    challenge = check.challenge(answer, QUESTION)
    assert check.open(answer, QUESTION, respond(whole, QUESTION, challenge)).n_rows_ == 2200
    with pytest.raises(es.VerificationError, check=error("block-already-included")):
        check.keeper.keep(more)


def test_a_block_cannot_be_left_out() -> None:
    story = story_of()
    blocks = story.table.blocks
    part = es.EncryptedTable(
        story.table.facts,
        MemoryBlocks(blocks.ids[:1], blocks.rows[:1], (blocks.block(0),)),
        story.table.public_keys(),
    )
    with pytest.raises(es.VerificationError, check=error("different-rows")):
        story.check.challenge(answer_of(part), QUESTION)


# -- lies about rows: packs and sums agree, and are of other rows ----------------------------------


def _doubled(blocks: list[Residues]) -> list[Residues]:
    return [blocks[0], blocks[0]]


def _left_out(blocks: list[Residues]) -> list[Residues]:
    zeros = small_owner().public_keys().encryptor.encrypt_zero(0)
    return [blocks[0], np.stack([zeros] * len(blocks[1]))]


def _weighed(blocks: list[Residues]) -> list[Residues]:
    """Count every row of the first block twice."""
    return [_plus(blocks[0], blocks[0]), blocks[1]]


def _one_column(blocks: list[Residues]) -> list[Residues]:
    changed = blocks[0].copy()
    changed[0] = changed[1]
    return [changed, blocks[1]]


def _noisy(blocks: list[Residues]) -> list[Residues]:
    """Add a little noise and no message to one column."""
    changed = blocks[0].copy()
    t = small_owner().parameters.plain_modulus
    changed[0, 0] = (changed[0, 0] + np.uint64(t)) % _moduli()
    return [changed, blocks[1]]


def _plus(a: Residues, b: Residues) -> Residues:
    return (a + b) % _moduli()


def _moduli() -> Residues:
    return np.array(small_owner().parameters.data_moduli, dtype=np.uint64)[:, None]


@pytest.mark.parametrize("change", [_doubled, _left_out, _weighed, _one_column, _noisy])
def test_other_rows_are_found(change: object) -> None:
    story = story_of()
    liar = altered(story.table, change)  # type: ignore[arg-type]
    with pytest.raises(es.VerificationError, check=CAUGHT):
        story.tell(answer_of(liar), liar)


def test_stale_rows_are_found() -> None:
    story = story_of()
    again = small_owner().encrypt(schema_of().table(patients(N_ROWS)))
    stale = altered(story.table, lambda _: [again.blocks.block(i) for i in range(2)])
    with pytest.raises(es.VerificationError, check=CAUGHT):
        story.tell(answer_of(stale), stale)


def test_rows_of_another_key_are_found() -> None:
    story = story_of()
    other = es.Owner(small_owner().parameters).encrypt(schema_of().table(patients(N_ROWS)))
    foreign = altered(story.table, lambda _: [other.blocks.block(i) for i in range(2)])
    with pytest.raises(es.VerificationError, check=CAUGHT):
        story.tell(answer_of(foreign), foreign)


def test_another_question_is_found() -> None:
    forests = [es.CompletelyRandomForest(2, depth=1, random_state=seed) for seed in range(20)]
    question, answers = forests[0], [answer_of(sealed_table(), forest) for forest in forests]
    story = story_of(question=question)
    shape, digest = answers[0].ciphertexts.places, answers[0].program_digest
    other, lie = next(
        (forest, one)
        for forest, one in zip(forests, answers, strict=True)
        if one.ciphertexts.places == shape and one.program_digest != digest
    )
    with pytest.raises(es.VerificationError, check=error("different-questions")):
        story.check.challenge(lie, question)
    relabelled = replace(lie, question=story.answer.question)
    challenge = story.check.challenge(relabelled, question)
    with pytest.raises(es.VerificationError, check=CAUGHT):
        story.open(relabelled, respond(story.table, other, challenge))


# -- lies in one of the two ------------------------------------------------------------------------


@pytest.mark.parametrize("place", [0, 3, -1])
def test_wrong_packs_are_found(place: int) -> None:
    story = story_of()
    errors = [0] * len(story.answer.ciphertexts)
    errors[place] = 1
    lie = with_totals_plus(story.answer, errors)
    challenge = story.check.challenge(lie, QUESTION)
    with pytest.raises(es.VerificationError, check=CAUGHT):
        story.open(lie, respond(story.table, QUESTION, challenge))


def test_possible_wrong_packs_are_found_by_their_totals_alone() -> None:
    story = story_of()
    errors = [0] * len(story.answer.ciphertexts)
    errors[2], errors[4] = 1, -1  # a row in another bin: the totals are those of some rows
    lie = with_totals_plus(story.answer, errors)
    assert small_owner().open(lie).n_rows_ == N_ROWS
    challenge = story.check.challenge(lie, QUESTION)
    with pytest.raises(es.VerificationError, check=CAUGHT):
        story.open(lie, respond(story.table, QUESTION, challenge))


def test_packs_of_noise_are_found() -> None:
    story = story_of()
    numbers, rng = story.answer.ciphertexts, np.random.default_rng(2)
    parts = [
        Part(rng.integers(0, 1 << 40, part.residues.shape).astype(np.uint64), part.noise)
        for part in numbers.parts
    ]
    lie = replace(story.answer, totals=with_parts(numbers, parts))
    challenge = story.check.challenge(lie, QUESTION)
    with pytest.raises(es.VerificationError, check=CAUGHT):
        story.open(lie, respond(story.table, QUESTION, challenge))


def test_facts_of_the_worker_are_not_read() -> None:
    story = story_of()
    lie = replace(story.answer, weight_bound=7, n_dropped=9, n_rows=5)
    opened = story.open(lie)
    assert (opened.n_rows_, opened.n_dropped_, opened.weight_bound_) == (N_ROWS, 0, 1)
    lie = replace(story.answer, totals=story.answer.ciphertexts._with(parts=()))
    with pytest.raises(es.VerificationError, check=error("computed-differently")):
        story.check.challenge(lie, QUESTION)


def test_packs_of_another_number_or_shape_are_refused_before_anything_is_sent() -> None:
    story = story_of()
    numbers, sent = story.answer.ciphertexts, story.check.keeper.commitments
    first = numbers.parts[0]
    fewer_primes = replace(first, residues=first.residues[:, :-1])
    more_polynomials = replace(first, residues=np.concatenate([first.residues, first.residues]))
    for parts in ((first, first), (fewer_primes,), (more_polynomials,)):
        lie = replace(story.answer, totals=numbers._with(parts=parts))
        with pytest.raises(es.VerificationError, check=error("computed-differently")):
            story.check.challenge(lie, QUESTION)
    assert story.check.keeper.commitments == sent


def _read_doubled(numbers: EncryptedNumbers) -> EncryptedNumbers:
    facts = tuple(replace(one, factor=2 * one.factor) for one in numbers.facts)
    return numbers._with(facts=facts)


def _read_with_more(numbers: EncryptedNumbers) -> EncryptedNumbers:
    facts = tuple(replace(one, offset=one.offset + 1) for one in numbers.facts)
    return numbers._with(facts=facts)


def _read_backwards(numbers: EncryptedNumbers) -> EncryptedNumbers:
    return numbers._with(places=numbers.places[::-1])


@pytest.mark.parametrize("change", [_read_doubled, _read_with_more, _read_backwards])
def test_how_packs_are_read_is_committed_to(change: object) -> None:
    story = story_of()
    lie = replace(story.answer, totals=change(story.answer.ciphertexts))  # type: ignore[operator]
    challenge = story.check.challenge(lie, QUESTION)
    assert challenge.seeds != story.challenge.seeds
    with pytest.raises(es.VerificationError, check=CAUGHT):
        story.open(lie, respond(story.table, QUESTION, challenge))


def test_wider_bounds_are_not_read() -> None:
    story = story_of()
    numbers = story.answer.ciphertexts
    facts = tuple(replace(one, low=-(10**6), high=10**6) for one in numbers.facts)
    lie = replace(story.answer, totals=numbers._with(facts=facts))
    opened = story.open(lie)
    assert opened.n_rows_ == N_ROWS
    _, asked = story.check._ask(lie, QUESTION, None)
    own = story.check._own_numbers(lie.ciphertexts, asked)
    assert [one.high for one in own.facts] == [one.high for one in asked.sums.facts]
    assert max(one.high for one in own.facts) <= N_ROWS


def test_sums_of_answers_are_refused() -> None:
    story = story_of()
    half = answer_of(small_owner().encrypt(schema_of().table(patients(700, seed=9))))
    with pytest.raises(es.VerificationError, check=error("different-rows")):
        story.check.challenge(story.answer + half, QUESTION)


def test_one_changed_residue_is_found() -> None:
    story = story_of()
    watched = set(story.check.keeper.positions.flat.tolist())
    unwatched = next(
        one for one in range(count_residues(story.table.parameters)) if one not in watched
    )
    sums = [one.copy() for one in story.response.sums]
    prime, index = divmod(unwatched, SLOTS)
    sums[0][1, prime, index] ^= np.uint64(1)
    with pytest.raises(es.VerificationError, check=CAUGHT):
        story.open(response=Response(tuple(sums)))


def test_only_the_last_sum_is_wrong() -> None:
    story = story_of()
    t = story.table.parameters.plain_modulus
    constants = [0] * (len(story.response.sums) - 1) + [t]
    with pytest.raises(es.VerificationError, check=CAUGHT):
        story.open(response=with_sums_plus(story, constants))


def test_old_sums_are_not_taken_for_other_packs() -> None:
    story = story_of()
    lie = with_totals_plus(story.answer, [1] * len(story.answer.ciphertexts))
    assert story.check.challenge(lie, QUESTION).seeds != story.challenge.seeds
    assert story.check.challenge(story.answer, QUESTION).seeds == story.challenge.seeds
    with pytest.raises(es.VerificationError, check=CAUGHT):
        story.open(lie)


# -- the best lies: only positions, only the budget, only the totals can find them -----------------


def test_a_fitting_lie_is_found_by_its_positions_alone() -> None:
    parameters = small_owner().parameters
    first, honest = parameters.data_moduli[0], story_of()
    blind = with_positions(story_of(), range(40))  # all of them at the first prime
    lie, response = lie_that_fits(blind, first)
    wrong, right = (small_owner().open(one).bin_counts_[0] for one in (lie, honest.answer))
    opened = blind.open(lie, response).bin_counts_[0]
    assert np.array_equal(opened, wrong)
    assert not np.array_equal(wrong, right)
    seeing = with_positions(story_of(), [SLOTS + 5])
    lie, response = lie_that_fits(seeing, first)
    with pytest.raises(es.VerificationError, check=CAUGHT):
        seeing.open(lie, response)


def test_fitting_lies_pass_as_often_as_the_bound_allows() -> None:
    """A difference that is a multiple of the first of five primes is missed by one position in
    five.
    """
    story, passed, tries = story_of(certainty=WEAK), 0, 150
    blind = with_positions(story, [0])
    lie, response = lie_that_fits(blind, story.table.parameters.data_moduli[0])
    terms = blind.check._ask(blind.answer, QUESTION, None)[1].terms
    missed = 1 - terms.share  # the most that any lie can be missed by one position
    assert 1 / 5 < missed < 1
    places = np.random.default_rng(3).integers(0, count_residues(story.table.parameters), tries)
    for place in places.tolist():
        found = with_positions(story, [place], blind.check.keeper.secret)
        if place < SLOTS:
            found.open(lie, response)
            passed += 1
        else:
            with pytest.raises(es.VerificationError, check=CAUGHT):
                found.open(lie, response)
    assert 12 <= passed <= 50  # 30 on average, and a deviation of 5
    assert passed <= missed * tries


def test_totals_that_no_rows_have_are_a_failure_too() -> None:
    parameters = small_owner().parameters
    blind = with_positions(story_of(), range(40))
    lie, response = lie_that_fits(blind, parameters.data_moduli[0], places=(2, 5))
    for _ in range(2):
        with pytest.raises(es.VerificationError, check=CAUGHT):
            blind.open(lie, response)
    assert blind.check.keeper.failed


def test_lies_that_hide_at_two_primes_are_too_large() -> None:
    first, second = small_owner().parameters.data_moduli[:2]
    blind = with_positions(story_of(), range(40))
    lie, response = lie_that_fits(blind, first * second)
    with pytest.raises(es.VerificationError, check=CAUGHT):
        blind.open(lie, response)


def test_too_much_noise_is_found_where_nothing_else_shows() -> None:
    blind = with_positions(story_of(), range(40))
    parameters = small_owner().parameters
    t, first = parameters.plain_modulus, parameters.data_moduli[0]
    constants = [t * first << 170] * len(blind.response.sums)
    assert sum(constants[:1]) < np.prod(np.array(parameters.data_moduli, dtype=object)) // 4
    with pytest.raises(es.VerificationError, check=CAUGHT):
        blind.open(response=with_sums_plus(blind, constants))
    small = with_positions(story_of(), range(40))
    assert small.open(response=with_sums_plus(small, [t * first] * len(constants))).n_rows_


# -- what follows ----------------------------------------------------------------------------------


def stored(story: Story, folder: Path, passphrase: str | None = None) -> Path:
    """Store the key of a story, and what is kept beside it."""
    path = folder / "secret.key"
    story.owner.save(path, passphrase)
    return path


def load(path: Path, passphrase: str | None = None) -> SpotCheck:
    keeper = Keeper.of_owner(es.Owner.load(path, passphrase))
    assert keeper is not None
    return SpotCheck(keeper)


def test_a_failure_ends_everything(tmp_path: Path) -> None:
    story = story_of()
    path = stored(story, tmp_path, "a passphrase")
    before = es.Owner.load(path, "a passphrase")  # another process, which has begun already
    other = Keeper.of_owner(before)
    lie = with_totals_plus(story.answer, [1] * len(story.answer.ciphertexts))
    caught = error("spot-check-failed", "MultinomialNB")
    with pytest.raises(es.VerificationError, check=caught):
        story.open(lie, respond(story.table, QUESTION, story.check.challenge(lie, QUESTION)))
    for check in (story.check, load(path, "a passphrase"), SpotCheck(other)):
        with pytest.raises(es.VerificationError, check=caught):
            check.open(story.answer, QUESTION, story.response)
        with pytest.raises(es.VerificationError, check=caught):
            check.challenge(story.answer, QUESTION)
    for owner in (story.owner, es.Owner.load(path, "a passphrase")):
        for use in (
            lambda owner=owner: owner.encrypt([1]),
            lambda owner=owner: owner.open(story.answer),
            lambda owner=owner: owner.publish(story.answer),
            lambda owner=owner: es.plan(QUESTION, schema_of(), N_ROWS, keys=owner),
        ):
            with pytest.raises(es.KeyMismatchError, check=error("retired-key")):
                use()
    assert story.owner.public_keys().retired is None  # which would tell the worker


def test_one_check_is_made_after_the_other(tmp_path: Path) -> None:
    """Lies that are told to many processes at once would each have a chance of their own."""
    story = story_of()
    path = stored(story, tmp_path)
    one, other = load(path), load(path)
    made = one._open_if_honest

    def fail_elsewhere(*given: Any) -> Any:
        assert one.keeper.folder is not None
        store = open_store(str(one.keeper.folder))
        with pytest.raises(es.BusyError), write_alone(store):
            pass  # another process waits here, and so does another thread
        assert not one.keeper._lock.acquire(blocking=False)
        return made(*given)

    one._open_if_honest = fail_elsewhere  # type: ignore[method-assign]
    assert one.open(story.answer, QUESTION, story.response).n_rows_ == N_ROWS
    weights = one._weights

    def fail_before(*given: Any) -> Any:
        with pytest.raises(es.VerificationError, check=CAUGHT):
            other.keeper.fail("another question")
        return weights(*given)

    one._weights = fail_before  # type: ignore[method-assign]
    with pytest.raises(es.VerificationError, check=CAUGHT):
        one.open(story.answer, QUESTION, story.response)


def test_a_failure_that_cannot_be_stored_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = story_of()
    check = load(stored(story, tmp_path))
    lie = with_totals_plus(story.answer, [1] * len(story.answer.ciphertexts))
    response = respond(story.table, QUESTION, check.challenge(lie, QUESTION))

    def is_full(*_: Any, **__: Any) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(container, "write", is_full)
    with pytest.raises(es.VerificationError, check=CAUGHT):
        check.open(lie, QUESTION, response)
    assert check.owner.retired is not None


def test_rows_of_a_retired_key_are_moved(tmp_path: Path) -> None:
    story, table = story_of(), tmp_path / "table"
    story.table.save(table)
    story.owner._retire_here("a test")
    new = es.Owner(story.owner.parameters)
    story.owner.move(table, new, tmp_path / "moved", schema_of())
    moved = es.load(tmp_path / "moved")
    assert new.open(moved.ask(QUESTION), schema_of()).n_rows_ == N_ROWS


def test_commitments_are_counted_before_weights_are_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = story_of()
    path, before = stored(story, tmp_path), story.check.keeper.commitments
    monkeypatch.setattr(SpotCheck, "_seeds", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        story.check.challenge(story.answer, QUESTION)
    monkeypatch.undo()
    one, other = load(path), load(path)
    assert one.keeper.commitments == before + 1
    for check in (one, other):
        check.challenge(story.answer, QUESTION)
    assert other.keeper.commitments == before + 3  # of all processes
    one.keeper.commitments = 1 << 10
    with pytest.raises(es.VerificationError, check=error("too-many-commitments")):
        one.challenge(story.answer, QUESTION)


def _shorter(response: Response) -> Response:
    return Response(response.sums[1:])


def _larger(response: Response) -> Response:
    """Add a polynomial that the owner does not recompute."""
    more = np.zeros_like(response.sums[0][:1])
    return Response(tuple(np.concatenate([one, more]) for one in response.sums))


def _unreduced(response: Response) -> Response:
    changed = response.sums[0].copy()
    changed[0, 0, 0] += np.uint64(small_owner().parameters.data_moduli[0])
    return Response((changed, *response.sums[1:]))


@pytest.mark.parametrize("change", [_shorter, _larger, _unreduced])
def test_malformed_responses_are_asked_for_again(change: object) -> None:
    story = story_of()
    with pytest.raises(es.VerificationError, check=error("malformed-response")):
        story.open(response=change(story.response))  # type: ignore[operator]
    assert story.open().n_rows_ == N_ROWS


# -- refusals --------------------------------------------------------------------------------------


def test_programs_that_mix_residues_are_refused() -> None:
    owner = es.Owner(insecure_parameters("bfv", 5000, (50,) * 6))
    rows = schema_of().table(patients(100))
    with pytest.raises(es.VerificationError, check=error("not-residue-local")):
        owner.encrypt(rows, spot_check=True)
    table = owner.encrypt(rows)
    check = SpotCheck(keeper_of(owner, table))
    with pytest.raises(es.VerificationError, check=error("not-residue-local", "BFV")):
        check.challenge(table.ask(QUESTION), QUESTION)


def test_rows_by_others_are_refused() -> None:
    rows = schema_of().table(patients(100))
    table = small_owner().public_keys().encrypt(rows).accept_others()
    with pytest.raises(es.VerificationError, check=error("rows-by-others-unchecked")):
        keeper_of(small_owner(), table)


def test_only_tables_are_kept() -> None:
    with pytest.raises(es.ArgumentTypeError, check=error("not-keepable")):
        small_owner().encrypt([1, 2], spot_check=True)


def test_a_question_with_too_little_to_spare_is_refused_before_it_is_asked() -> None:
    story = with_positions(story_of(), [0])
    with pytest.raises(es.NoiseError, check=error("too-few-spare-bits")):
        SpotCheck(story.check.keeper).challenge(story.answer, QUESTION)


def test_a_stranger_cannot_use_positions(tmp_path: Path) -> None:
    path = stored(story_of(), tmp_path)
    es.Owner(small_owner().parameters).save(path, overwrite=True)
    with pytest.raises(es.VerificationError, check=error("other-key")):
        Keeper.of_owner(es.Owner.load(path))
    with pytest.raises(es.FileFormatError, check=error("other-key")):
        keeper_of(es.Owner.load(path))


# -- files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("passphrase", [None, "a passphrase"])
def test_files_come_back(passphrase: str | None, tmp_path: Path) -> None:
    story = story_of()
    path = stored(story, tmp_path, passphrase)
    folder, keeper = tmp_path / "secret.key.spot", story.check.keeper
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for file in (one for one in folder.iterdir() if one.name != "lease"):
        content = file.read_bytes()
        assert not file.stat().st_mode & 0o077
        assert keeper.secret not in content
        assert keeper.groups[0].residues[0].tobytes()[:64] not in content
        assert keeper.positions.flat.tobytes()[:64] not in content
    challenge = Challenge.from_bytes(story.challenge.to_bytes())
    assert challenge == story.challenge
    sent = respond(story.table, QUESTION, challenge)
    file = sent.to_container(story.owner.parameters, story.owner.key_id)
    response = Response.from_container(file, story.owner.parameters, story.owner.key_id)
    opened = load(path, passphrase).open(story.answer, QUESTION, response)
    assert opened.n_rows_ == N_ROWS


@pytest.mark.parametrize("name", ["positions", "rows"])
def test_altered_files_are_refused(name: str, tmp_path: Path) -> None:
    story = story_of()
    path = stored(story, tmp_path)
    (file,) = (tmp_path / "secret.key.spot").glob(f"{name}*")
    found = container.read(file)
    secret = bytearray(found.section("secret"))
    secret[len(secret) // 2] ^= 1
    sections = {**found.sections, "secret": bytes(secret)}
    container.write(replace(found, sections=sections), file, overwrite=True)
    with pytest.raises(es.FileFormatError, check=error("altered-file")):
        load(path)


def test_nothing_secret_is_sent() -> None:
    story = story_of()
    sent, keeper = story.challenge.to_bytes(), story.check.keeper
    assert keeper.secret not in sent
    assert keeper.positions.flat[:4].tobytes() not in sent
    assert repr(keeper.secret) not in repr(keeper)
    assert "flat=" not in repr(keeper.positions)


def test_weights_follow_from_what_the_owner_alone_knows() -> None:
    """The same answer, of the same rows: a worker cannot compute its weights beforehand."""
    story = story_of()
    one, again, other = (
        with_positions(story, [0], secret * 32).challenge.seeds for secret in (b"1", b"1", b"2")
    )
    assert one == again
    assert not set(one) & set(other)


def test_weights_follow_from_what_totals_are_compared_with() -> None:
    """Questions with the same sums, read otherwise, have other errors for the same packs: a worker
    who has seen the weights of one must not know those of the other.
    """
    story = story_of()
    sent, asked = story.check._ask(story.answer, QUESTION, None)
    sums, seeds = asked.sums, story.challenge.seeds
    assert story.check._seeds(sent.ciphertexts, asked) == seeds
    more, scaled = (
        tuple(replace(one, **change(one)) for one in sums.facts)
        for change in (
            lambda one: {"offset": one.offset + 1},
            lambda one: {"factor": 2 * one.factor},
        )
    )
    for change in ({"places": sums.places[::-1]}, {"facts": more}, {"facts": scaled}):
        other = replace(asked, sums=replace(sums, **change))
        assert other.sums.program.digest == sums.program.digest
        assert not set(story.check._seeds(sent.ciphertexts, other)) & set(seeds)


def test_positions_are_drawn_anew_each_time() -> None:
    one, two = (keeper_of(small_owner(), sealed_table()) for _ in range(2))
    assert one.positions.flat.tolist() != two.positions.flat.tolist()
    assert one.secret != two.secret


def test_stories_are_honest() -> None:
    """The liars above differ from this worker in what their names say."""
    story: Story = story_of()
    assert story.open().n_rows_ == N_ROWS
    assert altered(story.table, lambda blocks: blocks).n_rows == N_ROWS
    assert same_keys(story.owner).key_id == story.owner.key_id
    assert len(set(story.challenge.seeds)) == len(story.challenge.seeds) > 1
