set.seed(1)
rows <- data.frame(age = sample(20:79, 300, TRUE), dose = round(rnorm(300), 1), sex = factor(sample(c("f", "m"), 300, TRUE)))
rows$ill <- as.integer(rows$age + 9 * rows$dose + rnorm(300, 0, 5) > 50)

test_that("a forest of encrypted rows is the forest of the rows", {
  s <- schema(rows, target = "ill", bins = 3L)
  forest <- CRF(T = 5, L = 2, seed = 1)
  keys <- keygen(planned(forest, s, nrow(rows)))
  file <- tempfile()
  saveFHE(CRF.fit(forest, enc(keys, table_of(s, rows))), file)
  opened <- dec(keys, file, s)
  clear <- CRF.fit(CRF(T = 5, L = 2, seed = 1), table_of(s, rows))
  expect_equal(predict(opened, rows, type = "prob"), predict(clear, rows, type = "prob"))
  expect_gt(mean(predict(opened, rows) == rows$ill), 0.7)
  expect_equal(colnames(predict(opened, rows, type = "prob")), c("0", "1"))
})

test_that("a regression on encrypted rows is lm", {
  s <- schema(rows[c("age", "dose")], numbers = "keep")
  question <- linear_regression(age ~ dose)
  keys <- keygen(planned(question, s, nrow(rows)))
  opened <- dec(keys, ask(enc(keys, table_of(s, rows[c("age", "dose")])), question))
  found <- as.data.frame(opened)
  expect_equal(found$estimate, unname(coef(lm(age ~ dose, rows))), tolerance = 1e-9)
})

test_that("formulas mean what they mean in R", {
  some <- rows[c("age", "dose", "sex")]
  s <- schema(some, numbers = "keep")
  for (formula in list(age ~ poly(dose, 2) * sex, age ~ I((dose - 1)^2) + offset(dose), age ~ sex / dose - 1)) {
    found <- as.data.frame(ask(table_of(s, some), linear_regression(formula)))
    expect_equal(found$estimate, unname(coef(lm(formula, some))), tolerance = 1e-8)
  }
})
