"""The file format: what is written comes back, and nothing else is ever taken for a file."""

from __future__ import annotations

import hashlib
import json
import os
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from encryptedstats.errors import FileFormatError
from encryptedstats.storage import container, files
from encryptedstats.storage.container import Container
from error_codes import error

MANY = settings(max_examples=150, deadline=None)

NAMES = st.text(min_size=1, max_size=12)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
SHOWN = st.text("abc xyz-0123äé", max_size=12)
CONTAINERS = st.builds(
    Container,
    kind=SHOWN,
    fingerprint=SHOWN,
    key_id=SHOWN,
    fields=st.dictionaries(NAMES, JSON, max_size=4),
    sections=st.dictionaries(NAMES, st.binary(max_size=40), max_size=4),
)
SMALL = Container(
    "a kind", "finger", "key", {"shape": [1, 2]}, {"first": b"one", "second": b"two!", "none": b""}
)


def sealed(
    header: Any,
    body: bytes = b"",
    *,
    version: int = container.VERSION,
    magic: bytes = container.MAGIC,
) -> bytes:
    """A file with any header, and the hash that fits."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    data = struct.pack("<8sHI", magic, version, len(text)) + text + body
    return data + hashlib.sha256(data).digest()


def header(**changes: Any) -> dict[str, Any]:
    return {
        "kind": "k",
        "fingerprint": "f",
        "key_id": "i",
        "fields": {},
        "sections": [["a", 3]],
        **changes,
    }


# -- what is written comes back
# -------------------------------------------------------------------------------------------


@MANY
@given(written=CONTAINERS)
def test_what_is_written_comes_back(written: Container) -> None:
    assert container.from_bytes(container.to_bytes(written)) == written


def test_files_are_what_to_bytes_says(tmp_path: Path) -> None:
    path = tmp_path / "file"
    container.write(SMALL, path)
    assert path.read_bytes() == container.to_bytes(SMALL)
    assert container.read(path) == SMALL
    assert container.read(path, kind="a kind") == SMALL


def test_the_layout_is_the_documented_one() -> None:
    data = container.to_bytes(SMALL)
    magic, version, length = struct.unpack_from("<8sHI", data)
    assert (magic, version) == (b"\x89EncStat", 2)
    assert json.loads(data[14 : 14 + length])["sections"] == [
        ["first", 3],
        ["second", 4],
        ["none", 0],
    ]
    assert data[14 + length : -32] == b"onetwo!"
    assert data[-32:] == hashlib.sha256(data[:-32]).digest()


def test_nothing_is_written_that_could_not_be_read() -> None:
    with pytest.raises(ValueError, match="JSON"):
        container.to_bytes(Container("k", "f", "i", {"x": float("nan")}))
    with pytest.raises(TypeError):
        container.to_bytes(Container("k", "f", "i", {"x": b"bytes"}))
    with pytest.raises(
        FileFormatError, check=error("header-too-large", container.MAX_HEADER_BYTES)
    ):
        container.to_bytes(Container("k", "f", "i", {"x": "y" * container.MAX_HEADER_BYTES}))
    with pytest.raises(FileFormatError, check=error("too-many-sections", container.MAX_SECTIONS)):
        container.to_bytes(
            Container("k", "f", "i", {}, {str(i): b"" for i in range(container.MAX_SECTIONS + 1)})
        )


def test_fields_and_sections_that_have_to_be_there() -> None:
    assert SMALL.section("second") == b"two!"
    assert SMALL.expect("shape", list) == [1, 2]
    with pytest.raises(FileFormatError, check=error("missing-section", "'third'")):
        SMALL.section("third")
    with pytest.raises(FileFormatError, check=error("malformed-field", "'shape'")):
        SMALL.expect("shape", dict)
    with pytest.raises(FileFormatError, check=error("malformed-field", "'size'")):
        SMALL.expect("size", int)
    with pytest.raises(FileFormatError, check=error("malformed-field")):
        Container("k", "f", "i", {"flag": True}).expect("flag", int)


# -- accidents
# ------------------------------------------------------------------------------------------------


def test_every_single_flipped_bit_is_found() -> None:
    data = container.to_bytes(SMALL)
    for position in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[position] ^= 1 << bit
            with pytest.raises(FileFormatError):
                container.from_bytes(bytes(damaged))


def test_every_cut_is_found() -> None:
    data = container.to_bytes(SMALL)
    for length in range(len(data)):
        for part in (data[:length], data[len(data) - length :]):
            with pytest.raises(FileFormatError):
                container.from_bytes(part)


@MANY
@given(
    position=st.integers(0, len(container.to_bytes(SMALL))),
    extra=st.binary(min_size=1, max_size=60),
)
def test_every_insertion_is_found(position: int, extra: bytes) -> None:
    data = container.to_bytes(SMALL)
    with pytest.raises(FileFormatError):
        container.from_bytes(data[:position] + extra + data[position:])


@MANY
@given(data=st.binary(max_size=200))
@example(b"")
@example(container.MAGIC)
@example(container.MAGIC + bytes(6))
@example(container.MAGIC + b"\x01\x00\xff\xff\xff\xff" + bytes(100))
def test_noise_is_no_file(data: bytes) -> None:
    for candidate in (data, container.MAGIC + data, container.MAGIC + b"\x01\x00" + data):
        with pytest.raises(FileFormatError):
            container.from_bytes(candidate)


def test_messages_name_the_file_and_say_what_is_wrong(tmp_path: Path) -> None:
    path, data = tmp_path / "some.file", container.to_bytes(SMALL)
    damage = {
        "foreign-file": b"PK" + data,
        "unsupported-version": sealed(header(), b"abc", version=3),
        "outdated-version": sealed(header(), b"abc", version=1),
        "impossible-version": sealed(header(), b"abc", version=0),
        "truncated-header": data[:40],
        "truncated-file": data[:-1],
        "altered-file": data[:-1] + bytes([data[-1] ^ 1]),
        "header-not-json": sealed(b"{"),
    }
    for message, content in damage.items():
        path.write_bytes(content)
        with pytest.raises(FileFormatError, check=error(message)):
            container.read(path)
    path.write_bytes(data)
    with pytest.raises(FileFormatError, check=error("wrong-kind", "'another'")):
        container.read(path, kind="another")


# -- forgeries: the hash fits, and what is inside must still be refused
# ---------------------------------------------------------

FORGED: dict[str, bytes] = {
    "no object": sealed([1, 2], b"abc"),
    "a number": sealed(b"7", b"abc"),
    "null": sealed(b"null", b"abc"),
    "empty": sealed(b"", b"abc"),
    "no UTF-8": sealed(b"\xff\xfe\xfa", b"abc"),
    "a field too few": sealed({k: v for k, v in header().items() if k != "key_id"}, b"abc"),
    "a field too many": sealed(header(extra=1), b"abc"),
    "kind no text": sealed(header(kind=7), b"abc"),
    "fingerprint no text": sealed(header(fingerprint=None), b"abc"),
    "key id a list": sealed(header(key_id=["i"]), b"abc"),
    "fields a list": sealed(header(fields=[]), b"abc"),
    "sections an object": sealed(header(sections={"a": 3}), b"abc"),
    "NaN": sealed(json.dumps(header(fields={"x": float("nan")})).encode(), b"abc"),
    "infinity": sealed(json.dumps(header(fields={"x": float("-inf")})).encode(), b"abc"),
    "deep nesting": sealed(json.dumps(header()).replace("{}", "[" * 200_000).encode(), b"abc"),
    "deep and closed": sealed(json.dumps(header(fields=7)).replace("7", '{"x":' + "[" * 9000 + "]" * 9000 + "}").encode()),
    "endless digits": sealed(json.dumps(header(fields=7)).replace("7", '{"x":' + "9" * 900_000 + "}").encode(), b"abc"),
    "negative length": sealed(header(sections=[["a", -1], ["b", 4]]), b"abc"),
    "length too small": sealed(header(sections=[["a", 2]]), b"abc"),
    "length too large": sealed(header(sections=[["a", 4]]), b"abc"),
    "length huge": sealed(header(sections=[["a", 2**80]]), b"abc"),
    "lengths that cancel": sealed(header(sections=[["a", 2**64], ["b", 3 - 2**64]]), b"abc"),
    "length a float": sealed(header(sections=[["a", 3.0]]), b"abc"),
    "length a truth value": sealed(header(sections=[["a", True], ["b", 2]]), b"abc"),
    "length text": sealed(header(sections=[["a", "3"]]), b"abc"),
    "name no text": sealed(header(sections=[[1, 3]]), b"abc"),
    "name twice": sealed(header(sections=[["a", 1], ["a", 2]]), b"abc"),
    "name and length twice": sealed(header(sections=[["a", 3], ["a", 3]]), b"abc"),
    "a section of three": sealed(header(sections=[["a", 3, 0]]), b"abc"),
    "a section that is none": sealed(header(sections=[None]), b"abc"),
    "no section for the bytes": sealed(header(sections=[]), b"abc"),
    "too many sections": sealed(header(sections=[[str(i), 0] for i in range(container.MAX_SECTIONS + 1)])),
    "a header beyond the limit": sealed(b" " * container.MAX_HEADER_BYTES + json.dumps(header()).encode(), b"abc"),
    "another magic": sealed(header(), b"abc", magic=b"\x89EncStaT"),
    "no hash": sealed(header(), b"abc")[:-32],
}  # fmt: skip


def test_the_forger_itself_makes_good_files() -> None:
    """Otherwise every forgery below would be refused for the wrong reason."""
    assert container.from_bytes(sealed(header(), b"abc")) == Container(
        "k", "f", "i", {}, {"a": b"abc"}
    )
    deep = sealed(json.dumps(header(fields=7)).replace("7", '{"x":[[]]}').encode(), b"abc")
    assert container.from_bytes(deep).fields == {"x": [[]]}


@pytest.mark.parametrize("what", FORGED)
def test_a_forged_header_is_refused(what: str) -> None:
    start = time.process_time()
    with pytest.raises(FileFormatError):
        container.from_bytes(FORGED[what])
    assert time.process_time() - start < 5


@MANY
@given(key=st.sampled_from(["kind", "fingerprint", "key_id", "fields", "sections"]), value=JSON)
def test_any_value_in_any_field_is_read_as_written_or_refused(key: str, value: Any) -> None:
    try:
        read = container.from_bytes(sealed(header(**{key: value}), b"abc"))
    except FileFormatError:
        return
    if key == "sections":
        assert {name: len(data) for name, data in read.sections.items()} == dict(value)
    else:
        assert getattr(read, key) == value


_READ_HUGE = """
import resource, sys
from encryptedstats.errors import FileFormatError
from encryptedstats.storage import container
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
try:
    container.read(sys.argv[1])
