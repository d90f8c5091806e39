"""``fit`` and ``combine``: models that a worker makes and cannot read."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce
from operator import add, sub
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console, RenderableType
from rich.text import Text

from encryptedstats.circuits.slices import CHECKPOINT
from encryptedstats.cli._clusters import (
    MANY,
    RESULT_URL,
    FitQueue,
    RowsPerShard,
    Scheduler,
    TreesPerTask,
    fit_on_cluster,
    is_for_cluster,
)
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
from encryptedstats.cli._exits import INTERRUPTED
from encryptedstats.cli._files import Writes, save
from encryptedstats.cli._help import more_options
from encryptedstats.cli._inputs import expect, load_public_keys, load_table
from encryptedstats.cli._models import (
    Model,
    make_models,
    with_model_options,
)
from encryptedstats.cli._options import (
    AsJson,
    ByOthers,
    Device,
    Force,
    TableKeys,
    TableUrl,
    Workers,
    file_argument,
    file_option,
)
from encryptedstats.cli._questions import question_text
from encryptedstats.cli._workers import RemoteTable, WorkerUrl, is_for_worker
from encryptedstats.errors import ArgumentError
from encryptedstats.kinds import read_file
from encryptedstats.storage import container
from encryptedstats.tables.questions.question import MODEL_KIND, OPEN_MODEL_KIND
from encryptedstats.tables.questions.row_answers import DRAWN

_LOSS: Final = "what it holds would have to be fitted again"
_NONE: Final[list[Path]] = []


@with_model_options
def fit(
    ctx: typer.Context,
    table: TableUrl,
    out: Annotated[str, Writes(_LOSS, left_to=MANY), RESULT_URL],
    model: Model,
    folds: Annotated[
        bool,
        typer.Option("--folds", help="Fit every fold of a table that was encrypted with --folds."),
    ] = False,
    keys: TableKeys = None,
    by_others: ByOthers = False,
    workers: Workers = None,
    device: Device = "auto",
    checkpoint: Annotated[
        Path | None,
        file_option(
            metavar="FOLDER",
            help="Keep what is computed here, so that the same command goes on from it after an "
            "interruption.",
        ),
    ] = None,
    scheduler: Scheduler = None,
    queue: FitQueue = None,
    rows_per_shard: RowsPerShard = None,
    trees_per_task: TreesPerTask = None,
    worker: WorkerUrl = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Fit a model to a table; it stays encrypted, and only the owner can open it.

    Examples:
      encryptedstats fit patients.enc -o forest.enc --model forest --trees 100 --depth 3 --seed 7
      encryptedstats fit patients.enc -o bayes.enc --model snb

      # a long fit that goes on where it was after an interruption
      encryptedstats fit patients.enc -o forest.enc --model forest --checkpoint forest.part

      # every fold of a table that was encrypted with --folds; the owner scores them with evaluate
      encryptedstats fit patients.enc -o folds.enc --model mnb --folds

      # many machines: by a Dask scheduler, or by workers that need none
      encryptedstats fit s3://bucket/patients -o s3://bucket/forest --model forest --scheduler tcp://10.0.0.1:8786
      encryptedstats fit s3://bucket/patients -o s3://bucket/forest --model forest --queue s3://bucket/work

      # a worker somewhere else, which gets the encrypted table
      encryptedstats fit patients.enc -o forest.enc --model forest --worker https://worker.example
    """
    away = is_for_worker(ctx.params)
    many = is_for_cluster(ctx.params)
    if many and checkpoint is not None:
        raise typer.BadParameter(
            "a cluster goes on from its queue by itself", param_hint="--checkpoint"
        )
    file = Path(out)
    (unfitted,) = make_models([model], more_options(ctx))
    started = time.perf_counter()
    if many:
        with spelled_as_options():
            made = fit_on_cluster(unfitted, table, out, ctx.params)
        if made is None:
            return
        fitted, size = made
    else:
        sealed = load_table(table, keys, by_others)
        started = time.perf_counter()
        with _keeping(checkpoint), spelled_as_options():
            if worker is not None and away:
                fitted = RemoteTable(worker, table, sealed, keys, file, force, by_others).fit(
                    unfitted, folds
                )
            else:
                fit_it = unfitted.fit_folds if folds else unfitted.fit
                fitted = fit_it(sealed, workers=workers, device=device, checkpoint=checkpoint)
    seconds = time.perf_counter() - started
    if not many:
        if not away:
            save(fitted, file, force=force)
        size = file.stat().st_size
    facts = _folds_facts(fitted) if folds else _facts(fitted)
    facts = {"file": out, "bytes": size, **facts, "seconds": seconds}
    if as_json:
        print_json(facts)
    else:
        _show("Fitted", facts, out)


