"""What a stranger finds: the OpenAPI document, the list of questions, and the walk-through with
curl, run as it is written.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import service_samples as service
from cluster_samples import SCHEMA, Hospital

import encryptedstats as es

SCRIPT = Path(__file__).parents[2] / "examples/ask_with_curl.sh"
CURL = shutil.which("curl")


@pytest.fixture(scope="module")
def document(server: service.Server) -> Any:
    with server.raw("none") as client:
        return client.get("/openapi.json").json()


@pytest.fixture(scope="module")
def listed(server: service.Server) -> list[dict[str, Any]]:
    with server.raw(server.token("stranger")) as client:
        found: list[dict[str, Any]] = client.get("/v1/questions").json()["questions"]
        assert client.get("/v1/questions").json()["questions"] == found
    return found


def test_every_question_is_listed_with_its_parameters(listed: list[dict[str, Any]]) -> None:
    by_name = {one["name"]: one for one in listed}
    assert {"counts", "TTest", "MultinomialNB", "CompletelyRandomForest"} <= set(by_name)
    assert "folds" not in by_name
    for one in listed:
        jsonschema.Draft202012Validator.check_schema(one["parameters"])
        jsonschema.validate(one["example"], one["parameters"])
        assert one["about"], one["name"]
    family = by_name["GLM"]["parameters"]["properties"]["family"]
    assert (family["enum"], family["default"]) == (["binomial", "poisson"], "binomial")
    assert by_name["TTest"]["parameters"]["required"] == ["variable"]
    assert by_name["MultinomialNB"]["kind"] == "fit"
    assert by_name["TTest"]["kind"] == "ask"


def test_parameters_with_a_default_may_be_left_out(
    server: service.Server, hospital: Hospital, listed: list[dict[str, Any]]
) -> None:
    token = server.token("planner")
    with server.raw(token) as client, es.connect(server.url, token) as worker:
        table = worker.upload(hospital.table).name
        for name in ("MultinomialNB", "ChiSquare", "counts"):
            (one,) = (one for one in listed if one["name"] == name)
            asked = {key: one[key] for key in ("kind",)} | {"params": one["example"]}
            asked |= {"question": name, "table": table}
            answer = client.post("/v1/plans", json=asked)
            assert answer.status_code == 200, answer.text
        asked = {"kind": "fit", "question": "MultinomialNB", "table": table}
        wrong = client.post("/v1/plans", json={**asked, "params": {"alpha": "high"}})
        assert (wrong.status_code, wrong.json()["error"]) == (422, "ParameterError")


def test_the_document_has_enums_statuses_and_binary_bodies(document: Any) -> None:
    schemas, paths = document["components"]["schemas"], document["paths"]
    assert schemas["JobReply"]["properties"]["state"]["enum"] == [
        "queued",
        "running",
        "done",
        "failed",
        "cancelled",
    ]
    body = paths["/v1/jobs"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert body["discriminator"]["propertyName"] == "kind"
    assert {"401", "403", "404", "413", "422", "429", "503"} <= set(
        paths["/v1/jobs"]["post"]["responses"]
    )
    for path in ("/v1/objects/{sha256}", "/v1/jobs/{job_id}/result"):
        answers = paths[path]["get"]["responses"]
        assert {"206", "416"} <= set(answers)
        for status in ("200", "206"):
            assert list(answers[status]["content"]) == ["application/octet-stream"]
    assert "409" in paths["/v1/jobs/{job_id}/result"]["get"]["responses"]
    assert "400" in paths["/v1/objects/{sha256}"]["put"]["responses"]


def test_operations_have_short_names_and_all_their_statuses(
    document: Any, server: service.Server
) -> None:
    operations = [one for path in document["paths"].values() for one in path.values()]
    names = [one["operationId"] for one in operations]
    assert len(set(names)) == len(names)
    assert {"put_object", "post_job", "get_job", "result", "questions"} <= set(names)
    for one in operations:
        if "application/json" in one.get("requestBody", {}).get("content", {}):
            assert {"400", "408", "413"} <= set(one["responses"]), one["operationId"]
    with server.raw(server.token("stranger")) as client:
        header = {"Content-Type": "application/json"}
        assert client.post("/v1/jobs", content=b"\xff", headers=header).status_code == 400
        path = f"/v1/objects/{'3f' * 32}"
        assert client.patch(path).headers["allow"] == "DELETE, GET, HEAD, PUT"


@pytest.mark.skipif(CURL is None, reason="curl is not installed")
def test_the_walk_through_with_curl(
    server: service.Server, hospital: Hospital, tmp_path: Path
) -> None:
    shutil.copytree(hospital.table, tmp_path / "patients.enc")
    environment = {**os.environ, "WORKER": server.url, "TOKEN": server.token("curl")}
    subprocess.run(
        ["bash", SCRIPT],
        cwd=tmp_path,
        env=environment,
        check=True,
        timeout=600,
    )
    opened = hospital.owner.open(tmp_path / "counts.enc", SCHEMA)
    assert opened.equals(hospital.plain().counts("age", "ill"))
