"""Compare the picture of the folders in docs/explanation/architecture.md with the imports of the
source.
"""

from __future__ import annotations

import re
from pathlib import Path

from sources import parse_file
from test_layers import imported_modules, layer_of, modules

PAGE = Path(__file__).parent.parent / "docs/explanation/architecture.md"


def drawn_imports() -> dict[str, set[str]]:
    picture = re.search(r"```text\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    assert picture is not None
    found: dict[str, set[str]] = {}
    for line in picture[1].splitlines():
        *_, place = re.split(r"\s{2,}", line.strip())
        folder, _, targets = place.partition(" -> ")
        found.setdefault(folder, set()).update(targets.split(", ") if targets else ())
    return found


def imports_of_source() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for path, module in modules():
        tree, own = parse_file(path), layer_of(module)
        assert own is not None
        for _, name in imported_modules(tree, module, is_package=path.name == "__init__.py"):
            layer = layer_of(name)
            if layer is not None:
                found.setdefault(own, set()).add(layer)
    return found


def test_the_picture_shows_every_import_between_folders_and_no_other() -> None:
    drawn, source = drawn_imports(), imports_of_source()
    named = set(drawn).union(*drawn.values())
    real = {folder: (source.get(folder, set()) & named) - {folder} for folder in drawn}
    assert drawn == real
