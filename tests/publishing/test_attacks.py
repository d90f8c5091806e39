"""Known holes of disclosure control: what owners are told of each. That they are holes,
``test_attackers`` shows.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from published_samples import Recoded, patients

import encryptedstats as es
from encryptedstats.publishing import publish
from encryptedstats.publishing.rules import Rules
from error_codes import error

FIVE = Rules(5, name="five rows")


def sealed(
    owner: es.Owner, frame: pd.DataFrame, **options: object
) -> tuple[es.Schema, es.EncryptedTable]:
    schema = es.Schema.infer(frame, target="sick", **options)
    return schema, owner.encrypt(schema.table(frame))


@pytest.fixture
def ledger(owner: es.Owner, tmp_path: Path) -> es.Ledger:
    return es.Ledger.begin(tmp_path / "ledger", owner, rules=FIVE)


# -- counts of few
# ------------------------------------------------------------------------------------------------


def rare(n_rare: int = 2, n: int = 60) -> pd.DataFrame:
    """A region with two rows, one of them sick."""
    region = ["c"] * n_rare + ["a", "b"] * ((n - n_rare) // 2)
    return pd.DataFrame({"region": region, "sick": [k % 2 for k in range(len(region))]})


def test_a_count_of_two_patients_is_hidden_and_cannot_be_computed_from_the_margins(
    owner: es.Owner,
) -> None:
    schema, table = sealed(owner, rare())
    shown = owner.publish(table.counts("region", by="sick"), schema, rules=FIVE)
    assert shown.result is None
    assert shown.table is not None
    hidden = shown.table.isna()
    assert hidden.loc["c", "0"]
    assert hidden.loc["c", "1"]
    assert hidden.loc["c", "all"]
    # The sum of a column is shown, so that one hidden count alone would be the rest.
    for label in ("0", "1"):
        assert hidden[label].sum() != 1
    text = str(shown)
    assert "hidden" in text
    assert [finding.rule for finding in shown.findings] == ["suppression"]


def test_everything_may_be_shown_where_nothing_is_small(owner: es.Owner) -> None:
    schema, table = sealed(owner, rare(20))
    shown = owner.publish(table.counts("region", by="sick"), schema, rules=FIVE)
    assert shown.is_whole
    assert not shown.findings
    assert shown.result.loc["c"].tolist() == [10, 10]


@pytest.mark.parametrize(
    "question", [es.ChiSquare("region", "sick"), es.Histogram("region", by="sick")]
)
def test_what_is_read_from_small_counts_is_their_table_with_these_hidden(
    owner: es.Owner, question: es.Question
) -> None:
    schema, table = sealed(owner, rare())
    shown = owner.publish(table.ask(question), schema, rules=FIVE)
    assert shown.result is None
    assert shown.table is not None
    assert shown.table.loc["c"].isna().all()
    assert "X-squared" not in str(shown)


# -- recoding
# ------------------------------------------------------------------------------------------------


def ages(counts: tuple[int, ...]) -> pd.DataFrame:
    age = np.repeat(np.arange(len(counts)), counts)
    return pd.DataFrame({"age": age, "sick": np.arange(len(age)) % 2})


def test_recoding_does_not_reveal_a_hidden_count(owner: es.Owner, ledger: es.Ledger) -> None:
    frame = ages((2, 9, 20, 20, 20))
    schema = es.Schema.infer(frame, target="sick", kinds={"age": "ordinal"})
    table = owner.encrypt(schema.table(frame))
    first = owner.publish(table.counts("age"), schema, ledger=ledger).table
    assert first is not None
    assert first["count"].isna().tolist()[:3] == [True, True, False]
    # Bins 1 and 2 together, less bin 2, give bin 1, and all rows less the others give bin 0: two
    # patients.
    with pytest.raises(es.DisclosureError, check=error("disclosive-result", "1", "4")):
        owner.publish(table.ask(Recoded(0, [[1, 2], [3]])), schema, ledger=ledger)
    assert len(ledger.entries()) == 2  # what is refused is not written down as published


def test_overlapping_tables_that_differ_by_few_rows_are_refused(
    owner: es.Owner, ledger: es.Ledger
) -> None:
    """Each count is large; one less the other is of three rows, who are known to be there."""
    frame = ages((20, 3, 20, 20))
    schema = es.Schema.infer(frame, target="sick", kinds={"age": "ordinal"})
    table = owner.encrypt(schema.table(frame))
    owner.publish(table.ask(Recoded(0, [[0]])), schema, ledger=ledger)
    with pytest.raises(es.DisclosureError, check=error("disclosive-result", "1", "4")):
        owner.publish(table.ask(Recoded(0, [[0, 1]])), schema, ledger=ledger)


def publish_overlapping(
    owner: es.Owner, ledger: es.Ledger, counts: tuple[int, ...], without: int = 0
) -> None:
    """Publish ages up to 64 and up to 65, the second from a table that was encrypted anew."""
    frame = ages(counts)
    schema = es.Schema.infer(frame, target="sick", kinds={"age": "ordinal"})
    first, again = (
        owner.encrypt(schema.table(frame[: len(frame) - less])) for less in (0, without)
    )
    assert not set(first.blocks.ids) & set(again.blocks.ids)
    owner.publish(first.ask(Recoded(0, [[0]])), schema, ledger=ledger)
    owner.publish(again.ask(Recoded(0, [[0, 1]])), schema, ledger=ledger)


def test_rows_that_were_encrypted_anew_are_compared(owner: es.Owner, ledger: es.Ledger) -> None:
    with pytest.raises(es.DisclosureError):
        publish_overlapping(owner, ledger, (20, 3, 30, 20))


@pytest.mark.parametrize("without", [0, 4])
def test_a_small_table_that_may_have_been_encrypted_anew_is_warned_of(
    owner: es.Owner, ledger: es.Ledger, without: int
) -> None:
    """Blocks of few rows are not known again. Four rows less are fewer than the rules ask for."""
    with pytest.warns(es.DisclosureWarning):
        publish_overlapping(owner, ledger, (20, 3, 20, 20), without)


@pytest.mark.filterwarnings("error::encryptedstats.DisclosureWarning")
def test_rows_of_another_size_or_schema_are_not_warned_of(
    owner: es.Owner, ledger: es.Ledger
) -> None:
    publish_overlapping(owner, ledger, (20, 3, 20, 20), 5)
    frame = ages((20, 20, 20))
    schema = es.Schema.infer(frame, target="sick", kinds={"age": "ordinal"})
    owner.publish(owner.encrypt(schema.table(frame)).counts("age"), schema, ledger=ledger)


def test_sums_of_weights_are_compared_without_the_number_of_rows(
    owner: es.Owner, ledger: es.Ledger
) -> None:
    """They do not add up to it, so that nothing could be concluded, and everything was refused."""
    frame = patients(400).assign(region=lambda rows: rows.region.replace("c", "b"))
    schema = es.Schema.infer(frame, target="sick")
    table = owner.encrypt(schema.table(frame, weights=np.arange(400) % 2 + 1))
    for by in ("sex", "region"):
        assert owner.publish(table.crosstab(by, "sick"), schema, ledger=ledger).is_whole


def test_a_profile_may_warn_instead(owner: es.Owner, tmp_path: Path) -> None:
    book = es.Ledger.begin(tmp_path / "warns", owner, rules=Rules(5, differencing="warn"))
    frame = ages((20, 3, 20, 20))
    schema = es.Schema.infer(frame, target="sick", kinds={"age": "ordinal"})
    table = owner.encrypt(schema.table(frame))
    owner.publish(table.ask(Recoded(0, [[0]])), schema, ledger=book)
    with pytest.warns(es.DisclosureWarning) as warned:
        shown = owner.publish(table.ask(Recoded(0, [[0, 1]])), schema, ledger=book)
    assert any("differs by 1 to 4 rows" in str(one.message) for one in warned)
    assert shown.result == [23]
    assert "differencing" in str(shown)


def test_sums_of_a_table_count_as_shown(owner: es.Owner, ledger: es.Ledger) -> None:
    """All of region c is hidden in a table by class, and so is the sum of another: the ledger has
    both.
    """
    frame = pd.DataFrame(
        {
            "region": ["c"] * 4 + ["a"] * 30 + ["b"] * 33,
            "sick": [0, 1] * 2 + [0, 1] * 15 + [0, 0, 1] * 11,
        }
    )
    schema, table = sealed(owner, frame)
    first = owner.publish(table.counts("region", by="sick"), schema, ledger=ledger).table
    assert first is not None
    hidden = first.isna()
    assert hidden.loc["c", "all"]
    shown = ledger.entries()[-1].content["shown"]
    assert len(shown) == 12  # cells and sums, as readers have them
    assert [number is None for number in shown] == list(hidden.to_numpy().flat)
    # The sum of the other hidden region is 30 rows, which by itself may be shown: all rows less
    # both is region c.
    other = next(k for k, name in enumerate("ab") if hidden.loc[name, "all"])
    with pytest.raises(es.DisclosureError, check=error("disclosive-result", "1", "4")):
        owner.publish(table.ask(Recoded(0, [[other]])), schema, ledger=ledger)


def test_two_tables_of_the_same_rows_that_tell_nothing_more_are_fine(
    owner: es.Owner, ledger: es.Ledger
) -> None:
    frame = patients(400).assign(region=lambda rows: rows.region.replace("c", "b"))
    schema, table = sealed(owner, frame)
    for asked in (
        table.counts("age"),
        table.crosstab("sex", "region"),
        table.counts("sex", by="sick"),
    ):
        assert owner.publish(asked, schema, ledger=ledger).is_whole


# -- one row alone
# ------------------------------------------------------------------------------------------------


def test_a_vector_that_is_one_in_a_single_row_is_not_regressed_on(owner: es.Owner) -> None:
    """Its coefficient is that row's value: sum of x y is the y of the row where x is 1."""
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        {
            "alone": [1] + [0] * 99,
            "age": rng.integers(20, 80, 100),
            "pay": rng.integers(0, 100, 100),
        }
    )
    schema = es.Schema.infer(
        frame, target="pay", numbers="keep", bounds={"age": (20, 80), "pay": (0, 100)}
    )
    rows = schema.table(frame)
    exact = es.LinearRegression("pay ~ alone + age").fit(rows)
    shown = owner.publish(exact, rules=FIVE)
    assert shown.result is None
    assert "may come from fewer than 5 rows" in str(shown)
    without = es.LinearRegression("pay ~ age").fit(rows)
    assert owner.publish(without, rules=FIVE).is_whole


