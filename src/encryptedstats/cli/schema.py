"""``data schema``: find out how every column of a file becomes bins or integers."""

from __future__ import annotations

import csv as csv_module
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Final

import typer

import encryptedstats as es
from encryptedstats.cli import _complete
from encryptedstats.cli._console import command_line, plural, progress, tell
from encryptedstats.cli._csv import csv_options, say_format
from encryptedstats.cli._files import Writes, write_text
from encryptedstats.cli._inputs import check_rows
from encryptedstats.cli._options import AsJson, Csv, Force, Genotypes, argument, option, output
from encryptedstats.tables import Variable
from encryptedstats.tables.questions.words import parse_pairs
from encryptedstats.tables.rows.csv_format import CsvFormat
from encryptedstats.tables.rows.genotypes import add_variants
from encryptedstats.tables.rows.row_files import read_frame
from encryptedstats.tables.schema.documents import quote
from encryptedstats.tables.schema.variables import date_text
from encryptedstats.views import TableView, View
from encryptedstats.words import did_you_mean

_MANY_BINS = 50  # each is a column of ciphertexts
_MANY_LEVELS = 12  # more are not all shown
#: Why a schema must not be replaced by accident.
LOSS = "answers of tables that were made with it need it"


class UnknownPolicy(str, Enum):
    """How levels are treated that the schema does not know."""

    error = "error"
    other = "other"
    missing = "missing"


class MissingPolicy(str, Enum):
    """How missing values are treated."""

    error = "error"
    bin = "bin"
    drop = "drop"


_NUMBERS: Final = ("number", "both")
_OF_COLUMN: Final = ("kind", "digits", "range", "cut", "levels", "missing")


