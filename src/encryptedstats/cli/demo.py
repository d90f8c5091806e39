"""``demo``: a story played through on this machine, by an owner and by processes that never hold the secret key."""

from __future__ import annotations

import time
from enum import Enum
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.text import Text

from encryptedstats.cli import demo_forest, demo_integers
from encryptedstats.cli._console import print_json
from encryptedstats.cli._files import COMPUTED, Writes, free_name
from encryptedstats.cli._options import AsJson, Force, Scheme, SchemeName, file_option
from encryptedstats.cli._stage import WIDTH

PICTURE: Final = Path("out") / "demo" / "forest.png"


class StoryName(str, Enum):
    """The stories."""

    forest = "forest"
    integers = "integers"


def demo(
    story: Annotated[
        StoryName, typer.Argument(metavar="[forest|integers]", help="Which story.", show_default="forest")
    ] = StoryName.forest,
    scheme: Scheme = SchemeName.bgv,
    picture: Annotated[
        Path | None,
        Writes(COMPUTED),
        file_option(
            help="Of forest: where the picture goes; by default out/demo/forest.png, or forest-2.png, ... if that is there."
        ),
    ] = None,
    force: Force = False,
    trees: Annotated[int, typer.Option(hidden=True, min=1)] = demo_forest.TREES,
    as_json: AsJson = False,
) -> None:
    """Play it through: an owner encrypts, a worker computes blindly, the owner opens.

    forest: a hundred trees are fitted to the breast cancer data of scikit-learn by a process without the secret key, and
    opened by the owner; compared with the fit in the clear, with a plain random forest, and with the paper. A smaller
    forest stays closed: encrypted rows in, encrypted votes out. Half a minute or so. integers: sums and products of a
    few numbers of an owner and a clinic. A few seconds.

    Examples:
      encryptedstats demo
      encryptedstats demo integers --scheme bfv
    """
    console = Console(width=min(Console().width, WIDTH), quiet=as_json)
    started = time.perf_counter()
    if story is StoryName.forest:
        place = free_name(PICTURE) if picture is None else picture
        facts, other = demo_forest.run(console, scheme, place, trees, force=force), "the fit in the clear"
    else:
        facts, other = demo_integers.run(console, scheme), "NumPy's"
    total = time.perf_counter() - started
    if as_json:
        print_json({"story": story.value, "scheme": scheme.value, **facts, "total_seconds": total})
    if not facts["exact"]:
        console.print(f"A result differs from {other}: this must not happen, please report it.", style="bold red")
        raise typer.Exit(1)
    console.print(
        Text(
            f"Every result is exact. {total:.1f} s in all; keys and encrypted files are gone again.", style="bold green"
        )
    )
