"""Predictions that open nothing, by the program: what the owner decrypts is what model and rows
give in the clear.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from cli_helpers import FOREST, Run, Ward, done, names, patients, the_error

import encryptedstats as es
from encryptedstats.circuits import compiled
from encryptedstats.cli.plan import _hash_of
from encryptedstats.crypto.encryption import Decryptor
from encryptedstats.storage import container

pytestmark = pytest.mark.filterwarnings("ignore::encryptedstats.errors.InsecureParametersWarning")
DRAWN = (*FOREST, "fraction=2", "averaged=2")
MODELS: dict[str, tuple[tuple[Any, ...], Any]] = {
    "forest": (
        (*FOREST, "fraction=0"),
        es.CompletelyRandomForest(n_trees=4, depth=2, fraction=0, random_state=3),
    ),
    "drawn": (
        DRAWN,
        es.CompletelyRandomForest(n_trees=4, depth=2, random_state=3, fraction=2, averaged=2),
    ),
    "mnb": (("mnb",), es.MultinomialNB()),
    "means": (("means",), es.LinearMeans()),
    "fisher": (("fisher",), es.FisherDiscriminant()),
}
COLUMNS = (
    "--target",
    "ill",
    "--leave-out",
    "patient",
    "--leave-out",
    "dose",
    "--leave-out",
    "kilos",
)
NO_ROTATIONS: list[int] = []
ROTATIONS = [0, 1, 4, 16, 64, 256]


@dataclass(frozen=True)
class Clinic:
    """An owner with keys of a small insecure ring that carry fit, drawn fraction and prediction;
    and a worker with tables.
    """

    home: Path
    work: Path
    train: pd.DataFrame
    new: pd.DataFrame

    @property
    def key(self) -> Path:
        return self.home / "secret.key"

    @property
    def public(self) -> Path:
        return self.home / "public.keys"

    @property
    def schema(self) -> Path:
        return self.home / "schema.json"

    @property
    def new_csv(self) -> Path:
        return self.home / "new.csv"

    @property
    def owner(self) -> tuple[Any, ...]:
        return ("--key", self.key, "--schema", self.schema)

    def fitted(self, name: str) -> Path:
        """By the worker."""
        out = self.work / f"{name}.model"
        if not out.exists():
            done("ask", self.work / "train.enc", "-o", out, *MODELS[name][0])
        return out

    def opened(self, name: str) -> Path:
        """By the owner."""
        out = self.home / f"{name}.opened"
        if not out.exists():
            done("open", self.fitted(name), *self.owner, "-o", out)
        return out

    def clear(self, name: str, rows: slice = slice(None)) -> Any:
        schema = es.Schema.load(self.schema)
        return MODELS[name][1].fit(schema.table(self.train[rows]))

    def csv(self, votes: Path) -> pd.DataFrame:
        """Votes as the owner reads them."""
        done("open", votes, *self.owner, "-o", votes.with_suffix(".csv"), "--force")
        return pd.read_csv(votes.with_suffix(".csv"), index_col="row")


def write_plan(path: Path, rotations: list[int]) -> None:
    """As ``plan`` does, of a ring that no plan would take."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", es.InsecureParametersWarning)
        weak = es.Parameters.from_bits("bgv", 1024, 1 << 24, (49,) * 12, allow_insecure=True)
        planned = replace(weak, kept_primes=7).to_dict()
    facts = {
        "questions": ["a prediction"],
        "rows": 60,
        "rotations": rotations,
        "parameters": planned,
    }
    path.write_text(json.dumps({**facts, "sha256": _hash_of(facts)}))


