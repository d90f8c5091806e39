"""Rules of the service, one by one, without a server."""

from __future__ import annotations

import asyncio
import json
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError
from service_samples import LIMITS

import encryptedstats as es
from encryptedstats.crypto.keyfiles import OWNER_KIND, PUBLIC_KIND
from encryptedstats.service import messages, server, tokens
from encryptedstats.service.contents import is_seal_object
from encryptedstats.service.door import Door, Incoming, OwnerPlace, Usage, refused_kind
from encryptedstats.service.jobs import Jobs
from encryptedstats.service.limits import Rate
from encryptedstats.service.presigned import Presigner
from encryptedstats.service.refusals import Refusal
from encryptedstats.service.running import Lines
from encryptedstats.service.server import Service, Settings, _start_of
from encryptedstats.service.sessions import Sessions
from encryptedstats.service.turns import Turns
from encryptedstats.storage import container
from encryptedstats.storage.container import Container
from encryptedstats.storage.objects import open_store
from encryptedstats.tables.answers.answer import BLOCKS, PREDICTION_KIND
from encryptedstats.tables.blocks import BLOCK_KIND
from encryptedstats.tables.questions.question import RESULT_KIND
from encryptedstats.tables.questions.summaries import Counts
from encryptedstats.workers.service import _check_welcome
from encryptedstats.workers.worker import WorkerJob, check_answer
from error_codes import error


@contextmanager
def refused(status: int) -> Iterator[None]:
    """Expect a refusal with this status."""
    with pytest.raises(Refusal) as caught:
        yield
    assert caught.value.status == status


# -- what the client accepts
# ---------------------------------------------------------------------------------------------

QUESTION = Counts((0, 2))


def job(kind: str = "ask") -> Any:
    table = SimpleNamespace(key_id="k", n_rows=30, block_ids=("a", "b"))
    return WorkerJob(SimpleNamespace(place="http://x"), "1" * 32, kind, table, QUESTION)  # type: ignore[arg-type]


def answer(**changes: Any) -> Container:
    fields = {
        "question": "counts",
        "params": {"variables": [0, 2]},
        "n_rows": 30,
        BLOCKS: ["b", "a"],
    }
    kind, key_id = changes.pop("kind", RESULT_KIND), changes.pop("key_id", "k")
    return Container(kind, "", key_id, {**fields, **changes}, {})


def test_an_honest_answer_is_accepted() -> None:
    check_answer(answer(), job())
    check_answer(answer(kind=PREDICTION_KIND), replace(job("predict"), question=None))
    check_answer(answer(n_rows=99, blocks=[]), replace(job("combine"), question=None))


@pytest.mark.parametrize(
    "changes",
    [
        {"key_id": "other"},
        {"kind": PREDICTION_KIND},
        {"kind": PUBLIC_KIND},
        {"question": "crosstab"},
        {"params": {"variables": [0, 1]}},
        {"n_rows": 29},
        {BLOCKS: ["a"]},
        {BLOCKS: ["a", "c"]},
    ],
)
def test_an_answer_to_something_else_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(es.FileFormatError):
        check_answer(answer(**changes), job())


def test_a_totals_file_is_no_prediction() -> None:
    with pytest.raises(es.FileFormatError):
        check_answer(answer(), replace(job("predict"), question=None))


def test_a_client_sends_no_secret_key() -> None:
    for file in (
        Container(OWNER_KIND, "", "k", {}, {}),
        Container(PUBLIC_KIND, "", "k", {}, {"secret_key": b"x"}),
    ):
        with pytest.raises(es.WorkerError):
            _check_welcome(container.to_bytes(file), "0" * 64)
    with pytest.raises(es.FileFormatError):
        _check_welcome(b"age,ill\n50,yes\n" * 10, "0" * 64)


# -- what comes in
# ------------------------------------------------------------------------------------------------


def seal_object(length: int, compression: int = 0) -> bytes:
    """Return bytes that begin as an object of SEAL of this length does."""
    head = struct.pack("<HBBBBHQ", 0xA15E, 16, 4, 1, compression, 0, length)
    return head + bytes(length - len(head))


