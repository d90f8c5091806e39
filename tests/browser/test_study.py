"""A study in the browser: a hospital joins, compares the fingerprint, links and brings its rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from owner_steps import PASSPHRASE
from programs import Owner, patients
from tabs import WIDE, Tab

import encryptedstats as es


def test_a_site_takes_part(owner: Owner, chromium: Any, place: Path) -> None:
    people = patients(300)[["patient", "smoker", "readmitted"]]
    people.iloc[:250][["patient", "smoker"]].to_csv(owner.files / "hospital.csv", index=False)
    registry = people.iloc[50:][["patient", "readmitted"]]
    schema = es.Schema.infer(people.drop(columns="patient"), target="readmitted")
    columns = {"hospital": ["smoker"], "registry": ["readmitted"]}
    study = es.Study.create(
        place / "shared",
        schema=schema,
        questions={"table": es.ChiSquare("smoker", "class")},
        n_rows=400,
        sites=list(columns),
        worker="centre",
        receiver="board",
        name="Smoking and readmission",
        linkage=es.Linkage(columns, ["code"], agent="office"),
    )
    tab = Tab(chromium.new_context(viewport=WIDE))
    page = tab.page
    page.goto(owner.start())
    page.wait_for_url("**/")
    tab.click("Studies")
    tab.look()
    page.get_by_label("Where it lies").fill(str(place / "shared"))
    tab.click("Look at it")
    tab.sees("You have not joined")
    tab.look()
    page.get_by_label("Your invitation").fill(study.invitations["hospital"])
    page.get_by_label("A passphrase for your identity").fill(PASSPHRASE)
    page.get_by_label("The same again").fill(PASSPHRASE)
    tab.click("Agree, and join")
    tab.sees("in this study")
    party = {
        name: es.Study.join(study.url, code, place / f"{name}.id")
        for name, code in study.invitations.items()
        if name != "hospital"
    }
    page.reload()
    tab.sees("Compare the fingerprint first")
    page.get_by_label("What was read to you").fill(study.fingerprint)
    tab.click("Compare")
    tab.sees("It is the one that was read to you")
    page.get_by_label("Full path of the file").fill(str(owner.files / "hospital.csv"))
    page.get_by_label("The columns that identify people").fill("patient")
    tab.click("Look first, and send nothing")
    tab.sees("Nothing was sent yet")
    tab.look("app-study")
    tab.click("Send keyed hashes of these people")
    tab.sees("hospital 250")
    party["registry"].link(registry, on=["patient"])
    party["office"].link()
    party["board"].keygen(place / "board.key")
    page.reload()
    page.get_by_label("Full path of the file").fill(str(owner.files / "hospital.csv"))
    tab.click("Encrypt and send them")
    tab.sees("The study does not wait for you now")
    tab.look()
    assert study.status().to_dict()["rows"]["hospital"] == 300  # people of either site
