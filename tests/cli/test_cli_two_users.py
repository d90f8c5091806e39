"""Owner, clinic and worker as different users of the machine, each with a folder that no other may
enter, each step a process.

Everything that the worker has is searched for the secret key's bytes and for the owner's words: its
files, its environment and its memory while it computes. The same search of the owner's process
finds them, so it would find them here too.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

import encryptedstats as es
from encryptedstats.storage import container

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not sys.platform.startswith("linux"), reason="reads /proc, which only Linux has"
    ),
    pytest.mark.skipif(
        not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can become other users"
    ),
]

OWNER, CLINIC, WORKER = 64_001, 64_002, 64_003  # nobody has these numbers
FOREST = ("forest", "trees=3", "depth=2")
# Of the owner alone: names of columns, levels and classes that nothing else in a process is called.
WORDS = (b"haemoglobin_zq", b"afflicted_zq", b"spared_zq", b"smokes_zq", b"never_zq")
MARK = b"mark-in-the-environment-of-the-party"
# Where a folder above Python may not be entered by others, an empty one takes its place, for this
# process alone, with Python in it.
IN_A_NAMESPACE = """
set -e
hidden=$1; prefix=$2; stage=$3; user=$4; shift 4
mount --bind "$prefix" "$stage"
mount -t tmpfs -o mode=755,size=1m tmpfs "$hidden"
mkdir -p "$prefix"
mount --move "$stage" "$prefix"
exec setpriv --reuid="$user" --regid="$user" --clear-groups -- "$@"
"""


@dataclass
class Hamlet:
    """A folder for each user, and a way to run the program as one of them."""

    place: Path
    hidden: Path | None  # a folder above Python that others may not enter
    folders: dict[int, Path] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.place.chmod(0o711)  # entered by all, listed by none
        shutil.copy(Path(__file__).with_name("party.py"), self.place)
        (self.place / "party.py").chmod(0o644)
        (self.place / "stage").mkdir()
        for user in (OWNER, CLINIC, WORKER):
            self.folders[user] = self.place / str(user)
            self.folders[user].mkdir(mode=0o700)
            os.chown(self.folders[user], user, user)

    def command(self, user: int, *arguments: object) -> list[str]:
        python = [sys.executable, *map(str, arguments)]
        if self.hidden is None:
            return [
                "setpriv",
                f"--reuid={user}",
                f"--regid={user}",
                "--clear-groups",
                "--",
                *python,
            ]
        inside = [
            "unshare",
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-c",
            IN_A_NAMESPACE,
            "sh",
        ]
        return [
            *inside,
            str(self.hidden),
            os.path.realpath(sys.base_prefix),
            str(self.place / "stage"),
            str(user),
            *python,
        ]

    def run(self, user: int, *arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
        """The program, as this user, in this user's folder, told nothing else."""
        command = self.command(user, "-m", "encryptedstats.cli", *arguments)
        done = subprocess.run(
            command, **self._surroundings(user), capture_output=True, text=True, check=False
        )
        assert done.returncode == code, done.stderr + done.stdout
        return done

    def found_in_memory(self, user: int, needles: dict[str, bytes], *arguments: object) -> set[str]:
        """Run the program as this user, and say which needles were in its memory."""
        reading, writing = os.pipe()
        command = self.command(user, self.place / "party.py", writing, *arguments)
        options = self._surroundings(user)
        with subprocess.Popen(
            command, **options, pass_fds=(writing,), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as party:
            os.close(writing)
            with open(reading, "rb", buffering=0) as dumped:
                found = found_in(iter(lambda: dumped.read(1 << 22), b""), needles)
            said = party.communicate()
        assert party.returncode == 0, said
        return found

    def _surroundings(self, user: int) -> dict[str, Any]:
        home = str(self.folders[user])
        # TMPDIR and the cache are in the folder as well, so that searching it misses nothing.
        own = {
            "HOME": home,
            "TMPDIR": home,
            "ENCRYPTEDSTATS_CACHE": f"{home}/.cache",
            "MARK": MARK.decode(),
        }
        return {
            "cwd": home,
            "env": {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", **own},
        }

    def send(self, name: str, sender: int, receiver: int) -> None:
        """The network between the parties."""
        source, target = self.folders[sender] / name, self.folders[receiver] / name
        if source.is_dir():
            shutil.copytree(source, target)
        else:
            shutil.copy(source, target)
        for path in (target, *target.rglob("*")):
            os.chown(path, receiver, receiver)


def found_in(parts: Iterator[bytes], needles: dict[str, bytes]) -> set[str]:
    """Which needles are in some bytes that come in parts."""
    found: set[str] = set()
    tail, longest = b"", max(map(len, needles.values()))
    for part in parts:
        data = tail + part
        found |= {name for name, needle in needles.items() if name not in found and needle in data}
        tail = data[-longest:]
    return found


@pytest.fixture(scope="module")
def hamlet() -> Iterator[Hamlet]:
    place = Path(tempfile.mkdtemp(prefix="encryptedstats-users-"))
    try:
        above = [
            folder
            for folder in Path(os.path.realpath(sys.base_prefix)).parents
            if not folder.stat().st_mode & 0o001
        ]
        found = Hamlet(place, above[-1] if above else None)
        can = subprocess.run(
            found.command(WORKER, "-c", "import encryptedstats"),
            capture_output=True,
            text=True,
            check=False,
            cwd="/",
        )
        if can.returncode:
            pytest.skip(
                f"other users cannot run this Python: {can.stderr.strip().splitlines()[-1:]}"
            )
        yield found
    finally:
        shutil.rmtree(place)


@dataclass(frozen=True)
class Story:
    """What was made, and what is looked for."""

    hamlet: Hamlet
    frame: pd.DataFrame
    needles: dict[str, bytes]
    public: dict[str, bytes]

    def fitted(self, name: str) -> Path:
        """The worker's model of a table."""
        out = self.hamlet.folders[WORKER] / f"{name}.model"
        if not out.exists():
            self.hamlet.run(WORKER, "ask", f"{name}.enc", "-o", out.name, "--by-others", *FOREST)
        return out


@pytest.fixture(scope="module")
def story(hamlet: Hamlet) -> Story:
    """The owner's and the clinic's part; the worker then has two tables and nothing else."""
    rng = np.random.default_rng(4)
    frame = pd.DataFrame(
        {"haemoglobin_zq": rng.normal(14, 2, 80).round(1), "age": rng.integers(20, 90, 80)}
    )
    frame["smokes_zq"] = rng.choice(["never_zq", "daily_zq"], 80)
    frame["ill"] = np.where(
        frame["haemoglobin_zq"] + rng.normal(0, 1, 80) < 13, "afflicted_zq", "spared_zq"
    )
    home, clinic = hamlet.folders[OWNER], hamlet.folders[CLINIC]
    for folder, name, rows in ((home, "rows.csv", frame[:50]), (clinic, "more.csv", frame[50:])):
        rows.to_csv(folder / name, index=False)
    os.chown(home / "rows.csv", OWNER, OWNER)
    os.chown(clinic / "more.csv", CLINIC, CLINIC)
    hamlet.run(
        OWNER,
        "data",
        "schema",
        "rows.csv",
        "--target",
        "ill",
        "--column",
        "age kind=continuous",
        "-o",
        "schema.json",
    )
    options = ("--folds", 2, "--by-others", *FOREST, "mnb", "counts(v0,class)")
    hamlet.run(OWNER, "plan", "schema.json", "--rows", 80, *options, "-o", "plan.json")
    hamlet.run(OWNER, "key", "make", "secret.key", "public.keys", "--plan", "plan.json")
    keys = ("--schema", "schema.json")
    hamlet.run(OWNER, "encrypt", "rows.csv", "rows.enc", *keys, "--key", "secret.key", "--folds", 2)
    hamlet.send("schema.json", OWNER, CLINIC)
    hamlet.send("public.keys", OWNER, CLINIC)
    hamlet.run(
        CLINIC,
        "encrypt",
        "more.csv",
        "more.enc",
        *keys,
        "--public-keys",
        "public.keys",
        "--folds",
        2,
    )
    hamlet.send("rows.enc", OWNER, WORKER)
    hamlet.send("more.enc", CLINIC, WORKER)
    file = container.read(home / "secret.key")
    secret = {
        f"secret key at {place}": needle for place, needle in slices(file.section("secret_key"))
    }
    words = {word.decode(): word for word in WORDS}
    public = {
        f"public key at {place}": needle for place, needle in slices(file.section("public_key"))
    }
    return Story(hamlet, frame, secret | words, public)


def slices(key: bytes, count: int = 6, length: int = 64) -> Iterator[tuple[int, bytes]]:
    """Some runs of residues from all over a key, as SEAL keeps them in memory and in files."""
    for part in range(1, count + 1):
        place = part * len(key) // (count + 1) // 8 * 8
        needle = key[place : place + length]
        assert len(set(needle)) > 16, "a key looks random"
        yield place, needle


def secrets(story: Story) -> set[str]:
    return {name for name in story.needles if name.startswith("secret key")}


def test_the_search_finds_the_key_in_the_process_and_the_files_of_its_owner(story: Story) -> None:
    home = story.hamlet.folders[OWNER]
    story.hamlet.run(WORKER, "ask", "rows.enc", "counts(v0, class)", "-o", "counts.enc")
    story.hamlet.send("counts.enc", WORKER, OWNER)
    opened = (
        "open",
        "counts.enc",
        "--key",
        "secret.key",
        "--schema",
        "schema.json",
        "-o",
        "counts.csv",
    )
    found = story.hamlet.found_in_memory(OWNER, story.needles | {"mark": MARK}, *opened)
    assert secrets(story) <= found
    assert {"mark", "haemoglobin_zq", "afflicted_zq"} <= found
    assert secrets(story) <= found_in(iter([(home / "secret.key").read_bytes()]), story.needles)
    counts = pd.read_csv(home / "counts.csv", index_col=0)
    assert int(counts.to_numpy().sum()) == 50
    assert counts["afflicted_zq"].sum() == (story.frame[:50]["ill"] == "afflicted_zq").sum()


@pytest.mark.parametrize(
    "command",
    [
        ("ask", "rows.enc", "-o", "rows.model", "--force", *FOREST),
        ("ask", "rows.enc", "crosstab(v0, v2)", "-o", "table.enc"),
    ],
    ids=lambda command: command[0],
)
def test_nothing_of_the_owner_is_in_the_memory_of_the_worker(
    story: Story, command: tuple[object, ...]
) -> None:
    found = story.hamlet.found_in_memory(
        WORKER, story.needles | story.public | {"mark": MARK}, *command
    )
    assert found & set(story.needles) == set()
    assert found == {"mark", *story.public}, "the search sees what the worker does have"


def test_nothing_of_the_owner_is_in_the_files_of_the_worker(story: Story) -> None:
    work = story.hamlet.folders[WORKER]
    story.fitted("more")
    files = [path for path in work.rglob("*") if path.is_file()]
    assert {"more.model", "table.manifest"} <= {path.name for path in files}
    assert not {"secret.key", "schema.json", "plan.json", "rows.csv", "more.csv"} & {
        path.name for path in files
    }
    for path in files:
        assert found_in(iter([path.read_bytes(), str(path).encode()]), story.needles) == set(), path
    # The clinic has the names, which it needs, and no more of the key than the worker.
    for path in (path for path in story.hamlet.folders[CLINIC].rglob("*") if path.is_file()):
        assert found_in(iter([path.read_bytes()]), story.needles) & secrets(story) == set(), path


@pytest.mark.parametrize("user", [WORKER, CLINIC])
def test_the_folder_of_the_owner_is_closed(story: Story, user: int) -> None:
    done = story.hamlet.run(
        user, "data", "info", story.hamlet.folders[OWNER] / "secret.key", code=1
    )
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert done.stderr.endswith("permission denied; check who may read and write it\n")
    assert done.stderr.count("\n") == 1


def test_the_result_is_that_of_the_clear_rows(story: Story) -> None:
    """Both tables fitted by the worker, combined, opened and scored by the owner: exact, and not by
    accident.
    """
    hamlet, home = story.hamlet, story.hamlet.folders[OWNER]
    hamlet.run(
        WORKER,
        "model",
        "combine",
        "all.model",
        *(story.fitted(name).name for name in ("rows", "more")),
        "--keys",
        "rows.enc",
    )
    hamlet.run(WORKER, "ask", "rows.enc", "-o", "folds.enc", "mnb", "--folds")
    for name in ("all.model", "folds.enc"):
        hamlet.send(name, WORKER, OWNER)
    keys = ("--key", "secret.key", "--schema", "schema.json")
    hamlet.run(OWNER, "open", "all.model", *keys, "-o", "all.opened")
    schema = es.Schema.load(home / "schema.json")
    clear = es.CompletelyRandomForest(n_trees=3, depth=2).fit(schema.table(story.frame))
    assert list(es.load(home / "all.opened").totals_) == list(clear.totals_)
    hamlet.run(OWNER, "predict", "all.opened", "rows.csv", "-o", "predicted.csv")
    predicted = pd.read_csv(home / "predicted.csv")["predicted"]
    assert predicted.tolist() == clear.predict(story.frame[:50]).tolist()
    scores = json.loads(
        hamlet.run(OWNER, "evaluate", "folds.enc", "rows.csv", *keys, "--json").stdout
    )
    table = schema.table(story.frame[:50], folds=2)
    for fold, model in enumerate(es.MultinomialNB().fit_folds(table)):
        rows = story.frame[:50][table.fold_codes == fold]
        expected = roc_auc_score(rows["ill"] == "spared_zq", model.predict_proba(rows)[:, 1])
        assert scores["folds"][fold]["auc"] == pytest.approx(expected)
    modes = {path.name: path.stat().st_mode & 0o777 for path in home.iterdir()}
    assert modes["secret.key"] == modes["all.opened"] == 0o600
