"""Options that several commands have, said once."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer


class SchemeName(str, Enum):
    """The schemes, as an option offers them."""

    bgv = "bgv"
    bfv = "bfv"


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Scheme = Annotated[SchemeName, typer.Option(help="BGV is faster; BFV is the scheme of the paper.")]
