"""``demo integers``: an owner, a clinic and a worker, each with a folder; the last two are processes of their own that never hold
the secret key. Every result is compared with NumPy's.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from rich.console import Console, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

import encryptedstats as es
from encryptedstats.cli._console import fact_table, parameter_facts, parameter_rows, progress, size_text, time_text
from encryptedstats.cli._options import SchemeName
from encryptedstats.cli._stage import file_size, panel, run_process
from encryptedstats.cli.demo_parties import PUBLIC_KEYS, READINGS
from encryptedstats.crypto.engine import HEADER_BYTES
from encryptedstats.storage import container

_PARTIES: Final = "encryptedstats.cli.demo_parties"
SECRET_KEY: Final = "secret.key"
_BYTES_SHOWN: Final = 16

# The paper's appendix, and a small trial: only the owner knows who was treated, only the clinic what was measured.
APPENDIX: Final[dict[str, Any]] = {"x": 2, "y": [1, 2, 3], "z": [[1, 4, 7], [2, 5, 8], [3, 6, 9]]}
TREATED: Final = [1, 0, 1, 1, 0, 0, 1, 0, 1, 0, 1, 0]
PRESSURE: Final = [128, 151, 132, 119, 147, 158, 125, 143, 136, 162, 130, 149]

FORMULAS: Final = {
    "appendix": "x + y z' z",
    "total": "sum of pressures",
    "squares": "sum of squared pressures",
    "treated_total": "treated · pressures",
    "treated_count": "sum of treated",
}


@dataclass(frozen=True)
class Story:
    """What happened: everything the demo tells afterwards."""

    owner: es.Owner
    folders: dict[str, Path]
    seconds: dict[str, float]
    worker_seconds: dict[str, float]
    results: dict[str, Any]


def run(console: Console, scheme: SchemeName) -> dict[str, Any]:
    """Play the story and tell it; returns what happened, ready for JSON; exact if every result is what NumPy says."""
    with tempfile.TemporaryDirectory(prefix="encryptedstats-demo-") as folder:
        with progress("owner, clinic and worker are busy"):
            story = play(Path(folder), scheme)
        exact = tell(console, story, expected())
    return {
        "exact": exact,
        "results": {FORMULAS[name]: np.asarray(value).tolist() for name, value in story.results.items()},
        "seconds": {**story.seconds, "worker": sum(story.worker_seconds.values())},
        "parameters": parameter_facts(story.owner.parameters),
    }


def play(folder: Path, scheme: SchemeName = SchemeName.bgv) -> Story:
    """Let the three parties do their work, in folders of their own under ``folder``."""
    folders = {party: folder / party for party in ("owner", "clinic", "worker")}
    for place in folders.values():
        place.mkdir()
    seconds: dict[str, float] = {}
    home = folders["owner"]

    started = time.perf_counter()
    owner = es.Owner(es.Parameters.choose(security=128, max_value=1_000_000, depth=2, scheme=scheme.value))
    seconds["keys"] = time.perf_counter() - started
    owner.save(home / SECRET_KEY)
    owner.public_keys().save(home / PUBLIC_KEYS)

    started = time.perf_counter()
    encrypted = {name: owner.encrypt(value) for name, value in {**APPENDIX, "treated": TREATED}.items()}
    seconds["encrypt"] = time.perf_counter() - started
    for name, value in encrypted.items():
        value.save(home / f"{name}.enc")

    (folders["clinic"] / READINGS).write_text("".join(f"{value}\n" for value in PRESSURE))
    _send(home, folders["clinic"], PUBLIC_KEYS)
    seconds["clinic"] = run_party("clinic", folders["clinic"])["pressure"]

    _send(home, folders["worker"], PUBLIC_KEYS, *(f"{name}.enc" for name in encrypted))
    _send(folders["clinic"], folders["worker"], "pressure.enc")
    worker_seconds = run_party("worker", folders["worker"])

    _send(folders["worker"], home, *(f"{name}.result" for name in FORMULAS))
    arrived = {name: es.EncryptedArray.load(home / f"{name}.result", owner.public_keys()) for name in FORMULAS}
    started = time.perf_counter()
    results = {name: owner.decrypt(value) for name, value in arrived.items()}
    seconds["decrypt"] = time.perf_counter() - started
    return Story(owner, folders, seconds, worker_seconds, results)


def run_party(party: str, folder: Path) -> dict[str, float]:
    """Run the clinic or the worker in a process that is told its folder and nothing else."""
    seconds: dict[str, float] = run_process(f"the {party} process", ["-m", _PARTIES, party, str(folder)])
    return seconds


def expected() -> dict[str, Any]:
    """The same quantities by NumPy, on the plain numbers."""
    x, y, z = (np.array(APPENDIX[name]) for name in "xyz")
    treated, pressure = np.array(TREATED), np.array(PRESSURE)
    return {
        "appendix": x + y @ z.T @ z,
        "total": pressure.sum(),
        "squares": pressure @ pressure,
        "treated_total": treated @ pressure,
        "treated_count": treated.sum(),
    }


def _send(source: Path, target: Path, *names: str) -> None:
    """The network between the parties."""
    for name in names:
        shutil.copyfile(source / name, target / name)


# -- telling it ----------------------------------------------------------------------------------------------------


def tell(console: Console, story: Story, plain: dict[str, Any]) -> bool:
    """Print the story; returns whether every result is what NumPy says."""
    for part in (_owner_panel(story), _clinic_panel(story), _worker_panel(story)):
        console.print(part)
    same = {name: np.array_equal(story.results[name], plain[name]) for name in FORMULAS}
    console.print(_results_panel(story, plain, same))
    console.print(_seen_panel(story))
    return all(same.values())


def _owner_panel(story: Story) -> Panel:
    home, parameters = story.folders["owner"], story.owner.parameters
    shown = {"scheme", "security", "exact up to", "depth"}
    count = sum(np.size(value) for value in (*APPENDIX.values(), TREATED))
    return panel(
        "1  OWNER chooses parameters, makes keys, encrypts",
        "magenta",
        fact_table(
            [
                *(row for row in parameter_rows(parameters) if row[0] in shown),
                (
                    "keys",
                    f"made in {time_text(story.seconds['keys'])}: secret {file_size(home / SECRET_KEY)}, "
                    f"public {file_size(home / PUBLIC_KEYS)}",
                ),
                ("encrypts", "x = 2,  y = (1, 2, 3),  z the 3 x 3 matrix of 1 to 9 (the paper's appendix)"),
                ("", f"treated = {' '.join(map(str, TREATED))}  (who got the drug)"),
                ("took", f"{_each(story.seconds['encrypt'], count)}, {size_text(parameters.ciphertext_bytes())} each"),
            ]
        ),
    )


def _clinic_panel(story: Story) -> Panel:
    return panel(
        "2  CLINIC, a process of its own, encrypts its readings with the public keys",
        "yellow",
        fact_table(
            [
                ("runs", _command_text("clinic")),
                ("encrypts", f"pressure = {' '.join(map(str, PRESSURE))}"),
                ("took", f"{_each(story.seconds['clinic'], len(PRESSURE))}; it cannot open them again"),
            ]
        ),
    )


def _worker_panel(story: Story) -> Panel:
    pressure = es.EncryptedArray.load(story.folders["worker"] / "pressure.enc", story.owner.public_keys())
    times: list[tuple[str, RenderableType]] = [
        (formula, time_text(story.worker_seconds[name])) for name, formula in FORMULAS.items()
    ]
    return panel(
        "3  WORKER, a process of its own, computes on what it cannot read",
        "blue",
        fact_table(
            [
                ("runs", _command_text("worker")),
                (
                    "learns",
                    f"how many numbers, a public bound of each (±{pressure.bound} for a pressure), the formulas",
                ),
                ("computes", fact_table(times)),
            ]
        ),
    )


def _command_text(party: str) -> str:
    return f"python -m {_PARTIES} {party} FOLDER"


def _results_panel(story: Story, plain: dict[str, Any], same: dict[str, bool]) -> Panel:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("")
    for title in ("decrypted", "NumPy, in the clear"):
        table.add_column(title, justify="right")
    table.add_column("")
    for name, formula in FORMULAS.items():
        verdict = Text("exact", style="green") if same[name] else Text("DIFFERS", style="bold red")
        table.add_row(formula, _numbers(story.results[name]), _numbers(plain[name]), verdict)
    return panel(
        f"4  OWNER opens the results, in {time_text(story.seconds['decrypt'])}",
        "magenta",
        table,
        Text(),
        Text(_finding(story.results) if all(same.values()) else "Wrong sums: nothing follows from them."),
    )


def _finding(results: dict[str, Any]) -> str:
    """What the trial found: a few divisions by the owner, who alone has the exact sums."""
    n, total, squares = len(PRESSURE), int(results["total"]), int(results["squares"])
    count, treated = int(results["treated_count"]), int(results["treated_total"])
    deviation = ((n * squares - total**2) / (n * (n - 1))) ** 0.5
    effect = treated / count - (total - treated) / (n - count)
    return f"So: mean {total / n:.1f} mmHg, standard deviation {deviation:.1f}, treated minus control {effect:+.1f}."


def _seen_panel(story: Story) -> Panel:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("")
    table.add_column("held", no_wrap=True)
    table.add_column("size", justify="right", no_wrap=True)
    table.add_column("and could read it?", no_wrap=True)
    for party, folder in story.folders.items():
        for i, (names, size, readable) in enumerate(_seen(party, folder)):
            table.add_row(party.upper() if i == 0 else "", names, size_text(size), readable)
    first, second = (_ciphertext_bytes(story, index) for index in (0, 1))
    return panel(
        "What each party saw",
        "cyan",
        table,
        Text(),
        Text("Two treated patients, both a 1 before encryption, as the worker sees them:", style="dim"),
        Text(first),
        Text(second),
    )


def _seen(party: str, folder: Path) -> list[tuple[str, int, Text]]:
    """The files of a folder in groups of one nature: their names, their bytes, and whether this party can read them."""
    opened = Text("yes, with the secret key") if party == "owner" else Text("no", style="green")
    natures = {
        SECRET_KEY: Text("the secret key: nobody else has it", style="red"),
        PUBLIC_KEYS: Text("public, opens nothing"),
        READINGS: Text("its own readings"),
        ".enc": opened,
        ".result": opened,
    }
    rows = []
    for ending, readable in natures.items():
        files = sorted(path for path in folder.iterdir() if path.name.endswith(ending))
        if files:
            several = f"{' '.join(path.stem for path in files)}" if ending == ".enc" else f"{len(files)} results"
            names = files[0].name if len(files) == 1 else several
            rows.append((names, sum(path.stat().st_size for path in files), readable))
    return rows


def _ciphertext_bytes(story: Story, index: int) -> str:
    """The first residues, in hexadecimal, of the ``index``-th patient with a 1, as the worker sees them."""
    data = container.read(story.folders["worker"] / "treated.enc").section("ciphertexts")
    patient = [i for i, value in enumerate(TREATED) if value][index]
    start = patient * (len(data) // len(TREATED)) + HEADER_BYTES
    return data[start : start + _BYTES_SHOWN].hex(" ", 2) + " ..."


def _each(seconds: float, count: int) -> str:
    return f"{count} numbers in {time_text(seconds)}, {time_text(seconds / count)} each"


def _numbers(value: Any) -> str:
    return " ".join(f"{number:,}" for number in np.atleast_1d(value).tolist())
