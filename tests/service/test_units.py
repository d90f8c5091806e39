"""The units of packaging/service, as systemd reads them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import encryptedstats.cli._app  # noqa: F401  it lists the commands
from encryptedstats.cli._help import load

PROGRAM = "/opt/encryptedstats/bin/encryptedstats"
FOLDER = Path(__file__).parents[2] / "packaging/service"
UNITS = [(path.read_text(), path.name) for path in sorted(FOLDER.glob("*.service"))]


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"
)
def test_systemd_understands_them(tmp_path: Path) -> None:
    assert [name for _, name in UNITS] == [
        "encryptedstats-worker@.service",
        "encryptedstats.service",
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
        timeout=600,
    )
    ours = [line for line in said.stderr.splitlines() if "encryptedstats" in line]
    assert (said.returncode, ours) == (0, [])


@pytest.mark.parametrize("text", [text for text, _ in UNITS])
def test_their_commands_have_these_options(text: str) -> None:
    (line,) = re.findall(rf"^ExecStart={PROGRAM} (.*)$", text, re.MULTILINE)
    group, name, *words = line.split()
    known = {option for parameter in load(f"{group} {name}").params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known
