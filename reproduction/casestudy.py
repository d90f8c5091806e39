"""``casestudy``: the case study of the paper (section 5.4), done again on a local cluster, and then
as it should be done today.

The owner is this process: it encrypts, waits, and opens. The cluster is another process with
workers of its own, which has the folder of the encrypted table and nothing else.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import typer
from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

import encryptedstats as es
from encryptedstats.cli._console import plural, print_json, progress, size_text, time_text
from encryptedstats.cli._options import AsJson
from encryptedstats.machine import cores
from reproduction import datasets

ROWS: Final = 547
SHARD_ROWS: Final = 32
SEEDS: Final = (1, 2)
TREES: Final = 50
DEPTH: Final = 3
TIMEOUT: Final = 3600.0
WIDTH: Final = 100
# What the paper paid for an hour of a core: US$ 23.86 for 1,152 cores for two hours.
PRICE: Final = 23.86 / (1152 * 2)
PAPER: Final = {
    "table": "13.8 GB",
    "encrypt": "16 min (upload)",
    "fit": "1 h 36 min",
    "cores": "1,152",
    "core time": "1,843 h",
    "results of shards": "36, 15.6 GB",
    "both forests": "868 MB",
    "price": "US$ 23.86",
}
DIFFERENCE: Final = (
    "What makes the difference: a ciphertext has room for {slots:,} rows, and a product takes as "
    "long whether it holds three rows "
    "or all of them. The paper kept one number in a ciphertext, so that cutting the table into "
    "shards of 32 rows cost nothing and "
    "gave every machine its share. With rows in the slots, 18 shards are 18 times the data, the "
    "work and the results of one. A "
    "shard today is whole chunks of {slots:,} rows; a table of {rows} rows is a part of one, and "
    "what is left to share out are the "
    "trees."
)


@dataclass(frozen=True)
class Round:
    """What one way of cutting the table took."""

    name: str
    blocks: int
    table_bytes: int
    encrypt_seconds: float
    fit_seconds: float
    workers: int
    shard_results: int
    shard_bytes: int
    model_bytes: int
    exact: bool
    auc: float

    @property
    def core_seconds(self) -> float:
        """Time of all workers."""
        return self.fit_seconds * self.workers

    @property
    def price(self) -> float:
        """At what the paper paid for a core."""
        return self.core_seconds / 3600 * PRICE


def casestudy(
    workers: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="N",
            help="Processes of the cluster.",
            show_default="all cores, 2 at least",
        ),
    ] = max(2, cores()),
    trees: Annotated[
        int, typer.Option(min=1, metavar="N", help="Trees of each of the two sets.")
    ] = TREES,
    as_json: AsJson = False,
) -> None:
    """Do the paper's case study again: Wisconsin original, in shards, on a local cluster; then with
    full chunks.

    547 rows for training, in shards of at most 32 rows; two sets of 50 trees from two seeds, every
    shard handed out for both; opened and compared with the plain fit from the same seeds. It needs
    the data set bcw_o (see datasets) and Dask.

    Examples:
      python -m reproduction casestudy
      python -m reproduction casestudy --workers 8 --json
    """
    with (
        tempfile.TemporaryDirectory(prefix="encryptedstats-") as folder,
        progress("the case study"),
    ):
        rounds, start = run(Path(folder), workers, trees)
    facts = {
        "rounds": [{**asdict(one), "price": one.price} for one in rounds],
        "start_seconds": start,
        "paper": PAPER,
    }
    if as_json:
        print_json(facts)
    else:
        show(rounds, start, trees)
    if not all(one.exact for one in rounds):
        typer.echo(
            "A forest differs from the plain fit: this must not happen, please report it.", err=True
        )
        raise typer.Exit(1)


def run(folder: Path, workers: int, trees: int) -> tuple[list[Round], float]:
    """Both ways of cutting the table, and how long the cluster took to start."""
    train, test, schema = split()
    forest = es.CompletelyRandomForest(trees, DEPTH, fraction=0, random_state=SEEDS[0])
    # A shard of 32 rows takes a whole chunk: keys with room to add so many chunks up.
    shards, slots = -(-ROWS // SHARD_ROWS), es.plan(forest, schema, ROWS).layout.slots
    owner = es.Owner(es.plan(forest, schema, shards * slots, workers=shards))
    rows = schema.table(train)
    places = {"shards of 32 rows": SHARD_ROWS, "full chunks": owner.parameters.slots}
    encrypted = {name: _encrypt(owner, rows, folder / name, size) for name, size in places.items()}
    asked = [
        {
            "table": str(folder / name),
            "trees": trees,
            "depth": DEPTH,
            "rows_per_shard": size,
            "forests": [[seed, str(folder / f"{name} {seed}")] for seed in SEEDS],
        }
        for name, size in places.items()
    ]
    told = _on_cluster({"workers": workers, "rounds": asked})
    rounds = []
    for (name, seconds), one in zip(encrypted.items(), told["rounds"], strict=True):
        outs = [folder / f"{name} {seed}" for seed in SEEDS]
        exact, auc = _opened(owner, schema, outs, rows, test, trees)
        sizes = [path.stat().st_size for path in (folder / name / "blocks").iterdir()]
        models = sum(path.stat().st_size for path in outs)
        results = (one["shard_results"], one["shard_bytes"], models)
        rounds.append(
            Round(
                name, len(sizes), sum(sizes), seconds, one["seconds"], workers, *results, exact, auc
            )
        )
        shutil.rmtree(folder / name)
    return rounds, told["start_seconds"]


def split() -> tuple[Any, Any, es.Schema]:
    """The paper's numbers of rows: 547 for training, 136 to see how well it predicts."""
    from sklearn.model_selection import train_test_split

    data = datasets.load("bcw_o")
    target = str(data.target.name)
    train, test = train_test_split(
        data.table_frame(), train_size=ROWS, stratify=data.target, random_state=0
    )
    return (
        train,
        test,
        es.Schema.infer(train, target=target, kinds=data.kinds),
    )  # quintiles