def whole(file: Container) -> tuple[Container, dict[str, int], bytes]:
    data = container.to_bytes(file)
    found = container.peek(data, len(data), "it")
    assert found is not None
    return *found, data


@pytest.mark.parametrize(
    ("file", "is_refused"),
    [
        (Container(BLOCK_KIND, "", "k", {"id": "a", "rows": 3}, {"residues": b"x"}), False),
        (Container(OWNER_KIND, "", "k", {}, {}), True),
        (Container(PUBLIC_KIND, "", "k", {}, {"secret_key": b"x"}), True),
        (Container("opened model", "", "", {}, {}), True),
        (Container("no kind", "", "", {}, {}), True),
        (Container(BLOCK_KIND, "", "k", {}, {"more": b"x"}), True),
        (Container(BLOCK_KIND, "", "k", {"more": 1}, {}), True),
        (Container(BLOCK_KIND, "", "k", {"id": "x" * 65}, {}), True),
        (Container(BLOCK_KIND, "", "k", {"rows": 1 << 63}, {}), True),
        (Container(BLOCK_KIND, "", "k", {"rows": [1]}, {}), True),
    ],
)
def test_kinds_sections_and_fields_of_uploads(file: Container, is_refused: bool) -> None:
    found, lengths, _ = whole(file)
    assert (refused_kind(found, lengths, "0" * 64) is not None) == is_refused


def incoming(
    folder: Path, data: bytes, *, name: str | None = None, size: int | None = None
) -> Incoming:
    return Incoming(
        folder, data[-32:].hex() if name is None else name, len(data) if size is None else size
    )


def test_a_body_becomes_an_object_by_its_hash_and_length(tmp_path: Path) -> None:
    _, _, data = whole(Container(BLOCK_KIND, "", "k", {"id": "a"}, {"residues": b"x" * 1000}))
    good = incoming(tmp_path, data)
    for start in range(0, len(data), 100):
        good.feed(data[start : start + 100])
    assert good.finish().read_bytes() == data
    other_name = incoming(tmp_path, data, name="0" * 64)
    other_name.feed(data)
    with refused(422):
        other_name.finish()
    other_tail = incoming(tmp_path, data[:-32] + bytes(32), name=data[-32:].hex())
    other_tail.feed(data[:-32] + bytes(32))
    with refused(422):
        other_tail.finish()
    damaged = incoming(tmp_path, data)
    damaged.feed(data[:-40] + bytes([data[-40] ^ 1]) + data[-39:])
    with refused(422):
        damaged.finish()
    short = incoming(tmp_path, data)
    short.feed(data[:-1])
    with refused(400):
        short.finish()
    with refused(400):
        incoming(tmp_path, data).feed(data + b"x")


@pytest.mark.parametrize("compression", [0, 1, 2])
def test_a_section_that_holds_a_key_is_refused(tmp_path: Path, compression: int) -> None:
    """In a block, none of whose sections is an object of SEAL; whichever section it is, compressed
    or not.
    """
    key = seal_object(64, compression)
    assert is_seal_object(key[:16], 64)
    assert not is_seal_object(key[:16], 65)
    assert not is_seal_object(key[:15], 15)
    for sections in ({"residues": key, "seeds": b"x"}, {"residues": b"xy", "seeds": key}):
        _, _, data = whole(Container(BLOCK_KIND, "", "k", {"id": "a"}, sections))
        body = incoming(tmp_path, data)
        body.feed(data)
        with refused(422):
            body.finish()


def test_an_object_is_kept_only_where_there_is_room(tmp_path: Path) -> None:
    usage = Usage(open_store(tmp_path))
    usage.reserve("o", "one", 60, 100)
    with refused(413):
        usage.reserve("o", "two", 41, 100)
    usage.reserve("o", "two", 40, 100)
    usage.reserve("p", "one", 100, 100)  # another owner has her own
    usage.settle("o", "one", 60)
    usage.check("o", 100)
    usage.settle("o", "two", 0)
    assert usage.of("o") == 60
    usage.add("o", 41)
    with refused(413):
        usage.check("o", 100)


