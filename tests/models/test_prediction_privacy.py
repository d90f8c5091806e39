"""Votes hold answers and nothing else: no slot without a row, and of a plain model nothing that
tells it from any other.
"""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest
from model_samples import SLOTS, random_table, table, variable_of
from prediction_samples import new_rows, planned_owner, same_votes, sealed_pieces, without_classes
from sklearn.base import clone

import encryptedstats as es
from encryptedstats.circuits.results import EncryptedNumbers
from encryptedstats.crypto.residues import ciphertext_of
from encryptedstats.models.fraction import fraction_circuit
from error_codes import error

pytestmark = [
    pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning"),
    pytest.mark.filterwarnings("ignore:constant predictors"),
]
QUIET = {"workers": 1, "progress": False}
BINNED = es.Schema(
    (variable_of("ordinal", 3, False, 0), variable_of("categorical", 2, True, 1)), "y", (0, 1)
)
CODES = es.Schema(
    (variable_of("ordinal", 4, False, 0), variable_of("ordinal", 3, False, 1)), "y", (0, 1)
)
ONE_CODE = es.Schema((variable_of("ordinal", 4, False, 0),), "y", (0, 1))
NUMBERS = es.Schema(
    (variable_of("number", 2, False, 0), variable_of("number", 3, False, 1)), "y", (0, 1)
)
ONE_NUMBER = es.Schema((variable_of("number", 2, False, 0),), "y", (0, 1))
CASES = [
    (es.CompletelyRandomForest(n_trees=3, depth=1), BINNED, "onehot", ""),
    (es.CompletelyRandomForest(n_trees=2, depth=3, random_state=5), BINNED, "onehot", ""),
    (es.CompletelyRandomForest(n_trees=2, depth=2, fraction=2, averaged=2), BINNED, "onehot", ""),
    (es.MultinomialNB(), BINNED, "onehot", "factors"),
    (es.MultinomialNB(alpha=2), BINNED, "onehot", "products"),
    (es.SemiparametricNB(), BINNED, "onehot", ""),
    (es.SemiparametricNB(paired=False, centred=True), BINNED, "onehot", ""),
    (es.SemiparametricNB(), CODES, "ordinal", ""),
    (es.SemiparametricNB(), NUMBERS, "onehot", ""),
    (es.LinearMeans(), BINNED, "onehot", ""),
    (es.LinearMeans(), CODES, "centred", ""),
    (es.LinearMeans(), NUMBERS, "onehot", ""),
    (es.OneStepLogisticRegression(), ONE_CODE, "centred", ""),
    (es.OneStepLogisticRegression(), ONE_NUMBER, "onehot", ""),
    (es.OneStepLogisticRegression(fit_intercept=False), ONE_CODE, "onehot", ""),
]
NAMES = [f"{type(m).__name__}-{i}" for i, (m, *_) in enumerate(CASES)]


def sealed(rows: es.Table, encoding: str) -> es.EncryptedTable:
    """In two chunks, most of whose slots are padding."""
    owner, first = planned_owner(), len(rows) // 2
    pieces = [rows.take(np.arange(first)), rows.take(np.arange(first, len(rows)))]
    one, other = (owner.encrypt(piece, workers=1, encodings=(encoding,)) for piece in pieces)
    return one.append(other)


def all_slots(votes: es.EncryptedAnswer) -> list[tuple[int, np.ndarray]]:
    """Everything that anybody who has the key can read: rows of the chunk, and its slots, for each
    ciphertext.
    """
    engine, decryptor = votes.keys.engine, planned_owner()._decryptor
    return [
        (
            count,
            np.asarray(
                engine.encoder.decode(decryptor.decrypt(ciphertext_of(engine, part.residues)))
            ),
        )
        for count, part in zip(
            votes.ciphertexts.counts * len(votes.ciphertexts), votes.ciphertexts.parts, strict=True
        )
    ]


# -- unused slots
# ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("model", "known", "encoding", "output"), CASES, ids=NAMES)
def test_slots_without_a_row_are_zero(
    model: Any, known: es.Schema, encoding: str, output: str
) -> None:
    rows, new = (
        random_table(known, 12, 3, weights=isinstance(model, es.MultinomialNB)),
        new_rows(known, 9, 4),
    )
    plain, sealed_new = clone(model).fit(rows), sealed(new, encoding)
    closed = clone(model).fit(sealed_pieces(planned_owner(), rows), **QUIET)
    wanted = plain.predict_votes(new, output=output or None)
    for one in (closed, plain):
        votes = one.predict_votes(sealed_new, output=output or None, **QUIET)
        slots = all_slots(votes)
        assert len(slots) == 2 * wanted.shape[1]
        for count, values in slots:
            assert count < SLOTS
            assert not values[count:].any()
        same_votes(planned_owner().open(votes), wanted)


