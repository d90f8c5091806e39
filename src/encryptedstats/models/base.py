"""Models: questions that fit, predict, add and forget rows as scikit-learn's estimators do.

The state of every model is the totals that answer its question: encrypted after a fit on an
encrypted table, plain otherwise. Totals of different rows add, so models do. A subclass says what
any question says, and what it learns from the opened totals.

Deviations from scikit-learn, all deliberate; ``tests/models/test_estimator_checks.py`` runs
``check_estimator`` on every model:

- Numbers are cut into ``bins`` before anything is counted, so that a model does not see small
  differences. Only ``SemiparametricNB`` takes arrays of integers, not DataFrames, as they are:
  unpaired, where the origin matters, it fails ``check_classifier_data_not_an_array``. Every other
  check passes for every model.
- Text, booleans and Categoricals are categories, and their missing values have a bin. A level that
  was not there when ``fit`` was given ``X`` and ``y`` counts as missing where that column has such
  a bin, else as the column's rarest level, with a ``SchemaWarning``: cross-validation meets such
  levels all the time. A table does what its schema says, which by default is an error. Missing
  numbers are an error, as anywhere in scikit-learn.
- ``sample_weight`` are integers, at least 0: a row of weight 2 is two rows. A table brings its
  weights, ``schema.table(df, weights=...)``.
- ``fit`` also takes tables, without ``y``; ``bins`` are then those of its schema, and others are
  warned of. A model of a table finds the columns of a DataFrame by name and overlooks others.
"""

from __future__ import annotations

import inspect
import os
import warnings
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_bool_dtype, is_numeric_dtype
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_is_fitted, column_or_1d

from encryptedstats.crypto.dispatch import decrypt_value, openable
from encryptedstats.crypto.encryption import Decryptor, join_digests
from encryptedstats.crypto.keys import PublicKeys
from encryptedstats.errors import (
    ArgumentError,
    ArgumentTypeError,
    Cure,
    FileFormatError,
    KeyMismatchError,
    ParameterError,
    SchemaError,
    SchemaWarning,
)
from encryptedstats.models._sklearn import record_features
from encryptedstats.models.prediction import Votes
from encryptedstats.storage.container import Container
from encryptedstats.storage.objects import load_file
from encryptedstats.tables import EncryptedTable, PublicSchema, Question, Schema, Table
from encryptedstats.tables.answers.answer import Answer, same_schema
from encryptedstats.tables.answers.files import ANSWER_KINDS, read_presented
from encryptedstats.tables.answers.results import ModelSummary, Result
from encryptedstats.tables.answers.schema_check import decrypt_answer
from encryptedstats.tables.block_ids import NOT_INSIDE, join_rows
from encryptedstats.tables.questions.constraints import Constraints, Integer
from encryptedstats.tables.questions.folds import folds_of
from encryptedstats.tables.questions.question import (
    MODEL_KIND,
    OPEN_MODEL_KIND,
    ImpossibleTotalsError,
    Totals,
    asked_of,
    class_columns,
    plain,
)
from encryptedstats.tables.questions.row_answers import numbers_of
from encryptedstats.tables.rows.frames import as_frame, describe_missing, missing_masks
from encryptedstats.tables.rows.table_from_frame import (
    as_weights,
    complete_rows_to_predict,
    rows_to_predict,
)
from encryptedstats.tables.schema.inference import Wishes
from encryptedstats.tables.schema.names import chosen_positions
from encryptedstats.tables.schema.variables import as_level

if TYPE_CHECKING:
    from typing_extensions import Self

_MIXED: Final = "one of the models is encrypted and the other is open: open both, or none"
_OWN_WEIGHTS: Final = (
    "a table brings its own weights, schema.table(df, weights=...): fit(table), without "
    "sample_weight"
)
M = TypeVar("M", bound="TotalsModel")
C = TypeVar("C", bound="TotalsClassifier")


