"""Pairs of bins: counts as pandas makes them, associations as scikit-learn and scipy, a tree, and
classifiers without another pass; from encrypted rows.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chi2_contingency
from sklearn.metrics import mutual_info_score

import encryptedstats as es
from effort import one_scheme
from error_codes import error

pytestmark = pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")
NAMES = ["cough", "fever", "grade"]


def made_up(n: int = 90, seed: int = 2) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    cough = rng.choice(["no", "yes"], n)
    fever = np.where(rng.random(n) < 0.7, cough, rng.choice(["no", "yes"], n))
    grade = rng.choice(["I", "II", "III"], n)
    ill = np.where(rng.random(n) < 0.6, fever == "yes", grade == "III").astype(int)
    return pd.DataFrame({"cough": cough, "fever": fever, "grade": grade, "ill": ill})


def schema_of(frame: pd.DataFrame) -> es.Schema:
    return es.Schema.infer(frame, target="ill")


def test_counts_are_those_of_pandas() -> None:
    frame = made_up()
    found = schema_of(frame).table(frame).ask(es.Pairs())
    for one, other in [("cough", "grade"), ("grade", "cough"), ("fever", "cough")]:
        wanted = pd.crosstab(frame[one], frame[other])
        pd.testing.assert_frame_equal(found.counts(one, other), wanted, check_dtype=False)
        by_class = found.counts(one, other, by_class=True)
        for c in (0, 1):
            own = frame[frame["ill"] == c]
            wanted = pd.crosstab(own[one], own[other])
            np.testing.assert_array_equal(by_class.loc[c], wanted)


def test_associations_are_those_of_scikit_learn_and_scipy() -> None:
    frame = made_up()
    found = schema_of(frame).table(frame).ask(es.Pairs())
    assert len(found.associations) == 6
    square = found.mutual_information()
    for one, other in combinations([*NAMES, "ill"], 2):
        line = found.associations.loc[(one, other)]
        assert line["estimate"] == pytest.approx(mutual_info_score(frame[one], frame[other]))
        assert square.loc[other, one] == line["estimate"]
        table = pd.crosstab(frame[one], frame[other])
        wanted = chi2_contingency(table, correction=False, lambda_="log-likelihood")
        assert line["statistic"] == pytest.approx(wanted.statistic)
        assert line["df"] == wanted.dof
        assert line["pvalue"] == pytest.approx(wanted.pvalue)
    assert found.associations["estimate"].is_monotonic_decreasing


def test_the_tree_is_the_strongest() -> None:
    frame = made_up()
    found = schema_of(frame).table(frame).ask(es.Pairs())
    square = found.mutual_information()

    def strength(edges: tuple[tuple[str, str], ...]) -> float:
        return float(sum(square.loc[one, other] for one, other in edges))

    names = [*NAMES, "ill"]
    trees = []
    for edges in combinations(combinations(names, 2), 3):
        linked = {names[0]}
        for _ in edges:
            linked |= {name for edge in edges if linked & set(edge) for name in edge}
        if linked == set(names):
            trees.append(edges)
    best = max(trees, key=strength)
    edges = zip(found.tree.index, found.tree["parent"], strict=True)
    assert {frozenset(edge) for edge in edges} == {frozenset(edge) for edge in best}


@one_scheme
def test_classifiers_need_no_other_pass(toy: es.Owner) -> None:
    frame = made_up()
    known = schema_of(frame)
    table = known.table(frame)
    sealed = toy.encrypt(table, workers=1)
    found = toy.open(sealed.ask(es.Pairs(), workers=1), schema=known)
    assert found == table.ask(es.Pairs())
    rows = frame[NAMES]
    for model in (es.AODE(min_rows=5), es.TAN(alpha=0.5)):
        fitted = found.fit_classifier(model)
        wanted = type(model)(**model.get_params()).fit(table)
        np.testing.assert_array_equal(fitted.predict_proba(rows), wanted.predict_proba(rows))
        assert fitted.totals_ == wanted.totals_


def test_some_variables_of_a_table_with_numbers() -> None:
    frame = made_up().assign(age=np.arange(90))
    known = schema_of(frame).with_kind("age", "number", digits=0)
    table = known.table(frame)
    found = table.ask(es.Pairs())
    assert found.tree.shape[0] == 3
    chosen = table.ask(es.Pairs(["grade", "cough"]))
    assert chosen.counts("grade", "cough").equals(found.counts("grade", "cough"))
    with pytest.raises(es.ArgumentError, check=error("unknown-variable")):
        chosen.counts("grade", "fever")
    fitted = chosen.fit_classifier(es.AODE())
    wanted = es.AODE(variables=["grade", "cough"]).fit(table)
    np.testing.assert_array_equal(fitted.predict_proba(frame), wanted.predict_proba(frame))
    with pytest.raises(es.SchemaError, check=error("cut-into-bins")):
        table.ask(es.Pairs(["grade", "age"]))
    with pytest.raises(es.SchemaError, check=error("too-few-variables")):
        table.ask(es.Pairs(["grade"]))


def test_a_target_that_is_a_number_has_no_classes() -> None:
    frame = made_up()
    weights = frame.assign(ill=50 + np.arange(90))
    known = es.Schema.infer(weights, target="ill", numbers="keep")
    found = known.table(weights).ask(es.Pairs())
    wanted = pd.crosstab(frame["cough"], frame["fever"])
    np.testing.assert_array_equal(found.counts("cough", "fever"), wanted)
    assert len(found.associations) == 3
    with pytest.raises(es.SchemaError, check=error("no-target")):
        found.fit_classifier(es.AODE())


def test_the_tree_is_drawn() -> None:
    plt = pytest.importorskip("matplotlib.pyplot")
    frame = made_up()
    axes = schema_of(frame).table(frame).ask(es.Pairs()).plot()
    assert {text.get_text() for text in axes.texts} == {*NAMES, "ill"}
    assert len(axes.lines) == 3
    plt.close(axes.figure)