@pytest.mark.parametrize("device", ["native", "seal"])
def test_every_device_clears(device: str) -> None:
    if device == "native":
        pytest.importorskip("encryptedstats._fused")
    closed = es.CompletelyRandomForest(n_trees=3, depth=2).fit(
        sealed_pieces(planned_owner(), table(30)), **QUIET
    )
    votes = closed.predict_votes(
        sealed(without_classes(table(9)), "onehot"), device=device, **QUIET
    )
    assert not any(values[count:].any() for count, values in all_slots(votes))


def test_what_is_in_other_slots_is_refused() -> None:
    """A result that was not cleared would show the owner more than the rows."""
    forest = es.CompletelyRandomForest(n_trees=3, depth=2).fit(table(30))
    votes = forest.predict_votes(sealed(without_classes(table(9)), "onehot"), **QUIET)
    votes.ciphertexts.counts = (votes.ciphertexts.counts[0] - 1, votes.ciphertexts.counts[1])
    with pytest.raises(ValueError, check=error("nonzero-padding")):
        planned_owner().open(votes)


def test_drawn_fractions_have_the_slots_of_their_leaf_alone() -> None:
    owner, rows = planned_owner(), table(40)
    forest = es.CompletelyRandomForest(n_trees=2, depth=2, fraction=2, averaged=2).fit(rows)
    sealed_rows = sealed_pieces(owner, rows, [15, 25])
    circuit = fraction_circuit(
        forest._fraction(), forest.trees_, rows.public_schema, sealed_rows.layout
    )
    drawn: EncryptedNumbers = sealed_rows.evaluate(circuit, form="slots", **QUIET)
    engine = drawn.keys.engine
    for leaf, (part, wanted) in enumerate(zip(drawn.parts, forest.drawn_, strict=True)):
        values = np.asarray(
            engine.encoder.decode(owner._decryptor.decrypt(ciphertext_of(engine, part.residues)))
        )
        assert set(np.flatnonzero(values)) == {2 * leaf, 2 * leaf + 1}
        assert values.sum() == wanted


# -- what a file tells of a plain model
# ----------------------------------------------------------------------------------


def readable(votes: es.EncryptedAnswer) -> dict[str, Any]:
    """All that is in a votes file but the residues of ciphertexts, of which the number is kept."""
    file = votes.to_container()
    return {
        **file.fields,
        **file.sections,
        "residues": len(file.section("residues")),
        "kind": file.kind,
    }


def models_of_a_kind(model: Any, known: es.Schema) -> list[Any]:
    """Fitted to few rows and to many, to one class alone where that can be, and to rows that are
    all alike.
    """
    few, many = random_table(known, 4, 1), random_table(known, 40, 2)
    alike = es.Table(
        known, tuple(data[:1].repeat(8) for data in many.data), np.arange(8) % 2, slots=SLOTS
    )
    none = es.Table(known, many.data, np.zeros(40, dtype=int), slots=SLOTS)
    return [clone(model).fit(rows) for rows in (few, many, alike, none)]


@pytest.mark.parametrize(("model", "known", "encoding", "output"), CASES, ids=NAMES)
def test_votes_of_plain_models_look_alike(
    model: Any, known: es.Schema, encoding: str, output: str
) -> None:
    new = new_rows(known, 9, 4)
    sealed_new = sealed(new, encoding)
    readings = []
    for one in models_of_a_kind(model, known):
        votes = one.predict_votes(sealed_new, output=output or None, **QUIET)
        same_votes(planned_owner().open(votes), one.predict_votes(new, output=output or None))
        readings.append(readable(votes))
    assert all(one == readings[0] for one in readings)


def test_coefficients_are_not_in_the_file() -> None:
    known = NUMBERS
    rows = random_table(known, 37, 5)
    model = es.SemiparametricNB().fit(rows)
    votes = model.predict_votes(sealed(new_rows(known, 9, 4), "onehot"), **QUIET)
    text = json.dumps(
        {
            name: value.decode() if isinstance(value, bytes) else value
            for name, value in readable(votes).items()
        }
    )
    numbers = {
        abs(number) for number in (*model.a_, *model.b_, *model.d_) if abs(number) > 100
    }  # by chance there is a 64
    assert len(numbers) > 3
    for number in numbers:
        assert not re.search(rf"(?<![\w.]){number}(?![\w.])", text), number


def test_coefficients_are_not_in_the_ciphertexts() -> None:
    """Anybody who has the rows, encrypted, could recompute what is made of them and of nothing
    else; a fresh encryption is in it.
    """
    known = BINNED
    model, rows = (
        es.MultinomialNB().fit(random_table(known, 20, 5)),
        sealed(new_rows(known, 9, 4), "onehot"),
    )
    one, other = (model.predict_votes(rows, **QUIET) for _ in range(2))
    for a, b in zip(one.ciphertexts.parts, other.ciphertexts.parts, strict=True):
        assert np.mean(a.residues == b.residues) < 0.01
    same_votes(planned_owner().open(one), planned_owner().open(other))
