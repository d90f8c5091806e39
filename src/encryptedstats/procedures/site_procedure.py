"""Procedures across sites: each site evaluates totals of the current state at home, on clear rows.

A site procedure is a state, the totals that every site measures in it, and the step from their sum
to the next state. `SiteCourse` is the state machine that clear tables and studies drive: it opens
nothing, knows no keys, and enforces what all sites enforce: enough rows for all numbers that are
opened, few parameters, minimum counts and a bounded number of rounds. Imports tables and what is
below.
"""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from encryptedstats.errors import (
    ArgumentError,
    ArgumentTypeError,
    Cure,
    DisclosureError,
    FileFormatError,
    ParameterError,
    StudyError,
)
from encryptedstats.procedures.procedure import MOST_ROUNDS, Procedure
from encryptedstats.tables.questions.question import Question
from encryptedstats.tables.schema.names import ids_of
from encryptedstats.tables.schema.variables import PublicSchema
from encryptedstats.tables.table import Table
from encryptedstats.words import plural

if TYPE_CHECKING:
    from typing_extensions import Self

    from encryptedstats.tables.schema.schema import Schema

#: A state: numbers, texts, lists and mappings, as JSON knows them.
State = Any
#: The fewest rows behind a number, unless a study agrees on another.
MINIMUM: Final = 10
#: What every procedure opens before its own totals: the rows, and those that were left out.
_ROWS_OPENED: Final = 2
#: Totals of one site are below 2 to this power, so that sums of all sites never wrap.
TOTAL_BITS: Final = 224
#: Parameters that bound the rounds of a procedure, and so the numbers that it opens.
_ROUNDS: Final = ("max_iterations", "n_trees")


@dataclass(frozen=True)
class RowLimits:
    """How many rows there must be behind what is opened.

    Attributes
    ----------
    minimum : int
        The fewest rows behind every dummy, cluster, node and step of a risk set.
    per_number : int
        The fewest rows for each number that all rounds of the study open together.
    per_parameter : int
        The fewest rows for each parameter that is estimated.
    most_rows : int, optional
        The most rows that all sites have together: a site that says more is not believed.
    """

    minimum: int = MINIMUM
    per_number: int = 10
    per_parameter: int = 3
    most_rows: int | None = None


