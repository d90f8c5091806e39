"""What the tests of the command line share beside their fixtures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Run = Callable[..., Any]


def the_error(result: Any) -> str:
    """The one line that an error is; fails if there is more, or less, or a traceback."""
    assert result.exit_code == 1, result.output
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("error: ")
    assert isinstance(result.exception, SystemExit)
    return lines[0]
