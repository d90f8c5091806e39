"""``fit --checkpoint``: goes on from what is there, refuses what is not its own, leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_helpers import FOREST, Run, Ward, done, the_error

from encryptedstats.circuits import slices

pytest.importorskip("encryptedstats._fused")


def test_a_fit_goes_on_from_its_checkpoint(
    ward: Ward, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, out = tmp_path / "part", tmp_path / "forest.enc"
    command = ("fit", ward.table(0), "-o", out, *FOREST, "--workers", 1, "--checkpoint", place)
    put, computed = slices.CheckpointSums.put, []

    def full(self: slices.CheckpointSums, number: int, sums: slices.Residues) -> None:
        if number == 2 and not computed[2:]:
            computed.append(-1)
            raise OSError(28, "No space left on device", str(place))
        computed.append(number)
        put(self, number, sums)

    monkeypatch.setattr(slices.CheckpointSums, "put", full)
    assert "no space left on device" in the_error(run(*command))
    assert not out.exists()
    assert (place / slices.CHECKPOINT).exists()
    other = the_error(run(*command, "--seed", 99))
    assert "is the checkpoint of another fit (another circuit)" in other
    done(*command)
    assert computed[:4] == [0, 1, -1, 2]
    assert computed.count(0) == computed.count(1) == 1
    assert out.exists()
    assert not place.exists()


def test_a_cluster_needs_none(ward: Ward, run: Run, tmp_path: Path) -> None:
    result = run(
        "fit", ward.table(0), "-o", tmp_path / "x", *FOREST, "--queue", tmp_path / "q", "--checkpoint", tmp_path / "c"
    )
    assert result.exit_code == 2
    assert "goes on from its queue by itself" in result.stderr
