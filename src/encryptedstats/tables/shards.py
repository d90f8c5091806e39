"""Computations in shards: some blocks of a table and some totals of a question at a time.

A cluster computes so, and adds the shards up. An answer says which shards it was computed in, and
``es.verify`` computes it again in the same ones: key switching rounds, so the same totals in other
shards have other residues.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import accumulate
from operator import add
from typing import Any

from encryptedstats.circuits.compiled import Conditions
from encryptedstats.circuits.expressions import Expression, circuit_digest
from encryptedstats.circuits.layout import Layout
from encryptedstats.circuits.passes.digits import Stored
from encryptedstats.circuits.passes.duplicates import deduplicate
from encryptedstats.circuits.program import PACKED
from encryptedstats.circuits.proof import NoiseReport
from encryptedstats.circuits.results import Cut, EncryptedNumbers, pieces_of, sum_of_digests
from encryptedstats.circuits.shards import prove_shards
from encryptedstats.errors import ArgumentTypeError, VerificationError
from encryptedstats.tables.answers.answer import Answer
from encryptedstats.tables.encrypted_table import EncryptedTable
from encryptedstats.tables.facts import MemoryBlocks, StoredBlocks, TableFacts
from encryptedstats.tables.questions.question import Question


@dataclass(frozen=True)
class DistinctTotals:
    """The distinct totals of a question, for computing in shards.

    Attributes
    ----------
    asked : list of Expression
        All totals, in the order of the question.
    distinct : list of Expression
        The different ones, which shards compute.
    """

    asked: list[Expression]
    distinct: list[Expression]
    _positions: list[int]
    _stored: list[Stored]

    def arrange(self, computed: EncryptedNumbers) -> EncryptedNumbers:
        """Return the totals that were asked for, from the distinct ones."""
        return computed.repeat(self._positions).in_parts(self._stored)


def distinct_totals(facts: TableFacts, question: Question, layout: Layout) -> DistinctTotals:
    """Write the totals of a question over the stored columns, and find the distinct ones."""
    asked, stored = facts.circuit(question, layout)
    distinct, positions = deduplicate(asked)
    return DistinctTotals(asked, distinct, positions, stored)


def prove_cut(
    outputs: Sequence[Expression],
    facts: TableFacts,
    rows: Sequence[int],
    shards: Sequence[tuple[int, int]],
) -> NoiseReport:
    """Return the proof that all shards of a table are computed by: that for the largest."""
    largest = max(shards, key=lambda blocks: blocks[1] - blocks[0])
    inside = tuple(rows[slice(*largest)])
    layout, own = facts.layout_of(inside), facts.with_secret_key
    conditions = Conditions(facts.parameters, layout, (), own, facts.form)
    return prove_shards(outputs, conditions)


def join_ranges(parts: Sequence[EncryptedNumbers], circuit: str) -> EncryptedNumbers:
    """Join the totals of all ranges, one after the other. All ranges but the last fill
    their packs.
    """
    first = parts[0]
    facts = [fact for part in parts for fact in part.facts]
    packs = [pack for part in parts for pack in part.parts]
    before = [0, *accumulate(len(part.facts) for part in parts[:-1])]
    places = [
        start + place for start, part in zip(before, parts, strict=True) for place in part.places
    ]
    joined = EncryptedNumbers(
        first.keys,
        first.form,
        facts,
        packs,
        first.width,
        schema_digest=first.schema_digest,
        flooded=first.flooded,
        circuit=circuit,
        places=places,
    )
    joined.program_digest = sum_of_digests(parts)
    return joined


def take_blocks(table: EncryptedTable, start: int, stop: int) -> EncryptedTable:
    """Return the table of some blocks of another."""
    blocks, some = table.blocks, slice(start, stop)
    if isinstance(blocks, StoredBlocks):
        taken: Any = replace(blocks, entries=blocks.entries[some])
    elif isinstance(blocks, MemoryBlocks):
        taken = MemoryBlocks(
            blocks.ids[some],
            blocks.rows[some],
            blocks.residues[some],
            blocks.signers[some],
            blocks.seeding[some],
        )
    else:
        raise ArgumentTypeError(
            f"blocks of a {type(blocks).__name__} cannot be taken apart", code="not-sharded-blocks"
        )
    return EncryptedTable(table.facts, taken, table.keys, table.private_schema, accepted=True)


def total_in_shards(
    table: EncryptedTable, question: Question, cut: Cut, **options: Any
) -> EncryptedNumbers:
    """Compute the totals of a question in the shards of a cut, as a cluster does, and add them up.

    Nothing is flooded.
    """
    wanted = distinct_totals(table.facts, question, table.layout)
    outputs = wanted.distinct
    shards, ranges = pieces_of(cut.blocks), pieces_of(cut.totals)
    if cut.blocks[-1] != len(table.blocks.ids) or cut.totals[-1] != len(outputs):
        raise VerificationError(
            "the result states shards that are not all blocks and totals, each once",
            code="incomplete-shards",
        )
    report = prove_cut(outputs, table.facts, table.blocks.rows, shards)
    is_packed = table.facts.form == PACKED
    if is_packed and cut.width > report.width:
        raise VerificationError(
            f"the result has {cut.width} totals in a ciphertext, and at most {report.width} are "
            "proven to decrypt",
            code="too-many-packed-totals",
        )
    report = report.with_width(cut.width) if is_packed else report
    parts = [take_blocks(table, *shard) for shard in shards]

    def total(first: int, last: int) -> EncryptedNumbers:
        evaluated = (
            part.evaluate(outputs[first:last], report=report, flood=False, **options)
            for part in parts
        )
        return reduce(add, evaluated)

    joined = join_ranges([total(*one) for one in ranges], circuit_digest(wanted.asked))
    totals = wanted.arrange(joined)
    totals.cut = cut
    return totals


def answer_again(answer: Answer, table: EncryptedTable, **options: Any) -> Answer:
    """Compute the totals of an answer again, in the shards that it states."""
    totals = answer.ciphertexts
    whole = {} if totals.form == PACKED else {"form": totals.form}
    return _answer(
        answer.question, table, totals.cut, drawn=bool(answer.extra_totals), **whole, **options
    )


def predict_again(
    votes: Answer, table: EncryptedTable, rows: EncryptedTable, **options: Any
) -> Answer:
    """Predict the rows again, by the model that the table gives in the shards that the votes state.

    Votes of rows have the same residues in whichever shards the rows are predicted.
    """
    question = votes.question
    drawn = bool(question._extra_shapes(table.schema))
    model = _answer(question, table, votes.model_cut, drawn=drawn, **options)
    own: Answer = model.predict_votes(rows, output=votes.output, **options)
    return replace(own, model_blocks=table.blocks.ids)


def _answer(
    question: Question, table: EncryptedTable, cut: Cut | None, *, drawn: bool, **options: Any
) -> Answer:
    if cut is None:
        answer = table._answer_to(question, **options)
    else:
        answer = table._with_totals(question, total_in_shards(table, question, cut, **options))
    if not drawn:
        return answer
    model = question._present(answer)
    if not hasattr(model, "draw_fraction"):
        raise VerificationError(
            f"the result has more totals beside its own than a {question.name} gives",
            code="wrong-extra-totals",
        )
    again: Answer = model.draw_fraction(table, **options).answer_
    return again
