"""Two totals that travel as one: the same numbers, half as many ciphertexts, and refused where
digits could carry.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from circuit_samples import RANGES, Lab, insecure
from hypothesis import given, settings
from hypothesis import strategies as st

import encryptedstats as es
from encryptedstats.circuits import column
from encryptedstats.circuits.clear import read_clear
from encryptedstats.circuits.evaluate import evaluate
from encryptedstats.circuits.expressions import PRODUCT, Expression, in_order, linear
from encryptedstats.circuits.layout import Layout
from encryptedstats.circuits.lowering import Setting
from encryptedstats.circuits.passes.digits import Stored, join_parts
from encryptedstats.circuits.passes.pairs import join_pairs, prove_pairs
from encryptedstats.errors import FileFormatError, ParameterError
from encryptedstats.storage.container import Container
from error_codes import error

pytestmark = pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")
BASE = 1024
a, b, y, z, w = (column(name) for name in ("a0", "b1", "y0", "y1", "w"))
TREE = [
    y.total(),
    z.total(),
    (y * a).total(),
    (z * a).total(),
    ((y - y * a) * b).total(),
    ((z - z * a) * b).total(),
]


def parameters(
    max_value: int = 1 << 22, bits: tuple[int, ...] = (50,) * 5, **planned: Any
) -> es.Parameters:
    return replace(insecure("bgv", max_value, bits), **planned)


@cache
def lab() -> Lab:
    return Lab(es.Owner(parameters(pair_base=BASE)))


def as_stored(
    outputs: list[Expression], known: es.Parameters, layout: Layout
) -> tuple[list[Expression], list[Stored]]:
    paired = join_pairs(outputs, BASE)
    stored = prove_pairs(outputs, paired, Setting(known, layout), RANGES)
    return (outputs, [Stored()] * len(outputs)) if stored is None else (paired, stored)


def products(outputs: list[Expression]) -> int:
    return sum(node.op == PRODUCT for node in in_order(outputs))


def test_what_two_totals_have_in_common_is_computed_once() -> None:
    paired = join_pairs(TREE, BASE)
    assert len(paired) == 3
    assert products(paired) == products(TREE) // 2
    assert products(join_pairs([(y * a).total(), (z * b).total()], BASE)) == 2  # nothing in common


trees = st.recursive(
    st.sampled_from([a, b, y, z, w, 1 - a, w + 3]),
    lambda inner: st.one_of(
        st.builds(lambda p, q: p * q, inner, inner),
        st.builds(
            lambda p, q, c, d: linear([(1, p), (c, q), (5, w)], d),
            inner,
            inner,
            st.integers(1, 3),
            st.just(2),
        ),
    ),
    max_leaves=5,
)


@settings(max_examples=40, deadline=None)
@given(st.lists(trees, min_size=1, max_size=5))
def test_a_pair_is_always_the_first_and_base_times_the_second(rows: list[Expression]) -> None:
    layout = Layout(7, 16)
    rng = np.random.default_rng(len(rows))
    columns = {name: rng.integers(0, 2, 7) for name in ("a0", "b1", "y0", "y1", "w")}
    totals = [row.total() for row in rows]
    single = read_clear(totals, columns, layout, ranges=RANGES)
    expected = [int(p) + BASE * int(q) for p, q in zip(single[::2], single[1::2], strict=False)]
    expected += [int(value) for value in single[2 * len(expected) :]]
    assert [
        int(v) for v in read_clear(join_pairs(totals, BASE), columns, layout, ranges=RANGES)
    ] == expected


@pytest.mark.parametrize("device", ["native", "seal"])
def test_opened_they_are_the_totals_of_the_clear_table(device: str) -> None:
    source = lab().source((9,), seed=3)
    for outputs in (TREE, TREE[:5], [t - 2 for t in TREE]):
        paired, stored = as_stored(outputs, lab().parameters, source.layout)
        assert len(paired) == -(-len(outputs) // 2)
        numbers = evaluate(paired, source, device=device).in_parts(stored)
        assert len(numbers) == len(outputs)
        assert lab().owner.open(numbers) == source.clear(outputs)


def test_totals_that_could_carry_travel_alone() -> None:
    small, large = Layout(500, 1024), Layout(600, 1024)
    assert all(one.base for one in as_stored(TREE, lab().parameters, small)[1])
    assert as_stored(TREE, lab().parameters, large) == (TREE, [Stored()] * 6)
    wraps = parameters(1 << 16, pair_base=BASE)
    assert as_stored(TREE, wraps, Layout(100, 1024))[1] == [Stored()] * 6
    noisy = parameters(1 << 22, (45, 45, 45), pair_base=BASE)
    assert as_stored(TREE, noisy, small)[1] == [Stored()] * 6


def test_results_add_up_until_they_could_carry() -> None:
    one, two = (lab().source((9,), seed=seed) for seed in (3, 4))
    paired, stored = as_stored(TREE, lab().parameters, one.layout)
    first, second = (evaluate(paired, source).in_parts(stored) for source in (one, two))
    both = [p + q for p, q in zip(one.clear(TREE), two.clear(TREE), strict=True)]
    assert lab().owner.open(first + second) == both
    assert lab().owner.open(first + second - second) == one.clear(TREE)
    crowd = first.in_parts([replace(one, rest=300) for one in stored])
    with pytest.raises(
        OverflowError,
        match=r"could reach ±600, .* below ±512",
    ):
        crowd + crowd


def test_files_keep_them_and_are_not_believed_beyond_the_keys() -> None:
    source = lab().source((9,), seed=3)
    paired, stored = as_stored(TREE, lab().parameters, source.layout)
    numbers = evaluate(paired, source).in_parts(stored)
    file = numbers.to_container()
    read = type(numbers).from_container(file, lab().keys)
    assert lab().owner.open(read) == source.clear(TREE)
    listed = json.loads(file.section("numbers"))
    for place, wrong, why in ((5, 512, "others"), (6, 512, "separated"), (6, -1, "separated")):
        altered = [list(entry) for entry in listed]
        altered[0][place] = wrong
        sections = {**file.sections, "numbers": json.dumps(altered).encode()}
        other = Container(file.kind, file.fingerprint, file.key_id, file.fields, sections)
        with pytest.raises(FileFormatError, match=why):
            type(numbers).from_container(other, lab().keys)


def test_a_digit_that_is_larger_than_it_can_be_is_refused() -> None:
    with pytest.raises(ValueError, check=error("outside-proven-range", "4")):
        join_parts([5 + BASE], [Stored(0, BASE, 4)])


def test_parameters_for_pairs() -> None:
    made = parameters(pair_base=BASE)
    assert es.Parameters.from_dict(made.to_dict()) == made
    with pytest.raises(ParameterError, check=error("base-out-of-range", "3")):
        parameters(pair_base=1)
    with pytest.raises(ParameterError, check=error("pairs-with-parts")):
        parameters(pair_base=BASE, kept_primes=2)


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(1)
    rows = pd.DataFrame({f"x{j}": rng.normal(size=60) for j in range(4)})
    rows["y"] = rng.integers(0, 2, 60)
    return rows


def test_a_plan_takes_pairs_for_many_totals_of_a_small_table(frame: pd.DataFrame) -> None:
    schema = es.Schema.infer(frame, target="y", bins=3)
    table, forest = schema.table(frame), es.CompletelyRandomForest(40, 2, random_state=1)
    made = es.plan(forest, table)
    assert made.parameters.pair_base == 256
    assert "T1 + 256 T2" in str(made)
    assert made.largest == 60
    for other in (
        es.plan(forest, schema, n_rows=100_000),
        es.plan(es.CompletelyRandomForest(2, 2, random_state=1), table),
        es.plan(forest, table, workers=4),
        es.plan(es.CompletelyRandomForest(12, 1, random_state=1), table, encrypted_prediction=True),
    ):
        assert other.parameters.pair_base is None


def test_a_forest_of_pairs_is_the_clear_forest(frame: pd.DataFrame, tmp_path: object) -> None:
    schema = es.Schema.infer(frame, target="y", bins=3)
    table, forest = schema.table(frame), es.CompletelyRandomForest(40, 2, random_state=1)
    owner = es.Owner(es.plan(forest, table))
    sealed = owner.encrypt(table)
    model = es.CompletelyRandomForest(40, 2, random_state=1).fit(sealed)
    assert len(model.totals_) == 2 * len(model.totals_.facts)
    model.save(f"{tmp_path}/model.esm")
    read = es.load(f"{tmp_path}/model.esm", owner.public_keys())
    opened = owner.open(read, schema=schema)
    assert np.array_equal(opened.leaf_counts_, forest.fit(table).leaf_counts_)
    with pytest.raises(es.NoiseError, check=error("keys-that-predict")):
        model.predict_votes(sealed)
