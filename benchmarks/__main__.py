"""``python -m benchmarks [--quick] [--out FOLDER] [PART ...]``: measure, print tables,
write JSON.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
from pathlib import Path

from rich.console import Console

import benchmarks
from benchmarks._common import PARTS, Settings, run


def main() -> None:
    for module in pkgutil.iter_modules(benchmarks.__path__):
        if not module.name.startswith("_"):
            importlib.import_module(f"benchmarks.{module.name}")
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measure the library on this machine."
    )
    parser.add_argument(
        "parts",
        nargs="*",
        metavar="PART",
        help=f"which to run, all by default: {', '.join(sorted(PARTS))}",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="few repetitions: to see that it runs, not to quote figures",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("out/bench"),
        help="folder for the JSON files (default: %(default)s)",
    )
    options = parser.parse_args()
    unknown = sorted(set(options.parts) - set(PARTS))
    if unknown:
        parser.error(f"no part named {', '.join(unknown)}: there are {', '.join(sorted(PARTS))}")
    settings = Settings.for_quick() if options.quick else Settings()
    console = Console()
    # A table that is folded to 80 columns because the output goes to a file is of no use there.
    run(
        options.parts or sorted(PARTS),
        settings,
        options.out,
        console if console.is_terminal else Console(width=120),
    )


if __name__ == "__main__":
    main()
