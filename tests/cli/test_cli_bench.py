"""``bench``: a short measurement."""

from __future__ import annotations

import json

from cli_helpers import done


def test_the_short_measurement() -> None:
    facts = json.loads(done("bench", "--quick", "--json").stdout)
    assert facts["quick"] is True
    assert [entry["scheme"] for entry in facts["integers"]] == ["bgv", "bfv"]
    assert all(seconds > 0 for entry in facts["integers"] for seconds in entry["seconds"].values())
    for entry in facts["integers"]:
        assert entry["seconds"]["multiply and relinearise"] > entry["seconds"]["multiply lazily"]
    assert facts["forest"]["exact"] is True
    assert facts["machine"]["cores"] >= 1


def test_on_the_screen() -> None:
    shown = done("bench", "--quick").stdout
    for words in ("BGV, N = 8192", "BFV, N =", "trees of depth 3: fitted in", "exact", "no figures to quote"):
        assert words in shown
