"""The layer rule: imports point downwards only, SEAL is spoken to in two packages, and nothing can
unpickle.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import encryptedstats
from sources import list_nodes, parse_file

ROOT = Path(encryptedstats.__file__).parent
NATIVE = ROOT / "_native"
# Top to bottom: each may import itself and what comes after it. The package itself imports them
# all, so it stands on top of everything but the command line, which is its user. `loading` opens
# all that can be stored; `machine`, `progress`, `checks`, `views`,
# `words` and `lazy` are tools that know nothing of this library.
ORDER = (
    "cli", "app", "", "studies", "procedures", "method_status", "questions", "devices", "moving", "loading", "workers", "service",
    "pages", "cluster", "publishing", "kinds",
    "statistics", "plots", "models", "metrics", "spotcheck", "tables", "circuits", "arrays", "joint", "crypto", "storage",
    "machine", "progress", "checks", "views", "words", "lazy", "errors",
)  # fmt: skip
#: What lies beside the library, uses it, and is in no wheel.
BESIDE = {"reproduction", "examples", "benchmarks"}
SPEAK_TO_SEAL = {"crypto", "joint"}
UNSAFE = {"pickle", "_pickle", "cPickle", "marshal", "shelve", "joblib", "dill", "cloudpickle"}
UNSAFE_CALLS = {"read_pickle", "to_pickle"}


#: Words that a layer must not know: what it computes for is the business of those above. Prose may
#: speak of it, code may not.
FOREIGN = {
    "circuits": {
        "forest",
        "tree",
        "bayes",
        "logistic",
        "fisher",
        "discriminant",
        "vote",
        "fraction",
        "onehot",
        "schema_",
    },
    "crypto": {
        "forest",
        "vote",
        "predict",
        "fold",
        "cross_validate",
        "classes",
        "onehot",
        "publicschema",
    },
    "arrays": {"forest", "vote", "predict", "fold", "classes", "onehot", "schema_"},
    "joint": {"forest", "vote", "predict", "fold", "classes", "onehot", "schema_"},
    "storage": {"ciphertext", "schema", "forest", "noise"},
}
#: What passes through unread: a digest by which owners know a schema again, and the name under
#: which it is stored.
OPAQUE = {"schema_digest", "join_digests"}


def code_words(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and text of everything that is named or said in code, without its prose: docstrings and
    what is shown to people.
    """
    for node in list_nodes(tree):
        if isinstance(node, ast.Name):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute):
            yield node.lineno, node.attr
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif (
            isinstance(node, ast.Constant) and isinstance(node.value, str) and " " not in node.value
        ):
            yield node.lineno, node.value


def foreign_words(tree: ast.AST, layer: str) -> list[str]:
    """What in this source only a layer above should speak of."""
    found = []
    for line, word in code_words(tree):
        text = word.lower()
        found += [
            f"{line}: {word}"
            for foreign in FOREIGN[layer]
            if foreign in text and word not in OPAQUE and text != "__file__"
        ]
    return found