def test_a_level_of_a_single_row_is_not_regressed_on(owner: es.Owner) -> None:
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"alone": ["x"] + ["y"] * 99, "pay": rng.integers(0, 100, 100)})
    schema = es.Schema.infer(
        frame,
        target="pay",
        kinds={"alone": "categorical"},
        numbers="keep",
        bounds={"pay": (0, 100)},
    )
    exact = es.LinearRegression("pay ~ alone").fit(schema.table(frame))
    shown = owner.publish(exact, rules=FIVE)
    assert shown.result is None
    assert "min_count" in {finding.rule for finding in shown.findings}


def test_all_rows_but_one_are_as_telling_as_the_one(owner: es.Owner) -> None:
    frame = ages((1, 20, 20, 20))
    schema = es.Schema.infer(frame, target="sick", kinds={"age": "ordinal"})
    table = owner.encrypt(schema.table(frame))
    shown = owner.publish(table.ask(Recoded(0, [[1, 2, 3]])), schema, rules=FIVE)
    assert shown.result is None
    assert [finding.rule for finding in shown.findings] == ["min_count"]


def test_a_sum_that_one_row_dominates_is_not_shown(owner: es.Owner) -> None:
    pay = [1000] + [1] * 40
    frame = pd.DataFrame({"pay": pay, "sick": [0, 1] * 20 + [0]})
    schema = es.Schema.infer(
        frame, target="sick", kinds={"pay": "number"}, bounds={"pay": (0, 1024)}
    )
    found = schema.table(frame).ask(es.Covariance(["pay"]))
    shown = owner.publish(found, rules=Rules(0, dominance=0.85))
    assert shown.result is None
    assert [finding.rule for finding in shown.findings] == ["dominance"]
    assert owner.publish(found, rules=Rules(0, dominance=0.99)).is_whole


