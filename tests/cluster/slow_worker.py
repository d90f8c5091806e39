"""A worker of a queue as a process of its own: ``slow_worker.py QUEUE SECONDS LEASE``. Every shard
takes SECONDS longer.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from pathlib import Path
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


def hold_in_second(released: Path) -> None:
    """Finish one shard, and stand still in the next until there is a file of this name."""
    evaluate, begun = items._evaluate, list[None]()

    def wait(*arguments: Any) -> Any:
        begun.append(None)
        while len(begun) > 1 and not released.exists():
            time.sleep(0.02)
        return evaluate(*arguments)

    items._evaluate = wait


def main() -> None:
    queue, seconds, lease = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
    make_slow(seconds)
    report = cluster.work(queue, lease=lease)
    print(json.dumps(vars(report)))


if __name__ == "__main__":
    main()
