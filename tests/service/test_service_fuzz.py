"""Whatever is sent, the server answers what was wrong with it: no request is a mistake of the
server (500).
"""

from __future__ import annotations

import copy
import json
import random
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
import service_samples as service
from cluster_samples import SLOTS, small_owner

import encryptedstats as es
from encryptedstats.models.node_counts import NodeCounts
from encryptedstats.service import tokens
from encryptedstats.service.server import Settings, make_app
from encryptedstats.storage.container import DIGEST_BYTES
from encryptedstats.tables.manifest import MANIFEST
from encryptedstats.tables.questions.folds import folds_of
from encryptedstats.tables.questions.question import load_all_questions
from encryptedstats.tables.questions.summaries import Counts, CrossTable, Moments

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
SEX, WEIGHT, MONTH, DOSE, FIRST, SECOND, SIZE = (f"v{k}" for k in range(7))
ASKED: tuple[es.Question, ...] = (
    es.AODE(),
    es.CoxRegression(MONTH, event="class", variables=[SEX]),
    es.CumulativeIncidence(MONTH, event="class"),
    es.ElasticNet(formula=f"{WEIGHT} ~ {DOSE}"),
    es.TAN(),
    es.Anova(WEIGHT, [SEX]),
    es.ChiSquare(SEX, MONTH),
    es.CochranArmitage(MONTH),
    es.CompletelyRandomForest(n_trees=2, depth=2, random_state=3),
    es.Correlation((WEIGHT, DOSE)),
    es.Covariance((WEIGHT, DOSE)),
    es.CoxScore(MONTH, variables=[SEX]),
    es.Describe([WEIGHT], by=SEX),
    es.FisherDiscriminant(),
    es.FisherExact(SEX, MONTH),
    es.GLM(f"class ~ {SEX}"),
    es.GenomeScan([MONTH]),
    es.Histogram(MONTH, by=SEX),
    es.IncidenceRate(MONTH, by=SEX),
    es.KaplanMeier(MONTH, by=SEX),
    es.Kappa(FIRST, SECOND),
    es.LifeTable(MONTH),
    es.LinearDiscriminant(),
    es.LinearMeans(),
    es.McNemar(FIRST, SECOND),
    es.PairwiseTTest(WEIGHT, SEX),
    es.VarianceTest(WEIGHT, SEX),
    es.PartialCorrelation((WEIGHT, SIZE), covariates=(DOSE,)),
    es.CronbachAlpha((WEIGHT, DOSE)),
    es.LinearRegression(f"{WEIGHT} ~ {SEX}"),
    es.LogRank(MONTH, by=SEX),
    es.MantelHaenszel(SEX, "class", strata=FIRST),
    es.MultinomialNB(),
    es.OddsRatio(SEX),
    es.Pairs(),
    es.RankCorrelation(MONTH, SEX),
    es.KruskalWallis(DOSE, by=SEX),
    es.MannWhitney(DOSE, by="class"),
    es.Quantiles(DOSE, by=SEX),
    es.SignedRank(DOSE),
    es.OneStepLogisticRegression(),
    es.PCA(variables=(WEIGHT, DOSE)),
    es.PiecewiseExponential(MONTH, variables=[SEX], cuts=["bin1"]),
    es.QuadraticDiscriminant(),
    es.ROC(MONTH),
    NodeCounts([[[[0, [0]]], [[2, [0]], 2], []]]),
    es.CochranQ((FIRST, SECOND)),
    es.Concordance(MONTH, FIRST),
    es.Manova((WEIGHT, DOSE), by=SEX),
    es.MultinomialRegression((SEX,), target=FIRST),
    es.PairwiseLogRank(MONTH, by=SEX),
    es.PairwiseMannWhitney(DOSE, by=SEX),
    es.PairwiseProportions("class", SEX),
    es.StandardisedRate(SEX, FIRST),
    es.Ridge(2.0, f"{WEIGHT} ~ {SEX}"),
    es.SemiparametricNB(),
    es.TTest(WEIGHT, by="class"),
    Counts((0, -1)),
    CrossTable((0, 2)),
    folds_of(es.CompletelyRandomForest(n_trees=2, depth=2, random_state=3), 2),
    Moments((1,)),
)
#: Questions that this table cannot be asked: it has no grid, two ratings or ordered score.
REFUSED = (
    "CochranQ",
    "Concordance",
    "MultinomialNB",
    "AODE",
    "TAN",
    "KruskalWallis",
    "MannWhitney",
    "PairwiseMannWhitney",
    "Quantiles",
    "SignedRank",
)
QUESTIONS: dict[str, dict[str, Any]] = {one.name: one.parameters() for one in ASKED}
HEX = "0123456789abcdef"

