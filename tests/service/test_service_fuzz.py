"""Whatever is sent, the server answers what was wrong with it: no request is a mistake of the server (500)."""

from __future__ import annotations

import copy
import json
import random
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import service_samples as service
from cluster_samples import SLOTS, small_owner

import encryptedstats as es
from encryptedstats.service import tokens
from encryptedstats.service.server import Settings, make_app
from encryptedstats.storage.container import DIGEST_BYTES
from encryptedstats.tables.encrypted import MANIFEST

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # which client of HTTP it should find
    from starlette.testclient import TestClient

FEW, MANY = 400, 5000
ODD: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 8, 10**6, -(10**30), 10**400, 0.5, -0.0, 1e308, float("nan"), float("inf"),
    "", "no", "v0", "v1", "v2", "v9", "bin0", "class", "y ~ v1", "v1 ~ v0 + v2", "v1 ~ (", "~", "v1 ~ v0*v0*v0", "a\x00b",
    "\ud800", "é" * 50, "x" * 5000, "../../etc/passwd", "{}", "efron", "poisson", "two-sided",
    [], [[]], [0], [-1], ["v0"], ["v0", "v0"], ["v1", 3], [None], [0.5, 0.5], list(range(300)),
    {}, {"v0": "bin0"}, {"v2": None}, {"": {}}, {"v0": {"v0": []}}, {"name": "counts", "params": {}},
)  # fmt: skip
QUESTIONS: dict[str, dict[str, Any]] = {
    "Anova": {"outcome": "v1", "by": ["v0"], "interaction": True, "typ": 2, "equal_var": True},
    "ChiSquare": {"first": "v0", "second": "v2", "correction": True, "p": None},
    "CompletelyRandomForest": es.CompletelyRandomForest(n_trees=2, depth=2, random_state=3).parameters(),
    "CoxScore": {"time": "v2", "event": "class", "covariates": ["v0"], "event_level": None, "ties": "efron"},
    "Describe": {"variables": ["v1"], "by": "v0", "moments": 2, "quantiles": [0.5]},
    "GLM": {"formula": "class ~ v0", "family": "binomial", "exposure": None, "reference": None},
    "KaplanMeier": es.KaplanMeier("v2").parameters(),
    "LinearRegression": {
        "formula": "v1 ~ v0", "reference": None, "weights": None, "missing": "level", "fit_intercept": True
    },
    "PCA": {"n_components": None, "standardized": False, "variables": None},
    "TTest": es.TTest("v1", by="class").parameters(),
    "counts": {"variables": [0, -1]},
    "crosstab": {"variables": [0, 2]},
    "folds": {
        "question": "CompletelyRandomForest",
        "params": es.CompletelyRandomForest(n_trees=2, depth=2, random_state=3).parameters(),
        "n_folds": 2,
    },
    "moments": {"variables": [1]},
}  # fmt: skip
HEX = "0123456789abcdef"


@dataclass(frozen=True)
class Target:
    """A server in this process, and what an owner has there."""

    client: TestClient
    table: str
    keys: str
    objects: tuple[str, ...]
    answers: tuple[str, ...]


class InProcess:
    """Works plans and jobs out in this process: a new one would import everything again."""

    def __call__(self, function: Callable[..., Any], *given: Any) -> Any:
        return function(*given)

    def close(self) -> None:
        pass