def data_schema(
    data: Annotated[Path, argument("DATA", "CSV or Parquet file with rows like those to encrypt.")],
    out: Annotated[Path | None, Writes(LOSS), output("File for the schema.")] = None,
    target: Annotated[
        str | None,
        option(
            metavar="COLUMN",
            help="The column with the class, or the number, to predict.",
            autocompletion=_complete.columns,
        ),
    ] = None,
    bins: Annotated[
        int, typer.Option(metavar="N", help="Number of bins of a column that is cut at quantiles.")
    ] = 5,
    column: Annotated[
        list[str] | None,
        option(
            metavar="'COLUMN NAME=VALUE...'",
            help="Settings of a column, given once for each: kind=continuous, ordinal, "
            "categorical, number, or both (a number with bins); digits=N, decimals of a number; "
            "range=LOW:HIGH, bounds of a number, which a worker learns, so round ones tell less; "
            "cut=X,Y,..., cut points (dates as 2000-12-31); levels=A,B,..., all levels in order; "
            "missing=bin, a bin for missing values.",
            autocompletion=_complete.columns,
        ),
    ] = None,
    numbers: Annotated[
        str,
        typer.Option(
            metavar="bins|keep[:N]|both[:N]",
            help="Columns of numbers, and a numeric target: cut them into bins, keep them as "
            "numbers with N decimals, or both: regressions take the number and forests the bins.",
        ),
    ] = "bins",
    leave_out: Annotated[
        list[str] | None,
        option(
            metavar="COLUMN",
            help="Do not encrypt this column (names, numbers of patients).",
            autocompletion=_complete.columns,
        ),
    ] = None,
    row_id: Annotated[
        str | None,
        option(
            "--id",
            metavar="COLUMN",
            help="The column that identifies rows: it is not encrypted; predict copies it.",
            autocompletion=_complete.columns,
        ),
    ] = None,
    classes: Annotated[
        str | None,
        option(
            metavar="A,B,...",
            help="The classes in this order; the last of two is the positive one.",
        ),
    ] = None,
    missing: Annotated[
        MissingPolicy,
        typer.Option(help="Missing values: refuse them, give them a bin, or drop the row."),
    ] = MissingPolicy.error,
    rare: Annotated[
        float | None,
        option(
            metavar="N",
            help="Levels with fewer rows than this (or a smaller share, below 1) count as the "
            "level other.",
        ),
    ] = None,
    unknown: Annotated[
        UnknownPolicy,
        typer.Option(
            help="Levels that this file does not show: refuse them, or count them as other or as "
            "missing."
        ),
    ] = UnknownPolicy.error,
    genotypes: Genotypes = None,
    csv: Csv = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Find out how every column of a file becomes bins or integers, and save that.

    The schema has names, cut points, levels and classes: keep it private. A worker only sees v0,
    v1, ... with their kinds and numbers of bins. The file is JSON and may be edited; commands that
    read it check it.

    JSON: format, version, variables, target, classes, missing, onehot, id, csv, target_number

    Examples:
      encryptedstats data schema patients.csv --target ill -o schema.json

      # leave out an identifier; a grade is ordered, a dose is a number
      encryptedstats data schema patients.csv --target ill --leave-out patient \\
          --column "grade kind=ordinal" --column "dose digits=1 range=0:500" -o schema.json

      # for regressions: numbers stay numbers, the target too
      encryptedstats data schema patients.csv --target bmi --numbers keep:1 -o schema.json

      # people and their genotypes, for a scan
      encryptedstats data schema people.csv --target bmi --id IID --genotypes study.bed \\
        -o schema.json

      # new rows may have missing values and unknown levels
      encryptedstats data schema patients.csv --target ill --id patient \\
        --column "age cut=18,40,65 missing=bin" \\
          --classes no,yes --rare 20 --unknown other -o schema.json
    """
    check_rows(data)
    kept, _, digits = numbers.partition(":")
    if kept not in ("bins", "keep", "both") or (
        digits and (kept == "bins" or not digits.isdigit())
    ):
        raise typer.BadParameter(
            f"--numbers {numbers}: bins, keep, keep:N, both or both:N is needed"
        )
    if genotypes is not None:
        if row_id is None:
            raise typer.BadParameter("--genotypes needs --id COLUMN, by which people are matched")
        kept = "keep" if kept == "bins" else kept
    wishes = _parse_columns(column)
    ignored = frozenset([*(leave_out or ()), *([row_id] if row_id is not None else ())])
    found_format: list[CsvFormat] = []
    with progress(f"reading {data}"):
        frame = read_frame(
            data, None, replace(csv_options(csv), ignored=ignored), found_format.append
        )
        _check_columns(data, frame, "leave out", leave_out or ())
        _check_columns(data, frame, "describe", wishes)
        found = _infer(
            frame.drop(columns=leave_out or []),
            wishes,
            _classes(classes, target, frame),
            target=target,
            bins=bins,
            missing=missing.value,
            numbers=kept,
            digits=int(digits) if digits else None,
            rare=int(rare) if rare is not None and rare >= 1 and rare == int(rare) else rare,
            unknown=unknown.value,
            id=row_id,
        )
        found = replace(found, csv=found_format[0] if found_format else None)
        if genotypes is not None:
            found = _with_genotypes(found, frame, genotypes)
    if out is not None:
        write_text(out, found.to_json() + "\n", force=force)
    if not as_json:
        for form in found_format:
            say_format(data)(form)
    tell(_view(found, data, len(frame), out), json.loads(found.to_json()), as_json)


def _with_genotypes(people: es.Schema, frame: Any, genotypes: Path) -> es.Schema:
    read = es.read_genotypes(genotypes)
    places, _ = read.match(frame, str(people.id))
    return add_variants(people, read.codes[places], read.variants)


def _parse_columns(texts: Sequence[str] | None) -> dict[str, dict[str, str]]:
    """Return the settings of each column: ``'grade kind=ordinal'``."""
    found: dict[str, dict[str, str]] = {}
    for text in texts or ():
        name, *words = shlex.split(text) or [""]
        if not words:
            raise typer.BadParameter(
                f"--column {text}: give a column and its settings, as in --column 'grade "
                "kind=ordinal'"
            )
        said = parse_pairs([shlex.quote(word) for word in words], _OF_COLUMN, f"--column {name}")
        found.setdefault(name, {}).update(said)
    for name, said in found.items():
        if {"digits", "range"} & set(said) and said.get("kind", "number") not in _NUMBERS:
            raise typer.BadParameter(
                f"--column {name}: digits= and range= are for kind=number or both, not "
                f"{said['kind']}"
            )
        if said.get("missing", "bin") != "bin":
            raise typer.BadParameter(f"--column {name}: only missing=bin is possible")
    return found


def _check_columns(data: Path, frame: Any, what: str, names: Any) -> None:
    """Refuse columns that the file does not have."""
    absent = [name for name in names if name not in frame.columns]
    if absent:
        columns = list(frame.columns)
        near = did_you_mean(absent[0], columns) or f"; it has {quote(columns)}"
        raise es.SchemaError(
            f"{data} has no column {quote(absent)} to {what}{near}", code="unknown-column"
        )


def _infer(
    frame: Any,
    wishes: Mapping[str, Mapping[str, str]],
    classes: list[Any] | None,
    **options: Any,
) -> es.Schema:
    numbers = {name: said for name, said in wishes.items() if {"digits", "range"} & set(said)}
    wanted = "both" if options["numbers"] == "both" else "number"
    asked = dict.fromkeys(numbers, wanted)
    asked |= {name: said["kind"] for name, said in wishes.items() if "kind" in said}
    kinds = {
        name: kind
        for name, kind in asked.items()
        if name != options["target"] or kind not in _NUMBERS
    }
    found = es.Schema.infer(frame, kinds=kinds, classes=classes, **options)
    for name, said in numbers.items():
        kind = "both" if name in found.names and found[name].n_bins else "number"
        found = found.with_kind(name, kind, **_number_options(name, said))
    for name, said in wishes.items():
        if "cut" in said:
            edges = [_cut_point(one, name) for one in _items(said["cut"], name)]
            found = found.with_bins(name, edges=edges)
        if "levels" in said:
            levels = _convert(_items(said["levels"], name), frame[found[name].name])
            found = found.with_bins(name, levels=levels)
        if "missing" in said:
            found = found.with_missing_bin(name)
    return found


def _classes(text: str | None, target: str | None, frame: Any) -> list[Any] | None:
    if text is None:
        return None
    if target is None:
        raise typer.BadParameter("--classes needs --target COLUMN, whose classes they are")
    return _convert(_items(text, "--classes"), frame[target]) if target in frame.columns else None


def _items(text: str, where: str) -> list[str]:
    """Split text at commas; quotes protect a comma, as in CSV."""
    items = next(csv_module.reader([text], skipinitialspace=True), [])
    if not items or not all(items):
        raise typer.BadParameter(f"{where} {text}: give values separated by commas")
    return items


def _cut_point(text: str, name: str) -> float:
    """Return a number, or a date in days since 1970."""
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return float(date.fromisoformat(text).toordinal() - date(1970, 1, 1).toordinal())
    except ValueError:
        raise typer.BadParameter(
            f"--column {name} cut=...: {text!r} is no number, and no date such as 2000-12-31"
        ) from None


def _convert(items: Sequence[str], column: Any) -> list[Any]:
    """Convert text to the type of a column: numbers, booleans or text."""
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    if is_bool_dtype(column.dtype):
        return [{"true": True, "false": False}.get(item.lower(), item) for item in items]
    if not is_numeric_dtype(column.dtype):
        return list(items)
    try:
        return [float(item) for item in items]
    except ValueError:
        raise typer.BadParameter(
            f"column {column.name!r} has numbers, and {quote(items)} are not all numbers"
        ) from None


def _number_options(name: str, said: Mapping[str, str]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    try:
        if "digits" in said:
            options["digits"] = int(said["digits"])
        if "range" in said:
            options["low"], options["high"] = map(float, said["range"].split(":"))
    except ValueError:
        raise typer.BadParameter(
            f"--column {name}: digits=N takes a whole number, range=LOW:HIGH two numbers"
        ) from None
    return options


# -- showing
# ------------------------------------------------------------------------------------------------


def schema_table(found: es.Schema, rows: int | None = None) -> TableView:
    """Return a schema of ``rows`` rows as a table with a line for each variable and the target."""
    import pandas as pd

    lines = {
        f"v{position}": [
            one.name,
            one.kind,
            str(one.n_bins or "-"),
            _content(one),
            _note(one, rows),
        ]
        for position, one in enumerate(found.variables)
    }
    if found.target is not None:
        number = found.target_number
        if number is None:
            levels = ", ".join(map(str, found.classes))
            lines["class"] = [found.target, "target", str(found.n_classes), levels, ""]
        else:
            lines["target"] = [found.target, "number", "-", _content(number), ""]
    columns = ["column", "kind", "bins", "which", "note"]
    frame = pd.DataFrame.from_dict(lines, orient="index", columns=columns).rename_axis("id")
    return TableView("variables", frame)


def _content(variable: Variable) -> str:
    if variable.kind == "number":
        scale = 10 ** (variable.digits or 0)
        low, high = ((bound or 0) / scale for bound in (variable.low, variable.high))
        cut = f", cut at {_cut_text(variable)}" if variable.edges else ""
        if variable.dates:
            return f"{date_text(low)} to {date_text(high)}{cut}"
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
    show = date_text if variable.dates else "{:.6g}".format
    return ", ".join(map(show, variable.edges))


def _note(variable: Variable, rows: int | None) -> str:
    if variable.kind == "number":
        return "these bounds are public"
    if rows is not None and variable.n_bins > max(_MANY_BINS, rows // 2):
        return "an identifier? --leave-out"
    return variable.note or (
        f"{variable.n_bins} columns to encrypt" if variable.n_bins > _MANY_BINS else ""
    )


def _view(found: es.Schema, data: Path, rows: int, out: Path | None) -> View:
    n_bins = sum(variable.n_bins for variable in found.variables)
    title = (
        f"{data}: {plural(rows, 'row')}, {plural(len(found.variables), 'variable')}, "
        f"{plural(n_bins, 'bin')}; missing values: "
        f"{'refused' if found.missing == 'error' else found.missing}"
    )
    notes: tuple[str, ...] = ("Nothing was written: give -o schema.json to keep it.",)
    if out is not None:
        keep = f"keep  {out}  for you and your contributors; a worker must not get it"
        notes = (keep, f"next  {_next(found, rows, out)}")
    return View(title, tables=(schema_table(found, rows),), notes=notes)


def _next(found: es.Schema, rows: int, out: Path) -> str:
    binned = [f"v{j}" for j, variable in enumerate(found.variables) if variable.kind != "number"]
    by_class = ", class" if found.classes else ""
    question = f"counts({binned[0]}{by_class})" if binned else "moments(v0)"
    question = question if found.genome is None else "GenomeScan"
    return command_line("plan", out, question, "--rows", rows, "-o", "plan.json")
