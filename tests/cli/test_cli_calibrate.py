"""``calibrate``: the library's calibration in a file that every command reads, and never on the
rows of the fit.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from cli_helpers import Run, Ward, done, names, the_error

import encryptedstats as es


@pytest.fixture(scope="module")
def opened(ward: Ward) -> Path:
    """A forest of the first half of the rows; the second was kept back."""
    return ward.opened(ward.fitted("forest", 0))


def kept_back(ward: Ward) -> Path:
    return ward.home / "half1.csv"


@pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
def test_it_is_the_librarys(ward: Ward, opened: Path, method: str, tmp_path: Path) -> None:
    out = tmp_path / "m"
    shown = done(
        "model", "calibrate", opened, kept_back(ward), "-o", out, "--method", method
    ).stdout
    for words in (
        "Calibrated forest trees=4",
        f"by {method} on {len(ward.frame) - 30} rows",
        "mode 0600",
        "encryptedstats evaluate",
    ):
        assert words in shown
    assert out.stat().st_mode & 0o777 == 0o600
    kept = ward.frame[30:]
    model = es.CalibratedModel(ward.clear("forest", slice(30)), method).fit(kept, kept["ill"])
    done("predict", out, ward.csv, "-o", tmp_path / "p.csv")
    np.testing.assert_allclose(
        pd.read_csv(tmp_path / "p.csv")["P(yes)"], model.predict_proba(ward.frame)[:, 1]
    )
    facts = json.loads(done("evaluate", out, ward.csv, "--json").stdout)
    assert (facts["calibrated"], facts["model"], facts["seen"]) == (
        True,
        "CompletelyRandomForest",
        False,
    )
    assert f"calibrated, on {len(ward.frame)} rows" in done("evaluate", out, ward.csv).stdout
    assert "; calibrated" in done("data", "info", out).stdout
    assert json.loads(done("data", "info", out, "--json").stdout)["calibrated"]


def test_a_calibrated_model_is_calibrated_anew(ward: Ward, opened: Path, tmp_path: Path) -> None:
    done(
        "model", "calibrate", opened, kept_back(ward), "-o", tmp_path / "a", "--method", "isotonic"
    )
    done("model", "calibrate", tmp_path / "a", kept_back(ward), "-o", tmp_path / "b")
    done("model", "calibrate", opened, kept_back(ward), "-o", tmp_path / "c")
    assert (tmp_path / "b").read_bytes() == (tmp_path / "c").read_bytes()


def test_rows_without_a_class_are_counted(ward: Ward, opened: Path, tmp_path: Path) -> None:
    rows = ward.frame[30:].astype({"ill": object})
    rows.iloc[:3, rows.columns.get_loc("ill")] = None
    rows.to_csv(tmp_path / "d.csv", index=False)
    assert (
        "3 rows without a class"
        in done("model", "calibrate", opened, tmp_path / "d.csv", "-o", tmp_path / "m").stdout
    )


def test_what_cannot_be(run: Run, ward: Ward, opened: Path, tmp_path: Path) -> None:
    out = tmp_path / "m"
    same = the_error(run("model", "calibrate", opened, ward.home / "half0.csv", "-o", out))
    assert "these are the rows that the model was fitted to" in same
    closed = the_error(
        run("model", "calibrate", ward.fitted("forest", 0), kept_back(ward), "-o", out)
    )
    assert "still encrypted" in closed
    one = tmp_path / "one.csv"
    ward.frame[ward.frame["ill"] == "no"].to_csv(one, index=False)
    assert "no rows of class yes among the" in the_error(
        run("model", "calibrate", opened, one, "-o", out)
    )
    assert names(tmp_path) == ["one.csv"]
    done("model", "calibrate", opened, kept_back(ward), "-o", out)
    assert "was not touched" in the_error(
        run("model", "calibrate", opened, kept_back(ward), "-o", out)
    )
    done("model", "calibrate", opened, kept_back(ward), "-o", out, "--force")
    both = the_error(run("model", "combine", tmp_path / "c", out, out))
    assert "combine the uncalibrated models" in both
    unopened = the_error(run("predict", out, ward.table(1), "-o", tmp_path / "v"))
    assert "for encrypted rows use the model without its calibration" in unopened
