"""The door itself: what can be asked over HTTP, and by whom. Thin: objects, tables, jobs and tokens
are the other modules' affair.

Every request of an owner brings her token and sees what is hers alone. Bodies are streamed to disk
and results from it: memory does not grow with what owners send. Nothing that is written in an
address or a body is ever used as a path.

FastAPI reads annotations while functions are made, so that they are not put off here.
"""

import asyncio
import json
import logging
import re
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any, Final

from fastapi import Depends, FastAPI, Header, Query, Request
from fastapi import Path as InPath
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response, StreamingResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Route

from encryptedstats.circuits.devices import present
from encryptedstats.errors import StorageError
from encryptedstats.machine import cores
from encryptedstats.pages import SecurityHeaders
from encryptedstats.service import messages
from encryptedstats.service.audit import Log
from encryptedstats.service.bodies import AsciiJSON, Bounded, Pace, answer_to
from encryptedstats.service.door import PART_BYTES, Door, Incoming, OwnerPlace
from encryptedstats.service.jobs import ENDED, Jobs, Record
from encryptedstats.service.limits import Limits, Rate, too_many
from encryptedstats.service.lingering import Lingering
from encryptedstats.service.presigned import Presigner
from encryptedstats.service.refusals import Refusal
from encryptedstats.service.tokens import OPERATOR, OWNER, Holder, Tokens
from encryptedstats.service.turns import Turns
from encryptedstats.storage.files import sweep
from encryptedstats.storage.objects import Store, open_store

_log = logging.getLogger("encryptedstats.service")
_RANGE: Final = re.compile("bytes=([0-9]{1,18})-")
_EVENT_SECONDS: Final = 0.5  # between looks at a job whose events somebody watches
_QUIET_SECONDS: Final = 5.0  # after which a silent stream says that it lives
_ADDRESS_LENGTH: Final = 60  # of an address in the log: proxies pass on what they are told


@dataclass
class Settings:
    """What a server is started with.

    Attributes
    ----------
    storage, queue : str
        Paths or fsspec URLs: where all that is kept lies, and where jobs go.
    audit : Path
        The log, a local file.
    version : str
        Of the library.
    limits : Limits
    secure : bool
        Whether people reach it by https, so that cookies and browsers may rely on it.
    """

    storage: str
    queue: str
    audit: Path
    version: str
    limits: Limits = field(default_factory=Limits)
    secure: bool = False


@dataclass
class Service:
    """A server's parts, shared by all requests."""

    settings: Settings
    store: Store
    door: Door
    jobs: Jobs
    tokens: Tokens
    log: Log
    presigner: Presigner
    rate: Rate
    failures: Rate
    turns: Turns

    @classmethod
    def of(cls, settings: Settings) -> "Service":
        """All parts, from what a server is started with."""
        store, limits = open_store(settings.storage), settings.limits
        door = Door(store, limits)
        jobs = Jobs(door, settings.queue, limits)
        rate = Rate(limits.requests_per_second, limits.burst)
        failures = Rate(limits.failures_per_minute / 60, limits.failures_per_minute)
        turns = Turns(limits.makers, limits.making_seconds)
        log, presigner = Log(settings.audit), Presigner(door)
        return cls(
            settings, store, door, jobs, Tokens(store), log, presigner, rate, failures, turns
        )

    def holder(self, token: str, address: str, role: str) -> Holder:
        """Return the holder of a token. Refuse unknown tokens, another role, and too
        many requests.
        """
        # The token comes first: a good one is accepted from an address where others guess.
        holder = self.tokens.holder(token) if token else None
        if holder is None:
            if self.failures.take(address):
                raise too_many("the token", 60 / self.settings.limits.failures_per_minute)
            if token or role == OPERATOR:
                self.log.add("?", "token refused", address=address[:_ADDRESS_LENGTH], role=role)
            raise Refusal(
                401,
                "the token",
                "it is missing, mistyped, expired or revoked",
                "the person who runs the worker makes a new one with 'worker token STORAGE add "
                "NAME'; programs send it as 'Authorization: Bearer TOKEN'",
                {"WWW-Authenticate": "Bearer"},
            )
        if holder.role != role:
            if not self.failures.take(address):  # lines of the log are limited as guesses are
                facts = {"address": address[:_ADDRESS_LENGTH], "role": role}
                self.log.add(holder.owner, "token refused", name=holder.name, **facts)
            raise Refusal(
                403,
                "the token",
                f"it is one of an {holder.role}, and one of an {role} is needed",
                "take the other one",
            )
        wait = self.rate.take(holder.owner)
        if wait:
            raise too_many("the request", wait)
        return holder

    def is_good(self, holder: Holder) -> bool:
        """Return whether a token that was accepted has neither expired nor been revoked since."""
        return self.tokens.of_hash(holder.sha256) is not None


