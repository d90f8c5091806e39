"""The steps of the owner's page, without a browser: what each does, what it refuses, and what is
kept.
"""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pandas as pd
import pytest
from desk_helpers import PASSPHRASE, Page, patients, waited

import encryptedstats as es
from encryptedstats.app import asking, columns
from encryptedstats.app.projects import Projects
from encryptedstats.app.steps.plan import plan
from encryptedstats.app.words import WORDS
from encryptedstats.cli import _errors
from encryptedstats.tables.questions.question import load_all_questions
from encryptedstats.tables.questions.words import words_of
from error_codes import error


def everything_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


# -- data and columns
# ------------------------------------------------------------------------------------------------


def test_files_are_listed_and_one_is_chosen(page: Page, rows: Path) -> None:
    assert "patients.csv" in page.get("data")
    page.choose(rows)
    assert page.state.data.rows == 60
    assert "P0000" in page.get("data")  # its first rows


def test_a_dropped_file_is_copied_for_its_user_only(page: Page, rows: Path) -> None:
    files = {"dropped": ("../../my rows.csv", rows.read_bytes(), "text/csv")}
    answer = page.client.post(f"/p/{page.project}/data", files=files)
    assert answer.url.path.endswith("/questions")
    copy = Path(page.state.data.path)
    assert copy == page.folder / "data" / "my_rows.csv"
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert copy.read_bytes() == rows.read_bytes()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "is not there any more"),
        (b"", "empty: there is not even a line of column names"),
        (b"\x00\x01\x02", "no CSV file that can be read"),
    ],
)
def test_what_is_no_table_is_said_to_be_none(
    page: Page, tmp_path: Path, content: bytes | None, said: str
) -> None:
    file = tmp_path / "other.csv"
    if content is not None:
        file.write_bytes(content)
    assert said in page.post("data", 422, path=str(file))
    assert page.state.data is None


def test_columns_are_what_questions_need_and_the_owner_says(page: Page, rows: Path) -> None:
    page.choose(rows)
    page.ask()
    page.post("questions", question="TTest", variable="bmi", by="ill")
    page.decide(**{"cuts-1": "40, 60"})
    schema = es.Schema.load(page.folder / "schema.json")
    assert schema.names == ("age", "bmi")  # no question needs the other one
    assert schema["age"].edges == (40.0, 60.0)
    assert (schema.target, schema.classes, schema.id, schema["bmi"].kind) == (
        "ill",
        ("no", "yes"),
        "patient",
        "number",
    )


def test_the_schema_is_that_of_the_command_line(page: Page, rows: Path) -> None:
    page.choose(rows)
    named = {"outcome-column": "ill", "variables": ["age", "smoker", "bmi"]}
    page.post("questions", question="MultinomialNB", **named)
    page.post("columns", go="on")
    found = es.Schema.load(page.folder / "schema.json")
    frame = pd.read_csv(rows).drop(columns="patient")
    assert found.variables == es.Schema.infer(frame, target="ill").variables


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({"cuts-1": "40, old"}, "not all numbers"),
        ({"cuts-1": "60, 40"}, "cut"),
        ({"bins": "many"}, "is no whole number"),
        ({"use-1": "number"}, "bins"),
        ({"missing": "guess"}, "is none of error"),
    ],
)
def test_impossible_columns_are_refused_on_the_page(
    page: Page, rows: Path, form: dict[str, str], said: str
) -> None:
    page.choose(rows)
    page.ask()
    text = page.post("columns", 422, **form, go="on")
    assert said in text
    assert 'id="cuts-1"' in text or "use-1" in form  # the fields are there, to correct them
    assert all(value in text for name, value in form.items() if name == "cuts-1")
    assert not page.state.columns_done


def test_names_in_a_file_cannot_become_part_of_the_page(page: Page, tmp_path: Path) -> None:
    file = tmp_path / "evil.csv"
    file.write_text('"<script>alert(1)</script>",b\n"<img src=x>",1\n<b>,2\n')
    page.choose(file)
    page.post("questions", question="Histogram", variable="<script>alert(1)</script>", by="b")
    for step in ("data", "questions", "columns"):
        text = page.get(step)
        assert "&lt;script&gt;" in text
        assert "<script>alert" not in text
        assert "<img src=x" not in text


