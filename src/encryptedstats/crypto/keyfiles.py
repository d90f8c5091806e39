"""Read and write key files: containers, sections, signatures, passphrases and file modes.

A file of public keys and a file with the secret key share the sections that the key id hashes.
Everything is checked before SEAL reads it, and every error is a ``FileFormatError``,
``KeyMismatchError`` or ``PassphraseError``. ``docs/reference/formats.md`` describes the format.
"""

from __future__ import annotations

import os
import stat
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from operator import index
from typing import Any, Final

import seal

from encryptedstats.crypto import packing
from encryptedstats.crypto.engine import Engine, check_seal_bytes, engine_for
from encryptedstats.crypto.kernels import galois_element
from encryptedstats.crypto.material import (
    UNSIGNED,
    EvaluationKeys,
    KeyMaterial,
    Retirement,
    check_joint_parameters,
    digest_of_members,
    identify_material,
    section_statement,
)
from encryptedstats.crypto.parameters import Parameters
from encryptedstats.crypto.signatures import SIGNING_KEY_BYTES
from encryptedstats.errors import (
    FileFormatError,
    InsecureKeyFileWarning,
    ParameterError,
    PassphraseError,
)
from encryptedstats.storage import container
from encryptedstats.storage import passphrase as locks
from encryptedstats.storage.container import Container
from encryptedstats.storage.files import PRIVATE

PUBLIC_KIND: Final = "public keys"
OWNER_KIND: Final = "secret key"
_ENCRYPTOR: Final = "encryptor"


@dataclass(frozen=True)
class SecretMaterial:
    """The content of a secret key file: public material, secret key, and planned rotations."""

    public: KeyMaterial
    secret: Any = field(repr=False)
    rotations: tuple[int, ...] = ()


# -- public keys -----------------------------------------------------------------------------------


def public_container(material: KeyMaterial) -> Container:
    """Return public keys as a checked envelope of bytes."""
    parameters, evaluation = material.parameters, material.evaluation
    fields: dict[str, Any] = {
        "parameters": parameters.to_dict(),
        "rotations": list(evaluation.rotations),
        "signatures": dict(material.signatures),
    }
    fields |= _retired_field(material.retirement)
    galois = {name: keys.to_string() for name, keys in evaluation.galois().items()}
    sections = material.identity_sections() | galois
    return Container(PUBLIC_KIND, parameters.fingerprint, material.key_id, fields, sections)


def count_public_bytes(parameters: Parameters, n_rotations: int = 0) -> int:
    """Return the size of public keys with packing and rotation keys, but for headers.

    A key for key switching has two polynomials under all primes for each data prime.
    """

    def key_bytes(of: Parameters) -> int:
        primes = len(of.coefficient_moduli)
        return (primes - 1) * 16 * primes * of.ring_degree

    public_key = 16 * len(parameters.coefficient_moduli) * parameters.ring_degree
    n_packing = len(packing.packing_steps(parameters.ring_degree))
    small = key_bytes(packing.packing_parameters(parameters))
    return public_key + (1 + n_rotations) * key_bytes(parameters) + n_packing * small


def read_public(file: Container) -> KeyMaterial:
    """Read what :func:`public_container` made, with every check."""
    steps, signatures = file.expect("rotations", list), file.expect("signatures", dict)
    material = _read_identified(file, steps, signatures)
    _check_signatures(material, file, signatures, steps)
    packing_keys = _read_packing(material.engine, file) if "packing" in signatures else None
    rotation = _read_rotation(material.engine, file, steps) if steps else None
    evaluation = EvaluationKeys(
        material.evaluation.relinearisation, packing_keys, rotation, tuple(steps)
    )
    material = replace(material, evaluation=evaluation, signatures=signatures)
    return replace(material, retirement=_read_retirement(file, material))


def _read_identified(
    file: Container, steps: Sequence[Any] = (), signed: Iterable[str] = ()
) -> KeyMaterial:
    """Read the sections that the key id is a hash of."""
    parameters = read_parameters(file)
    _check_lengths(
        file, parameters
    )  # before SEAL prepares anything for parameters that may be made up
    engine = engine_for(parameters)
    if not all(type(step) is int and abs(step) < parameters.ring_degree for step in steps):
        raise FileFormatError(
            "the rotations of the key file are malformed", code="malformed-rotations"
        )
    if bool(steps) != ("rotation" in file.sections):
        raise FileFormatError(
            "the rotation keys of the file do not fit its list of rotations",
            code="rotation-keys-mismatch",
        )
    public_key = _load_seal(engine.context.from_public_str, file.section("public_key"))
    relinearisation = _load_seal(engine.context.from_relin_str, file.section("relinearisation"))
    material = identify_material(
        engine, public_key, EvaluationKeys(relinearisation), file.section("signing_key")
    )
    if material.key_id != file.key_id:
        raise FileFormatError(
            "the key id of the file does not fit the keys in it", code="key-id-mismatch"
        )
    if set(signed) != {"packing", "rotation"} & set(file.sections):
        raise FileFormatError(
            "the signatures of the key file do not fit its sections", code="signatures-mismatch"
        )
    return material


