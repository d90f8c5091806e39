"""``move`` and ``retire``: an owner changes keys, and anybody who encrypts for the old
one is told.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_helpers import FOREST, Hospital, Run, Ward, done, private_file, the_error

import encryptedstats as es
from encryptedstats.crypto.keyfiles import OWNER_KIND
from encryptedstats.storage import container


@pytest.fixture
def new(ward: Ward, tmp_path: Path) -> Path:
    """A new secret key with the parameters of the old one, and its public keys beside it."""
    owner = es.Owner(es.Owner.load(ward.key).parameters)
    owner.save(tmp_path / "new.key", passphrase="a new one")
    owner.public_keys().save(tmp_path / "new.keys")
    private_file(tmp_path / "words", b"a new one\n")
    return tmp_path / "new.key"


def options(ward: Ward, new: Path) -> tuple[object, ...]:
    return ("--key", ward.key, "--new-key", new, "--new-passphrase-file", new.parent / "words")


def test_a_table_and_what_is_computed_on_it(ward: Ward, new: Path, tmp_path: Path) -> None:
    table = tmp_path / "moved.enc"
    shown = done(
        "key", "move", ward.table(0), table, *options(ward, new), "--schema", ward.schema
    ).stdout
    id_ = container.read(new, kind=OWNER_KIND).key_id
    assert "Moved encrypted table" in shown
    assert f"{id_}, before {es.Owner.load(ward.key).key_id}" in shown
    assert json.loads(done("data", "info", table, "--json").stdout)["key_id"] == id_
    done("ask", table, "-o", tmp_path / "forest.enc", *FOREST)
    opened = es.Owner.load(new, "a new one").open(
        tmp_path / "forest.enc", es.Schema.load(ward.schema)
    )
    clear = ward.clear("forest", slice(0, opened.n_rows_))
    assert (opened.leaf_counts_ == clear.leaf_counts_).all()


def test_a_model(ward: Ward, new: Path, run: Run, tmp_path: Path) -> None:
    model, moved = ward.fitted("mnb", 0), tmp_path / "mnb.enc"
    facts = json.loads(done("key", "move", model, moved, *options(ward, new), "--json").stdout)
    assert (facts["kind"], facts["old_key_id"]) == (
        "encrypted model",
        es.Owner.load(ward.key).key_id,
    )
    assert facts["key_id"] == container.read(new).key_id == container.read(moved).key_id
    before = moved.read_bytes()
    assert "exists already and was not touched" in the_error(
        run("key", "move", model, moved, *options(ward, new))
    )
    assert moved.read_bytes() == before
    done("key", "move", model, moved, *options(ward, new), "--force")
    assert moved.read_bytes() != before  # encrypted anew
    opened = es.Owner.load(new, "a new one").open(moved, es.Schema.load(ward.schema))
    assert list(opened.totals_) == list(ward.clear("mnb", slice(0, opened.n_rows_)).totals_)


def test_what_is_not_moved(ward: Ward, new: Path, run: Run, tmp_path: Path) -> None:
    out = tmp_path / "out"
    error = the_error(run("key", "move", ward.table(0), out, *options(ward, new)))
    assert "give the schema that the table was encrypted with, with --schema" in error
    error = the_error(run("key", "move", ward.key, out, *options(ward, new)))
    assert "holds a secret key, and a table, model or answer is wanted here" in error
    error = the_error(
        run("key", "move", ward.fitted("mnb", 0), out, "--key", ward.key, "--new-key", ward.key)
    )
    assert "the old and the new key are both" in error
    words = ("--passphrase-file", tmp_path / "words")
    error = the_error(
        run("key", "move", ward.fitted("mnb", 0), out, "--key", new, "--new-key", ward.key, *words)
    )
    assert "only the secret key" in error
    error = the_error(
        run("key", "move", ward.fitted("mnb", 0), ward.key, *options(ward, new), "--force")
    )
    assert "is read by this command" in error
    assert not out.exists()


def test_retired_keys_encrypt_nothing_and_compute_as_before(
    hospital: Hospital, new: Path, run: Run, tmp_path: Path
) -> None:
    public, successor = tmp_path / "public.keys", tmp_path / "new.keys"
    public.write_bytes(hospital.public.read_bytes())
    why = ("--key", hospital.key, "--why", "the laptop was lost", "--successor", successor)
    assert "exists already and was not touched" in the_error(run("key", "retire", public, *why))
    shown = done("key", "retire", public, *why, "--force").stdout
    old_id, new_id = (es.PublicKeys.load(path).key_id for path in (hospital.public, successor))
    assert f"Retired key {old_id}" in shown
    error = the_error(
        run(
            "encrypt",
            hospital.csv,
            tmp_path / "t.enc",
            "--schema",
            hospital.schema,
            "--public-keys",
            public,
        )
    )
    assert (
        f"the owner has retired key {old_id} (the laptop was lost): encrypt for key {new_id}"
        in error
    )
    assert not (tmp_path / "t.enc").exists()
    done("ask", hospital.table, "counts(v0)", "--keys", public, "-o", tmp_path / "age.enc")
    printed = done("data", "info", public).stdout
    assert "public keys, retired: nothing is encrypted for them" in printed
    assert f"the laptop was lost; encrypt for key {new_id} instead" in printed
    facts = json.loads(done("data", "info", public, "--json").stdout)
    assert facts["retired"] == {"why": "the laptop was lost", "successor": new_id}
    assert json.loads(done("data", "info", hospital.public, "--json").stdout)["retired"] is None


def test_only_their_own_secret_key_retires_them(
    hospital: Hospital, ward: Ward, run: Run, tmp_path: Path
) -> None:
    public = tmp_path / "public.keys"
    public.write_bytes(hospital.public.read_bytes())
    for place, words in (
        (public, "give the file of the keys that are retired"),
        (hospital.csv, "give their file"),
    ):
        before = place.read_bytes()
        assert words in the_error(
            run("key", "retire", place, "--key", ward.key, "--why", "x", "--force")
        )
        assert place.read_bytes() == before
    facts = json.loads(
        done(
            "key", "retire", tmp_path / "beside.keys", "--key", ward.key, "--why", "x", "--json"
        ).stdout
    )
    assert facts["successor"] is None
    assert es.PublicKeys.load(tmp_path / "beside.keys").retired is not None