def test_a_file_that_changes_is_noticed(page: Page, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    patients().to_csv(file, index=False)
    page.choose(file)
    page.ask()
    page.decide()
    page.get("plan")
    page.post("key", passphrase=PASSPHRASE, again=PASSPHRASE)
    file.write_text(file.read_text().replace("P0001", "P9999"))
    assert "has changed since you chose it" in page.post("encrypt", 422)
    file.unlink()
    assert "is not there any more" in page.post("encrypt", 422)
    patients().to_csv(file, index=False)  # the same again, at another time: that is no change
    columns.check_unchanged(page.state.data)


# -- questions
# ------------------------------------------------------------------------------------------------


def test_every_known_question_has_a_form_but_those_of_positions(page: Page) -> None:
    offered = {form.name for forms in asking.catalogue().values() for form in forms}
    # Pages of the documents, run by the same process, define questions of their own.
    own = {
        name
        for name, question in load_all_questions().items()
        if question.__module__.startswith("encryptedstats.") and question.is_listed
    }
    assert own - offered == {"counts", "crosstab", "moments", "folds"}


def test_every_form_can_be_shown(planned: Page) -> None:
    for name in set(load_all_questions()) - {"counts", "crosstab", "moments", "folds"}:
        assert "Ask this" in planned.get(f"questions?ask={name}")


def test_what_a_form_says_is_the_question(planned: Page) -> None:
    planned.post(
        "questions",
        question="TTest",
        variable="bmi",
        by="smoker",
        confidence="0.9",
        alternative="less",
    )
    asked = planned.state.asked[-1]
    planned.decide()
    found = planned.desk.questions(planned.desk.projects.get(planned.project))[-1]
    assert isinstance(found, es.TTest)
    assert (found.variable, found.by, found.confidence, found.alternative) == (
        "v2",
        "v1",
        0.9,
        "less",
    )
    assert (
        asking.describe(asked.name, asked.parameters)
        == "measurement: bmi; groups: smoker; alternative: less; confidence level: 0.9"
    )
    assert words_of(found) == [
        "TTest",
        "variable=v2",
        "by=v1",
        "alternative=less",
        "confidence=0.9",
    ]


@pytest.mark.parametrize(
    ("form", "said"),
    [
        (
            {"question": "TTest", "variable": "smoker", "by": "ill"},
            "choose a column of numbers",
        ),
        ({"question": "TTest"}, "choose Measurement first"),
        ({"question": "Nonsense"}, "nobody here knows the question"),
        ({"question": "CompletelyRandomForest", "depth": "70"}, "depth"),
    ],
)
def test_what_cannot_be_asked_is_refused_on_the_page(
    planned: Page, form: dict[str, str], said: str
) -> None:
    text = planned.post("questions", 422, **form)
    assert said.lower() in text.lower()
    assert len(planned.state.asked) == 1


def test_the_words_of_the_page_are_for_cures_that_there_are() -> None:
    assert set(WORDS) <= set(_errors.WORDS)


def test_the_plan_is_that_of_the_library(planned: Page) -> None:
    project = planned.desk.projects.get(planned.project)
    made = es.plan(planned.desk.questions(project), planned.desk.schema(project), 60)
    assert planned.state.plan["bytes_up"] == made.bytes_up
    text = planned.get("plan")
    assert f"{made.security} bits" in text
    assert "Who sees what" in text


def test_another_question_makes_another_plan(planned: Page) -> None:
    before = planned.state.plan["totals"]
    planned.post("questions", question="Histogram", variable="smoker")
    assert planned.state.plan is None
    planned.decide()
    planned.get("plan")
    assert planned.state.plan["totals"] > before


# -- the key
# ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "two", "said"),
    [(PASSPHRASE, "other", "differ"), ("short", "short", "at least 10"), ("", "", "at least 10")],
)
def test_passphrases_have_to_be_the_same_and_long(
    planned: Page, one: str, two: str, said: str
) -> None:
    assert said in planned.post("key", 422, passphrase=one, again=two)
    assert planned.state.key is None
    assert not (planned.folder / "secret.key").exists()


def test_the_key_is_locked_and_for_its_user_only(keyed: Page) -> None:
    file = keyed.folder / "secret.key"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(keyed.folder.stat().st_mode) == 0o700
    with pytest.raises(es.PassphraseError):
        es.Owner.load(file)
    assert es.Owner.load(file, PASSPHRASE).key_id == keyed.state.key.key_id


def test_nothing_secret_is_in_the_state(keyed: Page) -> None:
    for path in everything_below(keyed.folder):
        assert PASSPHRASE.encode() not in path.read_bytes(), path
    state = json.loads((keyed.folder / "project.json").read_text())
    assert set(state["key"]) == {"key_id", "fingerprint", "made", "copied", "of"}
    assert stat.S_IMODE((keyed.folder / "project.json").stat().st_mode) == 0o600
    assert PASSPHRASE not in repr(keyed.desk._unlocked)


