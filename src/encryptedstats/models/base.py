"""What all models share: fitting a circuit of totals, being encrypted or open, adding and forgetting rows, files.

The state of every model is a list of integer totals: encrypted after a fit on an encrypted table, plain otherwise. Totals of
different rows add, so models do. Everything a subclass has to say is its circuit and what it makes of the opened totals.
"""

from __future__ import annotations

import json
import os
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Final, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_is_fitted, column_or_1d

from encryptedstats.circuits.expressions import Expression, column
from encryptedstats.circuits.results import EncryptedTotals
from encryptedstats.crypto.dispatch import decrypt_value
from encryptedstats.crypto.keys import Decryptor, PublicKeys
from encryptedstats.errors import FileFormatError, KeyMismatchError, SchemaError
from encryptedstats.models._sklearn import record_features
from encryptedstats.storage import container
from encryptedstats.storage.container import Container
from encryptedstats.storage.objects import read_object, write_object
from encryptedstats.tables import EncryptedTable, PublicSchema, Schema, Table
from encryptedstats.tables.columns import Column, table_columns

ENCRYPTED_MODEL_KIND: Final = "encrypted model"
OPEN_MODEL_KIND: Final = "opened model"
M = TypeVar("M", bound="TotalsClassifier")


class TotalsClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A classifier whose fit is a list of totals over rows.

    Subclasses define :meth:`circuit` and :meth:`_open`, and predict from what the latter stores.
    """

    _models: ClassVar[dict[str, type[TotalsClassifier]]] = {}
    _binary_only: ClassVar[bool] = False
    _fitted_on_frame = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._models[cls.__name__] = cls

    # -- what a subclass says ------------------------------------------------------------------------------------

    @abstractmethod
    def circuit(
        self, schema: PublicSchema, columns: Sequence[Column] | None = None, fold: int | None = None
    ) -> list[Expression]:
        """The totals that a fit computes, for a table of this public schema with these columns stored."""

    @abstractmethod
    def _open(self, totals: Sequence[int], schema: PublicSchema) -> None:
        """Set the fitted attributes from the opened totals, refusing totals that cannot be."""

    @abstractmethod
    def _scores(self, table: Table) -> NDArray[np.float64]:
        """Class probabilities (or scores, for classifiers without) of the rows of a table."""

    # -- fitting -------------------------------------------------------------------------------------------------

    def fit(self: M, X: Any, y: Any = None, **options: Any) -> M:
        """Fit to a DataFrame or array with ``y``, to a clear ``Table``, or to an ``EncryptedTable``.

        On an encrypted table the state stays encrypted: ``owner.decrypt(model)`` opens it. Options are then those of
        ``EncryptedTable.evaluate`` (``workers``, ``progress``).
        """
        table = X if isinstance(X, (Table, EncryptedTable)) else self._table_of(X, y)
        self._check_table(table)
        totals = table.evaluate(self.circuit(table.schema.public(), table.columns()), **options)
        return self._set_state(totals, _known_schema(table), table.n_rows, _block_ids(table))

    def partial_fit(self: M, X: Any, y: Any = None, classes: Any = None, **options: Any) -> M:
        """Add rows: those of another table (refused where they are in the model already), or more of ``X`` and ``y``."""
        if not hasattr(self, "totals_"):
            if isinstance(X, (Table, EncryptedTable)):
                return self.fit(X, **options)
            return self.fit(self._table_of(X, y, classes))
        if not isinstance(X, (Table, EncryptedTable)):
            X = self._known_private().table(self._checked_frame(X, reset=False), self._checked_y(y))
        more = clone(self).fit(X, **options)
        joined = self + more
        return self._set_state(joined.totals_, joined.schema_, joined.n_rows_, joined.block_ids_)

    def _set_state(self: M, totals: Any, schema: Schema | PublicSchema, n_rows: int, block_ids: tuple[str, ...]) -> M:
        for name in [
            name for name in vars(self) if name.endswith("_") and name not in ("n_features_in_", "feature_names_in_")
        ]:
            delattr(self, name)
        self.totals_ = totals
        self.schema_ = schema
        self.n_rows_ = n_rows
        self.block_ids_ = block_ids
        self.classes_ = np.array(schema.classes if isinstance(schema, Schema) else range(schema.n_classes))
        if not hasattr(self, "n_features_in_"):
            self.n_features_in_ = len(schema.public().variables)
        if not self.is_encrypted:
            self._open(list(totals), schema.public())
        return self

    def _check_table(self, table: Table | EncryptedTable) -> None:
        schema = table.schema.public()
        if not table.has_classes:
            raise SchemaError("a model is fitted to rows whose class is known: this table has no target")
        if self._binary_only and schema.n_classes != 2:
            raise ValueError(
                f"Only binary classification is supported: {type(self).__name__} got {schema.n_classes} classes"
            )

    # -- tables from what scikit-learn users bring -----------------------------------------------------------------

    def _table_of(self, X: Any, y: Any, classes: Any = None) -> Table:
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None (a Table brings its own)"
            )
        frame = self._checked_frame(X, reset=True)
        labels = self._checked_y(y)
        if len(labels) != len(frame):
            raise ValueError(f"X has {len(frame)} rows and y has {len(labels)}: inconsistent numbers of samples")
        found = np.unique(labels) if classes is None else np.asarray(classes)
        if len(found) < 2:
            raise ValueError(f"{type(self).__name__} needs two classes, and y has only one class: {found.tolist()}")
        schema = self._infer(frame, labels, classes)
        return schema.table(frame, labels)

    def _infer(self, frame: Any, labels: Any, classes: Any) -> Schema:
        """How columns become bins: kinds are inferred for a DataFrame, numbers of an array are continuous."""
        kinds = None if isinstance(frame, pd.DataFrame) else dict.fromkeys(_array_names(frame), "continuous")
        return Schema.infer(frame, y=labels, bins=getattr(self, "bins", 5), kinds=kinds, classes=classes)

    def _checked_frame(self, X: Any, *, reset: bool) -> Any:
        # A model of a table finds its columns by name, whatever else a frame has; one of X and y is as strict as scikit-learn.
        if reset or self._fitted_on_frame:
            record_features(self, X, reset=reset)
            self._fitted_on_frame = True
        if isinstance(X, pd.DataFrame) or hasattr(X, "to_pandas"):
            if not len(X):
                raise ValueError("Found array with 0 sample(s) while a minimum of 1 is required")
            return X if isinstance(X, pd.DataFrame) else X.to_pandas()
        return check_array(X, dtype="numeric")

    def _checked_y(self, y: Any) -> Any:
        labels = column_or_1d(y, warn=True)
        check_classification_targets(labels)
        return labels

    # -- open or not -----------------------------------------------------------------------------------------------

    @property
    def is_encrypted(self) -> bool:
        """Whether the fitted state is encrypted."""
        return isinstance(getattr(self, "totals_", None), EncryptedTotals)

    def _check_open(self) -> None:
        check_is_fitted(self, "totals_")
        if self.is_encrypted:
            raise NotFittedError(
                f"this {type(self).__name__} was fitted on encrypted rows and is still encrypted: open it with owner.decrypt(model)"
            )

    def _known_private(self) -> Schema:
        if not isinstance(self.schema_, Schema):
            raise SchemaError(
                "this model knows its variables by number only: open it with owner.decrypt(model, schema=schema) to use names"
            )
        return self.schema_

    def _rows(self, X: Any) -> Table:
        """Rows to predict as a table."""
        self._check_open()
        if isinstance(X, Table):
            if X.schema.public().variables != self.schema_.public().variables:
                raise SchemaError("the rows are of another schema than the model")
            return X
        frame = self._checked_frame(X, reset=False)
        return self._known_private().table(frame)

    # -- predicting ------------------------------------------------------------------------------------------------

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of each row."""
        scores = self._scores(self._rows(X))
        predicted: NDArray[Any] = self.classes_[scores.argmax(axis=1)]
        return predicted

    # -- adding and forgetting -------------------------------------------------------------------------------------

    def __add__(self: M, other: M) -> M:
        """The model of the rows of both."""
        self._check_combines(other)
        twice = set(self.block_ids_) & set(other.block_ids_)
        if twice:
            raise SchemaError(f"block {sorted(twice)[0]} is in both models: its rows would count twice")
        return self._combined(other, 1, self.block_ids_ + other.block_ids_)

    def __sub__(self: M, other: M) -> M:
        """The model without the rows of ``other``: they are forgotten."""
        self._check_combines(other)
        missing = set(other.block_ids_) - set(self.block_ids_)
        if missing or other.n_rows_ > self.n_rows_:
            raise SchemaError("only rows that are in a model can be forgotten, and these are not")
        kept = tuple(block for block in self.block_ids_ if block not in other.block_ids_)
        return self._combined(other, -1, kept)

    def _combined(self: M, other: M, sign: int, block_ids: tuple[str, ...]) -> M:
        if self.is_encrypted:
            totals = self.totals_ + other.totals_ if sign > 0 else self.totals_ - other.totals_
        else:
            totals = [a + sign * b for a, b in zip(self.totals_, other.totals_, strict=True)]
        schema = self.schema_ if isinstance(self.schema_, Schema) else other.schema_
        model: M = clone(self)
        return model._set_state(totals, schema, self.n_rows_ + sign * other.n_rows_, block_ids)

    def _check_combines(self, other: Any) -> None:
        if type(other) is not type(self):
            raise TypeError(f"a {type(self).__name__} is combined with another one, not with {type(other).__name__}")
        check_is_fitted(self, "totals_")
        check_is_fitted(other, "totals_")
        if self.is_encrypted != other.is_encrypted:
            raise TypeError("one of the models is encrypted and the other is open: open both, or none")
        if _storable(self.get_params()) != _storable(other.get_params()):
            raise ValueError("models that grew differently cannot be combined: their parameters differ")
        if self.schema_.public() != other.schema_.public():
            raise SchemaError("models of different schemas cannot be combined")
        if self.is_encrypted and self.totals_.keys.key_id != other.totals_.keys.key_id:
            raise KeyMismatchError("models under different keys cannot be combined")

    # -- folds -----------------------------------------------------------------------------------------------------

    def fit_folds(self, table: Table | EncryptedTable, **options: Any) -> Any:
        """Fit every cross-validation fold of a table that declares folds, in one pass; ``owner.cross_validate`` then scores."""
        from encryptedstats.models.folds import fit_folds

        return fit_folds(self, table, **options)

    # -- files -----------------------------------------------------------------------------------------------------

    def save(self, url: str | os.PathLike[str]) -> None:
        """Write the fitted model to a path or fsspec URL. Encrypted, it holds no key and no names; open, all it knows."""
        check_is_fitted(self, "totals_")
        write_object(url, container.to_bytes(self._to_container()), private=not self.is_encrypted)

    def _to_container(self) -> Container:
        fields = {
            "model": type(self).__name__,
            "params": _storable(self.get_params()),
            "n_rows": self.n_rows_,
            "blocks": list(self.block_ids_),
        }
        if isinstance(self.totals_, EncryptedTotals):
            fields["schema"] = self.schema_.public().to_json()
            return self.totals_.to_container(ENCRYPTED_MODEL_KIND, fields)
        fields["private"] = isinstance(self.schema_, Schema)
        fields["schema"] = self.schema_.to_json()
        sections = {"totals": json.dumps([int(total) for total in self.totals_]).encode()}
        return Container(OPEN_MODEL_KIND, "", "", fields, sections)

    @classmethod
    def load(cls, url: str | os.PathLike[str], keys: PublicKeys | None = None) -> TotalsClassifier:
        """Read a model: an encrypted one with the public keys it belongs to, an opened one as it is."""
        return read_model(container.from_bytes(read_object(url), name=str(url)), keys)


