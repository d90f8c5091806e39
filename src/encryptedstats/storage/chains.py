"""A hash chain of signed JSON entries, in any storage.

Every entry is an object of its own that is created only if it does not exist. So of two concurrent
writers one is first and the other reads again, a killed writer leaves an entry whole or not at all,
and the storage needs no append. A person who can write to the storage can still remove entries at
the end; only a reader who remembers the hash of the last entry notices.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from encryptedstats.errors import ArgumentError, FileFormatError, StorageError
from encryptedstats.storage.objects import Store, retry_read

#: The largest entry: what is larger is an object of its own, and the entry has its hash.
MAX_ENTRY_BYTES: Final = 1 << 20
_FORMAT: Final = "encryptedstats chain 1"
_ATTEMPTS: Final = 1000  # against others who were first; each means that somebody else went on
_DIGITS: Final = 8
_NAME: Final = re.compile(rf"[0-9]{{{_DIGITS}}}[.]json")
_FIELDS: Final = {
    "topic": str,
    "number": int,
    "previous": str,
    "by": str,
    "content": dict,
    "signature": str,
}

Content = Mapping[str, Any]
#: ``verify(by, statement, signature)``
Verify = Callable[[str, bytes, str], bool]


@dataclass(frozen=True)
class ChainEntry:
    """One entry of a chain.

    Attributes
    ----------
    topic : str
        What the chain is about: an entry of another chain is refused.
    number : int
        Its place, from 0.
    previous : str
        The hash of the entry before it; the first entry has a hash of the topic.
    by : str
        The signer: a name or a public key, as the users of the chain have agreed.
    content : mapping
        What it says, as JSON.
    signature : str
        Signature of :attr:`statement`; empty in chains without signatures.
    """

    topic: str
    number: int
    previous: str
    by: str
    content: Content
    signature: str = ""

    @property
    def statement(self) -> bytes:
        """The bytes that are signed: everything but the signature.

        They include place and topic, so a signature is invalid in another place or after other
        entries.
        """
        return _json([_FORMAT, self.topic, self.number, self.previous, self.by, self.content])

    @property
    def hash(self) -> str:
        """The hash by which the next entry refers to this one, and so to all before it."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    def to_bytes(self) -> bytes:
        """Return one line of JSON."""
        return _json({name: getattr(self, name) for name in _FIELDS}) + b"\n"


