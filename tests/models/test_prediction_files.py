"""Votes on disk: whole, without names, checked before anything is believed; models that predict the
same after a journey.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from model_samples import SLOTS, frame, schema, table, variable_of
from prediction_samples import planned_owner, same_votes, without_classes
from sklearn.base import clone

import encryptedstats as es
from encryptedstats.circuits.results import EncryptedNumbers
from encryptedstats.storage import container
from encryptedstats.storage.container import Container
from encryptedstats.tables.answers.answer import PREDICTION_KIND
from encryptedstats.tables.answers.files import read_answer
from error_codes import error

pytestmark = pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")
QUIET = {"workers": 1, "progress": False}
FOREST = es.CompletelyRandomForest(n_trees=2, depth=1, fraction=2, random_state=3)
MODELS = (FOREST, es.MultinomialNB(), es.SemiparametricNB(), es.LinearMeans())


def closed_model(model: Any) -> Any:
    return clone(model).fit(planned_owner().encrypt(table(30), workers=1), **QUIET)


def sealed_rows() -> es.EncryptedTable:
    return planned_owner().encrypt(without_classes(table(9, seed=2)), workers=1)


@pytest.fixture(scope="module")
def votes() -> es.EncryptedAnswer:
    return closed_model(FOREST).predict_votes(sealed_rows(), **QUIET)


@pytest.fixture(scope="module")
def file(votes: es.EncryptedAnswer, tmp_path_factory: pytest.TempPathFactory) -> Container:
    path = tmp_path_factory.mktemp("votes") / "v"
    votes.save(path)
    return container.read(path, kind=PREDICTION_KIND)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
@pytest.mark.parametrize("where", ["{}/votes", "file://{}/votes", "memory://votes/{}"])
def test_votes_come_back_from_a_file(model: Any, where: str, tmp_path: Path) -> None:
    owner, url = planned_owner(), where.format(tmp_path)
    made = closed_model(model).predict_votes(sealed_rows(), **QUIET)
    made.save(url)
    for again in (
        es.load(url, owner.public_keys()),
        es.EncryptedAnswer.load(url, owner.public_keys()),
    ):
        assert isinstance(again, es.EncryptedAnswer)
        assert isinstance(again.schema, es.PublicSchema)
        same_votes(owner.open(again, schema=schema()), owner.open(made))
        by_number = owner.open(again)
        assert by_number.to_numpy().tolist() == owner.open(made).to_numpy().tolist()
        assert list(by_number.scores.columns) == [0, 1]
    with pytest.raises(FileExistsError):
        made.save(url)
    made.save(url, overwrite=True)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_votes_of_an_opened_model_come_back(model: Any, tmp_path: Path) -> None:
    owner, plain = planned_owner(), clone(model).fit(table(30))
    plain.predict_votes(sealed_rows(), **QUIET).save(tmp_path / "v")
    again = es.load(tmp_path / "v", owner.public_keys())
    same_votes(
        owner.open(again, schema=schema()),
        plain.predict_votes(without_classes(table(9, seed=2))),
    )


@pytest.mark.skipif(os.name != "posix", reason="modes are of POSIX")
def test_votes_are_private(votes: es.EncryptedAnswer, tmp_path: Path) -> None:
    votes.save(tmp_path / "v")
    planned_owner().open(votes).save(tmp_path / "opened.csv")
    for name in ("v", "opened.csv"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


def test_opened_votes_as_a_csv(votes: es.EncryptedAnswer, tmp_path: Path) -> None:
    opened = planned_owner().open(votes)
    opened.save(tmp_path / "votes.csv")
    read = pd.read_csv(tmp_path / "votes.csv", index_col="row")
    assert read.columns.tolist() == ["predicted", "P(no)", "P(yes)", "votes(no)", "votes(yes)"]
    assert read["votes(yes)"].tolist() == opened["yes"].tolist()
    assert read["predicted"].tolist() == opened.predict().tolist()
    with pytest.raises(FileExistsError, check=error("replace", "overwrite=True")):
        opened.save(tmp_path / "votes.csv")
    opened.save(tmp_path / "votes.csv", overwrite=True)
    means = planned_owner().open(
        closed_model(es.LinearMeans()).predict_votes(sealed_rows(), **QUIET)
    )
    means.save(tmp_path / "means.csv")
    assert pd.read_csv(tmp_path / "means.csv").columns.tolist()[:4] == [
        "row",
        "predicted",
        "score(no)",
        "score(yes)",
    ]


def test_files_hold_no_names(file: Container) -> None:
    readable = [section for name, section in file.sections.items() if name != "residues"]
    text = b"\n".join([json.dumps(file.fields).encode(), *readable])
    assert b"CompletelyRandomForest" in text
    for word in (b"age", b"grade", b"sex", b"yes", b"no", b"ill"):
        assert not re.search(rb"\b" + word + rb"\b", text)


def test_shown_and_never_pickled(votes: es.EncryptedAnswer) -> None:
    key = planned_owner().key_id
    by = r"prediction by CompletelyRandomForest\(.*\), 9 rows"
    assert re.fullmatch(rf"EncryptedAnswer\({by}, [\d.]+ MB, key {key}\)", repr(votes))
    assert votes.nbytes > 0
    with pytest.raises(TypeError, check=error("not-pickled")):
        pickle.dumps(votes)


# -- schemas
# ------------------------------------------------------------------------------------------------


def test_votes_are_opened_with_the_schema_of_the_rows(
    votes: es.EncryptedAnswer, file: Container
) -> None:
    owner, again = planned_owner(), read_answer(file, planned_owner().public_keys())
    assert owner.open(again, schema=schema()).columns.tolist() == ["no", "yes"]
    moved = schema().with_bins("age", edges=(40.0, 41.0))
    with pytest.raises(es.SchemaError, check=error("other-schema")):
        owner.open(again, schema=moved)
    with pytest.raises(es.SchemaError, check=error("other-schema-shape")):
        owner.open(again, schema=schema().with_bins("age", edges=(40.0,)))


def test_rows_encrypted_by_anybody_are_opened_with_the_schema_of_the_model() -> None:
    """They have no digest of their own."""
    owner = planned_owner()
    made = closed_model(FOREST).predict_votes(without_classes(table(9, seed=2)), **QUIET)
    assert made.schema_digest is not None
    with pytest.raises(es.SchemaError, check=error("other-schema")):
        owner.open(made, schema=schema(("yes", "no")))


# -- hostile files
# ------------------------------------------------------------------------------------------------


def answer_like(votes: es.EncryptedAnswer, rows: Any) -> es.EncryptedAnswer:
    rows.schema_digest = votes.schema_digest
    return es.EncryptedAnswer(votes.question, rows, votes.schema, votes.n_rows)


def with_fields(file: Container, **fields: Any) -> Container:
    return replace(file, fields={**file.fields, **fields})


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"output": "factors"}, "answers 'factors', which a CompletelyRandomForest does not give"),
        ({"output": 3}, "output"),
        ({"schema_digest": "short"}, "no digest"),
        ({"schema_digest": 5}, "no digest"),
        ({"question": "LinearMeans"}, "other parameters than a LinearMeans has"),
        ({"question": "Nobody"}, "nobody here knows the question"),
        ({"schema": "{}"}, "schema"),
    ],
)
def test_fields_that_cannot_be(file: Container, fields: dict[str, Any], words: str) -> None:
    with pytest.raises(es.FileFormatError, match=words):
        read_answer(with_fields(file, **fields), planned_owner().public_keys())


@pytest.mark.parametrize("name", ["output", "question", "params", "schema"])
def test_fields_that_are_missing(file: Container, name: str) -> None:
    fields = {key: value for key, value in file.fields.items() if key != name}
    with pytest.raises(es.FileFormatError, match=name):
        read_answer(replace(file, fields=fields), planned_owner().public_keys())


@pytest.mark.parametrize(
    "model", [es.FisherDiscriminant(), es.OneStepLogisticRegression()], ids=["fisher", "logistic"]
)
def test_models_that_give_no_votes(file: Container, model: Any) -> None:
    claimed = with_fields(file, question=type(model).__name__, params=model.get_params())
    with pytest.raises(es.FileFormatError, check=error("model-without-answers")):
        read_answer(claimed, planned_owner().public_keys())


def test_answers_too_few(votes: es.EncryptedAnswer) -> None:
    found = votes.ciphertexts
    parts = found.parts[: len(found.counts)]
    one = EncryptedNumbers(votes.keys, "rows", found.facts[:1], parts, counts=found.counts)
    made = answer_like(votes, one)
    with pytest.raises(es.FileFormatError, check=error("wrong-number-of-totals", "1", "2")):
        read_answer(made.to_container(), planned_owner().public_keys())


def test_a_huge_model_costs_a_small_file_nothing(file: Container) -> None:
    params = {**file.fields["params"], "n_trees": 1 << 20, "depth": 6}
    read_answer(
        with_fields(file, params=params), planned_owner().public_keys()
    )  # votes need not know the trees


def test_other_keys_and_kinds(file: Container, tmp_path: Path) -> None:
    stranger = planned_owner("bgv", 1)
    with pytest.raises(es.KeyMismatchError, check=error("keys-of-the-file")):
        read_answer(file, stranger.public_keys())
    with pytest.raises(TypeError, check=error("keys-missing")):
        read_answer(file, None)
    closed_model(FOREST).save(tmp_path / "model")
    assert (
        es.EncryptedAnswer.load(tmp_path / "model", planned_owner().public_keys()).kind
        == "encrypted model"
    )
    clone(FOREST).fit(table(30)).save(tmp_path / "opened")
    with pytest.raises(es.FileFormatError, check=error("other-kind-of-file")):
        es.EncryptedAnswer.load(tmp_path / "opened", planned_owner().public_keys())


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_damage_is_found(
    file: Container, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("damaged") / "v"
    whole = bytearray(container.to_bytes(file))
    place = data.draw(st.integers(0, len(whole) - 1))
    if data.draw(st.booleans()):
        whole[place] ^= data.draw(st.integers(1, 255))
    else:
        del whole[place:]
    path.write_bytes(whole)
    with pytest.raises(es.FileFormatError):
        es.EncryptedAnswer.load(path, planned_owner().public_keys())


def test_forged_residues_are_refused_when_they_are_opened(votes: es.EncryptedAnswer) -> None:
    """With a fitting hash: what decrypts to numbers that no forest gives is no result."""
    found = votes.ciphertexts
    forged = [replace(part, residues=part.residues[::-1].copy()) for part in found.parts]
    rows = EncryptedNumbers(votes.keys, "rows", found.facts, forged, counts=found.counts)
    made = answer_like(votes, rows)
    with pytest.raises(ValueError, check=error("nonzero-padding")):
        planned_owner().open(made)


# -- models with their drawn fraction
# -------------------------------------------------------------------------------------------


def test_a_stored_model_predicts_the_same(tmp_path: Path) -> None:
    owner, closed = planned_owner(), closed_model(FOREST)
    closed.save(tmp_path / "model")
    again = es.load(tmp_path / "model", owner.public_keys())
    wanted = clone(FOREST).fit(table(30)).predict_votes(without_classes(table(9, seed=2)))
    same_votes(owner.open(again.predict_votes(sealed_rows(), **QUIET), schema=schema()), wanted)
    opened = owner.open(closed)
    opened.save(tmp_path / "open")
    kept = es.load(tmp_path / "open")
    assert kept.drawn_ == opened.drawn_
    same_votes(kept.predict_votes(without_classes(table(9, seed=2))), wanted)
    same_votes(kept.predict_votes(frame(9, seed=2).drop(columns="ill")), wanted)


def test_a_seed_that_was_drawn_is_kept(tmp_path: Path) -> None:
    owner = planned_owner()
    closed = closed_model(clone(FOREST).set_params(random_state=None))
    made = closed.predict_votes(sealed_rows(), **QUIET)
    made.save(tmp_path / "v")
    again = es.load(tmp_path / "v", owner.public_keys())
    assert again.question.random_state == closed.random_state_
    same_votes(owner.open(again, schema=schema()), owner.open(made))


def test_drawn_fractions_that_cannot_be(tmp_path: Path) -> None:
    owner = planned_owner()
    closed_model(FOREST).save(tmp_path / "model")
    stored = container.read(tmp_path / "model")
    other = closed_model(clone(FOREST).set_params(n_trees=3))
    other.save(tmp_path / "other")
    drawn = container.read(tmp_path / "other").section("drawn")
    for data, words in (
        (drawn, "wrong-extra-totals"),
        (b"[1, 1]", "foreign-file"),
    ):
        container.write(
            replace(stored, sections={**stored.sections, "drawn": data}),
            tmp_path / f"bad{len(data)}",
        )
        with pytest.raises(es.FileFormatError, check=error(words)):
            es.load(tmp_path / f"bad{len(data)}", owner.public_keys())
    opened = owner.open(closed_model(FOREST))
    opened.answer_ = replace(opened.answer_, extra_totals={"drawn": [1, 2]})
    opened.save(tmp_path / "short")
    with pytest.raises(es.FileFormatError, check=error("wrong-extra-totals", "'drawn'", "2", "4")):
        es.load(tmp_path / "short")


def test_a_model_without_names_predicts_tables_alone(tmp_path: Path) -> None:
    """A worker knows no names: rows come encrypted, or as tables."""
    owner = planned_owner()
    closed_model(FOREST).save(tmp_path / "model")
    worker = es.load(tmp_path / "model", owner.public_keys())
    with pytest.raises(es.SchemaError, check=error("open-with-names")):
        worker.predict_votes(frame(3).drop(columns="ill"))
    known = es.Schema((variable_of("ordinal", 2, False, 0),), "y", (0, 1))
    with pytest.raises(es.SchemaError, check=error("other-schema")):
        worker.predict_votes(es.Table(known, (np.array([0, 1]),), slots=SLOTS))
