"""The program: its commands, by who uses them.

A new family of commands is a module of its own with functions (or, for commands that have a word
before them, ABOUT, STORY and COMMANDS); they are added to the list of a role. Nothing of it is
imported before it is used.
"""

from __future__ import annotations

from encryptedstats.cli._help import Entry, register_late
from encryptedstats.cli._program import Program, new_program

_HELP = """Statistics on encrypted data: encrypt, let somebody else compute, and open the result yourself.

The owner has the data and makes the keys. A worker gets the encrypted table, computes, and learns nothing but sizes. Others may
encrypt rows for the owner, with the public keys, and cannot open even their own again.
"""

_STORY = """\
# the owner
encryptedstats schema patients.csv --target ill -o schema.json
encryptedstats plan --schema schema.json --rows 683 --model forest --trees 100 -o plan.json
encryptedstats keygen secret.key public.keys --plan plan.json
encryptedstats encrypt patients.csv patients.enc --schema schema.json --key secret.key
# the worker, who has patients.enc and nothing else
encryptedstats counts patients.enc v0 --by class -o age.enc
encryptedstats fit patients.enc -o forest.enc --model forest --trees 100
# the owner, who gets age.enc and forest.enc back
encryptedstats decrypt age.enc --key secret.key --schema schema.json -o age.csv
encryptedstats decrypt forest.enc --key secret.key --schema schema.json -o forest.opened
encryptedstats predict forest.opened new.csv -o predicted.csv"""


class _Program(Program):
    """The library's own, whose help ends with the whole story."""

    story = _STORY


app = new_program(_HELP, _Program)

#: Commands by who uses them: the module of each, and the first line of its help.
ROLES: dict[str, dict[str, tuple[str, str]]] = {
    "Owner: has the data, and alone the secret key": {
        "app": (
            "app",
            "Do all of the owner's part on a page in your browser, without writing a command.",
        ),
        "schema": (
            "schema",
            "Decide from a file how every column becomes bins or integers, and write that down.",
        ),
        "plan": ("plan", "Find parameters for a computation, and its cost, before anybody pays."),
        "keygen": (
            "keygen",
            "Make a secret key, and public keys for whoever encrypts or computes.",
        ),
        "encrypt": (
            "encrypt",
            "Encrypt the rows of a file into a table that can be handed to anybody.",
        ),
        "decrypt": ("decrypt", "Open a result, a prediction or a model with the secret key."),
        "predict": (
            "predict",
            "Predict the class of rows, or a number: as CSV if model and rows are open, else "
            "encrypted.",
        ),
        "evaluate": (
            "evaluate",
            "Score a model on rows with known classes: AUC, accuracy, log loss, Brier score, "
            "sensitivity, specificity, "
            "calibration.",
        ),
        "calibrate": (
            "calibrate",
            "Fit the probabilities of an opened model to rows with known classes.",
        ),
        "move": (
            "moving",
            "Take a table, a model or a result to a new key: opened with the old one, and "
            "encrypted anew, on your machine.",
        ),
        "retire": (
            "moving",
            "Say in writing, signed by the secret key, that nothing is to be encrypted for its "
            "public keys any more.",
        ),
        "release": (
            "publishing",
            "Open a result or a model with noise on it, so that it tells little of any single "
            "person (differential privacy).",
        ),
        "ledger": (
            "publishing",
            "Show what was opened, published and released, and what is left of the budget; or "
            "begin a ledger.",
        ),
        "report": (
            "publishing",
            "Write a page for an ethics board, from the files themselves: what was computed, who "
            "could see what, and what left "
            "the house.",
        ),
    },
    "Worker: computes on what it cannot read": {
        "info": (
            "info",
            "Show what a file or a table holds, whose it is, and if a secret is in it.",
        ),
        "counts": (
            "statistics",
            "Count the rows in each bin of a variable; by class, or by another variable.",
        ),
        "crosstab": ("statistics", "Count the rows in each pair of bins of two variables."),
        "moments": (
            "statistics",
            "Sums, means, variances and covariances of variables that were kept as numbers.",
        ),
        "ask": ("statistics", "Ask a statistic, or a question of your own, written in Python."),
        "fit": (
            "models",
            "Fit a model to a table; it stays encrypted, and only the owner can open it.",
        ),
        "combine": (
            "models",
            "Add models of different rows up, or forget some rows, encrypted or opened.",
        ),
        "draw": (
            "draw",
            "Draw the stochastic fraction of a forest that was put together from others.",
        ),
        "worker": (
            "cluster",
            "Work through a queue until nothing is left. Start as many as you have cores; stop "
            "any of them at any time.",
        ),
        "queue": ("cluster", "Show how far the work of a queue is, and who is at it."),
        "serve": (
            "serve",
            "Let owners send encrypted tables and ask for answers, over HTTP; and show whoever "
            "runs it a page.",
        ),
    },
    "Several owners: who pool rows, and agree on what may be asked": {
        "study": (
            "study",
            "Several owners: hospitals that pool encrypted rows, agree on what may be asked, and "
            "open nothing else.",
        ),
    },
    "To look around": {
        "verify": (
            "verify",
            "Check a worker: compute its result anew, and compare every ciphertext.",
        ),
        "doctor": (
            "doctor",
            "Check the installation: versions, CPU, memory, a self-test of both schemes, and the "
            "key files in this folder.",
        ),
        "bench": (
            "bench",
            "Measure this machine: integers in both schemes, and a forest on an encrypted table. "
            "Ten seconds or so.",
        ),
    },
}
for role, commands in ROLES.items():
    for name, (module, line) in commands.items():
        register_late(app, name, Entry(module, line, role))
