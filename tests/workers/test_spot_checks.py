"""A worker of every kind is challenged by the owner, and one that lies is caught."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import cluster_samples as samples
import numpy as np
import pytest
from cluster_samples import BLOCKS, FOREST, ROWS, SCHEMA

import encryptedstats as es
from encryptedstats.cluster import scheduling
from encryptedstats.spotcheck import Challenge, Response
from encryptedstats.workers import WorkerTable
from error_codes import error

COUNTS = es.ChiSquare("v1", "class")
NB = es.MultinomialNB()


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of which its owner keeps residues of all blocks, and the key file beside it."""
    owner, place = samples.small_owner(primes=6), tmp_path_factory.mktemp("stored")
    sealed = owner.encrypt(samples.rows(0), out=place / "train", workers=1, spot_check=True)
    for block in range(1, BLOCKS):
        sealed = sealed.append(owner.encrypt(samples.rows(block), workers=1, spot_check=True))
    owner.save(place / "secret.key")
    return place


@pytest.fixture
def hospital(stored: Path, tmp_path: Path) -> samples.Hospital:
    """Copies for a test, which may add rows or lose the key."""
    place = tmp_path / "hospital"
    shutil.copytree(stored, place)
    return samples.Hospital(es.Owner.load(place / "secret.key"), place / "train")


@pytest.mark.parametrize("question", [NB, FOREST, COUNTS], ids=lambda one: one.name)
def test_honest_workers_pass(
    worker: es.Worker, hospital: samples.Hospital, question: es.Question
) -> None:
    table = worker.upload(hospital.table)
    answer = worker.ask(question, table)
    opened = hospital.owner.open(answer, SCHEMA, verify="spot", on=table)
    assert repr(opened) == repr(hospital.owner.open(answer, SCHEMA))
    if question is not COUNTS:
        assert opened.n_rows_ == BLOCKS * ROWS
        assert hospital.is_exact(question, answer)


def test_liars_are_caught(worker: es.Worker, hospital: samples.Hospital) -> None:
    table = worker.upload(hospital.table)
    answer = worker.ask(NB, table).answer_
    part = answer.ciphertexts.parts[0]
    lie = part.residues.copy()
    lie[0, 0, 5] ^= np.uint64(1)
    parts = (replace(part, residues=lie), *answer.ciphertexts.parts[1:])
    wrong = replace(answer, totals=answer.ciphertexts._with(parts=parts))
    with pytest.raises(es.VerificationError, check=error("spot-check-failed", "MultinomialNB")):
        hospital.owner.open(wrong, SCHEMA, verify="spot", on=table)
    with pytest.raises(es.KeyMismatchError, check=error("retired-key")):
        hospital.owner.open(answer, SCHEMA, verify="spot", on=table)


def test_other_rows_are_refused_before_anything_is_asked(
    worker: es.Worker, hospital: samples.Hospital, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stale = worker.ask(NB, hospital.table)
    more = hospital.owner.encrypt(samples.rows(BLOCKS), workers=1, spot_check=True)
    es.load(hospital.table).append(more)
    table = worker.upload(hospital.table)
    monkeypatch.setattr(WorkerTable, "respond", lambda *_: 1 / 0)
    with pytest.raises(es.VerificationError, check=error("different-rows")):
        hospital.owner.open(stale, SCHEMA, verify="spot", on=table)
    monkeypatch.undo()
    again = worker.ask(NB, table)
    opened = hospital.owner.open(again, SCHEMA, verify="spot", on=table)
    assert opened.n_rows_ == (BLOCKS + 1) * ROWS


class Broken:
    """A table whose worker ends in the middle of a conversation, or answers something else."""

    def __init__(self, table: WorkerTable, change: Any) -> None:
        self.table, self.change, self.block_ids = table, change, table.block_ids

    def respond(self, question: es.Question, challenge: Challenge, **options: Any) -> Response:
        return self.change(self.table.respond(question, challenge, **options))  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "change",
    [
        lambda response: Response(response.sums[1:]),
        lambda response: Response(tuple(one[:-1] for one in response.sums)),
        lambda response: Response(tuple(one | np.uint64(1 << 63) for one in response.sums)),
        lambda response: Response(tuple(one.astype(np.float64) for one in response.sums)),
    ],
    ids=["fewer", "smaller", "unreduced", "floats"],
)
def test_malformed_responses_are_no_lies(worker: es.Worker, hospital: Any, change: Any) -> None:
    table = worker.upload(hospital.table)
    answer = worker.ask(NB, table)
    with pytest.raises(es.VerificationError, check=error("malformed-response")):
        hospital.owner.open(answer, SCHEMA, verify="spot", on=Broken(table, change))
    assert hospital.owner.open(answer, SCHEMA, verify="spot", on=table).n_rows_ == BLOCKS * ROWS


def test_options_are_those_of_the_worker(worker: es.Worker, hospital: samples.Hospital) -> None:
    table = worker.upload(hospital.table)
    answer = worker.ask(NB, table)
    with pytest.raises(es.ArgumentTypeError, check=error("unknown-option")):
        hospital.owner.open(answer, SCHEMA, verify="spot", on=table, cpu=2)


