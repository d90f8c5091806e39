"""Options of work that many machines do, and how ``fit`` and ``predict`` hand it on: to a Dask
scheduler, or to a queue.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console, RenderableType
from rich.text import Text

from encryptedstats.cli._console import command_line, fact_table, plural, print_json, printable
from encryptedstats.cli._options import file_option
from encryptedstats.storage.objects import is_url, read_object

LOCAL: Final = "local"
_PANEL: Final = "Many machines"


def _option(*names: str, help: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, show_default=False, rich_help_panel=_PANEL, **more)


RESULT_URL: Final = file_option(
    "--output", "-o", help="Where the encrypted result goes; a URL too with --scheduler or --queue."
)
#: Options with which many machines work: they go on where they were, and see for themselves whose a
#: result is.
MANY: Final = ("scheduler", "queue")
Scheduler = Annotated[
    str | None,
    _option(
        metavar="ADDRESS",
        help="Work on Dask: tcp://host:port, or local to start a cluster of processes here.",
    ),
]
FitQueue = Annotated[
    str | None,
    _option(
        "--queue",
        metavar="URL",
        help="Folder or bucket of the work; without --scheduler, for command worker.",
    ),
]
RowsPerShard = Annotated[int | None, _option(min=1, metavar="N", help="Rows of a shard, at most.")]
TreesPerTask = Annotated[
    int | None, _option(min=1, metavar="N", help="forest: split by trees too, about so many.")
]


def is_for_cluster(given: Mapping[str, Any]) -> bool:
    """Whether the options of ``fit`` or ``predict`` ask for many machines, refusing those that make
    sense for them only.
    """
    if any(given[name] is not None for name in MANY):
        return True
    for name in ("rows_per_shard", "trees_per_task"):
        if given.get(name) is not None:
            raise typer.BadParameter(
                f"--{name.replace('_', '-')} is for --scheduler or --queue: give one of them"
            )
    if is_url(given["out"]):
        raise typer.BadParameter(
            f"-o {given['out']}: a URL is written with --scheduler or --queue, a file without"
        )
    return False


def fit_on_cluster(
    model: Any, table: str, out: str, given: Mapping[str, Any]
) -> tuple[Any, int] | None:
    """The model and its bytes; None where it was only put into a queue, and said so."""
    from encryptedstats import cluster  # scikit-learn takes a second to import

    options = {**_shared(given), "trees_per_task": given["trees_per_task"], "folds": given["folds"]}
    if given["scheduler"] is None:
        _show_queued(cluster.submit(model, table, out, **options), given["as_json"])
        return None
    fitted = cluster.fit(model, table, out, **_schedule(given), **options)
    return fitted, len(read_object(out))


def predict_on_cluster(
    model: str, rows: str, out: str, output: str | None, given: Mapping[str, Any]
) -> tuple[Any, int] | None:
    """The votes and their bytes; None where they were only put into a queue, and said so."""
    from encryptedstats import cluster

    options = {**_shared(given), "output": output}
    if given["scheduler"] is None:
        _show_queued(
            cluster.submit_prediction(model, rows, out, **options), given["as_json"], "votes"
        )
        return None
    votes = cluster.predict(model, rows, out, **_schedule(given), **options)
    return votes, len(read_object(out))


def _shared(given: Mapping[str, Any]) -> dict[str, Any]:
    names = ("queue", "keys", "rows_per_shard", "by_others")
    return {**{name: given[name] for name in names if name in given}, "overwrite": given["force"]}


def _schedule(given: Mapping[str, Any]) -> dict[str, Any]:
    scheduler = None if given["scheduler"] == LOCAL else given["scheduler"]
    return {"scheduler": scheduler, "workers": given["workers"], "device": given["device"]}


def _show_queued(job: Any, as_json: bool, made: str = "model") -> None:
    from encryptedstats import cluster

    finished = any(one.id == job.id and one.finished for one in cluster.status(job.queue))
    shards = sum(item.is_shard for item in job.items.values())
    facts = {
        "job": job.id,
        "queue": job.queue,
        "out": job.out,
        "rows": job.n_rows,
        "shards": shards,
    }
    facts["finished"] = finished
    if as_json:
        print_json({**facts, "items": len(job.items)})
        return
    rows: list[tuple[str, RenderableType]] = [
        (
            "job",
            Text.assemble(
                (job.id[:12], "cyan"), f", {plural(shards, 'shard')} of {plural(job.n_rows, 'row')}"
            ),
        ),
        ("queue", printable(job.queue)),
        (
            made,
            Text.assemble(
                (printable(job.out), "bold"),
                ", which is there" if finished else ", when all are done",
            ),
        ),
    ]
    if not finished:
        rows.append(("next", command_line("worker", "--queue", job.queue)))
    console = Console()
    console.print(Text("Done already" if finished else "Queued", style="bold"))
    console.print(fact_table(rows))


KeysFile = Annotated[
    Path | None,
    file_option("--keys", help="Public keys to compute with, instead of those in the table."),
]
