"""Keys in the right hands: what is stored, who can read it, what it refuses, and that no secret
ever leaves.
"""

from __future__ import annotations

import gc
import os
import stat
import struct
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import seal

import encryptedstats as es
from effort import one_scheme
from encryptedstats.crypto.encryption import Decryptor, Encryptor
from encryptedstats.storage import container, passphrase
from error_codes import error

REAL_LOCK = passphrase.SCRYPT  # read before the tests make it cheap
INSECURE = pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")


def secret_bytes(owner: es.Owner) -> bytes:
    """The secret key's residues, without SEAL's header."""
    return owner._generator.secret_key().to_string()[128:]


def holds_secret(data: bytes, owner: es.Owner) -> bool:
    """Whether any stretch of the secret key, in SEAL's form, is somewhere in these bytes."""
    secret = secret_bytes(owner)
    return any(secret[i : i + 24] in data for i in range(0, len(secret) - 24, len(secret) // 97))


# -- round trips
# ------------------------------------------------------------------------------------------------


def test_an_owner_comes_back_from_a_file(owner: es.Owner, tmp_path: Path) -> None:
    path = tmp_path / "secret.key"
    before = owner.encrypt([1, -2])
    owner.save(path)
    again = es.Owner.load(path)
    assert (again.key_id, again.parameters, repr(again)) == (
        owner.key_id,
        owner.parameters,
        repr(owner),
    )
    assert again.open(before).tolist() == [1, -2]
    after = again.encrypt(6)
    assert owner.open((after * before)[0] * again.public_keys().encrypt(7)) == 42
    rotating = again.public_keys([1])
    assert rotated(owner, rotating, 1) == [2, 3, 4]


@one_scheme
def test_an_owner_comes_back_from_a_locked_file(
    owner: es.Owner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passphrase, "SCRYPT", REAL_LOCK)
    path = tmp_path / "secret.key"
    owner.save(path, "correct horse: battéry staple")
    again = es.Owner.load(path, "correct horse: battéry staple")
    assert again.key_id == owner.key_id
    assert again.open(owner.encrypt(5)) == 5
    lock = container.read(path).fields["lock"]
    assert (lock["kdf"], lock["aead"]) == ("scrypt", "AES-256-GCM")
    assert 128 * lock["n"] * lock["r"] >= 128 << 20, "guessing must cost 128 MiB a guess"


def test_public_keys_come_back_from_a_file(owner: es.Owner, tmp_path: Path) -> None:
    path = tmp_path / "public.keys"
    owner.public_keys().save(path)
    worker = es.PublicKeys.load(path)
    assert (worker.key_id, worker.parameters, worker.rotations) == (
        owner.key_id,
        owner.parameters,
        (),
    )
    x = worker.encrypt([3, 4])
    assert owner.open(x @ x * worker.encrypt(2) - owner.encrypt(1)) == 49


def rotated(owner: es.Owner, keys: es.PublicKeys, step: int) -> list[int]:
    """The first slots of 1, 2, 3, ... after a rotation with these keys."""
    encoder = keys.engine.encoder
    numbers = np.arange(1, keys.parameters.slots + 1, dtype=np.int64) % 1000
    ciphertext, _ = keys.encryptor.encrypt(encoder.encode(numbers))
    return [
        int(n)
        for n in encoder.decode(owner._decryptor.decrypt(keys.evaluator.rotate(ciphertext, step)))[
            :3
        ]
    ]


def test_public_keys_with_rotations_come_back_from_a_file(owner: es.Owner, tmp_path: Path) -> None:
    path, bare = tmp_path / "public.keys", tmp_path / "bare.keys"
    owner.public_keys(rotations=[4, 0, -1, 4]).save(path)
    owner.public_keys().save(bare)
    worker = es.PublicKeys.load(path)
    assert worker.rotations == (-1, 0, 4)
    assert worker.key_id == owner.key_id
    half = owner.parameters.slots // 2
    assert rotated(owner, worker, 4) == [5, 6, 7]
    assert rotated(owner, worker, -1) == [half % 1000, 1, 2]
    assert rotated(owner, worker, 0) == [(half + 1) % 1000, (half + 2) % 1000, (half + 3) % 1000]
    assert path.stat().st_size > bare.stat().st_size + 3 * owner.parameters.ciphertext_bytes()
    assert owner.open(worker.encrypt(3) + owner.encrypt(4)) == 7
    with pytest.raises(es.KeyMismatchError, check=error("planned-keys", "2")):
        rotated(owner, worker, 2)


@pytest.mark.parametrize(
    ("steps", "error", "message"),
    [
        ([4096], es.ParameterError, "rotations must be between -4095 and 4095"),
        ([1, -4096], es.ParameterError, "rotations must be between -4095 and 4095"),
        ([1.5], TypeError, "rotation|integer"),
        (["12"], TypeError, "rotation|integer"),
    ],
)
def test_rotations_that_cannot_be(owner: es.Owner, steps: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        owner.public_keys(rotations=steps)


@pytest.mark.parametrize(
    "value", [[[1, 2], [3, -4]], [7], np.arange(6).reshape(1, 2, 3)], ids=["2-d", "1-d", "3-d"]
)
def test_arrays_come_back_from_a_file(owner: es.Owner, tmp_path: Path, value: Any) -> None:
    path = tmp_path / "array.enc"
    array = owner.encrypt(value, bound=99)
    array.save(path)
    again = es.EncryptedArray.load(path, owner.public_keys())
    assert type(again) is es.EncryptedArray
    np.testing.assert_array_equal(owner.open(again), value)
    assert (again.bound, again.depth, again.shape) == (99, 0, np.shape(value))
    np.testing.assert_array_equal(
        owner.open(again * array - again), np.square(value) - np.array(value)
    )


def test_single_integers_come_back_from_a_file(owner: es.Owner, tmp_path: Path) -> None:
    owner.encrypt(-5, bound=6).save(tmp_path / "one.enc")
    again = es.EncryptedArray.load(tmp_path / "one.enc", owner.public_keys())
    assert type(again) is es.EncryptedInteger
    assert (owner.open(again), again.bound) == (-5, 6)


@INSECURE
def test_results_come_back_with_all_that_is_known_of_them(toy: es.Owner, tmp_path: Path) -> None:
    """Products are three polynomials wide and at lower levels; what is promised of them must
    survive the file.
    """
    x = toy.encrypt([3, 5], bound=5)
    result = np.stack([x, x * x, x * x * x, x - x])
    result.save(tmp_path / "results.enc")
    again = es.EncryptedArray.load(tmp_path / "results.enc", toy.public_keys())
    assert toy.open(again).tolist() == [[3, 5], [9, 25], [27, 125], [0, 0]]
    assert [[v.bound, v.depth] for v in again[:, 0]] == [[5, 0], [25, 1], [125, 2], [0, 0]]
    assert [v._noise for v in again[:, 0]] == [v._noise for v in result[:, 0]]
    assert toy.open(again.sum(axis=0) * again[0]).tolist() == [
        (3 + 9 + 27) * 3,
        (5 + 25 + 125) * 5,
    ]
    with pytest.raises(OverflowError):
        again[2] ** 3
    assert toy.open(result).tolist() == [[3, 5], [9, 25], [27, 125], [0, 0]], (
        "saving must not change an array"
    )


def test_an_empty_array_has_nothing_to_save(owner: es.Owner, tmp_path: Path) -> None:
    with pytest.raises(ValueError, check=error("empty-array")):
        owner.encrypt([1, 2])[:0].save(tmp_path / "nothing.enc")
    assert list(tmp_path.iterdir()) == []


# -- the wrong file, the wrong key, the wrong words
# ---------------------------------------------------------------------------


@pytest.fixture
def files(owner: es.Owner, tmp_path: Path) -> dict[str, Path]:
    paths = {name: tmp_path / name for name in ("owner", "public", "array")}
    owner.save(paths["owner"])
    owner.public_keys().save(paths["public"])
    owner.encrypt([1, 2]).save(paths["array"])
    return paths


@pytest.mark.parametrize(
    ("wanted", "kind"),
    [("owner", "secret key"), ("public", "public keys"), ("array", "encrypted array")],
)
def test_files_of_another_kind_are_refused(
    owner: es.Owner, files: dict[str, Path], wanted: str, kind: str
) -> None:
    load: dict[str, Callable[[Path], Any]] = {
        "owner": es.Owner.load,
        "public": es.PublicKeys.load,
        "array": lambda path: es.EncryptedArray.load(path, owner.public_keys()),
    }
    for name, path in files.items():
        if name != wanted:
            with pytest.raises(es.FileFormatError, check=error("wrong-kind", path, kind)):
                load[wanted](path)


def test_files_that_are_not_ours_are_refused(tmp_path: Path) -> None:
    for data in (b"", b"hello", b"\x80\x04\x95" + bytes(100), bytes(100_000)):
        (tmp_path / "foreign").write_bytes(data)
        with pytest.raises(es.FileFormatError, check=error("foreign-file")):
            es.Owner.load(tmp_path / "foreign")
    with pytest.raises(FileNotFoundError):
        es.Owner.load(tmp_path / "nowhere")


def test_a_file_of_the_future_is_refused(files: dict[str, Path]) -> None:
    data = bytearray(files["public"].read_bytes())
    struct.pack_into("<H", data, 8, container.VERSION + 1)
    files["public"].write_bytes(data)
    with pytest.raises(
        es.FileFormatError, check=error("unsupported-version", container.VERSION + 1)
    ):
        es.PublicKeys.load(files["public"])


def test_data_of_another_key_are_refused(
    owner: es.Owner, stranger: es.Owner, files: dict[str, Path]
) -> None:
    with pytest.raises(
        es.KeyMismatchError, check=error("keys-of-the-file", owner.key_id, stranger.key_id)
    ):
        es.EncryptedArray.load(files["array"], stranger.public_keys())


def test_data_of_other_parameters_are_refused(
    toy: es.Owner, owner: es.Owner, files: dict[str, Path]
) -> None:
    with pytest.raises(es.KeyMismatchError, check=error("keys-of-the-file", owner.key_id)):
        es.EncryptedArray.load(files["array"], toy.public_keys())


def test_loading_an_array_takes_public_keys_and_no_secret(
    owner: es.Owner, files: dict[str, Path]
) -> None:
    with pytest.raises(TypeError, check=error("not-public-keys")):
        es.EncryptedArray.load(files["array"], owner)


@INSECURE
def test_a_locked_file_opens_for_its_passphrase_only(tiny: es.Owner, tmp_path: Path) -> None:
    path = tmp_path / "secret.key"
    tiny.save(path, "open sesame")
    assert es.Owner.load(path, "open sesame").key_id == tiny.key_id
    for wrong in ("open Sesame", "open sesame ", "x"):
        with pytest.raises(es.PassphraseError, check=error("wrong-passphrase")):
            es.Owner.load(path, wrong)
    with pytest.raises(es.PassphraseError, check=error("no-passphrase")):
        es.Owner.load(path)
    for no_text in ("", b"open sesame", 7):
        with pytest.raises(es.PassphraseError, check=error("empty-passphrase")):
            es.Owner.load(path, no_text)


@INSECURE
def test_a_passphrase_for_a_file_that_is_not_locked_is_refused(
    tiny_stranger: es.Owner, tmp_path: Path
) -> None:
    """Somebody who puts a key of their own in the place of a locked one must not have it taken."""
    path = tmp_path / "secret.key"
    tiny_stranger.save(path)
    with pytest.raises(es.PassphraseError, check=error("not-locked", tiny_stranger.key_id)):
        es.Owner.load(path, "open sesame")
    assert es.Owner.load(path).key_id == tiny_stranger.key_id


@INSECURE
def test_a_secret_key_that_others_may_read_is_warned_of(tiny: es.Owner, tmp_path: Path) -> None:
    path = tmp_path / "secret.key"
    tiny.save(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error", es.InsecureKeyFileWarning)
        es.Owner.load(path)
    for mode in (0o640, 0o604):
        path.chmod(mode)
        with pytest.warns(
            es.InsecureKeyFileWarning, match=rf"{path} \(mode {mode:04o}\): chmod 600 {path}"
        ):
            es.Owner.load(path)


# -- whose keys they are
# ------------------------------------------------------------------------------------------------


def test_a_key_id_has_128_bits_and_is_the_same_whatever_goes_with_it(
    tiny: es.Owner, tmp_path: Path
) -> None:
    assert len(bytes.fromhex(tiny.key_id)) == 16
    assert {
        tiny.public_keys(steps, packing=packs).key_id
        for steps in ([], [1])
        for packs in (True, False)
    } == {tiny.key_id}
    groups = tiny.fingerprint.split(" ")
    assert ("".join(groups), [len(group) for group in groups]) == (tiny.key_id, [4] * 8)
    assert tiny.public_keys().fingerprint == tiny.fingerprint


@pytest.mark.parametrize(
    "section", ["public_key", "relinearisation", "signing_key", "packing", "rotation"]
)
@INSECURE
def test_no_section_of_public_keys_can_be_exchanged(
    tiny: es.Owner, tiny_stranger: es.Owner, section: str
) -> None:
    """Keys of another owner for the same parameters, under the id of this one: with the signatures
    of either.
    """
    ours, theirs = (who.public_keys([1]).to_container() for who in (tiny, tiny_stranger))
    moved = replace(ours, sections={**ours.sections, section: theirs.sections[section]})
    for signatures in (ours.fields["signatures"], theirs.fields["signatures"]):
        with pytest.raises(
            es.FileFormatError,
            match=r"the key id of the file does not fit|are not signed by the owner of key",
        ):
            es.PublicKeys.from_container(
                replace(moved, fields={**ours.fields, "signatures": signatures})
            )
    assert es.PublicKeys.from_container(ours).key_id == tiny.key_id


@INSECURE
def test_rotation_keys_are_signed_for_their_steps(tiny: es.Owner) -> None:
    one, two = (tiny.public_keys([step]).to_container() for step in (1, 2))
    for fields in (
        {"rotations": [2]},
        {"signatures": two.fields["signatures"]},
        {"signatures": {}},
    ):
        with pytest.raises(
            es.FileFormatError, match=r"signed by the owner|do not fit its sections"
        ):
            es.PublicKeys.from_container(replace(one, fields={**one.fields, **fields}))
    # Further keys of the same owner are as good as the first.
    mixed = replace(
        one, fields={**two.fields}, sections={**one.sections, "rotation": two.sections["rotation"]}
    )
    assert es.PublicKeys.from_container(mixed).rotations == (2,)


@INSECURE
def test_keys_are_loaded_only_under_the_fingerprint_that_was_read_out(
    tiny: es.Owner, tiny_stranger: es.Owner, tmp_path: Path
) -> None:
    path = tmp_path / "public.keys"
    tiny.public_keys().save(path)
    for said in (tiny.fingerprint, tiny.key_id, tiny.fingerprint.upper().replace(" ", "-")):
        assert es.PublicKeys.load(path, fingerprint=said).key_id == tiny.key_id
    expected = (
        f"{path} holds the keys {tiny.fingerprint}, and those of {tiny_stranger.fingerprint} are "
        "expected: do not use them"
    )
    with pytest.raises(es.KeyMismatchError, match=expected):
        es.PublicKeys.load(path, fingerprint=tiny_stranger.fingerprint)
    for none in (tiny.key_id[:16], "", tiny.key_id[:-1] + "g"):
        with pytest.raises(ValueError, check=error("not-a-fingerprint", "32")):
            es.PublicKeys.load(path, fingerprint=none)


def test_a_passphrase_that_is_none_writes_no_file(tiny: es.Owner, tmp_path: Path) -> None:
    for no_text in ("", b"bytes", 7):
        with pytest.raises(es.PassphraseError, check=error("empty-passphrase")):
            tiny.save(tmp_path / "secret.key", no_text)
    assert list(tmp_path.iterdir()) == []


@INSECURE
def test_a_locked_secret_of_another_key_does_not_open(
    tiny: es.Owner, tiny_stranger: es.Owner, tmp_path: Path
) -> None:
    """The lock is bound to the key id: a sealed section moved into another file is refused as
    altered.
    """
    tiny.save(tmp_path / "ours", "same words")
    tiny_stranger.save(tmp_path / "theirs", "same words")
    ours, theirs = container.read(tmp_path / "ours"), container.read(tmp_path / "theirs")
    moved = replace(ours, sections={**ours.sections, "secret_key": theirs.sections["secret_key"]})
    container.write(moved, tmp_path / "moved")
    with pytest.raises(es.PassphraseError, check=error("wrong-passphrase")):
        es.Owner.load(tmp_path / "moved", "same words")


@INSECURE
def test_a_secret_key_beside_the_public_key_of_another_pair_is_refused(
    tiny: es.Owner, tiny_stranger: es.Owner, tmp_path: Path
) -> None:
    tiny.save(tmp_path / "ours")
    tiny_stranger.save(tmp_path / "theirs")
    ours, theirs = container.read(tmp_path / "ours"), container.read(tmp_path / "theirs")
    mixed = replace(ours, sections={**ours.sections, "secret_key": theirs.sections["secret_key"]})
    container.write(mixed, tmp_path / "mixed")
    with pytest.raises(es.FileFormatError, check=error("secret-key-mismatch")):
        es.Owner.load(tmp_path / "mixed")


# -- the file system
# ------------------------------------------------------------------------------------------------


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("no_umask")
@pytest.mark.parametrize("words", [None, "open sesame"])
def test_a_secret_key_is_for_its_user_alone_from_the_first_moment(
    tiny: es.Owner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str | None
) -> None:
    path, seen, fsync = tmp_path / "secret.key", [], os.fsync

    def watching(descriptor: int) -> None:
        seen.append([mode_of(file) for file in tmp_path.iterdir()])
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", watching)
    tiny.save(path, words)
    assert mode_of(path) == 0o600
    assert seen
    assert seen[0] == [0o600]


@pytest.mark.usefixtures("no_umask")
def test_replacing_a_file_that_all_can_read_makes_it_private(
    tiny: es.Owner, tmp_path: Path
) -> None:
    path = tmp_path / "secret.key"
    path.write_bytes(b"old")
    path.chmod(0o666)
    tiny.save(path, overwrite=True)
    assert mode_of(path) == 0o600


@pytest.mark.usefixtures("no_umask")
def test_public_files_may_be_read_by_all_and_written_by_their_user(
    tiny: es.Owner, tmp_path: Path
) -> None:
    tiny.public_keys().save(tmp_path / "public.keys")
    tiny.encrypt(1).save(tmp_path / "one.enc")
    assert {mode_of(path) for path in tmp_path.iterdir()} == {0o644}


@INSECURE
def test_a_secret_key_is_not_overwritten_by_accident(
    tiny: es.Owner, tiny_stranger: es.Owner, tmp_path: Path
) -> None:
    path = tmp_path / "secret.key"
    tiny.save(path)
    with pytest.raises(FileExistsError, match="exists already; it was not touched"):
        tiny_stranger.save(path)
    assert es.Owner.load(path).key_id == tiny.key_id
    assert list(tmp_path.iterdir()) == [path]
    tiny_stranger.save(path, overwrite=True)
    assert es.Owner.load(path).key_id == tiny_stranger.key_id


def test_a_secret_key_that_appears_meanwhile_is_not_overwritten_either(
    tiny: es.Owner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, fsync = tmp_path / "secret.key", os.fsync

    def racing(descriptor: int) -> None:
        path.write_bytes(b"the key of somebody faster")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", racing)
    with pytest.raises(FileExistsError):
        tiny.save(path)
    assert path.read_bytes() == b"the key of somebody faster"
    assert list(tmp_path.iterdir()) == [path]


SAVES: dict[str, Callable[[es.Owner, Path], None]] = {
    "owner": lambda owner, path: owner.save(path, overwrite=True),
    "public keys": lambda owner, path: owner.public_keys().save(path, overwrite=True),
    "array": lambda owner, path: owner.encrypt([1, 2]).save(path, overwrite=True),
}


@pytest.mark.parametrize("call", ["replace", "fsync"])
@pytest.mark.parametrize("what", SAVES)
def test_a_failing_write_leaves_the_old_file_and_nothing_else(
    tiny: es.Owner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, call: str
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"what was there before")

    def failing(*args: Any, **kwargs: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, call, failing)
    with pytest.raises(OSError, match="No space left"):
        SAVES[what](tiny, path)
    assert path.read_bytes() == b"what was there before"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("what", SAVES)
def test_an_interrupted_write_leaves_no_file(
    tiny: es.Owner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    def interrupted(descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        SAVES[what](tiny, tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


# -- secrets stay with the owner
# ----------------------------------------------------------------------------------------------

SECRETS = (es.Owner, seal.SecretKey, seal.KeyGenerator, seal.Decryptor, Decryptor)


def reachable(root: Any) -> Iterator[Any]:
    """Everything that attributes, items, bound methods and closures lead to from an object, as
    Python itself sees it.
    """
    seen, todo = set(), [root]
    while todo:
        thing = todo.pop()
        if id(thing) in seen or isinstance(
            thing, (type, types.ModuleType, str, bytes, int, float, np.dtype)
        ):
            continue
        seen.add(id(thing))
        yield thing
        if isinstance(thing, types.FunctionType):
            todo.extend(cell.cell_contents for cell in thing.__closure__ or () if _filled(cell))
            continue
        if isinstance(thing, np.ndarray) and thing.dtype == object:
            todo.extend(thing.ravel().tolist())
        todo.extend(gc.get_referents(thing))
        todo.extend(
            getattr(thing, name)
            for name in getattr(type(thing), "__slots__", ())
            if hasattr(thing, name)
        )
        if hasattr(thing, "__self__"):
            todo.append(thing.__self__)


def _filled(cell: types.CellType) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True


def test_no_way_leads_from_what_a_worker_holds_to_the_secret_key(tiny: es.Owner) -> None:
    array = tiny.encrypt([1, 2])
    keys = tiny.public_keys(rotations=[1])
    worker_holds = {
        "public keys": tiny.public_keys(),
        "with rotations": keys,
        "an integer": tiny.encrypt(1),
        "an array": array,
        "a product": array * keys.encrypt(3),
    }
    assert any(isinstance(thing, seal.KeyGenerator) for thing in reachable(tiny)), (
        "the search itself must find secrets"
    )
    assert any(isinstance(thing, Encryptor) and thing.with_secret_key for thing in reachable(tiny))
    assert any(isinstance(thing, seal.PublicKey) for thing in reachable(keys))
    for what, held in worker_holds.items():
        everything = list(reachable(held))
        found = [type(thing) for thing in everything if isinstance(thing, SECRETS)]
        assert found == [], f"{what} lead to {found}"
        assert not any(
            thing.with_secret_key for thing in everything if isinstance(thing, Encryptor)
        ), what


def test_public_keys_have_nothing_that_decrypts(tiny: es.Owner) -> None:
    keys = tiny.public_keys()
    assert [name for name in dir(keys) if "decrypt" in name or "secret" in name] == []
    with pytest.raises(AttributeError):
        keys.open(tiny.encrypt(1))
    encryptor = keys.encryptor.seal_encrypt.__self__
    assert isinstance(encryptor, seal.Encryptor)
    with pytest.raises((RuntimeError, ValueError), match="secret key is not set"):
        encryptor.encrypt_symmetric(keys.engine.encode_integer(1))
    assert not keys.encryptor.with_secret_key


def test_the_secret_key_is_in_its_own_file_only_and_there_only_unlocked(
    tiny: es.Owner, tmp_path: Path
) -> None:
    tiny.save(tmp_path / "open")
    tiny.save(tmp_path / "locked", "open sesame")
    tiny.public_keys().save(tmp_path / "public")
    tiny.public_keys(rotations=[1, 0]).save(tmp_path / "rotations")
    tiny.encrypt([1, 2]).save(tmp_path / "array")
    found = {path.name for path in tmp_path.iterdir() if holds_secret(path.read_bytes(), tiny)}
    assert found == {"open"}
    assert b"open sesame" not in (tmp_path / "locked").read_bytes()


def test_two_locked_files_of_one_key_have_nothing_secret_in_common(
    tiny: es.Owner, tmp_path: Path
) -> None:
    """Salt and nonce are new every time: the same nonce twice would break AES-GCM."""
    sealed = []
    for name in ("a", "b"):
        tiny.save(tmp_path / name, "same words")
        sealed.append(container.read(tmp_path / name).sections["secret_key"])
    assert sealed[0][:16] != sealed[1][:16]
    assert sealed[0][16:28] != sealed[1][16:28]
    assert sealed[0][28:60] != sealed[1][28:60]


def test_representations_show_no_secret(tiny: es.Owner) -> None:
    keys = tiny.public_keys(rotations=[1])
    secret = secret_bytes(tiny)
    numbers = {
        str(n)
        for n in np.frombuffer(secret[: len(secret) // 8 * 8], dtype="<u8").tolist()
        if n > 10**6
    }
    for thing in (tiny, keys, tiny.parameters, tiny.encrypt(5), tiny.encrypt([5])):
        for text in (repr(thing), str(thing), f"{thing}"):
            assert len(text) < 1000
            assert secret[:8].hex() not in text
            assert not any(number in text for number in numbers)
    assert repr(tiny) == f"Owner(key {tiny.key_id}, {tiny.parameters!r})"
    assert repr(keys).startswith(
        f"PublicKeys(key {tiny.key_id}, {tiny.parameters!r}, rotations=[1]"
    )


def test_key_ids_name_a_key_pair(tiny: es.Owner, tiny_stranger: es.Owner, owner: es.Owner) -> None:
    assert (
        tiny.key_id
        == tiny.public_keys().key_id
        == tiny.public_keys([1]).key_id
        == tiny.encrypt(1).keys.key_id
    )
    assert len({tiny.key_id, tiny_stranger.key_id, owner.key_id}) == 3


def test_keys_need_parameters_that_carry_something() -> None:
    with pytest.raises(TypeError, check=error("not-parameters")):
        es.Owner(8192)


# -- insecure stays visible
# ------------------------------------------------------------------------------------------------


def test_insecure_parameters_are_visible_wherever_they_go(
    tiny: es.Owner, owner: es.Owner, tmp_path: Path
) -> None:
    paths = {name: tmp_path / name for name in ("owner", "public", "array")}
    tiny.save(paths["owner"])
    tiny.public_keys().save(paths["public"])
    tiny.encrypt([1]).save(paths["array"])
    for thing in (tiny, tiny.public_keys(), tiny.parameters):
        assert "INSECURE: allow_insecure=True" in repr(thing)
    assert "INSECURE" in str(tiny.parameters)
    for path in paths.values():
        assert container.read(path).fields["parameters"]["allow_insecure"] is True
        assert b'"allow_insecure":true' in path.read_bytes()
    with pytest.warns(
        es.InsecureParametersWarning,
        match=r"less than 128-bit security .* never use them for real data",
    ):
        assert "INSECURE" in repr(es.Owner.load(paths["owner"]))
    with pytest.warns(es.InsecureParametersWarning):
        assert "INSECURE" in repr(es.PublicKeys.load(paths["public"]))
    with pytest.warns(es.InsecureParametersWarning):
        es.EncryptedArray.load(paths["array"], tiny.public_keys())
    assert "INSECURE" not in repr(owner)


def test_secure_keys_load_without_a_warning(owner: es.Owner, files: dict[str, Path]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        es.Owner.load(files["owner"])
        es.PublicKeys.load(files["public"])
        es.EncryptedArray.load(files["array"], owner.public_keys())


@pytest.mark.parametrize("kind", ["secret key", "public keys"])
def test_a_file_cannot_hide_that_it_is_insecure(tiny: es.Owner, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "file"
    tiny.save(path) if kind == "secret key" else tiny.public_keys().save(path)
    file = container.read(path)
    parameters = {**file.fields["parameters"], "allow_insecure": False}
    container.write(replace(file, fields={**file.fields, "parameters": parameters}), path)
    with pytest.raises(es.FileFormatError, check=error("impossible-parameters", "128")):
        (es.Owner if kind == "secret key" else es.PublicKeys).load(path)