@pytest.fixture(scope="module")
def clinic(tmp_path_factory: pytest.TempPathFactory) -> Clinic:
    everybody = patients(80)
    made = Clinic(
        tmp_path_factory.mktemp("home"),
        tmp_path_factory.mktemp("work"),
        everybody[:60],
        everybody[60:].drop(columns="ill").reset_index(drop=True),
    )
    made.train.to_csv(made.home / "train.csv", index=False)
    made.new.to_csv(made.new_csv, index=False)
    done("data", "schema", made.home / "train.csv", *COLUMNS, "-o", made.schema)
    write_plan(made.home / "plan.json", ROTATIONS)
    done("key", "make", made.key, made.public, "--plan", made.home / "plan.json")
    for name in ("train", "new"):
        done(
            "encrypt",
            made.home / f"{name}.csv",
            made.work / f"{name}.enc",
            *made.owner,
        )
    return made


def same(found: pd.DataFrame, wanted: Any) -> None:
    """The CSV holds those votes, probabilities and classes, to the last digit."""
    assert found["predicted"].tolist() == wanted.predict().tolist()
    numbers = found.iloc[:, 1 + wanted.scores.shape[1] :]
    assert numbers.to_numpy().tolist() == wanted.to_numpy().tolist()
    np.testing.assert_allclose(
        found.iloc[:, 1 : 1 + wanted.scores.shape[1]], wanted.scores, rtol=1e-15
    )


# -- the story
# ------------------------------------------------------------------------------------------------


