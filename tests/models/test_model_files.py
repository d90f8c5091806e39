"""Models on disk: whole, checked, without pickle, and refused with a reason when they are anything
else.
"""

from __future__ import annotations

import json
import pickle
import re
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from model_samples import FOREST, MODELS, frame, name, schema, small_owner, table
from sklearn.base import clone

import encryptedstats as es
from effort import examples
from encryptedstats.storage import container
from encryptedstats.storage.container import Container
from error_codes import error

Fit = Callable[..., Any]
each_model = pytest.mark.parametrize("model", MODELS, ids=name)
pytestmark = pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")


def totals(model: Any) -> list[int]:
    return [int(total) for total in model.totals_]


@pytest.fixture(params=["path", "file", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return {
        "path": str(tmp_path / "model"),
        "file": f"file://{tmp_path}/model",
        "memory": f"memory://models/{tmp_path.name}",
    }[request.param]


# -- round trips
# ------------------------------------------------------------------------------------------------


@each_model
def test_an_encrypted_model_travels(
    model: Any, keeper: es.Owner, sealed_fit: Fit, place: str
) -> None:
    sealed = sealed_fit(clone(model), table())
    sealed.save(place)
    for read in (
        es.load(place, keeper.public_keys()),
        type(model).load(place, keeper.public_keys()),
    ):
        assert type(read) is type(model)
        assert read.is_encrypted
        assert read.get_params() == model.get_params()
        assert (read.n_rows_, read.block_ids_) == (60, sealed.block_ids_)
        plain = keeper.open(read, schema=schema())
        assert totals(plain) == totals(clone(model).fit(table()))
        np.testing.assert_array_equal(
            plain.predict(frame(20)), clone(model).fit(table()).predict(frame(20))
        )


@each_model
def test_an_opened_model_travels(model: Any, place: str) -> None:
    fitted = clone(model).fit(table())
    fitted.save(place)
    read = es.load(place)
    assert type(read) is type(model)
    assert totals(read) == totals(fitted)
    assert read.schema_ == fitted.schema_
    for method in ("predict_proba", "decision_function", "predict"):
        if hasattr(fitted, method):
            np.testing.assert_array_equal(
                getattr(read, method)(frame(20)), getattr(fitted, method)(frame(20))
            )


def test_what_was_read_combines(keeper: es.Owner, sealed_fit: Fit, tmp_path: Path) -> None:
    rows = table(90)
    for i, part in enumerate((rows[:50], rows[50:])):
        sealed_fit(clone(FOREST), part).save(tmp_path / str(i))
    first, second = (es.load(tmp_path / str(i), keeper.public_keys()) for i in range(2))
    assert totals(keeper.open(first + second)) == totals(clone(FOREST).fit(rows))
    with pytest.raises(es.SchemaError, check=error("block-already-included")):
        first + es.load(tmp_path / "0", keeper.public_keys())


def test_a_drawn_seed_is_stored(keeper: es.Owner, sealed_fit: Fit, tmp_path: Path) -> None:
    sealed = sealed_fit(es.CompletelyRandomForest(3, 2, random_state=None), table())
    sealed.save(tmp_path / "m")
    read = es.load(tmp_path / "m", keeper.public_keys())
    assert read.random_state_ == sealed.random_state_
    assert keeper.open(read).trees_ == keeper.open(sealed).trees_
    more = sealed_fit(clone(read), table(20, seed=1))
    assert keeper.open(sealed + more).n_rows_ == 80


def test_a_model_is_stored_as_it_was_fitted(
    keeper: es.Owner, sealed_fit: Fit, tmp_path: Path
) -> None:
    """Totals belong to the parameters of the fit, whatever is set afterwards."""
    for place, fitted in {
        "sealed": sealed_fit(clone(FOREST), table()),
        "open": clone(FOREST).fit(table()),
    }.items():
        fitted.set_params(random_state=99)
        fitted.save(tmp_path / place)
        assert es.load(tmp_path / place, keeper.public_keys()).random_state == FOREST.random_state


def test_folds_travel(keeper: es.Owner, place: str) -> None:
    rows = table(60, folds=3)
    folds = es.CompletelyRandomForest(2, 2, random_state=None).fit_folds(
        keeper.encrypt(rows, workers=1), workers=1
    )
    folds.save(place)
    for read in (
        es.load(place, keeper.public_keys()),
        es.EncryptedAnswer.load(place, keeper.public_keys()),
    ):
        expected = es.score_folds(keeper.open(folds), rows)
        assert (
            es.score_folds(keeper.open(read, rows.schema), rows)["score"].tolist()
            == expected["score"].tolist()
        )
    with pytest.raises(TypeError, check=error("no-public-keys")):
        es.load(place)
    with pytest.raises(es.FileFormatError, check=error("other-model-type")):
        es.CompletelyRandomForest.load(place, keeper.public_keys())


def test_numpy_parameters_are_stored_as_plain_ones(tmp_path: Path) -> None:
    model = es.CompletelyRandomForest(
        np.int64(2), np.int32(1), np.float64(0.5), random_state=np.uint8(3)
    ).fit(table())
    model.save(tmp_path / "m")
    assert es.load(tmp_path / "m").get_params()["n_trees"] == 2


# -- who may read what
# ------------------------------------------------------------------------------------------------


def test_an_opened_model_is_for_its_user_only(tmp_path: Path) -> None:
    for url in (tmp_path / "m", f"file://{tmp_path}/m2"):
        clone(FOREST).fit(table()).save(url)
    for file in tmp_path.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_an_encrypted_model_holds_no_names(
    keeper: es.Owner, sealed_fit: Fit, tmp_path: Path
) -> None:
    sealed = sealed_fit(clone(FOREST), table())
    assert isinstance(sealed.schema_, es.Schema)  # known in this program
    sealed.save(tmp_path / "m")
    file = container.read(tmp_path / "m")
    readable = [section for name, section in file.sections.items() if name != "residues"]
    text = b"\n".join([json.dumps(file.fields).encode(), *readable])
    assert b"CompletelyRandomForest" in text
    for word in (b"age", b"grade", b"sex", b"yes", b"ill"):
        assert not re.search(rb"\b" + word + rb"\b", text)
    assert isinstance(es.load(tmp_path / "m", keeper.public_keys()).schema_, es.PublicSchema)


def test_open_models_are_pickled_and_encrypted_ones_are_not(
    sealed_fit: Fit, keeper: es.Owner
) -> None:
    for model in MODELS:
        fitted = clone(model).fit(table())
        again = pickle.loads(pickle.dumps(fitted))  # noqa: S301  # our own bytes
        np.testing.assert_array_equal(again.predict(frame(20)), fitted.predict(frame(20)))
        with pytest.raises(TypeError, check=error("not-pickled")):
            pickle.dumps(sealed_fit(clone(model), table()))
    folds = clone(FOREST).fit_folds(keeper.encrypt(table(folds=2), workers=1), workers=1)
    with pytest.raises(TypeError, check=error("not-pickled")):
        pickle.dumps(folds)


# -- refusals
# ------------------------------------------------------------------------------------------------


def test_keys_are_asked_for_and_must_fit(
    keeper: es.Owner, other_keeper: es.Owner, sealed_fit: Fit, tmp_path: Path
) -> None:
    sealed_fit(clone(FOREST), table()).save(tmp_path / "m")
    with pytest.raises(TypeError, check=error("no-public-keys")):
        es.load(tmp_path / "m")
    with pytest.raises(es.KeyMismatchError, check=error("keys-of-the-file")):
        es.load(tmp_path / "m", other_keeper.public_keys())
    with pytest.raises(es.KeyMismatchError):
        es.load(tmp_path / "m", small_owner("bfv").public_keys())


def test_files_of_something_else_are_refused(keeper: es.Owner, tmp_path: Path) -> None:
    clone(FOREST).fit(table()).save(tmp_path / "m")
    with pytest.raises(es.FileFormatError, check=error("other-model-type")):
        es.LinearMeans.load(tmp_path / "m")
    keeper.public_keys().save(tmp_path / "keys")
    with pytest.raises(es.FileFormatError, check=error("other-file-kind")):
        es.LinearMeans.load(tmp_path / "keys")
    with pytest.raises(es.FileFormatError, check=error("other-kind-of-file")):
        es.EncryptedAnswer.load(tmp_path / "m", keeper.public_keys())
    with pytest.raises(FileNotFoundError):
        es.LinearMeans.load(tmp_path / "nowhere")
    with pytest.raises(Exception, match="not fitted"):
        clone(FOREST).save(tmp_path / "unfitted")


def rewritten(file: Container, **changes: Any) -> bytes:
    """As a forger would leave it: altered, with a hash that fits again."""
    return container.to_bytes(
        Container(
            file.kind, file.fingerprint, file.key_id, {**file.fields, **changes}, file.sections
        )
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"question": "Gardener"}, "nobody here knows the question 'Gardener'"),
        ({"question": "TotalsClassifier"}, "nobody here knows the question 'TotalsClassifier'"),
        (
            {"question": "counts", "params": {"variables": [0]}},
            "holds 'opened model', and counts gives none",
        ),
        ({"params": {"n_trees": 4}}, "other parameters than a CompletelyRandomForest has"),
        ({"params.depth": 3}, "totals, and an answer to CompletelyRandomForest has"),
        ({"params.n_trees": 1 << 20}, "26 totals, and an answer to CompletelyRandomForest has"),
        ({"params.n_trees": 10**30}, "n_trees=10+: an integer from 1"),
        ({"params.random_state": None}, "leaves something to chance"),
        ({"params.random_state": "7"}, "random_state='7'"),
        ({"n_rows": -1}, "impossible number of rows"),
        ({"blocks": [7]}, "impossible number of rows or list of blocks"),
        ({"blocks": ["a", "a"]}, "impossible number of rows or list of blocks"),
        ({"schema": "{}"}, "a question or schema that cannot be"),
        ({"schema": "[" * 100_000}, "a question or schema that cannot be"),
        ({"private": 1}, "'private'"),
    ],
)
def test_altered_fields_are_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    clone(FOREST).fit(table()).save(tmp_path / "m")
    file = container.read(tmp_path / "m")
    change = {}
    for path, value in changes.items():
        field, _, inner = path.partition(".")
        change[field] = {**file.fields["params"], inner: value} if inner else value
    (tmp_path / "m").write_bytes(rewritten(file, **change))
    with pytest.raises(es.FileFormatError, match=message):
        es.load(tmp_path / "m")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[1", "not-json"),
        (b"{}", "not-a-list"),
        (b"[1.5]", "not-integers"),
        (b"[true]", "not-integers"),
        (
            json.dumps([1] * 25).encode(),
            "wrong-number-of-totals",
        ),
        (json.dumps([5, 5] + [9] * 24).encode(), "impossible-totals"),
        (json.dumps([10**30] * 26).encode(), "impossible-totals"),
        (b"[" * 100_000, "not-json"),
    ],
)
def test_altered_totals_are_refused(content: bytes, message: str, tmp_path: Path) -> None:
    clone(FOREST).fit(table()).save(tmp_path / "m")
    file = container.read(tmp_path / "m")
    altered = Container(file.kind, file.fingerprint, file.key_id, file.fields, {"totals": content})
    (tmp_path / "m").write_bytes(container.to_bytes(altered))
    with pytest.raises(es.FileFormatError, check=error(message)):
        es.load(tmp_path / "m")


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_totals_beyond_all_numbers_are_refused(model: Any, tmp_path: Path) -> None:
    """Python's integers have no end, and what is computed from them would raise an OverflowError
    somewhere.
    """
    clone(model).fit(table()).save(tmp_path / "m")
    file = container.read(tmp_path / "m")
    forged = json.dumps([10**400] * len(json.loads(file.section("totals")))).encode()
    altered = Container(file.kind, file.fingerprint, file.key_id, file.fields, {"totals": forged})
    (tmp_path / "m").write_bytes(container.to_bytes(altered))
    with pytest.raises(es.FileFormatError, check=error("totals-too-large")):
        es.load(tmp_path / "m")