@dataclass(frozen=True)
class SitePlan:
    """What the rounds of a procedure come to in a study of its own, before anybody starts it.

    Attributes
    ----------
    procedure : str
    at_most : int
        The largest number of rounds, beside the one that counts rows.
    n_opened : int
        The most numbers that all rounds open, each a sum over all sites.
    n_parameters : int
        How many parameters are estimated.
    n_rows : int
        The fewest rows that all sites must have together.
    lowered_by : str
        The parameter by which fewer rounds open fewer numbers; empty if there is none.
    """

    procedure: str
    at_most: int
    n_opened: int
    n_parameters: int
    n_rows: int
    lowered_by: str

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes."""
        return asdict(self)

    def rows(self) -> list[tuple[str, str]]:
        """Return names and values, as they are shown."""
        fewer = f"; a lower {self.lowered_by}= needs fewer" if self.lowered_by else ""
        return [
            ("rounds", f"up to {self.at_most:,}, of totals that sites compute at home"),
            ("opens", f"up to {self.n_opened:,} numbers, each a sum over all sites"),
            ("parameters", f"{self.n_parameters:,}"),
            ("rows", f"at least {self.n_rows:,} of all sites together{fewer}"),
        ]

    def __str__(self) -> str:
        lines = [f"  {name:<10}  {value}" for name, value in self.rows()]
        return "\n".join([f"{self.procedure} in a study", *lines])


class SiteProcedure(Procedure):
    """Rounds of totals that sites compute at home, such as a regression that converges.

    To write one, define a frozen dataclass whose fields are the parameters, as JSON knows them. It
    has

    ``start(schema)``
        the first state, which follows from the parameters and the public schema alone;
    ``is_done(state)``
        whether nothing more is measured: True at the latest after ``at_most`` rounds;
    ``n_totals(state, schema)``
        how many integers a site measures in this state;
    ``measure(state, table)``
        these integers, from the clear :class:`Table` of one site: totals over its rows, so that
        those of several sites can be added, scaled by powers of two where they are fractions;
    ``step(state, totals, schema)``
        the next state, from the sums over all sites;
    ``check(state, totals, schema, limits)``
        raise ``DisclosureError`` where few rows are behind a number: counts are asked for in the
        first round, before anything depends on them;
    ``n_opened(schema)``
        the most numbers that all rounds open together;
    ``n_parameters(schema)``
        how many parameters are estimated;
    ``read(state, schema)``
        the result, with the names of the owner's schema;
    ``at_most``
        the largest number of rounds;
    ``fits(schema)``
        what is estimated, such as the target and the covariates, and nothing of where rounds start
        or end: a study has one procedure of a class for each;
    ``agrees_on(schema)``
        what other procedures of a study must have in common with it, nothing by default;
    ``of_variables``
        the names of the parameters that hold names of variables, which a study stores as ids.

    States are equal on all machines or a study stops. So a step computes with integers and with
    Python's floats by ``+ - * /`` and ``math.sqrt``; it adds floats by ``math.fsum``, since
    ``sum`` of floats differs between versions of Python, and uses no logarithms, powers or arrays.
    ``measure`` may use whatever it likes. A schema that is given to ``start``, ``step``,
    ``n_totals`` and ``check`` is public; that of the table and of ``read`` has names. Nothing is
    changed in place.
    """

    #: Parameters that hold names or ids of variables.
    of_variables: ClassVar[tuple[str, ...]] = ("variables",)

    # -- what an author writes ---------------------------------------------------------------------

    @abstractmethod
    def is_done(self, state: State) -> bool:
        """Return whether nothing more is measured."""

    @abstractmethod
    def n_totals(self, state: State, schema: PublicSchema) -> int:
        """Return how many integers a site measures in this state."""

    @abstractmethod
    def measure(self, state: State, table: Table) -> Sequence[int]:
        """Return the totals of one site's clear rows in this state, scaled to integers."""

    @abstractmethod
    def step(self, state: State, opened: Sequence[int], schema: Schema | PublicSchema) -> State:
        """Return the next state, from the sums over all sites."""

    @abstractmethod
    def check(
        self, state: State, totals: Sequence[int], schema: PublicSchema, limits: RowLimits
    ) -> None:
        """Refuse sums of which some are over fewer than ``limits.minimum`` rows."""

    @abstractmethod
    def n_opened(self, schema: PublicSchema) -> int:
        """Return the most numbers that all rounds open together."""

    @abstractmethod
    def n_parameters(self, schema: PublicSchema) -> int:
        """Return how many parameters are estimated."""

    def fits(self, schema: PublicSchema) -> Any:
        """Return what is estimated, without where its rounds start and end. By default one
        procedure of a class is all that a study may ask.
        """
        return None

    def agrees_on(self, schema: PublicSchema) -> dict[str, Any]:
        """Return what all procedures of a study must have in common, by its name: sums over two
        grids of time differ by the rows between their steps.
        """
        return {}

    def question(self, state: State, schema: Schema | PublicSchema) -> Question | None:
        """Return None: no worker is asked, sites measure at home."""
        return None

    # -- in a study --------------------------------------------------------------------------------

    def plan(self, schema: Schema | PublicSchema, limits: RowLimits | None = None) -> SitePlan:
        """Return how many rounds there may be, what they open, and how many rows all sites need
        together, by the limits that studies have or those that are given.
        """
        check_procedure(self)
        own, public = self.in_ids(schema), schema.public()
        own.start(public)  # which refuses what cannot be asked
        return SitePlan(
            self.name,
            own.at_most,
            n_opened_by(own, public),
            own.n_parameters(public),
            rows_needed([own], public, limits or RowLimits()),
            _parameter_of_rounds(own),
        )

    def to_plan(self, schema: Schema | PublicSchema) -> Sequence[Question]:
        """Refuse a plan of keys, since nothing is encrypted."""
        raise ParameterError(
            f"{self.name} needs no keys, since sites compute at home: its own plan(schema) says "
            "how many rounds it has, and how many rows all sites need together",
            code="needs-no-keys",
        )

    def in_ids(self, schema: Schema | PublicSchema) -> Self:
        """Return the procedure with ids of variables where it has names."""
        own = self.parameters()
        found = {name: ids_of(own[name], schema) for name in self.of_variables if name in own}
        return self.from_parameters({**own, **found}) if found else self

    # -- running it in the clear -------------------------------------------------------------------

    def run(self, table: Any, owner: Any = None, **options: Any) -> Any:
        """Measure, add up and step until it is done; return the result, which is that of all rows
        together.

        Parameters
        ----------
        table : Table, or list of Table
            Clear rows; several tables are those of several sites, of one schema.
        owner : None
            Nothing is encrypted: rows of several owners are for a study, in the mode ``"rounds"``.
        **options
            ``limits``, the :class:`RowLimits` that sites of a study enforce, none by default;
            ``progress``, a function that is called with the :class:`SiteCourse` after each round.
        """
        tables = [table] if isinstance(table, Table) else list(table)
        if owner is not None or not tables or not all(isinstance(one, Table) for one in tables):
            raise ArgumentTypeError(
                f"{self.name} takes clear tables: rows of several owners, who see no rows of each "
                'other, are for es.Study.create(questions={"fit": (procedure, "rounds")})',
                code="not-clear-tables",
            )
        limits: RowLimits | None = options.pop("limits", None)
        progress: Callable[[SiteCourse], None] | None = options.pop("progress", None)
        if options:
            raise ArgumentError(
                f"{', '.join(options)}: {self.name}.run() takes limits and progress",
                code="unknown-option",
            )
        schema = tables[0].schema
        course = SiteCourse(self.in_ids(schema), schema.public(), limits)
        while not course.is_done:
            parts = [course.measure(one) for one in tables]
            course.take([sum(column) for column in zip(*parts, strict=True)])
            if progress is not None:
                progress(course)
        return course.read(schema)


