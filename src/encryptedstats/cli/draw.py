"""``draw``: the stochastic fraction of an encrypted forest, drawn again from the rows that it was
fitted to.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console
from rich.text import Text

import encryptedstats as es
from encryptedstats.cli._console import (
    command_line,
    fact_table,
    plural,
    print_json,
    printable,
    size_text,
    time_text,
)
from encryptedstats.cli._files import COMPUTED, Writes, save
from encryptedstats.cli._inputs import expect, load_table
from encryptedstats.cli._options import (
    AsJson,
    Device,
    Force,
    TableKeys,
    TableUrl,
    Workers,
    file_argument,
    output,
)
from encryptedstats.cli._questions import question_text
from encryptedstats.cli._workers import RemoteTable, WorkerUrl
from encryptedstats.kinds import read_file
from encryptedstats.storage import container
from encryptedstats.tables.questions.question import MODEL_KIND


def draw(
    model: Annotated[Path, file_argument("MODEL", "An encrypted forest, with a --fraction.")],
    table: TableUrl,
    out: Annotated[Path, Writes(COMPUTED), output("Where the forest with its fractions goes.")],
    keys: TableKeys = None,
    workers: Workers = None,
    device: Device = "auto",
    worker: WorkerUrl = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Draw the stochastic fraction of a forest that was put together from others.

    A fit draws by itself where keys were planned with --encrypted-prediction. Fractions do not add up as counts do: a
    forest of several machines, or of combine, has none until they are drawn from a table with all of its rows.

    Examples:
      encryptedstats draw all.enc patients.enc -o drawn.enc
    """
    expect(model, (MODEL_KIND,), "an encrypted forest")
    sealed = load_table(table, keys, by_others=True)
    forest = read_file(container.read(model), sealed.keys)
    if not isinstance(forest, es.CompletelyRandomForest):
        raise es.ArgumentError(
            f"{model} holds a {type(forest).__name__}: only forests have a stochastic fraction to "
            "draw",
            code="no-stochastic-fraction",
        )
    if set(forest.block_ids_) != set(sealed.blocks.ids):
        raise es.ArgumentError(
            f"{table} holds other rows than {model} was fitted to ({sealed.n_rows:,} and "
            f"{forest.n_rows_:,}): fractions are "
            "drawn from all rows of a forest and no others, so give a table of just these",
            code="other-rows",
        )
    started = time.perf_counter()
    if worker is not None:
        forest = RemoteTable(worker, table, sealed, keys, out, force).drawn_for(model)
    else:
        forest.draw_fraction(sealed, workers=workers, device=device)
        save(forest, out, force=force)
    seconds = time.perf_counter() - started
    facts = {
        "file": str(out),
        "bytes": out.stat().st_size,
        "model": forest.name,
        "params": forest.parameters(),
        "rows": sealed.n_rows,
        "drawn": len(forest.drawn_),
        "key_id": sealed.key_id,
        "seconds": seconds,
    }
    if as_json:
        print_json(facts)
    else:
        _show(facts)


def _show(facts: dict[str, Any]) -> None:
    console = Console()
    what = (
        f" {plural(facts['drawn'], 'fraction')} of {question_text(facts['model'], facts['params'])}"
    )
    console.print(
        Text.assemble(
            ("Drew", "bold"),
            what,
            f" from {plural(facts['rows'], 'row')}, in {time_text(facts['seconds'])}",
        )
    )
    file = Text.assemble((printable(facts["file"]), "bold green"), f"  {size_text(facts['bytes'])}")
    console.print(
        fact_table(
            [
                ("model", file),
                ("next", command_line("predict", facts["file"], "new.enc", "-o", "votes.enc")),
            ]
        )
    )
