"""Joint keys: exact at the limit of what is proven, nothing without everybody, once and never
again, and every message checked.
"""

from __future__ import annotations

import hashlib
import math
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from joint_samples import (
    NAMES,
    JointLab,
    Study,
    coefficients_of,
    joint_parameters,
    made,
    secret_of,
    times_secrets,
)
from noise_samples import RING
from noise_samples import centred as around_zero

import encryptedstats as es
from encryptedstats.circuits.layout import Layout
from encryptedstats.circuits.lowering import Setting
from encryptedstats.circuits.proof import read_noise
from encryptedstats.circuits.results import Part
from encryptedstats.crypto.flooding import FLOODING_BITS, flooding_width
from encryptedstats.crypto.packing import (
    packing_model,
    packing_parameters,
    packing_primes,
)
from encryptedstats.crypto.residues import ciphertext_of, residues_from_bytes, residues_to_bytes
from encryptedstats.joint.messages import SHARE_KIND
from encryptedstats.storage import container, files
from encryptedstats.tables import EncryptedAnswer
from error_codes import error

pytestmark = pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")
BAYES = es.MultinomialNB()
COUNTS = es.Describe(["v0"])


def rows(n: int, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "a": rng.choice(["x", "y", "z"], n),
            "b": rng.choice(["u", "v"], n),
            "sick": rng.integers(0, 2, n),
        }
    )


FRAME = rows(90)
SCHEMA = es.Schema.infer(
    pd.DataFrame({"a": ["x", "y", "z"], "b": ["u", "v", "u"], "sick": [0, 1, 0]}), target="sick"
)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    return made(tmp_path_factory.mktemp("three"), joint_parameters(3))


@pytest.fixture(scope="module")
def table(study: Study) -> es.EncryptedTable:
    return pooled(study, FRAME)


@pytest.fixture(scope="module")
def receiver(study: Study) -> es.Owner:
    return es.Owner(study.joint.parameters)


def pooled(study: Study, frame: pd.DataFrame) -> es.EncryptedTable:
    """The rows of all sites: each encrypts its own with the joint public keys."""
    parts = [study.keys.encrypt(SCHEMA.table(part)).accept_others() for part in sites(study, frame)]
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.append(part)
    return whole


def sites(study: Study, frame: pd.DataFrame) -> list[pd.DataFrame]:
    return [frame.iloc[i :: len(study.members)] for i in range(len(study.members))]


def plainly(question: Any, frame: pd.DataFrame) -> list[int]:
    return [int(total) for total in question.fit(SCHEMA.table(frame)).totals_]


def forest(seed: int = 0, **options: Any) -> es.CompletelyRandomForest:
    """A question that differs from all others by its seed, and so do its totals: a member shares
    once for each.
    """
    return es.CompletelyRandomForest(**{"n_trees": 8, "depth": 2, "random_state": seed, **options})


SEEDS = count(100)


# -- keys that work like any others
# ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["native", "seal"])
def test_a_model_over_the_rows_of_all_is_that_of_the_plain_rows(study, table, receiver, device):
    question = forest(next(SEEDS))
    model = question.fit(table, device=device)
    shares = study.shares(model, question, table, receiver=receiver.public_keys())
    opened = receiver.open(study.joint.combine(model, shares, receiver.public_keys()), SCHEMA)
    assert list(opened.totals_) == plainly(forest(question.random_state), FRAME)
    assert opened.n_rows_ == len(FRAME)


def test_without_a_receiver_who_has_all_shares_reads_it(study, table):
    answer = table.ask(BAYES)
    opened = study.joint.open(answer, study.shares(answer, BAYES, table), SCHEMA)
    assert list(opened.totals_) == plainly(es.MultinomialNB(), FRAME)


def test_members_and_workers_make_the_same_keys_and_files_keep_them(study, tmp_path):
    keys = study.joint.public_keys(study.commitments, study.contributions, study.relinearisations)
    assert keys.key_id == study.keys.key_id
    assert keys.joint
    keys.save(tmp_path / "public.keys")
    assert es.PublicKeys.load(tmp_path / "public.keys").joint
    assert es.Member(study.members["north"].home, study.joint, "north").keys.key_id == keys.key_id
    study.joint.save(tmp_path / "joint")
    assert es.JointKey.load(tmp_path / "joint") == study.joint
    assert not es.Owner(study.joint.parameters).public_keys().joint