def _json(value: Any) -> bytes:
    """Write a value canonically: no spaces, sorted names, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def first_hash(topic: str) -> str:
    """Return what the first entry of a chain has in place of a previous hash."""
    return hashlib.sha256(_json([_FORMAT, topic])).hexdigest()


class Chain:
    """The entries in a folder of a store, checked as they are read.

    Parameters
    ----------
    store : Store
    folder : str
        The folder of the entries.
    topic : str
        What the chain is about; part of everything that is signed.
    verify : callable, optional
        ``verify(by, statement, signature)`` returns True for a good signature. Without it
        signatures are ignored.
    """

    def __init__(self, store: Store, folder: str, topic: str, verify: Verify | None = None) -> None:
        self.store = store
        self.topic = topic
        self._folder = folder.strip("/")
        self._verify = verify
        self._read: list[ChainEntry] = []

    def name(self, number: int) -> str:
        """Return the name of the object that holds an entry."""
        return f"{self._folder}/{number:0{_DIGITS}}.json"

    def entries(self) -> tuple[ChainEntry, ...]:
        """Return all entries in order.

        Raises an error where one is missing, altered, out of place or badly signed.
        """
        while True:
            self._read_on()
            missing = self._later()
            if missing is None:
                return tuple(self._read)
            if missing:
                raise FileFormatError(
                    f"{self.store.where(self.name(len(self._read)))} is missing, and there are "
                    "later entries: the chain was cut. "
                    "Put the entry back, from a copy; nothing after it is believed",
                    code="missing-entry",
                )

    def head(self) -> str:
        """Return the hash of the last entry, with which a reader can later check that nothing was
        changed.
        """
        return _last_hash(self.topic, self.entries())

    def check_contains(self, head: str) -> None:
        """Refuse a chain that an entry, or the end, was taken from since somebody saw this hash at
        its head.
        """
        if head != first_hash(self.topic) and head not in (entry.hash for entry in self.entries()):
            raise FileFormatError(
                f"the entry {head} was in the chain at {self.store.where(self._folder)} once and "
                "is no more: the chain was cut "
                "or exchanged. Do not go on with it; find out who did it",
                code="other-chain",
            )

    def append(
        self,
        content: Content | Callable[[Sequence[ChainEntry]], Content],
        by: str = "",
        sign: Callable[[bytes], str] | None = None,
    ) -> ChainEntry:
        """Add an entry to the end, and read the chain first.

        Parameters
        ----------
        content : mapping or callable
            A callable gets all entries so far and gives the content, or raises where there may be
            none. It is called again where somebody else was first: so what it concludes from the
            entries holds for the place where its entry stands.
        by : str
        sign : callable, optional
            What signs.
        """
        for _ in range(_ATTEMPTS):
            before = self.entries()
            said = content(before) if callable(content) else content
            entry = ChainEntry(
                self.topic, len(before), _last_hash(self.topic, before), by, dict(said)
            )
            if sign is not None:
                entry = ChainEntry(
                    self.topic,
                    entry.number,
                    entry.previous,
                    by,
                    entry.content,
                    sign(entry.statement),
                )
            data = entry.to_bytes()
            if len(data) > MAX_ENTRY_BYTES:
                raise ArgumentError(
                    f"an entry of {len(data):,} bytes, and {MAX_ENTRY_BYTES:,} are allowed: store "
                    "what is large as an object "
                    "of its own, and its hash in the entry",
                    code="entry-too-large",
                )
            self._check(self._parse(data, entry.number), before)
            if self.store.create(self.name(entry.number), data):
                self._read_on()
                return self._read[entry.number]
        raise StorageError(
            f"{self.store.where(self._folder)}: others were first {_ATTEMPTS} times; run it again",
            code="too-many-attempts",
        )

    # -- reading
    # --------------------------------------------------------------------------------------------

    def _read_on(self) -> None:
        """Read what came since, one after the other."""
        while True:
            number = len(self._read)
            try:
                # the lambda is called before the loop goes on
                entry = retry_read(self.store, lambda: self._entry(number))  # noqa: B023
            except FileNotFoundError:
                return
            self._read.append(self._check(entry, self._read))

    def _entry(self, number: int) -> ChainEntry:
        return self._parse(self.store.read(self.name(number), limit=MAX_ENTRY_BYTES), number)

    def _later(self) -> bool | None:
        """Return True if there are entries after a gap, False if some were added just now, else
        None.
        """
        if not any(number >= len(self._read) for number in self._list_numbers()):
            return None
        return not self.store.exists(self.name(len(self._read)))

    def _list_numbers(self) -> Iterator[int]:
        for name in self.store.names():
            folder, _, last = name.rpartition("/")
            if folder == self._folder and _NAME.fullmatch(last):
                yield int(last[:_DIGITS])

    def _parse(self, data: bytes, number: int) -> ChainEntry:
        where = self.store.where(self.name(number))
        try:
            values = json.loads(data)
            good = isinstance(values, dict) and set(values) == set(_FIELDS)
            good = good and all(type(values[name]) is kind for name, kind in _FIELDS.items())
            entry = ChainEntry(**values) if good else None
            same = entry is not None and entry.to_bytes() == data
        except (ValueError, RecursionError):
            entry, same = None, False
        if entry is None or not same:
            raise FileFormatError(
                f"{where} is no entry of a chain as this library writes them: it was altered",
                code="malformed-entry",
            )
        return entry

    def _check(self, entry: ChainEntry, before: Sequence[ChainEntry]) -> ChainEntry:
        where = self.store.where(self.name(len(before)))
        if entry.topic != self.topic:
            raise FileFormatError(
                f"{where} is an entry of another chain ({entry.topic!r}, not {self.topic!r}): "
                "replayed",
                code="replayed-entry",
            )
        if entry.number != len(before) or entry.previous != _last_hash(self.topic, before):
            raise FileFormatError(
                f"{where} does not follow the entry before it: the chain was altered, or it is "
                "replayed",
                code="broken-chain",
            )
        if self._verify is not None and not self._verify(
            entry.by, entry.statement, entry.signature
        ):
            raise FileFormatError(
                f"{where} is not signed by {entry.by or 'anybody'!r}, whom it names: it was "
                "altered or forged",
                code="wrong-signature",
            )
        return entry


def _last_hash(topic: str, entries: Sequence[ChainEntry]) -> str:
    return entries[-1].hash if entries else first_hash(topic)
