"""``release``, ``ledger``, ``report`` and ``decrypt --rules``: what leaves the house, by the
program itself.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_helpers import Hospital, Run, cause_of, done, the_error

import encryptedstats as es
from encryptedstats.publishing.tables import WRITTEN


@pytest.fixture
def ledger(hospital: Hospital, tmp_path: Path) -> Path:
    folder = tmp_path / "study.ledger"
    # Every test begins a ledger of the same key.
    begun = done(
        "publish",
        "begin",
        folder,
        "--another",
        "--key",
        hospital.key,
        "epsilon=3",
        "--rules",
        "five",
    )
    assert "epsilon 0 of 3 at delta 1e-06" in begun.stdout
    return folder


@pytest.fixture
def forest(hospital: Hospital) -> Path:
    return hospital.ask("published-forest", "forest", "trees=4", "depth=1")


def owned(hospital: Hospital) -> tuple[object, ...]:
    return ("--key", hospital.key, "--schema", hospital.schema)


def test_a_forest_is_released_shown_and_predicts(
    hospital: Hospital, forest: Path, ledger: Path, tmp_path: Path
) -> None:
    out = tmp_path / "forest.released"
    shown = done(
        "publish",
        "release",
        forest,
        *owned(hospital),
        "epsilon=1",
        "--ledger",
        ledger,
        "-o",
        out,
    ).stdout
    assert "released with epsilon 1" in shown
    assert "spent so far: epsilon 1 of 3" in shown
    assert "data schema --column 'COLUMN range=LOW:HIGH'" in shown
    assert "Schema.infer" not in shown
    printed = done("data", "info", out).stdout
    assert "counts with noise (released with epsilon 1" in printed
    done("predict", out, hospital.csv, "-o", tmp_path / "predicted.csv")
    book = json.loads(done("publish", "ledger", ledger, "--keys", hospital.public, "--json").stdout)
    assert [entry["what"] for entry in book["entries"]] == ["begin", "released"]
    assert book["epsilon_spent"] == pytest.approx(1.0)


def test_beyond_the_budget_is_one_line(
    run: Run, hospital: Hospital, forest: Path, ledger: Path
) -> None:
    error = the_error(
        run(
            "publish",
            "release",
            forest,
            *owned(hospital),
            "epsilon=5",
            "delta=0",
            "--ledger",
            ledger,
        )
    )
    assert "is epsilon 3 at delta 1e-06; 0 is spent, and with this release it would be 5" in error
    done("publish", "budget", ledger, "--key", hospital.key, "epsilon=6")
    again = done(
        "publish",
        "release",
        forest,
        *owned(hospital),
        "epsilon=5",
        "delta=0",
        "--ledger",
        ledger,
        "--json",
    )
    assert json.loads(again.stdout)["spent"] == pytest.approx(5.0)


def test_counts_are_published_by_rules(hospital: Hospital, ledger: Path, tmp_path: Path) -> None:
    counts = hospital.ask("published-grades", "crosstab(v1, v2)")
    shown = done("open", counts, *owned(hospital), "--rules", "pcornet", "--ledger", ledger).stdout
    assert "hidden" in shown
    assert "published by the rules pcornet" in shown
    facts = json.loads(
        done("open", counts, *owned(hospital), "--rules", "pcornet", "--json").stdout
    )
    assert facts["facts"]["whole"] is False
    assert facts["facts"]["left out"]
    done("open", counts, *owned(hospital), "--rules", "pcornet", "-o", tmp_path / "counts.csv")
    assert "hidden" in (tmp_path / "counts.csv").read_text()
    done("open", counts, *owned(hospital), "--ledger", ledger, "-o", tmp_path / "exact.csv")
    printed = done("publish", "ledger", ledger, "--key", hospital.key).stdout
    assert "published" in printed
    assert "opened" in printed


def test_a_released_table_is_written_as_csv(hospital: Hospital, tmp_path: Path) -> None:
    counts = hospital.ask("released-grades", "counts(v1, class)")
    done(
        "publish",
        "release",
        counts,
        *owned(hospital),
        "epsilon=2",
        "delta=0",
        "-o",
        tmp_path / "counts.csv",
    )
    assert (tmp_path / "counts.csv").read_text().startswith("grade,no,yes\n")


def test_a_table_that_cannot_be_written_is_refused_before_it_is_paid_for(
    run: Run, hospital: Hospital, ledger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the cost would be spent, and the result lost."""
    counts = hospital.ask("released-grades", "counts(v1, class)")
    monkeypatch.delitem(WRITTEN, "counts")
    released = (
        "publish",
        "release",
        counts,
        *owned(hospital),
        "epsilon=1",
        "delta=0",
        "--ledger",
        ledger,
    )
    refused = run(*released, "-o", tmp_path / "counts.csv")
    the_error(refused)
    error = cause_of(refused)
    assert isinstance(error, es.ParameterError)
    assert [cure.action for cure in error.cures] == ["save the release"]
    assert len(es.Ledger(ledger, es.PublicKeys.load(hospital.public)).entries()) == 1
    done(*released, "-o", tmp_path / "counts.released")


def test_a_report_is_written_from_the_files(
    hospital: Hospital, forest: Path, ledger: Path, tmp_path: Path
) -> None:
    out = tmp_path / "report.html"
    done("publish", "release", forest, *owned(hospital), "epsilon=1", "--ledger", ledger)
    printed = done(
        "publish",
        "report",
        hospital.table,
        forest,
        "--keys",
        hospital.public,
        "--ledger",
        ledger,
        "-o",
        out,
    ).stdout
    assert "readable to you only" in printed
    page = out.read_text()
    assert f"{es.PublicKeys.load(hospital.public).parameters.security} bits" in page
    assert "CompletelyRandomForest" in page
    assert "Epsilon 1 of 3 is spent" in page
    assert es.Ledger(ledger, es.PublicKeys.load(hospital.public)).head() in page
    for name in ("grade", "kilos", "visits"):  # no names leave the house
        assert name not in page
    assert "<script" not in page
    assert "http" not in page


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        (("publish", "ledger", "{folder}/none", "--keys", "{public}"), "has no ledger of key"),
        (
            ("publish", "ledger", "{folder}/none"),
            "a key is needed",
        ),
        (
            ("publish", "begin", "{ledger}", "epsilon=1", "--key", "{key}"),
            "has a ledger already, and was not touched",
        ),
        (
            ("publish", "report", "{table}", "-o", "{folder}/x.html"),
            "a key is needed",
        ),
        (("open", "{forest}", "--key", "{key}", "--rules", "lax"), "rules='lax'"),
        (
            ("publish", "release", "{forest}", "--key", "{key}", "epsilon=0"),
            "epsilon=0.0: a number above 0",
        ),
    ],
)
def test_mistakes_are_one_line(
    run: Run,
    hospital: Hospital,
    forest: Path,
    ledger: Path,
    tmp_path: Path,
    command: tuple[str, ...],
    complaint: str,
) -> None:
    places = {
        "folder": tmp_path,
        "public": hospital.public,
        "key": hospital.key,
        "table": hospital.table,
    }
    said = [word.format(forest=forest, ledger=ledger, **places) for word in command]
    assert complaint in the_error(run(*said))
