"""Sentences of the page for errors whose own message is written for programmers, by the error's
code, its class, the status of a worker's refusal or the number of the operating system's error.

Data only. ``words`` chooses the sentence. ``{head}`` is the part of the message before its first
colon, which names what was asked or found; what follows it is advice for programmers.
"""

from __future__ import annotations

import errno
from typing import Final

PROGRAM: Final = (
    "this is a mistake of the program, not yours. What was done so far is kept. Go back and try "
    "another choice, and please report it"
)
_PLACE: Final = "check the address, and ask the person who runs the worker whether it is running"
_IN_BINS: Final = "let it be in bins, in the step Columns"
_COPY: Final = "start a copy of the project, which makes a new key, and ask there"
_INSTALL: Final = "ask the person who installed this program for the missing part"
_LEVELS: Final = "give the column ordered levels, in the step Columns"

#: By code. These are said in place of messages with programmers' words, and always of errors that
#: come from a worker or a storage, whose own words are not trusted on the page.
SENTENCES: Final[dict[str, str]] = {
    # the worker and the way to it
    "unreachable-worker": f"the worker does not answer: {_PLACE}",
    "scheduler-gone": f"the worker does not answer: {_PLACE}",
    "untrusted-certificate": "the worker's identity cannot be checked, so nothing was sent to it. "
    "Ask the person who runs the worker for the SHA-256 of its certificate, and give it below the "
    "address",
    "malformed-pin": "this is no SHA-256 of a certificate: it begins with sha256: and has 64 "
    "digits and letters from a to f. Copy it again",
    "no-certificate": "an address that begins with http:// has no certificate: leave the field "
    "empty, or give an address that begins with https://",
    "token-in-the-clear": "others could read the access token that is sent to this address: give "
    "one that begins with https://",
    "not-a-url": "this is no address of a worker, such as https://worker.example.org",
    "unknown-place": "this is no place that computes: give the address of a worker, such as "
    "https://worker.example.org",
    "no-token": "the worker wants an access token: the person who runs it gives you one",
    "no-such-job": "the worker does not know this question any more: send it again",
    "no-such-table": "the worker does not have the table any more: send it again",
    "unfinished-job": "the worker has not finished yet: wait, and take the result later",
    "cancelled-job": "the computation was cancelled at the worker: send it again to go on",
    "failed-job": "the worker could not compute it, and does not say why: ask the person who runs "
    "the worker",
    "interrupted-download": "the result did not arrive whole: try again",
    "unwelcome-file": "the worker does not take a file of the table, and nothing was sent. Encrypt "
    "the table again in a copy of the project",
    "unreachable-storage": "the storage does not answer: check the network or the drive, and try "
    "again",
    "already-being-written": "another program is writing there: wait until it has ended, and try "
    "again",
    "lease-lost": "another program has gone on with this: wait until it has ended, and try again",
    "table-replaced": "the encrypted table was replaced by another one: put it back, or encrypt it "
    "again in a copy of the project",
    "protocol-not-allowed": (
        "this place cannot be reached from here: give the full path of a folder"
    ),
    "retired-key": "a result of this project was wrong, so that its key is retired and opens "
    f"nothing any more: {_COPY}, with another worker",
    "spot-check-failed": "this result is wrong: the worker has lied, or its machine is broken. The "
    "key of this project is retired. Do not let the worker know; start a copy of the project, "
    "which makes a new key, and send it to another worker",
    "nothing-kept": "nothing was kept to check this result with: the folder beside the key is "
    "missing. Put it back from a copy",
    "malformed-response": "the worker's answer to the check cannot be read: open the result again",
    # the program and this machine
    "missing-package": f"this needs a part of the program that is not installed: {_INSTALL}",
    "pyarrow-missing": "Parquet files cannot be read here: save the file as CSV, and choose that",
    "helper-killed": "a part of the program was ended from outside, most often because memory ran "
    "out: close other programs, and go on",
    "GPU-failed": "the graphics processor failed, and nothing was written: try again",
    "GPU-full": "the graphics processor has not enough memory: end other programs, and try again",
    "import-questions": "the question is of a package that is not installed here: install it",
    "foreign-file": "this file was not made by this program: choose another one",
    "malformed-csv": "this is no CSV file that can be read: save it as CSV again, and choose that",
    "damaged-compression": (
        "the compressed file is damaged: copy it again, or choose the CSV file in it"
    ),
    "not-a-text-file": "this is no CSV file that can be read: save it as CSV, and choose that",
    # keys
    "keys-too-small": "this key was made for something else: make a new one",
    "column-beyond-parameters": "this key was made for something else: make a new one",
    "not-enough-memory": "there is not enough memory to check the passphrase: close other "
    "programs, and try again",
    "passphrase-cost-too-high": (
        "this file is no key that this program has made: choose another file"
    ),
    "not-locked": "this key has no passphrase, and the page takes only keys that have one: lock it "
    "first, or make a new key",
    # questions
    "all-weights-zero": "the weights are 0 in every row: choose another column of weights",
    "alphas-missing": "give the penalties to try: without a share of the lasso none leaves all "
    "coefficients at 0",
    "by-missing": "choose the groups that are compared",
    "by-not-allowed": "this test compares two measurements of each row, without groups: leave "
    "Groups empty, or ask a Mann-Whitney test",
    "by-with-paired": "choose groups of rows, or a second measurement of each row, and not both",
    "ambiguous-variable": (
        "a column has the name that stands for the outcome: rename it in the file"
    ),
    "class-without-moments": "the outcome is no number: choose a column of numbers",
    "class-not-number": "the outcome is no number: choose a column of numbers, or let it be one in "
    "the step Columns",
    "class-missing": "the outcome is missing in some rows: say what becomes of missing values, in "
    "the step Columns",
    "class-without-rows": "some levels of the outcome have no rows in this file: choose a file "
    "that has rows of every level",
    "infinite-scores": "a level of the outcome had no rows when the model was fitted: leave it out",
    "components-out-of-range": "the number of components is at least 1 and at most the number of "
    "variables",
    "duplicate-variables": "a column was chosen twice: choose each once",
    "empty-cells": "{head}: choose type 2 of the sums of squares, or no interaction",
    "event-not-named": "{head}: choose the value that means an event",
    "exposure-not-poisson": "only a Poisson regression has an exposure: leave it empty, or choose "
    "that model",
    "formula-and-variables": "give either a formula, or an outcome with what explains it",
    "group-counts-differ": (
        "McNemar's test compares two columns with the same groups: choose others"
    ),
    "groups-without-by": "choose the column of the groups as well",
    "invalid-weights": "weights are whole numbers: multiply them, and choose that column",
    "unknown-missing-rule": "choose what becomes of missing values from the list",
    "unknown-missing-policy": "choose what becomes of missing values from the list",
    "folds-out-of-range": "the number of parts is at least 2 and at most the number of rows",
    "not-an-integer": "this is no whole number: type digits only",
    "invalid-max-rows": "a person has at least 1 row: give a whole number",
    "invalid-cuts": "the cut points of time are increasing, and the last one is before the end",
    "invalid-factors": "choose one column of groups, or two different ones",
    "invalid-probabilities": "shares are numbers between 0 and 1, such as 0.25, 0.5, 0.75",
    "invalid-shares": "give one share for each group; together they are 1",
    "kept-as-number": f"{{head}}: {_IN_BINS}",
    "levels-not-numbers": f"{{head}}: {_LEVELS}, or choose a column of numbers",
    "negative-weights": "weights are not negative: choose another column of weights",
    "no-covariates": "choose at least one covariate",
    "no-numbers": "this question needs columns of numbers, and the file has none: choose another "
    "question",
    "no-predictors": "choose at least one column that explains the outcome",
    "no-target": "choose the outcome first",
    "not-ordered": f"{{head}}: {_LEVELS}",
    "not-two-by-two": (
        "this choice is for two groups and two levels: choose two-sided, or not exact"
    ),
    "not-several-levels": "the outcome has two levels: ask a logistic regression, or choose an "
    "outcome with more",
    "invalid-standard": "give one size for each stratum, 0 or more, and not all of them 0",
    "not-two-different-groups": "choose two different groups",
    "not-two-groups": "{head}: choose two of them, or a question that compares several groups",
    "offset-in-glm": (
        "a regression on levels has no offset: use the exposure of a Poisson regression"
    ),
    "p-with-two-variables": "expected shares are for one variable: leave them empty, or leave the "
    "second variable out",
    "poly-with-weights": "a polynomial in a formula takes no weights: write raw = TRUE in it",
    "poly-in-folds": "a polynomial in a formula cannot be cross-validated: write raw = TRUE in it",
    "same-variable-twice": "choose two different columns",
    "scores-all-equal": "give at least two different scores: all of these are the same",
    "wrong-score-count": "give one score for each group",
    "several-outcomes": "one outcome is explained at a time: choose one",
    "seed-missing": "give a seed, such as 1, so that the model can be made again",
    "singular-matrix": "a column is constant, or follows from others, within one group: leave "
    "one of them out",
    "table-too-large": "these columns together have too many levels: leave a column out, or join "
    "rare levels in the step Columns",
    "too-few-folds": "cross-validation needs two parts of the rows at least",
    "too-few-rows-for-rounds": "{head}, and ten rows are needed for each: ask for fewer rounds or "
    "variables, or plan for more rows",
    "too-few-rows": "there are too few rows for this question: ask it of fewer columns",
    "tukey-needs-equal-variances": "Tukey's adjustment is for groups with equal variances: choose "
    "another adjustment, or assume equal variances",
    "unknown-group": "there is no such group: choose one from the list",
    "welch-two-factors": "Welch's test is for one column of groups: assume equal variances, or "
    "choose one column",
    "no-known-classes": "the file does not say the outcome of any row: choose one that does",
    "still-encrypted": "this result is still encrypted: open it first",
    # columns
    "bins-out-of-range": "a number is cut into at least 2 bins: give a larger number of bins",
    "number-without-range": "a column of numbers has no values: leave it out",
    "target-without-classes": "the outcome has no levels: choose another outcome",
    "missing-values": (
        "some rows have missing values: say what becomes of them, in the step Columns"
    ),
    "single-class": "the outcome has one level only, and at least two are needed",
    "kind-needs-data": "this column cannot be used in this way: choose another one in the step "
    "Columns",
    "wrong-target-kind": "the outcome is used both as a number and in levels: choose one of them "
    "in the step Columns",
    "impossible-range": "a column has numbers that are too large: leave it out, or give it in a "
    "larger unit",
    "impossible-number-variable": "a column has numbers that are too large, or too few bins: "
    "change it in the step Columns",
    # what others may see
    "disclosive-result": "this is not published: together with what was published before, it would "
    "show single rows. Publish something else, or release it with noise",
    "budget-out-of-range": "a budget has an epsilon above 0, and a delta of 0 or far below 1",
    "delta-is-zero": "this kind of noise needs a delta above 0, such as 1e-6",
    "delta-out-of-range": "delta is 0, or far below 1 divided by the number of rows, such as 1e-6",
    "delta-too-large": "this delta could give away a row as it is: take far less than 1 divided by "
    "the number of rows, such as 1e-6",
    "epsilon-out-of-range": "epsilon is a number above 0, such as 1",
    "no-rules": "choose the rules by which it is published",
    "unknown-rules": "choose the rules from the list",
    "max-weight-too-small": "the rows of this table have larger weights than noise was asked for: "
    "leave the bound empty",
    "not-a-member": "the ledger of this project belongs to another key: put the right ledger back",
    # rounds
    "too-many-trees": "there may be at most 4,096 trees with their decoys: ask for fewer",
    "cannot-hide-splits": "splits are hidden in trees with at most 2 levels, and without decoys: "
    "choose a depth of 2, or decoys",
    "no-classes": "splits are hidden where the outcome has levels, and this outcome is a number: "
    "choose decoys, or another outcome",
    # studies
    "duplicate-identifiers": "some rows have the identifiers of another row: correct the file, or "
    "say which of them count",
    "wrong-identifiers": "give as many columns of identifiers as the study names, in its order",
    "outcome-out-of-range": "the outcome of some rows is none that this model can have, such as a "
    "negative count: correct the file",
    "no-valid-coefficients": "the model has no coefficients that all rows allow: the study has to "
    "ask another",
    "too-few-rounds": "the rounds were over before the model had converged: a study with more "
    "rounds can be made",
    "empty-risk-set": "a coefficient of the model grows without bound, as if a column alone said "
    "who has an event: the study has to ask with fewer columns, or fewer steps",
    "offset-too-wide": "the offset of the formula differs by more than 10 between rows, so that "
    "few rows would have all the weight: choose nearer bounds for its columns, or leave it out",
    "offset-in-cox": "a Cox regression over sites takes no offset: leave it out of the formula",
    "weighted-rows": "models that converge over sites take rows without weights: give each row as "
    "often as it counts",
    "remains-of-identity": "files of a former study are in the way: add the study as a new one, "
    "with your new invitation, and compare the fingerprint",
    "rows-needed": "give the file with your rows and the columns that identify people",
    "worker-is-receiver": "the worker has all encrypted rows and the receiver opens: name two "
    "parties",
    "openers-out-of-range": "two sites or more help to open a sealed key, and all of them at most",
    "receiver-is-site": "with a key that nobody has, the receiver brings no rows: name another "
    "receiver, or choose another kind of key",
    "totals-under-joint-key": "with a key that nobody has, sites do not send encrypted totals: let "
    "the question be answered from masked totals, which give the same",
    "votes-without-joint-key": "votes for new rows are opened with a key that nobody has, and no "
    "other: choose that key, or ask for the model and predict at home",
    "rows-needed-for-votes": "this question says nothing of new rows before it is opened: let it "
    "be answered from encrypted rows",
    "repeated-opening": "two questions have the same totals, which a key that nobody has opens "
    "once: ask one of them",
    "repeated-question": "two questions are the same: ask one of them",
    "stochastic-fraction": "a share of the rows that is drawn at random cannot be asked for here: "
    "let the question use all rows",
    "unknown-identifier-kind": "people are linked by text, code or date: give one or more of "
    "these, in the order of the columns",
    "membership-sensitive": "being at a site is sensitive in this study, so that sites may learn "
    "only how many people they share: name a linkage agent, and choose that",
    "intersection-of-two": "without a linkage agent two sites link their people, and both learn "
    "which they share: name an agent, or choose that they learn it",
    "other-steps": "the Cox regressions of a study need the same time, event and factors: ask the "
    "other one in another study",
    "minimum-too-small": "behind every number there are 5 rows or more: give a larger number",
    "outcome-or-intercept-missing": "a formula has one outcome and an intercept: write it as in "
    "ill ~ age + sex",
    "orthogonal-polynomial": "this polynomial depends on the rows of all sites: write it with "
    "powers of the column instead",
    "unknown-link": "this link does not go with this model: choose another, or leave it empty",
    **dict.fromkeys(
        (
            "wrong-number-of-members",
            "copies-in-study",
            "unknown-key-kind",
            "malformed-linkage",
        ),
        "the document of this study breaks the rules of studies: do not join it, and ask the "
        "person who made it for another",
    ),
    # regression
    "unknown-sum-type": "sums of squares are of type 1 or 2: choose one of them",
    "unknown-interval": "choose one of the intervals in the list",
    "confidence-out-of-range": "the confidence level is between 0 and 1, such as 0.95",
    "quantile-out-of-range": "shares are numbers between 0 and 1, such as 0.5",
}

