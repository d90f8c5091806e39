"""Choosing a file of rows: from a list, by dropping it on the page, or one that was made up."""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO, Final

from fastapi import APIRouter
from fastapi.responses import Response
from starlette.datastructures import FormData, UploadFile

from encryptedstats.app import asking, columns
from encryptedstats.app.desk import Desk, Refused
from encryptedstats.app.projects import Choices, Project, private_folder
from encryptedstats.app.showing import table_of
from encryptedstats.app.web import SentForm, TheDesk, TheProject, TheWeb, text_in
from encryptedstats.storage.files import PRIVATE, write_atomic

router = APIRouter()
_PREVIEW_ROWS: Final = 6
_COPY_AT_ONCE: Final = 1 << 20


def values(
    desk: Desk, project: Project, *, start: Path, folder: str = "", **_: Any
) -> dict[str, Any]:
    """Return the files of a folder, and the first rows of the file that was chosen."""
    where = Path(folder) if folder else start
    values: dict[str, Any] = {"folder": where, "parents": [*reversed(where.parents)]}
    values["files"], values["preview"], values["wrong"] = [], None, ""
    try:
        values["files"] = list(columns.listed(where))
        if project.state.data is not None:
            columns.check_unchanged(project.state.data)
            frame = columns.frame_of(Path(project.state.data.path))
            values["preview"] = table_of(frame.head(_PREVIEW_ROWS).astype(str))
    except (OSError, ValueError) as error:
        values["wrong"] = columns.in_page_words(error)
    return values


def choose_file(desk: Desk, project: Project, path: Path, *, copied: bool = False) -> None:
    """Take a file of rows for the project. Questions stay if their columns are there."""
    desk.check_open(project)
    path = path.resolve()
    data = columns.look_at(path, copied=copied)
    frame, known = columns.frame_of(path), set(data.columns)
    old = project.state.choices
    choices = Choices(
        **{
            **old.model_dump(),
            "target": old.target if old.target in known else "",
            "id": columns.find_id(frame),
            "uses": {name: use for name, use in old.uses.items() if name in known},
            "cuts": {name: text for name, text in old.cuts.items() if name in known},
        }
    )
    asked = []
    for one in project.state.asked:
        if known.issuperset(one.needs):
            one.needs = asking.needs_of(one.name, one.parameters, data, choices)
            asked.append(one)
    with project.changing() as state:
        state.data, state.choices, state.asked = data, choices, asked
        state.columns_done, state.plan = False, None


def keep_file(desk: Desk, project: Project, name: str, content: BinaryIO, prefix: str = "") -> Path:
    """Copy a file from the browser into the project, readable to its user only."""
    folder = project.folder / "data"
    private_folder(folder)
    path = folder / f"{prefix}{columns.safe_name(name)}"
    write_atomic(path, iter(lambda: content.read(_COPY_AT_ONCE), b""), mode=PRIVATE)
    return path


def choose_dropped(desk: Desk, project: Project, name: str, content: BinaryIO) -> None:
    """Copy a file that was dropped, and take it. One that is no table is deleted again, and so is
    the copy that it replaces.
    """
    desk.check_open(project)
    before = project.state.data
    path = keep_file(desk, project, name, content)
    try:
        choose_file(desk, project, path, copied=True)
    except BaseException:
        path.unlink(missing_ok=True)
        if before is not None and Path(before.path) == path.resolve():
            with project.changing() as state:
                state.data, state.columns_done, state.plan = None, False, None
        raise
    if before is not None and before.copied and Path(before.path) != path.resolve():
        Path(before.path).unlink(missing_ok=True)


def given_rows(desk: Desk, project: Project, form: FormData) -> tuple[Path, bool]:
    """Return the file of rows that a form gives, by its path or from the browser, and whether it
    was copied for that.
    """
    dropped = form.get("dropped")
    if isinstance(dropped, UploadFile) and dropped.filename:
        return keep_file(desk, project, dropped.filename, dropped.file, "new-"), True
    path = text_in(form, "path")
    if not path:
        raise Refused("choose a file, or give its full path", code="no-file-given")
    return Path(path).expanduser(), False


@router.post("/p/{id}/data")
def choose(desk: TheDesk, web: TheWeb, project: TheProject, form: SentForm) -> Response:
    """Choose a file."""
    dropped = form.get("dropped")

    def act() -> str:
        if not isinstance(dropped, UploadFile):
            choose_file(desk, project, Path(text_in(form, "path")).expanduser())
        elif not dropped.filename:
            raise Refused("no file was dropped: choose one", code="no-file-given")
        else:
            choose_dropped(desk, project, dropped.filename, dropped.file)
        return "questions?done=chosen"

    return web.tried(project, "data", act)
