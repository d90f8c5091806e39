"""A job: work on a stored table, cut into items that are pure functions of stored objects and named
by a hash of their inputs.

A shard is some blocks of a table, a range is some of the totals of a question (a fit is a
question); an item evaluates a range on a shard, adds up other items, or joins the sums of all
ranges into the answer. (Predictions: see ``predicting``.) A job is one stored object with
everything that a worker must know. The names of items and their shards follow from the job alone:
so nothing is computed twice, counted twice or left out.
"""

from __future__ import annotations

import hashlib
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from encryptedstats.checks import as_count
from encryptedstats.circuits.compiled import Conditions, find_facts
from encryptedstats.circuits.devices import AUTO
from encryptedstats.circuits.expressions import Expression, circuit_digest, column_names
from encryptedstats.circuits.layout import Layout
from encryptedstats.circuits.program import PACKED
from encryptedstats.circuits.proof import NoiseReport, room_for
from encryptedstats.circuits.results import Cut, EncryptedNumbers
from encryptedstats.circuits.shards import FAN_IN, chunks_per_shard
from encryptedstats.crypto import PublicKeys
from encryptedstats.crypto.keyfiles import PUBLIC_KIND
from encryptedstats.errors import (
    ArgumentError,
    ClusterError,
    Cure,
    FileFormatError,
    KeyMismatchError,
    NoiseError,
    TooLargeError,
)
from encryptedstats.machine import cores, default_limit
from encryptedstats.storage import container
from encryptedstats.storage.container import Container
from encryptedstats.storage.objects import (
    Store,
    is_url,
    load_file,
    local_or_url,
    open_store,
    retry_read,
)
from encryptedstats.tables import EncryptedTable, Question
from encryptedstats.tables.answers.answer import Answer
from encryptedstats.tables.blocks import BlockEntry
from encryptedstats.tables.encodings import Column
from encryptedstats.tables.facts import StoredBlocks, TableFacts
from encryptedstats.tables.manifest import (
    MANIFEST,
    MAX_MANIFEST_BYTES,
    TABLE_KIND,
    facts_from_container,
    keys_name,
    read_blocks,
)
from encryptedstats.tables.questions.folds import Folds, folds_of
from encryptedstats.tables.questions.question import question_class
from encryptedstats.tables.shards import distinct_totals, join_ranges, prove_cut

if TYPE_CHECKING:
    from typing_extensions import Self

JOB_KIND: Final = "cluster job"
RECORD_KIND: Final = "cluster record"
JOBS, SHARDS, SUMS, RECORDS = "jobs/", "shards/", "sums/", "records/"
MAX_JOB_BYTES: Final = 512 << 20  # the list of blocks of a table, and little more
# Part of every name: a change of what an item computes gets a new one, and old results are not
# taken for new.
_RECIPE: Final = "encryptedstats fit 2"
J = TypeVar("J", bound="StoredJob")


@dataclass(frozen=True)
class Item:
    """A piece of work and the object that it makes.

    Attributes
    ----------
    name : str
        Of the object, below the queue.
    needs : tuple of str
        Items that it is computed from; a shard needs none.
    shards : tuple of str
        Names of its shards, each once.
    outputs : (int, int)
        The range of the model's totals.
    blocks : (int, int)
        Of a shard: its blocks of the table.
    rows : int
        Number of rows in it.
    """

    name: str
    needs: tuple[str, ...]
    shards: tuple[str, ...]
    outputs: tuple[int, int]
    blocks: tuple[int, int]
    rows: int

    @property
    def is_shard(self) -> bool:
        """True if it is computed from rows."""
        return not self.needs

    @property
    def is_model(self) -> bool:
        """True for the last item, which makes the model or another end result."""
        return self.name.startswith(RECORDS)


class ItemResult(Protocol):
    """What an item computes."""

    def to_container(self, kind: str, fields: dict[str, Any]) -> Container:
        """Return the result as a checked container, with more fields."""


