"""Variables: `Variable` for the owner, `PublicVariable` and `PublicSchema` for workers.

The one idea: bins are numbered, and everything that gives those numbers a meaning (names, cut
points, levels, classes) stays with the owner. `PublicSchema` is all that a worker gets.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from itertools import pairwise
from math import isfinite
from typing import Any, ClassVar

import numpy as np

from encryptedstats.errors import Cure, SchemaError
from encryptedstats.storage.files import PUBLIC
from encryptedstats.tables.schema.bins import LARGEST_INTEGER, check_digits
from encryptedstats.tables.schema.documents import (
    LEVEL,
    NUMBER,
    OPTIONAL_INT,
    Document,
    Types,
    check_fields,
    check_items,
    quote,
)
from encryptedstats.tables.schema.genome import PublicGenome
from encryptedstats.words import did_you_mean

Level = str | int | float | bool
KINDS = ("continuous", "ordinal", "categorical", "number")
#: What callers name a number that has bins as well: its kind is ``"number"``, and it has edges.
BOTH = "both"
#: Kinds whose bins have an order, and hence ordinal codes.
ORDERED_KINDS = ("continuous", "ordinal")
#: What becomes of a level that the schema does not know.
UNKNOWN_POLICIES = ("error", "other", "missing")
#: What a target is called where names are not known.
TARGET = "target"
#: The level for rare and unknown ones, where the owner names no other.
OTHER = "other"


#: How a column is kept as numbers.
KEEP_NUMBERS = Cure("keep numbers", "schema.with_kind(name, 'number', digits=...)")


def as_level(value: object) -> Level:
    """Return a level or class label as a plain Python value; whole floats become integers (1.0 is
    the label 1).

    Columns of integers turn into floats when a value is missing, so 1 and 1.0 must be one label.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        if not isfinite(value):
            raise SchemaError(f"{value} cannot be a level", code="level-not-finite")
        return int(value) if value.is_integer() else value
    if isinstance(value, str):
        return str(value)  # also unwraps subclasses of str
    if isinstance(value, (bool, int)):
        return value
    raise SchemaError(
        f"levels are text, numbers or booleans, not {type(value).__name__} ({value!r}): convert "
        "it first",
        code="wrong-level-type",
    )


def as_levels(values: Iterable[object], where: str) -> tuple[Level, ...]:
    """Return all levels of `where` as plain Python values, in the order given, each once."""
    try:
        levels = tuple(as_level(value) for value in values)
    except SchemaError as error:
        raise SchemaError(f"{where}: {error}") from None
    twice = [level for level, count in Counter(levels).items() if count > 1]
    if twice:
        raise SchemaError(f"{where}: level {twice[0]!r} is given twice", code="duplicate-levels")
    return levels


def check_kind(kind: str, where: str) -> None:
    """Refuse kinds that no variable has."""
    _check_among(kind, KINDS, where)


def check_wanted_kind(kind: str, where: str) -> None:
    """Refuse kinds that nobody can ask for: those of variables, or ``"both"``."""
    _check_among(kind, (*KINDS, BOTH), where)


def _check_among(kind: str, kinds: Sequence[str], where: str) -> None:
    if kind not in kinds:
        raise SchemaError(
            f"{where}: kind {kind!r} does not exist; the kinds are {', '.join(kinds)}",
            code="unknown-kind",
        )


def check_unknown(unknown: object, where: str = "") -> None:
    """Refuse policies for unknown levels that do not exist."""
    if unknown not in UNKNOWN_POLICIES:
        raise SchemaError(
            f"{where}{where and ': '}unknown={unknown!r}: one of {quote(UNKNOWN_POLICIES)} is "
            "needed",
            code="unknown-unknown-policy",
        )


