"""``ask``, ``model combine``, ``open`` and ``predict``: the whole story of a model by the program,
equal to the fit in the clear.
"""

from __future__ import annotations

import io
import json
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from cli_helpers import (
    FOREST,
    MODELS,
    Run,
    Ward,
    disk_full,
    done,
    invoke,
    names,
    patients,
    the_error,
)

import encryptedstats as es
from encryptedstats.storage import container
from encryptedstats.storage import files as storage_files
from encryptedstats.tables.questions import question
from encryptedstats.tables.questions.words import describe, make_questions, question_type


def test_the_whole_story_with_planned_keys(tmp_path: Path) -> None:
    frame = patients(50)
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    frame.to_csv(home / "all.csv", index=False)
    done(
        "data",
        "schema",
        home / "all.csv",
        "--target",
        "ill",
        "--leave-out",
        "patient",
        "-o",
        home / "schema.json",
    )
    done("plan", home / "schema.json", "--rows", 50, *FOREST, "-o", home / "plan.json")
    shown = done(
        "key", "make", home / "secret.key", home / "public.keys", "--plan", home / "plan.json"
    ).stdout
    assert "forest trees=4 depth=2 seed=3" in shown
    owner = ("--schema", home / "schema.json", "--key", home / "secret.key")
    for half, rows in (("a", frame[:20]), ("b", frame[20:])):
        rows.to_csv(home / f"{half}.csv", index=False)
        done("encrypt", home / f"{half}.csv", work / f"{half}.enc", *owner)
        done("ask", work / f"{half}.enc", "-o", work / f"{half}.model", *FOREST)
    done(
        "model",
        "combine",
        work / "all.model",
        work / "a.model",
        work / "b.model",
        "--keys",
        work / "a.enc",
    )
    done("open", work / "all.model", *owner, "-o", home / "all.opened")
    done("predict", home / "all.opened", home / "all.csv", "-o", home / "predicted.csv")

    schema = es.Schema.load(home / "schema.json")
    clear = MODELS["forest"][1]().fit(schema.table(frame))
    opened = es.load(home / "all.opened")
    assert (opened.leaf_counts_ == clear.leaf_counts_).all()
    predicted = pd.read_csv(home / "predicted.csv", index_col="row")
    assert predicted["predicted"].tolist() == clear.predict(frame).tolist()
    np.testing.assert_allclose(predicted[["P(no)", "P(yes)"]], clear.predict_proba(frame))
    # Nothing of the owner's is in what the worker has.
    secret = container.read(home / "secret.key").section("secret_key")
    fragment = secret[len(secret) // 2 :][:64]
    for path in (path for path in work.rglob("*") if path.is_file()):
        data = path.read_bytes()
        assert not [
            word for word in (fragment, b'"kilos"', b'"female"', b'"visits"') if word in data
        ]


@pytest.mark.parametrize("name", MODELS)
def test_every_model_is_that_of_the_clear_fit(ward: Ward, name: str) -> None:
    opened, clear = es.load(ward.opened(ward.combined(name))), ward.clear(name)
    assert type(opened) is type(clear)
    assert list(opened.totals_) == list(clear.totals_)
    assert opened.n_rows_ == 70
    assert opened.predict(ward.frame).tolist() == clear.predict(ward.frame).tolist()


@pytest.mark.parametrize("name", MODELS)
def test_every_model_has_a_summary_and_predicts(ward: Ward, tmp_path: Path, name: str) -> None:
    opened = ("open", ward.combined(name), "--key", ward.key)
    shown = done(*opened, "--schema", ward.schema).stdout
    assert f"Opened {name}" in shown
    assert "kilos" in shown
    assert f"no {(ward.frame['ill'] == 'no').sum()}" in shown
    assert "--schema" not in shown
    opaque = done(*opened).stdout
    assert "Give --schema" in opaque
    assert "kilos" not in opaque
    facts = json.loads(done(*opened, "--json").stdout)
    counts = ward.frame["ill"].value_counts()
    assert list(facts["facts"]["classes"].values()) == counts[["no", "yes"]].tolist()
    table = next(iter(facts["tables"].values()))
    assert np.shape(table["values"]) == (len(table["index"]), len(table["columns"]))
    done("predict", ward.opened(ward.combined(name)), ward.csv, "-o", tmp_path / "p.csv")
    predicted = pd.read_csv(tmp_path / "p.csv", index_col="row")
    model = ward.clear(name)
    assert predicted["predicted"].tolist() == model.predict(ward.frame).tolist()
    if hasattr(model, "predict_proba"):
        np.testing.assert_allclose(predicted[["P(no)", "P(yes)"]], model.predict_proba(ward.frame))
    else:
        np.testing.assert_allclose(predicted["score(yes)"], model.decision_function(ward.frame))


# -- fit
# ------------------------------------------------------------------------------------------------


def test_what_the_worker_is_told(run: Run, ward: Ward, tmp_path: Path) -> None:
    shown = done("ask", ward.table(0), "-o", tmp_path / "m", *FOREST).stdout
    for words in (
        "Asked forest trees=4 depth=2 seed=3 over 30 rows",
        "26 totals",
        "whose owner alone can open it",
        "encryptedstats open",
    ):
        assert words in shown
    again = ("ask", ward.table(0), "-o", tmp_path / "m", *FOREST, "--json")
    before = (tmp_path / "m").read_bytes()
    assert "--force to replace it (what it holds would have to be computed again)" in the_error(
        run(*again)
    )
    assert (tmp_path / "m").read_bytes() == before
    (facts,) = json.loads(done(*again, "--force").stdout)["answers"]
    assert facts["question"] == "CompletelyRandomForest"
    assert facts["params"]["random_state"] == 3
    assert facts["bytes"] == (tmp_path / "m").stat().st_size
    assert (facts["rows"], facts["totals"], facts["encrypted"]) == (30, 26, True)
    assert facts["key_id"] == es.PublicKeys.load(ward.home / "public.keys").key_id


def test_folds(run: Run, ward: Ward, tmp_path: Path) -> None:
    out = tmp_path / "folds"
    shown = done("ask", ward.table(0), "-o", out, "mnb", "--folds").stdout
    assert "Asked 2 folds of mnb over 30 rows" in shown
    owner = es.Owner.load(ward.key)
    schema = es.Schema.load(ward.schema)
    models = owner.open(es.load(out, owner.public_keys()), schema=schema)
    clear = es.MultinomialNB().fit_folds(schema.table(ward.frame[:30], folds=2))
    assert [list(model.totals_) for model in models] == [list(model.totals_) for model in clear]
    assert "folds of an encrypted model: 2 folds of mnb" in done("data", "info", out).stdout
    assert "its owner scores them with evaluate" in the_error(run("open", out, "--key", ward.key))
    assert "a fitted model is wanted here" in the_error(
        run("predict", out, ward.csv, "-o", tmp_path / "p.csv")
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("snb", "trees=3"), "snb has no parameter 'trees'"),
        (("forest", "paired=false"), "forest has no parameter 'paired'"),
        (("forest", "max_features=many"), "max_features='many'"),
        (("forest", "fraction=3"), "fraction=3: one of 0, 2, 4"),
        (("forest", "averaged=3"), "averaged=3: one of 1, 2, 4"),
        (("forest", "depth=7"), "depth=7: an integer from 1 to 6 is needed"),
        (("forest", "trees=0"), "trees=0: an integer from 1 to 1048576 is needed"),
        (("mnb", "alpha=-1"), "alpha=-1: a number of at least 0 is needed"),
        (("forest", "depth=deep"), "depth='deep'"),
        (("bush",), "there is no question 'bush'"),
        (("depth=3",), "name its question before it"),
        ((), "QUESTION"),
    ],
)
def test_words_that_cannot_be(
    run: Run, ward: Ward, tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    result = run("ask", ward.table(0), "-o", tmp_path / "m", *words)
    assert result.exit_code == 2
    assert message.replace("'", "") in " ".join(
        result.stderr.replace("│", " ").replace("'", "").split()
    )
    assert names(tmp_path) == []


def test_words_become_parameters() -> None:
    (made,) = make_questions(["forest", "max_features=0.5", "fraction=inverse"])
    assert (made.max_features, made.fraction, made.n_trees) == (0.5, "inverse", 100)
    for text, value in (("3", 3), ("sqrt", "sqrt")):
        (made,) = make_questions(["forest", f"max_features={text}"])
        assert made.max_features == value
    forest, bayes = make_questions(["forest", "n_trees=7", "mnb", "alpha=2.0"])
    assert (forest.n_trees, bayes.alpha) == (7, 2.0)


@pytest.fixture
def own_model(monkeypatch: pytest.MonkeyPatch) -> type[es.MultinomialNB]:
    """A model that nobody told the command line of."""
    monkeypatch.setattr(question, "_known", dict(question.load_all_questions()))

    class Sparse(es.MultinomialNB):
        """Few parameters.

        Parameters
        ----------
        n_kept : int
            Bins to keep. None of ``these`` words.
        smooth : str
            How. Or not.
        fit_prior : bool
            Whether.
        """

        def __init__(
            self, n_kept: int = 3, smooth: str = "a", fit_prior: bool = False, alpha: float = 1.0
        ) -> None:
            self.n_kept, self.smooth, self.fit_prior, self.alpha, self.bins = (
                n_kept,
                smooth,
                fit_prior,
                alpha,
                5,
            )

    return Sparse


def test_a_new_model_has_its_words(own_model: type[Any]) -> None:
    (made,) = make_questions(["Sparse", "kept=2", "prior=true", "smooth=x"])
    assert (type(made), made.n_kept, made.fit_prior, made.smooth) == (own_model, 2, True, "x")
    assert describe(made) == "Sparse kept=2 smooth=x prior=true"
    shown = " ".join(done("ask", "--about", "Sparse").stdout.split())
    for words in ("kept=3 Bins to keep", "smooth=a How", "prior=false Whether"):
        assert words in shown


def test_a_model_in_a_file_of_ones_own(
    run: Run, ward: Ward, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(question, "_known", dict(question.load_all_questions()))
    (tmp_path / "mine.py").write_text(
        "import encryptedstats as es\n\nclass OwnBayes(es.MultinomialNB):\n"
        '    """Bayes, by me."""\n\n    short_name = "own"\n    caveat = "my own guesses"\n    '
        'remarks = ("as I see it",)\n\n'
        "    def __init__(self, bins=5, alpha=1.0):\n        super().__init__(bins=bins, "
        "alpha=alpha)\n"
    )
    fit = ("ask", ward.table(0), "-o", tmp_path / "own", "own")
    assert "there is no question 'own'" in run(*fit).stderr
    monkeypatch.setenv("ENCRYPTEDSTATS_QUESTIONS", str(tmp_path / "mine.py"))
    assert "Asked own" in done(*fit).stdout
    assert "Bayes, by me." in done("ask", "--about", "own").stdout
    assert "encrypted model: own" in done("data", "info", tmp_path / "own").stdout
    shown = done("open", tmp_path / "own", "--key", ward.key, "--schema", ward.schema).stdout
    assert "Opened own" in shown
    assert "as I see it" in shown
    predicted = done(
        "predict", ward.opened(tmp_path / "own"), ward.csv, "-o", tmp_path / "own.csv"
    ).stdout
    assert "my own guesses (see model calibrate)" in predicted
    opened = es.load(ward.opened(tmp_path / "own"))
    assert type(opened).__name__ == "OwnBayes"
    assert opened.totals_ == es.load(ward.opened(ward.fitted("mnb", 0))).totals_


def test_a_short_name_that_is_taken_is_left_to_who_had_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(question, "_known", dict(question.load_all_questions()))

    class OtherForest(es.MultinomialNB):
        short_name = "forest"

    class Heir(es.LinearMeans):
        """Has a name of its own: short names are not inherited."""

    assert question_type("forest") is es.CompletelyRandomForest
    assert question_type("OtherForest") is OtherForest
    assert question_type("Heir") is Heir


def test_models_are_imported_only_where_one_is_asked_for() -> None:
    """scikit-learn takes a second to import."""
    code = "import sys, encryptedstats.cli._app; assert 'sklearn' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_fits_that_cannot_be(
    run: Run, ward: Ward, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit = ("ask", ward.table(0), "-o", tmp_path / "m")
    other = ("mnb", "--keys", files / "public.keys")
    assert "belongs to key" in the_error(run(*fit, *other))
    assert "holds a secret key and was not touched" in the_error(
        run("ask", ward.table(0), "-o", ward.key, *FOREST)
    )
    assert "no encrypted table" in the_error(
        run("ask", tmp_path / "none", "-o", tmp_path / "m", *FOREST)
    )
    rows = ward.frame.drop(columns="ill")
    rows.to_csv(tmp_path / "new.csv", index=False)
    done(
        "encrypt",
        tmp_path / "new.csv",
        tmp_path / "new.enc",
        "--schema",
        ward.schema,
        "--key",
        ward.key,
    )
    without = ("ask", tmp_path / "new.enc", "-o", tmp_path / "m")
    assert "has no target" in the_error(run(*without, *FOREST))
    assert "encrypt --folds K does" in the_error(run(*without, *FOREST, "--folds"))
    monkeypatch.setattr(storage_files.os, "fsync", disk_full)
    assert "free some space" in the_error(run(*fit, "mnb"))
    assert names(tmp_path) == ["new.csv", "new.enc"]


# -- combine
# ------------------------------------------------------------------------------------------------


def test_forgetting(ward: Ward, tmp_path: Path) -> None:
    less = (
        "model",
        "combine",
        tmp_path / "less",
        ward.combined("mnb"),
        "--forget",
        ward.fitted("mnb", 1),
        "--keys",
        ward.table(0),
    )
    assert "Combined mnb alpha=0.5 over 30 rows" in done(*less).stdout
    assert list(es.load(ward.opened(tmp_path / "less")).totals_) == list(
        ward.clear("mnb", slice(30)).totals_
    )


def test_opened_models_combine_too(ward: Ward, tmp_path: Path) -> None:
    a, b = (ward.opened(ward.fitted("mnb", half)) for half in (0, 1))
    shown = done("model", "combine", tmp_path / "all", a, b).stdout
    assert "it is not encrypted" in shown
    assert stat.S_IMODE((tmp_path / "all").stat().st_mode) == 0o600
    assert list(es.load(tmp_path / "all").totals_) == list(ward.clear("mnb").totals_)
    facts = json.loads(
        done(
            "model", "combine", tmp_path / "less", tmp_path / "all", "--forget", b, "--json"
        ).stdout
    )
    assert (facts["rows"], facts["encrypted"]) == (30, False)


def test_what_cannot_be_combined(run: Run, ward: Ward, files: Path, tmp_path: Path) -> None:
    a, b = ward.fitted("mnb", 0), ward.fitted("mnb", 1)
    keys = ("--keys", ward.table(0))
    both = ("model", "combine", tmp_path / "m", a)
    assert run(*both).exit_code == 2
    assert "give --keys" in the_error(run(*both, b))
    assert "belongs to key" in the_error(run(*both, b, "--keys", files / "public.keys"))
    assert "would count twice" in the_error(run(*both, a, *keys))
    assert "and these are not" in the_error(run(*both, "--forget", b, *keys))
    assert "all encrypted or all decrypted" in the_error(run(*both, ward.opened(b), *keys))
    assert "only models of one class" in the_error(run(*both, ward.fitted("means", 1), *keys))
    assert "and a fitted model is wanted here" in the_error(run(*both, files / "array.enc", *keys))
    assert "check the path" in the_error(run(*both, tmp_path / "none", *keys))
    other = tmp_path / "other.model"
    done(
        "ask",
        ward.table(1),
        "-o",
        other,
        "forest",
        "trees=4",
        "depth=2",
        "seed=4",
    )
    error = the_error(
        run("model", "combine", tmp_path / "m", ward.fitted("forest", 0), other, *keys)
    )
    assert "seed is 3 and 4" in error
    assert names(tmp_path) == ["other.model"]


# -- open
# ------------------------------------------------------------------------------------------------


def test_an_opened_model_is_private(run: Run, ward: Ward, tmp_path: Path) -> None:
    out = tmp_path / "m.opened"
    opened = ("open", ward.combined("forest"), "--key", ward.key, "--schema", ward.schema, "-o")
    shown = done(*opened, out).stdout
    for words in (f"wrote  {out}", "mode 0600", "encryptedstats predict"):
        assert words in shown
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert done(*opened, "-").stdout.startswith("variable,importance,splits")
    assert "is read by this command" in the_error(run(*opened, ward.key, "--force"))
    assert "importance" in done("open", out).stdout


def test_models_that_cannot_be_opened(run: Run, ward: Ward, files: Path, tmp_path: Path) -> None:
    model, out = ward.combined("mnb"), tmp_path / "m"
    assert "belongs to key" in the_error(
        run("open", model, "--key", files / "secret.key", "-o", out)
    )
    ward.frame[["age", "ill"]].to_csv(tmp_path / "d.csv", index=False)
    done("data", "schema", tmp_path / "d.csv", "--target", "ill", "-o", tmp_path / "s.json")
    error = the_error(
        run("open", model, "--key", ward.key, "--schema", tmp_path / "s.json", "-o", out)
    )
    assert "this schema is not the one of the rows" in error
    assert not out.exists()


# -- predict
# ------------------------------------------------------------------------------------------------


def test_rows_to_predict(ward: Ward, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = ward.opened(ward.combined("forest"))
    monkeypatch.setattr(
        "encryptedstats.models.clear_rows._ROWS_AT_ONCE", 32
    )  # so that the file is read in pieces
    shown = done("predict", opened, ward.csv, "-o", tmp_path / "p.csv").stdout
    right = int((ward.clear("forest").predict(ward.frame) == ward.frame["ill"]).sum())
    assert "Predicted 70 rows" in shown
    assert f"{right} of 70" in shown
    lines = (tmp_path / "p.csv").read_text().splitlines()
    assert lines[0] == "row,predicted,P(no),P(yes)"
    assert [int(line.split(",")[0]) for line in lines[1:]] == list(range(1, 71))
    ward.frame.drop(columns="ill").to_csv(tmp_path / "new.csv", index=False)
    facts = json.loads(
        done("predict", opened, tmp_path / "new.csv", "-o", tmp_path / "q.csv", "--json").stdout
    )
    assert facts["right"] is None
    assert sum(facts["predicted"].values()) == facts["rows"] == 70
    assert (tmp_path / "q.csv").read_text() == (tmp_path / "p.csv").read_text()
    screen = done("predict", opened, tmp_path / "new.csv", "-o", "-").stdout
    pd.testing.assert_frame_equal(pd.read_csv(io.StringIO(screen)), pd.read_csv(tmp_path / "p.csv"))


def test_rows_with_missing_values_keep_an_empty_line_where_the_schema_drops_them(
    ward: Ward, tmp_path: Path
) -> None:
    schema = es.Schema.infer(ward.frame.drop(columns="patient"), target="ill", missing="drop")
    es.MultinomialNB().fit(schema.table(ward.frame)).save(tmp_path / "m")
    rows = ward.frame[:5].copy()
    rows.loc[2, "age"] = np.nan
    rows.to_csv(tmp_path / "new.csv", index=False)
    shown = done("predict", tmp_path / "m", tmp_path / "new.csv", "-o", tmp_path / "p.csv").stdout
    assert "1 of 5 rows: their lines are empty" in shown
    lines = pd.read_csv(tmp_path / "p.csv")
    assert lines["row"].tolist() == [1, 2, 3, 4, 5]
    assert lines["predicted"].isna().tolist() == [False, False, True, False, False]


def test_what_cannot_be_predicted(
    run: Run, ward: Ward, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, out = ward.opened(ward.combined("mnb")), tmp_path / "p.csv"
    rest = (ward.csv, "-o", out)
    assert "is encrypted: give --keys" in the_error(run("predict", ward.combined("mnb"), *rest))
    assert "a fitted model is wanted here" in the_error(run("predict", ward.key, *rest))
    done("open", ward.combined("mnb"), "--key", ward.key, "-o", tmp_path / "nameless.model")
    assert "open it again, with --schema" in the_error(
        run("predict", tmp_path / "nameless.model", *rest)
    )
    (tmp_path / "nameless.model").unlink()
    assert "check the path" in the_error(run("predict", opened, tmp_path / "none", "-o", out))
    ward.frame[["age"]].to_csv(tmp_path / "d.csv", index=False)
    assert "d.csv: the data has no column" in the_error(
        run("predict", opened, tmp_path / "d.csv", "-o", out)
    )
    ward.frame[:0].to_csv(tmp_path / "d.csv", index=False)
    assert "has no rows" in the_error(run("predict", opened, tmp_path / "d.csv", "-o", out))
    assert run("predict", opened, ward.csv, "-o", "-", "--json").exit_code == 2
    assert "holds a secret key" in the_error(run("predict", opened, ward.csv, "-o", ward.key))
    monkeypatch.setattr(storage_files.os, "fsync", disk_full)
    assert "free some space" in the_error(run("predict", opened, *rest))
    assert names(tmp_path) == ["d.csv"]


# -- info
# ------------------------------------------------------------------------------------------------


def test_info_of_models(ward: Ward, tmp_path: Path) -> None:
    shown = done("data", "info", ward.combined("forest")).stdout
    assert "encrypted model: forest trees=4 depth=2 seed=3" in shown
    assert "70 rows, 6 variables, 2 classes; 26 totals in" in shown
    assert "nothing in it can decrypt" in shown
    assert "NOT ENCRYPTED" not in shown
    opened = ward.opened(ward.combined("forest"))
    shown = done("data", "info", opened).stdout
    assert "NOT ENCRYPTED" in shown
    assert "names, cut points and classes" in shown
    assert "chmod" not in shown
    facts = json.loads(done("data", "info", opened, "--json").stdout)
    assert (facts["encrypted"], facts["names_inside"], facts["holds_secret_key"]) == (
        False,
        True,
        False,
    )
    (tmp_path / "m").write_bytes(opened.read_bytes())
    (tmp_path / "m").chmod(0o644)
    assert "chmod 600" in done("data", "info", tmp_path / "m").stdout


def test_info_of_a_model_from_anybody(run: Run, ward: Ward, tmp_path: Path) -> None:
    file = container.read(ward.opened(ward.combined("forest")))
    fields = {**file.fields, "question": "\x1b[2J", "params": {"n_trees": "\x1b[2J"}}
    container.write(container.Container(file.kind, "", "", fields, file.sections), tmp_path / "m")
    assert "\x1b" not in done("data", "info", tmp_path / "m").stdout
    for name in ("question", "params", "n_rows", "schema", "private"):
        container.write(
            container.Container(file.kind, "", "", {**file.fields, name: []}, file.sections),
            tmp_path / "m",
        )
        the_error(run("data", "info", tmp_path / "m"))


@pytest.mark.parametrize(
    "model",
    [es.LinearRegression("pressure ~ age + sex"), es.Ridge(1.0, "pressure ~ age")],
    ids=["ols", "ridge"],
)
def test_regressions_predict_numbers(model: Any, tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {"age": [30, 40, 50, 60], "sex": list("mfmf"), "pressure": [110, 125, 130, 150]}
    )
    schema = es.Schema.infer(frame, numbers="keep", digits=0)
    fitted = model.fit(schema.table(frame))
    fitted.save(tmp_path / "lm.opened")
    new = frame.drop(columns="pressure")  # which is what nobody knows yet
    new.to_csv(tmp_path / "new.csv", index=False)
    done("predict", tmp_path / "lm.opened", tmp_path / "new.csv", "-o", tmp_path / "p.csv")
    found = pd.read_csv(tmp_path / "p.csv", index_col="row")
    assert list(found.columns) == ["predicted"]
    np.testing.assert_allclose(found["predicted"], fitted.predict(new))
    on_screen = done("predict", tmp_path / "lm.opened", tmp_path / "new.csv", "-o", "-").stdout
    assert on_screen == (tmp_path / "p.csv").read_text()
    facts = json.loads(
        done(
            "predict",
            tmp_path / "lm.opened",
            tmp_path / "new.csv",
            "-o",
            tmp_path / "p.csv",
            "--force",
            "--json",
        ).stdout
    )
    assert facts["predicted"]["mean"] == pytest.approx(found["predicted"].mean())
    assert facts["right"] is None


def test_what_predicts_nothing_is_refused(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": [1, 2, 3, 5], "b": [2, 1, 4, 4]})
    frame.to_csv(tmp_path / "new.csv", index=False)
    es.PCA(1).fit(es.Schema.infer(frame, numbers="keep", digits=0).table(frame)).save(
        tmp_path / "pca.opened"
    )
    error = the_error(invoke("predict", tmp_path / "pca.opened", tmp_path / "new.csv", "-o", "-"))
    assert "PCA cannot predict: give a classifier or a regression" in error