def test_what_a_key_was_made_for_does_not_change(keyed: Page, rows: Path) -> None:
    for path, form in (
        ("data", {"path": str(rows)}),
        ("columns", {"use-4": "target"}),
        ("questions", {"question": "MultinomialNB"}),
        ("key", {"passphrase": PASSPHRASE, "again": PASSPHRASE}),
    ):
        assert "cannot change any more" in keyed.post(path, 422, **form)
    before = keyed.project
    answer = keyed.client.post(f"/p/{before}/copy")
    keyed.project = answer.url.path.split("/")[2]
    assert keyed.project != before
    assert keyed.state.key is None
    assert [one.name for one in keyed.state.asked] == ["Histogram"]
    keyed.post("questions", question="Histogram", variable="smoker")


def test_a_wrong_passphrase_loses_nothing(keyed: Page) -> None:
    keyed.post("key/lock")
    assert "unlock the key first" in keyed.post("encrypt", 422).lower()
    before = {path: path.read_bytes() for path in everything_below(keyed.folder)}
    assert "does not open this key file" in keyed.post(
        "key/unlock", 422, passphrase="wrong", step="encrypt"
    )
    assert {path: path.read_bytes() for path in everything_below(keyed.folder)} == before
    keyed.post("key/unlock", passphrase=PASSPHRASE, step="encrypt")
    assert keyed.desk.is_unlocked(keyed.desk.projects.get(keyed.project))


def test_a_key_that_nobody_uses_is_locked_again(keyed: Page) -> None:
    project = keyed.desk.projects.get(keyed.project)
    for minutes, unlocked in ((20, True), (25, True), (31, False)):
        keyed.desk._unlocked[project.id].used -= 60 * minutes  # as if they had passed
        assert keyed.desk.is_unlocked(project) == unlocked
    assert "unlock the key first" in keyed.post("encrypt", 422).lower()


def test_another_key_in_its_place_is_refused(keyed: Page) -> None:
    keyed.post("key/lock")
    project = keyed.desk.projects.get(keyed.project)
    project.key_file.unlink()
    es.Owner(plan(keyed.desk, project)).save(project.key_file, PASSPHRASE)
    assert "put the file of that key back" in keyed.post("key/unlock", 422, passphrase=PASSPHRASE)


# -- a key that is there already
# -------------------------------------------------------------------------------------------


def copied(page: Page) -> str:
    """A copy of the project, which has no key yet; the project that it was made from."""
    before = page.project
    page.project = page.client.post(f"/p/{before}/copy").url.path.split("/")[2]
    page.get("plan")
    return before


def test_a_project_uses_the_key_of_another(keyed: Page) -> None:
    before = copied(keyed)
    first = keyed.desk.projects.get(before)
    assert f"Readmissions: key {first.state.key.key_id[:8]}" in keyed.get("key")
    assert "does not open this key file" in keyed.post(
        "key/use", 422, project=before, passphrase="wrong"
    )
    assert "Type the passphrase" in keyed.post("key/use", 422, project=before, passphrase="")
    assert keyed.state.key is None
    assert not (keyed.folder / "secret.key").exists()
    assert "from Readmissions" in keyed.post("key/use", project=before, passphrase=PASSPHRASE)
    assert keyed.state.key.key_id == first.state.key.key_id
    assert stat.S_IMODE((keyed.folder / "secret.key").stat().st_mode) == 0o600
    assert PASSPHRASE.encode() not in (keyed.folder / "project.json").read_bytes()
    keyed.post("encrypt")
    waited(keyed, "encrypt")
    assert es.load(keyed.folder / "table.enc").key_id == first.state.key.key_id
    keyed.post("key/lock")
    keyed.post("key/unlock", passphrase=PASSPHRASE)
    assert "cannot change any more" in keyed.post(
        "key/use", 422, project=before, passphrase=PASSPHRASE
    )


def test_a_key_that_was_made_for_less_is_refused(keyed: Page) -> None:
    before = copied(keyed)
    keyed.post(
        "questions", question="CompletelyRandomForest", depth="3", n_trees="10",
        **{"outcome-column": "ill"},
    )  # fmt: skip
    keyed.decide()
    keyed.get("plan")
    plan = keyed.state.plan
    said = keyed.post("key/use", 422, project=before, passphrase=PASSPHRASE)
    assert "This key was made for something else" in said
    assert "ake a new one" in said
    assert keyed.state.key is None
    assert keyed.state.plan == plan
    assert not (keyed.folder / "secret.key").exists()