class SiteCourse:
    """The state machine of a site procedure: the current state, and what follows from a sum.

    In round 0 sites give the number of their rows and of those that were left out. In all others
    they give what the procedure measures, and the number of rows once more.

    Attributes
    ----------
    procedure : SiteProcedure
    schema : PublicSchema
    limits : RowLimits or None
        What sums are refused by; None where all rows are of one owner.
    state : object
    number : int
        The current round, from 0 on: as many are done.
    n_rows, n_dropped : int
        Rows of all sites, and those that were left out; 0 before round 0 is done.
    digest : str
        A hash of the state, and of all sums that have led to it.
    """

    def __init__(
        self,
        procedure: SiteProcedure,
        schema: PublicSchema,
        limits: RowLimits | None = None,
        n_opened: int | None = None,
    ) -> None:
        check_procedure(procedure)
        self.procedure, self.schema, self.limits = procedure, schema, limits
        self.state = canonical_state(procedure.start(schema))
        self.number, self.n_rows, self.n_dropped = 0, 0, 0
        self._most = procedure.n_opened(schema)
        self._n_opened = n_opened_by(procedure, schema) if n_opened is None else n_opened
        self._left = self._most
        self.digest = state_digest(self.state)

    @property
    def is_done(self) -> bool:
        """Whether nothing more is measured."""
        return self.number > 0 and self.procedure.is_done(self.state)

    @property
    def n_totals(self) -> int:
        """How many integers a site gives in this round."""
        if not self.number:
            return _ROWS_OPENED
        return self.procedure.n_totals(self.state, self.schema) + 1

    def measure(self, table: Table) -> list[int]:
        """Return what the site of these rows gives in this round."""
        if not self.number:
            return [table.n_rows, table.n_dropped]
        found = [*map(int, self.procedure.measure(self.state, table)), table.n_rows]
        if len(found) != self.n_totals:
            raise ArgumentError(
                f"{self.procedure.name}.measure gives {len(found) - 1} totals, and announces "
                f"{self.n_totals - 1}",
                code="wrong-number-of-totals",
            )
        if any(abs(one) >> TOTAL_BITS for one in found):
            raise ArgumentError(
                f"{self.procedure.name}.measure gives a total of more than {TOTAL_BITS} bits: "
                "scale less",
                code="totals-too-large",
            )
        return found

    def take(self, sums: Sequence[int]) -> None:
        """Step to the next state from the sums of all sites, or refuse them."""
        sums = list(sums)
        if len(sums) != self.n_totals:
            raise FileFormatError(
                f"{len(sums)} sums, and round {self.number} has {self.n_totals}",
                code="wrong-number-of-totals",
            )
        if not self.number:
            self._take_rows(*sums)
        else:
            self._take_totals(sums[:-1], sums[-1])
        self.number += 1
        self._check_next()
        content = [self.digest, sums, self.state]
        self.digest = state_digest(content)

    def _take_rows(self, n_rows: int, n_dropped: int) -> None:
        most = self.limits.most_rows if self.limits is not None else None
        if n_rows <= 0 or n_dropped < 0 or (most is not None and n_rows > most):
            raise _impossible(n_rows)
        self.n_rows, self.n_dropped = n_rows, n_dropped
        check_rows(self.procedure, self.schema, n_rows, self._n_opened, self.limits)

    def _take_totals(self, totals: list[int], n_rows: int) -> None:
        if n_rows != self.n_rows:
            raise _impossible(n_rows)
        self._left -= len(totals)
        if self.limits is not None:
            self.procedure.check(self.state, totals, self.schema, self.limits)
        self.state = canonical_state(self.procedure.step(self.state, totals, self.schema))

    def _check_next(self) -> None:
        """Refuse another round where the procedure has had all that it said it would have."""
        if self.is_done:
            return
        if self.number > self.procedure.at_most:
            raise ArgumentError(
                f"{self.procedure.name} is not done after {self.procedure.at_most} rounds, the "
                "most that it may have: nothing more is opened",
                code="too-many-rounds",
            )
        if self.n_totals - 1 > self._left:
            raise ArgumentError(
                f"{self.procedure.name} asks for more than the {self._most} numbers that it said "
                "all rounds together would open",
                code="too-many-numbers",
            )

    def read(self, schema: Schema | PublicSchema) -> Any:
        """Return the result of the current state."""
        return self.procedure.read(self.state, schema)


