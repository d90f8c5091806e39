"""``worker serve`` and its tokens, ``--on URL`` on the commands that a worker runs, and
certificates that are pinned.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import cluster_samples as samples
import httpx2
import pytest
import service_samples as service
from cluster_samples import FOREST, SCHEMA, Hospital
from typer.testing import CliRunner

import encryptedstats as es
from certificates import pin_of
from encryptedstats.cli._app import app
from encryptedstats.service import audit, jobs, making
from encryptedstats.service.refusals import Refusal
from encryptedstats.service.tokens import Tokens
from encryptedstats.storage.objects import open_store
from error_codes import error
from ports import free_port


def run(*arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(one) for one in arguments])
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture
def token(server: service.Server, monkeypatch: pytest.MonkeyPatch) -> str:
    made = server.token("shell")
    monkeypatch.setenv("ENCRYPTEDSTATS_TOKEN", made)
    return made


def test_commands_need_no_other_change(
    server: service.Server, token: str, hospital: Hospital, tmp_path: Path
) -> None:
    here, there = tmp_path / "here.enc", tmp_path / "there.enc"
    for arguments in (
        ("ask", hospital.table, "counts(v0, class)"),
        ("ask", hospital.table, "crosstab(v0, v1)"),
        ("ask", hospital.table, "ChiSquare", "first=v0", "second=v1"),
        ("ask", hospital.table, "mnb"),
    ):
        run(*arguments, "-o", here, "--force")
        (said,) = json.loads(run(*arguments, "-o", there, "--force", "--on", server.url, "--json"))[
            "answers"
        ]
        made_here, made_there = (str(hospital.owner.open(one, SCHEMA)) for one in (here, there))
        assert said["rows"] == 120
        assert said["file"] == str(there)
        assert made_here == made_there


def test_folds_by_a_worker(
    server: service.Server, token: str, hospital: Hospital, tmp_path: Path
) -> None:
    place, here, there = tmp_path / "dealt", tmp_path / "here.enc", tmp_path / "there.enc"
    samples.store_table(hospital.owner, place, folds=3)
    fit = ("ask", place, "forest", "trees=3", "depth=2", "seed=5", "--folds")
    run(*fit, "-o", here)
    (said,) = json.loads(run(*fit, "-o", there, "--on", server.url, "--json"))["answers"]
    assert (said["params"]["n_folds"], said["rows"], said["question"]) == (3, 120, "folds")
    local, remote = (hospital.owner.open(one, SCHEMA) for one in (here, there))
    clear = es.CompletelyRandomForest(n_trees=3, depth=2, random_state=5).fit_folds(
        es.Table.concat([samples.rows(block, 3) for block in range(samples.BLOCKS)])
    )
    assert [list(one.totals_) for one in local] == [list(one.totals_) for one in remote]
    assert [list(one.totals_) for one in clear] == [list(one.totals_) for one in remote]
    assert [one.block_ids_ for one in local] == [one.block_ids_ for one in remote]
    undealt = (
        "ask",
        hospital.table,
        "-o",
        tmp_path / "x.enc",
        "mnb",
        "--folds",
        "--on",
        server.url,
    )
    assert "this table declares no folds: encrypt --folds K does" in " ".join(
        run(*undealt, code=1).split()
    )


def test_a_plan_by_a_worker(
    server: service.Server, hospital: Hospital, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = server.token("planner")
    monkeypatch.setenv("ENCRYPTEDSTATS_TOKEN", token)
    elsewhere = ("plan", hospital.table, "--on", server.url, "mnb")
    shown = " ".join(run(*elsewhere, "counts(v0,class)").split())
    for words in (
        "counts of v0 by class",
        "mnb",
        "rows 120",
        "to send",
        "of one core",
        "encryptedstats ask",
    ):
        assert words in shown
    named = ("counts(v0,class)", "--json")
    said = json.loads(run(*elsewhere, *named))
    assert said["questions"] == ["mnb", "counts of v0 by class"]
    assert said["on"] == server.url
    with es.connect(server.url, token) as worker:
        table = worker.upload(hospital.table)
        alone = worker.plan(es.MultinomialNB(), table)
        assert said["plans"][0]["totals"] == alone["totals"]
        assert said["totals"] == alone["totals"] + 6
        assert said["bytes_up"] > 0
    assert "nothing to send" in run(*elsewhere)


@pytest.mark.parametrize("more", [("--rows", "10"), ("-o", "p")])
def test_plans_of_a_worker_choose_no_keys(hospital: Hospital, more: tuple[str, ...]) -> None:
    said = run("plan", hospital.table, "mnb", "--on", "http://127.0.0.1:1", *more, code=2)
    assert "is for a schema" in " ".join(said.replace("│", " ").split())


@pytest.mark.slow
def test_combine_and_predict_by_a_worker(
    server: service.Server, token: str, tmp_path: Path
) -> None:
    owner = samples.small_owner(primes=9, kept=4)
    for name, blocks in (("north", range(1)), ("south", range(1, 2)), ("both", range(2))):
        samples.store_table(owner, tmp_path / name, blocks)
        run(
            "ask",
            tmp_path / name,
            "-o",
            tmp_path / f"{name}.enc",
            "mnb",
            "--on",
            server.url,
        )
    files = [tmp_path / f"{name}.enc" for name in ("north", "south")]
    run(
        "model",
        "combine",
        tmp_path / "all.enc",
        *files,
        "--keys",
        tmp_path / "both",
        "--on",
        server.url,
    )
    one, other = (
        owner.open(es.load(tmp_path / f"{name}.enc", owner.public_keys()))
        for name in ("all", "both")
    )
    assert list(one.totals_) == list(other.totals_)
    run(
        "predict",
        tmp_path / "all.enc",
        tmp_path / "both",
        "-o",
        tmp_path / "votes.enc",
        "--on",
        server.url,
    )
    opened = owner.open(tmp_path / "votes.enc", SCHEMA)
    clear = es.Table.concat([samples.rows(block) for block in range(2)])
    assert opened.predict().tolist() == es.MultinomialNB().fit(clear).predict(clear).tolist()
    owner.save(tmp_path / "secret.key")
    assert "is wanted here" in run(
        "predict",
        tmp_path / "secret.key",
        tmp_path / "both",
        "-o",
        tmp_path / "x",
        "--on",
        server.url,
        code=1,
    )


def test_options_that_a_worker_has_no_use_for(
    server: service.Server, token: str, hospital: Hospital, tmp_path: Path
) -> None:
    fit = (
        "ask",
        hospital.table,
        "-o",
        tmp_path / "x.enc",
        "mnb",
        "--on",
        server.url,
    )
    for word in ("checkpoint=c", "workers=2", "device=seal"):
        said = run(*fit[:-1], f"{server.url} {word}", code=2).replace("│", " ")
        assert "is unknown" in " ".join(said.split())
    (tmp_path / "x.enc").write_text("mine")
    assert "exists already and was not touched" in run(*fit, code=1)


def test_a_refused_token_is_one_line(
    server: service.Server, hospital: Hospital, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit = (
        "ask",
        hospital.table,
        "-o",
        tmp_path / "x.enc",
        "mnb",
        "--on",
        server.url,
    )
    monkeypatch.setenv("ENCRYPTEDSTATS_TOKEN", "est_wrong")
    said = run(*fit, code=1)
    assert "refuses the token: it is missing, mistyped, expired or revoked. The person who" in said
    assert "est_wrong" not in said
    monkeypatch.delenv("ENCRYPTEDSTATS_TOKEN")
    assert "there is no token" in run(*fit, code=1)


def test_tokens_by_the_command_line(tmp_path: Path) -> None:
    made = run("worker", "token", tmp_path, "add", "Hospital North").split()[0]
    assert made.startswith("est_")
    said = json.loads(
        run(
            "worker",
            "token",
            tmp_path,
            "add",
            "me",
            "--operator",
            "--quota",
            "2",
            "--days",
            "0.000001",
            "--json",
        )
    )
    assert said["role"] == "operator"
    time.sleep(0.1)
    assert Tokens(open_store(str(tmp_path))).holder(said["token"]) is None  # has expired
    assert Tokens(open_store(str(tmp_path))).holder(made) is not None
    listed = json.loads(run("worker", "token", tmp_path, "list", "--json"))["tokens"]
    assert [one["name"] for one in listed] == ["Hospital North", "me"]
    assert listed[1]["quota_bytes"] == 2 << 30
    assert made not in json.dumps(listed)
    assert "Hospital North" in run("worker", "token", tmp_path, "list")
    assert "Revoked 1 token" in run("worker", "token", tmp_path, "revoke", "me")
    assert "there is no token" in run("worker", "token", tmp_path, "revoke", "me", code=1)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("serve",), "STORAGE"),
        (("token", "x", "tokens"), "give add NAME, revoke NAME or list"),
        (("serve", "x", "--listen", "0.0.0.0:8443"), "would send tokens unencrypted"),
        (("serve", "x", "--listen", "8443"), "HOST:PORT"),
        (("serve", "x", "--certificate", "c.pem"), "--certificate"),
        (("serve", "x", "--limits", "quotas=3"), "did you mean 'quota'"),
        (("audit", "s3://bucket/x"), "--audit"),
    ],
)
def test_what_serve_refuses(arguments: tuple[str, ...], complaint: str) -> None:
    assert complaint in " ".join(run("worker", *arguments, code=2).replace("│", " ").split())


def test_the_log_is_checked_and_exported(tmp_path: Path) -> None:
    log = audit.Log(tmp_path / "audit.jsonl")
    log.add("x", "put object", object="1")
    log.add("x", "put object", object="2")
    said = run("worker", "audit", tmp_path)
    assert said.count("put object") == 2
    log.path.write_text("".join(log.path.read_text().splitlines(keepends=True)[1:]))
    assert "does not follow the one before" in run("worker", "audit", tmp_path, code=1)


def wait_for(port: int) -> None:
    """Wait until something listens there: a busy machine starts programs slowly."""
    end = time.monotonic() + 600
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            assert time.monotonic() < end, "the server does not listen"
            time.sleep(0.1)


@pytest.mark.slow
def test_the_program_itself_serves_with_workers_beside_it(
    tmp_path: Path, hospital: Hospital
) -> None:
    """One machine, one command: server, the process that makes jobs, and a worker, all of them
    real.
    """
    place, port = tmp_path / "storage", free_port()
    token = run("worker", "token", place, "add", "north").split()[0]
    command = [
        sys.executable,
        "-m",
        "encryptedstats.cli",
        "worker",
        "serve",
        str(place),
        "--listen",
        f"127.0.0.1:{port}",
    ]
    running = subprocess.Popen([*command, "--workers", "1"], stderr=subprocess.PIPE, text=True)
    try:
        wait_for(port)
        with es.connect(f"http://127.0.0.1:{port}", token, patience=60) as worker:
            job = worker.fit(samples.FOREST, worker.upload(hospital.table), wait=False)
            assert hospital.is_exact(samples.FOREST, worker.result(job, tmp_path / "forest.enc"))
    finally:
        running.terminate()
        said = running.communicate(timeout=30)[1]
    assert f"Serving at http://127.0.0.1:{port}" in said
    assert token not in said


def test_a_maker_that_dies_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        _processes = None

        def submit(self, function: object, *given: object) -> None:
            raise jobs.BrokenProcessPool

        def shutdown(self, **_: object) -> None:
            pass

    class Good(Broken):
        def submit(self, function: object, *given: object) -> Good:  # type: ignore[override]  # no pool
            return self

        def result(self, seconds: float) -> dict[str, str]:
            return {"refused": "as it should be"}

    pools = [Broken(), Good()]
    monkeypatch.setattr(jobs, "ProcessPoolExecutor", lambda *_, **__: pools.pop(0))
    assert jobs.Maker(60.0)(making.plan_job, {}) == {"refused": "as it should be"}


def test_a_maker_that_does_not_come_to_an_end_is_replaced() -> None:
    maker = jobs.Maker(300.0)
    try:
        assert maker(dict, {"a": 1}) == {"a": 1}  # a process is there
        maker._seconds = 0.3
        with pytest.raises(Refusal, match=r"not worked out within 0\.3 seconds") as refused:
            maker(time.sleep, 100_000)
        assert refused.value.status == 503
        maker._seconds = 300.0
        assert maker(dict, {"a": 2}) == {"a": 2}
    finally:
        maker.close()


def test_a_question_of_too_many_totals_is_refused_before_its_circuit_is_written(
    hospital: Hospital, tmp_path: Path
) -> None:
    with (
        service.Server(tmp_path, replace(service.LIMITS, totals=3)) as server,
        server.connect("north") as worker,
    ):
        for ask in (worker.plan, worker.fit):
            with pytest.raises(es.ArgumentError, check=error("too-many-totals", "3")):
                ask(FOREST, worker.upload(hospital.table))


# -- certificates
# ------------------------------------------------------------------------------------------------


def test_a_pinned_certificate_and_no_other(certificate: Path, tmp_path: Path) -> None:
    pin = pin_of(certificate)
    with service.Server(tmp_path, certificate=certificate) as server:
        token = server.token("north")
        with es.connect(server.url, token, pin=pin) as worker:
            assert worker.offers()["version"] == "test"
        with pytest.raises(es.WorkerError, check=error("untrusted-certificate")):
            es.connect(server.url, token, pin="sha256:" + "0" * 64, patience=5).offers()
        with pytest.raises(es.WorkerError, check=error("untrusted-certificate")):
            es.connect(server.url, token, patience=5).offers()
        with pytest.raises(ValueError, check=error("malformed-pin", "64")):
            es.connect(server.url, token, pin="sha256:abc")
        with httpx2.Client(verify=False, trust_env=False) as client:
            assert client.get(f"{server.url}/healthz").json() == {"ok": True}
