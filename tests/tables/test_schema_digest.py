"""Results are opened with the schema of their rows and no other: wrong cut points, names, order and
classes are refused.
"""

from __future__ import annotations

import hmac
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from encrypted_samples import objects, put, rewritten_manifest, small_owner

import encryptedstats as es
from encryptedstats.circuits.expressions import column
from encryptedstats.storage import container
from encryptedstats.tables.manifest import MANIFEST
from error_codes import error

pytestmark = pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")

RNG = np.random.default_rng(4)
FRAME = pd.DataFrame(
    {
        "age": RNG.normal(50, 9, 80),
        "pulse": RNG.normal(70, 9, 80),
        "sex": RNG.choice(["f", "m"], 80),
        "ill": RNG.choice(["no", "yes"], 80),
    }
)
ANOTHER = "other-schema"


@pytest.fixture(scope="module")
def known() -> es.Schema:
    return es.Schema.infer(FRAME, target="ill", bins=3)


def others(known: es.Schema) -> dict[str, es.Schema]:
    """Schemas with the same public shape."""
    age, pulse, sex = known.variables
    return {
        "edges": known.with_bins("age", edges=[edge + 1e-9 for edge in age.edges]),
        "names swapped": replace(
            known, variables=(replace(age, name="pulse"), replace(pulse, name="age"), sex)
        ),
        "columns swapped": replace(known, variables=(pulse, age, sex)),
        "levels swapped": known.with_bins("sex", levels=["m", "f"]),
        "class labels": replace(known, classes=("nein", "ja")),
        "classes swapped": replace(known, classes=("yes", "no")),
        "target": replace(known, target="sick"),
    }


WAYS = (
    "edges",
    "names swapped",
    "columns swapped",
    "levels swapped",
    "class labels",
    "classes swapped",
    "target",
)