def test_packing_keys_of_members_cannot_be_exchanged(study, tmp_path):
    other = made(tmp_path / "other", study.joint.parameters)
    mixed = study.keys.to_container()
    mixed = replace(
        mixed, sections={**mixed.sections, "packing": other.keys.to_container().section("packing")}
    )
    with pytest.raises(es.FileFormatError, check=error("keys-not-by-members")):
        es.PublicKeys.from_container(mixed)


def test_rotation_keys(tmp_path):
    parameters = joint_parameters(2)
    plan = type("Planned", (), {"parameters": parameters, "rotations": (1, 0)})()
    lab = JointLab(made(tmp_path, plan))
    assert lab.keys.rotations == (0, 1)
    values = np.arange(RING, dtype=np.int64)
    for step, expected in (
        (1, np.roll(values.reshape(2, -1), -1, axis=1)),
        (0, values.reshape(2, -1)[::-1]),
    ):
        plain = lab.engine.encoder.encode(values)
        phase = lab.phase(
            lab.keys.evaluator.rotate(lab.encrypted(plain, with_secret_key=False), step)
        )
        slots = decoded(lab, phase)
        assert (slots == expected.reshape(-1)).all()


def decoded(lab: JointLab, phase: np.ndarray) -> np.ndarray:
    import seal

    t = lab.parameters.plain_modulus
    terms = [f"{int(c) % t:X}x^{power}" for power, c in enumerate(phase) if power and int(c) % t]
    text = " + ".join([*reversed(terms), f"{int(phase[0]) % t:X}"])
    return np.array(lab.engine.encoder.decode(seal.Plaintext(text)))


# -- exact at the limit of what is proven
# -----------------------------------------------------------------------------------


def limit(members: int, question: Any, n_rows: int) -> es.Parameters:
    """The smallest primes that are proven to carry a question and the flooding of its opening."""
    circuit = question.circuit(SCHEMA.public())
    layout = Layout(n_rows, RING)
    for size in range(36, 51):
        for kept in range(2, 6):
            try:
                parameters = joint_parameters(members, (size,) * 6, kept)
                read_noise(circuit, Setting(parameters, layout, with_secret_key=False), quick=True)
            except (es.NoiseError, es.ParameterError):
                continue
            return parameters
    raise AssertionError("no parameters of six primes carry it")


@pytest.mark.parametrize("members", [2, 3, pytest.param(10, marks=pytest.mark.slow)])
def test_exact_over_keys_at_the_limit(members, tmp_path):
    frame = rows(RING, seed=members)
    parameters = limit(members, forest(), RING)
    for key in range(2 if members < 10 else 1):
        study = made(tmp_path / str(key), parameters)
        whole, question = pooled(study, frame), forest(key)
        answer = question.fit(whole)
        opened = study.joint.open(
            answer, study.shares(answer, question, None, trust_worker=True), SCHEMA
        )
        assert list(opened.totals_) == plainly(forest(key), frame)


@pytest.mark.slow
@pytest.mark.parametrize("members", [2, 3, 10])
def test_exact_with_planned_parameters(members, tmp_path):
    """128 bits of security, as es.plan chooses them."""
    frame = rows(5000, seed=members)
    question = es.CompletelyRandomForest(n_trees=5, depth=3, random_state=members)
    plan = es.plan(question, SCHEMA, n_rows=len(frame), members=members)
    assert plan.parameters.security >= 128
    assert plan.flooded
    assert plan.parameters.members == members
    for key in range(2 if members < 10 else 1):
        study = made(tmp_path / str(key), plan)
        whole = pooled(study, frame)
        answer, owner = question.fit(whole), es.Owner(plan)
        shares = study.shares(answer, question, whole, receiver=owner.public_keys())
        opened = owner.open(study.joint.combine(answer, shares, owner.public_keys()), SCHEMA)
        assert list(opened.totals_) == plainly(
            es.CompletelyRandomForest(n_trees=5, depth=3, random_state=members), frame
        )


