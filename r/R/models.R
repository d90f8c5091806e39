# Tables, models and statistics. CRF and SNB are the names of the package EncryptedStats.

#' What the columns of a data frame are: kinds, bins, levels, classes. The owner's.
schema <- function(frame, target = NULL, ...) wrapped(python_module()$Schema$infer(frame_to_python(frame), target = target, ...))

#' The rows of a data frame in the bins and levels of a schema: what enc() encrypts.
table_of <- function(schema, frame) wrapped(inside(schema)$table(frame_to_python(frame)))

#' Parameters that are proven to carry a model or a question, for keygen().
planned <- function(what, schema, n_rows, ...) wrapped(python_module()$plan(inside(what), inside(schema), n_rows = as.integer(n_rows), ...))

#' A completely random forest of T trees, L deep.
CRF <- function(T = 100, L = 3, resamp = 0, seed = NULL, ...) {
  resamp <- if (is.character(resamp)) resamp else as.integer(resamp)
  seed <- if (is.null(seed)) NULL else as.integer(seed)
  wrapped(python_module()$CompletelyRandomForest(n_trees = as.integer(T), depth = as.integer(L), fraction = resamp, random_state = seed, ...))
}

#' Semi-parametric naive Bayes.
SNB <- function(paired = FALSE, ...) wrapped(python_module()$SemiparametricNB(paired = paired, ...))

#' Multinomial naive Bayes.
MNB <- function(...) wrapped(python_module()$MultinomialNB(...))

#' Fit a model on a table, encrypted or not.
CRF.fit <- function(forest, table, ...) wrapped(inside(forest)$fit(inside(table), ...))

#' @rdname CRF.fit
SNB.fit <- CRF.fit

#' Predictions of an opened model, or the encrypted votes of a closed one.
CRF.pred <- function(fit, newdata, type = c("class", "prob", "votes")) predict.encrypted(fit, newdata, type)

predict.encrypted <- function(object, newdata, type = c("class", "prob", "votes"), ...) {
  type <- match.arg(type)
  rows <- if (is.data.frame(newdata)) frame_to_python(newdata) else inside(newdata)
  model <- inside(object)
  found <- switch(type, class = model$predict(rows), prob = model$predict_proba(rows), votes = model$predict_votes(rows))
  found <- to_r(found)
  if (type == "prob" && is.matrix(found)) colnames(found) <- unlist(reticulate::py_to_r(model$classes_$tolist()))
  found
}

#' Linear regression, by a formula; of numbers that a schema keeps (numbers = "keep").
linear_regression <- function(formula, ...) {
  text <- if (is.character(formula)) formula else paste(deparse(formula, width.cutoff = 500L), collapse = " ")
  wrapped(python_module()$LinearRegression(text, ...))
}

#' The answer of a table to a question: encrypted, if the table is.
ask <- function(table, question, ...) to_r(inside(table)$ask(inside(question), ...))

summary.encrypted <- function(object, ...) wrapped(inside(object)$summary(...))

as.data.frame.encrypted <- function(x, row.names = NULL, optional = FALSE, ...) {
  object <- inside(x)
  frame_to_r(if (reticulate::py_has_attr(object, "to_frame")) object$to_frame() else object$summary()$to_frame())
}
