"""Questions of one's own: asked of clear and encrypted tables alike, planned, stored, found by
name, added, and refused.
"""

from __future__ import annotations

import ast
import pickle
import subprocess
import sys
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import encryptedstats as es
from encryptedstats.models.prediction import sum_of_numbers, times
from encryptedstats.storage import container
from encryptedstats.tables.answers import answer, schema_check
from encryptedstats.tables.questions import folds, question, summaries
from encryptedstats.tables.questions.question import (
    ImpossibleTotalsError,
    bin_columns,
    class_columns,
    load_questions,
    number_column,
    question_class,
    refuse_impossible,
)
from error_codes import error

pytestmark = pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")
IMPOSSIBLE = "impossible-question-or-schema"
FRAME = pd.DataFrame({"age": [30, 40, 50, 60, 40, 30], "sick": [0, 1, 1, 0, 1, 1]})


@dataclass(frozen=True)
class Ages(es.Question):
    """The rows of each class in each bin of a variable, times something."""

    variable: str = "v0"
    times: int = 1

    def totals(self, schema: Any, columns: Any = None, fold: Any = None) -> dict[str, Any]:
        classes, bins = (
            class_columns(schema, fold),
            bin_columns(schema, schema.index(self.variable)),
        )
        return {
            "class_counts": [y.total() for y in classes],
            "cells": np.array([[(x * y).total() for y in classes] for x in bins], dtype=object),
        }

    def shapes(self, schema: Any) -> dict[str, tuple[int, ...]]:
        n_bins = schema.variables[schema.index(self.variable)].n_bins
        return {"class_counts": (schema.n_classes,), "cells": (n_bins, schema.n_classes)}

    def read(self, totals: Any, schema: Any, n_rows: int) -> dict[str, Any]:
        refuse_impossible(
            totals["cells"].sum() == totals["class_counts"].sum(), "cells without rows"
        )
        return {
            "cells": (self.times * totals["cells"]).tolist(),
            "rows": n_rows,
            "known": hasattr(schema, "target"),
        }


@pytest.fixture(scope="module")
def schema() -> es.Schema:
    return es.Schema.infer(FRAME, target="sick")


@pytest.fixture
def sealed(tiny: es.Owner, schema: es.Schema) -> es.EncryptedTable:
    return tiny.encrypt(schema.table(FRAME, folds=2), workers=1)


# -- asking
# ------------------------------------------------------------------------------------------------


def test_an_encrypted_answer_is_read_as_the_clear_one(
    tiny: es.Owner, schema: es.Schema, sealed: es.EncryptedTable, tmp_path: Path
) -> None:
    table, question = schema.table(FRAME), Ages(times=3)
    wanted = table.ask(question)
    assert wanted == {"cells": [[3, 3], [0, 6], [0, 3], [3, 0]], "rows": 6, "known": True}
    answer = sealed.ask(question, workers=1)
    assert isinstance(answer, es.EncryptedAnswer)
    assert tiny.open(answer) == wanted
    answer.save(tmp_path / "answer")
    for again in (
        es.load(tmp_path / "answer", tiny.public_keys()),
        es.EncryptedAnswer.load(tmp_path / "answer", tiny.public_keys()),
    ):
        assert again.question == question
        assert tiny.open(again, schema=schema) == wanted
        assert tiny.open(again) == {**wanted, "known": False}
    assert repr(answer) == (
        f"EncryptedAnswer(Ages(variable='v0', times=3), 6 rows, {answer.nbytes / 1e6:.1f} MB, key "
        f"{tiny.key_id})"
    )
    assert len(answer) == 6
    with pytest.raises(TypeError, check=error("not-pickled")):
        pickle.dumps(answer)


def test_it_is_planned_as_models_are(schema: es.Schema) -> None:
    made = es.plan([Ages(), es.MultinomialNB()], schema, n_rows=100)
    assert (
        made.n_totals == 2 * len(dict.fromkeys(Ages().circuit(schema.public()))) == 20
    )  # each is asked alone


def test_a_model_is_a_question(
    tiny: es.Owner, schema: es.Schema, sealed: es.EncryptedTable
) -> None:
    table = schema.table(FRAME)
    fitted, closed = table.ask(es.MultinomialNB()), sealed.ask(es.MultinomialNB(), workers=1)
    assert isinstance(fitted, es.MultinomialNB)
    assert closed.is_encrypted
    assert fitted.totals_ == es.MultinomialNB().fit(table).totals_ == tiny.open(closed).totals_
    named = es.MultinomialNB()._name_totals(fitted.totals_, schema.public())
    assert {name: array.shape for name, array in named.items()} == {
        "class_counts": (2,),
        "bins": (4, 2),
    }


