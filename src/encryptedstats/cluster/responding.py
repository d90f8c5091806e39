"""Jobs of one item: answer a spot check's challenge, over all rows of a table.

The result is a file of combined sums. A worker that checks nothing of the kind needs no key for it,
and learns nothing from having done it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from encryptedstats.cluster.fitting import Url, place_of_queue, put_into_queue
from encryptedstats.cluster.jobs import (
    READERS,
    Item,
    UncutJob,
    absolute,
    place_of_keys,
    read_stored_table,
    read_table,
)
from encryptedstats.errors import FileFormatError
from encryptedstats.spotcheck import Challenge, respond
from encryptedstats.storage import container
from encryptedstats.storage.container import Container
from encryptedstats.tables.answers.files import IMPOSSIBLE
from encryptedstats.tables.questions.question import Question, question_class

RESPONSE_JOB: Final = "cluster response"


@dataclass(frozen=True, eq=False)
class ResponseJob(UncutJob):
    """A challenge that is to be answered, as :func:`submit_response` stores it.

    Attributes
    ----------
    question : Question
    challenge : Challenge
    """

    question: Question
    challenge: Challenge

    def finish(self, item: Item, results: Sequence[Any]) -> Container:
        """Return the combined sums as a file."""
        table = self.sub_table((0, len(self.entries)))
        found = respond(table, self.question, self.challenge, workers=1)
        return found.to_container(self.facts.parameters, self.facts.key_id)


def submit_response(
    question: Question,
    challenge: Challenge,
    table: Url,
    out: Url,
    *,
    queue: Url | None = None,
    keys: Url | None = None,
    overwrite: bool = False,
) -> ResponseJob:
    """Put into a queue: answer a challenge about a question to a stored table.

    Parameters
    ----------
    question : Question
    challenge : Challenge
    table, out : path or fsspec URL
    queue, keys, overwrite
        See :func:`encryptedstats.cluster.fit`.
    """
    place, table_url, out_url = place_of_queue(out, queue), absolute(table), absolute(out)
    manifest, facts, entries = read_stored_table(table_url)
    keys_url = None if keys is None else absolute(keys)
    asked = question.in_ids(facts.schema)._fix_seed()
    asked.check(facts.schema)
    whole = ((0, len(entries)),)
    places = (table_url, out_url, keys_url)
    job = ResponseJob(place, "", *places, facts, entries, whole, False, asked, challenge)
    data = _job_bytes(job, manifest)
    return put_into_queue(replace(job, id=hashlib.sha256(data).hexdigest()), data, overwrite)


def _job_bytes(job: ResponseJob, manifest: bytes) -> bytes:
    fields = {
        "table": job.table,
        "out": job.out,
        **({} if job.keys_url is None else {"keys": job.keys_url}),
        "question": job.question.name,
        "params": job.question.parameters(),
    }
    sections = {"manifest": manifest, "challenge": job.challenge.to_bytes()}
    facts = job.facts
    return container.to_bytes(
        Container(RESPONSE_JOB, facts.parameters.fingerprint, facts.key_id, fields, sections)
    )


def _from_container(file: Container, queue: str, job_id: str) -> ResponseJob:
    facts, entries = read_table(file.section("manifest"), "its table")
    try:
        known = question_class(file.expect("question", str))
        question = known._from_parameters(file.expect("params", dict))
        question.check(facts.schema)
    except IMPOSSIBLE as error:
        raise FileFormatError(
            f"the job has a question that cannot be: {error}", code="impossible-question"
        ) from error
    challenge = Challenge.from_bytes(file.section("challenge"))
    places = (file.expect("table", str), file.expect("out", str), place_of_keys(file))
    whole = ((0, len(entries)),)
    return ResponseJob(queue, job_id, *places, facts, entries, whole, False, question, challenge)


READERS[RESPONSE_JOB] = _from_container