def test_large_objects_are_refused(tmp_path: Path) -> None:
    door = Door(open_store(tmp_path), replace(LIMITS, object_bytes=100))
    door.check_size("0" * 64, 100)
    with refused(413):
        door.check_size("0" * 64, 101)


def test_presigned_uploads_have_no_paths_for_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Presigner, "is_possible", True)
    door = Door(open_store(tmp_path), LIMITS)
    other = OwnerPlace(door.store, "p").of("objects", "1" * 16)
    door.store.create(other, b"of another owner")
    upload = "../../p/objects/" + "1" * 16
    assert len(upload) == 32
    with refused(404):
        Presigner(door).take(OwnerPlace(door.store, "o"), "0" * 64, upload, 100)
    assert door.store.exists(other)


def test_messages_do_not_say_where_things_lie(tmp_path: Path) -> None:
    place = OwnerPlace(open_store(tmp_path), "o")
    said = place.private(f"{place.url('tables', 'x')} and {tmp_path}/queue")
    assert str(tmp_path) not in said


def test_a_range_begins_inside_the_object() -> None:
    assert (
        _start_of("bytes=5-", 6),
        _start_of("bytes=0-", 6),
        _start_of(None, 6),
        _start_of("x", 6),
    ) == (5, 0, 0, 0)
    with refused(416):
        _start_of("bytes=6-", 6)


# -- tokens, sessions, rates
# ----------------------------------------------------------------------------------------------


def service(folder: Path, **limits: Any) -> Service:
    storage = folder / "storage"
    return Service.of(
        Settings(
            str(storage),
            str(storage / "queue"),
            folder / "audit.jsonl",
            "test",
            replace(LIMITS, **limits),
        )
    )


def test_whose_a_token_is(tmp_path: Path) -> None:
    found = service(tmp_path, failures_per_minute=3.0, requests_per_second=0.01, burst=2)
    token, owner = tokens.add(found.store, "north")
    admin, operator = tokens.add(found.store, "me", role=tokens.OPERATOR)
    assert found.holder(admin, "a", tokens.OPERATOR) == operator
    with refused(403):
        found.holder(token, "a", tokens.OPERATOR)
    with refused(403):
        found.holder(admin, "a", tokens.OWNER)
    with refused(401):
        found.holder("est_guess", "a", tokens.OWNER)
    for _ in range(3):
        with refused(429):
            found.holder("est_guess", "a", tokens.OWNER)
    with refused(401):
        found.holder("est_guess", "b", tokens.OWNER)  # from another address
    assert found.holder(token, "a", tokens.OWNER) == owner  # a good token, where others guess
    assert found.holder(token, "a", tokens.OWNER) == owner
    with refused(429):
        found.holder(token, "a", tokens.OWNER)
    lines = [(line["what"], line["address"], line.get("name")) for line in found.log.entries()]
    assert lines == [
        ("token refused", "a", "north"),
        ("token refused", "a", "me"),
        ("token refused", "a", None),
        ("token refused", "b", None),
    ]


def test_a_record_under_another_name_is_no_token(tmp_path: Path) -> None:
    """Anybody who can write into the storage cannot copy a token's record to a name of her own."""
    store = open_store(tmp_path)
    _, holder = tokens.add(store, "north")
    store.create(tokens.TOKENS + "0" * 64, store.read(tokens.TOKENS + holder.sha256))
    assert tokens.Tokens(store).of_hash("0" * 64) is None


