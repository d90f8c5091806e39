"""``key make``: two files in the right hands, never half a pair, never an old key overwritten by
accident.
"""

from __future__ import annotations

import json
import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest
from cli_helpers import Run, cause_of, done, private_file, the_error

import encryptedstats as es
from encryptedstats.cli._keys import first_line
from error_codes import error

SMALL = ("depth=1", "max_value=1000")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_pair_is_made_and_works(run: Run, tmp_path: Path) -> None:
    secret, public = tmp_path / "s.key", tmp_path / "p.keys"
    result = run("key", "make", secret, public, *SMALL)
    assert result.exit_code == 0, result.output
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    owner, keys = es.Owner.load(secret), es.PublicKeys.load(public)
    assert owner.open(keys.encrypt(6) * keys.encrypt(7)) == 42
    assert names(tmp_path) == ["p.keys", "s.key"]
    for words in (
        owner.key_id,
        owner.fingerprint,
        "0600",
        "no passphrase",
        "give away",
        "bits of modulus",
        "BGV",
    ):
        assert words in result.stdout


def test_json(run: Run, tmp_path: Path) -> None:
    result = run(
        "key",
        "make",
        tmp_path / "s",
        tmp_path / "p",
        *SMALL,
        "scheme=bfv",
        "terms=8",
        "--json",
    )
    facts = json.loads(result.stdout)
    assert facts["key_id"] == es.PublicKeys.load(tmp_path / "p").key_id
    assert facts["secret"] == {
        "file": str(tmp_path / "s"),
        "bytes": (tmp_path / "s").stat().st_size,
        "locked": False,
    }
    assert facts["parameters"]["scheme"] == "bfv"
    assert facts["parameters"]["terms"] == 8
    assert facts["parameters"]["security"] >= 128


@pytest.mark.parametrize("existing", ["s", "p"])
def test_nothing_is_overwritten_without_force(run: Run, tmp_path: Path, existing: str) -> None:
    (tmp_path / existing).write_bytes(b"precious")
    error = the_error(run("key", "make", tmp_path / "s", tmp_path / "p", *SMALL))
    assert "exists already and was not touched" in error
    assert "--force" in error
    assert names(tmp_path) == [existing]
    assert (tmp_path / existing).read_bytes() == b"precious"


def test_force_replaces_both(run: Run, tmp_path: Path) -> None:
    for name in "sp":
        (tmp_path / name).write_bytes(b"old")
    assert run("key", "make", tmp_path / "s", tmp_path / "p", *SMALL, "--force").exit_code == 0
    assert es.Owner.load(tmp_path / "s").key_id == es.PublicKeys.load(tmp_path / "p").key_id
    assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o600
    assert names(tmp_path) == ["p", "s"]


@pytest.mark.parametrize("existing", [False, True])
@pytest.mark.parametrize("moment", ["writing the secret", "writing the public", "placing"])
def test_a_failure_leaves_what_was_there(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str, existing: bool
) -> None:
    if existing:
        for name in "sp":
            (tmp_path / name).write_bytes(b"old " + name.encode())

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device", "p")

    if moment == "writing the secret":
        monkeypatch.setattr(es.Owner, "save", fail)
    elif moment == "writing the public":
        monkeypatch.setattr(es.PublicKeys, "save", fail)
    else:
        replace = os.replace
        monkeypatch.setattr(
            os,
            "replace",
            lambda a, b: fail() if ".new" in str(a) and Path(b).name == "p" else replace(a, b),
        )
    error = the_error(run("key", "make", tmp_path / "s", tmp_path / "p", *SMALL, "--force"))
    name = {
        "writing the secret": tmp_path / "s",
        "writing the public": tmp_path / "p",
        "placing": "p",
    }[moment]
    assert error == f"error: {name}: no space left on device; free some space, or write elsewhere"
    assert names(tmp_path) == (["p", "s"] if existing else [])
    for path in tmp_path.iterdir():
        assert path.read_bytes() == b"old " + path.name.encode()


