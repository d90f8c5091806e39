"""Questions: what is asked of a table, clear or encrypted.

A question names the totals that answer it, as arrays of expressions over columns, and says what the
owner makes of the opened integers: a table, a curve, a model. ``docs/guides/questions.md`` has two
complete ones. Nothing here knows ciphertexts.
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import json
import math
import os
import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from encryptedstats.circuits.bounds import Interval
from encryptedstats.circuits.expressions import (
    COLUMN,
    LINEAR,
    PRODUCT,
    TOTAL,
    Expression,
    column,
    sum_of,
)
from encryptedstats.circuits.expressions import fold as fold_graph
from encryptedstats.errors import (
    ArgumentError,
    ArgumentTypeError,
    Cure,
    DataError,
    FileFormatError,
    ParameterError,
    SchemaError,
    StillEncryptedError,
)
from encryptedstats.tables.answers.answer import Answer
from encryptedstats.tables.encodings import Column, encoding_of
from encryptedstats.tables.questions.constraints import (
    Constraints,
    check_values,
    constraints_of,
    shorten,
)
from encryptedstats.tables.schema.names import ids_of, level_names_of, levels_of, names_of
from encryptedstats.tables.schema.variables import KEEP_NUMBERS, PublicSchema

if TYPE_CHECKING:
    from typing_extensions import Self

    from encryptedstats.circuits.layout import Layout
    from encryptedstats.tables.schema.schema import Schema
    from encryptedstats.tables.table import Table

RESULT_KIND: Final = "encrypted result"  # of a file, as its question says
MODEL_KIND: Final = "encrypted model"
OPEN_MODEL_KIND: Final = "opened model"
OPEN_RESULT_KIND: Final = "opened result"
FOLDS_KIND: Final = "folds of an encrypted model"
ENTRY_POINTS: Final = "encryptedstats.questions"
VARIABLE: Final = "ENCRYPTEDSTATS_QUESTIONS"
Number = Expression | int
Shape = tuple[int, ...]
Shapes = Mapping[str, Shape]
Columns = Sequence[Column] | None  # those that a table stores; None for what is stored by default
Arrays = Mapping[str, Any]  # nested lists or arrays, of expressions or answers
Totals = Mapping[
    str, NDArray[Any]
]  # by name, in their shapes; the integers are Python's own, which never overflow


@dataclass(frozen=True)
class RowAnswer:
    """One number for every row, its bounds (None: as far as intervals tell), and whether it can be
    below 0.

    Whether it can be is a fact about the question, never about its totals: it is stored in the
    clear.
    """

    value: Number
    bound: Interval | None = None
    signed: bool = True


class ModelTotals(Mapping[str, NDArray[Any]]):
    """Named totals that answers are written with, plain numbers or :func:`given` ones, and their
    bounds.
    """

    def __init__(self, totals: Totals, bounds: Totals) -> None:
        self._totals = totals
        self._bounds = bounds

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._totals[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._totals)

    def __len__(self) -> int:
        return len(self._totals)

    def bounds(self, name: str) -> NDArray[Any]:
        """Return the bounds of each total, in the same shape."""
        return self._bounds[name]

    def highest(self, name: str) -> int:
        """Return the largest number that one of them could be."""
        return int(max(bound.high for bound in self._bounds[name].flat))


class Question(ABC):
    """What is asked of a table: named totals, and what their opened values mean.

    To write a question, define a frozen dataclass. Its fields are the parameters. It has

    ``totals(schema, columns, fold)``
        the totals by name: nested lists or arrays of expressions that end in ``.total()``;
    ``shapes(schema)``
        the shape of each, without writing them;
    ``read(totals, schema, n_rows)``
        the result, made of the opened integers.

    These are optional:

    ``check_schema(schema)``, ``check_names(schema)``
        refuse a table that the question cannot be asked of;
    ``answers``, ``answer_shapes``, ``judge``
        predict rows while the totals stay encrypted;
    ``count_rows``
        counts the totals of a clear table faster than their circuit;
    ``constraints``, ``of_variables``, ``of_levels``
        say what parameters may be, and which of them name variables or levels;
    ``name``, ``short_name``, ``title``, ``outputs``, ``caveat``, ``why_opened``, ``unweighted``
        say what files, commands, pages and errors call it or tell about it.

    Nothing else has to be written.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> import pandas as pd, encryptedstats as es
    >>> @dataclass(frozen=True)
    ... class Rows(es.Question):
    ...     def totals(self, schema, columns=None, fold=None):
    ...         return {"rows": [x.total() for x in class_columns(schema, fold)]}
    ...     def shapes(self, schema):
    ...         return {"rows": (schema.n_classes,)}
    ...     def read(self, totals, schema, n_rows):
    ...         return totals["rows"].tolist()
    >>> frame = pd.DataFrame({"age": [30, 40, 50], "sick": [0, 1, 1]})
    >>> es.Schema.infer(frame, target="sick").table(frame).ask(Rows())
    [1, 2]
    """

    #: Name in files and on the command line; that of the class by default.
    name: ClassVar[str] = "Question"
    #: Name for people who type it; ``name`` by default.
    short_name: ClassVar[str] = "Question"
    #: Name on pages and in lists; that of the class by default.
    title: ClassVar[str] = "Question"
    #: Kind of the files of encrypted answers.
    kind: ClassVar[str] = RESULT_KIND
    _opened_kind: ClassVar[str] = OPEN_RESULT_KIND
    _answer_noun: ClassVar[str] = "answer"
    #: Ways to answer for rows; the first is the default.
    outputs: ClassVar[tuple[str, ...]] = ("",)
    #: Why answers have to be opened before they predict; empty if they need not be.
    why_opened: ClassVar[str] = ""
    #: What to know of predicted probabilities that are not calibrated.
    caveat: ClassVar[str] = ""
    #: Parameters that name variables: one, a list, or a mapping by them.
    of_variables: ClassVar[tuple[str, ...]] = ()
    #: Parameters that name levels, each with the parameter that names their variable.
    of_levels: ClassVar[Mapping[str, str]] = {}
    #: Whether people ask it; a step of a procedure is in no list of questions.
    is_listed: ClassVar[bool] = True
    #: What parameters may be, where their annotations do not tell all of it.
    constraints: ClassVar[Constraints] = {}
    #: Whether it reads totals of variants, lane by lane.
    reads_lanes: ClassVar[bool] = False
    #: What to do about a table whose weights the question does not count.
    unweighted: ClassVar[Cure] = Cure(
        "rows without weights",
        "make the table without weights=, and with rows as often as they count",
    )

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" not in vars(cls):
            cls.name = cls.__name__
        if "short_name" not in vars(cls):
            cls.short_name = cls.name
        if "title" not in vars(cls):
            cls.title = cls.__name__
        if not cls.name.startswith("_"):
            _known[cls.name] = cls

    # -- its parameters ----------------------------------------------------------------------------

    def parameters(self) -> dict[str, Any]:
        """Return its parameters as JSON knows them: the fields of a dataclass."""
        names: list[str] = [field.name for field in fields(self)] if is_dataclass(self) else []
        return {name: plain(getattr(self, name)) for name in names}

    @classmethod
    def _from_parameters(cls, parameters: Mapping[str, Any]) -> Self:
        """Make the question with these parameters, all of them and no others."""
        if set(parameters) != set(inspect.signature(cls).parameters):
            raise FileFormatError(
                f"the file has other parameters than a {cls.name} has: "
                f"{', '.join(sorted(parameters))}",
                code="wrong-parameters",
            )
        check_values(cls, parameters)
        return cls(**parameters)

    def check_parameters(self) -> None:
        """Raise ParameterError if a parameter is not what :attr:`constraints` allow."""
        names = constraints_of(type(self))
        values = {name: getattr(self, name) for name in names if hasattr(self, name)}
        check_values(type(self), values)

    def named_parameter(self, name: str) -> Cure:
        """Name one of its parameters and the value in an error: ``depth=7`` here, ``--depth 7`` on
        the command line.
        """
        value = getattr(self, name)
        return Cure("parameter", f"{name}={shorten(value)}", {"parameter": name, "value": value})

    def _fix_seed(self) -> Self:
        """Fix what is left to chance: what is asked of one table can then be asked of another."""
        return self

    def in_ids(self, schema: Schema | PublicSchema) -> Self:
        """Return the question as a worker asks it, who knows no names: variables by id (``v3``),
        levels by bin (``bin2``).

        Plans and tables call it. Where the schema is the owner's, names become ids; a public one
        knows none, and refuses them.
        """
        own = self.parameters()
        found = {name: ids_of(own[name], schema) for name in self.of_variables if name in own}
        found |= {
            name: levels_of(own[name], own[by], schema) for name, by in self.of_levels.items()
        }
        return (
            self
            if all(found[name] == own[name] for name in found)
            else self._from_parameters({**own, **found})
        )

    def _in_names(self, schema: Schema) -> Self:
        """Return the question in the owner's names."""
        own = self.parameters()
        found = {name: names_of(own[name], schema) for name in self.of_variables if name in own}
        found |= {
            name: level_names_of(own[name], own[by], schema) for name, by in self.of_levels.items()
        }
        return self._from_parameters({**own, **found}) if found else self

    def describe(self, schema: Schema | PublicSchema | None = None) -> str:
        """Describe the question in words, with the names that a schema knows."""
        asked = (
            self if schema is None or isinstance(schema, PublicSchema) else self._in_names(schema)
        )
        written = (f"{name}={value!r}" for name, value in asked.parameters().items())
        return f"{self.name}({', '.join(written)})"

    @classmethod
    def about(cls) -> str:
        """Return how its docstring begins: a line or two."""
        return first_paragraph(cls)

    def _asks_same(self, other: Question) -> bool:
        """Return whether both ask the same."""
        return type(self) is type(other) and self.parameters() == other.parameters()

    # -- its totals --------------------------------------------------------------------------------

    def check(self, schema: PublicSchema) -> None:
        """Refuse parameters that are not allowed, and a schema that it cannot be asked of."""
        self.check_parameters()
        if schema.lanes > 1 and not self.reads_lanes:
            raise SchemaError(
                f"{self.name} is not asked of a genome table with {schema.lanes} variants in each "
                "ciphertext: ask a genome scan, or make the table with lanes=1",
                code="question-without-lanes",
            )
        self.check_schema(schema)

    def check_schema(self, schema: PublicSchema) -> None:  # noqa: B027  most have nothing to refuse
        """Refuse a schema that it cannot be asked of."""

    def check_names(self, schema: Schema) -> None:  # noqa: B027  most have nothing to refuse
        """Refuse a schema whose names and levels show that it cannot be asked; only the owner knows
        these.

        The question is in ids, and :meth:`check_schema` has accepted it.
        """

    @abstractmethod
    def totals(
        self, schema: PublicSchema, columns: Columns = None, fold: int | None = None
    ) -> Arrays:
        """Write the totals by name: (nested lists or arrays of) expressions that end in
        ``.total()``.

        ``columns`` are those that the table stores; ``fold`` is the fold of rows to ask, for
        questions that start from
        :func:`class_columns`.
        """

    @abstractmethod
    def shapes(self, schema: PublicSchema) -> Shapes:
        """Return the shapes of the totals without writing them: a file can claim more than there is
        memory for.
        """

    @abstractmethod
    def read(self, totals: Totals, schema: Schema | PublicSchema, n_rows: int) -> Any:
        """Return what the opened integers mean; refuse impossible ones.

        The schema is public if names are not known.
        """

    def circuit(
        self,
        schema: PublicSchema,
        columns: Columns = None,
        fold: int | None = None,
        *,
        weight_bound: int = 1,
    ) -> list[Expression]:
        """Write all totals, one after the other; refuse weighted rows if not all totals count the
        weights.
        """
        found = flat(
            self.totals(schema, columns, fold),
            self.shapes(schema),
            f"{self.name}: totals()",
            "shapes()",
        )
        if not all(isinstance(x, Expression) and x.is_total for x in found):
            raise ArgumentTypeError(
                f"{self.name}: totals() gives something else than expressions that end in .total()",
                code="not-a-total",
            )
        if weight_bound > 1 and not count_weights(found):
            raise SchemaError(
                f"the rows of this table have weights, and {self.name} does not count them: ",
                self.unweighted,
                code="weighted-rows",
            )
        return found

    def count_rows(self, table: Table, fold: int | None = None) -> Arrays | None:
        """Return the totals of a clear table (of a fold), counted without a circuit.

        None, the default, evaluates the circuit. A question of many totals that NumPy counts at
        once can override this; the counts must be those of the circuit.
        """
        return None

    def _n_totals(self, schema: PublicSchema) -> int:
        """Count the totals."""
        return sum(math.prod(shape) for shape in self.shapes(schema).values())

    def _name_totals(self, values: Sequence[Any], schema: PublicSchema) -> dict[str, NDArray[Any]]:
        """Bring values in the order of :meth:`circuit` into named arrays; lanes are the
        last axis.
        """
        return in_shapes(values, self._opened_shapes(schema))

    def _opened_shapes(self, schema: PublicSchema) -> Shapes:
        """Return the shapes of the opened totals: those of the totals, with an axis for lanes."""
        lanes = (schema.lanes,) if schema.lanes > 1 else ()
        return {name: (*shape, *lanes) for name, shape in self.shapes(schema).items()}

    # -- who carries it ----------------------------------------------------------------------------

    def _present(self, answer: Answer) -> Any:
        """Return what users get of an answer.

        An encrypted one is returned as it is, a decrypted one is read; models return a fitted
        model.
        """
        if answer.is_encrypted:
            return answer
        public = answer.schema.public()
        if answer.is_prediction:
            numbers = in_shapes(answer.totals, self.answer_shapes(public, answer.output))
            return self.judge(numbers, answer.schema, answer.output)
        found = self.read(self._name_totals(answer.totals, public), answer.schema, answer.n_rows)
        if isinstance(found, ReadResult):
            found.read_from(answer)
        return found

    def interpret(self, totals: Sequence[int], schema: Schema | PublicSchema, n_rows: int) -> Any:
        """Return what the decrypted totals of some rows are read as."""
        return self._present(Answer(self._as_asked(), tuple(map(int, totals)), schema, n_rows))

    def _as_asked(self) -> Self:
        """Return the question without a fit: what files and answers hold of it."""
        return self

    def _extra_shapes(self, schema: PublicSchema) -> Shapes:
        """Return the shapes of further totals of an answer, such as the draws of a forest."""
        return {}

    def _get_plain_totals(self) -> Mapping[str, Sequence[int]] | None:
        """Return the plain totals of a decrypted model by name; None if it has none yet."""
        return None

    def _drawn_circuit(
        self, schema: PublicSchema
    ) -> tuple[Callable[[Layout], list[Expression]] | None, Interval]:
        """Write what is drawn from a table of some layout beside the totals, if anything, and its
        bounds.
        """
        return None, Interval(1, 1)

    # -- answers for rows --------------------------------------------------------------------------

    def answers(
        self, schema: PublicSchema, columns: Columns, known: ModelTotals, output: str = ""
    ) -> Arrays:
        """Write numbers for every row, by name: :class:`RowAnswer`, from the columns of new rows
        and the known totals.
        """
        raise self._cannot_predict()

    def answer_shapes(self, schema: PublicSchema, output: str = "") -> Shapes:
        """Return the shapes of the answers, without writing them."""
        raise self._cannot_predict()

    def judge(self, answers: Totals, schema: Schema | PublicSchema, output: str = "") -> Any:
        """Return what opened answers mean; each has one more axis in front, the rows."""
        raise self._cannot_predict()

    def _cannot_predict(self) -> StillEncryptedError:
        """Return the error of a question that has no answers for rows before it is opened."""
        why = f"{self.name} has to be opened before it can predict: {self.why_opened}"
        return StillEncryptedError(why, Cure("open", "owner.open(model)"), code="still-encrypted")

    def _choose_output(self, output: str | None) -> str:
        """Return one of :attr:`outputs`; the first by default."""
        chosen = self.outputs[0] if output is None else output
        if chosen not in self.outputs:
            named = Cure("answers", f"output={output!r}", {"output": output})
            listed = " and ".join(repr(name) for name in self.outputs if name)
            ways = (
                (listed,)
                if listed
                else ("one way to answer, ", Cure("no choice of answers", "without output="))
            )
            raise ParameterError(named, f": a {self.name} has ", *ways, code="unknown-output")
        return chosen


