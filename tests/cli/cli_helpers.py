"""What the tests of the command line share beside their fixtures."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from typer import testing
from typer.testing import CliRunner

import encryptedstats as es
from encryptedstats.cli._app import GROUPS, VERBS, app
from encryptedstats.cli._help import load

Run = Callable[..., Any]
#: All commands as they are typed.
PATHS = [*VERBS, *(f"{group} {name}" for group, (_, own) in GROUPS.items() for name in own)]
# What a person at a command line cannot type.
PYTHON = (
    "es.plan",
    "es.load",
    "es.Owner",
    "owner.",
    "overwrite=",
    "missing='",
    "=True",
    "=False",
    "with_kind",
    "with_bins",
    "with_missing_bin",
    "with_unknown",
    "with_classes",
    "levels=[",
    "rare=",
    "accept_others",
    "infer(",
)

# Runners of older versions mix stdout and stderr unless told not to; later ones have no such
# option. They also build all commands anew for each call, which takes longer than most calls do:
# here they are built once.
testing._get_command = cache(testing._get_command)
_RUNNER = CliRunner(
    **({"mix_stderr": False} if "mix_stderr" in signature(CliRunner).parameters else {})
)


def invoke(*arguments: object, **options: Any) -> Any:
    """Run the program in this process, on a screen so wide that Rich folds nothing the tests look
    for.
    """
    words = [str(a) for a in arguments]
    result = _RUNNER.invoke(app, words, env={"COLUMNS": "200"}, **options)
    if "--json" in words and result.exit_code == 0:
        check_json(words, result.stdout)
    return result


def check_json(words: list[str], stdout: str) -> None:
    """Every document that is printed has the keys that the help of its command lists."""
    words = [word for word in words if not word.startswith("-")]
    path = words[0] if words[0] in VERBS else " ".join(words[:2])
    keys = load(path).known.doc.json
    needed = {key for key in keys if not key.endswith("?")}
    found = set(json.loads(stdout))
    if keys:
        assert needed <= found, f"{path} does not print {needed - found}"
        assert found <= {key.removesuffix("?") for key in keys}, f"{path}: {found - set(keys)}"


def done(*arguments: object, **options: Any) -> Any:
    """Run the program, which has to succeed."""
    result = invoke(*arguments, **options)
    assert result.exit_code == 0, result.output
    return result


def the_error(result: Any) -> str:
    """The one line that an error is, beside warnings; fails if there is more, or less, or a
    traceback.
    """
    assert result.exit_code == 1, result.output
    assert result.stdout == ""
    lines = [line for line in result.stderr.splitlines() if not line.startswith("warning: ")]
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("error: ")
    assert isinstance(result.exception, SystemExit)
    assert not any(word in lines[0] for word in PYTHON), lines[0]
    return lines[0]


def cause_of(result: Any) -> BaseException | None:
    """Return the error that a command of :func:`invoke` ended with."""
    ended = result.exception.__context__
    return None if ended is None else ended.__cause__


def private_file(path: Path, content: bytes) -> Path:
    """Write a file that only its user may read, such as one with a passphrase."""
    path.touch(mode=0o600)
    path.write_bytes(content)
    return path


def names(folder: Path) -> list[str]:
    """What lies in a folder, temporary files included."""
    return sorted(path.name for path in folder.iterdir())


def disk_full(*_: Any, **__: Any) -> None:
    """What a write says when there is no room; it does not say whose write it was."""
    raise OSError(errno.ENOSPC, "No space left on device")


def patients(n: int = 60) -> pd.DataFrame:
    """A small hospital: every kind of column, ties, and an identifier."""
    rng = np.random.default_rng(7)
    return pd.DataFrame(
        {
            "patient": [f"P{i:04d}" for i in range(n)],
            "age": rng.normal(55, 14, n).round(1),
            "grade": rng.integers(1, 5, n),
            "visits": rng.poisson(0.4, n),
            "sex, at birth": rng.choice(["female", "male"], n),
            "dose": rng.integers(0, 500, n) / 10,
            "kilos": rng.normal(75, 12, n).round(1),
            "ill": np.where(rng.random(n) < 0.4, "yes", "no"),
        }
    )


@dataclass(frozen=True)
class Hospital:
    """The story so far: rows, the owner's folder, and a folder with what the worker gets, which is
    the table.
    """

    frame: pd.DataFrame
    home: Path
    work: Path

    @property
    def key(self) -> Path:
        return self.home / "secret.key"

    @property
    def public(self) -> Path:
        return self.home / "public.keys"

    @property
    def schema(self) -> Path:
        return self.home / "schema.json"

    @property
    def csv(self) -> Path:
        return self.home / "patients.csv"

    @property
    def table(self) -> Path:
        return self.work / "table.enc"

    def ask(self, name: str, *question: object) -> Path:
        """A result of the worker."""
        out = self.work / f"{name}.result"
        if not out.exists():
            done("ask", self.table, *question, "-o", out)
        return out


FOREST = ("forest", "trees=4", "depth=2", "seed=3")
# Options of the program, and the same model in Python.
MODELS: dict[str, tuple[tuple[Any, ...], Any]] = {
    "forest": (FOREST, lambda: es.CompletelyRandomForest(n_trees=4, depth=2, random_state=3)),
    "snb": (
        ("snb", "paired=false", "centred=true"),
        lambda: es.SemiparametricNB(paired=False, centred=True),
    ),
    "mnb": (("mnb", "alpha=0.5"), lambda: es.MultinomialNB(alpha=0.5)),
    "logistic": (
        ("logistic", "intercept=false"),
        lambda: es.OneStepLogisticRegression(fit_intercept=False),
    ),
    "means": (("means", "centred=false"), lambda: es.LinearMeans(centred=False)),
    "fisher": (("fisher",), lambda: es.FisherDiscriminant()),
}


@dataclass(frozen=True)
class Ward:
    """Two halves of the rows of an owner, encrypted into two tables, and what a worker has: those
    tables.
    """

    frame: pd.DataFrame
    home: Path
    work: Path

    @property
    def key(self) -> Path:
        return self.home / "secret.key"

    @property
    def schema(self) -> Path:
        return self.home / "schema.json"

    @property
    def csv(self) -> Path:
        return self.home / "all.csv"

    def table(self, half: int) -> Path:
        return self.work / f"half{half}.enc"

    def fitted(self, name: str, half: int) -> Path:
        """A model of half of the rows, fitted by the worker."""
        out = self.work / f"{name}{half}.model"
        if not out.exists():
            done("ask", self.table(half), "-o", out, *MODELS[name][0])
        return out

    def combined(self, name: str) -> Path:
        """The model of all rows."""
        out = self.work / f"{name}.model"
        if not out.exists():
            halves = (self.fitted(name, half) for half in (0, 1))
            done("model", "combine", out, *halves, "--keys", self.table(0))
        return out

    def opened(self, model: Path) -> Path:
        """A model opened by the owner."""
        out = self.home / f"{model.name}.opened"
        if not out.exists():
            done("open", model, "--key", self.key, "--schema", self.schema, "-o", out)
        return out

    def clear(self, name: str, rows: slice = slice(None)) -> Any:
        """The same model, fitted in the clear."""
        return MODELS[name][1]().fit(es.Schema.load(self.schema).table(self.frame[rows]))
