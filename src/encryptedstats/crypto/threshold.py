"""A joint key that nobody ever holds: threshold BGV, N of N members. Experimental. All cryptography of it is in this file.

The secret is s = s_1 + ... + s_n, one ternary secret of SEAL for each member, and is never computed. ``docs/threshold.md`` has the
protocol with its proofs, assumptions (members that follow it, channels that are authentic, circular security) and attacks.

Every secret and every error here is drawn by SEAL. What SEAL draws is turned into what the protocols need by one identity. A
fresh SEAL public key under a secret s is (-(a s + t e), a) with a polynomial a of SEAL's choice; for any other polynomial x,

    sample(s, x)  =  -(a s + t e) + (a - x) s  =  -(x s + t e),

with the same error: the key is *re-based* on x (:mod:`encryptedstats.crypto.seeded` does the same with ciphertexts). With w_i,
the number that is the key-switching prime modulo the i-th prime and 0 modulo all others, and a, a_i, a_gi from a common string:

    public key         b   = sample(s_j, a)                                          (sum over members, a)
    Galois keys        g_i = sample(s_j, a_gi) + w_i s_j(X^g)                        (sum over members, a_gi)
    relinearisation 1  h_i = sample(u_j, a_i) + w_i s_j,   k_i = -sample(s_j, a_i)   H_i, K_i = sums over members
    relinearisation 2  r_i = -sample(s_j, H_i) + sample(s_j, K_i) - sample(u_j, K_i)  (sum over members, K_i)
    opening            d   = c_1 s_j + t f, f uniform and 2^64 times as wide as the noise of the ciphertext

u_j is a second secret, used once. A Galois key of SEAL, re-based digit by digit, is g_i. Own code is: expanding the common string,
the multiply-add of re-basing, sums of residues, writing residues in SEAL's form, and the flooding f (``crypto/flooding.py``).

**Once.** Whatever a member sends is stored first, in a file that nobody else reads, and sent again as it is. A second share of a
ciphertext (of a c_1), or for the same question over the same rows, is never computed; nor a second message of a round.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

import numpy as np
import seal

from encryptedstats.crypto import packing
from encryptedstats.crypto.dispatch import openable
from encryptedstats.crypto.engine import HEADER_BYTES, Engine, engine_for
from encryptedstats.crypto.flooding import flooded_noise, flooding_polynomial, flooding_width
from encryptedstats.crypto.kernels import galois_element, switching_keys, with_switching_keys
from encryptedstats.crypto.keyfiles import read_parameters
from encryptedstats.crypto.keys import HasParameters, Owner, PublicKeys
from encryptedstats.crypto.material import EvaluationKeys
from encryptedstats.crypto.noise import Noise, NoiseModel
from encryptedstats.crypto.parameters import MAX_MEMBERS, Parameters
from encryptedstats.crypto.residues import Residues, residues_from_bytes, residues_to_bytes, secret_residues
from encryptedstats.crypto.seeded import SEED_BYTES, SecretFactor, expand_seeds
from encryptedstats.errors import (
    Cure,
    FileFormatError,
    KeyMismatchError,
    MemberError,
    NoiseError,
    ParameterError,
    PassphraseError,
)
from encryptedstats.storage import container
from encryptedstats.storage import passphrase as locks
from encryptedstats.storage.container import Container
from encryptedstats.storage.files import PRIVATE, locked
from encryptedstats.storage.objects import load_file, save_file

if TYPE_CHECKING:
    from typing_extensions import Self

JOINT_KIND: Final = "joint key"
COMMITMENT_KIND: Final = "commitment of a member"
CONTRIBUTION_KIND: Final = "contribution of a member"
RELINEARISATION_KIND: Final = "relinearisation of a member"
SHARE_KIND: Final = "share of a member"
SHARES_KIND: Final = "shares of a member"
MEMBER_KIND: Final = "secret of a member"
SEEN_KIND: Final = "commitments that a member has seen"
MAX_NAME: Final = 200
#: What messages say beside their member.
_FIELDS: Final = {
    COMMITMENT_KIND: ("digest",),
    RELINEARISATION_KIND: ("transcript",),
    SHARE_KIND: ("packs", "receiver"),
}
Messages = Mapping[str, bytes]
Pack = tuple[Residues, Noise]


class Openable(Protocol):
    """What members may open together: packed totals, and votes."""

    @property
    def keys(self) -> PublicKeys:
        """The joint public keys."""

    def packs(self) -> Sequence[Pack]:
        """Its ciphertexts, under as many of the first primes as they have, with what is proven of their noise there; refused where
        they hold anything but numbers that may be opened."""

    def with_packs(self, keys: PublicKeys, packs: Sequence[Pack]) -> Self:
        """The same under other keys."""


class OpenableAnswer(Openable, Protocol):
    """What answers a question."""

    def verified(self, question: Any, table: Any, rows: Any = None) -> Self:
        """The same, computed anew from the table (without it, as it is), votes of a model of the table for the rows: refused where
        it is not the answer to the question."""

    def statement(self) -> bytes:
        """What it answers, of which rows."""


class JointKey:
    """What the members of a joint key agree on before they make it: who they are, the parameters, and a label that is used once.

    Parameters
    ----------
    members : sequence of str
        Their names: all of them are needed for every opening.
    parameters : Parameters or Plan
        Of ``es.plan(..., members=len(members))``.
    label : str, optional
        What tells this key from every other one that the same members make; random by default.

    Examples
    --------
    >>> import encryptedstats as es
    >>> parameters = es.Parameters.choose(max_value=1000, depth=0)
    >>> es.JointKey(["north", "south"], parameters)
    Traceback (most recent call last):
    ...
    encryptedstats.errors.ParameterError: these parameters are for 1 members and there are 2: es.plan(..., members=2)
    """

    def __init__(
        self, members: Sequence[str], parameters: Parameters | HasParameters, *, label: str | None = None
    ) -> None:
        rotations = () if isinstance(parameters, Parameters) else getattr(parameters, "rotations", ())
        parameters = parameters if isinstance(parameters, Parameters) else parameters.parameters
        self.members = tuple(members)
        self.parameters = parameters
        self.rotations = tuple(sorted({int(step) for step in rotations}))
        self.label = secrets.token_hex(16) if label is None else label
        good = all(isinstance(m, str) and m.isprintable() and 0 < len(m) <= MAX_NAME for m in self.members)
        if not good or len(set(self.members)) != len(self.members) or not 2 <= len(self.members) <= MAX_MEMBERS:
            raise ValueError(f"members={list(members)!r}: 2 to {MAX_MEMBERS} different names are needed")
        if parameters.members != len(self.members):
            raise ParameterError(
                f"these parameters are for {parameters.members} members and there are {len(self.members)}: ",
                plan_for(len(self.members)),
            )

    @cached_property
    def id(self) -> str:
        """A hash of all of it, which every message carries."""
        agreed = [self.label, list(self.members), self.parameters.fingerprint, list(self.rotations)]
        return hashlib.sha256(b"encryptedstats joint key" + json.dumps(agreed).encode()).hexdigest()

    # -- making the public keys -----------------------------------------------------------------------------------------

    def public_keys(self, commitments: Messages, contributions: Messages, relinearisations: Messages) -> PublicKeys:
        """The public keys that the messages of all members make: the same for everybody who has these."""
        given = self.checked_contributions(self.digests(commitments), contributions)
        last = self._read(RELINEARISATION_KIND, relinearisations)
        for member, message in last.items():
            if message.fields["transcript"] != self.transcript(contributions):
                raise MemberError(f"the relinearisation of {member} was made for other contributions than these")
        engine, moduli = engine_for(self.parameters), self.parameters.coefficient_moduli
        template = seal.KeyGenerator(engine.context)  # for the form of SEAL's bytes alone
        first = self._summed(given, "public", moduli, 1)
        body = np.concatenate([first, self.common("public", 0, engine)[None]])
        public = template.create_public_key().to_string()[:HEADER_BYTES] + body.astype("<u8").tobytes()
        digits = len(moduli) - 1
        relinearisation = np.stack(
            [self._summed(last, "both", moduli, digits), self._summed(given, "second", moduli, digits)], axis=1
        )
        data = with_switching_keys(template.create_relin_keys().to_string(), {0: relinearisation})
        galois = {name: self._galois_keys(given, name) for name in self.galois}
        evaluation = EvaluationKeys(
            engine.context.from_relin_str(data), galois["packing"], galois.get("rotation"), self.rotations
        )
        return PublicKeys.of_members(engine, engine.context.from_public_str(public), evaluation)

    @property
    def galois(self) -> dict[str, tuple[Engine, list[int]]]:
        """The contexts of Galois keys and their rotations, by the name of their section."""
        small = engine_for(packing.packing_parameters(self.parameters))
        found = {"packing": (small, packing.packing_steps(self.parameters.ring_degree))}
        return found | ({"rotation": (engine_for(self.parameters), list(self.rotations))} if self.rotations else {})

    def _galois_keys(self, given: Mapping[str, Container], name: str) -> Any:
        engine, steps = self.galois[name]
        places = self.galois_places(name)
        moduli = engine.parameters.coefficient_moduli
        first = self._summed(given, name, moduli, len(places))
        keys: dict[int, list[Residues]] = {}
        for polynomial, (index, digit) in zip(first, places, strict=True):
            common = self.common(f"{name} {index}", digit, engine)
            keys.setdefault(index, []).append(np.stack([polynomial, common]))
        template = seal.GaloisKeys()
        seal.KeyGenerator(engine.context).create_galois_keys(steps, template)
        stacked = {index: np.stack(digits) for index, digits in keys.items()}
        return engine.context.from_galois_str(with_switching_keys(template.to_string(), stacked))

    def galois_places(self, name: str) -> list[tuple[int, int]]:
        """SEAL's index of a key, and the digit, of every polynomial of a section of Galois keys."""
        engine, steps = self.galois[name]
        indices = sorted({galois_element(self.parameters.ring_degree, step) // 2 for step in steps})
        return [(index, digit) for index in indices for digit in range(len(engine.parameters.data_moduli))]

    def common(self, name: str, digit: int, engine: Engine) -> Residues:
        """A polynomial of the common string, (primes, N): uniform, and nobody's choice. SHAKE-256 of the id, name and digit."""
        label = b"encryptedstats joint key: common polynomial" + json.dumps([self.id, name, digit]).encode()
        moduli = engine.parameters.coefficient_moduli
        out = np.empty((1, 1, len(moduli), self.parameters.ring_degree), dtype=np.uint64)
        expand_seeds(hashlib.sha256(label).digest()[:SEED_BYTES], moduli, out)
        polynomial: Residues = out[0, 0]
        return polynomial

    # -- opening -----------------------------------------------------------------------------------------------------------

    def combined(self, answer: Openable, shares: Messages, receiver: PublicKeys) -> Any:
        """The answer under the receiver's key, from the shares that all members have made for this receiver.

        ``owner.open`` of the receiver's then opens it like any other.
        """
        found: Openable = openable(answer)
        return found.with_packs(receiver, self.switched(found.packs(), shares, receiver.key_id))

    def open(self, answer: Openable, shares: Messages, schema: Any = None) -> Any:
        """What the answer says, from shares that were made without a receiver: whoever has all of them reads it."""
        owner, found = Owner(self.parameters), openable(answer)
        keys, moduli = owner.public_keys(), self.moduli_of(found.packs())
        level = len(self.parameters.data_moduli) - len(moduli)
        packs = [
            (_added(residues, keys.encryptor.encrypt_zero(level), moduli), noise)
            for residues, noise in self.switched(found.packs(), shares, "")
        ]
        return owner.open(found.with_packs(keys, packs), schema)

    def switched(self, packs: Sequence[Pack], shares: Messages, receiver: str) -> list[Pack]:
        """Every pack with c_1 s taken in: under the key of the receiver with this id, or (the second polynomial 0) under none."""
        given = self._read(SHARE_KIND, shares)
        for member, message in given.items():
            if message.fields["packs"] != packs_digest(packs):
                raise MemberError(f"the share of {member} was made for another ciphertext than this answer's")
            if message.fields["receiver"] != receiver:
                whom = receiver or "whoever has all shares"
                raise MemberError(f"the share of {member} was not made for the receiver that is given, {whom}")
        moduli, each = self.moduli_of(packs), 2 if receiver else 1
        model, zero = self.model_of(moduli), packing.encrypted_zero_noise(self.parameters, len(moduli))
        summed = self._summed(given, "packs", moduli, each * len(packs)).reshape(len(packs), each, len(moduli), -1)
        switched = []
        for (residues, noise), share in zip(packs, summed, strict=True):
            both = np.zeros_like(residues)
            both[0] = residues[0]
            both[:each] = _added(both[:each], share, moduli)
            switched.append((both, flooded_noise(model, noise, zero)))
        return switched

    def moduli_of(self, packs: Sequence[Pack]) -> tuple[int, ...]:
        """The primes that packs are under: as many of the first ones as all of them have."""
        counts = {residues.shape[1] for residues, _ in packs}
        if len(counts) != 1 or any(len(residues) != 2 for residues, _ in packs):
            raise MemberError("ciphertexts that are opened together are of two polynomials, under the same primes")
        return self.parameters.data_moduli[: counts.pop()]

    def model_of(self, moduli: Sequence[int]) -> NoiseModel:
        """The noise rules under so many primes."""
        return packing.packing_model(self.parameters, len(moduli))

    # -- messages ----------------------------------------------------------------------------------------------------------

    def message(self, kind: str, member: str, fields: Mapping[str, Any], sections: Mapping[str, bytes]) -> Container:
        """A message of a member, bound to this key and its round."""
        return Container(kind, self.parameters.fingerprint, self.id, {"member": member, **fields}, sections)

    def digests(self, commitments: Messages) -> dict[str, str]:
        """To what every member has committed."""
        return {name: message.fields["digest"] for name, message in self._read(COMMITMENT_KIND, commitments).items()}

    def transcript(self, messages: Messages) -> str:
        """A hash of one message of every member."""
        return _digest("".join(_digest(messages[member]) for member in self.members).encode())

    def checked_contributions(self, digests: Mapping[str, str], contributions: Messages) -> dict[str, Container]:
        """The contributions, if they are what their members have committed to."""
        given = self._read(CONTRIBUTION_KIND, contributions)
        for member in given:
            if _digest(contributions[member]) != digests.get(member):
                raise MemberError(f"the contribution of {member} is not the one that {member} committed to")
        return given

    def _read(self, kind: str, messages: Messages) -> dict[str, Container]:
        """One message of every member, in order; whoever sent anything else is named."""
        missing = [member for member in self.members if member not in messages]
        unknown = [str(member) for member in messages if member not in self.members]
        if missing or unknown:
            who = f"there is none of {', '.join(missing)}" if missing else f"{', '.join(unknown)} is no member"
            raise MemberError(f"a {kind} is needed, from each of {', '.join(self.members)}: {who}")
        return {member: self.read(kind, member, messages[member]) for member in self.members}

    def read(self, kind: str, member: str, data: bytes) -> Container:
        """A message, if it is this member's, of this round and of this key."""
        try:
            message = container.from_bytes(data, kind=kind, name=f"the message of {member}")
        except FileFormatError as error:
            raise MemberError(f"what came from {member} is refused: {error}") from error
        if message.key_id != self.id or message.fingerprint != self.parameters.fingerprint:
            raise MemberError(
                f"the message of {member} belongs to another joint key: other members, parameters or another label"
            )
        if not all(isinstance(message.fields.get(field), str) for field in ("member", *_FIELDS.get(kind, ()))):
            raise MemberError(f"what came from {member} is refused: it does not say all that a {kind} says")
        if message.fields["member"] != member:
            raise MemberError(f"the message that is to be {member}'s is {message.fields['member']}'s")
        return message

    def _summed(
        self, given: Mapping[str, Container], section: str, moduli: Sequence[int], polynomials: int
    ) -> Residues:
        """A section of all members, added up, (polynomials, primes, N)."""
        total = np.zeros((polynomials, len(moduli), self.parameters.ring_degree), dtype=np.uint64)
        for member, message in given.items():
            try:
                one = residues_from_bytes(
                    message.section(section), moduli, self.parameters.ring_degree, polynomials=polynomials
                )
            except FileFormatError as error:
                raise MemberError(f"what came from {member} is refused: {error}") from error
            if (one >= _column(moduli)).any():
                raise MemberError(f"what came from {member} is refused: residues that are not below their primes")
            total = _added(total, one, moduli)
        return total

    # -- files ---------------------------------------------------------------------------------------------------------------

    def to_container(self) -> Container:
        """What is agreed on, as a checked envelope of bytes."""
        fields = {
            "members": list(self.members),
            "parameters": self.parameters.to_dict(),
            "rotations": list(self.rotations),
            "label": self.label,
        }
        return Container(JOINT_KIND, self.parameters.fingerprint, self.id, fields)

    @classmethod
    def from_container(cls, file: Container) -> JointKey:
        """The inverse."""
        members, steps = file.expect("members", list), file.expect("rotations", list)
        try:
            joint = cls(members, read_parameters(file), label=file.expect("label", str))
            joint.rotations = tuple(sorted({int(step) for step in steps}))
        except (TypeError, ValueError) as error:
            raise FileFormatError(f"the file has a joint key that cannot be: {error}") from error
        if joint.id != file.key_id:
            raise FileFormatError("the joint key of the file does not fit its id")
        return joint

    def save(self, url: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write what is agreed on to a path or fsspec URL: everybody may read it."""
        save_file(self.to_container(), url, overwrite=overwrite)

    @classmethod
    def load(cls, url: str | os.PathLike[str]) -> JointKey:
        """Read what was agreed on."""
        return cls.from_container(load_file(url, kind=JOINT_KIND))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JointKey) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"JointKey({', '.join(self.members)}, {self.id[:16]}, {self.parameters!r})"


class Member:
    """One member of a joint key, with her secret: makes her part of the keys, and her share of every opening.

    Parameters
    ----------
    home : path of a folder
        Where her secret and all that she has sent are kept, readable to her alone. Made when it is not there; loaded when it is.
        Whoever copies or restores it must never use both: a share is made once.
    joint : JointKey
    name : str
        Which of the members she is.
    passphrase : str, optional
        Locks her secret, from the first time on.
    """

    def __init__(
        self, home: str | os.PathLike[str], joint: JointKey, name: str, *, passphrase: str | None = None
    ) -> None:
        if name not in joint.members:
            raise ValueError(f"{name!r} is no member: there are {', '.join(joint.members)}")
        self.joint, self.name, self.home = joint, name, Path(home)
        self._passphrase, self._opened = passphrase, dict[str, bytes]()
        self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        with locked(self.home / "lock"):
            if self._stored("secret", MEMBER_KIND) is None:
                # The one that stays last: as long as it is not there, nothing was made of either.
                for part in ("second", "secret"):
                    if self._stored(part, MEMBER_KIND) is None:
                        self._store(part, self._locked_key(part))

    # -- making the public keys -----------------------------------------------------------------------------------------------

    def commit(self) -> bytes:
        """The first message: a hash of the second. Nobody shows hers before all have committed to theirs."""
        digest = _digest(self._contribution())
        return container.to_bytes(self.joint.message(COMMITMENT_KIND, self.name, {"digest": digest}, {}))

    def contribute(self, commitments: Messages) -> bytes:
        """The second message, once all have committed: her part of the public key, the Galois keys, and of relinearisation."""
        digests, own = self.joint.digests(commitments), self._contribution()
        if digests[self.name] != _digest(own):
            raise MemberError(
                f"the commitment that is said to be {self.name}'s is not hers: it was exchanged on its way"
            )
        seen = self.joint.message(SEEN_KIND, self.name, {"digests": digests}, {})
        with locked(self.home / "lock"):
            stored = self._stored("commitments", SEEN_KIND)
            if stored is not None and stored.fields["digests"] != digests:
                raise MemberError(
                    f"{self.name} has shown her contribution after other commitments than these: the members begin anew, with "
                    "another label"
                )
            if stored is None:
                self._store("commitments", seen)
        return own

    def relinearise(self, contributions: Messages) -> bytes:
        """The third message, from the second ones of all: the second round of the relinearisation key."""
        given = self.joint.checked_contributions(self._seen(), contributions)
        transcript = self.joint.transcript(contributions)
        with locked(self.home / "lock"):
            stored = self._stored("relinearisation", RELINEARISATION_KIND)
            if stored is None:
                stored = self._store("relinearisation", self._second_round(given, transcript))
            (self.home / "second").unlink(missing_ok=True)  # all that it was for is done
            self._opened.pop("second", None)
        if stored.expect("transcript", str) != transcript:
            raise MemberError(
                f"{self.name} has relinearised other contributions than these, and does so once: the members begin anew, with "
                "another label"
            )
        return self._bytes("relinearisation")

    def finish(self, commitments: Messages, contributions: Messages, relinearisations: Messages) -> PublicKeys:
        """The public keys, which she keeps: she shares for what belongs to these and for nothing else."""
        if self.joint.digests(commitments) != self._seen() or relinearisations.get(self.name) != self._bytes(
            "relinearisation"
        ):
            raise MemberError(f"these are not the messages that {self.name} has seen and sent")
        keys = self.joint.public_keys(commitments, contributions, relinearisations)
        with locked(self.home / "lock"):
            if not (self.home / "public.keys").exists():
                container.write(keys.to_container(), self.home / "public.keys", mode=PRIVATE, overwrite=False)
        return keys

    @property
    def finished(self) -> bool:
        """Whether she has the public keys."""
        return (self.home / "public.keys").exists()

    @cached_property
    def keys(self) -> PublicKeys:
        """The joint public keys that she has helped to make."""
        if not self.finished:
            raise MemberError(f"{self.name} knows no public keys of this joint key yet: finish(...) makes them")
        return PublicKeys.load(self.home / "public.keys")

    # -- opening ---------------------------------------------------------------------------------------------------------------

    def share(
        self,
        answer: OpenableAnswer,
        question: Any,
        table: Any = None,
        rows: Any = None,
        *,
        receiver: PublicKeys | None = None,
        trust_worker: bool = False,
    ) -> bytes:
        """Her share of an opening, made once, from an answer that she has computed anew.

        Parameters
        ----------
        answer : EncryptedAnswer
            Of packed totals; or votes, by a model that stayed encrypted.
        question : Question
            What was agreed to be asked; of votes, the model.
        table : EncryptedTable
            The rows that were agreed on: the answer is computed from them again, and refused where it differs.
        rows : EncryptedTable, optional
            Of votes: the new rows that they are for. What is opened are their votes, row by row.
        receiver : PublicKeys, optional
            Whose key the answer is switched to. Without one, whoever has all shares reads it.
        trust_worker : bool
            Share for what the worker has sent, without the rows: **the worker is then trusted with her key**, for whoever may have
            any ciphertext opened can read her secret off the shares.
        """
        if (table is None) != trust_worker:
            raise ValueError(
                "share needs the table that the answer is of, to compute it anew; or, without it, trust_worker=True: a worker who "
                "may have any ciphertext opened can read a member's secret off her shares"
            )
        answer = openable(answer)
        if answer.keys.key_id != self.keys.key_id:
            raise KeyMismatchError(
                f"this belongs to key {answer.keys.key_id}, and {self.name} shares for {self.keys.key_id}"
            )
        answer = answer.verified(question, table, rows)
        return self.share_packs(answer.packs(), answer.statement(), receiver)

    def share_packs(self, packs: Sequence[Pack], statement: bytes, receiver: PublicKeys | None) -> bytes:
        """Her share of packs that she has computed herself, as what the statement says they are; once."""
        if receiver is not None and (receiver.joint or receiver.parameters != self.joint.parameters):
            raise KeyMismatchError(
                "a receiver has a key of her own with the joint key's parameters: es.Owner(parameters)"
            )
        fields = {
            "packs": packs_digest(packs),
            "seconds": [_digest(_second(residues)) for residues, _ in packs],
            "receiver": "" if receiver is None else receiver.key_id,
        }
        name = f"share-{hashlib.sha256(statement).hexdigest()}"
        with locked(self.home / "lock"):
            stored = self._stored(name, SHARE_KIND)
            if stored is None:
                moduli = self.joint.moduli_of(packs)
                shares = self._known_shares(fields, moduli)
                for (residues, noise), second in zip(packs, fields["seconds"], strict=True):
                    if second not in shares:
                        shares[second] = self._share(residues, noise, moduli, receiver)
                body = np.concatenate([shares[second] for second in fields["seconds"]])
                sections = {"packs": residues_to_bytes(body, moduli)}
                stored = self._store(name, self.joint.message(SHARE_KIND, self.name, fields, sections))
        if {field: stored.fields.get(field) for field in fields} != fields:
            raise MemberError(
                f"{self.name} has shared once for this question over these rows, for another ciphertext or receiver, and does not "
                "a second time"
            )
        return self._bytes(name)

    def _share(
        self, residues: Residues, noise: Noise, moduli: tuple[int, ...], receiver: PublicKeys | None
    ) -> Residues:
        """c_1 s_j + t f, for a receiver plus an encryption of 0 under her key; (1 or 2, primes, N)."""
        parameters, model = self.joint.parameters, self.joint.model_of(moduli)
        if not model.decrypts(flooded_noise(model, noise, packing.encrypted_zero_noise(parameters, len(moduli)))):
            raise NoiseError(
                "a share would have no room for the noise that hides its member's secret: make the joint key with a plan for it, ",
                plan_for(parameters.members),
            )
        small = engine_for(packing.first_primes(parameters, len(moduli)))
        flooding = flooding_polynomial(small, len(moduli), flooding_width(model, noise))
        secret = SecretFactor(moduli, self._secret("secret", self._engine).residues)
        own = secret.rebased(np.stack([flooding, residues[1]]), np.zeros_like(flooding))[None]
        if receiver is None:
            return own
        zero = receiver.encryptor.encrypt_zero(len(parameters.data_moduli) - len(moduli))
        return np.concatenate([_added(own, zero[:1], moduli), zero[1:]])

    def _known_shares(self, fields: Mapping[str, Any], moduli: Sequence[int]) -> dict[str, Residues]:
        """Her shares of those ciphertexts that she has shared for, under whatever question: by c_1, which is all that a share
        depends on. Class counts beside votes are the same for as many rows, and have the share that they had. What is all of it
        known, or was for another receiver, is refused."""
        wanted, each, found = set(fields["seconds"]), 2 if fields["receiver"] else 1, dict[str, Residues]()
        for path in self.home.glob("share-*"):
            file = container.read(path, kind=SHARE_KIND)
            seconds = file.expect("seconds", list)
            if not wanted & set(seconds):
                continue
            if wanted <= set(seconds) or file.expect("receiver", str) != fields["receiver"]:
                raise MemberError(f"{self.name} has shared once for this ciphertext, and does not a second time")
            ring, count = self.joint.parameters.ring_degree, each * len(seconds)
            body = residues_from_bytes(file.section("packs"), moduli, ring, polynomials=count)
            found |= zip(seconds, body.reshape(len(seconds), each, len(moduli), ring), strict=True)
        return {second: share for second, share in found.items() if second in wanted}

    # -- what is computed with her secrets ----------------------------------------------------------------------------------------

    def _contribution(self) -> bytes:
        with locked(self.home / "lock"):
            if self._stored("contribution", CONTRIBUTION_KIND) is None:
                self._store("contribution", self._first_round())
        return self._bytes("contribution")

    def _first_round(self) -> Container:
        joint, engine = self.joint, self._engine
        moduli, ring = engine.parameters.coefficient_moduli, engine.parameters.ring_degree
        own, second = self._secret("secret", engine), self._secret("second", engine)
        public, first, k = [own.sample(joint.common("public", 0, engine))], [], []
        for digit in range(len(moduli) - 1):
            common, weight = (
                joint.common("relinearisation", digit, engine),
                np.zeros((len(moduli), ring), dtype=np.uint64),
            )
            weight[digit] = moduli[-1] % moduli[digit]  # w_i: a constant polynomial has one value everywhere
            first.append(own.factor.rebased(np.stack([second.sample(common), weight]), np.zeros_like(weight)))
            k.append(_negated(own.sample(common), moduli))
        sections = {"public": public, "first": first, "second": k}
        made = {name: residues_to_bytes(np.stack(each), moduli) for name, each in sections.items()}
        for name, (context, steps) in joint.galois.items():
            polynomials = list(self._secret("secret", context).galois(joint, name, steps))
            made[name] = residues_to_bytes(np.stack(polynomials), context.parameters.coefficient_moduli)
        return joint.message(CONTRIBUTION_KIND, self.name, {}, made)

    def _second_round(self, given: Mapping[str, Container], transcript: str) -> Container:
        joint, moduli = self.joint, self._engine.parameters.coefficient_moduli
        own, second = self._secret("secret", self._engine), self._secret("second", self._engine)
        sums = [joint._summed(given, section, moduli, len(moduli) - 1) for section in ("first", "second")]
        made = []
        for h, k in zip(*sums, strict=True):
            minus = _added(own.sample(h), second.sample(k), moduli)
            made.append(_added(own.sample(k), _negated(minus, moduli), moduli))
        sections = {"both": residues_to_bytes(np.stack(made), moduli)}
        return joint.message(RELINEARISATION_KIND, self.name, {"transcript": transcript}, sections)

    def _secret(self, part: str, engine: Engine) -> _Secret:
        key = self._engine.context.from_secret_str(self._unlocked_key(part))
        small = engine is not self._engine
        return _Secret(engine, packing.packing_secret(self.joint.parameters, key) if small else key)

    @property
    def _engine(self) -> Engine:
        return engine_for(self.joint.parameters)

    # -- what is kept ------------------------------------------------------------------------------------------------------

    def _locked_key(self, part: str) -> Container:
        """A new secret of SEAL's."""
        lock, key = dict[str, Any](), seal.KeyGenerator(self._engine.context).secret_key().to_string()
        if self._passphrase is not None:
            lock, key = locks.lock(key, self._passphrase, bind_to=self._bound_to(part))
        return self.joint.message(MEMBER_KIND, self.name, {"lock": lock}, {"secret_key": key})

    def _unlocked_key(self, part: str) -> bytes:
        if part not in self._opened:
            file = self._required(part, MEMBER_KIND)
            lock, key = file.expect("lock", dict), file.section("secret_key")
            if bool(lock) != (self._passphrase is not None):
                raise PassphraseError(
                    f"the secret in {self.home} is {'locked: give its' if lock else 'not locked by a'} passphrase"
                )
            self._opened[part] = (
                locks.unlock(lock, key, self._passphrase or "", bind_to=self._bound_to(part)) if lock else key
            )
        return self._opened[part]

    def _bound_to(self, part: str) -> bytes:
        return json.dumps([MEMBER_KIND, self.joint.id, self.name, part]).encode()

    def _store(self, name: str, message: Container) -> Container:
        container.write(message, self.home / name, mode=PRIVATE, overwrite=False)
        return message

    def _stored(self, name: str, kind: str) -> Container | None:
        if not (self.home / name).exists():
            return None
        message = container.read(self.home / name, kind=kind)
        if message.key_id != self.joint.id or message.fields.get("member") != self.name:
            raise KeyMismatchError(f"{self.home} belongs to another joint key or member: each has a folder of its own")
        return message

    def _required(self, name: str, kind: str) -> Container:
        found = self._stored(name, kind)
        if found is None:
            raise MemberError(f"{self.home / name} is not there: it was used already, or an earlier round is missing")
        return found

    def _seen(self) -> dict[str, str]:
        digests: dict[str, str] = self._required("commitments", SEEN_KIND).expect("digests", dict)
        return digests

    def _bytes(self, name: str) -> bytes:
        return (self.home / name).read_bytes()

    def __repr__(self) -> str:
        return f"Member({self.name} of {self.joint!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Member is not pickled, it holds a secret")


class _Secret:
    """A secret of SEAL in one of its contexts, and what SEAL draws under it, re-based at once on the polynomial that is given."""

    def __init__(self, engine: Engine, secret: Any) -> None:
        self.residues = secret_residues(engine.parameters, secret.to_string())
        self.factor = SecretFactor(engine.parameters.coefficient_moduli, self.residues)
        self._generator = seal.KeyGenerator(engine.context, secret)
        self._engine = engine

    def sample(self, x: Residues) -> Residues:
        """-(x s + t e) with an error of SEAL's: a public key that is made here, and kept nowhere, re-based on x."""
        data = self._generator.create_public_key().to_string()
        pair = np.frombuffer(data, dtype="<u8", offset=HEADER_BYTES).reshape(2, *x.shape)
        return self.factor.rebased(pair, x)

    def galois(self, joint: JointKey, name: str, steps: Sequence[int]) -> Iterator[Residues]:
        """SEAL's Galois keys for some rotations, re-based on the common polynomials, digit by digit."""
        made = seal.GaloisKeys()
        self._generator.create_galois_keys(list(steps), made)
        for index, digits in switching_keys(made.to_string(), self._engine.parameters.ring_degree):
            for digit, pair in enumerate(digits):
                yield self.factor.rebased(pair, joint.common(f"{name} {index}", digit, self._engine))


def plan_for(members: int) -> Cure:
    """How parameters for so many members are found."""
    return Cure("plan for members", f"es.plan(..., members={members})", {"members": members})


# -- residues and hashes ---------------------------------------------------------------------------------------------------


def _column(moduli: Sequence[int]) -> Residues:
    return np.array(moduli, dtype=np.uint64)[:, None]


def _added(a: Residues, b: Residues, moduli: Sequence[int]) -> Residues:
    return (a + b) % _column(moduli)


def _negated(a: Residues, moduli: Sequence[int]) -> Residues:
    return (_column(moduli) - a) % _column(moduli)


def _second(residues: Residues) -> bytes:
    return np.ascontiguousarray(residues[1], dtype="<u8").tobytes()


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def packs_digest(packs: Sequence[tuple[Residues, Noise]]) -> str:
    """A hash of the residues of some packs."""
    whole = hashlib.sha256()
    for residues, _ in packs:
        whole.update(hashlib.sha256(np.ascontiguousarray(residues, dtype="<u8").tobytes()).digest())
    return whole.hexdigest()
