"""Clear tables: the encodings and identities of section 2.2, weights, folds, missing values,
refusals.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from encryptedstats.errors import SchemaError
from encryptedstats.tables import Column, Schema, Table
from error_codes import error

KINDS = {"age": "continuous", "grade": "ordinal", "sex": "categorical", "dose": "number"}


@pytest.fixture
def frame():
    rng = np.random.default_rng(11)
    return pd.DataFrame(
        {
            "age": rng.normal(50, 12, 50).round(1),
            "grade": rng.integers(1, 5, 50),
            "sex": rng.choice(["f", "m"], 50),
            "dose": rng.integers(-50, 200, 50) / 100,
            "y": rng.choice(["no", "yes", "maybe"], 50, p=[0.5, 0.3, 0.2]),
        }
    )


@pytest.fixture
def schema(frame):
    return Schema.infer(frame, target="y", kinds=KINDS)


@pytest.fixture
def table(schema, frame):
    return schema.table(frame, slots=16)


def test_interface(table):
    assert table.n_rows == len(table) == 50
    assert (table.layout.n_chunks, table.layout.padding) == (4, 14)
    assert [str(column) for column in table.columns()] == [
        *(f"v0.bin{k}" for k in range(5)),
        *(f"v1.bin{k}" for k in range(4)),
        *("v2.bin0", "v2.bin1", "v3.number", "class0", "class1", "class2"),
    ]
    for column in table.columns(("onehot", "ordinal", "centred")):
        values = table.values(column)
        assert (values.dtype, values.shape) == (np.int64, (50,))
        assert abs(values).max() <= table.bound(column)


def test_equality_is_an_inner_product(table, frame):
    """Paper, eq. comparison: the sum over k of x_ajk x_bjk is 1 exactly where rows a and b share a
    bin.
    """
    for name in ("age", "grade", "sex"):
        bins = np.column_stack(table.bins(name))
        label = table.to_pandas()[name].astype(str).to_numpy()
        np.testing.assert_array_equal(bins @ bins.T, label[:, None] == label[None, :])
    same_sex = frame["sex"].to_numpy()[:, None] == frame["sex"].to_numpy()[None, :]
    np.testing.assert_array_equal(
        np.column_stack(table.bins("sex")) @ np.column_stack(table.bins("sex")).T, same_sex
    )


def test_ranges_are_sums(table, schema, frame):
    """Paper, eq. range: the sum over k in K is 1 exactly where the bin is in K, so cuts become
    comparisons.
    """
    for k, edge in enumerate(schema["age"].edges):
        np.testing.assert_array_equal(table.range_sum("age", range(k + 1)), frame["age"] <= edge)
    np.testing.assert_array_equal(table.range_sum("grade", [0, 3, 3]), frame["grade"].isin([1, 4]))
    np.testing.assert_array_equal(table.range_sum("sex", [0, 1]), 1)


def test_codes_numbers_classes(table, frame):
    np.testing.assert_array_equal(table.codes("grade"), frame["grade"])
    np.testing.assert_array_equal(table.codes("grade", centred=True), 2 * frame["grade"] - 5)
    np.testing.assert_array_equal(table.codes("age"), pd.qcut(frame["age"], 5, labels=False) + 1)
    np.testing.assert_array_equal(
        table.codes("age", centred=True), pd.qcut(frame["age"], 5, labels=False) - 2
    )
    np.testing.assert_array_equal(table.numbers("dose"), np.rint(frame["dose"] * 100))
    for values, name in zip(table.classes(), ["maybe", "no", "yes"], strict=True):
        np.testing.assert_array_equal(values, frame["y"] == name)
    with pytest.raises(SchemaError, check=error("number-without-bins", "'dose'")):
        table.bins("dose")


def test_bounds(table):
    assert table.bound(Column("onehot", 0, 1)) == table.bound(Column("class", -1, 0)) == 1
    assert (table.bound(Column("ordinal", 0)), table.bound(Column("centred", 0))) == (5, 2)
    assert (table.bound(Column("ordinal", 1)), table.bound(Column("centred", 1))) == (4, 3)
    dose = table.schema["dose"]
    assert table.bound(Column("number", 3)) == max(-dose.low, dose.high)
    assert not table.holds(Column("ordinal", 2))
    assert not table.holds(Column("class", -1, 0, 0))


def test_pandas_polars_numpy_agree(schema, frame):
    tables = [
        schema.table(frame),
        schema.table(pl.from_dict(frame.to_dict("list"))),
        schema.table(frame.to_numpy(dtype=object)),
        schema.table(frame.drop(columns="y").to_numpy(dtype=object), y=frame["y"].tolist()),
        schema.table(frame.iloc[:, ::-1].assign(other=1), y=pl.Series(frame["y"].tolist())),
        schema.table(frame.convert_dtypes()),
        schema.table(frame.astype({"sex": "category", "grade": float, "y": "category"})),
    ]
    for table in tables[1:]:
        for column in tables[0].columns():
            np.testing.assert_array_equal(table.values(column), tables[0].values(column))
    polars = Schema.infer(pl.from_dict(frame.to_dict("list")), target="y", kinds=KINDS)
    assert polars == schema
    array = Schema.infer(frame.to_numpy(dtype=object), target=4)
    assert array[0].edges == schema["age"].edges


def test_polars_types():
    df = pl.DataFrame(
        {
            "i": [1, None, 2**60],
            "f": [1.5, None, 2.5],
            "s": ["a", None, "b"],
            "b": [True, None, False],
            "e": pl.Series(["lo", "hi", None], dtype=pl.Enum(["lo", "mid", "hi"])),
            "c": pl.Series(["x", "y", None], dtype=pl.Categorical),
            "d": pl.Series([1, 2, None]).cast(pl.Decimal(10, 2)) / 4,
        }
    )
    schema = Schema.infer(df, missing="bin")
    assert schema["i"].levels == (1, 2**60)
    assert (schema["e"].kind, schema["e"].levels) == ("ordinal", ("lo", "mid", "hi"))
    assert (schema["b"].levels, schema["c"].levels) == ((False, True), ("x", "y"))
    missing = schema.table(df.slice(1, 1))
    assert [int(missing.data[j][0]) for j in range(4)] == [schema[j].n_bins - 1 for j in range(4)]
    assert schema.table(df.slice(0, 1)).to_pandas()["d"].astype(str).tolist() == ["(-inf, 0.3]"]


def test_rows_to_predict_need_no_target(schema, frame):
    table = schema.table(frame.drop(columns="y"))
    assert not table.has_classes
    assert not [column for column in table.columns() if column.encoding == "class"]
    assert "no target" in repr(table)
    with pytest.raises(SchemaError, check=error("no-target")):
        table.classes()
    with pytest.raises(SchemaError, check=error("name-the-target")):
        Schema.infer(frame).table(frame).classes()


def test_one_row(schema, frame):
    table = schema.table(frame.iloc[[7]])
    assert table.to_pandas()["sex"].tolist() == [frame["sex"].iloc[7]]
    single = Schema.infer(frame.iloc[[7]].drop(columns="y"))
    assert all(variable.n_bins == 1 for variable in single.variables)
    assert single.table(frame.iloc[[7]]).n_rows == 1


def test_values_beyond_those_seen_fall_into_the_end_bins(schema, frame):
    rows = frame.iloc[:2].assign(age=[-1e300, 1e300])
    assert schema.table(rows).codes("age").tolist() == [1, 5]


def _with(frame, name, row, value):
    changed = frame.astype({name: object})
    changed.loc[changed.index[row], name] = value
    return changed


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "sex",
            "x",
            "unusable-value",
        ),
        ("sex", 1, "unusable-value"),
        ("sex", pd.Timestamp(0), "unusable-value"),
        (
            "grade",
            9,
            "unusable-value",
        ),
        ("grade", "2", "unusable-value"),
        ("age", "12a", "unusable-value"),
        ("age", "", "unusable-value"),
        ("age", [1], "unusable-value"),
        ("age", float("inf"), "unusable-value"),
        ("age", "-inf", "unusable-value"),
        (
            "dose",
            99.0,
            "unusable-value",
        ),
        ("dose", 1e300, "unusable-value"),
        ("dose", "1,5", "unusable-value"),
        (
            "y",
            "perhaps",
            "unusable-value",
        ),
        ("y", None, "class-missing"),
        (
            "age",
            None,
            "missing-without-bin",
        ),
        ("dose", np.nan, "missing-without-bin"),
    ],
)
def test_refusals_name_column_row_and_value(schema, frame, name, value, message):
    labelled = frame.set_axis([f"r{i}" for i in range(50)])
    rows = _with(labelled, name, 3, None)
    rows.at["r3", name] = value
    with pytest.raises(SchemaError, check=error(message)):
        schema.table(rows)


def test_refusals_count_the_other_rows(schema, frame):
    with pytest.raises(SchemaError, check=error("unusable-value", "'q'", "row 0", "49")):
        schema.table(frame.assign(sex="q"))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda s, f: s.table(f.drop(columns=["age", "sex"])),
            "no column 'age', 'sex'; it has 'grade', 'dose', 'y'",
        ),
        (lambda s, f: s.table(f.iloc[:0]), "the table has no rows"),
        (lambda s, f: s.table(f.to_numpy()[:, :3]), "the array has 3 columns, the schema 4"),
        (lambda s, f: s.table(f.to_numpy()[0]), "a 2-D array is needed"),
        (lambda s, f: s.table(f, y=["no"]), "y has 1 labels for 50 rows"),
        (lambda s, f: s.table(f, y=np.zeros((50, 2))), r"y has shape \(50, 2\)"),
        (lambda s, f: s.table(f, weights=[1.0] * 49), r"weights have shape \(49,\)"),
        (
            lambda s, f: s.table(f, weights=[1.0] * 49 + [0.5]),
            r"weights\[49\] is 0.5: weights are integers",
        ),
        (lambda s, f: s.table(f, weights=[-1] * 50), r"weights\[0\] is -1"),
        (lambda s, f: s.table(f, weights=[np.nan] * 50), r"weights\[0\] is nan"),
        (lambda s, f: s.table(f, weights=["1"] * 50), "integers are needed"),
        (
            lambda s, f: s.table(f, weights=[9] * 50, weight_bound=8),
            "bound of the weights is 8, but the largest weight is 9",
        ),
        (
            lambda s, f: s.table(f.drop(columns="y"), weights=[1] * 50),
            "the rows have no target: give y=",
        ),
        (lambda s, f: s.table(f.drop(columns="y"), folds=5), "the rows have no target: give y="),
        (lambda s, f: s.table(f, folds=1), "folds=1: from 2 to the number of rows, 50"),
        (lambda s, f: s.table(f, folds=51), "folds=51"),
        (lambda s, f: s.table(f, folds=2.5), "folds=2.5"),
        (lambda s, f: s.table(f, slots=1000), "slots=1000: a power of two"),
        (
            lambda s, f: Schema.infer(f.drop(columns="y")).table(f, y=f["y"]),
            "the schema has no classes",
        ),
        (lambda s, f: s.table(f)[3], r"table\[a:b\]"),
        (lambda s, f: s.table(f)[::2], r"table\[a:b\]"),
        (lambda s, f: s.table(f)[7:7], "the table has no rows"),
        (lambda s, f: Table.concat([]), "at least one table"),
        (
            lambda s, f: Table.concat([s.table(f), s.with_missing_bin("age").table(f)]),
            "different schemas",
        ),
        (
            lambda s, f: Table.concat([s.table(f), s.table(f.drop(columns="y"))]),
            "some of the tables have a target",
        ),
        (lambda s, f: Table.concat([s.table(f, folds=2), s.table(f, folds=3)]), "2 and 3 folds"),
    ],
)
def test_wrong_calls_are_refused(schema, frame, call, message):
    with pytest.raises(SchemaError, match=message):
        call(schema, frame)


# ----------------------------------------------------------------------------------------------
# missing values


@pytest.fixture
def gaps(frame):
    gaps = frame.astype({"age": float, "sex": object})
    gaps.loc[[1, 4], "age"] = np.nan
    gaps.loc[[4, 9], "sex"] = None
    return gaps


def test_missing_bin(gaps):
    schema = Schema.infer(gaps, target="y", missing="bin", kinds=KINDS)
    table = schema.table(gaps)
    np.testing.assert_array_equal(table.bins("age")[-1], gaps["age"].isna())
    np.testing.assert_array_equal(sum(table.bins("sex")), 1)
    assert table.to_pandas()["sex"].astype(str).tolist()[9] == "missing"
    for call in (lambda: table.codes("age"), lambda: table.values(Column("centred", 0))):
        with pytest.raises(SchemaError, check=error("drop-gaps-anew")):
            call()
    assert Column("ordinal", 0) not in table.columns(("ordinal",))
    with pytest.raises(SchemaError, check=error("missing-without-bin", "'grade'", "row 2")):
        schema.table(_with(gaps, "grade", 2, None))


def test_missing_rows_dropped(gaps):
    schema = Schema.infer(gaps, target="y", missing="drop", kinds=KINDS)
    weights = np.arange(50)
    table = schema.table(gaps, weights=weights)
    kept = np.delete(np.arange(50), [1, 4, 9])
    assert (len(table), table.n_dropped) == (47, 3)
    np.testing.assert_array_equal(table.weights, weights[kept])
    np.testing.assert_array_equal(
        table.classes()[1], (gaps["y"].to_numpy() == "no")[kept] * weights[kept]
    )
    assert "3 rows with missing values left out" in repr(table)
    with pytest.raises(SchemaError, check=error("no-complete-rows", "'age'")):
        schema.table(gaps.iloc[[1]])


# ----------------------------------------------------------------------------------------------
# weights, folds


@pytest.mark.parametrize(
    ("weights", "bound"),
    [
        ([1, 0, 2], 2),
        ([3, 3, 3], 4),
        ([1, 1, 1], 1),
        ([0, 0, 0], 2),
        ([8.0, 1.0, 2.0], 8),
        ([True, False, True], 2),
    ],
)
def test_weights_multiply_the_classes(schema, frame, weights, bound):
    table = schema.table(frame.iloc[:3], weights=weights)
    np.testing.assert_array_equal(sum(table.classes()), weights)
    assert table.bound(Column("class", -1, 0)) == table.weight_bound == bound
    assert schema.table(frame.iloc[:3], weights=weights, weight_bound=100).weight_bound == 100
    if (
        bound <= 2 and max(weights) < 2
    ):  # whether there are weights is public, and no class follows from the others then
        assert schema.table(frame.iloc[:3], weights=weights, weight_bound=1).weight_bound == 2


@pytest.mark.parametrize("folds", [2, 5, 50])
def test_folds_sum_to_the_classes_and_are_stratified(schema, frame, folds):
    weights = np.arange(50) % 4
    table = schema.table(frame, folds=folds, weights=weights)
    by_fold = np.array([table.classes(fold=f) for f in range(folds)])
    np.testing.assert_array_equal(by_fold.sum(axis=0), table.classes())
    counts = pd.crosstab(table.fold_codes, frame["y"]).to_numpy()
    assert counts.shape[0] == folds
    assert (np.ptp(counts, axis=0) <= 1).all()
    assert np.ptp(counts.sum(axis=1)) <= 1
    assert len([column for column in table.columns() if column.fold is not None]) == 3 * folds
    with pytest.raises(SchemaError, check=error("fold-out-of-range", folds, folds)):
        table.classes(fold=folds)


def test_folds_are_fixed_by_their_seed(schema, frame):
    folds = schema.table(frame, folds=3).fold_codes
    np.testing.assert_array_equal(schema.table(frame, folds=3, fold_seed=0).fold_codes, folds)
    assert (schema.table(frame, folds=3, fold_seed=1).fold_codes != folds).any()
    # Pinned: two owners, or two versions of NumPy, must deal the same folds.
    y = ["no", "yes"] * 6
    pinned = Schema.infer(np.arange(12.0)[:, None], y=y).table(
        np.arange(12.0)[:, None], y=y, folds=3
    )
    assert pinned.fold_codes.tolist() == [0, 2, 0, 1, 1, 1, 2, 0, 1, 2, 2, 0]


# -------------------------------------------------------------------------------------------
# one-hot, slices, data


def test_onehot_tables_are_taken_as_they_are():
    rng = np.random.default_rng(5)
    schema = Schema.from_onehot(
        ["b", "a", "b", "a", "b"], {"a": "cat", "b": "ord"}, classes=["no", "yes"]
    )
    b, a = (
        np.eye(3, dtype=int)[rng.integers(0, 3, 20)],
        np.eye(2, dtype=int)[rng.integers(0, 2, 20)],
    )
    matrix = np.column_stack([b[:, 0], a[:, 0], b[:, 1], a[:, 1], b[:, 2]])
    y = rng.choice(["no", "yes"], 20)
    frame = pd.DataFrame(matrix, columns=[f"c{j}" for j in range(5)])
    for table in (
        schema.table(matrix, y=y),
        schema.table(matrix.astype(bool), y=y),
        schema.table(frame.assign(target=y)),
        schema.table(pl.from_dict(frame.to_dict("list")), y=pl.Series(y.tolist())),
        schema.table(np.column_stack([matrix.astype(object), y])),
    ):
        np.testing.assert_array_equal(np.column_stack(table.bins("b")), b)
        np.testing.assert_array_equal(np.column_stack(table.bins("a")), a)
        np.testing.assert_array_equal(table.classes()[1], y == "yes")
    for (row, col), value, message in (
        (
            (4, 0),
            1 - matrix[4, 0],
            "unusable-value",
        ),
        ((4, 1), 2, "unusable-value"),
        ((4, 2), np.nan, "missing-values-in-onehot"),
    ):
        wrong = matrix.astype(float)
        wrong[row, col] = value
        with pytest.raises(SchemaError, check=error(message)):
            schema.table(wrong, y=y)
    with pytest.raises(SchemaError, check=error("wrong-number-of-columns", "4", "5")):
        schema.table(frame.iloc[:, :4])


def _same(one, other):
    assert one.columns() == other.columns()
    for column in one.columns():
        np.testing.assert_array_equal(one.values(column), other.values(column))


def test_slices_join_to_the_whole(schema, frame):
    table = schema.table(frame, weights=np.arange(50), folds=4, slots=16)
    parts = [table[:10], table[10:33], table[33:]]
    assert [len(part) for part in parts] == [10, 23, 17]
    assert {part.weight_bound for part in parts} == {64}
    _same(Table.concat(parts), table)
    mixed = Table.concat([schema.table(frame), schema.table(frame, weights=[5] * 50)])
    assert (mixed.weight_bound, mixed.weights.tolist()) == (8, [1] * 50 + [5] * 50)
    assert table.with_layout(64).layout.n_chunks == 1
    assert (
        repr(table)
        == "Table(50 rows, 4 variables, 3 classes, weights up to 64, 4 folds; 4 x 16 slots)"
    )


def test_repeated_row_labels_do_no_harm(schema, frame):
    _same(schema.table(frame.set_axis([0] * 50)), schema.table(frame))


@st.composite
def frames(draw):
    n = draw(st.integers(1, 12))
    names = draw(st.lists(st.text(min_size=1, max_size=4), min_size=5, max_size=5, unique=True))
    cells = [
        st.floats(allow_nan=False, allow_infinity=False),
        st.integers(-3, 3),
        st.text(max_size=3),
        st.booleans(),
        st.integers(-(2**40), 2**40),
    ]
    columns = {}
    for name, cell in zip(names, cells, strict=True):
        values = draw(st.lists(st.one_of(st.none(), cell), min_size=n, max_size=n))
        values[draw(st.integers(0, n - 1))] = draw(cell)  # at least one value
        columns[name] = pd.Series(values, dtype=object)
    return pd.DataFrame(columns)


@settings(max_examples=examples(50), deadline=None)
@given(frames(), st.integers(1, 6))
def test_round_trip_of_any_frame(frame, bins):
    schema = Schema.infer(frame, missing="bin", bins=bins)
    table = Schema.from_json(schema.to_json()).table(frame)
    decoded = table.to_pandas()
    for j, variable in enumerate(schema.variables):
        missing = frame[variable.name].isna()
        np.testing.assert_array_equal(sum(table.bins(j)), 1)
        assert ((decoded[variable.name] == "missing") & variable.missing_bin)[missing].all()
        for value, code in zip(
            frame[variable.name][~missing], table.data[j][~missing], strict=True
        ):
            if variable.levels:
                assert variable.levels[code] == value
            else:
                assert code == sum(edge < value for edge in variable.edges)


@given(st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=10))
def test_large_integers_are_kept_exactly(values):
    df = pd.DataFrame({"n": np.array(values, dtype=np.int64)})
    schema = Schema.infer(df, kinds={"n": "number"})
    assert schema.table(df).numbers("n").tolist() == values
    assert schema.table(pl.from_dict({"n": values})).numbers("n").tolist() == values


def test_too_large_integers_are_refused():
    df = pd.DataFrame({"n": np.array([1, 2**63], dtype=np.uint64)})
    with pytest.raises(
        SchemaError, check=error("unusable-value", "'n'", "row 1", "9223372036854775808")
    ) as refused:
        Schema.infer(df)
    assert [cure.action for cure in refused.value.cures] == ["smaller integers"]


# ---------------------------------------------------------------------------------------- the d
# sets of the paper


@pytest.mark.parametrize("name", ["infl", "bcw_o", "mammo", "heart", "adult"])
def test_data_sets_of_the_paper(name):
    folder = os.environ.get("ENCRYPTEDSTATS_DATA")
    if not folder or not (Path(folder) / "datasets.toml").exists():
        pytest.skip("ENCRYPTEDSTATS_DATA names no folder with datasets.toml")
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 has no tomllib")
    about = tomllib.loads((Path(folder) / "datasets.toml").read_text(encoding="utf-8"))[name]
    data = pd.read_csv(Path(folder) / about["file"])
    kinds = dict(zip(about["columns"], about["kinds"], strict=True))
    schema = Schema.infer(data, target="target", kinds=kinds, missing="drop")
    assert {variable.name: variable.kind for variable in schema.variables} == kinds
    # Five bins a continuous or ordinal variable in the paper's count; ties leave fewer here, and
    # say so.
    n_bins = sum(variable.asked_bins or variable.n_bins for variable in schema.variables)
    assert n_bins <= about["n_vars3"]
    table = schema.table(data)
    assert (len(table), table.n_dropped) == (
        about["n_rows_complete"],
        about["n_rows"] - about["n_rows_complete"],
    )
    assert table.classes()[1].sum() == about["n_positive_complete"]