def read_model(file: Container, keys: PublicKeys | None) -> TotalsClassifier:
    """The model in a file, with every check."""
    if file.kind not in (ENCRYPTED_MODEL_KIND, OPEN_MODEL_KIND):
        raise FileFormatError(f"the file holds {file.kind!r}, and a model is wanted here")
    model = _empty_model(file.expect("model", str), file.expect("params", dict))
    n_rows, blocks = file.expect("n_rows", int), file.expect("blocks", list)
    if n_rows < 0 or not all(isinstance(block, str) for block in blocks):
        raise FileFormatError("the file states an impossible number of rows or list of blocks")
    schema_type = Schema if file.kind == OPEN_MODEL_KIND and file.expect("private", bool) else PublicSchema
    try:
        schema = schema_type.from_json(file.expect("schema", str))
        expected = len(model.circuit(schema.public()))
    except (SchemaError, ValueError, TypeError) as error:
        raise FileFormatError(f"the file has a model or schema that cannot be: {error}") from error
    totals: Any
    if file.kind == OPEN_MODEL_KIND:
        totals = _plain_totals(file)
    elif keys is None:
        raise TypeError("this model is encrypted: give the public keys= it belongs to")
    else:
        totals = EncryptedTotals.from_container(file, keys)
    if len(totals) != expected:
        raise FileFormatError(f"the file has {len(totals)} totals, and such a model has {expected}")
    try:
        return model._set_state(totals, schema, n_rows, tuple(blocks))
    except (ValueError, ZeroDivisionError) as error:
        raise FileFormatError(f"the file has totals that cannot be: {error}") from error


