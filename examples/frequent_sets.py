"""Combinations of levels that are frequent, found round by round (the Apriori algorithm):
``python examples/frequent_sets.py``.

A combination is frequent only if all its parts are, so each round counts the combinations whose
parts were all frequent. The question and the procedure are written here;
``docs/guides/procedures.md`` explains both. The worker learns which combinations were counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

import encryptedstats as es
from encryptedstats.questions import bin_columns, product_of, row_column


@dataclass(frozen=True)
class Together(es.Question):
    """The share of the rows that are in all bins of a combination, for each combination."""

    combinations: list[list[list[int]]]  # each of pairs of a variable and a bin

    def totals(self, schema: Any, columns: Any = None, fold: int | None = None) -> Any:
        rows, bins = row_column(schema, fold), {}
        for item in {tuple(item) for one in self.combinations for item in one}:
            bins[item] = bin_columns(schema, item[0])[item[1]]
        inside = [product_of([rows, *(bins[tuple(i)] for i in one)]) for one in self.combinations]
        return {"rows": [x.total() for x in inside]}

    def shapes(self, schema: Any) -> Any:
        return {"rows": (len(self.combinations),)}

    def read(self, totals: Any, schema: Any, n_rows: int) -> list[float]:
        return [int(n) / n_rows for n in totals["rows"]]


@dataclass(frozen=True)
class FrequentSets(es.Procedure):
    """The combinations of levels that at least a share of the rows has."""

    share: float
    at_most: int = 3  # variables in a combination
    learned = "which combinations are frequent"

    def start(self, schema: Any) -> Any:
        variables = schema.public().variables
        return {}, [((j, k),) for j, v in enumerate(variables) for k in range(v.n_bins)]

    def question(self, state: Any, schema: Any) -> es.Question | None:
        _, candidates = state
        if not candidates:
            return None
        return Together([[list(item) for item in one] for one in candidates])

    def step(self, state: Any, opened: Any, schema: Any) -> Any:
        found, candidates = dict(state[0]), state[1]
        size = len(candidates[0])
        found |= {one: n for one, n in zip(candidates, opened, strict=True) if n >= self.share}
        if size == self.at_most:
            return found, []
        items = sorted({item for one in found if len(one) == size for item in one})
        larger = [one for one in combinations(items, size + 1) if len({j for j, _ in one}) > size]
        parts = [one for one in larger if all(p in found for p in combinations(one, size))]
        return found, parts

    def read(self, state: Any, schema: Any) -> dict[str, float]:
        labels = [v.labels for v in schema.variables]
        return {" and ".join(labels[j][k] for j, k in one): n for one, n in state[0].items()}

    def to_plan(self, schema: Any) -> list[es.Question]:
        last = [v.n_bins - 1 for v in schema.public().variables]
        return [Together([[[j, k] for j, k in enumerate(last)][: self.at_most]])]


def make_people(n: int = 2000) -> pd.DataFrame:
    """Draw people whose smoking depends on their age."""
    rng = np.random.default_rng(5)
    age = rng.choice(["young", "middle", "old"], n)
    smoker = np.where(rng.random(n) < np.where(age == "old", 0.6, 0.3), "smokes", "does not")
    town, ill = rng.choice(["A", "B"], n), rng.integers(0, 2, n)
    return pd.DataFrame({"smoker": smoker, "age": age, "town": town, "ill": ill})


def main() -> dict[str, float]:
    """Find the combinations that a fifth of the people has, and print them."""
    people = make_people()
    schema = es.Schema.infer(people, target="ill")
    table, procedure = schema.table(people), FrequentSets(0.2)
    owner = es.Owner(es.plan(procedure, table))
    found: dict[str, float] = procedure.run(owner.encrypt(table), owner, progress=print)
    for name, share in found.items():
        print(f"{share:.3f}  {name}")
    return found


if __name__ == "__main__":
    main()
