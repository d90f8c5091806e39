"""The agreement of a study that is being made: who sees what, before anything is written, and then
the document and the invitations.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from fastapi.responses import RedirectResponse, Response

import encryptedstats as es
from encryptedstats.app.agreeing import draft_of, make_agreement, plan_document
from encryptedstats.app.desk import Desk
from encryptedstats.app.projects import Project
from encryptedstats.app.steps.studies import TheStudies, who_sees
from encryptedstats.app.web import TheDesk, TheProject, TheWeb
from encryptedstats.app.words import CORRECTABLE, in_page_words

router = APIRouter()


def values(desk: Desk, project: Project, **_: Any) -> dict[str, Any]:
    """Return the document as it would be written."""
    document = plan_document(desk, project)
    return {
        "document": document,
        "sees": who_sees(document),
        "draft": draft_of(project),
    }


@router.post("/p/{id}/agreement")
def write(desk: TheDesk, web: TheWeb, project: TheProject, known: TheStudies) -> Response:
    """Write the study, keep the invitations, and drop the draft."""
    try:
        document = plan_document(desk, project)
        agreed = {**vars(make_agreement(desk, project)), "parameters": document.parameters}
        made = es.Study.create(draft_of(project).url, **agreed)
        place = known.new(draft_of(project).url)
        place.keep_invitations(made.invitations)
    except CORRECTABLE as error:
        return web.step(project, "agreement", in_page_words(error), 422)
    desk.delete(project)
    return RedirectResponse(f"/studies/{place.id}?done=written", 303)