def test_a_group_that_is_all_of_one_kind_is_said_to_be(owner: es.Owner) -> None:
    frame = pd.DataFrame({"region": ["a"] * 40 + ["b"] * 40, "sick": [1] * 40 + [0, 1] * 20})
    schema, table = sealed(owner, frame)
    shown = owner.publish(
        table.counts("region", by="sick"), schema, rules=Rules(5, concentration=0.99)
    )
    assert {finding.rule for finding in shown.findings} == {"suppression"}
    assert shown.table is not None
    assert shown.table.loc["a", ["0", "1"]].isna().all()


# -- models
# ------------------------------------------------------------------------------------------------


def test_a_model_less_the_same_without_one_shard_is_refused(
    owner: es.Owner, ledger: es.Ledger
) -> None:
    """The two have all rows but three in common: their difference is a model of three patients."""
    frame = patients(303)
    schema = es.Schema.infer(frame, target="sick")
    most, few = (owner.encrypt(schema.table(rows)) for rows in (frame[:300], frame[300:]))
    model = es.MultinomialNB()
    loose = Rules(2)
    whole = model.fit(most) + es.MultinomialNB().fit(few)
    owner.publish(whole, schema, rules=loose, ledger=ledger)
    with pytest.raises(es.DisclosureError, check=error("disclosive-result")):
        owner.publish(es.MultinomialNB().fit(most), schema, rules=FIVE, ledger=ledger)


