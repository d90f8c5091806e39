"""What the stories of the demo share: panels, and parties that are processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.panel import Panel

import encryptedstats as es
from encryptedstats.cli._console import size_text

WIDTH: Final = 100
TIMEOUT: Final = 600.0


class DemoError(es.EncryptedStatsError):
    """A party of the demo did not do its part."""


def panel(title: str, colour: str, *parts: RenderableType) -> Panel:
    """A part of the story, in the colour of who acts."""
    return Panel(Group(*parts), title=f"[bold]{title}[/]", title_align="left", border_style=colour, padding=(0, 1))


def run_process(who: str, arguments: list[str], **options: Any) -> Any:
    """Run Python with these arguments in a process of its own, and read the JSON that it prints."""
    command = [sys.executable, *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False, **options)
    except subprocess.TimeoutExpired:
        raise DemoError(f"{who} did not finish in {TIMEOUT:.0f} s: is the machine very busy?") from None
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise DemoError(f"{who} failed: {reason}")
    return json.loads(done.stdout)


def run_worker(command: list[str], folder: Path) -> dict[str, Any]:
    """The program itself, as a process in the worker's folder, told nothing but the command."""
    facts: dict[str, Any] = run_process("the worker", ["-m", "encryptedstats.cli", *command, "--json"], cwd=folder)
    return facts


class Clock:
    """Seconds of what happens inside, under a name."""

    def __init__(self, seconds: dict[str, float], name: str) -> None:
        self.seconds, self.name = seconds, name

    def __enter__(self) -> None:
        self.started = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds[self.name] = time.perf_counter() - self.started


def folder_bytes(folder: Path) -> int:
    """The bytes of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def file_size(path: Path) -> str:
    """The size of a file, for people."""
    return size_text(path.stat().st_size)