def test_a_key_file_is_used(planned: Page, tmp_path: Path) -> None:
    project = planned.desk.projects.get(planned.project)
    generous = es.plan(
        es.CompletelyRandomForest(n_trees=10, depth=3), planned.desk.schema(project), 60
    )
    owner, file = es.Owner(generous), tmp_path / "mine.key"
    owner.save(tmp_path / "open.key")
    assert "is not locked" in planned.post(
        "key/use", 422, path=str(tmp_path / "open.key"), passphrase=PASSPHRASE
    )
    assert "is no file" in planned.post(
        "key/use", 422, path=str(tmp_path / "none.key"), passphrase=PASSPHRASE
    )
    assert "is no file" in planned.post("key/use", 422, path=str(tmp_path), passphrase=PASSPHRASE)
    owner.save(file, PASSPHRASE)
    assert str(file) in planned.post("key/use", path=str(file), passphrase=PASSPHRASE)
    assert planned.state.key.key_id == owner.key_id
    again = es.plan(planned.desk.questions(project), planned.desk.schema(project), 60, keys=owner)
    assert planned.state.plan["bytes_up"] == again.bytes_up  # what it takes with these keys
    assert planned.state.plan["parameters"] == owner.parameters.to_dict()


def test_a_copy_of_the_key_is_locked_too(keyed: Page, tmp_path: Path) -> None:
    answer = keyed.client.get(f"/p/{keyed.project}/key/file")
    assert "attachment" in answer.headers["content-disposition"]
    (tmp_path / "copy.key").write_bytes(answer.content)
    (tmp_path / "copy.key").chmod(0o600)
    assert es.Owner.load(tmp_path / "copy.key", PASSPHRASE).key_id == keyed.state.key.key_id


# -- state
# ------------------------------------------------------------------------------------------------


def test_a_restart_finds_everything_again(keyed: Page, rows: Path) -> None:
    again = Page(keyed.desk.projects.home, rows.parent)
    again.project = keyed.project
    assert again.state == keyed.state
    assert "Encrypt</span>" in again.get("/")
    assert "Unlock the key" in again.get("encrypt")  # the passphrase was in memory alone


def test_a_state_that_is_damaged_is_said_to_be_and_left_alone(tmp_path: Path) -> None:
    made = Projects(tmp_path).new("x")
    (made.folder / "project.json").write_text('{"version": 99}')
    with pytest.raises(es.FileFormatError, check=error("malformed-project")):
        Projects(tmp_path).get(made.id)
    assert (made.folder / "project.json").read_text() == '{"version": 99}'
    page = Page(tmp_path, tmp_path)  # the page opens all the same, and says so
    assert "A project cannot be read." in page.get("/")


def test_an_error_in_the_middle_changes_no_state(tmp_path: Path) -> None:
    made = Projects(tmp_path).new("x")
    before = (made.folder / "project.json").read_bytes()

    def change() -> None:
        with made.changing() as state:
            state.title = "y"
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        change()
    assert made.state.title == "x"
    assert (made.folder / "project.json").read_bytes() == before


@pytest.mark.parametrize(
    "path", ["/p/nothing/data", "/p/..%2f..%2fetc/data", "/p/" + "a" * 300 + "/key", "/nothing"]
)
def test_what_is_not_there_is_not_found(page: Page, path: str) -> None:
    assert page.client.get(path).status_code == 404


def test_steps_wait_for_those_before_them(page: Page) -> None:
    for step in ("columns", "questions", "plan", "key", "encrypt", "send", "results"):
        assert page.client.get(f"/p/{page.project}/{step}").url.path.endswith("/data")


@pytest.mark.parametrize("step", ["data", "columns", "questions", "plan", "key", "encrypt"])
def test_every_step_says_what_leaves_this_machine(keyed: Page, step: str) -> None:
    text = keyed.get(step)
    assert "What leaves this machine" in text
    assert "Nothing, in this step." in text


def test_a_column_can_be_needed_as_a_number_and_in_bins(page: Page, rows: Path) -> None:
    page.choose(rows)
    page.post("questions", question="TTest", variable="age", by="smoker")
    page.post("questions", question="Histogram", variable="age")
    assert [one.needs["age"] for one in page.state.asked] == ["number", "bins"]
    page.decide(**{"cuts-1": "40, 60"})
    age = es.Schema.load(page.folder / "schema.json")["age"]
    assert (age.kind, age.edges) == ("number", (40.0, 60.0))
    assert len(page.desk.questions(page.desk.projects.get(page.project))) == 2