@pytest.mark.parametrize("n_bins", [10**9, 10**18])
def test_a_claim_of_endless_bins_is_refused_at_once(
    n_bins: int, keeper: es.Owner, sealed_fit: Fit, tmp_path: Path
) -> None:
    for model in MODELS:
        sealed_fit(clone(model), table()).save(tmp_path / "m", overwrite=True)
        file = container.read(tmp_path / "m")
        claim = json.loads(file.fields["schema"])
        claim["variables"][0]["n_bins"] = n_bins
        (tmp_path / "m").write_bytes(rewritten(file, schema=json.dumps(claim)))
        with pytest.raises(es.FileFormatError, check=error("too-many-bins")):
            es.load(tmp_path / "m", keeper.public_keys())


def test_three_classes_for_a_model_of_two_are_refused(
    keeper: es.Owner, sealed_fit: Fit, tmp_path: Path
) -> None:
    sealed_fit(es.SemiparametricNB(), table()).save(tmp_path / "m")
    file = container.read(tmp_path / "m")
    claim = {**json.loads(file.fields["schema"]), "n_classes": 3}
    (tmp_path / "m").write_bytes(rewritten(file, schema=json.dumps(claim)))
    with pytest.raises(es.FileFormatError, check=error("impossible-question-or-schema")):
        es.load(tmp_path / "m", keeper.public_keys())


