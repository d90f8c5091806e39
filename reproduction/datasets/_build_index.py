"""Write ``index.json`` from the ``datasets.toml`` that lies beside the data; for developers, Python
3.11+.

Run ``python -m reproduction.datasets._build_index FOLDER/datasets.toml``. Only facts are taken
over, not the provenance notes; columns and kinds become one mapping.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from reproduction.datasets._index import DatasetInfo

INDEX = Path(__file__).with_name("index.json")


def index_text(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """The text of ``index.json`` for the parsed ``datasets.toml``."""
    entries = {name: _facts(table) for name, table in tables.items()}
    return json.dumps(entries, indent=1, ensure_ascii=False) + "\n"


def _facts(table: Mapping[str, Any]) -> dict[str, Any]:
    kept = [field.name for field in fields(DatasetInfo) if field.name not in ("name", "kinds")]
    facts = {key: table[key] for key in kept}
    facts["kinds"] = dict(zip(table["columns"], table["kinds"], strict=True))
    return facts


def main(path: str) -> None:
    """Rewrite ``index.json`` from the TOML file at ``path``."""
    import tomllib  # 3.11+, while the library itself runs on 3.10: hence an index in JSON

    INDEX.write_text(
        index_text(tomllib.loads(Path(path).read_text(encoding="utf-8"))), encoding="utf-8"
    )


if __name__ == "__main__":
    main(sys.argv[1])
