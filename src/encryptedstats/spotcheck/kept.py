"""What the owner keeps for spot checks: secret positions, and the residues of all columns there.

One set of positions serves all tables of a key, so that rows can be appended. It lies in a folder
beside the key file, in files of mode 0600 that are sealed under a key derived from the secret key:
they open where the secret key is open. Anybody who knows the positions can lie without being
caught; the residues themselves are as public as the table.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import secrets
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from encryptedstats.circuits.spare_bits import count_residues, default_positions
from encryptedstats.crypto.keys import MOVE_ROWS, Owner, PublicKeys
from encryptedstats.crypto.parameters import Parameters
from encryptedstats.errors import ArgumentTypeError, Cure, FileFormatError, VerificationError
from encryptedstats.spotcheck.arithmetic import PositionSource, Values
from encryptedstats.spotcheck.combining import check_rows
from encryptedstats.storage import container, passphrase
from encryptedstats.storage.container import Container
from encryptedstats.storage.files import PRIVATE
from encryptedstats.storage.leases import write_alone
from encryptedstats.storage.objects import open_store
from encryptedstats.tables.encrypted_table import EncryptedTable
from encryptedstats.tables.facts import MemoryBlocks, TableFacts, TableSource
from encryptedstats.tables.manifest import facts_from_container, facts_to_container

POSITIONS_KIND: Final = "positions of spot checks"
ROWS_KIND: Final = "rows at positions of spot checks"
FAILED_KIND: Final = "failed spot check"
#: Times that weights are sent for a key: 2^10 times 2^-51 is 2^-41.
MOST_COMMITMENTS: Final = 1 << 10
_FOLDER: Final = ".spot"  # behind the name of the key file
_STATE, _FAILED, _ROWS = "positions", "failed", "rows-"
_KEY_BYTES: Final = 32
_SECRET: Final = "secret"
_WAIT: Final = 60.0  # seconds for another process of the owner


@dataclass(frozen=True)
class Positions:
    """Secret positions, in order: indices among the residues of a polynomial, prime by prime."""

    flat: NDArray[np.int64] = field(repr=False)
    parameters: Parameters

    @classmethod
    def draw(cls, parameters: Parameters, count: int) -> Positions:
        """Draw a set of positions, uniformly, from the operating system's generator."""
        drawn = secrets.SystemRandom().sample(range(count_residues(parameters)), count)
        return cls(np.array(sorted(drawn), dtype=np.int64), parameters)

    def __len__(self) -> int:
        return len(self.flat)

    def of(self, residues: Values) -> Values:
        """Return the residues of ciphertexts, (..., primes, N), at these positions."""
        ring = self.parameters.ring_degree
        taken: Values = residues[..., self.flat // ring, self.flat % ring]
        return taken

    @property
    def primes(self) -> Values:
        """The prime of each position."""
        moduli = np.array(self.parameters.data_moduli, dtype=np.uint64)
        found: Values = moduli[self.flat // self.parameters.ring_degree]
        return found


@dataclass(frozen=True)
class KeptRows:
    """Rows that were encrypted at once: their public facts, and their columns at the positions.

    Attributes
    ----------
    facts : TableFacts
    ids, rows : tuple
        The blocks, in order, and how many rows each has.
    residues : tuple of array
        Of each block, shape (columns, 2, positions).
    """

    facts: TableFacts
    ids: tuple[str, ...]
    rows: tuple[int, ...]
    residues: tuple[Values, ...] = field(repr=False)

    @classmethod
    def of_table(cls, table: EncryptedTable, positions: Positions) -> KeptRows:
        """Read a table once, a block at a time."""
        blocks = table.blocks
        found = tuple(positions.of(blocks.block(i)) for i in range(len(blocks.ids)))
        return cls(table.facts, blocks.ids, blocks.rows, found)

    def join(self, more: KeptRows) -> KeptRows:
        """Return these rows with more of the same columns behind them."""
        return replace(
            self,
            facts=replace(self.facts, n_dropped=self.facts.n_dropped + more.facts.n_dropped),
            ids=(*self.ids, *more.ids),
            rows=(*self.rows, *more.rows),
            residues=(*self.residues, *more.residues),
        )

    def in_order(self, ids: Sequence[str]) -> KeptRows:
        """Return the same blocks in another order."""
        places = [self.ids.index(one) for one in ids]
        rows = tuple(self.rows[place] for place in places)
        residues = tuple(self.residues[place] for place in places)
        return replace(self, ids=tuple(ids), rows=rows, residues=residues)

    def source(self, keys: PublicKeys, positions: Positions) -> PositionSource:
        """Return the columns at the positions, with all public facts to compile for."""
        names = [str(column) for column in self.facts.columns]
        columns = [dict(zip(names, one, strict=True)) for one in self.residues]
        whole = TableSource(self.facts, MemoryBlocks(self.ids, self.rows, ()), keys)
        return PositionSource(whole, columns, positions.flat)

    def to_container(self, key: bytes) -> Container:
        """Return the file, its residues sealed."""
        data = b"".join(one.astype("<u8").tobytes() for one in self.residues)
        blocks = json.dumps([list(self.ids), list(self.rows)]).encode()
        sealed = passphrase.seal(data, key, bind_to=_bound_to(ROWS_KIND, blocks))
        sections = {"blocks": blocks, _SECRET: sealed}
        return facts_to_container(self.facts, ROWS_KIND, {}, sections)

    @classmethod
    def from_container(cls, file: Container, key: bytes, positions: Positions) -> KeptRows:
        """Read the file with every check."""
        facts, listed = facts_from_container(file), file.read_list("blocks")
        ids, rows = _read_blocks(listed)
        bound = _bound_to(ROWS_KIND, file.section("blocks"))
        data = passphrase.unseal(file.section(_SECRET), key, bind_to=bound)
        shape = (len(facts.columns), 2, len(positions))
        if len(data) != 8 * len(ids) * math.prod(shape):
            raise FileFormatError("the kept residues are cut short", code="wrong-residue-length")
        residues = np.frombuffer(data, dtype="<u8").astype(np.uint64).reshape(len(ids), *shape)
        if (residues >= positions.primes).any():
            raise FileFormatError(
                "kept residues are not below their primes", code="unreduced-residues"
            )
        return cls(facts, ids, rows, tuple(residues))


class Keeper:
    """All that an owner keeps for spot checks of the tables of a key.

    Attributes
    ----------
    positions : Positions
    secret : bytes
        Weights follow from it.
    groups : list of KeptRows
        One for each time that rows were encrypted.
    commitments : int
        How many times weights were sent.
    failed : str
        The question whose check has failed; empty while none has.
    folder : Path or None
        Where it is stored; None of a key that is in memory only.
    """

    def __init__(self, owner: Owner, positions: Positions, secret: bytes) -> None:
        self.owner, self.positions, self.secret = owner, positions, secret
        self.groups: list[KeptRows] = []
        self.commitments, self.failed = 0, ""
        self.folder: Path | None = None
        self._lock = threading.Lock()

    @classmethod
    def draw(cls, owner: Owner, count: int | None = None) -> Keeper:
        """Draw positions for a key, as many as plans count on."""
        count = default_positions(owner.parameters) if count is None else count
        drawn = Positions.draw(owner.parameters, count)
        made = cls(owner, drawn, secrets.token_bytes(_KEY_BYTES))
        if owner.key_file is not None:
            made.save_beside(owner.key_file)
        return made

    @classmethod
    def of_owner(cls, owner: Owner) -> Keeper | None:
        """Return what is kept for a key, in memory or beside its file; None if nothing is."""
        if owner._kept is None and owner.key_file is not None:
            folder = folder_of(owner.key_file)
            if (folder / _STATE).exists():
                owner._kept = cls._load(owner, folder)
        kept: Keeper | None = owner._kept
        return kept

    # -- keeping -----------------------------------------------------------------------------------

    def keep(self, table: EncryptedTable) -> None:
        """Keep the rows of a table that was encrypted just now, or that the owner has signed."""
        check_rows(table.source())
        known = {one for group in self.groups for one in group.ids}
        if known & set(table.blocks.ids):
            raise VerificationError(
                "some of these blocks are kept already", code="block-already-included"
            )
        group = KeptRows.of_table(table, self.positions)
        self._write_rows(group)
        self.groups.append(group)

    def rows_of(self, ids: Sequence[str]) -> KeptRows:
        """Return the rows of these blocks, in their order.

        Raises
        ------
        VerificationError
            If some are not kept, or if rows are missing that were encrypted together with others.
        """
        wanted = set(ids)
        groups = [group for group in self.groups if wanted & set(group.ids)]
        found = [one for group in groups for one in group.ids]
        if len(wanted) != len(ids) or wanted != set(found):
            raise VerificationError(
                f"this is of {len(ids):,} blocks, and residues are kept of {len(found):,} that "
                "were encrypted with them: not the same ones. Rows are kept where they were "
                "encrypted with spot_check=True, and all of them are asked",
                code="different-rows",
            )
        both = groups[0]
        for group in groups[1:]:
            if replace(group.facts, n_dropped=0) != replace(both.facts, n_dropped=0):
                raise VerificationError(
                    "these rows have other columns than those that are kept", code="other-table"
                )
            both = both.join(group)
        return both.in_order(ids)

    # -- counting and failing ----------------------------------------------------------------------

    def check_usable(self) -> None:
        """Raise an error after a check has failed, here or in another process."""
        if self.folder is not None and not self.failed:
            self.failed = _read_failure(self.folder, self.owner.key_id)
        if self.failed:
            raise VerificationError(*describe_failure(self.failed), code="spot-check-failed")

    def commit(self) -> None:
        """Count that weights are sent. It is stored first, so that no crash makes it too small."""
        with self.alone():
            if self.folder is not None:
                self.commitments = max(self.commitments, self._stored_commitments(self.folder))
            if self.commitments >= MOST_COMMITMENTS:
                raise VerificationError(
                    f"weights were sent {MOST_COMMITMENTS:,} times for this key, and that is what "
                    "the failure probability allows: encrypt the rows again for another key",
                    code="too-many-commitments",
                )
            self.commitments += 1
            self._write_state()

    def fail(self, question: str) -> NoReturn:
        """Retire the key, and raise the error of a failed check."""
        self.failed = question
        self.owner._retire_here(f"the spot check of {question} failed")
        if self.folder is not None:
            said = json.dumps({"question": question}).encode()
            file = Container(FAILED_KIND, "", self.owner.key_id, {}, {"question": said})
            with suppress(OSError):  # the key may lie where nothing can be written
                container.write(file, self.folder / _FAILED, mode=PRIVATE, overwrite=True)
        raise VerificationError(*describe_failure(question), code="spot-check-failed")

    # -- files -------------------------------------------------------------------------------------

    def save_beside(self, key_file: Path) -> None:
        """Store everything beside the file of the key, where it is found again."""
        folder = folder_of(key_file)
        if self.folder == folder:
            return
        if (folder / _STATE).exists() and not self._is_own(folder):
            raise FileFormatError(
                f"{folder} holds the positions of another key: move it away",
                code="other-key",
            )
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder = folder
        self._write_state()
        for group in self.groups:
            self._write_rows(group)

    def _is_own(self, folder: Path) -> bool:
        return container.read(folder / _STATE, kind=POSITIONS_KIND).key_id == self.owner.key_id

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other threads and processes of the owner from counting and checking."""
        with ExitStack() as held:
            held.enter_context(self._lock)
            if self.folder is not None:
                held.enter_context(write_alone(open_store(os.fspath(self.folder)), wait=_WAIT))
            yield

    def _write_state(self) -> None:
        if self.folder is None:
            return
        key, bound = sealing_key(self.owner), _bound_to(POSITIONS_KIND)
        state = json.dumps({"commitments": self.commitments}).encode()
        data = self.secret + self.positions.flat.astype("<i8").tobytes()
        sections = {
            _SECRET: passphrase.seal(data, key, bind_to=bound),
            "state": passphrase.seal(state, key, bind_to=bound + b"state"),
        }
        parameters = self.owner.parameters
        fields = {"parameters": parameters.to_dict()}
        file = Container(
            POSITIONS_KIND, parameters.fingerprint, self.owner.key_id, fields, sections
        )
        container.write(file, self.folder / _STATE, mode=PRIVATE, overwrite=True)

    def _write_rows(self, group: KeptRows) -> None:
        if self.folder is None:
            return
        name = _ROWS + hashlib.sha256("".join(group.ids).encode()).hexdigest()[:32]
        file = group.to_container(sealing_key(self.owner))
        container.write(file, self.folder / name, mode=PRIVATE, overwrite=True)

    def _stored_commitments(self, folder: Path) -> int:
        file = container.read(folder / _STATE, kind=POSITIONS_KIND)
        return _read_commitments(file, sealing_key(self.owner))

    @classmethod
    def _load(cls, owner: Owner, folder: Path) -> Keeper:
        file = container.read(folder / _STATE, kind=POSITIONS_KIND)
        if file.key_id != owner.key_id:
            raise VerificationError(
                f"the positions in {folder} belong to key {file.key_id}, and the secret key is "
                f"{owner.key_id}",
                code="other-key",
            )
        key, parameters = sealing_key(owner), owner.parameters
        data = passphrase.unseal(file.section(_SECRET), key, bind_to=_bound_to(POSITIONS_KIND))
        flat = np.frombuffer(data, dtype="<i8", offset=_KEY_BYTES).astype(np.int64)
        rising = len(flat) > 0 and bool((np.diff(flat) > 0).all())
        if not rising or flat[0] < 0 or flat[-1] >= count_residues(parameters):
            raise FileFormatError("the positions are no set", code="impossible-positions")
        made = cls(owner, Positions(flat, parameters), data[:_KEY_BYTES])
        made.commitments, made.folder = _read_commitments(file, key), folder
        made.groups = [
            KeptRows.from_container(container.read(path, kind=ROWS_KIND), key, made.positions)
            for path in sorted(folder.glob(f"{_ROWS}*"))
        ]
        made.failed = _read_failure(folder, owner.key_id)
        return made

    def __repr__(self) -> str:
        rows = sum(sum(group.rows) for group in self.groups)
        return f"Keeper(key {self.owner.key_id}, {rows:,} rows)"

    def __reduce__(self) -> NoReturn:
        raise ArgumentTypeError("positions are not pickled, they are secret", code="not-pickled")


def folder_of(key_file: Path) -> Path:
    """Return the folder of what is kept for the key in a file."""
    return key_file.with_name(key_file.name + _FOLDER)


def sealing_key(owner: Owner) -> bytes:
    """Return the key that seals what is kept, derived from the secret key."""
    token_key = owner.decryptor.token_key
    return hashlib.sha256(b"encryptedstats: positions of spot checks" + token_key).digest()


def describe_failure(question: str) -> tuple[str | Cure, ...]:
    """Return the error of a failed check, in pieces."""
    return (
        f"the answer to {question} is wrong: the worker has lied, or its machine is broken. The "
        "key is retired, and nothing is opened with it any more. Do not let the worker know. A new "
        "key, and another worker, are needed: ",
        MOVE_ROWS,
    )


def _bound_to(kind: str, more: bytes = b"") -> bytes:
    return kind.encode() + b"\0" + more


def _read_failure(folder: Path, key_id: str) -> str:
    if not (folder / _FAILED).exists():
        return ""
    file = container.read(folder / _FAILED, kind=FAILED_KIND)
    if file.key_id != key_id:
        return ""
    try:
        question = json.loads(file.section("question"))["question"]
    except (ValueError, KeyError, TypeError):
        question = None
    return question if isinstance(question, str) and question else "an earlier question"


def _read_commitments(file: Container, key: bytes) -> int:
    bound = _bound_to(POSITIONS_KIND) + b"state"
    return int(
        json.loads(passphrase.unseal(file.section("state"), key, bind_to=bound))["commitments"]
    )


def _read_blocks(listed: Sequence[Any]) -> tuple[tuple[str, ...], tuple[int, ...]]:
    if len(listed) != 2 or not all(isinstance(one, list) for one in listed):
        raise FileFormatError("a malformed list of blocks", code="malformed-blocks")
    ids, rows = listed
    if len(ids) != len(rows) or len(set(map(str, ids))) != len(ids):
        raise FileFormatError("a malformed list of blocks", code="malformed-blocks")
    if not all(isinstance(one, str) for one in ids) or not all(
        type(count) is int and count > 0 for count in rows
    ):
        raise FileFormatError("a malformed list of blocks", code="malformed-blocks")
    return tuple(ids), tuple(rows)
