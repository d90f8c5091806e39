"""``datasets``: the data sets of the paper, listed, described, and written as CSV to try things out
on.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, RenderableType
from rich.text import Text

import encryptedstats as es
from encryptedstats.cli._console import (
    command_line,
    fact_table,
    plural,
    print_json,
    printable,
    progress,
    size_text,
)
from encryptedstats.cli._files import Writes, write_text
from encryptedstats.cli._frames import plain_table
from encryptedstats.cli._options import AsJson, Force, file_option, output
from encryptedstats.cli.schema import LOSS
from reproduction import datasets as sets
from reproduction.datasets import DatasetInfo

_TARGET = "target"


def datasets(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="One of them; all by default.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[Path | None, Writes(), output("Write its CSV there.")] = None,
    schema: Annotated[
        Path | None,
        Writes(LOSS),
        file_option(help="Write a schema with the kinds of the paper there."),
    ] = None,
    bins: Annotated[int, typer.Option(metavar="N", help="Bins of that schema.")] = 5,
    all_rows: Annotated[
        bool,
        typer.Option(
            "--all-rows", help="Also the rows with missing values, which the paper leaves out."
        ),
    ] = False,
    data_home: Annotated[
        Path | None,
        file_option(
            metavar="FOLDER",
            help="Folder with the files; by default ENCRYPTEDSTATS_DATA, then a cache, then UCI's "
            "server.",
        ),
    ] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """List the data sets of the paper, describe one, or write it as CSV.

    Examples:
      python -m reproduction datasets
      python -m reproduction datasets bcw_o

      # rows and schema, ready for plan and encrypt
      python -m reproduction datasets bcw_o -o bcw_o.csv --schema schema.json
    """
    if name is None:
        if out is not None or schema is not None:
            raise typer.BadParameter(
                "say which data set is to be written: python -m reproduction datasets NAME -o FILE"
            )
        _list(as_json)
        return
    info = sets.info(name)
    written = _write(info, out, schema, bins, all_rows, data_home, force) if out or schema else {}
    if as_json:
        print_json({**_facts(info), "written": written})
    else:
        _show(info, out, schema, written)


def _write(
    info: DatasetInfo,
    out: Path | None,
    schema: Path | None,
    bins: int,
    all_rows: bool,
    data_home: Path | None,
    force: bool,
) -> dict[str, Any]:
    with progress(f"looking for {info.name}"):
        data = sets.load(info.name, data_home=data_home, complete=not all_rows)
        frame = data.table_frame()
    if out is not None:
        write_text(
            out, frame.to_csv(index=False, lineterminator="\n"), force=force, private=False
        )  # UCI publishes it
    if schema is not None:
        missing = "bin" if all_rows else "error"
        found = es.Schema.infer(frame, target=_TARGET, bins=bins, kinds=data.kinds, missing=missing)
        write_text(schema, found.to_json() + "\n", force=force)
    return {"csv": out and str(out), "schema": schema and str(schema), "rows": len(frame)}


def _facts(info: DatasetInfo) -> dict[str, Any]:
    hidden = {"file", "sha256", "csv_sha256", "bytes", "rows_missing_only_in_dropped_columns"}
    facts = {name: value for name, value in asdict(info).items() if name not in hidden}
    return {**facts, "url": info.url, "citation": info.citation}


def _kinds(info: DatasetInfo) -> dict[str, int]:
    return dict(Counter(info.kinds.values()))


def _list(as_json: bool) -> None:
    infos = [sets.info(name) for name in sets.names()]
    if as_json:
        print_json({"datasets": [_facts(info) for info in infos]})
        return
    table = plain_table()
    table.add_column("name", style="cyan", no_wrap=True)
    table.add_column("", overflow="fold", ratio=1)
    for title in ("rows", "complete", "columns", "cont.", "ord.", "cat.", "class 1"):
        table.add_column(title, justify="right", no_wrap=True)
    table.expand = True
    for info in infos:
        kinds = _kinds(info)
        counts = [str(kinds.get(kind) or "-") for kind in ("continuous", "ordinal", "categorical")]
        share = f"{100 * info.n_positive / info.n_rows:.0f} %"
        numbers = (
            f"{info.n_rows:,}",
            f"{info.n_rows_complete:,}",
            str(info.n_predictors),
            *counts,
            share,
        )
        table.add_row(info.name, info.full_name, *numbers)
    console = Console()
    console.print(table)
    console.print()
    console.print(fact_table([("next", _again("bcw_o", "-o", "bcw_o.csv"))]))


def _show(
    info: DatasetInfo, out: Path | None, schema: Path | None, written: dict[str, Any]
) -> None:
    kinds = ", ".join(f"{count} {kind}" for kind, count in _kinds(info).items())
    complete = (
        ""
        if info.n_rows == info.n_rows_complete
        else f", {info.n_rows_complete:,} without missing values"
    )
    columns = list(info.columns)
    shown = ", ".join(columns[:12]) + (
        f", ... ({len(columns)} in all)" if len(columns) > 12 else ""
    )
    rows: list[tuple[str, RenderableType]] = [
        ("name", Text.assemble((info.name, "bold cyan"), f"  {info.full_name}")),
        ("rows", f"{info.n_rows:,}{complete}"),
        ("columns", f"{plural(info.n_predictors, 'predictor')}: {kinds}"),
        ("", shown),
        (
            "target",
            f"{_TARGET} = 1 for {info.positive_class}: {info.n_positive:,} rows, against "
            f"{info.n_negative:,}",
        ),
        ("cite", info.citation),
        ("licence", info.licence),
    ]
    if info.note:
        rows.append(("note", info.note))
    for path, content in (
        (out, f"{plural(written.get('rows', 0), 'row')} of CSV"),
        (schema, "its schema"),
    ):
        if path is not None:
            file = (printable(str(path)), "bold"), f"  {size_text(path.stat().st_size)}, {content}"
            rows.append(("wrote", Text.assemble(*file)))
    rows.append(("next", _next(info, out, schema, written)))
    Console().print(fact_table(rows))


def _again(*words: str) -> Text:
    return Text(f"python -m reproduction datasets {' '.join(words)}", style="cyan")


def _next(
    info: DatasetInfo, out: Path | None, schema: Path | None, written: dict[str, Any]
) -> Text:
    if out is None:
        return _again(info.name, "-o", f"{info.name}.csv", "--schema", "schema.json")
    if schema is None:
        return command_line("schema", out, "--target", _TARGET, "-o", "schema.json")
    question = ("--counts", "v0,class")
    return command_line(
        "plan", "--schema", schema, "--rows", written["rows"], *question, "-o", "plan.json"
    )
