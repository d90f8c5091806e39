# Between R and Python. Values cross as lists and data frames as lists of columns: that works with every version of NumPy and of
# reticulate, where arrays do not. What Python gives is kept there, in an object of class "encrypted".

the <- new.env(parent = emptyenv())

#' The Python package itself, for all that has no name here.
python_module <- function() {
  if (is.null(the$module)) {
    if (!reticulate::py_module_available("encryptedstats")) {
      stop("the Python package encryptedstats is not there: install_encryptedstats(), or say which Python has it ",
           "(RETICULATE_PYTHON, or reticulate::use_python())", call. = FALSE)
    }
    the$module <- reticulate::import("encryptedstats", convert = FALSE)
  }
  the$module
}

#' Install the Python package into reticulate's environment.
install_encryptedstats <- function(...) reticulate::py_install("encryptedstats", pip = TRUE, ...)

# With R's mark of S4, without which %*% does not look for methods before R 4.3.
wrapped <- function(object) asS4(structure(list(python = object), class = "encrypted"))

# What is inside of a wrapper; anything else as it is.
inside <- function(x) if (inherits(x, "encrypted")) x$python else x

text_of <- function(object) reticulate::py_to_r(reticulate::import_builtins(convert = FALSE)$str(object))

is_a <- function(x, name) any(grepl(paste0("(^|\\.)", name, "$"), class(inside(x))))

whole_numbers <- function(x) {
  if (!is.numeric(x) && !is.logical(x)) stop("only whole numbers can be encrypted, not ", class(x)[1], call. = FALSE)
  if (anyNA(x)) stop("a missing value cannot be encrypted: leave it out, or encrypt a data frame, whose schema knows missing values", call. = FALSE)
  if (any(x != round(x))) stop("only whole numbers can be encrypted: multiply by a power of ten and round, or keep a number in a schema", call. = FALSE)
  if (any(abs(x) > 2^53)) stop("numbers beyond 2^53 are not exact in R", call. = FALSE)
  x
}

# Numbers as Python's integers: a vector as a list, a matrix as a list of its rows, one number as itself.
integers <- function(x) {
  int <- reticulate::import_builtins(convert = FALSE)$int
  if (is.matrix(x)) return(lapply(seq_len(nrow(x)), function(i) lapply(unname(x[i, ]), function(v) int(v))))
  if (length(x) == 1) return(int(unname(x)))
  lapply(unname(as.vector(x)), function(v) int(v))
}

# Whole numbers as Python's integers, factors as text: levels, counts and choices are never fractions.
whole <- function(x) {
  if (is.factor(x)) return(as.character(x))
  if (is.numeric(x) && all(is.finite(x)) && all(x == round(x))) integers(x) else x
}

whole_list <- function(x) lapply(as.list(x), whole)

# Options of a call, with single whole numbers as Python's integers.
options_in <- function(...) lapply(list(...), function(x) if (length(x) == 1 && is.numeric(x)) whole(x) else x)

text_of_formula <- function(x) {
  if (inherits(x, "formula")) paste(deparse(x, width.cutoff = 500L), collapse = " ") else x
}

# A data frame for pandas; factors as their levels, missing values as None.
frame_to_python <- function(frame) {
  columns <- lapply(frame, function(column) {
    if (is.factor(column)) column <- as.character(column)
    values <- as.list(column)
    values[is.na(column)] <- list(NULL)
    values
  })
  reticulate::import("pandas", convert = FALSE)$DataFrame(reticulate::dict(columns))
}

frame_to_r <- function(frame) {
  frame <- frame$reset_index()
  names <- unlist(reticulate::py_to_r(frame$columns$astype("str")$tolist()))
  columns <- lapply(seq_along(names), function(i) {
    values <- reticulate::py_to_r(frame$iloc$`__getitem__`(reticulate::tuple(reticulate::import_builtins()$slice(NULL), i - 1L))$tolist())
    unlist(lapply(values, function(value) if (is.null(value)) NA else value))
  })
  as.data.frame(stats::setNames(columns, names), check.names = FALSE)
}

# What was opened, as R knows it.
to_r <- function(object) {
  if (!inherits(object, "python.builtin.object")) return(object)
  kind <- class(object)[1]
  if (kind == "numpy.ndarray") {
    values <- reticulate::py_to_r(object$tolist())
    return(if (is.list(values)) do.call(rbind, lapply(values, unlist)) else values)
  }
  if (grepl("^pandas\\..*DataFrame$", kind)) return(frame_to_r(object))
  if (kind %in% c("python.builtin.int", "python.builtin.float", "python.builtin.str", "python.builtin.bool", "python.builtin.list"))
    return(reticulate::py_to_r(object))
  wrapped(object)
}
