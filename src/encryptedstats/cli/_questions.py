"""Questions in words, and questions that are named on the command line: by name, or by the file or
module that defines them.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Final

import typer

import encryptedstats as es
from encryptedstats.cli._models import model_text
from encryptedstats.tables.questions.folds import Folds
from encryptedstats.tables.questions.parameters import takes_several, value_of, values_of
from encryptedstats.tables.questions.question import (
    MODEL_KIND,
    asked_of,
    known_by_now,
    known_questions,
    load_questions,
    question_class,
)
from encryptedstats.tables.questions.summaries import Counts, CrossTable, Moments, Statistic

STATISTICS: Final = {statistic.name: statistic for statistic in (Counts, CrossTable, Moments)}


def question_text(name: str, parameters: Mapping[str, Any], schema: es.Schema | None = None) -> str:
    """A question in words, a model as it is asked for. Of what is not this library's own, nothing
    is imported for it.

    >>> question_text("counts", {"variables": [0, -1]}), question_text("crosstab", {"variables": [0, 1]})
    ('counts of v0 by class', 'cross table of v0 and v1')
    >>> question_text("Ridge", {"target": 2, "alpha": 1.0}), question_text("LinearMeans", {"centred": False})
    ('Ridge target=2 alpha=1.0', 'means --no-centred')
    """
    if name in STATISTICS:
        asked = parameters.get("variables")
        if not isinstance(asked, (list, tuple)) or not all(type(one) is int for one in asked):
            raise es.FileFormatError(
                f"the {name} have a malformed list of variables", code="malformed-list"
            )
        return STATISTICS[name](tuple(asked)).describe(schema)
    if name == Folds.name:
        inside, params = parameters.get("question"), parameters.get("params")
        if not isinstance(inside, str) or not isinstance(params, Mapping) or inside == Folds.name:
            raise es.FileFormatError(
                "the folds are of no question that can be", code="impossible-folds"
            )
        return f"{parameters.get('n_folds')} folds of {question_text(inside, params, schema)}"
    found = known_by_now(name) or getattr(es, name, None)
    if (
        isinstance(found, type)
        and getattr(found, "kind", "") == MODEL_KIND
        and issubclass(found, es.TotalsClassifier)
    ):
        return model_text(found, parameters)
    return " ".join([name, *(f"{one}={value}" for one, value in parameters.items())])


def variables_of(question: es.Question, schema: es.Schema | None = None) -> dict[str, list[str]]:
    """The variables of a statistic by name, ready for JSON; nothing of any other question."""
    return {"variables": question.names(schema)} if isinstance(question, Statistic) else {}


def make_question(
    words: Sequence[str], schema: es.Schema | es.PublicSchema | None = None
) -> es.Question:
    """The question that some words ask: ``my_questions.py:Ridge target=2 alpha=1``, or a name that
    is known here.

    With the owner's schema it may speak of variables and levels by name, and is translated to ids.
    """
    source, _, name = words[0].rpartition(":")
    found = getattr(load_questions(source), name, None) if source else question_class(name)
    if (
        not isinstance(found, type)
        or not issubclass(found, es.Question)
        or inspect.isabstract(found)
    ):
        raise typer.BadParameter(
            f"{source} has no question {name!r}: give FILE.py:NAME of a subclass of "
            "encryptedstats.Question"
        )
    has = inspect.signature(found).parameters
    given = {}
    for word in words[1:]:
        parameter, equals, text = word.partition("=")
        if not equals or parameter not in has:
            raise typer.BadParameter(
                f"{word}: {found.name} takes {', '.join(f'{one}=...' for one in has) or 'nothing'}"
            )
        given[parameter] = values_of(text) if takes_several(has[parameter]) else value_of(text)
    missing = [
        one
        for one, about in has.items()
        if about.default is inspect.Parameter.empty and one not in given
    ]
    if missing:
        raise typer.BadParameter(f"{found.name} needs {', '.join(f'{one}=...' for one in missing)}")
    asked = found(**given)
    return asked if schema is None else asked_of(asked, schema)


def listed_questions() -> list[tuple[str, str, str]]:
    """Name, parameters and one line of help of every question that is known here."""
    found = []
    for name, question in sorted(known_questions().items(), key=lambda item: item[0].lower()):
        if question is not Folds:
            taken = inspect.signature(question).parameters.values()
            text = " ".join(
                one.name if one.default is one.empty else f"[{one.name}]" for one in taken
            )
            found.append((name, text, question.about()))
    return found


def shortened(lines: list[str], most: int = 6) -> list[str]:
    """The first few of many lines."""
    return lines if len(lines) <= most + 1 else [*lines[:most], f"and {len(lines) - most} more"]
