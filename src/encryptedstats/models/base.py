"""Base classes of models: questions with the interface of scikit-learn's estimators.

The state of a model is the totals that answer its question: encrypted after a fit to an encrypted
table, plain otherwise. Totals of different rows can be added, and so can models. A subclass
declares its totals and what it learns from the decrypted ones.

Models differ from scikit-learn on purpose in these points.
``tests/models/test_estimator_checks.py`` runs ``check_estimator`` on every model.

- Models are no subclasses of ``BaseEstimator``, because importing scikit-learn takes longer than
  many questions. ``check_estimator`` warns of it.
- Numbers are cut into ``bins`` before rows are counted, so small differences do not matter. Only
  ``SemiparametricNB`` uses integer arrays (not DataFrames) unchanged. With ``paired=False`` its
  results depend on the origin, and it fails ``check_classifier_data_not_an_array``. Every other
  check passes for every model.
- Text, booleans and Categoricals are categories, and their missing values have a bin. A level that
  ``fit(X, y)`` did not see counts as missing if the column has such a bin, else as the rarest level
  of the column, with a ``SchemaWarning``: cross-validation meets such levels all the time. Tables
  follow their schema, which by default refuses unknown levels. Missing numbers are an error.
- ``sample_weight`` holds integers of at least 0: a row of weight 2 is two rows. Tables have their
  own weights, ``schema.table(df, weights=...)``.
- ``fit`` also takes tables, without ``y``. The bins are then those of the schema, and a warning
  says that ``bins`` is not used. A model of a table finds the columns of a DataFrame by name and
  ignores others.
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
from encryptedstats.models._sklearn import Classifier, Estimator, check_is_fitted, record_features
from encryptedstats.models.prediction import Votes
from encryptedstats.storage.container import Container
from encryptedstats.storage.objects import load_file
from encryptedstats.tables import EncryptedTable, PublicSchema, Question, Schema, Table
from encryptedstats.tables.answers.answer import Answer, is_same_schema
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
    class_columns,
    plain,
    prepare_question,
)
from encryptedstats.tables.questions.row_answers import numbers_of
from encryptedstats.tables.rows.frames import as_frame, describe_missing, missing_masks
from encryptedstats.tables.rows.table_from_frame import (
    as_weights,
    complete_rows_to_predict,
    rows_to_predict,
    with_unread_columns,
)
from encryptedstats.tables.schema.inference import Wishes
from encryptedstats.tables.schema.names import choose_positions
from encryptedstats.tables.schema.variables import as_level

if TYPE_CHECKING:
    from typing_extensions import Self

_MIXED: Final = "one of the models is encrypted and the other is decrypted: open both or neither"
_OWN_WEIGHTS: Final = (
    "a table has its own weights: leave out sample_weight=, and give the weights to "
    "schema.table(df, weights=...)"
)
M = TypeVar("M", bound="TotalsModel")
C = TypeVar("C", bound="TotalsClassifier")


class TotalsModel(Question, Estimator):
    """Fit a model from totals over rows: a question with the interface of scikit-learn.

    Subclasses inherit fits to clear and encrypted tables, plans, files, folds, ``+`` and ``-``, and
    ``partial_fit``. Models that predict classes derive from :class:`TotalsClassifier`. A subclass
    defines

    - ``__init__``, which stores the parameters and does nothing else;
    - ``totals`` and ``shapes``, as any :class:`encryptedstats.Question`;
    - ``learn(totals, schema)``, which sets the fitted attributes from the decrypted integers and
      refuses impossible ones;
    - optionally ``tabulate()``, the table that :meth:`summary` shows;
    - a method that predicts the rows of :meth:`_rows`;
    - :meth:`_table_of` and :meth:`_rows_of`, if it can be fitted to DataFrames and arrays.

    Attributes
    ----------
    answer_ : EncryptedAnswer
        The answer to the question of the model, encrypted or decrypted. The attributes below are
        read from it.
    totals_ : list of int or EncryptedNumbers
    extra_totals_ : mapping
        Further totals by name, such as the drawn fractions of a forest.
    schema_ : Schema or PublicSchema
        The schema of the rows; public if the names of variables are not known.
    n_rows_ : int
    n_dropped_ : int
        Rows that were left out of the table because values were missing.
    weight_bound_ : int or None
        Public bound of the weights of the rows: 1 if there are no weights, None if it is unknown.
    block_ids_ : tuple of str
        Encrypted blocks whose rows are in the model, or folds of blocks.
    growth_ : dict
        The parameters of the fit with its seed. Models are combined only if these are equal.
    """

    kind: ClassVar[str] = MODEL_KIND
    _opened_kind: ClassVar[str] = OPEN_MODEL_KIND
    _answer_noun: ClassVar[str] = "model"
    remarks: ClassVar[tuple[str, ...]] = ()  #: notes below the table of :meth:`summary`
    _target: ClassVar[str] = "target"  # what error messages call y
    # Attributes of the fit that sums, differences and opened copies of the model keep.
    _carried: ClassVar[tuple[str, ...]] = (
        "n_features_in_",
        "feature_names_in_",
        "_fitted_on_frame",
        "_translated",
    )
    _fitted_on_frame = False
    #: Parameters that name variables: as the user wrote them, and by ids.
    _translated: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
    answer_: Answer

    # -- the fitted state --------------------------------------------------------------------------

    @property
    def totals_(self) -> Any:
        """The totals of the fit: a list of integers, or encrypted numbers."""
        return self.answer_.totals if self.answer_.is_encrypted else list(self.answer_.totals)

    @property
    def extra_totals_(self) -> Mapping[str, Any]:
        """Further totals by name."""
        return self.answer_.extra_totals

    @property
    def schema_(self) -> Schema | PublicSchema:
        """The schema of the rows; public if the names of variables are not known."""
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
        """The public bound of the weights of the rows, or None if it is not known."""
        return self.answer_.weight_bound

    @property
    def block_ids_(self) -> tuple[str, ...]:
        """The encrypted blocks whose rows are in the model, or folds of blocks."""
        return self.answer_.block_ids

    @property
    def growth_(self) -> dict[str, Any]:
        """The parameters of the fit, with its seed."""
        return self.answer_.question.parameters()

    # -- for subclasses ----------------------------------------------------------------------------

    @abstractmethod
    def learn(self, totals: Totals, schema: PublicSchema) -> None:
        """Set the fitted attributes from the decrypted totals; refuse impossible totals."""

    # -- the model as a question -------------------------------------------------------------------

    def parameters(self) -> dict[str, Any]:
        """Return the parameters as JSON values; a fitted model names variables by id."""
        found: dict[str, Any] = plain(self.get_params())
        written, in_ids = self._translated
        return (
            {**found, **in_ids}
            if all(found.get(name) == value for name, value in written.items())
            else found
        )

    def tabulate(self) -> pd.DataFrame:
        """Return a table of what a decrypted model has learned; by default its totals by name."""
        named = self._name_totals(self.totals_, self.schema_.public())
        totals = {
            f"{name}[{', '.join(map(str, place))}]" if place else name: int(total)
            for name, array in named.items()
            for place, total in np.ndenumerate(array)
        }
        return pd.DataFrame({"total": pd.Series(totals, dtype=object)})

    def summary(self) -> Result:
        """Return what the model has learned, as a result to print, draw or read as a DataFrame."""
        self._check_open()
        return ModelSummary(
            title=self.describe(),
            n_rows=self.n_rows_,
            notes=self.remarks,
            table=self.tabulate(),
            class_counts=self._count_classes(),
        )

    def _count_classes(self) -> dict[Any, int]:
        return {}

    def describe(self, schema: Any = None) -> str:
        asked = self._in_names(schema) if isinstance(schema, Schema) else self
        return Estimator.__repr__(asked)

    def read(self: M, totals: Totals, schema: Schema | PublicSchema, n_rows: int) -> M:
        """Return a fitted model of these totals."""
        flat = [int(total) for array in totals.values() for total in array.flat]
        model: M = self.interpret(flat, schema, n_rows)
        return model

    def _present(self, answer: Answer) -> Any:
        # An answer in totals is a fitted model; a prediction is read as that of any question.
        return super()._present(answer) if answer.is_prediction else self._copy()._hold(answer)

    def _as_asked(self: M) -> M:
        """Return the question that the fit answered: an unfitted model with its parameters."""
        asked = self.growth_ if hasattr(self, "answer_") else self.parameters()
        return self._clone(**asked)

    def _as_predictor(self) -> Answer:
        # Parameters may have changed since the fit: the question is this model as it is now.
        names = self._extra_shapes(self.schema_.public())
        extra_totals = {name: found for name, found in self.extra_totals_.items() if name in names}
        return replace(self.answer_, question=self, extra_totals=extra_totals)

    def _get_plain_totals(self) -> dict[str, Any] | None:
        """Return all numbers of a decrypted model; None if it is unfitted or encrypted."""
        is_open = hasattr(self, "answer_") and not self.is_encrypted
        return numbers_of(self._as_predictor()) if is_open else None

    # -- fitting -----------------------------------------------------------------------------------

    def fit(self: M, X: Any, y: Any = None, sample_weight: Any = None, **options: Any) -> M:
        """Fit the model to rows.

        After a fit to an encrypted table the model is encrypted: ``owner.open(model)`` opens it.

        Parameters
        ----------
        X : DataFrame, array, Table or EncryptedTable
        y : array, optional
            The target, if ``X`` is a DataFrame or an array; tables have their own.
        sample_weight : array of int, optional
            Weights of at least 0, if ``X`` is a DataFrame or an array; tables have their own.
        **options
            For an encrypted table those of ``EncryptedTable.evaluate``: ``workers``, ``progress``,
            ``device``, ``memory_limit`` and ``checkpoint``.

        Returns
        -------
        The model itself.
        """
        return self._fit_table(self._training_table(X, y, sample_weight), **options)

    def partial_fit(self: M, X: Any, y: Any = None, sample_weight: Any = None, **options: Any) -> M:
        """Add rows to the model; parameters are those of :meth:`fit`.

        Encrypted blocks that are in the model already are refused.
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
        # Refuse rows that cannot be added before the evaluation, which takes long.
        join_rows(self.block_ids_, _block_ids(X))
        self._check_unchanged()
        if not is_same_schema(self.schema_, get_schema(X)):
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
                f"a table has its own {self._target}: call fit(table) without y",
                code="y-with-table",
            )
        if sample_weight is not None:
            raise ArgumentError(_OWN_WEIGHTS, code="weights-with-table")
        self._warn_of_unused()
        for name in set(vars(self)) & set(TotalsModel._carried):
            delattr(self, name)  # of an earlier fit to a frame
        return X

    def _warn_of_unused(self) -> None:
        """Warn of parameters that have no effect on a fit to a table."""

    def _table_of(self, X: Any, y: Any, sample_weight: Any = None) -> Table:
        """Make a clear table of ``X`` and ``y`` and infer its schema."""
        raise ArgumentTypeError(
            f"{type(self).__name__} is fitted to a Table or an EncryptedTable, not to a "
            f"{type(X).__name__}: schema.table(df) makes a table",
            code="not-a-table",
        )

    def _rows_of(self, X: Any, y: Any, sample_weight: Any = None) -> Table:
        """Make a table of further rows with the schema of the model."""
        return self._table_of(X, y, sample_weight)

    def _fit_table(self: M, table: Table | EncryptedTable, **options: Any) -> M:
        self._check_table(table)
        known = get_schema(table)
        self._translate(known)
        # The copy has no fit: every fit without random_state draws a new seed.
        asked = self._clone().in_ids(known)._fix_seed()
        return self._hold(table._answer_to(asked, **options))

    def _translate(self, schema: Schema | PublicSchema) -> None:
        # Parameters keep the names that the user wrote; the question has ids.
        self._translated = ({}, {})
        own, found = self.parameters(), self.in_ids(schema).parameters()
        changed = [name for name in own if own[name] != found[name]]
        self._translated = (
            {name: own[name] for name in changed},
            {name: found[name] for name in changed},
        )

    def _copy(self: M) -> M:
        """Return an unfitted model that expects the same columns of DataFrames."""
        model = self._clone()
        for name in set(self._carried) & set(vars(self)):
            setattr(model, name, getattr(self, name))
        return model

    def _hold(self: M, answer: Answer) -> M:
        """Set the fitted state to an answer, and learn from its totals if they are decrypted."""
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
            self.learn(self._name_totals(answer.totals, public), public)
        return self

    def _set_labels(self, schema: Schema | PublicSchema) -> None:
        """Set the labels that :meth:`learn` uses, such as those of classes."""

    def _set_feature_names(self, schema: Schema | PublicSchema) -> None:
        """Set the columns that rows must have, as scikit-learn names them."""
        self.__dict__.pop("feature_names_in_", None)
        self.n_features_in_ = len(schema.public().variables)
        if isinstance(schema, Schema):
            self.feature_names_in_ = np.array(schema.column_names, dtype=object)
            self.n_features_in_ = len(self.feature_names_in_)

    def _check_table(self, table: Table | EncryptedTable) -> None:
        prepare_question(self, get_schema(table))

    # -- DataFrames and arrays ---------------------------------------------------------------------

    def _check_frame(self, X: Any, *, reset: bool) -> Any:
        from sklearn.utils.validation import check_array

        is_frame = isinstance(X, pd.DataFrame) or hasattr(X, "to_pandas")
        checked = X if is_frame else check_array(X, dtype="numeric")
        # A model of a table finds its columns by name and ignores others; a model of X and y is as
        # strict as scikit-learn.
        if reset or self._fitted_on_frame:
            record_features(self, X, reset=reset)
            self._fitted_on_frame = True
        if not len(checked):
            raise ArgumentError(
                "Found array with 0 sample(s) while a minimum of 1 is required", code="no-rows"
            )
        return X.to_pandas() if is_frame and not isinstance(X, pd.DataFrame) else checked

    def __repr__(self) -> str:
        """Show the parameters as scikit-learn does, and the rows and the key of a fitted model."""
        text = super().__repr__()
        if not hasattr(self, "answer_"):
            return text
        if self.is_encrypted:
            return f"{text} [encrypted, {self.n_rows_} rows, key {self.totals_.keys.key_id[:4]}...]"
        return f"{text} [fitted, {self.n_rows_} rows]"

    # -- encrypted or decrypted --------------------------------------------------------------------

    @property
    def is_encrypted(self) -> bool:
        """Whether the fitted state is encrypted."""
        return hasattr(self, "answer_") and self.answer_.is_encrypted

    def _check_open(self) -> None:
        check_is_fitted(self)
        if self.is_encrypted:
            from sklearn.exceptions import NotFittedError

            raise NotFittedError(
                f"this {type(self).__name__} was fitted on encrypted rows and is still encrypted: "
                "open it with owner.open(model)"
            )

    def _get_private_schema(self) -> Schema:
        if not isinstance(self.schema_, Schema):
            raise SchemaError(
                "this model was opened without the names of variables: ",
                Cure(
                    "open with names",
                    "open it with owner.open(model, schema=schema) to use names",
                ),
            )
        return self.schema_

    def _rows(self, X: Any, *, complete: bool = False) -> Table:
        """Return all rows as a clear table with the schema of the model.

        With ``complete=True``, refuse rows that cannot be predicted.
        """
        self._check_open()
        if isinstance(X, EncryptedTable):
            raise ArgumentTypeError(
                "these rows are encrypted, and this method predicts clear rows: give a Table or a "
                "DataFrame, or call predict_votes",
                code="still-encrypted",
            )
        return self._rows_to_predict(X, complete=complete)

    def _by_row(self, X: Any, compute: Callable[[Table], NDArray[Any]]) -> NDArray[Any]:
        """Compute a value for each row; leave it missing for rows that the schema refuses."""
        table = self._rows(X)
        return table.leave_blank(compute(table))

    def _rows_to_predict(self, X: Any, *, complete: bool = False) -> Table:
        if not isinstance(X, Table):
            schema, frame = self._get_private_schema(), self._frame_to_predict(X)
            if complete:
                return complete_rows_to_predict(schema, frame, stacklevel=4)
            needed = [schema.names[j] for j in self._used_positions()]
            return rows_to_predict(schema, frame, needed, stacklevel=5)
        known = self.schema_ if isinstance(self.schema_, Schema) else self.schema_.public()
        rows = X.schema if isinstance(self.schema_, Schema) else X.schema.public()
        if rows.strict_variables != known.strict_variables:
            raise SchemaError(
                "the rows have another schema than the model: make them with the schema that it "
                "was fitted with, model.schema_.table(df)",
                code="other-schema",
            )
        return X

    def _frame_to_predict(self, X: Any) -> Any:
        frame = self._check_frame(X, reset=False)
        return self._with_unused(frame) if isinstance(frame, pd.DataFrame) else frame

    def _used_positions(self) -> Collection[int]:
        """Return the positions of the variables that predictions read."""
        return range(len(self.schema_.public().variables))

    def _with_unused(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Add missing columns that predictions do not read."""
        return with_unread_columns(self._get_private_schema(), frame, self._used_positions())

    # -- adding and subtracting rows ---------------------------------------------------------------

    def __add__(self: M, other: M) -> M:
        """Return the model that is fitted to the rows of both."""
        self._check_combines(other)
        return self._copy()._hold(self.answer_ + other.answer_)

    def __sub__(self: M, other: M) -> M:
        """Return the model without the rows of ``other``."""
        self._check_combines(other)
        rest = self.answer_ - other.answer_
        try:
            return self._copy()._hold(rest)
        except ImpossibleTotalsError as error:
            raise SchemaError(NOT_INSIDE, code="rows-missing") from error

    def _check_unchanged(self) -> None:
        # New rows would be counted with other parameters than those in the model.
        now = self.parameters()
        changed = [
            f"{name} was {self.growth_[name]!r} and is {now[name]!r}"
            for name in now
            if now[name] != self.growth_[name]
        ]
        if changed:
            raise ArgumentError(
                f"parameters were changed after the fit ({', '.join(changed)}): reset them, or "
                "fit again",
                code="parameters-changed",
            )

    def _check_combines(self, other: Any) -> None:
        if type(other) is not type(self):
            raise ArgumentTypeError(
                f"a {type(self).__name__} can be combined with another {type(self).__name__} only, "
                f"not with {type(other).__name__}",
                code="other-model-type",
            )
        check_is_fitted(self)
        check_is_fitted(other)
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
                "models with different parameters cannot be combined: ",
                *said,
                code="grown-differently",
            )

    # -- folds -------------------------------------------------------------------------------------

    def fit_folds(self, table: Table | EncryptedTable, **options: Any) -> Any:
        """Fit one model per cross-validation fold, each to the rows of all other folds.

        All folds are fitted in one pass over the rows. ``es.score_folds(models, table)`` scores the
        models.

        Parameters
        ----------
        table : Table or EncryptedTable
            A table that declares folds, ``schema.table(df, folds=5)``.
        **options
            See :meth:`fit`.

        Returns
        -------
        list of models or EncryptedAnswer
            The models; of an encrypted table an answer, which ``owner.open(folds, schema)`` opens
            as such a list.
        """
        asked = folds_of(self._clone(), table.n_folds)
        self._check_table(table)
        return table.ask(asked, **options)

    # -- files -------------------------------------------------------------------------------------

    def save(self, url: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the fitted model to a path or fsspec URL.

        The file of an encrypted model has no key and no names; that of a decrypted model has all
        totals and names.
        """
        check_is_fitted(self)
        self.answer_.save(url, overwrite=overwrite)

    def to_container(self, *, names: bool = True) -> Container:
        """Return the model as a file container.

        With ``names=False``, that of a decrypted model has no names and no cut points.
        """
        answer = self.answer_ if names else replace(self.answer_, schema=self.schema_.public())
        return answer.to_container()

    @classmethod
    def load(cls, url: str | os.PathLike[str], keys: PublicKeys | None = None) -> Any:
        """Read a model from a path or fsspec URL.

        Parameters
        ----------
        url : path or URL
        keys : PublicKeys, optional
            The public keys of an encrypted model; not needed for a decrypted one.

        Raises
        ------
        FileFormatError
            If the file has no such model.
        """
        file = load_file(url)
        if file.kind not in (*ANSWER_KINDS, OPEN_MODEL_KIND):
            raise FileFormatError(
                f"{url} is a file of the kind {file.kind!r}, not a model", code="other-file-kind"
            )
        model = read_presented(file, keys)
        if not isinstance(model, cls):
            held = file.kind if isinstance(model, Answer) else type(model).__name__
            raise FileFormatError(
                f"{url} is a file of the kind {held}, not a {cls.__name__}",
                code="other-model-type",
            )
        return model


class TotalsClassifier(Classifier, TotalsModel):
    """Fit a classifier from totals over rows; ``docs/guides/questions.md`` has a complete example.

    In addition to the methods of :class:`TotalsModel`, a subclass

    - has the parameters ``bins`` and ``variables``,
      ``__init__(self, bins=5, variables=None, ...)``, and uses the predictors at
      ``self._positions(schema)``;
    - has an array ``class_counts`` among its ``totals``;
    - predicts with ``answers``, ``answer_shapes`` and ``judge``, for which the totals may stay
      encrypted, or with ``scores``, for which they are decrypted.

    Attributes
    ----------
    classes_ : array
    class_counts_ : array
    """

    binary_only: ClassVar[bool] = False  #: whether there must be exactly two classes
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
        """Return the probability of each class for the rows of a table.

        Models without probabilities return scores.
        """
        votes = self._as_predictor().predict_votes(table, output=self.outputs[0])
        found: NDArray[np.float64] = votes.scores.to_numpy()
        return found

    @classmethod
    def _from_parameters(cls, parameters: Mapping[str, Any]) -> Self:
        # Files of version 0.2 lack ``variables``.
        has_variables = "variables" in inspect.signature(cls).parameters
        later = {"variables": None} if has_variables else {}
        return super()._from_parameters({**later, **parameters})

    def _positions(self, schema: PublicSchema) -> list[int]:
        return choose_positions(schema, self.parameters().get("variables"))

    def _used_positions(self) -> Collection[int]:
        return self._positions(self.schema_.public())

    def check_schema(self, schema: PublicSchema) -> None:
        """Refuse a schema that this model cannot be fitted to."""
        class_columns(schema)
        self._positions(schema)
        if self.binary_only and schema.n_classes != 2:
            raise ArgumentError(
                f"Only binary classification is supported by {type(self).__name__}: the target has "
                f"{schema.n_classes} classes. Use a model for several classes, such as a forest",
                code="not-two-classes",
            )

    # -- fitting -----------------------------------------------------------------------------------

    def partial_fit(  # type: ignore[override]  # scikit-learn's order of the arguments
        self: C,
        X: Any,
        y: Any = None,
        classes: Any = None,
        sample_weight: Any = None,
        **options: Any,
    ) -> C:
        """Add rows to the model; parameters are those of :meth:`fit`.

        The first call with ``X`` and ``y`` may name all ``classes``. Encrypted blocks that are in
        the model already are refused.
        """
        if not hasattr(self, "answer_"):
            return self._fit_table(
                self._training_table(X, y, sample_weight, classes=classes), **options
            )
        return self._with_more(X, y, sample_weight, **options)

    def _warn_of_unused(self) -> None:
        if self.bins != inspect.signature(type(self)).parameters["bins"].default:
            warnings.warn(
                f"bins={self.bins!r} is not used: a table has the bins of its schema, which "
                f"Schema.infer(..., bins={self.bins!r}) sets",
                SchemaWarning,
                stacklevel=4,
            )

    def _set_labels(self, schema: Schema | PublicSchema) -> None:
        self.classes_ = _labels(schema)

    def _count_classes(self) -> dict[Any, int]:
        return dict(zip(self.classes_.tolist(), map(int, self.class_counts_), strict=True))

    def _check_table(self, table: Table | EncryptedTable) -> None:
        super()._check_table(table)
        if not table.has_classes:
            raise SchemaError(
                "this table has no target, and a classifier is fitted to rows with known classes: "
                "make the table with the target column",
                code="no-target",
            )

    # -- DataFrames and arrays ---------------------------------------------------------------------

    def _rows_of(self, X: Any, y: Any, sample_weight: Any = None) -> Table:
        frame, labels = self._check_frame(X, reset=False), self._check_y(y)
        return self._get_private_schema().table(
            frame, labels, weights=check_weights(sample_weight, len(labels))
        )

    def _table_of(self, X: Any, y: Any, sample_weight: Any = None, classes: Any = None) -> Table:
        if y is None:
            raise ArgumentError(
                f"{type(self).__name__} requires y to be passed, but the target y is None. Only a "
                "Table is fitted without y",
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
        if weights is not None:  # rows of weight 0 do not count, not even for the bins
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
        """Infer a schema from ``X`` and ``y``.

        Numbers become ordered bins: one for each value if there are few values, else quantiles.
        Every new number has a bin. Text, booleans and Categoricals of a DataFrame (``named``) are
        categories, in which unknown and missing values have a bin as well.
        """
        numbers = [name for name in frame.columns if not named or is_number(frame[name])]
        gaps = missing_masks(frame, numbers)
        if gaps:
            raise SchemaError(
                f"missing values in {describe_missing(gaps, frame.index)}: fill them in, or make a "
                "table that has a bin for missing values, Schema.infer(..., missing='bin')",
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
        from sklearn.utils.multiclass import check_classification_targets
        from sklearn.utils.validation import column_or_1d

        labels = column_or_1d(y, warn=True)
        check_classification_targets(labels)
        return labels

    # -- predicting --------------------------------------------------------------------------------

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class of each row.

        The prediction is None for rows with values that the schema does not allow, and a warning
        names these rows.
        """
        return self._by_row(X, lambda table: self.classes_[self.scores(table).argmax(axis=1)])

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy; refuse rows that cannot be predicted."""
        from sklearn.metrics import accuracy_score

        rows = X if isinstance(X, Table) else self._rows(X, complete=True)
        return float(accuracy_score(y, self.predict(rows), sample_weight=sample_weight))

    # -- encrypted predictions ---------------------------------------------------------------------

    def predict_votes(self, X: Any, *, output: str | None = None, **options: Any) -> Votes | Answer:
        """Predict every row as integers, with encrypted or clear model and rows.

        Nothing is decrypted. ``owner.open(votes)`` opens an encrypted prediction; it equals the
        prediction of the clear model for clear rows exactly.

        Parameters
        ----------
        X : EncryptedTable, Table or DataFrame
            Rows with the schema of the model; they need no classes.
        output : str, optional
            One of ``model.outputs``; the first by default.
        **options
            ``workers``, ``progress``, ``device`` and ``memory_limit``, as of
            ``EncryptedTable.evaluate``.

        Returns
        -------
        Votes or EncryptedAnswer
            Votes, a DataFrame with ``predict()`` and ``predict_proba()``, if model and rows are
            both clear; else an encrypted answer, which ``owner.open`` opens as votes.
        """
        check_is_fitted(self)
        chosen = self._choose_output(output)
        is_encrypted = isinstance(X, EncryptedTable)
        rows = X if is_encrypted else self._rows_to_predict(X, complete=True)
        votes: Votes | Answer = self._as_predictor().predict_votes(rows, output=chosen, **options)
        if isinstance(votes, Votes) and isinstance(X, pd.DataFrame):
            votes.index = votes._scores.index = X.index
        return votes


@openable.register(TotalsModel)
def _openable_model(model: Any) -> Answer:
    check_is_fitted(model)
    if not model.is_encrypted:
        raise ArgumentTypeError(
            "this model is decrypted already: there is nothing to open or to verify",
            code="already-open",
        )
    answer: Answer = model.answer_
    return answer


@decrypt_value.register(TotalsModel)
def _decrypt_model(model: Any, decryptor: Decryptor, *, schema: Schema | None = None) -> Any:
    check_is_fitted(model)
    if not model.is_encrypted:
        raise ArgumentTypeError(
            "this model is decrypted already: es.load(path) reads its file", code="already-open"
        )
    return model._present(decrypt_answer(model.answer_, decryptor, schema))


def _labels(schema: Schema | PublicSchema) -> NDArray[Any]:
    if isinstance(schema, PublicSchema):
        return np.arange(schema.n_classes)
    # NumPy would turn numbers into text if some labels are text.
    mixed = len({isinstance(label, str) for label in schema.classes}) > 1
    return np.array(schema.classes, dtype=object if mixed else None)


def get_schema(table: Table | EncryptedTable) -> Schema | PublicSchema:
    """Return the private schema of a table if it is known, else the public one."""
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
            f"sample_weight: {error}. Weights must be integers: scale fractions first, such as "
            "np.rint(100 * w).astype(int)",
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
    """Return the level with the fewest rows; the last of equally rare ones."""
    counts = {as_level(value): int(n) for value, n in column.value_counts().items()}
    return min(reversed(levels), key=lambda level: counts.get(level, 0))


def is_number(column: pd.Series[Any]) -> bool:
    """Return whether a column of a frame holds numbers."""
    return is_numeric_dtype(column.dtype) and not is_bool_dtype(column.dtype)


def find_unused_name(name: str, frame: pd.DataFrame) -> str:
    """Return a name for the target; ``_`` is appended while a column has that name."""
    taken = set(map(str, frame.columns))
    while str(name) in taken:
        name = f"{name}_"
    return str(name)


def array_names(X: NDArray[Any]) -> list[str]:
    """Return the names that columns of an array get."""
    return list(as_frame(X[:1]).columns)
