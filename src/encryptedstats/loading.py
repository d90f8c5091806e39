"""One call that opens whatever was stored, by what the file itself says it is. Sits above all that it can open."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from encryptedstats.circuits.results import NUMBERS_KIND, VOTES_KIND, EncryptedNumbers
from encryptedstats.crypto import PublicKeys, arrays
from encryptedstats.crypto.arrays import ARRAY_KIND
from encryptedstats.crypto.dispatch import open_value
from encryptedstats.crypto.keys import OWNER_KIND, PUBLIC_KIND, Decryptor
from encryptedstats.errors import FileFormatError
from encryptedstats.storage.container import Container
from encryptedstats.storage.objects import load_file, object_exists, open_store
from encryptedstats.tables import EncryptedStatistic, EncryptedTable
from encryptedstats.tables.encrypted import MANIFEST
from encryptedstats.tables.statistics import STATISTIC_KIND

_NEED_KEYS: dict[str, Callable[[Container, PublicKeys], Any]] = {
    ARRAY_KIND: arrays.from_container,
    STATISTIC_KIND: EncryptedStatistic.from_container,
    NUMBERS_KIND: EncryptedNumbers.from_container,
}


def load(url: str | os.PathLike[str], keys: PublicKeys | None = None, *, by_others: bool = False) -> Any:
    """Open a stored table, model, prediction, statistic, encrypted array or public keys.

    Parameters
    ----------
    url : path or fsspec URL
        A table's folder, or a file.
    keys : PublicKeys, optional
        Keys to compute with. Encrypted arrays, statistics, models and votes need them; a table brings its own, unless others
        are wanted (with rotations, say).
    by_others : bool
        Of a table: compute on it although rows of it were encrypted with the public keys, by others than the owner. Whoever
        forges such rows and sees a result can recover the secret key: see :meth:`EncryptedTable.accept_others`.

    Returns
    -------
    EncryptedTable, a model, EncryptedVotes, EncryptedStatistic, EncryptedArray, EncryptedInteger or PublicKeys
    """
    if open_store(url).exists(MANIFEST) or not object_exists(url):
        return EncryptedTable.load(url, keys, by_others=by_others)
    file = load_file(url)
    if file.kind == PUBLIC_KIND:
        return PublicKeys.from_container(file)
    if file.kind.endswith("model"):
        from encryptedstats.models.files import read_model  # scikit-learn takes a second to import: only for models

        return read_model(file, keys)
    if file.kind == VOTES_KIND:
        from encryptedstats.models.prediction import read_votes

        return read_votes(file, keys)
    if file.kind in _NEED_KEYS:
        if keys is None:
            raise TypeError(f"{url} holds an {file.kind}: give the public keys= it belongs to")
        return _NEED_KEYS[file.kind](file, keys)
    if file.kind == OWNER_KIND:
        raise FileFormatError(f"{url} holds a secret key: open it with Owner.load, on the owner's own machine")
    raise FileFormatError(f"{url} holds {file.kind!r}: open the folder of the table it belongs to")


@open_value.register(str)
@open_value.register(os.PathLike)
def _open_file(url: str | os.PathLike[str], decryptor: Decryptor, schema: Any = None) -> Any:
    """What ``owner.open`` does with a path: the file is loaded with the owner's own public keys."""
    try:
        found = load(url, decryptor.keys)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{url} is not there: give the path or URL of a stored result") from error
    return open_value(found, decryptor, schema)
