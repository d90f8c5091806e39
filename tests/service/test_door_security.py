"""What must not come in, or be seen: forged hashes, secret keys, oversized and slow bodies, and
names that lead elsewhere.
"""

from __future__ import annotations

import hashlib
import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from http.client import HTTPConnection
from pathlib import Path

import httpx2
import pytest
import service_samples as service
from cluster_samples import FOREST, Hospital, small_owner

import encryptedstats as es
from encryptedstats.service import audit, tokens
from encryptedstats.service.limits import Rate
from encryptedstats.storage import container
from encryptedstats.storage.container import Container
from encryptedstats.storage.objects import open_store
from encryptedstats.tables.manifest import MANIFEST
from error_codes import error


@pytest.fixture(scope="module")
def mallory(server: service.Server) -> httpx2.Client:
    return server.raw(server.token("mallory"))


def named(data: bytes) -> str:
    return data[-32:].hex()


def block(hospital: Hospital) -> bytes:
    return next((hospital.table / "blocks").iterdir()).read_bytes()


def refused(answer: httpx2.Response, status: int, why: str) -> None:
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert set(body) == {"what", "why", "cure"}
    assert why in body["why"]
    assert body["cure"]


# -- tokens
# ------------------------------------------------------------------------------------------------


def test_nobody_comes_in_without_a_token(server: service.Server) -> None:
    calls = [
        ("GET", "/v1/offers"), ("GET", f"/v1/objects/{'0' * 64}"), ("PUT", f"/v1/objects/{'0' * 64}"), ("GET", "/v1/jobs"),
        ("POST", "/v1/jobs"), ("GET", f"/v1/jobs/{'0' * 32}/result"), ("PUT", f"/v1/tables/{'0' * 64}"),
    ]  # fmt: skip
    for token in ("", "est_wrong", tokens.PREFIX):
        with (
            server.raw(token)
            if token
            else httpx2.Client(base_url=server.url, trust_env=False) as client
        ):
            for method, path in calls:
                answer = client.request(method, path, json={} if method == "POST" else None)
                refused(answer, 401, "missing, mistyped, expired or revoked")
                assert answer.headers["WWW-Authenticate"] == "Bearer"


def test_every_call_of_the_document_needs_a_token(server: service.Server) -> None:
    with httpx2.Client(base_url=server.url, trust_env=False) as client:
        document = client.get("/openapi.json").json()
        for path, methods in document["paths"].items():
            for method in methods:
                filled = path.replace("{sha256}", "0" * 64).replace("{job_id}", "0" * 32)
                status = client.request(
                    method, filled, params={"bytes": 1, "upload": "x"}
                ).status_code
                assert status == (200 if path == "/healthz" else 401), (method, path)


def test_a_revoked_token_is_nobodys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(tmp_path)
    token, holder = tokens.add(store, "north")
    again, other = tokens.add(store, "north")
    assert (holder.owner, holder.role) == (other.owner, "owner")
    assert token != again
    known = tokens.Tokens(store)
    monkeypatch.setattr(tokens, "_KNOWN_SECONDS", 0.0)
    assert known.holder(token) == holder
    assert [one.id for one in tokens.revoke(store, holder.id)] == [holder.id]
    assert known.holder(token) is None
    assert known.holder(again) == other
    with pytest.raises(ValueError, check=error("name-taken")):
        tokens.add(store, "north", role=tokens.OPERATOR)
    with pytest.raises(ValueError, check=error("malformed-name")):
        tokens.add(store, "a\nb")


