"""Whole runs of two small data sets: what is written, going on after a kill, other settings, the
command.
"""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from evaluation_samples import NAMES
from sklearn.metrics import roc_auc_score
from typer.testing import CliRunner

from reproduction.__main__ import app
from reproduction.evaluation import PARTS, Settings, reproduce, resampled
from reproduction.evaluation.claims import DIFFERS, NOT_COMPUTED, VERDICTS, findings
from reproduction.evaluation.evidence import Evidence
from reproduction.evaluation.figures import FIGURES
from reproduction.evaluation.methods import METHODS, random_forest
from reproduction.evaluation.report import write_report
from reproduction.evaluation.samples import sample, store_splits
from reproduction.evaluation.settings import DEPTHS, FRACTIONS, TREE_COUNTS

pytestmark = pytest.mark.slow  # a run of its own: half a minute with what it sets up

SECTIONS = (
    "data",
    "theory",
    "encrypted",
    "performance",
    "convergence",
    "times",
    "trees",
    "fraction",
    "study",
    "statements",
)


def read(settings: Settings, part: str, name: str) -> list[dict[str, str]]:
    with open(settings.output / "results" / part / f"{name}.csv", newline="") as file:
        return list(csv.DictReader(file))


def test_every_result_is_there(finished: Settings) -> None:
    for name in NAMES:
        assert len(read(finished, "performance", name)) == 2 * len(METHODS)
        assert len(read(finished, "fraction", name)) == 2 * len(FRACTIONS)
        assert len(read(finished, "trees", name)) == 2 * len(DEPTHS) * len(TREE_COUNTS)
        assert len(read(finished, "convergence", name)) == 2 * 3
        assert len((finished.output / "splits" / f"{name}.csv").read_text().splitlines()) == 3


def test_encrypted_fits_are_exact(finished: Settings) -> None:
    rows = read(finished, "encrypted", "encrypted")
    assert {row["dataset"] for row in rows} == set(NAMES)
    assert {row["method"] for row in rows} == {"CRF", "SNB-paired", "SNB-unpaired", "MNB"}
    assert all(row["exact"] == "True" and row["auc_encrypted"] == row["auc_clear"] for row in rows)
    assert read(finished, "times", "case_study")[0]["exact"] == "True"
    assert {row["exact"] for row in read(finished, "times", "predictions")} == {"True"}


def test_easy_data_are_easy(finished: Settings) -> None:
    assert {
        row["method"]: float(row["auc"]) for row in read(finished, "performance", "infl")
    } == dict.fromkeys(METHODS, 1.0)


def test_scores_are_of_the_stored_split(finished: Settings) -> None:
    split = sample(finished, "haber", 1)
    assert not set(split.train_rows) & set(split.test_rows)
    expected = roc_auc_score(split.y_test, random_forest(split, finished.seed))
    stored = {
        (row["split"], row["method"]): row["auc"] for row in read(finished, "performance", "haber")
    }
    assert float(stored["1", "RF"]) == pytest.approx(expected, abs=1e-6)


def test_bins_come_from_training_rows(finished: Settings) -> None:
    split = sample(finished, "haber", 0)
    edges = next(v.edges for v in split.schema.variables if v.edges)
    name = next(v.name for v in split.schema.variables if v.edges)
    values = split.data.frame[name].to_numpy()[split.train_rows]
    assert all(values.min() <= edge < values.max() for edge in edges)
    assert len(split.train) == len(split.train_rows)


def test_forests_of_two_parts_agree(finished: Settings) -> None:
    """100 trees of 3 levels without a fraction is in fraction; the trees part draws its own, and
    must come close.
    """
    one = {
        row["split"]: float(row["auc"])
        for row in read(finished, "fraction", "haber")
        if row["fraction"] == "8"
    }
    other = {
        row["split"]: float(row["auc"])
        for row in read(finished, "trees", "haber")
        if (row["depth"], row["trees"]) == ("3", "100")
    }
    paper = {
        row["split"]: float(row["auc"])
        for row in read(finished, "performance", "haber")
        if row["method"] == "CRF"
    }
    assert one == paper
    assert all(abs(one[split] - other[split]) < 0.05 for split in one)