@dataclass(frozen=True, eq=False)
class StoredJob(ABC):
    """Work on a stored table that is cut into items, as stored in a queue. It never changes.

    Attributes
    ----------
    queue : str
        Folder or URL of the job, its results and its leases.
    id : str
        SHA-256 of the job.
    table, out : str
        Where the table lies, and where the end result goes.
    shards : tuple of (int, int)
        Blocks of every shard, from the first up to the one after the last.
    by_others : bool
        True if contributors' rows were asked for.
    finished : bool
        True if the end result existed already when the job was submitted.
    """

    queue: str
    id: str
    table: str
    out: str
    keys_url: str | None
    facts: TableFacts
    entries: tuple[BlockEntry, ...]
    shards: tuple[tuple[int, int], ...]
    by_others: bool
    finished: bool = field(default=False, kw_only=True)

    @property
    def n_rows(self) -> int:
        """Rows of the table."""
        return sum(entry.rows for entry in self.entries)

    @property
    def record(self) -> str:
        """The name of the last object, which lists the shards of the end result."""
        return f"{RECORDS}{self.id}"

    @property
    def layout(self) -> Layout:
        """Where all rows lie."""
        return _layout(self.facts, self.entries)

    @property
    def passes(self) -> int:
        """The number of shards that every row is in."""
        return 1

    @property
    def addresses(self) -> dict[str, str]:
        """All places that it reads or writes, by purpose."""
        named = {"table": self.table, "out": self.out, "keys": self.keys_url}
        return {name: address for name, address in named.items() if address is not None}

    @cached_property
    def items(self) -> dict[str, Item]:
        """All items by name, each after the items it needs; the last one makes the end result."""
        return self._cut()

    @abstractmethod
    def _cut(self) -> dict[str, Item]: ...

    @abstractmethod
    def evaluate(self, item: Item, device: str = AUTO) -> ItemResult:
        """Compute a shard."""

    @abstractmethod
    def result(self, item: Item, file: Container) -> Any:
        """Read a stored result of an item, and refuse one of another computation.

        Names and shards have been checked.
        """

    @abstractmethod
    def finish(self, item: Item, results: Sequence[Any]) -> Container:
        """Return the end result from the results that the last item needs."""

    @property
    def finish_is_random(self) -> bool:
        """True if the end result has other bytes each time, because it is flooded."""
        return False

    def _name_shard(self, recipe: str, computed: list[Any], blocks: tuple[int, int]) -> str:
        """Return the name of a shard: a hash of everything that its result depends on."""
        facts, columns = self.facts, [str(column) for column in self.facts.columns]
        content = [
            recipe,
            facts.parameters.fingerprint,
            [facts.key_id, facts.schema_digest],
            [facts.schema.to_json(), columns, facts.weight_bound, facts.with_secret_key],
            computed,
            [entry.sha256 for entry in self.entries[slice(*blocks)]],
        ]
        return SHARDS + _hash(content)

    # -- what items are computed with
    # ------------------------------------------------------------------------------

    @cached_property
    def keys(self) -> PublicKeys:
        """The evaluation keys, read once."""
        where = self.keys_url or f"{self.table.rstrip('/')}/{keys_name(self.facts.key_id)}"
        keys = public_keys(where)
        if (keys.key_id, keys.parameters) != (self.facts.key_id, self.facts.parameters):
            raise KeyMismatchError(
                f"{where} holds the keys {keys.key_id}, and the table belongs to "
                f"{self.facts.key_id}",
                code="other-key",
            )
        return keys

    def sub_table(self, blocks: tuple[int, int]) -> EncryptedTable:
        """Return some blocks of the table."""
        facts = self.facts
        chosen = StoredBlocks(
            open_store(self.table), self.entries[slice(*blocks)], facts.shape, facts.key_id
        )
        return EncryptedTable(facts, chosen, self.keys, accepted=self.by_others)

    # -- stored form
    # --------------------------------------------------------------------------------------------

    @classmethod
    def load(cls, queue: str, job_id: str, keys: str | None = None) -> Self:
        """Read a job from a queue, with every check; the last few are kept. ``keys`` are taken
        instead of the job's.
        """
        job = _load_job(queue, job_id)
        if not isinstance(job, cls):
            raise FileFormatError(
                f"{job_id} is a {type(job).__name__}, and a {cls.__name__} is wanted here",
                code="wrong-kind",
            )
        return job if keys is None else _with_keys(job, keys)


@dataclass(frozen=True, eq=False)
class UncutJob(StoredJob):
    """A job of one item, whose result is the end result."""

    def _cut(self) -> dict[str, Item]:
        return {self.record: Item(self.record, (), (), (0, 1), (0, len(self.entries)), self.n_rows)}

    def evaluate(self, item: Item, device: str = AUTO) -> ItemResult:
        """Raise an error: these jobs have no shards."""
        raise ClusterError("there are no shards of a job that is done whole", code="no-shards")

    def result(self, item: Item, file: Container) -> Any:
        """Raise an error: only the end result is stored."""
        raise FileFormatError(
            "there are no results of shards of a job that is done whole", code="no-shard-results"
        )


