"""``open``: answers, predictions and models opened by the owner: shown, written as a table, a
document or a page, or kept as a model to predict with. What was opened before is read again.
"""

from __future__ import annotations

import html
import io
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

import encryptedstats as es
from encryptedstats.arrays.array import ARRAY_KIND
from encryptedstats.circuits.results import NUMBERS_KIND, EncryptedNumbers
from encryptedstats.cli._console import (
    command_line,
    file_text,
    plural,
    printable,
    tell,
)
from encryptedstats.cli._files import COMPUTED, SCREEN, Reads, Writes, save, write_parts, write_text
from encryptedstats.cli._inputs import expect, load_schema
from encryptedstats.cli._keys import load_owner
from encryptedstats.cli._options import (
    AsJson,
    Force,
    KeyFile,
    LedgerFolder,
    OwnSchema,
    PassphraseFile,
    argument,
    file_option,
    option,
    output,
)
from encryptedstats.kinds import KINDS
from encryptedstats.tables.answers.opened import (
    Opened,
    array_view,
    as_frame,
    describe_opened,
    is_result,
)
from encryptedstats.tables.questions.question import (
    OPEN_MODEL_KIND,
    OPEN_RESULT_KIND,
    load_questions,
)
from encryptedstats.views import TableView, View, render_csv, render_html
from encryptedstats.words import did_you_mean

if TYPE_CHECKING:
    pass

_OPENED: Final = (OPEN_MODEL_KIND, OPEN_RESULT_KIND)
_MODEL: Final = (".model", ".opened")
_PLOTS: Final = (".png", ".svg", ".pdf")
#: Tables that opened models have beside their summary.
_EXTRAS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "anova": lambda model: model.anova(),
    "anova2": lambda model: model.anova(typ=2),
    "vif": lambda model: model.vif().to_frame(),
}


