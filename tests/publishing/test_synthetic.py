"""Synthetic rows from released pairs, and the noisy tables that they are drawn from."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.metrics import roc_auc_score

import encryptedstats as es
from effort import one_scheme
from encryptedstats.publishing import graphical
from encryptedstats.publishing.counts import table_of
from encryptedstats.publishing.forms import form_of
from encryptedstats.publishing.synthetic import synthesize
from error_codes import error

pytestmark = pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")
pytest.importorskip("opendp")


def made_up(n: int = 300, seed: int = 8, gaps: bool = False) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    age = rng.integers(20, 80, n)
    smoker = np.where(rng.random(n) < 0.3, "yes", "no")
    ill = ((age > 50) & (smoker == "yes") | (rng.random(n) < 0.1)).astype(int)
    dose = np.round(rng.gamma(2, 2, n) + ill, 1)
    frame = pd.DataFrame({"age": age, "smoker": smoker, "dose": dose, "ill": ill})
    if gaps:
        frame.loc[::9, "smoker"] = None
        frame.loc[::11, "dose"] = np.nan
    return frame


def schema_of(frame: pd.DataFrame) -> es.Schema:
    known = es.Schema.infer(frame, target="ill", bins=4, missing="bin")
    return known.with_bins("age", edges=[35, 50, 65])


def release(frame: pd.DataFrame, owner: es.Owner, epsilon: float, **options: Any) -> Any:
    known = schema_of(frame)
    answer = owner.encrypt(known.table(frame), workers=1).ask(
        es.Pairs().in_ids(known), workers=1, progress=False
    )
    return owner.release(answer, schema=known, epsilon=epsilon, delta=1e-6, **options)


@settings(max_examples=60)
@given(st.integers(1, 5), st.integers(1, 5), st.integers(0, 60), st.integers(0, 999))
def test_tables_have_the_margins_that_they_are_given(n: int, m: int, total: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    table = rng.multinomial(total, rng.dirichlet(np.full(n * m, 0.3))).reshape(n, m)
    near = table + rng.normal(0, 3, (n, m))
    found = table_of(near, table.sum(axis=1), table.sum(axis=0))
    assert (found >= 0).all()
    np.testing.assert_array_equal(found.sum(axis=1), table.sum(axis=1))
    np.testing.assert_array_equal(found.sum(axis=0), table.sum(axis=0))
    np.testing.assert_array_equal(
        table_of(table.astype(float), table.sum(axis=1), table.sum(axis=0)), table
    )


@pytest.mark.parametrize("question", [es.Pairs(), es.AODE(), es.TAN()], ids=lambda q: q.name)
def test_without_noise_the_totals_are_those_of_the_rows(question: Any) -> None:
    frame = made_up()
    known = schema_of(frame)
    asked, public = question.in_ids(known), known.public()
    rows = known.table(frame)
    read = rows.ask(asked) if isinstance(question, es.Pairs) else clone(question).fit(rows)
    exact = (read.source if isinstance(question, es.Pairs) else read.answer_).totals
    form = form_of(asked, public)
    numbers = form.numbers(asked._name_totals(list(exact), public), len(frame))
    named, n = form.totals(np.array(numbers, dtype=object), len(frame))
    found = [int(x) for name in form.shapes for x in np.asarray(named[name], dtype=object).flat]
    assert found == [int(x) for x in exact]
    assert n == len(frame)


@one_scheme
@pytest.mark.parametrize("gaps", [False, True])
def test_synthetic_rows_are_rows_of_the_schema(toy: es.Owner, tmp_path: Path, gaps: bool) -> None:
    frame = made_up(gaps=gaps)
    book = es.Ledger.begin(tmp_path / "ledger", toy, epsilon=50.0, delta=1e-5)
    released = release(frame, toy, 20.0, ledger=book)
    assert book.epsilon_spent > 0
    rows = released.synthesize(random_state=1)
    assert list(rows.columns) == list(frame.columns)
    assert len(rows) == released.result.n_rows
    assert set(rows["smoker"].dropna()) == {"no", "yes"}
    assert set(rows["ill"]) == {0, 1}
    table = schema_of(frame).table(rows)
    drawn = table.ask(es.Pairs())
    for name in ("age", "smoker", "dose"):
        own, other = (
            one.counts(name, "dose" if name == "age" else "age").sum(axis=1)
            for one in (drawn, released.result)
        )
        assert np.abs(own - other).max() <= 4
    assert rows["age"].dtype == np.int64
    assert released.synthesize(random_state=1).equals(rows)
    assert not released.synthesize(random_state=2).equals(rows)
    assert len(released.synthesize(7)) == 7
    shown = released.compare_synthetic(rows).table
    assert list(shown.index) == list(frame.columns)
    assert (shown["alone"] < 0.03).all()
    assert (shown["association"] < 0.1).all()


@one_scheme
def test_synthetic_rows_keep_what_pairs_tell(toy: es.Owner) -> None:
    frame = made_up(600)
    rows = release(frame, toy, 50.0).synthesize(random_state=3)
    for one in (frame, rows):
        smokers = one[one["smoker"] == "yes"]
        assert smokers["ill"].mean() > one["ill"].mean() + 0.05
    shuffled = rows.assign(ill=rows["ill"].sample(frac=1, random_state=0).to_numpy())
    comparison = release(frame, toy, 50.0).compare_synthetic(shuffled).table
    assert comparison.loc["ill", "worst pair"] > comparison.loc["age", "alone"]


@one_scheme
def test_synthetic_rows_follow_the_noise_and_not_the_rows(toy: es.Owner) -> None:
    released = release(made_up(), toy, 0.05)
    again = (
        es.Pairs()
        .in_ids(schema_of(made_up()))
        .interpret(released.source.totals, released.source.schema, released.source.n_rows)
    )
    assert again == released.result
    rows = released.synthesize(random_state=5)
    counted = schema_of(made_up()).table(rows).ask(es.Pairs()).counts("age", "smoker")
    exact = schema_of(made_up()).table(made_up()).ask(es.Pairs()).counts("age", "smoker")
    assert not counted.equals(exact)


@one_scheme
def test_a_classifier_of_synthetic_rows_is_scored_on_real_ones(toy: es.Owner) -> None:
    frame = made_up(600)
    released = release(frame, toy, 50.0)
    rows = released.synthesize(random_state=3)
    shown = released.score_synthetic(rows, frame)
    areas = shown.table["AUC"]
    assert list(areas.index) == ["synthetic rows", "released counts", "real rows, 5 folds"]
    assert areas.min() > 0.8
    assert any("do not publish" in note for note in shown.notes)
    shuffled = rows.assign(ill=rows["ill"].sample(frac=1, random_state=0).to_numpy())
    worse = released.score_synthetic(shuffled, frame).table["AUC"]
    assert worse["synthetic rows"] < 0.65
    assert worse["real rows, 5 folds"] == areas["real rows, 5 folds"]
    model = es.AODE().fit(schema_of(frame).table(rows))
    shares = model.predict_proba(schema_of(frame).table(frame))[:, 1]
    assert areas["synthetic rows"] == pytest.approx(roc_auc_score(frame["ill"], shares))


needs_mbi = pytest.mark.skipif(
    find_spec("mbi") is None, reason="mbi is not installed: pip install 'encryptedstats[mbi]'"
)


def three_that_decide(n: int = 900) -> pd.DataFrame:
    """Rows whose class depends on two variables that depend on each other: no tree has it all."""
    rng = np.random.default_rng(2)
    smoker = np.where(rng.random(n) < 0.4, "yes", "no")
    age = rng.integers(20, 60, n) + 20 * (smoker == "yes")
    ill = (rng.random(n) < 0.15 + 0.35 * (smoker == "yes") + 0.35 * (age > 50)).astype(int)
    return pd.DataFrame({"age": age, "smoker": smoker, "dose": rng.normal(size=n), "ill": ill})


@needs_mbi
@one_scheme
def test_a_field_keeps_more_pairs_than_a_tree(toy: es.Owner, tmp_path: Path) -> None:
    frame = three_that_decide()
    book = es.Ledger.begin(tmp_path / "ledger", toy, epsilon=60.0, delta=1e-5)
    released = release(frame, toy, 50.0, ledger=book)
    graphical._import_mbi()  # which draws from NumPy's global generator
    spent, before = book.epsilon_spent, np.random.get_state()[1].copy()  # noqa: NPY002
    rows = released.synthesize(random_state=1, model="mbi")
    assert book.epsilon_spent == spent
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002
    assert list(rows.columns) == list(frame.columns)
    assert len(rows) == len(frame)
    assert released.synthesize(random_state=1, model="mbi").equals(rows)
    kept = released.compare_synthetic(rows).table["worst pair"]
    by_tree = released.compare_synthetic(released.synthesize(random_state=1)).table["worst pair"]
    assert kept.max() < 0.03
    assert by_tree.max() > 2 * kept.max()


@needs_mbi
def test_a_field_has_no_more_pairs_than_it_can_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    mbi, _ = graphical._import_mbi()
    rng = np.random.default_rng(1)
    tables = {pair: rng.integers(0, 9, (5, 5)) for pair in combinations(range(6), 2)}
    domain, tree = mbi.Domain(list(range(6)), [5] * 6), [(j + 1, j) for j in range(5)]
    assert len(graphical.choose_pairs(mbi, domain, tables, tree)) == 15
    monkeypatch.setattr(graphical, "_MOST_CELLS", 4 * 5**3)
    chosen = graphical.choose_pairs(mbi, domain, tables, tree)
    assert set(chosen) > {(j, j + 1) for j in range(5)}
    assert len(chosen) == 9
    monkeypatch.setattr(graphical, "_MOST_CELLS", 0)
    assert sorted(graphical.choose_pairs(mbi, domain, tables, tree)) == sorted(
        (j, j + 1) for j in range(5)
    )


@one_scheme
def test_without_mbi_an_error_says_what_to_install(
    toy: es.Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mbi", None)
    released = release(made_up(), toy, 5.0)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'encryptedstats\[mbi\]'"):
        released.synthesize(model="mbi")
    assert len(released.synthesize()) == 300
    with pytest.raises(es.ParameterError, check=error("unknown-model")):
        released.synthesize(model="forest")


@one_scheme
def test_what_has_no_synthetic_rows(toy: es.Owner, tmp_path: Path) -> None:
    frame = made_up()
    known = schema_of(frame)
    sealed = toy.encrypt(known.table(frame), workers=1)
    fitted = es.MultinomialNB().fit(sealed, workers=1, progress=False)
    with pytest.raises(es.ParameterError, check=error("not-pairs")):
        toy.release(fitted, schema=known, epsilon=1.0).synthesize()
    released = release(frame, toy, 1.0)
    with pytest.raises(es.ParameterError, check=error("invalid-rows")):
        synthesize(released, 0)
    sealed.ask(es.Pairs(), workers=1, progress=False).save(tmp_path / "pairs.enc")
    with pytest.raises(es.SchemaError, check=error("no-names")):
        toy.release(tmp_path / "pairs.enc", epsilon=1.0).synthesize()


@one_scheme
def test_rows_of_some_variables_are_compared_and_scored(toy: es.Owner) -> None:
    frame = made_up()
    known = schema_of(frame)
    answer = toy.encrypt(known.table(frame), workers=1).ask(
        es.Pairs(["age", "smoker"]).in_ids(known), workers=1, progress=False
    )
    released = toy.release(answer, schema=known, epsilon=50.0, delta=1e-6)
    rows = released.synthesize(random_state=1)
    assert list(rows) == ["age", "smoker", "ill"]
    compared = released.compare_synthetic(rows).table
    assert list(compared.index) == ["age", "smoker", "ill"]
    assert (compared["alone"] < 0.02).all()
    scored = released.score_synthetic(rows, frame).table["AUC"]
    assert (scored > 0.6).all()