@pytest.mark.slow
@pytest.mark.parametrize("members", [2, 3, 10])
def test_exact_over_many_keys(members, tmp_path):
    frame, parameters = rows(RING, seed=members), limit(members, forest(), RING)
    for key in range(20):
        study = made(tmp_path / str(key), parameters)
        question, whole = forest(key), pooled(study, frame)
        answer = question.fit(whole)
        opened = study.joint.open(
            answer, study.shares(answer, question, None, trust_worker=True), SCHEMA
        )
        assert list(opened.totals_) == plainly(forest(key), frame)


@pytest.mark.slow
def test_a_regression_whose_totals_are_large(tmp_path):
    """A t so large that modulus switching leaves factors, which opened totals are divided by."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "x": rng.integers(0, 500, 300) / 10,
            "w": rng.integers(0, 100, 300),
            "y": rng.integers(0, 2000, 300) / 10,
        }
    )
    schema, question = es.Schema.infer(frame, target="y", numbers="keep"), es.LinearRegression()
    plan = es.plan(question, schema, n_rows=1000, members=2)
    study, owner = made(tmp_path, plan), es.Owner(plan)
    whole = study.keys.encrypt(schema.table(frame)).accept_others()
    answer = whole.ask(question)
    shares = study.shares(answer, question, whole, receiver=owner.public_keys())
    opened = owner.open(study.joint.combine(answer, shares, owner.public_keys()), schema)
    assert plan.parameters.has_factors
    assert list(opened.totals_) == list(es.LinearRegression().fit(schema.table(frame)).totals_)


def test_plans_reserve_the_room():
    alone, others, jointly = (
        es.plan(BAYES, SCHEMA, n_rows=1000, **options)
        for options in ({}, {"by_others": True}, {"members": 3})
    )
    assert (
        alone.parameters.modulus_bits
        < others.parameters.modulus_bits
        <= jointly.parameters.modulus_bits
    )
    assert "shares hide the secrets of 3 members" in str(jointly)
    assert "members=3" in repr(jointly.parameters)
    assert es.Parameters.from_dict(jointly.parameters.to_dict()) == jointly.parameters
    with pytest.raises(es.ParameterError, check=error("joint-keys-need-bgv", "'bgv'", "members=3")):
        es.plan(BAYES, SCHEMA, n_rows=1000, members=3, scheme="bfv")
    with pytest.raises(es.ParameterError, check=error("joint-keys-need-bgv", "'bgv'")):
        replace(jointly.parameters, scheme="bfv")
    with pytest.raises(ValueError, check=error("not-a-count", "members=0")):
        es.plan(BAYES, SCHEMA, n_rows=1000, members=0)


# -- nothing without everybody
# ------------------------------------------------------------------------------------------------


def flooding_of(
    study: Study, name: str, answer: EncryptedAnswer, share: bytes
) -> tuple[np.ndarray, float]:
    """What a member added to c_1 s_j, divided by t and put together from all primes; and the width
    it should have.
    """
    parameters = packing_parameters(study.joint.parameters)
    (residues, noise), moduli = answer.packs()[0], parameters.data_moduli
    given = residues_from_bytes(
        container.from_bytes(share).section("packs"), moduli, RING, polynomials=1
    )[0]
    own = times_secrets(residues[1], [study.members[name]])
    flooding = around_zero(coefficients_of(given.astype(object) - own, moduli), math.prod(moduli))
    assert not any(int(c) % parameters.plain_modulus for c in flooding)
    model = packing_model(study.joint.parameters, packing_primes(study.joint.parameters))
    return flooding // parameters.plain_modulus, flooding_width(model, noise)


def test_the_flooding_of_a_share(study, table):
    """Uniform from -2^w to 2^w, in every coefficient on its own, 2^64 over what is proven of this
    very ciphertext's noise.
    """
    question = forest(next(SEEDS))
    answer = table._answer_to(question)
    shares = study.shares(answer, question, table)
    model, (_, noise) = (
        packing_model(study.joint.parameters, packing_primes(study.joint.parameters)),
        answer.packs()[0],
    )
    floods = []
    for name, share in shares.items():
        flooding, width = flooding_of(study, name, answer, share)
        assert (
            2.0**width
            >= 2.0**FLOODING_BITS
            * model.coefficient_bound(noise)
            / study.joint.parameters.plain_modulus
        )
        assert -(1 << width) <= min(flooding)
        assert max(flooding) < 1 << width
        scaled = np.array([int(c) / 2.0**width for c in flooding])
        assert scipy.stats.kstest(scaled, scipy.stats.uniform(-1, 2).cdf).pvalue > 1e-12
        assert len(set(flooding)) == RING  # a polynomial, no constant
        low = np.bincount([int(c) % 16 for c in flooding], minlength=16)
        assert scipy.stats.chisquare(low).pvalue > 1e-12
        floods.append(scaled)
    assert np.abs(np.corrcoef(floods) - np.eye(3)).max() < 0.2


def test_the_noise_that_is_flooded_keeps_its_bound(study, table):
    lab, answer = JointLab(study), table._answer_to(forest(next(SEEDS)))
    for residues, noise in answer.packs():
        phase = lab.phase(ciphertext_of(lab.small, residues), lab.small)
        assert max(abs(int(c)) for c in phase) < packing_model(
            lab.parameters, len(lab.small.parameters.data_moduli)
        ).coefficient_bound(noise)


@pytest.mark.parametrize("absent", NAMES[:3])
def test_all_but_one_and_the_worker_see_a_uniform_polynomial(study, table, absent):
    """What the worker has, and all that two members know, leaves the pack hidden behind c_1 times
    the third secret.
    """
    answer = table._answer_to(forest(int(hashlib.sha256(absent.encode()).hexdigest()[:6], 16)))
    (residues, _), moduli = (
        answer.packs()[0],
        packing_parameters(study.joint.parameters).data_moduli,
    )
    known = [member for name, member in study.members.items() if name != absent]
    modulus = math.prod(moduli)
    total = coefficients_of(residues[0].astype(object) + times_secrets(residues[1], known), moduli)
    uniform = np.array([int(c) / modulus for c in total], dtype=float)
    assert scipy.stats.kstest(uniform, "uniform").pvalue > 1e-12
    message = np.bincount(
        [int(c) % study.joint.parameters.plain_modulus % 8 for c in total], minlength=8
    )
    assert scipy.stats.chisquare(message).pvalue > 1e-12
    # With the third secret, the same numbers are small: the test can fail.
    whole = JointLab(study)
    opened = whole.phase(ciphertext_of(whole.small, residues), whole.small)
    assert max(abs(int(c)) for c in opened) < modulus >> 64


def test_a_share_is_missing(study, table):
    question = forest(next(SEEDS))
    answer = table._answer_to(question)
    shares = study.shares(answer, question, table)
    del shares["south"]
    with pytest.raises(es.MemberError, check=error("wrong-messages")):
        study.joint.open(answer, shares)
    # One that somebody makes up opens nothing.
    fake = container.from_bytes(shares["north"])
    fake = replace(fake, fields={**fake.fields, "member": "south"})
    with pytest.raises(ValueError, check=error("foreign-coefficients")):
        study.joint.open(answer, {**shares, "south": container.to_bytes(fake)}, SCHEMA)


# -- shares of adversaries
# ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def opening(study: Study, table: es.EncryptedTable) -> tuple[EncryptedAnswer, dict[str, bytes]]:
    question = forest(7)
    answer = table._answer_to(question)
    return answer, study.shares(answer, question, table)


def changed(message: bytes, **changes: Any) -> bytes:
    file = container.from_bytes(message)
    if "packs" in changes:
        file = replace(file, sections={**file.sections, "packs": changes.pop("packs")})
    key_id = changes.pop("key_id", file.key_id)
    return container.to_bytes(
        replace(
            file,
            key_id=key_id,
            kind=changes.pop("kind", file.kind),
            fields={**file.fields, **changes},
        )
    )


def test_what_is_no_share_of_this_opening_is_refused_and_named(
    study, table, opening, tmp_path, receiver
):
    answer, shares = opening
    other_question = forest(next(SEEDS))
    other = table._answer_to(other_question)
    body = container.from_bytes(shares["south"]).section("packs")
    cases = [
        ("unreadable-message", changed(shares["south"], packs=body[:-8])),
        ("unreduced-residues", changed(shares["south"], packs=b"\xff" * len(body))),
        ("other-ciphertext", study.members["south"].share(other, other_question, table)),
        ("other-sender", shares["north"]),
        ("other-receiver", changed(shares["south"], receiver=receiver.key_id)),
        ("other-joint-key", changed(shares["south"], key_id="0" * 64)),
        ("unreadable-message", study.commitments["south"]),
        ("unreadable-message", shares["south"][:-40] + bytes(8) + shares["south"][-32:]),
    ]
    for code, share in cases:
        with pytest.raises(es.MemberError, check=error(code)):
            study.joint.open(answer, {**shares, "south": share}, SCHEMA)
    with pytest.raises(es.MemberError, check=error("wrong-messages")):
        study.joint.open(answer, {**shares, "nobody": shares["north"]}, SCHEMA)
    stranger = made(tmp_path / "stranger", study.joint.parameters)
    foreign = changed(stranger.commitments["south"], kind=SHARE_KIND)
    with pytest.raises(es.MemberError, check=error("other-joint-key")):
        study.joint.open(answer, {**shares, "south": foreign}, SCHEMA)
    assert list(study.joint.open(answer, shares, SCHEMA).totals_) == plainly(forest(7), FRAME)


def test_a_share_that_lies_within_its_form_is_refused_when_it_is_read(study, opening):
    answer, shares = opening
    body = container.from_bytes(shares["south"]).section("packs")
    moduli = packing_parameters(study.joint.parameters).data_moduli
    shifted = residues_from_bytes(body, moduli, RING, polynomials=1)
    shifted = (shifted + np.uint64(12345)) % np.array(moduli, dtype=np.uint64)[:, None]
    with pytest.raises(ValueError, check=error("outside-proven-range")):
        study.joint.open(
            answer,
            {**shares, "south": changed(shares["south"], packs=residues_to_bytes(shifted, moduli))},
            SCHEMA,
        )


def test_contributions_are_what_was_committed_to(study, tmp_path):
    """A last member who waits for the others' public keys cannot choose hers by them."""
    joint = study.joint
    members = {name: es.Member(tmp_path / name, joint, name) for name in joint.members}
    first = {name: member.commit() for name, member in members.items()}
    second = {name: member.contribute(first) for name, member in members.items()}
    late = {**second, "west": study.contributions["west"]}
    with pytest.raises(es.MemberError, check=error("broken-commitment")):
        members["north"].relinearise(late)
    with pytest.raises(es.MemberError, check=error("broken-commitment")):
        joint.public_keys(first, late, study.relinearisations)
    with pytest.raises(es.MemberError, check=error("other-commitments")):
        members["north"].contribute({**first, "west": study.commitments["west"]})
    with pytest.raises(es.MemberError, check=error("exchanged-commitment")):
        members["north"].contribute({**first, "north": study.commitments["north"]})
    with pytest.raises(es.MemberError, check=error("wrong-messages")):
        members["north"].contribute({"north": first["north"]})
    third = {name: member.relinearise(second) for name, member in members.items()}
    with pytest.raises(es.MemberError, check=error("other-contributions")):
        joint.public_keys(first, second, {**third, "west": study.relinearisations["west"]})
    with pytest.raises(es.MemberError, check=error("other-messages")):
        members["north"].finish(first, second, study.relinearisations)
    assert joint.public_keys(first, second, third).key_id != study.keys.key_id