def read_parameters(file: Container) -> Parameters:
    """Read the parameters of a file of any kind, and check them against its fingerprint."""
    try:
        parameters = Parameters.from_dict(file.expect("parameters", dict))
    except ParameterError as error:
        raise FileFormatError(
            f"the file has impossible parameters: {error}", code="impossible-parameters"
        ) from error
    if parameters.fingerprint != file.fingerprint:
        raise FileFormatError(
            "the parameters in the file do not fit its fingerprint", code="fingerprint-mismatch"
        )
    return parameters


def _check_lengths(file: Container, parameters: Parameters) -> None:
    """Check that keys have the length that their parameters imply.

    A small file must not ask for the memory of large keys.
    """
    primes = len(parameters.coefficient_moduli)
    one = 16 * primes * parameters.ring_degree
    if len(file.section("signing_key")) != SIGNING_KEY_BYTES:
        raise FileFormatError(
            f"the section 'signing_key' of the file has not {SIGNING_KEY_BYTES} bytes",
            code="wrong-signing-key-length",
        )
    least = {"public_key": one, "relinearisation": (primes - 1) * one}
    for name, length in least.items():
        if not length <= len(file.section(name)) <= length + 1024 * primes:
            raise FileFormatError(
                f"the section {name!r} of the file has not the length that its parameters say",
                code="wrong-key-length",
            )


def _check_signatures(
    material: KeyMaterial, file: Container, signatures: Mapping[str, Any], steps: Sequence[int]
) -> None:
    if UNSIGNED in signatures.values():
        check_joint_parameters(material.parameters)
    if signatures and all(signature == UNSIGNED for signature in signatures.values()):
        if (
            digest_of_members({name: file.section(name) for name in signatures}, steps)
            != material.signing_key
        ):
            raise FileFormatError(
                "the packing and rotation keys of the file are not those that the members of key "
                f"{material.key_id} have made",
                code="keys-not-by-members",
            )
        return
    for name, signature in signatures.items():
        statement = section_statement(name, steps, file.section(name))
        if not isinstance(signature, str) or not material.is_signed(statement, signature):
            raise FileFormatError(
                f"the {name} keys of the file are not signed by the owner of key "
                f"{material.key_id}: exchanged or altered",
                code="unsigned-keys",
            )


def _read_retirement(file: Container, material: KeyMaterial) -> Retirement | None:
    statement = file.fields.get("retired")
    if statement is None:
        return None
    try:
        found = Retirement(**statement)
        good = all(isinstance(part, str) for part in (found.why, found.successor, found.signature))
        good = good and material.is_signed(found.statement(material.key_id), found.signature)
    except TypeError:
        good = False
    if not good:
        raise FileFormatError(
            f"the file says that key {material.key_id} is retired, and its owner has not signed "
            "that: altered",
            code="unsigned-retirement",
        )
    return found


def _read_rotation(engine: Engine, file: Container, steps: Sequence[int]) -> Any:
    keys = _load_seal(engine.context.from_galois_str, file.section("rotation"))
    if not all(keys.has_key(galois_element(engine.parameters.ring_degree, step)) for step in steps):
        raise FileFormatError(
            "the rotation keys of the file do not fit its list of rotations",
            code="rotation-keys-mismatch",
        )
    return keys


def _read_packing(engine: Engine, file: Container) -> Any:
    small = engine_for(packing.packing_parameters(engine.parameters))
    keys = _load_seal(small.context.from_galois_str, file.section("packing"))
    if not packing.has_packing_keys(keys, engine.parameters.ring_degree):
        raise FileFormatError(
            "the packing keys of the file are not all there", code="packing-keys-missing"
        )
    return keys


def _load_seal(loader: Any, data: bytes) -> Any:
    check_seal_bytes(data)
    try:
        return loader(data)
    except (RuntimeError, ValueError, IndexError) as error:
        raise FileFormatError(
            f"a key in the file is malformed: {error}", code="malformed-key"
        ) from error


# -- the secret key --------------------------------------------------------------------------------


def write_secret(
    material: SecretMaterial,
    path: str | os.PathLike[str],
    passphrase: str | None,
    *,
    overwrite: bool,
) -> None:
    """Write the secret key to a file with mode 0600, locked if a passphrase is given."""
    public, secret, lock = material.public, material.secret.to_string(), dict[str, Any]()
    if passphrase is not None:
        lock, secret = locks.lock(secret, passphrase, bind_to=public.key_id.encode())
    fields = {
        "parameters": public.parameters.to_dict(),
        "rotations": list(material.rotations),
        "lock": lock,
        **_retired_field(public.retirement),
    }
    sections = {**public.identity_sections(), "secret_key": secret}
    file = Container(OWNER_KIND, public.parameters.fingerprint, public.key_id, fields, sections)
    container.write(file, path, mode=PRIVATE, overwrite=overwrite)


def mark_retired(path: str | os.PathLike[str], retirement: Retirement) -> None:
    """Write into a secret key file that the key is retired; the secret stays locked as it is."""
    file = container.read(path, kind=OWNER_KIND)
    marked = replace(file, fields={**file.fields, **_retired_field(retirement)})
    container.write(marked, path, mode=PRIVATE, overwrite=True)


