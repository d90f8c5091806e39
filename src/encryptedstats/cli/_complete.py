"""Shell completion of questions, parameters, columns and places.

Errors offer nothing: the command itself says what is wrong. The library is imported when a shell
asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import typer

Completion = Callable[[typer.Context, str], list[str]]


def offer(names: Callable[[typer.Context, str], Iterable[str]]) -> Completion:
    """Return a completion that offers the names with the prefix that was typed."""

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        with suppress(Exception):
            return [name for name in names(ctx, incomplete) if name.startswith(incomplete)]
        return []

    return complete


def _find(ctx: typer.Context, name: str) -> Any:
    """Return an argument that precedes; Typer has not named it yet while an option is typed."""
    if ctx.params.get(name) is not None:
        return ctx.params[name]
    arguments = [one.name for one in ctx.command.params if one.param_type_name == "argument"]
    place = arguments.index(name)
    return ctx.args[place:] if name == "questions" else ctx.args[place]


def _columns(ctx: typer.Context, _: str) -> Iterable[str]:
    from encryptedstats.tables.rows.row_files import read_frames

    for frame in read_frames(Path(str(_find(ctx, "data"))), rows=1):
        return [str(name) for name in frame.columns]
    return []


def _questions(ctx: typer.Context, incomplete: str) -> Iterable[str]:
    from encryptedstats.procedures.words import complete_asked

    words = list(map(str, _find(ctx, "questions") or ()))
    return complete_asked(words, incomplete, lambda: _variables(ctx))


def _variables(ctx: typer.Context) -> list[str]:
    """Return the variables of the schema or the table that precedes."""
    import encryptedstats as es

    with suppress(Exception):
        schema = es.Schema.load(ctx.params.get("schema") or _find(ctx, "source"))
        return [*(variable.name for variable in schema.variables), "class"]
    table = es.EncryptedTable.load(str(_find(ctx, "table")))
    return [*(variable.id for variable in table.schema.variables), "class"]


#: Columns of the file of rows that precedes.
columns: Completion = offer(_columns)
#: Questions, their parameters, the choices of these, and variables.
questions: Completion = offer(_questions)
#: Where questions are computed.
places: Completion = offer(lambda *_: ("local", "dask://", "queue://", "https://"))
#: How a CSV file is written.
csv_words: Completion = offer(
    lambda *_: ("separator=", "decimal=", "thousands=", "charset=", "dates=")
)
