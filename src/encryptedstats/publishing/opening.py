"""What can be published or released: answers, models, results and their files, converted to one
answer.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from encryptedstats.crypto.dispatch import decrypt_value
from encryptedstats.crypto.keys import Owner
from encryptedstats.errors import ArgumentTypeError, ParameterError
from encryptedstats.kinds import read_file
from encryptedstats.publishing.ledger import OPENED, Ledger, hides_rows
from encryptedstats.storage import container
from encryptedstats.storage.objects import read_object
from encryptedstats.tables.answers.answer import Answer
from encryptedstats.tables.answers.schema_check import opening_schema
from encryptedstats.tables.questions.question import ReadResult


@dataclass(frozen=True)
class AnswerSource:
    """An answer to publish or release, encrypted or decrypted.

    Attributes
    ----------
    answer : Answer
        With the schema that it is read by.
    digest : str
        SHA-256 of the file it came from, or empty.
    """

    answer: Answer
    digest: str = ""

    def open_with(self, owner: Owner) -> list[int]:
        """Return the exact totals."""
        if not self.answer.is_encrypted:
            return list(self.answer.totals)
        return [int(total) for total in decrypt_value(self.answer.ciphertexts, owner.decryptor)]

    def facts(self, *, with_rows: bool = True) -> dict[str, Any]:
        """Return what a ledger keeps of it: by ids, without names.

        ``with_rows=False`` leaves the number of rows out, for where it is not public. The hash of a
        file with exact totals is left out too: who can guess the totals could confirm them by it.
        """
        answer = self.answer
        asked = answer.question.in_ids(answer.schema)
        rows = {"rows": answer.n_rows} if with_rows else {}
        return {
            "question": asked.name,
            "params": asked.parameters(),
            **rows,
            "blocks": _sorted_blocks(answer.block_ids),
            "schema": hashlib.sha256(answer.schema.public().to_json().encode()).hexdigest(),
            "file": self.digest if answer.is_encrypted else "",
        }


def _sorted_blocks(block_ids: Sequence[str]) -> list[str]:
    return sorted(block_ids)


def record_opening(value: Any, owner: Owner, ledger: Any) -> None:
    """Write down that something was opened as it is, for its owner alone."""
    source = source_of(value, owner)
    Ledger.of(ledger, owner).write(
        owner, OPENED, lambda before: source.facts(with_rows=not hides_rows(before))
    )


def source_of(value: Any, owner: Owner, schema: Any = None) -> AnswerSource:
    """Return the answer to publish, with the schema that it is opened with."""
    digest = ""
    if isinstance(value, (str, os.PathLike)):
        data = read_object(value)
        digest = hashlib.sha256(data).hexdigest()
        value = read_file(container.from_bytes(data, name=str(value)), owner.public_keys(()), value)
    answer = _find_answer(value)
    if answer is not None and answer.is_encrypted:
        return AnswerSource(
            replace(answer, schema=opening_schema(schema, answer, owner.decryptor)), digest
        )
    if schema is not None:
        raise ParameterError(
            "schema= is for what is still encrypted: what was opened knows its own",
            code="schema-already-known",
        )
    if answer is None:
        raise ArgumentTypeError(
            f"an object of type {type(value).__name__} has no totals to publish: give an encrypted "
            "result or model, its file, or what owner.open made of it, if that is a model or a "
            "Result",
            code="nothing-to-publish",
        )
    return AnswerSource(answer, digest)


def _find_answer(value: Any) -> Answer | None:
    """Return the answer that an object is, was read from, or holds."""
    if isinstance(value, Answer):
        return value
    if isinstance(value, ReadResult):
        return value.source
    found: Answer | None = getattr(value, "answer_", None)
    return found
