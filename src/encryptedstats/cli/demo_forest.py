"""``demo forest``: an owner encrypts the breast cancer data that scikit-learn ships, a process that has the encrypted table and
nothing else fits a forest, and the owner opens it: compared with the fit in the clear to the last count, and with the paper. A
second forest stays closed (``demo_closed``).
"""

from __future__ import annotations

import io
import json
import shlex
import shutil
import tempfile
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from rich.console import Console, RenderableType
from rich.panel import Panel
from rich.text import Text

import encryptedstats as es
from encryptedstats.cli import demo_closed
from encryptedstats.cli._console import fact_table, plural, progress, size_text, time_text
from encryptedstats.cli._files import write_parts
from encryptedstats.cli._frames import plain_table
from encryptedstats.cli._options import SchemeName
from encryptedstats.cli._stage import Clock, file_size, folder_bytes, panel, run_worker
from encryptedstats.parallel import cores
from encryptedstats.storage import container
from encryptedstats.tables.encrypted import TABLE_KIND

TREES: Final = 100
DEPTH: Final = 3
FRACTION: Final = 8
SEED: Final = 7
BINS: Final = 5
TARGET: Final = "diagnosis"
TABLE: Final = "patients.enc"
FOREST: Final = "forest.enc"
SECRET_KEY: Final = "secret.key"
_BYTES_SHOWN: Final = 12

# Section 5.4 of the paper, the case study: what the same counts took in May 2015.
_PAPER: Final = {
    "data": "Wisconsin, original: 9 variables",
    "rows": "547",
    "security": "about 158 bits, by the bounds of 2011",
    "table": "13.8 GB",
    "machine": "1,152 cores in 36 machines",
    "time": "96 min",
    "forest": "868 MB",
    "cost": "US$ 23.86",
}


@dataclass(frozen=True)
class Story:
    """What happened: everything the demo tells afterwards."""

    train: pd.DataFrame
    test: pd.DataFrame
    schema: es.Schema
    plan: es.Plan
    folders: dict[str, Path]
    seconds: dict[str, float]
    fitted: dict[str, Any]  # what the worker's command reported
    command: list[str]
    forests: dict[str, Any]  # opened, clear, and scikit-learn's
    closed: demo_closed.Closed  # the forest that is never opened

    @property
    def exact(self) -> bool:
        """Whether the opened forest is the clear one, to the last count."""
        opened, clear = self.forests["opened"], self.forests["clear"]
        return bool(
            list(opened.totals_) == list(clear.totals_) and np.array_equal(opened.leaf_counts_, clear.leaf_counts_)
        )

    def auc(self, name: str) -> float:
        """Area under the ROC curve on the test rows."""
        from sklearn.metrics import roc_auc_score

        model, rows = self.forests[name], self.test.drop(columns=TARGET)
        position = list(model.classes_).index("malignant")
        return float(roc_auc_score(self.test[TARGET] == "malignant", model.predict_proba(rows)[:, position]))


def run(
    console: Console, scheme: SchemeName, picture: Path, trees: int = TREES, *, force: bool = False
) -> dict[str, Any]:
    """Play the story, draw the picture and tell it all; returns what happened, ready for JSON."""
    with tempfile.TemporaryDirectory(prefix="encryptedstats-demo-") as folder:
        with progress("owner and worker are busy"):
            story = play(Path(folder), scheme, trees)
            drawn = draw(story, picture, force=force)
        tell(console, story, picture if drawn else None)
        return _facts(story, picture if drawn else None)


def _facts(story: Story, picture: Path | None) -> dict[str, Any]:
    return {
        "exact": story.exact and story.closed.exact,
        "rows": len(story.train),
        "test_rows": len(story.test),
        "table_bytes": _folder_bytes(story),
        "command": shlex.join(["encryptedstats", *story.command]),
        "fitted": {name: value for name, value in story.fitted.items() if name != "file"},  # which is gone by now
        "auc": {name: story.auc(name) for name in story.forests},
        "seconds": story.seconds,
        "plan": story.plan.to_dict(),
        "closed": story.closed.facts(),
        "picture": None if picture is None else str(picture),
    }