def test_nothing_is_computed_twice(finished: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> list[Any]:
        raise AssertionError("computed again")

    parts = {name: replace(part, compute=refuse) for name, part in resampled.RESAMPLED.items()}
    monkeypatch.setattr("reproduction.evaluation.run.RESAMPLED", parts)
    done: dict[str, int] = {}
    reproduce(
        finished,
        ("performance", "fraction", "trees", "convergence", "shrinkage", "datasets"),
        after=done.__setitem__,
    )
    assert set(done.values()) == {0}


def test_another_seed_is_noticed(finished: Settings) -> None:
    other = Settings(finished.output, 2, NAMES, finished.seed + 1, finished.data_home, 1)
    with pytest.raises(ValueError, match="seed was 2015 and is 2016"):
        reproduce(other, ["fraction"])
    with pytest.raises(ValueError, match=r"splits has results of other settings \(seed was 2015"):
        store_splits(other, "infl")


def test_more_splits_are_added(data_home: Path, tmp_path: Path) -> None:
    few, more = (Settings(tmp_path, n, ("infl",), data_home=data_home, workers=1) for n in (1, 3))
    reproduce(few, ["fraction"])
    before = read(few, "fraction", "infl")
    first = (tmp_path / "splits" / "infl.csv").read_text()
    reproduce(more, ["fraction"])
    after = read(more, "fraction", "infl")
    assert after[: len(before)] == before
    assert {row["split"] for row in after} == {"0", "1", "2"}
    assert (tmp_path / "splits" / "infl.csv").read_text().startswith(first)


def test_processes_find_the_same(data_home: Path, tmp_path: Path, finished: Settings) -> None:
    settings = Settings(tmp_path, 2, NAMES, data_home=data_home, workers=2)
    reproduce(settings, ["fraction"])
    for name in NAMES:
        assert read(settings, "fraction", name) == read(finished, "fraction", name)


ROOT = Path(__file__).parents[3]
_KILLED = """
import sys
from pathlib import Path
from reproduction.evaluation import Settings, reproduce
reproduce(Settings(Path(sys.argv[1]), 200, ("haber",), data_home=Path(sys.argv[2]), workers=2), ["performance"])
"""


def test_a_killed_run_goes_on(data_home: Path, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _KILLED, str(tmp_path), str(data_home)], cwd=ROOT
    )
    results = tmp_path / "results" / "performance" / "haber.csv"

    def rows() -> list[dict[str, str]]:
        return list(csv.DictReader(results.read_text().splitlines())) if results.exists() else []

    deadline = time.monotonic() + 600
    while not rows() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    before = rows()
    assert before
    assert all(None not in row.values() for row in before)
    settings = Settings(tmp_path, 2, ("haber",), data_home=data_home, workers=1)
    reproduce(settings, ["performance"])
    after = read(settings, "performance", "haber")
    assert after[: len(before)] == before
    assert {(row["split"], row["method"]) for row in after} >= {
        (s, m) for s in "01" for m in METHODS
    }


# -- the report
# ------------------------------------------------------------------------------------------------


def test_the_report_has_every_part_and_statement(finished: Settings) -> None:
    page = (finished.output / "report.html").read_text()
    for section in SECTIONS:
        assert f'<section id="{section}">' in page
    for label in ("Figure on performance", "Appendix on trees and depth", "Figures on the fraction", "Figure on shrinkage",
                  "Table of times", "Table of data sets", "Case study"):  # fmt: skip
        assert label in page
    from html import escape

    for finding in findings(Evidence(finished.output)):
        assert (
            escape(finding.says).replace("-", "") in page.replace("−", "").replace("-", "")
            or escape(finding.says) in page
        )
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "<script" not in page
    assert page.count("<img") == page.count('alt="')
    assert 'lang="en"' in page


def test_pictures_are_png_and_svg(finished: Settings) -> None:
    # iono and bcw_p were not run
    drawn = set(FIGURES) - {"fraction_iono", "fraction_bcw_p"}
    for name in drawn:
        assert (finished.output / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (finished.output / "figures" / f"{name}.svg").read_text()


def test_statements_have_verdicts(finished: Settings) -> None:
    found = findings(Evidence(finished.output))
    assert len(found) > 40
    assert all(finding.verdict in VERDICTS and finding.ours for finding in found)
    by_says = {finding.says: finding for finding in found}
    chess = next(f for says, f in by_says.items() if "chess" in says)
    assert chess.verdict == NOT_COMPUTED
    assert "without chess" in chess.ours
    assert next(f for says, f in by_says.items() if "20 data sets" in says).verdict == DIFFERS
    assert (
        next(f for says, f in by_says.items() if "Encrypted and clear" in says).verdict == "agrees"
    )


def test_a_report_of_nothing(tmp_path: Path) -> None:
    page = write_report(tmp_path).read_text()
    assert page.count("Not computed: run") == 9
    assert {finding.verdict for finding in findings(Evidence(tmp_path))} == {NOT_COMPUTED}


# -- the command
# ------------------------------------------------------------------------------------------------


def command(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["evaluation", *map(str, arguments)])


def test_the_command(data_home: Path, tmp_path: Path) -> None:
    options: Sequence[object] = (
        "-o",
        tmp_path,
        "--splits",
        1,
        "--dataset",
        "infl",
        "--data-home",
        data_home,
        "--workers",
        1,
    )
    result = command("fraction", "datasets", *options, "--json")
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert facts["computed"] == {"datasets": 1, "fraction": 1}
    assert Path(facts["report"]).is_file()
    again = command("fraction", *options)
    assert "was there already" in again.stdout
    assert set(facts["computed"]) <= set(PARTS)


def test_the_command_says_what_is_wrong(tmp_path: Path) -> None:
    assert "no part 'nothing'" in command("nothing", "-o", tmp_path).output
    assert "nobody" in command("-o", tmp_path, "--dataset", "nobody").output


def test_splits_are_stored_before_anything(data_home: Path, tmp_path: Path) -> None:
    settings = Settings(tmp_path, 2, ("infl",), data_home=data_home)
    path = store_splits(settings, "infl")
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert [row["split"] for row in rows] == ["0", "1"]
    assert all(int(row["n_test"]) == len(row["test_rows"].split()) == 24 for row in rows)