#: By the name of the error's class, the most special first, where its code has no sentence.
FAMILIES: Final[dict[str, str]] = {
    "RowsByOthersError": "rows in this table were encrypted by others, and the page does not take "
    "such tables",
    "FileFormatError": "the file is damaged, was altered, or is of another version of this "
    "program. Copy it again, or take the result again",
    "StudyError": "the study does not allow this now: look at what is next in it",
    "KeyMismatchError": (
        "this belongs to another key than that of the project: choose the right file"
    ),
    "PassphraseError": "the passphrase does not open this key: type it again",
    "NoiseError": "these questions cannot be computed with keys of any size that this program "
    "makes: ask fewer, or with fewer columns",
    "DeviceError": "the worker's machine cannot compute this: ask the person who runs it",
    "HelperError": "a part of the program was ended from outside, most often because memory ran "
    "out: close other programs, and go on",
    "ClusterError": "the worker could not finish: send it again to go on, or ask the person who "
    "runs the worker",
    "WorkerError": "the worker could not do this: ask the person who runs the worker",
    "StorageError": "the storage does not answer: check the network or the drive, and try again",
    "BusyError": "another program is writing there: wait until it has ended, and try again",
    "VerificationError": "the result is not what the key signs for: take it again, and do not "
    "trust this one",
    "DisclosureError": "this is not published: it would show single rows. Publish something "
    "else, or release it with noise",
    "BudgetError": "the budget does not allow this: ask for less, with a smaller epsilon",
    "DataError": "these rows do not allow this question: ask it of other columns",
    "SchemaError": "the file or its columns do not fit this: look at them in the step Columns, or "
    "choose another file",
    "ParameterError": "this cannot be asked like this: look at what was chosen, or ask another "
    "question",
    "TooLargeError": f"the numbers are too large for the key: {_COPY}",
}

