"""``info``: says what a file is and whether a secret is in it; broken and foreign files are one
line.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from cli_helpers import Run, the_error

import encryptedstats as es
from encryptedstats.storage import container

KINDS = {
    "secret.key": "secret key",
    "locked.key": "secret key",
    "public.keys": "public keys",
    "rotations.keys": "public keys",
    "array.enc": "encrypted array",
    "integer.enc": "encrypted array",
}


@pytest.mark.parametrize("name", KINDS)
def test_facts_of_every_kind(run: Run, files: Path, owner: es.Owner, name: str) -> None:
    facts = json.loads(run("data", "info", files / name, "--json").stdout)
    assert facts["kind"] == KINDS[name]
    assert facts["key_id"] == owner.key_id
    assert facts["holds_secret_key"] is name.endswith(".key")
    assert facts["insecure"] is False
    assert facts["bytes"] == (files / name).stat().st_size > sum(facts["sections"].values())
    given = {field: facts["parameters"][field] for field in owner.parameters.to_dict()}
    assert es.Parameters.from_dict(given) == owner.parameters
    assert facts["parameters"]["security"] == owner.parameters.security


def test_what_belongs_to_one_kind(run: Run, files: Path) -> None:
    facts = {name: json.loads(run("data", "info", files / name, "--json").stdout) for name in KINDS}
    assert [facts[name]["locked"] for name in ("secret.key", "locked.key")] == [False, True]
    assert [facts[name]["shape"] for name in ("array.enc", "integer.enc")] == [[2, 3], []]
    assert [facts[name]["rotations"] for name in ("public.keys", "rotations.keys")] == [[], [0, 3]]


def test_a_secret_key_is_shouted_about_and_not_shown(run: Run, files: Path) -> None:
    for name, lock in (
        ("secret.key", "No passphrase locks it"),
        ("locked.key", "It is locked by a passphrase"),
    ):
        result = run("data", "info", files / name)
        assert "SECRET KEY" in result.stdout
        assert "Never give it away" in result.stdout
        assert lock in result.stdout
        assert "may read it" not in result.stdout
        secret = container.read(files / name).section("secret_key")
        for view in (result.stdout_bytes, run("data", "info", files / name, "--json").stdout_bytes):
            assert not any(
                secret[i : i + 8] in view
                for i in range(200, len(secret) - 8, 997)
                if any(secret[i : i + 8])
            )
            assert secret[200:208].hex().encode() not in view


def test_a_secret_key_that_others_may_read(run: Run, files: Path, tmp_path: Path) -> None:
    shutil.copyfile(files / "secret.key", tmp_path / "k")
    (tmp_path / "k").chmod(0o644)
    assert "chmod 600" in run("data", "info", tmp_path / "k").stdout


@pytest.mark.parametrize("name", [name for name in KINDS if not name.endswith(".key")])
def test_public_files_say_that_nothing_in_them_decrypts(
    run: Run, files: Path, owner: es.Owner, name: str
) -> None:
    result = run("data", "info", files / name)
    assert result.exit_code == 0
    assert "nothing in it can decrypt" in result.stdout
    assert owner.key_id in result.stdout
    assert (owner.fingerprint in result.stdout) == name.endswith(".keys")
    assert "SECRET" not in result.stdout


def test_insecure_parameters_are_loud(run: Run, files: Path) -> None:
    result = run("data", "info", files / "weak.keys")
    assert "INSECURE" in result.stdout
    assert result.stderr == ""  # said once, where people look
    assert json.loads(run("data", "info", files / "weak.keys", "--json").stdout)["insecure"] is True


def test_a_secret_in_a_public_file_is_found(run: Run, files: Path, tmp_path: Path) -> None:
    array = container.read(files / "array.enc")
    container.write(replace(array, sections={**array.sections, "secret_key": b"x"}), tmp_path / "a")
    facts = json.loads(run("data", "info", tmp_path / "a", "--json").stdout)
    assert facts["holds_secret_key"] is True
    container.write(replace(array, sections={**array.sections, "more": b"x"}), tmp_path / "b")
    assert (
        json.loads(run("data", "info", tmp_path / "b", "--json").stdout)["holds_secret_key"] is None
    )


def test_a_file_of_a_later_version_is_not_vouched_for(run: Run, tmp_path: Path) -> None:
    container.write(
        container.Container("votes", "", "", {"lock": 3}, {"data": b"1"}), tmp_path / "v"
    )
    result = run("data", "info", tmp_path / "v")
    assert "votes" in result.stdout
    assert "treat it as secret" in result.stdout


def test_nothing_in_a_file_reaches_the_terminal_as_a_command(run: Run, tmp_path: Path) -> None:
    evil = "\x1b]0;owned\x07[red]\n"
    container.write(container.Container(evil, "ab", "cd", {}, {evil: b"1"}), tmp_path / "e")
    output = run("data", "info", tmp_path / "e").stdout
    assert "\x1b" not in output
    assert "\x07" not in output
    assert "\\x1b]0;owned\\x07[red]\\n" in output
    for fingerprint, key_id in ((evil, "cd"), ("ab", evil)):
        container.write(
            container.Container("public keys", fingerprint, key_id, {}, {}), tmp_path / "e"
        )
        assert "states a key id or fingerprint that is none" in the_error(
            run("data", "info", tmp_path / "e")
        )


def broken(files: Path, tmp_path: Path, how: str) -> Path:
    data, path = bytearray((files / "public.keys").read_bytes()), tmp_path / "broken"
    if how == "foreign":
        data = bytearray(b"PK\x03\x04 a zip file, or anything else")
    elif how == "cut":
        del data[5000:]
    elif how == "flipped":
        data[-1000] ^= 1
    elif how == "too new":
        data[8] = 9
    elif how == "empty":
        data.clear()
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("foreign", "is not an encryptedstats file"),
        ("empty", "is not an encryptedstats file"),
        ("cut", "truncated"),
        ("flipped", "SHA-256 does not fit"),
        ("too new", "upgrade"),
    ],
)
def test_broken_files_are_one_line(
    run: Run, files: Path, tmp_path: Path, how: str, words: str
) -> None:
    assert words in the_error(run("data", "info", broken(files, tmp_path, how)))


def test_public_keys_are_checked_beyond_the_hash(run: Run, files: Path, tmp_path: Path) -> None:
    keys = container.read(files / "public.keys")
    container.write(replace(keys, key_id="0" * 16), tmp_path / "forged")
    assert "key id" in the_error(run("data", "info", tmp_path / "forged"))


def test_missing_files_and_folders(run: Run, tmp_path: Path) -> None:
    assert the_error(run("data", "info", tmp_path / "none")).endswith(
        "none: no such file or directory; check the path"
    )
    assert "is a directory without an encrypted table in it" in the_error(
        run("data", "info", tmp_path)
    )
    assert "no ordinary file" in the_error(run("data", "info", "/dev/zero"))


def test_debug_gives_the_exception(run: Run, files: Path, tmp_path: Path) -> None:
    result = run("--debug", "data", "info", broken(files, tmp_path, "cut"))
    assert isinstance(result.exception, es.FileFormatError)