class ReadResult:
    """A result that knows the answer that it was read from, so that it can be stored.

    Attributes
    ----------
    source : Answer or None
        The decrypted answer it was read from; None where it was made otherwise.
    """

    source: Answer | None = None

    def read_from(self, source: Answer) -> None:
        """Keep the answer it was read from; results themselves are frozen."""
        object.__setattr__(self, "source", source)


def in_shapes(values: Any, shapes: Shapes) -> dict[str, NDArray[Any]]:
    """Split values along the last axis into named arrays of these shapes."""
    if not isinstance(values, np.ndarray):
        listed, values = values, np.empty(len(values), dtype=object)
        for place, value in enumerate(listed):
            values[place] = value
    arrays, start = {}, 0
    for name, shape in shapes.items():
        stop = start + math.prod(shape)
        arrays[name] = values[..., start:stop].reshape((*values.shape[:-1], *shape))
        start = stop
    return arrays


def flat(arrays: Arrays, shapes: Shapes, gives: str, says: str) -> list[Any]:
    """Flatten arrays of these names and shapes; refuse others."""
    if set(arrays) != set(shapes):
        raise ArgumentError(
            f"{gives} gives {_list_names(arrays)}, and {says} says {_list_names(shapes)}",
            code="wrong-array-names",
        )
    found: list[Any] = []
    for name, shape in shapes.items():
        array = np.array(arrays[name], dtype=object)
        if array.shape != shape and (array.size or math.prod(shape)):
            raise ArgumentError(
                f"{gives} gives {name!r} in the shape {array.shape}, and {says} says {shape}",
                code="wrong-array-shape",
            )
        found += array.flat
    return found


