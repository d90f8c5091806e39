"""``verify`` of what was computed in shards: by a queue, by Dask, by the service. Any change is
refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import cluster_samples as samples
import pytest
from cluster_samples import BLOCKS, FOREST, ROWS, Hospital
from test_predict import predicting_owner

import encryptedstats as es
from encryptedstats import cluster
from encryptedstats.circuits.results import CUT, Cut
from encryptedstats.storage import container
from encryptedstats.storage.container import Container
from encryptedstats.tables.answers.answer import MODEL_CUT
from encryptedstats.tables.questions.summaries import Counts
from encryptedstats.tables.shards import total_in_shards
from error_codes import error

BAYES = es.MultinomialNB()
FIT_ON_DASK = """
import sys
from encryptedstats import cluster, CompletelyRandomForest
from encryptedstats.cluster.scheduling import DaskRun, run_on_dask
if __name__ == "__main__":
    table, out, rows = sys.argv[1:]
    forest = CompletelyRandomForest(n_trees=4, depth=2, random_state=3)
    job = cluster.submit(forest, table, out, rows_per_shard=int(rows))
    run_on_dask(job, DaskRun(workers=1, progress=False))
"""


def by_queue(question: Any, hospital: Hospital, out: Path, **options: Any) -> Path:
    cluster.submit(question, hospital.table, out, **options)
    cluster.work(f"{out}.work")
    return out


@pytest.fixture(scope="module")
def forest(hospital: Hospital, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A forest in three shards and several ranges of totals."""
    out = tmp_path_factory.mktemp("verify") / "forest.enc"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ENCRYPTEDSTATS_ALLOW", str(tmp_path_factory.getbasetemp()))
        return by_queue(FOREST, hospital, out, rows_per_shard=2 * ROWS, trees_per_task=2)


@pytest.mark.parametrize(
    ("question", "options"),
    [
        (FOREST, {}),
        (FOREST, {"rows_per_shard": ROWS}),
        (FOREST, {"rows_per_shard": 4 * ROWS, "trees_per_task": 1}),
        (BAYES, {"rows_per_shard": 10**9}),
        (Counts(["v1", "class"]), {"rows_per_shard": 2 * ROWS}),
    ],
)
def test_a_queue_in_shards_is_verified(
    hospital: Hospital, tmp_path: Path, question: Any, options: Any
) -> None:
    out = by_queue(question, hospital, tmp_path / "out", **options)
    own = es.verify(out, hospital.table)
    given = es.load(out, keys=hospital.owner.public_keys())
    assert es.verify(given, hospital.table, question).ciphertexts.equals(own.ciphertexts)
    own.save(
        tmp_path / "own"
    )  # what was computed anew says the same of itself, and is verified as well
    assert (tmp_path / "own").read_bytes() == out.read_bytes()


def test_dask_is_verified(hospital: Hospital, tmp_path: Path) -> None:
    """In a process of its own: one that holds a secret key does not go to a scheduler."""
    pytest.importorskip("distributed")
    out = tmp_path / "out"
    samples.finish(samples.start("-c", FIT_ON_DASK, hospital.table, out, 2 * ROWS))
    es.verify(out, hospital.table)
    es.verify(out, hospital.table, device="seal")


def test_a_table_in_memory_verifies_too(tmp_path: Path) -> None:
    owner = samples.small_owner()
    sealed = owner.encrypt(samples.rows(0), workers=1).append(
        owner.encrypt(samples.rows(1), workers=1)
    )
    sealed.save(tmp_path / "table")
    out = by_queue(
        FOREST, Hospital(owner, tmp_path / "table"), tmp_path / "out", rows_per_shard=ROWS
    )
    es.verify(out, sealed)


