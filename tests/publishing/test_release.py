"""Releases as owners make them: what is opened, stated, spent, stored and refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from published_samples import patients

import encryptedstats as es
from encryptedstats.circuits.expressions import column
from encryptedstats.publishing import opening as module
from encryptedstats.publishing import release as release_module
from encryptedstats.publishing.ledger import Ledger
from encryptedstats.publishing.mechanisms import add_noise
from encryptedstats.publishing.tables import WRITTEN
from encryptedstats.storage import container
from encryptedstats.tables.questions.summaries import Counts
from error_codes import error

pytestmark = pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")
FRAME = patients(300)
SCHEMA = es.Schema.infer(FRAME, target="sick")


@pytest.fixture(scope="module")
def table(owner: es.Owner) -> es.EncryptedTable:
    return owner.encrypt(SCHEMA.table(FRAME))


@pytest.fixture
def ledger(owner: es.Owner, tmp_path: Path) -> es.Ledger:
    return es.Ledger.begin(tmp_path / "ledger", owner, epsilon=3.0, delta=1e-6)


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

    monkeypatch.setattr(module.AnswerSource, "open_with", killed)
    with pytest.raises(Killed):
        owner.release(table.counts("sex"), SCHEMA, epsilon=1.0, ledger=ledger)
    assert ledger.epsilon_spent == pytest.approx(1.0)


def test_nothing_is_opened_where_the_budget_is_empty(
    owner: es.Owner, table: es.EncryptedTable, ledger: es.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        module.AnswerSource, "open_with", lambda *args: pytest.fail("it was opened")
    )
    with pytest.raises(es.BudgetError, check=error("budget-exceeded")):
        owner.release(table.counts("sex"), SCHEMA, epsilon=3.1, delta=0, ledger=ledger)


def test_the_ledger_has_no_names(
    owner: es.Owner, table: es.EncryptedTable, ledger: es.Ledger
) -> None:
    owner.release(table.ask(es.ChiSquare("sex", "region")), SCHEMA, epsilon=1.0, ledger=ledger)
    said = Ledger(ledger.url, owner).entries()[-1].content
    assert said["params"]["first"] == "v1"
    assert said["rows"] == 300
    assert len(said["blocks"]) == 1
    assert (said["unit"], said["mechanism"], said["l1"]) == ("a row", "laplace", 2.0)
    assert "sex" not in str(said)
    assert "region" not in str(said)


def test_a_person_with_several_rows_takes_more_noise(
    owner: es.Owner, table: es.EncryptedTable
) -> None:
    counts = table.counts("sex")
    one, four = (owner.release(counts, SCHEMA, epsilon=1.0, max_rows=k).privacy for k in (1, 4))
    assert four.scale == pytest.approx(4 * one.scale)
    assert four.unit == "a person with at most 4 rows"


def test_rows_may_be_added_or_left_out_instead(owner: es.Owner, table: es.EncryptedTable) -> None:
    found = owner.release(table.counts("sex"), SCHEMA, epsilon=1.0, relation="add")
    assert found.privacy.l1 == 1
    assert "one row is added or left out (the number of rows is not public)" in str(found)
    numbers = [
        int(
            owner.release(table.counts("sex"), SCHEMA, epsilon=0.05, relation="add")
            .result["count"]
            .sum()
        )
        for _ in range(5)
    ]
    assert set(numbers) != {300}


def test_what_was_opened_already_can_be_released_too(owner: es.Owner) -> None:
    rows = SCHEMA.table(FRAME)
    bayes = es.MultinomialNB().fit(rows)
    assert owner.release(bayes, epsilon=5.0).result.class_counts_.sum() == 300
    test = rows.ask(es.ChiSquare("sex", "sick"))
    assert owner.release(test, epsilon=5.0).result.table.to_numpy().sum() == 300
    with pytest.raises(es.ParameterError, check=error("schema-already-known")):
        owner.release(bayes, SCHEMA, epsilon=1.0)


@pytest.mark.parametrize(
    "question", [es.MultinomialNB(), es.ChiSquare("sex", "sick")], ids=["model", "result"]
)
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
        frame,
        target="y",
        kinds={"x": "number"},
        numbers="keep",
        bounds={"x": (0, 100), "y": (0, 256)},
    )
    model = es.LinearRegression("y ~ x").fit(schema.table(frame))
    found = owner.release(model, epsilon=2.0)
    assert found.result.coef_[0] == pytest.approx(
        2.0, abs=0.05
    )  # its noise has a deviation of a thousandth
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
        means, wanted = (
            one.tables.get("groups", one.table)["mean"].to_numpy() for one in (found.result, exact)
        )
        assert means == pytest.approx(
            wanted, abs=1.0
        )  # the noise of a mean has a deviation of a twentieth
        assert (means != wanted).any()
        assert "p-values know nothing of the noise: they are too good, do not publish them" in str(
            found
        )


def test_weights_have_to_be_bounded(owner: es.Owner) -> None:
    rows = SCHEMA.table(FRAME, weights=np.arange(300) % 3 + 1)  # the public bound is 4
    model = es.MultinomialNB().fit(rows)
    assert owner.release(model, epsilon=1.0).privacy.l1 == 6
    assert owner.release(model, epsilon=1.0, max_weight=9).privacy.l1 == 6
    for less in (0, 1, 3, True):
        with pytest.raises(es.ParameterError):
            owner.release(model, epsilon=1.0, max_weight=less)


#: One row counts four times and three rows not at all: the weights add up to the number of rows.
LEVEL = np.array([4, 0, 0, 0] + [1] * 296)


def from_file(owner: es.Owner, given: Any, path: Path) -> Any:
    given.save(path)
    return es.load(path, owner.public_keys())


def weighed(owner: es.Owner, form: str, path: Path) -> Any:
    """An answer of rows with weights, on the way that ``form`` names."""
    table, plain = SCHEMA.table(FRAME, weights=LEVEL), SCHEMA.table(FRAME)
    if form == "result":
        return table.ask(es.ChiSquare("sex", "sick"))
    if form == "result from its file":
        return from_file(owner, table.ask(es.ChiSquare("sex", "sick")), path)
    if form == "sealed result":
        return owner.encrypt(table).ask(es.ChiSquare("sex", "sick"))
    if form == "opened result":
        return owner.open(owner.encrypt(table).ask(es.ChiSquare("sex", "sick")), SCHEMA)
    model = es.MultinomialNB()
    if form in ("model", "model from its file"):
        fitted = model.fit(table)
    elif form == "sum":
        fitted = model.fit(table) + es.MultinomialNB().fit(plain)
    elif form == "difference":
        fitted = (model.fit(table) + es.MultinomialNB().fit(plain)) - es.MultinomialNB().fit(plain)
    else:
        fitted = model.fit(owner.encrypt(table))
    if form == "opened model":
        fitted = owner.open(fitted)
    return from_file(owner, fitted, path) if "from its file" in form else fitted


@pytest.mark.parametrize(
    "form",
    [
        "model", "model from its file", "sum", "difference", "sealed model", "sealed model from its file", "opened model",
        "result", "result from its file", "sealed result", "opened result",
    ],
)  # fmt: skip
def test_noise_is_for_the_weight_bound_that_travels_with_an_answer(
    owner: es.Owner, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights that add up to the number of rows cannot be noticed in the counts: the
    bound says it.
    """
    ranges: list[int] = []

    def recorded(values: Any, found: Any, mechanism: Any) -> Any:
        ranges.extend(found)
        return add_noise(values, found, mechanism)

    monkeypatch.setattr(release_module, "add_noise", recorded)
    given = weighed(owner, form, tmp_path / "answer")
    with pytest.raises(es.ParameterError):
        owner.release(given, epsilon=1.0, max_weight=1)
    owner.release(given, epsilon=1.0)
    assert set(ranges) == {4}


