"""One table for all tests of the page, and pages that are at a given step: made once, and copied
for each test.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from multiprocessing import forkserver
from pathlib import Path
from types import SimpleNamespace

import pytest
from desk_helpers import PASSPHRASE, Page, answered, patients, waited
from forked_tasks import ForkedTask

from encryptedstats.app import work

#: Modules whose tasks run as users run them.
REAL = {"test_encryption_kills", "test_tasks"}


@pytest.fixture(scope="session")
def forking() -> Iterator[None]:
    """End what forks with the tests, which are measured with what they have waited for."""
    yield
    forkserver._forkserver._stop()  # type: ignore[attr-defined]  # as the tests of Python do


@pytest.fixture(autouse=True)
def forked_tasks(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, forking: None
) -> None:
    """Fork the processes of tasks where the system allows it."""
    if sys.platform == "linux" and request.module.__name__ not in REAL:
        made = SimpleNamespace(Popen=ForkedTask, PIPE=subprocess.PIPE)
        monkeypatch.setattr(work, "subprocess", made)


@pytest.fixture(scope="session")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("files") / "patients.csv"
    patients().to_csv(file, index=False)
    return file


@pytest.fixture
def page(tmp_path: Path, rows: Path) -> Page:
    made = Page(tmp_path / "home", rows.parent)
    made.begin()
    return made


@pytest.fixture(scope="session")
def at_step(tmp_path_factory: pytest.TempPathFactory, rows: Path) -> Callable[[str, Path], Page]:
    """A page whose project is planned, has a key, is encrypted, or has its result, in a folder of
    its own.
    """
    folder = tmp_path_factory.mktemp("steps")
    made = Page(folder / "home", rows.parent)
    made.begin()
    made.choose(rows)
    made.ask()
    made.decide()

    def planned() -> None:
        made.get("plan")

    def keyed() -> None:
        made.post("key", passphrase=PASSPHRASE, again=PASSPHRASE)

    def sealed() -> None:
        made.post("encrypt")
        waited(made, "encrypt")

    def here() -> None:
        made.post("send", to="folder", folder=str(folder / "drive"))
        asked, params = made.state.asked[0].id, {"variable": "v0", "by": "class"}
        content = answered(folder / "drive", {"question": "Histogram", "params": params})
        (folder / "drive" / f"{asked}.enc").write_bytes(content)
        waited(made, "send")

    steps = {"planned": planned, "keyed": keyed, "sealed": sealed, "here": here}

    def copied(step: str, where: Path) -> Page:
        for name in list(steps)[: list(steps).index(step) + 1]:
            if not (folder / name).exists():
                steps[name]()
                shutil.copytree(made.desk.projects.home, folder / name)
        shutil.copytree(folder / step, where / "home")
        page = Page(where / "home", rows.parent)
        page.project = made.project
        if step != "planned":
            page.post("key/unlock", passphrase=PASSPHRASE)
        return page

    return copied


@pytest.fixture
def planned(at_step: Callable[[str, Path], Page], tmp_path: Path) -> Page:
    """With a file, columns, a question and its plan."""
    return at_step("planned", tmp_path)


@pytest.fixture
def keyed(at_step: Callable[[str, Path], Page], tmp_path: Path) -> Page:
    """And a key, which is unlocked."""
    return at_step("keyed", tmp_path)


@pytest.fixture
def sealed(at_step: Callable[[str, Path], Page], tmp_path: Path) -> Page:
    """And the table encrypted."""
    return at_step("sealed", tmp_path)


@pytest.fixture
def here(at_step: Callable[[str, Path], Page], tmp_path: Path) -> Page:
    """And its result is here, and can be opened."""
    return at_step("here", tmp_path)
