"""Check that a result is opened with the schema of its rows, and no other of the same shape.

Results carry a keyed digest of the private schema (see :mod:`encryptedstats.crypto.encryption`),
which only the owner can compare.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from encryptedstats.circuits.passes.digits import join_parts
from encryptedstats.crypto.dispatch import decrypt_value
from encryptedstats.crypto.encryption import Decryptor
from encryptedstats.errors import ArgumentTypeError, Cure, SchemaError
from encryptedstats.tables.answers.answer import Answer
from encryptedstats.tables.schema.schema import Schema
from encryptedstats.tables.schema.variables import PublicSchema

_CURE: Final = Cure(
    "schema of the rows",
    "give the schema that the table was encrypted with, schema= (keep its file beside the secret "
    "key)",
)


@decrypt_value.register(Answer)
def _open_answer(answer: Answer, decryptor: Decryptor, *, schema: Any = None) -> Any:
    """Decrypt an answer, and return what the question makes of it."""
    opened = decrypt_answer(answer, decryptor, schema)
    return opened.question._present(opened)


def present_totals(
    answer: Answer, values: Sequence[int], decryptor: Decryptor, schema: Any = None
) -> Any:
    """Return what the question makes of totals that are decrypted already, in the order of the
    answer's ciphertexts.
    """
    known = opening_schema(schema, answer, decryptor)
    totals = join_parts(values, [one.stored for one in answer.ciphertexts.facts])
    opened = replace(answer, totals=tuple(totals), schema=known)
    return opened.question._present(opened)


def decrypt_answer(answer: Answer, decryptor: Decryptor, schema: Any = None) -> Answer:
    """Return the same answer with decrypted totals, and with the schema it is to be read by."""
    known = opening_schema(schema, answer, decryptor)
    found = decrypt_value(answer.ciphertexts, decryptor)
    totals = found if answer.is_prediction else tuple(found)
    extra_totals = {
        name: decrypt_value(one, decryptor) for name, one in answer.extra_totals.items()
    }
    return replace(answer, totals=totals, schema=known, extra_totals=extra_totals)


def opening_schema(
    wanted: Schema | str | os.PathLike[str] | None, answer: Answer, decryptor: Decryptor
) -> Schema | PublicSchema:
    """Return the schema to open an answer with: the given one, if it is that of the rows."""
    known = answer.schema
    decryptor.check_own(answer.keys)
    if wanted is None:
        return known
    if isinstance(wanted, (str, os.PathLike)):
        wanted = Schema.load(wanted)
    if not isinstance(wanted, (Schema, PublicSchema)):
        raise ArgumentTypeError(
            f"schema= is a Schema or the path of its file, not a {type(wanted).__name__}: {_CURE}",
            code="not-a-schema",
        )
    if wanted.public() != known.public():
        raise SchemaError(
            "this schema is not the one of the rows, the numbers of variables, bins or classes "
            "differ: ",
            _CURE,
            code="other-schema-shape",
        )
    if isinstance(wanted, PublicSchema):
        return wanted
    if answer.schema_digest is not None:
        same = answer.schema_digest == decryptor.schema_digest(wanted.digest_json())
    else:
        same = isinstance(known, PublicSchema) or wanted.same_bins(known)
    if not same:
        raise SchemaError(
            "this schema has the shape of that of the rows, and yet it is another one: cut "
            "points, levels, names, their order, or "
            "the classes differ. The result would have wrong labels: ",
            _CURE,
            code="other-schema",
        )
    return wanted
