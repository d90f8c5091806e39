"""``study`` on the command line: every party with its own files, told what is next; errors in the
words of the command line.
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


def share_all(run: Run, sites: tuple[str, ...] = SITES) -> None:
    """Let every site store the totals that all have announced."""
    for site in sites:
        said = run("study", "share", "shared", "--identity", f"{site}.id")
        assert said.exit_code == 0, said.output
    assert "next: registry, encryptedstats study open" in said.stdout


def together() -> es.Table:
    rows = pd.concat([pd.read_csv(f"{site}.csv") for site in SITES], ignore_index=True)
    return es.Schema.load("schema.json").table(rows)


def test_masked_totals_without_any_key(run: Run, place: Path) -> None:
    made = create(
        run, "--ask", "masked:bayes=MultinomialNB", "--ask", "masked:ages=counts(age,ill)"
    )
    assert made.exit_code == 0, made.output
    assert "5 invitations to sent" in made.stdout
    assert (place / "sent" / "north.invitation").stat().st_mode & 0o777 == 0o600
    join_all(run)
    for site in SITES:
        said = run("study", "add", "shared", f"{site}.csv", "--identity", f"{site}.id")
        assert said.exit_code == 0, said.output
    assert "next: north, encryptedstats study share" in said.stdout
    share_all(run)
    opened = run("study", "open", "shared", "--identity", "registry.id", "-o", "results")
    assert opened.exit_code == 0, opened.output
    assert "All is opened" in opened.stdout
    clear = es.MultinomialNB().fit(together())
    assert list(es.load("results/bayes.opened").totals_) == list(clear.totals_)
    assert (place / "results" / "bayes.opened").stat().st_mode & 0o777 == 0o600
    facts = json.loads(run("study", "status", "shared", "--json").stdout)
    assert facts["opened"] == ["ages", "bayes"]
    assert len(facts["fingerprint"].replace(" ", "")) == 32
    again = run("study", "open", "shared", "--identity", "registry.id", "-o", "results")
    assert (
        "results/ages.csv is there already and was not touched: --force replaces it" in again.stdout
    )


def test_a_site_that_does_not_come(run: Run, place: Path) -> None:
    create(run, "--ask", "masked:bayes=MultinomialNB")
    join_all(run)
    for site in SITES[:2]:
        run("study", "add", "shared", f"{site}.csv", "--identity", f"{site}.id")
    said = run(
        "study", "exclude", "shared", "west", "--why", "has withdrawn", "--identity", "registry.id"
    )
    assert "next: north, encryptedstats study add" in said.stdout
    for site in SITES[:2]:
        run("study", "add", "shared", f"{site}.csv", "--identity", f"{site}.id")
    share_all(run, SITES[:2])
    opened = run("study", "open", "shared", "--identity", "registry.id")
    shown = opened.stdout
    assert opened.exit_code == 0, (opened.output, opened.exception)
    assert "bayes:" in shown
    assert "80" in shown


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


def test_errors_say_who_is_meant(run: Run, place: Path) -> None:
    assert "no study lies at shared" in the_error(run("study", "status", "shared"))
    assert "two sites or more" in the_error(
        run("study", "create", "shared", "--schema", "schema.json", "--rows", 10, "--site", "north", "--worker", "centre",
            "--receiver", "registry", "--invitations", "sent", "--ask", "masked:bayes=MultinomialNB")
    )  # fmt: skip
    wrong = create(run, "--ask", "masked:bayes")
    assert wrong.exit_code == 2
    assert "NAME=QUESTION" in wrong.output
    create(run, "--ask", "masked:bayes=MultinomialNB")
    join_all(run)
    refused = run("study", "open", "shared", "--identity", "north.id")
    assert "north does not open results: that is for registry" in the_error(refused)
    (place / "none.id").write_text("x")
    assert "is no identity of a study" in the_error(
        run("study", "share", "shared", "--identity", "none.id")
    )
    assert "north does not compute" in the_error(
        run("study", "fit", "shared", "--identity", "north.id")
    )


def test_a_retired_key_takes_nothing_more(run: Run, place: Path) -> None:
    create(run, "--ask", "totals:bayes=MultinomialNB")
    join_all(run)
    assert (
        run(
            "study", "keygen", "shared", "--identity", "registry.id", "--key", "registry.key"
        ).exit_code
        == 0
    )
    why = ("--why", "the laptop was lost")
    assert "north does not retire the key" in the_error(
        run("study", "retire", "shared", "--identity", "north.id", *why)
    )
    assert run("study", "retire", "shared", "--identity", "registry.id", *why).exit_code == 0
    assert "the laptop was lost" in run("study", "status", "shared").stdout
    assert "retired" in the_error(
        run("study", "add", "shared", "north.csv", "--identity", "north.id")
    )


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
