"""The option ``--csv``, and the line that says how a CSV file was read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import typer

from encryptedstats.cli._console import printable
from encryptedstats.tables.questions.words import parse_pairs
from encryptedstats.tables.rows.csv_format import CsvFormat, CsvOptions

_SIGNS: Final = {
    "comma": ",",
    "semicolon": ";",
    "tab": "\t",
    "\\t": "\t",
    "pipe": "|",
    "point": ".",
    "space": " ",
    "apostrophe": "'",
}
_NAMES: Final = ("separator", "decimal", "thousands", "charset", "dates")
_OF_SIGNS: Final = ("separator", "decimal", "thousands")


def csv_options(words: Sequence[str] | None) -> CsvOptions:
    """Parse ``--csv``."""
    said: dict[str, Any] = dict(parse_pairs(words, _NAMES, "--csv"))
    signs: dict[str, Any] = {
        name: _SIGNS.get(said[name], said[name]) for name in _OF_SIGNS if name in said
    }
    return CsvOptions(**{**said, **signs})


def say_format(path: object) -> Any:
    """Return a function that prints an unusual CSV format on stderr."""

    def say(form: CsvFormat) -> None:
        if not form.is_plain:
            typer.echo(f"{printable(str(path))} read as {printable(form.describe())}", err=True)

    return say
