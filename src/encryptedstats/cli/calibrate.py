"""``calibrate``: probabilities for an opened model, from rows with known classes that it was not
fitted to. The owner's work.
"""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Final

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
    size_text,
)
from encryptedstats.cli._csv import AS_FOUND, say_format, with_csv_options
from encryptedstats.cli._files import Writes, save
from encryptedstats.cli._inputs import check_rows, expect
from encryptedstats.cli._options import AsJson, DataFile, Force, Weights, file_argument, output
from encryptedstats.cli._questions import question_text
from encryptedstats.cli._votes import counts_text
from encryptedstats.kinds import read_file
from encryptedstats.models.clear_rows import check_classifies, labelled_rows, model_in
from encryptedstats.storage import container
from encryptedstats.tables.questions.question import OPEN_MODEL_KIND
from encryptedstats.tables.rows.csv_format import CsvOptions

_LOSS: Final = "the calibration in it would have to be fitted again"


class Method(str, Enum):
    """How scores become probabilities."""

    sigmoid = "sigmoid"
    isotonic = "isotonic"


@with_csv_options
def calibrate(
    file: Annotated[Path, file_argument("MODEL", "An opened model, as decrypt -o wrote it.")],
    data: DataFile,
    out: Annotated[
        Path,
        Writes(_LOSS),
        output("Where the calibrated model goes; predict and evaluate read it."),
    ],
    method: Annotated[
        Method,
        typer.Option(
            help="sigmoid: Platt's two numbers. isotonic: any rising curve, for a thousand rows or "
            "more."
        ),
    ] = Method.sigmoid,
    weights: Weights = None,
    csv: CsvOptions = AS_FOUND,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Fit the probabilities of an opened model to rows with known classes.

    What a forest gives are shares of votes: they rank rows, and are no probabilities. Calibration finds how often a class
    occurs at each share. It needs rows that the model was not fitted to, a hundred or more, and the scores of the result are
    then taken on rows of a third kind, which neither has seen.

    Examples:
      encryptedstats calibrate forest.opened kept-back.csv -o calibrated.opened
      encryptedstats evaluate calibrated.opened test.csv
      encryptedstats predict calibrated.opened new.csv -o predicted.csv
    """
    expect(file, (OPEN_MODEL_KIND,), "an opened model")
    check_rows(data)
    model = model_in(read_file(container.read(file)))
    check_classifies(model, file)
    table, unlabelled = labelled_rows(model._known_private(), data, weights, csv, say_format(data))
    try:
        calibrated = es.CalibratedModel(model, method.value).fit(table)
    except ValueError as error:
        raise ValueError(f"{data}: {error}") from error
    save(calibrated, out, force=force)
    facts = {
        "file": str(out),
        "bytes": out.stat().st_size,
        "model": type(model).__name__,
        "params": model.parameters(),
        "method": method.value,
        "rows": len(table),
        "class_counts": {
            str(label): int(n)
            for label, n in zip(model.classes_, calibrated.class_counts_, strict=True)
        },
        "rows_left_out": table.n_dropped + unlabelled,
        "rows_without_class": unlabelled,
        "curves": calibrated.curves_,
    }
    if as_json:
        print_json(facts)
    else:
        _show(facts, out)


def _show(facts: dict[str, Any], out: Path) -> None:
    rows: list[tuple[str, RenderableType]] = [("classes", counts_text(facts["class_counts"]))]
    without = facts["rows_without_class"]
    for count, why in (
        (facts["rows_left_out"] - without, "with missing values"),
        (without, "without a class"),
    ):
        if count:
            rows.append(("left out", Text(f"{plural(count, 'row')} {why}", style="yellow")))
    if facts["method"] == "sigmoid":
        lines = [f"{one['slope']:.4g} x score {one['intercept']:+.4g}" for one in facts["curves"]]
        rows.append(("log-odds", "; ".join(lines)))
    else:
        rows.append(
            ("curve", ", ".join(plural(len(one["x"]), "corner") for one in facts["curves"]))
        )
    written = Text.assemble(
        (printable(str(out)), "bold red"), f"  {size_text(facts['bytes'])}, mode 0600: "
    )
    rows.append(("model", written.append("it is not encrypted")))
    rows.append(("next", command_line("evaluate", out, "test.csv")))
    console = Console()
    what = (
        f"{question_text(facts['model'], facts['params'])} by {facts['method']} on "
        f"{plural(facts['rows'], 'row')}"
    )
    console.print(Text.assemble(("Calibrated", "bold"), f" {what}"))
    console.print(fact_table(rows))
