"""The same page of a statistician's code at every place that computes: same answers, same digests,
same errors.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cluster_samples as samples
import distributed
import pytest
import service_samples as service
from cluster_samples import BLOCKS, FOREST, ROWS, SCHEMA, Hospital
from procedure_samples import Strongest

import encryptedstats as es
from encryptedstats.cluster import scheduling
from encryptedstats.tables.shards import total_in_shards
from encryptedstats.workers import JobStatus, LocalWorker
from encryptedstats.workers.queued import DaskWorker
from encryptedstats.workers.service import ServiceWorker
from error_codes import error

COUNTS = es.ChiSquare("v1", "class")
NB = es.MultinomialNB()


@pytest.fixture(scope="module")
def table(worker: es.Worker, hospital: Hospital) -> Any:
    return worker.upload(hospital.table)


@pytest.fixture(scope="module")
def predictor(tmp_path_factory: pytest.TempPathFactory) -> Hospital:
    """Keys that predict by encrypted models, and rows with folds."""
    owner, place = samples.small_owner(primes=9, kept=4), tmp_path_factory.mktemp("new") / "train"
    samples.store_table(owner, place, range(2), weight_bound=2, folds=2)
    return Hospital(owner, place)


def test_the_page_of_a_statistician(worker: es.Worker, hospital: Hospital, tmp_path: Path) -> None:
    table = worker.upload(hospital.table)
    plan = worker.plan([FOREST, COUNTS], table)
    counts = worker.ask(COUNTS, table)
    forest = worker.fit(FOREST, table, tmp_path / "forest.enc")

    here = es.load(hospital.table)
    assert plan["rows"] == BLOCKS * ROWS
    assert plan["core_seconds"] > 0
    assert plan["bytes_up"] == 0
    for found, own in ((counts, here.ask(COUNTS)), (forest.answer_, here.ask(FOREST).answer_)):
        assert found.is_encrypted
        assert found.ciphertexts.circuit == own.ciphertexts.circuit
        cut = found.ciphertexts.cut
        again = own.ciphertexts if cut is None else total_in_shards(here, own.question, cut)
        assert found.program_digest == again.program_digest
        assert [pack.data.tobytes() for pack, _ in found.packs()] == [
            pack.data.tobytes() for pack, _ in again.packs()
        ]
        opened = hospital.owner.open(found, SCHEMA)
        assert vars(opened).keys() == vars(hospital.owner.open(own, SCHEMA)).keys()
    assert hospital.is_exact(FOREST, tmp_path / "forest.enc")
    es.verify(tmp_path / "forest.enc", hospital.table, FOREST)


def test_procedures_of_two_owners_run_at_once(
    worker: es.Worker, hospital: Hospital, predictor: Hospital, tmp_path: Path
) -> None:
    procedure, wanted = Strongest(), []
    with ThreadPoolExecutor(2) as pool:
        for number, one in enumerate((hospital, predictor)):
            options: dict[str, Any] = {"schema": SCHEMA, "folder": tmp_path / str(number)}
            wanted.append(pool.submit(procedure.run, one.table, one.owner, at=worker, **options))
    assert wanted[0].result() == procedure.run(hospital.plain())
    assert wanted[1].result() == procedure.run(hospital.plain(range(2)))
    table = worker.upload(hospital.table)
    assert procedure.run(table, hospital.owner, at=worker, schema=SCHEMA) == wanted[0].result()
    tree = es.DecisionTree(depth=2)
    found = tree.run(table, hospital.owner, at=worker, schema=SCHEMA)
    assert found == tree.run(hospital.plain())


def test_several_questions_folds_and_words_of_tables(
    worker: es.Worker, predictor: Hospital
) -> None:
    table = worker.upload(predictor.table)
    folds, counts = worker.ask([NB, es.OneStepLogisticRegression()], table, folds=True)
    clear = es.Table.concat([samples.rows(block, folds=2) for block in range(2)])
    models = predictor.owner.open(folds, SCHEMA)
    assert [list(one.totals_) for one in models] == [
        list(one.totals_) for one in NB.fit_folds(clear)
    ]
    assert counts.question.n_folds == 2
    asked = predictor.owner.open(table.counts("v1", "class"), SCHEMA)
    assert asked.equals(clear.counts("sex", "ill"))


def test_predictions_stay_encrypted(worker: es.Worker, predictor: Hospital, tmp_path: Path) -> None:
    model = worker.fit(NB, predictor.table)
    out = tmp_path / "votes.enc"
    votes = worker.predict(model, predictor.table, out, output="factors")
    clear = es.Table.concat([samples.rows(block) for block in range(2)])
    wanted = NB.fit(clear).predict_votes(clear, output="factors").to_numpy().tolist()
    for one in (votes, out):
        assert predictor.owner.open(one, SCHEMA).to_numpy().tolist() == wanted
    assert out.stat().st_mode & 0o077 == 0  # it speaks of single rows
    job = worker.fit(NB, predictor.table, wait=False)
    again = worker.predict(job, predictor.table, output="factors")
    assert predictor.owner.open(again, SCHEMA).to_numpy().tolist() == wanted


def test_parts_are_combined_and_forgotten(
    worker: es.Worker, hospital: Hospital, tmp_path: Path
) -> None:
    parts = []
    for blocks in (range(2), range(2, 4)):
        place = tmp_path / f"part{blocks[0]}"
        samples.store_table(hospital.owner, place, blocks)
        parts.append(worker.fit(FOREST, place, wait=False))
    both = worker.combine(parts, out=tmp_path / "both.enc")
    assert hospital.is_exact(FOREST, tmp_path / "both.enc", range(4))
    worker.combine([both], tmp_path / "part0", tmp_path / "less.enc", forget=[parts[0]])
    assert hospital.is_exact(FOREST, tmp_path / "less.enc", range(2, 4))
    with pytest.raises(ValueError, check=error("wrong-number-of-answers")):
        worker.combine([both], tmp_path / "part0")
    with pytest.raises(ValueError, check=error("no-table")):
        worker.combine([both, both])


def test_a_model_needs_classes_everywhere(worker: es.Worker, hospital: Hospital) -> None:
    frame = samples.frame(20, 1).drop(columns="ill")
    sealed = hospital.owner.encrypt(SCHEMA.table(frame, slots=samples.SLOTS), workers=1)
    with pytest.raises(es.SchemaError, check=error("no-target")):
        worker.fit(NB, sealed)


def test_a_table_in_memory_asks_by_its_own_names(worker: es.Worker, hospital: Hospital) -> None:
    sealed = hospital.owner.encrypt(samples.rows(0), workers=1)
    answer = worker.ask(es.ChiSquare("sex", "ill"), sealed)
    assert answer.schema == SCHEMA
    assert hospital.owner.open(answer).n_rows == ROWS
    assert worker.table(worker.upload(sealed).name).n_rows == ROWS


def test_a_forest_draws_its_fraction_where_keys_were_planned_for_it(
    worker: es.Worker, tmp_path: Path
) -> None:
    owner, place = samples.small_owner(primes=9, kept=4), tmp_path / "train"
    samples.store_table(owner, place, range(1))
    table = worker.upload(place, keys=owner.public_keys([0, 1, 4, 16, 64, 256]))
    forest = es.CompletelyRandomForest(n_trees=2, depth=1, fraction=4, random_state=1)
    worker.fit(forest, table, tmp_path / "forest.enc")
    opened = owner.open(tmp_path / "forest.enc", SCHEMA)
    clear = forest.fit(samples.rows(0))
    assert (list(opened.totals_), len(opened.drawn_)) == (list(clear.totals_), len(clear.drawn_))
    job = worker.fit(forest, table, wait=False)
    drawn = owner.open(worker.draw(job, table), SCHEMA)
    assert list(drawn.drawn_) == list(opened.drawn_)


def test_where_workers_write_answers_nobody_has_to_wait(
    worker: es.Worker, table: Any, hospital: Hospital, tmp_path: Path
) -> None:
    out = tmp_path / "model.enc"
    if not worker.writes_out:
        with pytest.raises(ValueError, check=error("out-without-waiting")):
            worker.fit(NB, table, out, wait=False)
        return
    job = worker.fit(NB, table, out, wait=False)
    job.wait()
    assert hospital.is_exact(NB, out)
    worker.delete(job)
    assert out.exists()  # it is the owner's
    with pytest.raises(FileExistsError, check=error("already-exists")):
        worker.fit(FOREST, table, out, wait=False)
    worker.fit(FOREST, table, out, overwrite=True)
    assert hospital.is_exact(FOREST, out)


def test_jobs_that_are_not_waited_for(worker: es.Worker, table: Any, tmp_path: Path) -> None:
    jobs = worker.ask([COUNTS, FOREST], table, wait=False)
    assert [job.kind for job in jobs] == ["ask", "fit"]
    reports: list[int] = []
    answer = worker.result(jobs[0], progress=lambda one: reports.append(one.rows_done))
    assert reports == sorted(reports)
    assert reports[-1] == BLOCKS * ROWS
    status = worker.status(jobs[0])
    assert (status.state, status.rows_done, status.shards_done) == (
        "done",
        BLOCKS * ROWS,
        status.shards,
    )
    found = worker.job(jobs[0].id)  # as another program finds it
    assert worker.result(found, tmp_path / "again.enc").statement() == answer.statement()
    assert jobs[0].id in {one.id for one in worker.jobs()}
    jobs[1].wait()
    worker.delete(jobs[1])
    with pytest.raises(es.EncryptedStatsError):
        worker.job(jobs[1].id)


def test_the_same_errors(
    worker: es.Worker, table: Any, hospital: Hospital, predictor: Hospital, tmp_path: Path
) -> None:
    out = tmp_path / "there"
    out.touch()
    other = "rows_per_shard" if isinstance(worker, LocalWorker) else "checkpoint"
    with pytest.raises(FileExistsError, check=error("already-exists")):
        worker.ask(COUNTS, table, out)
    with pytest.raises(TypeError, check=error("not-a-question")):
        worker.ask("counts", table)
    with pytest.raises(TypeError, check=error("not-a-table")):
        worker.ask(COUNTS, 5)
    with pytest.raises(es.SchemaError, check=error("name-instead-of-id")):
        worker.ask(es.ChiSquare("v9", "class"), table)
    with pytest.raises(es.SchemaError, check=error("declare-folds")):
        worker.fit(NB, table, folds=True)
    with pytest.raises(TypeError, check=error("unknown-option")):
        worker.ask(COUNTS, table, speed="high")
    with pytest.raises(ValueError, check=error("wrong-number-of-places")):
        worker.ask([COUNTS, NB], table, [tmp_path / "one"])
    with pytest.raises(ValueError, check=error("option-not-here")):
        worker.ask(COUNTS, table, **{other: 5})
    with pytest.raises(es.KeyMismatchError, check=error("other-key")):
        worker.predict(worker.fit(NB, predictor.table), table)
    with pytest.raises(es.KeyMismatchError, check=error("other-key")):
        worker.upload(hospital.table, keys=predictor.owner.public_keys())
    with pytest.raises(FileNotFoundError):
        worker.upload(tmp_path / "nowhere")


def test_keys_that_do_not_carry_a_question(worker: es.Worker, tmp_path: Path) -> None:
    place = tmp_path / "train"
    samples.store_table(samples.small_owner(primes=2), place, range(1))
    deep = es.CompletelyRandomForest(n_trees=2, depth=6, random_state=0)
    with pytest.raises(es.NoiseError) as caught:
        worker.fit(deep, place)
    with pytest.raises(es.NoiseError) as planned:
        worker.plan(deep, place)
    assert caught.value.code == planned.value.code


def test_a_job_that_fails_says_why_everywhere(
    worker: es.Worker, hospital: Hospital, tmp_path: Path, folder: Path
) -> None:
    place = tmp_path / "train"
    samples.store_table(hospital.owner, place, range(2, 4))
    table = worker.upload(place)
    root = Path(table.place or place)
    if isinstance(worker, ServiceWorker):
        (root,) = (folder / "service/storage/owners").glob(f"*/tables/{table.name}")
    for block in (root / "blocks").iterdir():
        data = block.read_bytes()
        block.unlink()
        block.write_bytes(data[:-1])
    job = worker.fit(NB, table, wait=False)
    with pytest.raises(es.FileFormatError, check=error("block-not-listed")):
        worker.result(job)
    assert worker.status(job).state == "failed"


def test_a_job_that_is_cancelled_goes_on_when_asked_again(
    tmp_path: Path, hospital: Hospital, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A queue where nobody works, so that there is time."""
    monkeypatch.setenv("ENCRYPTEDSTATS_ALLOW", str(hospital.table.parent))
    monkeypatch.setattr("encryptedstats.workers.worker._IDLE_SECONDS", 0.1)
    worker = es.connect(f"queue://{tmp_path / 'work'}")
    job = worker.fit(FOREST, hospital.table, wait=False)
    assert worker.status(job).state == "queued"
    reports: list[JobStatus] = []

    def stop(status: JobStatus) -> None:
        reports.append(status)
        if len(reports) == 4:
            worker.cancel(job)

    with (
        pytest.warns(UserWarning, match="encryptedstats worker run"),
        pytest.raises(es.WorkerError, check=error("cancelled-job")),
    ):
        worker.result(job, progress=stop)
    assert worker.fit(FOREST, hospital.table, wait=False).id == job.id
    es.cluster.work(tmp_path / "work")
    assert hospital.is_exact(FOREST, worker.result(job))


