"""How a CSV file is written, as options say it, and the line that says how one was read. All
commands that read rows share them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, Final

import typer

from encryptedstats.cli._console import printable
from encryptedstats.cli._parameters import hints_of, with_parameters
from encryptedstats.tables.rows.csv_format import CsvFormat, CsvOptions

_PANEL: Final = "How the CSV file is written (found out where it is not said)"
_WORDS: Final = {
    "comma": ",",
    "semicolon": ";",
    "tab": "\t",
    "\\t": "\t",
    "pipe": "|",
    "point": ".",
    "space": " ",
    "apostrophe": "'",
}


#: What the options say, by the fields of ``CsvOptions``.
_OPTIONS: Final = {
    "separator": ("SIGN", "Between fields: comma, semicolon, tab, pipe, or any sign."),
    "decimal": ("SIGN", "The decimal mark: point or comma."),
    "thousands": ("SIGN", "Between thousands: point, comma, space, apostrophe, or none."),
    "charset": ("NAME", "The character set: utf-8, cp1252, latin-1, utf-16, ..."),
    "dates": ("FORMAT", "Format of dates, as in %d.%m.%Y; or none, to leave them as text."),
}
_SIGNS: Final = ("separator", "decimal", "thousands")
AS_FOUND: Final = CsvOptions()


def with_csv_options(function: Callable[..., None]) -> Callable[..., None]:
    """A command whose one parameter ``csv`` is five options."""

    @wraps(function)
    def command(**given: Any) -> None:
        said = {name: given.pop(name) for name in _OPTIONS}
        signs = {name: _sign(said[name]) for name in _SIGNS}
        function(csv=CsvOptions(**{**said, **signs}), **given)

    hints = hints_of(function)
    hints |= {name: _option(name, *words) for name, words in _OPTIONS.items()}
    defaults = {
        name: one.default
        for name, one in inspect.signature(function).parameters.items()
        if name != "csv"
    }
    defaults |= dict.fromkeys(_OPTIONS)
    return with_parameters(command, hints, defaults)


def _option(name: str, metavar: str, help: str) -> Any:
    asked = typer.Option(
        f"--{name}", metavar=metavar, help=help, show_default=False, rich_help_panel=_PANEL
    )
    return Annotated[str | None, asked]


def _sign(given: str | None) -> str | None:
    return None if given is None else _WORDS.get(given, given)


def say_format(path: object) -> Any:
    """A function that says on the error output how a file is read, where that is not what everybody
    expects.
    """

    def say(form: CsvFormat) -> None:
        if not form.is_plain:
            typer.echo(f"{printable(str(path))} read as {printable(form.describe())}", err=True)

    return say
