"""Choosing a file of rows: from a list, by dropping it on the page, or one that was made up."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final

from fastapi import APIRouter
from fastapi.responses import Response
from starlette.datastructures import FormData, UploadFile

import encryptedstats as es
from encryptedstats.app import asking, columns
from encryptedstats.app.desk import Desk, Refused
from encryptedstats.app.projects import Choices, Project, private_folder
from encryptedstats.app.showing import table_of
from encryptedstats.app.web import SentForm, TheDesk, TheProject, TheWeb, text_in
from encryptedstats.app.words import in_page_words
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
        values["files"] = list(columns.list_folder(where))
        if project.state.data is not None:
            columns.check_unchanged(project.state.data)
            frame = columns.frame_of(Path(project.state.data.path))
            values["preview"] = table_of(frame.head(_PREVIEW_ROWS).astype(str))
    except (OSError, ValueError) as error:
        values["wrong"] = in_page_words(error)
    return values


def choose_file(desk: Desk, project: Project, path: Path, *, copied: bool = False) -> None:
    """Take a file of rows for the project. Questions stay if they can be asked of it."""
    desk.check_open(project)
    read = columns.as_csv(path.resolve(), project.folder / "data")
    copied, path = copied or read != path.resolve(), read
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
        with suppress(es.EncryptedStatsError):
            needs = asking.needs_of(one.name, one.parameters, data, choices)
            asked.append(one.model_copy(update={"needs": needs}))
    with project.changing() as state:
        state.data, state.choices, state.asked = data, choices, asked
        state.columns_done, state.plan = False, None
        if state.study is not None:
            state.study.schema_given = False


def take_schema(desk: Desk, project: Project, path: Path) -> None:
    """Take the columns of a study from the file of a schema. Questions stay if these have them."""
    schema = es.Schema.load(path)
    asked = []
    for one in project.state.asked:
        with suppress(es.EncryptedStatsError, ValueError):
            asking.check_asked(one.name, one.parameters, schema)
            asked.append(one.model_copy(update={"needs": {}}))
    with project.changing() as state:
        if state.study is None:
            raise Refused("choose a table, not a schema", code="no-data")
        write_atomic(project.schema_file, [schema.to_json().encode() + b"\n"], mode=PRIVATE)
        state.study.schema_given = True
        state.data, state.choices, state.asked = None, Choices(target=schema.target or ""), asked
        state.columns_done = True


def keep_file(folder: Path, name: str, content: BinaryIO) -> Path:
    """Copy a file from the browser into a folder, readable to its user only."""
    path = folder / columns.safe_name(name)
    write_atomic(path, iter(lambda: content.read(_COPY_AT_ONCE), b""), mode=PRIVATE)
    return path


def choose_dropped(desk: Desk, project: Project, name: str, content: BinaryIO) -> None:
    """Copy a file that was dropped, and take it. One that is no table is not kept."""
    desk.check_open(project)
    before = project.state.data
    with tempfile.TemporaryDirectory(dir=project.folder) as folder:
        read = columns.as_csv(keep_file(Path(folder), name, content), Path(folder) / "read")
        columns.look_at(read, copied=True)
        kept = project.folder / "data"
        private_folder(kept)
        path = read.replace(kept / read.name)
    choose_file(desk, project, path, copied=True)
    data = project.state.data
    if before is not None and before.copied and data is not None and data.path != before.path:
        Path(before.path).unlink(missing_ok=True)


@contextmanager
def open_rows(project: Project, form: FormData) -> Iterator[tuple[Path, str]]:
    """Give the file of rows that a form names or has, and its name. A copy lives no longer than
    that.
    """
    dropped = form.get("dropped")
    with tempfile.TemporaryDirectory(dir=project.folder) as folder:
        if isinstance(dropped, UploadFile) and dropped.filename:
            path = keep_file(Path(folder), dropped.filename, dropped.file)
        elif text_in(form, "path"):
            path = Path(text_in(form, "path")).expanduser()
        else:
            raise Refused("choose a file, or give its full path", code="no-file-given")
        yield columns.as_csv(path, Path(folder) / "read"), path.name


@router.post("/p/{id}/data")
def choose(desk: TheDesk, web: TheWeb, project: TheProject, form: SentForm) -> Response:
    """Choose a file."""
    dropped = form.get("dropped")

    def act() -> str:
        before = len(project.state.asked)
        if text_in(form, "schema"):
            take_schema(desk, project, Path(text_in(form, "schema")).expanduser())
        elif not isinstance(dropped, UploadFile):
            choose_file(desk, project, Path(text_in(form, "path")).expanduser())
        elif not dropped.filename:
            raise Refused("no file was dropped: choose one", code="no-file-given")
        else:
            choose_dropped(desk, project, dropped.filename, dropped.file)
        return f"questions?done={'chosen' if len(project.state.asked) == before else 'fewer'}"

    return web.attempt(project, "data", act)
