"""``plan``: parameters and cost of what is to be asked, before anybody encrypts a row; ``key make
--plan`` reads it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer

import encryptedstats as es
from encryptedstats.cli import _complete
from encryptedstats.cli._console import (
    command_line,
    plural,
    progress,
    shorten,
    size_text,
    tell,
    time_text,
)
from encryptedstats.cli._errors import spelled_as_options
from encryptedstats.cli._files import COMPUTED, Reads, Writes, write_text
from encryptedstats.cli._inputs import JSON, PLAN, SCHEMA, expect, load_schema, load_table, nature
from encryptedstats.cli._on import LOCAL, Place
from encryptedstats.cli._options import (
    AsJson,
    Encoding,
    Force,
    On,
    SchemeName,
    TableKeys,
    argument,
    option,
    output,
)
from encryptedstats.storage.files import MAX_DOCUMENT_BYTES, read_regular
from encryptedstats.storage.objects import is_url
from encryptedstats.tables.manifest import TABLE_KIND
from encryptedstats.tables.questions.question import question_key
from encryptedstats.tables.questions.words import describe, make_questions
from encryptedstats.views import View

_HASH: Final = "sha256"
_AUTO: Final = "auto"
#: Options that have a sense where a worker plans for a table that is encrypted.
_ELSEWHERE: Final = {"source", "questions", "keys", "on"}


def plan_(
    ctx: typer.Context,
    source: Annotated[
        str,
        Reads,
        argument(
            "SCHEMA",
            "The schema, as data schema wrote it; or, with --on https://HOST, the folder or URL of "
            "an encrypted table.",
        ),
    ],
    questions: Annotated[
        list[str],
        argument(
            "QUESTION...",
            "What will be asked, in the words of ask: forest trees=100, 'lm(bmi ~ age)', "
            "'counts(age, class)'; @FILE for a file of questions.",
            autocompletion=_complete.questions,
        ),
    ],
    rows: Annotated[
        int | None, option(min=1, metavar="N", help="Rows that the table will have.")
    ] = None,
    encrypted_prediction: Annotated[
        str | None,
        option(
            metavar="ROWS",
            help="Models will predict so many rows without being opened: keys carry fit, prediction "
            "and a drawn fraction. auto: as many as fill a ciphertext.",
        ),
    ] = None,
    folds: Annotated[
        int, typer.Option(min=0, metavar="K", help="Folds that encrypt will declare.")
    ] = 0,
    weight_bound: Annotated[
        int, typer.Option(min=1, metavar="N", help="Bound of the weights, as for encrypt.")
    ] = 1,
    encoding: Annotated[
        list[Encoding],
        typer.Option(metavar="ENCODING", help="What encrypt will store of binned variables."),
    ] = [Encoding.onehot],  # noqa: B006  Typer copies it
    by_others: Annotated[
        bool,
        typer.Option(
            "--by-others",
            help="Rows come from others who encrypt with the public keys: more noise, and results "
            "that hide their rows.",
        ),
    ] = False,
    security: Annotated[
        int, typer.Option(metavar="BITS", help="Bits of security: 128, 192 or 256.")
    ] = 128,
    scheme: Annotated[
        SchemeName | None,
        option(help="By default BGV, and BFV where values are too large for it."),
    ] = None,
    on: On = LOCAL,
    keys: TableKeys = None,
    out: Annotated[
        Path | None, Writes(COMPUTED), output("Write the plan as JSON, for key make.")
    ] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Find parameters for questions, and what they cost, before anything is encrypted.

    Keys made for a plan carry exactly its questions, on as many rows; make it for the largest
    that you will ask. Columns go by name or by id (v0, v1, ...), and class or target is the
    target. With --on "local workers=16 price=0.05" it is planned for so many workers of one core
    each: shards, time and money, and keys with room to add them up.

    JSON: questions, rows, totals, products, bytes_up, bytes_down, parameters?, security?,
      sha256?, chunks?, slots?, depth?, largest_value?, failure_bound?, columns?, ciphertexts_up?,
      bytes_keys?, key_switches?, memory?, encrypt_seconds?, seconds?, rotations?, device?,
      flooded?, cluster?, prediction?, table?, on?, cores?, core_seconds?, plans?

    Examples:
      encryptedstats plan schema.json "counts(age, class)" --rows 683 -o plan.json
      encryptedstats key make secret.key public.keys --plan plan.json

      # a model, and a regression beside it, for one pair of keys
      encryptedstats plan schema.json forest trees=100 depth=3 "lm(bmi ~ age + sex)" --rows 683 -o plan.json

      # a model that predicts 100 new rows and stays encrypted all the while
      encryptedstats plan schema.json forest trees=20 depth=2 --rows 683 --encrypted-prediction 100 -o plan.json

      # a table that is encrypted: what it would take a service, which is sent the list of its blocks and nothing else
      encryptedstats plan patients.enc forest trees=100 --on https://worker.example
    """
    place = Place.parse(on)
    place.only("local", "service")
    if not place.is_local:
        _plan_elsewhere(ctx, place, as_json)
        return
    expect(source, (SCHEMA, JSON), "a schema", "a table is planned for by a service, --on URL")
    if rows is None:
        raise typer.BadParameter("say how many rows the table will have: --rows N")
    private = load_schema(Path(source))
    asked = list({question_key(one): one for one in make_questions(questions, private)}.values())
    unopened = _unopened_rows(encrypted_prediction, asked)
    place.refuse("checkpoint", "device", why="is no matter of a plan")
    if "price" in place.options and "workers" not in place.options:
        raise typer.BadParameter("--on price=...: of how many workers? add workers=N")
    with progress("choosing parameters"), spelled_as_options():
        made = es.plan(
            asked,
            private,
            rows,
            unopened,
            encrypted_prediction=encrypted_prediction is not None,
            security=security,
            scheme=None if scheme is None else scheme.value,
            encodings=[one.value for one in encoding],
            weight_bound=weight_bound,
            folds=folds,
            by_others=by_others,
            workers=place.options.get("workers"),
            price_per_core_hour=place.options.get("price"),
        )
    texts = _in_words(asked, private)
    if made.prediction is not None:
        number = plural(made.prediction.n_predict, "row")
        texts.append(f"prediction of {number} with it, unopened")
    facts = {"questions": texts, **made.to_dict()}
    facts[_HASH] = _hash_of(facts)
    if out is not None:
        write_text(out, json.dumps(facts, indent=2) + "\n", force=force)
    tell(_view(made, texts, out, questions), facts, as_json)


