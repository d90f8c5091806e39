"""Texts within files that hold random bytes."""

from __future__ import annotations

import re


def text_of(data: bytes) -> bytes:
    """Return the runs of at least 60 printable characters: headers, and no random bytes.

    A word of five letters occurs in some megabytes of random residues once in 100,000 runs of a
    test; a run as long as that never does.
    """
    return b" ".join(re.findall(rb"[ -~\n]{60,}", data))
