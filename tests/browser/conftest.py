"""An owner, a worker, and Debian's Chromium."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from programs import PICTURES, Owner, Service, patients
from tabs import HIDE_UNTIL_READY, WIDE, Tab

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(item.path).parent == Path(__file__).parent:
            item.add_marker("browser")
            if CHROMIUM is None:
                item.add_marker(
                    pytest.mark.skip(
                        reason="there is no chromium here: make test-browser installs it"
                    )
                )


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return {"ENCRYPTEDSTATS_CACHE": str(tmp_path_factory.mktemp("cache")), "COLUMNS": "400"}


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """Where all of it lies; for pictures, somewhere that looks like a place."""
    if not PICTURES:
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="hospital-") as folder:
        yield Path(folder)


@pytest.fixture
def owner(place: Path, environment: dict[str, str]) -> Iterator[Owner]:
    files = place / "registry"
    files.mkdir()
    patients(400).to_csv(files / "patients-2026.csv", index=False)
    patients(120, seed=8).to_csv(files / "new-patients.csv", index=False)
    made = Owner(place / "projects", files, environment)
    yield made
    made.program.kill()


@pytest.fixture
def service(place: Path, environment: dict[str, str]) -> Iterator[Service]:
    made = Service(place / "storage", environment)
    yield made
    made.kill()


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        new_context = browser.new_context

        def new_patient_context(**options: Any) -> Any:
            context = new_context(**options)
            context.add_init_script(HIDE_UNTIL_READY)
            return context

        browser.new_context = new_patient_context
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def context(program: Owner, chromium: Any) -> Any:
    """A browser that has entered the program of a module by its address."""
    made = chromium.new_context(viewport=WIDE)
    page = made.new_page()
    page.goto(program.start())
    page.wait_for_url("**/")
    made.home = page.url
    page.close()
    return made


@pytest.fixture
def tab(context: Any) -> Iterator[Tab]:
    made = Tab(context)
    made.page.goto(context.home)
    yield made
    made.page.close()
