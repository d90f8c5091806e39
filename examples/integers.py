"""A trial whose two halves nobody puts together in the clear: ``python examples/integers.py``, a
few seconds.

The owner knows who was treated, the clinic what was measured, and a worker computes sums and
products of both. Each has a folder. Clinic and worker are processes of their own, which never hold
the secret key. Every result is held against NumPy's. The first formula is that of the appendix of
the paper.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import encryptedstats as es
from encryptedstats.storage import container
from encryptedstats.words import size_text

SECRET: dict[str, Any] = {
    "x": 2,
    "y": [1, 2, 3],
    "z": [[1, 4, 7], [2, 5, 8], [3, 6, 9]],
    "treated": [1, 0, 1, 1, 0, 0, 1, 0, 1, 0, 1, 0],
}
PRESSURE = [128, 151, 132, 119, 147, 158, 125, 143, 136, 162, 130, 149]


def formulas(x: Any, y: Any, z: Any, treated: Any, pressure: Any) -> dict[str, Any]:
    """What is computed, of encrypted numbers and of plain ones alike."""
    return {
        "x + y z' z": x + y @ z.T @ z,
        "sum of pressures": pressure.sum(),
        "sum of squared pressures": pressure @ pressure,
        "treated . pressures": treated @ pressure,
        "sum of treated": treated.sum(),
    }


def clinic(folder: Path) -> None:
    """Encrypt the readings: the public keys are enough for it."""
    keys = es.PublicKeys.load(folder / "public.keys")
    keys.encrypt(np.loadtxt(folder / "readings.csv", dtype=np.int64)).save(folder / "pressure.enc")


def worker(folder: Path) -> None:
    """Compute on what nobody here can read, and leave encrypted results."""
    keys = es.PublicKeys.load(folder / "public.keys")
    numbers = {
        name: es.EncryptedArray.load(folder / f"{name}.enc", keys) for name in (*SECRET, "pressure")
    }
    for number, result in enumerate(formulas(**numbers).values()):
        result.save(folder / f"{number}.result")


def owner(folder: Path, scheme: Any) -> bool:
    """Make keys, encrypt, let the others work, open what comes back; whether it is all exact."""
    home, ward, work = (folder / name for name in ("owner", "clinic", "worker"))
    for place in (home, ward, work):
        place.mkdir(parents=True)
    parameters = es.Parameters.choose(security=128, max_value=1_000_000, depth=2, scheme=scheme)
    keys = es.Owner(parameters)
    keys.save(home / "secret.key")
    keys.public_keys().save(home / "public.keys")
    for name, value in SECRET.items():
        keys.encrypt(value).save(home / f"{name}.enc")
        send(home, work, f"{name}.enc")
    print(
        f"OWNER   makes keys and encrypts {', '.join(SECRET)}: {parameters.scheme.upper()}, "
        f"{parameters.security} bits"
    )

    (ward / "readings.csv").write_text("".join(f"{value}\n" for value in PRESSURE))
    send(home, ward, "public.keys")
    run("clinic", ward)
    print(
        f"CLINIC  encrypts {len(PRESSURE)} pressures with the public keys; it cannot open them "
        "again"
    )

    send(home, work, "public.keys")
    send(ward, work, "pressure.enc")
    run("worker", work)
    size = size_text(sum(path.stat().st_size for path in work.iterdir()))
    print(f"WORKER  computes on {size} that it cannot read\n")

    plain = formulas(
        **{name: np.array(value) for name, value in {**SECRET, "pressure": PRESSURE}.items()}
    )
    found, exact = {}, True
    for number, (formula, expected) in enumerate(plain.items()):
        send(work, home, f"{number}.result")
        found[formula] = keys.open(
            es.EncryptedArray.load(home / f"{number}.result", keys.public_keys())
        )
        same = bool(np.array_equal(found[formula], expected))
        exact &= same
        print(
            f"{formula:<25} {found[formula]!s:<16} NumPy: {expected!s:<16} "
            f"{'exact' if same else 'DIFFERS'}"
        )
    if exact:
        print(f"\nSo: {finding(*map(int, list(found.values())[1:]))}")
    print("\nTwo treated patients, both a 1 before encryption, as the worker saw them:")
    data = container.read(work / "treated.enc").section("ciphertexts")
    for patient in (0, 2):
        start = (
            patient * len(data) // len(SECRET["treated"]) + 128
        )  # behind the header of a ciphertext
        print(f"  {data[start : start + 24].hex(' ', 2)} ...")
    return exact


def finding(total: int, squares: int, treated: int, count: int) -> str:
    """What the trial found: a few divisions by the owner, who alone has the exact sums."""
    n = len(PRESSURE)
    deviation = ((n * squares - total**2) / (n * (n - 1))) ** 0.5
    effect = treated / count - (total - treated) / (n - count)
    return (
        f"mean {total / n:.1f} mmHg, standard deviation {deviation:.1f}, treated minus control "
        f"{effect:+.1f}."
    )


def send(source: Path, target: Path, name: str) -> None:
    """The network between the parties."""
    shutil.copyfile(source / name, target / name)


def run(party: str, folder: Path) -> None:
    """Let a party work, in a process that is told its folder and nothing else."""
    done = subprocess.run(
        [sys.executable, __file__, party, str(folder)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        sys.exit(
            f"the {party} failed: {(done.stderr.strip().splitlines() or ['it said nothing'])[-1]}"
        )


def main(arguments: list[str] | None = None) -> int:
    """Be the owner, or the party that was named; 0 if all went well."""
    parser = argparse.ArgumentParser(
        description="Sums and products of the numbers of an owner and of a clinic."
    )
    parser.add_argument("party", nargs="?", choices=["owner", "clinic", "worker"], default="owner")
    parser.add_argument(
        "folder",
        nargs="?",
        type=Path,
        help="of the party; the owner's is kept there, with all of them",
    )
    parser.add_argument("--scheme", choices=["bgv", "bfv"], default="bgv")
    options = parser.parse_args(arguments)
    if options.party != "owner":
        {"clinic": clinic, "worker": worker}[options.party](options.folder)
        return 0
    if options.folder is not None and (options.folder / "owner").exists():
        parser.error(f"{options.folder} was played in before: name another folder")
    with tempfile.TemporaryDirectory(prefix="encryptedstats-") as place:
        return 0 if owner(options.folder or Path(place), options.scheme) else 1


if __name__ == "__main__":
    sys.exit(main())
