"""Tasks that the page gives to a process of its own: encrypting, predicting, scoring.

A task is a JSON document with all that it needs; its ``run`` calls the library. A result of a
worker is opened in that process, so that no decrypted model is ever stored for it.
"""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

import encryptedstats as es
from encryptedstats.procedures.folder import read_run
from encryptedstats.procedures.learned_trees import LearnedTrees
from encryptedstats.procedures.procedure import OpenedRound, procedure_class
from encryptedstats.storage import container
from encryptedstats.storage.files import PRIVATE, write_atomic
from encryptedstats.studies.identifiers import read_identified
from encryptedstats.tables import Table
from encryptedstats.tables.blocks import block_id_of
from encryptedstats.tables.questions.question import question_class
from encryptedstats.tables.questions.summaries import scale

#: Called with what is done so far.
Report = Callable[[float], None]
_SECONDS_BETWEEN_REPORTS: Final = 0.5


class _Task(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    key: Path
    passphrase: str = Field(repr=False)
    schema_file: Path

    def owner(self) -> es.Owner:
        return es.Owner.load(self.key, self.passphrase)

    def schema_of_rows(self) -> es.Schema:
        return es.Schema.load(self.schema_file)


class EncryptTask(_Task):
    """Encrypt a file of rows into a table; running it again goes on where it ended."""

    label: ClassVar[str] = "Encrypting"
    unit: ClassVar[str] = "blocks"
    kind: Literal["encrypt"] = "encrypt"
    rows: Path
    out: Path
    encodings: tuple[str, ...] = ("onehot",)
    replace_table: bool = False
    spot_check: bool = False

    def run(self, report: Report) -> dict[str, Any]:
        """Encrypt, and return the numbers of rows in the table and of those left out."""
        with _report_blocks(self.out / "blocks", report):
            table = self.owner().encrypt_file(
                self.rows,
                self.schema_of_rows(),
                self.out,
                encodings=self.encodings,
                overwrite=self.replace_table,
                progress=False,
                spot_check=self.spot_check,
            )
        return {"rows": table.n_rows, "rows_left_out": table.n_dropped}


class AskTask(BaseModel):
    """Have the encrypted answers to questions computed, each with its parameters and the file of
    its answer: on this machine, or by a Dask cluster that this process directs. It is given no key.
    """

    label: ClassVar[str] = "Computing"
    unit: ClassVar[str] = "questions"

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["ask"] = "ask"
    place: str = "local"
    table: Path
    questions: list[tuple[str, dict[str, Any], Path]]

    def run(self, report: Report) -> dict[str, Any]:
        """Compute, and store the answers for their user only."""
        with es.connect(self.place) as worker:
            table = worker.upload(self.table, progress=False)
            for done, (name, parameters, out) in enumerate(self.questions, 1):
                question = question_class(name)._from_parameters(parameters)
                answer = worker.ask(question, table, progress=False)
                write_atomic(out, [container.to_bytes(answer.to_container())], mode=PRIVATE)
                report(done)
        return {}


class RoundsTask(_Task):
    """Ask in rounds, and open each before the next; running it again goes on where it ended."""

    label: ClassVar[str] = "Asking in rounds"
    unit: ClassVar[str] = "rounds"
    kind: Literal["rounds"] = "rounds"
    place: str = "local"
    token: str = Field(default="", repr=False)
    pin: str = ""
    table: Path
    procedure: str
    parameters: dict[str, Any]
    folder: Path
    ledger: Path
    check: bool = False

    def run(self, report: Report) -> dict[str, Any]:
        """Take the rounds that are left, and return how many these were."""
        owner, schema = self.owner(), self.schema_of_rows()
        asked = procedure_class(self.procedure)(**self.parameters)
        taken: list[int] = []

        def tell(done: OpenedRound) -> None:
            taken.append(done.number)
            report(done.number)

        with es.connect(self.place, self.token or None, pin=self.pin or None) as worker:
            asked.run(
                worker.upload(self.table, progress=False),
                owner,
                at=worker,
                schema=schema,
                folder=self.folder,
                ledger=self.ledger,
                verify="spot" if self.check else None,
                progress=tell,
            )
        return {"rounds": len(taken)}


class StudyTask(BaseModel):
    """Do what is due for a party of a study; running it again goes on where it ended."""

    label: ClassVar[str] = "Working for the study"

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["study"] = "study"
    url: str
    identity: Path
    passphrase: str = Field(repr=False)
    action: Literal["link", "keygen", "add", "share", "fit"]
    rows: Path | None = None
    new: Path | None = None
    on: list[str] = []
    duplicates: str = "refuse"
    send: bool = True
    key: Path | None = None

    def run(self, _: Report) -> dict[str, Any]:
        """Do it, and return what this party knows of its people."""
        study = es.Study(self.url, self.identity, passphrase=self.passphrase)
        found = getattr(self, f"_{self.action}")(study)
        return {"report": str(found) if self.action == "link" and found is not None else ""}

    def _link(self, study: es.Study) -> Any:
        rows = None if self.rows is None else read_identified(self.rows, self.on)
        return study.link(rows, on=self.on, duplicates=self.duplicates, send=self.send)

    def _keygen(self, study: es.Study) -> None:
        study.keygen(self.key, None if self.key is None else self.passphrase)

    def _add(self, study: es.Study) -> None:
        assert self.rows is not None
        if study.document.procedures:
            study.run_rounds(self.rows)  # until the last round, while the other sites do as well
            return
        is_linked = study.document.linkage is not None
        by = study.identifier_columns() if is_linked else []
        study.add(read_identified(self.rows, by) if is_linked else self.rows, new=self.new)

    def _share(self, study: es.Study) -> None:
        study.share()

    def _fit(self, study: es.Study) -> None:
        study.fit()


class _ModelTask(_Task):
    """A task with a model: of an encrypted result, or of the rounds in a folder, which are open."""

    result: Path | None = None
    run_folder: Path | None = None
    rows: Path

    def model(self) -> Any:
        if self.run_folder is not None:
            return read_run(self.run_folder, self.schema_of_rows()).read()
        assert self.result is not None
        owner = self.owner()
        answer = es.load(self.result, owner.public_keys())
        return owner.open(answer, self.schema_of_rows())


class PredictTask(_ModelTask):
    """Predict the rows of a file into a CSV that only its user can read."""

    kind: Literal["predict"] = "predict"
    out: Path

    def run(self, _: Report) -> dict[str, Any]:
        """Predict, and return the summary of what was predicted."""
        from encryptedstats.models.clear_rows import FilePredictions, check_predicts

        model = self.model()
        check_predicts(model)
        found = FilePredictions(model)
        write_atomic(self.out, (part.encode() for part in found.csv(self.rows)), mode=PRIVATE)
        return found.facts()


class EvaluateTask(_ModelTask):
    """Score a model on rows of known classes; of two classes also draw its curves."""

    kind: Literal["evaluate"] = "evaluate"
    curves: Path

    def run(self, _: Report) -> dict[str, Any]:
        """Score, and return the scores and whether the model was fitted to these rows."""
        from encryptedstats.metrics import Predictions, evaluate_predictions
        from encryptedstats.models.calibration import was_fitted_to
        from encryptedstats.models.clear_rows import check_classifies, read_labelled_rows

        model = self.model()
        is_learned = isinstance(model, LearnedTrees)
        if not is_learned:
            check_classifies(model, "this result")
        table, _unlabelled = read_labelled_rows(model._get_private_schema(), self.rows)
        seen = model.was_fitted_to(table) if is_learned else was_fitted_to(model, table)
        if not hasattr(model, "classes_"):
            return {"scores": _scores_of_numbers(model, table), "seen": seen}
        predictions = Predictions.of(model, table)
        found = evaluate_predictions(predictions)
        if found.positive is not None:
            self._draw(model, predictions, found.positive)
        return {**found.to_dict(), "seen": seen}

    def _draw(self, model: Any, predictions: Any, positive: Any) -> None:
        from encryptedstats.plots import draw_predictions, style, with_dark_colours

        content = io.BytesIO()
        with style():
            figure = draw_predictions({model.name: predictions}, positive)
            figure.savefig(content, format="svg", transparent=True)
        write_atomic(self.curves, [with_dark_colours(content.getvalue())], mode=PRIVATE)


def _scores_of_numbers(model: LearnedTrees, table: Table) -> dict[str, Any]:
    """Return the scores of predicted numbers, in the units of the target."""
    from encryptedstats.metrics import estimates_to_dict, score_numbers

    assert table.target_values is not None
    wanted = table.target_values / scale(table.schema, -1)
    return estimates_to_dict(score_numbers(wanted, model.predict(table)))


Task = EncryptTask | AskTask | RoundsTask | StudyTask | PredictTask | EvaluateTask
TASKS: Final[TypeAdapter[Task]] = TypeAdapter(Annotated[Task, Field(discriminator="kind")])


@contextmanager
def _report_blocks(folder: Path, report: Report) -> Iterator[None]:
    """Report the number of finished blocks in a folder, twice a second."""
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(_SECONDS_BETWEEN_REPORTS):
            names = os.listdir(folder) if folder.is_dir() else []
            report(sum(block_id_of(f"blocks/{name}") is not None for name in names))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        is_over.set()
        watcher.join()
