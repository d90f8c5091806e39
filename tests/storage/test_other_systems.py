"""Files where the system has no forks, no locks of POSIX, and not all flags: Windows, made here by
taking them away.
"""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import os, sys
for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_DIRECTORY", "O_CLOEXEC", "register_at_fork", "pwrite", "sched_getaffinity", "fork"):
    delattr(os, name)
sys.modules["fcntl"] = None
os.O_BINARY = 0
import warnings
warnings.simplefilter("ignore")
import pandas as pd
import encryptedstats as es
from encryptedstats.storage import files
from encryptedstats.machine import start_method

owner = es.Owner(es.Parameters.from_bits("bgv", 1024, 4000, (40,) * 4, allow_insecure=True))
rows = pd.DataFrame({"x": [1, 2, 3, 4] * 20, "y": [0, 1] * 40})
schema = es.Schema.infer(rows, target="y", bins=2)
owner.encrypt(schema.table(rows), out="table")
es.load("table").append(owner.encrypt(schema.table(rows[::-1])))
owner.save("secret.key")
print(es.Owner.load("secret.key").open(es.load("table").counts(0, by="class"), schema).to_numpy().sum())
os.symlink("secret.key", "link")
try:
    files.read_regular("link", follow=False)
except es.FileFormatError as error:
    print(error)
print(sorted(os.listdir(".")))
"""


def test_files_are_written_and_read_without_posix(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    total, refusal, names = done.stdout.splitlines()
    assert total == "160"
    assert refusal.startswith("link is a link")
    assert names == "['link', 'secret.key', 'table']"
    assert (tmp_path / "secret.key").stat().st_mode & 0o777 == 0o600
