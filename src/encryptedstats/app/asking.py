"""Questions as forms: every question that is known here, with a field for each of its parameters,
and back to the question.

The registry, the constraints and the docstrings say all of it: a question of your own that is
installed has its form without a line here.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Final

import encryptedstats as es
from encryptedstats.app.columns import BINS, NUMBER, draft, levels_by_column
from encryptedstats.app.projects import Choices, Data
from encryptedstats.circuits.expressions import COLUMN, Expression, fold
from encryptedstats.statistics.formulas import parse
from encryptedstats.tables.encodings import Column
from encryptedstats.tables.questions.constraints import (
    AnyOf,
    Choice,
    Constraint,
    Flag,
    Integer,
    LevelName,
    ListOf,
    RealNumber,
    ReferenceLevels,
    VariableName,
    constraints_of,
)
from encryptedstats.tables.questions.folds import Folds
from encryptedstats.tables.questions.parameters import (
    described_parameters,
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
_MODELS: Final = "Predict a class"
_HEADINGS: Final = {
    "descriptive": "Describe",
    "comparisons": "Compare means",
    "pairwise": "Compare means",
    "ranks": "Compare ranks",
    "contingency": "Counts and tables",
    "pairs": "Counts and tables",
    "linear": "Regression",
    "generalized": "Regression",
    "elastic_net": "Regression",
    "survival": "Survival",
    "hazards": "Survival",
    "cox": "Survival",
    "competing": "Survival",
    "": _MODELS,
    "multivariate": "Many variables at once",
    "genome": "Genomes",
}
_OTHERS: Final = "Others"
#: What only Python can say.
_NOT_ASKED: Final = frozenset({"bins"})
#: Fields that are no parameters: the target of the table, and reference levels by variable.
TARGET: Final = "outcome-column"
_REFERENCE: Final = "reference-of-"
_LABELS: Final = {
    "variable": "Measurement",
    "variables": "Variables",
    "other": "Second variable",
    "score": "Score",
    "by": "Groups",
    "groups": "Two of the groups, if there are more",
    "target": "Outcome",
    "first": "First variable",
    "second": "Second variable",
    "n_trees": "Number of trees",
    "n_components": "Number of components",
    "equal_var": "Assume equal variances",
    "mu": "Compare the mean with",
    "typ": "Type of the sums of squares",
    "p": "Expected shares",
    "per": "Rates per",
    "event_level": "Value that means an event",
    "event": "Event",
    "paired": "Second measurement, for pairs",
    "correction": "Continuity correction",
    "random_state": "Seed",
    "fit_intercept": "With an intercept",
    "reference": "Reference level",
    "alpha": "Alpha",
    "confidence": "Confidence level",
    "alternative": "Alternative",
    "family": "Model",
    "missing": "Rows in the bin of missing values",
    "averaged": "Trees averaged together",
}
_IN_REGRESSIONS: Final = {
    "target": "Outcome",
    "variables": "Explained by",
    "formula": "A formula, instead of outcome and predictors",
}
_CHOICES: Final = {
    "two-sided": "two-sided",
    "less": "less: the first is smaller",
    "greater": "greater: the first is larger",
    "binomial": "logistic (yes or no)",
    "poisson": "Poisson (counts)",
    "efron": "Efron",
    "breslow": "Breslow",
    "rows": "the weights of the rows",
    "level": "are a level of their own",
    "complete": "are left out",
}


@dataclass(frozen=True)
class Option:
    """What a select or a list offers; options of one group stand together."""

    value: str
    label: str
    group: str = ""


@dataclass(frozen=True)
class Field:
    """One field of a form: text, number, flag, choice, choices or checks. ``of`` is the field whose
    value says which group of options is meant.
    """

    name: str
    label: str
    help: str
    kind: str
    value: Any
    needed: bool = False
    options: tuple[Option, ...] = ()
    of: str = ""
    is_more: bool = False
    low: Any = None
    high: Any = None


@dataclass(frozen=True)
class Form:
    """A question that can be asked."""

    name: str
    title: str
    about: str
    fields: tuple[Field, ...] = ()


@dataclass(frozen=True)
class Offer:
    """What the columns of a file offer to forms: their names and kinds, and the levels of those
    that have a few.
    """

    columns: Mapping[str, str]
    levels: Mapping[str, tuple[Any, ...]]
    target: str = ""

    @classmethod
    def of(cls, data: Data, choices: Choices) -> Offer:
        """Return what a file offers."""
        schema = draft(data, choices, NUMBER)
        kinds = {one.name: one.kind for one in schema.variables}
        if schema.target is not None:
            kinds[schema.target] = "categorical" if schema.classes else "number"
        columns = {name: kinds[name] for name in data.columns if name in kinds}
        return cls(columns, levels_by_column(data, choices), choices.target)

    def options(self) -> tuple[Option, ...]:
        """Return the columns."""
        return tuple(
            Option(name, f"{name} ({'number' if kind == 'number' else 'levels'})")
            for name, kind in self.columns.items()
        )

    def level_options(self) -> tuple[Option, ...]:
        """Return the levels of all columns, each in the group of its column."""
        return tuple(
            Option(json.dumps(plain(level)), str(level), name)
            for name, levels in self.levels.items()
            for level in levels
        )


def catalogue() -> dict[str, list[Form]]:
    """Return all questions under their headings, without fields."""
    found: dict[str, list[Form]] = {heading: [] for heading in dict.fromkeys(_HEADINGS.values())}
    for name, question in sorted(known_questions().items(), key=lambda one: one[1].title.lower()):
        if question is not Folds and not issubclass(question, Statistic):
            heading = _heading_of(question)
            about = question.about().replace("``", "")
            found.setdefault(heading, []).append(Form(name, question.title, about))
    return {heading: forms for heading, forms in found.items() if forms}


def _heading_of(question: type[es.Question]) -> str:
    """Return the heading by the module that a question is defined in."""
    package, _, module = question.__module__.rpartition(".")
    return _MODELS if package.endswith(".models") else _HEADINGS.get(module, _OTHERS)


# -- forms
# ------------------------------------------------------------------------------------------------


def form_of(name: str, offer: Offer, given: Mapping[str, Any] | None = None) -> Form:
    """Return the form of a question, filled with what was given, else with its defaults."""
    question = question_class(name)
    said, known = described_parameters(question), constraints_of(question)
    fields: list[Field] = []
    is_model = predicts_classes(question)
    if is_model:
        help = "What the model is to predict. A project has one."
        fields.append(Field(TARGET, "Outcome", help, "choice", offer.target, True, offer.options()))
    for one in inspect.signature(question).parameters.values():
        if one.name in _NOT_ASKED:
            continue
        needed = one.default is one.empty
        value = None if needed else one.default
        value = value if given is None else given.get(one.name, value)
        label = "Predictors" if one.name == "variables" and is_model else label_of(one.name)
        if "formula" in known:
            label = _IN_REGRESSIONS.get(one.name, label)
        help = said.get(one.name, "").replace("``", "")
        field = Field(one.name, label, help, "text", value, needed)
        if isinstance(known[one.name], ReferenceLevels):
            fields += _reference_fields(value or {}, offer)
        else:
            fields.append(_filled(field, known[one.name], question, offer))
    if "formula" in known:  # what is chosen stands before how
        fields.sort(key=lambda one: one.name not in _IN_REGRESSIONS)
        fields.sort(key=lambda one: one.name == "formula")
    return Form(name, question.title, question.about().replace("``", ""), tuple(fields))


def _filled(
    field: Field, constraint: Constraint, question: type[es.Question], offer: Offer
) -> Field:
    """Give a field its kind, its options and its value as text, by what the parameter may be."""
    value = field.value
    of = question.of_levels.get(field.name, "")
    is_list = isinstance(constraint, ListOf) or field.name == "variables"
    kind = constraint.item if isinstance(constraint, ListOf) else constraint
    if field.name in question.of_variables or isinstance(kind, VariableName):
        if is_list:
            chosen = list(value) if value else []
            return replace(field, kind="checks", value=chosen, options=offer.options())
        value = "" if value in (None, "class") else value
        needed = field.needed or field.value == "class"
        return replace(field, kind="choice", value=value, needed=needed, options=offer.options())
    if of or isinstance(kind, LevelName):
        texts = [json.dumps(plain(one)) for one in (value or [])] if is_list else _json(value)
        shape = "choices" if is_list else "choice"
        return replace(field, kind=shape, value=texts, options=offer.level_options(), of=of)
    if isinstance(constraint, Flag):
        return replace(field, kind="flag", value=bool(value), is_more=True)
    if isinstance(constraint, Choice):
        options = tuple(Option(str(one), _choice_text(one)) for one in constraint.values)
        shown = "" if value is None else str(value)
        more = field.name not in ("family", "alternative", "test")
        return replace(
            field, kind="choice", value=shown, needed=not constraint.optional, options=options,
            is_more=more,
        )  # fmt: skip
    if isinstance(constraint, AnyOf) and any(isinstance(x, VariableName) for x in constraint.parts):
        options = tuple(Option(str(one), _choice_text(one)) for one in constraint.choices)
        return replace(
            field, kind="choice", value=value or "", options=(*options, *offer.options()),
            is_more=True,
        )  # fmt: skip
    if isinstance(constraint, (Integer, RealNumber)):
        more = not field.needed and field.name not in ("n_trees", "depth", "mu")
        low, high = (getattr(constraint, side) for side in ("low", "high"))
        low, high = (None if one is None or abs(one) >= 1e99 else one for one in (low, high))
        shown = "" if value is None else value
        shape = "integer" if isinstance(constraint, Integer) else "number"
        return replace(field, kind=shape, value=shown, low=low, high=high, is_more=more)
    shown = ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else value
    return replace(field, value="" if shown is None else shown, is_more=not field.needed)


def _json(value: Any) -> str:
    return "" if value is None else json.dumps(plain(value))


def _choice_text(value: Any) -> str:
    return _CHOICES.get(str(value), str(value))


def _reference_fields(value: Mapping[str, Any], offer: Offer) -> Iterator[Field]:
    for name, levels in offer.levels.items():
        options = tuple(Option(json.dumps(plain(level)), str(level)) for level in levels)
        shown = _json(value.get(name))
        yield Field(
            f"{_REFERENCE}{name}", f"Reference level of {name}", "", "choice", shown, False,
            options, is_more=True,
        )  # fmt: skip


def predicts_classes(question: type[es.Question]) -> bool:
    """Return whether a question is a model of the classes of the target."""
    return hasattr(question, "predict") and "formula" not in inspect.signature(question).parameters


def label_of(parameter: str) -> str:
    """Return what people call a parameter.

    >>> label_of("n_trees"), label_of("max_features")
    ('Number of trees', 'Max features')
    """
    return _LABELS.get(parameter, parameter.removeprefix("n_").replace("_", " ").capitalize())


def title_of(name: str) -> str:
    """Return what people call a question."""
    return question_class(name).title


# -- back to the question
# ------------------------------------------------------------------------------------------------


def given_in(name: str, form: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return what a form that was sent says of each parameter; what was left empty is left to the
    question.
    """
    question = question_class(name)
    found: dict[str, Any] = {}
    for parameter, constraint in constraints_of(question).items():
        texts = [text.strip() for text in form.get(parameter, ()) if text.strip()]
        if parameter in _NOT_ASKED:
            continue
        if parameter == "formula":
            if texts:
                found[parameter] = str(parse(texts[0]))
        elif isinstance(constraint, ReferenceLevels):
            levels = {
                key.removeprefix(_REFERENCE): value_of(chosen[0])
                for key, chosen in form.items()
                if key.startswith(_REFERENCE) and chosen and chosen[0]
            }
            if levels:
                found[parameter] = levels
        elif isinstance(constraint, Flag):
            found[parameter] = bool(texts)
        elif texts:
            found[parameter] = _value_in(texts, parameter, constraint, question)
    return found