@dataclass(frozen=True, eq=False)
class Job(StoredJob):
    """A fit that is cut into items, as :func:`encryptedstats.cluster.submit` stores it. It never
    changes.

    Attributes
    ----------
    queue : str
        Folder or URL of the job, its results and its leases.
    id : str
        SHA-256 of the job.
    table, out : str
        Where the table lies, and where the model goes.
    shards : tuple of (int, int)
        Blocks of every shard, from the first up to the one after the last.
    question : Question
        A model, unfitted, with its seed; or any other.
    ranges : tuple of (int, int)
        The same as shards for the totals of the question.
    report : NoiseReport
        The one noise proof for all shards, so that their results can be added.
    """

    question: Question
    ranges: tuple[tuple[int, int], ...]
    report: NoiseReport
    circuit_digest: str

    @property
    def layout(self) -> Layout:
        return _layout(self.facts, self.entries)

    @property
    def width(self) -> int:
        """Totals in a pack, or the lanes of totals in slots."""
        return self.report.width if self.facts.form == PACKED else self.facts.schema.lanes

    @property
    def passes(self) -> int:
        """The number of ranges of totals, each of which goes over all rows."""
        return len(self.ranges)

    @cached_property
    def outputs(self) -> list[Expression]:
        """The distinct totals of the circuit that the job was made for."""
        totals = distinct_totals(self.facts, self.question, self.layout)
        if circuit_digest(totals.asked) != self.circuit_digest:
            raise other_version(self, self.question)
        return totals.distinct

    def _cut(self) -> dict[str, Item]:
        found: dict[str, Item] = {}
        roots = []
        for outputs in self.ranges:
            level = [self._shard(blocks, outputs) for blocks in self.shards]
            found.update((item.name, item) for item in level)
            while len(level) > 1:
                level = [
                    _sum_of(level[start : start + FAN_IN]) for start in range(0, len(level), FAN_IN)
                ]
                found.update((item.name, item) for item in level)
            roots.append(level[0])
        shards = tuple(name for root in roots for name in root.shards)
        whole = (0, len(self.entries))
        needs = tuple(root.name for root in roots)
        found[self.record] = Item(
            self.record, needs, shards, (0, self.ranges[-1][1]), whole, self.n_rows
        )
        return found

    def _shard(self, blocks: tuple[int, int], outputs: tuple[int, int]) -> Item:
        computed = [self._digests[outputs], self.report.width, self.report.strategy.relinearise]
        name = self._name_shard(_RECIPE, computed, blocks)
        return Item(
            name,
            (),
            (name,),
            outputs,
            blocks,
            sum(entry.rows for entry in self.entries[slice(*blocks)]),
        )

    @property
    def finish_is_random(self) -> bool:
        """True for contributors' rows, whose answers are flooded."""
        return not self.facts.with_secret_key

    @cached_property
    def _digests(self) -> dict[tuple[int, int], str]:
        return {outputs: circuit_digest(self.outputs[slice(*outputs)]) for outputs in self.ranges}

    def evaluate(self, item: Item, device: str = AUTO) -> EncryptedNumbers:
        """Compute a range of the model's totals over the rows of a shard."""
        # One process, one core, its part of the memory: what runs at the same time is the cluster's
        # affair. Only the sum of all leaves the cluster, so only the sum is flooded: what shards
        # bring is the same on every worker.
        outputs = self.outputs[slice(*item.outputs)]
        limit = default_limit(cores())
        return self.sub_table(item.blocks).evaluate(
            outputs,
            report=self.report,
            workers=1,
            memory_limit=limit,
            progress=False,
            flood=False,
            device=device,
        )

    def result(self, item: Item, file: Container) -> EncryptedNumbers:
        """Read the totals in a file."""
        totals = EncryptedNumbers.from_container(file, self.keys)
        first, last = item.outputs
        own = self.facts.form, self.width, last - first
        if (totals.form, totals.width, len(totals)) != own:
            raise FileFormatError(
                "it holds the totals of another computation", code="other-computation"
            )
        return totals

    def finish(self, item: Item, results: Sequence[EncryptedNumbers]) -> Container:
        """Return the encrypted answer."""
        ids, totals = (
            tuple(entry.id for entry in self.entries),
            join_ranges(results, self.circuit_digest),
        )
        totals = distinct_totals(self.facts, self.question, self.layout).arrange(totals)
        totals = totals.with_flooding() if totals.flooded is False else totals
        blocks, ranges = (tuple(stop for _, stop in cuts) for cuts in (self.shards, self.ranges))
        totals.cut = Cut(blocks, ranges, totals.width)
        facts = self.facts
        answer = Answer(
            self.question,
            totals,
            facts.schema,
            self.n_rows,
            ids,
            n_dropped=facts.n_dropped,
            weight_bound=facts.weight_bound,
        )
        return answer.to_container()