def open_(
    file: Annotated[
        str,
        Reads,
        argument(
            "FILE",
            "An answer, a prediction, a model or an array, encrypted or opened before; a file, or "
            "a URL.",
        ),
    ],
    key: KeyFile = None,
    schema: OwnSchema = None,
    questions: Annotated[
        str | None,
        option(
            metavar="FILE.py",
            help="Where the question is defined that was asked, if it is one of your own; or the "
            "name of a module.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        Writes(COMPUTED),
        output(
            "Where it goes: .csv (its table), .json (all of it), .html (a page), .model or .opened "
            "(for predict, and to open again); - for CSV on the screen."
        ),
    ] = None,
    tables: Annotated[
        str | None,
        option(
            "--show",
            metavar="NAME,...",
            help="Which tables: those that are shown, and anova, anova2 (type 2) and vif of a "
            "regression. The first is written as CSV.",
        ),
    ] = None,
    level: Annotated[
        float | None,
        option(metavar="X", help="Confidence of the intervals, such as .9; .95 by default."),
    ] = None,
    plot: Annotated[
        Path | None,
        Writes(COMPUTED),
        file_option("--plot", help="Draw it there: .png, .svg or .pdf."),
    ] = None,
    rules: Annotated[
        str | None,
        option(
            metavar="PROFILE",
            help="What others may see of it by disclosure rules: datashield (counts of 3 and more), "
            "five, ten or pcornet (11). Small counts, and what would give them away, are left out.",
        ),
    ] = None,
    ledger: LedgerFolder = None,
    passphrase_file: PassphraseFile = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Open an answer with the secret key: show it, or write it as a table or a model.

    What was opened is not encrypted any more: its file is readable to you only. A prediction is a
    line for every row that was encrypted, in their order: the class, probabilities, and the votes
    they come from. What was opened before, also by a study, needs no key.

    JSON: file, kind, question, params, rows, title, facts, tables, notes, result

    Examples:
      encryptedstats open t.enc --key secret.key --schema schema.json
      encryptedstats open lm.enc --key secret.key --schema schema.json -o coefficients.csv --level .9
      encryptedstats open lm.enc --key secret.key --schema schema.json --show anova,vif
      encryptedstats open km.enc --key secret.key --schema schema.json -o km.json --plot km.svg
      encryptedstats open forest.enc --key secret.key --schema schema.json -o forest.model
      encryptedstats open forest.model -o importances.csv

      # as it may be published
      encryptedstats open age.enc --key secret.key --schema schema.json --rules pcornet --ledger study.ledger

      # what predict gave for encrypted rows
      encryptedstats open votes.enc --key secret.key --schema schema.json -o votes.csv
    """
    kind = check_opens(file)
    private = None if schema is None else load_schema(schema)
    if questions is not None:
        load_questions(questions)
    if kind in _OPENED:
        if rules is not None or ledger is not None:
            raise typer.BadParameter("--rules and --ledger are for what is still encrypted")
        opened = describe_opened(es.load(file), kind)
    else:
        owner = load_owner(key, passphrase_file, opens=file)
        opened = _open(file, kind, owner, private, rules, ledger)
    opened = _at_level(opened, level) if level is not None else opened
    opened = _with_tables(opened, tables) if tables is not None else opened
    if plot is not None:
        _draw(opened, plot, force)
    document = {"file": file, **opened.document}
    if out is not None and str(out) == SCREEN:
        typer.echo(_csv(opened), nl=False)
        return
    if out is not None:
        _write(opened, document, out, force)
    wrote = {} if out is None else _wrote(opened, out, private)
    view = View(opened.view.title, wrote) if out is not None else opened.display or opened.view
    tell(view, document, as_json)


def check_opens(file: str) -> str:
    """Return the kind of a file that can be opened, by what it says; before anybody is asked for a
    passphrase.
    """
    cure = ""
    if Path(file).is_dir():
        cure = "a whole table is not opened; a worker computes answers from it"
    openable = [kind for kind, known in KINDS.items() if known.opens]
    return expect(
        file, [*openable, *_OPENED], "an encrypted answer, prediction, model or array", cure
    )


def _wrote(opened: Opened, out: Path, schema: es.Schema | None) -> dict[str, str]:
    private = ("mode 0600: it is not encrypted, and yours to keep",)
    facts = {"wrote": file_text(out, *private)}
    if out.suffix in _MODEL and schema is not None and hasattr(opened.value, "predict"):
        facts["next"] = command_line("predict", out, "new.csv", "-o", "predicted.csv")
    return facts


# -- writing
# ------------------------------------------------------------------------------------------------


def _write(opened: Opened, document: Mapping[str, Any], out: Path, force: bool) -> None:
    if out.suffix in _MODEL:
        if not hasattr(opened.value, "save") or (
            out.suffix == ".model" and not hasattr(opened.value, "predict")
        ):
            raise es.ArgumentError(
                f"{opened.view.title} is no model: give a name that ends in .csv, .json or .html",
                code="not-a-model",
            )
        save(opened.value, out, force=force)
    elif out.suffix == ".json":
        write_text(out, json.dumps(document, indent=2, allow_nan=False) + "\n", force=force)
    elif out.suffix == ".html":
        write_text(out, page(opened.view), force=force)
    elif out.suffix == ".csv":
        write_text(out, _csv(opened), force=force)
    else:
        raise es.ArgumentError(
            f"-o {out}: its name says what is written: .csv, .json, .html, or .model for a model",
            code="unknown-ending",
        )


def page(view: View) -> str:
    """Return a view as a page of HTML with its figures, which needs nothing from elsewhere."""
    figures = "".join(figure for one in view.figures for figure in [_svg(one.draw)] if figure)
    style = "body{font:15px sans-serif;margin:2em}td,th{padding:2px 12px;text-align:right}"
    return (
        f"<!doctype html><meta charset=utf-8><title>{html.escape(view.title)}</title>"
        f"<style>{style}</style>{render_html(view, max_rows=None)}{figures}\n"
    )


def _svg(draw: Callable[[Any], Any]) -> str:
    try:
        text = _figure(draw, "svg").decode()
    except (ImportError, NotImplementedError):
        return ""
    return text[text.index("<svg") :]


def _csv(opened: Opened) -> str:
    """The first table as CSV; facts where there is none."""
    is_plain = opened.kind in (ARRAY_KIND, NUMBERS_KIND)
    is_hidden = "rules" in opened.view.facts
    if not opened.view.tables or not (is_plain or is_hidden):
        return render_csv(opened.view)
    frame = opened.view.tables[0].frame
    headed = not is_plain or frame.columns[-1] in ("value", "total")
    text: str = frame.to_csv(
        lineterminator="\n", index=not is_plain, header=headed, na_rep="hidden" * is_hidden
    )
    return text


def _draw(opened: Opened, plot: Path, force: bool) -> None:
    """Draw the figure of a result, in a file of the kind that its name says."""
    if plot.suffix not in _PLOTS:
        raise typer.BadParameter(f"--plot {plot}: a .png, .svg or .pdf is drawn")
    try:
        if not opened.view.figures:
            raise NotImplementedError
        content = _figure(opened.view.figures[0].draw, plot.suffix[1:])
    except ImportError as error:
        raise es.ArgumentError(
            "--plot needs matplotlib: pip install 'encryptedstats[plots]'", code="missing-package"
        ) from error
    except NotImplementedError:
        raise es.ArgumentError(
            f"{opened.view.title} has no plot: leave --plot out", code="no-plot"
        ) from None
    write_parts(plot, [content], force=force)


def _figure(draw: Callable[[Any], Any], kind: str) -> bytes:
    from matplotlib.figure import Figure  # not pyplot: nobody is to see a window

    figure = Figure(figsize=(7, 5), layout="constrained")
    draw(figure.add_subplot())
    content = io.BytesIO()
    figure.savefig(content, format=kind)
    return content.getvalue()


# -- what can be opened
# ------------------------------------------------------------------------------------------------


def _open(
    file: str,
    kind: str,
    owner: es.Owner,
    schema: es.Schema | None,
    rules: str | None,
    ledger: str | None,
) -> Opened:
    if rules is not None:
        return _published(owner.publish(file, schema, rules=rules, ledger=ledger))
    import pandas as pd

    from encryptedstats.publishing.opening import record_opening

    sealed = es.load(file, owner.public_keys())
    value = owner.open(sealed, schema)
    if ledger is not None:
        record_opening(file, owner, ledger)
    if isinstance(sealed, EncryptedNumbers):
        frame = pd.DataFrame({"total": value}, dtype=object)
        view = View(plural(len(value), "total"), tables=(TableView("values", frame),))
        return Opened(view, NUMBERS_KIND, value=value)
    if isinstance(sealed, (es.EncryptedArray, es.EncryptedInteger)):
        return Opened(array_view(value), ARRAY_KIND, value=value)
    return describe_opened(value, kind, sealed, schema)


def _published(shown: Any) -> Opened:
    """What rules let others see of a file."""
    frame = shown.table if shown.result is None else as_frame(shown.result)
    facts = {
        "rules": shown.rules.describe(),
        "whole": shown.is_whole,
        "left out": [str(finding) for finding in shown.findings],
    }
    tables = () if frame is None else (TableView("published", frame),)
    text = shown.summary().removeprefix(shown.title).splitlines()[1:]
    return Opened(
        View(shown.title, facts, tables),
        "published result",
        rows=shown.n_rows,
        value=shown.result,
        display=View(shown.title, notes=tuple(map(printable, text))),
    )


# -- other tables, other intervals
# ------------------------------------------------------------------------------------------------


def _at_level(opened: Opened, level: float) -> Opened:
    """The same with intervals of another confidence, where it has some."""
    value = opened.value
    question = getattr(getattr(value, "source", None), "question", None)
    if hasattr(value, "predict"):
        try:
            found = value.summary(confidence=level).view()
        except TypeError:
            raise typer.BadParameter(f"--level: {opened.view.title} has no intervals") from None
        view = opened.view
        return replace(opened, view=replace(view, tables=found.tables, figures=found.figures))
    if question is None or "confidence" not in question.parameters():
        raise typer.BadParameter(f"--level: {opened.view.title} has no intervals")
    asked = replace(question, confidence=level)
    asked.check_parameters()
    other = asked.present(replace(value.source, question=asked))
    return replace(opened, value=other, params=asked.parameters(), view=other.view())


def _with_tables(opened: Opened, names: str) -> Opened:
    """The same with these tables only."""
    known = {table.caption: table for table in opened.view.tables}
    extras = {one: make for one, make in _EXTRAS.items() if hasattr(opened.value, one.rstrip("2"))}
    found = []
    for name in filter(None, map(str.strip, names.split(","))):
        if name in known:
            found.append(known[name])
        elif name in extras:
            made = extras[name](opened.value)
            tables = made.view().tables if is_result(made) else ()
            found.append(replace(tables[0], caption=name) if tables else TableView(name, made))
        else:
            listed = [*known, *extras]
            near = did_you_mean(name, listed) or f": there are {', '.join(listed) or 'none'}"
            raise typer.BadParameter(f"--show {name}: {opened.view.title} has no such table{near}")
    return replace(opened, view=replace(opened.view, tables=tuple(found)), display=None)