def test_wrong_members(study, tmp_path):
    parameters = study.joint.parameters
    for names in (["a", "b"], ["a", "b", "c", "d"]):
        with pytest.raises(
            es.ParameterError, check=error("member-count-mismatch", len(names), len(names))
        ):
            es.JointKey(names, parameters)
    for names in (["a", "a", "b"], ["a", "", "b"], ["a"], ["a", "b\n", "c"]):
        with pytest.raises(ValueError, check=error("invalid-members")):
            es.JointKey(names, parameters)
    other = es.JointKey(["north", "south", "elsewhere"], parameters, label=study.joint.label)
    with pytest.raises(es.MemberError, check=error("wrong-messages")):
        other.public_keys(study.commitments, study.contributions, study.relinearisations)
    same_names = es.JointKey(["north", "south", "west"], parameters)
    with pytest.raises(es.MemberError, check=error("other-joint-key")):
        same_names.public_keys(study.commitments, study.contributions, study.relinearisations)
    with pytest.raises(ValueError, check=error("unknown-member", "'elsewhere'")):
        es.Member(tmp_path, study.joint, "elsewhere")
    with pytest.raises(es.KeyMismatchError, check=error("other-joint-key")):
        es.Member(study.members["north"].home, study.joint, "south")


# -- once, and for what was agreed on
# --------------------------------------------------------------------------------------------


