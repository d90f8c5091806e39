"""A stored table is read once, in bounded memory, whatever the circuit; and a fit that was killed
goes on from its checkpoint.
"""

from __future__ import annotations

import hashlib
import json
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from circuit_samples import insecure, lowered

import encryptedstats as es
from encryptedstats import progress
from encryptedstats.circuits import Expression, Layout, slices
from encryptedstats.circuits.bounds import ColumnRange
from encryptedstats.circuits.devices.native import sums as native
from encryptedstats.circuits.devices.native.sums import Loads, SumsEvaluator, sums_in_batches
from encryptedstats.circuits.evaluate import evaluate
from encryptedstats.circuits.lowering import FLAT
from encryptedstats.circuits.slices import CHECKPOINT, Slice, slices_of
from encryptedstats.circuits.sources import Source
from encryptedstats.errors import DeviceError
from encryptedstats.machine import default_limit
from encryptedstats.storage import container
from encryptedstats.storage.objects import FolderStore
from encryptedstats.tables import EncryptedTable
from encryptedstats.tables.columns import rewrite_in_stored
from error_codes import error

pytest.importorskip("encryptedstats._fused")
pytestmark = pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")

RING, ROWS, BITS = (
    4096,
    9000,
    (46, 47, 48, 49),
)  # three chunks, three data primes, four runs of coefficients each
FOREST = {"n_trees": 6, "depth": 2, "random_state": 3}
SMALL = 4 << 20  # bytes: neither the columns nor the sums have room in it


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[es.Owner, Path]:
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(
        {
            "u": rng.normal(size=ROWS),
            "v": rng.choice(list("abcd"), ROWS),
            "y": rng.integers(0, 3, ROWS),
        }
    )
    owner = es.Owner(insecure("bgv", ROWS, BITS, RING))
    place = tmp_path_factory.mktemp("stored")
    owner.encrypt(es.Schema.infer(frame, target="y", bins=4).table(frame), out=place / "table")
    owner.save(place / "owner.key")
    return owner, place / "table"


@pytest.fixture
def sealed(stored: tuple[es.Owner, Path]) -> EncryptedTable:
    return EncryptedTable.load(stored[1])


@pytest.fixture(scope="module")
def by_seal(stored: tuple[es.Owner, Path]) -> Any:
    """The totals of the forest, as SEAL computes them: once for all who compare."""
    sealed = EncryptedTable.load(stored[1])
    return sealed.evaluate(circuit(sealed), device="seal", workers=1)


def circuit(table: EncryptedTable, **changes: Any) -> list[Expression]:
    asked = es.CompletelyRandomForest(**{**FOREST, **changes}).circuit(
        table.schema, table.columns()
    )
    return rewrite_in_stored(asked, table.schema, table.facts.columns)[0]


def totals_bytes(outputs: list[Expression], table: EncryptedTable) -> int:
    return sum(table.parameters.ciphertext_bytes(2 + depth) for depth in map(_products, outputs))


def _products(output: Expression) -> int:
    return es.circuits.expressions.depth_of([output])


@contextmanager
def watched_reads() -> Iterator[Counter[tuple[str, int]]]:
    """How often every byte of the residues of every object is read; whole objects count for all of
    their bytes.
    """
    seen: Counter[tuple[str, int]] = Counter()
    ranges, whole = FolderStore.read_ranges, FolderStore.read

    def read_ranges(self: FolderStore, name: str, parts: Any) -> Any:
        for start, length in parts if name.startswith("blocks/") else ():
            seen.update((name, at) for at in range(start, start + length, 64))
        return ranges(self, name, parts)

    def read(
        self: FolderStore, name: str, start: int = 0, length: int | None = None, **limit: int
    ) -> bytes:
        data = whole(self, name, start, length, **limit)
        if name.startswith("blocks/") and length is None:
            seen.update((name, at) for at in range(start, start + len(data), 64))
        return data

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FolderStore, "read_ranges", read_ranges)
        patch.setattr(FolderStore, "read", read)
        yield seen


def same(one: Any, other: Any) -> bool:
    return all(
        np.array_equal(a.residues, b.residues) and a.noise == b.noise
        for a, b in zip(one.parts, other.parts, strict=True)
    )


