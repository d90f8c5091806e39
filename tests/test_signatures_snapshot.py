"""Public names and signatures are those that are stored, so that none changes unnoticed."""

from __future__ import annotations

import difflib

import encryptedstats as es
from signatures import STORED, public_signatures


def test_public_signatures_are_those_that_are_stored() -> None:
    stored, found = STORED.read_text().splitlines(), public_signatures().splitlines()
    changed = [line for line in difflib.ndiff(stored, found) if line[0] in "+-"]
    assert not changed, "\n".join(
        [*changed, "If users are to see this: python tests/signatures.py, and CHANGELOG.md"]
    )


def test_everything_public_is_in_the_list() -> None:
    listed = {line.split("(")[0].split(":")[0] for line in STORED.read_text().splitlines()}
    assert set(es.__all__) <= listed
    assert {"Schema.infer", "Owner.open", "EncryptedTable.ask", "GLM.predict"} <= listed