def _layout(facts: TableFacts, entries: Sequence[BlockEntry]) -> Layout:
    return facts.layout_of([entry.rows for entry in entries])


def other_version(job: StoredJob, question: Question) -> ClusterError:
    """Return the error of a worker whose library computes something else than the submitter's."""
    return ClusterError(
        f"job {job.id[:12]} was made by another version of this library, whose {question.name} "
        "computes "
        "something else: let all workers have the version that the job was made with",
        code="other-library-version",
    )


@lru_cache(maxsize=4)
def public_keys(url: str) -> PublicKeys:
    """Read public keys from a path or URL. They are large, so each process caches them."""
    return PublicKeys.from_container(load_file(url, kind=PUBLIC_KIND))


@lru_cache(maxsize=4)
def _with_keys(job: J, keys: str) -> J:
    return replace(job, keys_url=keys)


@lru_cache(maxsize=4)
def _load_job(queue: str, job_id: str) -> StoredJob:
    store = open_store(queue)
    where = store.where(JOBS + job_id)
    file = retry_read(store, lambda: _job_file(store, job_id, where))
    if file.kind not in READERS:
        raise FileFormatError(
            f"{where} holds {file.kind!r}, and a job is wanted here", code="wrong-kind"
        )
    try:
        return READERS[file.kind](file, queue, job_id)
    except FileFormatError as error:
        raise FileFormatError(f"{where}: {error}") from error


def _job_file(store: Store, job_id: str, where: str) -> Container:
    data = store.read(JOBS + job_id, limit=MAX_JOB_BYTES)
    if hashlib.sha256(data).hexdigest() != job_id:
        raise FileFormatError(
            f"{where} is not the job of that name: cut short, altered or exchanged",
            code="altered-file",
        )
    return container.from_bytes(data, name=where)


def _from_container(file: Container, queue: str, job_id: str) -> Job:
    facts, entries = read_table(file.section("manifest"), "its table")
    try:
        question = question_class(file.expect("question", str))._from_parameters(
            file.expect("params", dict)
        )
        question.check(facts.schema)
    except (TypeError, ArithmeticError) as error:
        raise FileFormatError(
            f"the job has a question that cannot be: {error}", code="impossible-question"
        ) from error
    outputs = len(distinct_totals(facts, question, _layout(facts, entries)).distinct)
    width, relinearise = file.expect("width", int), file.expect("relinearise", bool)
    if not 1 <= width <= facts.parameters.ring_degree:
        raise FileFormatError(
            "the job states an impossible width of packs", code="impossible-pack-width"
        )
    shards = partition(file, "shards", len(entries), 1)
    return Job(
        queue,
        job_id,
        file.expect("table", str),
        file.expect("out", str),
        place_of_keys(file),
        facts,
        entries,
        shards,
        file.expect("by_others", bool),
        question,
        partition(file, "ranges", outputs, width),
        _proof(question, facts, entries, shards, width, relinearise),
        file.expect("circuit", str),
    )


#: What reads the jobs of a kind, once the container is checked.
READERS: Final[dict[str, Callable[[Container, str, str], StoredJob]]] = {JOB_KIND: _from_container}


def read_table(manifest: bytes, where: str) -> tuple[TableFacts, tuple[BlockEntry, ...]]:
    """Return the facts of a stored table, and its blocks."""
    file = container.from_bytes(manifest, kind=TABLE_KIND, name=where)
    facts = facts_from_container(file)
    return facts, read_blocks(file, facts.shape)


def place_of_keys(file: Container) -> str | None:
    """Return where the keys of a job lie, if it says so."""
    keys_url = file.fields.get("keys")
    if not (keys_url is None or isinstance(keys_url, str)):
        raise FileFormatError(
            "the job states an impossible place of keys", code="impossible-key-place"
        )
    return keys_url