def _retired_field(retirement: Retirement | None) -> dict[str, Any]:
    return {} if retirement is None else {"retired": asdict(retirement)}


def read_secret(path: str | os.PathLike[str], passphrase: str | None) -> SecretMaterial:
    """Read what :func:`write_secret` wrote; warn where other users may read the file too."""
    file = container.read(path, kind=OWNER_KIND)
    _warn_of_lax_mode(path)
    public = _read_identified(file)
    public = replace(public, retirement=_read_retirement(file, public))
    secret = _load_seal(public.engine.context.from_secret_str, _unlock_secret(file, passphrase))
    return SecretMaterial(public, secret, _read_planned_rotations(file, public.parameters))


def check_pair(public: KeyMaterial, generator: Any) -> None:
    """Check that the secret key of a SEAL key generator fits the public keys.

    A key of another pair would decrypt to garbage.

    The second check is a key switch, which needs the residues modulo the special prime, and
    decryption never looks at those.
    """
    engine = public.engine
    decrypt, evaluator = (
        seal.Decryptor(engine.context, generator.secret_key()).decrypt,
        engine.evaluator,
    )
    encrypted = seal.Encryptor(engine.context, public.public_key).encrypt(engine.encode_integer(1))
    found = [decrypt(encrypted)]
    if public.parameters.depth > 0:
        square = evaluator.square(encrypted)
        for keys in (generator.create_relin_keys(), public.evaluation.relinearisation):
            found.append(decrypt(evaluator.relinearize(square, keys)))
    if any(engine.decode_integer(plain) != 1 for plain in found):
        raise FileFormatError(
            "the secret key of the file does not fit the public key in it",
            code="secret-key-mismatch",
        )


def check_rotations(rotations: Iterable[int], parameters: Parameters) -> tuple[int, ...]:
    """Return rotations in order, each once; raise ``ParameterError`` for those out of range."""
    steps, half = tuple(sorted({index(step) for step in rotations})), parameters.ring_degree // 2
    if any(abs(step) >= half for step in steps):
        raise ParameterError(
            f"rotations must be between {1 - half} and {half - 1}", code="rotation-out-of-range"
        )
    return steps


def _read_planned_rotations(file: Container, parameters: Parameters) -> tuple[int, ...]:
    """Read the rotations that an owner was planned with; the oldest files have no list of them."""
    listed = file.fields.get("rotations", [])
    if not isinstance(listed, list) or not all(type(step) is int for step in listed):
        raise FileFormatError(
            "the rotations of the key file are malformed", code="malformed-rotations"
        )
    try:
        return check_rotations(listed, parameters)
    except ParameterError as error:
        raise FileFormatError(
            f"the rotations of the key file are malformed: {error}", code="malformed-rotations"
        ) from error


def _unlock_secret(file: Container, passphrase: str | None) -> bytes:
    lock, secret = file.expect("lock", dict), file.section("secret_key")
    if not lock and passphrase is not None:
        raise PassphraseError(
            "this key file is not locked, and a passphrase was given for it: it holds key "
            f"{file.key_id}, which may be another's. "
            "Take the file that your passphrase locks, or load this one without a passphrase if "
            "it is yours",
            code="not-locked",
        )
    if not lock:
        return secret
    if passphrase is None:
        raise PassphraseError("this key file is locked: give its passphrase", code="no-passphrase")
    return locks.unlock(lock, secret, passphrase, bind_to=file.key_id.encode())


def _warn_of_lax_mode(path: str | os.PathLike[str]) -> None:
    mode = stat.S_IMODE(os.stat(path).st_mode)
    if os.name == "posix" and mode & 0o077:
        warnings.warn(
            f"other users of this machine may read the secret key {path} (mode {mode:04o}): chmod "
            f"600 {path}",
            InsecureKeyFileWarning,
            stacklevel=4,  # the caller of Owner.load
        )


# -- encryption in other processes -----------------------------------------------------------------


def encryptor_bytes(public: KeyMaterial, secret: Any | None, token_key: bytes) -> bytes:
    """Serialise what another process of the same user needs to encrypt.

    The bytes may hold the secret key: never write them to a file.
    """
    sections = {**public.identity_sections(), "token_key": token_key}
    if secret is not None:
        sections["secret_key"] = secret.to_string()
    parameters = public.parameters
    fields = {"parameters": parameters.to_dict()}
    return container.to_bytes(
        Container(_ENCRYPTOR, parameters.fingerprint, public.key_id, fields, sections)
    )


def read_encryptor(data: bytes) -> tuple[KeyMaterial, Any | None, bytes]:
    """Read what :func:`encryptor_bytes` made."""
    file = container.from_bytes(data, kind=_ENCRYPTOR)
    public, secret = _read_identified(file), None
    if "secret_key" in file.sections:
        secret = _load_seal(public.engine.context.from_secret_str, file.section("secret_key"))
    return public, secret, file.section("token_key")
