"""The validity total: 0 for good rows whatever the coin, something else for every way of encrypting
wrongly.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import encryptedstats as es
from encryptedstats.circuits.expressions import Weights
from encryptedstats.circuits.results import EncryptedNumbers
from encryptedstats.crypto.packing import centre
from encryptedstats.crypto.residues import ciphertext_of, residues_of
from encryptedstats.studies import validity
from encryptedstats.tables.encrypted_table import EncryptedTable
from encryptedstats.tables.facts import MemoryBlocks

pytestmark = pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")
SLOTS, N, FEW = 1024, 40, 7
_RNG = np.random.default_rng(1)
FRAME = pd.DataFrame(
    {
        "age": _RNG.normal(50, 9, N),
        "sex": _RNG.choice(["f", "m", "x"], N),
        "dose": _RNG.integers(0, 9, N) / 10,
        "sick": _RNG.choice(["no", "yes"], N),
    }
)
SCHEMA = es.Schema.infer(FRAME, target="sick", bins=3, kinds={"dose": "number"})


@pytest.fixture(scope="module")
def owner() -> es.Owner:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", es.InsecureParametersWarning)
        parameters = es.Parameters.from_bits("bgv", SLOTS, 1 << 20, (52,) * 6, allow_insecure=True)
        return es.Owner(replace(parameters, kept_primes=5))


@pytest.fixture(scope="module")
def table(owner: es.Owner) -> EncryptedTable:
    one = owner.public_keys().encrypt(SCHEMA.table(FRAME)).accept_others()
    return one.append(owner.public_keys().encrypt(SCHEMA.table(FRAME[:FEW])).accept_others())


def is_valid(owner: es.Owner, table: EncryptedTable, coin: bytes = b"coin") -> bool:
    return validity.passes(validity.ask(table, coin, 1), owner.open, 1)


def changed(
    table: EncryptedTable, changes: dict[str, dict[int, int]], block: int = 1
) -> EncryptedTable:
    """The table with numbers added in some slots of some columns of a block."""
    keys, residues = table.public_keys(), [table.blocks.block(i).copy() for i in range(2)]
    for name, added in changes.items():
        place = [str(one) for one in table.facts.columns].index(name)
        slots = np.zeros(SLOTS, dtype=np.int64)
        slots[list(added)] = list(added.values())
        old = ciphertext_of(keys.engine, residues[block][place])
        residues[block][place] = residues_of(
            keys.engine, keys.engine.evaluator.add_plain(old, keys.engine.encoder.encode(slots))
        )
    blocks = MemoryBlocks(table.blocks.ids, table.blocks.rows, tuple(residues))
    return EncryptedTable(table.facts, blocks, keys, accepted=True)


def test_good_rows_pass_whatever_the_coin(owner: es.Owner, table: EncryptedTable) -> None:
    assert all(is_valid(owner, table, coin) for coin in (b"", b"a", b"b"))
    assert validity.unchecked_columns(validity.study_groups(SCHEMA.public())) == ["v2.number"]


_BINS = SCHEMA.table(FRAME).bins("age")
YOUNG = next(
    row for row in range(FEW) if _BINS[0][row]
)  # in the first bin, hence up to all cut points
WOMAN = next(row for row in range(FEW) if FRAME["sex"][row] == "f")
WRONG: dict[str, dict[str, dict[int, int]]] = {
    "a row that counts five times": {"class0": {3: 4}},
    "less than nothing": {"class0": {3: -2}},
    "a row in two bins": {"v1.bin1": {WOMAN: 1}},
    "numbers that add up to one": {"v1.bin0": {WOMAN: -17}, "v1.bin1": {WOMAN: 17}},
    "up to the first cut point and not up to the second": {"v0.upto1": {YOUNG: -1}},
    "half a row up to a cut point": {"v0.upto0": {YOUNG: 5}, "v0.upto1": {YOUNG: 5}},
    "a row in padding": {
        "class0": {FEW: 1},
        "v0.upto0": {FEW: 1},
        "v0.upto1": {FEW: 1},
        "v1.bin0": {FEW: 1},
    },
    "a number in padding": {"v2.number": {SLOTS - 1: 5}},
}


@pytest.mark.parametrize("how", WRONG)
def test_wrong_rows_are_caught(owner: es.Owner, table: EncryptedTable, how: str) -> None:
    assert not is_valid(owner, changed(table, WRONG[how]))


def test_ciphertexts_that_would_tell_the_secret_key_are_caught(
    owner: es.Owner, table: EncryptedTable
) -> None:
    """(c0, k X^-j) in place of an encryption decrypts to coefficients of the secret: its slots are
    no zeros and ones.
    """
    keys, residues = table.public_keys(), [table.blocks.block(i).copy() for i in range(2)]
    place = [str(one) for one in table.facts.columns].index("v0.upto0")
    slots = np.zeros(SLOTS, dtype=np.int64)
    slots[: len(slots)] = 1
    constant = keys.engine.evaluator.add_plain(
        ciphertext_of(keys.engine, residues[1][place]), keys.engine.encoder.encode(slots)
    )
    primes = np.array(keys.parameters.data_moduli, dtype=np.uint64)[:, None]
    one = (residues_of(keys.engine, constant)[0] + primes - residues[1][place][0]) % primes
    residues[1][place] = np.stack([one, one])  # 1 + s, in every coefficient that s has
    blocks = MemoryBlocks(table.blocks.ids, table.blocks.rows, tuple(residues))
    assert not is_valid(owner, EncryptedTable(table.facts, blocks, keys, accepted=True))


def test_a_row_moved_to_another_bin_is_another_row(owner: es.Owner, table: EncryptedTable) -> None:
    """What is changed into good rows is good: the total sees what columns are, not whose."""
    assert is_valid(owner, changed(table, {"v0.upto0": {YOUNG: -1}}))
    assert is_valid(owner, changed(table, {"v1.bin0": {WOMAN: -1}, "v1.bin1": {WOMAN: 1}}))
    assert is_valid(
        owner, changed(table, {"v1.bin0": {WOMAN: -1}})
    )  # of the level that is not stored


def test_mistakes_that_cancel_without_weights_are_caught(
    owner: es.Owner, table: EncryptedTable
) -> None:
    """x in one row and y in another, so that x^2 - x + y^2 - y is 0 modulo t."""
    t, every = (
        owner.parameters.plain_modulus,
        np.arange(2, owner.parameters.plain_modulus, dtype=np.int64),
    )
    x, y = next(
        (x, int(every[found[0]]))
        for x in range(2, 99)
        if len(found := np.flatnonzero((every * every - every + x * x - x) % t == 0))
    )
    is_no = (FRAME["sick"] == "no").to_numpy()
    rows = {1: x, 2: y}
    added = {row: centre(value - int(is_no[row]), t) for row, value in rows.items()}
    wrong = changed(table, {"class0": added})
    assert not any(is_valid(owner, wrong, bytes([coin])) for coin in range(3))


def test_a_coin_gives_the_same_weights_to_everybody_and_others_for_each_rule_and_chunk() -> None:
    drawn = [
        Weights(c, 0, 8, seed).in_slots(16, 97).tolist()
        for c, seed in ((0, b"a"), (0, b"a"), (1, b"a"), (0, b"b"))
    ]
    assert drawn[0] == drawn[1]
    assert len({tuple(one) for one in drawn}) == 3
    assert all(one[8:] == [0] * 8 and max(one) < 97 for one in drawn)


def test_totals_are_so_many_that_hardly_any_bad_rows_pass(
    owner: es.Owner, table: EncryptedTable
) -> None:
    assert [validity.repeats(t, 1) for t in (65537, 1 << 20, 1 << 25, 1 << 41)] == [3, 2, 2, 1]
    asked = validity.ask(table, b"coin", 1)
    assert len(asked) == validity.repeats(owner.parameters.plain_modulus, 1)
    assert owner.open(asked) == [0, 0]
    wrong = owner.open(validity.ask(changed(table, WRONG["a row in two bins"]), b"coin", 1))
    assert wrong[0] != wrong[1]  # each has weights of its own
    assert not validity.passes(_first_of(asked), owner.open, 1)


@pytest.mark.parametrize("sites", [2, 3, 10, 40])
def test_who_excludes_sites_cannot_pick_a_coin_that_bad_rows_pass(sites: int) -> None:
    """When the numbers are shown there is a coin for every set of other sites that could be
    excluded: all of them are tried.
    """
    for t in (65537, 1 << 20, 1 << 41):
        coins, passes = 2 ** (sites - 1), float(t) ** -validity.repeats(t, sites)
        assert coins * passes <= 2.0**-validity.MISSED_BITS


def _first_of(totals: Any) -> Any:
    """What a worker could give who leaves some out."""
    return EncryptedNumbers(
        totals.keys, totals.form, totals.facts[:1], totals.parts, 1, flooded=True
    )


def test_weights_are_spread_over_all_of_t() -> None:
    t = 12289
    drawn = Weights(0, 0, 1 << 15, b"x").in_slots(1 << 15, t).astype(float)
    assert abs(drawn.mean() / t - 0.5) < 0.01
    assert abs(drawn.std() / t - 12**-0.5) < 0.01


def test_the_plan_of_a_study_carries_the_total() -> None:
    """With public keys of many sites, flooded."""
    schema = es.Schema.infer(FRAME.drop(columns="dose"), target="sick", bins=3)
    made = es.plan(
        [es.MultinomialNB(), validity.plan_validity(schema.public(), 20_000)],
        schema,
        20_000,
        by_others=True,
    )
    assert made.largest <= 20_000  # the total has no size
    owner = es.Owner(made)
    small = owner.public_keys().encrypt(schema.table(FRAME)).accept_others()
    assert is_valid(owner, small)
