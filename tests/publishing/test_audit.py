"""What the ledger keeps of a published result, and what is compared with it."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from published_samples import patients

import encryptedstats as es
from encryptedstats.publishing import audit
from encryptedstats.publishing.rules import Rules, broken_rules
from encryptedstats.tables.questions.question import prepare_question


@pytest.fixture
def ledger(owner: es.Owner, tmp_path: Path) -> es.Ledger:
    return es.Ledger.begin(tmp_path / "ledger", owner, rules=Rules(5), another=True)


def make_table(owner: es.Owner) -> tuple[es.Schema, es.EncryptedTable]:
    frame = patients(400).assign(region=lambda rows: rows.region.replace("c", "b"))
    schema = es.Schema.infer(frame, target="sick")
    return schema, owner.encrypt(schema.table(frame))


def test_the_ledger_keeps_no_number_that_was_not_shown(owner: es.Owner, ledger: es.Ledger) -> None:
    """Members read it: the numbers of a model that is not published are not for them."""
    schema, table = make_table(owner)
    shown = owner.publish(
        es.MultinomialNB().fit(table),
        schema,
        rules=Rules(5, rows_per_parameter=100.0),
        ledger=ledger,
    )
    assert shown.result is None
    assert set(ledger.entries()[-1].content["shown"]) == {None}


@pytest.mark.parametrize("larger_first", [False, True])
def test_counts_of_a_part_are_compared_in_both_orders(
    owner: es.Owner, ledger: es.Ledger, larger_first: bool
) -> None:
    """Thirty rows more, of which two are of one region."""
    first = pd.DataFrame({"region": ["a", "b", "c"] * 40, "sick": [0, 1] * 60})
    more = pd.DataFrame({"region": ["a"] * 14 + ["b"] * 14 + ["c"] * 2, "sick": [0, 1] * 15})
    schema = es.Schema.infer(pd.concat([first, more]), target="sick")
    one, two = (owner.encrypt(schema.table(rows)).counts("region") for rows in (first, more))
    before, after = (one + two, one) if larger_first else (one, one + two)
    owner.publish(before, schema, ledger=ledger)
    with pytest.raises(es.DisclosureError):
        owner.publish(after, schema, ledger=ledger)


def test_what_cannot_be_solved_is_not_taken_for_safe(
    owner: es.Owner, ledger: es.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema, table = make_table(owner)
    owner.publish(table.crosstab("sex", "sick"), schema, ledger=ledger)
    monkeypatch.setattr(audit, "find_extremes", lambda *args: None)
    with pytest.raises(es.DisclosureError):
        owner.publish(table.crosstab("region", "sick"), schema, ledger=ledger)


@pytest.mark.parametrize(("limit", "value"), [("_MOST_ATOMS", 1), ("_MOST_KINDS", 1)])
def test_what_is_too_much_to_compare_is_warned_of(
    owner: es.Owner, ledger: es.Ledger, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    schema, table = make_table(owner)
    owner.publish(table.crosstab("sex", "sick"), schema, ledger=ledger)
    monkeypatch.setattr(audit, limit, value)
    with pytest.warns(es.DisclosureWarning):
        owner.publish(table.crosstab("region", "sick"), schema, ledger=ledger)


@pytest.mark.parametrize(("weight_bound", "broken"), [(1, False), (4, True)])
def test_one_row_of_a_large_weight_may_dominate_a_sum(weight_bound: int, broken: bool) -> None:
    """Its number counts four times in the sum, and its square four times in the squares."""
    frame = pd.DataFrame({"pay": [20] * 4 + [1] * 40, "sick": [0, 1] * 22})
    schema = es.Schema.infer(frame, target="sick", kinds={"pay": "number"}, bounds={"pay": (0, 20)})
    asked = prepare_question(es.Covariance(["pay"]), schema)._fix_seed()
    totals = asked._name_totals(
        [int(x) for x in schema.table(frame).totals(asked)], schema.public()
    )
    found = broken_rules(asked, totals, schema.public(), 41, Rules(0, dominance=0.6), weight_bound)
    assert [finding.rule for finding in found] == ["dominance"] * broken
