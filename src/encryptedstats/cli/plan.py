"""``plan``: parameters and cost of questions, in a file that ``key make`` reads."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
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
    EncodingName,
    Force,
    On,
    SchemeName,
    SpotChecked,
    TableKeys,
    argument,
    option,
    output,
)
from encryptedstats.cli._rounds import find_rounds, find_site_procedure, plan_at_sites
from encryptedstats.procedures.words import describe_procedure
from encryptedstats.storage.files import MAX_DOCUMENT_BYTES, read_regular
from encryptedstats.storage.objects import is_url
from encryptedstats.tables.manifest import TABLE_KIND
from encryptedstats.tables.questions.question import question_key
from encryptedstats.tables.questions.words import describe, make_questions, split_words, words_of
from encryptedstats.views import View

_HASH: Final = "sha256"
_AUTO: Final = "auto"
#: Options with a meaning where a service plans for a table that is encrypted.
_ELSEWHERE: Final = {"source", "questions", "keys", "on"}
#: Those with a meaning for what the sites of a study compute, which takes no keys.
_AT_SITES: Final = {"source", "questions", "rows"}


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
            "Questions as for ask: forest trees=100, 'lm(bmi ~ age)', 'counts(age, class)'; "
            "@FILE reads them from a file.",
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
            help="Plan for models that predict this number of rows while encrypted: the keys allow "
            "fit, prediction and a drawn fraction. auto: as many rows as fill a ciphertext.",
        ),
    ] = None,
    folds: Annotated[
        int, typer.Option(min=0, metavar="K", help="The folds that encrypt will be given.")
    ] = 0,
    weight_bound: Annotated[
        int,
        typer.Option(min=1, metavar="N", help="The largest weight there may be, as for encrypt."),
    ] = 1,
    encoding: Annotated[
        list[EncodingName],
        typer.Option(metavar="ENCODING", help="How encrypt will store binned variables."),
    ] = [EncodingName.onehot],  # noqa: B006  Typer copies it
    by_others: Annotated[
        bool,
        typer.Option(
            "--by-others",
            help="Rows come from contributors with the public keys: results need noise that hides "
            "their rows.",
        ),
    ] = False,
    spot_check: SpotChecked = False,
    security: Annotated[
        int, typer.Option(metavar="BITS", help="Bits of security: 128, 192 or 256.")
    ] = 128,
    scheme: Annotated[
        SchemeName | None,
        option(help="By default BGV, and BFV where values are too large for it."),
    ] = None,
    on: On = LOCAL,
    keys: TableKeys = None,
    out: Annotated[Path | None, Writes(COMPUTED), output("File for the plan, as JSON.")] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Find the parameters and the cost of questions before anything is encrypted.

    Keys made for a plan allow its questions on its number of rows: plan for the largest that you
    will ask. Columns have their names or ids (v0, v1, ...); class or target is the target. With
    --on "local workers=16 price=0.05" it plans for 16 workers with one core each: shards, time,
    money, and keys with room to add up the shards.

    JSON: questions, rows?, totals?, products?, bytes_up?, bytes_down?, parameters?, security?,
      sha256?, chunks?, slots?, depth?, largest_value?, failure_bound?, columns?, ciphertexts_up?,
      bytes_keys?, key_switches?, memory?, encrypt_seconds?, seconds?, rotations?, device?,
      flooded?, cluster?, prediction?, spot_check?, notes?, table?, on?, cores?, core_seconds?,
      plans?, procedure?, at_most?, n_opened?, n_parameters?, n_rows?, lowered_by?, enough?

    Examples:
      encryptedstats plan schema.json "counts(age, class)" --rows 683 -o plan.json
      encryptedstats key make secret.key public.keys --plan plan.json

      # a model and a regression, for one pair of keys
      encryptedstats plan schema.json forest trees=100 depth=3 "lm(bmi ~ age + sex)" --rows 683 \\
        -o plan.json

      # a model that predicts 100 new rows while it is encrypted
      encryptedstats plan schema.json forest trees=20 depth=2 --rows 683 \\
        --encrypted-prediction 100 -o plan.json

      # a tree that learns its splits: what its rounds take, and what they tell a worker
      encryptedstats plan schema.json tree depth=3 --rows 683 -o plan.json

      # a regression that the sites of a study compute in rounds: how many rows they need together
      encryptedstats plan schema.json "PooledGLM(ill ~ age + sex, max_iterations=6)"

      # the cost on a service, which gets the list of the blocks of an encrypted table
      encryptedstats plan patients.enc forest trees=100 --on https://worker.example
    """
    place = Place.parse(on)
    place.only("local", "service")
    if not place.is_local:
        _plan_elsewhere(ctx, place, as_json)
        return
    expect(
        source,
        (SCHEMA, JSON),
        "a schema",
        "for an encrypted table, a service plans: add --on https://HOST",
    )
    private = load_schema(Path(source))
    at_sites = find_site_procedure(questions)
    if at_sites is not None:
        _only(ctx, _AT_SITES, f"is for keys, and {at_sites.name} needs none")
        view, document = plan_at_sites(at_sites, questions, private, rows)
        tell(view, document, as_json)
        return
    if rows is None:
        raise typer.BadParameter("say how many rows the table will have: --rows N")
    rounds = find_rounds(questions)
    named = _named_questions(questions, private) if rounds is None else []
    asked = [question for _, question in named]
    unopened = _rows_to_predict(encrypted_prediction, asked)
    place.refuse("checkpoint", "device", why="a plan does not depend on it")
    if "price" in place.options and "workers" not in place.options:
        raise typer.BadParameter("--on price=... is the price of a worker: add workers=N")
    with progress("choosing parameters"), spelled_as_options():
        made = es.plan(
            asked if rounds is None else rounds,
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
            spot_check=spot_check,
        )
    texts = _in_words(asked, private) if rounds is None else [describe_procedure(rounds)]
    if made.prediction is not None:
        number = plural(made.prediction.n_predict, "row")
        texts.append(f"encrypted prediction of {number}")
    facts = {"questions": texts, **made.to_dict()}
    facts[_HASH] = _hash_of(facts)
    if out is not None:
        write_text(out, json.dumps(facts, indent=2) + "\n", force=force)
    view = _view(made, texts, out, _next_ask(source, questions, named, by_others))
    tell(replace(view, notes=(*view.notes, *_advice(asked))), facts, as_json)


