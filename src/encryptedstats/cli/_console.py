"""Print for all commands: views as text, facts as JSON, parameters in words."""

from __future__ import annotations

import json
import math
import os
import shlex
import shutil
import sys
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from encryptedstats.views import View, render_text
from encryptedstats.words import plural as plural
from encryptedstats.words import size_text as size_text
from encryptedstats.words import time_text as time_text

if TYPE_CHECKING:
    import pandas as pd

    import encryptedstats as es

Facts = Mapping[str, Any]
_GAP: Final = 2


def tell(view: View, document: Facts, as_json: bool) -> None:
    """Print JSON for programs, or a view for people."""
    if as_json:
        print_json(document)
    else:
        show(view)


def print_json(facts: Facts) -> None:
    """Print facts as JSON on stdout, nothing else."""
    typer.echo(json.dumps(_finite(facts), indent=2, allow_nan=False))


def _finite(value: Any) -> Any:
    """Replace NaN and infinity by null: JSON has neither."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _finite(one) for key, one in value.items()}
    return [_finite(one) for one in value] if isinstance(value, (list, tuple)) else value


def show(view: View, *, err: bool = False) -> None:
    """Print a view. On a terminal, tables are cut to its width; in a pipe no line is broken."""
    stream = sys.stderr if err else sys.stdout
    width = shutil.get_terminal_size().columns if stream.isatty() else None
    typer.echo(view_text(view, width), err=err)


def view_text(view: View, width: int | None = None) -> str:
    """Return a view as text with control characters escaped, a tuple as lines."""
    facts = {
        printable(name): value
        for name, value in view.facts.items()
        if value is not None and value not in ("", (), [])
    }
    indent = "\n" + " " * (max(map(len, facts), default=0) + _GAP)
    safe = View(
        printable(view.title),
        {name: _fact_text(value, indent) for name, value in facts.items()},
        tuple(replace(table, frame=_printable_frame(table.frame)) for table in view.tables),
        notes=tuple(map(printable, view.notes)),
    )
    return render_text(safe, width)


def _fact_text(value: Any, indent: str) -> Any:
    if isinstance(value, tuple) and all(isinstance(one, str) for one in value):
        return indent.join(map(printable, value))
    return printable(value) if isinstance(value, str) else value


def _printable_frame(frame: pd.DataFrame) -> pd.DataFrame:
    """Escape control characters in names, levels and texts."""

    def safe(value: Any) -> Any:
        return printable(value) if isinstance(value, str) else value

    found = frame.rename(index=safe, columns=safe)
    for place, kind in enumerate(found.dtypes):
        if getattr(kind, "kind", "O") not in "biufc":
            found.isetitem(place, found.iloc[:, place].map(safe).to_numpy())
    return found


def printable(text: str) -> str:
    """Escape control characters: text from unknown files must not control the terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def progress(message: str) -> AbstractContextManager[Any]:
    """Show a spinner on stderr while something takes its time, if stderr is a terminal."""
    if not sys.stderr.isatty():
        return nullcontext()
    from rich.console import Console

    return Console(stderr=True).status(message)


def command_line(*words: object) -> str:
    """Return a command to type next; words with spaces and the like in quotes."""
    return printable(f"encryptedstats {shlex.join(map(str, words))}")


def file_text(path: object, *more: str) -> str:
    """Return a file with its size, and more about it."""
    return ", ".join([f"{path}  {size_text(os.stat(str(path)).st_size)}", *more])


def file_facts(path: Path) -> dict[str, Any]:
    """Return the name and the size of a file that was written."""
    return {"file": str(path), "bytes": path.stat().st_size}


def shorten(lines: Iterable[str], most: int = 6) -> tuple[str, ...]:
    """Return the first few of many lines."""
    found = tuple(lines)
    return found if len(found) <= most + 1 else (*found[:most], f"and {len(found) - most} more")


def parameter_facts(parameters: es.Parameters) -> dict[str, Any]:
    """Return parameters and their properties, ready for JSON."""
    return {
        **parameters.to_dict(),
        "fingerprint": parameters.fingerprint,
        "modulus_bits": parameters.modulus_bits,
        "security": parameters.security,
        "insecure": not parameters.security,
        "max_value": parameters.max_value,
        "depth": parameters.depth,
        "failure_bound": parameters.failure_bound,
        "ciphertext_bytes": parameters.ciphertext_bytes(),
    }


def parameter_rows(parameters: es.Parameters) -> dict[str, str]:
    """Return parameters as facts of a view."""
    bits = [q.bit_length() for q in parameters.coefficient_moduli]
    return {
        "scheme": parameters.scheme.upper(),
        "security": _security(parameters),
        "exact up to": f"±{parameters.max_value:,} (t = {parameters.plain_modulus})",
        "depth": f"{plural(parameters.depth, 'product')} in a row with sums of up to "
        f"{parameters.terms} at each level; a plan may go deeper",
        "failure bound": f"{parameters.failure_bound} that a decryption within these limits goes "
        "wrong",
        "ring degree": str(parameters.ring_degree),
        "moduli": f"{' + '.join(map(str, bits[:-1]))} bits, {bits[-1]} for key switching",
        "ciphertext": f"{size_text(parameters.ciphertext_bytes())} when fresh",
    }


def _security(parameters: es.Parameters) -> str:
    from encryptedstats.crypto.security import MAX_MODULUS_BITS, TABLE_NAME

    allowed = MAX_MODULUS_BITS[parameters.security or 128][parameters.ring_degree]
    if not parameters.security:
        return (
            f"INSECURE, less than 128 bits: a {parameters.modulus_bits}-bit modulus where "
            f"{allowed} are allowed. For tests, never for real data"
        )
    standard = TABLE_NAME.partition(",")[0]
    return (
        f"{parameters.security} bits ({parameters.modulus_bits} of {allowed} bits of modulus; "
        f"{standard})"
    )
