"""Questions as forms: every question that is known here, with a field for each of its parameters,
and back to the question.

The registry, the constraints and the docstrings say all of it: a question of your own that is
installed has its form without a line here.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Final

import encryptedstats as es
from encryptedstats.app.columns import (
    BINS,
    MOST_LEVELS,
    NUMBER,
    TIMES,
    draft,
    levels_by_column,
    with_times,
)
from encryptedstats.app.projects import Choices, Data
from encryptedstats.app.words import help_in_page_words, label_of
from encryptedstats.circuits.expressions import COLUMN, Expression, fold
from encryptedstats.procedures.procedure import Course, Procedure, procedure_class
from encryptedstats.procedures.site_procedure import SiteProcedure
from encryptedstats.procedures.words import ALIASES, SITE_PROCEDURES
from encryptedstats.statistics.formulas import parse
from encryptedstats.studies.documents import (
    MASKED,
    ROUNDS,
    ROWS,
    TOTALS,
    VOTES,
    AskedProcedure,
)
from encryptedstats.tables.columns import encoding_choices
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
    load_all_questions,
    plain,
    prepare_question,
    question_class,
)
from encryptedstats.tables.questions.summaries import Statistic

#: Headings by the module that a question is defined in, in their order.
_MODELS: Final = "Predict a class"
_HEADINGS: Final = {
    "descriptive": "Describe",
    "comparisons": "Compare means",
    "pairwise": "Compare means",
    "manova": "Compare means",
    "pairwise_tests": "Compare every two groups",
    "ranks": "Compare ranks",
    "contingency": "Counts and tables",
    "pairs": "Counts and tables",
    "linear": "Regression",
    "generalized": "Regression",
    "multinomial": "Regression",
    "elastic_net": "Regression",
    "survival": "Survival",
    "hazards": "Survival",
    "cox": "Survival",
    "competing": "Survival",
    "rates": "Survival",
    "scores": "Survival",
    "": _MODELS,
    "multivariate": "Many variables at once",
    "components": "Many variables at once",
    "genome": "Genomes",
}
_OTHERS: Final = "Others"
#: Questions in rounds, and their heading.
IN_ROUNDS: Final = tuple(sorted(set(ALIASES.values())))
_ROUNDS: Final = "Trees that learn their splits, in rounds"
_BY_SITES: Final = "Models that converge: sites compute at home, in rounds"
#: What only Python can say; a seed that is drawn in secret; folds, which tables here have none of.
_NOT_ASKED: Final = frozenset({"bins"})
_NOT_ASKED_IN_ROUNDS: Final = frozenset({"decoy_seed", "folds"})
#: Questions that count the classes of the target and are no models.
_OF_THE_OUTCOME: Final = frozenset({"Pairs", "PooledBoosting"})
#: Exponents of two by which sites round their totals.
_NOT_ASKED_OF_SITES: Final = frozenset({"bits"})
#: Of site procedures: the one whose outcome is a time, and those that read bins alone.
_COX: Final = "PooledCox"
_OF_BINS: Final = frozenset({"PooledBoosting"})
#: Fields that are no parameters: the target of the table, and reference levels by variable.
TARGET: Final = "outcome-column"
MODE, CALLED = "answered-from", "called-in-the-study"
_REFERENCE: Final = "reference-of-"
_IN_REGRESSIONS: Final = {
    "target": "Outcome",
    "variables": "Explained by",
    "formula": "A formula, instead of outcome and predictors",
}
#: How the sites of a study answer a question, in words.
MODES: Final = {
    ROWS: "encrypted rows",
    MASKED: "masked totals of the sites",
    TOTALS: "encrypted totals of the sites",
    VOTES: "votes for new rows",
    ROUNDS: "masked totals, round by round",
}
_ABOUT_MODES: Final = (
    "Encrypted rows: the worker computes on them. Masked totals: each site computes at home, and "
    "only the sum is seen. Encrypted totals: the worker adds them up. Votes, under a joint key: an "
    "encrypted model predicts new rows"
)
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

    @classmethod
    def of_schema(cls, schema: es.Schema) -> Offer:
        """Return what a schema offers."""
        columns = {one.name: one.kind for one in schema.variables}
        levels = {one.name: one.levels for one in schema.variables}
        if schema.target is not None:
            columns[schema.target] = "categorical" if schema.classes else "number"
            levels[schema.target] = schema.classes
        few = {name: found for name, found in levels.items() if 0 < len(found) <= MOST_LEVELS}
        return cls(columns, few, schema.target or "")

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


def catalogue(*, in_study: bool = False) -> dict[str, list[Form]]:
    """Return all questions under their headings, without fields; also those of studies alone."""
    found: dict[str, list[Form]] = {heading: [] for heading in dict.fromkeys(_HEADINGS.values())}
    for _name, question in sorted(
        load_all_questions().items(), key=lambda one: one[1].title.lower()
    ):
        if question.is_listed and question is not Folds and not issubclass(question, Statistic):
            found.setdefault(_heading_of(question), []).append(_heading_form(question))
    heading, names = (_BY_SITES, SITE_PROCEDURES) if in_study else (_ROUNDS, IN_ROUNDS)
    found[heading] = [_heading_form(procedure_class(name)) for name in names]
    return {heading: forms for heading, forms in found.items() if forms}


def _heading_form(question: type[Any]) -> Form:
    return Form(question.name, question.title, question.about().replace("``", ""))


def find_type(name: str) -> type[es.Question] | type[Procedure]:
    """Return the question of a name, or what is asked in rounds."""
    is_procedure = name in IN_ROUNDS or name in SITE_PROCEDURES
    return procedure_class(name) if is_procedure else question_class(name)


def is_known(name: str) -> bool:
    """Return whether there is such a question."""
    return name in load_all_questions() or name in IN_ROUNDS or name in SITE_PROCEDURES


def make_rounds(name: str, parameters: Mapping[str, Any]) -> Procedure | None:
    """Return what is asked in rounds; None of a question."""
    found = procedure_class(name) if name in IN_ROUNDS else None
    return None if found is None else found(**parameters)


def _heading_of(question: type[es.Question]) -> str:
    """Return the heading by the module that a question is defined in."""
    package, _, module = question.__module__.rpartition(".")
    return _MODELS if package.endswith(".models") else _HEADINGS.get(module, _OTHERS)


# -- forms
# ------------------------------------------------------------------------------------------------


def form_of(
    name: str,
    offer: Offer,
    values: Mapping[str, Any] | None = None,
    *,
    in_study: bool = False,
) -> Form:
    """Return the form of a question, filled with some values, else with its defaults. In a study
    it also says what the question is answered from.
    """
    question = find_type(name)
    said, known = described_parameters(question), constraints_of(question)
    fields: list[Field] = []
    is_model, hidden = predicts_classes(question), _NOT_ASKED
    if name in IN_ROUNDS:
        said = described_parameters(es.DecisionTree) | said
        is_model, hidden = True, hidden | _NOT_ASKED_IN_ROUNDS
    is_of_sites = name in SITE_PROCEDURES
    if is_of_sites:
        hidden = hidden | _NOT_ASKED_OF_SITES
    if needs_outcome(question):
        help = "What the model is to predict. A project has one."
        help = help if is_model else "Its levels are counted too. A project has one."
        fields.append(Field(TARGET, "Outcome", help, "choice", offer.target, True, offer.options()))
    for one in inspect.signature(question).parameters.values():
        if one.name in hidden:
            continue
        needed = one.default is one.empty
        value = None if needed else one.default
        value = value if values is None else values.get(one.name, value)
        label = "Predictors" if one.name == "variables" and is_model else label_of(one.name)
        if "formula" in known and not is_of_sites:
            label = _IN_REGRESSIONS.get(one.name, label)
        help = help_in_page_words(said.get(one.name, ""))
        field = Field(one.name, label, help, "text", value, needed)
        if isinstance(known[one.name], ReferenceLevels):
            fields += _reference_fields(value or {}, offer)
        else:
            fields.append(_fill_field(field, known[one.name], question, offer))
    if "formula" in known:  # what is chosen stands before how
        fields.sort(key=lambda one: one.name not in _IN_REGRESSIONS)
        fields.sort(key=lambda one: one.name == "formula" and not is_of_sites)
    if in_study:
        fields += _fields_of_study(values or {}, is_of_sites=is_of_sites)
    return Form(name, question.title, question.about().replace("``", ""), tuple(fields))


def _fields_of_study(values: Mapping[str, Any], *, is_of_sites: bool) -> Iterator[Field]:
    """Yield what a study needs to know of a question: how it is answered, and a name."""
    if not is_of_sites:
        mode = values.get(MODE, ROWS)
        options = tuple(Option(one, words) for one, words in MODES.items() if one != ROUNDS)
        yield Field(MODE, "Answered from", _ABOUT_MODES, "choice", mode, True, options)
    help = "A word of letters, digits and _, such as age_by_sex. The parties read it"
    yield Field(CALLED, "Name of the result", help, "text", values.get(CALLED, ""), True)


def _fill_field(
    field: Field,
    constraint: Constraint,
    question: type[es.Question] | type[Procedure],
    offer: Offer,
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
    if of == "time" and is_list:  # times are numbers, too many to choose from
        shown = ", ".join(map(str, value or ()))
        return replace(field, kind="text", value=shown, is_more=not field.needed)
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


def predicts_classes(question: type[Any]) -> bool:
    """Return whether a question is a model of the classes of the target."""
    return hasattr(question, "predict") and "formula" not in inspect.signature(question).parameters


def needs_outcome(question: type[Any]) -> bool:
    """Return whether a question is about the target of the table, which no parameter names."""
    is_named = question.name in _OF_THE_OUTCOME or question.name in IN_ROUNDS
    return is_named or predicts_classes(question)


def title_of(name: str) -> str:
    """Return what people call a question."""
    return find_type(name).title


# -- back to the question
# ------------------------------------------------------------------------------------------------


def parse_form(name: str, form: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return what a form that was sent says of each parameter; what was left empty is left to the
    question.
    """
    question = find_type(name)
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


