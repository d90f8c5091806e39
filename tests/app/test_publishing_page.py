"""What may be published, on the owner's page: by rules, with noise, from a ledger beside the key,
and the report for a board.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pandas as pd
import pytest
from desk_helpers import PASSPHRASE, Page, patients

import encryptedstats as es
from encryptedstats.app.showing import show_published, show_released
from encryptedstats.publishing.rules import PROFILES
from insecure import insecure_parameters

HIDDEN = '<td class="number">hidden</td>'


def ledger_of(page: Page) -> es.Ledger:
    return es.Ledger(
        page.folder / "project.ledger", es.PublicKeys.load(page.folder / "public.keys")
    )


def written(page: Page) -> list[str]:
    return [str(entry.content["what"]) for entry in ledger_of(page).entries()]


def at(page: Page, action: str) -> str:
    return f"results/{page.state.asked[0].id}/{action}"


def exported(page: Page, action: str) -> str:
    answer = page.client.get(f"/p/{page.project}/{at(page, action)}")
    assert answer.status_code == 200, answer.text
    assert "attachment" in answer.headers["content-disposition"]
    return str(answer.text)


def test_others_see_what_the_rules_leave_and_why_not_more(here: Page) -> None:
    before = here.get("results")
    assert "What may be published" in before
    assert HIDDEN not in before
    text = here.post(at(here, "publish"), rules="pcornet")
    assert "What others may see." in text
    assert "counts of 1 to 10 rows" in text
    assert HIDDEN in text
    csv = exported(here, "published.csv")
    assert "hidden" in csv
    assert csv.splitlines()[0] == "age,no,yes,all"
    assert csv.splitlines()[-1] == "all,30,30,60"
    text = exported(here, "published.txt")
    assert text.startswith("Histogram: measurement: age; groups: ill")
    assert "published by the rules pcornet" in text
    assert written(here) == ["begin", "opened", "published"]
    assert re.search(
        r">time \(UTC\)<.*>20\d\d-\d\d-\d\d \d\d:\d\d<.*>published<", here.get("results"), re.DOTALL
    )
    assert "As text" in before
    assert "><summary>As text" in here.get("report")  # on paper it would be the table again


def test_what_gives_rows_away_with_what_was_published_is_refused(
    here: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PROFILES, "datashield", es.Rules(0, name="datashield"))  # shows every count
    here.post(at(here, "publish"), rules="datashield")
    text = here.post(at(here, "publish"), 422, rules="five")  # which would hide what has been shown
    assert "That did not work." in text
    assert "is not published" in text
    assert written(here) == ["begin", "published", "opened"]
    assert "published by the rules datashield" in exported(
        here, "published.txt"
    )  # what was seen before is still there


def test_a_release_is_spent_from_the_budget_before_it_is_shown_and_kept(here: Page) -> None:
    pytest.importorskip("opendp")
    assert "set a budget" in here.post(at(here, "release"), 422, epsilon="1", delta="0")
    assert "epsilon 3 of 3, at delta 1e-06" in here.post(
        "results/budget", epsilon="3", delta="1e-6"
    )
    text = here.post(at(here, "release"), epsilon="2", delta="0")
    assert "1 of 3" in text
    assert "<dt>rho</dt><dd>2</dd>" in text
    assert "<dt>unit</dt><dd>a row</dd>" in text
    assert "cut points of your own, in the step Columns" in text
    (kept,) = (here.folder / "released").iterdir()
    assert str(kept) in text
    assert isinstance(es.load(kept), es.Result)
    assert here.get("results").count("Released.") == 1  # to look again costs nothing
    assert ledger_of(here).epsilon_spent == pytest.approx(2)
    assert "epsilon 2" in exported(here, "released.txt")
    assert exported(here, "released.csv")
    refused = here.post(at(here, "release"), 422, epsilon="1.5", delta="0")
    assert "with this release it would be 3.5" in refused
    assert len(list((here.folder / "released").iterdir())) == 1


def test_without_the_extra_nothing_is_spent(here: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    here.post("results/budget", epsilon="3", delta="1e-6")
    monkeypatch.setitem(sys.modules, "opendp", None)
    text = here.get("results")
    assert "not installed" in text
    assert "Spend it" not in text
    assert "not installed" in here.post(at(here, "release"), 422, epsilon="1", delta="0")
    assert "released" not in written(here)


@pytest.mark.parametrize(
    ("action", "form", "said"),
    [
        ("publish", {"rules": "mine"}, "pcornet"),
        ("release", {"epsilon": "much", "delta": "0"}, "is no number"),
        ("release", {"epsilon": "nan", "delta": "0"}, "a number above 0"),
        ("release", {"epsilon": "1", "delta": "0.5"}, "could give away a row"),
    ],
)
def test_what_cannot_be_is_said_and_costs_nothing(
    here: Page, action: str, form: dict[str, str], said: str
) -> None:
    here.post("results/budget", epsilon="3", delta="1e-6")
    assert said in here.post(at(here, action), 422, **form)
    assert set(written(here)) == {"begin", "budget", "opened"}


def test_nothing_is_published_while_the_key_is_locked(here: Page) -> None:
    here.post(at(here, "publish"), rules="five")
    here.post("key/lock")
    for action, form in (
        ("publish", {"rules": "five"}),
        ("release", {"epsilon": "1", "delta": "0"}),
    ):
        assert "unlock the key first" in here.post(at(here, action), 422, **form).lower()
    for path in (at(here, "published.csv"), "board"):
        assert here.client.get(f"/p/{here.project}/{path}").status_code in (404, 409)
    here.post("key/unlock", passphrase=PASSPHRASE, step="results")
    assert "What others may see." not in here.get(
        "results"
    )  # opened things are forgotten; the ledger is not
    assert written(here).count("published") == 1


def test_the_report_for_the_board_names_no_column(here: Page) -> None:
    here.post(at(here, "publish"), rules="five")
    answer = here.client.get(f"/p/{here.project}/board")
    assert "attachment" in answer.headers["content-disposition"]
    assert "Who could see what" in answer.text
    assert ledger_of(here).head()[:8] in answer.text
    assert "smoker" not in answer.text
    assert (here.folder / "report.html").stat().st_mode & 0o777 == 0o600


def test_a_ledger_that_was_altered_is_said_to_be(here: Page) -> None:
    here.post(at(here, "publish"), rules="five")
    entry = here.folder / "project.ledger" / "ledger" / "00000001.json"
    content = entry.read_bytes()
    assert b'"five"' in content
    entry.write_bytes(content.replace(b'"five"', b'"nine"'))
    text = here.get("results")
    assert "The ledger cannot be read." in text
    here.post(at(here, "publish"), 422, rules="five")


def test_what_others_may_see_of_a_release_has_no_standard_errors() -> None:
    """They know nothing of the noise: not in the table, the CSV or the text that can be
    downloaded.
    """
    pytest.importorskip("opendp")
    frame = pd.DataFrame({"x": list("ab") * 100, "ill": [0, 1, 1, 1] * 50})
    model = es.GLM("ill ~ x").fit(es.Schema.infer(frame, target="ill").table(frame))
    owner = es.Owner(insecure_parameters("bgv", 1 << 20, (50,) * 6))
    found = owner.release(model, epsilon=5.0)
    assert "std_error" in found.summary()  # the owner sees them, with a remark
    shown = show_released(found, Path("glm.released"))
    assert shown.table is not None
    for text in (shown.text, shown.csv, " ".join(shown.table.head)):
        assert "estimate" in text
        assert "std_error" not in text
        assert "pvalue" not in text
    assert "epsilon 5" in shown.text


def test_a_model_is_shown_whole_or_not_at_all() -> None:
    frame = patients(200).drop(columns=["patient", "bmi"])
    model = es.MultinomialNB().fit(es.Schema.infer(frame, target="ill").table(frame))
    owner = es.Owner(insecure_parameters("bgv", 1 << 20, (50,) * 6))
    whole = show_published(owner.publish(model, rules=es.Rules(min_count=0)), "Bayes", [])
    assert whole.table is not None
    assert whole.csv
    nothing = show_published(
        owner.publish(model, rules=es.Rules(rows_per_parameter=100.0)), "Bayes", ["seen to"]
    )
    assert (nothing.table, nothing.csv) == (None, "")
    assert "100 rows are wanted for each" in nothing.text
    assert nothing.remarks[-1] == "seen to"