def summed(
    outputs: list[Expression], table: EncryptedTable, *, memory_limit: int | None, **options: Any
) -> Any:
    """The sums over rows of some outputs, some at a time."""
    steps = [output.step for output in lowered(outputs, table.source(), FLAT).outputs]
    limit = default_limit() if memory_limit is None else memory_limit
    return sums_in_batches(
        steps, SumsEvaluator(Loads(table.source(), 0, {}, 0), 2, limit), **options
    )


# -- one read, in bounded memory
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [None, 32 << 20, 8 << 20, SMALL])
@pytest.mark.parametrize("workers", [1, 3])
def test_every_byte_is_read_once(
    sealed: EncryptedTable, by_seal: Any, limit: int | None, workers: int
) -> None:
    outputs = circuit(sealed)
    assert totals_bytes(outputs, sealed) > 4 * SMALL
    with watched_reads() as seen:
        found = sealed.evaluate(outputs, memory_limit=limit, workers=workers)
    assert set(seen.values()) == {1}
    assert len({name for name, _ in seen}) == sealed.layout.n_chunks
    assert same(found, by_seal)


def test_only_the_columns_that_are_needed_are_read(sealed: EncryptedTable) -> None:
    outputs = circuit(sealed)[:3]  # the classes: two of the columns
    with watched_reads() as seen:
        sealed.evaluate(outputs, memory_limit=1 << 20)
    stored = replace(sealed.facts.shape, seeded=True).residue_bytes
    share = 64 * sum(seen.values()) / (sealed.layout.n_chunks * stored)
    assert share == pytest.approx(2 / len(sealed.facts.columns), rel=0.05)


