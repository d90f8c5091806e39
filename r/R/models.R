# Tables, models and statistics. CRF and SNB are the names of the package EncryptedStats.

#' What the columns of a data frame are: kinds, bins, levels, classes. The owner's.
schema <- function(frame, target = NULL, ...) {
  wrapped(do.call(python_module()$Schema$infer, c(list(frame_to_python(frame), target = target), options_in(...))))
}

#' The rows of a data frame in the bins and levels of a schema: what enc() encrypts.
table_of <- function(schema, frame) wrapped(inside(schema)$table(frame_to_python(frame)))

#' Parameters that are proven to carry a model or a question, for keygen().
planned <- function(what, schema, n_rows, ...) {
  what <- if (inherits(what, "encrypted")) inside(what) else lapply(what, inside)
  wrapped(do.call(python_module()$plan, c(list(what, inside(schema), n_rows = whole(n_rows)), options_in(...))))
}

#' A completely random forest of T trees, L deep.
CRF <- function(T = 100, L = 3, resamp = 0, seed = sample.int(.Machine$integer.max, 1), ...) {
  CompletelyRandomForest(n_trees = T, depth = L, fraction = resamp, random_state = seed, ...)
}

#' Semi-parametric naive Bayes.
SNB <- function(paired = FALSE, ...) SemiparametricNB(paired = paired, ...)

#' Multinomial naive Bayes.
MNB <- function(...) MultinomialNB(...)

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
  if (type == "prob" && is.matrix(found)) colnames(found) <- classes_of(model)
  found
}

# Models of one question keep their classes as an array, learned trees as a list.
classes_of <- function(model) {
  is_learned <- is_a(model, "LearnedTrees")
  as.character(unlist(reticulate::py_to_r(if (is_learned) model$classes else model$classes_$tolist())))
}

#' Linear regression, by a formula; of numbers that a schema keeps (numbers = "keep").
linear_regression <- function(formula, ...) LinearRegression(formula, ...)

#' The answer of a table to a question: encrypted, if the table is.
ask <- function(table, question, ...) to_r(do.call(inside(table)$ask, c(list(inside(question)), options_in(...))))

#' All questions: what they are called, what they compute, and who can predict with them.
questions <- function() frame_to_r(python_module()$methods())

#' Any question by its name in Python, also of another package. What is NULL is left to its default.
question <- function(name, ...) {
  arguments <- list(...)
  arguments <- arguments[lengths(arguments) > 0]
  module <- reticulate::import("encryptedstats.tables.questions.question", convert = FALSE)
  wrapped(do.call(reticulate::py_call, c(list(module$question_class(name)), arguments)))
}

#' A procedure by its name in Python, such as "DecisionTree": questions that depend on earlier answers.
procedure <- function(name, ...) {
  made <- reticulate::py_get_attr(python_module(), name)
  arguments <- options_in(...)
  wrapped(do.call(reticulate::py_call, c(list(made), arguments[lengths(arguments) > 0])))
}

#' Run a procedure round by round. The owner of an encrypted table opens each round before the next.
run_rounds <- function(procedure, table, owner = NULL, ...) {
  key <- if (is.null(owner)) NULL else key_of(owner)
  options <- lapply(list(...), function(x) whole(inside(x)))
  wrapped(do.call(inside(procedure)$run, c(list(inside(table), key), options)))
}

#' The share of each variable in the decrease of impurity of learned trees, the largest first.
importances <- function(trees) {
  found <- frame_to_r(inside(trees)$importances)
  found[order(-found$importance), , drop = FALSE]
}

#' The importances of learned trees as bars.
plot.encrypted <- function(x, ...) {
  if (!is_a(x, "LearnedTrees")) stop("only learned trees are drawn in R: draw the data frame of another result", call. = FALSE)
  shown <- rev(importances(x)$importance)
  names(shown) <- rev(importances(x)$variable)
  graphics::barplot(shown, horiz = TRUE, las = 1, xlab = "share of the decrease of impurity", ...)
  invisible(x)
}

summary.encrypted <- function(object, ...) wrapped(inside(object)$summary(...))

#' A table of a result: its main one, or a row for each estimate ("tidy"), or its single numbers ("glance").
as.data.frame.encrypted <- function(x, row.names = NULL, optional = FALSE, ..., table = c("main", "tidy", "glance")) {
  object <- inside(x)
  if (!reticulate::py_has_attr(object, "to_frame")) object <- object$summary()
  frame_to_r(switch(match.arg(table), main = object$to_frame(), tidy = object$tidy(), glance = object$glance()))
}

# Methods of the generics of broom.
tidy.encrypted <- function(x, ...) as.data.frame(x, table = "tidy")

glance.encrypted <- function(x, ...) as.data.frame(x, table = "glance")
