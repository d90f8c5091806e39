"""``decrypt``: results opened by the owner, on the screen or as CSV."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import pandas as pd
import typer
from rich.console import Console, RenderableType
from rich.text import Text

import encryptedstats as es
from encryptedstats.circuits.results import TOTALS_KIND, EncryptedTotals
from encryptedstats.cli._console import plural, print_json, printable, size_text
from encryptedstats.cli._files import check_target, write_text
from encryptedstats.cli._frames import counts_view, moments_view
from encryptedstats.cli._keys import load_owner
from encryptedstats.cli._options import AsJson, KeyFile, PassphraseFile
from encryptedstats.cli._questions import question_text, variable_name
from encryptedstats.crypto.arrays import ARRAY_KIND
from encryptedstats.storage import container
from encryptedstats.tables.statistics import STATISTIC_KIND


@dataclass(frozen=True)
class Opened:
    """A decrypted result in the forms it can be given in."""

    title: str
    view: Callable[[int], RenderableType]  # for a screen of this width
    csv: str
    facts: dict[str, Any]
    hint: str = ""


def decrypt(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            readable=False,
            help="A result, or an encrypted array.",
            show_default=False,
        ),
    ],
    key: KeyFile = None,
    schema: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", readable=False, help="Your schema, to see names instead of v0, v1, ...", show_default=False
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            readable=False,
            help="Write CSV there; - for the screen.",
            show_default=False,
        ),
    ] = None,
    passphrase_file: PassphraseFile = None,
    as_json: AsJson = False,
) -> None:
    """Open a result with the secret key: on the screen, or as CSV.

    Examples:
      encryptedstats decrypt v0-by-class.enc --key secret.key --schema schema.json
      encryptedstats decrypt v0-by-class.enc --key secret.key --schema schema.json -o counts.csv
    """
    if key is None:
        raise ValueError("the secret key is needed: --key secret.key, the file that keygen wrote first")
    screen = out is None or str(out) == "-"
    if out is not None and not screen:
        check_target(out)
    opener = _opener(file)
    private = None if schema is None else es.Schema.load(schema)
    owner = load_owner(key, passphrase_file)
    opened = opener(file, owner, private)
    if out is not None and not screen:
        write_text(out, opened.csv)
    if as_json:
        print_json(opened.facts)
    elif out is None:
        _show(opened)
    elif screen:
        typer.echo(opened.csv, nl=False)
    else:
        written = (printable(str(out)), "bold"), f"  {size_text(out.stat().st_size)}: {printable(opened.title)}"
        Console().print(Text.assemble("Wrote ", *written))


def _opener(file: Path) -> Callable[[Path, es.Owner, es.Schema | None], Opened]:
    """How a file is opened, by what it says it is; before anybody is asked for a passphrase."""
    if file.is_dir():
        raise IsADirectoryError(f"{file} is a folder: give the file of a result; a whole table is not decrypted")
    kind = container.read(file).kind
    if kind not in OPENERS:
        raise es.FileFormatError(
            f"{file} holds {kind!r}, and there is nothing to decrypt in it: give the file of a result, or an encrypted array"
        )
    return OPENERS[kind]


def _show(opened: Opened) -> None:
    console = Console()
    console.print(Text(printable(opened.title), style="bold"))
    console.print(opened.view(console.width))
    if opened.hint:
        console.print()
        console.print(Text(opened.hint, style="yellow"))


# -- what can be opened ------------------------------------------------------------------------------------------------


def _open_statistic(file: Path, owner: es.Owner, schema: es.Schema | None) -> Opened:
    answer = es.EncryptedStatistic.load(file, owner.public_keys())
    frame = owner.decrypt(answer, schema=schema)
    asked = answer.statistic
    names = [variable_name(position, schema) for position in asked.variables]
    title = f"{question_text(asked.name, names).capitalize()}, {plural(asked.n_rows, 'row')}"
    view = moments_view if asked.name == "moments" else counts_view
    facts = {
        "file": str(file),
        "kind": STATISTIC_KIND,
        "statistic": asked.name,
        "variables": names,
        "rows": asked.n_rows,
        "index": [str(label) for label in frame.index],
        "columns": [str(name) for name in frame.columns],
        "values": frame.astype(object).where(frame.notna(), None).to_numpy().tolist(),
    }
    hint = (
        ""
        if schema
        else "Give --schema to see the names of columns, bins and classes"
        + (", and moments in their own units." if asked.name == "moments" else ".")
    )
    return Opened(title, lambda width: view(frame, width), frame.to_csv(lineterminator="\n"), facts, hint)


def _open_totals(file: Path, owner: es.Owner, _: es.Schema | None) -> Opened:
    totals = owner.decrypt(EncryptedTotals.load(file, owner.public_keys()))
    facts = {"file": str(file), "kind": TOTALS_KIND, "values": totals}
    csv = pd.DataFrame({"total": totals}, dtype=object).to_csv(index=False, lineterminator="\n")
    return Opened(plural(len(totals), "total"), _numbers(np.array(totals, dtype=object)), csv, facts)


def _open_array(file: Path, owner: es.Owner, _: es.Schema | None) -> Opened:
    values = np.asarray(owner.decrypt(es.EncryptedArray.load(file, owner.public_keys())))
    shape = " x ".join(map(str, values.shape))
    title = f"Array of {shape} integers" if shape else "An integer"
    facts = {"file": str(file), "kind": ARRAY_KIND, "shape": list(values.shape), "values": values.tolist()}
    return Opened(title, _numbers(values), _array_csv(values), facts)


def _array_csv(values: Any) -> str:
    """Rows of a matrix, one value a line of a vector; more dimensions as a list of indices with the value."""
    text = io.StringIO()
    if values.ndim > 2:
        names = [f"i{axis}" for axis in range(values.ndim)]
        rows = [(*index, value) for index, value in np.ndenumerate(values)]
        pd.DataFrame(rows, columns=[*names, "value"]).to_csv(text, index=False, lineterminator="\n")
    else:
        pd.DataFrame(np.atleast_1d(values)).to_csv(text, index=False, header=False, lineterminator="\n")
    return text.getvalue()


def _numbers(values: Any) -> Callable[[int], RenderableType]:
    def view(width: int) -> RenderableType:
        return Text(np.array2string(values, max_line_width=width, threshold=2000))

    return view


#: By the kind that a file says it is. What later layers store (a fitted model) is added here.
OPENERS: Final[dict[str, Callable[[Path, es.Owner, es.Schema | None], Opened]]] = {
    STATISTIC_KIND: _open_statistic,
    TOTALS_KIND: _open_totals,
    ARRAY_KIND: _open_array,
}