def patients() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows to train with and rows to test with."""
    from sklearn.datasets import load_breast_cancer
    from sklearn.model_selection import train_test_split

    data = load_breast_cancer(as_frame=True)
    frame = data.data.assign(**{TARGET: data.target_names[data.target]})
    train, test = train_test_split(frame, test_size=0.2, stratify=frame[TARGET], random_state=SEED)
    return train, test


def play(folder: Path, scheme: SchemeName = SchemeName.bgv, trees: int = TREES) -> Story:
    """Let owner and worker do their work, in folders of their own under ``folder``."""
    home, work = folders = (folder / "owner", folder / "worker")
    for place in folders:
        place.mkdir()
    seconds: dict[str, float] = {}
    model = es.CompletelyRandomForest(n_trees=trees, depth=DEPTH, fraction=FRACTION, random_state=SEED)

    # the owner
    train, test = patients()
    schema = es.Schema.infer(train, target=TARGET, bins=BINS)
    with Clock(seconds, "plan"):
        plan = es.plan(model, schema, len(train), scheme=scheme.value)
    with Clock(seconds, "keys"):
        owner = es.Owner(plan.parameters)
    owner.save(home / SECRET_KEY)
    with Clock(seconds, "encrypt"):
        owner.encrypt(schema.table(train)).save(home / TABLE)

    # the worker, who gets the folder of the table
    shutil.copytree(home / TABLE, work / TABLE)
    growth = ["--trees", str(trees), "--depth", str(DEPTH), "--fraction", str(FRACTION), "--seed", str(SEED)]
    command = ["fit", TABLE, "-o", FOREST, "--model", "forest", *growth]
    fitted = run_worker(command, work)

    # the owner again, who gets the forest back
    shutil.copyfile(work / FOREST, home / FOREST)
    with Clock(seconds, "open"):
        opened = owner.decrypt(es.load(home / FOREST, owner.public_keys()), schema=schema)
    with Clock(seconds, "clear"):
        clear = model.fit(schema.table(train))
    with Clock(seconds, "plain"):
        plain = _plain_forest(trees).fit(train.drop(columns=TARGET), train[TARGET])
    forests = {"opened": opened, "clear": clear, "plain": plain}
    places = {"owner": home, "worker": work}
    closed = demo_closed.play(folder / "closed", scheme, train, test, TARGET, trees)
    return Story(train, test, schema, plan, places, seconds, fitted, command, forests, closed)


def _plain_forest(trees: int) -> Any:
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(trees, max_depth=DEPTH, random_state=SEED)


# -- the picture -----------------------------------------------------------------------------------------------------


def draw(story: Story, path: Path, *, force: bool = False) -> bool:
    """A tree with its counts, and ROC curves on the test rows; False where matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    from encryptedstats.plots import plot_roc, plot_tree

    figure = Figure(figsize=(16, 5.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[2.5, 1])
    opened = story.forests["opened"]
    best = int(opened.leaf_counts_.max(axis=2).sum(axis=1).argmax())
    plot_tree(opened, best, ax=left)
    which = f"The tree of {len(opened.trees_)} that tells the classes apart best"
    left.set_title(
        f"{which}: grown blindly, counted under encryption, {len(story.train)} patients", loc="left", fontsize=11
    )
    names = {"fitted encrypted": "opened", "scikit-learn's random forest": "plain"}
    curves = {name: story.forests[key] for name, key in names.items()}
    plot_roc(curves, story.test.drop(columns=TARGET), story.test[TARGET], ax=right)
    right.set_title(f"{len(story.test)} patients that no forest has seen", loc="left", fontsize=11)
    path.parent.mkdir(parents=True, exist_ok=True)
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=110)
    write_parts(path, [content.getvalue()], force=force, private=False)  # these patients are public
    return True


# -- telling it ------------------------------------------------------------------------------------------------------


