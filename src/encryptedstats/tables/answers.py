"""Encrypted answers: a question, and the ciphertexts that answer it, for the owner to read. All results are stored as these are.

Statistics, models and folds are answers in totals; predictions are answers for every row.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NoReturn

from encryptedstats.circuits.digits import in_digits
from encryptedstats.circuits.program import ROWS
from encryptedstats.circuits.results import NUMBERS_KIND, Cut, EncryptedNumbers, read_cut
from encryptedstats.crypto.dispatch import recompute_value
from encryptedstats.crypto.keys import PublicKeys
from encryptedstats.crypto.noise import Noise
from encryptedstats.crypto.residues import Residues
from encryptedstats.errors import FileFormatError, SchemaError, VerificationError
from encryptedstats.storage import container
from encryptedstats.storage.container import Container
from encryptedstats.storage.objects import load_file, save_file
from encryptedstats.tables.block_rows import joined_rows, rows_left
from encryptedstats.tables.columns import digits_among, table_columns
from encryptedstats.tables.questions import (
    FOLDS_KIND,
    MODEL_KIND,
    OPEN_RESULT_KIND,
    RESULT_KIND,
    OpenedTotals,
    Question,
    asked_of,
    checked_question,
    in_shapes,
    is_same,
    question_class,
)
from encryptedstats.tables.schema.schema import Schema
from encryptedstats.tables.schema.variables import PublicSchema

if TYPE_CHECKING:
    from encryptedstats.tables.encrypted import EncryptedTable

PREDICTION_KIND: Final = "encrypted prediction"
ANSWER_KINDS: Final = (RESULT_KIND, MODEL_KIND, FOLDS_KIND, PREDICTION_KIND)
BLOCKS: Final = "blocks"  # a section of files, for more blocks than their headers have room for
MODEL_CUT: Final = "model_cut"  # a section: the shards that the model of a prediction was computed in
MAX_LISTED_BLOCKS: Final = 4096
MAX_BINS: Final = 1 << 20
#: What a question may raise that is made from what somebody else has written.
IMPOSSIBLE: Final = (ValueError, TypeError, ArithmeticError, LookupError, AttributeError, RecursionError)
#: Far beyond any sum, and so small that what is computed from a few such numbers still is a floating-point number.
LARGEST_TOTAL: Final = 1 << 256
_NOTHING: Final[Mapping[str, EncryptedNumbers]] = MappingProxyType({})


class EncryptedAnswer:
    """What a question was answered, encrypted: ``owner.decrypt(answer)`` gives what the question makes of it.

    Answers to one question from different rows can be added and subtracted.

    Attributes
    ----------
    question : Question
    ciphertexts : EncryptedNumbers
        Totals over the rows; or, of a prediction, numbers for every row.
    schema : Schema or PublicSchema
        Of the rows; public where nobody here knows the names.
    n_rows : int
    block_ids : tuple of str
        Encrypted blocks whose rows are inside; of a prediction, those of the rows that it is for.
    output : str
        Of a prediction: which of its ways to answer.
    n_dropped : int
        Rows that were left out, for values that were missing, when the table was encrypted.
    weight_bound : int or None
        Public bound of the weights of the rows: 1 where they have none; None where it is not known,
        as in files of older versions.
    model_cut : Cut or None
        Of a prediction: the shards that its model was computed in.
    """

    def __init__(
        self,
        question: Question,
        ciphertexts: EncryptedNumbers,
        schema: Schema | PublicSchema,
        n_rows: int,
        block_ids: Sequence[str] = (),
        *,
        output: str = "",
        beside: Mapping[str, EncryptedNumbers] = _NOTHING,
        n_dropped: int = 0,
        weight_bound: int | None = None,
        model_cut: Cut | None = None,
    ) -> None:
        self.question = question
        self.ciphertexts = ciphertexts
        self.schema = schema
        self.n_rows = n_rows
        self.block_ids = tuple(block_ids)
        self.output = output
        self.beside = dict(beside)
        self.n_dropped = n_dropped
        self.weight_bound = weight_bound
        self.model_cut = model_cut
        self.model_blocks: tuple[str, ...] = ()  # of a prediction that was computed anew: those that its model is of

    @property
    def kind(self) -> str:
        """What a file of it says that it holds."""
        return PREDICTION_KIND if self.ciphertexts.form == ROWS else self.question.kind

    @property
    def program_digest(self) -> str | None:
        """A hash of the program that computed it, as in ``plan.digests``; None where it was added up."""
        return self.ciphertexts.program_digest

    @property
    def schema_digest(self) -> str | None:
        """By which the owner of the rows knows their schema again."""
        return self.ciphertexts.schema_digest

    @property
    def keys(self) -> PublicKeys:
        """The keys it belongs to."""
        return self.ciphertexts.keys

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self.ciphertexts.nbytes

    def __len__(self) -> int:
        return self.n_rows

    def __repr__(self) -> str:
        what = self.question.describe(self.schema)
        what = f"prediction by {what}" if self.kind == PREDICTION_KIND else what
        return f"EncryptedAnswer({what}, {self.n_rows} rows, {self.nbytes / 1e6:.1f} MB, key {self.keys.key_id})"

    # -- adding and forgetting -------------------------------------------------------------------------------------

    def __add__(self, other: EncryptedAnswer) -> EncryptedAnswer:
        """The answer from the rows of both."""
        totals, theirs = self._both(other)
        rows = joined_rows(self.block_ids, other.block_ids, "the answer")
        return self._from(totals, theirs, other, 1, rows)

    def __sub__(self, other: EncryptedAnswer) -> EncryptedAnswer:
        """The answer without the rows of ``other``: they are forgotten."""
        totals, theirs = self._both(other)
        rows = rows_left(self.block_ids, other.block_ids, self.n_rows, other.n_rows)
        return self._from(totals, theirs, other, -1, rows)

    def _both(self, other: EncryptedAnswer) -> tuple[EncryptedNumbers, EncryptedNumbers]:
        if not isinstance(other, EncryptedAnswer) or ROWS in (self.ciphertexts.form, other.ciphertexts.form):
            raise TypeError("answers in totals are combined with each other: numbers of single rows do not add up")
        if not is_same(self.question, other.question):
            raise ValueError(
                f"answers to different questions cannot be combined: {self.question.describe()} and "
                f"{other.question.describe()}"
            )
        if not same_schema(self.schema, other.schema):
            raise SchemaError("answers of different schemas cannot be combined")
        return self.ciphertexts, other.ciphertexts

    def _from(
        self,
        totals: EncryptedNumbers,
        theirs: EncryptedNumbers,
        other: EncryptedAnswer,
        sign: int,
        block_ids: tuple[str, ...],
    ) -> EncryptedAnswer:
        schema = other.schema if isinstance(self.schema, PublicSchema) else self.schema
        n_rows, n_dropped = self.n_rows + sign * other.n_rows, dropped_of_both(self.n_dropped, other.n_dropped, sign)
        found = totals.combined(theirs, sign)
        bound = bound_of_both(self.weight_bound, other.weight_bound)
        return EncryptedAnswer(self.question, found, schema, n_rows, block_ids, n_dropped=n_dropped, weight_bound=bound)

    def handed_out(self) -> Any:
        """What users get of it: totals as their question has it, a prediction as it is."""
        return self if self.kind == PREDICTION_KIND else self.question.closed(self)

    # -- answering for rows --------------------------------------------------------------------------------------------

    def predict_votes(self, rows: EncryptedTable, *, output: str | None = None, **options: Any) -> EncryptedAnswer:
        """What the question answers for every row of an encrypted table, without being opened: for questions that have ``answers``.

        ``owner.open(answer, schema)`` gives what the question makes of it. Keys: ``es.plan(..., encrypted_prediction=True)``.
        Options are those of :meth:`EncryptedTable.evaluate`; ``output`` is for questions that can answer in several ways.
        """
        if self.kind == PREDICTION_KIND:
            raise TypeError("a prediction does not predict again: ask the answer in totals that it was made with")
        return rows.predicted_by(self, self.question.chosen_output(output), **options)

    # -- reading ---------------------------------------------------------------------------------------------------

    def read(self, opened: Any, schema: Schema | PublicSchema) -> Any:
        """What the question makes of the opened ciphertexts."""
        if self.ciphertexts.form == ROWS:
            shapes = self.question.answer_shapes(schema.public(), self.output)
            return self.question.judge(in_shapes(opened, shapes), schema, self.output)
        return self.question.opened(
            opened, schema, self.n_rows, self.block_ids, self.n_dropped, weight_bound=self.weight_bound
        )

    # -- computed anew, and opened by the members of a joint key -----------------------------------------------------

    def verified(
        self, question: Question, table: EncryptedTable | None, rows: EncryptedTable | None = None, **options: Any
    ) -> EncryptedAnswer:
        """The same answer, computed from the table, residue for residue; without a table, this one as it is. Of a prediction, its
        model is computed from the table, and asked for the rows. Options: as of :meth:`EncryptedTable.evaluate`.

        Raises
        ------
        VerificationError
            Where it does not answer the question, is of other rows, or something else comes out.
        """
        schema = self.schema if table is None else table.private_schema or table.schema
        asked = asked_of(checked_question(question), schema)
        if not is_same(asked, self.question):
            raise VerificationError(
                f"this answers {self.question.describe()}, and the question is {asked.describe()}, or one with other parameters"
            )
        if table is None:
            return self
        if (self.kind == PREDICTION_KIND) != (rows is not None):
            raise VerificationError(
                "a prediction is verified with the table that its model is of and the rows that it is for (rows), everything else "
                "with the table alone"
            )
        of = table if rows is None else rows
        for one in (table, of):
            self.keys.check_same(one.keys)
        if rows is not None and self.keys.joint and set(rows.blocks.ids) & set(table.blocks.ids):
            raise VerificationError(
                "these are votes of rows that the model itself is of: who opens them would learn something of each. Members open "
                "votes of new rows"
            )
        if (self.n_rows, self.block_ids) != (of.n_rows, of.blocks.ids):
            raise VerificationError(
                f"this is of {self.n_rows:,} rows in {len(self.block_ids)} blocks, and the table has {of.n_rows:,} in "
                f"{len(of.blocks.ids)}: not the same ones, or in another order"
            )
        if self.ciphertexts.flooded:
            raise VerificationError(
                "noise that is drawn anew each time was added to this result, because others encrypted its rows: nobody computes "
                "the same one again"
            )
        own: EncryptedAnswer = recompute_value(self, table, rows, **options)
        if not self._is_same(own):
            raise VerificationError(
                "this is not what its question gives over these rows: it was altered, or computed in another way (by another "
                "version, added up from other results, or predicted by an opened model)"
            )
        return own

    def _is_same(self, own: EncryptedAnswer) -> bool:
        """Compare all that is said of an answer with one that was computed here; older files do not state the weight bound."""
        said = [
            (one.schema.public(), one.n_dropped, one.schema_digest, one.ciphertexts.flooded, sorted(one.beside))
            for one in (self, own)
        ]
        if said[0] != said[1] or self.weight_bound not in (None, own.weight_bound):
            return False
        pairs = [(own.ciphertexts, self.ciphertexts), *((own.beside[name], self.beside[name]) for name in self.beside)]
        return all(found.equals(given) for found, given in pairs)

    def statement(self) -> bytes:
        """What it answers, and of which rows."""
        facts = [self.question.name, self.question.parameters(), self.n_rows, list(self.block_ids), self.keys.key_id]
        if self.kind == PREDICTION_KIND:
            facts += ["votes", self.output, list(self.model_blocks)]
        return json.dumps(facts, sort_keys=True).encode()

    def packs(self) -> list[tuple[Residues, Noise]]:
        """Its ciphertexts, if they are packed totals or votes."""
        return self.ciphertexts.packs()

    def with_packs(self, keys: PublicKeys, packs: Sequence[tuple[Residues, Noise]]) -> EncryptedAnswer:
        """The same answer under other keys."""
        totals = self.ciphertexts.with_packs(keys, packs)
        return EncryptedAnswer(
            self.question,
            totals,
            self.schema,
            self.n_rows,
            self.block_ids,
            output=self.output,
            n_dropped=self.n_dropped,
            weight_bound=self.weight_bound,
        )

    # -- files -----------------------------------------------------------------------------------------------------

    def save(self, url: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the answer to a path or fsspec URL, for the owner to fetch. The file holds no key and no names.

        A prediction speaks of single rows: its local file is readable to its user only.
        """
        save_file(self.to_container(), url, overwrite=overwrite, private=self.kind == PREDICTION_KIND)
        self.ciphertexts.drop_checkpoints()

    def to_container(self, kind: str | None = None, fields: dict[str, Any] | None = None) -> Container:
        """As a checked envelope of bytes; ``fields`` are for those who store more with it."""
        head, sections = stored_head(
            self.question, self.schema.public(), self.n_rows, self.block_ids, self.n_dropped, self.weight_bound
        )
        if self.kind == PREDICTION_KIND:
            head["output"] = self.output
            if self.model_cut is not None:
                sections[MODEL_CUT] = self.model_cut.to_bytes()
        sections |= {name: container.to_bytes(totals.to_container()) for name, totals in self.beside.items()}
        file = self.ciphertexts.to_container(kind or self.kind, {**head, **(fields or {})})
        return replace(file, sections={**file.sections, **sections})

    @classmethod
    def load(cls, url: str | os.PathLike[str], keys: PublicKeys) -> EncryptedAnswer:
        """Read an answer that belongs to ``keys``."""
        file = load_file(url)
        if file.kind not in ANSWER_KINDS:
            raise FileFormatError(f"{url} holds {file.kind!r}, and an encrypted answer is wanted here")
        return read_answer(file, keys)

    def __reduce__(self) -> NoReturn:
        raise TypeError("encrypted answers are not pickled: use save() and load()")


