"""Rows beside totals that nobody has opened: any circuit of both gives what it gives in the clear,
proven before it is computed.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from circuit_samples import RANGES, Lab, MemorySource, insecure, part_slacks
from given_samples import PACKINGS, kept_lab, packed, usable
from hypothesis import HealthCheck, assume, settings
from hypothesis import given as examples
from hypothesis import strategies as st

import encryptedstats as es
from effort import one_scheme
from encryptedstats.circuits import column, linear
from encryptedstats.circuits.bounds import ColumnRange, Interval, read_bounds
from encryptedstats.circuits.clear import read_clear
from encryptedstats.circuits.compiled import GivenPacks
from encryptedstats.circuits.devices.batches import Packing
from encryptedstats.circuits.devices.native.steps import KernelPacking
from encryptedstats.circuits.evaluate import compile_for, evaluate
from encryptedstats.circuits.expressions import Expression, Key, pack_total, totals_of
from encryptedstats.circuits.lowering import Setting, row_descent
from encryptedstats.circuits.proof import prove_rows, read_noise, resting_level
from encryptedstats.circuits.results import EncryptedNumbers
from encryptedstats.crypto.noise import Noise
from encryptedstats.crypto.residues import ciphertext_of
from error_codes import error

few = settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
a, b, y, w, n = (column(name) for name in ("a0", "b1", "y0", "w", "n"))
#: Totals of every kind: padding adds to some of them, and one is in every slot already.
FITTED = [
    (a * y).total(),
    w.total(),
    (1 - a).total(),
    (2 - b * y).total() + 3,
    n.total() * y.total(),
    (n * n + 1).total() - 7,
]


def both(
    outputs: list[Expression],
    new: MemorySource,
    packs: dict[str, tuple[list[Expression], MemorySource]],
) -> Any:
    """The clear values, and what bounds them, for totals of other sources."""
    columns: dict[Key, Any] = dict(new.columns)
    ranges: dict[Key, ColumnRange] = dict(RANGES)
    for name, (totals, source) in packs.items():
        for k, (value, total) in enumerate(zip(source.clear(totals), totals, strict=True)):
            bound = source.bounds(totals)[total]
            columns[name, k] = np.full(new.layout.n_rows, value, dtype=object)
            ranges[name, k] = ColumnRange(bound.low, bound.high)
    bounds = read_bounds(outputs, ranges, new.layout.n_rows)
    clear = read_clear(outputs, columns, new.layout)
    return [bounds[output] for output in outputs], np.column_stack(clear)


def rows_of(
    outputs: list[Any],
    bounds: list[Interval],
    new: MemorySource,
    packs: dict[str, EncryptedNumbers],
    **options: Any,
) -> EncryptedNumbers:
    return evaluate(
        outputs, new, form="rows", packs=packs, bounds=bounds, progress=False, **options
    )


def check(outputs: list[Expression], lab: Lab, totals: list[Expression], **options: Any) -> None:
    source, new = lab.source((25, 3), seed=1), lab.source((5, 9), seed=2)
    bounds, wanted = both(outputs, new, {"model": (totals, source)})
    packs = {"model": packed(totals, source, 4)}
    rows = rows_of(outputs, bounds, new, packs, workers=1, **options)
    assert lab.owner.open(rows).tolist() == wanted.tolist()


@st.composite
def answers(draw: Any) -> list[Expression]:
    """Sums of products of columns and totals, plain numbers among them."""
    found = []
    for _ in range(draw(st.integers(1, 3))):
        terms = []
        for _ in range(draw(st.integers(1, 4))):
            # Total 4 is a product already, and total 5 a sum of squares: those are not multiplied
            # with others.
            k = draw(st.integers(0, 5))
            x = draw(st.sampled_from([column(name) for name in RANGES]))
            term = draw(
                st.sampled_from(
                    [
                        pack_total("model", k),
                        pack_total("model", k) * x,
                        pack_total("model", k) * x + x,
                        x,
                    ]
                )
            )
            if k < 2:
                term = draw(st.sampled_from([term, term * pack_total("model", 2)]))
            terms.append((draw(st.sampled_from([-2, -1, 1, 3])), term))
        try:
            found.append(linear(terms, draw(st.integers(-5, 5))))
        except ValueError:  # all terms cancel
            found.append(pack_total("model", 0) + y)
    return found


@pytest.mark.parametrize("scheme", ["bgv", "bfv"])
@few
@examples(answers())
def test_rows_beside_totals(scheme: str, outputs: list[Expression]) -> None:
    try:
        check(outputs, kept_lab(scheme), FITTED)
    except OverflowError:
        assume(False)


@one_scheme
@pytest.mark.parametrize("k", range(len(FITTED)))
def test_what_padding_has_added_is_taken_off(scheme: str, k: int) -> None:
    totals = packed(FITTED, kept_lab(scheme).source((25, 3), seed=1), 4)
    assert any(f.offset for f in totals.facts)
    assert {f.factor for f in totals.facts} == {
        1,
        totals.keys.parameters.ring_degree,
    }  # some are in every slot already
    check(
        [pack_total("model", k), pack_total("model", k) * y, 2 * pack_total("model", k) - w + 1],
        kept_lab(scheme),
        FITTED,
    )


def test_equal_answers() -> None:
    """The same number asked for twice, and a column that no total stands beside."""
    check(
        [pack_total("model", 1) * y, pack_total("model", 1) * y, w, w * n], kept_lab("bgv"), FITTED
    )


@pytest.mark.parametrize("device", ["auto", "seal"])
def test_few_totals_at_a_time(device: str) -> None:
    """Pieces of a sum, each with totals of its own, are added up, whatever their sizes; the plain
    number counts once.
    """
    totals = [k * (a * y).total() + w.total() for k in range(2, 42)]
    outputs = [
        linear([(k - 3, pack_total("model", k) * (y if k % 2 else w * y)) for k in range(40)], 11),
        linear([(1, pack_total("model", k)) for k in range(0, 40, 7)], -4),
        pack_total("model", 39) * n,
        pack_total("model", 0) * (w * y),  # a piece of the first as well
    ]
    check(outputs, kept_lab("bgv"), totals, device=device, memory_limit=0)


def test_devices_agree() -> None:
    """To the last bit of every residue, wherever they end."""
    lab = kept_lab("bgv")
    source, new = lab.source((25, 3), seed=1), lab.source((5, 9), seed=2)
    # Of columns alone: what is encrypted here, for padding, is another ciphertext every time.
    outputs = [
        pack_total("model", 0) * a + pack_total("model", 2) * (y - a),
        pack_total("model", 1) * w * n,
    ]
    bounds, wanted = both(outputs, new, {"model": (FITTED, source)})
    packs = {"model": packed(FITTED, source)}
    by_seal = rows_of(outputs, bounds, new, packs, device="seal")
    for name in usable(lab.keys):
        rows = rows_of(outputs, bounds, new, packs, device=name)
        assert lab.owner.open(rows).tolist() == wanted.tolist()
        for ours, theirs in zip(rows.parts, by_seal.parts, strict=True):
            np.testing.assert_array_equal(ours.residues, theirs.residues)
            assert ours.noise == theirs.noise


def test_packs_of_several_names_and_widths() -> None:
    lab = kept_lab("bgv")
    first, second, new = (lab.source((size,), seed=size) for size in (20, 30, 10))
    outputs = [
        pack_total("p", 2) * pack_total("q", 1) + pack_total("q", 0) * w - 5,
        pack_total("p", 0) + pack_total("q", 2),
    ]
    sets = {"p": (FITTED[:3], first), "q": (FITTED[:3], second)}
    bounds, wanted = both(outputs, new, sets)
    packs = {"p": packed(FITTED[:3], first, 1), "q": packed(FITTED[:3], second, 4)}
    rows = rows_of(outputs, bounds, new, packs)
    t = lab.parameters.plain_modulus
    scale = pow(lab.parameters.ring_degree, -1, t)
    assert {fact.factor for fact in rows.facts} == {
        scale
    }  # of all totals, whatever the width of their packs
    assert lab.owner.open(rows).tolist() == wanted.tolist()


def test_totals_are_found_by_their_names() -> None:
    outputs = [pack_total("model", 3) * column("v0.bin1") + pack_total("drawn", 12)]
    assert totals_of(outputs) == {("model", 3): ("model", 3), ("drawn", 12): ("drawn", 12)}


# -- proofs and margins
# ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["bgv", "bfv"])
def test_results_have_less_noise_than_was_proven(scheme: str) -> None:
    """As SEAL measures it, over several keys; what was proven is at least one bit."""
    outputs = [
        pack_total("model", 0) * a * w + pack_total("model", 1) * n,
        pack_total("model", 1) * y,
    ]
    for key in range(4):
        lab = kept_lab(scheme, key)
        source, new = lab.source((25, 3), seed=key), lab.source((9,), seed=key + 1)
        bounds, _ = both(outputs, new, {"model": (FITTED, source)})
        rows = rows_of(outputs, bounds, new, {"model": packed(FITTED, source)})
        for part in rows.parts:
            assert lab.parameters.noise.budget(part.noise) >= 1
            assert lab.slack(ciphertext_of(lab.keys.engine, part.residues), part.noise) > -1


def test_results_end_as_low_as_is_proven() -> None:
    model = kept_lab("bgv").parameters.noise
    fresh = model.fresh(with_secret_key=True)
    at, level = row_descent(model, fresh)
    assert model.decrypts(model.switch(fresh, level))
    assert level == model.levels - 1 >= at
    with pytest.raises(es.NoiseError, check=error("not-proven")):
        row_descent(model, fresh.times(2.0**900))


def test_columns_alone_are_computed_at_the_lowest_level() -> None:
    lab = kept_lab("bgv")
    source = lab.source((9,))
    proof = prove_rows([w * n], Setting(lab.parameters, source.layout))
    lower = prove_rows([w], Setting(lab.parameters, source.layout))
    assert lower.schedule.level > proof.schedule.level > 0
    assert (
        prove_rows([w * n], Setting(lab.parameters, source.layout), quick=True).schedule.level
        <= proof.schedule.level
    )


def test_refused_before_anything_is_computed() -> None:
    lab = kept_lab("bgv")
    source, new = lab.source((25,)), lab.source((9,))
    packs = {"model": packed(FITTED, source)}
    deep = pack_total("model", 0) * a
    for _ in range(9):
        deep = deep * y
    bounds = [Interval(0, 25)]
    with pytest.raises(es.NoiseError, match=re.escape("es.plan(..., encrypted_prediction=True)")):
        rows_of([deep], bounds, new, packs)
    with pytest.raises(OverflowError, check=error("larger-values")):
        rows_of([pack_total("model", 0)], [Interval(0, 1 << 40)], new, packs)
    stranger = {"model": packed(FITTED, kept_lab("bgv", 1).source((25,)))}
    with pytest.raises(es.KeyMismatchError, check=error("other-key")):
        rows_of([pack_total("model", 0)], bounds, new, stranger)
    slots = {"model": EncryptedNumbers(lab.keys, "slots", packs["model"].facts, ())}
    with pytest.raises(ValueError, check=error("not-packed", "'packed'", "form='packed'")):
        rows_of([pack_total("model", 0)], bounds, new, slots)
    assert new.loads == 0
    noise = GivenPacks.of_numbers("model", packs["model"]).noise
    assert noise.level == len(lab.parameters.data_moduli) - lab.parameters.kept_primes


# -- plain models
# ------------------------------------------------------------------------------------------------


def tight_lab() -> Lab:
    """Keys whose last prime alone leaves between one bit and three above what rounding does."""
    for bits in range(34, 40):
        lab = Lab(es.Owner(insecure("bgv", 1 << 16, (bits, 49, 49, 49))))
        model = lab.parameters.noise
        if 1 <= model.budget(model.rounding(2, model.levels - 1)) < 3:
            return lab
    raise AssertionError("no such prime")


def test_answers_of_plain_models_end_where_all_do() -> None:
    """Under one prime more, where a model of small numbers could do without it and one of large
    numbers could not.
    """
    lab = tight_lab()
    model, source = lab.parameters.noise, lab.source((9,))
    assert resting_level(model) == model.levels - 2
    small = model.fresh(with_secret_key=True)
    assert row_descent(model, small)[1] == model.levels - 1
    assert row_descent(model, small, resting_level(model))[1] == model.levels - 2
    most = lab.parameters.max_value
    outputs, bounds = [y, most // 3 * y, 0, most], [Interval(-most, most)] * 4
    rows = rows_of(outputs, bounds, source, {})
    assert len({part.noise for part in rows.parts}) == 1
    assert {part.residues.shape[:2] for part in rows.parts} == {(2, 2)}
    opened, wanted = lab.owner.open(rows), source.columns["y0"]
    assert opened.T.tolist() == [
        (factor * wanted + more).tolist()
        for factor, more in ((1, 0), (most // 3, 0), (0, 0), (0, most))
    ]


@pytest.mark.parametrize("scheme", ["bgv", "bfv"])
def test_what_is_proven_with_room_is_proven_at_rest(scheme: str) -> None:
    for parameters in (kept_lab(scheme).parameters, tight_lab().parameters):
        model = parameters.noise
        for level in range(resting_level(model) + 1):
            noise = Noise(2.0 ** (model.budget(Noise(1.0, level=level)) - 1.5), level=level)
            assert model.budget(noise) == pytest.approx(1.5)
            assert model.decrypts(model.switch(noise, resting_level(model)))


# -- totals of rows beside totals
# --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["bgv", "bfv"])
def test_totals_of_rows_times_given_totals(scheme: str) -> None:
    """Such as the weighted counts of a second table: packed, with the factor of the given totals
    told to who opens them.
    """
    lab = kept_lab(scheme)
    source, new = lab.source((25, 3), seed=1), lab.source((5, 9), seed=2)
    outputs = [
        (pack_total("model", 0) * y).total(),
        (pack_total("model", 1) * a * y - pack_total("model", 2) * w).total(),
        2 * (pack_total("model", 3) * n).total() - 9,
        w.total() + 1,
    ]
    bounds, wanted = both(outputs, new, {"model": (FITTED, source)})
    packs = {"model": packed(FITTED, source, 4)}
    for name in usable(lab.keys):
        totals = evaluate(
            outputs, new, packs=packs, bounds=bounds, device=name, workers=1, progress=False
        )
        assert totals.form == "packed"
        assert lab.owner.open(totals) == wanted[0].tolist()
        assert min(part_slacks(lab, totals)) > -1


@pytest.mark.parametrize("device", ["native", "seal"])
def test_totals_without_room_are_merged_as_they_come(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same packs, to the last bit, of which one is not full."""
    lab = kept_lab("bgv")
    source, called = lab.source((25, 3), seed=1), list[tuple[int, int]]()
    packing = PACKINGS[device]
    merge, merge_groups = packing.merge, packing.merge_groups

    def count_packs(self: Packing, parts: Any, level: int, to: int | None = None) -> Any:
        if level:
            called.append((len(parts), level))
        return merge(self, parts, level, to)

    def count_groups(self: Packing, groups: Any, to: int) -> Any:
        called.extend((len(group), 0) for group in groups)
        return merge_groups(self, groups, to)

    monkeypatch.setattr(packing, "merge", count_packs)
    monkeypatch.setattr(packing, "merge_groups", count_groups)
    outputs = [k * (a * y).total() + w.total() for k in range(2, 82)] + [n.total()]
    report = read_noise(outputs, Setting(source.parameters, source.layout)).with_width(64)
    small, large = (
        evaluate(
            outputs, source, report=report, device=device, memory_limit=m, workers=1, progress=False
        )
        for m in (0, 1 << 30)
    )
    assert called == [(32, 0), (32, 0), (17, 0), (2, 5), (1, 5)]
    assert lab.owner.open(small) == source.clear(outputs)
    for ours, theirs in zip(small.parts, large.parts, strict=True):
        np.testing.assert_array_equal(ours.residues, theirs.residues)


