"""kill -9 at random moments, two writers, workers that stand still: the old state or the new,
whole, and nothing left behind.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path

import cluster_samples as samples
import pytest
from cluster_samples import BLOCKS, FOREST, ROWS, Hospital
from fault_samples import chance, duration, ended, fork, killed, unfinished_files

import encryptedstats as es
from encryptedstats import cluster
from encryptedstats.cli.key import save_pair
from encryptedstats.errors import BusyError
from encryptedstats.procedures import read_run
from encryptedstats.tables.manifest import MANIFEST

MNB = es.MultinomialNB()


def counts(owner: es.Owner, place: Path | str) -> list[int]:
    """What a fit of the stored table opens to: reads every block."""
    return list(owner.open(MNB.fit(es.load(place), workers=1)).totals_)


def expected(*tables: es.Table) -> list[int]:
    return list(es.MultinomialNB().fit(es.Table.concat(list(tables))).totals_)


@pytest.fixture
def table() -> es.Table:
    """Several chunks of rows."""
    return samples.SCHEMA.table(samples.frame(5 * samples.SLOTS + 7, 5), slots=samples.SLOTS)


def test_encryptions_that_are_killed(
    hospital: Hospital, table: es.Table, tmp_path: Path, rounds: int
) -> None:
    moments, owner = chance("encrypt"), hospital.owner
    usual = duration(lambda: owner.encrypt(table, out=tmp_path / "whole", workers=1))
    for number in range(rounds):
        place = tmp_path / f"t{number}"
        for _ in range(2):
            killed(
                lambda place=place: owner.encrypt(table, out=place, workers=1),
                moments.uniform(0, usual),
            )
        if not (place / MANIFEST).exists():
            owner.encrypt(table, out=place, workers=1)
        assert counts(owner, place) == expected(table)
        owner.encrypt(table, out=place, workers=1, overwrite=True)
        assert not unfinished_files(place)
        shutil.rmtree(place)


def test_two_encryptions_into_one_folder(
    hospital: Hospital, table: es.Table, tmp_path: Path, rounds: int
) -> None:
    def encrypt(place: Path) -> None:
        try:
            hospital.owner.encrypt(table, out=place, workers=1)
        except (BusyError, FileExistsError):
            os._exit(7)

    for number in range(rounds):
        place = tmp_path / f"t{number}"
        codes = [
            ended(child) for child in [fork(lambda place=place: encrypt(place)) for _ in range(3)]
        ]
        assert sorted(codes) == [0, 7, 7]
        assert counts(hospital.owner, place) == expected(table)
        assert not unfinished_files(place)


def test_appends_of_several_at_once(hospital: Hospital, tmp_path: Path, rounds: int) -> None:
    """All of them report success, and so all of their rows are there."""
    owner, more = hospital.owner, [samples.rows(block) for block in range(1, 4)]
    sealed = [owner.encrypt(one, workers=1) for one in more]
    for number in range(rounds):
        place = tmp_path / f"t{number}"
        owner.encrypt(samples.rows(0), workers=1).save(place)
        children = [fork(lambda one=one, place=place: es.load(place).append(one)) for one in sealed]
        assert [ended(child) for child in children] == [0, 0, 0]
        assert counts(owner, place) == expected(samples.rows(0), *more)
        assert not unfinished_files(place)


def test_appends_that_are_killed(hospital: Hospital, tmp_path: Path, rounds: int) -> None:
    owner, moments, place = hospital.owner, chance("append"), tmp_path / "t"
    owner.encrypt(samples.rows(0), workers=1).save(place)
    inside = [samples.rows(0)]
    usual = 0.05
    for number in range(rounds):
        one, following = samples.rows(100 + number), samples.rows(200 + number)
        more = owner.encrypt(one, workers=1)
        code = killed(lambda more=more: es.load(place).append(more), moments.uniform(0, usual))
        found = counts(owner, place)
        assert found in (expected(*inside), expected(*inside, one))
        assert code != 0 or found == expected(*inside, one)  # what was reported is there
        if found == expected(*inside):
            es.load(place).append(more)
        # A process killed after its rows were stored leaves its lock, which the next writer removes.
        es.load(place).append(owner.encrypt(following, workers=1))
        inside += [one, following]
        assert counts(owner, place) == expected(*inside)
        assert not unfinished_files(place)


def test_checkpointed_fits_that_are_killed(hospital: Hospital, tmp_path: Path, rounds: int) -> None:
    pytest.importorskip("encryptedstats._fused")
    owner = es.Owner(es.plan(FOREST, samples.SCHEMA, 2 * ROWS))
    owner.encrypt(
        es.Table.concat([samples.rows(0), samples.rows(1)]), out=tmp_path / "rows", workers=1
    )
    clear, moments = FOREST.fit(hospital.plain(range(2))).totals_, chance("fit")

    def fit(number: int) -> None:
        fitted = FOREST.fit(es.load(tmp_path / "rows"), checkpoint=tmp_path / "part", workers=1)
        fitted.save(tmp_path / f"m{number}")

    usual = duration(lambda: fit(-1))
    for number in range(rounds):
        killed(lambda number=number: fit(number), moments.uniform(0, usual))
        made = tmp_path / f"m{number}"
        if not made.exists():
            fit(number)
        opened = owner.open(es.load(made, keys=owner.public_keys()))
        assert list(opened.totals_) == list(clear)
        if (
            tmp_path / "part"
        ).exists():  # killed after the model was stored, and before the checkpoint was removed
            fit(number + 1000)
        assert not (tmp_path / "part").exists()
        made.unlink()
        assert not unfinished_files(tmp_path)


def test_key_generations_that_are_killed(hospital: Hospital, tmp_path: Path, rounds: int) -> None:
    """The old pair or the new one; and of those that were never finished, nothing stays
    in hiding.
    """
    moments, secret, public = chance("keys"), tmp_path / "secret.key", tmp_path / "public.keys"
    owners = [samples.small_owner() for _ in range(2)]
    usual = duration(lambda: save_pair(owners[0], secret, public, None, force=True))
    for number in range(rounds):
        owner = owners[number % 2]
        killed(
            lambda owner=owner: save_pair(owner, secret, public, None, force=True),
            moments.uniform(0, usual),
        )
        owners[1 - number % 2].save(
            tmp_path / "elsewhere.key", overwrite=True
        )  # whatever is written next
        assert not unfinished_files(tmp_path)
        assert es.Owner.load(secret).key_id == es.load(public).key_id


@pytest.mark.parametrize("signal_sent", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_workers_of_a_queue(
    hospital: Hospital,
    tmp_path: Path,
    rounds: int,
    signal_sent: signal.Signals,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ENCRYPTEDSTATS_ALLOW", str(hospital.table.parent))
    moments = chance(f"queue {signal_sent}")
    for number in range(rounds):
        out = tmp_path / f"m{number}"
        job = cluster.submit(FOREST, hospital.table, out, rows_per_shard=ROWS)
        victim = fork(lambda job=job: cluster.work(job.queue, lease=0.3))
        time.sleep(moments.uniform(0, 0.5))
        os.kill(victim, signal_sent)
        # On a busy machine it goes on for a moment; until it is dead, nobody may take its files
        # away.
        os.waitid(os.P_PID, victim, os.WEXITED | os.WSTOPPED | os.WNOWAIT)
        cluster.work(job.queue, lease=0.3)
        before = out.read_bytes()
        assert hospital.is_exact(FOREST, out)
        os.kill(victim, signal.SIGCONT)
        assert ended(victim) in (0, -signal.SIGKILL)
        assert out.read_bytes() == before
        assert cluster.status(job.queue)[0].finished
        assert not unfinished_files(tmp_path)


def test_the_leftovers_are_what_they_seem(tmp_path: Path) -> None:
    """The search for leftovers above finds them."""
    (tmp_path / ".x.tmp").touch()
    assert len(unfinished_files(tmp_path)) == 1
    assert BLOCKS > 1


@pytest.mark.slow
def test_a_local_cluster_ends_with_its_user(hospital: Hospital, tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    script = (
        "from encryptedstats import cluster, CompletelyRandomForest as F\n"
        "import encryptedstats.cluster.scheduling as s, os\n"
        "if __name__ == '__main__':\n"
        "    with s.connect(None, 2, 30.0, False) as client:\n"
        "        client.wait_for_workers(2)\n"
        "        pids = client.run(os.getpid); pids['scheduler'] = "
        "client.run_on_scheduler(os.getpid)\n"
        "        print(*pids.values(), flush=True)\n"
        "        os.kill(os.getpid(), 9)\n"
    )
    out, _ = samples.start("-c", script).communicate(timeout=600)
    pids = [int(pid) for pid in out.split()]
    assert len(pids) == 3
    samples.until(
        lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids), "end with their user", 20
    )


def test_workers_that_are_killed_in_every_round_of_a_procedure(
    hospital: Hospital, tmp_path: Path, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner's rounds go on with the next worker, to the trees of the clear rows."""
    monkeypatch.setenv("ENCRYPTEDSTATS_ALLOW", str(tmp_path.parent))
    queue, moments = tmp_path / "work", chance("procedure")
    tree = es.DecisionTree(depth=min(rounds, 4))

    def run() -> None:
        options = {"schema": samples.SCHEMA, "folder": tmp_path / "run"}
        tree.run(hospital.table, hospital.owner, at=es.connect(f"queue://{queue}"), **options)

    def die(_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def work() -> None:
        cluster.work(queue, lease=0.3, wait=0.05, on_done=die)

    owner = fork(run)
    codes = list[int]()
    while os.waitpid(owner, os.WNOHANG) == (0, 0):
        if queue.exists():
            # The first ones live for a moment, the others until they have done something.
            early = len(codes) < 2 * rounds
            codes.append(killed(work, moments.uniform(0, 0.5)) if early else ended(fork(work)))
    assert codes.count(-signal.SIGKILL) >= tree.depth
    assert read_run(tmp_path / "run", samples.SCHEMA).read() == tree.run(hospital.plain())
