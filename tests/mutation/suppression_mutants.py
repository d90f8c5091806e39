"""Mutants of the suppression of tables and of the comparison with the ledger."""

from __future__ import annotations

from mutation.mutants import Mutant

FILE, AUDIT = "publishing/suppression.py", "publishing/audit.py"
SEARCH = ("tests/publishing/test_inverse_search.py",)
TABLES = ("tests/publishing/test_suppression.py",)
CONCLUSIONS = ("tests/publishing/test_conclusions.py",)

MUTANTS = [
    Mutant(
        "suppression: the larger count may be any that is not small",
        "cells[small].min() + min_count - 1]",
        "min_count]",
        FILE,
        SEARCH,
    ),
    Mutant(
        "suppression: no band of sums",
        "if in_band or not len(far)",
        "if not len(far)",
        FILE,
        SEARCH,
    ),
    Mutant(
        "suppression: one of equal counts hidden",
        "small | (cells == (values[times == 1] if 1 in times else values)[0])",
        "small | (np.arange(len(cells)) == np.argmax(cells == far.min()))",
        FILE,
        SEARCH,
    ),
    Mutant(
        "suppression: two counts known to be small",
        "if cells.sum() == min_count > 1 and len(cells) > 1:",
        "if False:",
        FILE,
        SEARCH,
    ),
    Mutant(
        "suppression: blocks that are too narrow",
        "(width > least and",
        "(width >= least and",
        FILE,
        SEARCH,
    ),
    Mutant("suppression: small counts in blocks", " and not bad[block].any()", "", FILE, SEARCH),
    Mutant(
        "suppression: blocks below hidden ones",
        "if not all(known[place]",
        "if not any(known[place]",
        FILE,
        SEARCH,
    ),
    Mutant("suppression: groups of one kind shown", " | one_kind\n", "\n", FILE, TABLES),
    Mutant(
        "suppression: margins tell one kind",
        "        return None\n    shown =",
        "        pass\n    shown =",
        FILE,
        TABLES,
    ),
    Mutant("suppression: hidden counts may be zero", "= hidden[vector]\n", "= 0\n", FILE, TABLES),
    Mutant(
        "audit: overlaps known to be small",
        "return low > 0 and high < min_count",
        "return False",
        AUDIT,
        CONCLUSIONS,
    ),
    Mutant(
        "audit: overlaps that may be empty",
        "return low > 0 and high",
        "return low >= 0 and high",
        AUDIT,
        CONCLUSIONS,
    ),
    Mutant(
        "audit: overlaps of the minimum",
        "high < min_count\n",
        "high <= min_count\n",
        AUDIT,
        CONCLUSIONS,
    ),
    Mutant(
        "audit: overlaps that are unknown",
        "return low > 0 and high < min_count",
        "return low > 0 or high < min_count",
        AUDIT,
        CONCLUSIONS,
    ),
]
