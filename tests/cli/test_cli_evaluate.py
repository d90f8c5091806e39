"""``evaluate``: the scores are scikit-learn's, on the folds that were encrypted, and on
no others.
"""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from cli_helpers import MODELS, Run, Ward, disk_full, done, names, the_error
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss, recall_score, roc_auc_score

import encryptedstats as es
from encryptedstats.metrics import wilson_interval
from encryptedstats.storage import files as storage_files


@pytest.fixture(scope="module")
def folds(ward: Ward) -> Path:
    out = ward.work / "folds.enc"
    shown = done("ask", ward.table(0), "-o", out, "mnb", "--folds").stdout
    assert "encryptedstats evaluate" in shown
    return out


def owner(ward: Ward) -> tuple[object, ...]:
    return ("--key", ward.key, "--schema", ward.schema)


def half(ward: Ward) -> Path:
    return ward.home / "half0.csv"


def test_folds_are_scored_on_rows_they_have_not_seen(
    ward: Ward, folds: Path, tmp_path: Path
) -> None:
    shown = done("evaluate", folds, half(ward), *owner(ward), "-o", tmp_path / "s.csv").stdout
    for words in (
        "Scored 2 folds of mnb on 30 rows",
        "AUC",
        "mean",
        "positive class yes",
        "s.csv",
        "DeLong",
    ):
        assert words in shown
    table = es.Schema.load(ward.schema).table(ward.frame[:30], folds=2)
    models = es.MultinomialNB().fit_folds(table)
    found = pd.read_csv(tmp_path / "s.csv", index_col="fold")
    for fold, model in enumerate(models):
        rows = ward.frame[:30][table.fold_codes == fold]
        shares = model.predict_proba(rows)
        expected = {
            "rows": len(rows),
            "positives": (rows["ill"] == "yes").sum(),
            "auc": roc_auc_score(rows["ill"] == "yes", shares[:, 1]),
            "accuracy": accuracy_score(rows["ill"], model.predict(rows)),
            "log_loss": log_loss(rows["ill"], shares, labels=["no", "yes"]),
            "brier": brier_score_loss(rows["ill"] == "yes", shares[:, 1]),
            "sensitivity": recall_score(rows["ill"], model.predict(rows), pos_label="yes"),
            "specificity": recall_score(rows["ill"], model.predict(rows), pos_label="no"),
        }
        assert found.loc[str(fold), list(expected)].to_dict() == pytest.approx(expected)
        assert (
            found.loc[str(fold), "auc_low"]
            < found.loc[str(fold), "auc"]
            <= found.loc[str(fold), "auc_high"]
        )
    assert list(found.index) == ["0", "1", "mean", "all"]
    np.testing.assert_allclose(found.loc["mean", "auc"], found.loc[["0", "1"], "auc"].mean())
    facts = json.loads(done("evaluate", folds, half(ward), *owner(ward), "--json").stdout)
    assert [entry["auc"] for entry in facts["folds"]] == found["auc"].tolist()[:2]
    assert facts["scores"]["auc"]["estimate"] == found.loc["all", "auc"]
    assert facts["mean"]["rows"] == facts["rows"] == 30


def test_the_library_says_the_same(ward: Ward, folds: Path) -> None:
    key = es.Owner.load(ward.key)
    table = es.Schema.load(ward.schema).table(ward.frame[:30], folds=2)
    scores = es.score_folds(key.open(folds, table.schema), table)
    facts = json.loads(done("evaluate", folds, half(ward), *owner(ward), "--json").stdout)
    np.testing.assert_allclose([entry["auc"] for entry in facts["folds"]], scores["score"])


