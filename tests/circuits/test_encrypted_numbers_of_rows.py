"""Encrypted numbers for every row, in memory and in files: exact, or refused with a reason."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from given_samples import kept_lab
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import encryptedstats as es
from encryptedstats.circuits import column
from encryptedstats.circuits.bounds import Interval
from encryptedstats.circuits.evaluate import evaluate
from encryptedstats.circuits.results import NUMBERS_KIND, EncryptedNumbers, NumberFacts
from encryptedstats.storage import container
from encryptedstats.storage.container import Container
from error_codes import error

LAB = kept_lab("bgv")
pytestmark = pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")


@pytest.fixture(scope="module")
def rows() -> EncryptedNumbers:
    new = LAB.source((5, 9), seed=2)
    outputs, bounds = [column("w") * column("n"), column("w")], [Interval(-12, 20), Interval(0, 4)]
    return evaluate(outputs, new, form="rows", bounds=bounds, progress=False)


@pytest.fixture(scope="module")
def wanted() -> Any:
    new = LAB.source((5, 9), seed=2)
    return np.column_stack([new.columns["w"] * new.columns["n"], new.columns["w"]])


def test_opened(rows: EncryptedNumbers, wanted: Any) -> None:
    assert LAB.owner.open(rows).tolist() == wanted.tolist()
    assert rows.n_rows == 14
    assert rows.nbytes == sum(part.residues.nbytes for part in rows.parts)
    assert repr(rows).startswith("EncryptedNumbers(14 rows of 2 numbers in 4 ciphertexts, rows, ")


def test_small_as_can_be(rows: EncryptedNumbers) -> None:
    """Two polynomials under the fewest primes."""
    for part in rows.parts:
        assert len(part.residues) == 2
        assert part.noise.level == LAB.parameters.noise.levels - 1


def test_a_factor_and_an_offset_are_taken_off(rows: EncryptedNumbers, wanted: Any) -> None:
    t, most = LAB.parameters.plain_modulus, LAB.parameters.max_value
    facts = [NumberFacts(-most, most, 7, 3), NumberFacts(-most, most)]
    found = LAB.owner.open(
        EncryptedNumbers(rows.keys, "rows", facts, rows.parts, counts=rows.counts)
    )
    assert ((found[:, 0] * 3 - wanted[:, 0] - 7) % t == 0).all()
    assert (found[:, 1] == wanted[:, 1]).all()


def test_numbers_outside_their_bounds_are_refused(rows: EncryptedNumbers) -> None:
    facts = [rows.facts[0], NumberFacts(0, 1)]
    tight = EncryptedNumbers(rows.keys, "rows", facts, rows.parts, counts=rows.counts)
    with pytest.raises(ValueError, check=error("outside-proven-range", "1", "0")):
        LAB.owner.open(tight)


def test_other_keys(rows: EncryptedNumbers) -> None:
    stranger = kept_lab("bgv", 1)
    with pytest.raises(es.KeyMismatchError, check=error("load-the-key")):
        stranger.owner.open(rows)
    with pytest.raises(es.KeyMismatchError, check=error("keys-of-the-file")):
        EncryptedNumbers.from_container(rows.to_container(), stranger.keys)


def test_rows_come_back_from_a_file(rows: EncryptedNumbers, wanted: Any) -> None:
    data = container.to_bytes(rows.to_container())
    again = EncryptedNumbers.from_container(container.from_bytes(data, kind=NUMBERS_KIND), LAB.keys)
    assert again.facts == rows.facts
    assert again.counts == rows.counts
    assert LAB.owner.open(again).tolist() == wanted.tolist()
    with pytest.raises(TypeError, check=error("not-pickled")):
        pickle.dumps(rows)


def altered(file: Container, section: str, change: Any) -> Container:
    value = change(json.loads(file.section(section)))
    return replace(file, sections={**file.sections, section: json.dumps(value).encode()})


@pytest.mark.parametrize(
    ("section", "change", "words"),
    [
        ("numbers", lambda v: v[:1], "one place for each"),
        ("numbers", lambda v: [], "one place for each"),
        ("numbers", lambda v: [[0, 1, 0, 0, 0, 0, 0], *v[1:]], "impossible bounds"),
        ("numbers", lambda v: [[0, 1, 0, 1 << 40, 0, 0, 0], *v[1:]], "impossible bounds"),
        ("numbers", lambda v: [[2, 1, 0, 1, 0, 0, 0], *v[1:]], "impossible bounds"),
        ("numbers", lambda v: [[0, 1 << 60, 0, 1, 0, 0, 0], *v[1:]], "impossible bounds"),
        ("numbers", lambda v: [[0, 1, 0], *v[1:]], "malformed"),
        ("numbers", lambda v: [[0, 1.0, 0, 1, 0, 0, 0], *v[1:]], "malformed"),
        ("numbers", lambda v: [[False, True, 0, 1, 0, 0, 0], *v[1:]], "malformed"),
        ("chunks", lambda v: [], "totals with rows, or numbers of rows without any"),
        ("chunks", lambda v: [5, 0], "an impossible number of rows"),
        ("chunks", lambda v: [5, 1025], "an impossible number of rows"),
        ("chunks", lambda v: [5, 9.0], "an impossible number of rows"),
        ("chunks", lambda v: [5, 9, 3], "does not fit"),
        ("noise", lambda v: v[:-1], "does not fit"),
        ("noise", lambda v: [[-1.0, 0.0, 0], *v[1:]], "noise"),
        ("noise", lambda v: [[*v[0][:2], 99], *v[1:]], "noise"),
    ],
)  # fmt: skip
def test_files_that_cannot_be(
    rows: EncryptedNumbers, section: str, change: Any, words: str
) -> None:
    with pytest.raises(es.FileFormatError, match=words):
        EncryptedNumbers.from_container(altered(rows.to_container(), section, change), LAB.keys)


@pytest.mark.parametrize(
    "change", [lambda d: d[:-8], lambda d: d + bytes(8), lambda d: b"\xff" * len(d)]
)
def test_residues_that_cannot_be(rows: EncryptedNumbers, change: Any) -> None:
    file = rows.to_container()
    broken = replace(file, sections={**file.sections, "residues": change(file.section("residues"))})
    with pytest.raises(es.FileFormatError):
        EncryptedNumbers.from_container(broken, LAB.keys)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(["numbers", "chunks", "noise"]), st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(rows: EncryptedNumbers, section: str, data: bytes) -> None:
    file = rows.to_container()
    with pytest.raises(es.FileFormatError):
        EncryptedNumbers.from_container(
            replace(file, sections={**file.sections, section: data}), LAB.keys
        )