def test_totals_with_room_are_merged_early_to_reuse_their_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same packs, to the last bit, from smaller groups than where memory is short."""
    lab, merge_groups, sizes = kept_lab("bgv"), KernelPacking.merge_groups, list[int]()
    source = lab.source((25, 3), seed=1)
    outputs = [k * (a * y).total() + w.total() for k in range(2, 23)]
    whole = evaluate(outputs, source, device="native", memory_limit=1 << 30, progress=False)

    def count_groups(self: KernelPacking, groups: Any, to: int) -> Any:
        sizes.extend(map(len, groups))
        return merge_groups(self, groups, to)

    monkeypatch.setattr(KernelPacking, "merge_groups", count_groups)
    monkeypatch.setattr(KernelPacking, "early_bytes", 1)
    early = evaluate(outputs, source, device="native", memory_limit=1 << 30, progress=False)
    assert sizes == [8, 8, 5]
    for ours, theirs in zip(early.parts, whole.parts, strict=True):
        np.testing.assert_array_equal(ours.residues, theirs.residues)


def test_totals_beside_few_given_totals_at_a_time() -> None:
    lab = kept_lab("bgv")
    source, new = lab.source((25, 3), seed=1), lab.source((5, 9), seed=2)
    fitted = [k * (a * y).total() + w.total() for k in range(2, 42)]
    outputs = [
        (pack_total("model", k) * y + pack_total("model", k // 2) * w).total()
        for k in (39, 3, 17, 30, 8, 22, 11, 28, 34)
    ]
    outputs += [(pack_total("model", k) * n).total() for k in range(10, 20)]
    bounds, wanted = both(outputs, new, {"model": (fitted, source)})
    packs = {"model": packed(fitted, source, 4)}
    assert (
        len(compile_for(outputs, new, packs=packs, bounds=bounds, memory_limit=0).program.batches)
        > 1
    )
    totals = [
        evaluate(outputs, new, packs=packs, bounds=bounds, memory_limit=m, progress=False)
        for m in (0, 1 << 30)
    ]
    assert lab.owner.open(totals[0]) == wanted[0].tolist()
    for ours, theirs in zip(totals[0].parts, totals[1].parts, strict=True):
        np.testing.assert_array_equal(ours.residues, theirs.residues)


@pytest.mark.parametrize("scheme", ["bgv", "bfv"])
def test_totals_of_totals_are_given_again(scheme: str) -> None:
    """From stored things to stored things, and again: factors and what padding has added follow
    along.
    """
    lab = kept_lab(scheme)
    source, second, new = (
        lab.source((25, 3), seed=1),
        lab.source((3, 4), seed=2),
        lab.source((5, 2), seed=3),
    )
    middle = [
        (pack_total("model", 2) * y).total() + 4,
        (pack_total("model", 2) * a - 2 * y).total(),
    ]
    bounds, (between,) = both(middle, second, {"model": (FITTED, source)})
    packs = evaluate(
        middle, second, packs={"model": packed(FITTED, source)}, bounds=bounds, progress=False
    )
    assert lab.owner.open(packs) == between.tolist()
    rows = evaluate(
        [pack_total("middle", 0) * y - pack_total("middle", 1), pack_total("middle", 1) + w],
        new,
        form="rows",
        packs={"middle": packs},
        bounds=[Interval(-(1 << 20), 1 << 20)] * 2,
        progress=False,
    )
    wanted = [between[0] * new.columns["y0"] - between[1], between[1] + new.columns["w"]]
    assert lab.owner.open(rows).T.tolist() == [column.tolist() for column in wanted]
