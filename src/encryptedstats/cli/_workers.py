"""``--worker URL``: what a command computes here is computed by a worker that ``serve`` runs
elsewhere; nothing else changes.

The table is sent, or what of it is not there yet; the answer is waited for, fetched, checked and
read as if it had been made here. The same command again finds what it began.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer

import encryptedstats as es
from encryptedstats.tables.questions.summaries import Asked

_HERE: Final = {
    "checkpoint": None,
    "scheduler": None,
    "queue": None,
    "workers": None,
    "device": "auto",
}
WorkerUrl = Annotated[
    str | None,
    typer.Option(
        "--worker",
        metavar="URL",
        help="Let a worker do it that serve runs there: the encrypted table is sent, and the "
        "encrypted result fetched. Its token "
        "is in the file that ENCRYPTEDSTATS_TOKEN_FILE names (mode 0600), or in "
        "ENCRYPTEDSTATS_TOKEN; ENCRYPTEDSTATS_PIN pins its "
        "certificate.",
        show_default=False,
    ),
]


def is_for_worker(given: Mapping[str, Any]) -> bool:
    """Whether a worker is to do it, refusing options that say how it is done here."""
    if given["worker"] is None:
        return False
    for name, usual in _HERE.items():
        if given.get(name, usual) != usual:
            raise typer.BadParameter(
                f"--{name} says how it is done here, and --worker does it elsewhere: give one of "
                "them"
            )
    return True


@dataclass(frozen=True)
class RemoteTable(Asked):
    """An encrypted table that a worker is asked about: it is sent when the first question comes.

    ``sealed`` is the same table here, which brings the keys that answers are read with.
    """

    url: str
    place: str
    sealed: es.EncryptedTable
    keys: Path | None
    out: Path
    force: bool
    by_others: bool = False

    def ask(self, question: es.Question, **_: Any) -> Any:
        """The answer to a question, read from the file that it was fetched to."""
        return self._done(
            lambda worker, table, **how: worker.ask(
                question, table, self.out, by_others=self.by_others, **how
            )
        )

    def fit(self, model: es.Question, folds: bool) -> Any:
        """The model, or every fold of it, still encrypted."""
        return self._done(
            lambda worker, table, **how: worker.fit(
                model, table, self.out, folds=folds, by_others=self.by_others, **how
            )
        )

    def predicted_by(self, model: str, output: str | None) -> Any:
        """What an encrypted model says of every row."""
        return self._done(
            lambda worker, table, **how: worker.predict(
                model, table, self.out, output=output, **how
            )
        )

    def drawn_for(self, forest: Path) -> Any:
        """An encrypted forest with its stochastic fraction."""
        return self._done(lambda worker, table, **how: worker.draw(forest, table, self.out, **how))

    def combined(self, answers: list[Path], forget: list[Path]) -> Any:
        """Encrypted answers, added up."""
        return self._done(
            lambda worker, table, **how: worker.combine(
                answers, table, self.out, forget=forget, **how
            )
        )

    def _position(self, variable: str | int) -> int:
        return self.sealed._position(variable)

    def _done(self, ask: Callable[..., Any]) -> Any:
        with es.connect(self.url) as worker:
            return ask(worker, worker.upload(self.place, keys=self.keys), overwrite=self.force)
