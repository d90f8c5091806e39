"""The whole story: an owner and a worker with a folder each, by the program alone, and pandas says
the same.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from cli_helpers import Hospital, Run, done, names

import encryptedstats as es
from encryptedstats.storage import container
from texts import text_of


def opened(hospital: Hospital, result: Path, out: Path) -> pd.DataFrame:
    done("open", result, "--key", hospital.key, "--schema", hospital.schema, "-o", out)
    return pd.read_csv(out, index_col=0)


def bins(hospital: Hospital, name: str) -> pd.Series:
    """A column cut by pandas, labelled as the schema does."""
    variable = es.Schema.load(hospital.schema)[name]
    edges = [-np.inf, *variable.edges, np.inf]
    return pd.cut(hospital.frame[name], edges, labels=list(variable.labels)).rename(name)


def test_counts_are_those_of_pandas(hospital: Hospital, tmp_path: Path) -> None:
    found = opened(hospital, hospital.ask("age", "counts(v0)"), tmp_path / "age.csv")
    expected = bins(hospital, "age").value_counts(sort=False)
    assert found["count"].to_dict() == expected.to_dict()
    assert found.index.name == "age"


def test_counts_by_class_are_those_of_pandas(hospital: Hospital, tmp_path: Path) -> None:
    found = opened(hospital, hospital.ask("age-ill", "counts(v0, class)"), tmp_path / "c.csv")
    expected = pd.crosstab(bins(hospital, "age"), hospital.frame["ill"])
    assert found.to_dict() == expected.to_dict()


def test_counts_by_a_variable_and_cross_tables_are_those_of_pandas(
    hospital: Hospital, tmp_path: Path
) -> None:
    expected = pd.crosstab(hospital.frame["grade"], hospital.frame["sex, at birth"])
    for name, question in (
        ("tab", "crosstab(v1, v3)"),
        ("by", "counts(v1, v3)"),
    ):
        found = opened(hospital, hospital.ask(name, question), tmp_path / f"{name}.csv")
        assert found.to_dict() == expected.to_dict()


def test_moments_are_those_of_pandas(hospital: Hospital, tmp_path: Path) -> None:
    numbers = hospital.frame[["dose", "kilos"]]
    found = opened(hospital, hospital.ask("moments", "moments(v4, v5)"), tmp_path / "m.csv")
    pd.testing.assert_frame_equal(
        found.iloc[:5], numbers.agg(["count", "sum", "mean", "var", "std"]), check_names=False
    )
    np.testing.assert_allclose(found.iloc[5:], numbers.cov())
    assert list(found.index[5:]) == ["cov(dose)", "cov(kilos)"]


def test_the_worker_has_nothing_private(hospital: Hospital) -> None:
    hospital.ask("age-ill", "counts(v0, class)")
    secret = container.read(hospital.key).section("secret_key")
    fragment = secret[len(secret) // 2 :][:64]
    assert any(fragment)
    # As documents and files spell them.
    private = [
        b"patient",
        b"sex, at birth",
        b'"dose"',
        b"dose,kilos",
        b'"kilos"',
        b'"visits"',
        b'"female"',
    ]
    paths = [path for path in hospital.work.rglob("*") if path.is_file()]
    keys = f"public-{es.PublicKeys.load(hospital.home / 'public.keys').key_id}.keys"
    assert {path.name for path in paths} >= {"table.manifest", keys, "age-ill.result"}
    for path in paths:
        data = path.read_bytes()
        assert fragment not in data
        assert not [word for word in private if word in text_of(data)]
    assert not {"secret.key", "schema.json", "plan.json"} & {path.name for path in paths}


def test_the_screen(hospital: Hospital) -> None:
    result = hospital.ask("age-ill", "counts(v0, class)")
    shown = done("open", result, "--key", hospital.key, "--schema", hospital.schema).stdout
    for words in ("Counts of age by ill, 60 rows", "age \\ ill", "up to ", "yes", "all"):
        assert words in shown
    assert "--schema" not in shown
    counts = hospital.frame["ill"].value_counts()
    assert [str(counts["no"]), str(counts["yes"]), "60"] == shown.splitlines()[-1].split()[1:]
    opaque = done("open", result, "--key", hospital.key).stdout
    assert "v0 \\ class" in opaque
    assert "Give --schema to see the names" in opaque


def test_moments_on_the_screen(hospital: Hospital) -> None:
    result = hospital.ask("moments", "moments(v4, v5)")
    shown = done("open", result, "--key", hospital.key, "--schema", hospital.schema).stdout
    assert "cov(dose)" in shown
    assert f"{hospital.frame['dose'].mean():.4g}" in shown


def test_csv_on_the_screen(hospital: Hospital) -> None:
    result = hospital.ask("age", "counts(v0)")
    shown = done("open", result, "--key", hospital.key, "-o", "-").stdout.splitlines()
    assert shown[0] == "v0,count"
    assert sum(int(line.split(",")[1]) for line in shown[1:]) == 60


@pytest.mark.parametrize(
    ("name", "question"),
    [("age", "counts(v0)"), ("moments", "moments(v4, v5)"), ("one", "moments(v4)")],
)
def test_json_of_results(hospital: Hospital, name: str, question: str) -> None:
    arguments = ("--key", hospital.key, "--schema", hospital.schema, "--json")
    facts = json.loads(done("open", hospital.ask(name, question), *arguments).stdout)
    assert question.startswith(facts["question"])
    assert facts["rows"] == 60
    (table,) = facts["tables"].values()
    assert np.shape(table["values"]) == (len(table["index"]), len(table["columns"]))
    if name == "age":
        assert facts["params"]["variables"] == [0]
        assert sum(row[0] for row in table["values"]) == 60


def test_what_the_worker_is_told(hospital: Hospital, run: Run, tmp_path: Path) -> None:
    shown = done("ask", hospital.table, "counts(v0, class)", "-o", tmp_path / "r").stdout
    for words in (
        "Asked counts of v0 by class over 60 rows",
        "whose owner alone can open it",
        "encryptedstats open",
    ):
        assert words in shown
    asked = ("ask", hospital.table, "moments(v4, v5)", "-o", tmp_path / "m", "--json")
    (facts,) = json.loads(done(*asked).stdout)["answers"]
    assert facts["question"] == "moments"
    assert facts["params"]["variables"] == [4, 5]
    assert facts["totals"] == 5
    assert facts["bytes"] == (tmp_path / "m").stat().st_size
    assert facts["key_id"] == es.PublicKeys.load(hospital.public).key_id


def test_public_keys_beside_the_table(
    hospital: Hospital, files: Path, run: Run, tmp_path: Path
) -> None:
    given = done(
        "ask", hospital.table, "counts(v0)", "-o", tmp_path / "r", "--keys", hospital.public
    )
    assert "counts of v0" in given.stdout
    result = run(
        "ask",
        hospital.table,
        "counts(v0)",
        "-o",
        tmp_path / "other",
        "--keys",
        files / "public.keys",
    )
    assert result.exit_code == 1
    assert "belongs to key" in result.stderr
    assert names(tmp_path) == ["r"]
