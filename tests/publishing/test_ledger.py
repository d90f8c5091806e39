"""The ledger: it only grows, adds up, refuses what is beyond the budget, and survives kills and two
writers at once.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

import encryptedstats as es
from encryptedstats.errors import ExistsError
from encryptedstats.publishing import ledger as ledger_module
from encryptedstats.publishing.accounting import Spent
from encryptedstats.publishing.ledger import Budget
from encryptedstats.publishing.rules import Rules
from encryptedstats.publishing.units import ADD, RELATIONS, REPLACE, Unit
from error_codes import error

pytestmark = pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")
TENTH = Spent(0.005, 0.1)

SPEND = """
import sys, warnings
warnings.simplefilter("ignore")
import encryptedstats as es
from encryptedstats.publishing.accounting import Spent
owner = es.Owner.load(sys.argv[2])
ledger = es.Ledger(sys.argv[1], owner)
print("ready", flush=True)
shown = 0
try:
    while True:
        ledger.spend(owner, Spent(0.005, 0.1), {"question": "counts", "params": {}, "rows": 100, "blocks": [], "epsilon": 0.1})
        shown += 1
        print("shown", shown, flush=True)
except es.BudgetError:
    print("done", flush=True)
"""


@pytest.fixture
def ledger(owner: es.Owner, tmp_path: Path) -> es.Ledger:
    return es.Ledger.begin(tmp_path / "ledger", owner, epsilon=1.0, delta=1e-6, rules="pcornet")


@pytest.fixture(scope="module")
def key_file(owner: es.Owner, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "secret.key"
    owner.save(path)
    owner.key_file = None  # all tests begin ledgers of this key
    return path


def started(ledger: es.Ledger, key_file: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SPEND, ledger.url, str(key_file)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_releases_are_spent_from_the_budget_until_it_is_empty(
    ledger: es.Ledger, owner: es.Owner
) -> None:
    for number in range(10):
        assert ledger.epsilon_spent == pytest.approx(number / 10)
        ledger.spend(owner, TENTH, {"epsilon": 0.1})
    with pytest.raises(es.BudgetError, check=error("budget-exceeded", "1", "06", "1.1")):
        ledger.spend(owner, TENTH, {"epsilon": 0.1})
    assert len(ledger.entries()) == 11
    ledger.set_budget(owner, 2.0)
    ledger.spend(owner, TENTH, {"epsilon": 0.1})
    assert ledger.budget == Budget(2.0, 1e-6)
    assert ledger.rho_spent == pytest.approx(0.055)


def test_a_ledger_without_a_budget_only_counts(owner: es.Owner, tmp_path: Path) -> None:
    book = es.Ledger.begin(tmp_path / "free", owner)
    book.spend(owner, Spent(100.0), {"epsilon": 50})
    assert book.budget is None
    assert book.rules is None
    assert book.epsilon_spent > 100
    assert "no budget" in repr(book)


def test_it_remembers_its_rules_and_shows_its_entries(ledger: es.Ledger, owner: es.Owner) -> None:
    assert ledger.rules == Rules.find("pcornet")
    ledger.spend(owner, TENTH, {"question": "counts", "rows": 7, "epsilon": 0.1})
    frame = ledger.to_frame()
    assert frame["what"].tolist() == ["begin", "released"]
    assert frame["spent"].tolist() == [0.0, 0.1]


def test_it_is_begun_once_and_by_its_owner(
    ledger: es.Ledger, owner: es.Owner, stranger: es.Owner, tmp_path: Path
) -> None:
    with pytest.raises(es.EncryptedStatsError, check=error("ledger-exists")):
        es.Ledger.begin(ledger.url, owner)
    with pytest.raises(FileNotFoundError, check=error("begin-ledger")):
        es.Ledger(tmp_path / "nowhere", owner).entries()
    with pytest.raises(es.FileFormatError, check=error("replayed-entry")):
        es.Ledger(ledger.url, stranger).entries()
    with pytest.raises(es.KeyMismatchError, check=error("not-a-member")):
        ledger.check_member(stranger)


def test_members_of_a_study_share_it(owner: es.Owner, stranger: es.Owner, tmp_path: Path) -> None:
    keys = owner.public_keys(())
    book = es.Ledger.begin(
        tmp_path / "shared", owner, epsilon=1.0, members=[stranger.public_keys(())]
    )
    theirs = es.Ledger(book.url, keys)  # as somebody who has the public keys of who began it
    theirs.check_member(stranger)
    theirs.spend(stranger, TENTH, {"epsilon": 0.1})
    assert book.epsilon_spent == pytest.approx(0.1)
    assert len({entry.by for entry in book.entries()}) == 2


def test_who_is_no_member_cannot_write(ledger: es.Ledger, stranger: es.Owner) -> None:
    ledger._append(
        lambda before: {"what": "released", "time": "", "rho": 0.0, "pure_epsilon": None}, stranger
    )
    with pytest.raises(es.FileFormatError, check=error("forged-entry")):
        ledger.entries()


@pytest.mark.parametrize("cost", [Spent(-1.0), Spent(0.005, -0.1)])
def test_no_member_gives_budget_back(ledger: es.Ledger, owner: es.Owner, cost: Spent) -> None:
    ledger.spend(owner, TENTH, {"epsilon": 0.1})
    said = {"what": "released", "time": "", "rho": cost.rho, "pure_epsilon": cost.pure_epsilon}
    ledger._append(lambda before: said, owner)
    for asked in (
        lambda: ledger.epsilon_spent,
        lambda: ledger.rho_spent,
        lambda: ledger.spend(owner, TENTH, {}),
    ):
        with pytest.raises(es.FileFormatError):
            asked()


@pytest.mark.parametrize("change", ["rho", "time"])
def test_an_altered_entry_is_noticed(ledger: es.Ledger, owner: es.Owner, change: str) -> None:
    ledger.spend(owner, TENTH, {"epsilon": 0.1})
    path = Path(ledger.url) / "ledger" / "00000001.json"
    entry = json.loads(path.read_text())
    entry["content"][change] = 0.0001 if change == "rho" else "1999"
    path.write_text(json.dumps(entry, sort_keys=True, separators=(",", ":")) + "\n")
    with pytest.raises(es.FileFormatError, check=error("wrong-signature")):
        es.Ledger(ledger.url, owner).entries()


def test_rolling_it_back_is_noticed_by_who_remembers_its_head_and_by_nobody_else(
    ledger: es.Ledger, owner: es.Owner
) -> None:
    ledger.spend(owner, TENTH, {"epsilon": 0.1})
    head = ledger.head()
    (Path(ledger.url) / "ledger" / "00000001.json").unlink()
    again = es.Ledger(ledger.url, owner)
    assert again.epsilon_spent == 0  # as the documents say
    with pytest.raises(es.FileFormatError, check=error("other-chain")):
        again.check_contains(head)


def test_two_processes_never_spend_more_than_there_is(
    ledger: es.Ledger, owner: es.Owner, key_file: Path
) -> None:
    processes = [started(ledger, key_file) for _ in range(2)]
    outputs = [process.communicate(timeout=600)[0].splitlines() for process in processes]
    assert all(lines[-1] == "done" for lines in outputs)
    shown = sum(line.startswith("shown") for lines in outputs for line in lines)
    assert shown == 10
    assert len(es.Ledger(ledger.url, owner).entries()) == 11


@pytest.mark.parametrize("after", [0.0, 0.002, 0.01])
def test_what_a_killed_process_has_shown_was_spent(
    owner: es.Owner, key_file: Path, tmp_path: Path, after: float
) -> None:
    """Killed at once when something is shown, and a little later, in the middle of writing."""
    book = es.Ledger.begin(tmp_path / "killed", owner, epsilon=1000.0)
    process = started(book, key_file)
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(4)]
    time.sleep(after)
    os.kill(process.pid, signal.SIGKILL)
    lines += process.stdout.readlines()
    process.wait()
    shown = sum(line.startswith("shown") for line in lines)
    assert shown >= 3
    spent = len(book.entries()) - 1
    assert shown <= spent <= shown + 1  # all that was shown, and perhaps one that was not
    es.Ledger(book.url, owner).spend(owner, TENTH, {"epsilon": 0.1})  # and it goes on
    assert book.epsilon_spent == pytest.approx((spent + 1) / 10)


def test_a_killed_process_does_not_hold_up_another(
    ledger: es.Ledger, owner: es.Owner, key_file: Path
) -> None:
    killed, other = (started(ledger, key_file) for _ in range(2))
    assert killed.stdout is not None
    lines = [killed.stdout.readline() for _ in range(2)]
    os.kill(killed.pid, signal.SIGKILL)
    lines += killed.stdout.readlines()
    killed.wait()
    rest = other.communicate(timeout=600)[0].splitlines()
    assert rest[-1] == "done"
    shown = sum(line.startswith("shown") for line in [*lines, *rest])
    assert (
        shown <= len(es.Ledger(ledger.url, owner).entries()) - 1 == 10
    )  # all of the budget, and not more
    assert shown >= 9


RELEASE = """
import os, signal, sys, warnings
warnings.simplefilter("ignore")
import encryptedstats as es
from encryptedstats.publishing import opening
opened = opening.AnswerSource.open_with
def killed(self, owner):
    opened(self, owner)
    os.kill(os.getpid(), signal.SIGKILL)
