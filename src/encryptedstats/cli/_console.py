"""What the commands share in how they print: sizes, times, tables of facts, parameters, JSON."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

import typer
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

import encryptedstats as es
from encryptedstats.crypto.security import MAX_MODULUS_BITS, TABLE_NAME
from encryptedstats.words import plural as plural
from encryptedstats.words import size_text as size_text
from encryptedstats.words import time_text as time_text

_STANDARD = TABLE_NAME.partition(",")[0]


def print_json(facts: Mapping[str, Any]) -> None:
    """Facts as JSON on stdout, nothing else."""
    typer.echo(json.dumps(_finite(facts), indent=2, allow_nan=False))


def _finite(value: Any) -> Any:
    """The same with null for numbers that are none: JSON has no NaN, and strict readers
    refuse it.
    """
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _finite(one) for key, one in value.items()}
    return [_finite(one) for one in value] if isinstance(value, (list, tuple)) else value


def progress(message: str) -> Any:
    """A spinner on stderr while something takes its time; nothing at all where stderr is no
    terminal.
    """
    return Console(stderr=True).status(message)


def printable(text: str) -> str:
    """Text that may come from a file of unknown origin, with everything escaped that a terminal
    would obey.
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def command_line(*words: object) -> Text:
    """A command to type next; words with spaces and the like in quotes."""
    return Text(printable(f"encryptedstats {shlex.join(map(str, words))}"), style="cyan")


def fact_table(rows: Iterable[tuple[str, RenderableType]]) -> Table:
    """Two columns without lines: what, and how much of it."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, Text(value) if isinstance(value, str) else value)
    return table


def parameter_facts(parameters: es.Parameters) -> dict[str, Any]:
    """Parameters and what they give, ready for JSON."""
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


def parameter_rows(parameters: es.Parameters) -> list[tuple[str, RenderableType]]:
    """Parameters as rows for :func:`fact_table`."""
    bits = [q.bit_length() for q in parameters.coefficient_moduli]
    products = plural(parameters.depth, "product")
    return [
        ("scheme", parameters.scheme.upper()),
        ("security", _security(parameters)),
        ("exact up to", f"±{parameters.max_value:,} (t = {parameters.plain_modulus})"),
        (
            "depth",
            f"{products} in a row with sums of up to {parameters.terms} at each level; a plan may "
            "go deeper",
        ),
        (
            "failure bound",
            f"{parameters.failure_bound} that a decryption within these limits goes wrong",
        ),
        ("ring degree", f"{parameters.ring_degree}"),
        ("moduli", f"{' + '.join(map(str, bits[:-1]))} bits, {bits[-1]} for key switching"),
        ("ciphertext", f"{size_text(parameters.ciphertext_bytes())} when fresh"),
    ]


def _security(parameters: es.Parameters) -> Text:
    allowed = MAX_MODULUS_BITS[parameters.security or 128][parameters.ring_degree]
    if not parameters.security:
        return Text(
            f"INSECURE, less than 128 bits: a {parameters.modulus_bits}-bit modulus where "
            f"{allowed} are allowed. "
            "For tests, never for real data",
            style="bold red",
        )
    text = Text(f"{parameters.security} bits", style="bold")
    return text.append(
        f" ({parameters.modulus_bits} of {allowed} bits of modulus; {_STANDARD})", style="not bold"
    )
