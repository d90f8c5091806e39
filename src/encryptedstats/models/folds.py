"""Scores of cross-validated models, each on the rows of the fold that it has not seen."""

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
        What ``model.fit_folds(table)`` gives on a clear table, or ``owner.open(folds, schema)`` of
        an encrypted one: for every fold the model of all other rows.
    table : Table
        The clear rows, with their classes and folds, as they were encrypted.
    scoring : str or callable, optional
        As scikit-learn has it. By default the AUC, and accuracy for more than two classes.

    Returns
    -------
    DataFrame
        One row a fold: its number of rows and its score.
    """
    if table.fold_codes is None or table.class_codes is None:
        raise SchemaError(
            "scoring needs the clear table with its classes and folds, as it was before encryption",
            code="classes-or-folds-missing",
        )
    if len(models) != table.n_folds:
        raise SchemaError(
            f"there are {len(models)} models, and the table has {table.n_folds} folds",
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
