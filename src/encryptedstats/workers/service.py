"""The worker that ``encryptedstats worker serve`` runs elsewhere: encrypted tables go up, encrypted
answers come down, and no key.

Uploads go on where they were, at the grain of an object; downloads at that of a byte.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, Final

from pydantic import TypeAdapter

from encryptedstats.cluster.jobs import read_table
from encryptedstats.crypto.keys import PublicKeys
from encryptedstats.errors import Failure, FileFormatError, StorageError, WorkerError
from encryptedstats.progress import BYTES, progress_bar
from encryptedstats.service import messages
from encryptedstats.service.door import WELCOME, refused_kind
from encryptedstats.storage import container
from encryptedstats.storage.container import DIGEST_BYTES, Container
from encryptedstats.tables import EncryptedTable, Question
from encryptedstats.workers.connection import Body, Connection
from encryptedstats.workers.sending import describe_table, objects_of, open_table
from encryptedstats.workers.worker import (
    JobStatus,
    Order,
    Progress,
    Url,
    Worker,
    WorkerJob,
    WorkerTable,
    is_name,
)

_REQUESTS: Final[TypeAdapter[Any]] = TypeAdapter(messages.JobRequest)
_AT_ONCE: Final = 4
_PAUSE: Final = 1.0


class ServiceWorker(Worker):
    """Ask a service over HTTP, with a token. The service sees public keys and encrypted rows."""

    takes: ClassVar[frozenset[str]] = frozenset({"by_others", "rows_per_shard", "trees_per_task"})
    takes_opened: ClassVar[bool] = False

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection.url)
        self._connection = connection

    @property
    def url(self) -> str:
        """The address of the service."""
        return self._connection.url

    def close(self) -> None:
        self._connection.close()

    def offers(self) -> dict[str, Any]:
        """Return its version, devices and limits, and how much is stored there."""
        return messages.Offers(**self._connection.json("GET", "/v1/offers")).model_dump()

    # -- tables ------------------------------------------------------------------------------------

    def upload(
        self,
        table: Url | EncryptedTable,
        *,
        keys: PublicKeys | Url | None = None,
        progress: bool | Callable[[int, int], None] | None = None,
    ) -> WorkerTable:
        with open_table(table) as store:
            found = objects_of(store, keys)
            self._send(found.read, found.sizes, progress)
        request = messages.TableRequest(keys=found.keys)
        self._connection.json("PUT", f"/v1/tables/{found.name}", json=request.model_dump())
        return found.describe(self, table, keys)

    def table(self, name: str) -> WorkerTable:
        manifest = self._connection.send("GET", f"/v1/objects/{name}").content
        if hashlib.sha256(manifest[:-DIGEST_BYTES]).hexdigest() != name:
            raise FileFormatError(
                f"{self.url} has another manifest than that of the table {name[:12]}",
                code="other-manifest",
            )
        return describe_table(self, name, *read_table(manifest, "the manifest"))

    def _delete_table(self, table: WorkerTable) -> None:
        self._connection.json("DELETE", f"/v1/tables/{table.name}")

    def _to_plan(
        self, table: WorkerTable | Url | EncryptedTable, keys: PublicKeys | Url | None
    ) -> tuple[WorkerTable, int]:
        if isinstance(table, WorkerTable) or is_name(table):
            return self._find_table(table), 0
        with open_table(table) as store:
            found = objects_of(store, keys)
            wanted = self._missing(found.read)
            if found.name in wanted:
                self._send_one(found.name, found.read[found.name], straight=False)
        return found.describe(self, table, keys), sum(found.sizes[name] for name in wanted)

    def _plan(self, question: Question, table: WorkerTable) -> dict[str, Any]:
        asked = messages.AskRequest(
            kind="ask", table=table.name, question=question.name, params=question.parameters()
        )
        said = messages.request_fields(asked)
        return messages.JobPlan(
            **self._connection.json("POST", "/v1/plans", json=said)
        ).model_dump()

    def _send(
        self,
        read: Mapping[str, Callable[[], bytes]],
        sizes: Mapping[str, int],
        progress: bool | Callable[[int, int], None] | None,
    ) -> None:
        """Send all objects that the worker does not have, several at the same time."""
        wanted = self._missing(read)
        straight = bool(wanted) and self.offers()["presigned"]
        total, report = sum(sizes.values()), progress if callable(progress) else None
        there = total - sum(sizes[name] for name in wanted)
        show = False if callable(progress) else progress
        with (
            progress_bar("uploading", total, BYTES, show, there) as advance,
            ThreadPoolExecutor(_AT_ONCE) as pool,
        ):
            if report is not None:
                report(there, total)
            waiting = [
                (name, pool.submit(self._send_one, name, read[name], straight, advance))
                for name in wanted
            ]
            try:
                for name, sending in waiting:
                    sending.result()
                    there += sizes[name]
                    if report is not None:
                        report(there, total)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _missing(self, names: Iterable[str]) -> list[str]:
        asked = messages.Names(sha256=list(names)).model_dump()
        return messages.Names(
            **self._connection.json("POST", "/v1/objects/missing", json=asked)
        ).sha256

    def _send_one(
        self,
        name: str,
        read: Callable[[], bytes],
        straight: bool,
        advance: Callable[[float], None] = lambda _: None,
    ) -> None:
        data = read()
        _check_welcome(data, name)
        body = Body(data, advance)
        if straight:
            signed = messages.Presigned(
                **self._connection.json(
                    "POST", f"/v1/objects/{name}/presigned", params={"bytes": len(data)}
                )
            )
            self._connection.put_elsewhere(signed.url, body)
            self._connection.json(
                "POST", f"/v1/objects/{name}/arrived", params={"upload": signed.upload}
            )
        else:
            self._connection.json("PUT", f"/v1/objects/{name}", content=body, headers=body.headers)

    # -- jobs --------------------------------------------------------------------------------------

    def _submit(self, order: Order) -> WorkerJob:
        said: dict[str, Any] = {"kind": order.kind, "table": order.table.name, **order.options}
        if order.question is not None:
            said |= {"question": order.question.name, "params": order.question.parameters()}
        if order.output is not None:
            said["output"] = order.output
        if order.challenge is not None:
            seeds = [seed.hex() for seed in order.challenge.seeds]
            said |= {"seeds": seeds, "weight_bits": order.challenge.weight_bits}
        for name, answers in (("answers", order.answers), ("forget", order.forget)):
            if answers:
                said[name] = [self._name_answer(one) for one in answers]
        request = messages.request_fields(_REQUESTS.validate_python(said))
        status = _status(self._connection.json("POST", "/v1/jobs", json=request))
        return WorkerJob(self, status.id, status.kind, order.table, order.question)

    def _name_answer(self, answer: WorkerJob | Container) -> str:
        """Return the service's name of an encrypted answer, which is sent first if needed."""
        if isinstance(answer, WorkerJob):
            return f"job:{answer.id}"
        data = container.to_bytes(answer)
        name = data[-DIGEST_BYTES:].hex()
        self._send({name: lambda: data}, {name: len(data)}, False)
        return f"object:{name}"

    def job(self, job_id: str) -> WorkerJob:
        status = self.status(job_id)
        return WorkerJob(self, status.id, status.kind, self.table(str(status.table)))

    def jobs(self) -> list[JobStatus]:
        found = messages.JobList(**self._connection.json("GET", "/v1/jobs"))
        return [_job_status(one) for one in found.jobs]

    def status(self, job: WorkerJob | str) -> JobStatus:
        return _status(self._connection.json("GET", f"/v1/jobs/{_id(job)}"))

    def cancel(self, job: WorkerJob | str) -> JobStatus:
        return _status(self._connection.json("POST", f"/v1/jobs/{_id(job)}/cancel"))

    def delete(self, job: WorkerJob | str) -> None:
        self._connection.json("DELETE", f"/v1/jobs/{_id(job)}")

    def _events(self, job: WorkerJob) -> Iterator[JobStatus]:
        """Yield the status after every change, and when the service says that it is still there; a
        broken connection is opened again.
        """
        status = self.status(job)
        yield status
        while not status.has_ended:
            try:
                with self._connection.stream("GET", f"/v1/jobs/{job.id}/events") as stream:
                    for line in stream.iter_lines():
                        if line.startswith("data:"):
                            status = _status(json.loads(line.removeprefix("data:")))
                            yield status
                            if status.has_ended:
                                return
                        elif line.startswith(":"):
                            yield status
            except self._connection.broken:
                pass
            time.sleep(_PAUSE)
            status = self.status(job)
            yield status

    # -- results -----------------------------------------------------------------------------------

    def _fetch(self, job: WorkerJob, progress: Progress) -> Container:
        size = self.status(job).result_bytes or 0
        with tempfile.TemporaryFile() as file:
            self._download(job, file, size, progress)
            file.seek(0)
            data = file.read()
        return container.from_bytes(data, name=f"the result of job {job.id[:12]}")

    def _download(self, job: WorkerJob, file: Any, size: int, progress: Progress) -> None:
        """All bytes, going on where a broken line left off."""
        end = time.monotonic() + self._connection.patience
        with progress_bar(
            "downloading", size, BYTES, False if callable(progress) else progress
        ) as advance:
            while True:
                start = file.tell()
                headers = {"Range": f"bytes={start}-"} if start else {}
                try:
                    with self._connection.stream(
                        "GET", f"/v1/jobs/{job.id}/result", headers=headers
                    ) as answer:
                        if start and answer.status_code != 206:
                            file.seek(0)
                            file.truncate()
                        for part in answer.iter_bytes(1 << 20):
                            file.write(part)
                            advance(len(part))
                    return
                except self._connection.broken as error:
                    if file.tell() == start and time.monotonic() > end:
                        raise StorageError(
                            f"the result of job {job.id[:12]} breaks off on the way: try again",
                            code="interrupted-download",
                        ) from error
                    time.sleep(_PAUSE)


# -- pieces ----------------------------------------------------------------------------------------


def _id(job: WorkerJob | str) -> str:
    return job if isinstance(job, str) else job.id


def _status(values: Mapping[str, Any]) -> JobStatus:
    return _job_status(messages.JobReply(**values))


def _job_status(said: messages.JobReply) -> JobStatus:
    failures = tuple(Failure(**one.model_dump()) for one in said.failures)
    return JobStatus(**{**said.model_dump(), "failures": failures})


def _check_welcome(data: bytes, name: str) -> None:
    """Refuse here what a worker must not have: it never leaves this machine."""
    found = container.peek(data, len(data), f"the object {name[:12]}")
    refusal = refused_kind(*found, name) if found is not None else None
    if found is None or refusal is not None or found[0].kind not in WELCOME:
        raise WorkerError(
            f"nothing was sent: {refusal}"
            if refusal
            else "nothing was sent: it is no file of this library",
            code="unwelcome-file",
        )
