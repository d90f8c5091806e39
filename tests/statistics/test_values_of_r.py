"""Results of small clear tables beside those of R 4.2.2; the calls of R are in the tests.

The rows in R, where ``died`` is the class and all numbers are kept::

    i <- 0:29
    d <- data.frame(x = (i * 7) %% 11 + 1, z = (i * 5) %% 13,
                    g = factor(letters[((i * i) %% 3 + (i %% 7 == 0) + (i %/% 10)) %% 3 + 1]),
                    h = factor(c("u", "v")[(i %/% 2) %% 2 + 1]),
                    y = (i * 11) %% 17 + ifelse((i %/% 2) %% 2 == 1, 3, 0),
                    week = (i * 13) %% 9 + 1, died = as.integer(((i * 29) %/% 7) %% 2),
                    n = (i * 3) %% 5 + 1)
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import encryptedstats as es
from encryptedstats.metrics import wilson_interval

VALUES = """
chisq: 1.67613636364 0.432545315741
stdres: -0.658168090853 0.658168090853 1.29387292377 -1.29387292377 -0.638876565 0.638876565
yates: 0 1
welch: -2.33888271245 27.6325942096 0.0268090723381 -8.19219411553 -0.539948741612
student: -2.33514758173 28 0.0134647783798 -1.18543341389
paired: 2.58515983808 29 0.0150293135315 1.52910583823 5.53756082844
oneway: 160.654545455 3.04378668028 0.0642590696921 712.545454545
welch_anova: 2.79817917827 2 17.8233318386 0.0877294612711
type1: 160.654545455 118.05598614 15.1323255481 579.357142857
type1F: 3.32757534661 4.89049578882 0.313429995324
type2: 136.376603023 118.05598614 15.1323255481
type3: 131.677962459 125.222906253 15.1323255481
lm: 10.0694885548 3.17673745818 3.1697578687 0.0040014248128 0.183903784823 0.368702291927
    0.498786660267 0.622290224031 0.223186904303 0.28447006496 0.78457079248 0.440076795751
    -4.77325153212 2.64020968934 -1.80790622479 0.0826682406085 -4.27044051179 2.72055462264
    -1.56969482482 0.129057859314
lm2: 5.20215246979 0.225194963385 0.101226157526 1.81654539483 190.611013875 199.018198165
    -89.3055069373
wls: 5.79785809906 2.10778058064 2.75069338446 0.0103054794386 0.692101740295 0.302972156486
    2.28437407688 0.0301328511393 9.07096815043
logit: 0.25756774046 0.754461999903 0.341392595642 0.732808048484 -1.60378685099 1.01978784437
    -1.57266715802 0.115795908227 0.512779720834 0.931576208105 0.550443126792 0.582015475401
    -0.137551538712 0.819408803996 -0.167866805972 0.866688064511
logit2: 36.5952153171 41.4553985588 44.5952153171 26 29
poisson: 1.14255223546 0.125210365706 9.12506108429 7.16958153166e-20 -0.234019694619
    0.148336218426 -1.57763017759 0.114650595362 -0.338355001584 0.149063925186 -2.2698651009
    0.0232157691538 0.340857930468 0.126280083033 2.69922162135 0.00695018752995
poisson2: 20.9283772756 38.7740058702 62.7376258131
km: 0.933333333333 0.861538461538 0.824080267559 0.741672240803 0.698044461932 0.59065300625
    0.531587705625 0.379705504018 0.284779128013
kmse: 0.0455420034043 0.0643914594615 0.0716635532182 0.0849463114543 0.0904617989432
    0.10362620311 0.108802273141 0.11949228661 0.12161359437
kmlow: 0.848208058515 0.744141958707 0.694940216723 0.592544456812 0.541468472276 0.418788435564
    0.355922921608 0.204916103052 0.123312334276
kmhigh: 1 0.997455541951 0.977218285886 0.928331547875 0.899897400832 0.833048251015
    0.793951363108 0.703586822285 0.657672666956
kmll: 0.801865757433 0.711741359506 0.66681584899 0.570444715719 0.52182508284 0.402180837277
    0.340777403242 0.191537797241 0.111108966093
logrank: 2.32217875175 5.41435972382 4.41963173229 4.16600854389
cox: 2.33037414131
coxb: 2.25828230842
rate: 0.1 0.0402051864503 0.206038219453
ratio: 1.14285714286 0.342068207784 3.81830997228 1
cov: 10.4781609195 3.36091954023 5.88965517241 3.36091954023 14.8747126437 2.24827586207
    5.88965517241 2.24827586207 30.1103448276