@pytest.mark.parametrize("model_in_shards", [False, True])
def test_predictions_are_verified(tmp_path: Path, model_in_shards: bool) -> None:
    """The rows in shards; and the model as well, or as a whole."""
    owner, table, rows, model = (
        predicting_owner(),
        tmp_path / "table",
        tmp_path / "rows",
        tmp_path / "model",
    )
    samples.store_table(owner, table, range(2))
    samples.store_table(owner, rows, range(2, 5))
    if model_in_shards:
        by_queue(FOREST, Hospital(owner, table), model, rows_per_shard=ROWS)
    else:
        FOREST.fit(es.load(table), workers=1).save(model)
    whole = es.load(model, keys=owner.public_keys()).predict_votes(es.load(rows), workers=1)
    es.verify(whole, table, rows=rows, workers=1)
    cluster.submit_prediction(model, rows, tmp_path / "votes", rows_per_shard=2 * ROWS)
    cluster.work(f"{tmp_path / 'votes'}.work")
    es.verify(tmp_path / "votes", table, rows=rows, workers=1)
    sections = container.read(tmp_path / "votes").sections
    assert (MODEL_CUT in sections) == model_in_shards
    changes = [lambda file: flipped(file, 0), lambda file: with_section(file, CUT, [[3], [2], 1])]
    if model_in_shards:
        changes += [
            lambda file: with_section(file, MODEL_CUT, [[2], *file.read_list(MODEL_CUT)[1:]])
        ]
    else:
        model_cut = [[1, 2], [FOREST._n_totals(es.load(table).schema)], whole.ciphertexts.width]
        changes += [lambda file: with_section(file, MODEL_CUT, model_cut)]
    for change in changes:
        (tmp_path / "copy").write_bytes((tmp_path / "votes").read_bytes())
        altered(tmp_path / "copy", change)
        with pytest.raises((es.VerificationError, es.FileFormatError)):
            es.verify(tmp_path / "copy", table, rows=rows, workers=1)


def test_a_drawn_fraction_is_verified_too(tmp_path: Path) -> None:
    owner, table, out = predicting_owner(), tmp_path / "table", tmp_path / "forest"
    samples.store_table(owner, table, range(2))
    forest = es.CompletelyRandomForest(n_trees=2, depth=1, random_state=1, fraction=2)
    by_queue(forest, Hospital(owner, table), out, rows_per_shard=ROWS)
    cluster.submit_drawing(out, table, tmp_path / "drawn", queue=tmp_path / "draw.work")
    cluster.work(tmp_path / "draw.work")
    es.verify(tmp_path / "drawn", table, workers=1)
    given = es.load(tmp_path / "drawn", keys=owner.public_keys())
    given.drawn_.parts[0].residues[0, 0, 0] ^= 1
    with pytest.raises(es.VerificationError):
        es.verify(given, table, workers=1)


# -- changes
# ------------------------------------------------------------------------------------------------


def altered(path: Path, change: Callable[[Container], Container]) -> None:
    container.write(change(container.read(path)), path)


def with_section(file: Container, name: str, value: Any) -> Container:
    return replace(file, sections={**file.sections, name: json.dumps(value).encode()})


def with_field(file: Container, name: str, value: Any) -> Container:
    assert file.fields.get(name) != value
    return replace(file, fields={**file.fields, name: value})


def without_cut(file: Container) -> Container:
    return replace(
        file, sections={name: data for name, data in file.sections.items() if name != CUT}
    )


def flipped(file: Container, byte: int) -> Container:
    data = bytearray(file.section("residues"))
    data[byte] ^= 1
    return replace(file, sections={**file.sections, "residues": bytes(data)})


def cut_blocks(stops: list[int]) -> Callable[[Container], Container]:
    def change(file: Container) -> Container:
        _, totals, width = file.read_list(CUT)
        assert file.read_list(CUT)[0] != stops
        return with_section(file, CUT, [stops, totals, width])

    return change


