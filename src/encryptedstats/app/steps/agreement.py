"""The agreement of a study that is being made: who sees what, before anything is written, and then
the document and the invitations.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from fastapi.responses import RedirectResponse, Response

import encryptedstats as es
from encryptedstats.app.agreeing import draft_of, make_agreement, plan_document
from encryptedstats.app.desk import Desk, Refused
from encryptedstats.app.leaving import is_reachable, next_step
from encryptedstats.app.projects import Project
from encryptedstats.app.steps.studies import TheStudies, who_sees
from encryptedstats.app.web import SentForm, TheDesk, TheProject, TheWeb, text_in
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
def write(
    desk: TheDesk, web: TheWeb, project: TheProject, known: TheStudies, form: SentForm
) -> Response:
    """Write the study that was shown, keep the invitations, and drop the draft."""
    if not is_reachable("agreement", project.state):
        return RedirectResponse(f"/p/{project.id}/{next_step(project.state)}", 303)
    try:
        if text_in(form, "revision") not in ("", str(project.state.revision)):
            raise Refused(
                "the study was changed in another tab, so that nothing was written: read it again "
                "as it is now",
                code="stale-form",
            )
        document = plan_document(desk, project)
        agreed = {**vars(make_agreement(desk, project)), "parameters": document.parameters}
        made = es.Study.create(draft_of(project).url, **agreed)
        place = known.new(draft_of(project).url)
        place.keep_invitations(made.invitations)
    except CORRECTABLE as error:
        return web.step(project, "agreement", in_page_words(error), 422)
    desk.delete(project)
    return RedirectResponse(f"/studies/{place.id}?done=written", 303)
