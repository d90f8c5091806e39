"""The unit of privacy and the neighbouring relation, which give an epsilon its meaning.

Epsilons add up only if they have the same unit and the same relation. A ledger therefore has one
`Unit`, and every release that is spent from it has the same one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from encryptedstats.errors import ParameterError

REPLACE: Final = "replace"
ADD: Final = "add"
#: Which tables are neighbours, in words.
RELATIONS: Final = {
    REPLACE: "one row is replaced by any other (the number of rows is public)",
    ADD: "one row is added or left out (the number of rows is not public)",
}
_ROW: Final = "a row"
_PERSON: Final = re.compile(r"a person with at most ([1-9][0-9]{0,17}) rows")


@dataclass(frozen=True)
class Unit:
    """Whose privacy an epsilon protects, and which tables count as neighbours.

    Attributes
    ----------
    max_rows : int
        Rows of one person: 1 protects a row, more protect a person with up to that many rows.
    relation : str
        ``"replace"`` (the number of rows is public) or ``"add"`` (it is not).

    Examples
    --------
    >>> Unit(4).who
    'a person with at most 4 rows'
    """

    max_rows: int = 1
    relation: str = REPLACE

    def __post_init__(self) -> None:
        rows = self.max_rows
        if isinstance(rows, bool) or not isinstance(rows, (int, np.integer)) or rows < 1:
            raise ParameterError(
                f"max_rows={rows!r}: how many rows a person has at most, 1 or more",
                code="invalid-max-rows",
            )
        if self.relation not in RELATIONS:
            raise ParameterError(
                f"relation={self.relation!r}: {' or '.join(map(repr, RELATIONS))}",
                code="unknown-relation",
            )

    @property
    def who(self) -> str:
        """Return whose privacy it is, in words."""
        return _ROW if self.max_rows == 1 else f"a person with at most {self.max_rows} rows"

    @property
    def neighbours(self) -> str:
        """Return which tables cannot be told apart, in words."""
        return RELATIONS[self.relation]

    def __str__(self) -> str:
        return f"{self.who}; {self.neighbours}"

    def to_dict(self) -> dict[str, Any]:
        """Return the unit as JSON stores it."""
        return {"max_rows": int(self.max_rows), "relation": self.relation}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Unit:
        """Read what :meth:`to_dict` returned."""
        return cls(stored["max_rows"], stored["relation"])

    @classmethod
    def from_words(cls, who: str, neighbours: str) -> Unit:
        """Read a unit from its words, which is all that entries of older ledgers have."""
        relation = next(
            (name for name, words in RELATIONS.items() if words == neighbours), neighbours
        )
        found = _PERSON.fullmatch(who)
        if found is None and who != _ROW:
            raise ParameterError(
                f"unit {who!r}: {_ROW!r} or 'a person with at most ... rows'", code="unknown-unit"
            )
        return cls(1 if found is None else int(found[1]), relation)


#: The unit of a release or ledger that names none.
ROW: Final = Unit()