@contextmanager
def _keeping(checkpoint: Path | None) -> Iterator[None]:
    """Say what is left of a fit that was interrupted, and how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        if checkpoint is None or not (checkpoint / CHECKPOINT).exists():
            raise
        kept = (
            f"what was computed is kept in {checkpoint}; run the same command again to go on from "
            "there"
        )
        typer.echo(printable(f"interrupted: {kept}"), err=True)
        raise typer.Exit(INTERRUPTED) from None


def combine(
    out: Annotated[Path, Writes(_LOSS), file_argument("OUT", "File for the model of all rows.")],
    models: Annotated[
        list[Path],
        file_argument(
            "MODEL...",
            "Models of different rows that were fitted with the same options, all encrypted or "
            "all opened.",
        ),
    ],
    forget: Annotated[
        list[Path],
        file_option(
            metavar="MODEL",
            help="Take the rows of this model out again; may be given several times.",
        ),
    ] = _NONE,
    keys: Annotated[
        Path | None,
        file_option(
            help="Public keys of encrypted models, or the folder of the table that they lie in."
        ),
    ] = None,
    worker: WorkerUrl = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Add models of different rows up, or forget some rows, encrypted or opened.

    Examples:
      encryptedstats combine all.enc north.enc south.enc --keys north-rows.enc

      # somebody withdrew: their rows had a table, and so a model, of their own
      encryptedstats combine less.enc all.enc --forget south.enc --keys north-rows.enc
    """
    if len(models) + len(forget) < 2:
        raise typer.BadParameter("two models at least are needed, or one and --forget another")
    everything = _load_alike([*models, *forget], keys)
    started = time.perf_counter()
    if worker is not None:
        joined = _combined_elsewhere(worker, keys, models, forget, out, force)
    else:
        with progress("adding up"):
            joined = reduce(sub, everything[len(models) :], reduce(add, everything[: len(models)]))
        save(joined, out, force=force)
    seconds = time.perf_counter() - started
    facts = {"file": str(out), "bytes": out.stat().st_size, **_facts(joined), "seconds": seconds}
    if as_json:
        print_json(facts)
    else:
        _show("Combined", facts, out)


def _combined_elsewhere(
    worker: str, keys: Path | None, models: list[Path], forget: list[Path], out: Path, force: bool
) -> Any:
    if keys is None or not keys.is_dir():
        raise typer.BadParameter(
            "a worker takes the keys from a table: give its folder", param_hint="--keys"
        )
    sealed = load_table(str(keys), None, by_others=True)
    return RemoteTable(worker, str(keys), sealed, None, out, force).combined(models, forget)


def _load_alike(paths: list[Path], keys: Path | None) -> list[Any]:
    """The models of some files, which are all encrypted or all open, and of one class."""
    for path in paths:
        expect(path, (MODEL_KIND, OPEN_MODEL_KIND), "a fitted model")
    files = [container.read(path) for path in paths]
    for path, file in zip(paths, files, strict=True):
        if file.kind != files[0].kind:
            raise ArgumentError(
                f"{paths[0]} is an {files[0].kind} and {path} an {file.kind}: models are combined "
                "encrypted or opened",
                code="mixed-encryption",
            )
    public = None
    if files[0].kind == MODEL_KIND:
        if keys is None:
            raise ArgumentError(
                "these models are encrypted: give --keys, the public keys, or the folder of a "
                "table, where they lie too",
                code="no-public-keys",
            )
        public = load_public_keys(keys)
    models = []
    for path, file in zip(paths, files, strict=True):
        models.append(read_file(file, public))
        if type(models[-1]) is not type(models[0]):
            first, other = (type(model).__name__ for model in (models[0], models[-1]))
            raise ArgumentError(
                f"{paths[0]} holds a {first} and {path} a {other}: only models of one kind are "
                "combined",
                code="mixed-models",
            )
    return models


def _facts(model: Any) -> dict[str, Any]:
    """What may be told of a fitted model, ready for JSON."""
    return {
        "model": type(model).__name__,
        "params": model.parameters(),
        "rows": model.n_rows_,
        "blocks": len(model.block_ids_),
        "encrypted": model.is_encrypted,
        "totals": len(model.totals_),
        "drawn": len(model.beside_.get(DRAWN, ())),
        **(_sealed_facts(model.totals_) if model.is_encrypted else {}),
    }


def _folds_facts(folds: Any) -> dict[str, Any]:
    return {
        "model": folds.question.question.name,
        "params": folds.question.question.parameters(),
        "folds": folds.question.n_folds,
        "rows": folds.n_rows,
        "blocks": len(folds.block_ids),
        "encrypted": True,
        "totals": len(folds.ciphertexts),
        **_sealed_facts(folds.ciphertexts),
    }


def _sealed_facts(totals: Any) -> dict[str, Any]:
    return {"ciphertexts": len(totals.parts), "key_id": totals.keys.key_id}


def _show(verb: str, facts: dict[str, Any], out: Path | str) -> None:
    console = Console()
    what = question_text(facts["model"], facts["params"])
    of_folds = f"{facts['folds']} folds of " if "folds" in facts else ""
    work = (
        f" {of_folds}{what} over {plural(facts['rows'], 'row')}, in {time_text(facts['seconds'])}"
    )
    console.print(Text.assemble((verb, "bold"), work))
    size, file = size_text(facts["bytes"]), printable(str(out))
    rows: list[tuple[str, RenderableType]]
    if not facts["encrypted"]:
        rows = [
            (
                "model",
                Text.assemble((file, "bold red"), f"  {size}, mode 0600: it is not encrypted"),
            )
        ]
        console.print(fact_table(rows))
        return
    content = f"{plural(facts['totals'], 'total')} in {plural(facts['ciphertexts'], 'ciphertext')}"
    if facts.get("drawn"):
        content += f", {plural(facts['drawn'], 'fraction')} drawn"
    rows = [
        ("model", Text.assemble((file, "bold green"), f"  {size}, {content}, for the owner")),
        ("key", Text.assemble((facts["key_id"], "cyan"), ", whose owner alone can open it")),
    ]
    owner = ("--key", "secret.key", "--schema", "schema.json")
    if "folds" in facts:
        rows.append(("owner", command_line("evaluate", out, "patients.csv", *owner)))
    else:
        rows.append(("owner", command_line("decrypt", out, *owner, "-o", "model.opened")))
    console.print(fact_table(rows))
