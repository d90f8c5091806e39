"""UCI's raw archives, from a server of our own, give the same frames; and all that can go wrong
there.
"""

from __future__ import annotations

import hashlib
import io
import re
import zipfile
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from raw_archives import ARCHIVES, UCI_SHA256, zipped

from encryptedstats.errors import FileFormatError
from reproduction import datasets
from reproduction.datasets import DatasetUnavailableError, _files, _recipes

HABER = "/static/public/43/haberman+s+survival.zip"


def test_every_set_has_a_recipe_whose_layout_holds_each_column_once() -> None:
    assert list(_recipes.RECIPES) == datasets.names()
    for name, recipe in _recipes.RECIPES.items():
        facts = datasets.info(name)
        fields = [field for field in _recipes._fields(recipe, facts) if field != "-"]
        assert sorted(fields) == sorted((*facts.columns, "target"))
        assert not set(recipe.positive) & set(recipe.negative)


@pytest.mark.parametrize("name", ARCHIVES)
def test_round_trip(name: str, data_folder: Path, uci, cache: Path) -> None:
    page, build = ARCHIVES[name]
    uci.pages[f"/static/public/{page}.zip"] = build(data_folder, name)
    local = datasets.load(name, data_home=data_folder, complete=False, download=False)
    fetched = datasets.load(name, complete=False)
    assert fetched.table_frame().equals(local.table_frame())
    assert [path.name for path in cache.iterdir()] == [f"{name}.csv.gz"]
    again = datasets.load(name, complete=False, download=False)  # from the cache
    assert again.table_frame().equals(local.table_frame())
    assert uci.asked == [f"/static/public/{page}.zip"]


@pytest.mark.parametrize(("name", "member"), UCI_SHA256)
def test_the_rebuilt_raw_files_are_ucis_to_the_byte(
    name: str, member: str, data_folder: Path
) -> None:
    # So the round trips above, for these sets, read what UCI serves and not only what we take it to
    # be.
    content = ARCHIVES[name][1](data_folder, name)
    outer, _, inner = member.partition(".zip/")
    for part in (f"{outer}.zip", inner) if inner else (member,):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            content = archive.read(part)
    assert hashlib.sha256(content).hexdigest() == UCI_SHA256[name, member]


def test_a_local_file_is_preferred(data_folder: Path, uci, cache: Path) -> None:
    datasets.load("haber", data_home=data_folder)
    assert uci.asked == []
    assert not cache.exists()


def _haber(data_folder: Path) -> bytes:
    return ARCHIVES["haber"][1](data_folder, "haber")


def _refused(error: type[Exception], match: str, cache: Path, name: str = "haber") -> str:
    """Loading raises, by this message, and leaves no file, whole or partial."""
    with pytest.raises(error, match=match) as caught:
        datasets.load(name)
    assert not cache.exists() or not list(cache.iterdir())
    return str(caught.value)


def test_a_changed_value_is_refused_with_both_checksums(
    data_folder: Path, uci, cache: Path
) -> None:
    with zipfile.ZipFile(io.BytesIO(_haber(data_folder))) as archive:
        raw = archive.read("haberman.data")
    uci.pages[HABER] = zipped({"haberman.data": raw.replace(b"30,64,1,1", b"31,64,1,1", 1)})
    expected = datasets.info("haber").csv_sha256
    message = _refused(
        FileFormatError,
        rf"'haber': .*{re.escape(HABER)} does not hold .*{expected}.*found [0-9a-f]{{64}}",
        cache,
    )
    assert "set ENCRYPTEDSTATS_DATA" in message


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"30,64,1\n", "haberman.data, line 1: 3 fields, not 4"),
        (b"30,64,1,1\n\n30,64,1,7\n", "haberman.data, line 3: class '7', not one of 2, 1"),
        (b"\xff\xfe", "haberman.data is not utf-8 text"),
        (b"7" * 200_000, "haberman.data, line 1: 1 fields, not 4"),
    ],
)
def test_rows_that_do_not_fit_the_recipe_are_named(
    raw: bytes, message: str, uci, cache: Path
) -> None:
    uci.pages[HABER] = zipped({"haberman.data": raw})
    _refused(FileFormatError, message, cache)


def test_an_archive_without_the_file_says_what_it_has(uci, cache: Path) -> None:
    uci.pages[HABER] = zipped({"Index": b"", "data/haberman.csv": b""})
    _refused(
        FileFormatError, r"no file haberman\.data in it \(it has Index, haberman\.csv\)", cache
    )