def _rows_to_predict(text: str | None, asked: Sequence[es.Question]) -> int | None:
    if text is None:
        return None
    if not any(isinstance(one, es.TotalsClassifier) for one in asked):
        raise typer.BadParameter("--encrypted-prediction is for a model that predicts: plan one")
    if text == _AUTO:
        return None
    if not text.isdigit() or not int(text):
        raise typer.BadParameter(
            f"--encrypted-prediction {text}: give a number of rows, or {_AUTO}"
        )
    return int(text)


def _advice(asked: Sequence[es.Question]) -> tuple[str, ...]:
    """Return which classifiers rank rows better, where one is planned that is not the best."""
    from encryptedstats.method_status import ADVICE, BY_AUC

    planned = {one.name for one in asked} & set(BY_AUC)
    return (ADVICE,) if planned and BY_AUC[0] not in planned else ()


def _in_words(asked: Sequence[es.Question], schema: es.Schema | None) -> list[str]:
    return [describe(one, schema) for one in asked]


def _named_questions(words: Sequence[str], schema: es.Schema) -> list[tuple[str, es.Question]]:
    """Return each question once, with the name that it was asked by."""
    names = [name for name, _ in split_words(words)]
    pairs = zip(names, make_questions(words, schema), strict=True)
    return list({question_key(one): (name, one) for name, one in pairs}.values())


def _next_ask(
    schema: str, words: Sequence[str], named: Sequence[tuple[str, es.Question]], by_others: bool
) -> tuple[str, str]:
    """Return who asks what was planned, and the command.

    A worker asks questions, by ids. The owner, who has the names, asks procedures.
    """
    options = ["--by-others"] if by_others else []
    if not named:
        owner = ("--key", "secret.key", "--schema", schema)
        return "ask", command_line("ask", "table.enc", *words, *options, *owner, "-o", "rounds")
    spelled = [word for name, one in named for word in words_of(one, name)]
    out = "answer.enc" if len(named) == 1 else "answers"
    return "worker", command_line("ask", "table.enc", *spelled, *options, "-o", out)


def _view(made: es.Plan, texts: list[str], out: Path | None, ask: tuple[str, str]) -> View:
    facts = {"for": shorten(texts), **dict(made.rows())}
    if out is None:
        return View(
            "Plan", facts, notes=("Give -o plan.json to keep it; key make --plan makes its keys.",)
        )
    facts["next"] = command_line("key", "make", "secret.key", "public.keys", "--plan", out)
    who, command = ask
    facts[who] = command
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
                (
                    f"{path} was altered, its hash does not fit: make it again with encryptedstats "
                    "plan"
                ),
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


def _only(ctx: typer.Context, allowed: set[str], why: str) -> None:
    """Refuse options that were given and are not among those that are allowed."""
    for name in ctx.params:
        source = ctx.get_parameter_source(name)
        if name not in allowed and source is not None and source.name == "COMMANDLINE":
            flag = "--output" if name == "out" else f"--{name.replace('_', '-')}"
            raise typer.BadParameter(f"{flag} {why}: leave it out")


def _plan_elsewhere(ctx: typer.Context, place: Place, as_json: bool) -> None:
    """Plan questions of an encrypted table with the times that a service measured."""
    values = ctx.params
    table = values["source"]
    if not is_url(table):
        expect(
            table,
            (TABLE_KIND,),
            "an encrypted table",
            f"a service plans for one, not {nature(table)}",
        )
    _only(ctx, _ELSEWHERE, "is for a schema, before a table is encrypted")
    with es.connect(place.address) as worker, progress("asking the service"):
        known = load_table(table, values["keys"], by_others=True).schema
        asked = make_questions(values["questions"], known)
        cores = worker.offers()["cores"]
        made = worker.plan(asked, table, keys=values["keys"])
    texts = _in_words(asked, None)
    facts = {"questions": texts, "table": table, "on": place.address, "cores": cores, **made}
    up = facts["bytes_up"]
    shown = {
        "for": shorten(texts),
        "rows": facts["rows"],
        "upload": f"{size_text(up)} to send" if up else "nothing to send",
        "download": f"{plural(facts['totals'], 'total')}, {size_text(facts['bytes_down'])}",
        "work": plural(facts["products"], "product"),
        "time there": f"{time_text(facts['core_seconds'])} of one core, of which it has {cores}",
        "next": command_line(
            "ask", table, *values["questions"], "-o", "answer.enc", "--on", place.address
        ),
    }
    tell(View(f"Plan of {place.address}", shown), facts, as_json)