def _value_in(
    texts: list[str], parameter: str, constraint: Constraint, question: type[es.Question]
) -> Any:
    if parameter == "variables":
        return texts
    if isinstance(constraint, ListOf):
        if parameter in question.of_variables:
            return texts
        if isinstance(constraint.item, LevelName):
            return [value_of(one) for one in texts]
        return values_of(texts[0])
    if parameter in question.of_variables:
        return texts[0]
    if isinstance(constraint, Choice):
        return next((one for one in constraint.values if str(one) == texts[0]), texts[0])
    is_text = str(inspect.signature(question).parameters[parameter].annotation) == "str"
    return texts[0] if is_text else value_of(texts[0])


def question_of(name: str, parameters: Mapping[str, Any], schema: es.Schema) -> es.Question:
    """Return the question in the ids that a worker knows, with nothing left to chance; refused
    where these columns cannot be asked it.
    """
    return asked_of(_made(name, parameters), schema)._settled()


def _made(name: str, parameters: Mapping[str, Any]) -> es.Question:
    found = question_class(name)
    signature = inspect.signature(found).parameters.values()
    missing = [
        label_of(one.name)
        for one in signature
        if one.name not in parameters
        and (
            one.default is one.empty or (one.default == "class" and one.name in found.of_variables)
        )
    ]
    if "formula" in inspect.signature(found).parameters and not (
        parameters.get("formula") or parameters.get("target")
    ):
        missing = ["Outcome"]
    if missing:
        raise es.ArgumentError(f"choose {' and '.join(missing)} first", code="missing-variable")
    return found(**parameters)


