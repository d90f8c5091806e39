"""Two versions of this library side by side: ``python -m benchmarks.compare OTHER_TREE [CASE
...]``.

Every case runs in fresh processes, of this tree and of the other in turn, so that both meet the
same machine at about the same time; what is compared is the median of the ratios of all rounds, in
seconds of processor time and of the clock, beside the best of each. A case uses only calls that
both versions have. The other tree needs its kernels built (``python setup.py build_ext
--inplace``).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics as statistics_of
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROUNDS = 5
HERE = Path(__file__).parents[1]


def _frame(n_rows: int, n_columns: int = 9) -> Any:
    import numpy as np
    import pandas as pd

    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        rng.integers(0, 5, (n_rows, n_columns)), columns=[f"x{i}" for i in range(n_columns)]
    ).astype(str)
    frame["y"] = np.where(rng.random(n_rows) < 0.3, "ill", "well")
    return frame


def _forest(n_rows: int, trees: int, depth: int = 3, **options: Any) -> tuple[Any, Any, Any]:
    """A forest, its plan, and an encrypted table for it."""
    import encryptedstats as es

    frame = _frame(n_rows)
    schema = es.Schema.infer(frame, target="y")
    forest = es.CompletelyRandomForest(n_trees=trees, depth=depth, random_state=1)
    owner = es.Owner(es.plan(forest, schema, n_rows, **options))
    return forest, owner, owner.encrypt(schema.table(frame))


def plan() -> Callable[[], object]:
    """Plan a forest of 100 trees."""
    import encryptedstats as es

    schema = es.Schema.infer(_frame(547), target="y")
    forest = es.CompletelyRandomForest(n_trees=100, depth=3, random_state=1)
    es.plan(forest, schema, 547)
    return lambda: es.plan(forest, schema, 547)


def plan_prediction() -> Callable[[], object]:
    """Planning a forest that predicts unopened."""
    import encryptedstats as es

    schema = es.Schema.infer(_frame(547), target="y")
    forest = es.CompletelyRandomForest(n_trees=30, depth=3, random_state=1)
    es.plan(forest, schema, 547, encrypted_prediction=True)
    return lambda: es.plan(forest, schema, 547, encrypted_prediction=True)


def fit_small() -> Callable[[], object]:
    """Fit 100 trees of depth 3 to 547 rows."""
    forest, _, sealed = _forest(547, 100)
    forest.fit(sealed, progress=False)
    return lambda: forest.fit(sealed, progress=False)


def fit_large() -> Callable[[], object]:
    """Fit 100 trees of depth 3 to 40,960 rows."""
    forest, _, sealed = _forest(40_960, 100)
    return lambda: forest.fit(sealed, progress=False)


def fit_bfv() -> Callable[[], object]:
    """Fit 2 trees of depth 2 under BFV, by SEAL."""
    forest, _, sealed = _forest(547, 2, 2, scheme="bfv")
    return lambda: forest.fit(sealed, progress=False)


def predict_closed() -> Callable[[], object]:
    """Predict 8,192 rows by an encrypted forest of 20 trees."""
    import encryptedstats as es

    forest, owner, sealed = _forest(547, 20, 2, encrypted_prediction=True)
    forest.fit(sealed, progress=False)
    new = owner.encrypt(es.Schema.infer(_frame(547), target="y").table(_frame(8192)))
    forest.predict_votes(new, progress=False)
    return lambda: forest.predict_votes(new, progress=False)


def predict_open() -> Callable[[], object]:
    """Predict 8,192 encrypted rows by an opened forest of 20 trees."""
    import encryptedstats as es

    forest, owner, sealed = _forest(547, 20, 2, encrypted_prediction=True)
    forest.fit(sealed, progress=False)
    opened = owner.open(forest)
    new = owner.encrypt(es.Schema.infer(_frame(547), target="y").table(_frame(8192)))
    return lambda: opened.predict_votes(new, progress=False)


def draw() -> Callable[[], object]:
    """Draw the fraction (M = 2) of 2 trees of depth 2."""
    import encryptedstats as es

    frame = _frame(547)
    schema = es.Schema.infer(frame, target="y")
    forest = es.CompletelyRandomForest(n_trees=2, depth=2, fraction=2, random_state=1)
    owner = es.Owner(es.plan(forest, schema, 547, encrypted_prediction=True))
    sealed = owner.encrypt(schema.table(frame))
    forest.fit(sealed, progress=False)
    return lambda: forest.draw_fraction(sealed, progress=False)


def statistics() -> Callable[[], object]:
    """Count a cross table of 40,960 rows."""
    _, _, sealed = _forest(40_960, 2)
    return lambda: sealed.crosstab(0, 1, progress=False)


def clear_fit() -> Callable[[], object]:
    """Fit the plain twin: 100 trees, 200,000 rows."""
    import encryptedstats as es

    frame = _frame(200_000)
    table = es.Schema.infer(frame, target="y").table(frame)
    return lambda: es.CompletelyRandomForest(n_trees=100, depth=3, random_state=1).fit(table)


def encrypt() -> Callable[[], object]:
    """Encrypt 40,960 rows of 9 variables."""
    import encryptedstats as es

    frame = _frame(40_960)
    schema = es.Schema.infer(frame, target="y")
    owner, table = es.Owner(es.plan(es.MultinomialNB(), schema, 40_960)), schema.table(frame)
    return lambda: owner.encrypt(table)


def open_model() -> Callable[[], object]:
    """Open 100 trees."""
    forest, owner, sealed = _forest(547, 100)
    forest.fit(sealed, progress=False)
    return lambda: owner.open(forest)


CASES: dict[str, Callable[[], Callable[[], object]]] = {
    case.__name__: case
    for case in (
        plan,
        plan_prediction,
        fit_small,
        fit_large,
        fit_bfv,
        predict_closed,
        predict_open,
        draw,
        statistics,
        clear_fit,
        encrypt,
        open_model,
    )
}


def _processor_seconds() -> float:
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def _measured(name: str) -> dict[str, float]:
    """One run, in this process."""
    action = CASES[name]()
    begun, used = time.perf_counter(), _processor_seconds()
    action()
    return {"seconds": time.perf_counter() - begun, "processor": _processor_seconds() - used}


def _of_tree(tree: Path, name: str) -> dict[str, float]:
    environment = {**os.environ, "PYTHONPATH": f"{tree / 'src'}{os.pathsep}{HERE}"}
    code = (
        "import json; from benchmarks.compare import _measured; "
        f"print(json.dumps(_measured({name!r})))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        cwd="/",
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Print a line for every case."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.compare", description=__doc__.splitlines()[0]
    )
    parser.add_argument("other", type=Path, help="the tree of another version")
    parser.add_argument("cases", nargs="*", help=f"all by default: {', '.join(CASES)}")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--out", type=Path, help="a JSON file for the result")
    options = parser.parse_intermixed_args()
    print(
        f"{'case':18}{'clock':>8}{'other':>10}{'this':>10}{'processor':>12}{'other':>10}{'this':>10}"
    )
    cases = []
    for name in options.cases or CASES:
        rounds = [
            (_of_tree(options.other.resolve(), name), _of_tree(HERE, name))
            for _ in range(options.rounds)
        ]
        found: dict[str, Any] = {"case": name, "what": (CASES[name].__doc__ or "").strip()}
        for key in ("seconds", "processor"):
            ratios = [after[key] / before[key] for before, after in rounds]
            best = [min(one[which][key] for one in rounds) for which in (0, 1)]
            found[key] = {"ratio": statistics_of.median(ratios), "other": best[0], "this": best[1]}
        cases.append(found)
        columns = [found[key][what] for key in ("seconds", "processor") for what in found[key]]
        print(
            f"{name:18}{columns[0]:8.2f}{columns[1]:10.3f}{columns[2]:10.3f}"
            f"{columns[3]:12.2f}{columns[4]:10.3f}{columns[5]:10.3f}",
            flush=True,
        )
    if options.out is not None:
        from benchmarks._common import describe_run, write_json

        results = {"other": options.other.name, "rounds": options.rounds, "cases": cases}
        write_json(options.out, {"part": "compare", **describe_run(), "results": results})


if __name__ == "__main__":
    main()
