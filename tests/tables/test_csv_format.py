"""CSV files as the world writes them: found out, said, refused where there are two readings, and
the same numbers every time.
"""

from __future__ import annotations

import gzip
import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import encryptedstats as es
from encryptedstats.tables.encryption import FileRows
from encryptedstats.tables.rows.csv_format import SAMPLE_BYTES, CsvFormat, CsvOptions
from encryptedstats.tables.rows.row_files import read_frame, read_frames
from error_codes import error

PLAIN = "größe,dose,sex,ill\n1.5,1200.25,f,no\n2.25,950,m,yes\n1.75,3.5,f,no\n"
NUMBERS = {
    "größe": [1.5, 2.25, 1.75],
    "dose": [1200.25, 950, 3.5],
    "sex": ["f", "m", "f"],
    "ill": ["no", "yes", "no"],
}
GERMAN = "größe;dose;sex;ill\r\n1,5;1.200,25;f;no\r\n2,25;950;m;yes\r\n1,75;3,5;f;no\r\n"
SAMPLES: dict[str, tuple[str, str, str]] = {
    "plain": (PLAIN, "utf-8", "comma separated, decimal point, utf-8"),
    "german": (
        GERMAN,
        "cp1252",
        "semicolon separated, decimal comma, point between thousands, cp1252",
    ),
    "excel": (
        "sep=;\r\n" + GERMAN,
        "utf-8-sig",
        "semicolon separated, decimal comma, point between thousands, utf-8-sig",
    ),
    "utf-16": (
        GERMAN.replace(";", "\t"),
        "utf-16",
        "tab separated, decimal comma, point between thousands, utf-16",
    ),
    "french": (
        GERMAN.replace("1.200", "1\u202f200"),
        "utf-8",
        "semicolon separated, decimal comma, narrow space between thousands, utf-8",
    ),
    "swiss": (
        PLAIN.replace(",", "|").replace("1200", "1'200"),
        "latin-1",
        "pipe separated, decimal point, apostrophe between thousands, cp1252",
    ),
    "american": (
        PLAIN.replace("1200.25", '"1,200.25"'),
        "utf-8",
        "comma separated, decimal point, comma between thousands, utf-8",
    ),
    "quoted": (
        'größe,dose,sex,ill\n"1,5","1200,25",f,no\n"2,25",950,m,yes\n"1,75","3,5",f,no\n',
        "utf-8",
        "comma separated, decimal comma, utf-8",
    ),
}
each_sample = pytest.mark.parametrize("kind", SAMPLES)


