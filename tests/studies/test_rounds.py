"""Procedures in rounds across sites: every round opens a sum, and the result is that of
all rows.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from round_samples import (
    FRAMES,
    SCHEMA,
    SITES,
    TOGETHER,
    Groups,
    Powers,
    Rounds,
    Spread,
    in_rounds,
)
from study_samples import parameters, world

import encryptedstats as es
from encryptedstats.procedures.site_procedure import RowLimits, SiteCourse
from encryptedstats.studies import rounds
from encryptedstats.studies.documents import StudyDocument
from encryptedstats.tables.questions.summaries import Counts
from error_codes import error

ROWS = 3 * 60


def tables() -> list[Any]:
    return [SCHEMA.table(FRAMES[site]) for site in SITES]


# -- in the clear ---------------------------------------------------------------------------------


def test_sites_of_a_simulation_give_what_one_table_gives() -> None:
    one, three = Groups().run(SCHEMA.table(TOGETHER)), Groups().run(tables())
    assert one == three
    assert sum(one["counts"]) == ROWS
    assert sum(one["sums"]) == TOGETHER["age"].sum()
    seen: list[int] = []
    Groups().run(tables(), progress=lambda course: seen.append(course.number))
    assert seen == [1, 2, 3]


def test_limits_hold_in_a_simulation() -> None:
    Spread().run(tables(), limits=RowLimits())
    with pytest.raises(es.DisclosureError, check=error("too-few-rows-for-rounds", "180")):
        Spread().run(tables(), limits=RowLimits(per_number=31))
    with pytest.raises(es.DisclosureError, check=error("too-many-parameters")):
        Spread().run(tables(), limits=RowLimits(per_parameter=181))
    with pytest.raises(es.DisclosureError, check=error("small-count", "level 2")):
        Groups().run(tables(), limits=RowLimits(minimum=61))


def test_what_is_no_clear_table_is_refused() -> None:
    for wrong in ("rows.csv", [], [SCHEMA]):
        with pytest.raises(es.ArgumentTypeError, check=error("not-clear-tables")):
            Spread().run(wrong)
    with pytest.raises(es.ArgumentError, check=error("unknown-option", "verify")):
        Spread().run(tables(), verify="spot")


def test_a_course_refuses_what_does_not_fit() -> None:
    def course() -> SiteCourse:
        begun = SiteCourse(Spread().in_ids(SCHEMA), SCHEMA.public(), RowLimits())
        begun.take([ROWS, 0])
        return begun

    assert course().digest == course().digest
    with pytest.raises(es.FileFormatError, check=error("wrong-number-of-totals")):
        course().take([1, 2])
    with pytest.raises(es.StudyError, check=error("impossible-row-count")):
        course().take([ROWS, 5, ROWS - 1])
    with pytest.raises(es.StudyError, check=error("impossible-row-count")):
        SiteCourse(Spread().in_ids(SCHEMA), SCHEMA.public()).take([-3, 0])

    class Large(Spread):
        def measure(self, state: Any, table: Any) -> list[int]:
            return [1, 1 << 230]

    large = SiteCourse(Large().in_ids(SCHEMA), SCHEMA.public())
    large.take([ROWS, 0])
    with pytest.raises(es.ArgumentError, check=error("totals-too-large")):
        large.measure(tables()[0])

    class Arrays(Spread):
        def start(self, schema: Any) -> Any:
            return {"mean": np.array([1.0])}

    with pytest.raises(es.ArgumentTypeError, check=error("state-not-json")):
        SiteCourse(Arrays(), SCHEMA.public())


def test_the_hash_of_a_state_is_of_all_sums_before() -> None:
    """Two sums may lead to one state, and members who saw different ones are told."""

    class Forgetful(Spread):
        def step(self, state: Any, opened: Any, schema: Any) -> Any:
            return {"round": state["round"] + 1, "mean": 0.0, "variance": 0.0}

    seen = set()
    for total in (5, 6):
        course = SiteCourse(Forgetful().in_ids(SCHEMA), SCHEMA.public())
        course.take([ROWS, 0])
        course.take([ROWS, total, ROWS])
        seen.add(course.digest)
    assert len(seen) == 2


# -- in a study -----------------------------------------------------------------------------------


def test_rounds_give_what_all_rows_give(tmp_path: Path) -> None:
    made = in_rounds(tmp_path / "w")
    found = made.run()["spread"]
    assert found["mean"] == pytest.approx(TOGETHER["age"].mean(), rel=1e-10)
    assert found["deviation"] == pytest.approx(np.std(TOGETHER["age"]), rel=1e-10)
    assert found == Spread().run(tables())
    assert made.steps() == []
    for who in (*SITES, "registry"):
        assert made.as_(who).open() == {"spread": found}
    with pytest.raises(es.StudyError, check=error("wrong-role")):
        made.as_("centre").open()


def test_the_transcript_has_every_opening(tmp_path: Path) -> None:
    made = in_rounds(tmp_path / "w")
    made.run()
    said = [one for one in es.Study(made.url).messages() if one.kind != "join"]
    steps = [(one.content["step"], one.by) for one in said if one.kind == rounds.STEP]
    assert sorted(steps) == [(number, site) for number in range(4) for site in SITES]
    ends = [one.by for one in said if one.content.get("object") == ""]
    assert sorted(ends) == sorted(SITES)
    assert said[-1].kind == "opened"
    assert said[-1].by == "registry"


def test_nothing_is_stored_before_all_have_announced(tmp_path: Path) -> None:
    made = in_rounds(tmp_path / "w")
    for site in SITES[:2]:
        made.as_(site).add(FRAMES[site])
    assert not Path(made.url, "objects").exists()
    made.as_("west").add(FRAMES["west"])
    assert made.steps() == [("north", "share"), ("south", "share")]
    made.as_("south").share()
    made.as_("north").share()  # needs no rows
    assert made.steps() == [(site, "add") for site in SITES]


def test_two_procedures_and_masked_totals_at_once(tmp_path: Path) -> None:
    asked = {
        "spread": Spread(rounds=4),
        "groups": (Groups(), "rounds"),
        "bayes": (Counts((1,)), "masked"),
    }
    made = in_rounds(tmp_path / "w", asked)
    found = made.run()
    assert set(found) == set(asked)
    assert found["groups"] == Groups().run(tables())
    assert found["spread"] == Spread(rounds=4).run(tables())
    assert es.Study(made.url).status().ended == "all is opened"


def test_a_procedure_that_stops_does_not_stop_another(tmp_path: Path) -> None:
    made = in_rounds(tmp_path / "w", {"groups": Groups(), "spread": Spread()}, minimum=61)
    found = made.run()
    assert set(found) == {"spread"}
    status = es.Study(made.url).status()
    assert status.to_dict()["rounds"]["groups"]["stopped"]
    assert set(status.state.runs["groups"].stopped.values()) == {"small-count"}
    assert "groups cannot go on" in status.ended
    with pytest.raises(es.StudyError, check=error("refused-message")):
        made.as_("registry").post("opened", {"question": "groups", "object": "0" * 64})


@pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")
def test_rounds_beside_encrypted_rows(tmp_path: Path) -> None:
    """Members are fixed by the validity of rows; then the rounds begin."""
    asked = {"bayes": Counts((1,)), "spread": Spread()}
    options = {"schema": SCHEMA, "parameters": parameters(), "questions": asked}
    made = Rounds.of(world(tmp_path / "w", **options).join_all())
    made.as_("registry").keygen(made.key)
    made.all_add()
    assert es.Study(made.url).state().runs["spread"].current.objects == {}
    found = made.run()
    assert set(found) == set(asked)
    assert es.Study(made.url).state().runs["spread"].attempt == 1


def test_documents_keep_procedures_and_refuse_altered_ones(tmp_path: Path) -> None:
    made = in_rounds(tmp_path / "w", {"spread": Spread(rounds=3)}, minimum=7)
    document = es.Study(made.url).document
    assert document.procedures["spread"].procedure == Spread(variable="v0", rounds=3)
    assert document.limits == RowLimits(minimum=7, most_rows=document.n_rows)
    assert document.asked == ("spread",)
    assert document.n_opened == 8
    data = json.loads(document.to_bytes())
    assert "age" not in json.dumps(data)

    def altered(**changes: Any) -> bytes:
        one = {**data["procedures"]["spread"], **changes}
        found = {**data, "procedures": {"spread": one}}
        return json.dumps(found, sort_keys=True, indent=1).encode() + b"\n"

    for changes in (
        {"start": "0" * 64},
        {"procedure": "DecisionTree"},
        {"procedure": "Nothing"},
        {"params": {"variable": "v0"}},
        {"params": {"variable": "v9", "rounds": 3, "begin_at": 0.5}},
    ):
        with pytest.raises(es.FileFormatError, check=error("malformed-study")):
            StudyDocument.from_bytes(altered(**changes), "here")
    assert StudyDocument.from_bytes(altered(), "here").id == document.id


def test_modes_and_procedures_that_do_not_fit(tmp_path: Path) -> None:
    for asked in ((es.MultinomialNB(), "rounds"), (Spread(), "masked")):
        with pytest.raises(es.ArgumentTypeError, check=error("not-a-site-procedure")):
            in_rounds(tmp_path / "w", {"one": asked})
    linkage = es.Linkage({"north": ["age"], "south": ["ward"], "west": ["ill"]}, ["text"])
    with pytest.raises((es.ParameterError, es.ArgumentError)):
        in_rounds(tmp_path / "w", linkage=linkage)


def test_rows_that_are_encrypted_already_have_no_rounds(tmp_path: Path) -> None:
    made = in_rounds(tmp_path / "w")
    owner = es.Owner(es.Parameters.choose(max_value=1000, depth=0))
    with pytest.raises(es.StudyError, check=error("already-encrypted")):
        made.as_("north").add(owner.encrypt(SCHEMA.table(FRAMES["north"])))


def test_a_file_of_rows_in_every_round(tmp_path: Path) -> None:
    made = in_rounds(tmp_path / "w", {"powers": Powers(rounds=2)})
    made.frames = {site: tmp_path / f"{site}.csv" for site in SITES}
    for site in SITES:
        FRAMES[site].to_csv(tmp_path / f"{site}.csv", index=False)
    assert made.run()["powers"]["sums"] == [
        int((TOGETHER["age"].astype(int) ** k).sum()) for k in (1, 2)
    ]
