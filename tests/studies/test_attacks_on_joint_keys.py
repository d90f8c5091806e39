"""Attack studies with a joint key by role, as ``test_attacks_by_role.py`` attacks the others.

A site that chooses the noise of its ciphertexts adds t k X^-j to a polynomial: the message stays,
and what is opened carries k times a coefficient of the joint secret, for anybody who sees it before
rounding.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attack_tools import bayes_totals, clear_rows, open_folder, read_rows
from study_samples import FRAMES, SCHEMA, SITES, World, bring_forged, copied, parameters, world

import encryptedstats as es
from crypto.noise_samples import centred, inverse_transform, polynomial, transform
from encryptedstats.circuits.results import EncryptedNumbers, Part
from encryptedstats.crypto.residues import Residues, residues_from_bytes, secret_residues
from encryptedstats.joint.opening import common_moduli
from encryptedstats.storage import container
from encryptedstats.studies import joint, totals
from encryptedstats.studies.documents import StudyDocument
from encryptedstats.tables.answers.files import read_answer
from encryptedstats.tables.encrypted_table import EncryptedTable
from encryptedstats.tables.facts import MemoryBlocks

pytestmark = pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")
BAYES = es.MultinomialNB()
HOME = {"bayes": (BAYES, "totals")}
K = 1 << 80


@lru_cache(maxsize=1)
def joint_parameters() -> es.Parameters:
    return replace(parameters(), members=3)


def joint_world(folder: Path, **options: Any) -> World:
    """A study whose sites have made their parts of a joint key."""
    given = {
        "key": "joint",
        "questions": {"bayes": BAYES},
        "parameters": joint_parameters(),
        **options,
    }
    made = world(folder, **given).join_all()
    made.run(until=lambda: es.Study(made.url).state().key_rounds_complete)
    return made


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> World:
    """The sites have made the key, and the receiver has not announced it."""
    return joint_world(tmp_path_factory.mktemp("joint") / "w")


@pytest.fixture(scope="module")
def called(begun: World, tmp_path_factory: pytest.TempPathFactory) -> World:
    """Rows are there, those of west with chosen noise, and validity totals are called for."""
    made = copied(begun, tmp_path_factory.mktemp("called"))
    made.as_("registry").keygen(made.key)
    for site in SITES[:2]:
        made.as_(site).add(FRAMES[site])
    bring_noisy(made, "west")
    made.run(until=lambda: es.Study(made.url).state().call is not None)
    return made


@pytest.fixture(scope="module")
def judged(called: World, tmp_path_factory: pytest.TempPathFactory) -> World:
    """All rows are valid: noise is nothing that validity totals see."""
    made = copied(called, tmp_path_factory.mktemp("judged"))
    made.run(until=lambda: bool(es.Study(made.url).state().valid))
    assert all(es.Study(made.url).state().valid.values())
    return made


@pytest.fixture(scope="module")
def answered(judged: World, tmp_path_factory: pytest.TempPathFactory) -> World:
    """The worker has answered, and the receiver has called for the answer."""
    made = copied(judged, tmp_path_factory.mktemp("answered"))
    made.as_("centre").fit()
    made.as_("registry").open(made.key)
    return made


# -- what attackers compute -----------------------------------------------------------------------


def coefficients(residues: Residues, moduli: tuple[int, ...]) -> list[int]:
    """Return the centred coefficients of a polynomial that is kept transformed, prime by prime."""
    modulus, found = math.prod(moduli), polynomial([0] * residues.shape[-1])
    for own, q in zip(residues, moduli, strict=True):
        part = polynomial(inverse_transform((own.astype(object) % q).astype(np.uint64), q))
        found = found + part * (pow(modulus // q, -1, q) * (modulus // q))
    return [int(one) for one in centred(found % modulus, modulus)]


def own_secret(made: World, *sites: str) -> Residues:
    """Return the sum of the parts of the key that some sites have at home, transformed."""
    kind, parts = joint.Joint(), []
    for site in sites:
        member = kind._member(made.as_(site))
        parts.append(member.state.secret("secret").residues.astype(object))
    return sum(parts[1:], parts[0])


def secret_coefficients(made: World, *sites: str) -> list[int]:
    moduli = joint_parameters().data_moduli
    return coefficients(own_secret(made, *sites)[: len(moduli)], moduli)


def power_of_x(power: int, factor: int) -> Residues:
    """Return factor times X to a negative power, transformed, under all data primes."""
    ring, found = joint_parameters().ring_degree, []
    for q in joint_parameters().data_moduli:
        values = np.zeros(ring, dtype=np.uint64)
        values[-power % ring] = (-factor if power else factor) % q
        found.append(transform(values, q))
    return np.stack(found)


def bring_noisy(made: World, site: str) -> None:
    """Bring good rows: classes with the noise t K, column i with t K X^-i added to c_1."""
    party = made.as_(site)
    keys = party.public_keys()
    good = keys.encrypt(SCHEMA.table(FRAMES[site]))
    residues, t = good.blocks.block(0).copy(), keys.parameters.plain_modulus
    primes = np.array(keys.parameters.data_moduli, dtype=np.uint64)[:, None]
    for place, column in enumerate(map(str, good.facts.columns)):
        half, power = (0, 0) if column.startswith("class") else (1, place + 1)
        residues[place, half] = (residues[place, half] + power_of_x(power, t * K)) % primes
    blocks = MemoryBlocks(good.blocks.ids, good.blocks.rows, (residues,))
    bring_forged(party, EncryptedTable(good.facts, blocks, keys))


def packs_of(made: World, name: str) -> list[tuple[Residues, Any]]:
    """Return the ciphertexts of an answer or of validity totals as they lie in the folder."""
    study = es.Study(made.url)
    state = study.state()
    file = container.from_bytes(
        study.transcript.read_object({**state.checks, **state.answers}[name])
    )
    if name in state.checks:
        return EncryptedNumbers.from_container(file, study.public_keys()).packs()
    return read_answer(file, study.public_keys()).ciphertexts.packs()


def shares_of(made: World, item: str) -> dict[str, bytes]:
    """Return the shares of the last call that lie in the folder, for one of its items."""
    study = es.Study(made.url)
    given = study.state().shares[study.state().calls[-1].hash]
    return {
        site: joint.Joint()._share_of(study, site, digest, item) for site, digest in given.items()
    }


def receiver_secret(made: World) -> Residues:
    owner = es.Owner.load(made.key or "")
    return secret_residues(owner.parameters, owner._generator.secret_key().to_string()).astype(
        object
    )


def receive(made: World, name: str) -> list[int]:
    """Return the coefficients, noise and all, of what the shares of all sites give the receiver."""
    key, packs = joint.joint_key(es.Study(made.url).document), packs_of(made, name)
    ((residues, _),) = key.switch_packs(
        packs, shares_of(made, name), es.Owner.load(made.key or "").key_id
    )
    moduli = common_moduli(key.parameters, packs)
    own = receiver_secret(made)[: len(moduli)]
    return coefficients(residues[0].astype(object) + residues[1].astype(object) * own, moduli)


def is_readable(values: list[int], modulus: int) -> bool:
    """Return whether coefficients stay far below half the modulus, as after decryption."""
    return max(map(abs, values)) < modulus >> 20


# -- receiver and a site --------------------------------------------------------------------------


def test_limit_receiver_and_a_site_read_the_joint_key(answered: World, tmp_path: Path) -> None:
    """One factor of a product has t K, the other t K X^-i: t^2 K^2 s_i comes out."""
    made = copied(answered, tmp_path)
    for site in SITES:
        made.as_(site).share()
    unit = (joint_parameters().plain_modulus * K) ** 2
    read = sorted(filter(None, (round(Fraction(one, unit)) for one in receive(made, "bayes"))))
    first, second, third = secret_coefficients(made, *SITES)[1:4]
    levels = (first, second - first, -second, third, -third)  # of age, by cut points, and of sex
    assert read == sorted(filter(None, (*levels, *(-one for one in levels))))  # of both classes
    found = made.as_("registry").open(made.key)["bayes"]
    assert [int(one) for one in found.totals_] == bayes_totals(*FRAMES.values())
    assert any("one site" in risk for risk in es.Study(made.url).status().to_dict()["open_risks"])


def test_encrypted_totals_and_a_receiver_who_is_a_site_are_refused(tmp_path: Path) -> None:
    for options in ({"questions": HOME}, {"receiver": "north"}):
        with pytest.raises(es.ParameterError):
            world(tmp_path / "w", **{"key": "joint", "parameters": joint_parameters(), **options})


def test_a_site_who_receives_reads_the_joint_key_from_encrypted_totals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the rule, west adds t k to c_1 of its totals, and all of k s comes out of the sum."""
    monkeypatch.setattr(StudyDocument, "_check_joint", lambda self: None)
    monkeypatch.setattr(joint.Joint, "_recompute", believe_worker)
    made = joint_world(tmp_path / "w", questions=HOME)
    made.as_("registry").keygen(made.key)
    made.as_("north").add(FRAMES["north"])
    made.as_("south").add(FRAMES["south"])
    honest, k = totals.encrypt_answer, K * K

    def chosen(question: Any, table: Any, keys: es.PublicKeys) -> es.EncryptedAnswer:
        answer = honest(question, table, keys)
        (part,) = answer.ciphertexts.parts
        residues, moduli = (
            part.residues.copy(),
            joint_parameters().data_moduli[: part.residues.shape[1]],
        )
        for number, q in enumerate(moduli):
            residues[1, number] = (
                residues[1, number] + joint_parameters().plain_modulus * k % q
            ) % q
        answer.ciphertexts.parts = (Part(residues, part.noise),)
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(totals, "encrypt_answer", chosen)
        made.as_("west").add(FRAMES["west"])
    for site in SITES:
        made.as_(site).share()
    made.as_("centre").fit()
    made.as_("registry").open(made.key)
    for site in SITES:
        made.as_(site).share()
    unit = joint_parameters().plain_modulus * k
    read = [round(Fraction(one, unit)) for one in receive(made, "bayes")]
    assert read == secret_coefficients(made, *SITES)


