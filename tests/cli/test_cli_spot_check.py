"""``--spot-check`` and ``open --verify``: planned, kept, checked, and a lie that is found."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from cli_helpers import Run, done, patients, the_error

from encryptedstats.storage import container


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table that was encrypted for spot checks, and an answer."""
    monkeypatch.chdir(tmp_path)
    patients(60).drop(columns=["patient"]).to_csv("rows.csv", index=False)
    done("data", "schema", "rows.csv", "-o", "schema.json", "--target", "ill")
    asked = "counts(age, ill)"
    plan = done(
        *("plan", "schema.json", asked, "--rows", 60, "--spot-check", "-o", "plan.json", "--json")
    )
    assert json.loads(plan.stdout)["spot_check"]["positions"] > 0
    done("key", "make", "secret.key", "public.keys", "--plan", "plan.json")
    key = ("--key", "secret.key", "--schema", "schema.json")
    shown = done("encrypt", "rows.csv", "table.enc", *key, "--spot-check").stdout
    assert "secret.key.spot" in shown
    done("ask", "table.enc", "counts(v0, class)", "-o", "answer.enc")
    return tmp_path


OPEN = ("open", "answer.enc", "--key", "secret.key", "--schema", "schema.json")


def test_a_checked_answer_says_so(files: Path) -> None:
    shown = done(*OPEN, "--verify", "table.enc").stdout
    assert "The result was checked" in shown
    assert json.loads(done(*OPEN, "--verify", "table.enc", "--json").stdout)["checked"] is True
    assert "The result was checked" not in done(*OPEN).stdout
    assert "checked" not in json.loads(done(*OPEN, "--json").stdout)


def test_a_queue_is_asked_too(files: Path) -> None:
    from threading import Thread

    import encryptedstats as es

    queue = files / "work"
    queue.mkdir()
    worker = Thread(target=lambda: es.cluster.work(queue, wait=30, allow=[files]), daemon=True)
    worker.start()
    shown = done(*OPEN, "--verify", "table.enc", "--on", f"queue://{queue}").stdout
    assert "The result was checked" in shown


def test_a_lie_is_found_and_ends_the_use_of_the_key(files: Path, run: Run) -> None:
    file = container.read("answer.enc")
    residues = bytearray(file.section("residues"))
    residues[0] ^= 1
    forged = replace(file, sections={**file.sections, "residues": bytes(residues)})
    container.write(forged, "answer.enc", overwrite=True)
    error = the_error(run(*OPEN, "--verify", "table.enc"))
    assert "the worker has lied" in error
    assert "retired" in the_error(run(*OPEN))
    again = ("encrypt", "rows.csv", "more.enc", "--key", "secret.key", "--schema", "schema.json")
    assert "retired" in the_error(run(*again))
    assert not Path("more.enc").exists()


@pytest.mark.parametrize(
    "words",
    [
        (*OPEN, "--on", "https://worker.example"),
        ("encrypt", "rows.csv", "other.enc", "--public-keys", "public.keys", "--spot-check"),
    ],
)
def test_options_that_mean_nothing(files: Path, run: Run, words: tuple[str, ...]) -> None:
    if words[0] == "encrypt":
        words = (*words, "--schema", "schema.json")
    assert run(*words).exit_code != 0
