"""``datasets``: the data sets of the paper, listed, described, and written as CSV to try things out
on.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

import encryptedstats as es
from encryptedstats.cli._console import (
    command_line,
    file_text,
    plural,
    print_json,
    progress,
    show,
)
from encryptedstats.cli._files import Writes, write_text
from encryptedstats.cli._options import AsJson, Force, file_option, output
from encryptedstats.cli.schema import LOSS
from encryptedstats.views import TableView, View
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
    lines = {}
    for info in infos:
        kinds = _kinds(info)
        counts = [str(kinds.get(kind) or "-") for kind in ("continuous", "ordinal", "categorical")]
        share = f"{100 * info.n_positive / info.n_rows:.0f} %"
        numbers = (info.n_rows, info.n_rows_complete, info.n_predictors)
        lines[info.name] = [info.full_name, *(f"{n:,}" for n in numbers), *counts, share]
    heads = ["what", "rows", "complete", "columns", "cont.", "ord.", "cat.", "class 1"]
    frame = pd.DataFrame.from_dict(lines, orient="index", columns=heads).rename_axis("name")
    show(
        View(
            "The data sets of the paper",
            tables=(TableView("data sets", frame),),
            notes=(f"next  {_again('bcw_o', '-o', 'bcw_o.csv')}",),
        )
    )


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
    rows: dict[str, Any] = {
        "rows": f"{info.n_rows:,}{complete}",
        "columns": (f"{plural(info.n_predictors, 'predictor')}: {kinds}", shown),
        "target": f"{_TARGET} = 1 for {info.positive_class}: {info.n_positive:,} rows, against "
        f"{info.n_negative:,}",
        "cite": info.citation,
        "licence": info.licence,
        "note": info.note,
    }
    wrote = []
    for path, content in (
        (out, f"{plural(written.get('rows', 0), 'row')} of CSV"),
        (schema, "its schema"),
    ):
        if path is not None:
            wrote.append(file_text(path, content))
    rows |= {"wrote": tuple(wrote), "next": _next(info, out, schema, written)}
    show(View(f"{info.name}  {info.full_name}", rows))


def _again(*words: str) -> str:
    return f"python -m reproduction datasets {' '.join(words)}"


def _next(info: DatasetInfo, out: Path | None, schema: Path | None, written: dict[str, Any]) -> str:
    if out is None:
        return _again(info.name, "-o", f"{info.name}.csv", "--schema", "schema.json")
    if schema is None:
        return command_line("data", "schema", out, "--target", _TARGET, "-o", "schema.json")
    words = (schema, "counts(v0, class)", "--rows", written["rows"], "-o", "plan.json")
    return command_line("plan", *words)
