"""What mkdocs does beside rendering: pages from files outside docs/, and links that work in the
repository and on the site alike.

In the repository, pages link to ``../SECURITY.md`` or ``../notebooks/x.ipynb``. On the site these
are pages too, made here from the very files, so that nothing is written twice. ``<!-- include: FILE
-->`` brings in a file of the repository without its title, ``<!-- generate: NAME -->`` what
``generate.py`` makes from the source.
"""

from __future__ import annotations

import json
import posixpath
import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from generate import expand

ROOT = Path(__file__).parents[1]
#: Files of the repository that are pages of the site as well.
PAGES = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
_ELSEWHERE = {
    **PAGES,
    "SECURITY.md": "explanation/security.md",
    "README.md": "index.md",
    "LICENSE": "index.md",
}
_INCLUDE = re.compile(r"^<!-- include: (\S+) -->$", re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s#:]+)(#[^)\s]*)?\)")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that lie elsewhere, and the notebooks as pages."""
    from mkdocs.structure.files import File

    for name, page in PAGES.items():
        files.append(
            File.generated(
                config, page, content=linked((ROOT / name).read_text(encoding="utf-8"), "")
            )
        )
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        files.append(
            File.generated(config, f"notebooks/{path.stem}.md", content=notebook_page(path))
        )
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Bring in included files, and turn links into those of the site."""
    if page.file.generated_by is not None:
        return markdown
    folder = posixpath.dirname(page.file.src_uri)
    return included(linked(expand(markdown), f"docs/{folder}", folder), folder)


def included(markdown: str, page: str) -> str:
    """Return a page in a folder of the site with the files it includes."""

    def content(match: re.Match[str]) -> str:
        text = linked((ROOT / match[1]).read_text(encoding="utf-8"), "", page)
        return re.sub(r"\A# .*\n", "", text).strip()

    return _INCLUDE.sub(content, markdown)


def linked(markdown: str, folder: str, page: str = "") -> str:
    """Return a file in a folder of the repository with links for a page in a folder of the site."""

    def link(match: re.Match[str]) -> str:
        target = (ROOT / folder / match[1]).resolve()
        if not target.is_relative_to(ROOT) or not target.exists():
            return match[0]
        path = target.relative_to(ROOT).as_posix()
        place = _ELSEWHERE.get(path, path.removeprefix("docs/").replace(".ipynb", ".md"))
        return f"]({posixpath.relpath(place, page or '.')}{match[2] or ''})"

    return _LINK.sub(link, markdown)


def notebook_page(path: Path) -> str:
    """A notebook as a page: text as it is, code in fences."""
    parts = [f"*This page is the notebook `notebooks/{path.name}` of the repository.*"]
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
    title, *rest = parts[1:]
    return linked("\n\n".join([title, parts[0], *rest]) + "\n", "notebooks", "notebooks")