def test_folds_are_a_question(tiny: es.Owner, schema: es.Schema, sealed: es.EncryptedTable) -> None:
    table = schema.table(FRAME, folds=2)
    asked = folds.Folds(Ages(), 2)
    parts = [table.take(np.flatnonzero(table.fold_codes != fold)) for fold in range(2)]
    wanted = [part.ask(Ages()) for part in parts]
    assert table.ask(asked) == tiny.open(sealed.ask(asked, workers=1)) == wanted
    assert asked.describe() == "2 folds of Ages(variable='v0', times=1)"

    class Uncounted(Ages):
        def shapes(self, schema: Any) -> dict[str, tuple[int, ...]]:
            return {}

    with pytest.raises(ValueError, check=error("question-without-classes")):
        table.ask(folds.Folds(Uncounted(), 2))


def test_answers_of_different_rows_add_up_and_forget(tiny: es.Owner, schema: es.Schema) -> None:
    first, second = (tiny.encrypt(schema.table(part), workers=1) for part in (FRAME[:4], FRAME[4:]))
    one, other = first.ask(Ages(), workers=1), second.ask(Ages(), workers=1)
    both = one + other
    assert tiny.open(both) == schema.table(FRAME).ask(Ages())
    assert both.block_ids == one.block_ids + other.block_ids
    assert tiny.open(both - other) == schema.table(FRAME[:4]).ask(Ages())
    with pytest.raises(es.SchemaError, check=error("block-already-included")):
        both + one
    with pytest.raises(es.SchemaError, check=error("rows-not-inside")):
        one - other
    with pytest.raises(ValueError, check=error("different-questions", "times=1", "times=2")):
        one + second.ask(Ages(times=2), workers=1)
    with pytest.raises(TypeError, check=error("rows-not-totals")):
        one + 3
    assert tiny.open(first.counts("age") + second.counts("age"))["count"].sum() == 6


# -- mistakes
# ------------------------------------------------------------------------------------------------


def changed(**methods: Any) -> es.Question:
    return type("Changed", (Ages,), methods)()


@pytest.mark.parametrize(
    ("question", "words"),
    [
        (
            changed(shapes=lambda self, schema: {"cells": (4, 2)}),
            "gives 'class_counts', 'cells', and shapes.. says 'cells'",
        ),
        (
            changed(shapes=lambda self, schema: {"class_counts": (2,), "cells": (2, 4)}),
            r"'cells' in the shape \(4, 2\), and shapes\(\) says \(2, 4\)",
        ),
        (
            changed(
                totals=lambda self, schema, columns, fold: {
                    "class_counts": [1, 2],
                    "cells": [[0, 0]] * 4,
                }
            ),
            r"gives something else than expressions that end in \.total\(\)",
        ),
    ],
)
def test_totals_that_are_not_what_was_said(
    question: es.Question, words: str, schema: es.Schema
) -> None:
    with pytest.raises((ValueError, TypeError), match=f"Changed: .*{words}"):
        schema.table(FRAME).ask(question)


def test_what_is_no_question(schema: es.Schema) -> None:
    for value, words in ((Ages, "not the class Ages"), ("counts", "not a str")):
        with pytest.raises(TypeError, check=error("not-a-question", words)):
            schema.table(FRAME).ask(value)


def test_impossible_totals_are_refused(schema: es.Schema) -> None:
    with pytest.raises(
        ImpossibleTotalsError,
        match="cells without rows: the result was altered, or is of other rows",
    ):
        Ages().interpret([9] * 10, schema, 6)


def test_parameters_that_are_refused_are_data() -> None:
    error = es.ParameterError(Ages(times=0).named_parameter("times"), ": at least 1")
    assert str(error) == "times=0: at least 1"
    assert [(cure.action, cure.values) for cure in error.cures] == [
        ("parameter", {"parameter": "times", "value": 0})
    ]


def test_columns_that_are_not_there(schema: es.Schema) -> None:
    with pytest.raises(es.SchemaError, check=error("keep-numbers", "'v0'")):
        number_column(schema.public(), 0)
    with pytest.raises(es.SchemaError, check=error("name-the-target")):
        class_columns(es.Schema.infer(FRAME).public())
    with pytest.raises(es.SchemaError, check=error("no-target")):
        schema.table(FRAME.drop(columns="sick")).ask(Ages())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"question": "Nobody"}, "import-questions"),
        ({"params": {"variable": "v0"}}, "wrong-parameters"),
        ({"params": {"variable": "v7", "times": 1}}, "question-not-of-schema"),
        ({"params": {"variable": [], "times": 1}}, IMPOSSIBLE),
        ({"n_rows": -1}, "impossible-rows-or-blocks"),
        ({"blocks": ["a", "a"]}, "impossible-rows-or-blocks"),
        ({"schema": "{}"}, IMPOSSIBLE),
        (
            {"question": "MultinomialNB", "params": {"alpha": 1.0, "bins": 5}},
            "kind-not-of-question",
        ),
    ],
)
def test_forged_files_are_refused(
    changes: dict[str, Any], words: str, tiny: es.Owner, sealed: es.EncryptedTable, tmp_path: Path
) -> None:
    sealed.ask(Ages(), workers=1).save(tmp_path / "answer")
    file = container.read(tmp_path / "answer")
    container.write(replace(file, fields={**file.fields, **changes}), tmp_path / "forged")
    with pytest.raises(es.FileFormatError, check=error(words)):
        es.load(tmp_path / "forged", tiny.public_keys())


