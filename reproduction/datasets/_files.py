"""Where a data set's CSV comes from: a local folder, the cache, or UCI, in this order.

Whatever the place, :func:`csv_bytes` returns bytes with the checksum of the index, or raises. It
reads the environment at each call: ``ENCRYPTEDSTATS_DATA``, ``ENCRYPTEDSTATS_CACHE``,
``ENCRYPTEDSTATS_UCI``.
"""

from __future__ import annotations

import gzip
import hashlib
import http.client
import io
import os
import time
import urllib.error
import urllib.request
import uuid
import zlib
from pathlib import Path

from encryptedstats.errors import FileFormatError
from reproduction.datasets._errors import DatasetUnavailableError
from reproduction.datasets._index import DatasetInfo
from reproduction.datasets._recipes import RECIPES, csv_from_archive

UCI = "https://archive.ics.uci.edu/static/public"
MAX_ARCHIVE_BYTES = (
    32 * 2**20
)  # the packed CSVs have 1.2 MB at most; UCI's archives hold little else
MAX_CSV_BYTES = (
    64 * 2**20
)  # the largest CSV has 5 MB; bounds what a damaged or hostile .gz can unpack to
STALL_SECONDS = 30.0  # without a byte
TOTAL_SECONDS = (
    300.0  # for one archive: a server that drips bytes must not hold the caller for ever
)


def csv_bytes(
    info: DatasetInfo, *, data_home: str | os.PathLike[str] | None = None, download: bool = True
) -> bytes:
    """The verified CSV of a data set.

    Raises
    ------
    FileFormatError
        If a file is there but is not the one of the index.
    DatasetUnavailableError
        If there is no file, and downloading is not allowed or fails.
    """
    folders = _folders(data_home)
    for folder in folders:
        path = folder / info.file
        if path.is_file():
            return _verified(info, path)
    if not download:
        looked = ", ".join(
            f"{folder}{'' if folder.is_dir() else ' (no such folder)'}" for folder in folders
        )
        raise DatasetUnavailableError(
            f"data set {info.name!r}: no {info.file} in {looked}, and download=False. "
            "Set ENCRYPTEDSTATS_DATA to a folder that holds it, or allow the download."
        )
    url = archive_url(info)
    csv = csv_from_archive(info, fetch(url))
    found = _sha256(csv)
    if found != info.csv_sha256:
        raise FileFormatError(
            f"data set {info.name!r}: {url} does not hold the data of the index. Expected SHA-256 "
            f"{info.csv_sha256} of the CSV made from it, found {found}. "
            f"Put {info.file} into a folder and set ENCRYPTEDSTATS_DATA to it."
        )
    _store(cache_folder() / info.file, gzip.compress(csv, mtime=0))
    return csv


def cache_folder() -> Path:
    """Where downloads are kept: ``datasets`` in ``ENCRYPTEDSTATS_CACHE`` or in the user's own
    cache.
    """
    chosen = os.environ.get("ENCRYPTEDSTATS_CACHE")
    if chosen:
        return Path(chosen).expanduser() / "datasets"
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG standard says to ignore a relative path.
    base = Path(xdg) if os.path.isabs(xdg) else Path("~/.cache").expanduser()
    return base / "encryptedstats" / "datasets"


def archive_url(info: DatasetInfo) -> str:
    """Address of the raw archive, at UCI or at the mirror that ``ENCRYPTEDSTATS_UCI`` names."""
    base = os.environ.get("ENCRYPTEDSTATS_UCI") or UCI
    if not base.startswith(("https://", "http://")):
        raise DatasetUnavailableError(
            f"ENCRYPTEDSTATS_UCI is {base!r}; it must be an http(s):// address."
        )
    return f"{base.rstrip('/')}/{info.uci_id}/{RECIPES[info.name].slug}.zip"


def fetch(url: str) -> bytes:
    """The body at ``url``, whole and of bounded size and time, or
    :class:`DatasetUnavailableError`.
    """
    request = urllib.request.Request(url, headers={"User-Agent": "encryptedstats"})
    deadline = time.monotonic() + TOTAL_SECONDS
    body = bytearray()
    try:
        with urllib.request.urlopen(request, timeout=STALL_SECONDS) as response:
            announced = response.headers.get("Content-Length")
            while block := response.read1(2**16):
                body += block
                if len(body) > MAX_ARCHIVE_BYTES:
                    raise _undownloadable(url, f"more than the {MAX_ARCHIVE_BYTES} bytes allowed")
                if time.monotonic() > deadline:
                    raise _undownloadable(url, f"not complete after {TOTAL_SECONDS:g} s")
    except DatasetUnavailableError:
        raise
    except urllib.error.HTTPError as error:
        error.close()
        raise _undownloadable(url, f"the server answered {error.code} {error.reason}") from error
    except (OSError, http.client.HTTPException) as error:
        cause = error.reason if isinstance(error, urllib.error.URLError) else error
        why = (
            f"no answer for {STALL_SECONDS:g} s"
            if isinstance(cause, TimeoutError)
            else f"{cause!r}"
        )
        raise _undownloadable(url, f"{why}, after {len(body)} bytes") from error
    # read1 takes an early end of the connection for the end of the body.
    if announced is not None and announced.isdigit() and len(body) != int(announced):
        raise _undownloadable(url, f"the connection broke after {len(body)} of {announced} bytes")
    return bytes(body)


def _folders(data_home: str | os.PathLike[str] | None) -> list[Path]:
    chosen = data_home if data_home is not None else os.environ.get("ENCRYPTEDSTATS_DATA")
    return ([Path(chosen).expanduser()] if chosen else []) + [cache_folder()]


def _verified(info: DatasetInfo, path: Path) -> bytes:
    """The CSV in ``path``, if either the packed file or the CSV has the checksum of the index."""
    with path.open("rb") as stream:
        packed = stream.read(MAX_ARCHIVE_BYTES + 1)
    csv = _unpacked(packed)
    found = _sha256(csv) if csv is not None else "no CSV that unpacks"
    if csv is None or (_sha256(packed) != info.sha256 and found != info.csv_sha256):
        raise FileFormatError(
            f"data set {info.name!r}: {path} is not the file of the index. Expected SHA-256 "
            f"{info.sha256}, "
            f"or {info.csv_sha256} of the CSV in it; found {_sha256(packed)} and {found}. "
            f"Delete or replace it."
        )
    return csv


def _unpacked(packed: bytes) -> bytes | None:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(packed)) as stream:
            csv = stream.read(MAX_CSV_BYTES + 1)
    except (OSError, EOFError, zlib.error):
        return None
    return csv if len(csv) <= MAX_CSV_BYTES else None


def _store(path: Path, content: bytes) -> None:
    """Write a file whole or not at all: ``path`` never names a part of it, even after a crash."""
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            partial.write_bytes(content)
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise DatasetUnavailableError(
            f"cannot store {path} ({error.strerror}). Set ENCRYPTEDSTATS_CACHE to a folder you "
            "can write to."
        ) from error


def _undownloadable(url: str, why: str) -> DatasetUnavailableError:
    return DatasetUnavailableError(
        f"cannot download {url}: {why}. Try again later, or set ENCRYPTEDSTATS_DATA to a folder "
        "that holds the data sets."
    )


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
