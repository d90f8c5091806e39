"""The part of ``demo forest`` in which nothing is opened but the answer: encrypted patients train a forest that stays encrypted,
encrypted new patients come in, and encrypted votes go out; compared with the votes in the clear to the last one.
"""

from __future__ import annotations

import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pandas as pd
from rich.console import RenderableType
from rich.panel import Panel
from rich.text import Text

import encryptedstats as es
from encryptedstats.cli._console import fact_table, plural, size_text, time_text
from encryptedstats.cli._options import SchemeName
from encryptedstats.cli._stage import Clock, folder_bytes, panel, run_worker

TREES: Final = 10
DEPTH: Final = 2
SEED: Final = 7
BINS: Final = 5
KIND: Final = "mean "  # the variables that take part: the other two thirds are errors and extremes of the same
TABLE: Final = "train.enc"
NEW: Final = "new.enc"
FOREST: Final = "closed.enc"
VOTES: Final = "votes.enc"


@dataclass(frozen=True)
class Closed:
    """What happened."""

    plan: es.Plan
    variables: int
    table_bytes: int
    commands: list[list[str]]
    fitted: dict[str, Any]  # what the worker's commands reported
    predicted: dict[str, Any]
    seconds: dict[str, float]
    votes: Any  # opened
    clear: Any  # the votes of the same forest in the clear
    right: int  # predictions that are right

    @property
    def exact(self) -> bool:
        """Whether every vote is that of the forest in the clear."""
        return bool(self.votes.to_numpy().tolist() == self.clear.to_numpy().tolist())

    def facts(self) -> dict[str, Any]:
        """Ready for JSON; without the names of files, which are gone by now."""
        return {
            "exact": self.exact,
            "rows": len(self.votes),
            "right": self.right,
            "commands": [shlex.join(["encryptedstats", *words]) for words in self.commands],
            "fitted": {name: value for name, value in self.fitted.items() if name != "file"},
            "predicted": {name: value for name, value in self.predicted.items() if name != "file"},
            "seconds": self.seconds,
            "plan": self.plan.to_dict(),
        }


def play(
    folder: Path, scheme: SchemeName, train: pd.DataFrame, test: pd.DataFrame, target: str, trees: int = TREES
) -> Closed:
    """Let owner and worker do their work, in folders of their own under ``folder``."""
    home, work = folder / "owner", folder / "worker"
    for place in (home, work):
        place.mkdir(parents=True)
    names = [name for name in train.columns if name.startswith(KIND)]
    train, new = train[[*names, target]], test[names]
    seconds: dict[str, float] = {}
    trees = min(trees, TREES)
    forest = es.CompletelyRandomForest(n_trees=trees, depth=DEPTH, random_state=SEED)

    # the owner
    schema = es.Schema.infer(train, target=target, bins=BINS)
    with Clock(seconds, "plan"):
        plan = es.plan(forest, schema, len(train), len(new), encrypted_prediction=True, scheme=scheme.value)
    with Clock(seconds, "keys"):
        owner = es.Owner(plan)
    with Clock(seconds, "encrypt"):
        owner.encrypt(schema.table(train)).save(work / TABLE)
        owner.encrypt(schema.table(new)).save(work / NEW)

    # the worker, who has two tables and no secret key
    growth = ["--trees", str(trees), "--depth", str(DEPTH), "--seed", str(SEED)]
    fit = ["fit", TABLE, "-o", FOREST, "--model", "forest", *growth]
    predict = ["predict", FOREST, NEW, "-o", VOTES]
    fitted, predicted = run_worker(fit, work), run_worker(predict, work)

    # the owner again, who gets the votes and never the forest
    shutil.copyfile(work / VOTES, home / VOTES)
    with Clock(seconds, "open"):
        votes = owner.decrypt(es.load(home / VOTES, owner.public_keys()), schema=schema)
    with Clock(seconds, "clear"):
        clear = forest.fit(schema.table(train)).predict_votes(new)
    right = int((votes.predict().to_numpy() == test[target].to_numpy()).sum())
    size = folder_bytes(work / TABLE)
    return Closed(plan, len(names), size, [fit, predict], fitted, predicted, seconds, votes, clear, right)


def closed_panel(story: Closed) -> Panel:
    """What is told of it."""
    planned, rows = dict(story.plan.rows()), len(story.votes)
    ready = f"{story.plan.layout.n_rows:,} patients, {plural(story.variables, 'variable')}, and {rows} new ones without diagnosis"
    commands = "\n".join(f"encryptedstats {shlex.join(words)}" for words in story.commands)
    if story.exact:
        same = f": all {plural(story.votes.size, 'vote count')} are those of the same forest in the clear"
        verdict = Text.assemble(("exact", "bold green"), same)
    else:
        verdict = Text("DIFFERS from the votes in the clear", style="bold red")
    facts: list[tuple[str, RenderableType]] = [
        (
            "owner",
            f"encrypts {ready}: {TABLE}, {size_text(story.table_bytes)}, in {time_text(story.seconds['encrypt'])}",
        ),
        ("plan", f"{planned['scheme']}; {planned['depth']}"),
        ("technique", planned["technique"]),
        ("worker", Text(commands, style="cyan")),
        (
            "took",
            f"{time_text(story.fitted['seconds'])} to fit, {time_text(story.predicted['seconds'])} to predict, opening nothing",
        ),
        ("owner", f"opens {VOTES}, {size_text(story.predicted['bytes'])}, in {time_text(story.seconds['open'])}"),
        ("votes", verdict),
        ("predicted", f"{story.right} of {rows} right, by a forest that nobody has ever seen"),
    ]
    return panel("4  The forest that stays closed: encrypted rows in, encrypted votes out", "blue", fact_table(facts))
