"""Keys in the right hands: an ``Owner`` holds the secret key, a worker gets ``PublicKeys`` and can never decrypt.

Key generation, encryption and decryption are SEAL's own (``seeded`` says what is done with a table's ciphertexts then); this module
decides who holds what, and how it is stored.
"""

from __future__ import annotations

import hashlib
import json
import operator
import os
import stat
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NoReturn, Protocol

import seal

from encryptedstats.crypto import packing
from encryptedstats.crypto.digests import keyed_digest
from encryptedstats.crypto.dispatch import (
    decrypt_value,
    encrypt_file_value,
    encrypt_value,
    move_value,
    open_value,
    publish_value,
    release_value,
)
from encryptedstats.crypto.engine import Engine, check_seal_bytes, engine_for
from encryptedstats.crypto.kernels import Kernels, galois_element, make_kernels
from encryptedstats.crypto.noise import Noise
from encryptedstats.crypto.parameters import Parameters
from encryptedstats.crypto.residues import Residues, ciphertext_of, public_residues, residues_of
from encryptedstats.crypto.seeded import SeededEncryption
from encryptedstats.crypto.signatures import SIGNING_KEY_BYTES, Signer, verifies
from encryptedstats.errors import (
    Cure,
    FileFormatError,
    InsecureKeyFileWarning,
    KeyMismatchError,
    ParameterError,
    PassphraseError,
)
from encryptedstats.storage import container
from encryptedstats.storage import passphrase as locks
from encryptedstats.storage.container import Container
from encryptedstats.storage.files import PRIVATE
from encryptedstats.storage.objects import load_file, save_file

PUBLIC_KIND: Final = "public keys"
OWNER_KIND: Final = "secret key"
KEY_ID_DIGITS: Final = 32  # 128 bits: nobody makes other keys with the id of some that exist
_HEX_DIGITS: Final = frozenset("0123456789abcdef")
#: What stands for a signature of keys that have no owner: see :meth:`PublicKeys.of_members`.
_OF_NOBODY: Final = ""


class HasParameters(Protocol):
    """What parameters were chosen for: a plan."""

    @property
    def parameters(self) -> Parameters:
        """The parameters that carry it."""


@dataclass(frozen=True)
class Encryptor:
    """What encrypting a value needs: the public keys it will carry along, and SEAL's encryption under one of the keys."""

    keys: PublicKeys
    seal_encrypt: Any
    with_secret_key: bool
    token_key: bytes = field(repr=False)  # for keyed hashes of plain data: only who encrypts can make or compare them
    signer: Signer | None = field(default=None, repr=False)  # the owner's; None under the public key
    seeded: SeededEncryption | None = field(default=None, repr=False)  # the owner's; None under the public key
    secret_key: Any = field(default=None, repr=False)  # SEAL's; None under the public key

    def to_bytes(self) -> bytes:
        """For a process of one's own that is to encrypt with it: holds the secret key, and is never written to a file."""
        sections = {**self.keys._own_sections(), "token_key": self.token_key}
        if self.secret_key is not None:
            sections["secret_key"] = self.secret_key.to_string()
        parameters = self.keys.parameters
        fields = {"parameters": parameters.to_dict()}
        return container.to_bytes(Container("encryptor", parameters.fingerprint, self.keys.key_id, fields, sections))

    @classmethod
    def from_bytes(cls, data: bytes) -> Encryptor:
        """The inverse, without the signing key."""
        file = container.from_bytes(data, kind="encryptor")
        keys = PublicKeys._from_sections(file, [], {})
        if "secret_key" not in file.sections:
            return replace(keys.encryptor, token_key=file.section("token_key"))
        secret = _load_seal(keys.engine.context.from_secret_str, file.section("secret_key"))
        return cls.of_owner(keys, secret, file.section("token_key"), None)

    @classmethod
    def of_owner(cls, keys: PublicKeys, secret_key: Any, token_key: bytes, signer: Signer | None) -> Encryptor:
        """Encryption with the secret key."""
        encrypt = seal.Encryptor(keys.engine.context, secret_key).encrypt_symmetric
        return cls(keys, encrypt, True, token_key, signer, SeededEncryption(keys.engine, secret_key), secret_key)

    def encrypt(self, plain: Any, *, constant: bool = False) -> tuple[Any, Noise]:
        """A new ciphertext of a SEAL plaintext, with its noise."""
        noise = self.keys.parameters.noise.fresh(with_secret_key=self.with_secret_key, constant=constant)
        return self.seal_encrypt(plain), noise

    def schema_digest(self, content: bytes) -> str | None:
        """A digest of a private schema that the owner will know again; None under the public key, which has no secret."""
        return keyed_digest(self.token_key, "schema", content) if self.with_secret_key else None


