"""Open whatever was stored, by what the file says it is. This module is above all that it opens."""

from __future__ import annotations

import os
from typing import Any

from encryptedstats.crypto import PublicKeys
from encryptedstats.crypto.dispatch import open_value
from encryptedstats.crypto.encryption import Decryptor
from encryptedstats.kinds import read_file
from encryptedstats.storage.objects import load_file, object_exists, open_store
from encryptedstats.tables import EncryptedTable
from encryptedstats.tables.manifest import MANIFEST


def load(
    url: str | os.PathLike[str], keys: PublicKeys | None = None, *, by_others: bool = False
) -> Any:
    """Open a stored table, model, encrypted answer, encrypted array or public keys.

    Parameters
    ----------
    url : path or fsspec URL
        A table's folder, or a file.
    keys : PublicKeys, optional
        Keys to compute with. Encrypted arrays, answers and models need them; a table brings its
        own, unless others are wanted (with rotations, say).
    by_others : bool
        Of a table: compute on it although rows of it were encrypted with the public keys, by others
        than the owner. A contributor who forges such rows and sees a result can recover the secret
        key: see :meth:`EncryptedTable.accept_others`.

    Returns
    -------
    EncryptedTable, a model, EncryptedAnswer, EncryptedArray, EncryptedInteger or PublicKeys
    """
    if open_store(url).exists(MANIFEST) or not object_exists(url):
        return EncryptedTable.load(url, keys, by_others=by_others)
    return read_file(load_file(url), keys, url)


@open_value.register(str)
@open_value.register(os.PathLike)
def _open_file(url: str | os.PathLike[str], decryptor: Decryptor, schema: Any = None) -> Any:
    """Load a file with the owner's own public keys, and open it."""
    try:
        found = load(url, decryptor.keys)
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"{url} is not there: give the path or URL of a stored result"
        ) from error
    return open_value(found, decryptor, schema)
