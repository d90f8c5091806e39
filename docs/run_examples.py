"""Run the Python blocks of a page in order, and compare or rewrite what they print.

``python docs/run_examples.py README.md docs/guides/tables.md`` writes what the blocks print now
into the output blocks that follow them: look at the difference before you commit it.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

_BLOCK = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced block: its language, its text and where that lies in the page."""

    language: str
    text: str
    start: int
    end: int


class Example(NamedTuple):
    """A Python block, the line it starts at, and the output block right after it, if
    there is one.
    """

    line: int
    code: str
    output: Block | None


def find_blocks(page: str) -> list[Block]:
    return [
        Block(match[1], match[2], match.start(2), match.end(2)) for match in _BLOCK.finditer(page)
    ]


def find_examples(page: str) -> list[Example]:
    return [
        Example(
            page[: block.start].count("\n") + 1,
            block.text,
            following if following.language == "output" else None,
        )
        for block, following in pairwise([*find_blocks(page), Block("", "", 0, 0)])
        if block.language == "python"
    ]


def run_examples(page: str, name: str) -> Iterator[tuple[Example, str]]:
    """Run the examples of a page in one namespace, and yield each with what it prints.

    Lines in tracebacks are those of the page.
    """
    namespace: dict[str, object] = {"__name__": "__main__"}
    for example in find_examples(page):
        program = compile("\n" * (example.line - 1) + example.code, name, "exec")
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(program, namespace)
        yield example, strip_lines(printed.getvalue())


def strip_lines(text: str) -> str:
    """Remove the blanks at the ends of lines, which pandas prints and editors remove."""
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def rewrite_outputs(path: Path) -> None:
    page = path.read_text(encoding="utf-8")
    outputs = [
        (example.output, printed)
        for example, printed in run_examples(page, path.name)
        if example.output is not None
    ]
    for block, printed in reversed(outputs):
        page = page[: block.start] + printed + page[block.end :]
    path.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", nargs="+", type=lambda name: Path(name).resolve())
    for chosen in parser.parse_args().pages:
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            rewrite_outputs(chosen)
            os.chdir("/")
