"""Put predictions for stored rows into queues: nothing is decrypted.

A shard is some blocks of the rows, and its result their votes; the last item concatenates the votes
of all shards in the order of the rows. As for a fit, names and places of results follow from the
job alone.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from encryptedstats.circuits.devices import AUTO
from encryptedstats.circuits.expressions import circuit_digest
from encryptedstats.circuits.results import numbers_of_all
from encryptedstats.cluster.fitting import Url, place_of_queue, put_into_queue
from encryptedstats.cluster.jobs import (
    READERS,
    Item,
    StoredJob,
    absolute,
    cut_rows,
    other_version,
    partition,
    place_of_keys,
    read_stored_table,
    read_table,
)
from encryptedstats.errors import ArgumentTypeError, ClusterError, FileFormatError
from encryptedstats.machine import cores, default_limit
from encryptedstats.storage import container
from encryptedstats.storage.container import Container
from encryptedstats.storage.objects import read_object
from encryptedstats.tables.answers.answer import PREDICTION_KIND, Answer
from encryptedstats.tables.answers.files import read_answer, read_presented
from encryptedstats.tables.answers.predictions import check_prediction, prediction_of
from encryptedstats.tables.questions.question import MODEL_KIND, OPEN_MODEL_KIND

# Models bring scikit-learn, which takes a second to import: who looks at a queue does without.
if TYPE_CHECKING:
    from encryptedstats.models import TotalsClassifier

PREDICTION_JOB: Final = "cluster prediction"
MODELS: Final = "models/"
# Part of every name, as of fits.
_RECIPE: Final = "encryptedstats predict 2"


@dataclass(frozen=True, eq=False)
class PredictionJob(StoredJob):
    """A prediction that is cut into items, as :func:`encryptedstats.cluster.submit_prediction`
    stores it.

    Attributes
    ----------
    queue : str
        Folder or URL of the job, its results and its leases.
    id : str
        SHA-256 of the job.
    table, out : str
        Where the rows lie, and where the votes go.
    shards : tuple of (int, int)
        Blocks of every shard, from the first up to the one after the last.
    model_url, model_sha256 : str
        Where the model lies, and the hash of its file.
    output : str
        Which answers the model gives, if it can give several.
    """

    model_url: str
    model_sha256: str
    output: str
    circuit_digest: str

    @property
    def addresses(self) -> dict[str, str]:
        """The addresses of every job, and the model's."""
        return {**super().addresses, "model": self.model_url}

    @cached_property
    def model(self) -> TotalsClassifier:
        """The model that the job was made for, read once."""

        data = read_object(self.model_url)
        if hashlib.sha256(data).hexdigest() != self.model_sha256:
            raise FileFormatError(
                f"{self.model_url} is not the model that this prediction was begun with: cut "
                "short, altered or exchanged",
                code="altered-file",
            )
        model = _read_model(data, self.model_url, lambda: self.keys)
        asked = prediction_of(
            model._as_predictor(), self.sub_table((0, len(self.entries))), self.output
        )
        if circuit_digest(asked.expressions) != self.circuit_digest:
            raise other_version(self, model)
        return model

    def _cut(self) -> dict[str, Item]:
        shards = [self._shard(blocks) for blocks in self.shards]
        names = tuple(item.name for item in shards)
        if len(set(names)) != len(names):
            raise ClusterError(
                "a shard would be counted twice: the table lists the same block more than once",
                code="repeated-block",
            )
        whole = (0, len(self.entries))
        last = Item(self.record, names, names, (0, 1), whole, self.n_rows)
        return {item.name: item for item in (*shards, last)}

    def _shard(self, blocks: tuple[int, int]) -> Item:
        computed = [self.model_sha256, self.output, self.circuit_digest]
        name = self._name_shard(_RECIPE, computed, blocks)
        return Item(name, (), (name,), (0, 1), blocks, sum(self._counts(blocks)))

    def _counts(self, blocks: tuple[int, int]) -> tuple[int, ...]:
        return tuple(entry.rows for entry in self.entries[slice(*blocks)])

    def evaluate(self, item: Item, device: str = AUTO) -> Answer:
        """Return the votes for the rows of a shard."""
        # One process, one core, its part of the memory: what runs at the same time is the cluster's
        # affair.
        rows = self.sub_table(item.blocks)
        limit = default_limit(cores())
        options: dict[str, Any] = {
            "workers": 1,
            "memory_limit": limit,
            "progress": False,
            "device": device,
        }
        votes = self.model.predict_votes(rows, output=self.output, **options)
        assert isinstance(votes, Answer)  # the rows are encrypted
        # The end result names no program: its file is that of one machine, byte for byte.
        votes.ciphertexts.names_program = self.model.answer_.is_encrypted
        return votes

    def result(self, item: Item, file: Container) -> Answer:
        """Read the votes in a file, if they are for the rows of the item, by this model."""
        votes = read_answer(replace(file, kind=PREDICTION_KIND), self.keys)
        if votes.ciphertexts.counts != self._counts(item.blocks):
            raise FileFormatError(
                "it holds votes for other rows than it must: some would be left out or counted "
                "twice",
                code="other-rows",
            )
        if (
            not votes.question._asks_same(self.model)
            or votes.output != self.output
            or votes.schema.public() != self.facts.schema
        ):
            raise FileFormatError(
                "it holds the votes of another computation", code="other-computation"
            )
        return votes

    def finish(self, item: Item, results: Sequence[Answer]) -> Container:
        """Return the votes for all rows."""
        return _concatenate(results).to_container()


