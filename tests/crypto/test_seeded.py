"""Ciphertexts with a seed: the same message and the same error, never two versions of one, and
never one seed twice.
"""

from __future__ import annotations

import inspect
import multiprocessing
import os
import pickle
from typing import Any

import numpy as np
import pytest
import seal

import encryptedstats as es
from encryptedstats.crypto import seeded
from encryptedstats.crypto.encryption import encode_slots
from encryptedstats.crypto.engine import engine_for
from encryptedstats.crypto.residues import Residues, ciphertext_of, residues_of, secret_residues
from encryptedstats.crypto.seeded import SEED_BYTES, SeededEncryption, expand_seeds
from encryptedstats.machine import ordered_map
from encryptedstats.storage import pieces
from error_codes import error

PRIMES = ((36, 36, 36), (34, 50, 45, 40), (60, 55, 50, 60))


def small_owner(scheme: str, bits: tuple[int, ...]) -> es.Owner:
    with pytest.warns(es.InsecureParametersWarning):
        return es.Owner(es.Parameters.from_bits(scheme, 1024, 4000, bits, allow_insecure=True))


def encrypted(owner: es.Owner, values: Any) -> tuple[bytes, Residues]:
    return owner._encryptor.seeded.encrypt(
        encode_slots(np.asarray(values, dtype=np.int64), owner._encryptor)
    )


def both_polynomials(owner: es.Owner, seed: bytes, first: Residues) -> Residues:
    out = np.empty((1, 2, *first.shape), dtype=np.uint64)
    out[0, 0] = first
    expand_seeds(seed, owner.parameters.data_moduli, out)
    return out[0]


def opened(owner: es.Owner, residues: Residues) -> list[int]:
    engine = engine_for(owner.parameters)
    return list(engine.encoder.decode(owner._decryptor.decrypt(ciphertext_of(engine, residues))))


