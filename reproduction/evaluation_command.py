"""``evaluation``: the paper's, run again, with a report at the end."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Final

import typer

from encryptedstats.cli._console import tell
from encryptedstats.cli._options import AsJson, Force, file_option, option
from encryptedstats.views import View
from reproduction import datasets

_OUT: Final = Path("out", "reproduction")
_EVERY: Final[list[str]] = []


def _check_output(folder: Path, *, force: bool) -> None:
    """Refuse a folder that holds anything but an earlier run, which is gone on with."""
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"{folder} is no folder: give the name of a folder to write to")
    if (
        not force
        and folder.is_dir()
        and any(folder.iterdir())
        and not (folder / "results").is_dir()
    ):
        raise FileExistsError(
            f"{folder} exists already and was not touched: give another name, or --force to "
            "replace files of the same names"
        )


def evaluation(
    parts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PART...]",
            help="datasets, shrinkage, encrypted, times, convergence, fraction, performance, "
            "trees, models, learned; all by default.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path,
        file_option(
            "--output",
            "-o",
            metavar="FOLDER",
            help="Where results and report go; out/reproduction by default.",
        ),
    ] = _OUT,
    splits: Annotated[
        int, typer.Option(min=1, metavar="N", help="Random splits of every data set.")
    ] = 100,
    dataset: Annotated[
        list[str],
        typer.Option(
            metavar="NAME",
            help="Only this data set; may be given several times. All 19 by default.",
            show_default=False,
        ),
    ] = _EVERY,
    seed: Annotated[
        int, typer.Option(metavar="N", help="Where splits, forests and draws start from.")
    ] = 2015,
    data_home: Annotated[
        Path | None,
        file_option(
            metavar="FOLDER",
            help="Folder with the data sets; by default ENCRYPTEDSTATS_DATA, then a cache, then "
            "UCI's server.",
        ),
    ] = None,
    workers: Annotated[
        int | None, option(min=1, metavar="N", help="Processes; all cores by default.")
    ] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Run the paper's evaluation again: results as CSV, pictures, and a report that holds each
    statement against ours.

    It may be interrupted, and goes on where it was when it is run again with the same folder. More
    splits are added to those that are there. With all data sets and 100 splits it takes an hour or
    so on two cores.

    Examples:
      python -m reproduction evaluation
      python -m reproduction evaluation performance fraction --splits 20

      # two data sets only, quickly
      python -m reproduction evaluation -o small --dataset iono --dataset heart --splits 5
    """
    from reproduction.evaluation import PARTS, Settings, reproduce
    from reproduction.evaluation.claims import findings
    from reproduction.evaluation.evidence import Evidence

    _check_output(out, force=force)
    for name in dataset:
        datasets.info(name)  # refuses a name that it does not know
    names = tuple(name for name in datasets.names() if name in dataset or not dataset)
    done: dict[str, int] = {}
    report = reproduce(
        Settings(out, splits, names, seed, data_home, workers),
        parts or PARTS,
        after=done.__setitem__,
    )
    verdicts = Counter(finding.verdict for finding in findings(Evidence(out)))
    document = {"report": str(report), "computed": done, "statements": dict(verdicts)}
    shown = {
        part: f"{count:,} computed" if count else "was there already"
        for part, count in done.items()
    }
    listed = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common())
    tell(View(f"Report {report}", {**shown, "statements": listed}), document, as_json)
