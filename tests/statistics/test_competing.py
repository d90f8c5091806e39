"""Cumulative incidence and Gray's test against R's survival 3.5-3 and cmprsk, restricted means,
from encrypted rows.

The figures are what R printed for ``made_up()``, written there as

    i <- 0:149
    arm <- factor(c("a","b","c")[1 + (i %/% 4) %% 3])
    month <- pmin(12, 1 + (i*i + 3*i) %% 11 + (arm == "b") * (i %% 3))
    end <- c("alive","relapse","death")[1 + (5*i + (arm == "c") * (i %% 2)) %% 7 %% 3]
    summary(survfit(Surv(month, factor(end, levels=c("alive","relapse","death"))) ~ 1))
    cuminc(month, end, arm, cencode="alive")$Tests
    survival:::survmean(survfit(Surv(month, end != "alive") ~ arm), rmean=8)
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import encryptedstats as es
from effort import one_scheme
from error_codes import error

pytestmark = pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")
CAUSES = ["relapse", "death"]


def made_up() -> pd.DataFrame:
    i = np.arange(150)
    arm = np.array(list("abc"))[i // 4 % 3]
    end = np.array(["alive", *CAUSES])[(5 * i + (arm == "c") * (i % 2)) % 7 % 3]
    return pd.DataFrame(
        {
            "month": np.minimum(12, 1 + (i * i + 3 * i) % 11 + (arm == "b") * (i % 3)),
            "arm": arm,
            "other": np.where(arm == "a", "a", "b or c"),
            "end": end,
        }
    )


def schema_of(frame: pd.DataFrame) -> es.Schema:
    known = es.Schema.infer(frame, target="end", classes=["alive", *CAUSES])
    return known.with_kind("month", "ordinal", levels=range(1, 13))


def ask(frame: pd.DataFrame, *names: str, **options: Any) -> Any:
    return schema_of(frame).table(frame).ask(es.CumulativeIncidence("month", *names, **options))


def test_survfit_of_r() -> None:
    curves = ask(made_up()).curves
    assert list(dict.fromkeys(curves.index.get_level_values("end"))) == CAUSES
    relapse, death = curves.loc["relapse"], curves.loc["death"]
    assert list(relapse.index) == [1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12]
    ends = [0, 4, 10]
    for curve, name, of_r in (
        (relapse, "incidence", [0.02666666666667, 0.07735952268279, 0.43104948648618]),
        (death, "incidence", [0.06, 0.13952856282900, 0.42159844935036]),
        (relapse, "std_error", [0.01315435429951, 0.02244851931659, 0.05473634441938]),
        (death, "std_error", [0.01939071942967, 0.02901706728345, 0.05201980953185]),
        (relapse, "low", [0.01014100464830, 0.04380346371814, 0.33607657401619]),
        (relapse, "high", [0.07012235333416, 0.13662151897888, 0.55286108632806]),
    ):
        np.testing.assert_allclose(curve[name].iloc[ends], of_r, rtol=1e-10)


def test_groups_have_curves_of_their_own() -> None:
    found = ask(made_up(), by="arm").curves
    at = found.loc[("c", "death", 5)]
    alone = ask(made_up()[made_up()["arm"] == "c"]).curves.loc[("death", 5)]
    assert at.equals(alone)
    shares = ask(made_up(), by="arm").incidence_at([3, 9])
    np.testing.assert_allclose(shares["c", "death"], [0.125, 0.31761977058030])
    errors = found["std_error"]
    assert errors["b", "relapse", 9] == pytest.approx(0.06305938738111, rel=1e-10)
    assert errors["c", "death", 8] == pytest.approx(0.07108537676149, rel=1e-10)


def test_cuminc_of_r() -> None:
    tests = ask(made_up(), by="arm").tests
    np.testing.assert_allclose(tests["statistic"], [0.1706515481536, 1.7443017747336], rtol=1e-10)
    np.testing.assert_allclose(tests["pvalue"], [0.9182131056450, 0.4180514000598], rtol=1e-9)
    assert list(tests["df"]) == [2, 2]
    tests = ask(made_up(), by="other").tests
    np.testing.assert_allclose(tests["statistic"], [0.1572398859660, 0.1138892309641], rtol=1e-10)


@one_scheme
def test_encrypted_is_clear(toy: es.Owner) -> None:
    frame = made_up()
    known = schema_of(frame)
    sealed = toy.encrypt(known.table(frame), workers=1)
    answer = sealed.ask(es.CumulativeIncidence("v0", by="v1"), workers=1)
    assert toy.open(answer, schema=known) == ask(frame, by="arm")


def test_one_cause_is_what_kaplan_and_meier_leave() -> None:
    frame = made_up().assign(end=lambda f: f["end"].where(f["end"] == "alive", "death"))
    known = schema_of(frame).with_classes(["alive", "death"])
    table = known.table(frame)
    found = table.ask(es.CumulativeIncidence("month")).curves.loc["death"]
    curve = table.ask(es.KaplanMeier("month")).curves
    np.testing.assert_allclose(found["incidence"], 1 - curve["survival"], rtol=1e-12)
    np.testing.assert_allclose(found["std_error"], curve["std_error"], rtol=1e-9)


def test_restricted_means_of_r() -> None:
    frame = made_up().assign(end=lambda f: np.where(f["end"] == "alive", "no", "yes"))
    known = es.Schema.infer(frame, target="end").with_kind("month", "ordinal", levels=range(1, 13))
    found = known.table(frame).ask(es.KaplanMeier("month", by="arm")).restricted_mean(8)
    assert list(found.index) == list("abc")
    np.testing.assert_allclose(
        found["estimate"], [6.877866319727, 7.188732954545, 6.592543859649], rtol=1e-11
    )
    np.testing.assert_allclose(
        found["std_error"], [0.3024911185496, 0.2667687335665, 0.3623071359820], rtol=1e-11
    )
    assert (found["low"] < found["estimate"]).all()
    assert (found["estimate"] < found["high"]).all()


def test_a_cause_without_events_has_no_test() -> None:
    frame = made_up()
    frame.loc[frame["end"] == "death", "end"] = "alive"
    found = ask(frame, by="arm")
    assert list(found.tests.index) == ["relapse"]
    assert not found.curves.loc[("a", "death"), "incidence"].any()


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, check=error("no-events")):
        ask(made_up().assign(end="alive"))
    with pytest.raises(ValueError, check=error("unknown-level")):
        ask(made_up(), censored="lost")
    with pytest.raises(ValueError, check=error("same-variable-twice")):
        ask(made_up(), by="month")


def test_the_curves_are_drawn() -> None:
    plt = pytest.importorskip("matplotlib.pyplot")
    axes = ask(made_up(), by="arm").plot()
    assert len(axes.get_legend().get_texts()) == 6
    plt.close(axes.figure)
