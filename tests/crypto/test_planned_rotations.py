"""An owner that was made with a plan has the rotation keys of the plan, made once, and remembered
in its file.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import encryptedstats as es
from encryptedstats.storage import container
from error_codes import error

pytestmark = pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")


@dataclass(frozen=True)
class Planned:
    """As much of a plan as an owner looks at."""

    parameters: es.Parameters
    rotations: Any = (16, 0, 1)


@pytest.fixture
def owner(tiny: es.Owner) -> es.Owner:
    return es.Owner(Planned(tiny.parameters))


def test_public_keys_have_what_was_planned(owner: es.Owner) -> None:
    keys = owner.public_keys()
    assert keys.rotations == (0, 1, 16)
    assert owner.public_keys() is keys is owner.public_keys([1, 16, 0])
    assert keys.key_id == owner.key_id
    assert owner.public_keys([]).rotations == ()
    assert owner.public_keys([4]).rotations == (4,)
    assert owner.public_keys(packing=False).rotations == (0, 1, 16)
    assert not owner.public_keys(packing=False).packs


def test_what_is_encrypted_carries_them_along(owner: es.Owner) -> None:
    sealed = owner.encrypt([1, 2, 3])
    assert sealed.keys is owner.public_keys()
    assert owner.open(sealed).tolist() == [1, 2, 3]


def test_opening_needs_none(owner: es.Owner, tmp_path: Path) -> None:
    """Rotation keys are large: who only decrypts never makes them."""
    sealed = owner.encrypt([5])
    owner.save(tmp_path / "key")
    again = es.Owner.load(tmp_path / "key")
    assert again.open(sealed).tolist() == [5]
    assert "_keys" not in vars(again)
    assert again.public_keys().rotations == (0, 1, 16)
    assert again.key_id == owner.key_id


def test_rotations_work_after_a_journey(owner: es.Owner, tmp_path: Path) -> None:
    owner.save(tmp_path / "key")
    keys = es.Owner.load(tmp_path / "key").public_keys()
    engine = keys.engine
    x = owner._encryptor.encrypt(engine.encoder.encode([1, 2, 3]))[0]
    turned = owner._decryptor.decrypt(keys.evaluator.rotate(x, 1))
    assert engine.encoder.decode(turned)[:2].tolist() == [2, 3]
    with pytest.raises(es.KeyMismatchError, check=error("planned-keys", "4")):
        keys.evaluator.rotate(x, 4)


def test_without_a_plan_there_are_none(tiny: es.Owner, tmp_path: Path) -> None:
    assert tiny.public_keys().rotations == ()
    tiny.save(tmp_path / "key")
    stored = container.read(tmp_path / "key")
    assert stored.fields["rotations"] == []
    fields = {name: value for name, value in stored.fields.items() if name != "rotations"}
    container.write(replace(stored, fields=fields), tmp_path / "old")
    assert es.Owner.load(tmp_path / "old").public_keys().rotations == ()


@pytest.mark.parametrize("listed", [None, "1", [1.0], [True], [512], {"1": 2}])
def test_rotations_in_a_file_that_cannot_be(tiny: es.Owner, tmp_path: Path, listed: Any) -> None:
    tiny.save(tmp_path / "key")
    stored = container.read(tmp_path / "key")
    container.write(
        replace(stored, fields={**stored.fields, "rotations": listed}), tmp_path / "bad"
    )
    with pytest.raises(es.FileFormatError, check=error("malformed-rotations")):
        es.Owner.load(tmp_path / "bad")


def test_rotations_that_cannot_be_planned(tiny: es.Owner) -> None:
    with pytest.raises(es.ParameterError, check=error("rotation-out-of-range", "511")):
        es.Owner(Planned(tiny.parameters, (512,)))
