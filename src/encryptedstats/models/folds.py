"""Score cross-validated models, each on the rows of the fold that it was not fitted to."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
from sklearn.metrics import get_scorer

from encryptedstats.errors import SchemaError
from encryptedstats.models.base import TotalsClassifier
from encryptedstats.tables import Table


def score_folds(
    models: Sequence[TotalsClassifier],
    table: Table,
    scoring: str | Callable[..., float] | None = None,
) -> pd.DataFrame:
    """Score every fold of a cross-validation.

    Parameters
    ----------
    models : list of models
        What ``model.fit_folds(table)`` returns for a clear table, or ``owner.open(folds, schema)``
        for an encrypted one.
    table : Table
        The clear rows with their classes and folds.
    scoring : str or callable, optional
        A scorer of scikit-learn. By default ``"roc_auc"`` for two classes, else ``"accuracy"``.

    Returns
    -------
    DataFrame
        The number of rows and the score of each fold.

    Raises
    ------
    SchemaError
        If the table has no classes or no folds, or another number of folds than there are models.
    """
    if table.fold_codes is None or table.class_codes is None:
        raise SchemaError(
            "this table has no classes or no folds: give the clear table that was encrypted, with "
            "its classes and folds",
            code="classes-or-folds-missing",
        )
    if len(models) != table.n_folds:
        raise SchemaError(
            f"there are {len(models)} models and {table.n_folds} folds: give one model per fold",
            code="fold-counts-differ",
        )
    if scoring is None:
        scoring = "roc_auc" if table.public_schema.n_classes == 2 else "accuracy"
    scorer = get_scorer(scoring) if isinstance(scoring, str) else scoring
    rows = []
    for fold, model in enumerate(models):
        inside = np.flatnonzero(table.fold_codes == fold)
        labels = model.classes_[table.class_codes[inside]]
        rows.append(
            {"fold": fold, "rows": len(inside), "score": scorer(model, table.take(inside), labels)}
        )
    return pd.DataFrame(rows).set_index("fold")