def tell(console: Console, story: Story, picture: Path | None) -> None:
    """Print the story."""
    for part in (_owner_panel(story), _worker_panel(story), _opened_panel(story, picture)):
        console.print(part)
    console.print(demo_closed.closed_panel(story.closed))
    console.print(_paper_panel(story))
    console.print(_seen_panel(story))


def _owner_panel(story: Story) -> Panel:
    train, schema, seconds = story.train, story.schema, story.seconds
    sizes = train[TARGET].value_counts()
    n_bins = sum(variable.n_bins for variable in schema.variables)
    planned = dict(story.plan.rows())
    rows: list[tuple[str, RenderableType]] = [
        (
            "data",
            f"{len(train)} patients: {sizes['malignant']} malignant, {sizes['benign']} benign "
            f"({len(story.test)} more are kept for testing)",
        ),
        ("schema", f"{plural(len(schema.variables), 'variable')}, each cut into {BINS} bins: {n_bins} bins"),
        ("plan", f"in {time_text(seconds['plan'])}: {planned['scheme']}"),
        ("", f"{story.plan.security} bits of security; {planned['depth']}"),
        ("", f"the worker will need {planned['work']}"),
        (
            "keys",
            f"made in {time_text(seconds['keys'])}: the secret one, {_size(story, 'owner', SECRET_KEY)}, stays here",
        ),
        (
            "encrypts",
            f"{len(train) * (n_bins + schema.n_classes):,} values into {plural(story.plan.n_columns, 'ciphertext')} "
            f"in {time_text(seconds['encrypt'])}: {TABLE}, {size_text(_folder_bytes(story))}",
        ),
    ]
    return panel("1  OWNER plans, makes keys, encrypts", "magenta", fact_table(rows))


def _worker_panel(story: Story) -> Panel:
    fitted = story.fitted
    rows: list[tuple[str, RenderableType]] = [
        ("has", f"{TABLE}, and no secret key"),
        ("runs", Text(f"encryptedstats {shlex.join(story.command)}", style="cyan")),
        ("took", f"{time_text(fitted['seconds'])} on {plural(cores(), 'core')}"),
        (
            "gives back",
            f"{FOREST}, {size_text(fitted['bytes'])}: {plural(fitted['totals'], 'count')} "
            f"in {plural(fitted['ciphertexts'], 'ciphertext')}",
        ),
    ]
    title = "2  WORKER, a process of its own, fits a forest to what it cannot read"
    return panel(title, "blue", fact_table(rows))


def _opened_panel(story: Story, picture: Path | None) -> Panel:
    opened = story.forests["opened"]
    if story.exact:
        same = f": all {plural(len(opened.totals_), 'count')} are those of the fit in the clear"
        verdict = Text.assemble(("exact", "bold green"), same)
    else:
        verdict = Text("DIFFERS from the fit in the clear", style="bold red")
    table = plain_table()
    table.add_column(f"on the {len(story.test)} test rows")
    for title in ("AUC", "fitted in"):
        table.add_column(title, justify="right", no_wrap=True)
    for name, words, seconds in (
        ("opened", "completely random forest, fitted encrypted", story.fitted["seconds"]),
        ("clear", "the same forest, fitted in the clear", story.seconds["clear"]),
        ("plain", "scikit-learn's RandomForestClassifier, in the clear", story.seconds["plain"]),
    ):
        table.add_row(words, f"{story.auc(name):.4f}", time_text(seconds), style="bold" if name == "opened" else "")
    ranked = np.argsort(-opened.feature_importances_, kind="stable")[:3]
    speaking = ", ".join(
        f"{story.schema.names[j]} {100 * opened.feature_importances_[j]:.0f} %" for j in ranked.tolist()
    )
    drawn = str(picture) if picture is not None else "none: matplotlib is missing, pip install 'encryptedstats[plots]'"
    facts: list[tuple[str, RenderableType]] = [
        ("forest", verdict),
        ("importance", speaking),
        ("mind", "that this is one split of the data: a hundredth of AUC is chance"),
        ("picture", Text(drawn, style="bold" if picture is not None else "yellow")),
    ]
    title = f"3  OWNER opens the forest, in {time_text(story.seconds['open'])}"
    return panel(title, "magenta", table, Text(), fact_table(facts))


