"""``owner.encrypt(..., spot_check=True)`` and ``owner.open(..., verify="spot")``."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol

from encryptedstats.crypto.dispatch import keep_value, open_checked_value, openable
from encryptedstats.crypto.keys import Owner
from encryptedstats.errors import ArgumentTypeError, Cure, VerificationError
from encryptedstats.spotcheck.check import SpotCheck, respond
from encryptedstats.spotcheck.kept import Keeper
from encryptedstats.spotcheck.messages import Challenge, Response
from encryptedstats.tables.answers.answer import Answer
from encryptedstats.tables.encrypted_table import EncryptedTable
from encryptedstats.tables.questions.question import Question
from encryptedstats.tables.schema.schema import Schema
from encryptedstats.tables.table import Table
from encryptedstats.words import plural

#: What people are told of a checked answer.
CHECKED: Final = (
    "The result was checked: the worker was asked for random sums of its work, and a wrong result "
    "would have passed with a probability of 2^-40 at most, one in a million million."
)


class Responds(Protocol):
    """A table at a worker that can be challenged, such as ``es.connect(...).upload(...)``."""

    @property
    def block_ids(self) -> tuple[str, ...]: ...

    def respond(self, question: Question, challenge: Challenge, **options: Any) -> Response:
        """Return the worker's response to a challenge."""


@keep_value.register(Table)
@keep_value.register(Schema)
def prepare_keeping(
    value: Table | Schema, owner: Owner, **options: Any
) -> Callable[[EncryptedTable], None]:
    """Refuse what could never be checked, before anything is encrypted."""
    if owner.parameters.scheme != "bgv":
        raise VerificationError(
            "spot checks are for BGV: products of BFV mix residues. es.verify computes an answer "
            "again",
            code="not-residue-local",
        )
    return partial(keep_rows, owner)


def keep_rows(owner: Owner, table: EncryptedTable) -> None:
    """Keep the residues of a table at secret positions, which are drawn for the first table."""
    keeper = Keeper.of_owner(owner) or Keeper.draw(owner)
    owner._kept = keeper
    keeper.check_usable()
    keeper.keep(table)


def has_kept(owner: Owner, table: EncryptedTable) -> bool:
    """Return whether all rows of a table are kept for spot checks."""
    keeper = Keeper.of_owner(owner)
    if keeper is None:
        return False
    return set(table.blocks.ids) <= {one for group in keeper.groups for one in group.ids}


@open_checked_value.register(object)
def open_checked(
    source: Any,
    owner: Owner,
    schema: Any = None,
    *,
    on: Responds | EncryptedTable | None = None,
    question: Question | None = None,
    **options: Any,
) -> Any:
    """Open an answer after a spot check.

    Parameters
    ----------
    source : EncryptedAnswer or encrypted model, or path or URL of one
    owner : Owner
    schema : Schema, optional
    on : table
        The table at the worker: what ``es.connect(...).upload(...)`` returned, or an
        :class:`EncryptedTable`, which is computed on here.
    question : Question, optional
        What was asked; by default what the answer says of itself. ``es.connect`` compares that
        with what it asked, but a file may answer anything: name the question.
    **options
        ``device``, ``workers``, ``memory_limit``: of the worker, where it takes them.

    Raises
    ------
    VerificationError
        ``spot-check-failed`` if the answer is wrong. Then the key is retired.
    """
    keeper = Keeper.of_owner(owner)
    if keeper is None:
        raise VerificationError(
            "nothing was kept of the rows of this key, so that answers cannot be spot-checked: ",
            Cure("keep residues", "owner.encrypt(..., spot_check=True)"),
            " keeps what it takes, and es.verify computes an answer again",
            code="nothing-kept",
        )
    answer = _answer_of(source, owner)
    if on is None or (not isinstance(on, EncryptedTable) and not hasattr(on, "respond")):
        raise ArgumentTypeError(
            "on= is the table at the worker that is asked for its sums: what "
            "es.connect(...).upload(...) returned, or an encrypted table",
            code="no-table",
        )
    expected = on.blocks.ids if isinstance(on, EncryptedTable) else on.block_ids
    if sorted(answer.block_ids) != sorted(expected):
        raise VerificationError(
            f"this answer is of other rows ({plural(len(answer.block_ids), 'block')}) than the "
            f"table ({plural(len(expected), 'block')}): name the table that was asked, or ask it "
            "again if rows were appended since",
            code="different-rows",
        )
    check, asked = SpotCheck(keeper), answer.question if question is None else question
    challenge = check.challenge(answer, asked, schema)
    if isinstance(on, EncryptedTable):
        response = respond(on, asked, challenge, **options)
    else:
        response = on.respond(asked, challenge, **options)
    return check.open(answer, asked, response, schema)


def _answer_of(source: Any, owner: Owner) -> Answer:
    if isinstance(source, (str, os.PathLike)):
        return Answer.load(source, owner.public_keys())
    found: Answer = openable(source)
    if not isinstance(found, Answer) or not found.is_encrypted:
        raise VerificationError(
            f"an object of type {type(source).__name__} is no encrypted answer",
            code="not-an-encrypted-answer",
        )
    return found