class Watched:
    """SEAL's encryption, with a memory of what it made: what no code of ours may have."""

    def __init__(self, owner: es.Owner, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[Residues] = []
        encryption = owner._encryptor.seeded
        real = encryption._seal_encrypt

        def encrypt(plain: Any) -> Any:
            ciphertext = real(plain)
            self.made.append(residues_of(encryption._engine, ciphertext).copy())
            return ciphertext

        monkeypatch.setattr(encryption, "_seal_encrypt", encrypt)


def phases(residues: Residues, secret: Residues, moduli: tuple[int, ...]) -> list[list[int]]:
    """c0 + c1 s, which holds message and error; for transformed polynomials."""
    return [
        [
            (int(a) + int(b) * int(s)) % p
            for a, b, s in zip(residues[0, i], residues[1, i], secret[i], strict=True)
        ]
        for i, p in enumerate(moduli)
    ]


@pytest.mark.parametrize("bits", PRIMES)
@pytest.mark.parametrize("native", [True, False])
def test_the_same_message_and_the_same_error(scheme, bits, native, monkeypatch):
    """Hence the same bound of noise. Without the extension as with it."""
    owner = small_owner(scheme, bits)
    watched, values = Watched(owner, monkeypatch), np.arange(1024) % 1000
    if not native:
        monkeypatch.setattr(pieces, "_storage", None)
        monkeypatch.setattr(pieces, "rebase", None)
    seed, first = encrypted(owner, values)
    after, (before,) = both_polynomials(owner, seed, first), watched.made
    assert (len(seed), first.shape) == (SEED_BYTES, before.shape[1:])
    assert first.base is None  # nothing lies behind it
    assert opened(owner, after) == opened(owner, before) == values.tolist()
    assert (after == before).sum() <= 1  # all of it is new
    encryption, moduli = owner._encryptor.seeded, owner.parameters.data_moduli
    if scheme == "bfv":
        after, before = encryption._transform(after)[1], encryption._transform(before)[1]
    assert phases(after, encryption._secret._residues, moduli) == phases(
        before, encryption._secret._residues, moduli
    )


def test_noise_is_that_of_any_encryption_with_the_secret_key(toy):
    """SEAL's own measure of it, which is no bound: within the spread of its random numbers."""
    engine = engine_for(toy.parameters)
    budget = seal.Decryptor(engine.context, toy._generator.secret_key()).invariant_noise_budget
    values = np.arange(1024)
    own = [
        budget(ciphertext_of(engine, both_polynomials(toy, *encrypted(toy, values))))
        for _ in range(8)
    ]
    theirs = [
        budget(toy._encryptor.seal_encrypt(encode_slots(values, toy._encryptor))) for _ in range(8)
    ]
    assert abs(np.mean(own) - np.mean(theirs)) < 1


# -- two versions of one ciphertext
# -----------------------------------------------------------------------------------------


def key_from_two(one: Residues, other: Residues, moduli: tuple[int, ...]) -> list[list[int]]:
    """What somebody computes who holds two versions of one ciphertext: (c0' - c0) / (a - a')."""
    return [
        [
            (int(c) - int(b)) * pow(int(a) - int(d), -1, p) % p if a != d else 0
            for a, b, c, d in zip(one[1, i], one[0, i], other[0, i], other[1, i], strict=True)
        ]
        for i, p in enumerate(moduli)
    ]


def test_two_versions_would_give_the_key_and_nothing_that_leaves_is_one(scheme, monkeypatch):
    owner = small_owner(scheme, (40,) * 3)
    watched, moduli = Watched(owner, monkeypatch), owner.parameters.data_moduli
    plain = encode_slots(np.arange(1024), owner._encryptor)
    secret = owner._encryptor.seeded._secret._residues
    published = []
    for _ in range(3):  # one plaintext again and again: each time another ciphertext
        seed, first = owner._encryptor.seeded.encrypt(plain)
        published.append(both_polynomials(owner, seed, first))
    published.append(residues_of(engine_for(owner.parameters), owner._encryptor.encrypt(plain)[0]))
    if (
        scheme == "bfv"
    ):  # who attacks transforms what is published, as it is multiplied by the secret then
        transformed = owner._encryptor.seeded._transform
        published = [transformed(one)[1] for one in published]
        watched.made = [transformed(one)[1] for one in watched.made]
    # The attack is real: with SEAL's ciphertext beside ours, all of the key is there.
    assert key_from_two(watched.made[0], published[0], moduli) == secret.tolist()
    # No two that can be had are versions of one.
    for i, one in enumerate(published):
        for other in published[:i]:
            found = np.array(key_from_two(one, other, moduli), dtype=np.uint64)
            assert (found == secret).mean() < 0.01
        assert all((one[1] != original[1]).mean() > 0.99 for original in watched.made)
    assert len(watched.made) == 3


def test_nothing_is_given_in_but_a_plaintext_and_nothing_is_kept(toy):
    """A ciphertext that could be given in could be given in twice; what is kept could be seen."""
    encryption = toy._encryptor.seeded
    public = [name for name in vars(SeededEncryption) if not name.startswith("_")]
    assert public == ["encrypt"]
    assert list(inspect.signature(SeededEncryption.encrypt).parameters) == ["self", "plain"]
    encrypted(toy, [1, 2, 3])
    kept = {"_engine", "_seal_encrypt", "_secret"}
    assert set(vars(encryption)) == kept
    with pytest.raises(TypeError):
        encryption.encrypt(
            ciphertext_of(engine_for(toy.parameters), both_polynomials(toy, *encrypted(toy, [1])))
        )
    with pytest.raises(TypeError, check=error("not-pickled")):
        pickle.dumps(encryption)
    assert "seeded" not in repr(toy._encryptor)


def test_nothing_random_is_drawn_once_the_original_exists(toy, monkeypatch):
    """Where the system gives no random numbers, or expanding fails, SEAL has made no ciphertext
    that could be moved twice.
    """
    watched, order = Watched(toy, monkeypatch), []

    def note(place: Any, name: str) -> None:
        real = getattr(place, name)
        monkeypatch.setattr(
            place, name, lambda *arguments: (order.append(name), real(*arguments))[1]
        )

    note(seeded.os, "urandom")
    note(seeded, "expand_seeds")
    note(toy._encryptor.seeded, "_seal_encrypt")
    toy._encryptor.seeded.encrypt(encode_slots(np.arange(3), toy._encryptor))
    assert order == ["urandom", "expand_seeds", "_seal_encrypt"]
    assert len(watched.made) == 1

    def failing(*_: Any) -> bytes:
        raise OSError("no random numbers")

    monkeypatch.setattr(seeded.os, "urandom", failing)
    with pytest.raises(OSError, match="no random numbers"):
        encrypted(toy, [1])
    assert len(watched.made) == 1


# -- the secret key in SEAL's bytes
# ----------------------------------------------------------------------------------------------


def stating_its_length(data: bytes) -> bytes:
    return data[:8] + len(data).to_bytes(8, "little") + data[16:]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data, p: b"", "truncated-seal-object"),
        (lambda data, p: data[:-8], "seal-length-mismatch"),
        (lambda data, p: data[:5] + b"\x02" + data[6:], "compressed-seal-object"),
        (lambda data, p: b"\0" + data[1:], "not-seal-object"),
        (
            lambda data, p: stating_its_length(data[:-8]),
            "wrong-secret-key-length",
        ),
        (
            lambda data, p: stating_its_length(data + bytes(8)),
            "wrong-secret-key-length",
        ),
        (lambda data, p: data[:88] + p.to_bytes(8, "little") + data[96:], "unreduced-residues"),
        (lambda data, p: data[:-8] + b"\xff" * 8, "unreduced-residues"),
    ],
)
def test_a_secret_key_of_another_form_is_refused(change, message):
    owner = small_owner("bgv", (36, 36, 36))
    data = change(owner._generator.secret_key().to_string(), owner.parameters.data_moduli[0])
    with pytest.raises(es.FileFormatError, check=error(message)):
        secret_residues(owner.parameters, data)


