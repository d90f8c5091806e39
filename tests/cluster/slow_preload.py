"""Loaded by Dask workers before they begin: every shard takes SLOW_SECONDS longer."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import Any

warnings.simplefilter("ignore")
sys.path.insert(0, str(Path(__file__).parent))

from slow_worker import make_slow  # noqa: E402


def dask_setup(worker: Any) -> None:
    make_slow(float(os.environ.get("SLOW_SECONDS", "0")))
