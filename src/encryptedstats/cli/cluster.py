"""``worker`` and ``queue``: the work of many machines without any scheduler, from a folder or
bucket that they all reach.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from encryptedstats.cli._clusters import KeysFile
from encryptedstats.cli._console import plural, print_json, printable, time_text
from encryptedstats.cli._options import AsJson, Device

QueueUrl = Annotated[
    str,
    typer.Option(
        "--queue",
        metavar="URL",
        help="Folder or bucket that fit or predict --queue has filled.",
        show_default=False,
    ),
]


def worker(
    queue: QueueUrl,
    keys: KeysFile = None,
    lease: Annotated[
        float,
        typer.Option(
            min=0.001,
            max=7 * 24 * 3600.0,
            metavar="SECONDS",
            help="Others may take over what this worker has not finished after so long. Longer "
            "than a shard takes.",
        ),
    ] = 300.0,
    wait: Annotated[
        float,
        typer.Option(min=0, metavar="SECONDS", help="Look for new work so long before ending."),
    ] = 0.0,
    allow: Annotated[
        list[str],
        typer.Option(
            metavar="URL",
            help="Jobs may read and write below this, too; by default only in the folder or bucket "
            "that the queue lies in.",
            show_default=False,
        ),
    ] = [],  # noqa: B006  Typer copies it
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Work through a queue until nothing is left. Start as many as you have cores; stop any of them at any time.

    Examples:
      encryptedstats fit patients.enc -o forest.enc --model forest --queue work
      encryptedstats worker --queue work

      # on machines that may be taken away: what they leave behind is another's after a minute
      encryptedstats worker --queue s3://bucket/work --keys public.keys --lease 60

      # a queue in one place, tables and models in another
      encryptedstats worker --queue /srv/queue --allow /srv/tables --allow /srv/models
    """
    from encryptedstats import cluster

    console = Console(stderr=True)

    def told(done: Any) -> None:
        what = "shard" if done.is_shard else "sum"
        text = f"{what} {done.name[-12:]}, {plural(done.rows, 'row')}, {time_text(done.seconds)}"
        console.print(Text(text, style="dim"))

    shown = None if as_json else told
    report = cluster.work(
        queue, keys=keys, lease=lease, wait=wait, allow=allow, told=shown, device=device
    )
    if as_json:
        print_json(asdict(report))
    else:
        done = (
            f" {plural(report.shards, 'shard')} of {plural(report.rows, 'row')}, in "
            f"{time_text(report.seconds)} of work"
        )
        Console().print(Text.assemble(("Done", "bold"), done))


def queue(
    url: Annotated[
        str, typer.Argument(metavar="URL", help="Folder or bucket of the work.", show_default=False)
    ],
    as_json: AsJson = False,
) -> None:
    """Show how far the work of a queue is, and who is at it.

    Examples:
      encryptedstats queue s3://bucket/work
    """
    from encryptedstats import cluster

    jobs = cluster.status(url)
    if as_json:
        print_json({"jobs": [asdict(job) for job in jobs]})
        return
    for job in jobs:
        for line in str(job).splitlines():
            typer.echo(printable(line))
    if not jobs:
        typer.echo(
            f"there is no work at {printable(url)}: fit --queue and predict --queue put some there"
        )
