"""Publishing: disclosure rules, releases with noise, the ledger of both, and a report of all files.

Sits above everything that can be opened. ``owner.publish`` and ``owner.release`` are registered in
this package.
"""

from encryptedstats.publishing.ledger import Budget, Ledger
from encryptedstats.publishing.publish import Published
from encryptedstats.publishing.release import Privacy, Release
from encryptedstats.publishing.report import write_report
from encryptedstats.publishing.rules import PROFILES, Finding, Rules

__all__ = [
    "PROFILES",
    "Budget",
    "Finding",
    "Ledger",
    "Privacy",
    "Published",
    "Release",
    "Rules",
    "write_report",
]
