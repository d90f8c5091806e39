"""``decrypt``: results, predictions and models opened by the owner; on the screen or as CSV, models
as a file to predict with.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer
from rich.console import Console, Group, RenderableType
from rich.text import Text

import encryptedstats as es
from encryptedstats.arrays.array import ARRAY_KIND
from encryptedstats.circuits.results import NUMBERS_KIND, EncryptedNumbers
from encryptedstats.cli._console import (
    command_line,
    fact_table,
    plural,
    print_json,
    printable,
    size_text,
)
from encryptedstats.cli._files import COMPUTED, SCREEN, Reads, Writes, save, write_parts, write_text
from encryptedstats.cli._frames import counts_view, frame_view, label_text, moments_view
from encryptedstats.cli._inputs import expect, load_schema
from encryptedstats.cli._keys import load_owner
from encryptedstats.cli._options import (
    AsJson,
    Force,
    KeyFile,
    LedgerFolder,
    OwnSchema,
    PassphraseFile,
    Profile,
    output,
)
from encryptedstats.cli._questions import STATISTICS, question_text, variables_of
from encryptedstats.cli._votes import predicted_counts, votes_frame, votes_view
from encryptedstats.kinds import KINDS
from encryptedstats.publishing.opening import record_opening
from encryptedstats.tables.answers.answer import PREDICTION_KIND
from encryptedstats.tables.answers.results import ModelSummary, Result
from encryptedstats.tables.questions.question import MODEL_KIND, load_questions


@dataclass(frozen=True)
class Opened:
    """A decrypted result in the forms it can be given in."""

    title: str
    view: Callable[[int], RenderableType]  # for a screen of this width
    csv: str | None
    facts: dict[str, Any]
    hint: str = ""
    model: Any = None  # which is no CSV
    result: Result | None = None


def decrypt(
    file: Annotated[
        str,
        Reads,
        typer.Argument(
            metavar="FILE",
            help="A result, a prediction, a fitted model, or an encrypted array; a file, or a URL "
            "such as s3://...",
            show_default=False,
        ),
    ],
    key: KeyFile = None,
    schema: OwnSchema = None,
    questions: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.py",
            help="Where the question is defined that was asked, if it is one of your own; or the "
            "name of a module.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        Writes(COMPUTED),
        output(
            "Write CSV there, or the opened model; a statistic also as .json or .opened; - for "
            "CSV on the screen."
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        Writes(COMPUTED),
        typer.Option(
            metavar="FILE", help="Draw a statistic there: .png, .svg or .pdf.", show_default=False
        ),
    ] = None,
    rules: Profile = None,
    ledger: LedgerFolder = None,
    passphrase_file: PassphraseFile = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Open a result, a prediction or a model with the secret key.

    An opened model is not encrypted any more: its file is readable to you only, and predict reads it. A prediction is a
    line for every row that was encrypted, in their order: the class, probabilities, and the votes they come from. A statistic is
    shown as a summary; -o FILE.json writes all of it for programs, -o FILE.opened a file that info shows again.
    With --rules you get what others may see of it: small counts, and what would give them away, are left out.

    Examples:
      encryptedstats decrypt v0-by-class.enc --key secret.key --schema schema.json
      encryptedstats decrypt v0-by-class.enc --key secret.key --schema schema.json -o counts.csv
      encryptedstats decrypt km.enc --key secret.key --schema schema.json -o km.json --plot km.svg
      encryptedstats decrypt forest.enc --key secret.key --schema schema.json -o forest.opened

      # as it may be published
      encryptedstats decrypt v0-by-class.enc --key secret.key --schema schema.json --rules pcornet --ledger study.ledger

      # what predict gave for encrypted rows
      encryptedstats decrypt votes.enc --key secret.key --schema schema.json -o votes.csv
    """
    screen = out is None or str(out) == SCREEN
    check_opens(file)
    private = None if schema is None else load_schema(schema)
    owner = load_owner(key, passphrase_file, opens=file)
    if questions is not None:
        load_questions(questions)
    opened = (
        _open(file, owner, private)
        if rules is None
        else _published(file, owner, private, rules, ledger)
    )
    if rules is None and ledger is not None:
        record_opening(file, owner, ledger)
    if opened.csv is None and opened.model is None and out is not None:
        raise es.ArgumentError(
            f"{opened.title} is no CSV: leave -o out to see it", code="not-a-csv"
        )
    if screen and out is not None and opened.csv is None:
        raise es.ArgumentError(
            "an opened model is no CSV: give -o FILE to keep it, or leave -o out to see it",
            code="model-not-a-csv",
        )
    if plot is not None:
        _draw(opened, plot, force)
    if out is not None and not screen:
        _write(opened, out, force)
    if as_json:
        print_json(opened.facts)
    elif out is None:
        _show(opened)
    elif screen:
        typer.echo(opened.csv, nl=False)
    elif opened.model is None and out.suffix != ".opened":
        Console().print(_wrote(opened, out))
    else:
        _show(opened)
        kept = Text.assemble(
            _wrote(None, out), "  mode 0600: it is not encrypted, and yours to keep"
        )
        Console().print(Text(), kept, sep="\n")
        if schema is not None and hasattr(opened.model, "predict"):
            Console().print(
                fact_table(
                    [("next", command_line("predict", out, "new.csv", "-o", "predicted.csv"))]
                )
            )


