"""One call that opens whatever was stored, by what the file itself says it is. Sits above all that it can open."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from encryptedstats.crypto import EncryptedArray, PublicKeys
from encryptedstats.crypto.arrays import ARRAY_KIND
from encryptedstats.crypto.keys import OWNER_KIND, PUBLIC_KIND
from encryptedstats.errors import FileFormatError
from encryptedstats.storage import container
from encryptedstats.storage.objects import open_store
from encryptedstats.tables import EncryptedTable
from encryptedstats.tables.encrypted import MANIFEST


def load(url: str | os.PathLike[str], keys: PublicKeys | None = None) -> Any:
    """Open a stored table, model, statistic, encrypted array or public keys.

    Parameters
    ----------
    url : path or fsspec URL
        A table's folder, or a local file.
    keys : PublicKeys, optional
        Keys to compute with. Encrypted arrays, statistics and models need them; a table brings its own, unless others
        are wanted (with rotations, say).

    Returns
    -------
    EncryptedTable, a model, EncryptedStatistic, EncryptedArray, EncryptedInteger or PublicKeys
    """
    file = Path(os.fspath(url).removeprefix("file://"))
    if not file.is_file():
        return EncryptedTable.load(url, keys)
    kind = container.read(file).kind
    if kind == PUBLIC_KIND:
        return PublicKeys.load(file)
    if kind == ARRAY_KIND:
        if keys is None:
            raise TypeError(f"{url} holds an encrypted array: give the keys= it is to be computed with")
        return EncryptedArray.load(file, keys)
    if kind == OWNER_KIND:
        raise FileFormatError(f"{url} holds a secret key: open it with Owner.load, on the owner's own machine")
    raise FileFormatError(f"{url} holds {kind!r}: open the folder of the table it belongs to")


def _is_object(address: str) -> bool:
    """Whether a single object lies there, rather than the folder of a table."""
    if "://" not in address:
        return Path(address).is_file()
    return not open_store(address).exists(MANIFEST)