@pytest.mark.parametrize("limit", [8 << 20, SMALL, 1 << 20, 1])
def test_sums_and_columns_keep_to_the_memory(
    sealed: EncryptedTable, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[int] = []
    aligned, read_loads = native._allocate_aligned, Loads.read

    def allocate(words: int) -> Any:
        held.append(8 * words)
        return aligned(words)

    def read(self: Loads, steps: Any, chunk: int, one: Slice) -> Any:
        columns.append(16 * len(steps) * one.width * len(one.primes(self.parameters)))
        return read_loads(self, steps, chunk, one)

    columns: list[int] = []
    monkeypatch.setattr(native, "_allocate_aligned", allocate)
    monkeypatch.setattr(Loads, "read", read)
    outputs = circuit(sealed)
    for batch, sums in summed(outputs, sealed, memory_limit=limit):
        assert sum(one.nbytes for one in sums.values()) <= limit // 4 or len(batch) == 1
    block = (
        8 * 128 * sum(3 if _products(o) == 1 else 4 if _products(o) == 2 else 2 for o in outputs)
    )
    assert max(held) <= max(limit // 2, block)  # one block of coefficients is the least
    assert max(columns) <= max(limit // 4, 16 * len(sealed.facts.columns) * 128)


def test_sources_that_cannot_be_read_in_pieces(sealed: EncryptedTable) -> None:
    class Whole(Source):
        """What an encrypted table is without its slices."""

        @property
        def parameters(self) -> es.Parameters:
            return sealed.parameters

        @property
        def layout(self) -> Layout:
            return sealed.layout

        @property
        def keys(self) -> es.PublicKeys:
            return sealed.keys

        @property
        def with_secret_key(self) -> bool:
            return sealed.facts.with_secret_key

        def ranges(self) -> dict[str, ColumnRange]:
            return sealed.facts.ranges()

        def residues(self, name: str, chunk: int) -> Any:
            return sealed.source().residues(name, chunk)

    outputs = circuit(sealed)
    found = evaluate(outputs, Whole(), memory_limit=SMALL)
    assert same(found, sealed.evaluate(outputs, memory_limit=SMALL))
    with pytest.raises(ValueError, check=error("unnamed-rows")):
        evaluate(outputs, Whole(), checkpoint="somewhere")


def test_outputs_that_combine_totals_and_come_twice(
    stored: tuple[es.Owner, Path], sealed: EncryptedTable
) -> None:
    few = circuit(sealed)
    outputs = [few[-1], 2 * few[0] - few[-2] + 3, few[4], few[-1]]
    found = sealed.evaluate(outputs, memory_limit=1 << 20)
    assert same(found, sealed.evaluate(outputs, device="seal", workers=1))
    assert stored[0].open(found) == stored[0].open(sealed.evaluate(outputs))


def test_damage_is_found_in_any_slice(sealed: EncryptedTable, tmp_path: Path) -> None:
    sealed.save(tmp_path / "copy")
    copy = EncryptedTable.load(tmp_path / "copy")
    block = tmp_path / "copy" / copy.blocks.entries[2].name
    data = bytearray(block.read_bytes())
    data[-5000] ^= 1
    block.write_bytes(data)
    with pytest.raises(es.FileFormatError, check=error("wrong-digest", "2", "3")):
        copy.evaluate(circuit(copy), memory_limit=SMALL)


def test_a_full_disk_says_whose_file_it_is(
    sealed: EncryptedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full:
        def seek(self, *where: int) -> int:
            return 0

        def write(self, data: Any) -> int:
            raise OSError(28, "No space left on device")

        def close(self) -> None:
            pass

    monkeypatch.setattr(slices.tempfile, "TemporaryFile", lambda **options: Full())
    with pytest.raises(
        OSError, match=r"go to a temporary file\. Raise memory_limit, or set TMPDIR"
    ):
        sealed.evaluate(circuit(sealed), memory_limit=SMALL)


# -- progress
# ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [None, SMALL])
def test_progress_is_in_rows(sealed: EncryptedTable, limit: int | None) -> None:
    done: list[float] = []
    for _ in summed(circuit(sealed), sealed, memory_limit=limit, advance=done.append):
        pass
    assert sum(done) == pytest.approx(ROWS)


def test_the_bar_shows_rows_a_second() -> None:
    rich = pytest.importorskip("rich.console")
    bar, shown = progress._rich_bar(), StringIO()
    clock = iter(range(1000))
    bar.get_time = lambda: float(next(clock))
    task = bar.add_task("computing", total=9000, unit="rows")
    for _ in range(4):
        bar.advance(task, 1000.5)
    rich.Console(file=shown, width=120).print(bar.get_renderable())
    assert "4,002 of 9,000 rows" in shown.getvalue()
    assert re.search(r"rows [0-9,]+ rows/s", shown.getvalue())
    assert progress.rate_text(1234.4, "rows") == "1,234 rows/s"
    with progress.progress_bar("computing", 10, "rows", show=False) as advance:
        advance(2.5)


# -- checkpoints
# ------------------------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
from encryptedstats.circuits.slices import CheckpointSums
import encryptedstats as es

table, place, slices = sys.argv[1], sys.argv[2], int(sys.argv[3])
put = CheckpointSums.put

def put_and_die(self, number, sums):
    if number == slices:
        os.kill(os.getpid(), signal.SIGKILL)
    put(self, number, sums)

CheckpointSums.put = put_and_die
es.CompletelyRandomForest(n_trees=6, depth=2, random_state=3).fit(es.load(table), checkpoint=place, progress=False)
"""


@contextmanager
def counted_slices() -> Iterator[list[int]]:
    """The slices that are computed."""
    numbers: list[int] = []
    put = slices.CheckpointSums.put

    def counted(self: Any, number: int, sums: Any) -> None:
        numbers.append(number)
        put(self, number, sums)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slices.CheckpointSums, "put", counted)
        yield numbers


@contextmanager
def interrupted_after(count: int) -> Iterator[None]:
    put = slices.CheckpointSums.put

    def interrupted(self: Any, number: int, sums: Any) -> None:
        put(self, number, sums)
        if number + 1 == count:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slices.CheckpointSums, "put", interrupted)
        try:
            yield
        except KeyboardInterrupt:
            return
    pytest.fail("it was not interrupted")


@pytest.mark.parametrize(
    "after", [1, *(pytest.param(after, marks=pytest.mark.slow) for after in (0, 7, 11))]
)
def test_a_killed_fit_goes_on(
    stored: tuple[es.Owner, Path], by_seal: Any, tmp_path: Path, after: int
) -> None:
    table = stored[1]
    place = tmp_path / "checkpoint"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", KILLED, str(table), str(place), str(after)],
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    assert len(list(place.glob("sums-*"))) == after
    sealed = EncryptedTable.load(table)
    with counted_slices() as computed, watched_reads() as seen:
        forest = es.CompletelyRandomForest(**FOREST).fit(sealed, checkpoint=place)
    assert computed == list(range(after, 12))
    assert set(seen.values()) == {1}
    assert len(list(place.glob("sums-*"))) == 12  # not stored yet: it is all there is
    forest.save(tmp_path / "forest.enc")
    assert not place.exists()
    assert same(forest.totals_, by_seal)


def test_an_interrupted_fit_goes_on_with_other_memory_and_threads(
    sealed: EncryptedTable, tmp_path: Path
) -> None:
    outputs = circuit(sealed)
    with interrupted_after(5):
        sealed.evaluate(outputs, checkpoint=tmp_path / "c", workers=1)
    with counted_slices() as computed:
        found = sealed.evaluate(outputs, checkpoint=tmp_path / "c", workers=3, memory_limit=2 << 20)
    assert computed == list(range(5, 12))
    assert same(found, sealed.evaluate(outputs))


def test_files_beside_a_checkpoint_stay(sealed: EncryptedTable, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    sealed.evaluate(circuit(sealed)[:4], checkpoint=tmp_path).save(tmp_path / "totals.enc")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes.txt", "totals.enc"]


def test_a_finished_fit_that_was_not_stored_is_not_computed_again(
    sealed: EncryptedTable, tmp_path: Path
) -> None:
    """The disk was full when the result was saved, say."""
    outputs = circuit(sealed)
    first = sealed.evaluate(outputs, checkpoint=tmp_path / "c")
    with pytest.raises(FileNotFoundError):
        first.save(tmp_path / "no" / "such" / "folder")
    with counted_slices() as computed:
        found = sealed.evaluate(outputs, checkpoint=tmp_path / "c")
    assert computed == []
    assert same(found, first)
    (found + first).save(tmp_path / "both")
    assert not (tmp_path / "c").exists()


def test_a_slice_that_is_altered_after_it_was_written_is_noticed(
    sealed: EncryptedTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between writing and reading back, in one run: by a disk or by somebody."""
    outputs, put = circuit(sealed), slices.CheckpointSums.put

    def altered(self: slices.CheckpointSums, number: int, sums: slices.Residues) -> None:
        put(self, number, sums)
        if number == 3:
            path = tmp_path / "c" / "sums-000003"
            data = path.read_bytes()
            path.write_bytes(data[:-50] + bytes([data[-50] ^ 1]) + data[-49:])

    monkeypatch.setattr(slices.CheckpointSums, "put", altered)
    with pytest.raises(es.FileFormatError, check=error("damaged-checkpoint", "000003")):
        sealed.evaluate(outputs, checkpoint=tmp_path / "c")
    monkeypatch.undo()
    with counted_slices() as computed:
        found = sealed.evaluate(outputs, checkpoint=tmp_path / "c")
    assert computed == [3]
    assert same(found, sealed.evaluate(outputs))


def test_a_table_in_memory_can_have_one(
    stored: tuple[es.Owner, Path], sealed: EncryptedTable, tmp_path: Path
) -> None:
    from encryptedstats.tables.facts import MemoryBlocks

    blocks = sealed.blocks
    held = MemoryBlocks(
        blocks.ids, blocks.rows, tuple(blocks.block(i) for i in range(len(blocks.rows)))
    )
    table = EncryptedTable(sealed.facts, held, sealed.keys)
    outputs = circuit(sealed)
    assert same(table.evaluate(outputs, checkpoint=tmp_path / "c"), sealed.evaluate(outputs))


@pytest.mark.parametrize(
    "damage", ["cut", "flipped", "of another slice", "not residues", "missing", "empty"]
)
def test_a_damaged_slice_is_computed_again(
    sealed: EncryptedTable, tmp_path: Path, damage: str
) -> None:
    outputs, place = circuit(sealed), tmp_path / "c"
    with interrupted_after(5):
        sealed.evaluate(outputs, checkpoint=place)
    name = place / "sums-000003"
    data = name.read_bytes()
    if damage == "cut":
        name.write_bytes(data[:-100])
    elif damage == "empty":
        name.write_bytes(b"")
    elif damage == "flipped":
        name.write_bytes(data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
    elif damage == "of another slice":
        name.write_bytes((place / "sums-000002").read_bytes())
    elif damage == "missing":
        name.unlink()
    else:  # whole by its hash, and no residue
        file = container.from_bytes(data)
        words = np.frombuffer(file.section("sums"), dtype="<u8").copy()
        words[77] = sealed.parameters.data_moduli[0]
        polynomials = words.reshape(len(file.section("digests")) // 16, -1)
        digests = b"".join(hashlib.sha256(one.data).digest()[:16] for one in polynomials)
        sections = {"digests": digests, "sums": words.tobytes()}
        name.write_bytes(container.to_bytes(replace(file, sections=sections)))
    with counted_slices() as computed:
        found = sealed.evaluate(outputs, checkpoint=place)
    assert computed == [3, *range(5, 12)]
    assert same(found, sealed.evaluate(outputs))


def test_a_checkpoint_of_something_else_is_refused(
    stored: tuple[es.Owner, Path], sealed: EncryptedTable, tmp_path: Path
) -> None:
    place = tmp_path / "c"
    with interrupted_after(2):
        sealed.evaluate(circuit(sealed), checkpoint=place)
    before = {path.name: path.read_bytes() for path in place.iterdir()}
    other_rows = EncryptedTable(
        sealed.facts, replace(sealed.blocks, entries=sealed.blocks.entries[:2]), sealed.keys
    )
    refused = "is the checkpoint of another fit \\({}\\): choose another folder, or delete this one"
    with pytest.raises(es.FileFormatError, match=refused.format("another circuit")):
        sealed.evaluate(circuit(sealed, random_state=4), checkpoint=place)
    with pytest.raises(es.FileFormatError, match=refused.format("other rows")):
        other_rows.evaluate(circuit(sealed), checkpoint=place)
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(
        {"u": rng.normal(size=50), "v": rng.choice(list("abcd"), 50), "y": rng.integers(0, 3, 50)}
    )
    schema = es.Schema.infer(frame, target="y", bins=4)
    other_key = es.Owner(sealed.parameters).encrypt(schema.table(frame))
    with pytest.raises(es.FileFormatError, match=refused.format("another key, other rows.*")):
        other_key.evaluate(circuit(sealed), checkpoint=place)
    assert {path.name: path.read_bytes() for path in place.iterdir()} == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sections": {"slices": b"no"}}, "not JSON"),
        ({"sections": {"slices": b"[]"}}, "do not fit its parameters"),
        ({"sections": {"slices": b"[[0, 0, 7]]"}}, "do not fit its parameters"),
        ({"sections": {"slices": b"[[0, 0, 99999]]"}}, "do not fit its parameters"),
        ({"sections": {"slices": b"{}"}}, "do not fit its parameters"),
        ({"polynomials": 1}, "does not fit its own circuit"),
        ({"rows": 3}, "rows"),
    ],
)
def test_an_altered_checkpoint_is_refused(
    sealed: EncryptedTable, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    place = tmp_path / "c"
    with interrupted_after(1):
        sealed.evaluate(circuit(sealed), checkpoint=place)
    file = container.from_bytes((place / CHECKPOINT).read_bytes())
    altered = (
        replace(file, **change)
        if "sections" in change
        else replace(file, fields={**file.fields, **change})
    )
    (place / CHECKPOINT).write_bytes(container.to_bytes(altered))
    with pytest.raises(es.FileFormatError, match=message):
        sealed.evaluate(circuit(sealed), checkpoint=place)


def test_only_kernels_keep_checkpoints(sealed: EncryptedTable, tmp_path: Path) -> None:
    with pytest.raises(DeviceError, check=error("checkpoint-unsupported", "'seal'")):
        sealed.evaluate(circuit(sealed), checkpoint=tmp_path / "c", device="seal")
    assert not (tmp_path / "c").exists()


def test_a_checkpoint_holds_no_more_than_a_worker_may_know(
    sealed: EncryptedTable, tmp_path: Path
) -> None:
    place = tmp_path / "c"
    with interrupted_after(1):
        sealed.evaluate(circuit(sealed), checkpoint=place)
    file = container.from_bytes((place / CHECKPOINT).read_bytes())
    assert set(file.fields) == {"rows", "circuit", "polynomials"}
    listed = json.loads(file.section("slices"))
    assert [Slice(*one) for one in listed] == slices_of(sealed.parameters, 1024)
