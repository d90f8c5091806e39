"""``python -m reproduction``: the commands, with errors and help as those of the program
``encryptedstats``.
"""

from __future__ import annotations

from encryptedstats.cli._help import register
from encryptedstats.cli._program import new_program
from reproduction.casestudy import casestudy
from reproduction.datasets_command import datasets
from reproduction.evaluation_command import evaluation

_HELP = """The paper again (Aslett, Esperança and Holmes, 2015): its data sets, its evaluation and its case study."""

app = new_program(_HELP)
for command in (evaluation, casestudy, datasets):
    register(app, command, "Commands")

if __name__ == "__main__":
    app(prog_name="python -m reproduction")
