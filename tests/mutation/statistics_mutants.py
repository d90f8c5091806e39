"""Mutants of statistics, of the models' formulas and of the scores of predictions."""

from __future__ import annotations

from mutation.mutants import Mutant

FISHER, TABLES = "statistics/_fisher.py", "statistics/contingency.py"
MEANS, SQUARES = "statistics/comparisons.py", "statistics/_least_squares.py"
SURVIVAL, HAZARDS = "statistics/survival.py", "statistics/hazards.py"
GLM, MATRICES = "statistics/generalized.py", "statistics/multivariate.py"
FORMULAS, FACTORS = "statistics/formulas.py", "statistics/factors.py"
DESIGNS = "statistics/designs.py"
METRICS, FOREST, GROWTH = "metrics.py", "models/forest.py", "models/growth.py"
BAYES, DISCRIMINANTS = "models/naive_bayes.py", "models/discriminants.py"
LOGISTIC, LINES = "models/logistic.py", "models/prediction.py"

BY_R = ("tests/statistics/test_values_of_r.py",)
BY_HAND = ("tests/models/test_models_by_hand.py",)
SCORES = ("tests/test_metrics.py",)
TREES = ("tests/models/test_growth.py",)
DEGENERATE = ("tests/statistics/test_degenerate_data.py",)
REFUSED = ("tests/statistics/test_refused_in_plans.py",)
READ = ("tests/statistics/test_formulas.py",)


def tests_in(file: str, *names: str) -> tuple[str, ...]:
    """Name some tests of a file, of which others take long."""
    return tuple(f"tests/{file}::test_{name}" for name in names)


COUNTS = "statistics/test_contingency.py"
TWO_BY_TWO = tests_in(COUNTS, "fishers_test_of_two_by_two_is_rs")
LARGER = tests_in(COUNTS, "fishers_test_of_larger_tables_is_rs")
SIMULATED = tests_in(
    COUNTS,
    "fishers_test_of_a_table_that_is_too_large_is_simulated_alike_every_time",
    "simulated_pvalues_are_never_0",
)
ODDS = tests_in(COUNTS, "odds_and_risks_are_those_of_statsmodels")
EMPTY = "strata_with_an_empty_margin_are_no_degrees_of_freedom_of_breslow_and_day"
STRATA = tests_in(COUNTS, EMPTY)
EXACT = "statistics/test_exact_readers.py"
PAPER = tests_in("models/test_known_answers.py", "the_papers_example_on_an_integer_array")
THETA = tests_in("models/test_known_answers.py", "theta_is_n0_over_n1")

