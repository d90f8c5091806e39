"""What the tests of studies share: three hospitals with few rows, a worker, a receiver, and
parameters that cost nothing.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import encryptedstats as es
from encryptedstats.tables.encrypted_table import EncryptedTable

SITES = ("north", "south", "west")
N = 30
FOREST = es.CompletelyRandomForest(n_trees=3, depth=2, random_state=1)
CLASSES = ("no", "yes")


def frame(seed: int, n: int = N) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    ill = rng.integers(0, 2, n)
    return pd.DataFrame(
        {
            "age": rng.normal(50, 10, n) + 9 * ill,
            "sex": rng.choice(["f", "m"], n),
            "ill": np.array(CLASSES)[ill],
        }
    )


FRAMES = {site: frame(number) for number, site in enumerate(SITES)}
TOGETHER = pd.concat(FRAMES.values(), ignore_index=True)
SCHEMA = es.Schema.infer(frame(99, 300), target="ill", bins=3, classes=CLASSES)


@lru_cache(maxsize=1)
def parameters() -> es.Parameters:
    """1024 slots, exact up to a million: no secret is safe under them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", es.InsecureParametersWarning)
        small = es.Parameters.from_bits("bgv", 1024, 1 << 20, (52,) * 6, allow_insecure=True)
        return replace(small, kept_primes=5)


@dataclass
class World:
    """A study in a folder, and all who take part in it, each with files of their own."""

    folder: Path
    created: es.Study
    address: str = ""

    @property
    def url(self) -> str:
        return self.address or str(self.folder / "shared")

    @property
    def key(self) -> Path | None:
        return None if self.created.document.key.kind == "escrow" else self.folder / "registry.key"

    def identity(self, name: str) -> Path:
        return self.folder / f"{name}.id"

    def as_(self, name: str) -> es.Study:
        """The party as after a restart: nothing but its files."""
        return es.Study(self.url, self.identity(name))

    def join_all(self) -> World:
        for name, code in self.created.invitations.items():
            es.Study.join(self.url, code, self.identity(name))
        return self

    def with_rows(self, rows: Mapping[str, Any] = FRAMES) -> World:
        self.join_all()
        self.as_("registry").keygen(self.key)
        for site, data in rows.items():
            self.as_(site).add(data)
        return self

    def steps(self) -> list[tuple[str, str]]:
        return es.Study(self.url).status().next

    def take(self, who: str, what: str) -> dict[str, Any]:
        """What the status says that a party has to do."""
        party = self.as_(who)
        if what == "open":
            return party.open(self.key)
        actions: dict[str, Callable[[], Any]] = {
            "keygen": lambda: party.keygen(self.key if who == "registry" else None),
            "add": lambda: party.add(FRAMES[who]),
            "share": party.share,
            "fit": party.fit,
        }
        actions[what]()
        return {}

    def run(self, until: Callable[[], bool] = lambda: False) -> dict[str, Any]:
        """Everybody does what is due, until nothing is, or something holds."""
        found: dict[str, Any] = {}
        for _ in range(30):
            todo = self.steps()
            if not todo or until():
                return found
            for who, what in todo:
                if until():
                    return found
                found |= self.take(who, what)
        raise AssertionError(f"it does not end: {self.steps()}")


def bring_forged(party: es.Study, forged: EncryptedTable, kind: str = "rows") -> None:
    """Bring encrypted rows that the library would not have made."""
    staged = party._staging_place() / "forged"
    forged.save(staged)
    party._announce_rows(kind, staged, party.state())


def copied(made: World, folder: Path) -> World:
    """The same study, and everybody's files, at another place."""
    shutil.copytree(made.folder, folder / "copy")
    return World(folder / "copy", made.created)


def world(folder: Path, address: str = "", **options: Any) -> World:
    """A study that nobody has joined yet, in a folder or at an address."""
    given = {
        "schema": SCHEMA,
        "questions": {"forest": FOREST},
        "n_rows": 1000,
        "sites": SITES,
        "worker": "centre",
    }
    given |= {"receiver": "registry", "parameters": parameters(), **options}
    folder.mkdir(exist_ok=True)
    return World(folder, es.Study.create(address or folder / "shared", **given), address)


def killed_at(write: int, after: bool, action: Callable[[], Any]) -> bool:
    """Do it in a process of its own, which is killed at the n-th file that is put in its place,
    before or after; whether it was.
    """
    child = os.fork()
    if child == 0:
        count = 0

        def deadly(put: Callable[..., None]) -> Callable[..., None]:
            def putting(*args: Any, **options: Any) -> None:
                nonlocal count
                count += 1
                if count == write and not after:
                    os.kill(os.getpid(), signal.SIGKILL)
                put(*args, **options)
                if count == write:
                    os.kill(os.getpid(), signal.SIGKILL)

            return putting

        code = 0
        try:
            os.link, os.replace, os.rename = deadly(os.link), deadly(os.replace), deadly(os.rename)
            action()
        except BaseException:
            traceback.print_exc()
            code = 1
        sys.stderr.flush()
        os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0
    return False
