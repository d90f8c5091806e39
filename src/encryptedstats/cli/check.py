"""``check``: what is installed and what it can do, how fast it is, and whether a worker computed
what it was asked.
"""

from __future__ import annotations

import contextlib
import stat
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

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
from encryptedstats.machine import cores
from encryptedstats.storage import container
from encryptedstats.tables.answers.answer import PREDICTION_KIND
from encryptedstats.tables.questions.question import FOLDS_KIND, MODEL_KIND, RESULT_KIND
from encryptedstats.tables.questions.words import describe_question
from encryptedstats.views import TableView, View

# -- install
# ------------------------------------------------------------------------------------------------


@dataclass
class SelfTest:
    """How the self-test of one scheme went: seconds of every step that was reached, and what went
    wrong.
    """

    scheme: Scheme
    passed: bool = False
    problem: str | None = None
    seconds: dict[str, float] = field(default_factory=dict)


def check_install(as_json: AsJson = False) -> None:
    """Check versions, CPU, memory, both schemes, and the key files in this folder.

    JSON: healthy, machine, packages, self_test, keys

    Examples:
      encryptedstats check install

      # what to send along with a question
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
    """A key file: which key it is, and who may read it."""

    file: str
    kind: str
    fingerprint: str
    locked: bool
    others_may_read: bool

    def describe(self) -> str:
        """Return it in words."""
        text = f"{self.kind} {self.fingerprint}"
        if self.kind == OWNER_KIND:
            text += ", locked by a passphrase" if self.locked else ", no passphrase on it"
        if self.others_may_read:
            text += f"; other users may read it: chmod 600 {self.file}"
        return text


def find_keys(folder: Path) -> list[FoundKey]:
    """Return the key files of a folder, as far as they can be read; fingerprints are for the
    telephone.
    """
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


# -- speed: the figures that the documents quote are those of python -m benchmarks, in a checkout
# ------------------------------------------------------------------------------------------------

MAX_VALUE, DEPTH = 65_536, 2
ROWS, VARIABLES, BINS, TREES = 8192, 9, 5, 20
_LEAST, _SECONDS = 5, 0.2
_QUICK_ROWS, _QUICK_TREES = 500, 2
# A product is relinearised when it is multiplied again, and not before: the second is what it costs
# all in all.
_STEPS: Final = ("encrypt", "add", "multiply lazily", "multiply and relinearise", "decrypt")


def check_speed(
    quick: Annotated[
        bool, typer.Option("--quick", help="To see that it runs, not to quote figures.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Measure this machine: integers in both schemes, and a forest on an encrypted table.

    It takes ten seconds or so.

    JSON: machine, packages, quick, integers, forest

    Examples:
      encryptedstats check speed

      # to keep beside the figures of other machines
      encryptedstats check speed --json
    """
    with progress("measuring"):
        facts = {
            "machine": describe_machine(),
            "packages": package_versions(),
            "quick": quick,
            "integers": [_integers(scheme, quick) for scheme in SCHEMES],
            "forest": _forest(quick),
        }
    tell(_speed_view(facts), facts, as_json)


def _integers(scheme: Scheme, quick: bool) -> dict[str, Any]:
    """Median seconds of operations on single integers."""
    parameters = es.Parameters.choose(max_value=MAX_VALUE, depth=DEPTH, scheme=scheme)
    started = time.perf_counter()
    owner = es.Owner(parameters)
    keys = time.perf_counter() - started
    a, b = owner.encrypt(123), owner.encrypt(-45)
    operations: tuple[Callable[[], object], ...] = (
        lambda: owner.encrypt(123),
        lambda: a + b,
        lambda: a * b,
        lambda: (a * b).relinearise(),
        lambda: owner.open(a),
    )
    times = dict(zip(_STEPS, (_median(operation, quick) for operation in operations), strict=True))
    return {
        "scheme": scheme,
        "max_value": MAX_VALUE,
        "depth": DEPTH,
        "ring_degree": parameters.ring_degree,
        "ciphertext_bytes": parameters.ciphertext_bytes(),
        "seconds": {"keys": keys, **times},
    }