def _write(opened: Opened, out: Path, force: bool) -> None:
    if opened.model is not None:
        save(opened.model, out, force=force)
    elif opened.result is not None and out.suffix == ".opened":
        save(opened.result, out, force=force)
    elif opened.result is not None and out.suffix == ".json":
        write_text(
            out, json.dumps(opened.result.to_dict(), indent=2, allow_nan=False) + "\n", force=force
        )
    else:
        write_text(out, str(opened.csv), force=force)


def _draw(opened: Opened, plot: Path, force: bool) -> None:
    """The plot of a result, in a file of the kind that its name says."""
    if opened.result is None:
        raise es.ArgumentError(f"{opened.title} has no plot: leave --plot out", code="no-plot")
    if plot.suffix not in (".png", ".svg", ".pdf"):
        raise typer.BadParameter(f"--plot {plot}: a .png, .svg or .pdf is drawn")
    try:
        from matplotlib.figure import Figure  # not pyplot: nobody is to see a window
    except ImportError as error:
        raise es.ArgumentError(
            "--plot needs matplotlib: pip install 'encryptedstats[plots]'", code="missing-package"
        ) from error
    figure = Figure(figsize=(7, 5), layout="constrained")
    try:
        opened.result.plot(figure.add_subplot())
    except NotImplementedError:
        raise es.ArgumentError(
            f"{opened.title} has no plot: leave --plot out", code="no-plot"
        ) from None
    content = io.BytesIO()
    figure.savefig(content, format=plot.suffix[1:])
    write_parts(plot, [content.getvalue()], force=force)


def _wrote(opened: Opened | None, out: Path) -> Text:
    what = "" if opened is None else f": {printable(opened.title)}"
    return Text.assemble(
        "Wrote ", (printable(str(out)), "bold"), f"  {size_text(out.stat().st_size)}{what}"
    )


def check_opens(file: str) -> None:
    """Refuse what is no result, by what the file says it is; before anybody is asked for a
    passphrase.
    """
    cure = ""
    if Path(file).is_dir():
        cure = "a whole table is not decrypted; a worker computes results from it"
    openable = [kind for kind, known in KINDS.items() if known.opens]
    expect(file, openable, "an encrypted result, prediction, model or array", cure)


def _show(opened: Opened) -> None:
    console = Console()
    console.print(Text(printable(opened.title), style="bold"))
    console.print(opened.view(console.width))
    if opened.hint:
        console.print()
        console.print(Text(opened.hint, style="yellow"))


