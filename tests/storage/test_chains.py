"""Chains: entries follow each other, also where two write at once or a writer is killed, and every
change of one is noticed.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from encryptedstats.crypto.signatures import Signer, verifies
from encryptedstats.errors import FileFormatError
from encryptedstats.storage.chains import MAX_ENTRY_BYTES, Chain, ChainEntry
from encryptedstats.storage.objects import open_store
from error_codes import error

pytest.importorskip("fsspec")
_numbers = itertools.count()
SIGNER = Signer(Ed25519PrivateKey.generate().private_bytes_raw())
ME = SIGNER.public_bytes.hex()

WRITE = """
import sys
from encryptedstats.storage.chains import Chain
from encryptedstats.storage.objects import open_store
chain = Chain(open_store(sys.argv[1]), "log", "topic")
for n in range(int(sys.argv[3])):
    chain.append({"who": sys.argv[2], "n": n})
    print(n, flush=True)
"""


def signed(by: str, statement: bytes, signature: str) -> bool:
    return verifies(bytes.fromhex(by), statement, signature)


@pytest.fixture(params=["folder", "memory"])
def chain(request, tmp_path):
    url = {"folder": tmp_path / "a", "memory": f"memory://chain{next(_numbers)}"}[request.param]
    return Chain(open_store(url), "log", "topic", signed)


def append(chain: Chain, content: Any) -> ChainEntry:
    return chain.append(content, ME, SIGNER.sign)


def test_a_signature_that_is_written_otherwise_is_none(chain):
    """Nobody but the signer makes another entry, with another hash, of one that was signed."""
    entry = append(chain, {"n": 0})
    order = 2**252 + 27742317777372353535851937790883648493
    data = bytes.fromhex(entry.signature)
    shifted = data[:32] + (int.from_bytes(data[32:], "little") + order).to_bytes(32, "little")
    for other in (
        entry.signature.upper(),
        " ".join((entry.signature[:64], entry.signature[64:])),
        shifted.hex(),
    ):
        assert bytes.fromhex(other) in (data, shifted)
        chain.store.write(chain.name(0), [replace(entry, signature=other).to_bytes()])
        with pytest.raises(FileFormatError, check=error("wrong-signature")):
            Chain(chain.store, "log", "topic", signed).entries()


def test_entries_are_read_back_in_order_and_each_names_the_one_before(chain):
    assert chain.entries() == ()
    for n in range(3):
        append(chain, {"n": n})
    again = Chain(chain.store, "log", "topic", signed).entries()
    assert [entry.content["n"] for entry in again] == [0, 1, 2]
    assert [entry.previous for entry in again[1:]] == [entry.hash for entry in again[:-1]]
    assert chain.head() == again[-1].hash
    lines = [chain.store.read(chain.name(n)) for n in range(3)]
    assert all(line.endswith(b"\n") and json.loads(line)["by"] == ME for line in lines)


def test_what_is_concluded_from_the_entries_holds_where_the_entry_stands(chain):
    """Somebody else spends in between: what there is to spend is counted again."""
    other = Chain(chain.store, "log", "topic", signed)
    seen = []

    def spend(entries):
        left = 3 - sum(entry.content["spent"] for entry in entries)
        seen.append(left)
        if len(seen) == 1:
            append(other, {"spent": 2})
        if left < 2:
            raise ValueError("nothing left")
        return {"spent": 2}

    with pytest.raises(ValueError, match="nothing left"):
        append(chain, spend)
    assert seen == [3, 1]
    assert [entry.content["spent"] for entry in chain.entries()] == [2]


CHANGES = {
    "content": lambda values: values.update(content={"n": 7}),
    "topic": lambda values: values.update(topic="other"),
    "number": lambda values: values.update(number=2),
    "previous": lambda values: values.update(previous="0" * 64),
    "signature": lambda values: values.update(signature="00" * 64),
    "field": lambda values: values.update(more=1),
    "kind": lambda values: values.update(number=True),
}


@pytest.mark.parametrize("change", CHANGES)
def test_an_altered_entry_is_refused_and_named(chain, change):
    for n in range(3):
        append(chain, {"n": n})
    values = json.loads(chain.store.read(chain.name(1)))
    CHANGES[change](values)
    chain.store.write(
        chain.name(1), [json.dumps(values, sort_keys=True, separators=(",", ":")).encode() + b"\n"]
    )
    with pytest.raises(FileFormatError, match=r"00000001\.json"):
        Chain(chain.store, "log", "topic", signed).entries()


def test_an_entry_by_who_knows_the_chain_but_not_the_key_is_refused(chain):
    entry = append(chain, {"n": 0})
    forged = ChainEntry("topic", 1, entry.hash, ME, {"n": 1}, entry.signature)
    chain.store.write(chain.name(1), [forged.to_bytes()])
    with pytest.raises(FileFormatError, check=error("wrong-signature", ME)):
        chain.entries()


def test_a_missing_entry_and_a_cut_end_are_noticed(chain):
    for n in range(3):
        append(chain, {"n": n})
    head = chain.head()
    chain.store.delete(chain.name(2))
    fresh = Chain(chain.store, "log", "topic", signed)
    assert len(fresh.entries()) == 2  # nobody can see it who has not seen the end
    with pytest.raises(FileFormatError, check=error("other-chain", head)):
        fresh.check_contains(head)
    append(fresh, {"n": "other"})
    fresh.check_contains(fresh.head())
    chain.store.delete(chain.name(1))
    with pytest.raises(FileFormatError, check=error("missing-entry", "00000001.json")):
        Chain(chain.store, "log", "topic", signed).entries()


def test_large_entries_are_refused(chain):
    with pytest.raises(ValueError, check=error("entry-too-large")):
        append(chain, {"n": "x" * MAX_ENTRY_BYTES})
    assert chain.store.names() == []


def test_two_writers_at_once_and_one_of_them_killed_lose_nothing(tmp_path: Path) -> None:
    url, count = str(tmp_path / "a"), 12
    commands = [[sys.executable, "-c", WRITE, url, who, str(count)] for who in ("a", "b")]
    with (
        subprocess.Popen(commands[0], stdout=subprocess.PIPE) as first,
        subprocess.Popen([*commands[1][:-1], "100000"], stdout=subprocess.PIPE) as second,
    ):
        assert second.stdout is not None
        shown = [second.stdout.readline() for _ in range(5)]
        os.kill(second.pid, signal.SIGKILL)
        first.wait()
        shown += second.stdout.readlines()
    found = [entry.content for entry in Chain(open_store(url), "log", "topic").entries()]
    assert [entry["n"] for entry in found if entry["who"] == "a"] == list(range(count))
    written = [entry["n"] for entry in found if entry["who"] == "b"]
    assert written == list(range(len(written)))
    assert len(written) >= len([line for line in shown if line.endswith(b"\n")])