def _median(operation: Callable[[], object], quick: bool) -> float:
    operation()
    times: list[float] = []
    end = time.perf_counter() + (0 if quick else _SECONDS)
    while len(times) < (1 if quick else _LEAST) or time.perf_counter() < end:
        started = time.perf_counter()
        operation()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def _forest(quick: bool) -> dict[str, Any]:
    """Seconds of a forest on a full chunk of made-up rows: encrypted, fitted, opened; compared with
    the fit in the clear.
    """
    import numpy as np
    import pandas as pd

    rows, trees = (_QUICK_ROWS, _QUICK_TREES) if quick else (ROWS, TREES)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({f"x{j}": rng.normal(size=rows) for j in range(VARIABLES)})
    frame["y"] = (frame["x0"] + rng.normal(size=rows) > 0).astype(int)
    schema = es.Schema.infer(frame, target="y", bins=BINS)
    forest = es.CompletelyRandomForest(n_trees=trees, depth=3, random_state=0)
    owner = es.Owner(es.plan(forest, schema, n_rows=rows))
    table = schema.table(frame)
    seconds: dict[str, float] = {}
    clock = _Clock(seconds)
    sealed = owner.encrypt(table)
    clock.lap("encrypt")
    fitted = forest.fit(sealed)
    clock.lap("fit")
    opened = owner.open(fitted, schema=schema)
    clock.lap("open")
    return {
        "rows": rows,
        "variables": VARIABLES,
        "bins": BINS,
        "trees": trees,
        "bytes": sealed.info().to_dict()["bytes"],
        "cores": cores(),
        "exact": list(opened.totals_) == list(forest.fit(table).totals_),
        "seconds": seconds,
    }


def _speed_view(facts: dict[str, Any]) -> View:
    import pandas as pd

    machine, forest = facts["machine"], facts["forest"]
    memory = f", {size_text(machine['memory_bytes'])}" if machine["memory_bytes"] else ""
    times = {
        f"{one['scheme'].upper()}, N = {one['ring_degree']}": [
            time_text(one["seconds"][step]) for step in ("keys", *_STEPS)
        ]
        for one in facts["integers"]
    }
    frame = pd.DataFrame.from_dict(times, orient="index", columns=["keys", *_STEPS])
    frame = frame.rename_axis(f"one integer up to {MAX_VALUE:,}, depth {DEPTH}")
    seconds = forest["seconds"]
    what = f"{forest['rows']:,} rows, {forest['variables']} variables of {forest['bins']} bins"
    verdict = "exact" if forest["exact"] else "DIFFERS from the fit in the clear"
    shown = {
        "software": f"{machine['python']}, seal-python {facts['packages']['seal-python']}",
        "table": f"{what}: encrypted in {time_text(seconds['encrypt'])}, "
        f"{size_text(forest['bytes'])}",
        "forest": f"{forest['trees']} trees of depth 3: fitted in {time_text(seconds['fit'])}",
        "opened": f"in {time_text(seconds['open'])}: {verdict}",
    }
    notes = ("A quick run: these are no figures to quote.",) if facts["quick"] else ()
    title = f"{machine['cpu']}, {machine['usable_cores']} of {machine['cores']} cores{memory}"
    return View(title, shown, (TableView("integers", frame),), notes=notes)


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
            help="Of a prediction: the encrypted rows that it is for. TABLE is what its model, "
            "which stayed encrypted, is of.",
        ),
    ] = None,
    keys: TableKeys = None,
    on: On = LOCAL,
    as_json: AsJson = False,
) -> None:
    """Check a worker: compute its answer anew, and compare every ciphertext.

    No secret key is needed, only the encrypted table. What is computed is what the answer says it
    is, which is shown: compare it with what was asked. It takes as long as the worker took.
    Answers of a service or a cluster are computed in the same shards again. Answers over rows
    that others encrypted for one owner hold noise that is drawn anew each time: these cannot be
    checked, nor answers that were added up from others, nor predictions of an opened model.

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
