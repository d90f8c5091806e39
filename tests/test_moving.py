"""Keys are rotated: what is stored moves to a new key and stays what it was; the old one is retired
in writing.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import encryptedstats as es
from encryptedstats.storage import container
from error_codes import error
from insecure import insecure_parameters

pytestmark = pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")


def frame(n: int = 30) -> pd.DataFrame:
    rng = np.random.default_rng(n)
    return pd.DataFrame(
        {
            "age": rng.normal(50, 9, n),
            "dose": rng.integers(-5, 9, n) / 10,
            "sick": rng.choice(["no", "yes"], n),
        }
    )


SCHEMA = es.Schema.infer(frame(), target="sick", bins=3, kinds={"dose": "number"})


@pytest.fixture(scope="module")
def owners() -> tuple[es.Owner, es.Owner]:
    small = replace(insecure_parameters("bgv", 1 << 16, (50,) * 6), kept_primes=5)
    return es.Owner(small), es.Owner(small)


def test_a_table_moves_to_a_new_key(owners: tuple[es.Owner, es.Owner], tmp_path: Path) -> None:
    old, new = owners
    rows = SCHEMA.table(frame())
    old.encrypt(rows).save(tmp_path / "old")
    with pytest.raises(es.SchemaError, check=error("no-schema")):
        old.move(tmp_path / "old", new, tmp_path / "new")
    old.move(tmp_path / "old", new, tmp_path / "new", SCHEMA)
    moved = es.load(tmp_path / "new")
    assert (moved.key_id, moved.n_rows, moved.by_others) == (new.key_id, 30, False)
    assert new.open(moved.counts("v0", by="class"), SCHEMA).equals(rows.counts("age", by="class"))
    assert new.open(moved.moments(["v1"]), SCHEMA).equals(
        rows.moments(["dose"])
    )  # numbers below 0 too
    with pytest.raises(es.KeyMismatchError, check=error("load-the-key")):
        old.open(moved.counts("v0"), SCHEMA)
    with pytest.raises(es.KeyMismatchError, check=error("other-key", old.key_id)):
        new.move(tmp_path / "old", old, tmp_path / "again", SCHEMA)


def test_rows_of_others_are_the_owner_s_once_they_are_moved(
    owners: tuple[es.Owner, es.Owner], tmp_path: Path
) -> None:
    """Opened and encrypted anew: what somebody may have forged is gone with the old ciphertexts."""
    old, new = owners
    old.public_keys().encrypt(SCHEMA.table(frame())).save(tmp_path / "old")
    old.move(tmp_path / "old", new, tmp_path / "new")
    assert not es.load(tmp_path / "new").by_others
    assert new.open(es.load(tmp_path / "new").counts("v0"), SCHEMA)["count"].sum() == 30


def test_a_model_moves_to_a_new_key(owners: tuple[es.Owner, es.Owner], tmp_path: Path) -> None:
    old, new = owners
    binned = es.Schema.infer(frame().drop(columns="dose"), target="sick", bins=3)
    model = es.MultinomialNB().fit(old.encrypt(binned.table(frame())))
    model.save(tmp_path / "old.enc")
    old.move(tmp_path / "old.enc", new, tmp_path / "new.enc")
    opened, clear = (
        new.open(tmp_path / "new.enc", binned),
        es.MultinomialNB().fit(binned.table(frame())),
    )
    assert list(opened.totals_) == list(clear.totals_)
    with pytest.raises(FileExistsError):
        old.move(tmp_path / "old.enc", new, tmp_path / "new.enc")
    # With the schema the new key marks it, and knows another one when it opens.
    other = binned.with_bins("age", edges=[1, 2])
    with pytest.raises(es.SchemaError, check=error("no-schema")):
        old.move(tmp_path / "old.enc", new, tmp_path / "new.enc", other, overwrite=True)
    old.move(tmp_path / "old.enc", new, tmp_path / "new.enc", binned, overwrite=True)
    with pytest.raises(es.SchemaError):
        new.open(tmp_path / "new.enc", other)
    assert list(new.open(tmp_path / "new.enc", binned).totals_) == list(clear.totals_)
    with pytest.raises(es.KeyMismatchError, check=error("same-key")):
        old.move(tmp_path / "old.enc", old, tmp_path / "other.enc")
    with pytest.raises(TypeError, check=error("not-movable")):
        old.move(model, new, tmp_path / "other.enc")


def test_blocks_of_another_size_are_refused(
    owners: tuple[es.Owner, es.Owner], tmp_path: Path
) -> None:
    old, _ = owners
    old.encrypt(SCHEMA.table(frame())).save(tmp_path / "old")
    larger = es.Owner(insecure_parameters("bgv", 1 << 16, (40,) * 4, 2048))
    with pytest.raises(es.KeyMismatchError, check=error("other-block-size", "1024", "2048")):
        old.move(tmp_path / "old", larger, tmp_path / "new", SCHEMA)


def test_retired_keys_encrypt_nothing_and_still_compute(
    owners: tuple[es.Owner, es.Owner], tmp_path: Path
) -> None:
    old, new = owners
    sealed = old.encrypt([1, 2])
    old.public_keys().save(tmp_path / "public.keys")
    old.retire("a laptop was lost", new.public_keys()).save(
        tmp_path / "public.keys", overwrite=True
    )
    keys = es.PublicKeys.load(tmp_path / "public.keys")
    assert (keys.key_id, keys.packs) == (old.key_id, True)
    for attempt in (
        lambda: keys.encrypt(3),
        lambda: keys.encrypt_file("x.csv", SCHEMA, tmp_path / "t"),
    ):
        with pytest.raises(es.KeyMismatchError, check=error("retired-key", old.key_id, new.key_id)):
            attempt()
    assert old.open(sealed).tolist() == [1, 2]
    file = container.read(tmp_path / "public.keys")
    file.fields["retired"]["why"] = "no reason"
    container.write(file, tmp_path / "altered.keys")
    with pytest.raises(es.FileFormatError, check=error("unsigned-retirement")):
        es.PublicKeys.load(tmp_path / "altered.keys")