def imported_modules(tree: ast.AST, module: str, *, is_package: bool) -> Iterator[tuple[int, str]]:
    """Line and dotted name of everything imported, at any depth, however spelled; ``from a import
    b`` gives a.b.
    """
    for node in list_nodes(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.split(".")
                kept = parts[: len(parts) - node.level + (1 if is_package else 0)]
                base = ".".join([*kept, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name in {"import_module", "__import__"} and isinstance(node.args[0].value, str):
                yield node.lineno, node.args[0].value


def unsafe_calls(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in list_nodes(tree):
        if isinstance(node, ast.Attribute) and node.attr in UNSAFE_CALLS:
            yield node.lineno, node.attr
        if (
            isinstance(node, ast.keyword)
            and node.arg == "allow_pickle"
            and ast.unparse(node.value) != "False"
        ):
            yield node.value.lineno, "allow_pickle"


def layer_of(dotted: str) -> str | None:
    """The layer that a dotted name of this package belongs to; None for other packages, and for
    kernels in C, which import none.
    """
    parts = dotted.split(".")
    below = parts[1] if len(parts) > 1 else ""
    if parts[0] != "encryptedstats" or (
        below.startswith("_") and (NATIVE / f"{below[1:]}.c").is_file()
    ):
        return None
    return (
        below
        if below in ORDER or (ROOT / below).is_dir() or (ROOT / f"{below}.py").is_file()
        else ""
    )


def violations(tree: ast.AST, module: str, *, is_package: bool = False) -> list[str]:
    """What in this source breaks the rule, were it the module of that name."""
    own = layer_of(module)
    found = [f"{module}:{line}: {name}: pickle is forbidden" for line, name in unsafe_calls(tree)]
    if own not in ORDER:
        return [f"{module}: {own!r} is no known layer: give it a place in the order"]
    for line, name in imported_modules(tree, module, is_package=is_package):
        where, top, layer = f"{module}:{line}: imports {name}", name.split(".")[0], layer_of(name)
        if top in UNSAFE:
            found.append(f"{where}: a module that can execute what it reads is forbidden")
        if top in BESIDE:
            found.append(f"{where}: it lies beside the library, which does without it")
        if top == "seal" and own not in SPEAK_TO_SEAL:
            found.append(f"{where}: only crypto and joint speak to SEAL")
        if layer is not None and layer not in ORDER:
            found.append(f"{where}: no known layer")
        elif layer is not None and own and ORDER.index(layer) < ORDER.index(own):
            found.append(f"{where}: {layer or 'the package itself'} lies above {own}")
    return found


def modules() -> list[tuple[Path, str]]:
    named = []
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        named.append((path, ".".join(("encryptedstats", *(p for p in parts if p != "__init__")))))
    return named


@pytest.mark.parametrize(
    ("path", "module"), modules(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_imports_point_downwards_and_pickle_is_nowhere(path: Path, module: str) -> None:
    assert violations(parse_file(path), module, is_package=path.name == "__init__.py") == []


@pytest.mark.parametrize(
    ("path", "module"),
    [one for one in modules() if layer_of(one[1]) in FOREIGN],
    ids=lambda value: str(value)[-40:],
)
def test_no_layer_knows_the_words_of_those_above(path: Path, module: str) -> None:
    layer = layer_of(module)
    assert layer is not None
    assert foreign_words(parse_file(path), layer) == []


@pytest.mark.parametrize(
    ("layer", "source"),
    [
        ("circuits", "class ForestCircuit: pass"),
        ("circuits", 'VOTES_KIND = "encrypted-votes"'),
        ("circuits", "def plan(n_trees): pass"),
        ("crypto", "def cross_validate(self, folds): pass"),
        ("crypto", "from x import PublicSchema\ny = PublicSchema()"),
        ("storage", "ciphertext_bytes = 3"),
    ],
)
def test_a_foreign_word_is_seen(layer: str, source: str) -> None:
    assert foreign_words(ast.parse(source), layer)


def test_prose_may_speak_of_what_is_above() -> None:
    source = '"""Forests vote."""\nx = "a forest of trees"  # trees'
    assert foreign_words(ast.parse(source), "circuits") == []


def test_every_layer_is_seen() -> None:
    seen = {layer_of(module) for _, module in modules()}
    assert seen >= {"", "cli", "tables", "crypto", "storage", "errors"}
    assert seen <= set(ORDER)


def test_only_crypto_and_joint_speak_to_seal_and_they_do() -> None:
    users = {
        layer_of(module)
        for path, module in modules()
        for _, name in imported_modules(
            parse_file(path), module, is_package=path.name == "__init__.py"
        )
        if name.split(".")[0] == "seal"
    }
    assert users == SPEAK_TO_SEAL


@pytest.mark.parametrize(
    ("module", "source", "complaint"),
    [
        ("encryptedstats.storage.container", "from encryptedstats.crypto import Owner", "crypto lies above storage"),
        ("encryptedstats.storage.container", "import encryptedstats.crypto.keys", "crypto lies above storage"),
        ("encryptedstats.storage.container", "from encryptedstats import crypto", "crypto lies above storage"),
        ("encryptedstats.storage.container", "from encryptedstats import Owner", "the package itself lies above"),
        ("encryptedstats.storage.container", "import encryptedstats as es", "the package itself lies above storage"),
        ("encryptedstats.storage.container", "from ..crypto import Owner", "crypto lies above storage"),
        ("encryptedstats.storage.container", "from .. import crypto", "crypto lies above storage"),
        ("encryptedstats.errors", "from encryptedstats.storage import files", "storage lies above errors"),
        ("encryptedstats.crypto.keys", "def f():\n    from encryptedstats.tables import schema", "tables lies above"),
        ("encryptedstats.crypto.keys", "if TYPE_CHECKING:\n    from encryptedstats.models import x", "models lies above"),
        ("encryptedstats.tables.schema.schema", "import seal", ("only crypto and joint speak to " "SEAL")),
        ("encryptedstats.cli.main", "def f():\n    from seal import Ciphertext", "only crypto and joint speak to SEAL"),
        ("encryptedstats", "import seal", "only crypto and joint speak to SEAL"),
        ("encryptedstats.models.forest", "import importlib\nimportlib.import_module('seal')", "only crypto and joint speak"),
        ("encryptedstats.models.forest", "__import__('encryptedstats.cluster')", "cluster lies above models"),
        ("encryptedstats.cluster.pool", "def f():\n    import pickle", "is forbidden"),
        ("encryptedstats.cluster.pool", "from joblib import Parallel", "is forbidden"),
        ("encryptedstats.cluster.pool", "import marshal, shelve", "is forbidden"),
        ("encryptedstats", "import pickle", "is forbidden"),
        ("encryptedstats.tables.table", "pandas.read_pickle(path)", "pickle is forbidden"),
        ("encryptedstats.tables.table", "np.load(path, allow_pickle=True)", "pickle is forbidden"),
        ("encryptedstats.models.base", "from encryptedstats.statistics import Result", "statistics lies above models"),
        ("encryptedstats.gadgets.new", "import numpy", "no known layer"),
        ("encryptedstats.cli.info", "from reproduction import datasets", "which does without it"),
    ],
)  # fmt: skip
def test_the_checker_sees_a_violation(
    module: str, source: str, complaint: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "gadgets").mkdir()
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    found = violations(ast.parse(source), module)
    assert any(complaint in one for one in found), found


@pytest.mark.parametrize(
    ("module", "source", "is_package"),
    [
        (
            "encryptedstats.crypto.keys",
            "from encryptedstats.storage import container\nimport seal",
            False,
        ),
        (
            "encryptedstats.crypto",
            "from .keys import Owner\nfrom encryptedstats.errors import NoiseError",
            True,
        ),
        ("encryptedstats.crypto.keys", "from . import engine\nfrom ..storage import files", False),
        (
            "encryptedstats.cli.main",
            "import encryptedstats as es\nfrom encryptedstats.models import x",
            False,
        ),
        ("encryptedstats", "from encryptedstats.cli import main", True),
        (
            "encryptedstats.tables.table",
            "np.load(path, allow_pickle=False)\nimport numpy, json",
            False,
        ),
    ],
)
def test_the_checker_lets_good_imports_pass(module: str, source: str, is_package: bool) -> None:
    assert violations(ast.parse(source), module, is_package=is_package) == []
