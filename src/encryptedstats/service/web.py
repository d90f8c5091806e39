"""The worker's page, for the person who runs it: jobs, storage, the audit log, and what this
machine sees of a table. Nothing to change.

It is read with an operator's token, which a form takes once; then a cookie that no script reads and
no other site sends. Forms are taken from this page alone.

FastAPI reads annotations while functions are made, so that they are not put off here.
"""

import json
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Annotated, Any, Final
from urllib.parse import parse_qs

from fastapi import Depends, FastAPI, Request
from fastapi import Path as InPath
from fastapi.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from markupsafe import Markup, escape
from starlette.concurrency import run_in_threadpool

from encryptedstats import machine, pages
from encryptedstats.circuits.devices import present
from encryptedstats.machine import cores
from encryptedstats.service.door import OwnerPlace
from encryptedstats.service.refusals import Refusal
from encryptedstats.service.server import DESCRIPTION, Service, address_of
from encryptedstats.service.sessions import COOKIE, SECONDS, Sessions
from encryptedstats.service.tokens import OPERATOR, OWNER, Holder, holders
from encryptedstats.storage.container import DIGEST_BYTES

_MAX_FORM: Final = 1 << 14
_SHOWN_JOBS: Final = 100
_IDLE_SECONDS: Final = 15.0  # after which a job that nobody begins is spoken of
_SHOWN_LINES: Final = 200
_SHOWN_BLOCKS: Final = 8
_CHIPS: Final = {
    "queued": "",
    "running": "busy",
    "done": "good",
    "failed": "bad",
    "cancelled": "warn",
}


class _LoginNeeded(Exception):
    """No valid session came with a request for a page."""


