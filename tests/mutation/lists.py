"""All lists of mutants: one of the noise rules, and one per area in ``mutation/*_mutants.py``."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from mutation.mutants import NOISE_MUTANTS, Mutant

AREAS = sorted(
    path.stem
    for path in Path(__file__).parent.glob("*_mutants.py")
    if not path.stem.startswith("test_")
)
ALL_MUTANTS: list[Mutant] = NOISE_MUTANTS + [
    mutant for area in AREAS for mutant in import_module(f"mutation.{area}").MUTANTS
]
