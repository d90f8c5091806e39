"""``decrypt``: results, predictions and models opened by the owner; on the screen or as CSV, models as a file to predict with."""

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
from encryptedstats.circuits.results import NUMBERS_KIND, VOTES_KIND, EncryptedNumbers
from encryptedstats.cli._console import command_line, fact_table, plural, print_json, printable, size_text
from encryptedstats.cli._files import COMPUTED, SCREEN, Reads, Writes, save, write_text
from encryptedstats.cli._frames import counts_view, moments_view
from encryptedstats.cli._inputs import expect, load_schema
from encryptedstats.cli._keys import load_owner
from encryptedstats.cli._models import ENCRYPTED_MODEL_KIND, load_model, model_text
from encryptedstats.cli._options import AsJson, Force, KeyFile, OwnSchema, PassphraseFile, output
from encryptedstats.cli._questions import question_text, variable_name
from encryptedstats.cli._votes import predicted_counts, votes_frame, votes_view
from encryptedstats.crypto.arrays import ARRAY_KIND
from encryptedstats.storage.objects import load_file
from encryptedstats.tables.statistics import STATISTIC_KIND


@dataclass(frozen=True)
class Opened:
    """A decrypted result in the forms it can be given in."""

    title: str
    view: Callable[[int], RenderableType]  # for a screen of this width
    csv: str | None
    facts: dict[str, Any]
    hint: str = ""
    model: Any = None  # which is no CSV


