"""Who takes part in a study that is being made, where it lies, and how its results are opened."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from fastapi import APIRouter
from fastapi.responses import Response

import encryptedstats as es
from encryptedstats.app.agreeing import draft_of, plan_document
from encryptedstats.app.desk import Desk, Refused
from encryptedstats.app.projects import LinkDraft, Project, StudyDraft
from encryptedstats.app.web import SentForm, TheDesk, TheProject, TheWeb, text_in
from encryptedstats.storage.objects import is_url
from encryptedstats.studies.documents import (
    ESCROW,
    JOINT,
    LEAST_MINIMUM,
    MASKED,
    ONE_HOLDER,
    ROUNDS,
)
from encryptedstats.studies.identifiers import KINDS
from encryptedstats.studies.linkage import MEMBERS, SIZE

router = APIRouter()
#: What each kind of key means, in words.
KEYS: Final = {
    ONE_HOLDER: "The receiver has it, and opens alone",
    ESCROW: "It is sealed: the receiver opens with the help of some sites",
    JOINT: "Nobody has it: all sites help to open (experimental)",
}
REVEALS: Final = {
    SIZE: "how many people they share",
    MEMBERS: "which of their own people they share",
}
_COMMAS: Final = re.compile(r"[,;\s]+")


def values(desk: Desk, project: Project, typed: Any = None, **_: Any) -> dict[str, Any]:
    """Return the form, as it was typed or as it is kept."""
    draft = draft_of(project)
    modes = {one.mode for one in project.state.asked}
    return {
        "columns": names_of_columns(desk.schema(project)),
        "typed": _texts_of(draft, project.state.title) if typed is None else typed,
        "keys": KEYS,
        "reveals": REVEALS,
        "kinds": list(KINDS),
        "least_minimum": LEAST_MINIMUM,
        "has_rounds": ROUNDS in modes,
        "needs_key": bool(modes - {ROUNDS, MASKED}),
    }


def names_of_columns(schema: es.Schema) -> list[str]:
    """Return the columns that sites bring, the outcome last."""
    return [*schema.names, *([] if schema.target is None else [schema.target])]


def _texts_of(draft: StudyDraft, title: str) -> dict[str, Any]:
    """Return what the fields of the form hold of a draft."""
    linked = draft.linked
    texts = {
        **draft.model_dump(include={"url", "worker", "receiver", "key", "minimum"}),
        "title": title,
        "sites": ", ".join(draft.sites),
        "rows": draft.rows or "",
        "openers": draft.openers or 2,
        "linked": "" if linked is None else "yes",
    }
    shown = linked or LinkDraft(brings={}, identifiers=[])
    texts |= shown.model_dump(include={"agent", "reveals", "min_count"})
    texts |= {f"brings-{name}": site for name, site in shown.brings.items()}
    texts |= {"identifiers": ", ".join(shown.identifiers)}
    return {**texts, "sensitive": "yes" if shown.sensitive else ""}


def agree(desk: Desk, project: Project, form: dict[str, str]) -> None:
    """Keep what a form says of the parties."""
    old = draft_of(project)
    linked = None
    if form.get("linked") == "yes":
        linked = LinkDraft(
            brings={
                name: form.get(f"brings-{name}", "")
                for name in names_of_columns(desk.schema(project))
            },
            identifiers=_words(form.get("identifiers", "")),
            agent=form.get("agent", ""),
            reveals=form.get("reveals", SIZE),
            min_count=_count(form, "min_count", "the fewest people of a cell"),
            sensitive=form.get("sensitive") == "yes",
        )
    url = form.get("url", "")
    if not is_url(url) and not Path(url).is_absolute():
        raise Refused(
            "give the full path of the study's folder, or the address of its bucket",
            code="not-a-full-path",
        )
    key = form.get("key", ONE_HOLDER)
    draft = StudyDraft(
        schema_given=old.schema_given,
        url=url,
        sites=_words(form.get("sites", "")),
        worker=form.get("worker", ""),
        receiver=form.get("receiver", ""),
        rows=_count(form, "rows", "the most rows of all sites"),
        key=key if key in KEYS else ONE_HOLDER,
        openers=_count(form, "openers", "how many sites help") if key == ESCROW else 0,
        minimum=_count(form, "minimum", "the fewest rows behind a number")
        if "minimum" in form
        else old.minimum,
        linked=linked,
    )
    with project.changing() as state:
        state.title = form.get("title") or state.title
        state.study = draft


def _words(text: str) -> list[str]:
    return [one for one in _COMMAS.split(text) if one]


def _count(form: dict[str, str], name: str, what: str) -> int:
    text = form.get(name, "").replace(",", "")
    if not text.isdigit() or not int(text):
        raise Refused(f"say {what}, as a whole number", code="not-an-integer")
    return int(text)


def check_names(names: Sequence[str]) -> None:
    """Refuse names of parties that a document cannot have."""
    for one in names:
        if not one.isidentifier():
            raise Refused(
                f"{one or 'an empty name'} is no name of a party: take a word of letters and "
                "digits without blanks, such as north",
                code="malformed-name",
            )


@router.post("/p/{id}/parties")
def choose(desk: TheDesk, web: TheWeb, project: TheProject, form: SentForm) -> Response:
    """Say who takes part."""
    typed = {name: text_in(form, name) for name in form}

    def act() -> str:
        parties = [*_words(typed.get("sites", "")), typed.get("worker", "")]
        check_names([*parties, typed.get("receiver", "")])
        agree(desk, project, typed)
        plan_document(desk, project)  # refuses what cannot be, beside the form
        with project.changing():
            draft_of(project).parties_done = True
        return "agreement"

    # What is missing from a form that was sent was not ticked.
    kept = {"linked": "", "sensitive": "", **typed}
    return web.attempt(project, "parties", act, typed=kept)
