"""``check speed``: a short measurement."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from cli_helpers import done

from encryptedstats.cli import check
from encryptedstats.crypto.evaluator import Evaluator
from encryptedstats.crypto.noise import Scheme


def test_the_short_measurement() -> None:
    facts = json.loads(done("check", "speed", "--quick", "--json").stdout)
    assert facts["quick"] is True
    assert [entry["scheme"] for entry in facts["integers"]] == ["bgv", "bfv"]
    assert all(seconds > 0 for entry in facts["integers"] for seconds in entry["seconds"].values())
    assert facts["forest"]["exact"] is True
    assert facts["machine"]["cores"] >= 1


@pytest.mark.parametrize("scheme", ["bgv", "bfv"])
def test_each_name_has_the_time_of_what_it_names(
    scheme: Scheme, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time is how many key switches it took: which takes longer on a busy machine is for nobody
    to say.
    """
    switches = []
    monkeypatch.setattr(
        Evaluator, "relinearise", lambda evaluator, sealed: switches.append(sealed) or sealed
    )

    def counted(operation: Callable[[], object], quick: bool) -> tuple[str, int]:
        before, result = len(switches), operation()
        return type(result).__name__, len(switches) - before

    monkeypatch.setattr(check, "_median", counted)
    seconds = check._integers(scheme, True)["seconds"]
    assert seconds.pop("keys") > 0
    assert seconds == {
        "encrypt": ("EncryptedInteger", 0),
        "add": ("EncryptedInteger", 0),
        "multiply lazily": ("EncryptedInteger", 0),
        "multiply and relinearise": ("NoneType", 1),
        "decrypt": ("int", 0),
    }


def test_on_the_screen() -> None:
    shown = done("check", "speed", "--quick").stdout
    for words in (
        "BGV, N = 8192",
        "BFV, N =",
        "trees of depth 3: fitted in",
        "exact",
        "no figures to quote",
    ):
        assert words in shown
