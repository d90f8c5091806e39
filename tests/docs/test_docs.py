"""The documentation is run: every python block works, prints what is shown, and every public name is described somewhere."""

from __future__ import annotations

import contextlib
import io
import re
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

import encryptedstats as es

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_BLOCK = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(#[^)\s]*)?\)")


class Example(NamedTuple):
    """A python block of a page, the line it starts at, and what an output block right after it says that it prints."""

    line: int
    code: str
    output: str | None


def blocks_of(page: str) -> list[tuple[int, str, str]]:
    """Line of the first line inside, language and content of every fenced block."""
    return [(page[: match.start(2)].count("\n") + 1, match[1], match[2]) for match in _BLOCK.finditer(page)]


def examples_of(page: str) -> list[Example]:
    blocks = [*blocks_of(page), (0, "", "")]
    return [
        Example(line, code, following[2] if following[1] == "output" else None)
        for (line, language, code), following in pairwise(blocks)
        if language == "python"
    ]


def lines_of(text: str) -> list[str]:
    """The lines without the blanks at their ends, which pandas prints and editors remove."""
    return [line.rstrip() for line in text.splitlines()]


def run_page(page: str, name: str) -> None:
    """Run all examples of a page in order, in one namespace; lines in tracebacks are those of the page."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    for example in examples_of(page):
        program = compile("\n" * (example.line - 1) + example.code, name, "exec")
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(program, namespace)
        if example.output is not None:
            assert lines_of(printed.getvalue()) == lines_of(example.output), (
                f"{name}, line {example.line}, prints otherwise"
            )


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_examples_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ENCRYPTEDSTATS_CACHE", str(tmp_path / "cache"))  # plans measure the machine and keep the times
    run_page(path.read_text(encoding="utf-8"), str(path.relative_to(ROOT)))


def test_the_examples_are_there() -> None:
    counted = {path.name: len(examples_of(path.read_text(encoding="utf-8"))) for path in PAGES}
    assert all(counted[name] for name in ("README.md", "api.md", "formats.md", "integers.md", "noise.md"))


@pytest.mark.parametrize(
    ("page", "error"),
    [
        ("```python\nx = 1\n```\ntext\n```python\nassert x == 1\nprint(x)\n```\n\n```output\n1\n```\n", None),
        ("```console\n$ rm -rf x\n```\n\n```text\nnothing\n```\n", None),
        ("```python\nassert False\n```\n", AssertionError),
        ("```python\nprint(1)\n```\n\n```output\n2\n```\n", AssertionError),
        ("one\n```python\n\n1 / 0\n```\n", ZeroDivisionError),
    ],
)
def test_the_runner_runs(page: str, error: type[BaseException] | None) -> None:
    if error is None:
        run_page(page, "page")
        return
    with pytest.raises(error) as caught:
        run_page(page, "page")
    if error is ZeroDivisionError:
        assert caught.traceback[-1].lineno + 1 == 4


@pytest.mark.parametrize("name", es.__all__)
def test_every_public_name_is_described(name: str) -> None:
    pages = "\n".join(path.read_text(encoding="utf-8") for path in PAGES)
    assert re.search(rf"\bes\.{re.escape(name)}(?!\w)", pages), f"es.{name} is nowhere: describe it in docs/api.md"


def test_names_in_the_reference_exist() -> None:
    described = re.findall(r"^\| `es\.(\w+)`", (ROOT / "docs" / "api.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert described
    assert set(described) <= set(es.__all__)


@pytest.mark.parametrize("path", [*PAGES, *sorted(ROOT.glob("[A-Z]*.md"))], ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for match in _LINK.finditer(text):
        target = path.parent / match[1] if match[1] else path
        assert target.exists(), f"{path.name} links to {match[1]}"
        if match[2] and target.suffix == ".md":
            assert match[2][1:] in anchors(target.read_text(encoding="utf-8")), f"{path.name} links to {match[0]}"


def anchors(page: str) -> set[str]:
    """The anchors that headings get: lower case, punctuation dropped, spaces to hyphens."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
