set.seed(3)
n <- 240
people <- data.frame(patient = sprintf("P-%04d", seq_len(n)), age = sample(c("old", "young"), n, TRUE),
                     smoker = sample(c("no", "yes"), n, TRUE))
people$ill <- ifelse(runif(n) < ifelse(people$age == "old", 0.7, 0.3), "yes", "no")
hospital <- people[1:200, c("patient", "age", "smoker")]
registry <- people[sample(41:n), c("patient", "ill")]
both <- people[41:200, ]

test_that("two sites with linked columns get what the joined table has", {
  s <- schema(people[c("age", "smoker", "ill")], target = "ill")
  url <- tempfile("study")
  made <- study_create(url, s, list(bayes = MultinomialNB()), n_rows = 400, sites = c("hospital", "registry"), worker = "centre",
                       receiver = "board",
                       linkage = linkage(list(hospital = c("age", "smoker"), registry = "ill"), "code", agent = "office"))
  codes <- attr(made, "invitations")
  expect_setequal(names(codes), c("hospital", "registry", "centre", "board", "office"))
  expect_true(all(study_status(made)[["next"]]$what == "join"))
  party <- lapply(names(codes), function(name) study_join(url, codes[[name]], tempfile(name)))
  names(party) <- names(codes)
  document <- study_document(party$hospital)
  expect_equal(document$sites, c("hospital", "registry"))
  expect_match(document$open_risks, "slot", all = FALSE)
  expect_equal(document$fingerprint, study_document(party$board)$fingerprint)

  expect_error(study_link(party$hospital, rbind(hospital, hospital[1, ]), on = "patient"))
  expect_match(text_of(inside(study_link(party$hospital, hospital, on = "patient"))), "people +200")
  study_link(party$registry, registry, on = "patient")
  study_link(party$office)
  expect_equal(study_status(made)$linked, 160)

  key <- tempfile("key")
  rows <- list(hospital = hospital, registry = registry)
  opened <- list()
  while (nrow(todo <- study_status(made)[["next"]])) {
    for (i in seq_len(nrow(todo))) {
      me <- party[[todo$who[i]]]
      done <- switch(todo$what[i], keygen = study_keygen(me, key), add = study_add(me, rows[[todo$who[i]]]), share = study_share(me),
                     fit = study_fit(me), link = study_link(me), open = study_open(me, key))
      if (todo$what[i] == "open") opened <- c(opened, done)
    }
  }
  expect_output(print(study_status(made)), "bayes")
  clear <- ask(table_of(s, both[c("age", "smoker", "ill")]), MultinomialNB())
  expect_equal(predict(opened$bayes, both, type = "prob"), predict(clear, both, type = "prob"))
})

test_that("a regression in rounds at three sites is that of all rows", {
  m <- 1500
  cohort <- data.frame(years = sample(20:80, m, TRUE), arm = sample(c("a", "b"), m, TRUE))
  cohort$ill <- ifelse(runif(m) < plogis(-3 + 0.05 * cohort$years), "yes", "no")
  s <- schema(cohort, target = "ill", numbers = "keep")
  sites <- c("north", "south", "west")
  url <- tempfile("study")
  asked <- list(fit = PooledGLM(ill ~ years + arm, max_iterations = 6), net = PooledElasticNet(years ~ arm, max_iterations = 2))
  made <- study_create(url, s, asked, n_rows = 2000, sites = sites, worker = "centre", receiver = "board")
  codes <- attr(made, "invitations")
  party <- lapply(names(codes), function(name) study_join(url, codes[[name]], tempfile(name)))
  names(party) <- names(codes)
  for (round in 1:40) for (k in seq_along(sites)) study_add(party[[sites[k]]], cohort[seq(k, m, 3), ])
  expect_output(print(study_status(made)), "fit: done after")
  found <- as.data.frame(study_open(party$board)$fit)
  wanted <- glm(factor(ill) ~ years + arm, binomial, cohort)
  expect_equal(found$estimate, unname(coef(wanted)), tolerance = 1e-7)
  expect_equal(found$std_error, unname(sqrt(diag(vcov(wanted)))), tolerance = 1e-6)
  clear <- as.data.frame(run_rounds(asked$net, table_of(s, cohort)))
  expect_equal(as.data.frame(study_open(party$north)$net)$estimate, clear$estimate, tolerance = 1e-8)
})
