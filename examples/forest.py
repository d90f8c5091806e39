"""A hospital has a forest fitted by a computer that must not see its patients: ``make demo``, or
``python examples/forest.py``.

The owner is this process. The worker is another one, in a folder of its own, which has an encrypted
table and no secret key. What it gives back is held against the same fit in the clear, to the last
count. Patients are those that scikit-learn ships.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split

import encryptedstats as es
from encryptedstats.storage import container
from encryptedstats.words import plural, size_text, time_text

TARGET, SEED, DEPTH = "diagnosis", 7, 3
# Section 5.4 of the paper, the case study: what the same counts took in May 2015.
PAPER = {
    "breast cancer data": "Wisconsin, original: 9 variables, 547 rows",
    "encrypted data": "13.8 GB",
    "machine": "1,152 cores in 36 machines",
    "fit": "96 min",
    "encrypted forest": "868 MB",
    "rent": "US$ 23.86",
}
SCREEN = Console()
CONSOLE = Console(width=min(SCREEN.width, 120) if SCREEN.is_terminal else 120, highlight=False)
T = TypeVar("T")


def main(arguments: list[str] | None = None) -> int:
    """Play it through and tell it; 0 if every count is exact."""
    parser = argparse.ArgumentParser(
        description="An owner encrypts, a worker fits forests blindly, the owner opens."
    )
    parser.add_argument("--trees", type=int, default=100, help="of the first forest")
    parser.add_argument(
        "--scheme",
        choices=["bgv", "bfv"],
        default="bgv",
        help="BFV is that of the paper, and slower",
    )
    parser.add_argument(
        "--folder",
        type=Path,
        help="keep all files there, to look at; by default they go away again",
    )
    parser.add_argument(
        "--picture", type=Path, default=Path("out", "demo", "forest.png"), help="where it goes"
    )
    options = parser.parse_args(arguments)
    if options.folder is not None and (options.folder / "owner").exists():
        parser.error(f"{options.folder} was played in before: name another folder")
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="encryptedstats-") as place:
        folder = options.folder or Path(place)
        home, work = (folder / name for name in ("owner", "worker"))
        for party in (home, work):
            party.mkdir(parents=True)
        train, test = patients()
        told, opened, exact = opened_forest(home, work, train, test, options)
        exact &= closed_forest(work, train, test, options)
        beside_the_paper(work, told, train, len(opened.trees_))
        what_the_worker_saw(work)
    took = f"{time.perf_counter() - started:.1f} s in all."
    CONSOLE.print(
        f"\n[bold green]Every result is exact.[/] {took}"
        if exact
        else "\n[bold red]A result DIFFERS.[/]"
    )
    return 0 if exact else 1


def patients() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows to train with and rows to test with."""
    data = load_breast_cancer(as_frame=True)
    frame = data.data.assign(**{TARGET: data.target_names[data.target]})
    train, test = train_test_split(frame, test_size=0.2, stratify=frame[TARGET], random_state=SEED)
    return train, test


