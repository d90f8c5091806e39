"""``ask``: everything that is asked of an encrypted table, one question or many."""

from __future__ import annotations

import textwrap
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from encryptedstats.cli import _complete
from encryptedstats.cli._console import (
    command_line,
    plural,
    print_json,
    show,
    size_text,
    tell,
    time_text,
)
from encryptedstats.cli._files import Writes, check_output
from encryptedstats.cli._on import LOCAL, Place, Request
from encryptedstats.cli._options import (
    AsJson,
    Force,
    On,
    TableKeys,
    TableUrl,
    argument,
    file_option,
)
from encryptedstats.tables.questions.words import (
    describe_all,
    describe_parameters,
    describe_question,
    make_named_questions,
    question_type,
)
from encryptedstats.views import View

if TYPE_CHECKING:
    import encryptedstats as es

_MARK: Final = Writes("what it holds would have to be computed again", folder=True)
_OWNER: Final = ("--key", "secret.key", "--schema", "schema.json")


def _show_questions(ctx: typer.Context, wanted: bool) -> None:
    """List all questions, and nothing else; as JSON with their status."""
    if wanted and ctx.find_root().params.get("as_json"):
        from encryptedstats.method_status import methods

        print_json({"questions": methods().reset_index().to_dict("records")})
        raise typer.Exit
    if wanted:
        lines = {f"{name} {taken}": about for name, taken, about in describe_all()}
        show(
            View(
                "Questions", {name: tuple(textwrap.wrap(text, 72)) for name, text in lines.items()}
            )
        )
        raise typer.Exit


def _show_question(name: str | None) -> None:
    """Describe one question, and nothing else."""
    if name:
        found = question_type(name)
        show(View(f"{name}: {found.about()}", describe_parameters(found)))
        raise typer.Exit


