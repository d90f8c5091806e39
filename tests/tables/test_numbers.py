"""Numbers that are kept: as predictors and as the target, their digits and bounds, and rows where
they are missing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import encryptedstats as es
from encryptedstats.circuits.expressions import depth_of
from encryptedstats.tables.columns import check_column
from encryptedstats.tables.encodings import Column
from encryptedstats.tables.questions.question import (
    class_columns,
    complete_rows,
    number_column,
    product_of,
    row_column,
)
from encryptedstats.tables.questions.summaries import scale, variable_name
from error_codes import error

pytestmark = pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")
FRAME = pd.DataFrame(
    {
        "age": [30.5, 41.0, 52.5, 60.0, 45.0, 33.0],
        "smoker": [0, 1, 1, 0, 1, 0],
        "sex": ["f", "m", "f", "m", "m", "f"],
        "y": [1.25, 2.0, 3.5, 4.0, 2.75, 1.0],
    }
)
GAPPY = FRAME.assign(
    age=FRAME["age"].mask(FRAME.index == 1), sex=FRAME["sex"].mask(FRAME.index == 4)
)


def kept(frame: pd.DataFrame = FRAME, **options: Any) -> es.Schema:
    return es.Schema.infer(frame, target="y", numbers="keep", **options)


# -- inferring
# ------------------------------------------------------------------------------------------------


def test_numbers_are_kept_the_target_too() -> None:
    schema = kept()
    assert [variable.kind for variable in schema.variables] == [
        "number",
        "categorical",
        "categorical",
    ]
    assert (schema.target, schema.classes) == ("y", ())
    assert schema.target_number == es.Schema.infer(FRAME, numbers="keep")["y"]
    assert (schema["age"].digits, schema.target_number.digits) == (1, 2)
    assert [number.name for number in schema.numbers] == ["age", "y"]
    assert "target 'y', round(10**2 * x) in 0..512;" in repr(schema)
    public = schema.public()
    assert (public.n_classes, public.target_number.id, public.target_number.high) == (
        0,
        "target",
        512,
    )
    assert "y" not in [variable.id for variable in public.variables]
    assert es.Schema.from_json(schema.to_json()) == schema
    assert es.PublicSchema.from_json(public.to_json()) == public
    assert schema.digest_json() != schema.with_kind("y", "number", digits=1).digest_json()


def test_digits_and_bounds_as_they_are_said() -> None:
    schema = kept(digits=1, bounds={"age": (0, 120)})
    assert (schema["age"].low, schema["age"].high, schema.target_number.digits) == (0, 1200, 1)
    assert kept(digits={"y": 3})["age"].digits == 1
    assert kept(digits={"y": 3}).target_number.digits == 3
    thirds = FRAME.assign(age=FRAME["age"] / 3)
    with pytest.warns(
        es.SchemaWarning, match="'age': values have more than 4 decimal digits and are rounded to 4"
    ):
        assert kept(thirds)["age"].digits == 4
    assert kept(thirds, digits={"age": 2})["age"].digits == 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"numbers": "all"}, "unknown-numbers-policy"),
        (
            {"digits": {"sex": 1}},
            "not-kept-as-number",
        ),
        ({"bounds": {"height": (0, 2)}}, "not-kept-as-number"),
        (
            {"numbers": "bins", "digits": 2, "classes": [1, 2]},
            "digits-without-numbers",
        ),
    ],
)
def test_what_cannot_be_kept(options: dict[str, Any], words: str) -> None:
    with pytest.raises(es.SchemaError, check=error(words)):
        es.Schema.infer(FRAME, target="y", **{"numbers": "keep", **options})


def test_a_target_of_two_values_or_of_words_has_classes() -> None:
    assert es.Schema.infer(FRAME, target="smoker", numbers="keep").classes == (0, 1)
    assert es.Schema.infer(FRAME, target="sex", numbers="keep").classes == ("f", "m")
    assert kept(classes=[1, 2]).target_number is None


def test_the_target_changes_its_kind() -> None:
    classed = es.Schema.infer(FRAME, target="y")
    assert classed.n_classes == 6
    number = classed.with_kind("y", "number", digits=1, low=0, high=10)
    assert (number.classes, number.target_number.high) == ((), 100)
    assert number.with_classes([0, 1]).target_number is None
    with pytest.raises(es.SchemaError, check=error("wrong-target-kind", "'ordinal'")):
        classed.with_kind("y", "ordinal")
    with pytest.raises(es.SchemaError, check=error("classes-and-number-target", "'z'")):
        es.Schema(
            number.variables,
            "y",
            target_number=es.Schema.infer(FRAME.rename(columns={"age": "z"}), numbers="keep")["z"],
        )


# -- tables
# ------------------------------------------------------------------------------------------------


def test_columns_of_a_target_that_is_a_number() -> None:
    table = kept().table(FRAME, folds=2, weights=[1, 2, 1, 1, 3, 1])
    assert [str(column) for column in table.columns()][-4:] == [
        "target.number",
        "rows",
        "rows.fold0",
        "rows.fold1",
    ]
    assert all(Column.parse(str(column)) == column for column in table.columns())
    values = {str(column): table.values(column).tolist() for column in table.columns()}
    assert values["target.number"] == [125, 200, 350, 400, 275, 100]
    assert (
        values["rows"]
        == [1, 2, 1, 1, 3, 1]
        == np.add(values["rows.fold0"], values["rows.fold1"]).tolist()
    )
    assert table.to_pandas()["y"].tolist() == FRAME["y"].tolist()
    assert (table.has_target, table.has_classes) == (True, False)
    assert "a number as target" in repr(table)
    assert es.Table.concat([table[:2], table[2:]]).target_values.tolist() == values["target.number"]
    assert table.take(np.array([5])).values(Column("number", -1)).tolist() == [100]
    with pytest.raises(es.SchemaError, check=error("no-target")):
        kept().table(FRAME.drop(columns="y")).values(Column("number", -1))


def test_helpers_know_the_target() -> None:
    schema = kept()
    public = schema.public()
    assert str(number_column(public, -1)) == "target.number"
    assert (scale(schema, -1), scale(public, -1)) == (100, 1)
    assert (variable_name(schema, -1), variable_name(public, -1)) == ("y", "target")
    table = schema.table(FRAME, folds=2)
    assert table.evaluate([row_column(public).total(), row_column(public, 1).total()]) == [6, 3]
    classed = es.Schema.infer(FRAME, target="sex")
    assert classed.table(FRAME, folds=2).evaluate([row_column(classed.public(), 0).total()]) == [3]
    with pytest.raises(es.SchemaError, check=error("keep-numbers")):
        number_column(classed.public(), -1)
    with pytest.raises(es.SchemaError, check=error("keep-numbers")):
        check_column(es.Schema.infer(FRAME).public(), Column("rows", -1))


def test_classifiers_refuse_it_clearly() -> None:
    schema = kept()
    asking = (
        class_columns,
        lambda public: es.plan(es.MultinomialNB(), schema, n_rows=6),
        lambda public: es.MultinomialNB().fit(schema.table(FRAME)),
    )
    for ask in asking:
        with pytest.raises(es.SchemaError, check=error("classes-of-the-target")):
            ask(schema.public())


def test_moments_of_the_target(toy: es.Owner, tmp_path: Path) -> None:
    schema = kept(digits=0)
    table = schema.table(FRAME, folds=2)
    wanted = table.moments(["age", "y"])
    assert wanted.loc["mean", "y"] == pytest.approx(table.to_pandas()["y"].mean())
    sealed = toy.encrypt(table, workers=1)
    sealed.save(tmp_path / "t")
    stored = es.load(tmp_path / "t")
    assert stored.has_target
    assert toy.open(stored.moments(["v0", "target"], workers=1), schema=schema).equals(wanted)


# -- missing values
# ------------------------------------------------------------------------------------------------


def test_rows_without_a_number() -> None:
    schema = kept(GAPPY, missing="bin")
    table = schema.table(GAPPY)
    assert table.n_rows == 6
    assert [str(column) for column in table.columns()][:2] == ["v0.number", "v0.present"]
    assert table.values(Column("number", 0)).tolist() == [305, 0, 525, 600, 450, 330]
    assert table.values(Column("present", 0)).tolist() == [1, 0, 1, 1, 1, 1]
    assert table.to_pandas()["age"].isna().tolist() == GAPPY["age"].isna().tolist()
    assert "values may be missing" in repr(schema)
    with pytest.raises(es.SchemaError, check=error("impossible-column", "'v1'")):
        check_column(schema.public(), Column("present", 1))
    with pytest.raises(es.SchemaError, check=error("drop-gaps-anew", "'v0'")):
        number_column(schema.public(), 0)
    assert table.moments(["age", "y"]).loc["count"].tolist() == [5, 5]
    dropped = kept(GAPPY, missing="drop").table(GAPPY)
    assert (dropped.n_rows, dropped.n_dropped) == (4, 2)


def test_complete_rows() -> None:
    schema = kept(GAPPY, missing="bin").public()
    table = kept(GAPPY, missing="bin").table(GAPPY)
    assert complete_rows(schema, [1, 2, -1]) is None
    for bins, rows in ((False, [1, 0, 1, 1, 1, 1]), (True, [1, 0, 1, 1, 0, 1])):
        found = complete_rows(schema, [0, 2, -1, 0], bins=bins)
        assert table.evaluate([found])[0].tolist() == rows
        assert depth_of([found]) == int(bins)
    x = number_column(schema, 0, gaps=True)
    assert depth_of([product_of([x] * 5)]) == 3


def test_a_target_that_is_missing() -> None:
    rows = FRAME.assign(y=FRAME["y"].mask(FRAME.index == 2))
    with pytest.raises(es.SchemaError, check=error("missing-values", "'y'", "row 2")):
        kept(rows)
    assert kept(rows, missing="drop").table(rows).n_rows == 5
    table = kept(rows, missing="bin").table(rows)
    assert table.values(Column("present", -1)).tolist() == [1, 1, 0, 1, 1, 1]
    with pytest.raises(es.SchemaError, check=error("missing-without-bin", "'y'")):
        kept().table(rows)


def test_files_are_encrypted_alike(tiny: es.Owner, tmp_path: Path) -> None:
    frame = GAPPY.assign(y=GAPPY["y"].mask(GAPPY.index == 0).round())
    frame.to_csv(tmp_path / "rows.csv", index=False)
    for missing in ("bin", "drop"):
        schema = kept(frame, missing=missing, digits=0)
        sealed = tiny.encrypt_file(tmp_path / "rows.csv", schema, tmp_path / missing, folds=2)
        table = schema.table(frame)
        totals = [
            complete_rows(schema.public(), [0, -1]),
            number_column(schema.public(), -1, gaps=True),
        ]
        totals = [x.total() for x in totals if x is not None]
        assert tiny.open(sealed.evaluate(totals, workers=1)) == table.evaluate(totals)
        assert sealed.n_dropped == table.n_dropped == {"bin": 0, "drop": 3}[missing]


def test_large_numbers_with_gaps_in_digits() -> None:
    """A target and a predictor that no kernel carries whole: both are stored in digits, and a gap
    is 0 in all of them.
    """
    frame = FRAME.assign(y=FRAME["y"] * 1e9, age=(FRAME["age"] * 1e9).mask(FRAME.index == 1))
    schema = kept(frame, missing="bin", digits=0)
    public = schema.public()
    x, y = number_column(public, 0, gaps=True), number_column(public, -1)
    totals = [x.total(), (x * y).total(), (x * x).total(), complete_rows(public, [0]).total()]
    plan = es.plan(totals, schema, n_rows=6)
    bits = plan.parameters.digit_bits
    assert bits is not None
    table = schema.table(frame)
    columns = [str(column) for column in table.stored_columns(digit_bits=bits)]
    assert f"target.digit0.bits{bits}" in columns
    assert all(str(Column.parse(name)) == name for name in columns)
    owner = es.Owner(plan)
    assert owner.open(owner.encrypt(table).evaluate(totals)) == table.evaluate(totals)
    xs, ys = (frame["age"].fillna(0).astype(int).tolist(), frame["y"].astype(int).tolist())
    assert table.evaluate(totals)[1] == sum(a * b for a, b in zip(xs, ys, strict=True))