def _published(
    file: str, owner: es.Owner, schema: es.Schema | None, rules: str, ledger: str | None
) -> Opened:
    """What rules let others see of a file."""
    shown = owner.publish(file, schema, rules=rules, ledger=ledger)
    frame = shown.table if shown.result is None else _as_frame(shown.result)
    facts = {
        "file": file,
        "question": shown.title,
        "rows": shown.n_rows,
        "rules": shown.rules.to_dict(),
        "whole": shown.is_whole,
        "left_out": [str(finding) for finding in shown.findings],
        **({} if frame is None else _frame_facts(frame)),
    }
    text = shown.summary().removeprefix(shown.title).splitlines()[1:]
    model = shown.result if hasattr(shown.result, "predict") else None
    csv = (
        None
        if frame is None or model is not None
        else frame.to_csv(lineterminator="\n", na_rep="hidden")
    )
    result = shown.result if isinstance(shown.result, Result) else None
    return Opened(
        shown.title,
        lambda width: Text("\n".join(map(printable, text))),
        csv,
        facts,
        "",
        model,
        result,
    )


# -- what can be opened
# ------------------------------------------------------------------------------------------------


def _open(file: str, owner: es.Owner, schema: es.Schema | None) -> Opened:
    """A decrypted file, shown by what came out of it."""
    sealed = es.load(file, owner.public_keys())
    value = owner.open(sealed, schema)
    if isinstance(sealed, es.EncryptedAnswer):
        return (_votes if sealed.kind == PREDICTION_KIND else _answer)(file, sealed, value, schema)
    if isinstance(sealed, EncryptedNumbers):
        csv = pd.DataFrame({"total": value}, dtype=object).to_csv(index=False, lineterminator="\n")
        facts = {"file": file, "kind": NUMBERS_KIND, "values": value}
        return Opened(
            plural(len(value), "total"), _numbers(np.array(value, dtype=object)), csv, facts
        )
    if isinstance(sealed, (es.EncryptedArray, es.EncryptedInteger)):
        return _array(file, np.asarray(value))
    return _model(file, value, schema)


def _answer(file: str, sealed: es.EncryptedAnswer, value: Any, schema: es.Schema | None) -> Opened:
    question = sealed.question
    text = question_text(question.name, question.parameters(), schema)
    title = f"{text[0].upper()}{text[1:]}, {plural(sealed.n_rows, 'row')}"
    facts = {
        "file": file,
        "kind": sealed.kind,
        "question": question.name,
        "params": question.parameters(),
        **variables_of(question, schema),
        "rows": sealed.n_rows,
    }
    in_units = ", and moments in their own units" if question.name == "moments" else ""
    hint = (
        "" if schema else f"Give --schema to see the names of columns, bins and classes{in_units}."
    )
    if isinstance(value, Result):
        csv = value.to_csv()
        facts |= {"result": value.to_dict()}
        return Opened(value.title, lambda width: _body(value), csv, facts, hint, result=value)
    frame = _as_frame(value)
    if frame is None:
        return Opened(
            title,
            lambda width: Text(printable(str(value))),
            None,
            facts | {"value": str(value)},
            hint,
        )
    facts |= _frame_facts(frame)
    counted = counts_view if question.name in STATISTICS else frame_view
    view = moments_view if question.name == "moments" else counted
    return Opened(
        title, lambda width: view(frame, width), frame.to_csv(lineterminator="\n"), facts, hint
    )


def _frame_facts(frame: pd.DataFrame) -> dict[str, Any]:
    """A table, ready for JSON."""
    return {
        "index": [str(label) for label in frame.index],
        "columns": [str(name) for name in frame.columns],
        "values": frame.astype(object).where(frame.notna(), None).to_numpy().tolist(),
    }


def _body(result: Result) -> Text:
    """The summary below its title."""
    return Text(
        "\n".join(map(printable, result.summary().removeprefix(result.title).splitlines()[1:]))
    )