def ask_(
    table: TableUrl,
    questions: Annotated[
        list[str],
        argument(
            "QUESTION...",
            "A name and its parameters, forest trees=100, or a call, 'lm(bmi ~ age)'; several one "
            "after the other; @FILE for a file of them; FILE.py:NAME for one of your own.",
            autocompletion=_complete.questions,
        ),
    ],
    out: Annotated[
        str,
        _MARK,
        file_option(
            "--output",
            "-o",
            help="Where the encrypted answer goes; of several questions, a folder for them.",
        ),
    ],
    schema: Annotated[
        Path | None,
        file_option(
            "--schema", help="Your schema, if you are the owner, to name variables and levels."
        ),
    ] = None,
    folds: Annotated[
        bool,
        typer.Option("--folds", help="Fit every fold of a table that was encrypted with --folds."),
    ] = False,
    keys: TableKeys = None,
    by_others: Annotated[
        bool,
        typer.Option(
            "--by-others",
            help="Compute on rows that others have encrypted with the public keys. Whoever forges "
            "such rows and sees a result can recover the secret key: only where all of them are "
            "trusted like the key, or see no results.",
        ),
    ] = False,
    on: On = LOCAL,
    list_all: Annotated[
        bool,
        typer.Option("--list", help="List all questions.", is_eager=True, callback=_show_questions),
    ] = False,
    about: Annotated[
        str | None,
        typer.Option(
            "--about",
            metavar="NAME",
            help="Describe a question and its parameters.",
            is_eager=True,
            callback=_show_question,
            show_default=False,
        ),
    ] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Ask an encrypted table: tests, tables, regressions and models, one or many at once.

    The owner plans the same questions before, and opens the answers with open. Whoever computes
    knows variables by id, v0, v1 and so on; with --schema, names are translated here. A question
    of your own is Python, in a file or an installed package: its code runs here, with your
    rights, and what it asks stays encrypted.

    JSON: table, on, answers, seconds

    Examples:
      encryptedstats ask patients.enc forest trees=100 depth=3 seed=7 -o forest.enc
      encryptedstats ask patients.enc "lm(bmi ~ age + sex)" --schema schema.json -o lm.enc

      # several at once: answers/counts.enc, answers/t.test.enc and answers/mnb.enc
      encryptedstats ask patients.enc "counts(v0, class)" "t.test(v3 ~ v1)" mnb alpha=1 -o answers
      encryptedstats ask patients.enc @questions.txt -o answers

      # a long fit that goes on where it was after an interruption
      encryptedstats ask patients.enc forest -o forest.enc --on "local checkpoint=forest.part"

      # elsewhere: a Dask cluster, workers of a queue, a service
      encryptedstats ask s3://bucket/patients forest -o s3://bucket/forest --on dask://10.0.0.1:8786
      encryptedstats ask s3://bucket/patients forest -o s3://bucket/forest --on queue://s3://bucket/work
      encryptedstats ask patients.enc forest -o forest.enc --on https://worker.example

      # every fold of a table that was encrypted with --folds, for evaluate; a question of your own
      encryptedstats ask patients.enc mnb --folds -o folds.enc
      encryptedstats ask patients.enc my_questions.py:MyRidge target=v2 alpha=1 -o ridge.enc
    """
    place = Place.parse(on)
    named = make_named_questions(questions, None if schema is None else _schema(schema))
    outs, asked = _outputs(out, [name for name, _ in named], place, force), [q for _, q in named]
    started = time.perf_counter()
    request = Request(table, outs, keys, force, by_others, folds)
    answers = []
    for made, file in zip(place.ask(asked, request), outs, strict=True):
        answers.append({"file": file, **_facts(made, file)})
        if not as_json and len(asked) > 1:
            typer.echo(f"{file}: {_text(answers[-1])}", err=True)
    document = {
        "table": table,
        "on": on,
        "answers": answers,
        "seconds": time.perf_counter() - started,
    }
    tell(_view(document), document, as_json)


def _schema(path: Path) -> es.Schema:
    from encryptedstats.cli._inputs import load_schema

    return load_schema(path)


def _outputs(out: str, names: Sequence[str], place: Place, force: bool) -> list[str]:
    """The files of the answers; those of several questions are named by these, in a folder."""
    from encryptedstats.storage.objects import is_url

    if is_url(out) and not place.is_cluster:
        raise typer.BadParameter(f"-o {out}: a URL is written by dask:// or queue://, see --on")
    if len(names) == 1:
        if Path(out).is_dir():
            raise typer.BadParameter(f"-o {out} is a folder: give a file for one answer")
        return [out]
    files, taken = [], Counter[str]()
    for name in names:
        taken[name] += 1
        number = f"-{taken[name]}" if taken[name] > 1 else ""
        files.append(f"{out.rstrip('/')}/{name}{number}.enc")
    if not is_url(out):
        Path(out).mkdir(parents=True, exist_ok=True)
        for file in files:
            check_output(file, _MARK, force=force or place.is_cluster)
    return files


def _facts(made: Any, file: str) -> dict[str, Any]:
    """What may be told of an encrypted answer, ready for JSON."""
    if hasattr(made, "wait"):  # a job of a queue
        asked = {"question": made.question.name, "params": made.question.parameters()}
        return {"bytes": None, **asked, **job_facts(made)}
    return {**_size(file), **answer_facts(made)}


def job_facts(made: Any) -> dict[str, Any]:
    """Return what may be told of a job of a queue, ready for JSON."""
    status = made.status()
    return {
        "rows": status.rows,
        "job": made.id,
        "queue": made.place,
        "shards": status.shards,
        "finished": status.state == "done",
    }


def _size(file: str) -> dict[str, int]:
    from encryptedstats.storage.objects import is_url, read_object

    return {"bytes": len(read_object(file)) if is_url(file) else Path(file).stat().st_size}


def answer_facts(made: Any) -> dict[str, Any]:
    """Return what may be told of an answer or a fitted model, ready for JSON."""
    from encryptedstats.tables.questions.row_answers import DRAWN

    answer = getattr(made, "answer_", made)  # a model holds one
    question = answer.question
    sealed = answer.is_encrypted
    return {
        "question": question.name,
        "params": question.parameters(),
        "rows": answer.n_rows,
        "blocks": len(answer.block_ids),
        "encrypted": sealed,
        "totals": len(answer.ciphertexts if sealed else answer.totals),
        "ciphertexts": len(answer.ciphertexts.parts) if sealed else 0,
        "drawn": len(answer.beside.get(DRAWN, ())),
        "key_id": answer.ciphertexts.keys.key_id if sealed else "",
    }


def _text(facts: dict[str, Any]) -> str:
    what = describe_question(facts["question"], facts["params"])
    return f"{what} over {plural(facts['rows'], 'row')}"


def sealed_text(facts: dict[str, Any]) -> str:
    """Return an encrypted answer and its size in words."""
    drawn = f", {plural(facts['drawn'], 'fraction')} drawn" if facts["drawn"] else ""
    return (
        f"{facts['file']}  {size_text(facts['bytes'])}, {plural(facts['totals'], 'total')} in "
        f"{plural(facts['ciphertexts'], 'ciphertext')}{drawn}, for the owner"
    )


def _view(document: dict[str, Any]) -> View:
    answers = document["answers"]
    first = answers[0]
    what = _text(first) if len(answers) == 1 else plural(len(answers), "answer")
    if "job" in first:
        return _queued_view(document)
    facts: dict[str, Any] = {"answer": tuple(sealed_text(one) for one in answers)}
    facts["key"] = f"{first['key_id']}, whose owner alone can open it"
    verb = "evaluate" if first["question"] == "folds" else "open"
    more = ("patients.csv",) if verb == "evaluate" else ()
    facts["owner"] = command_line(verb, first["file"], *more, *_OWNER)
    return View(f"Asked {what}, in {time_text(document['seconds'])}", facts)


def _queued_view(document: dict[str, Any]) -> View:
    answers = document["answers"]
    facts: dict[str, Any] = {"answer": tuple(map(queued_text, answers))}
    finished = all(one["finished"] for one in answers)
    if not finished:
        facts["next"] = command_line("worker", "run", answers[0]["queue"])
    return View("Done already" if finished else "Queued", facts)


def queued_text(facts: dict[str, Any]) -> str:
    """Return a job of a queue in words."""
    done = "is there" if facts["finished"] else "when all are done"
    shards = f"{plural(facts['shards'], 'shard')} of {plural(facts['rows'], 'row')}"
    return f"{facts['file']}  {done}: job {facts['job'][:12]}, {shards}"
