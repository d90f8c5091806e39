"""``model``: combine models, draw their fractions, and calibrate their probabilities."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from enum import Enum
from functools import reduce
from operator import add, sub
from pathlib import Path
from typing import Annotated, Any, Final

import typer

import encryptedstats as es
from encryptedstats.cli._console import (
    command_line,
    file_facts,
    file_text,
    plural,
    progress,
    tell,
    time_text,
)
from encryptedstats.cli._csv import csv_options, say_format
from encryptedstats.cli._files import Writes, save
from encryptedstats.cli._inputs import check_rows, expect, load_public_keys, load_table
from encryptedstats.cli._on import LOCAL, Place, Request
from encryptedstats.cli._options import (
    AsJson,
    Csv,
    DataFile,
    Force,
    On,
    ResultFile,
    TableKeys,
    TableUrl,
    Weights,
    argument,
    file_option,
    output,
)
from encryptedstats.cli.ask import answer_facts, sealed_text
from encryptedstats.errors import ArgumentError
from encryptedstats.kinds import read_file
from encryptedstats.storage import container
from encryptedstats.tables.questions.question import MODEL_KIND, OPEN_MODEL_KIND
from encryptedstats.tables.questions.words import describe_question
from encryptedstats.views import View

_LOSS: Final = "what it holds would have to be fitted again"
_CALIBRATION: Final = "the calibration in it would have to be fitted again"


def model_combine(
    out: Annotated[Path, Writes(_LOSS), argument("OUT", "File for the model of all rows.")],
    models: Annotated[
        list[Path],
        argument(
            "MODEL...",
            "Models of different rows with the same question, all encrypted or all decrypted.",
        ),
    ],
    forget: Annotated[
        list[Path] | None,
        file_option(
            metavar="MODEL",
            help="Remove the rows of this model; may be given several times.",
        ),
    ] = None,
    keys: Annotated[
        Path | None,
        file_option(help="For encrypted models: public keys, or the folder of a table with them."),
    ] = None,
    on: On = LOCAL,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Add up models of different rows, or forget some rows, encrypted or decrypted.

    JSON: file, bytes, question, params, rows, blocks, encrypted, totals, ciphertexts, drawn,
      key_id, seconds

    Examples:
      encryptedstats model combine all.enc north.enc south.enc --keys north-rows.enc

      # a contributor withdrew, whose rows had a table and a model of their own
      encryptedstats model combine less.enc all.enc --forget south.enc --keys north-rows.enc
    """
    place, less = Place.parse(on), forget or []
    if len(models) + len(less) < 2:
        raise typer.BadParameter("give two models or more, or one and --forget another")
    everything = _load_alike([*models, *less], keys)
    started = time.perf_counter()
    if place.is_local:
        with progress("adding up"):
            joined = reduce(sub, everything[len(models) :], reduce(add, everything[: len(models)]))
        save(joined, out, force=force)
    elif keys is None or not keys.is_dir():
        raise typer.BadParameter(
            "--keys: a worker elsewhere takes the keys from a table: give its folder"
        )
    else:
        joined = place.combine(models, less, _request(str(keys), out, force))
    _report("Combined", joined, out, time.perf_counter() - started, as_json)


def _request(table: str, out: Path, force: bool, keys: Path | None = None) -> Request:
    return Request(table, [str(out)], keys, force, by_others=True)


def _load_alike(paths: Sequence[Path], keys: Path | None) -> list[Any]:
    """Load models that are all encrypted or all decrypted, and of one class."""
    for path in paths:
        expect(path, (MODEL_KIND, OPEN_MODEL_KIND), "a fitted model")
    files = [container.read(path) for path in paths]
    for path, file in zip(paths, files, strict=True):
        if file.kind != files[0].kind:
            raise ArgumentError(
                f"{paths[0]} is an {files[0].kind} and {path} an {file.kind}: models are combined "
                "all encrypted or all decrypted",
                code="mixed-encryption",
            )
    public = None
    if files[0].kind == MODEL_KIND:
        if keys is None:
            raise ArgumentError(
                "these models are encrypted: give --keys with the public keys, or with the "
                "folder of a table",
                code="no-public-keys",
            )
        public = load_public_keys(keys)
    models = [read_file(file, public) for file in files]
    for path, model in zip(paths, models, strict=True):
        if type(model) is not type(models[0]):
            first, other = (type(one).__name__ for one in (models[0], model))
            raise ArgumentError(
                f"{paths[0]} holds a {first} and {path} a {other}: only models of one class can "
                "be combined",
                code="mixed-models",
            )
    return models


def _report(verb: str, model: Any, out: Path, seconds: float, as_json: bool) -> None:
    facts = {**file_facts(out), **answer_facts(model), "seconds": seconds}
    what = describe_question(facts["question"], facts["params"])
    title = f"{verb} {what} over {plural(facts['rows'], 'row')}, in {time_text(seconds)}"
    shown: Mapping[str, Any] = {"model": file_text(out, "mode 0600: it is not encrypted")}
    if facts["encrypted"]:
        owner = command_line("open", out, "--key", "secret.key", "--schema", "schema.json")
        shown = {
            "model": sealed_text(facts),
            "key": f"{facts['key_id']}, whose owner alone can open it",
            "owner": f"{owner} -o {out.stem}.model",
        }
    tell(View(title, shown), facts, as_json)


