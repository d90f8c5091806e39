"""Tables of half the size: what is stored of whom, and that no seed is ever drawn twice, whatever
happens on the way.
"""

from __future__ import annotations

import errno
import json
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from encrypted_samples import (
    SLOTS,
    assert_twins,
    clear,
    manifest_of,
    mixed_frame,
    plain,
    rewritten_manifest,
    small_owner,
)

import encryptedstats as es
from encryptedstats.storage import container
from encryptedstats.storage.objects import FolderStore
from encryptedstats.tables.blocks import BLOCK_KIND
from encryptedstats.tables.facts import TABLE_VERSION
from encryptedstats.tables.manifest import MANIFEST
from error_codes import error

pytestmark = pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")


class Journal:
    """Every object that is handed to a store, also in runs that fail; ``fails`` makes one of them
    fail, written or not.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.objects: list[bytes] = []
        self._left: int | None = None
        self._written = False
        for way in ("create", "write"):
            monkeypatch.setattr(FolderStore, way, self._patched(getattr(FolderStore, way)))

    def fails(self, at: int, *, written: bool) -> None:
        """The block of this number is the last of its run."""
        self._left, self._written = at, written

    def _patched(self, real):
        def call(store, name, data):
            if not name.startswith("blocks/"):
                return real(store, name, data)
            content = data if isinstance(data, bytes) else b"".join(data)
            self.objects.append(content)
            last = self._left == 1
            self._left = None if last or self._left is None else self._left - 1
            if last and not self._written:
                raise OSError(errno.ENOSPC, "No space left on device")
            answer = real(store, name, data)
            if last:  # there, and nobody is told
                raise OSError(errno.EIO, "Input/output error")
            return answer

        return call

    def ciphertexts(self) -> dict[bytes, set[bytes]]:
        """By their seeds, all first polynomials that were ever written with them: by the digests of
        their pieces.
        """
        found = defaultdict(set)
        for data in self.objects:
            block = container.from_bytes(data, kind=BLOCK_KIND)
            seeds, columns = block.section("seeds"), block.fields["columns"]
            digests = np.frombuffer(block.section("digests"), dtype=np.uint8).reshape(
                -1, columns, 16
            )
            for column in range(columns):
                found[seeds[32 * column : 32 * (column + 1)]].add(digests[:, column].tobytes())
        return found


@pytest.mark.parametrize("workers", [1, 2])
def test_no_seed_twice_in_resumed_appended_forked_and_repeated_encryption(
    keeper, schema, tmp_path, monkeypatch, workers
):
    journal, frame = Journal(monkeypatch), mixed_frame(3 * SLOTS + 5)
    table, columns = schema.table(frame), len(schema.table(frame).stored_columns())
    for at, written in (
        (2, False),
        (1, True),
        (1, True),
    ):  # a full disk; then answers that are lost
        journal.fails(at, written=written)
        with pytest.raises(OSError):
            keeper.encrypt(table, out=tmp_path / "t", workers=workers)
    sealed = keeper.encrypt(table, out=tmp_path / "t", workers=workers)
    assert plain(keeper, es.load(tmp_path / "t")) == clear(table)
    # The same rows again, in its place, and elsewhere from a file.
    keeper.encrypt(table, out=tmp_path / "t", overwrite=True, workers=workers)
    frame.to_csv(tmp_path / "rows.csv", index=False)
    keeper.encrypt_file(tmp_path / "rows.csv", schema, tmp_path / "file", workers=workers)
    # More rows, twice: the first time the answer is lost.
    more = keeper.encrypt(schema.table(mixed_frame(SLOTS + 7, seed=8)), workers=workers)
    journal.fails(2, written=True)
    with pytest.raises(OSError):
        es.load(tmp_path / "t").append(more)
    grown = es.load(tmp_path / "t").append(more)
    assert len(grown) == len(sealed) + SLOTS + 7

    ciphertexts = journal.ciphertexts()
    assert all(len(polynomials) == 1 for polynomials in ciphertexts.values()), (
        "one seed, two ciphertexts"
    )
    together = [polynomial for polynomials in ciphertexts.values() for polynomial in polynomials]
    assert len(set(together)) == len(together)
    # 4 blocks of each of three runs that went through, what the broken ones had handed over, and
    # the appended ones.
    assert len(ciphertexts) >= columns * (4 + 4 + 4 + 2)


def test_a_table_is_stored_as_it_was_encrypted(keeper, schema, tmp_path):
    """With its seeds, also when it is stored twice or copied: there is one version of a
    ciphertext.
    """
    table = schema.table(mixed_frame(SLOTS + 9))
    sealed = keeper.encrypt(table)
    for name in ("one", "two"):
        sealed.save(tmp_path / name)
    es.load(tmp_path / "one").save(tmp_path / "three")
    stored = [es.load(tmp_path / name) for name in ("one", "two", "three")]
    for other in stored:
        assert all(entry.seeded for entry in other.blocks.entries)
        assert [other.blocks.seeds(i) for i in range(2)] == [
            sealed.blocks.seeds(i) for i in range(2)
        ]
        for index in range(2):
            np.testing.assert_array_equal(other.blocks.block(index), sealed.blocks.block(index))
        assert_twins(keeper, other, table)
    assert {entry.digests_sha256 for other in stored for entry in other.blocks.entries[:1]} == {
        stored[0].blocks.entries[0].digests_sha256
    }


def test_whole_where_it_is_asked_for(small, schema, tmp_path):
    table = schema.table(mixed_frame(SLOTS + 9))
    half, whole = (
        small.encrypt(table, out=tmp_path / "half"),
        small.encrypt(table, out=tmp_path / "whole", whole=True),
    )
    assert [entry.seeded for entry in whole.blocks.entries] == [False, False]
    assert 1.9 < whole.info().to_dict()["bytes"] / half.info().to_dict()["bytes"] < 2.0
    in_memory = small.encrypt(table, whole=True)
    assert in_memory.blocks.seeds(0) == b""
    for sealed in (half, whole, in_memory, es.load(tmp_path / "half"), es.load(tmp_path / "whole")):
        assert_twins(small, sealed, table)


def test_rows_by_others_are_whole_and_can_stand_beside_the_owners(tmp_path, schema):
    owner = small_owner(for_others=True)
    mine, theirs = schema.table(mixed_frame(SLOTS)), schema.table(mixed_frame(SLOTS, seed=3))
    owner.encrypt(mine, out=tmp_path)
    given = owner.public_keys().encrypt(theirs).accept_others()
    joined = es.load(tmp_path).append(given)
    assert [entry.seeded for entry in joined.blocks.entries] == [True, False]
    assert [len(joined.blocks.seeds(i)) for i in range(2)] == [32 * len(joined.facts.columns), 0]
    again = es.load(tmp_path, by_others=True)
    for column in again.columns():
        expected = [*mine.values(column), *theirs.values(column)]
        np.testing.assert_array_equal(owner.open(again.values(column)), expected)


def test_how_a_block_is_stored_is_signed(keeper, schema, tmp_path):
    """A manifest that takes a whole block for one with seeds, with a start at which its length
    fits.
    """
    sealed = keeper.encrypt(schema.table(mixed_frame(9)), out=tmp_path, whole=True)
    shape = replace(sealed.facts.shape, seeded=True)

    def flipped(file: container.Container) -> container.Container:
        (entry,) = json.loads(file.section("blocks"))
        entry |= {
            "seeded": True,
            "start": entry["bytes"] - 32 - shape.residue_bytes - shape.head_bytes,
        }
        return replace(file, sections={**file.sections, "blocks": json.dumps([entry]).encode()})

    (tmp_path / MANIFEST).write_bytes(rewritten_manifest(manifest_of(tmp_path), flipped))
    with pytest.raises(es.FileFormatError, check=error("unsigned-block")):
        es.load(tmp_path).counts("v0")


def test_half_of_the_bytes(real, tmp_path):
    """At most 22 bytes a value of a full ciphertext with four primes, where both polynomials take
    43.
    """
    frame = mixed_frame(8192)[["before", "sick"]]
    table = es.Schema.infer(frame, target="sick", kinds={"before": "ordinal"}).table(frame)
    assert real.encrypt(table, out=tmp_path / "half").info().to_dict()["bytes_per_value"] <= 22
    assert (
        real.encrypt(table, out=tmp_path / "whole", whole=True).info().to_dict()["bytes_per_value"]
        > 42
    )


def test_tables_of_another_version_are_refused_clearly(keeper, schema, tmp_path):
    keeper.encrypt(schema.table(mixed_frame(9)), out=tmp_path)
    path = tmp_path / "table.manifest"
    file = container.from_bytes(path.read_bytes())
    for version, message in (
        (
            None,
            "a table of version 1, and this library reads 3, .* encrypt the rows again, the same "
            "keys will do",
        ),
        (TABLE_VERSION + 1, "a table of version 4; this library reads 3: upgrade it"),
        ("2", "a table of version '2'"),
        (0, "a table of version 0"),
    ):
        fields = {name: value for name, value in file.fields.items() if name != "version"}
        fields |= {} if version is None else {"version": version}
        changed = container.Container(
            file.kind, file.fingerprint, file.key_id, fields, file.sections
        )
        path.write_bytes(container.to_bytes(changed))
        with pytest.raises(es.FileFormatError, match=message):
            es.load(tmp_path)
