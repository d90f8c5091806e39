"""Encrypting files: CSV and Parquet, a piece at a time, give the very table that the whole frame
gives; errors name the place.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from encrypted_samples import ALL, SLOTS, assert_twins, clear, mixed_frame, plain
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import encryptedstats as es
from effort import examples
from encryptedstats.errors import SchemaError
from encryptedstats.tables import Schema, Table
from encryptedstats.tables.rows.row_files import read_frame
from error_codes import error

pytestmark = pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")
FORMATS = ["csv", "csv.gz", "parquet"]


@pytest.fixture(params=FORMATS)
def write(request, tmp_path):
    """A function that writes a frame to a file of some format."""
    if request.param == "parquet":
        pytest.importorskip("pyarrow")

    def written(frame: pd.DataFrame, **options):
        path = tmp_path / f"rows.{request.param}"
        if request.param == "parquet":
            frame.to_parquet(path, row_group_size=700, **options)
        else:
            frame.to_csv(path, index=False, **options)
        return path

    return written


@pytest.fixture
def write_csv(tmp_path):
    def written(frame: pd.DataFrame, **options):
        frame.to_csv(tmp_path / "rows.csv", index=False, **options)
        return tmp_path / "rows.csv"

    return written


# ---------------------------------------------------------------------------------------------
# the whole frame


@pytest.mark.parametrize("rows", [1, SLOTS, 2 * SLOTS + 5])
def test_a_file_is_its_frame(keeper, schema, write, tmp_path, rows):
    frame = mixed_frame(rows)
    sealed = keeper.encrypt_file(write(frame), schema, tmp_path / "t", encodings=ALL)
    assert_twins(keeper, sealed, schema.table(frame), ALL)
    assert plain(keeper, es.load(tmp_path / "t")) == clear(schema.table(frame), ALL)
    assert sealed.layout == keeper.encrypt(schema.table(frame)).layout


@pytest.mark.parametrize("workers", [1, 2])
def test_dropped_rows_do_not_leave_holes(keeper, write, tmp_path, workers):
    """Pieces of the file lose rows, one of them all: chunks are full all the same, as of the whole
    frame.
    """
    frame = mixed_frame(4 * SLOTS)
    frame.loc[::4, "age"] = np.nan
    frame.loc[frame.index[SLOTS : 2 * SLOTS], "grade"] = np.nan
    schema = Schema.infer(frame, target="sick", missing="drop")
    table = schema.table(frame)
    assert len(table) == len(frame.dropna())
    sealed = keeper.encrypt_file(write(frame), schema, tmp_path / "t", workers=workers)
    assert sealed.layout.counts == (SLOTS, SLOTS, len(table) - 2 * SLOTS)
    assert_twins(keeper, sealed, table)


def test_missing_values_in_a_bin(keeper, write, tmp_path):
    frame = mixed_frame(SLOTS + 50)
    frame.loc[5:9, ["age", "grade"]] = np.nan
    frame.loc[SLOTS:, "größe"] = None
    schema = Schema.infer(frame, target="sick", missing="bin")
    sealed = keeper.encrypt_file(write(frame), schema, tmp_path / "t")
    assert_twins(keeper, sealed, schema.table(frame))


def test_rows_to_predict(keeper, schema, write, tmp_path):
    frame = mixed_frame(40).drop(columns="sick").assign(extra="not in the schema")
    sealed = keeper.encrypt_file(write(frame), schema, tmp_path / "t")
    assert not sealed.has_classes
    assert_twins(keeper, sealed, schema.table(frame))


@pytest.mark.parametrize("url", ["memory://from-files/t", "file"])
def test_into_any_storage(keeper, schema, write_csv, tmp_path, url):
    url = f"file://{tmp_path}/t" if url == "file" else url
    frame = mixed_frame(30)
    keeper.encrypt_file(write_csv(frame), schema, url, overwrite=True)
    assert plain(keeper, es.load(url)) == clear(schema.table(frame))


# ----------------------------------------------------------------------------------------------
# text and numbers


def test_text_that_looks_like_something_else(keeper, write, tmp_path):
    frame = pd.DataFrame(
        {
            "code": ["01", "1", "1.0", "1e0", "001"] * 300,
            "word": ["None", "NA", "nan", "null", "x"] * 300,
            "flag": ["True", "true", "False", "no", "1"] * 300,
            "y": ["0", "00", "0", "0", "00"] * 300,
        }
    )
    schema = Schema.infer(frame, target="y")
    assert schema["code"].levels == ("001", "01", "1", "1.0", "1e0")
    sealed = keeper.encrypt_file(write(frame), schema, tmp_path / "t")
    assert_twins(keeper, sealed, schema.table(frame))


def test_a_level_that_spells_missing_leaves_other_columns_alone(keeper, write_csv, tmp_path):
    frame = pd.DataFrame(
        {"word": ["None", "x"] * 10, "n": [1.5, 2.5] * 10, "other": ["a", "b"] * 10}
    )
    schema = Schema.infer(frame, missing="drop")
    frame.loc[3, "n"] = np.nan
    frame.loc[7, "other"] = None
    assert len(schema.table(frame)) == 18
    sealed = keeper.encrypt_file(write_csv(frame, na_rep="NA"), schema, tmp_path / "t")
    assert_twins(keeper, sealed, schema.table(frame))


def test_numbers_as_levels_and_booleans(keeper, write, tmp_path):
    n = SLOTS + 100
    frame = pd.DataFrame(
        {"k": np.arange(n) % 3, "b": np.arange(n) % 2 == 0, "y": np.arange(n) % 5 // 4}
    )
    schema = Schema.infer(frame, target="y", kinds={"k": "categorical"})
    holes = frame.astype({"k": float})
    holes.loc[SLOTS + 3, "k"] = np.nan  # integers turn into floats in one piece of the file only
    schema = schema.with_missing_bin("k")
    sealed = keeper.encrypt_file(write(holes), schema, tmp_path / "t")
    assert_twins(keeper, sealed, schema.table(holes))


def test_a_mixed_column_is_text_all_through(write_csv):
    """Types are guessed once for the whole column: not numbers in the first rows and text in the
    last.
    """
    n = 300_000
    path = write_csv(
        pd.DataFrame({"mixed": [*map(str, np.arange(n) % 3), "?"], "wide": ["x" * 20] * (n + 1)})
    )
    schema = Schema.infer(read_frame(path))
    assert schema["mixed"].levels == ("0", "1", "2", "?")


@settings(
    max_examples=examples(12),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    values=st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2, max_size=30),
    bins=st.integers(2, 5),
)
def test_numbers_are_read_exactly(keeper, tmp_path, values, bins):
    """A value that equals an edge falls on the same side of it from a file as from a frame."""
    frame = pd.DataFrame({"x": values})
    schema = Schema.infer(frame, bins=bins, kinds={"x": "continuous"})
    frame = pd.DataFrame({"x": [*values, *schema["x"].edges]})
    frame.to_csv(tmp_path / "x.csv", index=False)
    sealed = keeper.encrypt_file(
        tmp_path / "x.csv", schema, tmp_path / "t", overwrite=True, workers=1
    )
    assert plain(keeper, sealed) == clear(schema.table(frame))


@settings(
    max_examples=examples(12),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    levels=st.lists(
        st.text(
            st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\0"),
            min_size=1,
            max_size=5,
        ),
        min_size=2,
        max_size=6,
        unique=True,
    ),
    name=st.text(st.characters(categories=["L", "N", "S"]), min_size=1, max_size=6),
)
def test_any_text_survives_a_file(keeper, tmp_path, levels, name):
    frame = pd.DataFrame({name: levels, "z" + name: range(len(levels))})
    schema = Schema.infer(frame)
    frame.to_csv(tmp_path / "x.csv", index=False)
    sealed = keeper.encrypt_file(
        tmp_path / "x.csv", schema, tmp_path / "t", overwrite=True, workers=1
    )
    assert plain(keeper, sealed) == clear(schema.table(frame))


# ----------------------------------------------------------------------------------------------
# weights and folds


def test_weights_of_a_column(keeper, schema, write, tmp_path):
    frame = mixed_frame(SLOTS + 70).assign(w=lambda f: np.arange(len(f)) % 5)
    table = schema.table(frame, weights=frame["w"], weight_bound=7)
    sealed = keeper.encrypt_file(write(frame), schema, tmp_path / "t", weights="w", weight_bound=7)
    assert sealed.facts.weight_bound == 7
    assert_twins(keeper, sealed, table)
    with pytest.raises(SchemaError, check=error("weight-bound-missing")):
        keeper.encrypt_file(write(frame), schema, tmp_path / "u", weights="w")


def test_weights_stay_with_their_rows_when_others_are_dropped(keeper, write, tmp_path):
    frame = mixed_frame(3 * SLOTS).assign(w=lambda f: np.arange(len(f)) % 7)
    frame.loc[::2, "age"] = np.nan
    frame.loc[0, "w"] = 6
    schema = Schema.infer(frame.drop(columns="w"), target="sick", missing="drop")
    sealed = keeper.encrypt_file(write(frame), schema, tmp_path / "t", weights="w", weight_bound=8)
    assert_twins(keeper, sealed, schema.table(frame, weights=frame["w"], weight_bound=8))


def test_weights_beside_a_onehot_table(keeper, write_csv, tmp_path):
    schema = Schema.from_onehot(["a", "a", "b", "b"], {"a": "ord", "b": "cat"})
    frame = pd.DataFrame([[1, 0, 0, 1], [0, 1, 1, 0], [0, 1, 0, 1]], columns=list("pqrs"))
    frame = frame.assign(w=[3, 0, 1], target=[0, 1, 1])
    sealed = keeper.encrypt_file(
        write_csv(frame), schema, tmp_path / "t", weights="w", weight_bound=4
    )
    expected = schema.table(frame.drop(columns="w"), weights=frame["w"], weight_bound=4)
    assert_twins(keeper, sealed, expected)


@pytest.mark.parametrize(
    "rows", [3, SLOTS - 1, SLOTS + 1, pytest.param(2 * SLOTS + 4, marks=pytest.mark.slow)]
)
def test_folds(keeper, schema, write_csv, tmp_path, rows):
    """Also where the rows that are left over at the end of a file are fewer than the folds."""
    frame = mixed_frame(rows)
    sealed = keeper.encrypt_file(write_csv(frame), schema, tmp_path / "t", folds=3, fold_seed=5)
    assert (sealed.n_folds, len(sealed)) == (3, rows)
    by_fold = np.array([[keeper.open(c) for c in sealed.classes(fold)] for fold in range(3)])
    np.testing.assert_array_equal(by_fold.sum(axis=0), schema.table(frame).classes())
    counts = by_fold.sum(axis=2)  # folds x classes
    pieces = -(-rows // SLOTS)
    assert np.ptp(counts, axis=0).max() <= pieces
    assert np.ptp(counts.sum(axis=1)) <= pieces
    again = keeper.encrypt_file(write_csv(frame), schema, tmp_path / "u", folds=3, fold_seed=5)
    assert plain(keeper, again) == plain(keeper, sealed)
    if rows <= SLOTS:
        assert plain(keeper, sealed) == clear(schema.table(frame, folds=3, fold_seed=5))
    if rows > 3:
        other = keeper.encrypt_file(write_csv(frame), schema, tmp_path / "v", folds=3, fold_seed=6)
        assert plain(keeper, other) != plain(keeper, sealed)


def test_more_folds_than_rows(keeper, schema, write_csv, tmp_path):
    path = write_csv(mixed_frame(4))
    with pytest.raises(SchemaError, match=r"rows\.csv: folds=5: from 2 to the number of rows, 4"):
        keeper.encrypt_file(path, schema, tmp_path / "t", folds=5)


# ----------------------------------------------------------------------------------------------
# errors


def spoilt(frame: pd.DataFrame, row: int, column: str, value: object) -> pd.DataFrame:
    frame = frame.astype(object)
    frame.loc[row, column] = value
    return frame


LATE = SLOTS + 17  # in the second piece of the file, counted from 1


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("age", "old", rf"column 'age', row {LATE}: 'old' is not a number"),
        ("age", None, rf"missing values in column 'age' \(row {LATE}\)"),
        ("größe", "riesig", rf"column 'größe', row {LATE}: 'riesig' is not a level of the schema"),
        ("grade", 9, rf"column 'grade', row {LATE}: 9(\.0)? is not a level"),
        ("sick", "perhaps", rf"target 'sick', row {LATE}: 'perhaps' is not a class of the schema"),
        ("sick", None, rf"the class is missing in column 'sick' \(row {LATE}\)"),
        ("dose", 5.5, rf"column 'dose', row {LATE}: 5.5 is out of bounds \(-0.50 to 0.60\)"),
        ("w", 2.5, rf"column 'w', row {LATE}: .*2.5.* is no weight"),
        ("w", -1, rf"column 'w', row {LATE}: -1.* is no weight"),
        ("w", "x", rf"column 'w', row {LATE}: 'x' is no weight"),
        ("w", None, rf"column 'w', row {LATE}: nan is no weight"),
        ("w", 9, r"bound of the weights is 4, but the largest weight is 9"),
    ],
)
def test_errors_name_file_column_and_row(
    keeper, schema, write_csv, tmp_path, column, value, message
):
    frame = mixed_frame(SLOTS + 40).assign(w=1)
    path = write_csv(spoilt(frame, LATE - 1, column, value))
    thorough = value in (
        "old",
        2.5,
    )  # one of the schema, one of the weights: what is not said is the same for all
    for workers in (1, 2) if thorough else (1,):
        with pytest.raises(SchemaError, match=message) as caught:
            keeper.encrypt_file(
                path, schema, tmp_path / "t", weights="w", weight_bound=4, workers=workers
            )
        assert str(caught.value).startswith(f"{path}: ")
    with pytest.raises(FileNotFoundError, match="was not finished"):
        es.load(tmp_path / "t")
    if not thorough:
        return
    # The good rows before the error are not encrypted again when the file is mended.
    kept = (
        [p.name for p in (tmp_path / "t" / "blocks").glob("0*")]
        if (tmp_path / "t" / "blocks").exists()
        else []
    )
    sealed = keeper.encrypt_file(
        write_csv(frame), schema, tmp_path / "t", weights="w", weight_bound=4
    )
    assert_twins(keeper, sealed, schema.table(frame, weights=frame["w"], weight_bound=4))
    assert {entry.name.removeprefix("blocks/") for entry in sealed.blocks.entries} >= set(kept)


def test_an_error_in_parquet_names_its_row(keeper, schema, tmp_path):
    pytest.importorskip("pyarrow")
    frame = mixed_frame(SLOTS + 40)
    frame.loc[LATE - 1, "größe"] = "riesig"
    frame.to_parquet(tmp_path / "x.parquet", row_group_size=100)
    with pytest.raises(
        SchemaError, match=rf"x\.parquet: column 'größe', row {LATE}: 'riesig' is not a level"
    ):
        keeper.encrypt_file(tmp_path / "x.parquet", schema, tmp_path / "t")


def test_files_that_are_none(keeper, schema, tmp_path):
    def encrypt(name: str, content: bytes | None):
        if content is not None:
            (tmp_path / name).write_bytes(content)
        return keeper.encrypt_file(tmp_path / name, schema, tmp_path / "t")

    for name, content, kind, message in (
        ("none.csv", None, FileNotFoundError, r"none\.csv"),
        (
            "empty.csv",
            b"",
            SchemaError,
            r"empty\.csv is empty: there is not even a line of column names",
        ),
        ("head.csv", b"age,grade\n", SchemaError, r"head\.csv has no rows"),
        (
            "ragged.csv",
            b"a,b\n1,2\n1,2,3\n",
            SchemaError,
            r"ragged\.csv is not a CSV file that pandas can read",
        ),
        (
            "binary.csv",
            b"a,b\n\x00\x01,2\n",
            SchemaError,
            r"binary\.csv is not a CSV file that pandas can read",
        ),
        ("other.csv", b"a,b\n1,2\n", SchemaError, r"other\.csv: the data has no column 'age'"),
    ):
        with pytest.raises(kind, match=message):
            encrypt(name, content)
    pytest.importorskip("pyarrow")
    mixed_frame(50).to_parquet(tmp_path / "good.parquet")
    good = (tmp_path / "good.parquet").read_bytes()
    for name, content, kind in (
        ("none.parquet", None, FileNotFoundError),
        ("text.parquet", b"a,b\n1,2\n" * 9, SchemaError),
        ("cut.parquet", good[: len(good) // 2], SchemaError),
        ("empty.parquet", b"", SchemaError),
        ("damaged.parquet", good[:-200] + bytes(150) + good[-50:], SchemaError),
    ):
        with pytest.raises(kind, match=name.replace(".", r"\.")):
            encrypt(name, content)
    assert not (tmp_path / "t").exists()


def test_all_rows_dropped(keeper, write_csv, tmp_path):
    frame = mixed_frame(20)
    schema = Schema.infer(frame, target="sick", missing="drop")
    path = write_csv(frame.assign(age=np.nan))
    with pytest.raises(SchemaError, check=error("no-rows", "rows.csv")):
        keeper.encrypt_file(path, schema, tmp_path / "t")


def test_absent_columns(keeper, schema, write_csv, tmp_path):
    path = write_csv(mixed_frame(20))
    with pytest.raises(SchemaError, match=r"rows\.csv: there is no column 'w' for the weights"):
        keeper.encrypt_file(path, schema, tmp_path / "t", weights="w", weight_bound=4)
    path = write_csv(mixed_frame(20).drop(columns="dose"))
    with pytest.raises(SchemaError, match=r"rows\.csv: the data has no column 'dose'"):
        keeper.encrypt_file(path, schema, tmp_path / "t")


def test_only_a_schema_describes_a_file(keeper, schema, write_csv, tmp_path):
    path = write_csv(mixed_frame(20))
    with pytest.raises(TypeError, check=error("not-a-schema")):
        keeper.encrypt_file(path, {}, tmp_path / "t")
    with pytest.raises(TypeError, check=error("not-a-schema")):
        keeper.encrypt_file(path, schema.public(), tmp_path / "t")


def test_the_clear_twin_of_a_file(keeper, schema, write_csv):
    """What a file gives in the clear, a piece at a time, is what it gives at once."""
    frame = mixed_frame(100)
    table = schema.table(read_frame(write_csv(frame), schema))
    assert isinstance(table, Table)
    assert clear(table) == clear(schema.table(frame))


def test_others_encrypt_files_with_the_public_keys(keeper, schema, write_csv, tmp_path):
    frame = mixed_frame(SLOTS + 3)
    sealed = (
        keeper.public_keys().encrypt_file(write_csv(frame), schema, tmp_path / "t").accept_others()
    )
    assert not sealed.facts.with_secret_key
    assert plain(keeper, es.load(tmp_path / "t", by_others=True)) == clear(schema.table(frame))
