"""A worker of a queue as a process of its own: ``slow_worker.py QUEUE SECONDS LEASE``. Every shard
takes SECONDS longer.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from typing import Any

if __name__ == "__main__":
    warnings.simplefilter("ignore")

from encryptedstats import cluster
from encryptedstats.cluster import items


def make_slow(seconds: float) -> None:
    evaluate = items._evaluate

    def slowly(*arguments: Any) -> Any:
        time.sleep(seconds)
        return evaluate(*arguments)

    items._evaluate = slowly


def main() -> None:
    queue, seconds, lease = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
    make_slow(seconds)
    report = cluster.work(queue, lease=lease)
    print(json.dumps(vars(report)))


if __name__ == "__main__":
    main()
