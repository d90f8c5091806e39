"""Blocks: any part is read without the rest, and a damaged part is found, named, and does not spoil
the others.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from dataclasses import replace

import numpy as np
import pytest
from encrypted_samples import rewritten_manifest
from hypothesis import given, settings
from hypothesis import strategies as st

import encryptedstats as es
from encryptedstats.crypto.seeded import expand_seeds
from encryptedstats.errors import FileFormatError
from encryptedstats.storage.container import MAX_HEADER_BYTES
from encryptedstats.tables import blocks
from encryptedstats.tables.blocks import (
    BlockEntry,
    BlockRows,
    BlockShape,
    block_bytes,
    block_entry,
    block_id_of,
    block_name,
    block_size,
    block_statement,
    pack_residues,
    read_block,
    read_column,
    read_columns,
    read_runs,
    read_seeds,
)
from error_codes import error

ID = "0123456789abcdef" * 2
KEY = "00112233445566ff"
NAME = block_name(7, ID)


def parameters(ring: int = 2048, bits: tuple[int, ...] = (40, 41, 43, 44)) -> es.Parameters:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", es.InsecureParametersWarning)
        return es.Parameters.from_bits("bgv", ring, 4000, bits, allow_insecure=True)


def random_residues(shape: BlockShape, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    ring, moduli = shape.parameters.ring_degree, shape.parameters.data_moduli
    return np.stack(
        [rng.integers(0, p, (shape.n_columns, 2, ring), dtype=np.uint64) for p in moduli], axis=2
    )


class RecordingStore:
    """Objects in a dictionary that knows how much was read of them."""

    url = "recording"

    def __init__(self, objects: dict[str, bytes]) -> None:
        self.objects = objects
        self.reads: list[tuple[int, int]] = []

    def where(self, name: str) -> str:
        return f"recording/{name}"

    def read(
        self, name: str, start: int = 0, length: int | None = None, *, limit: int = 1 << 30
    ) -> bytes:
        data = (
            self.objects[name][start:]
            if length is None
            else self.objects[name][start : start + length]
        )
        self.reads.append((start, len(data)))
        return data

    def read_ranges(self, name: str, ranges: list[tuple[int, int]]) -> list[bytes]:
        return [self.read(name, start, length) for start, length in ranges]


SHAPE = BlockShape(parameters(), 3)
RESIDUES = random_residues(SHAPE)
DATA = block_bytes(RESIDUES, SHAPE, rows=BlockRows(ID, 1500, KEY))


def read_pieces(store, entry, shape, *, prime, run, columns=None):
    """One run of coefficients, of some or all columns."""
    chosen = range(shape.n_columns) if columns is None else columns
    return read_runs(store, entry, shape, prime=prime, runs=range(run, run + 1), columns=chosen)


ENTRY = block_entry(DATA, NAME, SHAPE, KEY, "made")


@pytest.fixture
def store():
    return RecordingStore({NAME: DATA})


def test_shape():
    assert (SHAPE.run, SHAPE.n_runs, SHAPE.n_primes) == (1024, 2, 3)
    assert [SHAPE.bits(p) for p in range(3)] == [40, 41, 43]
    assert SHAPE.piece_bytes(1) == 2 * 1024 * 41 // 8
    starts = [SHAPE.piece_start(p, r, c) for p in range(3) for r in range(2) for c in range(3)]
    sizes = [SHAPE.piece_bytes(p) for p in range(3) for _ in range(6)]
    assert starts == [sum(sizes[:i]) for i in range(18)]
    assert SHAPE.residue_bytes == sum(sizes) == 2048 * 2 * 3 * (40 + 41 + 43) // 8
    assert SHAPE.digest_bytes == 16 * 18
    assert len(DATA) - ENTRY.start == SHAPE.residue_bytes + SHAPE.digest_bytes + 32


@pytest.mark.parametrize(("ring", "columns"), [(1024, 1), (1024, 4), (4096, 2)])
def test_packing_is_undone(ring, columns):
    shape = BlockShape(parameters(ring), columns)
    residues = random_residues(shape, ring + columns)
    assert len(pack_residues(residues, shape)) == shape.residue_bytes
    data = block_bytes(residues, shape, rows=BlockRows(ID, 7, KEY))
    entry = block_entry(data, NAME, shape, KEY, "made")
    np.testing.assert_array_equal(
        read_block(RecordingStore({NAME: data}), entry, shape, KEY), residues
    )


def test_whole_block(store):
    np.testing.assert_array_equal(read_block(store, ENTRY, SHAPE, KEY), RESIDUES)
    assert len(store.reads) == 1


def test_pieces_are_slices(store):
    for prime in range(3):
        for run in range(2):
            expected = RESIDUES[:, :, prime, run * 1024 : (run + 1) * 1024]
            np.testing.assert_array_equal(
                read_pieces(store, ENTRY, SHAPE, prime=prime, run=run), expected
            )
            for columns in ([1], [2, 0], [0, 1, 2]):
                some = read_pieces(store, ENTRY, SHAPE, prime=prime, run=run, columns=columns)
                np.testing.assert_array_equal(some, expected[columns])


WIDE = BlockShape(parameters(), 9)
WIDE_RESIDUES = random_residues(WIDE, 5)
WIDE_DATA = block_bytes(WIDE_RESIDUES, WIDE, rows=BlockRows(ID, 1500, KEY))
WIDE_ENTRY = block_entry(WIDE_DATA, NAME, WIDE, KEY, "made")


@pytest.mark.parametrize(
    ("columns", "stretches"),
    [
        ([4], 1),
        ([2, 3, 4], 1),
        ([0, 8], 2),
        ([1, 2, 5, 8], 3),
        ([7, 0, 1], 2),
        ([3, 3], 1),
        (range(5), None),
        (range(9), None),
    ],
)
def test_some_columns_are_read_without_the_rest(columns, stretches):
    store = RecordingStore({NAME: WIDE_DATA})
    np.testing.assert_array_equal(
        read_columns(store, WIDE_ENTRY, WIDE, KEY, list(columns)), WIDE_RESIDUES[list(columns)]
    )
    if stretches is None:  # more than half of the block: all of it, at once
        assert store.reads == [(0, len(WIDE_DATA))]
        return
    assert len(store.reads) == 1 + 3 * 2 * stretches  # the digests, then primes and runs
    assert (
        sum(length for _, length in store.reads)
        == WIDE.digest_bytes + len(set(columns)) * WIDE.residue_bytes // 9
    )


def test_damage_in_some_columns_is_found_in_them_alone():
    at = WIDE_ENTRY.start + WIDE.digest_bytes + WIDE.piece_start(1, 1, 4) + 17
    store = RecordingStore(
        {NAME: WIDE_DATA[:at] + bytes([WIDE_DATA[at] ^ 4]) + WIDE_DATA[at + 1 :]}
    )
    with pytest.raises(FileFormatError, check=error("wrong-digest", NAME)):
        read_columns(store, WIDE_ENTRY, WIDE, KEY, [3, 4])
    np.testing.assert_array_equal(
        read_columns(store, WIDE_ENTRY, WIDE, KEY, [3, 5]), WIDE_RESIDUES[[3, 5]]
    )
    cut = RecordingStore({NAME: WIDE_DATA[:at]})
    with pytest.raises(FileFormatError, check=error("wrong-digest", "column 4", "1")):
        read_columns(cut, WIDE_ENTRY, WIDE, KEY, [4])


def test_a_piece_is_read_without_the_rest(store):
    read_pieces(store, ENTRY, SHAPE, prime=1, run=1)
    assert len(store.reads) == 2  # the digests, and one contiguous range for all columns
    assert sum(length for _, length in store.reads) == SHAPE.digest_bytes + 3 * SHAPE.piece_bytes(1)
    store.reads.clear()
    for column in range(3):
        np.testing.assert_array_equal(read_column(store, ENTRY, SHAPE, column), RESIDUES[column])
        assert (
            sum(length for _, length in store.reads)
            == SHAPE.digest_bytes + SHAPE.residue_bytes // 3
        )
        assert len(store.reads) == 1 + 6  # the digests once
        store.reads.clear()


@settings(deadline=None)
@given(place=st.integers(0, SHAPE.residue_bytes - 1), flip=st.integers(1, 255))
def test_a_flipped_byte_is_found_in_the_very_piece(place, flip):
    data = bytearray(DATA)
    data[ENTRY.start + SHAPE.digest_bytes + place] ^= flip
    store = RecordingStore({NAME: bytes(data)})
    for prime in range(3):
        for run in range(2):
            for column in range(3):
                start = SHAPE.piece_start(prime, run, column)
                if start <= place < start + SHAPE.piece_bytes(prime):
                    text = (
                        rf"recording/{NAME} is damaged in column {column}, prime {prime}, run "
                        rf"{run}: its digest"
                    )
                    for columns in ([column], None):
                        with pytest.raises(FileFormatError, match=text):
                            read_pieces(store, ENTRY, SHAPE, prime=prime, run=run, columns=columns)
                    with pytest.raises(FileFormatError, match=text):
                        read_column(store, ENTRY, SHAPE, column)
                else:
                    good = read_pieces(store, ENTRY, SHAPE, prime=prime, run=run, columns=[column])
                    np.testing.assert_array_equal(
                        good[0], RESIDUES[column, :, prime, run * 1024 : (run + 1) * 1024]
                    )
    with pytest.raises(FileFormatError, check=error("wrong-digest", NAME)):
        read_block(store, ENTRY, SHAPE, KEY)


@settings(deadline=None)
@given(place=st.integers(0, SHAPE.digest_bytes - 1), flip=st.integers(1, 255))
def test_a_flipped_digest_is_found(place, flip):
    data = bytearray(DATA)
    data[ENTRY.start + place] ^= flip
    store = RecordingStore({NAME: bytes(data)})
    for read in (
        lambda: read_pieces(store, ENTRY, SHAPE, prime=0, run=0),
        lambda: read_column(store, ENTRY, SHAPE, 1),
    ):
        with pytest.raises(FileFormatError, check=error("block-not-listed", NAME)):
            read()


@settings(deadline=None)
@given(length=st.integers(0, len(DATA) - 1))
def test_a_block_cut_short_is_found(length):
    store = RecordingStore({NAME: DATA[:length]})
    with pytest.raises(FileFormatError, check=error("block-not-listed", NAME)):
        read_block(store, ENTRY, SHAPE, KEY)
    last = {"prime": 2, "run": 1, "columns": [2]}
    if length < ENTRY.start + SHAPE.digest_bytes + SHAPE.residue_bytes:
        with pytest.raises(FileFormatError, match=f"recording/{NAME}"):
            read_pieces(store, ENTRY, SHAPE, **last)
    else:
        np.testing.assert_array_equal(
            read_pieces(store, ENTRY, SHAPE, **last)[0], RESIDUES[2, :, 2, 1024:]
        )


def test_other_blocks_are_refused():
    others = {
        "its id": block_bytes(RESIDUES, SHAPE, rows=BlockRows(ID[::-1], 1500, KEY)),
        "its rows": block_bytes(RESIDUES, SHAPE, rows=BlockRows(ID, 1499, KEY)),
        "its residues": block_bytes(
            random_residues(SHAPE, 5), SHAPE, rows=BlockRows(ID, 1500, KEY)
        ),
    }
    for data in others.values():
        store = RecordingStore({NAME: data})
        with pytest.raises(FileFormatError, check=error("block-not-listed", NAME)):
            read_block(store, ENTRY, SHAPE, KEY)
    # And when the manifest was made to fit as well:
    for what, data in others.items():
        if what != "its residues":
            listed = block_entry(data, NAME, SHAPE, KEY, "made")
            forged = replace(ENTRY, sha256=listed.sha256, head_sha256=listed.head_sha256)
            with pytest.raises(FileFormatError, check=error("wrong-block-id", ID)):
                read_block(RecordingStore({NAME: data}), forged, SHAPE, KEY)


def test_a_block_of_another_key_or_shape_is_refused():
    for key, shape, message in (
        ("ffff", SHAPE, "belongs to another key or other parameters"),
        (
            KEY,
            BlockShape(parameters(bits=(40, 41, 43, 45)), 3),
            "belongs to another key or other parameters",
        ),
        (KEY, BlockShape(SHAPE.parameters, 2), "has another shape than its table"),
    ):
        with pytest.raises(FileFormatError, match=f"here {message}"):
            block_entry(DATA, NAME, shape, key, "here")


@pytest.mark.parametrize("prime", range(3))
def test_residues_that_are_no_residues_are_refused(prime):
    """Evaluators compute on what is read without looking: a residue is below its prime, whatever
    the hashes say.
    """
    residues = RESIDUES.copy()
    residues[1, 1, prime, 5] = SHAPE.parameters.data_moduli[prime]
    data = block_bytes(residues, SHAPE, rows=BlockRows(ID, 1500, KEY))
    entry, store = block_entry(data, NAME, SHAPE, KEY, "made"), RecordingStore({NAME: data})
    message = f"recording/{NAME} holds residues that are not below prime {prime}"
    for read in (
        lambda: read_block(store, entry, SHAPE, KEY),
        lambda: read_column(store, entry, SHAPE, 1),
        lambda: read_pieces(store, entry, SHAPE, prime=prime, run=0),
    ):
        with pytest.raises(FileFormatError, match=message):
            read()
    np.testing.assert_array_equal(read_column(store, entry, SHAPE, 0), RESIDUES[0])


@pytest.mark.parametrize(
    "change",
    [
        lambda c: replace(
            c, sections={"residues": c.sections["residues"], "digests": c.sections["digests"]}
        ),
        lambda c: replace(c, sections={"residues": c.sections["residues"]}),
        lambda c: replace(c, sections={"seeds": bytes(96), **c.sections}),
        lambda c: replace(c, sections={**c.sections, "more": b""}),
        lambda c: replace(c, fields={k: v for k, v in c.fields.items() if k != "id"}),
        lambda c: replace(c, fields={**c.fields, "rows": True}),
        lambda c: replace(c, fields={**c.fields, "id": 5}),
        lambda c: replace(c, fields={**c.fields, "columns": 4}),
    ],
)
def test_forged_blocks_are_refused_by_name(change):
    with pytest.raises(FileFormatError, check=error("wrong-block-shape")):
        block_entry(rewritten_manifest(DATA, change), NAME, SHAPE, KEY, "here")
    with pytest.raises(FileFormatError, check=error("wrong-kind", "'something'")):
        block_entry(
            rewritten_manifest(DATA, lambda c: replace(c, kind="something")),
            NAME,
            SHAPE,
            KEY,
            "here",
        )


# ------------------------------------------------------------------------------ seeds for the
# second polynomials

SEEDED = replace(SHAPE, seeded=True)
SEEDS = bytes(range(96))
BOTH = RESIDUES.copy()
expand_seeds(SEEDS, SHAPE.parameters.data_moduli, BOTH)
HALF = block_bytes(BOTH[:, :1], SEEDED, seeds=SEEDS, rows=BlockRows(ID, 1500, KEY))
HALF_ENTRY = block_entry(HALF, NAME, SHAPE, KEY, "made")


def test_a_seeded_block_is_half_of_a_whole_one():
    assert SEEDED.residue_bytes == SHAPE.residue_bytes // 2
    assert SEEDED.sections == {
        "seeds": 96,
        "digests": SHAPE.digest_bytes,
        "residues": SHAPE.residue_bytes // 2,
    }
    assert len(HALF) == HALF_ENTRY.bytes == block_size(SEEDED, 1500) - len("0" * 32) + len(KEY)
    assert (HALF_ENTRY.seeded, ENTRY.seeded) == (True, False)
    assert BlockEntry.from_dict(json.loads(json.dumps(HALF_ENTRY.to_dict())), SHAPE) == HALF_ENTRY


def test_any_part_of_a_seeded_block_is_read_without_the_rest():
    store = RecordingStore({NAME: HALF})
    np.testing.assert_array_equal(read_block(store, HALF_ENTRY, SHAPE, KEY), BOTH)
    assert read_seeds(store, HALF_ENTRY, SHAPE) == SEEDS
    assert read_seeds(RecordingStore({NAME: DATA}), ENTRY, SHAPE) == b""
    for column in range(3):
        np.testing.assert_array_equal(read_column(store, HALF_ENTRY, SHAPE, column), BOTH[column])
    store.reads.clear()
    for prime, run in ((0, 1), (2, 0)):
        for columns in ([1], [2, 0], [0, 1, 2]):
            part = read_pieces(store, HALF_ENTRY, SHAPE, prime=prime, run=run, columns=columns)
            np.testing.assert_array_equal(
                part, BOTH[columns, :, prime, run * 1024 : (run + 1) * 1024]
            )
    most = SEEDED.head_bytes + 3 * SEEDED.piece_bytes(2)
    assert max(length for _, length in store.reads) <= most


@settings(deadline=None)
@given(place=st.integers(0, SEEDED.head_bytes - 1), flip=st.integers(1, 255))
def test_a_flipped_seed_is_found(place, flip):
    """The owner signs the seeds with the digests: another seed would be another ciphertext."""
    data = bytearray(HALF)
    data[HALF_ENTRY.start + place] ^= flip
    store = RecordingStore({NAME: bytes(data)})
    for read in (
        lambda: read_pieces(store, HALF_ENTRY, SHAPE, prime=0, run=0),
        lambda: read_block(store, HALF_ENTRY, SHAPE, KEY),
        lambda: read_seeds(store, HALF_ENTRY, SHAPE),
    ):
        with pytest.raises(FileFormatError, check=error("block-not-listed", NAME)):
            read()


@pytest.mark.parametrize("length", [0, 95, 96, 100, SEEDED.head_bytes - 16])
def test_a_short_head_is_refused_whatever_hash_is_listed(length):
    """Of rows by others nothing is signed: who forges the manifest lists what fits an object that
    ends within its head.
    """
    store = RecordingStore({NAME: HALF[: HALF_ENTRY.start + length]})
    head = HALF[HALF_ENTRY.start :][:length]
    forged = replace(HALF_ENTRY, digests_sha256=hashlib.sha256(head).hexdigest())
    for read in (
        lambda: read_pieces(store, forged, SHAPE, prime=0, run=0),
        lambda: read_column(store, forged, SHAPE, 1),
        lambda: read_seeds(store, forged, SHAPE),
    ):
        with pytest.raises(FileFormatError, check=error("block-not-listed", NAME)):
            read()


def test_all_facts_of_a_block_are_signed():
    facts = {"version": 2, "columns": ["class0", "class1"], "weight_bound": 1, "schema": "{}"}
    statements = {block_statement(ENTRY, **facts)}
    for change in (
        {"version": 3},
        {"columns": ["class1", "class0"]},
        {"weight_bound": 2},
        {"schema": "{ }"},
    ):
        statements.add(block_statement(ENTRY, **{**facts, **change}))
    for change in (
        {"id": ID[::-1]},
        {"rows": 1499},
        {"seeded": True},
        {"digests_sha256": "0" * 64},
    ):
        statements.add(block_statement(replace(ENTRY, **change), **facts))
    assert len(statements) == 9


@pytest.mark.parametrize("seeds", [b"", SEEDS[:-1], SEEDS + b"x", SEEDS[:64]])
def test_seeds_of_another_length_are_refused(seeds):
    with pytest.raises(ValueError, check=error("wrong-block-shape", len(seeds))):
        block_bytes(BOTH[:, :1], SEEDED, seeds=seeds, rows=BlockRows(ID, 1500, KEY))
    with pytest.raises(ValueError, check=error("wrong-seed-length", "3", "32")):
        expand_seeds(seeds, SHAPE.parameters.data_moduli, BOTH.copy())
    forged = rewritten_manifest(HALF, lambda c: replace(c, sections={**c.sections, "seeds": seeds}))
    with pytest.raises(FileFormatError, check=error("wrong-block-shape")):
        block_entry(forged, NAME, SHAPE, KEY, "here")
    for entry in (
        replace(HALF_ENTRY, bytes=len(forged)),
        replace(HALF_ENTRY, seeded=False),
        replace(ENTRY, seeded=True),
    ):
        with pytest.raises(FileFormatError, check=error("impossible-block-entry")):
            BlockEntry.from_dict(entry.to_dict(), SHAPE)


def test_a_seeded_block_does_not_pass_for_a_whole_one():
    """A manifest that was made to fit by somebody who is no owner: the object says itself what it
    is.
    """
    twisted = replace(ENTRY, seeded=True)
    with pytest.raises(FileFormatError, check=error("block-not-listed", NAME)):
        read_block(RecordingStore({NAME: DATA}), twisted, SHAPE, KEY)


@pytest.mark.parametrize("prime", range(3))
def test_seeded_residues_that_are_no_residues_are_refused(prime):
    residues = BOTH[:, :1].copy()
    residues[2, 0, prime, 1030] = SHAPE.parameters.data_moduli[prime]
    data = block_bytes(residues, SEEDED, seeds=SEEDS, rows=BlockRows(ID, 1500, KEY))
    entry, store = block_entry(data, NAME, SHAPE, KEY, "made"), RecordingStore({NAME: data})
    for read in (
        lambda: read_block(store, entry, SHAPE, KEY),
        lambda: read_column(store, entry, SHAPE, 2),
    ):
        with pytest.raises(FileFormatError, check=error("residues-too-large", NAME, prime)):
            read()


def test_numbers_of_more_bits_than_their_prime_are_not_packed():
    residues = RESIDUES.copy()
    residues[0, 0, 0, 0] = 1 << 40
    with pytest.raises(ValueError, check=error("value-too-large", "40")):
        pack_residues(residues, SHAPE)


@pytest.mark.parametrize("at_once", [1, 4, 100])
@pytest.mark.parametrize("cores", [1, 3])
def test_the_same_on_any_number_of_threads(monkeypatch, cores, at_once):
    monkeypatch.setattr(blocks, "_WORTH_THREADS", 0)
    monkeypatch.setattr(blocks, "_PIECES_AT_ONCE", at_once)
    monkeypatch.setattr(blocks, "cores", lambda: cores)
    blocks._readers.cache_clear()
    np.testing.assert_array_equal(
        read_block(RecordingStore({NAME: HALF}), HALF_ENTRY, SHAPE, KEY), BOTH
    )
    at = HALF_ENTRY.start + SEEDED.head_bytes + SEEDED.piece_start(1, 1, 2) + 5
    store = RecordingStore({NAME: HALF[:at] + bytes([HALF[at] ^ 1]) + HALF[at + 1 :]})
    with pytest.raises(FileFormatError, check=error("wrong-digest", "column 2", "1")):
        read_block(store, HALF_ENTRY, SHAPE, KEY)
    blocks._readers.cache_clear()


# ---------------------------------------------------------------------------------------- entri
# of the manifest


def test_entries_travel_as_json():
    assert BlockEntry.from_dict(json.loads(json.dumps(ENTRY.to_dict())), SHAPE) == ENTRY
    assert (ENTRY.id, ENTRY.rows, ENTRY.name, ENTRY.bytes) == (ID, 1500, NAME, len(DATA))


@pytest.mark.parametrize(
    "name",
    [
        "../x", "/etc/passwd", "blocks/../../x", "blocks/..", "blocks", "", ".", "blocks\\x", "\0", "x" * 5000, "\ud800",
        "table.manifest", "public.keys", f"blocks/000007-{ID[::-1]}", f"blocks/7-{ID}", f"blocks/000007-{ID}/x",
        f"blocks/000007-{ID}\n", f"./blocks/000007-{ID}", f"blocks/0000000000007-{ID}", f"file:///blocks/000007-{ID}",
        f"blocks/٠٠٠٠٠٧-{ID}",
    ],
)  # fmt: skip
def test_names_that_no_block_has(name):
    assert block_id_of(name) != ID
    with pytest.raises(FileFormatError, check=error("impossible-block-entry")):
        BlockEntry.from_dict({**ENTRY.to_dict(), "name": name}, SHAPE)


@pytest.mark.parametrize(
    "change",
    [
        {"rows": 0}, {"rows": -1}, {"rows": 2049}, {"rows": 10**30}, {"start": 0}, {"start": -5}, {"start": ENTRY.start + 1},
        {"bytes": ENTRY.bytes + 1}, {"bytes": 10**30}, {"start": 2**70, "bytes": 2**70 + len(DATA) - ENTRY.start},
        {"start": 4 * MAX_HEADER_BYTES, "bytes": 4 * MAX_HEADER_BYTES + len(DATA) - ENTRY.start}, {"id": "x"}, {"id": ID.upper()},
    ],
)  # fmt: skip
def test_numbers_that_cannot_be(change):
    with pytest.raises(FileFormatError, check=error("impossible-block-entry")):
        BlockEntry.from_dict({**ENTRY.to_dict(), **change}, SHAPE)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**80), 2**80) | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=5,
)


@given(st.sampled_from([*ENTRY.to_dict(), "another"]), json_values)
def test_entries_with_anything_in_them(field, value):
    values = {**ENTRY.to_dict(), field: value}
    try:
        entry = BlockEntry.from_dict(values, SHAPE)
    except FileFormatError:
        return
    assert entry.to_dict() == values
    assert 0 < entry.rows <= 2048


@given(json_values)
def test_entries_that_are_none(value):
    with pytest.raises(FileFormatError, check=error("malformed-block-entry")):
        BlockEntry.from_dict(value, SHAPE)
