"""Verdicts follow the numbers: made-up results that support a statement, and some that do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reproduction import datasets
from reproduction.evaluation.claims import AGREES, DIFFERS, IN_PART, Finding, findings
from reproduction.evaluation.evidence import Evidence
from reproduction.evaluation.methods import METHODS
from reproduction.evaluation.results import write_csv
from reproduction.evaluation.settings import DEPTHS, FRACTIONS, TREE_COUNTS


def found(output: Path, words: str) -> Finding:
    """The one finding whose statement has these words."""
    matching = [finding for finding in findings(Evidence(output)) if words in finding.says]
    assert len(matching) == 1, [finding.says for finding in matching]
    return matching[0]


def write(output: Path, part: str, rows: dict[str, list[dict[str, Any]]]) -> None:
    for name, lines in rows.items():
        write_csv(output / "results" / part / f"{name}.csv", lines)


def performance(output: Path, **special: dict[str, float]) -> None:
    """All methods alike but for what is said: ``iono={"RF": 0.9}``."""
    rows = {
        name: [
            {
                "split": split,
                "method": method,
                "auc": special.get(name, {}).get(method, 0.8),
                "seconds": 0.1,
            }
            for split in range(2)
            for method in METHODS
        ]
        for name in datasets.names()
    }
    write(output, "performance", rows)


@pytest.mark.parametrize(
    ("ratio", "verdict"), [(0.76, AGREES), (0.74, AGREES), (1.01, DIFFERS), (0.5, DIFFERS)]
)
def test_ratio_of_convergence(tmp_path: Path, ratio: float, verdict: str) -> None:
    row = {
        "split": 0,
        "variant": "paired",
        "one_step": 0.9,
        "converged": 0.9 * ratio,
        "ratio": ratio,
    }
    write(tmp_path, "convergence", {"chess": [row]})
    finding = found(tmp_path, "On chess")
    assert finding.verdict == verdict
    assert f"{ratio:.3f}" in finding.ours


def test_clearly_better_forests_are_counted(tmp_path: Path) -> None:
    performance(tmp_path, **{name: {"RF": 0.9} for name in ("iono", "magic", "musk1", "musk2")})
    finding = found(tmp_path, "Only on 4 data sets")
    assert finding.verdict == AGREES
    assert "on 4 (iono, magic, musk1, musk2)" in finding.ours
    performance(tmp_path, **{name: {"RF": 0.9} for name in datasets.names()})
    assert found(tmp_path, "Only on 4 data sets").verdict == DIFFERS


def test_perfect_means_perfect(tmp_path: Path) -> None:
    perfect = dict.fromkeys(METHODS, 1.0)
    performance(tmp_path, infl=perfect, neph=perfect)
    assert found(tmp_path, "match the traditional").verdict == AGREES
    performance(tmp_path, infl=perfect, neph={**perfect, "MNB": 0.9})
    assert found(tmp_path, "match the traditional").verdict == DIFFERS


def test_hard_sets(tmp_path: Path) -> None:
    better = {"CRF": 0.85}
    performance(tmp_path, blood=better, bcw_p=better, haber=better)
    assert found(tmp_path, "hardest sets").verdict == AGREES
    performance(tmp_path, blood=better, bcw_p=better, haber={"RF": 0.85})
    assert found(tmp_path, "hardest sets").verdict == IN_PART
    performance(tmp_path, blood={"RF": 0.85}, bcw_p={"RF": 0.85}, haber={"RF": 0.85})
    assert found(tmp_path, "hardest sets").verdict == DIFFERS


def test_fraction(tmp_path: Path) -> None:
    def rows(gain: float) -> list[dict[str, Any]]:
        return [
            {"split": s, "fraction": m, "auc": 0.8 + gain * bool(m)}
            for s in range(2)
            for m in FRACTIONS
        ]

    gains = dict.fromkeys(datasets.names(), 0.02) | {"iono": 0.1, "bcw_p": 0.001}
    write(tmp_path, "fraction", {name: rows(gain) for name, gain in gains.items()})
    for words in (
        "iono gains most",
        "up to 12.6 %",
        "On no data set",
        "least improvement",
        "about the diagonal",
        "does no harm",
    ):
        assert found(tmp_path, words).verdict == AGREES, words
    assert "12.5 %" in found(tmp_path, "up to 12.6 %").ours
    write(tmp_path, "fraction", {name: rows(-gain) for name, gain in gains.items()})
    for words in ("iono gains most", "On no data set", "does no harm"):
        assert found(tmp_path, words).verdict == DIFFERS, words


def test_trees_and_depth(tmp_path: Path) -> None:
    def rows(by_trees: float, by_depth: float) -> list[dict[str, Any]]:
        return [
            {
                "split": 0,
                "depth": d,
                "trees": n,
                "auc": 0.6 + by_trees * (n > 10) + by_depth * (d > 1),
            }
            for d in DEPTHS
            for n in TREE_COUNTS
        ]

    deep = ("iono", "magic", "musk1", "musk2")
    write(
        tmp_path,
        "trees",
        {name: rows(0.1, 0.05 if name in deep else 0.0) for name in datasets.names()},
    )
    for words in ("many trees matter more", "1000 trees of 1 level", "Depth matters"):
        assert found(tmp_path, words).verdict == AGREES, words
    write(tmp_path, "trees", {name: rows(0.01, 0.1) for name in datasets.names()})
    assert found(tmp_path, "many trees matter more").verdict == DIFFERS
    assert found(tmp_path, "1000 trees of 1 level").verdict == DIFFERS
    assert found(tmp_path, "Depth matters").verdict == IN_PART