def dropped_of_both(own: int, others: int, sign: int) -> int:
    """How many rows were left out of the rows of both, or of those of one without the other's."""
    return max(0, own + sign * others)


def bound_of_both(own: int | None, others: int | None) -> int | None:
    """Return the weight bound of the rows of both; None where one of the two is not known."""
    return None if own is None or others is None else max(own, others)


def same_schema(a: Schema | PublicSchema, b: Schema | PublicSchema) -> bool:
    """Whether rows of both mean the same, as far as it is known here: bins, and also their names and edges."""
    if isinstance(a, PublicSchema) or isinstance(b, PublicSchema):
        return a.public() == b.public()
    return a.same_bins(b)


# -- what all files of answers say, encrypted or opened -----------------------------------------------------------------------


@dataclass(frozen=True)
class StoredHead:
    """What a file says of an answer beside its numbers, checked."""

    question: Question
    schema: Schema | PublicSchema
    n_rows: int
    block_ids: tuple[str, ...]
    n_dropped: int
    weight_bound: int | None = None


def stored_head(
    question: Question,
    schema: Schema | PublicSchema,
    n_rows: int,
    block_ids: Sequence[str],
    n_dropped: int,
    weight_bound: int | None = None,
) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The fields and sections that :func:`read_head` reads."""
    listed = list(block_ids) if len(block_ids) <= MAX_LISTED_BLOCKS else []
    fields = {
        "question": question.name,
        "params": question.parameters(),
        "n_rows": n_rows,
        "n_dropped": n_dropped,
        BLOCKS: listed,
        "schema": schema.to_json(),
    }
    if weight_bound is not None:
        fields["weight_bound"] = int(weight_bound)
    return fields, {} if len(listed) == len(block_ids) else {BLOCKS: json.dumps(list(block_ids)).encode()}


def read_head(file: Container, schema_type: type[Schema | PublicSchema] = PublicSchema) -> StoredHead:
    """The inverse of :func:`stored_head`, with every check: a file may come from anybody."""
    name, parameters = file.expect("question", str), file.expect("params", dict)
    n_rows, blocks, document = file.expect("n_rows", int), listed_blocks(file), file.expect("schema", str)
    n_dropped = file.expect("n_dropped", int)
    if (
        not all(0 <= number < 1 << 63 for number in (n_rows, n_dropped))
        or not all(isinstance(block, str) for block in blocks)
        or len(set(blocks)) != len(blocks)
    ):
        raise FileFormatError("the file states an impossible number of rows or list of blocks")
    weight_bound = file.expect("weight_bound", int) if "weight_bound" in file.fields else None
    if weight_bound is not None and not 1 <= weight_bound <= 1 << 62:
        raise FileFormatError("the file states an impossible bound of the weights of its rows")
    try:
        question = question_class(name).from_parameters(parameters)
        schema = schema_type.from_json(document)
        public = schema.public()
        if public.n_classes > MAX_BINS or sum(variable.n_bins for variable in public.variables) > MAX_BINS:
            raise FileFormatError("the file claims more bins or classes than there can be")
        question.check_schema(public)
        if question.settled() is not question:
            raise FileFormatError(f"the file has a {name} that leaves something to chance: it was never asked so")
    except FileFormatError:
        raise
    except IMPOSSIBLE as error:
        raise FileFormatError(f"the file has a question or schema that cannot be: {error}") from error
    return StoredHead(question, schema, n_rows, tuple(blocks), n_dropped, weight_bound)


def listed_blocks(file: Container) -> list[Any]:
    """The blocks whose rows are inside: in the header, or in a section of their own where they are many."""
    listed: list[Any] = file.expect(BLOCKS, list)
    return file.listed(BLOCKS) if BLOCKS in file.sections else listed


def integers_section(file: Container, name: str) -> list[int]:
    """A list of totals that a section of a file holds."""
    totals = file.listed(name)
    if not all(type(total) is int for total in totals):
        raise FileFormatError(f"the {name} of the file are no list of integers")
    if any(abs(total) > LARGEST_TOTAL for total in totals):
        raise FileFormatError("the file has totals that cannot be: no sum over rows is that large")
    return totals


def opened_container(opened: OpenedTotals) -> Container:
    """The opened totals of a question that is no model, as a checked envelope of bytes."""
    fields, sections = stored_head(
        opened.question, opened.schema, opened.n_rows, opened.block_ids, opened.n_dropped, opened.weight_bound
    )
    fields["private"] = isinstance(opened.schema, Schema)
    return Container(OPEN_RESULT_KIND, "", "", fields, sections | {"totals": json.dumps(list(opened.totals)).encode()})


def read_opened(file: Container) -> Any:
    """What the question reads from the opened totals in a file, with every check."""
    head = read_head(file, Schema if file.expect("private", bool) else PublicSchema)
    totals, question = integers_section(file, "totals"), head.question
    if question.kind != RESULT_KIND:
        raise FileFormatError(f"the file says that it holds {file.kind!r}, and {question.name} gives none")
    expected = _expected(question, head.schema.public(), None)
    if len(totals) != expected:
        raise FileFormatError(f"the file has {len(totals)} totals, and an answer to {question.name} has {expected}")
    try:
        return question.opened(
            totals, head.schema, head.n_rows, head.block_ids, head.n_dropped, weight_bound=head.weight_bound
        )
    except IMPOSSIBLE as error:
        raise FileFormatError(f"the file has totals that cannot be: {error}") from error


def read_answer(file: Container, keys: PublicKeys | None) -> EncryptedAnswer:
    """The encrypted answer in a file, with every check."""
    if keys is None:
        raise TypeError(f"the file holds an {file.kind}: give the public keys= it belongs to")
    head = read_head(file)
    public = head.schema.public()
    ciphertexts, is_prediction = EncryptedNumbers.from_container(file, keys), file.kind == PREDICTION_KIND
    output = file.expect("output", str) if is_prediction else ""
    expected = _expected(head.question, public, output if is_prediction else None)
    if len(ciphertexts) != expected:
        raise FileFormatError(
            f"the file has {len(ciphertexts)} numbers, and an answer to {head.question.name} has {expected}"
        )
    if (ciphertexts.form == ROWS) != is_prediction:
        raise FileFormatError(
            f"the file says that it holds {file.kind!r}, and its numbers are in the form {ciphertexts.form!r}"
        )
    if is_prediction and ciphertexts.n_rows != head.n_rows:
        raise FileFormatError(
            f"the file has answers for {ciphertexts.n_rows} rows, and says that they are {head.n_rows}"
        )
    if not is_prediction:
        if head.block_ids and head.n_rows > len(head.block_ids) * keys.parameters.slots:
            raise FileFormatError(
                f"the file says {head.n_rows:,} rows, and its {len(head.block_ids):,} blocks hold fewer"
            )
        _check_parts(head.question, public, ciphertexts)
    cut = ciphertexts.cut
    if cut is not None and cut.blocks[-1] != len(head.block_ids):
        raise FileFormatError(
            "the file has shards of other blocks than it is of: some would be left out or counted twice"
        )
    if file.kind not in (PREDICTION_KIND, head.question.kind):
        raise FileFormatError(f"the file says that it holds {file.kind!r}, and {head.question.name} gives none")
    return EncryptedAnswer(
        head.question,
        ciphertexts,
        head.schema,
        head.n_rows,
        head.block_ids,
        output=output,
        beside=_read_beside(file, head.question, public, keys),
        n_dropped=head.n_dropped,
        weight_bound=head.weight_bound,
        model_cut=read_cut(file, MODEL_CUT) if is_prediction else None,
    )


def _check_parts(question: Question, schema: PublicSchema, totals: EncryptedNumbers) -> None:
    """Refuse totals whose parts count for other powers of 2 than those of the question do under these keys.

    Keys and schema say which numbers are in digits; what the file says of it is not believed.
    """
    bits = totals.keys.parameters.digit_bits
    digits = digits_among(table_columns(schema, (), classes=schema.has_target, digit_bits=bits))
    given = [facts.stored.shift for facts in totals.facts]
    try:
        shifts = in_digits(question.circuit(schema), digits)[1] if digits else [0] * len(given)
    except IMPOSSIBLE as error:
        raise FileFormatError(f"the file has a question that its schema does not allow: {error}") from error
    bases = [facts.stored.base for facts in totals.facts]
    if given != shifts or (any(bases) and not all(bases[: len(totals) // 2])):
        raise FileFormatError(
            f"the file has parts of totals that an answer to {question.name} does not have: it was altered, and is refused"
        )


def read_beside(file: Container, shapes: Mapping[str, tuple[int, ...]], read: Callable[[str], Any]) -> dict[str, Any]:
    """Further totals that a file has beside its own, each by ``read`` from its section, as many as there must be."""
    found = {name: read(name) for name in shapes if name in file.sections}
    for name, totals in found.items():
        if len(totals) != math.prod(shapes[name]):
            raise FileFormatError(
                f"the file has {len(totals)} totals {name!r} beside its own, and there are {math.prod(shapes[name])}"
            )
    return found


def _read_beside(
    file: Container, question: Question, schema: PublicSchema, keys: PublicKeys
) -> dict[str, EncryptedNumbers]:
    def read(name: str) -> EncryptedNumbers:
        found = EncryptedNumbers.from_container(container.from_bytes(file.section(name), kind=NUMBERS_KIND), keys)
        if not found.are_whole:
            raise FileFormatError(f"the file has parts of totals {name!r}, which are whole")
        return found

    return read_beside(file, question.beside_shapes(schema), read)


def _expected(question: Question, schema: PublicSchema, output: str | None) -> int:
    """How many numbers an answer has: totals, or those of an output for every row."""
    if output is not None and output not in question.outputs:
        raise FileFormatError(f"the file has answers {output!r}, which a {question.name} does not give")
    try:
        shapes = question.shapes(schema) if output is None else question.answer_shapes(schema, output)
        return sum(math.prod(shape) for shape in shapes.values())
    except NotImplementedError as error:
        raise FileFormatError(f"the file has answers of a model that gives none: {error}") from error
    except IMPOSSIBLE as error:
        raise FileFormatError(f"the file has a question that its schema does not allow: {error}") from error