def new_table() -> es.EncryptedTable:
    rng = np.random.default_rng(5)
    frame = pd.DataFrame(
        {
            "sex": rng.choice(["f", "m"], 60),
            "weight": rng.integers(0, 9, 60),
            "month": rng.integers(1, 4, 60),
            "ill": rng.choice(["no", "yes"], 60),
        }
    )
    kinds = {"sex": "categorical", "weight": "number", "month": "ordinal"}
    schema = es.Schema.infer(frame, target="ill", kinds=kinds)
    return small_owner().encrypt(schema.table(frame, slots=SLOTS, folds=2), workers=1)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    folder = tmp_path_factory.mktemp("fuzzed")
    limits = replace(service.LIMITS, totals=2000, jobs=10**9, making_seconds=600.0)
    storage = folder / "storage"
    app = make_app(Settings(str(storage), str(storage / "queue"), folder / "audit.jsonl", "test", limits))
    app.state.service.jobs.make = InProcess()
    token, _ = tokens.add(app.state.service.store, "north")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = new_table()
        table.save(folder / "table")
        answer = table.counts("v0")
        answer.save(folder / "counts.enc")
    client = TestClient(app, raise_server_exceptions=False, headers={"Authorization": f"Bearer {token}"})
    names = []
    files = [path for path in (folder / "table").rglob("*") if path.is_file()]
    for path in (*files, folder / "counts.enc"):
        data = path.read_bytes()
        names.append(data[-DIGEST_BYTES:].hex())
        assert client.put(f"/v1/objects/{names[-1]}", content=data).status_code == 201, path
    named = dict(zip([path.name for path in files], names, strict=False))
    manifest = named[MANIFEST]
    keys = next(name for file, name in named.items() if file.startswith("keys") or "public" in file)
    assert client.put(f"/v1/tables/{manifest}", json={"keys": keys}).status_code == 201
    with client:
        yield Target(client, manifest, keys, tuple(names), (f"object:{names[-1]}", f"object:{keys}"))


