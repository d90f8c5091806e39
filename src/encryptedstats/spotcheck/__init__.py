"""Spot checks: catch a worker that lies by recomputing its sums at a few secret positions.

The argument is docs/explanation/verification.md. Imports tables and what is below.
"""

from encryptedstats.circuits.spare_bits import Certainty
from encryptedstats.spotcheck.check import SpotCheck, respond
from encryptedstats.spotcheck.kept import Keeper
from encryptedstats.spotcheck.messages import Challenge, Response
from encryptedstats.spotcheck.opening import open_checked

__all__ = [
    "Certainty",
    "Challenge",
    "Keeper",
    "Response",
    "SpotCheck",
    "open_checked",
    "respond",
]
