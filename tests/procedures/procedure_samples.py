"""A procedure of two rounds: the variable most strongly related to the class, and its
chi-square.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import encryptedstats as es
from encryptedstats.models.pairs import mutual_information


@dataclass(frozen=True)
class Strongest(es.Procedure):
    """The chi-square test of the variable that is most strongly related to the class."""

    again: int = 0  # how often the first question is asked again
    at_most = 3
    learned = "the strongest variable"

    def start(self, schema: Any) -> Any:
        return ("", 0)

    def question(self, state: Any, schema: Any) -> es.Question | None:
        name, n = state
        if n <= self.again:
            return es.MultinomialNB()
        return es.ChiSquare(name, "class") if isinstance(name, str) else None

    def step(self, state: Any, opened: Any, schema: Any) -> Any:
        if isinstance(opened, es.Result):
            return opened, state[1] + 1
        strengths = [mutual_information(counts) for counts in opened.bin_counts_]
        return f"v{strengths.index(max(strengths))}", state[1] + 1

    def read(self, state: Any, schema: Any) -> Any:
        return state[0]
