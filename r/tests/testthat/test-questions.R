# Every question by its function: it is made, and asked of rows in the clear. Some are compared with R.
set.seed(3)
n <- 240
rows <- data.frame(
  age = sample(30:79, n, TRUE), weight = round(rnorm(n, 70, 9)), after = round(rnorm(n, 69, 9)),
  sex = sample(c("f", "m"), n, TRUE), arm = sample(c("a", "b", "c"), n, TRUE),
  months = sample(1:12, n, TRUE), died = sample(c("no", "yes"), n, TRUE),
  cause = sample(c("none", "heart", "other"), n, TRUE),
  rated = sample(c("low", "mid", "high"), n, TRUE), again = sample(c("low", "mid", "high"), n, TRUE),
  snp = rbinom(n, 2, 0.3), months2 = sample(1:9, n, TRUE), ill = sample(c("no", "yes"), n, TRUE), stringsAsFactors = FALSE)
numbers <- c("age", "weight", "after")
binned <- schema(rows, target = "ill", bins = 3)
kept <- schema(rows, target = "ill", numbers = "keep",
               kinds = list(months = "ordinal", months2 = "ordinal", snp = "number"), bins = 12)
followed <- list(time = "months", event = "died", event_level = "yes")

of_bins <- list(
  AODE(), CochranArmitage("months", "ill"), CompletelyRandomForest(n_trees = 3, depth = 2),
  FisherDiscriminant(), LinearMeans(), MultinomialNB(), OneStepLogisticRegression(),
  Pairs(c("sex", "arm")), RankCorrelation("age", "months", coefficient = "kendall"),
  ROC("months", "ill"), SemiparametricNB(paired = FALSE), TAN(), Histogram("age", by = "sex"),
  counts("sex"), crosstab(c("sex", "arm")))
of_numbers <- list(
  Anova("weight", c("arm", "sex"), typ = 1), ChiSquare("arm", "ill", correction = FALSE),
  Correlation(numbers), Covariance(numbers), CronbachAlpha(numbers),
  do.call(CoxRegression, c(followed, list(variables = c("arm", "sex")))),
  do.call(CoxScore, c(followed, list(variables = "arm"))),
  CumulativeIncidence("months", "cause", by = "sex", censored = "none"),
  Describe(c("age", "weight"), by = "sex"), ElasticNet(0.5, formula = weight ~ age + sex),
  FisherExact("sex", "ill"), GLM(ill ~ sex + arm, reference = list(arm = "b")),
  GenomeScan("snp", "ill"), do.call(IncidenceRate, c(followed, list(by = "sex", per = 100))),
  do.call(KaplanMeier, c(followed, list(by = "arm"))), Kappa("rated", "again"),
  KruskalWallis("weight", "arm"), do.call(LifeTable, followed),
  LinearDiscriminant(variables = numbers), LinearRegression(weight ~ age + sex),
  do.call(LogRank, c(followed, list(by = "arm"))), MannWhitney("weight", "sex"),
  MantelHaenszel("sex", "ill", "arm"), McNemar("rated", "again"), moments(numbers),
  OddsRatio("sex", "ill", event = "yes"), PCA(2, variables = numbers),
  PairwiseTTest("weight", "arm"), PartialCorrelation(c("age", "weight"), covariates = "after"),
  do.call(PiecewiseExponential, c(followed, list(variables = "sex", cuts = c(4, 8)))),
  QuadraticDiscriminant(variables = numbers), Quantiles("weight", by = "sex"),
  CochranQ(c("sex", "died", "ill")), Manova(c("weight", "after"), "arm"),
  do.call(Concordance, c(followed, list(score = "months2"))),
  MultinomialRegression(c("sex", "arm"), target = "rated", base = "mid"),
  do.call(PairwiseLogRank, c(followed, list(by = "arm"))), PairwiseMannWhitney("weight", "arm"),
  PairwiseProportions("ill", "arm", event = "yes"),
  StandardisedRate("sex", "arm", target = "died", exposure = "age"),
  Ridge(1, weight ~ age), SignedRank("weight", mu = 70), TTest("weight", by = "sex"),
  VarianceTest("weight", "arm"))

name_of <- function(question) reticulate::py_to_r(question$python$name)
clear <- lapply(list(binned, kept), table_of, rows)

