"""Small tables are repeated in their ciphertexts, so that many totals are interleaved in one
before they are brought down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from circuit_samples import (
    SEEDS,
    SLOTS,
    Lab,
    by_hand,
    circuits,
    insecure,
    lab_of,
    totals_of,
    unless_refused,
)
from given_samples import kept_lab, usable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import encryptedstats as es
from encryptedstats.circuits import Expression, column
from encryptedstats.circuits.bounds import Interval
from encryptedstats.circuits.cost import read_cost
from encryptedstats.circuits.devices import get_devices, register, unregister
from encryptedstats.circuits.devices.native.device import compute_totals
from encryptedstats.circuits.evaluate import compile_for, evaluate
from encryptedstats.circuits.expressions import Marks, pack_total
from encryptedstats.circuits.layout import Layout
from encryptedstats.circuits.passes.interleaving import split_by_given
from encryptedstats.circuits.passes.masks import join_masks
from encryptedstats.circuits.program import EXPAND, MASK, MULTIPLY, PACK, RELINEARISE, SHIFT
from encryptedstats.circuits.results import EncryptedNumbers
from encryptedstats.crypto.engine import engine_for
from encryptedstats.crypto.packing import interleaving_power, packing_parameters
from encryptedstats.crypto.residues import ciphertext_of, residues_of
from error_codes import error

pytestmark = pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")
QUIET: dict[str, Any] = {"progress": False, "workers": 1}
COPIES = (2, 4, 8, 32)
few = settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
a, b, c, y, z, w, n = (column(name) for name in ("a0", "b1", "a2", "y0", "y1", "w", "n"))


def lab(copies: int) -> Lab:
    return lab_of("bgv", bits=(49,) * 8, copies=copies)


def forest(count: int) -> list[Expression]:
    """Totals that share their first products, of two classes."""
    splits = [a, b, c, a + b, b + c, a + c, w]
    found = []
    for k in range(count):
        first, second = splits[k % 7], splits[(k // 7 + k + 1) % 7]
        for of in (y, z):
            rest = of - of * first
            found += [(of * first).total(), (of * first * second).total(), (rest * second).total()]
    return list(dict.fromkeys(found))


# -- where values lie
# ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("copies", [1, *COPIES, SLOTS // 2])
def test_values_come_back(copies: int) -> None:
    parameters = replace(insecure("bgv", 5000, (40,) * 3), copies=copies)
    encoder = engine_for(parameters).encoder
    values = np.random.default_rng(copies).integers(-5000, 5000, parameters.slots)
    assert parameters.slots == SLOTS // copies
    np.testing.assert_array_equal(encoder.decode(encoder.encode(values)), values)
    assert es.Parameters.from_dict(parameters.to_dict()) == parameters


@pytest.mark.parametrize("copies", COPIES)
def test_every_coset_holds_every_value_once(copies: int) -> None:
    """The slots at w^e with the same e modulo 2k: what automorphisms with g = 1 modulo
    2k exchange.
    """
    parameters = replace(insecure("bgv", 5000, (40,) * 3), copies=copies)
    values = np.arange(1, parameters.slots + 1)
    plain = engine_for(parameters).encoder.encode(values)
    slots = engine_for(replace(parameters, copies=1)).encoder.decode(plain)
    half = np.array([pow(3, i, 2 * SLOTS) for i in range(SLOTS // 2)])
    exponents = np.concatenate([half, 2 * SLOTS - half])
    for coset in range(1, 2 * copies, 2):
        assert sorted(slots[exponents % (2 * copies) == coset]) == list(values)


@pytest.mark.parametrize("copies", [0, 3, SLOTS, -2, 2.0, True])
def test_copies_that_cannot_be(copies: Any) -> None:
    with pytest.raises(es.ParameterError, check=error("copies-out-of-range", "1", "512")):
        replace(insecure("bgv", 5000, (40,) * 3), copies=copies)


def test_neighbours_have_different_powers() -> None:
    assert [interleaving_power(place, 4, 1024) for place in range(6)] == [0, 512, 256, 768, 0, 512]
    assert {interleaving_power(place, 8, 1024) for place in range(8)} == set(range(0, 1024, 128))


# -- totals
# ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("copies", COPIES)
@pytest.mark.parametrize("counts", [(1,), (20,), (20, 7, 9)], ids=str)
def test_totals_are_those_of_the_clear(copies: int, counts: tuple[int, ...]) -> None:
    source, outputs = lab(copies).source(counts, seed=copies), forest(9)
    found = evaluate(outputs, source, **QUIET)
    assert sorted(found.places) == list(range(len(outputs)))
    assert source.lab.owner.open(found) == source.clear(outputs)


@few
@given(circuits(), st.sampled_from(COPIES), st.sampled_from([(13,), (9, 5)]))
def test_random_circuits(outputs: list[Expression], copies: int, counts: tuple[int, ...]) -> None:
    source = lab(copies).source(counts, seed=1)
    for form in ("packed", "replicated", "slots"):
        found = unless_refused(lambda form=form: evaluate(outputs, source, form=form, **QUIET))
        if found is not None:
            assert source.lab.owner.open(found) == by_hand(outputs, source.columns, source.layout)


def test_sums_of_stored_columns_alone() -> None:
    source, a0 = lab(2).source((13,), seed=1), column("a0")
    outputs = [(a0 + (2 * a0 + 1)).total()]
    found = evaluate(outputs, source, **QUIET)
    assert source.lab.owner.open(found) == by_hand(outputs, source.columns, source.layout)


def test_devices_give_the_same_residues_at_every_level_of_arithmetic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, outputs = lab(8).source((20,)), forest(12)
    expected = evaluate(outputs, source, device="seal", **QUIET)
    for cpu in ("baseline", "avx2", "avx512", "ifma"):
        monkeypatch.setenv("ENCRYPTEDSTATS_CPU", cpu)
        for workers in (1, 3):
            assert evaluate(
                outputs, source, device="native", workers=workers, progress=False
            ).equals(expected)


def test_slices_of_a_table_that_has_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """A little at a time: also runs of coefficients in which a power of X is one number are cut."""
    monkeypatch.setattr("encryptedstats.circuits.devices.native.sums._SMALL_BATCH", 1)
    source, outputs = lab(4).source((20, 30)), forest(12)
    expected = evaluate(outputs, source, **QUIET)
    for limit in (1, 1 << 20, 1 << 22):
        assert evaluate(outputs, source, memory_limit=limit, **QUIET).equals(expected)


@pytest.mark.parametrize("device", ["native", "seal"])
def test_totals_without_room_are_merged_as_they_come(device: str) -> None:
    source, outputs = lab(4).source((20,)), forest(20)
    packs = compile_for(outputs, source).program.packs
    assert len(packs[0].args) > 1 << 4
    expected = evaluate(outputs, source, **QUIET)
    found = evaluate(outputs, source, device=device, memory_limit=1, **QUIET)
    assert found.equals(expected)


def test_a_ciphertext_is_lowered_for_many_totals() -> None:
    outputs = forest(40)
    costs = {}
    for copies in (1, 8):
        program = compile_for(outputs, lab(copies).source((20,))).program
        (pack,) = program.packs
        assert len(pack.args) == -(-len(outputs) // copies)
        relinearised = sum(step.op == RELINEARISE for step in program.steps)
        assert relinearised <= len(pack.args)
        costs[copies] = read_cost(program).number("key switch")
        # What is computed over rows is not much more: totals with a product in common are shifted
        # alike.
        costs[copies, MULTIPLY] = sum(step.op == MULTIPLY for step in program.steps)
    assert costs[8] < costs[1] / 5
    assert costs[8, MULTIPLY] < 1.5 * costs[1, MULTIPLY]


@pytest.mark.parametrize("count", [3, None], ids=["fewer than copies", "many"])
def test_alone_they_are_in_the_same_places(count: int | None) -> None:
    """So that results of devices that interleave nothing can be added to those of others."""
    source, more, outputs = lab(8).source((20,)), lab(8).source((9,), seed=5), forest(5)[:count]
    ready, alone = compile_for(outputs, source), compile_for(outputs, source, n_interleaved=1)
    assert (ready.program.n_interleaved, alone.program.n_interleaved) == (8, 1)
    assert ready.program.places == alone.program.places
    assert not any(step.op == SHIFT for step in alone.program.steps)
    device = get_devices()["native"]
    by_hand_alone = type("Alone", (type(device),), {"name": "alone", "interleaves": False})()
    register(by_hand_alone)
    try:
        one = evaluate(outputs, source, device="alone", **QUIET)
        both = one + evaluate(outputs, more, device="native", **QUIET)
    finally:
        unregister("alone")
    assert source.lab.owner.open(both) == [
        p + q for p, q in zip(source.clear(outputs), more.clear(outputs), strict=True)
    ]


def test_packs_hold_totals_and_nothing_else() -> None:
    source, outputs = lab(8).source((20,)), forest(3)
    found = evaluate(outputs, source, **QUIET)
    unfinished = compile_for(outputs, source).program
    (pack,) = unfinished.packs
    lowered = totals_of(unfinished, source, compute_totals)
    keys, small = source.keys, engine_for(packing_parameters(source.parameters))
    parts = [ciphertext_of(small, lowered[arg]) for arg in pack.args]
    open_rows = residues_of(
        small, keys.evaluator.pack(parts, 6, 3, 3)
    )  # not merged to the end: other coefficients are not cleared
    altered = EncryptedNumbers(
        keys,
        "packed",
        found.facts,
        [replace(found.parts[0], residues=open_rows)],
        found.width,
        places=found.places,
    )
    with pytest.raises(ValueError, check=error("foreign-coefficients")):
        source.lab.owner.open(altered)


def test_noise_is_never_more_than_proven() -> None:
    source = lab(8).source((20,))
    found = evaluate(forest(12), source, **QUIET)
    small = engine_for(packing_parameters(source.parameters))
    for part in found.parts:
        slack = source.lab.slack(ciphertext_of(small, part.residues), part.noise, packed=True)
        assert -1 < slack < 40


def test_places_are_stored(tmp_path: Any) -> None:
    source, outputs = lab(8).source((20,)), forest(5)
    found = evaluate(outputs, source, **QUIET)
    found.save(tmp_path / "totals")
    again = EncryptedNumbers.load(tmp_path / "totals", source.keys)
    assert again.equals(found)
    assert again.places == found.places != tuple(range(len(outputs)))
    assert source.lab.owner.open(again) == source.clear(outputs)


@pytest.mark.parametrize(
    "places", ["[0, 2, 2]", "[0, 1]", "[0, 1, 3]", '[0, 1, "2"]', "{}", "[0, 1, true]"]
)
def test_places_that_cannot_be(places: str) -> None:
    source = lab(8).source((20,))
    file = evaluate([a.total(), b.total(), n.total()], source, **QUIET).to_container()
    file.sections["places"] = places.encode()
    with pytest.raises(es.FileFormatError, match="place"):
        EncryptedNumbers.from_container(file, source.keys)


# -- marked, moved
# ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["native", "seal"])
def test_marked_totals_are_one_product(device: str) -> None:
    source = lab(8).source((20, 9))
    outputs = [(n * w).mask(Marks(0, [k])).total() for k in range(13)] + [
        n.mask(Marks(1, [2, 4])).total()
    ]
    program = compile_for(outputs, source).program
    assert sum(step.op == MASK for step in program.steps) <= 4
    assert source.lab.owner.open(evaluate(outputs, source, device=device, **QUIET)) == source.clear(
        outputs
    )


@pytest.mark.parametrize("copies", [2, 8])
def test_rows_that_move(copies: int) -> None:
    source = lab(copies).source((20, 9))
    outputs = [(n * w.resample(seed)).total() for seed in SEEDS] + [
        (a.total().replicate() * n).total()
    ]
    for device in ("native", "seal"):
        found = evaluate(outputs, source, device=device, **QUIET)
        assert source.lab.owner.open(found) == by_hand(outputs, source.columns, source.layout)


marked_rows = st.builds(
    lambda terms: terms,
    st.lists(
        st.tuples(
            st.sampled_from([a, n, w - n, 2 * n + 3, 1 - a, a - b + c, -w]),
            st.sets(st.integers(0, 11), min_size=1, max_size=4),
        ),
        min_size=2,
        max_size=6,
    ),
)


@few
@given(marked_rows)
def test_joined_marks_are_the_same_numbers(terms: list[tuple[Expression, set[int]]]) -> None:
    layout = Layout(12, 16)
    columns = {name: values[:12] for name, values in lab(2).source((20,)).columns.items()}
    rows = terms[0][0].mask(Marks(0, terms[0][1]))
    for row, slots in terms[1:]:
        rows = rows + row.mask(Marks(0, slots))
    (joined,) = join_masks([rows])
    expected, found = (_masked_by_hand(one, columns, layout) for one in (rows, joined))
    np.testing.assert_array_equal(found, expected)


def _masked_by_hand(mask: Expression, columns: Any, layout: Layout) -> np.ndarray:
    if mask.op == "linear":
        terms = zip(mask.data[0], mask.args, strict=True)
        return np.sum(
            [factor * _masked_by_hand(one, columns, layout) for factor, one in terms], axis=0
        )
    (row,) = mask.args
    values = [1] * 12 if row.op == "here" else by_hand([row], columns, layout)[0]
    t = 1_000_003
    factors = mask.data.in_slots(layout.slots, t)[:12].astype(object)
    return np.array(values, dtype=object) * np.where(factors > t // 2, factors - t, factors)


@few
@given(marked_rows, st.sampled_from([1, 8]))
def test_joined_marks_decrypt(terms: list[tuple[Expression, set[int]]], copies: int) -> None:
    source = lab(copies).source((12,))
    rows = terms[0][0].mask(Marks(0, terms[0][1]))
    for row, slots in terms[1:]:
        rows = rows + row.mask(Marks(0, slots))
    outputs = [rows.total(), (rows * n).total()]
    for device in ("native", "seal"):
        found = unless_refused(
            lambda device=device: evaluate(outputs, source, device=device, **QUIET)
        )
        if found is not None:
            assert source.lab.owner.open(found) == source.clear(outputs)


# -- rows beside given totals
# ------------------------------------------------------------------------------------------------


def predicted(
    outputs: Sequence[Expression], copies: int, counts: tuple[int, ...], device: str = "native"
) -> None:
    """Rows times totals of a pack, against the same in the clear."""
    lab = kept_lab("bgv", copies=copies)
    source, rows = lab.source((20,)), lab.source(counts, seed=7)
    totals = [
        a.total(),
        (a * y).total(),
        (b * y).total(),
        n.total(),
        (w * y).total(),
        c.total(),
        (a * b).total(),
    ]
    more = [(b * b).total(), w.total()]
    packs = {
        "model": evaluate(totals, source, **QUIET),
        "drawn": evaluate(more, source, **QUIET),
    }
    found = evaluate(
        outputs,
        rows,
        form="rows",
        packs=packs,
        bounds=tuple(wide(lab, outputs)),
        device=device,
        **QUIET,
    )
    columns = {**rows.columns}
    for name, values in (("model", source.clear(totals)), ("drawn", source.clear(more))):
        columns |= {(name, k): [value] * rows.layout.n_rows for k, value in enumerate(values)}
    expected = by_hand(outputs, columns, rows.layout)
    np.testing.assert_array_equal(lab.owner.open(found), np.array(expected).T)


def wide(lab: Lab, outputs: Sequence[Expression]) -> list[Interval]:
    return [Interval(-lab.parameters.max_value, lab.parameters.max_value)] * len(outputs)


def model(k: int) -> Expression:
    return pack_total("model", k)


LINEAR = [
    [model(0) * n],
    [model(3) * a + (model(1) - model(2)) * b * w, model(5) * c + 2 * n],
    [sum((model(k) * x for k, x in enumerate((a, b, c, y, w, n, a * b))), 4 * a)],
    [model(6) + (model(1) - model(6)) * (1 - a) * (n + 2)],
]
BILINEAR = [[model(0) * pack_total("drawn", 1) * n + model(1) * pack_total("drawn", 0) * a * b]]
OTHERS = [[model(0) * model(1) * n], [model(4)], [n * a]]


@pytest.mark.parametrize("copies", [2, 8])
@pytest.mark.parametrize("outputs", [*LINEAR, *BILINEAR, *OTHERS], ids=repr)
def test_rows_beside_given_totals(outputs: list[Expression], copies: int) -> None:
    for device in ("native", "seal"):
        predicted(outputs, copies, (17, 4), device)


def test_sums_over_given_totals_are_a_few_products() -> None:
    lab = kept_lab("bgv", copies=8)
    source = lab.source((20,))
    packs = {"model": evaluate(forest(10), source, **QUIET)}
    count = len(packs["model"])
    terms = [pack_total("model", k) * (a, b, c, y)[k % 4] for k in range(count)]
    outputs = [sum(terms[1:], terms[0])]
    program = compile_for(
        outputs, source, form="rows", packs=packs, bounds=tuple(wide(lab, outputs))
    ).program
    assert sum(step.op == EXPAND for step in program.steps) == -(-count // 8)
    assert sum(step.op == MULTIPLY for step in program.steps) == -(-count // 8)


@few
@given(
    st.lists(st.integers(1, 3), min_size=3, max_size=3),
    st.lists(st.integers(-3, 3), min_size=4, max_size=4),
)
def test_by_given_is_the_same_polynomial(coefficients: list[int], values: list[int]) -> None:
    x, p, q = column("n"), model(0), model(1)
    i, j, k = coefficients
    output = (p * i + q) * x + (p - q * j) * x * x + k * x + (q + 5) * (x - 2) + p * x
    parted = split_by_given(output, {"model"})
    layout = Layout(1, 8)
    at = {"n": [values[0]], ("model", 0): [values[1]], ("model", 1): [values[2]]}
    ((expected,),) = by_hand([output], at, layout)
    assert parted is not None
    factors, rest = parted
    found = rest if isinstance(rest, int) else by_hand([rest], at, layout)[0][0]
    for node, factor in factors.items():
        found += at[node.data][0] * by_hand([factor], at, layout)[0][0]
    assert found == expected


# -- plans, and whole models
# ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(4)
    x = rng.integers(0, 5, (300, 4))
    return pd.DataFrame(x, columns=list("pqrs")).assign(
        sick=(x[:, 0] + x[:, 1] + rng.integers(0, 3, 300) > 5).astype(int)
    )


def test_plans_repeat_small_tables_of_one_owner(frame: pd.DataFrame) -> None:
    schema = es.Schema.infer(frame, target="sick")
    forest = es.CompletelyRandomForest(4, 2, random_state=1)
    ring = es.plan(forest, schema, n_rows=300).parameters.ring_degree
    for rows, copies in (
        (10, 16),
        (300, 16),
        (ring // 8, 8),
        (ring // 2, 2),
        (ring // 2 + 1, 1),
        (100_000, 1),
    ):
        made = es.plan(forest, schema, n_rows=rows).parameters
        assert (made.copies, made.slots) == (copies, made.ring_degree // copies)
    assert es.plan(forest, schema, n_rows=300, by_others=True).parameters.copies == 1
    assert es.plan(forest, schema, n_rows=300, members=2).parameters.copies == 1
    assert es.plan(forest, schema, n_rows=300, workers=2).parameters.copies == 1
    assert es.plan(forest, schema, n_rows=300, scheme="bfv").parameters.copies == 1


def test_a_table_that_is_larger_than_planned_has_more_chunks(frame: pd.DataFrame) -> None:
    schema = es.Schema.infer(frame, target="sick")
    forest = es.CompletelyRandomForest(4, 2, random_state=1)
    owner = es.Owner(es.plan(forest, schema, n_rows=300))
    table = schema.table(pd.concat([frame] * 4))
    sealed = owner.encrypt(table)
    assert sealed.layout.n_chunks == -(-1200 // owner.parameters.slots) > 1
    opened = owner.open(forest.fit(sealed))
    clear = es.CompletelyRandomForest(4, 2, random_state=1).fit(table)
    np.testing.assert_array_equal(opened.class_counts_, clear.class_counts_)


@pytest.mark.parametrize(
    ("fraction", "trees", "depth"),
    [(0, 4, 2), pytest.param(2, 2, 1, marks=pytest.mark.slow)],  # whose keys take 200 MB
)
def test_a_forest_that_is_never_opened(
    frame: pd.DataFrame, fraction: int, trees: int, depth: int
) -> None:
    schema = es.Schema.infer(frame, target="sick")
    forest = es.CompletelyRandomForest(trees, depth, fraction=fraction, random_state=1)
    table, new = schema.table(frame.iloc[:250]), schema.table(frame.iloc[250:])
    owner = es.Owner(es.plan(forest, table, encrypted_prediction=True))
    assert owner.parameters.copies == 16
    sealed, rows = owner.encrypt(table), owner.encrypt(new)
    votes = owner.open(forest.fit(sealed).predict_votes(rows))
    clear = es.CompletelyRandomForest(trees, depth, fraction=fraction, random_state=1).fit(
        table.with_layout(sealed.layout)
    )
    expected = clear.predict_votes(new.with_layout(rows.layout))
    np.testing.assert_array_equal(votes.to_numpy(), expected.to_numpy())


def test_devices_that_can_be_used() -> None:
    """The kernels are there: without them these tests would compare SEAL with itself."""
    assert "native" in usable(lab(8).keys)
    assert any(
        pack.op == PACK for pack in compile_for(forest(2), lab(8).source((5,))).program.packs
    )