# -- the application
# ------------------------------------------------------------------------------------------------

#: What this is, then the steps, for the page and for OpenAPI.
DESCRIPTION: Final = (
    "A worker computes on encrypted tables that it cannot read, and never has a secret key. Each "
    "request below `/v1` brings a "
    "token: `Authorization: Bearer TOKEN`; `/healthz`, `/docs` and `/openapi.json` need none. "
    "Every refusal has a body of `what`, `why` and `cure`.",
    "Upload the files of an encrypted table: each is an object, named by the SHA-256 that its "
    "last 32 bytes are, which is the hash "
    "of all bytes before. `POST /v1/objects/missing` says which are still to come, so that an "
    "upload goes on where it was.",
    "`PUT /v1/tables/{sha256}` puts them together; the name is that of the manifest.",
    "`POST /v1/jobs` asks a question of it. `GET /v1/jobs/{id}` or its events say how far it is.",
    "`GET /v1/jobs/{id}/result` is the encrypted answer, which the owner of the key alone can "
    "open.",
)
_TEXTS: Final[dict[int, str]] = {
    206: "The requested bytes.",
    400: "The body is longer than it said, or cannot be parsed.",
    401: "The token is missing, unknown, expired or revoked.",
    403: "The token has another role.",
    404: "The owner has nothing of that name.",
    408: "The body came too slowly.",
    409: "Not possible in this state.",
    411: "The length is missing.",
    413: "The body is too large, or the quota is used up.",
    416: "There are no such bytes.",
    422: "The request is not valid.",
    429: "Too many requests: see Retry-After.",
    503: "The worker is busy, or its storage does not answer: see Retry-After.",
}
_BODY: Final = (400, 408, 413)  # of requests with a body
_OCTETS: Final[dict[str, Any]] = {
    "application/octet-stream": {"schema": {"type": "string", "format": "binary"}}
}
_RANGED: Final[dict[int | str, dict[str, Any]]] = {
    200: {"content": _OCTETS, "description": "All bytes."},
    206: {"content": _OCTETS, "description": _TEXTS[206]},
}


def _refusals(*more: int) -> dict[int | str, dict[str, Any]]:
    """Return what OpenAPI says of the refusals of a call."""
    return {
        status: {"model": messages.Error, "description": _TEXTS[status]}
        for status in sorted({401, 403, 422, 429, 503, *more})
    }


Sha256 = Annotated[
    str,
    InPath(
        pattern=messages.HEX64,
        description="SHA-256 that ends the file: of all bytes before its last 32.",
        examples=["3f" * 32],
    ),
]
JobId = Annotated[str, InPath(pattern=messages.HEX32)]
Range = Annotated[
    str | None, Header(description="`bytes=N-`: from byte N on.", examples=["bytes=1000-"])
]


