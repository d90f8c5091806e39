"""Cross-validation of an encrypted fit in one pass: the worker fits every fold, the model without a fold is all less that fold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.metrics import get_scorer

from encryptedstats.circuits.results import EncryptedTotals
from encryptedstats.crypto.dispatch import decrypt_value
from encryptedstats.crypto.keys import Decryptor
from encryptedstats.errors import SchemaError
from encryptedstats.models.base import TotalsClassifier, _block_ids, _known_schema
from encryptedstats.tables import EncryptedTable, Schema, Table


class EncryptedFolds:
    """The totals of every fold, still encrypted. ``owner.cross_validate(folds, table)`` scores them."""

    def __init__(self, model: TotalsClassifier, totals: EncryptedTotals, n_folds: int, table: EncryptedTable) -> None:
        self.model = model
        self.totals = totals
        self.n_folds = n_folds
        self._schema = _known_schema(table)
        self._n_rows = table.n_rows
        self._block_ids = _block_ids(table)

    def __repr__(self) -> str:
        return f"EncryptedFolds({self.n_folds} folds of {self.model!r}, key {self.totals.keys.key_id})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("encrypted folds are not pickled")

    def cross_validate(
        self, models: Sequence[TotalsClassifier], table: Table, scoring: str | Callable[..., float] = "roc_auc"
    ) -> pd.DataFrame:
        """Score the opened models, each on the rows of the fold that it has not seen."""
        return score_folds(models, table, scoring)


def fit_folds(model: TotalsClassifier, table: Table | EncryptedTable, **options: Any) -> Any:
    """The fit of every fold: encrypted folds, or on a clear table the models themselves."""
    if not table.n_folds:
        raise SchemaError("this table declares no folds: schema.table(df, folds=k) does, before it is encrypted")
    model._check_table(table)
    public, columns = table.schema.public(), table.columns()
    outputs = [x for fold in range(table.n_folds) for x in model.circuit(public, columns, fold)]
    if isinstance(table, EncryptedTable):
        return EncryptedFolds(clone(model), table.evaluate(outputs, **options), table.n_folds, table)
    return _without_each(model, table.evaluate(outputs), table.n_folds, table.schema, table.n_rows)


def _without_each(
    model: TotalsClassifier, totals: Sequence[int], n_folds: int, schema: Any, n_rows: int
) -> list[TotalsClassifier]:
    """For every fold the model of all other rows."""
    by_fold = np.array(totals, dtype=object).reshape(n_folds, -1)
    everything = by_fold.sum(axis=0)
    return [clone(model)._set_state(list(everything - part), schema, n_rows, ()) for part in by_fold]


@decrypt_value.register(EncryptedFolds)
def _decrypt_folds(
    folds: EncryptedFolds, decryptor: Decryptor, *, schema: Schema | None = None
) -> list[TotalsClassifier]:
    totals = decrypt_value(folds.totals, decryptor)
    return _without_each(folds.model, totals, folds.n_folds, schema or folds._schema, folds._n_rows)


def score_folds(
    models: Sequence[TotalsClassifier], table: Table, scoring: str | Callable[..., float] = "roc_auc"
) -> pd.DataFrame:
    """One row a fold: its number of rows and its score."""
    if table.fold_codes is None or table.class_codes is None:
        raise SchemaError("scoring needs the clear table with its classes and folds, as it was before encryption")
    labels = np.array(table.schema.classes)[table.class_codes]
    scorer = get_scorer(scoring) if isinstance(scoring, str) else scoring
    rows = []
    for fold, model in enumerate(models):
        inside = np.flatnonzero(table.fold_codes == fold)
        rows.append({"fold": fold, "rows": len(inside), "score": scorer(model, table.take(inside), labels[inside])})
    return pd.DataFrame(rows).set_index("fold")
