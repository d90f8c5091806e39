"""What a study that is being made agrees on: the draft of a project as the library takes it.

May import the desk and what stands below it; the steps of a new study import this.
"""

from __future__ import annotations

from typing import Any

import encryptedstats as es
from encryptedstats.app import asking
from encryptedstats.app.desk import Desk, Refused
from encryptedstats.app.projects import Project, StudyDraft
from encryptedstats.procedures.words import SITE_PROCEDURES
from encryptedstats.studies.documents import StudyDocument
from encryptedstats.studies.study import Agreement


def draft_of(project: Project) -> StudyDraft:
    """Return the study that a project is the draft of."""
    if project.state.study is None:
        raise Refused("this is a project of your own, and no study", code="not-a-study")
    return project.state.study


def make_agreement(desk: Desk, project: Project) -> Agreement:
    """Return what the owner has decided so far, as the library takes it."""
    draft, schema = draft_of(project), desk.schema(project)
    asked = {}
    for one in project.state.asked:
        if one.name in SITE_PROCEDURES:
            made: Any = asking.make_site_procedure(one.name, one.parameters)
        else:
            made = asking.question_of(one.name, one.parameters, schema)
        asked[one.called] = (made, one.mode)
    linkage = None
    if draft.linked is not None:
        columns: dict[str, list[str]] = {site: [] for site in draft.sites}
        for column, site in draft.linked.brings.items():
            columns.setdefault(site, []).append(column)
        linkage = es.Linkage(
            columns,
            draft.linked.identifiers,
            draft.linked.agent,
            draft.linked.reveals,
            draft.linked.min_count,
            draft.linked.sensitive,
        )
    return Agreement(
        schema,
        asked,
        draft.rows,
        draft.sites,
        draft.worker,
        draft.receiver,
        draft.key,
        draft.openers,
        project.state.title,
        linkage=linkage,
        minimum=draft.minimum,
    )


def plan_document(desk: Desk, project: Project) -> StudyDocument:
    """Return the document, planned once for all that it depends on. Nothing is written."""
    state, draft = project.state, draft_of(project)
    asked = [(one.called, one.name, one.parameters, one.mode) for one in state.asked]
    agreed = draft.model_dump(exclude={"parties_done", "url"})
    key = repr((state.title, asked, agreed, desk.schema(project).to_json()))
    if project.id not in desk.documents or desk.documents[project.id][0] != key:
        document, _invitations = make_agreement(desk, project).to_document()
        desk.documents[project.id] = key, document
    return desk.documents[project.id][1]