def make_app(settings: Settings) -> FastAPI:
    """Make the application of a server. Several may share one storage."""
    service = Service.of(settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        sweep(service.door.spool)  # what killed servers left
        try:
            await run_in_threadpool(service.presigner.sweep)
        except StorageError as error:
            _log.error("%s", error)
        yield
        service.jobs.close()

    app = FastAPI(
        title="encryptedstats worker",
        version=settings.version,
        description="\n\n".join(
            [DESCRIPTION[0], *(f"{n}. {step}" for n, step in enumerate(DESCRIPTION[1:], 1))]
        ),
        lifespan=lifespan,
        docs_url=None,  # FastAPI's own page loads scripts from elsewhere
        redoc_url=None,
        openapi_url="/openapi.json",
        default_response_class=AsciiJSON,
        generate_unique_id_function=lambda route: route.name,  # what generated clients call it
    )
    app.state.service = service
    app.add_middleware(Bounded, limits=settings.limits)
    app.add_middleware(SecurityHeaders)
    app.add_middleware(Lingering)
    _add_handlers(app)
    _add_objects(app, service)
    _add_jobs(app, service)
    from encryptedstats.service.web import add_pages

    add_pages(app, service)
    return app


def _add_handlers(app: FastAPI) -> None:
    """Answer every refusal in the same form."""

    @app.exception_handler(Refusal)
    async def answer_refusal(request: Request, error: Refusal) -> JSONResponse:
        return answer_to(error)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        where = " ".join(map(str, first["loc"][1:])) or str(first["loc"][0])
        refusal = Refusal(
            422,
            f"the {first['loc'][0]}",
            f"{where}: {first['msg']}",
            "see /docs for what is allowed",
        )
        return answer_to(refusal)

    @app.exception_handler(HTTPException)
    async def unknown(request: Request, error: HTTPException) -> JSONResponse:
        refusal = Refusal(
            error.status_code, "the request", str(error.detail), "see /docs for what can be asked"
        )
        headers = dict(error.headers or {})
        if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            headers["Allow"] = ", ".join(_methods_of(app, request.url.path))
        return AsciiJSON(refusal.body(), refusal.status, headers=headers)

    @app.exception_handler(StorageError)
    async def storage(request: Request, error: StorageError) -> JSONResponse:
        _log.error("%s", error)
        refusal = Refusal(
            503, "the request", "the storage of this worker does not answer", "try again in a while"
        )
        return JSONResponse(refusal.body(), 503, headers={"Retry-After": "5"})

    @app.exception_handler(Exception)
    async def mistake(request: Request, error: Exception) -> JSONResponse:
        _log.exception("a mistake of the server")
        refusal = Refusal(
            500,
            "the request",
            "a mistake of the server, or its disk is full",
            "tell the person who runs the worker",
        )
        return JSONResponse(refusal.body(), 500)


def _methods_of(app: FastAPI, path: str) -> list[str]:
    """Return the methods of all routes of a path."""
    routes = [one for one in app.routes if isinstance(one, Route) and one.path_regex.match(path)]
    return sorted({method for one in routes for method in one.methods or ()})


def _owner_of(service: Service) -> Callable[..., Holder]:
    bearer = HTTPBearer(
        auto_error=False, description="The token that 'encryptedstats worker token' printed."
    )

    def holder(
        request: Request, sent: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]
    ) -> Holder:
        return service.holder(sent.credentials if sent else "", address_of(request), OWNER)

    return holder


def address_of(request: Request) -> str:
    """Return the address of the client, as far as the connection says."""
    return request.client.host if request.client else "?"