def check_procedure(procedure: SiteProcedure) -> None:
    """Refuse what is no site procedure, or has no bounded number of rounds."""
    if not isinstance(procedure, SiteProcedure) or not is_dataclass(procedure):
        raise ArgumentTypeError(
            f"a procedure whose totals sites compute at home is needed, not {procedure!r}",
            code="not-a-site-procedure",
        )
    if not 1 <= procedure.at_most <= MOST_ROUNDS:
        raise ArgumentError(
            f"{procedure.name}.at_most={procedure.at_most!r}: a procedure has from 1 to "
            f"{MOST_ROUNDS:,} rounds",
            code="wrong-number-of-rounds",
        )


def n_opened_by(procedure: SiteProcedure, schema: PublicSchema) -> int:
    """Return the most numbers that a procedure opens, the numbers of rows among them."""
    return procedure.n_opened(schema) + _ROWS_OPENED


def rows_needed(
    procedures: Sequence[SiteProcedure], schema: PublicSchema, limits: RowLimits
) -> int:
    """Return the fewest rows of all sites for all procedures of a study together."""
    opened = sum(n_opened_by(one, schema) for one in procedures)
    parameters = max((one.n_parameters(schema) for one in procedures), default=0)
    return max(limits.per_number * opened, limits.per_parameter * parameters)