def opened_forest(
    home: Path, work: Path, train: pd.DataFrame, test: pd.DataFrame, options: argparse.Namespace
) -> tuple[dict[str, Any], Any, bool]:
    """A forest that the worker fits and the owner opens: what the worker told, the forest, and
    whether it is exact.
    """
    title("1  OWNER plans, makes keys, encrypts")
    forest = es.CompletelyRandomForest(
        n_trees=options.trees, depth=DEPTH, fraction=8, random_state=SEED
    )
    schema = es.Schema.infer(train, target=TARGET)
    rows = schema.table(train)
    plan = es.plan(forest, rows, scheme=options.scheme)
    owner = es.Owner(plan)
    owner.save(home / "secret.key")
    _, seconds = timed(lambda: owner.encrypt(rows).save(work / "patients.enc"))
    planned, sizes = dict(plan.rows()), train[TARGET].value_counts()
    say(
        "data",
        f"{len(train)} patients: {sizes['malignant']} malignant, {sizes['benign']} benign; "
        f"{len(test)} for testing",
    )
    say("plan", f"{planned['scheme']}; {plan.security} bits of security")
    say("", f"the worker will need {planned['work']}")
    say(
        "encrypts",
        f"{len(schema.variables)} variables into {plan.n_columns} ciphertexts, {size(work)}, in "
        f"{time_text(seconds)}",
    )

    title("2  WORKER, a process of its own, fits a forest to what it cannot read")
    growth = f"--trees {options.trees} --depth {DEPTH} --fraction 8 --seed {SEED}"
    told = worker(work, f"fit patients.enc -o forest.enc --model forest {growth}")
    say("took", time_text(told["seconds"]))
    say(
        "gives back",
        f"forest.enc, {size(work / 'forest.enc')}: {told['totals']:,} counts that it cannot read "
        "either",
    )

    title("3  OWNER opens the forest")
    opened = owner.open(work / "forest.enc", schema)
    clear, seconds = timed(lambda: clone(forest).fit(rows))
    plain, plain_seconds = timed(
        lambda: RandomForestClassifier(options.trees, max_depth=DEPTH, random_state=SEED).fit(
            train.drop(columns=TARGET), train[TARGET]
        )
    )
    exact = bool(np.array_equal(opened.leaf_counts_, clear.leaf_counts_))
    say(
        "forest", verdict(exact, f"all {told['totals']:,} counts are those of the fit in the clear")
    )
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in (f"on the {len(test)} test rows", "AUC", "fitted in"):
        table.add_column(name)
    table.add_row(
        "completely random forest, fitted encrypted", auc(opened, test), time_text(told["seconds"])
    )
    table.add_row("the same forest, fitted in the clear", auc(clear, test), time_text(seconds))
    table.add_row(
        "scikit-learn's random forest, in the clear", auc(plain, test), time_text(plain_seconds)
    )
    CONSOLE.print(table)
    say("mind", "that this is one split of the data: a hundredth of AUC is chance")
    say(
        "picture",
        draw(
            {"fitted encrypted": opened, "scikit-learn's random forest": plain},
            test,
            options.picture,
        ),
    )
    return told, opened, exact


def closed_forest(
    work: Path, train: pd.DataFrame, test: pd.DataFrame, options: argparse.Namespace
) -> bool:
    """A smaller forest that nobody ever opens: encrypted rows in, encrypted votes out. Whether
    every vote is exact.
    """
    title("4  The forest that stays closed: encrypted rows in, encrypted votes out")
    names = [name for name in train.columns if name.startswith("mean ")]
    forest = es.CompletelyRandomForest(n_trees=min(options.trees, 10), depth=2, random_state=SEED)
    schema = es.Schema.infer(train[[*names, TARGET]], target=TARGET)
    rows, new = schema.table(train), schema.table(test[names])
    plan = es.plan(
        forest, rows, n_predict=len(new), encrypted_prediction=True, scheme=options.scheme
    )
    owner = es.Owner(plan)
    owner.encrypt(rows).save(work / "train.enc")
    owner.encrypt(new).save(work / "new.enc")
    say(
        "owner",
        f"encrypts {len(rows)} patients, {len(names)} variables, and {len(new)} new ones without "
        "diagnosis",
    )
    growth = f"--trees {forest.n_trees} --depth 2 --seed {SEED}"
    fitted = worker(work, f"fit train.enc -o closed.enc --model forest {growth}")
    predicted = worker(work, "predict closed.enc new.enc -o votes.enc")
    say(
        "took",
        f"{time_text(fitted['seconds'])} to fit, {time_text(predicted['seconds'])} to predict, "
        "opening nothing",
    )
    votes = owner.open(work / "votes.enc", schema)
    clear = clone(forest).fit(rows).predict_votes(test[names])
    exact = bool(np.array_equal(votes.to_numpy(), clear.to_numpy()))
    say(
        "votes",
        verdict(exact, f"all {votes.size} vote counts are those of the same forest in the clear"),
    )
    right = int((votes.predict().to_numpy() == test[TARGET].to_numpy()).sum())
    say("predicted", f"{right} of {len(new)} right, by a forest that nobody has ever seen")
    return exact