def test_a_shard_of_enough_rows_is_looked_at_count_by_count(
    owner: es.Owner, ledger: es.Ledger
) -> None:
    """Thirty more rows, of which two are of one region: counts of both tables are large, and their
    difference is two.
    """
    first = pd.DataFrame({"region": ["a", "b", "c"] * 40, "sick": [0, 1] * 60})
    more = pd.DataFrame({"region": ["a"] * 14 + ["b"] * 14 + ["c"] * 2, "sick": [0, 1] * 15})
    schema = es.Schema.infer(pd.concat([first, more]), target="sick")
    one, two = (owner.encrypt(schema.table(rows)) for rows in (first, more))
    counts = one.counts("region")
    owner.publish(counts, schema, ledger=ledger)
    with pytest.raises(es.DisclosureError, check=error("disclosive-result", "1", "4")):
        owner.publish(counts + two.counts("region"), schema, ledger=ledger)


def test_sums_that_differ_by_little_are_no_counts_of_few(
    owner: es.Owner, ledger: es.Ledger
) -> None:
    """Forty more rows, whose numbers add up to nothing around the middle of the bounds: no group of
    few is in it.
    """
    first = pd.DataFrame({"x": [0, 0, 10, 10] * 25, "g": list("ab") * 50})
    more = pd.DataFrame({"x": [4, 6] * 10 + [3, 8] + [5] * 18, "g": ["a"] * 20 + ["b"] * 20})
    schema = es.Schema.infer(pd.concat([first, more]), kinds={"x": "number"}, bounds={"x": (0, 10)})
    one, two = (
        owner.encrypt(schema.table(rows)).ask(es.TTest("x", by="g")) for rows in (first, more)
    )
    assert owner.publish(one, schema, ledger=ledger).is_whole
    assert owner.publish(one + two, schema, ledger=ledger).is_whole


def test_results_of_rows_that_overlap_in_part_are_refused(
    owner: es.Owner, ledger: es.Ledger
) -> None:
    frame = patients(300)
    schema = es.Schema.infer(frame, target="sick")
    a, b, c = (owner.encrypt(schema.table(frame[k : k + 100])).counts("sex") for k in (0, 100, 200))
    owner.publish(a + b, schema, ledger=ledger)
    with pytest.raises(es.DisclosureError, check=error("disclosive-result", "1")):
        owner.publish(b + c, schema, ledger=ledger)


def test_a_forest_of_more_counts_than_rows_is_not_shown(owner: es.Owner) -> None:
    frame = patients(300)
    schema = es.Schema.infer(frame, target="sick")
    forest = es.CompletelyRandomForest(n_trees=50).fit(schema.table(frame))
    shown = owner.publish(forest, rules=Rules(0, rows_per_parameter=3.0))
    assert shown.result is None
    assert "rows_per_parameter: 800 numbers from 300 rows, and 3 rows are wanted for each" in str(
        shown
    )


def test_a_small_forest_of_many_rows_is_shown(owner: es.Owner) -> None:
    frame = patients(3000).drop(columns="region")
    schema = es.Schema.infer(frame, target="sick")
    forest = es.CompletelyRandomForest(n_trees=3, depth=1).fit(schema.table(frame))
    shown = owner.publish(forest, rules="pcornet")
    assert shown.is_whole
    assert shown.result.n_rows_ == 3000


