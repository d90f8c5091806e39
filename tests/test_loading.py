"""One call opens whatever was stored, on any storage, by what the file says it is."""

from __future__ import annotations

import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import encryptedstats as es
from encryptedstats.circuits.results import EncryptedNumbers
from encryptedstats.storage import container
from encryptedstats.storage.objects import read_object, write_object
from error_codes import error

FRAME = pd.DataFrame({"age": [30, 40, 50, 60], "sick": [0, 1, 1, 0]})


@pytest.fixture(scope="module")
def schema() -> es.Schema:
    return es.Schema.infer(FRAME, target="sick")


@pytest.fixture(scope="module")
def owner(schema: es.Schema) -> es.Owner:
    return es.Owner(es.plan(es.MultinomialNB(), schema, n_rows=100))


@pytest.fixture(params=["folder", "file://", "memory://"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "memory://":
        return f"memory://loading-{tmp_path.name}"
    return str(tmp_path) if request.param == "folder" else f"file://{tmp_path}"


def test_everything_that_is_stored_opens(owner: es.Owner, schema: es.Schema, place: str) -> None:
    table = schema.table(FRAME)
    sealed = owner.encrypt(table)
    sealed.save(f"{place}/table")
    there = es.load(f"{place}/table")
    assert isinstance(there, es.EncryptedTable)
    keys = there.keys
    model = es.MultinomialNB().fit(there)
    model.save(f"{place}/model")
    assert owner.open(es.load(f"{place}/model", keys=keys), schema=schema).n_rows_ == 4
    there.counts("v0").save(f"{place}/counts")
    pd.testing.assert_frame_equal(
        owner.open(es.load(f"{place}/counts", keys=keys), schema=schema), table.counts("age")
    )
    owner.encrypt([1, 2]).save(f"{place}/array")
    assert owner.open(es.load(f"{place}/array", keys=keys)).tolist() == [1, 2]
    model.totals_.save(f"{place}/totals")
    assert isinstance(es.load(f"{place}/totals", keys=keys), EncryptedNumbers)
    owner.public_keys().save(f"{place}/keys")
    assert es.load(f"{place}/keys").key_id == owner.key_id


def test_nothing_is_written_over_what_is_there_unless_told(
    owner: es.Owner, schema: es.Schema, place: str
) -> None:
    """The same for everything that has a save, on every kind of storage."""
    keys = owner.public_keys()
    sealed = owner.encrypt(schema.table(FRAME, folds=2))
    model = es.MultinomialNB().fit(sealed)
    things: list[tuple[Any, Callable[[str], Any]]] = [
        (model, lambda url: es.MultinomialNB.load(url, keys)),
        (owner.open(model), es.MultinomialNB.load),
        (es.MultinomialNB().fit_folds(sealed), lambda url: es.EncryptedAnswer.load(url, keys)),
        (sealed.counts("age"), lambda url: es.EncryptedAnswer.load(url, keys)),
        (owner.encrypt([1, 2]), lambda url: es.EncryptedArray.load(url, keys)),
        (owner.encrypt(3), lambda url: es.EncryptedArray.load(url, keys)),
        (model.totals_, lambda url: EncryptedNumbers.load(url, keys)),
        (keys, es.PublicKeys.load),
    ]
    for number, (thing, load) in enumerate(things):
        url = f"{place}/thing{number}"
        thing.save(url)
        before = read_object(url)
        with pytest.raises(FileExistsError, check=error("already-exists", number)):
            thing.save(url)
        assert read_object(url) == before
        write_object(url, b"something else")
        thing.save(url, overwrite=True)
        assert read_object(url) == before
        assert isinstance(load(url), type(thing))


def test_an_opened_model_is_readable_to_its_user_only(schema: es.Schema, tmp_path: Path) -> None:
    for url in (tmp_path / "model", f"file://{tmp_path}/model"):
        es.MultinomialNB().fit(schema.table(FRAME)).save(url, overwrite=True)
        assert stat.S_IMODE((tmp_path / "model").stat().st_mode) == 0o600


def test_what_cannot_be_opened_says_why(owner: es.Owner, tmp_path: Path) -> None:
    owner.save(tmp_path / "secret")
    with pytest.raises(es.FileFormatError, check=error("secret-key-file")):
        es.load(tmp_path / "secret")
    owner.encrypt(3).save(tmp_path / "number")
    with pytest.raises(TypeError, check=error("no-public-keys")):
        es.load(tmp_path / "number")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(es.FileFormatError, check=error("foreign-file")):
        es.load(tmp_path / "text")
    with pytest.raises(FileNotFoundError, match="no encrypted table lies at"):
        es.load(tmp_path / "nothing")
    assert np.array_equal(owner.open(es.load(tmp_path / "number", keys=owner.public_keys())), 3)


def test_no_loader_takes_an_owner_for_public_keys(
    owner: es.Owner, schema: es.Schema, tmp_path: Path
) -> None:
    """A worker holds public keys and nothing more; an Owner would bring the secret key
    along.
    """
    sealed = owner.encrypt(schema.table(FRAME))
    sealed.save(tmp_path / "table")
    model = es.MultinomialNB().fit(sealed)
    model.save(tmp_path / "model")
    sealed.counts("age").save(tmp_path / "counts")
    model.totals_.save(tmp_path / "totals")
    owner.encrypt([1]).save(tmp_path / "array")
    for name in ("table", "model", "counts", "totals", "array"):
        with pytest.raises(TypeError, check=error("not-public-keys")):
            es.load(tmp_path / name, keys=owner)


def test_a_statistic_that_claims_endless_bins_is_refused_at_once(
    owner: es.Owner, schema: es.Schema, tmp_path: Path
) -> None:
    sealed = owner.encrypt(schema.table(FRAME))
    answer = sealed.counts("age")
    answer.save(tmp_path / "counts")
    data = container.read(tmp_path / "counts")
    public = data.fields["schema"]
    for changes in (
        {
            "schema": public.replace('"n_bins": 4', '"n_bins": 1000000000').replace(
                '"n_bins":4', '"n_bins":1000000000'
            )
        },
        {"params": {"variables": []}},
        {"params": {"variables": [0, 0, 0]}},
        {"params": {"variables": 7}},
        {"params": {"variables": [0.5]}},
        {"params": {}},
        {"question": "moments", "params": {"variables": [-1]}},
        {"question": "nonsense"},
        {"question": "Statistic"},
        {"n_rows": -1},
    ):
        forged = replace(data, fields={**data.fields, **changes})
        container.write(forged, tmp_path / "forged")
        with pytest.raises(
            es.FileFormatError, match=r"question|totals|schema|bins|parameters|rows"
        ):
            es.load(tmp_path / "forged", keys=owner.public_keys())


# -- owner.open
# ------------------------------------------------------------------------------------------------


def test_the_owner_opens_everything_by_its_path(
    owner: es.Owner, schema: es.Schema, place: str, tmp_path: Path
) -> None:
    """From a path or URL, with the schema or the path of its file."""
    table = schema.table(FRAME, folds=2)
    sealed = owner.encrypt(table)
    model = es.MultinomialNB().fit(sealed)
    model.save(f"{place}/model")
    sealed.counts("age", by="sick").save(f"{place}/counts")
    es.MultinomialNB().fit_folds(sealed).save(f"{place}/folds")
    owner.open(model).predict_votes(sealed).save(f"{place}/votes")
    model.totals_.save(f"{place}/totals")
    owner.encrypt([1, 2]).save(f"{place}/array")
    schema.save(tmp_path / "schema.json")
    clear = es.MultinomialNB().fit(table)
    for by in (schema, tmp_path / "schema.json", str(tmp_path / "schema.json")):
        assert (
            owner.open(f"{place}/model", by).predict(FRAME).tolist()
            == clear.predict(FRAME).tolist()
        )
        pd.testing.assert_frame_equal(
            owner.open(f"{place}/counts", by), table.counts("age", by="sick")
        )
        assert [one.feature_names_in_.tolist() for one in owner.open(f"{place}/folds", by)] == [
            ["age"]
        ] * 2
        assert owner.open(f"{place}/votes", by).predict().tolist() == clear.predict(FRAME).tolist()
        assert owner.open(f"{place}/totals", by) == clear.totals_
        assert owner.open(f"{place}/array", by).tolist() == [1, 2]
    assert owner.open(f"{place}/model").classes_.tolist() == [0, 1]


def test_the_owner_opens_what_is_loaded_and_paths_of_all_kinds(
    owner: es.Owner, schema: es.Schema, tmp_path: Path
) -> None:
    model = es.MultinomialNB().fit(owner.encrypt(schema.table(FRAME)))
    model.save(tmp_path / "model.enc")
    schema.save(tmp_path / "schema.json")
    wanted = owner.open(model, schema=schema).totals_
    assert owner.open(tmp_path / "model.enc", schema).totals_ == wanted
    assert (
        owner.open(model, schema).totals_
        == owner.open(model, str(tmp_path / "schema.json")).totals_
        == wanted
    )
    assert owner.open(model, schema=tmp_path / "schema.json").totals_ == wanted
    assert owner.open(owner.encrypt(7)) == 7


def test_what_the_owner_cannot_open_says_why(
    owner: es.Owner, schema: es.Schema, tmp_path: Path
) -> None:
    sealed = owner.encrypt(schema.table(FRAME))
    sealed.save(tmp_path / "table")
    model = es.MultinomialNB().fit(sealed)
    model.save(tmp_path / "model.enc")
    with pytest.raises(
        FileNotFoundError, match=r"nowhere is not there: give the path or URL of a stored result"
    ):
        owner.open(tmp_path / "nowhere")
    with pytest.raises(TypeError, check=error("whole-table-decryption")):
        owner.open(tmp_path / "table")
    with pytest.raises(es.KeyMismatchError, check=error("keys-of-the-file", owner.key_id)):
        es.Owner(owner.parameters).open(tmp_path / "model.enc")
    with pytest.raises(TypeError, check=error("not-a-schema")):
        owner.open(model, FRAME)
    owner.open(model, schema=schema).save(tmp_path / "opened")
    with pytest.raises(TypeError, check=error("already-open")):
        owner.open(tmp_path / "opened", schema)