def _empty_model(name: str, params: dict[str, Any]) -> TotalsClassifier:
    if name not in TotalsClassifier._models:
        raise FileFormatError(f"the file holds a model {name!r} that this library does not know")
    try:
        return TotalsClassifier._models[name](**params)
    except TypeError as error:
        raise FileFormatError(f"the file has parameters that {name} does not have: {error}") from error


def _plain_totals(file: Container) -> list[int]:
    try:
        totals = json.loads(file.section("totals"))
    except (ValueError, RecursionError) as error:
        raise FileFormatError("the totals of the file are not valid JSON") from error
    if not isinstance(totals, list) or not all(type(total) is int for total in totals):
        raise FileFormatError("the totals of the file are no list of integers")
    return totals


def _storable(params: dict[str, Any]) -> dict[str, Any]:
    """Parameters as JSON knows them: NumPy's numbers as Python's."""
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in params.items()}


@decrypt_value.register(TotalsClassifier)
def _decrypt_model(model: Any, decryptor: Decryptor, *, schema: Schema | None = None) -> Any:
    """A new, ordinary fitted classifier with the opened totals."""
    check_is_fitted(model, "totals_")
    if not model.is_encrypted:
        raise TypeError("this model is open already: there is nothing to decrypt")
    known = schema or model.schema_
    if known.public() != model.schema_.public():
        raise SchemaError("this schema is not the one the model was fitted with")
    totals = decrypt_value(model.totals_, decryptor)
    return clone(model)._set_state(totals, known, model.n_rows_, model.block_ids_)


