"""``check``: test the installation, and verify a worker's answers."""

from __future__ import annotations

import contextlib
import stat
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

import encryptedstats as es
from encryptedstats.cli._console import plural, progress, size_text, tell, time_text
from encryptedstats.cli._files import Reads, is_key_file
from encryptedstats.cli._inputs import expect, load_table
from encryptedstats.cli._on import LOCAL, Place
from encryptedstats.cli._options import AsJson, On, TableKeys, TableUrl, argument, option
from encryptedstats.cli.machine import OPTIONAL, describe_machine, package_versions
from encryptedstats.crypto.keyfiles import OWNER_KIND
from encryptedstats.crypto.keys import fingerprint_of
from encryptedstats.crypto.noise import Scheme
from encryptedstats.crypto.parameters import SCHEMES
from encryptedstats.storage import container
from encryptedstats.tables.answers.answer import PREDICTION_KIND
from encryptedstats.tables.questions.question import FOLDS_KIND, MODEL_KIND, RESULT_KIND
from encryptedstats.tables.questions.words import describe_question
from encryptedstats.views import View

# -- install
# ------------------------------------------------------------------------------------------------


@dataclass
class SelfTest:
    """The outcome of the self-test of a scheme: seconds of each step, and the first problem."""

    scheme: Scheme
    passed: bool = False
    problem: str | None = None
    seconds: dict[str, float] = field(default_factory=dict)


def check_install(as_json: AsJson = False) -> None:
    """Check versions, CPU, memory, both schemes, and the key files in this folder.

    JSON: healthy, machine, packages, self_test, keys

    Examples:
      encryptedstats check install

      # to send with a bug report
      encryptedstats check install --json
    """
    machine, packages = describe_machine(), package_versions()
    with progress("self-test"):
        tests = [self_test(scheme) for scheme in SCHEMES]
    healthy = all(test.passed for test in tests)
    keys = find_keys(Path())
    document = {
        "healthy": healthy,
        "machine": machine,
        "packages": packages,
        "self_test": [asdict(test) for test in tests],
        "keys": [asdict(key) for key in keys],
    }
    tell(_install_view(document, keys), document, as_json)
    if not healthy:
        raise typer.Exit(1)


def _install_view(document: dict[str, Any], keys: list[FoundKey]) -> View:
    machine = document["machine"]
    total, available = machine["memory_bytes"], machine["memory_available_bytes"]
    features = machine["cpu_features"]
    facts = {
        "Python": machine["python"],
        "platform": machine["platform"],
        "CPU": f"{machine['cpu'] or 'unknown'}, {machine['usable_cores']} of {machine['cores']} "
        "cores usable",
        "features": "unknown on this system"
        if features is None
        else "  ".join(f"{name} {'yes' if there else 'no'}" for name, there in features.items()),
        "memory": (size_text(total) if total else "unknown")
        + (f", {size_text(available)} available" if available else ""),
        "GPU": machine["graphics_card"],
        **{name: _package(name, version) for name, version in document["packages"].items()},
        **{
            f"self-test {test['scheme'].upper()}": _test_text(test)
            for test in document["self_test"]
        },
        **{key.file: key.describe() for key in keys},
    }
    well = (
        "All is well"
        if document["healthy"]
        else ("The self-test failed: do not trust results of this installation")
    )
    return View(well, facts)


def _package(name: str, version: str | None) -> str:
    extra = OPTIONAL.get(name, "all")
    return version or f"not installed (optional: pip install 'encryptedstats[{extra}]')"


def _test_text(test: dict[str, Any]) -> str:
    times = ", ".join(f"{step} {time_text(one)}" for step, one in test["seconds"].items())
    problem = f": {test['problem']}" if test["problem"] else ""
    return f"{'passed' if test['passed'] else 'FAILED'}{problem}  ({times})"


@dataclass(frozen=True)
class FoundKey:
    """A key file: its key, and whether other users may read it."""

    file: str
    kind: str
    fingerprint: str
    locked: bool
    others_may_read: bool

    def describe(self) -> str:
        """Describe it in words."""
        text = f"{self.kind} {self.fingerprint}"
        if self.kind == OWNER_KIND:
            text += ", locked by a passphrase" if self.locked else ", no passphrase on it"
        if self.others_may_read:
            text += f"; other users may read it: chmod 600 {self.file}"
        return text


def find_keys(folder: Path) -> list[FoundKey]:
    """Return the key files of a folder that can be read."""
    found = []
    for path in sorted(folder.iterdir()):
        with contextlib.suppress(OSError, es.FileFormatError):
            if is_key_file(path):
                content = container.read(path)
                lax = bool(stat.S_IMODE(path.stat().st_mode) & 0o077)
                lock = bool(content.fields.get("lock"))
                is_secret = content.kind == OWNER_KIND
                fingerprint = fingerprint_of(content.key_id)
                found.append(
                    FoundKey(path.name, content.kind, fingerprint, lock, is_secret and lax)
                )
    return found


def self_test(scheme: Scheme) -> SelfTest:
    """Encrypt with both keys, compute two products in a row, decrypt and compare."""
    test = SelfTest(scheme)
    try:
        answer = _compute(scheme, test.seconds)
    except Exception as error:  # the finding, whatever it is
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


# -- answers of a worker
# ------------------------------------------------------------------------------------------------


def check_answer(
    answer: Annotated[
        Path, argument("ANSWER", "An encrypted answer or model, as the worker sent it.")
    ],
    table: TableUrl,
    rows: Annotated[
        str | None,
        Reads,
        option(
            metavar="TABLE",
            help="For a prediction of an encrypted model: the encrypted rows that were predicted. "
            "TABLE is then the table of the model.",
        ),
    ] = None,
    keys: TableKeys = None,
    on: On = LOCAL,
    as_json: AsJson = False,
) -> None:
    """Check a worker: compute its answer anew, and compare every ciphertext.

    It needs the encrypted table and no secret key, and takes as long as the worker took. It shows
    the question that the answer is of: compare it with what you asked. Answers of a service or a
    cluster are computed in the same shards. Three kinds cannot be checked: answers over rows of
    contributors, whose noise is random; combined answers; predictions of a decrypted model.

    JSON: file, question, params, rows, blocks, ciphertexts, key_id, verified, seconds

    Examples:
      encryptedstats check answer forest.enc patients.enc
      encryptedstats check answer votes.enc patients.enc --rows new.enc
    """
    expect(answer, (RESULT_KIND, MODEL_KIND, FOLDS_KIND, PREDICTION_KIND), "an encrypted answer")
    options = Place.parse(on).local_options()
    sealed = load_table(table, keys, by_others=True)
    started = time.perf_counter()
    asked = None if rows is None else load_table(rows, keys, by_others=True)
    found = es.verify(answer, sealed, rows=asked, **options)
    facts: dict[str, Any] = {
        "file": str(answer),
        "question": found.question.name,
        "params": found.question.parameters(),
        "rows": found.n_rows,
        "blocks": len(found.block_ids),
        "ciphertexts": len(found.ciphertexts.parts),
        "key_id": sealed.key_id,
        "verified": True,
        "seconds": time.perf_counter() - started,
    }
    same = f"the same {plural(facts['ciphertexts'], 'ciphertext')}"
    title = f"Verified {answer}: {same}, computed anew in {time_text(facts['seconds'])}"
    over = f"{plural(facts['rows'], 'row')} in {plural(facts['blocks'], 'block')}"
    question = describe_question(facts["question"], facts["params"])
    tell(View(title, {"question": question, "over": over}), facts, as_json)
