"""``fit --checkpoint``: goes on from what is there, refuses what is not its own, leaves nothing
behind.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_helpers import FOREST, Run, Ward, disk_full, done, the_error

from encryptedstats.circuits import slices
from encryptedstats.storage import files as storage_files

pytest.importorskip("encryptedstats._fused")


def test_a_fit_goes_on_from_its_checkpoint(
    ward: Ward, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, out = tmp_path / "part", tmp_path / "forest.enc"
    command = ("ask", ward.table(0), "-o", out, *FOREST, "--on", f"local checkpoint={place}")
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
    other = the_error(run(*command[:4], "forest", "trees=4", "depth=2", "seed=99", *command[-2:]))
    assert "is the checkpoint of another fit (another circuit)" in other
    done(*command)
    assert computed[:4] == [0, 1, -1, 2]
    assert computed.count(0) == computed.count(1) == 1
    assert out.exists()
    assert not place.exists()


def test_a_cluster_needs_none(ward: Ward, run: Run, tmp_path: Path) -> None:
    on = f"queue://{tmp_path} checkpoint={tmp_path}"
    result = run("ask", ward.table(0), "-o", tmp_path / "x", *FOREST, "--on", on)
    assert result.exit_code == 2
    assert "checkpoint" in result.stderr


def test_an_interrupt_says_what_is_kept(
    ward: Ward, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, out = tmp_path / "part", tmp_path / "forest.enc"
    command = ("ask", ward.table(0), "-o", out, *FOREST, "--on", f"local checkpoint={place}")

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(slices.CheckpointSums, "put", interrupt)
        result = run(*command)
    assert (result.exit_code, result.stdout) == (130, "")
    assert (
        result.stderr
        == f"interrupted: what was computed is kept in {place}; run the same command to "
        "resume\n"
    )
    done(*command)
    with monkeypatch.context() as patch:
        patch.setattr("encryptedstats.EncryptedTable._answer_to", interrupt)
        result = run("ask", ward.table(0), "-o", tmp_path / "other", *FOREST)
    assert result.stderr == "interrupted: nothing was left half-written\n"


def test_a_full_disk_is_named(
    ward: Ward, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "part"
    monkeypatch.setattr(storage_files.os, "fsync", disk_full)
    command = (
        "ask",
        ward.table(0),
        "-o",
        tmp_path / "f",
        *FOREST,
        "--on",
        f"checkpoint={place}",
    )
    assert the_error(run(*command)).startswith(f"error: {place}/")