opening.AnswerSource.open_with = killed
owner = es.Owner.load(sys.argv[2])
print(owner.release(sys.argv[3], epsilon=0.5, ledger=sys.argv[1]))
"""


def test_a_release_that_is_killed_when_it_has_opened_is_paid_for(
    ledger: es.Ledger, owner: es.Owner, key_file: Path, tmp_path: Path
) -> None:
    frame = pd.DataFrame({"x": list("ab") * 20, "sick": [0, 1, 1, 0] * 10})
    schema = es.Schema.infer(frame, target="sick")
    owner.encrypt(schema.table(frame)).counts("x").save(tmp_path / "x.enc")
    command = [sys.executable, "-c", RELEASE, ledger.url, str(key_file), str(tmp_path / "x.enc")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == -signal.SIGKILL
    assert not done.stdout
    assert ledger.epsilon_spent == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": 0}, "budget-out-of-range"),
        (
            {"epsilon": 1, "delta": 0},
            "budget-out-of-range",
        ),
    ],
)
def test_impossible_budgets_are_refused(
    owner: es.Owner, tmp_path: Path, options: dict[str, float], message: str
) -> None:
    with pytest.raises(es.ParameterError, check=error(message)):
        es.Ledger.begin(tmp_path / "ledger", owner, **options)


# -- one unit
# ----------------------------------------------------------------------------------------


def older(url: Path, owner: es.Owner, *spent: Unit) -> es.Ledger:
    """A ledger as version 0.2 wrote it: units are named by releases, in words, and by
    nothing else.
    """
    book = es.Ledger(url, owner)
    key = book.keys.signing_key.hex()
    begin = {"what": "begin", "time": "2026-01-01T00:00:00+00:00", "version": "0.2", "key_id": owner.key_id,
             "members": [key], "budget": {"epsilon": 3.0, "delta": 1e-6}, "rules": None}  # fmt: skip
    book._append(lambda before: begin, owner)
    for unit in spent:
        said = {"what": "released", "time": "2026-01-01T00:00:00+00:00", "version": "0.2", "rho": 0.005,
                "pure_epsilon": 0.1, "epsilon": 0.1, "question": "counts", "params": {},
                "rows": 9, "unit": unit.who, "relation": RELATIONS[unit.relation]}  # fmt: skip
        book._append(lambda before, said=said: said, owner)
    return es.Ledger(url, owner)


def test_unit_and_relation_are_fixed_when_a_ledger_begins(owner: es.Owner, tmp_path: Path) -> None:
    book = es.Ledger.begin(tmp_path / "people", owner, epsilon=1.0, max_rows=4, relation=ADD)
    assert es.Ledger(book.url, owner).unit == Unit(4, ADD)
    book.spend(owner, TENTH, {"epsilon": 0.1}, Unit(4, ADD))
    for other in (Unit(), Unit(4), Unit(3, ADD), Unit(1, ADD)):
        with pytest.raises(es.ParameterError) as refused:
            book.spend(owner, TENTH, {"epsilon": 0.1}, other)
        assert [cure.action for cure in refused.value.cures] == ["unit of the ledger"]
    assert len(book.entries()) == 2
    assert book.epsilon_spent == pytest.approx(0.1)


@pytest.mark.parametrize(
    "wrong", [{"max_rows": 0}, {"max_rows": True}, {"relation": "remove"}], ids=str
)
def test_an_impossible_unit_begins_no_ledger(
    owner: es.Owner, tmp_path: Path, wrong: dict[str, object]
) -> None:
    with pytest.raises(es.ParameterError):
        es.Ledger.begin(tmp_path / "ledger", owner, **wrong)
    assert not (tmp_path / "ledger").exists()


def test_an_older_ledger_has_the_unit_of_its_releases(owner: es.Owner, tmp_path: Path) -> None:
    book = older(tmp_path / "old", owner, Unit(3), Unit(3))
    assert book.unit == Unit(3, REPLACE)
    assert book.epsilon_spent == pytest.approx(0.2)
    with pytest.raises(es.ParameterError):
        book.spend(owner, TENTH, {"epsilon": 0.1})
    book.spend(owner, TENTH, {"epsilon": 0.1}, Unit(3))
    assert book.epsilon_spent == pytest.approx(0.3)


def test_the_first_release_fixes_the_unit_of_an_older_ledger(
    owner: es.Owner, tmp_path: Path
) -> None:
    book = older(tmp_path / "old", owner)
    assert book.unit is None
    book.spend(owner, TENTH, {"epsilon": 0.1}, Unit(2, ADD))
    assert book.unit == Unit(2, ADD)
    with pytest.raises(es.ParameterError):
        book.spend(owner, TENTH, {"epsilon": 0.1})


@pytest.mark.parametrize("other", [Unit(3), Unit(1, ADD)], ids=str)
def test_an_older_ledger_of_different_units_is_read_and_not_added_up(
    owner: es.Owner, tmp_path: Path, other: Unit
) -> None:
    """Version 0.2 said that an epsilon of a row and one of a person are "spent 2"."""
    book = older(tmp_path / "old", owner, Unit(), other)
    assert len(book.entries()) == 3
    assert book.to_frame()["spent"].isna().all()
    assert "different units" in repr(book)
    for asked in (
        lambda: book.epsilon_spent,
        lambda: book.rho_spent,
        lambda: book.spend(owner, TENTH, {}, other),
    ):
        with pytest.raises(es.FileFormatError) as refused:
            asked()
        assert [cure.action for cure in refused.value.cures] == ["ledger for each unit"]
    es.write_report(tmp_path / "report.html", keys=owner, ledger=book)
    assert "units mixed" in (tmp_path / "report.html").read_text()


def test_a_unit_that_is_not_known_is_refused(owner: es.Owner, tmp_path: Path) -> None:
    book = older(tmp_path / "old", owner)
    said = {
        "what": "released",
        "time": "",
        "rho": 0.1,
        "pure_epsilon": None,
        "unit": "a house",
        "relation": "odd",
    }
    book._append(lambda before: said, owner)
    with pytest.raises(es.FileFormatError):
        book.spend(owner, TENTH, {})


# -- one ledger
# --------------------------------------------------------------------------------------


@pytest.fixture
def fresh(owner: es.Owner, tmp_path: Path) -> es.Owner:
    """The same key, from a file of its own."""
    (tmp_path / "keys").mkdir()
    owner.save(tmp_path / "keys" / "secret.key")
    owner.key_file = None
    return es.Owner.load(tmp_path / "keys" / "secret.key")


def test_a_second_ledger_in_the_same_folder_is_noticed(
    ledger: es.Ledger, owner: es.Owner, tmp_path: Path
) -> None:
    """It would start at epsilon 0, as if nothing had been spent."""
    with pytest.raises(ExistsError) as refused:
        es.Ledger.begin(tmp_path / "again", owner, epsilon=1.0)
    assert [cure.action for cure in refused.value.cures] == ["another ledger"]
    assert not (tmp_path / "again" / "ledger").exists()


@pytest.mark.parametrize("where", ["file://{}/again", "{}/ledger/inside", "{}/ledger/deep/inside"])
def test_a_second_ledger_in_another_spelling_or_inside_the_first_is_noticed(
    ledger: es.Ledger, owner: es.Owner, tmp_path: Path, where: str
) -> None:
    with pytest.raises(ExistsError) as refused:
        es.Ledger.begin(where.format(tmp_path), owner, epsilon=1.0)
    assert [cure.action for cure in refused.value.cures] == ["another ledger"]


def test_a_second_ledger_elsewhere_is_noticed_beside_the_key(
    fresh: es.Owner, tmp_path: Path
) -> None:
    es.Ledger.begin(tmp_path / "here" / "ledger", fresh, epsilon=1.0)
    again = es.Owner.load(tmp_path / "keys" / "secret.key")
    with pytest.raises(ExistsError) as refused:
        es.Ledger.begin(tmp_path / "there" / "ledger", again, epsilon=1.0)
    assert [cure.action for cure in refused.value.cures] == ["another ledger"]


def test_a_ledger_that_was_thrown_away_is_still_noticed(fresh: es.Owner, tmp_path: Path) -> None:
    es.Ledger.begin(tmp_path / "here" / "ledger", fresh, epsilon=1.0)
    shutil.rmtree(tmp_path / "here")
    for place in ("there", "here"):
        with pytest.raises(ExistsError):
            es.Ledger.begin(tmp_path / place / "ledger", fresh, epsilon=1.0)
    assert (
        es.Ledger.begin(tmp_path / "here" / "ledger", fresh, epsilon=1.0, another=True).n_others
        == 1
    )


def test_the_list_beside_a_key_file_keeps_the_ledgers_of_a_key_that_lay_there(
    fresh: es.Owner, stranger: es.Owner, tmp_path: Path
) -> None:
    file = tmp_path / "keys" / "secret.key"
    es.Ledger.begin(tmp_path / "here" / "ledger", fresh, epsilon=1.0)
    kept = file.rename(tmp_path / "kept.key")
    stranger.save(file)
    stranger.key_file = None
    es.Ledger.begin(tmp_path / "theirs" / "ledger", es.Owner.load(file))
    file.unlink()
    kept.rename(file)
    with pytest.raises(ExistsError):
        es.Ledger.begin(tmp_path / "there" / "ledger", es.Owner.load(file), epsilon=1.0)


def test_another_ledger_can_be_begun_on_purpose_and_says_so(
    fresh: es.Owner, tmp_path: Path
) -> None:
    first = es.Ledger.begin(tmp_path / "here" / "ledger", fresh, epsilon=1.0)
    second = es.Ledger.begin(tmp_path / "there" / "ledger", fresh, epsilon=1.0, another=True)
    assert (first.n_others, second.n_others) == (0, 1)
    frame = pd.DataFrame({"x": list("ab") * 20, "sick": [0, 1, 1, 0] * 10})
    schema = es.Schema.infer(frame, target="sick")
    found = fresh.release(
        fresh.encrypt(schema.table(frame)).counts("x"), schema, epsilon=0.5, ledger=second
    )
    assert "costs in other ledgers of this key" in found.privacy.not_covered[0]
    es.write_report(tmp_path / "report.html", keys=fresh, ledger=second)
    assert "costs in other ledgers of this key" in (tmp_path / "report.html").read_text()
    again = fresh.release(
        fresh.encrypt(schema.table(frame)).counts("x"), schema, epsilon=0.5, ledger=first
    )
    assert (
        "costs in other ledgers of this key" in again.privacy.not_covered[0]
    )  # begun after this one
    assert first.n_others == 1


def test_a_ledger_of_another_key_is_no_second_one(
    ledger: es.Ledger, stranger: es.Owner, tmp_path: Path
) -> None:
    assert es.Ledger.begin(tmp_path / "theirs", stranger).n_others == 0


def test_a_damaged_list_of_ledgers_is_not_taken_for_an_empty_one(
    fresh: es.Owner, tmp_path: Path
) -> None:
    (tmp_path / "keys" / "secret.key.ledgers").write_text("{")
    with pytest.raises(es.FileFormatError):
        es.Ledger.begin(tmp_path / "ledger", fresh)


def test_a_key_that_nothing_can_be_written_beside_begins_a_ledger(
    fresh: es.Owner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*args: object, **options: object) -> None:
        raise PermissionError

    monkeypatch.setattr(ledger_module, "write_atomic", refused)
    assert es.Ledger.begin(tmp_path / "ledger", fresh).n_others == 0
