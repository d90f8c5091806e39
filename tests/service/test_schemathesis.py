"""Call every operation of the OpenAPI document with what schemathesis makes of its schemas."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import test_service_fuzz as fuzz
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # deprecations in what it imports
    schemathesis = pytest.importorskip("schemathesis")

target = fuzz.target
FEW, MANY = 3, 320  # of each of 17 operations
SETTINGS: dict[str, Any] = {
    "deadline": None,
    "database": None,
    "phases": [Phase.explicit, Phase.generate],
    "suppress_health_check": list(HealthCheck),
}


@pytest.fixture(scope="module")
def operations(target: fuzz.Target) -> dict[str, Any]:
    document = target.client.get("/openapi.json").json()
    schema = schemathesis.openapi.from_dict(document)
    return {one.ok().label: one.ok() for one in schema.get_all_operations()}


def pick(values: list[str], choice: int) -> str:
    return values[choice % len(values)]


def stored(target: fuzz.Target, value: Any, choice: int) -> Any:
    """Return a value with the names of what is stored in place of some that were made up."""
    if isinstance(value, dict):
        return {key: stored(target, one, choice) for key, one in value.items()}
    if isinstance(value, list):
        return [stored(target, one, choice) for one in value]
    if isinstance(value, str):
        if value.startswith(("job:", "object:")):
            return pick([*target.answers, f"job:{target.jobs[0]}", value], choice)
        if len(value) == 64:
            return pick([*target.objects, target.table, target.table, value], choice)
        if len(value) == 32:
            return pick([*target.jobs, value], choice)
    return value


def send(target: fuzz.Target, case: Any, choice: int) -> Any:
    """Send a case; what is stored is not deleted, since the next cases need it."""
    wanted: dict[str, Any] = {}
    is_kept = case.method != "DELETE"
    if is_kept and choice % 4:
        case.path_parameters = stored(target, case.path_parameters, choice)
        if isinstance(case.body, (dict, list)):
            case.body = stored(target, case.body, choice)
            if isinstance(case.body, dict) and isinstance(case.body.get("question"), str):
                name = pick([*sorted(fuzz.QUESTIONS), case.body["question"]], choice)
                case.body = {**case.body, "question": name}
                if choice % 3:
                    case.body = {
                        "table": case.body.get("table"),
                        "question": name,
                        "params": fuzz.QUESTIONS.get(name),
                        "kind": "ask",
                    }
    made = case.as_transport_kwargs(base_url="http://testserver")
    for name in ("params", "json", "headers", "cookies"):
        if made.get(name) is not None:
            wanted[name] = made[name]
    if made.get("data") is not None:
        data = made["data"]
        wanted["content" if isinstance(data, (bytes, str)) else "data"] = data
    wanted["headers"] = {
        name: value
        for name, value in dict(wanted.get("headers", {})).items()
        if name.lower() not in ("authorization", "content-length", "transfer-encoding")
    }
    return target.client.request(made["method"], made["url"], **wanted)


def call(target: fuzz.Target, operation: Any, mode: Any, count: int) -> set[int]:
    """Call an operation so many times, and return the statuses of the answers."""
    seen: set[int] = set()

    @seed(7)
    @settings(**SETTINGS, max_examples=count)
    @given(case=operation.as_strategy(generation_mode=mode), choice=st.integers(0, 10**6))
    def answer(case: Any, choice: int) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = send(target, case, choice)
        assert found.status_code < 500, found.text
        seen.add(found.status_code)

    answer()
    return seen


def call_all(target: fuzz.Target, operations: dict[str, Any], count: int) -> dict[str, set[int]]:
    """Call every operation so many times with good values, and with bad ones where it takes any."""
    modes = schemathesis.GenerationMode
    found = {label: call(target, one, modes.POSITIVE, count) for label, one in operations.items()}
    for label, one in operations.items():
        if any(True for _ in one.iter_parameters()) or one.body:
            found[label] |= call(target, one, modes.NEGATIVE, count)
    return found


def test_operations(target: fuzz.Target, operations: dict[str, Any]) -> None:
    assert set(call_all(target, operations, FEW)) == set(operations)


@pytest.mark.slow
def test_operations_many_times(target: fuzz.Target, operations: dict[str, Any]) -> None:
    seen = call_all(target, operations, MANY)
    assert set(seen) == set(operations)
    assert any(status < 300 for status in seen["POST /v1/plans"])
