"""What a request becomes: a job in the queue, or what it would cost. Runs in a process of its own,
which reads keys and proves.

A proof takes a core for a while and public keys take memory: the server's own process has neither
to spare. What goes in and comes out are plain values; a refusal comes out as one.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from encryptedstats import cluster
from encryptedstats.cluster.jobs import StoredJob, read_table
from encryptedstats.cluster.planning import plan_question
from encryptedstats.cluster.queues import Sheet
from encryptedstats.errors import ArgumentError, EncryptedStatsError, Failure
from encryptedstats.service.contents import read_whole
from encryptedstats.spotcheck import Challenge
from encryptedstats.storage.files import read_regular
from encryptedstats.storage.objects import read_object
from encryptedstats.tables import Question
from encryptedstats.tables.answers.files import IMPOSSIBLE
from encryptedstats.tables.blocks import BlockEntry
from encryptedstats.tables.facts import TableFacts
from encryptedstats.tables.manifest import MAX_MANIFEST_BYTES
from encryptedstats.tables.questions.constraints import example_parameters, parameters_schema
from encryptedstats.tables.questions.folds import Folds
from encryptedstats.tables.questions.parameters import described_parameters
from encryptedstats.tables.questions.question import (
    RESULT_KIND,
    load_all_questions,
    plain,
    question_class,
)

#: What may be raised where somebody else wrote the parameters.
_REFUSED: Final = (EncryptedStatsError, FileNotFoundError, NotImplementedError, *IMPOSSIBLE)
FIT, ASK, PREDICT, COMBINE, DRAW, RESPOND = KINDS = (
    "fit", "ask", "predict", "combine", "draw", "respond",
)  # fmt: skip


def submit_job(asked: Mapping[str, Any], plan: bool = True) -> dict[str, Any]:
    """Put a job into the queue: its sheet and what it is expected to take; or why not."""
    try:
        job = _submit(asked)
        planned = _plan_facts(asked) if plan and asked["kind"] in (FIT, ASK) else None
        return {"sheet": asdict(Sheet.of(job)), "plan": planned}
    except _REFUSED as error:
        return {"refused": vars(_failure(error, asked))}


def plan_job(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return the cost of a fit or a question, or why it cannot be computed."""
    try:
        return {"plan": _plan_facts(asked)}
    except _REFUSED as error:
        return {"refused": vars(_failure(error, asked))}


def check_file(path: str) -> dict[str, Any]:
    """Read an upload whole; return why it does not come in, or nothing."""
    try:
        read_whole(read_regular(path))
        return {}
    except _REFUSED as error:
        return {"refused": str(error)}


def _failure(error: Exception, asked: Mapping[str, Any]) -> Failure:
    """Describe a refusal. Errors that were not written for people name what was asked."""
    if isinstance(error, (EncryptedStatsError, FileNotFoundError)) or type(error) in (
        ValueError,
        TypeError,
    ):
        return Failure.of(error)
    return Failure(
        f"these parameters of {asked.get('question')!r} cannot be ({type(error).__name__}: {error})"
    )


def list_questions() -> dict[str, Any]:
    """Return every question that can be asked here, as the service lists it."""
    found = []
    for name, question in sorted(load_all_questions().items()):
        if question is Folds:
            continue
        said = {one: text.replace("``", "") for one, text in described_parameters(question).items()}
        found.append(
            {
                "name": name,
                "about": question.about().replace("``", "`"),
                "kind": ASK if question.kind == RESULT_KIND else FIT,
                "parameters": parameters_schema(question, said),
                "example": example_parameters(question),
            }
        )
    return {"questions": found}


def _question(asked: Mapping[str, Any]) -> Question:
    known = question_class(asked["question"])
    defaults = {
        name: plain(one.default)
        for name, one in inspect.signature(known).parameters.items()
        if one.default is not inspect.Parameter.empty
    }
    question = known._from_parameters({**defaults, **asked["params"]})
    if question._fix_seed() is not question:
        raise ArgumentError(
            f"the {question.name} leaves something to chance: give it a seed, so that asking "
            "twice asks the same",
            code="no-seed",
        )
    return question


def _of_table(asked: Mapping[str, Any]) -> tuple[Question, TableFacts, tuple[BlockEntry, ...]]:
    """Return a question and the table of its manifest; refused before a
    circuit grows too large.
    """
    facts, entries = read_table(
        read_object(asked["manifest"], limit=MAX_MANIFEST_BYTES), "the manifest"
    )
    question = _question(asked).in_ids(facts.schema)
    question.check(facts.schema)
    count, most = question._n_totals(facts.schema), asked["totals"]
    if count > most:
        raise ArgumentError(
            f"the {question.name} has {count:,} totals, and this worker takes at most {most:,} in "
            "one question: "
            "ask for fewer variables, bins or trees, or in several questions",
            code="too-many-totals",
        )
    return question, facts, entries


def _submit(asked: Mapping[str, Any]) -> StoredJob:
    table, out, queue = asked["table"], asked["out"], asked["queue"]
    # What lies at `out` can only be of this very request, whose name it has.
    places: dict[str, Any] = {"queue": queue, "overwrite": True}
    cut: dict[str, Any] = {"rows_per_shard": asked.get("rows_per_shard")}
    if asked["kind"] in (FIT, ASK):
        options: dict[str, Any] = {
            **cut,
            "trees_per_task": asked.get("trees_per_task"),
            "by_others": bool(asked.get("by_others")),
        }
        return cluster.submit(_of_table(asked)[0], table, out, **places, **options)
    if asked["kind"] == PREDICT:
        return cluster.submit_prediction(
            asked["answers"][0], table, out, output=asked.get("output"), **places, **cut
        )
    if asked["kind"] == RESPOND:
        question, facts, entries = _of_table(asked)
        challenge = Challenge(
            facts.key_id,
            facts.parameters.fingerprint,
            tuple(entry.id for entry in entries),
            asked["weight_bits"],
            tuple(bytes.fromhex(seed) for seed in asked["seeds"]),
        )
        return cluster.submit_response(question, challenge, table, out, **places)
    if asked["kind"] == DRAW:
        return cluster.submit_drawing(asked["answers"][0], table, out, **places)
    return cluster.submit_combination(
        asked["answers"], table, out, forget=asked.get("forget") or (), **places
    )


def _plan_facts(asked: Mapping[str, Any]) -> dict[str, Any]:
    question, facts, entries = _of_table(asked)
    return plan_question(question, facts, [entry.rows for entry in entries])
