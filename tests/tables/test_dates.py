"""Columns of dates: days inside, dates for people."""

from __future__ import annotations

import datetime
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import encryptedstats as es
from encryptedstats.tables.rows.row_files import read_frame


def visits(n: int = 60) -> pd.DataFrame:
    seen = pd.Series(pd.date_range("2020-01-01", periods=n), name="seen")
    return pd.DataFrame({"seen": seen, "ill": np.arange(n) % 2})


def test_bins_are_named_by_dates() -> None:
    schema = es.Schema.infer(visits(), target="ill", bins=3)
    labels = ("(-inf, 2020-01-20]", "(2020-01-20, 2020-02-09]", "(2020-02-09, inf)")
    assert schema["seen"].labels == labels
    assert schema.table(visits()).counts("seen")["count"].to_dict() == dict.fromkeys(labels, 20)


def test_few_dates_are_levels_and_named_so() -> None:
    frame = visits().assign(seen=lambda rows: rows["seen"].dt.floor("20D"))
    counts = es.Schema.infer(frame, target="ill").table(frame).counts("seen")
    assert counts.index.tolist() == [str(day.date()) for day in sorted(frame["seen"].unique())]


def test_numbers_come_back_as_dates() -> None:
    schema = es.Schema.infer(visits(), target="ill", kinds={"seen": "both"})
    rows = schema.table(visits()).to_pandas()
    assert rows["seen"].tolist() == visits()["seen"].tolist()
    assert schema["seen"].describe().startswith("dates, 1970-01-01 to ")


@pytest.mark.parametrize("edge", ["2020-02-01", datetime.date(2020, 2, 1)])
def test_cut_points_are_dates(edge: object) -> None:
    schema = es.Schema.infer(visits(), target="ill")
    cut = schema.with_bins("seen", edges=[pd.Timestamp(edge)])  # type: ignore[list-item, arg-type]  # a date
    assert cut["seen"].labels == ("(-inf, 2020-02-01]", "(2020-02-01, inf)")


def test_times_are_shown_with_hours() -> None:
    frame = visits().assign(seen=lambda rows: rows["seen"] + pd.Timedelta(hours=6))
    assert es.Schema.infer(frame, bins=2)["seen"].labels[0] == "(-inf, 2020-01-30 18:00]"


def test_schemas_and_digests_do_not_depend_on_it() -> None:
    schema = es.Schema.infer(visits(), target="ill", bins=3)
    loaded = es.Schema.from_json(schema.to_json())
    assert loaded["seen"].labels == schema["seen"].labels
    days = (visits()["seen"] - pd.Timestamp(0)).dt.days.astype(float)
    plain = es.Schema.infer(visits().assign(seen=days), target="ill")
    plain = plain.with_bins("seen", edges=schema["seen"].edges)
    assert "dates" not in plain.to_json()
    assert plain["seen"].labels != schema["seen"].labels
    assert schema.with_bins("seen", edges=schema["seen"].edges).digest_json() == plain.digest_json()


def test_dates_of_files_are_dates(tmp_path: Path) -> None:
    visits().to_csv(tmp_path / "visits.csv", index=False)
    found: list[object] = []
    frame = read_frame(tmp_path / "visits.csv", on_format=found.append)
    schema = es.Schema.infer(frame, target="ill", bins=3)
    named = replace(schema, csv=found[0])  # type: ignore[arg-type]  # as the command line does
    assert named["seen"].labels[0].startswith("(-inf, 2020-01-20")


def test_text_where_the_schema_has_dates_is_to_be_made_dates() -> None:
    schema = es.Schema.infer(visits(), target="ill", bins=3)
    text = visits().assign(seen=visits()["seen"].astype(str))
    with pytest.raises(es.SchemaError, match=r"df\['seen'\] = pd\.to_datetime\(df\['seen'\]\)"):
        schema.table(text)
