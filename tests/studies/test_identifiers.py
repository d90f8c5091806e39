"""Identifiers: what is one person after normalising, and what a site is told before it sends."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import encryptedstats as es
from encryptedstats.studies.identifiers import (
    find_people,
    normalise_code,
    normalise_date,
    normalise_text,
)
from error_codes import error


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("José María", "JOSE-MARIA"),
        ("  O'Neill ", "oneill"),
        ("Ångström", "angstrom"),
        ("STRAẞE", "strasse"),
    ],
)
def test_spellings_of_a_name_are_one(one: str, other: str) -> None:
    assert normalise_text(one) == normalise_text(other)


@given(st.text())
def test_normalising_twice_changes_nothing(text: str) -> None:
    assert normalise_text(normalise_text(text)) == normalise_text(text)
    assert normalise_code(normalise_code(text)) == normalise_code(text)


def test_codes_keep_zeros_in_front() -> None:
    assert normalise_code("007") != normalise_code("7")
    assert normalise_code(7.0) == normalise_code(7) == normalise_code(np.float64(7)) == "7"


def test_dates_are_read_in_one_way_only() -> None:
    stamp = pd.Timestamp("1970-02-01 12:30")
    assert normalise_date(date(1970, 2, 1)) == normalise_date(stamp) == "1970-02-01"
    frame = pd.DataFrame({"born": ["1970-02-01", "01/02/1970"]})
    with pytest.raises(es.DataError, check=error("ambiguous-date", "born", "01/02/1970")):
        find_people(frame, ["born"], ["date"])


FRAME = pd.DataFrame(
    {
        "name": ["Ann", "Bob", "ann ", "Cleo", None, "Dan"],
        "born": ["1970-01-01", "1971-01-01", "1970-01-01", "1971-01-01", "1980-01-01", None],
    }
)


def test_duplicates_are_refused_counted_or_left_out() -> None:
    keys = (["name", "born"], ["text", "date"])
    with pytest.raises(es.DataError, check=error("duplicate-identifiers", 1)):
        find_people(FRAME, *keys)
    first = find_people(FRAME, *keys, "first")
    assert first.rows.tolist() == [0, 1, 3]
    assert find_people(FRAME, *keys, "drop").rows.tolist() == [1, 3]
    made = first.report
    assert (made.n_rows, made.n_without, made.n_duplicates, made.n_people) == (6, 2, 1, 3)
    assert made.nearly == {"name": 2, "born": 0}  # Bob and Cleo were born on one day
    longer = replace(made, nearly={"date of birth": 0})
    assert "differ in date of birth only 0" in str(longer)


def test_identifiers_are_columns_of_the_rows() -> None:
    with pytest.raises(es.SchemaError, check=error("unknown-column", "nmae")):
        find_people(FRAME, ["nmae"], ["text"])
    with pytest.raises(es.SchemaError, check=error("wrong-identifiers", "'name' was given")):
        find_people(FRAME, ["name"], ["text", "date"])
    with pytest.raises(es.SchemaError, check=error("wrong-identifiers", "last", "refuse, first")):
        find_people(FRAME, ["name", "born"], ["text", "date"], "last")
    with pytest.raises(es.DataError, check=error("no-identifiers")):
        find_people(FRAME.iloc[4:], ["name", "born"], ["text", "date"])


def test_keyed_hashes_differ_by_key_and_person() -> None:
    people = find_people(FRAME, ["name", "born"], ["text", "date"], "first")
    one, other = people.tokens(b"1" * 32), people.tokens(b"2" * 32)
    assert len({token.tobytes() for token in (*one, *other)}) == 6
