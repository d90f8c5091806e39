"""Open the secret key of a command, and ask for its passphrase."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import typer

import encryptedstats as es
from encryptedstats.cli._console import progress
from encryptedstats.cli._inputs import expect
from encryptedstats.crypto.keyfiles import OWNER_KIND
from encryptedstats.errors import Cure
from encryptedstats.storage import container
from encryptedstats.storage.objects import load_file


def load_owner(
    key: Path | None, passphrase_file: Path | None, opens: str | Path | None = None
) -> es.Owner:
    """Load a secret key; a locked one by the passphrase of a file, or of a person at a terminal.

    A key that does not open the file ``opens`` is refused before anybody is asked.
    """
    if key is None:
        raise es.ArgumentError(
            "the secret key is needed: --key secret.key, the file that key make wrote first",
            code="no-secret-key",
        )
    expect(key, (OWNER_KIND,), "your secret key", "give the file that key make wrote first")
    content = container.read(key, kind=OWNER_KIND)
    if opens is not None and (wanted := load_file(opens).key_id) != content.key_id:
        raise es.KeyMismatchError(
            f"{opens} belongs to key {wanted}, and {key} is the secret key {content.key_id}: only "
            f"the secret key {wanted} opens "
            "it, give that one with --key",
            code="other-key",
        )
    locked = bool(content.fields.get("lock"))
    words = first_line(passphrase_file) if passphrase_file is not None else None
    if locked and words is None:
        words = _ask_passphrase(key)
    try:
        with progress("opening the key"):  # only now: a spinner would turn over the question
            return es.Owner.load(key, words)
    except es.PassphraseError as error:
        raise es.PassphraseError(f"{key}: {error}") from error


def _ask_passphrase(key: Path) -> str:
    if not _can_ask():
        raise es.PassphraseError(
            f"{key} is locked by a passphrase, and this is no terminal to ask for it: give "
            "--passphrase-file, whose first line is the passphrase",
            code="no-passphrase",
        )
    words: str = typer.prompt(f"Passphrase of {key}", hide_input=True, err=True)
    return words


def _can_ask() -> bool:
    return sys.stdin.isatty()


def first_line(file: Path, *, private: bool = True) -> str:
    """Return the first line of a file, such as its passphrase.

    Raises
    ------
    PassphraseError
        If it is ``private`` and other users have a permission on the file.
    """
    if private:
        _check_private(file)
    try:
        line = file.read_bytes().partition(b"\n")[0].decode().removesuffix("\r")
    except UnicodeDecodeError:  # whose message would show a byte of the passphrase
        raise es.PassphraseError(
            f"the first line of {file} is no UTF-8 text: write the passphrase there",
            code="not-text",
        ) from None
    if not line:
        raise es.PassphraseError(
            f"the first line of {file} is empty: write the passphrase there",
            code="empty-passphrase",
        )
    return line


def _check_private(file: Path) -> None:
    """Refuse a passphrase file that other users may read or change, as ssh does; allow pipes."""
    found = file.stat()
    is_lax = stat.S_ISREG(found.st_mode) and found.st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    if os.name == "posix" and is_lax:
        raise es.PassphraseError(
            f"{file} holds a passphrase, and its mode {stat.S_IMODE(found.st_mode):04o} lets other "
            "users read or change it: ",
            Cure("make private", f"chmod 600 {file}", {"file": str(file)}),
            ", and choose another passphrase if others use this machine",
            code="unsafe-file-mode",
        )