def test_tokens_are_kept_as_hashes_and_names_are_no_paths(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    token, holder = tokens.add(store, "../../etc/passwd")
    (file,) = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert file.name == hashlib.sha256(token.encode()).hexdigest()
    assert token.encode() not in file.read_bytes()
    assert len(holder.owner) == 32
    assert set(holder.owner) <= set("0123456789abcdef")


def test_an_owner_who_asks_too_often_waits(tmp_path: Path, hospital: Hospital) -> None:
    with service.Server(
        tmp_path, replace(service.LIMITS, requests_per_second=20.0, burst=4)
    ) as server:
        with server.raw(server.token("north")) as client:
            statuses = [client.get("/v1/offers").status_code for _ in range(8)]
            assert 429 in statuses
        with server.connect("south") as other:  # whose client waits by itself
            assert other.upload(hospital.table).n_rows == 120


def test_rates_forget_nobody_who_is_at_it(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    rate = Rate(2.0, 2)
    assert [rate.take("a"), rate.take("a")] == [0.0, 0.0]
    assert rate.take("a") == 0.5
    assert rate.take("b") == 0.0
    clock[0] = 0.5
    assert rate.take("a") == 0.0
    assert rate.take("a")


# -- what others have
# ------------------------------------------------------------------------------------------------


def test_another_owners_things_look_like_missing_ones(
    server: service.Server, north: es.Worker, mallory: httpx2.Client, hospital: Hospital
) -> None:
    table = north.upload(hospital.table)
    job = north.fit(FOREST, table, wait=False)
    job.wait()
    nothing = "0" * 64
    for mine, hers in (
        (f"/v1/objects/{nothing}", f"/v1/objects/{table.name}"),
        (f"/v1/tables/{nothing}", f"/v1/tables/{table.name}"),
    ):
        for method in ("GET", "HEAD", "DELETE") if "objects" in hers else ("GET", "DELETE"):
            missing, other = mallory.request(method, mine), mallory.request(method, hers)
            assert (
                (missing.status_code, missing.content)
                == (other.status_code, other.content)
                == (404, other.content)
            )
    for path in ("", "/result", "/events"):
        assert mallory.get(f"/v1/jobs/{job.id}{path}").status_code == 404
    assert mallory.post(f"/v1/jobs/{job.id}/cancel").status_code == 404
    assert mallory.delete(f"/v1/jobs/{job.id}").status_code == 404
    assert mallory.get("/v1/jobs").json() == {"jobs": []}
    names = [table.name, *(entry.sha256 for entry in es.load(hospital.table).blocks.entries)]
    assert mallory.post("/v1/objects/missing", json={"sha256": names}).json()["sha256"] == names
    refused(
        mallory.put(f"/v1/tables/{table.name}", json={"keys": nothing}),
        404,
        "no object of that name",
    )
    asked = {"kind": "ask", "table": table.name, "question": "counts", "params": {"variables": [0]}}
    refused(mallory.post("/v1/jobs", json=asked), 404, "no table of that name")
    assert job.status().state == "done"


def test_a_job_cannot_name_what_is_anothers(
    server: service.Server, north: es.Worker, hospital: Hospital
) -> None:
    job = north.fit(FOREST, north.upload(hospital.table), wait=False)
    with server.connect("mallory") as worker:
        table = worker.upload(hospital.table)
        for named_so in (f"job:{job.id}", f"object:{'0' * 64}"):
            asked = {"kind": "predict", "table": table.name, "answers": [named_so]}
            with pytest.raises(es.WorkerError, check=error("refused-by-worker")):
                worker._connection.json("POST", "/v1/jobs", json=asked)


@pytest.mark.parametrize(
    "name",
    ["..", "../../tokens", "%2e%2e%2f%2e%2e%2ftokens", "..%2f..%2fetc%2fpasswd", "a" * 63, "A" * 64, "0" * 64 + "%00",
     "%0a" + "0" * 64, "0" * 64 + "%0a"],
)  # fmt: skip
def test_names_that_lead_elsewhere_lead_nowhere(
    server: service.Server, mallory: httpx2.Client, name: str
) -> None:
    before, headers = server.objects(), {"Authorization": mallory.headers["Authorization"]}
    for method, path in (
        ("GET", f"/v1/objects/{name}"),
        ("PUT", f"/v1/objects/{name}"),
        ("DELETE", f"/v1/objects/{name}"),
        ("PUT", f"/v1/tables/{name}"),
        ("GET", f"/v1/jobs/{name}/result"),
        ("GET", f"/static/{name}"),
    ):
        line = HTTPConnection("127.0.0.1", server.port)  # which sends a path as it is
        line.request(method, path, b"x" if method == "PUT" else None, headers)
        assert line.getresponse().status in (404, 405, 422)
        line.close()
    assert server.objects() == before


def test_there_is_no_listing(mallory: httpx2.Client) -> None:
    for path in (
        "/v1",
        "/v1/",
        "/v1/objects",
        "/v1/objects/",
        "/v1/tables",
        "/v1/tables/",
        "/static",
        "/static/",
    ):
        assert mallory.get(path).status_code in (404, 405, 307)


# -- bodies
# ------------------------------------------------------------------------------------------------


def nothing_came_of_it(server: service.Server, before: list[str]) -> None:
    service.wait_until(lambda: server.objects() == before)


def test_a_forged_hash_leaves_nothing(server: service.Server, hospital: Hospital) -> None:
    mallory, before, good = server.raw(server.token("forger")), server.objects(), block(hospital)
    damaged = bytearray(good)
    damaged[-40] ^= 1
    refused(
        mallory.put(f"/v1/objects/{named(good)}", content=bytes(damaged)),
        422,
        "another SHA-256 than its name",
    )
    refused(
        mallory.put(f"/v1/objects/{'0' * 64}", content=good), 422, "another SHA-256 than its name"
    )
    refused(
        mallory.put(f"/v1/objects/{named(good)}", content=good[:-1]),
        422,
        "truncated or has bytes too many",
    )
    refused(
        mallory.put(f"/v1/objects/{named(good)}", content=b""), 422, "another SHA-256 than its name"
    )
    nothing_came_of_it(server, before)
    assert mallory.put(f"/v1/objects/{named(good)}", content=good).status_code == 201
    assert (
        mallory.put(f"/v1/objects/{named(good)}", content=good).status_code == 201
    )  # twice does no harm
    assert mallory.get(f"/v1/objects/{named(good)}").content == good
    part = mallory.get(f"/v1/objects/{named(good)}", headers={"Range": "bytes=1000-"})
    assert (part.status_code, part.content) == (206, good[1000:])
    refused(
        mallory.get(f"/v1/objects/{named(good)}", headers={"Range": f"bytes={len(good)}-"}),
        416,
        "there are",
    )
    assert mallory.delete(f"/v1/objects/{named(good)}").status_code == 204
    nothing_came_of_it(server, before)


def test_a_secret_key_is_refused_however_it_is_wrapped(
    server: service.Server, mallory: httpx2.Client, hospital: Hospital, tmp_path: Path
) -> None:
    before = server.objects()
    hospital.owner.save(tmp_path / "secret.key")
    key = (tmp_path / "secret.key").read_bytes()
    refused(mallory.put(f"/v1/objects/{named(key)}", content=key), 422, "it is a secret key")
    hospital.owner.save(tmp_path / "locked.key", passphrase="quite long enough")
    key = (tmp_path / "locked.key").read_bytes()
    refused(mallory.put(f"/v1/objects/{named(key)}", content=key), 422, "it is a secret key")
    secret = container.from_bytes((tmp_path / "secret.key").read_bytes())
    dressed = container.to_bytes(replace(secret, kind="public keys"))
    refused(
        mallory.put(f"/v1/objects/{named(dressed)}", content=dressed), 422, "it is a secret key"
    )
    renamed = container.to_bytes(
        replace(secret, kind="public keys", sections={"hidden": b"x" * 100})
    )
    refused(
        mallory.put(f"/v1/objects/{named(renamed)}", content=renamed), 422, "no section 'hidden'"
    )
    opened = container.to_bytes(Container("opened model", "", "", {}, {}))
    refused(
        mallory.put(f"/v1/objects/{named(opened)}", content=opened),
        422,
        "a decrypted model, which is not sent",
    )
    text = b"age,ill\n50,yes\n" * 10
    refused(
        mallory.put(f"/v1/objects/{named(text)}", content=text),
        422,
        "is not an encryptedstats file",
    )
    nothing_came_of_it(server, before)


@pytest.mark.parametrize(
    "section", ["public_key", "relinearisation", "signing_key", "packing", "rotation"]
)
def test_a_secret_key_is_no_section_of_public_keys(
    server: service.Server, mallory: httpx2.Client, hospital: Hospital, tmp_path: Path, section: str
) -> None:
    """Under the name of a section that public keys have."""
    hospital.owner.save(tmp_path / "secret.key")
    secret = container.from_bytes((tmp_path / "secret.key").read_bytes()).section("secret_key")
    keys = hospital.owner.public_keys([1] if section == "rotation" else []).to_container()
    good = container.to_bytes(keys)
    assert mallory.put(f"/v1/objects/{named(good)}", content=good).status_code == 201
    dressed = container.to_bytes(replace(keys, sections={**keys.sections, section: secret}))
    assert mallory.put(f"/v1/objects/{named(dressed)}", content=dressed).status_code == 422
    assert not any(named(dressed) in name for name in server.objects())


def test_a_secret_key_is_no_part_of_other_uploads(
    server: service.Server, mallory: httpx2.Client, hospital: Hospital, tmp_path: Path
) -> None:
    """As a section or as a field of a block, a manifest, an answer or public keys."""
    hospital.owner.save(tmp_path / "secret.key")
    secret = container.from_bytes((tmp_path / "secret.key").read_bytes()).section("secret_key")
    table = es.load(hospital.table)
    answer = FOREST.fit(table, workers=1).to_container()
    files = [
        answer,
        container.read(hospital.table / MANIFEST),
        container.from_bytes(block(hospital)),
        hospital.owner.public_keys().to_container(),
    ]
    for file in files:
        good = container.to_bytes(file)
        assert mallory.put(f"/v1/objects/{named(good)}", content=good).status_code == 201, file.kind
        dressed = [
            replace(file, sections={**file.sections, name: secret}) for name in file.sections
        ]
        dressed += [replace(file, sections={**file.sections, "more": secret})]
        dressed += [replace(file, fields={**file.fields, "more": secret.hex()[:1000]})]
        dressed += [
            replace(file, fields={**file.fields, name: secret.hex()[:1000]}) for name in file.fields
        ]
        for one in dressed:
            data = container.to_bytes(one)
            answered = mallory.put(f"/v1/objects/{named(data)}", content=data)
            assert answered.status_code == 422, (
                file.kind,
                set(one.sections) - set(file.sections),
                answered.text,
            )
            assert not any(named(data) in name for name in server.objects())


def test_one_upload_of_an_owner_is_read_at_a_time(tmp_path: Path, hospital: Hospital) -> None:
    keys = container.to_bytes(hospital.owner.public_keys().to_container())
    with service.Server(tmp_path) as server, server.raw(server.token("north")) as client:
        put = partial(client.put, f"/v1/objects/{named(keys)}", content=keys)
        with ThreadPoolExecutor(3) as pool:
            server.gate.hold(1)
            asked = [pool.submit(put) for _ in range(3)]
            service.wait_until(lambda: sum(one.done() for one in asked) == 2)
            server.gate.open()
            answers = [one.result() for one in asked]
        assert sorted(answer.status_code for answer in answers) == [201, 429, 429]
        assert {a.headers.get("Retry-After") for a in answers if a.status_code == 429} == {"1"}
        assert put().status_code == 201


def test_a_refusal_is_read_by_who_is_still_sending(server: service.Server, tmp_path: Path) -> None:
    """A connection that is closed on a body would be reset, and the answer lost; one that goes on
    and on is closed all the same.
    """
    with server.raw("est_wrong") as client:
        for _ in range(3):
            refused(client.put(f"/v1/objects/{'1' * 64}", content=bytes(48 << 20)), 401, "mistyped")
    head = f"PUT /v1/objects/{'1' * 64} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n".encode()
    # It is answered before the body comes, and closed without it.
    with (
        service.Server(tmp_path, replace(service.LIMITS, idle_seconds=1.0)) as hasty,
        hasty.connected(head) as line,
    ):
        answer = b""
        while data := line.recv(65536):
            answer += data
        assert b" 401 " in answer


def test_bodies_that_are_too_large(tmp_path: Path, hospital: Hospital) -> None:
    quota = int(2.5 * len(block(hospital)))
    with service.Server(
        tmp_path, replace(service.LIMITS, object_bytes=1 << 20, quota_bytes=quota)
    ) as server:
        with server.raw(server.token("north")) as client:
            first, *others = (
                path.read_bytes() for path in sorted((hospital.table / "blocks").iterdir())
            )
            refused(
                client.put(f"/v1/objects/{'1' * 64}", content=b"x" * (2 << 20)),
                413,
                "over the limit of 1,048,576",
            )
            for data in (first, others[0]):
                assert client.put(f"/v1/objects/{named(data)}", content=data).status_code == 201
            refused(
                client.put(f"/v1/objects/{named(others[1])}", content=others[1]),
                413,
                f"of {quota:,} bytes are taken",
            )
            chunked = client.put(f"/v1/objects/{named(first)}", content=iter([first]))
            refused(chunked, 411, "does not say its length")
            assert client.delete(f"/v1/objects/{named(first)}").status_code == 204
            assert (
                client.put(f"/v1/objects/{named(others[1])}", content=others[1]).status_code == 201
            )
            large = client.post("/v1/objects/missing", json={"sha256": ["0" * 64] * 100_001})
            assert large.status_code == 422
        with server.raw(server.token("south", quota_bytes=10)) as client:
            refused(
                client.put(f"/v1/objects/{named(first)}", content=first),
                413,
                "0 of 10 bytes are taken",
            )


def test_slow_and_broken_bodies_are_given_up(tmp_path: Path, hospital: Hospital) -> None:
    data = block(hospital)
    with service.Server(tmp_path, replace(service.LIMITS, idle_seconds=0.5)) as server:
        token = server.token("slow")
        before = server.objects()
        head = (
            f"PUT /v1/objects/{named(data)} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}"
            f"\r\nContent-Length: {len(data)}\r\n\r\n"
        ).encode()
        answer = service.slowly(server, [head + data[:1000]], 120.0)  # then nothing
        assert b" 408 " in answer.split(b"\r\n")[0]
        answer = service.slowly(
            server, [head, *(data[i : i + 1] for i in range(200))], 0.05
        )  # 20 bytes a second
        assert b" 408 " in answer.split(b"\r\n")[0]
        assert service.slowly(server, [b"G", b"E"], 120.0) == b""  # a request that never comes
        with server.connected(head + data[:5000]):
            pass
        nothing_came_of_it(server, before)


@pytest.mark.parametrize(
    "call", ["POST /v1/objects/missing", "POST /v1/jobs", "POST /v1/plans", "POST /login"]
)
def test_a_client_without_a_token_sends_no_large_or_slow_body_either(
    tmp_path: Path, call: str
) -> None:
    method, path = call.split()
    limits = replace(service.LIMITS, request_bytes=1000)
    with (
        service.Server(tmp_path / "patient", limits) as server,
        httpx2.Client(base_url=server.url, trust_env=False, timeout=600) as client,
    ):
        why = "its body is over the limit of 1,000 bytes"
        refused(client.request(method, path, content=b"x" * 1001), 413, why)
        refused(
            client.request(method, path, content=iter([b"x" * 600] * 2)), 413, why
        )  # whose length nobody says
        assert client.request(method, path, content=b"x" * 1000).status_code in (401, 403, 422)
    with service.Server(tmp_path / "hasty", replace(limits, idle_seconds=0.3)) as server:
        head = f"{call} HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\n\r\n".encode()
        answer = service.slowly(server, [head + b"x"], 120.0)  # then nothing
        assert b" 408 " in answer.split(b"\r\n")[0]
        answer = service.slowly(server, [head, *[b"x"] * 800], 0.05)  # 20 bytes a second
        assert b" 408 " in answer.split(b"\r\n")[0]


def test_a_table_needs_all_its_blocks_and_its_own_keys(
    server: service.Server, hospital: Hospital
) -> None:
    with server.raw(server.token("half")) as client:
        manifest = (hospital.table / MANIFEST).read_bytes()
        keys = next(hospital.table.glob("public-*.keys")).read_bytes()
        stranger = container.to_bytes(small_owner().public_keys().to_container())
        for data in (manifest, keys, stranger):
            assert client.put(f"/v1/objects/{named(data)}", content=data).status_code == 201
        table = f"/v1/tables/{named(manifest)}"
        refused(client.put(table, json={"keys": named(keys)}), 409, "6 blocks of 6 are not here")
        refused(client.put(table, json={"keys": named(stranger)}), 422, "not those of its key")
        refused(client.put(table, json={"keys": named(manifest)}), 422, "not those of its key")
        refused(
            client.put(f"/v1/tables/{named(keys)}", json={"keys": named(keys)}),
            422,
            "'encrypted table' is wanted",
        )
        refused(client.put(table, json={"keys": named(keys), "path": "/etc"}), 422, "path")


# -- the audit log
# ------------------------------------------------------------------------------------------------


def test_a_download_of_an_object_is_a_line_of_the_log(
    server: service.Server, hospital: Hospital
) -> None:
    data = block(hospital)
    with server.raw(server.token("reader")) as client:
        assert client.put(f"/v1/objects/{named(data)}", content=data).status_code == 201
        assert client.get(f"/v1/objects/{named(data)}").content == data
        assert (
            client.get(f"/v1/objects/{named(data)}", headers={"Range": "bytes=1000-"}).status_code
            == 206
        )
    lines = [
        line
        for line in audit.Log(server.folder / "audit.jsonl").entries()
        if line.get("name") == "reader"
    ]
    assert [(line["what"], line["object"], line["bytes"]) for line in lines] == [
        ("put object", named(data), len(data)),
        ("get object", named(data), len(data)),
        ("get object", named(data), len(data) - 1000),
    ]


def test_what_needs_no_token_is_what_the_document_says(server: service.Server) -> None:
    with httpx2.Client(base_url=server.url, trust_env=False) as client:
        said = client.get("/openapi.json").json()["info"]["description"]
        assert "below `/v1` brings a token" in said
        assert "`/healthz`, `/docs` and `/openapi.json` need none" in said
        for path in ("/healthz", "/docs", "/openapi.json"):
            assert client.get(path).status_code == 200


def test_the_chain_of_the_log_shows_what_was_changed(tmp_path: Path) -> None:
    log = audit.Log(tmp_path / "audit.jsonl")
    for number in range(5):
        log.add("owner", "put object", object=f"{number}", bytes=number)
    assert audit.check(log.path) == 5
    lines = log.path.read_text().splitlines(keepends=True)
    changed = {
        "taken out": lines[:2] + lines[3:],
        "changed": [*lines[:2], lines[2].replace('"bytes": 2', '"bytes": 3'), *lines[3:]],
        "put in": [*lines[:2], lines[2], *lines[2:]],
    }
    for how, text in changed.items():
        log.path.write_text("".join(text))
        with pytest.raises(es.FileFormatError, check=error("broken-chain")):
            audit.check(log.path)
        assert how
    log.path.write_text(
        "".join(lines) + lines[0][:20]
    )  # the machine went down in the middle of a line
    log.add("owner", "put object", object="5")
    assert audit.check(log.path) == 6
    assert [line["object"] for line in log.last(2)] == ["5", "4"]
    assert [line["object"] for line in log.entries()] == list("012345")


def test_two_processes_write_one_chain(tmp_path: Path) -> None:
    log, children = audit.Log(tmp_path / "audit.jsonl"), []
    for child in range(3):
        pid = os.fork()
        if pid == 0:
            for number in range(40):
                log.add(str(child), "put object", object=f"{number}")
            os._exit(0)
        children.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0, 0, 0]
    assert audit.check(log.path) == 120


def test_answers_have_the_headers_that_browsers_need(server: service.Server) -> None:
    for path in ("/", "/docs", "/healthz", "/v1/offers"):
        headers = httpx2.get(server.url + path, trust_env=False).headers
        assert "default-src 'self'" in headers["content-security-policy"]
        assert (headers["x-frame-options"], headers["x-content-type-options"]) == (
            "DENY",
            "nosniff",
        )
        assert headers["cache-control"] == "no-store"
        assert "server" not in headers