@dataclass(frozen=True)
class Nearby(Ages):
    """Has answers for rows, if its parameters are what they should be."""

    def answers(self, schema: Any, columns: Any, known: Any, output: str = "") -> dict[str, Any]:
        x, cells = bin_columns(schema, schema.index(self.variable)), known["cells"]
        return {
            "cells": [
                sum_of_numbers([times(a, b) for a, b in zip(row, x, strict=True)])
                for row in cells.T
            ]
        }

    def answer_shapes(self, schema: Any, output: str = "") -> dict[str, tuple[int, ...]]:
        return {"cells": (len(range(schema.n_classes)[:: self.times]),)}

    def judge(self, answers: Any, schema: Any, output: str = "") -> Any:
        return answers["cells"].tolist()


@pytest.mark.parametrize(
    ("value", "code"),
    [(0, "question-not-of-schema"), *((one, IMPOSSIBLE) for one in ("a", {}, [1]))],
)
def test_forged_predictions_are_refused(
    value: Any, code: str, tiny: es.Owner, sealed: es.EncryptedTable, tmp_path: Path
) -> None:
    forged = es.EncryptedAnswer(
        Nearby(), sealed.ask(Ages(), workers=1).ciphertexts, sealed.schema, 6
    )
    file = forged.to_container(
        answer.PREDICTION_KIND, {"params": {"variable": "v0", "times": value}, "output": ""}
    )
    container.write(file, tmp_path / "forged")
    with pytest.raises(es.FileFormatError, check=error(code)):
        es.load(tmp_path / "forged", tiny.public_keys())


def test_answers_for_rows_are_planned(schema: es.Schema) -> None:
    """Of any question that has them, beside others that have none."""
    alone, both = (
        es.plan(asked, schema, n_rows=6, n_predict=3, encrypted_prediction=True)
        for asked in (Nearby(), [Ages(), Nearby()])
    )
    for plan in (alone, both):
        assert plan.prediction is not None
        assert plan.prediction.n_predict == 3
        assert plan.depth == 2  # a product for the cells, another one of cells and bins
    with pytest.raises(es.ParameterError, check=error("no-encrypted-prediction")):
        es.plan(Ages(), schema, n_rows=6, encrypted_prediction=True)


def test_an_answer_predicts_without_being_opened(schema: es.Schema, tmp_path: Path) -> None:
    question, table, new = (
        Nearby(),
        schema.table(FRAME),
        schema.table(FRAME.drop(columns="sick").tail(3)),
    )
    owner = es.Owner(es.plan(question, table, n_predict=3, encrypted_prediction=True))
    rows = owner.encrypt(new, workers=1)
    answer = owner.encrypt(table, workers=1).ask(question, workers=1)
    answer.save(tmp_path / "answer")
    for closed in (answer, es.load(tmp_path / "answer", owner.public_keys())):
        predicted = closed.predict_votes(rows, workers=1)
        assert predicted.kind == "encrypted prediction"
        # The rows of the same age, by class: 60, 40 and 30 years.
        assert owner.open(predicted, schema) == [[1, 0], [0, 2], [1, 1]]
    with pytest.raises(TypeError, check=error("prediction-of-prediction")):
        predicted.predict_votes(rows)
    with pytest.raises(es.ParameterError, check=error("unknown-output")):
        answer.predict_votes(rows, output="votes")
    wider = FRAME.assign(more=["a", "b"] * 3)
    foreign = owner.encrypt(es.Schema.infer(wider, target="sick").table(wider), workers=1)
    with pytest.raises(es.SchemaError, check=error("different-schemas")):
        answer.predict_votes(foreign)
    with pytest.raises(NotImplementedError, check=error("still-encrypted")):
        owner.encrypt(table, workers=1).ask(Ages(), workers=1).predict_votes(rows)


# -- found by name
# ------------------------------------------------------------------------------------------------

MODULE = """
from dataclasses import dataclass
import encryptedstats as es

@dataclass(frozen=True)
class {name}(es.Question):
    def totals(self, schema, columns=None, fold=None):
        return {{}}
    def shapes(self, schema):
        return {{}}
    def read(self, totals, schema, n_rows):
        return n_rows
"""


