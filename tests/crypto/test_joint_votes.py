"""Votes under a joint key: opened like totals, for new rows, of a model that nobody has opened, and
of nothing else.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from joint_samples import JointLab, Study, coefficients_of, joint_parameters, made, times_secrets
from noise_samples import RING
from noise_samples import centred as around_zero

import encryptedstats as es
from encryptedstats.circuits.layout import Layout
from encryptedstats.circuits.lowering import Setting
from encryptedstats.circuits.passes.correction_factors import find_given_factor
from encryptedstats.circuits.proof import flooding_level, prove_rows, read_noise
from encryptedstats.circuits.results import Part
from encryptedstats.circuits.search import Stage
from encryptedstats.circuits.shapes import Shapes
from encryptedstats.crypto.engine import engine_for
from encryptedstats.crypto.flooding import FLOODING_BITS, flooding_width
from encryptedstats.crypto.packing import first_primes, packing_model, packing_primes
from encryptedstats.crypto.residues import ciphertext_of, residues_from_bytes
from encryptedstats.joint.opening import common_moduli
from encryptedstats.storage import container
from encryptedstats.tables.columns import table_columns
from encryptedstats.tables.questions.row_answers import stages_of
from error_codes import error

pytestmark = pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")


def rows(n: int, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "a": rng.choice(["x", "y", "z"], n),
            "b": rng.choice(["u", "v"], n),
            "sick": rng.integers(0, 2, n),
        }
    )


LEVELS = pd.DataFrame({"a": ["x", "y", "z"], "b": ["u", "v", "u"], "sick": [0, 1, 0]})
SCHEMA = es.Schema.infer(LEVELS, target="sick")
TRAINED, NEW = rows(90), rows(40, seed=1)


def forest(seed: int = 0) -> es.CompletelyRandomForest:
    return es.CompletelyRandomForest(n_trees=4, depth=2, random_state=seed)


def encrypted(study: Study, frame: pd.DataFrame) -> es.EncryptedTable:
    return study.keys.encrypt(SCHEMA.table(frame)).accept_others()


def plainly(model: Any, trained: pd.DataFrame, new: pd.DataFrame) -> Any:
    return model.fit(SCHEMA.table(trained)).predict_votes(SCHEMA.table(new))


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    return made(tmp_path_factory.mktemp("three"), joint_parameters(3, (50,) * 7, 5))


@pytest.fixture(scope="module")
def receiver(study: Study) -> es.Owner:
    return es.Owner(study.joint.parameters)


@pytest.fixture(scope="module")
def table(study: Study) -> es.EncryptedTable:
    return encrypted(study, TRAINED)


@pytest.fixture(scope="module")
def new(study: Study) -> es.EncryptedTable:
    return encrypted(study, NEW.drop(columns="sick"))


@pytest.mark.parametrize("device", ["native", "seal"])
def test_votes_of_new_rows_are_those_of_the_plain_model(study, table, new, receiver, device):
    question, to = forest(1 if device == "native" else 2), receiver.public_keys()
    votes = question.fit(table, device=device).predict_votes(new, device=device)
    shares = study.shares(votes, question, table, rows=new, receiver=to)
    opened = receiver.open(study.joint.combine(votes, shares, to), SCHEMA)
    assert opened.equals(plainly(forest(question.random_state), TRAINED, NEW))
    with pytest.raises(es.MemberError, check=error("wrong-messages")):
        study.joint.combine(votes, {name: shares[name] for name in ("north", "south")}, to)


def test_without_a_receiver_and_for_another_model(study, table, new):
    question = es.MultinomialNB()
    votes = question.fit(table).predict_votes(new)
    opened = study.joint.open(votes, study.shares(votes, question, table, rows=new), SCHEMA)
    assert opened.equals(plainly(es.MultinomialNB(), TRAINED, NEW))


def test_ciphertexts_that_are_the_same_have_one_share(study, table, receiver):
    """Class counts beside votes depend on the number of rows alone: two flooded shares of one c_1
    would be one too many.
    """
    question, to = es.MultinomialNB(alpha=0.5), receiver.public_keys()
    batches = [rows(2 * RING, seed=11), rows(2 * RING, seed=12)]
    closed = [encrypted(study, batch.drop(columns="sick")) for batch in batches]
    votes = [question.fit(table).predict_votes(one) for one in closed]
    seen: dict[bytes, bytes] = {}
    for one, asked, batch in zip(votes, closed, batches, strict=True):
        shares = study.shares(one, question, table, rows=asked, receiver=to)
        packs = one.packs()
        moduli = common_moduli(study.joint.parameters, packs)
        body = container.from_bytes(shares["north"]).section("packs")
        given = residues_from_bytes(body, moduli, RING, polynomials=2 * len(packs)).reshape(
            len(packs), -1
        )
        seconds = [residues[1].tobytes() for residues, _ in packs]
        assert len(set(seconds)) < len(seconds)  # within one answer
        for second, share in zip(seconds, given, strict=True):
            assert seen.setdefault(second, share.tobytes()) == share.tobytes()
        opened = receiver.open(study.joint.combine(one, shares, to), SCHEMA)
        assert opened.equals(plainly(es.MultinomialNB(alpha=0.5), TRAINED, batch))
    again = study.members["north"]
    third = question.fit(table).predict_votes(
        other := encrypted(study, rows(2 * RING, seed=13).drop(columns="sick"))
    )
    with pytest.raises(es.MemberError, check=error("already-shared")):
        again.share(third, question, table, other)  # for a holder of all shares: another receiver


def test_once_and_for_what_was_agreed_on(study, table, new, receiver, tmp_path):
    question, north, to = forest(3), study.members["north"], receiver.public_keys()
    votes = question.fit(table).predict_votes(new)
    before = set(north.home.glob("share-*"))
    with pytest.raises(es.VerificationError, check=error("rows-to-predict-unclear")):
        north.share(votes, question, table, receiver=to)
    with pytest.raises(es.VerificationError, check=error("rows-to-predict-unclear")):
        north.share(table._answer_to(question), question, table, new, receiver=to)
    with pytest.raises(es.VerificationError, check=error("different-questions")):
        north.share(votes, forest(4), table, new, receiver=to)
    with pytest.raises(es.VerificationError, check=error("different-rows")):
        north.share(votes, question, table, encrypted(study, NEW.drop(columns="sick")), receiver=to)
    with pytest.raises(es.VerificationError, check=error("wrong-result")):
        north.share(votes, question, encrypted(study, TRAINED), new, receiver=to)
    first = votes.ciphertexts.parts[0]
    nudged = first.residues.copy()
    nudged[0, 0, 0] = (nudged[0, 0, 0] + np.uint64(1)) % np.uint64(
        study.joint.parameters.data_moduli[0]
    )
    parts = (Part(nudged, first.noise), *votes.ciphertexts.parts[1:])
    forged = replace(votes, totals=votes.ciphertexts.with_packs(study.keys, votes.packs()))
    forged.ciphertexts.parts, forged.ciphertexts.flooded = parts, None
    with pytest.raises(es.VerificationError, check=error("wrong-result")):
        north.share(forged, question, table, new, receiver=to)
    assert set(north.home.glob("share-*")) == before  # nothing was made for any of these
    # Now once, and again the same bytes, also for what was read from a file.
    share = north.share(votes, question, table, new, receiver=to)
    votes.save(tmp_path / "votes.enc")
    again = es.EncryptedAnswer.load(tmp_path / "votes.enc", study.keys)
    assert (
        es.Member(north.home, study.joint, "north").share(again, question, table, new, receiver=to)
        == share
    )
    with pytest.raises(es.MemberError, check=error("already-shared")):
        north.share(votes, question, table, new)
    with pytest.raises(es.MemberError, check=error("already-shared")):
        north.share(votes, question, trust_worker=True)


def test_votes_of_the_rows_that_a_model_is_of_stay_closed(study, table, receiver):
    question = forest(5)
    votes = question.fit(table).predict_votes(table)
    with pytest.raises(es.VerificationError, check=error("votes-of-training-rows")):
        study.members["north"].share(votes, question, table, table, receiver=receiver.public_keys())


def test_an_open_model_is_asked_at_home(study, new):
    model = forest(6).fit(SCHEMA.table(TRAINED))
    with pytest.raises(es.RowsByOthersError, check=error("rows-of-joint-key")):
        model.predict_votes(new)


def test_rows_of_others_for_one_owner_are_refused_as_before(receiver):
    rows_of_others = (
        receiver.public_keys().encrypt(SCHEMA.table(NEW.drop(columns="sick"))).accept_others()
    )
    own = receiver.encrypt(SCHEMA.table(TRAINED))
    with pytest.raises(es.RowsByOthersError, check=error("rows-by-others")):
        forest().fit(own).predict_votes(rows_of_others)


def test_what_hides_a_member_s_secret_in_votes(study, table, new):
    """Flooding of 2^64 over what is proven of each ciphertext, uniform; and the noise below it
    keeps its bound.
    """
    question, lab, parameters = forest(7), JointLab(study), study.joint.parameters
    answer = question.fit(table).predict_votes(new)
    share = study.members["south"].share(answer, question, table, new)
    packs = answer.packs()
    moduli, t = common_moduli(study.joint.parameters, packs), parameters.plain_modulus
    assert len(moduli) == len(parameters.data_moduli) - flooding_level(parameters)
    model, small = (
        packing_model(parameters, len(moduli)),
        engine_for(first_primes(parameters, len(moduli))),
    )
    given = residues_from_bytes(
        container.from_bytes(share).section("packs"), moduli, RING, polynomials=len(packs)
    )
    south, modulus = study.members["south"], math.prod(moduli)
    for (residues, noise), own in zip(packs, given, strict=True):
        phase = lab.phase(ciphertext_of(small, residues), small)
        assert max(abs(int(c)) for c in phase) < model.coefficient_bound(noise)
        rest = own.astype(object) - times_secrets(residues[1], [south])
        flooding = around_zero(coefficients_of(rest, moduli), modulus)
        assert not any(int(c) % t for c in flooding)
        width = flooding_width(model, noise)
        assert 2.0**width >= 2.0**FLOODING_BITS * model.coefficient_bound(noise) / t
        scaled = np.array([int(c) // t / 2.0**width for c in flooding])
        assert scipy.stats.kstest(scaled, scipy.stats.uniform(-1, 2).cdf).pvalue > 1e-12
        assert len(set(flooding)) == RING
        # Without the third member, what two and the worker have is uniform.
        known = [member for name, member in study.members.items() if name != "west"]
        seen = coefficients_of(
            residues[0].astype(object) + times_secrets(residues[1], known), moduli
        )
        assert scipy.stats.kstest([int(c) / modulus for c in seen], "uniform").pvalue > 1e-12


def limit(members: int, n_rows: int) -> es.Parameters:
    """The smallest primes that are proven to carry a forest, its votes, and the
    flooding of these.
    """
    public = SCHEMA.public()
    fit, answers = stages_of(forest(), public, table_columns(public, classes=True), n_rows, RING)
    assert isinstance(fit, Stage)
    for size in range(36, 51):
        for kept in range(2, 7):
            try:
                parameters = joint_parameters(members, (size,) * 7, kept)
                layout = Layout(n_rows, RING)
                packs = read_noise(
                    fit.circuits(RING),
                    Setting(parameters, layout, with_secret_key=False, flooded=False),
                    quick=True,
                ).pack
                assert packs is not None
                noise = packs.at(len(parameters.data_moduli) - packing_primes(parameters))
                shapes, factor = Shapes(answers.circuits(RING)), find_given_factor(parameters)
                circuits = shapes.circuits(
                    dict.fromkeys(shapes.pack_names, factor), parameters.plain_modulus
                )
                prove_rows(
                    circuits,
                    Setting(
                        parameters,
                        Layout(RING, RING),
                        with_secret_key=False,
                        packs=((fit.gives, noise),),
                        flooded=True,
                    ),
                )
            except (es.NoiseError, es.ParameterError):
                continue
            return parameters
    raise AssertionError("no parameters of seven primes carry it")


@pytest.mark.parametrize("members", [2, 3, pytest.param(10, marks=pytest.mark.slow)])
def test_exact_at_the_limit(members: int, tmp_path: Path) -> None:
    trained, new = rows(RING, seed=members), rows(RING, seed=members + 1)
    study, question = made(tmp_path, limit(members, RING)), forest(members)
    whole, asked = encrypted(study, trained), encrypted(study, new.drop(columns="sick"))
    votes = question.fit(whole).predict_votes(asked)
    opened = study.joint.open(votes, study.shares(votes, question, None, trust_worker=True), SCHEMA)
    assert opened.equals(plainly(forest(members), trained, new))


@pytest.mark.slow
def test_exact_with_planned_parameters(tmp_path: Path) -> None:
    """128 bits of security, as es.plan chooses them."""
    question = es.CompletelyRandomForest(n_trees=5, depth=3, random_state=1)
    plan = es.plan(question, SCHEMA, n_rows=1000, members=3, encrypted_prediction=True)
    assert (plan.parameters.security >= 128, plan.parameters.ring_degree) == (True, 16384)
    study, owner = made(tmp_path, plan), es.Owner(plan)
    trained, asked, to = (
        encrypted(study, TRAINED),
        encrypted(study, NEW.drop(columns="sick")),
        owner.public_keys(),
    )
    votes = question.fit(trained).predict_votes(asked)
    shares = study.shares(votes, question, trained, rows=asked, receiver=to)
    clear = plainly(es.CompletelyRandomForest(n_trees=5, depth=3, random_state=1), TRAINED, NEW)
    assert owner.open(study.joint.combine(votes, shares, to), SCHEMA).equals(clear)


def test_plans_reserve_the_room() -> None:
    alone, jointly = (
        es.plan(forest(), SCHEMA, n_rows=1000, encrypted_prediction=True, **more)
        for more in ({"by_others": True}, {"members": 3})
    )
    drawn = es.CompletelyRandomForest(n_trees=2, depth=1, fraction=8, random_state=1)
    with pytest.raises(es.ParameterError, check=error("fraction-of-several-owners")):
        es.plan(drawn, SCHEMA, n_rows=1000, encrypted_prediction=True, members=3)
    # Votes keep the primes that flooding needs: of three times 44 bits, where an owner's have one
    # of 42.
    assert jointly.bytes_down > 2 * alone.bytes_down
    assert jointly.prediction is not None
    assert jointly.prediction.bytes_down == jointly.bytes_down
    one_less = replace(jointly.parameters, members=1)
    assert flooding_level(one_less) >= flooding_level(jointly.parameters)