@dataclass(frozen=True)
class Variable:
    """One predictor: its name, its kind, and how its values become bins or an integer.

    Parameters
    ----------
    name
        Name of the column.
    kind
        ``"continuous"`` (cut at `edges`), ``"ordinal"`` (cut at `edges`, or one bin for each of the
        ordered `levels`), ``"categorical"`` (one bin for each of the `levels`) or ``"number"`` (a
        fixed-point integer, which has bins as well if there are `edges`).
    edges
        Inner cut points, increasing: m cut points make m + 1 bins. Bin k holds ``edges[k-1] < x <=
        edges[k]``, the outermost bins are unbounded. Of a number, x is its rounded value.
    levels
        Values that have a bin each.
    digits, low, high
        For a number: x is kept as ``round(10**digits * x)``, an integer that must lie in
        ``low..high``.
    missing_bin
        Whether values may be missing. A last bin then holds such rows; of a number a column says
        which rows have it.
    asked_bins
        How many bins were asked for when `edges` were inferred; ties can leave fewer, see `note`.
    other
        The one of the `levels` whose bin also takes what has none of its own: rare levels, and
        unknown ones where `unknown` says so.
    rare
        Levels that are known, and count as `other`.
    unknown
        What becomes of a level that is neither in `levels` nor in `rare`: ``"error"``, ``"other"``
        (it counts as that level) or ``"missing"`` (it counts as missing, and needs a bin for that).
    dates
        Whether values are days since 1970-01-01, which are shown as dates. It changes no bin.

    Examples
    --------
    >>> age = Variable("age", "continuous", edges=(18, 65), missing_bin=True)
    >>> age.n_bins, age.labels
    (4, ('(-inf, 18.0]', '(18.0, 65.0]', '(65.0, inf)', 'missing'))
    """

    name: str
    kind: str
    edges: tuple[float, ...] = ()
    levels: tuple[Level, ...] = ()
    digits: int | None = None
    low: int | None = None
    high: int | None = None
    missing_bin: bool = False
    asked_bins: int | None = None
    other: Level | None = None
    rare: tuple[Level, ...] = ()
    unknown: str = "error"
    dates: bool = field(default=False, compare=False)

    _FIELDS: ClassVar[Mapping[str, Types]] = {
        "name": (str,),
        "kind": (str,),
        "edges": (list,),
        "levels": (list,),
        "digits": OPTIONAL_INT,
        "low": OPTIONAL_INT,
        "high": OPTIONAL_INT,
        "missing_bin": (bool,),
        "asked_bins": OPTIONAL_INT,
        "other": (*LEVEL, type(None)),
        "rare": (list,),
        "unknown": (str,),
        "dates": (bool,),
    }

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise SchemaError(f"variable name {self.name!r}: text is needed", code="name-not-text")
        check_kind(self.kind, self._where)
        object.__setattr__(self, "edges", _as_edges(self.edges, self._where))
        object.__setattr__(self, "levels", as_levels(self.levels, self._where))
        object.__setattr__(self, "rare", as_levels(self.rare, f"{self._where}, rare levels"))
        self._check_policy()
        if self.kind == "number":
            self._check_number()
        else:
            self._check_bins()

    @property
    def _where(self) -> str:
        return f"variable {self.name!r}"

    def _check_policy(self) -> None:
        check_unknown(self.unknown, self._where)
        if self.other is not None and self.other not in self.levels:
            raise SchemaError(
                f"{self._where}: other={self.other!r} is none of its levels ({quote(self.levels)})",
                code="other-not-a-level",
            )
        if self.other is None and (self.rare or self.unknown == "other"):
            what = "rare levels go" if self.rare else "unknown='other' sends unknown levels"
            raise SchemaError(
                f"{self._where}: {what} into the level other, and there is none: other= names one "
                "of the levels",
                code="other-level-missing",
            )
        both = [level for level in self.rare if level in self.levels]
        if both:
            raise SchemaError(
                f"{self._where}: level {both[0]!r} is in levels and in rare: a level has one bin",
                code="level-also-rare",
            )
        if self.unknown == "missing" and not (self.levels and self.missing_bin):
            raise SchemaError(
                f"{self._where}: unknown='missing' is for levels, and needs missing_bin",
                code="unknown-without-missing-bin",
            )

    def _check_number(self) -> None:
        if self.levels or not (self.edges or self.asked_bins is None):
            raise SchemaError(
                f"{self._where}: a number has no levels, and its bins are cut at edges",
                code="number-with-levels",
            )
        if self.low is None or self.high is None or self.digits is None:
            raise SchemaError(
                f"{self._where}: a number needs digits, low and high", code="number-without-range"
            )
        object.__setattr__(self, "digits", check_digits(self.digits))
        try:
            for side in ("low", "high"):
                object.__setattr__(self, side, operator.index(getattr(self, side)))
        except TypeError:
            raise SchemaError(
                f"{self._where}: low={self.low!r}, high={self.high!r} are not integers",
                code="not-an-integer",
            ) from None
        if not -LARGEST_INTEGER <= self.low <= self.high <= LARGEST_INTEGER:
            raise SchemaError(
                f"{self._where}: low={self.low}, high={self.high} is no range within -2**62..2**62",
                code="impossible-range",
            )
        self._check_asked_bins()

    def _check_bins(self) -> None:
        if (self.digits, self.low, self.high) != (None, None, None):
            raise SchemaError(
                f"{self._where}: digits, low and high are for kind 'number', not {self.kind!r}",
                code="range-without-number",
            )
        if self.edges and self.levels:
            raise SchemaError(
                f"{self._where}: either edges or levels, not both", code="edges-and-levels"
            )
        if self.kind == "continuous" and self.levels:
            raise SchemaError(
                f"{self._where}: a continuous variable has edges, not levels",
                code="continuous-with-levels",
            )
        if self.kind == "categorical" and not self.levels:
            raise SchemaError(
                f"{self._where}: a categorical variable needs levels",
                code="categorical-without-levels",
            )
        self._check_asked_bins()

    def _check_asked_bins(self) -> None:
        if self.asked_bins is not None and (self.levels or self.asked_bins < len(self.edges) + 1):
            raise SchemaError(
                (
                    f"{self._where}: asked_bins={self.asked_bins} does not go with its edges and "
                    "levels"
                ),
                code="wrong-asked-bins",
            )

    @property
    def n_bins(self) -> int:
        """Number of bins, the one for missing values included; 0 for a number without edges."""
        if self.kind == "number" and not self.edges:
            return 0
        return (len(self.levels) or len(self.edges) + 1) + self.missing_bin

    @property
    def labels(self) -> tuple[str, ...]:
        """The bins for display, all different: ``(1.5, 3.0]`` (to six digits), the level, or
        ``missing``.
        """
        if not self.n_bins:
            return ()
        labels = self._level_labels() if self.levels else self._edge_labels()
        return (*labels, "missing") if self.missing_bin else labels

    def _level_labels(self) -> tuple[str, ...]:
        labels = tuple(map(self._show, self.levels))
        # 1 and "1" are two levels, and "missing" may be a level of its own: then quotes tell them
        # apart.
        ambiguous = len(set(labels)) < len(labels) or (self.missing_bin and "missing" in labels)
        return tuple(map(repr, self.levels)) if ambiguous else labels

    def _edge_labels(self) -> tuple[str, ...]:
        if self.dates:
            bounds = ["-inf", *map(date_text, self.edges)]
            return (*(f"({low}, {high}]" for low, high in pairwise(bounds)), f"({bounds[-1]}, inf)")
        shown = [edge if edge.is_integer() else float(f"{edge:.6g}") for edge in self.edges]
        exact = len(set(shown)) < len(
            shown
        )  # six digits are for the eye, but must tell the cut points apart
        bounds = ["-inf", *map(repr, self.edges if exact else shown)]
        return (*(f"({low}, {high}]" for low, high in pairwise(bounds)), f"({bounds[-1]}, inf)")

    @property
    def note(self) -> str:
        """Why there are fewer bins than were asked for; empty if there are not."""
        n_values = self.n_bins - self.missing_bin
        if self.asked_bins is not None and n_values < self.asked_bins:
            cause = "constant" if n_values == 1 else "ties"
            return f"{self.asked_bins} bins asked, {n_values} left: {cause}"
        return "constant: one bin" if n_values == 1 else ""

    def describe(self) -> str:
        """Return the bins, the bounds of a number, or both in one line."""
        if self.kind == "number":
            gaps = "; values may be missing" if self.missing_bin else ""
            bins = f"; {self._describe_bins()}" if self.n_bins else ""
            if self.dates:
                scale = 10 ** (self.digits or 0)
                first, last = (date_text((bound or 0) / scale) for bound in (self.low, self.high))
                return f"dates, {first} to {last}{gaps}{bins}"
            return f"round(10**{self.digits} * x) in {self.low}..{self.high}{gaps}{bins}"
        return self._describe_bins()

    def _show(self, level: Level) -> str:
        is_day = self.dates and isinstance(level, (int, float)) and not isinstance(level, bool)
        return date_text(float(level)) if is_day else str(level)

    def _describe_bins(self) -> str:
        labels = self.labels
        shown = (
            " ".join(labels) if len(labels) <= 6 else " ".join((*labels[:3], "...", *labels[-2:]))
        )
        return (
            f"{self.n_bins} bin{'s' if self.n_bins > 1 else ''}: "
            f"{shown}{self.policy and '; '}{self.policy}"
        )

    @property
    def policy(self) -> str:
        """Where levels without a bin of their own go, in words; empty if they are an error."""
        as_other = [f"{len(self.rare)} rare"] if self.rare else []
        if self.unknown == "missing":
            return " and ".join(
                [*(f"{few} as {self.other}" for few in as_other), "unknown as missing"]
            )
        if self.unknown == "other":
            as_other.append("unknown")
        return f"{' and '.join(as_other)} as {self.other}" if as_other else ""

    def with_unknown(self, unknown: str, other: object = None) -> Variable:
        """Set the policy for unknown levels, and add the bin that it needs."""
        check_unknown(unknown, self._where)
        if not self.levels:
            raise SchemaError(
                f"{self._where} has no levels: no value of a {self.kind} variable is unknown",
                code="no-levels",
            )
        if unknown == "missing":
            return replace(self, unknown=unknown, missing_bin=True)
        if unknown == "other" or other is not None:
            return replace(self._with_other(other), unknown=unknown)
        return replace(self, unknown=unknown)

    def with_rare(self, rare: Iterable[object], other: object = None) -> Variable:
        """Count some of the levels as other."""
        if not self.levels:
            raise SchemaError(
                f"{self._where} has no levels: a {self.kind} variable has no rare ones",
                code="no-levels",
            )
        few = as_levels(rare, f"{self._where}, rare levels")
        if not few:
            return self
        made = self._with_other(other)
        kept = tuple(level for level in made.levels if level not in few or level == made.other)
        if kept == (made.other,):
            raise SchemaError(
                f"{self._where}: every level is rare, and one bin for all of them tells nothing: ",
                Cure("leave column out", "leave the column out"),
                ", or ask for less",
                code="every-level-rare",
            )
        return replace(
            made,
            levels=kept,
            rare=tuple(dict.fromkeys((*made.rare, *(x for x in few if x != made.other)))),
        )

    def _with_other(self, other: object) -> Variable:
        level = (
            as_level(other) if other is not None else OTHER if self.other is None else self.other
        )
        if level in self.levels:
            return replace(self, other=level)
        return replace(
            self,
            levels=(*self.levels, level),
            rare=tuple(x for x in self.rare if x != level),
            other=level,
        )

    @property
    def strict(self) -> Variable:
        """The variable without its policy for unknown levels: what its bins mean, and
        nothing else.
        """
        return replace(self, unknown="error")

    def public(self, position: int) -> PublicVariable:
        """Return what a worker may know: an opaque id instead of all that has a meaning.

        The target's position is -1.
        """
        return PublicVariable(
            TARGET if position == -1 else f"v{position}",
            self.kind,
            self.n_bins,
            self.missing_bin,
            self.low,
            self.high,
        )

    def _fields(self) -> dict[str, Any]:
        """Return the fields; ``dates`` only where it is true, as in files of all versions."""
        found = {name: _plain(getattr(self, name)) for name in self._FIELDS}
        if not self.dates:
            del found["dates"]
        return found

    @classmethod
    def _from_fields(cls, value: object, where: str) -> Variable:
        if isinstance(value, dict):
            value = {"dates": False, **value}
        fields = check_fields(value, cls._FIELDS, where)
        edges = check_items(fields["edges"], NUMBER, f"{where}, field 'edges'")
        levels, rare = (
            check_items(fields[name], LEVEL, f"{where}, field {name!r}")
            for name in ("levels", "rare")
        )
        try:
            return cls(**{**fields, "edges": edges, "levels": levels, "rare": rare})
        except SchemaError as error:
            raise SchemaError(f"{where}: {error}") from None


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def date_text(day: float) -> str:
    """Return a number of days since 1970-01-01 as a date, with the time if it is not midnight.

    >>> date_text(0), date_text(18262.5)
    ('1970-01-01', '2020-01-01 12:00')
    """
    try:
        moment = datetime(1970, 1, 1) + timedelta(days=day)
    except OverflowError:  # bounds of numbers may lie anywhere
        return f"{day:g} days"
    is_midnight = (moment.hour, moment.minute) == (0, 0)
    return moment.strftime("%Y-%m-%d" if is_midnight else "%Y-%m-%d %H:%M")