def test_questions_are_found_where_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(MODULE.format(name="InTheEnvironment"))
    with pytest.raises(es.FileFormatError, check=error("import-questions")):
        question_class("InTheEnvironment")
    monkeypatch.setenv("ENCRYPTEDSTATS_QUESTIONS", str(tmp_path / "mine.py"))
    assert question_class("InTheEnvironment").name == "InTheEnvironment"
    assert load_questions(tmp_path / "mine.py") is load_questions(str(tmp_path / "mine.py"))
    with pytest.raises(FileNotFoundError, match=r"none\.py is no Python file with questions"):
        load_questions(tmp_path / "none.py")


def test_questions_are_found_in_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "package_of_questions.py").write_text(MODULE.format(name="Installed"))
    monkeypatch.syspath_prepend(tmp_path)
    entry = EntryPoint("Installed", "package_of_questions:Installed", question.ENTRY_POINTS)

    def found(*, group: str, name: str = "Installed") -> list[EntryPoint]:
        return [entry] if (group, name) == ("encryptedstats.questions", "Installed") else []

    monkeypatch.setattr(question, "entry_points", found)
    assert question_class("Installed")().read({}, None, 3) == 3


def test_all_that_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(MODULE.format(name="Mine"))
    (tmp_path / "installed_too.py").write_text(MODULE.format(name="InstalledToo"))
    (tmp_path / "broken_package.py").write_text("import nowhere_at_all")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("ENCRYPTEDSTATS_QUESTIONS", str(tmp_path / "mine.py"))
    names = {"InstalledToo": "installed_too:InstalledToo", "Broken": "broken_package:Broken"}
    entries = [EntryPoint(name, value, question.ENTRY_POINTS) for name, value in names.items()]
    monkeypatch.setattr(question, "entry_points", lambda *, group: entries)
    with pytest.warns(
        UserWarning,
        match="the installed question Broken cannot be imported: No module named 'nowhere",
    ):
        known = question.load_all_questions()
    assert {"Mine", "InstalledToo", "MultinomialNB"} <= set(known)
    assert "Broken" not in known


def test_a_question_that_does_not_import_is_not_half_known(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("1 / 0\n")
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            load_questions(tmp_path / "bad.py")


def test_abstract_questions_are_nobodys() -> None:
    for name in ("Statistic", "TotalsClassifier", "TotalsModel", "_Cells"):
        with pytest.raises(es.FileFormatError, check=error("import-questions")):
            question_class(name)


# -- the house
# ------------------------------------------------------------------------------------------------


def test_questions_need_no_scikit_learn() -> None:
    code = (
        "import sys, encryptedstats.questions as own; own.Question, own.labels; "
        "sys.exit('sklearn' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def imports_within(package: str) -> dict[str, set[str]]:
    """For each module of a package, the modules of it that it imports, at any depth, also for types
    alone.
    """
    folder = Path(es.__file__).parent / package
    found = {}
    for path in folder.glob("*.py"):
        names = set()
        for node in ast.walk(ast.parse(path.read_text())):
            module = getattr(node, "module", None) or "" if isinstance(node, ast.ImportFrom) else ""
            if module.startswith(f"encryptedstats.{package}."):
                names.add(module.split(".")[2])
        found[path.stem] = names
    return found


def test_modules_of_models_import_no_one_another_in_a_circle() -> None:
    left = imports_within("models")
    while left:
        free = [name for name, needs in left.items() if not needs & set(left)]
        assert free, f"a circle among {sorted(left)}"
        left = {name: needs for name, needs in left.items() if name not in free}


def test_no_module_of_questions_imports_late() -> None:
    """Circles can hide in functions: these modules import on top, or for types alone."""
    for module in (question, folds, schema_check, summaries):
        tree = ast.parse(Path(str(module.__file__)).read_text())
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        late = [
            node
            for function in functions
            for node in ast.walk(function)
            if isinstance(node, ast.ImportFrom)
        ]
        assert not late, module.__name__


def test_errors_tell_the_owner_which_names_ids_have() -> None:
    frame = pd.DataFrame({"age": [30, 41, 52, 33], "race": list("abca"), "y": [1, 2, 3, 5]})
    schema = es.Schema.infer(frame, numbers="keep", digits=0)
    wrong = es.TTest("age", by="race")
    said = "not-two-groups"
    for ask in (schema.table(frame).ask, lambda question: es.plan(question, schema, n_rows=4)):
        with pytest.raises(es.ParameterError, check=error(said)):
            ask(wrong)
    with pytest.raises(es.SchemaError, check=error("power-of-factor", "'v1'", "'race'")):
        es.LinearRegression("y ~ I(race^2)").fit(schema.table(frame))
    with pytest.raises(es.ParameterError, check=error("not-two-groups")):  # a worker knows no names
        es.plan(wrong.in_ids(schema), schema.public(), n_rows=4)
