"""Options and arguments that several commands share.

Typer does not check paths (``readable=False``): errors of files are one line, as all others.
"""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from encryptedstats.cli import _complete
from encryptedstats.cli._files import COMPUTED, Reads, Writes
from encryptedstats.cli._help import Shared


class SchemeName(str, Enum):
    """The schemes."""

    bgv = "bgv"
    bfv = "bfv"


class EncodingName(str, Enum):
    """How bins, and numbers on a grid, are stored."""

    onehot = "onehot"
    ordinal = "ordinal"
    centred = "centred"
    grid = "grid"


def argument(metavar: str, help: str, **more: Any) -> Any:
    """Return an argument of a command."""
    return typer.Argument(metavar=metavar, readable=False, help=help, show_default=False, **more)


def option(*names: str, help: str, metavar: str | None = None, **more: Any) -> Any:
    """Return an option whose default is not shown."""
    return typer.Option(*names, metavar=metavar, help=help, show_default=False, **more)


def file_option(*names: str, help: str, metavar: str = "FILE") -> Any:
    """Return an option that names a file or a folder."""
    return option(*names, metavar=metavar, readable=False, help=help)


def output(help: str) -> Any:
    """Return the option ``--output``."""
    return file_option("--output", "-o", help=help)


AsJson = Annotated[bool, Shared("as_json")]
Force = Annotated[bool, Shared("force")]
PassphraseFile = Annotated[Path | None, Shared("passphrase_file")]

DataFile = Annotated[Path, argument("DATA", "CSV or Parquet file with the rows.")]
SchemaFile = Annotated[Path, file_option("--schema", help="The schema, as data schema wrote it.")]
OwnSchema = Annotated[
    Path | None, file_option("--schema", help="Your schema, to see names instead of v0, v1, ...")
]
KeyFile = Annotated[
    Path | None, file_option("--key", help="Your secret key, as key make wrote it.")
]
Genotypes = Annotated[
    Path | None,
    option(
        metavar="FILE",
        help="Genotypes of the people in DATA: PLINK's .bed file with .bim and .fam beside it, or "
        "a VCF. People are matched by the column of --id.",
    ),
]
Csv = Annotated[
    list[str] | None,
    option(
        metavar="NAME=VALUE",
        help="How a CSV file is written, where that is not recognised: separator, decimal, "
        "thousands, charset or dates, such as 'separator=; decimal=,' or dates=%d.%m.%Y.",
        autocompletion=_complete.csv_words,
    ),
]
FoldSeed = Annotated[int, typer.Option(metavar="N", help="Seed of the folds.")]
Weights = Annotated[
    str | None,
    option(
        metavar="COLUMN",
        help="Column of integer weights of the rows.",
        autocompletion=_complete.columns,
    ),
]
WeightBound = Annotated[
    int | None,
    option(min=1, metavar="N", help="The largest weight there may be, which a worker learns."),
]
SpotChecked = Annotated[
    bool,
    typer.Option(
        "--spot-check",
        help="For open --verify: keep a few residues beside the key, by which a worker that lies "
        "is found. Plans leave room for it.",
    ),
]
On = Annotated[
    str,
    option(
        metavar="WHERE",
        help="Where it is computed: local (the default), dask://HOST:PORT, queue://URL for worker "
        "run, or https://HOST that worker serve runs. Options follow as words: 'local workers=4 "
        "device=cuda', 'queue://work rows_per_shard=5000'.",
        autocompletion=_complete.places,
    ),
]
TableUrl = Annotated[
    str,
    Reads,
    argument("TABLE", "Folder or URL of an encrypted table."),
]
TableKeys = Annotated[
    Path | None,
    file_option("--keys", help="Public keys to compute with, instead of those in the table."),
]
ResultFile = Annotated[Path, Writes(COMPUTED), output("Where the encrypted result goes.")]
LedgerFolder = Annotated[
    str | None,
    option(
        metavar="LEDGER",
        help="Folder or URL of the ledger that records it, as publish begin made it.",
    ),
]
