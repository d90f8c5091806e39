"""How hard the tests try: little in ``make test``, more in ``make test-full``, which sets
HYPOTHESIS_PROFILE=full.

The quick numbers are weighed by what an example costs, and the examples are the same in every run:
who changes one thing sees what that thing breaks. The full profile draws others each time.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

_MORE = {"quick": 1, "full": 6}

settings.register_profile("quick", deadline=None, derandomize=True, max_examples=50)
settings.register_profile("full", deadline=None, max_examples=600)
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "quick")
settings.load_profile(PROFILE)

# For what is the same code whatever the scheme; in place of the session's fixture ``scheme``.
one_scheme = pytest.mark.parametrize(
    "scheme", ["bgv", pytest.param("bfv", marks=pytest.mark.slow)], indirect=True
)


def examples(quick: int) -> int:
    """``max_examples`` of a test that has a number of its own, in place of 50 and 600."""
    return quick * _MORE[PROFILE]
