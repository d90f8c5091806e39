"""An owner's page for tests: a client that has come in by its address, and a table that is
encrypted quickly.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from fastapi.testclient import TestClient

import encryptedstats as es
from encryptedstats.app.desk import Desk
from encryptedstats.app.server import guard_app
from encryptedstats.storage import container
from encryptedstats.tables.questions.question import question_class

PORT = 8765
BASE = f"http://127.0.0.1:{PORT}"
PASSPHRASE = "correct horse battery"


def patients(n: int = 60) -> pd.DataFrame:
    rng = np.random.default_rng(5)
    age = rng.integers(20, 90, n)
    return pd.DataFrame(
        {
            "patient": [f"P{i:04d}" for i in range(n)],
            "age": age,
            "smoker": rng.choice(["no", "yes"], n),
            "bmi": rng.normal(27, 4, n).round(1),
            "ill": np.where(age + rng.normal(0, 20, n) > 55, "yes", "no"),
        }
    )


class Page:
    """The owner's browser, without one."""

    def __init__(self, home: Path, files: Path, connect: Any = None) -> None:
        self.desk = Desk(home, connect)
        app, self.url = guard_app(self.desk, PORT, files)
        self.client = TestClient(
            app, base_url=BASE, headers={"Origin": BASE}, follow_redirects=True
        )
        assert self.client.get(self.url).status_code == 200
        self.project = ""

    def get(self, path: str) -> str:
        answer = self.client.get(self._at(path))
        assert answer.status_code == 200, answer.text
        return str(answer.text)

    def post(self, path: str, status: int = 200, /, **form: Any) -> str:
        answer = self.client.post(self._at(path), data=form)
        assert answer.status_code == status, answer.text
        return str(answer.text)

    def begin(self, title: str = "Readmissions") -> None:
        answer = self.client.post("/projects", data={"title": title})
        self.project = answer.url.path.split("/")[2]

    def _at(self, path: str) -> str:
        return path if path.startswith("/") else f"/p/{self.project}/{path}"

    @property
    def folder(self) -> Path:
        return self.desk.projects.home / self.project

    @property
    def state(self) -> Any:
        return self.desk.projects.get(self.project).state

    def choose(self, file: Path) -> None:
        self.post("data", path=str(file))

    def ask(self) -> None:
        """Ask a question of a column and the target, so that models can be asked as well."""
        with self.desk.projects.get(self.project).changing() as state:
            state.choices.target = "ill"
        self.post("questions", question="Histogram", variable="age", by="ill")

    def decide(self, **more: str) -> None:
        self.post("columns", **more, go="on")


def answered(folder: Path, asked: dict[str, Any]) -> bytes:
    """What an honest worker gives."""
    question = question_class(asked["question"])._from_parameters(asked["params"])
    answer = es.load(folder / "table.enc").ask(question)
    return container.to_bytes(answer.to_container())


def waited(page: Page, name: str, seconds: float = 600.0) -> None:
    """Until something that is under way has ended, and well."""
    work = page.desk.work(page.desk.projects.get(page.project), name)
    assert work is not None
    assert work.finished.wait(seconds)
    assert not work.error, work.error
