"""Rows by others: taken only when asked for, since anybody who forges some and sees a result learns
the secret key. Here it is done.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import seal
from encrypted_samples import objects, put, rewritten_manifest, small_owner

import encryptedstats as es
from encryptedstats.crypto.residues import Residues, residues_of
from encryptedstats.storage import container
from encryptedstats.storage.container import Container
from encryptedstats.tables.blocks import BlockShape, pack_residues
from encryptedstats.tables.encrypted_table import EncryptedTable
from encryptedstats.tables.facts import MemoryBlocks
from encryptedstats.tables.manifest import MANIFEST
from error_codes import error

pytestmark = pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")
REFUSED = "rows-by-others"
BINS = 31
STEP = 32  # counts of every bin are then between 0 and the number of rows
FRAME = pd.DataFrame({"x": np.arange(4 * BINS) % BINS, "y": ["a", "b"] * (2 * BINS)})
FULL = pd.DataFrame(
    {"x": np.arange(1024) % BINS, "y": ["a", "b"] * 512}
)  # as many rows as slots: no padding
SCHEMA = es.Schema.infer(FRAME, target="y", kinds={"x": "ordinal"}, bins=BINS)


@pytest.fixture(scope="module")
def owner() -> es.Owner:
    return small_owner(for_others=True)


@pytest.fixture
def by_public(owner: es.Owner) -> es.EncryptedTable:
    return owner.public_keys().encrypt(SCHEMA.table(FRAME))


# -- the attack
# ------------------------------------------------------------------------------------------------


class Contributor:
    """Somebody who has the public keys, and ciphertexts of their own making instead of rows."""

    def __init__(self, keys: es.PublicKeys) -> None:
        self.keys, self.ring, self.t = (
            keys,
            keys.parameters.ring_degree,
            keys.parameters.plain_modulus,
        )

    def monomial(self, power: int, factor: int = 1) -> dict[int, int]:
        """factor X^power, where X^N is -1."""
        sign = -1 if power // self.ring % 2 else 1
        return {power % self.ring: sign * factor % self.t}

    def plain(self, terms: dict[int, int]) -> Any:
        powers = sorted(terms, reverse=True)
        return seal.Plaintext(
            " + ".join(f"{terms[p]:X}x^{p}" if p else f"{terms[p]:X}" for p in powers)
        )

    def polynomial(self, terms: dict[int, int]) -> Residues:
        """A polynomial as a ciphertext has it: what adding it to one changes."""
        engine = self.keys.engine
        zero = self.keys.encryptor.seal_encrypt(engine.encode_integer(0))
        moved = residues_of(engine, engine.evaluator.add_plain(zero, self.plain(terms)))[0]
        primes = np.array(self.keys.parameters.data_moduli, dtype=np.uint64)[:, None]
        return (moved + primes - residues_of(engine, zero)[0]) % primes

    def forged(self, j: int) -> Residues:
        """(c0, k X^-j): its total over the slots is STEP (j + 1) + s_j, since N k is 1 modulo t."""
        k = pow(self.ring, -1, self.t)
        c0 = self.polynomial({0: STEP * (j + 1) * k % self.t})
        return np.stack([c0, self.polynomial(self.monomial(-j, k))])

    def honest(self, terms: dict[int, int]) -> Residues:
        return residues_of(self.keys.engine, self.keys.encryptor.seal_encrypt(self.plain(terms)))

    def table(self) -> es.EncryptedTable:
        """A table of one block whose cuts are forged; its first class is 1 in every slot."""
        real = self.keys.encrypt(SCHEMA.table(FULL))
        columns = [self.forged(j) for j in range(BINS - 1)]
        residues = np.stack([*columns, self.honest({0: 1})])
        assert residues.shape == real.blocks.block(0).shape
        return EncryptedTable(
            real.facts, MemoryBlocks(real.blocks.ids, real.blocks.rows, (residues,)), self.keys
        )


def secret_coefficients(owner: es.Owner, count: int) -> list[int]:
    """The first coefficients of the secret, from its values at the roots, which SEAL keeps: N s_j
    is the sum of s(r) r^-j.
    """
    ring, prime = owner.parameters.ring_degree, owner.parameters.coefficient_moduli[0]
    stored = owner._generator.secret_key().to_string()[
        -8 * ring * len(owner.parameters.coefficient_moduli) :
    ]
    values = np.frombuffer(stored, dtype="<u8")[:ring].astype(object)
    roots = Contributor(owner.public_keys()).polynomial({1: 1})[0].astype(object)
    powers, found = np.array([pow(int(r), -1, prime) for r in roots], dtype=object), []
    for _ in range(count):
        found.append(int(values.sum()) * pow(ring, -1, prime) % prime)
        values = values * powers % prime
    return [c - prime if c > prime // 2 else c for c in found]


def test_a_contributor_who_sees_a_published_cross_table_learns_the_secret_key(
    owner: es.Owner, tmp_path: Path
) -> None:
    Contributor(owner.public_keys()).table().save(tmp_path / "site.enc")
    with pytest.raises(es.RowsByOthersError, check=error(REFUSED)):
        es.load(tmp_path / "site.enc").counts("v0", by="class")
    # Who asks for it computes, opens and publishes as always, and no check finds anything.
    result = es.load(tmp_path / "site.enc", by_others=True).counts("v0", by="class")
    published = owner.open(result, schema=SCHEMA).to_numpy()
    steps = STEP * np.arange(1, BINS)
    recovered = (published[:, 0].cumsum()[:-1] - steps).tolist()
    assert recovered == secret_coefficients(owner, BINS - 1)
    assert set(recovered) == {-1, 0, 1}


def test_the_attacker_cannot_claim_to_be_the_owner(owner: es.Owner, tmp_path: Path) -> None:
    Contributor(owner.public_keys()).table().save(tmp_path / "t")
    _claim_the_secret_key(tmp_path / "t")
    table = es.load(tmp_path / "t")
    assert not table.by_others
    for attempt in (
        lambda: table.counts("v0", by="class"),
        lambda: owner.encrypt(SCHEMA.table(FRAME)).append(table),
    ):
        with pytest.raises(es.FileFormatError, check=error("unsigned-block", owner.key_id)):
            attempt()


def _claim_the_secret_key(url: Path) -> None:
    def claimed(file: Container) -> Container:
        return replace(file, fields={**file.fields, "with_secret_key": True})

    content = objects(url)
    put(url, {**content, MANIFEST: rewritten_manifest(content[MANIFEST], claimed)})


@pytest.mark.parametrize("what", ["rows", "columns", "blocks of others"])
def test_a_signature_is_for_one_block_as_it_is(owner: es.Owner, tmp_path: Path, what: str) -> None:
    owner.encrypt(SCHEMA.table(FRAME, weight_bound=2)).save(tmp_path / "t")
    content = objects(tmp_path / "t")
    entries = container.from_bytes(content[MANIFEST]).section("blocks")
    if what == "blocks of others":  # with the signature of the owner's
        signature = _listed(entries)[0]["signature"]
        Contributor(owner.public_keys()).table().save(tmp_path / "forged")
        _claim_the_secret_key(tmp_path / "forged")
        put(tmp_path / "t", _with_entry(objects(tmp_path / "forged"), signature=signature))
    elif what == "rows":
        put(tmp_path / "t", _with_entry(content, rows=5))
    else:
        changed = rewritten_manifest(
            content[MANIFEST], lambda f: replace(f, fields={**f.fields, "weight_bound": 3})
        )
        put(tmp_path / "t", {**content, MANIFEST: changed})
    with pytest.raises(es.FileFormatError, check=error("unsigned-block")):
        es.load(tmp_path / "t").counts("v0", by="class")


def _listed(section: bytes) -> list[dict[str, Any]]:
    return json.loads(section)


def _with_entry(content: dict[str, bytes], **changes: Any) -> dict[str, bytes]:
    def changed(file: Container) -> Container:
        entries = [{**entry, **changes} for entry in _listed(file.section("blocks"))]
        return replace(file, sections={**file.sections, "blocks": json.dumps(entries).encode()})

    return {**content, MANIFEST: rewritten_manifest(content[MANIFEST], changed)}


# -- asking for it
# ------------------------------------------------------------------------------------------------


def test_rows_by_others_are_computed_on_only_when_asked_for(
    owner: es.Owner, by_public: es.EncryptedTable
) -> None:
    assert by_public.by_others
    for attempt in (
        lambda: by_public.counts("x"),
        lambda: es.MultinomialNB().fit(by_public),
        lambda: by_public.values(by_public.columns()[0]),
        lambda: owner.encrypt(SCHEMA.table(FRAME)).append(by_public),
        lambda: by_public.append(owner.encrypt(SCHEMA.table(FRAME))),
    ):
        with pytest.raises(es.RowsByOthersError, check=error(REFUSED)):
            attempt()
    asked = by_public.accept_others()
    assert owner.open(asked.counts("x"), schema=SCHEMA)["count"].tolist() == [4] * BINS


def test_a_stored_table_with_rows_by_others_keeps_asking(
    owner: es.Owner, by_public: es.EncryptedTable, tmp_path: Path
) -> None:
    own = SCHEMA.table(FRAME.iloc[::-1])
    owner.encrypt(own).save(tmp_path / "t")
    assert not es.load(tmp_path / "t").by_others
    grown = es.load(tmp_path / "t").append(by_public.accept_others())
    assert grown.by_others
    assert (
        owner.open(grown.counts("v0"))["count"].tolist() == [8] * BINS
    )  # asked for when it was appended
    again = es.load(tmp_path / "t")
    assert again.n_rows == 8 * BINS  # looking at it is no danger
    assert "by others   yes" in str(again.info())
    assert again.info().to_dict()["by_others"]
    with pytest.raises(es.RowsByOthersError, check=error(REFUSED)):
        again.counts("v0")
    with pytest.raises(es.RowsByOthersError, check=error(REFUSED)):
        es.load(tmp_path / "t").append(owner.encrypt(SCHEMA.table(FRAME[:3])))
    assert (
        owner.open(es.load(tmp_path / "t", by_others=True).counts("v0"))["count"].tolist()
        == [8] * BINS
    )


def test_tables_of_the_owner_are_signed_however_they_were_stored(
    owner: es.Owner, tmp_path: Path
) -> None:
    one, two = SCHEMA.table(FRAME), SCHEMA.table(FRAME.iloc[::-1])
    owner.encrypt(one, out=tmp_path / "a")
    owner.encrypt(one).append(owner.encrypt(two)).save(tmp_path / "b")
    es.load(tmp_path / "a").append(owner.encrypt(two))
    owner.encrypt(SCHEMA.table(FRAME[:5])).append(es.load(tmp_path / "a")).save(tmp_path / "c")
    for place, n in (("a", 2), ("b", 2), ("c", 3)):
        table = es.load(tmp_path / place)
        assert (len(table.blocks.rows), table.by_others) == (n, False)
        assert owner.open(table.counts("v0"))["count"].sum() == table.n_rows


# -- the same rows once more
# ---------------------------------------------------------------------------------------------


def test_rows_that_the_owner_encrypts_twice_are_noticed(owner: es.Owner, tmp_path: Path) -> None:
    rows = SCHEMA.table(FRAME)
    owner.encrypt(rows).save(tmp_path / "t")
    again = owner.encrypt(rows)
    with pytest.raises(es.SchemaError, check=error("block-already-included")):
        es.load(tmp_path / "t").append(again)
    fitted = es.MultinomialNB().fit(es.load(tmp_path / "t"))
    with pytest.raises(es.SchemaError, check=error("block-already-included")):
        fitted + es.MultinomialNB().fit(again)
    with_folds = owner.encrypt(SCHEMA.table(FRAME, folds=2))
    with pytest.raises(es.SchemaError, check=error("block-already-included")):
        fitted + es.MultinomialNB().fit(with_folds)
    assert not set(es.load(tmp_path / "t").blocks.ids) & set(
        again.blocks.ids
    )  # objects of two tables never share a name


def test_what_cannot_be_known_is_not_claimed(owner: es.Owner) -> None:
    few = SCHEMA.table(FRAME[:20])  # so few rows may be alike by chance
    assert owner.encrypt(few).append(owner.encrypt(few)).n_rows == 40
    moved = SCHEMA.table(pd.concat([FRAME[-1:], FRAME]))
    assert owner.encrypt(SCHEMA.table(FRAME)).append(owner.encrypt(moved)).n_rows == 8 * BINS + 1
    rows = SCHEMA.table(FRAME)
    sites = [
        owner.public_keys(packing=False).encrypt(rows).accept_others() for _ in range(2)
    ]  # two sites, without a secret
    assert sites[0].append(sites[1]).n_rows == 8 * BINS


# -- what the review of the cure found
# ---------------------------------------------------------------------------------------


def forged_block(owner: es.Owner, data: bytes, shape: BlockShape) -> bytes:
    """The same block, by its header and digests, with residues of somebody else."""
    block = container.from_bytes(data)
    other = owner.public_keys().encrypt(SCHEMA.table(FRAME))
    residues = pack_residues(other.blocks.block(0)[:, :1], replace(shape, seeded=True))
    return container.to_bytes(replace(block, sections={**block.sections, "residues": residues}))


def test_residues_that_the_signed_digests_are_not_of_are_refused(
    owner: es.Owner, tmp_path: Path
) -> None:
    """Also where a whole block is read at once: the hash of an object is not signed, those of its
    pieces are.
    """
    sealed = owner.encrypt(SCHEMA.table(FRAME), out=tmp_path / "t")
    name = sealed.blocks.entries[0].name
    data = forged_block(owner, (tmp_path / "t" / name).read_bytes(), sealed.facts.shape)
    put(tmp_path / "t", {**objects(tmp_path / "t"), name: data})
    manifest = (tmp_path / "t" / MANIFEST).read_bytes()

    def as_if_listed(file: Container) -> Container:
        entries = json.loads(file.section("blocks"))
        entries[0]["sha256"] = data[-32:].hex()
        return replace(file, sections={**file.sections, "blocks": json.dumps(entries).encode()})

    put(
        tmp_path / "t",
        {**objects(tmp_path / "t"), MANIFEST: rewritten_manifest(manifest, as_if_listed)},
    )
    forged = es.load(tmp_path / "t")
    with pytest.raises(es.FileFormatError, check=error("wrong-digest", "column 0")):
        forged.blocks.block(0)
    with pytest.raises(es.FileFormatError):
        forged.counts("v0", by="class")


def test_the_owner_signs_no_block_that_somebody_else_has_put_there(
    owner: es.Owner, tmp_path: Path
) -> None:
    """Names of blocks are public once they are written: what lies there when a table is saved again
    is not believed.
    """
    sealed = owner.encrypt(SCHEMA.table(FRAME))
    sealed.save(tmp_path / "t")
    listed = es.load(tmp_path / "t").blocks.entries[0]
    data = forged_block(owner, (tmp_path / "t" / listed.name).read_bytes(), sealed.facts.shape)
    (tmp_path / "again" / "blocks").mkdir(parents=True)
    (tmp_path / "again" / listed.name).write_bytes(data)
    sealed.save(tmp_path / "again")
    assert es.load(tmp_path / "again").blocks.entries[0].digests_sha256 == listed.digests_sha256
    opened = owner.open(es.load(tmp_path / "again").counts("v0"))
    assert opened.to_numpy().sum() == len(FRAME)


def test_a_forged_table_without_keys_is_not_appended_to_one_in_memory(
    owner: es.Owner, tmp_path: Path
) -> None:
    owner.public_keys().encrypt(SCHEMA.table(FRAME)).save(tmp_path / "t")
    manifest = (tmp_path / "t" / MANIFEST).read_bytes()
    claimed = rewritten_manifest(
        manifest, lambda file: replace(file, fields={**file.fields, "with_secret_key": True})
    )
    kept = {
        name: data for name, data in objects(tmp_path / "t").items() if not name.endswith(".keys")
    }
    put(tmp_path / "forged", {**kept, MANIFEST: claimed})
    with pytest.raises(es.FileFormatError, check=error("unsigned-block")):
        owner.encrypt(SCHEMA.table(FRAME)).append(es.load(tmp_path / "forged"))


def test_fractions_are_not_drawn_from_rows_of_others(
    owner: es.Owner, by_public: es.EncryptedTable
) -> None:
    """Which rows are drawn is public, so that a drawn fraction tells where single rows are."""
    forest = es.CompletelyRandomForest(n_trees=1, depth=1, fraction=2, random_state=1).fit(
        by_public.accept_others()
    )
    assert getattr(forest, "drawn_", None) is None
    with pytest.raises(es.RowsByOthersError, check=error("rows-by-others")):
        forest.draw_fraction(by_public)