class TotalsModel(Question, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A model whose fit is a list of totals over rows: a question with scikit-learn's interface.

    A subclass writes this, and has everything else from here: fits of clear and encrypted tables,
    plans, files, folds, ``+`` and ``-``, ``partial_fit``. What predicts classes is a
    :class:`TotalsClassifier`.

    - ``__init__``, which stores its parameters and nothing else;
    - ``totals`` and ``shapes``, as any :class:`encryptedstats.Question`;
    - ``learn(totals, schema)``: sets the fitted attributes from the opened integers, refusing those
      that cannot be;
    - where it has more to show than its totals: ``learned()``, a table of what it has learned, for
      :meth:`summary`;
    - how it predicts, which it does for the rows of :meth:`_rows`;
    - where it is to be fitted to a DataFrame or array: :meth:`_table_of` and :meth:`_rows_of`.

    Attributes
    ----------
    answer_ : EncryptedAnswer
        What a fit keeps: the answer to the question that the model asks, encrypted or decrypted.
        The attributes below read it.
    totals_ : list of int or EncryptedNumbers
    beside_ : mapping
        Further totals by name, of the same kind: what a forest draws.
    schema_ : Schema or PublicSchema
        Of the rows; public where their names are not known here.
    n_rows_ : int
    n_dropped_ : int
        Rows that were left out of the table because values were missing.
    weight_bound_ : int or None
        Public bound of the weights of the rows: 1 where they have none; None where it is not known.
    block_ids_ : tuple of str
        Encrypted blocks whose rows are in the model, or folds of blocks.
    growth_ : dict
        The parameters of the fit, with its seed: what models must share to be combined.
    """

    kind: ClassVar[str] = MODEL_KIND
    _opened_kind: ClassVar[str] = OPEN_MODEL_KIND
    _answer_noun: ClassVar[str] = "model"
    remarks: ClassVar[tuple[str, ...]] = ()  #: what to know when reading what it has learned
    _target: ClassVar[str] = "target"  # what y is
    # What a model made from this one keeps of its fit.
    _carried: ClassVar[tuple[str, ...]] = (
        "n_features_in_",
        "feature_names_in_",
        "_fitted_on_frame",
        "_translated",
    )
    _fitted_on_frame = False
    #: Parameters that name variables, as they were written and by ids.
    _translated: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
    answer_: Answer

    # -- what it holds -----------------------------------------------------------------------------

    @property
    def totals_(self) -> Any:
        """The totals of the fit: a list of integers, or encrypted numbers."""
        return self.answer_.totals if self.answer_.is_encrypted else list(self.answer_.totals)

    @property
    def beside_(self) -> Mapping[str, Any]:
        """Further totals by name."""
        return self.answer_.beside

    @property
    def schema_(self) -> Schema | PublicSchema:
        """The schema of the rows, public where their names are not known here."""
        return self.answer_.schema

    @property
    def n_rows_(self) -> int:
        """The number of rows in the model."""
        return self.answer_.n_rows

    @property
    def n_dropped_(self) -> int:
        """The number of rows that were left out because values were missing."""
        return self.answer_.n_dropped

    @property
    def weight_bound_(self) -> int | None:
        """The public bound of the weights of the rows, if it is known."""
        return self.answer_.weight_bound

    @property
    def block_ids_(self) -> tuple[str, ...]:
        """The encrypted blocks whose rows are in the model, or folds of blocks."""
        return self.answer_.block_ids

    @property
    def growth_(self) -> dict[str, Any]:
        """The parameters of the fit, with its seed."""
        return self.answer_.question.parameters()

    # -- what a subclass says, beside what every question does
    # ---------------------------------------------------------

    @abstractmethod
    def learn(self, totals: Totals, schema: PublicSchema) -> None:
        """Set the fitted attributes from the opened totals, refusing totals that cannot be."""

    # -- as a question
    # --------------------------------------------------------------------------------------------

    def parameters(self) -> dict[str, Any]:
        """Return the parameters as JSON knows them; of a fitted model with variables by id."""
        found: dict[str, Any] = plain(self.get_params())
        written, in_ids = self._translated
        return (
            {**found, **in_ids}
            if all(found.get(name) == value for name, value in written.items())
            else found
        )

    def learned(self) -> pd.DataFrame:
        """Return what an opened model has learned as a table; by default its totals, by name."""
        named = self._named(self.totals_, self.schema_.public())
        totals = {
            f"{name}[{', '.join(map(str, place))}]" if place else name: int(total)
            for name, array in named.items()
            for place, total in np.ndenumerate(array)
        }
        return pd.DataFrame({"total": pd.Series(totals, dtype=object)})

    def summary(self) -> Result:
        """Return what the model has learned, to be printed, drawn or read as a DataFrame."""
        self._check_open()
        return ModelSummary(
            title=self.describe(),
            n_rows=self.n_rows_,
            notes=self.remarks,
            table=self.learned(),
            class_counts=self._counted(),
        )

    def _counted(self) -> dict[Any, int]:
        return {}

    def describe(self, schema: Any = None) -> str:
        asked = self._in_names(schema) if isinstance(schema, Schema) else self
        return str(BaseEstimator.__repr__(asked))

    def read(self: M, totals: Totals, schema: Schema | PublicSchema, n_rows: int) -> M:
        """Return a fitted model of these totals."""
        flat = [int(total) for array in totals.values() for total in array.flat]
        model: M = self.opened(flat, schema, n_rows)
        return model

    def _present(self, answer: Answer) -> Any:
        """Return a fitted model that holds an answer; of a prediction, what any question does."""
        return super()._present(answer) if answer.is_prediction else self._copy()._hold(answer)

    def _as_asked(self: M) -> M:
        """Return the question that the fit answered: unfitted, with the parameters of that time."""
        asked = self.growth_ if hasattr(self, "answer_") else self.parameters()
        model: M = clone(self).set_params(**asked)
        return model

    def _as_predictor(self) -> Answer:
        """Return the answer to predict with, whose question is this model with its parameters of
        now.
        """
        names = self._beside_shapes(self.schema_.public())
        beside = {name: found for name, found in self.beside_.items() if name in names}
        return replace(self.answer_, question=self, beside=beside)

    def _known_totals(self) -> dict[str, Any] | None:
        """Return all numbers of an opened model; None of one that is unfitted or encrypted."""
        is_open = hasattr(self, "answer_") and not self.is_encrypted
        return numbers_of(self._as_predictor()) if is_open else None

    # -- fitting
    # --------------------------------------------------------------------------------------------

    def fit(self: M, X: Any, y: Any = None, sample_weight: Any = None, **options: Any) -> M:
        """Fit to a DataFrame or array with ``y``, to a clear ``Table``, or to an
        ``EncryptedTable``.

        ``sample_weight`` are integers, at least 0, for ``X`` and ``y``; tables have their own. On
        an encrypted table the state stays encrypted: ``owner.open(model)`` opens it. Options are
        then those of ``EncryptedTable.evaluate`` (``workers``, ``progress``, ``device``,
        ``memory_limit``, ``checkpoint``).
        """
        return self._fit_table(self._training_table(X, y, sample_weight), **options)

    def partial_fit(self: M, X: Any, y: Any = None, sample_weight: Any = None, **options: Any) -> M:
        """Add rows: those of another table (refused where they are in the model already), or more
        of ``X`` and ``y``.
        """
        if not hasattr(self, "answer_"):
            return self._fit_table(self._training_table(X, y, sample_weight), **options)
        return self._with_more(X, y, sample_weight, **options)

    def _with_more(self: M, X: Any, y: Any, sample_weight: Any, **options: Any) -> M:
        """Add these rows to the model, and return it."""
        if not isinstance(X, (Table, EncryptedTable)):
            X = self._rows_of(X, y, sample_weight)
        elif sample_weight is not None:
            raise ArgumentError(_OWN_WEIGHTS, code="weights-with-table")
        if isinstance(X, EncryptedTable) != self.is_encrypted:
            raise ArgumentTypeError(_MIXED, code="encrypted-and-open")
        # Refused before the work, not after it.
        join_rows(self.block_ids_, _block_ids(X))
        self._check_unchanged()
        if not same_schema(self.schema_, known_schema(X)):
            raise SchemaError(
                "rows of another schema cannot be added to this model", code="other-schema"
            )
        if isinstance(X, EncryptedTable):
            if X.key_id != self.totals_.keys.key_id:
                raise KeyMismatchError(
                    f"rows of key {X.key_id} cannot be added to a model of key "
                    f"{self.totals_.keys.key_id}",
                    code="other-key",
                )
            join_digests(self.totals_.schema_digest, X.facts.schema_digest)
        self._check_table(X)
        return self._hold(self.answer_ + X._answer_to(self.answer_.question, **options))

    def _training_table(
        self, X: Any, y: Any, sample_weight: Any = None, **known: Any
    ) -> Table | EncryptedTable:
        if not isinstance(X, (Table, EncryptedTable)):
            return self._table_of(X, y, sample_weight, **known)
        if y is not None:
            raise ArgumentError(
                f"a table brings its own {self._target}: fit(table), without y", code="y-with-table"
            )
        if sample_weight is not None:
            raise ArgumentError(_OWN_WEIGHTS, code="weights-with-table")
        self._warn_of_unused()
        for name in set(vars(self)) & set(TotalsModel._carried):
            delattr(self, name)  # of an earlier fit to a frame
        return X

    def _warn_of_unused(self) -> None:
        """Say which parameters a table makes no use of."""

    def _table_of(self, X: Any, y: Any, sample_weight: Any = None) -> Table:
        """Make a clear table, and a schema for it, of what scikit-learn users bring."""
        raise ArgumentTypeError(
            f"a {type(self).__name__} is fitted to a table: schema.table(df), or its encryption, "
            f"not a {type(X).__name__}",
            code="not-a-table",
        )

    def _rows_of(self, X: Any, y: Any, sample_weight: Any = None) -> Table:
        """Make a table of further rows, in the schema of the model."""
        return self._table_of(X, y, sample_weight)

    def _fit_table(self: M, table: Table | EncryptedTable, **options: Any) -> M:
        self._check_table(table)
        known = known_schema(table)
        self._translate(known)
        # What an earlier fit left to chance is drawn anew.
        asked = clone(self).in_ids(known)._settled()
        return self._hold(table._answer_to(asked, **options))

    def _translate(self, schema: Schema | PublicSchema) -> None:
        """Remember by which ids the variables go that parameters name."""
        self._translated = ({}, {})
        own, found = self.parameters(), self.in_ids(schema).parameters()
        changed = [name for name in own if own[name] != found[name]]
        self._translated = (
            {name: own[name] for name in changed},
            {name: found[name] for name in changed},
        )

    def _copy(self: M) -> M:
        """Return an unfitted model that knows what this one does of the frames it was fitted to."""
        model: M = clone(self)
        for name in set(self._carried) & set(vars(self)):
            setattr(model, name, getattr(self, name))
        return model

    def _hold(self: M, answer: Answer) -> M:
        """Become the fitted model of an answer, and learn from its totals if they are decrypted."""
        answer = replace(answer, question=answer.question._as_asked())
        for name in [
            name for name in vars(self) if name.endswith("_") and name not in self._carried
        ]:
            delattr(self, name)
        self.answer_ = answer
        self._set_labels(answer.schema)
        if not self._fitted_on_frame:
            self._set_feature_names(answer.schema)
        if not answer.is_encrypted:
            public = answer.schema.public()
            self.learn(self._named(answer.totals, public), public)
        return self

    def _set_labels(self, schema: Schema | PublicSchema) -> None:
        """Set attributes that :meth:`learn` needs to name things."""

    def _set_feature_names(self, schema: Schema | PublicSchema) -> None:
        """Set the names of the columns that rows have to bring; numbers if names are not known."""
        self.__dict__.pop("feature_names_in_", None)
        self.n_features_in_ = len(schema.public().variables)
        if isinstance(schema, Schema):
            self.feature_names_in_ = np.array(schema.column_names, dtype=object)
            self.n_features_in_ = len(self.feature_names_in_)

    def _check_table(self, table: Table | EncryptedTable) -> None:
        asked_of(self, known_schema(table))

    # -- what scikit-learn users bring
    # -----------------------------------------------------------------------------

    def _check_frame(self, X: Any, *, reset: bool) -> Any:
        is_frame = isinstance(X, pd.DataFrame) or hasattr(X, "to_pandas")
        checked = X if is_frame else check_array(X, dtype="numeric")
        # A model of a table finds its columns by name, whatever else a frame has; one of X and y is
        # as strict as scikit-learn.
        if reset or self._fitted_on_frame:
            record_features(self, X, reset=reset)
            self._fitted_on_frame = True
        if not len(checked):
            raise ArgumentError(
                "Found array with 0 sample(s) while a minimum of 1 is required", code="no-rows"
            )
        return X.to_pandas() if is_frame and not isinstance(X, pd.DataFrame) else checked

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """Show parameters as scikit-learn does, and of a fitted model its rows and key."""
        text: str = super().__repr__(N_CHAR_MAX)
        if not hasattr(self, "answer_"):
            return text
        if self.is_encrypted:
            return f"{text} [encrypted, {self.n_rows_} rows, key {self.totals_.keys.key_id[:4]}...]"
        return f"{text} [fitted, {self.n_rows_} rows]"

    # -- open or not
    # --------------------------------------------------------------------------------------------

    @property
    def is_encrypted(self) -> bool:
        """Whether the fitted state is encrypted."""
        return hasattr(self, "answer_") and self.answer_.is_encrypted

    def _check_open(self) -> None:
        check_is_fitted(self, "answer_")
        if self.is_encrypted:
            raise NotFittedError(
                f"this {type(self).__name__} was fitted on encrypted rows and is still encrypted: "
                "open it with owner.open(model)"
            )

    def _known_private(self) -> Schema:
        if not isinstance(self.schema_, Schema):
            raise SchemaError(
                "this model knows its variables by number only: ",
                Cure(
                    "open with names",
                    "open it with owner.open(model, schema=schema) to use names",
                ),
            )
        return self.schema_

    def _rows(self, X: Any, *, complete: bool = False) -> Table:
        """Return clear rows of the schema of the model, none of them left out.

        If they have to be ``complete``, rows that cannot be predicted are refused.
        """
        self._check_open()
        if isinstance(X, EncryptedTable):
            raise ArgumentTypeError(
                "these rows are encrypted, and an opened model predicts clear ones: give a Table "
                "or DataFrame",
                code="still-encrypted",
            )
        return self._rows_to_predict(X, complete=complete)

    def _by_row(self, X: Any, compute: Callable[[Table], NDArray[Any]]) -> NDArray[Any]:
        """Compute something for each row; nothing for rows that the schema does not allow."""
        table = self._rows(X)
        return table.leave_blank(compute(table))

    def _rows_to_predict(self, X: Any, *, complete: bool = False) -> Table:
        if not isinstance(X, Table):
            schema, frame = self._known_private(), self._frame_to_predict(X)
            if complete:
                return complete_rows_to_predict(schema, frame, stacklevel=4)
            needed = [schema.names[j] for j in self._used_positions()]
            return rows_to_predict(schema, frame, needed, stacklevel=5)
        known = self.schema_ if isinstance(self.schema_, Schema) else self.schema_.public()
        rows = X.schema if isinstance(self.schema_, Schema) else X.schema.public()
        if rows.strict_variables != known.strict_variables:
            raise SchemaError(
                "the rows are of another schema than the model: make them with schema.table(...) "
                "of its own",
                code="other-schema",
            )
        return X

    def _frame_to_predict(self, X: Any) -> Any:
        frame = self._check_frame(X, reset=False)
        return self._with_unused(frame) if isinstance(frame, pd.DataFrame) else frame

    def _used_positions(self) -> Collection[int]:
        """Return the positions of the variables that a prediction needs."""
        return range(len(self.schema_.public().variables))

    def _with_unused(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Add the columns that a prediction does not need, where the frame lacks them."""
        schema, used = self._known_private(), self._used_positions()
        if schema.onehot is not None:  # its columns count by position
            return frame
        for j, variable in enumerate(schema.variables):
            if j not in used and variable.name not in frame.columns:  # any value will do
                number = (variable.low or 0) / 10.0 ** (variable.digits or 0)
                value = variable.levels[0] if variable.levels else number
                frame = frame.assign(**{variable.name: value})
        return frame

    # -- adding and forgetting
    # -------------------------------------------------------------------------------------

    def __add__(self: M, other: M) -> M:
        """Return the model of the rows of both."""
        self._check_combines(other)
        return self._copy()._hold(self.answer_ + other.answer_)

    def __sub__(self: M, other: M) -> M:
        """Return the model without the rows of ``other``, which are forgotten."""
        self._check_combines(other)
        rest = self.answer_ - other.answer_
        try:
            return self._copy()._hold(rest)
        except ImpossibleTotalsError as error:
            raise SchemaError(NOT_INSIDE, code="rows-missing") from error

    def _check_unchanged(self) -> None:
        """Refuse totals that were fitted with other parameters: new rows would be counted
        differently.
        """
        now = self.parameters()
        changed = [
            f"{name} was {self.growth_[name]!r} and is {now[name]!r}"
            for name in now
            if now[name] != self.growth_[name]
        ]
        if changed:
            raise ArgumentError(
                f"parameters were changed after the fit ({', '.join(changed)}): set them back, or "
                "fit again",
                code="parameters-changed",
            )

    def _check_combines(self, other: Any) -> None:
        if type(other) is not type(self):
            raise ArgumentTypeError(
                f"a {type(self).__name__} is combined with another one, not with "
                f"{type(other).__name__}",
                code="other-model-type",
            )
        check_is_fitted(self, "answer_")
        check_is_fitted(other, "answer_")
        if self.is_encrypted != other.is_encrypted:
            raise ArgumentTypeError(_MIXED, code="encrypted-and-open")
        self._check_unchanged()
        other._check_unchanged()
        own, others = self.growth_, other.growth_
        differ = [name for name in own if own[name] != others[name]]
        if differ:
            parts = [
                (
                    ", ",
                    Cure("parameter is", f"{name} is", {"parameter": name}),
                    f" {own[name]!r} and {others[name]!r}",
                )
                for name in differ
            ]
            said = [part for three in parts for part in three][1:]
            raise ParameterError(
                "models that grew differently cannot be combined: ", *said, code="grown-differently"
            )

    # -- folds
    # --------------------------------------------------------------------------------------------

    def fit_folds(self, table: Table | EncryptedTable, **options: Any) -> Any:
        """Fit every cross-validation fold of a table that declares folds, in one pass: for every
        fold the model of all other rows.

        A clear table gives these models; an encrypted one an answer, which ``owner.open(folds,
        schema)`` opens to them. ``es.score_folds(models, table)`` then scores.
        """
        asked = folds_of(clone(self), table.n_folds)
        self._check_table(table)
        return table.ask(asked, **options)

    # -- files
    # --------------------------------------------------------------------------------------------

    def save(self, url: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the fitted model to a path or fsspec URL. Encrypted, it holds no key and no names;
        open, all it knows.
        """
        check_is_fitted(self, "answer_")
        self.answer_.save(url, overwrite=overwrite)

    def to_container(self, *, names: bool = True) -> Container:
        """Return a checked envelope of bytes; of an open model with or without names and cut
        points.
        """
        answer = self.answer_ if names else replace(self.answer_, schema=self.schema_.public())
        return answer.to_container()

    @classmethod
    def load(cls, url: str | os.PathLike[str], keys: PublicKeys | None = None) -> Any:
        """Read a model: an encrypted one with the public keys it belongs to, an opened one as it
        is.
        """
        file = load_file(url)
        if file.kind not in (*ANSWER_KINDS, OPEN_MODEL_KIND):
            raise FileFormatError(
                f"{url} holds {file.kind!r}, and a model is wanted here", code="other-file-kind"
            )
        model = read_presented(file, keys)
        if not isinstance(model, cls):
            held = file.kind if isinstance(model, Answer) else type(model).__name__
            raise FileFormatError(
                f"{url} holds a {held}, and a {cls.__name__} is wanted here",
                code="other-model-type",
            )
        return model


class TotalsClassifier(ClassifierMixin, TotalsModel):  # type: ignore[misc]  # scikit-learn has no types
    """A classifier whose fit is a list of totals over rows. ``docs/guides/questions.md`` has a complete
    one.

    A subclass writes what any :class:`TotalsModel` does, and

    - has ``bins`` and ``variables`` among its parameters: ``__init__(self, bins=5,
      variables=None, ...)``, and takes its predictors from ``self._positions(schema)``;
    - calls what counts the classes ``class_counts``, among its ``totals``;
    - says how it predicts: ``answers``, ``answer_shapes`` and ``judge``, opened or not; or, where
      that takes opened totals, ``scores``.

    Attributes
    ----------
    classes_ : array
    class_counts_ : array
    """

    binary_only: ClassVar[bool] = False  #: whether it is for two classes
    of_variables: ClassVar[tuple[str, ...]] = ("variables",)
    constraints: ClassVar[Constraints] = {"bins": Integer(low=1, code="bins-out-of-range")}
    _target: ClassVar[str] = "classes"
    bins: int
    variables: Sequence[str | int] | None
    class_counts_: NDArray[np.int64]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = not self.binary_only
        return tags

    def scores(self, table: Table) -> NDArray[np.float64]:
        """Return class probabilities of the rows of a table, or scores if there are none."""
        votes = self._as_predictor().predict_votes(table, output=self.outputs[0])
        found: NDArray[np.float64] = votes.scores.to_numpy()
        return found

    @classmethod
    def _from_parameters(cls, parameters: Mapping[str, Any]) -> Self:
        """Return the model with these parameters; files of version 0.2 lack ``variables``."""
        has_variables = "variables" in inspect.signature(cls).parameters
        later = {"variables": None} if has_variables else {}
        return super()._from_parameters({**later, **parameters})

    def _positions(self, schema: PublicSchema) -> list[int]:
        """Return the positions of the predictors."""
        return chosen_positions(schema, self.parameters().get("variables"))

    def _used_positions(self) -> Collection[int]:
        return self._positions(self.schema_.public())

    def check_schema(self, schema: PublicSchema) -> None:
        """Refuse a schema that this model cannot be fitted to."""
        class_columns(schema)
        self._positions(schema)
        if self.binary_only and schema.n_classes != 2:
            raise ArgumentError(
                f"Only binary classification is supported: {type(self).__name__} got "
                f"{schema.n_classes} classes",
                code="not-two-classes",
            )

    # -- fitting
    # --------------------------------------------------------------------------------------------

    def partial_fit(  # type: ignore[override]  # scikit-learn's order of the arguments
        self: C,
        X: Any,
        y: Any = None,
        classes: Any = None,
        sample_weight: Any = None,
        **options: Any,
    ) -> C:
        """Add rows: those of another table (refused where they are in the model already), or more
        of ``X`` and ``y``.

        The first call for ``X`` and ``y`` may name all ``classes``.
        """
        if not hasattr(self, "answer_"):
            return self._fit_table(
                self._training_table(X, y, sample_weight, classes=classes), **options
            )
        return self._with_more(X, y, sample_weight, **options)

    def _warn_of_unused(self) -> None:
        if self.bins != inspect.signature(type(self)).parameters["bins"].default:
            warnings.warn(
                f"bins={self.bins!r} is not used: a table is cut as its schema says, "
                f"Schema.infer(..., bins={self.bins!r})",
                SchemaWarning,
                stacklevel=4,
            )

    def _set_labels(self, schema: Schema | PublicSchema) -> None:
        self.classes_ = _labels(schema)

    def _counted(self) -> dict[Any, int]:
        return dict(zip(self.classes_.tolist(), map(int, self.class_counts_), strict=True))

    def _check_table(self, table: Table | EncryptedTable) -> None:
        super()._check_table(table)
        if not table.has_classes:
            raise SchemaError(
                "a model is fitted to rows whose class is known: this table has no target",
                code="no-target",
            )

    # -- tables from what scikit-learn users bring
    # -----------------------------------------------------------------

    def _rows_of(self, X: Any, y: Any, sample_weight: Any = None) -> Table:
        frame, labels = self._check_frame(X, reset=False), self._check_y(y)
        return self._known_private().table(
            frame, labels, weights=check_weights(sample_weight, len(labels))
        )

    def _table_of(self, X: Any, y: Any, sample_weight: Any = None, classes: Any = None) -> Table:
        if y is None:
            raise ArgumentError(
                f"{type(self).__name__} requires y to be passed, but the target y is None (a "
                "Table brings its own)",
                code="y-missing",
            )
        frame = self._check_frame(X, reset=True)
        labels = self._check_y(y)
        if len(labels) != len(frame):
            raise ArgumentError(
                f"X has {len(frame)} rows and y has {len(labels)}: inconsistent numbers of samples",
                code="lengths-differ",
            )
        weights = check_weights(sample_weight, len(labels))
        if weights is not None:  # a row of weight 0 is not there
            kept = weights > 0
            frame, labels, weights = frame[kept], labels[kept], weights[kept]
        found = np.unique(labels) if classes is None else np.asarray(classes)
        if len(found) < 2:
            raise ArgumentError(
                f"{type(self).__name__} needs two classes, and y has only one class: "
                f"{found.tolist()}",
                code="one-class",
            )
        columns = (
            frame
            if isinstance(frame, pd.DataFrame)
            else pd.DataFrame(frame, columns=array_names(frame))
        )
        target = pd.Series(
            labels,
            columns.index,
            name=find_unused_name(getattr(y, "name", None) or "target", columns),
        )
        schema = self._infer(columns, target, classes, isinstance(frame, pd.DataFrame), weights)
        return schema.table(frame, labels, weights=weights)

    def _infer(
        self,
        frame: pd.DataFrame,
        labels: pd.Series[Any],
        classes: Any,
        named: bool,
        weights: NDArray[np.int64] | None = None,
    ) -> Schema:
        """Decide how columns become bins.

        Numbers are ordered, in arrays and DataFrames alike, and no new number is unknown.

        They are cut between any two values where these are few, else at quantiles. Of a DataFrame
        (``named``), columns of text, booleans and Categoricals are categories; what is unknown or
        missing there has a bin to go to.
        """
        numbers = [name for name in frame.columns if not named or is_number(frame[name])]
        gaps = missing_masks(frame, numbers)
        if gaps:
            raise SchemaError(
                f"missing values in {describe_missing(gaps, frame.index)}: numbers need a value "
                "in every row, fill them in; or "
                "make a table that has a bin for them, Schema.infer(..., missing='bin')",
                code="missing-values",
            )
        kinds = {str(name): "continuous" for name in numbers}
        wishes = Wishes(self.bins, kinds, "bin", classes, weights=weights, compare=False)
        schema, doubts = Schema._infer(frame, wishes, y=labels)
        for doubt in doubts:
            warnings.warn(doubt, stacklevel=5)
        for name in numbers:
            values = np.unique(frame[name].to_numpy(dtype=float))
            if 1 < len(values) <= self.bins:
                schema = schema.with_bins(str(name), edges=[float(value) for value in values[:-1]])
        by_name = {str(name): frame[name] for name in frame.columns}
        for variable in schema.variables:
            if variable.missing_bin:
                schema = schema.with_unknown("missing", variable.name)
            elif variable.levels:
                schema = schema.with_unknown(
                    "other", variable.name, level=_rarest(by_name[variable.name], variable.levels)
                )
        return schema

    def _check_y(self, y: Any) -> Any:
        labels = column_or_1d(y, warn=True)
        check_classification_targets(labels)
        return labels

    # -- predicting
    # --------------------------------------------------------------------------------------------

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class of each row.

        Rows with values that the schema does not allow have None, and a warning names them.
        """
        return self._by_row(X, lambda table: self.classes_[self.scores(table).argmax(axis=1)])

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of rows whose class is predicted; refuse rows without a prediction."""
        rows = X if isinstance(X, Table) else self._rows(X, complete=True)
        return float(super().score(rows, y, sample_weight))

    # -- predicting without opening
    # ----------------------------------------------------------------------------------

    def predict_votes(self, X: Any, *, output: str | None = None, **options: Any) -> Votes | Answer:
        """Predict every row as integers, without opening anything that is encrypted.

        Model and rows may each be encrypted or plain. Unless both are plain the answer is
        encrypted, and ``owner.open`` gives what the plain ones would have given, to the last
        digit: a DataFrame with ``.predict()`` and ``.predict_proba()``.

        Parameters
        ----------
        X : EncryptedTable, Table or DataFrame
            Rows of the schema that the model was fitted with; their class need not be known.
        output : str, optional
            For models that can answer in several ways.
        **options
            ``workers``, ``progress``, ``device`` and ``memory_limit``, as of
            ``EncryptedTable.evaluate``.
        """
        check_is_fitted(self, "answer_")
        chosen = self._chosen_output(output)
        is_encrypted = isinstance(X, EncryptedTable)
        rows = X if is_encrypted else self._rows_to_predict(X, complete=True)
        votes: Votes | Answer = self._as_predictor().predict_votes(rows, output=chosen, **options)
        if isinstance(votes, Votes) and isinstance(X, pd.DataFrame):
            votes.index = votes._scores.index = (
                X.index
            )  # a row of the answer for each row, under its own label
        return votes


@openable.register(TotalsModel)
def _openable_model(model: Any) -> Answer:
    """Return its answer, as the members of a joint key open it."""
    check_is_fitted(model, "answer_")
    if not model.is_encrypted:
        raise ArgumentTypeError(
            "this model is open already: there is nothing to open or to verify", code="already-open"
        )
    answer: Answer = model.answer_
    return answer


@decrypt_value.register(TotalsModel)
def _decrypt_model(model: Any, decryptor: Decryptor, *, schema: Schema | None = None) -> Any:
    """Return a new, ordinary fitted model with the decrypted totals."""
    check_is_fitted(model, "answer_")
    if not model.is_encrypted:
        raise ArgumentTypeError(
            "this model is open already: there is nothing to decrypt (es.load(path) reads an "
            "opened model)",
            code="already-open",
        )
    return model._present(decrypt_answer(model.answer_, decryptor, schema))


def _labels(schema: Schema | PublicSchema) -> NDArray[Any]:
    if isinstance(schema, PublicSchema):
        return np.arange(schema.n_classes)
    # Numbers beside text would all turn into text.
    mixed = len({isinstance(label, str) for label in schema.classes}) > 1
    return np.array(schema.classes, dtype=object if mixed else None)


def known_schema(table: Table | EncryptedTable) -> Schema | PublicSchema:
    """Return what is known here of the schema of some rows."""
    if isinstance(table, EncryptedTable):
        return table.private_schema or table.schema
    return table.schema


def _block_ids(table: Table | EncryptedTable) -> tuple[str, ...]:
    return table.blocks.ids if isinstance(table, EncryptedTable) else ()


def check_weights(weights: Any, n_rows: int) -> NDArray[np.int64] | None:
    """Return integer weights, one per row; refuse weights that are all 0."""
    if weights is None:
        return None
    values = np.asarray(weights)
    if values.ndim == 0 and values.dtype.kind in "biuf":
        values = np.full(n_rows, values)
    try:
        found = as_weights(values, n_rows)
    except SchemaError as error:
        raise ArgumentError(
            f"sample_weight: {error}. Counts are exact here, so scale fractions to integers "
            "yourself: np.rint(100 * w).astype(int)",
            code="invalid-weights",
        ) from error
    if not found.any():
        raise ArgumentError(
            "sample_weight is 0 in every row, and sample weights must contain at least one "
            "non-zero number",
            code="all-weights-zero",
        )
    return found


def _rarest(column: pd.Series[Any], levels: Sequence[Any]) -> Any:
    """Return the level with fewest rows, the last of several."""
    counts = {as_level(value): int(n) for value, n in column.value_counts().items()}
    return min(reversed(levels), key=lambda level: counts.get(level, 0))


def is_number(column: pd.Series[Any]) -> bool:
    """Return whether a column of a frame holds numbers."""
    return is_numeric_dtype(column.dtype) and not is_bool_dtype(column.dtype)


def find_unused_name(name: str, frame: pd.DataFrame) -> str:
    """Return the name for a target beside predictors, changed if one of these is called so."""
    taken = set(map(str, frame.columns))
    while str(name) in taken:
        name = f"{name}_"
    return str(name)


def array_names(X: NDArray[Any]) -> list[str]:
    """Return the names that columns of an array get."""
    return list(as_frame(X[:1]).columns)