except FileFormatError as error:
    print(error)
"""


def test_a_huge_file_is_refused_without_reading_it(tmp_path: Path) -> None:
    """The header says how long a file is; what is longer need not be read (and would not fit into
    memory).
    """
    path = tmp_path / "huge"
    container.write(SMALL, path)
    os.truncate(path, 8 << 30)
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", _READ_HUGE, path],
        capture_output=True,
        text=True,
        timeout=600,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "truncated or has bytes too many" in done.stdout


# -- writing
# ------------------------------------------------------------------------------------------------


def test_writing_takes_what_it_is_given_part_by_part(tmp_path: Path) -> None:
    files.write_atomic(tmp_path / "file", (bytes([i]) * i for i in range(5)))
    assert (tmp_path / "file").read_bytes() == b"\x01\x02\x02\x03\x03\x03\x04\x04\x04\x04"


def test_parts_that_fail_leave_the_old_file(tmp_path: Path) -> None:
    def failing() -> Any:
        yield b"half"
        raise RuntimeError("no more")

    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(RuntimeError, match="no more"):
        files.write_atomic(path, failing())
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        container.write(SMALL, tmp_path / "nowhere" / "file")
    assert list(tmp_path.iterdir()) == []


def test_overwriting_can_be_forbidden(tmp_path: Path) -> None:
    path = tmp_path / "file"
    files.write_atomic(path, [b"first"], overwrite=False)
    with pytest.raises(FileExistsError, match="file exists already; it was not touched"):
        files.write_atomic(path, [b"second"], overwrite=False)
    assert path.read_bytes() == b"first"
    files.write_atomic(path, [b"third"])
    assert path.read_bytes() == b"third"