def test_an_answer_that_names_no_weight_bound_needs_one(owner: es.Owner) -> None:
    """As those do that an older version has written."""
    model = es.MultinomialNB().fit(SCHEMA.table(FRAME))
    model.answer_ = replace(model.answer_, weight_bound=None)
    with pytest.raises(es.ParameterError) as refused:
        owner.release(model, epsilon=1.0)
    assert [cure.action for cure in refused.value.cures] == ["largest weight"]
    assert owner.release(model, epsilon=1.0, max_weight=1).result.class_counts_.sum() == 300


def with_numbers(n: int = 300) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {"x": rng.integers(0, 9, n), "z": rng.integers(0, 9, n), "sick": rng.integers(0, 2, n)}
    )


@pytest.mark.parametrize("gaps", [0, 1], ids=["complete", "with a gap"])
@pytest.mark.parametrize(
    "question", [es.LinearRegression("z ~ x"), es.Ridge(formula="z ~ x")], ids=["ols", "ridge"]
)
def test_whether_a_value_is_missing_is_not_told_by_a_refusal(
    owner: es.Owner, question: Any, gaps: int
) -> None:
    """Rows that are not complete do not count in a regression: that is no weight, and one of them
    is nobody's business.
    """
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
    for given in (question.fit(rows), question.fit(owner.encrypt(rows)).answer_):
        assert owner.release(given, epsilon=5.0).result.n_rows_ == 300


