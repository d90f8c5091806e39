"""Packages whose names are imported when they are first used.

A question imports its own module and no other: importing all models and statistics, and
scikit-learn with them, takes longer than many answers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def import_on_use(package: str, modules: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """Return a package's ``__getattr__``, which imports the module that defines a name.

    Parameters
    ----------
    package : str
        Its ``__name__``.
    modules : mapping of str to sequence of str
        What each module defines; names of modules begin with the package, or with a dot.
    """
    homes = {name: module for module, names in modules.items() for name in names}

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(import_module(homes[name], package), name)
        setattr(sys.modules[package], name, found)
        return found

    return find
