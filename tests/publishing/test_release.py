"""Releases as owners make them: what is opened, stated, spent, stored and refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from published_samples import patients

import encryptedstats as es
from encryptedstats.publishing import opening as module
from encryptedstats.publishing.ledger import Ledger

FRAME = patients(300)
SCHEMA = es.Schema.infer(FRAME, target="sick")


@pytest.fixture(scope="module")
def table(owner: es.Owner) -> es.EncryptedTable:
    return owner.encrypt(SCHEMA.table(FRAME))


@pytest.fixture
def ledger(owner: es.Owner, tmp_path: Path) -> es.Ledger:
    return es.Ledger.begin(tmp_path / "ledger", owner, epsilon=3.0, delta=1e-6)


@pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")
def test_a_forest_is_released_from_its_file_and_the_cost_is_stated(
    owner: es.Owner, table: es.EncryptedTable, ledger: es.Ledger, tmp_path: Path
) -> None:
    es.CompletelyRandomForest(n_trees=20, depth=2).fit(table).save(tmp_path / "forest.enc")
    found = owner.release(tmp_path / "forest.enc", SCHEMA, epsilon=1.0, ledger=ledger.url)
    assert found.result.predict(FRAME).shape == (300,)
    assert found.result.class_counts_.sum() == 300
    stated = found.privacy
    assert (stated.epsilon, stated.delta, stated.mechanism) == (1.0, 1e-6, "gaussian")
    assert stated.l1 == 40
    assert stated.l2 == pytest.approx(40**0.5)
    text = str(found)
    assert "released with epsilon 1, delta 1e-06 (rho 0.0" in text
    assert "unit: a row; one row is replaced by any other (the number of rows is public)" in text
    assert "spent so far: epsilon 1 of 3" in text
    assert "epsilon does not cover bins, levels, classes and bounds that the schema learned" in text
    assert "with_bins(name, edges=[...])" in text


def test_what_is_released_is_not_what_is_true(owner: es.Owner, table: es.EncryptedTable) -> None:
    counts = table.counts("age", by="sick")
    exact = owner.open(counts, SCHEMA)
    noisy = [owner.release(counts, SCHEMA, epsilon=0.01).result for _ in range(3)]
    assert all(not one.equals(exact) for one in noisy)  # by chance all would be equal once in 1e20
    assert all(one.to_numpy().sum() == 300 and one.to_numpy().min() >= 0 for one in noisy)
    near = owner.release(counts, SCHEMA, epsilon=1000.0).result
    assert near.equals(exact)


def test_the_cost_is_spent_before_anything_is_opened(
    owner: es.Owner, table: es.EncryptedTable, ledger: es.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def killed(*args: Any) -> Any:
        raise Killed

    monkeypatch.setattr(module.Source, "opened", killed)
    with pytest.raises(Killed):
        owner.release(table.counts("sex"), SCHEMA, epsilon=1.0, ledger=ledger)
    assert ledger.epsilon_spent == pytest.approx(1.0)


def test_nothing_is_opened_where_the_budget_is_empty(
    owner: es.Owner, table: es.EncryptedTable, ledger: es.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module.Source, "opened", lambda *args: pytest.fail("it was opened"))
    with pytest.raises(es.BudgetError, match="ask for a smaller epsilon, or for less"):
        owner.release(table.counts("sex"), SCHEMA, epsilon=3.1, delta=0, ledger=ledger)


def test_the_ledger_has_no_names(owner: es.Owner, table: es.EncryptedTable, ledger: es.Ledger) -> None:
    owner.release(table.ask(es.ChiSquare("sex", "region")), SCHEMA, epsilon=1.0, ledger=ledger)
    said = Ledger(ledger.url, owner).entries()[-1].content
    assert said["params"]["first"] == "v1"
    assert said["rows"] == 300
    assert len(said["blocks"]) == 1
    assert (said["unit"], said["mechanism"], said["l1"]) == ("a row", "laplace", 2.0)
    assert "sex" not in str(said)
    assert "region" not in str(said)


def test_a_person_with_several_rows_takes_more_noise(owner: es.Owner, table: es.EncryptedTable) -> None:
    counts = table.counts("sex")
    one, four = (owner.release(counts, SCHEMA, epsilon=1.0, max_rows=k).privacy for k in (1, 4))
    assert four.scale == pytest.approx(4 * one.scale)
    assert four.unit == "a person with at most 4 rows"


def test_rows_may_be_added_or_left_out_instead(owner: es.Owner, table: es.EncryptedTable) -> None:
    found = owner.release(table.counts("sex"), SCHEMA, epsilon=1.0, relation="add")
    assert found.privacy.l1 == 1
    assert "one row is added or left out (the number of rows is not public)" in str(found)
    numbers = [
        int(owner.release(table.counts("sex"), SCHEMA, epsilon=0.05, relation="add").result["count"].sum())
        for _ in range(5)
    ]
    assert set(numbers) != {300}


def test_what_was_opened_already_can_be_released_too(owner: es.Owner) -> None:
    rows = SCHEMA.table(FRAME)
    bayes = es.MultinomialNB().fit(rows)
    assert owner.release(bayes, epsilon=5.0).result.class_counts_.sum() == 300
    test = rows.ask(es.ChiSquare("sex", "sick"))
    assert owner.release(test, epsilon=5.0).result.observed.to_numpy().sum() == 300
    with pytest.raises(es.ParameterError, match="schema= is for what is still encrypted"):
        owner.release(bayes, SCHEMA, epsilon=1.0)


@pytest.mark.parametrize("question", [es.MultinomialNB(), es.ChiSquare("sex", "sick")], ids=["model", "result"])
def test_it_is_stored_with_what_can_be_said_of_it(
    owner: es.Owner, table: es.EncryptedTable, question: es.Question, tmp_path: Path
) -> None:
    answer = question.fit(table) if hasattr(question, "fit") else table.ask(question)
    found = owner.release(answer, SCHEMA, epsilon=1.0, delta=0)
    found.save(tmp_path / "released")
    again = es.load(tmp_path / "released")
    assert type(again) is type(found.result)
    assert again.summary() == found.result.summary()
    assert (tmp_path / "released").stat().st_mode & 0o777 == 0o600


def test_a_regression_by_sufficient_statistics(owner: es.Owner) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.integers(0, 100, 20_000)}).assign(
        y=lambda rows: 2 * rows.x + rng.integers(0, 50, 20_000)
    )
    schema = es.Schema.infer(
        frame, target="y", kinds={"x": "number"}, numbers="keep", bounds={"x": (0, 100), "y": (0, 256)}
    )
    model = es.LinearRegression("y ~ x").fit(schema.table(frame))
    found = owner.release(model, epsilon=2.0)
    assert found.result.coef_[0] == pytest.approx(2.0, abs=0.05)  # its noise has a deviation of a thousandth
    assert "p-values know nothing of the noise" in str(found)


def test_tests_of_means_are_read_from_noisy_sums(owner: es.Owner) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"g": ["a", "b"] * 5000}).assign(
        x=lambda rows: rng.integers(0, 80, 10_000) + 10 * (rows.g == "b")
    )
    schema = es.Schema.infer(frame, kinds={"x": "number"}, bounds={"x": (0, 100)})
    for question in (es.TTest("x", by="g"), es.Anova("x", ["g"])):
        exact = schema.table(frame).ask(question)
        found = owner.release(exact, epsilon=1.0)
        means, wanted = (one.groups["mean"].to_numpy() for one in (found.result, exact))
        assert means == pytest.approx(wanted, abs=1.0)  # the noise of a mean has a deviation of a twentieth
        assert (means != wanted).any()
        assert "p-values know nothing of the noise: they are too good, do not publish them" in str(found)


def test_weights_have_to_be_bounded(owner: es.Owner) -> None:
    rows = SCHEMA.table(FRAME, weights=np.arange(300) % 3 + 1)
    model = es.MultinomialNB().fit(rows)
    with pytest.raises(
        es.ParameterError, match=r"rows of this table have weights: say how large one may be, max_weight="
    ):
        owner.release(model, epsilon=1.0)
    assert owner.release(model, epsilon=1.0, max_weight=3).privacy.l1 == 6
    with pytest.raises(es.ParameterError, match="max_weight=0: the largest weight of a row"):
        owner.release(model, epsilon=1.0, max_weight=0)


def with_numbers(n: int = 300) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame({"x": rng.integers(0, 9, n), "z": rng.integers(0, 9, n), "sick": rng.integers(0, 2, n)})


@pytest.mark.parametrize("gaps", [0, 1], ids=["complete", "with a gap"])
@pytest.mark.parametrize("question", [es.LinearRegression("z ~ x"), es.Ridge(formula="z ~ x")], ids=["ols", "ridge"])
def test_whether_a_value_is_missing_is_not_told_by_a_refusal(owner: es.Owner, question: Any, gaps: int) -> None:
    """Rows that are not complete do not count in a regression: that is no weight, and one of them is nobody's business."""
    frame = with_numbers().astype({"x": float})
    frame.loc[: gaps - 1, "x"] = np.nan
    schema = es.Schema.infer(
        with_numbers(),
        target="sick",
        kinds={"x": "number", "z": "number"},
        numbers="keep",
        bounds={"x": (0, 9), "z": (0, 9)},
    ).with_missing_bin("x")
    rows = schema.table(frame)
    for given in (question.fit(rows), question.fit(owner.encrypt(rows)).as_answer()):
        assert owner.release(given, epsilon=5.0).result.n_rows_ == 300


