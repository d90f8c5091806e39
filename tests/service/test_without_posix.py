"""The log and a token's file where the system has not all flags, and no modes: Windows, made here
by taking them away.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from encryptedstats.service import audit
from encryptedstats.workers.connection import find_token


def test_the_log_is_written_without_posix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("O_NOFOLLOW", "O_CLOEXEC", "pread"):
        monkeypatch.delattr(os, name)
    log = audit.Log(tmp_path / "audit.jsonl")
    for number in range(1000):  # more than what is looked at of its end
        log.add("owner", "put object", object=f"{number}")
    assert audit.check(log.path) == 1000
    assert log.path.stat().st_size > audit._TAIL_BYTES


def test_modes_of_a_tokens_file_count_where_there_are_modes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    file.write_text("est_one\n")
    file.chmod(0o666)  # as Windows says of every file
    with pytest.raises(PermissionError, match="chmod 600"):
        find_token(file)
    name = str(file)
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(os, "name", "nt")
        found = find_token(name)
    assert found == "est_one"
