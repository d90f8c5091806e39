"""The units of docs/guides/service.md, as systemd reads them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from encryptedstats.cli._help import load

PAGE = Path(__file__).parents[2] / "docs/guides/service.md"
PROGRAM = "/opt/encryptedstats/bin/encryptedstats"
UNITS = re.findall(r"```ini\n(# /etc/systemd/system/([^,\s]+).*?)```", PAGE.read_text(), re.DOTALL)


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"
)
def test_systemd_understands_them(tmp_path: Path) -> None:
    assert [name for _, name in UNITS] == [
        "encryptedstats.service",
        "encryptedstats-worker@.service",
    ]
    for text, name in UNITS:
        (tmp_path / name).write_text(text.replace(PROGRAM, sys.executable))
    names = [name.replace("@.", "@1.") for _, name in UNITS]
    said = subprocess.run(
        ["systemd-analyze", "verify", *names],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    ours = [line for line in said.stderr.splitlines() if "encryptedstats" in line]
    assert (said.returncode, ours) == (0, [])


@pytest.mark.parametrize("text", [text for text, _ in UNITS])
def test_their_commands_have_these_options(text: str) -> None:
    (line,) = re.findall(rf"^ExecStart={PROGRAM} (.*)$", text, re.MULTILINE)
    group, name, *words = line.split()
    known = {option for parameter in load(f"{group} {name}").params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known
