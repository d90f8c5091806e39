"""What the tests of the evaluation share beside their fixtures."""

from __future__ import annotations

NAMES = ("infl", "haber")  # small, one easy and one hard, with continuous and categorical variables
