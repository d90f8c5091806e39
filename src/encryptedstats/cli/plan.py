"""``plan``: parameters and cost of what is to be computed, before anybody encrypts a row; ``keygen
--plan`` reads it.
"""

from __future__ import annotations

import csv
import hashlib
import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
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
    progress,
    size_text,
    time_text,
)
from encryptedstats.cli._errors import spelled_as_options
from encryptedstats.cli._files import COMPUTED, Reads, Writes, write_text
from encryptedstats.cli._help import more_options
from encryptedstats.cli._inputs import JSON, PLAN, expect, load_schema, load_table
from encryptedstats.cli._models import PlannedModels, make_models, model_text, with_model_options
from encryptedstats.cli._options import (
    AsJson,
    Encoding,
    Encodings,
    Force,
    SchemeName,
    Security,
    TableKeys,
    file_option,
    output,
)
from encryptedstats.cli._questions import STATISTICS, make_question, question_text, shortened
from encryptedstats.storage.files import MAX_DOCUMENT_BYTES, read_regular
from encryptedstats.tables.schema.names import class_or_variable

_HASH: Final = "sha256"
EncryptedPrediction = Annotated[
    bool,
    typer.Option(
        "--encrypted-prediction",
        help="The model will predict without being opened: keys carry fit, prediction and a drawn "
        "fraction.",
    ),
]
PredictRows = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="With --encrypted-prediction: rows to predict; by default as many as fill a "
        "ciphertext.",
        show_default=False,
    ),
]
OptionalSchema = Annotated[
    Path | None,
    file_option(
        "--schema",
        help="The schema, as the command schema wrote it; needed, unless --table is given.",
    ),
]
PlannedTable = Annotated[
    str | None,
    Reads,
    typer.Option(
        metavar="TABLE",
        help="With --worker: folder or URL of a table that is encrypted, instead of --schema and "
        "--rows.",
        show_default=False,
    ),
]
PlanningWorker = Annotated[
    str | None,
    typer.Option(
        "--worker",
        metavar="URL",
        help="Ask a worker that serve runs there what it would take: it is sent the list of the "
        "table's blocks, and none of them.",
        show_default=False,
    ),
]
#: Options that have a sense where a worker plans for a table that is encrypted.
_ELSEWHERE: Final = {
    "schema",
    *STATISTICS,
    "ask",
    "model",
    "table",
    "keys",
    "worker",
    "as_json",
    "force",
}


