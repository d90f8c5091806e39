"""Names and ids: questions that are asked by name, translated before they leave the owner, and
refused where nobody knows names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pandas as pd
import pytest

import encryptedstats as es
from encryptedstats.tables.questions.folds import Folds
from encryptedstats.tables.questions.question import bin_columns, class_columns
from encryptedstats.tables.questions.summaries import Counts
from encryptedstats.tables.schema.names import level_id, level_number, position, variable_id
from error_codes import error

pytestmark = pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")
FRAME = pd.DataFrame(
    {
        "v1": ["a", "b", "a", "b", "a", "b"],  # called as the id of another
        "grade": [1, 2, 3, 3, 2, 1],
        "age": [30, 41, 52, 60, 45, 33],
        "sick": ["no", "yes", "yes", "no", "yes", "no"],
    }
)


@dataclass(frozen=True)
class Share(es.Question):
    """The share of some levels of a variable among rows of a class."""

    variable: str
    levels: Any
    among: Any = None
    weights: Any = None

    of_variables: ClassVar[tuple[str, ...]] = ("variable", "among", "weights")
    of_levels: ClassVar[dict[str, str]] = {"levels": "variable"}

    def totals(self, schema: Any, columns: Any = None, fold: Any = None) -> dict[str, Any]:
        bins = bin_columns(schema, position(schema, self.variable))
        chosen = [bins[level_number(schema, self.variable, level)] for level in self.levels]
        return {
            "class_counts": [y.total() for y in class_columns(schema, fold)],
            "rows": [(x * y).total() for x in chosen for y in class_columns(schema, fold)],
        }

    def shapes(self, schema: Any) -> dict[str, tuple[int, ...]]:
        return {"class_counts": (schema.n_classes,), "rows": (len(self.levels) * schema.n_classes,)}

    def read(self, totals: Any, schema: Any, n_rows: int) -> Any:
        return totals["rows"].tolist(), self.variable


@pytest.fixture(scope="module")
def schema() -> es.Schema:
    return es.Schema.infer(
        FRAME, target="sick", bins=2, kinds={"age": "continuous", "grade": "ordinal"}
    )


def test_names_become_ids(schema: es.Schema) -> None:
    asked = Share("v1", ["b"], among=["grade", "sick"], weights={"age": 2})
    found = asked.in_ids(schema)
    assert found == Share("v0", ["bin1"], among=["v1", "class"], weights={"v2": 2})
    assert found.in_ids(schema.public()) is found
    assert Share("v0", ["bin1"]).in_ids(schema) == Share("v0", ["bin1"])
    assert Folds(asked, 2).in_ids(schema).question == found
    assert Counts(("age", "sick")).in_ids(schema) == Counts((2, -1))


def test_ids_become_names(schema: es.Schema) -> None:
    asked = Share("v1", ["b"], among=["grade", "sick"], weights={"age": 2})
    assert asked.in_ids(schema)._in_names(schema) == asked
    said = "Share(variable='grade', levels=['(-inf, 2.0]'], among=None, weights=None)"
    assert (
        Share("v1", ["bin0"]).describe(schema) == said
    )  # the id of grade, and not the column of that name
    assert Share("grade", ["(-inf, 2.0]"]).describe(schema) == said
    model = es.GLM("sick ~ v1 + grade", reference={"v1": "b"})
    assert model.in_ids(schema).get_params() == {
        **model.get_params(),
        "formula": "class ~ v0 + v1",
        "reference": {"v0": "bin1"},
    }
    assert model.in_ids(schema)._in_names(schema).get_params() == model.get_params()


@pytest.mark.parametrize("name", ["age", "sick"])
def test_a_worker_knows_no_names(name: str, schema: es.Schema, tiny: es.Owner) -> None:
    words = (
        rf"'{name}' is no id of a variable, and a worker knows no names \(the ids are "
        r"'v0', 'v1', 'v2', 'class'\): "
        r"write its id, v0, v1, \.\.\. "
    )
    with pytest.raises(es.SchemaError, match=words):
        Share(name, []).in_ids(schema.public())
    with pytest.raises(es.SchemaError, match=words):
        es.plan(Share(name, []), schema.public(), n_rows=6)


def test_tables_and_plans_translate(schema: es.Schema, tiny: es.Owner) -> None:
    table = schema.table(FRAME)
    asked = Share("v1", ["b", "a"])
    wanted = [2, 1, 1, 2], "v0"
    assert table.ask(asked) == wanted
    sealed = tiny.encrypt(table, workers=1)
    answer = sealed.ask(asked, workers=1)
    assert answer.question == Share("v0", ["bin1", "bin0"])
    assert (
        tiny.open(answer, schema=schema) == wanted
    )  # though the schema has another variable of the name v0 or v1
    assert es.plan(asked, table).n_totals == es.plan(asked, schema, n_rows=6).n_totals == 6
    with pytest.raises(es.SchemaError, check=error("unknown-level", "'v1'", "'c'", "'a'", "'b'")):
        table.ask(Share("v1", ["c"]))


def test_levels_have_ids(schema: es.Schema) -> None:
    grades = schema.with_bins("grade", levels=[3, 2, 1])
    assert [level_id(grades, "grade", level) for level in (1, "3", 2.0)] == ["bin2", "bin0", "bin1"]
    assert level_id(schema, "sick", "yes") == level_id(schema.public(), "class", 1) == "class1"
    assert (
        level_id(schema, "age", schema["age"].labels[1])
        == level_id(schema.public(), "v2", "bin1")
        == "bin1"
    )
    assert level_number(schema, "class", "class1") == level_number(schema, "v0", 1) == 1
    for wrong in ("bin7", "bin", "class1", -1, True):
        with pytest.raises(es.SchemaError, check=error("unknown-level", "'v0'")):
            level_number(schema, "v0", wrong)
    with pytest.raises(es.SchemaError, check=error("unknown-level", "'v0'", "5", "2")):
        level_id(schema.public(), "v0", 5)


def test_ids_of_targets(schema: es.Schema) -> None:
    number = es.Schema.infer(FRAME, target="age", numbers="keep")
    assert (
        variable_id(number, "age")
        == variable_id(number, "class")
        == variable_id(number.public(), "target")
        == "target"
    )
    assert position(number, "target") == -1
    with pytest.raises(es.SchemaError, check=error("name-the-target")):
        variable_id(es.Schema.infer(FRAME), "class")


@pytest.mark.parametrize("text", ["v3", "v00", "v-1", "v1.0", "v٠", "w0", "v", ""])
def test_only_ids_as_they_are_written_are_ids(text: str) -> None:
    public = es.Schema.infer(
        pd.DataFrame({"a": ["x", "y"], "b": ["p", "q"], "c": ["s", "t"]})
    ).public()
    assert [public.index(f"v{j}") for j in range(3)] == [0, 1, 2]
    with pytest.raises(es.SchemaError, check=error("unknown-variable", "'v0'", "'v1'", "'v2'")):
        public.index(text)