def add_pages(app: FastAPI, service: Service) -> None:
    """Add the pages of a server."""
    sessions = Sessions(service.store, service.tokens)
    templates = pages.environment("encryptedstats.service", "worker")
    templates.filters["marked"] = _mark_code
    templates.globals |= {"version": service.settings.version, "chips": _CHIPS}
    app.include_router(pages.static_files())

    def render(name: str, status: int = 200, **values: Any) -> HTMLResponse:
        return HTMLResponse(templates.get_template(name).render(**values), status)

    def operator(request: Request) -> Holder:
        holder = sessions.holder(request.cookies.get(COOKIE, ""))
        if holder is None:
            raise _LoginNeeded
        return holder

    Operator = Annotated[Holder, Depends(operator)]

    @app.exception_handler(_LoginNeeded)
    async def login_needed(request: Request, error: _LoginNeeded) -> Response:
        if request.headers.get(
            "hx-request"
        ):  # a part of a page that is open: the whole page is to go to the form
            return Response(status_code=204, headers={"HX-Redirect": "/"})
        return render("login.html", error="")

    @app.post("/login", include_in_schema=False)
    async def login(request: Request) -> Response:
        token = (await _form(request)).get("token", "").strip()
        try:
            holder = await run_in_threadpool(service.holder, token, address_of(request), OPERATOR)
        except Refusal as refusal:
            return render("login.html", refusal.status, error=f"{refusal.what}: {refusal.why}.")
        value = await run_in_threadpool(sessions.begin, holder)
        await run_in_threadpool(lambda: service.log.add(holder.owner, "login", name=holder.name))
        response = RedirectResponse("/", 303)
        response.set_cookie(
            COOKIE,
            value,
            max_age=SECONDS,
            httponly=True,
            samesite="strict",
            secure=service.settings.secure,
        )
        return response

    @app.post("/logout", include_in_schema=False)
    async def logout(request: Request) -> Response:
        await _form(request)
        await run_in_threadpool(sessions.end, request.cookies.get(COOKIE, ""))
        response = RedirectResponse("/", 303)
        response.delete_cookie(COOKIE)
        return response

    @app.get("/", include_in_schema=False)
    def overview(holder: Operator, state: str = "", owner: str = "") -> Response:
        facts: dict[str, Any] = {**_jobs_facts(service, state, owner), **_machine_facts()}
        return render("overview.html", holder=holder, here="jobs", **facts)

    @app.get("/parts/jobs", include_in_schema=False)
    def jobs_part(holder: Operator, state: str = "", owner: str = "") -> Response:
        return render("jobs.html", **_jobs_facts(service, state, owner))

    @app.get("/storage", include_in_schema=False)
    def storage(holder: Operator) -> Response:
        stored, listed = _stored_facts(service), holders(service.store)
        return render("storage.html", holder=holder, here="storage", owners=stored, tokens=listed)

    @app.get("/seen/{owner}/{table}", include_in_schema=False)
    def seen(
        owner: Annotated[str, InPath(pattern="^[0-9a-f]{32}$")],
        table: Annotated[str, InPath(pattern="^[0-9a-f]{64}$")],
        holder: Operator,
    ) -> Response:
        place = OwnerPlace(service.store, owner)
        facts, entries = service.door.table(place, table)
        blocks = service.door.seen(place, table, _SHOWN_BLOCKS)
        size = sum(entry.bytes for entry in entries)
        rows = sum(entry.rows for entry in entries)
        service.log.add(holder.owner, "look at table", name=holder.name, table=table)
        known: dict[str, Any] = {
            "table": table,
            "owner": owner,
            "blocks": blocks,
            "n_blocks": len(entries),
            "bytes": size,
            "rows": rows,
        }
        return render(
            "seen.html", holder=holder, here="storage", facts=facts, last=DIGEST_BYTES, **known
        )

    @app.get("/audit", include_in_schema=False)
    def audit(holder: Operator) -> Response:
        return render(
            "audit.html",
            holder=holder,
            here="audit",
            lines=service.log.last(_SHOWN_LINES),
            hidden=_HIDDEN,
        )

    @app.get("/audit.jsonl", include_in_schema=False)
    def export(holder: Operator) -> Response:
        headers = {"Content-Disposition": 'attachment; filename="audit.jsonl"'}
        return StreamingResponse(
            _log_lines(service), media_type="application/x-ndjson", headers=headers
        )

    @app.get("/docs", include_in_schema=False)
    def docs(request: Request) -> Response:
        found = sessions.holder(request.cookies.get(COOKIE, ""))
        intro, *steps = DESCRIPTION
        calls: dict[str, list[dict[str, Any]]] = {}
        for call in _calls(app.openapi()):
            calls.setdefault(call["tag"], []).append(call)
        shown: dict[str, Any] = {"intro": intro, "steps": steps, "calls": calls.items()}
        return render("docs.html", holder=found, here="docs", **shown)


#: Fields of a line that are shown elsewhere, or are for machines only.
_HIDDEN: Final = ("when", "who", "what", "name", "before", "bytes")


async def _form(request: Request) -> dict[str, str]:
    """Read a form that was sent from this very page. Refuse one from another page."""
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    # Pages here have no referrer, so that browsers send the origin "null": what they say of the
    # site is believed first.
    same = origin is None or origin.partition("://")[2] == request.headers.get("host")
    if site != "same-origin" and not (site is None and same):
        raise Refusal(
            403, "the form", "it was sent from another page", "open the worker's page itself"
        )
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _MAX_FORM:
            raise Refusal(413, "the form", "it is too long", "send a token and nothing else")
    return {name: values[-1] for name, values in parse_qs(body.decode(errors="replace")).items()}


def _owners(service: Service) -> dict[str, str]:
    """Return the name that the operator gave each owner."""
    return {holder.owner: holder.name for holder in holders(service.store) if holder.role == OWNER}


