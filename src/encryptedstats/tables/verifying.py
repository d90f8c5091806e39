"""``es.verify``: compute a worker's result anew from the rows. Residues do not depend on who computes them."""

from __future__ import annotations

import os
from typing import Any

from encryptedstats.crypto.dispatch import openable
from encryptedstats.errors import VerificationError
from encryptedstats.tables.answers import EncryptedAnswer
from encryptedstats.tables.encrypted import EncryptedTable
from encryptedstats.tables.questions import Question


def verify(
    answer: Any,
    table: EncryptedTable | str | os.PathLike[str],
    question: Question | None = None,
    *,
    rows: EncryptedTable | str | os.PathLike[str] | None = None,
    **options: Any,
) -> EncryptedAnswer:
    """Compute an encrypted result anew from the encrypted rows, and compare every residue. No secret key is needed.

    A worker that followed the question gives the very same ciphertexts on every device, so anybody with the table can
    check that a result is the answer to the question. It takes as long as the computation did. A result of a service, a
    queue or Dask states the shards that it was computed in, and is computed in the same shards again. Three kinds of
    results cannot be verified: those that the worker flooded with noise, which is drawn anew each time; those that were
    added up from other results; and predictions of an opened model.

    Parameters
    ----------
    answer : EncryptedAnswer or encrypted model
        Or the path or URL of one, which is then read with the table's public keys.
    table : EncryptedTable
        Or its path or URL. Rows that others encrypted are accepted: nothing is opened here.
    question : Question, optional
        What was agreed to be asked; by default what the answer says of itself.
    rows : EncryptedTable, optional
        Of a prediction: the rows that it is for. Its model, which stayed encrypted, is computed from the table first.
    **options
        As of ``EncryptedTable.evaluate``: ``device``, ``workers``, ``progress``, ``memory_limit``.

    Returns
    -------
    EncryptedAnswer
        Computed here; what is proven of its noise is therefore known, and not said by the worker.

    Raises
    ------
    VerificationError
        Where the answer is anything else.
    """
    if not isinstance(table, EncryptedTable):
        table = EncryptedTable.load(table, by_others=True)
    if rows is not None and not isinstance(rows, EncryptedTable):
        rows = EncryptedTable.load(rows, table.keys, by_others=True)
    given = EncryptedAnswer.load(answer, table.keys) if isinstance(answer, (str, os.PathLike)) else openable(answer)
    if not isinstance(given, EncryptedAnswer):
        raise VerificationError(f"an object of type {type(answer).__name__} is no encrypted answer")
    return given.verified(given.question if question is None else question, table, rows, **options)
