"""Questions as forms: every question that is known here, with a field for each of its parameters,
and back to the question.

The registry and the docstrings say all of it: a question of your own that is installed has its form
without a line here.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import encryptedstats as es
from encryptedstats.tables.questions.folds import Folds
from encryptedstats.tables.questions.parameters import (
    described_parameters,
    takes_several,
    value_of,
    values_of,
)
from encryptedstats.tables.questions.question import (
    asked_of,
    known_questions,
    plain,
    question_class,
)
from encryptedstats.tables.questions.summaries import Statistic

#: Headings by the module that a question is defined in, in their order.
_HEADINGS: Final = {
    "descriptive": "Describe",
    "comparisons": "Compare means",
    "contingency": "Counts and tables",
    "linear": "Regression",
    "generalized": "Regression",
    "survival": "Survival",
    "hazards": "Survival",
    "multivariate": "Many variables at once",
    "genome": "Genomes",
    "forest": "Predict a class",
    "naive_bayes": "Predict a class",
    "logistic": "Predict a class",
    "discriminants": "Predict a class",
}
_OTHERS: Final = "Others"
#: Parameters for arrays, and what only Python can say.
_NOT_ASKED: Final = frozenset({"bins"})


@dataclass(frozen=True)
class Field:
    """One parameter of a question, as a field of a form."""

    name: str
    label: str
    help: str
    kind: str  # text, number, flag, variable or variables
    value: Any
    needed: bool


@dataclass(frozen=True)
class Form:
    """A question that can be asked."""

    name: str
    title: str
    about: str
    fields: tuple[Field, ...]


def catalogue() -> dict[str, list[Form]]:
    """All questions under their headings."""
    found: dict[str, list[Form]] = {heading: [] for heading in dict.fromkeys(_HEADINGS.values())}
    for name, question in sorted(known_questions().items(), key=lambda item: item[0].lower()):
        if question is not Folds and not issubclass(question, Statistic):
            heading = _HEADINGS.get(question.__module__.rpartition(".")[2], _OTHERS)
            found.setdefault(heading, []).append(form_of(name))
    return {heading: forms for heading, forms in found.items() if forms}


def form_of(name: str, given: Mapping[str, Any] | None = None) -> Form:
    """The form of a question, filled with what was given, else with what its parameters are by
    default.
    """
    question = question_class(name)
    said = described_parameters(question)
    fields = []
    for one in inspect.signature(question).parameters.values():
        if one.name in _NOT_ASKED:
            continue
        default = None if one.default is one.empty else one.default
        value = default if given is None else given.get(one.name, default)
        kind = _kind(one, question)
        text = said.get(one.name, "").replace("``", "")
        fields.append(
            Field(
                one.name,
                _words(one.name),
                text,
                kind,
                _shown(value, kind),
                one.default is one.empty,
            )
        )
    return Form(name, title_of(name), question.about().replace("``", ""), tuple(fields))


def _kind(parameter: inspect.Parameter, question: type[es.Question]) -> str:
    if parameter.name in question.of_variables:
        return "variables" if takes_several(parameter) else "variable"
    if isinstance(parameter.default, bool):
        return "flag"
    return "number" if str(parameter.annotation) in ("int", "float") else "text"


def _shown(value: Any, kind: str) -> Any:
    if kind == "variables":
        return [] if value is None else list(value)
    if kind == "flag":
        return bool(value)
    if value is None:
        return ""
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else value


def title_of(name: str) -> str:
    """A name as words: those of classes are written together.

    >>> title_of("KaplanMeier"), title_of("PCA"), title_of("TTest"), title_of("MultinomialNB"), title_of("GLM")
    ('Kaplan Meier', 'PCA', 'T Test', 'Multinomial NB', 'GLM')
    """
    text = ""
    for place, letter in enumerate(name):
        before, after = name[place - 1 : place], name[place + 1 : place + 2]
        if letter.isupper() and before and (before.islower() or after.islower()):
            text += " "
        text += letter
    return text


def _words(parameter: str) -> str:
    return parameter.removeprefix("n_").replace("_", " ").capitalize()


def variables_for(schema: es.Schema) -> list[tuple[str, str]]:
    """What a field for variables offers: value and label, the target last."""
    found = [(variable.name, f"{variable.name} ({variable.kind})") for variable in schema.variables]
    if schema.target is not None:
        found.append((schema.target, f"{schema.target} (the target)"))
    return found


def given_in(name: str, form: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """What a form that was sent says of each parameter; what was left empty is left to the
    question.
    """
    question = question_class(name)
    found: dict[str, Any] = {}
    for one in inspect.signature(question).parameters.values():
        if one.name in _NOT_ASKED:
            continue
        kind, texts = (
            _kind(one, question),
            [text for text in form.get(one.name, ()) if text.strip()],
        )
        if kind == "flag":
            found[one.name] = bool(texts)
        elif kind == "variables" and texts:
            found[one.name] = list(texts)
        elif kind == "variable" and texts:
            found[one.name] = texts[0]
        elif texts:
            text = texts[0].strip()
            plain = str(one.annotation) == "str"
            found[one.name] = (
                text if plain else values_of(text) if takes_several(one) else value_of(text)
            )
    return found


def question_of(name: str, parameters: Mapping[str, Any], schema: es.Schema) -> es.Question:
    """The question, in the ids that a worker knows, with nothing left to chance; refused where
    these columns cannot be asked it.
    """
    found = question_class(name)
    missing = [
        one.name
        for one in inspect.signature(found).parameters.values()
        if one.default is one.empty and one.name not in parameters
    ]
    if missing:
        raise es.ArgumentError(
            f"{title_of(name)} needs {' and '.join(map(_words, missing)).lower()}: choose it below",
            code="missing-variable",
        )
    return asked_of(found(**parameters), schema).settled()


def described(name: str, parameters: Mapping[str, Any]) -> str:
    """A question in a line, as the owner asked it; what is as usual goes without saying."""
    usual = {
        one.name: one.default for one in inspect.signature(question_class(name)).parameters.values()
    }
    said = [
        f"{_words(one).lower()}: {_text(value)}"
        for one, value in parameters.items()
        if value not in ("", None) and value != usual.get(one)
    ]
    return "; ".join(said)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def asking_words(question: es.Question) -> list[str]:
    """The question as the command ``ask`` takes it."""
    usual = {
        one.name: plain(one.default)
        for one in inspect.signature(type(question)).parameters.values()
    }
    said = [
        f"{name}={value if isinstance(value, str) else json.dumps(value)}"
        for name, value in question.parameters().items()
        if value is not None and value != usual[name]
    ]
    return [question.name, *said]
