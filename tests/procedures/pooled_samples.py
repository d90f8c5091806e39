"""A cohort at three sites whose rows follow from whole numbers, so that R computes with the same.

In R::

    i <- 1:300
    u <- ((i * i * 29 + 17 * i) %% 997) / 997
    v <- ((i * i * 31 + 11 * i) %% 991) / 991
    d <- data.frame(age = 20 + (i * 37) %% 61, bmi = 18 + ((i * 53) %% 171) / 10,
                    arm = factor(c("a", "b", "c")[1 + (i * 7) %% 3]),
                    sex = factor(c("f", "m")[1 + (i %/% 7) %% 2]))
    d$ill <- factor(ifelse(u < plogis(-4 + 0.05 * d$age + 0.6 * (d$arm == "b")), "yes", "no"))
    d$days <- 1 + (i * 13) %% 9
    d$visits <- floor(-log((u + 0.001) / 1.001) * exp(0.3 + 0.01 * d$age - 0.4 * (d$sex == "m")))
    d$cost <- round(0.5 - log((v + 0.001) / 1.001) * exp(1 + 0.02 * d$bmi), 2)
    d$week <- pmin(12, 1 + floor(-log((v + 0.001) / 1.001) * 20 * exp(-0.015 * d$age)))
    d$died <- factor(ifelse((i * 19) %% 10 < 7 & d$week < 12, "yes", "no"))
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd

import encryptedstats as es
from encryptedstats.procedures.site_procedure import SiteCourse


def cohort() -> pd.DataFrame:
    """Return the rows of all sites."""
    i = np.arange(1, 301)
    u = ((i * i * 29 + 17 * i) % 997) / 997
    v = ((i * i * 31 + 11 * i) % 991) / 991
    arm, sex = np.array(list("abc"))[(i * 7) % 3], np.array(list("fm"))[(i // 7) % 2]
    age, bmi = 20 + (i * 37) % 61, 18 + ((i * 53) % 171) / 10
    risk = 1 / (1 + np.exp(4 - 0.05 * age - 0.6 * (arm == "b")))
    visits = -np.log((u + 0.001) / 1.001) * np.exp(0.3 + 0.01 * age - 0.4 * (sex == "m"))
    week = np.minimum(12, 1 + -np.log((v + 0.001) / 1.001) * 20 * np.exp(-0.015 * age) // 1)
    return pd.DataFrame(
        {
            "age": age,
            "bmi": bmi,
            "arm": arm,
            "sex": sex,
            "ill": np.where(u < risk, "yes", "no"),
            "days": 1 + (i * 13) % 9,
            "visits": np.floor(visits).astype(int),
            "cost": np.round(0.5 - np.log((v + 0.001) / 1.001) * np.exp(1 + 0.02 * bmi), 2),
            "week": week.astype(int),
            "died": np.where(((i * 19) % 10 < 7) & (week < 12), "yes", "no"),
        }
    )


def schema_of(frame: pd.DataFrame, target: str | None = "ill", **kinds: str) -> es.Schema:
    """Return a schema that keeps numbers."""
    return es.Schema.infer(frame, target=target, numbers="keep", kinds=kinds)


def schema_with_weeks(frame: pd.DataFrame) -> es.Schema:
    """Return a schema with the weeks until people died or left."""
    schema = es.Schema.infer(frame, target="died", numbers="keep", kinds={"week": "ordinal"})
    return schema.with_kind("week", "ordinal", levels=range(1, 13))


def at_sites(schema: es.Schema, frame: pd.DataFrame, n: int = 3) -> list[Any]:
    """Return the tables of sites, each with every n-th row."""
    return [schema.table(frame[k::n]) for k in range(n)]


def fit(procedure: Any, frame: pd.DataFrame, target: str | None = "ill", **kinds: str) -> Any:
    """Return the result of a procedure over three sites."""
    return procedure.run(at_sites(schema_of(frame, target, **kinds), frame))


def check_rounds_are_the_same(procedure: Any, schema: es.Schema, frame: pd.DataFrame) -> SiteCourse:
    """Take the same sums twice: all states are equal, and no more is opened than was announced.

    Return the course at its end.
    """
    asked = procedure.in_ids(schema)
    one, other = (SiteCourse(asked, schema.public()) for _ in range(2))
    opened = 0
    while not one.is_done:
        opened += one.n_totals - (1 if one.number else 2)
        parts = [one.measure(table) for table in at_sites(schema, frame)]
        sums = [sum(column) for column in zip(*parts, strict=True)]
        one.take(sums)
        other.take(sums)
        assert json.dumps(one.state) == json.dumps(other.state)
    assert opened <= asked.n_opened(schema.public())
    return one
