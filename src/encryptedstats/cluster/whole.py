"""Jobs of one item: add encrypted answers up, or forget some again; and draw the stochastic
fraction of a forest.

They take seconds, or cannot be cut into shards. A queue treats them as fits: one object that says
all, and one result.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add, sub
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
from encryptedstats.errors import ArgumentError, ClusterError, FileFormatError
from encryptedstats.kinds import read_file
from encryptedstats.storage import container
from encryptedstats.storage.container import Container
from encryptedstats.storage.objects import read_object

WHOLE_JOB: Final = "cluster whole"
COMBINE, DRAW = "combine", "draw"
_MAX_ANSWERS: Final = 4096


@dataclass(frozen=True, eq=False)
class WholeJob(UncutJob):
    """Work on whole answers, as :func:`submit_combination` and :func:`submit_drawing` store it.

    Attributes
    ----------
    verb : "combine" or "draw"
    answers, forgotten : tuple of (str, str)
        Where encrypted answers lie, and the SHA-256 of their files: those that are added up, and
        those taken out again.
    """

    verb: str
    answers: tuple[tuple[str, str], ...]
    forgotten: tuple[tuple[str, str], ...]

    @property
    def addresses(self) -> dict[str, str]:
        """The addresses of every job, and those of the answers."""
        places = [url for url, _ in (*self.answers, *self.forgotten)]
        return {
            **super().addresses,
            **{f"answer {number}": url for number, url in enumerate(places)},
        }

    @property
    def finish_is_random(self) -> bool:
        """True: flooded results have other bytes each time."""
        return True

    def finish(self, item: Item, results: Sequence[Any]) -> Container:
        """Return the end result as a file."""
        answers, forgotten = (
            [self._read(*one) for one in listed] for listed in (self.answers, self.forgotten)
        )
        made = (
            self._drawn(answers[0])
            if self.verb == DRAW
            else reduce(sub, forgotten, reduce(add, answers))
        )
        file: Container = made.to_container()
        return file

    def _drawn(self, forest: Any) -> Any:
        table = self.sub_table((0, len(self.entries)))
        if not hasattr(forest, "draw_fraction"):
            raise ClusterError(
                f"a {type(forest).__name__} has no stochastic fraction to draw: only forests have "
                "one",
                code="no-stochastic-fraction",
            )
        if set(forest.block_ids_) != set(table.blocks.ids):
            raise ClusterError(
                f"the table holds other rows than the forest was fitted to ({table.n_rows:,} and "
                f"{forest.n_rows_:,}): fractions "
                "are drawn from all rows of a forest and no others",
                code="other-rows",
            )
        return forest.draw_fraction(table, workers=1, progress=False)

    def _read(self, url: str, sha256: str) -> Any:
        data = read_object(url)
        if hashlib.sha256(data).hexdigest() != sha256:
            raise FileFormatError(
                f"{url} is not the answer that this job was made with: cut short, altered or "
                "exchanged",
                code="altered-file",
            )
        return read_file(container.from_bytes(data, name=url), self.keys, url)


def submit_combination(
    answers: Sequence[Url],
    table: Url,
    out: Url,
    *,
    forget: Sequence[Url] = (),
    queue: Url | None = None,
    keys: Url | None = None,
    overwrite: bool = False,
) -> WholeJob:
    """Put into a queue: add encrypted answers of different rows up, and take the rows of those to
    ``forget`` out again.

    Parameters
    ----------
    answers : sequence of paths or fsspec URLs
    table : path or fsspec URL
        Any table of the same keys, which brings the public ones.
    out : path or fsspec URL
    forget : sequence of paths or fsspec URLs
    queue, keys, overwrite
        See :func:`encryptedstats.cluster.fit`.
    """
    if len(answers) + len(forget) < 2 or not answers or len(answers) + len(forget) > _MAX_ANSWERS:
        raise ArgumentError(
            f"from two up to {_MAX_ANSWERS:,} answers are combined, or one and another to forget",
            code="wrong-number-of-answers",
        )
    asked = _Whole(COMBINE, answers, forget, table, out, queue, keys)
    return _submit(asked, overwrite=overwrite)


def submit_drawing(
    forest: Url,
    table: Url,
    out: Url,
    *,
    queue: Url | None = None,
    keys: Url | None = None,
    overwrite: bool = False,
) -> WholeJob:
    """Put into a queue: draw the stochastic fraction of an encrypted forest from the table of all
    its rows.
    """
    asked = _Whole(DRAW, [forest], [], table, out, queue, keys)
    return _submit(asked, overwrite=overwrite)


@dataclass(frozen=True)
class _Whole:
    """A request for work on whole answers."""

    verb: str
    answers: Sequence[Url]
    forgotten: Sequence[Url]
    table: Url
    out: Url
    queue: Url | None
    keys: Url | None


def _submit(asked: _Whole, *, overwrite: bool) -> WholeJob:
    table, out = absolute(asked.table), absolute(asked.out)
    manifest, facts, entries = read_stored_table(table)
    lists = [
        tuple((absolute(url), hashlib.sha256(read_object(url)).hexdigest()) for url in urls)
        for urls in (asked.answers, asked.forgotten)
    ]
    place = place_of_queue(asked.out, asked.queue)
    keys_url = None if asked.keys is None else absolute(asked.keys)
    whole = ((0, len(entries)),)
    places = (table, out, keys_url)
    job = WholeJob(place, "", *places, facts, entries, whole, False, asked.verb, *lists)
    data = _job_bytes(job, manifest)
    return put_into_queue(replace(job, id=hashlib.sha256(data).hexdigest()), data, overwrite)


# -- stored form
# ------------------------------------------------------------------------------------------------


def _job_bytes(job: WholeJob, manifest: bytes) -> bytes:
    fields = {
        "table": job.table,
        "out": job.out,
        "verb": job.verb,
        **({} if job.keys_url is None else {"keys": job.keys_url}),
    }
    lists = {"answers": job.answers, "forgotten": job.forgotten}
    sections = {
        "manifest": manifest,
        **{name: json.dumps(listed).encode() for name, listed in lists.items()},
    }
    facts = job.facts
    return container.to_bytes(
        Container(WHOLE_JOB, facts.parameters.fingerprint, facts.key_id, fields, sections)
    )


def _from_container(file: Container, queue: str, job_id: str) -> WholeJob:
    facts, entries = read_table(file.section("manifest"), "its table")
    verb, answers, forgotten = (
        file.expect("verb", str),
        _read_pairs(file, "answers"),
        _read_pairs(file, "forgotten"),
    )
    if (
        verb not in (COMBINE, DRAW)
        or not answers
        or (verb == DRAW and (len(answers) != 1 or forgotten))
    ):
        raise FileFormatError(
            "the job asks for something that is not done whole: it is of another version, or "
            "altered",
            code="unknown-operation",
        )
    places = (file.expect("table", str), file.expect("out", str), place_of_keys(file))
    whole = ((0, len(entries)),)
    return WholeJob(queue, job_id, *places, facts, entries, whole, False, verb, answers, forgotten)


def _read_pairs(file: Container, name: str) -> tuple[tuple[str, str], ...]:
    found = file.read_list(name)
    good = all(
        isinstance(one, list) and len(one) == 2 and all(isinstance(x, str) for x in one)
        for one in found
    )
    if not good or len(found) > _MAX_ANSWERS:
        raise FileFormatError(f"the job has a malformed list of {name}", code="malformed-list")
    return tuple((url, sha256) for url, sha256 in found)


READERS[WHOLE_JOB] = _from_container
