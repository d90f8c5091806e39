"""The ledger: it only grows, adds up, refuses what is beyond the budget, and survives kills and two writers at once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

import encryptedstats as es
from encryptedstats.publishing.accounting import Spent
from encryptedstats.publishing.ledger import Budget
from encryptedstats.publishing.rules import Rules

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
    return path


def started(ledger: es.Ledger, key_file: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SPEND, ledger.url, str(key_file)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_releases_are_spent_from_the_budget_until_it_is_empty(ledger: es.Ledger, owner: es.Owner) -> None:
    for number in range(10):
        assert ledger.epsilon_spent == pytest.approx(number / 10)
        ledger.spend(owner, TENTH, {"epsilon": 0.1})
    with pytest.raises(
        es.BudgetError, match=r"budget .* is epsilon 1 at delta 1e-06; 1 is spent, and with this .* 1.1"
    ):
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
    assert ledger.rules == Rules.named("pcornet")
    ledger.spend(owner, TENTH, {"question": "counts", "rows": 7, "epsilon": 0.1})
    frame = ledger.to_frame()
    assert frame["what"].tolist() == ["begin", "released"]
    assert frame["spent"].tolist() == [0.0, 0.1]


def test_it_is_begun_once_and_by_its_owner(
    ledger: es.Ledger, owner: es.Owner, stranger: es.Owner, tmp_path: Path
) -> None:
    with pytest.raises(es.EncryptedStatsError, match="has a ledger already, and was not touched"):
        es.Ledger.begin(ledger.url, owner)
    with pytest.raises(FileNotFoundError, match=r"has no ledger of key .*: begin one"):
        es.Ledger(tmp_path / "nowhere", owner).entries()
    with pytest.raises(es.FileFormatError, match="an entry of another chain"):
        es.Ledger(ledger.url, stranger).entries()
    with pytest.raises(es.KeyMismatchError, match="is no member of the ledger"):
        ledger.check_member(stranger)


def test_members_of_a_study_share_it(owner: es.Owner, stranger: es.Owner, tmp_path: Path) -> None:
    keys = owner.public_keys(())
    book = es.Ledger.begin(tmp_path / "shared", owner, epsilon=1.0, members=[stranger.public_keys(())])
    theirs = es.Ledger(book.url, keys)  # as somebody who has the public keys of who began it
    theirs.check_member(stranger)
    theirs.spend(stranger, TENTH, {"epsilon": 0.1})
    assert book.epsilon_spent == pytest.approx(0.1)
    assert len({entry.by for entry in book.entries()}) == 2


def test_who_is_no_member_cannot_write(ledger: es.Ledger, stranger: es.Owner) -> None:
    ledger._append(lambda before: {"what": "released", "time": "", "rho": 0.0, "pure_epsilon": None}, stranger)
    with pytest.raises(es.FileFormatError, match="signed by nobody of this ledger's members: it was forged"):
        ledger.entries()


@pytest.mark.parametrize("change", ["rho", "time"])
def test_an_altered_entry_is_noticed(ledger: es.Ledger, owner: es.Owner, change: str) -> None:
    ledger.spend(owner, TENTH, {"epsilon": 0.1})
    path = Path(ledger.url) / "ledger" / "00000001.json"
    entry = json.loads(path.read_text())
    entry["content"][change] = 0.0001 if change == "rho" else "1999"
    path.write_text(json.dumps(entry, sort_keys=True, separators=(",", ":")) + "\n")
    with pytest.raises(es.FileFormatError, match="it was altered"):
        es.Ledger(ledger.url, owner).entries()


def test_rolling_it_back_is_noticed_by_who_remembers_its_head_and_by_nobody_else(
    ledger: es.Ledger, owner: es.Owner
) -> None:
    ledger.spend(owner, TENTH, {"epsilon": 0.1})
    head = ledger.head()
    (Path(ledger.url) / "ledger" / "00000001.json").unlink()
    again = es.Ledger(ledger.url, owner)
    assert again.epsilon_spent == 0  # as the documents say
    with pytest.raises(es.FileFormatError, match=r"was in the chain at .* once and is no more"):
        again.check_contains(head)


def test_two_processes_never_spend_more_than_there_is(ledger: es.Ledger, owner: es.Owner, key_file: Path) -> None:
    processes = [started(ledger, key_file) for _ in range(2)]
    outputs = [process.communicate(timeout=120)[0].splitlines() for process in processes]
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


def test_a_killed_process_does_not_hold_up_another(ledger: es.Ledger, owner: es.Owner, key_file: Path) -> None:
    killed, other = (started(ledger, key_file) for _ in range(2))
    assert killed.stdout is not None
    lines = [killed.stdout.readline() for _ in range(2)]
    os.kill(killed.pid, signal.SIGKILL)
    lines += killed.stdout.readlines()
    killed.wait()
    rest = other.communicate(timeout=120)[0].splitlines()
    assert rest[-1] == "done"
    shown = sum(line.startswith("shown") for line in [*lines, *rest])
    assert shown <= len(es.Ledger(ledger.url, owner).entries()) - 1 == 10  # all of the budget, and not more
    assert shown >= 9


RELEASE = """
import os, signal, sys, warnings
warnings.simplefilter("ignore")
import encryptedstats as es
from encryptedstats.publishing import opening
opened = opening.Source.opened
def killed(self, owner):
    opened(self, owner)
    os.kill(os.getpid(), signal.SIGKILL)
opening.Source.opened = killed
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
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == -signal.SIGKILL
    assert not done.stdout
    assert ledger.epsilon_spent == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": 0}, "epsilon=0: a budget has an epsilon above 0"),
        ({"epsilon": 1, "delta": 0}, "delta=0: a budget has an epsilon above 0 and a delta between 0 and 1"),
    ],
)
def test_impossible_budgets_are_refused(
    owner: es.Owner, tmp_path: Path, options: dict[str, float], message: str
) -> None:
    with pytest.raises(es.ParameterError, match=message):
        es.Ledger.begin(tmp_path / "ledger", owner, **options)
