"""The program: a few verbs, and the other commands grouped by noun.

A command is a function of a module; it is imported when it is used, so that the list of commands
is shown at once. What stands here as its line is the first sentence of its docstring.
"""

from __future__ import annotations

from encryptedstats.cli._help import Entry, register_group, register_late
from encryptedstats.cli._program import Program, new_program

_HELP = """Statistics on encrypted tables: encrypt, let another computer compute, and open the result yourself.

The owner has the rows and the secret key. A worker gets the encrypted table, computes, and learns nothing but sizes. Questions are
written as in R, "lm(bmi ~ age + sex)", or as words, forest trees=100.
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


class _Program(Program):
    """The library's own, whose help ends with the whole story."""

    story = STORY


app = new_program(_HELP, _Program)

#: What everybody needs: the module of each command, and the first line of its help.
VERBS: dict[str, tuple[str, str]] = {
    "plan": (
        "plan",
        "Find parameters for questions, and what they cost, before anything is encrypted.",
    ),
    "encrypt": (
        "encrypt",
        "Encrypt the rows of a file into a table that can be handed to anybody.",
    ),
    "ask": (
        "ask",
        "Ask an encrypted table: tests, tables, regressions and models, one or many at once.",
    ),
    "open": (
        "open",
        "Open an answer with the secret key: show it, or write it as a table or a model.",
    ),
    "predict": ("predict", "Predict the class or the number of every row, as CSV or encrypted."),
    "evaluate": ("evaluate", "Score a model on rows with known classes, with 95 % intervals."),
    "app": (
        "app",
        "Do all of the owner's part on a page in your browser, without writing a command.",
    ),
}

#: The other commands by noun: a line about the group, and its commands.
GROUPS: dict[str, tuple[str, dict[str, tuple[str, str]]]] = {
    "data": (
        "Schemas, and what files hold.",
        {
            "schema": (
                "schema",
                "Decide from a file how every column becomes bins or integers, and write that down.",
            ),
            "info": (
                "info",
                "Show what a file or a table holds, whose it is, and if a secret is in it.",
            ),
        },
    ),
    "key": (
        "Secret keys and public keys.",
        {
            "make": ("key", "Make a secret key, and public keys for whoever encrypts or computes."),
            "public": ("key", "Write the public keys of a secret key again."),
            "move": ("key", "Take a table, a model or a result to a new key, on your machine."),
            "retire": ("key", "Say in writing that nothing is to be encrypted for a key any more."),
        },
    ),
    "model": (
        "Models that are added up, completed or calibrated.",
        {
            "combine": (
                "model",
                "Add models of different rows up, or forget some rows, encrypted or opened.",
            ),
            "draw": (
                "model",
                "Draw the stochastic fraction of a forest that was put together from others.",
            ),
            "calibrate": (
                "model",
                "Fit the probabilities of an opened model to rows with known classes.",
            ),
        },
    ),
    "publish": (
        "What may leave the house: releases with noise, the ledger, the report.",
        {
            "release": (
                "publish",
                "Open an answer with noise on it, so that it tells little of any single person.",
            ),
            "begin": (
                "publish",
                "Begin a ledger: the budget and the rules of all that will be published.",
            ),
            "ledger": (
                "publish",
                "Show what was opened, published and released, and what is left of the budget.",
            ),
            "budget": ("publish", "Give a ledger another budget from now on."),
            "report": (
                "publish",
                "Write a page for an ethics board: what was computed, and what left the house.",
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
                "Take part in a study: makes your keys and signs the document, in your name.",
            ),
            "keygen": ("study", "Make the study's key, when all have joined."),
            "add": (
                "study",
                "Bring your rows: checked against the agreed schema, and encrypted for the study's key.",
            ),
            "share": ("study", "Send what the study waits for from you."),
            "fit": ("study", "Compute what can be computed now."),
            "open": ("study", "Open results, as the receiver of the study."),
            "exclude": (
                "study",
                "Go on without a site that does not come, in all questions, in writing.",
            ),
            "retire": ("study", "Retire the study's key, in writing."),
            "status": (
                "study",
                "Show who has done what, what was refused, and who has to do what next.",
            ),
        },
    ),
    "worker": (
        "Computing for others: queues, and the service over HTTP.",
        {
            "run": ("worker", "Work through a queue until nothing is left."),
            "queue": ("worker", "Show how far the work of a queue is, and who is at it."),
            "serve": ("worker", "Let owners send encrypted tables and ask for answers, over HTTP."),
            "token": ("worker", "Add, revoke or list the tokens of those who may use the service."),
            "audit": ("worker", "Check the audit log of a service, and print it."),
        },
    ),
    "check": (
        "Checks of the installation, of this machine, and of a worker's answers.",
        {
            "install": (
                "check",
                "Check versions, CPU, memory, both schemes, and the key files in this folder.",
            ),
            "speed": (
                "check",
                "Measure this machine: integers in both schemes, and a forest on an encrypted table.",
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