def _add_objects(app: FastAPI, service: Service) -> None:
    door, log, store = service.door, service.log, service.store
    Owner = Annotated[Holder, Depends(_owner_of(service))]

    def quota(holder: Holder) -> int:
        return (
            service.settings.limits.quota_bytes
            if holder.quota_bytes is None
            else holder.quota_bytes
        )

    @app.get("/healthz", tags=["worker"], summary="Whether the server answers")
    async def healthz() -> messages.Health:  # in the loop itself: all threads may be busy
        """For proxies and monitors; needs no token and says nothing."""
        return messages.Health(ok=True)

    @app.get(
        "/v1/offers", tags=["worker"], summary="What this worker offers", responses=_refusals()
    )
    def offers(holder: Owner) -> messages.Offers:
        """Version, devices and limits; and what the owner of the token has stored."""
        limits = service.settings.limits
        return messages.Offers(
            version=service.settings.version,
            devices=present(),
            cores=cores(),
            jobs=["fit", "ask", "predict", "combine", "draw", "respond"],
            object_bytes=limits.object_bytes,
            quota_bytes=quota(holder),
            used_bytes=door.usage.of(holder.owner),
            unfinished_jobs=limits.jobs,
            requests_per_second=limits.requests_per_second,
            presigned=service.presigner.is_possible,
        )

    @app.get(
        "/v1/questions",
        tags=["jobs"],
        summary="What can be asked",
        responses=_refusals(),
    )
    def questions(holder: Owner) -> messages.QuestionList:
        """Every question and model, with the JSON Schema of its parameters and an example."""
        return service.jobs.questions()

    @app.post(
        "/v1/objects/missing",
        tags=["objects"],
        summary="Which objects are still to come",
        responses=_refusals(*_BODY),
    )
    def missing_objects(names: messages.Names, holder: Owner) -> messages.Names:
        """Return which of the names are not stored: an upload goes on with these."""
        return messages.Names(sha256=door.missing(OwnerPlace(store, holder.owner), names.sha256))

    @app.head(
        "/v1/objects/{sha256}",
        tags=["objects"],
        summary="Whether an object is stored",
        response_class=Response,
        responses=_refusals(404),
    )
    def head_object(sha256: Sha256, holder: Owner) -> Response:
        """Its length, without its bytes."""
        size = door.size(OwnerPlace(store, holder.owner), "objects", sha256)
        return Response(headers={"Content-Length": str(size), "ETag": f'"{sha256}"'})

    @app.get(
        "/v1/objects/{sha256}",
        tags=["objects"],
        summary="Download an object",
        response_class=StreamingResponse,
        responses={**_refusals(404, 416), **_RANGED},
    )
    def get_object(
        sha256: Sha256, holder: Owner, range: Annotated[str | None, Header()] = None
    ) -> Response:
        """Whole, or from a byte on: `Range: bytes=1000-`."""
        response = _stream(service, OwnerPlace(store, holder.owner), "objects", sha256, range)
        sent = int(response.headers["content-length"])
        log.add(holder.owner, "get object", name=holder.name, object=sha256, bytes=sent)
        return response

    @app.put(
        "/v1/objects/{sha256}",
        tags=["objects"],
        summary="Upload an object",
        response_class=Response,
        status_code=201,
        responses=_refusals(411, *_BODY),
        openapi_extra={"requestBody": {"content": _OCTETS, "required": True}},
    )
    async def put_object(sha256: Sha256, request: Request, holder: Owner) -> Response:
        """Store the bytes of an encrypted table's block, its manifest, public keys, or an encrypted
        answer.

        What has another hash than its name is refused and leaves nothing; so is a secret key. To
        send an object that is there already does no harm.
        """
        length = request.headers.get("content-length", "")
        if not length.isdigit():
            raise Refusal(411, "the upload", "it does not say its length", "send a Content-Length")
        place, size = OwnerPlace(store, holder.owner), int(length)
        there = await run_in_threadpool(place.has, "objects", sha256)
        held = secrets.token_hex()
        door.check_size(sha256, size)
        await run_in_threadpool(door.usage.reserve, place.owner, held, size, quota(holder))
        kept = False
        try:
            incoming = Incoming(door.spool, sha256, size)
            try:
                await _receive(request, incoming, service.settings.limits)
                await run_in_threadpool(door.keep, place, incoming, quota(holder))
                kept = True
            finally:
                # nothing is awaited here: however this request ends, the file goes
                incoming.close()
        except ClientDisconnect:
            return Response(status_code=400)  # which nobody reads
        finally:
            door.usage.settle(holder.owner, held, size if kept and not there else 0)
        await run_in_threadpool(
            lambda: log.add(holder.owner, "put object", name=holder.name, object=sha256, bytes=size)
        )
        return Response(status_code=201)

    @app.delete(
        "/v1/objects/{sha256}",
        tags=["objects"],
        summary="Delete an object",
        response_class=Response,
        status_code=204,
        responses=_refusals(404),
    )
    def delete_object(sha256: Sha256, holder: Owner) -> Response:
        """Tables that were made from it stay, and still count towards the quota."""
        size = door.delete(OwnerPlace(store, holder.owner), "objects", sha256)
        log.add(holder.owner, "delete object", name=holder.name, object=sha256, bytes=size)
        return Response(status_code=204)

    @app.post(
        "/v1/objects/{sha256}/presigned",
        tags=["objects"],
        summary="Upload straight to the storage",
        responses=_refusals(404, 409, 413),
    )
    def presign(
        sha256: Sha256, bytes: Annotated[int, Query(ge=1)], holder: Owner
    ) -> messages.Presigned:
        """Return an address, if storage is S3, that takes the bytes, without going through
        this server.
        """
        return messages.Presigned(
            **service.presigner.sign(OwnerPlace(store, holder.owner), sha256, bytes, quota(holder))
        )

    @app.post(
        "/v1/objects/{sha256}/arrived",
        tags=["objects"],
        summary="Say that a presigned upload has arrived",
        response_class=Response,
        status_code=201,
        responses=_refusals(404, 413),
    )
    def note_arrival(sha256: Sha256, upload: str, holder: Owner) -> Response:
        """Its hash is checked now: what has another one is removed."""
        size = service.presigner.take(
            OwnerPlace(store, holder.owner), sha256, upload, quota(holder)
        )
        log.add(
            holder.owner, "put object", name=holder.name, object=sha256, bytes=size, presigned=True
        )
        return Response(status_code=201)

    @app.put(
        "/v1/tables/{sha256}",
        tags=["tables"],
        summary="Put a table together",
        status_code=201,
        responses=_refusals(404, *_BODY),
    )
    def put_table(
        sha256: Sha256, request: messages.TableRequest, holder: Owner
    ) -> messages.TableReply:
        """From its manifest, whose name it has, the blocks that the manifest lists, and public
        keys: all of them objects.
        """
        place = OwnerPlace(store, holder.owner)
        door.make_table(place, sha256, request.keys, quota(holder))
        log.add(holder.owner, "put table", name=holder.name, table=sha256)
        return _table_facts(service, place, sha256)

    @app.get(
        "/v1/tables/{sha256}",
        tags=["tables"],
        summary="What is known of a table",
        responses=_refusals(404),
    )
    def get_table(sha256: Sha256, holder: Owner) -> messages.TableReply:
        """Sizes, and whose it is."""
        return _table_facts(service, OwnerPlace(store, holder.owner), sha256)

    @app.delete(
        "/v1/tables/{sha256}",
        tags=["tables"],
        summary="Delete a table",
        response_class=Response,
        status_code=204,
        responses=_refusals(404),
    )
    def delete_table(sha256: Sha256, holder: Owner) -> Response:
        """And the objects that it was made from. Jobs that are under way on it will fail."""
        freed = door.delete_table(OwnerPlace(store, holder.owner), sha256)
        log.add(holder.owner, "delete table", name=holder.name, table=sha256, bytes=freed)
        return Response(status_code=204)


