"""S3 that answers 503, resets connections, alters and cuts what it sends: exact, or an error that
names it; nothing lost.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import cluster_samples as samples
import pytest
from cluster_samples import FOREST, ROWS, Hospital, start, until
from fault_samples import KINDS, Proxy, chance
from test_kills import counts, expected
from test_s3 import answers

import encryptedstats as es
from encryptedstats import cluster
from encryptedstats.storage.leases import write_alone
from encryptedstats.storage.objects import LEASE, open_store
from encryptedstats.tables.manifest import MANIFEST
from ports import free_port

s3fs = pytest.importorskip("s3fs")
pytest.importorskip("moto.server")
ROOT = "s3://hospital"


@pytest.fixture(scope="module")
def proxy() -> Iterator[Proxy]:
    """A bucket behind a proxy that breaks nothing yet."""
    port = free_port()
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    server = start("-m", "moto.server", "-H", "127.0.0.1", "-p", port, **quiet)
    before = dict(os.environ)
    made = Proxy(port)
    os.environ.update(
        AWS_ENDPOINT_URL=made.url,
        AWS_ACCESS_KEY_ID="nobody",
        AWS_SECRET_ACCESS_KEY="nothing",
        AWS_DEFAULT_REGION="us-east-1",
        AWS_MAX_ATTEMPTS="2",  # the library's own tries are what is tested
        no_proxy="127.0.0.1",
        NO_PROXY="127.0.0.1",
    )
    try:
        until(lambda: answers(f"http://127.0.0.1:{port}/moto-api/"), "start moto's server")
        s3fs.S3FileSystem.clear_instance_cache()
        s3fs.S3FileSystem().mkdir(ROOT)
        yield made
    finally:
        s3fs.S3FileSystem.clear_instance_cache()
        os.environ.clear()
        os.environ.update(before)
        made.close()
        server.kill()
        server.wait()


def tried(act: Callable[[], Any], place: str) -> bool:
    """Whether it was done; if not, the error is of this library or of the system, and names what it
    was at.
    """
    try:
        act()
    except (es.EncryptedStatsError, OSError) as error:
        if place not in str(error):
            raise
        return False
    return True


@pytest.mark.parametrize("failures", [2, pytest.param(60, marks=pytest.mark.slow)])
def test_an_outage_replaces_nothing(proxy: Proxy, hospital: Hospital, failures: int) -> None:
    owner, place = hospital.owner, f"{ROOT}/outage{failures}"
    owner.encrypt(samples.rows(0), out=place, workers=1)
    es.MultinomialNB().fit(es.load(place), workers=1).save(f"{place}-model")
    saved = open_store(ROOT).read(f"outage{failures}-model")
    for kinds in (("503",), ("reset",)):
        proxy.break_next(failures, kinds=kinds)
        with pytest.raises((FileExistsError, es.StorageError)):
            owner.encrypt(samples.rows(1), out=place, workers=1)
        proxy.break_next(failures, kinds=kinds)
        with pytest.raises((FileExistsError, es.StorageError)):
            FOREST.fit(samples.rows(2)).save(f"{place}-model")
        proxy.break_next(0)
        assert counts(owner, place) == expected(samples.rows(0))
        assert open_store(ROOT).read(f"outage{failures}-model") == saved


def test_tables_through_a_broken_network(proxy: Proxy, hospital: Hospital, rounds: int) -> None:
    owner, moments = hospital.owner, chance("tables on S3")
    for number in range(rounds):
        place = f"{ROOT}/t{number}of{rounds}"
        store = open_store(place)
        proxy.break_next(40, moments.choice([0.05, 0.2]), (moments.choice(KINDS),))
        done = tried(
            lambda place=place: owner.encrypt(samples.rows(0), out=place, workers=1), place
        )
        proxy.break_next(0)
        if not done and not store.exists(MANIFEST):
            owner.encrypt(samples.rows(0), out=place, workers=1)
        assert counts(owner, place) == expected(samples.rows(0))
        more = owner.encrypt(samples.rows(1), workers=1)
        proxy.break_next(40, moments.choice([0.05, 0.2]), (moments.choice(KINDS),))
        done = tried(lambda place=place, more=more: es.load(place).append(more), place)
        proxy.break_next(0)
        found = counts(owner, place)
        assert found in (expected(samples.rows(0)), expected(samples.rows(0), samples.rows(1)))
        assert not done or found == expected(samples.rows(0), samples.rows(1))
        if found == expected(samples.rows(0)):
            es.load(place).append(more)
        assert counts(owner, place) == expected(samples.rows(0), samples.rows(1))
        with write_alone(store):
            pass
        assert not store.exists(LEASE)


@pytest.mark.slow
def test_queues_through_a_broken_network(proxy: Proxy, hospital: Hospital, rounds: int) -> None:
    moments, place = chance("queues on S3"), f"{ROOT}/queues{rounds}"
    samples.store_table(hospital.owner, place)
    for number in range(-(-rounds // 3)):
        out = f"{ROOT}/m{number}of{rounds}"
        job = cluster.submit(FOREST, place, out, rows_per_shard=2 * ROWS)
        proxy.break_next(40, moments.choice([0.05, 0.2]), (moments.choice(KINDS),))
        tried(lambda job=job: cluster.work(job.queue, lease=1.0), ROOT)
        proxy.break_next(0)
        cluster.work(job.queue, lease=1.0)
        assert hospital.is_exact(FOREST, out)
        assert cluster.submit(FOREST, place, out, rows_per_shard=2 * ROWS).finished


def test_the_proxy_breaks_what_it_should(proxy: Proxy) -> None:
    store = open_store(f"{ROOT}/proxy")
    store.write("x", [b"1" * 1000])
    for kind in KINDS:
        broken = len(proxy.broken)
        proxy.break_next(1, kinds=(kind,))
        store.exists("x")
        assert proxy.broken[broken:] == [kind]
        assert store.read("x") == b"1" * 1000
