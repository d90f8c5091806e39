"""Groups of rows that no result counts, and that several results tell together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from published_samples import Recoded

import encryptedstats as es
from encryptedstats.publishing.rules import Rules
from error_codes import error


def publish_overlap(owner: es.Owner, tmp_path: Path, in_both: int, cuts: list[list[int]]) -> None:
    """Publish groups of bins of which bin 1 is counted in two, and never alone."""
    age = np.repeat(np.arange(4), (20, in_both, 20, 20))
    frame = pd.DataFrame({"age": age, "sick": np.arange(len(age)) % 2})
    schema = es.Schema.infer(
        pd.concat([frame, pd.DataFrame({"age": [1], "sick": [0]})]),
        target="sick",
        kinds={"age": "ordinal"},
    )
    table = owner.encrypt(schema.table(frame))
    ledger = es.Ledger.begin(tmp_path / "ledger", owner, rules=Rules(5), another=True)
    for bins in cuts:
        assert owner.publish(table.ask(Recoded(0, [bins])), schema, ledger=ledger).is_whole


THREE = [[0, 1], [1, 2], [0, 1, 2]]


def test_a_small_overlap_of_large_groups_is_refused(owner: es.Owner, tmp_path: Path) -> None:
    """23 + 23 - 43 = 3, though no count lies within another but for 20 rows."""
    with pytest.raises(es.DisclosureError, check=error("disclosive-result")):
        publish_overlap(owner, tmp_path, 3, THREE)


@pytest.mark.parametrize(("in_both", "cuts"), [(3, THREE[:2]), (0, THREE), (5, THREE), (12, THREE)])
def test_overlaps_that_are_unknown_empty_or_large_are_fine(
    owner: es.Owner, tmp_path: Path, in_both: int, cuts: list[list[int]]
) -> None:
    publish_overlap(owner, tmp_path, in_both, cuts)