def test_the_same_bytes_again_and_never_another_share(study, table, receiver):
    question, north = forest(next(SEEDS)), study.members["north"]
    answer = table._answer_to(question)
    share = north.share(answer, question, table)
    assert north.share(answer, question, table) == share
    assert es.Member(north.home, study.joint, "north").share(answer, question, table) == share
    with pytest.raises(es.MemberError, check=error("already-shared")):
        north.share(answer, question, table, receiver=receiver.public_keys())
    # The same ciphertext as the answer to another question, which a worker may claim who is
    # trusted.
    other = forest(next(SEEDS))
    claimed = EncryptedAnswer(
        other, answer.ciphertexts, answer.schema, answer.n_rows, answer.block_ids
    )
    with pytest.raises(es.MemberError, check=error("already-shared")):
        north.share(claimed, other, trust_worker=True)
    # With another c_0, which a share does not depend on.
    numbers = table._answer_to(other).ciphertexts
    parts = [
        Part(np.stack([new.residues[0], old.residues[1]]), new.noise)
        for new, old in zip(numbers.parts, answer.ciphertexts.parts, strict=True)
    ]
    numbers.parts = tuple(parts)
    crossed = EncryptedAnswer(other, numbers, answer.schema, answer.n_rows, answer.block_ids)
    with pytest.raises(es.MemberError, check=error("already-shared")):
        north.share(crossed, other, trust_worker=True)
    # Another ciphertext for the same question.
    again = EncryptedAnswer(
        question,
        table._answer_to(other).ciphertexts,
        answer.schema,
        answer.n_rows,
        answer.block_ids,
    )
    with pytest.raises(es.MemberError, check=error("already-shared")):
        north.share(again, question, trust_worker=True)


