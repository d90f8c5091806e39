"""Every question by its form: it is asked, its columns follow, it is planned, and it is shown."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest
from desk_helpers import PASSPHRASE, Page, waited
from every_question import FORMS, cohort, filled

from encryptedstats.app.asking import Offer, encodings_of, form_of
from encryptedstats.app.showing import show_result
from encryptedstats.tables.questions import question as question_module
from encryptedstats.tables.questions.question import load_all_questions

STATISTICS = {"counts", "crosstab", "moments", "folds"}


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return cohort()


@pytest.fixture
def cohort_page(tmp_path: Path, frame: pd.DataFrame) -> Page:
    frame.to_csv(tmp_path / "cohort.csv", index=False)
    page = Page(tmp_path / "home", tmp_path)
    page.begin()
    page.choose(tmp_path / "cohort.csv")
    return page


def ask(page: Page, name: str) -> None:
    """Send the form of a question as a browser does."""
    state = page.state
    fields = form_of(name, Offer.of(state.data, state.choices)).fields
    assert set(FORMS[name]) <= {one.name for one in fields}
    page.post("questions", question=name, **filled(fields, FORMS[name]))


def test_there_is_a_form_for_every_question() -> None:
    own = {
        name
        for name, question in load_all_questions().items()
        if question.__module__.startswith("encryptedstats.") and question.is_listed
    }
    assert set(FORMS) == own - STATISTICS


@pytest.mark.parametrize("name", FORMS)
def test_a_question_is_asked_planned_and_shown(
    name: str, cohort_page: Page, frame: pd.DataFrame
) -> None:
    ask(cohort_page, name)
    cohort_page.decide()
    assert "Who sees what" in cohort_page.get("plan")
    project = cohort_page.desk.projects.get(cohort_page.project)
    schema, (question,) = cohort_page.desk.schema(project), cohort_page.desk.questions(project)
    shown = show_result(schema.table(frame).ask(question))
    assert shown.tables or shown.facts
    assert shown.svg(dark=True) is None or shown.is_drawn


def test_numbers_are_stored_on_a_grid_where_ranks_are_asked(cohort_page: Page) -> None:
    ask(cohort_page, "TTest")
    cohort_page.decide()
    project = cohort_page.desk.projects.get(cohort_page.project)
    assert encodings_of(cohort_page.desk.questions(project), cohort_page.desk.schema(project)) == [
        "onehot"
    ]
    ask(cohort_page, "Quantiles")
    cohort_page.decide()
    assert encodings_of(cohort_page.desk.questions(project), cohort_page.desk.schema(project)) == [
        "grid",
        "onehot",
    ]


def test_times_are_points_and_not_quantiles(cohort_page: Page) -> None:
    ask(cohort_page, "KaplanMeier")
    text = cohort_page.get("columns")
    assert "points in time" in text
    cohort_page.decide()
    project = cohort_page.desk.projects.get(cohort_page.project)
    assert cohort_page.desk.schema(project)["months"].levels == tuple(range(1, 13))
    place = cohort_page.state.data.columns.index("months")
    cohort_page.decide(**{f"cuts-{place}": "3, 6, 9"})
    assert cohort_page.desk.schema(project)["months"].edges == (3.0, 6.0, 9.0)


@pytest.mark.slow
def test_all_questions_are_answered_from_one_encrypted_table(cohort_page: Page) -> None:
    for name in FORMS:
        ask(cohort_page, name)
    cohort_page.decide()
    cohort_page.get("plan")
    cohort_page.post("key", passphrase=PASSPHRASE, again=PASSPHRASE)
    cohort_page.post("encrypt")
    waited(cohort_page, "encrypt", 600)
    cohort_page.post("send", to="here")
    waited(cohort_page, "send", 1200)
    text = cohort_page.get("results")
    assert re.findall(r'role="alert"[^<]*<[^>]*>[^<]*', text) == []
    for one in cohort_page.state.asked:
        assert one.state == "here", one.name
        if "csv" in text:
            cohort_page.get(f"results/{one.id}.csv")


def test_installed_packages_are_looked_through_once_a_page(
    cohort_page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once for every question, the page took two seconds."""
    asked: list[dict[str, str]] = []
    monkeypatch.setattr(question_module, "entry_points", lambda **given: asked.append(given) or [])
    cohort_page.get("questions")
    assert len(asked) <= 1