# -- worker and receiver --------------------------------------------------------------------------


def believe_worker(self: Any, study: es.Study, state: Any, name: str, keys: es.PublicKeys) -> Any:
    """Compute nothing anew: take what the worker claims."""
    return self._read_claim(study, state, name, state.calls[-1].items[name], keys)


def call_for_chosen(made: World) -> None:
    """Let the worker put c_1 = q/4 in the place of an answer, and the receiver call for it."""
    centre = made.as_("centre")
    answer = centre.answer_from_rows("bayes")
    part = answer.ciphertexts.parts[0]
    moduli, residues = (
        joint_parameters().data_moduli[: part.residues.shape[1]],
        part.residues.copy(),
    )
    for number, q in enumerate(moduli):
        residues[1, number] = math.prod(moduli) // 4 % q
    answer.ciphertexts.parts = (Part(residues, part.noise),)
    digest = centre.transcript.store_object(container.to_bytes(answer.to_container()))
    centre.post("answer", {"question": "bayes", "object": digest})
    made.as_("registry").open(made.key)


def test_sites_share_for_no_ciphertext_that_the_worker_has_chosen(
    judged: World, tmp_path: Path
) -> None:
    made = copied(judged, tmp_path)
    call_for_chosen(made)
    for site in SITES:
        with pytest.raises(es.VerificationError):
            made.as_(site).share()
    assert not es.Study(made.url).state().shares.get(es.Study(made.url).state().calls[-1].hash)


