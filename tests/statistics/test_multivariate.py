"""Covariances, correlations, components and discriminants are those of scipy and scikit-learn, from
clear and encrypted rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.decomposition import PCA as PlainPCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.utils.estimator_checks import parametrize_with_checks

import encryptedstats as es
from effort import examples
from error_codes import error
from insecure import insecure_parameters

CLOSE = 1e-10  # the condition numbers of these tables are below 10^5


@pytest.fixture(scope="module")
def keys() -> es.Owner:
    """A small insecure ring whose totals may be as large as a hundred millions."""
    return es.Owner(insecure_parameters("bgv", 1 << 27, (55,) * 5))


def iris(digits: int = 1) -> tuple[es.Schema, es.Table]:
    frame = load_iris(as_frame=True).frame
    frame.columns = ["sl", "sw", "pl", "pw", "kind"]
    frame["kind"] = frame["kind"].map({0: "setosa", 1: "versicolor", 2: "virginica"})
    schema = es.Schema.infer(frame, target="kind")
    for name in schema.names:
        schema = schema.with_kind(name, "number", digits=digits)
    return schema, schema.table(frame, slots=1024)


def numbers(frame: pd.DataFrame, digits: int = 0) -> tuple[es.Schema, es.Table]:
    schema = es.Schema.infer(frame, kinds={str(name): "continuous" for name in frame})
    for name in schema.names:
        schema = schema.with_kind(name, "number", digits=digits)
    return schema, schema.table(frame, slots=1024)


# -- covariances and correlations
# --------------------------------------------------------------------------------------------


def test_a_covariance_matrix_is_that_of_pandas_from_encrypted_rows(keys: es.Owner) -> None:
    schema, table = iris()
    answer = keys.encrypt(table).ask(es.Covariance())
    result = keys.open(answer, schema=schema)
    plain = table.to_pandas()[list(schema.names)]
    pd.testing.assert_frame_equal(result.covariance, plain.cov(), rtol=1e-14)
    np.testing.assert_allclose(result.means, plain.mean(), rtol=1e-15)
    assert result == table.ask(es.Covariance())
    low, high = result.variances.loc["sl", ["low", "high"]]
    wanted = 149 * plain["sl"].var() / stats.chi2.ppf([0.975, 0.025], 149)
    np.testing.assert_allclose([low, high], wanted, rtol=1e-12)


def test_some_variables_in_an_order() -> None:
    _schema, table = iris()
    result = table.ask(es.Covariance(["v3", "v0"]))
    assert list(result.covariance.columns) == ["pw", "sl"]
    with pytest.raises(TypeError, check=error("not-a-list", "'pw'")):
        es.Covariance("pw")  # type: ignore[arg-type]
    with pytest.raises(es.SchemaError, check=error("unknown-variable", "'petals'")):
        table.ask(es.Covariance(["petals"]))


def test_the_totals_are_those_of_moments() -> None:
    schema, _table = iris()
    public = schema.public()
    assert es.Covariance().circuit(public) == es.Correlation().circuit(public)
    from encryptedstats.tables.questions.summaries import Moments

    assert es.Covariance().circuit(public) == Moments((0, 1, 2, 3)).circuit(public)


def test_correlations_are_those_of_scipy_from_encrypted_rows(keys: es.Owner) -> None:
    schema, table = iris()
    result = keys.open(keys.encrypt(table).ask(es.Correlation(confidence=0.9)), schema=schema)
    plain = table.to_pandas()
    for (a, b), pair in result.pairs.iterrows():
        wanted = stats.pearsonr(plain[a], plain[b])
        interval = wanted.confidence_interval(0.9)
        np.testing.assert_allclose(
            pair[["estimate", "low", "high"]].astype(float),
            [wanted.statistic, *interval],
            rtol=CLOSE,
        )
        np.testing.assert_allclose(pair["pvalue"], wanted.pvalue, rtol=1e-8)
        assert result.correlation.loc[a, b] == pair["estimate"]
        assert result.pvalues.loc[b, a] == pair["pvalue"]
    assert "Fisher's z" in str(result)
    assert "sl, sw" in str(result)


def test_correlations_of_constant_and_equal_columns() -> None:
    _schema, table = numbers(
        pd.DataFrame({"a": [1, 2, 3, 5], "b": [1, 2, 3, 5], "c": [7, 7, 7, 7]})
    )
    result = table.ask(es.Correlation())
    assert result.correlation.loc["a", "b"] == 1.0
    assert np.isnan(result.correlation.loc["a", "c"])
    assert result.pairs.loc[("a", "b"), "pvalue"] == 0.0
    assert "constant: c" in result.notes


def test_nearly_equal_columns_are_told_apart() -> None:
    """In floating point the variance of the difference would be lost."""
    x = np.arange(100) + 10_000_000
    _, table = numbers(pd.DataFrame({"a": x, "b": x + (np.arange(100) == 50)}))
    result = table.ask(es.Correlation())
    wanted = stats.pearsonr(x - x.mean(), x - x.mean() + (np.arange(100) == 50))
    np.testing.assert_allclose(result.correlation.loc["a", "b"], wanted.statistic, rtol=1e-14)
    assert np.isfinite(result.pairs["statistic"]).all()


def test_mahalanobis_distances_are_those_of_scipy() -> None:
    schema, table = iris()
    result = table.ask(es.Covariance())
    plain = table.to_pandas()[list(schema.names)]
    inverse = np.linalg.inv(plain.cov())
    deviations = (plain - plain.mean()).to_numpy()
    wanted = np.einsum("ij,jk,ik->i", deviations, inverse, deviations)
    np.testing.assert_allclose(result.mahalanobis(table), wanted, rtol=1e-9)
    np.testing.assert_allclose(result.mahalanobis(plain.head()), wanted[:5], rtol=1e-9)
    with pytest.raises(es.SchemaError, check=error("missing-column", "'sw'")):
        result.mahalanobis(plain[["sl"]])


def test_a_distance_needs_columns_that_do_not_depend_on_each_other() -> None:
    _, table = numbers(pd.DataFrame({"a": [1, 2, 3, 5], "b": [2, 4, 6, 10]}))
    with pytest.raises(ValueError, check=error("singular-matrix")):
        table.ask(es.Covariance()).mahalanobis(table)


def gappy() -> tuple[es.Schema, es.Table, pd.DataFrame]:
    """Three numbers, two of which may be missing; and the rows where none is."""
    rng = np.random.default_rng(4)
    frame = pd.DataFrame(rng.integers(0, 40, (60, 3)), columns=["a", "b", "c"]).astype(float)
    frame.loc[[3, 9], "a"] = np.nan
    frame.loc[[9, 20], "b"] = np.nan
    schema = es.Schema.infer(frame, numbers="keep", digits=0, missing="bin")
    return schema, schema.table(frame), frame.dropna()


def test_rows_with_gaps_are_left_out_and_counted(keys: es.Owner) -> None:
    schema, table, complete = gappy()
    sealed, note = keys.encrypt(table), "3 rows were left out because a or b is missing"
    covariance = keys.open(sealed.ask(es.Covariance()), schema=schema)
    pd.testing.assert_frame_equal(covariance.covariance, complete.cov(), rtol=1e-14)
    correlation = keys.open(sealed.ask(es.Correlation()), schema=schema)
    pd.testing.assert_frame_equal(correlation.correlation, complete.corr(), rtol=1e-14)
    moments = keys.open(sealed.moments(["a", "c"]), schema=schema)
    assert moments.loc["count"].tolist() == [58, 58]
    assert np.isclose(
        moments.loc["cov(a)", "c"], table.to_pandas()[["a", "c"]].dropna().cov().loc["a", "c"]
    )
    model = keys.open(es.PCA().fit(sealed), schema=schema)
    np.testing.assert_allclose(
        model.explained_variance_, PlainPCA().fit(complete).explained_variance_
    )
    for result in (covariance, correlation, model.summary()):
        assert result.n_rows == 57
        assert note in result.notes
    scores = model.transform(table)
    assert np.isnan(scores).any(axis=1).nonzero()[0].tolist() == [3, 9, 20]
    with pytest.raises(ValueError, match="61 rows are counted, of 60"):
        es.Covariance().read(
            {"complete": [61], "sums": np.array([1]), "products": np.array([1])}, schema, 60
        )


def test_one_row_has_no_covariance() -> None:
    _, table = numbers(pd.DataFrame({"a": [1], "b": [2]}))
    assert table.ask(es.Covariance()).covariance.isna().all(axis=None)
    assert table.ask(es.Correlation()).pairs["pvalue"].isna().all()


def test_what_is_no_number_is_refused() -> None:
    frame = pd.DataFrame({"a": list("xyxy"), "b": [1, 2, 3, 4]})
    schema = es.Schema.infer(frame)
    with pytest.raises(es.SchemaError, check=error("no-numbers")):
        schema.table(frame).ask(es.Covariance())
    with pytest.raises(es.SchemaError, check=error("keep-numbers")):
        schema.table(frame).ask(es.Covariance(["v0"]))
    with pytest.raises(
        es.ParameterError, check=error("confidence-out-of-range", "confidence=2", "0", "1")
    ):
        es.Covariance(confidence=2)


# -- principal components
# ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_components", [None, 2])
def test_components_are_those_of_scikit_learn_from_encrypted_rows(
    keys: es.Owner, n_components: int | None
) -> None:
    schema, table = iris()
    model = keys.open(es.PCA(n_components).fit(keys.encrypt(table)), schema=schema)
    plain = table.to_pandas()[list(schema.names)]
    wanted = PlainPCA(n_components).fit(plain)
    for name in (
        "components_",
        "explained_variance_",
        "explained_variance_ratio_",
        "mean_",
        "singular_values_",
    ):
        np.testing.assert_allclose(
            getattr(model, name), getattr(wanted, name), rtol=1e-9, atol=1e-12, err_msg=name
        )
    np.testing.assert_allclose(model.noise_variance_, wanted.noise_variance_, rtol=1e-9)
    np.testing.assert_allclose(model.transform(plain), wanted.transform(plain), atol=1e-10)
    assert model.get_feature_names_out()[0] == "pca0"


def test_standardized_components_are_those_of_the_correlations() -> None:
    schema, table = iris()
    model = es.PCA(standardized=True).fit(table)
    plain = table.to_pandas()[list(schema.names)]
    wanted = PlainPCA().fit((plain - plain.mean()) / plain.std())
    np.testing.assert_allclose(model.components_, wanted.components_, atol=1e-10)
    np.testing.assert_allclose(model.explained_variance_, wanted.explained_variance_, rtol=1e-10)
    np.testing.assert_allclose(
        model.transform(table), wanted.transform((plain - plain.mean()) / plain.std()), atol=1e-10
    )


def test_components_are_printed_and_drawn() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    _schema, table = iris()
    result = es.PCA().fit(table).summary()
    assert "Proportion of variance" in str(result)
    assert "loadings:" in str(result)
    assert len(result.plot().lines[0].get_xdata()) == 4
    assert result.biplot().get_xlabel() == "pca0 (92% of the variance)"
    assert table.ask(es.Correlation()).plot().images[0].get_array().shape == (4, 4)
    with pytest.raises(ValueError, check=error("one-component")):
        es.PCA(1).fit(table).summary().biplot()


def test_components_that_cannot_be() -> None:
    _, table = numbers(pd.DataFrame({"a": [1, 2, 3, 5], "b": [2, 2, 2, 2]}))
    with pytest.raises(
        es.ParameterError, check=error("components-out-of-range", "n_components=3", "1", "2")
    ):
        es.PCA(3).fit(table)
    with pytest.raises(ValueError, check=error("constant-variable")):
        es.PCA(standardized=True).fit(table)


def test_models_of_parts_add_up_to_the_model_of_all() -> None:
    _, table = iris()
    parts = es.PCA().fit(table[:60]) + es.PCA().fit(table[60:])
    assert parts.totals_ == es.PCA().fit(table).totals_


def test_an_opened_model_is_stored(tmp_path: Any) -> None:
    _, table = iris()
    es.PCA(2).fit(table).save(tmp_path / "pca")
    loaded = es.load(tmp_path / "pca")
    np.testing.assert_array_equal(loaded.components_, es.PCA(2).fit(table).components_)


# -- discriminants
# ------------------------------------------------------------------------------------------------

DISCRIMINANTS = (es.LinearDiscriminant, es.QuadraticDiscriminant)


@pytest.mark.parametrize("kind", [es.LinearDiscriminant, es.QuadraticDiscriminant])
def test_discriminants_do_not_mind_where_numbers_start(kind: Any) -> None:
    X, y = load_iris(return_X_y=True)
    wanted = kind().fit(X, y).decision_function(X)
    far = (np.round(X * 10).astype(int) + 10**9) / 10  # exact in tenths
    found = kind().fit(far, y).decision_function(far)
    differences = [one - one[:, :1] for one in (found, wanted)]  # log-odds are up to a constant
    np.testing.assert_allclose(*differences, rtol=1e-6, atol=1e-6)


def normal_posterior(model: Any, X: Any, y: Any, priors: Any, unbiased: bool) -> Any:
    """Probabilities by the definition: densities of normal distributions with the means and
    covariances of the classes.
    """
    classes = np.unique(y)
    less = len(classes) if isinstance(model, es.LinearDiscriminant) else 1
    groups = [X[y == label] for label in classes]
    scatters = [(len(group) - 1) * np.cov(group.T) for group in groups]
    if isinstance(model, es.LinearDiscriminant):
        found = [sum(scatters) / (len(X) - less * unbiased)] * len(classes)
    else:
        found = [one / (len(group) - unbiased) for one, group in zip(scatters, groups, strict=True)]
    priors = [len(group) / len(X) for group in groups] if priors is None else priors
    each = zip(priors, groups, found, strict=True)
    densities = np.column_stack(
        [p * stats.multivariate_normal(g.mean(axis=0), s).pdf(X) for p, g, s in each]
    )
    return densities / densities.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("ours", DISCRIMINANTS, ids=lambda one: one.__name__)
@pytest.mark.parametrize(("priors", "unbiased"), [(None, False), ([0.2, 0.3, 0.5], True)])
def test_discriminants_are_posteriors_of_normal_classes_from_encrypted_rows(
    keys: es.Owner, ours: Any, priors: Any, unbiased: bool
) -> None:
    schema, table = iris()
    model = keys.open(ours(priors, unbiased).fit(keys.encrypt(table)), schema=schema)
    plain = table.to_pandas()
    X, y = plain[list(schema.names)].to_numpy(), plain["kind"].to_numpy()
    np.testing.assert_allclose(
        model.predict_proba(plain), normal_posterior(model, X, y, priors, unbiased), atol=1e-10
    )
    np.testing.assert_allclose(
        model.means_, [X[y == label].mean(axis=0) for label in model.classes_], rtol=1e-12
    )
    assert (model.predict(plain) == model.classes_[model.predict_proba(plain).argmax(axis=1)]).all()
    assert model.totals_ == ours(priors, unbiased).fit(table).totals_


@pytest.mark.parametrize("load", [load_wine, load_breast_cancer])
def test_discriminants_are_those_of_scikit_learn(load: Any) -> None:
    X, y = load(return_X_y=True)
    X = X[:, :8]
    # Its solver "svd" divides by n or n less the classes, as its version has it; this one has
    # always divided by n.
    wanted = LinearDiscriminantAnalysis(solver="lsqr").fit(X, y)
    model = es.LinearDiscriminant().fit(X, y)
    np.testing.assert_allclose(model.covariance_, wanted.covariance_, rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(model.predict_proba(X), wanted.predict_proba(X), atol=1e-7)
    wanted = QuadraticDiscriminantAnalysis(store_covariance=True, tol=1e-12).fit(X, y)
    below = np.bincount(y)[0] * np.cov(X[y == 0].T, bias=True)[0, 0] / wanted.covariance_[0][0, 0]
    model = es.QuadraticDiscriminant(unbiased=round(below) < np.bincount(y)[0]).fit(X, y)
    np.testing.assert_allclose(model.predict_proba(X), wanted.predict_proba(X), atol=1e-7)


def test_collinear_predictors() -> None:
    _schema, table = iris()
    frame = table.to_pandas().assign(twice=lambda rows: 2 * rows["sl"])
    X, y = frame.drop(columns="kind"), frame["kind"]
    with pytest.warns(
        UserWarning, match="collinear or constant within classes, and left out: twice"
    ):
        model = es.LinearDiscriminant().fit(X, y)
    np.testing.assert_allclose(
        model.predict_proba(X),
        es.LinearDiscriminant()
        .fit(X.drop(columns="twice"), y)
        .predict_proba(X.drop(columns="twice")),
    )
    with pytest.raises(ValueError, check=error("singular-matrix")):
        es.QuadraticDiscriminant().fit(X, y)


def test_priors_that_are_none() -> None:
    _, table = iris()
    with pytest.raises(es.ParameterError, check=error("invalid-priors", "0.5", "3", "1")):
        es.LinearDiscriminant([0.5, 0.5]).fit(table)


@settings(
    max_examples=examples(5),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.integers(0, 2**32), st.sampled_from([2, 30, 1024, 1500]), st.integers(1, 4))
def test_encrypted_is_clear(keys: es.Owner, seed: int, n: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.integers(-99, 100, (n, k)), columns=[f"x{j}" for j in range(k)])
    schema, table = numbers(frame)
    sealed = keys.encrypt(table, workers=1)
    for question in (es.Covariance(), es.Correlation()):
        assert keys.open(sealed.ask(question, workers=1), schema=schema) == table.ask(question)


#: scikit-learn's checks that do not apply, and why.
NOT_APPLICABLE: dict[str, dict[str, str]] = {}


@pytest.mark.filterwarnings("ignore::UserWarning")
@parametrize_with_checks(
    [es.LinearDiscriminant(), es.PCA()],
    expected_failed_checks=lambda model: NOT_APPLICABLE.get(type(model).__name__, {}),
)
def test_scikit_learn_is_content(estimator: Any, check: Any) -> None:
    check(estimator)
