"""What a shell is offered when somebody presses the tab key: names that only the program, or a file
given before, knows.

Whatever goes wrong here offers nothing; the command itself will say what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import typer

import encryptedstats as es
from encryptedstats.tables.rows.row_files import read_frames

Completion = Callable[[typer.Context, str], list[str]]


def offering(names: Callable[[typer.Context], Iterable[str]]) -> Completion:
    """Offers those that begin as what was typed does."""

    def offer(ctx: typer.Context, incomplete: str) -> list[str]:
        with suppress(Exception):
            return [name for name in names(ctx) if name.startswith(incomplete)]
        return []

    return offer


def _given(ctx: typer.Context, name: str) -> str:
    """An argument that was given before; while the value of an option is typed, Typer has not given
    it its name yet.
    """
    if ctx.params.get(name) is not None:
        return str(ctx.params[name])
    arguments = [one.name for one in ctx.command.params if one.param_type_name == "argument"]
    return str(ctx.args[arguments.index(name)])


def _columns(ctx: typer.Context) -> Iterable[str]:
    for frame in read_frames(Path(_given(ctx, "data")), rows=1):
        return [str(name) for name in frame.columns]
    return []


def _variable_ids(ctx: typer.Context) -> Iterable[str]:
    return [
        variable.id for variable in es.EncryptedTable.load(_given(ctx, "table")).schema.variables
    ]


def _class_and_ids(ctx: typer.Context) -> Iterable[str]:
    return ["class", *_variable_ids(ctx)]


#: Columns of the file of rows that was given before.
columns: Completion = offering(_columns)
#: Ids of the variables of the table that was given before.
variable_ids: Completion = offering(_variable_ids)
#: What counts may be taken by.
class_and_ids: Completion = offering(_class_and_ids)
