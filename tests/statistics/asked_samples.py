"""One small insecure key for all statistics, and the answers of encrypted tables, which must equal
those in the clear.
"""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import pandas as pd

import encryptedstats as es


@cache
def small_owner() -> es.Owner:
    """A ring so small that a question takes milliseconds, exact up to 2^30 and three
    products deep.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", es.InsecureParametersWarning)
        return es.Owner(
            es.Parameters.from_bits("bgv", 1024, 1 << 30, (58,) * 6, allow_insecure=True)
        )


@cache
def _sealed(key: int) -> es.EncryptedTable:
    return small_owner().encrypt(_tables[key])


_tables: dict[int, es.Table] = {}


def opened(table: es.Table, question: es.Question) -> Any:
    """The answer by the encrypted table, opened; the same as in the clear, or the test fails."""
    _tables[id(table)] = table
    found = small_owner().open(_sealed(id(table)).ask(question))
    assert found == table.ask(question)
    return found


def table_of(
    frame: pd.DataFrame,
    target: str | None = None,
    numbers: dict[str, int] | None = None,
    **options: Any,
) -> es.Table:
    """The table of a frame, with some columns kept as numbers of so many digits."""
    schema = es.Schema.infer(frame, target=target, **options)
    for name, digits in (numbers or {}).items():
        schema = schema.with_kind(name, "number", digits=digits)
    return schema.table(frame)
