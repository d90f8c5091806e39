"""The program: a few verbs, and the other commands grouped by noun.

The module of a command is imported when the command is used, so that the list of commands is shown
at once. The line about a command is the first sentence of its docstring.
"""

from __future__ import annotations

from encryptedstats.cli._help import Entry, register_group, register_late
from encryptedstats.cli._program import ReportingGroup, new_program

_HELP = """Statistics on encrypted tables: encrypt, let another computer compute, open the result.

The owner has the rows and the secret key. A worker gets the encrypted table, computes, and learns
nothing but sizes. Questions are written as in R, "lm(bmi ~ age + sex)", or as words, forest
trees=100.
"""

STORY = """\
# the owner
encryptedstats data schema patients.csv --target ill -o schema.json
encryptedstats plan schema.json forest trees=100 "counts(age, ill)" --rows 683 -o plan.json
encryptedstats key make secret.key public.keys --plan plan.json
encryptedstats encrypt patients.csv patients.enc --schema schema.json --key secret.key
# the worker, who has patients.enc and nothing else
encryptedstats ask patients.enc forest trees=100 "counts(v0, class)" -o answers
# the owner, who gets the folder answers back
encryptedstats open answers/counts.enc --key secret.key --schema schema.json -o age.csv
encryptedstats open answers/forest.enc --key secret.key --schema schema.json -o forest.model
encryptedstats predict forest.model new.csv -o predicted.csv"""


class _Program(ReportingGroup):
    """The program, whose help ends with the whole story."""

    story = STORY


app = new_program(_HELP, _Program)

#: The verbs: the module of each command, and the first line of its help.
VERBS: dict[str, tuple[str, str]] = {
    "plan": (
        "plan",
        "Find the parameters and the cost of questions before anything is encrypted.",
    ),
    "encrypt": (
        "encrypt",
        "Encrypt the rows of a file into a table that a worker may have.",
    ),
    "ask": (
        "ask",
        "Ask an encrypted table one or many questions: tests, regressions, models.",
    ),
    "open": (
        "open",
        "Open an answer with the secret key: show it, or write it as a table or a model.",
    ),
    "predict": ("predict", "Predict the class or the number of every row, as CSV or encrypted."),
    "evaluate": ("evaluate", "Score a model on rows with known classes, with 95 % intervals."),
    "app": (
        "app",
        "Do the owner's part in your browser, without commands.",
    ),
}

#: The other commands by noun: a line about the group, and its commands.
GROUPS: dict[str, tuple[str, dict[str, tuple[str, str]]]] = {
    "data": (
        "Schemas, and what files hold.",
        {
            "schema": (
                "schema",
                "Find out how every column of a file becomes bins or integers, and save that.",
            ),
            "info": (
                "info",
                "Show what a file or a table holds, whose it is, and whether it is secret.",
            ),
        },
    ),
    "key": (
        "Secret keys and public keys.",
        {
            "make": ("key", "Make a secret key, and public keys for workers and contributors."),
            "public": ("key", "Write the public keys of a secret key again."),
            "move": ("key", "Encrypt a table, a model or an answer again, for a new key."),
            "retire": ("key", "Declare that nothing is to be encrypted for a key any more."),
        },
    ),
    "model": (
        "Combine, complete and calibrate models.",
        {
            "combine": (
                "model",
                "Add up models of different rows, or forget some rows, encrypted or decrypted.",
            ),
            "draw": (
                "model",
                "Draw the stochastic fraction of a combined forest.",
            ),
            "calibrate": (
                "model",
                "Calibrate the probabilities of a decrypted model on rows with known classes.",
            ),
        },
    ),
    "publish": (
        "What may be published: releases with noise, the ledger, the report.",
        {
            "release": (
                "publish",
                "Open an answer with noise, so that it tells little about any single person.",
            ),
            "begin": (
                "publish",
                "Begin a ledger: the budget and the rules of everything that is published.",
            ),
            "ledger": (
                "publish",
                "Show what was opened, published and released, and the rest of the budget.",
            ),
            "budget": ("publish", "Give a ledger another budget from now on."),
            "report": (
                "publish",
                "Write a report for an ethics board: what was computed and what was published.",
            ),
        },
    ),
    "study": (
        "Several owners who pool encrypted rows, agree on questions, and open nothing else.",
        {
            "create": (
                "study",
                "Write the document of a new study, and an invitation for each party.",
            ),
            "join": (
                "study",
                "Join a study: make your keys and sign its document.",
            ),
            "link": (
                "study",
                "Agree with other sites on which rows are of the same people.",
            ),
            "keygen": ("study", "Make the study's key, once everybody has joined."),
            "add": (
                "study",
                "Check your rows against the agreed schema, and encrypt them for the study.",
            ),
            "share": ("study", "Send what the study waits for."),
            "fit": ("study", "Compute what can be computed now."),
            "open": ("study", "Open results, as the receiver of the study."),
            "exclude": (
                "study",
                "Continue without a site, in all questions.",
            ),
            "retire": ("study", "Retire the study's key."),
            "status": (
                "study",
                "Show who has done what, what was refused, and what is next.",
            ),
        },
    ),
    "worker": (
        "Compute for others: queues, and the service over HTTP.",
        {
            "run": ("worker", "Work through a queue until nothing is left."),
            "queue": ("worker", "Show the progress of a queue and its workers."),
            "serve": (
                "worker",
                "Serve owners over HTTP: they send encrypted tables and ask questions.",
            ),
            "token": ("worker", "Add, revoke or list the tokens of the service."),
            "audit": ("worker", "Check the audit log of a service, and print it."),
        },
    ),
    "check": (
        "Check the installation, and a worker's answers.",
        {
            "install": (
                "check",
                "Check versions, CPU, memory, both schemes, and the key files in this folder.",
            ),
            "answer": (
                "check",
                "Check a worker: compute its answer anew, and compare every ciphertext.",
            ),
        },
    ),
}

for name, (module, line) in VERBS.items():
    register_late(app, name, Entry(module, line))
for name, (about, commands) in GROUPS.items():
    register_group(app, name, about, commands)