# -- pieces that circuits are made of ------------------------------------------------------------------------------------


def class_columns(schema: PublicSchema, fold: int | None = None) -> list[Expression]:
    """The class indicators (of a fold): every count starts from one, so that padding never counts."""
    if not schema.n_classes:
        raise SchemaError("the schema has no classes: infer it with target=")
    return [column(str(Column("class", -1, c, fold))) for c in range(schema.n_classes)]


def stored_columns(schema: PublicSchema, columns: Sequence[Column] | None) -> set[Column]:
    """Which columns there are; by default those of a table that is encrypted with one-hot bins."""
    return set(table_columns(schema, ("onehot",), classes=True) if columns is None else columns)


def refuse_impossible(good: bool, what: str) -> None:
    """Opened totals that break an invariant are no result of this computation."""
    if not good:
        raise ValueError(f"{what}: the result was altered, or does not belong to this model. It is refused")


def _known_schema(table: Table | EncryptedTable) -> Schema | PublicSchema:
    if isinstance(table, EncryptedTable):
        return table.private_schema or table.schema
    return table.schema


def _block_ids(table: Table | EncryptedTable) -> tuple[str, ...]:
    return table.blocks.ids if isinstance(table, EncryptedTable) else ()


def _array_names(X: NDArray[Any]) -> list[str]:
    return list(Schema.infer(np.zeros((1, X.shape[1]))).names)