def parse_rest(name: str, form: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return what can be read of a form that :func:`parse_form` refuses, and the formula as it was
    typed, so that nothing has to be typed again.
    """
    found: dict[str, Any] = {}
    for parameter in set(constraints_of(find_type(name))) & set(form):
        with suppress(es.EncryptedStatsError, ValueError):
            read = parse_form(name, {parameter: form[parameter]})
            found |= {one: value for one, value in read.items() if one == parameter}
    return found | ({"formula": form["formula"][0]} if form.get("formula") else {})


def _value_in(texts: list[str], parameter: str, constraint: Constraint, question: type[Any]) -> Any:
    if parameter == "variables":
        return texts
    if isinstance(constraint, ListOf):
        if parameter in question.of_variables:
            return texts
        if isinstance(constraint.item, LevelName):
            return [level for one in texts for level in _levels_in(one)]
        return values_of(texts[0])
    if parameter in question.of_variables:
        return texts[0]
    if isinstance(constraint, Choice):
        return next((one for one in constraint.values if str(one) == texts[0]), texts[0])
    is_text = str(inspect.signature(question).parameters[parameter].annotation) == "str"
    return texts[0] if is_text else value_of(texts[0])


def _levels_in(text: str) -> list[Any]:
    """Return the level that an option stands for, or several that were typed with
    commas between.
    """
    level = value_of(text)
    return [level] if level != text or "," not in text else list(values_of(text))


def question_of(name: str, parameters: Mapping[str, Any], schema: es.Schema) -> es.Question:
    """Return the question in the ids that a worker knows, with nothing left to chance; refused
    where these columns cannot be asked it.
    """
    return prepare_question(_make_question(name, parameters), schema)._fix_seed()


def check_asked(name: str, parameters: Mapping[str, Any], schema: es.Schema) -> None:
    """Refuse columns that a question, or what is asked in rounds, cannot be asked of."""
    if name in SITE_PROCEDURES:
        AskedProcedure.ask(make_site_procedure(name, parameters), schema)
    elif (procedure := make_rounds(name, parameters)) is not None:
        Course(procedure, schema)
    else:
        question_of(name, parameters, schema)


def make_site_procedure(name: str, parameters: Mapping[str, Any]) -> SiteProcedure:
    """Return what the sites of a study compute in rounds."""
    found = procedure_class(name)
    assert issubclass(found, SiteProcedure)
    _check_nothing_missing(found, parameters)
    return found(**parameters)


def _make_question(name: str, parameters: Mapping[str, Any]) -> es.Question:
    found = question_class(name)
    _check_nothing_missing(found, parameters)
    return found(**parameters)


def _check_nothing_missing(found: type[Any], parameters: Mapping[str, Any]) -> None:
    signature = inspect.signature(found).parameters.values()
    missing = [
        label_of(one.name)
        for one in signature
        if one.name not in parameters
        and (
            one.default is one.empty or (one.default == "class" and one.name in found.of_variables)
        )
    ]
    named = inspect.signature(found).parameters
    if "formula" in named and "target" in named:
        is_given = parameters.get("formula") or parameters.get("target")
        missing = missing if is_given else ["Outcome"]
    if missing:
        raise es.ArgumentError(f"choose {' and '.join(missing)} first", code="missing-variable")


# -- what a question needs of its columns
# ------------------------------------------------------------------------------------------------


def needs_of(
    name: str, parameters: Mapping[str, Any], data: Data, choices: Choices
) -> dict[str, str]:
    """Return which columns a question needs, and whether as numbers or in bins.

    It is tried on drafts of the schema: variables that one parameter names are numbers or bins
    together, and numbers come first, because they keep what bins lose; but not for times, whose
    points are levels. Raise the error of the first try where none works.
    """
    drafts = {need: draft(data, choices, need) for need in (NUMBER, BINS)}
    if (procedure := make_rounds(name, parameters)) is not None:
        return _needs_of_rounds(procedure, drafts, choices.target)
    make: Any = make_site_procedure if name in SITE_PROCEDURES else _make_question
    question = make(name, parameters)
    time = str(parameters.get("time", ""))
    if name == _COX:
        time = parse(parameters["formula"]).targets[0]
    if time in drafts[BINS].names and time != choices.target:
        drafts[BINS] = with_times(drafts[BINS], data, time)
    if needs_outcome(type(question)) and not choices.target:
        raise es.ArgumentError("choose the outcome first", code="missing-variable")
    roles = [role for role in _roles(question, drafts[NUMBER]) if role]
    failed: Exception | None = None
    is_binned = name in _OF_BINS
    orders = [(BINS, NUMBER) if role == [time] or is_binned else (NUMBER, BINS) for role in roles]
    for chosen in product((NUMBER, BINS), *orders):
        needs = {one: need for role, need in zip(roles, chosen[1:], strict=True) for one in role}
        try:
            schema = _mix_drafts(drafts, chosen[0], needs)
            if name in SITE_PROCEDURES:
                AskedProcedure.ask(question, schema)
            else:
                asked = prepare_question(question, schema)._fix_seed()
                if NUMBER in needs.values():
                    _check_reads_all(asked, schema, needs)
        except (es.EncryptedStatsError, ValueError) as error:
            failed = failed or error
            continue
        if needs_outcome(type(question)) or choices.target in needs:
            needs[choices.target] = BINS if schema.target_number is None else NUMBER
        found = {one: need if _can_be_number(drafts, one) else BINS for one, need in needs.items()}
        return found | ({time: TIMES} if found.get(time) == BINS else {})
    assert failed is not None
    raise failed


def _needs_of_rounds(
    procedure: Procedure, drafts: Mapping[str, es.Schema], target: str
) -> dict[str, str]:
    """Return the predictors in bins, and the outcome as a number if it is one."""
    if not target:
        raise es.ArgumentError("choose the outcome first", code="missing-variable")
    is_number = drafts[NUMBER].target_number is not None
    names = procedure.parameters().get("variables") or drafts[BINS].names
    needs = {str(one): BINS for one in names if one != target}
    if not needs:
        raise es.ArgumentError("choose predictors first", code="missing-variable")
    Course(procedure, _mix_drafts(drafts, NUMBER if is_number else BINS, needs))
    return {**needs, target: NUMBER if is_number else BINS}


def _check_reads_all(question: es.Question, schema: es.Schema, names: Iterable[str]) -> None:
    """Refuse a schema under which a question leaves out variables that it names, as forests do with
    numbers.
    """
    read = {one.variable for one in read_columns(question, schema)}
    unread = [name for name in names if name in schema.names and schema.index(name) not in read]
    if unread:
        raise es.ArgumentError(
            f"{question.title} cannot use {unread[0]} as a number", code="unread-variable"
        )


def read_columns(question: es.Question, schema: es.Schema) -> set[Column]:
    """Return the columns that a question reads."""
    read: set[Column] = set()

    def rule(node: Expression, _: list[None]) -> None:
        if node.op == COLUMN:
            read.add(Column.parse(node.data))

    fold(question.circuit(schema.public()), rule)
    return read


def encodings_of(questions: Iterable[es.Question], schema: es.Schema) -> list[str]:
    """Return how the table has to be stored for some questions: ranks need a grid of
    each number.
    """
    read = [column for one in questions for column in read_columns(one, schema)]
    return sorted({"onehot", *encoding_choices(read)})


def _can_be_number(drafts: Mapping[str, es.Schema], name: str) -> bool:
    """Return whether a column can be kept as a number at all."""
    schema = drafts[NUMBER]
    if name == schema.target:
        return schema.target_number is not None
    return name not in schema.names or schema[name].kind == NUMBER


def _roles(question: Any, schema: es.Schema) -> Iterator[list[str]]:
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


def _mix_drafts(
    drafts: Mapping[str, es.Schema], target: str, needs: Mapping[str, str]
) -> es.Schema:
    """Return the draft with its target as a number or in classes, and each variable as needed."""
    base = drafts[target]
    variables = tuple(drafts[needs.get(one.name, target)][one.name] for one in base.variables)
    return replace(base, variables=variables)


# -- in words
# ------------------------------------------------------------------------------------------------


def describe(name: str, parameters: Mapping[str, Any]) -> str:
    """Return a question in a line, as the owner asked it; what is as usual goes without saying."""
    usual = {
        one.name: one.default for one in inspect.signature(find_type(name)).parameters.values()
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
