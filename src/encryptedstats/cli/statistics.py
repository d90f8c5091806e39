"""``counts``, ``crosstab``, ``moments``, ``ask``: what a worker computes on a table that it cannot
read, for the owner to open.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

import encryptedstats as es
from encryptedstats.cli import _complete
from encryptedstats.cli._console import (
    command_line,
    fact_table,
    plural,
    print_json,
    printable,
    size_text,
    time_text,
)
from encryptedstats.cli._files import save
from encryptedstats.cli._frames import plain_table
from encryptedstats.cli._inputs import load_schema, load_table
from encryptedstats.cli._options import (
    AsJson,
    ByOthers,
    Device,
    Force,
    ResultFile,
    TableKeys,
    TableUrl,
    VariableId,
    Workers,
    file_option,
)
from encryptedstats.cli._questions import (
    listed_questions,
    make_question,
    question_text,
    variables_of,
)
from encryptedstats.cli._workers import RemoteTable, WorkerUrl, is_for_worker


def counts(
    ctx: typer.Context,
    table: TableUrl,
    variable: VariableId,
    out: ResultFile,
    by: Annotated[
        str | None,
        typer.Option(
            metavar="class|ID",
            help="By class (or target), or by another variable.",
            autocompletion=_complete.class_and_ids,
            show_default=False,
        ),
    ] = None,
    keys: TableKeys = None,
    by_others: ByOthers = False,
    workers: Workers = None,
    device: Device = "auto",
    worker: WorkerUrl = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Count the rows in each bin of a variable; by class, or by another variable.

    Examples:
      encryptedstats counts patients.enc v0 -o v0.enc
      encryptedstats counts patients.enc v0 --by class -o v0-by-class.enc

      # by a worker somewhere else, which gets the encrypted table
      encryptedstats counts patients.enc v0 -o v0.enc --worker https://worker.example
    """
    _run(
        ctx.params,
        lambda sealed: sealed.counts(variable, by, workers=workers, device=device),
    )