cor: 0.331580873992 -0.0325803438168 0.618022167381 1.85977445954 0.0734538495767
pca: 32.290051702 15.3690201997 7.80414648909
trend: 0.176174496644 0.674681641661
auc: 0.441964285714
lda: 0.690649974579 0.414010072845 0.474973552857 0.360777926396
qda: 0.785831891184 0.421087575076 0.401129772282 0.156986166727
mh: 0.0253848349766 0.873411887284 0.874384236453 0.178514825753 4.28282519243
kappa: -0.05
oneprop: 0.245906281168 0.576796397467
"""
#: What R prints of a coefficient.
COLUMNS = ["estimate", "std_error", "statistic", "pvalue"]


def read_values(text: str) -> dict[str, list[float]]:
    """Read names, each before a colon, and the numbers that follow them."""
    found: dict[str, list[float]] = {}
    for word in text.split():
        if word.endswith(":"):
            found[word[:-1]] = []
        else:
            found[list(found)[-1]].append(float(word))
    return found


R = read_values(VALUES)


def make_rows() -> pd.DataFrame:
    i = np.arange(30)
    late = i // 2 % 2
    return pd.DataFrame(
        {
            "x": i * 7 % 11 + 1,
            "z": i * 5 % 13,
            "g": np.array(["a", "b", "c"])[(i * i % 3 + (i % 7 == 0) + i // 10) % 3],
            "h": np.array(["u", "v"])[late],
            "y": i * 11 % 17 + 3 * late,
            "week": i * 13 % 9 + 1,
            "n": i * 3 % 5 + 1,
            "again": np.array(["a", "b", "c"])[i * 4 % 3],
            "died": i * 29 // 7 % 2,
        }
    )


def table_of(frame: pd.DataFrame) -> es.Table:
    schema = es.Schema.infer(frame, target="died").with_kind("week", "ordinal", levels=range(1, 10))
    for name in {"x", "z", "y", "n"} & set(frame):
        schema = schema.with_kind(name, "number", digits=0)
    return schema.table(frame)


@pytest.fixture(scope="module")
def rows() -> es.Table:
    return table_of(make_rows())


def check(found: Any, name: str) -> None:
    """Compare numbers with those of R."""
    given = np.asarray(found, dtype=float).reshape(-1)
    np.testing.assert_allclose(given, R[name], rtol=1e-8, atol=1e-11)


# -- counts --------------------------------------------------------------------------------------


def test_chi_square(rows: es.Table) -> None:
    """chisq.test(table(d$g, d$h)), and its stdres; chisq.test(table(d$h, d$died))."""
    found = rows.ask(es.ChiSquare("g", "h"))
    check([found.statistic, found.pvalue], "chisq")
    check(found.tables["standardised residuals"], "stdres")
    yates = rows.ask(es.ChiSquare("h", "died"))
    check([yates.statistic, yates.pvalue], "yates")


def test_strata_and_trend(rows: es.Table) -> None:
    """mantelhaen.test(table(d$h, d$died, d$g)), prop.trend.test of the deaths in table(d$g)."""
    found = rows.ask(es.MantelHaenszel("h", "died", "g"))
    check([found.statistic, found.pvalue, found.estimate, found.low, found.high], "mh")
    trend = rows.ask(es.CochranArmitage("g"))
    check([trend.statistic, trend.pvalue], "trend")


def test_kappa_auc_and_wilson(rows: es.Table) -> None:
    """Kappa by its definition; wilcox.test's W / (n1 n0); prop.test(12, 30, correct = FALSE)."""
    check(rows.ask(es.Kappa("g", "again")).estimate, "kappa")
    check(rows.ask(es.ROC("week")).estimate, "auc")
    check(wilson_interval(12, 30), "oneprop")


# -- means ---------------------------------------------------------------------------------------


def test_two_means(rows: es.Table) -> None:
    """t.test(y ~ h, d), also var.equal, "less"; t.test(d$y, d$x, paired = TRUE, mu = 1)."""
    found = rows.ask(es.TTest("y", by="h"))
    check([found.statistic, found.df, found.pvalue, found.low, found.high], "welch")
    found = rows.ask(es.TTest("y", by="h", equal_var=True, alternative="less"))
    check([found.statistic, found.df, found.pvalue, found.high], "student")
    found = rows.ask(es.TTest("y", paired="x", mu=1))
    check([found.statistic, found.df, found.pvalue, found.low, found.high], "paired")


def test_one_way(rows: es.Table) -> None:
    """anova(lm(y ~ g, d)); oneway.test(y ~ g, d)."""
    found = rows.ask(es.Anova("y", ["g"]))
    squares = found.table["sum_sq"]
    check([squares.iloc[0], found.statistic, found.pvalue, squares.iloc[1]], "oneway")
    welch = rows.ask(es.Anova("y", ["g"], equal_var=False))
    check([welch.statistic, welch.df, welch.df_resid, welch.pvalue], "welch_anova")


