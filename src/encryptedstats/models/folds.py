"""Cross-validation of an encrypted fit in one pass: the worker fits every fold, the model without a fold is all less that fold."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.metrics import get_scorer

from encryptedstats.circuits.results import EncryptedNumbers
from encryptedstats.crypto.dispatch import decrypt_value
from encryptedstats.crypto.keys import Decryptor, PublicKeys
from encryptedstats.errors import Cure, FileFormatError, SchemaError
from encryptedstats.models._rows import without_fold
from encryptedstats.models.base import FOLDS_KIND, TotalsClassifier, _block_ids, known_schema
from encryptedstats.models.files import read_head, read_totals
from encryptedstats.storage.container import Container
from encryptedstats.storage.objects import load_file, save_file
from encryptedstats.tables import EncryptedTable, PublicSchema, Schema, Table
from encryptedstats.tables.opening import opening_schema

MAX_FOLDS: Final = 1 << 16


class EncryptedFolds:
    """The totals of every fold, still encrypted. ``owner.cross_validate(folds, table)`` scores them."""

    def __init__(
        self,
        model: TotalsClassifier,
        totals: EncryptedNumbers,
        n_folds: int,
        schema: Schema | PublicSchema,
        n_rows: int,
        block_ids: Sequence[str],
    ) -> None:
        self.model = model
        self.totals = totals
        self.n_folds = n_folds
        self.schema = schema
        self.n_rows = n_rows
        self.block_ids = tuple(block_ids)

    def __repr__(self) -> str:
        return f"EncryptedFolds({self.n_folds} folds of {self.model!r}, key {self.totals.keys.key_id})"

    def cross_validate(
        self, models: Sequence[TotalsClassifier], table: Table, scoring: str | Callable[..., float] | None = None
    ) -> pd.DataFrame:
        """Score the opened models, each on the rows of the fold that it has not seen."""
        return score_folds(models, table, scoring)

    def save(self, url: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the folds to a path or fsspec URL, for the owner to fetch; the file holds no key and no names."""
        fields = self.model._stored_fields(self.schema.public(), self.n_rows, self.block_ids)
        file = self.totals.to_container(FOLDS_KIND, {**fields, "n_folds": self.n_folds})
        save_file(file, url, overwrite=overwrite)
        self.totals.drop_checkpoints()

    @classmethod
    def load(cls, url: str | os.PathLike[str], keys: PublicKeys) -> EncryptedFolds:
        """Read folds that belong to ``keys``."""
        return read_folds(load_file(url, kind=FOLDS_KIND), keys)

    def __reduce__(self) -> NoReturn:
        raise TypeError("encrypted folds are not pickled: use save() and load()")


def read_folds(file: Container, keys: PublicKeys | None) -> EncryptedFolds:
    """The folds in a file, with every check."""
    head, n_folds = read_head(file), file.expect("n_folds", int)
    totals = read_totals(file, keys)
    if not 2 <= n_folds <= MAX_FOLDS or len(totals) != n_folds * head.n_totals:
        raise FileFormatError(f"the file has {len(totals)} totals: that is not {n_folds} folds of such a model")
    return EncryptedFolds(head.model, totals, n_folds, head.schema, head.n_rows, head.block_ids)


def fit_folds(model: TotalsClassifier, table: Table | EncryptedTable, **options: Any) -> Any:
    """The fit of every fold: encrypted folds, or on a clear table the models themselves."""
    if not table.n_folds:
        raise SchemaError(
            "this table declares no folds: ",
            Cure("declare folds", "schema.table(df, folds=k) does, before it is encrypted"),
        )
    model._check_table(table)
    model = clone(model)
    model._draw()
    public, columns = table.schema.public(), table.columns()
    outputs = [x for fold in range(table.n_folds) for x in model.circuit(public, columns, fold)]
    if isinstance(table, EncryptedTable):
        totals = table.evaluate(outputs, **options)
        return EncryptedFolds(model, totals, table.n_folds, known_schema(table), table.n_rows, _block_ids(table))
    return _without_each(model, table.evaluate(outputs), table.n_folds, table.schema)


def _without_each(
    model: TotalsClassifier, totals: Sequence[int], n_folds: int, schema: Any, block_ids: Sequence[str] = ()
) -> list[TotalsClassifier]:
    """For every fold the model of all other rows. How many they are, the classes say (by weight, where rows have one)."""
    by_fold = np.array(totals, dtype=object).reshape(n_folds, -1)
    n_classes = schema.public().n_classes
    models = []
    for fold, part in enumerate(by_fold):
        rest, rows = list(by_fold.sum(axis=0) - part), without_fold(block_ids, fold, n_folds)
        models.append(model._like()._set_state(rest, schema, int(sum(rest[:n_classes])), rows))
    return models


@decrypt_value.register(EncryptedFolds)
def _decrypt_folds(
    folds: EncryptedFolds, decryptor: Decryptor, *, schema: Schema | None = None
) -> list[TotalsClassifier]:
    known = opening_schema(schema, folds.schema, folds.totals, decryptor)
    return _without_each(folds.model, decrypt_value(folds.totals, decryptor), folds.n_folds, known, folds.block_ids)


def score_folds(
    models: Sequence[TotalsClassifier], table: Table, scoring: str | Callable[..., float] | None = None
) -> pd.DataFrame:
    """One row a fold: its number of rows and its score. By default the AUC, and accuracy for more than two classes."""
    if table.fold_codes is None or table.class_codes is None:
        raise SchemaError("scoring needs the clear table with its classes and folds, as it was before encryption")
    if scoring is None:
        scoring = "roc_auc" if table.public_schema.n_classes == 2 else "accuracy"
    scorer = get_scorer(scoring) if isinstance(scoring, str) else scoring
    rows = []
    for fold, model in enumerate(models):
        inside = np.flatnonzero(table.fold_codes == fold)
        labels = model.classes_[table.class_codes[inside]]
        rows.append({"fold": fold, "rows": len(inside), "score": scorer(model, table.take(inside), labels)})
    return pd.DataFrame(rows).set_index("fold")