@dataclass(frozen=True)
class Decryptor:
    """What decrypting a value needs: the key it must belong to, and SEAL's decryption."""

    keys: PublicKeys
    seal_decrypt: Any
    seal_decrypt_packed: Any
    token_key: bytes = field(repr=False)

    def decrypt(self, ciphertext: Any) -> Any:
        """The SEAL plaintext in a ciphertext."""
        return self.seal_decrypt(ciphertext)

    def decrypt_packed(self, ciphertext: Any) -> Any:
        """The SEAL plaintext in a ciphertext of the packing context."""
        return self.seal_decrypt_packed(ciphertext)

    def check_own(self, keys: PublicKeys) -> None:
        """Refuse to open what belongs to another key."""
        if keys is not self.keys and keys.key_id != self.keys.key_id:
            raise KeyMismatchError(
                f"these belong to different keys: what is to be opened to {keys.key_id}, and the secret key that was given is "
                f"{self.keys.key_id}. Only the secret key {keys.key_id} opens it",
                Cure("load the key", ": es.Owner.load(path) with the file of that one"),
            )

    def schema_digest(self, content: bytes) -> str:
        """The digest that this owner would have given a private schema."""
        return keyed_digest(self.token_key, "schema", content)


@dataclass(frozen=True)
class Signed:
    """Key-switching keys with the owner's signature, without which they would not be taken for the owner's."""

    keys: Any
    signature: str


@dataclass(frozen=True)
class Retirement:
    """What an owner has said of keys that nothing is to be encrypted for any more, signed by the secret key itself."""

    why: str
    successor: str  # the id of the keys to take instead; empty where there are none
    signature: str

    def statement(self, key_id: str) -> bytes:
        """What is signed."""
        return json.dumps(["encryptedstats retired keys", key_id, self.why, self.successor]).encode()


