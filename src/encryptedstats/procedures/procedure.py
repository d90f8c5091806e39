"""Procedures: questions that depend on the answers to earlier ones.

A procedure is a state, the question that follows from it, and the step from the opened answer to
the next state. Nothing here knows keys, workers or files: `Course` is the state machine that tables
and sites drive. Imports tables and what is below.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from encryptedstats.errors import ArgumentError, ArgumentTypeError, FileFormatError
from encryptedstats.tables.answers.answer import Answer
from encryptedstats.tables.questions.constraints import Constraints
from encryptedstats.tables.questions.question import (
    VARIABLE,
    Question,
    first_paragraph,
    load_questions,
    named_by_environment,
    plain,
    prepare_question,
)
from encryptedstats.tables.schema.variables import PublicSchema

if TYPE_CHECKING:
    from typing_extensions import Self

    from encryptedstats.tables.schema.schema import Schema

MOST_ROUNDS: Final = 1000

_known: dict[str, type[Procedure]] = {}


class Procedure(ABC):
    """Questions of which each depends on the answers before it, such as a tree that learns its
    splits.

    To write a procedure, define a frozen dataclass. Its fields are the parameters. It has

    ``start(schema)``
        the first state;
    ``question(state, schema)``
        the question that follows from a state, or None if there is nothing more to ask;
    ``step(state, opened, schema)``
        the next state, from what the question makes of its opened totals;
    ``read(state, schema)``
        the result;
    ``at_most``
        the largest number of rounds, a property or an attribute.

    A step depends on nothing but its arguments: after an interruption the steps are repeated from
    the opened totals that were stored, and in a study every site repeats them. States are never
    changed in place.

    These are optional: ``to_plan(schema)``, the questions that keys must carry, by default the
    first one; ``learned``, what a worker learns from the questions; ``name``, ``title``;
    ``constraints``, ``of_variables``, ``of_levels``, as of a question; ``fix_seeds``.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> import pandas as pd, encryptedstats as es
    >>> @dataclass(frozen=True)
    ... class Largest(es.Procedure):
    ...     '''The variable with the largest sum, asked one after the other.'''
    ...     at_most = 2
    ...     def start(self, schema):
    ...         return []
    ...     def question(self, state, schema):
    ...         return es.Covariance([f"v{len(state)}"]) if len(state) < 2 else None
    ...     def step(self, state, opened, schema):
    ...         return [*state, float(opened.means.iloc[0])]
    ...     def read(self, state, schema):
    ...         return max(state)
    """

    #: Name in files and on the command line; that of the class by default.
    name: ClassVar[str] = "Procedure"
    #: What people read; the name of the class by default.
    title: ClassVar[str] = "Procedure"
    #: What parameters may be, which of them name variables and which levels, as of a question.
    constraints: ClassVar[Constraints] = {}
    of_variables: ClassVar[tuple[str, ...]] = ()
    of_levels: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for one in ("name", "title"):
            if one not in vars(cls):
                setattr(cls, one, cls.__name__)
        _known[cls.name] = cls

    # -- what an author writes ---------------------------------------------------------------------

    @abstractmethod
    def start(self, schema: Schema | PublicSchema) -> Any:
        """Return the first state."""

    @abstractmethod
    def question(self, state: Any, schema: Schema | PublicSchema) -> Question | None:
        """Return the question that follows from a state; None if there is nothing more to ask."""

    @abstractmethod
    def step(self, state: Any, opened: Any, schema: Schema | PublicSchema) -> Any:
        """Return the next state, from what the question makes of its opened totals."""

    @abstractmethod
    def read(self, state: Any, schema: Schema | PublicSchema) -> Any:
        """Return the result."""

    @property
    def at_most(self) -> int:
        """The largest number of rounds."""
        return 1

    @property
    def learned(self) -> str:
        """What a worker learns from the questions; plans and reports show it."""
        return "the questions, each of which follows from the answers before it"

    def to_plan(self, schema: Schema | PublicSchema) -> Sequence[Question]:
        """Return questions that need at least what every round needs, for a plan."""
        first = self.question(self.start(schema), schema)
        return [] if first is None else [first]

    def fix_seeds(self) -> Self:
        """Return the procedure with everything fixed that is left to chance."""
        return self

    @classmethod
    def about(cls) -> str:
        """Return how its docstring begins: a line or two."""
        return first_paragraph(cls)

    # -- its parameters ----------------------------------------------------------------------------

    def parameters(self) -> dict[str, Any]:
        """Return its parameters as JSON knows them: the fields of a dataclass."""
        names: list[str] = [one.name for one in fields(self)] if is_dataclass(self) else []
        return {name: plain(getattr(self, name)) for name in names}

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, Any]) -> Self:
        """Make the procedure with these parameters, all of them and no others."""
        if set(parameters) != set(inspect.signature(cls).parameters):
            raise FileFormatError(
                f"the file has other parameters than a {cls.name} has: "
                f"{', '.join(sorted(parameters))}",
                code="wrong-parameters",
            )
        return cls(**parameters)

    def notes(self) -> list[tuple[str, str]]:
        """Return what a plan says of the rounds and of what a worker learns from them."""
        return [
            ("rounds", f"up to {self.at_most}, each opened before the next is asked"),
            ("worker learns", self.learned),
            (
                "worker lies",
                "the next question shows what was opened, so altered answers make it an oracle, "
                "which can tell the rows and in the end the secret key: check every round, "
                "verify='spot', unless the worker is trusted to compute what it is asked",
            ),
        ]

    # -- running it --------------------------------------------------------------------------------

    def run(self, table: Any, owner: Any = None, **options: Any) -> Any:
        """Ask, open and step until nothing is left to ask; return the result.

        Parameters
        ----------
        table : Table, EncryptedTable, WorkerTable, path or fsspec URL
            The rows; a clear table needs no ``owner``.
        owner : Owner, optional
            Who opens the answers.
        **options
            ``schema``, the owner's schema, where the table does not bring it; ``at``, a place as
            of ``es.connect`` or a worker, ``"local"`` by default; ``folder``, where every round is
            stored for its user only, so that the same call goes on after an interruption;
            ``ledger``, where every opening is written down before it is opened; ``verify``, as of
            ``owner.open``, for every round; ``progress``, whether a bar is shown, or a function
            that is called with each :class:`OpenedRound`. All others are those of ``worker.ask``.
        """
        from encryptedstats.procedures.running import run_procedure

        return run_procedure(self, table, owner, **options)


@dataclass(frozen=True)
class OpenedRound:
    """A round that was opened.

    Attributes
    ----------
    number, at_most : int
        Which one, from 1 on, and how many there may be.
    question : Question
    totals : tuple of int
        What was opened.
    n_rows : int
    """

    number: int
    at_most: int
    question: Question
    totals: tuple[int, ...]
    n_rows: int

    def __str__(self) -> str:
        n = len(self.totals)
        return (
            f"round {self.number} of at most {self.at_most}: {self.question.name}, {n:,} total"
            f"{'' if n == 1 else 's'}"
        )


class Course:
    """The state machine of a procedure: the current state, and the question that follows from it.

    Attributes
    ----------
    procedure : Procedure
    schema : Schema or PublicSchema
    state : object
    rounds : tuple of OpenedRound
        Those that were opened.
    asked : Question or None
        What is to be asked now, in ids; None if there is nothing more to ask.
    """

    def __init__(self, procedure: Procedure, schema: Schema | PublicSchema) -> None:
        if not isinstance(procedure, Procedure):
            raise ArgumentTypeError(
                f"a procedure is needed, such as es.DecisionTree(), not {procedure!r}",
                code="not-a-procedure",
            )
        if not 1 <= procedure.at_most <= MOST_ROUNDS:
            raise ArgumentError(
                f"{procedure.name}.at_most={procedure.at_most!r}: a procedure has from 1 to "
                f"{MOST_ROUNDS:,} rounds",
                code="wrong-number-of-rounds",
            )
        self.procedure, self.schema = procedure, schema
        self.rounds: tuple[OpenedRound, ...] = ()
        self.state: Any = procedure.start(schema)
        self.asked = self._ask()

    def _ask(self) -> Question | None:
        question = self.procedure.question(self.state, self.schema)
        if question is None:
            return None
        if len(self.rounds) >= self.procedure.at_most:
            raise ArgumentError(
                f"{self.procedure.name} asks again after {self.procedure.at_most} rounds, the most "
                "that it may have: nothing more is opened",
                code="too-many-rounds",
            )
        return prepare_question(question, self.schema)._fix_seed()

    def take(self, totals: Sequence[int], n_rows: int) -> OpenedRound:
        """Step to the next state from the opened totals of the current question."""
        assert self.asked is not None, "nothing is asked"
        opened = self.asked._present(Answer(self.asked, tuple(totals), self.schema, n_rows))
        self.state = self.procedure.step(self.state, opened, self.schema)
        done = OpenedRound(
            len(self.rounds) + 1, self.procedure.at_most, self.asked, tuple(totals), n_rows
        )
        self.rounds = (*self.rounds, done)
        self.asked = self._ask()
        return done

    def read(self) -> Any:
        """Return the result of the current state."""
        return self.procedure.read(self.state, self.schema)


def procedure_class(name: str) -> type[Procedure]:
    """Return the procedure of a name: in this program, in this library, or where the environment
    says.
    """
    import encryptedstats.procedures as own

    getattr(own, name, None)  # imports the module that defines it
    for source in named_by_environment():
        if name not in _known:
            load_questions(source)
    if name not in _known or inspect.isabstract(_known[name]):
        raise FileFormatError(
            f"nobody here knows the procedure {name!r}: import the module that defines it, or name "
            f"that in {VARIABLE}",
            code="unknown-procedure",
        )
    return _known[name]