def _as_number(edge: Any) -> float:
    """Return a cut point as a number; a date as days since 1970-01-01."""
    if isinstance(edge, (date, np.datetime64)):
        return float((np.datetime64(edge) - np.datetime64("1970-01-01")) / np.timedelta64(1, "D"))
    return float(edge)


def _as_edges(edges: Sequence[float], where: str) -> tuple[float, ...]:
    try:
        # + 0.0 turns -0.0 into 0.0: one spelling in files and fingerprints.
        numbers = tuple(_as_number(edge) + 0.0 for edge in edges)
    except (TypeError, ValueError, OverflowError):
        raise SchemaError(
            f"{where}: edges {edges!r} are not all numbers", code="edges-not-numbers"
        ) from None
    if not all(map(isfinite, numbers)):
        raise SchemaError(
            f"{where}: edges {numbers} are not all finite; the outermost bins are unbounded anyway",
            code="edges-not-finite",
        )
    if any(left >= right for left, right in pairwise(numbers)):
        raise SchemaError(f"{where}: edges {numbers} do not increase", code="edges-not-increasing")
    return numbers


@dataclass(frozen=True)
class PublicVariable:
    """What a worker may know of a variable: opaque id, kind, number of bins, or bounds of its
    integer.

    `missing_bin` is public because the last bin then has no place in the order of the others; and
    of a number, because a further column says in which rows it is there. A number that has bins as
    well has both, bounds and a number of bins.
    """

    id: str
    kind: str
    n_bins: int
    missing_bin: bool = False
    low: int | None = None
    high: int | None = None

    _FIELDS: ClassVar[Mapping[str, Types]] = {
        "id": (str,),
        "kind": (str,),
        "n_bins": (int,),
        "missing_bin": (bool,),
        "low": OPTIONAL_INT,
        "high": OPTIONAL_INT,
    }

    def __post_init__(self) -> None:
        check_kind(self.kind, f"variable {self.id!r}")
        bounded = (
            self.low is not None
            and self.high is not None
            and -LARGEST_INTEGER <= self.low <= self.high <= LARGEST_INTEGER
        )
        if self.kind == "number" and not (bounded and self._has_possible_bins()):
            raise SchemaError(
                f"variable {self.id!r}: a number has bounds low <= high within 2**62, and no bins "
                "or two at least",
                code="impossible-number-variable",
            )
        if self.kind != "number" and (
            self.n_bins < 1 + self.missing_bin or (self.low, self.high) != (None, None)
        ):
            raise SchemaError(
                f"variable {self.id!r}: a binned variable has bins and no bounds",
                code="impossible-binned-variable",
            )

    def _has_possible_bins(self) -> bool:
        return self.n_bins == 0 or self.n_bins >= 2 + self.missing_bin

    def _fields(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._FIELDS}

    @classmethod
    def _from_fields(cls, value: object, where: str) -> PublicVariable:
        return cls(**check_fields(value, cls._FIELDS, where))

    @property
    def bounds(self) -> tuple[int, int]:
        """Between which the integers of a number lie: 0 stands for those that are missing."""
        low, high = self.low or 0, self.high or 0
        return (min(low, 0), max(high, 0)) if self.missing_bin else (low, high)

    @property
    def is_ordered(self) -> bool:
        """Whether there are bins that have an order; the one for missing values has no place."""
        return self.kind in ORDERED_KINDS or (self.kind == "number" and self.n_bins > 0)

    @property
    def has_codes(self) -> bool:
        """Whether ordinal codes exist: bins are ordered, and all have a place in the order."""
        return self.is_ordered and not self.missing_bin

    def check_codes(self, name: str | int | None = None) -> None:
        """Refuse to give codes to a variable that has none, and say why; `name` is what the caller
        calls it.
        """
        name = self.id if name is None else name
        if not self.is_ordered:
            raise SchemaError(
                f"variable {name!r} is {self.kind}: ordinal codes need ordered bins",
                code="unordered-kind",
            )
        if self.missing_bin:
            raise SchemaError(
                f"variable {name!r} has a bin for missing values, which has no ordinal code: fill "
                "the values in, or ",
                Cure("drop gaps anew", "infer the schema with missing='drop'"),
            )