def partition(file: Container, name: str, total: int, step: int) -> tuple[tuple[int, int], ...]:
    """Check that consecutive pieces make up the whole; all but the last are multiples
    of ``step``.
    """
    cuts = file.read_list(name)
    if not all(type(cut) is int for cut in cuts):
        raise FileFormatError(f"the job has a malformed list of {name}", code="malformed-list")
    pieces = tuple(zip([0, *cuts], cuts, strict=False))
    if (
        not pieces
        or cuts[-1] != total
        or not all(a < b for a, b in pieces)
        or any(cut % step for cut in cuts[:-1])
    ):
        raise FileFormatError(
            f"the job has {name} that leave something out, or count it twice",
            code="incomplete-partition",
        )
    return pieces


def job_bytes(job: Job, manifest: bytes) -> bytes:
    """Return the object of a job."""
    facts, report = job.facts, job.report
    fields = {
        "table": job.table,
        "out": job.out,
        "by_others": job.by_others,
        **({} if job.keys_url is None else {"keys": job.keys_url}),
        "question": job.question.name,
        "params": job.question.parameters(),
        "width": report.width,
        "relinearise": report.strategy.relinearise,
        "circuit": job.circuit_digest,
    }
    sections = {
        "manifest": manifest,
        "shards": json.dumps([stop for _, stop in job.shards]).encode(),
        "ranges": json.dumps([stop for _, stop in job.ranges]).encode(),
    }
    return container.to_bytes(
        Container(JOB_KIND, facts.parameters.fingerprint, facts.key_id, fields, sections)
    )


# -- making one
# ------------------------------------------------------------------------------------------------


def read_stored_table(table: str) -> tuple[bytes, TableFacts, tuple[BlockEntry, ...]]:
    """Read the manifest of a stored table, and parse it."""
    store = open_store(table)
    where = store.where(MANIFEST)

    def read() -> tuple[bytes, TableFacts, tuple[BlockEntry, ...]]:
        manifest = store.read(MANIFEST, limit=MAX_MANIFEST_BYTES)
        return manifest, *read_table(manifest, where)

    try:
        return retry_read(store, read)
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{where} is not there: no encrypted table lies at {table}"
        ) from None
    except FileFormatError as error:
        raise FileFormatError(str(error) if where in str(error) else f"{where}: {error}") from error


@dataclass(frozen=True)
class FitOptions:
    """Options of a fit; see :func:`encryptedstats.cluster.submit`."""

    table: str
    out: str
    queue: str
    keys_url: str | None = None
    rows_per_shard: int | None = None
    trees_per_task: int | None = None
    by_others: bool = False
    folds: bool = False


def make_job(question: Question, asked: FitOptions) -> tuple[Job, bytes]:
    """Cut a fit into items, and refuse before any work what could not be finished."""
    table = asked.table
    manifest, facts, entries = read_stored_table(table)
    if asked.folds:
        question = folds_of(question, facts.n_folds)
    whole = EncryptedTable(
        facts, StoredBlocks(open_store(table), entries, facts.shape, facts.key_id), None
    )
    question = question.in_ids(facts.schema)
    question.check(facts.schema)
    question = question._fix_seed()
    totals = distinct_totals(facts, question, whole.layout)
    outputs = totals.distinct
    for name in column_names(outputs):
        whole._check_stored(Column.parse(name))
    shards = cut_rows([entry.rows for entry in entries], asked.rows_per_shard)
    report = _add_up_proof(outputs, whole, shards)
    width, ranges = cut_totals(question, facts, len(outputs), report.width, asked.trees_per_task)
    report = report.with_width(width)
    digest = circuit_digest(totals.asked)
    job = Job(
        asked.queue,
        "",
        table,
        asked.out,
        asked.keys_url,
        facts,
        entries,
        shards,
        asked.by_others,
        question,
        ranges,
        report,
        digest,
    )
    data = job_bytes(job, manifest)
    job = replace(job, id=hashlib.sha256(data).hexdigest())
    if not job.sub_table(
        (0, len(entries))
    ).keys.packs:  # which also refuses rows by others that nobody asked for
        raise KeyMismatchError(
            (
                "the public keys of this table cannot pack totals: take "
                "owner.public_keys(packing=True)"
            ),
            code="no-packing-keys",
        )
    return job, data


def cut_rows(rows: Sequence[int], rows_per_shard: int | None) -> tuple[tuple[int, int], ...]:
    """Group consecutive blocks, without cutting one, into shards of at most ``rows_per_shard``."""
    if rows_per_shard is None:
        size = chunks_per_shard(len(rows))
        return tuple((start, min(start + size, len(rows))) for start in range(0, len(rows), size))
    rows_per_shard = as_count(rows_per_shard, "rows_per_shard", "rows")
    cuts, inside = [0], 0
    for block, count in enumerate(rows):
        if inside and inside + count > rows_per_shard:
            cuts.append(block)
            inside = 0
        inside += count
    return tuple(zip(cuts, [*cuts[1:], len(rows)], strict=True))