def test_a_corrupted_archive(data_folder: Path, uci, cache: Path) -> None:
    archive = bytearray(_haber(data_folder))
    start = archive.index(b"haberman.data") + len("haberman.data")
    archive[start + 40] ^= 0xFF
    uci.pages[HABER] = bytes(archive)
    _refused(FileFormatError, "not a readable zip archive", cache)


def test_a_page_that_is_no_archive(uci, cache: Path) -> None:
    uci.pages[HABER] = b"<html>We have moved</html>"
    _refused(FileFormatError, "haberman.s.survival.zip .*not a readable zip archive", cache)


def test_a_cut_archive(data_folder: Path, uci, cache: Path) -> None:
    uci.pages[HABER] = _haber(data_folder)[:-200]
    _refused(FileFormatError, "not a readable zip archive", cache)


def test_a_broken_connection(data_folder: Path, uci, cache: Path) -> None:
    archive = _haber(data_folder)

    def cut(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Length", str(len(archive)))
        request.end_headers()
        request.wfile.write(archive[:100])

    uci.pages[HABER] = cut
    _refused(
        DatasetUnavailableError, f"{re.escape(HABER)}: .*100.*{len(archive)}|after 100 bytes", cache
    )


def test_not_found(uci, cache: Path) -> None:
    message = _refused(DatasetUnavailableError, "the server answered 404 Not Found", cache)
    assert HABER in message
    assert "set ENCRYPTEDSTATS_DATA" in message


def test_no_server(cache: Path) -> None:
    _refused(
        DatasetUnavailableError,
        r"cannot download http://127\.0\.0\.1:9/43/haberman.*refused",
        cache,
    )


def test_a_silent_server(uci, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_files, "STALL_SECONDS", 0.2)
    uci.pages[HABER] = lambda request: uci.release.wait(20)
    _refused(DatasetUnavailableError, r"no answer for 0\.2 s", cache)


def _endless(uci, pause: float):
    def drip(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.end_headers()
        try:
            while not uci.release.wait(pause):
                request.wfile.write(bytes(1000))
        except OSError:  # the client has had enough
            pass

    return drip


def test_a_stalled_body(
    data_folder: Path, uci, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_files, "STALL_SECONDS", 0.2)
    uci.pages[HABER] = _endless(uci, pause=20)
    _refused(DatasetUnavailableError, r"no answer for 0\.2 s", cache)


def test_a_dripping_server(uci, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_files, "TOTAL_SECONDS", 0.2)
    uci.pages[HABER] = _endless(uci, pause=0.01)
    _refused(DatasetUnavailableError, r"not complete after 0\.2 s", cache)


def test_too_large_a_body(uci, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_files, "MAX_ARCHIVE_BYTES", 5000)
    uci.pages[HABER] = _endless(uci, pause=0.001)
    _refused(DatasetUnavailableError, "more than the 5000 bytes allowed", cache)


def test_a_zip_bomb(uci, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_recipes, "MAX_MEMBER_BYTES", 10**6)
    uci.pages[HABER] = zipped({"haberman.data": bytes(10**6 + 1)})
    _refused(FileFormatError, "haberman.data unpacks to more than 1000000 bytes", cache)


@pytest.mark.parametrize(
    ("name", "page", "member"), [("musk1", 74, "clean1"), ("musk2", 75, "clean2")]
)
def test_unix_compress_cannot_be_unpacked(
    name: str, page: int, member: str, uci, cache: Path
) -> None:
    uci.pages[f"/static/public/{page}/musk+version+{name[-1]}.zip"] = zipped(
        {f"{member}.data.Z": b"\x1f\x9d"}
    )
    message = _refused(
        DatasetUnavailableError, f"UCI packs {member}.data by Unix compress", cache, name
    )
    assert f"Put {name}.csv.gz into a folder and set ENCRYPTEDSTATS_DATA to it." in message


def test_a_mirror_must_be_http(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENCRYPTEDSTATS_UCI", "file:///etc")
    _refused(
        DatasetUnavailableError, "ENCRYPTEDSTATS_UCI is 'file:///etc'; it must be an http", cache
    )


def test_a_cache_that_cannot_be_written(
    data_folder: Path, uci, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("ENCRYPTEDSTATS_CACHE", str(tmp_path / "file"))
    uci.pages[HABER] = _haber(data_folder)
    with pytest.raises(DatasetUnavailableError, match=r"cannot store .*Set ENCRYPTEDSTATS_CACHE"):
        datasets.load("haber")


def test_a_crash_while_storing_leaves_nothing(
    data_folder: Path, uci, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_files.os, "replace", crash)
    uci.pages[HABER] = _haber(data_folder)
    _refused(DatasetUnavailableError, "No space left on device", cache)
