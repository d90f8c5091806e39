"""A project that was made up, which leads from a file to an opened result in two minutes: a
registry of patients, and three questions that are asked already.
"""

from __future__ import annotations

import io
from typing import Final

import numpy as np
import pandas as pd

from encryptedstats.app.desk import Desk
from encryptedstats.app.projects import Project
from encryptedstats.app.steps.data import choose_dropped
from encryptedstats.app.steps.questions import ask

_ROWS: Final = 400
_TITLE: Final = "Sample: readmissions"


def begin_sample(desk: Desk) -> Project:
    """Begin the sample project, up to its questions."""
    project = desk.projects.new(_TITLE)
    with project.changing() as state:
        state.sample = True
    content = sample_rows().to_csv(index=False).encode()
    choose_dropped(desk, project, "made-up-patients.csv", io.BytesIO(content))
    ask(desk, project, "TTest", {"variable": "bmi", "by": "sex"})
    ask(desk, project, "OddsRatio", {"exposure": "smoker", "target": "readmitted"})
    ask(desk, project, "GLM", {"target": "readmitted", "variables": ["smoker", "sex"]})
    return project


def sample_rows() -> pd.DataFrame:
    """Return patients that were made up: older ones and smokers come back more often."""
    rng = np.random.default_rng(7)
    age = rng.integers(19, 92, _ROWS)
    smoker = rng.choice(["never", "former", "current"], _ROWS, p=[0.5, 0.3, 0.2])
    risk = 1 / (1 + np.exp(-(-4.0 + 0.05 * age + 0.9 * (smoker == "current"))))
    sex = rng.choice(["female", "male"], _ROWS)
    return pd.DataFrame(
        {
            "patient": [f"P{i:05d}" for i in range(_ROWS)],
            "age": age,
            "sex": sex,
            "smoker": smoker,
            "bmi": (rng.normal(26.5, 4.5, _ROWS) + 1.2 * (sex == "male")).round(1),
            "readmitted": np.where(rng.random(_ROWS) < risk, "yes", "no"),
        }
    )