# -- what a question needs of its columns
# ------------------------------------------------------------------------------------------------


def needs_of(
    name: str, parameters: Mapping[str, Any], data: Data, choices: Choices
) -> dict[str, str]:
    """Return which columns a question needs, and whether as numbers or in bins.

    It is tried on drafts of the schema: variables that one parameter names are numbers or bins
    together, and numbers come first, because they keep what bins lose. Raise the error of the first
    try where none works.
    """
    question = _made(name, parameters)
    drafts = {need: draft(data, choices, need) for need in (NUMBER, BINS)}
    if predicts_classes(type(question)) and not choices.target:
        raise es.ArgumentError("choose the outcome first", code="missing-variable")
    roles = [role for role in _roles(question, drafts[NUMBER]) if role]
    failed: Exception | None = None
    for chosen in product((NUMBER, BINS), repeat=len(roles) + 1):
        needs = {one: need for role, need in zip(roles, chosen[1:], strict=True) for one in role}
        try:
            schema = _mixed(drafts, chosen[0], needs)
            asked = asked_of(question, schema)._settled()
            if NUMBER in needs.values():
                _check_reads_all(asked, schema, needs)
        except (es.EncryptedStatsError, ValueError) as error:
            failed = failed or error
            continue
        if predicts_classes(type(question)) or choices.target in needs:
            needs[choices.target] = BINS if schema.target_number is None else NUMBER
        return {one: need if _can_be_number(drafts, one) else BINS for one, need in needs.items()}
    assert failed is not None
    raise failed