def test_a_revoked_token_is_forgotten_in_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, clock = open_store(tmp_path), [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    token, holder = tokens.add(store, "north")
    known = tokens.Tokens(store)
    assert known.holder(token) == holder
    tokens.revoke(store, "north")
    clock[0] = 10.0
    assert known.holder(token) is None


def test_sessions_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, clock = open_store(tmp_path), [0.0]
    monkeypatch.setattr(time, "time", lambda: clock[0])
    known = tokens.Tokens(store)
    (_, owner), (_, operator) = (
        tokens.add(store, "north"),
        tokens.add(store, "me", role=tokens.OPERATOR),
    )
    sessions = Sessions(store, known)
    cookie, other, of_owner = (
        sessions.begin(operator),
        sessions.begin(operator),
        sessions.begin(owner),
    )
    assert sessions.holder(cookie) == operator
    assert sessions.holder(of_owner) is None
    assert sessions.holder("guess") is None
    sessions.end(other)
    assert sessions.holder(other) is None
    clock[0] = 12 * 3600 + 60.0
    assert sessions.holder(cookie) is None
    sessions.begin(operator)
    assert len(store.sizes("sessions/")) == 1  # those that are over are removed


def test_rates_are_spent_and_filled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    rate = Rate(2.0, 2)
    assert [rate.take("a") for _ in range(3)] == [0.0, 0.0, 0.5]
    clock[0] = 100.0
    assert [rate.take("a") for _ in range(3)] == [0.0, 0.0, 0.5]  # no more than the burst


# -- turns and connections
# ------------------------------------------------------------------------------------------------


def test_turns() -> None:
    async def story() -> None:
        turns = Turns(1, 0.05)
        async with turns.take("north"):
            with refused(429):
                async with turns.take("north"):
                    pass
            with refused(503):  # the only place is taken
                async with turns.take("south"):
                    pass
        for owner in (
            "north",
            "south",
            "north",
        ):  # all is given back, after refusals and errors too
            with pytest.raises(ZeroDivisionError):
                async with turns.take(owner):
                    raise ZeroDivisionError

    asyncio.run(story())


class Transport:
    def __init__(self) -> None:
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


def opened(lines: Lines, address: str, count: int) -> list[Any]:
    found = [Transport() for _ in range(count)]
    for one in found:
        if not lines.add(one, address):  # type: ignore[arg-type]
            one.is_closed = True
    return found


def test_idle_connections_of_an_address() -> None:
    lines = Lines(replace(LIMITS, connections=100, idle_connections=3), "9.9.9.9")
    first, *rest = opened(lines, "1.1.1.1", 4)
    assert first.is_closed  # the oldest one
    assert not any(one.is_closed for one in rest)
    lines.wake(rest[0])  # which sends a request
    (new,) = opened(lines, "1.1.1.1", 1)
    assert not any(one.is_closed for one in (*rest, new))
    assert not any(one.is_closed for one in opened(lines, "2.2.2.2", 3))
    assert not any(one.is_closed for one in opened(lines, "9.9.9.9", 50))  # a proxy


def test_idle_connections_of_all_addresses_together() -> None:
    lines = Lines(LIMITS, None)
    found = [one for number in range(701) for one in opened(lines, f"address {number}", 1)]
    assert [one.is_closed for one in found] == [True] + [False] * 700


def test_connections_of_an_address() -> None:
    lines = Lines(replace(LIMITS, connections=5, idle_connections=100), "9.9.9.9")
    found = opened(lines, "1.1.1.1", 6)
    assert [one.is_closed for one in found] == [False] * 5 + [True]
    assert not opened(lines, "2.2.2.2", 1)[0].is_closed
    lines.remove(found[0], "1.1.1.1")
    assert [one.is_closed for one in opened(lines, "1.1.1.1", 2)] == [False, True]
    assert not any(one.is_closed for one in opened(lines, "9.9.9.9", 6))


# -- jobs
# ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "ask"},
        {"kind": "ask", "question": "counts"},
        {"kind": "ask", "question": "counts", "params": {}, "answers": ["object:" + "0" * 64]},
        {"kind": "predict"},
        {"kind": "predict", "answers": ["object:" + "0" * 64] * 2},
        {"kind": "draw", "answers": ["object:" + "0" * 64], "forget": ["object:" + "0" * 64]},
        {"kind": "combine", "question": "counts", "params": {}},
        {"kind": "combine", "answers": []},
        {"kind": "sum", "answers": ["object:" + "0" * 64]},
        {"kind": "ask", "question": "counts", "params": {}, "speed": 1},
    ],
)
def test_jobs_that_are_half_asked(wrong: dict[str, Any]) -> None:
    jobs: TypeAdapter[Any] = TypeAdapter(messages.JobRequest)
    with pytest.raises(ValidationError):
        jobs.validate_python({"table": "0" * 64, **wrong})


