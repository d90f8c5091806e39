"""A study on the page: two sites with linked columns and a receiver, each with a page of its own;
the worker and the linkage agent use the library.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from desk_helpers import PASSPHRASE, Page, patients

import encryptedstats as es
from encryptedstats.app.steps.studies import (
    JoinedStudy,
    Studies,
    StudyDesk,
    _file_in,
    _with_names,
)
from encryptedstats.app.tasks import StudyTask

PEOPLE = patients(220)[["patient", "smoker", "ill"]]
ROWS = {
    "hospital": PEOPLE.iloc[:180][["patient", "smoker"]],
    "registry": PEOPLE.iloc[40:].sample(frac=1, random_state=1)[["patient", "ill"]],
}
SCHEMA = es.Schema.infer(PEOPLE.drop(columns="patient"), target="ill")

STUDY: dict[str, Any] = {
    "schema": SCHEMA,
    "questions": {"bayes": es.MultinomialNB()},
    "n_rows": 400,
    "sites": ["hospital", "registry"],
    "worker": "centre",
    "receiver": "board",
    "linkage": es.Linkage({"hospital": ["smoker"], "registry": ["ill"]}, ["code"], agent="office"),
}


@dataclass
class Party:
    """The page of a party, at its study."""

    name: str
    page: Page
    url: str

    def get(self, path: str = "") -> str:
        return self.page.get(f"{self.url}{path}")

    def post(self, path: str, status: int = 200, /, **form: str) -> str:
        return self.page.post(f"{self.url}/{path}", status, **form)

    @property
    def place(self) -> StudyDesk:
        known: Studies = self.page.client.app.app.app.state.studies  # type: ignore[attr-defined]  # through both guards
        return known.get(self.url.rpartition("/")[2])

    def do(self, action: str, **form: str) -> str:
        """Do what is due, and return the page after it."""
        self.post(f"do/{action}", **form)
        work = self.place.work
        assert work is not None
        assert work.finished.wait(600.0)
        assert not work.error, work.error
        return self.get()


def new_page(folder: Path, shared: Path) -> tuple[Page, str]:
    """A page of a program of its own that looks at the study."""
    page = Page(folder / "home", folder)
    answer = page.client.post("/studies", data={"url": str(shared)})
    assert answer.status_code == 200, answer.text
    return page, answer.url.path


@pytest.fixture
def made(tmp_path: Path) -> es.Study:
    return es.Study.create(tmp_path / "shared", **STUDY)


def joined(made: es.Study, folder: Path) -> tuple[dict[str, Party], dict[str, es.Study]]:
    """All parties: those with a page, and those with the library."""
    pages, others = {}, {}
    for name, code in made.invitations.items():
        if name in ("centre", "office"):
            others[name] = es.Study.join(made.url, code, folder / f"{name}.id")
            continue
        page, url = new_page(folder / name, Path(made.url))
        pages[name] = Party(name, page, url)
        assert "You have not joined" in pages[name].get()
        pages[name].post("join", invitation=code, passphrase=PASSPHRASE, again=PASSPHRASE)
    return pages, others


def csv_of(name: str, folder: Path, rows: Mapping[str, pd.DataFrame] = ROWS) -> str:
    path = folder / f"{name}.csv"
    rows[name].to_csv(path, index=False)
    return str(path)


def test_two_sites_and_a_receiver(made: es.Study, tmp_path: Path) -> None:
    pages, others = joined(made, tmp_path)
    hospital = pages["hospital"]
    shown = hospital.get()
    for one in made.document.open_risks:
        assert one[1:].replace("'", "&#39;") in shown
    assert "Keyed hashes of identifiers" in shown
    assert "Compare the fingerprint first" in shown
    heard = made.fingerprint
    hospital.post("compare", 422, fingerprint="0" + heard[1:] if heard[0] != "0" else heard[::-1])
    assert "Compare the fingerprint first" in hospital.get()
    assert "Compare the fingerprint first" not in hospital.post("compare", fingerprint=heard)

    for name in ("hospital", "registry"):
        form = {"rows": csv_of(name, tmp_path), "on": "patient", "duplicates": "refuse"}
        looked = pages[name].do("link", **form, send="no")
        assert "Nothing was sent yet" in looked
        assert re.search(r"people +180", looked)
        assert name not in made.status().to_dict()["people"]  # indeed nothing
        assert "people               180" in pages[name].do("link", **form, send="yes")
        assert made.status().to_dict()["people"][name] == 180
    others["office"].link()
    assert "linked 140" in hospital.get()

    while todo := made.status().next:
        for name, action in todo:
            if name in others:
                getattr(others[name], action)()
            elif action == "add":
                pages[name].do("add", rows=csv_of(name, tmp_path))
            else:
                pages[name].do(action)
    board = pages["board"]
    found = board.get()
    clear = es.MultinomialNB().fit(SCHEMA.table(PEOPLE.iloc[40:180].drop(columns="patient")))
    model = board.place.opened["bayes"].model
    assert list(model.totals_) == list(clear.totals_)
    assert (title := board.place.opened["bayes"].title) in found
    assert board.page.client.get(f"{board.url}/results/0.csv").status_code == 200
    assert {f"{p.stat().st_mode & 0o777:o}" for p in board.place.folder.glob("study.*")} == {"600"}
    board.post("lock")
    assert board.page.client.get(f"{board.url}/results/0.csv").status_code == 404
    assert title not in board.get()
    assert board.place.passphrase == ""
    board.post("unlock", passphrase=PASSPHRASE)
    assert title in board.do("open", again="yes")


def test_what_is_wrong_is_said(made: es.Study, tmp_path: Path) -> None:
    page, url = new_page(tmp_path / "hospital", Path(made.url))
    code = made.invitations["hospital"]
    party = Party("hospital", page, url)
    party.post("join", 422, invitation="f" * 64, passphrase=PASSPHRASE, again=PASSPHRASE)
    party.post("join", 422, invitation=code, passphrase=PASSPHRASE, again="another")
    refused = party.post("join", 422, invitation=code, passphrase="password", again="password")
    assert code not in refused
    assert not party.place.identity.exists()
    party.post("do/share", 422)
    party.post("join", invitation=code, passphrase=PASSPHRASE, again=PASSPHRASE)
    for name, other in made.invitations.items():
        if name != "hospital":
            es.Study.join(made.url, other, tmp_path / f"{name}.id")
    party.post("do/link", 422, rows=str(tmp_path / "none.csv"), on="patient")
    party.post("do/link", 422, rows="hospital.csv", on="patient")
    party.post("do/add", 422)
    assert page.client.post(f"{url}/do/nothing").status_code == 404
    twice = pd.concat([ROWS["hospital"], ROWS["hospital"].iloc[:1]])
    rows = csv_of("hospital", tmp_path, {"hospital": twice})
    for form in ({"on": "nobody"}, {"on": "patient,smoker"}, {"on": "patient"}):
        party.post("do/link", rows=rows, **form)
        work = party.place.work
        assert work is not None
        assert work.finished.wait(600.0)
        assert work.error
        said = party.get()
        assert "It did not come to an end" in said
        for jargon in ("on=", "duplicates=", "Traceback", "es."):
            assert jargon not in work.error, work.error
    assert not made.status().to_dict()["people"]
    party.post("lock")
    party.post("do/link", 422, rows=rows, on="patient")
    party.post("unlock", 422, passphrase="something else")


def test_only_a_study_is_taken_and_only_the_owner_may(made: es.Study, tmp_path: Path) -> None:
    page = Page(tmp_path / "home", tmp_path)
    page.post("/studies", 422, url="shared")
    page.post("/studies", 422, url=str(tmp_path / "nowhere"))
    assert not (tmp_path / "home" / "studies").exists()
    answer = page.client.post("/studies", data={"url": str(made.url)})
    url = answer.url.path
    assert page.client.post("/studies", data={"url": str(made.url)}).url.path == url
    for headers in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        answer = page.client.post(f"{url}/join", data={"invitation": "x"}, headers=headers)
        assert answer.status_code == 403
    page.client.cookies.clear()
    assert page.client.get(url).status_code == 403
    state = next((tmp_path / "home" / "studies").glob("*/study.json"))
    assert f"{state.stat().st_mode & 0o777:o}" == "600"
    assert made.invitations["hospital"] not in state.read_text()


def test_a_study_that_was_created_again_is_another_one(made: es.Study, tmp_path: Path) -> None:
    page, url = new_page(tmp_path / "board", Path(made.url))
    former = Party("board", page, url)
    words = {"passphrase": PASSPHRASE, "again": PASSPHRASE}
    former.post("join", invitation=made.invitations["board"], **words)
    shutil.rmtree(made.url)
    again = es.Study.create(made.url, **STUDY)
    invited = {"invitation": again.invitations["board"], **words}
    assert "add it as a new one under Studies" in former.post("join", 422, **invited)
    answer = page.client.post("/studies", data={"url": str(made.url)})
    other = Party("board", page, answer.url.path)
    assert other.url != former.url
    other.post("join", **invited)
    assert "board" in es.Study(made.url).state().parties
    assert page.client.post("/studies", data={"url": str(made.url)}).url.path == other.url


def test_questions_are_shown_with_the_names_of_columns() -> None:
    frame = pd.DataFrame({"class of v1": [1, 2, 1], "age": [1, 2, 2], r"ill\1": [0, 1, 1]})
    schema = es.Schema.infer(frame, target=r"ill\1")
    shown = _with_names("formula: class ~ v0 + v1; levels: v12", schema)
    assert shown == r"formula: ill\1 ~ class of v1 + age; levels: v12"


def test_excel_files_of_one_name_stay_two(tmp_path: Path) -> None:
    pytest.importorskip("openpyxl")
    place = StudyDesk(tmp_path / "kept", JoinedStudy(url="s3://nowhere/study"))
    place.folder.mkdir()
    form = {}
    for name, value in (("rows", 1), ("new", 2)):
        (tmp_path / name).mkdir()
        pd.DataFrame({"age": [value]}).to_excel(tmp_path / name / "people.xlsx", index=False)
        form[name] = str(tmp_path / name / "people.xlsx")
    files = [_file_in(place, form, name) for name in ("rows", "new")]
    assert [pd.read_csv(file)["age"].tolist() for file in files if file] == [[1], [2]]


def test_rows_to_predict_go_with_the_others(tmp_path: Path) -> None:
    brought: list[tuple[Any, Any]] = []

    class Voting:
        document = SimpleNamespace(procedures={}, linkage=None)

        def add(self, rows: Any, *, new: Any) -> None:
            brought.append((rows, new))

    rows, new = tmp_path / "rows.csv", tmp_path / "new.csv"
    facts = {"url": "x", "identity": tmp_path / "id", "passphrase": PASSPHRASE, "action": "add"}
    StudyTask(**facts, rows=rows, new=new)._add(Voting())
    StudyTask(**facts, rows=rows)._add(Voting())
    assert brought == [(rows, new), (rows, None)]


def test_three_sites_fit_a_model_that_converges(tmp_path: Path) -> None:
    sites = ("north", "south", "west")
    frame = patients(1800).drop(columns=["patient", "bmi"])
    rows = {site: frame.iloc[600 * k : 600 * k + 600] for k, site in enumerate(sites)}
    schema = es.Schema.infer(
        frame, target="ill", numbers="keep", digits=0, bounds={"age": (0, 100)}
    )
    model = es.PooledGLM("ill ~ smoker")
    made = es.Study.create(
        tmp_path / "shared",
        schema=schema,
        questions={"fit": (model, "rounds")},
        n_rows=1800,
        sites=sites,
        worker="centre",
        receiver="board",
    )
    pages, _ = joined(made, tmp_path)
    assert "Sums over all sites, round by round" in pages["north"].get()
    for site in sites:
        pages[site].post("do/add", rows=csv_of(site, tmp_path, rows))
    for site in sites:
        work = pages[site].place.work
        assert work is not None
        assert work.finished.wait(600.0)
        assert not work.error, work.error
    pages["board"].do("open")
    found = pages["board"].place.opened["fit"].view
    wanted = model.run(schema.table(frame)).view()
    assert found.tables[0].frame.round(6).equals(wanted.tables[0].frame.round(6))
    assert "Show what the sites have opened" in pages["south"].get()
    pages["south"].do("open")
    seen = pages["south"].place.opened["fit"].view
    assert seen.tables[0].frame.equals(found.tables[0].frame)