def decrypt(
    file: Annotated[
        str,
        Reads,
        typer.Argument(
            metavar="FILE",
            help="A result, a prediction, a fitted model, or an encrypted array; a file, or a URL such as s3://...",
            show_default=False,
        ),
    ],
    key: KeyFile = None,
    schema: OwnSchema = None,
    out: Annotated[
        Path | None, Writes(COMPUTED), output("Write CSV there, or the opened model; - for CSV on the screen.")
    ] = None,
    passphrase_file: PassphraseFile = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Open a result, a prediction or a model with the secret key.

    An opened model is not encrypted any more: its file is readable to you only, and predict reads it. A prediction is a
    line for every row that was encrypted, in their order: the class, probabilities, and the votes they come from.

    Examples:
      encryptedstats decrypt v0-by-class.enc --key secret.key --schema schema.json
      encryptedstats decrypt v0-by-class.enc --key secret.key --schema schema.json -o counts.csv
      encryptedstats decrypt forest.enc --key secret.key --schema schema.json -o forest.opened

      # what predict gave for encrypted rows
      encryptedstats decrypt votes.enc --key secret.key --schema schema.json -o votes.csv
    """
    screen = out is None or str(out) == SCREEN
    opener = _opener(file)
    private = None if schema is None else load_schema(schema)
    owner = load_owner(key, passphrase_file, opens=file)
    opened = opener(file, owner, private)
    if screen and out is not None and opened.csv is None:
        raise ValueError("an opened model is no CSV: give -o FILE to keep it, or leave -o out to see it")
    if out is not None and not screen:
        _write(opened, out, force)
    if as_json:
        print_json(opened.facts)
    elif out is None:
        _show(opened)
    elif screen:
        typer.echo(opened.csv, nl=False)
    elif opened.model is None:
        Console().print(_wrote(opened, out))
    else:
        _show(opened)
        kept = Text.assemble(_wrote(None, out), "  mode 0600: it is not encrypted, and yours to keep")
        Console().print(Text(), kept, sep="\n")
        if schema is not None:
            Console().print(fact_table([("next", command_line("predict", out, "new.csv", "-o", "predicted.csv"))]))


def _write(opened: Opened, out: Path, force: bool) -> None:
    if opened.model is None:
        write_text(out, str(opened.csv), force=force)
    else:
        save(opened.model, out, force=force)


def _wrote(opened: Opened | None, out: Path) -> Text:
    what = "" if opened is None else f": {printable(opened.title)}"
    return Text.assemble("Wrote ", (printable(str(out)), "bold"), f"  {size_text(out.stat().st_size)}{what}")


def _opener(file: str) -> Callable[[str, es.Owner, es.Schema | None], Opened]:
    """How a file is opened, by what it says it is; before anybody is asked for a passphrase."""
    cure = ""
    if Path(file).is_dir():
        cure = "a whole table is not decrypted; a worker computes results from it"
    return OPENERS[expect(file, OPENERS, "an encrypted result, prediction, model or array", cure)]


def _show(opened: Opened) -> None:
    console = Console()
    console.print(Text(printable(opened.title), style="bold"))
    console.print(opened.view(console.width))
    if opened.hint:
        console.print()
        console.print(Text(opened.hint, style="yellow"))


# -- what can be opened ------------------------------------------------------------------------------------------------


def _open_statistic(file: str, owner: es.Owner, schema: es.Schema | None) -> Opened:
    answer = es.EncryptedStatistic.load(file, owner.public_keys())
    frame = owner.decrypt(answer, schema=schema)
    asked = answer.statistic
    names = [variable_name(position, schema) for position in asked.variables]
    title = f"{question_text(asked.name, names).capitalize()}, {plural(asked.n_rows, 'row')}"
    view = moments_view if asked.name == "moments" else counts_view
    facts = {
        "file": file,
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


def _open_totals(file: str, owner: es.Owner, _: es.Schema | None) -> Opened:
    totals = owner.decrypt(EncryptedNumbers.load(file, owner.public_keys()))
    facts = {"file": file, "kind": NUMBERS_KIND, "values": totals}
    csv = pd.DataFrame({"total": totals}, dtype=object).to_csv(index=False, lineterminator="\n")
    return Opened(plural(len(totals), "total"), _numbers(np.array(totals, dtype=object)), csv, facts)


def _open_array(file: str, owner: es.Owner, _: es.Schema | None) -> Opened:
    values = np.asarray(owner.decrypt(es.EncryptedArray.load(file, owner.public_keys())))
    shape = " x ".join(map(str, values.shape))
    title = f"Array of {shape} integers" if shape else "An integer"
    facts = {"file": file, "kind": ARRAY_KIND, "shape": list(values.shape), "values": values.tolist()}
    return Opened(title, _numbers(values), _array_csv(values), facts)


def _open_model(file: str, owner: es.Owner, schema: es.Schema | None) -> Opened:
    from encryptedstats.cli._summaries import model_facts, model_view  # which needs scikit-learn

    model = owner.decrypt(load_model(load_file(file), owner.public_keys()), schema=schema)
    title = f"Opened {model_text(type(model).__name__, model._growth())}, {plural(model.n_rows_, 'row')}"
    facts = {"file": file, "kind": ENCRYPTED_MODEL_KIND, **model_facts(model)}
    hint = "" if schema else "Give --schema: without it the model knows its variables by number, and cannot predict."
    return Opened(title, lambda width: model_view(model, width), None, facts, hint, model)


def _open_votes(file: str, owner: es.Owner, schema: es.Schema | None) -> Opened:
    sealed = es.load(file, owner.public_keys())
    votes = owner.decrypt(sealed, schema=schema)
    params = sealed.model._growth()
    title = f"Prediction by {model_text(type(sealed.model).__name__, params)} for {plural(sealed.n_rows, 'row')}"
    frame = votes_frame(votes)
    facts = {
        "file": file,
        "kind": VOTES_KIND,
        "model": type(sealed.model).__name__,
        "params": params,
        "output": sealed.output,
        "rows": sealed.n_rows,
        "predicted": predicted_counts(votes),
        "columns": list(frame.columns),
    }
    hint = "" if schema else "Give --schema to see the names of columns and classes."
    return Opened(title, lambda width: votes_view(votes, width), frame.to_csv(lineterminator="\n"), facts, hint)


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


#: By the kind that a file says it is.
OPENERS: Final[dict[str, Callable[[str, es.Owner, es.Schema | None], Opened]]] = {
    STATISTIC_KIND: _open_statistic,
    NUMBERS_KIND: _open_totals,
    ARRAY_KIND: _open_array,
    VOTES_KIND: _open_votes,
    ENCRYPTED_MODEL_KIND: _open_model,
}