def written(folder: Path, text: str, charset: str = "utf-8", name: str = "rows.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode(charset))
    return path


def read(
    path: Path, schema: es.Schema | None = None, **options: Any
) -> tuple[pd.DataFrame, CsvFormat]:
    found: list[CsvFormat] = []
    frame = read_frame(path, schema, CsvOptions(**options), found.append)
    return frame, found[0]


@each_sample
def test_the_same_numbers_come_out(kind: str, tmp_path: Path) -> None:
    text, charset, said = SAMPLES[kind]
    frame, form = read(written(tmp_path, text, charset))
    assert form.describe() == said
    assert form.is_plain == (kind == "plain")
    assert frame.to_dict("list") == NUMBERS


@each_sample
def test_pieces_are_read_like_the_whole_and_by_the_schema_of_another_file(
    kind: str, tmp_path: Path
) -> None:
    plain = read_frame(written(tmp_path, PLAIN))
    schema = es.Schema.infer(
        plain, target="ill", bins=2, kinds={"größe": "continuous", "dose": "continuous"}
    )
    text, charset, _ = SAMPLES[kind]
    path = written(tmp_path, text, charset, "other.csv")
    tables = list(FileRows(schema, path).tables(2))
    assert [len(table) for table in tables] == [2, 1]
    expected = schema.table(plain)
    joined = es.Table.concat(tables)
    for mine, theirs in zip(joined.data, expected.data, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize(
    ("text", "message", "options", "first"),
    [
        (
            "a;b\n1,234;2\n",
            "ambiguous-decimal-mark",
            {"decimal": ","},
            1.234,
        ),
        ("a;b\n1,234;2\n", "ambiguous-decimal-mark", {"decimal": "."}, 1234),
        (
            "a;b\n1.234;2\n",
            "ambiguous-decimal-mark",
            {"thousands": "."},
            1234,
        ),
        (
            'a,b\n"1,234",2\n',
            "ambiguous-decimal-mark",
            {"decimal": "."},
            1234,
        ),
        (
            "a;b\n1,5;2.5\n",
            "mixed-decimal-marks",
            {"decimal": ","},
            1.5,
        ),
        (
            "a;b\n1.234.567;1 234 567\n",
            "mixed-thousands-marks",
            {"thousands": "."},
            1234567,
        ),
        (
            "a,b\n02/03/2020,1\n",
            "ambiguous-dates",
            {"dates": "%m/%d/%Y"},
            18295,
        ),
        (
            "a,b;c\n1,2;3\n",
            "ambiguous-separator",
            {"separator": ","},
            1,
        ),
    ],
)
def test_two_readings_are_an_error_with_both(
    tmp_path: Path, text: str, message: str, options: Any, first: float
) -> None:
    path = written(tmp_path, text)
    with pytest.raises(es.SchemaError, check=error(message)):
        read(path)
    assert read(path, **options)[0]["a"].iloc[0] == first


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("a;b\n1,234;2,5\n", 1.234),  # the comma of b
        ("a;b\n1,234;2.5\n", 1234),
        ("a;b\n0,234;2\n", 0.234),  # no thousands begin with 0
        ("a;b\n1234,567;2\n", 1234.567),
        ("a,b\n1.234,2\n", 1.234),  # plain CSV
        ("a;b\n-1,5e3;2\n", -1500),
    ],
)
def test_what_has_one_reading_is_read(tmp_path: Path, text: str, first: float) -> None:
    assert read(written(tmp_path, text))[0]["a"].iloc[0] == first