@with_model_options
def plan(
    ctx: typer.Context,
    schema: OptionalSchema = None,
    rows: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Rows that the table will have.",
            show_default=False,
        ),
    ] = None,
    counts: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN[,BY]",
            help="Count the bins of a column; by class, or by another column. May be given several "
            "times, as all questions.",
            show_default=False,
        ),
    ] = None,
    crosstab: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN,COLUMN",
            help="A cross table of two columns.",
            show_default=False,
        ),
    ] = None,
    moments: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN,...",
            help="Means, variances, covariances of columns kept as numbers.",
            show_default=False,
        ),
    ] = None,
    ask: Annotated[
        list[str] | None,
        typer.Option(
            metavar="QUESTION",
            help="A statistic or a question of your own, in quotes: 'TTest variable=bmi by=sex', "
            "as ask takes it.",
            show_default=False,
        ),
    ] = None,
    model: PlannedModels = None,
    encrypted_prediction: EncryptedPrediction = False,
    predict_rows: PredictRows = None,
    security: Security = 128,
    scheme: Annotated[
        SchemeName | None,
        typer.Option(
            help="By default BGV, and BFV where values are too large for it.",
            show_default=False,
        ),
    ] = None,
    folds: Annotated[
        int, typer.Option(min=0, metavar="K", help="Folds that encrypt will declare.")
    ] = 0,
    weight_bound: Annotated[
        int, typer.Option(min=1, metavar="N", help="Bound of the weights, as for encrypt.")
    ] = 1,
    encoding: Encodings = [Encoding.onehot],  # noqa: B006  Typer copies it
    by_others: Annotated[
        bool,
        typer.Option(
            "--by-others",
            help="Rows come from others who encrypt with the public keys: more noise, and results "
            "that hide their rows.",
        ),
    ] = False,
    members: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="N",
            help="For a joint key of so many members, who open results together.",
        ),
    ] = 1,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Plan for so many workers of one core each: shards, time and money, and keys with "
            "room to add them up.",
            show_default=False,
        ),
    ] = None,
    price: Annotated[
        float | None,
        typer.Option(
            "--price",
            min=0,
            metavar="X",
            help="What a core costs an hour; with --workers.",
            show_default=False,
        ),
    ] = None,
    table: PlannedTable = None,
    keys: TableKeys = None,
    worker: PlanningWorker = None,
    out: Annotated[
        Path | None, Writes(COMPUTED), output("Write the plan as JSON, for keygen.")
    ] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Find parameters for a computation, and its cost, before anybody pays.

    Keys made for a plan carry exactly its questions, on as many rows; make it for the largest that you will ask. Columns
    go by name or by id (v0, v1, ...), and class or target is the target.

    Examples:
      encryptedstats plan --schema schema.json --rows 683 --counts age,class -o plan.json
      encryptedstats keygen secret.key public.keys --plan plan.json

      # a model, with the options that fit will be given
      encryptedstats plan --schema schema.json --rows 683 --model forest --trees 100 --depth 3 -o plan.json

      # a model that predicts 100 new rows and stays encrypted all the while
      encryptedstats plan --schema schema.json --rows 683 --model forest --trees 20 --depth 2 \\
          --encrypted-prediction --predict-rows 100 -o plan.json

      # several questions and models, for one pair of keys; --trees goes to the model that has it
      encryptedstats plan --schema schema.json --rows 100000 \\
          --counts age,class --moments dose,weight --model forest --trees 50 --model mnb -o plan.json

      # a table that is encrypted: what it would take a worker, which is sent the list of its blocks and nothing else
      encryptedstats plan --table patients.enc --model forest --trees 100 --worker https://worker.example
    """
    if worker is not None or table is not None:
        plan_elsewhere(ctx)
        return
    if schema is None or rows is None:
        raise typer.BadParameter(
            "say what the table will be: --schema and --rows; or --table and --worker, of one "
            "that is encrypted"
        )
    private = load_schema(schema)
    asked, models = _asked(ctx, private)
    if price is not None and workers is None:
        raise typer.BadParameter(
            "--price is what a core of a cluster costs: say how many with --workers"
        )
    wanted: Any = [*asked, *models]
    if encrypted_prediction or predict_rows is not None:
        wanted = _unopened(ctx, asked, models)
    with progress("choosing parameters"), spelled_as_options():
        made = es.plan(
            wanted,
            private,
            rows,
            predict_rows,
            encrypted_prediction=encrypted_prediction,
            security=security,
            scheme=None if scheme is None else scheme.value,
            encodings=[one.value for one in encoding],
            weight_bound=weight_bound,
            folds=folds,
            by_others=by_others,
            members=members,
            workers=workers,
            price_per_core_hour=price,
        )
    facts = {"questions": _questions(asked, private, models, made), **made.to_dict()}
    facts[_HASH] = _hash_of(facts)
    if out is not None:
        write_text(out, json.dumps(facts, indent=2) + "\n", force=force)
    if as_json:
        print_json(facts)
    else:
        _show(made, facts["questions"], out, models)


def _asked(
    ctx: typer.Context, schema: es.Schema | es.PublicSchema
) -> tuple[list[es.Question], list[Any]]:
    """The questions and the models that are to be planned."""
    given = ctx.params
    asked = [_statistic(name, text, schema) for name in STATISTICS for text in given[name] or ()]
    asked += [make_question(shlex.split(text), schema) for text in given["ask"] or ()]
    models = make_models(given["model"] or (), more_options(ctx))
    if not asked and not models:
        raise typer.BadParameter(
            "say what will be computed: --model, --counts, --crosstab, --moments, --ask, or "
            "several of them"
        )
    return asked, models


def _statistic(name: str, text: str, schema: es.Schema | es.PublicSchema) -> es.Question:
    """A question as it is written after its option; names with a comma in quotes, as in CSV."""
    names = next(csv.reader([text], skipinitialspace=True), [])
    least, most = {"counts": (1, 2), "crosstab": (2, 2), "moments": (1, len(schema.variables))}[
        name
    ]
    if not least <= len(names) <= most:
        wanted = {
            "counts": "a column, or two",
            "crosstab": "two columns",
            "moments": "columns of numbers",
        }[name]
        raise typer.BadParameter(f"--{name} {text}: {wanted} with a comma between them are needed")
    statistic = STATISTICS[name](tuple(class_or_variable(one, schema) for one in names))
    statistic.check(schema.public())
    return statistic


def _unopened(ctx: typer.Context, asked: Sequence[es.Question], models: Sequence[Any]) -> Any:
    """What is planned where models are to predict without being opened: these, and other questions
    beside them.
    """
    if not ctx.params["encrypted_prediction"]:
        raise typer.BadParameter(
            "--predict-rows is for --encrypted-prediction: an opened model predicts any number"
        )
    if not models:
        raise typer.BadParameter(
            "--encrypted-prediction is of a model that predicts: say which with --model"
        )
    return [*asked, *models]


def _questions(
    asked: Sequence[es.Question], schema: es.Schema, models: Sequence[Any], made: es.Plan
) -> list[str]:
    texts = _in_words(asked, models, schema)
    if made.prediction is not None:
        texts.append(f"prediction of {plural(made.prediction.n_predict, 'row')} with it, unopened")
    return texts


def _in_words(
    asked: Sequence[es.Question], models: Sequence[Any], schema: es.Schema | None
) -> list[str]:
    texts = [question_text(one.name, one.parameters(), schema) for one in asked]
    return texts + [f"fit of {model_text(type(model), model.get_params())}" for model in models]


def _hash_of(facts: dict[str, Any]) -> str:
    """SHA-256 of all that a plan says, however it is laid out; a flipped bit would make
    other keys.
    """
    content = {name: value for name, value in facts.items() if name != _HASH}
    return hashlib.sha256(
        json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
    ).hexdigest()


@dataclass(frozen=True)
class SavedPlan:
    """What keygen needs of a plan, and what it was made for."""

    parameters: es.Parameters
    rotations: tuple[int, ...]
    rows: int
    questions: list[str]


def read_plan(path: Path) -> SavedPlan:
    """A plan that was written as JSON."""
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


def _show(made: es.Plan, questions: list[str], out: Path | None, models: Sequence[Any]) -> None:
    console = Console()
    asked: RenderableType = Text("\n".join(map(printable, shortened(questions))), style="bold")
    console.print(fact_table([("for", asked), *made.rows()]))
    console.print()
    if made.parameters.members > 1:  # keygen would make a key that one holds
        told = (
            "Keys of several members are made in a study, which plans for itself: encryptedstats "
            "study create --kind joint."
        )
        console.print(Text(told, style="dim"))
    elif out is None:
        console.print(
            Text(
                "Give -o plan.json to keep it, and keygen --plan plan.json makes keys for it.",
                style="dim",
            )
        )
    else:
        steps = [("next", command_line("keygen", "secret.key", "public.keys", "--plan", out))]
        steps += [("worker", _fit_line(model)) for model in models[:1]]
        console.print(fact_table(steps))


def _fit_line(model: Any, table: str = "table.enc", *more: str) -> Text:
    """What the worker will type for a model that was planned."""
    words = model_text(type(model), model.get_params()).split()
    return command_line("fit", table, "-o", "model.enc", "--model", *words, *more)


# -- by a worker
# ------------------------------------------------------------------------------------------------


def plan_elsewhere(ctx: typer.Context) -> None:
    """What questions of a table that is encrypted would take a worker, by the times that it has
    measured.
    """
    given = ctx.params
    place, url = _table_and_worker(ctx)
    own = None if given["schema"] is None else load_schema(given["schema"])
    with es.connect(url) as worker, progress("asking the worker"), spelled_as_options():
        known = load_table(place, given["keys"], by_others=True).schema
        asked, models = _asked(ctx, own or known)
        cores = worker.offers()["cores"]
        made = worker.plan([*asked, *models], place, keys=given["keys"])
    facts = {
        "questions": _in_words(asked, models, own),
        "table": place,
        "worker": url,
        "cores": cores,
        **made,
    }
    if given["as_json"]:
        print_json(facts)
        return
    to_send = (
        f"{size_text(facts['bytes_up'])} are still to be sent"
        if facts["bytes_up"]
        else "all of it is there"
    )
    rows: list[tuple[str, RenderableType]] = [
        ("for", Text("\n".join(map(printable, shortened(facts["questions"]))), style="bold")),
        ("worker", printable(url)),
        ("rows", f"{facts['rows']:,}"),
        ("upload", to_send),
        ("download", f"{plural(facts['totals'], 'total')}, {size_text(facts['bytes_down'])}"),
        ("work", plural(facts["products"], "product")),
        ("time there", f"{time_text(facts['core_seconds'])} of one core, of which it has {cores}"),
        *(("next", _fit_line(model, place, "--worker", url)) for model in models[:1]),
    ]
    Console().print(fact_table(rows))


def _table_and_worker(ctx: typer.Context) -> tuple[str, str]:
    """The two that it takes; what chooses keys is refused, since the table has its own."""
    place, url = ctx.params["table"], ctx.params["worker"]
    if place is None or url is None:
        raise typer.BadParameter(
            "a worker plans for a table that is encrypted: give --table and --worker together"
        )
    for name in ctx.params:
        if name not in _ELSEWHERE and _was_given(ctx, name):
            option = "--output" if name == "out" else f"--{name.replace('_', '-')}"
            raise typer.BadParameter(
                f"{option} is of a table that is still to be encrypted: leave it out, or --worker"
            )
    return place, url


def _was_given(ctx: typer.Context, name: str) -> bool:
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"
