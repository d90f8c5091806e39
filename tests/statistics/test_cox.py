"""Cox regression of factors against R's survival 3.5-3, from encrypted rows, and where it has no
estimate.

The figures are what R printed for ``made_up()``, written there as

    i <- 0:149
    arm <- factor(c("a","b","c")[1 + (i %/% 4) %% 3]); sex <- factor(c("f","m")[1 + ((7*i) %/% 5) %%
    2]) site <- factor(c("x","y")[1 + (i %/% 75)]) month <- pmin(12, 1 + (i*i + 3*i) %% 11 + (arm ==
    "b") * (i %% 3) + (site == "y")) died <- as.integer((5*i) %% 7 < 4 + (arm == "c")) f <-
    coxph(Surv(month, died) ~ arm + sex, ties=ties); summary(f); cox.zph(f, transform=...)
    basehaz(f, centered=FALSE)
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import encryptedstats as es
from effort import one_scheme
from encryptedstats.statistics.cox import Stratum, partial_likelihood
from error_codes import error

pytestmark = pytest.mark.filterwarnings(
    "ignore::encryptedstats.InsecureParametersWarning", "ignore:column .* is constant"
)
COVARIATES = ["arm", "sex"]
EFRON: dict[str, Any] = {
    "estimate": [-0.34629738119061, 0.24131402097512, -0.05971580610253],
    "std_error": [0.2650762982654, 0.2513163066226, 0.2090791436808],
    "tests": [5.461191789575, 5.368009608437, 5.480554572050],
    "llf": [-383.2919146684, -380.5613187736],
    "km": [1.2326457640763, 0.1682024352156, 1.4088615680356],
    "log": [0.09338378247431, 1.10761642697128, 1.18399720723844],
    "identity": [0.1579347530241, 0.4191581346949, 0.5589105710812],
    "rank": [0.6693273418349, 0.2285540235300, 0.8964808427627],
    "last_hazards": [0.73406993412029, 1.15861198803716, 2.26875032361667],
}
BRESLOW: dict[str, Any] = {
    "estimate": [-0.35710263316956, 0.19874603247310, -0.06459264533452],
    "std_error": [0.2673770712482, 0.2512902799153, 0.2089174569985],
    "tests": [4.940232701179, 4.821787217566, 4.911105576401],
    "llf": [-392.9453810108, -390.4752646602],
    "km": [0.7980914939240, 0.1465272108334, 0.9553832120644],
    "log": [0.1875979977877, 1.0302979274943, 1.1997709126818],
    "identity": [0.1615527451185, 0.3748420808709, 0.5217633312613],
    "rank": [0.4448472630846, 0.1980060090163, 0.6450386758495],
    "last_hazards": [0.71728387750767, 1.07314021340226, 1.83574286118118],
}
CONCORDANCE = 0.5857581517766


def made_up() -> pd.DataFrame:
    i = np.arange(150)
    arm, site = np.array(list("abc"))[i // 4 % 3], np.array(list("xy"))[i // 75]
    month = 1 + (i * i + 3 * i) % 11 + (arm == "b") * (i % 3) + (site == "y")
    return pd.DataFrame(
        {
            "month": np.minimum(12, month),
            "arm": arm,
            "sex": np.array(list("fm"))[7 * i // 5 % 2],
            "site": site,
            "died": (5 * i % 7 < 4 + (arm == "c")).astype(int),
        }
    )


def schema_of(frame: pd.DataFrame) -> es.Schema:
    known = es.Schema.infer(frame, target="died", classes=[0, 1])
    return known.with_kind("month", "ordinal", levels=range(1, 13))


def ask(frame: pd.DataFrame, **options: Any) -> Any:
    question = es.CoxRegression("month", **{"variables": COVARIATES, **options})
    return schema_of(frame).table(frame).ask(question)


@pytest.mark.parametrize(("ties", "of_r"), [("efron", EFRON), ("breslow", BRESLOW)])
def test_coxph_of_r(ties: str, of_r: dict[str, Any]) -> None:
    found = ask(made_up(), ties=ties)
    assert list(found.coefficients.index) == ["arm[b]", "arm[c]", "sex[m]"]
    for name in ("estimate", "std_error"):
        np.testing.assert_allclose(found.coefficients[name], of_r[name], rtol=1e-8)
    np.testing.assert_allclose(found.tests["statistic"], of_r["tests"], rtol=1e-8)
    np.testing.assert_allclose([found.llf_null, found.llf], of_r["llf"], rtol=1e-10)
    np.testing.assert_allclose(found.baseline["hazard"].iloc[-3:], of_r["last_hazards"], rtol=1e-8)
    assert found.concordance == pytest.approx(CONCORDANCE, rel=1e-10)
    np.testing.assert_allclose(found.hazard_ratios["estimate"], np.exp(of_r["estimate"]))


@pytest.mark.parametrize(("ties", "of_r"), [("efron", EFRON), ("breslow", BRESLOW)])
@pytest.mark.parametrize("transform", ["km", "log", "identity", "rank"])
def test_cox_zph_of_r(ties: str, of_r: dict[str, Any], transform: str) -> None:
    found = ask(made_up(), ties=ties, transform=transform).proportionality
    assert list(found.index) == ["arm", "sex", "GLOBAL"]
    assert list(found["df"]) == [2, 1, 3]
    np.testing.assert_allclose(found["statistic"], of_r[transform], rtol=1e-7)


def test_strata_have_a_baseline_each() -> None:
    found = ask(made_up(), strata="site")
    of_r = [-0.36401065954415, 0.26940720740858, -0.07389533670284]
    np.testing.assert_allclose(found.coefficients["estimate"], of_r, rtol=1e-8)
    np.testing.assert_allclose([found.llf_null, found.llf], [-321.4376133077, -318.4073088764])
    assert found.concordance == pytest.approx(0.58704632635, rel=1e-9)
    np.testing.assert_allclose(
        found.proportionality["statistic"],
        [0.6515830151760, 0.1006887758936, 0.7534545938337],
        rtol=1e-7,
    )
    last = found.baseline.loc["site=y"]["hazard"].iloc[-3:]
    np.testing.assert_allclose(last, [0.6200742120369, 0.9442342766632, 1.9136240985835])


@one_scheme
def test_stratified_log_rank_of_r(toy: es.Owner) -> None:
    """``survdiff(Surv(month, died) ~ arm + strata(site))``."""
    frame = made_up()
    known = schema_of(frame)
    found = known.table(frame).ask(es.LogRank("month", by="arm", strata="site"))
    assert found.statistic == pytest.approx(5.82720435844, rel=1e-11)
    assert list(found.table["observed"]) == [30, 28, 34]
    expected = [28.97542645000, 36.84041016784, 26.18416338216]
    np.testing.assert_allclose(found.table["expected"], expected, rtol=1e-11)
    sealed = toy.encrypt(known.table(frame), workers=1)
    answer = sealed.ask(es.LogRank("v0", by="v1", strata="v3"), workers=1)
    assert toy.open(answer, schema=known) == found
    plain = known.table(frame).ask(es.LogRank("month", by="arm"))
    assert plain.statistic != found.statistic


@one_scheme
def test_encrypted_is_clear(toy: es.Owner) -> None:
    frame = made_up()
    known = schema_of(frame)
    question = es.CoxRegression("v0", variables=["v1", "v2"], strata=["v3"])
    sealed = toy.encrypt(known.table(frame), workers=1)
    found = toy.open(sealed.ask(question, workers=1), schema=known)
    assert found == ask(frame, strata="site")


def test_derivatives_are_those_of_the_value() -> None:
    rng = np.random.default_rng(1)
    events = rng.integers(0, 4, (5, 6)).astype(float)
    at_risk = np.cumsum((events + rng.integers(0, 4, (5, 6)))[::-1], axis=0)[::-1]
    stratum, matrix, beta = Stratum("", events, at_risk), rng.normal(size=(6, 2)), np.ones(2) / 3
    for ties in ("efron", "breslow"):
        found = partial_likelihood(stratum, matrix, beta, ties)
        for k, step in enumerate(np.eye(2) * 1e-5):
            above, below = (
                partial_likelihood(stratum, matrix, beta + sign * step, ties) for sign in (1, -1)
            )
            assert (above.value - below.value) / 2e-5 == pytest.approx(found.score[k], rel=1e-6)
            np.testing.assert_allclose(
                (below.score - above.score) / 2e-5, found.information[k], rtol=1e-6
            )


def test_repeated_rows_count_as_often() -> None:
    frame = made_up()
    twice = pd.concat([frame, frame], ignore_index=True)
    known = schema_of(frame)
    weighted = known.table(frame, weights=np.full(len(frame), 2))
    question = es.CoxRegression("month", variables=COVARIATES)
    assert weighted.ask(question).coefficients.equals(ask(twice).coefficients)


def test_a_level_without_events_has_no_maximum() -> None:
    frame = made_up()
    frame.loc[frame["arm"] == "b", "died"] = 0
    found = ask(frame)
    assert "arm[b]" in " ".join(found.notes)
    assert found.coefficients.loc["arm[b]", "estimate"] < -10
    clean = ask(frame[frame["arm"] != "b"])
    np.testing.assert_allclose(
        found.coefficients.loc["sex[m]", "estimate"],
        clean.coefficients.loc["sex[m]", "estimate"],
        rtol=1e-5,
    )


def test_columns_that_depend_on_others_are_left_out() -> None:
    frame = made_up()
    frame["copy"] = frame["sex"]
    found = ask(frame[[*frame.columns[:-2], "copy", "died"]], variables=["sex", "copy"])
    assert np.isnan(found.coefficients.loc["copy[m]", "estimate"])
    alone = ask(made_up(), variables=["sex"])
    assert found.coefficients.loc["sex[m]", "estimate"] == pytest.approx(
        alone.coefficients.loc["sex[m]", "estimate"]
    )
    in_strata = ask(
        frame[[*frame.columns[:-2], "copy", "died"]], variables=["arm", "copy"], strata=["sex"]
    )
    assert np.isnan(in_strata.coefficients.loc["copy[m]", "estimate"])


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"variables": []}, "no-covariates"),
        ({"variables": ["arm", "arm"]}, "same-variable-twice"),
        ({"strata": ["month"]}, "same-variable-twice"),
        ({"ties": "exact"}, "unknown-ties"),
    ],
)
def test_questions_that_are_refused(options: dict[str, Any], code: str) -> None:
    with pytest.raises(ValueError, check=error(code)):
        ask(made_up(), **options)


def test_rows_without_events_are_refused() -> None:
    with pytest.raises(ValueError, check=error("no-events")):
        ask(made_up().assign(died=0))
