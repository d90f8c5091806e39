"""The documentation is run: python blocks work and print what is shown, every public name is
described, links lead somewhere.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

import encryptedstats as es

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(#[^)\s]*)?\)")
_PICTURE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")


def script(name: str) -> ModuleType:
    """Return a script of docs/ as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


EXAMPLES, GENERATE = script("run_examples"), script("generate")


def run_page(page: str, name: str) -> None:
    for example, printed in EXAMPLES.run_examples(page, name):
        if example.output is not None:
            assert printed == EXAMPLES.strip_lines(example.output.text), (
                f"{name}, line {example.line}, prints otherwise: python docs/run_examples.py {name}"
            )


@pytest.fixture(scope="module")
def imported() -> None:
    """Import once what pages import, each in a process of its own."""
    for name in ("matplotlib.pyplot", "scipy.stats", "sklearn.ensemble", "sklearn.model_selection"):
        importlib.import_module(name)
    for name in es.__all__:
        getattr(es, name)


def run_in_child(run: Callable[[], None]) -> None:
    """Run a function in a forked process: SEAL never returns the memory of a page's keys."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            run()
            code = 0
        except BaseException:
            os.write(writing, traceback.format_exc().encode())
        finally:
            os._exit(code)
    os.close(writing)
    with open(reading, encoding="utf-8") as report:
        said = report.read()
    assert os.waitpid(child, 0)[1] == 0, said


@pytest.mark.usefixtures("imported")
@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_examples_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page, name = path.read_text(encoding="utf-8"), str(path.relative_to(ROOT))
    run_in_child(lambda: run_page(page, name))


def test_a_page_that_fails_in_its_process_fails_the_test() -> None:
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        run_in_child(lambda: run_page("```python\n1 / 0\n```\n", "page"))


def test_the_examples_are_there() -> None:
    counted = {
        path.relative_to(ROOT).as_posix(): len(EXAMPLES.find_examples(path.read_text()))
        for path in PAGES
    }
    tutorials = [name for name in counted if name.startswith("docs/tutorials/")]
    pages = (
        "explanation/circuits explanation/how explanation/noise explanation/security "
        "guides/questions guides/tables "
        "reference/formats reference/integers reference/models reference/paper reference/statistics"
    )
    names = ["README.md", *tutorials, *(f"docs/{name}.md" for name in pages.split())]
    assert all(counted[name] for name in names), counted


@pytest.mark.parametrize(
    ("page", "error"),
    [
        (
            "```python\nx = 1\n```\ntext\n```python\nassert x == "
            "1\nprint(x)\n```\n\n```output\n1\n```\n",
            None,
        ),
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


def test_the_reference_describes_every_public_name() -> None:
    generated = GENERATE.api()
    rows = dict(re.findall(r"^\| `([\w.]+)` \| (.*) \|$", generated, re.MULTILINE))
    blocks = set(re.findall(r"^::: ([\w.]+)$", generated, re.MULTILINE))
    for package in GENERATE.PACKAGES:
        module = importlib.import_module(f"encryptedstats{package}")
        names = {
            f"encryptedstats{package}.{name}"
            for name in module.__all__
            if name != "__version__" and not isinstance(getattr(module, name), ModuleType)
        }
        assert names <= blocks
        assert {name for name in names if not rows[name]} <= {"encryptedstats.devices.SEAL_RULES"}


def test_generated_parts_are_in_their_pages() -> None:
    used = [
        name
        for path in PAGES
        for name in re.findall(r"^<!-- generate: (\w+) -->$", path.read_text(), re.MULTILINE)
    ]
    assert sorted(used) == sorted(GENERATE.GENERATORS)
    assert GENERATE.expand("a\n\n<!-- generate: questions -->\n").startswith("a\n\n| question |")


@pytest.mark.parametrize("path", sorted((ROOT / "docs").rglob("*.md")), ids=lambda path: path.name)
def test_pages_are_in_the_menu_and_have_one_title(path: Path) -> None:
    text = re.sub(
        r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    name = path.relative_to(ROOT / "docs").as_posix()
    assert re.search(rf": {re.escape(name)}$", menu, re.MULTILINE), f"add {name} to mkdocs.yml"
    assert len(re.findall(r"^# ", text, re.MULTILINE)) == 1
    assert text.startswith("# ")


# -- pictures
# ------------------------------------------------------------------------------------------------


def test_pictures_are_what_is_drawn() -> None:
    drawn = {f"{name}.svg": draw().svg() for name, draw in script("make_pictures").PICTURES.items()}
    stored = {
        path.name: path.read_text(encoding="utf-8")
        for path in (ROOT / "docs" / "img").glob("*.svg")
    }
    assert stored == drawn, "draw them again: python docs/make_pictures.py"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_pictures_are_there_and_told_in_words(path: Path) -> None:
    for words, target in _PICTURE.findall(path.read_text(encoding="utf-8")):
        assert (path.parent / target).is_file()
        assert len(words.split()) >= 5, f"{path.name}: say in words what {target} shows"


def test_every_picture_is_shown() -> None:
    shown = {
        Path(target).name
        for path in PAGES
        for _, target in _PICTURE.findall(path.read_text(encoding="utf-8"))
    }
    assert shown >= {path.name for path in (ROOT / "docs" / "img").iterdir()}


# -- the site
# ------------------------------------------------------------------------------------------------


def test_the_security_page_brings_the_policy_in() -> None:
    path = ROOT / "docs/explanation/security.md"
    page = script("hooks").included(path.read_text(encoding="utf-8"), "explanation")
    policy = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    assert len(re.findall(r"^# ", page, re.MULTILINE)) == 1
    assert set(re.findall(r"^## .+$", policy, re.MULTILINE)) <= set(
        re.findall(r"^## .+$", page, re.MULTILINE)
    )
    assert "](docs/" not in page


@pytest.mark.parametrize(
    ("folder", "page", "link", "expected"),
    [
        (
            "docs/guides",
            "guides",
            "](../../SECURITY.md#keys)",
            "](../explanation/security.md#keys)",
        ),
        ("docs", "", "](../notebooks/first_steps.ipynb)", "](notebooks/first_steps.md)"),
        ("docs/explanation", "explanation", "](noise.md#what)", "](noise.md#what)"),
        ("docs/explanation", "explanation", "](../img/tree.svg)", "](../img/tree.svg)"),
        ("", "", "](docs/explanation/noise.md)", "](explanation/noise.md)"),
        ("", "", "](https://example.org/)", "](https://example.org/)"),
        ("", "", "](nowhere.md)", "](nowhere.md)"),
    ],
)
def test_links_of_the_repository_become_links_of_the_site(
    folder: str, page: str, link: str, expected: str
) -> None:
    assert script("hooks").linked(link, folder, page) == expected


def test_notebooks_become_pages() -> None:
    page = script("hooks").notebook_page(ROOT / "notebooks" / "first_steps.ipynb")
    assert page.startswith("# First steps\n")
    assert "](hospital_forest.md)" in page
    assert EXAMPLES.find_examples(page)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_the_paper_is_cited_by_words(path: Path) -> None:
    """Readers of the paper see titles and captions, not the labels of its LaTeX."""
    assert not re.findall(r"\b(?:fig|tab|sec|eq|app):\w+", path.read_text(encoding="utf-8"))


# -- links
# ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_source_files_that_pages_name_are_there(path: Path) -> None:
    named = re.findall(r"`((?:[a-z_]+/)+[a-z_0-9]+[.](?:py|c|cu|h))`", path.read_text())
    places = (ROOT, ROOT / "src", ROOT / "src/encryptedstats")
    assert [name for name in named if not any((place / name).is_file() for place in places)] == []


@pytest.mark.parametrize(
    "path", [*PAGES, *sorted(ROOT.glob("[A-Z]*.md"))], ids=lambda path: path.name
)
def test_links_lead_somewhere(path: Path) -> None:
    text = re.sub(
        r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )
    for match in _LINK.finditer(text):
        target = path.parent / match[1] if match[1] else path
        assert target.exists(), f"{path.name} links to {match[1]}"
        if match[2] and target.suffix == ".md":
            page = GENERATE.expand(target.read_text(encoding="utf-8"))
            page = script("hooks").included(page, "")
            assert match[2][1:] in anchors(page), f"{path.name} links to {match[0]}"


def anchors(page: str) -> set[str]:
    """The anchors that headings get: lower case, punctuation dropped, spaces to hyphens."""
    headings = re.findall(
        r"^#+ (.+)$",
        re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL),
        re.MULTILINE,
    )
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
