"""Answers to questions over some rows, encrypted or decrypted.

Statistics, models and folds are answers in totals; predictions have numbers for every row.
Adding, forgetting, saving and publishing work alike for all of them. The checks of files that
others wrote are in ``answer_files``, predictions in ``predicting``, verification in ``verifying``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from encryptedstats.circuits.program import ROWS
from encryptedstats.circuits.results import Cut, EncryptedNumbers
from encryptedstats.crypto.dispatch import recompute_value
from encryptedstats.crypto.keys import PublicKeys
from encryptedstats.crypto.noise import Noise
from encryptedstats.crypto.residues import Residues
from encryptedstats.errors import ArgumentError, ArgumentTypeError, SchemaError
from encryptedstats.storage import container
from encryptedstats.storage.container import Container
from encryptedstats.storage.objects import save_file
from encryptedstats.tables.block_ids import join_rows, subtract_rows
from encryptedstats.tables.schema.variables import PublicSchema

if TYPE_CHECKING:
    from encryptedstats.tables.encrypted_table import EncryptedTable
    from encryptedstats.tables.questions.question import Question
    from encryptedstats.tables.schema.schema import Schema
    from encryptedstats.tables.table import Table

PREDICTION_KIND: Final = "encrypted prediction"
BLOCKS: Final = "blocks"  # a section of files with more blocks than their headers have room for
MODEL_CUT: Final = "model_cut"  # a section: the shards that a prediction's model was computed in
MAX_LISTED_BLOCKS: Final = 4096


@dataclass(frozen=True, eq=False, repr=False)
class Answer:
    """The answer to a question over some rows.

    ``owner.open(answer)`` gives what the question makes of an encrypted answer. Answers to one
    question from different rows can be added and subtracted.

    Attributes
    ----------
    question : Question
    totals : EncryptedNumbers or tuple of int
        Totals over the rows, encrypted or decrypted; of a prediction, encrypted numbers for every
        row, or an array of them once it is decrypted.
    schema : Schema or PublicSchema
        Of the rows; public where their names are not known here.
    n_rows : int
    block_ids : tuple of str
        Encrypted blocks whose rows are counted; of a prediction, the blocks it is for.
    output : str
        Of a prediction: which of the question's ways to answer was chosen.
    extra_totals : mapping
        Further totals by name, such as the drawn fractions of a forest.
    n_dropped : int
        Rows that were left out of the table because values were missing.
    weight_bound : int or None
        Public bound of the weights of the rows: 1 where they have none; None where it is not
        known, as in files of older versions.
    model_cut : Cut or None
        Of a prediction: the shards that its model was computed in.
    model_blocks : tuple of str
        Of a prediction that was recomputed: the blocks its model was fitted to.
    """

    question: Question
    totals: Any
    schema: Schema | PublicSchema
    n_rows: int
    block_ids: tuple[str, ...] = ()
    output: str = ""
    extra_totals: Mapping[str, Any] = field(default_factory=dict)
    n_dropped: int = 0
    weight_bound: int | None = None
    model_cut: Cut | None = None
    model_blocks: tuple[str, ...] = ()

    @property
    def is_encrypted(self) -> bool:
        """Whether the totals are encrypted."""
        return isinstance(self.totals, EncryptedNumbers)

    @property
    def is_prediction(self) -> bool:
        """Whether it has numbers for every row instead of totals."""
        return (
            self.ciphertexts.form == ROWS
            if self.is_encrypted
            else not isinstance(self.totals, tuple)
        )

    @property
    def ciphertexts(self) -> EncryptedNumbers:
        """The totals of an encrypted answer."""
        if not isinstance(self.totals, EncryptedNumbers):
            raise ArgumentTypeError(
                "this answer is decrypted: it has totals and no ciphertexts",
                code="already-decrypted",
            )
        return self.totals

    @property
    def kind(self) -> str:
        """The kind of its file."""
        if self.is_prediction:
            return PREDICTION_KIND
        return self.question.kind if self.is_encrypted else self.question._opened_kind

    @property
    def schema_digest(self) -> str | None:
        """Keyed digest of the private schema, by which the owner of the rows recognises it."""
        return self.ciphertexts.schema_digest if self.is_encrypted else None

    @property
    def program_digest(self) -> str | None:
        """Digest of the program that computed it, as in ``plan.digests``.

        That of a sum of answers, or of shards, is the sum of their digests modulo 2^256, as in
        ``plan.cluster.digests``. None for decrypted answers, and where it is not stored: in
        predictions and in older files.
        """
        return self.ciphertexts.program_digest if self.is_encrypted else None

    @property
    def keys(self) -> PublicKeys:
        """The public keys that an encrypted answer belongs to."""
        return self.ciphertexts.keys

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the ciphertexts take."""
        return self.ciphertexts.nbytes if self.is_encrypted else 0

    def __len__(self) -> int:
        return self.n_rows

    def __repr__(self) -> str:
        what = self.question.describe(self.schema)
        if not self.is_encrypted:
            return f"Answer({what}, {self.n_rows} rows, decrypted)"
        what = f"prediction by {what}" if self.is_prediction else what
        size = f"{self.nbytes / 1e6:.1f} MB"
        return f"EncryptedAnswer({what}, {self.n_rows} rows, {size}, key {self.keys.key_id})"

    # -- adding and forgetting ---------------------------------------------------------------------

    def __add__(self, other: Answer) -> Answer:
        """Return the answer from the rows of both."""
        self._check_combines(other)
        block_ids = join_rows(self.block_ids, other.block_ids, f"the {self.question._answer_noun}")
        return self._combine(other, 1, block_ids)

    def __sub__(self, other: Answer) -> Answer:
        """Return the answer without the rows of ``other``, which are forgotten."""
        self._check_combines(other)
        block_ids = subtract_rows(self.block_ids, other.block_ids, self.n_rows, other.n_rows)
        return self._combine(other, -1, block_ids)

    def _check_combines(self, other: object) -> None:
        if not isinstance(other, Answer) or self.is_prediction or other.is_prediction:
            raise ArgumentTypeError(
                "answers in totals are combined with each other: numbers of single rows do not "
                "add up",
                code="rows-not-totals",
            )
        nouns = f"{self.question._answer_noun}s"
        if self.is_encrypted != other.is_encrypted:
            raise ArgumentTypeError(
                f"one of the {nouns} is encrypted and the other is open: open both, or none",
                code="encrypted-and-open",
            )
        if not self.question._asks_same(other.question):
            raise ArgumentError(
                "answers to different questions cannot be combined: "
                f"{self.question.describe()} and {other.question.describe()}",
                code="different-questions",
            )
        if not is_same_schema(self.schema, other.schema):
            raise SchemaError(
                f"{nouns} of different schemas cannot be combined", code="different-schemas"
            )

    def _combine(self, other: Answer, sign: int, block_ids: tuple[str, ...]) -> Answer:
        if self.is_encrypted:
            totals: Any = self.ciphertexts.combine(other.ciphertexts, sign)
        else:
            totals = tuple(a + sign * b for a, b in zip(self.totals, other.totals, strict=True))
        bounds = [bound for bound in (self.weight_bound, other.weight_bound) if bound is not None]
        return replace(
            self,
            totals=totals,
            schema=other.schema if isinstance(self.schema, PublicSchema) else self.schema,
            n_rows=self.n_rows + sign * other.n_rows,
            block_ids=block_ids,
            extra_totals={},
            n_dropped=max(0, self.n_dropped + sign * other.n_dropped),
            weight_bound=max(bounds) if len(bounds) == 2 else None,
        )

    # -- predicting and verifying ------------------------------------------------------------------

    def predict_votes(
        self, rows: EncryptedTable | Table, *, output: str | None = None, **options: Any
    ) -> Any:
        """Return what the question answers for every row of a table, without opening anything.

        The votes are encrypted unless the answer and the rows are both clear. ``owner.open(votes,
        schema)`` gives what the question makes of them. Keys: ``es.plan(...,
        encrypted_prediction=True)``.

        Parameters
        ----------
        rows : EncryptedTable or Table
        output : str, optional
            For questions that can answer in several ways.
        **options
            See :meth:`EncryptedTable.evaluate`.
        """
        from encryptedstats.tables.answers.predictions import predict_rows

        if self.is_prediction:
            raise ArgumentTypeError(
                "a prediction does not predict again: ask the answer in totals that it was made "
                "with",
                code="prediction-of-prediction",
            )
        return predict_rows(self, rows, self.question._choose_output(output), **options)

    def verify(
        self,
        question: Question,
        table: EncryptedTable | None,
        rows: EncryptedTable | None = None,
        **options: Any,
    ) -> Answer:
        """Return the same answer, recomputed and compared: see :func:`encryptedstats.verify`.

        Without a table, only the question is compared and the answer is returned as it is.
        """
        verified: Answer = recompute_value(self, question, table, rows, **options)
        return verified

    # -- opening by the members of a joint key -----------------------------------------------------

    def statement(self) -> bytes:
        """Return what is answered, and for which rows, as members of a joint key record it."""
        name, parameters = self.question.name, self.question.parameters()
        facts = [name, parameters, self.n_rows, list(self.block_ids), self.keys.key_id]
        if self.is_prediction:
            facts += ["votes", self.output, list(self.model_blocks)]
        return json.dumps(facts, sort_keys=True).encode()

    def packs(self) -> list[tuple[Residues, Noise]]:
        """Return the ciphertexts of packed totals or votes."""
        return self.ciphertexts.packs()

    def with_packs(self, keys: PublicKeys, packs: Sequence[tuple[Residues, Noise]]) -> Answer:
        """Return the same answer under other keys."""
        totals = self.ciphertexts.with_packs(keys, packs)
        return replace(self, totals=totals, extra_totals={}, model_cut=None, model_blocks=())

    # -- files -------------------------------------------------------------------------------------

    def save(self, url: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the answer to a path or fsspec URL.

        Encrypted, the file holds no key and no names; decrypted, it holds all that is known. What
        speaks of single rows or is decrypted is readable to its user only.
        """
        private = self.is_prediction or not self.is_encrypted
        save_file(self.to_container(), url, overwrite=overwrite, private=private)
        if self.is_encrypted:
            self.ciphertexts.drop_checkpoints()

    def to_container(
        self, kind: str | None = None, fields: dict[str, Any] | None = None
    ) -> Container:
        """Return the answer as a checked envelope of bytes; ``fields`` are stored with it."""
        if not self.is_encrypted:
            head, sections = self._header(self.schema)
            head["private"] = not isinstance(self.schema, PublicSchema)
            numbers = {"totals": self.totals, **self.extra_totals}
            sections |= {
                name: json.dumps(list(map(int, found))).encode() for name, found in numbers.items()
            }
            return Container(kind or self.kind, "", "", {**head, **(fields or {})}, sections)
        head, sections = self._header(self.schema.public())
        if self.is_prediction:
            head["output"] = self.output
            if self.model_cut is not None:
                sections[MODEL_CUT] = self.model_cut.to_bytes()
        sections |= {
            name: container.to_bytes(totals.to_container())
            for name, totals in self.extra_totals.items()
        }
        file = self.ciphertexts.to_container(kind or self.kind, {**head, **(fields or {})})
        return replace(file, sections={**file.sections, **sections})

    def _header(self, schema: Schema | PublicSchema) -> tuple[dict[str, Any], dict[str, bytes]]:
        listed = list(self.block_ids) if len(self.block_ids) <= MAX_LISTED_BLOCKS else []
        fields = {
            "question": self.question.name,
            "params": self.question.parameters(),
            "n_rows": self.n_rows,
            "n_dropped": self.n_dropped,
            BLOCKS: listed,
            "schema": schema.to_json(),
        }
        if self.weight_bound is not None:
            fields["weight_bound"] = int(self.weight_bound)
        if len(listed) == len(self.block_ids):
            return fields, {}
        return fields, {BLOCKS: json.dumps(list(self.block_ids)).encode()}

    @classmethod
    def load(cls, url: str | os.PathLike[str], keys: PublicKeys) -> Answer:
        """Read an encrypted answer that belongs to ``keys``."""
        from encryptedstats.tables.answers.files import load_answer

        return load_answer(url, keys)

    def __getstate__(self) -> dict[str, Any]:
        if self.is_encrypted:
            raise ArgumentTypeError(
                "encrypted answers are not pickled: use save() and load()", code="not-pickled"
            )
        return dict(vars(self))


def is_same_schema(a: Schema | PublicSchema, b: Schema | PublicSchema) -> bool:
    """Return whether rows of both mean the same, as far as names and edges are known here."""
    if isinstance(a, PublicSchema) or isinstance(b, PublicSchema):
        return a.public() == b.public()
    return a.same_bins(b)
