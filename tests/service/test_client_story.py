"""The whole story over HTTP: upload, plan, ask, watch, fetch, predict, combine, cancel; each exact,
each checked on arrival.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import cluster_samples as samples
import pytest
import service_samples as service
from cluster_samples import BLOCKS, FOREST, ROWS, SCHEMA, Hospital

import encryptedstats as es
from encryptedstats.circuits.devices.cuda import gpu as gpus
from encryptedstats.service import audit
from encryptedstats.storage import container
from encryptedstats.tables.manifest import MANIFEST
from encryptedstats.workers.service import ServiceWorker
from encryptedstats.workers.worker import WorkerTable
from error_codes import error
from ports import free_port


@pytest.fixture(scope="module")
def table(north: es.Worker, hospital: Hospital) -> WorkerTable:
    return north.upload(hospital.table)


def test_what_a_worker_offers(north: es.Worker) -> None:
    offers = north.offers()
    assert offers["version"] == "test"
    assert {"native", "seal"} <= set(offers["devices"])
    assert ("cuda" in offers["devices"]) == gpus.is_there()  # what is known here, and what is here
    assert offers["object_bytes"] == service.LIMITS.object_bytes
    assert offers["unfinished_jobs"] == service.LIMITS.jobs
    assert offers["requests_per_second"] == service.LIMITS.requests_per_second
    assert offers["presigned"] is False


def test_a_fit_is_exact_and_follows_by_events(
    north: es.Worker, table: WorkerTable, hospital: Hospital, tmp_path: Path
) -> None:
    job = north.fit(FOREST, table, wait=False)
    seen: list[int] = []
    status = job.wait(progress=lambda one: seen.append(one.rows_done))
    assert (status.state, status.rows_done, status.shards_done) == (
        "done",
        BLOCKS * ROWS,
        status.shards,
    )
    assert seen == sorted(seen)
    assert seen[-1] == BLOCKS * ROWS
    out = tmp_path / "forest.enc"
    north.result(job, out)
    assert hospital.is_exact(FOREST, out)
    es.verify(out, hospital.table, FOREST)
    assert status.plan is not None
    assert status.plan["rows"] == BLOCKS * ROWS
    with pytest.raises(es.EncryptedStatsError, check=error("already-exists")):
        north.result(job, out)
    north.result(north.job(job.id), out, overwrite=True)  # found again by its name
    assert hospital.is_exact(FOREST, out)
    assert [path.name for path in tmp_path.iterdir()] == ["forest.enc"]


def test_asking_twice_is_one_job(north: es.Worker, table: WorkerTable) -> None:
    first, second = north.fit(FOREST, table, wait=False), north.ask(FOREST, table, wait=False)
    assert first.id == second.id


def test_a_statistic_by_the_words_of_tables(
    table: WorkerTable, hospital: Hospital, north: es.Worker, tmp_path: Path
) -> None:
    out = tmp_path / "counts.enc"
    table.counts("v1", "class", out=out)
    opened = hospital.owner.open(out, SCHEMA)
    assert opened.equals(hospital.plain().counts("sex", "ill"))
    es.verify(out, hospital.table)
    file = container.read(out)
    residues = bytearray(file.section("residues"))
    residues[0] ^= 1
    altered = tmp_path / "altered.enc"
    container.write(replace(file, sections={**file.sections, "residues": bytes(residues)}), altered)
    with pytest.raises(es.VerificationError):
        es.verify(altered, hospital.table)


def test_a_plan_costs_nothing(north: es.Worker, table: WorkerTable) -> None:
    before = len(north.jobs())
    plan = north.plan(FOREST, table)
    assert plan["rows"] == BLOCKS * ROWS
    assert plan["core_seconds"] > 0
    assert plan["products"] > 0
    assert plan["bytes_up"] == 0
    several = north.plan([FOREST, es.MultinomialNB()], table)
    assert several["totals"] == plan["totals"] + north.plan(es.MultinomialNB(), table)["totals"]
    assert several["plans"][0]["totals"] == plan["totals"]
    assert len(north.jobs()) == before


def test_a_plan_of_a_table_that_was_not_sent(
    server: service.Server, table: WorkerTable, hospital: Hospital
) -> None:
    """The list of its blocks is sent, and none of them."""
    with server.connect("careful") as worker:
        plan = worker.plan(FOREST, hospital.table)
        listed = (hospital.table / MANIFEST).stat().st_size
        assert worker.offers()["used_bytes"] == listed
        assert plan["bytes_up"] > listed
        there = worker.plan(FOREST, worker.upload(hospital.table))
        here = worker.plan(FOREST, hospital.table)
        assert there == here == {**plan, "bytes_up": 0}
        with pytest.raises(es.WorkerError, check=error("refused-by-worker")):
            server.connect("other").plan(FOREST, table)


def test_parts_are_combined_and_forgotten(
    north: es.Worker, hospital: Hospital, tmp_path: Path
) -> None:
    parts = []
    for blocks in (range(2), range(2, BLOCKS)):
        place = tmp_path / f"part{blocks[0]}"
        samples.store_table(hospital.owner, place, blocks)
        parts.append(north.fit(FOREST, north.upload(place), wait=False))
    for part in parts:
        part.wait()
    both = north.combine(parts, wait=False)
    assert hospital.is_exact(FOREST, north.result(both, tmp_path / "all.enc"))
    less = north.combine([both], out=tmp_path / "less.enc", forget=[parts[0]])
    assert hospital.is_exact(FOREST, less, range(2, BLOCKS))
    # a file that the worker did not make is sent first
    again = north.combine([tmp_path / "less.enc", parts[0]])
    assert hospital.is_exact(FOREST, again)


def test_a_prediction_by_a_model_that_nobody_opened(server: service.Server, tmp_path: Path) -> None:
    model = es.MultinomialNB()
    owner = samples.small_owner(primes=9, kept=4)
    place = tmp_path / "train"
    samples.store_table(owner, place, range(2))
    with server.connect("predictor") as worker:
        table = worker.upload(place)
        job = worker.fit(model, table, wait=False)
        job.wait()
        votes = tmp_path / "votes.enc"
        worker.predict(job, table, votes, output="factors")
        assert votes.stat().st_mode & 0o077 == 0  # it speaks of single rows
        opened = owner.open(votes, SCHEMA)
        clear = es.Table.concat([samples.rows(block) for block in range(2)])
        wanted = model.fit(clear).predict_votes(clear, output="factors")
        assert opened.to_numpy().tolist() == wanted.to_numpy().tolist()


@pytest.mark.slow
def test_dask_does_the_work(tmp_path: Path, hospital: Hospital) -> None:
    distributed = pytest.importorskip("distributed")
    with service.Server(tmp_path) as lonely, lonely.connect("north") as worker:
        job = worker.fit(FOREST, worker.upload(hospital.table), rows_per_shard=ROWS, wait=False)
        with (
            distributed.LocalCluster(
                n_workers=2, threads_per_worker=1, dashboard_address=None
            ) as machines,
            distributed.Client(machines) as client,
        ):
            options = {"allow": [str(tmp_path)], "wait": 1.0, "pure": False}
            queue = str(tmp_path / "storage/queue")
            tasks = [client.submit(es.cluster.work, queue, **options) for _ in range(2)]
            assert sum(task.result(60).shards for task in tasks) >= BLOCKS
        assert hospital.is_exact(FOREST, worker.result(job, tmp_path / "forest.enc"))


def test_a_job_that_is_cancelled_goes_on_when_asked_again(
    tmp_path: Path, hospital: Hospital
) -> None:
    with (
        service.Server(tmp_path) as lonely,
        lonely.connect("north") as worker,
    ):  # nobody works there
        table = worker.upload(hospital.table)
        job = worker.fit(FOREST, table, wait=False)
        assert job.status().state == "queued"
        assert job.cancel().state == "cancelled"
        with pytest.raises(es.WorkerError, check=error("cancelled-job")):
            job.wait()
        es.cluster.work(tmp_path / "storage/queue")  # finds nothing to do
        assert job.status().shards_done == 0
        assert worker.fit(FOREST, table, wait=False).id == job.id
        assert job.status().state == "queued"
        es.cluster.work(tmp_path / "storage/queue")
        assert hospital.is_exact(FOREST, worker.result(job, tmp_path / "forest.enc"))
        job.delete()
        with pytest.raises(es.WorkerError, check=error("refused-by-worker")):
            job.status()
        table.delete()
        with pytest.raises(es.WorkerError, check=error("refused-by-worker")):
            worker.fit(FOREST, table)
        assert worker.offers()["used_bytes"] < 4 << 20  # the keys are left


def test_an_upload_goes_on_where_it_was(tmp_path: Path, hospital: Hospital) -> None:
    with service.Server(tmp_path) as lonely, lonely.connect("north") as worker:
        reports: list[tuple[int, int]] = []

        def stop_early(there: int, total: int) -> None:
            reports.append((there, total))
            if len(reports) == 4:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            worker.upload(hospital.table, progress=stop_early)
        reports.clear()
        worker.upload(hospital.table, progress=lambda there, total: reports.append((there, total)))
        assert reports[0][0] > 0  # what was there was not sent again
        assert reports[-1][0] == reports[-1][1]
        reports.clear()
        worker.upload(
            es.load(hospital.table), progress=lambda there, total: reports.append((there, total))
        )
        assert len(reports) == 1


def test_a_table_in_memory_asks_by_its_own_names(
    north: es.Worker, hospital: Hospital, tmp_path: Path
) -> None:
    table = north.upload(hospital.owner.encrypt(samples.rows(0), workers=1))
    out = table.counts("sex", out=tmp_path / "counts.enc")
    assert hospital.owner.open(out, SCHEMA).equals(samples.rows(0).counts("sex"))


def test_what_cannot_be_done_is_said_at_once(north: es.Worker, table: WorkerTable) -> None:
    with pytest.raises(es.SchemaError):
        north.ask(es.TTest(variable="v0", by="v9"), table)
    with pytest.raises(es.FileFormatError, check=error("import-questions")) as caught:
        north._connection.json(
            "POST",
            "/v1/jobs",
            json={"kind": "ask", "table": table.name, "question": "nobody", "params": {}},
        )
    assert "nobody here knows the question" in str(caught.value)
    assert "/storage" not in str(caught.value)  # nor where things lie there


def test_a_result_that_answers_something_else_is_refused(
    north: es.Worker,
    server: service.Server,
    table: WorkerTable,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job, other = table.counts("v0", wait=False), table.counts("v1", wait=False)
    job.wait()
    other.wait()
    (owner,) = (server.folder / "storage/owners").glob(f"*/results/{job.id}")
    owner.write_bytes(owner.with_name(other.id).read_bytes())
    with pytest.raises(es.FileFormatError, check=error("other-question")):
        north.result(job, tmp_path / "counts.enc")
    download = ServiceWorker._download

    def damaged(self: ServiceWorker, job: Any, file: Any, *given: Any) -> None:
        download(self, job, file, *given)
        file.seek(-100, 2)
        file.write(bytes(16))

    monkeypatch.setattr(ServiceWorker, "_download", damaged)
    with pytest.raises(es.FileFormatError, check=error("altered-file")):
        north.result(other, tmp_path / "counts.enc")
    assert list(tmp_path.iterdir()) == []


def test_the_audit_log_has_all_and_no_token(north: es.Worker, server: service.Server) -> None:
    path = server.folder / "audit.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert audit.check(path) == len(lines)
    assert {"put object", "put table", "submit", "get result"} <= {line["what"] for line in lines}
    assert "est_" not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600


def test_connect_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx2", None)
    with pytest.raises(ImportError, match=r"pip install 'encryptedstats\[service\]'"):
        es.connect("https://worker.example", "est_x")


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("http://worker.example", "token-in-the-clear"),
        ("ftp://worker.example", "unknown-place"),
        ("https://me@worker.example", "not-a-url"),
        ("worker.example", "unknown-place"),
    ],
)
def test_addresses_that_are_refused(url: str, complaint: str) -> None:
    with pytest.raises(ValueError, check=error(complaint)):
        es.connect(url, "est_x")


def test_a_worker_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(es.WorkerError, check=error("unreachable-worker")) as caught:
        es.connect(f"http://127.0.0.1:{free_port()}", "est_x", patience=0.3).offers()
    assert caught.value.status == 0


def test_a_token_comes_from_a_file_that_is_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: service.Server
) -> None:
    file = tmp_path / "token"
    file.write_text(server.token("filed") + "\n")
    file.chmod(0o644)
    with pytest.raises(PermissionError, match="chmod 600"):
        es.connect(server.url, token_file=file)
    file.chmod(0o600)
    assert es.connect(server.url, token_file=file).offers()["used_bytes"] == 0
    monkeypatch.setenv("ENCRYPTEDSTATS_TOKEN_FILE", str(file))
    assert es.connect(server.url).jobs() == []
    monkeypatch.delenv("ENCRYPTEDSTATS_TOKEN_FILE")
    monkeypatch.delenv("ENCRYPTEDSTATS_TOKEN", raising=False)
    with pytest.raises(es.WorkerError, check=error("no-token")):
        es.connect(server.url)


def test_a_secret_key_never_leaves(
    north: es.Worker, server: service.Server, hospital: Hospital, tmp_path: Path
) -> None:
    table = north.upload(hospital.table)  # which may be there from another test, or not
    before = server.objects()
    key = tmp_path / "secret.key"
    hospital.owner.save(key)
    with pytest.raises(es.WorkerError, check=error("unwelcome-file")):
        north.upload(hospital.table, keys=key)
    with pytest.raises(es.FileFormatError, check=error("not-encrypted")):
        north.combine([key, key], table)
    assert container.read(key).kind == "secret key"
    assert server.objects() == before