class Mutations:
    """Seeded mutations of JSON values."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def odd(self) -> Any:
        return copy.deepcopy(self.random.choice(ODD))

    def value(self, value: Any, often: float = 0.3) -> Any:
        """Return a value with some of its parts replaced, removed or doubled."""
        choose = self.random
        if choose.random() < often / 3:
            return self.odd()
        if isinstance(value, dict):
            found = {key: self.value(one, often) for key, one in value.items() if choose.random() > often / 6}
            if choose.random() < often / 3:
                found[str(self.odd())[:50]] = self.odd()
            return found
        if isinstance(value, list):
            found_list = [self.value(one, often) for one in value if choose.random() > often / 4]
            return [*found_list, self.odd()] if choose.random() < often else found_list
        return self.odd() if choose.random() < often else value


def job_request(target: Target, made: Mutations) -> dict[str, Any]:
    choose = made.random
    kind = choose.choice(["ask", "fit", "ask", "predict", "combine", "draw"])
    request: dict[str, Any] = {"kind": kind, "table": target.table}
    if kind in ("fit", "ask"):
        name = choose.choice(sorted(QUESTIONS))
        request |= {"question": name, "params": copy.deepcopy(QUESTIONS[name])}
        if choose.random() < 0.7:  # only one parameter is odd
            one = choose.choice(sorted(request["params"]))
            request["params"][one] = made.odd()
            return request
        request["params"] = made.value(request["params"])
        for option, odd in (("rows_per_shard", [1, 7, 10**9, 0]), ("trees_per_task", [1, 3]), ("by_others", [True])):
            if choose.random() < 0.1:
                request[option] = choose.choice(odd)
        return request
    request["answers"] = choose.choices(target.answers, k=choose.choice([1, 1, 2]))
    if choose.random() < 0.3:
        request["forget"] = [choose.choice(target.answers)]
    if choose.random() < 0.5:
        request["output"] = made.odd()
    return request if choose.random() < 0.5 else made.value(request, 0.2)


def sent_job(target: Target, made: Mutations) -> Any:
    request = job_request(target, made)
    if made.random.random() < 0.1:
        request = made.value(request)
    path = made.random.choice(["/v1/plans", "/v1/plans", "/v1/jobs"])
    return target.client.post(path, content=json.dumps(request), headers={"Content-Type": "application/json"})


def sent_anything(target: Target, made: Mutations) -> Any:
    """A call of any other endpoint, with odd names, headers, queries and bodies."""
    choose = made.random
    name = choose.choice([*target.objects, "0" * 64, "0" * 32, "%2e%2e", "x", "F" * 64, "0" * 63, "%00"])
    job = "".join(choose.choice(HEX) for _ in range(32))
    paths = ["/v1/offers", "/v1/objects/missing", f"/v1/objects/{name}", f"/v1/objects/{name}/presigned"]
    paths += [f"/v1/objects/{name}/arrived", f"/v1/tables/{name}", "/v1/jobs", f"/v1/jobs/{job}", "/v1/jobs/x"]
    paths += [f"/v1/jobs/{job}/events", f"/v1/jobs/{job}/cancel", f"/v1/jobs/{job}/result", "/login", "/logout", "/"]
    paths += ["/docs", "/openapi.json", "/storage", f"/seen/{job}/{name}", "/audit", "/healthz"]
    path, method = choose.choice(paths), choose.choice(["GET", "POST", "PUT", "HEAD", "PATCH", "OPTIONS"])
    if choose.random() < 0.8:
        is_post = path.endswith(("/missing", "/presigned", "/arrived", "/cancel", "/login", "/logout"))
        method = "POST" if is_post else choose.choice(["GET", "PUT"]) if path.endswith(name) else "GET"
    if choose.random() < 0.1 and path.startswith("/v1/jobs"):
        method = "DELETE"  # objects stay: the next cases need them
    headers = {"Range": choose.choice(["bytes=0-", "bytes=\xb2-", "bytes=" + "9" * 5000 + "-", "bytes=5-3", "x"])}
    headers["Origin"] = choose.choice(["null", "http://[", "http://testserver", "\xff"])
    headers |= {"Cookie": choose.choice(["encryptedstats_session=\xff", "=", "a=b"])}
    body: bytes = json.dumps(made.value({"sha256": [name], "keys": target.keys}, 0.5)).encode()
    if choose.random() < 0.3:
        body = choose.choice(
            [b"", b"{", b"\xff\xfe", b"[" * 20_000, b'{"sha256":' + b"1" * 5000 + b"}", b"NaN", b"null"]
        )
    if path.startswith("/log"):
        headers["Content-Type"] = "application/x-www-form-urlencoded"
        body = choose.choice([b"token=%ff%fe", b"token=" + b"x" * 20_000, b"=&=;", b"token=\xed\xa0\x80"])
    else:
        headers["Content-Type"] = choose.choice(["application/json", "text/plain", "application/octet-stream", "x"])
    query = choose.choice(["", "?bytes=1", "?bytes=" + "9" * 400, "?bytes=x", "?upload=%ff", "?upload=" + "0" * 32])
    encoded = {key: value.encode("latin-1") for key, value in headers.items()}
    return target.client.request(method, path + query, content=body, headers=encoded)


def check(target: Target, seed: int, count: int, send: Callable[[Target, Mutations], Any]) -> None:
    seen: dict[int, int] = {}
    for number in range(count):
        case = seed * 1_000_000 + number
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            answer = send(target, Mutations(case))
        assert answer.status_code < 500, f"case {case}: {answer.request.content[:2000]!r}: {answer.text}"
        if answer.status_code >= 400 and "html" not in answer.headers["content-type"] and answer.content:
            assert set(answer.json()) == {"what", "why", "cure"}, case
        seen[answer.status_code] = seen.get(answer.status_code, 0) + 1
    assert {200, 422} <= set(seen), seen  # some go through


def test_mutated_jobs_and_questions(target: Target) -> None:
    check(target, 1, FEW, sent_job)


def test_mutated_requests(target: Target) -> None:
    check(target, 2, FEW, sent_anything)


@pytest.mark.slow
def test_many_mutated_jobs_and_questions(target: Target) -> None:
    check(target, 3, MANY, sent_job)


@pytest.mark.slow
def test_many_mutated_requests(target: Target) -> None:
    check(target, 4, MANY, sent_anything)


@pytest.mark.parametrize(
    ("parameter", "value"), [("reference", "no"), ("formula", 8), ("family", []), ("exposure", {})]
)
def test_parameters_of_another_type_are_refused(target: Target, parameter: str, value: Any) -> None:
    params = {**QUESTIONS["GLM"], parameter: value}
    request = {"kind": "fit", "table": target.table, "question": "GLM", "params": params}
    for path in ("/v1/plans", "/v1/jobs"):
        assert target.client.post(path, json=request).status_code == 422


@pytest.mark.parametrize("name", sorted(QUESTIONS))
def test_the_questions_that_are_mutated_are_good_ones(target: Target, name: str) -> None:
    request = {"kind": "ask", "table": target.table, "question": name, "params": QUESTIONS[name]}
    answer = target.client.post("/v1/plans", json=request)
    assert answer.status_code == 200, answer.text
