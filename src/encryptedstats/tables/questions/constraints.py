"""What the parameters of a question may be, as data.

A question declares ``constraints``, a mapping from its parameters to the classes below. Parameters
that it does not declare follow from its ``of_variables``, its ``of_levels`` and its annotations.
The same declaration refuses a wrong value, writes the JSON Schema of the service, completes choices
in a shell and fills the selects of a page.
"""

from __future__ import annotations

import inspect
import re
import reprlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

import numpy as np

from encryptedstats.checks import as_integer
from encryptedstats.errors import Cure, ParameterError

if TYPE_CHECKING:
    from encryptedstats.tables.questions.question import Question

#: The largest number of a parameter: its square still is a number.
LARGEST: Final = 1e100
JsonSchema = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Constraint(ABC):
    """What one parameter may be.

    Attributes
    ----------
    code : str
        Code of the error that refuses another value.
    optional : bool
        Whether None is allowed as well.
    """

    code: str = ""
    optional: bool = False
    default_code: ClassVar[str] = "invalid-parameter"

    @abstractmethod
    def accepts(self, value: Any) -> bool:
        """Return whether a value other than None is allowed."""

    @property
    @abstractmethod
    def words(self) -> str:
        """What is allowed, for the end of an error: ``a number above 0``."""

    @abstractmethod
    def json_schema(self) -> JsonSchema:
        """Return the JSON Schema of the values other than None."""

    @property
    def choices(self) -> tuple[Any, ...]:
        """All allowed values, where they can be listed."""
        return ()

    def check(self, value: Any, name: str) -> None:
        """Raise ParameterError if a value of the parameter ``name`` is not allowed."""
        if (value is None and self.optional) or (value is not None and self.accepts(value)):
            return
        cause = Cure("parameter", f"{name}={shorten(value)}", {"parameter": name, "value": value})
        raise ParameterError(
            cause, f": {self.words} is needed", code=self.code or self.default_code
        )

    def full_schema(self) -> JsonSchema:
        """Return the JSON Schema of all allowed values."""
        found = self.json_schema()
        return {"anyOf": [found, {"type": "null"}]} if self.optional and found else found


@dataclass(frozen=True, kw_only=True)
class Choice(Constraint):
    """One of some values."""

    values: tuple[Any, ...]
    default_code: ClassVar[str] = "unknown-choice"

    def accepts(self, value: Any) -> bool:
        own = value.item() if isinstance(value, np.generic) else value
        return any(type(own) is type(one) and own == one for one in self.values)

    @property
    def words(self) -> str:
        return f"one of {', '.join(map(repr, self.values))}"

    @property
    def choices(self) -> tuple[Any, ...]:
        return self.values

    def json_schema(self) -> JsonSchema:
        return {"enum": list(self.values)}


@dataclass(frozen=True, kw_only=True)
class Flag(Constraint):
    """True or false, and nothing that Python takes for it: ``"no"`` would count as true."""

    default_code: ClassVar[str] = "not-yes-or-no"
    words = "true or false"

    def accepts(self, value: Any) -> bool:
        return isinstance(value, (bool, np.bool_))

    @property
    def choices(self) -> tuple[Any, ...]:
        return (True, False)

    def json_schema(self) -> JsonSchema:
        return {"type": "boolean"}


@dataclass(frozen=True, kw_only=True)
class RealNumber(Constraint):
    """A real number between two limits; ``closed`` says which of them are allowed themselves."""

    low: float = -LARGEST
    high: float = LARGEST
    closed: Literal["both", "left", "right", "neither"] = "both"
    default_code: ClassVar[str] = "not-a-number"

    def accepts(self, value: Any) -> bool:
        if isinstance(value, (bool, np.bool_)) or not isinstance(value, Real):
            return False
        value = value.item() if isinstance(value, np.generic) else value
        above = value >= self.low if self.closed in ("both", "left") else value > self.low
        below = value <= self.high if self.closed in ("both", "right") else value < self.high
        return bool(above and below) and abs(value) <= LARGEST

    @property
    def words(self) -> str:
        if self.low == -LARGEST and self.high == LARGEST:
            return f"a number of at most {LARGEST:g} in size"
        low = f"{'of at least' if self.closed in ('both', 'left') else 'above'} {self.low:g}"
        high = f"{'at most' if self.closed in ('both', 'right') else 'below'} {self.high:g}"
        return f"a number {low}" if self.high == LARGEST else f"a number {low} and {high}"

    def json_schema(self) -> JsonSchema:
        low = "minimum" if self.closed in ("both", "left") else "exclusiveMinimum"
        high = "maximum" if self.closed in ("both", "right") else "exclusiveMaximum"
        limits = {low: self.low, high: self.high}
        return {"type": "number"} | {k: v for k, v in limits.items() if abs(v) < LARGEST}


