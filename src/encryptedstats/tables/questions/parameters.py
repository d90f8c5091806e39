"""Parameters of questions as people write them, for the command line and for pages."""

from __future__ import annotations

import inspect
import json
from typing import Any, Final

#: How the types of parameters begin that take several values.
_LISTS: Final = ("list[", "tuple[", "Sequence[", "Names")


def value_of(text: str) -> Any:
    """Parse a text: as JSON, else as it is.

    >>> value_of("0.5"), value_of("null"), value_of("two-sided")
    (0.5, None, 'two-sided')
    """
    try:
        return json.loads(text)
    except ValueError:
        return text


def values_of(text: str) -> Any:
    """Parse several values: as JSON, or with commas between them.

    >>> values_of("age,sex"), values_of("0.5"), values_of('["a,b"]'), values_of("null")
    (['age', 'sex'], [0.5], ['a,b'], None)
    """
    found = value_of(text)
    if found is None or isinstance(found, (list, dict)):
        return found
    return [value_of(one.strip()) for one in text.split(",")]


def takes_several(parameter: inspect.Parameter) -> bool:
    """Return whether a parameter is declared to take several values."""
    return isinstance(parameter.default, (list, tuple)) or str(parameter.annotation).startswith(
        _LISTS
    )


def described_parameters(question: type[Any]) -> dict[str, str]:
    """Return what the docstring of a question, or of its bases, says of each parameter, without
    what only Python can say.
    """
    found: dict[str, list[str]] = {}
    for text in (inspect.cleandoc(one.__doc__ or "") for one in reversed(question.__mro__)):
        name, section = "", text.partition("\nParameters\n----------\n")[2].partition("\n\n")[0]
        for line in section.splitlines():
            if line.startswith(" "):
                found.setdefault(name, []).append(line.strip())
            else:
                name = line.partition(" : ")[0]
                found[name] = []
    texts = {
        name: " ".join(words).rstrip(".").split(". ") for name, words in found.items() if words
    }
    return {
        name: ". ".join(one for one in sentences if "``" not in one and "None" not in one)
        for name, sentences in texts.items()
    }
