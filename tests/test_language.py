"""The language of the source and the documents: terms of the glossary, verbs, and names used once.

The rules are those of CONTRIBUTING.md. ``LEFT`` lists how many findings a folder still has; the
numbers may only fall, and a folder that is not listed has none.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import encryptedstats
from sources import list_nodes, parse_file

SOURCE = Path(encryptedstats.__file__).parent
ROOT = Path(__file__).parent.parent
Function = ast.FunctionDef | ast.AsyncFunctionDef
Parsed = list[tuple[str, str, ast.Module]]

#: Private terms, and what to write instead.
PHRASES = {
    r"\b(bring|brings|brought|bringing) (\w+ )?down\b": "modulus switching",
    r"\bside by side\b": "interleaved",
    r"\b(graphics )?cards?\b": "GPU",
    r"\bmend(s|ed|ing)?\b": "fix",
    r"\b[Ww]hoever\b": "the owner, the worker, anybody who",
    r"\bfor who [a-z]": "for the owner, for the worker",
    r"\bclosed models?\b": "encrypted model",
    r"(?<!\")\bopened models?\b(?!\")": "decrypted model",  # but for the kind of a file
    r"\brows of others\b": "rows of contributors",
    r"\bon (its|their) way\b": "in transit, in progress",
    r"\bbe it\b": "whether",
    r"\bAs of (:|`)": "See",
    r"\b(of|for|by) so many\b": "the number",
}
#: Names of variables, parameters and attributes that say nothing.
IDENTIFIERS = {"way", "told", "here", "given", "beside"}
#: Words that begin a noun phrase, where a docstring of a function has its verb.
NOUN_PHRASE = re.compile(r"(The|What|Whether|A|An|Of|By|Those|That|This|How|Who|Where|As|If)\b")
#: Words that end as participles do, and are none.
NO_PARTICIPLES = {"need", "seed", "embed", "feed", "proceed", "exceed"}
PARTICIPLES = {
    "asked", "checked", "chosen", "given", "kept", "known", "listed", "loaded", "made", "said", "sent",
    "shown", "taken", "told", "written",
}  # fmt: skip
#: Functions that act, and return True if they have done so.
ACTS = {
    "add",
    "create",
    "cancel",
    "claim",
    "do",
    "fail",
    "split",
    "take",
    "replace",
    "write",
    "exit",
    "bool",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "contains",
    "readable",  # of Python's files
}
PREDICATE = re.compile(r"(is|has|can|are|was|may|must|should|equal|match)(_|$)|(.*_)?[a-z]+s(_|$)")

#: How many findings are left, by check and folder. Lower a number when a folder was edited.
LEFT: dict[str, dict[str, int]] = {
    "phrases": {
        "docs": 0,
    },
    "identifiers": {},
    "docstrings": {},
    "participles": {},
    "predicates": {},
}


@pytest.fixture(scope="module")
def parsed() -> Parsed:
    """Return folder, path and tree of every module."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        inside = path.relative_to(SOURCE)
        folder = inside.parts[0] if len(inside.parts) > 1 else "."
        if inside.parts[:2] == ("circuits", "devices"):
            folder = "circuits/devices"
        found.append((folder, str(inside), parse_file(path)))
    return found


def functions(tree: ast.AST) -> Iterator[Function]:
    return (node for node in list_nodes(tree) if isinstance(node, Function))


def is_property(function: Function) -> bool:
    return any("property" in ast.unparse(one) for one in function.decorator_list)


def find_phrases(text: str) -> list[str]:
    return [
        f"{text.count(chr(10), 0, found.start()) + 1}: {found.group()!r}, write: {instead}"
        for phrase, instead in PHRASES.items()
        for found in re.finditer(phrase, text)
    ]


