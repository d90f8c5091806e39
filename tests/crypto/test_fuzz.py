"""Every loader under fire: damaged bytes, and forgeries whose hash fits.

The contract: an error of ours (a file that is no good, of another key, or does not open), or an
object that behaves like the one that was saved. Never a crash, another exception, a wait of seconds
or gigabytes of memory.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import seal
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import encryptedstats as es
from effort import PROFILE, examples, one_scheme
from encryptedstats.crypto.keyfiles import PUBLIC_KIND
from encryptedstats.crypto.primes import next_prime, primes_of_bits
from encryptedstats.crypto.signatures import Signer
from encryptedstats.storage import container, passphrase
from encryptedstats.storage.container import Container

pytestmark = pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")

MANY = settings(
    max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
REFUSALS = (es.FileFormatError, es.KeyMismatchError, es.PassphraseError)
PATIENCE = 5.0
KINDS = ("owner", "locked", "public", "rotations", "array", "integer")
NUMBERS = [[5, -7], [0, 11]]
OPTIONAL_SECTIONS = {"packing"}


@dataclass(frozen=True)
class Target:
    """A saved file, how to load it, and how to see that what was loaded is what was saved."""

    owner: es.Owner
    path: Path
    load: Callable[[Path], Any]
    check: Callable[[Any], None]

    @property
    def data(self) -> bytes:
        return self.path.read_bytes()

    @property
    def container(self) -> Container:
        return container.read(self.path)

    def attempt(self, data: bytes, check: Callable[[Any], None] | None = None) -> bool:
        """Load these bytes under the contract; whether they were accepted."""
        path = self.path.with_suffix(".fuzz")
        path.write_bytes(data)
        start = time.process_time()  # not the clock: other processes may be what is slow
        try:
            loaded = self.load(path)
        except REFUSALS as error:
            str(error).encode()  # a message that cannot be shown is a crash at the next print
            return False
        finally:
            assert time.process_time() - start < PATIENCE
        (check or self.check)(loaded)
        return True


def forged(file: Container) -> bytes:
    """A file with this content and a hash that fits."""
    return container.to_bytes(file)


def forged_header(file: Container, header: bytes) -> bytes:
    """The same with any bytes for a header."""
    prefix = struct.pack("<8sHI", container.MAGIC, container.VERSION, len(header))
    data = prefix + header + b"".join(file.sections.values())
    return data + hashlib.sha256(data).digest()


def header_of(file: Container) -> dict[str, Any]:
    data = container.to_bytes(file)
    length = struct.unpack_from("<I", data, 10)[0]
    header: dict[str, Any] = json.loads(data[14 : 14 + length])
    return header


def with_section(file: Container, name: str, data: bytes) -> Container:
    return replace(file, sections={**file.sections, name: data})


def with_fields(file: Container, **fields: Any) -> Container:
    return replace(file, fields={**file.fields, **fields})


def with_parameters(file: Container, **changes: Any) -> Container:
    """Other parameters, with fingerprint and key id made to fit, as a careful forger would."""
    parameters = {**file.fields["parameters"], **changes}
    canonical = json.dumps(parameters, sort_keys=True, separators=(",", ":"))
    fingerprint = hashlib.sha256(canonical.encode()).hexdigest()[:32]
    changed = replace(with_fields(file, parameters=parameters), fingerprint=fingerprint)
    return with_key_id(changed, like=file) if "public_key" in file.sections else changed


FORGER = Signer(bytes(32))  # anybody who makes up keys signs them, too


def with_key_id(file: Container, like: Container) -> Container:
    """The key id and the signatures that fit these sections: nothing is refused for the id or for
    the signer alone.
    """
    assert _key_id(like) == like.key_id, "the recipe of the key id is another one"
    if file.kind == PUBLIC_KIND:
        signed = {
            name: _signature(file, name)
            for name in ("packing", "rotation")
            if name in file.sections
        }
        file = with_section(
            with_fields(file, signatures=signed), "signing_key", FORGER.public_bytes
        )
    return replace(file, key_id=_key_id(file))


def _key_id(file: Container) -> str:
    parts = [
        hashlib.sha256(file.sections[name]).digest()
        for name in ("public_key", "relinearisation", "signing_key")
    ]
    return hashlib.sha256(file.fingerprint.encode() + b"".join(parts)).hexdigest()[:32]


def _signature(file: Container, name: str) -> str:
    steps = file.fields["rotations"] if name == "rotation" else []
    said = ["encryptedstats keys", name, steps, hashlib.sha256(file.sections[name]).hexdigest()]
    return FORGER.sign(json.dumps(said).encode())


@pytest.fixture(scope="module")
def targets(tiny: es.Owner, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Target]:
    folder = tmp_path_factory.mktemp("fuzz")
    keys = tiny.public_keys()
    words = "open sesame"
    array, single = tiny.encrypt(NUMBERS), tiny.encrypt(7) * tiny.encrypt(3)

    def owner_works(loaded: es.Owner) -> None:
        assert loaded.key_id == tiny.key_id
        assert repr(loaded) == repr(tiny)
        assert loaded.open(array).tolist() == NUMBERS
        assert tiny.open(loaded.encrypt(3)) == 3

    def public_works(loaded: es.PublicKeys) -> None:
        repr(loaded)
        assert loaded.parameters.depth >= 0
        if loaded.key_id == tiny.key_id:
            assert loaded.parameters == tiny.parameters
            assert tiny.open(loaded.encrypt(3)) == 3

    def array_works(loaded: es.EncryptedArray) -> None:
        assert tiny.open(loaded).tolist() == NUMBERS
        assert tiny.open(loaded + array).tolist() == (2 * np.array(NUMBERS)).tolist()
        repr(loaded)

    def integer_works(loaded: es.EncryptedInteger) -> None:
        assert tiny.open(loaded) == 21
        assert tiny.open(1 - loaded) == -20
        repr(loaded)

    made = {
        "owner": (lambda path: tiny.save(path), es.Owner.load, owner_works),
        "locked": (
            lambda path: tiny.save(path, words),
            lambda path: es.Owner.load(path, words),
            owner_works,
        ),
        "public": (lambda path: keys.save(path), es.PublicKeys.load, public_works),
        "rotations": (
            lambda path: tiny.public_keys([1, -2]).save(path),
            es.PublicKeys.load,
            public_works,
        ),
        "array": (
            lambda path: array.save(path),
            lambda path: es.EncryptedArray.load(path, keys),
            array_works,
        ),
        "integer": (
            lambda path: single.save(path),
            lambda path: es.EncryptedArray.load(path, keys),
            integer_works,
        ),
    }
    found = {}
    for name, (save, load, check) in made.items():
        path = folder / name
        save(path)
        found[name] = Target(tiny, path, load, check)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_saved_is_accepted(targets: dict[str, Target], kind: str) -> None:
    """The fuzzers below count on this: what they refuse is refused for what was done to it."""
    target = targets[kind]
    assert target.attempt(target.data)
    assert target.attempt(forged(target.container))
    assert target.attempt(
        forged_header(target.container, json.dumps(header_of(target.container), indent=1).encode())
    )


# -- accidents: the hash does not fit
# ---------------------------------------------------------------------------------------


@one_scheme
@pytest.mark.parametrize("kind", KINDS)
@MANY
@given(data=st.data())
def test_damaged_files_are_refused(
    targets: dict[str, Target], kind: str, data: st.DataObject
) -> None:
    target = targets[kind]
    original = target.data
    size = len(original)
    position = data.draw(
        st.integers(0, size - 1) | st.integers(0, 300) | st.integers(size - 40, size - 1)
    )
    other = data.draw(st.integers(position, min(size, position + 2000)))
    damage = data.draw(
        st.sampled_from(
            ["flip", "cut", "head", "insert", "drop", "swap", "zero", "append", "repeat"]
        )
    )
    damaged = {
        "flip": lambda: (
            original[:position]
            + bytes([original[position] ^ 1 << position % 8])
            + original[position + 1 :]
        ),
        "cut": lambda: original[:position],
        "head": lambda: original[position:],
        "insert": lambda: (
            original[:position]
            + data.draw(st.binary(min_size=1, max_size=50))
            + original[position:]
        ),
        "drop": lambda: original[:position] + original[other:],
        "swap": lambda: original[other:] + original[position:other] + original[:position],
        "zero": lambda: original[:position] + bytes(other - position) + original[other:],
        "append": lambda: original + data.draw(st.binary(min_size=1, max_size=50)),
        "repeat": lambda: original + original,
    }[damage]()
    assert target.attempt(damaged) == (damaged == original)


@one_scheme
@pytest.mark.parametrize("kind", KINDS)
@MANY
@given(noise=st.binary(max_size=300))
def test_noise_is_refused(targets: dict[str, Target], kind: str, noise: bytes) -> None:
    assert not targets[kind].attempt(noise)
    assert not targets[kind].attempt(container.MAGIC + noise)


@pytest.mark.parametrize(("kind", "other"), list(itertools.permutations(KINDS, 2)))
def test_files_of_another_kind_are_refused(
    targets: dict[str, Target], kind: str, other: str
) -> None:
    alike = {
        ("public", "rotations"),
        ("rotations", "public"),
        ("array", "integer"),
        ("integer", "array"),
    }
    accepted = targets[kind].attempt(targets[other].data, check=lambda loaded: None)
    assert accepted == ((kind, other) in alike)


# -- forgeries: the header
# ------------------------------------------------------------------------------------------------

# What may stand where something else is expected. Strings for what JSON cannot write.
STRANGE: tuple[Any, ...] = (
    None, True, 0, 1, -1, 2, 1024, 2**64, 10**400, -(10**400), 0.5, 1.0, 1e308, "", "bfv", "bgv", "\ud800", "\x1b[31m",
    [], {}, [[]], [1], [None], ["a", 1], [1] * 70, {"n": 1}, [2**61 - 1] * 64,
)  # fmt: skip


def paths_in(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a JSON document."""
    yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from paths_in(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from paths_in(inner, (*path, index))


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(value[path[0]], path[1:], new)
    return copy


def found_at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def without(value: Any, path: tuple[Any, ...]) -> Any:
    copy = dict(value) if isinstance(value, dict) else list(value)
    if len(path) == 1:
        del copy[path[0]]
    else:
        copy[path[0]] = without(value[path[0]], path[1:])
    return copy


@contextmanager
def no_waiting_for_scrypt(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Costs that are accepted are not paid: only whether they are asked for matters here."""
    real = passphrase.Scrypt

    def cheap(*, salt: bytes, length: int, n: int, r: int, p: int) -> Any:
        return real(salt=salt, length=length, n=min(n, passphrase.SCRYPT["n"]), r=min(r, 8), p=1)

    with monkeypatch.context() as patch:
        patch.setattr(passphrase, "Scrypt", cheap)
        yield


@one_scheme
@pytest.mark.parametrize("kind", ["owner", "locked", "rotations", "array"])
def test_strange_values_in_the_header_are_refused_or_harmless(
    targets: dict[str, Target], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every place of the header, with everything strange in it."""
    target = targets[kind]
    file = target.container
    header = header_of(file)
    accepted = []
    # Rotation keys take long to load, by the same reader as the others.
    tried = STRANGE if kind != "rotations" or PROFILE == "full" else STRANGE[::3]
    with no_waiting_for_scrypt(monkeypatch):
        for path in paths_in(header):
            for new in tried:
                text = json.dumps(replaced(header, path, new)).encode()
                if len(text) < container.MAX_HEADER_BYTES and target.attempt(
                    forged_header(file, text)
                ):
                    accepted.append((path, new))
            if path and target.attempt(
                forged_header(file, json.dumps(without(header, path)).encode())
            ):
                accepted.append((path, None))
    # What is accepted was seen to work (fewer rotations, say), and never says to be of another kind
    # or key.
    assert {path[0] for path, new in accepted if new != found_at(header, path)} <= {
        "fields",
        "sections",
    }


@one_scheme
@pytest.mark.parametrize("kind", KINDS)
@MANY
@given(data=st.data())
def test_strange_text_in_the_header_is_refused_or_harmless(
    targets: dict[str, Target], kind: str, data: st.DataObject
) -> None:
    """Not even JSON, or JSON that only looks like it."""
    target = targets[kind]
    file = target.container
    text = json.dumps(header_of(file))
    position = data.draw(st.integers(0, len(text)))
    strange = data.draw(
        st.sampled_from(
            [
                "NaN",
                "Infinity",
                "-Infinity",
                "1e999",
                "\x00",
                "[" * 5000,
                "{}",
                '"',
                ",",
                "\\ud800",
                "9" * 5000,
            ]
        )
        | st.text(max_size=3)
    )
    end = position + data.draw(st.integers(0, 3))
    mutated = text[:position] + strange + text[end:]
    target.attempt(forged_header(file, mutated.encode("utf-8", "surrogatepass")))


@pytest.mark.parametrize("kind", KINDS)
def test_sections_that_are_swapped_missing_or_strange_are_refused(
    targets: dict[str, Target], kind: str
) -> None:
    target = targets[kind]
    file = target.container
    names = list(file.sections)
    for left, right in itertools.combinations(names, 2):
        swapped = {**file.sections, left: file.sections[right], right: file.sections[left]}
        assert not target.attempt(forged(replace(file, sections=swapped))), (left, right)
    for name in names:
        data = file.sections[name]
        missing = {key: value for key, value in file.sections.items() if key != name}
        assert not (
            name in OPTIONAL_SECTIONS and target.attempt(forged(replace(file, sections=missing)))
        ), name
        left = {
            key: value for key, value in file.fields.get("signatures", {}).items() if key != name
        }
        unsigned = with_fields(file, signatures=left) if name in OPTIONAL_SECTIONS else file
        assert target.attempt(forged(replace(unsigned, sections=missing))) == (
            name in OPTIONAL_SECTIONS
        ), name
        for bad in (
            b"",
            data[:-1],
            data + b"\0",
            data[: len(data) // 2],
            data + data,
            bytes(len(data)),
            b"\xff" * 64,
        ):
            assert not target.attempt(forged(with_section(file, name, bad))), name
    reordered = {name: file.sections[name] for name in reversed(names)}
    assert target.attempt(forged(replace(file, sections=reordered)))


# -- forgeries: the parameters
# ------------------------------------------------------------------------------------------------


def _next(prime: int, step: int = 2048) -> int:
    return next_prime(prime, step)


PARAMETER_FORGERIES: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "other scheme": lambda p: {"scheme": "bfv" if p["scheme"] == "bgv" else "bgv"},
    "no scheme": lambda p: {"scheme": "ckks"},
    "larger ring": lambda p: {"ring_degree": 2048},
    "strange ring": lambda p: {"ring_degree": 1000},
    "negative ring": lambda p: {"ring_degree": -1024},
    "ring as float": lambda p: {"ring_degree": 1024.0},
    "huge ring": lambda p: {"ring_degree": 2**40},
    "other plain modulus": lambda p: {"plain_modulus": _next(p["plain_modulus"])},
    "composite plain modulus": lambda p: {"plain_modulus": 2049 * 2049},
    "huge plain modulus": lambda p: {"plain_modulus": 10**400 + 1},
    "zero plain modulus": lambda p: {"plain_modulus": 0},
    "fewer primes": lambda p: {"coefficient_moduli": p["coefficient_moduli"][1:]},
    "no primes": lambda p: {"coefficient_moduli": []},
    "primes reversed": lambda p: {"coefficient_moduli": p["coefficient_moduli"][::-1]},
    "a prime twice": lambda p: {"coefficient_moduli": [p["coefficient_moduli"][0]] * 3},
    "another special prime": lambda p: {"coefficient_moduli": [*p["coefficient_moduli"][:-1], primes_of_bits(40, 2048, 1)[0]]},
    "primes as text": lambda p: {"coefficient_moduli": [str(q) for q in p["coefficient_moduli"]]},
    "primes as one text": lambda p: {"coefficient_moduli": "123"},
    "primes as object": lambda p: {"coefficient_moduli": {"0": 1}},
    "a huge prime": lambda p: {"coefficient_moduli": [*p["coefficient_moduli"], 10**400 + 1]},
    "a thousand primes": lambda p: {"coefficient_moduli": primes_of_bits(50, 2048, 1000)},
    "no terms": lambda p: {"terms": 0},
    "negative terms": lambda p: {"terms": -64},
    "terms as float": lambda p: {"terms": 64.0},
    "secure": lambda p: {"allow_insecure": False},
    "insecurity as number": lambda p: {"allow_insecure": 1},
}  # fmt: skip


@one_scheme
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", PARAMETER_FORGERIES)
def test_other_parameters_are_refused_even_with_a_fitting_fingerprint(
    targets: dict[str, Target], kind: str, what: str
) -> None:
    target = targets[kind]
    file = target.container
    changes = PARAMETER_FORGERIES[what](file.fields["parameters"])
    assert not target.attempt(forged(with_parameters(file, **changes)))
    assert not target.attempt(
        forged(with_fields(file, parameters={**file.fields["parameters"], **changes}))
    )


@pytest.mark.parametrize("kind", ["public", "owner"])
@pytest.mark.parametrize("terms", [1, 2**40, 10**400], ids=["1", "2^40", "10^400"])
def test_other_terms_make_another_key_that_still_can_be_shown(
    targets: dict[str, Target], kind: str, terms: int
) -> None:
    """SEAL knows nothing of terms, so keys with other ones are whole; whatever they are, they must
    not break what uses them.
    """

    def shown(loaded: Any) -> None:
        assert loaded.key_id != targets[kind].owner.key_id
        assert repr(loaded)
        assert str(loaded.parameters)
        assert loaded.parameters.depth < 64

    target = targets[kind]
    target.attempt(forged(with_parameters(target.container, terms=terms)), check=shown)


@pytest.mark.parametrize("kind", ["public", "owner"])
def test_a_small_file_cannot_ask_for_gigabytes(
    targets: dict[str, Target], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """64 primes at N=32768 take SEAL 8 GB and a quarter of a minute. Keys for them are gigabytes: a
    file of kilobytes lies.
    """

    def context(*args: Any) -> Any:
        pytest.fail("SEAL was asked to prepare parameters whose keys cannot be in this file")

    target = targets[kind]
    primes = primes_of_bits(60, 65536, 64)
    changes = {"scheme": "bfv", "ring_degree": 32768, "plain_modulus": next_prime(1 << 17, 65536)}
    bomb = with_parameters(target.container, coefficient_moduli=primes, **changes)
    monkeypatch.setattr(seal, "SEALContext", context)
    assert not target.attempt(forged(bomb))


# -- forgeries: passphrase costs
# ----------------------------------------------------------------------------------------------

BOMBS: dict[str, dict[str, Any]] = {
    "memory": {"n": 1 << 40},
    "memory beyond integers": {"n": 1 << 200},
    "just above the limit": {"n": 1 << 20, "r": 8, "p": 2},
    "block size": {"n": 2, "r": 1 << 22},
    "parallel": {"n": 2, "r": 1, "p": 1 << 22},
    "no power of two": {"n": (1 << 14) + 1},
    "one": {"n": 1},
    "zero": {"n": 0},
    "negative": {"n": -(1 << 14)},
    "negative and negative": {"n": -(1 << 14), "r": -8},
    "zero blocks": {"r": 0},
    "float": {"n": 16384.0},
    "truth": {"p": True},
    "text": {"n": "16384"},
    "nothing": {"n": None},
    "other function": {"kdf": "argon2id"},
    "other cipher": {"aead": "none"},
    "extra": {"x": 1},
}


@pytest.mark.parametrize("what", BOMBS)
def test_passphrase_costs_that_are_too_high_or_strange_are_refused_before_they_are_paid(
    targets: dict[str, Target], what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def paying(**cost: Any) -> Any:
        pytest.fail(f"was about to pay {cost}")

    target = targets["locked"]
    file = target.container
    monkeypatch.setattr(passphrase, "Scrypt", paying)
    assert not target.attempt(
        forged(with_fields(file, lock={**file.fields["lock"], **BOMBS[what]}))
    )


@pytest.mark.parametrize(
    "cost", [{"n": 1 << 16, "r": 1}, {"n": 1 << 20, "r": 1}, {"n": 2, "r": 1, "p": 1}]
)
def test_passphrase_costs_that_scrypt_itself_cannot_take_are_refused(
    targets: dict[str, Target], cost: dict[str, int]
) -> None:
    """With r=1, n must stay below 2**16: OpenSSL answers with a MemoryError."""
    target = targets["locked"]
    file = target.container
    assert not target.attempt(forged(with_fields(file, lock={**file.fields["lock"], **cost})))


@pytest.mark.parametrize("kind", ["owner", "locked"])
def test_a_lock_cannot_be_taken_off_or_put_on_by_the_header(
    targets: dict[str, Target], kind: str
) -> None:
    other = targets["owner" if kind == "locked" else "locked"].container
    target = targets[kind]
    file = with_fields(target.container, lock=other.fields["lock"])
    assert not target.attempt(forged(file))


@settings(MANY, max_examples=examples(6))
@given(data=st.data())
def test_an_altered_locked_secret_does_not_open(
    targets: dict[str, Target], data: st.DataObject
) -> None:
    target = targets["locked"]
    file = target.container
    sealed = bytearray(file.sections["secret_key"])
    position = data.draw(st.integers(0, len(sealed) - 1) | st.integers(0, 60))
    sealed[position] ^= data.draw(st.integers(1, 255))
    assert not target.attempt(forged(with_section(file, "secret_key", bytes(sealed))))


# -- forgeries: what SEAL reads
# -----------------------------------------------------------------------------------------------

_SEAL_START = bytes(
    [0x5E, 0xA1, 16]
)  # magic and header size: what every SEAL object begins with, the nested ones too
_CIPHERTEXT_HEADER = 113


def metadata_of(data: bytes, after: int = 113) -> list[int]:
    """Positions of bytes that are no residues: around the start of every SEAL object in these
    bytes.
    """
    found: set[int] = set()
    start = data.find(_SEAL_START)
    while start >= 0:
        found.update(range(max(0, start - 40), min(len(data), start + 48)))
        start = data.find(_SEAL_START, start + 1)
    found.update(range(min(len(data), after)))
    return sorted(found)


SEAL_SECTIONS = [
    ("owner", "secret_key"), ("owner", "public_key"), ("owner", "relinearisation"), ("public", "public_key"),
    ("public", "relinearisation"), ("public", "packing"), ("rotations", "rotation"), ("array", "ciphertexts"),
    ("integer", "ciphertexts"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "section"), SEAL_SECTIONS)
@settings(MANY, max_examples=examples(30))
@given(data=st.data())
def test_altered_seal_objects_are_refused_or_load_as_something_that_does_not_crash(
    targets: dict[str, Target], kind: str, section: str, data: st.DataObject
) -> None:
    """A worker who lies in residues cannot be caught here; anybody who opens the result gets
    numbers or a ValueError.
    """
    target = targets[kind]
    file = target.container
    altered = bytearray(file.sections[section])
    places = metadata_of(bytes(altered))
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.sampled_from(places) | st.integers(0, len(altered) - 1))
        altered[position] = data.draw(
            st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]) | st.integers(0, 255)
        )
    forgery = with_section(file, section, bytes(altered))
    if "public_key" in file.sections:
        forgery = with_key_id(forgery, like=file)

    def survives(loaded: Any) -> None:
        repr(loaded)
        numbers = (es.EncryptedArray, es.EncryptedInteger)
        with suppress(ValueError):
            if isinstance(loaded, numbers):
                target.owner.open(loaded)
                target.owner.open(loaded + loaded)
            else:
                product = loaded.encrypt(3) * loaded.encrypt(2)
                product.relinearise()
                opener = loaded if isinstance(loaded, es.Owner) else target.owner
                opener.open(product)

    target.attempt(forged(forgery), check=survives)


@pytest.mark.parametrize("kind", ["array", "integer"])
def test_a_ciphertext_in_another_form_is_refused(targets: dict[str, Target], kind: str) -> None:
    """What SEAL writes before the residues (form, scale, BGV's correction factor) is the same for
    all of ours.
    """
    target = targets[kind]
    file = target.container
    for position in range(_CIPHERTEXT_HEADER):
        for flip in (0x01, 0x02, 0x80):
            altered = bytearray(file.sections["ciphertexts"])
            altered[position] ^= flip
            target.attempt(forged(with_section(file, "ciphertexts", bytes(altered))))


def test_a_transparent_ciphertext_is_refused(targets: dict[str, Target]) -> None:
    target = targets["integer"]
    file = target.container
    data = file.sections["ciphertexts"]
    second = _CIPHERTEXT_HEADER + (len(data) - _CIPHERTEXT_HEADER) // 2
    forgery = with_section(file, "ciphertexts", data[:second] + bytes(len(data) - second))
    assert not target.attempt(forged(forgery))


@pytest.mark.parametrize("where", [0.0, 0.3, 0.6, 0.99])
def test_a_secret_key_that_was_altered_anywhere_is_refused(
    targets: dict[str, Target], where: float
) -> None:
    """Also in the residues of the key-switching prime, which decryption never looks at, but making
    keys does.
    """
    target = targets["owner"]
    file = target.container
    altered = bytearray(file.sections["secret_key"])
    start = len(altered) - target.owner.parameters.ring_degree * 8 * len(
        target.owner.parameters.coefficient_moduli
    )
    altered[start + int(where * (len(altered) - start)) // 8 * 8] ^= 1
    assert not target.attempt(forged(with_section(file, "secret_key", bytes(altered))))


@pytest.mark.parametrize("kind", ["owner", "public"])
def test_relinearisation_keys_of_another_key_are_refused(
    targets: dict[str, Target], kind: str, tiny_stranger: es.Owner, tmp_path: Path
) -> None:
    """They would turn every second product into noise."""
    target = targets[kind]
    tiny_stranger.public_keys().save(tmp_path / "other")
    foreign = container.read(tmp_path / "other").sections["relinearisation"]
    assert not target.attempt(forged(with_section(target.container, "relinearisation", foreign)))


ROTATIONS: dict[str, Any] = {
    "a step too many": [-2, 1, 3],
    "other steps": [2],
    "half a row": [512],
    "no step": [],
    "beyond the ring": [1024],
    "huge": [2**70],
    "a float": [1.0],
    "a truth value": [True],
    "text": ["1"],
    "nested": [[1]],
    "no list": {"1": 1},
}


@pytest.mark.parametrize("what", ROTATIONS)
def test_rotations_that_are_not_in_the_file_are_refused(
    targets: dict[str, Target], what: str
) -> None:
    target = targets["rotations"]
    assert not target.attempt(forged(with_fields(target.container, rotations=ROTATIONS[what])))


# -- forgeries: what is known of the values
# -----------------------------------------------------------------------------------


def facts_of(target: Target) -> list[list[Any]]:
    facts: list[list[Any]] = json.loads(target.container.section("values"))
    return facts


def with_facts(target: Target, facts: Any) -> bytes:
    text = facts if isinstance(facts, bytes) else json.dumps(facts).encode()
    return forged(with_section(target.container, "values", text))


LIES: dict[str, tuple[int, Any]] = {
    "level below": (0, -1),
    "level beyond": (0, 2),
    "another level": (0, 1),
    "level huge": (0, 2**70),
    "level a float": (0, 0.0),
    "level a truth value": (0, False),
    "noise NaN": (1, float("nan")),
    "noise infinite": (1, float("inf")),
    "noise zero": (1, 0.0),
    "noise negative": (1, -1.0),
    "noise an int": (1, 1),
    "noise that drowns": (1, 1e300),
    "peak NaN": (2, float("nan")),
    "peak infinite": (2, float("inf")),
    "peak negative": (2, -1e-9),
    "peak text": (2, "0"),
    "bound negative": (3, -1),
    "bound beyond the parameters": (3, 2**40),
    "bound huge": (3, 10**400),
    "bound a float": (3, 16.0),
    "bound none": (3, None),
    "depth negative": (4, -1),
    "depth a float": (4, 0.5),
    "depth that cannot be": (4, 10**400),
}


@pytest.mark.parametrize("what", LIES)
def test_facts_that_cannot_be_are_refused(targets: dict[str, Target], what: str) -> None:
    index, value = LIES[what]
    target = targets["array"]
    facts = facts_of(target)
    facts[1][index] = value
    assert not target.attempt(with_facts(target, facts))


def test_facts_of_another_form_are_refused(targets: dict[str, Target]) -> None:
    target = targets["array"]
    facts = facts_of(target)
    for bad in (
        facts[:-1], [*facts, facts[0]], [], {}, None, 7, "x", [None] * 4, [[]] * 4, [facts], {"0": facts[0]},
        [fact[:-1] for fact in facts], [[*fact, 0] for fact in facts], b"", b"[", b"\xff", b"[" * 100_000, b"[" * 900 + b"]" * 900,
        b"NaN", json.dumps(facts).encode() + b"x", b"9" * 100_000,
    ):  # fmt: skip
        assert not target.attempt(with_facts(target, bad)), bad


SHAPES: dict[str, tuple[Any, bool]] = {
    "another with as many": ([4], False),
    "with ones": ([1, 2, 1, 2], False),
    "more": ([2, 3], True),
    "fewer": ([2], True),
    "none": ([], True),
    "huge": ([2**40, 2**40], True),
    "huge and nothing": ([2**62, 0], True),
    "negative twice": ([-2, -2], True),
    "floats": ([2.0, 2.0], True),
    "truth values": ([True, 4], True),
    "text": (["2", "2"], True),
    "nested": ([[2, 2]], True),
    "no list": (4, True),
    "too many dimensions": ([1] * 60 + [2, 2], True),
    "as many as NumPy takes": ([1] * 30 + [2, 2], False),
}


@pytest.mark.parametrize("what", SHAPES)
def test_shapes_that_do_not_fit_are_refused(targets: dict[str, Target], what: str) -> None:
    shape, refused = SHAPES[what]
    target = targets["array"]

    def same_numbers(loaded: Any) -> None:
        assert loaded.shape == tuple(shape)
        assert target.owner.open(loaded).ravel().tolist() == np.ravel(NUMBERS).tolist()

    accepted = target.attempt(
        forged(with_fields(target.container, shape=shape)), check=same_numbers
    )
    assert accepted != refused


@MANY
@given(data=st.data())
@example(data=None)
def test_strange_facts_are_refused_or_harmless(
    targets: dict[str, Target], data: st.DataObject | None
) -> None:
    target = targets["array"]
    facts = facts_of(target)
    if data is None:
        assert target.attempt(with_facts(target, facts))
        return
    path = data.draw(st.sampled_from([path for path in paths_in(facts) if path]))
    changed = replaced(facts, path, data.draw(st.sampled_from(STRANGE)))

    def survives(loaded: Any) -> None:
        repr(loaded)
        with suppress(ValueError):
            target.owner.open(loaded)

    target.attempt(with_facts(target, changed), check=survives)


# -- messages
# ------------------------------------------------------------------------------------------------


def test_whose_the_file_is_cannot_write_on_the_terminal(targets: dict[str, Target]) -> None:
    """The key id of a forged file ends up in a message: it must not carry escape
    sequences there.
    """
    target = targets["array"]
    path = target.path.with_suffix(".fuzz")
    container.write(replace(target.container, key_id="\x1b[2J\x1b[31mgotcha\n"), path)
    with pytest.raises(REFUSALS) as error:
        target.load(path)
    assert str(error.value).isprintable()