ALL_FIELDS = {"what", "why", "cure", "error", "code"}


@dataclass(frozen=True)
class Target:
    """A server in this process, and what an owner has there."""

    client: TestClient
    table: str
    keys: str
    objects: tuple[str, ...]
    answers: tuple[str, ...]
    jobs: tuple[str, ...]


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
            "dose": rng.integers(0, 9, 60),
            "first": rng.choice(["low", "mid", "high"], 60),
            "second": rng.choice(["low", "mid", "high"], 60),
            "size": rng.integers(0, 9, 60),
            "ill": rng.choice(["no", "yes"], 60),
        }
    )
    kinds = dict(
        zip(
            frame,
            ("categorical", "number", "ordinal", "number", "categorical", "categorical", "number"),
            strict=False,
        )
    )
    schema = es.Schema.infer(frame, target="ill", kinds=kinds)
    return small_owner().encrypt(schema.table(frame, slots=SLOTS, folds=2), workers=1)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    folder = tmp_path_factory.mktemp("fuzzed")
    limits = replace(service.LIMITS, totals=2000, jobs=10**9, making_seconds=600.0)
    storage = folder / "storage"
    app = make_app(
        Settings(str(storage), str(storage / "queue"), folder / "audit.jsonl", "test", limits)
    )
    app.state.service.jobs.make = InProcess()
    token, _ = tokens.add(app.state.service.store, "north")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = new_table()
        table.save(folder / "table")
        answer = table.counts("v0")
        answer.save(folder / "counts.enc")
    client = TestClient(
        app, raise_server_exceptions=False, headers={"Authorization": f"Bearer {token}"}
    )
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
    answers = (f"object:{names[-1]}", f"object:{keys}")
    asked = {"kind": "ask", "table": manifest, "question": "counts", "params": QUESTIONS["counts"]}
    job = client.post("/v1/jobs", json=asked).json()["id"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ENCRYPTEDSTATS_ALLOW", str(folder))
        es.cluster.work(storage / "queue")
    # The server looks at the queue a few times a second. A job that is done has events that end.
    service.wait_until(lambda: client.get(f"/v1/jobs/{job}").json()["state"] == "done")
    with client:
        yield Target(client, manifest, keys, tuple(names), answers, (job,))


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
            found = {
                key: self.value(one, often)
                for key, one in value.items()
                if choose.random() > often / 6
            }
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
        for option, odd in (
            ("rows_per_shard", [1, 7, 10**9, 0]),
            ("trees_per_task", [1, 3]),
            ("by_others", [True]),
        ):
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
    return target.client.post(
        path, content=json.dumps(request), headers={"Content-Type": "application/json"}
    )


def paths_of(group: str, name: str, job: str) -> list[str]:
    """Return the paths of a group of endpoints, with an object or table, and a job, put in."""
    return {
        "worker": ["/v1/offers", "/healthz", "/openapi.json"],
        "objects": [
            *("/v1/objects/missing", f"/v1/objects/{name}", f"/v1/objects/{name}/presigned"),
            f"/v1/objects/{name}/arrived",
        ],
        "tables": [f"/v1/tables/{name}"],
        "jobs": [
            *("/v1/jobs", "/v1/plans", f"/v1/jobs/{job}", "/v1/jobs/x", f"/v1/jobs/{job}/events"),
            *(f"/v1/jobs/{job}/cancel", f"/v1/jobs/{job}/result"),
        ],
        "pages": [
            "/",
            "/login",
            "/logout",
            "/docs",
            "/storage",
            f"/seen/{job}/{name}",
            "/audit",
            "/audit.jsonl",
        ],
    }[group]


GROUPS = ("worker", "objects", "tables", "jobs", "pages")
POSTED = ("/missing", "/presigned", "/arrived", "/cancel", "/plans", "/login", "/logout")
BROKEN = [
    b"",
    b"{",
    b"\xff\xfe",
    b"[" * 20_000,
    b'{"sha256":' + b"1" * 5000 + b"}",
    b"NaN",
    b"null",
]
FORMS = [b"token=%ff%fe", b"token=" + b"x" * 20_000, b"=&=;", b"token=\xed\xa0\x80"]


def sent_request(target: Target, made: Mutations, group: str) -> Any:
    """Call an endpoint of a group with odd names, headers, queries and bodies."""
    choose = made.random
    name = choose.choice(
        [*target.objects, "0" * 64, "0" * 32, "%2e%2e", "x", "F" * 64, "0" * 63, "%00"]
    )
    job = (
        choose.choice(target.jobs)
        if choose.random() < 0.5
        else "".join(choose.choice(HEX) for _ in range(32))
    )
    path = choose.choice(paths_of(group, name, job))
    if choose.random() < 0.2:
        method = choose.choice(["GET", "POST", "PUT", "HEAD", "PATCH", "OPTIONS"])
    elif path.endswith(POSTED):
        method = "POST"
    else:
        method = choose.choice(["GET", "PUT"]) if path.endswith(name) else "GET"
    if (
        choose.random() < 0.1
        and path.startswith("/v1/jobs")
        and not any(one in path for one in target.jobs)
    ):
        method = "DELETE"  # what is stored stays: the next cases need it
    headers = {
        "Range": choose.choice(
            ["bytes=0-", "bytes=\xb2-", "bytes=" + "9" * 5000 + "-", "bytes=5-3", "x"]
        )
    }
    headers["Origin"] = choose.choice(["null", "http://[", "http://testserver", "\xff"])
    headers |= {"Cookie": choose.choice(["encryptedstats_session=\xff", "=", "a=b"])}
    body: bytes = json.dumps(made.value({"sha256": [name], "keys": target.keys}, 0.5)).encode()
    if choose.random() < 0.3:
        body = choose.choice(BROKEN)
    if path.startswith("/log"):
        headers["Content-Type"] = "application/x-www-form-urlencoded"
        body = choose.choice(FORMS)
    else:
        headers["Content-Type"] = choose.choice(
            ["application/json", "text/plain", "application/octet-stream", "x"]
        )
    query = choose.choice(
        ["", "?bytes=1", "?bytes=" + "9" * 400, "?bytes=x", "?upload=%ff", "?upload=" + "0" * 32]
    )
    encoded = {key: value.encode("latin-1") for key, value in headers.items()}
    return target.client.request(method, path + query, content=body, headers=encoded)


def check(target: Target, seed: int, count: int, send: Callable[[Target, Mutations], Any]) -> None:
    seen: dict[int, int] = {}
    for number in range(count):
        case = seed * 1_000_000 + number
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            answer = send(target, Mutations(case))
        assert answer.status_code < 500, (
            f"case {case}: {answer.request.content[:2000]!r}: {answer.text}"
        )
        if (
            answer.status_code >= 400
            and "html" not in answer.headers["content-type"]
            and answer.content
        ):
            assert {"what", "why", "cure"} <= set(answer.json()) <= ALL_FIELDS, case
        seen[answer.status_code] = seen.get(answer.status_code, 0) + 1
    assert min(seen) < 300, seen  # some go through
    assert max(seen) >= 400, seen


def test_mutated_jobs_and_questions(target: Target) -> None:
    check(target, 1, FEW, sent_job)


@pytest.mark.parametrize("group", GROUPS)
def test_mutated_requests(target: Target, group: str) -> None:
    check(target, 2, FEW // len(GROUPS), partial(sent_request, group=group))


@pytest.mark.slow
def test_many_mutated_jobs_and_questions(target: Target) -> None:
    check(target, 3, MANY, sent_job)


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS)
def test_many_mutated_requests(target: Target, group: str) -> None:
    check(target, 4, MANY, partial(sent_request, group=group))


@pytest.mark.parametrize(
    ("parameter", "value"), [("reference", "no"), ("formula", 8), ("family", []), ("exposure", {})]
)
def test_parameters_of_another_type_are_refused(target: Target, parameter: str, value: Any) -> None:
    params = {**QUESTIONS["GLM"], parameter: value}
    request = {"kind": "fit", "table": target.table, "question": "GLM", "params": params}
    for path in ("/v1/plans", "/v1/jobs"):
        assert target.client.post(path, json=request).status_code == 422


def test_every_question_of_the_library_is_mutated() -> None:
    own = {
        name
        for name, one in load_all_questions().items()
        if one.__module__.startswith("encryptedstats.")
    }
    assert set(QUESTIONS) == own


@pytest.mark.parametrize("name", sorted(QUESTIONS))
def test_the_questions_that_are_mutated_are_good_ones(target: Target, name: str) -> None:
    request = {"kind": "ask", "table": target.table, "question": name, "params": QUESTIONS[name]}
    answer = target.client.post("/v1/plans", json=request)
    assert answer.status_code == (422 if name in REFUSED else 200), answer.text
