"""Elastic net from totals against scikit-learn's coordinate descent on the rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import ElasticNet, LinearRegression
from sklearn.linear_model import Ridge as PlainRidge

import encryptedstats as es
from effort import one_scheme
from error_codes import error

pytestmark = pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")


def made_up(n: int = 60, seed: int = 4) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    x, z, w = rng.integers(0, 16, (3, n))
    group = rng.choice(["a", "b", "c"], n)
    y = 2 * x - z + 3 * (group == "b") + rng.integers(-3, 4, n)
    return pd.DataFrame({"x": x, "z": z, "w": w, "g": group, "y": y - y.min()})


def schema_of(frame: pd.DataFrame) -> es.Schema:
    return es.Schema.infer(frame, target="y", numbers="keep")


def matrix_of(frame: pd.DataFrame) -> np.ndarray[Any, Any]:
    levels = [(frame["g"] == level).astype(float) for level in "bc"]
    return np.column_stack([frame[["x", "z", "w"]], *levels])


def plain(frame: pd.DataFrame, alpha: float, l1_ratio: float, **options: Any) -> ElasticNet:
    model = ElasticNet(alpha=alpha, l1_ratio=l1_ratio, tol=1e-13, max_iter=10**6, **options)
    return model.fit(matrix_of(frame), frame["y"])


@pytest.mark.parametrize(("alpha", "l1_ratio"), [(0.5, 0.5), (2.0, 1.0), (0.01, 0.9)])
def test_scikit_learn_finds_the_same(alpha: float, l1_ratio: float) -> None:
    frame = made_up()
    table = schema_of(frame).table(frame)
    model = es.ElasticNet(alpha, l1_ratio, "y ~ x + z + w + g").fit(table)
    wanted = plain(frame, alpha, l1_ratio)
    np.testing.assert_allclose(model.coef_, wanted.coef_, atol=1e-7)
    assert model.intercept_ == pytest.approx(wanted.intercept_, abs=1e-6)
    through_0 = es.ElasticNet(alpha, l1_ratio, "y ~ x + z + w - 1").fit(table)
    numbers = frame[["x", "z", "w"]].to_numpy(dtype=float)
    wanted = ElasticNet(
        alpha=alpha, l1_ratio=l1_ratio, tol=1e-13, max_iter=10**6, fit_intercept=False
    ).fit(numbers, frame["y"])
    np.testing.assert_allclose(through_0.coef_, wanted.coef_, atol=1e-7)
    assert through_0.intercept_ == 0


@one_scheme
def test_encrypted_is_clear(toy: es.Owner) -> None:
    frame = made_up()
    known = schema_of(frame)
    model = es.ElasticNet(0.5, 0.7, "y ~ x + z + g")
    sealed = toy.encrypt(known.table(frame), workers=1)
    opened = toy.open(model.fit(sealed, workers=1), schema=known)
    clear = es.ElasticNet(0.5, 0.7, "y ~ x + z + g").fit(known.table(frame))
    assert opened.totals_ == clear.totals_
    np.testing.assert_array_equal(opened.coef_, clear.coef_)
    np.testing.assert_allclose(opened.predict(frame), clear.predict(frame))


def test_without_the_first_penalty_it_is_ridge() -> None:
    frame = made_up()
    found = es.ElasticNet(0.3, 0.0, "y ~ x + z + w + g").fit(schema_of(frame).table(frame))
    ridge = PlainRidge(alpha=0.3 * len(frame)).fit(matrix_of(frame), frame["y"])
    np.testing.assert_allclose(found.coef_, ridge.coef_, atol=1e-7)
    none = es.ElasticNet(0.0, 0.5, "y ~ x + z + w + g").fit(schema_of(frame).table(frame))
    least = LinearRegression().fit(matrix_of(frame), frame["y"])
    np.testing.assert_allclose(none.coef_, least.coef_, atol=1e-9)


def test_the_path_begins_where_all_coefficients_are_0() -> None:
    frame = made_up()
    model = es.ElasticNet(1.0, 0.8, "y ~ x + z + w + g").fit(schema_of(frame).table(frame))
    path = model.path(n_alphas=5)
    table = path.coefficients.drop(columns="(Intercept)")
    assert not table.iloc[0].any()
    assert np.abs(table.iloc[-1]).gt(0.1).sum() >= 3
    for alpha in table.index:
        np.testing.assert_allclose(table.loc[alpha], plain(frame, alpha, 0.8).coef_, atol=1e-6)
    slightly_less = model.path([0.99 * table.index[0]]).coefficients
    assert slightly_less.drop(columns="(Intercept)").to_numpy().any()


@one_scheme
def test_cross_validation_is_that_of_the_rows(toy: es.Owner) -> None:
    frame, alphas = made_up(), [0.05, 0.5, 5.0]
    known = schema_of(frame)
    table = known.table(frame, folds=3)
    sealed = toy.encrypt(table, workers=1)
    answer = es.ElasticNet(1.0, 0.5, "y ~ v0 + v1 + v2 + v3").fit_folds(sealed, workers=1)
    models = toy.open(answer, known)
    found = es.ElasticNet.cross_validate(models, alphas)
    fold = table.fold_codes
    with pytest.raises(es.ArgumentError, check=error("too-few-folds")):
        es.ElasticNet.cross_validate(models[:1])
    for alpha in alphas:
        errors = []
        for k in range(3):
            model = plain(frame[fold != k], alpha, 0.5)
            left = frame[fold == k]
            errors.append(np.mean((model.predict(matrix_of(left)) - left["y"]) ** 2))
        assert found.errors.loc[alpha, "estimate"] == pytest.approx(np.mean(errors), rel=1e-6)
    assert found.best_alpha == found.errors["estimate"].idxmin()


def test_columns_that_depend_on_each_other_share_a_coefficient() -> None:
    frame = made_up().assign(w=lambda f: f["x"])
    with pytest.warns(es.SchemaWarning):
        known = schema_of(frame)
    found = es.ElasticNet(0.5, 0.5, "y ~ x + z + w").fit(known.table(frame))
    assert found.coef_[0] == pytest.approx(found.coef_[2], rel=1e-6)


@pytest.mark.parametrize("options", [{"alpha": -1.0}, {"l1_ratio": 1.5}])
def test_penalties_that_are_refused(options: dict[str, float]) -> None:
    frame = made_up()
    with pytest.raises(es.ParameterError):
        es.ElasticNet(formula="y ~ x", **options).fit(schema_of(frame).table(frame))


def test_a_ridge_path_needs_its_alphas() -> None:
    frame = made_up()
    model = es.ElasticNet(1.0, 0.0, "y ~ x").fit(schema_of(frame).table(frame))
    with pytest.raises(es.ArgumentError, check=error("alphas-missing")):
        model.path()
