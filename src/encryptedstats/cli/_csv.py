"""How a CSV file is written, as options say it, and the line that says how one was read. All commands that read rows share them."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from encryptedstats.cli._console import printable
from encryptedstats.tables.dialects import CsvFormat, CsvOptions

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


def _option(name: str, metavar: str, help: str) -> Any:
    return typer.Option(name, metavar=metavar, help=help, show_default=False, rich_help_panel=_PANEL)


Separator = Annotated[
    str | None, _option("--separator", "SIGN", "Between fields: comma, semicolon, tab, pipe, or any sign.")
]
Decimal = Annotated[str | None, _option("--decimal", "SIGN", "The decimal mark: point or comma.")]
Thousands = Annotated[
    str | None, _option("--thousands", "SIGN", "Between thousands: point, comma, space, apostrophe, or none.")
]
Charset = Annotated[str | None, _option("--charset", "NAME", "The character set: utf-8, cp1252, latin-1, utf-16, ...")]
Dates = Annotated[
    str | None, _option("--dates", "FORMAT", "Format of dates, as in %d.%m.%Y; or none, to leave them as text.")
]


def csv_options(
    separator: str | None,
    decimal: str | None,
    thousands: str | None,
    charset: str | None,
    dates: str | None,
    ignored: frozenset[str] = frozenset(),
) -> CsvOptions:
    """What the options say."""
    return CsvOptions(_sign(separator), _sign(decimal), _sign(thousands), charset, dates, ignored)


def _sign(given: str | None) -> str | None:
    return None if given is None else _WORDS.get(given, given)


def say_format(path: object) -> Any:
    """A function that says on the error output how a file is read, where that is not what everybody expects."""

    def say(form: CsvFormat) -> None:
        if not form.is_plain:
            typer.echo(f"{printable(str(path))} read as {printable(form.describe())}", err=True)

    return say