@pytest.mark.parametrize("native", [True, False])
def test_a_secret_key_that_is_not_seals_own_is_found_when_it_is_taken(scheme, native, monkeypatch):
    """Of the right length and below the primes, and in another order: a 0 that is encrypted with it
    does not open.
    """
    owner = small_owner(scheme, (36, 36, 36))
    if not native:
        monkeypatch.setattr(pieces, "rebase", None)
    SeededEncryption(engine_for(owner.parameters), owner._generator.secret_key())
    monkeypatch.setattr(seeded, "secret_residues", lambda *given: secret_residues(*given)[:, ::-1])
    with pytest.raises(es.FileFormatError, check=error("unknown-key-form")):
        SeededEncryption(engine_for(owner.parameters), owner._generator.secret_key())


def test_only_the_owner_has_it(toy):
    assert toy.public_keys().encryptor.seeded is None


# -- seeds
# ------------------------------------------------------------------------------------------------


def test_every_ciphertext_has_32_bytes_of_its_own_from_the_system(toy, monkeypatch):
    encryption, drawn, real = toy._encryptor.seeded, [], os.urandom
    assert isinstance(
        encryption, SeededEncryption
    )  # there before anybody counts: it encrypts a 0 when it is made

    def urandom(count: int) -> bytes:
        drawn.append(real(count))
        return drawn[-1]

    monkeypatch.setattr(seeded.os, "urandom", urandom)
    seeds = [encrypted(toy, [5] * 10)[0] for _ in range(20)]
    assert drawn == seeds
    assert len(set(seeds)) == 20
    assert all(len(seed) == SEED_BYTES for seed in seeds)


@pytest.mark.skipif(
    "fork" not in multiprocessing.get_all_start_methods(), reason="processes are forked"
)
def test_forked_processes_draw_their_own_seeds(toy):
    encrypted(toy, [1])
    everybody = multiprocessing.get_context("fork").Barrier(4)

    def draw(n: int) -> tuple[int, bytes]:
        if n < 4:  # nobody does two of these
            everybody.wait(120)
        return os.getpid(), encrypted(toy, [7])[0]

    made = [*ordered_map(draw, range(24), 4), draw(24)]
    assert len({pid for pid, _ in made}) == 5
    assert len({seed for _, seed in made}) == len(made)