def _table_facts(service: Service, place: OwnerPlace, sha256: str) -> messages.TableReply:
    facts, entries = service.door.table(place, sha256)
    return messages.TableReply(
        table=sha256,
        rows=sum(entry.rows for entry in entries),
        blocks=len(entries),
        columns=len(facts.columns),
        bytes=sum(entry.bytes for entry in entries),
        key_id=facts.key_id,
    )


def _add_jobs(app: FastAPI, service: Service) -> None:
    jobs, log, store = service.jobs, service.log, service.store
    Owner = Annotated[Holder, Depends(_owner_of(service))]

    def found(job_id: str, holder: Holder) -> tuple[OwnerPlace, Record]:
        place = OwnerPlace(store, holder.owner)
        return place, jobs.record(place, job_id)

    @app.post(
        "/v1/jobs",
        tags=["jobs"],
        summary="Ask for a computation",
        status_code=201,
        responses=_refusals(404, *_BODY),
    )
    async def post_job(request: messages.JobRequest, holder: Owner) -> messages.JobReply:
        """Put it into the queue of the worker. What is asked twice is done once; what was cancelled
        or failed goes on.

        An owner has one plan or submission at a time.
        """

        def submit() -> messages.JobReply:
            place = OwnerPlace(store, holder.owner)
            record = jobs.submit(place, messages.request_fields(request))
            log.add(
                holder.owner,
                "submit",
                name=holder.name,
                job=record.id,
                kind=record.kind,
                table=request.table,
            )
            return messages.JobReply(**jobs.status(place, record))

        async with service.turns.take(holder.owner):
            return await run_in_threadpool(submit)

    @app.post(
        "/v1/plans",
        tags=["jobs"],
        summary="What a computation would take",
        responses=_refusals(404, *_BODY),
    )
    async def post_plan(request: messages.AskRequest, holder: Owner) -> messages.JobPlan:
        """Plan fit and ask: seconds of one core by what this machine has measured, products, and
        bytes of the answer.

        Of the table, its manifest is enough: it can be planned before the blocks are sent.
        """
        async with service.turns.take(holder.owner):
            asked = messages.request_fields(request)
            found = await run_in_threadpool(
                lambda: jobs.plan(OwnerPlace(store, holder.owner), asked)
            )
            return messages.JobPlan(**found)

    @app.get(
        "/v1/jobs", tags=["jobs"], summary="The jobs of the token's owner", responses=_refusals()
    )
    def get_jobs(holder: Owner) -> messages.JobList:
        """List jobs, the latest first."""
        place = OwnerPlace(store, holder.owner)
        return messages.JobList(
            jobs=[messages.JobReply(**jobs.status(place, record)) for record in jobs.records(place)]
        )

    @app.get(
        "/v1/jobs/{job_id}", tags=["jobs"], summary="How far a job is", responses=_refusals(404)
    )
    def get_job(job_id: JobId, holder: Owner) -> messages.JobReply:
        """From what lies in the queue; nobody is asked."""
        return messages.JobReply(**jobs.status(*found(job_id, holder)))

    @app.get(
        "/v1/jobs/{job_id}/events",
        tags=["jobs"],
        summary="Watch a job",
        response_class=StreamingResponse,
        responses={
            **_refusals(404),
            200: {
                "content": {"text/event-stream": {"schema": {"type": "string"}}},
                "description": "A status after every change.",
            },
        },
    )
    async def events(job_id: JobId, holder: Owner) -> StreamingResponse:
        """Server-sent events: `data:` is a status, as of `GET /v1/jobs/{id}`. The stream ends when
        the job has ended, or the token has expired or was revoked.
        """
        place, record = await run_in_threadpool(found, job_id, holder)
        is_good = partial(service.is_good, holder)
        return StreamingResponse(
            _events(jobs, place, record, is_good), media_type="text/event-stream"
        )

    @app.post(
        "/v1/jobs/{job_id}/cancel", tags=["jobs"], summary="Cancel a job", responses=_refusals(404)
    )
    def cancel_job(job_id: JobId, holder: Owner) -> messages.JobReply:
        """Nothing more of it is begun; what is done is kept, and asking for the same goes on from
        there.
        """
        place, record = found(job_id, holder)
        jobs.cancel(record)
        log.add(holder.owner, "cancel", name=holder.name, job=job_id)
        return messages.JobReply(**jobs.status(place, record))

    @app.get(
        "/v1/jobs/{job_id}/result",
        tags=["jobs"],
        summary="The encrypted answer",
        response_class=StreamingResponse,
        responses={**_refusals(404, 409, 416), **_RANGED},
    )
    def result(
        job_id: JobId, holder: Owner, range: Annotated[str | None, Header()] = None
    ) -> Response:
        """Return a file that the owner of the key opens. Whole, or from a byte on: `Range:
        bytes=1000-`.
        """
        place, record = found(job_id, holder)
        state = jobs.status(place, record)["state"]
        if state != "done":
            raise Refusal(
                409,
                f"the result of job {job_id[:12]}",
                f"the job is {state}",
                "wait until it is done",
            )
        response = _stream(service, place, "results", job_id, range)
        log.add(
            holder.owner,
            "get result",
            name=holder.name,
            job=job_id,
            bytes=int(response.headers["content-length"]),
        )
        return response

    @app.delete(
        "/v1/jobs/{job_id}",
        tags=["jobs"],
        summary="Delete a job",
        response_class=Response,
        status_code=204,
        responses=_refusals(404, 409),
    )
    def delete_job(job_id: JobId, holder: Owner) -> Response:
        """One that has ended, and its result."""
        jobs.delete(*found(job_id, holder))
        log.add(holder.owner, "delete job", name=holder.name, job=job_id)
        return Response(status_code=204)


