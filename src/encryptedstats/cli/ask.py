"""``ask``: ask an encrypted table one or many questions."""

from __future__ import annotations

import textwrap
import time
from collections import Counter
from collections.abc import Iterable, Sequence
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
    KeyFile,
    LedgerFolder,
    On,
    PassphraseFile,
    TableKeys,
    TableUrl,
    argument,
    file_option,
)
from encryptedstats.cli._rounds import OWNERS_FILES, OwnersFiles, ask_in_rounds, find_rounds
from encryptedstats.tables.questions.words import (
    describe_all,
    describe_parameters,
    describe_question,
    make_named_questions,
)
from encryptedstats.views import View

if TYPE_CHECKING:
    import encryptedstats as es

_MARK: Final = Writes("what it holds would have to be computed again", folder=True)


def _show_questions(ctx: typer.Context, wanted: bool) -> None:
    """List all questions and exit; as JSON with their status."""
    if wanted and ctx.find_root().params.get("as_json"):
        from encryptedstats.method_status import methods

        print_json({"questions": methods().reset_index().to_dict("records")})
        raise typer.Exit
    if wanted:
        from encryptedstats.method_status import ADVICE
        from encryptedstats.procedures.words import describe_procedures

        show(View("Questions", _lines(describe_all()), notes=(ADVICE,)))
        show(View("Questions in rounds, with --key", _lines(describe_procedures())))
        raise typer.Exit


def _lines(described: Iterable[tuple[str, str, str]]) -> dict[str, tuple[str, ...]]:
    return {f"{name} {taken}": tuple(textwrap.wrap(text, 72)) for name, taken, text in described}


def _show_question(name: str | None) -> None:
    """Describe a question and exit."""
    if name:
        from encryptedstats.procedures.words import find_asked_type

        found = find_asked_type(name)
        show(View(f"{name}: {found.about()}", describe_parameters(found)))
        raise typer.Exit


def ask_(
    table: TableUrl,
    questions: Annotated[
        list[str],
        argument(
            "QUESTION...",
            "A name with parameters, forest trees=100, or a call, 'lm(bmi ~ age)'; one or "
            "several; @FILE reads them from a file; FILE.py:NAME is one of your own.",
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
            help="Compute on rows of contributors, who have the public keys. A contributor who "
            "forges rows and sees a result can recover the secret key: use it only if you trust "
            "all of them like the key, or if they see no results.",
        ),
    ] = False,
    on: On = LOCAL,
    key: KeyFile = None,
    ledger: LedgerFolder = None,
    check_rounds: Annotated[
        bool,
        typer.Option(
            "--check-rounds",
            help="Check each round before the next is asked: a worker that lies is found. The rows "
            "were encrypted with --spot-check.",
        ),
    ] = False,
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
    passphrase_file: PassphraseFile = None,
    as_json: AsJson = False,
) -> None:
    """Ask an encrypted table one or many questions: tests, regressions, models.

    The owner plans the same questions before, and opens the answers with open. A worker knows
    variables by their ids v0, v1, ...; the owner may give --schema and write names. A question of
    your own is Python, in a file or an installed package: its code runs here with your rights.

    JSON: table, on, answers, seconds

    Examples:
      encryptedstats ask patients.enc forest trees=100 depth=3 seed=7 -o forest.enc
      encryptedstats ask patients.enc "lm(bmi ~ age + sex)" --schema schema.json -o lm.enc

      # several at once: answers/counts.enc, answers/t.test.enc and answers/mnb.enc
      encryptedstats ask patients.enc "counts(v0, class)" "t.test(v3 ~ v1)" mnb alpha=1 -o answers
      encryptedstats ask patients.enc @questions.txt -o answers

      # a long fit that resumes after an interruption
      encryptedstats ask patients.enc forest -o forest.enc --on "local checkpoint=forest.part"

      # elsewhere: a Dask cluster, workers of a queue, a service
      encryptedstats ask s3://bucket/patients forest -o s3://bucket/forest --on dask://10.0.0.1:8786
      encryptedstats ask s3://bucket/patients forest -o s3://bucket/forest \\
        --on queue://s3://bucket/work
      encryptedstats ask patients.enc forest -o forest.enc --on https://worker.example

      # trees that learn their splits, by the owner: one round for each level
      encryptedstats ask patients.enc tree depth=3 --key secret.key --schema schema.json -o tree.run
      encryptedstats ask patients.enc forest learned trees=50 --key secret.key -o forest.run

      # every fold of a table that was encrypted with --folds, for evaluate; your own question
      encryptedstats ask patients.enc mnb --folds -o folds.enc
      encryptedstats ask patients.enc my_questions.py:MyRidge target=v2 alpha=1 -o ridge.enc
    """
    place = Place.parse(on)
    rounds = find_rounds(questions)
    if rounds is not None:
        request = Request(table, [out], keys, force, by_others)
        files = OwnersFiles(key, passphrase_file, schema, ledger, check_rounds)
        tell(*ask_in_rounds(rounds, place, request, files), as_json)
        return
    if key is not None or ledger is not None or check_rounds:
        raise typer.BadParameter(
            "--key, --ledger and --check-rounds are for what is asked in rounds, such as tree"
        )
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
    """Return the files of the answers; of several questions, in a folder."""
    from encryptedstats.storage.objects import is_url

    place.check_output(out)
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
    """Describe an encrypted answer, ready for JSON."""
    if hasattr(made, "wait"):  # a job of a queue
        asked = {"question": made.question.name, "params": made.question.parameters()}
        return {"bytes": None, **asked, **job_facts(made)}
    return {"bytes": size_of(file), **answer_facts(made)}


def job_facts(made: Any) -> dict[str, Any]:
    """Describe a job of a queue, ready for JSON."""
    status = made.status()
    return {
        "rows": status.rows,
        "job": made.id,
        "queue": made.place,
        "shards": status.shards,
        "finished": status.state == "done",
    }


def size_of(file: str) -> int:
    """Return the bytes of a file or of an object at a URL."""
    from encryptedstats.storage.objects import is_url, read_object

    return len(read_object(file)) if is_url(file) else Path(file).stat().st_size


def answer_facts(made: Any) -> dict[str, Any]:
    """Describe an answer or a fitted model, ready for JSON."""
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
        "drawn": len(answer.extra_totals.get(DRAWN, ())),
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
    what = _text(first) if len(answers) == 1 else plural(len(answers), "question")
    if "job" in first:
        return _queued_view(document)
    facts: dict[str, Any] = {"answer": tuple(sealed_text(one) for one in answers)}
    facts["key"] = f"{first['key_id']}, whose owner alone can open it"
    verb = "evaluate" if first["question"] == "folds" else "open"
    more = ("patients.csv",) if verb == "evaluate" else ()
    facts["owner"] = command_line(verb, first["file"], *more, *OWNERS_FILES)
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
