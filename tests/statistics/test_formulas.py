"""Formulas: parsed strictly, translated to ids, and expanded to the columns that R and statsmodels
have.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest

import encryptedstats as es
from encryptedstats.circuits.expressions import Expression, depth_of
from encryptedstats.statistics import designs
from encryptedstats.statistics.designs import DesignColumn, design
from encryptedstats.statistics.formulas import OfFormula, parse
from error_codes import error

FRAME = pd.DataFrame(
    {
        "age": [30.5, 41.0, 52.5, 60.0, 45.0, 33.0],
        "sex": ["f", "m", "f", "m", "m", "f"],
        "stage": ["a", "b", "c", "a", "b", "c"],
        "bmi": [20.0, 25.5, 31.0, 22.0, 28.5, 24.0],
        "y": [1.25, 2.0, 3.5, 4.0, 2.75, 1.0],
    }
)


@pytest.fixture(scope="module")
def schema() -> es.Schema:
    return es.Schema.infer(FRAME, target="y", numbers="keep")


def made(formula: str, schema: es.Schema, **options: Any) -> Any:
    return design(parse(formula).in_ids(schema), schema.public(), **options)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("y~a+b", "y ~ a + b"),
        ("y ~ a*b", "y ~ a + b + a:b"),
        ("y ~ a*b*c - a:b:c", "y ~ a + b + c + a:b + a:c + b:c"),
        ("y ~ a:b + b:a + a + a", "y ~ a + a:b"),
        ("y ~ (a + b)^2", "y ~ a + b + a:b"),
        ("y ~ (a + b + c)^2 - a:b", "y ~ a + b + c + a:c + b:c"),
        ("y ~ a/b", "y ~ a + a:b"),
        ("y ~ (a + b)/c", "y ~ a + b + a:b:c"),
        ("y ~ a + b %in% a", "y ~ a + a:b"),
        ("y ~ b + a:b", "y ~ b + b:a"),
        ("y ~ a*(b + c)", "y ~ a + b + c + a:b + a:c"),
        ("y ~ I(a^2) + I( (a-30) ^ 2)", "y ~ I(a^2) + I((a - 30)^2)"),
        ("y ~ I(-a*b/2 + 3)", "y ~ I(-a * b / 2 + 3)"),
        ("y ~ poly(a,2):b", "y ~ poly(a, 2):b"),
        ("y ~ poly(a, degree = 2, raw = T)", "y ~ poly(a, 2, raw = TRUE)"),
        ("y ~ offset(a) + b", "y ~ b + offset(a)"),
        ("y ~ .^2 - a - 1", "y ~ .^2 - a - 1"),
        ("y ~ -1 + a", "y ~ a - 1"),
        ("y ~ a + 0", "y ~ a - 1"),
        ("y ~ a*a", "y ~ a"),
        ("y ~ b:a:b", "y ~ b:a"),
        ("y1 + y2 ~ a - 1", "y1 + y2 ~ a - 1"),
        ("y ~ 0 + a", "y ~ a - 1"),
        ("y ~ a - 1 + 1", "y ~ a"),
        ("y ~ 1", "y ~ 1"),
        ("y ~ 0", "y ~ 0"),
        ("y ~", "y ~ ."),
        ("y ~ . - 1", "y ~ . - 1"),
        ("", "~ ."),
        ("~ a", "~ a"),
        ("`my y` ~ `a + b` + größe + x.1", "`my y` ~ `a + b` + größe + x.1"),
    ],
)
def test_formulas_are_read(text: str, canonical: str) -> None:
    assert str(parse(text)) == canonical
    assert str(parse(canonical)) == canonical


@pytest.mark.parametrize(("text", "canonical"), [("y ~ a^2", "y ~ a"), ("y ~ a^3:b", "y ~ a:b")])
def test_a_power_of_a_variable_is_the_variable_as_in_r(text: str, canonical: str) -> None:
    with pytest.warns(UserWarning, match="as in R: I"):
        assert str(parse(text)) == canonical


@pytest.mark.parametrize(
    ("text", "why", "at"),
    [
        ("y ~ a +", "invalid-formula", 7),
        ("y ~ a b", "invalid-formula", 6),
        ("y + ~ a", "invalid-formula", 4),
        ("y z ~ a", "invalid-formula", 2),
        ("y + y ~ a", "invalid-formula", 4),
        ("y = a", "invalid-formula", 5),
        ("y", "invalid-formula", 1),
        ("y ~ a ~ b", "invalid-formula", 6),
        ("y ~ a^0", "invalid-formula", 6),
        ("y ~ a^b", "invalid-formula", 6),
        pytest.param(
            "y ~ a^" + "9" * 5000,
            "invalid-formula",
            6,
            id="a very large power",
        ),
        ("y ~ (a + b)^17", "invalid-formula", 12),
        ("y ~ b + I(a^16 * a)", "invalid-formula", 15),
        ("y ~ I(a^0.5)", "invalid-formula", 8),
        ("y ~ I(a/b)", "invalid-formula", 8),
        ("y ~ I(a:b)", "invalid-formula", 7),
        ("y ~ I(a, b)", "invalid-formula", 9),
        ("y ~ poly(a)", "invalid-formula", 4),
        ("y ~ poly(a + b, 2)", "invalid-formula", 11),
        ("y ~ poly(a, 0)", "invalid-formula", 12),
        ("y ~ poly(a, 17)", "invalid-formula", 12),
        ("y ~ poly(a, 2, raw = 3)", "invalid-formula", 21),
        ("y ~ (a + b", "invalid-formula", 4),
        ("y ~ a)", "invalid-formula", 5),
        ("y ~ " + "(" * 300 + "a" + ")" * 300, "invalid-formula", 204),
        ("log(y) ~ a", "invalid-formula", 0),
        (
            "y ~ " + "*".join(f"v{j}" for j in range(60)),
            "invalid-formula",
            41,
        ),
        ("y ~ a" + ":a" * 300, "invalid-formula", 403),
        ("y ~ " + "-" * 300 + "a", "invalid-formula", 204),
        (
            "y ~ " + "+".join(f"v{j}" for j in range(5000)),
            "invalid-formula",
            23464,
        ),
        ("y ~ log(a)", "function-of-encrypted", 4),
        ("y ~ b + I(log(a))", "function-of-encrypted", 10),
        ("y ~ `a", "invalid-formula", 4),
        ("y ~ ``", "invalid-formula", 4),
        ("y ~ a - b", "invalid-formula", 8),
        ("y ~ 2*a", "invalid-formula", 4),
        ("y ~ a + y", "invalid-formula", 8),
        ("y ~ a + I(y^2)", "invalid-formula", 10),
    ],
)
def test_wrong_formulas_show_where(text: str, why: str, at: int) -> None:
    with pytest.raises(es.ParameterError, check=error(why)) as caught:
        parse(text)
    assert str(caught.value).splitlines()[1:] == [f"  {text}", f"  {' ' * at}^"]
    with pytest.raises(es.ParameterError, check=error("not-text")):
        parse(3)  # type: ignore[arg-type]  # what is tested


def test_names_become_ids(schema: es.Schema) -> None:
    assert (
        str(parse("y ~ age*sex + I(bmi^2)").in_ids(schema)) == "target ~ v0 + v1 + I(v3^2) + v0:v1"
    )
    assert str(parse("target ~ v0").in_ids(schema.public())) == "target ~ v0"
    with pytest.raises(es.SchemaError, check=error("name-instead-of-id", "'age'")):
        parse("target ~ age").in_ids(schema.public())


@pytest.mark.parametrize(
    ("formula", "names"),
    [
        ("y ~ age + sex", ["(Intercept)", "age", "sex[m]"]),
        ("y ~ sex:age", ["(Intercept)", "sex[f]:age", "sex[m]:age"]),
        ("y ~ sex*age", ["(Intercept)", "sex[m]", "age", "sex[m]:age"]),
        ("y ~ sex - 1", ["sex[f]", "sex[m]"]),
        ("y ~ sex + stage - 1", ["sex[f]", "sex[m]", "stage[b]", "stage[c]"]),
        ("y ~ age + sex + stage - 1", ["age", "sex[f]", "sex[m]", "stage[b]", "stage[c]"]),
        (
            "y ~ sex*stage - 1",
            ["sex[f]", "sex[m]", "stage[b]", "stage[c]", "sex[m]:stage[b]", "sex[m]:stage[c]"],
        ),
        ("y ~ age + age:sex - 1", ["age", "age:sex[f]", "age:sex[m]"]),
        ("y ~ sex:sex", ["(Intercept)", "sex[m]"]),
        ("y ~ I(bmi^2) + age", ["(Intercept)", "I(bmi^2)", "age"]),
        (
            "y ~ sex*stage",
            ["(Intercept)", "sex[m]", "stage[b]", "stage[c]", "sex[m]:stage[b]", "sex[m]:stage[c]"],
        ),
        ("~", ["(Intercept)", "age", "sex[m]", "stage[b]", "stage[c]", "bmi"]),
        ("bmi + y ~", ["(Intercept)", "age", "sex[m]", "stage[b]", "stage[c]"]),
        ("y ~ 1", ["(Intercept)"]),
    ],
)
def test_designs_have_the_columns_of_r(formula: str, names: list[str], schema: es.Schema) -> None:
    found = made(formula, schema)
    assert found.names(schema) == names
    assert found.targets == {"b": (3, -1)}.get(formula[0], (-1,))
    assert found.complete is None
    # The columns of every term together are all of them.
    assert sum((term.columns for term in found.terms), ()) == tuple(
        range(int(found.intercept), len(names))
    )


def test_a_design_is_the_matrix_of_the_rows(schema: es.Schema) -> None:
    found = made("y ~ sex*age + I(bmi^2)", schema, reference={"v1": "bin1"})
    assert found.names(schema) == ["(Intercept)", "sex[f]", "age", "I(bmi^2)", "sex[f]:age"]
    assert found.names(schema.public()) == ["(Intercept)", "v1[0]", "v0", "I(v3^2)", "v1[0]:v0"]
    f, age = (FRAME["sex"] == "f").to_numpy(dtype=float), FRAME["age"].to_numpy()
    wanted = np.column_stack([np.ones(6), f, age, FRAME["bmi"] ** 2, f * age])
    assert np.allclose(found.matrix(schema.table(FRAME)), wanted)
    assert found.scales(schema) == [1, 1, 10, 100, 10]


def test_products_cost_what_they_must(schema: es.Schema) -> None:
    found = made("y ~ sex*age + stage + I(bmi^2)", schema)
    table, by_name = schema.table(FRAME), dict(zip(found.names(schema), found.columns, strict=True))
    assert found.product(by_name["stage[b]"], by_name["stage[c]"]) == 0
    assert found.product(DesignColumn(), DesignColumn()) == 1
    square = found.product(by_name["sex[m]"], by_name["sex[m]"])
    assert depth_of([square]) == 0
    assert depth_of([found.product(by_name["I(bmi^2)"], by_name["I(bmi^2)"])]) == 2
    matrix, scales = found.matrix(table), found.scales(schema)
    for i, a in enumerate(found.columns):
        for j, b in enumerate(found.columns):
            value = found.product(a, b)
            total = (
                table.evaluate([value.total()])[0]
                if isinstance(value, Expression)
                else value * len(table)
            )
            assert total / scales[i] / scales[j] == pytest.approx(
                float(matrix[:, i] @ matrix[:, j])
            )
    y = found.product(found.number(-1), by_name["age"])
    assert table.evaluate([y.total()])[0] == pytest.approx(1000 * float(FRAME["y"] @ FRAME["age"]))


def test_rows_with_gaps_are_left_out() -> None:
    gappy = FRAME.assign(
        age=FRAME["age"].mask(FRAME.index == 1), stage=FRAME["stage"].mask(FRAME.index == 4)
    )
    schema = es.Schema.infer(gappy, target="y", numbers="keep", missing="bin")
    table = schema.table(gappy)
    assert made("y ~ sex + bmi", schema).complete is None
    for missing, names, left in (
        ("level", ["(Intercept)", "age", "stage[b]", "stage[c]", "stage[missing]"], [1]),
        ("complete", ["(Intercept)", "age", "stage[b]", "stage[c]"], [1, 4]),
    ):
        found = made("y ~ age + stage", schema, missing=missing)
        assert found.names(schema) == names
        matrix = found.matrix(table)
        assert np.flatnonzero(np.isnan(matrix).any(axis=1)).tolist() == left
        rows, ages = (found.product(column).total() for column in found.columns[:2])
        kept = gappy.drop(index=left)
        assert table.evaluate([rows, ages]) == [len(kept), round(10 * kept["age"].sum())]
    with pytest.raises(es.SchemaError, check=error("reference-is-missing-bin", "'v2'")):
        made("y ~ stage", schema, missing="complete", reference={"v2": "bin3"})
    with pytest.raises(
        es.ParameterError,
        check=error("unknown-missing-rule", "'drop'", "'level'", "'complete'", "missing='drop'"),
    ):
        made("y ~ stage", schema, missing="drop")


@pytest.mark.parametrize(
    ("formula", "words"),
    [
        ("y ~ I(sex^2)", "power-of-factor"),
        ("bmi ~ y", "target-among-predictors"),
        ("y ~ height", "unknown-variable"),
    ],
)
def test_what_a_schema_does_not_allow(formula: str, words: str, schema: es.Schema) -> None:
    with pytest.raises(es.SchemaError, check=error(words)):
        made(formula, schema)
    with pytest.raises(es.SchemaError, check=error("no-target")):
        design("", es.Schema.infer(FRAME, numbers="keep").public())


def test_questions_with_a_formula(schema: es.Schema) -> None:
    @dataclass(frozen=True)
    class SumOfColumns(OfFormula):
        """The sum of every column of a design."""

        formula: str = ""
        reference: Any = None

        def totals(self, schema: Any, columns: Any = None, fold: Any = None) -> dict[str, Any]:
            made = design(self.formula, schema, self.reference)
            return {
                "sums": [made.product(column).total() for column in made.columns if column.factors]
            }

        def shapes(self, schema: Any) -> dict[str, tuple[int, ...]]:
            return {"sums": (len(design(self.formula, schema, self.reference).columns) - 1,)}

        def read(self, totals: Any, schema: Any, n_rows: int) -> Any:
            return dict(
                zip(
                    design(self.formula, schema.public()).names(schema)[1:],
                    totals["sums"],
                    strict=True,
                )
            )

    asked = SumOfColumns("y ~ age + sex", {"sex": "m"})
    assert asked.in_ids(schema) == SumOfColumns("target ~ v0 + v1", {"v1": "bin1"})
    assert asked.in_ids(schema).in_ids(schema.public()) == asked.in_ids(schema)
    assert SumOfColumns().in_ids(schema) == SumOfColumns()
    assert schema.table(FRAME).ask(SumOfColumns("y ~ age")) == {"age": 2620}


def test_columns_are_counted_before_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = pd.DataFrame({f"f{j}": list("abcdefgh") * 2 for j in range(6)} | {"y": np.arange(16.0)})
    schema = es.Schema.infer(frame, target="y", numbers="keep")
    monkeypatch.setattr(designs, "product", None)
    with pytest.raises(es.ParameterError, check=error("too-many-columns", "4,096")):
        made("y ~ f0:f1:f2:f3:f4:f5", schema)
