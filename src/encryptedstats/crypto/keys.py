"""The owner's secret key, and the public keys of a worker, which cannot decrypt.

Key generation, encryption and decryption are SEAL's own, in ``encryption``; key switching is in
``evaluator``, key files are in ``keyfiles``. Types register what ``encrypt``, ``publish`` and the
other verbs do to them in ``dispatch``.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NoReturn, Protocol

import seal

from encryptedstats.crypto import keyfiles, packing
from encryptedstats.crypto.dispatch import (
    encrypt_file_value,
    encrypt_value,
    keep_value,
    move_value,
    open_checked_value,
    open_value,
    publish_value,
    release_value,
)
from encryptedstats.crypto.encryption import Decryptor, Encryptor
from encryptedstats.crypto.engine import Engine, engine_for
from encryptedstats.crypto.evaluator import Evaluator
from encryptedstats.crypto.keyfiles import SecretMaterial, read_parameters
from encryptedstats.crypto.material import (
    KEY_ID_DIGITS,
    EvaluationKeys,
    KeyMaterial,
    Retirement,
    identify_material,
    joint_material,
    section_statement,
)
from encryptedstats.crypto.parameters import Parameters
from encryptedstats.crypto.residues import ciphertext_of, public_residues
from encryptedstats.crypto.signatures import Signer
from encryptedstats.errors import (
    ArgumentError,
    ArgumentTypeError,
    Cure,
    FileFormatError,
    KeyMismatchError,
    ParameterError,
)
from encryptedstats.storage.container import Container
from encryptedstats.storage.objects import load_file, save_file

#: Cure of every error of a key that is not used any more.
MOVE_ROWS: Final = Cure(
    "move rows", "owner.move(table, new_owner, out) brings the rows to that of new_owner"
)
_HEX_DIGITS: Final = frozenset("0123456789abcdef")


class HasParameters(Protocol):
    """Anything with chosen parameters, such as a plan."""

    @property
    def parameters(self) -> Parameters: ...


class PublicKeys:
    """Keys that encrypt and compute, and cannot decrypt: all that an untrusted computer ever gets.

    Made by :meth:`Owner.public_keys` and :meth:`load`. They are the public encryption key, the
    relinearisation keys for products, the packing keys that make results small, the requested
    rotation keys, and a key that checks the owner's signatures.
    """

    def __init__(self, material: KeyMaterial) -> None:
        self.material = material

    @classmethod
    def of_members(cls, engine: Engine, public_key: Any, evaluation: EvaluationKeys) -> PublicKeys:
        """Return the keys that members have made together. They have no owner who could sign."""
        return cls(joint_material(engine, public_key, evaluation))

    # -- facts -------------------------------------------------------------------------------------

    @property
    def engine(self) -> Engine:
        """SEAL's context, encoder and keyless evaluator."""
        return self.material.engine

    @property
    def parameters(self) -> Parameters:
        return self.material.engine.parameters

    @property
    def key_id(self) -> str:
        """The name of the key pair, the same in every file that belongs to it. It reveals nothing.

        32 hexadecimal digits: a hash of the parameters, the public key, the relinearisation keys,
        and the key that checks the owner's signatures. Packing and rotation keys are signed by the
        owner, so the key id vouches for them too.
        """
        return self.material.key_id

    @property
    def fingerprint(self) -> str:
        """The key id in groups of four, to be compared by telephone before these keys are used."""
        return fingerprint_of(self.key_id)

    @property
    def joint(self) -> bool:
        """True for the keys of several members, none of whom can decrypt alone."""
        return self.material.is_joint

    @property
    def rotations(self) -> tuple[int, ...]:
        """The slot rotations that there are keys for."""
        return self.material.evaluation.rotations

    @property
    def packs(self) -> bool:
        """True if there are keys for packing many totals into one ciphertext."""
        return self.material.evaluation.packing is not None

    @property
    def retired(self) -> Retirement | None:
        """The owner's statement that these keys are retired, or None."""
        return self.material.retirement

    @property
    def signing_key(self) -> bytes:
        """The key that checks the owner's signatures."""
        return self.material.signing_key

    def is_signed_by_owner(self, statement: bytes, signature: str) -> bool:
        """Return whether the owner of these keys has signed a statement."""
        return self.material.is_signed(statement, signature)

    @cached_property
    def public_zero(self) -> Any:
        """The public key as an encryption of 0 (BGV), the same for everybody.

        It hides nothing that is added to it.
        """
        return ciphertext_of(
            self.engine, public_residues(self.parameters, self.material.public_key.to_string())
        )

    # -- encrypting and evaluating -----------------------------------------------------------------

    @cached_property
    def evaluator(self) -> Evaluator:
        """Key switching with the evaluation keys."""
        return Evaluator(self.engine, self.material.evaluation)

    @cached_property
    def encryptor(self) -> Encryptor:
        """Encryption under the public key."""
        encrypt = seal.Encryptor(self.engine.context, self.material.public_key).encrypt
        return Encryptor(self, encrypt, with_secret_key=False, token_key=os.urandom(32))

    def encrypt(self, value: Any, **options: Any) -> Any:
        """Encrypt integers, nested lists or integer arrays with the public key.

        Anybody can; only the owner can decrypt.

        See :meth:`Owner.encrypt`, which makes ciphertexts with less noise.
        """
        self.check_in_use()
        return encrypt_value(value, self.encryptor, **options)

    def encrypt_file(
        self, path: str | os.PathLike[str], schema: Any, out: str | os.PathLike[str], **options: Any
    ) -> Any:
        """Encrypt a CSV or Parquet file into a stored table, as :meth:`Owner.encrypt_file` does.

        What was interrupted starts again: only the owner's secret lets a second run recognise the
        blocks of a first.
        """
        self.check_in_use()
        return encrypt_file_value(schema, self.encryptor, path, out, **options)

    # -- checks ------------------------------------------------------------------------------------

    def check_in_use(self) -> None:
        """Raise an error where the owner has retired these keys."""
        if self.retired is not None:
            instead = (
                f": encrypt for key {self.retired.successor}, whose file its owner has"
                if self.retired.successor
                else ""
            )
            raise KeyMismatchError(
                f"the owner has retired key {self.key_id} ({self.retired.why}){instead}",
                code="retired-key",
            )

    def check_same(self, other: PublicKeys) -> None:
        """Raise an error where the other keys are of another key pair."""
        if other is not self and other.key_id != self.key_id:
            raise KeyMismatchError(
                f"these belong to different keys ({self.key_id} and {other.key_id}): nothing can "
                "be computed across keys",
                code="other-key",
            )

    def check_fingerprint(self, expected: str, name: str = "these") -> None:
        """Raise an error where the fingerprint is not that of these keys."""
        digits = "".join(expected.replace("-", " ").split()).lower()
        if len(digits) != KEY_ID_DIGITS or not set(digits) <= _HEX_DIGITS:
            raise ArgumentError(
                f"{expected!r} is no fingerprint: it has {KEY_ID_DIGITS} hexadecimal digits",
                code="not-a-fingerprint",
            )
        if digits != self.key_id:
            raise KeyMismatchError(
                f"{name} holds the keys {self.fingerprint}, and those of {fingerprint_of(digits)} "
                "are expected: do not use them, "
                "ask their owner for the right file",
                code="other-fingerprint",
            )

    # -- files -------------------------------------------------------------------------------------

    def to_container(self) -> Container:
        """Return the public keys as a checked envelope of bytes."""
        return keyfiles.public_container(self.material)

    @classmethod
    def from_container(cls, file: Container) -> PublicKeys:
        """Read what :meth:`to_container` made."""
        return cls(keyfiles.read_public(file))

    def save(self, url: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the public keys to a path or fsspec URL; the file may be given to anybody."""
        save_file(self.to_container(), url, overwrite=overwrite)

    @classmethod
    def load(cls, url: str | os.PathLike[str], *, fingerprint: str | None = None) -> PublicKeys:
        """Read public keys from a path or fsspec URL, checking every part.

        ``fingerprint`` is what their owner has read to you by telephone, in groups or not: other
        keys are refused.
        """
        keys = cls.from_container(load_file(url, kind=keyfiles.PUBLIC_KIND))
        if fingerprint is not None:
            keys.check_fingerprint(fingerprint, str(url))
        return keys

    def __repr__(self) -> str:
        more = "" if self.packs else ", no packing keys"
        return (
            f"PublicKeys(key {self.key_id}, {self.parameters!r}, "
            f"rotations={list(self.rotations)}{more})"
        )

    def __reduce__(self) -> NoReturn:
        raise ArgumentTypeError(
            "PublicKeys are not pickled: save() them to a file and load() that", code="not-pickled"
        )


class Owner:
    """The holder of the secret key, who encrypts and is the only one to decrypt.

    Parameters
    ----------
    parameters : Parameters
        Or an object with an attribute ``parameters``, such as a plan. If it also has ``rotations``,
        :meth:`public_keys` and encrypted tables get keys for them, so that every planned
        computation can run.

    Examples
    --------
    >>> import encryptedstats as es
    >>> owner = es.Owner(es.Parameters.choose(max_value=1000, depth=1))
    >>> x = owner.encrypt([3, 4])
    >>> owner.open(x @ x + 1)
    26
    """

    #: The file that the key was saved to or loaded from last; ledgers are noted beside it.
    key_file: Path | None = None
    #: What is kept for spot checks: see :mod:`encryptedstats.spotcheck.kept`.
    _kept: Any = None
    #: The owner's own statement that these keys are retired, or None: see :meth:`_retire_here`.
    retired: Retirement | None = None

    def __init__(self, parameters: Parameters | HasParameters) -> None:
        rotations: Iterable[int] = ()
        if not isinstance(parameters, Parameters):
            rotations, parameters = (
                getattr(parameters, "rotations", ()),
                getattr(parameters, "parameters", parameters),
            )
        if not isinstance(parameters, Parameters):
            raise ArgumentTypeError(
                f"Owner needs Parameters, not {type(parameters).__name__}: see Parameters.choose",
                code="not-parameters",
            )
        if parameters.depth < 0:
            raise ParameterError(
                f"not even an encryption is proven to decrypt with {parameters!r}: take larger "
                "primes",
                code="not-proven",
            )
        engine = engine_for(parameters)
        generator = seal.KeyGenerator(engine.context)
        steps = keyfiles.check_rotations(rotations, parameters)
        evaluation = EvaluationKeys(generator.create_relin_keys())
        self._install(engine, generator, generator.create_public_key(), evaluation, steps)

    def _install(
        self,
        engine: Engine,
        generator: Any,
        public_key: Any,
        evaluation: EvaluationKeys,
        steps: tuple[int, ...],
    ) -> None:
        """Take the keys of a pair, and derive everything else from the secret one."""
        self._generator, self._steps = generator, steps
        secret = generator.secret_key()
        # The seed of the signing key is as secret as the secret key, and neither follows from the
        # other's public part.
        self._signer = Signer(
            hashlib.sha256(b"encryptedstats: signatures of the owner" + secret.to_string()).digest()
        )
        bare = identify_material(engine, public_key, evaluation, self._signer.public_bytes)
        packing_keys = packing.make_packing_keys(engine.parameters, secret)
        self._bare_keys = self._sign(bare, replace(evaluation, packing=packing_keys))
        token_key = hashlib.sha256(
            b"encryptedstats: keyed hashes of plain data" + secret.to_string()
        ).digest()
        small = engine_for(packing.packing_parameters(engine.parameters))
        packed = seal.Decryptor(small.context, packing.packing_secret(engine.parameters, secret))
        whole = seal.Decryptor(engine.context, secret)
        self._decryptor = Decryptor(
            self._bare_keys,
            whole.decrypt,
            packed.decrypt,
            token_key,
            whole.invariant_noise_budget,
        )

    def _sign(self, material: KeyMaterial, evaluation: EvaluationKeys) -> PublicKeys:
        """Return public keys with other evaluation keys, signed where they are not yet."""
        signatures = {}
        for name, keys in evaluation.galois().items():
            known = material.signatures.get(name)
            signatures[name] = known or self._signer.sign(
                section_statement(name, evaluation.rotations, keys.to_string())
            )
        return PublicKeys(replace(material, evaluation=evaluation, signatures=signatures))

    def _keys_with(self, steps: tuple[int, ...], *, packs: bool = True) -> PublicKeys:
        material, rotation = self._bare_keys.material, None
        if steps:
            rotation = seal.GaloisKeys()
            self._generator.create_galois_keys(list(steps), rotation)
        packing_keys = material.evaluation.packing if packs else None
        evaluation = EvaluationKeys(
            material.evaluation.relinearisation, packing_keys, rotation, steps
        )
        return self._sign(material, evaluation)

    @cached_property
    def _keys(self) -> PublicKeys:
        """The public keys with all planned rotations, made on first use: decrypting needs none."""
        return self._keys_with(self._steps) if self._steps else self._bare_keys

    @cached_property
    def _encryptor(self) -> Encryptor:
        return Encryptor.of_owner(
            self._keys, self._generator.secret_key(), self._decryptor.token_key, self._signer
        )

    @property
    def parameters(self) -> Parameters:
        return self._bare_keys.parameters

    @property
    def key_id(self) -> str:
        """The name of the key pair, as in every file that belongs to it."""
        return self._bare_keys.key_id

    @property
    def fingerprint(self) -> str:
        """The key id in groups of four, to be read out to those who get your public keys."""
        return self._bare_keys.fingerprint

    @property
    def decryptor(self) -> Decryptor:
        """Decryption, for the code that opens types of its own."""
        return self._decryptor

    def public_keys(
        self, rotations: Iterable[int] | None = None, *, packing: bool = True
    ) -> PublicKeys:
        """Return the keys for a worker, which encrypt and compute and cannot decrypt.

        Parameters
        ----------
        rotations : iterable of int, optional
            Slot rotations that the worker will need (0 swaps the two half rows). Each costs a key
            of some megabytes, so none is made unless asked for; arithmetic on integers and arrays
            needs none. By default those of the plan that the owner was made with.
        packing : bool
            Include the keys that let a worker pack many totals into one ciphertext (a few
            megabytes).
        """
        steps = (
            self._steps
            if rotations is None
            else keyfiles.check_rotations(rotations, self.parameters)
        )
        if packing and steps in (self._steps, ()):
            return self._keys if steps else self._bare_keys
        return self._keys_with(steps, packs=packing)

    def sign(self, statement: bytes) -> str:
        """Return an Ed25519 signature, checked by :meth:`PublicKeys.is_signed_by_owner`."""
        return self._signer.sign(statement)

    # -- encrypting and opening --------------------------------------------------------------------

    def encrypt(self, value: Any, *, spot_check: bool = False, **options: Any) -> Any:
        """Encrypt with the secret key, which gives less noise than the public one.

        Parameters
        ----------
        value : int, nested list or integer array
        spot_check : bool
            Of a table: keep its residues at secret positions, a few percent of it, so that
            ``open(answer, verify="spot", on=...)`` finds a worker that lies. They lie beside the
            file of the key, and are lost with it.
        bound : int, optional
            For integers and arrays: a public bound on every absolute value. The worker needs
            it to prove that nothing overflows, so it is stored in the clear. By default it is the
            power of two (at least 16) that covers the largest absolute value: give it yourself
            where even that says too much.

        Returns
        -------
        EncryptedInteger or EncryptedArray
        """
        self.check_in_use()
        keep = keep_value(value, self, **options) if spot_check else None
        made = encrypt_value(value, self._encryptor, **options)
        if keep is not None:
            keep(made)
        return made

    def encrypt_file(
        self,
        path: str | os.PathLike[str],
        schema: Any,
        out: str | os.PathLike[str],
        *,
        spot_check: bool = False,
        **options: Any,
    ) -> Any:
        """Encrypt a CSV or Parquet file into a stored table.

        The file may be larger than memory. Running again resumes.

        Parameters
        ----------
        path : path of the file
        schema : Schema
        out : path or fsspec URL
            Where the encrypted table goes.
        spot_check : bool
            See :meth:`encrypt`; the table is read once more.
        **options
            See :func:`encryptedstats.tables.encryption.encrypt_file`.
        """
        self.check_in_use()
        keep = keep_value(schema, self, **options) if spot_check else None
        made = encrypt_file_value(schema, self._encryptor, path, out, **options)
        if keep is not None:
            keep(made)
        return made

    def open(
        self, source: Any, schema: Any = None, *, verify: str | None = None, **options: Any
    ) -> Any:
        """Decrypt an integer, array, answer or model that belongs to this key.

        Parameters
        ----------
        source : path, fsspec URL or encrypted object
            The file of a result, which is loaded first, or the result itself.
        schema : Schema, or path of its file, optional
            The schema that the rows were encrypted with. Answers and models use its names instead
            of ``v0``, ``v1``, ...; integers and arrays ignore it.
        verify : "spot", optional
            Ask the worker for random combinations of its sums, and compare them with what was kept
            when the rows were encrypted with ``spot_check=True``: a wrong answer passes with
            probability 2^-40 at most. By default nothing is checked but that totals are possible.
        **options
            For ``verify="spot"``: see :func:`encryptedstats.spotcheck.opening.open_checked`.

        Returns
        -------
        int, array, Result, DataFrame or fitted model
            What the question makes of its totals, with the values that the clear table would give.
        """
        self.check_in_use()
        if verify is None and not options:
            return open_value(source, self._decryptor, schema)
        if verify != "spot":
            raise ArgumentError(
                f"verify={verify!r}: it can be 'spot'; es.verify computes an answer again",
                code="unknown-verification",
            )
        return open_checked_value(source, self, schema, **options)

    def publish(self, source: Any, schema: Any = None, **options: Any) -> Any:
        """Open a result as far as disclosure rules let others see it.

        Small counts and what would give them away are left out.

        Options are those of :func:`encryptedstats.publishing.publish.publish`: ``rules=`` and
        ``ledger=``.
        """
        self.check_in_use()
        return publish_value(source, self, schema=schema, **options)

    def release(self, source: Any, schema: Any = None, **options: Any) -> Any:
        """Open a result with noise on its totals, so that it is differentially private.

        Nobody sees the exact totals.

        Options are those of :func:`encryptedstats.publishing.release.release`: ``epsilon=``,
        ``delta=``, ``ledger=`` and others.
        """
        self.check_in_use()
        return release_value(source, self, schema=schema, **options)

    # -- changing keys -----------------------------------------------------------------------------

    def move(
        self,
        source: Any,
        successor: Owner,
        out: str | os.PathLike[str],
        schema: Any = None,
        **options: Any,
    ) -> None:
        """Encrypt a stored table, model or result anew for another key of yours.

        It is opened here and nowhere else.

        Options are those of :func:`encryptedstats.moving.move`: ``overwrite=``.
        """
        move_value(source, self._decryptor, successor._encryptor, out, schema, **options)

    def retire(self, why: str, successor: PublicKeys | None = None) -> PublicKeys:
        """Return the public keys with your signed statement that they are retired.

        Replace the files that you have given away by them. They can compute on existing data, and
        encrypt nothing. The secret key opens existing data as before.
        """
        said = self._retirement(why, "" if successor is None else successor.key_id)
        return PublicKeys(replace(self.public_keys().material, retirement=said))

    def _retirement(self, why: str, successor: str) -> Retirement:
        said = Retirement(why, successor, "")
        return replace(said, signature=self._signer.sign(said.statement(self.key_id)))

    def _retire_here(self, why: str) -> None:
        """Retire the keys without telling anybody: this owner, and all that load the key file,
        encrypt and open nothing with them any more. :meth:`move` still does.
        """
        self.retired = self._retirement(why, "")
        if self.key_file is not None:
            with suppress(OSError):  # a key may lie where nothing can be written
                keyfiles.mark_retired(self.key_file, self.retired)

    def check_in_use(self) -> None:
        """Raise an error where these keys were retired here."""
        if self.retired is not None:
            raise KeyMismatchError(
                f"key {self.key_id} is retired ({self.retired.why}): nothing is encrypted or "
                "opened with it. A new key is needed: ",
                MOVE_ROWS,
                code="retired-key",
            )

    # -- files -------------------------------------------------------------------------------------

    def save(
        self,
        path: str | os.PathLike[str],
        passphrase: str | None = None,
        *,
        overwrite: bool = False,
    ) -> None:
        """Write the secret key to a file with mode 0600, locked if a passphrase is given.

        An existing file is not replaced unless ``overwrite=True``: a lost secret key is lost data.
        """
        public = replace(self._bare_keys.material, retirement=self.retired)
        material = SecretMaterial(public, self._generator.secret_key(), self._steps)
        keyfiles.write_secret(material, path, passphrase, overwrite=overwrite)
        self.key_file = Path(path).resolve()
        if self._kept is not None:
            self._kept.save_beside(self.key_file)

    @classmethod
    def load(cls, path: str | os.PathLike[str], passphrase: str | None = None) -> Owner:
        """Read a secret key, checking that it fits the public key beside it.

        A passphrase for a file that is not locked is refused: the file is not the one that it was
        meant for.
        """
        file = keyfiles.read_secret(path, passphrase)
        public, owner = file.public, cls.__new__(cls)
        try:
            generator = seal.KeyGenerator(public.engine.context, file.secret)
            keyfiles.check_pair(public, generator)
            owner._install(
                public.engine, generator, public.public_key, public.evaluation, file.rotations
            )
        except (RuntimeError, IndexError) as error:
            raise FileFormatError(
                f"the secret key of the file is malformed: {error}", code="malformed-key"
            ) from error
        if owner.key_id != public.key_id:
            raise FileFormatError(
                "the secret key of the file does not fit the signing key in it",
                code="signing-key-mismatch",
            )
        owner.key_file, owner.retired = Path(path).resolve(), public.retirement
        return owner

    def __repr__(self) -> str:
        return f"Owner(key {self.key_id}, {self.parameters!r})"

    def __reduce__(self) -> NoReturn:
        raise ArgumentTypeError(
            "an Owner is not pickled, it holds the secret key: save() it to a file that stays "
            "with you",
            code="not-pickled",
        )


def fingerprint_of(key_id: str) -> str:
    """Write a key id as it is read out: eight groups of four digits.

    >>> fingerprint_of("0123456789abcdef0123456789abcdef")
    '0123 4567 89ab cdef 0123 4567 89ab cdef'
    """
    return " ".join(key_id[start : start + 4] for start in range(0, len(key_id), 4))


def check_belongs(file: Container, keys: PublicKeys, name: str = "the file") -> None:
    """Raise an error for a file of other keys, or where more than public keys are given."""
    if not isinstance(keys, PublicKeys):
        raise ArgumentTypeError(
            "reading encrypted results needs PublicKeys, nothing more: owner.public_keys()",
            code="not-public-keys",
        )
    if read_parameters(file) != keys.parameters or file.key_id != keys.key_id:
        raise KeyMismatchError(
            f"{name} belongs to key {file.key_id}, and these are keys {keys.key_id}: give the "
            f"public keys of {file.key_id}",
            Cure(
                "keys of the file", ", owner.public_keys() of its owner or es.PublicKeys.load(path)"
            ),
            f"; only the secret key {file.key_id} opens it",
        )


def reading_keys(file: Container) -> PublicKeys:
    """Return keys to read an encrypted file with, from the file alone: nothing is computed with
    them.
    """
    engine = engine_for(read_parameters(file))
    return PublicKeys(KeyMaterial(engine, None, EvaluationKeys(None), b"", file.key_id))


def read_encryptor(data: bytes) -> Encryptor:
    """Read what :meth:`Encryptor.to_bytes` wrote, without the signing key."""
    material, secret, token_key = keyfiles.read_encryptor(data)
    keys = PublicKeys(material)
    if secret is None:
        return replace(keys.encryptor, token_key=token_key)
    return Encryptor.of_owner(keys, secret, token_key, None)
