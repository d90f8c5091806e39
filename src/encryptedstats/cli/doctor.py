"""``doctor``: what is installed, what the machine can do, and whether encryption really works on
it.
"""

from __future__ import annotations

import contextlib
import stat
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

import encryptedstats as es
from encryptedstats.cli._console import (
    fact_table,
    print_json,
    printable,
    progress,
    size_text,
    time_text,
)
from encryptedstats.cli._files import is_key_file
from encryptedstats.cli._options import AsJson
from encryptedstats.cli.machine import OPTIONAL, describe_machine, package_versions
from encryptedstats.crypto.keyfiles import OWNER_KIND
from encryptedstats.crypto.keys import fingerprint_of
from encryptedstats.crypto.noise import Scheme
from encryptedstats.crypto.parameters import SCHEMES
from encryptedstats.storage import container

_STEPS = ("keys", "encrypt", "multiply", "decrypt")


@dataclass
class SelfTest:
    """How the self-test of one scheme went: seconds of every step that was reached, and what went
    wrong.
    """

    scheme: Scheme
    passed: bool = False
    problem: str | None = None
    seconds: dict[str, float] = field(default_factory=dict)


def doctor(as_json: AsJson = False) -> None:
    """Check the installation: versions, CPU, memory, a self-test of both schemes, and the key files in this folder.

    Examples:
      encryptedstats doctor

      # what to send along with a question
      encryptedstats doctor --json
    """
    machine, packages = describe_machine(), package_versions()
    with progress("self-test"):
        tests = [self_test(scheme) for scheme in SCHEMES]
    healthy = all(test.passed for test in tests)
    keys = keys_in(Path())
    if as_json:
        tested = [asdict(test) for test in tests]
        found = {"keys": [asdict(key) for key in keys]}
        print_json(
            {
                "healthy": healthy,
                "machine": machine,
                "packages": packages,
                "self_test": tested,
                **found,
            }
        )
    else:
        _show(machine, packages, tests)
        for key in keys:
            Console().print(_key_text(key))
    if not healthy:
        raise typer.Exit(1)


@dataclass(frozen=True)
class FoundKey:
    """A key file: which key it is, and who may read it."""

    file: str
    kind: str
    fingerprint: str
    locked: bool
    others_may_read: bool


def keys_in(folder: Path) -> list[FoundKey]:
    """The key files of a folder, as far as they can be read; the fingerprints are for the
    telephone.
    """
    found = []
    for path in sorted(folder.iterdir()):
        with contextlib.suppress(OSError, es.FileFormatError):
            if is_key_file(path):
                content = container.read(path)
                lax = bool(stat.S_IMODE(path.stat().st_mode) & 0o077)
                of_key = (
                    content.kind,
                    fingerprint_of(content.key_id),
                    bool(content.fields.get("lock")),
                )
                found.append(FoundKey(path.name, *of_key, content.kind == OWNER_KIND and lax))
    return found


def _key_text(key: FoundKey) -> Text:
    text = Text.assemble(
        (printable(key.file), "bold"), f"  {key.kind} ", (printable(key.fingerprint), "cyan")
    )
    if key.kind == OWNER_KIND:
        text.append(", locked by a passphrase" if key.locked else ", no passphrase on it")
    if key.others_may_read:
        text.append(f"; other users may read it: chmod 600 {printable(key.file)}", style="bold red")
    return text


def self_test(scheme: Scheme) -> SelfTest:
    """Make keys, encrypt under both of them, compute two products deep, decrypt, compare."""
    test = SelfTest(scheme)
    try:
        answer = _compute(scheme, test.seconds)
    except Exception as error:  # whatever goes wrong is the finding
        test.problem = f"{type(error).__name__}: {error}"
        return test
    test.passed = answer == (-7 * 6 - 5) * -7
    test.problem = None if test.passed else f"decrypted {answer} instead of {(-7 * 6 - 5) * -7}"
    return test


def _compute(scheme: Scheme, seconds: dict[str, float]) -> int:
    clock = _Clock(seconds)
    owner = es.Owner(es.Parameters.choose(max_value=10_000, depth=2, scheme=scheme))
    clock.lap("keys")
    a, b = owner.encrypt(-7), owner.public_keys().encrypt(6)
    clock.lap("encrypt")
    result = (a * b - 5) * a
    clock.lap("multiply")
    answer: int = owner.open(result)
    clock.lap("decrypt")
    return answer


class _Clock:
    def __init__(self, seconds: dict[str, float]) -> None:
        self._seconds = seconds
        self._start = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self._seconds[name], self._start = now - self._start, now


def _show(machine: dict[str, Any], packages: dict[str, str | None], tests: list[SelfTest]) -> None:
    console = Console()
    features = machine["cpu_features"]
    total, available = machine["memory_bytes"], machine["memory_available_bytes"]
    console.print(
        fact_table(
            [
                ("Python", machine["python"]),
                ("platform", machine["platform"]),
                (
                    "CPU",
                    f"{machine['cpu'] or 'unknown'}, {machine['usable_cores']} of "
                    f"{machine['cores']} cores usable",
                ),
                (
                    "features",
                    _features(features) if features is not None else "unknown on this system",
                ),
                (
                    "memory",
                    (size_text(total) if total else "unknown")
                    + (f", {size_text(available)} available" if available else ""),
                ),
                ("GPU", printable(machine["graphics_card"])),
                *((name, _package(name, version)) for name, version in packages.items()),
            ]
        )
    )
    console.print()
    console.print(_test_table(tests))
    for test in tests:
        if test.problem:
            console.print(Text(f"{test.scheme.upper()}: {printable(test.problem)}", style="red"))
    if all(test.passed for test in tests):
        console.print("All is well.", style="bold green")
    else:
        console.print(
            "The self-test failed: do not trust results of this installation.", style="bold red"
        )


def _features(features: dict[str, bool]) -> Text:
    text = Text()
    for name, there in features.items():
        text.append(f"{name} ").append(
            "yes  " if there else "no  ", style="green" if there else "dim"
        )
    return text


def _package(name: str, version: str | None) -> str:
    return (
        version
        or f"not installed (optional: pip install 'encryptedstats[{OPTIONAL.get(name, 'all')}]')"
    )


def _test_table(tests: list[SelfTest]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("self-test")
    for step in _STEPS:
        table.add_column(step, justify="right")
    table.add_column("")
    for test in tests:
        times = [time_text(test.seconds[step]) if step in test.seconds else "-" for step in _STEPS]
        verdict = Text("passed", style="green") if test.passed else Text("FAILED", style="bold red")
        table.add_row(test.scheme.upper(), *times, verdict)
    return table