def crosstab(
    ctx: typer.Context,
    table: TableUrl,
    first: VariableId,
    second: VariableId,
    out: ResultFile,
    keys: TableKeys = None,
    by_others: ByOthers = False,
    workers: Workers = None,
    device: Device = "auto",
    worker: WorkerUrl = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Count the rows in each pair of bins of two variables.

    Examples:
      encryptedstats crosstab patients.enc v0 v1 -o v0-v1.enc
    """
    _run(
        ctx.params,
        lambda sealed: sealed.crosstab(first, second, workers=workers, device=device),
    )


def moments(
    ctx: typer.Context,
    table: TableUrl,
    variables: Annotated[
        list[str],
        typer.Argument(
            metavar="ID...",
            help="Ids of variables that were kept as numbers.",
            autocompletion=_complete.variable_ids,
            show_default=False,
        ),
    ],
    out: ResultFile,
    keys: TableKeys = None,
    by_others: ByOthers = False,
    workers: Workers = None,
    device: Device = "auto",
    worker: WorkerUrl = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Sums, means, variances and covariances of variables that were kept as numbers.

    Examples:
      encryptedstats moments patients.enc v3 v4 -o moments.enc
    """
    _run(
        ctx.params,
        lambda sealed: sealed.moments(variables, workers=workers, device=device),
    )


def _show_list(wanted: bool) -> None:
    """All questions, and nothing else."""
    if not wanted:
        return
    table = plain_table()
    for name in ("question", "parameters", "what it asks"):
        table.add_column(name, overflow="fold", style="bold" if name == "question" else None)
    for line in listed_questions():
        table.add_row(*(Text(printable(text)) for text in line))
    Console().print(table)
    raise typer.Exit


def ask(
    ctx: typer.Context,
    table: TableUrl,
    question: Annotated[
        list[str],
        typer.Argument(
            metavar="QUESTION [NAME=VALUE]...",
            help="A NAME that is known (see --list), or FILE.py:NAME or MODULE:NAME; then its "
            "parameters, lists with commas "
            "(variables=v1,v2) or as JSON.",
            show_default=False,
        ),
    ],
    out: ResultFile,
    schema: Annotated[
        Path | None,
        file_option(
            "--schema",
            help="Your schema, if it is yours, to name variables and levels; ids are what is asked "
            "with.",
        ),
    ] = None,
    all_of_them: Annotated[
        bool,
        typer.Option(
            "--list",
            help="List all questions with their parameters, and stop.",
            is_eager=True,
            callback=_show_list,
        ),
    ] = False,
    keys: TableKeys = None,
    by_others: ByOthers = False,
    workers: Workers = None,
    device: Device = "auto",
    worker: WorkerUrl = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Ask a statistic, or a question of your own, written in Python.

    ask --list shows all that are known. The owner plans for it with plan --ask and the same words, and opens the answer with
    decrypt. Whoever computes knows variables by id, v0, v1 and so on; with --schema, names are translated here. A question of
    your own is in a FILE.py, which decrypt takes with --questions; packages can bring some that are known by name. Its code
    runs here, with your rights; what it asks stays encrypted.

    Examples:
      encryptedstats ask patients.enc TTest variable=v3 by=v1 -o t.enc
      encryptedstats ask patients.enc Anova variable=v3 by=v1,v2 -o anova.enc

      # where the owner asks
      encryptedstats ask patients.enc TTest variable=bmi by=sex --schema schema.json -o t.enc
      encryptedstats ask patients.enc my_questions.py:MyRidge target=v2 alpha=1 -o ridge.enc
    """
    asked = make_question(question, None if schema is None else load_schema(schema))
    _run(ctx.params, lambda sealed: sealed.ask(asked, workers=workers, device=device))


def _run(given: Mapping[str, Any], ask: Callable[[Any], Any]) -> None:
    """Open the table, ask it, here or where a worker is, and write the encrypted answer."""
    out = Path(
        given["out"]
    )  # which some versions of Typer leave as text among a context's parameters
    force, by_others = given["force"], given["by_others"]
    away = is_for_worker(given)
    sealed = load_table(given["table"], given["keys"], by_others)
    started = time.perf_counter()
    if away:
        answer = ask(
            RemoteTable(
                given["worker"], given["table"], sealed, given["keys"], out, force, by_others
            )
        )
    else:
        answer = ask(sealed)
        save(answer, out, force=force)
    facts = _facts(answer, out, time.perf_counter() - started)
    if given["as_json"]:
        print_json(facts)
    else:
        _show(facts)


def _facts(answer: Any, out: Path, seconds: float) -> dict[str, Any]:
    is_answer = isinstance(answer, es.EncryptedAnswer)  # else a model
    question, totals = (
        (answer.question, answer.ciphertexts) if is_answer else (answer, answer.totals_)
    )
    return {
        "file": str(out),
        "bytes": out.stat().st_size,
        "question": question.name,
        "params": question.parameters(),
        **variables_of(question),
        "rows": answer.n_rows if is_answer else answer.n_rows_,
        "totals": len(totals),
        "ciphertexts": len(totals.parts),
        "seconds": seconds,
        "key_id": totals.keys.key_id,
    }


def _show(facts: dict[str, Any]) -> None:
    file, console = printable(facts["file"]), Console()
    question = printable(question_text(facts["question"], facts["params"]))
    work = f" over {plural(facts['rows'], 'row')}, in {time_text(facts['seconds'])}"
    console.print(Text.assemble((question[0].upper() + question[1:], "bold"), work))
    content = f"{plural(facts['totals'], 'total')} in {plural(facts['ciphertexts'], 'ciphertext')}"
    console.print(
        fact_table(
            [
                (
                    "result",
                    Text.assemble(
                        (file, "bold green"),
                        f"  {size_text(facts['bytes'])}, {content}, for the owner",
                    ),
                ),
                (
                    "key",
                    Text.assemble((facts["key_id"], "cyan"), ", whose owner alone can open it"),
                ),
                (
                    "owner",
                    command_line("decrypt", file, "--key", "secret.key", "--schema", "schema.json"),
                ),
            ]
        )
    )
