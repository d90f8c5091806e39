"""The trees of source files: each file is parsed, and its nodes are listed, once in a process."""

from __future__ import annotations

import ast
import gc
from collections.abc import Sequence
from pathlib import Path

# No caches of functools: these would be emptied after each module of tests.
_trees: dict[Path, ast.Module] = {}
_nodes: dict[ast.AST, Sequence[ast.AST]] = {}


def parse_file(path: Path) -> ast.Module:
    """Return the tree of a file; the tests share it, so it must stay as it is."""
    if path not in _trees:
        gc.disable()  # trees are millions of objects, and none of them is garbage
        _trees[path] = ast.parse(path.read_text(encoding="utf-8"))
        list_nodes(_trees[path])
        gc.freeze()
        gc.enable()
    return _trees[path]


def list_nodes(tree: ast.AST) -> Sequence[ast.AST]:
    """Return all nodes of a tree, in the order of :func:`ast.walk`."""
    if tree not in _nodes:
        _nodes[tree] = tuple(ast.walk(tree))
    return _nodes[tree]
