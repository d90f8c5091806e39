"""What must work wherever the package was installed: a forest from keys to predictions, with the
kernels if they came along.

Runs in a folder of its own, without the checkout: ``python packaging/smoke.py`` in an environment
that has the package alone.
"""

from __future__ import annotations

import platform
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

import encryptedstats as es
from encryptedstats import crypto, machine
from encryptedstats.crypto import kernels
from encryptedstats.storage import pieces


def main() -> None:
    """Encrypt, fit, store, open and predict; compare with the clear."""
    rng = np.random.default_rng(1)
    rows = pd.DataFrame({"age": rng.integers(20, 80, 300), "dose": rng.normal(size=300)})
    rows["ill"] = (rows["age"] + 9 * rows["dose"] > 50).astype(int)
    schema = es.Schema.infer(rows, target="ill", bins=3)
    forest = es.CompletelyRandomForest(n_trees=5, depth=2, random_state=1)
    owner = es.Owner(es.plan(forest, schema, n_rows=300))
    with tempfile.TemporaryDirectory() as folder:
        owner.save(Path(folder, "secret.key"), passphrase="correct horse battery")
        owner.encrypt(schema.table(rows), out=Path(folder, "table"), workers=2)
        forest.fit(es.load(Path(folder, "table"))).save(Path(folder, "forest.enc"))
        again = es.Owner.load(Path(folder, "secret.key"), passphrase="correct horse battery")
        opened = again.open(Path(folder, "forest.enc"), schema)
    clear = es.CompletelyRandomForest(n_trees=5, depth=2, random_state=1).fit(schema.table(rows))
    assert opened.totals_ == clear.totals_, "encrypted and clear differ"
    assert crypto.PublicKeys is es.PublicKeys
    found = {
        "residues": kernels.has_extension(),
        "storage": pieces.level() or "none",
        "processes": machine.start_method(),
    }
    print(
        f"encryptedstats {es.__version__}, Python {platform.python_version()}, {sys.platform} "
        f"{platform.machine()}: {found}"
    )
    print(f"NumPy {np.__version__}, pandas {pd.__version__}: encrypted equals clear")


if __name__ == "__main__":
    main()
