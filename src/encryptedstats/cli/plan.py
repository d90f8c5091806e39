"""``plan``: parameters and cost of what is to be computed, before anybody encrypts a row; ``keygen --plan`` reads it."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, RenderableType
from rich.text import Text

import encryptedstats as es
from encryptedstats.cli._console import command_line, fact_table, print_json, printable, progress
from encryptedstats.cli._files import check_target, write_text
from encryptedstats.cli._models import (
    Alpha,
    Centred,
    Depth,
    Fraction,
    Intercept,
    MaxFeatures,
    Paired,
    PlannedModel,
    Seed,
    Trees,
    make_model,
    model_text,
)
from encryptedstats.cli._options import AsJson, Encoding, Encodings, SchemaFile, SchemeName
from encryptedstats.cli._questions import question_text, shortened, variable_name
from encryptedstats.tables.statistics import CLASS, Statistic, check_variables


def plan(
    ctx: typer.Context,
    schema: SchemaFile,
    rows: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="N",
            help="Rows that the table will have.",
            show_default=False,
        ),
    ],
    counts: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN[,BY]",
            help="Count the bins of a column; by class, or by another column. May be given several times, as all questions.",
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
            metavar="COLUMN,...", help="Means, variances, covariances of columns kept as numbers.", show_default=False
        ),
    ] = None,
    model: PlannedModel = None,
    trees: Trees = None,
    depth: Depth = None,
    max_features: MaxFeatures = None,
    fraction: Fraction = None,
    seed: Seed = None,
    paired: Paired = None,
    centred: Centred = None,
    alpha: Alpha = None,
    intercept: Intercept = None,
    security: Annotated[int, typer.Option(metavar="BITS", help="Bits of security: 128, 192 or 256.")] = 128,
    scheme: Annotated[
        SchemeName | None,
        typer.Option(
            help="By default BGV, and BFV where values are too large for it.",
            show_default=False,
        ),
    ] = None,
    folds: Annotated[int, typer.Option(min=0, metavar="K", help="Folds that encrypt will declare.")] = 0,
    weight_bound: Annotated[int, typer.Option(min=1, metavar="N", help="Bound of the weights, as for encrypt.")] = 1,
    encoding: Encodings = [Encoding.onehot],  # noqa: B006  Typer copies it
    by_others: Annotated[
        bool,
        typer.Option(
            "--by-others", help="Rows come from others who encrypt with the public keys, which makes more noise."
        ),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            readable=False,
            help="Write the plan as JSON, for keygen.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Find parameters for a computation, and its cost, before anybody pays.

    Keys made for a plan carry exactly its questions, on as many rows; make it for the largest that you will ask. Columns
    go by name or by id (v0, v1, ...), and class is the target.

    Examples:
      encryptedstats plan --schema schema.json --rows 683 --counts age,class -o plan.json
      encryptedstats keygen secret.key public.keys --plan plan.json

      # a model, with the options that fit will be given
      encryptedstats plan --schema schema.json --rows 683 --model forest --trees 100 --depth 3 -o plan.json

      # several questions, for one pair of keys
      encryptedstats plan --schema schema.json --rows 100000 \\
          --counts age,class --crosstab age,sex --moments dose,weight
    """
    if out is not None:
        check_target(out)
    private = es.Schema.load(schema)
    public = private.public()
    asked = [
        *(_statistic("counts", text, private, rows) for text in counts or ()),
        *(_statistic("crosstab", text, private, rows) for text in crosstab or ()),
        *(_statistic("moments", text, private, rows) for text in moments or ()),
    ]
    planned = None if model is None else make_model(model, ctx.params)
    if not asked and planned is None:
        raise typer.BadParameter(
            "say what will be computed: --model, --counts, --crosstab, --moments, or several of them"
        )
    with progress("choosing parameters"):
        made = es.plan(
            [*(total for one in asked for total in one.circuit(public)), *([] if planned is None else [planned])],
            private,
            rows,
            security=security,
            scheme=None if scheme is None else scheme.value,
            encodings=[one.value for one in encoding],
            weight_bound=weight_bound,
            folds=folds,
            with_secret_key=not by_others,
        )
    facts = {"questions": _questions(asked, private, planned), **made.to_dict()}
    if out is not None:
        write_text(out, json.dumps(facts, indent=2) + "\n")
    if as_json:
        print_json(facts)
    else:
        _show(made, facts["questions"], out)


def _statistic(name: str, text: str, schema: es.Schema, rows: int) -> Statistic:
    """A question as it is written after its option; names with a comma in quotes, as in CSV."""
    names = next(csv.reader([text], skipinitialspace=True), [])
    least, most = {"counts": (1, 2), "crosstab": (2, 2), "moments": (1, len(schema.variables))}[name]
    if not least <= len(names) <= most:
        wanted = {"counts": "a column, or two", "crosstab": "two columns", "moments": "columns of numbers"}[name]
        raise typer.BadParameter(f"--{name} {text}: {wanted} with a comma between them are needed")
    statistic = Statistic(name, tuple(_position(one, schema) for one in names), rows)
    check_variables(statistic, schema.public())
    return statistic


def _position(name: str, schema: es.Schema) -> int:
    if name in (CLASS, schema.target) and name not in schema.names:
        return -1
    return schema.index(name)


def _questions(asked: Sequence[Statistic], schema: es.Schema, model: Any) -> list[str]:
    texts = [question_text(one.name, [variable_name(j, schema) for j in one.variables]) for one in asked]
    return texts if model is None else [*texts, f"fit of {model_text(type(model).__name__, model.get_params())}"]


@dataclass(frozen=True)
class SavedPlan:
    """What keygen needs of a plan, and what it was made for."""

    parameters: es.Parameters
    rotations: tuple[int, ...]
    rows: int
    questions: list[str]


def read_plan(path: Path) -> SavedPlan:
    """A plan that was written as JSON."""
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        rotations, rows, questions = facts["rotations"], facts["rows"], facts["questions"]
        if not all(type(number) is int for number in (rows, *rotations)):
            raise ValueError("rows and rotations are integers")
        return SavedPlan(
            es.Parameters.from_dict(facts["parameters"]), tuple(rotations), rows, [str(one) for one in questions]
        )
    except es.ParameterError as error:
        raise es.ParameterError(f"{path}: {error}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise es.FileFormatError(f"{path} is no plan: write one with encryptedstats plan ... -o {path}") from error


def _show(made: es.Plan, questions: list[str], out: Path | None) -> None:
    console = Console()
    asked: RenderableType = Text("\n".join(map(printable, shortened(questions))), style="bold")
    console.print(fact_table([("for", asked), *made.rows()]))
    console.print()
    if out is None:
        console.print(Text("Give -o plan.json to keep it, and keygen --plan plan.json makes keys for it.", style="dim"))
    else:
        console.print(fact_table([("next", command_line("keygen", "secret.key", "public.keys", "--plan", out))]))
