"""``bench``: the short measurement runs everywhere; the parts of a checkout's benchmarks where there is one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_helpers import Run, done, the_error

from encryptedstats.cli import bench


def test_the_short_measurement() -> None:
    facts = json.loads(done("bench", "--quick", "--json").stdout)
    assert facts["quick"] is True
    assert [entry["scheme"] for entry in facts["integers"]] == ["bgv", "bfv"]
    assert all(seconds > 0 for entry in facts["integers"] for seconds in entry["seconds"].values())
    for entry in facts["integers"]:
        assert entry["seconds"]["multiply and relinearise"] > entry["seconds"]["multiply lazily"]
    assert facts["forest"]["exact"] is True
    assert facts["machine"]["cores"] >= 1


def test_on_the_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = done("bench", "--quick").stdout
    for words in ("BGV, N = 8192", "BFV, N =", "trees of depth 3: fitted in", "exact", "no figures to quote"):
        assert words in shown


def test_parts_run_in_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    """A checkout with one small part, in place of this one's, which take minutes."""
    folder = tmp_path / "benchmarks"
    folder.mkdir()
    (tmp_path / "pyproject.toml").write_text("")
    (folder / "__main__.py").write_text(
        "import json, pathlib, sys\n"
        "out = pathlib.Path(sys.argv[sys.argv.index('--out') + 1])\n"
        "if 'nothing' in sys.argv: sys.exit(2)\n"
        "out.mkdir(parents=True, exist_ok=True)\n"
        "(out / 'part.json').write_text(json.dumps({'asked': sys.argv[1:]}))\n"
    )
    monkeypatch.setattr(bench, "find_checkout", lambda: tmp_path)
    facts = json.loads(done("bench", "part", "--quick", "--json", "-o", tmp_path / "out").stdout)
    assert facts["part"]["asked"][:2] == ["part", "--quick"]
    everything = json.loads(done("bench", "all", "--json", "-o", tmp_path / "out", "--force").stdout)
    assert everything["part"]["asked"] == ["--out", str(tmp_path / "out")]
    assert run("bench", "nothing", "-o", tmp_path / "out", "--force").exit_code == 2


def test_where_there_is_no_checkout(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(bench, "es", type("Elsewhere", (), {"__file__": str(tmp_path / "a" / "b" / "c.py")}))
    monkeypatch.chdir(tmp_path)
    assert "without a part for the short measurement" in the_error(run("bench", "integers"))


def test_this_checkout_is_found() -> None:
    found = bench.find_checkout()
    assert found is None or (found / "benchmarks" / "_common.py").is_file()
