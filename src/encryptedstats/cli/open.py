"""``open``: decrypt answers, predictions and models; show them, or write them to a file."""

from __future__ import annotations

import html
import io
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final

import typer

import encryptedstats as es
from encryptedstats.arrays.array import ARRAY_KIND
from encryptedstats.circuits.results import NUMBERS_KIND, EncryptedNumbers
from encryptedstats.cli._console import (
    command_line,
    file_text,
    plural,
    printable,
    progress,
    tell,
)
from encryptedstats.cli._files import COMPUTED, SCREEN, Reads, Writes, save, write_parts, write_text
from encryptedstats.cli._inputs import RUN, expect, load_schema, nature
from encryptedstats.cli._keys import load_owner
from encryptedstats.cli._on import LOCAL, Place, Request
from encryptedstats.cli._options import (
    AsJson,
    Force,
    KeyFile,
    LedgerFolder,
    On,
    OwnSchema,
    PassphraseFile,
    argument,
    file_option,
    option,
    output,
)
from encryptedstats.cli._rounds import read_result
from encryptedstats.kinds import KINDS
from encryptedstats.spotcheck.opening import CHECKED
from encryptedstats.tables.answers.opened import (
    Opened,
    array_view,
    as_frame,
    describe_opened,
    is_result,
)
from encryptedstats.tables.manifest import TABLE_KIND
from encryptedstats.tables.questions.question import (
    OPEN_MODEL_KIND,
    OPEN_RESULT_KIND,
    load_questions,
)
from encryptedstats.views import TableView, View, render_csv, render_html
from encryptedstats.words import did_you_mean

