"""``info``: what is inside a file, whose it is, and whether a secret is in it, without showing any of that secret."""

from __future__ import annotations

import stat
import warnings
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console, RenderableType
from rich.panel import Panel
from rich.text import Text

import encryptedstats as es
from encryptedstats.cli._console import (
    fact_table,
    parameter_facts,
    parameter_rows,
    print_json,
    printable,
    size_text,
)
from encryptedstats.cli._options import AsJson
from encryptedstats.crypto.arrays import ARRAY_KIND
from encryptedstats.crypto.keys import OWNER_KIND, PUBLIC_KIND, read_parameters
from encryptedstats.storage import container
from encryptedstats.storage.container import Container

_SECRET_SECTION: Final = "secret_key"
# Kinds that hold no secret by their making, and the sections they consist of.
_HARMLESS: Final = {
    PUBLIC_KIND: {"public_key", "relinearisation", "rotation"},
    ARRAY_KIND: {"values", "ciphertexts"},
}


def info(
    file: Annotated[Path, typer.Argument(help="A file of keys or encrypted data.")],
    as_json: AsJson = False,
) -> None:
    """Show what is inside a file, whose key it belongs to, and whether a secret is in it."""
    if file.exists() and not (file.is_file() or file.is_dir()):
        raise ValueError(f"{file} is no ordinary file: give one that was written by this library")
    with warnings.catch_warnings():
        # Insecure parameters are shown in red below; once is enough.
        warnings.simplefilter("ignore", es.InsecureParametersWarning)
        content = container.read(file)
        parameters = read_parameters(content) if "parameters" in content.fields else None
        if content.kind == PUBLIC_KIND:
            es.PublicKeys.from_container(content)  # public parts can be checked one by one, so they are
    facts = describe(file, content, parameters)
    if as_json:
        print_json(facts)
    else:
        _show(facts, parameters)


def describe(file: Path, content: Container, parameters: es.Parameters | None) -> dict[str, Any]:
    """All that may be told about a file that has been read and checked, ready for JSON."""
    facts: dict[str, Any] = {
        "file": str(file),
        "kind": content.kind,
        "key_id": content.key_id,
        "holds_secret_key": _holds_secret_key(content),
        "insecure": parameters is not None and not parameters.security,
        "bytes": file.stat().st_size,
        "sha256_fits": True,  # else it would not have been read
        "sections": {name: len(data) for name, data in content.sections.items()},
        "parameters": None if parameters is None else parameter_facts(parameters),
    }
    if facts["holds_secret_key"]:
        lock = content.fields.get("lock")
        mode = stat.S_IMODE(file.stat().st_mode)
        facts["locked"] = bool(lock)
        facts["mode"] = f"{mode:04o}"
        facts["others_may_read"] = bool(mode & 0o077)
    if content.kind == PUBLIC_KIND:
        facts["rotations"] = content.fields["rotations"]
    if content.kind == ARRAY_KIND:
        facts["shape"] = content.expect("shape", list)
    return facts


def _holds_secret_key(content: Container) -> bool | None:
    """None where this version does not know the kind, or finds something in it that does not belong."""
    if content.kind == OWNER_KIND or _SECRET_SECTION in content.sections:
        return True
    known = content.kind in _HARMLESS and set(content.sections) <= _HARMLESS[content.kind]
    return False if known else None


def _show(facts: dict[str, Any], parameters: es.Parameters | None) -> None:
    console = Console()
    if facts["holds_secret_key"]:
        console.print(_secret_warning(facts))
    if facts["insecure"]:
        console.print(
            Panel("INSECURE parameters: less than 128 bits of security. Never for real data.", style="bold red")
        )
    console.print(fact_table(_rows(facts, parameters)))


def _secret_warning(facts: dict[str, Any]) -> Panel:
    lines = ["This file holds a SECRET KEY: whoever has it can open everything encrypted under it. Never give it away."]
    if facts["locked"]:
        lines.append("It is locked by a passphrase.")
    else:
        lines.append("No passphrase locks it: reading the file is enough.")
    if facts["others_may_read"]:
        lines.append(f"Other users of this machine may read it (mode {facts['mode']}): chmod 600 it.")
    return Panel("\n".join(lines), style="bold red")


def _rows(facts: dict[str, Any], parameters: es.Parameters | None) -> list[tuple[str, RenderableType]]:
    rows: list[tuple[str, RenderableType]] = [
        ("file", Text(f"{printable(facts['file'])}  {size_text(facts['bytes'])}, SHA-256 fits")),
        ("holds", Text(_kind_text(facts), style="bold")),
        ("key", Text(printable(facts["key_id"]) or "none", style="cyan")),
        ("secret", _secret_text(facts["holds_secret_key"])),
        ("sections", ", ".join(f"{printable(name)} {size_text(size)}" for name, size in facts["sections"].items())),
    ]
    if facts.get("rotations"):
        rows.append(("rotations", ", ".join(map(str, facts["rotations"]))))
    return rows + (parameter_rows(parameters) if parameters is not None else [])


def _kind_text(facts: dict[str, Any]) -> str:
    kind = printable(facts["kind"])
    if "shape" not in facts:
        return kind
    shape = " x ".join(printable(str(n)) for n in facts["shape"])
    return f"{kind}, {shape} values" if shape else "encrypted integer (one value)"


def _secret_text(holds: bool | None) -> Text:
    if holds is None:
        return Text("not known: this command knows no such file, so treat it as secret", style="yellow")
    if holds:
        return Text("YES, the secret key is inside", style="bold red")
    return Text("none: nothing in it can decrypt", style="green")
