"""Predicting without opening anything: an encrypted model, encrypted rows, and an answer that only the owner can read.

A model writes its prediction as a circuit over the columns of the new rows and its own totals, once: with the totals as plain
numbers it is the prediction of an opened model, in the clear or on encrypted rows; with the totals as ciphertexts it is that of a
model that stays closed. All four combinations are one formula therefore, and give the same integers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from encryptedstats.circuits.bounds import ColumnRange, Interval, read_bounds
from encryptedstats.circuits.evaluate import evaluate, prepare
from encryptedstats.circuits.expressions import (
    Expression,
    Key,
    column,
    column_names,
    combination,
    given,
    sum_of,
    totals_of,
)
from encryptedstats.circuits.program import ROWS
from encryptedstats.circuits.results import VOTES_KIND, EncryptedNumbers
from encryptedstats.crypto.digests import DIGEST_FIELD, joined_digest, read_digest
from encryptedstats.crypto.dispatch import decrypt_value
from encryptedstats.crypto.keys import Decryptor, PublicKeys
from encryptedstats.errors import (
    REPLACE,
    ExistsError,
    FileFormatError,
    KeyMismatchError,
    RowsByOthersError,
    SchemaError,
)
from encryptedstats.storage.container import Container
from encryptedstats.storage.files import PRIVATE
from encryptedstats.storage.objects import is_url, load_file, save_file, write_object
from encryptedstats.tables import EncryptedTable, PublicSchema, Schema, Table
from encryptedstats.tables.columns import Column
from encryptedstats.tables.opening import opening_schema

if TYPE_CHECKING:
    from encryptedstats.models.base import TotalsClassifier
    from encryptedstats.models.features import Feature

MODEL, DRAWN = "model", "drawn"  # what circuits call the totals of a model, and its drawn fractions
Number = Expression | int
_ONE: Final = Interval(1, 1)


@dataclass(frozen=True)
class Known:
    """The totals of a model as a prediction's circuit has them: plain numbers, or :func:`given` ones with what bounds them."""

    totals: Sequence[Number]
    bounds: Sequence[Interval]
    drawn: Sequence[Number] = ()
    drawn_bound: Interval = _ONE


@dataclass(frozen=True)
class Answer:
    """One number for every row, between which it lies (None: as far as intervals tell), and whether it can be below 0.

    Whether it can be is a fact about the kind of model, never about its totals: it is stored in the clear.
    """

    value: Number
    bound: Interval | None = None
    signed: bool = True


@dataclass(frozen=True)
class Judgement:
    """What the owner makes of the answers: columns with names, scores of the classes, and whether these are probabilities."""

    names: list[Any]
    values: NDArray[Any]
    scores: NDArray[np.float64]
    are_probabilities: bool = True


