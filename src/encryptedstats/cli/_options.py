"""Options and arguments that several commands have, said once.

Paths are never checked by Typer (``readable=False``): what is wrong with a file is said in one
line, like any other error.
"""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from encryptedstats.cli import _complete
from encryptedstats.cli._files import COMPUTED, Reads, Writes


class SchemeName(str, Enum):
    """The schemes, as an option offers them."""

    bgv = "bgv"
    bfv = "bfv"


class Encoding(str, Enum):
    """What can be stored of bins, and of numbers on a grid."""

    onehot = "onehot"
    ordinal = "ordinal"
    centred = "centred"
    grid = "grid"


# -- how a file is asked for
# -----------------------------------------------------------------------------------------


def file_argument(metavar: str, help: str) -> Any:
    """An argument that is a file, or several of them."""
    return typer.Argument(metavar=metavar, readable=False, help=help, show_default=False)


def file_option(*names: str, help: str, metavar: str = "FILE") -> Any:
    """An option that is a file, or a folder."""
    return typer.Option(*names, metavar=metavar, readable=False, help=help, show_default=False)


def output(help: str) -> Any:
    """Where a result goes."""
    return file_option("--output", "-o", help=help)


# -- what is asked for
# -----------------------------------------------------------------------------------------------

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Scheme = Annotated[SchemeName, typer.Option(help="BGV is faster; BFV is the scheme of the paper.")]
Security = Annotated[int, typer.Option(metavar="BITS", help="Bits of security: 128, 192 or 256.")]
DataFile = Annotated[Path, file_argument("DATA", "CSV or Parquet file with the rows.")]
SchemaFile = Annotated[
    Path, file_option("--schema", help="The schema, as the command schema wrote it.")
]
OwnSchema = Annotated[
    Path | None, file_option("--schema", help="Your schema, to see names instead of v0, v1, ...")
]
KeyFile = Annotated[Path | None, file_option("--key", help="Your secret key, as keygen wrote it.")]
PassphraseFile = Annotated[
    Path | None,
    file_option(
        help="The first line opens a locked key; without it you are asked. Only you may have "
        "access (mode 0600)."
    ),
]
Encodings = Annotated[
    list[Encoding],
    typer.Option(
        "--encoding",
        metavar="ENCODING",
        help="What is stored of binned variables: onehot, ordinal or centred; may be given several "
        "times.",
    ),
]
FoldSeed = Annotated[int, typer.Option(metavar="N", help="Seed of the folds.")]
Weights = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN",
        help="Column of integer weights of the rows.",
        autocompletion=_complete.columns,
        show_default=False,
    ),
]
WeightBound = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="A bound of the weights, which a worker learns.",
        show_default=False,
    ),
]
Device = Annotated[
    str,
    typer.Option(
        "--device",
        metavar="NAME",
        help="What computes: cuda (a GPU), native (kernels in C), seal (SEAL alone), or auto, the "
        "fastest. The result is the same.",
        show_default=False,
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Processes; all cores by default.", show_default=False),
]
TableUrl = Annotated[
    str,
    Reads,
    typer.Argument(
        metavar="TABLE", help="Folder or URL of an encrypted table.", show_default=False
    ),
]
VariableId = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="Id of a variable: v0, v1, ... as info shows them.",
        autocompletion=_complete.variable_ids,
        show_default=False,
    ),
]
ResultFile = Annotated[Path, Writes(COMPUTED), output("Where the encrypted result goes.")]
TableKeys = Annotated[
    Path | None,
    file_option("--keys", help="Public keys to compute with, instead of those in the table."),
]
ByOthers = Annotated[
    bool,
    typer.Option(
        "--by-others",
        help="Compute on rows that others have encrypted with the public keys. Whoever forges such "
        "rows and sees a result can "
        "recover the secret key: only where all of them are trusted like the key, or see no "
        "results.",
    ),
]
Fingerprint = Annotated[
    str | None,
    typer.Option(
        "--fingerprint",
        metavar="DIGITS",
        help="Of the public keys, as their owner read it to you by telephone: others are refused.",
        show_default=False,
    ),
]
LedgerFolder = Annotated[
    str | None,
    typer.Option(
        "--ledger",
        metavar="LEDGER",
        help="Folder or URL of the ledger that it is written down in, as the command ledger began "
        "it.",
        show_default=False,
    ),
]
Profile = Annotated[
    str | None,
    typer.Option(
        "--rules",
        metavar="PROFILE",
        help="Disclosure rules: datashield (counts of 3 and more), five, ten or pcornet (11).",
        show_default=False,
    ),
]
#: On every command that writes, and the same on all.
Force = Annotated[
    bool, typer.Option("--force", help="Replace what is there; never what this command reads.")
]
