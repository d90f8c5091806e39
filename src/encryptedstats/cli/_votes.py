"""Predictions that open nothing, as ``predict`` makes and ``decrypt`` shows them: encrypted votes,
and the opened ones as a table.

Whoever predicts has public keys and never a secret one. scikit-learn is imported only where a model
is read.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import typer
from rich.console import Console, Group, RenderableType
from rich.text import Text

import encryptedstats as es
from encryptedstats.cli._clusters import predict_on_cluster
from encryptedstats.cli._console import (
    command_line,
    fact_table,
    plural,
    print_json,
    printable,
    size_text,
    time_text,
)
from encryptedstats.cli._csv import say_format
from encryptedstats.cli._files import save
from encryptedstats.cli._frames import frame_view, label_text
from encryptedstats.cli._inputs import check_rows, load_public_keys, load_schema, load_table
from encryptedstats.cli._questions import question_text
from encryptedstats.cli._workers import RemoteTable
from encryptedstats.kinds import read_file
from encryptedstats.storage.objects import load_file
from encryptedstats.tables.questions.question import OPEN_MODEL_KIND
from encryptedstats.tables.rows.csv_format import CsvOptions
from encryptedstats.tables.rows.row_files import read_frame
from encryptedstats.tables.rows.table_from_frame import complete_rows_to_predict


@dataclass(frozen=True)
class Unopened:
    """What is to be predicted, by what: as the command was told."""

    model: str
    rows: str
    keys: Path | None
    schema: Path | None
    output: str | None
    csv: CsvOptions


def predict_unopened(
    what: Unopened,
    out: Path,
    *,
    is_table: bool,
    workers: int | None,
    device: str,
    force: bool,
    as_json: bool,
) -> None:
    """Predict rows of an encrypted table, or by an encrypted model, and write the
    encrypted votes.
    """
    _check(what, str(out), is_table)
    rows, public = _encrypted_rows(what) if is_table else _clear_rows(what)
    file = load_file(what.model)
    model = read_file(file, None if file.kind == OPEN_MODEL_KIND else public)
    started = time.perf_counter()
    votes = model.predict_votes(rows, output=what.output, workers=workers, device=device)
    seconds = time.perf_counter() - started
    save(votes, out, force=force)
    _tell(votes, str(out), out.stat().st_size, seconds, as_json)


def predict_by_many(what: Unopened, out: str, given: Mapping[str, Any]) -> None:
    """Let many machines predict the rows of an encrypted table: by a Dask scheduler, or by the
    workers of a queue.
    """
    _check(what, out, is_table=True)
    started = time.perf_counter()
    made = predict_on_cluster(what.model, what.rows, out, what.output, given)
    if made is not None:
        _tell(made[0], out, made[1], time.perf_counter() - started, given["as_json"])


def predict_elsewhere(
    what: Unopened, out: Path, worker: str, *, force: bool, as_json: bool
) -> None:
    """Let a worker somewhere else predict the rows of an encrypted table."""
    _check(what, str(out), is_table=True)
    started = time.perf_counter()
    table, _ = _encrypted_rows(what)
    votes = RemoteTable(worker, what.rows, table, what.keys, out, force).predicted_by(
        what.model, what.output
    )
    _tell(votes, str(out), out.stat().st_size, time.perf_counter() - started, as_json)


def _check(what: Unopened, out: str, is_table: bool) -> None:
    if out == "-":
        raise typer.BadParameter(
            "-o -: an encrypted prediction is no text for a screen: give a file"
        )
    if is_table and what.schema is not None:
        raise typer.BadParameter(
            "--schema is for rows in the clear: an encrypted table brings what a worker may know"
        )


def _tell(votes: Any, out: str, size: int, seconds: float, as_json: bool) -> None:
    facts = {"file": out, "bytes": size, **_facts(votes), "seconds": seconds}
    if as_json:
        print_json(facts)
    else:
        _show(facts)


def _encrypted_rows(what: Unopened) -> tuple[es.EncryptedTable, es.PublicKeys]:
    table = load_table(what.rows, what.keys, by_others=True)
    return table, table.keys


def _clear_rows(what: Unopened) -> tuple[es.Table, es.PublicKeys]:
    """Rows in the clear for an encrypted model: encrypted here, with the public keys, as the
    owner's schema says.
    """
    check_rows(Path(what.rows))
    if what.keys is None:
        raise es.ArgumentError(
            f"{what.model} is still encrypted, and rows in the clear bring no keys: its owner "
            "opens it with decrypt -o; or it "
            "predicts as it is, with the public keys, --keys, and the owner's schema, --schema",
            code="still-encrypted",
        )
    if what.schema is None:
        raise es.ArgumentError(
            f"{what.model} is encrypted and knows its columns by number only: give the owner's "
            "schema, --schema, or let the "
            f"owner encrypt {what.rows} and give the folder of that table",
            code="no-schema",
        )
    public, schema = load_public_keys(what.keys), load_schema(what.schema)
    try:
        return complete_rows_to_predict(
            schema, read_frame(what.rows, schema, what.csv, say_format(what.rows))
        ), public
    except es.SchemaError as error:
        raise es.SchemaError(f"{what.rows}: {error}") from error


def _facts(votes: Any) -> dict[str, Any]:
    return {
        "encrypted": True,
        "model": votes.question.name,
        "params": votes.question.parameters(),
        "output": votes.output,
        "rows": votes.n_rows,
        "ciphertexts": len(votes.ciphertexts.parts),
        "key_id": votes.keys.key_id,
    }


def _show(facts: dict[str, Any]) -> None:
    console, file = Console(), printable(facts["file"])
    work = (
        f" {plural(facts['rows'], 'row')} by {question_text(facts['model'], facts['params'])}, "
        "opening nothing, in "
    )
    console.print(Text.assemble(("Predicted", "bold"), work, time_text(facts["seconds"])))
    content = (
        f"{size_text(facts['bytes'])}, {plural(facts['ciphertexts'], 'ciphertext')}, for the owner"
    )
    opening = command_line(
        "decrypt",
        facts["file"],
        "--key",
        "secret.key",
        "--schema",
        "schema.json",
        "-o",
        "votes.csv",
    )
    console.print(
        fact_table(
            [
                ("votes", Text.assemble((file, "bold green"), f"  {content}")),
                (
                    "key",
                    Text.assemble((facts["key_id"], "cyan"), ", whose owner alone can open it"),
                ),
                ("owner", opening),
            ]
        )
    )


# -- opened
# ------------------------------------------------------------------------------------------------


def votes_frame(votes: Any) -> pd.DataFrame:
    """Opened votes with their names: the predicted class, then probabilities or scores, then the
    integers they are made of.
    """
    frame: pd.DataFrame = votes.frame()
    if isinstance(frame.index, pd.RangeIndex):
        frame.index += 1  # rows are counted from 1, as those of a file
    return frame


def predicted_counts(votes: Any) -> dict[str, int]:
    """How many rows each class was predicted for."""
    return {str(label): int((votes.predict() == label).sum()) for label in votes.scores.columns}


def counts_text(counts: Mapping[str, int]) -> str:
    """The same for people."""
    return ", ".join(f"{label_text(label)} {count:,}" for label, count in counts.items())


def votes_view(votes: Any, width: int, caveat: str) -> RenderableType:
    """Opened votes on a screen of this width."""
    rows: list[tuple[str, RenderableType]] = [("predicted", counts_text(predicted_counts(votes)))]
    if caveat:
        rows.append(("P(...)", Text(f"{caveat} (see calibrate)", style="dim")))
    return Group(fact_table(rows), Text(), frame_view(votes_frame(votes), width))