def test_a_passphrase_is_asked_twice_until_it_agrees(run: Run, tmp_path: Path) -> None:
    result = run(
        "key",
        "make",
        tmp_path / "s",
        tmp_path / "p",
        *SMALL,
        "--passphrase",
        input="one\nother\nwords\nwords\n",
    )
    assert result.exit_code == 0, result.output
    assert "locked by your passphrase" in result.stdout
    assert "words" not in result.output
    with pytest.raises(es.PassphraseError, check=error("no-passphrase")):
        es.Owner.load(tmp_path / "s")
    assert (
        es.Owner.load(tmp_path / "s", "words").key_id == es.PublicKeys.load(tmp_path / "p").key_id
    )


def test_a_passphrase_from_a_file(run: Run, tmp_path: Path) -> None:
    private_file(tmp_path / "words", "späte Wörter\nsecond line\n".encode())
    options = ("--passphrase-file", tmp_path / "words", "--json")
    facts = json.loads(run("key", "make", tmp_path / "s", tmp_path / "p", *SMALL, *options).stdout)
    assert facts["secret"]["locked"] is True
    assert es.Owner.load(tmp_path / "s", "späte Wörter").key_id == facts["key_id"]


def test_a_passphrase_file_that_is_empty_or_missing(run: Run, tmp_path: Path) -> None:
    private_file(tmp_path / "words", b"\nsecond line\n")
    pair = (tmp_path / "s", tmp_path / "p")
    assert "first line" in the_error(
        run("key", "make", *pair, *SMALL, "--passphrase-file", tmp_path / "words")
    )
    assert "check the path" in the_error(
        run("key", "make", *pair, *SMALL, "--passphrase-file", tmp_path / "none")
    )
    (tmp_path / "words").write_bytes(b"caf\xe9\n")
    error = the_error(run("key", "make", *pair, *SMALL, "--passphrase-file", tmp_path / "words"))
    assert "no UTF-8 text" in error
    assert "e9" not in error.replace(str(tmp_path), "")
    assert names(tmp_path) == ["words"]


@pytest.mark.skipif(os.name != "posix", reason="modes of files are POSIX")
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o620, 0o602, 0o610])
def test_a_passphrase_file_that_others_may_use_is_refused(
    run: Run, tmp_path: Path, mode: int
) -> None:
    words, pair = (
        private_file(tmp_path / "words", b"correct horse\n"),
        (tmp_path / "s", tmp_path / "p"),
    )
    words.chmod(mode)
    result = run("key", "make", *pair, *SMALL, "--passphrase-file", words)
    assert "correct horse" not in the_error(result)
    error = cause_of(result)
    assert isinstance(error, es.PassphraseError)
    assert [cure.action for cure in error.cures] == ["make private"]
    assert names(tmp_path) == ["words"]
    words.chmod(0o600)
    done("key", "make", *pair, *SMALL, "--passphrase-file", words)


def test_a_passphrase_may_come_through_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o644)
    writer = threading.Thread(target=pipe.write_bytes, args=(b"correct horse\n",))
    writer.start()
    assert first_line(pipe) == "correct horse"
    writer.join()


def test_usage_errors(run: Run, tmp_path: Path) -> None:
    pair = (tmp_path / "s", tmp_path / "p")
    both = ("--passphrase", "--passphrase-file", tmp_path / "words")
    for arguments in (
        (tmp_path / "s", tmp_path / "." / "s"),
        (*pair, *both),
        (*pair, "deph=3"),
        (*pair, "depth=deep"),
        (pair[0],),
    ):
        assert run("key", "make", *arguments, *SMALL).exit_code == 2
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("security=100",), "128, 192, 256"),
        (("depth=40",), "depth up to"),
        ((f"max_value={2**70}",), "max_value up to"),
        (("depth=-1",), "at least 0"),
    ],
)
def test_impossible_wishes_say_what_is_possible(
    run: Run, tmp_path: Path, options: Any, words: str
) -> None:
    assert words in the_error(run("key", "make", tmp_path / "s", tmp_path / "p", *options))
    assert names(tmp_path) == []


def test_places_where_no_file_can_be(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "make it first" in the_error(
        run("key", "make", tmp_path / "no" / "s", tmp_path / "p", *SMALL)
    )
    assert "is a folder" in the_error(
        run("key", "make", tmp_path / "s", tmp_path, *SMALL, "--force")
    )
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert "may not write in the folder" in the_error(
        run("key", "make", tmp_path / "s", tmp_path / "p", *SMALL)
    )
