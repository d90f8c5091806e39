"""``check install``: passes here, fails loudly where encryption does not work, and copes with
machines that say little.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_helpers import Run

import encryptedstats as es
from encryptedstats.cli import check, machine


def test_it_passes_here(run: Run) -> None:
    result = run("check", "install")
    assert result.exit_code == 0, result.output
    assert "All is well" in result.stdout
    words = ("seal-python", "numpy", "cores", "memory", "GPU", "BGV", "BFV", "passed")
    assert all(word in result.stdout for word in words)


def test_it_shows_the_fingerprints_of_keys_in_this_folder(
    run: Run, files: Path, owner: es.Owner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("secret.key", "public.keys", "array.enc"):
        shutil.copy(files / name, tmp_path / name)
    (tmp_path / "secret.key").chmod(0o644)
    (tmp_path / "broken.keys").write_bytes((files / "public.keys").read_bytes()[:5000])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(check, "self_test", lambda scheme: check.SelfTest(scheme, passed=True))
    shown = run("check", "install").stdout
    shown = " ".join(shown.split())
    assert f"public.keys public keys {owner.fingerprint}" in shown
    assert (
        f"secret.key secret key {owner.fingerprint}, no passphrase on it; other users may read "
        "it: chmod 600" in shown
    )
    assert [
        key["file"] for key in json.loads(run("check", "install", "--json").stdout)["keys"]
    ] == [
        "public.keys",
        "secret.key",
    ]


def test_json(run: Run) -> None:
    facts = json.loads(run("check", "install", "--json").stdout)
    assert facts["healthy"] is True
    assert {test["scheme"]: test["passed"] for test in facts["self_test"]} == {
        "bgv": True,
        "bfv": True,
    }
    assert all(
        set(test["seconds"]) == {"keys", "encrypt", "multiply", "decrypt"}
        for test in facts["self_test"]
    )
    assert facts["packages"]["seal-python"] >= "4.4"
    assert facts["machine"]["cores"] >= 1


def _wrong(*_: Any) -> int:
    return 330


def _crash(*_: Any) -> int:
    raise RuntimeError("illegal instruction\x1b[2J")


@pytest.mark.parametrize(
    ("compute", "words"),
    [(_wrong, "decrypted 330 instead of 329"), (_crash, "illegal instruction")],
)
def test_a_failed_self_test_is_exit_code_1(
    run: Run, monkeypatch: pytest.MonkeyPatch, compute: Callable[..., int], words: str
) -> None:
    monkeypatch.setattr(check, "_compute", compute)
    result = run("check", "install")
    assert result.exit_code == 1
    assert "FAILED" in result.stdout
    assert words in result.stdout
    assert "\x1b[2J" not in result.stdout
    facts = json.loads(run("check", "install", "--json").stdout)
    assert facts["healthy"] is False


def test_cpuinfo_of_several_machines() -> None:
    intel = (
        "processor : 0\nmodel name\t: Some CPU @ 3 GHz\nflags\t\t: fpu avx2 fma\n\nprocessor : "
        "1\nmodel name : Other\n"
    )
    assert machine.read_cpuinfo(intel) == (
        "Some CPU @ 3 GHz",
        {"avx2": True, "fma": True, "avx512f": False, "avx512ifma": False},
    )
    assert machine.read_cpuinfo("processor : 0\nFeatures : fp asimd\n") == (None, None)
    assert machine.read_cpuinfo("") == (None, None)


def test_a_machine_that_says_nothing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine.this_machine, "read_system", lambda _: "")
    monkeypatch.delattr("os.sysconf")
    monkeypatch.delattr("os.sched_getaffinity")
    facts = machine.describe_machine()
    assert facts["memory_bytes"] is facts["cpu_features"] is None
    result = run("check", "install")
    assert result.exit_code == 0
    assert result.stdout.count("unknown") == 2


def test_an_optional_package_that_is_missing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "package_versions", lambda: {"numpy": "2.0", "pyarrow": None})
    assert "encryptedstats[parquet]" in run("check", "install").stdout
