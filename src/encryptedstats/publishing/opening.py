"""What can be published or released: encrypted answers, models and their files, and what was opened already, all in one form."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from encryptedstats.circuits.program import ROWS
from encryptedstats.crypto.dispatch import decrypt_value
from encryptedstats.crypto.keys import Owner
from encryptedstats.errors import ParameterError
from encryptedstats.kinds import read_file
from encryptedstats.publishing.ledger import OPENED, Ledger, hides_rows
from encryptedstats.storage import container
from encryptedstats.storage.objects import read_object
from encryptedstats.tables import EncryptedAnswer, Question, Schema
from encryptedstats.tables.opening import opening_schema
from encryptedstats.tables.questions import ReadResult
from encryptedstats.tables.schema.variables import PublicSchema


@dataclass(frozen=True)
class Source:
    """The totals of a question, or the answers for rows, still closed or opened already.

    Attributes
    ----------
    sealed : EncryptedAnswer or None
        None where ``totals`` are known.
    digest : str
        SHA-256 of the file it came from; empty where there is none.
    weight_bound : int or None
        Public bound of the weights of the rows, as the answer says; None where it does not.
    """

    question: Question
    schema: Schema | PublicSchema
    n_rows: int
    block_ids: tuple[str, ...]
    sealed: EncryptedAnswer | None
    totals: tuple[int, ...] = ()
    n_dropped: int = 0
    digest: str = ""
    weight_bound: int | None = None

    @property
    def is_prediction(self) -> bool:
        """Whether it has numbers for every row, and no totals."""
        return self.sealed is not None and self.sealed.ciphertexts.form == ROWS

    def opened(self, owner: Owner) -> list[int]:
        """The exact totals."""
        if self.sealed is None:
            return list(self.totals)
        return [int(total) for total in decrypt_value(self.sealed.ciphertexts, owner.decryptor)]

    def said(self, *, with_rows: bool = True) -> dict[str, Any]:
        """Return what a ledger keeps of it: by ids, without names.

        ``with_rows=False`` leaves the number of rows out, for where it is not public. The hash of a file with exact totals
        is left out too: who can guess the totals could confirm them by it.
        """
        asked = self.question.in_ids(self.schema)
        rows = {"rows": self.n_rows} if with_rows else {}
        return {
            "question": asked.name,
            "params": asked.parameters(),
            **rows,
            "blocks": _blocks_said(self.block_ids),
            "schema": hashlib.sha256(self.schema.public().to_json().encode()).hexdigest(),
            "file": "" if self.sealed is None else self.digest,
        }


def _blocks_said(block_ids: Sequence[str]) -> list[str]:
    return sorted(block_ids)


def record_opening(given: Any, owner: Owner, ledger: Any) -> None:
    """Write down that something was opened as it is, for its owner alone."""
    source = source_of(given, owner)
    Ledger.of(ledger, owner).write(owner, OPENED, lambda before: source.said(with_rows=not hides_rows(before)))


def source_of(given: Any, owner: Owner, schema: Any = None) -> Source:
    """All that is known of what is to be published, with the schema that it is opened with, if it is that of the rows."""
    digest = ""
    if isinstance(given, (str, os.PathLike)):
        data = read_object(given)
        digest = hashlib.sha256(data).hexdigest()
        given = read_file(container.from_bytes(data, name=str(given)), owner.public_keys(()), given)
    if getattr(given, "is_encrypted", False):
        given = given.as_answer()
    if isinstance(given, EncryptedAnswer):
        known = opening_schema(schema, given.schema, given, owner.decryptor)
        return Source(
            given.question,
            known,
            given.n_rows,
            given.block_ids,
            given,
            n_dropped=given.n_dropped,
            digest=digest,
            weight_bound=given.weight_bound,
        )
    if schema is not None:
        raise ParameterError("schema= is for what is still encrypted: what was opened knows its own")
    if isinstance(given, ReadResult) and given.source is not None:
        own = given.source
        kept = own.n_dropped, digest, own.weight_bound
        return Source(own.question, own.schema, own.n_rows, own.block_ids, None, own.totals, *kept)
    if hasattr(given, "totals_"):
        totals = tuple(int(total) for total in given.totals_)
        asked = given.as_asked()
        kept = given.n_dropped_, digest, given.weight_bound_
        return Source(asked, given.schema_, given.n_rows_, given.block_ids_, None, totals, *kept)
    raise TypeError(
        f"an object of type {type(given).__name__} has no totals to publish: give an encrypted result or model, its file, or what "
        "owner.open made of it, if that is a model or a Result"
    )
