"""Circuits over bins and classes, rewritten to the columns that are stored: the same numbers, and
no more products.
"""

from __future__ import annotations

import doctest
from typing import Any

import numpy as np
import pandas as pd
import pytest

import encryptedstats as es
from encryptedstats.arrays.vectors import EncryptedVector
from encryptedstats.circuits import column
from encryptedstats.circuits.bounds import read_bounds
from encryptedstats.circuits.devices.seal import encrypted_here
from encryptedstats.circuits.expressions import (
    COLUMN,
    HERE,
    ONES,
    PRODUCT,
    Expression,
    in_order,
    sum_of,
)
from encryptedstats.circuits.lowering import rotations_needed
from encryptedstats.circuits.passes import stored_columns
from encryptedstats.circuits.program import Step
from encryptedstats.crypto.residues import ciphertext_of
from encryptedstats.tables import EncryptedTable
from encryptedstats.tables.columns import column_ranges, rewrite_over_stored
from insecure import insecure_parameters

pytestmark = pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")
FRAME = pd.DataFrame(
    {
        "age": [20.0, 30, np.nan, 50, 60, 70, 25, 35, 45],
        "site": [*"abcabcabb"],
        "sick": [0, 1, 1, 0, 1, 0, 1, 1, 0],
    }
)
SCHEMA = es.Schema.infer(FRAME, target="sick", bins=4, missing="bin")
TABLE = SCHEMA.table(FRAME)
PUBLIC, STORED = TABLE.public_schema, TABLE.stored_columns()
AGE = [column(f"v0.bin{k}") for k in range(PUBLIC.variables[0].n_bins)]
SITE = [column(f"v1.bin{k}") for k in range(3)]
CLASS = [column(f"class{c}") for c in range(2)]


def stored(output: Expression) -> Any:
    return rewrite_over_stored([output], PUBLIC, STORED)[0]


def test_examples() -> None:
    assert doctest.testmod(stored_columns).failed == 0


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (sum_of(AGE[:2]), "v0.upto1"),
        (sum_of(AGE[1:3]), "-v0.upto0 + v0.upto2"),
        (sum_of([sum_of(AGE[:2]), AGE[2]]), "v0.upto2"),
        (AGE[0], "v0.upto0"),
        (AGE[-1], "-v0.upto3 + 1"),  # missing
        (SITE[2], "-v1.bin0 - v1.bin1 + 1"),
        (1 - SITE[2], "v1.bin0 + v1.bin1"),
        (CLASS[1], "-class0 + 1"),
        (sum_of([1 * AGE[0], 2 * AGE[1], 3 * AGE[2]]), "-v0.upto0 - v0.upto1 + 3*v0.upto2"),
        (sum_of(CLASS), "1"),
        ((sum_of(CLASS) * AGE[0]).total(), "v0.upto0.total()"),
    ],
)
def test_sums_of_neighbours_are_one_column(asked: Expression, found: str) -> None:
    assert repr(stored(asked)) == found


def test_what_is_stored_stays_as_it_is() -> None:
    for asked in (SITE[0], CLASS[0] * SITE[1], (CLASS[0] * SITE[1]).total()):
        assert stored(asked) is asked


@pytest.mark.parametrize(
    "asked", [*AGE, *SITE, *CLASS, sum_of(AGE[1:]), sum_of([2 * AGE[0], 5 * AGE[3]])], ids=repr
)
def test_bounds_are_as_tight_as_those_of_bins(asked: Expression) -> None:
    before = read_bounds([asked], column_ranges(PUBLIC, TABLE.columns()), 9)[asked]
    after = stored(asked)
    assert read_bounds([after], column_ranges(PUBLIC, STORED), 9)[after] == before


def test_a_split_is_one_column_and_takes_no_more_products() -> None:
    forest = es.CompletelyRandomForest(n_trees=5, depth=3, random_state=1)
    asked = forest.circuit(PUBLIC, TABLE.columns())
    found = [
        one for one in rewrite_over_stored(asked, PUBLIC, STORED) if isinstance(one, Expression)
    ]
    assert len(found) == len(asked)
    assert len(products(found)) <= len(products(asked))
    assert {node.data for node in in_order(found) if node.op == COLUMN} <= set(map(str, STORED))


def products(outputs: list[Expression]) -> list[Expression]:
    return [node for node in in_order(outputs) if node.op == PRODUCT]


#: Circuits in which padding would count if a complement were 1 there, and one whose total everybody
#: knows.
OUTPUTS = {
    "complement": AGE[-1].total(),
    "of complements": (AGE[-1] * SITE[-1] * CLASS[1]).total(),
    "everybody": sum_of(CLASS).total(),
    "everybody, class by class": sum_of([one.total() for one in CLASS]) - 2,
    "class by class, within a bin": sum_of([(AGE[1] * one).total() for one in CLASS]),
    "moved": (AGE[-1].resample(2) * CLASS[1]).total(),
    "brought back": (CLASS[0].total().replicate() * SITE[-1]).total(),
}


@pytest.fixture(scope="module", params=["bgv", "bfv"])
def owner(request: pytest.FixtureRequest) -> es.Owner:
    return es.Owner(insecure_parameters(request.param, 1000, (50,) * 7))


@pytest.mark.parametrize("name", OUTPUTS)
def test_padding_does_not_count(name: str, owner: es.Owner) -> None:
    sealed = owner.encrypt(TABLE[:5]).append(owner.encrypt(TABLE[5:]))
    keys = owner.public_keys(rotations=rotations_needed([OUTPUTS[name]], sealed.layout))
    found = owner.open(
        EncryptedTable(sealed.facts, sealed.blocks, keys).evaluate([OUTPUTS[name]], form="slots")
    )
    assert list(found) == TABLE.with_layout(sealed.layout).evaluate([OUTPUTS[name]])


def test_what_is_1_for_all_to_see_is_1_in_rows_and_the_same_for_everybody(owner: es.Owner) -> None:
    sealed = owner.encrypt(TABLE)
    step = Step(HERE, (), ONES, owner.parameters.noise.fresh(with_secret_key=True))
    once, again = (encrypted_here(step, sealed, 0) for _ in range(2))
    assert np.array_equal(once, again) == (owner.parameters.scheme == "bgv")
    slots = EncryptedVector(
        sealed.keys, [ciphertext_of(sealed.keys.engine, once)], step.noise, 1, 0, [1024]
    )
    assert owner.open(slots).tolist() == [1] * 9 + [0] * 1015
