"""Procedures as people type them: ``tree depth=2``, ``forest learned trees=50 depth=3``, or
``FILE.py:NAME depth=2`` for one of their own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from encryptedstats.errors import FileFormatError, ParameterError
from encryptedstats.procedures.procedure import Procedure, procedure_class
from encryptedstats.tables.questions.question import Question, load_questions
from encryptedstats.tables.questions.words import (
    complete_parameters,
    complete_words,
    make_from_words,
    names_of_questions,
    parameters_text,
    question_type,
    refuse_words,
    short_name,
    spell,
    split_words,
)
from encryptedstats.words import did_you_mean

#: Short names, and those of R's packages.
ALIASES: Final = {
    "tree": "DecisionTree",
    "rpart": "DecisionTree",
    "forest learned": "RandomForest",
    "randomForest": "RandomForest",
    "extraTrees": "ExtraTrees",
}
#: Those that the sites of a study compute on their own rows.
SITE_PROCEDURES: Final = (
    "PooledBoosting",
    "PooledCox",
    "PooledCoxNet",
    "PooledElasticNet",
    "PooledGLM",
    "PooledKMeans",
)
#: The word after the name of a question that makes it a procedure.
_LEARNED: Final = "learned"
_NAME: Final = re.compile(r"[\w.]+")


def make_procedure(words: Sequence[str]) -> Procedure | None:
    """Return the procedure that words ask for; None if they begin with a question."""
    words = _join_names(words)
    name = words[0].partition("(")[0].strip() if words else ""
    found = find_procedure_type(name)
    if found is None:
        _refuse_near(name, words[1:2])
        return None
    asked = list(split_words([found.name, *words[1:]] if name == words[0] else words))
    if len(asked) > 1:
        raise refuse_words(
            f"{asked[1][0]}: a procedure is asked alone, since its questions depend on its answers"
        )
    return make_from_words(found, name, asked[0][1])


def names_of_procedures() -> list[str]:
    """Return what procedures are called: their short names and their own."""
    return [*sorted(set(ALIASES.values())), *ALIASES]


def describe_procedures() -> Iterator[tuple[str, str, str]]:
    """Yield name, parameters and one line of help of every procedure of the library."""
    for name in sorted(set(ALIASES.values())):
        found, others = procedure_class(name), [one for one, own in ALIASES.items() if own == name]
        yield ", ".join([*others, name]), parameters_text(found), found.about()


def find_asked_type(name: str) -> type[Question] | type[Procedure]:
    """Return the question or the procedure of a name."""
    found = find_procedure_type(name)
    if found is None:
        _refuse_near(name)
        return question_type(name)
    return found


def _refuse_near(name: str, following: Sequence[str] = ()) -> None:
    """Refuse what is no question, and probably meant as a procedure."""
    learned = f"{name} {_LEARNED}"
    if learned in ALIASES and did_you_mean("".join(following), [_LEARNED]):
        raise refuse_words(f"there is no question {following[0]!r} (did you mean {learned!r}?)")
    if not _NAME.fullmatch(name) or not (near := did_you_mean(name, names_of_procedures())):
        return
    try:
        question_type(name)
    except ParameterError:
        if did_you_mean(name, [*names_of_procedures(), *names_of_questions()]) == near:
            raise refuse_words(f"there is no question {name!r}{near}") from None


def _join_names(words: Sequence[str]) -> Sequence[str]:
    """Return words of which the first is the whole name of a procedure, ``forest learned``."""
    flat = [*words[0].split(), *words[1:]] if words else []
    name = " ".join(flat[:2])
    return [name, *flat[2:]] if name in ALIASES else words


def complete_asked(
    words: Sequence[str], incomplete: str, variables: Callable[[], Iterable[str]]
) -> Iterator[str]:
    """Yield what may come next, of questions and of procedures."""
    joined = _join_names(words)
    found = find_procedure_type(joined[0]) if joined else None
    if found is not None:
        yield from complete_parameters(found, joined, incomplete, variables)
        return
    if not words:
        yield from (one for one in names_of_procedures() if " " not in one)
    if f"{' '.join(words)} {_LEARNED}" in ALIASES:
        yield _LEARNED
    yield from complete_words(words, incomplete, variables)


def describe_procedure(procedure: Procedure) -> str:
    """Return a procedure in words.

    >>> import encryptedstats as es
    >>> describe_procedure(es.DecisionTree(depth=2))
    'DecisionTree depth=2'
    """
    usual = type(procedure)() if procedure.name in ALIASES.values() else None
    known = {} if usual is None else usual.parameters()
    words = [
        f"{short_name(name)}={spell(value)}"
        for name, value in procedure.parameters().items()
        if name not in known or known[name] != value
    ]
    return " ".join([procedure.name, *words])


def find_procedure_type(name: str) -> type[Procedure] | None:
    """Return the procedure of a name or of ``FILE.py:NAME``; None if there is none."""
    source, _, own = name.rpartition(":")
    if source:
        found = getattr(load_questions(source), own, None)
        is_own = isinstance(found, type) and issubclass(found, Procedure)
        return found if is_own else None
    try:
        return procedure_class(ALIASES.get(name, name))
    except FileFormatError:
        return None
