"""What all models share: fitting a circuit of totals, being encrypted or open, adding and forgetting rows, files.

The state of every model is a list of integer totals: encrypted after a fit on an encrypted table, plain otherwise. Totals of
different rows add, so models do. Everything a subclass has to say is its circuit and what it makes of the opened totals.

Deviations from scikit-learn, all deliberate; ``tests/models/test_estimator_checks.py`` runs ``check_estimator`` on every model:

- Numbers are cut into ``bins`` before anything is counted, so that a model does not see small differences. Only
  ``SemiparametricNB`` takes arrays of integers, not DataFrames, as they are: unpaired, where the origin matters, it fails
  ``check_classifier_data_not_an_array``. Every other check passes for every model.
- Text, booleans and Categoricals are categories, and their missing values have a bin. A level that was not there when ``fit`` was
  given ``X`` and ``y`` counts as missing where that column has such a bin, else as the column's rarest level, with a
  ``SchemaWarning``: cross-validation meets such levels all the time. A table does what its schema says, which by default is
  an error. Missing numbers are an error, as anywhere in scikit-learn.
- ``sample_weight`` are integers, at least 0: a row of weight 2 is two rows. A table brings its weights,
  ``schema.table(df, weights=...)``.
- ``fit`` also takes tables, without ``y``; ``bins`` are then those of its schema, and others are warned of. A model of a table
  finds the columns of a DataFrame by name and overlooks others.
"""

from __future__ import annotations

import inspect
import json
import os
import warnings
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_bool_dtype, is_numeric_dtype
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_is_fitted, column_or_1d

from encryptedstats.circuits.bounds import Interval, read_bounds
from encryptedstats.circuits.expressions import Expression, column
from encryptedstats.circuits.rewriting import cleared
from encryptedstats.circuits.layout import Layout
from encryptedstats.circuits.plan import Stage
from encryptedstats.circuits.program import ROWS
from encryptedstats.circuits.results import EncryptedNumbers
from encryptedstats.crypto.digests import joined_digest
from encryptedstats.crypto.dispatch import decrypt_value
from encryptedstats.crypto.keys import Decryptor, PublicKeys
from encryptedstats.errors import (
    Cure,
    FileFormatError,
    KeyMismatchError,
    ParameterError,
    SchemaError,
    SchemaWarning,
    StillEncryptedError,
)
from encryptedstats.models._rows import rows_without, shared_block
from encryptedstats.models._sklearn import record_features
from encryptedstats.models.prediction import (
    DRAWN,
    MODEL,
    Answer,
    EncryptedVotes,
    Judgement,
    Known,
    Votes,
    answer_bounds,
    clear_judgement,
    given_ranges,
    given_totals,
    ones_of,
    predict,
    total_bounds,
)
from encryptedstats.storage.container import Container
from encryptedstats.storage.objects import load_file, save_file
from encryptedstats.tables import EncryptedTable, PublicSchema, Schema, Table
from encryptedstats.tables._encoding import as_weights, rows_to_predict
from encryptedstats.tables._frames import as_frame, describe_missing, missing_masks
from encryptedstats.tables.columns import Column, column_ranges, table_columns
from encryptedstats.tables.opening import opening_schema
from encryptedstats.tables.variables import as_level

ENCRYPTED_MODEL_KIND: Final = "encrypted model"
OPEN_MODEL_KIND: Final = "opened model"
FOLDS_KIND: Final = "folds of an encrypted model"
MAX_LISTED_BLOCKS: Final = 4096  # in the header of a file; more of them are a section of their own
_NOT_INSIDE: Final = "only rows that are in a model can be forgotten, and these are not"
_MIXED: Final = "one of the models is encrypted and the other is open: open both, or none"
_OWN_WEIGHTS: Final = "a table brings its own weights, schema.table(df, weights=...): fit(table), without sample_weight"
M = TypeVar("M", bound="TotalsClassifier")


class TotalsClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A classifier whose fit is a list of totals over rows.

    A subclass writes this, and has everything else from here: fits of clear and encrypted tables, plans, files, folds, ``+`` and
    ``-``, ``partial_fit`` and scikit-learn's manners. ``docs/extending.md`` has a complete one.

    - ``__init__(self, bins=5, ...)``, which stores its parameters and nothing else;
    - ``circuit(schema, columns, fold)``: the totals, as expressions that end in ``.total()``;
    - ``_n_totals(schema)``: how many these are;
    - ``_open(totals, schema)``: sets the fitted attributes from the opened integers, refusing those that cannot be;
    - how it predicts: ``_answers``, ``_n_answers`` and ``_judge``, opened or not; or, where that takes opened totals, ``_scores``.

    Attributes
    ----------
    totals_ : list of int or EncryptedNumbers
    schema_ : Schema or PublicSchema
        Of the rows; public where nobody here knows the names.
    n_rows_ : int
    block_ids_ : tuple of str
        Encrypted blocks whose rows are in the model, or folds of blocks.
    classes_ : array
    """

    _models: ClassVar[dict[str, type[TotalsClassifier]]] = {}
    _binary_only: ClassVar[bool] = False
    # What a model made from this one keeps of its fit.
    _carried: ClassVar[tuple[str, ...]] = ("n_features_in_", "feature_names_in_", "_fitted_on_frame")
    _fitted_on_frame = False
    bins: int
    class_counts_: NDArray[np.int64]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._models[cls.__name__] = cls

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = not self._binary_only
        return tags

    # -- what a subclass says ------------------------------------------------------------------------------------

    @abstractmethod
    def circuit(
        self, schema: PublicSchema, columns: Sequence[Column] | None = None, fold: int | None = None
    ) -> list[Expression]:
        """The totals that a fit computes, for a table of this public schema with these columns stored."""

    @abstractmethod
    def _n_totals(self, schema: PublicSchema) -> int:
        """The length of the circuit, without writing it: a file can claim more than there is memory for."""

    @abstractmethod
    def _open(self, totals: Sequence[int], schema: PublicSchema) -> None:
        """Set the fitted attributes from the opened totals, refusing totals that cannot be."""

    def _scores(self, table: Table) -> NDArray[np.float64]:
        """Class probabilities (or scores, for classifiers without) of the rows of a table."""
        return clear_judgement(self, table).scores

    # -- fitting -------------------------------------------------------------------------------------------------

    def fit(self: M, X: Any, y: Any = None, sample_weight: Any = None, **options: Any) -> M:
        """Fit to a DataFrame or array with ``y``, to a clear ``Table``, or to an ``EncryptedTable``.

        ``sample_weight`` are integers, at least 0, for ``X`` and ``y``; tables have their own. On an encrypted table the state
        stays encrypted: ``owner.decrypt(model)`` opens it. Options are then those of
        ``EncryptedTable.evaluate`` (``workers``, ``progress``, ``device``, ``memory_limit``, ``checkpoint``).
        """
        table = self._training_table(X, y, sample_weight)
        self._draw()
        return self._fit_table(table, **options)

    def partial_fit(
        self: M, X: Any, y: Any = None, classes: Any = None, sample_weight: Any = None, **options: Any
    ) -> M:
        """Add rows: those of another table (refused where they are in the model already), or more of ``X`` and ``y``.

        The first call for ``X`` and ``y`` may name all ``classes``.
        """
        if not hasattr(self, "totals_"):
            table = self._training_table(X, y, sample_weight, classes)
            self._draw()
            return self._fit_table(table, **options)
        if not isinstance(X, (Table, EncryptedTable)):
            frame, labels = self._checked_frame(X, reset=False), self._checked_y(y)
            X = self._known_private().table(frame, labels, weights=_checked_weights(sample_weight, len(labels)))
        elif sample_weight is not None:
            raise ValueError(_OWN_WEIGHTS)
        if isinstance(X, EncryptedTable) != self.is_encrypted:
            raise TypeError(_MIXED)
        self._refuse_twice(_block_ids(X))
        self._check_unchanged()
        if not same_schema(self.schema_, known_schema(X)):
            raise SchemaError("rows of another schema cannot be added to this model")
        if isinstance(X, EncryptedTable):
            if X.key_id != self.totals_.keys.key_id:
                raise KeyMismatchError(
                    f"rows of key {X.key_id} cannot be added to a model of key {self.totals_.keys.key_id}"
                )
            joined_digest(self.totals_.schema_digest, X.facts.schema_digest)  # refused before the work, not after it
        joined = self + self._like()._fit_table(X, **options)
        return self._set_state(joined.totals_, joined.schema_, joined.n_rows_, joined.block_ids_)

    def _training_table(self, X: Any, y: Any, sample_weight: Any = None, classes: Any = None) -> Table | EncryptedTable:
        if not isinstance(X, (Table, EncryptedTable)):
            return self._table_of(X, y, sample_weight, classes)
        if y is not None:
            raise ValueError("a table brings its own classes: fit(table), without y")
        if sample_weight is not None:
            raise ValueError(_OWN_WEIGHTS)
        self._warn_of_bins()
        for name in set(vars(self)) & set(TotalsClassifier._carried):
            delattr(self, name)  # of an earlier fit to a frame
        return X

    def _warn_of_bins(self) -> None:
        if self.bins != inspect.signature(type(self)).parameters["bins"].default:
            warnings.warn(
                f"bins={self.bins!r} is not used: a table is cut as its schema says, Schema.infer(..., bins={self.bins!r})",
                SchemaWarning,
                stacklevel=4,
            )

    def _draw(self) -> None:
        """Draw what a fit leaves to chance, once: models of other rows are fitted alike."""

    def _fit_table(self: M, table: Table | EncryptedTable, **options: Any) -> M:
        self._check_table(table)
        totals = table.evaluate(self.circuit(table.schema.public(), table.columns()), **options)
        return self._set_state(totals, known_schema(table), table.n_rows, _block_ids(table))

    def _like(self: M) -> M:
        """An unfitted model that grows as this one did."""
        model: M = clone(self)
        for name in set(self._carried) & set(vars(self)):
            setattr(model, name, getattr(self, name))
        return model

    def _growth(self) -> dict[str, Any]:
        """The parameters, as JSON knows them: what models must share to be combined. ``growth_`` has those of the fit."""
        return {
            name: value.item() if isinstance(value, np.generic) else value for name, value in self.get_params().items()
        }

    def _set_state(self: M, totals: Any, schema: Schema | PublicSchema, n_rows: int, block_ids: tuple[str, ...]) -> M:
        for name in [name for name in vars(self) if name.endswith("_") and name not in self._carried]:
            delattr(self, name)
        self.totals_ = totals
        self.schema_ = schema
        self.n_rows_ = n_rows
        self.block_ids_ = block_ids
        self.growth_ = self._growth()
        self.classes_ = _labels(schema)
        if not self._fitted_on_frame:
            self._set_feature_names(schema)
        if not self.is_encrypted:
            self._open(list(totals), schema.public())
        return self

    def _set_feature_names(self, schema: Schema | PublicSchema) -> None:
        """The columns that a model of a table wants to see; by number only where nobody here knows their names."""
        self.__dict__.pop("feature_names_in_", None)
        self.n_features_in_ = len(schema.public().variables)
        if isinstance(schema, Schema):
            self.feature_names_in_ = np.array(schema.column_names, dtype=object)
            self.n_features_in_ = len(self.feature_names_in_)

    def _check_table(self, table: Table | EncryptedTable) -> None:
        if not table.has_classes:
            raise SchemaError("a model is fitted to rows whose class is known: this table has no target")
        self.check_schema(table.schema.public())

    def check_schema(self, schema: PublicSchema) -> None:
        """Refuse a schema that this model cannot be fitted to."""
        if self._binary_only and schema.n_classes != 2:
            raise ValueError(
                f"Only binary classification is supported: {type(self).__name__} got {schema.n_classes} classes"
            )

    # -- tables from what scikit-learn users bring -----------------------------------------------------------------

    def _table_of(self, X: Any, y: Any, sample_weight: Any = None, classes: Any = None) -> Table:
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None (a Table brings its own)"
            )
        frame = self._checked_frame(X, reset=True)
        labels = self._checked_y(y)
        if len(labels) != len(frame):
            raise ValueError(f"X has {len(frame)} rows and y has {len(labels)}: inconsistent numbers of samples")
        weights = _checked_weights(sample_weight, len(labels))
        if weights is not None:  # a row of weight 0 is not there
            kept = weights > 0
            frame, labels, weights = frame[kept], labels[kept], weights[kept]
        found = np.unique(labels) if classes is None else np.asarray(classes)
        if len(found) < 2:
            raise ValueError(f"{type(self).__name__} needs two classes, and y has only one class: {found.tolist()}")
        columns = frame if isinstance(frame, pd.DataFrame) else pd.DataFrame(frame, columns=_array_names(frame))
        target = pd.Series(labels, columns.index, name=_unused(getattr(y, "name", None) or "target", columns))
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
        """How columns become bins. Numbers are ordered, in arrays and DataFrames alike, and no new number is unknown.

        They are cut between any two values where these are few, else at quantiles. Of a DataFrame (``named``), columns of text,
        booleans and Categoricals are categories; what is unknown or missing there has a bin to go to.
        """
        numbers = [name for name in frame.columns if not named or _is_number(frame[name])]
        gaps = missing_masks(frame, numbers)
        if gaps:
            raise SchemaError(
                f"missing values in {describe_missing(gaps, frame.index)}: numbers need a value in every row, fill them in; or "
                "make a table that has a bin for them, Schema.infer(..., missing='bin')"
            )
        kinds = {str(name): "continuous" for name in numbers}
        schema, doubts = Schema._infer(
            frame, y=labels, bins=self.bins, kinds=kinds, classes=classes, missing="bin", weights=weights, compare=False
        )
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

    def _checked_frame(self, X: Any, *, reset: bool) -> Any:
        is_frame = isinstance(X, pd.DataFrame) or hasattr(X, "to_pandas")
        checked = X if is_frame else check_array(X, dtype="numeric")
        # A model of a table finds its columns by name, whatever else a frame has; one of X and y is as strict as scikit-learn.
        if reset or self._fitted_on_frame:
            record_features(self, X, reset=reset)
            self._fitted_on_frame = True
        if not len(checked):
            raise ValueError("Found array with 0 sample(s) while a minimum of 1 is required")
        return X.to_pandas() if is_frame and not isinstance(X, pd.DataFrame) else checked

    def _checked_y(self, y: Any) -> Any:
        labels = column_or_1d(y, warn=True)
        check_classification_targets(labels)
        return labels

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """As scikit-learn has it; a fitted model says of how many rows it is, and an encrypted one that it is, and of which key."""
        text: str = super().__repr__(N_CHAR_MAX)
        if not hasattr(self, "totals_"):
            return text
        if self.is_encrypted:
            return f"{text} [encrypted, {self.n_rows_} rows, key {self.totals_.keys.key_id[:4]}...]"
        return f"{text} [fitted, {self.n_rows_} rows]"

    # -- open or not -----------------------------------------------------------------------------------------------

    @property
    def is_encrypted(self) -> bool:
        """Whether the fitted state is encrypted."""
        return isinstance(getattr(self, "totals_", None), EncryptedNumbers)

    def _check_open(self) -> None:
        check_is_fitted(self, "totals_")
        if self.is_encrypted:
            raise NotFittedError(
                f"this {type(self).__name__} was fitted on encrypted rows and is still encrypted: open it with owner.decrypt(model)"
            )

    def _known_private(self) -> Schema:
        if not isinstance(self.schema_, Schema):
            raise SchemaError(
                "this model knows its variables by number only: ",
                Cure("open with names", "open it with owner.decrypt(model, schema=schema) to use names"),
            )
        return self.schema_

    def _rows(self, X: Any) -> Table:
        """Rows to predict as a table."""
        self._check_open()
        if isinstance(X, EncryptedTable):
            raise TypeError(
                "these rows are encrypted, and an opened model predicts clear ones: give a Table or DataFrame"
            )
        return self._rows_to_predict(X)

    def _rows_to_predict(self, X: Any) -> Table:
        """Clear rows, none of them left out, of the schema of the model."""
        if not isinstance(X, Table):
            return rows_to_predict(self._known_private(), self._checked_frame(X, reset=False), stacklevel=4)
        known = self.schema_ if isinstance(self.schema_, Schema) else self.schema_.public()
        rows = X.schema if isinstance(self.schema_, Schema) else X.schema.public()
        if rows.strict_variables != known.strict_variables:
            raise SchemaError(
                "the rows are of another schema than the model: make them with schema.table(...) of its own"
            )
        return X

    # -- predicting ------------------------------------------------------------------------------------------------

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of each row."""
        scores = self._scores(self._rows(X))
        predicted: NDArray[Any] = self.classes_[scores.argmax(axis=1)]
        return predicted

    # -- predicting without opening ----------------------------------------------------------------------------------

    _outputs: ClassVar[tuple[str, ...]] = ("",)  # what predict_votes can be asked for, the first by default

    def predict_votes(self, X: Any, *, output: str | None = None, **options: Any) -> Votes | EncryptedVotes:
        """What the model says of every row, as integers, without opening anything that is encrypted.

        Model and rows may each be encrypted or plain. Unless both are plain the answer is encrypted, and ``owner.decrypt`` gives
        what the plain ones would have given, to the last digit: a DataFrame with ``.predict()`` and ``.predict_proba()``.

        Parameters
        ----------
        X : EncryptedTable, Table or DataFrame
            Rows of the schema that the model was fitted with; their class need not be known.
        output : str, optional
            For models that can answer in several ways.
        **options
            ``workers``, ``progress``, ``device`` and ``memory_limit``, as of ``EncryptedTable.evaluate``.
        """
        check_is_fitted(self, "totals_")
        votes = predict(self, X, self._chosen_output(output), **options)
        if isinstance(votes, Votes) and isinstance(X, pd.DataFrame):
            votes.index = votes._scores.index = X.index  # a row of the answer for each row, under its own label
        return votes

    def _chosen_output(self, output: str | None) -> str:
        chosen = self._outputs[0] if output is None else output
        if chosen not in self._outputs:
            named = Cure("answers", f"output={output!r}", {"output": output})
            raise ParameterError(named, f": a {type(self).__name__} has ", *_listed(self._outputs))
        return chosen

    def _answers(self, schema: PublicSchema, columns: Sequence[Column], known: Known, output: str) -> list[Answer]:
        """The circuit of a prediction: numbers for every row, from its columns and the totals of the model."""
        raise self._cannot_predict_unopened()

    _why_opened: ClassVar[str] = ""

    def stages(
        self,
        schema: PublicSchema,
        columns: Sequence[Column],
        n_rows: int,
        n_predict: int | None = None,
        weight_bound: int = 1,
    ) -> list[Stage]:
        """What predicting without opening computes, for a plan: of an open model the answers alone, else the fit as well."""
        new = [column for column in columns if column.encoding != "class"]
        drawn, drawn_bound = self._drawn_circuit(schema)
        if hasattr(self, "totals_") and not self.is_encrypted:
            totals: list[Expression] = []
            known = self._known_plain()
        else:
            totals = self.circuit(schema, columns)
            found = read_bounds(totals, column_ranges(schema, columns, weight_bound), n_rows)
            known = given_totals([found[total] for total in totals], self._n_drawn(schema), drawn_bound)
        asked = self._answers(schema, new, known, self._outputs[0])
        bounds = answer_bounds(asked, {**column_ranges(schema, new, 1), **given_ranges(known, asked)}, n_rows)
        answers = cleared([answer.value for answer in asked], ones_of(schema, new))
        stages = [Stage(totals, n_rows, gives=MODEL)] if totals else []
        if totals and drawn is not None:
            stages.append(Stage(drawn, n_rows, drawn_bound, gives=DRAWN))
        return [*stages, Stage(answers, n_predict, bounds, ROWS)]

    def _drawn_circuit(self, schema: PublicSchema) -> tuple[Callable[[Layout], list[Expression]] | None, Interval]:
        """What is drawn from a table of some layout beside the totals, if anything, and what bounds it."""
        return None, Interval(1, 1)

    def _n_answers(self, schema: PublicSchema, output: str) -> int:
        """How many numbers a prediction gives for each row, without writing its circuit: a file can claim a huge model."""
        raise self._cannot_predict_unopened()

    def _cannot_predict_unopened(self) -> StillEncryptedError:
        why = f"{type(self).__name__} has to be opened before it can predict: {self._why_opened}"
        return StillEncryptedError(why, Cure("open", "owner.decrypt(model)"))

    def _n_drawn(self, schema: PublicSchema) -> int:
        """How many fractions are drawn beside the totals."""
        return 0

    def _judge(self, values: NDArray[Any], schema: Schema | PublicSchema, output: str) -> Judgement:
        """What the owner makes of the opened answers."""
        raise NotImplementedError

    def _packs(self) -> dict[str, EncryptedNumbers]:
        """The encrypted totals, by the names that circuits know them by."""
        return {MODEL: self.totals_}

    def _known_given(self, packs: dict[str, EncryptedNumbers]) -> Known:
        return given_totals(total_bounds(packs[MODEL]))

    def _known_plain(self) -> Known:
        return Known(list(self.totals_), [Interval.of(total) for total in self.totals_])

    # -- adding and forgetting -------------------------------------------------------------------------------------

    def __add__(self: M, other: M) -> M:
        """The model of the rows of both."""
        self._check_combines(other)
        self._refuse_twice(other.block_ids_)
        return self._combined(other, 1, self.block_ids_ + other.block_ids_)

    def __sub__(self: M, other: M) -> M:
        """The model without the rows of ``other``: they are forgotten."""
        self._check_combines(other)
        kept = rows_without(self.block_ids_, other.block_ids_)
        if kept is None or other.n_rows_ > self.n_rows_:
            raise SchemaError(_NOT_INSIDE)
        try:
            return self._combined(other, -1, kept)
        except ImpossibleTotalsError as error:
            raise SchemaError(_NOT_INSIDE) from error

    def _combined(self: M, other: M, sign: int, block_ids: tuple[str, ...]) -> M:
        if self.is_encrypted:
            totals = self.totals_.combined(other.totals_, sign)
        else:
            totals = [a + sign * b for a, b in zip(self.totals_, other.totals_, strict=True)]
        schema = self.schema_ if isinstance(self.schema_, Schema) else other.schema_
        return self._like()._set_state(totals, schema, self.n_rows_ + sign * other.n_rows_, block_ids)

    def _refuse_twice(self, block_ids: tuple[str, ...]) -> None:
        twice = shared_block(self.block_ids_, block_ids)
        if twice is not None:
            raise SchemaError(f"block {twice} is in the model already: its rows would count twice")

    def _check_unchanged(self) -> None:
        """Totals belong to the parameters they were fitted with: with others, new rows would be counted differently."""
        now = self._growth()
        changed = [
            f"{name} was {self.growth_[name]!r} and is {now[name]!r}" for name in now if now[name] != self.growth_[name]
        ]
        if changed:
            raise ValueError(
                f"parameters were changed after the fit ({', '.join(changed)}): set them back, or fit again"
            )

    def _check_combines(self, other: Any) -> None:
        if type(other) is not type(self):
            raise TypeError(f"a {type(self).__name__} is combined with another one, not with {type(other).__name__}")
        check_is_fitted(self, "totals_")
        check_is_fitted(other, "totals_")
        if self.is_encrypted != other.is_encrypted:
            raise TypeError(_MIXED)
        self._check_unchanged()
        other._check_unchanged()
        own, others = self.growth_, other.growth_
        differ = [name for name in own if own[name] != others[name]]
        if differ:
            parts = [
                (", ", Cure("parameter is", f"{name} is", {"parameter": name}), f" {own[name]!r} and {others[name]!r}")
                for name in differ
            ]
            said = [part for three in parts for part in three][1:]
            raise ParameterError("models that grew differently cannot be combined: ", *said)
        if not same_schema(self.schema_, other.schema_):
            raise SchemaError("models of different schemas cannot be combined")
        if self.is_encrypted and self.totals_.keys.key_id != other.totals_.keys.key_id:
            raise KeyMismatchError("models under different keys cannot be combined")

    # -- what a subclass stores beside its totals --------------------------------------------------------------------

    def _decrypt_more(self: M, encrypted: M, decryptor: Decryptor) -> None:
        """Open what the encrypted model has beside its totals."""

    def _more_sections(self) -> dict[str, bytes]:
        """Sections of the model's file beside its totals."""
        return {}

    def _read_more(self, file: Container, keys: PublicKeys | None) -> None:
        """Read those back."""

    # -- folds -----------------------------------------------------------------------------------------------------

    def fit_folds(self, table: Table | EncryptedTable, **options: Any) -> Any:
        """Fit every cross-validation fold of a table that declares folds, in one pass; ``owner.cross_validate`` then scores."""
        from encryptedstats.models.folds import fit_folds

        return fit_folds(self, table, **options)

    # -- files -----------------------------------------------------------------------------------------------------

    def save(self, url: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the fitted model to a path or fsspec URL. Encrypted, it holds no key and no names; open, all it knows."""
        check_is_fitted(self, "totals_")
        save_file(self._to_container(), url, overwrite=overwrite, private=not self.is_encrypted)
        if isinstance(self.totals_, EncryptedNumbers):
            self.totals_.drop_checkpoints()

    def _to_container(self) -> Container:
        listed = self.block_ids_ if len(self.block_ids_) <= MAX_LISTED_BLOCKS else ()
        fields = self._stored_fields(self.schema_.public(), self.n_rows_, listed)
        more = self._more_sections()
        if len(listed) < len(self.block_ids_):  # more than the header of a file has room for
            more = {"blocks": json.dumps(self.block_ids_).encode(), **more}
        if isinstance(self.totals_, EncryptedNumbers):
            file = self.totals_.to_container(ENCRYPTED_MODEL_KIND, fields)
            return replace(file, sections={**file.sections, **more})
        fields["private"] = isinstance(self.schema_, Schema)
        fields["schema"] = self.schema_.to_json()
        sections = {"totals": json.dumps([int(total) for total in self.totals_]).encode(), **more}
        return Container(OPEN_MODEL_KIND, "", "", fields, sections)

    def _stored_fields(self, schema: PublicSchema, n_rows: int, block_ids: Sequence[str]) -> dict[str, Any]:
        """What :func:`encryptedstats.models.files.read_head` reads."""
        return {
            "model": type(self).__name__,
            "params": getattr(self, "growth_", None) or self._growth(),
            "n_rows": n_rows,
            "blocks": list(block_ids),
            "schema": schema.to_json(),
        }

    @classmethod
    def load(cls, url: str | os.PathLike[str], keys: PublicKeys | None = None) -> TotalsClassifier:
        """Read a model: an encrypted one with the public keys it belongs to, an opened one as it is."""
        from encryptedstats.models.files import read_model

        model = read_model(load_file(url), keys)
        if not isinstance(model, cls):
            raise FileFormatError(f"{url} holds a {type(model).__name__}, and a {cls.__name__} is wanted here")
        return model


@decrypt_value.register(TotalsClassifier)
def _decrypt_model(model: Any, decryptor: Decryptor, *, schema: Schema | None = None) -> Any:
    """A new, ordinary fitted classifier with the opened totals."""
    check_is_fitted(model, "totals_")
    if not model.is_encrypted:
        raise TypeError("this model is open already: there is nothing to decrypt (es.load(path) reads an opened model)")
    known = opening_schema(schema, model.schema_, model.totals_, decryptor)
    totals = decrypt_value(model.totals_, decryptor)
    opened = model._like()._set_state(totals, known, model.n_rows_, model.block_ids_)
    opened._decrypt_more(model, decryptor)
    return opened


# -- pieces that circuits are made of ------------------------------------------------------------------------------------


def class_columns(schema: PublicSchema, fold: int | None = None) -> list[Expression]:
    """The class indicators (of a fold): every count starts from one, so that padding never counts."""
    if not schema.n_classes:
        raise SchemaError("the schema has no classes: ", Cure("name the target", "infer it with target="))
    return [column(str(Column("class", -1, c, fold))) for c in range(schema.n_classes)]


def stored_columns(schema: PublicSchema, columns: Sequence[Column] | None) -> set[Column]:
    """Which columns there are; by default those of a table that is encrypted with one-hot bins."""
    return set(table_columns(schema, ("onehot",), classes=True) if columns is None else columns)


class ImpossibleTotalsError(ValueError):
    """Totals that no rows can have."""


def refuse_impossible(good: bool, what: str) -> None:
    """Opened totals that break an invariant are no result of this computation."""
    if not good:
        raise ImpossibleTotalsError(f"{what}: the result was altered, or does not belong to this model. It is refused")


def same_schema(a: Schema | PublicSchema, b: Schema | PublicSchema) -> bool:
    """Whether rows of both mean the same, as far as it is known here: bins, and also their names and edges."""
    if isinstance(a, Schema) and isinstance(b, Schema):
        return a.same_bins(b)
    return a.public() == b.public()


def _labels(schema: Schema | PublicSchema) -> NDArray[Any]:
    if isinstance(schema, PublicSchema):
        return np.arange(schema.n_classes)
    # Numbers beside text would all turn into text.
    mixed = len({isinstance(label, str) for label in schema.classes}) > 1
    return np.array(schema.classes, dtype=object if mixed else None)


def known_schema(table: Table | EncryptedTable) -> Schema | PublicSchema:
    """What is known here of the schema of some rows."""
    if isinstance(table, EncryptedTable):
        return table.private_schema or table.schema
    return table.schema


def _block_ids(table: Table | EncryptedTable) -> tuple[str, ...]:
    return table.blocks.ids if isinstance(table, EncryptedTable) else ()


def _listed(names: Sequence[str]) -> tuple[str | Cure, ...]:
    text = " and ".join(repr(name) for name in names if name)
    return (text,) if text else ("one way to answer, ", Cure("no choice of answers", "without output="))


def _checked_weights(weights: Any, n_rows: int) -> NDArray[np.int64] | None:
    """Integer weights, one a row, some of them not 0."""
    if weights is None:
        return None
    values = np.asarray(weights)
    if values.ndim == 0 and values.dtype.kind in "biuf":
        values = np.full(n_rows, values)
    try:
        found = as_weights(values, n_rows)
    except SchemaError as error:
        raise ValueError(
            f"sample_weight: {error}. Counts are exact here, so scale fractions to integers yourself: np.rint(100 * w).astype(int)"
        ) from error
    if not found.any():
        raise ValueError(
            "sample_weight is 0 in every row, and sample weights must contain at least one non-zero number"
        )
    return found


def _rarest(column: pd.Series[Any], levels: Sequence[Any]) -> Any:
    """The level with fewest rows, the last of several."""
    counts = {as_level(value): int(n) for value, n in column.value_counts().items()}
    return min(reversed(levels), key=lambda level: counts.get(level, 0))


def _is_number(column: pd.Series[Any]) -> bool:
    return is_numeric_dtype(column.dtype) and not is_bool_dtype(column.dtype)


def _unused(name: str, frame: pd.DataFrame) -> str:
    """The name, or one like it, for a target beside predictors that may be called so."""
    taken = set(map(str, frame.columns))
    while str(name) in taken:
        name = f"{name}_"
    return str(name)


def _array_names(X: NDArray[Any]) -> list[str]:
    return list(as_frame(X[:1]).columns)