def cut_totals(
    question: Question, facts: TableFacts, n_totals: int, widest: int, trees_per_task: int | None
) -> tuple[int, tuple[tuple[int, int], ...]]:
    """Return the width of packs, and the ranges of totals of each task.

    Ranges are whole packs, so that they are joined without computing.
    """
    if trees_per_task is None:
        return widest, ((0, n_totals),)
    n_trees = question.parameters().get("n_trees")
    if isinstance(question, Folds):
        raise ArgumentError(
            f"trees_per_task={trees_per_task!r}: folds are cut by rows alone, leave it out",
            code="folds-cut-by-rows",
        )
    if n_trees is None:
        raise ArgumentError(
            f"trees_per_task={trees_per_task!r}: a {question.name} has no trees", code="no-trees"
        )
    trees_per_task = as_count(trees_per_task, "trees_per_task", "trees")
    # Trees that repeat a split share its totals: the share of a tree is an average.
    wanted = max(1, trees_per_task * (n_totals - facts.schema.n_classes) // n_trees)
    width = min(widest, 1 << (wanted.bit_length() - 1))
    size = wanted // width * width
    return width, tuple((start, min(start + size, n_totals)) for start in range(0, n_totals, size))


def _add_up_proof(
    outputs: Sequence[Expression], table: EncryptedTable, shards: Sequence[tuple[int, int]]
) -> NoiseReport:
    """Prove the noise of the largest shard, with room to add up all, and that all sums stay below
    t.
    """
    try:
        ranges = tuple(table.facts.ranges().items())
        find_facts(
            outputs, Conditions(table.parameters, table.layout, ranges, table.facts.with_secret_key)
        )
        report = prove_cut(outputs, table.facts, table.blocks.rows, shards)
    except (NoiseError, TooLargeError) as error:
        raise type(error)(error, ". ", table._cure(outputs)) from None
    if report.budget < 1.0 + room_for(len(shards), flooded=report.flooded):
        raise NoiseError(
            f"the results of {len(shards):,} shards could not be proven to decrypt when added up "
            f"with {table.parameters!r}: "
            "take ",
            Cure(
                "fewer shards",
                "fewer shards, rows_per_shard=, or keys that es.plan(..., workers=) makes room "
                "with",
            ),
            code="too-many-shards",
        )
    return report


def _proof(
    question: Question,
    facts: TableFacts,
    entries: Sequence[BlockEntry],
    shards: Sequence[tuple[int, int]],
    width: int,
    relinearise: bool,
) -> NoiseReport:
    """Repeat the proof: a job may come from anybody, and only a proven width gives a result that
    decrypts.
    """
    outputs = distinct_totals(facts, question, _layout(facts, entries)).distinct
    report = prove_cut(outputs, facts, [entry.rows for entry in entries], shards)
    if width > report.width or relinearise != report.strategy.relinearise:
        raise FileFormatError(
            "the job asks for packs that are not proven to decrypt: it is of another version, or "
            "altered",
            code="unproven-packs",
        )
    return report.with_width(width)


# -- hashes
# ------------------------------------------------------------------------------------------------


def _hash(content: Any) -> str:
    return hashlib.sha256(
        json.dumps(content, separators=(",", ":"), allow_nan=False).encode()
    ).hexdigest()


def _sum_of(items: Sequence[Item]) -> Item:
    """Return the item that adds up others. A single one is its own sum."""
    if len(items) == 1:
        return items[0]
    names = tuple(item.name for item in items)
    shards = tuple(shard for item in items for shard in item.shards)
    if len(set(shards)) != len(shards):
        raise ClusterError(
            "a shard would be counted twice: the table lists the same block more than once",
            code="repeated-block",
        )
    blocks = (items[0].blocks[0], items[-1].blocks[1])
    return Item(
        SUMS + _hash(names),
        names,
        shards,
        items[0].outputs,
        blocks,
        sum(item.rows for item in items),
    )


def absolute(url: str | os.PathLike[str]) -> str:
    """Return a URL unchanged, and a path as an absolute path."""
    address = local_or_url(url)
    return address.rstrip("/") if is_url(address) else str(Path(address).absolute())