def test_worker_and_receiver_read_the_secret_of_a_site_that_believes_the_worker(
    judged: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = copied(judged, tmp_path)
    call_for_chosen(made)
    monkeypatch.setattr(joint.Joint, "_recompute", believe_worker)
    made.as_("north").share()
    moduli = joint_parameters().data_moduli
    body = container.from_bytes(shares_of(made, "bayes")["north"]).section("packs")
    first, second = residues_from_bytes(
        body, moduli, joint_parameters().ring_degree, polynomials=2
    ).astype(object)
    given = coefficients(first + second * receiver_secret(made)[: len(moduli)], moduli)
    read = [round(Fraction(4 * one, math.prod(moduli))) for one in given]
    assert read == secret_coefficients(made, "north")


def test_receiver_calls_for_nothing_but_answers(judged: World, tmp_path: Path) -> None:
    made = copied(judged, tmp_path)
    registry = made.as_("registry")
    state = registry.state()
    for items in (
        {"bayes": state.rows["north"].manifest},
        {"validity of north": state.checks["north"]},
        {},
    ):
        with pytest.raises(es.StudyError):
            registry.post("call", {"items": items})


def test_worker_and_receiver_read_rows_that_are_encrypted_for_a_key_of_hers(
    begun: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """She announces a key that the sites have not made: they encrypt nothing for it."""
    made = copied(begun, tmp_path)
    owner, registry = es.Owner(joint_parameters()), made.as_("registry")
    digest = registry.transcript.store_object(
        container.to_bytes(owner.public_keys().to_container())
    )
    registry.post("keys", {"object": digest, "key_id": owner.key_id, "parts": {}})
    with pytest.raises(es.KeyMismatchError):
        made.as_("north").add(FRAMES["north"])
    assert not es.Study(made.url).state().rows
    monkeypatch.setattr(joint.Joint, "check_keys", lambda self, study, state, keys: None)
    made.as_("north").add(FRAMES["north"])
    assert read_rows(owner, open_folder(made, "centre", "north")) == clear_rows("north")


# -- sites and the worker, without the receiver ---------------------------------------------------


def test_sites_do_not_read_validity_totals_from_the_shares_in_the_folder(
    called: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """West has chosen what its total is made of, and would read the key from shares for
    everybody.
    """
    for has_receiver in (True, False):
        made = copied(called, tmp_path / str(has_receiver))
        with monkeypatch.context() as patch:
            if not has_receiver:
                patch.setattr(joint.Joint, "_receiver", lambda self, study, state: None)
            for site in SITES:
                made.as_(site).share()
        packs, moduli = packs_of(made, "west"), joint_parameters().data_moduli
        count = len(packs) * (2 if has_receiver else 1)
        opened = packs[0][0][0].astype(object)
        for share in shares_of(made, "validity of west").values():
            body = container.from_bytes(share).section("packs")
            opened = opened + residues_from_bytes(body, moduli, 1024, polynomials=count)[0].astype(
                object
            )
        assert is_readable(coefficients(opened, moduli), math.prod(moduli)) is not has_receiver


@pytest.mark.parametrize("sites", [("west",), ("north", "south"), SITES], ids=len)
def test_sites_and_the_worker_read_nothing_unless_they_are_all(
    answered: World, sites: tuple[str, ...]
) -> None:
    """Limit: all sites together have the key."""
    ((residues, _),) = packs_of(answered, "bayes")
    moduli = joint_parameters().data_moduli[: residues.shape[1]]
    secret = own_secret(answered, *sites)[: len(moduli)]
    opened = coefficients(residues[0].astype(object) + residues[1].astype(object) * secret, moduli)
    assert is_readable(opened, math.prod(moduli)) is (sites == SITES)
