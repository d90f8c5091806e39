"""The command that opens the page: its address, one program for a folder, and a browser that is
opened in private.
"""

from __future__ import annotations

import stat
import webbrowser
from pathlib import Path

import pytest

import encryptedstats as es
from encryptedstats.app import server
from encryptedstats.cli.app import app_ as app
from error_codes import error


def test_it_prints_an_address_and_tells_the_browser_by_a_private_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)

    def serve(*_: object) -> None:
        with pytest.raises(es.BusyError, check=error("already-open")):
            app(folder=tmp_path / "home", files=tmp_path, port=0, browser=False)

    monkeypatch.setattr(server, "serve", serve)
    app(folder=tmp_path / "home", files=tmp_path, port=0, browser=True)
    said = "".join(capsys.readouterr().out.split())
    assert "http://127.0.0.1:" in said
    token = said.partition("token=")[2][:43]
    page = Path(opened[0].removeprefix("file://"))
    assert token not in opened[0]  # which every user of this machine can see
    assert token in page.read_text()
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
