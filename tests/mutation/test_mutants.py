"""The list of mutants fits the code that it is about; ``make test-full`` runs them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from mutants import NOISE_MUTANTS, Mutant


@pytest.mark.parametrize("mutant", NOISE_MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutant_is_a_change_of_one_place(mutant: Mutant) -> None:
    compile(mutant.source(), mutant.file, "exec")


def test_names_are_different() -> None:
    assert len({mutant.name for mutant in NOISE_MUTANTS}) == len(NOISE_MUTANTS)


def test_a_mutant_that_fits_nothing_or_too_much_is_refused() -> None:
    for text, count in (("no such text", 0), ("return", ".+")):
        with pytest.raises(ValueError, match=f"its text occurs {count} times in crypto/noise.py, not once"):
            replace(NOISE_MUTANTS[0], file="crypto/noise.py", old=text).source()
