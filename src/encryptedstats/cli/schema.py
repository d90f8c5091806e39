"""``schema``: how every column becomes bins or integers, decided from a file, shown, and kept as JSON."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, Group, RenderableType
from rich.text import Text

import encryptedstats as es
from encryptedstats.cli import _complete
from encryptedstats.cli._console import command_line, fact_table, plural, printable, progress
from encryptedstats.cli._files import Writes, write_text
from encryptedstats.cli._frames import plain_table
from encryptedstats.cli._inputs import check_rows
from encryptedstats.cli._options import AsJson, Force, file_argument, output
from encryptedstats.tables import Variable
from encryptedstats.tables._documents import quoted
from encryptedstats.tables.reading import read_frame

_MANY_BINS = 50  # each is a column of ciphertexts
#: What is lost with a schema.
LOSS = "results of tables that were made with it need it"


class MissingPolicy(str, Enum):
    """What becomes of missing values."""

    error = "error"
    bin = "bin"
    drop = "drop"


def schema(
    data: Annotated[Path, file_argument("DATA", "CSV or Parquet file with rows like those to encrypt.")],
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
    bins: Annotated[int, typer.Option(metavar="N", help="Bins of a column that is cut at quantiles.")] = 5,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN=KIND",
            help="continuous, ordinal, categorical or number instead of what is found; may be given several times.",
            show_default=False,
        ),
    ] = None,
    digits: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN=N", help="Keep a column as a number with so many decimals, not as bins.", show_default=False
        ),
    ] = None,
    bounds: Annotated[
        list[str] | None,
        typer.Option(
            "--range",
            metavar="COLUMN=LOW:HIGH",
            help="Bounds of a number. A worker learns them, and round ones tell less than the least and greatest value.",
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
    missing: Annotated[
        MissingPolicy, typer.Option(help="Missing values: refuse them, give them a bin, or drop the row.")
    ] = MissingPolicy.error,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Decide from a file how every column becomes bins or integers, and write that down.

    Names, cut points, levels and classes are in the schema: it stays with whoever encrypts. A worker only ever sees
    v0, v1, ... with their kinds and numbers of bins.

    Examples:
      encryptedstats schema patients.csv --target ill -o schema.json

      # an identifier stays at home, a grade is ordered, a dose is kept as a number
      encryptedstats schema patients.csv --target ill --leave-out patient \\
          --kind grade=ordinal --digits dose=1 --range dose=0:500 -o schema.json
    """
    check_rows(data)
    wishes = _Wishes(pairs(kind, "--kind"), pairs(digits, "--digits"), pairs(bounds, "--range"))
    with progress(f"reading {printable(str(data))}"):
        frame = read_frame(data)
        absent = [name for name in leave_out or () if name not in frame.columns]
        if absent:
            raise es.SchemaError(
                f"{data} has no column {quoted(absent)} to leave out; it has {quoted(list(frame.columns))}"
            )
        found = wishes.apply(frame.drop(columns=leave_out or []), target, bins, missing.value)
    if out is not None:
        write_text(out, found.to_json() + "\n", force=force)
    if as_json:
        typer.echo(found.to_json())
        return
    Console().print(_report(found, data, len(frame), out))


def pairs(given: list[str] | None, option: str) -> dict[str, str]:
    """``COLUMN=VALUE`` as often as it was given; the name of a column may have an = in it, the value has none."""
    found = {}
    for text in given or ():
        name, equals, value = text.rpartition("=")
        if not (name and equals and value):
            raise typer.BadParameter(f"{option} {text}: a column, = and its value are needed, as in {option} grade=...")
        found[name] = value
    return found


class _Wishes:
    """What the options say of single columns."""

    def __init__(self, kinds: dict[str, str], digits: dict[str, str], bounds: dict[str, str]) -> None:
        self.numbers = {name: _number_options(digits.get(name), bounds.get(name)) for name in {**digits, **bounds}}
        clash = [name for name in self.numbers if kinds.get(name, "number") != "number"]
        if clash:
            raise typer.BadParameter(
                f"--kind {clash[0]}={kinds[clash[0]]}: a column with --digits or --range is a number"
            )
        self.kinds = {**kinds, **dict.fromkeys(self.numbers, "number")}

    def apply(self, frame: Any, target: str | None, bins: int, missing: str) -> es.Schema:
        found = es.Schema.infer(frame, target=target, bins=bins, kinds=self.kinds, missing=missing)
        for name, options in self.numbers.items():
            found = found.with_kind(name, "number", **options)
        return found


def _number_options(digits: str | None, bounds: str | None) -> dict[str, Any]:
    options: dict[str, Any] = {}
    try:
        if digits is not None:
            options["digits"] = int(digits)
        if bounds is not None:
            options["low"], options["high"] = map(float, bounds.split(":"))
    except ValueError:
        raise typer.BadParameter(
            "--digits wants COLUMN=N with a whole number, --range wants COLUMN=LOW:HIGH with two numbers"
        ) from None
    return options


# -- showing ---------------------------------------------------------------------------------------------------------


def schema_view(found: es.Schema, rows: int | None = None) -> RenderableType:
    """A schema as a table: a line for each variable, and one for the target; ``rows`` are those it was made from."""
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
        levels = Text(printable(", ".join(map(str, found.classes))))
        table.add_row("class", Text(printable(found.target)), "target", str(found.n_classes), levels, "")
    return table


def _content(variable: Variable) -> str:
    if variable.kind == "number":
        scale = 10 ** (variable.digits or 0)
        low, high = ((bound or 0) / scale for bound in (variable.low, variable.high))
        return f"{low:g} to {high:g}, {plural(variable.digits or 0, 'decimal')}"
    if variable.levels:
        text = ", ".join(map(str, variable.levels))
    elif variable.edges:
        text = "cut at " + ", ".join(f"{edge:.6g}" for edge in variable.edges)
    else:
        text = "all in one"
    return text + (", missing" if variable.missing_bin else "")


def _note(variable: Variable, rows: int | None) -> str:
    if variable.kind == "number":
        return "these bounds are public"
    if rows is not None and variable.n_bins > max(_MANY_BINS, rows // 2):
        return "an identifier? --leave-out"
    return variable.note or (f"{variable.n_bins} columns to encrypt" if variable.n_bins > _MANY_BINS else "")


def _report(found: es.Schema, data: Path, rows: int, out: Path | None) -> RenderableType:
    n_bins = sum(variable.n_bins for variable in found.variables)
    head = Text.assemble(
        (printable(str(data)), "bold"),
        f": {plural(rows, 'row')}, {plural(len(found.variables), 'variable')}, {plural(n_bins, 'bin')}; "
        f"missing values: {'refused' if found.missing == 'error' else found.missing}",
    )
    parts: list[RenderableType] = [head, Text(), schema_view(found, rows), Text()]
    if out is None:
        parts.append(Text("Nothing was written: give -o schema.json to keep it.", style="yellow"))
        return Group(*parts)
    keep = Text.assemble(
        (printable(str(out)), "bold red"), "  for you and whoever encrypts for you; a worker never gets it"
    )
    steps: list[tuple[str, RenderableType]] = [("keep", keep), ("next", _next(found, rows, out))]
    return Group(*parts, fact_table(steps))


def _next(found: es.Schema, rows: int, out: Path) -> Text:
    binned = [f"v{j}" for j, variable in enumerate(found.variables) if variable.kind != "number"]
    by_class = ",class" if found.target is not None else ""
    question = ("--counts", binned[0] + by_class) if binned else ("--moments", "v0")
    return command_line("plan", "--schema", out, "--rows", rows, *question, "-o", "plan.json")