@pytest.mark.parametrize("sealed", [False, True], ids=["opened", "sealed"])
@pytest.mark.parametrize(
    "weights", [np.arange(300) % 3 + 1, np.arange(300) % 2], ids=["to 3", "0 and 1"]
)
def test_weights_are_refused_before_anything_is_spent(
    owner: es.Owner,
    ledger: es.Ledger,
    sealed: bool,
    weights: np.ndarray,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = SCHEMA.table(FRAME, weights=weights)
    model = es.MultinomialNB().fit(owner.encrypt(rows) if sealed else rows)
    model.answer_ = replace(model.answer_, weight_bound=1)  # as a worker could write
    monkeypatch.setattr(
        module.AnswerSource, "open_with", lambda *args: pytest.fail("it was opened")
    )
    with pytest.raises(es.ParameterError, check=error("max-weight-missing")):
        owner.release(model, epsilon=1.0, ledger=ledger)
    assert ledger.epsilon_spent == 0
    assert len(ledger.entries()) == 1


def test_rows_that_were_taken_off_are_no_weights(owner: es.Owner, table: es.EncryptedTable) -> None:
    """What is known of how large counts can be is less then: by themselves they tell."""
    few = owner.encrypt(SCHEMA.table(patients(40, seed=1)))
    both = es.MultinomialNB().fit(table) + es.MultinomialNB().fit(few)
    assert (
        owner.release(
            both - es.MultinomialNB().fit(few), SCHEMA, epsilon=5.0
        ).result.class_counts_.sum()
        == 300
    )


@pytest.mark.parametrize(
    "question", [es.MultinomialNB(), es.ChiSquare("sex", "sick")], ids=["model", "result"]
)
def test_what_is_released_does_not_name_the_blocks_of_rows(
    owner: es.Owner, table: es.EncryptedTable, ledger: es.Ledger, question: Any, tmp_path: Path
) -> None:
    """Their ids are hashes of the rows, the same whenever these are encrypted: no noise is on them.
    The ledger keeps them.
    """
    answer = question.fit(table) if hasattr(question, "fit") else table.ask(question)
    found = owner.release(answer, SCHEMA, epsilon=1.0, delta=0, ledger=ledger)
    found.save(tmp_path / "released")
    data, again = (tmp_path / "released").read_bytes(), es.load(tmp_path / "released")
    assert found.source.block_ids == ()
    assert [module.source_of(one, owner).answer.block_ids for one in (found.result, again)] == [
        (),
        (),
    ]
    assert not any(one.encode() in data for one in table.blocks.ids)
    assert ledger.entries()[-1].content["blocks"] == sorted(table.blocks.ids)


def test_predictions_and_large_deltas_are_refused(
    owner: es.Owner, table: es.EncryptedTable
) -> None:
    votes = es.MultinomialNB().fit(SCHEMA.table(FRAME)).predict_votes(table)
    with pytest.raises(es.ParameterError, check=error("single-row-predictions")):
        owner.release(votes, SCHEMA, epsilon=1.0)
    forest = es.CompletelyRandomForest(n_trees=30).fit(SCHEMA.table(FRAME))
    with pytest.raises(es.ParameterError, check=error("delta-too-large", "delta=0.01", "300")):
        owner.release(forest, epsilon=1.0, delta=0.01)


def test_without_a_ledger_it_says_so(owner: es.Owner, table: es.EncryptedTable) -> None:
    assert "spent from no ledger" in str(owner.release(table.counts("sex"), SCHEMA, epsilon=1.0))


# -- ranges and encodings
# ----------------------------------------------------------------------------


@pytest.mark.parametrize(("bits", "bound"), [(31, 4), (31, 1), (30, 16), (61, 1)])
def test_a_range_that_would_wrap_at_64_bits_is_refused_before_anything_is_spent(
    owner: es.Owner, ledger: es.Ledger, bits: int, bound: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Squares up to 2^62 with weights up to 4 have a range of 2^64, which is 0 in 64 bits: no noise
    at all.
    """
    frame = pd.DataFrame({"x": [0, 1, 2, 3] * 10, "sick": [0, 1] * 20})
    schema = es.Schema.infer(
        frame, target="sick", kinds={"x": "number"}, bounds={"x": (-(1 << bits), 1 << bits)}
    )
    result = schema.table(frame).ask(es.Covariance(["x"]))
    monkeypatch.setattr(
        module.AnswerSource, "open_with", lambda *args: pytest.fail("it was opened")
    )
    with pytest.raises(es.ParameterError) as refused:
        owner.release(result, epsilon=0.1, ledger=ledger, max_weight=bound)
    assert [cure.action for cure in refused.value.cures] == ["narrower bounds"]
    assert len(ledger.entries()) == 1


@pytest.mark.parametrize("relation", ["replace", "add"])
def test_a_total_of_2_to_the_62_is_refused_before_anything_is_spent(
    owner: es.Owner, tmp_path: Path, relation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One row moves the sum of squares by 2^58 at most, and sixteen rows together by 2^62."""
    book = es.Ledger.begin(tmp_path / "ledger", owner, epsilon=3.0, relation=relation)
    frame = pd.DataFrame({"x": [0, 1 << 29] * 8, "sick": [0, 1] * 8})
    schema = es.Schema.infer(
        frame, target="sick", kinds={"x": "number"}, bounds={"x": (-(1 << 29), 1 << 29)}
    )
    owner.release(schema.table(frame[:15]).ask(es.Covariance(["x"])), epsilon=0.1, ledger=book)
    assert len(book.entries()) == 2
    monkeypatch.setattr(
        module.AnswerSource, "open_with", lambda *args: pytest.fail("it was opened")
    )
    for rows, most in ((frame, None), (frame[:4], 4)):
        with pytest.raises(es.ParameterError) as refused:
            owner.release(
                schema.table(rows).ask(es.Covariance(["x"])),
                epsilon=0.1,
                ledger=book,
                max_weight=most,
            )
        assert [cure.action for cure in refused.value.cures] == ["narrower bounds"]
    assert len(book.entries()) == 2


def test_a_total_is_bounded_by_rows_that_there_can_be(owner: es.Owner) -> None:
    """Numbers far from 0 and near to each other are small around their middle."""
    frame = pd.DataFrame({"x": [1 << 30, (1 << 30) + 100] * 8, "sick": [0, 1] * 8})
    schema = es.Schema.infer(
        frame, target="sick", kinds={"x": "number"}, bounds={"x": (1 << 30, (1 << 30) + 100)}
    )
    assert (
        owner.release(schema.table(frame).ask(es.Covariance(["x"])), epsilon=5.0).result is not None
    )


class LastDigit(Counts):
    """Counts that are none: a digit of a number in place of a cell."""

    def totals(self, schema: Any, columns: Any = None, fold: Any = None) -> Any:
        return {"cells": np.array([column("v0.digit0.bits4").total()], dtype=object)}

    def shapes(self, schema: Any) -> Any:
        return {"cells": (1,)}


def test_an_encoding_without_a_known_sensitivity_is_not_released(owner: es.Owner) -> None:
    """Taken for an indicator that is 1 in every row, it would be released exactly."""
    frame = pd.DataFrame({"x": [0, 100, 200, 255], "sick": [0, 1] * 2})
    schema = es.Schema.infer(
        frame, target="sick", kinds={"x": "number"}, bounds={"x": (0, 255)}
    ).public()
    with pytest.raises(
        es.ParameterError, check=error("known-encoding", "'digit'", "v0.digit0")
    ) as refused:
        release_module.plan_release(LastDigit((0,)), schema, epsilon=1.0)
    assert [cure.action for cure in refused.value.cures] == ["known encoding"]


# -- what a release writes
# ---------------------------------------------------------------------------


def contents(value: Any) -> set[Any]:
    """All numbers and texts in a JSON value."""
    if isinstance(value, dict):
        return {one for key, inner in value.items() for one in ({key} | contents(inner))}
    return (
        {one for inner in value for one in contents(inner)} if isinstance(value, list) else {value}
    )


def test_where_the_number_of_rows_is_not_public_no_entry_of_the_ledger_has_it(
    owner: es.Owner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Noise could hit the number by chance: it is 20 here for every count.
    monkeypatch.setattr(release_module, "add_noise", lambda values, *_: values + 20)
    frame = patients(277)
    table = owner.encrypt(SCHEMA.table(frame))
    table.counts("sex").save(tmp_path / "sex.enc")
    book = es.Ledger.begin(tmp_path / "ledger", owner, epsilon=3.0, relation="add")
    found = owner.release(tmp_path / "sex.enc", SCHEMA, epsilon=0.05, delta=0, ledger=book)
    module.record_opening(tmp_path / "sex.enc", owner, book)
    found.save(tmp_path / "sex.released")
    said = [entry.content for entry in book.entries()]
    assert not any(277 in contents(one) for one in said)
    assert not any("rows" in one for one in said)
    file = container.read(tmp_path / "sex.released")
    totals = json.loads(file.sections["totals"])
    assert found.result["count"].sum() != 277
    assert 277 not in contents([file.fields, totals, sum(totals)])
    assert book.to_frame()["rows"].isna().all()


def test_the_hash_of_a_file_with_exact_totals_is_not_in_the_ledger(
    owner: es.Owner, ledger: es.Ledger, tmp_path: Path
) -> None:
    """Who can guess the totals could write the same file, and compare."""
    es.MultinomialNB().fit(SCHEMA.table(FRAME)).save(tmp_path / "opened")
    owner.release(tmp_path / "opened", epsilon=1.0, ledger=ledger)
    assert ledger.entries()[-1].content["file"] == ""


def test_a_released_table_has_no_standard_errors_intervals_or_tests(owner: es.Owner) -> None:
    frame = pd.DataFrame({"t": pd.Categorical([0, 1, 2] * 40, ordered=True), "e": ["a", "b"] * 60})
    schema = es.Schema.infer(frame)
    curve = owner.release(
        schema.table(frame).ask(es.KaplanMeier("t", "e", event_level="b")), epsilon=5.0
    )
    assert {"std_error", "low", "high"} <= set(curve.result.to_frame())
    assert list(curve.to_frame()) == ["at_risk", "events", "censored", "survival"]
    pairs = pd.DataFrame({"a": list("xyxy") * 30, "b": list("xyxx") * 30})
    kappa = owner.release(es.Schema.infer(pairs).table(pairs).ask(es.Kappa("a", "b")), epsilon=5.0)
    assert list(kappa.to_frame().index) == ["x", "y"]


def test_levels_that_are_called_as_interval_ends_are_written(owner: es.Owner) -> None:
    frame = pd.DataFrame({"risk": ["low", "high"] * 50, "sick": [0, 1, 1, 0] * 25})
    schema = es.Schema.infer(frame, target="sick")
    found = owner.release(
        schema.table(frame).ask(es.ChiSquare("sick", "risk")), epsilon=5.0
    ).to_frame()
    assert set(found) == {"low", "high"}


def test_a_question_whose_columns_are_not_known_writes_no_table(
    owner: es.Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = owner.release(SCHEMA.table(FRAME).ask(es.ChiSquare("sex", "sick")), epsilon=5.0)
    monkeypatch.delitem(WRITTEN, "ChiSquare")
    with pytest.raises(es.ParameterError) as refused:
        found.to_frame()
    assert [cure.action for cure in refused.value.cures] == ["save the release"]


# -- units
# -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "other", [{"max_rows": 4}, {"relation": "add"}, {"max_rows": 2, "relation": "add"}], ids=str
)
def test_a_release_of_another_unit_is_refused_before_anything_is_spent(
    owner: es.Owner,
    table: es.EncryptedTable,
    ledger: es.Ledger,
    other: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Added up, epsilons of a row and of a person would promise one of the two too much."""
    monkeypatch.setattr(
        module.AnswerSource, "open_with", lambda *args: pytest.fail("it was opened")
    )
    with pytest.raises(es.ParameterError) as refused:
        owner.release(table.counts("sex"), SCHEMA, epsilon=0.5, ledger=ledger, **other)
    assert [cure.action for cure in refused.value.cures] == ["unit of the ledger"]
    assert len(ledger.entries()) == 1


def test_the_unit_of_the_ledger_is_that_of_its_releases(
    owner: es.Owner, table: es.EncryptedTable, tmp_path: Path
) -> None:
    book = es.Ledger.begin(tmp_path / "people", owner, epsilon=3.0, max_rows=4, relation="add")
    found = owner.release(table.counts("sex"), SCHEMA, epsilon=0.5, delta=0, ledger=book)
    assert found.privacy.unit == "a person with at most 4 rows"
    assert found.privacy.scale == pytest.approx(8.0)
    with pytest.raises(es.ParameterError):
        owner.release(table.counts("sex"), SCHEMA, epsilon=0.5, ledger=book, max_rows=1)


def test_exact_openings_of_the_same_rows_are_the_first_thing_that_epsilon_does_not_cover(
    owner: es.Owner, table: es.EncryptedTable, ledger: es.Ledger, tmp_path: Path
) -> None:
    other = owner.encrypt(SCHEMA.table(patients(50, seed=9)))
    for place, rows in enumerate((table, other)):
        rows.counts("sex").save(tmp_path / f"{place}.enc")
        module.record_opening(tmp_path / f"{place}.enc", owner, ledger)
    found = owner.release(table.counts("sex"), SCHEMA, epsilon=0.5, ledger=ledger)
    assert found.privacy.not_covered[0].startswith(
        "1 result of the same rows, opened exactly (entry 1 of the ledger)"
    )
    assert ledger.entries()[-1].content["not_covered"][0] == found.privacy.not_covered[0]


def test_exact_openings_are_known_again_where_the_rows_were_encrypted_anew(
    owner: es.Owner, table: es.EncryptedTable, ledger: es.Ledger, tmp_path: Path
) -> None:
    owner.encrypt(SCHEMA.table(FRAME)).counts("sex").save(tmp_path / "sex.enc")
    module.record_opening(tmp_path / "sex.enc", owner, ledger)
    found = owner.release(table.counts("sex"), SCHEMA, epsilon=0.5, ledger=ledger)
    assert found.privacy.not_covered[0].startswith("1 result of the same rows, opened exactly")