@pytest.mark.parametrize("sealed", [False, True], ids=["opened", "sealed"])
@pytest.mark.parametrize("weights", [np.arange(300) % 3 + 1, np.arange(300) % 2], ids=["to 3", "0 and 1"])
def test_weights_are_refused_before_anything_is_spent(
    owner: es.Owner, ledger: es.Ledger, sealed: bool, weights: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = SCHEMA.table(FRAME, weights=weights)
    model = es.MultinomialNB().fit(owner.encrypt(rows) if sealed else rows)
    monkeypatch.setattr(module.Source, "opened", lambda *args: pytest.fail("it was opened"))
    with pytest.raises(es.ParameterError, match="the rows of this table have weights"):
        owner.release(model, epsilon=1.0, ledger=ledger)
    assert ledger.epsilon_spent == 0
    assert len(ledger.entries()) == 1


def test_rows_that_were_taken_off_are_no_weights(owner: es.Owner, table: es.EncryptedTable) -> None:
    """What is known of how large counts can be is less then: by themselves they tell."""
    few = owner.encrypt(SCHEMA.table(patients(40, seed=1)))
    both = es.MultinomialNB().fit(table) + es.MultinomialNB().fit(few)
    assert owner.release(both - es.MultinomialNB().fit(few), SCHEMA, epsilon=5.0).result.class_counts_.sum() == 300


@pytest.mark.parametrize("question", [es.MultinomialNB(), es.ChiSquare("sex", "sick")], ids=["model", "result"])
def test_what_is_released_does_not_name_the_blocks_of_rows(
    owner: es.Owner, table: es.EncryptedTable, ledger: es.Ledger, question: Any, tmp_path: Path
) -> None:
    """Their ids are hashes of the rows, the same whenever these are encrypted: no noise is on them. The ledger keeps them."""
    answer = question.fit(table) if hasattr(question, "fit") else table.ask(question)
    found = owner.release(answer, SCHEMA, epsilon=1.0, delta=0, ledger=ledger)
    found.save(tmp_path / "released")
    data, again = (tmp_path / "released").read_bytes(), es.load(tmp_path / "released")
    assert found.source.block_ids == ()
    assert module.source_of(found.result, owner).block_ids == module.source_of(again, owner).block_ids == ()
    assert not any(one.encode() in data for one in table.blocks.ids)
    assert ledger.entries()[-1].content["blocks"] == sorted(table.blocks.ids)


def test_predictions_and_large_deltas_are_refused(owner: es.Owner, table: es.EncryptedTable) -> None:
    votes = es.MultinomialNB().fit(SCHEMA.table(FRAME)).predict_votes(table)
    with pytest.raises(es.ParameterError, match="predictions are of single rows: release the model"):
        owner.release(votes, SCHEMA, epsilon=1.0)
    forest = es.CompletelyRandomForest(n_trees=30).fit(SCHEMA.table(FRAME))
    with pytest.raises(es.ParameterError, match=r"delta=0.01 with 300 rows: it could give away a row"):
        owner.release(forest, epsilon=1.0, delta=0.01)


def test_without_a_ledger_it_says_so(owner: es.Owner, table: es.EncryptedTable) -> None:
    assert "spent from no ledger" in str(owner.release(table.counts("sex"), SCHEMA, epsilon=1.0))
