"""Build the source package and the wheel for this machine twice from the same commit, and fail
unless both have the same bytes: ``make release``.

What is built from lies in a fresh clone, so nothing that is not committed gets in. Times in the
archives are that of the commit. ``dist/SHA256SUMS`` has the hashes of all that a release has.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "dist"


def main() -> None:
    """Build twice, compare, and write the packages with their hashes."""
    if run("git", "status", "--porcelain"):
        sys.exit("commit first: a release is built from a commit")
    commit, moment = run("git", "log", "-1", "--format=%H %ct").split()
    with tempfile.TemporaryDirectory() as place:
        source = Path(place) / "source"
        builds = [build(source, Path(place) / name, commit, int(moment)) for name in ("a", "b")]
        hashes = [{path.name: sha256(path) for path in files} for files in builds]
        if hashes[0] != hashes[1]:
            differing = sorted(name for name in hashes[0] if hashes[0][name] != hashes[1].get(name))
            sys.exit(f"two builds of one commit differ: {', '.join(differing)}")
        FOLDER.mkdir(exist_ok=True)
        for path in builds[0]:
            (FOLDER / path.name).write_bytes(path.read_bytes())
    sums = [
        f"{sha256(path)}  {path.name}"
        for path in sorted(FOLDER.iterdir())
        if path.name != "SHA256SUMS"
    ]
    (FOLDER / "SHA256SUMS").write_text("\n".join(sums) + "\n")
    print("\n".join(sums))


def build(source: Path, out: Path, commit: str, moment: int) -> list[Path]:
    """Build both packages from a clone, always at the same path, which compilers write down."""
    run("rm", "-rf", str(source))
    run("git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(source))
    run("git", "-C", str(source), "checkout", "--quiet", "--detach", commit)
    # Debugging symbols name the folder that is built in, which is another one each time.
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(moment), "CFLAGS": "-g0"}
    run(sys.executable, "-m", "build", "--outdir", str(out), str(source), environment=environment)
    for path in out.glob("*.tar.gz"):
        path.write_bytes(normalised(path.read_bytes(), moment))
    return sorted(out.iterdir())


def normalised(archive: bytes, moment: int) -> bytes:
    """Return a source package with its files in order and without times, users and umasks."""
    content = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as old,
        tarfile.open(fileobj=content, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in sorted(old.getmembers(), key=lambda one: one.name):
            clean = tarfile.TarInfo(member.name)
            clean.type, clean.size, clean.mtime = member.type, member.size, moment
            clean.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            new.addfile(clean, old.extractfile(member) if member.isfile() else None)
    return gzip.compress(content.getvalue(), mtime=moment)


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def run(*command: str, environment: dict[str, str] | None = None) -> str:
    """Run a command in the checkout and return what it prints."""
    done = subprocess.run(
        command, cwd=ROOT, env=environment, check=True, text=True, stdout=subprocess.PIPE
    )
    return done.stdout.strip()


if __name__ == "__main__":
    main()