def _jobs_facts(service: Service, state: str, owner: str) -> dict[str, Any]:
    """Return the jobs in a state and of an owner, or of any, and figures of all of them."""
    found = []
    used = 0
    owners = _owners(service)
    for number, name in owners.items():
        place = OwnerPlace(service.store, number)
        used += service.door.usage.of(number)
        found += [
            {**service.jobs.status(place, record), "owner": name}
            for record in service.jobs.records(place)
        ]
    found.sort(key=lambda job: job["made"], reverse=True)
    count = {state: sum(job["state"] == state for job in found) for state in _CHIPS}
    working = sum(job["workers"] for job in found)
    waiting = [job for job in found if job["state"] == "queued" and _age(job) > _IDLE_SECONDS]
    chosen = [
        job
        for job in found
        if job["state"] == (state or job["state"]) and job["owner"] == (owner or job["owner"])
    ]
    return {
        "jobs": chosen[:_SHOWN_JOBS],
        "n_jobs": len(chosen),
        "filter": {"state": state, "owner": owner},
        "owners": sorted(set(owners.values())),
        "idle": len(waiting) if not working else 0,
        "queue": service.settings.queue,
        "count": count,
        "working": working,
        "used": used,
    }


def _age(job: dict[str, Any]) -> float:
    made = datetime.fromisoformat(job["made"])
    return (datetime.now(timezone.utc) - made).total_seconds()


def _machine_facts() -> dict[str, Any]:
    return {"devices": present(), "cores": cores(), "memory": machine.total_memory()}


def _stored_facts(service: Service) -> list[dict[str, Any]]:
    """Return what every owner has stored: by tables, and in all."""
    names = _owners(service)
    found: dict[str, dict[str, Any]] = {}
    for path, size in service.store.sizes("owners").items():
        _, owner, what, name, *_ = path.split("/")
        one = found.setdefault(
            owner, {"owner": owner, "tables": {}, "objects": 0, "results": 0, "bytes": 0}
        )
        if what == "tables":
            table = one["tables"].setdefault(name, {"bytes": 0, "files": 0})
            table["bytes"] += size
            table["files"] += 1
        elif what in ("objects", "results"):
            one[what] += 1
            one["bytes"] += size
    for owner in names.keys() - found.keys():
        found[owner] = {"owner": owner, "tables": {}, "objects": 0, "results": 0, "bytes": 0}
    listed = [{**one, "name": names.get(owner, "without a token")} for owner, one in found.items()]
    return sorted(listed, key=lambda one: (-one["bytes"], one["name"]))


def _log_lines(service: Service) -> Iterator[bytes]:
    try:
        with open(service.log.path, "rb") as file:
            yield from iter(lambda: file.read(1 << 16), b"")
    except FileNotFoundError:
        return


def _calls(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the calls of the OpenAPI document for people to read."""
    schemas = document.get("components", {}).get("schemas", {})
    for path, methods in document["paths"].items():
        for method, call in methods.items():
            body = (
                call.get("requestBody", {})
                .get("content", {})
                .get("application/json", {})
                .get("schema", {})
            )
            wanted = [
                schemas.get(str(one.get("$ref", "")).rpartition("/")[2], {})
                for one in body.get("oneOf", [body])
            ]
            yield {
                "method": method.upper(),
                "path": path,
                "summary": call.get("summary", ""),
                "description": call.get("description", ""),
                "tag": (call.get("tags") or [""])[0],
                "fields": {
                    name: _field_text(field)
                    for one in wanted
                    for name, field in one.get("properties", {}).items()
                },
                "example": next(filter(None, map(_example, wanted)), ""),
            }


def _example(body: dict[str, Any]) -> str:
    """Return an example of a body, made of those of its fields."""
    found = {
        name: one["const"] if "const" in one else one.get("examples", one.get("enum", [None]))[0]
        for name, one in body.get("properties", {}).items()
        if name in body.get("required", ())
    }
    return json.dumps(found) if found else ""


def _mark_code(text: str) -> Markup:
    """Escape a text, and mark what stands between backticks as code."""
    parts = text.split("`")
    return Markup("").join(
        Markup("<code>{}</code>").format(p) if i % 2 else escape(p) for i, p in enumerate(parts)
    )


def _field_text(field: dict[str, Any]) -> str:
    kinds = [field, *field.get("anyOf", [])]
    kind = ", or ".join(
        str(one["type"]) for one in kinds if one.get("type") and one["type"] != "null"
    )
    return f"{kind}. {field['description']}" if field.get("description") else kind
