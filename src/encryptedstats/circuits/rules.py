"""Tables of rules: each says what one reader of expressions or programs does for each operation.

Each reader keeps its table next to the code that uses it. A new operation registers a rule in every
table; a reader that meets an operation without a rule raises an error that names the table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn, TypeVar

from encryptedstats.errors import ArgumentError

R = TypeVar("R")


class RuleTable(dict[str, R]):
    """Rules by operation. ``table[op]`` raises an error that names the table if there is none.

    >>> parities = RuleTable("parities")
    >>> @parities.rule("double", "square")
    ... def even(number):
    ...     return 0
    >>> parities["square"](3)
    0
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def rule(self, *operations: str) -> Callable[[R], R]:
        """Register the decorated function for some operations."""

        def register(function: R) -> R:
            self.update(dict.fromkeys(operations, function))
            return function

        return register

    def __missing__(self, operation: str) -> NoReturn:
        raise ArgumentError(
            f"the table of {self.name} has no rule for the operation {operation!r}",
            code="no-rule-for-operation",
        )