@dataclass(frozen=True)
class PublicSchema(Document):
    """All that a worker learns of a table: opaque ids, kinds, numbers of bins, bounds, number of
    classes.

    Made by `Schema.public`. Holds no names, cut points, levels or classes. `n_classes` is 0 without
    classes; `target_number` is what may be known of a target that is a number; `genome` of the
    variants of a genome table.
    """

    variables: tuple[PublicVariable, ...]
    n_classes: int = 0
    target_number: PublicVariable | None = None
    genome: PublicGenome | None = None

    _FORMAT: ClassVar[str] = "encryptedstats.public-schema"
    _VERSION: ClassVar[int] = 2
    _FILE_MODE: ClassVar[int] = PUBLIC
    _FIELDS: ClassVar[Mapping[str, Types]] = {
        "variables": (list,),
        "n_classes": (int,),
        "target_number": (dict, type(None)),
        "genome": (dict, type(None)),
    }

    def __post_init__(self) -> None:
        if not self.variables:
            raise SchemaError("a schema needs at least one variable", code="no-variables")
        if self.genome is not None:
            check_tiles(self.genome, self.variables)
        for position, variable in enumerate(self.variables):
            if variable.id != f"v{position}":
                raise SchemaError(
                    f"variables[{position}]: its id is 'v{position}', not {variable.id!r}",
                    code="wrong-variable-id",
                )
        if self.n_classes < 0 or self.n_classes == 1:
            raise SchemaError(
                f"n_classes={self.n_classes}: 0 (no target) or at least 2", code="single-class"
            )
        number = self.target_number
        if number is not None and (
            self.n_classes or number.id != TARGET or number.kind != "number"
        ):
            raise SchemaError(
                "a target is a number, called 'target', or has classes", code="impossible-target"
            )

    def public(self) -> PublicSchema:
        return self

    @property
    def strict_variables(self) -> tuple[PublicVariable, ...]:
        """The variables: what becomes of unknown levels is not known here."""
        return self.variables

    def index(self, variable: str | int) -> int:
        """Return position of a variable, given by its opaque id or its position."""
        return find_variable(variable, {}, len(self.variables))

    def at(self, position: int) -> PublicVariable:
        """Return the variable at a position; at -1 the target, if it is a number."""
        if position != -1:
            return self.variables[self.index(position)]
        if self.target_number is None:
            what = "has classes and is no number" if self.n_classes else "is not there"
            raise SchemaError(f"the target {what}: ", KEEP_NUMBERS)
        return self.target_number

    @property
    def has_target(self) -> bool:
        """Whether there are classes, or a target that is a number."""
        return self.n_classes > 0 or self.target_number is not None

    @property
    def lanes(self) -> int:
        """How many slots a row fills: 1 but for genome tables."""
        return 1 if self.genome is None else self.genome.lanes

    def refuse_lanes(self, what: str) -> None:
        """Raise an error for a table with several variants in a ciphertext."""
        if self.lanes > 1:
            raise SchemaError(
                f"a genome table with {self.lanes} variants in each ciphertext is not for {what}: "
                "make it with lanes=1",
                code="lanes-not-shared",
            )

    def _fields(self) -> dict[str, Any]:
        target = None if self.target_number is None else self.target_number._fields()
        return {
            "variables": [v._fields() for v in self.variables],
            "n_classes": self.n_classes,
            "target_number": target,
            # Left out where there is none, so that other schemas have the bytes they always had.
            **({} if self.genome is None else {"genome": self.genome._fields()}),
        }

    @classmethod
    def _upgrade(cls, value: Any) -> Any:
        value = {"genome": None, **value}
        return value if value["version"] > 1 else {"target_number": None, **value}

    @classmethod
    def _from_fields(cls, fields: dict[str, Any]) -> PublicSchema:
        listed = enumerate(fields["variables"])
        variables = tuple(
            PublicVariable._from_fields(item, f"variables[{position}]") for position, item in listed
        )
        number = fields["target_number"]
        target = (
            None if number is None else PublicVariable._from_fields(number, "field 'target_number'")
        )
        genome = fields["genome"]
        return cls(
            variables,
            fields["n_classes"],
            target,
            None if genome is None else PublicGenome._from_fields(genome),
        )