test_that("every question has its function", {
  made <- vapply(c(of_bins, of_numbers), name_of, "")
  expect_setequal(made, questions()$question)
})

# Models answer with a model, and all others with a result.
expect_answered <- function(table, question) {
  answer <- ask(table, question)
  if (is.data.frame(answer)) return(expect_gt(nrow(answer), 0))
  expect_true(inherits(answer, "encrypted"))
  if (!reticulate::py_has_attr(answer$python, "predict")) expect_gt(nrow(as.data.frame(answer)), 0)
}

test_that("every question is answered", {
  for (question in of_bins) expect_answered(clear[[1]], question)
  for (question in of_numbers) expect_answered(clear[[2]], question)
})

pvalue_of <- function(answer) as.data.frame(answer, table = "tidy")$pvalue[1]
pvalue <- function(question) pvalue_of(ask(clear[[2]], question))

test_that("answers are those of R", {
  expect_equal(pvalue(TTest("weight", by = "sex")), t.test(weight ~ sex, rows)$p.value)
  expect_equal(pvalue(TTest("weight", mu = 70, alternative = "less")),
               t.test(rows$weight, mu = 70, alternative = "less")$p.value)
  expect_equal(pvalue(ChiSquare("arm", "ill")), chisq.test(rows$arm, rows$ill)$p.value)
  expect_equal(pvalue(FisherExact("sex", "ill")), fisher.test(rows$sex, rows$ill)$p.value)
  expect_equal(pvalue(KruskalWallis("weight", "arm")), kruskal.test(weight ~ arm, rows)$p.value)
  expect_equal(pvalue(VarianceTest("weight", "arm")), bartlett.test(weight ~ arm, rows)$p.value)
  fitted <- glm((ill == "yes") ~ sex + arm, binomial, rows)
  found <- as.data.frame(ask(clear[[2]], GLM(ill ~ sex + arm)))
  expect_equal(found$estimate, unname(coef(fitted)), tolerance = 1e-7)
})

test_that("ranks of encrypted rows are those of the rows", {
  some <- rows[c("weight", "sex")]
  s <- schema(some, numbers = "keep")
  question <- MannWhitney("weight", "sex")
  keys <- keygen(planned(question, s, n, encodings = c("onehot", "grid")))
  sealed <- enc(keys, table_of(s, some), encodings = c("onehot", "grid"))
  opened <- dec(keys, ask(sealed, question), s)
  expected <- wilcox.test(weight ~ sex, some, correct = TRUE, exact = FALSE)$p.value
  expect_equal(pvalue_of(opened), expected)
})

test_that("a tree that learns its splits is that of the clear rows", {
  tree <- procedure("DecisionTree", depth = 2)
  keys <- keygen(planned(tree, binned, n))
  table <- table_of(binned, rows)
  opened <- run_rounds(tree, enc(keys, table), keys)
  expect_equal(as.data.frame(opened), as.data.frame(run_rounds(tree, table)))
  expect_equal(as.data.frame(opened)$rows[1], n)
})

test_that("a learned forest prints, predicts and draws what is important", {
  forest <- RandomForest(n_trees = 3, depth = 2, random_state = 4)
  keys <- keygen(planned(forest, binned, n))
  table <- table_of(binned, rows)
  folder <- tempfile("run")
  opened <- run_rounds(forest, enc(keys, table), keys, schema = binned, folder = folder)
  expect_output(print(opened), "nodes")
  clear <- run_rounds(forest, table)
  expect_equal(predict(opened, rows), predict(clear, rows))
  shares <- predict(opened, rows, type = "prob")
  expect_equal(unname(rowSums(shares)), rep(1, n))
  expect_setequal(colnames(shares), as.character(unique(rows$ill)))
  found <- importances(opened)
  expect_equal(sum(found$importance), 1)
  expect_false(is.unsorted(-found$importance))
  drawn <- tempfile(fileext = ".pdf")
  pdf(drawn)
  plot(opened)
  dev.off()
  expect_gt(file.size(drawn), 1000)
  expect_error(plot(ask(table, MultinomialNB())), "learned trees")
})

test_that("what cannot be asked is refused", {
  expect_error(TTest("weight", alternative = "more"), "should be one of")
  expect_error(planned(CompletelyRandomForest(depth = 99), binned, n), "depth")
  expect_error(question("Nonsense"), "Nonsense")
})