def _encrypt(owner: es.Owner, rows: es.Table, place: Path, rows_per_block: int) -> float:
    """The table in blocks of so many rows at most; how long it took."""
    started = time.perf_counter()
    parts = [rows[start : start + rows_per_block] for start in range(0, len(rows), rows_per_block)]
    owner.encrypt(parts[0]).save(place)
    for part in parts[1:]:
        es.load(place).append(owner.encrypt(part))
    return time.perf_counter() - started


def _on_cluster(asked: dict[str, Any]) -> Any:
    """What the other process told; it inherits no key and is given none."""
    command = [sys.executable, str(Path(__file__).with_name("casestudy_cluster.py"))]
    try:
        done = subprocess.run(
            command,
            input=json.dumps(asked),
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise es.EncryptedStatsError(
            f"the cluster did not finish in {TIMEOUT:.0f} s: is the machine very busy?"
        ) from None
    if done.returncode != 0:
        raise es.EncryptedStatsError(
            f"the cluster failed: {(done.stderr.strip().splitlines() or ['it said nothing'])[-1]}"
        )
    return json.loads(done.stdout)


def _opened(
    owner: es.Owner, schema: es.Schema, outs: list[Path], rows: es.Table, test: Any, trees: int
) -> tuple[bool, float]:
    """Whether both forests are what the plain fits from their seeds are, and how well they predict
    together.
    """
    from sklearn.metrics import roc_auc_score

    exact, votes = True, np.zeros((len(test), len(schema.classes)))
    for seed, out in zip(SEEDS, outs, strict=True):
        opened = owner.open(es.load(out, keys=owner.public_keys()), schema=schema)
        plain = es.CompletelyRandomForest(trees, DEPTH, fraction=0, random_state=seed).fit(rows)
        exact = exact and list(opened.totals_) == list(plain.totals_)
        votes += opened.decision_votes(test.drop(columns=schema.target))
    score = votes[:, 1] / votes.sum(axis=1)
    return exact, float(roc_auc_score(test[schema.target] == schema.classes[1], score))


# -- showing
# ------------------------------------------------------------------------------------------------


def show(rounds: list[Round], start: float, trees: int) -> None:
    """A table beside the paper's figures, and what makes the difference."""
    console = Console()
    console = Console(width=min(console.width, WIDTH) if console.is_terminal else WIDTH)
    table = Table(box=box.SIMPLE_HEAD, title="The case study of section 5.4", title_justify="left")
    table.add_column("")
    table.add_column("the paper, May 2015", justify="right")
    for one in rounds:
        table.add_column(one.name, justify="right")
    for name, cells in _rows(rounds).items():
        table.add_row(name, *cells)
    console.print(table)
    both = f"two sets of {plural(trees, 'tree')} from two seeds, {ROWS} rows"
    verdict = all(one.exact for one in rounds)
    console.print(
        Text(
            "exact agreement" if verdict else "NO AGREEMENT",
            style="bold green" if verdict else "bold red",
        )
    )
    console.print(
        f"with the plain fits from the same seeds, to the last count: {both}.", highlight=False
    )
    slots = es.plan(es.CompletelyRandomForest(1, DEPTH), split()[2], ROWS).layout.slots
    console.print(Padding(Text(DIFFERENCE.format(slots=slots, rows=ROWS)), (1, 0)))
    console.print(
        Text(
            f"Starting the cluster took {time_text(start)}, which is not counted. Prices are at "
            "the paper's price of a core.",
            "dim",
        )
    )


def _rows(rounds: list[Round]) -> dict[str, list[str]]:
    def row(name: str, cells: list[str]) -> list[str]:
        return [PAPER.get(name, ""), *cells]

    cells = {
        "table": [
            f"{size_text(one.table_bytes)} in {plural(one.blocks, 'block')}" for one in rounds
        ],
        "encrypt": [time_text(one.encrypt_seconds) for one in rounds],
        "fit": [time_text(one.fit_seconds) for one in rounds],
        "cores": [f"{one.workers}" for one in rounds],
        "core time": [time_text(one.core_seconds) for one in rounds],
        "results of shards": [
            f"{one.shard_results}, {size_text(one.shard_bytes)}" for one in rounds
        ],
        "both forests": [size_text(one.model_bytes) for one in rounds],
        "price": [f"US$ {one.price:.6f}" for one in rounds],
        "as the plain fit": ["yes" if one.exact else "NO" for one in rounds],
        "AUC, 136 test rows": [f"{one.auc:.3f}" for one in rounds],
    }
    return {name: row(name, texts) for name, texts in cells.items()}