def test_a_file_that_is_read_in_pieces_has_the_same_folds(ward: Ward, tmp_path: Path) -> None:
    """More rows than slots: folds are dealt within each piece of the file, here as when it was
    encrypted.
    """
    many = pd.concat([ward.frame] * 240, ignore_index=True)
    many.to_csv(tmp_path / "many.csv", index=False)
    assert len(many) > es.Owner.load(ward.key).parameters.slots
    table = tmp_path / "many.enc"
    done(
        "encrypt",
        tmp_path / "many.csv",
        table,
        *owner(ward),
        "--folds",
        2,
        "--fold-seed",
        5,
    )
    done("ask", table, "-o", tmp_path / "folds", "mnb", "--folds")
    scored = (
        "evaluate",
        tmp_path / "folds",
        tmp_path / "many.csv",
        *owner(ward),
        "--json",
        "--fold-seed",
    )
    facts = json.loads(done(*scored, 5).stdout)
    assert facts["mean"]["rows"] == len(many)
    assert facts["mean"]["auc"] > 0.5


@pytest.mark.parametrize("name", ["forest", "means", "snb"])
def test_an_opened_model_needs_no_key(ward: Ward, name: str) -> None:
    """Some models give no probabilities: there is no log loss, and JSON says null."""
    facts = json.loads(
        done("evaluate", ward.opened(ward.combined(name)), ward.csv, "--json").stdout
    )
    scores = {name: score["estimate"] for name, score in facts["scores"].items()}
    model = MODELS[name][1]().fit(es.Schema.load(ward.schema).table(ward.frame))
    yes = ward.frame["ill"] == "yes"
    if hasattr(model, "predict_proba"):
        shares = model.predict_proba(ward.frame)
        assert scores["auc"] == pytest.approx(roc_auc_score(yes, shares[:, 1]))
        assert scores["log_loss"] == pytest.approx(
            log_loss(ward.frame["ill"], shares, labels=["no", "yes"])
        )
    else:
        assert scores["auc"] == pytest.approx(
            roc_auc_score(yes, model.decision_function(ward.frame))
        )
        assert scores["log_loss"] is None
    assert scores["accuracy"] == pytest.approx(model.score(ward.frame, ward.frame["ill"]))
    assert facts["mean"] is None
    assert facts["positive"] == "yes"
    assert facts["class_counts"] == ward.frame["ill"].value_counts()[["no", "yes"]].to_dict()
    assert facts["seen"]
    shown = done("evaluate", ward.opened(ward.combined(name)), ward.csv).stdout
    assert "these are the rows that the model was fitted to" in shown
    assert ("encryptedstats model calibrate" in shown) == (name == "forest")


def test_the_positive_class_and_the_threshold_are_named(
    ward: Ward, tmp_path: Path, run: Run
) -> None:
    opened = ward.opened(ward.combined("mnb"))
    model, yes = ward.clear("mnb"), ward.frame["ill"] == "yes"
    shares = model.predict_proba(ward.frame)
    options = ("--pos-label", "no", "--threshold", 0.7)
    facts = json.loads(done("evaluate", opened, ward.csv, *options, "--json").stdout)
    assert (facts["positive"], facts["threshold"]) == ("no", 0.7)
    called = shares[:, 0] >= 0.7
    assert facts["scores"]["sensitivity"]["estimate"] == pytest.approx(called[~yes].mean())
    assert facts["scores"]["specificity"]["estimate"] == pytest.approx((~called)[yes].mean())
    low, high = wilson_interval(int(called[~yes].sum()), int((~yes).sum()))
    assert facts["scores"]["sensitivity"]["low"] == pytest.approx(low)
    assert facts["scores"]["sensitivity"] == {
        "estimate": facts["scores"]["sensitivity"]["estimate"], "low": pytest.approx(low), "high": pytest.approx(high),
        "n": int((~yes).sum()), "interval": "Wilson",
    }  # fmt: skip
    assert sum(group["rows"] for group in facts["calibration"]) == len(yes)
    assert sum(group["positives"] for group in facts["calibration"]) == (~yes).sum()
    shown = done("evaluate", opened, ward.csv, *options).stdout
    for words in (
        "positive class no",
        "no from 0.7 on",
        "predicted P(no)",
        "Brier score",
        "calibration slope",
        "Wilson",
    ):
        assert words in shown
    assert "--pos-label maybe: the classes are no, yes" in the_error(
        run("evaluate", opened, ward.csv, "--pos-label", "maybe")
    )