@pytest.mark.parametrize("model", MODELS, ids=name)
def test_totals_that_no_rows_have_are_refused_when_opened(
    model: Any, keeper: es.Owner, sealed_fit: Fit
) -> None:
    sealed, other = sealed_fit(clone(model), table(60)), sealed_fit(clone(model), table(59, seed=8))
    sealed.answer_ = replace(sealed.answer_, totals=sealed.totals_ - other.totals_ - other.totals_)
    with pytest.raises(
        ValueError, match=r"the result was altered, or is of other rows\. It is refused"
    ):
        keeper.open(sealed)


# -- fuzz
# ------------------------------------------------------------------------------------------------

JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, -1, 1, 2, 3, 7, 2**31, 2**63, -(2**63), 10**40, 0.5, -0.0, 1e308, 1e-320]),
    st.text(max_size=6),
    st.lists(st.integers(-3, 3), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)
Path_ = tuple[Any, ...]


def paths(value: Any, here: Path_ = ()) -> list[Path_]:
    """Where every value within a JSON document lies."""
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [here, *(p for key, inner in items for p in paths(inner, (*here, key)))]


def replaced(value: Any, path: Path_, new: Any) -> Any:
    if not path:
        return new
    if isinstance(value, dict):
        return {
            key: replaced(inner, path[1:], new) if key == path[0] else inner
            for key, inner in value.items()
        }
    return [
        replaced(inner, path[1:], new) if i == path[0] else inner for i, inner in enumerate(value)
    ]