def _list_names(names: Mapping[str, Any]) -> str:
    return ", ".join(map(repr, names)) or "nothing"


def first_paragraph(documented: type[Any]) -> str:
    """Return how the docstring of a class begins: a line or two."""
    return " ".join((inspect.getdoc(documented) or "").partition("\n\n")[0].split())


def plain(value: Any) -> Any:
    """Return a value as JSON would give it back."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {str(name): plain(one) for name, one in value.items()}
    return [plain(one) for one in value] if isinstance(value, (list, tuple)) else value


# -- finding questions by name ---------------------------------------------------------------------

_known: dict[str, type[Question]] = {}
# Modules with questions that are imported when one is asked for that is not known yet: names, for
# they lie above this one.
_LATE: Final = ("encryptedstats.models", "encryptedstats.statistics")


def load_questions(source: str | os.PathLike[str]) -> Any:
    """Import a module of questions: a Python file by its path, or a module by its dotted name."""
    text = os.fspath(source)
    if not text.endswith(".py"):
        return import_module(text)
    path = Path(text).resolve()
    name = f"_questions_{hashlib.sha256(str(path).encode()).hexdigest()[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise FileNotFoundError(f"{text} is no Python file with questions")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look themselves up there
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def question_class(name: str) -> type[Question]:
    """Find the question of a name: in this program, in this library, in an installed package, or
    where the environment says.

    A file names a question, never where its code lies: nothing is imported that was not installed,
    or named by the environment.
    """
    for source in named_by_environment():
        if name not in _known:
            load_questions(source)
    for package in _LATE:
        if name not in _known:
            getattr(import_module(package), name, None)  # which imports the module that defines it
    if name not in _known:  # to look through the installed packages takes milliseconds
        for entry in entry_points(group=ENTRY_POINTS, name=name):
            entry.load()
    if name not in _known or inspect.isabstract(_known[name]):
        raise FileFormatError(
            f"nobody here knows the question {name!r}: ",
            Cure(
                "import questions",
                f"import the module that defines it, or name that in {VARIABLE} (a file such as "
                "my_questions.py)",
            ),
        )
    return _known[name]


def find_loaded_question(name: str) -> type[Question] | None:
    """Find the question of a name if its module is imported already; import nothing."""
    return _known.get(name)


def load_all_questions() -> dict[str, type[Question]]:
    """Return all questions that can be asked here, by name, from wherever :func:`question_class`
    finds them.

    An installed package that cannot be imported is warned of, and is in the way of no other
    question.
    """
    for source in named_by_environment():
        load_questions(source)
    for package in map(import_module, _LATE):
        for name in package.__all__:
            getattr(package, name)
    for entry in entry_points(group=ENTRY_POINTS):
        try:
            entry.load()
        except Exception as error:
            warnings.warn(
                f"the installed question {entry.name} cannot be imported: {error}", stacklevel=2
            )
    return {name: found for name, found in _known.items() if not inspect.isabstract(found)}


def named_by_environment() -> Iterator[str]:
    """Yield the modules and files with questions that the environment names."""
    return filter(None, os.environ.get(VARIABLE, "").split(os.pathsep))


def check_question(value: Any) -> Question:
    """Return a question; refuse what is none."""
    if not isinstance(value, Question):
        what = (
            f"the class {value.__name__}"
            if isinstance(value, type)
            else f"a {type(value).__name__}"
        )
        raise ArgumentTypeError(
            f"a table is asked a question, an object such as es.MultinomialNB(), not {what}",
            code="not-a-question",
        )
    return value


def prepare_question(question: Question, schema: Schema | PublicSchema) -> Question:
    """Return a question in ids, if the schema allows it; errors say which names ids have in the
    owner's schema.
    """
    question.check_parameters()
    asked = question.in_ids(schema)
    try:
        asked.check(schema.public())
        if not isinstance(schema, PublicSchema):
            asked.check_names(schema)
    except (SchemaError, ParameterError) as error:
        raise add_names(error, schema) from None
    return asked


def add_names(
    error: SchemaError | ParameterError, schema: Schema | PublicSchema
) -> SchemaError | ParameterError:
    """Return an error that also says which names the ids in its message have."""
    if isinstance(schema, PublicSchema):
        return error
    known = [
        (one.id, own.name)
        for one, own in zip(schema.public().variables, schema.variables, strict=True)
    ]
    named = [f"{id_} is {name!r}" for id_, name in known if id_ != name and repr(id_) in str(error)]
    return type(error)(error, f" ({', '.join(named)})") if named else error


def question_key(question: Question) -> tuple[type[Question], str]:
    """Return a key that is equal for equal questions."""
    return type(question), json.dumps(question.parameters(), sort_keys=True)


def rebuild_question(question: Question) -> Question | None:
    """Return the question that its parameters tell; None if it has state that they do not tell."""
    if type(question).parameters is Question.parameters and not is_dataclass(question):
        return None
    return question._from_parameters(question.parameters())


# -- pieces that questions are made of -------------------------------------------------------------


def class_columns(schema: PublicSchema, fold: int | None = None) -> list[Expression]:
    """Return the class indicators (of a fold): a count that starts from one never
    counts padding.
    """
    if schema.target_number is not None:
        raise SchemaError(
            "the target is a number and has no classes to tell apart: regressions are for "
            "numbers; for classes, cut it, or ",
            Cure(
                "classes of the target", "schema.with_classes([...]) before anything is encrypted"
            ),
        )
    if not schema.n_classes:
        raise SchemaError(
            "the schema has no classes: ", Cure("name the target", "infer it with target=")
        )
    return [column(str(Column("class", -1, c, fold))) for c in range(schema.n_classes)]


def row_column(schema: PublicSchema, fold: int | None = None) -> Expression:
    """Return what is 1 in every row (of a fold), times its weight, and 0 in padding.

    It needs a target.
    """
    if schema.target_number is not None:
        return column(str(Column("rows", -1, 0, fold)))
    return sum_of(class_columns(schema, fold))


def bin_columns(schema: PublicSchema, variable: int) -> list[Expression]:
    """Return the indicators of the bins of a variable, by its position."""
    return [
        column(str(Column("onehot", variable, k))) for k in range(schema.variables[variable].n_bins)
    ]


def number_column(schema: PublicSchema, variable: int, *, gaps: bool = False) -> Expression:
    """Return the column of a variable that is kept as numbers, by its position; the target's is -1.

    Where values are missing it is 0: a question that says ``gaps=True`` counts such rows out, see
    :func:`complete_rows`.
    """
    known = schema.at(variable)
    if known.kind != "number":
        raise SchemaError(
            f"variable {known.id!r} is {known.kind} and not kept as numbers: ", KEEP_NUMBERS
        )
    if known.missing_bin and not gaps:
        raise SchemaError(
            f"values of {known.id!r} may be missing, and this question takes complete rows alone: ",
            Cure("drop gaps anew", "infer the schema with missing='drop'"),
        )
    return column(str(Column("number", variable)))


def complete_rows(
    schema: PublicSchema, variables: Iterable[int], *, bins: bool = False
) -> Expression | None:
    """Return what is 1 in rows that have a value in all of these variables, else 0; None if none
    can be missing.

    Numbers count; with ``bins`` also variables that have a bin for missing values, which else is a
    level as any other. Each variable with gaps is a factor, and ``number_column(..., gaps=True)``
    is 0 already where its own number is missing.
    """
    factors = [
        column(str(Column("present", j))) for j in dict.fromkeys(variables) if has_gaps(schema, j)
    ]
    if bins:
        binned = [
            j
            for j in dict.fromkeys(variables)
            if j != -1 and schema.at(j).n_bins and schema.at(j).missing_bin
        ]
        factors += [sum_of(bin_columns(schema, j)[:-1]) for j in binned]
    return product_of(factors) if factors else None


def has_gaps(schema: PublicSchema, variable: int) -> bool:
    """Return whether the variable at a position is a number that may be missing."""
    known = schema.target_number if variable == -1 else schema.variables[variable]
    return known is not None and known.kind == "number" and known.missing_bin


def count_weights(totals: Iterable[Expression]) -> bool:
    """Return whether every row counts as often as its weight says in all of these totals: each term
    has one factor of class or rows.
    """

    def rule(node: Expression, args: list[int | None]) -> int | None:
        """Count the weights that multiply each term; None if terms differ, or a row does not count
        as its weight says.
        """
        if node.op == COLUMN:
            return int(encoding_of(Column.parse(node.data)).counts_rows)
        if None in args:
            return None
        counts = [one for one in args if one is not None]
        if node.op == PRODUCT and not node.is_total:
            return sum(counts)
        if node.op == TOTAL:
            return 0 if counts == [1] else None
        if node.op == LINEAR and node.data[1]:
            counts.append(0)
        return counts[0] if len(set(counts)) == 1 else None if counts else 0

    totals = list(totals)
    found = fold_graph(totals, rule)
    return all(found[total] is not None for total in totals)


def product_of(factors: Sequence[Expression]) -> Expression:
    """Multiply factors in a depth of log2 of their number."""
    left = list(factors)
    while len(left) > 1:
        pairs = [a * b for a, b in zip(left[::2], left[1::2], strict=False)]
        left = pairs + left[2 * len(pairs) :]
    return left[0]


class ImpossibleTotalsError(ValueError):
    """Totals that no rows can have."""


def refuse_impossible(good: bool, what: str) -> None:
    """Opened totals that break an invariant are no result of this computation."""
    if not good:
        raise ImpossibleTotalsError(
            f"{what}: the result was altered, or is of other rows. It is refused"
        )


def check_complete_rows(n: int, n_rows: int, names: Iterable[str] = ()) -> None:
    """Refuse to compute a statistic where every row has a missing value; ``n`` rows are
    complete.
    """
    refuse_impossible(n >= 0, f"{n:,} rows would be complete")
    if not n:
        listed = ", ".join(dict.fromkeys(names)) or "the variables"
        raise DataError(
            f"no row is complete: each of the {n_rows:,} rows has a missing value among {listed}; ",
            Cure(
                "ask of fewer variables",
                "ask of fewer variables, without those that are missing everywhere",
            ),
        )