def test_only_for_the_agreed_question_over_the_agreed_rows(study, table):
    question, north = forest(next(SEEDS)), study.members["north"]
    answer = table._answer_to(question)
    with pytest.raises(ValueError, check=error("table-or-trust", "trust_worker=True")):
        north.share(answer, question)
    with pytest.raises(es.VerificationError, check=error("different-questions")):
        north.share(answer, forest(next(SEEDS)), table)
    with pytest.raises(es.VerificationError, check=error("different-questions")):
        north.share(answer, forest(next(SEEDS)), trust_worker=True)
    with pytest.raises(es.VerificationError, check=error("different-rows", "90", "3")):
        north.share(answer, question, pooled(study, FRAME))
    forged = table._answer_to(question)
    residues = forged.ciphertexts.parts[0].residues.copy()
    residues[1] = np.array(packing_parameters(study.joint.parameters).data_moduli, dtype=np.uint64)[
        :, None
    ] // np.uint64(4)
    forged.ciphertexts.parts = (Part(residues, forged.ciphertexts.parts[0].noise),)
    with pytest.raises(es.VerificationError, check=error("wrong-result")):
        north.share(forged, question, table)
    assert not list(north.home.glob(f"share-{hashlib.sha256(answer.statement()).hexdigest()}"))


def test_a_worker_who_is_believed_reads_the_secret_off_a_share(study, table):
    """Why members compute anew: c_1 = q/4 shows the secret in the upper bits, flooding or not. The
    documents say so.
    """
    question, north = forest(next(SEEDS)), study.members["north"]
    forged = table._answer_to(question)
    moduli = packing_parameters(study.joint.parameters).data_moduli
    modulus = math.prod(moduli)
    residues = forged.ciphertexts.parts[0].residues.copy()
    for i, q in enumerate(moduli):
        residues[1, i] = modulus // 4 % q
    forged.ciphertexts.parts = (Part(residues, forged.ciphertexts.parts[0].noise),)
    share = north.share(forged, question, trust_worker=True)
    given = residues_from_bytes(
        container.from_bytes(share).section("packs"), moduli, RING, polynomials=1
    )[0]
    read = [
        round(int(c) / (modulus / 4)) for c in around_zero(coefficients_of(given, moduli), modulus)
    ]
    assert read == [int(c) for c in secret_of(north)]