def _unopened_rows(given: str | None, asked: Sequence[es.Question]) -> int | None:
    if given is None:
        return None
    if not any(isinstance(one, es.TotalsClassifier) for one in asked):
        raise typer.BadParameter("--encrypted-prediction is of a model that predicts: ask for one")
    if given == _AUTO:
        return None
    if not given.isdigit() or not int(given):
        raise typer.BadParameter(f"--encrypted-prediction {given}: a number of rows, or {_AUTO}")
    return int(given)


def _in_words(asked: Sequence[es.Question], schema: es.Schema | None) -> list[str]:
    return [describe(one, schema) for one in asked]


def _view(made: es.Plan, texts: list[str], out: Path | None, questions: Sequence[str]) -> View:
    facts = {"for": shorten(texts), **dict(made.rows())}
    if out is None:
        return View(
            "Plan", facts, notes=("Give -o plan.json to keep it; key make --plan makes its keys.",)
        )
    facts["next"] = command_line("key", "make", "secret.key", "public.keys", "--plan", out)
    answer = "answer.enc" if len(texts) == 1 else "answers"
    facts["worker"] = command_line("ask", "table.enc", *questions, "-o", answer)
    return View("Plan", facts)


# -- files of plans
# ------------------------------------------------------------------------------------------------


def _hash_of(facts: dict[str, Any]) -> str:
    """SHA-256 of all that a plan says, however it is laid out; a flipped bit would make
    other keys.
    """
    content = {name: value for name, value in facts.items() if name != _HASH}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class SavedPlan:
    """What key make needs of a plan, and what it was made for."""

    parameters: es.Parameters
    rotations: tuple[int, ...]
    rows: int
    questions: list[str]


def read_plan(path: Path) -> SavedPlan:
    """Return a plan that was written as JSON."""
    expect(path, (PLAN, JSON), "a plan", "encryptedstats plan ... -o plan.json makes one")
    try:
        facts = json.loads(read_regular(path, limit=MAX_DOCUMENT_BYTES))
        if facts[_HASH] != _hash_of(facts):
            raise es.FileFormatError(
                f"{path} was altered, its hash does not fit: make it again with encryptedstats plan",
                code="altered-file",
            )
        rotations, rows, questions = facts["rotations"], facts["rows"], facts["questions"]
        if not all(type(number) is int for number in (rows, *rotations)):
            raise es.ArgumentError("rows and rotations are integers", code="not-an-integer")
        return SavedPlan(
            es.Parameters.from_dict(facts["parameters"]),
            tuple(rotations),
            rows,
            [str(one) for one in questions],
        )
    except es.FileFormatError:
        raise
    except es.ParameterError as error:
        raise es.ParameterError(f"{path}: {error}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise es.FileFormatError(
            f"{path} is no plan: write one with encryptedstats plan ... -o {path}",
            code="malformed-plan",
        ) from error


# -- by a service
# ------------------------------------------------------------------------------------------------


def _plan_elsewhere(ctx: typer.Context, place: Place, as_json: bool) -> None:
    """What questions of an encrypted table would take a service, by the times that it measured."""
    given = ctx.params
    table = given["source"]
    if not is_url(table):
        expect(
            table,
            (TABLE_KIND,),
            "an encrypted table",
            f"a service plans for one, not {nature(table)}",
        )
    for name in given:
        source = ctx.get_parameter_source(name)
        if name not in _ELSEWHERE and source is not None and source.name == "COMMANDLINE":
            flag = "--output" if name == "out" else f"--{name.replace('_', '-')}"
            raise typer.BadParameter(f"{flag} is of a table that is still to be encrypted")
    with es.connect(place.address) as worker, progress("asking the service"):
        known = load_table(table, given["keys"], by_others=True).schema
        asked = make_questions(given["questions"], known)
        cores = worker.offers()["cores"]
        made = worker.plan(asked, table, keys=given["keys"])
    texts = _in_words(asked, None)
    facts = {"questions": texts, "table": table, "on": place.address, "cores": cores, **made}
    up = facts["bytes_up"]
    shown = {
        "for": shorten(texts),
        "rows": facts["rows"],
        "upload": f"{size_text(up)} are still to be sent" if up else "all of it is there",
        "download": f"{plural(facts['totals'], 'total')}, {size_text(facts['bytes_down'])}",
        "work": plural(facts["products"], "product"),
        "time there": f"{time_text(facts['core_seconds'])} of one core, of which it has {cores}",
        "next": command_line(
            "ask", table, *given["questions"], "-o", "answer.enc", "--on", place.address
        ),
    }
    tell(View(f"Plan of {place.address}", shown), facts, as_json)
