"""The documentation is run: python blocks work and print what is shown, every public name is
described, links lead somewhere.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

import encryptedstats as es

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(#[^)\s]*)?\)")
_PICTURE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")
# What users import, and how the pages call what is in it.
PUBLIC = {
    "": "es",
    ".circuits": "encryptedstats.circuits",
    ".cluster": "es.cluster",
    ".devices": "encryptedstats.devices",
    ".metrics": "encryptedstats.metrics",
    ".plots": "encryptedstats.plots",
    ".questions": "encryptedstats.questions",
}
NAMES = [
    (package, name)
    for package in PUBLIC
    for name in importlib.import_module(f"encryptedstats{package}").__all__
]


def script(name: str) -> ModuleType:
    """Return a script of docs/ as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


EXAMPLES = script("run_examples")


def run_page(page: str, name: str) -> None:
    for example, printed in EXAMPLES.run_examples(page, name):
        if example.output is not None:
            assert printed == EXAMPLES.strip_lines(example.output.text), (
                f"{name}, line {example.line}, prints otherwise: python docs/run_examples.py {name}"
            )


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_examples_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_page(path.read_text(encoding="utf-8"), str(path.relative_to(ROOT)))


def test_the_examples_are_there() -> None:
    counted = {
        path.name: len(EXAMPLES.find_examples(path.read_text(encoding="utf-8"))) for path in PAGES
    }
    pages = (
        "api circuits devices errata extending formats how index integers models noise r security "
        "tables tutorial"
    )
    assert all(counted[f"{name}.md"] for name in ["README", *pages.split()]), counted


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


@pytest.mark.parametrize(("package", "name"), NAMES, ids=lambda value: value)
def test_every_public_name_is_described(package: str, name: str) -> None:
    called = f"{PUBLIC[package]}.{name}"
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    assert re.search(rf"(?<![\w.]){re.escape(called)}(?!\w)", page), (
        f"{called} is nowhere: describe it in docs/api.md"
    )


@pytest.mark.parametrize("package", PUBLIC)
def test_the_reference_has_every_public_name(package: str) -> None:
    module = importlib.import_module(f"encryptedstats{package}")
    page = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    shown = set(re.findall(rf"^::: encryptedstats{re.escape(package)}\.(\w+)$", page, re.MULTILINE))
    modules = {name for name in module.__all__ if isinstance(getattr(module, name), ModuleType)}
    assert shown == set(module.__all__) - modules - {"__version__"}


@pytest.mark.parametrize(
    "package", ["arrays", "crypto", "joint", "models", "statistics", "storage", "tables"]
)
def test_names_of_inner_packages_are_described(package: str) -> None:
    module = importlib.import_module(f"encryptedstats.{package}")
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    for name in set(getattr(module, "__all__", ())) - set(es.__all__):
        assert re.search(rf"\bencryptedstats\.{package}\.{name}(?!\w)", page), (
            f"{package}.{name} is not in docs/api.md"
        )


def test_names_in_the_list_exist() -> None:
    described = re.findall(
        r"^\| `es\.(\w+)`", (ROOT / "docs" / "api.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert described
    assert set(described) <= set(es.__all__)


@pytest.mark.parametrize("path", sorted((ROOT / "docs").glob("*.md")), ids=lambda path: path.name)
def test_pages_are_in_the_menu_and_have_one_title(path: Path) -> None:
    text = re.sub(
        r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert re.search(rf": {re.escape(path.name)}$", menu, re.MULTILINE), (
        f"add {path.name} to nav in mkdocs.yml"
    )
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
    page = script("hooks").included((ROOT / "docs" / "security.md").read_text(encoding="utf-8"))
    policy = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    assert len(re.findall(r"^# ", page, re.MULTILINE)) == 1
    assert set(re.findall(r"^## .+$", policy, re.MULTILINE)) <= set(
        re.findall(r"^## .+$", page, re.MULTILINE)
    )
    assert "](docs/" not in page


@pytest.mark.parametrize(
    ("folder", "link", "expected"),
    [
        ("docs", "](../SECURITY.md#keys)", "](security.md#keys)"),
        ("docs", "](../notebooks/first_steps.ipynb)", "](notebooks/first_steps.md)"),
        ("docs", "](noise.md#the-assumption)", "](noise.md#the-assumption)"),
        ("docs", "](img/tree.svg)", "](img/tree.svg)"),
        ("", "](docs/noise.md)", "](noise.md)"),
        ("", "](https://example.org/)", "](https://example.org/)"),
        ("", "](nowhere.md)", "](nowhere.md)"),
    ],
)
def test_links_of_the_repository_become_links_of_the_site(
    folder: str, link: str, expected: str
) -> None:
    assert script("hooks").linked(link, folder) == expected


def test_notebooks_become_pages() -> None:
    page = script("hooks").notebook_page(ROOT / "notebooks" / "first_steps.ipynb")
    assert page.startswith("# First steps\n")
    assert "](../notebooks/hospital_forest.md)" in page
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
            page = script("hooks").included(target.read_text(encoding="utf-8"))
            assert match[2][1:] in anchors(page), f"{path.name} links to {match[0]}"


def anchors(page: str) -> set[str]:
    """The anchors that headings get: lower case, punctuation dropped, spaces to hyphens."""
    headings = re.findall(
        r"^#+ (.+)$",
        re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL),
        re.MULTILINE,
    )
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
