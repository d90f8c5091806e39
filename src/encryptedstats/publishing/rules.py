"""Disclosure rules: named profiles of the rules that data officers apply before results leave a
site.

Rules look at totals: how many rows are behind each number, whether one row makes up most of a sum,
and how many numbers are published for how many rows. They are conventions, not proofs. `audit`
considers what can be inferred together with other results; `release` has proven guarantees.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from encryptedstats.circuits.bounds import Interval, read_bounds
from encryptedstats.circuits.expressions import Expression, column_names
from encryptedstats.errors import FileFormatError, ParameterError
from encryptedstats.publishing.forms import CellForm, MomentForm, PowerForm, ReleaseForm, form_of
from encryptedstats.publishing.sensitivity import row_contribution
from encryptedstats.tables.columns import column_ranges
from encryptedstats.tables.encodings import Column, encoding_of
from encryptedstats.tables.questions.question import Question
from encryptedstats.tables.schema.variables import PublicSchema

Named = Mapping[str, NDArray[Any]]

MIN_COUNT: Final = "min_count"
DOMINANCE: Final = "dominance"
CONCENTRATION: Final = "concentration"
SUPPRESSION: Final = "suppression"
RATIO: Final = "rows_per_parameter"
DIFFERENCING: Final = "differencing"
REFUSE: Final = "refuse"
WARN: Final = "warn"


@dataclass(frozen=True)
class Rules:
    """A profile of disclosure rules.

    Parameters
    ----------
    min_count : int
        The fewest rows of any group whose number is shown; empty groups may be shown. 0 for no
        such rule.
    dominance : float, optional
        The largest share of a sum (of numbers that are not negative) that one row may have.
    concentration : float, optional
        The largest share of a group that may be of one kind: where all rows of a group are sick,
        membership reveals sickness.
    rows_per_parameter : float
        The fewest rows for each number that a model publishes. 0 for no such rule.
    differencing : str
        What happens to a result that reveals single rows together with earlier ones in the ledger:
        ``"refuse"`` or ``"warn"``.
    name : str
        The name of the profile.
    """

    min_count: int = 5
    dominance: float | None = None
    concentration: float | None = None
    rows_per_parameter: float = 0.0
    differencing: str = REFUSE
    name: str = "own"

    def __post_init__(self) -> None:
        if (
            isinstance(self.min_count, bool)
            or not isinstance(self.min_count, (int, np.integer))
            or self.min_count < 0
        ):
            raise ParameterError(
                f"min_count={self.min_count!r}: a number of rows, such as 3, 5, 10 or 11; 0 for "
                "none",
                code="invalid-min-count",
            )
        for name in (DOMINANCE, CONCENTRATION):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, (int, float)) and 0 < value <= 1):
                raise ParameterError(
                    f"{name}={value!r}: a share between 0 and 1, or None", code="share-out-of-range"
                )
        if not isinstance(self.rows_per_parameter, (int, float)) or self.rows_per_parameter < 0:
            raise ParameterError(
                f"rows_per_parameter={self.rows_per_parameter!r}: a number of rows; 0 for no such "
                "rule",
                code="invalid-rows-per-parameter",
            )
        if self.differencing not in (REFUSE, WARN):
            raise ParameterError(
                f"differencing={self.differencing!r}: 'refuse' or 'warn'",
                code="unknown-differencing",
            )

    @classmethod
    def find(cls, profile: str | Rules) -> Rules:
        """Return a profile by name, or the given rules."""
        if isinstance(profile, Rules):
            return profile
        if profile not in PROFILES:
            raise ParameterError(
                f"rules={profile!r}: {', '.join(map(repr, PROFILES))}, or your own, "
                "es.Rules(min_count=...)",
                code="unknown-rules",
            )
        return PROFILES[profile]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, value: Any) -> Rules:
        """Return the rules that :meth:`to_dict` wrote. Everything is checked."""
        names = {field.name for field in fields(cls)}
        if not isinstance(value, dict) or set(value) != names:
            raise FileFormatError(
                f"rules have the fields {', '.join(sorted(names))}, and these have not",
                code="wrong-rule-fields",
            )
        return cls(**value)

    def describe(self) -> str:
        """Return the rules in words."""
        said = [f"counts of 1 to {self.min_count - 1} are not shown"] if self.min_count > 1 else []
        if self.dominance is not None:
            said.append(f"no row is more than {self.dominance:.0%} of a sum")
        if self.concentration is not None:
            said.append(f"no group is more than {self.concentration:.0%} of one kind")
        if self.rows_per_parameter:
            said.append(f"at least {self.rows_per_parameter:g} rows for each number of a model")
        return f"{self.name}: {'; '.join(said) or 'no rules'}"


#: By name. DataSHIELD's filters (3 rows in a table, a third of a parameter for each row) and
#: PCORnet's (11 rows) are habits there.
PROFILES: Final[dict[str, Rules]] = {
    "datashield": Rules(3, None, None, 3.0, REFUSE, "datashield"),
    "five": Rules(5, 0.85, None, 5.0, REFUSE, "five"),
    "ten": Rules(10, 0.75, 0.99, 10.0, REFUSE, "ten"),
    "pcornet": Rules(11, 0.75, 0.99, 10.0, REFUSE, "pcornet"),
}


@dataclass(frozen=True)
class Finding:
    """A rule that a result breaks, the place, and what to do about it."""

    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}"


def rows_shown(question: Question, schema: PublicSchema) -> tuple[ReleaseForm | None, list[Any]]:
    """Return what rows add to the numbers that a result publishes: to leaves, not to
    inner nodes.
    """
    try:
        form = form_of(question, schema)
    except ParameterError:
        return None, [row_contribution(total) for total in question.circuit(schema)]
    return form, form.rows


def numbers_shown(form: ReleaseForm | None, totals: Named, n_rows: int) -> list[int]:
    """Return these numbers, from the opened totals."""
    if form is not None:
        return form.numbers(totals, n_rows)
    return [int(x) for array in totals.values() for x in array.flat]


def broken_rules(
    question: Question,
    totals: Named,
    schema: PublicSchema,
    n_rows: int,
    rules: Rules,
    weight_bound: int = 1,
) -> list[Finding]:
    """Return the rules that the opened totals of a question break, except for counts of cells.

    Where rows have weights, ``rules.min_count`` is about sums of weights.
    """
    form, rows = rows_shown(question, schema)
    numbers = numbers_shown(form, totals, n_rows)
    # Cells are hidden one by one instead: see `suppression`.
    in_cells = isinstance(form, CellForm)
    found = [] if in_cells else list(_small_counts(rows, numbers, schema, n_rows, rules))
    if isinstance(form, (MomentForm, PowerForm)):
        found += _find_dominated(
            _sums(form, totals, n_rows), rules, weight_bound, columns=isinstance(form, MomentForm)
        )
    parameters = n_parameters(question, form, schema)
    if parameters and rules.rows_per_parameter * parameters > n_rows:
        found.append(
            Finding(
                RATIO,
                f"{parameters:,} numbers from {n_rows:,} rows, and {rules.rows_per_parameter:g} "
                "rows are wanted for each: fit a "
                "smaller model, or release it with an epsilon",
            )
        )
    return found


def n_parameters(question: Question, form: ReleaseForm | None, schema: PublicSchema) -> int:
    """Return how many numbers of a model are published; 0 for results that are not models."""
    from encryptedstats.models import TotalsModel

    if not isinstance(question, TotalsModel):
        return 0
    if isinstance(form, MomentForm):
        return len(form.bounds)
    return len(form.rows) if form is not None else question._n_totals(schema)


def are_counts(rows: list[Any], schema: PublicSchema) -> list[bool]:
    """Return which totals count rows: those to which a row adds 0 or 1."""
    written = [row for row in rows if isinstance(row, Expression)]
    known = read_bounds(written, column_ranges(schema, map(Column.parse, column_names(written))), 1)
    return [
        isinstance(row, Expression)
        and known[row].low >= 0
        and known[row].high <= 1
        and not _is_number(row, schema)
        for row in rows
    ]


def _is_number(row: Expression, schema: PublicSchema) -> bool:
    """Return True if a total is about a number: its 0 and 1 are values, and such rows
    are no group.
    """
    columns = map(Column.parse, column_names([row]))
    return any(encoding_of(column).holds_numbers for column in columns)


def _small_counts(
    rows: list[Any], numbers: list[int], schema: PublicSchema, n_rows: int, rules: Rules
) -> Iterator[Finding]:
    """Yield what is small. Remarks are published, so they never say how many or how large."""
    k = rules.min_count
    if 0 < n_rows < k:
        yield Finding(MIN_COUNT, f"there are fewer rows than the {k} that the rules ask for")
    counts = [n for n, counts in zip(numbers, are_counts(rows, schema), strict=True) if counts]
    # A count of all rows but a few is as telling as the few.
    if any(0 < n < k or 0 < n_rows - n < k for n in counts):
        yield Finding(
            MIN_COUNT,
            f"it has counts of 1 to {k - 1} rows, or of all rows but 1 to {k - 1}: ask for fewer "
            "bins, levels or leaves, or release it with an epsilon",
        )


def _sums(
    form: MomentForm | PowerForm, totals: Named, n_rows: int
) -> Iterator[tuple[Interval, int, int, int]]:
    """Yield the bounds, rows, sum and sum of squares of each column or group that is summed."""
    if isinstance(form, PowerForm):
        for n, total, square in zip(
            form.group_rows(totals, n_rows), *totals["sums"].reshape(2, -1), strict=True
        ):
            yield form.bound, int(n), int(total), int(square)
        return
    n = int(totals[form.counted][0]) if form.counted else n_rows
    squares = {
        a: int(x) for (a, b), x in zip(form.pairs, totals["products"], strict=True) if a == b
    }
    for a, (bound, total) in enumerate(zip(form.bounds, totals["sums"], strict=True)):
        yield bound, n, int(total), squares[a]


def _find_dominated(
    summed: Iterator[tuple[Interval, int, int, int]],
    rules: Rules,
    weight_bound: int,
    *,
    columns: bool,
) -> list[Finding]:
    """Sums that may come from one row, and columns whose spread may come from few.

    The largest of n numbers is at most the root of the sum of their squares, so that its share of
    the sum is known to be no more than that root divided by the sum. And where squares around the
    mean add up to those of k rows at the ends of the bounds, or to less, they may come from as few:
    a column of zeros with a single one is the worst of them. Rows of groups are counted instead. A
    row of weight w adds w x to the sum and w x^2 to the squares, so that (w x)^2 is at most w times
    its squares.
    """
    shares = spreads = False
    for bound, n, total, square in summed:
        width = bound.high - bound.low
        if rules.dominance is not None and bound.low >= 0 and total > 0:
            shares |= math.sqrt(weight_bound * square) > rules.dominance * total
        if columns and rules.min_count and width and n > 0:
            spread = square - total**2 / n
            spreads |= 0 < spread < rules.min_count * (1 - rules.min_count / n) * width**2
    found = []
    if shares:
        found.append(
            Finding(DOMINANCE, f"more than {rules.dominance:.0%} of a sum may come from one row")
        )
    if spreads:
        found.append(
            Finding(
                MIN_COUNT,
                f"the spread of a column may come from fewer than {rules.min_count} rows, as of a "
                "column that is 1 in a single row: leave such columns out, or give numbers tighter "
                "bounds, Schema.infer(..., bounds={...})",
            )
        )
    return found