def test_predictions_are_published_by_group(owner: es.Owner, tmp_path: Path) -> None:
    frame = patients(60).drop(columns="region")
    schema = es.Schema.infer(frame, target="sick")
    table = owner.encrypt(schema.table(frame))
    votes = es.MultinomialNB().fit(schema.table(frame)).predict_votes(table)
    shown = owner.publish(votes, schema, rules=FIVE)
    assert shown.result is None
    assert shown.table is not None
    assert shown.table["count"]["all"] == 60
    assert "predictions are of single rows" in str(shown)


def test_rules_have_to_be_named(owner: es.Owner) -> None:
    schema, table = sealed(owner, rare())
    with pytest.raises(es.ParameterError, check=error("no-rules")):
        owner.publish(table.counts("region"), schema)
    with pytest.raises(
        es.ParameterError,
        check=error(
            "unknown-rules", "'lax'", "'datashield'", "'five'", "'ten'", "'pcornet'", "rules='lax'"
        ),
    ):
        owner.publish(table.counts("region"), schema, rules="lax")
    with pytest.raises(TypeError, check=error("nothing-to-publish")):
        owner.publish(owner.open(table.counts("region"), schema), rules=FIVE)


SPLIT = pd.DataFrame(
    {
        "region": ["c"] * 3 + ["a", "b"] * 30,
        "smokes": ["yes", "no", "no"] * 21,
        "pay": range(63),
        "age": range(20, 83),
    }
)


@pytest.mark.parametrize(
    ("question", "said"),
    [
        (es.ChiSquare("region", "smokes"), "ChiSquare(first='region', second='smokes'"),
        (es.OddsRatio("region", "smokes", reference="b", event="no"), "reference='b', event='no'"),
        (
            es.LinearRegression("pay ~ age + region", reference={"region": "b"}),
            "formula='pay ~ age + region'",
        ),
        (es.Covariance(["age"]), "Covariance(variables=['age']"),
        (es.TTest("pay", "smokes"), "TTest(variable='pay', by='smokes'"),
    ],
    ids=lambda one: getattr(one, "name", ""),
)
def test_owners_read_their_own_names(owner: es.Owner, question: es.Question, said: str) -> None:
    """What is computed knows ids only: what its owner reads, and is refused, has names."""
    schema = es.Schema.infer(SPLIT, target="pay", numbers="keep", kinds={"age": "number"})
    answer = (
        question.fit(schema.table(SPLIT))
        if hasattr(question, "fit")
        else schema.table(SPLIT).ask(question)
    )
    shown = owner.publish(answer, rules=Rules(5))
    assert said in shown.title
    assert not re.search(r"\bv\d|\bbin\d|\btarget\b(?!=)", shown.title)


def test_a_refusal_has_the_owners_names(owner: es.Owner, ledger: es.Ledger) -> None:
    frame = patients(300).drop(columns="region")
    schema = es.Schema.infer(frame, target="sick")
    a, b = (
        owner.encrypt(schema.table(rows)).ask(es.ChiSquare("age", "sex"))
        for rows in (frame[:297], frame[297:])
    )
    owner.publish(a, schema, ledger=ledger, rules=Rules(1))
    with pytest.raises(
        es.DisclosureError,
        check=error("disclosive-result", "'age'", "'sex'", "first='age'", "second='sex'"),
    ):
        owner.publish(a + b, schema, ledger=ledger, rules=FIVE)


def test_a_table_that_cannot_be_protected_is_not_shown(owner: es.Owner) -> None:
    schema, table = sealed(
        owner, pd.DataFrame({"region": ["a"] * 3 + ["b"] * 3, "sick": [0, 1] * 3})
    )
    shown = owner.publish(table.counts("region"), schema, rules=Rules(10))
    assert shown.table is None
    assert "fewer rows than the 10 that the rules ask for" in str(shown)


def test_what_is_published_is_what_the_rules_left(
    owner: es.Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one place that every result passes: without its rules all of it would be shown."""
    schema, table = sealed(owner, rare())
    monkeypatch.setattr(publish, "broken_rules", lambda *args: [])
    monkeypatch.setattr(
        publish,
        "_hidden_table",
        lambda cells, *args: (None, np.zeros(len(cells) + 1, dtype=bool), []),
    )
    assert owner.publish(table.counts("region"), schema, rules=FIVE).result["count"].tolist() == [
        29,
        29,
        2,
    ]
