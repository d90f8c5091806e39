"""Totals that a site computes at home on its own rows: encrypted under the study's key, or masked
so that only the sum is revealed.

Masks are pairwise: what one site adds another subtracts, so they cancel in the sum of all sites and
in no other. Each is derived from a secret of the two sites (X25519, HKDF), for this study,
question, round and exact list of members. If a site drops out the round starts again with new
masks. With two sites each learns the totals of the other, from the sum.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from encryptedstats.circuits.bounds import read_bounds
from encryptedstats.circuits.expressions import column_names
from encryptedstats.circuits.passes.digits import Stored, split_into_digits
from encryptedstats.circuits.program import PACKED
from encryptedstats.circuits.results import NumberFacts, encrypted_numbers
from encryptedstats.circuits.search import Stage
from encryptedstats.crypto import PublicKeys
from encryptedstats.crypto.envelopes import seal_for
from encryptedstats.crypto.packing import encrypted_totals_noise
from encryptedstats.errors import FileFormatError, StudyError, TooLargeError
from encryptedstats.storage import container
from encryptedstats.studies.runs import Round
from encryptedstats.studies.transcript import StudyState
from encryptedstats.tables import PublicSchema, Question, Schema, Table
from encryptedstats.tables.answers.answer import Answer
from encryptedstats.tables.answers.files import read_answer
from encryptedstats.tables.columns import (
    column_ranges,
    digits_among,
    list_question_columns,
    table_columns,
)
from encryptedstats.tables.encodings import Column

if TYPE_CHECKING:
    from encryptedstats.studies.study import Study

#: Masked numbers are modulo 2 to this power: no total comes near.
MASK_BITS: Final = 256
_BYTES: Final = MASK_BITS // 8
_MODULUS: Final = 1 << MASK_BITS
_BESIDE: Final = 2  # the number of rows, and of those that were left out


# -- encrypted -------------------------------------------------------------------------------------


def plan_totals(question: Question, schema: PublicSchema, n_rows: int) -> Stage:
    """Return what parameters must carry of a question whose totals are computed at home: the size
    of the totals, and their sum.
    """
    circuit = question.circuit(schema)
    columns = list_question_columns(schema, table_columns(schema, classes=schema.has_target))
    bounds = read_bounds(circuit, column_ranges(schema, columns), n_rows)
    first = next(node for node in bounds if node.op == "column")
    return Stage(
        [first.total()],
        n_rows,
        bounds=[max((bounds[one] for one in circuit), key=lambda one: one.largest)],
    )


def encrypt_answer(question: Question, table: Table, keys: PublicKeys) -> Answer:
    """Encrypt the answer from a clear table, as a worker would; answers of several sites can be
    added.
    """
    schema, parameters = table.schema.public(), keys.parameters
    columns = list_question_columns(schema, table_columns(schema, classes=schema.has_target))
    digits = digits_among(
        table_columns(schema, (), classes=schema.has_target, digit_bits=parameters.digit_bits)
    )
    outputs, shifts = split_into_digits(question.circuit(schema), digits)
    parts = [Column.parse(name) for name in column_names(outputs)]
    bounds = read_bounds(outputs, column_ranges(schema, {*columns, *parts}), table.n_rows)
    values = table.evaluate(outputs)
    if any(bounds[one].largest > parameters.max_value for one in outputs):
        raise TooLargeError(
            "totals beyond what the parameters of the study are exact up to",
            code="totals-too-large",
        )
    facts = [
        NumberFacts(bounds[one].low, bounds[one].high, stored=Stored(shift))
        for one, shift in zip(outputs, shifts, strict=True)
    ]
    numbers = encrypted_numbers(keys, values, facts)
    n_dropped, bound = table.n_dropped, table.weight_bound
    return Answer(question, numbers, schema, table.n_rows, n_dropped=n_dropped, weight_bound=bound)


def add_up(study: Study, question: str, now: Round, keys: PublicKeys) -> Answer:
    """Return the sum of the encrypted totals of all members, as the worker computes it."""
    answers = [_read_totals_of(study, question, site, now, keys) for site in now.members]
    total = answers[0]
    for one in answers[1:]:
        total = total + one
    if total.n_rows > study.document.n_rows:
        raise StudyError(
            f"the totals of {question!r} are of {total.n_rows} rows, and the study was planned "
            "for fewer",
            code="too-many-rows",
        )
    return total


def seal_answer(study: Study, state: StudyState, question: str, answer: Answer) -> bytes:
    """Return the encrypted totals of this site, sealed for the worker: the receiver, who has the
    key, adds nothing up.
    """
    data = container.to_bytes(answer.to_container())
    worker = state.parties[study.document.worker]
    return seal_for(
        worker.sealing, data, bind(study, question, state.round(question), study.me.name)
    )


def _read_totals_of(study: Study, question: str, site: str, now: Round, keys: PublicKeys) -> Answer:
    """Read the totals of a site, and check that they claim the noise of new ciphertexts."""
    sealed = study.transcript.read_object(now.objects[site])
    data = study.me.reader.open(sealed, bind(study, question, now, site))
    answer = read_answer(container.from_bytes(data), keys)
    fresh = encrypted_totals_noise(keys.parameters)
    if answer.ciphertexts.form != PACKED or any(
        part.noise != fresh for part in answer.ciphertexts.parts
    ):
        raise FileFormatError(
            f"the totals of {site} are not as a site encrypts them: their noise is said to be "
            "other than that of new ciphertexts. "
            f"Leave {site} out",
            code="false-noise",
        )
    return answer


# -- masked ----------------------------------------------------------------------------------------


def mask_totals(study: Study, state: StudyState, question: str, values: Sequence[int]) -> bytes:
    """Return the totals of this site under its masks, encrypted for the receiver, who learns only
    the sum.
    """
    now = state.round(question)
    data = add_masks(study, state, question, now, values)
    receiver = state.parties[study.document.receiver]
    return seal_for(receiver.sealing, data, bind(study, question, now, study.me.name))


def add_masks(
    study: Study, state: StudyState, question: str, now: Round, values: Sequence[int]
) -> bytes:
    """Return numbers of this site under its masks, which cancel in the sum of all members."""
    state.check_joined("totals are masked by keys of everybody, so add them")
    hidden = [value % _MODULUS for value in values]
    for other in now.members:
        if other != study.me.name:
            mask = _mask(study, state, question, now, other, len(values))
            sign = 1 if study.me.name < other else -1
            hidden = [(a + sign * b) % _MODULUS for a, b in zip(hidden, mask, strict=True)]
    return b"".join(value.to_bytes(_BYTES, "big") for value in hidden)


def add_masked(parts: Mapping[str, bytes], count: int, question: str) -> list[int]:
    """Return the sums of masked numbers of all members, by site."""
    total = [0] * count
    for site, data in parts.items():
        if len(data) != count * _BYTES:
            raise FileFormatError(
                f"the totals of {site} are not as many as {question!r} has: {site} has to be left "
                "out",
                code="wrong-number-of-totals",
            )
        for place in range(count):
            total[place] += int.from_bytes(data[place * _BYTES : (place + 1) * _BYTES], "big")
    values = [one % _MODULUS for one in total]
    return [one - _MODULUS if one > _MODULUS // 2 else one for one in values]


def _mask(
    study: Study, state: StudyState, question: str, now: Round, other: str, count: int
) -> list[int]:
    secret = study.me.reader.agree_secret(
        state.parties[other].sealing, bind(study, question, now, "masks")
    )
    drawn = hashlib.shake_256(secret).digest(_BYTES * count)
    return [
        int.from_bytes(drawn[start : start + _BYTES], "big")
        for start in range(0, len(drawn), _BYTES)
    ]


def bind(study: Study, question: str, now: Round, what: str) -> bytes:
    """Return what masks and envelopes are bound to: the study, question, round and list
    of members.
    """
    return json.dumps(
        ["encryptedstats totals", study.document.id, question, *now.place, list(now.members), what]
    ).encode()


def site_values(question: Question, table: Table) -> list[int]:
    """Return everything that is masked of a site: its totals, its rows, and how many
    were left out.
    """
    return [*map(int, table.totals(question)), table.n_rows, table.n_dropped]


def unmask(study: Study, question: str, now: Round, asked: Question, schema: Schema) -> Any:
    """Return the question's answer from the sum of all members."""
    count = asked._n_totals(schema.public()) + _BESIDE
    read = study.transcript.read_object
    parts = {
        site: study.me.reader.open(read(now.objects[site]), bind(study, question, now, site))
        for site in now.members
    }
    values = add_masked(parts, count, question)
    *totals, n_rows, n_dropped = values
    if not 0 < n_rows <= study.document.n_rows or n_dropped < 0:
        raise FileFormatError(
            f"the sum is of {n_rows} rows, which cannot be: a member has sent other masks or "
            "other totals than it should",
            code="impossible-row-count",
        )
    return asked._present(
        Answer(asked, tuple(totals), schema, n_rows, n_dropped=n_dropped, weight_bound=1)
    )