class Votes(pd.DataFrame):
    """What was predicted for every row, opened: the votes of each class of a forest, or the integers that another model gives.

    It answers as an opened model does, :meth:`predict` and :meth:`predict_proba`, for the rows that it is of.

    Attributes
    ----------
    classes_ : array
        The classes, in the order of the scores.
    scores : DataFrame
        Score of each class: the probabilities, for models that have them.
    """

    _metadata: ClassVar[list[str]] = ["_scores", "_are_probabilities"]
    _scores: pd.DataFrame
    _are_probabilities: bool

    @property
    def _constructor(self) -> Callable[..., pd.DataFrame]:  # what is computed from it is an ordinary DataFrame
        return pd.DataFrame

    @property
    def scores(self) -> pd.DataFrame:
        """Score of each class."""
        return self._scores

    @property
    def classes_(self) -> NDArray[Any]:
        """The classes, in the order of the scores."""
        return np.asarray(self._scores.columns)

    def predict_proba(self) -> pd.DataFrame:
        """Probability of each class for each row."""
        if not self._are_probabilities:
            raise AttributeError("this model gives scores of the classes, no probabilities: see .scores and .predict()")
        return self._scores

    def predict(self) -> pd.Series[Any]:
        """The most probable class of each row."""
        best = self._scores.to_numpy().argmax(axis=1)
        return pd.Series(self.classes_[best], index=self.index, name="predicted")

    def frame(self) -> pd.DataFrame:
        """All of it in one table: the predicted class, then probabilities or scores, then the integers they are made of."""
        letter = "P" if self._are_probabilities else "score"
        scores = self._scores.set_axis([f"{letter}({label})" for label in self._scores.columns], axis=1)
        of_classes = list(self.columns) == list(self._scores.columns)
        numbers = self.set_axis([f"votes({name})" if of_classes else str(name) for name in self.columns], axis=1)
        together: pd.DataFrame = pd.concat([self.predict(), scores, numbers], axis=1).rename_axis("row")
        return together

    def save(self, url: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write :meth:`frame` as a CSV to a path or fsspec URL. These are rows of people: a local file is private."""
        try:
            write_object(url, self.frame().to_csv().encode(), private=True, overwrite=overwrite)
        except FileExistsError as error:
            raise ExistsError(f"{error} (", REPLACE, " replaces it)") from None

    def to_csv(self, path_or_buf: Any = None, *args: Any, **options: Any) -> Any:
        """As of any DataFrame; a file, which has a line for every row, is readable to its user only."""
        if isinstance(path_or_buf, (str, os.PathLike)) and not is_url(os.fspath(path_or_buf)):
            os.close(os.open(path_or_buf, os.O_WRONLY | os.O_CREAT, PRIVATE))
            os.chmod(path_or_buf, PRIVATE)  # one that was there before, too
        return super().to_csv(path_or_buf, *args, **options)


def votes_of(model: TotalsClassifier, values: NDArray[Any], schema: Schema | PublicSchema, output: str) -> Votes:
    """The answers of a model, read."""
    judgement = model._judge(values, schema, output)
    votes = Votes(_narrow(judgement.values), columns=judgement.names)
    votes._scores = pd.DataFrame(judgement.scores, columns=class_names(schema))
    votes._are_probabilities = judgement.are_probabilities
    return votes


def _narrow(values: NDArray[Any]) -> NDArray[Any]:
    """Integers of 64 bits where all fit, else Python's own."""
    if values.dtype == np.int64:
        return values
    fits = all(abs(int(value)) < 1 << 62 for value in values.flat)
    return values.astype(np.int64) if fits else values


class EncryptedVotes:
    """What was predicted for every row, encrypted. ``owner.decrypt(votes)`` gives :class:`Votes`.

    Made by ``model.predict_votes(rows)``.
    """

    def __init__(
        self,
        model: TotalsClassifier,
        rows: EncryptedNumbers,
        schema: Schema | PublicSchema,
        output: str,
        schema_digest: str | None,
    ) -> None:
        self.model = model  # how it grew, nothing fitted
        self.rows = rows
        self.schema = schema
        self.output = output
        self.schema_digest = schema_digest

    @property
    def keys(self) -> PublicKeys:
        """The keys it belongs to."""
        return self.rows.keys

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.rows.n_rows

    def __len__(self) -> int:
        return self.n_rows

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self.rows.nbytes

    def __repr__(self) -> str:
        name, size = type(self.model).__name__, f"{self.nbytes / 1e6:.1f} MB"
        return f"EncryptedVotes(of a {name} for {self.n_rows} rows, {size}, key {self.keys.key_id})"

    # -- files -----------------------------------------------------------------------------------------------------

    def save(self, url: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the votes to a path or fsspec URL, for the owner to fetch; a local file is private.

        It holds no key and no names, and nothing of the model but what kind it is.
        """
        save_file(self.to_container(), url, overwrite=overwrite, private=True)

    def to_container(self, kind: str = VOTES_KIND, fields: dict[str, Any] | None = None) -> Container:
        """As a checked envelope of bytes; ``fields`` are for those who store more with it."""
        own = self.model._stored_fields(self.schema.public(), 0, ())
        more = {"output": self.output, DIGEST_FIELD: self.schema_digest}
        return self.rows.to_container(kind, {**own, **more, **(fields or {})})

    @classmethod
    def load(cls, url: str | os.PathLike[str], keys: PublicKeys) -> EncryptedVotes:
        """Read votes that belong to ``keys``."""
        return read_votes(load_file(url, kind=VOTES_KIND), keys)

    def __reduce__(self) -> NoReturn:
        raise TypeError("encrypted votes are not pickled: use save() and load()")


def read_votes(file: Container, keys: PublicKeys | None) -> EncryptedVotes:
    """The votes in a file, with every check."""
    from encryptedstats.models.files import read_head

    if keys is None:
        raise TypeError("votes are encrypted: give the public keys= they belong to")
    if "places" in file.fields:
        raise FileFormatError("these votes are of version 0.1, whose slots held more than answers: predict again")
    head, rows = read_head(file), EncryptedNumbers.from_container(file, keys)
    output, digest = file.expect("output", str), read_digest(file)
    if len(rows.facts) != _expected_answers(head.model, head.schema.public(), output):
        raise FileFormatError(f"the file has {len(rows.facts)} answers, and such a model gives another number of them")
    return EncryptedVotes(head.model, rows, head.schema, output, digest)


def _expected_answers(model: TotalsClassifier, schema: PublicSchema, output: str) -> int:
    if output not in model._outputs:
        raise FileFormatError(f"the file has answers {output!r}, which a {type(model).__name__} does not give")
    try:
        return model._n_answers(schema, output)
    except NotImplementedError as error:
        raise FileFormatError(f"the file has answers of a model that gives none: {error}") from error


@decrypt_value.register(EncryptedVotes)
def _decrypt_votes(votes: EncryptedVotes, decryptor: Decryptor, *, schema: Schema | None = None) -> Votes:
    """The votes as a DataFrame with probabilities and predicted classes."""
    known = opening_schema(schema, votes.schema, votes, decryptor)
    return votes_of(votes.model, decrypt_value(votes.rows, decryptor), known, votes.output)


# -- predicting -----------------------------------------------------------------------------------------------------------


def clear_judgement(model: TotalsClassifier, table: Table) -> Judgement:
    """What an opened model makes of clear rows: its own answers, judged as the owner judges them."""
    output = model._outputs[0]
    return model._judge(clear_answers(model, table, output), _naming_schema(model, table), output)


def predict(model: TotalsClassifier, rows: Any, output: str, **options: Any) -> Votes | EncryptedVotes:
    """The answers for some rows: in the clear where model and rows are, else encrypted."""
    if not model.is_encrypted and not isinstance(rows, EncryptedTable):
        table = model._rows(rows)
        return votes_of(model, clear_answers(model, table, output), _naming_schema(model, table), output)
    if isinstance(rows, EncryptedTable):
        _refuse_rows_of_others(rows)
    else:
        rows = _encrypted_here(model, rows)
    return _encrypted(model, rows, output, options)


def clear_answers(model: TotalsClassifier, table: Table, output: str) -> NDArray[Any]:
    """The answers of an opened model for clear rows, shape (rows, answers): by the circuit that encrypted ones are read by."""
    answers = model._answers(table.public_schema, table.columns(), model._known_plain(), output)
    expressions = [answer.value for answer in answers if isinstance(answer.value, Expression)]
    found = iter(table.evaluate(expressions))
    exact = [next(found) if isinstance(a.value, Expression) else np.full(len(table), a.value, object) for a in answers]
    # Below 2^53 floats are exact too, so that what is made of 64-bit integers is what is made of Python's, only sooner.
    fit = all(abs(answer) < 1 << 53 for numbers in exact for answer in (numbers.min(), numbers.max()))
    return np.column_stack([numbers.astype(np.int64 if fit else object) for numbers in exact])


@dataclass(frozen=True)
class Question:
    """What is computed on encrypted rows: all answers with their bounds, and the model's packs; none, if it is plain."""

    answers: list[Answer]
    bounds: list[Interval]
    packs: dict[str, EncryptedNumbers]

    @property
    def values(self) -> list[Number]:
        """What is asked for."""
        return [answer.value for answer in self.answers]

    @property
    def expressions(self) -> list[Expression]:
        """What there is to compute for it."""
        return [value for value in self.values if isinstance(value, Expression)]

    def told(self, max_value: int) -> list[Interval]:
        """What everybody may know of the answers. Those of a plain model could be any: their bounds would give it away."""
        if self.packs:
            return self.bounds
        return [Interval(-max_value if answer.signed else 0, max_value) for answer in self.answers]


def question(model: TotalsClassifier, rows: EncryptedTable, output: str) -> Question:
    """The circuit of a prediction for the rows of a table, if these are rows of the model and have the columns it needs."""
    _check_rows(model, rows)
    packs = model._packs() if model.is_encrypted else {}
    known = model._known_given(packs) if packs else model._known_plain()
    answers = model._answers(rows.schema, rows.columns(), known, output)
    asked = Question(
        answers, answer_bounds(answers, {**rows.ranges(), **given_ranges(known, answers)}, rows.n_rows), packs
    )
    totals = totals_of(asked.expressions)
    for name in column_names(asked.expressions):
        if name not in totals:
            rows._check_stored(Column.parse(name))
    return asked


def check_prediction(model: TotalsClassifier, rows: EncryptedTable, output: str) -> Question:
    """Refuse what could not be predicted, without reading a row: of another key or schema, or without a proof that it decrypts."""
    _refuse_rows_of_others(rows)
    asked = question(model, rows, output)
    ones = ones_of(rows.schema, rows.columns())
    prepare(asked.values, rows, form=ROWS, given=asked.packs, bounds=asked.bounds, ones=ones)
    return asked


def _encrypted(model: TotalsClassifier, rows: EncryptedTable, output: str, options: dict[str, Any]) -> EncryptedVotes:
    asked = question(model, rows, output)
    ones, told = ones_of(rows.schema, rows.columns()), asked.told(rows.parameters.max_value)
    found = evaluate(
        asked.values, rows, form=ROWS, given=asked.packs, bounds=asked.bounds, ones=ones, told=told, **options
    )
    schema = rows.private_schema or (model.schema_ if isinstance(model.schema_, Schema) else rows.schema)
    # Rows that were encrypted with the public key have no digest: the model's is that of its own rows.
    digest = joined_digest(model.totals_.schema_digest if asked.packs else None, rows.facts.schema_digest)
    return EncryptedVotes(model._like(), found, schema, output, digest)


def given_ranges(known: Known, answers: Sequence[Answer]) -> dict[Key, ColumnRange]:
    """What is publicly known of the given totals that some answers use."""
    ranges: dict[Key, ColumnRange] = {}
    for key, (name, k) in totals_of([a.value for a in answers if isinstance(a.value, Expression)]).items():
        bound = known.bounds[k] if name == MODEL else known.drawn_bound
        ranges[key] = ColumnRange(bound.low, bound.high)
    return ranges


def answer_bounds(answers: Sequence[Answer], ranges: Mapping[Any, ColumnRange], n_rows: int) -> list[Interval]:
    """Between which numbers each answer lies: as the model says, else as far as intervals tell."""
    open_ones = [a.value for a in answers if a.bound is None and isinstance(a.value, Expression)]
    found = read_bounds(open_ones, ranges, n_rows)
    return [a.bound or (found[a.value] if isinstance(a.value, Expression) else Interval.of(a.value)) for a in answers]


def given_totals(bounds: Sequence[Interval], n_drawn: int = 0, drawn_bound: Interval = _ONE) -> Known:
    """The totals of a model that stays closed."""
    totals = [given(MODEL, k) for k in range(len(bounds))]
    return Known(totals, bounds, [given(DRAWN, k) for k in range(n_drawn)], drawn_bound)


def total_bounds(totals: EncryptedNumbers) -> list[Interval]:
    """What is publicly known of encrypted totals."""
    return [Interval(facts.low, facts.high) for facts in totals.facts]


def _encrypted_here(model: TotalsClassifier, rows: Any) -> EncryptedTable:
    """Plain rows for an encrypted model: under the public key, which whoever predicts has."""
    encrypted: EncryptedTable = model.totals_.keys.encrypt(model._rows_to_predict(rows)).accept_others()
    return encrypted


def _refuse_rows_of_others(rows: EncryptedTable) -> None:
    """Answers are numbers of single rows: they are for who owns all of them."""
    if rows.by_others:
        raise RowsByOthersError(
            "these rows were encrypted by others: who opens their votes would learn something of every single row. Rows are "
            "predicted for the owner who encrypted them with the secret key; let others predict their own rows with an opened model"
        )


def _check_rows(model: TotalsClassifier, rows: EncryptedTable) -> None:
    if model.is_encrypted and rows.key_id != model.totals_.keys.key_id:
        raise KeyMismatchError(
            f"rows of key {rows.key_id} cannot be predicted by a model of key {model.totals_.keys.key_id}: both belong to one owner"
        )
    if rows.schema.variables != model.schema_.public().variables:
        raise SchemaError("the rows are of another schema than the model: make them with schema.table(...) of its own")
    mine = model.totals_.schema_digest if model.is_encrypted else None
    theirs, known = rows.facts.schema_digest, rows.private_schema
    other = (
        known is not None
        and isinstance(model.schema_, Schema)
        and known.strict_variables != model.schema_.strict_variables
    )
    if other or (mine is not None and theirs is not None and mine != theirs):
        raise SchemaError(
            "the rows have the shape of those the model was fitted to, and yet another schema (cut points, levels or their order "
            "differ): encrypt them with the schema of the training rows"
        )


def _naming_schema(model: TotalsClassifier, table: Table) -> Schema | PublicSchema:
    return model.schema_ if isinstance(model.schema_, Schema) else table.schema


# -- pieces that predictions are made of -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Line:
    """The estimates of intercept and slope of one predictor, a/d and b/d, in integers."""

    a: Number
    b: Number
    d: Number

    def at(self, x: Expression) -> Number:
        """e = a + b x."""
        return sum_of_numbers([self.a, times(self.b, x)])


def line_of(n0: Number, n1: Number, x0: Number, x1: Number, sum_xx: Number, *, paired: bool) -> Line:
    """The paper's estimators from the counts, the sums of x by class and the sum of squares (section 4.1)."""
    n, sum_x, sum_z, sum_xz = n0 + n1, x0 + x1, 2 * (n1 - n0), 2 * (x1 - x0)
    if paired:
        return Line(sum_xx * sum_z - sum_x * sum_xz, n * sum_xz - sum_x * sum_z, n * sum_xx - sum_x * sum_x)
    # Intercept sum z / N and slope sum xz / sum x^2, over the common denominator N sum x^2.
    return Line(sum_xx * sum_z, n * sum_xz, n * sum_xx)


def times(a: Number, b: Number) -> Number:
    """A product in which a plain 0 is 0."""
    return 0 if (isinstance(a, int) and a == 0) or (isinstance(b, int) and b == 0) else a * b


def sum_of_numbers(terms: Sequence[Number]) -> Number:
    """A sum of expressions and plain numbers, as one node; a plain number where expressions cancel."""
    plain = sum(term for term in terms if isinstance(term, int))
    return combination([(1, term) for term in terms if isinstance(term, Expression)], plain)


def weighted_sum(weights: Sequence[Number], columns: Sequence[Expression]) -> Number:
    """The sum of weights times columns."""
    return sum_of_numbers([times(weight, x) for weight, x in zip(weights, columns, strict=True)])


def shallow_product(factors: Sequence[Number]) -> Number:
    """A product, log2 of the number of factors deep."""
    if len(factors) == 1:
        return factors[0]
    half = len(factors) // 2
    return times(shallow_product(factors[:half]), shallow_product(factors[half:]))


def ones_of(schema: PublicSchema, columns: Sequence[Column]) -> Expression | None:
    """What is 1 in every row and 0 in padding: all bins of a variable, of which a row has one; None where there are no bins."""
    stored = set(columns)
    every = [[Column("onehot", j, k) for k in range(v.n_bins)] for j, v in enumerate(schema.variables)]
    found = [bins for bins in every if bins and stored.issuperset(bins)]
    return sum_of([column(str(bin_)) for bin_ in min(found, key=len)]) if found else None


def class_names(schema: Schema | PublicSchema) -> list[Any]:
    """The classes by name, or by number where nobody here knows the names."""
    return list(range(schema.n_classes) if isinstance(schema, PublicSchema) else schema.classes)


def count_names(schema: Schema | PublicSchema) -> list[str]:
    """What the class counts are called."""
    return [f"n[{label}]" for label in class_names(schema)]


def variable_names(schema: Schema | PublicSchema) -> list[str]:
    """The variables by name, or by id."""
    return [v.id for v in schema.variables] if isinstance(schema, PublicSchema) else list(schema.names)


def feature_labels(found: Sequence[Feature], schema: Schema | PublicSchema) -> list[str]:
    """The predictors by name."""
    names = variable_names(schema)
    labels = []
    for feature in found:
        name = names[feature.variable]
        if feature.level is None:
            labels.append(name)
        elif isinstance(schema, PublicSchema):
            labels.append(f"{name}.bin{feature.level}")
        else:
            labels.append(f"{name} = {schema.variables[feature.variable].labels[feature.level]}")
    return labels
