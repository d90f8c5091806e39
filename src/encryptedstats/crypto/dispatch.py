"""How ``Owner.encrypt``, ``Owner.decrypt`` and ``Owner.open`` know what to do with a value: by its type. The types register here.

Integers and arrays do so in this package; tables, models, votes, and the files of all of them, register from the layers
above, so that nothing here has to import them.
"""

from __future__ import annotations

import os
from functools import singledispatch
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from encryptedstats.crypto.keys import Decryptor, Encryptor


@singledispatch
def encrypt_value(value: object, encryptor: Encryptor, **options: Any) -> Any:
    """Encrypt a value with ``encryptor``. Register a type with ``@encrypt_value.register``."""
    if hasattr(value, "columns"):
        raise TypeError(
            "a DataFrame is encrypted as a table: schema = es.Schema.infer(df, target=...), then owner.encrypt(schema.table(df))"
        )
    cure = "give integers, (nested) lists or integer arrays of them (a pandas Series: .to_numpy())"
    raise TypeError(f"{_describe(value)} cannot be encrypted: {cure}")


@singledispatch
def encrypt_file_value(schema: object, encryptor: Encryptor, path: Any, out: Any, **options: Any) -> Any:
    """Encrypt a file that ``schema`` describes. Register a type of schema with ``@encrypt_file_value.register``."""
    raise TypeError(f"a file is encrypted by a Schema, not by {_describe(schema)}: see Schema.infer and Schema.load")


@singledispatch
def decrypt_value(value: object, decryptor: Decryptor, **options: Any) -> Any:
    """Decrypt a value with ``decryptor``. Register a type with ``@decrypt_value.register``."""
    if isinstance(value, (str, os.PathLike)):
        raise TypeError(
            f"decrypt is for what was loaded: owner.open({os.fspath(value)!r}, schema) loads the file and opens it"
        )
    raise TypeError(f"{_describe(value)} is nothing encrypted: there is nothing to decrypt")


@singledispatch
def open_value(source: object, decryptor: Decryptor, schema: Any = None) -> Any:
    """Decrypt what ``source`` is, by the names of a schema if one is given. Paths register where files can be loaded."""
    return decrypt_value(source, decryptor, **({} if schema is None else {"schema": schema}))


def _describe(value: object) -> str:
    return f"an object of type {type(value).__name__}"
