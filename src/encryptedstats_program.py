"""The program ``encryptedstats``, up to the moment when its library is there: that takes a second or two, in which Ctrl-C may come.

Outside of the package, since importing anything from inside it imports most of it first.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Import the command line and run it; interrupted before, there is nothing to tidy up and one line to say."""
    try:
        from encryptedstats.cli import load_program

        program = load_program()
    except KeyboardInterrupt:
        print("interrupted: nothing was begun", file=sys.stderr)
        sys.exit(130)
    program()
