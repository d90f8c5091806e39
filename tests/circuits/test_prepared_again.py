"""What was prepared once is found again by what everybody knows of a table, and by nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from circuit_samples import RANGES, Lab, lab_of
from given_samples import kept_lab, packed

from encryptedstats.circuits import column
from encryptedstats.circuits.bounds import ColumnRange, Interval
from encryptedstats.circuits.evaluate import compile_for, evaluate
from encryptedstats.circuits.expressions import Expression, pack_total
from encryptedstats.circuits.lowering import Setting
from encryptedstats.circuits.proof import read_noise
from encryptedstats.errors import TooLargeError


def written() -> list[Expression]:
    a, y, w = column("a0"), column("y0"), column("w")
    return [(a * y).total(), (w - a * y).total(), w.total() + 5]


def test_the_same_circuit_of_another_table_is_prepared_once_and_computed_anew(bgv: Lab) -> None:
    first, second = bgv.source((9,), seed=3), bgv.source((9,), seed=4)
    assert compile_for(written(), first) is compile_for(written(), second)
    for source in (first, second, first):
        found = bgv.owner.open(evaluate(written(), source))
        assert found == source.clear(written())
    assert first.clear(written()) != second.clear(written())


@pytest.mark.parametrize(
    "options",
    [
        {"form": "slots"},
        {"memory_limit": 1 << 20},
        {"bounds": [Interval(0, 90), Interval(-90, 99), Interval(0, 95)]},
        {"reported_bounds": [Interval(-1000, 1000)] * 3},
    ],
)
def test_asked_otherwise_it_is_prepared_again(bgv: Lab, options: dict[str, Any]) -> None:
    source = bgv.source((9,), seed=3)
    assert compile_for(written(), source, **options) is not compile_for(written(), source)


def test_a_proof_of_others_is_not_mistaken_for_the_own(bgv: Lab) -> None:
    source = bgv.source((9,), seed=3)
    report = read_noise(written(), Setting(source.parameters, source.layout))
    assert compile_for(written(), source, report=report.with_width(1)).program.width == 1
    assert compile_for(written(), source).program.width == 4


def test_other_rows_bounds_keys_or_parameters_are_prepared_again(bgv: Lab) -> None:
    source = bgv.source((9,), seed=3)
    known = compile_for(written(), source)
    more = compile_for(written(), bgv.source((9, 5), seed=3))
    assert [facts.high for facts in more.facts] > [facts.high for facts in known.facts]
    assert more.program.layout.n_rows == 14
    by_others = compile_for(written(), bgv.source((9,), with_secret_key=False), flood=False)
    assert by_others.program.sums[0].noise.flat > known.program.sums[0].noise.flat
    smaller = lab_of("bgv", max_value=1 << 20).source((9,), seed=3)
    assert (
        compile_for(written(), smaller).program.parameters
        == smaller.parameters
        != source.parameters
    )

    wider = bgv.source((9,), seed=3, known={**RANGES, "w": ColumnRange(0, 1 << 40)})
    with pytest.raises(TooLargeError):
        compile_for(written(), wider)


def test_given_totals_are_told_apart_by_how_they_are_read() -> None:
    lab = kept_lab("bgv")
    source, new = lab.source((9,), seed=3), lab.source((5,), seed=5)
    outputs = [pack_total("model", 0) * column("y0")]
    bounds = [Interval(-10_000, 10_000)]
    offset = packed([(1 - column("a0")).total()], source)
    without = packed([column("a0").total()], source)
    for packs, total in ((offset, (1 - column("a0")).total()), (without, column("a0").total())):
        rows = evaluate(outputs, new, form="rows", packs={"model": packs}, bounds=bounds)
        (value,) = source.clear([total])
        assert lab.owner.open(rows)[:, 0].tolist() == [value * y for y in new.columns["y0"]]