def _concatenate(parts: Sequence[Answer]) -> Answer:
    """Join the votes of all shards."""
    first = parts[0]
    if any(_meaning(part) != _meaning(first) for part in parts):
        raise ClusterError(
            (
                "the votes of the shards are not of one prediction: delete the queue, and predict "
                "again"
            ),
            code="mixed-predictions",
        )
    rows = numbers_of_all([part.ciphertexts for part in parts])
    blocks = tuple(block for part in parts for block in part.block_ids)
    return replace(first, totals=rows, n_rows=rows.n_rows, block_ids=blocks)


def _meaning(votes: Answer) -> tuple[Any, ...]:
    """Return the facts by which the owner reads the ciphertexts."""
    how = (votes.ciphertexts.facts, votes.output, votes.model_cut)
    return (*how, votes.question.parameters(), votes.schema.public(), votes.schema_digest)


# -- stored form
# ------------------------------------------------------------------------------------------------


def _from_container(file: Container, queue: str, job_id: str) -> PredictionJob:
    facts, entries = read_table(file.section("manifest"), "its table")
    return PredictionJob(
        queue,
        job_id,
        file.expect("table", str),
        file.expect("out", str),
        place_of_keys(file),
        facts,
        entries,
        partition(file, "shards", len(entries), 1),
        file.expect("by_others", bool),
        file.expect("model", str),
        file.expect("model_sha256", str),
        file.expect("output", str),
        file.expect("circuit", str),
    )


READERS[PREDICTION_JOB] = _from_container


def _job_bytes(job: PredictionJob, manifest: bytes) -> bytes:
    fields = {
        "table": job.table,
        "out": job.out,
        "by_others": job.by_others,
        **({} if job.keys_url is None else {"keys": job.keys_url}),
        "model": job.model_url,
        "model_sha256": job.model_sha256,
        "output": job.output,
        "circuit": job.circuit_digest,
    }
    sections = {
        "manifest": manifest,
        "shards": json.dumps([stop for _, stop in job.shards]).encode(),
    }
    facts = job.facts
    return container.to_bytes(
        Container(PREDICTION_JOB, facts.parameters.fingerprint, facts.key_id, fields, sections)
    )


def _read_model(data: bytes, where: str, keys: Callable[[], Any]) -> TotalsClassifier:

    file = container.from_bytes(data, name=where)
    if file.kind not in (MODEL_KIND, OPEN_MODEL_KIND):
        raise FileFormatError(
            f"{where} holds {file.kind!r}, and a fitted model is wanted here", code="wrong-kind"
        )
    try:
        model: TotalsClassifier = read_presented(file, keys() if file.kind == MODEL_KIND else None)
    except FileFormatError as error:
        raise FileFormatError(f"{where}: {error}") from error
    return model


def _stored_model(model: TotalsClassifier) -> bytes:
    """Return the file of a model for predictions, without names and cut points."""
    from sklearn.utils.validation import check_is_fitted

    check_is_fitted(model, "totals_")
    return container.to_bytes(model.to_container(names=False))


# -- making and doing it
# ------------------------------------------------------------------------------------------------


def submit_prediction(
    model: TotalsClassifier | Url,
    rows: Url,
    out: Url,
    *,
    output: str | None = None,
    queue: Url | None = None,
    keys: Url | None = None,
    rows_per_shard: int | None = None,
    overwrite: bool = False,
) -> PredictionJob:
    """Cut a prediction into items of work and put them into a queue.

    ``es.connect("queue://...").predict(...)`` calls it, and ``encryptedstats worker run`` or
    :func:`work` does the work. Submitting the same job again changes nothing.

    Parameters
    ----------
    model : path or fsspec URL, or a fitted model
        Encrypted or decrypted. A model that is no file is written into the queue without names; a
        decrypted one is not protected there.
    rows : path or fsspec URL
        An encrypted table that every worker can read.
    out : path or fsspec URL
        Where the encrypted votes go.
    output : str, optional
        The form of the answer, as of ``model.predict_votes``.
    queue, keys, rows_per_shard, overwrite
        See :func:`submit`.
    """
    from encryptedstats.models import TotalsClassifier

    if not isinstance(model, (TotalsClassifier, str, os.PathLike)):
        raise ArgumentTypeError(
            f"a model of this library or its URL is needed, not a {type(model).__name__}",
            code="not-a-model",
        )
    place = place_of_queue(out, queue)
    if isinstance(model, TotalsClassifier):
        data = _stored_model(model)
        kept = MODELS + hashlib.sha256(data).hexdigest()
        model_url = f"{place}/{kept}"
    else:
        model_url = absolute(model)
        data, kept = read_object(model_url), ""
    manifest, facts, entries = read_stored_table(absolute(rows))
    shards = cut_rows([entry.rows for entry in entries], rows_per_shard)
    keys_url = None if keys is None else absolute(keys)
    sha256 = hashlib.sha256(data).hexdigest()
    places = (absolute(rows), absolute(out), keys_url)
    job = PredictionJob(
        place, "", *places, facts, entries, shards, False, model_url, sha256, "", ""
    )
    fitted = _read_model(data, model_url, lambda: job.keys)
    chosen = fitted._choose_output(output)
    asked = check_prediction(fitted._as_predictor(), job.sub_table((0, len(entries))), chosen)
    job = replace(job, output=chosen, circuit_digest=circuit_digest(asked.expressions))
    job_data = _job_bytes(job, manifest)
    job = replace(job, id=hashlib.sha256(job_data).hexdigest())
    return put_into_queue(job, job_data, overwrite, {kept: data} if kept else {})
