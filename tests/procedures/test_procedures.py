"""Procedures: every round is bounded, stored, written down and repeated alike, and a run that is
killed anywhere goes on to the same result.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cluster_samples import SCHEMA, Hospital, small_owner
from fault_samples import ended, fork
from procedure_samples import Strongest

import encryptedstats as es
from encryptedstats.procedures import Course, OpenedRound, read_run, running
from encryptedstats.procedures.folder import RunFolder
from encryptedstats.procedures.running import Asking
from encryptedstats.storage.objects import LEASE
from error_codes import error

PAGE = Path(__file__).parents[2] / "docs/guides/procedures.md"


def test_encrypted_equals_clear(hospital: Hospital) -> None:
    rounds: list[OpenedRound] = []
    clear = Strongest().run(hospital.plain())
    found = Strongest().run(hospital.table, hospital.owner, schema=SCHEMA, progress=rounds.append)
    assert found == clear
    assert [one.question.name for one in rounds] == ["MultinomialNB", "ChiSquare"]
    assert [one.number for one in rounds] == [1, 2]
    assert "round 2 of at most 3" in str(rounds[1])
    assert list(rounds[0].totals) == list(es.MultinomialNB().fit(hospital.plain()).totals_)


def test_rounds_are_bounded(hospital: Hospital) -> None:
    assert Strongest(again=1).run(hospital.plain()) == Strongest().run(hospital.plain())
    with pytest.raises(ValueError, check=error("too-many-rounds")):
        Strongest(again=2).run(hospital.plain())
    with pytest.raises(ValueError, check=error("wrong-number-of-rounds")):
        Course(type("Endless", (Strongest,), {"at_most": 10**6})(), SCHEMA)
    with pytest.raises(TypeError, check=error("not-a-procedure")):
        Course(es.MultinomialNB(), SCHEMA)  # type: ignore[arg-type]  # on purpose
    with pytest.raises(ValueError, check=error("no-owner")):
        Strongest().run(hospital.table)


def test_a_plan_carries_the_rounds_and_says_what_they_tell() -> None:
    plan = es.plan(Strongest(), SCHEMA, n_rows=100)
    assert plan.n_totals == es.plan(es.MultinomialNB(), SCHEMA, n_rows=100).n_totals
    notes = dict(plan.notes)
    assert notes["worker learns"] == "the strongest variable"
    assert "up to 3" in notes["rounds"]
    assert "oracle" in notes["worker lies"]
    assert plan.to_dict()["notes"] == notes
    assert "the strongest variable" in str(plan)


def test_rounds_are_stored_for_their_user_only(hospital: Hospital, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    found = Strongest().run(hospital.table, hospital.owner, schema=SCHEMA, folder=folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in folder.iterdir())
    assert {file.name for file in folder.iterdir()} == {
        "procedure.json", "round-0001.enc", "round-0001.json", "round-0002.enc", "round-0002.json",
    }  # fmt: skip
    assert read_run(folder, SCHEMA).read() == found


def test_a_folder_of_something_else_is_refused(hospital: Hospital, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run = partial(Strongest().run, schema=SCHEMA, folder=folder)
    run(hospital.table, hospital.owner)
    for other in (
        partial(Strongest(1).run, hospital.plain()[:50]),
        partial(Strongest(1).run, hospital.plain()),
    ):
        with pytest.raises(ValueError, check=error("other-run")):
            other(folder=folder)
    stored = json.loads((folder / "round-0002.json").read_text())
    (folder / "round-0002.json").write_text(json.dumps({**stored, "params": {}}))
    with pytest.raises(es.FileFormatError, check=error("other-round")):
        run(hospital.table, hospital.owner)
    (folder / "procedure.json").write_text("{")
    with pytest.raises(es.FileFormatError, check=error("unreadable-file")):
        run(hospital.table, hospital.owner)


def _kill_at(point: str, number: int) -> None:
    """Kill this process around one step of one round, when it comes there."""
    places = {
        "asked": (RunFolder, "write_answer", True),
        "answered": (RunFolder, "write_answer", False),
        "recorded": (running, "_record", False),
        "opened": (RunFolder, "write_round", True),
        "stored": (RunFolder, "write_round", False),
    }
    owner, name, before = places[point]
    own, calls = getattr(owner, name), [0]

    def patched(*arguments: Any, **options: Any) -> Any:
        calls[0] += 1
        if before and calls[0] == number:
            os.kill(os.getpid(), signal.SIGKILL)
        found = own(*arguments, **options)
        if calls[0] == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    setattr(owner, name, patched)


def test_a_run_that_is_killed_anywhere_goes_on(hospital: Hospital, tmp_path: Path) -> None:
    wanted = Strongest().run(hospital.plain())
    for point in ("asked", "answered", "recorded", "opened", "stored"):
        for number in (1, 2):
            place = tmp_path / f"{point}{number}"
            ledger = es.Ledger.begin(place / "ledger", hospital.owner, another=True)
            run = partial(
                Strongest().run, hospital.table, hospital.owner,
                schema=SCHEMA, folder=place / "run", ledger=ledger,
            )  # fmt: skip

            killed = fork(lambda at=(point, number), run=run: (_kill_at(*at), run()))  # type: ignore[misc]
            assert ended(killed) == -signal.SIGKILL, (point, number)
            rounds: list[OpenedRound] = []
            assert run(progress=rounds.append) == wanted
            assert len(rounds) == (2 if number == 1 else 1) - (point == "stored")
            opened = [one.content for one in ledger.entries() if one.content["what"] == "opened"]
            assert [(one["question"], one["round"]) for one in opened] == [
                ("MultinomialNB", 1),
                ("ChiSquare", 2),
            ]
            assert {one["procedure"] for one in opened} == {"Strongest"}


def test_two_processes_never_run_in_one_folder(hospital: Hospital, tmp_path: Path) -> None:
    """The second is refused, asks and opens nothing, and goes on after the first was killed."""
    folder, mark = tmp_path / "run", tmp_path / "asked"
    run = partial(
        Strongest().run, hospital.table, hospital.owner, schema=SCHEMA, folder=folder
    )  # fmt: skip

    def ask_for_ever() -> None:
        def wait(*_: Any) -> Any:
            mark.touch()
            signal.pause()

        Asking.ask = wait  # type: ignore[method-assign]  # in a process of its own
        run()

    first = fork(ask_for_ever)
    rounds: list[OpenedRound] = []
    try:
        while not mark.exists():
            time.sleep(0.01)
        with pytest.raises(es.BusyError, check=error("already-being-written")):
            run(progress=rounds.append)
        assert not rounds
        assert not list(folder.glob("round-*"))
    finally:
        os.kill(first, signal.SIGKILL)
        assert ended(first) == -signal.SIGKILL
    assert run(progress=rounds.append) == Strongest().run(hospital.plain())
    assert [one.number for one in rounds] == [1, 2]
    assert not (folder / LEASE).exists()


def test_an_opening_is_written_down_before_it_is_made(
    hospital: Hospital, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = es.Ledger.begin(tmp_path / "ledger", hospital.owner, another=True)

    def fail(*_: object) -> None:
        raise RuntimeError("opened")

    monkeypatch.setattr(running, "decrypt_answer", fail)
    with pytest.raises(RuntimeError, match="opened"):
        Strongest().run(hospital.table, hospital.owner, schema=SCHEMA, ledger=ledger)
    assert ledger.entries()[-1].content["what"] == "opened"
    stranger = small_owner()
    with pytest.raises(es.KeyMismatchError, check=error("not-a-member")):
        Strongest().run(hospital.table, stranger, schema=SCHEMA, ledger=ledger)


def test_documented_examples_are_short() -> None:
    sources = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    sources.append((PAGE.parents[2] / "examples" / "frequent_sets.py").read_text())
    classes = [one for source in sources for one in re.findall(
        r"^@dataclass.*?(?=^\S(?!lass)|\Z)", source + "\n", re.M | re.S) if "es.Procedure" in one]  # fmt: skip
    assert len(classes) == 2
    assert all(len(one.strip().splitlines()) <= 40 for one in classes)
