"""Compare the library with an independent implementation of its formats and the
published vectors.
"""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path

import independent_reader as reader
import numpy as np
import pandas as pd
import pytest
from make_vectors import STORED, VECTORS, make_vectors

import encryptedstats as es
from encryptedstats.storage import bitpack

pytestmark = pytest.mark.filterwarnings(
    "ignore::encryptedstats.InsecureParametersWarning",
    "ignore::encryptedstats.InsecureKeyFileWarning",
)


def test_the_reader_uses_the_standard_library_alone() -> None:
    tree = ast.parse(Path(reader.__file__).read_text())
    modules = {
        name.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [])
        + [alias.name for alias in node.names if isinstance(node, ast.Import)]
    }
    assert modules <= set(sys.stdlib_module_names)


def test_vectors_are_the_published_ones() -> None:
    assert json.loads(json.dumps(make_vectors())) == json.loads(VECTORS.read_text())


def test_the_library_reproduces_the_vectors() -> None:
    vectors = json.loads(VECTORS.read_text())
    packing, totals = vectors["bit packing"], vectors["totals"]
    numbers = np.arange(1024, dtype=np.uint64) ** 2 % 32
    packed = bitpack.pack(numbers, packing["bits"])
    assert packed.astype("<u8").tobytes().hex() == packing["packed"]
    assert reader.unpack(packed.astype("<u8").tobytes(), packing["bits"]) == numbers.tolist()
    owner = es.Owner.load(STORED / "insecure.key")
    opened = owner.open(STORED / "forest.enc", es.Schema.load(STORED / "schema.json"))
    assert list(map(int, opened.totals_)) == totals["totals"]


def test_a_stored_column_decrypts_to_the_rows() -> None:
    primes, ciphertext = reader.read_column(STORED / "table", "class0")
    parameters = reader.read_container(STORED / "table" / "table.manifest").fields["parameters"]
    t, secret = parameters["plain_modulus"], reader.read_secret_key(STORED / "insecure.key")
    slots = reader.decode_slots(reader.decrypt(ciphertext, secret, primes, t), t)
    assert slots == [int((i * 29 // 7) % 2 == 0) for i in range(60)] + [0] * (1024 - 60)


def test_totals_are_divided_by_their_factor(tmp_path: Path) -> None:
    """Large totals have primes that are not 1 modulo t, and so correction factors other than 1."""
    draw = np.random.default_rng(1)
    frame = pd.DataFrame({name: draw.integers(0, 30_000, 40) for name in "ab"})
    schema = es.Schema.infer(frame, numbers="keep")
    question = es.Covariance()
    owner = es.Owner(es.plan(question, schema, n_rows=1_000))
    owner.save(tmp_path / "secret.key")
    owner.encrypt(schema.table(frame)).ask(question).save(tmp_path / "answer.enc")
    file = reader.read_container(tmp_path / "answer.enc")
    assert all(factor != 1 for _, _, _, factor, *_ in file.json("numbers"))
    secret = reader.read_secret_key(tmp_path / "secret.key")
    a, b = (frame[name].astype(int) for name in "ab")
    totals = [a.sum(), b.sum(), (a * a).sum(), (a * b).sum(), (b * b).sum()]
    assert reader.read_totals(tmp_path / "answer.enc", secret) == totals


def test_another_key_does_not_decrypt() -> None:
    secret = reader.read_secret_key(STORED / "insecure.key")
    wrong = [[(x + (i == 5)) for i, x in enumerate(residues)] for residues in secret]
    totals = json.loads(VECTORS.read_text())["totals"]["totals"]
    assert reader.read_totals(STORED / "forest.enc", wrong) != totals