def test_a_job_needs_what_it_names_and_a_place(tmp_path: Path) -> None:
    found = service(tmp_path, jobs=0)
    place, asked = (
        OwnerPlace(found.store, "o"),
        {"kind": "ask", "table": "0" * 64, "question": "counts", "params": {}},
    )
    with refused(429):
        found.jobs.submit(place, asked)
    jobs = Jobs(found.door, str(tmp_path / "queue"), LIMITS)
    with refused(404):
        jobs.submit(place, asked)
    with refused(404):
        jobs.plan(place, asked)
    OwnerPlace(found.store, "other").store.create(
        OwnerPlace(found.store, "other").of("objects", "1" * 64), b"x"
    )
    with refused(404):
        jobs._answer(place, "object:" + "1" * 64)  # another owner's


# -- tokens
# ------------------------------------------------------------------------------------------------


def _status(rows_done: int) -> dict[str, Any]:
    """What a watched job says."""
    known = {"id": "1" * 32, "kind": "fit", "state": "running", "made": "2026-11-19T03:45:00+00:00"}
    figures = {"shards": 9, "shards_done": 0, "rows": 100, "rows_done": rows_done, "workers": 1}
    more = {"table": None, "question": None, "plan": None, "result_bytes": None}
    return {**known, **figures, **more, "core_seconds": 1.0, "failures": []}


@pytest.mark.parametrize("how", ["expired", "revoked"])
def test_events_end_with_the_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """A job may be watched for days."""
    monkeypatch.setattr(server, "_EVENT_SECONDS", 0.0)
    monkeypatch.setattr(tokens, "_KNOWN_SECONDS", 0.0)
    settings = Settings(str(tmp_path), str(tmp_path / "queue"), tmp_path / "log", "1")
    service = Service.of(settings)
    token, holder = tokens.add(service.store, "north", days=1)
    assert service.holder(token, "here", tokens.OWNER) == holder
    done = iter(range(100))
    jobs = SimpleNamespace(status=lambda *asked: _status(next(done)))
    place = OwnerPlace(service.store, holder.owner)

    async def watch() -> None:
        stream = server._events(jobs, place, None, lambda: service.is_good(holder))  # type: ignore[arg-type]
        assert "data:" in await anext(stream)
        assert "data:" in await anext(stream)
        if how == "revoked":
            tokens.revoke(service.store, "north")
        else:
            late = replace(holder, expires="2026-01-01T00:00:00+00:00")
            name = tokens.TOKENS + holder.sha256
            service.store.write(name, [json.dumps(asdict(late)).encode()])
        with pytest.raises(StopAsyncIteration):
            await anext(stream)

    asyncio.run(watch())


def test_a_token_that_has_expired_is_nobodys(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    good, _ = tokens.add(store, "north", days=1)
    old, holder = tokens.add(store, "south", days=1)
    known = tokens.Tokens(store)
    assert known.holder(old) is not None
    late = replace(holder, expires="2026-01-01T00:00:00+00:00")
    store.write(tokens.TOKENS + holder.sha256, [json.dumps(asdict(late)).encode()])
    assert tokens.Tokens(store).holder(old) is None
    known._known[holder.sha256] = (time.monotonic(), late)  # one that was looked up before
    assert known.holder(old) is None
    assert known.holder(good) is not None
    for days in (0, -1, 1e9):
        with pytest.raises(ValueError, check=error("days-out-of-range")):
            tokens.add(store, "north", days=days)
