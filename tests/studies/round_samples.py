"""Procedures for tests of rounds: small enough to be computed by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from study_samples import World, world

import encryptedstats as es
from encryptedstats.procedures import RowLimits, SiteProcedure
from encryptedstats.procedures.site_procedure import refuse_small
from encryptedstats.tables import PublicSchema, Table
from encryptedstats.tables.schema.names import position

N = 60
SITES = ("north", "south", "west")
SCALE = 1 << 40


def frame(seed: int, n: int = N) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": rng.integers(20, 80, n),
            "ward": [("a", "b", "c")[i % 3] for i in range(n)],
            "ill": rng.choice(["no", "yes"], n),
        }
    )


FRAMES = {site: frame(number) for number, site in enumerate(SITES)}
TOGETHER = pd.concat(FRAMES.values(), ignore_index=True)
SCHEMA = es.Schema.infer(
    frame(99, 300), target="ill", numbers="keep", digits=0, bounds={"age": (0, 100)}
)


class Home(SiteProcedure):
    """Few totals, and nothing to refuse."""

    at_most = 2

    def start(self, schema: Any) -> Any:
        return {"round": 0}

    def is_done(self, state: Any) -> bool:
        return bool(state["round"] >= self.at_most)

    def n_totals(self, state: Any, schema: PublicSchema) -> int:
        return 1

    def check(self, state: Any, totals: Any, schema: Any, limits: RowLimits) -> None:
        pass

    def n_opened(self, schema: PublicSchema) -> int:
        return sum(self.n_totals({"round": k}, schema) for k in range(self.at_most))

    def n_parameters(self, schema: PublicSchema) -> int:
        return 1

    def read(self, state: Any, schema: Any) -> Any:
        return state


def numbers(table: Table, variable: str) -> list[int]:
    return [int(one) for one in table.data[position(table.schema, variable)]]


@dataclass(frozen=True)
class Spread(Home):
    """The mean of a number, and then its mean squared distance from it, ``rounds`` - 1 times."""

    variable: str = "age"
    rounds: int = 2
    begin_at: float = 0.5

    of_variables = ("variable",)

    @property
    def at_most(self) -> int:
        return self.rounds

    def start(self, schema: Any) -> Any:
        return {"round": 0, "mean": self.begin_at, "variance": 0.0}

    def measure(self, state: Any, table: Table) -> list[int]:
        power = 2 if state["round"] else 1
        away = [one - state["mean"] for one in numbers(table, self.variable)]
        return [table.n_rows, sum(round(one**power * SCALE) for one in away)]

    def n_totals(self, state: Any, schema: PublicSchema) -> int:
        return 2

    def step(self, state: Any, opened: Any, schema: Any) -> Any:
        n, total = opened
        found = total / n / SCALE
        mean, variance = state["mean"] + (0 if state["round"] else found), found
        return {"round": state["round"] + 1, "mean": mean, "variance": variance}

    def fits(self, schema: PublicSchema) -> Any:
        return self.variable

    def read(self, state: Any, schema: Any) -> dict[str, float]:
        return {"mean": state["mean"], "deviation": math.sqrt(state["variance"])}


@dataclass(frozen=True)
class Groups(Home):
    """Rows of each level, and then the sum of a number in each."""

    variable: str = "age"
    by: str = "ward"

    of_variables = ("variable", "by")

    def n_totals(self, state: Any, schema: PublicSchema) -> int:
        return schema.variables[position(schema, self.by)].n_bins

    def measure(self, state: Any, table: Table) -> list[int]:
        levels = table.data[position(table.schema, self.by)]
        ages = numbers(table, self.variable)
        values = ages if state["round"] else [1] * len(ages)
        return [
            sum(one for one, level in zip(values, levels, strict=True) if level == k)
            for k in range(self.n_totals(state, table.public_schema))
        ]

    def step(self, state: Any, opened: Any, schema: Any) -> Any:
        name = "sums" if state["round"] else "counts"
        return {**state, "round": state["round"] + 1, name: list(opened)}

    def check(self, state: Any, totals: Any, schema: Any, limits: RowLimits) -> None:
        if not state["round"]:
            refuse_small({f"level {k}": one for k, one in enumerate(totals)}, limits)

    def n_parameters(self, schema: PublicSchema) -> int:
        return self.n_totals({}, schema)


@dataclass(frozen=True)
class Powers(Home):
    """Sums of powers of a number, one a round: as many as there are rows tell all values."""

    variable: str = "age"
    rounds: int = 6

    of_variables = ("variable",)

    @property
    def at_most(self) -> int:
        return self.rounds

    def measure(self, state: Any, table: Table) -> list[int]:
        return [sum(one ** (state["round"] + 1) for one in numbers(table, self.variable))]

    def step(self, state: Any, opened: Any, schema: Any) -> Any:
        return {"round": state["round"] + 1, "sums": [*state.get("sums", []), *opened]}

    def n_parameters(self, schema: PublicSchema) -> int:
        return self.rounds


@dataclass(frozen=True)
class Above(Home):
    """How many rows are at least as large as a number, which the parameters say."""

    variable: str = "age"
    cut: int = 50

    at_most = 1
    of_variables = ("variable",)

    def start(self, schema: Any) -> Any:
        return {"round": 0, "cut": self.cut}

    def measure(self, state: Any, table: Table) -> list[int]:
        return [sum(one >= state["cut"] for one in numbers(table, self.variable))]

    def step(self, state: Any, opened: Any, schema: Any) -> Any:
        return {**state, "round": 1, "count": opened[0]}

    def fits(self, schema: PublicSchema) -> Any:
        return self.variable


def in_rounds(folder: Path, questions: Mapping[str, Any] | None = None, **options: Any) -> World:
    """A study whose sites compute procedures in rounds, which all have joined."""
    asked = questions or {"spread": Spread()}
    given = {"schema": SCHEMA, "parameters": None, **options}
    return Rounds.of(world(folder, questions=asked, **given).join_all())


class Rounds(World):
    """The same, with the rows of these tests."""

    frames: Mapping[str, pd.DataFrame] = FRAMES

    @classmethod
    def of(cls, made: World, frames: Mapping[str, pd.DataFrame] = FRAMES) -> Rounds:
        found = cls(made.folder, made.created, made.address)
        found.frames = frames
        return found

    def all_add(self) -> None:
        """Every site does what is due for it, in turn."""
        for site in self.created.document.sites:
            self.as_(site).add(self.frames[site])

    def take(self, who: str, what: str) -> dict[str, Any]:
        if what != "add":
            return super().take(who, what)
        self.as_(who).add(self.frames[who])
        return {}

    def until_step(self, number: int, name: str = "spread") -> Rounds:
        """Everybody does what is due, until all have stored their totals before a step."""

        def is_there() -> bool:
            study = es.Study(self.url)
            step = study.state().runs[name].current
            return step.number == number and not study.status().unsent

        self.run(is_there)
        assert is_there()
        return self
