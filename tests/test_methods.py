"""The table of methods: every question of this package has a line, and its facts are those of the
code.
"""

from __future__ import annotations

import encryptedstats as es
from encryptedstats.method_status import STATUS
from encryptedstats.publishing.tables import WRITTEN
from encryptedstats.tables.questions.words import known_types


def test_every_question_has_a_status() -> None:
    own = {
        name
        for name, question in known_types().items()
        if question.__module__.startswith("encryptedstats.")
    }
    assert own == set(STATUS)
    shown = es.methods()
    assert own <= set(shown.index)
    assert (shown.loc[sorted(own), ["title", "totals", "products", "compared_with"]] != "").all(
        axis=None
    )


def test_facts_are_those_of_the_code() -> None:
    shown = es.methods()
    assert set(shown.index[shown["released"]]) == set(WRITTEN)
    assert shown.loc["AODE", "predicts"] == "encrypted"
    assert shown.loc["TAN", "predicts"] == "opened"
    assert shown.loc["TTest", "predicts"] == ""
    assert shown.loc["LinearRegression", ["kind", "predicts"]].tolist() == ["model", "opened"]
    assert not shown.loc["CoxScore", "exact"]
    assert shown.loc["CoxScore", "note"]