# -- bodies
# ------------------------------------------------------------------------------------------------


async def _receive(request: Request, incoming: Incoming, limits: Limits) -> None:
    """Receive a body into its file, in pieces of a megabyte; one that stands still or crawls is
    given up.
    """
    pace, buffered = Pace(f"the object {incoming.sha256[:12]}", limits), bytearray()
    chunks = request.stream().__aiter__()
    while True:
        try:
            chunk = await pace.part(chunks.__anext__())
        except StopAsyncIteration:
            break
        buffered += chunk
        if len(buffered) >= PART_BYTES:
            await run_in_threadpool(incoming.feed, bytes(buffered))
            buffered.clear()
        pace.check(incoming.received + len(buffered))
    if buffered:
        await run_in_threadpool(incoming.feed, bytes(buffered))


def _stream(
    service: Service, place: OwnerPlace, what: str, name: str, wanted: str | None
) -> Response:
    size = service.door.size(place, what, name)
    start = _start_of(wanted, size)
    headers = {"Content-Length": str(size - start), "Accept-Ranges": "bytes"}
    if start:
        headers["Content-Range"] = f"bytes {start}-{size - 1}/{size}"
    parts = place.parts(place.of(what, name), start, size)
    return StreamingResponse(
        parts, 206 if start else 200, headers=headers, media_type="application/octet-stream"
    )


def _start_of(wanted: str | None, size: int) -> int:
    """From which byte on; the whole, where something else is asked for."""
    found = _RANGE.fullmatch(wanted or "")
    if found is None:
        return 0
    start = int(found[1])
    if start >= size:
        raise Refusal(416, "the range", f"there are {size:,} bytes", "ask from the first one on")
    return start


async def _events(
    jobs: Jobs, place: OwnerPlace, record: Record, is_good: Callable[[], bool]
) -> AsyncIterator[str]:
    last, said = "", time.monotonic()
    while True:
        try:
            if not await run_in_threadpool(is_good):
                return
            status = await run_in_threadpool(jobs.status, place, record)
        except (FileNotFoundError, StorageError):
            return  # who watches looks again, and is told
        text = json.dumps(messages.JobReply(**status).model_dump())
        if text != last:
            last, said = text, time.monotonic()
            yield f"data: {text}\n\n"
        elif time.monotonic() - said > _QUIET_SECONDS:
            said = time.monotonic()
            yield ": still here\n\n"
        if status["state"] in ENDED:
            return
        await asyncio.sleep(_EVENT_SECONDS)