@dataclass(frozen=True, kw_only=True)
class Integer(Constraint):
    """An integer between two limits, which are allowed themselves."""

    low: int | None = None
    high: int | None = None
    default_code: ClassVar[str] = "not-an-integer"

    def accepts(self, value: Any) -> bool:
        number = as_integer(value)
        return (
            number is not None
            and (self.low is None or number >= self.low)
            and (self.high is None or number <= self.high)
        )

    @property
    def words(self) -> str:
        if self.low is None:
            return "an integer"
        if self.high is None:
            return f"an integer of at least {self.low}"
        return f"an integer from {self.low} to {self.high}"

    def json_schema(self) -> JsonSchema:
        limits = {"minimum": self.low, "maximum": self.high}
        return {"type": "integer"} | {k: v for k, v in limits.items() if v is not None}


@dataclass(frozen=True, kw_only=True)
class Text(Constraint):
    """A text, such as a formula."""

    default_code: ClassVar[str] = "not-text"
    words = "a text"

    def accepts(self, value: Any) -> bool:
        return isinstance(value, str)

    def json_schema(self) -> JsonSchema:
        return {"type": "string"}


@dataclass(frozen=True, kw_only=True)
class VariableName(Constraint):
    """A variable: by name for its owner, by id for a worker."""

    default_code: ClassVar[str] = "not-a-variable"
    words = "the name of a variable"

    def accepts(self, value: Any) -> bool:
        return isinstance(value, str) or as_integer(value) is not None

    def json_schema(self) -> JsonSchema:
        return {
            "type": "string",
            "description": "The id of a variable, such as v0, or class for the target.",
        }


@dataclass(frozen=True, kw_only=True)
class LevelName(Constraint):
    """A level of a variable: any value for its owner, ``bin2`` or ``class1`` for a worker. The
    schema knows which levels there are.
    """

    default_code: ClassVar[str] = "not-a-level"
    words = "a level"

    def accepts(self, value: Any) -> bool:
        return True

    def json_schema(self) -> JsonSchema:
        return {
            "type": "string",
            "description": "The id of a level, such as bin2, or class1 for a class of the target.",
        }


@dataclass(frozen=True, kw_only=True)
class ListOf(Constraint):
    """A list; each item is checked as well, and refused with its own code."""

    item: Constraint
    least: int = 0
    default_code: ClassVar[str] = "not-a-list"

    def accepts(self, value: Any) -> bool:
        return isinstance(value, (list, tuple, np.ndarray)) and len(value) >= self.least

    def check(self, value: Any, name: str) -> None:
        super().check(value, name)
        for one in () if value is None else value:
            self.item.check(one, name)

    @property
    def words(self) -> str:
        return f"a list ({self.item.words} for each item)"

    @property
    def choices(self) -> tuple[Any, ...]:
        return self.item.choices

    def json_schema(self) -> JsonSchema:
        least = {"minItems": self.least} if self.least else {}
        return {"type": "array", "items": self.item.json_schema(), **least}


@dataclass(frozen=True, kw_only=True)
class ReferenceLevels(Constraint):
    """A mapping from variables to the level that their other levels are compared with."""

    default_code: ClassVar[str] = "not-a-mapping"
    words = "a mapping from variables to levels"

    def accepts(self, value: Any) -> bool:
        return isinstance(value, Mapping) and all(isinstance(name, str) for name in value)

    def json_schema(self) -> JsonSchema:
        return {"type": "object", "additionalProperties": LevelName().json_schema()}


@dataclass(frozen=True, kw_only=True)
class AnyOf(Constraint):
    """Any value that one of several constraints allows."""

    parts: tuple[Constraint, ...]

    def accepts(self, value: Any) -> bool:
        return any(one.accepts(value) for one in self.parts)

    @property
    def words(self) -> str:
        return ", or ".join(one.words for one in self.parts)

    @property
    def choices(self) -> tuple[Any, ...]:
        return tuple(value for one in self.parts for value in one.choices)

    def json_schema(self) -> JsonSchema:
        return {"anyOf": [one.json_schema() for one in self.parts]}


@dataclass(frozen=True, kw_only=True)
class Anything(Constraint):
    """Any JSON value: for parameters of questions that declare nothing of them."""

    words = "a value"

    def accepts(self, value: Any) -> bool:
        return True

    def json_schema(self) -> JsonSchema:
        return {}


Constraints = Mapping[str, Constraint]

CONFIDENCE: Final = RealNumber(low=0, high=1, closed="neither", code="confidence-out-of-range")
ALTERNATIVE: Final = Choice(values=("two-sided", "less", "greater"), code="unknown-alternative")
ALPHA: Final = RealNumber(low=0, code="alpha-out-of-range")
NUMBERS: Final = ListOf(item=RealNumber(), code="not-numbers", optional=True)

