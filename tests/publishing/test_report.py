"""The report: what it says, what it never says, and that it is about one key."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from published_samples import patients

import encryptedstats as es

pytestmark = pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")


@pytest.fixture
def study(owner: es.Owner, tmp_path: Path) -> tuple[list[Path], es.Ledger]:
    frame = patients(300)
    schema = es.Schema.infer(frame, target="sick")
    table = owner.encrypt(schema.table(frame))
    table.save(tmp_path / "rows.enc")
    table.crosstab("region", "sick").save(tmp_path / "region.enc")
    ledger = es.Ledger.begin(tmp_path / "ledger", owner, epsilon=2.0, rules="five")
    owner.publish(tmp_path / "region.enc", schema, ledger=ledger)
    owner.release(tmp_path / "region.enc", schema, epsilon=0.5, delta=0, ledger=ledger).save(
        tmp_path / "region.released"
    )
    return [tmp_path / name for name in ("rows.enc", "region.enc", "region.released")], ledger


def test_it_says_what_happened_and_no_names(
    owner: es.Owner, study: tuple[list[Path], es.Ledger], tmp_path: Path
) -> None:
    files, ledger = study
    es.write_report(tmp_path / "report.html", files, keys=owner, ledger=ledger, title="A <study>")
    page = (tmp_path / "report.html").read_text()
    for text in (
        "A &lt;study&gt;",
        "INSECURE: less than 128 bits",  # the ring of these tests is
        owner.fingerprint,
        "cross table of v2 and class",
        "rules five",
        "left out, min_count",
        "Laplace noise of scale 4",
        "Epsilon 0.5 of 2 is spent",
        "released with noise",
        "&rho; 0.125",
        "No file says on which machine it was; none of them could read a row",
        "one row is replaced by any other",
        ledger.head(),
        "300",
    ):
        assert text in page, text
    assert "region" not in page.replace("region.enc", "").replace("region.released", "")
    assert (tmp_path / "report.html").stat().st_mode & 0o777 == 0o600


def test_without_a_ledger_it_says_that_it_does_not_know(
    owner: es.Owner, study: tuple[list[Path], es.Ledger], tmp_path: Path
) -> None:
    es.write_report(tmp_path / "report.html", study[0], keys=owner.public_keys())
    assert "No ledger was given" in (tmp_path / "report.html").read_text()
    with pytest.raises(FileExistsError, match="exists already and was not touched"):
        es.write_report(tmp_path / "report.html", keys=owner)


def test_files_of_another_key_are_refused(
    stranger: es.Owner, study: tuple[list[Path], es.Ledger], tmp_path: Path
) -> None:
    with pytest.raises(es.KeyMismatchError, match="and the report is about key"):
        es.write_report(tmp_path / "report.html", study[0][:1], keys=stranger)


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("chromium"), reason="no browser to print with")
def test_a_browser_prints_it(owner: es.Owner, study: tuple[list[Path], es.Ledger], tmp_path: Path) -> None:
    es.write_report(tmp_path / "report.pdf", study[0], keys=owner, ledger=study[1])
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")


def test_without_a_browser_there_is_no_pdf(owner: es.Owner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(FileNotFoundError, match="a PDF is printed by a browser, and none of chromium"):
        es.write_report(tmp_path / "report.pdf", keys=owner)
    assert not (tmp_path / "report.pdf").exists()
