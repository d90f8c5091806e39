"""What others may see of a result, by rules or with noise, and the ledger of it."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, Final

from fastapi import APIRouter
from fastapi.responses import Response

import encryptedstats as es
from encryptedstats.app import asking
from encryptedstats.app.desk import Desk, Refused
from encryptedstats.app.projects import Project, ProjectQuestion, private_folder
from encryptedstats.app.showing import Outgoing, left_text, show_published, show_released, table_of
from encryptedstats.app.web import (
    NotHere,
    SentForm,
    TheDesk,
    TheProject,
    TheQuestion,
    TheWeb,
    download,
    number_in,
    text_in,
)
from encryptedstats.app.words import CORRECTABLE, in_page_words
from encryptedstats.publishing.ledger import NoLedgerError

router = APIRouter()
#: The two forms in which others may see a result.
BY_RULES: Final = "published"
WITH_NOISE: Final = "released"


def ledger(desk: Desk, project: Project) -> es.Ledger:
    """Return what was opened, published and released so far; begun where there is none yet."""
    owner = desk.key(project).owner
    with desk.writing:
        book = es.Ledger(project.ledger_folder, owner)
        try:
            book.check_member(owner)
        except NoLedgerError:
            return es.Ledger.begin(project.ledger_folder, owner)
    return book


def book(desk: Desk, project: Project) -> dict[str, Any] | str:
    """Return what the ledger says, or what is wrong with it."""
    try:
        known = ledger(desk, project)
        budget, spent, frame = known.budget, known.epsilon_spent, known.to_frame()
    except CORRECTABLE as found:
        return in_page_words(found)
    entries = frame.drop(columns="by").astype(object)
    entries["time"] = [str(time)[:16].replace("T", " ") for time in entries["time"]]
    entries = entries.rename(columns={"time": "time (UTC)"})
    return {
        "folder": project.ledger_folder,
        "budget": budget,
        "left": "" if budget is None else left_text(spent, budget.epsilon),
        "spent": f"{spent:.4g}",
        "rho": f"{known.rho_spent:.4g}",
        "head": known.head(),
        "entries": table_of(entries.where(entries.notna(), "")),
    }


def set_budget(desk: Desk, project: Project, epsilon: float, delta: float) -> None:
    """Set what all releases of the project together may cost."""
    ledger(desk, project).set_budget(desk.key(project).owner, epsilon, delta)


def publish(desk: Desk, project: Project, asked: ProjectQuestion, rules: str) -> None:
    """Publish a result by a profile of rules. The ledger records it, and refuses what would
    disclose rows together with its earlier entries.
    """
    owner, schema = desk.key(project).owner, desk.schema(project)
    with desk.writing, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", es.DisclosureWarning)
        found = owner.publish(
            project.result_file(asked), schema, rules=rules, ledger=ledger(desk, project)
        )
    warned = [
        in_page_words(one.message)
        for one in caught
        if isinstance(one.message, es.DisclosureWarning)
    ]
    title = f"{asking.title_of(asked.name)}: {asking.describe(asked.name, asked.parameters)}"
    _keep(desk, project, asked, BY_RULES, show_published(found, title, warned))


def release(
    desk: Desk, project: Project, asked: ProjectQuestion, epsilon: float, delta: float
) -> None:
    """Release a result with noise. The cost is spent first, and the release is kept in a file:
    making it again costs again.
    """
    owner, schema = desk.key(project).owner, desk.schema(project)
    with desk.writing:
        known = ledger(desk, project)
        if known.budget is None:
            raise Refused(
                "say first what all releases together may cost: set a budget, below the results",
                code="no-budget",
            )
        private_folder(project.released_folder)
        found = owner.release(
            project.result_file(asked), schema, epsilon=epsilon, delta=delta, ledger=known
        )
        number = 1 + sum(1 for _ in project.released_folder.iterdir())
        file = project.released_folder / f"{number}-{asked.id}.released"
        found.save(file)
    _keep(desk, project, asked, WITH_NOISE, show_released(found, file))


def _keep(desk: Desk, project: Project, asked: ProjectQuestion, form: str, found: Outgoing) -> None:
    desk.outgoing.setdefault((project.id, asked.id), {})[form] = found


def outgoing(desk: Desk, project: Project, asked: ProjectQuestion) -> dict[str, Outgoing]:
    """Return what others may see of a result, by rules or with noise; until the key is locked."""
    return desk.outgoing.get((project.id, asked.id), {}) if desk.is_unlocked(project) else {}


def write_report(desk: Desk, project: Project) -> Path:
    """Write the page for an ethics board, from the table, the results, the releases and the
    ledger.
    """
    results = [path for one in project.state.asked if (path := project.result_file(one)).is_file()]
    es.write_report(
        project.board_file,
        [project.table_folder, *results, *sorted(project.released_folder.glob("*.released"))],
        keys=desk.key(project).owner,
        ledger=ledger(desk, project),
        title=project.state.title,
        overwrite=True,
    )
    return project.board_file


# -- routes
# ------------------------------------------------------------------------------------------------


@router.post("/p/{id}/results/budget")
def budget_route(desk: TheDesk, web: TheWeb, project: TheProject, form: SentForm) -> Response:
    """Set the budget."""

    def act() -> str:
        set_budget(desk, project, number_in(form, "epsilon"), number_in(form, "delta"))
        return "results?done=budget"

    return web.attempt(project, "results", act)


@router.post("/p/{id}/results/{question}/publish")
def publish_route(
    desk: TheDesk, web: TheWeb, project: TheProject, asked: TheQuestion, form: SentForm
) -> Response:
    """Publish by rules."""

    def act() -> str:
        publish(desk, project, asked, text_in(form, "rules"))
        return f"results?at={BY_RULES}-{asked.id}"

    return web.attempt(project, "results", act)


@router.post("/p/{id}/results/{question}/release")
def release_route(
    desk: TheDesk, web: TheWeb, project: TheProject, asked: TheQuestion, form: SentForm
) -> Response:
    """Release with noise."""

    def act() -> str:
        epsilon, delta = number_in(form, "epsilon"), number_in(form, "delta")
        release(desk, project, asked, epsilon, delta)
        return f"results?at={WITH_NOISE}-{asked.id}"

    return web.attempt(project, "results", act)


def _outgoing(desk: Desk, project: Project, asked: ProjectQuestion, form: str) -> Outgoing:
    found = outgoing(desk, project, asked)
    if form not in found:
        raise NotHere(404, "this was not published or released since the key was unlocked")
    return found[form]


@router.get("/p/{id}/results/{question}/{form}.csv")
def outgoing_csv(desk: TheDesk, project: TheProject, asked: TheQuestion, form: str) -> Response:
    """Give what others may see, as CSV."""
    found = _outgoing(desk, project, asked, form)
    if found.table is None:
        raise NotHere(404, "nothing can be shown of this result by these rules")
    return download(found.csv.encode(), f"{form}-{asked.name}-{asked.id}.csv", "text/csv")


@router.get("/p/{id}/results/{question}/{form}.txt")
def outgoing_text(desk: TheDesk, project: TheProject, asked: TheQuestion, form: str) -> Response:
    """Give what others may see, with what is said of it."""
    found = _outgoing(desk, project, asked, form)
    return download(f"{found.text}\n".encode(), f"{form}-{asked.name}-{asked.id}.txt", "text/plain")


@router.get("/p/{id}/board")
def board(desk: TheDesk, project: TheProject) -> Response:
    """Give the report for an ethics board."""
    try:
        file = write_report(desk, project)
    except CORRECTABLE as error:
        raise NotHere(409, in_page_words(error)) from None
    return download(file.read_bytes(), f"report-{project.id}.html", "text/html")
