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
