"""Single dispatch for the verbs of an ``Owner`` (``encrypt``, ``open``, ``publish``, ``move``, ...)
by the type of their operand.

Upper layers register their types and document their options, so this module imports none of them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import singledispatch
from typing import TYPE_CHECKING, Any

from encryptedstats.errors import ArgumentTypeError

if TYPE_CHECKING:
    from encryptedstats.crypto.encryption import Decryptor, Encryptor
    from encryptedstats.crypto.keys import Owner


@singledispatch
def encrypt_value(value: object, encryptor: Encryptor, **options: Any) -> Any:
    """Encrypt a value with ``encryptor``. Register a type with ``@encrypt_value.register``."""
    if hasattr(value, "columns"):
        raise ArgumentTypeError(
            "a DataFrame is encrypted as a table: schema = es.Schema.infer(df, target=...), then "
            "owner.encrypt(schema.table(df))",
            code="dataframe-without-schema",
        )
    cure = "give integers, (nested) lists or integer arrays of them (a pandas Series: .to_numpy())"
    raise ArgumentTypeError(
        f"{_describe(value)} cannot be encrypted: {cure}", code="not-encryptable"
    )


@singledispatch
def encrypt_file_value(
    schema: object, encryptor: Encryptor, path: Any, out: Any, **options: Any
) -> Any:
    """Encrypt a file that ``schema`` describes. Register a type of schema with
    ``@encrypt_file_value.register``.
    """
    raise ArgumentTypeError(
        f"a file is encrypted by a Schema, not by {_describe(schema)}: see Schema.infer and "
        "Schema.load",
        code="not-a-schema",
    )


@singledispatch
def decrypt_value(value: object, decryptor: Decryptor, **options: Any) -> Any:
    """Decrypt a value with ``decryptor``. Register a type with ``@decrypt_value.register``."""
    raise ArgumentTypeError(
        f"{_describe(value)} is nothing encrypted: there is nothing to decrypt",
        code="not-encrypted",
    )


@singledispatch
def openable(value: object) -> Any:
    """Return the part of a value that the members of a joint key open: an answer in totals.

    Register a type with ``@openable.register``.
    """
    if hasattr(value, "packs"):
        return value
    raise ArgumentTypeError(
        f"{_describe(value)} is nothing that members open together: they open encrypted answers "
        "in totals",
        code="not-openable",
    )


@singledispatch
def recompute_value(
    value: object, question: Any, table: Any, rows: Any = None, **options: Any
) -> Any:
    """Recompute a result from the rows behind it, and compare. Registered by ``tables``."""
    raise ArgumentTypeError(
        f"{_describe(value)} cannot be computed again: give an encrypted answer",
        code="not-recomputable",
    )


@singledispatch
def move_value(
    source: object,
    decryptor: Decryptor,
    encryptor: Encryptor,
    out: Any,
    schema: Any = None,
    **options: Any,
) -> None:
    """Encrypt what one key can open anew for another. Paths register where files can be loaded."""
    raise ArgumentTypeError(
        f"{_describe(source)} cannot be moved to another key: give the path or URL of a stored "
        "table or result",
        code="not-movable",
    )


@singledispatch
def open_value(source: object, decryptor: Decryptor, schema: Any = None) -> Any:
    """Decrypt what ``source`` is, by the names of a schema if one is given. Paths register where
    files can be loaded.
    """
    return decrypt_value(source, decryptor, **({} if schema is None else {"schema": schema}))


@singledispatch
def keep_value(value: object, owner: Owner, **options: Any) -> Callable[[Any], None]:
    """Prepare for spot checks of what ``value`` becomes, and return a function that is called with
    it, encrypted. Registered by ``spotcheck``.
    """
    raise ArgumentTypeError(
        f"spot_check=True is for tables, not for {_describe(value)}", code="not-keepable"
    )


@singledispatch
def open_checked_value(source: object, owner: Owner, schema: Any = None, **options: Any) -> Any:
    """Open an answer after a spot check. Registered by ``spotcheck``."""
    raise ArgumentTypeError(
        f"{_describe(source)} cannot be spot-checked: give an encrypted answer",
        code="not-an-encrypted-answer",
    )


@singledispatch
def publish_value(source: object, owner: Owner, **options: Any) -> Any:
    """Return what disclosure rules allow to show of ``source``. Registered by ``publishing``."""
    raise ArgumentTypeError(f"{_describe(source)} cannot be published", code="not-publishable")


@singledispatch
def release_value(source: object, owner: Owner, **options: Any) -> Any:
    """Return ``source`` with noise for differential privacy. Registered by ``publishing``."""
    raise ArgumentTypeError(f"{_describe(source)} cannot be released", code="not-releasable")


def _describe(value: object) -> str:
    return f"an object of type {type(value).__name__}"
