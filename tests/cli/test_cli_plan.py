"""``plan`` and ``key make --plan``: the plan is the library's, its JSON makes keys, and nonsense is
refused.
"""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from cli_helpers import Hospital, Run, Ward, disk_full, done, names, the_error

import encryptedstats as es
from encryptedstats.cli.plan import _hash_of
from encryptedstats.storage import files as storage_files
from encryptedstats.tables.questions.summaries import Counts


def test_it_is_the_plan_of_the_library(hospital: Hospital) -> None:
    schema = es.Schema.load(hospital.schema)
    options = (hospital.schema, "--rows", 1000, "--security", 192, "--folds", 3)
    facts = json.loads(done("plan", *options, "counts(age,ill)", "counts(v1)", "--json").stdout)
    circuit = [Counts((0, -1)), Counts((1,))]
    expected = es.plan(circuit, schema, 1000, security=192, folds=3).to_dict()
    assert facts.pop("sha256")
    assert facts.pop("questions") == ["counts of age by ill", "counts of grade"]
    assert facts == json.loads(json.dumps(expected))


def test_it_is_shown(hospital: Hospital) -> None:
    options = (
        hospital.schema,
        "--rows",
        1000,
        "counts(age,class)",
        "--by-others",
        "--scheme",
        "bfv",
    )
    shown = done("plan", *options, "--encoding", "onehot", "--encoding", "ordinal").stdout
    for words in (
        "counts of age by ill",
        "BFV",
        "128 bits",
        "failure bound",
        "upload",
        "download",
        "key make --plan",
    ):
        assert words in shown


def test_several_questions_share_keys(hospital: Hospital) -> None:
    """The fixture planned three at once, and the story asks all of them."""
    facts = json.loads((hospital.home / "plan.json").read_text())
    assert facts["questions"] == [
        "counts of age by ill",
        "cross table of grade and sex, at birth",
        "moments of dose, kilos",
    ]
    assert es.PublicKeys.load(hospital.public).parameters.to_dict() == facts["parameters"]


