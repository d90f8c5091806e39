"""Messages and kept files under fire: whatever the bytes, an error with a code, and nothing lost.

A response that cannot be read is no lie, so the key stays in use, and the honest response to the
same challenge still opens the answer.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from spot_samples import (
    N_ROWS,
    QUESTION,
    Story,
    sealed_table,
    small_owner,
    story_of,
    with_totals_plus,
)

import encryptedstats as es
from effort import examples
from encryptedstats.crypto.residues import residues_to_bytes
from encryptedstats.spotcheck import Challenge, Keeper, Response, open_checked, respond
from encryptedstats.storage import container
from encryptedstats.storage.container import Container
from error_codes import error

pytestmark = pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")
REFUSALS = (es.FileFormatError, es.KeyMismatchError, es.VerificationError, es.PassphraseError)
MANY = settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
#: Things that JSON can hold, and no count of polynomials is.
NONSENSE = st.one_of(
    st.none(),
    st.booleans(),
    st.floats(allow_nan=False),
    st.integers(-(2**70), 2**70),
    st.text(max_size=4),
    st.lists(st.one_of(st.integers(-3, 2**63), st.none(), st.text(max_size=2)), max_size=70),
)


@lru_cache(maxsize=1)
def make_story() -> Story:
    return story_of()


@lru_cache(maxsize=1)
def sent() -> bytes:
    story = make_story()
    file = story.response.to_container(story.owner.parameters, story.owner.key_id)
    return container.to_bytes(file)


def read(data: bytes) -> Response:
    owner = make_story().owner
    return Response.from_container(container.from_bytes(data), owner.parameters, owner.key_id)


def is_refused(data: bytes) -> bool:
    """Return whether bytes are no response to the challenge; nothing may be lost by them."""
    story = make_story()
    try:
        opened = story.open(response=read(data))
    except REFUSALS as refusal:
        if refusal.code in ("", "spot-check-failed") or story.check.keeper.failed:
            raise
        return story.owner.retired is None
    assert opened.n_rows_ == N_ROWS
    return False


def forge(**changes: Any) -> bytes:
    """Return the response with other contents, and a hash that fits."""
    return container.to_bytes(replace(container.from_bytes(sent()), **changes))


def with_fields(**fields: Any) -> bytes:
    return forge(fields={**container.from_bytes(sent()).fields, **fields})


def with_residues(data: bytes) -> bytes:
    return forge(sections={"residues": data})


def test_the_honest_response_is_read() -> None:
    assert not is_refused(sent())


@MANY
@given(st.integers(0, 2**31), st.integers(1, 255))
def test_damaged_bytes(place: int, change: int) -> None:
    data = bytearray(sent())
    data[place % len(data)] ^= change
    assert is_refused(bytes(data))


@MANY
@given(st.integers(0, 2**31), st.binary(max_size=8))
def test_truncated_and_longer_bytes(length: int, more: bytes) -> None:
    data = sent()
    assert is_refused(data[: length % len(data)])
    assert is_refused(data + more + b"\0")


@MANY
@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    assert is_refused(data)
    assert is_refused(sent()[:14] + data)


@MANY
@given(NONSENSE)
def test_wrong_counts(polynomials: Any) -> None:
    if polynomials != container.from_bytes(sent()).fields["polynomials"]:
        assert is_refused(with_fields(polynomials=polynomials))


@MANY
@given(st.sampled_from(["parameters", "polynomials"]), NONSENSE)
def test_fields_that_are_no_fields(name: str, value: Any) -> None:
    assert is_refused(with_fields(**{name: value}))


@pytest.mark.parametrize("length", [0, 1, 7, -8, -1, 8, 1 << 16])
def test_wrong_lengths_of_residues(length: int) -> None:
    data = container.from_bytes(sent()).section("residues")
    changed = data[:length] if length < 8 else data + bytes(length)
    assert is_refused(with_residues(changed))


@pytest.mark.parametrize("claimed", [0, 1 << 20, 1 << 40, 1 << 62, 1 << 64])
def test_huge_lengths_are_refused_before_memory_is_asked_for(claimed: int) -> None:
    data = sent()
    (length,) = struct.unpack_from("<I", data, 10)
    header = json.loads(data[14 : 14 + length])
    header["sections"] = [["residues", claimed]]
    encoded = json.dumps(header).encode()
    again = data[:10] + struct.pack("<I", len(encoded)) + encoded + data[14 + length :]
    assert is_refused(again)
    assert is_refused(data[:10] + struct.pack("<I", claimed % (1 << 32)) + data[14:])


def _other_key() -> bytes:
    other = es.Owner(small_owner().parameters)
    return container.to_bytes(make_story().response.to_container(other.parameters, other.key_id))


def _other_kind() -> bytes:
    return make_story().challenge.to_bytes()


def _fewer() -> bytes:
    owner, sums = make_story().owner, make_story().response.sums[1:]
    return container.to_bytes(Response(sums).to_container(owner.parameters, owner.key_id))


def _more() -> bytes:
    owner, sums = make_story().owner, make_story().response.sums
    return container.to_bytes(Response((*sums, *sums)).to_container(owner.parameters, owner.key_id))


def _of_ones() -> bytes:
    """Words of ones, which unpack to residues above their primes."""
    data = container.from_bytes(sent()).section("residues")
    return with_residues(b"\xff" * len(data))


def _one_unreduced() -> bytes:
    owner, first = make_story().owner, make_story().response.sums[0].copy()
    first[0, 0, 0] = (1 << owner.parameters.data_moduli[0].bit_length()) - 1
    sums = (first, *make_story().response.sums[1:])
    moduli = owner.parameters.data_moduli
    return with_residues(b"".join(residues_to_bytes(one, moduli) for one in sums))


def _no_residues() -> bytes:
    return forge(sections={})


def _other_fingerprint() -> bytes:
    return forge(fingerprint="0" * 32)


@pytest.mark.parametrize(
    "make",
    [
        _other_key, _other_kind, _fewer, _more, _of_ones, _one_unreduced, _no_residues,
        _other_fingerprint,
    ],
)  # fmt: skip
def test_forgeries_whose_hash_fits(make: Callable[[], bytes]) -> None:
    assert is_refused(make())


def test_a_replayed_response_of_the_same_commitment_is_honest() -> None:
    story = make_story()
    again = story.check.challenge(story.answer, QUESTION)
    assert again == story.challenge
    assert not is_refused(sent())


def test_a_replayed_response_of_another_commitment_is_a_lie() -> None:
    story = story_of()
    lie = with_totals_plus(story.answer, [1] * len(story.answer.ciphertexts))
    old = respond(story.table, QUESTION, story.check.challenge(lie, QUESTION))
    with pytest.raises(es.VerificationError, check=error("spot-check-failed")):
        story.open(response=old)
    assert story.owner.retired is not None


class Hostile:
    """A worker whose answer is bytes of somebody else's choice."""

    def __init__(self, data: bytes, block_ids: tuple[str, ...]) -> None:
        self.data, self.block_ids = data, block_ids

    def respond(self, question: es.Question, challenge: Challenge, **_: Any) -> Response:
        return read(self.data)