def test_who_waits_for_a_service_without_workers_is_told(
    tmp_path: Path, hospital: Hospital, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("encryptedstats.workers.worker._IDLE_SECONDS", 0.1)
    monkeypatch.setattr("encryptedstats.service.server._QUIET_SECONDS", 0.1)
    with service.Server(tmp_path) as server, server.connect("north") as worker:
        job = worker.fit(NB, worker.upload(hospital.table), wait=False)
        reports: list[JobStatus] = []

        def stop(status: JobStatus) -> None:
            reports.append(status)
            if len(reports) == 4:
                worker.cancel(job)

        with (
            pytest.warns(UserWarning, match="is there one"),
            pytest.raises(es.WorkerError, check=error("cancelled-job")),
        ):
            worker.result(job, progress=stop)


def test_a_cancelled_job_ends_on_dask_too(
    tmp_path: Path, hospital: Hospital, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduling, "refuse_secret_keys", lambda: None)
    client = distributed.Client(
        processes=False, n_workers=1, threads_per_worker=1, dashboard_address=None
    )
    with client:
        worker = DaskWorker(client, str(tmp_path / "work"))

        def stop(status: JobStatus) -> None:
            worker.cancel(status.id)

        with pytest.raises(es.ClusterError, check=error("cancelled-job")):
            worker.fit(FOREST, hospital.table, rows_per_shard=ROWS, progress=stop)
        (status,) = worker.jobs()
        assert status.state == "cancelled"
        assert hospital.is_exact(FOREST, worker.fit(FOREST, hospital.table, rows_per_shard=ROWS))


def test_a_place_that_is_none() -> None:
    for place in ("", "locally", "queue://", "dask://", "ftp://x"):
        with pytest.raises(ValueError, check=error("unknown-place")):
            es.connect(place)