def test_rows_that_cannot_be_scored_are_counted(ward: Ward, tmp_path: Path, run: Run) -> None:
    rows = ward.frame.astype({"ill": object})
    rows.loc[:4, "ill"] = np.nan
    rows.to_csv(tmp_path / "d.csv", index=False)
    opened = ward.opened(ward.combined("mnb"))
    facts = json.loads(done("evaluate", opened, tmp_path / "d.csv", "--json").stdout)
    assert (facts["rows_left_out"], facts["rows_without_class"]) == (5, 5)
    assert facts["rows"] == len(rows) - 5
    assert "5 rows without a class" in done("evaluate", opened, tmp_path / "d.csv").stdout
    rows.assign(ill=np.nan).to_csv(tmp_path / "none.csv", index=False)
    assert f"none of the {len(rows)} rows of" in the_error(
        run("evaluate", opened, tmp_path / "none.csv")
    )
    gaps = ward.frame.drop(columns="patient")
    gaps.loc[:6, "age"] = np.nan
    schema = es.Schema.infer(gaps, target="ill", missing="drop")
    es.MultinomialNB().fit(schema.table(gaps)).save(tmp_path / "m")
    gaps.to_csv(tmp_path / "gaps.csv", index=False)
    assert (
        "7 rows with missing values"
        in done("evaluate", tmp_path / "m", tmp_path / "gaps.csv").stdout
    )


def test_pictures_and_files_are_not_replaced_unasked(ward: Ward, tmp_path: Path, run: Run) -> None:
    opened, picture = ward.opened(ward.combined("mnb")), tmp_path / "curves.svg"
    scored = ("evaluate", opened, ward.csv, "--plot", picture)
    assert "curves.svg" in done(*scored).stdout
    assert picture.stat().st_mode & 0o777 == 0o600
    assert b"<svg" in picture.read_bytes()
    assert "was not touched" in the_error(run(*scored))
    done(*scored, "--force")
    refused = the_error(run("evaluate", opened, ward.csv, "--plot", tmp_path / "curves.xyz"))
    assert "curves.xyz" in refused
    assert "svg" in refused
    scores = ("evaluate", opened, ward.csv, "-o", tmp_path / "s.csv")
    done(*scores)
    assert "was not touched" in the_error(run(*scores))
    assert names(tmp_path) == ["curves.svg", "s.csv"]