def _check_reads_all(question: es.Question, schema: es.Schema, names: Iterable[str]) -> None:
    """Refuse a schema under which a question leaves out variables that it names, as forests do with
    numbers.
    """
    read: set[int] = set()

    def rule(node: Expression, _: list[None]) -> None:
        if node.op == COLUMN:
            read.add(Column.parse(node.data).variable)

    fold(question.circuit(schema.public()), rule)
    unread = [name for name in names if name in schema.names and schema.index(name) not in read]
    if unread:
        raise es.ArgumentError(
            f"{question.title} cannot use {unread[0]} as a number", code="unread-variable"
        )


def _can_be_number(drafts: Mapping[str, es.Schema], name: str) -> bool:
    """Return whether a column can be kept as a number at all."""
    schema = drafts[NUMBER]
    if name == schema.target:
        return schema.target_number is not None
    return name not in schema.names or schema[name].kind == NUMBER


def _roles(question: es.Question, schema: es.Schema) -> Iterator[list[str]]:
    """Yield the variables that each parameter, or side of the formula, names."""
    names = [one for one in schema.names if one != schema.target]
    parameters = question.parameters()
    if parameters.get("formula"):
        formula = parse(parameters["formula"])
        yield list(formula.targets)
        others = [one for one in names if one not in formula.targets]
        yield others if formula.has_dot else list(formula.right.names)
    if parameters.get("weights") in names:
        yield [parameters["weights"]]
    for parameter in question.of_variables:
        value = parameters.get(parameter)
        if isinstance(value, str):
            yield [value]
        elif value:
            yield list(map(str, value))
        elif parameter == "variables" and not parameters.get("formula"):
            yield [one for one in names if one != parameters.get("target")]


def _mixed(drafts: Mapping[str, es.Schema], target: str, needs: Mapping[str, str]) -> es.Schema:
    """Return the draft with its target as a number or in classes, and each variable as needed."""
    base = drafts[target]
    variables = tuple(drafts[needs.get(one.name, target)][one.name] for one in base.variables)
    return replace(base, variables=variables)


# -- in words
# ------------------------------------------------------------------------------------------------


def described(name: str, parameters: Mapping[str, Any]) -> str:
    """Return a question in a line, as the owner asked it; what is as usual goes without saying."""
    usual = {
        one.name: one.default for one in inspect.signature(question_class(name)).parameters.values()
    }
    said = [
        f"{label_of(one).lower()}: {_text(value)}"
        for one, value in parameters.items()
        if value not in ("", None) and value != usual.get(one)
    ]
    return "; ".join(said)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {one}" for key, one in value.items())
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def asking_words(question: es.Question) -> list[str]:
    """Return the question as the command ``ask`` takes it."""
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
