# Studies: several owners pool encrypted rows in a shared folder, agree on questions, and open nothing else. Each function does what
# its party has to do; study_status() says who is next. What is encrypted, signed and checked is Python's.

#' How sites bring different columns of the same people: a list of columns for each site.
linkage <- function(columns, identifiers = "code", agent = NULL, ...) {
  columns <- lapply(columns, as.list)
  options <- options_in(...)
  if (!is.null(agent)) options$agent <- agent
  wrapped(do.call(python_module()$Linkage, c(list(columns, as.list(identifiers)), options)))
}

#' Write the document of a new study; its invitations, one for each party, are in the attribute "invitations".
study_create <- function(url, schema, questions, n_rows, sites, worker, receiver, ..., linkage = NULL) {
  options <- options_in(...)
  if (!is.null(linkage)) options$linkage <- inside(linkage)
  arguments <- list(url, schema = inside(schema), questions = lapply(questions, mode_of), n_rows = whole(n_rows),
                    sites = as.list(sites), worker = worker, receiver = receiver)
  made <- do.call(python_module()$Study$create, c(arguments, options))
  structure(wrapped(made), invitations = unlist(reticulate::py_to_r(made$invitations)))
}

# A question, or a list of a question and how it is answered: "rows", "totals", "masked" or "votes".
mode_of <- function(asked) {
  if (inherits(asked, "encrypted")) inside(asked) else reticulate::tuple(inside(asked[[1]]), asked[[2]])
}

#' Join a study with the code that you were sent; your keys are made and stay in the file.
study_join <- function(url, invitation, identity, passphrase = NULL) {
  wrapped(python_module()$Study$join(url, invitation, identity, passphrase = passphrase))
}

#' A study as the party of an identity sees it; without one, as anybody who may read its folder.
study <- function(url, identity = NULL, ...) wrapped(python_module()$Study(url, identity, ...))

#' What all parties agree on: who they are, what is asked, and which risks stay open.
study_document <- function(study) {
  study <- inside(study)
  document <- study$document
  said <- lapply(list(name = document$name, sites = document$sites, worker = document$worker, receiver = document$receiver,
                      questions = reticulate::import_builtins(convert = FALSE)$list(document$questions),
                      open_risks = document$open_risks), reticulate::py_to_r)
  said$fingerprint <- tryCatch(reticulate::py_to_r(study$fingerprint), error = function(e) "")
  lapply(said, unlist)
}

#' Make the study's key, or your part of it, once everybody has joined.
study_keygen <- function(study, key = NULL) invisible(to_r(inside(study)$keygen(key)))

#' Agree with the other sites on which rows are of the same people; what was found is returned.
study_link <- function(study, rows = NULL, on = NULL, duplicates = c("refuse", "first", "drop")) {
  if (is.null(rows)) return(to_r(inside(study)$link()))
  to_r(inside(study)$link(frame_to_python(rows), on = as.list(on), duplicates = match.arg(duplicates)))
}

#' Check rows against the agreed schema, and encrypt them for the study; with wait, stay for all rounds of its procedures.
study_add <- function(study, rows, ..., wait = FALSE) {
  rows <- if (is.data.frame(rows)) frame_to_python(rows) else inside(rows)
  if (wait) {
    inside(study)$run_rounds(rows)
    return(invisible(study))
  }
  options <- lapply(list(...), function(x) if (is.data.frame(x)) frame_to_python(x) else x)
  do.call(inside(study)$add, c(list(rows), options))
  invisible(study)
}

#' Compute what can be computed now, as the worker; the names of what was computed.
study_fit <- function(study, ...) unlist(reticulate::py_to_r(do.call(inside(study)$fit, options_in(...))))

#' Send what the study waits for; the names of what was sent.
study_share <- function(study) unlist(reticulate::py_to_r(inside(study)$share()))

#' Open results, as the receiver: a list of them, as far as they can be opened now.
study_open <- function(study, key = NULL, again = FALSE) {
  opened <- inside(study)$open(key, again = again)
  names <- unlist(reticulate::py_to_r(reticulate::import_builtins(convert = FALSE)$list(opened)))
  stats::setNames(lapply(names, function(name) to_r(opened$`__getitem__`(name))), names)
}

#' Who has done what, and who has to do what next: $joined, $refused, $next as a data frame, and more.
study_status <- function(study) {
  said <- reticulate::py_to_r(inside(study)$status()$to_dict())
  steps <- said[["next"]]
  said[["next"]] <- data.frame(who = vapply(steps, function(one) one[[1]], ""), what = vapply(steps, function(one) one[[2]], ""))
  structure(said, class = "encrypted_study_status", text = text_of(inside(study)$status()))
}

print.encrypted_study_status <- function(x, ...) {
  cat(attr(x, "text"), "\n")
  invisible(x)
}
