"""``es.plan``: a plan for a circuit or a model over the rows of a schema, before anything is encrypted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from encryptedstats.circuits.expressions import Expression, column_names
from encryptedstats.circuits.plan import Plan, plan_circuit
from encryptedstats.crypto.noise import Scheme
from encryptedstats.errors import SchemaError
from encryptedstats.tables.blocks import BlockShape, block_size
from encryptedstats.tables.columns import Column, column_ranges, table_columns
from encryptedstats.tables.schema import Schema
from encryptedstats.tables.variables import PublicSchema


def plan(
    circuit: Any,
    schema: Schema | PublicSchema,
    n_rows: int,
    *,
    encrypted_prediction: bool = False,
    security: int = 128,
    scheme: Scheme | None = None,
    encodings: Sequence[str] = ("onehot",),
    weight_bound: int = 1,
    folds: int = 0,
    with_secret_key: bool = True,
) -> Plan:
    """Parameters and cost of a computation, before anybody pays for it.

    Parameters
    ----------
    circuit : model, total, or list of them
        A model of this library, or an expression that ends in ``.total()``; with several, keys carry each of them.
    schema : Schema or PublicSchema
    n_rows : int
        Rows of the table.
    encrypted_prediction : bool
        Leave room for predicting without ever opening the model; for models that can.
    security : 128, 192 or 256
    scheme : "bgv" or "bfv", optional
        By default BGV, which is faster, and BFV for values that are too large for it.
    encodings, weight_bound, folds
        As the table will be encrypted: see ``owner.encrypt`` and ``schema.table``.
    with_secret_key : bool
        Whether the owner encrypts (less noise), or others with the public key.

    Returns
    -------
    Plan
        Prints as a table; ``Owner(plan)`` makes fitting keys.

    Raises
    ------
    ParameterError
        If nothing carries it: names the binding limit and the nearest wish that can be granted.

    Examples
    --------
    >>> import pandas as pd, encryptedstats as es
    >>> from encryptedstats.circuits import column
    >>> schema = es.Schema.infer(pd.DataFrame({"age": [30, 40, 50], "sick": [0, 1, 1]}), target="sick")
    >>> p = es.plan([(column("v0.bin0") * column("class1")).total()], schema, n_rows=1000)
    >>> p.depth, p.largest, p.security
    (1, 1000, 128)
    """
    if isinstance(n_rows, bool) or not isinstance(n_rows, int) or n_rows < 1:
        raise ValueError(f"n_rows={n_rows!r}: a number of rows is needed, at least 1")
    if not isinstance(schema, (Schema, PublicSchema)):
        raise TypeError(f"plan needs a Schema, not a {type(schema).__name__}: es.Schema.infer(df, target=...)")
    public = schema.public()
    if encrypted_prediction and not hasattr(circuit, "prediction_circuit"):
        raise ValueError(
            f"{circuit!r} has no way to predict without being opened: plan it with encrypted_prediction=False"
        )
    columns = table_columns(public, encodings, classes=public.n_classes > 0, n_folds=folds)
    outputs = _outputs(circuit, public, columns)
    needed = [Column.parse(name) for name in column_names(outputs)]
    missing = [column for column in needed if column not in columns]
    if missing:
        raise SchemaError(
            f"column {missing[0]} would not be stored with encodings={tuple(encodings)}: add its encoding, or folds="
        )
    stored = columns
    made = plan_circuit(
        outputs,
        column_ranges(public, stored, weight_bound),
        n_rows,
        n_columns=len(stored),
        security=security,
        scheme=scheme,
        with_secret_key=with_secret_key,
    )
    shape, layout = BlockShape(made.parameters, len(stored)), made.layout
    first, last = layout.rows_of(layout.n_chunks - 1)
    bytes_up = (layout.n_chunks - 1) * block_size(shape, layout.slots) + block_size(shape, last - first)
    return replace(made, bytes_up=bytes_up)


def _outputs(circuit: Any, public: PublicSchema, columns: Sequence[Column]) -> list[Expression]:
    parts = list(circuit) if isinstance(circuit, (list, tuple)) else [circuit]
    outputs: list[Expression] = []
    for part in parts:
        if hasattr(part, "circuit") and not isinstance(part, type):
            part.check_schema(public)
            outputs += part.circuit(public, columns)
        elif isinstance(part, Expression) and part.is_total:
            outputs.append(part)
        else:
            raise TypeError("plan needs a model, expressions that end in .total(), or a list of such")
    if not outputs:
        raise TypeError("plan needs a model, expressions that end in .total(), or a list of such")
    return list(dict.fromkeys(outputs))