def model_draw(
    model: Annotated[Path, argument("MODEL", "An encrypted forest that was asked with fraction=.")],
    table: TableUrl,
    out: ResultFile,
    keys: TableKeys = None,
    on: On = LOCAL,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Draw the stochastic fraction of a combined forest.

    ask draws fractions if the keys were planned with --encrypted-prediction. Fractions do not add
    up: a forest from several machines or from model combine has none until they are drawn from a
    table with all of its rows.

    JSON: file, bytes, question, params, rows, blocks, encrypted, totals, ciphertexts, drawn,
      key_id, seconds

    Examples:
      encryptedstats model draw all.enc patients.enc -o drawn.enc
    """
    place = Place.parse(on)
    expect(model, (MODEL_KIND,), "an encrypted forest")
    sealed = load_table(table, keys, by_others=True)
    forest = read_file(container.read(model), sealed.keys)
    if not isinstance(forest, es.CompletelyRandomForest):
        raise ArgumentError(
            f"{model} holds a {type(forest).__name__}: only forests have a stochastic fraction to "
            "draw",
            code="no-stochastic-fraction",
        )
    if set(forest.block_ids_) != set(sealed.blocks.ids):
        raise ArgumentError(
            f"{table} has {sealed.n_rows:,} rows and {model} was fitted to {forest.n_rows_:,} "
            "others: give a table with exactly the rows of the forest",
            code="other-rows",
        )
    started = time.perf_counter()
    if place.is_local:
        forest.draw_fraction(sealed, **place.local_options())
        save(forest, out, force=force)
    else:
        forest = place.draw(model, _request(table, out, force, keys))
    _report("Drew the fractions of", forest, out, time.perf_counter() - started, as_json)


# -- calibration
# ------------------------------------------------------------------------------------------------


class Method(str, Enum):
    """How scores become probabilities."""

    sigmoid = "sigmoid"
    isotonic = "isotonic"


def model_calibrate(
    file: Annotated[Path, argument("MODEL", "A decrypted model, as open -o wrote it.")],
    data: DataFile,
    out: Annotated[
        Path,
        Writes(_CALIBRATION),
        output("Where the calibrated model goes; predict and evaluate read it."),
    ],
    method: Annotated[
        Method,
        typer.Option(
            help="sigmoid: Platt's curve with two parameters. isotonic: any increasing curve, "
            "for a thousand rows or more."
        ),
    ] = Method.sigmoid,
    weights: Weights = None,
    csv: Csv = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Calibrate the probabilities of a decrypted model on rows with known classes.

    A forest gives shares of votes, which rank rows but are no probabilities. Calibration estimates
    how often a class occurs at each share. It needs a hundred rows or more that the model was not
    fitted to; evaluate the result on other rows again.

    JSON: file, bytes, model, params, method, rows, class_counts, rows_left_out,
      rows_without_class, curves

    Examples:
      encryptedstats model calibrate forest.model kept-back.csv -o calibrated.model
      encryptedstats evaluate calibrated.model test.csv
      encryptedstats predict calibrated.model new.csv -o predicted.csv
    """
    from encryptedstats.models.clear_rows import check_classifies, model_in, read_labelled_rows

    expect(file, (OPEN_MODEL_KIND,), "a decrypted model")
    check_rows(data)
    model = model_in(read_file(container.read(file)))
    check_classifies(model, file)
    known = model._get_private_schema()
    table, unlabelled = read_labelled_rows(known, data, weights, csv_options(csv), say_format(data))
    try:
        calibrated = es.CalibratedModel(model, method.value).fit(table)
    except ValueError as error:
        raise ValueError(f"{data}: {error}") from error
    save(calibrated, out, force=force)
    counts = zip(model.classes_, calibrated.class_counts_, strict=True)
    facts = {
        **file_facts(out),
        "model": type(model).__name__,
        "params": model.parameters(),
        "method": method.value,
        "rows": len(table),
        "class_counts": {str(label): int(n) for label, n in counts},
        "rows_left_out": table.n_dropped + unlabelled,
        "rows_without_class": unlabelled,
        "curves": calibrated.curves_,
    }
    tell(_calibration_view(facts), facts, as_json)


def _calibration_view(facts: Mapping[str, Any]) -> View:
    shown: dict[str, Any] = {"classes": facts["class_counts"]}
    without = facts["rows_without_class"]
    gaps = facts["rows_left_out"] - without
    left_out = tuple(
        f"{plural(count, 'row')} {why}"
        for count, why in ((gaps, "with missing values"), (without, "without a class"))
        if count
    )
    shown["left out"] = left_out
    curves = facts["curves"]
    if facts["method"] == Method.sigmoid:
        lines = [f"{one['slope']:.4g} x score {one['intercept']:+.4g}" for one in curves]
        shown["log-odds"] = "; ".join(lines)
    else:
        shown["curve"] = ", ".join(plural(len(one["x"]), "corner") for one in curves)
    shown["model"] = file_text(facts["file"], "mode 0600: it is not encrypted")
    shown["next"] = command_line("evaluate", facts["file"], "test.csv")
    model = describe_question(facts["model"], facts["params"])
    return View(f"Calibrated {model} by {facts['method']} on {plural(facts['rows'], 'row')}", shown)
