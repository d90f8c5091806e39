"""``ask`` and ``plan`` of procedures: questions that are asked in rounds, and opened in between."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Final

import typer

from encryptedstats.cli._console import command_line, plural, printable, time_text
from encryptedstats.cli._inputs import RUN
from encryptedstats.errors import DataError
from encryptedstats.views import View

if TYPE_CHECKING:
    from encryptedstats.cli._on import Place, Request
    from encryptedstats.procedures import OpenedRound, Procedure, SiteProcedure
    from encryptedstats.tables.answers.opened import Opened
    from encryptedstats.tables.schema.schema import Schema


#: Options of the owner, as plans show them.
OWNERS_FILES: Final = ("--key", "secret.key", "--schema", "schema.json")


@dataclass(frozen=True)
class OwnersFiles:
    """How each round is opened: the files of the key, its passphrase, the schema and the ledger."""

    key: Path | None
    passphrase_file: Path | None
    schema: Path | None
    ledger: str | None
    check_rounds: bool = False


def find_rounds(words: Sequence[str]) -> Procedure | None:
    """Return the procedure that words ask for; None if they begin with a question."""
    from encryptedstats.procedures.site_procedure import SiteProcedure
    from encryptedstats.procedures.words import make_procedure

    found = make_procedure(words)
    if isinstance(found, SiteProcedure):
        raise typer.BadParameter(
            f"{found.name} is computed by the sites of a study on their own rows: study create "
            f"--ask 'rounds:NAME={words[0]}'"
        )
    return found


def find_site_procedure(words: Sequence[str]) -> SiteProcedure | None:
    """Return the procedure of the sites of a study that words ask for, if they do."""
    from encryptedstats.procedures.site_procedure import SiteProcedure
    from encryptedstats.procedures.words import make_procedure

    found = make_procedure(words)
    return found if isinstance(found, SiteProcedure) else None


def plan_at_sites(
    procedure: SiteProcedure, words: Sequence[str], schema: Schema, rows: int | None
) -> tuple[View, dict[str, Any]]:
    """Return what the rounds of a study come to, as it is shown and for programs."""
    made, asked = procedure.plan(schema), " ".join(words)
    enough = None if rows is None else rows >= made.n_rows
    facts: dict[str, Any] = {"for": asked, **dict(made.rows())}
    if rows is not None:
        facts["enough"] = f"{plural(rows, 'row')}: {'enough' if enough else 'too few'}"
    facts["next"] = f"{command_line('study', 'create')} ... --ask {quote(f'rounds:NAME={asked}')}"
    return View("Plan of a study", facts), {
        "questions": [asked],
        **made.to_dict(),
        "enough": enough,
    }


def ask_in_rounds(
    procedure: Procedure, place: Place, work: Request, files: OwnersFiles
) -> tuple[View, dict[str, Any]]:
    """Run a procedure in a folder, showing each round, and return its result as it is shown and
    for programs.
    """
    from encryptedstats.cli._inputs import load_schema
    from encryptedstats.cli._keys import load_owner

    if place.kind == "queue" and "://" not in place.address and not Path(place.address).exists():
        raise typer.BadParameter(f"--on queue://{place.address}: there is no such folder")
    owner = load_owner(files.key, files.passphrase_file)
    schema = None if files.schema is None else load_schema(files.schema)
    options: dict[str, Any] = {"ledger": files.ledger, "by_others": work.by_others}
    options["verify"] = "spot" if files.check_rounds else None
    rounds: list[OpenedRound] = []

    def tell_round(done: OpenedRound) -> None:
        rounds.append(done)
        typer.echo(printable(str(done)), err=True)

    if place.kind == "queue":
        worker_command = command_line("worker", "run", place.address, "--wait", "600")
        typer.echo(printable(f"each round waits for a worker: {worker_command}"), err=True)
    started = time.perf_counter()
    with place.connect(work) as (worker, table):
        found = procedure.run(
            table,
            owner,
            at=worker,
            schema=schema,
            folder=work.outs[0],
            progress=tell_round,
            **{**options, **place.options},
        )
    seconds = time.perf_counter() - started
    document = {
        "table": work.table,
        "on": place.address or place.kind,
        "folder": work.outs[0],
        "procedure": {"name": procedure.name, "params": procedure.parameters()},
        "rounds": len(rounds),
        "result": found.to_dict() if hasattr(found, "to_dict") else str(found),
        "seconds": seconds,
    }
    return _view(found, document, files.schema), document


def read_result(folder: str, schema: Schema | None) -> Opened:
    """Return the result of a procedure whose rounds are all in a folder."""
    from encryptedstats.procedures import read_run
    from encryptedstats.tables.answers.opened import Opened

    if schema is None:
        raise typer.BadParameter(
            f"{folder} has the rounds of a procedure, and no names: give --schema with the owner's "
            "schema"
        )
    course = read_run(folder, schema)
    own = course.procedure
    if course.asked is not None:
        raise DataError(
            f"{folder} has {plural(len(course.rounds), 'round')} of {own.name}, which is not done: "
            "ask it again with -o and the same words, which goes on there",
            code="rounds-not-done",
        )
    found, rows = course.read(), course.rounds[-1].n_rows if course.rounds else None
    is_shown = hasattr(found, "view")
    view = found.view() if is_shown else View(own.name, {"result": str(found)})
    return Opened(view, RUN, own.name, own.parameters(), rows, found)


def _view(found: Any, document: dict[str, Any], schema: Path | None) -> View:
    facts = {
        "rounds": f"{document['rounds']} in {time_text(document['seconds'])}",
        "stored": f"{document['folder']}, mode 0600: it holds what was opened",
    }
    if hasattr(found, "predict") and schema is not None:
        named = ("--schema", schema, "-o", "predicted.csv")
        facts["next"] = command_line("predict", document["folder"], "new.csv", *named)
    if not hasattr(found, "view"):
        return View(document["procedure"]["name"], {**facts, "result": str(found)})
    shown: View = found.view()
    return replace(shown, facts={**shown.facts, **facts})
