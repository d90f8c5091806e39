"""A study is made on the page: from a table or a schema, with every kind of question; what cannot
be is said beside the form, and nothing is written before the owner agrees.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from desk_helpers import PASSPHRASE, Page, patients

import encryptedstats as es
from encryptedstats.app import asking
from encryptedstats.app.words import is_plain

TTEST = {"question": "TTest", "variable": "bmi", "by": "ill"}
BAYES = {"question": "MultinomialNB", "outcome-column": "ill"}
GLM = {"question": "PooledGLM", "formula": "ill ~ age + smoker"}


def named(form: dict[str, Any], name: str, mode: str = "") -> dict[str, Any]:
    return {**form, asking.CALLED: name, **({asking.MODE: mode} if mode else {})}


def parties(folder: Path, **more: str) -> dict[str, str]:
    return {
        "title": "Smoking",
        "url": str(folder / "shared"),
        "sites": "north, south, west",
        "worker": "centre",
        "receiver": "registry",
        "rows": "3000",
        "minimum": "10",
        "key": "one holder",
        "openers": "2",
        "min_count": "10",
        **more,
    }


def said(text: str) -> str:
    """What the page says did not work."""
    found = re.search(r"That did not work\.</strong>(.*?)</div>", text, re.DOTALL)
    return "" if found is None else found[1].strip()


@pytest.fixture
def draft(tmp_path: Path, rows: Path) -> Page:
    made = Page(tmp_path / "home", rows.parent)
    answer = made.client.post("/studies/new", data={"title": "Smoking"})
    made.project = answer.url.path.split("/")[2]
    return made


def asked(draft: Page, rows: Path, *forms: dict[str, Any]) -> None:
    """Columns of a table, and questions of them."""
    draft.choose(rows)
    for form in forms:
        draft.post("questions", **form)
    draft.decide()


def written(draft: Page) -> tuple[Any, str, es.Study]:
    """Write the study; its place here, its address, and the study."""
    url = draft.state.study.url
    answer = draft.client.post(f"/p/{draft.project}/agreement")
    assert answer.status_code == 200, said(answer.text)
    place = draft.client.app.app.app.state.studies.get(answer.url.path.split("/")[2])  # type: ignore[attr-defined]  # through both guards
    return place, answer.url.path, es.Study(url)


def test_a_study_from_a_table(draft: Page, rows: Path, tmp_path: Path) -> None:
    assert "Smoking" in draft.get("/studies")
    assert "Smoking" not in draft.get("/")
    asked(draft, rows, named(TTEST, "bmi", "masked"), named(GLM, "illness"))
    agreement = draft.post("parties", **parties(tmp_path))
    assert "Sums over all sites, round by round" in agreement
    assert "t-test (measurement: bmi; groups: ill)" in agreement
    assert not (tmp_path / "shared").exists()
    place, url, study = written(draft)
    document = study.document
    assert document.modes == {"bmi": "masked", "illness": "rounds"}
    assert (document.sites, document.worker) == (("north", "south", "west"), "centre")
    assert (document.receiver, document.n_rows, document.minimum) == ("registry", 3000, 10)
    with pytest.raises(LookupError):  # the draft is gone, with its copy of rows
        draft.desk.projects.get(draft.project)

    # Each invitation is kept for its user only, and deleted once its party has joined.
    codes = {name: place.invitation(name) for name in document.parties}
    files = list((place.folder / "invitations").iterdir())
    assert {f"{path.stat().st_mode & 0o777:o}" for path in files} == {"600"}
    assert len(files) == 5
    saved = draft.client.get(f"{url}/invitations/north.invitation")
    assert saved.text.strip() == codes["north"]
    assert "attachment" in saved.headers["content-disposition"]
    for name in ("nobody", "..", "north.invitation"):
        answer = draft.client.get(f"{url}/invitations/{name}.invitation")
        assert answer.status_code == 404
    draft.post(f"{url}/join", **{"as": "registry"}, passphrase=PASSPHRASE, again=PASSPHRASE)
    assert "registry" in study.state().parties
    for name, code in codes.items():
        if name != "registry":
            es.Study.join(study.url, code, tmp_path / f"{name}.id")
    shown = draft.get(url)
    assert "Invite the parties" not in shown
    assert study.fingerprint in shown
    assert "formula: ill ~ age + smoker" in shown
    assert not list((place.folder / "invitations").iterdir())
    draft.post(f"{url}/lock")
    locked = draft.get(url)
    assert "formula: ill ~ age + smoker" not in locked  # names are for members
    assert "formula: v2 ~ v0 + v1" in locked or "~ v0 + v1" in locked


def test_what_was_not_shown_is_not_written(draft: Page, rows: Path, tmp_path: Path) -> None:
    """What was changed in another tab, and a study whose columns have to be looked at again."""
    asked(draft, rows, named(TTEST, "bmi"))
    shown = draft.post("parties", **parties(tmp_path))
    found = re.search(r'name="revision" value="(\d+)"', shown)
    assert found is not None
    draft.post("parties", **parties(tmp_path, receiver="board"))
    again = draft.post("agreement", 422, revision=found[1])
    assert "changed in another tab" in said(again)
    assert "board" in again
    draft.post("questions", **named(BAYES, "bayes"))
    assert not draft.state.columns_done
    draft.post("agreement")
    assert not (tmp_path / "shared").exists()


def test_a_study_from_a_schema(draft: Page, tmp_path: Path) -> None:
    frame = patients().drop(columns="patient")
    schema = es.Schema.infer(frame, target="ill", kinds={"age": "both", "bmi": "both"})
    file = tmp_path / "agreed.json"
    schema.save(file)
    assert "That did not work" in draft.post("data", 422, schema=str(tmp_path / "none.json"))
    draft.post("data", schema=str(file))
    assert "smoker (levels)" in draft.get("questions?ask=TTest")
    draft.post("questions", **named(TTEST, "bmi"))
    draft.post("questions", **named(BAYES, "bayes", "totals"))
    other = draft.post("questions", 422, **named({**BAYES, "outcome-column": "smoker"}, "other"))
    assert "the outcome of this schema is ill" in said(other).lower()
    assert "smoker" in draft.get("columns")
    draft.post("parties", **parties(tmp_path, key="escrow", sites="north, south"))
    _place, _url, study = written(draft)
    assert study.document.schema == schema.public()
    assert study.document.modes == {"bmi": "rows", "bayes": "totals"}
    assert (study.document.key.kind, study.document.key.openers) == ("escrow", 2)


def test_linked_columns(draft: Page, rows: Path, tmp_path: Path) -> None:
    table = {"question": "ChiSquare", "first": "smoker", "second": "ill"}
    asked(draft, rows, named(table, "table"))
    form = parties(tmp_path, sites="hospital, registry", receiver="board", linked="yes")
    form |= {"brings-smoker": "hospital", "brings-ill": "nobody"}
    form |= {"identifiers": "text, date", "agent": "office"}
    assert "come from one site" in said(draft.post("parties", 422, **form))
    form["brings-ill"] = "registry"
    wrong = draft.post("parties", 422, **{**form, "agent": "centre"})
    assert "links and has another role" in said(wrong)
    assert "office, who links" in draft.post("parties", **form)
    _place, _url, study = written(draft)
    linkage = study.document.linkage
    assert linkage is not None
    assert (linkage.agent, list(linkage.identifiers)) == ("office", ["text", "date"])
    assert {site: len(linkage.positions(site)) for site in study.document.sites} == {
        "hospital": 1,
        "registry": 1,
    }


def test_bounds_and_levels_of_other_sites(draft: Page, rows: Path, tmp_path: Path) -> None:
    draft.choose(rows)
    draft.post("questions", **named(GLM, "illness"))
    assert "age, least at any site" in draft.get("columns")
    wrong = draft.post("columns", 422, **{"low-1": "120", "high-1": "0"}, go="on")
    assert "least and its greatest value" in said(wrong)
    draft.decide(**{"low-1": "0", "high-1": "120", "more-2": "former, unknown"})
    schema = es.Schema.load(draft.folder / "schema.json")
    assert (schema["age"].low, schema["age"].high) == (0, 120)
    assert schema["smoker"].levels == ("no", "yes", "former", "unknown")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"url": "shared"}, "full path"),
        ({"rows": ""}, "the most rows of all sites"),
        ({"rows": "30"}, "fewer rounds or variables"),
        ({"rows": "700"}, "max iterations"),
        ({"sites": "north"}, "two sites or more"),
        ({"sites": "north south"}, "3 or more"),
        ({"sites": "north, north, south"}, "each with a name of its own"),
        ({"sites": "north-east, south, west"}, "is no name of a party"),
        ({"worker": "registry"}, "name two parties"),
        ({"receiver": ""}, "is no name of a party"),
        ({"minimum": "2"}, "at least 5 rows"),
        ({"key": "escrow", "openers": "9"}, "2 to 3 together can open"),
        ({"key": "joint", "receiver": "north"}, "brings no rows"),
        ({"linked": "yes"}, "come from one site"),
    ],
)
def test_what_cannot_be_agreed_on_is_said_in_words(
    draft: Page, rows: Path, tmp_path: Path, more: dict[str, str], words: str
) -> None:
    asked(draft, rows, named(TTEST, "bmi"), named(GLM, "illness"))
    found = draft.post("parties", 422, **parties(tmp_path, **more))
    assert words in said(found), said(found)
    assert is_plain(said(found))
    assert 'value="Smoking"' in found  # the form keeps what was typed
    assert not (tmp_path / "shared").exists()
    assert not draft.state.study.parties_done


@pytest.mark.parametrize(
    ("form", "mode", "key", "words"),
    [
        (BAYES, "votes", "one holder", "opened under a joint key alone"),
        (BAYES, "totals", "joint", "masked totals, which give the same"),
        (TTEST, "votes", "joint", "says nothing of rows before it is opened"),
    ],
)
def test_ways_that_do_not_go_together_are_refused_in_words(
    draft: Page, rows: Path, tmp_path: Path, form: dict[str, Any], mode: str, key: str, words: str
) -> None:
    asked(draft, rows, named(form, "found", mode))
    found = said(draft.post("parties", 422, **parties(tmp_path, key=key)))
    assert words in found, found
    assert is_plain(found)


def test_names_of_results_are_words_and_different(draft: Page, rows: Path) -> None:
    draft.choose(rows)
    for name in ("", "bmi by outcome", "1st"):
        assert "is no name of a result" in said(draft.post("questions", 422, **named(TTEST, name)))
    draft.post("questions", **named(TTEST, "bmi"))
    assert (
        "another question is called bmi"
        in said(draft.post("questions", 422, **named(GLM, "bmi"))).lower()
    )
    assert [one.called for one in draft.state.asked] == ["bmi"]


def test_a_form_with_a_wrong_formula_keeps_what_was_typed(draft: Page, rows: Path) -> None:
    draft.choose(rows)
    form = {**GLM, "formula": "ill ~ (age", "family": "poisson", "max_iterations": "9"}
    found = draft.post("questions", 422, **named(form, "illness"))
    for text in ('value="ill ~ (age"', 'value="illness"', 'value="poisson" selected', 'value="9"'):
        assert text in found


def test_every_question_of_sites_has_a_form(draft: Page, rows: Path) -> None:
    draft.choose(rows)
    for name, form in {
        "PooledGLM": {"formula": "ill ~ age + smoker"},
        "PooledCox": {"formula": "age ~ smoker", "event": "ill"},
        "PooledElasticNet": {"formula": "bmi ~ age + smoker"},
        "PooledKMeans": {"n_clusters": "2"},
        "PooledBoosting": {"outcome-column": "ill"},
    }.items():
        shown = draft.get(f"questions?ask={name}")
        assert "by all sites" in shown
        assert asking.MODE not in shown
        draft.post("questions", **named({"question": name, **form}, name))
    assert {one.mode for one in draft.state.asked} == {"rounds"}
    assert "DecisionTree" not in draft.get("questions")
    wrong = draft.post("questions", 422, **named({**GLM, "formula": "bmi ~ age"}, "wrong"))
    assert "'bmi' is a number" in said(wrong).replace("&#39;", "'")


def test_a_study_is_not_written_over_another(draft: Page, rows: Path, tmp_path: Path) -> None:
    asked(draft, rows, named(GLM, "illness"))
    draft.post("parties", **parties(tmp_path))
    _place, url, study = written(draft)
    again = draft.client.post("/studies/new", data={"title": "Again"})
    draft.project = again.url.path.split("/")[2]
    asked(draft, rows, named(GLM, "illness"))
    draft.post("parties", **parties(tmp_path))
    assert "there is a study at" in said(draft.post("agreement", 422)).lower()
    assert es.Study(study.url).document.id == study.document.id
    draft.post("delete")
    assert "Again" not in draft.get("/studies")
    assert "Smoking" in draft.get(url)


def test_a_receiver_goes_on_without_a_late_site(draft: Page, rows: Path, tmp_path: Path) -> None:
    asked(draft, rows, named(TTEST, "bmi", "masked"))
    draft.post("parties", **parties(tmp_path))
    place, url, study = written(draft)
    for name in study.document.parties:
        if name != "registry":
            es.Study.join(study.url, place.invitation(name), tmp_path / f"{name}.id")
    draft.post(f"{url}/join", **{"as": "registry"}, passphrase=PASSPHRASE, again=PASSPHRASE)
    assert "say why" in said(draft.post(f"{url}/exclude", 422, site="west", why=""))
    assert "west: is late" in draft.post(f"{url}/exclude", site="west", why="is late")
    assert study.state().sites == ("north", "south")
    refused = said(draft.post(f"{url}/exclude", 422, site="north", why="is late"))
    assert "refused" not in refused
    assert "sites would be left" in refused
