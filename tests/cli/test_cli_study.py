"""``study`` on the command line: risks, and the whole story with real keys; ``scripts``
has more.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from cli_helpers import Run, the_error

import encryptedstats as es

SITES = ("north", "south", "west")


def frame(seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": rng.integers(20, 90, 40),
            "sex": rng.choice(["f", "m"], 40),
            "ill": rng.choice(["no", "yes"], 40),
        }
    )


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    frames = [frame(number) for number in range(3)]
    for site, rows in zip(SITES, frames, strict=True):
        rows.to_csv(f"{site}.csv", index=False)
    es.Schema.infer(pd.concat(frames), target="ill", bins=3, classes=["no", "yes"]).save(
        "schema.json"
    )
    return tmp_path


def create(run: Run, *more: Any) -> Any:
    named = [word for site in SITES for word in ("--site", site)]
    options = [
        "--schema",
        "schema.json",
        "--rows",
        1000,
        *named,
        "--worker",
        "centre",
        "--receiver",
        "registry",
    ]
    return run("study", "create", "shared", *options, "--invitations", "sent", *more)


def join_all(run: Run) -> None:
    for name in (*SITES, "centre", "registry"):
        joined = run("study", "join", "shared", f"sent/{name}.invitation", f"{name}.id")
        assert joined.exit_code == 0, joined.output
        assert f"You are {name} in study" in joined.stdout


def test_a_folder_of_invitations_is_not_replaced(run: Run, place: Path) -> None:
    Path("sent").mkdir()
    assert "sent is a folder that exists already: give another name" in the_error(create(run))


def together() -> es.Table:
    rows = pd.concat([pd.read_csv(f"{site}.csv") for site in SITES], ignore_index=True)
    return es.Schema.load("schema.json").table(rows)


@pytest.mark.parametrize(
    ("options", "who"),
    [
        (["--ask", "bayes=MultinomialNB"], ("registry", "centre")),
        (
            ["--ask", "bayes=MultinomialNB", "--kind", "escrow:2"],
            ("registry", "centre"),
        ),
        (["--ask", "bayes=MultinomialNB", "--kind", "joint"], ("registry", "one site")),
        (["--ask", "masked:bayes=MultinomialNB"], ("all sites but one", "registry")),
    ],
    ids=["one holder", "escrow", "joint", "masked"],
)
def test_the_status_says_from_whom_a_study_does_not_protect(
    run: Run, place: Path, options: list[Any], who: tuple[str, str]
) -> None:
    made = create(run, *options)
    assert made.exit_code == 0, made.output
    shown = [
        line
        for line in run("study", "status", "shared").stdout.splitlines()
        if line.split()[:1] == ["risk"]
    ]
    facts = json.loads(run("study", "status", "shared", "--json").stdout)
    assert [line.split(None, 1)[1] for line in shown] == facts["open_risks"]
    assert all(word in shown[0] for word in who)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["one-holder", "escrow", "joint"])
def test_the_whole_story(run: Run, place: Path, kind: str) -> None:
    """Real parameters: three sites, a worker, a receiver, each told by the others what is next."""
    votes = ["--ask", "votes:votes=MultinomialNB"] if kind == "joint" else []
    made = create(
        run, "--ask", "forest=CompletelyRandomForest n_trees=3 depth=2 random_state=1", "--kind",
        "escrow:2" if kind == "escrow" else kind, *votes,
    )  # fmt: skip
    frame(9)[:6].to_csv("new.csv", index=False)
    assert made.exit_code == 0, made.output
    join_all(run)
    key = [] if kind == "escrow" else ["--key", "registry.key"]
    for _ in range(30):
        todo = json.loads(run("study", "status", "shared", "--json").stdout)["next"]
        for who, what in todo:
            data = [f"{who}.csv"] if what == "add" else []
            data += ["--new", "new.csv"] if what == "add" and votes and who == "south" else []
            more = key if who == "registry" and what in ("keygen", "open") else []
            more = [*more, "-o", "results"] if what == "open" else more
            said = run("study", what, "shared", *data, "--identity", f"{who}.id", *more)
            assert said.exit_code == 0, said.output
        if not todo:
            break
    opened = es.load("results/forest.opened")
    clear = es.CompletelyRandomForest(n_trees=3, depth=2, random_state=1).fit(together())
    assert (opened.leaf_counts_ == clear.leaf_counts_).all()
    if votes:
        new = (
            es.MultinomialNB()
            .fit(together())
            .predict_votes(es.Schema.load("schema.json").table(frame(9)[:6]))
        )
        assert Path("results/votes.csv").read_text() == new.frame().to_csv(lineterminator="\n")
        assert Path("results/votes.csv").stat().st_mode & 0o777 == 0o600


def test_a_regression_in_rounds(run: Run, place: Path) -> None:
    """Its result has no totals to open again: it is shown, and written as JSON."""
    steps = range(300)
    for k, site in enumerate(SITES):
        ages = [20 + (7 * i + k) % 61 for i in steps]
        ill = [
            "yes" if i * 13 % 60 < age - 15 else "no" for i, age in zip(steps, ages, strict=True)
        ]
        pd.DataFrame({"age": ages, "ill": ill}).to_csv(f"{site}.csv", index=False)
    rows = pd.concat(pd.read_csv(f"{site}.csv") for site in SITES)
    es.Schema.infer(rows, target="ill", numbers="keep", classes=["no", "yes"]).save("schema.json")
    fit = "fit=PooledGLM('ill ~ age', max_iterations=4)"
    for asked, part in ((fit, "rounds:NAME"), ("rounds:fit=PooledGML(ill ~ age)", "'PooledGLM'")):
        refused = create(run, "--ask", asked)
        assert refused.exit_code == 2
        assert part in refused.output
    assert create(run, "--ask", f"rounds:{fit}").exit_code == 0
    join_all(run)
    for _ in range(30):
        todo = json.loads(run("study", "status", "shared", "--json").stdout)["next"]
        if all(what == "open" for _, what in todo):
            break
        for site in SITES:
            run("study", "add", "shared", f"{site}.csv", "--identity", f"{site}.id")
    shown = run("study", "open", "shared", "--identity", "north.id")
    assert shown.exit_code == 0, shown.output
    assert "Logistic regression: ill ~ age" in shown.stdout
    assert "(Intercept)" in shown.stdout
    written = run("study", "open", "shared", "--identity", "registry.id", "-o", "results")
    assert written.exit_code == 0, written.output
    found = json.loads(Path("results/fit.json").read_text())
    assert found["title"] == "Logistic regression: ill ~ age"
    assert Path("results/fit.json").stat().st_mode & 0o777 == 0o600