def check_rows(
    procedure: SiteProcedure,
    schema: PublicSchema,
    n_rows: int,
    n_opened: int,
    limits: RowLimits | None,
) -> None:
    """Refuse too few rows for the numbers that are opened, or for the parameters."""
    if limits is None:
        return
    needed = limits.per_number * n_opened
    if n_rows < needed:
        spare = n_rows // max(limits.per_number, 1) - n_opened + n_opened_by(procedure, schema)
        raise DisclosureError(
            f"{plural(n_rows, 'row')}, and all rounds of the study open up to {n_opened:,} "
            f"numbers: there must be {limits.per_number} rows for each, {needed:,} of all sites "
            "together. ",
            *_say_how_to_open_less(procedure, schema, spare),
            code="too-few-rows-for-rounds",
        )
    n_parameters = procedure.n_parameters(schema)
    needed = limits.per_parameter * n_parameters
    if n_rows < needed:
        raise DisclosureError(
            f"{plural(n_rows, 'row')}, and {procedure.name} estimates {n_parameters:,} "
            f"parameters: there must be {limits.per_parameter} rows for each, {needed:,} of all "
            "sites together. Ask for fewer variables",
            code="too-many-parameters",
        )


def _parameter_of_rounds(procedure: SiteProcedure) -> str:
    """Return the parameter that bounds the rounds; an empty text if there is none."""
    known: list[str] = [one.name for one in fields(procedure)] if is_dataclass(procedure) else []
    return next((name for name in _ROUNDS if name in known), "")


def _say_how_to_open_less(
    procedure: SiteProcedure, schema: PublicSchema, most: int
) -> tuple[str | Cure, ...]:
    """Say which parameter leaves at most so many numbers to open, if one does."""
    name = _parameter_of_rounds(procedure)
    now = getattr(procedure, name) if name else 1
    for value in range(now - 1, 0, -1):
        if n_opened_by(replace(procedure, **{name: value}), schema) <= most:  # type: ignore[type-var]  # is_dataclass
            cure = Cure("parameter", f"{name}={value}", {"parameter": name, "value": value})
            return f"{procedure.name} with ", cure, f" in place of {now} opens few enough"
    return ("Ask for fewer rounds or variables",)


def canonical_state(state: State) -> State:
    """Return a state as every reader of its stored form has it."""
    try:
        return json.loads(_as_text(state))
    except (TypeError, ValueError) as error:
        raise ArgumentTypeError(
            f"a state is made of numbers, texts, lists and mappings by text: {error}",
            code="state-not-json",
        ) from None


def state_digest(state: State) -> str:
    """Return a hash of a state, equal on all machines."""
    return hashlib.sha256(_as_text(state).encode()).hexdigest()


def _as_text(state: State) -> str:
    return json.dumps(state, sort_keys=True, allow_nan=False, separators=(",", ":"))


def _impossible(n_rows: int) -> StudyError:
    return StudyError(
        f"the sums are of {n_rows:,} rows, which cannot be: a site has sent other masks or is of "
        "other rows than before",
        code="impossible-row-count",
    )


def refuse_small(counts: Mapping[str, int], limits: RowLimits) -> None:
    """Refuse counts of rows below the minimum; names say what was counted.

    >>> refuse_small({"sex=f": 40, "sex=m": 12}, RowLimits(minimum=10))
    """
    small = [name for name, count in counts.items() if count < limits.minimum]
    if small:
        raise DisclosureError(
            f"{', '.join(small)}: fewer than {limits.minimum} rows of all sites together, and the "
            "study has agreed on as many or more. Leave it out, or merge it with others",
            code="small-count",
        )