def test_the_whole_story_with_planned_keys(clinic: Clinic, tmp_path: Path) -> None:
    """Real parameters, from a real plan; the same steps with the small ring follow below."""
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    options = ("forest", "trees=2", "depth=1", "seed=5")
    wish = (
        clinic.schema,
        "--rows",
        60,
        *options,
        "--encrypted-prediction",
        20,
    )
    shown = done("plan", *wish, "-o", home / "plan.json").stdout
    assert "forest trees=2 depth=1 seed=5" in shown
    assert "encrypted prediction of 20 rows" in shown
    assert "pack and expand" in shown
    facts = json.loads((home / "plan.json").read_text())
    forest = es.CompletelyRandomForest(n_trees=2, depth=1, random_state=5)
    schema = es.Schema.load(clinic.schema)
    expected = es.plan(forest, schema, 60, 20, encrypted_prediction=True)
    assert facts["parameters"] == expected.parameters.to_dict()
    assert facts["parameters"]["kept_primes"] == expected.prediction.kept_primes
    assert facts["prediction"]["n_predict"] == 20

    keys = ("key", "make", home / "secret.key", home / "public.keys", "--plan", home / "plan.json")
    assert "encrypted prediction of 20 rows" in done(*keys).stdout
    owner = ("--schema", clinic.schema, "--key", home / "secret.key")
    for name in ("train", "new"):
        done("encrypt", clinic.home / f"{name}.csv", work / f"{name}.enc", *owner)
    done("ask", work / "train.enc", "-o", work / "forest.enc", *options)
    shown = done("predict", work / "forest.enc", work / "new.enc", "-o", work / "votes.enc").stdout
    assert "Predicted 20 rows by the encrypted forest trees=2" in shown
    assert "whose owner alone can open it" in shown
    done("open", work / "votes.enc", *owner, "-o", home / "votes.csv")
    found = pd.read_csv(home / "votes.csv", index_col="row")
    assert list(found.columns) == ["predicted", "P(no)", "P(yes)", "votes(no)", "votes(yes)"]
    same(found, forest.fit(schema.table(clinic.train)).predict_votes(clinic.new))
    # Nothing of the owner's is in what the worker has.
    secret = container.read(home / "secret.key").section("secret_key")
    fragment = secret[len(secret) // 2 :][:64]
    for path in (path for path in work.rglob("*") if path.is_file()):
        data = path.read_bytes()
        assert not [
            word for word in (fragment, b'"grade"', b'"female"', b'"visits"') if word in data
        ]


@pytest.mark.parametrize(
    "name",
    ["forest", "means", *(pytest.param(one, marks=pytest.mark.slow) for one in ("drawn", "mnb"))],
)
def test_encrypted_or_not_it_is_the_same(clinic: Clinic, tmp_path: Path, name: str) -> None:
    """All combinations of encrypted and open models and rows."""
    wanted = clinic.clear(name).predict_votes(clinic.new)
    sealed, opened, table = clinic.fitted(name), clinic.opened(name), clinic.work / "new.enc"
    own = ("--keys", clinic.public, "--schema", clinic.schema)
    ways = {"a": (sealed, table), "b": (opened, table), "c": (sealed, clinic.new_csv, *own)}
    for way, words in ways.items():
        done("predict", *words, "-o", tmp_path / f"{way}.enc")
        same(clinic.csv(tmp_path / f"{way}.enc"), wanted)
    done("predict", opened, clinic.new_csv, "-o", tmp_path / "clear.csv")
    clear, found = (
        pd.read_csv(tmp_path / "clear.csv", index_col="row"),
        pd.read_csv(tmp_path / "a.csv", index_col="row"),
    )
    assert (
        clear["predicted"].tolist() == found["predicted"].tolist() or name == "drawn"
    )  # opened, it weighs exactly
    if name == "forest":
        pd.testing.assert_frame_equal(clear, found[clear.columns], check_exact=True)


def test_who_predicts_has_public_keys_only(
    clinic: Clinic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("a secret key, at a worker's")

    sealed = clinic.fitted("forest")
    for place in (es.Owner, Decryptor):
        monkeypatch.setattr(place, "__init__", never)
    monkeypatch.setattr(es.Owner, "load", never)
    own = ("--keys", clinic.public, "--schema", clinic.schema)
    done("predict", sealed, clinic.work / "new.enc", "-o", tmp_path / "a")
    done(
        "predict",
        sealed,
        clinic.work / "new.enc",
        "-o",
        tmp_path / "b",
        "--keys",
        clinic.public,
    )
    done("predict", sealed, clinic.new_csv, "-o", tmp_path / "c", *own)


def test_factors_and_products(run: Run, clinic: Clinic, tmp_path: Path) -> None:
    model, table, clear = clinic.fitted("mnb"), clinic.work / "new.enc", clinic.clear("mnb")
    for kind in ("factors", "products"):
        out = tmp_path / f"{kind}.enc"
        done("predict", model, table, "-o", out, "--output-kind", kind)
        same(clinic.csv(out), clear.predict_votes(clinic.new, output=kind))
        assert f"encrypted prediction as {kind} of mnb" in done("data", "info", out).stdout
    words = (
        "predict",
        clinic.fitted("forest"),
        table,
        "-o",
        tmp_path / "x",
        "--output-kind",
        "products",
    )
    assert "--output-kind products: a CompletelyRandomForest has one way to answer" in the_error(
        run(*words)
    )
    words = ("predict", clinic.fitted("mnb"), table, "-o", tmp_path / "x", "--output-kind", "sums")
    assert "--output-kind sums: a MultinomialNB has 'factors' and 'products'" in the_error(
        run(*words)
    )


# -- the drawn fraction
# ------------------------------------------------------------------------------------------------


def test_a_fit_draws_where_keys_were_planned_for_it(clinic: Clinic, tmp_path: Path) -> None:
    fit = ("ask", clinic.work / "train.enc", "-o", tmp_path / "m", *DRAWN)
    shown = done(*fit).stdout
    assert "forest trees=4 depth=2 fraction=2 averaged=2 seed=3" in shown
    assert "16 fractions drawn" in shown
    (facts,) = json.loads(done(*fit, "--force", "--json").stdout)["answers"]
    assert facts["drawn"] == 16
    shown = done("data", "info", tmp_path / "m").stdout
    assert "its stochastic fraction is drawn" in shown
    assert "none: nothing in it can decrypt" in shown
    assert (
        json.loads(done("data", "info", clinic.opened("drawn"), "--json").stdout)[
            "holds_secret_key"
        ]
        is False
    )


def test_draw_for_a_forest_that_was_combined(run: Run, clinic: Clinic, tmp_path: Path) -> None:
    tables = []
    for half, rows in enumerate((clinic.train[:25], clinic.train[25:])):
        rows.to_csv(tmp_path / f"{half}.csv", index=False)
        done(
            "encrypt",
            tmp_path / f"{half}.csv",
            tmp_path / f"{half}.enc",
            *clinic.owner,
        )
        done(
            "ask",
            tmp_path / f"{half}.enc",
            "-o",
            tmp_path / f"{half}.model",
            *DRAWN,
        )
        tables.append(es.load(tmp_path / f"{half}.enc"))
    tables[0].append(tables[1])  # the stored table grows
    halves = (tmp_path / "0.model", tmp_path / "1.model")
    done("model", "combine", tmp_path / "all.model", *halves, "--keys", clinic.public)
    predict = (
        "predict",
        tmp_path / "all.model",
        clinic.work / "new.enc",
        "-o",
        tmp_path / "votes.enc",
    )
    error = the_error(run(*predict))
    assert (
        "fraction=2 has not been drawn for this forest: see model draw, with a table of all its "
        "rows"
    ) in error
    assert "plan --encrypted-prediction" in error
    draw = (
        "model",
        "draw",
        tmp_path / "all.model",
        tmp_path / "0.enc",
        "-o",
        tmp_path / "drawn.model",
    )
    assert "exactly the rows of the forest" in the_error(
        run(*draw[:3], tmp_path / "1.enc", *draw[4:])
    )
    assert "16 fractions drawn" in done(*draw).stdout
    assert json.loads(done(*draw, "--json", "--force").stdout)["drawn"] == 16
    done("predict", tmp_path / "drawn.model", *predict[2:])
    same(clinic.csv(tmp_path / "votes.enc"), clinic.clear("drawn").predict_votes(clinic.new))


def test_what_cannot_be_drawn(run: Run, clinic: Clinic, tmp_path: Path) -> None:
    rest = (clinic.work / "train.enc", "-o", tmp_path / "x")
    assert "only forests have a stochastic fraction" in the_error(
        run("model", "draw", clinic.fitted("mnb"), *rest)
    )
    assert "this forest has no fraction to draw" in the_error(
        run("model", "draw", clinic.fitted("forest"), *rest)
    )
    assert "an encrypted forest is wanted here" in the_error(
        run("model", "draw", clinic.opened("forest"), *rest)
    )
    assert names(tmp_path) == []


# -- decrypt and info
# ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def votes(clinic: Clinic) -> Path:
    out = clinic.work / "votes.enc"
    done("predict", clinic.fitted("forest"), clinic.work / "new.enc", "-o", out)
    return out


def test_votes_on_the_screen_and_as_json(clinic: Clinic, votes: Path) -> None:
    wanted = clinic.clear("forest").predict_votes(clinic.new)
    shown = done("open", votes, *clinic.owner).stdout
    for words in (
        "Prediction by forest trees=4",
        ", 20 rows",
        "P(yes)",
        "votes(yes)",
        "predicted",
    ):
        assert words in shown
    assert "--schema" not in shown
    facts = json.loads(done("open", votes, *clinic.owner, "--json").stdout)
    counts = wanted.predict().value_counts()
    assert facts["facts"]["predicted"] == {
        label: int(counts.get(label, 0)) for label in ("no", "yes")
    }
    assert (facts["rows"], facts["question"]) == (20, "CompletelyRandomForest")
    opaque = done("open", votes, "--key", clinic.key).stdout
    assert "Give --schema" in opaque
    assert "votes(1)" in opaque
    assert done("open", votes, *clinic.owner, "-o", "-").stdout.startswith("row,predicted,P(no)")


def test_info_of_votes(votes: Path) -> None:
    shown = done("data", "info", votes).stdout
    for words in (
        "encrypted prediction of forest trees=4",
        "20 rows, 2 numbers for each, in 2 ciphertexts",
    ):
        assert words in shown
    assert "none: nothing in it can decrypt" in shown
    facts = json.loads(done("data", "info", votes, "--json").stdout)
    assert (facts["rows"], facts["answers"], facts["classes"], facts["holds_secret_key"]) == (
        20,
        2,
        2,
        False,
    )


def test_the_key_of_somebody_else(
    run: Run, ward: Ward, clinic: Clinic, votes: Path, tmp_path: Path
) -> None:
    assert "belongs to key" in the_error(
        run("open", votes, "--key", ward.key, "-o", tmp_path / "x")
    )
    keys = ("--keys", ward.home / "public.keys", "--schema", clinic.schema)
    words = ("predict", clinic.fitted("forest"), clinic.new_csv, "-o", tmp_path / "x", *keys)
    assert "belongs to key" in the_error(run(*words))
    assert names(tmp_path) == []


def test_the_schema_of_somebody_else(run: Run, ward: Ward, votes: Path, clinic: Clinic) -> None:
    error = the_error(run("open", votes, "--key", clinic.key, "--schema", ward.schema))
    assert "this schema is not the one of the rows" in error


# -- what cannot be
# ------------------------------------------------------------------------------------------------


def test_votes_are_not_mistaken(run: Run, clinic: Clinic, votes: Path, tmp_path: Path) -> None:
    out = ("-o", tmp_path / "x")
    for words, wanted in (
        (("predict", votes, clinic.work / "new.enc", *out), "a fitted model"),
        (("predict", clinic.opened("forest"), votes, *out), "a CSV or Parquet file with rows"),
        (("ask", votes, *out, *FOREST), "the folder of an encrypted table"),
    ):
        expected = f"holds an encrypted prediction, and {wanted} is wanted here"
        assert expected in the_error(run(*words))
    assert names(tmp_path) == []


def test_rows_in_the_clear_need_keys_and_schema(run: Run, clinic: Clinic, tmp_path: Path) -> None:
    words = ("predict", clinic.fitted("forest"), clinic.new_csv, "-o", tmp_path / "x")
    assert "is encrypted: give --keys" in the_error(run(*words))
    error = the_error(run(*words, "--keys", clinic.public))
    assert "give --schema with the owner's schema" in error
    secret = the_error(run(*words, "--keys", clinic.key, "--schema", clinic.schema))
    assert "keep the secret key off every machine but the owner's" in secret
    gap = clinic.new.astype({"age": float}).copy()
    gap.loc[3, "age"] = np.nan
    gap.to_csv(tmp_path / "gap.csv", index=False)
    own = ("--keys", clinic.public, "--schema", clinic.schema, "-o", tmp_path / "x")
    assert "row 4 cannot be predicted" in the_error(
        run("predict", clinic.fitted("forest"), tmp_path / "gap.csv", *own)
    )
    assert names(tmp_path) == ["gap.csv"]


def test_keys_that_were_not_planned_for_it(run: Run, ward: Ward, tmp_path: Path) -> None:
    words = ("predict", ward.combined("mnb"), ward.table(0), "-o", tmp_path / "x")
    error = the_error(run(*words))
    assert "plan --encrypted-prediction" in error
    assert "es." not in error


def test_a_model_that_has_to_be_opened(run: Run, clinic: Clinic, tmp_path: Path) -> None:
    words = ("predict", clinic.fitted("fisher"), clinic.work / "new.enc", "-o", tmp_path / "x")
    assert "FisherDiscriminant has to be opened before it can predict" in the_error(run(*words))


def test_a_file_is_not_replaced_unless_told_to(run: Run, clinic: Clinic, votes: Path) -> None:
    before = votes.read_bytes()
    words = (
        "predict",
        clinic.fitted("forest"),
        clinic.work / "new.enc",
        "-o",
        votes,
    )
    assert "--force to replace it" in the_error(run(*words))
    assert votes.read_bytes() == before
    facts = json.loads(done(*words, "--force", "--json").stdout)
    assert (facts["rows"], facts["encrypted"], facts["bytes"]) == (20, True, votes.stat().st_size)


@pytest.mark.parametrize(
    "more",
    [
        ("opened", "new.csv", "--keys"),
        ("opened", "new.csv", "--schema"),
        ("opened", "new.csv", "--output-kind"),
        ("sealed", "new.enc", "--schema"),
        ("sealed", "new.enc", "-"),
    ],
)
def test_options_that_make_no_sense(
    run: Run, clinic: Clinic, tmp_path: Path, more: tuple[str, str, str]
) -> None:
    which, rows, option = more
    model = clinic.opened("forest") if which == "opened" else clinic.fitted("forest")
    place = clinic.new_csv if rows == "new.csv" else clinic.work / rows
    value = {"--keys": clinic.public, "--schema": clinic.schema, "--output-kind": "factors"}.get(
        option
    )
    out: Any = "-" if option == "-" else tmp_path / "x"
    extra = () if value is None else (option, value)
    assert run("predict", model, place, "-o", out, *extra).exit_code == 2
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    "options",
    [
        ("forest", "--encrypted-prediction", "many"),
        ("counts(age)", "--encrypted-prediction", "auto"),
        ("forest", "averaged=3"),
    ],
)
def test_plans_that_make_no_sense(run: Run, clinic: Clinic, options: tuple[Any, ...]) -> None:
    assert run("plan", clinic.schema, "--rows", 60, *options).exit_code == 2


@pytest.mark.parametrize(
    ("options", "planned"),
    [
        (("mnb",), ["mnb", "means"]),
        (("counts(age)",), ["counts of age", "means"]),
        (("--on", "workers=4"), ["means"]),
    ],
)
def test_what_is_planned_beside_a_model_that_predicts_unopened(
    clinic: Clinic, options: tuple[Any, ...], planned: list[str]
) -> None:
    words = (
        "plan",
        clinic.schema,
        "--rows",
        60,
        *options,
        "means",
        "--encrypted-prediction",
        "auto",
    )
    made = json.loads(done(*words, "--json").stdout)
    *found, prediction = made["questions"]
    assert len(found) == len(planned)
    assert all(one.startswith(a) for one, a in zip(found, planned, strict=True))
    assert prediction.startswith("encrypted prediction of ")
    assert ("cluster" in made) == ("--on" in options)


def test_a_model_that_cannot_be_planned_for_it(run: Run, clinic: Clinic) -> None:
    words = (
        "plan",
        clinic.schema,
        "--rows",
        60,
        "fisher",
        "--encrypted-prediction",
        "auto",
    )
    assert "Plan it without --encrypted-prediction" in the_error(run(*words))


def test_keys_for_a_drawn_fraction_have_rotations(clinic: Clinic, tmp_path: Path) -> None:
    facts = json.loads((clinic.home / "plan.json").read_text())
    assert list(es.PublicKeys.load(clinic.public).rotations) == facts["rotations"] == ROTATIONS
    write_plan(tmp_path / "plan.json", NO_ROTATIONS)
    made = (
        "key",
        "make",
        tmp_path / "s",
        tmp_path / "p",
        "--plan",
        tmp_path / "plan.json",
        "--json",
    )
    assert json.loads(done(*made).stdout)["rotations"] == NO_ROTATIONS


def test_rows_that_others_encrypted_are_named_as_the_cause(
    run: Run, clinic: Clinic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys that were planned for rows of the secret key, which makes less noise: the proof fails
    for those of others only.
    """
    prove = compiled.prove_rows

    def as_planned(outputs: Any, setting: Any, **options: Any) -> Any:
        if not setting.with_secret_key:
            raise es.NoiseError("it could not be proven")
        return prove(outputs, setting, **options)

    def never(*_: Any, **__: Any) -> Any:
        raise es.NoiseError("it could not be proven")

    monkeypatch.setattr(compiled, "prove_rows", as_planned)
    predict = (
        "predict",
        clinic.fitted("forest"),
        clinic.home / "new.csv",
        "-o",
        tmp_path / "votes.enc",
    )
    predict += ("--keys", clinic.home / "public.keys", "--schema", clinic.schema)
    error = the_error(run(*predict))
    assert "These rows were encrypted with public keys, which makes more noise" in error
    assert error.endswith("Plan with plan --encrypted-prediction auto --by-others")

    monkeypatch.setattr(compiled, "prove_rows", never)
    error = the_error(run(*predict))
    assert "needs keys from plan --encrypted-prediction auto, and if any rows were" in error
