"""``schema``: how every column becomes bins or integers, decided from a file, shown, and kept as
JSON.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from pandas.api.types import is_bool_dtype, is_numeric_dtype
from rich.console import Console, Group, RenderableType
from rich.text import Text

import encryptedstats as es
from encryptedstats.cli import _complete
from encryptedstats.cli._console import command_line, fact_table, plural, printable, progress
from encryptedstats.cli._csv import AS_FOUND, say_format, with_csv_options
from encryptedstats.cli._files import Writes, write_text
from encryptedstats.cli._frames import plain_table
from encryptedstats.cli._inputs import check_rows
from encryptedstats.cli._options import AsJson, Force, file_argument, output
from encryptedstats.tables import Variable
from encryptedstats.tables.rows.csv_format import CsvFormat, CsvOptions
from encryptedstats.tables.rows.row_files import read_frame
from encryptedstats.tables.schema.documents import quoted
from encryptedstats.words import did_you_mean

_MANY_BINS = 50  # each is a column of ciphertexts
_MANY_LEVELS = 12  # more are not all shown
#: What is lost with a schema.
LOSS = "results of tables that were made with it need it"


class UnknownPolicy(str, Enum):
    """What becomes of levels that the schema does not know."""

    error = "error"
    other = "other"
    missing = "missing"


_NUMBERS: Final = ("number", "both")


class NumberPolicy(str, Enum):
    """What becomes of numbers."""

    bins = "bins"
    keep = "keep"
    both = "both"


class MissingPolicy(str, Enum):
    """What becomes of missing values."""

    error = "error"
    bin = "bin"
    drop = "drop"


@with_csv_options
def schema(
    data: Annotated[
        Path, file_argument("DATA", "CSV or Parquet file with rows like those to encrypt.")
    ],
    out: Annotated[Path | None, Writes(LOSS), output("Where the schema goes.")] = None,
    target: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="The column with the class.",
            autocompletion=_complete.columns,
            show_default=False,
        ),
    ] = None,
    bins: Annotated[
        int, typer.Option(metavar="N", help="Bins of a column that is cut at quantiles.")
    ] = 5,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN=KIND",
            help="continuous, ordinal, categorical, number, or both (a number that has bins as "
            "well) instead of what is found; may be given several times.",
            show_default=False,
        ),
    ] = None,
    numbers: Annotated[
        NumberPolicy,
        typer.Option(
            help="Columns of numbers, and a target of such: cut them into bins, keep them as "
            "numbers, or both: regressions take the number and forests the bins."
        ),
    ] = NumberPolicy.bins,
    digits: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[COLUMN=]N",
            help="Keep a column as a number with so many decimals, not as bins; N alone is for all "
            "that --numbers keep keeps.",
            show_default=False,
        ),
    ] = None,
    bounds: Annotated[
        list[str] | None,
        typer.Option(
            "--range",
            metavar="COLUMN=LOW:HIGH",
            help="Bounds of a number. A worker learns them, and round ones tell less than the "
            "least and greatest value.",
            show_default=False,
        ),
    ] = None,
    leave_out: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            help="Do not encrypt this column (names, numbers of patients).",
            autocompletion=_complete.columns,
            show_default=False,
        ),
    ] = None,
    row_id: Annotated[
        str | None,
        typer.Option(
            "--id",
            metavar="COLUMN",
            help="The column that tells rows apart: never encrypted; predict carries it along.",
            autocompletion=_complete.columns,
            show_default=False,
        ),
    ] = None,
    cut: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN=X,Y,...",
            help="Cut points of your own, as in age=18,40,65 (dates as in 2000-12-31); may be "
            "given several times.",
            show_default=False,
        ),
    ] = None,
    levels: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN=A,B,...",
            help="The levels, in this order, those that the file does not show included; may be "
            "given several times.",
            show_default=False,
        ),
    ] = None,
    classes: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...",
            help="The classes in this order; the last of two is the one to find.",
            show_default=False,
        ),
    ] = None,
    missing: Annotated[
        MissingPolicy,
        typer.Option(help="Missing values: refuse them, give them a bin, or drop the row."),
    ] = MissingPolicy.error,
    missing_bin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            help="A bin for missing values, also where this file misses none; may be given several "
            "times.",
            autocompletion=_complete.columns,
            show_default=False,
        ),
    ] = None,
    rare: Annotated[
        float | None,
        typer.Option(
            metavar="N",
            help="Levels with fewer rows than this (or a smaller share, below 1) count as the "
            "level other.",
            show_default=False,
        ),
    ] = None,
    unknown: Annotated[
        UnknownPolicy,
        typer.Option(
            help="Levels that this file does not show: refuse them, or count them as other or as "
            "missing."
        ),
    ] = UnknownPolicy.error,
    force: Force = False,
    csv: CsvOptions = AS_FOUND,
    as_json: AsJson = False,
) -> None:
    """Decide from a file how every column becomes bins or integers, and write that down.

    Names, cut points, levels and classes are in the schema: it stays with whoever encrypts. A worker only ever sees
    v0, v1, ... with their kinds and numbers of bins. The file is JSON that you may edit: what reads it again says what is wrong.

    Examples:
      encryptedstats schema patients.csv --target ill -o schema.json

      # an identifier stays at home, a grade is ordered, a dose is kept as a number
      encryptedstats schema patients.csv --target ill --leave-out patient \\
          --kind grade=ordinal --digits dose=1 --range dose=0:500 -o schema.json

      # for regressions: numbers stay numbers, the target too
      encryptedstats schema patients.csv --target bmi --numbers keep --digits 1 -o schema.json

      # new rows may have gaps, and countries that this file has not
      encryptedstats schema patients.csv --target ill --id patient --cut age=18,40,65 --classes no,yes \\
          --missing-bin age --rare 20 --unknown other -o schema.json
    """
    check_rows(data)
    of_all = [text for text in digits or () if text.isdigit()]
    if of_all and numbers is NumberPolicy.bins:
        raise typer.BadParameter(
            f"--digits {of_all[0]}: which column? COLUMN={of_all[0]}, or all with --numbers keep"
        )
    wishes = _Wishes(
        pairs(kind, "--kind"),
        pairs([text for text in digits or () if text not in of_all], "--digits"),
        pairs(bounds, "--range"),
        _Bins(pairs(cut, "--cut"), pairs(levels, "--levels"), missing_bin or []),
        classes,
    )
    ignored = frozenset([*(leave_out or ()), *([row_id] if row_id is not None else ())])
    found_format: list[CsvFormat] = []
    with progress(f"reading {printable(str(data))}"):
        frame = read_frame(data, None, replace(csv, ignored=ignored), found_format.append)
        absent = [name for name in leave_out or () if name not in frame.columns]
        if absent:
            raise es.SchemaError(
                f"{data} has no column {quoted(absent)} to leave out"
                f"{did_you_mean(absent[0], frame.columns)}; it has {quoted(list(frame.columns))}",
                code="unknown-column",
            )
        if rare is not None and rare >= 1 and rare == int(rare):
            rare = int(rare)
        found = wishes.apply(
            frame.drop(columns=leave_out or []),
            target=target,
            bins=bins,
            missing=missing.value,
            numbers=numbers.value,
            digits=int(of_all[-1]) if of_all else None,
            rare=rare,
            unknown=unknown.value,
            id=row_id,
        )
        found = replace(found, csv=found_format[0] if found_format else None)
    if out is not None:
        write_text(out, found.to_json() + "\n", force=force)
    if as_json:
        typer.echo(found.to_json())
        return
    for form in found_format:
        say_format(data)(form)
    Console().print(_report(found, data, len(frame), out))


def pairs(given: list[str] | None, option: str) -> dict[str, str]:
    """``COLUMN=VALUE`` as often as it was given; the name of a column may have an = in it, the
    value has none.
    """
    found = {}
    for text in given or ():
        name, equals, value = text.rpartition("=")
        if not (name and equals and value):
            raise typer.BadParameter(
                f"{option} {text}: a column, = and its value are needed, as in {option} grade=..."
            )
        found[name] = value
    return found


class _Wishes:
    """What the options say of single columns."""

    def __init__(
        self,
        kinds: dict[str, str],
        digits: dict[str, str],
        bounds: dict[str, str],
        own: _Bins,
        classes: str | None,
    ) -> None:
        self.own = own
        self.classes = None if classes is None else _items(classes, "--classes")
        self.numbers = {
            name: _number_options(digits.get(name), bounds.get(name))
            for name in {**digits, **bounds}
        }
        clash = [name for name in self.numbers if kinds.get(name, "number") not in _NUMBERS]
        if clash:
            raise typer.BadParameter(
                f"--kind {clash[0]}={kinds[clash[0]]}: a column with --digits or --range is a "
                "number"
            )
        self.kinds = kinds

    def apply(self, frame: Any, *, target: str | None, **options: Any) -> es.Schema:
        if self.classes is not None and target is None:
            raise typer.BadParameter("--classes are those of the target: give --target COLUMN")
        classes = (
            None
            if self.classes is None or target not in frame.columns
            else _typed(self.classes, frame[target])
        )
        wanted = "both" if options["numbers"] == "both" else "number"
        asked = {**dict.fromkeys(self.numbers, wanted), **self.kinds}
        kinds = {
            name: kind for name, kind in asked.items() if name != target or kind not in _NUMBERS
        }
        found = es.Schema.infer(frame, target=target, kinds=kinds, classes=classes, **options)
        for name, number in self.numbers.items():
            kind = "both" if name in found.names and found[name].n_bins else "number"
            found = found.with_kind(name, kind, **number)
        return self.own.apply(found, frame)


@dataclass(frozen=True)
class _Bins:
    """Bins that the options say: cut points, levels, and where one is for missing values."""

    cuts: dict[str, str]
    levels: dict[str, str]
    missing: Sequence[str]

    def apply(self, found: es.Schema, frame: Any) -> es.Schema:
        for name, text in self.cuts.items():
            found = found.with_bins(
                name, edges=[_cut_point(one, name) for one in _items(text, "--cut")]
            )
        for name, text in self.levels.items():
            found = found.with_bins(
                name, levels=_typed(_items(text, "--levels"), frame[found[name].name])
            )
        for name in self.missing:
            found = found.with_missing_bin(name)
        return found


def _items(text: str, option: str) -> list[str]:
    """What stands between commas; an item with a comma in quotes, as in CSV."""
    items = next(csv.reader([text], skipinitialspace=True), [])
    if not all(items):
        raise typer.BadParameter(f"{option} {text}: values with a comma between them are needed")
    return items


def _cut_point(text: str, name: str) -> float:
    """A number, or a date as days since 1970."""
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return float(date.fromisoformat(text).toordinal() - date(1970, 1, 1).toordinal())
    except ValueError:
        raise typer.BadParameter(
            f"--cut {name}=...: {text!r} is no number, and no date such as 2000-12-31"
        ) from None


def _typed(items: Sequence[str], column: Any) -> list[Any]:
    """Words of the command line as values of a column: numbers and booleans are such where the
    column has such.
    """
    if is_bool_dtype(column.dtype):
        return [{"true": True, "false": False}.get(item.lower(), item) for item in items]
    if not is_numeric_dtype(column.dtype):
        return list(items)
    try:
        return [float(item) for item in items]
    except ValueError:
        raise typer.BadParameter(
            f"column {column.name!r} has numbers, and {quoted(items)} are not all such"
        ) from None


def _number_options(digits: str | None, bounds: str | None) -> dict[str, Any]:
    options: dict[str, Any] = {}
    try:
        if digits is not None:
            options["digits"] = int(digits)
        if bounds is not None:
            options["low"], options["high"] = map(float, bounds.split(":"))
    except ValueError:
        raise typer.BadParameter(
            "--digits wants COLUMN=N with a whole number, --range wants COLUMN=LOW:HIGH with two "
            "numbers"
        ) from None
    return options


# -- showing
# ------------------------------------------------------------------------------------------------


def schema_view(found: es.Schema, rows: int | None = None) -> RenderableType:
    """A schema as a table: a line for each variable, and one for the target; ``rows`` are those it
    was made from.
    """
    table = plain_table()
    table.add_column("id", no_wrap=True, style="cyan")
    table.add_column("column", style="bold", overflow="fold", max_width=32)
    table.add_column("kind", no_wrap=True)
    table.add_column("bins", justify="right", no_wrap=True)
    table.add_column("which", overflow="fold", ratio=1)
    table.add_column("note", style="yellow")
    table.expand = True
    for position, variable in enumerate(found.variables):
        table.add_row(
            f"v{position}",
            Text(printable(variable.name)),
            variable.kind,
            str(variable.n_bins or "-"),
            Text(printable(_content(variable))),
            _note(variable, rows),
        )
    if found.target is not None:
        number = found.target_number
        levels = Text(
            printable(", ".join(map(str, found.classes)) if number is None else _content(number))
        )
        what = (
            ("class", "target", str(found.n_classes))
            if number is None
            else ("target", "number", "-")
        )
        table.add_row(what[0], Text(printable(found.target)), *what[1:], levels, "")
    return table


def _content(variable: Variable) -> str:
    if variable.kind == "number":
        scale = 10 ** (variable.digits or 0)
        low, high = ((bound or 0) / scale for bound in (variable.low, variable.high))
        cut = f", cut at {_cut_text(variable)}" if variable.edges else ""
        return f"{low:g} to {high:g}, {plural(variable.digits or 0, 'decimal')}{cut}"
    if variable.levels:
        shown = list(map(str, variable.levels))
        if len(shown) > _MANY_LEVELS:
            shown[8:-2] = ["..."]
        text = ", ".join(shown) + (f" ({variable.policy})" if variable.policy else "")
    elif variable.edges:
        text = f"cut at {_cut_text(variable)}"
    else:
        text = "all in one"
    return text + (", missing" if variable.missing_bin else "")


def _cut_text(variable: Variable) -> str:
    return ", ".join(f"{edge:.6g}" for edge in variable.edges)


def _note(variable: Variable, rows: int | None) -> str:
    if variable.kind == "number":
        return "these bounds are public"
    if rows is not None and variable.n_bins > max(_MANY_BINS, rows // 2):
        return "an identifier? --leave-out"
    return variable.note or (
        f"{variable.n_bins} columns to encrypt" if variable.n_bins > _MANY_BINS else ""
    )


def _report(found: es.Schema, data: Path, rows: int, out: Path | None) -> RenderableType:
    n_bins = sum(variable.n_bins for variable in found.variables)
    head = Text.assemble(
        (printable(str(data)), "bold"),
        f": {plural(rows, 'row')}, {plural(len(found.variables), 'variable')}, "
        f"{plural(n_bins, 'bin')}; "
        f"missing values: {'refused' if found.missing == 'error' else found.missing}",
    )
    parts: list[RenderableType] = [head, Text(), schema_view(found, rows), Text()]
    if out is None:
        parts.append(Text("Nothing was written: give -o schema.json to keep it.", style="yellow"))
        return Group(*parts)
    keep = Text.assemble(
        (printable(str(out)), "bold red"),
        "  for you and whoever encrypts for you; a worker never gets it",
    )
    steps: list[tuple[str, RenderableType]] = [("keep", keep), ("next", _next(found, rows, out))]
    return Group(*parts, fact_table(steps))


def _next(found: es.Schema, rows: int, out: Path) -> Text:
    binned = [f"v{j}" for j, variable in enumerate(found.variables) if variable.n_bins]
    by_class = ",class" if found.classes else ""
    question = ("--counts", binned[0] + by_class) if binned else ("--moments", "v0")
    return command_line("plan", "--schema", out, "--rows", rows, *question, "-o", "plan.json")
