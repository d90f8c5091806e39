"""HElayers' completely random forest on rows from standard input; run by the part "peers" with
another interpreter. Prints its seconds as JSON.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np
import pyhelayers  # type: ignore[import-not-found]  # in an environment of its own


def main() -> None:
    asked = json.load(sys.stdin)
    rows = np.array(asked["onehot"], dtype=float)
    target = np.array(asked["target"], dtype=float)[:, None]
    groups = [set(group) for group in asked["groups"]]
    context = pyhelayers.SealCkksContext()
    context.init(pyhelayers.HeConfigRequirement(8192, asked["depth"] + 2, 35, 10, 128))
    forest = pyhelayers.Crf(context)
    forest.set_hyper_params(asked["trees"], asked["depth"], [], groups, 1)
    times = [(time.perf_counter(), time.process_time())]
    x, y = forest.encode_encrypt_input(rows, target)
    times.append((time.perf_counter(), time.process_time()))
    forest.fit(x, y)
    times.append((time.perf_counter(), time.process_time()))
    found = {
        what: {"seconds": after[0] - before[0], "cpu_seconds": after[1] - before[1]}
        for what, before, after in zip(("encrypt", "fit"), times, times[1:], strict=False)
    }
    print(json.dumps({"version": str(pyhelayers.VERSION), **found}))


if __name__ == "__main__":
    main()