def test_three_classes_and_weights(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    frame = pd.DataFrame(
        {"x": rng.normal(size=90), "w": rng.integers(1, 4, 90), "y": rng.integers(0, 3, 90)}
    )
    frame["x"] += frame["y"]
    schema = es.Schema.infer(frame[["x", "y"]], target="y")
    model = es.MultinomialNB().fit(schema.table(frame))
    model.save(tmp_path / "m")
    frame.to_csv(tmp_path / "d.csv", index=False)
    facts = json.loads(
        done("evaluate", tmp_path / "m", tmp_path / "d.csv", "--weights", "w", "--json").stdout
    )
    shares, weights = model.predict_proba(frame), frame["w"].to_numpy()
    scores = {name: score["estimate"] for name, score in facts["scores"].items()}
    single = [roc_auc_score(frame["y"] == k, shares[:, k], sample_weight=weights) for k in range(3)]
    assert scores["auc"] == pytest.approx(np.mean(single))
    assert list(facts["by_class"]) == ["0", "1", "2"]
    assert facts["positive"] is None
    assert scores["log_loss"] == pytest.approx(log_loss(frame["y"], shares, sample_weight=weights))
    assert scores["accuracy"] == pytest.approx(
        accuracy_score(frame["y"], model.predict(frame), sample_weight=weights)
    )


def test_one_of_three_classes(tmp_path: Path, run: Run) -> None:
    frame = pd.DataFrame({"x": np.arange(60.0), "y": np.repeat(["a", "b", "c"], 20)})
    es.MultinomialNB().fit(es.Schema.infer(frame, target="y").table(frame)).save(tmp_path / "m")
    frame.to_csv(tmp_path / "d.csv", index=False)
    scored = ("evaluate", tmp_path / "m", tmp_path / "d.csv")
    assert "each against all others" in done(*scored).stdout
    assert (
        "c against all other classes"
        in done(*scored, "--pos-label", "c", "--threshold", 0.4).stdout
    )
    assert "--pos-label" in the_error(run(*scored, "--threshold", 0.4))
    assert "add --pos-label" in the_error(run(*scored, "--plot", tmp_path / "p.png"))


def test_rows_of_one_class_have_no_auc(ward: Ward, tmp_path: Path) -> None:
    ward.frame[ward.frame["ill"] == "no"].to_csv(tmp_path / "d.csv", index=False)
    opened = ward.opened(ward.combined("forest"))
    assert (
        json.loads(done("evaluate", opened, tmp_path / "d.csv", "--json").stdout)["scores"]["auc"][
            "estimate"
        ]
        is None
    )
    shown = done("evaluate", opened, tmp_path / "d.csv").stdout
    assert "n/a" in shown
    assert (
        "rows is of the positive class yes: AUC and calibration slope need rows of both kinds"
        in shown
    )


def test_what_cannot_be_scored(
    run: Run, ward: Ward, folds: Path, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scored = ("evaluate", folds, half(ward))
    assert "--key secret.key" in the_error(run(*scored, "--schema", ward.schema))
    assert "--schema schema.json" in the_error(run(*scored, "--key", ward.key))
    other = the_error(run(*scored, "--schema", ward.schema, "--key", files / "secret.key"))
    assert "belongs to key" in other
    assert "--fold-seed" in the_error(run(*scored, *owner(ward), "--fold-seed", 3))
    assert "give the file that was encrypted" in the_error(
        run("evaluate", folds, ward.csv, *owner(ward))
    )
    still = the_error(run("evaluate", ward.combined("mnb"), half(ward), *owner(ward)))
    assert "still encrypted" in still
    ward.frame.drop(columns="ill").to_csv(tmp_path / "d.csv", index=False)
    opened = ward.opened(ward.combined("mnb"))
    assert "has no column 'ill'" in the_error(run("evaluate", opened, tmp_path / "d.csv"))
    assert "a CSV or Parquet file with rows is wanted" in the_error(
        run("evaluate", opened, ward.table(0))
    )
    monkeypatch.setattr(storage_files.os, "fsync", disk_full)
    assert "free some space" in the_error(
        run("evaluate", opened, ward.csv, "-o", tmp_path / "s.csv")
    )
    assert names(tmp_path) == ["d.csv"]


def test_parquet_in_csv_out(
    ward: Ward, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same story from a Parquet file."""
    rows = tmp_path / "rows.parquet"
    ward.frame[:30].to_parquet(rows)
    done(
        "data",
        "schema",
        rows,
        "--target",
        "ill",
        "--leave-out",
        "patient",
        "-o",
        tmp_path / "s.json",
    )
    done("encrypt", rows, tmp_path / "t", *owner(ward), "--folds", 2)
    done("ask", tmp_path / "t", "-o", tmp_path / "f", "mnb", "--folds")
    from_csv = done("evaluate", tmp_path / "f", half(ward), *owner(ward), "-o", tmp_path / "a.csv")
    from_parquet = done("evaluate", tmp_path / "f", rows, *owner(ward), "-o", tmp_path / "b.csv")
    assert from_csv.exit_code == from_parquet.exit_code == 0
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()
    opened = ward.opened(ward.combined("mnb"))
    screens = [done("predict", opened, data, "-o", "-").stdout for data in (rows, half(ward))]
    assert screens[0] == screens[1]
    assert len(pd.read_csv(io.StringIO(screens[0]))) == 30
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    assert "pip install 'encryptedstats[parquet]'" in the_error(
        run("predict", opened, rows, "-o", tmp_path / "p.csv")
    )
