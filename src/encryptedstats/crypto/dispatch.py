"""How ``Owner.encrypt`` and ``Owner.decrypt`` know what to do with a value: by its type, and the types register here.

Integers and arrays do so in this package; tables, models and votes register from the layers above, so that nothing here has to
import them.
"""

from __future__ import annotations

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
    cure = (
        ": open the file first, es.load(path, keys=...)" if isinstance(value, str) else ": there is nothing to decrypt"
    )
    raise TypeError(f"{_describe(value)} is nothing encrypted{cure}")


def _describe(value: object) -> str:
    return f"an object of type {type(value).__name__}"