#: What a worker's refusal means, by its HTTP status.
REFUSALS: Final[dict[int, str]] = {
    400: "what was sent did not arrive whole: send it again",
    401: "the worker does not take this access token: it is mistyped, has expired or was revoked. "
    "Ask the person who runs the worker for a new one",
    403: (
        "this access token is not for computing: ask the person who runs the worker for one that is"
    ),
    404: "there is no worker of this kind at this address, or it does not have the table any more: "
    "check the address, and send it again",
    409: "the worker does not have all of the table: send it again",
    413: "your room at the worker is full, or the table is too large: ask the person who runs the "
    "worker for more room",
    422: "the worker does not take this question or table: ask the person who runs the worker "
    "whether it has the same version of the program",
    429: "the worker has too much to do just now: wait a minute, and go on",
}
REFUSED: Final = "the worker could not do this: try again later, or ask the person who runs it"
BUSY: Final = "the worker is not ready just now: wait a minute, and go on"

#: What went wrong with a file or the network on this machine, by number; ``{file}`` is the file.
SYSTEM: Final[dict[int, str]] = {
    errno.ENOSPC: "the disk is full: free some space, and go on. What was done is kept",
    errno.EDQUOT: "your space on the disk is used up: free some, and go on. What was done is kept",
    errno.EROFS: "the drive cannot be written to: choose another folder",
    errno.EIO: "the drive could not be read or written: check it, and try again",
    errno.ENOENT: "{file} is not there any more: put it back, or choose another file",
    errno.ENOTDIR: "{file} is no folder: choose one",
    errno.EISDIR: "{file} is a folder: choose a file in it",
    errno.EACCES: "{file} may not be read or written by you: choose another, or ask for the right",
    errno.EPERM: "{file} may not be read or written by you: choose another, or ask for the right",
    errno.EEXIST: "{file} is there already: choose another place",
    errno.ENAMETOOLONG: "the name of the file is too long: rename it",
    errno.EMFILE: "too many files are open: close other programs, and try again",
    errno.ENOMEM: "there is not enough memory: close other programs, and go on",
    errno.ESTALE: "the network drive was lost: connect it again, and go on",
}
SYSTEM_FAILED: Final = "{file} could not be read or written: check the drive, and try again"
#: Errors of Python itself, by class; the first that fits.
OTHERS: Final[tuple[tuple[type[BaseException], str], ...]] = (
    (MemoryError, "there is not enough memory: close other programs, and go on"),
    (ImportError, f"this needs a part of the program that is not installed: {_INSTALL}"),
    (
        UnicodeError,
        "the file has letters that cannot be read: save it as CSV in the encoding UTF-8, and "
        "choose it again",
    ),
    (
        ValueError,
        "the file or the form has something that cannot be read: look at it again, or save the "
        "file as CSV and choose that",
    ),
    (OverflowError, "a number is too large: give it in a larger unit"),
)
