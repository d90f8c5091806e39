"""The report: what it says, what it never says, and that it is about one key."""

from __future__ import annotations

import hashlib
import re
import shutil
from pathlib import Path

import pytest
from published_samples import patients

import encryptedstats as es
from encryptedstats.publishing.opening import record_opening
from error_codes import error

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
        "left out, suppression",
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


def test_it_says_what_epsilon_does_not_cover_exact_openings_first(
    owner: es.Owner, study: tuple[list[Path], es.Ledger], tmp_path: Path
) -> None:
    """An exact table beside a release of the same rows: "3 of 3 epsilon spent" alone
    would hide it.
    """
    files, ledger = study
    record_opening(files[1], owner, ledger)
    exact = owner.open(files[1])
    assert exact is not None
    es.MultinomialNB().fit(es.Schema.infer(patients(40), target="sick").table(patients(40))).save(
        tmp_path / "bayes.opened"
    )
    es.write_report(
        tmp_path / "report.html", [*files, tmp_path / "bayes.opened"], keys=owner, ledger=ledger
    )
    page = (tmp_path / "report.html").read_text()
    uncovered = page[page.index("It does not cover") :]
    first, second, third, fourth = (
        uncovered.index("1 result of the same rows, opened exactly (entry 3 of the ledger)"),
        uncovered.index(
            "1 result of the same rows, published by rules without noise (entry 1 of the ledger)"
        ),
        uncovered.index("the exact numbers in bayes.opened"),
        uncovered.index("bins, levels, classes and bounds"),
    )
    assert first < second < third < fourth
    assert uncovered.index("<li>") + len("<li>") == first
    assert "the exact numbers in region.released" not in uncovered
    assert "<b>1</b><span>opened exactly</span>" in page
    assert "epsilon of noisy results only" in page


def test_hashes_of_files_with_exact_totals_are_not_told(owner: es.Owner, tmp_path: Path) -> None:
    """Who can guess the totals could write the same file, and compare."""
    frame = patients(40)
    schema = es.Schema.infer(frame, target="sick")
    files = [tmp_path / "bayes.opened", tmp_path / "sex.enc"]
    es.MultinomialNB().fit(schema.table(frame)).save(files[0])
    owner.encrypt(schema.table(frame)).counts("sex").save(files[1])
    es.write_report(tmp_path / "report.html", files, keys=owner)
    page = (tmp_path / "report.html").read_text()
    hashes = [hashlib.sha256(file.read_bytes()).hexdigest()[:16] for file in files]
    assert [one in page for one in hashes] == [False, True]


def test_exact_openings_are_told_where_nothing_was_released(
    owner: es.Owner, tmp_path: Path
) -> None:
    frame = patients(287)
    table = owner.encrypt(es.Schema.infer(frame, target="sick").table(frame))
    table.crosstab("region", "sick").save(tmp_path / "region.enc")
    ledger = es.Ledger.begin(tmp_path / "ledger", owner, relation="add")
    record_opening(tmp_path / "region.enc", owner, ledger)
    es.write_report(tmp_path / "report.html", keys=owner, ledger=ledger)
    page = (tmp_path / "report.html").read_text()
    assert "1 result without noise" in page
    assert not re.search(r"\b287\b", page)  # the number of rows is not public in this ledger


@pytest.mark.parametrize("relation", ["add", "replace"])
def test_the_number_of_rows_is_not_told_where_it_is_not_public(
    owner: es.Owner, tmp_path: Path, relation: str
) -> None:
    """Table, results and ledger all know it: under "add" one row more or less would be seen."""
    frame = patients(287)
    schema = es.Schema.infer(frame, target="sick")
    table = owner.encrypt(schema.table(frame))
    table.save(tmp_path / "rows.enc")
    table.crosstab("region", "sick").save(tmp_path / "region.enc")
    ledger = es.Ledger.begin(tmp_path / "ledger", owner, relation=relation)
    owner.release(tmp_path / "region.enc", schema, epsilon=0.01, ledger=ledger)
    es.write_report(
        tmp_path / "report.html",
        [tmp_path / "rows.enc", tmp_path / "region.enc"],
        keys=owner,
        ledger=ledger,
    )
    page = (tmp_path / "report.html").read_text()
    assert (">287<" in page) is (relation == "replace")
    assert ("not public<" in page) is (relation == "add")


def test_without_a_ledger_it_says_that_it_does_not_know(
    owner: es.Owner, study: tuple[list[Path], es.Ledger], tmp_path: Path
) -> None:
    es.write_report(tmp_path / "report.html", study[0], keys=owner.public_keys())
    assert "No ledger was given" in (tmp_path / "report.html").read_text()
    with pytest.raises(FileExistsError, check=error("replace")):
        es.write_report(tmp_path / "report.html", keys=owner)


def test_files_of_another_key_are_refused(
    stranger: es.Owner, study: tuple[list[Path], es.Ledger], tmp_path: Path
) -> None:
    with pytest.raises(es.KeyMismatchError, check=error("other-key")):
        es.write_report(tmp_path / "report.html", study[0][:1], keys=stranger)


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("chromium"), reason="no browser to print with")
def test_a_browser_prints_it(
    owner: es.Owner, study: tuple[list[Path], es.Ledger], tmp_path: Path
) -> None:
    es.write_report(tmp_path / "report.pdf", study[0], keys=owner, ledger=study[1])
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")


def test_without_a_browser_there_is_no_pdf(
    owner: es.Owner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(
        FileNotFoundError, match="a PDF is printed by a browser, and none of chromium"
    ):
        es.write_report(tmp_path / "report.pdf", keys=owner)
    assert not (tmp_path / "report.pdf").exists()
