"""What importing the package brings in: nothing that takes long. (How long it takes is a matter of
machines, and not tested.)
"""

from __future__ import annotations

import subprocess
import sys

HEAVY = (
    "numpy",
    "pandas",
    "sklearn",
    "scipy",
    "seal",
    "pyarrow",
    "matplotlib",
    "dask",
    "cryptography",
    "fastapi",
    "multiprocessing",
)


def imported_by(code: str) -> set[str]:
    report = (
        f"import os, sys\n{code}\nprint(' '.join(name for name in {HEAVY!r} if name in "
        "sys.modules))"
    )
    return _printed_by(report)


def all_imported_by(code: str) -> set[str]:
    return _printed_by(f"import sys\n{code}\nprint(*sys.modules)")


def _printed_by(code: str) -> set[str]:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_package_itself_imports_nothing_that_takes_long():
    assert imported_by("import encryptedstats") == set()
    assert (
        imported_by("import encryptedstats; encryptedstats.DataError, encryptedstats.__version__")
        == set()
    )


def test_the_help_imports_nothing_that_takes_long():
    program = "from encryptedstats.cli import main; sys.argv[1:] = ['--help']"
    assert (
        imported_by(
            f"{program}; sys.stdout = open(os.devnull, 'w')\ntry: main()\nexcept SystemExit: "
            "sys.stdout = sys.__stdout__\n"
        )
        == set()
    )


def test_a_question_imports_what_it_needs_and_nothing_else():
    """What ``ask`` imports before it computes counts: neither models, nor what publishes."""
    begun = (
        "from encryptedstats.cli.ask import ask_; from encryptedstats.tables.questions.words "
        "import make_questions; make_questions(['counts(v0, class)'])"
    )
    found = all_imported_by(begun)
    assert "encryptedstats.cli.ask" in found
    assert not {"sklearn", "scipy", "matplotlib", "fastapi", "encryptedstats.publishing"} & found


#: The owner plans, encrypts, asks and opens. What draws and scores comes later.
STORY = """
import pandas as pd
import encryptedstats as es
from encryptedstats.cli import ask, encrypt, open, plan, predict
from encryptedstats.tables.questions.words import make_questions

frame = pd.DataFrame({"bmi": [20, 30, 25, 35] * 5, "sex": list("mf") * 10, "sick": [0, 1, 1, 0] * 5})
schema = es.Schema.infer(frame, target="sick", numbers="keep")
asked = make_questions(["forest", "trees=1", "depth=1", "lm(bmi ~ sex)", "t.test(bmi ~ sex)"], schema)
owner = es.Owner(es.plan(asked, schema, n_rows=20))
with es.connect("local") as worker:
    table = worker.upload(owner.encrypt(schema.table(frame)))
    answers = [worker.ask(one, table) for one in asked]
"""


def test_a_forest_a_regression_and_a_test_are_asked_without_scikit_learn_and_scipy():
    """And a forest is opened, and predicts, without scikit-learn."""
    heavy = {"sklearn", "scipy", "matplotlib", "dask", "fastapi"}
    asked = f"assert not {heavy} & set(sys.modules), 'before it is opened'"
    opened = "model = owner.open(answers[0], schema); model.predict(schema.table(frame))"
    found = imported_by(f"{STORY}\n{asked}\n{opened}")
    assert "numpy" in found
    assert "sklearn" not in found


def test_a_question_imports_its_own_module_and_no_other():
    found = all_imported_by(
        "from encryptedstats.tables.questions.words import make_questions; make_questions(['mnb'])"
    )
    assert "encryptedstats.models.naive_bayes" in found
    assert not {"encryptedstats.models.forest", "encryptedstats.statistics.linear"} & found
