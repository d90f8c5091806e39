"""The key: making one, taking one that is there, unlocking, locking, and keeping a copy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse, RedirectResponse, Response

import encryptedstats as es
from encryptedstats.app.desk import Desk, Refused, now
from encryptedstats.app.leaving import STEPS
from encryptedstats.app.passphrases import LEAST, check_passphrase
from encryptedstats.app.projects import Project, ProjectKey
from encryptedstats.app.steps.plan import keep_plan, make_plan, plan
from encryptedstats.app.steps.send import go_on
from encryptedstats.app.web import NotHere, SentForm, TheDesk, TheProject, TheWeb, download, text_in
from encryptedstats.circuits.plan import Plan
from encryptedstats.storage.files import write_together

router = APIRouter()


def values(
    desk: Desk, project: Project, *, given_path: str = "", given_project: str = "", **_: Any
) -> dict[str, Any]:
    """Return the keys of other projects, and what was typed."""
    return {
        "least": LEAST,
        "before": keys_before(desk, project),
        "given_path": given_path,
        "given_project": given_project,
    }


def make_key(desk: Desk, project: Project, passphrase: str, again: str) -> None:
    """Make keys for the plan, the secret one locked by a passphrase."""
    desk.check_open(project)
    if passphrase != again:
        raise Refused("the two passphrases differ: type the same twice", code="passphrases-differ")
    check_passphrase(passphrase)
    made = plan(desk, project)
    owner = es.Owner(made)
    key = ProjectKey(key_id=owner.key_id, fingerprint=owner.fingerprint, made=now())
    _keep_key(desk, project, owner, passphrase, key, made)


def use_key(desk: Desk, project: Project, source: Project | Path, passphrase: str) -> None:
    """Take a key that is there already, of another project or a file, if it carries what is asked:
    that is planned with it.

    The project gets a copy of its own, locked by the same passphrase.
    """
    desk.check_open(project)
    if not passphrase:
        raise Refused("type the passphrase of the key that you want to use", code="no-passphrase")
    path = source.key_file if isinstance(source, Project) else source.expanduser()
    if not path.is_file():
        raise Refused(
            f"{path} is no file: choose a project, or give the full path of a key such as "
            "secret.key",
            code="no-such-file",
        )
    owner = es.Owner.load(path, passphrase)
    made = make_plan(desk, project, owner)
    key = ProjectKey(key_id=owner.key_id, fingerprint=owner.fingerprint, made=now(), of=str(path))
    if isinstance(source, Project) and source.state.key is not None:
        of = source.state.key.of or source.state.title
        key = source.state.key.model_copy(update={"of": of})
    _keep_key(desk, project, owner, passphrase, key, made)


def keys_before(desk: Desk, project: Project) -> list[Project]:
    """Return other projects that have a key, the newest first; one of those that share a key."""
    found: dict[str, Project] = {}
    for other in desk.projects.all()[0]:
        if other.id != project.id and other.state.key is not None and other.key_file.is_file():
            found.setdefault(other.state.key.key_id, other)
    return list(found.values())


def _keep_key(
    desk: Desk, project: Project, owner: es.Owner, passphrase: str, key: ProjectKey, made: Plan
) -> None:
    with project.changing() as state:
        writers: dict[Path, Callable[[Path], None]] = {
            project.key_file: lambda path: owner.save(path, passphrase),
            project.public_file: owner.public_keys().save,
        }
        write_together(writers, overwrite=False)
        owner.key_file = project.key_file.resolve()  # it was written under another name
        state.key = key
        keep_plan(desk, project, made)
    desk.keep_unlocked(project, owner, passphrase)


def unlock(desk: Desk, project: Project, passphrase: str) -> None:
    """Unlock the key for as long as this program runs, or until it is locked again."""
    key = project.state.key
    if key is None:
        raise Refused("there is no key yet: make one in the step Key", code="no-key")
    owner = es.Owner.load(project.key_file, passphrase)
    if owner.key_id != key.key_id:
        raise es.KeyMismatchError(
            f"{project.key_file} is the key {owner.key_id}, and this project was made with "
            f"the key {key.key_id}: put the file of that key back",
            code="other-key",
        )
    desk.keep_unlocked(project, owner, passphrase)


@router.post("/p/{id}/key")
def make(desk: TheDesk, web: TheWeb, project: TheProject, form: SentForm) -> Response:
    """Make the key."""
    words = str(form.get("passphrase", "")), str(form.get("again", ""))

    def act() -> str:
        make_key(desk, project, *words)
        return "key?done=made"

    return web.attempt(project, "key", act)


@router.post("/p/{id}/key/use")
def use(desk: TheDesk, web: TheWeb, project: TheProject, form: SentForm) -> Response:
    """Use a key that is there already."""
    other, path = text_in(form, "project"), text_in(form, "path")

    def act() -> str:
        try:
            source = desk.projects.get(other) if other and not path else Path(path)
        except LookupError:
            raise Refused("choose a project from the list", code="unknown-project") from None
        use_key(desk, project, source, str(form.get("passphrase", "")))
        return "key?done=taken"

    return web.attempt(project, "key", act, given_path=path, given_project=other)


@router.post("/p/{id}/key/unlock")
def unlock_key(desk: TheDesk, web: TheWeb, project: TheProject, form: SentForm) -> Response:
    """Unlock the key, and stay on the step."""
    step = text_in(form, "step")
    step = step if step in STEPS else "key"

    def act() -> str:
        unlock(desk, project, str(form.get("passphrase", "")))
        if project.state.sent is not None and not project.state.sent.stopped:
            go_on(desk, project)  # rounds wait for the key
        return f"{step}?done=unlocked"

    return web.attempt(project, step, act)


@router.post("/p/{id}/key/lock")
def lock(desk: TheDesk, project: TheProject) -> Response:
    """Lock the key."""
    desk.lock(project)
    return RedirectResponse(f"/p/{project.id}/key?done=locked", 303)


@router.get("/p/{id}/key/left")
def seconds_left(desk: TheDesk, project: TheProject) -> Response:
    """Return for how long the key stays unlocked. To look is not to use it."""
    return JSONResponse({"seconds": desk.seconds_unlocked(project)})


@router.post("/p/{id}/key/copied")
def note_copy(project: TheProject) -> Response:
    """Note that the owner has a copy."""
    with project.changing() as state:
        if state.key is not None:
            state.key.copied = True
    return RedirectResponse(f"/p/{project.id}/key", 303)


@router.get("/p/{id}/key/file")
def key_file(project: TheProject) -> Response:
    """Give a copy of the key, which is locked."""
    if project.state.key is None:
        raise NotHere(404, "there is no key yet")
    name = f"secret-{project.state.key.key_id[:8]}.key"
    return download(project.key_file.read_bytes(), name, "application/octet-stream")
