"""Check that the lists of mutants fit the source; ``make test-full`` runs the mutants."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mutation.lists import ALL_MUTANTS
from mutation.mutants import NOISE_MUTANTS, Mutant


@pytest.mark.parametrize("mutant", ALL_MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutant_is_a_change_of_one_place(mutant: Mutant) -> None:
    compile(mutant.source(), mutant.file, "exec")


def test_names_are_different() -> None:
    assert len({mutant.name for mutant in ALL_MUTANTS}) == len(ALL_MUTANTS)


def test_a_mutant_that_fits_nothing_or_too_much_is_refused() -> None:
    for text, count in (("no such text", 0), ("return", ".+")):
        with pytest.raises(
            ValueError, match=f"its text occurs {count} times in crypto/noise.py, not once"
        ):
            replace(NOISE_MUTANTS[0], file="crypto/noise.py", old=text).source()
