"""Write the public names and signatures of the library as text, one a line.

``python tests/signatures.py`` rewrites the stored ones. Look at the difference before you commit
it, and name what users have to change in CHANGELOG.md.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

import encryptedstats as es

STORED = Path(__file__).parent / "signatures.txt"


def public_signatures() -> str:
    """Return the signature of everything in ``es.__all__``, and of the public members
    of classes.
    """
    return "".join(f"{line}\n" for name in sorted(es.__all__) for line in _lines(name))


def _lines(name: str) -> Iterator[str]:
    thing = getattr(es, name)
    if not inspect.isclass(thing):
        yield f"{name}{_signature(thing) if callable(thing) else ''}"
        return
    if issubclass(thing, BaseException):
        yield f"{name}: {', '.join(base.__name__ for base in thing.__bases__)}"
        return
    yield f"{name}{_signature(thing)}"
    for member in sorted(_members(thing)):
        found = inspect.getattr_static(thing, member, None)
        plain = found.__func__ if isinstance(found, (staticmethod, classmethod)) else found
        yield f"{name}.{member}{_signature(plain) if inspect.isfunction(plain) else ''}"


def _members(thing: type) -> set[str]:
    """Return the public names that a class adds to its public bases."""
    public = {getattr(es, name) for name in es.__all__ if name != "__version__"}
    own = [
        base
        for base in thing.__mro__
        if base is thing or (base.__module__.startswith("encryptedstats") and base not in public)
    ]
    fields = {field.name for field in dataclasses.fields(thing)} if _is_data(thing) else set()
    inherited = {name for base in public & {*thing.__mro__} - {thing} for name in dir(base)}
    named = {name for base in own for name in vars(base)} | (fields - inherited)
    made_by_sklearn = {
        name for name in named if name.startswith("set_") and name.endswith("_request")
    }
    return {name for name in named - made_by_sklearn if not name.startswith("_")}


def _is_data(thing: type) -> bool:
    return dataclasses.is_dataclass(thing)


def _signature(thing: object) -> str:
    """Return names, kinds and defaults of parameters: annotations differ by version of Python."""
    try:
        found = inspect.signature(thing)  # type: ignore[arg-type]  # something callable
    except (TypeError, ValueError):
        return "(...)"
    bare = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in found.parameters.values()
    ]
    return str(inspect.Signature(bare))


if __name__ == "__main__":
    STORED.write_text(public_signatures())
    sys.stdout.write(f"wrote {STORED}\n")
