"""Encrypting all rows, in a process of its own; what an earlier run has finished is kept."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from fastapi import APIRouter
from fastapi.responses import HTMLResponse, RedirectResponse, Response

import encryptedstats as es
from encryptedstats.app import asking, columns
from encryptedstats.app.desk import Desk, Refused
from encryptedstats.app.leaving import STEPS
from encryptedstats.app.projects import Project, Sealed
from encryptedstats.app.tasks import EncryptTask
from encryptedstats.app.web import NotHere, TheDesk, TheProject, TheWeb
from encryptedstats.app.work import Work, run_task
from encryptedstats.spotcheck.opening import has_kept
from encryptedstats.tables.encryption import DRAFT
from encryptedstats.tables.manifest import MANIFEST

router = APIRouter()


def values(desk: Desk, project: Project, **_: Any) -> dict[str, Any]:
    """Return what is under way."""
    return {"work": desk.work(project, "encrypt")}


def start_encrypting(desk: Desk, project: Project) -> None:
    """Encrypt all rows in a thread."""
    data = project.state.data
    if data is None or project.state.key is None:
        raise Refused("make a key first, in the step Key", code="no-key")
    if project.state.sealed is not None:
        return
    columns.check_unchanged(data)
    owner, facts = desk.key(project).owner, desk.task_facts(project)
    desk.start(project, "encrypt", lambda work: _encrypt(desk, project, owner, facts, work))


def _encrypt(
    desk: Desk, project: Project, owner: es.Owner, facts: dict[str, Any], work: Work
) -> None:
    data, chunks = project.state.data, (project.state.plan or {}).get("chunks", 0)
    assert data is not None
    work.tell(EncryptTask.label, 0, chunks, EncryptTask.unit)
    found = find_finished_table(project, owner, desk.schema(project))
    if found is None:
        task = EncryptTask(
            **facts,
            rows=Path(data.path),
            out=project.table_folder,
            encodings=tuple(asking.encodings_of(desk.to_plan(project), desk.schema(project))),
            # A finished table that does not fit was never sent: it is made anew.
            replace_table=(project.table_folder / MANIFEST).is_file(),
            spot_check=project.state.spot_check,
        )
        made = run_task(task, work, chunks)
        columns.check_unchanged(data)
        found = made["rows"], made["rows_left_out"]
    files = [path for path in project.table_folder.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    with project.changing() as state:
        state.sealed = Sealed(rows=found[0], left_out=found[1], bytes=size, files=len(files))


def find_finished_table(
    project: Project, owner: es.Owner, schema: es.Schema
) -> tuple[int, int] | None:
    """Return the rows of a table that an earlier run finished, and of those left out.

    The program may have been killed after its child had finished the table and before it noted
    that. The table is adopted if it has the project's key and schema and all rows of the file,
    which must not have been touched since it was chosen. Otherwise return None.
    """
    data = project.state.data
    assert data is not None
    if not (project.table_folder / MANIFEST).is_file() or (project.table_folder / DRAFT).exists():
        return None
    try:
        table = es.EncryptedTable.load(project.table_folder, owner.public_keys())
    except (es.FileFormatError, es.KeyMismatchError, OSError):
        return None
    digest = owner.decryptor.schema_digest(schema.digest_json())
    is_same = table.key_id == owner.key_id and table.facts.schema_digest == digest
    is_all = table.n_rows + table.n_dropped == data.rows
    is_untouched = os.stat(data.path).st_mtime_ns == data.modified
    is_kept = not project.state.spot_check or has_kept(owner, table)
    is_good = is_same and is_all and is_untouched and is_kept
    return (table.n_rows, table.n_dropped) if is_good else None


@router.post("/p/{id}/encrypt")
def encrypt(desk: TheDesk, web: TheWeb, project: TheProject) -> Response:
    """Encrypt."""
    return web.attempt(project, "encrypt", lambda: start_encrypting(desk, project))


@router.post("/p/{id}/{name}/stop")
def stop(desk: TheDesk, project: TheProject, name: str) -> Response:
    """Stop what is under way."""
    if name not in STEPS:
        raise NotHere(404, "there is nothing of that name")
    desk.stop(project, name)
    return RedirectResponse(f"/p/{project.id}/{name}", 303)


@router.get("/p/{id}/progress/{name}")
def progress(desk: TheDesk, web: TheWeb, project: TheProject, name: str) -> Response:
    """Say how far something is; the page is loaded again once it has ended."""
    work = desk.work(project, name)
    if work is None or not work.is_running:
        return HTMLResponse("", headers={"HX-Refresh": "true"})
    return web.show("progress.html", project=project, state=project.state, work=work)
