"""A tree that learns its splits, in the browser: asked in rounds at a worker, and resumed after the
owner's program was killed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from owner_steps import begin, decide, encrypt, make_key, unlock
from programs import Owner, Service
from tabs import WIDE, Tab

import encryptedstats as es


def test_rounds_go_on_after_the_program_was_killed(
    owner: Owner, service: Service, chromium: Any
) -> None:
    token = service.token("Hospital North")
    service.start(workers=0)  # takes questions, and nobody computes yet
    context = chromium.new_context(viewport=WIDE)
    tab = Tab(context)
    tab.page.goto(owner.start())
    tab.page.wait_for_url("**/")
    begin(tab, "Who falls ill?", "patients-2026.csv")
    tab.page.wait_for_url("**/questions*")
    tab.page.locator("a[href='?ask=DecisionTree']").click()
    tab.look()
    tab.page.get_by_label("Outcome", exact=True).select_option("readmitted")
    for name in ("age", "bmi", "smoker"):
        tab.page.locator(f"input[name=variables][value={name}]").check()
    tab.page.locator("input[name=depth]").fill("2")
    tab.click("Ask this")
    tab.is_told("The question was added")
    decided = tab.page.url
    tab.click("Go on to the columns")
    tab.click("This is right")
    tab.page.wait_for_url("**/plan")
    tab.sees("What is asked in rounds")
    tab.look()
    tab.page.goto(decided)
    decide(tab)
    make_key(tab)
    encrypt(tab)
    tab.sees("The worker learns the variable (by id) and the bins of every split")
    tab.page.get_by_label("Its address").fill(service.url)
    tab.page.get_by_label("Your token there").fill(token)
    tab.click("Send and compute")
    tab.sees("Asking in rounds")
    here = tab.page.url
    owner.program.kill()

    again = Tab(chromium.new_context(viewport=WIDE))
    again.page.goto(owner.start())
    again.page.wait_for_url("**/")
    again.click("Go on")
    again.page.goto(again.page.url.rpartition("/p/")[0] + "/p/" + here.rpartition("/p/")[2])
    again.sees("What is asked in rounds")
    again.look("app-rounds")
    unlock(again)
    service.kill()
    service.start(workers=1)
    again.sees("All results are here.")
    again.click("Open them")
    again.sees("importance")
    again.look("app-trees")
    again.page.locator("input[id^=predict-path]").fill(str(owner.files / "new-patients.csv"))
    again.click("Predict")
    again.is_told("Predicted 120 rows.")
    again.look()
    with again.page.expect_download() as saved:
        again.click("Save the predictions as CSV")
    lines = Path(saved.value.path()).read_text().splitlines()
    assert lines[0] == "patient,predicted,P(no),P(yes)"
    assert len(lines) == 121
    again.page.locator("input[id^=evaluate-path]").fill(str(owner.files / "new-patients.csv"))
    again.click("Score it")
    again.is_told("The scores are below")
    again.look()
    assert again.page.locator("img.plot.light").evaluate("one => one.naturalWidth") > 0
    with es.connect(service.url, token) as worker:
        assert len(worker.jobs()) == 2  # a round each
        again.page.goto(again.page.url.partition("/results")[0] + "/send")
        again.click("Delete it at the worker")
        again.sees("were deleted at the worker")
        assert worker.jobs() == []