def test_rows_are_never_opened(study, table):
    answer = table._answer_to(forest(next(SEEDS)))
    for form in ("slots", "replicated"):
        answer.ciphertexts.form = form
        with pytest.raises(ValueError, check=error("form-not-opened", form)):
            study.members["north"].share(answer, answer.question, trust_worker=True)
    with pytest.raises(TypeError, check=error("not-openable")):
        study.members["north"].share(3, answer.question, trust_worker=True)


def test_of_other_keys(study, table, receiver, tmp_path):
    question, north = forest(next(SEEDS)), study.members["north"]
    other = made(tmp_path, study.joint.parameters)
    with pytest.raises(es.KeyMismatchError, check=error("other-key")):
        north.share(pooled(other, FRAME)._answer_to(question), question, trust_worker=True)
    answer = table._answer_to(question)
    for wrong in (es.Owner(joint_parameters(3, (50,) * 7)).public_keys(), other.keys):
        with pytest.raises(es.KeyMismatchError, check=error("unfit-receiver")):
            north.share(answer, question, table, receiver=wrong)
    fresh = es.Member(tmp_path / "new", study.joint, "north")
    with pytest.raises(es.MemberError, check=error("not-finished")):
        fresh.share(answer, question, table)


def test_no_room_for_flooding_is_an_error(study, tmp_path):
    narrow = made(tmp_path, joint_parameters(3, (50,) * 4, 2))
    whole = pooled(narrow, FRAME)
    answer = whole.ask(
        BAYES
    )  # which can be computed on with, if these keys are for that, and not opened
    with pytest.raises(es.NoiseError, check=error("no-room-for-noise")):
        narrow.members["north"].share(answer, BAYES, trust_worker=True)


def test_what_is_kept_is_private_and_the_second_secret_is_gone(study):
    for member in study.members.values():
        assert (member.home.stat().st_mode & 0o777) == 0o700
        for path in member.home.iterdir():
            assert (path.stat().st_mode & 0o777) == files.PRIVATE or path.name == "lock"
        assert not (member.home / "second").exists()
        assert (member.home / "secret").exists()
        assert "secret" not in repr(member)
        with pytest.raises(es.MemberError, check=error("earlier-round-missing")):
            member.state.secret("second")


def test_a_locked_secret(study, tmp_path):
    member = es.Member(tmp_path, study.joint, "north", passphrase="some words")
    made = member.commit()
    assert es.Member(tmp_path, study.joint, "north", passphrase="some words").commit() == made
    first = {**study.commitments, "north": made}
    member.contribute(first)
    given = {**study.contributions, "north": member.state.stored_bytes("contribution")}
    with pytest.raises(es.PassphraseError, check=error("passphrase-mismatch")):
        es.Member(tmp_path, study.joint, "north").relinearise(given)
    with pytest.raises(es.PassphraseError, check=error("wrong-passphrase")):
        es.Member(tmp_path, study.joint, "north", passphrase="others").relinearise(given)
    with pytest.raises(es.PassphraseError, check=error("passphrase-mismatch")):
        es.Member(
            study.members["north"].home, study.joint, "north", passphrase="words"
        ).state.secret("secret")
    stored = container.read(tmp_path / "secret").section("secret_key")
    assert member.state._unlock_secret("secret")[100:200] not in stored
    assert member.relinearise(given)


def test_messages_say_all_that_they_should(study):
    for kind, fields in (("commitments", "digest"), ("relinearisations", "transcript")):
        said = {
            "commitments": study.commitments,
            "relinearisations": study.relinearisations,
            kind: {**getattr(study, kind)},
        }
        file = container.from_bytes(said[kind]["west"])
        without = {name: value for name, value in file.fields.items() if name != fields}
        said[kind]["west"] = container.to_bytes(replace(file, fields=without))
        with pytest.raises(es.MemberError, check=error("incomplete-message")):
            study.joint.public_keys(
                said["commitments"], study.contributions, said["relinearisations"]
            )


# -- kill -9
# ------------------------------------------------------------------------------------------------


def killed(work: Callable[[], Any], at: int, *, after: bool) -> None:
    """Do it in a process of its own that is killed while it gives the at-th file its name, before
    or after.
    """
    child = os.fork()
    if not child:
        try:
            real, seen = files.place_new, count(1)

            def place_new(temporary: Path, target: Path) -> None:
                last = next(seen) == at
                if last and not after:
                    os.kill(os.getpid(), signal.SIGKILL)
                real(temporary, target)
                if last:
                    os.kill(os.getpid(), signal.SIGKILL)

            files.place_new = place_new
            work()
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signal.SIGKILL