def find_identifiers(tree: ast.AST) -> list[str]:
    found = []
    for node in list_nodes(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        elif isinstance(node, ast.arg):
            name = node.arg
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            name = node.attr
        else:
            continue
        if name.strip("_") in IDENTIFIERS:
            found.append(f"{node.lineno}: {name}")
    return found


def find_docstrings(tree: ast.AST) -> list[str]:
    return [
        f"{one.lineno}: {one.name}: {text.splitlines()[0]}"
        for one in functions(tree)
        if not is_property(one) and (text := ast.get_docstring(one)) and NOUN_PHRASE.match(text)
    ]


def find_participles(tree: ast.AST) -> list[str]:
    found = []
    for one in functions(tree):
        first, *others = one.name.strip("_").split("_")
        ends = first.endswith("ed") and first not in NO_PARTICIPLES
        if not is_property(one) and (first in PARTICIPLES or (ends and not others)):
            found.append(f"{one.lineno}: {one.name}")
    return found


def find_predicates(tree: ast.AST) -> list[str]:
    return [
        f"{one.lineno}: {one.name}"
        for one in functions(tree)
        if not is_property(one)
        and one.returns is not None
        and ast.unparse(one.returns) == "bool"
        and PREDICATE.match(one.name.strip("_")) is None
        and one.name.strip("_").split("_")[0] not in ACTS
    ]


CHECKS: dict[str, Callable[[ast.AST], list[str]]] = {
    "identifiers": find_identifiers,
    "docstrings": find_docstrings,
    "participles": find_participles,
    "predicates": find_predicates,
}


def check_left(check: str, found: dict[str, list[str]]) -> None:
    """Fail where a folder has more findings than are left to it."""
    left = LEFT[check]
    worse = {folder: each for folder, each in found.items() if len(each) > left.get(folder, 0)}
    assert not worse, "\n".join(
        f"{folder}: {len(each)} {check}, {left.get(folder, 0)} are allowed\n  " + "\n  ".join(each)
        for folder, each in worse.items()
    )


@pytest.mark.parametrize("check", CHECKS)
def test_names_and_docstrings(check: str, parsed: Parsed) -> None:
    found = defaultdict(list)
    for folder, path, tree in parsed:
        found[folder] += [f"{path}:{one}" for one in CHECKS[check](tree)]
    check_left(check, found)


def test_terms_are_those_of_the_glossary(parsed: Parsed) -> None:
    found = defaultdict(list)
    for folder, path, _ in parsed:
        found[folder] += [f"{path}:{one}" for one in find_phrases((SOURCE / path).read_text())]
    for page in [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("[A-Z]*.md")]:
        if page.name != "CHANGELOG.md":  # it says what things were called before
            words = re.sub(r"`[^`\n]+`", "", page.read_text(encoding="utf-8"))  # names of code
            found["docs"] += [f"{page.relative_to(ROOT)}:{one}" for one in find_phrases(words)]
    check_left("phrases", found)


def test_no_class_name_is_used_twice(parsed: Parsed) -> None:
    places = defaultdict(list)
    for _, path, tree in parsed:
        for node in list_nodes(tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{path}:{node.lineno}")
    twice = {name: where for name, where in places.items() if len(where) > 1}
    assert not twice


@pytest.mark.parametrize(
    ("check", "bad", "good"),
    [
        ("identifiers", "def f(way): ...", "def f(path): ..."),
        ("identifiers", "self.given = 1", "self.keys = keys.given"),
        ("docstrings", 'def f():\n    """The cost."""', 'def f():\n    """Return the cost."""'),
        ("participles", "def checked(a): ...", "def check(a): ..."),
        ("participles", "def _told(a): ...", "def is_signed(a): ..."),
        ("predicates", "def good() -> bool: ...", "def is_good() -> bool: ..."),
        ("predicates", "def valid() -> bool: ...", "def decrypts() -> bool: ..."),
    ],
)
def test_each_check_tells_bad_from_good(check: str, bad: str, good: str) -> None:
    assert CHECKS[check](ast.parse(bad))
    assert not CHECKS[check](ast.parse(good))


def test_private_terms_are_found() -> None:
    assert find_phrases("totals side by side on a card, for who opens")
    assert not find_phrases("interleaved totals on a GPU, for the receiver")
