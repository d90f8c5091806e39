"""A hospital and a registry with columns of the same people, of whom some are at one of
them only.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from study_samples import CLASSES, World, parameters, world

import encryptedstats as es

KEYS = ["surname", "born"]
KINDS = ["text", "date"]
HOSPITAL, REGISTRY = "hospital", "registry_site"
COLUMNS = {HOSPITAL: ["age", "sex", "bmi"], REGISTRY: ["stage", "ill"]}


def people(n: int = 400, seed: int = 5) -> pd.DataFrame:
    """Return all columns of some people, with identifiers."""
    rng = np.random.default_rng(seed)
    ill = rng.integers(0, 2, n)
    born = pd.Timestamp("1950-01-01") + pd.to_timedelta(rng.integers(0, 9000, n), "D")
    return pd.DataFrame(
        {
            "surname": [f"Person {number:05}" for number in range(n)],
            "born": born.strftime("%Y-%m-%d"),
            "age": rng.normal(50, 10, n) + 9 * ill,
            "sex": rng.choice(["f", "m"], n),
            "bmi": rng.integers(2, 12, n) + 2 * ill,
            "stage": rng.choice(["one", "two", "three"], n),
            "ill": np.array(CLASSES)[ill],
        }
    )


EVERYBODY = people()
#: Each site lacks some of the people, and has them in an order of its own.
ROWS = {
    HOSPITAL: EVERYBODY.iloc[:330].sample(frac=1, random_state=1)[[*KEYS, *COLUMNS[HOSPITAL]]],
    REGISTRY: EVERYBODY.iloc[90:].sample(frac=1, random_state=2)[[*KEYS, *COLUMNS[REGISTRY]]],
}
JOINED = EVERYBODY.iloc[90:330]
SCHEMA = es.Schema.infer(
    EVERYBODY.drop(columns=KEYS),
    target="ill",
    bins=3,
    classes=CLASSES,
    kinds={"age": "continuous", "bmi": "number"},
)
#: The two ways in which people can be linked, and what each reveals.
LINKAGES = {
    "agent": es.Linkage(COLUMNS, KINDS, agent="office"),
    "agent, members": es.Linkage(COLUMNS, KINDS, agent="office", reveals="members"),
    "intersection": es.Linkage(COLUMNS, KINDS, reveals="members"),
}


class LinkedWorld(World):
    """A study with linked columns."""

    rows: dict[str, pd.DataFrame] = ROWS

    def take(self, who: str, what: str) -> dict[str, Any]:
        party = self.as_(who)
        if what == "link":
            mine = self.rows.get(who)
            party.link(mine, on=KEYS if mine is not None else ())
            return {}
        if what == "add":
            party.add(self.rows[who])
            return {}
        return super().take(who, what)


def linked_world(folder: Path, linkage: es.Linkage, **options: Any) -> LinkedWorld:
    given = {"schema": SCHEMA, "sites": (HOSPITAL, REGISTRY), "parameters": parameters()}
    made = world(folder, **(given | {"linkage": linkage} | options))
    return LinkedWorld(made.folder, made.created).join_all()