def test_two_ways(rows: es.Table) -> None:
    """anova(lm(y ~ g * h, d)) in both orders; drop1(m, . ~ .) with contr.sum."""
    first = rows.ask(es.Anova("y", ["g", "h"], typ=1)).table
    check(first["sum_sq"], "type1")
    check(first["statistic"].iloc[:3], "type1F")
    check(rows.ask(es.Anova("y", ["g", "h"])).table["sum_sq"].iloc[:3], "type2")
    check(rows.ask(es.Anova("y", ["g", "h"], typ=3)).table["sum_sq"].iloc[:3], "type3")


# -- regressions ---------------------------------------------------------------------------------


def test_least_squares(rows: es.Table) -> None:
    """summary(lm(y ~ x + z + g, d)), AIC, BIC, logLik; summary(lm(y ~ x, d, weights = n))."""
    found = es.LinearRegression("y ~ x + z + g").fit(rows).summary()
    check(found.coefficients[COLUMNS], "lm")
    numbers = [found.scale**0.5, found.rsquared, found.rsquared_adj, found.statistic]
    # R counts the variance as a parameter of AIC and BIC, statsmodels and this library do not.
    check([*numbers, found.aic + 2, found.bic + np.log(30), found.llf], "lm2")
    weighted = es.LinearRegression("y ~ x", weights="n").fit(rows).summary()
    check([*weighted.coefficients[COLUMNS].to_numpy().flat, weighted.scale**0.5], "wls")


def test_logistic_regression(rows: es.Table) -> None:
    """summary(glm(died ~ g + h, binomial, d)), with control = list(epsilon = 1e-15)."""
    found = es.GLM("died ~ g + h").fit(rows).summary()
    check(found.coefficients[COLUMNS], "logit")
    numbers = [found.deviance, found.null_deviance, found.aic, found.df_resid, found.df_null]
    check(numbers, "logit2")


def test_poisson_regression(rows: es.Table) -> None:
    """glm(y ~ g + h + offset(log(n)), poisson, aggregate(cbind(y, n) ~ g + h, d, sum))."""
    found = es.GLM("y ~ g + h", family="poisson", exposure="n").fit(rows).summary()
    check(found.coefficients[COLUMNS], "poisson")
    check([found.deviance, found.null_deviance, found.aic], "poisson2")


# -- survival ------------------------------------------------------------------------------------


def test_survival_curves(rows: es.Table) -> None:
    """survfit(Surv(week, died) ~ 1, d), and with conf.type = "log-log", conf.int = 0.9."""
    found = rows.ask(es.KaplanMeier("week")).curves
    check(found["survival"], "km")
    check(found["std_error"], "kmse")
    check(found["low"], "kmlow")
    check(found["high"], "kmhigh")
    other = rows.ask(es.KaplanMeier("week", interval="log-log", confidence=0.9)).curves
    check(other["low"], "kmll")


def test_log_rank_and_score_tests(rows: es.Table) -> None:
    """survdiff(Surv(week, died) ~ g, d); coxph(Surv(week, died) ~ x + g, d, ties = ...)$score."""
    found = rows.ask(es.LogRank("week", by="g"))
    check([found.statistic, *found.table["expected"]], "logrank")
    check(rows.ask(es.CoxScore("week", variables=["x", "g"])).statistic, "cox")
    check(rows.ask(es.CoxScore("week", variables=["x", "g"], ties="breslow")).statistic, "coxb")


def test_rates(rows: es.Table) -> None:
    """poisson.test of the deaths and weeks of h = v, and of both groups."""
    found = rows.ask(es.IncidenceRate("week", by="h")).tidy()
    check(found.loc["rate [v]", ["estimate", "low", "high"]], "rate")
    ratio = found.loc["rate ratio [v]", ["estimate", "low", "high", "pvalue"]].astype(float)
    np.testing.assert_allclose(ratio, R["ratio"], rtol=1e-6)


# -- several numbers -----------------------------------------------------------------------------


def test_covariances_correlations_and_components(rows: es.Table) -> None:
    """cov(d[, c("x", "z", "y")]); cor.test(d$x, d$y); prcomp(d[, c("x", "z", "y")])$sdev^2."""
    check(rows.ask(es.Covariance(("x", "z", "y"))).covariance, "cov")
    pair = rows.ask(es.Correlation(("x", "y"))).pairs.iloc[0]
    check(pair[["estimate", "low", "high", "statistic", "pvalue"]], "cor")
    check(es.PCA(variables=("x", "z", "y")).fit(rows).explained_variance_, "pca")


def test_discriminants() -> None:
    """predict(MASS::lda(died ~ x + z, d))$posterior, and of qda, of the first four rows."""
    frame = make_rows()[["x", "z", "died"]]
    schema = es.Schema.infer(frame, target="died")
    for name in ("x", "z"):
        schema = schema.with_kind(name, "number", digits=0)
    kept = schema.table(frame)
    for name, model in (("lda", es.LinearDiscriminant), ("qda", es.QuadraticDiscriminant)):
        check(model(unbiased=True).fit(kept).predict_proba(kept)[:4, 1], name)