@pytest.mark.parametrize("make", [_other_key, _more, _of_ones, lambda: b"", lambda: sent()[:-1]])
def test_an_answer_is_opened_after_hostile_bytes(make: Callable[[], bytes]) -> None:
    story = make_story()
    story.owner._kept = story.check.keeper
    ids, answer = story.table.blocks.ids, story.answer
    with pytest.raises(REFUSALS):
        open_checked(answer, story.owner, on=Hostile(make(), ids), question=QUESTION)
    opened = open_checked(answer, story.owner, on=story.table, question=QUESTION)
    assert opened.n_rows_ == N_ROWS


# -- challenges, at the worker ---------------------------------------------------------------------


def is_refused_by_the_worker(data: bytes) -> bool:
    try:
        challenge = Challenge.from_bytes(data)
        respond(sealed_table(100), QUESTION, challenge)
    except REFUSALS as refusal:
        return bool(refusal.code)
    return False


@MANY
@given(st.integers(0, 2**31), st.integers(1, 255))
def test_damaged_challenges(place: int, change: int) -> None:
    data = bytearray(make_story().challenge.to_bytes())
    data[place % len(data)] ^= change
    assert is_refused_by_the_worker(bytes(data))
    assert is_refused_by_the_worker(bytes(data)[: place % len(data)])


@MANY
@given(
    st.sampled_from(["weight_bits", "seeds", "blocks", "key"]), NONSENSE, st.binary(max_size=100)
)
def test_forged_challenges(name: str, value: Any, data: bytes) -> None:
    file = container.from_bytes(make_story().challenge.to_bytes())
    sections = dict(file.sections)
    if name == "weight_bits":
        file = replace(file, fields={"weight_bits": value})
    elif name == "key":
        file = replace(file, key_id="f" * 32)
    else:
        sections[name] = json.dumps(value).encode() if name == "blocks" else data
    assert is_refused_by_the_worker(container.to_bytes(replace(file, sections=sections)))


# -- what the owner keeps --------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A key with all that is kept beside it, and a failed check of another key's."""
    story = story_of()
    story.owner.save(tmp_path / "secret.key")
    return tmp_path


def _loads(folder: Path) -> bool:
    try:
        keeper = Keeper.of_owner(es.Owner.load(folder / "secret.key"))
        assert keeper is not None
        keeper.check_usable()
    except REFUSALS as refusal:
        return not refusal.code
    return True


@pytest.mark.parametrize("name", ["positions", "rows"])
def test_damaged_commitments_and_rows(name: str, folder: Path) -> None:
    (path,) = (folder / "secret.key.spot").glob(f"{name}*")
    good, rng = path.read_bytes(), np.random.default_rng(6)
    for place in rng.integers(0, len(good), 25).tolist():
        data = bytearray(good)
        data[place] ^= int(rng.integers(1, 256))
        for wrong in (bytes(data), good[:place], good + bytes(data[:place])):
            path.write_bytes(wrong)
            assert not _loads(folder)
    path.write_bytes(good)
    assert _loads(folder)


@pytest.mark.parametrize("name", ["positions", "rows"])
def test_forged_commitments_and_rows(name: str, folder: Path) -> None:
    """With a hash that fits: what is sealed is not believed without the key."""
    (path,) = (folder / "secret.key.spot").glob(f"{name}*")
    good = container.read(path)
    for section, data in good.sections.items():
        for wrong in (b"", data[:-1], data + b"\0", bytes(len(data)), b"[]", b'{"commitments": 0}'):
            forged = replace(good, sections={**good.sections, section: wrong})
            container.write(forged, path, overwrite=True)
            assert not _loads(folder), section
    container.write(good, path, overwrite=True)
    assert _loads(folder)


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"question": 1}', b"\xff", b'"question"'])
def test_failures_that_cannot_be_read_are_failures(content: bytes, folder: Path) -> None:
    owner = es.Owner.load(folder / "secret.key")
    file = Container("failed spot check", "", owner.key_id, {}, {"question": content})
    container.write(file, folder / "secret.key.spot" / "failed", overwrite=True)
    assert not _loads(folder)