@pytest.fixture(scope="module")
def samples(keeper: es.Owner) -> list[Container]:
    """A file of every kind."""
    sealed = keeper.encrypt(table(30, folds=2), workers=1)
    files = [clone(model).fit(sealed, workers=1).to_container() for model in MODELS]
    files += [clone(model).fit(table(30)).to_container() for model in MODELS]
    folds = clone(FOREST).fit_folds(sealed, workers=1)
    return [*files, folds.to_container(), sealed.counts("age").to_container()]


@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_whatever_a_file_says_it_is_read_or_refused(
    samples: list[Container], keeper: es.Owner, tmp_path_factory: pytest.TempPathFactory, data: Any
) -> None:
    file = data.draw(st.sampled_from(samples))
    fields, sections = dict(file.fields), dict(file.sections)
    where = data.draw(st.sampled_from(["field", "schema", "section", "kind"]))
    kind, key_id = file.kind, file.key_id
    if where == "field":
        fields = replaced(fields, data.draw(st.sampled_from(paths(fields)[1:])), data.draw(JUNK))
    elif where == "schema":
        schema = json.loads(fields["schema"])
        fields["schema"] = json.dumps(
            replaced(schema, data.draw(st.sampled_from(paths(schema))), data.draw(JUNK))
        )
    elif where == "section":
        section = data.draw(st.sampled_from(sorted(sections)))
        sections[section] = _damaged(sections[section], data)
    else:
        kind = data.draw(
            st.sampled_from(["encrypted model", "opened model", "folds of an encrypted model"])
        )
        key_id = data.draw(st.sampled_from([key_id, "", "0" * 16]))
    try:
        altered = container.to_bytes(Container(kind, file.fingerprint, key_id, fields, sections))
    except ValueError:  # not even JSON
        return
    path = tmp_path_factory.getbasetemp() / "fuzzed"
    path.write_bytes(altered)
    with suppress(es.FileFormatError, es.KeyMismatchError):
        es.load(path, keeper.public_keys())
    with suppress(es.FileFormatError, es.KeyMismatchError, _KeysAreMissing):
        _load_without_keys(path)


class _KeysAreMissing(Exception):
    pass


def _load_without_keys(path: Path) -> None:
    try:
        es.load(path)
    except TypeError as error:
        if "give the public keys=" in str(error):
            raise _KeysAreMissing from None
        raise


def _damaged(content: bytes, data: Any) -> bytes:
    how = data.draw(st.sampled_from(["cut", "longer", "flip", "json", "empty"]))
    if how == "json" and content[:1] == b"[":
        value = json.loads(content)
        return json.dumps(
            replaced(value, data.draw(st.sampled_from(paths(value))), data.draw(JUNK))
        ).encode()
    at = data.draw(st.integers(0, max(0, len(content) - 1)))
    if how == "cut":
        return content[:at]
    if how == "longer":
        return content + content[: at + 1]
    if how == "flip" and content:
        return (
            content[:at] + bytes([content[at] ^ data.draw(st.integers(1, 255))]) + content[at + 1 :]
        )
    return b""