_OPENED: Final = (OPEN_MODEL_KIND, OPEN_RESULT_KIND)
_MODEL: Final = (".model", ".opened")
_PLOTS: Final = (".png", ".svg", ".pdf")
#: Tables of decrypted models that are not in their summary.
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
            "An answer, a prediction, a model or an array, encrypted or opened before; a file or a "
            "URL. Or the folder of the rounds of a procedure.",
        ),
    ],
    key: KeyFile = None,
    schema: OwnSchema = None,
    questions: Annotated[
        str | None,
        option(
            metavar="FILE.py",
            help="The file or the module that defines the question, if it is one of your own.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        Writes(COMPUTED),
        output(
            "File to write: .csv (the table), .json (everything), .html (a page), .model or "
            ".opened (for predict and open); - for CSV on the screen."
        ),
    ] = None,
    tables: Annotated[
        str | None,
        option(
            "--show",
            metavar="NAME,...",
            help="Tables to show, by their captions; of a regression also anova, anova2 (type 2) "
            "and vif. The first is written as CSV.",
        ),
    ] = None,
    level: Annotated[
        float | None,
        option(metavar="X", help="Confidence of the intervals, such as .9; .95 by default."),
    ] = None,
    plot: Annotated[
        Path | None,
        Writes(COMPUTED),
        file_option("--plot", help="File for the figure: .png, .svg or .pdf."),
    ] = None,
    rules: Annotated[
        str | None,
        option(
            metavar="PROFILE",
            help="Disclosure rules: datashield (counts of 3 and more), five, ten or pcornet (11). "
            "Small counts, and others that would reveal them, are left out.",
        ),
    ] = None,
    verify: Annotated[
        str | None,
        option(
            metavar="TABLE",
            help="Check that the answer is right: the table that it is of, at --on, where random "
            "sums are asked for. The rows were encrypted with --spot-check. A wrong answer ends "
            "the use of the key.",
        ),
    ] = None,
    on: On = LOCAL,
    ledger: LedgerFolder = None,
    passphrase_file: PassphraseFile = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Open an answer with the secret key: show it, or write it as a table or a model.

    The file that is written is not encrypted, and readable to you only. A prediction has a line
    for every row, in the order of encryption: class, probabilities and votes. Results that were
    opened before, also by a study, need no key.

    JSON: file, kind, question, params, rows, title, facts, tables, notes, result, checked?

    Examples:
      encryptedstats open t.enc --key secret.key --schema schema.json
      encryptedstats open lm.enc --key secret.key --schema schema.json -o coefficients.csv \\
        --level .9
      encryptedstats open lm.enc --key secret.key --schema schema.json --show anova,vif
      encryptedstats open km.enc --key secret.key --schema schema.json -o km.json --plot km.svg
      encryptedstats open forest.enc --key secret.key --schema schema.json -o forest.model
      encryptedstats open forest.model -o importances.csv

      # the result of rounds, from their folder
      encryptedstats open forest.run --schema schema.json -o nodes.csv

      # checked: a worker that lied is found
      encryptedstats open t.enc --key secret.key --schema schema.json --verify patients.enc \\
        --on https://worker.example

      # without small counts, for publication
      encryptedstats open age.enc --key secret.key --schema schema.json --rules pcornet \\
        --ledger study.ledger

      # a prediction for encrypted rows
      encryptedstats open votes.enc --key secret.key --schema schema.json -o votes.csv
    """
    kind = check_opens(file)
    private = None if schema is None else load_schema(schema)
    if questions is not None:
        load_questions(questions)
    place = Place.parse(on)
    if verify is None and not place.is_local:
        raise typer.BadParameter("--on is for --verify: where random sums are asked for")
    if kind in (*_OPENED, RUN):
        if rules is not None or ledger is not None or verify is not None:
            raise typer.BadParameter(
                "--rules, --ledger and --verify are for encrypted answers, and this was opened "
                "before"
            )
        opened = read_result(file, private) if kind == RUN else describe_opened(es.load(file), kind)
    else:
        owner = load_owner(key, passphrase_file, opens=file)
        if verify is not None:
            _check(file, owner, private, place, verify)
        opened = _open(file, kind, owner, private, rules, ledger)
    opened = _with_confidence(opened, level) if level is not None else opened
    opened = _with_tables(opened, tables) if tables is not None else opened
    if plot is not None:
        _draw(opened, plot, force)
    document = {"file": file, **opened.document}
    if verify is not None:
        document["checked"] = True
        opened = replace(opened, view=_with_note(opened.view), display=_with_note(opened.display))
    if out is not None and str(out) == SCREEN:
        typer.echo(_csv(opened), nl=False)
        return
    if out is not None:
        _write(opened, document, out, force)
    wrote = {} if out is None else _wrote(opened, out, private)
    view = View(opened.view.title, wrote) if out is not None else opened.display or opened.view
    tell(view, document, as_json)


def _check(file: str, owner: es.Owner, schema: es.Schema | None, place: Place, table: str) -> None:
    """Raise an error if an answer is wrong."""
    sealed, how = es.load(file, owner.public_keys()), place.options
    with place.connect(Request(table, ())) as (_, there), progress("checking the answer"):
        owner.open(sealed, schema, verify="spot", on=there, **how)


def _with_note(view: Any) -> Any:
    return None if view is None else replace(view, notes=(*view.notes, CHECKED))


def check_opens(file: str) -> str:
    """Return the kind of a file that can be opened, before a passphrase is asked for."""
    cure = ""
    if Path(file).is_dir() and nature(file) == TABLE_KIND:
        cure = "a table is not opened: ask it a question, and open the answer"
    openable = [kind for kind, known in KINDS.items() if known.opens]
    return expect(
        file, [*openable, *_OPENED, RUN], "an encrypted answer, prediction, model or array", cure
    )


def _wrote(opened: Opened, out: Path, schema: es.Schema | None) -> dict[str, str]:
    private = ("mode 0600: it is not encrypted, keep it private",)
    facts = {"wrote": file_text(out, *private)}
    if out.suffix in _MODEL and schema is not None and hasattr(opened.value, "predict"):
        facts["next"] = command_line("predict", out, "new.csv", "-o", "predicted.csv")
    return facts


# -- writing
# ------------------------------------------------------------------------------------------------


def _write(opened: Opened, document: Mapping[str, Any], out: Path, force: bool) -> None:
    if out.suffix in _MODEL:
        if opened.kind == RUN:
            raise es.ArgumentError(
                f"predict takes {document['file']} itself: give -o a name that ends in .csv, "
                ".json or .html",
                code="not-a-model",
            )
        if not hasattr(opened.value, "save") or (
            out.suffix == ".model" and not hasattr(opened.value, "predict")
        ):
            raise es.ArgumentError(
                (
                    f"{opened.view.title} is no model: give -o a name that ends in .csv, .json or "
                    ".html"
                ),
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
            f"-o {out}: the name has to end in .csv, .json, .html, or .model for a model",
            code="unknown-ending",
        )


def page(view: View) -> str:
    """Return a view as a page of HTML that includes its figures."""
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
    """Return the first table as CSV, or the facts where there is none."""
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
    """Draw the figure of a result to a file."""
    if plot.suffix not in _PLOTS:
        raise typer.BadParameter(f"--plot {plot}: the name has to end in .png, .svg or .pdf")
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
    from matplotlib.figure import Figure  # not pyplot, which may open a window

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
        return _apply_rules(owner.publish(file, schema, rules=rules, ledger=ledger))
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


def _apply_rules(shown: Any) -> Opened:
    """Describe the parts of a result that rules allow to publish."""
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


def _with_confidence(opened: Opened, level: float) -> Opened:
    """Compute intervals of another confidence."""
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
    other = asked._present(replace(value.source, question=asked))
    return replace(opened, value=other, params=asked.parameters(), view=other.view())


def _with_tables(opened: Opened, names: str) -> Opened:
    """Select tables by their captions."""
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