MUTANTS = [
    # Fisher's exact test
    Mutant(
        "statistics: Fisher's test without the table itself",
        "p <= p[place] * (1 + TOLERANCE)",
        "p < p[place] * (1 - TOLERANCE)",
        FISHER,
        TWO_BY_TWO,
    ),
    Mutant(
        "statistics: a lower tail without its end",
        "[: place + 1].sum()",
        "[:place].sum()",
        FISHER,
        TWO_BY_TWO,
    ),
    Mutant(
        "statistics: Fisher's other side",
        "return min(1.0, found.lower(place))",
        "return min(1.0, found.upper(place))",
        FISHER,
        TWO_BY_TWO,
    ),
    Mutant(
        "statistics: a one-sided interval of two sides",
        'tail = (1 - confidence) / 2 if alternative == "two-sided" else 1 - confidence',
        "tail = (1 - confidence) / 2",
        FISHER,
        tests_in(COUNTS, "the_conditional_odds_ratio_is_scipys"),
    ),
    Mutant(
        "statistics: tables as likely as the given one left out",
        "most = -float(logs[table].sum()) + TOLERANCE",
        "most = -float(logs[table].sum()) - TOLERANCE",
        FISHER,
        LARGER,
    ),
    Mutant(
        "statistics: all tables counted where the least likely counts",
        "all_count = log + stage.longest[state] <= most",
        "all_count = log + stage.shortest[state] <= most",
        FISHER,
        LARGER,
    ),
    Mutant(
        "statistics: tables weighed without the columns left",
        " - logs[left].sum()\n",
        "\n",
        FISHER,
        LARGER,
    ),
    Mutant(
        "statistics: partial tables merged and not counted",
        "np.add.reduceat(times, places)",
        "times[places]",
        FISHER,
        LARGER,
    ),
    Mutant(
        "statistics: another simulation every time",
        "PCG64(SEED)",
        "PCG64()",
        FISHER,
        SIMULATED,
    ),
    Mutant(
        "statistics: a simulated p-value of 0",
        "float((1 + (log <= own",
        "float(((log <= own",
        FISHER,
        SIMULATED,
    ),
    Mutant(
        "statistics: a simulation that is not said",
        "if not exact:",
        "if False:",
        TABLES,
        SIMULATED,
    ),
    # other tables of counts
    Mutant(
        "statistics: Yates's correction beyond the expected count",
        "(np.minimum(0.5, np.abs(apart)) if yates else 0.0)",
        "(0.5 if yates else 0.0)",
        TABLES,
        BY_R,
    ),
    Mutant(
        "statistics: standardized residuals that are Pearson's",
        "expected * np.outer(1 - rows / n, 1 - columns / n)",
        "expected",
        TABLES,
        BY_R,
    ),
    Mutant(
        "statistics: Mantel-Haenszel always corrected",
        "if correction and abs(apart) >= half else 0",
        "if correction else 0",
        TABLES,
        tests_in(COUNTS, "mantel_haenszel_leaves_out_a_correction_that_is_too_large"),
    ),
    Mutant(
        "statistics: the variance of strata doubled",
        "mixed / (2 * r * s)",
        "mixed / (r * s)",
        TABLES,
        BY_R,
    ),
    Mutant(
        "statistics: strata with an empty margin as degrees of freedom",
        "if table.sum(axis=0).all() and table.sum(axis=1).all()]",
        "]",
        TABLES,
        STRATA,
    ),
    Mutant(
        "statistics: Breslow and Day without Tarone",
        "return total - apart**2 / spread",
        "return total",
        TABLES,
        STRATA,
    ),
    Mutant(
        "statistics: a trend of permutations",
        "float(n * trend**2",
        "float((n - 1) * trend**2",
        TABLES,
        BY_R,
    ),
    Mutant(
        "statistics: odds without one of four counts",
        "1 / c + 1 / d) if",
        "1 / c) if",
        TABLES,
        ODDS,
    ),
    Mutant("statistics: Newcombe's wrong end", "high0 - p0))", "p0 - low0))", TABLES, ODDS),
    Mutant(
        "statistics: odds without events dropped from print",
        "for name in MEASURES\n                for k in order\n            ],\n        )",
        "for name in MEASURES\n                for k in order\n            ],\n        ).dropna()",
        TABLES,
        tests_in(COUNTS, "odds_without_events_are_printed_as_not_available"),
    ),
    Mutant(
        "statistics: quadratic weights that are linear",
        '"quadratic": 2}[self.weights]',
        '"quadratic": 1}[self.weights]',
        TABLES,
        tests_in(COUNTS, "kappa_is_that_of_statsmodels_and_sklearn"),
    ),
    Mutant(
        "statistics: agreement beyond no chance",
        "(agreed - chance) /",
        "agreed /",
        TABLES,
        BY_R,
    ),
    Mutant(
        "statistics: kappa of unlike levels",
        "if list(map(str, one.labels)) != list(map(str, other.labels)):",
        "if len(one.labels) != len(other.labels):",
        TABLES,
        REFUSED,
    ),
    # means
    Mutant(
        "statistics: Welch's degrees of freedom",
        "(v1**2 / (n1 - 1) + v2**2 / (n2 - 1))",
        "(v1**2 / n1 + v2**2 / n2)",
        MEANS,
        BY_R,
    ),
    Mutant(
        "statistics: a pooled variance over n",
        "(s1 + s2) / (n1 + n2 - 2)",
        "(s1 + s2) / (n1 + n2)",
        MEANS,
        BY_R,
    ),
    Mutant(
        "statistics: pairs without their covariance",
        "- 2 * Fraction(xy, a * b)",
        "- Fraction(xy, a * b)",
        MEANS,
        BY_R,
    ),
    Mutant(
        "statistics: sides of a t-test exchanged",
        '"greater": above, "less": below}',
        '"greater": below, "less": above}',
        MEANS,
        BY_R,
    ),
    Mutant(
        "statistics: the mean tested against 0",
        "float(estimate - Fraction(str(self.mu)))",
        "float(estimate)",
        MEANS,
        BY_R,
    ),
    Mutant(
        "statistics: no F of a perfect fit",
        "if mean is not None and left else np.nan",
        "if mean is not None and left and residual else np.nan",
        MEANS,
        DEGENERATE,
    ),
    Mutant(
        "statistics: type 2 that is type 1",
        "if typ == 1 else _more(additive, second)",
        "if typ else None",
        MEANS,
        BY_R,
    ),
    Mutant(
        "statistics: weights of means",
        "weights = [k**2 / sum(",
        "weights = [k / sum(",
        MEANS,
        BY_R,
    ),
    Mutant(
        "statistics: Welch's F",
        "Fraction(2 * (k - 2), k * k - 1)",
        "Fraction(2 * k, k * k - 1)",
        MEANS,
        BY_R,
    ),
    Mutant(
        "statistics: Bareiss without the last pivot",
        "pivot * before)",
        "pivot)",
        MEANS,
        tests_in(EXACT, "sums_of_squares_of_two_factors"),
    ),
    # least squares
    Mutant(
        "statistics: an intercept known for sure",
        "1 / weight + add_up(",
        "add_up(",
        SQUARES,
        BY_R,
    ),
    Mutant(
        "statistics: a term without its last column",
        "self.residuals[columns[-1] + 1]",
        "self.residuals[columns[-1]]",
        SQUARES,
        tests_in(EXACT, "type_one_adds_up_to_what_is_explained"),
    ),
    Mutant(
        "statistics: rounding taken for a number",
        "return found if abs(found) * _CANCELLED > sum(map(abs, listed)) else Fraction(0)",
        "return found",
        SQUARES,
        tests_in(
            EXACT,
            "what_rounding_has_left_of_a_sum_is_0",
            "columns_without_any_correlation_have_none",
        ),
    ),
    Mutant(
        "statistics: zeros that are rounded",
        "0 if zeros.corner else found.corner,",
        "found.corner,",
        SQUARES,
        tests_in(
            EXACT,
            "nothing_is_left_of_what_is_explained_fully_by_columns_of_any_scale",
        ),
    ),
    Mutant(
        "statistics: a penalty in other units",
        "penalty.numerator * unit * scales[j] ** 2",
        "penalty.numerator * scales[j] ** 2",
        SQUARES,
        tests_in("statistics/test_linear.py", "ridge_is_that_of_scikit_learn"),
    ),
    # survival
    Mutant(
        "statistics: the median at the start of a flat curve",
        "(times[first] + times[lower[0]]) / 2 if stays else times[first]",
        "times[first]",
        SURVIVAL,
        tests_in("statistics/test_survival.py", "the_median_of_a_flat_curve_is_rs"),
    ),
    Mutant(
        "statistics: Greenwood's variance",
        "variance += d / (n * (n - d))",
        "variance += d / (n * n)",
        SURVIVAL,
        BY_R,
    ),
    Mutant(
        "statistics: rows at risk that have left",
        "self.ending[:, ::-1].cumsum(axis=1)[:, ::-1]",
        "self.ending.cumsum(axis=1)",
        SURVIVAL,
        BY_R,
    ),
    Mutant(
        "statistics: log-log ends exchanged",
        "for sign in (1, -1))",
        "for sign in (-1, 1))",
        SURVIVAL,
        BY_R,
    ),
    Mutant(
        "statistics: a log-rank test of binomials",
        "d * (n - d) / (n.astype(float)",
        "d / (1.0 * n",
        SURVIVAL,
        BY_R,
    ),
    Mutant(
        "statistics: events expected of too many",
        "own @ (weight * d / n)",
        "own @ (weight * d / (n + 1))",
        SURVIVAL,
        BY_R,
    ),
    Mutant("statistics: Garwood's upper end", "2 * events + 2)", "2 * events)", SURVIVAL, BY_R),
    Mutant(
        "statistics: who leaves exposed for all of an interval",
        "twice = 2 * entered - withdrawn",
        "twice = 2 * entered",
        SURVIVAL,
        tests_in("statistics/test_survival.py", "a_life_table_by_hand"),
    ),
    Mutant(
        "statistics: Efron's ties as Breslow's",
        'if ties == "efron" else',
        "if False else",
        HAZARDS,
        BY_R,
    ),
    Mutant(
        "statistics: information about 0",
        "(share / left).sum() - means.T @ means",
        "(share / left).sum()",
        HAZARDS,
        BY_R,
    ),
    # generalized linear models
    Mutant(
        "statistics: a covariance turned over",
        "inverse @ inverse.T",
        "inverse.T @ inverse",
        GLM,
        BY_R,
    ),
    Mutant(
        "statistics: a null model without exposure",
        "null = exposed * (events.sum() / exposed.sum())",
        "null = 0 * exposed + events.mean()",
        GLM,
        BY_R,
    ),
    Mutant("statistics: counts without their factorials", " - gammaln(events + 1)", "", GLM, BY_R),
    Mutant(
        "statistics: AIC of one likelihood",
        "aic=2 * rank - 2 * llf",
        "aic=2 * rank - llf",
        GLM,
        BY_R,
    ),
    # several numbers
    Mutant(
        "statistics: covariances over n",
        "below = self.n * (self.n - 1)",
        "below = self.n * self.n",
        MATRICES,
        BY_R,
    ),
    Mutant(
        "statistics: Fisher's z of all rows",
        "math.sqrt(n - 3)",
        "math.sqrt(n)",
        MATRICES,
        BY_R,
    ),
    Mutant(
        "statistics: one covariance over n, unasked",
        "common * (df if self.unbiased else found.n)",
        "common * found.n",
        MATRICES,
        BY_R,
    ),
    Mutant(
        "statistics: a determinant of correlations",
        " + 2 * np.log(sd).sum()",
        "",
        MATRICES,
        BY_R,
    ),
    Mutant(
        "statistics: a class without its share",
        "np.log(self.priors_) - (self.coef_",
        "-(self.coef_",
        MATRICES,
        BY_R,
    ),
    # formulas and factors
    Mutant(
        "statistics: the last level as reference",
        "levels.remove(first)",
        "levels.pop()",
        DESIGNS,
        READ,
    ),
    Mutant(
        "statistics: a term with one level",
        "if len(levels) < 2:",
        "if not levels:",
        DESIGNS,
        DEGENERATE,
    ),
    Mutant(
        "statistics: a dot with constants",
        "others = [j for j in others if j not in constant]",
        "others = list(others)",
        DESIGNS,
        DEGENERATE,
    ),
    Mutant(
        "statistics: levels that are together",
        "elif factor.level != known.level:",
        "elif False:",
        DESIGNS,
        READ,
    ),
    Mutant(
        "statistics: rows left out and not said",
        "return Cells(found, present, total - int(present.sum()))",
        "return Cells(found, present, 0)",
        FACTORS,
        tests_in(COUNTS, "missing_values_are_left_out_and_said"),
    ),
    Mutant(
        "statistics: a variance over n",
        "self.scatter(place) / (int(self.n[place]) - 1)",
        "self.scatter(place) / int(self.n[place])",
        FACTORS,
        BY_R,
    ),
    Mutant(
        "statistics: groups that are one",
        "if len(found.labels) < 2:",
        "if not found.labels:",
        FACTORS,
        REFUSED,
    ),
    # scores
    Mutant(
        "statistics: weights that are copies",
        "scale = _effective(weight) / weight.sum()",
        "scale = 1.0",
        METRICS,
        SCORES,
    ),
    Mutant(
        "statistics: Wilson's interval",
        "z * z / (4 * n * n)",
        "z * z / (4 * n)",
        METRICS,
        SCORES,
    ),
    Mutant(
        "statistics: ties that are in order",
        "share: Floats = (below + upto) / 2",
        "share: Floats = upto",
        METRICS,
        SCORES,
    ),
    Mutant(
        "statistics: DeLong's variance over n",
        " ** 2 * n / (n - 1))",
        " ** 2)",
        METRICS,
        SCORES,
    ),
    Mutant("statistics: an AUC beyond 1", "/ (value * (1 - value))", "/ 1", METRICS, SCORES),
    Mutant(
        "statistics: a Brier score of distances",
        "_mean((p - positive) ** 2,",
        "_mean(np.abs(p - positive),",
        METRICS,
        SCORES,
    ),
    Mutant(
        "statistics: specificity among the sick",
        "_share(~called, ~positive,",
        "_share(~called, positive,",
        METRICS,
        SCORES,
    ),
    Mutant(
        "statistics: a threshold that is not reached",
        "scores >= threshold",
        "scores > threshold",
        METRICS,
        SCORES,
    ),
    # forests
    Mutant(
        "statistics: a right child as its sister",
        "counts[:, node] - left[:, node]",
        "left[:, node]",
        FOREST,
        BY_HAND,
    ),
    Mutant(
        "statistics: shares of leaves not averaged",
        "if self._draws else 1 / p",
        "if self._draws else 1 / np.sqrt(p)",
        FOREST,
        BY_HAND,
    ),
    Mutant(
        "statistics: a fraction of one draw fewer",
        "(self._draws + 1)) / p",
        "self._draws) / p",
        FOREST,
        BY_HAND,
    ),
    Mutant(
        "statistics: impurity of squares",
        ".sum(axis=2) / np.maximum(\n        sizes, 1\n    )",
        ".sum(axis=2)",
        FOREST,
        BY_HAND,
    ),
    Mutant(
        "statistics: old trees that grow anew",
        '{"repeats": True, **parameters}',
        '{"repeats": False, **parameters}',
        FOREST,
        TREES,
    ),
    Mutant(
        "statistics: splits that repeat",
        "if shape.repeats or not nodes[k].splittable:",
        "if True:",
        GROWTH,
        TREES,
    ),
    Mutant(
        "statistics: splits of one bin",
        "if len(bins) > 1 else [j for",
        "if bins else [j for",
        GROWTH,
        TREES,
    ),
    Mutant(
        "statistics: sides exchanged",
        "(b in inside) == is_left",
        "(b in inside) != is_left",
        GROWTH,
        TREES,
    ),
    # other models
    Mutant(
        "statistics: theta once too often",
        "(len(used) - 1) * np.log(",
        "len(used) * np.log(",
        BAYES,
        THETA,
    ),
    Mutant(
        "statistics: theta as the paper prints it",
        "np.log(float(n0) / float(n1))",
        "np.log(float(n1) / float(n0))",
        BAYES,
        THETA,
    ),
    Mutant(
        "statistics: smoothing of one bin",
        "self.alpha * np.array(bins), 1e-300",
        "self.alpha, 1e-300",
        BAYES,
        BY_HAND,
    ),
    Mutant(
        "statistics: classes alike in number",
        "np.log(prior) + np.log(smoothed)",
        "np.log(smoothed)",
        BAYES,
        BY_HAND,
    ),
    Mutant(
        "statistics: z of plus and minus one",
        "sum_z, sum_xz = 2 * (n1 - n0)",
        "sum_z, sum_xz = (n1 - n0)",
        LOGISTIC,
        BY_HAND,
    ),
    Mutant(
        "statistics: a mean's length",
        "length / (2 * np.maximum(counts, 1) ** 2)",
        "length / np.maximum(counts, 1) ** 2",
        DISCRIMINANTS,
        BY_HAND,
    ),
    Mutant(
        "statistics: not half-way",
        "(self.means_ - self.origin_)).sum(axis=1) / 2",
        "(self.means_ - self.origin_)).sum(axis=1)",
        DISCRIMINANTS,
        BY_HAND,
    ),
    Mutant(
        "statistics: scatter about no mean",
        "common // m * np.outer(s, s)",
        "0 * np.outer(s, s)",
        DISCRIMINANTS,
        BY_HAND,
    ),
    Mutant(
        "statistics: a slope with an intercept of 0",
        "n * sum_xz - sum_x * sum_z",
        "n * sum_xz",
        LINES,
        PAPER,
    ),
    Mutant("statistics: z from 0 to 4", "x0 + x1, 2 * (n1 - n0)", "x0 + x1, 4 * n1", LINES, PAPER),
]
