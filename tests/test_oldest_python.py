"""The oldest Python that is promised can run the library: neither its grammar nor its standard
library lacks anything used here.

``make test PYTHON=python3.10 VENV=.venv-3.10`` is the whole proof; this is what can be seen with
any interpreter.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("src", "reproduction", "examples")
PROMISED = (3, 10)
# What the standard library has had since then, of the modules that a library like this one may
# want.
NEWER = {
    "asyncio": "Runner TaskGroup timeout",
    "collections.abc": "Buffer",
    "contextlib": "chdir",
    "datetime": "UTC",
    "enum": "EnumCheck ReprEnum StrEnum global_enum_repr member nonmember verify",
    "hashlib": "file_digest",
    "inspect": "BufferFlags markcoroutinefunction",
    "itertools": "batched",
    "math": "cbrt exp2 fma sumprod",
    "operator": "call is_none is_not_none",
    "os": "process_cpu_count",
    "queue": "ShutDown",
    "types": "get_original_bases CapsuleType",
    "typing": "LiteralString Never NoDefault NotRequired ReadOnly Required Self TypeAliasType "
    "TypeIs TypeVarTuple Unpack "
    "assert_never assert_type clear_overloads dataclass_transform get_overloads "
    "get_protocol_members is_protocol override "
    "reveal_type",
    "warnings": "deprecated",
}
NEWER_NAMES = {name for names in NEWER.values() for name in names.split()}
NEWER_MODULES = {"tomllib", "compression", "annotationlib"}
NEWER_BUILTINS = {"BaseExceptionGroup", "ExceptionGroup", "PythonFinalizationError"}
DEVELOPERS = {
    "reproduction/datasets/_build_index.py"
}  # scripts that say that they want a newer one


def at_run_time(tree: ast.AST) -> list[ast.AST]:
    """All nodes but those that only type checkers see."""
    nodes, left = [], [tree]
    while left:
        node = left.pop()
        nodes.append(node)
        below = list(ast.iter_child_nodes(node))
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            below = list(node.orelse)
        left += below
    return nodes


def too_new(source: str) -> list[str]:
    """What in this source an older Python does not have."""
    found = []
    for node in at_run_time(ast.parse(source, feature_version=PROMISED)):
        if isinstance(node, ast.Import):
            found += [name.name for name in node.names if name.name in NEWER_MODULES]
        elif isinstance(node, ast.ImportFrom):
            module, names = node.module or "", [name.name for name in node.names]
            found += [module] if module in NEWER_MODULES else []
            found += [f"{module}.{name}" for name in names if name in NEWER.get(module, "").split()]
        elif isinstance(node, ast.Attribute):
            whole = ast.unparse(node.value) if node.attr in NEWER_NAMES else ""
            found += [f"{whole}.{node.attr}"] if node.attr in NEWER.get(whole, "").split() else []
        elif isinstance(node, ast.Name) and node.id in NEWER_BUILTINS:
            found.append(node.id)
        elif isinstance(node, ast.Call) and {keyword.arg for keyword in node.keywords} >= {
            "include_extras"
        }:
            found.append(
                "include_extras"
            )  # they are lost where the default is None; hints_of of the cli keeps them
    return found


def test_the_library_asks_for_nothing_newer() -> None:
    about = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f'requires-python = ">={PROMISED[0]}.{PROMISED[1]},' in about
    everything = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    paths = [path for path in everything if path.relative_to(ROOT).as_posix() not in DEVELOPERS]
    assert len(paths) > 100
    assert {
        str(path): found for path in paths if (found := too_new(path.read_text(encoding="utf-8")))
    } == {}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from typing import Any, Self", ["typing.Self"]),
        ("if TYPE_CHECKING:\n    from typing import Self", []),
        ("if TYPE_CHECKING:\n    pass\nelse:\n    from typing import Self", ["typing.Self"]),
        ("def f():\n    import tomllib", ["tomllib"]),
        ("import hashlib\nhashlib.file_digest(f, 'sha256')", ["hashlib.file_digest"]),
        ("raise ExceptionGroup('', [])", ["ExceptionGroup"]),
        ("get_type_hints(f, include_extras=True)", ["include_extras"]),
    ],
)
def test_the_checker_sees_what_is_too_new(source: str, found: list[str]) -> None:
    assert too_new(source) == found


def test_newer_grammar_is_refused() -> None:
    with pytest.raises(SyntaxError):
        too_new("try:\n    pass\nexcept* ValueError:\n    pass")