class PublicKeys:
    """Keys that encrypt and compute, and cannot decrypt: all that an untrusted computer ever gets.

    Made by :meth:`Owner.public_keys` and :meth:`load`. Carries the public encryption key, the relinearisation keys that
    products need, the packing keys that make results small, and the rotation keys that were asked for; and a key by which
    anybody can check what the owner has signed.
    """

    def __init__(
        self,
        engine: Engine,
        public_key: Any,
        relinearisation: Any,
        signing_key: bytes,
        packing: Signed | None = None,
        rotation: Signed | None = None,
        steps: tuple[int, ...] = (),
    ) -> None:
        self._engine = engine
        self._public_key = public_key
        self._relinearisation = relinearisation
        self._signing_key = signing_key
        self._signed = {name: part for name, part in (("packing", packing), ("rotation", rotation)) if part is not None}
        self._packing = None if packing is None else packing.keys
        self._rotation = None if rotation is None else rotation.keys
        self.rotations = steps
        self.retired: Retirement | None = None  # what its owner said when it was given up

    @classmethod
    def of_members(
        cls, engine: Engine, public_key: Any, relinearisation: Any, packing: Any, rotation: Any, steps: tuple[int, ...]
    ) -> PublicKeys:
        """The keys that members have made together. They have no owner, and nobody can sign for one.

        Where the key that checks the owner's signatures would be, there is a hash of the packing and rotation keys: so the key id
        is one of all of them.
        """
        _check_members(engine.parameters)
        made = {"packing": packing} | ({} if rotation is None else {"rotation": rotation})
        digest = _digest_of_members({name: keys.to_string() for name, keys in made.items()}, steps)
        signed = {name: Signed(keys, _OF_NOBODY) for name, keys in made.items()}
        return cls(engine, public_key, relinearisation, digest, signed["packing"], signed.get("rotation"), steps)

    @property
    def joint(self) -> bool:
        """Whether they are the keys of several members, none of whom can decrypt alone: see :class:`es.JointKey`."""
        return any(part.signature == _OF_NOBODY for part in self._signed.values())

    @property
    def parameters(self) -> Parameters:
        """The parameters these keys belong to."""
        return self._engine.parameters

    @cached_property
    def key_id(self) -> str:
        """A name for the key pair, the same in every file that belongs to it; it reveals nothing.

        32 hexadecimal digits: a hash of the parameters, the public key, the relinearisation keys, and the key that checks the
        owner's signatures. Packing and rotation keys carry such a signature. So whoever knows the id knows all of them.
        """
        return _key_id(
            self.parameters, self._public_key.to_string(), self._relinearisation.to_string(), self._signing_key
        )

    def extended(self, *, packing: Signed | None, rotation: Signed | None, steps: tuple[int, ...]) -> PublicKeys:
        """The same keys with these packing and rotation keys, and no others; the id stays."""
        own = (self._engine, self._public_key, self._relinearisation, self._signing_key)
        keys = PublicKeys(*own, packing, rotation, steps)
        keys.__dict__["key_id"] = self.key_id  # some megabytes need not be hashed again
        keys.retired = self.retired
        return keys

    @cached_property
    def public_zero(self) -> Any:
        """An encryption of 0 that is the same for everybody, BGV: the public key itself. It hides nothing that is added to it."""
        return ciphertext_of(self._engine, public_residues(self.parameters, self._public_key.to_string()))

    @property
    def fingerprint(self) -> str:
        """The key id in groups of four, to be compared by telephone before anything is encrypted with these keys."""
        return fingerprint_of(self.key_id)

    @property
    def signing_key(self) -> bytes:
        """The key that checks what the owner has signed."""
        return self._signing_key

    def signed_by_owner(self, statement: bytes, signature: str) -> bool:
        """Whether the owner of these keys has signed this."""
        return verifies(self._signing_key, statement, signature)

    def encrypt(self, value: Any, **options: Any) -> Any:
        """Encrypt integers, nested lists or integer arrays with the public key: anybody can, only the owner can decrypt.

        See :meth:`Owner.encrypt`, which makes ciphertexts with less noise.
        """
        self.check_in_use()
        return encrypt_value(value, self.encryptor, **options)

    def encrypt_file(
        self, path: str | os.PathLike[str], schema: Any, out: str | os.PathLike[str], **options: Any
    ) -> Any:
        """Encrypt a CSV or Parquet file into a stored table for the owner, as :meth:`Owner.encrypt_file` does.

        What was interrupted starts again: only the owner's secret lets a second run recognise the blocks of a first.
        """
        self.check_in_use()
        return encrypt_file_value(schema, self.encryptor, path, out, **options)

    def check_in_use(self) -> None:
        """Refuse to encrypt for keys that their owner has retired."""
        if self.retired is not None:
            instead = (
                f": encrypt for key {self.retired.successor}, whose file its owner has"
                if self.retired.successor
                else ""
            )
            raise KeyMismatchError(f"the owner has retired key {self.key_id} ({self.retired.why}){instead}")

    @cached_property
    def encryptor(self) -> Encryptor:
        """Encryption under the public key, for the types that register with ``encrypt``."""
        encrypt = seal.Encryptor(self._engine.context, self._public_key).encrypt
        return Encryptor(self, encrypt, with_secret_key=False, token_key=os.urandom(32))

    def encrypted_zero(self, level: int) -> Residues:
        """A new encryption of 0 by the public key, switched down to a level."""
        ciphertext, _ = self.encryptor.encrypt(self._engine.encode_integer(0), constant=True)
        return residues_of(self._engine, self._engine.switch(ciphertext, level))

    @property
    def engine(self) -> Engine:
        """SEAL's context and evaluator, for the evaluators of this library."""
        return self._engine

    def relinearise(self, ciphertext: Any) -> Any:
        """A ciphertext of size 3 brought back to size 2."""
        return self._engine.evaluator.relinearize(ciphertext, self._relinearisation)

    @cached_property
    def kernels(self) -> Kernels | None:
        """What brings totals down much faster than SEAL, to the same residues; None where there is only SEAL."""
        return make_kernels(self.parameters, self._relinearisation, self._packing, self._rotation)

    @property
    def seal_relinearisation(self) -> Any:
        """SEAL's key for s^2, for devices that read it themselves."""
        return self._relinearisation

    @property
    def seal_packing(self) -> Any:
        """SEAL's keys of all automorphisms that packing uses, likewise."""
        return self._needed_packing()

    @property
    def seal_rotation(self) -> Any:
        """SEAL's keys of the rotations, likewise."""
        return self._rotation

    @property
    def packs(self) -> bool:
        """Whether totals can be packed with these keys, many into one ciphertext."""
        return self._packing is not None

    def pack(self, ciphertexts: Sequence[Any], levels: int | None = None, lowest: int = 0, start: int = 0) -> Any:
        """Ciphertexts of the packing context merged into one: see :func:`encryptedstats.crypto.packing.pack`."""
        return packing.pack(self.parameters, self._needed_packing(), ciphertexts, levels, lowest, start)

    def part(self, pack: Any, level: int, *, odd: bool = True, start: int = 0) -> tuple[Any, ...]:
        """A pack, with so many levels left, in two: the first half of its totals, and (``odd``) the others."""
        return packing.parted(self._small_engine, self._needed_packing(), pack, level, odd=odd, start=start)

    def expand(self, pack: Any, count: int, level: int, start: int = 0) -> list[Any]:
        """The totals of a pack, each in every slot of a ciphertext, or 2^start side by side."""
        return packing.expand(self._small_engine, self._needed_packing(), pack, count, level, start)

    @property
    def _small_engine(self) -> Engine:
        return engine_for(packing.packing_parameters(self.parameters))

    def _needed_packing(self) -> Any:
        if self._packing is None:
            raise KeyMismatchError(packing.NO_PACKING_KEYS)
        return self._packing

    def check_rotates(self, step: int) -> None:
        """Refuse a rotation that there is no key for."""
        if step not in self.rotations:
            raise KeyMismatchError(
                f"these public keys have no key for rotation {step}: ",
                Cure(
                    "planned keys",
                    "owner.public_keys(rotations=[...]), or encrypt with es.Owner(plan), which makes those that were planned",
                ),
            )

    def rotate(self, ciphertext: Any, step: int) -> Any:
        """Slots rotated to the left within both half rows; step 0 swaps the half rows."""
        self.check_rotates(step)
        if step == 0:
            return self._engine.evaluator.rotate_columns(ciphertext, self._rotation)
        return self._engine.evaluator.rotate_rows(ciphertext, step, self._rotation)

    def check_same(self, other: PublicKeys) -> None:
        """Refuse to bring together what belongs to different keys."""
        if other is not self and other.key_id != self.key_id:
            raise KeyMismatchError(
                f"these belong to different keys ({self.key_id} and {other.key_id}): nothing can be computed across keys"
            )

    # -- files -----------------------------------------------------------------------------------------------------

    def to_container(self) -> Container:
        """The public keys as a checked envelope of bytes."""
        sections = self._own_sections()
        sections.update((name, part.keys.to_string()) for name, part in self._signed.items())
        fields = {
            "parameters": self.parameters.to_dict(),
            "rotations": list(self.rotations),
            "signatures": {name: part.signature for name, part in self._signed.items()},
        }
        if self.retired is not None:
            fields["retired"] = asdict(self.retired)
        return Container(PUBLIC_KIND, self.parameters.fingerprint, self.key_id, fields, sections)

    def _own_sections(self) -> dict[str, bytes]:
        """The sections that the key id is a hash of."""
        return {
            "public_key": self._public_key.to_string(),
            "relinearisation": self._relinearisation.to_string(),
            "signing_key": self._signing_key,
        }

    def save(self, url: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the public keys to a path or fsspec URL; the file may be given to anybody."""
        save_file(self.to_container(), url, overwrite=overwrite)

    @classmethod
    def load(cls, url: str | os.PathLike[str], *, fingerprint: str | None = None) -> PublicKeys:
        """Read public keys from a path or fsspec URL, checking every part.

        ``fingerprint`` is what their owner has read to you by telephone, in groups or not: other keys are refused.
        """
        keys = cls.from_container(load_file(url, kind=PUBLIC_KIND))
        if fingerprint is not None:
            keys.check_fingerprint(fingerprint, str(url))
        return keys

    def check_fingerprint(self, expected: str, name: str = "these") -> None:
        """Refuse keys that are not those whose owner has read you this fingerprint."""
        digits = "".join(expected.replace("-", " ").split()).lower()
        if len(digits) != KEY_ID_DIGITS or not set(digits) <= _HEX_DIGITS:
            raise ValueError(f"{expected!r} is no fingerprint: it has {KEY_ID_DIGITS} hexadecimal digits")
        if digits != self.key_id:
            raise KeyMismatchError(
                f"{name} holds the keys {self.fingerprint}, and those of {fingerprint_of(digits)} are expected: do not use them, "
                "ask their owner for the right file"
            )

    @classmethod
    def from_container(cls, file: Container) -> PublicKeys:
        """The inverse of :meth:`to_container`."""
        keys = cls._from_sections(file, file.expect("rotations", list), file.expect("signatures", dict))
        keys.retired = _read_retirement(file, keys)
        return keys

    @classmethod
    def _from_sections(cls, file: Container, steps: list[Any], signatures: dict[str, Any]) -> PublicKeys:
        parameters = read_parameters(file)
        _check_lengths(file, parameters)  # before SEAL prepares anything for parameters that may be made up
        engine = engine_for(parameters)
        if not all(type(step) is int and abs(step) < engine.parameters.ring_degree for step in steps):
            raise FileFormatError("the rotations of the key file are malformed")
        if bool(steps) != ("rotation" in file.sections):
            raise FileFormatError("the rotation keys of the file do not fit its list of rotations")
        keys = cls(
            engine,
            _load_seal(engine.context.from_public_str, file.section("public_key")),
            _load_seal(engine.context.from_relin_str, file.section("relinearisation")),
            file.section("signing_key"),
        )
        if keys.key_id != file.key_id:
            raise FileFormatError("the key id of the file does not fit the keys in it")
        if set(signatures) != {"packing", "rotation"} & set(file.sections):
            raise FileFormatError("the signatures of the key file do not fit its sections")
        _check_signatures(keys, file, signatures, steps)
        packing = _load_packing(engine, file) if "packing" in signatures else None
        rotation = _load_rotation(engine, file, steps) if steps else None
        return keys.extended(
            packing=packing and Signed(packing, signatures["packing"]),
            rotation=rotation and Signed(rotation, signatures["rotation"]),
            steps=tuple(steps),
        )

    def __repr__(self) -> str:
        more = "" if self.packs else ", no packing keys"
        return f"PublicKeys(key {self.key_id}, {self.parameters!r}, rotations={list(self.rotations)}{more})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("PublicKeys are not pickled: save() them to a file and load() that")


class Owner:
    """The one who may see the data: makes the keys, encrypts, and alone can decrypt.

    Parameters
    ----------
    parameters : Parameters
        Or anything with such an attribute ``parameters``, as a plan. Where it has ``rotations`` as well, :meth:`public_keys` and
        encrypted tables have keys for them from then on: what was planned can be computed.

    Examples
    --------
    >>> import encryptedstats as es
    >>> owner = es.Owner(es.Parameters.choose(max_value=1000, depth=1))
    >>> x = owner.encrypt([3, 4])
    >>> owner.decrypt(x @ x + 1)
    26
    """

    #: The file that the key was saved to or loaded from last; what belongs to the key is noted beside it.
    key_file: Path | None = None

    def __init__(self, parameters: Parameters | HasParameters) -> None:
        rotations: Iterable[int] = ()
        if not isinstance(parameters, Parameters):
            rotations, parameters = getattr(parameters, "rotations", ()), getattr(parameters, "parameters", parameters)
        if not isinstance(parameters, Parameters):
            raise TypeError(f"Owner needs Parameters, not {type(parameters).__name__}: see Parameters.choose")
        if parameters.depth < 0:
            raise ParameterError(f"not even an encryption is proven to decrypt with {parameters!r}: take larger primes")
        engine = engine_for(parameters)
        generator = seal.KeyGenerator(engine.context)
        steps = _rotation_steps(rotations, parameters)
        self._install(generator, generator.create_public_key(), generator.create_relin_keys(), engine, steps)

    def _install(
        self, generator: Any, public_key: Any, relinearisation: Any, engine: Engine, steps: tuple[int, ...]
    ) -> None:
        self._generator, self._steps = generator, steps
        secret = generator.secret_key()
        # What the signing key is made from is as secret as the secret key, and neither can be had from the other's public part.
        self._signer = Signer(hashlib.sha256(b"encryptedstats: signatures of the owner" + secret.to_string()).digest())
        bare = PublicKeys(engine, public_key, relinearisation, self._signer.public_bytes)
        packing_keys = _signed(self._signer, "packing", packing.make_packing_keys(engine.parameters, secret))
        self._bare_keys = bare.extended(packing=packing_keys, rotation=None, steps=())
        token_key = hashlib.sha256(b"encryptedstats: keyed hashes of plain data" + secret.to_string()).digest()
        small = engine_for(packing.packing_parameters(engine.parameters))
        packed = seal.Decryptor(small.context, packing.packing_secret(engine.parameters, secret))
        decrypt = seal.Decryptor(engine.context, secret).decrypt
        self._decryptor = Decryptor(self._bare_keys, decrypt, packed.decrypt, token_key)

    @cached_property
    def _keys(self) -> PublicKeys:
        """With all rotations that were planned; made when somebody first encrypts or asks for them, for who opens needs none."""
        return self._keys_with(self._steps) if self._steps else self._bare_keys

    @cached_property
    def _encryptor(self) -> Encryptor:
        return Encryptor.of_owner(self._keys, self._generator.secret_key(), self._decryptor.token_key, self._signer)

    def _keys_with(self, steps: tuple[int, ...], *, packs: bool = True) -> PublicKeys:
        rotation = None
        if steps:
            made = seal.GaloisKeys()
            self._generator.create_galois_keys(list(steps), made)
            rotation = _signed(self._signer, "rotation", made, steps)
        bare = self._bare_keys
        return bare.extended(packing=bare._signed.get("packing") if packs else None, rotation=rotation, steps=steps)

    @property
    def parameters(self) -> Parameters:
        """The parameters of the keys."""
        return self._bare_keys.parameters

    @property
    def key_id(self) -> str:
        """The name of the key pair, as in every file that belongs to it."""
        return self._bare_keys.key_id

    @property
    def fingerprint(self) -> str:
        """What you read to others by telephone, so that they know your public keys: the key id in groups of four."""
        return self._bare_keys.fingerprint

    def public_keys(self, rotations: Iterable[int] | None = None, *, packing: bool = True) -> PublicKeys:
        """What a worker gets: keys that encrypt and compute, and cannot decrypt.

        Parameters
        ----------
        rotations : iterable of int, optional
            Slot rotations that the worker will need (0 swaps the two half rows). Each costs a key of some megabytes, so none
            is made unless asked for; arithmetic on integers and arrays needs none. By default those of the plan that the owner
            was made with.
        packing : bool
            Include the keys that let a worker pack many totals into one ciphertext (a few megabytes).
        """
        steps = self._steps if rotations is None else _rotation_steps(rotations, self.parameters)
        if packing and steps in (self._steps, ()):
            return self._keys if steps else self._bare_keys
        return self._keys_with(steps, packs=packing)

    def encrypt(self, value: Any, **options: Any) -> Any:
        """Encrypt with the secret key, which gives less noise than the public one.

        Parameters
        ----------
        value : int, nested list or integer array
        bound : int, optional
            For integers and arrays: a public bound on every absolute value. Whoever computes needs one, to prove that nothing
            overflows, so it is stored in the clear. By default it is the power of two (at least 16) that covers the
            largest absolute value: give it yourself where even that says too much.

        Returns
        -------
        EncryptedInteger or EncryptedArray
        """
        return encrypt_value(value, self._encryptor, **options)

    def encrypt_file(
        self, path: str | os.PathLike[str], schema: Any, out: str | os.PathLike[str], **options: Any
    ) -> Any:
        """Encrypt a CSV or Parquet file, larger than memory if need be, into a stored table. Running again resumes.

        Parameters
        ----------
        path : path of the file
        schema : Schema
        out : path or fsspec URL
            Where the encrypted table goes.
        **options
            See :func:`encryptedstats.tables.encrypting.encrypt_file`.
        """
        return encrypt_file_value(schema, self._encryptor, path, out, **options)

    def decrypt(self, value: Any, **options: Any) -> Any:
        """Decrypt what belongs to this key: integers and NumPy arrays, statistics as DataFrames, models ready to predict.

        Options go with the type of ``value``; statistics and models take the owner's ``schema=``, to speak by names.
        :meth:`open` does the same from a file.
        """
        return decrypt_value(value, self._decryptor, **options)

    def open(self, source: Any, schema: Any = None) -> Any:
        """Load a result that belongs to this key and decrypt it.

        Parameters
        ----------
        source : path or fsspec URL
            Of the file; or what was loaded from it already.
        schema : Schema, or path of its file, optional
            The schema that the rows were encrypted with: with it, results speak by names. Integers and arrays have none.

        Returns
        -------
        What :meth:`decrypt` gives.
        """
        return open_value(source, self._decryptor, schema)

    def publish(self, source: Any, schema: Any = None, *, rules: Any = None, ledger: Any = None) -> Any:
        """Open a result as far as disclosure rules let others see it: small counts and what would give them away are left out.

        Parameters
        ----------
        source : path or fsspec URL
            Of an encrypted result, model or prediction; or what was loaded from it.
        schema : Schema, or path of its file, optional
            As for :meth:`open`.
        rules : str or Rules, optional
            The profile: ``"datashield"``, ``"five"``, ``"ten"``, ``"pcornet"``, or your own ``es.Rules(...)``; by default that of
            the ledger.
        ledger : Ledger, or path or URL of its folder, optional
            Where it is written down, and where differences to what was published before are looked for.

        Returns
        -------
        Published
            What may be shown, what was left out, and why.
        """
        return publish_value(source, self, schema=schema, rules=rules, ledger=ledger)

    def release(
        self,
        source: Any,
        schema: Any = None,
        *,
        epsilon: float,
        delta: float = 1e-6,
        ledger: Any = None,
        **options: Any,
    ) -> Any:
        """Open a result with noise on its totals, so that it is differentially private: nobody sees the exact ones.

        Parameters
        ----------
        source : path or fsspec URL
            Of an encrypted result or model; or what was loaded from it.
        schema : Schema, or path of its file, optional
            As for :meth:`open`.
        epsilon, delta : float
            What it costs. ``delta=0`` takes Laplace noise; otherwise whichever of Laplace and Gaussian is less.
        ledger : Ledger, or path or URL of its folder, optional
            Whose budget it is spent from, before anything is shown.
        **options
            ``relation``: ``"replace"`` (one row for another, the number of rows is public) or ``"add"`` (one row more or less).
            ``max_rows``: how many rows a person has at most, 1 by default. Both are those of the ledger where there is one, and
            others are refused. ``max_weight``: the largest weight of a row, by default the bound that the table was encrypted
            with; less is refused. ``mechanism``: ``"laplace"`` or ``"gaussian"``.

        Returns
        -------
        Release
            What the question reads from the noisy totals, and what can be said of its privacy.
        """
        return release_value(source, self, schema=schema, epsilon=epsilon, delta=delta, ledger=ledger, **options)

    def sign(self, statement: bytes) -> str:
        """A signature (Ed25519) that the public keys check: :meth:`PublicKeys.signed_by_owner`."""
        return self._signer.sign(statement)

    @property
    def decryptor(self) -> Decryptor:
        """What decrypts: for the code that opens types of its own."""
        return self._decryptor

    # -- changing keys ---------------------------------------------------------------------------------------------

    def move(
        self,
        source: Any,
        successor: Owner,
        out: str | os.PathLike[str],
        schema: Any = None,
        *,
        overwrite: bool = False,
    ) -> None:
        """Encrypt a stored table, model or result anew, for another key of yours: opened here, and nowhere else.

        Parameters
        ----------
        source : path or fsspec URL
        successor : Owner
            Of the new key. A table keeps its blocks, so the ring must be as large as before.
        out : path or fsspec URL
            Where what is encrypted anew goes.
        schema : Schema, optional
            Of a table's rows: the new key marks it as its own, as the old one did. A model or result can do without.
        overwrite : bool
            Replace what is at ``out``.
        """
        if successor.key_id == self.key_id:
            raise KeyMismatchError(f"the old and the new key are both {self.key_id}: nothing would be moved")
        move_value(source, self._decryptor, successor._encryptor, out, schema, overwrite)

    def retire(self, why: str, successor: PublicKeys | None = None) -> PublicKeys:
        """The public keys with your signed word that nothing is to be encrypted for them any more, and for which instead.

        Save them over those that you have given away, or beside: whoever loads them can compute on what there is, and encrypts
        nothing. What is encrypted already, the secret key opens as before.
        """
        said = Retirement(why, "" if successor is None else successor.key_id, "")
        keys = self.public_keys()
        retired = keys.extended(
            packing=keys._signed.get("packing"), rotation=keys._signed.get("rotation"), steps=keys.rotations
        )
        retired.retired = replace(said, signature=self._signer.sign(said.statement(self.key_id)))
        return retired

    # -- files -----------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str], passphrase: str | None = None, *, overwrite: bool = False) -> None:
        """Write the secret key to a file that only its user can read (mode 0600), locked if a passphrase is given.

        An existing file is not replaced unless ``overwrite=True``: a lost secret key is lost data.
        """
        secret = self._generator.secret_key().to_string()
        fields: dict[str, Any] = {
            "parameters": self.parameters.to_dict(),
            "rotations": list(self._steps),
            "lock": {},
        }
        if passphrase is not None:
            fields["lock"], secret = locks.lock(secret, passphrase, bind_to=self.key_id.encode())
        sections = {**self._bare_keys._own_sections(), "secret_key": secret}
        file = Container(OWNER_KIND, self.parameters.fingerprint, self.key_id, fields, sections)
        container.write(file, path, mode=PRIVATE, overwrite=overwrite)
        self.key_file = Path(path).resolve()

    @classmethod
    def load(cls, path: str | os.PathLike[str], passphrase: str | None = None) -> Owner:
        """Read a secret key, checking that it fits the public key beside it.

        A passphrase for a file that is not locked is refused: the file is not the one that it was meant for.
        """
        file = container.read(path, kind=OWNER_KIND)
        _warn_of_lax_mode(path)
        keys = PublicKeys._from_sections(file, [], {})
        secret = _load_seal(keys.engine.context.from_secret_str, _unlocked_secret(file, passphrase))
        steps = _read_rotations(file, keys.parameters)
        owner = cls.__new__(cls)
        try:
            generator = seal.KeyGenerator(keys.engine.context, secret)
            _check_pair(keys, generator)
            owner._install(generator, keys._public_key, keys._relinearisation, keys.engine, steps)
        except (RuntimeError, IndexError) as error:
            raise FileFormatError(f"the secret key of the file is malformed: {error}") from error
        if owner.key_id != keys.key_id:
            raise FileFormatError("the secret key of the file does not fit the signing key in it")
        owner.key_file = Path(path).resolve()
        return owner

    def __repr__(self) -> str:
        return f"Owner(key {self.key_id}, {self.parameters!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("an Owner is not pickled, it holds the secret key: save() it to a file that stays with you")


def _rotation_steps(rotations: Iterable[int], parameters: Parameters) -> tuple[int, ...]:
    """Rotations in order, each once, if they can be."""
    steps, half = tuple(sorted({operator.index(step) for step in rotations})), parameters.ring_degree // 2
    if any(abs(step) >= half for step in steps):
        raise ParameterError(f"rotations must be between {1 - half} and {half - 1}")
    return steps


def _read_rotations(file: Container, parameters: Parameters) -> tuple[int, ...]:
    """The rotations that an owner was planned with; files of before there were any have no list of them."""
    listed = file.fields.get("rotations", [])
    if not isinstance(listed, list) or not all(type(step) is int for step in listed):
        raise FileFormatError("the rotations of the key file are malformed")
    try:
        return _rotation_steps(listed, parameters)
    except ParameterError as error:
        raise FileFormatError(f"the rotations of the key file are malformed: {error}") from error


def _check_pair(keys: PublicKeys, generator: Any) -> None:
    """A secret key of another pair would decrypt to garbage; find out now.

    The second check is a key switch: it needs the residues for the key-switching prime, which decryption never looks at.
    """
    engine = keys.engine
    decrypt = seal.Decryptor(engine.context, generator.secret_key()).decrypt
    encrypted = keys.encryptor.seal_encrypt(engine.encode_integer(1))
    switched = engine.evaluator.relinearize(engine.evaluator.square(encrypted), generator.create_relin_keys())
    own = keys.relinearise(engine.evaluator.square(encrypted))
    fits = engine.decode_integer(decrypt(encrypted)) == 1
    if fits and keys.parameters.depth > 0:
        fits = engine.decode_integer(decrypt(switched)) == 1 and engine.decode_integer(decrypt(own)) == 1
    if not fits:
        raise FileFormatError("the secret key of the file does not fit the public key in it")


def _key_id(parameters: Parameters, public_key: bytes, relinearisation: bytes, signing_key: bytes) -> str:
    """A hash of hashes, so that no bytes of one section can be taken for those of another."""
    parts = [hashlib.sha256(part).digest() for part in (public_key, relinearisation, signing_key)]
    return hashlib.sha256(parameters.fingerprint.encode() + b"".join(parts)).hexdigest()[:KEY_ID_DIGITS]


def fingerprint_of(key_id: str) -> str:
    """A key id as it is read out: eight groups of four digits.

    >>> fingerprint_of("0123456789abcdef0123456789abcdef")
    '0123 4567 89ab cdef 0123 4567 89ab cdef'
    """
    return " ".join(key_id[start : start + 4] for start in range(0, len(key_id), 4))


def _read_retirement(file: Container, keys: PublicKeys) -> Retirement | None:
    """What the owner said when the keys were given up; refused where somebody else did."""
    said = file.fields.get("retired")
    if said is None:
        return None
    try:
        found = Retirement(**said)
        good = all(isinstance(part, str) for part in (found.why, found.successor, found.signature))
        good = good and keys.signed_by_owner(found.statement(keys.key_id), found.signature)
    except TypeError:
        good = False
    if not good:
        raise FileFormatError(
            f"the file says that key {keys.key_id} is retired, and its owner has not signed that: altered"
        )
    return found


def _signed(signer: Signer, name: str, keys: Any, steps: Sequence[int] = ()) -> Signed:
    return Signed(keys, signer.sign(_section_statement(name, steps, keys.to_string())))


def _section_statement(name: str, steps: Sequence[int], content: bytes) -> bytes:
    """What the owner signs of a section of keys."""
    return json.dumps(["encryptedstats keys", name, list(steps), hashlib.sha256(content).hexdigest()]).encode()


def _digest_of_members(sections: Mapping[str, bytes], steps: Sequence[int]) -> bytes:
    statements = (
        _section_statement(name, steps if name == "rotation" else (), sections[name]) for name in sorted(sections)
    )
    return hashlib.sha256(b"encryptedstats: keys of members" + b"".join(statements)).digest()


def _check_members(parameters: Parameters) -> None:
    """Refuse keys that claim to be joint under parameters of one member: nobody would flood results."""
    if parameters.members < 2:
        raise KeyMismatchError(
            f"keys that are marked as joint, and their parameters are for {parameters.members} member: joint keys "
            "have parameters for all of their members"
        )


def _check_signatures(keys: PublicKeys, file: Container, signatures: dict[str, Any], steps: list[int]) -> None:
    if any(signature == _OF_NOBODY for signature in signatures.values()):
        _check_members(keys.parameters)
    if signatures and all(signature == _OF_NOBODY for signature in signatures.values()):
        if _digest_of_members({name: file.section(name) for name in signatures}, steps) != keys._signing_key:
            raise FileFormatError(
                f"the packing and rotation keys of the file are not those that the members of key {keys.key_id} have made"
            )
        return
    for name, signature in signatures.items():
        statement = _section_statement(name, steps if name == "rotation" else (), file.section(name))
        if not isinstance(signature, str) or not keys.signed_by_owner(statement, signature):
            raise FileFormatError(
                f"the {name} keys of the file are not signed by the owner of key {keys.key_id}: exchanged or altered"
            )


def _warn_of_lax_mode(path: str | os.PathLike[str]) -> None:
    mode = stat.S_IMODE(os.stat(path).st_mode)
    if os.name == "posix" and mode & 0o077:
        warnings.warn(
            f"other users of this machine may read the secret key {path} (mode {mode:04o}): chmod 600 {path}",
            InsecureKeyFileWarning,
            stacklevel=3,
        )


def _check_lengths(file: Container, parameters: Parameters) -> None:
    """Keys have the length that their parameters say: a small file cannot ask for the memory of large ones."""
    primes = len(parameters.coefficient_moduli)
    one = 16 * primes * parameters.ring_degree
    if len(file.section("signing_key")) != SIGNING_KEY_BYTES:
        raise FileFormatError(f"the section 'signing_key' of the file has not {SIGNING_KEY_BYTES} bytes")
    least = {"public_key": one, "relinearisation": (primes - 1) * one}
    for name, length in least.items():
        if not length <= len(file.section(name)) <= length + 1024 * primes:
            raise FileFormatError(f"the section {name!r} of the file has not the length that its parameters say")


def read_parameters(file: Container) -> Parameters:
    """The parameters a file was made with, checked like any others and against its fingerprint."""
    try:
        parameters = Parameters.from_dict(file.expect("parameters", dict))
    except ParameterError as error:
        raise FileFormatError(f"the file has impossible parameters: {error}") from error
    if parameters.fingerprint != file.fingerprint:
        raise FileFormatError("the parameters in the file do not fit its fingerprint")
    return parameters


def check_belongs(file: Container, keys: PublicKeys, name: str = "the file") -> None:
    """Refuse to read a file with keys that are not its own, or with more than public keys."""
    if not isinstance(keys, PublicKeys):
        raise TypeError("reading encrypted results needs PublicKeys, nothing more: owner.public_keys()")
    if read_parameters(file) != keys.parameters or file.key_id != keys.key_id:
        raise KeyMismatchError(
            f"{name} belongs to key {file.key_id}, and these are keys {keys.key_id}: give the public keys of {file.key_id}",
            Cure("keys of the file", ", owner.public_keys() of its owner or es.PublicKeys.load(path)"),
            f"; only the secret key {file.key_id} opens it",
        )


def _unlocked_secret(file: Container, passphrase: str | None) -> bytes:
    lock, secret = file.expect("lock", dict), file.section("secret_key")
    if not lock and passphrase is not None:
        raise PassphraseError(
            f"this key file is not locked, and a passphrase was given for it: it holds key {file.key_id}, which may be another's. "
            "Take the file that your passphrase locks, or load this one without a passphrase if it is yours"
        )
    if not lock:
        return secret
    if passphrase is None:
        raise PassphraseError("this key file is locked: give its passphrase")
    return locks.unlock(lock, secret, passphrase, bind_to=file.key_id.encode())


def _load_seal(loader: Any, data: bytes) -> Any:
    check_seal_bytes(data)
    try:
        return loader(data)
    except (RuntimeError, ValueError, IndexError) as error:
        raise FileFormatError(f"a key in the file is malformed: {error}") from error


def _load_rotation(engine: Engine, file: Container, steps: list[int]) -> Any:
    keys = _load_seal(engine.context.from_galois_str, file.section("rotation"))
    if not all(keys.has_key(galois_element(engine.parameters.ring_degree, step)) for step in steps):
        raise FileFormatError("the rotation keys of the file do not fit its list of rotations")
    return keys


def _load_packing(engine: Engine, file: Container) -> Any:
    small = engine_for(packing.packing_parameters(engine.parameters))
    keys = _load_seal(small.context.from_galois_str, file.section("packing"))
    if not packing.has_packing_keys(keys, engine.parameters.ring_degree):
        raise FileFormatError("the packing keys of the file are not all there")
    return keys
