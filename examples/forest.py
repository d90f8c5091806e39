"""A hospital has a forest fitted by a computer that must not see its patients: ``make demo``, or
``python examples/forest.py``.

The owner is this process. The worker is another one, with a folder of its own that holds the
encrypted table and no secret key. The opened forest is compared with the same fit in the clear,
count by count. The patients are those that scikit-learn ships.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split

import encryptedstats as es
from encryptedstats.storage import container
from encryptedstats.words import size_text, time_text

TARGET, SEED, DEPTH = "diagnosis", 7, 3
#: Columns of a screen that is not wide.
WIDTH = 100
#: The case study of the paper: 547 rows of 9 variables.
THEN = "in the paper of 2015: 13.8 GB, and 96 minutes on 1,152 cores"

WORKER = """\
import sys
import encryptedstats as es

table = es.load("patients.enc")
forest = es.CompletelyRandomForest({trees}, {depth}, random_state={seed})
forest.fit(table, progress=False).save("forest.enc")
"""


def main(arguments: list[str] | None = None) -> int:
    """Play it through and tell it; return 0 if every count is exact."""
    parser = argparse.ArgumentParser(
        description="An owner encrypts, a worker fits a forest, the owner opens it."
    )
    parser.add_argument("--trees", type=int, default=100, help="number of trees")
    parser.add_argument("--folder", type=Path, help="keep all files there, to look at")
    parser.add_argument(
        "--picture", type=Path, default=Path("out", "demo", "forest.png"), help="where it goes"
    )
    options = parser.parse_args(arguments)
    if options.folder is not None and (options.folder / "owner").exists():
        parser.error(f"{options.folder} was played in before: name another folder")
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="encryptedstats-") as place:
        folder = options.folder or Path(place)
        home, work = folder / "owner", folder / "worker"
        for party in (home, work):
            party.mkdir(parents=True)
        is_exact = play(home, work, options)
    print(f"\n{'Every count is exact' if is_exact else 'A count DIFFERS'}; "
          f"{time_text(time.perf_counter() - started)} in all. Picture: {options.picture}")  # fmt: skip
    print("Next: docs/tutorials/first_model.md, step by step; or `encryptedstats app`, your own")
    print("table in the browser (pip install '.[app]').")
    return 0 if is_exact else 1


def play(home: Path, work: Path, options: argparse.Namespace) -> bool:
    """Let the owner encrypt, the worker fit and the owner open; return whether all is exact."""
    train, test = patients()
    forest = es.CompletelyRandomForest(options.trees, DEPTH, random_state=SEED)
    schema = es.Schema.infer(train, target=TARGET)
    rows = schema.table(train)
    plan = es.plan(forest, rows)
    owner = es.Owner(plan)
    owner.save(home / "secret.key")
    _, seconds = timed(lambda: owner.encrypt(rows, progress=False).save(work / "patients.enc"))

    sizes = train[TARGET].value_counts()
    say("OWNER", f"has {len(train)} patients: {sizes['malignant']} malignant, {sizes['benign']} "
        f"benign, and {len(schema.variables)} measurements of each")  # fmt: skip
    say(
        "",
        f"plans {options.trees} trees: {plan.security} bits of security, {plan.n_totals:,} totals",
    )
    say("", f"encrypts: {size(work)} in {time_text(seconds)}")

    _, seconds = timed(lambda: worker(work, options.trees))
    table = es.load(work / "patients.enc")
    first, last = table.schema.variables[0], table.schema.variables[-1]
    say("WORKER", "is another process, with the encrypted table and the public keys")
    say("", f"sees {first.id} to {last.id}, {first.n_bins} bins each; {table.schema.n_classes} "
        f"classes; {table.n_rows} rows of {glimpse(work)} ...")  # fmt: skip
    say("", f"fits in {time_text(seconds)}, Python's start included, and returns "
        f"{size(work / 'forest.enc')} that it cannot read")  # fmt: skip
    say("", f"({THEN})")

    opened = owner.open(work / "forest.enc", schema)
    clear = clone(forest).fit(rows)
    counts = opened.leaf_counts_.size
    is_exact = bool(np.array_equal(opened.leaf_counts_, clear.leaf_counts_))
    say("OWNER", f"opens it: {verdict(is_exact, counts)}")
    plain = RandomForestClassifier(options.trees, max_depth=DEPTH, random_state=SEED)
    plain.fit(train.drop(columns=TARGET), train[TARGET])
    say("", f"on {len(test)} other patients the forest has an AUC of {auc(opened, test):.3f}; "
        f"scikit-learn's, fitted in the clear, {auc(plain, test):.3f}")  # fmt: skip
    say("", "The worker never saw a name, a cut point, a value, a count or the secret key.")
    draw({"fitted encrypted": opened, "scikit-learn's random forest": plain}, test, options.picture)
    return is_exact


def patients() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return rows to train with and rows to test with."""
    data = load_breast_cancer(as_frame=True)
    frame = data.data.assign(**{TARGET: data.target_names[data.target]})
    train, test = train_test_split(frame, test_size=0.2, stratify=frame[TARGET], random_state=SEED)
    return train, test


def worker(folder: Path, trees: int) -> None:
    """Fit the forest in another process, whose folder holds encrypted files only."""
    program = WORKER.format(trees=trees, depth=DEPTH, seed=SEED)
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no message"]
        sys.exit(f"the worker failed: {lines[-1]}")


def glimpse(folder: Path) -> str:
    """Return some bytes of the encrypted rows."""
    block = next((folder / "patients.enc" / "blocks").iterdir())
    longest = max(container.read(block).sections.values(), key=len)
    return longest[:8].hex(" ", 2)


def draw(models: dict[str, Any], test: pd.DataFrame, path: Path) -> None:
    """Draw a tree with its counts, and ROC curves on the test rows."""
    from matplotlib.figure import Figure

    from encryptedstats.plots import plot_roc, plot_tree

    figure = Figure(figsize=(16, 5.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[2.5, 1])
    opened = models["fitted encrypted"]
    plot_tree(opened, int(opened.leaf_counts_.max(axis=2).sum(axis=1).argmax()), ax=left)
    left.set_title("The tree that separates the classes best, counted under encryption", loc="left")
    plot_roc(models, test.drop(columns=TARGET), test[TARGET], ax=right)
    right.set_title(f"{len(test)} patients that no forest has seen", loc="left")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def auc(model: Any, test: pd.DataFrame) -> float:
    """Return the area under the ROC curve on the test rows."""
    shares = model.predict_proba(test.drop(columns=TARGET))
    column = list(model.classes_).index("malignant")
    return float(roc_auc_score(test[TARGET] == "malignant", shares[:, column]))


def timed(action: Any) -> tuple[Any, float]:
    """Return the result of an action and the seconds that it took."""
    started = time.perf_counter()
    return action(), time.perf_counter() - started


def size(path: Path) -> str:
    """Return the size of a file, or of all files in a folder, as text."""
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return size_text(sum(file.stat().st_size for file in files))


def say(who: str, text: str) -> None:
    """Print a line of the story."""
    start = "\n" if who else ""
    head = f"{who:8}"
    print(start + textwrap.fill(text, WIDTH, initial_indent=head, subsequent_indent=" " * 8))


def verdict(is_exact: bool, counts: int) -> str:
    """Return what the comparison with the clear fit says."""
    if is_exact:
        return f"all {counts:,} counts are exactly those of the fit in the clear"
    return f"some of {counts:,} counts are NOT those of the fit in the clear"


if __name__ == "__main__":
    sys.exit(main())
