"""Options that several commands have, said once.

Paths are never checked by Typer (``readable=False``): what is wrong with a file is said in one line, like any other error.
"""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer


class SchemeName(str, Enum):
    """The schemes, as an option offers them."""

    bgv = "bgv"
    bfv = "bfv"


class Encoding(str, Enum):
    """What can be stored of a binned variable."""

    onehot = "onehot"
    ordinal = "ordinal"
    centred = "centred"


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Scheme = Annotated[SchemeName, typer.Option(help="BGV is faster; BFV is the scheme of the paper.")]
SchemaFile = Annotated[
    Path, typer.Option("--schema", metavar="FILE", readable=False, help="The schema, as the command schema wrote it.")
]
KeyFile = Annotated[
    Path | None,
    typer.Option(
        "--key", metavar="FILE", readable=False, help="Your secret key, as keygen wrote it.", show_default=False
    ),
]
PassphraseFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        readable=False,
        help="The first line opens a locked key; without it you are asked.",
        show_default=False,
    ),
]
Encodings = Annotated[
    list[Encoding],
    typer.Option(
        "--encoding",
        metavar="ENCODING",
        help="What is stored of binned variables: onehot, ordinal or centred; may be given several times.",
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Processes; all cores by default.",
        show_default=False,
    ),
]
TableUrl = Annotated[
    str,
    typer.Argument(
        metavar="TABLE",
        help="Folder or URL of an encrypted table.",
        show_default=False,
    ),
]
ResultFile = Annotated[
    Path,
    typer.Option(
        "--output", "-o", metavar="FILE", readable=False, help="Where the encrypted result goes.", show_default=False
    ),
]
TableKeys = Annotated[
    Path | None,
    typer.Option(
        "--keys",
        metavar="FILE",
        readable=False,
        help="Public keys to compute with, instead of those in the table.",
        show_default=False,
    ),
]
