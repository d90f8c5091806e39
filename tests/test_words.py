"""Sizes, times and counts in words."""

from __future__ import annotations

import doctest

import pytest

from encryptedstats import words


def test_the_examples() -> None:
    assert doctest.testmod(words) == (0, 4)


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 bytes"), (1, "1 byte"), (999, "999 bytes"), (1000, "1.0 kB"), (2 * 10**12, "2.0 TB")],
)
def test_sizes_at_the_edges(count: int, text: str) -> None:
    assert words.size_text(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0 ms"), (0.01, "10 ms"), (1, "1.0 s"), (119, "119.0 s"), (121, "2 min")],
)
def test_times_at_the_edges(seconds: float, text: str) -> None:
    assert words.time_text(seconds) == text
