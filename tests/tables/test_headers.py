"""First lines that do not name every column are refused, and never shift the columns."""

from __future__ import annotations

import os
import signal
import threading
import time
import zipfile
from pathlib import Path

import pandas as pd
import pytest

import encryptedstats as es
from encryptedstats.tables.rows.csv_format import SAMPLE_BYTES
from encryptedstats.tables.rows.row_files import read_frame, read_frames
from error_codes import error

ROWS = "40,m,yes\n50,f,no\n60,m,no\n"
REFUSED = {
    "row names of R": (
        "age,sex,ill\n" + "".join(f'"{i}",{row}\n' for i, row in enumerate(ROWS.split(), 1)),
        1,
        2,
    ),
    "row names from 0": (
        "age,sex,ill\n" + "".join(f"{i},{row}\n" for i, row in enumerate(ROWS.split())),
        1,
        2,
    ),
    "a separator at the end": ("age,sex,ill\n" + ROWS.replace("\n", ",\n"), 1, 2),
    "only the first row": ("age,sex,ill\n1,40,m,yes\n" + ROWS, 1, 2),
    "two more": ("age,sex\n" + "1,".join(["", *ROWS.splitlines(keepends=True)]), 1, 2),
    "a title": ("Patients of 2024\nage,sex,ill\n" + ROWS, 1, 2),
    "a title and an empty line": ("Patients of 2024\n\nage,sex,ill\n" + ROWS, 1, 3),
    "a line of blanks": ("age,sex,ill\n  \n1,40,m,yes\n" + ROWS, 1, 3),
    "a title of a spreadsheet": ("Patients of 2024,,\nage,sex,ill\n" + ROWS, 1, 2),
}


def file_of(tmp_path: Path, text: str, separator: str = ",") -> Path:
    file = tmp_path / "rows.csv"
    file.write_text(text.replace(",", separator))
    return file


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("what", REFUSED)
def test_a_first_line_with_fewer_fields_is_refused_by_its_line(
    tmp_path: Path, what: str, separator: str
) -> None:
    text, first, second = REFUSED[what]
    with pytest.raises(es.SchemaError) as refused:
        read_frame(file_of(tmp_path, text, separator))
    assert [cure.action for cure in refused.value.cures] == [
        "name every column",
        "remove title lines",
    ]
    assert f"line {first} " in str(refused.value)
    assert f"line {second} " in str(refused.value)


def test_lines_are_counted_from_the_first_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(es.SchemaError, check=error("more-fields-than-names", "line 3", "line 2")):
        read_frame(file_of(tmp_path, "sep=,\nage,sex,ill\n1,40,m,yes\n2,50,f,no\n", ";"))


def test_a_packed_file_is_refused_as_well(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "rows.zip", "w") as packed:
        packed.writestr("rows.csv", REFUSED["row names from 0"][0])
    with pytest.raises(es.SchemaError) as refused:
        read_frame(tmp_path / "rows.zip")
    assert [cure.action for cure in refused.value.cures] == [
        "name every column",
        "remove title lines",
    ]


@pytest.mark.parametrize("rows", [None, 1])
def test_rows_that_the_sample_does_not_reach_are_refused_as_well(
    tmp_path: Path, rows: int | None
) -> None:
    names = ",".join(letter * SAMPLE_BYTES for letter in "abc")
    file = file_of(tmp_path, f"{names}\n0,40,m,yes\n1,50,f,no\n")
    with pytest.raises(es.SchemaError) as refused:
        list(read_frames(file, None, rows))
    assert [cure.action for cure in refused.value.cures] == [
        "name every column",
        "remove title lines",
    ]


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_row_names_that_have_a_name_are_a_column(tmp_path: Path, separator: str) -> None:
    frame = pd.DataFrame({"age": [40, 50], "sex": ["m", "f"]}, index=["a", "b"])
    frame.to_csv(tmp_path / "rows.csv", sep=separator)  # as R's write.csv: an empty name
    found = read_frame(tmp_path / "rows.csv")
    assert found["age"].tolist() == [40, 50]
    assert found.shape == (2, 3)


def test_a_later_row_with_more_fields_is_refused(tmp_path: Path) -> None:
    with pytest.raises(es.SchemaError, check=error("malformed-csv", "line 5")):
        read_frame(file_of(tmp_path, "age,sex,ill\n" + ROWS + "1,2,3,4\n"))


# -- large integers
# ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [10**30, -(10**30), 1 << 63, 1 << 64])
def test_integers_beyond_64_bits_are_named_by_column_and_row(tmp_path: Path, value: int) -> None:
    file = file_of(tmp_path, f"number,ill\n1,yes\n2,no\n{value},yes\n")
    with pytest.raises(es.SchemaError, check=error("unusable-value", value)) as refused:
        es.Schema.infer(read_frame(file), target="ill")
    assert [cure.action for cure in refused.value.cures] == ["smaller integers"]


# -- interruption
# ------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="a pipe by its name")
def test_an_interruption_while_reading_is_one(tmp_path: Path) -> None:
    """pandas loses a KeyboardInterrupt that is raised while it calls ``read``."""
    pipe = tmp_path / "rows.csv"
    os.mkfifo(pipe)
    ended = threading.Event()

    def feed() -> None:
        with open(pipe, "w") as out:
            out.write("a,b\n" + "1,2\n" * 200_000)
            out.flush()
            time.sleep(0.5)
            os.kill(os.getpid(), signal.SIGINT)
            ended.wait(20)

    # A shell starts what runs in its background with interruptions ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    feeder = threading.Thread(target=feed)
    feeder.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            read_frame(pipe)
    finally:
        ended.set()
        feeder.join()
        signal.signal(signal.SIGINT, before)
