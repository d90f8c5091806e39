"""``verify``: a worker's result computed anew from the encrypted rows, by anybody who has these."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

import encryptedstats as es
from encryptedstats.cli._console import fact_table, plural, print_json, printable, time_text
from encryptedstats.cli._files import Reads
from encryptedstats.cli._inputs import expect, load_table
from encryptedstats.cli._options import AsJson, Device, TableKeys, TableUrl, Workers, file_argument
from encryptedstats.cli._questions import question_text
from encryptedstats.tables.answers.answer import PREDICTION_KIND
from encryptedstats.tables.questions.question import FOLDS_KIND, MODEL_KIND, RESULT_KIND


def verify(
    answer: Annotated[
        Path, file_argument("ANSWER", "An encrypted result or model, as the worker sent it.")
    ],
    table: TableUrl,
    rows: Annotated[
        str | None,
        Reads,
        typer.Option(
            metavar="TABLE",
            help="Of a prediction: the encrypted rows that it is for. TABLE is what its model, "
            "which stayed encrypted, is of.",
            show_default=False,
        ),
    ] = None,
    keys: TableKeys = None,
    workers: Workers = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Check a worker: compute its result anew, and compare every ciphertext.

    No secret key is needed, only the encrypted table. What is computed is what the result says it is, which is shown: compare
    it with what was asked. It takes as long as the worker took. Results of a service or a cluster are computed in the same
    shards again. Results over rows that others encrypted for one owner hold noise that is drawn anew each time: these cannot
    be verified, nor results that were added up from others, nor predictions of an opened model.

    Examples:
      encryptedstats verify forest.enc patients.enc
      encryptedstats verify votes.enc patients.enc --rows new.enc
    """
    expect(answer, (RESULT_KIND, MODEL_KIND, FOLDS_KIND, PREDICTION_KIND), "an encrypted result")
    sealed = load_table(table, keys, by_others=True)
    started = time.perf_counter()
    asked = None if rows is None else load_table(rows, keys, by_others=True)
    found = es.verify(answer, sealed, rows=asked, workers=workers, device=device)
    facts = {
        "file": str(answer),
        "question": found.question.name,
        "params": found.question.parameters(),
        "rows": found.n_rows,
        "blocks": len(found.block_ids),
        "ciphertexts": len(found.ciphertexts.parts),
        "key_id": sealed.key_id,
        "verified": True,
        "seconds": time.perf_counter() - started,
    }
    if as_json:
        print_json(facts)
    else:
        _show(facts)


def _show(facts: dict[str, Any]) -> None:
    console = Console()
    what = f" {printable(facts['file'])}: the same {plural(facts['ciphertexts'], 'ciphertext')}"
    console.print(
        Text.assemble(
            ("Verified", "bold green"), what, f", computed anew in {time_text(facts['seconds'])}"
        )
    )
    rows = f"{plural(facts['rows'], 'row')} in {plural(facts['blocks'], 'block')}"
    console.print(
        fact_table(
            [("question", question_text(facts["question"], facts["params"])), ("over", rows)]
        )
    )
