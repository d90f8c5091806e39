"""One batch of Concrete ML's encrypted logistic regression, on rows from standard input; run by
the part "peers" with another interpreter. Prints its seconds as JSON.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np
from concrete import ml  # type: ignore[import-not-found]  # in an environment of its own
from concrete.ml.sklearn import SGDClassifier  # type: ignore[import-not-found]  # in an environment of its own


def main() -> None:
    asked = json.load(sys.stdin)
    rows, target = np.array(asked["numbers"], dtype=float), np.array(asked["target"], dtype=int)
    rows = (rows - rows.min(axis=0)) / np.ptp(rows, axis=0).clip(min=1e-9)
    model = SGDClassifier(
        random_state=1, max_iter=1, fit_encrypted=True, parameters_range=(-1.0, 1.0)
    )
    model.fit(rows, target, fhe="disable")  # so that imports are no part of what follows
    started, cpu = time.perf_counter(), time.process_time()
    model.fit(rows, target, fhe="execute")
    found = {"seconds": time.perf_counter() - started, "cpu_seconds": time.process_time() - cpu}
    print(json.dumps({"version": ml.__version__, "batch": found, "rows": model.batch_size}))


if __name__ == "__main__":
    main()
