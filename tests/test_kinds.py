"""The one registry of file kinds: whatever is stored is in it, with what reads it and what it
consists of.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import encryptedstats as es
from encryptedstats import kinds
from encryptedstats.kinds import KINDS
from encryptedstats.storage import container
from encryptedstats.tables.questions.question import class_columns
from error_codes import error
from sources import list_nodes, parse_file

FRAME = pd.DataFrame({"age": [30, 40, 50, 60], "sick": [0, 1, 1, 0]})
SOURCES = Path(es.__file__).parent


@dataclass(frozen=True)
class Rows(es.Question):
    """How many rows there are, as a result."""

    def totals(self, schema: Any, columns: Any = None, fold: Any = None) -> dict[str, Any]:
        return {"rows": [y.total() for y in class_columns(schema, fold)]}

    def shapes(self, schema: Any) -> dict[str, tuple[int, ...]]:
        return {"rows": (schema.n_classes,)}

    def read(self, totals: Any, schema: Any, n_rows: int) -> es.Result:
        return es.Result(title="Rows", n_rows=n_rows)


def named_kinds() -> set[str]:
    """What modules call a kind of file, ``..._KIND = "..."``; those of a cluster's queue are
    nobody's to open.
    """
    found = set()
    for path in SOURCES.rglob("*.py"):
        for node in list_nodes(parse_file(path)):
            if (
                isinstance(node, ast.AnnAssign)
                and ast.unparse(node.target).endswith("_KIND")
                and node.value is not None
            ):
                found.add((path.relative_to(SOURCES).parts[0], ast.literal_eval(node.value)))
    return {kind for layer, kind in found if layer not in ("cluster", "circuits")}


def test_every_kind_that_a_module_names_is_known() -> None:
    assert named_kinds() <= set(KINDS)


@pytest.mark.parametrize("scheme", ["bgv"])
def test_what_is_stored_consists_of_what_the_registry_says(scheme: str, tmp_path: Path) -> None:
    schema = es.Schema.infer(FRAME, target="sick")
    owner = es.Owner(es.plan(es.MultinomialNB(), schema, n_rows=100, scheme=scheme))
    sealed = owner.encrypt(schema.table(FRAME, folds=2))
    model = es.MultinomialNB().fit(sealed)
    things = {
        "encrypted result": sealed.counts("age"),
        "encrypted model": model,
        "folds of an encrypted model": es.MultinomialNB().fit_folds(sealed),
        "encrypted prediction": owner.open(model).predict_votes(sealed),
        "opened model": owner.open(model),
        "opened result": owner.open(sealed.ask(Rows())),
        "encrypted numbers": model.totals_,
        "encrypted array": owner.encrypt([1, 2]),
        "public keys": owner.public_keys(),
    }
    for kind, thing in things.items():
        thing.save(tmp_path / kind)
        file = container.read(tmp_path / kind)
        assert file.kind == kind
        assert set(file.sections) <= KINDS[kind].sections
        assert KINDS[kind].facts(file)
        assert type(es.load(tmp_path / kind, owner.public_keys())) is type(thing)
        if KINDS[kind].needs_keys:
            with pytest.raises(TypeError, check=error("no-public-keys")):
                es.load(tmp_path / kind)
        if KINDS[kind].opens:
            owner.open(tmp_path / kind)
        if isinstance(
            thing, es.EncryptedAnswer
        ):  # of so many blocks that their ids have a section of their own
            thing = replace(thing, block_ids=tuple(f"{number:032x}" for number in range(5000)))
            assert set(thing.to_container().sections) <= KINDS[kind].sections
    owner.save(tmp_path / "secret key")
    assert KINDS["secret key"].read is None


def test_a_kind_that_is_not_known(tmp_path: Path) -> None:
    container.write(container.Container("encrypted votes", "", "", {}, {}), tmp_path / "old")
    with pytest.raises(es.FileFormatError, check=error("unknown-kind")):
        es.load(tmp_path / "old")
    assert "encrypted votes" not in kinds.KINDS
