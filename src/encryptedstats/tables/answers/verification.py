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
from encryptedstats.tables.questions.question import Question, asked_of, check_question
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
    It takes as long as the computation did. A result of a service, a queue or Dask states the
    shards that it was computed in, and is computed in the same shards again. Three kinds of results
    cannot be verified: those that the worker flooded with noise, which is drawn anew each time;
    those that were added up from other results; and predictions of an opened model.

    Parameters
    ----------
    answer : EncryptedAnswer or encrypted model
        Or the path or URL of one, which is then read with the table's public keys.
    table : EncryptedTable
        Or its path or URL. Rows that others encrypted are accepted: nothing is opened here.
    question : Question, optional
        What was agreed to be asked; by default what the answer says of itself.
    rows : EncryptedTable, optional
        Of a prediction: the rows that it is for. Its model, which stayed encrypted, is computed
        from the table first.
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
    given = (
        Answer.load(answer, table.keys)
        if isinstance(answer, (str, os.PathLike))
        else openable(answer)
    )
    if not isinstance(given, Answer) or not given.is_encrypted:
        raise VerificationError(
            f"an object of type {type(answer).__name__} is no encrypted answer",
            code="not-an-encrypted-answer",
        )
    return recompute(
        given, given.question if question is None else question, table, rows, **options
    )


@recompute_value.register(Answer)
def recompute(
    given: Answer,
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
        Where the answer is to another question or from other rows, or something else comes out.
    """
    schema = given.schema if table is None else table.private_schema or table.schema
    asked = asked_of(check_question(question), schema)
    if not asked._asks_same(given.question):
        raise VerificationError(
            f"this answers {given.question.describe()}, and the question is {asked.describe()}, "
            "or one with other parameters",
            code="different-questions",
        )
    if table is None:
        return given
    _check_rows(given, table, rows)
    own = (
        answer_again(given, table, **options)
        if rows is None
        else predict_again(given, table, rows, **options)
    )
    if not _is_same(given, own):
        raise VerificationError(
            "this is not what its question gives over these rows: it was altered, or computed in "
            "another way (by another version, added up from other results, or predicted by an "
            "opened model)",
            code="wrong-result",
        )
    return own


def _check_rows(given: Answer, table: EncryptedTable, rows: EncryptedTable | None) -> None:
    if given.is_prediction != (rows is not None):
        raise VerificationError(
            "a prediction is verified with the table that its model is of and the rows that it is "
            "for (rows), everything else with the table alone",
            code="rows-to-predict-unclear",
        )
    of = table if rows is None else rows
    for one in (table, of):
        given.keys.check_same(one.keys)
    if rows is not None and given.keys.joint and set(rows.blocks.ids) & set(table.blocks.ids):
        raise VerificationError(
            "these are votes of rows that the model was fitted to: opened, they would tell "
            "something of each. Members open votes of new rows",
            code="votes-of-training-rows",
        )
    if (given.n_rows, given.block_ids) != (of.n_rows, of.blocks.ids):
        raise VerificationError(
            f"this is of {given.n_rows:,} rows in {len(given.block_ids)} blocks, and the table has "
            f"{of.n_rows:,} in {len(of.blocks.ids)}: not the same ones, or in another order",
            code="different-rows",
        )
    if given.ciphertexts.flooded:
        raise VerificationError(
            "noise that is drawn anew each time was added to this result, because others encrypted "
            "its rows: nobody computes the same one again",
            code="fresh-noise",
        )


def _is_same(given: Answer, own: Answer) -> bool:
    """Compare all that is said of two answers; older files do not state the weight bound."""
    said = [
        (
            one.schema.public(),
            one.n_dropped,
            one.schema_digest,
            one.ciphertexts.flooded,
            sorted(one.beside),
        )
        for one in (given, own)
    ]
    if said[0] != said[1] or given.weight_bound not in (None, own.weight_bound):
        return False
    pairs = [
        (own.ciphertexts, given.ciphertexts),
        *((own.beside[name], given.beside[name]) for name in given.beside),
    ]
    return all(found.equals(claimed) for found, claimed in pairs)
