"""The option ``--on``: where questions are computed, and how."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from encryptedstats.cli._console import printable
from encryptedstats.cli._exits import INTERRUPTED
from encryptedstats.storage.objects import is_url
from encryptedstats.tables.questions.words import parse_numbers
from encryptedstats.words import did_you_mean

if TYPE_CHECKING:
    import encryptedstats as es

LOCAL: Final = "local"
_SHARDS: Final = {"rows_per_shard": int, "trees_per_task": int}
_OPTIONS: Final[Mapping[str, Mapping[str, Any]]] = {
    "local": {"workers": int, "device": str, "checkpoint": Path, "price": float},
    "dask": {**_SHARDS, "workers": int, "device": str},
    "queue": _SHARDS,
    "https": _SHARDS,
    "http": _SHARDS,
}


@dataclass(frozen=True)
class Place:
    """Where something is computed, and the options of the computation."""

    kind: str
    address: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Place:
        """Read ``--on``: an address, then ``NAME=VALUE`` words."""
        words = shlex.split(text)
        address = LOCAL
        if words and ("://" in words[0] or "=" not in words[0]):
            address = words.pop(0)
        kind, _, rest = address.partition("://")
        if kind not in _OPTIONS:
            raise typer.BadParameter(
                f"--on {text}: give local, dask://HOST:PORT, queue://URL or https://HOST"
                f"{did_you_mean(kind, _OPTIONS)}"
            )
        if kind != LOCAL and not rest:
            raise typer.BadParameter(f"--on {text}: give an address after {kind}://")
        shown = [shlex.quote(word) for word in words]
        options = parse_numbers(shown, _OPTIONS[kind], f"--on {address}")
        if kind in (LOCAL, "queue"):
            return cls(kind, rest, options)
        return cls("dask" if kind == "dask" else "service", address, options)

    @property
    def is_local(self) -> bool:
        """Return whether this process computes."""
        return self.kind == LOCAL

    @property
    def is_cluster(self) -> bool:
        """Return whether many machines compute, and results may be URLs."""
        return self.kind in ("dask", "queue")

    def check_output(self, out: str) -> None:
        """Refuse a URL where nobody writes to one."""
        if is_url(out) and not self.is_cluster:
            raise typer.BadParameter(
                f"-o {out}: only --on dask:// and --on queue:// write to a URL: give a file"
            )

    def refuse(self, *names: str, why: str) -> None:
        """Refuse options without a meaning for the command."""
        for name in names:
            if name in self.options:
                raise typer.BadParameter(f"--on {name}={self.options[name]}: {why}")

    def local_options(self) -> dict[str, Any]:
        """Return the options of a computation in this process; refuse other places."""
        if not self.is_local:
            raise typer.BadParameter(
                "--on: this command computes on this machine only: leave --on out, or give local"
            )
        self.refuse("price", why="a price is for plan")
        return dict(self.options)

    def only(self, *kinds: str) -> None:
        """Refuse places of other kinds."""
        if self.kind not in kinds:
            known = {"service": "https://HOST", "dask": "dask://HOST:PORT", "queue": "queue://URL"}
            listed = " or ".join(known.get(one, one) for one in kinds)
            raise typer.BadParameter(f"--on: this command takes {listed}")

    # -- what is done there
    # --------------------------------------------------------------------------------------------

    def ask(self, asked: Sequence[es.Question], work: Request) -> Iterator[Any]:
        """Save the answers to some questions, and yield them; of a queue, yield jobs."""
        options = {"folds": work.folds, "by_others": work.by_others and not self.is_local}
        if self.is_local:
            self.local_options()  # which refuses a price
        with self.connect(work) as (worker, table), keeping(self.options.get("checkpoint")):
            yield from worker.ask(list(asked), table, list(work.outs), **options, **self._how(work))

    def predict(self, model: str, output: str | None, work: Request) -> Any:
        """Save the encrypted votes of a model for a table, and return them; of a queue, a job."""
        self.refuse("trees_per_task", why="a prediction is cut by rows")
        with self.connect(work) as (worker, table):
            return worker.predict(model, table, work.outs[0], output=output, **self._how(work))

    def draw(self, forest: Path, work: Request) -> Any:
        """Save a forest with its stochastic fraction, drawn elsewhere, and return it."""
        self.only("service", "dask")
        with self.connect(work) as (worker, table):
            return worker.draw(forest, table, work.outs[0], overwrite=work.force)

    def combine(self, answers: Sequence[Path], forget: Sequence[Path], work: Request) -> Any:
        """Save the sum of encrypted answers, added up elsewhere, and return it."""
        self.only("service", "dask")
        with self.connect(work) as (worker, table):
            return worker.combine(answers, table, work.outs[0], forget=forget, overwrite=work.force)

    def _how(self, work: Request) -> dict[str, Any]:
        return {"overwrite": work.force, "wait": self.kind != "queue", **self.options}

    @contextmanager
    def connect(self, work: Request) -> Iterator[tuple[es.Worker, Any]]:
        """Connect to a worker, and yield it with the table that it computes on."""
        import encryptedstats as es

        place = {LOCAL: LOCAL, "queue": f"queue://{self.address}"}.get(self.kind, self.address)
        sealed = work.load()  # refuses rows of contributors without by_others
        with es.connect(place) as worker:
            if self.is_local:
                yield worker, worker.upload(sealed)
            else:
                yield worker, worker.upload(work.table, keys=work.keys)


@dataclass(frozen=True)
class Request:
    """A stored table to compute on, and the files of the results."""

    table: str
    outs: Sequence[str]
    keys: Path | None = None
    force: bool = False
    by_others: bool = False
    folds: bool = False

    def load(self) -> es.EncryptedTable:
        """Return the table, with the keys to compute with."""
        from encryptedstats.cli._inputs import load_table

        return load_table(self.table, self.keys, self.by_others)


@contextmanager
def keeping(checkpoint: Path | None) -> Iterator[None]:
    """On an interruption, say that the computation can be resumed."""
    from encryptedstats.circuits.slices import CHECKPOINT

    try:
        yield
    except KeyboardInterrupt:
        if checkpoint is None or not (checkpoint / CHECKPOINT).exists():
            raise
        text = f"what was computed is kept in {checkpoint}; run the same command to resume"
        typer.echo(printable(f"interrupted: {text}"), err=True)
        raise typer.Exit(INTERRUPTED) from None
