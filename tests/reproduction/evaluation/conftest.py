"""A data folder where there is one, and a finished run of two small data sets that many tests look
at.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from evaluation_samples import NAMES

from encryptedstats.models import CompletelyRandomForest
from reproduction.evaluation import Settings, encrypted, reproduce, times

_FOLDER = os.environ.get("ENCRYPTEDSTATS_DATA", "")


@pytest.fixture(scope="session")
def data_home() -> Path:
    if not _FOLDER or not Path(_FOLDER).is_dir():
        pytest.skip(
            "the data sets are not here: set ENCRYPTEDSTATS_DATA to the folder that holds them"
        )
    return Path(_FOLDER)


def one_split() -> CompletelyRandomForest:
    return CompletelyRandomForest(1, 1)


@pytest.fixture(scope="session")
def finished(data_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """All parts of two data sets and two splits; fewer trees, rows and variables where they are
    encrypted.
    """
    settings = Settings(tmp_path_factory.mktemp("run"), 2, NAMES, data_home=data_home, workers=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(times, "ROWS", (100, 8192))
        patch.setattr(times, "_REPEATS", 1)
        patch.setattr(times, "_TREES", 3)
        patch.setattr(times, "N_VARIABLES", 3)
        patch.setattr(
            times, "PREDICTING", [replace(timed, model=one_split) for timed in times.PREDICTING]
        )
        patch.setattr(times, "N_TREES", 5)
        patch.setattr(encrypted, "N_TREES", 5)
        reproduce(settings, show=False)
    return settings