def _as_frame(value: Any) -> pd.DataFrame | None:
    """What a question made of its totals, as a table; None where it is none."""
    if isinstance(value, pd.DataFrame):
        return value
    if isinstance(value, pd.Series):
        return value.to_frame(value.name if value.name is not None else "value")
    if isinstance(value, dict):
        return pd.Series(value, name="value").to_frame()
    if isinstance(value, (int, float, np.generic, list, np.ndarray)) and np.ndim(value) <= 2:
        return pd.DataFrame(np.atleast_1d(np.asarray(value)))
    return None


def _array(file: str, values: Any) -> Opened:
    shape = " x ".join(map(str, values.shape))
    title = f"Array of {shape} integers" if shape else "An integer"
    facts = {
        "file": file,
        "kind": ARRAY_KIND,
        "shape": list(values.shape),
        "values": values.tolist(),
    }
    return Opened(title, _numbers(values), _array_csv(values), facts)


def _model(file: str, model: Any, schema: es.Schema | None) -> Opened:
    summary = model.summary()
    title = (
        f"Opened {question_text(model.name, model.parameters())}, {plural(model.n_rows_, 'row')}"
    )
    facts = {
        "file": file,
        "kind": MODEL_KIND,
        "model": model.name,
        "params": model.parameters(),
        "rows": model.n_rows_,
    }
    if isinstance(summary, ModelSummary) and summary.class_counts:
        facts |= {
            "classes": list(summary.class_counts),
            "class_counts": list(summary.class_counts.values()),
        }
    facts |= _frame_facts(summary.to_frame())
    hint = (
        ""
        if schema
        else "Give --schema: without it the model knows its variables by number, and cannot "
        "predict."
    )
    return Opened(
        title, lambda width: _summary_view(summary, width), None, facts, hint, model, summary
    )


def _summary_view(summary: Result, width: int) -> RenderableType:
    """What a model has learned, on a screen of this width."""
    if not isinstance(summary, ModelSummary):
        return Text("\n".join(map(printable, summary.summary().splitlines())))
    counts = [f"{label_text(label)} {count:,}" for label, count in summary.class_counts.items()]
    head: list[RenderableType] = (
        [fact_table([("classes", ", ".join(counts))]), Text()] if counts else []
    )
    return Group(
        *head,
        frame_view(summary.table, width),
        *(Text(note, style="dim") for note in summary.notes),
    )


def _votes(file: str, sealed: es.EncryptedAnswer, votes: Any, schema: es.Schema | None) -> Opened:
    name, params = sealed.question.name, sealed.question.parameters()
    frame = votes_frame(votes)
    facts = {
        "file": file,
        "kind": PREDICTION_KIND,
        "model": name,
        "params": params,
        "output": sealed.output,
        "rows": sealed.n_rows,
        "predicted": predicted_counts(votes),
        "columns": list(frame.columns),
    }
    title = f"Prediction by {question_text(name, params)} for {plural(sealed.n_rows, 'row')}"
    hint = "" if schema else "Give --schema to see the names of columns and classes."
    view = partial(votes_view, votes, caveat=sealed.question.caveat)
    return Opened(title, view, frame.to_csv(lineterminator="\n"), facts, hint)


def _array_csv(values: Any) -> str:
    """Rows of a matrix, one value a line of a vector; more dimensions as a list of indices with the
    value.
    """
    text = io.StringIO()
    if values.ndim > 2:
        names = [f"i{axis}" for axis in range(values.ndim)]
        rows = [(*index, value) for index, value in np.ndenumerate(values)]
        pd.DataFrame(rows, columns=[*names, "value"]).to_csv(text, index=False, lineterminator="\n")
    else:
        pd.DataFrame(np.atleast_1d(values)).to_csv(
            text, index=False, header=False, lineterminator="\n"
        )
    return text.getvalue()


def _numbers(values: Any) -> Callable[[int], RenderableType]:
    def view(width: int) -> RenderableType:
        return Text(np.array2string(values, max_line_width=width, threshold=2000))

    return view