def test_the_workers_command_works_for_a_worker(
    hospital: Hospital, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names no column: a worker without the schema runs it as it is printed."""
    asked = ("counts(age,class)", 'crosstab(grade,"sex, at birth")', "table(age, ill)")
    plan = tmp_path / "plan.json"
    shown = done("plan", hospital.schema, "--rows", 60, *asked, "-o", plan).stdout
    (line,) = (one for one in shown.splitlines() if one.split()[:1] == ["worker"])
    program, *words = shlex.split(line.removeprefix("worker"))
    assert program == "encryptedstats"
    assert not any(column in line for column in ("age", "grade", "birth", "ill"))
    shutil.copytree(hospital.table, tmp_path / "table.enc")
    monkeypatch.chdir(tmp_path)
    done(*words)
    opened = done("open", "answers/counts.enc", "--key", hospital.key, "--schema", hospital.schema)
    assert "age" in opened.stdout


@pytest.mark.parametrize(
    ("question", "words"),
    [
        (
            ("counts(agee)",),
            "no variable 'agee' (did you mean 'age'?); the variables are 'age', 'grade'",
        ),
        (("counts(dose)",), "is a number and has no bins to count: see moments"),
        (
            ("moments(age)",),
            "moments are for numbers, data schema --column 'COLUMN digits=N' keeps",
        ),
        (("counts(age)", "--security", 100), "128, 192, 256"),
        (("mnb",), "variable 'v4' is a number, and MultinomialNB counts bins"),
    ],
)
def test_wishes_that_cannot_be(
    run: Run, hospital: Hospital, tmp_path: Path, question: Any, words: str
) -> None:
    options = (hospital.schema, "--rows", 100, *question)
    assert words in the_error(run("plan", *options, "-o", tmp_path / "p"))
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    "question",
    [
        (),
        ("counts",),
        ("counts()",),
        ("counts(age)", "table.enc"),
        ("counts(age)", "--rows", "0"),
    ],
)
def test_usage_errors(run: Run, hospital: Hospital, question: Any) -> None:
    assert run("plan", hospital.schema, "--rows", 100, *question).exit_code == 2


def test_a_schema_that_is_none(run: Run, files: Path, tmp_path: Path, hospital: Hospital) -> None:
    (tmp_path / "s.json").write_text("{")
    rest = ("--rows", 100, "counts(v0)")
    assert "not JSON" in the_error(run("plan", tmp_path / "s.json", *rest))
    assert "check the path" in the_error(run("plan", tmp_path / "none", *rest))
    assert "array.enc" in the_error(run("plan", files / "array.enc", *rest))


def test_the_plan_of_a_model_is_that_of_the_library(hospital: Hospital) -> None:
    schema = es.Schema.load(hospital.schema)
    options = (
        hospital.schema,
        "--rows",
        100,
        "forest",
        "trees=3",
        "depth=2",
        "seed=5",
    )
    facts = json.loads(done("plan", *options, "--json").stdout)
    expected = es.plan(
        es.CompletelyRandomForest(n_trees=3, depth=2, random_state=5), schema, 100
    ).to_dict()
    assert facts.pop("sha256")
    assert facts.pop("questions") == ["forest trees=3 depth=2 seed=5"]
    assert facts == json.loads(json.dumps(expected))


def test_a_model_beside_other_questions(hospital: Hospital) -> None:
    options = (
        hospital.schema,
        "--rows",
        100,
        "means",
        "centred=false",
        "--json",
    )
    facts = json.loads(done("plan", *options, "counts(v1)").stdout)
    assert facts["questions"] == ["means centred=false", "counts of grade"]
    alone = json.loads(done("plan", *options).stdout)
    assert facts["totals"] == 4 + alone["totals"]


def test_keys_for_a_plan(run: Run, hospital: Hospital, tmp_path: Path) -> None:
    plan = hospital.home / "plan.json"
    shown = done("key", "make", tmp_path / "s", tmp_path / "p", "--plan", plan).stdout
    assert "moments of dose, kilos" in shown
    assert "on up to 60 rows" in shown
    assert "depth" not in shown
    assert (
        es.Owner.load(tmp_path / "s").parameters == es.PublicKeys.load(hospital.public).parameters
    )
    facts = json.loads(plan.read_text()) | {"rotations": [1, 2]}
    facts["sha256"] = _hash_of(facts)
    (tmp_path / "r.json").write_text(json.dumps(facts))
    done("key", "make", tmp_path / "s2", tmp_path / "p2", "--plan", tmp_path / "r.json")
    assert es.PublicKeys.load(tmp_path / "p2").rotations == (1, 2)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"parameters": {}, "rotations": [], "rows": 1, "questions": []}', "\xff"],
)
def test_what_is_no_plan(run: Run, tmp_path: Path, text: str) -> None:
    (tmp_path / "plan.json").write_text(text, encoding="latin-1")
    error = the_error(
        run("key", "make", tmp_path / "s", tmp_path / "p", "--plan", tmp_path / "plan.json")
    )
    assert "plan.json" in error
    assert names(tmp_path) == ["plan.json"]


def test_a_plan_and_wishes_beside_it(run: Run, hospital: Hospital, tmp_path: Path) -> None:
    pair = (tmp_path / "s", tmp_path / "p", "--plan", hospital.home / "plan.json")
    result = run("key", "make", *pair, "max_value=5")
    assert result.exit_code == 2
    assert "leave out max_value" in result.stderr


def test_a_full_disk(
    run: Run, hospital: Hospital, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = (hospital.schema, "--rows", 100, "counts(v0)")
    done("plan", *options)  # so that the machine has been measured, and nothing else is written
    monkeypatch.setattr(storage_files.os, "fsync", disk_full)
    assert "free some space" in the_error(run("plan", *options, "-o", tmp_path / "p"))
    assert names(tmp_path) == []


def test_several_models(run: Run, ward: Ward) -> None:
    """Keys for all of them: each with those options that it has, and one that none has
    is refused.
    """
    options = (ward.schema, "--rows", 60, "--json")
    both = ("mnb", "alpha=0.5", "forest", "trees=2", "depth=2")
    facts = json.loads(done("plan", *options, *both).stdout)
    assert facts["questions"] == [
        "mnb alpha=0.5",
        "forest trees=2 depth=2",
    ]
    schema = es.Schema.load(ward.schema)
    models = [es.MultinomialNB(alpha=0.5), es.CompletelyRandomForest(n_trees=2, depth=2)]
    assert facts["parameters"] == es.plan(models, schema, 60).to_dict()["parameters"]
    alone = json.loads(done("plan", *options, "mnb", "mnb").stdout)
    assert alone["questions"] == ["mnb"]
    assert alone["parameters"] != facts["parameters"]
    result = run("plan", *options, "mnb", "snb", "trees=2")
    assert result.exit_code == 2
    said = " ".join(result.stderr.replace("│", " ").split())
    assert "snb has no parameter 'trees'" in said


def test_many_workers(run: Run, ward: Ward) -> None:
    options = ("plan", ward.schema, "--rows", 1_000_000, "mnb")
    shown = done(*options, "--on", "workers=10 price=0.02").stdout
    assert "10 workers" in shown
    assert "for the workers' time" in shown
    assert run(*options, "--on", "price=0.02").exit_code == 2


def test_a_plan_that_was_altered(run: Run, hospital: Hospital, tmp_path: Path) -> None:
    """Every bit of it: keys would be made for something else."""
    content = (hospital.home / "plan.json").read_bytes()
    changed = [
        content.index(b'"plain_modulus": ') + 18,
        content.index(b'"rows": ') + 9,
        content.index(b"counts of age"),
    ]
    for position in changed:
        altered = bytearray(content)
        altered[position] ^= 1
        (tmp_path / "plan.json").write_bytes(altered)
        error = the_error(
            run("key", "make", tmp_path / "s", tmp_path / "p", "--plan", tmp_path / "plan.json")
        )
        assert (
            "plan.json was altered, its hash does not fit: make it again with encryptedstats plan"
            in error
        )
    facts = json.loads(content)
    del facts["sha256"]
    (tmp_path / "plan.json").write_text(json.dumps(facts))
    assert "is no plan" in the_error(
        run("key", "make", tmp_path / "s", tmp_path / "p", "--plan", tmp_path / "plan.json")
    )
    (tmp_path / "plan.json").write_text(
        json.dumps(json.loads(content))
    )  # laid out otherwise, it is the same plan
    done("key", "make", tmp_path / "s", tmp_path / "p", "--plan", tmp_path / "plan.json")


def test_a_column_that_is_called_class(run: Run, tmp_path: Path) -> None:
    rows = "age,class,target,ill\n" + "".join(
        f"{i},{i % 3},{i % 2},{'yn'[i % 2]}\n" for i in range(12)
    )
    (tmp_path / "d.csv").write_text(rows)
    done("data", "schema", tmp_path / "d.csv", "--target", "ill", "-o", tmp_path / "s.json")
    plan = ("plan", tmp_path / "s.json", "--rows", 12, "--json")
    for word, number in (("class", 1), ("target", 2)):
        error = the_error(run(*plan, f"counts(age,{word})"))
        assert (
            f"the column {word!r} is v{number}, and the target is 'ill'; write one of these"
            in error
        )
    for word, meant in (("v1", "class"), ("ill", "ill"), ("v2", "target")):
        assert json.loads(done(*plan, f"counts(age,{word})").stdout)["questions"] == [
            f"counts of age by {meant}"
        ]


@pytest.mark.parametrize("word", ["class", "target", "ill"])
def test_words_for_the_target(hospital: Hospital, word: str) -> None:
    plan = ("plan", hospital.schema, "--rows", 60, "--json", f"counts(age,{word})")
    assert json.loads(done(*plan).stdout)["questions"] == ["counts of age by ill"]


def test_after_the_plan_its_questions_are_proposed(ward: Ward, tmp_path: Path) -> None:
    plan = ("plan", ward.schema, "--rows", 60, "-o")
    shown = " ".join(done(*plan, tmp_path / "m.json", "means", "centred=false").stdout.split())
    assert "encryptedstats key make secret.key public.keys --plan" in shown
    assert "encryptedstats ask table.enc means centred=false -o answer.enc" in shown


def test_folds_of_a_model_that_predicts_unopened(ward: Ward) -> None:
    """Folds are more columns, and no other computation."""
    plan = (
        "plan",
        ward.schema,
        "--rows",
        60,
        "means",
        "--encrypted-prediction",
        "auto",
        "--json",
    )
    alone, folds = (json.loads(done(*plan, *options).stdout) for options in ((), ("--folds", 3)))
    assert folds["parameters"] == alone["parameters"]
    assert folds["columns"] == alone["columns"] + 3 * 2  # an indicator of every class in every fold
