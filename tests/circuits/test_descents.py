"""Totals that descend alike are not tried one by one, and come out as if they were."""

from __future__ import annotations

import numpy as np
import pytest

import encryptedstats as es
from encryptedstats.circuits import lowering
from encryptedstats.circuits.expressions import Expression, column, in_order
from encryptedstats.circuits.lowering import plan_descent, plan_descents
from encryptedstats.crypto.noise import Noise

PARAMETERS = es.Parameters.from_bits("bgv", 8192, 1000, (42, 42, 43, 43))


def noises(low: float, high: float, size: int) -> list[Noise]:
    bits = np.random.default_rng(size).uniform(low, high, 40)
    return [Noise(2.0**b, 2.0 ** (b - 3), 0, size) for b in bits]


@pytest.mark.parametrize(("low", "high"), [(20, 21), (20, 120), (60, 110)])
def test_each_descends_as_alone(low: float, high: float) -> None:
    some = [*noises(low, high, 3), *noises(low, high, 5)]
    found = plan_descents(PARAMETERS, some)
    assert list(found) == some
    for noise, descent in found.items():
        alone = plan_descent(PARAMETERS, noise)
        assert (descent is None) == (alone is None)
        assert descent is None or alone is None or descent.switches == alone.switches


def test_alike_ones_are_planned_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[Noise]()

    def counted(parameters: es.Parameters, noise: Noise) -> lowering.Descent | None:
        asked.append(noise)
        return plan_descent(parameters, noise)

    monkeypatch.setattr(lowering, "plan_descent", counted)
    plan_descents(PARAMETERS, noises(20, 21, 3))
    assert len(asked) == 2


def test_nodes_come_once_after_their_arguments_from_left_to_right() -> None:
    a, b, c = (column(name) for name in "abc")
    shared = a * b
    outputs = [(shared + c).total(), (c * shared).total(), a.total(), a.total()]
    found = list[Expression]()

    def visit(node: Expression) -> None:
        for arg in node.args:
            visit(arg)
        if node not in found:
            found.append(node)

    for output in outputs:
        visit(output)
    assert list(in_order(outputs)) == found