def kept(home: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes()
        for path in home.iterdir()
        if path.name != "lock" and path.name[0] != "."
    }


def test_a_member_who_is_killed_goes_on_with_what_she_has_stored(study, tmp_path):
    """At every file that she stores, before it has its name and after: what was stored is sent, and
    nothing is made twice.
    """
    others = {name: es.Member(tmp_path / name, study.joint, name) for name in ("south", "west")}
    home, first = tmp_path / "north", {name: member.commit() for name, member in others.items()}

    def north() -> es.Member:
        return es.Member(home, study.joint, "north")

    def goes_on(work: Callable[[], Any], names: Sequence[str]) -> None:
        """Each run ends with one more file than there were before it, or with none."""
        for number, _ in enumerate(names):
            before = kept(home) if home.exists() else {}
            killed(work, 1, after=False)
            assert kept(home) == before
            killed(work, 1, after=True)
            now = kept(home)
            assert {name: now[name] for name in before} == before
            assert set(now) - set(before) == {names[number]}

    goes_on(lambda: north().commit(), ["second", "secret", "contribution"])
    first = {"north": north().commit(), **first}
    goes_on(lambda: north().contribute(first), ["commitments"])
    second = {"north": north().contribute(first)} | {
        name: m.contribute(first) for name, m in others.items()
    }
    assert second["north"] == kept(home)["contribution"]
    goes_on(lambda: north().relinearise(second), ["relinearisation"])
    assert "second" in kept(home)  # killed before she could remove it
    third = {"north": north().relinearise(second)} | {
        name: m.relinearise(second) for name, m in others.items()
    }
    assert third["north"] == kept(home)["relinearisation"]
    assert "second" not in kept(home)
    goes_on(lambda: north().finish(first, second, third), ["public.keys"])
    assert north().keys.key_id == study.joint.public_keys(first, second, third).key_id


def test_a_share_is_stored_before_it_is_sent(study, table):
    """Killed after the share was stored, she sends those bytes; killed before, nobody
    has seen any.
    """
    question, north = forest(next(SEEDS)), study.members["north"]
    answer, before = table._answer_to(question), kept(north.home)
    work = partial(north.share, answer, question, trust_worker=True)
    killed(work, 1, after=False)
    assert kept(north.home) == before
    killed(work, 1, after=True)
    (name,) = set(kept(north.home)) - set(before)
    assert name == f"share-{hashlib.sha256(answer.statement()).hexdigest()}"
    assert north.share(answer, question, table) == kept(north.home)[name]


# -- verifying a worker
# ------------------------------------------------------------------------------------------------


def test_verify(tmp_path):
    toy = es.Owner(joint_parameters(1, kept=None))
    table = toy.encrypt(SCHEMA.table(FRAME))
    answer, model = table.ask(COUNTS), forest(1).fit(table)
    assert es.verify(answer, table).ciphertexts.equals(answer.ciphertexts)
    assert es.verify(model, table, device="seal").block_ids == table.blocks.ids
    table.save(tmp_path / "table")
    answer.save(tmp_path / "answer")
    assert es.verify(tmp_path / "answer", tmp_path / "table").question.name == answer.question.name
    with pytest.raises(es.VerificationError, check=error("different-questions")):
        es.verify(answer, table, es.Describe(["v1"]))
    with pytest.raises(es.VerificationError, check=error("different-rows")):
        es.verify(answer, toy.encrypt(SCHEMA.table(rows(80))))
    altered = table.ask(COUNTS)
    altered.ciphertexts.parts[0].residues[0, 0, 0] += 1
    with pytest.raises(es.VerificationError, check=error("wrong-result")):
        es.verify(altered, table)
    with pytest.raises(TypeError, check=error("already-open")):
        es.verify(forest(1).fit(SCHEMA.table(FRAME)), table)
    flooded = table.ask(COUNTS)
    flooded.ciphertexts.flooded = True
    with pytest.raises(es.VerificationError, check=error("fresh-noise")):
        es.verify(flooded, table)