CHANGES: dict[str, Callable[[Container], Container]] = {
    "the first residue": lambda file: flipped(file, 0),
    "a residue in the middle": lambda file: flipped(file, len(file.section("residues")) // 2),
    "other stops, of the same largest shard": cut_blocks([1, 3, 5, 6]),
    "one shard": cut_blocks([6]),
    "a shard less": cut_blocks([2, 4]),
    "a shard twice": cut_blocks([2, 4, 4, 6]),
    "a shard too many": cut_blocks([2, 4, 6, 8]),
    "shards that go back": cut_blocks([4, 2, 6]),
    "no stops": cut_blocks([]),
    "no shards": without_cut,
    "no list of shards": lambda file: with_section(file, CUT, [6]),
    "half a block": lambda file: with_section(file, CUT, [[2, 4.5, 6], *file.read_list(CUT)[1:]]),
    "one range of totals": lambda file: with_section(
        file, CUT, [file.read_list(CUT)[0], file.read_list(CUT)[1][-1:], file.read_list(CUT)[2]]
    ),
    "a range less": lambda file: with_section(
        file, CUT, [file.read_list(CUT)[0], file.read_list(CUT)[1][:-1], file.read_list(CUT)[2]]
    ),
    "another width": lambda file: with_section(
        file, CUT, [*file.read_list(CUT)[:2], file.read_list(CUT)[2] // 2]
    ),
    "the number of rows that were left out": lambda file: with_field(file, "n_dropped", 3),
    "the bound of the weights": lambda file: with_field(file, "weight_bound", 7),
    "the number of rows": lambda file: with_field(file, "n_rows", BLOCKS * ROWS - 1),
    "another order of blocks": lambda file: with_field(file, "blocks", file.fields["blocks"][::-1]),
    "a block less": lambda file: with_field(file, "blocks", file.fields["blocks"][:-1]),
    "another seed": lambda file: with_field(
        file, "params", {**file.fields["params"], "random_state": 4}
    ),
}
#: The same computation: all ranges go over all rows, and packs do not depend on which range they
#: are in.
SAME = {"one range of totals"}


@pytest.mark.parametrize("change", CHANGES)
def test_any_change_is_refused(
    forest: Path, hospital: Hospital, tmp_path: Path, change: str
) -> None:
    copy = tmp_path / "copy.enc"
    copy.write_bytes(forest.read_bytes())
    es.verify(copy, hospital.table)
    altered(copy, CHANGES[change])
    if change in SAME:
        es.verify(copy, hospital.table)
        return
    with pytest.raises((es.VerificationError, es.FileFormatError)):
        es.verify(copy, hospital.table, FOREST)


def test_shards_are_all_blocks_and_totals_and_packs_decrypt() -> None:
    owner = samples.small_owner()
    sealed = owner.encrypt(samples.rows(0), workers=1).append(
        owner.encrypt(samples.rows(1), workers=1)
    )
    question = Counts(["v1"]).in_ids(sealed.schema)
    n_totals, n_blocks = question._n_totals(sealed.schema), len(sealed.blocks.ids)
    width = total_in_shards(sealed, question, Cut((1, n_blocks), (n_totals,), 1), workers=1).width
    assert width == 1
    for cut in (
        Cut((1,), (n_totals,), 1),
        Cut((1, n_blocks + 1), (n_totals,), 1),
        Cut((n_blocks,), (n_totals - 1,), 1),
        Cut((n_blocks,), (n_totals,), 1 << 40),
    ):
        with pytest.raises(es.VerificationError):
            total_in_shards(sealed, question, cut, workers=1)


def test_another_table_is_refused(forest: Path, hospital: Hospital, tmp_path: Path) -> None:
    """The same number of rows and blocks, under the same key."""
    samples.store_table(hospital.owner, tmp_path / "other", range(1, BLOCKS + 1))
    with pytest.raises(es.VerificationError):
        es.verify(forest, tmp_path / "other")


def test_another_question_is_refused(forest: Path, hospital: Hospital) -> None:
    with pytest.raises(es.VerificationError):
        es.verify(forest, hospital.table, BAYES)


def test_added_up_results_state_no_shards(hospital: Hospital, tmp_path: Path) -> None:
    """What was put together from other results is no computation in shards."""
    owner = hospital.owner
    parts = []
    for name, blocks in (("a", range(2)), ("b", range(2, 4))):
        samples.store_table(owner, tmp_path / name, blocks)
        out = by_queue(
            BAYES, Hospital(owner, tmp_path / name), tmp_path / f"{name}.enc", rows_per_shard=ROWS
        )
        parts.append(es.load(out, keys=owner.public_keys()))
    assert (parts[0] + parts[1]).totals_.cut is None


def test_rows_of_others_stay_unverifiable(tmp_path: Path) -> None:
    owner = samples.small_owner(kept=5)
    owner.public_keys().encrypt(samples.rows(0), workers=1).save(tmp_path / "table")
    hospital = Hospital(owner, tmp_path / "table")
    out = by_queue(Counts(["v1"]), hospital, tmp_path / "out", by_others=True)
    with pytest.raises(es.VerificationError, check=error("fresh-noise")):
        es.verify(out, hospital.table)