def beside_the_paper(work: Path, told: dict[str, Any], train: pd.DataFrame, trees: int) -> None:
    """The same work in 2015."""
    title("5  Beside the paper (Aslett, Esperança and Holmes)")
    here = {
        "breast cancer data": f"Wisconsin, diagnostic: {train.shape[1] - 1} variables, {len(train)} rows",
        "encrypted data": size(work / "patients.enc"),
        "machine": "this one",
        "fit": time_text(told["seconds"]),
        "encrypted forest": size(work / "forest.enc"),
        "rent": "none",
    }
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("", "here", "the paper, 2015"):
        table.add_column(name)
    for name, then in PAPER.items():
        table.add_row(name, here[name], then, style="bold" if name == "fit" else "")
    CONSOLE.print(table)
    say(
        "mind",
        f"that the data sets are relatives and not the same; {plural(trees, 'tree')} here, 100 "
        "there, of depth 3",
    )


def what_the_worker_saw(work: Path) -> None:
    """Its files, and what can be read in them."""
    title("What the worker saw")
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("file", "size", "what it is", "begins with"):
        table.add_column(name, no_wrap=True)
    for path in sorted(path for path in work.rglob("*") if path.is_file()):
        file = container.read(path)
        name = path.relative_to(work).as_posix()
        longest = max(file.sections.values(), key=len)
        begins = (
            longest[:12].hex(" ", 2)
            if b"\0" in longest
            else " ".join(longest[:32].decode(errors="replace").split())
        )
        table.add_row(
            name if len(name) < 36 else f"{name[:24]}...{name[-9:]}",
            size(path),
            file.kind,
            f"{begins} ...",
        )
    CONSOLE.print(table)
    schema = es.load(work / "patients.enc").schema
    first, last = schema.variables[0], schema.variables[-1]
    say(
        "it also saw",
        f"numbers of rows; {schema.n_classes} classes, which it knows as class 0 and class 1",
    )
    say("", f"{first.id} to {last.id}: {first.kind}, {first.n_bins} bins")
    say("", "the growth: which variable each node asks for, and where it cuts, by number")
    say(
        "never saw",
        "[green]names such as 'mean radius' or 'malignant', cut points, numbers of patients in a "
        "class or a bin",
    )
    say(
        "", "[green]any value of any patient, any count of a forest, any prediction; the secret key"
    )


def worker(folder: Path, command: str) -> dict[str, Any]:
    """Run the program in the worker's folder, as a process that is told nothing but the command."""
    say("runs", f"[cyan]encryptedstats {command}")
    words = [sys.executable, "-m", "encryptedstats.cli", *shlex.split(command), "--json"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(
            f"the worker failed: {(done.stderr.strip().splitlines() or ['it said nothing'])[-1]}"
        )
    facts: dict[str, Any] = json.loads(done.stdout)
    return facts


def draw(models: dict[str, Any], test: pd.DataFrame, path: Path) -> str:
    """A tree with its counts, and ROC curves on the test rows; where they are."""
    from matplotlib.figure import Figure

    from encryptedstats.plots import plot_roc, plot_tree

    figure = Figure(figsize=(16, 5.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[2.5, 1])
    opened = models["fitted encrypted"]
    plot_tree(opened, int(opened.leaf_counts_.max(axis=2).sum(axis=1).argmax()), ax=left)
    left.set_title(
        "The tree that tells the classes apart best: grown blindly, counted under encryption",
        loc="left",
    )
    plot_roc(models, test.drop(columns=TARGET), test[TARGET], ax=right)
    right.set_title(f"{len(test)} patients that no forest has seen", loc="left")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    return str(path)


def auc(model: Any, test: pd.DataFrame) -> str:
    """Area under the ROC curve on the test rows."""
    shares = model.predict_proba(test.drop(columns=TARGET))[
        :, list(model.classes_).index("malignant")
    ]
    return f"{roc_auc_score(test[TARGET] == 'malignant', shares):.4f}"


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """What some work gives, and the seconds that it took."""
    started = time.perf_counter()
    return work(), time.perf_counter() - started


def size(path: Path) -> str:
    """Of a file, or of all in a folder."""
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return size_text(sum(file.stat().st_size for file in files))


def title(text: str) -> None:
    """A part of the story begins."""
    CONSOLE.print()
    CONSOLE.rule(f"[bold]{text}", align="left")


def say(what: str, text: str) -> None:
    """One line of it."""
    CONSOLE.print(f"[dim]{what:<12}[/]{text}")


def verdict(exact: bool, words: str) -> str:
    """What is said of a comparison."""
    return f"[bold green]exact[/]: {words}" if exact else "[bold red]DIFFERS[/] from the clear"


if __name__ == "__main__":
    sys.exit(main())
