library(testthat)
library(encryptedstats)
test_check("encryptedstats")