def _paper_panel(story: Story) -> Panel:
    trees = len(story.forests["opened"].trees_)
    here = {
        "data": f"Wisconsin, diagnostic: {len(story.schema.variables)} variables",
        "rows": str(len(story.train)),
        "security": f"{story.plan.security} bits, by the standard of 2018",
        "table": size_text(_folder_bytes(story)),
        "machine": plural(cores(), "core"),
        "time": time_text(story.fitted["seconds"]),
        "forest": size_text(story.fitted["bytes"]),
        "cost": "none",
    }
    table = plain_table()
    table.add_column("")
    table.add_column("here")
    table.add_column("the paper, 2015")
    names = {
        "data": "breast cancer data",
        "rows": "rows",
        "security": "security",
        "table": "encrypted data",
        "machine": "machine",
        "time": "fit",
        "forest": "encrypted forest",
        "cost": "rent",
    }
    for key, name in names.items():
        table.add_row(Text(name, style="dim"), here[key], _PAPER[key], style="bold" if key == "time" else "")
    note = (
        f"{plural(trees, 'tree')} of depth {DEPTH} here, 100 of depth 3 there. The data sets are relatives and not the same: "
        "scikit-learn ships the later one, with fewer patients and more variables. The paper's forest can also predict "
        "while it is encrypted, as that of part 4 does; the one compared here is packed for its owner to open."
    )
    return panel("5  Beside the paper (Aslett, Esperança and Holmes)", "green", table, Text(), Text(note, style="dim"))


def _seen_panel(story: Story) -> Panel:
    work = story.folders["worker"]
    table = plain_table()
    table.add_column("file", no_wrap=True)
    table.add_column("size", justify="right", no_wrap=True)
    table.add_column("what it is")
    table.add_column("begins with", no_wrap=True, style="dim")
    for path in sorted(path for path in work.rglob("*") if path.is_file()):
        file = container.read(path)
        table.add_row(_short(path.relative_to(work)), file_size(path), file.kind, _first_bytes(file))
    seen = [
        f"{len(story.train)} rows, 2 classes, which it knows as class 0 and class 1",
        _public_variables(story.schema.public()),
        "the growth: which variable each node asks for, and where it cuts, by number",
    ]
    unseen = [
        f"names such as {story.schema.names[0]!r} or 'malignant', cut points, how many patients are in a class or a bin",
        "any value of any patient, any count of the forest, any prediction; the secret key",
    ]
    lists = fact_table(
        [
            ("it also saw", Text("\n".join(seen))),
            ("it never saw", Text("\n".join(unseen), style="green")),
        ]
    )
    return panel("What the worker saw", "cyan", table, Text(), lists)


def _public_variables(schema: es.PublicSchema) -> str:
    """The public schema: ids, kinds and numbers of bins."""
    kinds = json.loads(schema.to_json())["variables"]
    texts = []
    for what, group in groupby(kinds, key=lambda variable: (variable["kind"], variable["n_bins"])):
        ids = [variable["id"] for variable in group]
        texts.append(f"{ids[0]} to {ids[-1]}: {what[0]}, {what[1]} bins")
    return "; ".join(texts)


def _first_bytes(file: container.Container) -> str:
    """Where its ciphertexts begin, in hexadecimal; of other files the longest part, as text where it is some."""
    longest = max(file.sections, key=lambda name: len(file.sections[name]))
    data = file.section("residues" if "residues" in file.sections else longest)
    if file.kind == TABLE_KIND:
        return " ".join(data[:80].decode(errors="replace").split())[: 2 * _BYTES_SHOWN + 5] + " ..."
    return data[:_BYTES_SHOWN].hex(" ", 2) + " ..."


def _short(path: Path) -> str:
    text = path.as_posix()
    return text if len(text) <= 34 else f"{text[:22]}...{text[-9:]}"


def _folder_bytes(story: Story) -> int:
    return folder_bytes(story.folders["owner"] / TABLE)


def _size(story: Story, party: str, name: str) -> str:
    return file_size(story.folders[party] / name)
