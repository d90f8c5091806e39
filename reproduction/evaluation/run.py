"""From settings to a report: runs the parts that are asked for, draws, and writes it all down."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from reproduction.evaluation.catalogue import run_catalogue
from reproduction.evaluation.encrypted import run_encrypted
from reproduction.evaluation.figures import require_matplotlib
from reproduction.evaluation.report import write_report
from reproduction.evaluation.resampled import RESAMPLED, run_resampled
from reproduction.evaluation.settings import PARTS, Settings
from reproduction.evaluation.shrinkage import run_shrinkage
from reproduction.evaluation.times import run_times

_OTHERS: Final[dict[str, Callable[[Settings, bool | None], int]]] = {
    "datasets": lambda settings, show: run_catalogue(settings),
    "shrinkage": lambda settings, show: run_shrinkage(settings),
    "encrypted": run_encrypted,
    "times": run_times,
}


def reproduce(
    settings: Settings,
    parts: Sequence[str] = PARTS,
    *,
    show: bool | None = None,
    after: Callable[[str, int], None] | None = None,
) -> Path:
    """Run the paper's evaluation, or what is missing of it, and write the report.

    Parameters
    ----------
    settings : Settings
    parts : sequence of str
        Some of :data:`PARTS`; all by default. The report shows whatever there is, also of other
        parts.
    show : bool, optional
        Whether to draw progress bars; by default on a terminal.
    after : callable, optional
        Called after each part, with its name and how many pieces of it were computed.

    Returns
    -------
    Path
        ``report.html``.

    Examples
    --------
    >>> from reproduction.evaluation import Settings, reproduce
    >>> reproduce(Settings(splits=20), ["performance"])  # doctest: +SKIP
    PosixPath('out/reproduction/report.html')
    """
    unknown = [part for part in parts if part not in PARTS]
    if unknown:
        raise ValueError(f"there is no part {unknown[0]!r}: choose from {', '.join(PARTS)}")
    require_matplotlib()
    settings.output.mkdir(parents=True, exist_ok=True)
    for part in [part for part in PARTS if part in parts]:
        done = (
            run_resampled(RESAMPLED[part], settings, show)
            if part in RESAMPLED
            else _OTHERS[part](settings, show)
        )
        if after is not None:
            after(part, done)
    return write_report(settings.output)