def test_nothing_reaches_a_worker_after_its_response(
    worker: es.Worker, hospital: samples.Hospital, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether a check passed or failed, the worker has been asked the same."""
    table, requests = worker.upload(hospital.table), list[list[str]]()
    answer = worker.ask(NB, table).answer_
    part = answer.ciphertexts.parts[0]
    lie = part.residues.copy()
    lie[1, 0, 0] ^= np.uint64(1)
    parts = (replace(part, residues=lie), *answer.ciphertexts.parts[1:])
    wrong = replace(answer, totals=answer.ciphertexts._with(parts=parts))
    for name in ("_submit", "_fetch", "status", "delete", "_delete_table", "upload", "cancel"):
        before = getattr(type(worker), name)

        def record(
            self: es.Worker, *args: Any, _name: str = name, _do: Any = before, **options: Any
        ) -> Any:
            requests[-1].append(_name)
            return _do(self, *args, **options)

        monkeypatch.setattr(type(worker), name, record)
    for one in (answer, wrong):
        requests.append([])
        fails = pytest.raises(es.VerificationError, check=error("spot-check-failed"))
        with fails if one is wrong else nullcontext():
            hospital.owner.open(one, SCHEMA, verify="spot", on=table)
    asked, again = (list(dict.fromkeys(one)) for one in requests)
    assert asked == again
    assert asked[-1] in ("delete", "status")


# -- what does not depend on the worker ------------------------------------------------------------


def test_refusals(hospital: samples.Hospital) -> None:
    table, owner = es.load(hospital.table), hospital.owner
    answer = table.ask(NB)
    for options, code in (
        ({"verify": "all"}, "unknown-verification"),
        ({"on": table}, "unknown-verification"),
    ):
        with pytest.raises(es.ArgumentError, check=error(code)):
            owner.open(answer, SCHEMA, **options)
    with pytest.raises(es.ArgumentTypeError, check=error("no-table")):
        owner.open(answer, SCHEMA, verify="spot")
    with pytest.raises(es.VerificationError, check=error("different-questions")):
        owner.open(answer, SCHEMA, verify="spot", on=table, question=FOREST)
    nobody = samples.small_owner()
    with pytest.raises(es.VerificationError, check=error("nothing-kept")):
        nobody.open(answer, SCHEMA, verify="spot", on=table)


def test_predictions_are_refused(tmp_path: Path) -> None:
    owner = samples.small_owner(primes=9, kept=4)
    table = owner.encrypt(samples.rows(0), workers=1, spot_check=True)
    votes = table.ask(NB).predict_votes(table, output="factors")
    with pytest.raises(es.VerificationError, check=error("not-residue-local")):
        owner.open(votes, SCHEMA, verify="spot", on=table)


def test_answers_are_checked_from_files(hospital: samples.Hospital, tmp_path: Path) -> None:
    table, owner = es.load(hospital.table), hospital.owner
    table.ask(NB).save(tmp_path / "nb.enc")
    found = owner.open(tmp_path / "nb.enc", SCHEMA, verify="spot", on=table)
    assert list(found.totals_) == list(NB.fit(hospital.plain()).totals_)


def test_parts_that_were_added_up_are_checked(hospital: samples.Hospital, tmp_path: Path) -> None:
    parts = [hospital.owner.encrypt(samples.rows(n), workers=1, spot_check=True) for n in (8, 9)]
    both = parts[0].append(parts[1])
    total = parts[0].ask(NB).answer_ + parts[1].ask(NB).answer_
    assert hospital.owner.open(total, SCHEMA, verify="spot", on=both).n_rows_ == 2 * ROWS


def test_dask_is_driven_by_another_process(
    hospital: samples.Hospital, monkeypatch: pytest.MonkeyPatch
) -> None:
    with es.connect(f"dask://local{hospital.table.parent}/work") as worker:
        table = worker.upload(hospital.table)
        with pytest.raises(es.ClusterError, check=error("secret-key-in-process")):
            worker.ask(NB, table)
        answer = es.load(hospital.table).ask(NB)
        monkeypatch.setattr(scheduling, "connect", lambda *_: 1 / 0)
        opened = hospital.owner.open(answer, SCHEMA, verify="spot", on=table, workers=1)
        assert opened.n_rows_ == BLOCKS * ROWS
        with pytest.raises(es.DeviceError, check=error("unknown-device")):
            hospital.owner.open(answer, SCHEMA, verify="spot", on=table, device="nothing")
    assert hospital.owner.retired is None


KILLED = """\
    import os, signal, sys, warnings
    warnings.simplefilter("ignore")
    import encryptedstats as es
    from encryptedstats.spotcheck import opening

    def die(*arguments, **options):
        os.kill(os.getpid(), signal.SIGKILL)

    opening.respond = die
    owner, table = es.Owner.load(sys.argv[1]), es.load(sys.argv[2])
    owner.open(sys.argv[3], verify="spot", on=table)
"""


def test_an_owner_who_is_killed_goes_on(hospital: samples.Hospital, tmp_path: Path) -> None:
    key, answer = hospital.table.parent / "secret.key", tmp_path / "answer.enc"
    table = es.load(hospital.table)
    table.ask(NB).save(answer)
    command = [sys.executable, "-c", textwrap.dedent(KILLED), key, hospital.table, answer]
    ended = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False)
    assert ended.returncode == -signal.SIGKILL
    owner = es.Owner.load(key)
    assert owner.open(answer, SCHEMA, verify="spot", on=table).n_rows_ == BLOCKS * ROWS
    assert owner._kept.commitments == 2  # weights were sent twice, the same ones
    assert owner.retired is None