def test_what_the_sample_does_not_show_is_refused_when_it_comes(tmp_path: Path) -> None:
    """Whole numbers, and a 1.234 far below the sample: a thousand, or one and a bit?"""
    schema = es.Schema.infer(pd.DataFrame({"a": range(3000), "b": 1.5}), kinds={"a": "continuous"})
    lines = [f"{i};1" for i in range(SAMPLE_BYTES // 4)]
    path = written(tmp_path, "\n".join(["a;b", *lines, "1.234;1"]))
    with pytest.raises(
        es.SchemaError,
        match=r"column 'a', row 65537: '1\.234' is no number in a file that is semicolon",
    ):
        list(FileRows(schema, path).tables(1 << 20))
    late = written(tmp_path, "\n".join(["a,b", *(["x,1"] * SAMPLE_BYTES)]) + "\nä,1\n", "latin-1")
    with pytest.raises(
        es.SchemaError, check=error("wrong-charset", "'cp1252'", "charset='cp1252'", "8")
    ):
        read(late)
    assert read(late, charset="latin-1")[0]["a"].iloc[-1] == "ä"


def test_a_word_among_numbers_is_named_and_not_its_neighbours(tmp_path: Path) -> None:
    schema = es.Schema.infer(
        pd.DataFrame({"a": [1.5, 2.5, 9.0], "g": [1, 2, 3]}), bins=3, kinds={"a": "continuous"}
    )
    path = written(tmp_path, "a;g\n" + "2,5;1\n" * 20 + "oops;2\n")
    with pytest.raises(es.SchemaError, match=r"column 'a', row 21: 'oops' is not a number"):
        list(FileRows(schema, path).tables(128))
    other = schema.with_unknown("other", "g")
    with pytest.warns(
        es.SchemaWarning, match=r"column 'g': 1 row with a level .*'oops', row 21\) went to 'other'"
    ):
        (table,) = FileRows(
            other, written(tmp_path, "a,g\n" + "2.5,1\n" * 20 + "2.5,oops\n")
        ).tables(128)
    assert table.counts("g")["count"].tolist() == [20, 0, 0, 1]


def test_the_schema_remembers_how_its_file_was_written(tmp_path: Path) -> None:
    frame, form = read(
        written(tmp_path, "a;b\n" + "".join(f"{i},{i}5;{i % 2}\n" for i in range(30)))
    )
    schema = es.Schema.infer(frame)
    one = written(tmp_path, "a;b\n1,234;1\n", name="one.csv")
    with pytest.raises(es.SchemaError, check=error("ambiguous-decimal-mark", "1234", "1.234")):
        read(one, schema)
    known = es.Schema.from_json(replace(schema, csv=form).to_json())
    assert known.csv == form
    assert read(one, known)[0]["a"].tolist() == [1.234]
    again = written(tmp_path, "a,b\n1.5,1\n", name="again.csv")  # another way to write the same
    assert read(again, known)[0]["a"].tolist() == [1.5]


def test_dates_become_days_and_later_files_are_read_alike(tmp_path: Path) -> None:
    rows = "born,seen,y\n" + "".join(
        f"{i % 28 + 1:02d}/03/1970,1970-02-{i % 28 + 1:02d} 12:00,{i % 2}\n" for i in range(40)
    )
    frame, form = read(written(tmp_path, rows))
    assert form.dates == (("born", "%d/%m/%Y"), ("seen", "%Y-%m-%d %H:%M"))
    assert frame["born"].iloc[0] == 59
    assert frame["seen"].iloc[0] == 31.5
    schema = replace(es.Schema.infer(frame, target="y"), csv=form)
    new = written(tmp_path, "born,seen\n02/03/1970,1970-02-01 00:00\n", name="new.csv")
    assert read(new, schema)[0]["born"].tolist() == [60]
    with pytest.raises(es.SchemaError, match="'soon' is not a number"):
        list(
            FileRows(
                schema,
                written(
                    tmp_path,
                    "born,seen\n"
                    + "02/03/1970,1970-02-01 00:00\n" * 20
                    + "soon,1970-02-01 00:00\n",
                ),
            ).tables(64)
        )
    assert read(written(tmp_path, rows), dates="none")[0]["born"].iloc[0] == "01/03/1970"


def test_text_of_the_schema_and_ids_are_left_as_they_are(tmp_path: Path) -> None:
    schema = es.Schema.infer(
        pd.DataFrame({"code": ["1,234", "01"], "n": [1, 2], "who": ["007", "008"]}), id="who"
    )
    frame, _ = read(written(tmp_path, "who;code;n;extra\n007;1,234;1;9,999\n"), schema)
    assert frame.loc[1].to_dict() == {"who": "007", "code": "1,234", "n": 1, "extra": "9,999"}


def test_packed_files_and_pipes(tmp_path: Path) -> None:
    (tmp_path / "rows.csv.gz").write_bytes(gzip.compress(GERMAN.encode("cp1252")))
    assert read(tmp_path / "rows.csv.gz")[0].to_dict("list") == NUMBERS
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    threading.Thread(target=lambda: pipe.write_bytes(GERMAN.encode("cp1252")), daemon=True).start()
    assert read(pipe)[0].to_dict("list") == NUMBERS


def test_names_given_twice_are_warned_of(tmp_path: Path) -> None:
    with pytest.warns(
        es.SchemaWarning,
        match=r"column 'a\.1' stands beside 'a': either the file has the name 'a' twice",
    ):
        read(written(tmp_path, "a,a\n1,2\n"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"separator": "ab"}, "unknown-separator"),
        ({"decimal": "-"}, "unknown-decimal-mark"),
        ({"thousands": "x"}, "unknown-thousands-mark"),
        ({"charset": "klingon"}, "unknown-charset"),
        ({"dates": "day first"}, "wrong-date-format"),
    ],
)
def test_options_that_cannot_be(options: dict[str, str], message: str) -> None:
    with pytest.raises(es.SchemaError, check=error(message)):
        CsvOptions(**options)


def test_only_the_beginning_is_looked_at(tmp_path: Path) -> None:
    frames = read_frames(written(tmp_path, "a;b\n" + "1,5;2\n" * 5000), rows=1000)
    assert [frame["a"].sum() for frame in frames] == [1500] * 5
