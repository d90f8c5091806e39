"""Tasks that the page gives to a process of its own: encrypting, predicting, scoring.

A task is a JSON document with all that it needs; its ``run`` calls the library. A result of a
worker is opened in that process, so that no opened model is ever stored for it.
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
from encryptedstats.storage import container
from encryptedstats.storage.files import PRIVATE, write_atomic
from encryptedstats.tables.blocks import block_id_of
from encryptedstats.tables.questions.question import question_class

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
    replace_table: bool = False

    def run(self, report: Report) -> dict[str, Any]:
        """Encrypt, and return the numbers of rows in the table and of those left out."""
        with _report_blocks(self.out / "blocks", report):
            table = self.owner().encrypt_file(
                self.rows,
                self.schema_of_rows(),
                self.out,
                overwrite=self.replace_table,
                progress=False,
            )
        return {"rows": table.n_rows, "rows_left_out": table.n_dropped}


class AskTask(BaseModel):
    """Compute the encrypted answers to questions on this machine, each with its parameters and the
    file of its answer. It is given no key.
    """

    label: ClassVar[str] = "Computing on this machine"
    unit: ClassVar[str] = "questions"

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["ask"] = "ask"
    table: Path
    questions: list[tuple[str, dict[str, Any], Path]]

    def run(self, report: Report) -> dict[str, Any]:
        """Compute, and store the answers for their user only."""
        table = es.load(self.table)
        for done, (name, parameters, out) in enumerate(self.questions, 1):
            answer = table.ask(question_class(name)._from_parameters(parameters))
            write_atomic(out, [container.to_bytes(answer.to_container())], mode=PRIVATE)
            report(done)
        return {}


class _ModelTask(_Task):
    result: Path
    rows: Path

    def model(self) -> Any:
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
        check_classifies(model, "this result")
        table, _unlabelled = read_labelled_rows(model._known_private(), self.rows)
        predictions = Predictions.of(model, table)
        found = evaluate_predictions(predictions)
        if found.positive is not None:
            self._draw(model, predictions, found.positive)
        return {**found.to_dict(), "seen": was_fitted_to(model, table)}

    def _draw(self, model: Any, predictions: Any, positive: Any) -> None:
        from encryptedstats.plots import draw_predictions, style, with_dark_colours

        content = io.BytesIO()
        with style():
            figure = draw_predictions({model.name: predictions}, positive)
            figure.savefig(content, format="svg", transparent=True)
        write_atomic(self.curves, [with_dark_colours(content.getvalue())], mode=PRIVATE)


Task = EncryptTask | AskTask | PredictTask | EvaluateTask
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
