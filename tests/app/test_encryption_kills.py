"""The page's program is killed while it encrypts, and goes on when it is started again."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from desk_helpers import PASSPHRASE, Page, answered, waited

import encryptedstats as es
from encryptedstats.app import sending
from encryptedstats.app.steps.send import UnfinishedError, take_result
from encryptedstats.tables.encryption import DRAFT
from encryptedstats.tables.manifest import MANIFEST

SECONDS = 600.0
#: Runs a task as the page does, in a child that never ends by itself, and prints its process
#: number.
PARENT = """
import subprocess, sys
from pathlib import Path
from encryptedstats.app import tasks, work
start = subprocess.Popen.__init__
def start_and_print(self, *args, **options):
    start(self, *args, **options)
    print(self.pid, flush=True)
subprocess.Popen.__init__ = start_and_print
work.CHILD = (
    sys.executable, "-c",
    "import sys, time; from encryptedstats.app.child import end_with_parent; "
    "sys.stdin.buffer.readline(); end_with_parent(0); time.sleep(600)",
)
place = Path("nowhere")
work.run_task(tasks.EncryptTask(
    key=place, passphrase="x", schema_file=place, rows=place, out=place))
"""


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def has_ended(pid: int) -> bool:
    until = time.monotonic() + SECONDS
    while is_alive(pid) and time.monotonic() < until:
        time.sleep(0.05)
    return not is_alive(pid)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks at processes in /proc")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_task_ends_with_the_program_that_started_it(how: signal.Signals) -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    try:
        assert is_alive(child)
        parent.send_signal(how)
        parent.wait(SECONDS)
        assert has_ended(child)
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()
        if is_alive(child):
            os.kill(child, signal.SIGKILL)


def forget_that_it_was_sealed(page: Page) -> None:
    """Undo the last thing that encrypting does, as if the program was killed just before."""
    with page.desk.projects.get(page.project).changing() as state:
        state.sealed = None


def encrypt_again(page: Page, files: Path) -> Page:
    again = Page(page.desk.projects.home, files)
    again.project = page.project
    again.post("key/unlock", passphrase=PASSPHRASE)
    again.post("encrypt")
    waited(again, "encrypt")
    return again


def test_a_finished_table_is_adopted_after_a_restart(sealed: Page, rows: Path) -> None:
    before, manifest = sealed.state.sealed, sealed.folder / "table.enc" / MANIFEST
    content = manifest.read_bytes()
    forget_that_it_was_sealed(sealed)
    again = encrypt_again(sealed, rows.parent)
    assert again.state.sealed == before
    assert manifest.read_bytes() == content  # nothing was encrypted anew


def test_a_finished_table_of_another_key_is_made_anew(sealed: Page, rows: Path) -> None:
    schema = es.Schema.load(sealed.folder / "schema.json")
    stranger = es.Owner(es.load(sealed.folder / "table.enc").parameters)
    shutil.rmtree(sealed.folder / "table.enc")
    stranger.encrypt_file(rows, schema, sealed.folder / "table.enc")
    forget_that_it_was_sealed(sealed)
    again = encrypt_again(sealed, rows.parent)
    assert es.load(again.folder / "table.enc").key_id == again.state.key.key_id


def test_a_finished_table_of_other_rows_is_made_anew(
    sealed: Page, rows: Path, tmp_path: Path
) -> None:
    owner = es.Owner.load(sealed.folder / "secret.key", PASSPHRASE)
    schema = es.Schema.load(sealed.folder / "schema.json")
    fewer = tmp_path / "fewer.csv"
    fewer.write_text("".join(rows.read_text().splitlines(keepends=True)[:-1]))
    owner.encrypt_file(fewer, schema, sealed.folder / "table.enc", overwrite=True)
    assert es.load(sealed.folder / "table.enc").n_rows == 59
    forget_that_it_was_sealed(sealed)
    again = encrypt_again(sealed, rows.parent)
    assert again.state.sealed.rows == es.load(again.folder / "table.enc").n_rows == 60


def test_a_draft_is_gone_on_with(keyed: Page, rows: Path) -> None:
    keyed.post("encrypt")
    keyed.post("encrypt/stop")
    work = keyed.desk.work(keyed.desk.projects.get(keyed.project), "encrypt")
    assert work is not None
    assert work.finished.wait(SECONDS)
    again = encrypt_again(keyed, rows.parent)
    assert again.state.sealed.rows == 60
    assert not (again.folder / "table.enc" / DRAFT).exists()


# -- results that are still being copied
# ---------------------------------------------------------------------------------


def answer_of(page: Page, drive: Path) -> bytes:
    page.post("send", to="folder", folder=str(drive))
    return answered(drive, {"question": "Histogram", "params": {"variable": "v0", "by": "class"}})


@pytest.mark.parametrize("share", [0.0, 0.5, 0.999])
def test_half_a_result_waits_in_the_folder_until_it_is_whole(
    sealed: Page, tmp_path: Path, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "_BETWEEN", 0.05)
    content = answer_of(sealed, tmp_path / "drive")
    asked = sealed.state.asked[0]
    file = tmp_path / "drive" / f"{asked.id}.enc"
    file.write_bytes(content[: int(share * len(content))])
    work = sealed.desk.work(sealed.desk.projects.get(sealed.project), "send")
    assert work is not None
    assert not work.finished.wait(0.5)
    assert asked.state != "here"
    file.write_bytes(content)
    waited(sealed, "send")
    assert asked.state == "here"
    assert "does not open" not in sealed.get("results")


def test_half_a_result_is_refused_and_taken_when_it_is_whole(sealed: Page, tmp_path: Path) -> None:
    content = answer_of(sealed, tmp_path / "drive")
    sealed.post("send/stop")
    asked, project = sealed.state.asked[0], sealed.desk.projects.get(sealed.project)
    file = tmp_path / "copied.enc"
    file.write_bytes(content[:-1])
    with pytest.raises(UnfinishedError) as refused:
        take_result(project, asked, file)
    assert [cure.action for cure in refused.value.cures] == ["take again"]
    sealed.post(f"results/{asked.id}/file", 422, path=str(file))
    assert not project.result_file(asked).exists()
    file.write_bytes(content)
    sealed.post(f"results/{asked.id}/file", path=str(file))
    assert project.result_file(asked).read_bytes() == content


def test_a_result_of_another_key_is_not_taken(sealed: Page, rows: Path, tmp_path: Path) -> None:
    schema, table = es.Schema.load(sealed.folder / "schema.json"), tmp_path / "drive" / "table.enc"
    es.Owner(es.load(sealed.folder / "table.enc").parameters).encrypt_file(rows, schema, table)
    file = tmp_path / "foreign.enc"
    file.write_bytes(
        answered(
            tmp_path / "drive",
            {"question": "Histogram", "params": {"variable": "v0", "by": "class"}},
        )
    )
    project = sealed.desk.projects.get(sealed.project)
    with pytest.raises(es.KeyMismatchError):
        take_result(project, sealed.state.asked[0], file)
    assert not project.result_file(sealed.state.asked[0]).exists()