def check_tiles(genome: PublicGenome, variables: Sequence[Variable | PublicVariable]) -> None:
    """Refuse a genome whose tiles are not the first variables, numbers from 0 to 2."""
    tiles = variables[: genome.n_tiles]
    if len(tiles) < genome.n_tiles or any(
        (one.kind, one.low, one.high) != ("number", 0, 2) for one in tiles
    ):
        raise SchemaError(
            f"{genome.n_variants:,} variants in {genome.lanes} lanes are {genome.n_tiles} "
            "variables, the first ones, with numbers from 0 to 2",
            code="tiles-not-first",
        )


def find_variable(variable: str | int, names: Mapping[str, int], n_variables: int) -> int:
    """Return position of a variable given by name (``names`` has it of each), opaque id (where none
    has that name) or position.
    """
    if isinstance(variable, str):
        found = names.get(variable, id_position(variable, n_variables))
        if found is not None:
            return found
        listed = list(names)[:8] or [f"v{position}" for position in range(min(8, n_variables))]
        known = ", ".join(map(repr, listed)) + (", ..." if n_variables > 8 else "")
        near = did_you_mean(variable, names)
        raise SchemaError(
            f"no variable {variable!r}{near}; the variables are {known}", code="unknown-variable"
        )
    if isinstance(variable, bool) or not isinstance(variable, (int, np.integer)):
        raise SchemaError(
            f"a variable is given by name, id or position, not by {variable!r}",
            code="wrong-variable-type",
        )
    if not 0 <= variable < n_variables:
        raise SchemaError(
            f"no variable at position {variable}: positions run from 0 to {n_variables - 1}",
            code="position-out-of-range",
        )
    return int(variable)


def id_position(text: str, n_variables: int) -> int | None:
    """Return the position that an opaque id such as ``v3`` stands for; None where it is none of so
    many variables.
    """
    number = text.removeprefix("v")
    if not text.startswith("v") or not (number.isascii() and number.isdigit() and len(number) < 10):
        return None
    position = int(number)
    return position if position < n_variables and str(position) == number else None
