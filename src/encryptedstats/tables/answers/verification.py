"""``es.verify``: recompute a worker's result from the rows, and compare the residues.

Residues do not depend on who computes them.
"""

from __future__ import annotations

import os
from typing import Any

from encryptedstats.crypto.dispatch import openable, recompute_value
from encryptedstats.errors import VerificationError
from encryptedstats.tables.answers.answer import Answer
from encryptedstats.tables.encrypted_table import EncryptedTable
from encryptedstats.tables.questions.question import Question, check_question, prepare_question
from encryptedstats.tables.shards import answer_again, predict_again


def verify(
    answer: Any,
    table: EncryptedTable | str | os.PathLike[str],
    question: Question | None = None,
    *,
    rows: EncryptedTable | str | os.PathLike[str] | None = None,
    **options: Any,
) -> Answer:
    """Recompute an encrypted result from the encrypted rows, and compare every residue.

    No secret key is needed. A worker that followed the question gives the very same ciphertexts on
    every device, so anybody with the table can check that a result is the answer to the question.
    It takes as long as the computation did. A result of a service, a queue or Dask states its
    shards and is computed in the same shards again. Three kinds of results cannot be verified:
    those that the worker flooded with noise, which is drawn anew each time; those that were added
    up from other results; and predictions of a decrypted model.

    Parameters
    ----------
    answer : EncryptedAnswer or encrypted model
        The answer, or its path or URL, which is read with the table's public keys.
    table : EncryptedTable
        The table, or its path or URL. Rows of contributors are accepted, because nothing is opened.
    question : Question, optional
        The agreed question; by default the one that the answer states.
    rows : EncryptedTable, optional
        For a prediction, the predicted rows. The encrypted model is computed from the table first.
    **options
        Options of ``EncryptedTable.evaluate``: ``device``, ``workers``, ``progress``,
        ``memory_limit``.

    Returns
    -------
    EncryptedAnswer
        The recomputed answer, whose noise is proven here and not stated by the worker.

    Raises
    ------
    VerificationError
        If the answer differs.
    """
    if not isinstance(table, EncryptedTable):
        table = EncryptedTable.load(table, by_others=True)
    if rows is not None and not isinstance(rows, EncryptedTable):
        rows = EncryptedTable.load(rows, table.keys, by_others=True)
    claimed = (
        Answer.load(answer, table.keys)
        if isinstance(answer, (str, os.PathLike))
        else openable(answer)
    )
    if not isinstance(claimed, Answer) or not claimed.is_encrypted:
        raise VerificationError(
            f"an encrypted answer is needed, not an object of type {type(answer).__name__}",
            code="not-an-encrypted-answer",
        )
    return recompute(
        claimed, claimed.question if question is None else question, table, rows, **options
    )


@recompute_value.register(Answer)
def recompute(
    claimed: Answer,
    question: Question,
    table: EncryptedTable | None,
    rows: EncryptedTable | None = None,
    **options: Any,
) -> Answer:
    """Recompute an answer from the table, and compare every residue.

    Without a table, the answer is returned as it is. The model of a prediction is recomputed from
    the table and asked for the rows.

    Raises
    ------
    VerificationError
        If the question, the rows or any residue differ.
    """
    schema = claimed.schema if table is None else table.private_schema or table.schema
    asked = prepare_question(check_question(question), schema)
    if not asked._asks_same(claimed.question):
        raise VerificationError(
            f"this answers {claimed.question.describe()}, and the question is {asked.describe()}, "
            "or one with other parameters",
            code="different-questions",
        )
    if table is None:
        return claimed
    _check_rows(claimed, table, rows)
    own = (
        answer_again(claimed, table, **options)
        if rows is None
        else predict_again(claimed, table, rows, **options)
    )
    if not _is_same(claimed, own):
        raise VerificationError(
            "this is not the answer to its question over these rows: it was altered, or computed "
            "in another way (by another version, added up from other results, or predicted by a "
            "decrypted model)",
            code="wrong-result",
        )
    return own


def _check_rows(claimed: Answer, table: EncryptedTable, rows: EncryptedTable | None) -> None:
    if claimed.is_prediction != (rows is not None):
        raise VerificationError(
            "a prediction is verified with the table of its model and the predicted rows (rows=), "
            "every other answer with the table alone",
            code="rows-to-predict-unclear",
        )
    of = table if rows is None else rows
    for one in (table, of):
        claimed.keys.check_same(one.keys)
    if rows is not None and claimed.keys.joint and set(rows.blocks.ids) & set(table.blocks.ids):
        raise VerificationError(
            "these are votes of rows that the model was fitted to, which would tell something of "
            "each row. Members open votes of new rows only",
            code="votes-of-training-rows",
        )
    if (claimed.n_rows, claimed.block_ids) != (of.n_rows, of.blocks.ids):
        raise VerificationError(
            f"this is of {claimed.n_rows:,} rows in {len(claimed.block_ids)} blocks, and the "
            f"table has {of.n_rows:,} in {len(of.blocks.ids)}: not the same ones, or in another "
            "order",
            code="different-rows",
        )
    if claimed.ciphertexts.flooded:
        raise VerificationError(
            "this result cannot be computed again: it has fresh noise, because contributors "
            "encrypted its rows",
            code="fresh-noise",
        )


def _is_same(claimed: Answer, own: Answer) -> bool:
    """Compare all that is said of two answers; older files do not state the weight bound."""
    said = [
        (
            one.schema.public(),
            one.n_dropped,
            one.schema_digest,
            one.ciphertexts.flooded,
            sorted(one.extra_totals),
        )
        for one in (claimed, own)
    ]
    if said[0] != said[1] or claimed.weight_bound not in (None, own.weight_bound):
        return False
    pairs = [
        (own.ciphertexts, claimed.ciphertexts),
        *((own.extra_totals[name], claimed.extra_totals[name]) for name in claimed.extra_totals),
    ]
    return all(found.equals(claimed) for found, claimed in pairs)
