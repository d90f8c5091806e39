# Encrypted integers, vectors and matrices, by the names of the package HomomorphicEncryption.

#' Parameters for values up to `max` and products `L` deep, with at least 128 bits of security.
parsHelp <- function(scheme = "FandV", lambda = 128, max = 2^20, L = 1) {
  if (lambda > 128) stop("lambda = ", lambda, ": parameters here have 128 bits of security, or somewhat more", call. = FALSE)
  schemes <- c(FandV = "bfv", bfv = "bfv", bgv = "bgv")
  if (!scheme %in% names(schemes)) stop("scheme is FandV, bfv or bgv, not ", scheme, call. = FALSE)
  wrapped(python_module()$Parameters$choose(max_value = as.integer(max), depth = as.integer(L), scheme = schemes[[scheme]]))
}

#' Keys for parameters or for a plan: `sk` opens, `pk` is what anybody may have.
keygen <- function(p) {
  owner <- python_module()$Owner(inside(p))
  structure(list(sk = wrapped(owner), pk = wrapped(owner$public_keys())), class = "encrypted_keys")
}

key_of <- function(key) inside(if (inherits(key, "encrypted_keys")) key$sk else key)

#' Encrypt whole numbers, a vector or matrix of them, or a table that a schema describes.
enc <- function(key, x, ...) {
  value <- if (inherits(x, "encrypted")) inside(x) else integers(whole_numbers(x))
  wrapped(key_of(key)$encrypt(value, ...))
}

#' Open what was encrypted, or computed on it: a number, vector, matrix, model or result.
dec <- function(key, x, schema = NULL) {
  if (is.character(x)) return(to_r(key_of(key)$open(path.expand(x), inside(schema))))
  if (is.null(schema)) to_r(key_of(key)$open(inside(x))) else to_r(key_of(key)$open(inside(x), schema = inside(schema)))
}

#' Store encrypted things, public keys, models and schemas in a file.
saveFHE <- function(x, file, overwrite = FALSE) {
  object <- inside(x)
  if (is_a(x, "Owner")) stop("a secret key is stored by saveKey(), with a passphrase", call. = FALSE)
  if (is_a(x, "Schema")) object$save(path.expand(file)) else object$save(path.expand(file), overwrite = overwrite)
  invisible(x)
}

#' Read what saveFHE() has written; encrypted numbers and models need the public keys they belong to.
loadFHE <- function(file, pk = NULL) wrapped(python_module()$load(path.expand(file), inside(if (inherits(pk, "encrypted_keys")) pk$pk else pk)))

#' Store the secret key in a file that nobody else can read (mode 0600).
saveKey <- function(keys, file, passphrase = NULL, overwrite = FALSE) {
  key_of(keys)$save(path.expand(file), passphrase, overwrite = overwrite)
  invisible(keys)
}

#' Read a secret key.
loadKey <- function(file, passphrase = NULL) {
  owner <- python_module()$Owner$load(path.expand(file), passphrase)
  structure(list(sk = wrapped(owner), pk = wrapped(owner$public_keys())), class = "encrypted_keys")
}

plain_or_encrypted <- function(x) if (inherits(x, "encrypted")) inside(x) else integers(whole_numbers(x))

Ops.encrypted <- function(e1, e2) {
  methods <- c("+" = "add", "-" = "sub", "*" = "mul")
  if (missing(e2) && .Generic == "-") return(wrapped(inside(e1)$`__neg__`()))
  if (!.Generic %in% names(methods)) stop(.Generic, " is not possible on encrypted numbers: +, - and * are", call. = FALSE)
  operator <- reticulate::import("operator", convert = FALSE)
  wrapped(operator[[methods[[.Generic]]]](plain_or_encrypted(e1), plain_or_encrypted(e2)))
}

setOldClass("encrypted")

matrix_product <- function(x, y) wrapped(reticulate::import("operator", convert = FALSE)$matmul(plain_or_encrypted(x), plain_or_encrypted(y)))
setMethod("%*%", signature("encrypted", "encrypted"), matrix_product)
setMethod("%*%", signature("encrypted", "ANY"), matrix_product)
setMethod("%*%", signature("ANY", "encrypted"), matrix_product)

sum.encrypted <- function(..., na.rm = FALSE) Reduce(`+`, lapply(list(...), function(x) wrapped(inside(x)$sum())))

t.encrypted <- function(x) wrapped(inside(x)$T)

length.encrypted <- function(x) {
  if (!reticulate::py_has_attr(x$python, "shape")) return(1L)
  as.integer(prod(unlist(reticulate::py_to_r(x$python$shape))))
}

dim.encrypted <- function(x) {
  if (!reticulate::py_has_attr(x$python, "shape")) return(NULL)
  shape <- as.integer(unlist(reticulate::py_to_r(x$python$shape)))
  if (length(shape) == 2) shape else NULL
}

`[.encrypted` <- function(x, i, j) {
  place <- function(k) if (is.logical(k) || any(k < 1)) stop("places are counted from 1", call. = FALSE) else as.list(as.integer(k) - 1L)
  one <- function(k) if (length(k) == 1) place(k)[[1]] else place(k)
  index <- if (missing(j)) one(i) else reticulate::tuple(one(i), one(j))
  wrapped(inside(x)$`__getitem__`(index))
}

setMethod("show", "encrypted", function(object) print.encrypted(object))

print.encrypted <- function(x, ...) {
  cat(text_of(x$python), "\n")
  invisible(x)
}

print.encrypted_keys <- function(x, ...) {
  cat("sk, which opens everything: keep it, and give it to nobody\npk:", text_of(inside(x$pk)), "\n")
  invisible(x)
}
