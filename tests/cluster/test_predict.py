"""Predictions by many machines: exactly those of one, whatever dies or is damaged on the way, and
every row once.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import cluster_samples as samples
import pytest
from cluster_samples import FOREST, SCHEMA, SLOTS, names, start_worker, until
from test_cluster_commands import done, program, run

import encryptedstats as es
from encryptedstats import cluster
from encryptedstats.cluster import items
from encryptedstats.cluster.jobs import JOBS, Job, StoredJob
from encryptedstats.cluster.predicting import PredictionJob
from encryptedstats.cluster.scheduling import DaskRun, run_on_dask
from encryptedstats.storage import container
from encryptedstats.storage.objects import open_store
from error_codes import error
from texts import text_of

SIZES = (
    12,
    7,
    20,
    1,
)  # rows of the blocks; with rows_per_shard=PER_SHARD the first two are one shard
PER_SHARD, SHARDS = 20, 3
MNB = es.MultinomialNB()
OTHER = es.CompletelyRandomForest(n_trees=4, depth=2, random_state=4)


@dataclass(frozen=True)
class SmallPlan:
    """What an owner needs of a plan for models that predict unopened."""

    parameters: es.Parameters
    rotations: tuple[int, ...] = (0, 1, 4, 16, 64, 256)


def predicting_owner() -> es.Owner:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", es.InsecureParametersWarning)
        made = es.Parameters.from_bits("bgv", SLOTS, 1 << 24, (49,) * 12, allow_insecure=True)
        return es.Owner(SmallPlan(replace(made, kept_primes=6)))


def new_rows(block: int) -> es.Table:
    return SCHEMA.table(samples.frame(SIZES[block], 50 + block).drop(columns="ill"), slots=SLOTS)


@dataclass(frozen=True)
class Clinic:
    """An owner, a table of new rows in uneven blocks, and encrypted models."""

    owner: es.Owner
    place: Path

    @property
    def rows(self) -> Path:
        return self.place / "new"

    def model(self, name: str = "forest") -> Path:
        return self.place / f"{name}.enc"

    def opened(self, votes: Any) -> es.Votes:
        found = (
            votes
            if isinstance(votes, es.EncryptedAnswer)
            else es.load(votes, keys=self.owner.public_keys())
        )
        return self.owner.open(found, schema=SCHEMA)

    def is_exact(self, out: Path | str, model: Any = FOREST, output: str | None = None) -> bool:
        """Whether the stored votes open to what the clear model says of the clear rows, in their
        order.
        """
        clear = es.Table.concat([new_rows(block) for block in range(len(SIZES))])
        wanted = model.fit(samples.rows(0)).predict_votes(clear, output=output)
        found = self.opened(out)
        same = found.to_numpy().tolist() == wanted.to_numpy().tolist()
        return same and found.predict().tolist() == wanted.predict().tolist()


@pytest.fixture(scope="session")
def clinic(tmp_path_factory: pytest.TempPathFactory) -> Clinic:
    made = Clinic(predicting_owner(), tmp_path_factory.mktemp("clinic"))
    train = made.owner.encrypt(samples.rows(0), workers=1)
    FOREST.fit(train, workers=1).save(made.model())
    MNB.fit(train, workers=1).save(made.model("mnb"))
    OTHER.fit(train, workers=1).save(made.model("other"))
    sealed = made.owner.encrypt(new_rows(0), workers=1)
    for block in range(1, len(SIZES)):
        sealed = sealed.append(made.owner.encrypt(new_rows(block), workers=1))
    sealed.save(made.rows)
    return made


@pytest.fixture
def job(clinic: Clinic, tmp_path: Path) -> PredictionJob:
    return cluster.submit_prediction(
        clinic.model(), clinic.rows, tmp_path / "votes", rows_per_shard=PER_SHARD
    )


def shard_names(job: StoredJob) -> list[str]:
    return [item.name for item in job.items.values() if item.is_shard]


def do_shards(job: StoredJob) -> list[Path]:
    for name in shard_names(job):
        items.run_item(job, name)
    return [Path(job.queue) / name for name in shard_names(job)]


# -- the same answers
# ------------------------------------------------------------------------------------------------


def test_the_votes_are_those_of_one_machine(
    clinic: Clinic, job: PredictionJob, tmp_path: Path
) -> None:
    report = cluster.work(job.queue)
    assert (report.shards, report.items, report.rows) == (SHARDS, SHARDS + 1, sum(SIZES))
    assert clinic.is_exact(job.out)
    rows = es.load(clinic.rows)
    alone = es.load(clinic.model(), keys=rows.keys).predict_votes(rows, workers=1)
    assert clinic.opened(alone).equals(clinic.opened(job.out))
    alone.save(tmp_path / "alone")
    assert (tmp_path / "alone").read_bytes() == Path(job.out).read_bytes()
    assert cluster.work(job.queue).items == 0
    (state,) = cluster.status(job.queue)
    assert (state.finished, state.shards_done, state.rows_done) == (True, SHARDS, sum(SIZES))


@pytest.mark.parametrize("output", ["factors", "products"])
def test_a_model_that_answers_in_several_ways(clinic: Clinic, tmp_path: Path, output: str) -> None:
    job = cluster.submit_prediction(
        clinic.model("mnb"), clinic.rows, tmp_path / "votes", output=output
    )
    cluster.work(job.queue)
    assert clinic.is_exact(job.out, MNB, output)


def test_a_model_in_memory_is_kept_beside_the_job(clinic: Clinic, tmp_path: Path) -> None:
    sealed = es.load(clinic.model(), keys=clinic.owner.public_keys())
    job = cluster.submit_prediction(
        sealed, clinic.rows, tmp_path / "votes", queue=tmp_path / "work"
    )
    assert names(tmp_path / "work", "models") == {job.model_sha256}
    assert job.model_sha256 == hashlib.sha256(clinic.model().read_bytes()).hexdigest()
    assert (
        cluster.submit_prediction(
            sealed, clinic.rows, tmp_path / "votes", queue=tmp_path / "work"
        ).id
        == job.id
    )
    cluster.work(tmp_path / "work")
    assert clinic.is_exact(job.out)


def test_an_opened_model_leaves_no_names_behind(clinic: Clinic, tmp_path: Path) -> None:
    opened = clinic.owner.open(
        es.load(clinic.model(), keys=clinic.owner.public_keys()), schema=SCHEMA
    )
    job = cluster.submit_prediction(
        opened, clinic.rows, tmp_path / "votes", rows_per_shard=PER_SHARD
    )
    cluster.work(job.queue)
    assert clinic.is_exact(job.out)

    def has_names(path: Path) -> bool:
        """As JSON spells them, also within JSON."""
        return any(spelled in text_of(path.read_bytes()) for spelled in (b'"age"', b'"age\\"'))

    opened.save(tmp_path / "opened")
    assert has_names(tmp_path / "opened")
    left = [Path(job.out), *(path for path in Path(job.queue).rglob("*") if path.is_file())]
    assert not [path for path in left if has_names(path)]


def test_one_worker_does_fits_and_predictions(clinic: Clinic, tmp_path: Path) -> None:
    queue = tmp_path / "work"
    clinic.owner.encrypt(samples.rows(0), workers=1).save(tmp_path / "train")
    fit = cluster.submit(FOREST, tmp_path / "train", tmp_path / "m", queue=queue)
    prediction = cluster.submit_prediction(
        clinic.model(), clinic.rows, tmp_path / "votes", queue=queue
    )
    assert cluster.work(queue).shards == len(shard_names(fit)) + len(shard_names(prediction))
    assert es.load(tmp_path / "m", keys=clinic.owner.public_keys()).n_rows_ == samples.ROWS
    assert clinic.is_exact(tmp_path / "votes")
    assert isinstance(StoredJob.load(str(queue), prediction.id), PredictionJob)
    with pytest.raises(es.FileFormatError, check=error("wrong-kind")):
        Job.load(str(queue), prediction.id)


# -- names
# ------------------------------------------------------------------------------------------------


def test_names_differ_with_model_output_and_rows(
    clinic: Clinic, job: PredictionJob, tmp_path: Path
) -> None:
    def named(model: Any, **options: Any) -> list[str]:
        return shard_names(
            cluster.submit_prediction(
                model, clinic.rows, tmp_path / "other", overwrite=True, **options
            )
        )

    others = [
        named(clinic.model("mnb"), rows_per_shard=PER_SHARD),
        named(clinic.model("mnb"), rows_per_shard=PER_SHARD, output="products"),
        named(clinic.model(), rows_per_shard=sum(SIZES)),
    ]
    found = [shard_names(job), *others]
    assert len(set().union(*found)) == sum(map(len, found))
    assert named(clinic.model(), rows_per_shard=PER_SHARD) == shard_names(job)


def test_appended_rows_leave_the_names_of_the_others(clinic: Clinic, tmp_path: Path) -> None:
    shutil.copytree(clinic.rows, tmp_path / "new")
    before = cluster.submit_prediction(
        clinic.model(), tmp_path / "new", tmp_path / "a", rows_per_shard=1
    )
    es.load(tmp_path / "new").append(clinic.owner.encrypt(new_rows(0), workers=1))
    after = cluster.submit_prediction(
        clinic.model(), tmp_path / "new", tmp_path / "b", rows_per_shard=1
    )
    assert shard_names(after)[: len(SIZES)] == shard_names(before)
    assert len(shard_names(after)) == len(SIZES) + 1


def test_a_block_that_is_listed_twice_is_refused(job: PredictionJob) -> None:
    twice = replace(job, entries=(job.entries[0],) * 2, shards=((0, 1), (1, 2)))
    with pytest.raises(es.ClusterError, check=error("repeated-block")):
        _ = twice.items


# -- what goes wrong
# ------------------------------------------------------------------------------------------------


def test_a_killed_worker_costs_nothing_but_time(clinic: Clinic, job: PredictionJob) -> None:
    queue, first = Path(job.queue), shard_names(job)[0]
    items.run_item(job, first)
    killed = start_worker(queue, slow=600.0, lease=0.5)
    until(lambda: bool(names(queue, "leases")), "the worker has claimed a shard")
    killed.kill()
    killed.communicate()
    assert names(queue, "shards") == {first.removeprefix("shards/")}
    assert cluster.work(queue, lease=0.5).shards == SHARDS - 1
    assert clinic.is_exact(job.out)


def cut_short(job: PredictionJob, done: list[Path]) -> None:
    done[1].write_bytes(done[1].read_bytes()[:-1000])


def flip_a_byte(job: PredictionJob, done: list[Path]) -> None:
    data = bytearray(done[1].read_bytes())
    data[len(data) // 2] ^= 1
    done[1].write_bytes(data)


def exchange(job: PredictionJob, done: list[Path]) -> None:
    shutil.copy(done[0], done[1])


def votes_for_other_rows(job: PredictionJob, done: list[Path]) -> None:
    """As if a worker had left out a shard and done another one twice: all is whole, and under the
    right name.
    """
    wrong, item = job.items[shard_names(job)[2]], job.items[shard_names(job)[1]]
    open_store(job.queue).write(item.name, [items.result_bytes(item, job.evaluate(wrong))])


def votes_of_another_model(job: PredictionJob, done: list[Path]) -> None:
    item = job.items[shard_names(job)[1]]
    model = es.load(Path(job.model_url).with_name("other.enc"), keys=job.keys)
    votes = model.predict_votes(job.sub_table(item.blocks), workers=1)
    open_store(job.queue).write(item.name, [items.result_bytes(item, votes)])


@pytest.mark.parametrize(
    "damage",
    [cut_short, flip_a_byte, exchange, votes_for_other_rows, votes_of_another_model],
    ids=lambda f: f.__name__,
)
def test_a_damaged_result_is_made_again(
    clinic: Clinic,
    job: PredictionJob,
    damage: Callable[[PredictionJob, list[Path]], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = do_shards(job)
    whole = made[1].read_bytes()
    damage(job, made)
    assert made[1].read_bytes() != whole
    with caplog.at_level(logging.WARNING, "encryptedstats.cluster"):
        cluster.work(job.queue)
    assert made[1].name in caplog.text
    assert made[1].read_bytes() == whole
    assert clinic.is_exact(job.out)


def test_a_missing_result_is_made_again(clinic: Clinic, job: PredictionJob) -> None:
    do_shards(job)[2].unlink()
    assert cluster.work(job.queue).shards == 1
    assert clinic.is_exact(job.out)


def test_a_damaged_block_is_named_and_all_else_is_done(clinic: Clinic, tmp_path: Path) -> None:
    shutil.copytree(clinic.rows, tmp_path / "new")
    job = cluster.submit_prediction(
        clinic.model(), tmp_path / "new", tmp_path / "votes", rows_per_shard=1
    )
    path = sorted((tmp_path / "new" / "blocks").iterdir())[1]
    path.write_bytes(b"nothing")
    with pytest.raises(es.FileFormatError, match=path.name):
        cluster.work(job.queue)
    (state,) = cluster.status(job.queue)
    assert (state.shards_done, state.finished) == (len(SIZES) - 1, False)
    assert not Path(job.out).exists()


def test_another_model_at_its_place_is_refused(clinic: Clinic, tmp_path: Path) -> None:
    place = Path(shutil.copy(clinic.model(), tmp_path / "model"))
    job = cluster.submit_prediction(place, clinic.rows, tmp_path / "votes")
    shutil.copy(clinic.model("mnb"), place)
    with pytest.raises(es.FileFormatError, check=error("altered-file")):
        cluster.work(job.queue)
    assert not Path(job.out).exists()


def altered(job: PredictionJob, place: Path, **changes: Any) -> str:
    file = container.read(Path(job.queue) / JOBS / job.id)
    fields = {**file.fields, **{name: value for name, value in changes.items() if name != "shards"}}
    shards = (
        json.dumps(changes["shards"]).encode() if "shards" in changes else file.section("shards")
    )
    data = container.to_bytes(
        replace(file, fields=fields, sections={**file.sections, "shards": shards})
    )
    job_id = hashlib.sha256(data).hexdigest()
    (place / "jobs").mkdir()
    (place / "jobs" / job_id).write_bytes(data)
    return job_id


@pytest.mark.parametrize("shards", [[2, 3], [2, 2, 4], [3, 2, 4], [2, 5], []])
def test_a_job_that_leaves_out_or_repeats_is_refused(
    job: PredictionJob, tmp_path: Path, shards: list[int]
) -> None:
    with pytest.raises(es.FileFormatError, match="shards that leave something out"):
        PredictionJob.load(str(tmp_path), altered(job, tmp_path, shards=shards))


def test_a_job_of_another_version_is_refused(job: PredictionJob, tmp_path: Path) -> None:
    job_id = altered(job, tmp_path, circuit="0" * 64)
    with pytest.raises(es.ClusterError, check=error("other-library-version")):
        _ = PredictionJob.load(str(tmp_path), job_id).model


def test_what_cannot_be_predicted_is_refused_before_any_work(
    clinic: Clinic, tmp_path: Path
) -> None:
    def refused(
        error: type[Exception], complaint: str, model: Any, rows: Path = clinic.rows, **options: Any
    ) -> None:
        with pytest.raises(error, match=complaint):
            cluster.submit_prediction(model, rows, tmp_path / "votes", **options)
        assert not (tmp_path / "votes.work").exists()

    refused(TypeError, "a model of this library or its URL is needed, not a int", 7)
    refused(ValueError, "not fitted", es.CompletelyRandomForest())
    refused(
        ValueError, "output='nonsense': a MultinomialNB has", clinic.model("mnb"), output="nonsense"
    )
    refused(FileNotFoundError, "nowhere", tmp_path / "nowhere")
    refused(FileNotFoundError, "no encrypted table lies at", clinic.model(), tmp_path / "nowhere")
    refused(
        es.FileFormatError, "a fitted model is wanted here", next(clinic.rows.glob("public-*.keys"))
    )
    weak = samples.small_owner()
    weak.encrypt(new_rows(0), workers=1).save(tmp_path / "theirs")
    refused(es.KeyMismatchError, "key", clinic.model(), tmp_path / "theirs")
    own = FOREST.fit(weak.encrypt(samples.rows(0), workers=1), workers=1)
    refused(es.NoiseError, "encrypted_prediction=True", own, tmp_path / "theirs")
    (tmp_path / "votes").write_bytes(b"mine")
    refused(FileExistsError, "was not touched", clinic.model())
    assert (tmp_path / "votes").read_bytes() == b"mine"


# -- Dask and the commands
# -----------------------------------------------------------------------------------------------


def test_a_process_with_a_secret_key_is_refused(clinic: Clinic, tmp_path: Path) -> None:
    with pytest.raises(es.ClusterError, check=error("secret-key-in-process")):
        es.connect("dask://127.0.0.1:9").predict(clinic.model(), clinic.rows, tmp_path / "votes")


def test_finished_votes_are_read_without_a_scheduler(clinic: Clinic, job: PredictionJob) -> None:
    cluster.work(job.queue)
    run_on_dask(job, DaskRun("tcp://127.0.0.1:9"))
    votes = es.load(job.out, job.keys)
    assert votes.n_rows == sum(SIZES)
    assert clinic.is_exact(job.out)


def test_a_queue_from_beginning_to_end(clinic: Clinic, tmp_path: Path) -> None:
    queue, out = tmp_path / "work", tmp_path / "votes"
    words = (
        "predict",
        clinic.model(),
        clinic.rows,
        "-o",
        out,
        "--on",
        f"queue://{queue} rows_per_shard={PER_SHARD}",
    )
    queued = done(*words)
    assert (queued["shards"], queued["rows"]) == (SHARDS, sum(SIZES))
    assert "votes" in run(*words).output
    assert done("worker", "run", queue)["shards"] == SHARDS
    assert done("worker", "queue", queue)["jobs"][0]["finished"]
    assert clinic.is_exact(out)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--on", "local rows_per_shard=5"), "'rows_per_shard' is unknown"),
        (("--on", "queue://work", "--schema", "schema.json"), "--schema is for a file of rows"),
    ],
)
def test_options_that_do_not_fit(
    clinic: Clinic, tmp_path: Path, options: tuple[object, ...], complaint: str
) -> None:
    result = run("predict", clinic.model(), clinic.rows, "-o", tmp_path / "votes", *options)
    assert result.exit_code == 2
    assert complaint in " ".join(result.output.replace("│", " ").split())


def test_rows_in_the_clear_are_not_for_many(clinic: Clinic, tmp_path: Path) -> None:
    (tmp_path / "new.csv").write_text("age,sex\n3,f\n")
    result = run(
        "predict",
        clinic.model(),
        tmp_path / "new.csv",
        "-o",
        tmp_path / "votes",
        "--on",
        f"queue://{tmp_path / 'q'}",
    )
    assert result.exit_code == 2
    assert "only encrypted rows are predicted elsewhere" in " ".join(
        result.output.replace("│", " ").split()
    )


@pytest.mark.slow
def test_a_local_cluster(clinic: Clinic, tmp_path: Path) -> None:
    options = ("--on", f"dask://local workers=2 rows_per_shard={PER_SHARD}", "--json")
    result = program("predict", clinic.model(), clinic.rows, "-o", tmp_path / "votes", *options)
    assert result.returncode == 0, result.stderr
    facts = json.loads(result.stdout)
    assert (facts["rows"], facts["bytes"]) == (sum(SIZES), (tmp_path / "votes").stat().st_size)
    assert clinic.is_exact(tmp_path / "votes")