@pytest.fixture(scope="module")
def results(
    keeper: es.Owner, known: es.Schema, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """All kinds of results, made by a worker from files and sent back as files."""
    place = tmp_path_factory.mktemp("results")
    keeper.encrypt(known.table(FRAME, folds=2), out=place / "table")
    table = es.load(place / "table")
    table.counts("v0", by="class").save(place / "counts")
    es.MultinomialNB().fit(table).save(place / "model")
    es.MultinomialNB().fit_folds(table).save(place / "folds")
    return {
        name: es.load(place / name, keys=keeper.public_keys())
        for name in ("counts", "model", "folds")
    }


@pytest.mark.parametrize("kind", ["counts", "model", "folds"])
@pytest.mark.parametrize("way", WAYS)
def test_another_schema_of_the_same_shape_is_refused(keeper, known, results, kind, way):
    other = others(known)[way]
    assert other.public() == known.public()
    with pytest.raises(es.SchemaError, check=error(ANOTHER)):
        keeper.open(results[kind], schema=other)


def test_the_right_schema_opens(keeper, known, results, tmp_path):
    known.save(tmp_path / "schema.json")
    again = es.Schema.load(tmp_path / "schema.json")
    table = known.table(FRAME, folds=2)
    pd.testing.assert_frame_equal(
        keeper.open(results["counts"], schema=again), table.counts("age", by="class")
    )
    assert list(keeper.open(results["model"], schema=again).classes_) == ["no", "yes"]
    models = keeper.open(results["folds"], schema=again)
    assert len(es.score_folds(models, table)) == 2
    with pytest.raises(es.SchemaError, check=error("other-schema")):
        es.score_folds(models, others(known)["edges"].table(FRAME, folds=2))
    assert list(keeper.open(results["counts"]).columns) == [0, 1]  # without names, as before


def test_an_owner_from_a_key_file_knows_it_again(keeper, known, results, tmp_path):
    keeper.save(tmp_path / "key")
    again = es.Owner.load(tmp_path / "key")
    assert again.open(results["model"], schema=known).n_rows_ == 80
    with pytest.raises(es.SchemaError, check=error(ANOTHER)):
        again.open(results["model"], schema=others(known)["edges"])


def test_the_wrong_owner_hears_of_the_key_and_not_of_the_schema(stranger_keeper, known, results):
    for result in results.values():
        with pytest.raises(es.KeyMismatchError, check=error("load-the-key")):
            stranger_keeper.open(result, schema=known)


def test_rows_of_different_schemas_are_not_brought_together(keeper, known):
    """A worker sees no schema, and yet refuses: the digests differ."""
    parts = {}
    for name, schema in {"one": known, "other": others(known)["edges"]}.items():
        sealed = keeper.encrypt(schema.table(FRAME))
        sealed.private_schema = None  # as on a worker
        parts[name] = sealed
    cure = "different-schemas"
    with pytest.raises(es.SchemaError, check=error(cure)):
        parts["one"].append(parts["other"])
    one, other = (es.MultinomialNB().fit(parts[name]) for name in ("one", "other"))
    for combine in (
        lambda: one + other,
        lambda: one.totals_ - other.totals_,
        lambda: one.partial_fit(parts["other"]),
    ):
        with pytest.raises(es.SchemaError, check=error(cure)):
            combine()


def test_rows_of_the_public_key_have_none_and_are_taken_as_they_are(known, tmp_path):
    keeper = small_owner(for_others=True)
    by_others = keeper.public_keys().encrypt(known.table(FRAME[:30])).accept_others()
    assert by_others.facts.schema_digest is None
    by_others.private_schema = None
    count = by_others.counts("v0", by="class")
    for schema in (known, others(known)["edges"]):  # nobody can vouch for either
        assert keeper.open(count, schema=schema).to_numpy().sum() == 30
    own = keeper.encrypt(known.table(FRAME[30:]), out=tmp_path / "own")
    for joined in (
        own.append(by_others),
        by_others.append(keeper.encrypt(known.table(FRAME[30:]))),
    ):
        assert joined.facts.schema_digest == own.facts.schema_digest
        joined.private_schema = None
        with pytest.raises(es.SchemaError, check=error(ANOTHER)):
            keeper.open(joined.counts("v0"), schema=others(known)["edges"])
    assert es.load(tmp_path / "own").facts.schema_digest == own.facts.schema_digest


def test_in_one_program_names_are_compared_where_there_is_no_digest(known):
    keeper = small_owner(for_others=True)
    sealed = keeper.public_keys().encrypt(known.table(FRAME)).accept_others()
    with pytest.raises(es.SchemaError, check=error(ANOTHER)):
        keeper.open(sealed.counts("age"), schema=others(known)["names swapped"])


@pytest.mark.parametrize("digest", ["0" * 64, None, "0" * 63, "G" * 64, 7, ["0" * 64]])
def test_tampered_digests(keeper, known, tmp_path, digest):
    keeper.encrypt(known.table(FRAME), out=tmp_path / "t")
    stored = objects(tmp_path / "t")

    def change(file: container.Container) -> container.Container:
        return replace(file, fields={**file.fields, "schema_digest": digest})

    put(tmp_path / "t", {**stored, MANIFEST: rewritten_manifest(stored[MANIFEST], change)})
    keeper.encrypt(known.table(FRAME)).evaluate([column("class0").total()]).save(
        tmp_path / "totals"
    )
    container.write(change(container.read(tmp_path / "totals")), tmp_path / "forged")
    if digest is None or digest == "0" * 64:
        count = es.load(tmp_path / "t").counts("v0")
        assert es.load(tmp_path / "forged", keys=keeper.public_keys()).schema_digest == digest
        if (
            digest is None
        ):  # a worker can take the mark off, as it can do anything: the mark is against mistakes
            assert keeper.open(count, schema=known)["count"].sum() == 80
        else:
            with pytest.raises(es.SchemaError, check=error(ANOTHER)):
                keeper.open(count, schema=known)
        return
    with pytest.raises(
        es.FileFormatError, match="field 'schema_digest' of the encrypted table file is no digest"
    ):
        es.load(tmp_path / "t")
    with pytest.raises(es.FileFormatError, check=error("malformed-digest", "'schema_digest'")):
        es.load(tmp_path / "forged", keys=keeper.public_keys())


def test_the_digest_is_keyed(keeper, stranger_keeper, known):
    """Anybody who guesses the schema cannot check the guess; the same schema has another digest
    under another key.
    """
    digests = {
        owner.encrypt(known.table(FRAME)).facts.schema_digest
        for owner in (keeper, keeper, stranger_keeper)
    }
    assert len(digests) == 2
    content = known.canonical_json()
    for guess in (b"", keeper.key_id.encode(), bytes(32)):
        for message in (content, b"schema\0" + content):
            assert hmac.new(guess, message, "sha256").hexdigest() not in digests