_TYPES: Final[Mapping[str, Constraint]] = {
    "bool": Flag(),
    "int": Integer(),
    "float": RealNumber(),
    "str": Text(),
}
_LIST: Final = re.compile(r"(list|tuple|Sequence|Names)\b")


def constraints_of(question: Any) -> dict[str, Constraint]:
    """Return the constraint of every parameter of a question, or of anything else that declares
    them, in the order of its parameters.

    >>> import encryptedstats as es
    >>> constraints_of(es.TTest)["alternative"].choices
    ('two-sided', 'less', 'greater')
    """
    return dict(_constraints_of(question))


@lru_cache(maxsize=256)
def _constraints_of(question: type[Any]) -> Mapping[str, Constraint]:
    # Cached: a question is checked several times, and a signature takes long.
    declared: dict[str, Constraint] = {}
    for base in reversed(question.__mro__):
        declared |= vars(base).get("constraints", {})
    return {
        one.name: declared.get(one.name) or _derive(one, question)
        for one in inspect.signature(question).parameters.values()
    }


def check_values(question: type[Question], values: Mapping[str, Any]) -> None:
    """Raise ParameterError for the first of some parameters of a question that is not allowed."""
    for name, constraint in constraints_of(question).items():
        if name in values:
            constraint.check(values[name], name)


def parameters_schema(
    question: type[Question], descriptions: Mapping[str, str] | None = None
) -> JsonSchema:
    """Return the JSON Schema of the parameters of a question; those with a default may be left out.

    >>> import encryptedstats as es
    >>> parameters_schema(es.MultinomialNB)["properties"]["alpha"]
    {'type': 'number', 'minimum': 0, 'default': 1.0}
    """
    signature = inspect.signature(question).parameters
    properties: dict[str, JsonSchema] = {}
    for name, constraint in constraints_of(question).items():
        found, default = constraint.full_schema(), signature[name].default
        if default is not inspect.Parameter.empty:
            found = {**found, "default": list(default) if isinstance(default, tuple) else default}
        if descriptions and descriptions.get(name):
            found = {**found, "description": descriptions[name]}
        properties[name] = found
    needed = [name for name, one in signature.items() if one.default is inspect.Parameter.empty]
    return {
        "type": "object",
        "properties": properties,
        "required": needed,
        "additionalProperties": False,
    }


def example_parameters(question: type[Question]) -> dict[str, Any]:
    """Return an allowed value for each parameter of a question that has no default.

    >>> import encryptedstats as es
    >>> example_parameters(es.TTest)
    {'variable': 'v0'}
    """
    signature = inspect.signature(question).parameters
    variables = iter(["v0", "class", "v1", "v2", "v3"])
    return {
        name: _example(one, variables)
        for name, one in constraints_of(question).items()
        if signature[name].default is inspect.Parameter.empty
    }


def _example(constraint: Constraint, variables: Iterator[str]) -> Any:
    if isinstance(constraint, AnyOf):
        return _example(constraint.parts[0], variables)
    if isinstance(constraint, ListOf):
        return [_example(constraint.item, variables) for _ in range(max(1, constraint.least))]
    if isinstance(constraint, VariableName):
        return next(variables)
    if isinstance(constraint, LevelName):
        return "bin0"
    if constraint.choices:
        return constraint.choices[0]
    return "~ v0" if isinstance(constraint, Text) else 1


def shorten(value: Any) -> str:
    """Return a value for an error, shortened where it is long."""
    try:
        return reprlib.repr(value)
    except ValueError:  # a number of more digits than Python writes
        return "a number that is too long to show"


def _derive(parameter: inspect.Parameter, question: type[Any]) -> Constraint:
    annotation = parameter.annotation
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    optional = parameter.default is None or "None" in str(annotation)
    several = bool(_LIST.match(text)) or isinstance(parameter.default, (list, tuple))
    names: dict[str, Constraint] = {
        **dict.fromkeys(question.of_variables, VariableName()),
        **dict.fromkeys(question.of_levels, LevelName()),
    }
    if parameter.name in names:
        if text.startswith(("Mapping", "dict")) or (
            text == "Any" and not several and parameter.name in question.of_variables
        ):
            return Anything(optional=True)
        item = names[parameter.name]
        return ListOf(item=item, optional=optional) if several else _optional(item, optional)
    plain = text.removesuffix(" | None")
    return _optional(_TYPES[plain], optional) if plain in _TYPES else Anything(optional=True)


def _optional(constraint: Constraint, optional: bool) -> Constraint:
    return type(constraint)(optional=True) if optional else constraint
